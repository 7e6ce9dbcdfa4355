/* Included before every file that the explorer runs: sends to hooks.c what the compiler does not. */
#ifndef BERTH_TESTS_EXPLORE_HOOKS_H
#define BERTH_TESTS_EXPLORE_HOOKS_H

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

int hooks_yield(void);
long hooks_syscall(long number, ...);
int hooks_mutex_lock(pthread_mutex_t *mutex);
int hooks_mutex_trylock(pthread_mutex_t *mutex);
int hooks_mutex_unlock(pthread_mutex_t *mutex);
int hooks_once(pthread_once_t *once, void (*function)(void));
int hooks_key_create(pthread_key_t *key, void (*at_exit)(void *));
int hooks_setspecific(pthread_key_t key, const void *value);
int hooks_atfork(void (*before)(void), void (*parent)(void), void (*child)(void));
int hooks_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int hooks_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set);
long hooks_sysconf(int name);
int hooks_not_modelled(const char *what, ...);

#ifndef HOOKS_THEMSELVES
#define _Thread_local __attribute__((section("explore_threads")))
#define sched_yield hooks_yield
#define __builtin_ia32_pause() (void)hooks_yield()
#define syscall hooks_syscall
#define sched_getaffinity hooks_getaffinity
#define sched_setaffinity hooks_setaffinity
#define sysconf hooks_sysconf
#define pthread_mutex_lock hooks_mutex_lock
#define pthread_mutex_trylock hooks_mutex_trylock
#define pthread_mutex_unlock hooks_mutex_unlock
#define pthread_once hooks_once
#define pthread_key_create hooks_key_create
#define pthread_setspecific hooks_setspecific
#define pthread_atfork hooks_atfork
#define pthread_create(...) hooks_not_modelled("pthread_create", __VA_ARGS__)
#define pthread_join(...) hooks_not_modelled("pthread_join", __VA_ARGS__)
#define pthread_cond_wait(...) hooks_not_modelled("pthread_cond_wait", __VA_ARGS__)
#define pthread_cond_timedwait(...) hooks_not_modelled("pthread_cond_timedwait", __VA_ARGS__)
#endif

#endif

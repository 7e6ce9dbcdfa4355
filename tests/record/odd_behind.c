/* Stands behind the recorder: an mremap during which another thread takes the place that has become free, and a library that has
 * handlers of forks before the recorder has them, which wait for other threads and take memory. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odd_behind.h"

static void *place;
static size_t place_bytes;

static void *take_place(void *unused)
{
    return mmap(place, place_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                -1, 0) == place
               ? unused
               : NULL;
}

void *mremap(void *address, size_t old_length, size_t length, int flags, ...)
{
    pthread_t thread;
    void *taken = NULL;
    long p = syscall(SYS_mremap, address, old_length, length, flags, NULL);
    place = address;
    place_bytes = old_length;
    if (p == -1 || (void *)p == address || pthread_create(&thread, NULL, take_place, &place))
        return MAP_FAILED;
    pthread_join(thread, &taken);
    return taken ? (void *)p : MAP_FAILED;
}

/* ---- Forks ------------------------------------------------------------------------------------------------ */

pthread_mutex_t odd_lock = PTHREAD_MUTEX_INITIALIZER;
bool odd_forks;
static atomic_int walks; /* how many are where the loader has its lock */

int dl_iterate_phdr(int (*take)(struct dl_phdr_info *, size_t, void *), void *data)
{
    static int (*behind)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    if (!behind)
        *(void **)&behind = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    atomic_fetch_add(&walks, 1);
    for (int i = 0; odd_forks && i < 20; i++)
        sched_yield();
    int result = behind(take, data);
    atomic_fetch_sub(&walks, 1);
    return result;
}

static void *volatile taken_at_fork;
__attribute__((noinline)) static void take_memory(size_t bytes)
{
    taken_at_fork = malloc(bytes);
    free(taken_at_fork);
}

static void before_fork(void)
{
    if (!odd_forks)
        return;
    pthread_mutex_lock(&odd_lock);
    take_memory(ODD_BEFORE_FORK);
}
static void after_fork(void)
{
    if (!odd_forks)
        return;
    take_memory(ODD_AFTER_FORK);
    pthread_mutex_unlock(&odd_lock);
}
static void after_fork_in_child(void)
{
    if (odd_forks && atomic_load(&walks)) /* it would wait for ever */
        _exit(1);
    after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

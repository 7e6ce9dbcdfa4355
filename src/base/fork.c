/* The list of mutexes that a fork finds open. */
#include "base/fork.h"

#include <stddef.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static berth__fork_mutex *all; /* guard: list_lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Past the ranks: here alone somebody holds several of one rank. Nobody who holds one waits for another. */
static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (berth__fork_mutex *m = all; m; m = m->next)
        pthread_mutex_lock(&m->lock);
}

static void after_fork(void)
{
    for (berth__fork_mutex *m = all; m; m = m->next)
        pthread_mutex_unlock(&m->lock);
    pthread_mutex_unlock(&list_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void berth__fork_mutex_init(berth__fork_mutex *m)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_lock(&list_lock);
    m->previous = NULL;
    m->next = all;
    if (all)
        all->previous = m;
    all = m;
    pthread_mutex_unlock(&list_lock);
}

void berth__fork_mutex_finish(berth__fork_mutex *m)
{
    pthread_mutex_lock(&list_lock);
    if (m->next)
        m->next->previous = m->previous;
    if (m->previous)
        m->previous->next = m->next;
    else
        all = m->next;
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_destroy(&m->lock);
}

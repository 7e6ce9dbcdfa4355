/* The list of mutexes that a fork finds open. */
#include "base/fork_mutex.h"

#include <stddef.h>

#include "base/lock.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static berth__fork_mutex *all; /* guard: list_lock */

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

static berth__fork_watch watch = {
    .rank = BERTH__RANK_REPLAY, .prepare = before_fork, .parent = after_fork, .child = after_fork};

void berth__fork_mutex_init(berth__fork_mutex *m)
{
    berth__fork_watch_add(&watch);
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

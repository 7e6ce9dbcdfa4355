/* Mutexes that a fork finds open: handlers take all of them before the fork and give them back after it, in
 * parent and child, so that what they guard is whole in the child whatever other threads were doing. For
 * short work that calls nobody; a mutex held for long would hold up every fork. */
#ifndef BERTH_BASE_FORK_MUTEX_H
#define BERTH_BASE_FORK_MUTEX_H

#include <pthread.h>

typedef struct berth__fork_mutex {
    pthread_mutex_t lock;
    struct berth__fork_mutex *next, *previous; /* guard: the list's lock */
} berth__fork_mutex;

void berth__fork_mutex_init(berth__fork_mutex *mutex);
void berth__fork_mutex_finish(berth__fork_mutex *mutex);

#endif

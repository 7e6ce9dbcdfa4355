/* What Berth has of the driver's: references to contexts, queues and events. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>

enum { HELD_BUCKETS = 4096 };

typedef struct held {
    struct held *next;
    const void *object;
    long count;
} held;

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static held *all_held[HELD_BUCKETS]; /* guard: held_lock */

/* With the lock held: where the one is, or would be. */
static held **held_at(const void *object)
{
    held **at = &all_held[((uintptr_t)object >> 4) % HELD_BUCKETS];
    while (*at && (*at)->object != object)
        at = &(*at)->next;
    return at;
}

void shim_hold(const char *what, const void *object)
{
    pthread_mutex_lock(&held_lock);
    held **at = held_at(object);
    if (!*at)
        *at = calloc(1, sizeof **at);
    if (!*at)
        shim_complain("no memory to remember a %s", what);
    (*at)->object = object;
    (*at)->count++;
    pthread_mutex_unlock(&held_lock);
}

long shim_let_go(const char *what, const void *object)
{
    pthread_mutex_lock(&held_lock);
    held **at = held_at(object), *one = *at;
    if (!one)
        shim_complain("the %s is released that nobody has, or once too often", what);
    long left = --one->count;
    if (left == 0) {
        *at = one->next;
        free(one);
    }
    pthread_mutex_unlock(&held_lock);
    return left;
}

long shim_live(void)
{
    long count = shim_blocks();
    pthread_mutex_lock(&held_lock);
    for (size_t i = 0; i < HELD_BUCKETS; i++)
        for (const held *one = all_held[i]; one; one = one->next)
            count += one->count;
    pthread_mutex_unlock(&held_lock);
    return count;
}

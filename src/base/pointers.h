/* A map from pointers to pointers for things that are rare: one lock, and free while it is empty. */
#ifndef BERTH_BASE_POINTERS_H
#define BERTH_BASE_POINTERS_H

#include <stdatomic.h>

#include "base/lock.h"

enum { BERTH__POINTERS_BUCKETS = 64 };

/* All zero is empty. */
typedef struct berth__pointers {
    _Atomic size_t count;
    berth__spin lock;
    struct berth__pointers_node *buckets[BERTH__POINTERS_BUCKETS]; /* guard: lock */
} berth__pointers;

/* Remembers `value` under `key`, which is not in the map. False: no memory. Any thread. */
bool berth__pointers_put(berth__pointers *map, const void *key, void *value, berth__rank rank);
/* Takes `key` out and returns its value; NULL if it is not there. Any thread. */
void *berth__pointers_take(berth__pointers *map, const void *key, berth__rank rank);

#endif

/* A map from pointers to pointers, chained. */
#include "base/pointers.h"

typedef struct berth__pointers_node {
    const void *key;
    void *value;
    struct berth__pointers_node *next;
} node;

static node **bucket_of(berth__pointers *map, const void *key)
{
    uint64_t mixed = (uint64_t)berth__untag((uintptr_t)key) * 0x9e3779b97f4a7c15u;
    return &map->buckets[mixed >> 58];
}

bool berth__pointers_put(berth__pointers *map, const void *key, void *value, berth__rank rank)
{
    node *added = berth__heap_alloc(sizeof *added);
    if (!added)
        return false;
    node **bucket = bucket_of(map, key);
    berth__spin_lock(&map->lock, rank);
    *added = (node){key, value, *bucket};
    *bucket = added;
    berth__spin_unlock(&map->lock, rank);
    atomic_fetch_add(&map->count, 1);
    return true;
}

void *berth__pointers_take(berth__pointers *map, const void *key, berth__rank rank)
{
    /* A key that this thread may ask for was put before, so the count has seen it. */
    if (atomic_load(&map->count) == 0)
        return NULL;
    node *found = NULL;
    berth__spin_lock(&map->lock, rank);
    for (node **link = bucket_of(map, key); *link; link = &(*link)->next)
        if (berth__untag((uintptr_t)(*link)->key) == berth__untag((uintptr_t)key)) {
            found = *link;
            *link = found->next;
            break;
        }
    berth__spin_unlock(&map->lock, rank);
    if (!found)
        return NULL;
    atomic_fetch_sub(&map->count, 1);
    void *value = found->value;
    berth__heap_free(found);
    return value;
}

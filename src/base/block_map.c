/* The address map: shards of chained buckets that double when they are full. */
#include "base/block_map.h"

#include <string.h>

enum { FIRST_BITS = 6 };

/* Blocks lie at multiples of 16 to 64: the low bits say nothing. */
static uint64_t hash_of(uintptr_t address)
{
    uint64_t x = (uint64_t)berth__untag(address) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static berth__block_shard *shard_of(berth__block_map *map, uintptr_t address)
{
    return &map->shards[hash_of(address) >> 60];
}

static size_t bucket_of(const berth__block_shard *shard, uintptr_t address)
{
    return (size_t)(hash_of(address) >> 8) & (((size_t)1 << shard->bucket_bits) - 1);
}

static void block_map_lock(berth__block_shard *shard)
{
    berth__spin_lock(&shard->lock, BERTH__RANK_TABLE);
}

static void block_map_unlock(berth__block_shard *shard)
{
    berth__spin_unlock(&shard->lock, BERTH__RANK_TABLE);
}

static bool block_map_grow(berth__block_shard *shard)
{
    uint32_t bits = shard->buckets ? shard->bucket_bits + 1 : FIRST_BITS;
    berth__block_entry **old = shard->buckets;
    size_t old_count = old ? (size_t)1 << shard->bucket_bits : 0;
    berth__block_entry **buckets = berth__heap_zalloc((size_t)1 << bits, sizeof *buckets);
    if (!buckets)
        return old != NULL; /* longer chains serve as well */
    shard->buckets = buckets;
    shard->bucket_bits = bits;
    for (size_t i = 0; i < old_count; i++) {
        berth__block_entry *next = NULL;
        for (berth__block_entry *entry = old[i]; entry; entry = next) {
            next = entry->next;
            size_t to = bucket_of(shard, entry->address);
            entry->next = buckets[to];
            buckets[to] = entry;
        }
    }
    berth__heap_free(old);
    return true;
}

bool berth__block_map_prepare(berth__block_map *map)
{
    if (BERTH_LIKELY(atomic_load_explicit(&map->prepared, memory_order_acquire)))
        return true;
    for (int i = 0; i < BERTH__BLOCK_SHARDS; i++) {
        block_map_lock(&map->shards[i]);
        bool there = map->shards[i].buckets || block_map_grow(&map->shards[i]);
        block_map_unlock(&map->shards[i]);
        if (!there)
            return false;
    }
    atomic_store_explicit(&map->prepared, true, memory_order_release);
    return true;
}

void berth__block_map_finish(berth__block_map *map)
{
    for (int i = 0; i < BERTH__BLOCK_SHARDS; i++)
        berth__heap_free(map->shards[i].buckets);
    memset(map, 0, sizeof *map);
}

bool berth__block_map_put(berth__block_map *map, berth__block_entry *entry)
{
    berth__block_shard *shard = shard_of(map, entry->address);
    block_map_lock(shard);
    bool full = !shard->buckets || shard->count >= (size_t)1 << shard->bucket_bits;
    bool room = !full || block_map_grow(shard);
    if (room) {
        size_t to = bucket_of(shard, entry->address);
        entry->next = shard->buckets[to];
        shard->buckets[to] = entry;
        shard->count++;
    }
    block_map_unlock(shard);
    return room;
}

/* With the lock held: where the link to the entry of `address` is; NULL: nowhere. */
static berth__block_entry **block_map_find(berth__block_shard *shard, uintptr_t address)
{
    if (!shard->buckets)
        return NULL;
    berth__block_entry **link = &shard->buckets[bucket_of(shard, address)];
    while (*link && berth__untag((*link)->address) != berth__untag(address))
        link = &(*link)->next;
    return *link ? link : NULL;
}

berth__block_entry *berth__block_map_take(berth__block_map *map, const void *address)
{
    berth__block_shard *shard = shard_of(map, (uintptr_t)address);
    block_map_lock(shard);
    berth__block_entry **link = block_map_find(shard, (uintptr_t)address), *entry = NULL;
    if (link) {
        entry = *link;
        *link = entry->next;
        shard->count--;
    }
    block_map_unlock(shard);
    return entry;
}

static berth__block_entry *take_first(berth__block_shard *shard)
{
    for (size_t i = 0; shard->count && i < (size_t)1 << shard->bucket_bits; i++) {
        berth__block_entry *entry = shard->buckets[i];
        if (!entry)
            continue;
        shard->buckets[i] = entry->next;
        shard->count--;
        return entry;
    }
    return NULL;
}

berth__block_entry *berth__block_map_take_any(berth__block_map *map)
{
    for (int i = 0; i < BERTH__BLOCK_SHARDS; i++) {
        block_map_lock(&map->shards[i]);
        berth__block_entry *entry = take_first(&map->shards[i]);
        block_map_unlock(&map->shards[i]);
        if (entry)
            return entry;
    }
    return NULL;
}

bool berth__block_map_read(berth__block_map *map, const void *address, void *copy, size_t entry_bytes)
{
    berth__block_shard *shard = shard_of(map, (uintptr_t)address);
    block_map_lock(shard);
    berth__block_entry **link = block_map_find(shard, (uintptr_t)address);
    if (link)
        memcpy(copy, *link, entry_bytes);
    block_map_unlock(shard);
    return link != NULL;
}

bool berth__block_map_write(berth__block_map *map, const void *address, size_t offset, const void *bytes,
                            size_t size_bytes)
{
    berth__block_shard *shard = shard_of(map, (uintptr_t)address);
    block_map_lock(shard);
    berth__block_entry **link = block_map_find(shard, (uintptr_t)address);
    if (link)
        memcpy((char *)*link + offset, bytes, size_bytes);
    block_map_unlock(shard);
    return link != NULL;
}

size_t berth__block_map_count(berth__block_map *map)
{
    size_t count = 0;
    for (int i = 0; i < BERTH__BLOCK_SHARDS; i++) {
        block_map_lock(&map->shards[i]);
        count += map->shards[i].count;
        block_map_unlock(&map->shards[i]);
    }
    return count;
}

/* As many of the shard's entries as fit into `room`. */
static size_t copy_shard(berth__block_shard *shard, size_t entry_bytes, char *to, size_t room)
{
    size_t copied = 0;
    block_map_lock(shard);
    for (size_t i = 0; shard->count && i < (size_t)1 << shard->bucket_bits; i++)
        for (berth__block_entry *entry = shard->buckets[i]; entry && copied < room; entry = entry->next)
            memcpy(to + copied++ * entry_bytes, entry, entry_bytes);
    block_map_unlock(shard);
    return copied;
}

bool berth__block_map_copy(berth__block_map *map, size_t entry_bytes, void **copies, size_t *count)
{
    *copies = NULL;
    *count = 0;
    /* What is added meanwhile beyond this room is left out: it was not there when the question was asked. */
    size_t room = berth__block_map_count(map);
    if (room == 0)
        return true;
    char *array = berth__heap_alloc(room * entry_bytes);
    if (!array)
        return false;
    for (int i = 0; i < BERTH__BLOCK_SHARDS; i++)
        *count += copy_shard(&map->shards[i], entry_bytes, array + *count * entry_bytes, room - *count);
    *copies = array;
    return true;
}

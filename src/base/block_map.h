/* A map from a block's address to what is known of it, for allocators whose blocks cannot carry a header:
 * device memory, addresses without memory, and guards that trust nothing beside a block.
 *
 * An address is the same with and without a tag in its top bits (berth__untag). Entries belong to the caller
 * and start with berth__block_entry. Shards keep threads apart; nothing runs
 * under a shard's lock but the map itself. All zero is an empty map. */
#ifndef BERTH_BASE_BLOCK_MAP_H
#define BERTH_BASE_BLOCK_MAP_H

#include "base/base.h"
#include "base/lock.h"

typedef struct berth__block_entry {
    struct berth__block_entry *next; /* guard: the shard's lock while in the map, else the caller's */
    uintptr_t address;
} berth__block_entry;

enum { BERTH__BLOCK_SHARDS = 16 };

typedef struct berth__block_shard {
    berth__spin lock;
    uint32_t bucket_bits;         /* guard: lock */
    size_t count;                 /* guard: lock */
    berth__block_entry **buckets; /* guard: lock */
    uint64_t apart[5];            /* shards do not share cache lines */
} berth__block_shard;

typedef struct berth__block_map {
    berth__block_shard shards[BERTH__BLOCK_SHARDS];
    _Atomic bool prepared;
} berth__block_map;

/* Gets all the buckets that the map needs for the start: after this, berth__block_map_put does not fail.
 * False: no memory; berth__block_map_finish gives back what was got. Any thread, again and again. */
bool berth__block_map_prepare(berth__block_map *map);

/* Gives the buckets back; entries that are still inside are the caller's to free (see take_any). */
void berth__block_map_finish(berth__block_map *map);

/* Puts `entry` in. False, of a map that is not prepared: there is no memory for buckets; nothing changed. */
bool berth__block_map_put(berth__block_map *map, berth__block_entry *entry);

/* Removes and returns the entry of `address`; NULL: there is none. Of several threads one gets it. */
berth__block_entry *berth__block_map_take(berth__block_map *map, const void *address);

/* Any entry, removed; NULL when the map is empty. */
berth__block_entry *berth__block_map_take_any(berth__block_map *map);

/* Copies the entry of `address`, `entry_bytes` long, out from under the lock. False: there is none. */
bool berth__block_map_read(berth__block_map *map, const void *address, void *copy, size_t entry_bytes);

/* Writes `size_bytes` at `offset` of the entry of `address`, under the lock. False: there is none. */
bool berth__block_map_write(berth__block_map *map, const void *address, size_t offset, const void *bytes,
                            size_t size_bytes);

/* Copies of all entries, `entry_bytes` each, in one array from berth__heap_alloc; NULL with *count 0 when
 * empty. False: no memory. Each shard is of one moment. */
bool berth__block_map_copy(berth__block_map *map, size_t entry_bytes, void **copies, size_t *count);

size_t berth__block_map_count(berth__block_map *map);

#endif

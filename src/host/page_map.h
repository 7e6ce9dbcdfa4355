/* From any address to what was registered for its page: three levels of 4096 entries.
 *
 *   47        36 35        24 23        12 11         0       with pages of 4 KiB; with pages of 64 KiB
 *   +-----------+-----------+-----------+------------+       every field lies 4 bits further up
 *   | root      | middle    | leaf      | in page    |
 *   +-----------+-----------+-----------+------------+
 *
 * Looking up takes no lock and never follows a pointer into memory that could go away: tables stay until the
 * map is finished. The grain is the system's page, the least that can be locked. Tags in the upper bits of a
 * pointer (top byte ignore and memory tags on ARM, linear address masking on x86) are no part of the address:
 * pointers that differ only in them find the same. */
#ifndef BERTH_HOST_PAGE_MAP_H
#define BERTH_HOST_PAGE_MAP_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"

enum {
    berth__page_fan_log2 = 12,
    berth__page_fan = 1 << berth__page_fan_log2,
};

typedef struct berth__page_leaf {
    _Atomic(void *) entries[berth__page_fan];
} berth__page_leaf;

typedef struct berth__page_middle {
    _Atomic(berth__page_leaf *) leaves[berth__page_fan];
} berth__page_middle;

typedef struct berth__page_map {
    uint32_t page_log2;     /* of the system; as the next one, fixed when the map is made */
    uintptr_t address_mask; /* the bits of a pointer that are its address */
    _Atomic(berth__page_middle *) middles[berth__page_fan];
} berth__page_map;

/* An empty map for the system's pages and pointers, NULL when there is no memory for it. Destroy accepts NULL. */
berth__page_map *berth__page_map_create(void);
void berth__page_map_destroy(berth__page_map *map);

/* Registers `value` for every page of [base, base + size). `base` is the start of a page. Several threads may
 * do this at once for ranges that do not overlap. BERTH_OK; BERTH_OUT_OF_HOST_MEMORY and BERTH_UNSUPPORTED
 * (the address has more bits than the tables) change nothing. */
berth_status berth__page_map_set(berth__page_map *map, const void *base, size_t size_bytes, void *value);

/* Forgets the range, which was registered before. */
void berth__page_map_clear(berth__page_map *map, const void *base, size_t size_bytes);

/* The address in a pointer. */
static inline uintptr_t berth__page_map_address(const berth__page_map *map, const void *p)
{
    return (uintptr_t)p & map->address_mask;
}

/* What is registered for the page of `p`; NULL for every other address. Any thread. */
static inline void *berth__page_map_find(const berth__page_map *map, const void *p)
{
    uintptr_t page = berth__page_map_address(map, p) >> map->page_log2;
    uintptr_t top = page >> (2 * berth__page_fan_log2);
    if (BERTH_UNLIKELY(top >= berth__page_fan))
        return NULL;
    berth__page_middle *middle = atomic_load_explicit(&map->middles[top], memory_order_acquire);
    if (BERTH_UNLIKELY(!middle))
        return NULL;
    berth__page_leaf *leaf = atomic_load_explicit(
        &middle->leaves[(page >> berth__page_fan_log2) & (berth__page_fan - 1)], memory_order_acquire);
    if (BERTH_UNLIKELY(!leaf))
        return NULL;
    return atomic_load_explicit(&leaf->entries[page & (berth__page_fan - 1)], memory_order_acquire);
}

#endif

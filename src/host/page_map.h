/* From any address to what was registered for its page: three levels of 4096 entries over 48 bits.
 *
 *   47        36 35        24 23        12 11         0
 *   +-----------+-----------+-----------+------------+
 *   | root      | middle    | leaf      | in page    |
 *   +-----------+-----------+-----------+------------+
 *
 * Looking up takes no lock and never follows a pointer into memory that could go away: tables stay until the
 * map is finished. A 4 KiB page is the grain because drivers promise no more for pinned memory. */
#ifndef BERTH_HOST_PAGE_MAP_H
#define BERTH_HOST_PAGE_MAP_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"

enum {
    berth__page_log2 = 12,
    berth__page_fan_log2 = 12,
    berth__page_fan = 1 << berth__page_fan_log2,
};
#define BERTH__PAGE_BYTES ((size_t)1 << berth__page_log2)

typedef struct berth__page_leaf {
    _Atomic(void *) entries[berth__page_fan];
} berth__page_leaf;

typedef struct berth__page_middle {
    _Atomic(berth__page_leaf *) leaves[berth__page_fan];
} berth__page_middle;

typedef struct berth__page_map {
    _Atomic(berth__page_middle *) middles[berth__page_fan];
} berth__page_map;

/* An empty map, NULL when there is no memory for it. Destroy accepts NULL. */
berth__page_map *berth__page_map_create(void);
void berth__page_map_destroy(berth__page_map *map);

/* Registers `value` for every page of [base, base + size). `base` is the start of a page. Several threads may
 * do this at once for ranges that do not overlap. BERTH_OK; BERTH_OUT_OF_HOST_MEMORY and BERTH_UNSUPPORTED
 * (the address has more than 48 bits) change nothing. */
berth_status berth__page_map_set(berth__page_map *map, const void *base, size_t size_bytes, void *value);

/* Forgets the range, which was registered before. */
void berth__page_map_clear(berth__page_map *map, const void *base, size_t size_bytes);

/* What is registered for the page of `p`; NULL for every other address. Any thread. */
static inline void *berth__page_map_find(const berth__page_map *map, const void *p)
{
    uintptr_t page = (uintptr_t)p >> berth__page_log2;
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

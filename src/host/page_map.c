/* Growing and filling the page map. */
#include "host/page_map.h"

#include <sys/syscall.h>
#include <unistd.h>

static uint32_t system_page_log2(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes < 4096 ? 12 : (uint32_t)__builtin_ctzl((unsigned long)bytes);
}

/* Which bits of a pointer the processor takes for its address. */
static uintptr_t system_address_mask(void)
{
#if defined(__aarch64__)
    return UINTPTR_MAX >> 8; /* Linux has the top byte ignored in every program */
#elif defined(__x86_64__)
    enum { ask_untag_mask = 0x4001 }; /* ARCH_GET_UNTAG_MASK, which older headers lack */
    unsigned long mask = 0;
    return syscall(SYS_arch_prctl, ask_untag_mask, &mask) == 0 && mask ? mask : UINTPTR_MAX;
#else
    return UINTPTR_MAX;
#endif
}

berth__page_map *berth__page_map_create(void)
{
    berth__page_map *map = berth__heap_zalloc(1, sizeof(berth__page_map));
    if (map) {
        map->page_log2 = system_page_log2();
        map->address_mask = system_address_mask();
    }
    return map;
}

void berth__page_map_destroy(berth__page_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < berth__page_fan; i++) {
        berth__page_middle *middle = atomic_load_explicit(&map->middles[i], memory_order_relaxed);
        if (!middle)
            continue;
        for (size_t j = 0; j < berth__page_fan; j++)
            berth__heap_free(atomic_load_explicit(&middle->leaves[j], memory_order_relaxed));
        berth__heap_free(middle);
    }
    berth__heap_free(map);
}

/* The table that `slot` points to, made if it is not there. Who comes second throws his away. */
#define TABLE_OF(type, slot)                                                       \
    ({                                                                             \
        type *table_ = atomic_load_explicit((slot), memory_order_acquire);         \
        if (!table_) {                                                             \
            type *fresh_ = berth__heap_zalloc(1, sizeof(type));                    \
            if (fresh_ && atomic_compare_exchange_strong((slot), &table_, fresh_)) \
                table_ = fresh_;                                                   \
            else                                                                   \
                berth__heap_free(fresh_);                                          \
        }                                                                          \
        table_;                                                                    \
    })

static berth__page_leaf *leaf_of(berth__page_map *map, uintptr_t page)
{
    berth__page_middle *middle =
        TABLE_OF(berth__page_middle, &map->middles[page >> (2 * berth__page_fan_log2)]);
    if (!middle)
        return NULL;
    return TABLE_OF(berth__page_leaf,
                    &middle->leaves[(page >> berth__page_fan_log2) & (berth__page_fan - 1)]);
}

static void page_map_fill(berth__page_map *map, uintptr_t first, uintptr_t end, void *value)
{
    for (uintptr_t page = first; page < end;) {
        berth__page_leaf *leaf = leaf_of(map, page);
        if (!BERTH_ASSERT(leaf, "[H9] the tables of a range are made before it is filled"))
            return;
        do
            atomic_store_explicit(&leaf->entries[page & (berth__page_fan - 1)], value, memory_order_release);
        while ((++page & (berth__page_fan - 1)) != 0 && page < end);
    }
}

static uintptr_t end_page(const berth__page_map *map, const void *base, size_t size_bytes)
{
    BERTH_DCHECK(size_bytes != 0, "[H9] a range has pages");
    uintptr_t last = berth__page_map_address(map, base) + size_bytes - 1;
    return (last >> map->page_log2) + 1;
}

berth_status berth__page_map_set(berth__page_map *map, const void *base, size_t size_bytes, void *value)
{
    uintptr_t first = berth__page_map_address(map, base) >> map->page_log2;
    uintptr_t end = end_page(map, base, size_bytes);
    if (end > (uintptr_t)1 << (3 * berth__page_fan_log2))
        return berth__fail(BERTH_UNSUPPORTED, "the device gave memory at %p, beyond %u bits of address", base,
                           3 * berth__page_fan_log2 + map->page_log2);
    for (uintptr_t page = first; page < end; page = (page | (berth__page_fan - 1)) + 1)
        if (!leaf_of(map, page))
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note where %zu bytes at %p lie",
                               size_bytes, base);
    page_map_fill(map, first, end, value);
    return BERTH_OK;
}

void berth__page_map_clear(berth__page_map *map, const void *base, size_t size_bytes)
{
    page_map_fill(map, berth__page_map_address(map, base) >> map->page_log2, end_page(map, base, size_bytes),
                  NULL);
}

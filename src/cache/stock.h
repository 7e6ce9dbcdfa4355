/* Stocks: a few idle blocks a thread, by exact size, so that a program that frees and allocates the same
 * sizes meets no lock.
 *
 * Small blocks lie in bins by size. Of larger ones the last few freed are kept, and a request that matches
 * none of them puts them all back before it looks elsewhere: a block kept back is a hole in nobody's map, and
 * with holes in the wrong places the pool grows (to 2.5 times what is live on one recorded network).
 *
 * A stock lies beside its thread's slot of the pool's meter, and is touched by that thread inside the slot,
 * or by anyone while the meter is stopped [S1]: who needs the idle blocks of all threads stops it. */
#ifndef BERTH_CACHE_STOCK_H
#define BERTH_CACHE_STOCK_H

#include "cache/arena.h"

enum {
    BERTH__STOCK_GRAIN_SHIFT = 8,
    BERTH__STOCK_BINS = 16, /* of 1 to 16 grains */
    BERTH__STOCK_DEPTH = 4,
    BERTH__STOCK_RECENT = 4,
    BERTH__STOCK_MOST = BERTH__STOCK_RECENT /* that one call puts out */
};

typedef struct berth__bin {
    uint32_t count;
    berth__span *spans[BERTH__STOCK_DEPTH];
} berth__bin;

typedef struct berth__stock {
    uint32_t recent_count;
    uint32_t ids_left; /* of the allocation ids this thread has drawn */
    uint32_t until_clock;
    uint64_t next_id;
    uint64_t now_ns; /* the clock as last read by this thread, for ages */
    size_t recent_sizes[BERTH__STOCK_RECENT];
    berth__span *recent[BERTH__STOCK_RECENT];
    berth__bin bins[BERTH__STOCK_BINS];
} berth__stock;

/* The bin for a size, NULL for one that is not small. */
static inline berth__bin *berth__stock_bin(berth__stock *stock, size_t size_bytes)
{
    size_t grains = size_bytes >> BERTH__STOCK_GRAIN_SHIFT;
    return grains <= BERTH__STOCK_BINS ? &stock->bins[grains - 1] : NULL;
}

/* Takes an idle block of exactly this size, NULL if there is none. */
static inline berth__span *berth__stock_take(berth__stock *stock, size_t size_bytes, size_t alignment)
{
    berth__bin *bin = berth__stock_bin(stock, size_bytes);
    if (bin) {
        if (bin->count == 0 || (bin->spans[bin->count - 1]->address & (alignment - 1)) != 0)
            return NULL;
        return bin->spans[--bin->count];
    }
    for (uint32_t i = stock->recent_count; i-- > 0;) {
        berth__span *span = stock->recent[i];
        if (stock->recent_sizes[i] != size_bytes || (span->address & (alignment - 1)) != 0)
            continue;
        uint32_t last = --stock->recent_count;
        stock->recent[i] = stock->recent[last];
        stock->recent_sizes[i] = stock->recent_sizes[last];
        return span;
    }
    return NULL;
}

/* Takes all of the larger blocks out; at most BERTH__STOCK_MOST. Returns how many. */
static inline uint32_t berth__stock_clear_recent(berth__stock *stock, berth__span **out)
{
    uint32_t count = stock->recent_count;
    for (uint32_t i = 0; i < count; i++)
        out[i] = stock->recent[i];
    stock->recent_count = 0;
    return count;
}

/* Whether a block of this size can be put in without putting others out. */
static inline bool berth__stock_has_room(berth__stock *stock, size_t size_bytes)
{
    berth__bin *bin = berth__stock_bin(stock, size_bytes);
    return bin ? bin->count < BERTH__STOCK_DEPTH : stock->recent_count < BERTH__STOCK_RECENT;
}

/* Puts a block in; there is room. */
static inline void berth__stock_put(berth__stock *stock, berth__span *span, size_t size_bytes)
{
    berth__bin *bin = berth__stock_bin(stock, size_bytes);
    if (bin) {
        bin->spans[bin->count++] = span;
        return;
    }
    stock->recent_sizes[stock->recent_count] = size_bytes;
    stock->recent[stock->recent_count++] = span;
}

/* Calls `each` on every idle block and empties the stock. */
static inline void berth__stock_empty(berth__stock *stock, void (*each)(void *context, berth__span *span),
                                      void *context)
{
    for (uint32_t i = 0; i < BERTH__STOCK_BINS; i++)
        while (stock->bins[i].count)
            each(context, stock->bins[i].spans[--stock->bins[i].count]);
    while (stock->recent_count)
        each(context, stock->recent[--stock->recent_count]);
}

#endif

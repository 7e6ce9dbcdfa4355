/* Stocks: a few idle blocks a thread, by exact size, so that a program that frees and allocates the same
 * sizes meets no lock.
 *
 * Small blocks lie in bins by size. Of larger ones the last few freed are kept, and a request that matches
 * none of them puts them all back before it looks elsewhere: a block kept back is a hole in nobody's map, and
 * with holes in the wrong places the pool grows (to 2.5 times what is live on one recorded network).
 *
 * A stock is its thread's own: the thread marks it busy with a plain store and looks whether the pool is
 * stopped (base/thread.h has the barrier that makes this sound). Who needs the idle blocks of all threads,
 * because memory is short, stops the stocks, empties them and lets them go on [S1]. */
#ifndef BERTH_CACHE_STOCK_H
#define BERTH_CACHE_STOCK_H

#include "base/thread.h"
#include "cache/arena.h"

enum {
    BERTH__STOCK_GRAIN_SHIFT = 8,
    BERTH__STOCK_BINS = 16, /* of 1 to 16 grains */
    BERTH__STOCK_DEPTH = 4,
    BERTH__STOCK_RECENT = 4,
    BERTH__STOCK_MOST = BERTH__STOCK_RECENT, /* that one call puts out */
    BERTH__STOCK_PIECES = 10                 /* piece k holds 8 << k stocks */
};

typedef struct berth__bin {
    uint32_t count;
    berth__span *spans[BERTH__STOCK_DEPTH];
} berth__bin;

typedef struct berth__stock {
    _Atomic uint32_t busy; /* the fork generation while its thread is inside, else 0 */
    uint32_t recent_count;
    uint32_t ids_left; /* of the allocation ids this thread has drawn */
    uint32_t until_clock;
    uint64_t next_id;
    uint64_t now_ns; /* the clock as last read by this thread, for ages */
    berth__span *recent[BERTH__STOCK_RECENT];
    size_t recent_sizes[BERTH__STOCK_RECENT];
    berth__bin bins[BERTH__STOCK_BINS];
} berth__stock;

typedef struct berth__stocks {
    _Atomic uint32_t stopped; /* not 0: no thread enters its stock */
    _Atomic(berth__stock *) pieces[BERTH__STOCK_PIECES];
} berth__stocks;

/* The calling thread's stock, NULL if there is none and no memory for it. */
berth__stock *berth__stock_make(berth__stocks *stocks, uint32_t piece, uint32_t thread);

static inline berth__stock *berth__stock_of(berth__stocks *stocks)
{
    uint32_t thread = berth__thread();
    if (BERTH_UNLIKELY(thread >= BERTH__THREADS_MAX))
        return NULL;
    uint32_t piece = 31u - (uint32_t)__builtin_clz(thread / 8 + 1);
    berth__stock *first = atomic_load_explicit(&stocks->pieces[piece], memory_order_acquire);
    if (BERTH_UNLIKELY(!first))
        return berth__stock_make(stocks, piece, thread);
    return &first[thread - ((8u << piece) - 8u)];
}

/* Marks the stock busy; false (and not busy) while stocks are stopped. */
static inline bool berth__stock_enter(berth__stocks *stocks, berth__stock *stock)
{
    atomic_store_explicit(&stock->busy, berth__generation(), memory_order_relaxed);
    berth__barrier_light();
    if (BERTH_LIKELY(atomic_load_explicit(&stocks->stopped, memory_order_acquire) == 0))
        return true;
    atomic_store_explicit(&stock->busy, 0, memory_order_release);
    return false;
}

static inline void berth__stock_leave(berth__stock *stock)
{
    atomic_store_explicit(&stock->busy, 0, memory_order_release);
}

/* The bin for a size, NULL for one that is not small. */
static inline berth__bin *berth__stock_bin(berth__stock *stock, size_t size_bytes)
{
    size_t grains = size_bytes >> BERTH__STOCK_GRAIN_SHIFT;
    return grains <= BERTH__STOCK_BINS ? &stock->bins[grains - 1] : NULL;
}

/* Takes an idle block of exactly this size, NULL if there is none. Inside the stock. */
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

/* Takes all of the larger blocks out; at most BERTH__STOCK_MOST. Returns how many. Inside the stock. */
static inline uint32_t berth__stock_clear_recent(berth__stock *stock, berth__span **out)
{
    uint32_t count = stock->recent_count;
    for (uint32_t i = 0; i < count; i++)
        out[i] = stock->recent[i];
    stock->recent_count = 0;
    return count;
}

/* Whether a block of this size can be put in without putting others out. Inside the stock. */
static inline bool berth__stock_has_room(berth__stock *stock, size_t size_bytes)
{
    berth__bin *bin = berth__stock_bin(stock, size_bytes);
    return bin ? bin->count < BERTH__STOCK_DEPTH : stock->recent_count < BERTH__STOCK_RECENT;
}

/* Puts a block in; there is room. Inside the stock. */
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

/* With the pool's lock held: on return no thread is inside its stock, and none enters before resume. */
void berth__stocks_stop(berth__stocks *stocks);
void berth__stocks_resume(berth__stocks *stocks);

/* Calls `each` on every idle span of every stock and empties them. Stopped, or no other thread is there. */
void berth__stocks_empty(berth__stocks *stocks, void (*each)(void *context, berth__span *span),
                         void *context);
void berth__stocks_finish(berth__stocks *stocks);

#endif

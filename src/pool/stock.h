/* Stocks: a few idle blocks a thread, by exact size, so that a program that frees and allocates the same
 * sizes meets no lock.
 *
 * Blocks of up to 16 KiB lie in bins by size. Of larger ones the last few freed are kept, and a request that
 * matches none of them puts them all back before it looks elsewhere: a block kept back is a hole in nobody's
 * map, and with holes in the wrong places the pool grows (to 2.5 times what is live on one recorded network).
 *
 * A stock lies beside its thread's slot of the pool's quota, and is touched by that thread inside the slot,
 * or by anyone while the slots are stopped [S1]: who needs the idle blocks of all threads stops them. */
#ifndef BERTH_POOL_STOCK_H
#define BERTH_POOL_STOCK_H

#include "pool/arena.h"

enum {
    BERTH__STOCK_BINS = 65, /* of 1 to 64 grains; the one of none stays empty */
    BERTH__STOCK_DEPTH = 8,
    BERTH__STOCK_RECENT = 4,
    BERTH__STOCK_IDS = 64,                       /* allocation ids that a thread draws at once */
    BERTH__STOCK_BATCH = BERTH__STOCK_DEPTH / 2, /* of a bin, taken or put out at once */
    BERTH__STOCK_MOST = BERTH__STOCK_BATCH       /* that one call puts out; not fewer than the recent ones */
};

/* What a stock holds in bytes, unless a single block is larger. */
#define BERTH__STOCK_BYTES ((size_t)256 << 20)

/* An idle block. Its address is here too: a block that goes in and comes out again is handed out without
 * waiting for its record. */
typedef struct berth__stocked {
    uintptr_t address;
    berth__span *span;
} berth__stocked;

typedef struct berth__bin {
    berth__stocked blocks[BERTH__STOCK_DEPTH];
} berth__bin;

typedef struct berth__stock {
    uint64_t next_id;  /* the thread's alone: a multiple of BERTH__STOCK_IDS when all it drew are used */
    uint64_t now_ns;   /* the thread's alone: the clock when it drew them */
    berth__span *last; /* the one handed out last; may have grown old */
    uint32_t mark;     /* the state of the spans in it */
    uint32_t recent_count;
    size_t held_bytes, most_bytes; /* that it has; that it may have */
    size_t usual_bytes;            /* the same, but while one large block is in it; constant */
    size_t recent_sizes[BERTH__STOCK_RECENT];
    berth__stocked recent[BERTH__STOCK_RECENT];
    uint32_t counts[BERTH__STOCK_BINS]; /* by grains: how many are in the bin */
    berth__bin bins[BERTH__STOCK_BINS];
} berth__stock;

/* Whether blocks of a size lie in a bin, and in which. */
static inline bool berth__stock_is_binned(size_t size_bytes)
{
    return size_bytes < (size_t)BERTH__STOCK_BINS << BERTH__ARENA_GRAIN_SHIFT;
}
static inline size_t berth__stock_bin(size_t size_bytes)
{
    return size_bytes >> BERTH__ARENA_GRAIN_SHIFT;
}

/* Whether a block of the stock is in no other: where two threads free one at the same time neither may be
 * told, but then one of their stocks finds it marked by the other, and lets it go. What is taken out has
 * another state at once, so that it does not come out twice. */
static inline bool berth__stock_has(const berth__stock *stock, const berth__span *span)
{
    return BERTH_LIKELY(atomic_load_explicit(&span->state, memory_order_relaxed) == stock->mark);
}

/* Takes the block that was freed last if it is of exactly this size, or the last of a small size: what mostly
 * happens, without a loop. */
static inline bool berth__stock_take_newest(berth__stock *stock, size_t size_bytes, berth__stocked *out)
{
    if (berth__stock_is_binned(size_bytes)) {
        size_t bin = berth__stock_bin(size_bytes);
        uint32_t count = stock->counts[bin];
        if (BERTH_UNLIKELY(count == 0))
            return false;
        *out = stock->bins[bin].blocks[count - 1];
        stock->counts[bin] = count - 1;
    } else {
        uint32_t newest = stock->recent_count - 1; /* wraps to one that no size matches */
        if (BERTH_UNLIKELY(newest >= BERTH__STOCK_RECENT || stock->recent_sizes[newest] != size_bytes))
            return false;
        *out = stock->recent[newest];
        stock->recent_count = newest;
    }
    stock->held_bytes -= size_bytes;
    return berth__stock_has(stock, out->span);
}

/* Takes an idle block of exactly this size, NULL if there is none. */
static inline berth__span *berth__stock_take(berth__stock *stock, size_t size_bytes, size_t alignment)
{
    if (berth__stock_is_binned(size_bytes)) {
        size_t bin = berth__stock_bin(size_bytes);
        uint32_t count = stock->counts[bin];
        if (count == 0 || (stock->bins[bin].blocks[count - 1].address & (alignment - 1)) != 0)
            return NULL;
        stock->counts[bin] = count - 1;
        stock->held_bytes -= size_bytes;
        berth__span *span = stock->bins[bin].blocks[count - 1].span;
        return berth__stock_has(stock, span) ? span : NULL;
    }
    for (uint32_t i = stock->recent_count; i-- > 0;) {
        berth__stocked block = stock->recent[i];
        if (stock->recent_sizes[i] != size_bytes || (block.address & (alignment - 1)) != 0)
            continue;
        uint32_t last = --stock->recent_count;
        stock->held_bytes -= size_bytes;
        stock->recent[i] = stock->recent[last];
        stock->recent_sizes[i] = stock->recent_sizes[last];
        return berth__stock_has(stock, block.span) ? block.span : NULL;
    }
    return NULL;
}

/* Moves a block out, if it is here, to out[count]. Returns how many there are then. */
static inline uint32_t berth__stock_move(const berth__stock *stock, berth__span *span, berth__span **out,
                                         uint32_t count)
{
    if (!berth__stock_has(stock, span))
        return count;
    atomic_store_explicit(&span->state, BERTH__SPAN_FREE, memory_order_relaxed);
    out[count] = span;
    return count + 1;
}

/* Takes the older half of a full bin out. Returns how many. */
static inline uint32_t berth__stock_halve(berth__stock *stock, size_t bin, berth__span **out)
{
    berth__stocked *blocks = stock->bins[bin].blocks;
    uint32_t count = 0;
    for (uint32_t i = 0; i < BERTH__STOCK_BATCH; i++) {
        count = berth__stock_move(stock, blocks[i].span, out, count);
        blocks[i] = blocks[i + BERTH__STOCK_BATCH];
    }
    stock->counts[bin] -= BERTH__STOCK_BATCH;
    stock->held_bytes -= (bin << BERTH__ARENA_GRAIN_SHIFT) * BERTH__STOCK_BATCH;
    return count;
}

/* Takes all of the larger blocks out; at most BERTH__STOCK_MOST. Returns how many. */
static inline uint32_t berth__stock_clear_recent(berth__stock *stock, berth__span **out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < stock->recent_count; i++) {
        count = berth__stock_move(stock, stock->recent[i].span, out, count);
        stock->held_bytes -= stock->recent_sizes[i];
    }
    stock->recent_count = 0;
    stock->most_bytes = stock->usual_bytes;
    return count;
}

/* Whether a block of a size would find a place; and whether it may stay there. */
static inline bool berth__stock_has_place(const berth__stock *stock, size_t size_bytes)
{
    return berth__stock_is_binned(size_bytes)
               ? stock->counts[berth__stock_bin(size_bytes)] < BERTH__STOCK_DEPTH
               : stock->recent_count < BERTH__STOCK_RECENT;
}
static inline bool berth__stock_has_room(const berth__stock *stock, size_t size_bytes)
{
    return size_bytes <= stock->most_bytes - stock->held_bytes && berth__stock_has_place(stock, size_bytes);
}

/* Makes a place for a block of a size: takes what must go out, at most BERTH__STOCK_MOST. Returns how many. */
static inline uint32_t berth__stock_make_place(berth__stock *stock, size_t size_bytes, berth__span **out)
{
    if (berth__stock_has_place(stock, size_bytes))
        return 0;
    return berth__stock_is_binned(size_bytes) ? berth__stock_halve(stock, berth__stock_bin(size_bytes), out)
                                              : berth__stock_clear_recent(stock, out);
}

/* Puts a live block in; there is room. */
static inline void berth__stock_put(berth__stock *stock, berth__stocked block, size_t size_bytes)
{
    stock->held_bytes += size_bytes;
    if (berth__stock_is_binned(size_bytes)) {
        size_t bin = berth__stock_bin(size_bytes);
        stock->bins[bin].blocks[stock->counts[bin]++] = block;
    } else {
        stock->recent_sizes[stock->recent_count] = size_bytes;
        stock->recent[stock->recent_count++] = block;
    }
    atomic_store_explicit(&block.span->state, stock->mark, memory_order_relaxed);
}

/* Calls `each` on every idle block and empties the stock. */
static inline void berth__stock_empty(berth__stock *stock, void (*each)(void *context, berth__span *span),
                                      void *context)
{
    berth__span *out[BERTH__STOCK_MOST];
    for (uint32_t i = 0; i < BERTH__STOCK_BINS; i++)
        while (stock->counts[i]) {
            stock->held_bytes -= (size_t)i << BERTH__ARENA_GRAIN_SHIFT;
            if (berth__stock_move(stock, stock->bins[i].blocks[--stock->counts[i]].span, out, 0))
                each(context, out[0]);
        }
    uint32_t count = berth__stock_clear_recent(stock, out);
    for (uint32_t i = 0; i < count; i++)
        each(context, out[i]);
}

#endif

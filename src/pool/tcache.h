/* Thread caches: a few idle blocks a thread, by exact size, so that a program that frees and allocates the same
 * sizes meets no lock.
 *
 * Blocks of up to 16 KiB lie in bins by size, 256 KiB of each but at most 64 blocks. Of larger ones the last few
 * freed are kept, and a request that matches none of them puts them all back before it looks elsewhere: a block
 * kept back is a hole in nobody's map, and with holes in the wrong places the pool grows (to 2.5 times what is
 * live on one recorded network). Not doing so where the place found lies in front of all of them gained nothing, and
 * cost a quarter more memory on another network.
 *
 * A thread cache lies beside its thread's slot of the pool's quota, and is touched by that thread inside the slot,
 * or by anyone while the slots are stopped [S1]: who needs the idle blocks of all threads stops them. */
#ifndef BERTH_POOL_TCACHE_H
#define BERTH_POOL_TCACHE_H

#include <string.h>

#include "pool/arena.h"

enum {
    BERTH__TCACHE_BINS = 65, /* of 1 to 64 grains; the one of none stays empty */
    BERTH__TCACHE_DEEPEST = 64,
    BERTH__TCACHE_BIN_GRAINS = 1024, /* what a bin may hold if that is not more blocks */
    BERTH__TCACHE_BLOCKS = 2396,     /* the depths of all bins together */
    BERTH__TCACHE_RECENT = 4,
    BERTH__TCACHE_IDS = 64,                         /* allocation ids that a thread draws at once */
    BERTH__TCACHE_MOST = BERTH__TCACHE_DEEPEST / 2, /* that one call puts out: half of a bin */
};

/* What a thread cache holds in bytes, unless a single block is larger. */
#define BERTH__TCACHE_BYTES ((size_t)256 << 20)

/* An idle block. Its address is here too: a block that goes in and comes out again is handed out without
 * waiting for its record. */
typedef struct berth__tcached {
    uintptr_t address;
    berth__span *span;
} berth__tcached;

typedef struct berth__bin {
    uint32_t count, depth;
    berth__tcached *blocks;
} berth__bin;

typedef struct berth__tcache {
    uint64_t next_id;  /* the thread's alone: a multiple of BERTH__TCACHE_IDS when all it drew are used */
    uint64_t now_ns;   /* the thread's alone: the clock when it drew them */
    berth__span *last; /* the one handed out last; may have grown old */
    uint32_t mark;     /* the state of the spans in it */
    uint32_t recent_count;
    size_t held_bytes, usual_bytes; /* that it has; that it may have, which is constant */
    size_t most_bytes; /* or the size of the largest block that was in it, alone: such a one may come back */
    size_t recent_sizes[BERTH__TCACHE_RECENT];
    berth__tcached recent[BERTH__TCACHE_RECENT];
    berth__bin bins[BERTH__TCACHE_BINS]; /* by grains */
    berth__tcached blocks[BERTH__TCACHE_BLOCKS];
} berth__tcache;

/* How many blocks of so many grains a bin holds: the smaller they are, the more of them programs have. */
static inline uint32_t berth__tcache_depth(uint32_t grains)
{
    uint32_t depth = BERTH__TCACHE_BIN_GRAINS / grains;
    return depth < BERTH__TCACHE_DEEPEST ? depth : BERTH__TCACHE_DEEPEST;
}

/* Of a record that is all zero. */
static inline void berth__tcache_init(berth__tcache *tcache, uint32_t mark, size_t usual_bytes)
{
    berth__tcached *blocks = tcache->blocks;
    tcache->mark = mark;
    tcache->usual_bytes = tcache->most_bytes = usual_bytes;
    for (uint32_t grains = 1; grains < BERTH__TCACHE_BINS; grains++) {
        berth__bin *bin = &tcache->bins[grains];
        bin->depth = berth__tcache_depth(grains);
        bin->blocks = blocks;
        blocks += bin->depth;
    }
    BERTH_DCHECK(blocks == tcache->blocks + BERTH__TCACHE_BLOCKS,
                 "[S1] a thread cache has a place for each block of each bin");
}

/* Whether blocks of a size lie in a bin, and in which. */
static inline bool berth__tcache_is_binned(size_t size_bytes)
{
    return size_bytes < (size_t)BERTH__TCACHE_BINS << BERTH__ARENA_GRAIN_SHIFT;
}
static inline berth__bin *berth__tcache_bin(berth__tcache *tcache, size_t size_bytes)
{
    return &tcache->bins[size_bytes >> BERTH__ARENA_GRAIN_SHIFT];
}

/* Whether a block of the thread cache is in no other: where two threads free one at the same time neither may be
 * told, but then one of their thread caches finds it marked by the other, and lets it go. What is taken out has
 * another state at once, so that it does not come out twice. */
static inline bool berth__tcache_has(const berth__tcache *tcache, const berth__span *span)
{
    return BERTH_LIKELY(atomic_load_explicit(&span->state, memory_order_relaxed) == tcache->mark);
}

/* Takes the block that was freed last if it is of exactly this size, or the last of a small size: what mostly
 * happens, without a loop. */
static inline bool berth__tcache_take_newest(berth__tcache *tcache, size_t size_bytes, berth__tcached *out)
{
    if (berth__tcache_is_binned(size_bytes)) {
        berth__bin *bin = berth__tcache_bin(tcache, size_bytes);
        uint32_t count = bin->count;
        if (BERTH_UNLIKELY(count == 0))
            return false;
        *out = bin->blocks[count - 1];
        bin->count = count - 1;
    } else {
        uint32_t newest = tcache->recent_count - 1; /* wraps to one that no size matches */
        if (BERTH_UNLIKELY(newest >= BERTH__TCACHE_RECENT || tcache->recent_sizes[newest] != size_bytes))
            return false;
        *out = tcache->recent[newest];
        tcache->recent_count = newest;
    }
    tcache->held_bytes -= size_bytes;
    return berth__tcache_has(tcache, out->span);
}

/* Takes an idle block of exactly this size, NULL if there is none. */
static inline berth__span *berth__tcache_take(berth__tcache *tcache, size_t size_bytes, size_t alignment)
{
    if (berth__tcache_is_binned(size_bytes)) {
        berth__bin *bin = berth__tcache_bin(tcache, size_bytes);
        uint32_t count = bin->count;
        if (count == 0 || (bin->blocks[count - 1].address & (alignment - 1)) != 0)
            return NULL;
        bin->count = count - 1;
        tcache->held_bytes -= size_bytes;
        berth__span *span = bin->blocks[count - 1].span;
        return berth__tcache_has(tcache, span) ? span : NULL;
    }
    for (uint32_t i = tcache->recent_count; i-- > 0;) {
        berth__tcached block = tcache->recent[i];
        if (tcache->recent_sizes[i] != size_bytes || (block.address & (alignment - 1)) != 0)
            continue;
        uint32_t last = --tcache->recent_count;
        tcache->held_bytes -= size_bytes;
        tcache->recent[i] = tcache->recent[last];
        tcache->recent_sizes[i] = tcache->recent_sizes[last];
        return berth__tcache_has(tcache, block.span) ? block.span : NULL;
    }
    return NULL;
}

/* Moves a block out, if it is here, to out[count]. Returns how many there are then. */
static inline uint32_t berth__tcache_move(const berth__tcache *tcache, berth__span *span, berth__span **out,
                                          uint32_t count)
{
    if (!berth__tcache_has(tcache, span))
        return count;
    BERTH_DCHECK(!span->index, "[A1] what a thread cache holds is in no index");
    atomic_store_explicit(&span->state, BERTH__SPAN_FREE, memory_order_relaxed);
    out[count] = span;
    return count + 1;
}

/* Takes the older half of a full bin out. Returns how many. */
static inline uint32_t berth__tcache_halve(berth__tcache *tcache, size_t size_bytes, berth__span **out)
{
    berth__bin *bin = berth__tcache_bin(tcache, size_bytes);
    BERTH_DCHECK(bin->count == bin->depth, "[S1] a full bin is halved");
    uint32_t count = 0, half = bin->depth / 2;
    for (uint32_t i = 0; i < half; i++)
        count = berth__tcache_move(tcache, bin->blocks[i].span, out, count);
    bin->count -= half;
    memmove(bin->blocks, bin->blocks + half, bin->count * sizeof *bin->blocks);
    tcache->held_bytes -= size_bytes * half;
    return count;
}

/* Takes all of the larger blocks out; at most BERTH__TCACHE_MOST. Returns how many. */
static inline uint32_t berth__tcache_clear_recent(berth__tcache *tcache, berth__span **out)
{
    BERTH_DCHECK(tcache->recent_count <= BERTH__TCACHE_RECENT, "[S1] a thread cache is bounded");
    uint32_t count = 0;
    for (uint32_t i = 0; i < tcache->recent_count; i++) {
        count = berth__tcache_move(tcache, tcache->recent[i].span, out, count);
        tcache->held_bytes -= tcache->recent_sizes[i];
    }
    tcache->recent_count = 0;
    tcache->most_bytes = tcache->usual_bytes;
    return count;
}

/* Whether a block of a size would find a place; and whether it may stay there. A block that is larger than the rest together
 * may be stays alone, and leaves no room for others when it is taken out. */
static inline bool berth__tcache_has_place(const berth__tcache *tcache, size_t size_bytes)
{
    return berth__tcache_is_binned(size_bytes)
               ? tcache->bins[size_bytes >> BERTH__ARENA_GRAIN_SHIFT].count <
                     tcache->bins[size_bytes >> BERTH__ARENA_GRAIN_SHIFT].depth
               : tcache->recent_count < BERTH__TCACHE_RECENT;
}
static inline bool berth__tcache_has_room(const berth__tcache *tcache, size_t size_bytes)
{
    size_t bound = size_bytes <= tcache->usual_bytes ? tcache->usual_bytes : tcache->most_bytes;
    return tcache->held_bytes + size_bytes <= bound && berth__tcache_has_place(tcache, size_bytes);
}

/* Makes a place for a block of a size: takes what must go out, at most BERTH__TCACHE_MOST. Returns how many. */
static inline uint32_t berth__tcache_make_place(berth__tcache *tcache, size_t size_bytes, berth__span **out)
{
    if (berth__tcache_has_place(tcache, size_bytes))
        return 0;
    return berth__tcache_is_binned(size_bytes) ? berth__tcache_halve(tcache, size_bytes, out)
                                               : berth__tcache_clear_recent(tcache, out);
}

/* Puts a live block in; there is room. */
static inline void berth__tcache_put(berth__tcache *tcache, berth__tcached block, size_t size_bytes)
{
    BERTH_DCHECK(berth__tcache_has_place(tcache, size_bytes), "[S1] there is a place");
    tcache->held_bytes += size_bytes;
    if (berth__tcache_is_binned(size_bytes)) {
        berth__bin *bin = berth__tcache_bin(tcache, size_bytes);
        bin->blocks[bin->count++] = block;
    } else {
        tcache->recent_sizes[tcache->recent_count] = size_bytes;
        tcache->recent[tcache->recent_count++] = block;
    }
    atomic_store_explicit(&block.span->state, tcache->mark, memory_order_relaxed);
}

/* Calls `each` on every idle block and empties the thread cache. */
static inline void berth__tcache_empty(berth__tcache *tcache, void (*each)(void *context, berth__span *span),
                                       void *context)
{
    berth__span *out[BERTH__TCACHE_MOST];
    for (uint32_t i = 0; i < BERTH__TCACHE_BINS; i++) {
        berth__bin *bin = &tcache->bins[i];
        while (bin->count) {
            tcache->held_bytes -= (size_t)i << BERTH__ARENA_GRAIN_SHIFT;
            if (berth__tcache_move(tcache, bin->blocks[--bin->count].span, out, 0))
                each(context, out[0]);
        }
    }
    uint32_t count = berth__tcache_clear_recent(tcache, out);
    for (uint32_t i = 0; i < count; i++)
        each(context, out[i]);
}

#endif

/* The arena: which span of address space is taken, which is free, and which free one to use.
 *
 * Pure bookkeeping for the device pool: no lock, no clock, no memory of a device is touched. A segment is one
 * contiguous range; its spans tile it in address order, linked to their neighbours:
 *
 *     segment  |  taken  | free, mapped |   taken   |  free, not mapped ...      |
 *                 span <---> span <------> span <---> span
 *
 * A free span lies in one index, a tree by address: the one of mapped memory, the one of address
 * space without memory, or one of a stream that may still use it. Neighbours in the same index are merged at
 * once, so two adjacent free spans never share an index [A1]. Sizes and addresses are multiples of the grain
 * [A2]. */
#ifndef BERTH_POOL_ARENA_H
#define BERTH_POOL_ARENA_H

#include <stdatomic.h>

#include "base/base.h"
#include "berth/device.h"

typedef struct berth__span berth__span;

/* Free spans by address: a treap whose priority is a hash of the record's address. Each node knows the size of
 * the largest span below it, so that one way down the tree finds the lowest span that fits. */
typedef struct berth__index {
    berth__span *root;
    size_t span_count;
    uint64_t bytes;
} berth__index;

typedef struct berth__segment {
    uintptr_t address;
    size_t size_bytes;
    berth__span *first;
    struct berth__segment *next;
    uint64_t number; /* from 1 */
    /* By chunk of addresses, then by grain: the span that starts a block there, NULL if none. A chunk is made
     * when memory first comes to it, and stays. */
    _Atomic(_Atomic(berth__span *) *) *map;
    size_t chunk_count;
} berth__segment;

enum { BERTH__ARENA_GRAIN_SHIFT = 8, BERTH__ARENA_GRAIN = 1 << BERTH__ARENA_GRAIN_SHIFT };

/* How much address space one chunk of a segment's map covers: large, so that an empty part costs a pointer. */
#define BERTH__ARENA_CHUNK ((size_t)32 << 20)

typedef enum berth__span_state {
    BERTH__SPAN_FREE = 0,   /* in `index` */
    BERTH__SPAN_LIVE = 1,   /* the user's */
    BERTH__SPAN_CACHED = 2, /* and above: idle in the thread cache that has this for its mark */
} berth__span_state;

/* Life: made by a split, or with its segment; taken and freed many times; given up when it is merged away.
 * Two lines of the processor's cache, the first of which is all that handing out and taking back touch; no
 * two spans share one, so that threads with their own blocks do not meet. */
struct berth__span {
    _Atomic uintptr_t address; /* read without the holder's lock by berth__span_at */
    size_t size_bytes;
    /* the holder's, untouched here but for the state */
    _Atomic uint32_t state; /* berth__span_state */
    uint32_t use_count;     /* streams that use the block */
    union {
        size_t requested_bytes; /* live: what was asked for */
        size_t largest_below;   /* in an index: the size of the largest of this span and all below it */
    };
    uint64_t allocation_id;
    uint64_t since_ns;
    union {
        const char *label;   /* live */
        berth__span *parent; /* in an index; NULL: the root */
    };
    uint64_t ticket; /* of a waiting span: the point in its stream that must pass, or how many streams must */

    berth__segment *segment;
    berth__span *before, *after; /* neighbours by address, NULL at the segment's ends */
    berth__index *index;         /* NULL: taken */
    berth__span *left, *right;   /* in the index */
    void *uses;                  /* the streams that use it, as the holder keeps them */
    uint64_t word;               /* live: of whoever stands around the holder */
};

enum { BERTH__ARENA_SLABS = 24 };
#define BERTH__ARENA_SLAB_FIRST 64u /* records in the first slab */

typedef struct berth__arena {
    berth__segment *segments;
    uint64_t segment_count; /* ever made: the last number given */
    berth__span **spares;   /* room for all records there are */
    size_t spare_count;
    /* Slab k holds 64 << k records; they live as long as the arena, so that a stale pointer finds one. */
    berth__span *slabs[BERTH__ARENA_SLABS];
    uint32_t slab_count;
} berth__arena;

void berth__arena_init(berth__arena *arena);
/* Gives all records back; what the segments cover is the caller's. */
void berth__arena_finish(berth__arena *arena);

/* Makes sure that the next operations cannot run out of records: each of take, carve and free needs at most
 * two. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__arena_prepare(berth__arena *arena);

/* A segment as one free span in `index`. After berth__arena_prepare. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__arena_add_segment(berth__arena *arena, uintptr_t address, size_t size_bytes,
                                      berth__index *index, berth__segment **out);
/* Takes a segment out that is one free span. */
void berth__arena_remove_segment(berth__arena *arena, berth__segment *segment);
/* The same in two steps, for one that is a taken span: from the first on no address leads to it, so that
 * another may come to lie where it was; the second gives its records back. */
void berth__arena_unlist_segment(berth__arena *arena, berth__segment *segment);
void berth__arena_drop_segment(berth__arena *arena, berth__segment *segment);

/* The lowest span of an index that holds `size_bytes` at `alignment`, NULL if there is none; *address says
 * where in it the block starts. An alignment above the grain may pass by a span that would just do. Changes
 * nothing. */
berth__span *berth__index_find(const berth__index *index, size_t size_bytes, size_t alignment,
                               uintptr_t *address);
berth__span *berth__index_largest(const berth__index *index);
/* By rising address: the one after `span`; the first for NULL. */
berth__span *berth__index_next(const berth__index *index, const berth__span *span);
/* The highest span that starts below `address`, NULL if none does. */
berth__span *berth__index_below(const berth__index *index, uintptr_t address);

/* Takes [address, address + size) out of a free span; what is left in front and behind stays free in the same
 * index. The span returned is taken: state BERTH__SPAN_FREE still, index NULL. Cannot fail after prepare. */
berth__span *berth__arena_take(berth__arena *arena, berth__span *span, uintptr_t address, size_t size_bytes);

/* Puts a taken span into `index`, merged with its neighbours there; returns what it became. */
berth__span *berth__arena_put(berth__arena *arena, berth__span *span, berth__index *index);
/* Spans that are put back next: brings them and their neighbours into the processor's cache, so that it waits for all of
 * them once and not for each. */
void berth__arena_expect_puts(berth__span *const *spans, uint32_t count);

/* The segment that `p` lies in, NULL if none. */
berth__segment *berth__arena_segment(const berth__arena *arena, uintptr_t p);
static inline bool berth__segment_has(const berth__segment *segment, uintptr_t p)
{
    return p - segment->address < segment->size_bytes;
}
/* Whether a record that may have grown old is of what starts at `p`, or was so when it was given up. */
static inline bool berth__span_at(const berth__span *span, uintptr_t p)
{
    return atomic_load_explicit(&span->address, memory_order_relaxed) == p;
}
/* Where the map notes what starts at `p`, an address in the segment; NULL: no memory ever came there. */
static inline _Atomic(berth__span *) *berth__arena_place(const berth__segment *segment, uintptr_t p)
{
    size_t distance = p - segment->address;
    _Atomic(berth__span *) *chunk =
        atomic_load_explicit(&segment->map[distance / BERTH__ARENA_CHUNK], memory_order_acquire);
    return chunk ? &chunk[distance % BERTH__ARENA_CHUNK >> BERTH__ARENA_GRAIN_SHIFT] : NULL;
}

/* The span that was last said to start a block at `p`, NULL if none; its state may have changed since. No
 * lock is needed for a segment that is not removed meanwhile: any thread. */
static inline berth__span *berth__arena_at(const berth__segment *segment, uintptr_t p)
{
    _Atomic(berth__span *) *place = berth__arena_place(segment, p);
    berth__span *span = place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
    return span && berth__span_at(span, p) ? span : NULL;
}

/* The live block that `p` lies in, NULL if none. With the holder's lock. */
berth__span *berth__arena_around(const berth__segment *segment, uintptr_t p);
/* Makes the map for [address, +size) of a segment. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__arena_map_reserve(berth__segment *segment, uintptr_t address, size_t size_bytes);
/* Says that `span` starts a block now. That it no longer does need not be said: its state tells. */
void berth__arena_map_set(berth__span *span);

/* Whether the links, the order of addresses and the indices agree; debug builds and tests ask. */
bool berth__arena_is_valid(const berth__arena *arena);

#endif

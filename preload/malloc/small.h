/* Small blocks: slabs of 64 KiB from the pool, each cut into blocks of one size and owned by one heap, which is one
 * thread's at a time. The owner takes and gives without a lock or an atomic read-modify-write; others push what they free
 * on the slab's remote list, and the first to do so on the heap's list of touched slabs, where the owner finds it.
 *
 *     heap --> slab with room --> slab with room          (by size class)
 *          --> touched slab --> touched slab              (pushed by any thread)
 *
 *     slab at a multiple of 64 KiB:
 *     | head | block | block | ... | never cut yet |
 *
 * No small block starts at a multiple of 256, where blocks of the pool start: a pointer tells which of both it is.
 *
 * Heaps are never given back. A thread that ends leaves its heap, with its slabs, to the next that begins. */
#ifndef BERTH_PRELOAD_MALLOC_SMALL_H
#define BERTH_PRELOAD_MALLOC_SMALL_H

#include <stdatomic.h>

#include "base/base.h"

enum {
    SMALL_MOST = 4096,
    SMALL_CLASSES = 28,
    SLAB_BYTES = 65536,
    SLAB_HEAD = 128,
    SMALL_GRAIN = 256, /* of the pool's blocks */
};

typedef struct small_block {
    struct small_block *next;
    uintptr_t mark; /* of a freed block, so that a second free is seen */
} small_block;

typedef struct small_heap small_heap;

/* Life: taken from the pool by a heap, listed there while it has room; back to the pool when nothing in it is in use. */
typedef struct small_slab {
    small_heap *heap; /* constant */
    uintptr_t check;  /* says that this is a slab; constant */
    /* the owner's */
    small_block *free;
    uint32_t used; /* handed out, and what others freed but the owner has not fetched */
    uint32_t size_bytes;
    uint32_t cut_to;  /* offset of what was never handed out */
    uint32_t first;   /* offset of the first block; constant */
    uint32_t inverse; /* of the size, so that finding a block's number is a product; constant */
    uint16_t class;
    bool listed;
    struct small_slab *previous, *next;
    /* anybody's */
    _Alignas(64) _Atomic(small_block *) remote;
    struct small_slab *next_touched; /* who made `remote` non-empty, then the owner */
} small_slab;
_Static_assert(sizeof(small_slab) <= SLAB_HEAD, "the head fits");

/* Its own thread's, but for what says otherwise. */
struct small_heap {
    small_slab *slabs[SMALL_CLASSES];           /* with room, or `small_no_slab` */
    _Atomic uint64_t num_allocs;                /* read by others */
    _Atomic int64_t bytes;                      /* allocated less freed by its threads; read by others */
    _Atomic int64_t slab_count;                 /* read by others */
    _Alignas(64) _Atomic(small_slab *) touched; /* pushed by anybody */
    small_heap *next;                           /* all heaps; constant */
    small_heap *next_idle;                      /* guard: the heaps' lock */
};

/* NULL: the thread has none, yet or any more. */
extern _Thread_local small_heap *small_own __attribute__((visibility("hidden")));
extern uint8_t small_class_of[SMALL_MOST / 16 + 1] __attribute__((visibility("hidden")));
extern uint16_t small_sizes[SMALL_CLASSES] __attribute__((visibility("hidden")));
extern uintptr_t small_secret __attribute__((visibility("hidden")));
extern struct small_range {
    uintptr_t from;
    size_t size_bytes; /* 0: there are no slabs */
} small_range __attribute__((visibility("hidden")));

/* Slabs lie in this range of addresses; from then on there are some. Once, before any thread. */
void small_start(uintptr_t from, size_t size_bytes);

/* The slow paths. NULL: no memory, or there are no slabs. */
void *small_alloc_slow(size_t size_bytes);
void small_free_slow(small_slab *slab, small_block *block);
void small_free_remote(small_slab *slab, small_block *block);
/* Fetches what others freed for all heaps that nobody has, and for the thread's own; empty slabs go back. */
void small_collect(void);

/* Figures of all heaps: what was added. */
void small_read(uint64_t *num_allocs, int64_t *bytes, int64_t *slabs);
uint64_t small_slabs_made(void);

/* Around a fork. */
void small_before_fork(void);
void small_after_fork(void);

static inline small_slab *small_slab_of(const void *p)
{
    return (small_slab *)((uintptr_t)p & ~(uintptr_t)(SLAB_BYTES - 1));
}
/* Whether a pointer may be a small block: it lies where slabs do, and not where a block of the pool starts. */
BERTH__INLINE bool small_may_be(const void *p)
{
    return (uintptr_t)p % SMALL_GRAIN != 0 && (uintptr_t)p - small_range.from < small_range.size_bytes;
}
/* Whether it is a block of the slab: else it is none of ours at all. */
BERTH__INLINE bool small_is(const small_slab *slab, const void *p)
{
    if (BERTH_UNLIKELY(slab->check != ((uintptr_t)slab ^ small_secret)))
        return false;
    uint32_t offset = (uint32_t)((uintptr_t)p % SLAB_BYTES) - slab->first;
    return BERTH_LIKELY((uint32_t)((uint64_t)offset * slab->inverse >> 32) * slab->size_bytes == offset);
}

BERTH__INLINE void small_count(small_heap *heap, uint64_t allocs, int64_t bytes)
{
    if (allocs)
        atomic_store_explicit(&heap->num_allocs,
                              atomic_load_explicit(&heap->num_allocs, memory_order_relaxed) + allocs,
                              memory_order_relaxed);
    atomic_store_explicit(&heap->bytes, atomic_load_explicit(&heap->bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

BERTH__INLINE void *small_alloc(size_t size_bytes)
{
    small_heap *heap = small_own;
    if (BERTH_UNLIKELY(!heap))
        return small_alloc_slow(size_bytes);
    small_slab *slab = heap->slabs[small_class_of[(size_bytes + 15) / 16]];
    small_block *block = slab->free;
    if (BERTH_UNLIKELY(!block))
        return small_alloc_slow(size_bytes);
    slab->free = block->next;
    slab->used++;
    block->mark = 0;
    small_count(heap, 1, slab->size_bytes);
    return block;
}

static inline uintptr_t small_mark(const small_slab *slab)
{
    return ~slab->check;
}

/* A block of a slab. */
BERTH__INLINE void small_free(small_slab *slab, void *p)
{
    small_block *block = p;
    if (BERTH_UNLIKELY(slab->heap != small_own || block->mark == small_mark(slab))) {
        small_free_remote(slab, block);
        return;
    }
    small_count(slab->heap, 0, -(int64_t)slab->size_bytes);
    block->mark = small_mark(slab);
    block->next = slab->free;
    slab->free = block;
    if (BERTH_UNLIKELY(--slab->used == 0 || !slab->listed))
        small_free_slow(slab, block);
}

#endif

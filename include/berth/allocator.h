/* The allocator: one handle over every source, wrapper, cache and plan, and the table behind it. */
#ifndef BERTH_ALLOCATOR_H
#define BERTH_ALLOCATOR_H

#include "berth/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_allocator berth_allocator;

/* What tensors want: a cache line, and the widest vector register. */
#define BERTH_ALIGNMENT ((size_t)64)
/* Larger alignments are refused: they are mistakes, and overcommitting systems would grant them. */
#define BERTH_ALIGNMENT_MAX ((size_t)1 << 30)

/* ---- Allocator attributes: what kind of memory a caller needs ---------------------------------- */

typedef uint32_t berth_attributes;
#define BERTH_ON_HOST ((berth_attributes)1 << 0)
#define BERTH_NIC_COMPATIBLE ((berth_attributes)1 << 1)
#define BERTH_GPU_COMPATIBLE ((berth_attributes)1 << 2)
#define BERTH_TRACK_SIZES ((berth_attributes)1 << 3)
/* Bits 24 to 31 belong to the device. */
#define BERTH_DEVICE_BITS ((berth_attributes)0xff000000u)

static inline berth_attributes berth_attributes_merge(berth_attributes a, berth_attributes b)
{
    return a | b;
}
static inline berth_attributes berth_attributes_clear(berth_attributes a, berth_attributes bits)
{
    return a & ~bits;
}
/* Whether `a` asks for nothing that `b` does not ask for too: "equal or less restrictive". */
static inline bool berth_attributes_within(berth_attributes a, berth_attributes b)
{
    return (a & ~b) == 0;
}

/* ---- One request ------------------------------------------------------------------------------- */

#define BERTH_NO_RETRY ((uint32_t)1 << 0)       /* fail at once: wrappers that wait or call back do not */
#define BERTH_WILL_BE_LOGGED ((uint32_t)1 << 1) /* the caller logs this allocation itself */
#define BERTH_ZEROED ((uint32_t)1 << 2)         /* the block comes filled with zero bytes */

typedef struct berth_request {
    size_t struct_size;
    uint32_t flags;
    /* The stream that will use the block first; NULL: none. Here, in berth_deallocate and in berth_record_use it may be
     * a stream of another device that can reach the memory, and means the same. */
    berth_stream *stream;
    const char *label; /* kept by reference: a literal or interned; NULL: the thread's innermost scope */
} berth_request;

#define BERTH_REQUEST_INIT                   \
    {                                        \
        sizeof(berth_request), 0, NULL, NULL \
    }

/* ---- Figures ----------------------------------------------------------------------------------- */

/* Exact whenever no call is in flight. With several threads a peak is an upper bound within 64 KiB a thread.
 */
typedef struct berth_stats {
    size_t struct_size;
    uint64_t num_allocs;
    uint64_t bytes_in_use;
    uint64_t max_bytes_in_use;
    uint64_t max_alloc_size;
    uint64_t bytes_limit; /* 0: unknown or none */
    uint64_t total_bytes; /* of all allocations so far */
    uint64_t bytes_reserved;
    uint64_t max_bytes_reserved;
    uint64_t num_failures;
    uint64_t num_retries;
    uint64_t largest_free_bytes;
    double fragmentation; /* 1 - largest_free / free, 0 when nothing is free */
} berth_stats;

#define BERTH_STATS_INIT                                          \
    {                                                             \
        sizeof(berth_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0 \
    }

typedef enum berth_block_state {
    BERTH_BLOCK_LIVE = 0,
    BERTH_BLOCK_WAITING = 1, /* freed, but a stream may still use it */
    BERTH_BLOCK_IDLE = 2,
} berth_block_state;

/* One block in a snapshot. Strings and pointers are valid during the visit only. */
typedef struct berth_block {
    size_t struct_size;
    const void *address;
    uint64_t size_bytes;      /* what the block takes */
    uint64_t requested_bytes; /* what was asked for; 0 if idle or unknown */
    uint64_t allocation_id;   /* 0: unknown */
    uint64_t segment;         /* blocks of one contiguous piece share a number; 0: none */
    uint64_t age_ns;          /* since it got this state; 0: unknown */
    const char *label;        /* NULL: none */
    berth_stream *stream;     /* NULL: none */
    berth_block_state state;
} berth_block;

#define BERTH_BLOCK_INIT                                                       \
    {                                                                          \
        sizeof(berth_block), NULL, 0, 0, 0, 0, 0, NULL, NULL, BERTH_BLOCK_LIVE \
    }

/* Returns false to end the visit. Called with no lock held; it may call berth, the figures it sees may
 * already have moved on. */
typedef bool (*berth_block_fn)(void *context, const berth_block *block);

/* ---- The table --------------------------------------------------------------------------------- */

/* What an allocator does. Every operation takes `self`, so that allocators stack. Required ones first; an
 * optional one left NULL answers as its comment says. New operations are appended, struct_size tells which
 * are there. The front functions below check arguments first: an operation sees a valid alignment, a size
 * above 0 (or 0 where allocates_empty), a request that is never NULL and complete, and a pointer not NULL.
 * Operations may be called from any thread at once. */
typedef struct berth_allocator_ops {
    size_t struct_size;
    /* required */
    berth_status (*allocate)(void *self, size_t size_bytes, size_t alignment, const berth_request *request,
                             void **out);
    /* size 0: unknown. What its answer says of the block, see berth_deallocate. */
    berth_status (*deallocate)(void *self, void *p, size_t size_bytes, berth_stream *stream);
    void (*destroy)(void *self); /* the last reference is gone; blocks may still be live */
    /* optional */
    berth_status (*reallocate)(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                               const berth_request *request, void **out);        /* BERTH_UNSUPPORTED */
    berth_status (*record_use)(void *self, const void *p, berth_stream *stream); /* BERTH_UNSUPPORTED */
    const char *(*name)(void *self);                                             /* "unnamed" */
    berth_device (*device)(void *self);                                          /* the CPU */
    berth_memory_kind (*memory_kind)(void *self);                                /* BERTH_MEMORY_DEVICE */
    berth_status (*owns)(void *self, const void *p);                             /* BERTH_UNSUPPORTED */
    bool (*tracks_sizes)(void *self);                                            /* false */
    bool (*allocates_empty)(void *self);                                         /* false */
    berth_status (*requested_size)(void *self, const void *p, size_t *out);      /* BERTH_UNSUPPORTED */
    berth_status (*allocated_size)(void *self, const void *p, size_t *out);      /* BERTH_UNSUPPORTED */
    berth_status (*allocated_size_slow)(void *self, const void *p, size_t *out); /* as allocated_size */
    berth_status (*allocation_id)(void *self, const void *p, uint64_t *out);     /* BERTH_OK, 0 */
    berth_status (*stats)(void *self, berth_stats *out);                         /* BERTH_UNSUPPORTED */
    berth_status (*clear_stats)(void *self);                                     /* BERTH_UNSUPPORTED */
    berth_status (*trim)(void *self, size_t keep_bytes, size_t *released);       /* BERTH_OK, 0 */
    berth_status (*snapshot)(void *self, berth_block_fn visit, void *context);   /* BERTH_UNSUPPORTED */
    size_t (*granularity)(void *self); /* see berth_allocator_granularity; 1 */
} berth_allocator_ops;

#define BERTH_ALLOCATOR_OPS_INIT                                                                             \
    {                                                                                                        \
        sizeof(berth_allocator_ops), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                                   \
    }

/* Makes an allocator of a table and the `self` its operations get. The table is copied; a short one, or one
 * that lacks a required operation, is BERTH_INVALID_ARGUMENT. The caller owns one reference. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_allocator_create(const berth_allocator_ops *ops, void *self,
                                              berth_allocator **out);

/* A decorator over `inner`: operations that `ops` leaves NULL (required ones too) are forwarded to `inner`,
 * the others run with `self`. Holds a reference to `inner`. Answers as berth_allocator_create. */
BERTH_API berth_status berth_wrapper_create(berth_allocator *inner, const berth_allocator_ops *ops,
                                            void *self, berth_allocator **out);

/* Counted references; the last release destroys. Release accepts NULL. An allocator that keeps track of its
 * blocks (tracking, caches, plans) goes away only with the last of them. Any thread. */
BERTH_API berth_allocator *berth_allocator_retain(berth_allocator *a);
BERTH_API void berth_allocator_release(berth_allocator *a);

/* ---- Using one --------------------------------------------------------------------------------- */

/* Allocates `size_bytes` at a multiple of `alignment`, a power of two up to BERTH_ALIGNMENT_MAX. `request`
 * may be NULL. 0 bytes is BERTH_OK with NULL, unless the allocator allocates_empty: then a unique pointer.
 * The caller owns the block and gives it back to the same allocator. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW (more than any block can hold), BERTH_OUT_OF_HOST_MEMORY,
 * BERTH_OUT_OF_DEVICE_MEMORY, BERTH_OVER_BUDGET, BERTH_MISMATCH (in a strict replay: not what is planned). */
BERTH_API BERTH_DIRECT berth_status berth_allocate(berth_allocator *a, size_t size_bytes, size_t alignment,
                                                   const berth_request *request, void **out);

/* Gives a block back. NULL is a no-op. `size_bytes` is what was asked for, or 0 if unknown. With a stream the
 * block may be used by that stream's work up to this point. Any thread. BERTH_OK, BERTH_BAD_FREE; of a block that is
 * freed all the same, BERTH_MISMATCH (in a strict replay: earlier than planned), BERTH_CORRUPT (a guard: bytes around
 * it were overwritten) and BERTH_DEVICE_LOST. After anything else it is still the caller's. */
BERTH_API BERTH_DIRECT berth_status berth_deallocate(berth_allocator *a, void *p, size_t size_bytes,
                                                     berth_stream *stream);

/* Changes a block's size, keeping what fits; the block may move. On failure the old block stays. Allocators
 * without an operation of their own allocate, copy and free where the sizes are known. NULL allocates; new
 * size 0 frees. Any thread. As berth_allocate, BERTH_UNSUPPORTED if the old size cannot be told. */
BERTH_API berth_status berth_reallocate(berth_allocator *a, void *p, size_t old_bytes, size_t new_bytes,
                                        size_t alignment, const berth_request *request, void **out);

/* Notes that `stream` uses the block at `p`: once freed, it is not reused before the stream has passed
 * the point of the free. `p` may lie inside the block. Any thread. BERTH_OK, BERTH_NOT_FOUND,
 * BERTH_UNSUPPORTED from allocators that never reuse a block early. */
BERTH_API berth_status berth_record_use(berth_allocator *a, const void *p, berth_stream *stream);

BERTH_API const char *berth_allocator_name(berth_allocator *a);
BERTH_API berth_device berth_allocator_device(berth_allocator *a);
BERTH_API berth_memory_kind berth_allocator_memory_kind(berth_allocator *a);
/* BERTH_OK if `p` is or lies in a live block of `a`, BERTH_NOT_FOUND if not, BERTH_UNSUPPORTED if it cannot
 * tell. */
BERTH_API berth_status berth_allocator_owns(berth_allocator *a, const void *p);
BERTH_API bool berth_allocator_tracks_sizes(berth_allocator *a);
BERTH_API bool berth_allocator_allocates_empty(berth_allocator *a);
/* The unit in bytes, a power of two, in which it takes memory: a block of a whole number of units loses nothing to
 * rounding, and those who take much at once (pools and caches over it) ask for whole numbers. 1: any size does, or
 * it is not known. Any thread. */
BERTH_API size_t berth_allocator_granularity(berth_allocator *a);

/* Sizes and id of a live block. An allocator that does not track sizes answers BERTH_UNSUPPORTED, not a
 * guess, and id 0; the slow form answers also there, where the source can tell. BERTH_NOT_FOUND: not a live
 * block. */
BERTH_API berth_status berth_requested_size(berth_allocator *a, const void *p, size_t *out);
BERTH_API berth_status berth_allocated_size(berth_allocator *a, const void *p, size_t *out);
BERTH_API berth_status berth_allocated_size_slow(berth_allocator *a, const void *p, size_t *out);
BERTH_API berth_status berth_allocation_id(berth_allocator *a, const void *p, uint64_t *out);

/* Figures; the caller sets out->struct_size. BERTH_UNSUPPORTED where none are kept. Any thread. */
BERTH_API berth_status berth_stats_get(berth_allocator *a, berth_stats *out);
/* Counts to 0, peaks to what is in use now. */
BERTH_API berth_status berth_stats_clear(berth_allocator *a);
/* Gives idle memory above `keep_bytes` back to where it came from; `released` may be NULL. */
BERTH_API berth_status berth_trim(berth_allocator *a, size_t keep_bytes, size_t *released);
/* Shows every block to `visit`. */
BERTH_API berth_status berth_snapshot(berth_allocator *a, berth_block_fn visit, void *context);

/* ---- Typed helpers ------------------------------------------------------------------------------ */

/* An element type. `init` runs on each element after allocation, `fini` on each before deallocation, in
 * reverse; NULL for plain types. Both need host-accessible memory. */
typedef struct berth_type {
    size_t struct_size;
    const char *name;
    size_t size_bytes;
    size_t alignment; /* 0: BERTH_ALIGNMENT */
    berth_status (*init)(void *element, void *context);
    void (*fini)(void *element, void *context);
    void *context;
} berth_type;

#define BERTH_TYPE_INIT                                  \
    {                                                    \
        sizeof(berth_type), NULL, 0, 0, NULL, NULL, NULL \
    }

/* `count` elements of `type`. BERTH_OVERFLOW (and NULL) when count x size does not fit. A failing init is
 * undone: the elements before it are finished and the block is given back. Otherwise as berth_allocate. */
BERTH_API berth_status berth_allocate_array(berth_allocator *a, const berth_type *type, size_t count,
                                            const berth_request *request, void **out);
BERTH_API berth_status berth_deallocate_array(berth_allocator *a, const berth_type *type, void *p,
                                              size_t count, berth_stream *stream);

/* `count` plain elements of C type T, or NULL; and what gives them back (NULL is a no-op):
 *     float *x = BERTH_NEW(a, float, n);
 *     BERTH_DELETE(a, x, n); */
#define BERTH_NEW(a, T, count) ((T *)berth_new((a), (count), sizeof(T)))
#define BERTH_DELETE(a, p, count) berth_deallocate((a), (p), (count) * sizeof *(p), NULL)
BERTH_API void *berth_new(berth_allocator *a, size_t count, size_t element_bytes);

#ifdef __cplusplus
}
#endif
#endif

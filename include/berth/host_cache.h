/* The caching host allocator: pinned host memory that is kept for reuse, and never handed out again while a
 * stream may still read or write it. */
#ifndef BERTH_HOST_CACHE_H
#define BERTH_HOST_CACHE_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_host_cache_options {
    size_t struct_size;
    berth_device device; /* whose pinned memory; {0, 0}: the CPU's */
    /* The largest share that rounding may add to a request's size, which is first rounded up to the alignment
     * asked for; from 1/64 to 1, default 0.125. Blocks are whole cache lines: below 64 / max_waste bytes a
     * block is the next multiple of 64 instead. */
    double max_waste;
    uint64_t soft_limit_bytes; /* idle bytes kept; what exceeds it goes back to the device. 0: no limit */
    /* Bytes taken from the device, in whole pages: live, waiting, idle, and on their way back. 0: no limit.
     * What is idle goes back, and what is on its way is waited for, before a request is refused. */
    uint64_t hard_limit_bytes;
    bool exact_peak;        /* changes nothing any more: peaks are true with any number of threads */
    uint32_t background_us; /* a thread of the cache's own collects every so often; 0: none */
    /* The time, for "since when" and ages; NULL: those stay unknown (0). Any thread, no lock held. */
    uint64_t (*clock_ns)(void *context);
    void *clock_context;
    const char *name; /* kept by reference; NULL: "host_cache" */
    /* Takes its memory from this allocator, and not from the device: see below. Retained; NULL: from the device.
     * `device` is then the upstream's; leave it out. */
    berth_allocator *upstream;
} berth_host_cache_options;

#define BERTH_HOST_CACHE_OPTIONS_INIT                                                           \
    {                                                                                           \
        sizeof(berth_host_cache_options), {0, 0}, 0.125, 0, 0, false, 0, NULL, NULL, NULL, NULL \
    }

/* A new cache over the pinned memory of a device. `options` may be NULL. It is an allocator like any other:
 * berth_allocate, berth_deallocate, berth_record_use, berth_trim (0: empties it) and the rest work on it; a
 * stream named in a request or in berth_deallocate counts as a recorded use. The caller owns one reference.
 * Live blocks stay valid after the last release; the cache goes with the last of them, and memory that a
 * stream still uses then is given back once its events have completed.
 *
 * The upstream may be any allocator of memory that the host can touch: mapped pages that stay where they are, memory
 * that a network card knows (found by attributes in the registry), a fixed region, a pool. It is asked for whole pages
 * at a page's alignment or a larger one, and gets them back with the size that they were asked with, without a stream,
 * when no stream uses them any more. Its operations run without a lock; they must not use the cache that they serve.
 *
 * Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_UNSUPPORTED (the host cannot touch
 * the upstream's memory), and what the device answers. */
BERTH_API berth_status berth_host_cache_create(const berth_host_cache_options *options,
                                               berth_allocator **out);

/* Names a live block so that it is found without a search. 0 is no handle; a handle that does not name the
 * block at the pointer given beside it (old, foreign, garbage) is ignored and the pointer used instead. Beside
 * a NULL pointer it means its block. */
typedef uint64_t berth_host_handle;

/* As berth_allocate, and the block's handle (may be NULL; 0 with a NULL block). The functions with handles
 * answer BERTH_INVALID_ARGUMENT for an allocator that is not a host cache. Any thread. */
BERTH_API berth_status berth_host_cache_allocate(berth_allocator *cache, size_t size_bytes, size_t alignment,
                                                 const berth_request *request, void **out,
                                                 berth_host_handle *handle);

/* As berth_deallocate. Nothing happens if `p` is NULL and `handle` 0. Any thread. BERTH_OK, BERTH_BAD_FREE
 * (freed before, not a block of this cache, not the block's start, or no pointer and a handle that names no
 * live block; nothing changes). */
BERTH_API berth_status berth_host_cache_free(berth_allocator *cache, void *p, berth_host_handle handle,
                                             berth_stream *stream);

/* As berth_record_use; `p` may lie anywhere in the block, or be NULL beside its handle. Any thread. BERTH_OK, BERTH_NOT_FOUND (nothing
 * changes), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_host_cache_record_use(berth_allocator *cache, const void *p,
                                                   berth_host_handle handle, berth_stream *stream);

/* Copies `size_bytes` into or out of blocks of the cache: whichever of `dst` and `src` lies in a live block
 * is checked against that block's end, and its use recorded where there is a stream; at least one must. With
 * a stream the copy is enqueued on it (`need_sync` then waits for that stream only), else it is done on
 * return. The other side may be host memory or memory of the stream's device. Any thread. BERTH_OK,
 * BERTH_NOT_FOUND (neither side is in a block), BERTH_INVALID_ARGUMENT (past the end of a block),
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_host_cache_copy(berth_allocator *cache, void *dst, const void *src,
                                             size_t size_bytes, berth_stream *stream, bool need_sync);

/* Takes back the blocks whose events have completed, and says how many (may be NULL). Allocation does this
 * by itself when it runs short, and so do berth_trim and the background thread. Any thread. */
BERTH_API berth_status berth_host_cache_collect(berth_allocator *cache, size_t *blocks);

/* Collects, then gives every idle block back to the device; `released` (may be NULL) gets the bytes. Returns
 * when the device has them, and what others were giving back too. Blocks up to 32 KiB (with pages of 4 KiB)
 * share runs of pages, and a run goes back when none of its blocks is live or waiting. The same as
 * berth_trim(cache, 0, released). Any thread. */
BERTH_API berth_status berth_host_cache_empty(berth_allocator *cache, size_t *released);

/* Changes the limits. Lowering the soft one gives idle memory back; lowering the hard one below what is taken
 * only stops further growth. 0: no limit. Any thread. */
BERTH_API berth_status berth_host_cache_set_limits(berth_allocator *cache, uint64_t soft_limit_bytes,
                                                   uint64_t hard_limit_bytes);

/* ---- Why is this block not free yet? ------------------------------------------------------------- */

/* One stream that a block has been used on. Valid during the visit. */
typedef struct berth_host_use {
    size_t struct_size;
    berth_stream *stream; /* stays valid even if its owner has destroyed it */
    bool passed;          /* a waiting block: this stream has passed the point of the free */
    uint64_t waiting_ns;  /* since the free; 0 while the block is live, or with no clock */
} berth_host_use;

#define BERTH_HOST_USE_INIT                    \
    {                                          \
        sizeof(berth_host_use), NULL, false, 0 \
    }

typedef bool (*berth_host_use_fn)(void *context, const berth_host_use *use);

/* Shows the state of the block that `p` points to or into (live, freed but waiting, or idle) and every stream
 * that holds it or will. `now_ns` is in terms of the options' clock; 0 asks that clock. `state` and `visit`
 * may be NULL. Called with no lock held. Any thread. BERTH_OK, BERTH_NOT_FOUND, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_host_cache_explain(berth_allocator *cache, const void *p, uint64_t now_ns,
                                                berth_block_state *state, berth_host_use_fn visit,
                                                void *context);

/* ---- Figures beyond berth_stats ------------------------------------------------------------------- */

/* Exact whenever no call is in flight. */
typedef struct berth_host_cache_figures {
    size_t struct_size;
    uint64_t live_bytes; /* what the blocks take */
    uint64_t waiting_bytes;
    /* live + waiting + idle = reserved, when nothing is on its way back; with what is left over in the last
     * page of a run that a hard limit made short. */
    uint64_t idle_bytes;
    uint64_t live_blocks;
    uint64_t waiting_blocks;
    uint64_t idle_blocks;
    uint64_t device_allocations; /* calls to the device, so far */
    uint64_t device_releases;
    uint64_t events_created; /* so far; they are pooled */
    uint64_t events_recorded;
    uint64_t streams; /* streams known at present */
} berth_host_cache_figures;

#define BERTH_HOST_CACHE_FIGURES_INIT                                     \
    {                                                                     \
        sizeof(berth_host_cache_figures), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* The caller sets out->struct_size. Walks every block. Any thread. */
BERTH_API berth_status berth_host_cache_figures_get(berth_allocator *cache, berth_host_cache_figures *out);

/* The size of the block that a request would get under `max_waste` (0: the default): pure arithmetic, for
 * planning and for reports on waste. 0 for 0 bytes or a size too large. */
BERTH_API size_t berth_host_cache_block_size(double max_waste, size_t size_bytes);

#ifdef __cplusplus
}
#endif
#endif

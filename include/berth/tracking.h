/* The tracking allocator: a decorator that knows what is live, how high it went, and who forgot to free. */
#ifndef BERTH_TRACKING_H
#define BERTH_TRACKING_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_tracking_options {
    size_t struct_size;
    bool track_sizes;     /* keep a table of our own where the inner allocator tracks no sizes */
    bool exact_peak;      /* the watermark is exact with several threads too, at the cost of scaling */
    uint32_t stack_depth; /* call stack frames kept with each live block, at most 32; 0: none. glibc only */
} berth_tracking_options;

#define BERTH_TRACKING_OPTIONS_INIT                     \
    {                                                   \
        sizeof(berth_tracking_options), false, false, 0 \
    }

/* A tracker over `inner`, which it retains. `options` may be NULL. It measures by the inner allocator's sizes
 * where that tracks them, else by a table of its own if `track_sizes`, else it counts totals only: live
 * bytes, watermark and ids stay 0, and berth_tracking_measures says so. Counted for each block is the larger
 * of what was asked and what the inner allocator gave. Ids are the tracker's own, 1, 2, 3 … while one thread
 * allocates; with several each thread has runs of its own. The caller owns one reference; each live block
 * holds another, so that a tracker released early goes away with its last block. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_tracking_create(berth_allocator *inner, const berth_tracking_options *options,
                                             berth_allocator **out);

typedef struct berth_tracking_sizes {
    size_t struct_size;
    uint64_t total_bytes;
    uint64_t high_watermark_bytes;
    uint64_t live_bytes;
} berth_tracking_sizes;

#define BERTH_TRACKING_SIZES_INIT             \
    {                                         \
        sizeof(berth_tracking_sizes), 0, 0, 0 \
    }

/* The three figures. BERTH_OK; BERTH_INVALID_ARGUMENT if `tracker` is not one. */
BERTH_API berth_status berth_tracking_get_sizes(berth_allocator *tracker, berth_tracking_sizes *out);

/* The same, and drops the caller's reference. */
BERTH_API berth_status berth_tracking_get_sizes_and_unref(berth_allocator *tracker,
                                                          berth_tracking_sizes *out);

/* Whether live bytes, watermark and ids are known. */
BERTH_API bool berth_tracking_measures(berth_allocator *tracker);

/* One live block in a leak report. */
typedef struct berth_leak {
    size_t struct_size;
    const void *address;
    uint64_t size_bytes;
    uint64_t allocation_id;
    const char *label;    /* NULL: none */
    void *const *stack;   /* innermost first */
    uint32_t stack_depth; /* 0: not asked for */
} berth_leak;

#define BERTH_LEAK_INIT                               \
    {                                                 \
        sizeof(berth_leak), NULL, 0, 0, NULL, NULL, 0 \
    }

typedef bool (*berth_leak_fn)(void *context, const berth_leak *leak);

/* Shows every live block by rising id, which is oldest first for each thread. `visit` gets a copy and runs
 * without a lock; returning false ends it. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_UNSUPPORTED from a tracker that counts totals only. */
BERTH_API berth_status berth_tracking_visit_leaks(berth_allocator *tracker, berth_leak_fn visit,
                                                  void *context);

/* Writes the leak report for people through the log, a line a block, and how many there are to `count` (may
 * be NULL). */
BERTH_API berth_status berth_tracking_report_leaks(berth_allocator *tracker, size_t *count);

#ifdef __cplusplus
}
#endif
#endif

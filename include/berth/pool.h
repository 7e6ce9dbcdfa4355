/* The device pool: a stream-ordered caching allocator for device memory and for large CPU tensors. */
#ifndef BERTH_POOL_H
#define BERTH_POOL_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_pool_options {
    size_t struct_size;
    berth_device device; /* zero: the CPU */
    berth_memory_kind memory_kind;
    uint64_t hard_limit_bytes; /* never more than this is taken from the device; 0: no limit */
    uint64_t soft_limit_bytes; /* idle memory above this is given back at once; 0: no limit */
    uint64_t decay_ns; /* idle memory unused for so long is given back as the pool is used; 0: never */
    /* How far above the most that was live the pool may grow before it gives idle memory back from between
     * its blocks first, as a fraction: small saves memory, large saves page faults. Compacting makes it
     * small. */
    double slack;
    bool compacting;
    size_t reserve_bytes; /* address space to reserve where the device can, and no more; 0: chosen */
    size_t segment_bytes; /* what is taken from other devices at a time, at least; 0: 20 MiB */
    /* Another pool: this one is private, its limits are the other's. What lies idle in one is not given back for the
     * other, unless on_failure trims it. */
    berth_allocator *shares_limits_with;
    /* Called without a lock when an allocation would fail, before it does: gives memory back elsewhere and
     * returns true to have the pool try once more. */
    bool (*on_failure)(void *context, size_t size_bytes);
    void *on_failure_context;
    uint64_t (*clock_ns)(void *context); /* NULL: the system's monotonic clock; for ages and decay */
    void *clock_context;
    /* Takes its memory from this allocator, in segments, and not from the device: see below. Retained; NULL: from the
     * device. `device` and `memory_kind` are then the upstream's; leave them out. */
    berth_allocator *upstream;
} berth_pool_options;

#define BERTH_POOL_SLACK 0.25
#define BERTH_POOL_SLACK_COMPACTING 0.10
#define BERTH_POOL_DECAY_NS UINT64_C(10000000000)
#define BERTH_POOL_OPTIONS_INIT                                                                            \
    {                                                                                                      \
        sizeof(berth_pool_options), {0, 0}, BERTH_MEMORY_DEVICE, 0, 0, BERTH_POOL_DECAY_NS, 0.0, false, 0, \
            0, NULL, NULL, NULL, NULL, NULL, NULL                                                          \
    }

/* A pool on a device. `options` may be NULL: the CPU, and the defaults above (slack 0 means its default).
 *
 * Blocks are cut to size from what the pool has (the lowest place that fits, neighbours merged). A block
 * freed with a stream is reusable on that stream at once and elsewhere when the stream has passed the point
 * of the free; so is a block that was allocated on a stream and freed without one. berth_record_use adds
 * further streams. Where the device can reserve address space the pool grows in place and gives memory back
 * from the middle; elsewhere it takes segments and gives back those that are wholly idle.
 *
 * The peak in its statistics is exact, with any number of threads.
 *
 * An allocation that would exceed the hard limit, or that the device refuses, is tried again after idle
 * memory has been given back, after on_failure, and after waiting for blocks that streams still use (unless
 * BERTH_NO_RETRY); then it fails with words that say what stands in the way and who holds the most. Memory on
 * its way back to the device is waited for first in any case. A double, foreign or stale free is
 * BERTH_BAD_FREE and changes nothing; only two threads that free one block in the same few nanoseconds may
 * both be believed.
 *
 * The upstream may be any allocator: a fixed region, mapped pages of a kind, a user's own, one that the registry finds
 * by attributes, another pool. Segments are asked for at alignments that the pool needs and in whole numbers of the
 * upstream's granularity; while it refuses, ever smaller ones down to what the block needs, and only that last attempt
 * lets the upstream retry. They go back with the size that they were asked with, without a stream, when no stream uses
 * them any more. The upstream's operations run without a lock; they must not allocate from, trim or describe the pool
 * that they serve.
 *
 * The child of a fork may use every pool, whatever other threads were doing; streams stay in the parent.
 *
 * The caller owns one reference; a pool released early goes away with its last block, after waiting for the
 * streams that still use its memory. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY,
 * BERTH_UNSUPPORTED (no such memory on the device). */
BERTH_API berth_status berth_pool_create(const berth_pool_options *options, berth_allocator **out);

/* Receives one line without a newline. */
typedef void (*berth_line_fn)(void *context, const char *line);

/* The pool as text: totals, then each segment and its blocks with size, state, label, stream and age. At most
 * `max_blocks` blocks are written, by address; 0: all. Any thread. */
BERTH_API berth_status berth_pool_describe(berth_allocator *pool, size_t max_blocks, berth_line_fn line,
                                           void *context);

/* Registers "pool" on the CPU, above "system". Done by itself when libberth.so is loaded and by the first
 * berth_cpu_allocator; a statically linked program that asks the registry only calls it once itself. Any
 * thread. */
BERTH_API berth_status berth_pool_register(void);

#ifdef __cplusplus
}
#endif
#endif

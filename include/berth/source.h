/* Sources: allocators that stand on nothing but memory itself. */
#ifndef BERTH_SOURCE_H
#define BERTH_SOURCE_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The registry's best allocator for host memory. Borrowed: it lives as long as its registration. Never NULL.
 * Any thread, also before main; one atomic load. */
BERTH_API berth_allocator *berth_cpu_allocator(void);

typedef enum berth_stats_mode {
    BERTH_STATS_OFF = 0,   /* no figures are kept */
    BERTH_STATS_BASIC = 1, /* counts, bytes and peaks, kept in the allocator itself */
    BERTH_STATS_FULL = 2,  /* a local tracker around it: sizes, ids, labels and a leak report too */
} berth_stats_mode;

typedef struct berth_cpu_options {
    size_t struct_size;
    berth_stats_mode stats;        /* default BERTH_STATS_BASIC */
    bool exact_peak;               /* peaks exact with several threads too, at the cost of scaling */
    double large_warning_fraction; /* of memory, for one allocation; default 0.1, negative: never */
    double total_warning_fraction; /* of memory, for all; default 0.5, negative: never */
} berth_cpu_options;

#define BERTH_CPU_OPTIONS_INIT                                        \
    {                                                                 \
        sizeof(berth_cpu_options), BERTH_STATS_BASIC, false, 0.1, 0.5 \
    }

/* A new allocator of host memory from the system ("system" in the registry). `options` may be NULL. It
 * warns, rate limited and through the log, about very large allocations; a warning is not a limit. The caller
 * owns one reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_cpu_allocator_create(const berth_cpu_options *options, berth_allocator **out);

/* Switches the figures of an allocator from berth_cpu_allocator_create between off and basic at any time.
 * What is allocated while they are off is counted all the same where that is needed so that bytes_in_use is
 * never wrong. BERTH_UNSUPPORTED for other allocators, and for BERTH_STATS_FULL, which is chosen at birth. */
BERTH_API berth_status berth_cpu_allocator_set_stats(berth_allocator *a, berth_stats_mode mode);

/* An allocator over a region that the caller owns, for small devices: everything it keeps lies in the region,
 * no heap is touched, and it works before main. The region must outlive it. Best fit with splitting and
 * merging; it tracks sizes. The caller owns one reference; releasing it leaves the region to the caller. Any
 * thread. BERTH_OK, BERTH_INVALID_ARGUMENT (the region cannot hold even the bookkeeping). */
BERTH_API berth_status berth_fixed_allocator_create(void *region, size_t region_bytes, berth_allocator **out);

#ifdef __cplusplus
}
#endif
#endif

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
    BERTH_STATS_OFF = 0, /* no figures are given; bytes in use are counted on, so that they are right later */
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
 * warns, rate limited and through the log, about very large allocations; a warning is not a limit. A second
 * free and a pointer to somebody else's memory are BERTH_BAD_FREE: always for blocks from 96 KiB on, for
 * smaller ones while the C heap has not given their page back to the system; past that, and for pointers to
 * nothing, the free faults as free() does. Put a guard around it to have all of them told. The caller owns one
 * reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_cpu_allocator_create(const berth_cpu_options *options, berth_allocator **out);

/* Switches what an allocator of berth_cpu_allocator_create, or a pool (what berth_cpu_allocator gives unless
 * another was registered), tells, at any time and from any thread. One that
 * was made with BERTH_STATS_FULL may go to off or basic and back; its tracker stays, since it knows the live
 * blocks. One that was made without cannot become full. What is allocated while figures are off is counted
 * all the same, so that bytes_in_use is never wrong. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED
 * (another kind of allocator, or full where there is no tracker). */
BERTH_API berth_status berth_cpu_allocator_set_stats(berth_allocator *a, berth_stats_mode mode);

/* An allocator over a region that the caller owns, for small devices: everything it keeps lies in the region,
 * no heap is touched, and it works before main. The region must outlive it. Best fit with splitting and
 * merging; it tracks sizes. The caller owns one reference; releasing it leaves the region to the caller. Any
 * thread. BERTH_OK, BERTH_INVALID_ARGUMENT (the region cannot hold even the bookkeeping). */
BERTH_API berth_status berth_fixed_allocator_create(void *region, size_t region_bytes, berth_allocator **out);

/* ---- Sources for particular needs ------------------------------------------------------------------ */

/* The functions of a heap, with the meanings of malloc, free, calloc and malloc_usable_size. */
typedef struct berth_malloc_family {
    size_t struct_size;
    const char *name; /* kept by reference */
    void *(*malloc)(size_t size_bytes);
    void (*free)(void *p);
    void *(*calloc)(size_t count, size_t size_bytes); /* may be NULL */
    size_t (*usable_size)(void *p);                   /* may be NULL */
} berth_malloc_family;

#define BERTH_MALLOC_FAMILY_INIT                                  \
    {                                                             \
        sizeof(berth_malloc_family), NULL, NULL, NULL, NULL, NULL \
    }

/* An allocator over any heap that has a malloc and a free: mimalloc, jemalloc, an engine's own. Alignment,
 * figures and the check for second frees, as in berth_cpu_allocator_create, are added here. The family is copied. The caller owns one reference.
 * Any thread that the family's functions may be called from. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_adapter_create(const berth_malloc_family *family, berth_allocator **out);

/* Addresses without memory: everything about an allocation happens except that there are bytes, so that a
 * program or a plan can be tried and its peak be learned on a machine that does not have them. The addresses
 * belong to nobody: touching one faults, and berth_copy refuses the device, which is of kind 0. It tracks
 * sizes, ids and labels. `limit_bytes` is what the machine to come has, 0: no limit. The caller owns one
 * reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_dry_run_allocator_create(uint64_t limit_bytes, berth_allocator **out);

#define BERTH_ANY_NODE (-1)

typedef struct berth_mapped_options {
    size_t struct_size;
    bool huge_pages;   /* blocks of 2 MiB and more lie on huge page boundaries and ask for huge pages */
    int32_t numa_node; /* where the pages come from; default BERTH_ANY_NODE */
    bool prefault;     /* pages are there when the allocation returns, not at the first touch */
    bool lock_pages;   /* pages stay in memory, which counts against RLIMIT_MEMLOCK */
} berth_mapped_options;

#define BERTH_MAPPED_OPTIONS_INIT                                         \
    {                                                                     \
        sizeof(berth_mapped_options), false, BERTH_ANY_NODE, false, false \
    }

/* Host memory straight from the kernel, a mapping for each block, with a say in which pages those are. Whole
 * pages are taken: for few large blocks, and as the ground under pools and plans. It tracks sizes. A node
 * needs libnuma, which is loaded when asked for: BERTH_UNSUPPORTED where it is absent or the machine has no
 * nodes, BERTH_NOT_FOUND for a node that there is not. `options` may be NULL. The caller owns one reference.
 * Any thread. Also BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_mapped_allocator_create(const berth_mapped_options *options,
                                                     berth_allocator **out);

/* An allocator over a device's memory of one kind, a driver call for each block and nothing kept: what plans
 * and caches can stand on. It tracks sizes. A block given back with a stream goes when the stream gets there:
 * on its own where the device orders memory by streams, else after waiting for that stream. The caller owns
 * one reference; an allocator released early goes away with its last block. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND, BERTH_UNSUPPORTED (no such device, or it lacks this kind),
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_device_allocator_create(berth_device device, berth_memory_kind kind,
                                                     berth_allocator **out);

#ifdef __cplusplus
}
#endif
#endif

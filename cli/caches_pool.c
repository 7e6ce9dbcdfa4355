/* Berth's pool on the blocks of a history, run without memory: in segments over a dry run, or growing in place on a device that has
 * addresses and nothing beneath them. The code is that of programs, so are its decisions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "berth/device_ops.h"
#include "berth/pool.h"
#include "berth/source.h"
#include "cli/caches.h"

/* ---- A device of addresses ----------------------------------------------------------------------------- */

/* Above what user programs get, below the bits of pointer tags: nobody has these addresses, and touching one faults. */
#define PAPER_BASE (UINT64_C(1) << 48)
/* A pool keeps a byte for every 4 MiB of its address space. */
#define PAPER_LEAST (UINT64_C(1) << 36)
#define PAPER_MOST (UINT64_C(1) << 46)

static berth_status paper_count(void *self, int32_t *count)
{
    (void)self;
    *count = 1;
    return BERTH_OK;
}

static berth_status paper_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device;
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE;
    info->virtual_memory = true;
    return BERTH_OK;
}

static berth_status paper_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                   size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)device, (void)kind, (void)alignment, (void)stream, (void)out;
    return berth_fail(BERTH_UNSUPPORTED, "%zu bytes: there is no memory, only addresses", size_bytes);
}

static berth_status paper_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                  size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)device, (void)kind, (void)size_bytes, (void)stream;
    return berth_fail(BERTH_BAD_FREE, "%p: there is no memory, only addresses", p);
}

static berth_status paper_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                               berth_copy_kind kind, berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)src, (void)size_bytes, (void)kind, (void)stream;
    return berth_fail(BERTH_UNSUPPORTED, "there is no memory, only addresses");
}

static berth_status paper_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                               berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)size_bytes, (void)stream;
    return berth_fail(BERTH_UNSUPPORTED, "there is no memory, only addresses");
}

/* As on the CPU. */
static berth_status paper_granularity(void *self, berth_device device, size_t *out)
{
    (void)self, (void)device;
    *out = (size_t)sysconf(_SC_PAGESIZE);
    return BERTH_OK;
}

static berth_status paper_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    (void)self, (void)device, (void)size_bytes;
    *out = (void *)(uintptr_t)PAPER_BASE; /* one pool asks, and it asks once */
    return BERTH_OK;
}

/* Of unreserve, map and unmap: nothing is there to be done. */
static berth_status paper_agree(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)device, (void)p, (void)size_bytes;
    return BERTH_OK;
}

static berth_status paper_register(int32_t *kind)
{
    berth_device_ops ops = BERTH_DEVICE_OPS_INIT;
    ops.name = "addresses";
    ops.memory_kinds = 1u << BERTH_MEMORY_DEVICE;
    ops.count = paper_count;
    ops.describe = paper_describe;
    ops.allocate = paper_allocate;
    ops.release = paper_release;
    ops.copy = paper_copy;
    ops.zero = paper_zero;
    ops.granularity = paper_granularity;
    ops.reserve = paper_reserve;
    ops.unreserve = ops.map = ops.unmap = paper_agree;
    berth_device_kind made;
    const berth_status status = berth_device_register(&ops, NULL, &made);
    if (!status)
        *kind = (int32_t)made;
    return status;
}

/* ---- The pool ------------------------------------------------------------------------------------------ */

static berth_status pool_step(berth_allocator *pool, const format_history *h, uint32_t event, void **places)
{
    uint32_t block = h->events[event] / 2;
    if (h->events[event] % 2 == 0)
        return berth_allocate(pool, (size_t)h->blocks[block].size_bytes, BERTH_ALIGNMENT, NULL,
                              &places[block]);
    void *place = places[block];
    places[block] = NULL;
    return berth_deallocate(pool, place, 0, NULL);
}

static berth_status pool_run(const berth_pool_options *options, const format_history *h, uint16_t device,
                             caches_figures *out)
{
    berth_allocator *pool = NULL;
    berth_stats stats = BERTH_STATS_INIT;
    void **places = calloc((size_t)h->block_count + 1, sizeof *places);
    berth_status status = places ? berth_pool_create(options, &pool) : BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t e = 0; !status && e < h->event_count; e++)
        if (h->blocks[h->events[e] / 2].device == device)
            status = pool_step(pool, h, e, places);
    if (!status)
        status = berth_stats_get(pool, &stats);
    *out = (caches_figures){stats.max_bytes_reserved, stats.max_bytes_in_use, 0};
    for (uint32_t i = 0; places && pool && i < h->block_count; i++)
        if (places[i])
            (void)berth_deallocate(pool, places[i], 0, NULL);
    berth_allocator_release(pool);
    free(places);
    return status;
}

berth_status caches_pool(const format_history *h, uint16_t device, caches_figures *out)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *ground = NULL;
    berth_status status = berth_dry_run_allocator_create(0, &ground);
    options.upstream = ground;
    options.decay_ns = 0; /* time does not pass here */
    if (!status)
        status = pool_run(&options, h, device, out);
    berth_allocator_release(ground);
    return status;
}

berth_status caches_pool_in_place(const format_history *h, uint16_t device, caches_figures *out)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    const uint64_t peak = format_history_peak(h, device).bytes;
    if (peak > PAPER_MOST / 16)
        return berth_fail(BERTH_UNSUPPORTED, "no machine has as much");
    berth_status status = paper_register(&options.device.kind);
    /* Holes may be left open: real pools too have eight times the memory. */
    for (options.reserve_bytes = PAPER_LEAST; options.reserve_bytes / 16 < peak;)
        options.reserve_bytes *= 2;
    options.decay_ns = 0;
    if (status)
        return status;
    status = pool_run(&options, h, device, out);
    (void)berth_device_unregister((berth_device_kind)options.device.kind);
    return status;
}

/* The pool's memory: its address space, and growing: in place where the device has virtual memory, in segments
 * elsewhere. */
#include "pool/pool.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/words.h"

#define RESERVE_MAX ((size_t)1 << 40)
#define RESERVE_MIN ((size_t)1 << 20)

/* ---- The address space --------------------------------------------------------------------------- */

/* What is left of the process' address space where that is bounded (ulimit -v), else SIZE_MAX. */
static size_t address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    uint64_t taken = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > taken ? (size_t)(limit.rlim_cur - taken) : 0;
}

static size_t reserve_wanted(const berth__pool *pool, size_t asked_bytes)
{
    if (asked_bytes)
        return asked_bytes;
    /* Holes may be left open, so there is more address space than memory; it costs nothing. Where it is
     * bounded it does: malloc and the next pool want some too, and get three quarters of what is left. */
    berth_device_info info = {.struct_size = sizeof info};
    size_t wanted = (size_t)64 << 30, share = address_space_left() / 4;
    if (berth_device_describe(pool->device, &info) == BERTH_OK && info.total_bytes != 0)
        wanted = info.total_bytes > RESERVE_MAX / 8 ? RESERVE_MAX : (size_t)info.total_bytes * 8;
    return wanted < share ? wanted : share > RESERVE_MIN ? share : RESERVE_MIN;
}

berth_status berth__pool_memory_init(berth__pool *pool, size_t reserve_bytes)
{
    static berth__segment nowhere; /* never written */
    pool->main = &nowhere;
    size_t most = berth__device_most_bytes(pool->device, pool->memory_kind);
    if (pool->segment_bytes > most)
        pool->segment_bytes = most / BERTH__POOL_GRAIN * BERTH__POOL_GRAIN;
    size_t granularity = 0;
    if (pool->memory_kind != BERTH_MEMORY_DEVICE ||
        berth__device_granularity(pool->device, &granularity) != BERTH_OK)
        return BERTH_OK; /* segments will do */
    size_t size = berth__align_up(reserve_wanted(pool, reserve_bytes), granularity);
    void *base = NULL;
    berth_status status;
    while ((status = berth__device_reserve(pool->device, size, &base)) != BERTH_OK) {
        if (reserve_bytes || size / 2 < RESERVE_MIN)
            return status;
        size = berth__align_up(size / 2, granularity);
    }
    status = berth__arena_prepare(&pool->arena);
    if (status == BERTH_OK)
        status = berth__arena_add_segment(&pool->arena, (uintptr_t)base, size, &pool->unmapped, &pool->main);
    if (status != BERTH_OK) {
        berth__device_unreserve(pool->device, base, size);
        return status;
    }
    pool->granularity = granularity;
    pool->chose_reserve = reserve_bytes == 0;
    return BERTH_OK;
}

static void forget_unreleased(berth__pool *pool, berth__span *span)
{
    berth__spans_remove(&pool->unreleased, span);
    pool->releasing_bytes -= span->size_bytes;
    pool->reserved_bytes -= span->size_bytes;
    atomic_fetch_sub(&pool->budget->reserved_bytes, span->size_bytes);
    if (span->segment != pool->main)
        berth__arena_drop_segment(&pool->arena, span->segment);
}

void berth__pool_memory_finish(berth__pool *pool)
{
    berth__pool_lock(pool);
    berth__pool_flush_stocks(pool);
    berth__pool_release_again(pool);
    berth__pool_give_back(pool, 0, UINT64_MAX, NULL);
    while (pool->unreleased) /* it was said that the device keeps them; their records can go */
        forget_unreleased(pool, pool->unreleased);
    berth__pool_unlock(pool);
    BERTH_DCHECK(pool->reserved_bytes == 0, "[P2] an idle pool gives all of its memory back");
    if (pool->granularity)
        berth__device_unreserve(pool->device, (void *)pool->main->address, pool->main->size_bytes);
}

/* ---- Growing ------------------------------------------------------------------------------------- */

/* A part of a hole. */
struct range {
    berth__span *span;
    uintptr_t address;
    size_t size_bytes;
};

/* Where a block would start that ends in the unmapped span `hole`, or behind it: in front of the hole if
 * memory is mapped there, unless it must be `alone`. */
static uintptr_t start_at(const berth__pool *pool, const berth__span *hole, bool alone)
{
    bool joins = !alone && hole->before && hole->before->index == &pool->mapped;
    return joins ? hole->before->address : hole->address;
}

/* The part of the hole that must be mapped so that, with its mapped neighbours (unless `alone`), the block
 * fits.
 */
static struct range part_to_map(const berth__pool *pool, berth__span *hole, size_t size_bytes, bool alone)
{
    uintptr_t low = start_at(pool, hole, alone), end = hole->address + hole->size_bytes, high = end;
    if (!alone && hole->after && hole->after->index == &pool->mapped)
        high += hole->after->size_bytes;
    if (high - low < size_bytes)
        return (struct range){0};
    uintptr_t to = berth__align_up(low + size_bytes, pool->granularity);
    if (to > end)
        to = end;
    if (to <= hole->address) /* the neighbour would do alone: it came free meanwhile */
        to = hole->address + pool->granularity;
    return (struct range){hole, hole->address, to - hole->address};
}

/* Where to map: the hole that needs least, else the end of the address space in use. */
static struct range choose_hole(const berth__pool *pool, size_t size_bytes, bool alone)
{
    enum { LOOK_AT = 64 };
    struct range best = {0};
    int looked = 0;
    for (berth__span *hole = berth__index_next(&pool->unmapped, NULL); hole && looked < LOOK_AT;
         hole = berth__index_next(&pool->unmapped, hole), looked++) {
        struct range range = part_to_map(pool, hole, size_bytes, alone);
        if (range.span && hole->after && (!best.span || range.size_bytes < best.size_bytes))
            best = range;
    }
    berth__span *top = berth__index_largest(&pool->unmapped);
    return best.span || !top ? best : part_to_map(pool, top, size_bytes, alone);
}

/* What is in use or waits for streams. */
static uint64_t bytes_held(const berth__pool *pool)
{
    uint64_t not_held = berth__pool_idle_bytes(pool) + pool->releasing_bytes;
    return pool->reserved_bytes > not_held ? pool->reserved_bytes - not_held : 0;
}

/* Keeps what is taken from the device within (1 + slack) of the most that was live, as far as idle memory
 * goes. */
static size_t keep_slack(berth__pool *pool, size_t size_bytes, size_t more_bytes, const berth__plot *plot)
{
    uint64_t live = bytes_held(pool) + size_bytes;
    if (live < pool->max_live_bytes)
        live = pool->max_live_bytes;
    uint64_t bound = live + (uint64_t)((double)live * pool->slack);
    uint64_t after = pool->reserved_bytes + more_bytes;
    uint64_t excess = after > bound ? after - bound : 0;
    if (!excess)
        return 0;
    return berth__pool_give_back(pool, excess < pool->mapped.bytes ? pool->mapped.bytes - excess : 0,
                                 UINT64_MAX, plot);
}

/* The pool has grown for a block of so many bytes. Only then: a request that is refused must not raise what
 * the slack is measured by. */
static void note_growth(berth__pool *pool, size_t size_bytes)
{
    uint64_t live = bytes_held(pool) + size_bytes;
    if (live > pool->max_live_bytes)
        pool->max_live_bytes = live;
}

static berth_status over_budget(const berth__pool *pool)
{
    return berth__fail(BERTH_OVER_BUDGET, "the pool's hard limit of %llu bytes is reached",
                       (unsigned long long)pool->budget->hard_limit_bytes);
}

static berth_status map_range(berth__pool *pool, struct range range, size_t size_bytes, uint64_t *arrivals)
{
    berth_status status = berth__arena_prepare(&pool->arena);
    if (status == BERTH_OK)
        status = berth__arena_map_reserve(pool->main, range.address, range.size_bytes);
    if (status != BERTH_OK)
        return status;
    if (!berth__pool_claim(pool, range.size_bytes))
        return over_budget(pool);
    berth__span *span = berth__arena_take(&pool->arena, range.span, range.address, range.size_bytes);
    berth__spans_add(&pool->mapping, span);
    berth__pool_unlock(pool);
    status = berth__device_map(pool->device, (void *)range.address, range.size_bytes);
    berth__pool_relock(pool);
    berth__spans_remove(&pool->mapping, span);
    if (status != BERTH_OK) {
        berth__pool_claim_returned(pool, range.size_bytes);
        ++*arrivals; /* our own */
        berth__arena_put(&pool->arena, span, &pool->unmapped);
        return status;
    }
    berth__pool_claim_arrived(pool, range.size_bytes);
    berth__pool_hide(pool, (void *)range.address, range.size_bytes);
    span->since_ns = pool->now_ns;
    berth__arena_put(&pool->arena, span, &pool->mapped);
    note_growth(pool, size_bytes);
    return BERTH_OK;
}

static berth__plot plot_of(const berth__pool *pool, struct range range, size_t size_bytes, bool alone)
{
    uintptr_t from = start_at(pool, range.span, alone);
    return (berth__plot){from, berth__align_up(from + size_bytes, pool->granularity)};
}

/* Asks for ever smaller segments while the device refuses, down to the block's own size. `*size` is claimed, and
 * what is claimed on success. */
static berth_status take_segment(berth__pool *pool, size_t size_bytes, size_t *size, uint64_t *arrivals,
                                 void **out)
{
    for (;;) {
        berth__pool_unlock(pool);
        berth_status status =
            berth_device_allocate(pool->device, pool->memory_kind, *size, BERTH__POOL_GRAIN, NULL, out);
        berth__pool_relock(pool);
        if (status == BERTH_OK)
            return status;
        berth__pool_claim_returned(pool, *size);
        ++*arrivals; /* our own */
        bool smaller = *size > size_bytes &&
                       (status == BERTH_OUT_OF_DEVICE_MEMORY || status == BERTH_OUT_OF_HOST_MEMORY);
        if (!smaller)
            return status;
        size_t half = *size / 2 / BERTH__POOL_GRAIN * BERTH__POOL_GRAIN;
        *size = half > size_bytes ? half : size_bytes;
        if (!berth__pool_claim(pool, *size))
            return over_budget(pool);
    }
}

static berth_status grow_by_segment(berth__pool *pool, size_t size_bytes, uint64_t *arrivals)
{
    /* Large blocks get a segment of their own size, so that it goes back when the block does. */
    bool exact = pool->granularity || size_bytes > pool->segment_bytes / 2;
    size_t size = exact ? size_bytes : pool->segment_bytes;
    keep_slack(pool, size_bytes, size, NULL);
    if (!berth__pool_claim(pool, size)) {
        size = size_bytes;
        if (!berth__pool_claim(pool, size))
            return over_budget(pool);
    }
    void *p = NULL;
    berth_status status = take_segment(pool, size_bytes, &size, arrivals, &p);
    if (status != BERTH_OK)
        return status;
    berth__segment *segment = NULL;
    status = berth__arena_prepare(&pool->arena);
    if (status == BERTH_OK)
        status = berth__arena_add_segment(&pool->arena, (uintptr_t)p, size, &pool->mapped, &segment);
    if (status == BERTH_OK) {
        segment->first->since_ns = pool->now_ns;
        status = berth__arena_map_reserve(segment, segment->address, size);
        if (status == BERTH_OK) {
            berth__pool_hide(pool, p, size);
            berth__pool_claim_arrived(pool, size);
            note_growth(pool, size_bytes);
            return BERTH_OK;
        }
        berth__arena_remove_segment(&pool->arena, segment);
    }
    berth__pool_unlock(pool);
    berth_device_release(pool->device, pool->memory_kind, p, size, NULL);
    berth__pool_relock(pool);
    berth__pool_claim_returned(pool, size);
    ++*arrivals;
    return status;
}

static berth_status no_hole(const berth__pool *pool, size_t size_bytes)
{
    return berth__fail(pool->on_host ? BERTH_OUT_OF_HOST_MEMORY : BERTH_OUT_OF_DEVICE_MEMORY,
                       "the pool's address space of %s has no hole of %s; reserve_bytes sets it",
                       BERTH__SIZE(pool->main->size_bytes), BERTH__SIZE(size_bytes));
}

static berth_status grow_in_place(berth__pool *pool, size_t size_bytes, bool alone, uint64_t *arrivals)
{
    struct range range;
    size_t given;
    do { /* giving back may move the hole, or make the part to map larger */
        range = choose_hole(pool, size_bytes, alone);
        if (!range.span)
            break;
        berth__plot plot = plot_of(pool, range, size_bytes, alone);
        given = keep_slack(pool, size_bytes, range.size_bytes, &plot);
    } while (given);
    /* Where the pool chose how much to reserve, it does not refuse for that alone. */
    if (!range.span)
        return pool->chose_reserve ? grow_by_segment(pool, size_bytes, arrivals) : no_hole(pool, size_bytes);
    return map_range(pool, range, size_bytes, arrivals);
}

berth_status berth__pool_grow(berth__pool *pool, size_t size_bytes, bool alone, uint64_t *arrivals)
{
    *arrivals = atomic_load(&pool->budget->arrivals);
    return pool->granularity ? grow_in_place(pool, size_bytes, alone, arrivals)
                             : grow_by_segment(pool, size_bytes, arrivals);
}

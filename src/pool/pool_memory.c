/* The pool's memory: its address space, and growing: in place where the device has virtual memory, in segments
 * elsewhere. */
#include "pool/pool.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/words.h"

#define RESERVE_MAX ((size_t)1 << 40)
#define RESERVE_MIN ((size_t)1 << 20)
/* So much a pool may take for small blocks whatever is live, unless it is to be compact. */
#define LITTLE_BYTES ((uint64_t)1 << 19)

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
    if (pool->upstream.from)
        return BERTH_OK; /* in segments */
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
        size_t smaller = berth__align_up(size / 2, granularity);
        if (reserve_bytes || size / 2 < RESERVE_MIN || smaller == size)
            return status;
        size = smaller;
    }
    status = berth__arena_prepare(&pool->arena);
    if (!status)
        status = berth__arena_add_segment(&pool->arena, (uintptr_t)base, size, &pool->unmapped, &pool->main);
    if (status) {
        berth__device_unreserve(pool->device, base, size);
        return status;
    }
    pool->granularity = granularity;
    BERTH_DCHECK(size % granularity == 0 && pool->main->address % BERTH__POOL_GRAIN == 0,
                 "[A2] addresses are multiples of the grain");
    pool->chose_reserve = reserve_bytes == 0;
    return BERTH_OK;
}

static void forget_unreleased(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(pool->releasing_bytes >= span->size_bytes && pool->reserved_bytes >= span->size_bytes,
                 "[P5] what is forgotten was reserved");
    berth__spans_remove(&pool->unreleased, span);
    pool->releasing_bytes -= span->size_bytes;
    pool->reserved_bytes -= span->size_bytes;
    atomic_fetch_sub(&pool->budget->reserved_bytes, span->size_bytes);
    if (span->segment != pool->main)
        berth__arena_drop_segment(&pool->arena, span->segment);
}

/* A driver may be short of something for a moment: it is asked twice. */
static void unreserve(berth__pool *pool)
{
    void *base = (void *)pool->main->address;
    size_t size = pool->main->size_bytes;
    berth_status status = berth__device_unreserve(pool->device, base, size);
    if (status && status != BERTH_DEVICE_LOST &&
        berth__device_unreserve(pool->device, base, size) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "the device did not take %zu bytes of address space back: %s", size,
                   berth_last_error()->message);
}

void berth__pool_memory_finish(berth__pool *pool)
{
    berth__pool_lock(pool);
    berth__pool_flush_tcaches(pool);
    berth__pool_give_back(pool, 0, UINT64_MAX, NULL);
    for (int attempt = 0; attempt < 2; attempt++) /* what was refused just now, too */
        berth__pool_release_again(pool);
    while (pool->unreleased) /* it was said that the device keeps them; their records can go */
        forget_unreleased(pool, pool->unreleased);
    berth__pool_unlock(pool);
    BERTH_DCHECK(pool->reserved_bytes == 0, "[P2] an idle pool gives all of its memory back");
    if (pool->granularity)
        unreserve(pool);
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
 * fits. */
static struct range part_to_map(const berth__pool *pool, berth__span *hole, size_t size_bytes, bool alone)
{
    BERTH_DCHECK(hole->index == &pool->unmapped, "[P1] memory is mapped where there is none");
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
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
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

static berth_status map_range(berth__pool *pool, struct range range, uint64_t *arrivals)
{
    BERTH_DCHECK(range.address % pool->granularity == 0 && range.size_bytes % pool->granularity == 0,
                 "[A2] whole granules are mapped");
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    berth_status status = berth__arena_prepare(&pool->arena);
    if (!status)
        status = berth__arena_map_reserve(pool->main, range.address, range.size_bytes);
    if (status)
        return status;
    if (!berth__pool_claim(pool, range.size_bytes))
        return over_budget(pool);
    berth__span *span = berth__arena_take(&pool->arena, range.span, range.address, range.size_bytes);
    berth__spans_add(&pool->mapping, span);
    berth__pool_unlock(pool);
    status = berth__device_map(pool->device, (void *)range.address, range.size_bytes);
    berth__pool_relock(pool);
    berth__spans_remove(&pool->mapping, span);
    BERTH_DCHECK(!span->index, "[P1] what the driver maps is in no index");
    if (status) {
        berth__pool_claim_returned(pool, range.size_bytes);
        ++*arrivals; /* our own */
        berth__arena_put(&pool->arena, span, &pool->unmapped);
        return status;
    }
    berth__pool_claim_arrived(pool, range.size_bytes);
    berth__pool_hide(pool, (void *)range.address, range.size_bytes);
    span->since_ns = pool->now_ns;
    berth__arena_put(&pool->arena, span, &pool->mapped);
    return BERTH_OK;
}

static berth__plot plot_of(const berth__pool *pool, struct range range, size_t size_bytes, bool alone)
{
    uintptr_t from = start_at(pool, range.span, alone);
    return (berth__plot){from, berth__align_up(from + size_bytes, pool->granularity)};
}

/* Segments have whole numbers of it. */
static size_t segment_unit(const berth__pool *pool)
{
    size_t unit = pool->upstream.granularity;
    return unit > BERTH__POOL_GRAIN ? unit : BERTH__POOL_GRAIN;
}

static bool is_shortage(berth_status status)
{
    return status == BERTH_OUT_OF_DEVICE_MEMORY || status == BERTH_OUT_OF_HOST_MEMORY ||
           status == BERTH_OVER_BUDGET;
}

/* Claims for segments are counted while the upstream is asked: the child of a fork gives them back, since nobody there
 * has what the upstream answered. */
static bool segment_claim(berth__pool *pool, size_t size_bytes)
{
    if (!berth__pool_claim(pool, size_bytes))
        return false;
    pool->arriving_bytes += size_bytes;
    return true;
}

static void segment_claim_arrived(berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(pool->arriving_bytes >= size_bytes, "[P5] what arrives was on its way");
    pool->arriving_bytes -= size_bytes;
    berth__pool_claim_arrived(pool, size_bytes);
}

static void segment_claim_returned(berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(pool->arriving_bytes >= size_bytes, "[P5] what goes back was on its way");
    pool->arriving_bytes -= size_bytes;
    berth__pool_claim_returned(pool, size_bytes);
}

/* Asks for ever smaller segments while the device refuses, down to the block's own size; an upstream waits and calls
 * back for that one only. `*size` is claimed, and what is claimed on success. */
static berth_status take_segment(berth__pool *pool, size_t size_bytes, size_t *size, uint64_t *arrivals,
                                 void **out)
{
    BERTH_DCHECK(*size >= size_bytes, "[P6] a segment holds the block it is for");
    for (;;) {
        berth__pool_unlock(pool);
        berth_status status = berth__upstream_take(&pool->upstream, *size, BERTH__POOL_GRAIN,
                                                   *size > size_bytes ? BERTH_NO_RETRY : 0, out);
        berth__pool_relock(pool);
        if (!status)
            return status;
        segment_claim_returned(pool, *size);
        ++*arrivals; /* our own */
        if (*size <= size_bytes || !is_shortage(status))
            return status;
        size_t half = *size / 2 & ~(segment_unit(pool) - 1);
        *size = half > size_bytes ? half : size_bytes;
        if (!segment_claim(pool, *size))
            return over_budget(pool);
    }
}

static berth_status grow_by_segment(berth__pool *pool, size_t block_bytes, uint64_t *arrivals)
{
    size_t size_bytes = berth__align_up(block_bytes, segment_unit(pool));
    /* Large blocks get a segment of their own size, so that it goes back when the block does. */
    bool exact = pool->granularity || size_bytes > pool->segment_bytes / 2;
    size_t size = exact ? size_bytes : pool->segment_bytes;
    keep_slack(pool, size_bytes, size, NULL);
    if (!segment_claim(pool, size)) {
        size = size_bytes;
        if (!segment_claim(pool, size))
            return over_budget(pool);
    }
    void *p = NULL;
    berth_status status = take_segment(pool, size_bytes, &size, arrivals, &p);
    if (status)
        return status;
    berth__segment *segment = NULL;
    BERTH_DCHECK(p != NULL && (uintptr_t)p % BERTH__POOL_GRAIN == 0,
                 "[A2] addresses are multiples of the grain");
    status = berth__arena_prepare(&pool->arena);
    if (!status)
        status = berth__arena_add_segment(&pool->arena, (uintptr_t)p, size, &pool->mapped, &segment);
    if (!status) {
        segment->first->since_ns = pool->now_ns;
        status = berth__arena_map_reserve(segment, segment->address, size);
        if (!status) {
            berth__pool_hide(pool, p, size);
            segment_claim_arrived(pool, size);
            return BERTH_OK;
        }
        berth__arena_remove_segment(&pool->arena, segment);
    }
    berth__pool_unlock(pool);
    berth__upstream_give(&pool->upstream, p, size);
    berth__pool_relock(pool);
    segment_claim_returned(pool, size);
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
    return map_range(pool, range, arrivals);
}

bool berth__pool_may_grow(const berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    if (!pool->granularity) /* a segment is much more than what is asked for */
        return false;
    uint64_t bound = pool->max_live_bytes + (uint64_t)((double)pool->max_live_bytes * pool->slack / 2);
    if (bound < LITTLE_BYTES && pool->slack >= BERTH_POOL_SLACK)
        bound = LITTLE_BYTES;
    return pool->reserved_bytes + berth__align_up(size_bytes, pool->granularity) <= bound;
}

berth_status berth__pool_grow(berth__pool *pool, size_t size_bytes, bool alone, bool emptied,
                              uint64_t *arrivals)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    *arrivals = atomic_load(&pool->budget->arrivals);
    berth_status status = pool->granularity ? grow_in_place(pool, size_bytes, alone, arrivals)
                                            : grow_by_segment(pool, size_bytes, arrivals);
    if (!status && emptied)
        note_growth(pool, size_bytes);
    return status;
}

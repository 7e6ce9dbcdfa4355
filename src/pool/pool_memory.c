/* The pool's memory: growing in place where the device has virtual memory, in segments elsewhere; giving idle
 * memory back, from the middle too; limits, slack and decay. */
#include "pool/pool.h"

#define RESERVE_MAX ((size_t)1 << 40)
#define RESERVE_MIN ((size_t)64 << 20)

/* ---- The address space --------------------------------------------------------------------------- */

static size_t reserve_wanted(const berth__pool *pool, size_t asked_bytes)
{
    if (asked_bytes)
        return asked_bytes;
    /* Holes may be left open, so there is more address space than memory; it costs nothing. */
    berth_device_info info = {.struct_size = sizeof info};
    if (berth_device_describe(pool->device, &info) != BERTH_OK || info.total_bytes == 0)
        return (size_t)64 << 30;
    uint64_t wanted = info.total_bytes > RESERVE_MAX / 8 ? RESERVE_MAX : info.total_bytes * 8;
    return (size_t)wanted;
}

berth_status berth__pool_memory_init(berth__pool *pool, size_t reserve_bytes)
{
    static berth__segment nowhere; /* never written */
    pool->main = &nowhere;
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
    return BERTH_OK;
}

void berth__pool_memory_finish(berth__pool *pool)
{
    berth__pool_lock(pool);
    berth__pool_flush_stocks(pool);
    berth__pool_give_back(pool, 0, UINT64_MAX);
    berth__pool_unlock(pool);
    BERTH_DCHECK(pool->reserved_bytes == 0, "[P2] an idle pool gives all of its memory back");
    if (pool->granularity)
        berth__device_unreserve(pool->device, (void *)pool->main->address, pool->main->size_bytes);
}

/* ---- The budget ---------------------------------------------------------------------------------- */

static bool budget_claim(berth__pool *pool, size_t size_bytes)
{
    berth__pool_budget *budget = pool->budget;
    uint64_t reserved = atomic_load(&budget->reserved_bytes);
    do {
        if (budget->hard_limit_bytes &&
            (size_bytes > budget->hard_limit_bytes || reserved > budget->hard_limit_bytes - size_bytes))
            return false;
    } while (!atomic_compare_exchange_weak(&budget->reserved_bytes, &reserved, reserved + size_bytes));
    pool->reserved_bytes += size_bytes;
    if (pool->reserved_bytes > pool->max_reserved_bytes)
        pool->max_reserved_bytes = pool->reserved_bytes;
    return true;
}

static void budget_return(berth__pool *pool, size_t size_bytes)
{
    atomic_fetch_sub(&pool->budget->reserved_bytes, size_bytes);
    pool->reserved_bytes -= size_bytes;
}

static berth_status over_budget(const berth__pool *pool)
{
    return berth__fail(BERTH_OVER_BUDGET, "the pool's hard limit of %llu bytes is reached",
                       (unsigned long long)pool->budget->hard_limit_bytes);
}

/* ---- Putting spans back -------------------------------------------------------------------------- */

/* Takes the whole pieces out of a free span for small blocks, NULL if there are none: they are for all again.
 */
static berth__span *whole_pieces(berth__pool *pool, berth__span *span)
{
    uintptr_t first = berth__align_up(span->address, pool->piece_bytes);
    uintptr_t end = (span->address + span->size_bytes) & ~(uintptr_t)(pool->piece_bytes - 1);
    if (end <= first || pool->arena.spare_count < 2) /* a later one takes them out */
        return NULL;
    return berth__arena_take(&pool->arena, span, first, end - first);
}

void berth__pool_put(berth__pool *pool, berth__span *span)
{
    atomic_store_explicit(&span->state, BERTH__SPAN_FREE, memory_order_relaxed);
    span->label = NULL;
    span->ticket = 0;
    berth__pool_hide(pool, (void *)span->address, span->size_bytes);
    span->since_ns = pool->now_ns;
    if (span->size_bytes <= pool->small_bytes)
        span = whole_pieces(pool, berth__arena_put(&pool->arena, span, &pool->small));
    if (span)
        berth__arena_put(&pool->arena, span, &pool->mapped);
}

static void put_stocked(void *context, berth__span *span)
{
    berth__pool_put(context, span);
}

static void empty_stock(void *context, void *stock)
{
    berth__stock_empty(stock, put_stocked, context);
}

void berth__pool_stop(berth__pool *pool)
{
    berth__meter_stop(&pool->meter);
    berth__meter_visit_beside(&pool->meter, empty_stock, pool);
}

void berth__pool_resume(berth__pool *pool)
{
    berth__meter_resume(&pool->meter);
}

void berth__pool_flush_stocks(berth__pool *pool)
{
    berth__pool_stop(pool);
    berth__pool_resume(pool);
}

/* ---- Giving back --------------------------------------------------------------------------------- */

/* Makes the pieces' free parts free for all. Blocks of streams are merged and cut without regard to pieces,
 * so that some never become whole again; where memory is short or goes back, that does not matter any more.
 */
static void dissolve_pieces(berth__pool *pool)
{
    while (pool->small.root) {
        berth__span *span = pool->small.root;
        span = berth__arena_take(&pool->arena, span, span->address, span->size_bytes);
        berth__arena_put(&pool->arena, span, &pool->mapped);
    }
}

struct range {
    berth__span *span;
    uintptr_t address;
    size_t size_bytes;
};

/* What can be given back of a free span: its whole granules, or itself if it is a whole segment. */
static struct range releasable(const berth__pool *pool, berth__span *span)
{
    struct range range = {span, span->address, span->size_bytes};
    if (span->segment != pool->main) {
        if (span->before || span->after)
            range.size_bytes = 0;
        return range;
    }
    uintptr_t first = berth__align_up(span->address, pool->granularity);
    uintptr_t end = (span->address + span->size_bytes) & ~(uintptr_t)(pool->granularity - 1);
    range.address = first;
    range.size_bytes = end > first ? end - first : 0;
    return range;
}

/* The driver's part of giving a taken span back; the lock is dropped around it [P1]. */
static void release_range(berth__pool *pool, berth__span *span)
{
    void *p = (void *)span->address;
    size_t size_bytes = span->size_bytes;
    bool mapped = span->segment == pool->main;
    berth__pool_unlock(pool);
    berth__pool_reveal(pool, p, size_bytes);
    berth_status status = mapped ? berth__device_unmap(pool->device, p, size_bytes)
                                 : berth_device_release(pool->device, pool->memory_kind, p, size_bytes, NULL);
    if (status != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "the device did not take %zu bytes back: %s", size_bytes,
                   berth_last_error()->message);
    berth__pool_relock(pool);
    budget_return(pool, size_bytes);
    berth__arena_put(&pool->arena, span, mapped ? &pool->unmapped : &pool->mapped);
    if (!mapped)
        berth__arena_remove_segment(&pool->arena, span->segment);
}

/* Idle memory that a block is about to use together with what is mapped for it. */
struct plot {
    uintptr_t from, to;
};

/* What is left of an idle range above the plot, if they overlap. */
static struct range above_plot(struct range range, struct plot plot)
{
    uintptr_t end = range.address + range.size_bytes;
    if (range.address >= plot.to || end <= plot.from)
        return range;
    range.address = plot.to < end ? plot.to : end;
    range.size_bytes = end - range.address;
    return range;
}

/* As berth__pool_give_back, but nothing of the plot. From the top, so that the pool shrinks downwards, to
 * where blocks are placed first; by address, since the lock is dropped. */
static size_t give_back(berth__pool *pool, uint64_t keep_bytes, uint64_t before_ns, struct plot plot)
{
    size_t given = 0;
    uintptr_t below = UINTPTR_MAX;
    berth__span *idle;
    if (keep_bytes == 0)
        dissolve_pieces(pool);
    while (pool->mapped.bytes > keep_bytes && (idle = berth__index_below(&pool->mapped, below))) {
        below = idle->address;
        struct range range = above_plot(releasable(pool, idle), plot);
        if (!range.size_bytes || idle->since_ns > before_ns)
            continue;
        if (berth__arena_prepare(&pool->arena) != BERTH_OK)
            break;
        uint64_t excess = pool->mapped.bytes - keep_bytes;
        if (idle->segment == pool->main && excess < range.size_bytes) {
            size_t part = berth__align_up((size_t)excess, pool->granularity);
            range.address += range.size_bytes - part;
            range.size_bytes = part;
        }
        berth__span *span = berth__arena_take(&pool->arena, idle, range.address, range.size_bytes);
        given += range.size_bytes;
        release_range(pool, span);
    }
    return given;
}

size_t berth__pool_give_back(berth__pool *pool, uint64_t keep_bytes, uint64_t before_ns)
{
    return give_back(pool, keep_bytes, before_ns, (struct plot){0});
}

void berth__pool_settle(berth__pool *pool)
{
    uint64_t soft = pool->budget->soft_limit_bytes;
    if (soft && pool->mapped.bytes > soft)
        berth__pool_give_back(pool, soft, UINT64_MAX);
    /* Looking at every idle span is work: once in an eighth of the time is often enough. */
    uint64_t now = pool->now_ns;
    if (pool->decay_ns && now > pool->decay_ns && now - pool->decayed_at_ns >= pool->decay_ns / 8) {
        pool->decayed_at_ns = now;
        berth__pool_give_back(pool, 0, now - pool->decay_ns);
    }
}

/* ---- Growing ------------------------------------------------------------------------------------- */

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

/* Keeps what is taken from the device within (1 + slack) of the most that was live, as far as idle memory
 * goes. */
static size_t keep_slack(berth__pool *pool, size_t size_bytes, size_t more_bytes, struct plot plot)
{
    uint64_t live = pool->reserved_bytes - berth__pool_idle_bytes(pool) + size_bytes;
    if (live > pool->max_live_bytes)
        pool->max_live_bytes = live;
    uint64_t bound = pool->max_live_bytes + (uint64_t)((double)pool->max_live_bytes * pool->slack);
    uint64_t after = pool->reserved_bytes + more_bytes;
    uint64_t excess = after > bound ? after - bound : 0;
    if (!excess)
        return 0;
    return give_back(pool, excess < pool->mapped.bytes ? pool->mapped.bytes - excess : 0, UINT64_MAX, plot);
}

static berth_status map_range(berth__pool *pool, struct range range)
{
    berth_status status = berth__arena_prepare(&pool->arena);
    if (status == BERTH_OK)
        status = berth__arena_map_reserve(pool->main, range.address, range.size_bytes);
    if (status != BERTH_OK)
        return status;
    if (!budget_claim(pool, range.size_bytes))
        return over_budget(pool);
    berth__span *span = berth__arena_take(&pool->arena, range.span, range.address, range.size_bytes);
    berth__pool_unlock(pool);
    status = berth__device_map(pool->device, (void *)range.address, range.size_bytes);
    berth__pool_relock(pool);
    if (status != BERTH_OK) {
        budget_return(pool, range.size_bytes);
        berth__arena_put(&pool->arena, span, &pool->unmapped);
        return status;
    }
    berth__pool_hide(pool, (void *)range.address, range.size_bytes);
    span->since_ns = pool->now_ns;
    berth__arena_put(&pool->arena, span, &pool->mapped);
    return BERTH_OK;
}

static struct plot plot_of(const berth__pool *pool, struct range range, size_t size_bytes, bool alone)
{
    uintptr_t from = start_at(pool, range.span, alone);
    return (struct plot){from, berth__align_up(from + size_bytes, pool->granularity)};
}

static berth_status grow_in_place(berth__pool *pool, size_t size_bytes, bool alone)
{
    struct range range;
    size_t given;
    do { /* giving back may move the hole, or make the part to map larger */
        range = choose_hole(pool, size_bytes, alone);
        given = range.span
                    ? keep_slack(pool, size_bytes, range.size_bytes, plot_of(pool, range, size_bytes, alone))
                    : 0;
    } while (given);
    if (!range.span)
        return berth__fail(BERTH_OUT_OF_DEVICE_MEMORY,
                           "the pool's address space of %zu bytes has no hole of %zu; reserve_bytes sets it",
                           pool->main->size_bytes, size_bytes);
    return map_range(pool, range);
}

static berth_status grow_by_segment(berth__pool *pool, size_t size_bytes)
{
    /* Large blocks get a segment of their own size, so that it goes back when the block does. */
    size_t size = size_bytes > pool->segment_bytes / 2 ? size_bytes : pool->segment_bytes;
    keep_slack(pool, size_bytes, size, (struct plot){0});
    if (!budget_claim(pool, size)) {
        size = size_bytes;
        if (!budget_claim(pool, size))
            return over_budget(pool);
    }
    berth__pool_unlock(pool);
    void *p = NULL;
    berth_status status =
        berth_device_allocate(pool->device, pool->memory_kind, size, BERTH__POOL_GRAIN, NULL, &p);
    berth__pool_relock(pool);
    if (status != BERTH_OK) {
        budget_return(pool, size);
        return status;
    }
    berth__segment *segment = NULL;
    status = berth__arena_prepare(&pool->arena);
    if (status == BERTH_OK)
        status = berth__arena_add_segment(&pool->arena, (uintptr_t)p, size, &pool->mapped, &segment);
    if (status == BERTH_OK) {
        segment->first->since_ns = pool->now_ns;
        status = berth__arena_map_reserve(segment, segment->address, size);
        if (status == BERTH_OK) {
            berth__pool_hide(pool, p, size);
            return BERTH_OK;
        }
        berth__arena_remove_segment(&pool->arena, segment);
    }
    budget_return(pool, size);
    berth__pool_unlock(pool);
    berth_device_release(pool->device, pool->memory_kind, p, size, NULL);
    berth__pool_relock(pool);
    return status;
}

berth_status berth__pool_grow(berth__pool *pool, size_t size_bytes, bool alone)
{
    return pool->granularity ? grow_in_place(pool, size_bytes, alone) : grow_by_segment(pool, size_bytes);
}

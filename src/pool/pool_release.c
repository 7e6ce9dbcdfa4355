/* Memory on its way back to the device: putting freed spans into the arena, limits, soft limit, decay, and
 * what others do not see while a driver has it.
 *
 *     idle (mapped, small) --> releasing --> unmapped, or the segment is gone
 *                                   \--> unreleased: the device did not take it; tried again
 *
 * Nothing is refused while memory is on its way [P6]: it is neither idle nor free, but it will be. */
#include "pool/pool.h"

#include <sched.h>

/* ---- Claims -------------------------------------------------------------------------------------- */

bool berth__pool_claim(berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    berth__pool_budget *budget = pool->budget;
    atomic_fetch_add(&budget->moving_bytes, size_bytes);
    uint64_t reserved = atomic_load(&budget->reserved_bytes);
    do {
        if (budget->hard_limit_bytes &&
            (size_bytes > budget->hard_limit_bytes || reserved > budget->hard_limit_bytes - size_bytes)) {
            atomic_fetch_sub(&budget->moving_bytes, size_bytes);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&budget->reserved_bytes, &reserved, reserved + size_bytes));
    pool->reserved_bytes += size_bytes;
    BERTH_DCHECK(!budget->hard_limit_bytes || reserved + size_bytes <= budget->hard_limit_bytes,
                 "[M4] a claim stays under the hard limit");
    return true;
}

static void stop_moving(berth__pool *pool, size_t size_bytes)
{
    /* In this order: who sees nothing on its way any more sees that something has arrived. */
    atomic_fetch_add(&pool->budget->arrivals, 1);
    BERTH_DCHECK(atomic_load(&pool->budget->moving_bytes) >= size_bytes, "[P5] what arrives was on its way");
    atomic_fetch_sub(&pool->budget->moving_bytes, size_bytes);
}

void berth__pool_claim_arrived(berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(pool->reserved_bytes >= size_bytes, "[P5] what arrives was claimed");
    if (pool->reserved_bytes > pool->max_reserved_bytes) /* not sooner: the device may refuse */
        pool->max_reserved_bytes = pool->reserved_bytes;
    stop_moving(pool, size_bytes);
}

void berth__pool_claim_returned(berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(pool->reserved_bytes >= size_bytes, "[P5] what goes back was taken from the device");
    BERTH_DCHECK(atomic_load(&pool->budget->reserved_bytes) >= size_bytes,
                 "[P5] and counted by those who share the limit");
    atomic_fetch_sub(&pool->budget->reserved_bytes, size_bytes);
    pool->reserved_bytes -= size_bytes;
    stop_moving(pool, size_bytes);
}

/* One turn of a wait for others, without the lock. */
static void wait_a_turn(berth__pool *pool, unsigned turn)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    berth__pool_unlock(pool);
    if (turn % 16 == 0)
        sched_yield();
    else
        berth__pause();
    berth__pool_relock(pool);
}

/* ---- Putting spans back -------------------------------------------------------------------------- */

/* Takes the whole pieces out of a free span for small blocks, NULL if there are none: they are for all again. */
static berth__span *whole_pieces(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(span->index == &pool->small, "[A1] pieces are for small blocks");
    uintptr_t first = berth__align_up(span->address, pool->piece_bytes);
    uintptr_t end = (span->address + span->size_bytes) & ~(uintptr_t)(pool->piece_bytes - 1);
    if (end <= first || pool->arena.spare_count < 2) /* a later one takes them out */
        return NULL;
    return berth__arena_take(&pool->arena, span, first, end - first);
}

void berth__pool_put(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(!span->index && span->use_count == 0 && !span->uses,
                 "[P3] no stream uses what becomes free memory");
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

static void put_tcached(void *context, berth__span *span)
{
    berth__pool_put(context, span);
}

void berth__pool_empty_tcache(berth__pool *pool, berth__tcache *tcache)
{
    BERTH_DCHECK(tcache->held_bytes <= tcache->most_bytes, "[S1] a thread cache is bounded in bytes");
    berth__tcache_empty(tcache, put_tcached, pool);
    BERTH_DCHECK(tcache->held_bytes == 0 && tcache->recent_count == 0,
                 "[S1] an emptied thread cache holds nothing");
}

static void empty_tcache(void *context, void *tcache)
{
    berth__pool_empty_tcache(context, tcache);
}

void berth__pool_stop(berth__pool *pool)
{
    berth__slots_stop(&pool->quota.slots);
    berth__slots_visit_beside(&pool->quota.slots, empty_tcache, pool);
}

void berth__pool_resume(berth__pool *pool)
{
    berth__slots_resume(&pool->quota.slots);
}

void berth__pool_flush_tcaches(berth__pool *pool)
{
    berth__pool_stop(pool);
    berth__pool_resume(pool);
}

/* ---- One span ------------------------------------------------------------------------------------ */

static void pool_release_begin(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] what the arena holds changes under the lock");
    BERTH_DCHECK(!span->index, "[P1] a driver changes only what is in no index");
    span->allocation_id = ++pool->releases;
    berth__spans_add(&pool->releasing, span);
    pool->releasing_bytes += span->size_bytes;
    atomic_fetch_add(&pool->budget->moving_bytes, span->size_bytes);
}

static void pool_release_end(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(pool->releasing_bytes >= span->size_bytes, "[P4] what the driver has was on its way");
    berth__spans_remove(&pool->releasing, span);
    pool->releasing_bytes -= span->size_bytes;
    berth__pool_claim_returned(pool, span->size_bytes);
    if (span->segment == pool->main)
        berth__arena_put(&pool->arena, span, &pool->unmapped);
    else
        berth__arena_drop_segment(&pool->arena, span->segment);
}

/* What the driver did not take stays reserved, and is nobody's: half of it may be gone. */
static void release_fail(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(!span->index, "[P1] what a driver has half is in no index");
    berth__spans_remove(&pool->releasing, span);
    berth__spans_add(&pool->unreleased, span);
    atomic_fetch_sub(&pool->budget->moving_bytes, span->size_bytes);
}

/* Gives a taken span back; the lock is dropped around the driver's part [P1]. Returns how much went. */
static size_t release_span(berth__pool *pool, berth__span *span)
{
    void *p = (void *)span->address;
    size_t size_bytes = span->size_bytes;
    pool_release_begin(pool, span);
    bool in_place = span->segment == pool->main;
    berth__pool_unlock(pool);
    berth__pool_reveal(pool, p, size_bytes);
    berth_status status = in_place ? berth__device_unmap(pool->device, p, size_bytes)
                                   : berth__upstream_give(&pool->upstream, p, size_bytes);
    /* Gone with a lost device, too: not to be released twice. */
    bool gone = !status || status == BERTH_DEVICE_LOST;
    if (!gone)
        berth__log(BERTH_LOG_ERROR, "the device did not take %zu bytes back, they stay reserved: %s",
                   size_bytes, berth_last_error()->message);
    berth__pool_relock(pool);
    if (!gone) {
        release_fail(pool, span);
        return 0;
    }
    pool_release_end(pool, span);
    return size_bytes;
}

size_t berth__pool_release_again(berth__pool *pool)
{
    size_t given = 0;
    uint64_t last = pool->releases;
    for (berth__span *span = pool->unreleased; span;) {
        if (span->allocation_id > last) { /* tried just now */
            span = span->right;
            continue;
        }
        BERTH_DCHECK(!span->index && pool->releasing_bytes >= span->size_bytes,
                     "[P4] what is tried again is still on its way");
        berth__spans_remove(&pool->unreleased, span);
        pool->releasing_bytes -= span->size_bytes;
        given += release_span(pool, span);
        span = pool->unreleased; /* the lock was dropped */
    }
    return given;
}

static bool is_releasing(const berth__pool *pool, uint64_t up_to)
{
    for (const berth__span *span = pool->releasing; span; span = span->right)
        if (span->allocation_id <= up_to)
            return true;
    return false;
}

void berth__pool_await_releases(berth__pool *pool)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    uint64_t last = pool->releases;
    for (unsigned turn = 1; is_releasing(pool, last); turn++)
        wait_a_turn(pool, turn);
}

void berth__pool_strand(berth__pool *pool)
{
    /* Mapping and unmapping in reserved address space can be done again. What was on its way as a segment may
     * be gone, and its addresses another's: it is forgotten. */
    berth__span *span;
    while ((span = pool->mapping)) {
        berth__spans_remove(&pool->mapping, span);
        berth__spans_add(&pool->unreleased, span);
        span->allocation_id = 0; /* no release of it was begun */
        pool->releasing_bytes += span->size_bytes;
    }
    while ((span = pool->releasing)) {
        if (span->segment == pool->main)
            release_fail(pool, span);
        else
            pool_release_end(pool, span);
    }
    pool->reserved_bytes -= pool->arriving_bytes;
    atomic_fetch_sub(&pool->budget->reserved_bytes, pool->arriving_bytes);
    pool->arriving_bytes = 0;
    atomic_store(&pool->budget->moving_bytes, 0);
}

/* ---- Giving back --------------------------------------------------------------------------------- */

/* Makes the pieces' free parts free for all. Blocks of streams are merged and cut without regard to pieces,
 * so that some never become whole again; where memory is short or goes back, that does not matter any more. */
static void dissolve_pieces(berth__pool *pool)
{
    while (pool->small.root) {
        berth__span *span = pool->small.root;
        span = berth__arena_take(&pool->arena, span, span->address, span->size_bytes);
        berth__arena_put(&pool->arena, span, &pool->mapped);
    }
    BERTH_DCHECK(pool->small.bytes == 0 && pool->small.span_count == 0, "[A1] an empty tree counts nothing");
}

struct range {
    uintptr_t address;
    size_t size_bytes;
};

/* What can be given back of a free span: its whole granules, or itself if it is a whole segment. */
static struct range releasable(const berth__pool *pool, const berth__span *span)
{
    struct range range = {span->address, span->size_bytes};
    if (span->segment != pool->main) {
        if (span->before || span->after)
            range.size_bytes = 0;
        return range;
    }
    uintptr_t first = berth__align_up(span->address, pool->granularity);
    uintptr_t end = (span->address + span->size_bytes) & ~(uintptr_t)(pool->granularity - 1);
    range.address = first;
    range.size_bytes = end > first ? end - first : 0;
    BERTH_DCHECK(range.size_bytes <= span->size_bytes, "[A2] what goes back lies inside its span");
    return range;
}

/* What is left of an idle range above the plot, if they overlap. */
static struct range above_plot(struct range range, const berth__plot *plot)
{
    BERTH_DCHECK(!plot || plot->from <= plot->to, "[P6] a plot is a range");
    uintptr_t end = range.address + range.size_bytes;
    if (!plot || range.address >= plot->to || end <= plot->from)
        return range;
    range.address = plot->to < end ? plot->to : end;
    range.size_bytes = end - range.address;
    return range;
}

/* Takes a range of an idle span out of sight. A segment goes off the list before the driver has its memory: it
 * may give the same addresses out again at once, and the new segment must not hide behind this one. */
static berth__span *take_range(berth__pool *pool, berth__span *idle, struct range range)
{
    BERTH_DCHECK(berth__pool_is_idle(pool, idle->index), "[P3] only what is free for all goes back");
    berth__span *span = berth__arena_take(&pool->arena, idle, range.address, range.size_bytes);
    if (span->segment != pool->main)
        berth__arena_unlist_segment(&pool->arena, span->segment);
    return span;
}

/* From the top, so that the pool shrinks downwards, to where blocks are placed first; by address, since the
 * lock is dropped. */
static size_t give_mapped(berth__pool *pool, uint64_t keep_bytes, uint64_t before_ns, const berth__plot *plot)
{
    size_t given = 0;
    uintptr_t below = UINTPTR_MAX;
    berth__span *idle;
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
            BERTH_DCHECK(part <= range.size_bytes, "[A2] a part is no more than the whole");
            range.address += range.size_bytes - part;
            range.size_bytes = part;
        }
        given += release_span(pool, take_range(pool, idle, range));
    }
    return given;
}

size_t berth__pool_give_back(berth__pool *pool, uint64_t keep_bytes, uint64_t before_ns,
                             const berth__plot *plot)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    if (keep_bytes == 0)
        dissolve_pieces(pool);
    return give_mapped(pool, keep_bytes, before_ns, plot);
}

/* The thread caches have a part of what may be idle, whether they use it or not; the rest is the arena's. */
static void keep_soft_limit(berth__pool *pool, uint64_t soft)
{
    uint64_t shares = atomic_load_explicit(&pool->tcache_shares_bytes, memory_order_relaxed);
    uint64_t keep = soft > shares ? soft - shares : 0;
    uint64_t idle = berth__pool_idle_bytes(pool);
    if (idle <= keep) {
        pool->soft_left_bytes = 0;
        return;
    }
    /* What could not go back, parts of granules, must not be looked at again at every free. */
    if (pool->soft_left_bytes && idle < pool->soft_left_bytes + keep / 8 + pool->piece_bytes)
        return;
    if (pool->small.bytes > keep)
        dissolve_pieces(pool);
    give_mapped(pool, keep - pool->small.bytes, UINT64_MAX, NULL);
    idle = berth__pool_idle_bytes(pool);
    pool->soft_left_bytes = idle > keep ? idle : 0;
}

void berth__pool_settle(berth__pool *pool)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    uint64_t soft = pool->budget->soft_limit_bytes;
    if (soft)
        keep_soft_limit(pool, soft);
    /* Looking at every idle span is work: once in an eighth of the time is often enough. The thread caches come
     * first: a thread that does nothing any more would keep its blocks for ever. */
    uint64_t now = pool->now_ns;
    if (pool->decay_ns && now > pool->decay_ns && now - pool->decayed_at_ns >= pool->decay_ns / 8) {
        pool->decayed_at_ns = now;
        berth__pool_flush_tcaches(pool);
        berth__pool_give_back(pool, 0, now - pool->decay_ns, NULL);
    }
}

/* ---- Before a refusal ---------------------------------------------------------------------------- */

/* Whether the limit leaves no room even when all that is idle here or on its way has gone. In this order:
 * what arrives in between is then counted in neither [P5]. */
static bool is_hopeless(const berth__pool *pool, size_t size_bytes)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P5] what is idle is counted under the lock");
    const berth__pool_budget *budget = pool->budget;
    if (!budget->hard_limit_bytes)
        return false;
    uint64_t free_soon = atomic_load(&budget->moving_bytes) + berth__pool_idle_bytes(pool);
    uint64_t reserved = atomic_load(&budget->reserved_bytes);
    uint64_t held = reserved > free_soon ? reserved - free_soon : 0;
    return size_bytes > budget->hard_limit_bytes || held > budget->hard_limit_bytes - size_bytes;
}

bool berth__pool_squeeze(berth__pool *pool, size_t size_bytes, uint64_t arrivals)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    berth__pool_budget *budget = pool->budget;
    uint64_t idle = berth__pool_idle_bytes(pool);
    berth__pool_flush_tcaches(pool);
    bool flushed = berth__pool_idle_bytes(pool) > idle;
    if (is_hopeless(pool, size_bytes))
        return false;
    size_t given = berth__pool_release_again(pool);
    given += berth__pool_give_back(pool, 0, UINT64_MAX, NULL);
    if (given || flushed || berth__pool_collect(pool, false))
        return true;
    for (unsigned turn = 1; atomic_load(&budget->moving_bytes) != 0; turn++) {
        if (atomic_load(&budget->arrivals) != arrivals)
            break;
        wait_a_turn(pool, turn);
    }
    return atomic_load(&budget->arrivals) != arrivals;
}

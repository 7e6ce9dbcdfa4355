/* The pool's life and its answers: what it knows of its blocks, its figures, its birth and its end. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool.h"

/* ---- Questions ----------------------------------------------------------------------------------- */

/* With the lock: the live block that `p`, with or without a tag, starts or lies in; NULL if none. */
static berth__span *live_span(berth__pool *pool, const void *p, bool inside)
{
    uintptr_t address = berth__untag((uintptr_t)p);
    const berth__segment *segment = berth__arena_segment(&pool->arena, address);
    if (!segment)
        return NULL;
    berth__span *span = inside ? berth__arena_around(segment, address) : berth__arena_at(segment, address);
    return span && atomic_load(&span->state) == BERTH__SPAN_LIVE ? span : NULL;
}

static berth_status not_found(const void *p)
{
    return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of this pool", p);
}

static berth_status pool_record_use(void *self, const void *p, berth_stream *stream)
{
    berth__pool *pool = self;
    berth__pool_lock(pool);
    berth__span *span = live_span(pool, p, true);
    berth_status status = span ? berth__pool_add_use(pool, span, stream) : BERTH_NOT_FOUND;
    berth__pool_unlock(pool);
    return status == BERTH_NOT_FOUND ? not_found(p) : status;
}

static berth_status pool_owns(void *self, const void *p)
{
    berth__pool *pool = self;
    berth__pool_lock(pool);
    bool owns = live_span(pool, p, true) != NULL;
    berth__pool_unlock(pool);
    return owns ? BERTH_OK : BERTH_NOT_FOUND;
}

/* The figures of the live block at `p`, read together under the lock. */
struct facts {
    size_t requested_bytes, size_bytes;
    uint64_t allocation_id;
};

static berth_status find_facts(berth__pool *pool, const void *p, struct facts *facts)
{
    berth__pool_lock(pool);
    const berth__span *span = live_span(pool, p, false);
    if (span)
        *facts = (struct facts){span->requested_bytes, span->size_bytes, span->allocation_id};
    berth__pool_unlock(pool);
    return span ? BERTH_OK : not_found(p);
}

static berth_status pool_requested_size(void *self, const void *p, size_t *out)
{
    struct facts facts = {0};
    berth_status status = find_facts(self, p, &facts);
    *out = facts.requested_bytes;
    return status;
}

static berth_status pool_allocated_size(void *self, const void *p, size_t *out)
{
    struct facts facts = {0};
    berth_status status = find_facts(self, p, &facts);
    *out = facts.size_bytes;
    return status;
}

static berth_status pool_allocation_id(void *self, const void *p, uint64_t *out)
{
    struct facts facts = {0};
    berth_status status = find_facts(self, p, &facts);
    if (!status)
        *out = facts.allocation_id;
    return status;
}

static const char *pool_name(void *self)
{
    (void)self;
    return "pool";
}

static berth_device pool_device(void *self)
{
    return ((berth__pool *)self)->device;
}

static berth_memory_kind pool_memory_kind(void *self)
{
    return ((berth__pool *)self)->memory_kind;
}

static size_t pool_granularity(void *self)
{
    (void)self;
    return BERTH__POOL_GRAIN;
}

static bool pool_tracks_sizes(void *self)
{
    (void)self;
    return true;
}

void berth__pool_read_stats(berth__pool *pool, berth_stats *out)
{
    berth__quota_read(&pool->quota, out);
    berth__pool_lock(pool);
    berth__pool_flush_tcaches(pool); /* so that what is free lies together; it may be too much now */
    berth__pool_settle(pool);
    const berth__span *largest = berth__index_largest(&pool->mapped);
    out->bytes_limit = pool->budget->hard_limit_bytes;
    out->bytes_reserved = pool->reserved_bytes;
    out->max_bytes_reserved = pool->max_reserved_bytes;
    BERTH_DCHECK(out->max_bytes_reserved >= out->bytes_reserved || pool->releasing_bytes ||
                     atomic_load(&pool->budget->moving_bytes),
                 "[P5] the peak is not below what has arrived");
    out->largest_free_bytes = largest ? largest->size_bytes : 0;
    BERTH_DCHECK(out->largest_free_bytes <= berth__pool_idle_bytes(pool),
                 "[A1] the largest free span is a part of what is idle");
    uint64_t idle = berth__pool_idle_bytes(pool);
    out->fragmentation = idle ? 1.0 - (double)out->largest_free_bytes / (double)idle : 0.0;
    berth__pool_unlock(pool);
}

/* The quota runs on while they are off: a free must find what its allocation added. */
static void pool_show_stats(void *self, bool show)
{
    atomic_store(&((berth__pool *)self)->hides_stats, !show);
}

static berth_status stats_are_off(void)
{
    return berth__fail(BERTH_UNSUPPORTED,
                       "this pool's figures are switched off; see berth_cpu_allocator_set_stats");
}

static berth_status pool_stats(void *self, berth_stats *out)
{
    berth__pool *pool = self;
    if (atomic_load(&pool->hides_stats))
        return stats_are_off();
    berth__pool_read_stats(pool, out);
    return BERTH_OK;
}

static uint64_t pool_in_use(void *self)
{
    return berth__quota_in_use(&((berth__pool *)self)->quota);
}

static berth_status pool_clear_stats(void *self)
{
    berth__pool *pool = self;
    if (atomic_load(&pool->hides_stats))
        return stats_are_off();
    berth__slots_clear_counts(&pool->quota.slots);
    berth__quota_clear(&pool->quota);
    berth__pool_lock(pool);
    pool->max_reserved_bytes = pool->reserved_bytes;
    berth__pool_unlock(pool);
    return BERTH_OK;
}

static berth_status pool_trim(void *self, size_t keep_bytes, size_t *released)
{
    berth__pool *pool = self;
    berth__pool_tend_orphans();
    berth__pool_lock(pool);
    berth__pool_collect(pool, false);
    berth__pool_flush_tcaches(pool);
    *released = berth__pool_release_again(pool);
    *released += berth__pool_give_back(pool, keep_bytes, UINT64_MAX, NULL);
    berth__pool_await_releases(pool); /* those of other threads too: on return it is the device's */
    pool->max_live_bytes = 0;         /* the slack starts from what is live now */
    berth__pool_unlock(pool);
    return BERTH_OK;
}

/* ---- Birth and end ------------------------------------------------------------------------------- */

static void budget_release(berth__pool_budget *budget)
{
    BERTH_DCHECK(atomic_load(&budget->references) != 1 || atomic_load(&budget->reserved_bytes) == 0,
                 "[P2] the last pool of a budget has given all of it back");
    if (atomic_fetch_sub(&budget->references, 1) == 1)
        berth__heap_free(budget);
}

static void free_tcache(void *context, void *tcache)
{
    BERTH_DCHECK(((berth__tcache *)tcache)->held_bytes == 0, "[S1] a thread cache ends empty");
    (void)context;
    berth__heap_free(tcache);
}

void berth__pool_finish(berth__pool *pool)
{
    BERTH_DCHECK(pool->live_blocks == 0 && pool->leaving == 0,
                 "[P4] a pool outlives its blocks and their frees");
    if (!berth__pool_wait_finish(pool)) {
        berth__pool_make_orphan(pool);
        return;
    }
    berth__pool_memory_finish(pool);
    berth__pool_delist(pool);
    berth__arena_finish(&pool->arena);
    berth__slots_visit_beside(&pool->quota.slots, free_tcache, NULL);
    berth__quota_finish(&pool->quota);
    budget_release(pool->budget);
    berth__upstream_finish(&pool->upstream);
    berth__heap_free(pool);
}

static uint64_t count_live(const berth__pool *pool)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] spans are looked at under the lock");
    uint64_t count = 0;
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after)
            count += !span->index && atomic_load(&span->state) == BERTH__SPAN_LIVE;
    return count;
}

/* The last reference is gone. From here on thread caches stay stopped, so that every free comes under the lock and
 * the last of them is known. */
static void pool_destroy(void *self)
{
    berth__pool *pool = self;
    BERTH_DCHECK(!berth__pool_is_closing(pool), "[P4] a pool is closed once");
    berth__pool_lock(pool);
    berth__slots_stop(&pool->quota.slots);
    berth__slots_mark(&pool->quota.slots, BERTH__MARK_CLOSING);
    berth__slots_resume(&pool->quota.slots);
    pool->live_blocks = count_live(pool);
    bool over = berth__pool_is_over(pool); /* else the last free to come back sees to it */
    berth__pool_unlock(pool);
    if (over)
        berth__pool_finish(pool);
    berth__pool_tend_orphans();
}

static const berth_allocator_ops pool_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = berth__pool_allocate,
    .deallocate = berth__pool_deallocate,
    .destroy = pool_destroy,
    .reallocate = berth__pool_reallocate,
    .record_use = pool_record_use,
    .name = pool_name,
    .device = pool_device,
    .memory_kind = pool_memory_kind,
    .owns = pool_owns,
    .tracks_sizes = pool_tracks_sizes,
    .requested_size = pool_requested_size,
    .allocated_size = pool_allocated_size,
    .allocation_id = pool_allocation_id,
    .stats = pool_stats,
    .clear_stats = pool_clear_stats,
    .trim = pool_trim,
    .snapshot = berth__pool_snapshot,
    .granularity = pool_granularity,
};

berth__pool *berth__pool_from(berth_allocator *a)
{
    return berth__allocator_is(a, pool_destroy) ? a->self : NULL;
}

static uint64_t monotonic_ns(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void take_options(berth__pool *pool, const berth_pool_options *o)
{
    static _Atomic uint64_t pools;
    pool->number = atomic_fetch_add(&pools, 1) + 1;
    pool->device = pool->upstream.device;
    pool->memory_kind = pool->upstream.memory_kind;
    pool->on_host = pool->device.kind == BERTH_DEVICE_CPU || pool->memory_kind == BERTH_MEMORY_PINNED;
    bool warns = pool->device.kind == BERTH_DEVICE_CPU;
    pool->warnings.large_fraction = warns ? 0.1 : -1;
    pool->warnings.total_fraction = warns ? 0.5 : -1;
    pool->decay_ns = o->decay_ns;
    pool->slack = o->slack > 0 ? o->slack : o->compacting ? BERTH_POOL_SLACK_COMPACTING : BERTH_POOL_SLACK;
    bool tight = pool->slack < BERTH_POOL_SLACK;
    pool->small_bytes = (size_t)(tight ? 4 : 16) << 10;
    pool->piece_bytes = (size_t)(tight ? 32 : 64) << 10;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t unit = pool->upstream.granularity > page ? pool->upstream.granularity : page;
    pool->segment_bytes = berth__align_up(o->segment_bytes ? o->segment_bytes : (size_t)20 << 20, unit);
    BERTH_DCHECK(pool->small_bytes <= pool->piece_bytes && pool->segment_bytes % BERTH__POOL_GRAIN == 0,
                 "[A2] sizes are multiples of the grain");
    pool->on_failure = o->on_failure;
    pool->on_failure_context = o->on_failure_context;
    pool->clock_ns = o->clock_ns ? o->clock_ns : monotonic_ns;
    pool->clock_context = o->clock_context;
}

static berth_status take_budget(berth__pool *pool, const berth_pool_options *o)
{
    if (o->shares_limits_with) {
        berth__pool *other = berth__pool_from(o->shares_limits_with);
        if (!other)
            return berth__fail(BERTH_INVALID_ARGUMENT, "shares_limits_with is not a pool");
        pool->budget = other->budget;
        atomic_fetch_add(&pool->budget->references, 1);
        return BERTH_OK;
    }
    pool->budget = berth__heap_zalloc(1, sizeof *pool->budget);
    if (!pool->budget)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a pool");
    atomic_init(&pool->budget->references, 1);
    pool->budget->hard_limit_bytes = o->hard_limit_bytes;
    pool->budget->soft_limit_bytes = o->soft_limit_bytes;
    return BERTH_OK;
}

/* What an older program does not know of has its default. */
static berth_status read_options(const berth_pool_options *given, berth_pool_options *o)
{
    *o = (berth_pool_options)BERTH_POOL_OPTIONS_INIT;
    if (given && given->struct_size < offsetof(berth_pool_options, upstream))
        return berth__fail(BERTH_INVALID_ARGUMENT, "start from BERTH_POOL_OPTIONS_INIT: struct_size is %zu",
                           given->struct_size);
    if (given)
        memcpy(o, given, given->struct_size < sizeof *o ? given->struct_size : sizeof *o);
    if (!(o->slack >= 0 && o->slack < 1e6))
        return berth__fail(BERTH_INVALID_ARGUMENT, "slack %g is not a fraction of 0 or more", o->slack);
    if (o->segment_bytes > BERTH_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "segments of %zu bytes are too large", o->segment_bytes);
    return BERTH_OK;
}

/* Whether the device is there and has such memory. Of kind 0 are addresses without memory, which only an upstream
 * has: nothing is asked of those. */
static berth_status look_at_device(berth__pool *pool)
{
    if (pool->upstream.from && pool->device.kind == BERTH_DEVICE_UNKNOWN)
        return BERTH_OK;
    berth_device_info info = {.struct_size = sizeof info};
    berth_status status = berth_device_describe(pool->device, &info);
    pool->annotates = BERTH__ANNOTATES() && info.host_accessible;
    if (pool->memory_kind == BERTH_MEMORY_DEVICE && info.offset_alignment > BERTH__POOL_GRAIN)
        pool->least_alignment = (size_t)info.offset_alignment;
    if (!status && !pool->upstream.from && !(info.memory_kinds >> pool->memory_kind & 1))
        status = berth__fail(BERTH_UNSUPPORTED, "%s has no memory of the kind asked for", info.name);
    return status;
}

berth_status berth_pool_create(const berth_pool_options *options, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the pool: out is NULL");
    *out = NULL;
    berth_pool_options o;
    berth_status status = read_options(options, &o);
    if (status)
        return status;
    berth__pool_tend_orphans();
    berth__pool *pool = berth__heap_zaligned(sizeof *pool, 64);
    if (!pool)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a pool");
    status = berth__upstream_init(&pool->upstream, o.upstream, o.device, o.memory_kind, "pool");
    if (status)
        goto free_pool;
    take_options(pool, &o);
    status = take_budget(pool, &o);
    if (status)
        goto finish_upstream;
    berth__arena_init(&pool->arena);
    pool->quota.rises = true;
    atomic_init(&pool->ids_drawn, BERTH__TCACHE_IDS); /* 0 is nobody's id */
    status = look_at_device(pool);
    (void)berth__thread(); /* from then on it is known what barriers there are */
    if (pool->annotates || !berth__barrier_is_asymmetric || pool->least_alignment)
        berth__slots_mark(&pool->quota.slots, BERTH__MARK_SLOW);
    if (!status)
        status = berth__pool_memory_init(pool, o.reserve_bytes);
    if (status)
        goto finish_parts;
    berth__allocator_init(&pool->base, &pool_ops, pool);
    pool->base.knows_blocks = true;
    pool->base.grain_bytes = BERTH__POOL_GRAIN;
    pool->base.show_stats = pool_show_stats;
    pool->base.in_use = pool_in_use;
    pool->base.in_use_self = pool;
    pool->base.word_of = berth__pool_word_of;
    pool->base.word_self = pool;
    berth__pool_enlist(pool);
    *out = &pool->base;
    return BERTH_OK;

finish_parts:
    berth__quota_finish(&pool->quota);
    berth__arena_finish(&pool->arena);
    budget_release(pool->budget);
finish_upstream:
    berth__upstream_finish(&pool->upstream);
free_pool:
    berth__heap_free(pool);
    return status;
}

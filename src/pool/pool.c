/* The device pool's operations: the thread's cache first, the arena behind its lock, then the device. */
#include "pool/pool.h"

#include "count/scope.h"

static size_t rounded_size(size_t size_bytes)
{
    size_t size = berth__align_up(size_bytes, BERTH__POOL_GRAIN);
    return size ? size : BERTH__POOL_GRAIN;
}

/* ---- The thread's own ---------------------------------------------------------------------------- */

/* A thread inside its slot, with its thread cache. */
struct inside {
    berth__slot *slot;
    berth__tcache *tcache;
};

static berth__span no_span; /* at address 0; never written */

/* What a thread's cache may hold. Under a soft limit all thread caches together stay below the half of it, which
 * berth__pool_settle leaves them. */
static size_t tcache_share(const berth__pool *pool, uint32_t thread)
{
    enum { SHARES = 64 };
    uint64_t soft = pool->budget->soft_limit_bytes;
    if (soft == 0 || soft / SHARES > BERTH__TCACHE_BYTES)
        return BERTH__TCACHE_BYTES;
    return thread < SHARES / 2 ? (size_t)(soft / SHARES) : 0;
}

/* Finds the thread's slot and thread cache, makes the thread cache, and remembers both for the next time. */
static bool find_own(berth__pool *pool, struct inside *in)
{
    uint32_t thread = berth__thread();
    in->slot = berth__slot_of(&pool->quota.slots, thread);
    if (!in->slot || !berth__slot_enter(&pool->quota.slots, in->slot))
        return false;
    in->tcache = in->slot->beside;
    berth__slot_leave(in->slot);
    if (!in->tcache) {
        berth__tcache *made = berth__heap_zalloc(1, sizeof *made);
        if (!made)
            return false;
        berth__tcache_init(made, BERTH__SPAN_CACHED + thread, tcache_share(pool, thread));
        made->last = &no_span;
        if (!berth__slot_enter(&pool->quota.slots, in->slot)) {
            berth__heap_free(made);
            return false;
        }
        in->slot->beside = in->tcache = made;
        atomic_fetch_add(&pool->tcache_shares_bytes, made->usual_bytes);
        berth__slot_leave(in->slot);
    }
    berth__thread_memos.device_pool = (berth__memo){pool->number, in->slot, in->tcache};
    BERTH_DCHECK(in->tcache->mark == BERTH__SPAN_CACHED + thread,
                 "[S2] a thread cache has its thread's mark");
    return true;
}

static uint64_t draw_ids(berth__pool *pool)
{
    BERTH_DCHECK(atomic_load(&pool->ids_drawn) % BERTH__TCACHE_IDS == 0,
                 "[T2] ids are drawn in whole batches, so that no two threads have the same");
    return atomic_fetch_add_explicit(&pool->ids_drawn, BERTH__TCACHE_IDS, memory_order_relaxed);
}

/* New ids for the thread when it has none left, and the time for ages: they need not be finer than that. The
 * clock may be the user's, so the thread is not inside. Returns whether it came to that. */
static bool tcache_renew(berth__pool *pool, berth__tcache *tcache)
{
    if (tcache->next_id % BERTH__TCACHE_IDS != 0)
        return false;
    tcache->next_id = draw_ids(pool);
    tcache->now_ns = pool->clock_ns(pool->clock_context);
    return true;
}

/* The thread's slot and thread cache; false if there are none. */
static bool tcache_own(berth__pool *pool, struct inside *in)
{
    const berth__memo *memo = &berth__thread_memos.device_pool;
    if (memo->key != pool->number)
        return find_own(pool, in);
    *in = (struct inside){memo->slot, memo->value};
    BERTH_DCHECK(in->tcache->mark >= BERTH__SPAN_CACHED, "[S2] a thread cache has its thread's mark");
    return true;
}

/* Goes inside; false: the slots are stopped, or the pool is closing. */
static bool tcache_enter(berth__pool *pool, struct inside in)
{
    if (!berth__slot_enter(&pool->quota.slots, in.slot))
        return false;
    if (!berth__pool_is_closing(pool))
        return true;
    berth__slot_leave(in.slot);
    return false;
}

/* ---- Allocating ---------------------------------------------------------------------------------- */

static inline void hand_out(berth__span *span, size_t size_bytes, const char *label, uint64_t id,
                            uint64_t now_ns)
{
    BERTH_DCHECK(size_bytes <= span->size_bytes && !span->index,
                 "[A2] what is asked for fits into the block");
    span->requested_bytes = size_bytes;
    span->label = label;
    span->allocation_id = id;
    span->since_ns = now_ns;
    atomic_store_explicit(&span->state, BERTH__SPAN_LIVE, memory_order_release); /* see is_live_at */
}

/* A block that was taken out of the thread's cache becomes its user's, and is counted; its bytes are to be taken from
 * the quota next. Inside. */
static inline __attribute__((always_inline)) void
pool_grant(struct inside in, berth__span *span, size_t size_bytes, size_t rounded, const char *label)
{
    BERTH_DCHECK(in.slot->beside == in.tcache && BERTH__SLOT_LOAD(in.slot->busy) != 0,
                 "[S1] a thread cache is touched inside its slot");
    hand_out(span, size_bytes, label, in.tcache->next_id++, in.tcache->now_ns);
    berth__slot_count(in.slot, rounded);
}

/* With the lock: goes inside, past stops of the slots themselves, which do not take it. False: closing. */
static bool enter_locked(berth__pool *pool, struct inside in)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    while (!berth__pool_is_closing(pool)) {
        if (berth__slot_enter(&pool->quota.slots, in.slot))
            return true;
        berth__slots_wait_resumed(&pool->quota.slots);
    }
    return false;
}

/* With the lock, so that nobody who has it misses a block between thread cache and arena: puts the thread's larger
 * blocks back. Returns how many. */
static uint32_t put_recent(berth__pool *pool, struct inside in)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] what the arena holds changes under the lock");
    berth__span *out[BERTH__TCACHE_MOST];
    if (!in.slot || !enter_locked(pool, in))
        return 0;
    uint32_t count = berth__tcache_clear_recent(in.tcache, out);
    berth__slot_leave(in.slot);
    for (uint32_t i = 0; i < count; i++)
        berth__pool_put(pool, out[i]);
    return count;
}

/* What has been tried for one allocation. */
struct attempt {
    size_t size_bytes, rounded, alignment;
    const berth_request *request;
    struct inside in; /* the thread's own; no slot if it has none */
    bool counted;     /* under the lock */
    bool collected, flushed, called;
    bool anywhere; /* there is no room for a piece: a small block may lie between large ones */
    int growths, squeezes;
    uint64_t now_ns, id;
};

/* How often a request looks again because memory came back meanwhile, which others then took. */
enum { SQUEEZES_MAX = 1000 };

/* Blocks that come from the pieces for small ones; a larger alignment would waste them. */
static bool is_small(const berth__pool *pool, size_t rounded, size_t alignment)
{
    return rounded <= pool->small_bytes && alignment <= pool->small_bytes;
}

/* The lowest place in the pieces for small blocks, or in a new piece. */
static berth__span *find_small(berth__pool *pool, size_t rounded, size_t alignment, uintptr_t *address)
{
    BERTH_DCHECK(rounded <= pool->small_bytes, "[A1] large blocks do not come from pieces");
    berth__span *span = berth__index_find(&pool->small, rounded, alignment, address);
    uintptr_t start = 0;
    berth__span *piece =
        span ? NULL : berth__index_find(&pool->mapped, pool->piece_bytes, pool->piece_bytes, &start);
    if (!piece)
        return span;
    piece = berth__arena_take(&pool->arena, piece, start, pool->piece_bytes);
    berth__arena_put(&pool->arena, piece, &pool->small);
    return berth__index_find(&pool->small, rounded, alignment, address);
}

/* The lowest place that fits, in what is free for the request's stream first: using it needs no event. */
static berth__span *find_free(berth__pool *pool, const struct attempt *a, uintptr_t *address)
{
    berth_stream *stream = a->request->stream;
    berth__pool_stream *known = stream ? berth__pool_stream_of(pool, stream, false) : NULL;
    berth__span *span = known ? berth__index_find(&known->index, a->rounded, a->alignment, address) : NULL;
    if (!span && is_small(pool, a->rounded, a->alignment)) {
        span = find_small(pool, a->rounded, a->alignment, address);
        if (!a->anywhere)
            return span;
    }
    return span ? span : berth__index_find(&pool->mapped, a->rounded, a->alignment, address);
}

/* With the lock: memory for the attempt from the next place that was not tried; BERTH_OK: look again. */
static berth_status make_room(berth__pool *pool, struct attempt *a)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    if (!a->collected) {
        a->collected = true;
        berth__pool_collect(pool, false);
        return BERTH_OK;
    }
    bool small = is_small(pool, a->rounded, a->alignment) && !a->anywhere;
    if (!a->flushed && !a->growths) {
        /* A piece within the slack is worth less than all thread caches: a program whose small blocks, with those that threads
         * keep, are more than the pieces hold would have them emptied at every few allocations for ever (200 ns a pair, 17 with
         * another piece). Only the large blocks that this thread keeps are put back. */
        a->flushed = !small || !berth__pool_may_grow(pool, 2 * pool->piece_bytes);
        if (a->flushed)
            berth__pool_flush_tcaches(pool);
        if (a->flushed || put_recent(pool, a->in) != 0)
            return BERTH_OK;
    }
    /* Room for the alignment too, so that what is grown surely does; the rest stays free for others. */
    size_t alignment = small ? pool->piece_bytes : a->alignment;
    size_t grown = (small ? pool->piece_bytes : a->rounded) + (alignment > BERTH__POOL_GRAIN ? alignment : 0);
    /* While memory is mapped the lock is dropped, and others may take or give back the neighbours that were
     * counted on. After two tries all of it is mapped anew: then it is there when the lock is taken again. */
    uint64_t arrivals = 0;
    berth_status status = berth__pool_grow(pool, grown, a->growths++ >= 2, a->flushed, &arrivals);
    if (!status)
        return BERTH_OK;
    if (a->squeezes++ < SQUEEZES_MAX && berth__pool_squeeze(pool, grown, arrivals))
        return BERTH_OK;
    if (small) {
        a->anywhere = true;
        return BERTH_OK;
    }
    if (a->request->flags & BERTH_NO_RETRY)
        return status;
    if (!a->called && pool->on_failure) {
        a->called = true;
        berth__pool_unlock(pool);
        bool again = pool->on_failure(pool->on_failure_context, a->size_bytes);
        berth__pool_relock(pool);
        if (again)
            return BERTH_OK;
    }
    if (berth__pool_collect(pool, true)) {
        berth__slots_count_retry(&pool->quota.slots);
        return BERTH_OK;
    }
    return status;
}

/* Counts an allocation within the thread's credit; false, and nothing changed, if that does not suffice. */
static bool count_inside(berth__pool *pool, berth__slot *slot, size_t rounded)
{
    if (!berth__slot_enter(&pool->quota.slots, slot))
        return false;
    bool taken = berth__quota_take_at(slot, rounded);
    if (taken)
        berth__slot_count(slot, rounded);
    berth__slot_leave(slot);
    return taken;
}

static berth_status allocate_slow(berth__pool *pool, struct attempt *a, berth__span **out)
{
    berth_stream *stream = a->request->stream;
    berth_status status;
    uintptr_t address = 0;
    berth__span *free_span;
    berth__pool_lock_at(pool, a->now_ns);
    /* A block kept aside is a hole that nobody sees: see tcache.h. */
    if (!berth__tcache_is_binned(a->rounded))
        (void)put_recent(pool, a->in);
    while ((status = berth__arena_prepare(&pool->arena)) == BERTH_OK) {
        free_span = find_free(pool, a, &address);
        if (free_span)
            break;
        status = make_room(pool, a);
        if (status)
            break;
    }
    if (status) {
        berth__pool_settle(pool);
        berth__pool_unlock(pool);
        return status;
    }
    berth__span *span = berth__arena_take(&pool->arena, free_span, address, a->rounded);
    span->ticket = 0;
    BERTH_DCHECK(span->address % a->alignment == 0, "[I2] a block has the alignment that was asked for");
    BERTH_DCHECK(span->use_count == 0 && !span->uses, "[P3] no stream uses what is handed out");
    if (stream)
        status = berth__pool_add_use(pool, span, stream);
    if (status) {
        berth__pool_put(pool, span);
    } else {
        hand_out(span, a->size_bytes, berth__label_text(a->request), a->id, pool->now_ns);
        berth__arena_map_set(span);
        a->counted = a->in.slot && count_inside(pool, a->in.slot, a->rounded);
    }
    berth__pool_settle(pool);
    berth__pool_unlock(pool);
    *out = span;
    return status;
}

/* Gives the block to the caller, filled with zeros if that was asked for. */
static berth_status finish_allocation(berth__pool *pool, berth__span *span, const berth_request *request,
                                      void **out)
{
    BERTH_DCHECK(atomic_load(&span->state) == BERTH__SPAN_LIVE, "[P4] a block is with its user");
    void *p = (void *)span->address;
    berth__pool_show(pool, p, span->requested_bytes);
    if (request->flags & BERTH_ZEROED && pool->device.kind != BERTH_DEVICE_UNKNOWN) {
        berth_stream *own = berth__stream_if_of(request->stream, pool->device);
        berth_status status = berth_zero(pool->device, p, span->requested_bytes, own, false);
        if (status) {
            berth__pool_deallocate(pool, p, 0, request->stream);
            return status;
        }
    }
    *out = p;
    return BERTH_OK;
}

static berth_status allocate_elsewhere(berth__pool *pool, struct attempt *a, void **out)
{
    berth__span *span = NULL;
    berth_status status = allocate_slow(pool, a, &span);
    if (status) {
        berth__slots_count_failure(&pool->quota.slots);
        return berth__pool_explain(pool, a->size_bytes, a->request, status);
    }
    if (!a->counted) {
        berth__slots_count(&pool->quota.slots, a->rounded);
        (void)berth__quota_take(&pool->quota, a->rounded);
    }
    /* What comes from a thread cache was warned of when it was first cut, and a total can only be new when the pool
     * has grown. */
    if (berth__warnings_is_large(&pool->warnings, a->size_bytes))
        berth__warn_of_large(&pool->warnings, a->size_bytes);
    if (a->growths)
        berth__warn_of_total(&pool->warnings, berth__quota_in_use(&pool->quota));
    return finish_allocation(pool, span, a->request, out);
}

/* The slow path. If nothing of the size is in the thread cache, its larger blocks go back into the
 * arena first. */
static __attribute__((noinline)) berth_status allocate_general(berth__pool *pool, size_t size_bytes,
                                                               size_t alignment, const berth_request *request,
                                                               void **out)
{
    if (BERTH_UNLIKELY(alignment < pool->least_alignment))
        alignment = pool->least_alignment;
    struct attempt a = {.size_bytes = size_bytes,
                        .rounded = rounded_size(size_bytes),
                        .alignment = alignment,
                        .request = request};
    struct inside in = {0};
    bool has_own = !request->stream && tcache_own(pool, &in);
    bool renewed = has_own && tcache_renew(pool, in.tcache);
    if (!has_own || !tcache_enter(pool, in)) {
        a.now_ns = pool->clock_ns(pool->clock_context);
        a.id = draw_ids(pool);
        return allocate_elsewhere(pool, &a, out);
    }
    bool counted = true;
    berth__span *span = berth__tcache_take(in.tcache, a.rounded, alignment);
    if (span) {
        pool_grant(in, span, size_bytes, a.rounded, berth__label_text(request));
        counted = berth__quota_take_at(in.slot, a.rounded);
    } else {
        a.now_ns = in.tcache->now_ns;
        a.id = in.tcache->next_id++;
        a.in = in;
    }
    berth__slot_leave(in.slot);
    if (!span)
        return allocate_elsewhere(pool, &a, out);
    if (!counted)
        (void)berth__quota_take_slow(&pool->quota, a.rounded);
    if (renewed) { /* a thread that never meets the lock looks after limits and decay too */
        berth__pool_lock(pool);
        berth__pool_settle(pool);
        berth__pool_unlock(pool);
    }
    return finish_allocation(pool, span, request, out);
}

static __attribute__((noinline)) berth_status pool_count(berth__pool *pool, size_t size_bytes)
{
    (void)berth__quota_take_slow(&pool->quota, size_bytes);
    return BERTH_OK;
}

/* The fast path: an ordinary request, the thread's cache has a block, and no memory checker listens. */
BERTH_HOT berth_status berth__pool_allocate(void *self, size_t size_bytes, size_t alignment,
                                            const berth_request *request, void **out)
{
    berth__pool *pool = self;
    const berth__memo *memo = &berth__thread_memos.device_pool;
    struct inside in = {memo->slot, memo->value};
    if (BERTH_UNLIKELY(memo->key != pool->number || alignment > BERTH__POOL_GRAIN || request->flags ||
                       request->stream || in.tcache->next_id % BERTH__TCACHE_IDS == 0 ||
                       !berth__slot_enter_fast(&pool->quota.slots, in.slot)))
        return allocate_general(pool, size_bytes, alignment, request, out);
    size_t rounded = berth__align_up(size_bytes, BERTH__POOL_GRAIN);
    berth__tcached block;
    if (BERTH_UNLIKELY(!berth__tcache_take_newest(in.tcache, rounded, &block))) {
        berth__slot_leave(in.slot);
        return allocate_general(pool, size_bytes, alignment, request, out);
    }
    *out = (void *)block.address;
    BERTH_DCHECK(block.span->size_bytes == rounded && block.span->use_count == 0,
                 "[P3] a thread cache has blocks of the exact size that no stream uses");
    in.tcache->last = block.span;
    pool_grant(in, block.span, size_bytes, rounded, berth__label_text(request));
    bool counted = berth__quota_take_unfenced(in.slot, rounded);
    berth__slot_leave(in.slot);
    return BERTH_LIKELY(counted) ? BERTH_OK : pool_count(pool, rounded);
}

/* ---- Freeing ------------------------------------------------------------------------------------- */

/* Whether the block is live and starts at `p`. In this order: the record of a block that was freed elsewhere
 * may become another's at any time, and is live again only after it has its new address. */
static inline bool is_live_at(const berth__span *span, uintptr_t p)
{
    return atomic_load_explicit(&span->state, memory_order_acquire) == BERTH__SPAN_LIVE &&
           berth__span_at(span, p);
}

/* Whether a live block is freed with its size, if with any. */
static inline bool is_size(const berth__span *span, size_t size_bytes)
{
    return size_bytes == 0 || size_bytes == span->requested_bytes;
}

/* With the lock: one thread only is told that the block was live. */
static bool take_from_user(berth__span *span, size_t size_bytes)
{
    uint32_t expected = BERTH__SPAN_LIVE;
    return atomic_load(&span->state) == expected && is_size(span, size_bytes) &&
           atomic_compare_exchange_strong(&span->state, &expected, BERTH__SPAN_FREE);
}

static __attribute__((noinline)) berth_status bad_free(berth__pool *pool, const void *p,
                                                       const berth__span *span, size_t size_bytes)
{
    if (span && atomic_load(&span->state) == BERTH__SPAN_LIVE && size_bytes)
        return berth__fail(BERTH_BAD_FREE, "%p holds %zu bytes, freed as %zu: a stale pointer?", p,
                           span->requested_bytes, size_bytes);
    if (span && atomic_load(&span->state) != BERTH__SPAN_LIVE)
        return berth__fail(BERTH_BAD_FREE, "%p was freed before (double free)", p);
    berth__pool_relock(pool);
    const berth__segment *segment = berth__arena_segment(&pool->arena, (uintptr_t)p);
    berth__span *around = segment ? berth__arena_around(segment, (uintptr_t)p) : NULL;
    bool inside = around && atomic_load(&around->state) == BERTH__SPAN_LIVE;
    uintptr_t start = inside ? around->address : 0;
    berth__pool_unlock(pool);
    if (inside)
        return berth__fail(BERTH_BAD_FREE, "%p lies inside the block at %p; free that one", p, (void *)start);
    return berth__fail(BERTH_BAD_FREE,
                       segment ? "%p is not a live block of this pool (freed before, or never one)"
                               : "%p is not memory of this pool",
                       p);
}

/* With the lock: the block is its user's no more. Until its free has come back to the lock, that keeps the
 * pool. */
static void leave_begin(berth__pool *pool)
{
    BERTH_DCHECK(!berth__pool_is_closing(pool) || pool->live_blocks > 0,
                 "[P4] a block that is freed was live");
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    pool->leaving++;
    pool->live_blocks -= berth__pool_is_closing(pool);
}

/* With the lock, which is given back. */
static void leave_end(berth__pool *pool)
{
    BERTH_DCHECK(pool->leaving > 0, "[P4] a free comes back once");
    pool->leaving--;
    bool over = berth__pool_is_over(pool);
    berth__pool_unlock(pool);
    if (over)
        berth__pool_finish(pool);
}

static berth_status deallocate_slow(berth__pool *pool, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__pool_lock(pool);
    const berth__segment *segment = berth__arena_segment(&pool->arena, (uintptr_t)p);
    berth__span *span = segment ? berth__arena_at(segment, (uintptr_t)p) : NULL;
    berth_status status = BERTH_OK;
    if (!span || !take_from_user(span, size_bytes)) {
        berth__pool_unlock(pool);
        return bad_free(pool, p, span, size_bytes);
    }
    if (stream)
        status = berth__pool_add_use(pool, span, stream);
    if (status) {
        atomic_store(&span->state, BERTH__SPAN_LIVE);
        berth__pool_unlock(pool);
        return status;
    }
    leave_begin(pool);
    BERTH_DCHECK(!span->index, "[A1] what is in use is in no index");
    berth__quota_give(&pool->quota, span->size_bytes);
    if (span->use_count != 0)
        berth__pool_wait_for(pool, span);
    else
        berth__pool_put(pool, span);
    berth__pool_settle(pool);
    leave_end(pool);
    return BERTH_OK;
}

/* Puts a live block into the thread's cache, if that has room; else nothing happens. Inside; when it has been left the block no longer keeps the pool. */
static inline __attribute__((always_inline)) bool put_own(struct inside in, berth__tcached block,
                                                          size_t freed)
{
    if (BERTH_UNLIKELY(!berth__tcache_has_room(in.tcache, freed)))
        return false;
    berth__quota_give_at(in.slot, freed);
    berth__tcache_put(in.tcache, block, freed);
    return true;
}

/* With the lock, inside: makes room in the thread's cache: what is in the way goes back into the arena. One
 * block may be larger than all others together, so that there is no size from which on a pair costs more;
 * but a soft limit is one. */
static bool empty_tcache_for(berth__pool *pool, berth__tcache *tcache, size_t freed)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] what the arena holds changes under the lock");
    berth__span *out[BERTH__TCACHE_MOST];
    uint32_t count = berth__tcache_make_place(tcache, freed, out);
    berth__arena_expect_puts(out, count);
    for (uint32_t i = 0; i < count; i++)
        berth__pool_put(pool, out[i]);
    if (!berth__tcache_has_room(tcache, freed))
        berth__pool_empty_tcache(pool, tcache);
    if (tcache->most_bytes < freed && !pool->budget->soft_limit_bytes)
        tcache->most_bytes = freed;
    return berth__tcache_has_room(tcache, freed);
}

/* False: there is no thread cache, or the block is too large for it. */
static bool make_tcache_room(berth__pool *pool, struct inside *in, size_t freed)
{
    if (!tcache_own(pool, in) || !tcache_enter(pool, *in))
        return false;
    bool has_room = berth__tcache_has_room(in->tcache, freed);
    berth__slot_leave(in->slot);
    if (has_room)
        return true;
    if (freed > in->tcache->usual_bytes && pool->budget->soft_limit_bytes)
        return false;
    berth__pool_lock(pool);
    if (enter_locked(pool, *in)) {
        /* Asked again: somebody may have emptied the thread cache meanwhile. */
        has_room = berth__tcache_has_room(in->tcache, freed) || empty_tcache_for(pool, in->tcache, freed);
        berth__slot_leave(in->slot);
    }
    berth__pool_settle(pool);
    berth__pool_unlock(pool);
    return has_room;
}

/* A sound free of a block that no stream uses, past the fast path. */
static berth_status put_away(berth__pool *pool, berth__span *span, size_t size_bytes)
{
    struct inside in;
    berth__tcached block = {span->address, span};
    size_t freed = span->size_bytes;
    void *p = (void *)block.address;
    if (!make_tcache_room(pool, &in, freed) || !tcache_enter(pool, in))
        return deallocate_slow(pool, p, size_bytes, NULL);
    berth__pool_hide(pool, p, freed);
    bool put = put_own(in, block, freed);
    berth__slot_leave(in.slot);
    return put ? BERTH_OK : deallocate_slow(pool, p, size_bytes, NULL);
}

/* The live block at `p` in the reserved address space, NULL if there is none. */
static inline berth__span *find_live(const berth__pool *pool, uintptr_t p)
{
    berth__span *span = berth__segment_has(pool->main, p) ? berth__arena_at(pool->main, p) : NULL;
    return span && is_live_at(span, p) ? span : NULL;
}

/* The same in segments of their own, which come and go: with the lock. A live block stays while its user has it. */
static berth__span *find_live_in_segments(berth__pool *pool, uintptr_t p)
{
    berth__pool_relock(pool);
    const berth__segment *segment = berth__arena_segment(&pool->arena, p);
    berth__span *span = segment ? berth__arena_at(segment, p) : NULL;
    bool live = span && is_live_at(span, p);
    berth__pool_unlock(pool);
    return live ? span : NULL;
}

/* A pointer with a tag comes here, since the fast path does not find it, and what lies in segments. */
static __attribute__((noinline)) berth_status deallocate_general(berth__pool *pool, void *tagged,
                                                                 size_t size_bytes, berth_stream *stream)
{
    void *p = (char *)tagged - ((uintptr_t)tagged - berth__untag((uintptr_t)tagged));
    berth__span *span = stream ? NULL : find_live(pool, (uintptr_t)p);
    if (!span && !stream)
        span = find_live_in_segments(pool, (uintptr_t)p);
    if (!span || !is_size(span, size_bytes) || span->use_count != 0)
        return deallocate_slow(pool, p, size_bytes, stream);
    return put_away(pool, span, size_bytes);
}

/* The fast path: a block of the reserved address space that no stream uses, the thread's cache has room, and
 * no memory checker listens. What was allocated last is often freed next: looking there first, the processor
 * need not wait for the map. */
BERTH_HOT berth_status berth__pool_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__pool *pool = self;
    const berth__memo *memo = &berth__thread_memos.device_pool;
    struct inside in = {memo->slot, memo->value};
    if (BERTH_UNLIKELY(memo->key != pool->number || stream))
        return deallocate_general(pool, p, size_bytes, stream);
    berth__span *span = in.tcache->last;
    if (!is_live_at(span, (uintptr_t)p) && !(span = find_live(pool, (uintptr_t)p)))
        return deallocate_general(pool, p, size_bytes, NULL);
    if (BERTH_UNLIKELY(!is_size(span, size_bytes) || span->use_count != 0 ||
                       !berth__slot_enter_fast(&pool->quota.slots, in.slot)))
        return deallocate_general(pool, p, size_bytes, NULL);
    /* From what the caller said, which is right, sooner than from the record. */
    size_t freed = size_bytes ? rounded_size(size_bytes) : span->size_bytes;
    bool put = put_own(in, (berth__tcached){(uintptr_t)p, span}, freed);
    berth__slot_leave(in.slot);
    return BERTH_LIKELY(put) ? BERTH_OK : deallocate_general(pool, p, size_bytes, NULL);
}

uint64_t *berth__pool_word_of(void *self, const void *p, size_t *requested_bytes)
{
    berth__pool *pool = self;
    const berth__memo *memo = &berth__thread_memos.device_pool;
    const uintptr_t address = berth__untag((uintptr_t)p);
    berth__span *span = memo->key == pool->number ? ((berth__tcache *)memo->value)->last : &no_span;
    if (!is_live_at(span, address) && !(span = find_live(pool, address)) &&
        !(span = find_live_in_segments(pool, address)))
        return NULL;
    *requested_bytes = span->requested_bytes;
    return &span->word;
}

/* In place as long as the block stays the same size; the front moves others. */
berth_status berth__pool_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    (void)old_bytes, (void)request;
    berth__pool *pool = self;
    const uintptr_t address = berth__untag((uintptr_t)p);
    berth__pool_lock(pool);
    const berth__segment *segment = berth__arena_segment(&pool->arena, address);
    berth__span *span = segment ? berth__arena_at(segment, address) : NULL;
    bool live = span && atomic_load(&span->state) == BERTH__SPAN_LIVE;
    bool stays = live && span->size_bytes == rounded_size(new_bytes) &&
                 ((uintptr_t)p & (alignment - 1)) == 0 && !(request->flags & BERTH_ZEROED);
    if (stays) {
        berth__pool_hide(pool, p, span->size_bytes);
        berth__pool_reveal(pool, p, new_bytes);
        span->requested_bytes = new_bytes;
        BERTH_DCHECK(new_bytes <= span->size_bytes, "[A2] a block in place holds what is asked for");
        *out = p;
    }
    berth__pool_unlock(pool);
    return stays ? BERTH_OK : live ? BERTH_UNSUPPORTED : bad_free(pool, p, span, 0);
}

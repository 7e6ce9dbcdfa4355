/* Room for more memory: the two limits, memory on its way back to the device, and what is said when there is
 * no room. */
#include "host/host.h"

/* ---- Memory on its way back -------------------------------------------------------------------------- */

/* With the lock held. */
static void release_begin(host_cache *c, host_release *r)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] a release begins with the lock");
    r->number = ++c->releases;
    r->newer = NULL;
    r->older = c->newest_release;
    *(r->older ? &r->older->newer : &c->oldest_release) = r;
    c->newest_release = r;
}

/* With the lock held: the device has the memory; whoever waits for that may look again. */
static void release_end(host_cache *c, host_release *r)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] a release ends with the lock");
    BERTH_DCHECK((r->older ? r->older->newer : c->oldest_release) == r, "[H10] what ends is under way");
    *(r->older ? &r->older->newer : &c->oldest_release) = r->newer;
    *(r->newer ? &r->newer->older : &c->newest_release) = r->older;
    BERTH_DCHECK(r->keep_bytes <= r->bytes && r->bytes <= atomic_load(&c->reserved),
                 "[H10] memory on its way back is reserved until the driver has it");
    uint64_t gone = r->bytes - r->keep_bytes;
    if (r->refused_bytes)
        gone = r->bytes - r->refused_bytes + (r->claim_bytes - r->keep_bytes);
    atomic_fetch_sub_explicit(&c->reserved, gone, memory_order_relaxed);
    while (r->segments) {
        host_segment *s = r->segments;
        r->segments = s->next;
        berth__host_give_segment(c, s);
    }
    pthread_cond_broadcast(&c->release_ended);
}

static void destroy_events(host_segment *s)
{
    for (uint32_t i = 0; i < s->blocks; i++)
        berth__use_drop_event(&s->first[i].first_use);
}

/* Gives the segments of a release that has begun back to the device. */
static void release_run(host_cache *c, host_release *r)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    host_segment *refused = NULL, **link = &r->segments;
    while (*link) {
        host_segment *s = *link;
        destroy_events(s);
        berth__annotate_defined(berth__host_base(s), s->bytes);
        berth_status status = berth__upstream_give(&c->upstream, berth__host_base(s), s->bytes);
        if (!status || status == BERTH_DEVICE_LOST) { /* that is gone with the device */
            atomic_fetch_add_explicit(&c->device_releases, 1, memory_order_relaxed);
            link = &s->next;
            continue;
        }
        berth__log(BERTH_LOG_WARNING, "%s: the device did not take %zu bytes back, they stay reserved: %s",
                   c->name, s->bytes, berth_last_error()->message);
        *link = s->next;
        s->next = refused;
        refused = s;
        r->refused_bytes += s->bytes;
    }
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    release_end(c, r);
    while (refused) {
        host_segment *s = refused;
        refused = s->next;
        s->next = c->unreleased;
        c->unreleased = s;
    }
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* With the lock held, and the world going on. Waits for those that have begun by now, not for later ones. */
static bool await_locked(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] releases are waited for with the lock");
    uint64_t last = c->releases;
    bool waited = false;
    while (c->oldest_release && c->oldest_release->number <= last) {
        pthread_cond_wait(&c->release_ended, &c->lock);
        waited = true;
    }
    return waited;
}

bool berth__host_await_releases(host_cache *c)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    bool waited = await_locked(c);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    return waited;
}

/* With the lock held: what the device did not take before goes back with the rest. */
static void take_unreleased(host_cache *c, host_release *r)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are taken with the lock");
    while (c->unreleased) {
        host_segment *s = c->unreleased;
        c->unreleased = s->next;
        r->bytes += s->bytes;
        s->next = r->segments;
        r->segments = s;
    }
}

size_t berth__host_release_idle(host_cache *c, uint64_t keep_bytes)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    host_release r = {0};
    berth__host_stop(c);
    berth__host_flush_thread_caches(c);
    take_unreleased(c, &r);
    berth__host_take_idle_segments(c, keep_bytes, UINT64_MAX, &r);
    if (r.segments)
        release_begin(c, &r);
    berth__host_resume(c);
    if (r.segments)
        release_run(c, &r);
    return r.bytes - r.refused_bytes;
}

static void release_rest(host_cache *c)
{
    host_release r = {0};
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    take_unreleased(c, &r);
    while (c->segments) {
        host_segment *s = c->segments;
        berth__host_unlist(c, s);
        r.bytes += s->bytes;
        s->next = r.segments;
        r.segments = s;
    }
    release_begin(c, &r);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    release_run(c, &r);
}

void berth__host_release_all(host_cache *c)
{
    release_rest(c);
    if (c->unreleased) /* once more: a driver may have been short of something */
        release_rest(c);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    while (c->unreleased) { /* it was said that the device keeps them */
        host_segment *s = c->unreleased;
        c->unreleased = s->next;
        atomic_fetch_sub_explicit(&c->reserved, s->bytes, memory_order_relaxed);
        berth__host_give_segment(c, s);
    }
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* ---- The soft limit ---------------------------------------------------------------------------------- */

bool berth__host_exceeds_soft_limit(host_cache *c)
{
    return berth__host_is(c, BERTH__MARK_SOFT_LIMIT) &&
           atomic_load_explicit(&c->idle, memory_order_relaxed) >
               atomic_load_explicit(&c->soft_limit, memory_order_relaxed) &&
           atomic_load_explicit(&c->releasable, memory_order_relaxed) != 0;
}

void berth__host_keep_soft_limit(host_cache *c)
{
    if (berth__host_exceeds_soft_limit(c))
        berth__host_release_idle(c, atomic_load_explicit(&c->soft_limit, memory_order_relaxed));
}

/* ---- The hard limit ---------------------------------------------------------------------------------- */

/* With the lock held: bytes that may still be taken from the device. */
static uint64_t room_left(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] room is claimed with the lock");
    uint64_t limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    uint64_t reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    return limit == 0 ? UINT64_MAX : reserved < limit ? limit - reserved : 0;
}

/* The largest run of at most `most` blocks that fits into `room` bytes; 0 if not even one does. */
static uint32_t fitting_run(const host_cache *c, uint32_t bin, uint32_t most, uint64_t room)
{
    uint32_t blocks = most;
    while (blocks && berth__host_run_bytes(c, bin, blocks) > room)
        blocks /= 2;
    return blocks;
}

/* With the lock held. [M4] */
static void claim_bytes(host_cache *c, uint64_t bytes)
{
    (void)BERTH_ASSERT(bytes <= room_left(c), "[M4] a limit is never exceeded");
    atomic_fetch_add_explicit(&c->reserved, bytes, memory_order_relaxed);
}

static bool claim_whole_run(host_cache *c, uint32_t bin, uint32_t blocks)
{
    uint64_t bytes = berth__host_run_bytes(c, bin, blocks);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    bool fits = bytes <= room_left(c);
    if (fits)
        claim_bytes(c, bytes);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    return fits;
}

void berth__host_unclaim(host_cache *c, uint64_t bytes)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    BERTH_DCHECK(atomic_load(&c->reserved) >= bytes, "[M4] what is given up was claimed");
    atomic_fetch_sub_explicit(&c->reserved, bytes, memory_order_relaxed);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* While stopped: takes as many idle segments as a run lacks room for, and claims what that leads to. What they
 * take up becomes this thread's in the moment the device has it, so that no other thread gets ahead. */
static uint32_t claim_with_release(host_cache *c, uint32_t bin, uint32_t most, host_release *r)
{
    uint64_t limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    uint64_t reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    uint64_t then = reserved + berth__host_run_bytes(c, bin, most);
    berth__host_take_idle_segments(c, 0, then > limit ? then - limit : 0, r);
    BERTH_DCHECK(r->bytes <= reserved, "[H10] memory on its way back is reserved");
    uint64_t left = reserved - r->bytes;
    uint32_t blocks = fitting_run(c, bin, most, left < limit ? limit - left : 0);
    uint64_t bytes = blocks ? berth__host_run_bytes(c, bin, blocks) : 0;
    r->keep_bytes = bytes < r->bytes ? bytes : r->bytes;
    r->claim_bytes = bytes;
    claim_bytes(c, bytes - r->keep_bytes);
    if (r->segments)
        release_begin(c, r);
    return blocks;
}

berth_status berth__host_claim(host_cache *c, const host_wish *w, uint32_t most_blocks, uint32_t *blocks,
                               host_block **found)
{
    *found = NULL;
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    for (;;) {
        *blocks = most_blocks;
        if (claim_whole_run(c, w->bin, most_blocks))
            return BERTH_OK;
        berth__host_collect(c, true);
        host_release r = {0};
        bool waited = false;
        berth__host_stop(c);
        berth__host_flush_thread_caches(c);
        *found = berth__host_take_aligned(c, w->bin, w->alignment);
        if (*found) {
            atomic_store_explicit(&(*found)->label, NULL, memory_order_relaxed);
            atomic_store_explicit(&(*found)->state, HOST_LEAVING, memory_order_relaxed);
        } else
            *blocks = claim_with_release(c, w->bin, most_blocks, &r);
        berth__slots_resume(&c->quota.slots);
        if (!*found && *blocks == 0 && !r.segments)
            waited = await_locked(c);
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
        if (r.segments) {
            release_run(c, &r);
            berth__slots_count_retry(&c->quota.slots);
            if (r.refused_bytes)
                *blocks = 0; /* the room that was claimed is not there */
        }
        if (*found || *blocks)
            return BERTH_OK;
        if (r.bytes == 0 && !waited)
            return berth__host_over_budget(c, w);
    }
}

/* What the host cache tells about itself: statistics, figures, the snapshot. */
#include <string.h>

#include "host/host.h"

/* ---- Statistics -------------------------------------------------------------------------------------- */

/* The largest idle block, and all idle bytes. */
static void read_idle(host_cache *c, uint64_t *largest, uint64_t *sum)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] blocks are looked at while stopped");
    *largest = *sum = 0;
    uint32_t count = atomic_load_explicit(&c->block_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        host_block *b = berth__host_block_at(c, i);
        if (atomic_load_explicit(&b->state, memory_order_acquire) != HOST_IDLE)
            continue;
        *sum += b->size;
        if (b->size > *largest)
            *largest = b->size;
    }
}

/* What one thread has counted by class. */
typedef struct counts {
    const host_cache *cache;
    berth_stats *out;
} counts;

static void add_counts(void *context, void *beside)
{
    const counts *to = context;
    const host_thread_cache *tcache = beside;
    for (uint32_t bin = 0; bin < to->cache->classes.count; bin++) {
        uint64_t size = berth__class_bytes(&to->cache->classes, bin);
        if (tcache->bins[bin].allocations == 0)
            continue;
        to->out->num_allocs += tcache->bins[bin].allocations;
        to->out->total_bytes += tcache->bins[bin].allocations * size;
        if (size > to->out->max_alloc_size)
            to->out->max_alloc_size = size;
    }
}

static void clear_counts(void *context, void *beside)
{
    const host_cache *c = context;
    host_thread_cache *tcache = beside;
    for (uint32_t bin = 0; bin < c->classes.count; bin++)
        tcache->bins[bin].allocations = 0;
}

static void add_parked_marks(void *context, void *beside)
{
    *(uint64_t *)context += ((const host_thread_cache *)beside)->parked_marks;
}

berth_status berth__host_stats(void *self, berth_stats *out)
{
    host_cache *c = self;
    uint64_t idle;
    berth__quota_read(&c->quota, out);
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, add_counts, &(counts){c, out});
    read_idle(c, &out->largest_free_bytes, &idle);
    berth__host_resume(c);
    out->bytes_limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    out->bytes_reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    out->max_bytes_reserved = atomic_load_explicit(&c->max_reserved, memory_order_relaxed);
    out->fragmentation = idle ? 1.0 - (double)out->largest_free_bytes / (double)idle : 0.0;
    return BERTH_OK;
}

berth_status berth__host_clear_stats(void *self)
{
    host_cache *c = self;
    berth__quota_clear(&c->quota);
    berth__slots_clear_counts(&c->quota.slots);
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, clear_counts, c);
    berth__host_resume(c);
    atomic_store_explicit(&c->max_reserved, atomic_load_explicit(&c->reserved, memory_order_relaxed),
                          memory_order_relaxed);
    return BERTH_OK;
}

berth_status berth_host_cache_figures_get(berth_allocator *cache, berth_host_cache_figures *out)
{
    if (!berth__allocator_is(cache, berth__host_destroy) || !out ||
        out->struct_size < sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT, "figures need a host cache, and struct_size set");
    host_cache *c = cache->self;
    berth_host_cache_figures f = {.struct_size = out->struct_size};
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, add_parked_marks, &f.events_recorded);
    for (host_segment *s = c->segments; s; s = s->next) {
        f.idle_bytes += s->bytes - s->stride * s->blocks; /* what is left over at the end of a short run */
        for (uint32_t i = 0; i < s->blocks; i++) {
            uint32_t state = atomic_load_explicit(&s->first[i].state, memory_order_acquire);
            bool live = state == HOST_LIVE || state == HOST_LIVE_BUSY, idle = state == HOST_IDLE;
            f.live_blocks += live;
            f.idle_blocks += idle;
            f.waiting_blocks += !live && !idle;
            *(live ? &f.live_bytes : idle ? &f.idle_bytes : &f.waiting_bytes) += s->stride;
        }
    }
    BERTH_DCHECK(f.live_bytes + f.waiting_bytes + f.idle_bytes <= atomic_load(&c->reserved),
                 "[H4] live, waiting and idle bytes came from the device");
    f.events_recorded += berth__streams_events_recorded(&c->streams);
    berth__host_resume(c);
    f.device_allocations = atomic_load_explicit(&c->device_allocations, memory_order_relaxed);
    f.device_releases = atomic_load_explicit(&c->device_releases, memory_order_relaxed);
    f.events_created = atomic_load_explicit(&c->streams.events_created, memory_order_relaxed);
    f.streams = atomic_load_explicit(&c->streams.live, memory_order_relaxed);
    memcpy(out, &f, out->struct_size < sizeof f ? out->struct_size : sizeof f);
    return BERTH_OK;
}

/* ---- Snapshot ---------------------------------------------------------------------------------------- */

static berth_block figures_describe(const host_block *b, uint64_t now)
{
    uint32_t state = atomic_load_explicit(&b->state, memory_order_acquire);
    uint64_t since = atomic_load_explicit(&b->since_ns, memory_order_relaxed);
    berth_block out = {.struct_size = sizeof out,
                       .address = berth__host_address(b),
                       .size_bytes = b->size,
                       .segment = b->segment->number,
                       .age_ns = since && now > since ? now - since : 0,
                       .state = BERTH_BLOCK_IDLE};
    if (state == HOST_IDLE)
        return out;
    out.state = state == HOST_LIVE || state == HOST_LIVE_BUSY ? BERTH_BLOCK_LIVE : BERTH_BLOCK_WAITING;
    out.requested_bytes = atomic_load_explicit(&b->requested, memory_order_relaxed);
    out.allocation_id = berth__host_handle(b);
    out.label = atomic_load_explicit(&b->label, memory_order_relaxed);
    return out;
}

/* With the lock held: copies at most `room` descriptions; answers how many blocks there are. */
static size_t copy_blocks(host_cache *c, berth_block *list, size_t room, uint64_t now)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] blocks are listed with the lock");
    size_t count = 0;
    for (host_segment *s = c->segments; s; s = s->next)
        for (uint32_t i = 0; i < s->blocks; i++, count++)
            if (count < room)
                list[count] = figures_describe(&s->first[i], now);
    return count;
}

berth_status berth__host_snapshot(void *self, berth_block_fn visit, void *context)
{
    host_cache *c = self;
    berth_block *list = NULL;
    uint64_t now = berth__host_now(c);
    for (size_t room = 0, count;; room = count + count / 8 + 16) {
        berth__heap_free(list);
        list = berth__heap_zalloc(room, sizeof *list);
        if (!list)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: no memory for a snapshot", c->name);
        berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
        count = copy_blocks(c, list, room, now);
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
        if (count > room)
            continue;
        for (size_t i = 0; i < count && visit(context, &list[i]); i++)
            ;
        berth__heap_free(list);
        return BERTH_OK;
    }
}

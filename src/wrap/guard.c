/* The guard: red zones around every block, and freed blocks kept back under a pattern.
 *
 *      raw (from the inner allocator)
 *      |        | red zone |<---- block ---->| red zone |
 *      |<---- front ------>|<---- size ----->|<- back ->|
 *
 * What is known of a block is kept in maps and not beside it, so that no stray write can change it, and a
 * free of any pointer whatsoever can be answered without reading at it [W3]. A block lives in the live map,
 * then in the quarantine: a queue, and a map in which a second free finds it. */
#include "wrap/guard.h"

#include <string.h>

#include "base/annotate.h"
#include "core/allocator.h"
#include "count/meter.h"
#include "wrap/noted.h"
#include "wrap/on_failure.h"

enum { ZONE_BYTE = 0xfb, FREED_BYTE = 0xdf, REDZONE_MAX = 64 << 10, GRANULE = 16 };

/* The queue's link is apart from what the maps copy out under their own locks. */
struct kept {
    berth__guarded block;
    struct kept *newer; /* guard: queue_lock */
};

struct guard {
    berth__wrapper base;
    berth_guard_options options;
    berth__meter meter; /* in the callers' bytes */
    berth__block_map live;
    berth__block_map kept; /* the quarantine by address */
    _Atomic uint64_t next_id;
    _Atomic uint64_t holders; /* 1 for the handle, 1 for each live block */
    berth__spin queue_lock;
    struct kept *oldest; /* guard: queue_lock */
    struct kept *newest; /* guard: queue_lock */
    size_t kept_bytes;   /* guard: queue_lock */
};

/* ---- Zones --------------------------------------------------------------------------------------- */

static char *block_of(const berth__guarded *block)
{
    return (char *)block->entry.address;
}

static size_t raw_bytes(const berth__guarded *block)
{
    return (size_t)block->front_bytes + (size_t)block->size_bytes + block->back_bytes;
}

static char *raw_of(const berth__guarded *block)
{
    return block_of(block) - block->front_bytes;
}

/* Only this much of the front is watched: all of it may be a page where the alignment is. */
static size_t front_zone(const struct guard *g, const berth__guarded *block)
{
    size_t zone = berth__align_up(g->options.redzone_bytes, GRANULE);
    return zone < block->front_bytes ? zone : block->front_bytes;
}

static void fill_zones(const struct guard *g, const berth__guarded *block)
{
    size_t front = front_zone(g, block);
    memset(block_of(block) - front, ZONE_BYTE, front);
    memset(block_of(block) + block->size_bytes, ZONE_BYTE, block->back_bytes);
}

/* The first of `size_bytes` that is not `value`; SIZE_MAX: all are. */
static size_t first_change(const char *from, size_t size_bytes, unsigned char value)
{
    if (size_bytes == 0 || ((unsigned char)from[0] == value && memcmp(from, from + 1, size_bytes - 1) == 0))
        return SIZE_MAX;
    size_t at = 0;
    while ((unsigned char)from[at] == value)
        at++;
    return at;
}

/* Reports each zone that changed and mends it, so that it is told once. The raw block may be read. */
static unsigned check_zones(const struct guard *g, const berth__guarded *block)
{
    unsigned faults = 0;
    size_t front = front_zone(g, block), at = first_change(block_of(block) - front, front, ZONE_BYTE);
    if (BERTH_UNLIKELY(at != SIZE_MAX)) {
        faults++;
        berth__guard_tell(&g->options, BERTH_GUARD_UNDERFLOW, block, (int64_t)at - (int64_t)front);
    }
    at = first_change(block_of(block) + block->size_bytes, block->back_bytes, ZONE_BYTE);
    if (BERTH_UNLIKELY(at != SIZE_MAX)) {
        faults++;
        berth__guard_tell(&g->options, BERTH_GUARD_OVERFLOW, block, (int64_t)(block->size_bytes + at));
    }
    if (BERTH_UNLIKELY(faults))
        fill_zones(g, block);
    return faults;
}

static unsigned char freed_byte(const struct guard *g)
{
    return g->options.zero_on_free ? 0 : FREED_BYTE;
}

static unsigned check_freed(const struct guard *g, const berth__guarded *block)
{
    size_t size = (size_t)block->size_bytes, at = first_change(block_of(block), size, freed_byte(g));
    unsigned faults = check_zones(g, block);
    if (BERTH_LIKELY(at == SIZE_MAX))
        return faults;
    berth__guard_tell(&g->options, BERTH_GUARD_WRITE_AFTER_FREE, block, (int64_t)at);
    memset(block_of(block), freed_byte(g), size);
    return faults + 1;
}

static void guard_hide(const berth__guarded *block)
{
    berth__annotate_noaccess(raw_of(block), raw_bytes(block));
}

static void guard_unhide(const berth__guarded *block)
{
    berth__annotate_defined(raw_of(block), raw_bytes(block));
}

/* ---- Life and death of the guard ----------------------------------------------------------------- */

static size_t guard_drain(struct guard *g, size_t keep_bytes);

static void guard_finish(struct guard *g)
{
    guard_drain(g, 0);
    berth__block_map_finish(&g->live);
    berth__block_map_finish(&g->kept);
    berth__meter_finish(&g->meter);
    berth__wrapper_finish(&g->base);
    berth__heap_free(g);
}

static void drop_holder(struct guard *g)
{
    if (atomic_fetch_sub_explicit(&g->holders, 1, memory_order_acq_rel) == 1)
        guard_finish(g);
}

/* ---- The quarantine ------------------------------------------------------------------------------ */

static size_t kept_size(const berth__guarded *block)
{
    return raw_bytes(block) + sizeof(struct kept); /* many tiny blocks are bounded too */
}

/* The oldest while there is more than `keep_bytes`, out of the queue; NULL when there is not. */
static berth__guarded *pop_above(struct guard *g, size_t keep_bytes)
{
    berth__spin_lock(&g->queue_lock, BERTH__RANK_WRAP);
    struct kept *oldest = g->kept_bytes > keep_bytes ? g->oldest : NULL;
    if (oldest) {
        g->oldest = oldest->newer;
        if (!g->oldest)
            g->newest = NULL;
        g->kept_bytes -= kept_size(&oldest->block);
    }
    berth__spin_unlock(&g->queue_lock, BERTH__RANK_WRAP);
    return oldest ? &oldest->block : NULL;
}

static void guard_push(struct guard *g, berth__guarded *block)
{
    struct kept *newest = (struct kept *)block;
    berth__spin_lock(&g->queue_lock, BERTH__RANK_WRAP);
    newest->newer = NULL;
    *(g->newest ? &g->newest->newer : &g->oldest) = newest;
    g->newest = newest;
    g->kept_bytes += kept_size(block);
    berth__spin_unlock(&g->queue_lock, BERTH__RANK_WRAP);
}

/* Of a block whose free was answered already: nobody could free it again. */
static void give_back(struct guard *g, berth__guarded *block)
{
    if (!berth__free_is_done(berth__deallocate(g->base.inner, raw_of(block), raw_bytes(block), NULL)))
        berth__log(BERTH_LOG_ERROR, "a freed block of %llu bytes was not taken back and is lost: %s",
                   (unsigned long long)block->size_bytes, berth_last_error()->message);
    berth__heap_free(block);
}

/* Blocks above `keep_bytes` leave the quarantine; returns what they took. */
static size_t guard_drain(struct guard *g, size_t keep_bytes)
{
    size_t released = 0;
    berth__guarded *block;
    while ((block = pop_above(g, keep_bytes)) != NULL) {
        /* Out of the map first: once the inner allocator has it, its address may be a new block's. */
        berth__block_map_take(&g->kept, block_of(block));
        guard_unhide(block);
        check_freed(g, block);
        released += raw_bytes(block);
        give_back(g, block);
    }
    return released;
}

/* ---- Allocating and freeing ---------------------------------------------------------------------- */

/* The stream that the block is for uses it, as if that had been recorded; who follows no streams need not know. */
static berth_status note_stream(struct guard *g, void *raw, size_t size, berth_stream *stream)
{
    berth_allocator *inner = g->base.inner;
    if (!inner->follows_streams)
        return BERTH_OK;
    berth_status status = inner->ops.record_use(inner->self, raw, stream);
    if (!status || status == BERTH_UNSUPPORTED)
        return BERTH_OK;
    (void)berth__deallocate(inner, raw, size, NULL);
    return status;
}

/* The host writes the zones at once: it asks for the memory itself, since what an allocator gives for a stream that stream
 * may still be working on, or be about to fill with zero. [W4] */
static berth_status allocate_raw(struct guard *g, size_t size, size_t alignment, const berth_request *request,
                                 void **raw)
{
    berth_request own = *request;
    own.stream = NULL;
    berth_status status = berth__allocate(g->base.inner, size, alignment, &own, raw);
    /* What the quarantine held back may be just what is missing. */
    if (BERTH_UNLIKELY(status) && guard_drain(g, 0) != 0)
        status = berth__allocate(g->base.inner, size, alignment, &own, raw);
    return status || BERTH_LIKELY(!request->stream) ? status : note_stream(g, *raw, size, request->stream);
}

static berth_status no_memory(struct guard *g, size_t size_bytes)
{
    berth__slots_count_failure(&g->meter.slots);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for what a guard keeps of a block of %zu bytes",
                       size_bytes);
}

static berth_status guard_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct guard *g = self;
    size_t front = berth__align_up(g->options.redzone_bytes, alignment > GRANULE ? alignment : GRANULE);
    size_t behind = berth__align_up(size_bytes + g->options.redzone_bytes, GRANULE);
    berth__guarded *block = berth__heap_alloc(sizeof(struct kept));
    if (BERTH_UNLIKELY(!block))
        return no_memory(g, size_bytes);
    void *raw = NULL;
    berth_status status =
        allocate_raw(g, front + behind, alignment > GRANULE ? alignment : GRANULE, request, &raw);
    if (BERTH_UNLIKELY(status)) {
        berth__slots_count_failure(&g->meter.slots);
        berth__heap_free(block);
        return status;
    }
    *block = (berth__guarded){
        .entry.address = (uintptr_t)raw + front,
        .size_bytes = size_bytes,
        .id = atomic_fetch_add_explicit(&g->next_id, 1, memory_order_relaxed),
        .label = berth__request_label(request),
        .allocated_by = berth__stack_here(),
        .front_bytes = (uint32_t)front,
        .back_bytes = (uint32_t)(behind - size_bytes),
        .used_by_stream = request->stream != NULL,
    };
    void *address = block_of(block);
    fill_zones(g, block);
    guard_hide(block);
    if (request->flags & BERTH_ZEROED)
        berth__annotate_defined(address, size_bytes);
    else
        berth__annotate_undefined(address, size_bytes);
    atomic_fetch_add_explicit(&g->holders, 1, memory_order_relaxed);
    (void)BERTH_ASSERT(berth__block_map_put(&g->live, &block->entry), "a prepared map takes every block");
    berth__meter_take(&g->meter, size_bytes);
    *out = address;
    return BERTH_OK;
}

static berth_status refuse_free(struct guard *g, const void *p)
{
    berth__guarded kept;
    if (berth__block_map_read(&g->kept, p, &kept, sizeof kept)) {
        berth__guard_tell(&g->options, BERTH_GUARD_DOUBLE_FREE, &kept, 0);
        return berth__fail(BERTH_BAD_FREE, "%p (%llu bytes, label %s) was freed already", p,
                           (unsigned long long)kept.size_bytes, kept.label ? kept.label : "none");
    }
    berth__guard_tell_foreign(&g->options, p);
    return berth__fail(BERTH_BAD_FREE, "%p is not a block of this guard, or was freed long ago", p);
}

/* [W4] work that is still under way may read and write the block: nothing is filled, and the inner allocator
 * decides when it is free. Secrets are wiped in the stream's order, and that is waited for, since an inner
 * allocator that knows no streams gives the memory away at once. */
static berth_status free_in_use(struct guard *g, const berth__guarded *block, berth_stream *stream,
                                berth_status *wiped)
{
    berth_allocator *inner = g->base.inner;
    if (g->options.zero_on_free)
        *wiped = berth_zero(inner->ops.device(inner->self), block_of(block), (size_t)block->size_bytes,
                            stream, true);
    /* Not wiped for want of something: it stays the caller's, who may try again. */
    if (*wiped && (berth__is_want_of_memory(*wiped) || *wiped == BERTH_DEVICE_ERROR))
        return *wiped;
    return berth__deallocate(inner, raw_of(block), raw_bytes(block), stream);
}

/* What the inner allocator refuses stays live, unless it says that there is no such block. */
static bool stays_live(struct guard *g, berth__guarded *block, berth_status status)
{
    if (berth__free_is_done(status) || status == BERTH_BAD_FREE)
        return false;
    guard_hide(block);
    berth__annotate_defined(block_of(block), (size_t)block->size_bytes);
    block->freed_by = NULL;
    (void)BERTH_ASSERT(berth__block_map_put(&g->live, &block->entry), "a prepared map takes every block");
    return true;
}

static void guard_keep(struct guard *g, berth__guarded *block)
{
    memset(block_of(block), freed_byte(g), (size_t)block->size_bytes);
    /* In the map before the queue: from there another thread may take it out at once. */
    if (kept_size(block) > g->options.quarantine_bytes) {
        give_back(g, block);
        return;
    }
    (void)BERTH_ASSERT(berth__block_map_put(&g->kept, &block->entry), "a prepared map takes every block");
    guard_hide(block);
    guard_push(g, block);
    guard_drain(g, g->options.quarantine_bytes);
}

static berth_status guard_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes;
    struct guard *g = self;
    berth__guarded *block = (berth__guarded *)(void *)berth__block_map_take(&g->live, p);
    if (BERTH_UNLIKELY(!block))
        return refuse_free(g, p);
    block->freed_by = berth__stack_here();
    guard_unhide(block);
    uint64_t size = block->size_bytes;
    const char *label = block->label;
    unsigned faults = check_zones(g, block);
    berth_status status = BERTH_OK, wiped = BERTH_OK;
    if (BERTH_UNLIKELY(stream || block->used_by_stream)) {
        status = free_in_use(g, block, stream, &wiped);
        if (stays_live(g, block, status))
            return status;
        berth__heap_free(block);
    } else {
        guard_keep(g, block);
    }
    berth__meter_give(&g->meter, size);
    drop_holder(g); /* `g` may be gone */
    if (BERTH_UNLIKELY(faults))
        return berth__fail(BERTH_CORRUPT, "bytes around %p (%llu bytes, label %s) were overwritten", p,
                           (unsigned long long)size, label ? label : "none");
    return status ? status : wiped;
}

/* ---- Questions ----------------------------------------------------------------------------------- */

/* The live block that `p` lies in. An inner pointer is found by looking at all of them. */
static bool find_live(struct guard *g, const void *p, berth__guarded *found)
{
    if (berth__block_map_read(&g->live, p, found, sizeof *found))
        return true;
    void *copies = NULL;
    size_t count = 0;
    if (!berth__block_map_copy(&g->live, sizeof *found, &copies, &count))
        return false;
    const berth__guarded *blocks = copies;
    bool there = false;
    for (size_t i = 0; i < count && !there; i++) {
        there = berth__distance(p, blocks[i].entry.address) < blocks[i].size_bytes;
        if (there)
            *found = blocks[i];
    }
    berth__heap_free(copies);
    return there;
}

static berth_status guard_owns(void *self, const void *p)
{
    berth__guarded block;
    return find_live(self, p, &block) ? BERTH_OK : BERTH_NOT_FOUND;
}

static berth_status guard_record_use(void *self, const void *p, berth_stream *stream)
{
    struct guard *g = self;
    berth__guarded found;
    if (!find_live(g, p, &found))
        return berth__fail(BERTH_NOT_FOUND, "%p does not lie in a live block of this guard", p);
    berth_allocator *inner = g->base.inner;
    berth_status status = inner->ops.record_use(inner->self, p, stream);
    if (status)
        return status;
    /* In its place: a block that is taken out for a moment is not there for others. */
    const bool used = true;
    if (!berth__block_map_write(&g->live, block_of(&found), offsetof(berth__guarded, used_by_stream), &used,
                                sizeof used))
        return berth__fail(BERTH_NOT_FOUND, "%p was freed meanwhile", p);
    return BERTH_OK;
}

static berth_status read_live(struct guard *g, const void *p, berth__guarded *block)
{
    if (berth__block_map_read(&g->live, p, block, sizeof *block))
        return BERTH_OK;
    return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of this guard", p);
}

static berth_status guard_size(void *self, const void *p, size_t *out)
{
    berth__guarded block;
    berth_status status = read_live(self, p, &block);
    if (!status)
        *out = (size_t)block.size_bytes;
    return status;
}

static berth_status guard_allocation_id(void *self, const void *p, uint64_t *out)
{
    berth__guarded block;
    berth_status status = read_live(self, p, &block);
    if (!status)
        *out = block.id;
    return status;
}

static bool guard_tracks_sizes(void *self)
{
    (void)self;
    return true;
}

static berth_status guard_stats(void *self, berth_stats *out)
{
    struct guard *g = self;
    berth_allocator *inner = g->base.inner;
    berth_stats below = {.struct_size = sizeof below};
    if (inner->ops.stats(inner->self, &below) == BERTH_OK) {
        out->bytes_reserved = below.bytes_in_use; /* with zones and quarantine */
        out->max_bytes_reserved = below.max_bytes_in_use;
        out->largest_free_bytes = below.largest_free_bytes;
        out->fragmentation = below.fragmentation;
    }
    berth__meter_read(&g->meter, out);
    out->bytes_limit = below.bytes_limit;
    out->num_retries = below.num_retries;
    return BERTH_OK;
}

static berth_status guard_clear_stats(void *self)
{
    struct guard *g = self;
    berth__meter_clear(&g->meter);
    berth_allocator *inner = g->base.inner;
    berth_status status = inner->ops.clear_stats(inner->self);
    return status == BERTH_UNSUPPORTED ? BERTH_OK : status;
}

static berth_status guard_trim(void *self, size_t keep_bytes, size_t *released)
{
    struct guard *g = self;
    berth_allocator *inner = g->base.inner;
    guard_drain(g, 0); /* what goes back to the inner allocator is released only if that gives it on */
    return inner->ops.trim(inner->self, keep_bytes, released);
}

static bool guard_show(const berth__guarded *blocks, size_t count, berth_block_state state,
                       berth_block_fn visit, void *context)
{
    for (size_t i = 0; i < count; i++) {
        const berth__guarded *from = &blocks[i];
        berth_block block = {
            .struct_size = sizeof block,
            .address = block_of(from),
            .size_bytes = from->size_bytes,
            .requested_bytes = state == BERTH_BLOCK_LIVE ? from->size_bytes : 0,
            .allocation_id = from->id,
            .label = from->label,
            .state = state,
        };
        if (!visit(context, &block))
            return false;
    }
    return true;
}

static berth_status guard_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct guard *g = self;
    void *live = NULL, *kept = NULL;
    size_t live_count = 0, kept_count = 0;
    berth_status status = BERTH_OK;
    if (berth__block_map_copy(&g->live, sizeof(berth__guarded), &live, &live_count) &&
        berth__block_map_copy(&g->kept, sizeof(berth__guarded), &kept, &kept_count)) {
        if (guard_show(live, live_count, BERTH_BLOCK_LIVE, visit, context))
            guard_show(kept, kept_count, BERTH_BLOCK_IDLE, visit, context);
    } else {
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a snapshot of a guard's blocks");
    }
    berth__heap_free(live);
    berth__heap_free(kept);
    return status;
}

/* ---- Checking, creating, destroying -------------------------------------------------------------- */

static void guard_destroy(void *self)
{
    struct guard *g = self;
    guard_drain(g, 0); /* now, though live blocks may hold the guard for long */
    drop_holder(g);
}

static size_t check_all(struct guard *g, const berth__guarded *blocks, size_t count, bool freed)
{
    size_t faults = 0;
    for (size_t i = 0; i < count; i++) {
        const berth__guarded *block = &blocks[i];
        guard_unhide(block);
        faults += freed ? check_freed(g, block) : check_zones(g, block);
        guard_hide(block);
        if (!freed)
            berth__annotate_defined(block_of(block), (size_t)block->size_bytes);
    }
    return faults;
}

berth_status berth_guard_check(berth_allocator *guard, size_t *faults)
{
    if (faults)
        *faults = 0;
    if (!berth__allocator_is(guard, guard_destroy))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "berth_guard_check needs an allocator of berth_guard_create");
    struct guard *g = guard->self;
    void *live = NULL, *kept = NULL;
    size_t live_count = 0, kept_count = 0, found = 0;
    bool copied = berth__block_map_copy(&g->live, sizeof(berth__guarded), &live, &live_count) &&
                  berth__block_map_copy(&g->kept, sizeof(berth__guarded), &kept, &kept_count);
    if (copied)
        found = check_all(g, live, live_count, false) + check_all(g, kept, kept_count, true);
    berth__heap_free(live);
    berth__heap_free(kept);
    if (!copied)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the list of a guard's blocks");
    if (faults)
        *faults = found;
    return found == 0
               ? BERTH_OK
               : berth__fail(BERTH_CORRUPT, "%zu places around a guard's blocks were overwritten", found);
}

static berth_status check_options(const berth_guard_options *options)
{
    if (options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_GUARD_OPTIONS_INIT",
                           options->struct_size);
    if (options->redzone_bytes == 0 || options->redzone_bytes > REDZONE_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a red zone of %zu bytes: choose from 1 to %d",
                           options->redzone_bytes, REDZONE_MAX);
    return BERTH_OK;
}

static berth_allocator_ops guard_ops(void)
{
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = guard_allocate;
    ops.deallocate = guard_deallocate;
    ops.destroy = guard_destroy;
    ops.reallocate = NULL;  /* a block that grows in place would grow into its red zone: the front moves it */
    ops.granularity = NULL; /* not with what a red zone adds */
    ops.record_use = guard_record_use;
    ops.owns = guard_owns;
    ops.tracks_sizes = guard_tracks_sizes;
    ops.requested_size = guard_size;
    ops.allocated_size = guard_size;
    ops.allocated_size_slow = guard_size;
    ops.allocation_id = guard_allocation_id;
    ops.stats = guard_stats;
    ops.clear_stats = guard_clear_stats;
    ops.trim = guard_trim;
    ops.snapshot = guard_snapshot;
    return ops;
}

berth_status berth_guard_create(berth_allocator *inner, const berth_guard_options *options,
                                berth_allocator **out)
{
    static const berth_guard_options defaults = BERTH_GUARD_OPTIONS_INIT;
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    if (!options)
        options = &defaults;
    berth_status status = check_options(options);
    if (status)
        return status;
    if (!berth__is_host_accessible(inner))
        return berth__fail(BERTH_UNSUPPORTED,
                           "a guard writes beside its blocks, and host code cannot write the memory of %s",
                           inner->ops.name(inner->self));
    struct guard *g = berth__heap_aligned(sizeof *g, 64);
    if (!g)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a guard's handle");
    memset(g, 0, sizeof *g);
    if (!berth__block_map_prepare(&g->live) || !berth__block_map_prepare(&g->kept)) {
        berth__block_map_finish(&g->live);
        berth__block_map_finish(&g->kept);
        berth__heap_free(g);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a guard's maps");
    }
    berth__stack_prepare();
    g->options = *options;
    atomic_init(&g->next_id, 1);
    atomic_init(&g->holders, 1);
    berth__meter_init(&g->meter, false);
    berth_allocator_ops ops = guard_ops();
    berth__wrapper_init(&g->base, &ops, inner);
    g->base.base.knows_blocks = true;
    *out = &g->base.base;
    return BERTH_OK;
}

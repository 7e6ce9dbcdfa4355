/* The device source: blocks straight from a device's memory, one driver call each. What caches, pools and
 * plans stand on when they are built over an allocator, and what a program uses that wants no cache.
 *
 * The allocator lives until its handle has been released and the last block is back: both count in `holders`. */
#include <stdio.h>

#include "base/block_map.h"
#include "berth/source.h"
#include "core/allocator.h"
#include "count/meter.h"
#include "device/device.h"

typedef struct device_source {
    berth_allocator base;
    berth_device device;
    berth_memory_kind kind;
    bool stream_ordered; /* the device waits for a stream by itself */
    char name[48];
    _Atomic uint64_t holders;
    _Atomic uint64_t last_id;
    berth__meter meter;
    berth__block_map blocks;
} device_source;

typedef struct source_block {
    berth__block_entry entry;
    size_t size_bytes;
    uint64_t id;
    const char *label;
} source_block;

static void drop_holder(device_source *s)
{
    if (atomic_fetch_sub_explicit(&s->holders, 1, memory_order_acq_rel) > 1)
        return;
    berth__block_map_finish(&s->blocks);
    berth__meter_finish(&s->meter);
    berth__heap_free(s);
}

static void source_destroy(void *self)
{
    drop_holder(self);
}

/* ---- Blocks -------------------------------------------------------------------------------------- */

/* Whether the device gives and takes such memory in the order of its streams. */
static bool orders(const device_source *s)
{
    return s->stream_ordered && s->kind == BERTH_MEMORY_DEVICE;
}

static berth_status take_block(device_source *s, source_block *block, size_t alignment,
                               const berth_request *request, void **out)
{
    void *p = NULL;
    berth_stream *stream = berth__stream_if_of(request->stream, s->device);
    berth_status status = berth_device_allocate(s->device, s->kind, block->size_bytes, alignment, stream, &p);
    if (status)
        return status;
    /* On the stream only where the release is in its order as well: a fill that is under way must not outlive the block. */
    if (request->flags & BERTH_ZEROED)
        status = berth_zero(s->device, p, block->size_bytes, orders(s) ? stream : NULL, true);
    block->entry.address = (uintptr_t)p;
    if (!status && !berth__block_map_put(&s->blocks, &block->entry))
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of a device's block");
    if (status) {
        (void)berth_device_release(s->device, s->kind, p, block->size_bytes, stream);
        return status;
    }
    *out = p;
    return BERTH_OK;
}

static berth_status source_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    device_source *s = self;
    source_block *block = berth__heap_alloc(sizeof *block);
    berth_status status;
    if (!block) {
        berth__slots_count_failure(&s->meter.slots);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of a device's block");
    }
    *block = (source_block){.size_bytes = size_bytes,
                            .id = 1 + atomic_fetch_add_explicit(&s->last_id, 1, memory_order_relaxed),
                            .label = berth__request_label(request)};
    atomic_fetch_add_explicit(&s->holders, 1, memory_order_relaxed);
    status = take_block(s, block, alignment, request, out);
    if (status) {
        berth__slots_count_failure(&s->meter.slots);
        berth__heap_free(block);
        drop_holder(s);
        return status;
    }
    (void)berth__meter_take(&s->meter, size_bytes);
    return BERTH_OK;
}

/* Before a block goes back whose use a stream may not have finished: waits for it where the device does not.
 * On the stream's own thread everything before has run already. */
static berth_status wait_for_use(device_source *s, berth_stream *stream)
{
    if (!stream)
        return BERTH_OK;
    bool ordered = orders(s) && berth_device_equal(stream->device, s->device);
    if (ordered || stream == berth__running_stream)
        return BERTH_OK;
    berth_status status = berth_stream_synchronize(stream);
    return status == BERTH_DEVICE_LOST ? BERTH_OK : status; /* work of a lost device never runs */
}

/* What the device did not take back, for want of something, is still the caller's, who may try again. */
static bool is_still_there(berth_status refused)
{
    return refused != BERTH_DEVICE_LOST && refused != BERTH_NOT_FOUND && refused != BERTH_BAD_FREE;
}

static berth_status source_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    device_source *s = self;
    (void)size_bytes; /* what was asked for is known better here */
    berth_status status = wait_for_use(s, stream);
    if (status)
        return status;
    source_block *block = (source_block *)berth__block_map_take(&s->blocks, p);
    if (!block)
        return berth__fail(BERTH_BAD_FREE, "%p is not a live block of %s: freed twice, or not its own", p,
                           s->name);
    size_t size = block->size_bytes;
    stream = orders(s) ? berth__stream_if_of(stream, s->device) : NULL;
    status = berth_device_release(s->device, s->kind, p, size, stream);
    if (BERTH_UNLIKELY(status) && is_still_there(status) && berth__block_map_put(&s->blocks, &block->entry))
        return status;
    berth__heap_free(block);
    (void)berth__meter_give(&s->meter, size);
    drop_holder(s);
    return status;
}

/* ---- What is known ------------------------------------------------------------------------------- */

static const char *source_name(void *self)
{
    return ((device_source *)self)->name;
}

static berth_device source_device(void *self)
{
    return ((device_source *)self)->device;
}

static berth_memory_kind source_memory_kind(void *self)
{
    return ((device_source *)self)->kind;
}

static bool tracks_sizes(void *self)
{
    (void)self;
    return true;
}

static berth_status read_block(device_source *s, const void *p, source_block *out)
{
    if (berth__block_map_read(&s->blocks, p, out, sizeof *out))
        return BERTH_OK;
    return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of %s", p, s->name);
}

static berth_status source_size(void *self, const void *p, size_t *out)
{
    source_block block;
    berth_status status = read_block(self, p, &block);
    if (!status)
        *out = block.size_bytes;
    return status;
}

static berth_status source_id(void *self, const void *p, uint64_t *out)
{
    source_block block;
    berth_status status = read_block(self, p, &block);
    if (!status)
        *out = block.id;
    return status;
}

/* The map knows beginnings only; a pointer into a block is looked for among all of them. */
static berth_status source_owns(void *self, const void *p)
{
    device_source *s = self;
    source_block block, *all;
    size_t count;
    if (berth__block_map_read(&s->blocks, p, &block, sizeof block))
        return BERTH_OK;
    if (!berth__block_map_copy(&s->blocks, sizeof block, (void **)&all, &count))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look through the blocks of %s", s->name);
    berth_status status = BERTH_NOT_FOUND;
    for (size_t i = 0; i < count && status; i++)
        if (berth__distance(p, all[i].entry.address) < all[i].size_bytes)
            status = BERTH_OK;
    berth__heap_free(all);
    return status;
}

static berth_status source_stats(void *self, berth_stats *out)
{
    device_source *s = self;
    berth__meter_read(&s->meter, out);
    out->bytes_reserved = out->bytes_in_use;
    out->max_bytes_reserved = out->max_bytes_in_use;
    return BERTH_OK;
}

static berth_status source_clear_stats(void *self)
{
    berth__meter_clear(&((device_source *)self)->meter);
    return BERTH_OK;
}

static berth_status source_snapshot(void *self, berth_block_fn visit, void *context)
{
    device_source *s = self;
    source_block *all;
    size_t count;
    if (!berth__block_map_copy(&s->blocks, sizeof *all, (void **)&all, &count))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to show the blocks of %s", s->name);
    bool go_on = true;
    for (size_t i = 0; i < count && go_on; i++) {
        const berth_block block = {.struct_size = sizeof block,
                                   .address = (const void *)all[i].entry.address,
                                   .size_bytes = all[i].size_bytes,
                                   .requested_bytes = all[i].size_bytes,
                                   .allocation_id = all[i].id,
                                   .label = all[i].label,
                                   .state = BERTH_BLOCK_LIVE};
        go_on = visit(context, &block);
    }
    berth__heap_free(all);
    return BERTH_OK;
}

static const berth_allocator_ops source_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = source_allocate,
    .deallocate = source_deallocate,
    .destroy = source_destroy,
    .name = source_name,
    .device = source_device,
    .memory_kind = source_memory_kind,
    .owns = source_owns,
    .tracks_sizes = tracks_sizes,
    .requested_size = source_size,
    .allocated_size = source_size,
    .allocation_id = source_id,
    .stats = source_stats,
    .clear_stats = source_clear_stats,
    .snapshot = source_snapshot,
};

berth_status berth_device_allocator_create(berth_device device, berth_memory_kind kind, berth_allocator **out)
{
    static const char *const kinds[] = {"device", "pinned", "managed"};
    berth_device_info info = {.struct_size = sizeof info};
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    if ((unsigned)kind >= BERTH_COUNT_OF(kinds))
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no memory kind %d", (int)kind);
    berth_status status = berth_device_describe(device, &info);
    if (status)
        return status;
    const char *device_kind = berth_device_kind_name((berth_device_kind)device.kind);
    if (!(info.memory_kinds >> kind & 1))
        return berth__fail(BERTH_UNSUPPORTED, "%s device %d has no %s memory", device_kind,
                           (int)device.ordinal, kinds[kind]);
    device_source *s = berth__heap_zaligned(sizeof *s, 64);
    if (!s)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an allocator");
    s->device = device;
    s->kind = kind;
    s->stream_ordered = info.stream_ordered;
    snprintf(s->name, sizeof s->name, "%s:%d:%s", device_kind, (int)device.ordinal, kinds[kind]);
    atomic_init(&s->holders, 1);
    berth__meter_init(&s->meter, false);
    berth__allocator_init(&s->base, &source_ops, s);
    s->base.knows_blocks = true;
    *out = &s->base;
    return BERTH_OK;
}

/* The list of a source's blocks, and the questions that it answers. */
#include "source/listed.h"

#include <string.h>

bool berth__listed_init(berth__listed *l, const berth_allocator_ops *ops)
{
    memset(l, 0, sizeof *l);
    if (!berth__block_map_prepare(&l->blocks)) {
        berth__block_map_finish(&l->blocks);
        return false;
    }
    berth__allocator_init(&l->base, ops, l);
    l->base.knows_blocks = true;
    berth__meter_init(&l->meter, false);
    atomic_init(&l->next_id, 1);
    return true;
}

void berth__listed_finish(berth__listed *l)
{
    berth__block_entry *left;
    while ((left = berth__block_map_take_any(&l->blocks)) != NULL)
        berth__heap_free(left);
    berth__block_map_finish(&l->blocks);
    berth__meter_finish(&l->meter);
}

void berth__listed_add(berth__listed *l, berth__listed_block *block)
{
    block->id = atomic_fetch_add_explicit(&l->next_id, 1, memory_order_relaxed);
    (void)BERTH_ASSERT(berth__block_map_put(&l->blocks, &block->entry), "a prepared map takes every block");
}

berth__listed_block *berth__listed_take(berth__listed *l, const void *p)
{
    berth__listed_block *block = (berth__listed_block *)(void *)berth__block_map_take(&l->blocks, p);
    if (!block)
        berth__fail(BERTH_BAD_FREE, "%p is not a live block of %s: freed twice, or not its own", p,
                    l->base.ops.name(l));
    return block;
}

/* ---- Questions ----------------------------------------------------------------------------------- */

static berth_status read_block(berth__listed *l, const void *p, berth__listed_block *block)
{
    if (berth__block_map_read(&l->blocks, p, block, sizeof *block))
        return BERTH_OK;
    return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of %s", p, l->base.ops.name(l));
}

static berth_status listed_requested_size(void *self, const void *p, size_t *out)
{
    berth__listed_block block;
    berth_status status = read_block(self, p, &block);
    if (!status)
        *out = (size_t)block.size_bytes;
    return status;
}

static berth_status listed_allocated_size(void *self, const void *p, size_t *out)
{
    berth__listed_block block;
    berth_status status = read_block(self, p, &block);
    if (!status)
        *out = (size_t)block.taken_bytes;
    return status;
}

static berth_status listed_allocation_id(void *self, const void *p, uint64_t *out)
{
    berth__listed_block block;
    berth_status status = read_block(self, p, &block);
    if (!status)
        *out = block.id;
    return status;
}

static berth_status listed_owns(void *self, const void *p)
{
    berth__listed *l = self;
    berth__listed_block block;
    if (berth__block_map_read(&l->blocks, p, &block, sizeof block))
        return BERTH_OK;
    void *copies = NULL;
    size_t count = 0;
    if (!berth__block_map_copy(&l->blocks, sizeof block, &copies, &count))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look at all blocks");
    const berth__listed_block *blocks = copies;
    bool inside = false;
    for (size_t i = 0; i < count && !inside; i++)
        inside = berth__distance(p, blocks[i].entry.address) < blocks[i].size_bytes;
    berth__heap_free(copies);
    return inside ? BERTH_OK : BERTH_NOT_FOUND;
}

static bool listed_tracks_sizes(void *self)
{
    (void)self;
    return true;
}

static berth_status listed_stats(void *self, berth_stats *out)
{
    berth__listed *l = self;
    berth__meter_read(&l->meter, out);
    return BERTH_OK;
}

static berth_status listed_clear_stats(void *self)
{
    berth__listed *l = self;
    berth__meter_clear(&l->meter);
    return BERTH_OK;
}

static berth_status listed_snapshot(void *self, berth_block_fn visit, void *context)
{
    berth__listed *l = self;
    void *copies = NULL;
    size_t count = 0;
    if (!berth__block_map_copy(&l->blocks, sizeof(berth__listed_block), &copies, &count))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a snapshot");
    const berth__listed_block *blocks = copies;
    for (size_t i = 0; i < count; i++) {
        berth_block block = {
            .struct_size = sizeof block,
            .address = (void *)blocks[i].entry.address,
            .size_bytes = blocks[i].taken_bytes,
            .requested_bytes = blocks[i].size_bytes,
            .allocation_id = blocks[i].id,
            .label = blocks[i].label,
            .state = BERTH_BLOCK_LIVE,
        };
        if (!visit(context, &block))
            break;
    }
    berth__heap_free(copies);
    return BERTH_OK;
}

const berth_allocator_ops berth__listed_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .owns = listed_owns,
    .tracks_sizes = listed_tracks_sizes,
    .requested_size = listed_requested_size,
    .allocated_size = listed_allocated_size,
    .allocation_id = listed_allocation_id,
    .stats = listed_stats,
    .clear_stats = listed_clear_stats,
    .snapshot = listed_snapshot,
};

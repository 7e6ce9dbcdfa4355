/* A plan made to fit the memory that there is: in a block that is partly taken, what would lie in the taken bytes loses
 * its place; in several pieces, everything has its place in one of them. */
#include <string.h>

#include "plan/plan.h"

/* Whether the place of `e` touches a range: the first one that ends after its beginning decides. */
static bool touches(const berth__plan_entry *e, const berth__plan_range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].offset + ranges[middle].size_bytes > e->offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low < count && ranges[low].offset < e->offset + e->size_bytes;
}

/* A content with the entries of `whole`, which are still to be placed and laid out. */
static berth__plan_content *copy_of(berth__plan_content *whole)
{
    berth__plan_content *c = berth__heap_zalloc(1, sizeof *c);
    berth__plan_entry *entries = berth__heap_zalloc((size_t)whole->count + 1, sizeof *entries);
    if (!c || !entries) {
        berth__heap_free(c);
        berth__heap_free(entries);
        berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to fit a plan of %u allocations", whole->count);
        return NULL;
    }
    memcpy(entries, whole->entries, ((size_t)whole->count + 1) * sizeof *entries);
    atomic_init(&c->references, 1);
    c->whole = berth__plan_content_retain(whole);
    c->entries = entries;
    c->count = whole->count;
    c->total_bytes = whole->total_bytes;
    c->alignment = whole->alignment;
    c->fingerprint = whole->fingerprint;
    c->certificate = whole->certificate;
    return c;
}

static berth_status keep_out(berth__plan_content *c, const berth__plan_range *ranges, size_t count)
{
    c->ranges = berth__heap_zalloc(count, sizeof *c->ranges);
    if (!c->ranges)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan around what is still live");
    memcpy(c->ranges, ranges, count * sizeof *ranges);
    c->range_count = count;
    for (uint32_t i = 0; i < c->count; i++) {
        berth__plan_entry *e = &c->entries[i];
        if (e->freed_at == UINT32_MAX)
            continue;
        if (touches(e, ranges, count)) {
            e->freed_at = UINT32_MAX;
            c->displaced++;
        } else {
            c->planned++;
        }
    }
    return BERTH_OK;
}

/* The frees of `whole` in their order, without those of displaced entries. */
static uint32_t *frees_left(const berth__plan_content *c, const berth__plan_content *whole)
{
    uint32_t *ids = berth__heap_zalloc(whole->planned, sizeof *ids);
    if (!ids)
        return NULL;
    berth__plan_free_order(whole, ids);
    uint32_t n = 0;
    for (uint32_t i = 0; i < whole->planned; i++)
        if (c->entries[ids[i]].freed_at != UINT32_MAX)
            ids[n++] = ids[i];
    return ids;
}

/* Lays it out; on failure it goes. */
static berth_status finish_copy(berth__plan_content *c, berth__plan_content **out)
{
    uint32_t *frees = frees_left(c, c->whole);
    berth_status status =
        frees ? berth__plan_lay_out(c, frees)
              : berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to fit a plan of %u allocations", c->count);
    berth__heap_free(frees);
    if (!status)
        *out = c;
    else
        berth__plan_content_release(c);
    return status;
}

berth_status berth__plan_displace(berth__plan_content *whole, const berth__plan_range *ranges, size_t count,
                                  berth__plan_content **out)
{
    berth__plan_content *c = copy_of(whole);
    if (!c)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth_status status = keep_out(c, ranges, count);
    if (!status)
        return finish_copy(c, out);
    berth__plan_content_release(c);
    return status;
}

berth_status berth__plan_relocate(berth__plan_content *whole, const berth__plan_split *split,
                                  const uint64_t *distances, berth__plan_content **out)
{
    berth__plan_content *c = copy_of(whole);
    if (!c)
        return BERTH_OUT_OF_HOST_MEMORY;
    c->total_bytes = 0;
    for (size_t i = 0; i < split->piece_count; i++)
        c->total_bytes += split->piece_bytes[i];
    for (uint32_t id = 0; id < c->count; id++) {
        berth__plan_entry *e = &c->entries[id];
        if (e->rank != BERTH__NO_RANK)
            e->offset = distances[split->pieces[id]] + split->offsets[id];
    }
    c->planned = whole->planned;
    return finish_copy(c, out);
}

/* A plan for a block that is partly taken: what would lie in the taken bytes loses its place. */
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

static berth_status copy_whole(berth__plan_content *c, const berth__plan_content *whole,
                               const berth__plan_range *ranges, size_t count)
{
    c->entries = berth__heap_zalloc((size_t)whole->count + 1, sizeof *c->entries);
    c->ranges = berth__heap_zalloc(count, sizeof *c->ranges);
    if (!c->entries || !c->ranges)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan around what is still live");
    memcpy(c->ranges, ranges, count * sizeof *ranges);
    c->range_count = count;
    memcpy(c->entries, whole->entries, ((size_t)whole->count + 1) * sizeof *c->entries);
    c->count = whole->count;
    c->total_bytes = whole->total_bytes;
    c->alignment = whole->alignment;
    c->fingerprint = whole->fingerprint;
    c->certificate = whole->certificate;
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

berth_status berth__plan_displace(berth__plan_content *whole, const berth__plan_range *ranges, size_t count,
                                  berth__plan_content **out)
{
    berth__plan_content *c = berth__heap_zalloc(1, sizeof *c);
    if (!c)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan around what is still live");
    atomic_init(&c->references, 1);
    c->whole = berth__plan_content_retain(whole);
    uint32_t *frees = NULL;
    berth_status status = copy_whole(c, whole, ranges, count);
    if (status == BERTH_OK && !(frees = frees_left(c, whole)))
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan around what is still live");
    if (status == BERTH_OK)
        status = berth__plan_lay_out(c, frees);
    berth__heap_free(frees);
    if (status == BERTH_OK)
        *out = c;
    else
        berth__plan_content_release(c);
    return status;
}

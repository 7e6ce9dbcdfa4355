/* A plan laid out for replay: the steps in order, the distinct offsets, and the way from an offset to both. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* The freed ids by the allocation that follows their free; those of one place keep the order they have in
 * `hint` (NULL: by id). */
static berth_status order_frees(const berth__plan_content *c, const uint32_t *hint, uint32_t *ordered)
{
    uint32_t *first = berth__heap_zalloc((size_t)c->count + 2, sizeof *first);
    if (!first)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to order %u frees", c->planned);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->entries[i].freed_at != UINT32_MAX)
            first[c->entries[i].freed_at + 1]++;
    for (uint32_t i = 1; i <= c->count + 1; i++)
        first[i] += first[i - 1];
    if (hint) {
        for (uint32_t k = 0; k < c->planned; k++)
            ordered[first[c->entries[hint[k]].freed_at]++] = hint[k];
    } else {
        for (uint32_t i = 0; i < c->count; i++)
            if (c->entries[i].freed_at != UINT32_MAX)
                ordered[first[c->entries[i].freed_at]++] = i;
    }
    berth__heap_free(first);
    return BERTH_OK;
}

static void push_step(berth__plan_content *c, uint32_t id, uint64_t size_bytes, uint64_t offset)
{
    c->steps[c->step_count] = (berth_step){size_bytes, offset};
    c->step_ids[c->step_count++] = id;
}

/* Frees before allocation i come before it; never-freed allocations are steps that match nothing. */
static void fill_steps(berth__plan_content *c, const uint32_t *frees)
{
    uint32_t next_free = 0;
    uint64_t live = 0;
    for (uint32_t i = 0; i <= c->count; i++) {
        berth__plan_entry *e = &c->entries[i];
        for (; next_free < c->planned && c->entries[frees[next_free]].freed_at == i; next_free++) {
            live -= c->entries[frees[next_free]].size_bytes;
            push_step(c, frees[next_free], BERTH_STEP_FREE, c->entries[frees[next_free]].offset);
        }
        e->step = c->step_count;
        if (i == c->count)
            break;
        bool planned = e->freed_at != UINT32_MAX;
        live += planned ? e->size_bytes : 0;
        c->sum_bytes += planned ? e->size_bytes : 0;
        if (planned && e->size_bytes > c->largest_bytes)
            c->largest_bytes = e->size_bytes;
        c->live_bytes[i] = live;
        c->most_bytes = live > c->most_bytes ? live : c->most_bytes;
        push_step(c, i, planned ? e->size_bytes : BERTH_STEP_FREE, planned ? e->offset : BERTH__NOWHERE);
    }
    c->steps[c->step_count] = (berth_step){BERTH_STEP_FREE, BERTH__NOWHERE};
    c->step_ids[c->step_count] = UINT32_MAX;
}

static int compare_offsets(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void fill_ranks(berth__plan_content *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->entries[i].freed_at != UINT32_MAX)
            c->rank_offsets[n++] = c->entries[i].offset;
    qsort(c->rank_offsets, n, sizeof *c->rank_offsets, compare_offsets);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || c->rank_offsets[i] != c->rank_offsets[i - 1])
            c->rank_offsets[c->rank_count++] = c->rank_offsets[i];
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        uint32_t s = berth__plan_slot(c, c->rank_offsets[rank]);
        while (c->slots[s])
            s = (s + 1) & c->slot_mask;
        c->slots[s] = rank + 1;
    }
    for (uint32_t i = 0; i < c->count; i++)
        c->entries[i].rank =
            c->entries[i].freed_at == UINT32_MAX ? BERTH__NO_RANK : berth__plan_rank(c, c->entries[i].offset);
}

static bool has_labels(const berth__plan_content *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->entries[i].label)
            return true;
    return false;
}

berth_status berth__plan_lay_out(berth__plan_content *c, const uint32_t *free_order)
{
    uint32_t bits = 1; /* a table at most half full */
    while (((uint64_t)1 << bits) < (uint64_t)c->planned * 2)
        bits++;
    size_t steps = (size_t)c->count + c->planned;
    uint32_t *frees = berth__heap_zalloc(c->planned, sizeof *frees);
    c->steps = berth__heap_zalloc(steps + 1, sizeof *c->steps);
    c->step_ids = berth__heap_zalloc(steps + 1, sizeof *c->step_ids);
    bool labelled = has_labels(c);
    c->step_labels = labelled ? berth__heap_zalloc(steps + 1, sizeof *c->step_labels) : NULL;
    c->live_bytes = berth__heap_zalloc(c->count, sizeof *c->live_bytes);
    c->rank_offsets = berth__heap_zalloc(c->planned, sizeof *c->rank_offsets);
    c->slots = berth__heap_zalloc((size_t)1 << bits, sizeof *c->slots);
    c->slot_mask = (uint32_t)(((uint64_t)1 << bits) - 1);
    c->slot_shift = 64 - bits;
    berth_status status = BERTH_OK;
    if (!frees || !c->steps || !c->step_ids || (labelled && !c->step_labels) || !c->live_bytes ||
        !c->rank_offsets || !c->slots)
        status =
            berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to lay out a plan of %u allocations", c->count);
    if (!status)
        status = order_frees(c, free_order, frees);
    if (!status) {
        fill_steps(c, frees);
        fill_ranks(c);
    }
    berth__heap_free(frees);
    return status;
}

void berth__plan_free_order(const berth__plan_content *c, uint32_t *ids)
{
    size_t n = 0;
    for (uint32_t s = 0; s < c->step_count; s++)
        if (c->entries[c->step_ids[s]].step != s)
            ids[n++] = c->step_ids[s];
}

/* A smaller problem from a larger one: the items that are listed, in canonical order, and columns anew. */
#include "planner/problem/subset.h"

#include <string.h>

#include "base/sort.h"
#include "planner/problem/bound.h"

enum { STARTS = 1, ENDS = 2 };

/* New numbers of columns, as prepared.h tells: a new one only where a start follows an end. Of a pair, what begins
 * at a column has the first number, what ends before it the second. Returns how many there are. */
static uint32_t subset_renumber(const berth__prepared *whole, const uint32_t *list, uint32_t count,
                                uint32_t *renamed)
{
    memset(renamed, 0, ((size_t)whole->column_count + 1) * 2 * sizeof *renamed);
    for (uint32_t k = 0; k < count; k++) {
        renamed[2 * (size_t)whole->lower[list[k]]] |= STARTS;
        renamed[2 * (size_t)whole->upper[list[k]]] |= ENDS;
    }
    uint32_t columns = 0;
    bool ended = true;
    for (size_t c = 0; c <= whole->column_count; c++) {
        const uint32_t here = renamed[2 * c];
        renamed[2 * c + 1] = columns;
        ended = ended || (here & ENDS);
        if ((here & STARTS) && ended) {
            columns++;
            ended = false;
        }
        renamed[2 * c] = columns - 1;
    }
    BERTH_DCHECK(columns <= count, "[L8] there are no more columns than pieces");
    return columns;
}

typedef struct subset_keys {
    const berth__prepared *whole;
    const uint32_t *renamed;
} subset_keys;

static int subset_canonical(const void *context, uint32_t a, uint32_t b)
{
    const subset_keys *keys = context;
    const berth__prepared *p = keys->whole;
    const uint32_t first_a = keys->renamed[2 * (size_t)p->lower[a]],
                   first_b = keys->renamed[2 * (size_t)p->lower[b]];
    if (first_a != first_b)
        return first_a < first_b ? -1 : 1;
    const uint32_t last_a = keys->renamed[2 * (size_t)p->upper[a] + 1],
                   last_b = keys->renamed[2 * (size_t)p->upper[b] + 1];
    if (last_a != last_b)
        return last_a < last_b ? -1 : 1;
    if (p->size[a] != p->size[b])
        return p->size[a] < p->size[b] ? -1 : 1;
    return (a > b) - (a < b); /* as in the whole */
}

static bool subset_allocate(berth__subset *subset, const berth__prepared *whole, uint32_t count)
{
    berth__prepared *s = &subset->prepared;
    subset->item = berth__heap_alloc((size_t)count * sizeof *subset->item);
    s->lower = berth__heap_alloc((size_t)count * sizeof *s->lower);
    s->upper = berth__heap_alloc((size_t)count * sizeof *s->upper);
    s->size = berth__heap_alloc((size_t)count * sizeof *s->size);
    bool ok = subset->item && s->lower && s->upper && s->size;
    if (whole->alignment)
        ok = (s->alignment = berth__heap_alloc((size_t)count * sizeof *s->alignment)) != NULL && ok;
    s->piece_lower = s->lower;
    s->piece_upper = s->upper;
    s->piece_size = s->size;
    return ok;
}

static void subset_fill(berth__subset *subset, const berth__prepared *whole, const uint32_t *renamed)
{
    berth__prepared *s = &subset->prepared;
    for (uint32_t k = 0; k < s->item_count; k++) {
        const uint32_t i = subset->item[k];
        s->lower[k] = renamed[2 * (size_t)whole->lower[i]];
        s->upper[k] = renamed[2 * (size_t)whole->upper[i] + 1];
        s->size[k] = whole->size[i];
        BERTH_DCHECK(s->lower[k] < s->upper[k] && s->upper[k] <= s->column_count,
                     "[L7] what is in a subset lives in its columns");
        if (s->alignment)
            s->alignment[k] = whole->alignment[i];
    }
}

static berth_status find_most_live(berth__prepared *s)
{
    uint64_t *load = berth__heap_alloc((size_t)s->column_count * sizeof *load);
    if (!load)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth__bound_loads(s, load);
    for (uint32_t c = 0; c < s->column_count; c++)
        if (load[c] > s->max_live) {
            s->max_live = load[c];
            s->max_live_column = c;
        }
    berth__heap_free(load);
    return BERTH_OK;
}

berth_status berth__subset_init(berth__subset *subset, const berth__prepared *whole, const uint32_t *list,
                                uint32_t count)
{
    BERTH_DCHECK(!whole->piece_first && !whole->fixed && count > 0, "[L8] a subset is of plain items");
    *subset = (berth__subset){.prepared = {.item_count = count,
                                           .piece_count = count,
                                           .unit_bytes = whole->unit_bytes,
                                           .capacity = whole->capacity,
                                           .max_live_time = whole->max_live_time,
                                           .horizon = whole->horizon}};
    berth__prepared *s = &subset->prepared;
    uint32_t *renamed = berth__heap_alloc(((size_t)whole->column_count + 1) * 2 * sizeof *renamed);
    uint32_t *scratch = berth__heap_alloc((size_t)count * sizeof *scratch);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (subset_allocate(subset, whole, count) && renamed && scratch) {
        s->column_count = subset_renumber(whole, list, count, renamed);
        memcpy(subset->item, list, (size_t)count * sizeof *list);
        const subset_keys keys = {whole, renamed};
        berth__sort_indices(subset->item, scratch, count, subset_canonical, &keys);
        subset_fill(subset, whole, renamed);
        s->is_plain = !s->alignment;
        status = find_most_live(s);
    }
    berth__heap_free(renamed);
    berth__heap_free(scratch);
    BERTH_DCHECK(status || berth__prepared_is_valid(s), "[L7] [L8] [L9] a subset is a problem");
    return status ? berth__fail(status, "no memory for a part of %u items", count) : BERTH_OK;
}

void berth__subset_finish(berth__subset *subset)
{
    berth__prepared_finish(&subset->prepared);
    berth__heap_free(subset->item);
    *subset = (berth__subset){0};
}

/* Where one moment decides the bound, nothing may be lost at it: all that lives then is piled up without a gap. What
 * is left ends before or starts after, and lies to the left and to the right of the pile. In which order is the pile
 * to be, so that there is good room on both sides?
 *
 *     by start                     in groups by start, within each by end
 *
 *           #|#                             #|##
 *          ##|####                         ##|#
 *         ###|#                            ##|####         left: a stair, of one step a group;
 *       #####|######                    #####|######       right: a few large bays,
 *      ######|##                        #####|##           not a small one behind each
 *     #######|####                     ######|#
 *
 * By start alone the left side is a perfect stair, but on the right every item has a small bay below one that ends
 * later. In groups of about equal height each bay is as high as the part of a group that has ended; those of two
 * groups face each other, since every other group is upside down, and are one. One group is the stair of the other
 * side. How many groups are best depends on how full it is on which side. */
#include "planner/place/pile.h"

#include <string.h>

#include "base/sort.h"
#include "planner/problem/bound.h"

/* A moment is nearly full where less than one of so many parts is free. */
enum { NEARLY_FULL = 32 };

typedef struct pile {
    const berth__prepared *p;
    bool is_mirrored;
    uint32_t *group; /* by item */
} pile;

static uint32_t begin_of(const pile *x, uint32_t item)
{
    return x->is_mirrored ? UINT32_MAX - x->p->upper[item] : x->p->lower[item];
}

static uint32_t end_of(const pile *x, uint32_t item)
{
    return x->is_mirrored ? UINT32_MAX - x->p->lower[item] : x->p->upper[item];
}

static int by_begin(const void *context, uint32_t a, uint32_t b)
{
    const uint32_t first = begin_of(context, a), second = begin_of(context, b);
    return (first > second) - (first < second);
}

static int by_group(const void *context, uint32_t a, uint32_t b)
{
    const pile *x = context;
    const uint32_t first = end_of(x, a), second = end_of(x, b);
    if (x->group[a] != x->group[b])
        return x->group[a] < x->group[b] ? -1 : 1;
    return x->group[a] % 2 ? (first > second) - (first < second) : (first < second) - (first > second);
}

/* Cuts a list by begin into groups of about equal height. */
static void divide(pile *x, const uint32_t *list, uint32_t count, uint32_t groups)
{
    double whole = 0, below = 0;
    for (uint32_t k = 0; k < count; k++)
        whole += (double)x->p->size[list[k]];
    for (uint32_t k = 0; k < count; k++) {
        BERTH_DCHECK(k == 0 || begin_of(x, list[k - 1]) <= begin_of(x, list[k]),
                     "[L10] a pile is divided in order of begin");
        x->group[list[k]] = (uint32_t)(below / whole * (double)groups);
        below += (double)x->p->size[list[k]];
    }
}

static uint32_t fullest_column(const uint64_t *load, uint32_t count)
{
    uint32_t fullest = 0;
    for (uint32_t c = 1; c < count; c++)
        fullest = load[c] > load[fullest] ? c : fullest;
    return fullest;
}

/* Moves those that live through `column` to the front and returns how many there are; all keep their order. */
static uint32_t move_first(const berth__prepared *p, uint32_t column, uint32_t *list, uint32_t *scratch)
{
    uint32_t count = 0, others = 0;
    for (uint32_t k = 0; k < p->item_count; k++) {
        const uint32_t item = list[k];
        if (p->lower[item] <= column && column < p->upper[item])
            list[count++] = item;
        else
            scratch[others++] = item;
    }
    BERTH_DCHECK(count + others == p->item_count, "[L10] the list has every item");
    memcpy(list + count, scratch, (size_t)others * sizeof *list);
    return count;
}

/* How much of what lives in each column lives at the fullest moment too. */
static void find_piled(const berth__prepared *p, uint32_t column, uint64_t *piled)
{
    memset(piled, 0, ((size_t)p->column_count + 1) * sizeof *piled);
    for (uint32_t i = 0; i < p->item_count; i++)
        if (p->lower[i] <= column && column < p->upper[i]) {
            piled[p->lower[i]] += p->size[i];
            piled[p->upper[i]] -= p->size[i];
        }
    for (uint32_t c = 1; c < p->column_count; c++)
        piled[c] += piled[c - 1];
}

berth_status berth__pile_suits(const berth__prepared *prepared, bool *suits)
{
    const berth__prepared *p = prepared;
    uint64_t *load = berth__heap_alloc(((size_t)p->column_count * 2 + 1) * sizeof *load);
    if (!load)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look at %u moments", p->column_count);
    uint64_t *piled = load + p->column_count;
    berth__bound_loads(p, load);
    const uint32_t fullest = fullest_column(load, p->column_count);
    find_piled(p, fullest, piled);
    BERTH_DCHECK(load[fullest] == p->max_live && piled[fullest] >= load[fullest],
                 "[L9] all that lives at the fullest moment is in the pile");
    *suits = true;
    for (uint32_t c = 0; c < p->column_count; c++)
        if (load[c] > load[fullest] - load[fullest] / NEARLY_FULL && piled[c] < load[c] / 2)
            *suits = false;
    berth__heap_free(load);
    return BERTH_OK;
}

berth_status berth__pile_first(const berth__prepared *prepared, uint32_t groups, bool is_mirrored,
                               uint32_t *list, uint32_t *count)
{
    const berth__prepared *p = prepared;
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    uint64_t *load = berth__heap_alloc((size_t)p->column_count * sizeof *load);
    uint32_t *scratch = berth__heap_alloc((size_t)p->item_count * sizeof *scratch);
    pile x = {.p = p,
              .is_mirrored = is_mirrored,
              .group = berth__heap_alloc((size_t)p->item_count * sizeof *x.group)};
    if (load && scratch && x.group) {
        berth__bound_loads(p, load);
        *count = move_first(p, fullest_column(load, p->column_count), list, scratch);
        berth__sort_indices(list, scratch, *count, by_begin, &x);
        divide(&x, list, *count, groups);
        berth__sort_indices(list, scratch, *count, by_group, &x);
        BERTH_DCHECK(*count > 0, "[L9] something lives at the fullest moment");
        status = BERTH_OK;
    }
    berth__heap_free(load);
    berth__heap_free(scratch);
    berth__heap_free(x.group);
    return status ? berth__fail(status, "no memory to pile up %u items", p->item_count) : BERTH_OK;
}

/* Phase B. The skyline of phase A loses what it builds over. Here the capacity is fixed first, at the bound
 * itself, and then an order; each item goes
 *
 *     lid  - - - - - - - - - - - -          1. below the lid, into the lowest room that holds it or the tightest;
 *               ####                        2. else it is set aside, and put back at the end as low as it goes.
 *           ####...#####  ###
 *           ####...########.###
 *           ####################
 *
 * Which order suits depends on the program. Where the fullest moments decide, those that live through one go
 * first, in grades of how full, and long lives before short ones: nothing may be wasted there, and all others
 * have room to spare. A decoder's caches are a few slots in disguise, each filled by buffers that are a little
 * larger than the last: packed tightly by time, the early ones spoil the slots that the late ones need. In
 * order of size the late ones choose first, and of equals those that end last: each then finds the slot that the
 * one after it has just begun in. Few are left over in an order that suits, and repair finishes. */
#include "planner/place/pack.h"

#include <string.h>

#include "base/sort.h"
#include "planner/place/gaptree.h"
#include "planner/place/heights.h"
#include "planner/problem/bound.h"

enum { LOOKS_A_STEP = 8, GRADES_FINE = 1000, GRADES_COARSE = 50, LEFT_AT_MOST = 1000 };

typedef struct packing {
    berth__search *search;
    const berth__prepared *p;
    uint64_t lid;
    bool is_by_size; /* then the lowest room, else the tightest */
    uint64_t step_limit;
    uint64_t *offsets;
    uint32_t *list;  /* the items in order */
    uint32_t *aside; /* those that did not fit */
    uint32_t aside_count;
    uint64_t looks; /* not yet counted as steps */
    berth__gaptree tree;
} packing;

/* ---- The order ----------------------------------------------------------------------------------- */

/* How full the fullest moment of each item's life is. */
static berth_status find_grades(packing *s, uint64_t grades, uint32_t *grade)
{
    const berth__prepared *p = s->p;
    berth__heights loads;
    uint64_t *load = berth__heap_alloc((size_t)p->column_count * sizeof *load);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (berth__heights_init(&loads, p->column_count) && load) {
        berth__bound_loads(p, load);
        for (uint32_t c = 0; c < p->column_count; c++)
            berth__heights_raise(&loads, c, c + 1, load[c]);
        for (uint32_t i = 0; i < p->item_count; i++) {
            const uint64_t most = berth__heights_most(&loads, p->lower[i], p->upper[i]);
            BERTH_DCHECK(most <= p->max_live, "[L9] no more is live than at the fullest moment");
            const double part = (double)most / (double)s->lid * (double)grades;
            grade[i] = part < (double)(grades - 1) ? (uint32_t)part : (uint32_t)(grades - 1);
        }
        status = BERTH_OK;
    }
    berth__heights_finish(&loads);
    berth__heap_free(load);
    return status;
}

/* Sorts the list downward by what `key` says, which keeps the order of equals. */
static void sort_list(packing *s, uint64_t *keys, const uint32_t *key)
{
    const uint32_t count = s->p->item_count;
    for (uint32_t k = 0; k < count; k++)
        keys[k] = (uint64_t)(UINT32_MAX - key[s->list[k]]) << 32 | s->list[k];
    berth__sort_keys(keys, keys + count, count, 32, 64);
    for (uint32_t k = 0; k < count; k++)
        s->list[k] = (uint32_t)keys[k];
    BERTH_DCHECK(count == 0 || key[s->list[0]] >= key[s->list[count - 1]], "[L10] a list is sorted downward");
}

static int larger_first(const void *context, uint32_t a, uint32_t b)
{
    const uint64_t *size = context;
    return (size[a] < size[b]) - (size[a] > size[b]);
}

static berth_status make_list(packing *s, berth__pack_order order)
{
    const uint32_t count = s->p->item_count;
    uint32_t *key = berth__heap_alloc((size_t)count * sizeof *key);
    uint64_t *keys = berth__heap_alloc((size_t)count * 2 * sizeof *keys);
    berth_status status = key && keys ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; !status && i < count; i++) {
        s->list[i] = i;
        key[i] = order == BERTH__PACK_SIZE        ? s->p->upper[i]
                 : order == BERTH__PACK_SIZE_LATE ? s->p->lower[i]
                                                  : s->p->upper[i] - s->p->lower[i];
    }
    if (!status)
        sort_list(s, keys, key);
    if (!status && s->is_by_size) {
        berth__sort_indices(s->list, (uint32_t *)keys, count, larger_first, s->p->size);
    } else if (!status) {
        status = find_grades(s, order == BERTH__PACK_TIGHT ? GRADES_FINE : GRADES_COARSE, key);
        if (!status)
            sort_list(s, keys, key);
    }
    berth__heap_free(key);
    berth__heap_free(keys);
    return status;
}

/* ---- Placing ------------------------------------------------------------------------------------- */

/* Counts the work since it was last asked. */
static bool is_over(packing *s)
{
    const uint64_t looks = s->looks + s->tree.looked_at;
    s->tree.looked_at = 0;
    s->looks = looks % LOOKS_A_STEP;
    return looks >= LOOKS_A_STEP &&
           (berth__search_step(s->search, looks / LOOKS_A_STEP) || s->search->steps >= s->step_limit);
}

static berth_status pack_put(packing *s, uint32_t item, uint64_t offset)
{
    BERTH_DCHECK(s->offsets[item] == BERTH_NO_OFFSET, "[L2] an item is placed once");
    BERTH_DCHECK(offset != BERTH_NO_OFFSET, "[L14] what is taken has a place");
    s->offsets[item] = offset;
    return berth__gaptree_take(&s->tree, item, offset) ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status pack_place(packing *s, uint32_t item)
{
    uint64_t offset;
    if (!berth__gaptree_find(&s->tree, item, s->lid, !s->is_by_size, &offset))
        return BERTH_OUT_OF_HOST_MEMORY;
    if (offset != BERTH_NO_OFFSET) {
        BERTH_DCHECK(offset + s->p->size[item] <= s->lid, "[L14] nothing is placed above the lid");
        return pack_put(s, item, offset);
    }
    BERTH_DCHECK(s->aside_count < s->p->item_count && s->offsets[item] == BERTH_NO_OFFSET,
                 "[L10] what is set aside has no place");
    s->aside[s->aside_count++] = item;
    return BERTH_OK;
}

/* What was set aside, the largest first, as low as it goes. */
static berth_status put_back(packing *s)
{
    berth_status status = BERTH_OK;
    berth__sort_indices(s->aside, s->list, s->aside_count, larger_first, s->p->size);
    for (uint32_t k = 0; k < s->aside_count && !status && !is_over(s); k++) {
        uint64_t offset = BERTH_NO_OFFSET;
        s->looks += LOOKS_A_STEP;
        status = berth__gaptree_find(&s->tree, s->aside[k], INT64_MAX, true, &offset)
                     ? BERTH_OK
                     : BERTH_OUT_OF_HOST_MEMORY;
        if (!status)
            status = pack_put(s, s->aside[k], offset);
    }
    return status;
}

static berth_status place_all(packing *s)
{
    const berth__prepared *p = s->p;
    berth_status status = BERTH_OK;
    for (uint32_t i = 0; i < p->item_count && !status; i++) /* pins first, since they cannot give way */
        if (berth__item_fixed(p, i) != BERTH_NO_OFFSET)
            status = pack_put(s, i, p->fixed[i]);
    for (uint32_t k = 0; k < p->item_count && !status; k++) {
        const uint32_t item = s->list[k];
        BERTH_DCHECK(item < p->item_count, "[L10] the list has every item");
        if (s->offsets[item] != BERTH_NO_OFFSET)
            continue;
        status = pack_place(s, item);
        s->looks += LOOKS_A_STEP / 2;
        if (!status && (is_over(s) || s->aside_count > LEFT_AT_MOST))
            return BERTH_OK;
    }
    return status ? status : put_back(s);
}

/* ---- A run --------------------------------------------------------------------------------------- */

static berth_status pack(packing *s, berth__pack_order order)
{
    const size_t count = s->p->item_count;
    s->list = berth__heap_alloc(count * sizeof *s->list);
    s->aside = berth__heap_alloc(count * sizeof *s->aside);
    if (!s->list || !s->aside || !berth__gaptree_init(&s->tree, s->p))
        return BERTH_OUT_OF_HOST_MEMORY;
    berth_status status = make_list(s, order);
    return status ? status : place_all(s);
}

static bool is_whole(const packing *s)
{
    for (uint32_t i = 0; i < s->p->item_count; i++)
        if (s->offsets[i] == BERTH_NO_OFFSET)
            return false;
    return true;
}

berth_status berth__pack_run(berth__search *search, berth__pack_order order, uint64_t capacity,
                             uint64_t steps, uint64_t *offsets, uint64_t *peak)
{
    packing s = {.search = search,
                 .p = search->prepared,
                 .lid = capacity,
                 .is_by_size = order == BERTH__PACK_SIZE || order == BERTH__PACK_SIZE_LATE,
                 .step_limit = berth__search_limit(search, steps),
                 .offsets = offsets};
    memset(offsets, 0xff, (size_t)s.p->item_count * sizeof *offsets); /* BERTH_NO_OFFSET */
    berth_status status = pack(&s, order);
    *peak = !status && is_whole(&s) ? berth__prepared_peak(s.p, offsets) : UINT64_MAX;
    BERTH_DCHECK(*peak == UINT64_MAX || *peak >= s.p->max_live, "[L3] no plan ends below what is live");
    if (status)
        status = berth__fail(status, "no memory to pack %u items", s.p->item_count);
    berth__gaptree_finish(&s.tree);
    berth__heap_free(s.list);
    berth__heap_free(s.aside);
    return status;
}

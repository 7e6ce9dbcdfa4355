/* Phase B. The skyline of phase A loses what it builds over. Here the capacity is fixed first, at the bound
 * itself, and then an order; each item goes
 *
 *     lid  - - - - - - - - - - - -          1. on the skyline as it is by then, if it ends below the lid there;
 *               ####                        2. else into the tightest gap (...) that was built over;
 *           ###########  ###                3. else it is set aside, and put back at the end as low as it goes.
 *           ####...########.###
 *           ####################
 *
 * Which order suits depends on the program. Where the fullest moments decide, those that live through one go
 * first, in grades of how full, and long lives before short ones: nothing may be wasted there, and all others
 * have room to spare. A decoder's caches are a few slots in disguise, each filled by buffers that are a little
 * larger than the last: packed tightly by time, the early ones spoil the slots that the late ones need; in
 * order of size the late ones choose first. Few are left over in an order that suits, and repair finishes. */
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
    uint64_t step_limit;
    uint64_t *offsets;
    uint32_t *list;  /* the items in order */
    uint32_t *aside; /* those that did not fit */
    uint32_t aside_count;
    uint64_t looks; /* not yet counted as steps */
    berth__heights heights;
    berth__gaptree tree;
} packing;

/* ---- The order ----------------------------------------------------------------------------------- */

/* How full the fullest moment of each item's life is. */
static berth_status find_grades(packing *s, uint64_t grades, uint32_t *grade)
{
    uint64_t *load = berth__heap_alloc((size_t)s->p->column_count * sizeof *load);
    if (!load)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth__bound_loads(s->p, load);
    for (uint32_t c = 0; c < s->p->column_count; c++)
        berth__heights_raise(&s->heights, c, c + 1, load[c]);
    berth__heap_free(load);
    for (uint32_t i = 0; i < s->p->item_count; i++) {
        const uint64_t most = berth__heights_most(&s->heights, s->p->lower[i], s->p->upper[i]);
        const double part = (double)most / (double)s->lid * (double)grades;
        grade[i] = part < (double)(grades - 1) ? (uint32_t)part : (uint32_t)(grades - 1);
    }
    berth__heights_clear(&s->heights);
    return BERTH_OK;
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
        key[i] = s->p->upper[i] - s->p->lower[i];
    }
    if (!status)
        sort_list(s, keys, key);
    if (!status && order == BERTH__PACK_SIZE) {
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

static berth_status put(packing *s, uint32_t item, uint64_t offset)
{
    const berth__prepared *p = s->p;
    s->offsets[item] = offset;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++)
        berth__heights_raise(&s->heights, p->piece_lower[k], p->piece_upper[k], offset + p->piece_size[k]);
    return berth__gaptree_take(&s->tree, item, offset) ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static uint64_t skyline_under(const packing *s, uint32_t item)
{
    const berth__prepared *p = s->p;
    uint64_t height = 0;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++) {
        const uint64_t here = berth__heights_most(&s->heights, p->piece_lower[k], p->piece_upper[k]);
        height = here > height ? here : height;
    }
    return berth__item_align(p, item, height);
}

static berth_status place(packing *s, uint32_t item)
{
    uint64_t offset = skyline_under(s, item);
    if ((offset > s->lid || s->lid - offset < s->p->size[item]) &&
        !berth__gaptree_find(&s->tree, item, s->lid, true, &offset))
        return BERTH_OUT_OF_HOST_MEMORY;
    if (offset != BERTH_NO_OFFSET)
        return put(s, item, offset);
    s->aside[s->aside_count++] = item;
    return BERTH_OK;
}

static berth_status place_all(packing *s)
{
    const berth__prepared *p = s->p;
    berth_status status = BERTH_OK;
    for (uint32_t i = 0; i < p->item_count && !status; i++) /* pins first, since they cannot give way */
        if (berth__item_fixed(p, i) != BERTH_NO_OFFSET)
            status = put(s, i, p->fixed[i]);
    for (uint32_t k = 0; k < p->item_count && !status; k++) {
        const uint32_t item = s->list[k];
        if (s->offsets[item] != BERTH_NO_OFFSET)
            continue;
        status = place(s, item);
        s->looks += LOOKS_A_STEP / 2;
        if (!status && (is_over(s) || s->aside_count > LEFT_AT_MOST))
            return BERTH_OK;
    }
    /* what was set aside, the largest first */
    berth__sort_indices(s->aside, s->list, s->aside_count, larger_first, p->size);
    for (uint32_t k = 0; k < s->aside_count && !status && !is_over(s); k++) {
        uint64_t offset = BERTH_NO_OFFSET;
        s->looks += LOOKS_A_STEP;
        status = berth__gaptree_find(&s->tree, s->aside[k], INT64_MAX, true, &offset)
                     ? BERTH_OK
                     : BERTH_OUT_OF_HOST_MEMORY;
        if (!status)
            status = put(s, s->aside[k], offset);
    }
    return status;
}

/* ---- A run --------------------------------------------------------------------------------------- */

static berth_status pack(packing *s, berth__pack_order order)
{
    const size_t count = s->p->item_count;
    s->list = berth__heap_alloc(count * sizeof *s->list);
    s->aside = berth__heap_alloc(count * sizeof *s->aside);
    if (!s->list || !s->aside || !berth__heights_init(&s->heights, s->p->column_count) ||
        !berth__gaptree_init(&s->tree, s->p))
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
                 .step_limit = berth__search_limit(search, steps),
                 .offsets = offsets};
    memset(offsets, 0xff, (size_t)s.p->item_count * sizeof *offsets); /* BERTH_NO_OFFSET */
    berth_status status = pack(&s, order);
    *peak = !status && is_whole(&s) ? berth__prepared_peak(s.p, offsets) : UINT64_MAX;
    if (status)
        status = berth__fail(status, "no memory to pack %u items", s.p->item_count);
    berth__heights_finish(&s.heights);
    berth__gaptree_finish(&s.tree);
    berth__heap_free(s.list);
    berth__heap_free(s.aside);
    return status;
}

/* Levels within `auto`. Most of a large program is dust: small, short-lived, and there is room for it nearly anywhere. What
 * decides are few, and among few a plan is found, and repaired, in a fraction of the time. So the largest thousand are planned
 * first; then twice as many, those that have a place as a frame and the others in the valleys around it; and so on.
 *
 *     bound - - - - - - - - - -      - - - - - - - - - -      - - - - - - - - - -
 *                  ####                     ####++               ..  ####++......
 *           #####  ####         ->   #####++####++++        ->  #####++####++++..
 *           #####  ########          #####++########            #####++########..
 *           a thousand               and as many around them    and so on, to all
 *
 * Each level is repaired before the next begins, with all of its items free to move: where a few hundred are in the way of
 * one later, a few are now. A level is planned from nothing too while it is small, and whichever is lower is the next
 * level's frame. One whose plan is no better than the best plan of the whole leads nowhere, and the rest is left out.
 * Pins would have to be on the first level, whatever their size: problems with pins are left to others. */
#include <string.h>

#include "base/sort.h"
#include "planner/engine/part.h"
#include "planner/engine/phases.h"
#include "planner/improve/repair.h"
#include "planner/place/frame.h"
#include "planner/place/valley.h"
#include "planner/problem/subset.h"

enum {
    FIRST_LEVEL = 1000, /* items, at least */
    REPAIR_PART = 16,   /* a level's repair gets one of so many parts of the steps */
    SMALL_PART = 4,     /* a level is small if it has at most one of so many parts of the items */
    BY_WEIGHT = 3,      /* of so many by weight one is listed by size alone, since it may be huge and brief */
    KINDS = 3,
    A_KIND = 20 /* steps an item that one kind takes without repairs */
};

typedef struct levels {
    berth__search *search;
    uint32_t *order;   /* all items, the largest first */
    uint64_t *offsets; /* by item: where the last level has it; BERTH_NO_OFFSET: on none yet */
    uint64_t peak;     /* of the last level */
    uint64_t share;    /* steps of one repair */
} levels;

/* ---- What is large ------------------------------------------------------------------------------- */

/* Life times size, with more weight to the one or the other. Products only: the same bits on every machine. */
static double weight_of(const berth__prepared *p, uint32_t item, unsigned kind)
{
    const double life = (double)(p->upper[item] - p->lower[item]), size = (double)p->size[item];
    BERTH_DCHECK(life > 0 && size > 0, "[L7] every item has a life and a size");
    return kind == 0 ? life * size : kind == 1 ? life * life * size : life * size * size;
}

static int heavier_first(const void *context, uint32_t a, uint32_t b)
{
    const double *weight = context;
    return (weight[a] < weight[b]) - (weight[a] > weight[b]);
}

/* The next of a list that is not in `order` yet is appended to it. */
static uint32_t append_next(levels *l, const uint32_t *list, uint32_t *at, uint8_t *is_in, uint32_t count)
{
    const uint32_t items = l->search->prepared->item_count;
    while (*at < items && is_in[list[*at]])
        ++*at;
    if (*at == items)
        return count;
    is_in[list[*at]] = 1;
    l->order[count] = list[*at];
    return count + 1;
}

static berth_status make_order(levels *l, unsigned kind)
{
    const berth__prepared *p = l->search->prepared;
    const size_t count = p->item_count;
    uint32_t *list = berth__heap_alloc(count * 3 * sizeof *list), listed = 0, at[2] = {0};
    double *weight = berth__heap_alloc(count * sizeof *weight);
    uint8_t *is_in = berth__heap_zalloc(count, sizeof *is_in);
    berth_status status = list && weight && is_in ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    for (unsigned by_size = 0; by_size < 2 && !status; by_size++) {
        uint32_t *half = list + by_size * count;
        for (uint32_t i = 0; i < count; i++) {
            half[i] = i;
            weight[i] = by_size ? (double)p->size[i] : weight_of(p, i, kind);
        }
        berth__sort_indices(half, list + 2 * count, (uint32_t)count, heavier_first, weight);
    }
    while (!status && listed < count) {
        for (unsigned k = 0; k < BY_WEIGHT; k++)
            listed = append_next(l, list, &at[0], is_in, listed);
        listed = append_next(l, list + count, &at[1], is_in, listed);
    }
    berth__heap_free(list);
    berth__heap_free(weight);
    berth__heap_free(is_in);
    return status;
}

/* ---- A level ------------------------------------------------------------------------------------- */

/* By what a valley chooses: those that are best most often come first. */
static const unsigned ways[BERTH__VALLEY_VARIANTS] = {3, 0, 8, 5, 1, 2, 4, 6, 7, 9};

/* The smaller, the more: all levels together take about 20 steps an item. */
static unsigned ways_of(const levels *l, uint32_t count)
{
    const uint64_t items = l->search->prepared->item_count, own = count;
    return 12 * own <= items ? BERTH__VALLEY_VARIANTS : SMALL_PART * own <= items ? 5 : 2;
}

/* Around what the last level has, then from nothing; the search keeps the best. */
static berth_status place_level(berth__search *part, const uint64_t *frame, unsigned most, bool is_small,
                                uint64_t *offsets)
{
    berth_status status = BERTH_OK;
    for (unsigned k = 0; k < (is_small ? 2 * most : most) && !status && !part->stopped; k++) {
        uint64_t peak;
        status = k < most ? berth__frame_fill(part, frame, ways[k], offsets, &peak)
                          : berth__valley_run(part, ways[k - most], part->best_peak, offsets, &peak);
        if (!status && peak < part->best_peak)
            berth__search_offer(part, offsets, "levels");
    }
    return status;
}

/* The first `count` of the order. */
static berth_status plan_level(levels *l, const berth__subset *subset, uint64_t steps, uint64_t *room)
{
    const uint32_t count = subset->prepared.item_count;
    uint64_t *frame = room, *offsets = room + count;
    berth__search part = berth__part_begin(l->search, &subset->prepared, room + 2 * (size_t)count);
    part.lower_bound = subset->prepared.max_live; /* its own, but at the whole's goal it ends */
    part.capacity = berth__search_goal(l->search);
    part.minimise = false;
    for (uint32_t k = 0; k < count; k++)
        frame[k] = l->offsets[subset->item[k]];
    const bool is_small = count <= l->search->prepared->item_count / SMALL_PART;
    berth_status status = place_level(&part, frame, ways_of(l, count), is_small, offsets);
    if (!status && !part.stopped && steps > 0)
        status = berth__repair(&part, steps);
    for (uint32_t k = 0; k < count && part.best_peak != UINT64_MAX; k++)
        l->offsets[subset->item[k]] = part.best[k];
    l->peak = part.best_peak;
    berth__part_end(l->search, &part);
    return status;
}

static berth_status run_level(levels *l, uint32_t count, uint64_t steps)
{
    berth__subset subset;
    berth_status status = berth__subset_init(&subset, l->search->prepared, l->order, count);
    if (berth__search_step(l->search, count / 2)) { /* it was cut out and sorted */
        berth__subset_finish(&subset);
        return status;
    }
    uint64_t *room = status ? NULL : berth__heap_alloc((size_t)count * 3 * sizeof *room);
    if (room)
        status = plan_level(l, &subset, steps, room);
    else if (!status)
        status = BERTH_OUT_OF_HOST_MEMORY;
    berth__heap_free(room);
    berth__subset_finish(&subset);
    return status;
}

/* ---- All of them --------------------------------------------------------------------------------- */

/* So many in the first level that each next one is twice as large, and the last has all. */
static uint32_t first_level(uint32_t items)
{
    while (items / 2 >= FIRST_LEVEL)
        items = items / 2 + items % 2;
    return items;
}

/* A repair's share, unless what is left is needed for the levels still to come. */
static uint64_t repair_steps(const levels *l, uint64_t step_limit)
{
    const berth__search *search = l->search;
    const uint64_t needed = (uint64_t)A_KIND * search->prepared->item_count;
    const uint64_t end =
        search->step_budget - needed < step_limit ? search->step_budget - needed : step_limit;
    const uint64_t left = search->steps < end ? end - search->steps : 0;
    return left < l->share ? left : l->share;
}

static berth_status run_kind(levels *l, unsigned kind, uint64_t step_limit)
{
    berth__search *search = l->search;
    const uint32_t items = search->prepared->item_count;
    berth_status status = make_order(l, kind);
    berth__search_step(search, items);
    memset(l->offsets, 0xff, items * sizeof *l->offsets); /* BERTH_NO_OFFSET */
    for (uint32_t count = first_level(items); !status && !berth__search_step(search, 1);) {
        status = run_level(l, count, repair_steps(l, step_limit));
        if (status || search->stopped || l->peak >= search->best_peak || count == items)
            break;
        count = count < items / 2 ? count * 2 : items;
    }
    if (!status && l->peak < search->best_peak && l->offsets[l->order[items - 1]] != BERTH_NO_OFFSET)
        berth__search_offer(search, l->offsets, "levels");
    return status;
}

berth_status berth__phase_levels(berth__search *search, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    const uint64_t left = search->step_budget > search->steps ? search->step_budget - search->steps : 0;
    if (p->piece_first || p->fixed || p->item_count < 2 * FIRST_LEVEL || left / A_KIND < p->item_count)
        return BERTH_OK;
    const uint64_t step_limit = berth__search_limit(search, steps);
    levels l = {.search = search,
                .order = berth__heap_alloc((size_t)p->item_count * sizeof *l.order),
                .offsets = berth__heap_alloc((size_t)p->item_count * sizeof *l.offsets),
                .share = steps / REPAIR_PART};
    berth_status status = l.order && l.offsets ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    for (unsigned kind = 0; kind < KINDS && !status && berth__search_goes_on(search, step_limit) &&
                            (search->step_budget - search->steps) / A_KIND >= p->item_count;
         kind++)
        status = run_kind(&l, kind, step_limit);
    berth__heap_free(l.order);
    berth__heap_free(l.offsets);
    return status ? berth__fail(status, "no memory to plan %u items in levels", p->item_count) : BERTH_OK;
}

/* A skyline is good at small things and bad at large ones: by the time a large item is reached, what it lies on is
 * uneven, and the unevenness below it is lost. First fit by size is good at large things and slow at many small
 * ones. So the largest are fitted first, each as low as it goes below the capacity, and stay; then the valleys are
 * filled up around them, which costs as much as without them.
 *
 *     capacity  - - - - - - - - - -      - - - - - - - - - -
 *                    ####                    +++####+++
 *                ########                ++++########++
 *                ##   ########   ->      ##+++########+
 *                ##   ########           ##+++########+
 *
 * A frame of a handful is enough for a compiler's graph whose peak a few huge buffers decide, where every other
 * order leaves out one that is huge or thousands that are small. */
#include "planner/place/frame.h"

#include <string.h>

#include "base/random.h"
#include "planner/place/fit.h"
#include "planner/place/gaptree.h"
#include "planner/place/pile.h"
#include "planner/place/valley.h"

/* How many are large is not known beforehand, nor whether by size, by area or at the fullest moment. Each row is the
 * best for some program; those that are right most often come first. */
typedef struct frame_kind {
    berth__fit_order order;
    uint32_t count; /* at least so many, and */
    uint32_t part;  /* one of so many; 0: none */
    unsigned valley;
    uint32_t groups;  /* of the pile that comes before them (pile.c); 0: there is none */
    bool is_mirrored; /* the pile */
} frame_kind;

static const frame_kind kinds[BERTH__FRAME_VARIANTS] = {
    {BERTH__FIT_BY_SIZE, 8, 0, BERTH__VALLEY_SCORES + BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_SIZE, 256, 0, BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_AREA, 8, 0, BERTH__VALLEY_ROOT_LIFE_SIZE, 0, false},
    {BERTH__FIT_BY_BREADTH, 16, 0, BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_SIZE, 1, 32, BERTH__VALLEY_ROOT_LIFE_SIZE, 0, false},
    {BERTH__FIT_BY_AREA, 512, 0, BERTH__VALLEY_ROOT_LIFE_SIZE, 0, false},
    {BERTH__FIT_BY_SIZE, 1, 64, BERTH__VALLEY_SCORES + BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_BREADTH, 32, 0, BERTH__VALLEY_SCORES + BERTH__VALLEY_ROOT_LIFE_SIZE, 0, false},
    {BERTH__FIT_BY_AREA, 64, 0, BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_SIZE, 1, 16, BERTH__VALLEY_LIFE, 0, false},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_LIFE, 8, false},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_SCORES + BERTH__VALLEY_LIFE, 16, true},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_SCORES + BERTH__VALLEY_LIFE, 1, true},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_LIFE, 32, false},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_SCORES + BERTH__VALLEY_LIFE, 1, false},
    {BERTH__FIT_BY_SIZE, 1024, 16, BERTH__VALLEY_LIFE, 4, false},
};

static uint32_t frame_count(const berth__prepared *p, const frame_kind *kind)
{
    const uint32_t part = kind->part ? p->item_count / kind->part : 0;
    const uint32_t count = part > kind->count ? part : kind->count;
    return count < p->item_count ? count : p->item_count;
}

/* The frame's items, in the order in which they are fitted. */
static berth_status list_frame(const berth__prepared *p, const frame_kind *kind, uint32_t *list,
                               uint32_t *count)
{
    uint32_t piled = 0;
    berth_status status = berth__fit_list(p, kind->order, list);
    if (!status && kind->groups)
        status = berth__pile_first(p, kind->groups, kind->is_mirrored, list, &piled);
    const uint32_t large = frame_count(p, kind), others = p->item_count - piled;
    *count = piled + (large < others ? large : others);
    BERTH_DCHECK(status || (*count > 0 && *count <= p->item_count), "[L10] a frame is made of items");
    return status;
}

/* Fits the frame. What does not fit below the capacity is left to the valleys. False: no memory. */
static bool fit_frame(berth__search *search, const uint32_t *list, uint32_t count, uint64_t capacity,
                      uint64_t step_limit, uint64_t *offsets)
{
    const berth__prepared *p = search->prepared;
    berth__gaptree tree;
    bool ok = berth__gaptree_init(&tree, p);
    for (uint32_t i = 0; p->fixed && ok && i < p->item_count; i++)
        if (p->fixed[i] != BERTH_NO_OFFSET) {
            offsets[i] = p->fixed[i];
            ok = berth__gaptree_take(&tree, i, offsets[i]);
        }
    for (uint32_t k = 0; k < count && ok && search->steps < step_limit; k++) {
        const uint32_t item = list[k];
        BERTH_DCHECK(item < p->item_count, "[L10] the list has every item");
        if (offsets[item] != BERTH_NO_OFFSET)
            continue;
        tree.looked_at = 0;
        ok = berth__gaptree_find(&tree, item, capacity, false, &offsets[item]);
        if (ok && offsets[item] != BERTH_NO_OFFSET)
            ok = berth__gaptree_take(&tree, item, offsets[item]);
        BERTH_DCHECK(offsets[item] == BERTH_NO_OFFSET || offsets[item] + p->size[item] <= capacity,
                     "[L14] nothing is placed above the lid");
        if (berth__search_step(search, tree.looked_at / BERTH__FIT_LOOKS_A_STEP))
            break;
    }
    berth__gaptree_finish(&tree);
    return ok;
}

/* The valleys see the frame as pins. What they count and whether they are stopped is the search's. */
berth_status berth__frame_fill(berth__search *search, const uint64_t *frame, unsigned valley,
                               uint64_t *offsets, uint64_t *peak)
{
    berth__prepared framed = *search->prepared;
    framed.fixed = (uint64_t *)(uintptr_t)frame; /* read only */
    berth__search inner = *search;
    inner.prepared = &framed;
    berth_status status = berth__valley_run(&inner, valley, search->best_peak, offsets, peak);
    BERTH_DCHECK(inner.steps >= search->steps && inner.best_peak == search->best_peak,
                 "[L6] steps are never given back, and valleys offer nothing themselves");
    search->steps = inner.steps;
    search->next_report = inner.next_report;
    search->stopped = inner.stopped;
    search->stop = inner.stop;
    return status;
}

/* One kind of frame; see berth__frame_run. */
static berth_status run_kind(berth__search *search, const frame_kind *kind, uint64_t capacity, uint64_t steps,
                             uint64_t *offsets, uint64_t *peak)
{
    const berth__prepared *p = search->prepared;
    const size_t count = p->item_count;
    const uint64_t step_limit = berth__search_limit(search, steps);
    *peak = UINT64_MAX;
    uint32_t *list = berth__heap_alloc(count * sizeof *list), fitted = 0;
    uint64_t *frame = berth__heap_alloc(count * sizeof *frame);
    berth_status status = list && frame ? list_frame(p, kind, list, &fitted) : BERTH_OUT_OF_HOST_MEMORY;
    if (!status) {
        memset(frame, 0xff, count * sizeof *frame); /* BERTH_NO_OFFSET */
        if (!fit_frame(search, list, fitted, capacity, step_limit, frame))
            status = BERTH_OUT_OF_HOST_MEMORY;
    }
    berth__heap_free(list);
    if (!status && !search->stopped && search->steps < step_limit)
        status = berth__frame_fill(search, frame, kind->valley, offsets, peak);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        status = berth__fail(status, "no memory to frame %zu items", count);
    berth__heap_free(frame);
    return status;
}

berth_status berth__frame_run(berth__search *search, unsigned variant, uint64_t capacity, uint64_t steps,
                              uint64_t *offsets, uint64_t *peak)
{
    BERTH_DCHECK(variant < BERTH__FRAME_VARIANTS, "[L18] a row of the table");
    return run_kind(search, &kinds[variant], capacity, steps, offsets, peak);
}

/* One like `kind`: from half as many to twice as many, and any way to fill the valleys; piles in more or fewer groups. */
static frame_kind vary(const berth__prepared *p, const frame_kind *kind, uint64_t *random)
{
    const uint64_t count = frame_count(p, kind), draw = berth__random(random);
    BERTH_DCHECK(count > 0, "[L10] a frame has an item");
    const uint64_t varied = count / 2 + draw % (count + count / 2 + 1);
    const uint32_t groups = kind->groups / 2 + (uint32_t)(draw >> 48) % (kind->groups + kind->groups / 2 + 1);
    return (frame_kind){.order = kind->order,
                        .count = (uint32_t)(varied ? varied : 1),
                        .valley = (unsigned)(draw >> 32) % BERTH__VALLEY_VARIANTS,
                        .groups = kind->groups && !groups ? 1 : groups,
                        .is_mirrored = kind->is_mirrored};
}

/* The rows [from, to) of the table first; then what gained last is varied, or any row if none did. As many misses in
 * a row as `patience`, and it is left to others. */
static berth_status run_rows(berth__search *search, unsigned from, unsigned to, unsigned patience,
                             uint64_t steps)
{
    const uint64_t step_limit = berth__search_limit(search, steps);
    uint64_t *offsets = berth__heap_alloc(search->prepared->item_count * sizeof *offsets), peak;
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets",
                           search->prepared->item_count);
    uint64_t random = search->seed ^ 0x9FB21C651E98DF25U;
    frame_kind gained = {0};
    berth_status status = BERTH_OK;
    unsigned misses = 0;
    for (unsigned k = from; !status && misses < patience && berth__search_goes_on(search, step_limit);
         k++, misses++) {
        const frame_kind kind = k < to         ? kinds[k]
                                : gained.count ? vary(search->prepared, &gained, &random)
                                               : vary(search->prepared, &kinds[k % to], &random);
        status =
            run_kind(search, &kind, berth__search_goal(search), step_limit - search->steps, offsets, &peak);
        if (!status && peak < search->best_peak) {
            gained = kind;
            misses = 0;
            berth__search_offer(search, offsets, kind.groups ? "pile" : "frame");
        }
    }
    berth__heap_free(offsets);
    return status;
}

berth_status berth__frames(berth__search *search, uint64_t steps)
{
    return run_rows(search, 1, BERTH__FRAME_PILES, BERTH__FRAME_PILES, steps);
}

berth_status berth__piles(berth__search *search, uint64_t steps)
{
    bool suits = false;
    berth_status status = berth__pile_suits(search->prepared, &suits);
    if (status || !suits)
        return status;
    return run_rows(search, BERTH__FRAME_PILES, BERTH__FRAME_VARIANTS,
                    BERTH__FRAME_VARIANTS - BERTH__FRAME_PILES, steps);
}

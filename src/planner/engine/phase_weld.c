/* The welded phase: the cheap methods once more, on the problem that welding leaves. Where items fit together
 * as they were once cut apart there is hardly anything left to place, whatever their number. Very many items
 * are welded only where they fill all time, since otherwise they are better placed than looked at ten times.
 */
#include "planner/engine/phases.h"
#include "planner/exact/exact.h"
#include "planner/merge/weld.h"
#include "planner/place/valley.h"

enum { VALLEYS = 4, LOOK_STEPS = 30000, MANY = 20000 };

/* Of the rectangle of all columns and the most live at least 98 in 100. */
bool berth__phase_weld_suits(const berth__prepared *p)
{
    double area = 0.0;
    for (uint32_t k = 0; k < p->piece_count; k++)
        area += (double)p->piece_size[k] * (double)(p->piece_upper[k] - p->piece_lower[k]);
    return area >= 0.98 * (double)p->max_live * (double)p->column_count;
}

/* Offers a plan of the welded problem as one of the whole. */
static void offer(berth__search *search, const berth__welded *welded, const uint64_t *offsets,
                  uint64_t *expanded)
{
    berth__welded_expand(welded, offsets, expanded);
    BERTH_DCHECK(berth__prepared_peak(search->prepared, expanded) <=
                     berth__prepared_peak(&welded->prepared, offsets),
                 "[L15] a plan of what is welded is one of the whole");
    berth__search_offer(search, expanded, "weld");
}

/* The valleys see the welded problem as theirs; what they count and whether they are stopped is the search's.
 */
static berth_status fill_valleys(berth__search *search, const berth__welded *welded, uint64_t *offsets,
                                 uint64_t *expanded)
{
    berth_status status = BERTH_OK;
    for (unsigned variant = 0; variant < VALLEYS && !search->stopped && !status; variant++) {
        berth__search inner = *search;
        uint64_t peak;
        inner.prepared = &welded->prepared;
        status = berth__valley_run(&inner, variant, search->best_peak, offsets, &peak);
        BERTH_DCHECK(inner.steps >= search->steps, "[L6] steps are never given back");
        search->steps = inner.steps;
        search->next_report = inner.next_report;
        search->stopped = inner.stopped;
        search->stop = inner.stop;
        if (!status && peak != UINT64_MAX)
            offer(search, welded, offsets, expanded);
    }
    return status;
}

static berth_status weld_look(berth__search *search, const berth__welded *welded, uint64_t *offsets,
                              uint64_t *expanded)
{
    const uint64_t left = search->step_budget - search->steps;
    const uint64_t steps = !berth__exact_can(search->prepared) ? left / 2 /* there will be no other chance */
                           : left / 16 < LOOK_STEPS            ? left / 16
                                                               : LOOK_STEPS;
    berth__exact *exact;
    berth__exact_answer answer = BERTH__EXACT_UNKNOWN;
    berth_status status = berth__exact_create(&welded->prepared, search->seed, BERTH__EXACT_BEST, &exact);
    if (!status)
        status = berth__exact_run(exact, search, berth__search_goal(search), steps, offsets, &answer);
    if (answer == BERTH__EXACT_FOUND)
        offer(search, welded, offsets, expanded);
    berth__exact_destroy(exact);
    return status;
}

static berth_status try_level(berth__search *search, berth__weld_level level, uint64_t *expanded)
{
    berth__welded welded;
    berth_status status = berth__weld(search->prepared, level, 0, search, &welded);
    if (status)
        return status;
    uint64_t *offsets = berth__heap_alloc(welded.prepared.item_count * sizeof *offsets);
    if (!offsets)
        status =
            berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", welded.prepared.item_count);
    else if (welded.prepared.item_count < search->prepared->item_count) {
        status = fill_valleys(search, &welded, offsets, expanded);
        if (!status && !search->stopped && berth__exact_can(&welded.prepared))
            status = weld_look(search, &welded, offsets, expanded);
    }
    berth__heap_free(offsets);
    berth__welded_finish(&welded);
    return status;
}

berth_status berth__phase_weld(berth__search *search)
{
    const uint32_t items = search->prepared->item_count;
    const bool is_many = items > MANY;
    if (is_many && !berth__phase_weld_suits(search->prepared))
        return BERTH_OK;
    uint64_t *expanded = berth__heap_alloc(items * sizeof *expanded);
    if (!expanded)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", items);
    berth_status status = BERTH_OK;
    for (int level = BERTH__WELD_LEVELS;
         level-- > (is_many ? BERTH__WELD_LEVELS - 1 : 0) && !status && !search->stopped;)
        status = try_level(search, (berth__weld_level)level, expanded);
    berth__heap_free(expanded);
    return status;
}

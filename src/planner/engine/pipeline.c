/* The table of `auto`'s phases, in the order in which they run, and the functions that start them. Each phase
 * begins with the best plan so far and offers what it finds; the search stops at the goal. */
#include "planner/engine/pipeline.h"

#include "planner/engine/phases.h"
#include "planner/improve/repair.h"
#include "planner/improve/window.h"
#include "planner/place/frame.h"
#include "planner/place/pack.h"
#include "planner/place/passes.h"
#include "planner/place/valley.h"
#include "planner/problem/prepared.h"

enum { WINDOW_ITEMS = 250, REPAIR_AN_ITEM = 50 };

/* ---- When they apply ----------------------------------------------------------------------------- */

static bool always(const berth__facts *f)
{
    (void)f;
    return true;
}

static bool if_short(const berth__facts *f)
{
    return f->is_short;
}

static bool if_short_not_many(const berth__facts *f)
{
    return f->is_short && !f->is_many; /* else it comes late */
}

static bool unless_short(const berth__facts *f)
{
    return !f->is_short;
}

static bool unless_short_or_many(const berth__facts *f)
{
    return !f->is_short && !f->is_many;
}

static bool if_many(const berth__facts *f)
{
    return f->is_many && !f->is_full;
}

static bool if_large(const berth__facts *f)
{
    return f->is_many;
}

static bool if_many_not_close(const berth__facts *f)
{
    return f->is_many && !f->is_full && !f->is_close;
}

static bool unless_few_or_vast(const berth__facts *f)
{
    return !f->is_few && !f->is_vast && !f->is_full;
}

static bool unless_few_or_many(const berth__facts *f)
{
    return !f->is_few && !f->is_many && !f->is_full;
}

static bool if_far(const berth__facts *f)
{
    return f->is_far && unless_few_or_vast(f);
}

static bool unless_far(const berth__facts *f)
{
    return !f->is_far && unless_few_or_vast(f);
}

static bool if_lean(const berth__facts *f)
{
    return f->is_lean && unless_few_or_vast(f);
}

static bool unless_lean_or_many(const berth__facts *f)
{
    return !f->is_lean && unless_few_or_many(f);
}

static bool if_few_or_full(const berth__facts *f)
{
    return (f->is_few || f->is_full) && !f->is_vast;
}

static bool if_dense(const berth__facts *f)
{
    return f->is_dense;
}

static bool if_few(const berth__facts *f)
{
    return f->is_few;
}

static bool unless_vast(const berth__facts *f)
{
    return !f->is_vast;
}

static bool unless_close(const berth__facts *f)
{
    return !f->is_close;
}

static bool if_vast_or_full(const berth__facts *f)
{
    return (f->is_vast || f->is_full) && !f->is_few && !f->is_close;
}

static bool unless_few_or_close(const berth__facts *f)
{
    return !f->is_few && !f->is_close;
}

static bool early_if_full(const berth__facts *f)
{
    return f->is_full && !f->is_few;
}

static bool early_if_full_not_many(const berth__facts *f)
{
    return f->is_full && !f->is_many;
}

static bool late_unless_full(const berth__facts *f)
{
    return !f->is_full && !f->is_few;
}

static bool late_unless_full_or_many(const berth__facts *f)
{
    return !f->is_full && !f->is_many;
}

/* ---- How they start ------------------------------------------------------------------------------ */

/* Offers what `place` makes of the variants [from, to), each for a part of the steps. */
typedef berth_status (*placing)(berth__search *search, unsigned variant, uint64_t steps, uint64_t *offsets,
                                uint64_t *peak);

static berth_status run_variants(berth__search *search, placing place, const char *name, unsigned from,
                                 unsigned to, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    const uint64_t step_limit = berth__search_limit(search, steps);
    uint64_t *offsets = berth__heap_alloc(p->item_count * sizeof *offsets), peak;
    BERTH_DCHECK(from < to && step_limit >= search->steps, "[L18] a phase has variants");
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", p->item_count);
    berth_status status = BERTH_OK;
    for (unsigned variant = from; variant < to && !search->stopped && !status; variant++) {
        if (variant > from && search->steps >= step_limit)
            break;
        status = place(search, variant, step_limit - search->steps, offsets, &peak);
        if (!status && peak != UINT64_MAX) {
            BERTH_DCHECK(peak == berth__prepared_peak(p, offsets), "[L3] the peak is the largest end");
            berth__search_offer(search, offsets, name);
        }
    }
    berth__heap_free(offsets);
    return status;
}

static berth_status place_valley(berth__search *search, unsigned variant, uint64_t steps, uint64_t *offsets,
                                 uint64_t *peak)
{
    /* Two steps an item, about. One that is not finished gains nothing, and of ten million costs seconds. */
    const uint64_t count = search->prepared->item_count;
    *peak = UINT64_MAX;
    if (variant > 0 && (steps == 0 || search->step_budget - search->steps < count + count / 2))
        return BERTH_OK;
    return berth__valley_run(search, variant, search->best_peak, offsets, peak);
}

static berth_status place_pass(berth__search *search, unsigned variant, uint64_t steps, uint64_t *offsets,
                               uint64_t *peak)
{
    return berth__pass_run(search, (berth__pass_order)variant, berth__search_goal(search), steps, offsets,
                           peak);
}

static berth_status place_pack(berth__search *search, unsigned variant, uint64_t steps, uint64_t *offsets,
                               uint64_t *peak)
{
    return berth__pack_run(search, (berth__pack_order)variant, berth__search_goal(search), steps, offsets,
                           peak);
}

static berth_status place_frame(berth__search *search, unsigned variant, uint64_t steps, uint64_t *offsets,
                                uint64_t *peak)
{
    return berth__frame_run(search, variant, berth__search_goal(search), steps, offsets, peak);
}

static berth_status first_frame(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_frame, "frame", 0, 1, steps);
}

static berth_status frames(berth__search *search, uint64_t steps)
{
    return berth__frames(search, steps);
}

static berth_status levels(berth__search *search, uint64_t steps)
{
    return berth__phase_levels(search, steps);
}

static berth_status piles(berth__search *search, uint64_t steps)
{
    return berth__piles(search, steps);
}

static berth_status first_pass(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pass, "pass", BERTH__PASS_LIFE_FINE, BERTH__PASS_LIFE_FINE + 1, steps);
}

static berth_status passes(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pass, "pass", BERTH__PASS_LIFE, BERTH__PASS_ORDERS, steps);
}

static berth_status first_valley(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_valley, "valley", 0, 1, steps);
}

static berth_status valleys(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_valley, "valley", 1, BERTH__VALLEY_VARIANTS, steps);
}

static berth_status pack_tight(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pack, "pack", BERTH__PACK_TIGHT, BERTH__PACK_TIGHT + 1, steps);
}

static berth_status pack_size(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pack, "pack", BERTH__PACK_SIZE, BERTH__PACK_SIZE + 1, steps);
}

static berth_status pack_size_late(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pack, "pack", BERTH__PACK_SIZE_LATE, BERTH__PACK_SIZE_LATE + 1, steps);
}

static berth_status packs(berth__search *search, uint64_t steps)
{
    return run_variants(search, place_pack, "pack", 0, BERTH__PACK_ORDERS, steps);
}

static berth_status greedy(berth__search *search, uint64_t steps)
{
    (void)steps; /* a step an item, to the end */
    return berth__solver_greedy.run(search);
}

static berth_status heuristics(berth__search *search, uint64_t steps)
{
    return berth__phase_heuristics(search, steps);
}

static berth_status fuse(berth__search *search, uint64_t steps)
{
    (void)steps; /* linear, and it divides what is left itself */
    return berth__phase_fuse(search, berth__pipeline_run);
}

static berth_status weld(berth__search *search, uint64_t steps)
{
    (void)steps;
    return berth__phase_weld(search);
}

static berth_status exact_look(berth__search *search, uint64_t steps)
{
    (void)steps;
    return berth__phase_exact_look(search);
}

static berth_status exact(berth__search *search, uint64_t steps)
{
    (void)steps; /* all there are: nothing else proves anything */
    return berth__phase_exact(search);
}

/* Repair gains most at first: not more for a longer budget. */
static berth_status repair(berth__search *search, uint64_t steps)
{
    const uint64_t most = REPAIR_AN_ITEM * (uint64_t)search->prepared->item_count + 10000000;
    return berth__repair(search, steps < most ? steps : most);
}

/* A plan that is far off needs another way to place, not repair. */
static berth_status repair_if_close(berth__search *search, uint64_t steps)
{
    const uint64_t goal = berth__search_goal(search);
    return search->best_peak - goal < goal / 50 ? repair(search, steps) : BERTH_OK;
}

static berth_status repair_to_the_end(berth__search *search, uint64_t steps)
{
    (void)steps;
    return berth__repair(search, UINT64_MAX);
}

/* First whether the bound can be reached at all, then what sticks out. */
static berth_status windows(berth__search *search, uint64_t steps)
{
    berth_status status = berth__window_bound(search, WINDOW_ITEMS, steps / 5 * 2);
    if (!status && !search->stopped)
        status = berth__window_improve(search, WINDOW_ITEMS, steps / 5 * 3);
    return status;
}

/* ---- The table ----------------------------------------------------------------------------------- */

/* clang-format off */
const berth__phase berth__phases[] = {
    /* name          what it does                                                         when                       %  n/8  */
    {"greedy",     "best fit in order of time, as most runtimes do it",                   if_short_not_many,         0,   0, greedy},
    {"heuristics", "first and best fit by size, area and breadth, each to its end",       if_short,                  0,   0, heuristics},
    {"pass",       "long lives first on a skyline below the bound, the rest in gaps",     if_many,                   0,  12, first_pass},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  if_many,                   0,   8, repair_if_close},
    {"valley",     "fills the lowest valley of the skyline, long lives first",            always,                    0,   0, first_valley},
    {"pack",       "first fit at the bound itself, the largest first",                    if_lean,                  20,  32, pack_size},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  if_lean,                   1,   2, repair},
    {"pack",       "the same, of equals those that start last first",                     if_lean,                  10,  32, pack_size_late},
    {"frame",      "the largest first, and all others in the valleys around them",        unless_few_or_vast,        5,  24, first_frame},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  if_large,                  4,   4, repair_if_close},
    {"valleys",    "the nine other ways to choose what goes into a valley",               unless_few_or_vast,       40,   0, valleys},
    {"valleys",    "the nine other ways to choose what goes into a valley",               if_vast_or_full,          15,   0, valleys},
    {"piles",      "all of the fullest moment in a pile, the largest, then valleys",      unless_few_or_vast,       45,  24, piles},
    {"levels",     "the largest first, then twice as many around them, each repaired",    if_far,                   80,   0, levels},
    {"pack",       "first fit at the bound itself, the fullest moments first",            unless_few_or_many,       15,   8, pack_tight},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  unless_few_or_vast,        8,   4, repair},
    {"frames",     "the same with other frames: by area, by breadth, more and fewer",     unless_few_or_vast,       35,  16, frames},
    {"pack",       "first fit at the bound itself, the largest first",                    unless_lean_or_many,      15,   8, pack_size},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  unless_few_or_vast,        8,   2, repair},
    {"levels",     "the largest first, then twice as many around them, each repaired",    unless_far,               80,   0, levels},
    {"greedy",     "best fit in order of time, as most runtimes do it",                   unless_short_or_many,      0,   0, greedy},
    {"fuse",       "joins what fits together, in linear time, and plans what is left",    early_if_full,             0,   0, fuse},
    {"weld",       "joins what fits together, surest first, and plans what is left",      early_if_full_not_many,    0,   0, weld},
    {"heuristics", "first and best fit by size, area and breadth, each to its end",       unless_short,             60,  48, heuristics},
    {"fuse",       "joins what fits together, in linear time, and plans what is left",    late_unless_full,          0,   0, fuse},
    {"valleys",    "the nine other ways to choose what goes into a valley",               if_few,                   30,   0, valleys},
    {"greedy",     "best fit in order of time, as most runtimes do it",                   if_many_not_close,         0,   0, greedy},
    {"packs",      "first fit at the bound itself, in three orders",                      if_few_or_full,           20,   8, packs},
    {"passes",     "first fit by life and by contention: the skyline, then the gaps",     unless_vast,              15,   8, passes},
    {"weld",       "joins what fits together, surest first, and plans what is left",      late_unless_full_or_many,  0,   0, weld},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  unless_few_or_vast,       50,   4, repair},
    {"exact",      "a first look at the goal: place or defer, explain, jump back",        always,                    0,   0, exact_look},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  unless_close,              1,   2, repair},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  if_dense,                 50,   2, repair},
    {"windows",    "the exact search on stretches of time, for the bound and the plan",   unless_few_or_close,      50,   8, windows},
    {"exact",      "the exact search over several capacities, to the proof if it can",    always,                    0,   0, exact},
    {"repair",     "takes out what sticks out and puts it in where least is in the way",  unless_close,              0,   0, repair_to_the_end},
    {NULL, NULL, NULL, 0, 0, NULL},
};
/* clang-format on */

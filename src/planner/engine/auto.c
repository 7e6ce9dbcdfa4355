/* `auto`: the pipeline. Cheap phases first, each starting from the best plan so far, until the plan is proven
 * optimal, fits where that is enough, or the step budget is used up:
 *
 *     pass          many items only: first fit by length of life at the bound itself, faster than a valley
 *     valley        one skyline, near-linear: within milliseconds there is a plan, often an optimal one
 *     repair        presses that plan; finishes what is nearly right
 *     weld          puts together what fits together, and fills valleys with what is left; later where there
 *                   are few items that leave much free, for which the next three are quicker
 *     fuse          the same where there are many items: the pipeline on what is left
 *     valleys       the other nine variants
 *     passes        first fit in other orders
 *     heuristics    what others use; auto is never worse than any of them
 *     windows       more than 2,048 items: exact search of stretches of time, for the bound and for the plan
 *     exact         up to 2,048 items, welded or whole: decides one capacity after another, to the proof if
 *                   there is time
 *     repair        whatever budget is left
 *
 * The budget is a number of steps, so that the answer is the same on a slow machine; a clock is the caller's
 * and speaks through the progress callback. */
#include "planner/engine/phases.h"
#include "planner/engine/solver.h"
#include "planner/exact/exact.h"
#include "planner/improve/repair.h"
#include "planner/improve/window.h"
#include "planner/place/fit.h"
#include "planner/place/passes.h"
#include "planner/place/valley.h"
#include "planner/problem/prepared.h"

/* A heuristic gets one of so many parts of the steps: auto is never worse than one that makes do with that.
 */
enum { HEURISTIC_SHARES = 32, WINDOW_ITEMS = 250 };

/* Steps by effort. One is a fifth of a microsecond in the exact search, a half where many items are placed,
 * so that the default is over within about two seconds, and sooner where there is little to search. Whatever
 * the effort, there are enough for a plan. */
static uint64_t steps_of(berth_effort effort, uint64_t item_count)
{
    uint64_t searched = 20000 + 100 * item_count * item_count, least = 4 * item_count;
    uint64_t most = item_count <= BERTH__EXACT_ITEMS ? 8000000 : 5000000;
    if (effort == BERTH_EFFORT_FAST) {
        searched = 20000 + 500 * item_count;
        most = 200000;
    }
    if (effort == BERTH_EFFORT_MAX) {
        searched = 10000000 * item_count;
        most = 1000000000;
        least = 2000 * item_count;
    }
    searched = searched < most ? searched : most;
    return searched > least ? searched : least;
}

/* The variants [from, to). After the first, none is begun above the limit, nor with fewer steps left than three
 * quarters of `steps_each`: of ten million items, one that is not finished costs seconds and gains nothing. */
static berth_status run_valleys(berth__search *search, unsigned from, unsigned to, uint64_t step_limit,
                                uint64_t steps_each)
{
    const berth__prepared *p = search->prepared;
    uint64_t *offsets = berth__heap_alloc(p->item_count * sizeof *offsets), peak;
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", p->item_count);
    berth_status status = BERTH_OK;
    for (unsigned variant = from; variant < to && !search->stopped && !status; variant++) {
        if (variant > 0 && (search->steps >= step_limit ||
                            search->step_budget - search->steps < steps_each - steps_each / 4))
            break;
        status = berth__valley_run(search, variant, search->best_peak, offsets, &peak);
        if (!status && peak != UINT64_MAX)
            berth__search_offer(search, offsets, "valley");
    }
    berth__heap_free(offsets);
    return status;
}

/* First-fit passes at the goal itself, in the orders [from, to), each for at most `steps`. */
static berth_status run_passes(berth__search *search, unsigned from, unsigned to, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    uint64_t *offsets = berth__heap_alloc(p->item_count * sizeof *offsets), peak;
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", p->item_count);
    berth_status status = BERTH_OK;
    for (unsigned order = from; order < to && !search->stopped && !status; order++) {
        status = berth__pass_run(search, (berth__pass_order)order, berth__search_goal(search), steps, offsets,
                                 &peak);
        if (!status && peak != UINT64_MAX)
            berth__search_offer(search, offsets, "pass");
    }
    berth__heap_free(offsets);
    return status;
}

/* How many pairs of pieces meet, which is how often a first or best fit looks at least. */
static berth_status count_meetings(const berth__prepared *p, uint64_t *meetings)
{
    uint32_t *first = berth__heap_zalloc((size_t)p->column_count + 1, 2 * sizeof *first);
    if (!first)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to count who meets whom");
    uint32_t *last = first + p->column_count + 1;
    for (uint32_t k = 0; k < p->piece_count; k++) {
        first[p->piece_lower[k]]++;
        last[p->piece_upper[k]]++;
    }
    uint64_t alive = 0;
    *meetings = 0;
    for (uint32_t c = 0; c < p->column_count; c++) {
        const uint64_t begin = first[c];
        alive -= last[c];
        *meetings += begin * alive + begin * (begin - (begin > 0)) / 2;
        alive += begin;
    }
    berth__heap_free(first);
    return BERTH_OK;
}

/* One heuristic for a share of the steps. A stop at the end of the share is not the end of the search. */
static berth_status run_heuristic(berth__search *search, const berth__solver *solver, uint64_t share)
{
    const uint64_t whole = search->step_budget;
    if (whole > search->steps && whole - search->steps > share)
        search->step_budget = search->steps + share;
    berth_status status = solver->run(search);
    search->step_budget = whole;
    if (search->stopped && search->stop == BERTH_STOP_STEPS && search->steps < whole) {
        search->stopped = false;
        search->stop = BERTH_STOP_DONE;
        search->next_report = search->steps;
    }
    return status;
}

/* Those that are best most often first. None is begun that cannot be finished with its share. */
static berth_status run_heuristics(berth__search *search)
{
    static const berth__solver *const all[] = {
        &berth__solver_best_fit_breadth, &berth__solver_best_fit_size, &berth__solver_first_fit_breadth,
        &berth__solver_first_fit_size,   &berth__solver_best_fit_area, &berth__solver_first_fit_area};
    const uint64_t share = search->step_budget / HEURISTIC_SHARES;
    uint64_t meetings = 0;
    berth_status status = count_meetings(search->prepared, &meetings);
    for (size_t k = 0; k < BERTH_COUNT_OF(all) && meetings / BERTH__FIT_LOOKS_A_STEP <= share && !status &&
                       !search->stopped;
         k++)
        status = run_heuristic(search, all[k], share);
    return status;
}

/* What most runtimes do, to the end and whatever is left of the steps: a step an item. */
static berth_status run_greedy(berth__search *search, bool *is_done)
{
    if (*is_done || (search->stopped && search->stop != BERTH_STOP_STEPS))
        return BERTH_OK;
    *is_done = true;
    return berth__solver_greedy.run(search);
}

static uint64_t part_of(const berth__search *search, unsigned percent)
{
    uint64_t left = search->step_budget > search->steps ? search->step_budget - search->steps : 0;
    return left / 100 * percent;
}

/* Repair gains most at first: it gets a part of what is left, but not more for a longer budget. */
static uint64_t repair_steps(const berth__search *search, unsigned percent)
{
    const uint64_t item_count = search->prepared->item_count;
    const uint64_t part = part_of(search, percent) + item_count / 4, most = 50 * item_count;
    return part < most ? part : most;
}

/* A pass of few items takes next to nothing; of many, one in an order that does not suit them may take long.
 */
static uint64_t pass_steps(const berth__search *search)
{
    return part_of(search, 5) + search->prepared->item_count;
}

/* Exact search where it is too large for the whole: first whether the bound can be reached at all, then for
 * what sticks out. */
static berth_status run_windows(berth__search *search)
{
    berth_status status = berth__window_bound(search, WINDOW_ITEMS, part_of(search, 20));
    if (!status && !search->stopped)
        status = berth__window_improve(search, WINDOW_ITEMS, part_of(search, 30));
    return status;
}

/* When the heuristics come, for so many steps an item: first of all where what comes before them might use up
 * the budget, since never to be worse than one of them is a promise; else after the first valley, or after
 * all of them. */
static unsigned heuristics_turn(uint64_t steps_an_item, bool is_large)
{
    if (is_large)
        return steps_an_item < 8 ? 0 : 1;
    return steps_an_item < 64 ? 0 : steps_an_item < 1000 ? 1 : 2;
}

static berth_status pipeline(berth__search *search)
{
    const berth__prepared *p = search->prepared;
    const uint64_t item_count = p->item_count;
    const bool is_large = item_count >= 50000, is_small = berth__exact_can(p);
    const bool is_full = berth__phase_weld_suits(p); /* then only putting together helps */
    const unsigned turn = heuristics_turn(search->step_budget / item_count, is_large);
    bool is_greedy_done = false;
    berth_status status = BERTH_OK;
#define PHASE(name, call)                                                    \
    if (!status && !search->stopped && !berth__search_phase(search, (name))) \
        status = (call);
#define HEURISTICS(at)                                           \
    if (turn == (at)) {                                          \
        if (!is_large) /* else it comes late */                  \
            PHASE("greedy", run_greedy(search, &is_greedy_done)) \
        PHASE("heuristics", run_heuristics(search))              \
    }
#define PUT_TOGETHER(now)                                  \
    if ((now) && !is_small)                                \
        PHASE("fuse", berth__phase_fuse(search, pipeline)) \
    if ((now) && !is_large)                                \
    PHASE("weld", berth__phase_weld(search))
    HEURISTICS(0)
    if (is_large && !is_full)
        PHASE("pass", run_passes(search, BERTH__PASS_LIFE, BERTH__PASS_LIFE + 1, item_count + item_count / 2))
    const uint64_t steps_before = search->steps;
    PHASE("valley", run_valleys(search, 0, 1, UINT64_MAX, 0))
    const uint64_t valley_steps = search->steps - steps_before;
    if (is_large && !is_full)
        PHASE("repair, first look", berth__repair(search, item_count / 2))
    HEURISTICS(1)
    PUT_TOGETHER(is_large || is_full)
    PHASE("valleys",
          run_valleys(search, 1, BERTH__VALLEY_VARIANTS, search->steps + part_of(search, 30), valley_steps))
    HEURISTICS(2)
    PHASE("greedy", run_greedy(search, &is_greedy_done))
    if (!is_small && !is_large && !is_full)
        PHASE("repair, first look", berth__repair(search, repair_steps(search, 10)))
    PHASE("passes", run_passes(search, is_large ? BERTH__PASS_LIFE + 1 : BERTH__PASS_LIFE, BERTH__PASS_ORDERS,
                               pass_steps(search)))
    PUT_TOGETHER(!is_large && !is_full)
    PHASE("exact, first look", berth__phase_exact_look(search))
    PHASE("repair", berth__repair(search, repair_steps(search, is_small ? 1 : 8)))
    if (!is_small)
        PHASE("windows", run_windows(search))
    PHASE("exact", berth__phase_exact(search))
    PHASE("repair to the end", berth__repair(search, UINT64_MAX))
#undef PUT_TOGETHER
#undef HEURISTICS
#undef PHASE
    return status ? status : run_greedy(search, &is_greedy_done);
}

static berth_status run(berth__search *search)
{
    if (search->step_budget == UINT64_MAX)
        search->step_budget = steps_of(search->effort, search->prepared->item_count);
    return pipeline(search);
}

const berth__solver berth__solver_auto = {
    .name = "auto",
    .about = "the whole pipeline, from a quick plan to a proven one; the default",
    .run = run};

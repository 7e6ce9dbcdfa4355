/* `auto`: goes through the pipeline's table (pipeline.c) until the plan is proven optimal, fits where that is
 * enough, or the step budget is used up.
 *
 * The budget is a number of steps, so that the answer is the same on a slow machine; a clock is the caller's
 * and speaks through the progress callback. */
#include <string.h>

#include "planner/engine/phases.h"
#include "planner/engine/pipeline.h"
#include "planner/engine/solver.h"
#include "planner/exact/exact.h"
#include "planner/problem/prepared.h"

enum {
    DENSE = 500,
    LEAN = 100,
    MANY = 50000,
    VAST = 200000,
    AN_ITEM = 45,
    CLOSE_PART = 1000,
    FAR_PART = 200
};

/* Steps by effort. One is a fifth of a microsecond in the exact search, a tenth to a half where many items are
 * placed, so that the default is over within about a second, and sooner where there is little to search. Whatever
 * the effort, there are enough for a plan; up to VAST items, for all heuristics too. */
static uint64_t steps_of(berth_effort effort, uint64_t item_count)
{
    uint64_t searched = 20000 + 100 * item_count * item_count;
    uint64_t least = item_count <= VAST ? AN_ITEM * item_count : 4 * item_count;
    uint64_t most = item_count <= BERTH__EXACT_ITEMS ? 8000000 : 6500000;
    if (effort == BERTH_EFFORT_FAST) {
        searched = 20000 + 500 * item_count;
        most = 200000;
        least = 4 * item_count;
    }
    if (effort == BERTH_EFFORT_MAX) {
        searched = 10000000 * item_count;
        most = 250000000;
        least = 60 * item_count;
    }
    searched = searched < most ? searched : most;
    return searched > least ? searched : least;
}

/* The columns of all lives together. */
static uint64_t lives_of(const berth__prepared *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->item_count; i++)
        sum += p->upper[i] - p->lower[i];
    return sum;
}

static berth__facts facts_of(const berth__search *search)
{
    const uint64_t item_count = search->prepared->item_count;
    const uint64_t steps_an_item = search->step_budget / item_count;
    const bool is_many = item_count >= MANY, is_few = berth__exact_can(search->prepared);
    const uint64_t lives = lives_of(search->prepared);
    BERTH_DCHECK(lives >= item_count, "[L7] every item has a life");
    return (berth__facts){
        .is_few = is_few,
        .is_dense = is_few && item_count >= DENSE && lives / item_count > item_count / 32,
        .is_lean =
            lives / search->prepared->column_count<LEAN, .is_many = is_many, .is_vast = item_count> VAST,
        .is_full = berth__phase_weld_suits(search->prepared),
        .is_short = steps_an_item < (is_many ? 8 : 64)};
}

/* Whether `name` is one of those that the caller leaves out, with commas between. */
static bool is_left_out(const berth__search *search, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = search->without; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* A million buffers within a thousandth of the goal took half a second; to go on takes another, and gains crumbs. */
static bool is_close(const berth__search *search, const berth__facts *facts)
{
    const uint64_t goal = berth__search_goal(search);
    return facts->is_vast && search->may_settle && search->best_peak <= goal + goal / CLOSE_PART;
}

/* Then another way to place is worth more than another try of one that has been tried. */
static bool is_far(const berth__search *search)
{
    const uint64_t goal = berth__search_goal(search);
    return search->best_peak == UINT64_MAX || search->best_peak > goal + goal / FAR_PART;
}

static uint64_t share_of(const berth__search *search, const berth__phase *phase)
{
    BERTH_DCHECK(phase->percent <= 100, "[L18] a phase gets a part of what is left");
    const uint64_t left = search->step_budget > search->steps ? search->step_budget - search->steps : 0;
    return left / 100 * phase->percent + (uint64_t)search->prepared->item_count * phase->eighths / 8;
}

berth_status berth__pipeline_run(berth__search *search)
{
    berth__facts facts = facts_of(search);
    berth_status status = BERTH_OK;
    for (const berth__phase *phase = berth__phases; phase->name && !status && !search->stopped; phase++) {
        facts.is_close = is_close(search, &facts);
        facts.is_far = is_far(search);
        if (phase->applies(&facts) && !is_left_out(search, phase->name) &&
            !berth__search_phase(search, phase->name))
            status = phase->run(search, share_of(search, phase));
    }
    BERTH_DCHECK(status || search->stopped || search->best_peak == UINT64_MAX ||
                     search->best_peak > berth__search_goal(search),
                 "[L6] a search ends at its goal");
    /* What most runtimes do costs a step an item, and comes in any case: never to be worse is a promise. */
    if (!status && search->stopped && search->stop == BERTH_STOP_STEPS && !is_left_out(search, "greedy"))
        status = berth__solver_greedy.run(search);
    return status;
}

/* The greatest effort begins with what the default does, so that it is never worse. */
static berth_status auto_run(berth__search *search)
{
    const uint64_t item_count = search->prepared->item_count;
    if (search->step_budget != UINT64_MAX)
        return berth__pipeline_run(search);
    if (search->effort != BERTH_EFFORT_MAX) {
        search->may_settle = true;
        search->step_budget = steps_of(search->effort, item_count);
        return berth__pipeline_run(search);
    }
    search->step_budget = steps_of(BERTH_EFFORT_DEFAULT, item_count);
    berth_status status = berth__pipeline_run(search);
    BERTH_DCHECK(steps_of(BERTH_EFFORT_MAX, item_count) >= search->step_budget,
                 "[L6] the greatest effort has the most steps");
    search->step_budget = steps_of(BERTH_EFFORT_MAX, item_count);
    if (!status && berth__search_resume(search))
        status = berth__pipeline_run(search);
    return status;
}

const berth__solver berth__solver_auto = {
    .name = "auto",
    .about = "the whole pipeline, from a quick plan to a proven one; the default",
    .run = auto_run};

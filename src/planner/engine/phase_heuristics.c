/* The heuristics that others use, within `auto`. One that has a buffer end as high as the best plan is given up
 * (fit.c), so that where the best plan is good they cost next to nothing. */
#include "planner/engine/phases.h"
#include "planner/place/fit.h"
#include "planner/problem/prepared.h"

/* One gets at least one of so many parts of the steps. */
enum { HEURISTIC_SHARES = 32 };

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
        BERTH_DCHECK(alive >= last[c], "[L9] no more ends than has begun");
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
    BERTH_DCHECK(search->step_budget <= whole, "[L6] a share is a part of the budget");
    search->step_budget = whole;
    berth__search_resume(search);
    return status;
}

/* What a heuristic takes at most: it looks at every pair that meets, up to a limit of its own. */
static uint64_t steps_to_the_end(const berth__prepared *p, uint64_t meetings)
{
    const uint64_t most = berth__fit_looks(p->item_count);
    return (meetings < most ? meetings : most) / BERTH__FIT_LOOKS_A_STEP + p->item_count;
}

/* Those that are best most often first. None is begun that cannot be finished with its share. */
berth_status berth__phase_heuristics(berth__search *search, uint64_t steps)
{
    static const berth__solver *const all[] = {
        &berth__solver_first_fit_size,    &berth__solver_best_fit_size,  &berth__solver_best_fit_breadth,
        &berth__solver_first_fit_breadth, &berth__solver_first_fit_area, &berth__solver_best_fit_area};
    const uint64_t least = search->step_budget / HEURISTIC_SHARES;
    const uint64_t step_limit = berth__search_limit(search, steps);
    uint64_t meetings = 0;
    berth_status status = count_meetings(search->prepared, &meetings);
    const uint64_t whole = steps_to_the_end(search->prepared, meetings);
    for (size_t k = 0; k < BERTH_COUNT_OF(all) && !status && !search->stopped; k++) {
        const uint64_t left = search->steps < step_limit ? step_limit - search->steps : 0;
        const uint64_t share = left > least ? left : least;
        if (whole <= share)
            status = run_heuristic(search, all[k], share);
    }
    return status;
}

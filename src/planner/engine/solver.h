/* What a solver is, and the search it takes part in: budget, progress, the best plan so far. */
#ifndef BERTH_PLANNER_ENGINE_SOLVER_H
#define BERTH_PLANNER_ENGINE_SOLVER_H

#include "base/base.h"
#include "berth/problem.h"

struct berth__prepared; /* plan/prepared.h */

/* One berth_solve in progress. Everything is in units of the prepared problem. Solvers read the limits, count
 * their steps, and offer what they find; none of them keeps a plan of its own, so that stopping at any moment
 * leaves the best one.
 *
 *     while (berth__search_goes_on(search, step_limit))        every loop that has no count of its own
 *     if (berth__search_step(search, items)) return BERTH_OK;  within: work that is more than a step
 *     berth__search_offer(search, offsets, "greedy");          a complete, valid plan
 *     berth__search_prove(search, bound);                      no plan is smaller than `bound`
 */
typedef struct berth__search {
    const struct berth__prepared *prepared;
    const char *solver; /* the name that is offered under unless a phase says otherwise */
    uint64_t seed;
    uint64_t capacity;   /* BERTH__NO_CAPACITY: none */
    bool minimise;       /* with a capacity: go on below it */
    const char *without; /* phases of `auto` to leave out, with commas between; NULL: none */
    berth_effort effort;
    uint64_t step_budget; /* UINT64_MAX: none */
    bool may_settle;      /* nobody asked for more: of very many buffers, near the goal is enough */

    uint64_t steps;
    uint64_t next_report; /* steps at which the progress callback is due */
    uint64_t reported_steps;
    berth_progress_fn progress;
    void *context;
    const char *phase;

    uint64_t lower_bound; /* proven; only grows */
    uint64_t best_peak;   /* UINT64_MAX: no plan yet */
    uint64_t *best;       /* one offset an item of `prepared` */
    char best_solver[32];

    bool stopped;
    berth_stop stop; /* why, once stopped */
} berth__search;

/* Counts `steps` of work (about one buffer looked at, each) and says whether to stop now. Cheap. Nothing is
 * free: a call spends one step at least, so that a loop that asks ends. */
bool berth__search_step_slow(berth__search *search);
static inline bool berth__search_step(berth__search *search, uint64_t steps)
{
    search->steps += steps + (steps == 0);
    return BERTH_UNLIKELY(search->steps >= search->next_report) ? berth__search_step_slow(search)
                                                                : search->stopped;
}

/* What every loop without a count of its own turns by: spends a step, and says whether there is another turn
 * before the search is over or has used `step_limit`. */
static inline bool berth__search_goes_on(berth__search *search, uint64_t step_limit)
{
    return !berth__search_step(search, 1) && search->steps < step_limit;
}

/* `steps` from now, as a limit for the above. */
static inline uint64_t berth__search_limit(const berth__search *search, uint64_t steps)
{
    return steps < UINT64_MAX - search->steps ? search->steps + steps : UINT64_MAX;
}

/* Goes on after a stop at a step budget that has been raised since. Returns whether the search goes on. */
bool berth__search_resume(berth__search *search);

/* Names the phase that begins; the progress callback sees it at once. `phase` is a literal. Returns whether
 * to stop now. */
bool berth__search_phase(berth__search *search, const char *phase);

/* Offers a complete valid plan, one offset an item; it is copied if it is the smallest so far. Returns
 * whether the search is over: proven optimal, or fitting where that is enough. */
bool berth__search_offer(berth__search *search, const uint64_t *offsets, const char *solver);

/* Tells that no plan is smaller than `bound`. Returns whether the search is over. */
bool berth__search_prove(berth__search *search, uint64_t bound);

/* The peak at which the search is over: the lower bound, or the capacity where fitting is enough. */
uint64_t berth__search_goal(const berth__search *search);

/* No plan leaves berth_solve without this: the independent checker proves it, and what the certificate says
 * about it agrees. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY, BERTH_INTERNAL. */
berth_status berth__prove(const berth_problem *problem, const uint64_t *offsets,
                          const berth_certificate *certificate);

typedef struct berth__solver {
    const char *name;
    const char *about; /* one line for --help */
    /* Offers at least one plan unless stopped before. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY, BERTH_INTERNAL. */
    berth_status (*run)(berth__search *search);
} berth__solver;

/* The table, "auto" first; it is in solve.c. */
extern const berth__solver berth__solver_auto;
extern const berth__solver berth__solver_greedy;
extern const berth__solver berth__solver_first_fit_size;
extern const berth__solver berth__solver_first_fit_area;
extern const berth__solver berth__solver_first_fit_breadth;
extern const berth__solver berth__solver_best_fit_size;
extern const berth__solver berth__solver_best_fit_area;
extern const berth__solver berth__solver_best_fit_breadth;

/* Told before the search and after it: in between nobody looks at the problem's buffers and gaps, so that their
 * owner may fold them away. Both are called, or neither. */
typedef struct berth__solve_pause {
    void (*begin)(void *context);
    void (*end)(void *context);
    void *context;
} berth__solve_pause;

/* berth_solve; `pause` may be NULL. */
berth_status berth__solve(const berth_problem *problem, const berth_solve_options *options, uint64_t *offsets,
                          berth_certificate *certificate, const berth__solve_pause *pause);

#endif

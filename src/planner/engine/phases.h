/* Phases of `auto` that put others together: what they try, in which order and for how long. */
#ifndef BERTH_PLANNER_ENGINE_PHASES_H
#define BERTH_PLANNER_ENGINE_PHASES_H

#include "planner/engine/solver.h"

/* All rows of the pipeline's table that apply (pipeline.h), until the search is over. */
berth_status berth__pipeline_run(berth__search *search);

/* The first-fit and best-fit heuristics: each to its end unless it ends above the best plan, for `steps` in all;
 * a thirty-second of the whole budget is each one's in any case, so that a short budget keeps the promise never
 * to be worse than one of them that makes do with that. */
berth_status berth__phase_heuristics(berth__search *search, uint64_t steps);

/* Whether very many items are better welded than placed one by one: they fill nearly all of the time. */
bool berth__phase_weld_suits(const struct berth__prepared *prepared);

/* Welds the items, fills valleys with what there is then, and takes a first look with the exact search where
 * that has become small enough. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__phase_weld(berth__search *search);

/* Plans a few of the largest, then twice as many around them, and so on up to all, and repairs each of these plans before it
 * goes on; then again with another idea of what is large. Items of one piece each, without pins, only.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__phase_levels(berth__search *search, uint64_t steps);

/* Fuses the items, in linear time where welding takes longer, and runs the pipeline on what is left if that
 * is markedly less. Plain problems only, and only those whose best plan is far from the goal: one that is
 * nearly right needs repair and not another plan. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__phase_fuse(berth__search *search, berth_status (*run)(berth__search *));

/* The exact search of the problem itself, and of it welded, over several capacities until it is decided, or a
 * first look with few steps at the goal alone. Does nothing where all of them are too large.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__phase_exact(berth__search *search);
berth_status berth__phase_exact_look(berth__search *search);

#endif

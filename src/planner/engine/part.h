/* A search of a part of a problem, or of what it was merged into, within the search of the whole. */
#ifndef BERTH_PLANNER_ENGINE_PART_H
#define BERTH_PLANNER_ENGINE_PART_H

#include "planner/engine/solver.h"

/* A search of `prepared` without a plan yet. It goes on counting the whole's steps, and what the caller hears meanwhile is the
 * whole's phase and plan. `best` has a place an item. */
berth__search berth__part_begin(berth__search *whole, const struct berth__prepared *prepared, uint64_t *best);

/* Takes over the steps, and a stop that is not the part's own. */
void berth__part_end(berth__search *whole, const berth__search *part);

#endif

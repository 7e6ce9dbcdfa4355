/* Phase C: press a plan into a smaller arena by taking out what sticks out and putting it back. */
#ifndef BERTH_PLANNER_IMPROVE_REPAIR_H
#define BERTH_PLANNER_IMPROVE_REPAIR_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

/* Improves the search's best plan for about `steps` steps, offering every better one. Needs about 40 bytes an
 * item. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__repair(berth__search *search, uint64_t steps);

#endif

/* Phase A: fill the lowest valley of the skyline. The first plan, and often the last. */
#ifndef BERTH_PLANNER_PLACE_VALLEY_H
#define BERTH_PLANNER_PLACE_VALLEY_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

/* Which of several fitting items goes into a valley first. */
typedef enum berth__valley_score {
    BERTH__VALLEY_LIFE,
    BERTH__VALLEY_SIZE,
    BERTH__VALLEY_LIFE_ROOT_SIZE,
    BERTH__VALLEY_ROOT_LIFE_SIZE,
    BERTH__VALLEY_AREA,
    BERTH__VALLEY_SCORES,
} berth__valley_score;

/* Variants 0 to BERTH__VALLEY_VARIANTS - 1: the five scores forward in time, then mirrored. */
enum { BERTH__VALLEY_VARIANTS = 2 * BERTH__VALLEY_SCORES };

/* Places all items by one variant and writes their offsets. `peak` is where the highest ends, or UINT64_MAX
 * if the search was stopped or the plan would not end below `limit`; the offsets are then of no use. Needs
 * about 45 bytes an item, 57 when mirrored. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__valley_run(berth__search *search, unsigned variant, uint64_t limit, uint64_t *offsets,
                               uint64_t *peak);

#endif

/* Phase B: everything in one order at the capacity that is aimed at; what does not fit is placed in gaps. */
#ifndef BERTH_PLANNER_PLACE_PASSES_H
#define BERTH_PLANNER_PLACE_PASSES_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

/* Orders of a pass: by length of life, in steps of a factor of two; the same in steps of its root; those that
 * live through the fullest moments first, in fine grades near the bound; and in coarse grades. */
typedef enum berth__pass_order {
    BERTH__PASS_LIFE,
    BERTH__PASS_LIFE_FINE,
    BERTH__PASS_CONTENTION,
    BERTH__PASS_CONTENTION_COARSE,
    BERTH__PASS_ORDERS,
} berth__pass_order;

/* One pass at `capacity`. `peak` is where the plan written to `offsets` ends, at `capacity` or below if all
 * found a place; UINT64_MAX if the search was stopped, or more than `steps` would be needed: the offsets are
 * then of no use. Needs about 20 bytes an item and 40 a column. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pass_run(berth__search *search, berth__pass_order order, uint64_t capacity,
                             uint64_t steps, uint64_t *offsets, uint64_t *peak);

#endif

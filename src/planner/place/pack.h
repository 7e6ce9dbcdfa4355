/* Phase B, first fit at the bound itself: in some order, each in the lowest or the tightest room below a lid.
 * What does not fit is set aside and put back at the end. */
#ifndef BERTH_PLANNER_PLACE_PACK_H
#define BERTH_PLANNER_PLACE_PACK_H

#include "planner/engine/solver.h"

typedef enum berth__pack_order {
    BERTH__PACK_TIGHT,        /* those of the fullest moments first, in 1,000 grades; then long lives */
    BERTH__PACK_SIZE,         /* the largest first, then those that end last */
    BERTH__PACK_SIZE_LATE,    /* the largest first, then those that start last */
    BERTH__PACK_TIGHT_COARSE, /* as the first, in 50 grades */
    BERTH__PACK_ORDERS,
} berth__pack_order;

/* Places all items and writes their offsets. `peak` is where the highest ends, or UINT64_MAX if the search was
 * stopped, the steps were used up or much was left over; the offsets are then of no use. Needs 24 bytes an item
 * and some 100 a column. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pack_run(berth__search *search, berth__pack_order order, uint64_t capacity,
                             uint64_t steps, uint64_t *offsets, uint64_t *peak);

#endif

/* The largest items as a frame, and all others in the valleys around it. */
#ifndef BERTH_PLANNER_PLACE_FRAME_H
#define BERTH_PLANNER_PLACE_FRAME_H

#include "planner/engine/solver.h"

/* What is large, how many are, and how the valleys are filled: a table in frame.c. */
enum {
    BERTH__FRAME_PILES = 10,
    BERTH__FRAME_VARIANTS = 16
}; /* those from BERTH__FRAME_PILES on begin with a pile */

/* Places all items by one variant, the frame below `capacity`, and writes their offsets. `peak` is where the
 * highest ends, or UINT64_MAX if the search was stopped, the steps were used up or the plan would not be the best;
 * the offsets are then of no use. Needs 20 bytes an item and what valley.h and gaptree.h say.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__frame_run(berth__search *search, unsigned variant, uint64_t capacity, uint64_t steps,
                              uint64_t *offsets, uint64_t *peak);

/* Places what has no offset in `frame` (BERTH_NO_OFFSET) in the valleys around what has, by one variant of valley.h; `peak` as
 * there, with the best plan's peak as the limit. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__frame_fill(berth__search *search, const uint64_t *frame, unsigned valley,
                               uint64_t *offsets, uint64_t *peak);

/* Offers the variants without a pile, but the first; those with one, if a pile suits. Then, until the steps are used up, ones like the
 * one that gained last. */
berth_status berth__frames(berth__search *search, uint64_t steps);
berth_status berth__piles(berth__search *search, uint64_t steps);

#endif

/* Windows: the exact search on a stretch of time of a problem that is too large for it as a whole. */
#ifndef BERTH_PLANNER_IMPROVE_WINDOW_H
#define BERTH_PLANNER_IMPROVE_WINDOW_H

#include "planner/engine/solver.h"
#include "planner/problem/overlap.h"

/* The problem of columns [lower, upper) alone: everything alive there, its life cut off at the borders. Made
 * by berth__window_cut, emptied by berth__window_finish. */
typedef struct berth__window {
    berth__prepared prepared;
    uint32_t *item; /* by item of the window: which it is in the whole problem */
} berth__window;

/* Cuts a window out of a problem without gaps. With `offsets`, what crosses a border is pinned where it is;
 * without, only what the problem pins. The index is the whole problem's. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY.
 */
berth_status berth__window_cut(berth__window *window, const berth__overlap *overlap, uint32_t lower,
                               uint32_t upper, const uint64_t *offsets);
void berth__window_finish(berth__window *window);

/* Raises the search's lower bound: where a window with at most `most` items has no plan at a capacity,
 * neither has the whole. Looks at windows around the fullest moments for about `steps` steps. Does nothing
 * for items of several pieces. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__window_bound(berth__search *search, uint32_t most, uint64_t steps);

/* Lowers the search's best plan: what sticks out is placed anew together with all that lies in a window
 * around it, while what crosses the window's borders stays. For about `steps` steps; windows have at most
 * `most` items. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__window_improve(berth__search *search, uint32_t most, uint64_t steps);

#endif

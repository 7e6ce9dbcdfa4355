/* Fitting one buffer after the other between those placed before: which order, and which gap. */
#ifndef BERTH_PLANNER_PLACE_FIT_H
#define BERTH_PLANNER_PLACE_FIT_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

typedef enum berth__fit_order {
    BERTH__FIT_BY_TIME,
    BERTH__FIT_BY_SIZE,
    BERTH__FIT_BY_AREA,
    BERTH__FIT_BY_BREADTH,
} berth__fit_order;

/* A look at one that is placed already is that much cheaper than placing one. */
enum { BERTH__FIT_LOOKS_A_STEP = 8 };

/* So many looks are taken for so many items at most; then the rest is put above. */
static inline uint64_t berth__fit_looks(uint64_t item_count)
{
    return item_count * 64 + ((uint64_t)2 << 20);
}

typedef enum berth__fit_rule { BERTH__FIT_FIRST, BERTH__FIT_BEST } berth__fit_rule;

/* Places all items and offers the plan as `name`. Pins, pieces and alignments are seen exactly. Bounded work:
 * past a limit that grows with the number of items, the rest is put above in order of time.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__fit(berth__search *search, berth__fit_order order, berth__fit_rule rule,
                        const char *name);

/* Writes the items in this order; `list` has item_count places. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__fit_list(const berth__prepared *prepared, berth__fit_order order, uint32_t *list);

/* Places items whose offset is BERTH_NO_OFFSET by time-ordered best fit at `floor` and above; in greedy.c. Where
 * that comes to `limit` it is given up: *is_whole is false, and some have no offset. */
berth_status berth__greedy_above(berth__search *search, uint64_t floor, uint64_t limit, uint64_t *offsets,
                                 bool *is_whole);

#endif

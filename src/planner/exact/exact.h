/* Phase D: exact search. Decides whether all items fit below a capacity: a plan, a proof that there is none,
 * or no answer within the steps granted. For up to BERTH__EXACT_ITEMS items. */
#ifndef BERTH_PLANNER_EXACT_EXACT_H
#define BERTH_PLANNER_EXACT_EXACT_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

enum { BERTH__EXACT_ITEMS = 2048 };

/* Heights are 30-bit numbers of units in here; sums of two stay within 32 bits. */
#define BERTH__EXACT_HEIGHT ((uint64_t)1 << 30)

typedef enum berth__exact_answer {
    BERTH__EXACT_UNKNOWN = 0,
    BERTH__EXACT_FOUND = 1,
    BERTH__EXACT_INFEASIBLE = 2, /* proven: no plan ends at or below the capacity */
} berth__exact_answer;

/* Which code adds up the sections. Every path gives the same answers after the same number of steps. */
typedef enum berth__exact_path {
    BERTH__EXACT_BEST, /* what the processor has */
    BERTH__EXACT_BASELINE,
    BERTH__EXACT_AVX2,
} berth__exact_path;

/* Lives as long as one problem is being searched; keeps what it has learned from one call to the next. */
typedef struct berth__exact berth__exact;

/* Whether a problem is small enough, in items and in units. */
bool berth__exact_can(const berth__prepared *prepared);

/* BERTH_OK, BERTH_UNSUPPORTED (too large, or a path that this processor lacks), BERTH_OUT_OF_HOST_MEMORY.
 * Memory: n^2 words for the lists, n^2 / 8 bytes for the neighbours, and a trail that grows with the depth,
 * together some 10 MB for 400 items and at most about 200 MB for 2,000. */
berth_status berth__exact_create(const berth__prepared *prepared, uint64_t seed, berth__exact_path path,
                                 berth__exact **exact);
void berth__exact_destroy(berth__exact *exact);

/* Searches for a plan that ends at or below `capacity` for about `steps` steps, counted in `search`. On FOUND
 * the offsets are written. Called again with the same capacity it goes on with new orders and what it knows
 * about which sections are hard. */
berth_status berth__exact_run(berth__exact *exact, berth__search *search, uint64_t capacity, uint64_t steps,
                              uint64_t *offsets, berth__exact_answer *answer);

/* How many dead ends have been met so far, for reports and tests. */
uint64_t berth__exact_fails(const berth__exact *exact);

#endif

/* Lower bounds: sizes that no plan can go below, and what each column has to carry. All in units. */
#ifndef BERTH_PLANNER_PROBLEM_BOUND_H
#define BERTH_PLANNER_PROBLEM_BOUND_H

#include "planner/problem/prepared.h"

/* Writes how much is live in each column; `load` has column_count places. */
void berth__bound_loads(const berth__prepared *prepared, uint64_t *load);

/* The largest of all bounds that are had by looking: the most live, the end of every pin, and per column what
 * pins and alignments waste for certain. At least max_live. */
berth_status berth__bound(const berth__prepared *prepared, uint64_t *bound);

#endif

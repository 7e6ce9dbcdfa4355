/* The plan that is always there: what has no place yet goes above what has one. */
#ifndef BERTH_PLANNER_PLACE_STACK_H
#define BERTH_PLANNER_PLACE_STACK_H

#include "planner/problem/prepared.h"

/* Gives every item whose offset is BERTH_NO_OFFSET one above all that are placed, in order of time: the place
 * of one of about its size that is gone, else a new one on top. Pins go to their places first. One look at
 * each item, for when time is up; needs 8 bytes an item, and does without reusing places if there are none.
 * Returns the peak. */
uint64_t berth__stack_above(const berth__prepared *prepared, uint64_t *offsets);

#endif

/* The gaps between what is placed, during a stretch of time: opened once, then asked for many items. */
#ifndef BERTH_PLANNER_PLACE_GAPS_H
#define BERTH_PLANNER_PLACE_GAPS_H

#include "planner/problem/overlap.h"

/* Offsets [from, to) that are taken, throughout the stretch. */
typedef struct berth__taken {
    uint64_t from, to;
} berth__taken;

/* Offsets [from, to) that are taken during columns [lower, upper) only. */
typedef struct berth__taken_for {
    uint64_t from, to;
    uint32_t lower, upper;
} berth__taken_for;

/* Most of what lives during a short stretch lives all through it, stacked without holes between: as `whole`
 * it is a handful of intervals, however many items they are. */
typedef struct berth__gaps {
    berth__overlap *overlap; /* the caller's */
    berth__taken *whole;     /* upward, merged */
    berth__taken_for *part;  /* upward by `from` */
    berth__taken_for *unsorted;
    uint64_t *keys, *scratch;
    uint32_t whole_count, part_count;
    uint32_t room;      /* of each of the five */
    uint64_t looked_at; /* pieces and intervals, since the caller set it to 0 */
} berth__gaps;

/* An empty one; the index stays the caller's and must live as long. */
void berth__gaps_init(berth__gaps *gaps, berth__overlap *overlap);
void berth__gaps_finish(berth__gaps *gaps);

/* Looks at columns [lower, upper) as they are with these offsets; BERTH_NO_OFFSET: not placed. BERTH_OK,
 * BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__gaps_open(berth__gaps *gaps, const uint64_t *offsets, uint32_t lower, uint32_t upper);

/* The offset in the smallest gap that holds `item`, whose life lies inside the stretch, and ends at or below
 * `capacity`; BERTH_NO_OFFSET if there is none. An item of several pieces counts as its hull. */
uint64_t berth__gaps_find(berth__gaps *gaps, uint32_t item, uint64_t capacity);

/* Takes the place for `item`; the caller writes its offset. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__gaps_take(berth__gaps *gaps, uint32_t item, uint64_t offset);

#endif

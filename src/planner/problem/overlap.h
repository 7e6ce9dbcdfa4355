/* Who lives at the same time as an item, and where does that leave room for it? An index over all pieces that
 * never changes: which of them are placed is read from the offsets. */
#ifndef BERTH_PLANNER_PROBLEM_OVERLAP_H
#define BERTH_PLANNER_PROBLEM_OVERLAP_H

#include "planner/problem/prepared.h"

enum { BERTH__OVERLAP_LEVELS = 33 };

/* Offsets [from, to) that an item cannot have because of `item`, which it lives together with. */
typedef struct berth__forbidden {
    uint64_t from, to;
    uint32_t item;
} berth__forbidden;

/* Pieces by level, then by first column. Level k holds those that live more than 2^(k-1) and at most 2^k
 * columns, so that those alive in some stretch of time are next to each other in each level, among at most as
 * many again. */
typedef struct berth__overlap {
    const berth__prepared *prepared;
    uint32_t *pieces;
    uint32_t *item_of_piece; /* NULL: the same number */
    uint32_t level_first[BERTH__OVERLAP_LEVELS + 1];

    berth__forbidden *found; /* what the last look found, by `from` */
    uint32_t found_count, found_room;
    berth__forbidden *unsorted;
    uint64_t *keys, *scratch;
    uint64_t looked_at; /* pieces, since the caller set it to 0 */
} berth__overlap;

/* BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. Needs 4 bytes a piece and some more for what it finds. */
berth_status berth__overlap_init(berth__overlap *overlap, const berth__prepared *prepared);
void berth__overlap_finish(berth__overlap *overlap);

/* Finds what forbids `item` some offsets, among items whose offset is not BERTH_NO_OFFSET. */
berth_status berth__overlap_look(berth__overlap *overlap, const uint64_t *offsets, uint32_t item);

/* Where, among the pieces of a level, those begin that can be alive at `column` or later: the first that
 * starts less than the level's longest life before it. */
uint32_t berth__overlap_first(const berth__overlap *overlap, unsigned level, uint32_t column);

/* How many pieces are alive in [lower, upper), placed or not: never too few, and cheap. */
uint64_t berth__overlap_count(const berth__overlap *overlap, uint32_t lower, uint32_t upper);

/* After a look: the lowest offset, or with `tight` the one in the smallest room, at which the item ends at or
 * below `capacity`; BERTH_NO_OFFSET if there is none. */
uint64_t berth__overlap_fit(const berth__overlap *overlap, uint32_t item, uint64_t capacity, bool tight);

#endif

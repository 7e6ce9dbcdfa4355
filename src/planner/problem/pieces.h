/* The first half of preparing a problem: buffers become items made of pieces, still in bytes and the caller's
 * times. Alias groups merge here, gaps cut here, empty buffers drop out here. */
#ifndef BERTH_PLANNER_PROBLEM_PIECES_H
#define BERTH_PLANNER_PROBLEM_PIECES_H

#include "planner/problem/prepared.h"

/* Owned by whoever called berth__pieces_init; arrays may be taken out by setting their pointers to NULL. */
typedef struct berth__pieces {
    uint32_t item_count, piece_count;
    uint64_t *start, *end; /* by piece: times since `origin`; ascending and disjoint within an item */
    uint64_t *size_bytes;  /* by piece, rounded to the problem's alignment */
    uint32_t *item;        /* by piece, ascending; NULL: piece i is item i */

    uint32_t *buffer_of_item;  /* the buffer that stands for the item where equals are put in order */
    uint64_t *alignment_bytes; /* by item; NULL: all 1 */
    uint64_t *fixed_bytes;     /* by item; NULL: none pinned */
    uint32_t *item_of_buffer;
    berth__idle_buffer *idle;
    uint32_t idle_count;
    int64_t origin;
} berth__pieces;

/* BERTH_OK, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pieces_init(berth__pieces *pieces, const berth_problem *problem);
void berth__pieces_finish(berth__pieces *pieces);

#endif

/* The skyline as a tree over columns: how high is it anywhere in a stretch of time, and raise it there. Both
 * take logarithmic time, in whatever order the stretches come. Also finds the largest load of a stretch. */
#ifndef BERTH_PLANNER_PLACE_HEIGHTS_H
#define BERTH_PLANNER_PLACE_HEIGHTS_H

#include "base/base.h"

/* Columns stand in blocks of a cache line, and the blocks are the leaves of a tree: a tree down to the columns
 * would take three times the memory, and a short stretch touches a line or two so. */
enum { BERTH__HEIGHTS_BLOCK = 8 };

/* A node stands for a stretch of blocks, its two children for the halves; the root is node 1. */
typedef struct berth__heights_node {
    uint64_t most;  /* the highest place below this node, not counting what covers its ancestors */
    uint64_t whole; /* as high as this it is everywhere below */
} berth__heights_node;

typedef struct berth__heights {
    uint64_t *column; /* by column: not counting what covers its block or above */
    berth__heights_node *node;
    uint32_t columns; /* in whole blocks */
    uint32_t leaves;
} berth__heights;

/* Height 0 everywhere; 12 to 16 bytes a column. False: no memory. Finish with berth__heights_finish. */
bool berth__heights_init(berth__heights *heights, uint32_t columns);
void berth__heights_finish(berth__heights *heights);
/* Back to 0 everywhere. */
void berth__heights_clear(berth__heights *heights);

/* The highest place of [from, to), which is not empty. */
uint64_t berth__heights_most(const berth__heights *heights, uint32_t from, uint32_t to);
/* Makes [from, to) at least `height` high. */
void berth__heights_raise(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height);

#endif

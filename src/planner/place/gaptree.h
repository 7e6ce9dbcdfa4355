/* What is taken at which offsets, as a tree over columns: an item's room is found without a look at each of the
 * thousands that live beside it. */
#ifndef BERTH_PLANNER_PLACE_GAPTREE_H
#define BERTH_PLANNER_PLACE_GAPTREE_H

#include "planner/problem/prepared.h"

/* Offsets [from, to) that are taken. */
typedef struct berth__stretch {
    uint64_t from, to;
} berth__stretch;

/* Stretches in order; those that touch are one. Nearly everything in a plan touches something, so thousands of
 * items are a handful of stretches. */
typedef struct berth__stretches {
    berth__stretch *list;
    uint32_t count, room;
} berth__stretches;

/* A node stands for a run of columns, its two children for the halves; the root is node 1. A piece hangs at
 * the largest nodes that lie whole in its life:
 *
 *     whole    what is taken throughout the node, by pieces that hang here
 *     any      what is taken anywhere in the node, by pieces that hang here or below
 *
 * A life is made of some nodes too. What is in its way is `any` of those and `whole` of what is above them. */
typedef struct berth__gaptree {
    const berth__prepared *prepared;
    uint32_t leaves;
    berth__stretches *whole, *any; /* by node */
    berth__stretch *found;         /* offsets that the item asked for cannot have; twice the room, to sort */
    uint32_t found_count, found_room;
    uint64_t looked_at; /* stretches and nodes, since the caller set it to 0 */
} berth__gaptree;

/* Empty. 32 to 64 bytes a column, and 16 for every stretch. False: no memory. Finish either way. */
bool berth__gaptree_init(berth__gaptree *tree, const berth__prepared *prepared);
void berth__gaptree_finish(berth__gaptree *tree);

/* Takes the place of `item` at `offset`. False: no memory. */
bool berth__gaptree_take(berth__gaptree *tree, uint32_t item, uint64_t offset);

/* The lowest offset for `item`, or if `is_tight` the one in the tightest room, at which it ends at or below
 * `capacity`; BERTH_NO_OFFSET in *offset: there is none. False: no memory. */
bool berth__gaptree_find(berth__gaptree *tree, uint32_t item, uint64_t capacity, bool is_tight,
                         uint64_t *offset);

#endif

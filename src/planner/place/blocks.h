/* The arena as the time-ordered solver sees it: blocks in order of address, free ones also by size. */
#ifndef BERTH_PLANNER_PLACE_BLOCKS_H
#define BERTH_PLANNER_PLACE_BLOCKS_H

#include "base/base.h"

#define BERTH__NO_BLOCK UINT32_MAX

/* A block, taken or free. Blocks tile [0, end) and are linked in order of address:
 *
 *     0            head                                     tail          end
 *     | taken | free | taken | taken |        free          | taken |
 *
 * No two neighbours are both free: they would have been merged. */
typedef struct berth__block_node {
    uint64_t start, size;
    uint32_t below, above; /* neighbours in address */
    uint32_t left, right;  /* in the tree, if free */
    bool is_free;
} berth__block_node;

/* Zeroed by berth__blocks_init, emptied by berth__blocks_finish. */
typedef struct berth__blocks {
    berth__block_node *nodes;
    uint32_t room, used;
    uint32_t spare; /* nodes given back, linked by `above` */
    uint32_t root;  /* a treap of the free blocks, ordered by size and then address */
    uint32_t tail;  /* the last block; BERTH__NO_BLOCK while the arena is empty */
    uint64_t end;   /* of the arena */
} berth__blocks;

void berth__blocks_init(berth__blocks *blocks);
void berth__blocks_finish(berth__blocks *blocks);

/* Takes `size` (above 0) at a multiple of `alignment`: from the smallest free block that holds it, the lowest
 * of equals; else at the arena's end, where a free last block is extended. `*block` names what was taken.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__blocks_take(berth__blocks *blocks, uint64_t size, uint64_t alignment, uint32_t *block);

/* Gives a taken block back and merges it with free neighbours. */
void berth__blocks_give(berth__blocks *blocks, uint32_t block);

/* Whether the tiling, the merging and the tree are in order. For tests and debug builds. */
bool berth__blocks_is_valid(const berth__blocks *blocks);

#endif

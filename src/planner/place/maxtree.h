/* A tree over an array of keys that finds the largest key of a range, or the first key that is large enough,
 * in logarithmic time. Sixteen children a node: a node is one cache line, and short ranges are plain scans.
 */
#ifndef BERTH_PLANNER_PLACE_MAXTREE_H
#define BERTH_PLANNER_PLACE_MAXTREE_H

#include "base/base.h"

enum { BERTH__MAXTREE_LEVELS = 8 };

/* level[0] holds the keys, level[k + 1][j] the largest of level[k][16 j .. 16 j + 16). Key 0 means absent. */
typedef struct berth__maxtree {
    uint32_t count[BERTH__MAXTREE_LEVELS];
    uint32_t *level[BERTH__MAXTREE_LEVELS];
    uint32_t levels;
} berth__maxtree;

/* Room for `count` keys, all absent. False: no memory. Finish with berth__maxtree_finish either way. */
bool berth__maxtree_init(berth__maxtree *tree, uint32_t count);
void berth__maxtree_finish(berth__maxtree *tree);

/* After the keys of level[0] have been written directly. */
void berth__maxtree_rebuild(berth__maxtree *tree);
void berth__maxtree_set(berth__maxtree *tree, uint32_t at, uint32_t key);

/* Where the largest key of [from, to) is; UINT32_MAX if all are absent. */
uint32_t berth__maxtree_best(const berth__maxtree *tree, uint32_t from, uint32_t to);

/* The first place from `from` on with a key of at least `key`, which is not 0; UINT32_MAX if there is none.
 */
uint32_t berth__maxtree_first(const berth__maxtree *tree, uint32_t from, uint32_t key);

static inline uint32_t berth__maxtree_key(const berth__maxtree *tree, uint32_t at)
{
    return tree->level[0][at];
}

#endif

/* A tree of largest keys with sixteen children a node. */
#include "planner/place/maxtree.h"

#include <string.h>

enum { FAN = 16 };

bool berth__maxtree_init(berth__maxtree *tree, uint32_t count)
{
    *tree = (berth__maxtree){0};
    count = count ? count : 1;
    for (;;) {
        uint32_t padded = (count + FAN - 1) / FAN * FAN; /* so that every node is whole */
        BERTH_DCHECK(tree->levels < BERTH__MAXTREE_LEVELS, "[L12] the levels suffice for every count");
        uint32_t *keys = berth__heap_alloc(padded * sizeof *keys);
        if (!keys)
            return false;
        memset(keys, 0, padded * sizeof *keys);
        tree->level[tree->levels] = keys;
        tree->count[tree->levels++] = count;
        if (count == 1)
            return true;
        count = padded / FAN;
    }
}

void berth__maxtree_finish(berth__maxtree *tree)
{
    for (uint32_t k = 0; k < tree->levels; k++)
        berth__heap_free(tree->level[k]);
    *tree = (berth__maxtree){0};
}

static inline uint32_t largest_of_node(const uint32_t *node)
{
    uint32_t largest = 0;
    for (uint32_t k = 0; k < FAN; k++)
        largest = node[k] > largest ? node[k] : largest;
    return largest;
}

#ifndef NDEBUG
/* Whether each node up from `at` holds the largest of its children. */
static bool path_is_valid(const berth__maxtree *tree, uint32_t at)
{
    for (uint32_t k = 1; k < tree->levels; k++) {
        at /= FAN;
        if (tree->level[k][at] != largest_of_node(tree->level[k - 1] + (size_t)FAN * at))
            return false;
    }
    return true;
}
#endif

void berth__maxtree_rebuild(berth__maxtree *tree)
{
    for (uint32_t k = 1; k < tree->levels; k++)
        for (uint32_t j = 0; j < tree->count[k]; j++)
            tree->level[k][j] = largest_of_node(tree->level[k - 1] + (size_t)FAN * j);
    BERTH_DCHECK(tree->count[tree->levels - 1] == 1, "[L12] the last level is one node");
}

void berth__maxtree_set(berth__maxtree *tree, uint32_t at, uint32_t key)
{
    uint32_t old = tree->level[0][at];
    BERTH_DCHECK(at < tree->count[0], "[L12] a key of the tree");
    tree->level[0][at] = key;
    for (uint32_t k = 1; k < tree->levels; k++) {
        uint32_t *parent = &tree->level[k][at / FAN];
        if (key < old && *parent != old)
            return; /* another child is the largest */
        uint32_t before = *parent;
        *parent = key >= old ? (key > before ? key : before)
                             : largest_of_node(tree->level[k - 1] + (size_t)FAN * (at / FAN));
        if (*parent == before)
            return;
        old = before;
        key = *parent;
        at /= FAN;
    }
}

uint32_t berth__maxtree_best(const berth__maxtree *tree, uint32_t from, uint32_t to)
{
    BERTH_DCHECK(from >= to || to <= tree->count[0], "[L12] a range of the tree");
    uint32_t best = 0, best_at = UINT32_MAX, best_level = 0;
#define LOOK(begin, end)                       \
    for (uint32_t j = (begin); j < (end); j++) \
        if (tree->level[level][j] > best) {    \
            best = tree->level[level][j];      \
            best_at = j;                       \
            best_level = level;                \
        }
    for (uint32_t level = 0; from < to; level++) {
        uint32_t from_up = (from + FAN - 1) / FAN, to_up = to / FAN;
        if (from_up >= to_up) {
            LOOK(from, to)
            break;
        }
        LOOK(from, from_up * FAN)
        LOOK(to_up * FAN, to)
        from = from_up;
        to = to_up;
    }
#undef LOOK
    if (best_at == UINT32_MAX)
        return UINT32_MAX;
    for (; best_level > 0; best_level--) {
        best_at *= FAN;
        while (tree->level[best_level - 1][best_at] != best)
            best_at++;
    }
    BERTH_DCHECK(tree->level[0][best_at] == best && (tree->levels > 2 || path_is_valid(tree, best_at)),
                 "[L12] nodes hold the largest below");
    return best_at;
}

uint32_t berth__maxtree_first(const berth__maxtree *tree, uint32_t from, uint32_t key)
{
    uint32_t level = 0, at = from;
    /* Up and to the right until a node is large enough... */
    for (;;) {
        if (at >= tree->count[level])
            return UINT32_MAX;
        if (tree->level[level][at] >= key)
            break;
        at++;
        while (at % FAN == 0 && level + 1 < tree->levels) {
            at /= FAN;
            level++;
            if (at >= tree->count[level] || tree->level[level][at] >= key)
                break;
            at++;
        }
        if (at >= tree->count[level])
            return UINT32_MAX;
    }
    /* ...then down to its first child that is. */
    for (; level > 0; level--) {
        at *= FAN;
        while (tree->level[level - 1][at] < key)
            at++;
    }
    BERTH_DCHECK(at >= from && tree->level[0][at] >= key, "[L12] a node is as large as one below it");
    return at;
}

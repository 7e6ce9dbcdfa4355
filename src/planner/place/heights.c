/* A tree of heights over columns. The two borders of a stretch walk up from their leaves; every node that
 * hangs inside between the two paths is covered whole. */
#include "planner/place/heights.h"

#include <string.h>

static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool berth__heights_init(berth__heights *heights, uint32_t columns)
{
    *heights = (berth__heights){.leaves = 1};
    while (heights->leaves < columns)
        heights->leaves *= 2;
    heights->node = berth__heap_zalloc((size_t)heights->leaves * 2, sizeof *heights->node);
    return heights->node != NULL;
}

void berth__heights_finish(berth__heights *heights)
{
    berth__heap_free(heights->node);
    *heights = (berth__heights){0};
}

void berth__heights_clear(berth__heights *heights)
{
    memset(heights->node, 0, (size_t)heights->leaves * 2 * sizeof *heights->node);
}

uint64_t berth__heights_most(const berth__heights *heights, uint32_t from, uint32_t to)
{
    const berth__heights_node *node = heights->node;
    uint32_t left = from + heights->leaves, right = to - 1 + heights->leaves;
    uint64_t most = larger(node[left].most, node[right].most);
    while (left != right && (left ^ right) != 1) { /* until the two paths are neighbours */
        if (!(left & 1))
            most = larger(most, node[left + 1].most);
        if (right & 1)
            most = larger(most, node[right - 1].most);
        left /= 2;
        right /= 2;
        most = larger(most, larger(node[left].whole, node[right].whole));
    }
    for (left /= 2; left; left /= 2)
        most = larger(most, node[left].whole);
    return most;
}

static inline void cover(berth__heights_node *node, uint64_t height)
{
    node->most = larger(node->most, height);
    node->whole = larger(node->whole, height);
}

void berth__heights_raise(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height)
{
    berth__heights_node *node = heights->node;
    uint32_t left = from + heights->leaves, right = to - 1 + heights->leaves;
    cover(&node[left], height);
    cover(&node[right], height);
    while (left != right && (left ^ right) != 1) {
        if (!(left & 1))
            cover(&node[left + 1], height);
        if (right & 1)
            cover(&node[right - 1], height);
        left /= 2;
        right /= 2;
        node[left].most = larger(node[left].most, height);
        node[right].most = larger(node[right].most, height);
    }
    for (left /= 2; left && node[left].most < height; left /= 2)
        node[left].most = height;
}

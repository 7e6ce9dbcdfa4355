/* A tree of heights over blocks of columns. The two borders of a stretch walk up from their blocks; every node
 * that hangs inside between the two paths is covered whole. */
#include "planner/place/heights.h"

#include <string.h>

enum { BLOCK = BERTH__HEIGHTS_BLOCK };

static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool berth__heights_init(berth__heights *heights, uint32_t columns)
{
    const uint32_t blocks = columns / BLOCK + 1;
    *heights = (berth__heights){.leaves = 1, .columns = blocks * BLOCK};
    while (heights->leaves < blocks)
        heights->leaves *= 2;
    heights->column = berth__heap_zalloc(heights->columns, sizeof *heights->column);
    heights->node = berth__heap_zalloc((size_t)heights->leaves * 2, sizeof *heights->node);
    return heights->column && heights->node;
}

void berth__heights_finish(berth__heights *heights)
{
    berth__heap_free(heights->column);
    berth__heap_free(heights->node);
    *heights = (berth__heights){0};
}

void berth__heights_clear(berth__heights *heights)
{
    memset(heights->column, 0, heights->columns * sizeof *heights->column);
    memset(heights->node, 0, (size_t)heights->leaves * 2 * sizeof *heights->node);
}

static inline uint64_t most_of(const berth__heights *heights, uint32_t from, uint32_t to)
{
    uint64_t most = 0;
    for (uint32_t c = from; c < to; c++)
        most = larger(most, heights->column[c]);
    return most;
}

uint64_t berth__heights_most(const berth__heights *heights, uint32_t from, uint32_t to)
{
    const berth__heights_node *node = heights->node;
    uint32_t left = from / BLOCK, right = (to - 1) / BLOCK;
    uint64_t most;
    if (left == right)
        most = most_of(heights, from, to);
    else
        most = larger(most_of(heights, from, (left + 1) * BLOCK), most_of(heights, right * BLOCK, to));
    left += heights->leaves;
    right += heights->leaves;
    most = larger(most, larger(node[left].whole, node[right].whole));
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

static inline void raise_columns(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height)
{
    for (uint32_t c = from; c < to; c++)
        heights->column[c] = larger(heights->column[c], height);
}

void berth__heights_raise(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height)
{
    berth__heights_node *node = heights->node;
    uint32_t left = from / BLOCK, right = (to - 1) / BLOCK;
    if (left == right) {
        raise_columns(heights, from, to, height);
    } else {
        raise_columns(heights, from, (left + 1) * BLOCK, height);
        raise_columns(heights, right * BLOCK, to, height);
    }
    left += heights->leaves;
    right += heights->leaves;
    node[left].most = larger(node[left].most, height);
    node[right].most = larger(node[right].most, height);
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

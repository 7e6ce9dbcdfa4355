/* A tree of heights over blocks of columns. The two borders of a stretch walk up from their blocks; every node
 * that hangs inside between the two paths is covered whole. */
#include "planner/place/heights.h"

#include <string.h>

enum { BLOCK = BERTH__HEIGHTS_BLOCK };

static inline uint64_t heights_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool berth__heights_init(berth__heights *heights, uint32_t columns)
{
    const uint32_t blocks = columns / BLOCK + 1;
    *heights = (berth__heights){.leaves = 1, .columns = blocks * BLOCK};
    while (heights->leaves < blocks)
        heights->leaves *= 2;
    BERTH_DCHECK(heights->leaves >= blocks && heights->columns > columns,
                 "[L12] every column is below a leaf");
    heights->column = berth__heap_alloc(heights->columns * sizeof *heights->column);
    heights->node = berth__heap_alloc((size_t)heights->leaves * 2 * sizeof *heights->node);
    if (!heights->column || !heights->node)
        return false;
    berth__heights_clear(heights);
    return true;
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
        most = heights_larger(most, heights->column[c]);
    return most;
}

uint64_t berth__heights_most(const berth__heights *heights, uint32_t from, uint32_t to)
{
    const berth__heights_node *node = heights->node;
    uint32_t left = from / BLOCK, right = (to - 1) / BLOCK;
    BERTH_DCHECK(from < to && to <= heights->columns, "[L7] a piece lives within the columns");
    uint64_t most;
    if (left == right)
        most = most_of(heights, from, to);
    else
        most =
            heights_larger(most_of(heights, from, (left + 1) * BLOCK), most_of(heights, right * BLOCK, to));
    left += heights->leaves;
    right += heights->leaves;
    most = heights_larger(most, heights_larger(node[left].whole, node[right].whole));
    while (left != right && (left ^ right) != 1) { /* until the two paths are neighbours */
        if (!(left & 1))
            most = heights_larger(most, node[left + 1].most);
        if (right & 1)
            most = heights_larger(most, node[right - 1].most);
        left /= 2;
        right /= 2;
        most = heights_larger(most, heights_larger(node[left].whole, node[right].whole));
    }
    for (left /= 2; left; left /= 2)
        most = heights_larger(most, node[left].whole);
    return most;
}

static inline void heights_cover(berth__heights_node *node, uint64_t height)
{
    node->most = heights_larger(node->most, height);
    node->whole = heights_larger(node->whole, height);
}

static inline void raise_columns(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height)
{
    for (uint32_t c = from; c < to; c++)
        heights->column[c] = heights_larger(heights->column[c], height);
}

void berth__heights_raise(berth__heights *heights, uint32_t from, uint32_t to, uint64_t height)
{
    BERTH_DCHECK(from < to && to <= heights->columns, "[L7] a piece lives within the columns");
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
    node[left].most = heights_larger(node[left].most, height);
    node[right].most = heights_larger(node[right].most, height);
    while (left != right && (left ^ right) != 1) {
        if (!(left & 1))
            heights_cover(&node[left + 1], height);
        if (right & 1)
            heights_cover(&node[right - 1], height);
        left /= 2;
        right /= 2;
        node[left].most = heights_larger(node[left].most, height);
        node[right].most = heights_larger(node[right].most, height);
    }
    for (left /= 2; left && node[left].most < height; left /= 2)
        node[left].most = height;
    BERTH_DCHECK(node[1].most >= height &&
                     (heights->columns > 512 || berth__heights_most(heights, from, to) >= height),
                 "[L12] nodes are as high as what is below them");
}

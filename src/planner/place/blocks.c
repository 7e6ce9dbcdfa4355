/* Free blocks by size and by address: best fit in logarithmic time, neighbours merged at once.
 *
 * The tree is a treap whose priorities are a mix of the node's number: no randomness, so the same calls give
 * the same arena. Equal sizes are told apart by address; a set ordered by size alone would lose all but one
 * of them, which is the fault of the planner this one is modelled on. */
#include "planner/place/blocks.h"

#include <string.h>

void berth__blocks_init(berth__blocks *blocks)
{
    memset(blocks, 0, sizeof *blocks);
    blocks->spare = blocks->root = blocks->tail = BERTH__NO_BLOCK;
}

void berth__blocks_finish(berth__blocks *blocks)
{
    berth__heap_free(blocks->nodes);
    berth__blocks_init(blocks);
}

/* ---- Nodes --------------------------------------------------------------------------------------- */

/* A taking needs at most two new nodes; having room for them first keeps the rest free of failure. */
static berth_status reserve(berth__blocks *blocks)
{
    if (blocks->used + 4 <= blocks->room)
        return BERTH_OK;
    uint64_t room = blocks->room ? blocks->room + (uint64_t)blocks->room / 2 : 256;
    berth__block_node *nodes =
        room < BERTH__NO_BLOCK ? berth__heap_realloc(blocks->nodes, room * sizeof *nodes) : NULL;
    if (!nodes)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %llu blocks of the arena",
                           (unsigned long long)room);
    blocks->nodes = nodes;
    blocks->room = (uint32_t)room;
    return BERTH_OK;
}

static uint32_t node_new(berth__blocks *blocks, uint64_t start, uint64_t size)
{
    uint32_t n = blocks->spare;
    if (n != BERTH__NO_BLOCK)
        blocks->spare = blocks->nodes[n].above;
    else
        n = blocks->used++;
    blocks->nodes[n] = (berth__block_node){.start = start,
                                           .size = size,
                                           .below = BERTH__NO_BLOCK,
                                           .above = BERTH__NO_BLOCK,
                                           .left = BERTH__NO_BLOCK,
                                           .right = BERTH__NO_BLOCK};
    return n;
}

static void node_drop(berth__blocks *blocks, uint32_t n)
{
    blocks->nodes[n].above = blocks->spare;
    blocks->spare = n;
}

/* Links `n` directly above `below`, which may be none. */
static void link_above(berth__blocks *blocks, uint32_t below, uint32_t n)
{
    berth__block_node *nodes = blocks->nodes;
    nodes[n].below = below;
    if (below != BERTH__NO_BLOCK) {
        nodes[n].above = nodes[below].above;
        nodes[below].above = n;
    }
    if (nodes[n].above != BERTH__NO_BLOCK)
        nodes[nodes[n].above].below = n;
    else
        blocks->tail = n;
}

static void unlink_node(berth__blocks *blocks, uint32_t n)
{
    berth__block_node *nodes = blocks->nodes;
    if (nodes[n].below != BERTH__NO_BLOCK)
        nodes[nodes[n].below].above = nodes[n].above;
    if (nodes[n].above != BERTH__NO_BLOCK)
        nodes[nodes[n].above].below = nodes[n].below;
    else
        blocks->tail = nodes[n].below;
    node_drop(blocks, n);
}

/* ---- The tree ------------------------------------------------------------------------------------ */

static uint32_t priority(uint32_t n)
{
    uint32_t x = n * 0x9e3779b1u;
    x = (x ^ (x >> 15)) * 0x85ebca6bu;
    return x ^ (x >> 13);
}

static bool before(const berth__block_node *nodes, uint64_t size, uint64_t start, uint32_t n)
{
    return size != nodes[n].size ? size < nodes[n].size : start < nodes[n].start;
}

static void tree_insert(berth__blocks *blocks, uint32_t n)
{
    berth__block_node *nodes = blocks->nodes;
    uint64_t size = nodes[n].size, start = nodes[n].start;
    uint32_t *link = &blocks->root, at, p = priority(n);
    nodes[n].is_free = true;
    while (*link != BERTH__NO_BLOCK && priority(*link) >= p)
        link = before(nodes, size, start, *link) ? &nodes[*link].left : &nodes[*link].right;
    /* split what is below between the new node's two sides */
    at = *link;
    *link = n;
    uint32_t *left = &nodes[n].left, *right = &nodes[n].right;
    while (at != BERTH__NO_BLOCK) {
        if (before(nodes, size, start, at)) {
            *right = at;
            right = &nodes[at].left;
            at = *right;
        } else {
            *left = at;
            left = &nodes[at].right;
            at = *left;
        }
    }
    *left = *right = BERTH__NO_BLOCK;
}

static void tree_remove(berth__blocks *blocks, uint32_t n)
{
    berth__block_node *nodes = blocks->nodes;
    uint32_t *link = &blocks->root;
    while (*link != n)
        link = before(nodes, nodes[n].size, nodes[n].start, *link) ? &nodes[*link].left : &nodes[*link].right;
    uint32_t a = nodes[n].left, b = nodes[n].right;
    while (a != BERTH__NO_BLOCK && b != BERTH__NO_BLOCK) {
        if (priority(a) >= priority(b)) {
            *link = a;
            link = &nodes[a].right;
            a = *link;
        } else {
            *link = b;
            link = &nodes[b].left;
            b = *link;
        }
    }
    *link = a != BERTH__NO_BLOCK ? a : b;
    nodes[n].left = nodes[n].right = BERTH__NO_BLOCK;
    nodes[n].is_free = false;
}

/* The first free block that does not come before (size, start). */
static uint32_t tree_find(const berth__blocks *blocks, uint64_t size, uint64_t start)
{
    uint32_t found = BERTH__NO_BLOCK;
    for (uint32_t at = blocks->root; at != BERTH__NO_BLOCK;) {
        const berth__block_node *node = &blocks->nodes[at];
        if (node->size > size || (node->size == size && node->start >= start)) {
            found = at;
            at = node->left;
        } else {
            at = node->right;
        }
    }
    return found;
}

/* ---- Taking and giving --------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t n, uint64_t alignment)
{
    uint64_t rest = alignment > 1 ? n % alignment : 0;
    return rest ? n + (alignment - rest) : n;
}

static bool holds(const berth__block_node *node, uint64_t size, uint64_t alignment)
{
    return align_up(node->start, alignment) - node->start + size <= node->size;
}

/* The smallest free block that holds the size where its start must be aligned. A block of size + alignment -
 * 1 always does; between that and the size only a few are tried, so that many near misses cost no more. */
static uint32_t best_fit(const berth__blocks *blocks, uint64_t size, uint64_t alignment)
{
    enum { TRIES = 16 };
    uint32_t n = tree_find(blocks, size, 0);
    for (int k = 0; n != BERTH__NO_BLOCK && !holds(&blocks->nodes[n], size, alignment); k++) {
        if (k == TRIES)
            n = tree_find(blocks, size + alignment - 1, 0);
        else
            n = tree_find(blocks, blocks->nodes[n].size, blocks->nodes[n].start + 1);
    }
    return n;
}

/* Makes room for the size at the arena's end: the last block, if free, is extended, else a new one is free.
 */
static uint32_t extend(berth__blocks *blocks, uint64_t size, uint64_t alignment)
{
    uint32_t n = blocks->tail;
    if (n != BERTH__NO_BLOCK && blocks->nodes[n].is_free) {
        tree_remove(blocks, n);
    } else {
        n = node_new(blocks, blocks->end, 0);
        link_above(blocks, blocks->tail, n);
    }
    berth__block_node *node = &blocks->nodes[n];
    blocks->end = align_up(node->start, alignment) + size;
    node->size = blocks->end - node->start;
    return n;
}

berth_status berth__blocks_take(berth__blocks *blocks, uint64_t size, uint64_t alignment, uint32_t *block)
{
    berth_status status = reserve(blocks);
    if (status)
        return status;
    uint32_t n = best_fit(blocks, size, alignment);
    if (n != BERTH__NO_BLOCK)
        tree_remove(blocks, n);
    else
        n = extend(blocks, size, alignment);
    uint64_t front = align_up(blocks->nodes[n].start, alignment) - blocks->nodes[n].start;
    if (front) { /* what alignment skips stays free, below the block */
        uint32_t rest = n;
        n = node_new(blocks, blocks->nodes[rest].start + front, blocks->nodes[rest].size - front);
        blocks->nodes[rest].size = front;
        link_above(blocks, rest, n);
        tree_insert(blocks, rest);
    }
    if (blocks->nodes[n].size > size) {
        uint32_t rest = node_new(blocks, blocks->nodes[n].start + size, blocks->nodes[n].size - size);
        blocks->nodes[n].size = size;
        link_above(blocks, n, rest);
        tree_insert(blocks, rest);
    }
    *block = n;
    return BERTH_OK;
}

void berth__blocks_give(berth__blocks *blocks, uint32_t block)
{
    berth__block_node *nodes = blocks->nodes;
    uint32_t below = nodes[block].below, above = nodes[block].above;
    if (above != BERTH__NO_BLOCK && nodes[above].is_free) {
        tree_remove(blocks, above);
        nodes[block].size += nodes[above].size;
        unlink_node(blocks, above);
    }
    if (below != BERTH__NO_BLOCK && nodes[below].is_free) {
        tree_remove(blocks, below);
        nodes[below].size += nodes[block].size;
        unlink_node(blocks, block);
        block = below;
    }
    tree_insert(blocks, block);
}

/* ---- Invariants ---------------------------------------------------------------------------------- */

/* Counts the free blocks in the tree; SIZE_MAX if their order or priorities are wrong. */
static size_t tree_count(const berth__blocks *blocks, uint32_t at)
{
    if (at == BERTH__NO_BLOCK)
        return 0;
    const berth__block_node *nodes = blocks->nodes;
    uint32_t l = nodes[at].left, r = nodes[at].right;
    if (!nodes[at].is_free ||
        (l != BERTH__NO_BLOCK &&
         (!before(nodes, nodes[l].size, nodes[l].start, at) || priority(l) > priority(at))) ||
        (r != BERTH__NO_BLOCK &&
         (before(nodes, nodes[r].size, nodes[r].start, at) || priority(r) > priority(at))))
        return SIZE_MAX;
    size_t a = tree_count(blocks, l), b = tree_count(blocks, r);
    return a == SIZE_MAX || b == SIZE_MAX ? SIZE_MAX : a + b + 1;
}

bool berth__blocks_is_valid(const berth__blocks *blocks)
{
    uint64_t end = blocks->end;
    size_t free_count = 0;
    bool above_free = false;
    for (uint32_t n = blocks->tail; n != BERTH__NO_BLOCK; n = blocks->nodes[n].below) {
        const berth__block_node *node = &blocks->nodes[n];
        if (!node->size || node->start + node->size != end || (node->is_free && above_free))
            return false;
        end = node->start;
        above_free = node->is_free;
        free_count += node->is_free;
    }
    return end == 0 && tree_count(blocks, blocks->root) == free_count;
}

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
    BERTH_DCHECK(n < blocks->room && n < blocks->used, "[L5] there was room for two more blocks");
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
    BERTH_DCHECK(!blocks->nodes[n].is_free, "[L5] what goes is not in the tree");
    blocks->nodes[n].above = blocks->spare;
    blocks->spare = n;
}

/* Links `n` directly above `below`, which may be none. */
static void link_above(berth__blocks *blocks, uint32_t below, uint32_t n)
{
    berth__block_node *nodes = blocks->nodes;
    nodes[n].below = below;
    BERTH_DCHECK(below == BERTH__NO_BLOCK || nodes[below].start + nodes[below].size == nodes[n].start,
                 "[L5] blocks lie one above the other");
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
    BERTH_DCHECK(nodes[n].below == BERTH__NO_BLOCK || nodes[nodes[n].below].above == n,
                 "[L5] blocks are linked both ways");
    BERTH_DCHECK(nodes[n].above == BERTH__NO_BLOCK ? blocks->tail == n : nodes[nodes[n].above].below == n,
                 "[L5] the last block is the tail");
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

/* By size, then address. */
typedef struct block_key {
    uint64_t size, start;
} block_key;

static block_key key_of(const berth__block_node *nodes, uint32_t n)
{
    return (block_key){nodes[n].size, nodes[n].start};
}

static bool comes_before(block_key a, block_key b)
{
    return a.size != b.size ? a.size < b.size : a.start < b.start;
}

#define TREAP(x) block_tree_##x
#define TREAP_REF uint32_t
#define TREAP_NONE BERTH__NO_BLOCK
#define TREAP_BASE berth__block_node *
#define TREAP_AT(base, n) (base)[n]
#define TREAP_KEY block_key
#define TREAP_KEY_OF(base, n) key_of(base, n)
#define TREAP_BEFORE(a, b) comes_before(a, b)
#define TREAP_PRIORITY(n) priority(n)
#include "base/treap.h"

static void tree_insert(berth__blocks *blocks, uint32_t n)
{
    BERTH_DCHECK(!blocks->nodes[n].is_free, "[L5] a block is in the tree of free ones once");
    blocks->nodes[n].is_free = true;
    block_tree_insert(blocks->nodes, &blocks->root, n);
}

static void tree_remove(berth__blocks *blocks, uint32_t n)
{
    BERTH_DCHECK(blocks->nodes[n].is_free, "[L5] what is taken was free");
    block_tree_remove(blocks->nodes, &blocks->root, n);
    blocks->nodes[n].is_free = false;
}

/* The first free block that does not come before (size, start). */
static uint32_t tree_find(const berth__blocks *blocks, uint64_t size, uint64_t start)
{
    return block_tree_first_from(blocks->nodes, blocks->root, (block_key){size, start});
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
    BERTH_DCHECK(n == BERTH__NO_BLOCK || blocks->nodes[n].is_free, "[L5] only free blocks are in the tree");
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
    BERTH_DCHECK(node->above == BERTH__NO_BLOCK && node->start <= blocks->end,
                 "[L5] only the last block grows");
    blocks->end = align_up(node->start, alignment) + size;
    node->size = blocks->end - node->start;
    return n;
}

berth_status berth__blocks_take(berth__blocks *blocks, uint64_t size, uint64_t alignment, uint32_t *block)
{
    berth_status status = reserve(blocks);
    if (status)
        return status;
    BERTH_DCHECK(size > 0, "[L7] every piece has a size");
    BERTH_DCHECK(blocks->used > 64 || berth__blocks_is_valid(blocks), "[L5] blocks tile the arena");
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
    BERTH_DCHECK(blocks->nodes[n].size == size && blocks->nodes[n].start + size <= blocks->end,
                 "[L5] what is taken lies within the arena");
    BERTH_DCHECK(blocks->used > 64 || berth__blocks_is_valid(blocks), "[L5] blocks tile the arena");
    *block = n;
    return BERTH_OK;
}

void berth__blocks_give(berth__blocks *blocks, uint32_t block)
{
    berth__block_node *nodes = blocks->nodes;
    uint32_t below = nodes[block].below, above = nodes[block].above;
    BERTH_DCHECK(!nodes[block].is_free, "[L5] what is given back was taken");
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
    BERTH_DCHECK(nodes[block].start + nodes[block].size <= blocks->end,
                 "[L5] what is merged lies within the arena");
    tree_insert(blocks, block);
}

/* ---- Invariants ---------------------------------------------------------------------------------- */

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
    return end == 0 && block_tree_count(blocks->nodes, blocks->root) == free_count;
}

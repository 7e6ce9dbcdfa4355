/* The orders in which buffers are fitted: by size, by area, by breadth (the fullest moment first, and there
 * the largest first), each downward, ties in canonical order. */
#include "base/sort.h"
#include "planner/place/fit.h"
#include "planner/problem/bound.h"

static int by_size(const void *context, uint32_t a, uint32_t b)
{
    const uint64_t *size = context;
    return (size[a] < size[b]) - (size[a] > size[b]);
}

static int by_key(const void *context, uint32_t a, uint32_t b)
{
    const double *key = context;
    return (key[a] < key[b]) - (key[a] > key[b]);
}

/* Size times life summed over the pieces. Rounding may tie two areas; then canonical order decides. */
static double area_of(const berth__prepared *p, uint32_t item)
{
    double area = 0;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++)
        area += (double)p->piece_size[k] * (double)(p->piece_upper[k] - p->piece_lower[k]);
    return area;
}

#ifndef NDEBUG
/* Whether a list has each of few items once. */
static bool has_each(const uint32_t *list, uint32_t count)
{
    uint64_t seen[16] = {0};
    for (uint32_t k = 0; k < count && count <= 64 * BERTH_COUNT_OF(seen); k++) {
        if (list[k] >= count || (seen[list[k] / 64] >> list[k] % 64 & 1))
            return false;
        seen[list[k] / 64] |= (uint64_t)1 << list[k] % 64;
    }
    return true;
}
#endif

static berth_status list_by_area(const berth__prepared *p, uint32_t *list, uint32_t *scratch)
{
    double *key = berth__heap_alloc(p->item_count * sizeof *key);
    if (!key)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to sort %u buffers by area", p->item_count);
    for (uint32_t i = 0; i < p->item_count; i++)
        key[i] = area_of(p, i);
    berth__sort_indices(list, scratch, p->item_count, by_key, key);
    berth__heap_free(key);
    return BERTH_OK;
}

/* ---- Breadth ------------------------------------------------------------------------------------- */

/* A tree over the items, which are sorted by their first column: a node holds the largest end below it, 0
 * where all are taken, so that everyone live in a column is found without looking at the others. */
typedef struct end_tree {
    uint32_t *end;
    size_t leaves;
} end_tree;

static bool tree_init(end_tree *tree, const berth__prepared *p)
{
    tree->leaves = 1;
    while (tree->leaves < p->item_count)
        tree->leaves *= 2;
    tree->end = berth__heap_zalloc(2 * tree->leaves, sizeof *tree->end);
    if (!tree->end)
        return false;
    for (uint32_t i = 0; i < p->item_count; i++)
        tree->end[tree->leaves + i] = p->upper[i];
    for (size_t n = tree->leaves - 1; n > 0; n--)
        tree->end[n] = tree->end[2 * n] > tree->end[2 * n + 1] ? tree->end[2 * n] : tree->end[2 * n + 1];
    return true;
}

static void tree_take(end_tree *tree, size_t n)
{
    BERTH_DCHECK(tree->end[n] != 0, "[L10] an item is taken once");
    tree->end[n] = 0;
    for (n /= 2; n > 0; n /= 2)
        tree->end[n] = tree->end[2 * n] > tree->end[2 * n + 1] ? tree->end[2 * n] : tree->end[2 * n + 1];
}

/* Takes an item that lives through `column`, or answers BERTH__NO_ITEM. The leftmost item with an end past
 * the column either begins early enough, or none does. */
static uint32_t tree_take_live(end_tree *tree, const berth__prepared *p, uint32_t column)
{
    size_t n = 1;
    if (tree->end[1] <= column)
        return BERTH__NO_ITEM;
    while (n < tree->leaves)
        n = tree->end[2 * n] > column ? 2 * n : 2 * n + 1;
    uint32_t item = (uint32_t)(n - tree->leaves);
    BERTH_DCHECK(item < p->item_count && p->upper[item] > column,
                 "[L12] a node holds the largest end below it");
    if (p->lower[item] > column)
        return BERTH__NO_ITEM;
    tree_take(tree, n);
    return item;
}

static berth_status list_by_breadth(const berth__prepared *p, uint32_t *list, uint32_t *scratch)
{
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    end_tree tree = {0};
    uint64_t *load = berth__heap_alloc((size_t)p->column_count * sizeof *load);
    uint32_t *columns = berth__heap_alloc(2 * (size_t)p->column_count * sizeof *columns);
    if (!load || !columns || !tree_init(&tree, p))
        goto out;
    berth__bound_loads(p, load);
    for (uint32_t c = 0; c < p->column_count; c++)
        columns[c] = c;
    berth__sort_indices(columns, columns + p->column_count, p->column_count, by_size, load);
    size_t count = 0;
    for (uint32_t k = 0; k < p->column_count; k++) {
        size_t first = count;
        for (uint32_t item; (item = tree_take_live(&tree, p, columns[k])) != BERTH__NO_ITEM;)
            list[count++] = item;
        berth__sort_indices(list + first, scratch, count - first, by_size, p->size);
    }
    status = BERTH_ASSERT(count == p->item_count, "[L10] every item lives in a column") ? BERTH_OK
                                                                                        : BERTH_INTERNAL;
out:
    berth__heap_free(tree.end);
    berth__heap_free(columns);
    berth__heap_free(load);
    return status == BERTH_OUT_OF_HOST_MEMORY
               ? berth__fail(status, "no memory to sort %u buffers by breadth", p->item_count)
               : status;
}

/* As greedy.c: column by column, the longest-lived of a column first, which is canonical order backwards. */
static void list_by_time(const berth__prepared *p, uint32_t *list)
{
    for (uint32_t first = 0, end; first < p->item_count; first = end) {
        for (end = first; end < p->item_count && p->lower[end] == p->lower[first]; end++)
            ;
        for (uint32_t k = first; k < end; k++)
            list[k] = first + (end - 1 - k);
    }
}

berth_status berth__fit_list(const berth__prepared *p, berth__fit_order order, uint32_t *list)
{
    if (order == BERTH__FIT_BY_TIME) {
        list_by_time(p, list);
        BERTH_DCHECK(has_each(list, p->item_count), "[L10] the list has every item");
        return BERTH_OK;
    }
    for (uint32_t i = 0; i < p->item_count; i++)
        list[i] = i;
    uint32_t *scratch = berth__heap_alloc(p->item_count * sizeof *scratch);
    if (!scratch)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to sort %u buffers", p->item_count);
    berth_status status = BERTH_OK;
    if (order == BERTH__FIT_BY_SIZE)
        berth__sort_indices(list, scratch, p->item_count, by_size, p->size);
    else if (order == BERTH__FIT_BY_AREA)
        status = list_by_area(p, list, scratch);
    else
        status = list_by_breadth(p, list, scratch);
    BERTH_DCHECK(status || has_each(list, p->item_count), "[L10] the list has every item");
    berth__heap_free(scratch);
    return status;
}

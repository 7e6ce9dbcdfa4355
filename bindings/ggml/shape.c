/* A graph's tensors by number: leaves, nodes, and what they use or show that is in neither list. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

/* Tensor to number: open addressing, at most half full. */
typedef struct tensor_table {
    const struct ggml_tensor **keys;
    int32_t *values;
    size_t mask;
} tensor_table;

typedef struct shape_reading {
    bgg_shape *shape;
    tensor_table table;
    struct ggml_backend_buffer_type *const *types;
} shape_reading;

static bool table_init(tensor_table *table, size_t most)
{
    size_t size = 16;
    while (size < 2 * most)
        size *= 2;
    table->mask = size - 1;
    table->keys = calloc(size, sizeof *table->keys);
    table->values = calloc(size, sizeof *table->values);
    return table->keys && table->values;
}

static void table_finish(tensor_table *table)
{
    free(table->keys);
    free(table->values);
}

/* The slot of a tensor, or the empty one where it belongs. */
static size_t table_slot(const tensor_table *table, const struct ggml_tensor *key)
{
    const uint64_t mix = UINT64_C(0x9E3779B97F4A7C15); /* tensors lie at regular distances: spread them */
    size_t slot = (size_t)(((uintptr_t)key * mix) >> 20) & table->mask;
    while (table->keys[slot] && table->keys[slot] != key)
        slot = (slot + 1) & table->mask;
    return slot;
}

static int32_t item_of(shape_reading *reading, struct ggml_tensor *tensor, int32_t node, int32_t type)
{
    bgg_shape *shape = reading->shape;
    size_t slot = table_slot(&reading->table, tensor);
    if (reading->table.keys[slot])
        return reading->table.values[slot];
    bgg_item *item = &shape->items[shape->item_count];
    *item = (bgg_item){.tensor = tensor,
                       .root = BGG_NONE,
                       .type = type,
                       .node = node,
                       .place = BGG_NONE,
                       .taken_from = BGG_NONE,
                       .op = tensor->op,
                       .marks = tensor->flags & (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT),
                       .external = !tensor->view_src && (tensor->data || tensor->buffer)};
    item->tensor_type = tensor->type;
    memcpy(item->ne, tensor->ne, sizeof item->ne);
    memcpy(item->nb, tensor->nb, sizeof item->nb);
    if (!item->external && !tensor->view_src)
        item->size_bytes = bgg_ggml.ggml_backend_buft_get_alloc_size(reading->types[type], tensor);
    reading->table.keys[slot] = tensor;
    reading->table.values[slot] = shape->item_count;
    return shape->item_count++;
}

/* Tensors can be named once for each mention at most. */
static size_t count_mentions(const struct ggml_cgraph *cgraph)
{
    size_t mentions = 2 * ((size_t)cgraph->n_leafs + (size_t)cgraph->n_nodes);
    for (int i = 0; i < cgraph->n_nodes; i++)
        for (int j = 0; j < GGML_MAX_SRC; j++)
            mentions += cgraph->nodes[i]->src[j] != NULL;
    return mentions;
}

static bool shape_room(bgg_shape *shape, const struct ggml_cgraph *cgraph, size_t mentions)
{
    shape->leaf_count = cgraph->n_leafs;
    shape->node_count = cgraph->n_nodes;
    shape->items = calloc(mentions + 1, sizeof *shape->items);
    shape->places = calloc(mentions + 1, sizeof *shape->places);
    shape->uses = calloc(2 * mentions + 1, sizeof *shape->uses);
    shape->leaf_roots = calloc((size_t)cgraph->n_leafs + 1, sizeof *shape->leaf_roots);
    shape->edges = calloc((size_t)cgraph->n_nodes * BGG_EDGES + 1, sizeof *shape->edges);
    return shape->items && shape->places && shape->uses && shape->leaf_roots && shape->edges;
}

static int32_t root_of(shape_reading *reading, int32_t item, int32_t type)
{
    const struct ggml_tensor *tensor = reading->shape->items[item].tensor;
    assert(tensor); /* item_of sets it with the item */
    struct ggml_tensor *source = tensor->view_src;
    int32_t root = source ? item_of(reading, source, BGG_NONE, type) : BGG_NONE;
    reading->shape->items[item].root = root;
    return root;
}

static void read_edges(shape_reading *reading, const struct ggml_cgraph *cgraph, const int *node_types,
                       const int *leaf_types)
{
    bgg_shape *shape = reading->shape;
    for (int i = 0; i < cgraph->n_leafs; i++)
        shape->leaf_roots[i] = root_of(reading, i, leaf_types ? leaf_types[i] : 0);
    for (int i = 0; i < cgraph->n_nodes; i++) {
        int32_t type = node_types ? node_types[i] : 0, *edges = shape->edges + (size_t)i * BGG_EDGES;
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            struct ggml_tensor *source = cgraph->nodes[i]->src[j];
            edges[j] = source ? item_of(reading, source, BGG_NONE, type) : BGG_NONE;
        }
        edges[GGML_MAX_SRC] = root_of(reading, cgraph->n_leafs + i, type);
    }
    /* Views among the unlisted; their roots, if unlisted too, join the end of the list. */
    for (int32_t i = cgraph->n_leafs + cgraph->n_nodes; i < shape->item_count; i++) {
        (void)root_of(reading, i, shape->items[i].type);
        shape->unlisted |= !shape->items[i].external;
    }
}

berth_status bgg_shape_init(bgg_shape *shape, const struct ggml_cgraph *cgraph,
                            struct ggml_backend_buffer_type *const *types, const int *node_types,
                            const int *leaf_types)
{
    shape_reading reading = {.shape = shape, .types = types};
    /* A view mentioned and its root: twice the mentions. */
    size_t mentions = 2 * count_mentions(cgraph);
    berth_status status = BERTH_OK;
    memset(shape, 0, sizeof *shape);
    if (mentions > INT32_MAX / (2 * BGG_EDGES))
        return berth_fail(BERTH_OVERFLOW, "a graph of %d nodes is more than can be numbered",
                          cgraph->n_nodes);
    if (!table_init(&reading.table, mentions) || !shape_room(shape, cgraph, mentions))
        status =
            berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to read a graph of %d nodes", cgraph->n_nodes);
    if (!status) {
        for (int i = 0; i < cgraph->n_leafs; i++)
            (void)item_of(&reading, cgraph->leafs[i], BGG_NONE, leaf_types ? leaf_types[i] : 0);
        for (int i = 0; i < cgraph->n_nodes; i++)
            (void)item_of(&reading, cgraph->nodes[i], i, node_types ? node_types[i] : 0);
        /* The numbers of nodes stand in for the nodes below. */
        if (shape->item_count != cgraph->n_leafs + cgraph->n_nodes)
            status = berth_fail(BERTH_INVALID_ARGUMENT,
                                "the graph has a tensor twice among its %d leaves and %d nodes",
                                cgraph->n_leafs, cgraph->n_nodes);
        else
            read_edges(&reading, cgraph, node_types, leaf_types);
    }
    table_finish(&reading.table);
    return status;
}

void bgg_shape_finish(bgg_shape *shape)
{
    free(shape->items);
    free(shape->places);
    free(shape->uses);
    free(shape->leaf_roots);
    free(shape->edges);
    memset(shape, 0, sizeof *shape);
}

bool bgg_same_shape(const bgg_item *item, const struct ggml_tensor *tensor)
{
    return item->tensor_type == tensor->type && memcmp(item->ne, tensor->ne, sizeof item->ne) == 0 &&
           memcmp(item->nb, tensor->nb, sizeof item->nb) == 0;
}

bool bgg_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    return a->type == b->type && memcmp(a->ne, b->ne, sizeof a->ne) == 0 &&
           memcmp(a->nb, b->nb, sizeof a->nb) == 0;
}

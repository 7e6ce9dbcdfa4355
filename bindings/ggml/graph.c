/* The graph allocator: plans, buffers, and tensors that get their places. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/problem_file.h>

#include "inside.h"

struct berth_ggml_graph {
    bgg_shape shape; /* of the plan in use */
    bool is_planned;
    berth_solve_options options;
    bool has_options;
    size_t pool_count;
    bgg_pool *pools;
    struct ggml_backend_buffer_type **types; /* those of the pools, side by side */
    struct ggml_backend_buffer *husks;       /* of buffers that went; see buffer_retire */
    uint64_t plans, reuses;
};

/* ---- Creation -------------------------------------------------------------------------------------- */

static berth_status pool_init(berth_ggml_graph *graph, size_t index, struct ggml_backend_buffer_type *type)
{
    bgg_pool *pool = &graph->pools[index];
    if (!type)
        return berth_fail(BERTH_INVALID_ARGUMENT, "buffer type %zu of a graph is NULL", index);
    graph->types[index] = type;
    pool->type = type;
    pool->alignment = bgg_ggml.ggml_backend_buft_get_alignment(type);
    pool->max_bytes = bgg_ggml.ggml_backend_buft_get_max_size(type);
    if (pool->alignment == 0 || pool->alignment > BERTH_ALIGNMENT_MAX)
        return berth_fail(BERTH_INVALID_ARGUMENT, "buffer type %s wants an alignment of %zu",
                          bgg_ggml.ggml_backend_buft_name(type), pool->alignment);
    pool->first = (int32_t)index;
    for (size_t i = 0; i < index; i++)
        if (graph->pools[i].type == type && pool->first == (int32_t)index)
            pool->first = (int32_t)i;
    return BERTH_OK;
}

berth_status berth_ggml_graph_create(struct ggml_backend_buffer_type *const *types, size_t count,
                                     const berth_solve_options *options, berth_ggml_graph **out)
{
    berth_status status;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a graph needs a place for the result");
    *out = NULL;
    if (!types || count == 0 || count > INT32_MAX)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a graph needs one buffer type or more");
    if (options && (options->struct_size == 0 || options->struct_size > sizeof *options))
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "berth_solve_options of %zu bytes are not known; use BERTH_SOLVE_OPTIONS_INIT",
                          options->struct_size);
    if ((status = berth_ggml_load(NULL)))
        return status;
    berth_ggml_graph *graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->pool_count = count;
        graph->pools = calloc(count, sizeof *graph->pools);
        graph->types = calloc(count, sizeof *graph->types);
    }
    if (!graph || !graph->pools || !graph->types)
        status = berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a graph of %zu buffer types", count);
    for (size_t i = 0; i < count && !status; i++)
        status = pool_init(graph, i, types[i]);
    if (status) {
        berth_ggml_graph_destroy(graph);
        return status;
    }
    graph->has_options = options != NULL;
    if (options)
        memcpy(&graph->options, options, options->struct_size);
    *out = graph;
    return BERTH_OK;
}

/* Gives a buffer's memory back and keeps its record until the graph goes. Tensors of earlier calls still name it: ggml would give
 * the record's address to a later buffer, of anybody's, and then nobody could tell whose such a tensor is. A husk answers nothing,
 * and its context is the next one. */
static void buffer_retire(berth_ggml_graph *graph, struct ggml_backend_buffer *buffer)
{
    if (!buffer)
        return;
    if (buffer->iface.free_buffer)
        buffer->iface.free_buffer(buffer);
    memset(&buffer->iface, 0, sizeof buffer->iface);
    buffer->context = graph->husks;
    graph->husks = buffer;
}

static void husks_free(berth_ggml_graph *graph)
{
    for (struct ggml_backend_buffer *husk = graph->husks, *next; husk; husk = next) {
        next = husk->context;
        bgg_ggml.ggml_backend_buffer_free(husk);
    }
}

static void pool_finish(bgg_pool *pool)
{
    for (size_t i = 0; i < pool->buffer_count; i++)
        bgg_ggml.ggml_backend_buffer_free(pool->buffers[i]);
    free(pool->buffers);
    free(pool->bases);
    free(pool->needed_bytes);
}

void berth_ggml_graph_destroy(berth_ggml_graph *graph)
{
    if (!graph)
        return;
    for (size_t i = 0; graph->pools && i < graph->pool_count; i++)
        pool_finish(&graph->pools[i]);
    husks_free(graph);
    bgg_shape_finish(&graph->shape);
    free(graph->pools);
    free(graph->types);
    free(graph);
}

/* ---- Tensors of earlier calls ---------------------------------------------------------------------- */

/* One of the graph's buffers, there or gone. */
static bool is_own_buffer(const berth_ggml_graph *graph, const struct ggml_backend_buffer *buffer)
{
    for (size_t i = 0; buffer && i < graph->pool_count; i++)
        for (size_t j = 0; j < graph->pools[i].buffer_count; j++)
            if (graph->pools[i].buffers[j] == buffer)
                return true;
    const struct ggml_backend_buffer *husk = buffer ? graph->husks : NULL;
    while (husk && husk != buffer)
        husk = husk->context;
    return husk != NULL;
}

static void tensor_forget(const berth_ggml_graph *graph, struct ggml_tensor *tensor)
{
    if (tensor && is_own_buffer(graph, tensor->buffer)) {
        tensor->buffer = NULL;
        tensor->data = NULL;
    }
}

/* A tensor that an earlier plan put into our buffers is ours to place again: left where it is, it would count as foreign
 * while others are put on top of it. */
static void graph_forget(const berth_ggml_graph *graph, const struct ggml_cgraph *cgraph)
{
    for (int i = 0; i < cgraph->n_leafs; i++) {
        tensor_forget(graph, cgraph->leafs[i]->view_src);
        tensor_forget(graph, cgraph->leafs[i]);
    }
    for (int i = 0; i < cgraph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++)
            tensor_forget(graph, cgraph->nodes[i]->src[j]);
        tensor_forget(graph, cgraph->nodes[i]->view_src);
        tensor_forget(graph, cgraph->nodes[i]);
    }
}

/* ---- Planning -------------------------------------------------------------------------------------- */

static berth_status check_types(const berth_ggml_graph *graph, const int *types, int count, const char *what)
{
    for (int i = 0; types && i < count; i++)
        if (types[i] < 0 || (size_t)types[i] >= graph->pool_count)
            return berth_fail(BERTH_INVALID_ARGUMENT, "%s %d has buffer type %d, and there are %zu", what, i,
                              types[i], graph->pool_count);
    return BERTH_OK;
}

/* A buffer type over Berth has said why; of others only ggml's log knows. */
static berth_status fail_buffer(const bgg_pool *pool, uint64_t bytes)
{
    const berth_error *error = berth_last_error();
    berth_status status = error->status ? error->status : BERTH_OUT_OF_DEVICE_MEMORY;
    char words[sizeof error->message];
    (void)snprintf(words, sizeof words, "%s", error->status ? error->message : "ggml's log says why");
    return berth_fail(status, "the plan needs a buffer of %llu bytes of type %s, and it could not be had: %s",
                      (unsigned long long)bytes, bgg_ggml.ggml_backend_buft_name(pool->type), words);
}

/* Each array is the pool's as soon as it has moved, so that a failure of the second loses neither. */
static berth_status pool_widen(bgg_pool *pool, size_t count)
{
    struct ggml_backend_buffer **buffers = realloc(pool->buffers, count * sizeof *buffers);
    if (!buffers)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu buffers", count);
    pool->buffers = buffers;
    char **bases = realloc(pool->bases, count * sizeof *bases);
    if (!bases)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the bases of %zu buffers", count);
    pool->bases = bases;
    memset(buffers + pool->buffer_count, 0, (count - pool->buffer_count) * sizeof *buffers);
    pool->buffer_count = count;
    return BERTH_OK;
}

/* A buffer that is large enough stays. Otherwise the old one goes first: both need not be there at once. */
static berth_status pool_fill(berth_ggml_graph *graph, bgg_pool *pool, const uint64_t *needed, size_t count)
{
    berth_status status = count > pool->buffer_count ? pool_widen(pool, count) : BERTH_OK;
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        struct ggml_backend_buffer **buffer = &pool->buffers[i];
        if (*buffer && bgg_ggml.ggml_backend_buffer_get_size(*buffer) >= needed[i])
            continue;
        buffer_retire(graph, *buffer);
        berth_clear_last_error();
        *buffer = bgg_ggml.ggml_backend_buft_alloc_buffer(pool->type, (size_t)needed[i]);
        if (!*buffer)
            return fail_buffer(pool, needed[i]);
        pool->bases[i] = bgg_ggml.ggml_backend_buffer_get_base(*buffer);
        bgg_ggml.ggml_backend_buffer_set_usage(*buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    }
    return BERTH_OK;
}

/* Buffers that the plan has no use for. */
static void pool_drop_rest(berth_ggml_graph *graph, bgg_pool *pool, size_t count)
{
    for (size_t i = count; i < pool->buffer_count; i++)
        buffer_retire(graph, pool->buffers[i]);
    if (pool->buffer_count > count)
        pool->buffer_count = count;
}

static berth_status pool_plan(berth_ggml_graph *graph, bgg_shape *shape, size_t index)
{
    bgg_pool *pool = &graph->pools[index];
    uint64_t *needed;
    size_t count;
    berth_status status = bgg_plan_pool(shape, (int32_t)index, pool,
                                        graph->has_options ? &graph->options : NULL, &needed, &count);
    if (!status) {
        pool_drop_rest(graph, pool, count);
        status = pool_fill(graph, pool, needed, count);
    }
    free(pool->needed_bytes);
    pool->needed_bytes = needed;
    return status;
}

static berth_status graph_plan(berth_ggml_graph *graph, struct ggml_cgraph *cgraph, const int *node_types,
                               const int *leaf_types)
{
    bgg_shape shape;
    graph_forget(graph, cgraph);
    graph->is_planned = false;
    berth_status status = bgg_shape_init(&shape, cgraph, graph->types, node_types, leaf_types);
    if (!status) {
        for (int32_t i = 0; i < shape.item_count; i++)
            shape.items[i].type = graph->pools[shape.items[i].type].first;
        bgg_shape_live(&shape, true);
        for (size_t i = 0; i < graph->pool_count && !status; i++)
            if (graph->pools[i].first == (int32_t)i)
                status = pool_plan(graph, &shape, i);
    }
    if (status) {
        bgg_shape_finish(&shape);
        return status;
    }
    bgg_shape_finish(&graph->shape);
    graph->shape = shape;
    graph->is_planned = true;
    graph->plans++;
    return BERTH_OK;
}

berth_status berth_ggml_graph_reserve(berth_ggml_graph *graph, struct ggml_cgraph *cgraph,
                                      const int *node_types, const int *leaf_types)
{
    berth_status status;
    if (!graph || !cgraph)
        return berth_fail(BERTH_INVALID_ARGUMENT, "reserving needs a graph of Berth's and one of ggml's");
    if ((status = check_types(graph, node_types, cgraph->n_nodes, "node")) ||
        (status = check_types(graph, leaf_types, cgraph->n_leafs, "leaf")))
        return status;
    return graph_plan(graph, cgraph, node_types, leaf_types);
}

/* ---- Comparing ------------------------------------------------------------------------------------- */

static char *place_address(const berth_ggml_graph *graph, const bgg_place *place)
{
    const bgg_pool *pool = &graph->pools[place->type];
    /* Tensors without bytes have a place in no buffer; where there is none at all, NULL does. */
    if (pool->buffer_count == 0)
        return NULL;
    return pool->bases[place->buffer] + place->offset;
}

/* Whether a tensor stands where the plan has it. The address alone does not say so: another buffer may have been there. */
static bool is_in_place(const berth_ggml_graph *graph, const bgg_place *place,
                        const struct ggml_tensor *tensor)
{
    const bgg_pool *pool = &graph->pools[place->type];
    return tensor->data == place_address(graph, place) &&
           tensor->buffer == (pool->buffer_count ? pool->buffers[place->buffer] : NULL);
}

/* Whether a tensor can stand where item number `index` stood, but for its size. */
static bool item_fits(berth_ggml_graph *graph, int32_t index, struct ggml_tensor *tensor)
{
    bgg_item *item = &graph->shape.items[index];
    int32_t marks = tensor->flags & (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT);
    item->tensor = tensor;
    if (tensor->op != item->op || marks != item->marks ||
        (tensor->view_src != NULL) != (item->root != BGG_NONE))
        return false;
    if (item->root != BGG_NONE)
        return true;
    bool has_memory = tensor->data || tensor->buffer;
    if (item->external)
        return has_memory && !is_own_buffer(graph, tensor->buffer);
    return !has_memory || is_in_place(graph, &graph->shape.places[item->place], tensor);
}

static bool taken_fits(const bgg_shape *shape, int32_t node)
{
    const bgg_item *item = &shape->items[shape->leaf_count + node];
    if (item->taken_from == BGG_NONE)
        return true;
    const struct ggml_tensor *from = shape->items[item->taken_from].tensor;
    return bgg_same_layout(item->tensor, from) && (!from->view_src || from->view_offs == 0);
}

/* Whether the plan has room for tensors of these shapes. They may be smaller: a graph is often reserved at its largest. Sizes
 * are asked for only if some shape is another: the buffer type's answer may depend on a tensor's sources too. */
static bool sizes_fit(const berth_ggml_graph *graph)
{
    const bgg_shape *shape = &graph->shape;
    bool is_same = true;
    for (int32_t i = 0; i < shape->item_count && is_same; i++)
        is_same = !shape->items[i].tensor || bgg_same_shape(&shape->items[i], shape->items[i].tensor);
    for (int32_t i = 0; i < shape->item_count && !is_same; i++) {
        const bgg_item *item = &shape->items[i];
        if (item->place != BGG_NONE && bgg_ggml.ggml_backend_buft_get_alloc_size(
                                           graph->types[item->type], item->tensor) > item->size_bytes)
            return false;
    }
    return true;
}

/* Tensors in neither list have no number of their own in the new graph: they get it where they are first met. */
static bool edge_fits(berth_ggml_graph *graph, int32_t item, struct ggml_tensor *tensor)
{
    const bgg_shape *shape = &graph->shape;
    if (item == BGG_NONE || !tensor)
        return item == BGG_NONE && !tensor;
    if (item < shape->leaf_count + shape->node_count || shape->items[item].tensor == tensor)
        return shape->items[item].tensor == tensor;
    return item_fits(graph, item, tensor);
}

static bool node_fits(berth_ggml_graph *graph, const struct ggml_cgraph *cgraph, int32_t node)
{
    const int32_t *edges = graph->shape.edges + (size_t)node * BGG_EDGES;
    struct ggml_tensor *tensor = cgraph->nodes[node];
    for (int j = 0; j < GGML_MAX_SRC; j++)
        if (!edge_fits(graph, edges[j], tensor->src[j]))
            return false;
    return edge_fits(graph, edges[GGML_MAX_SRC], tensor->view_src) && taken_fits(&graph->shape, node);
}

/* Whether the plan in use is one for this graph too. Items then name its tensors. */
static bool graph_fits(berth_ggml_graph *graph, const struct ggml_cgraph *cgraph)
{
    bgg_shape *shape = &graph->shape;
    if (!graph->is_planned || shape->unlisted || cgraph->n_leafs != shape->leaf_count ||
        cgraph->n_nodes != shape->node_count)
        return false;
    for (int32_t i = 0; i < shape->leaf_count; i++)
        if (!item_fits(graph, i, cgraph->leafs[i]))
            return false;
    for (int32_t i = 0; i < shape->node_count; i++)
        if (!item_fits(graph, shape->leaf_count + i, cgraph->nodes[i]))
            return false;
    for (int32_t i = shape->leaf_count + shape->node_count; i < shape->item_count; i++)
        shape->items[i].tensor = NULL;
    for (int32_t i = 0; i < shape->leaf_count; i++)
        if (!edge_fits(graph, shape->leaf_roots[i], cgraph->leafs[i]->view_src))
            return false;
    for (int32_t i = 0; i < shape->node_count; i++)
        if (!node_fits(graph, cgraph, i))
            return false;
    return sizes_fit(graph);
}

/* ---- Placing --------------------------------------------------------------------------------------- */

/* As ggml_backend_tensor_alloc, which proves once more that the tensor lies within its buffer. */
static berth_status tensor_place(const berth_ggml_graph *graph, const bgg_item *item)
{
    const bgg_place *place = &graph->shape.places[item->place];
    const bgg_pool *pool = &graph->pools[place->type];
    if (item->tensor->data || pool->buffer_count == 0)
        return BERTH_OK;
    item->tensor->buffer = pool->buffers[place->buffer];
    item->tensor->data = place_address(graph, place);
    int code = bgg_ggml.ggml_backend_buffer_init_tensor(item->tensor->buffer, item->tensor);
    return code == GGML_STATUS_SUCCESS
               ? BERTH_OK
               : berth_fail(BERTH_DEVICE_ERROR, "buffer type %s cannot take the tensor '%s' (ggml status %d)",
                            bgg_ggml.ggml_backend_buft_name(pool->type), item->tensor->name, code);
}

/* Where the source has memory that ggml's backends know nothing of, its view has as well. */
static berth_status view_place(const bgg_item *item)
{
    struct ggml_tensor *tensor = item->tensor;
    if (!tensor || tensor->buffer || !tensor->view_src->buffer || !tensor->view_src->data)
        return BERTH_OK;
    int code = bgg_ggml.ggml_backend_view_init(tensor);
    return code == GGML_STATUS_SUCCESS
               ? BERTH_OK
               : berth_fail(BERTH_DEVICE_ERROR, "the view '%s' cannot be made (ggml status %d)", tensor->name,
                            code);
}

berth_status berth_ggml_graph_allocate(berth_ggml_graph *graph, struct ggml_cgraph *cgraph)
{
    berth_status status = BERTH_OK;
    if (!graph || !cgraph)
        return berth_fail(BERTH_INVALID_ARGUMENT, "allocating needs a graph of Berth's and one of ggml's");
    if (graph_fits(graph, cgraph))
        graph->reuses++;
    else if (graph->pool_count > 1)
        return berth_fail(BERTH_MISMATCH,
                          "the graph is not like the one reserved, and there are %zu buffer types: reserve "
                          "it with its types",
                          graph->pool_count);
    else if ((status = graph_plan(graph, cgraph, NULL, NULL)))
        return status;
    /* Views second: a leaf may show what a node makes. */
    for (int32_t i = 0; i < graph->shape.item_count && !status; i++)
        if (graph->shape.items[i].place != BGG_NONE)
            status = tensor_place(graph, &graph->shape.items[i]);
    for (int32_t i = 0; i < graph->shape.item_count && !status; i++)
        if (graph->shape.items[i].root != BGG_NONE)
            status = view_place(&graph->shape.items[i]);
    return status;
}

/* ---- Figures --------------------------------------------------------------------------------------- */

berth_status berth_ggml_graph_figures_get(const berth_ggml_graph *graph, size_t type,
                                          berth_ggml_graph_figures *out)
{
    if (!graph || type >= graph->pool_count || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "figures need a graph, one of its buffer types and BERTH_GGML_GRAPH_FIGURES_INIT");
    int32_t first = graph->pools[type].first;
    const bgg_pool *pool = &graph->pools[first];
    *out = (berth_ggml_graph_figures){.struct_size = out->struct_size,
                                      .lower_bound_bytes = pool->lower_bound_bytes,
                                      .buffers = pool->buffer_count,
                                      .plans = graph->plans,
                                      .reuses = graph->reuses,
                                      .proven_optimal = graph->is_planned && pool->proven_optimal};
    for (size_t i = 0; i < pool->buffer_count; i++) {
        out->buffer_bytes += pool->buffers[i] ? bgg_ggml.ggml_backend_buffer_get_size(pool->buffers[i]) : 0;
        out->planned_bytes += graph->is_planned ? pool->needed_bytes[i] : 0;
    }
    for (int32_t i = 0; graph->is_planned && i < graph->shape.item_count; i++) {
        const bgg_item *item = &graph->shape.items[i];
        if (item->place == BGG_NONE || item->type != first)
            continue;
        out->tensors++;
        out->in_place += item->taken_from != BGG_NONE;
    }
    return BERTH_OK;
}

typedef struct writing_names {
    const bgg_shape *shape;
    const int32_t *which;
} writing_names;

static size_t write_label(void *context, size_t buffer, char *text, size_t room)
{
    const writing_names *names = context;
    const char *name = names->shape->places[names->which[buffer]].name;
    size_t length = strlen(name);
    if (room > 0) {
        size_t part = length < room ? length : room - 1;
        memcpy(text, name, part);
        text[part] = '\0';
    }
    return length;
}

berth_status berth_ggml_graph_write(const berth_ggml_graph *graph, size_t type, const char *path)
{
    berth_problem problem;
    berth_problem_buffer *buffers;
    int32_t *which;
    if (!graph || type >= graph->pool_count || !path)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "writing needs a graph, one of its buffer types and a path");
    if (!graph->is_planned)
        return berth_fail(BERTH_NOT_FOUND, "nothing is planned for this graph yet");
    int32_t first = graph->pools[type].first;
    const bgg_pool *pool = &graph->pools[first];
    berth_status status = bgg_plan_problem(&graph->shape, first, pool->alignment, &problem, &buffers, &which);
    if (status)
        return status;
    uint64_t *offsets = calloc(problem.buffer_count + 1, sizeof *offsets);
    if (!offsets)
        status = berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a plan");
    for (size_t i = 0; i < problem.buffer_count && !status; i++) {
        const bgg_place *place = &graph->shape.places[which[i]];
        offsets[i] = place->offset;
        for (int32_t j = 0; j < place->buffer; j++)
            offsets[i] += (pool->needed_bytes[j] + pool->alignment - 1) / pool->alignment * pool->alignment;
    }
    writing_names names = {&graph->shape, which};
    if (!status)
        status = berth_problem_write(&problem, NULL, write_label, &names, offsets, path);
    free(offsets);
    free(buffers);
    free(which);
    return status;
}

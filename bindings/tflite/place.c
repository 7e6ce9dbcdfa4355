/* From lives to places: tensors of the interpreter's arena become a plan of Berth's, the plan a block, and the tensors
 * memory of the program's (LITE_CUSTOM), which the interpreter's arena then leaves out. It runs after the last operator
 * was prepared, when all sizes are known, and before the interpreter fills its arena. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* XNNPACK's kernels read up to 16 bytes past a tensor's end. */
#define BLOCK_SPARE_BYTES 64

/* A row of the plan; also the key under which it is kept. */
typedef struct place_row {
    uint64_t size_bytes;
    uint64_t name_hash;
    int32_t first, last, tensor, unused;
} place_row;

static uint64_t place_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; name && *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static int place_compare(const void *a, const void *b)
{
    const place_row *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->tensor < y->tensor ? -1 : 1;
}

/* Rows in the order of the first operator, and figures of what is left to the interpreter. */
static berth_status place_collect(bt_graph *graph, place_row **out, size_t *count)
{
    bt_life *lives = NULL;
    berth_status status = bt_lives_read(graph, &lives);
    *out = NULL;
    if (status)
        return status;
    size_t tensors = graph->context->tensors_size;
    place_row *rows = calloc(tensors ? tensors : 1, sizeof *rows);
    if (!rows) {
        free(lives);
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan of %zu tensors", tensors);
    }
    size_t n = 0;
    berth_tflite_figures *figures = &graph->figures;
    figures->persistent_tensors = figures->dynamic_tensors = 0;
    figures->persistent_bytes = 0;
    for (size_t i = 0; i < tensors; i++) {
        const lite_tensor *tensor = &graph->context->tensors[i];
        if (bt_is_planned(tensor, &lives[i]))
            rows[n++] = (place_row){.size_bytes = tensor->bytes,
                                    .name_hash = place_hash(tensor->name),
                                    .first = lives[i].first,
                                    .last = lives[i].last,
                                    .tensor = (int32_t)i};
        if (tensor->allocation_type == LITE_PERSISTENT) {
            figures->persistent_tensors++;
            figures->persistent_bytes += tensor->bytes;
        }
        figures->dynamic_tensors += tensor->allocation_type == LITE_DYNAMIC && lives[i].first >= 0;
    }
    free(lives);
    qsort(rows, n, sizeof *rows, place_compare);
    *out = rows;
    *count = n;
    return BERTH_OK;
}

/* The first row that begins after operator `last`. */
static size_t place_freed_at(const place_row *rows, size_t count, int32_t last)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle].first <= last)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static berth_status place_solve(bt_graph *graph, const place_row *rows, size_t count, berth_plan *plan)
{
    berth_plan_allocation *all = calloc(count ? count : 1, sizeof *all);
    if (!all)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan of %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        all[i] = (berth_plan_allocation){.struct_size = sizeof all[i],
                                         .size_bytes = rows[i].size_bytes,
                                         .alignment = LITE_TENSOR_ALIGNMENT,
                                         .freed_at = place_freed_at(rows, count, rows[i].last),
                                         .offset = BERTH_NO_OFFSET,
                                         .label = graph->context->tensors[rows[i].tensor].name};
    berth_status status = berth_plan_set(plan, all, count, &graph->owner->solve);
    free(all);
    return status;
}

/* The plan of these rows, kept from another time or made. */
static berth_status place_plan(bt_graph *graph, const place_row *rows, size_t count, berth_plan **out)
{
    berth_plan_cache *plans = graph->owner->plans;
    if (count && berth_plan_cache_get(plans, rows, count * sizeof *rows, out) == BERTH_OK)
        return BERTH_OK;
    berth_plan *plan = NULL;
    berth_status status = berth_plan_create(&plan);
    if (!status && count)
        status = place_solve(graph, rows, count, plan);
    if (status) {
        berth_plan_release(plan);
        return status;
    }
    if (count)
        (void)berth_plan_cache_put(plans, rows, count * sizeof *rows, plan); /* too large to keep: no harm */
    *out = plan;
    return BERTH_OK;
}

static void place_count(bt_graph *graph, size_t count)
{
    berth_tflite_figures *figures = &graph->figures;
    berth_certificate certificate = BERTH_CERTIFICATE_INIT;
    if (count)
        (void)berth_plan_certificate(graph->plan, &certificate);
    figures->tensors = count;
    figures->arena_bytes = berth_plan_total_bytes(graph->plan);
    figures->bound_bytes = certificate.lower_bound_bytes;
    figures->separate_bytes = certificate.naive_bytes;
    figures->plannings++;
}

/* Points the tensors into a block of the plan's size. */
static berth_status place_tensors(bt_graph *graph, const place_row *rows, size_t count)
{
    size_t bytes = (size_t)berth_plan_total_bytes(graph->plan) + BLOCK_SPARE_BYTES;
    int *placed = malloc(count * sizeof *placed);
    void *block = NULL;
    if (!placed)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the list of %zu tensors", count);
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "tflite arena";
    berth_status status =
        berth_allocate(graph->owner->allocator, bytes, LITE_TENSOR_ALIGNMENT, &request, &block);
    if (status) {
        free(placed);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        berth_plan_allocation allocation = BERTH_PLAN_ALLOCATION_INIT;
        (void)berth_plan_get(graph->plan, i, &allocation); /* it has as many as there are rows */
        lite_tensor *tensor = &graph->context->tensors[rows[i].tensor];
        tensor->allocation_type = LITE_CUSTOM;
        tensor->data = (char *)block + allocation.offset;
        placed[i] = rows[i].tensor;
    }
    graph->block = block;
    graph->block_bytes = bytes;
    graph->placed = placed;
    graph->placed_count = count;
    graph->figures.placed = true;
    return BERTH_OK;
}

/* An operator's output without a size: operators behind it are prepared only when it has run, and by then the interpreter
 * has given others their places. */
static bool place_is_dynamic(const bt_graph *graph)
{
    for (int at = 0; at < graph->order->size; at++) {
        lite_node *node = NULL;
        lite_registration *registration = NULL;
        if (graph->get_node(graph->context, graph->order->data[at], &node, &registration) != LITE_OK)
            return true;
        for (int i = 0; i < node->outputs->size; i++) {
            int tensor = node->outputs->data[i];
            if (tensor >= 0 && graph->context->tensors[tensor].allocation_type == LITE_DYNAMIC)
                return true;
        }
    }
    return false;
}

void bt_leave_alone(bt_graph *graph, const char *why)
{
    snprintf(graph->figures.words, sizeof graph->figures.words, "%s", why);
}

berth_status bt_place(bt_graph *graph)
{
    place_row *rows = NULL;
    size_t count = 0;
    bt_unplace(graph);
    berth_status status = place_collect(graph, &rows, &count);
    if (status)
        return status;
    const char *why = NULL;
    if (place_is_dynamic(graph))
        why = "some tensors get their size while the model runs: all are left to the interpreter";
    else if (count == 0)
        why = "no tensor is in the interpreter's arena";
    if (!why)
        status = place_plan(graph, rows, count, &graph->plan);
    if (!why && !status) {
        place_count(graph, count);
        if (graph->owner->watch)
            why = "only watched, as the options ask";
        else
            status = place_tensors(graph, rows, count);
    }
    if (why)
        bt_leave_alone(graph, why);
    if (status)
        bt_unplace(graph);
    free(rows);
    return status;
}

void bt_unplace(bt_graph *graph)
{
    for (size_t i = 0; i < graph->placed_count; i++) {
        lite_tensor *tensor = &graph->context->tensors[graph->placed[i]];
        if (tensor->allocation_type != LITE_CUSTOM)
            continue; /* its operator has made another choice since */
        tensor->allocation_type = LITE_ARENA;
        tensor->data = NULL;
    }
    free(graph->placed);
    graph->placed = NULL;
    graph->placed_count = 0;
    if (graph->block)
        (void)berth_deallocate(graph->owner->allocator, graph->block, graph->block_bytes, NULL);
    graph->block = NULL;
    berth_plan_release(graph->plan);
    graph->plan = NULL;
    graph->figures.placed = false;
    graph->figures.words[0] = '\0';
    graph->figures.tensors = 0;
    graph->figures.arena_bytes = graph->figures.bound_bytes = graph->figures.separate_bytes = 0;
}

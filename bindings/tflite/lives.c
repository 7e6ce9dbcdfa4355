/* How long each tensor is needed, by the interpreter's own rules: inputs of the graph from the start to the end, so that a
 * run can be repeated; outputs from the operator that makes them to the end; temporaries during their operator; all else
 * from the first operator that writes it to the last that reads it. Two rules are tighter: what nobody reads is needed only
 * while it is made, and inputs that the program fills for every run end with the last operator that reads them. */
#include "inside.h"

#include <stdlib.h>

static void life_cover(bt_life *lives, size_t count, const lite_ints *tensors, int at)
{
    for (int i = 0; i < tensors->size; i++) {
        int tensor = tensors->data[i];
        if (tensor < 0 || (size_t)tensor >= count)
            continue; /* LITE_NO_TENSOR */
        bt_life *life = &lives[tensor];
        if (life->first < 0)
            life->first = at;
        if (life->last < at)
            life->last = at;
    }
}

/* Read before anything has written it: an input, which the program fills before the first operator runs. */
static void life_note_inputs(bt_life *lives, size_t count, const lite_ints *tensors, bool kept)
{
    for (int i = 0; i < tensors->size; i++) {
        int tensor = tensors->data[i];
        if (tensor >= 0 && (size_t)tensor < count && lives[tensor].first < 0)
            lives[tensor] = (bt_life){0, kept ? BT_TO_THE_END : 0};
    }
}

static void lives_keep(bt_life *lives, size_t count, const lite_ints *tensors)
{
    for (int i = 0; i < tensors->size; i++) {
        int tensor = tensors->data[i];
        if (tensor >= 0 && (size_t)tensor < count && lives[tensor].first >= 0)
            lives[tensor].last = BT_TO_THE_END;
    }
}

static berth_status lives_fill(const bt_graph *graph, bt_life *lives, size_t count)
{
    /* The program fills the main graph's only. What a loop or a branch calls is filled by its operator, which reads it again later. */
    const bool kept = !(graph->owner->reuse_inputs && graph->is_main);
    for (int at = 0; at < graph->order->size; at++) {
        lite_node *node = NULL;
        lite_registration *registration = NULL;
        if (graph->get_node(graph->context, graph->order->data[at], &node, &registration) != LITE_OK)
            return berth_fail(BERTH_INTERNAL, "the interpreter does not know its operator %d",
                              graph->order->data[at]);
        life_note_inputs(lives, count, node->inputs, kept);
        life_cover(lives, count, node->inputs, at);
        life_cover(lives, count, node->outputs, at);
        life_cover(lives, count, node->temporaries, at);
    }
    lives_keep(lives, count, graph->outputs);
    if (graph->handed_out)
        lives_keep(lives, count, graph->handed_out);
    return BERTH_OK;
}

berth_status bt_lives_read(const bt_graph *graph, bt_life **out)
{
    size_t count = graph->context->tensors_size;
    bt_life *lives = calloc(count ? count : 1, sizeof *lives);
    *out = NULL;
    if (!lives)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the lives of %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        lives[i] = (bt_life){-1, -1};
    berth_status status = lives_fill(graph, lives, count);
    if (status) {
        free(lives);
        return status;
    }
    *out = lives;
    return BERTH_OK;
}

bool bt_is_planned(const lite_tensor *tensor, const bt_life *life)
{
    return tensor->allocation_type == LITE_ARENA && tensor->bytes > 0 && life->first >= 0;
}

/* Graphs under our care, and how we are called: the first and the last operator in the order of execution have a prepare
 * function of ours around their own. The first means that the interpreter begins to prepare its operators, as it
 * does again after inputs were resized, and finds tensors as if we had never been there; the last, that all sizes are known.
 * A delegate's own prepare comes too early for this: operators are prepared once more after it, and set their
 * temporaries' kind anew. A node has its registration to itself, and a delegate gets it to write to. */
#include "inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;
static bt_graph *graphs; /* guarded by graphs_lock; oldest first */

static _Thread_local berth_status failure;

berth_status bt_failure_take(void)
{
    berth_status status = failure;
    failure = BERTH_OK;
    return status;
}

/* Also in the interpreter's own log, since its caller sees no more than a number. */
int bt_failure_set(lite_context *context, berth_status status)
{
    failure = status;
    context->report_error(context, "berth: %s", berth_last_error()->message);
    return LITE_ERROR;
}

/* ---- The list -------------------------------------------------------------------------------------------- */

bt_graph *bt_graph_find(const lite_context *context)
{
    pthread_mutex_lock(&graphs_lock);
    bt_graph *graph = graphs;
    while (graph && graph->context != context)
        graph = graph->next;
    pthread_mutex_unlock(&graphs_lock);
    return graph;
}

bt_graph *bt_graph_at(const berth_tflite *owner, size_t index)
{
    pthread_mutex_lock(&graphs_lock);
    bt_graph *graph = graphs;
    for (; graph; graph = graph->next)
        if (graph->owner == owner && index-- == 0)
            break;
    pthread_mutex_unlock(&graphs_lock);
    return graph;
}

/* The interpreter's end is told by a buffer handle, which it gives back then. It is on a tensor that we add: handles of
 * others' tensors are copied along when control flow hands values from graph to graph. */
static bool graph_ask_for_goodbye(bt_graph *graph)
{
    int added = 0;
    if (graph->context->add_tensors(graph->context, 1, &added) != LITE_OK)
        return false;
    graph->context->tensors[added].delegate = &graph->owner->delegate;
    graph->context->tensors[added].buffer_handle = 0;
    return true;
}

/* The lock is held. A delegate meets an interpreter's main graph first, then those that its operators call. Where that cannot be
 * told, none is. */
static void graph_add(bt_graph *graph)
{
    bt_graph **end = &graphs;
    graph->is_main = graph->interpreter != NULL;
    for (; *end; end = &(*end)->next)
        if ((*end)->interpreter == graph->interpreter)
            graph->is_main = false;
    *end = graph;
}

berth_status bt_graph_create(berth_tflite *owner, lite_context *context, bt_graph **out)
{
    bt_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a graph");
    graph->owner = owner;
    graph->context = context;
    graph->interpreter = context->get_external_context(context, LITE_CPU_BACKEND_CONTEXT);
    graph->get_node = context->get_node;
    if (!graph_ask_for_goodbye(graph)) {
        free(graph);
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "the interpreter does not take another tensor");
    }
    atomic_fetch_add(&owner->references, 1);
    pthread_mutex_lock(&graphs_lock);
    graph_add(graph);
    pthread_mutex_unlock(&graphs_lock);
    *out = graph;
    return BERTH_OK;
}

void bt_graph_destroy(bt_graph *graph)
{
    berth_tflite *owner = graph->owner;
    pthread_mutex_lock(&graphs_lock);
    bt_graph **at = &graphs;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    pthread_mutex_unlock(&graphs_lock);
    bt_unplace(graph);
    free(graph->order);
    free(graph->outputs);
    free(graph->handed_out);
    free(graph);
    bt_release(owner);
}

/* ---- Our prepare around an operator's own ------------------------------------------------------------------ */

static int prepare_own(lite_prepare_fn own, lite_context *context, lite_node *node)
{
    return own ? own(context, node) : LITE_OK;
}

/* Places are given once for each time that the delegate is applied. Operators that are prepared again without it are so for
 * a delegate that came after us and takes some of them: tensors are needed longer then than we know, so they stay where
 * the interpreter puts them. The same holds after a failure. */
static int prepare_finish(bt_graph *graph)
{
    if (!graph->armed) {
        bt_leave_alone(graph,
                       graph->failure[0]
                           ? graph->failure
                           : "another delegate came after Berth's: name it in the options as the inner one");
        return LITE_OK;
    }
    graph->armed = false;
    graph->failure[0] = '\0';
    berth_status status = bt_place(graph);
    if (!status)
        return LITE_OK;
    snprintf(graph->failure, sizeof graph->failure, "%.*s", (int)sizeof graph->failure - 1,
             berth_last_error()->message);
    bt_leave_alone(graph, graph->failure);
    return bt_failure_set(graph->context, status);
}

static int prepare_first(lite_context *context, lite_node *node)
{
    bt_graph *graph = bt_graph_find(context);
    bt_unplace(graph);
    return prepare_own(graph->first_prepare, context, node);
}

static int prepare_last(lite_context *context, lite_node *node)
{
    bt_graph *graph = bt_graph_find(context);
    int code = prepare_own(graph->last_prepare, context, node);
    return code == LITE_OK ? prepare_finish(graph) : code;
}

static int prepare_only(lite_context *context, lite_node *node)
{
    bt_graph *graph = bt_graph_find(context);
    bt_unplace(graph);
    int code = prepare_own(graph->first_prepare, context, node);
    return code == LITE_OK ? prepare_finish(graph) : code;
}

static lite_registration *graph_registration(bt_graph *graph, int node_index)
{
    lite_node *node = NULL;
    lite_registration *registration = NULL;
    int code = graph->get_node(graph->context, node_index, &node, &registration);
    return code == LITE_OK ? registration : NULL;
}

berth_status bt_graph_hook(bt_graph *graph, const lite_ints *order)
{
    free(graph->order);
    graph->order = bt_ints_copy(order);
    if (!graph->order)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the order of %d operators", order->size);
    if (order->size == 0)
        return berth_fail(BERTH_UNSUPPORTED, "the graph has no operator");
    lite_registration *first = graph_registration(graph, order->data[0]);
    lite_registration *last = graph_registration(graph, order->data[order->size - 1]);
    if (!first || !last)
        return berth_fail(BERTH_INTERNAL, "the interpreter does not know its own operators");
    graph->first_prepare = first->prepare;
    graph->last_prepare = last->prepare;
    first->prepare = first == last ? prepare_only : prepare_first;
    if (first != last)
        last->prepare = prepare_last;
    return BERTH_OK;
}

/* `order` is what the interpreter has now: operators of a delegate that was taken back are no more. */
void bt_graph_unhook(bt_graph *graph, const lite_ints *order)
{
    for (int i = 0; i < order->size; i++) {
        lite_registration *registration = graph_registration(graph, order->data[i]);
        if (!registration)
            continue;
        if (registration->prepare == prepare_first || registration->prepare == prepare_only)
            registration->prepare = graph->first_prepare;
        else if (registration->prepare == prepare_last)
            registration->prepare = graph->last_prepare;
    }
}

lite_ints *bt_ints_copy(const lite_ints *ints)
{
    size_t bytes = sizeof *ints + (size_t)ints->size * sizeof ints->data[0];
    lite_ints *copy = malloc(bytes);
    if (copy)
        memcpy(copy, ints, bytes);
    return copy;
}

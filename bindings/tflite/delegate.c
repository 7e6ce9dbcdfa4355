/* The delegate: it takes no operator, reads the graph, and asks to be called when the operators are prepared. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

#define PLANS_KEPT_BYTES ((size_t)4 << 20)

/* The graph's outputs. A context does not tell them, but it tells what a delegate that took all operators would have to
 * hand out. Were it to see several parts, what goes from one to another is told as well: those live longer than they
 * need to, and nothing is wrong. */
static berth_status delegate_read_outputs(bt_graph *graph, const lite_ints *order)
{
    lite_part *parts = NULL;
    int count = 0;
    if (graph->context->preview_parts(graph->context, order, &parts, &count) != LITE_OK)
        return berth_fail(BERTH_UNSUPPORTED, "the interpreter does not tell the graph's outputs");
    int total = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].outputs->size;
    free(graph->outputs);
    graph->outputs = malloc(sizeof *graph->outputs + (size_t)total * sizeof graph->outputs->data[0]);
    if (!graph->outputs)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %d outputs", total);
    graph->outputs->size = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < parts[i].outputs->size; j++)
            graph->outputs->data[graph->outputs->size++] = parts[i].outputs->data[j];
    return BERTH_OK;
}

/* The interpreter that berth_tflite_apply works on, on this thread. */
static _Thread_local const struct TfLiteInterpreter *applying;

/* An input that the model hands out unchanged is no operator's output, so that the context does not tell it. The interpreter does, where
 * there is one to ask; what it said holds for the graph's life. */
static berth_status delegate_note_handed_out(bt_graph *graph)
{
    const bt_calls *call = &graph->owner->call;
    if (!applying || !graph->is_main)
        return BERTH_OK;
    int32_t count = call->InterpreterGetOutputTensorCount(applying);
    lite_ints *list = malloc(sizeof *list + (size_t)(count > 0 ? count : 0) * sizeof list->data[0]);
    if (!list)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %d outputs", (int)count);
    list->size = 0;
    for (int32_t i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)call->InterpreterGetOutputTensor(applying, i);
        uintptr_t index = (at - (uintptr_t)graph->context->tensors) / sizeof(lite_tensor);
        if (index < graph->context->tensors_size)
            list->data[list->size++] = (int)index;
    }
    free(graph->handed_out);
    graph->handed_out = list;
    return BERTH_OK;
}

/* The order of execution, copied: the context's own changes with the next question. */
static berth_status delegate_read_order(lite_context *context, lite_ints **out)
{
    lite_ints *order = NULL;
    if (context->get_plan(context, &order) != LITE_OK)
        return berth_fail(BERTH_UNSUPPORTED, "the interpreter does not tell its order of execution");
    *out = bt_ints_copy(order);
    return *out ? BERTH_OK : berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %d operators", order->size);
}

static berth_status delegate_find_graph(berth_tflite *berth, lite_context *context, bt_graph **out)
{
    *out = bt_graph_find(context);
    if (*out && (*out)->owner != berth)
        return berth_fail(BERTH_BUSY, "another berth_tflite has placed this interpreter's tensors");
    return *out ? BERTH_OK : bt_graph_create(berth, context, out);
}

static berth_status delegate_read(berth_tflite *berth, lite_context *context, bt_graph **out)
{
    berth_status status = delegate_find_graph(berth, context, out);
    lite_ints *order = NULL;
    if (!status)
        status = delegate_note_handed_out(*out);
    if (!status)
        status = delegate_read_order(context, &order);
    if (status)
        return status;
    bt_unplace(*out);
    bt_graph_unhook(*out, order);
    status = delegate_read_outputs(*out, order);
    free(order);
    return status;
}

static berth_status delegate_hook(bt_graph *graph)
{
    lite_ints *order = NULL;
    berth_status status = delegate_read_order(graph->context, &order);
    if (!status)
        status = bt_graph_hook(graph, order);
    free(order);
    return status;
}

/* After every resize, too: the interpreter then takes its delegates back and applies them again. */
static int delegate_prepare(lite_context *context, struct TfLiteDelegate *delegate)
{
    berth_tflite *berth = delegate->data;
    bt_graph *graph = NULL;
    berth_status status = delegate_read(berth, context, &graph);
    if (status)
        return bt_failure_set(context, status);
    if (berth->inner) {
        int code = berth->inner->prepare(context, berth->inner);
        if (code != LITE_OK)
            return code;
    }
    status = delegate_hook(graph);
    graph->armed = !status;
    return !status ? LITE_OK : bt_failure_set(context, status);
}

/* The interpreter's end. */
static void delegate_free_handle(lite_context *context, struct TfLiteDelegate *delegate, int *handle)
{
    (void)delegate;
    *handle = LITE_NO_HANDLE;
    bt_graph *graph = bt_graph_find(context);
    if (graph)
        bt_graph_destroy(graph);
}

/* Never called: no data is marked stale. A delegate with handles must have one. */
static int delegate_copy_from(lite_context *context, struct TfLiteDelegate *delegate, int handle,
                              lite_tensor *tensor)
{
    (void)context, (void)delegate, (void)handle, (void)tensor;
    return LITE_OK;
}

void bt_release(berth_tflite *berth)
{
    if (atomic_fetch_sub(&berth->references, 1) != 1)
        return;
    berth_plan_cache_destroy(berth->plans);
    berth_allocator_release(berth->allocator);
    bt_unload(&berth->call);
    free(berth);
}

/* ---- Public -------------------------------------------------------------------------------------------------- */

/* The interpreter's operators write to it. */
static berth_status check_memory(berth_allocator *allocator)
{
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    if (!allocator || berth_allocator_memory_kind(allocator) != BERTH_MEMORY_DEVICE ||
        (berth_device_describe(berth_allocator_device(allocator), &info) == BERTH_OK && info.host_accessible))
        return BERTH_OK;
    return berth_fail(BERTH_UNSUPPORTED,
                      "TensorFlow Lite's operators cannot use the memory of %s, which the host does not "
                      "reach; `watch` tells what a plan needs without any",
                      berth_allocator_name(allocator));
}

berth_status berth_tflite_create(const berth_tflite_options *options, berth_tflite **out)
{
    const berth_tflite_options none = BERTH_TFLITE_OPTIONS_INIT;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_tflite_create: out is NULL");
    *out = NULL;
    if (!options)
        options = &none;
    if (options->struct_size < sizeof *options)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "berth_tflite_create: options.struct_size is %zu, set it to sizeof options",
                          options->struct_size);
    berth_status status = options->watch ? BERTH_OK : check_memory(options->allocator);
    if (status)
        return status;
    berth_tflite *berth = calloc(1, sizeof *berth);
    if (!berth)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a delegate");
    /* No flags: sizes must be known, and the delegate is applied anew after inputs were resized. */
    berth->delegate = (struct TfLiteDelegate){.data = berth,
                                              .prepare = delegate_prepare,
                                              .copy_from_buffer_handle = delegate_copy_from,
                                              .free_buffer_handle = delegate_free_handle};
    atomic_init(&berth->references, 1);
    berth->inner = options->inner;
    berth->watch = options->watch;
    berth->reuse_inputs = options->reuse_inputs;
    berth->solve = options->solve ? *options->solve : (berth_solve_options)BERTH_SOLVE_OPTIONS_INIT;
    berth->allocator = options->allocator ? options->allocator : berth_cpu_allocator();
    berth_allocator_retain(berth->allocator);
    status = berth_plan_cache_create(PLANS_KEPT_BYTES, &berth->plans);
    if (!status)
        status = bt_load(options->library, &berth->call);
    if (status) {
        bt_release(berth);
        return status;
    }
    *out = berth;
    return BERTH_OK;
}

void berth_tflite_destroy(berth_tflite *berth)
{
    if (berth)
        bt_release(berth);
}

struct TfLiteDelegate *berth_tflite_delegate(berth_tflite *berth)
{
    return berth ? &berth->delegate : NULL;
}

berth_status berth_tflite_apply(berth_tflite *berth, struct TfLiteInterpreter *interpreter)
{
    if (!berth || !interpreter)
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_tflite_apply: %s is NULL",
                          berth ? "interpreter" : "berth");
    (void)bt_failure_take();
    applying = interpreter;
    int code = berth->call.InterpreterModifyGraphWithDelegate(interpreter, &berth->delegate);
    applying = NULL;
    berth_status status = bt_failure_take();
    if (status)
        return status;
    if (code == LITE_APPLICATION_ERROR)
        return berth_fail(
            BERTH_UNSUPPORTED,
            "TensorFlow Lite does not apply the delegate: the model has tensors whose size is known only "
            "while it runs, or another delegate has closed its graph; its log tells more");
    return code == LITE_OK
               ? BERTH_OK
               : berth_fail(
                     BERTH_UNSUPPORTED,
                     "TensorFlow Lite does not apply the delegate (its status is %d); its log tells why",
                     code);
}

/* Of the interpreter's own arena, from the tensors that point into it. */
static uint64_t figures_interpreter_bytes(const bt_graph *graph)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (size_t i = 0; i < graph->context->tensors_size; i++) {
        const lite_tensor *tensor = &graph->context->tensors[i];
        if (tensor->allocation_type != LITE_ARENA || !tensor->data || !tensor->bytes)
            continue;
        uintptr_t begin = (uintptr_t)tensor->data;
        low = begin < low ? begin : low;
        high = begin + tensor->bytes > high ? begin + tensor->bytes : high;
    }
    return high > low ? high - low : 0;
}

berth_status berth_tflite_figures_get(berth_tflite *berth, size_t index, berth_tflite_figures *out)
{
    if (!berth || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_tflite_figures_get: %s",
                          berth && out ? "out->struct_size is too small" : "NULL");
    const bt_graph *graph = bt_graph_at(berth, index);
    if (!graph)
        return berth_fail(BERTH_NOT_FOUND, "no interpreter that lives has graph %zu", index);
    size_t struct_size = out->struct_size;
    *out = graph->figures;
    out->struct_size = struct_size;
    out->interpreter_bytes = figures_interpreter_bytes(graph);
    return BERTH_OK;
}

berth_status berth_tflite_plan_get(berth_tflite *berth, size_t index, berth_plan **out)
{
    if (!berth || !out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_tflite_plan_get: NULL");
    *out = NULL;
    const bt_graph *graph = bt_graph_at(berth, index);
    if (!graph || !graph->plan)
        return berth_fail(BERTH_NOT_FOUND, graph ? "graph %zu is not planned" : "there is no graph %zu",
                          index);
    *out = berth_plan_retain(graph->plan);
    return BERTH_OK;
}

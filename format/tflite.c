/* Reads a TFLite model: subgraphs, operators, tensors, and which of them need room while it runs. */
#include "format/tflite.h"

#include <stdlib.h>
#include <string.h>

#include "format/flat.h"
#include "format/tflite_names.h"

/* Fields of the tables, by number. */
enum { MODEL_CODES = 1, MODEL_SUBGRAPHS = 2, MODEL_BUFFERS = 4, MODEL_METADATA = 6 };
enum { CODE_BYTE = 0, CODE_CUSTOM = 1, CODE_WIDE = 3 };
enum { GRAPH_TENSORS, GRAPH_INPUTS, GRAPH_OUTPUTS, GRAPH_OPERATORS, GRAPH_NAME };
enum { TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER, TENSOR_NAME, TENSOR_QUANTIZATION, TENSOR_VARIABLE };
enum { TENSOR_SIGNATURE = 7 };
enum { OPERATOR_CODE, OPERATOR_INPUTS, OPERATOR_OUTPUTS, OPERATOR_OPTIONS = 4, OPERATOR_MUTATES = 7 };
enum { BUFFER_DATA, BUFFER_OFFSET, BUFFER_SIZE };
enum { METADATA_NAME, METADATA_BUFFER };
enum { QUANTIZATION_SCALE = 2 };

typedef struct tflite {
    flat file;
    const format_dims *dims;
    format_runtime runtime;
    format_model *model;
    flat_vector codes, buffers, subgraphs;
    size_t elements; /* read so far */
} tflite;

bool format_is_tflite(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data + 4, "TFL3", 4) == 0;
}

static void tflite_no_memory(tflite *t)
{
    if (!flat_failed(&t->file))
        format_fail(t->file.error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the model");
}

/* Parts of a flatbuffer may be shared. A small file must not become a large model by that. */
static bool tflite_afford(tflite *t, size_t at, uint64_t count, const char *field)
{
    t->elements += count;
    if (t->elements <= t->file.size)
        return true;
    flat_fail(&t->file, at, field, "the parts of the model add up to more than the file can hold");
    return false;
}

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* How many bytes of data a buffer has, inside the flatbuffer or behind it. */
static uint64_t tflite_buffer_bytes(tflite *t, uint64_t index, size_t at)
{
    if (index >= t->buffers.count) {
        if (index)
            flat_fail(&t->file, at, "Tensor.buffer", "there is no such buffer");
        return 0;
    }
    flat_table buffer = flat_item(&t->file, t->buffers, (uint32_t)index, "Model.buffers");
    flat_vector data = flat_list(&t->file, buffer, BUFFER_DATA, 1, "Buffer.data");
    uint64_t offset = flat_number(&t->file, buffer, BUFFER_OFFSET, 8, 0, "Buffer.offset");
    uint64_t size = flat_number(&t->file, buffer, BUFFER_SIZE, 8, 0, "Buffer.size");
    return data.count ? data.count : offset > 1 ? size : 0;
}

/* The shape; what the signature leaves open is as the user says, else as stored. */
static void tflite_shape(tflite *t, flat_table table, format_tensor *tensor)
{
    flat_vector shape = flat_list(&t->file, table, TENSOR_SHAPE, 4, "Tensor.shape");
    flat_vector signature = flat_list(&t->file, table, TENSOR_SIGNATURE, 4, "Tensor.shape_signature");
    tensor->dim_first = (uint32_t)t->model->dim_count;
    if (!tflite_afford(t, table.at, shape.count, "Tensor.shape"))
        return;
    for (uint32_t i = 0; i < shape.count; i++) {
        int64_t size = flat_int(&t->file, shape, i);
        bool free_one = size < 0 || (signature.count == shape.count && flat_int(&t->file, signature, i) < 0);
        int64_t wanted = free_one ? format_dims_find(t->dims, (format_text){"", 0}, tensor->name, i) : -1;
        if (free_one && wanted < 0)
            t->model->free_dimensions++;
        if (wanted >= 0)
            size = wanted;
        if (size < 0) {
            flat_fail(&t->file, shape.at + 4 * (size_t)i, "Tensor.shape", "a size below 0; --dim can set it");
            return;
        }
        if (!format_add_dim(t->model, size)) {
            tflite_no_memory(t);
            return;
        }
        tensor->rank++;
    }
}

static void tflite_size(tflite *t, flat_table table, format_tensor *tensor, unsigned bits)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t size = (uint64_t)t->model->dims[tensor->dim_first + i];
        if (__builtin_mul_overflow(elements, size, &elements) || elements > UINT64_MAX >> 12) {
            flat_fail(&t->file, table.at, "Tensor.shape", "the tensor has more bytes than can be counted");
            return;
        }
    }
    /* Micro gives an element of less than a byte a whole one; the large interpreter packs them. */
    tensor->size_bytes = bits >= 8                    ? elements * (bits / 8)
                         : t->runtime == FORMAT_MICRO ? elements * (bits > 0)
                                                      : (elements * bits + 7) / 8;
}

static void tflite_tensor(tflite *t, flat_table table, uint32_t subgraph, uint32_t local)
{
    format_tensor tensor = {.local = local, .subgraph = subgraph};
    unsigned type = (unsigned)flat_number(&t->file, table, TENSOR_TYPE, 1, 0, "Tensor.type"), bits = 0;
    tensor.name = flat_string(&t->file, table, TENSOR_NAME, "Tensor.name");
    tensor.type = tflite_type(type, &bits);
    if (!tensor.type) {
        flat_fail(&t->file, table.at, "Tensor.type", "there is no such type");
        return;
    }
    tflite_shape(t, table, &tensor);
    if (flat_failed(&t->file))
        return;
    tflite_size(t, table, &tensor, bits);
    uint64_t buffer = flat_number(&t->file, table, TENSOR_BUFFER, 4, 0, "Tensor.buffer");
    uint64_t data = tflite_buffer_bytes(t, buffer, table.at);
    if (data)
        tensor.kind = FORMAT_CONSTANT;
    else if (flat_number(&t->file, table, TENSOR_VARIABLE, 1, 0, "Tensor.is_variable"))
        tensor.kind = FORMAT_VARIABLE;
    t->model->constant_bytes += data;
    flat_table quantization = flat_child(&t->file, table, TENSOR_QUANTIZATION, "Tensor.quantization");
    flat_vector scale =
        flat_list(&t->file, quantization, QUANTIZATION_SCALE, 4, "QuantizationParameters.scale");
    if (scale.count > 1)
        t->model->channel_count += scale.count;
    format_tensor *added = flat_failed(&t->file) ? NULL : format_add_tensor(t->model);
    if (added)
        *added = tensor;
    else
        tflite_no_memory(t);
}

/* ---- Operators ---------------------------------------------------------------------------------------- */

/* Copies a list of tensor numbers as links. -1 is allowed where an input may be left out. */
static void tflite_links(tflite *t, flat_vector v, const format_subgraph *graph, bool optional,
                         const char *field)
{
    if (!tflite_afford(t, v.at, v.count, field))
        return;
    for (uint32_t i = 0; i < v.count; i++) {
        int32_t index = flat_int(&t->file, v, i);
        if (index < (optional ? -1 : 0) || (index >= 0 && (uint32_t)index >= graph->tensor_count)) {
            flat_fail(&t->file, v.at + 4 * (size_t)i, field, "there is no such tensor in the subgraph");
            return;
        }
        if (!format_add_link(t->model, index < 0 ? -1 : (int64_t)graph->tensor_first + index)) {
            tflite_no_memory(t);
            return;
        }
    }
}

/* The subgraphs that a control flow operator runs. */
static void tflite_calls(tflite *t, flat_table table, unsigned code, format_operator *op)
{
    unsigned count = code == TFLITE_IF || code == TFLITE_WHILE ? 2 : code == TFLITE_CALL_ONCE ? 1 : 0;
    flat_table options =
        count ? flat_child(&t->file, table, OPERATOR_OPTIONS, "Operator.builtin_options") : (flat_table){0};
    op->call_first = (uint32_t)t->model->link_count;
    for (unsigned i = 0; i < count; i++) {
        uint64_t index = flat_number(&t->file, options, i, 4, 0, "subgraph_index");
        if (index >= t->subgraphs.count) {
            flat_fail(&t->file, table.at, "subgraph_index", "there is no such subgraph");
            return;
        }
        if (!format_add_link(t->model, (int64_t)index)) {
            tflite_no_memory(t);
            return;
        }
        op->call_count++;
    }
}

static bool tflite_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static void tflite_traits(format_operator *op, const char *name)
{
    static const char *const elementwise[] = {"ADD",
                                              "SUB",
                                              "MUL",
                                              "DIV",
                                              "RELU",
                                              "RELU6",
                                              "RELU_N1_TO_1",
                                              "RELU_0_TO_1",
                                              "LOGISTIC",
                                              "TANH",
                                              "ABS",
                                              "NEG",
                                              "EXP",
                                              "LOG",
                                              "SQRT",
                                              "RSQRT",
                                              "SQUARE",
                                              "SIN",
                                              "COS",
                                              "FLOOR",
                                              "CEIL",
                                              "ROUND",
                                              "ELU",
                                              "HARD_SWISH",
                                              "LEAKY_RELU",
                                              "PRELU",
                                              "MAXIMUM",
                                              "MINIMUM",
                                              "POW",
                                              "GELU",
                                              "LOGICAL_NOT",
                                              "LOGICAL_AND",
                                              "LOGICAL_OR",
                                              "SQUARED_DIFFERENCE",
                                              NULL};
    static const char *const reshapes[] = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "BITCAST", NULL};
    static const char *const stateful[] = {"CUSTOM",
                                           "CALL",
                                           "CALL_ONCE",
                                           "IF",
                                           "WHILE",
                                           "VAR_HANDLE",
                                           "READ_VARIABLE",
                                           "ASSIGN_VARIABLE",
                                           "HASHTABLE",
                                           "HASHTABLE_FIND",
                                           "HASHTABLE_IMPORT",
                                           "HASHTABLE_SIZE",
                                           "HASHTABLE_LOOKUP",
                                           "RANDOM_STANDARD_NORMAL",
                                           "RANDOM_UNIFORM",
                                           "MULTINOMIAL",
                                           "operator",
                                           NULL};
    op->elementwise = tflite_one_of(name, elementwise);
    op->reshapes = tflite_one_of(name, reshapes);
    op->stateful = tflite_one_of(name, stateful);
}

/* The number of the operation, and its name. */
static unsigned tflite_code(tflite *t, flat_table table, format_operator *op)
{
    uint64_t index = flat_number(&t->file, table, OPERATOR_CODE, 4, 0, "Operator.opcode_index");
    if (index >= t->codes.count) {
        flat_fail(&t->file, table.at, "Operator.opcode_index", "there is no such operator code");
        return 0;
    }
    flat_table entry = flat_item(&t->file, t->codes, (uint32_t)index, "Model.operator_codes");
    unsigned narrow = (unsigned)flat_number(&t->file, entry, CODE_BYTE, 1, 0, "deprecated_builtin_code");
    unsigned wide = (unsigned)flat_number(&t->file, entry, CODE_WIDE, 4, 0, "builtin_code");
    unsigned code = narrow < TFLITE_PLACEHOLDER && wide < narrow ? narrow : wide;
    const char *name = tflite_operator(code);
    op->type = (format_text){name, strlen(name)};
    tflite_traits(op, name);
    format_text custom = flat_string(&t->file, entry, CODE_CUSTOM, "OperatorCode.custom_code");
    if (code == TFLITE_CUSTOM && custom.length)
        op->type = custom;
    return code;
}

/* The large interpreter computes these once and keeps them. */
static void tflite_keep_dequantized(tflite *t, const format_operator *op)
{
    const int32_t *links = t->model->links;
    format_tensor *tensors = t->model->tensors;
    if (op->input_count != 1 || links[op->input_first] < 0 ||
        tensors[links[op->input_first]].kind != FORMAT_CONSTANT)
        return;
    for (uint32_t i = 0; i < op->output_count; i++)
        if (tensors[links[op->output_first + i]].kind == FORMAT_ACTIVATION)
            tensors[links[op->output_first + i]].kind = FORMAT_PERSISTENT;
}

static void tflite_operator_read(tflite *t, flat_table table, uint32_t subgraph, uint32_t local)
{
    const format_subgraph graph = t->model->subgraphs[subgraph];
    format_operator op = {.local = local, .subgraph = subgraph, .name = {"", 0}};
    unsigned code = tflite_code(t, table, &op);
    flat_vector inputs = flat_list(&t->file, table, OPERATOR_INPUTS, 4, "Operator.inputs");
    op.input_first = (uint32_t)t->model->link_count;
    tflite_links(t, inputs, &graph, true, "Operator.inputs");
    op.input_count = (uint32_t)t->model->link_count - op.input_first;
    flat_vector outputs = flat_list(&t->file, table, OPERATOR_OUTPUTS, 4, "Operator.outputs");
    op.output_first = (uint32_t)t->model->link_count;
    tflite_links(t, outputs, &graph, false, "Operator.outputs");
    op.output_count = (uint32_t)t->model->link_count - op.output_first;
    flat_vector mutates =
        flat_list(&t->file, table, OPERATOR_MUTATES, 1, "Operator.mutating_variable_inputs");
    for (uint32_t i = 0; i < mutates.count; i++)
        op.stateful |= t->file.data[mutates.at + i] != 0;
    for (uint32_t i = 0; !flat_failed(&t->file) && i < op.input_count; i++) {
        int32_t input = t->model->links[op.input_first + i];
        op.stateful |= input >= 0 && t->model->tensors[input].kind == FORMAT_VARIABLE;
    }
    tflite_calls(t, table, code, &op);
    if (flat_failed(&t->file))
        return;
    if (code == TFLITE_DEQUANTIZE && t->runtime == FORMAT_TFLITE)
        tflite_keep_dequantized(t, &op);
    format_operator *added = format_add_operator(t->model);
    if (added)
        *added = op;
    else
        tflite_no_memory(t);
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

static void tflite_subgraph(tflite *t, flat_table table, uint32_t index)
{
    format_subgraph *graph = flat_failed(&t->file) ? NULL : format_add_subgraph(t->model);
    if (!graph) {
        tflite_no_memory(t);
        return;
    }
    graph->name = flat_string(&t->file, table, GRAPH_NAME, "SubGraph.name");
    flat_vector tensors = flat_list(&t->file, table, GRAPH_TENSORS, 4, "SubGraph.tensors");
    graph->tensor_first = (uint32_t)t->model->tensor_count;
    graph->tensor_count = tensors.count;
    if (!tflite_afford(t, table.at, tensors.count, "SubGraph.tensors"))
        return;
    for (uint32_t i = 0; i < tensors.count && !flat_failed(&t->file); i++)
        tflite_tensor(t, flat_item(&t->file, tensors, i, "SubGraph.tensors"), index, i);
    if (flat_failed(&t->file))
        return;
    flat_vector inputs = flat_list(&t->file, table, GRAPH_INPUTS, 4, "SubGraph.inputs");
    graph->input_first = (uint32_t)t->model->link_count;
    tflite_links(t, inputs, graph, true, "SubGraph.inputs");
    graph->input_count = (uint32_t)t->model->link_count - graph->input_first;
    flat_vector outputs = flat_list(&t->file, table, GRAPH_OUTPUTS, 4, "SubGraph.outputs");
    graph->output_first = (uint32_t)t->model->link_count;
    tflite_links(t, outputs, graph, false, "SubGraph.outputs");
    graph->output_count = (uint32_t)t->model->link_count - graph->output_first;
    flat_vector operators = flat_list(&t->file, table, GRAPH_OPERATORS, 4, "SubGraph.operators");
    graph->operator_first = (uint32_t)t->model->operator_count;
    if (!tflite_afford(t, table.at, operators.count, "SubGraph.operators"))
        return;
    for (uint32_t i = 0; i < operators.count && !flat_failed(&t->file); i++)
        tflite_operator_read(t, flat_item(&t->file, operators, i, "SubGraph.operators"), index, i);
    graph->operator_count = (uint32_t)(t->model->operator_count - graph->operator_first);
}

berth_status format_tflite_read(const uint8_t *data, size_t size, const format_dims *dims,
                                format_runtime runtime, format_model *model, format_error *error)
{
    tflite t = {.file = {data, size, error}, .dims = dims, .runtime = runtime, .model = model};
    error->status = BERTH_OK;
    *model = (format_model){.format = "TFLite"};
    flat_table root = flat_root(&t.file, "TFL3");
    t.codes = flat_list(&t.file, root, MODEL_CODES, 4, "Model.operator_codes");
    t.buffers = flat_list(&t.file, root, MODEL_BUFFERS, 4, "Model.buffers");
    t.subgraphs = flat_list(&t.file, root, MODEL_SUBGRAPHS, 4, "Model.subgraphs");
    if (!t.subgraphs.count)
        flat_fail(&t.file, root.at, "Model.subgraphs", "the model has none");
    for (uint32_t i = 0; i < t.subgraphs.count && !flat_failed(&t.file); i++)
        tflite_subgraph(&t, flat_item(&t.file, t.subgraphs, i, "Model.subgraphs"), i);
    if (flat_failed(&t.file))
        format_model_finish(model);
    return error->status;
}

/* ---- A plan that the model carries --------------------------------------------------------------------- */

enum { OFFLINE_HEADER = 12 }; /* a version, a subgraph, how many offsets */

berth_status format_tflite_offline(const uint8_t *data, size_t size, size_t tensor_count, int32_t *offsets,
                                   bool *present, format_error *error)
{
    flat f = {data, size, error};
    error->status = BERTH_OK;
    *present = false;
    flat_table root = flat_root(&f, "TFL3");
    flat_vector metadata = flat_list(&f, root, MODEL_METADATA, 4, "Model.metadata");
    flat_vector buffers = flat_list(&f, root, MODEL_BUFFERS, 4, "Model.buffers");
    for (uint32_t i = 0; i < metadata.count && !flat_failed(&f) && !*present; i++) {
        flat_table entry = flat_item(&f, metadata, i, "Model.metadata");
        if (!format_text_is(flat_string(&f, entry, METADATA_NAME, "Metadata.name"),
                            "OfflineMemoryAllocation"))
            continue;
        uint64_t index = flat_number(&f, entry, METADATA_BUFFER, 4, 0, "Metadata.buffer");
        flat_table buffer = index < buffers.count ? flat_item(&f, buffers, (uint32_t)index, "Model.buffers")
                                                  : (flat_table){0};
        flat_vector plan = flat_list(&f, buffer, BUFFER_DATA, 1, "Buffer.data");
        if (plan.count < OFFLINE_HEADER + 4 * tensor_count ||
            flat_read(data + plan.at + 8, 4) != tensor_count) {
            flat_fail(&f, plan.at, "OfflineMemoryAllocation", "it is for another number of tensors");
            break;
        }
        *present = true;
        for (size_t k = 0; k < tensor_count; k++)
            offsets[k] = (int32_t)(uint32_t)flat_read(data + plan.at + OFFLINE_HEADER + 4 * k, 4);
    }
    return error->status;
}

/* Reads an ONNX model: graphs, initializers, and the sizes of everything between. */
#include "format/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/onnx_reader.h"

/* ---- Graphs ------------------------------------------------------------------------------------------- */

static void graph_initializers(onnx_reader *r, onnx_scope *s, wire message)
{
    wire_field field;
    while (wire_next(&message, &field)) {
        if (field.number != GRAPH_INITIALIZER || !field.is_bytes)
            continue;
        onnx_value value = {.rank = 0};
        format_text name = {"", 0};
        onnx_tensor_read(r, field.inside, &value, &name);
        int32_t id = onnx_failed(r) ? -1 : onnx_value_add(r, s, name, FORMAT_CONSTANT);
        if (id < 0) {
            free(value.small);
            return;
        }
        r->o.values[id] = value;
    }
}

/* An input that is a single number may have a known one, so that an If which asks for it has one branch. */
static void input_number(onnx_reader *r, format_text name, onnx_value *value)
{
    bool whole = value->type == ONNX_INT64 || value->type == ONNX_INT32 || value->type == ONNX_BOOL;
    if (!whole || value->rank < 0 || onnx_elements(value) != 1)
        return;
    for (size_t i = 0; i < r->o.dims->count; i++)
        if (r->o.dims->items[i][0] == '*')
            return; /* that is for dimensions */
    int64_t number = format_dims_find(r->o.dims, name, (format_text){"", 0}, UINT32_MAX);
    onnx_small *small = number >= 0 ? onnx_make_small(value, 1) : NULL;
    if (value->starved)
        onnx_no_memory(r);
    if (small) {
        small->whole[0] = number;
        small->real[0] = (double)number;
    }
}

/* Notes where inputs, outputs and values are declared, and makes tensors of the inputs. */
static void graph_inputs(onnx_reader *r, onnx_scope *s, wire message)
{
    wire_field field, part;
    format_model *model = r->o.model;
    uint32_t input = 0;
    model->subgraphs[s->subgraph].input_first = (uint32_t)model->link_count;
    while (true) {
        size_t at = message.at;
        if (!wire_next(&message, &field))
            break;
        if (!field.is_bytes ||
            (field.number != GRAPH_INPUT && field.number != GRAPH_OUTPUT && field.number != GRAPH_INFO))
            continue;
        format_text name = {"", 0};
        for (wire info = field.inside; wire_next(&info, &part);)
            if (part.number == 1)
                name = wire_text(&part);
        if (field.number != GRAPH_INPUT) {
            if (at < UINT32_MAX && !onnx_name_put(&r->declared, name, s->space, (uint32_t)at))
                onnx_no_memory(r);
            continue;
        }
        if (onnx_name_get(&r->tensors, name, s->space) != UINT32_MAX)
            continue; /* an initializer's default */
        int32_t id = onnx_value_add(r, s, name, FORMAT_ACTIVATION);
        if (id < 0 || !format_add_link(model, id)) {
            onnx_no_memory(r);
            return;
        }
        onnx_value *value = &r->o.values[id];
        if (input < s->given_count) {
            *value = s->given[input];
            value->small = NULL;
            for (int k = 0; k < value->rank; k++) {
                const int64_t told = format_dims_exact(r->o.dims, name, (uint32_t)k, false);
                value->dims[k] = told >= 0 ? told : value->dims[k];
            }
        }
        if (value->rank < 0 || !value->type)
            onnx_declared_read(r, field.inside, value, s->depth == 0);
        if (s->depth == 0)
            input_number(r, name, value);
        if (value->rank < 0 && !r->open_count)
            onnx_list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, " (an input)");
        input++;
    }
    format_subgraph *graph = &model->subgraphs[s->subgraph];
    graph->input_count = (uint32_t)model->link_count - graph->input_first;
}

static void graph_outputs(onnx_reader *r, onnx_scope *s, wire message)
{
    wire_field field, part;
    format_model *model = r->o.model;
    uint32_t first = (uint32_t)model->link_count;
    while (!onnx_failed(r) && wire_next(&message, &field)) {
        if (field.number != GRAPH_OUTPUT || !field.is_bytes)
            continue;
        format_text name = {"", 0};
        for (wire info = field.inside; wire_next(&info, &part);)
            if (part.number == 1)
                name = wire_text(&part);
        int32_t id = onnx_value_find(r, s, name);
        if (id < 0 && !onnx_failed(r))
            format_fail(r->o.error, BERTH_BAD_DATA,
                        "offset %zu, field `GraphProto.output`: nobody makes '%.*s'", field.inside.at,
                        name.length < 64 ? (int)name.length : 64, name.bytes);
        else if (!format_add_link(model, id))
            onnx_no_memory(r);
    }
    model->subgraphs[s->subgraph].output_first = first;
    model->subgraphs[s->subgraph].output_count = (uint32_t)model->link_count - first;
}

void onnx_graph_read(onnx_reader *r, onnx_scope *s, wire message)
{
    wire_field field;
    graph_initializers(r, s, message);
    if (!onnx_failed(r))
        graph_inputs(r, s, message);
    for (wire nodes = message; !onnx_failed(r) && !r->open_count && wire_next(&nodes, &field);)
        if (field.number == GRAPH_NODE && field.is_bytes)
            onnx_node_read(r, s, field.inside);
    if (!onnx_failed(r) && !r->open_count)
        graph_outputs(r, s, message);
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

static void tensor_settle(onnx_reader *r, size_t index)
{
    static const struct {
        const char *name;
        uint8_t bits;
    } types[] = {{"?", 0},    {"f32", 32}, {"u8", 8},     {"i8", 8},     {"u16", 16},  {"i16", 16},
                 {"i32", 32}, {"i64", 64}, {"string", 0}, {"bool", 8},   {"f16", 16},  {"f64", 64},
                 {"u32", 32}, {"u64", 64}, {"c64", 64},   {"c128", 128}, {"bf16", 16}, {"f8", 8},
                 {"f8", 8},   {"f8", 8},   {"f8", 8},     {"u4", 4},     {"i4", 4},    {"f4", 4}};
    const onnx_value *value = &r->o.values[index];
    format_tensor *tensor = &r->o.model->tensors[index];
    size_t type = (size_t)value->type < sizeof types / sizeof types[0] ? (size_t)value->type : 0;
    uint64_t elements = value->rank < 0 ? 0 : onnx_elements(value);
    tensor->type = types[type].name;
    tensor->dim_first = (uint32_t)r->o.model->dim_count;
    for (int i = 0; i < value->rank; i++) {
        if (!format_add_dim(r->o.model, value->dims[i])) {
            onnx_no_memory(r);
            return;
        }
        tensor->rank++;
    }
    if (elements > UINT64_MAX >> 12) {
        format_fail(r->o.error, BERTH_BAD_DATA, "'%.*s' has more bytes than can be counted",
                    tensor->name.length < 64 ? (int)tensor->name.length : 64, tensor->name.bytes);
        return;
    }
    if (!value->type && value->rank >= 0 && tensor->kind == FORMAT_ACTIVATION)
        onnx_list_name(r->unknown, sizeof r->unknown, &r->unknown_count, tensor->name, " (its type)");
    tensor->size_bytes = (elements * types[type].bits + 7) / 8;
    if (tensor->kind == FORMAT_CONSTANT)
        r->o.model->constant_bytes += tensor->size_bytes;
}

/* Nodes of inner graphs were read in the midst of the outer ones; each graph's come together, in their order. */
static void operators_gather(onnx_reader *r)
{
    format_model *model = r->o.model;
    format_operator *sorted = malloc((model->operator_count + 1) * sizeof *sorted);
    if (!sorted) {
        onnx_no_memory(r);
        return;
    }
    for (size_t i = 0; i < model->operator_count; i++)
        model->subgraphs[model->operators[i].subgraph].operator_count++;
    uint32_t first = 0;
    for (size_t s = 0; s < model->subgraph_count; s++) {
        model->subgraphs[s].operator_first = first;
        first += model->subgraphs[s].operator_count;
        model->subgraphs[s].operator_count = 0;
    }
    for (size_t i = 0; i < model->operator_count; i++) {
        format_subgraph *graph = &model->subgraphs[model->operators[i].subgraph];
        model->operators[i].local = graph->operator_count;
        sorted[graph->operator_first + graph->operator_count++] = model->operators[i];
    }
    free(model->operators);
    model->operators = sorted;
    model->operator_room = model->operator_count + 1;
}

static void reader_complain(onnx_reader *r)
{
    if (onnx_failed(r))
        return;
    if (r->open_count)
        format_fail(
            r->o.error, BERTH_INVALID_ARGUMENT,
            "the model leaves dimensions open: %s%s; set each with --dim NAME=N, or all with --dim '*=N'",
            r->open, r->open_count > ONNX_UNKNOWN_NAMED ? " and others" : "");
    else if (r->unknown_count)
        format_fail(r->o.error, BERTH_BAD_DATA,
                    "the shape of %s%s is not known; run shape inference over the model, so that it has "
                    "value_info, or "
                    "set the dimensions there with --dim NAME:AXIS=N",
                    r->unknown, r->unknown_count > ONNX_UNKNOWN_NAMED ? " and others" : "");
}

/* Of the operators without a domain: a few have changed their meaning. */
static int64_t model_opset(wire message)
{
    wire_field field, part;
    int64_t version = 0;
    while (wire_next(&message, &field)) {
        if (field.number != MODEL_OPSET || !field.is_bytes)
            continue;
        format_text domain = {"", 0};
        int64_t own = 0;
        while (wire_next(&field.inside, &part)) {
            if (part.number == 1)
                domain = wire_text(&part);
            else if (part.number == 2 && !part.is_bytes)
                own = (int64_t)(part.value & INT32_MAX);
        }
        if (!domain.length || format_text_is(domain, "ai.onnx"))
            version = own;
    }
    return version;
}

static void model_read(onnx_reader *r, wire message)
{
    wire_field field;
    onnx_scope main_scope = {0};
    bool found = false;
    r->o.opset = model_opset(message);
    onnx_functions_note(r, message);
    if (!format_add_subgraph(r->o.model))
        onnx_no_memory(r);
    while (!onnx_failed(r) && !found && wire_next(&message, &field))
        if (field.number == MODEL_GRAPH && field.is_bytes) {
            found = true;
            onnx_graph_read(r, &main_scope, field.inside);
        }
    free(main_scope.captured);
    if (!found && !onnx_failed(r))
        format_fail(r->o.error, BERTH_BAD_DATA,
                    "field `ModelProto.graph`: there is none; this is no ONNX model");
}

berth_status format_onnx_read(const uint8_t *data, size_t size, const format_dims *dims, format_model *model,
                              format_error *error)
{
    onnx_reader r = {.o = {.model = model, .error = error, .dims = dims}, .file_size = size};
    error->status = BERTH_OK;
    *model = (format_model){.format = "ONNX"};
    model_read(&r, (wire){data, 0, size, error});
    for (size_t i = 0; r.o.values && i < model->tensor_count && !onnx_failed(&r) && !r.open_count; i++)
        tensor_settle(&r, i);
    reader_complain(&r);
    if (!onnx_failed(&r))
        operators_gather(&r);
    for (size_t i = 0; r.o.values && i < model->tensor_count; i++)
        free(r.o.values[i].small);
    free(r.o.values);
    free(r.tensors.entries);
    free(r.declared.entries);
    free(r.functions.entries);
    if (error->status)
        format_model_finish(model);
    return error->status;
}

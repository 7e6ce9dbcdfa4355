/* Functions of an ONNX model: a node that calls one is replaced by its nodes, as runtimes do it. Names inside are the function's own. */
#include <stdlib.h>
#include <string.h>

#include "format/onnx_reader.h"

/* Functions that call each other twice, and so on, would become more nodes than any model has. */
enum { MOST_INLINED = 1 << 20 };

static uint32_t domain_space(format_text domain)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < domain.length; i++)
        hash = (hash ^ (unsigned char)domain.bytes[i]) * 16777619u;
    return hash;
}

/* A text field of a message. */
static format_text field_text(wire message, uint32_t number)
{
    wire_field field;
    while (wire_next(&message, &field))
        if (field.number == number && field.is_bytes)
            return wire_text(&field);
    return (format_text){"", 0};
}

void onnx_functions_note(onnx_reader *r, wire model)
{
    wire_field field;
    while (true) {
        const size_t at = model.at;
        if (!wire_next(&model, &field))
            return;
        if (field.number != MODEL_FUNCTION || !field.is_bytes || at >= UINT32_MAX)
            continue;
        const uint32_t space = domain_space(field_text(field.inside, FUNCTION_DOMAIN));
        if (!onnx_name_put(&r->functions, field_text(field.inside, FUNCTION_NAME), space, (uint32_t)at))
            onnx_no_memory(r);
    }
}

static bool function_find(const onnx_reader *r, wire message, wire *function)
{
    const format_text domain = field_text(message, NODE_DOMAIN);
    const uint32_t at = onnx_name_get(&r->functions, field_text(message, NODE_TYPE), domain_space(domain));
    wire file = {message.data, at, r->file_size, r->o.error};
    wire_field field;
    if (at == UINT32_MAX || !wire_next(&file, &field))
        return false;
    const format_text own = field_text(field.inside, FUNCTION_DOMAIN);
    *function = field.inside;
    return own.length == domain.length && memcmp(own.bytes, domain.bytes, own.length) == 0;
}

/* The function's names for what the caller gives. */
static void function_inputs(onnx_reader *r, const onnx_scope *body, const onnx_node *n)
{
    wire message = body->function;
    wire_field field;
    for (uint32_t i = 0; wire_next(&message, &field);) {
        if (field.number != FUNCTION_INPUT || !field.is_bytes)
            continue;
        const int32_t id = i < n->input_count && n->inputs[i] >= 0 ? n->inputs[i] : ONNX_LEFT_OUT;
        if (!onnx_name_put(&r->tensors, wire_text(&field), body->space, (uint32_t)id))
            onnx_no_memory(r);
        i++;
    }
}

/* The caller's names for what the function makes. */
static void function_outputs(onnx_reader *r, const onnx_scope *s, onnx_scope *body, const onnx_node *n)
{
    wire inside = body->function, outside = n->message;
    wire_field field, port;
    const size_t known = r->o.model->tensor_count;
    while (!onnx_failed(r) && wire_next(&inside, &field)) {
        if (field.number != FUNCTION_OUTPUT || !field.is_bytes)
            continue;
        do
            if (!wire_next(&outside, &port))
                return; /* the caller wants no more */
        while (port.number != NODE_OUTPUT);
        const format_text name = wire_text(&port);
        const int32_t id = name.length ? onnx_value_find(r, body, wire_text(&field)) : 0;
        if (!name.length)
            continue;
        if (id < 0 || (size_t)id >= known) {
            format_fail(r->o.error, BERTH_BAD_DATA,
                        "offset %zu, field `FunctionProto.output`: nobody makes it", field.inside.at);
            return;
        }
        if (!onnx_name_put(&r->tensors, name, s->space, (uint32_t)id))
            onnx_no_memory(r);
        bool given = false;
        for (uint32_t i = 0; i < n->input_count; i++)
            given = given || n->inputs[i] == id;
        if (!given)
            r->o.model->tensors[id].name = name;
    }
}

static void function_inline(onnx_reader *r, onnx_scope *s, wire function, onnx_node *n)
{
    onnx_scope body = {.subgraph = s->subgraph,
                       .space = ++r->spaces,
                       .depth = s->depth + 1,
                       .caller = n,
                       .function = function};
    wire nodes = function;
    wire_field field;
    if (body.depth > ONNX_DEEPEST) {
        format_fail(r->o.error, BERTH_BAD_DATA, "offset %zu: functions call each other more than %d deep",
                    function.at, ONNX_DEEPEST);
        return;
    }
    function_inputs(r, &body, n);
    while (!onnx_failed(r) && wire_next(&nodes, &field)) {
        if (field.number != FUNCTION_NODE || !field.is_bytes)
            continue;
        if (++r->inlined > MOST_INLINED)
            format_fail(r->o.error, BERTH_BAD_DATA,
                        "offset %zu: the functions of the model stand for more than %d nodes", function.at,
                        MOST_INLINED);
        else
            onnx_node_read(r, &body, field.inside);
    }
    if (!onnx_failed(r))
        function_outputs(r, s, &body, n);
    free(body.captured);
}

bool onnx_function_call(onnx_reader *r, onnx_scope *s, wire message)
{
    wire function;
    if (!r->functions.count || !function_find(r, message, &function))
        return false;
    onnx_node *n = malloc(sizeof *n);
    if (!n) {
        onnx_no_memory(r);
        return true;
    }
    onnx_node_ports(r, s, message, n, false);
    if (!onnx_failed(r))
        function_inline(r, s, function, n);
    free(n);
    return true;
}

/* Reads what ONNX says about values: attributes, tensors, declared shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/onnx_reader.h"

/* So that products of two sizes and strides can be counted. */
#define LARGEST_ATTRIBUTE ((int64_t)1 << 30)

void onnx_no_memory(onnx_reader *r)
{
    if (!onnx_failed(r))
        format_fail(r->o.error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the model");
}

onnx_value *onnx_in(onnx *o, const onnx_node *n, uint32_t i)
{
    return i < n->input_count && n->inputs[i] >= 0 ? &o->values[n->inputs[i]] : NULL;
}

onnx_value *onnx_out(onnx *o, const onnx_node *n, uint32_t i)
{
    return i < n->output_count && n->outputs[i] >= 0 ? &o->values[n->outputs[i]] : NULL;
}

onnx_small *onnx_make_small(onnx_value *value, uint32_t count)
{
    if (!value->small)
        value->small = calloc(1, sizeof *value->small);
    if (value->small)
        value->small->count = count;
    else
        value->starved = true;
    return value->small;
}

int64_t onnx_whole(double real)
{
    return real >= -9.2e18 && real <= 9.2e18 ? (int64_t)real : real > 0 ? INT64_MAX : INT64_MIN;
}

uint64_t onnx_elements(const onnx_value *value)
{
    uint64_t elements = 1;
    for (int i = 0; i < value->rank; i++)
        if (value->dims[i] < 0 || __builtin_mul_overflow(elements, (uint64_t)value->dims[i], &elements))
            return UINT64_MAX;
    return elements;
}

/* ---- Attributes --------------------------------------------------------------------------------------- */

/* An attribute of this name among the fields `number` of a message. `refers` gets the name of the caller's that it stands for, if so. */
static bool attribute_find(wire message, uint32_t number, format_text name, wire *found, format_text *refers)
{
    wire_field field, part;
    while (wire_next(&message, &field)) {
        if (field.number != number || !field.is_bytes)
            continue;
        bool named = false;
        format_text other = {"", 0};
        for (wire attribute = field.inside; wire_next(&attribute, &part);) {
            if (part.number == ATTRIBUTE_NAME && part.is_bytes) {
                const format_text text = wire_text(&part);
                named = text.length == name.length && memcmp(text.bytes, name.bytes, name.length) == 0;
            } else if (part.number == ATTRIBUTE_REFERS)
                other = wire_text(&part);
        }
        if (!named)
            continue;
        *found = field.inside;
        *refers = other;
        return true;
    }
    return false;
}

bool onnx_attribute(const onnx_node *n, const char *name, wire *message)
{
    format_text wanted = {name, strlen(name)}, refers;
    for (unsigned depth = 0; n && depth <= ONNX_DEEPEST; depth++, n = n->caller) {
        if (!attribute_find(n->message, NODE_ATTRIBUTE, wanted, message, &refers))
            return false;
        if (!refers.length)
            return true;
        wanted = refers;
        format_text unused;
        wire given;
        if (!n->caller || !attribute_find(n->caller->message, NODE_ATTRIBUTE, wanted, &given, &unused))
            return attribute_find(n->function, FUNCTION_DEFAULT, wanted, message, &unused);
    }
    return false;
}

static int64_t attribute_clamp(uint64_t value)
{
    int64_t number = (int64_t)value;
    return number > LARGEST_ATTRIBUTE    ? LARGEST_ATTRIBUTE
           : number < -LARGEST_ATTRIBUTE ? -LARGEST_ATTRIBUTE
                                         : number;
}

int64_t onnx_int(const onnx_node *n, const char *name, int64_t absent)
{
    wire attribute;
    wire_field field;
    if (onnx_attribute(n, name, &attribute))
        while (wire_next(&attribute, &field))
            if (field.number == ATTRIBUTE_I && !field.is_bytes)
                return attribute_clamp(field.value);
    return absent;
}

int onnx_ints(const onnx_node *n, const char *name, int64_t *list)
{
    wire attribute;
    wire_field field;
    int count = 0;
    uint64_t value;
    if (!onnx_attribute(n, name, &attribute))
        return -1;
    while (wire_next(&attribute, &field)) {
        if (field.number != ATTRIBUTE_INTS)
            continue;
        if (!field.is_bytes && count < ONNX_SMALL)
            list[count++] = attribute_clamp(field.value);
        while (field.is_bytes && count < ONNX_SMALL && wire_number(&field.inside, &value))
            list[count++] = attribute_clamp(value);
    }
    return count;
}

int onnx_reals(const onnx_node *n, const char *name, double *list)
{
    wire attribute;
    wire_field field;
    int count = 0;
    if (!onnx_attribute(n, name, &attribute))
        return -1;
    while (wire_next(&attribute, &field)) {
        if (field.number != ATTRIBUTE_FLOATS)
            continue;
        wire all = field.inside;
        while (count < ONNX_SMALL && (!field.is_bytes || all.end - all.at >= 4)) {
            uint32_t bits = (uint32_t)field.value;
            if (field.is_bytes)
                for (unsigned i = bits = 0; i < 4; i++)
                    bits |= (uint32_t)all.data[all.at++] << (8 * i);
            float real;
            memcpy(&real, &bits, sizeof real);
            list[count++] = (double)real;
            if (!field.is_bytes)
                break;
        }
    }
    return count;
}

format_text onnx_words(const onnx_node *n, const char *name)
{
    wire attribute;
    wire_field field;
    if (onnx_attribute(n, name, &attribute))
        while (wire_next(&attribute, &field))
            if (field.number == ATTRIBUTE_S && field.is_bytes)
                return wire_text(&field);
    return (format_text){"", 0};
}

bool onnx_attribute_message(const onnx_node *n, const char *name, uint32_t number, wire *message)
{
    wire attribute;
    wire_field field;
    if (onnx_attribute(n, name, &attribute))
        while (wire_next(&attribute, &field))
            if (field.number == number && field.is_bytes) {
                *message = field.inside;
                return true;
            }
    return false;
}

/* ---- Values ------------------------------------------------------------------------------------------- */

int32_t onnx_value_add(onnx_reader *r, onnx_scope *s, format_text name, format_kind kind)
{
    format_model *model = r->o.model;
    if (model->tensor_count >= INT32_MAX - 1 || onnx_failed(r))
        return -1;
    if (model->tensor_count >= r->o.value_room) {
        size_t room = r->o.value_room ? r->o.value_room * 2 : 256;
        onnx_value *larger = realloc(r->o.values, room * sizeof *larger);
        if (!larger) {
            onnx_no_memory(r);
            return -1;
        }
        r->o.values = larger;
        r->o.value_room = room;
    }
    format_tensor *tensor = format_add_tensor(model);
    uint32_t index = (uint32_t)model->tensor_count - 1;
    if (tensor)
        r->o.values[index] = (onnx_value){.rank = -1};
    if (!tensor || !onnx_name_put(&r->tensors, name, s->space, index)) {
        onnx_no_memory(r);
        return -1;
    }
    tensor->name = name;
    tensor->kind = (uint8_t)kind;
    tensor->subgraph = s->subgraph;
    tensor->local = index;
    return (int32_t)index;
}

/* Finds a tensor here or in the graphs around, which then must keep it while this graph runs. */
int32_t onnx_value_find(onnx_reader *r, onnx_scope *s, format_text name)
{
    for (onnx_scope *at = s; at; at = at->outer) {
        uint32_t id = onnx_name_get(&r->tensors, name, at->space);
        if (id == UINT32_MAX)
            continue;
        if (id == (uint32_t)ONNX_LEFT_OUT)
            return ONNX_LEFT_OUT;
        for (onnx_scope *inner = s; inner != at; inner = inner->outer) {
            if (inner->captured_count == inner->captured_room) {
                size_t room = inner->captured_room ? inner->captured_room * 2 : 16;
                int32_t *larger = realloc(inner->captured, room * sizeof *larger);
                if (!larger) {
                    onnx_no_memory(r);
                    return -1;
                }
                inner->captured = larger;
                inner->captured_room = room;
            }
            inner->captured[inner->captured_count++] = (int32_t)id;
        }
        return (int32_t)id;
    }
    return -1;
}

void onnx_list_name(char *list, size_t room, unsigned *count, format_text name, const char *more)
{
    size_t used = strlen(list);
    if ((*count)++ < ONNX_UNKNOWN_NAMED && used < room)
        snprintf(list + used, room - used, "%s'%.*s'%s", used ? ", " : "",
                 name.length < 48 ? (int)name.length : 48, name.bytes, more);
}

/* The numbers of a small tensor. */
static void tensor_numbers(wire message, onnx_value *value)
{
    uint64_t count = onnx_elements(value), number;
    onnx_small *s = count <= ONNX_SMALL ? onnx_make_small(value, (uint32_t)count) : NULL;
    uint32_t at = 0;
    wire_field field;
    unsigned width = value->type == ONNX_FLOAT || value->type == ONNX_INT32    ? 4
                     : value->type == ONNX_INT64 || value->type == ONNX_DOUBLE ? 8
                     : value->type == ONNX_BOOL || value->type == ONNX_UINT8   ? 1
                                                                               : 0;
    while (s && wire_next(&message, &field)) {
        bool raw = field.number == TENSOR_RAW && width, floats = field.number == TENSOR_FLOATS;
        bool whole = field.number == TENSOR_INT32 || field.number == TENSOR_INT64;
        if (!raw && !floats && !whole)
            continue;
        wire list = field.inside;
        unsigned bytes = floats ? 4 : width;
        while (at < count && (field.is_bytes ? list.at < list.end : true)) {
            number = field.value;
            if (field.is_bytes && whole && !wire_number(&list, &number))
                break;
            if (field.is_bytes && !whole) {
                if (list.end - list.at < bytes)
                    break;
                number = 0;
                for (unsigned i = 0; i < bytes; i++)
                    number |= (uint64_t)list.data[list.at++] << (8 * i);
            }
            if (value->type == ONNX_FLOAT) {
                float real;
                uint32_t bits = (uint32_t)number;
                memcpy(&real, &bits, 4);
                s->real[at] = (double)real;
            } else if (value->type == ONNX_DOUBLE)
                memcpy(&s->real[at], &number, 8);
            else {
                s->whole[at] = value->type == ONNX_INT32 ? (int32_t)(uint32_t)number : (int64_t)number;
                s->real[at] = (double)s->whole[at];
            }
            if (value->type == ONNX_FLOAT || value->type == ONNX_DOUBLE)
                s->whole[at] = onnx_whole(s->real[at]);
            at++;
            if (!field.is_bytes)
                break;
        }
    }
    if (s && at < count) { /* data elsewhere, or of a kind that shapes do not have */
        free(value->small);
        value->small = NULL;
    }
}

/* Type, shape and small numbers of a TensorProto. */
void onnx_tensor_read(onnx_reader *r, wire message, onnx_value *value, format_text *name)
{
    wire fields = message;
    wire_field field;
    uint64_t number;
    value->rank = 0;
    while (wire_next(&fields, &field)) {
        if (field.number == TENSOR_NAME && name)
            *name = wire_text(&field);
        else if (field.number == TENSOR_TYPE && !field.is_bytes)
            value->type = (int)(field.value & 0xff);
        else if (field.number == TENSOR_DIMS) {
            wire list = field.inside;
            number = field.value;
            while (field.is_bytes ? wire_number(&list, &number) : true) {
                if (value->rank == ONNX_RANK || number > (uint64_t)ONNX_LARGEST_DIM) {
                    format_fail(r->o.error, BERTH_BAD_DATA,
                                "offset %zu, field `TensorProto.dims`: impossible", message.at);
                    return;
                }
                value->dims[value->rank++] = (int64_t)number;
                if (!field.is_bytes)
                    break;
            }
        }
    }
    tensor_numbers(message, value);
    if (value->starved)
        onnx_no_memory(r);
}

/* One dimension of a declared shape: its size, -1 if it is open. */
static int64_t declared_dim(onnx_reader *r, wire dimension, format_text tensor, uint32_t axis, bool is_input)
{
    wire_field field;
    format_text symbol = {"", 0};
    int64_t size = -1;
    while (wire_next(&dimension, &field)) {
        if (field.number == 1 && !field.is_bytes)
            size = (int64_t)field.value;
        else if (field.number == 2)
            symbol = wire_text(&field);
    }
    if (size >= 0 && size <= ONNX_LARGEST_DIM)
        return size;
    size = format_dims_find(r->o.dims, symbol, tensor, axis);
    if (size < 0 && is_input) {
        char name[64];
        format_text shown = symbol.length ? symbol : tensor;
        int used =
            snprintf(name, sizeof name - 12, "%.*s", shown.length < 48 ? (int)shown.length : 48, shown.bytes);
        if (!symbol.length)
            snprintf(name + used, sizeof name - (size_t)used, ":%u", axis);
        char quoted[80];
        snprintf(quoted, sizeof quoted, "'%s'", name);
        if (!strstr(r->open, quoted))
            onnx_list_name(r->open, sizeof r->open, &r->open_count, (format_text){name, strlen(name)}, "");
    }
    return size;
}

/* Type and shape of a ValueInfoProto; rank stays -1 if it says no shape or leaves a part open. */
void onnx_declared_read(onnx_reader *r, wire info, onnx_value *value, bool is_input)
{
    wire_field field, type, tensor, shape;
    format_text name = {"", 0};
    wire message = info;
    while (wire_next(&message, &field))
        if (field.number == 1)
            name = wire_text(&field);
    for (message = info; wire_next(&message, &field);) {
        while (field.number == 2 && field.is_bytes && wire_next(&field.inside, &type)) {
            while (type.number == 1 && type.is_bytes && wire_next(&type.inside, &tensor)) {
                if (tensor.number == 1 && !tensor.is_bytes && !value->type)
                    value->type = (int)(tensor.value & 0xff);
                if (tensor.number != 2 || !tensor.is_bytes || value->rank >= 0)
                    continue;
                int rank = 0;
                bool whole = true;
                while (wire_next(&tensor.inside, &shape)) {
                    if (shape.number != 1 || !shape.is_bytes)
                        continue;
                    if (rank == ONNX_RANK) {
                        whole = false;
                        break;
                    }
                    value->dims[rank] = declared_dim(r, shape.inside, name, (uint32_t)rank, is_input);
                    whole = value->dims[rank++] >= 0 && whole;
                }
                value->rank = whole ? rank : -1;
            }
        }
    }
}

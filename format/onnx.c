/* Reads an ONNX model: graphs, nodes, initializers, and the shapes of everything between. */
#include "format/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/onnx_graph.h"

enum { DEEPEST = 32, UNKNOWN_NAMED = 5 };
/* So that products of two sizes and strides can be counted. */
#define LARGEST_ATTRIBUTE ((int64_t)1 << 30)
#define LARGEST_DIM ((int64_t)INT32_MAX)

/* Field numbers. */
enum { MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum {
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_INFO = 13,
    GRAPH_SPARSE = 15
};
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_TYPE, NODE_ATTRIBUTE };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F,
    ATTRIBUTE_I,
    ATTRIBUTE_S,
    ATTRIBUTE_T,
    ATTRIBUTE_G,
    ATTRIBUTE_FLOATS,
    ATTRIBUTE_INTS
};
enum {
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_FLOATS = 4,
    TENSOR_INT32 = 5,
    TENSOR_INT64 = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9
};

/* ---- Names -------------------------------------------------------------------------------------------- */

typedef struct name_entry {
    format_text name;
    uint32_t scope, id; /* id is UINT32_MAX in an empty place */
} name_entry;

typedef struct name_map {
    name_entry *entries;
    size_t room, count;
} name_map;

static size_t name_hash(format_text name, uint32_t scope)
{
    uint64_t hash = 14695981039346656037u ^ scope;
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (unsigned char)name.bytes[i]) * 1099511628211u;
    return (size_t)(hash ^ hash >> 29);
}

static name_entry *name_place(const name_map *map, format_text name, uint32_t scope)
{
    for (size_t at = name_hash(name, scope);; at++) {
        name_entry *entry = &map->entries[at & (map->room - 1)];
        if (entry->id == UINT32_MAX || (entry->scope == scope && entry->name.length == name.length &&
                                        memcmp(entry->name.bytes, name.bytes, name.length) == 0))
            return entry;
    }
}

static bool name_put(name_map *map, format_text name, uint32_t scope, uint32_t id)
{
    if (map->count * 2 >= map->room) {
        name_map larger = {.room = map->room ? map->room * 2 : 256, .count = map->count};
        larger.entries = malloc(larger.room * sizeof *larger.entries);
        if (!larger.entries)
            return false;
        for (size_t i = 0; i < larger.room; i++)
            larger.entries[i].id = UINT32_MAX;
        for (size_t i = 0; i < map->room; i++)
            if (map->entries[i].id != UINT32_MAX)
                *name_place(&larger, map->entries[i].name, map->entries[i].scope) = map->entries[i];
        free(map->entries);
        *map = larger;
    }
    name_entry *entry = name_place(map, name, scope);
    map->count += entry->id == UINT32_MAX;
    *entry = (name_entry){name, scope, id};
    return true;
}

static uint32_t name_get(const name_map *map, format_text name, uint32_t scope)
{
    return map->room ? name_place(map, name, scope)->id : UINT32_MAX;
}

/* ---- State -------------------------------------------------------------------------------------------- */

typedef struct reader {
    onnx o;
    name_map tensors, declared; /* declared: the places of ValueInfo messages in the file */
    char unknown[400];          /* tensors whose shape is not known */
    unsigned unknown_count;
    char open[400]; /* dimensions that nobody set */
    unsigned open_count;
    size_t file_size;
} reader;

/* A graph that is being read. */
typedef struct scope {
    struct scope *outer;
    uint32_t subgraph;
    int32_t *captured; /* tensors of outer graphs that are used inside */
    size_t captured_count, captured_room;
    unsigned depth;
    const onnx_value *given; /* of the inputs, by the node that runs the graph */
    uint32_t given_count;
} scope;

static bool reader_failed(const reader *r)
{
    return r->o.error->status != BERTH_OK;
}

static void reader_no_memory(reader *r)
{
    if (!reader_failed(r))
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
    return value->small;
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

bool onnx_attribute(const onnx_node *n, const char *name, wire *message)
{
    wire node = n->message;
    wire_field field, part;
    while (wire_next(&node, &field)) {
        if (field.number != NODE_ATTRIBUTE || !field.is_bytes)
            continue;
        wire attribute = field.inside;
        while (wire_next(&attribute, &part))
            if (part.number == ATTRIBUTE_NAME && part.is_bytes && format_text_is(wire_text(&part), name)) {
                *message = field.inside;
                return true;
            }
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

static bool attribute_message(const onnx_node *n, const char *name, uint32_t number, wire *message)
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

static int32_t value_add(reader *r, scope *s, format_text name, format_kind kind)
{
    format_model *model = r->o.model;
    if (model->tensor_count >= INT32_MAX - 1 || reader_failed(r))
        return -1;
    if (model->tensor_count >= r->o.value_room) {
        size_t room = r->o.value_room ? r->o.value_room * 2 : 256;
        onnx_value *larger = realloc(r->o.values, room * sizeof *larger);
        if (!larger) {
            reader_no_memory(r);
            return -1;
        }
        r->o.values = larger;
        r->o.value_room = room;
    }
    format_tensor *tensor = format_add_tensor(model);
    uint32_t index = (uint32_t)model->tensor_count - 1;
    if (!tensor || !name_put(&r->tensors, name, s->subgraph, index)) {
        reader_no_memory(r);
        return -1;
    }
    r->o.values[index] = (onnx_value){.rank = -1};
    tensor->name = name;
    tensor->kind = (uint8_t)kind;
    tensor->subgraph = s->subgraph;
    tensor->local = index;
    return (int32_t)index;
}

/* Finds a tensor here or in the graphs around, which then must keep it while this graph runs. */
static int32_t value_find(reader *r, scope *s, format_text name)
{
    for (scope *at = s; at; at = at->outer) {
        uint32_t id = name_get(&r->tensors, name, at->subgraph);
        if (id == UINT32_MAX)
            continue;
        for (scope *inner = s; inner != at; inner = inner->outer) {
            if (inner->captured_count == inner->captured_room) {
                size_t room = inner->captured_room ? inner->captured_room * 2 : 16;
                int32_t *larger = realloc(inner->captured, room * sizeof *larger);
                if (!larger) {
                    reader_no_memory(r);
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

static void list_name(char *list, size_t room, unsigned *count, format_text name, const char *more)
{
    size_t used = strlen(list);
    if ((*count)++ < UNKNOWN_NAMED && used < room)
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
static void tensor_read(reader *r, wire message, onnx_value *value, format_text *name)
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
                if (value->rank == ONNX_RANK || number > (uint64_t)LARGEST_DIM) {
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
}

/* One dimension of a declared shape: its size, -1 if it is open. */
static int64_t declared_dim(reader *r, wire dimension, format_text tensor, uint32_t axis, bool is_input)
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
    if (size >= 0 && size <= LARGEST_DIM)
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
            list_name(r->open, sizeof r->open, &r->open_count, (format_text){name, strlen(name)}, "");
    }
    return size;
}

/* Type and shape of a ValueInfoProto; rank stays -1 if it says no shape or leaves a part open. */
static void declared_read(reader *r, wire info, onnx_value *value, bool is_input)
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

/* ---- Nodes -------------------------------------------------------------------------------------------- */

static void graph_read(reader *r, scope *s, wire message);

/* Reads a node's ports and words; its outputs become tensors. */
static void node_ports(reader *r, scope *s, wire message, onnx_node *n)
{
    wire fields = message;
    wire_field field;
    *n = (onnx_node){.message = message, .type = {"", 0}, .name = {"", 0}};
    while (wire_next(&fields, &field)) {
        format_text text = wire_text(&field);
        if (field.number == NODE_NAME)
            n->name = text;
        else if (field.number == NODE_TYPE)
            n->type = text;
        else if (field.number == NODE_INPUT || field.number == NODE_OUTPUT) {
            bool input = field.number == NODE_INPUT;
            uint32_t *count = input ? &n->input_count : &n->output_count;
            if (*count == ONNX_PORTS) {
                format_fail(r->o.error, BERTH_BAD_DATA,
                            "offset %zu: a node with more than %d inputs or outputs", message.at, ONNX_PORTS);
                return;
            }
            int32_t id = !text.length ? -1 : input ? value_find(r, s, text) : 0;
            if (input && text.length && id < 0 && !reader_failed(r))
                format_fail(r->o.error, BERTH_BAD_DATA,
                            "offset %zu, field `NodeProto.input`: nobody makes '%.*s' before it is used",
                            message.at, text.length < 64 ? (int)text.length : 64, text.bytes);
            if (!input && text.length)
                id = value_add(r, s, text, FORMAT_ACTIVATION);
            (input ? n->inputs : n->outputs)[(*count)++] = id;
        }
    }
}

static void node_constant(reader *r, const onnx_node *n)
{
    onnx_value *y = onnx_out(&r->o, n, 0);
    wire tensor;
    int64_t list[ONNX_SMALL];
    if (!y)
        return;
    r->o.model->tensors[n->outputs[0]].kind = FORMAT_CONSTANT;
    if (attribute_message(n, "value", ATTRIBUTE_T, &tensor)) {
        tensor_read(r, tensor, y, NULL);
        return;
    }
    int count = onnx_ints(n, "value_ints", list);
    wire unused;
    bool one = count < 0 && onnx_attribute(n, "value_int", &unused);
    if (one)
        list[0] = onnx_int(n, "value_int", 0);
    y->type = count >= 0 || one ? ONNX_INT64 : ONNX_FLOAT;
    y->rank = count >= 0 ? 1 : 0;
    y->dims[0] = count >= 0 ? count : 1;
    if (count < 0 && !one && onnx_attribute(n, "value_floats", &unused)) {
        wire_field field;
        y->rank = 1;
        for (y->dims[0] = 0; wire_next(&unused, &field);)
            if (field.number == ATTRIBUTE_FLOATS)
                y->dims[0] += field.is_bytes ? (int64_t)((field.inside.end - field.inside.at) / 4) : 1;
    }
    onnx_small *small = count >= 0 || one ? onnx_make_small(y, (uint32_t)y->dims[0]) : NULL;
    for (uint32_t i = 0; small && i < small->count; i++) {
        small->whole[i] = list[i];
        small->real[i] = (double)list[i];
    }
}

/* Reads the graph that a node runs, and lets the node hold what is used inside. */
static uint32_t node_body(reader *r, scope *s, const onnx_node *n, const char *name, const onnx_value *given,
                          uint32_t given_count, scope *body)
{
    wire message;
    *body = (scope){.outer = s, .depth = s->depth + 1, .given = given, .given_count = given_count};
    if (!attribute_message(n, name, ATTRIBUTE_G, &message) || reader_failed(r))
        return UINT32_MAX;
    if (body->depth > DEEPEST) {
        format_fail(r->o.error, BERTH_BAD_DATA, "offset %zu: graphs stand more than %d deep in each other",
                    message.at, DEEPEST);
        return UINT32_MAX;
    }
    if (!format_add_subgraph(r->o.model)) {
        reader_no_memory(r);
        return UINT32_MAX;
    }
    body->subgraph = (uint32_t)r->o.model->subgraph_count - 1;
    graph_read(r, body, message);
    return body->subgraph;
}

/* The output of a graph that was read. */
static const onnx_value *body_output(const reader *r, uint32_t subgraph, uint32_t i)
{
    const format_subgraph *graph = &r->o.model->subgraphs[subgraph];
    int32_t tensor = i < graph->output_count ? r->o.model->links[graph->output_first + i] : -1;
    return tensor >= 0 ? &r->o.values[tensor] : NULL;
}

typedef struct bodies {
    uint32_t subgraphs[2];
    scope scopes[2];
    uint32_t count;
} bodies;

static void node_if(reader *r, scope *s, const onnx_node *n, bodies *b)
{
    const onnx_value *condition = onnx_in(&r->o, n, 0);
    bool known = condition && condition->small && condition->small->count == 1;
    bool holds = known && condition->small->whole[0];
    for (int branch = 0; branch < 2; branch++) {
        if (known && holds != (branch == 0))
            continue; /* it never runs */
        uint32_t id =
            node_body(r, s, n, branch ? "else_branch" : "then_branch", NULL, 0, &b->scopes[b->count]);
        if (id == UINT32_MAX)
            continue;
        b->subgraphs[b->count++] = id;
        for (uint32_t i = 0; i < n->output_count; i++) {
            const onnx_value *from = body_output(r, id, i);
            onnx_value *y = onnx_out(&r->o, n, i);
            /* of two shapes the larger: there must be room for either */
            if (from && y && from->rank >= 0 && (y->rank < 0 || onnx_elements(from) > onnx_elements(y)))
                *y = (onnx_value){.rank = from->rank, .type = from->type},
                memcpy(y->dims, from->dims, sizeof y->dims);
            if (from && y && known && from->small && !y->small) {
                onnx_small *small = onnx_make_small(y, from->small->count);
                if (small)
                    *small = *from->small;
            }
        }
    }
}

static void node_loop(reader *r, scope *s, const onnx_node *n, bodies *b)
{
    onnx_value given[ONNX_PORTS] = {{.rank = 0, .type = ONNX_INT64}, {.rank = 0, .type = ONNX_BOOL}};
    uint32_t carried = n->input_count > 2 ? n->input_count - 2 : 0;
    const onnx_value *trips = onnx_in(&r->o, n, 0);
    for (uint32_t i = 2; i < n->input_count; i++) {
        const onnx_value *x = onnx_in(&r->o, n, i);
        given[i] = x ? *x : (onnx_value){.rank = -1};
        given[i].small = NULL; /* it changes from run to run */
    }
    int64_t count = trips && trips->small && trips->small->count == 1 ? trips->small->whole[0] : -1;
    uint32_t id = node_body(r, s, n, "body", given, n->input_count > 2 ? n->input_count : 2, &b->scopes[0]);
    if (id == UINT32_MAX)
        return;
    b->subgraphs[b->count++] = id;
    for (uint32_t i = 0; i < n->output_count; i++) {
        const onnx_value *from = body_output(r, id, i + 1);
        onnx_value *y = onnx_out(&r->o, n, i);
        if (!from || !y || from->rank < 0 || (i >= carried && (count < 0 || from->rank == ONNX_RANK)))
            continue;
        y->type = from->type;
        y->rank = from->rank + (i >= carried);
        memcpy(y->dims + (i >= carried), from->dims, (size_t)from->rank * sizeof *y->dims);
        if (i >= carried)
            y->dims[0] = count;
    }
}

static bool is_word(format_text type, const char *const *names)
{
    for (; *names; names++)
        if (format_text_is(type, *names))
            return true;
    return false;
}

static void node_links(reader *r, const onnx_node *n, const bodies *b, uint32_t subgraph)
{
    static const char *const elementwise[] = {
        "Relu",        "LeakyRelu", "Sigmoid", "Tanh", "Clip", "Abs", "Neg", "Exp", "Log", "Sqrt", "Erf",
        "HardSigmoid", "HardSwish", "Elu",     "Add",  "Sub",  "Mul", "Div", "Pow", "Max", "Min",  NULL};
    static const char *const reshapes[] = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", NULL};
    format_model *model = r->o.model;
    format_operator op = {.type = n->type, .name = n->name, .subgraph = subgraph};
    bool fine = true;
    op.input_first = (uint32_t)model->link_count;
    for (uint32_t i = 0; i < n->input_count; i++)
        fine = format_add_link(model, n->inputs[i]) && fine;
    for (uint32_t k = 0; k < b->count; k++)
        for (size_t i = 0; i < b->scopes[k].captured_count; i++)
            fine = format_add_link(model, b->scopes[k].captured[i]) && fine;
    op.input_count = (uint32_t)model->link_count - op.input_first;
    op.output_first = (uint32_t)model->link_count;
    for (uint32_t i = 0; i < n->output_count; i++)
        fine = format_add_link(model, n->outputs[i]) && fine;
    op.output_count = n->output_count;
    op.call_first = (uint32_t)model->link_count;
    for (uint32_t k = 0; k < b->count; k++)
        fine = format_add_link(model, b->subgraphs[k]) && fine;
    op.call_count = b->count;
    op.elementwise = is_word(n->type, elementwise);
    op.reshapes = is_word(n->type, reshapes);
    format_operator *added = fine ? format_add_operator(model) : NULL;
    if (added)
        *added = op;
    else
        reader_no_memory(r);
}

/* What inference left open is looked up in the file; what is still open is named, unless an input is to blame. */
static void node_settle(reader *r, scope *s, const onnx_node *n)
{
    bool inputs_known = true;
    for (uint32_t i = 0; i < n->input_count; i++)
        inputs_known = inputs_known && (!onnx_in(&r->o, n, i) || onnx_in(&r->o, n, i)->rank >= 0);
    for (uint32_t i = 0; i < n->output_count; i++) {
        onnx_value *y = onnx_out(&r->o, n, i);
        if (!y)
            continue;
        for (int k = 0; k < y->rank; k++)
            if (y->dims[k] < 0 || y->dims[k] > LARGEST_DIM) {
                y->rank = -1;
                break;
            }
        format_text name = r->o.model->tensors[n->outputs[i]].name;
        uint32_t at = name_get(&r->declared, name, s->subgraph);
        if ((y->rank < 0 || !y->type) && at != UINT32_MAX) {
            wire file = {n->message.data, at, r->file_size, r->o.error};
            wire_field info;
            if (wire_next(&file, &info) && info.is_bytes)
                declared_read(r, info.inside, y, false);
        }
        if (y->rank < 0 && inputs_known) {
            char by[64];
            snprintf(by, sizeof by, " (by %.*s)", n->type.length < 40 ? (int)n->type.length : 40,
                     n->type.bytes);
            list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, by);
        } else if (y->rank < 0 && !r->unknown_count)
            list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, "");
    }
}

/* A tensor that is one number throughout, 0 unless the node says which. */
static void fill_numbers(onnx_value *y, const onnx_small *like)
{
    uint64_t count = y->rank < 0 ? UINT64_MAX : onnx_elements(y);
    onnx_small *small = count <= ONNX_SMALL ? onnx_make_small(y, (uint32_t)count) : NULL;
    for (uint32_t i = 0; small && i < count; i++) {
        small->whole[i] = like && like->count ? like->whole[0] : 0;
        small->real[i] = like && like->count ? like->real[0] : 0;
    }
}

static void node_read(reader *r, scope *s, wire message)
{
    onnx_node *n = malloc(sizeof *n);
    bodies b = {.count = 0};
    wire tensor;
    if (!n) {
        reader_no_memory(r);
        return;
    }
    node_ports(r, s, message, n);
    bool constant = format_text_is(n->type, "Constant");
    if (!reader_failed(r)) {
        onnx_value like = {0}, *y = onnx_out(&r->o, n, 0);
        if (constant)
            node_constant(r, n);
        else if (format_text_is(n->type, "If"))
            node_if(r, s, n, &b);
        else if (format_text_is(n->type, "Loop"))
            node_loop(r, s, n, &b);
        else {
            bool filled = y && format_text_is(n->type, "ConstantOfShape");
            if (filled && attribute_message(n, "value", ATTRIBUTE_T, &tensor)) {
                tensor_read(r, tensor, &like, NULL);
                y->type = like.type;
            }
            onnx_infer(&r->o, n);
            if (filled)
                fill_numbers(y, like.small);
            free(like.small);
            onnx_fold(&r->o, n);
        }
    }
    if (!reader_failed(r) && !constant)
        node_settle(r, s, n);
    if (!reader_failed(r) && !constant)
        node_links(r, n, &b, s->subgraph);
    for (uint32_t k = 0; k < 2; k++)
        free(b.scopes[k].captured);
    free(n);
}

/* ---- Graphs ------------------------------------------------------------------------------------------- */

static void graph_initializers(reader *r, scope *s, wire message)
{
    wire_field field;
    while (wire_next(&message, &field)) {
        if (field.number != GRAPH_INITIALIZER || !field.is_bytes)
            continue;
        onnx_value value = {.rank = 0};
        format_text name = {"", 0};
        tensor_read(r, field.inside, &value, &name);
        int32_t id = reader_failed(r) ? -1 : value_add(r, s, name, FORMAT_CONSTANT);
        if (id < 0) {
            free(value.small);
            return;
        }
        r->o.values[id] = value;
    }
}

/* An input that is a single number may have a known one, so that an If which asks for it has one branch. */
static void input_number(reader *r, format_text name, onnx_value *value)
{
    bool whole = value->type == ONNX_INT64 || value->type == ONNX_INT32 || value->type == ONNX_BOOL;
    if (!whole || value->rank < 0 || onnx_elements(value) != 1)
        return;
    for (size_t i = 0; i < r->o.dims->count; i++)
        if (r->o.dims->items[i][0] == '*')
            return; /* that is for dimensions */
    int64_t number = format_dims_find(r->o.dims, name, (format_text){"", 0}, UINT32_MAX);
    onnx_small *small = number >= 0 ? onnx_make_small(value, 1) : NULL;
    if (small) {
        small->whole[0] = number;
        small->real[0] = (double)number;
    }
}

/* Notes where inputs, outputs and values are declared, and makes tensors of the inputs. */
static void graph_inputs(reader *r, scope *s, wire message)
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
            if (at < UINT32_MAX && !name_put(&r->declared, name, s->subgraph, (uint32_t)at))
                reader_no_memory(r);
            continue;
        }
        if (name_get(&r->tensors, name, s->subgraph) != UINT32_MAX)
            continue; /* an initializer's default */
        int32_t id = value_add(r, s, name, FORMAT_ACTIVATION);
        if (id < 0 || !format_add_link(model, id)) {
            reader_no_memory(r);
            return;
        }
        onnx_value *value = &r->o.values[id];
        if (input < s->given_count) {
            *value = s->given[input];
            value->small = NULL;
        }
        if (value->rank < 0 || !value->type)
            declared_read(r, field.inside, value, s->depth == 0);
        if (s->depth == 0)
            input_number(r, name, value);
        if (value->rank < 0 && !r->open_count)
            list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, " (an input)");
        input++;
    }
    format_subgraph *graph = &model->subgraphs[s->subgraph];
    graph->input_count = (uint32_t)model->link_count - graph->input_first;
}

static void graph_outputs(reader *r, scope *s, wire message)
{
    wire_field field, part;
    format_model *model = r->o.model;
    uint32_t first = (uint32_t)model->link_count;
    while (!reader_failed(r) && wire_next(&message, &field)) {
        if (field.number != GRAPH_OUTPUT || !field.is_bytes)
            continue;
        format_text name = {"", 0};
        for (wire info = field.inside; wire_next(&info, &part);)
            if (part.number == 1)
                name = wire_text(&part);
        int32_t id = value_find(r, s, name);
        if (id < 0 && !reader_failed(r))
            format_fail(r->o.error, BERTH_BAD_DATA,
                        "offset %zu, field `GraphProto.output`: nobody makes '%.*s'", field.inside.at,
                        name.length < 64 ? (int)name.length : 64, name.bytes);
        else if (!format_add_link(model, id))
            reader_no_memory(r);
    }
    model->subgraphs[s->subgraph].output_first = first;
    model->subgraphs[s->subgraph].output_count = (uint32_t)model->link_count - first;
}

static void graph_read(reader *r, scope *s, wire message)
{
    wire_field field;
    graph_initializers(r, s, message);
    if (!reader_failed(r))
        graph_inputs(r, s, message);
    for (wire nodes = message; !reader_failed(r) && !r->open_count && wire_next(&nodes, &field);)
        if (field.number == GRAPH_NODE && field.is_bytes)
            node_read(r, s, field.inside);
    if (!reader_failed(r) && !r->open_count)
        graph_outputs(r, s, message);
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

static void tensor_settle(reader *r, size_t index)
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
            reader_no_memory(r);
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
        list_name(r->unknown, sizeof r->unknown, &r->unknown_count, tensor->name, " (its type)");
    tensor->size_bytes = (elements * types[type].bits + 7) / 8;
    if (tensor->kind == FORMAT_CONSTANT)
        r->o.model->constant_bytes += tensor->size_bytes;
}

/* Nodes of inner graphs were read in the midst of the outer ones; each graph's come together, in their order. */
static void operators_gather(reader *r)
{
    format_model *model = r->o.model;
    format_operator *sorted = malloc((model->operator_count + 1) * sizeof *sorted);
    if (!sorted) {
        reader_no_memory(r);
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

static void reader_complain(reader *r)
{
    if (reader_failed(r))
        return;
    if (r->open_count)
        format_fail(
            r->o.error, BERTH_INVALID_ARGUMENT,
            "the model leaves dimensions open: %s%s; set each with --dim NAME=N, or all with --dim '*=N'",
            r->open, r->open_count > UNKNOWN_NAMED ? " and others" : "");
    else if (r->unknown_count)
        format_fail(r->o.error, BERTH_BAD_DATA,
                    "the shape of %s%s is not known; run shape inference over the model, so that it has "
                    "value_info, or "
                    "set the dimensions there with --dim",
                    r->unknown, r->unknown_count > UNKNOWN_NAMED ? " and others" : "");
}

static void model_read(reader *r, wire message)
{
    wire_field field;
    scope main_scope = {0};
    bool found = false;
    if (!format_add_subgraph(r->o.model))
        reader_no_memory(r);
    while (!reader_failed(r) && !found && wire_next(&message, &field))
        if (field.number == MODEL_GRAPH && field.is_bytes) {
            found = true;
            graph_read(r, &main_scope, field.inside);
        }
    free(main_scope.captured);
    if (!found && !reader_failed(r))
        format_fail(r->o.error, BERTH_BAD_DATA,
                    "field `ModelProto.graph`: there is none; this is no ONNX model");
}

berth_status format_onnx_read(const uint8_t *data, size_t size, const format_dims *dims, format_model *model,
                              format_error *error)
{
    reader r = {.o = {.model = model, .error = error, .dims = dims}, .file_size = size};
    error->status = BERTH_OK;
    *model = (format_model){.format = "ONNX"};
    model_read(&r, (wire){data, 0, size, error});
    for (size_t i = 0; r.o.values && i < model->tensor_count && !reader_failed(&r) && !r.open_count; i++)
        tensor_settle(&r, i);
    reader_complain(&r);
    if (!reader_failed(&r))
        operators_gather(&r);
    for (size_t i = 0; r.o.values && i < model->tensor_count; i++)
        free(r.o.values[i].small);
    free(r.o.values);
    free(r.tensors.entries);
    free(r.declared.entries);
    if (error->status)
        format_model_finish(model);
    return error->status;
}

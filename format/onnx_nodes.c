/* Reads the nodes of an ONNX graph, those that run other graphs with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/onnx_reader.h"

void onnx_node_ports(onnx_reader *r, onnx_scope *s, wire message, onnx_node *n, bool makes)
{
    wire fields = message;
    wire_field field;
    *n = (onnx_node){
        .message = message, .type = {"", 0}, .name = {"", 0}, .caller = s->caller, .function = s->function};
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
            int32_t id = !text.length ? -1 : input ? onnx_value_find(r, s, text) : 0;
            if (id == ONNX_LEFT_OUT)
                id = -1;
            else if (input && text.length && id < 0 && !onnx_failed(r))
                format_fail(r->o.error, BERTH_BAD_DATA,
                            "offset %zu, field `NodeProto.input`: nobody makes '%.*s' before it is used",
                            message.at, text.length < 64 ? (int)text.length : 64, text.bytes);
            if (!input)
                id = -1;
            if (!input && text.length && makes)
                id = onnx_value_add(r, s, text, FORMAT_ACTIVATION);
            (input ? n->inputs : n->outputs)[(*count)++] = id;
        }
    }
}

static void node_constant(onnx_reader *r, const onnx_node *n)
{
    onnx_value *y = onnx_out(&r->o, n, 0);
    wire tensor;
    int64_t list[ONNX_SMALL];
    if (!y)
        return;
    r->o.model->tensors[n->outputs[0]].kind = FORMAT_CONSTANT;
    if (onnx_attribute_message(n, "value", ATTRIBUTE_T, &tensor)) {
        onnx_tensor_read(r, tensor, y, NULL);
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
static uint32_t node_body(onnx_reader *r, onnx_scope *s, const onnx_node *n, const char *name,
                          const onnx_value *given, uint32_t given_count, onnx_scope *body)
{
    wire message;
    *body = (onnx_scope){.outer = s,
                         .space = ++r->spaces,
                         .depth = s->depth + 1,
                         .given = given,
                         .given_count = given_count,
                         .caller = s->caller,
                         .function = s->function};
    if (!onnx_attribute_message(n, name, ATTRIBUTE_G, &message) || onnx_failed(r))
        return UINT32_MAX;
    if (body->depth > ONNX_DEEPEST) {
        format_fail(r->o.error, BERTH_BAD_DATA, "offset %zu: graphs stand more than %d deep in each other",
                    message.at, ONNX_DEEPEST);
        return UINT32_MAX;
    }
    if (!format_add_subgraph(r->o.model)) {
        onnx_no_memory(r);
        return UINT32_MAX;
    }
    body->subgraph = (uint32_t)r->o.model->subgraph_count - 1;
    onnx_graph_read(r, body, message);
    return body->subgraph;
}

/* The output of a graph that was read. */
static const onnx_value *body_output(const onnx_reader *r, uint32_t subgraph, uint32_t i)
{
    const format_subgraph *graph = &r->o.model->subgraphs[subgraph];
    int32_t tensor = i < graph->output_count ? r->o.model->links[graph->output_first + i] : -1;
    return tensor >= 0 ? &r->o.values[tensor] : NULL;
}

typedef struct bodies {
    uint32_t subgraphs[2];
    onnx_scope scopes[2];
    uint32_t count;
} bodies;

static void node_if(onnx_reader *r, onnx_scope *s, const onnx_node *n, bodies *b)
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

/* A state of a Loop that becomes larger from run to run: what the file tells is its first run. The user may say how large it becomes. */
static void loop_state(onnx_reader *r, const onnx_node *n, uint32_t subgraph, uint32_t i,
                       const onnx_value *before, const onnx_value *after)
{
    const format_subgraph *graph = &r->o.model->subgraphs[subgraph];
    const int32_t tensor = i < graph->input_count ? r->o.model->links[graph->input_first + i] : -1;
    if (tensor < 0 || before->rank < 0 || after->rank < 0)
        return;
    const format_text name = r->o.model->tensors[tensor].name;
    bool same = before->rank == after->rank, told = false;
    for (int k = 0; k < before->rank; k++) {
        same = same && before->dims[k] == after->dims[k];
        told = told || format_dims_exact(r->o.dims, name, (uint32_t)k, false) >= 0;
    }
    char by[128];
    snprintf(by, sizeof by, " (a state of %.*s whose shape changes from run to run: --dim NAME:AXIS=N)",
             n->type.length < 40 ? (int)n->type.length : 40, n->type.bytes);
    if (!same && !told)
        onnx_list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, by);
}

static void node_loop(onnx_reader *r, onnx_scope *s, const onnx_node *n, bodies *b)
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
        if (from && i < carried)
            loop_state(r, n, id, i + 2, &given[i + 2], from);
        if (!from || !y || from->rank < 0 || (i >= carried && (count < 0 || from->rank == ONNX_RANK)))
            continue;
        y->type = from->type;
        y->rank = from->rank + (i >= carried);
        memcpy(y->dims + (i >= carried), from->dims, (size_t)from->rank * sizeof *y->dims);
        if (i >= carried)
            y->dims[0] = count;
    }
}

/* The axis of a slice of a Scan, and of what it gathers. */
static int64_t scan_axis(const onnx_node *n, const char *name, uint32_t i, int rank)
{
    int64_t list[ONNX_SMALL];
    const int count = onnx_ints(n, name, list);
    const int64_t axis = (int64_t)i < count ? list[i] : 0;
    return axis < 0 ? axis + rank : axis;
}

/* States first, then what goes through slice by slice (opset 9 and later). */
static void node_scan(onnx_reader *r, onnx_scope *s, const onnx_node *n, bodies *b)
{
    onnx_value given[ONNX_PORTS];
    const int64_t sliced = onnx_int(n, "num_scan_inputs", 0);
    if (sliced < 1 || sliced > (int64_t)n->input_count)
        return;
    const uint32_t states = n->input_count - (uint32_t)sliced;
    int64_t trips = -1;
    for (uint32_t i = 0; i < n->input_count; i++) {
        const onnx_value *x = onnx_in(&r->o, n, i);
        given[i] = x ? *x : (onnx_value){.rank = -1};
        given[i].small = NULL; /* it changes from run to run */
        if (i < states || given[i].rank < 0)
            continue;
        const int64_t axis = scan_axis(n, "scan_input_axes", i - states, given[i].rank);
        if (axis < 0 || axis >= given[i].rank) {
            given[i].rank = -1;
            continue;
        }
        trips = given[i].dims[axis];
        given[i].rank--;
        memmove(given[i].dims + axis, given[i].dims + axis + 1,
                (size_t)(given[i].rank - axis) * sizeof given[i].dims[0]);
    }
    const uint32_t id = node_body(r, s, n, "body", given, n->input_count, &b->scopes[0]);
    if (id == UINT32_MAX)
        return;
    b->subgraphs[b->count++] = id;
    for (uint32_t i = 0; i < n->output_count; i++) {
        const onnx_value *from = body_output(r, id, i);
        onnx_value *y = onnx_out(&r->o, n, i);
        if (!from || !y || from->rank < 0 || (i >= states && (trips < 0 || from->rank == ONNX_RANK)))
            continue;
        const int64_t axis = i < states ? 0 : scan_axis(n, "scan_output_axes", i - states, from->rank + 1);
        if (axis < 0 || axis > from->rank)
            continue;
        y->type = from->type;
        y->rank = from->rank + (i >= states);
        memcpy(y->dims, from->dims, (size_t)from->rank * sizeof *y->dims);
        if (i < states)
            continue;
        memcpy(y->dims + axis + 1, from->dims + axis, (size_t)(from->rank - axis) * sizeof *y->dims);
        y->dims[axis] = trips;
    }
}

static bool is_word(format_text type, const char *const *names)
{
    for (; *names; names++)
        if (format_text_is(type, *names))
            return true;
    return false;
}

/* An operator of a domain that is not known may do anything: it stays in its order. */
static bool node_is_foreign(const onnx_node *n)
{
    static const char *const known[] = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft", NULL};
    wire message = n->message;
    wire_field field;
    while (wire_next(&message, &field))
        if (field.number == NODE_DOMAIN && field.is_bytes && !is_word(wire_text(&field), known))
            return true;
    return false;
}

static void node_links(onnx_reader *r, const onnx_node *n, const bodies *b, uint32_t subgraph)
{
    static const char *const elementwise[] = {
        "Relu",        "LeakyRelu", "Sigmoid", "Tanh", "Clip", "Abs", "Neg", "Exp", "Log", "Sqrt", "Erf",
        "HardSigmoid", "HardSwish", "Elu",     "Add",  "Sub",  "Mul", "Div", "Pow", "Max", "Min",  NULL};
    static const char *const reshapes[] = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", NULL};
    static const char *const stateful[] = {"RandomNormal",
                                           "RandomNormalLike",
                                           "RandomUniform",
                                           "RandomUniformLike",
                                           "Multinomial",
                                           "Bernoulli",
                                           NULL};
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
    op.stateful = is_word(n->type, stateful) || node_is_foreign(n);
    format_operator *added = fine ? format_add_operator(model) : NULL;
    if (added)
        *added = op;
    else
        onnx_no_memory(r);
}

/* A shape that nobody knows may be given axis by axis. */
static void shape_from_user(onnx_reader *r, format_text name, onnx_value *y)
{
    int rank = 0;
    for (; rank < ONNX_RANK; rank++) {
        y->dims[rank] = format_dims_exact(r->o.dims, name, (uint32_t)rank, false);
        if (y->dims[rank] < 0)
            break;
    }
    y->rank = rank ? rank : -1;
    if (rank && !y->type)
        y->type = ONNX_FLOAT;
}

/* What inference left open is looked up in the file; what is still open is named, unless an input is to blame. */
static void node_settle(onnx_reader *r, onnx_scope *s, const onnx_node *n)
{
    static const char *const by_data[] = {"NonZero", "Compress", "Unique", "NonMaxSuppression", NULL};
    bool inputs_known = true;
    for (uint32_t i = 0; i < n->input_count; i++)
        inputs_known = inputs_known && (!onnx_in(&r->o, n, i) || onnx_in(&r->o, n, i)->rank >= 0);
    for (uint32_t i = 0; i < n->output_count; i++) {
        onnx_value *y = onnx_out(&r->o, n, i);
        if (!y)
            continue;
        format_text name = r->o.model->tensors[n->outputs[i]].name;
        int open_axis = -1;
        for (int k = 0; k < y->rank; k++)
            if (y->dims[k] < 0 || y->dims[k] > ONNX_LARGEST_DIM) {
                y->dims[k] = format_dims_exact(r->o.dims, name, (uint32_t)k, is_word(n->type, by_data));
                open_axis = y->dims[k] < 0 && open_axis < 0 ? k : open_axis;
            }
        if (open_axis >= 0)
            y->rank = -1;
        uint32_t at = onnx_name_get(&r->declared, name, s->space);
        if ((y->rank < 0 || !y->type) && at != UINT32_MAX) {
            wire file = {n->message.data, at, r->file_size, r->o.error};
            wire_field info;
            if (wire_next(&file, &info) && info.is_bytes)
                onnx_declared_read(r, info.inside, y, false);
        }
        if (y->rank < 0)
            shape_from_user(r, name, y);
        if (y->rank < 0 && inputs_known) {
            char by[128];
            int used = snprintf(by, sizeof by, " (by %.*s", n->type.length < 40 ? (int)n->type.length : 40,
                                n->type.bytes);
            if (open_axis >= 0 && is_word(n->type, by_data))
                snprintf(by + used, sizeof by - (size_t)used,
                         ", which depends on data: --dim NAME:%d=N says how many)", open_axis);
            else
                snprintf(by + used, sizeof by - (size_t)used, ")");
            onnx_list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, by);
        } else if (y->rank < 0 && !r->unknown_count)
            onnx_list_name(r->unknown, sizeof r->unknown, &r->unknown_count, name, "");
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

void onnx_node_read(onnx_reader *r, onnx_scope *s, wire message)
{
    if (onnx_function_call(r, s, message))
        return;
    onnx_node *n = malloc(sizeof *n);
    bodies b = {.count = 0};
    wire tensor;
    if (!n) {
        onnx_no_memory(r);
        return;
    }
    onnx_node_ports(r, s, message, n, true);
    bool constant = format_text_is(n->type, "Constant");
    if (!onnx_failed(r)) {
        onnx_value like = {0}, *y = onnx_out(&r->o, n, 0);
        if (constant)
            node_constant(r, n);
        else if (format_text_is(n->type, "If"))
            node_if(r, s, n, &b);
        else if (format_text_is(n->type, "Loop"))
            node_loop(r, s, n, &b);
        else if (format_text_is(n->type, "Scan"))
            node_scan(r, s, n, &b);
        else {
            bool filled = y && format_text_is(n->type, "ConstantOfShape");
            if (filled && onnx_attribute_message(n, "value", ATTRIBUTE_T, &tensor)) {
                onnx_tensor_read(r, tensor, &like, NULL);
                y->type = like.type;
            }
            if (!node_is_foreign(n)) /* a name alone says nothing there */
                onnx_infer(&r->o, n);
            if (filled)
                fill_numbers(y, like.small);
            free(like.small);
            if (!node_is_foreign(n))
                onnx_fold(&r->o, n);
        }
    }
    for (uint32_t i = 0; i < n->output_count; i++)
        if (onnx_out(&r->o, n, i) && onnx_out(&r->o, n, i)->starved)
            onnx_no_memory(r);
    if (!onnx_failed(r) && !constant)
        node_settle(r, s, n);
    if (!onnx_failed(r) && !constant)
        node_links(r, n, &b, s->subgraph);
    for (uint32_t k = 0; k < 2; k++)
        free(b.scopes[k].captured);
    free(n);
}

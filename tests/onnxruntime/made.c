/* Small ONNX models: the few fields of the format that they need, encoded by hand. */
#include "made.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Field numbers of ONNX's messages. */
enum { MODEL_IR = 1, MODEL_GRAPH = 7, MODEL_OPSET = 8, OPSET_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_I = 3, ATTRIBUTE_TYPE = 20, ATTRIBUTE_INT = 2 };
enum {
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_PARAM = 2
};
enum { FLOAT = 1, IR_VERSION = 8, OPSET = 13 };
enum { VARINT = 0, BYTES = 2 };

typedef struct message {
    unsigned char bytes[MADE_MOST];
    size_t size;
} message;

static void put_varint(message *m, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        m->bytes[m->size++] = (unsigned char)(value | 128);
    m->bytes[m->size++] = (unsigned char)value;
}

static void put_number(message *m, unsigned field, uint64_t value)
{
    put_varint(m, field << 3 | VARINT);
    put_varint(m, value);
}

static void put_bytes(message *m, unsigned field, const void *bytes, size_t size)
{
    put_varint(m, field << 3 | BYTES);
    put_varint(m, size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_text(message *m, unsigned field, const char *text)
{
    put_bytes(m, field, text, strlen(text));
}

static void put_message(message *m, unsigned field, const message *inner)
{
    put_bytes(m, field, inner->bytes, inner->size);
}

/* A node; `axis` below 0: no attribute. Names of inputs and outputs end with NULL. */
static void put_node(message *graph, const char *op, const char *const *inputs, const char *output, int axis)
{
    message node = {.size = 0};
    for (; *inputs; inputs++)
        put_text(&node, NODE_INPUT, *inputs);
    put_text(&node, NODE_OUTPUT, output);
    put_text(&node, NODE_OP, op);
    if (axis >= 0) {
        message attribute = {.size = 0};
        const char *name = strcmp(op, "Cast") == 0 ? "to" : "axis";
        put_text(&attribute, ATTRIBUTE_NAME, name);
        put_number(&attribute, ATTRIBUTE_I, (uint64_t)axis);
        put_number(&attribute, ATTRIBUTE_TYPE, ATTRIBUTE_INT);
        put_message(&node, NODE_ATTRIBUTE, &attribute);
    }
    put_message(graph, GRAPH_NODE, &node);
}

/* A matrix of floats of any size. */
static void put_value(message *graph, unsigned field, const char *name)
{
    message shape = {.size = 0}, tensor = {.size = 0}, type = {.size = 0}, value = {.size = 0};
    for (int i = 0; i < 2; i++) {
        char text[16];
        message dimension = {.size = 0};
        snprintf(text, sizeof text, "%s%d", name, i);
        put_text(&dimension, DIM_PARAM, text);
        put_message(&shape, SHAPE_DIM, &dimension);
    }
    put_number(&tensor, TENSOR_ELEMENT, FLOAT);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_message(&type, TYPE_TENSOR, &tensor);
    put_text(&value, VALUE_NAME, name);
    put_message(&value, VALUE_TYPE, &type);
    put_message(graph, field, &value);
}

static size_t finish_model(const message *graph, unsigned char *out)
{
    message model = {.size = 0}, opset = {.size = 0};
    put_number(&opset, OPSET_VERSION, OPSET);
    put_number(&model, MODEL_IR, IR_VERSION);
    put_message(&model, MODEL_OPSET, &opset);
    put_message(&model, MODEL_GRAPH, graph);
    memcpy(out, model.bytes, model.size);
    return model.size;
}

size_t made_chain(unsigned char *out, int blocks)
{
    message graph = {.size = 0};
    char in[32] = "x", turned[32], product[32], soft[32], next[32];
    put_text(&graph, GRAPH_NAME, "chain");
    for (int i = 0; i < blocks; i++) {
        snprintf(turned, sizeof turned, "turned%d", i);
        snprintf(product, sizeof product, "product%d", i);
        snprintf(soft, sizeof soft, "soft%d", i);
        snprintf(next, sizeof next, i + 1 < blocks ? "next%d" : "y", i);
        put_node(&graph, "Transpose", (const char *const[]){in, NULL}, turned, -1);
        put_node(&graph, "MatMul", (const char *const[]){in, turned, NULL}, product, -1);
        put_node(&graph, "Softmax", (const char *const[]){product, NULL}, soft, 1);
        put_node(&graph, "MatMul", (const char *const[]){soft, in, NULL}, next, -1);
        snprintf(in, sizeof in, "%s", next);
    }
    put_value(&graph, GRAPH_INPUT, "x");
    put_value(&graph, GRAPH_OUTPUT, "y");
    return finish_model(&graph, out);
}

size_t made_nonzero(unsigned char *out)
{
    message graph = {.size = 0};
    put_text(&graph, GRAPH_NAME, "nonzero");
    put_node(&graph, "Relu", (const char *const[]){"x", NULL}, "positive", -1);
    put_node(&graph, "NonZero", (const char *const[]){"positive", NULL}, "where", -1);
    put_node(&graph, "Cast", (const char *const[]){"where", NULL}, "y", FLOAT);
    put_value(&graph, GRAPH_INPUT, "x");
    put_value(&graph, GRAPH_OUTPUT, "y");
    return finish_model(&graph, out);
}

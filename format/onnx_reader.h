/* What the files of the ONNX reader share: who is named what, the graph that is being read, and what could not be known. */
#ifndef BERTH_FORMAT_ONNX_READER_H
#define BERTH_FORMAT_ONNX_READER_H

#include "format/onnx_graph.h"

enum { ONNX_DEEPEST = 32, ONNX_UNKNOWN_NAMED = 5 };
#define ONNX_LARGEST_DIM ((int64_t)INT32_MAX)

/* Field numbers. */
enum { MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_FUNCTION = 25 };
enum {
    FUNCTION_NAME = 1,
    FUNCTION_INPUT = 4,
    FUNCTION_OUTPUT = 5,
    FUNCTION_NODE = 7,
    FUNCTION_DOMAIN = 10,
    FUNCTION_DEFAULT = 11
};
enum {
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_INFO = 13,
    GRAPH_SPARSE = 15
};
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_TYPE, NODE_ATTRIBUTE, NODE_DOMAIN = 7 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F,
    ATTRIBUTE_I,
    ATTRIBUTE_S,
    ATTRIBUTE_T,
    ATTRIBUTE_G,
    ATTRIBUTE_FLOATS,
    ATTRIBUTE_INTS,
    ATTRIBUTE_REFERS = 21
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

typedef struct onnx_name {
    format_text name;
    uint32_t space, id; /* id is UINT32_MAX in an empty place */
} onnx_name;

typedef struct onnx_names {
    onnx_name *entries;
    size_t room, count;
} onnx_names;

typedef struct onnx_reader {
    onnx o;
    onnx_names tensors, declared; /* declared: the places of ValueInfo messages in the file */
    onnx_names functions;         /* of the model: the places of their messages */
    uint32_t spaces;              /* of names, so far */
    size_t inlined;               /* nodes of functions, so far */
    char unknown[400];            /* tensors whose shape is not known */
    unsigned unknown_count;
    char open[400]; /* dimensions that nobody set */
    unsigned open_count;
    size_t file_size;
} onnx_reader;

/* A graph that is being read. */
typedef struct onnx_scope {
    struct onnx_scope *outer;
    uint32_t subgraph;
    uint32_t space;          /* of its names */
    const onnx_node *caller; /* of the function whose nodes these are, NULL: none */
    wire function;           /* that function */
    int32_t *captured;       /* tensors of outer graphs that are used inside */
    size_t captured_count, captured_room;
    unsigned depth;
    const onnx_value *given; /* of the inputs, by the node that runs the graph */
    uint32_t given_count;
} onnx_scope;

static inline bool onnx_failed(const onnx_reader *r)
{
    return r->o.error->status;
}

void onnx_no_memory(onnx_reader *r);

/* Names in their spaces: a graph has one, and so has each use of a function. False: no memory. */
bool onnx_name_put(onnx_names *map, format_text name, uint32_t space, uint32_t id);
uint32_t onnx_name_get(const onnx_names *map, format_text name, uint32_t space); /* UINT32_MAX: none */

/* A new tensor, -1 after a failure. */
int32_t onnx_value_add(onnx_reader *r, onnx_scope *s, format_text name, format_kind kind);
/* Finds a tensor here or in the graphs around, which then must keep it while this graph runs; -1: nobody makes it, ONNX_LEFT_OUT: an input of
 * a function that its caller leaves out. */
#define ONNX_LEFT_OUT (-2)
int32_t onnx_value_find(onnx_reader *r, onnx_scope *s, format_text name);
/* Adds a name to a list of words. */
void onnx_list_name(char *list, size_t room, unsigned *count, format_text name, const char *more);
/* Type, shape and small numbers of a TensorProto. */
void onnx_tensor_read(onnx_reader *r, wire message, onnx_value *value, format_text *name);
/* Type and shape of a ValueInfoProto; rank stays -1 if it says no shape or leaves a part open. */
void onnx_declared_read(onnx_reader *r, wire info, onnx_value *value, bool is_input);
/* The message inside an attribute. */
bool onnx_attribute_message(const onnx_node *n, const char *name, uint32_t number, wire *message);

/* Reads a node with what it runs; its outputs become tensors. */
void onnx_node_read(onnx_reader *r, onnx_scope *s, wire message);
void onnx_graph_read(onnx_reader *r, onnx_scope *s, wire message);

/* Reads a node's ports and words; its outputs become tensors if `makes`. */
void onnx_node_ports(onnx_reader *r, onnx_scope *s, wire message, onnx_node *n, bool makes);
/* Notes the functions of the model. */
void onnx_functions_note(onnx_reader *r, wire model);
/* Puts the nodes of a function in the place of a node that calls it; false: the node calls none. */
bool onnx_function_call(onnx_reader *r, onnx_scope *s, wire message);

#endif

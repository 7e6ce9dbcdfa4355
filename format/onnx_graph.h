/* What the parts of the ONNX reader share: values with their shapes, and nodes. */
#ifndef BERTH_FORMAT_ONNX_GRAPH_H
#define BERTH_FORMAT_ONNX_GRAPH_H

#include "format/onnx_wire.h"

enum { ONNX_RANK = 12, ONNX_SMALL = 64, ONNX_PORTS = 512 };

/* Types of elements, by ONNX's number. */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_BOOL = 9,
    ONNX_HALF = 10,
    ONNX_DOUBLE = 11,
    ONNX_BFLOAT16 = 16
};

/* Known numbers of a small tensor: shapes, axes, scales. */
typedef struct onnx_small {
    uint32_t count;
    double real[ONNX_SMALL];
    int64_t whole[ONNX_SMALL];
} onnx_small;

/* A value: what is known about a tensor. */
typedef struct onnx_value {
    int rank; /* -1: the shape is not known */
    int type; /* 0: not known */
    int64_t dims[ONNX_RANK];
    onnx_small *small; /* NULL: the numbers are not known */
    bool starved;      /* there was no memory for them: not the same as not known */
} onnx_value;

typedef struct onnx_node {
    format_text type, name;
    wire message;
    const struct onnx_node
        *caller; /* of the function that it stands in, NULL: none; attributes may refer to the caller's */
    wire function;
    uint32_t input_count, output_count;
    int32_t inputs[ONNX_PORTS], outputs[ONNX_PORTS]; /* -1: left out */
} onnx_node;

typedef struct onnx {
    format_model *model;
    format_error *error;
    const format_dims *dims;
    onnx_value *values; /* by tensor */
    size_t value_room;
    int64_t opset;
} onnx;

/* The input or output of a node, NULL if it is left out. */
onnx_value *onnx_in(onnx *o, const onnx_node *n, uint32_t i);
onnx_value *onnx_out(onnx *o, const onnx_node *n, uint32_t i);

/* An attribute: false if the node has none of the name. */
bool onnx_attribute(const onnx_node *n, const char *name, wire *message);
int64_t onnx_int(const onnx_node *n, const char *name, int64_t absent);
/* Fills `list`, at most ONNX_SMALL numbers; how many, -1 if there is no such attribute. */
int onnx_ints(const onnx_node *n, const char *name, int64_t *list);
/* The same for numbers with a fraction. */
int onnx_reals(const onnx_node *n, const char *name, double *list);
format_text onnx_words(const onnx_node *n, const char *name);

/* A place for known numbers, or NULL: no memory. */
onnx_small *onnx_make_small(onnx_value *value, uint32_t count);

/* Towards 0; what is too large, and what is no number, becomes the largest or the smallest. */
int64_t onnx_whole(double real);
uint64_t onnx_elements(const onnx_value *value); /* UINT64_MAX: too many to count */

bool onnx_is_one_of(format_text type, const char *const *names);
/* `y` gets the shape of `x`, and its type unless `type` says another; either may be NULL. */
void onnx_take_shape(onnx_value *y, const onnx_value *x, int type);
/* An axis counted from the front, or -1. */
int onnx_axis(int64_t axis, int rank);
/* Numbers from an input, or from an attribute in older operator sets; -1: not known, -2: neither is there. */
int onnx_numbers(onnx *o, const onnx_node *n, uint32_t input, const char *attribute, int64_t *list);

/* Gives the node's outputs their types and shapes where that can be known. */
void onnx_infer(onnx *o, const onnx_node *n);
/* Gives them their numbers, where those of the inputs are known. */
void onnx_fold(onnx *o, const onnx_node *n);
/* Operators with a window or a recurrence; false: another one. */
bool onnx_infer_layer(onnx *o, const onnx_node *n);
bool onnx_infer_einsum(onnx *o, const onnx_node *n);
/* Operators that few models have, and those that ONNX Runtime's optimizer and quantizer write. */
bool onnx_infer_rare(onnx *o, const onnx_node *n);
bool onnx_infer_contrib(onnx *o, const onnx_node *n);
/* Whether the operator is of ONNX Runtime's own domain. */
bool onnx_is_contrib(const onnx_node *n);

#endif

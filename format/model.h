/* A model as the readers of this room give it: subgraphs of operators over tensors, whatever the file format.
 *
 * Everything is an index into one of the model's arrays. Names point into the file's bytes, which the caller keeps
 * for as long as the model lives; they are not closed by a zero. */
#ifndef BERTH_FORMAT_MODEL_H
#define BERTH_FORMAT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/status.h"

typedef struct format_text {
    const char *bytes;
    size_t length;
} format_text;

typedef enum format_kind {
    FORMAT_ACTIVATION, /* planned */
    FORMAT_CONSTANT,   /* its bytes are in the file */
    FORMAT_VARIABLE,   /* keeps its value from run to run */
    FORMAT_PERSISTENT, /* computed once, kept by the runtime: DEQUANTIZE of a constant */
    FORMAT_SCRATCH,    /* a kernel's, while its operator runs; of no file */
} format_kind;

typedef struct format_tensor {
    format_text name;
    uint64_t size_bytes; /* as the runtime counts it, before any rounding */
    uint32_t dim_first, rank;
    uint32_t local; /* its number in its own subgraph; of scratch: among all scratch */
    uint32_t subgraph;
    uint32_t owner;   /* of scratch: the operator */
    const char *type; /* "f32" */
    uint8_t kind;
} format_tensor;

typedef struct format_operator {
    format_text type;                  /* "CONV_2D", "Conv" */
    format_text name;                  /* empty in formats that name none */
    uint32_t input_first, input_count; /* in links; -1 is an input that was left out */
    uint32_t output_first, output_count;
    uint32_t call_first, call_count; /* subgraphs that it runs, in links */
    uint32_t local;                  /* its number in its own subgraph */
    uint32_t subgraph;
    bool stateful;    /* keeps its place among the others that are */
    bool elementwise; /* an output may overwrite an input of its size that nobody needs any more */
    bool reshapes;    /* the same for an output with the same bytes in another shape */
} format_operator;

typedef struct format_subgraph {
    format_text name;
    uint32_t tensor_first, tensor_count;
    uint32_t operator_first, operator_count; /* in the order in which they run */
    uint32_t input_first, input_count;       /* in links */
    uint32_t output_first, output_count;
} format_subgraph;

typedef struct format_model {
    const char *format; /* "TFLite", "ONNX" */
    format_tensor *tensors;
    size_t tensor_count, tensor_room;
    size_t scratch_count; /* of them, at the end */
    format_operator *operators;
    size_t operator_count, operator_room;
    format_subgraph *subgraphs;
    size_t subgraph_count, subgraph_room;
    int32_t *links;
    size_t link_count, link_room;
    int64_t *dims;
    size_t dim_count, dim_room;
    uint64_t constant_bytes;
    uint64_t channel_count; /* scales of the weights that are quantized by channel */
    size_t free_dimensions; /* that the file leaves open and nobody set */
    char *owned;            /* names that are in no file */
} format_model;

/* What went wrong, with the offset in the file and the field. */
typedef struct format_error {
    berth_status status;
    char words[512];
} format_error;

/* Sets the words; returns `status`. */
berth_status format_fail(format_error *error, berth_status status, const char *format, ...)
    BERTH_PRINTF(3, 4);

/* A dimension that the user sets: "NAME=N" for a symbol, "TENSOR:AXIS=N" for one place, "*:AXIS=N" for
 * that axis of all that leave it open, "*=N" for all that are still free. What is said most exactly counts. */
typedef struct format_dims {
    const char *const *items;
    size_t count;
    bool *used; /* by item, set by the readers; NULL: not wanted */
} format_dims;

/* Whether `text` is such a setting. */
bool format_dims_valid(const char *text);
/* The size for a free dimension, or -1. `symbol` may be empty. */
int64_t format_dims_find(const format_dims *dims, format_text symbol, format_text tensor, uint32_t axis);
/* The same for "TENSOR:AXIS=N" alone, or for "*:AXIS=N" too. */
int64_t format_dims_exact(const format_dims *dims, format_text tensor, uint32_t axis, bool or_axis);

/* The arrays grow one element at a time; the new one is zeroed. NULL: out of memory. */
format_tensor *format_add_tensor(format_model *model);
format_operator *format_add_operator(format_model *model);
format_subgraph *format_add_subgraph(format_model *model);
bool format_add_link(format_model *model, int64_t link);
bool format_add_dim(format_model *model, int64_t size);

/* Adds scratch of an operator; to be done after the model is read. False: out of memory. */
bool format_add_scratch(format_model *model, uint32_t operator, uint64_t size_bytes);

/* Frees what the model owns and zeroes it. */
void format_model_finish(format_model *model);

bool format_text_is(format_text text, const char *words);

/* ---- When tensors live ------------------------------------------------------------------------------- */

typedef enum format_runtime {
    FORMAT_MICRO,  /* TensorFlow Lite Micro */
    FORMAT_TFLITE, /* the large interpreter: inputs stay, offsets at multiples of 64 */
    FORMAT_ORT,    /* ONNX Runtime */
} format_runtime;

/* Live at the times first .. last, both inclusive; first is FORMAT_NEVER for a tensor that is not planned. */
typedef struct format_life {
    int64_t first, last;
    int64_t reborn;   /* where the runtime believes it to begin: its last creation */
    bool provisional; /* first is only where its subgraph starts */
} format_life;

#define FORMAT_NEVER INT64_MAX

typedef struct format_lives {
    format_life *tensors;
    uint32_t *steps; /* by time: the operator that runs, UINT32_MAX where a subgraph starts */
    int64_t step_count;
    uint64_t alignment; /* of offsets */
    uint64_t rounding;  /* of sizes */
} format_lives;

/* `order` is a permutation of the operators of each subgraph, or NULL for the file's. */
berth_status format_lives_init(format_lives *lives, const format_model *model, format_runtime runtime,
                               const uint32_t *order, format_error *error);
void format_lives_finish(format_lives *lives);

/* The bytes that a tensor takes in the arena. */
uint64_t format_lives_size(const format_lives *lives, const format_tensor *tensor);

/* What the runtime's own planner would take, or 0 if there are too many tensors to follow it. `pins` (NULL: none) holds offsets by tensor,
 * negative where it may choose. */
uint64_t format_greedy(const format_model *model, const format_lives *lives, format_runtime runtime,
                       const int64_t *pins, int64_t *offsets);

/* Fills `order`, as format_lives_init takes it, with one that holds as little at once as was found; the file's where nothing better was.
 * *bound is what no order can do without, 0 where that is not known. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status format_reorder(const format_model *model, const format_lives *lives, format_runtime runtime,
                            bool inplace, uint32_t *order, uint64_t *bound, format_error *error);

/* By tensor: a number that tensors share which may lie in one place, since each is made from the one before it and nobody needs
 * that any more; 0: alone. */
void format_inplace(const format_model *model, const format_lives *lives, uint32_t *groups);

#endif

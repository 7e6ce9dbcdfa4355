/* What is used of TensorFlow Lite 2.9's C interface, in our own words: its tables, field by field in their documented
 * order, and its functions' signatures. tests/tflite compares them with the package's own headers. Not installed. */
#ifndef BERTH_TFLITE_ABI_H
#define BERTH_TFLITE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LITE_VERSION "2.9." /* how TfLiteVersion() begins */
#define LITE_NO_TENSOR (-1) /* an optional input that is absent */
#define LITE_NO_HANDLE (-1) /* a tensor without a buffer of a delegate's */
#define LITE_TENSOR_ALIGNMENT 64

enum { LITE_OK = 0, LITE_ERROR = 1, LITE_DELEGATE_ERROR = 2, LITE_APPLICATION_ERROR = 3 };

/* Of the external contexts the one that every interpreter makes for itself, and all of its graphs have. */
enum { LITE_CPU_BACKEND_CONTEXT = 3 };

/* Where a tensor's memory comes from. */
enum {
    LITE_NONE = 0,
    LITE_CONSTANT = 1,   /* the model's file */
    LITE_ARENA = 2,      /* the arena: free for others outside the tensor's life */
    LITE_PERSISTENT = 3, /* the other arena: kept from run to run */
    LITE_DYNAMIC = 4,    /* the heap, while the model runs */
    LITE_PREPARED = 5,
    LITE_CUSTOM = 6, /* the program's */
};

typedef struct lite_ints {
    int size;
    int data[];
} lite_ints;

struct TfLiteDelegate; /* theirs and ours are the same table */

typedef struct lite_tensor {
    int type;
    char *data;
    lite_ints *dims;
    struct {
        float scale;
        int32_t zero_point;
    } params;
    int allocation_type;
    size_t bytes;
    const void *allocation;
    const char *name;
    struct TfLiteDelegate *delegate;
    int buffer_handle;
    bool data_is_stale;
    bool is_variable;
    struct {
        int type;
        void *params;
    } quantization;
    void *sparsity;
    const lite_ints *dims_signature;
} lite_tensor;

typedef struct lite_node {
    lite_ints *inputs;
    lite_ints *outputs;
    lite_ints *intermediates;
    lite_ints *temporaries;
    void *user_data;
    void *builtin_data;
    const void *custom_initial_data;
    int custom_initial_data_size;
    struct TfLiteDelegate *delegate;
    bool might_have_side_effect;
} lite_node;

typedef struct lite_context lite_context;

typedef int (*lite_prepare_fn)(lite_context *context, lite_node *node);

typedef struct lite_registration {
    void *(*init)(lite_context *context, const char *buffer, size_t length);
    void (*free)(lite_context *context, void *buffer);
    lite_prepare_fn prepare;
    int (*invoke)(lite_context *context, lite_node *node);
    const char *(*profiling_string)(const lite_context *context, const lite_node *node);
    int32_t builtin_code;
    const char *custom_name;
    int version;
} lite_registration;

/* A part of the graph, as a delegate would take it. */
typedef struct lite_part {
    struct TfLiteDelegate *delegate;
    lite_ints *nodes;
    lite_ints *inputs;
    lite_ints *outputs;
} lite_part;

typedef int (*lite_get_node_fn)(lite_context *context, int index, lite_node **node,
                                lite_registration **registration);

/* Up to the last field that is used; more follow. */
struct lite_context {
    size_t tensors_size;
    int (*get_plan)(lite_context *context, lite_ints **plan);
    lite_tensor *tensors;
    void *impl;
    int (*resize_tensor)(lite_context *context, lite_tensor *tensor, lite_ints *dims);
    void (*report_error)(lite_context *context, const char *format, ...);
    int (*add_tensors)(lite_context *context, int count, int *first);
    lite_get_node_fn get_node;
    int (*replace_nodes)(lite_context *context, lite_registration registration, const lite_ints *nodes,
                         struct TfLiteDelegate *delegate);
    int recommended_num_threads;
    void *(*get_external_context)(lite_context *context, int type);
    void (*set_external_context)(lite_context *context, int type, void *external);
    bool allow_fp32_relax_to_fp16;
    void *profiler;
    void *(*allocate_persistent_buffer)(lite_context *context, size_t bytes);
    int (*allocate_buffer_for_eval)(lite_context *context, size_t bytes, void **out);
    int (*request_scratch_buffer)(lite_context *context, size_t bytes, int *index);
    void *(*get_scratch_buffer)(lite_context *context, int index);
    int (*resize_tensor_explicit)(lite_context *context, lite_tensor *tensor, int dims, const int *shape);
    int (*preview_parts)(lite_context *context, const lite_ints *nodes, lite_part **parts, int *count);
};

struct TfLiteDelegate {
    void *data;
    int (*prepare)(lite_context *context, struct TfLiteDelegate *delegate);
    int (*copy_from_buffer_handle)(lite_context *context, struct TfLiteDelegate *delegate, int handle,
                                   lite_tensor *tensor);
    int (*copy_to_buffer_handle)(lite_context *context, struct TfLiteDelegate *delegate, int handle,
                                 lite_tensor *tensor);
    void (*free_buffer_handle)(lite_context *context, struct TfLiteDelegate *delegate, int *handle);
    int64_t flags;
};

/* ---- Functions: X(result, name without TfLite, arguments) ---------------------------------------------- */

struct TfLiteModel;
struct TfLiteInterpreter;
struct TfLiteInterpreterOptions;

/* What the binding calls itself. */
#define LITE_BINDING_CALLS(X)                                                                       \
    X(const char *, Version, (void))                                                                \
    X(int32_t, InterpreterGetOutputTensorCount, (const struct TfLiteInterpreter *))                 \
    X(const lite_tensor *, InterpreterGetOutputTensor, (const struct TfLiteInterpreter *, int32_t)) \
    X(int, InterpreterModifyGraphWithDelegate, (const struct TfLiteInterpreter *, struct TfLiteDelegate *))

/* What a program calls, for the example, the bench and the tests: they run without TensorFlow's headers. */
#define LITE_PROGRAM_CALLS(X)                                                                            \
    X(struct TfLiteModel *, ModelCreate, (const void *, size_t))                                         \
    X(struct TfLiteModel *, ModelCreateFromFile, (const char *))                                         \
    X(void, ModelDelete, (struct TfLiteModel *))                                                         \
    X(struct TfLiteInterpreterOptions *, InterpreterOptionsCreate, (void))                               \
    X(void, InterpreterOptionsDelete, (struct TfLiteInterpreterOptions *))                               \
    X(void, InterpreterOptionsSetNumThreads, (struct TfLiteInterpreterOptions *, int32_t))               \
    X(void, InterpreterOptionsAddDelegate, (struct TfLiteInterpreterOptions *, struct TfLiteDelegate *)) \
    X(struct TfLiteInterpreter *, InterpreterCreate,                                                     \
      (const struct TfLiteModel *, const struct TfLiteInterpreterOptions *))                             \
    X(void, InterpreterDelete, (struct TfLiteInterpreter *))                                             \
    X(int32_t, InterpreterGetInputTensorCount, (const struct TfLiteInterpreter *))                       \
    X(lite_tensor *, InterpreterGetInputTensor, (const struct TfLiteInterpreter *, int32_t))             \
    X(int, InterpreterResizeInputTensor, (struct TfLiteInterpreter *, int32_t, const int *, int32_t))    \
    X(int, InterpreterAllocateTensors, (struct TfLiteInterpreter *))                                     \
    X(int, InterpreterInvoke, (struct TfLiteInterpreter *))                                              \
    X(int, InterpreterResetVariableTensors, (struct TfLiteInterpreter *))                                \
    X(struct TfLiteDelegate *, XNNPackDelegateCreate, (const void *))                                    \
    X(void, XNNPackDelegateDelete, (struct TfLiteDelegate *))

#endif

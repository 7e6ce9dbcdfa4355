/* What of ggml 0.9.7 (llama.cpp b8390) is used here, written down by the documented order of its headers: the package that
 * brings the library brings none. load.c refuses another version, and probe.c proves the layout on the library itself. */
#ifndef BERTH_GGML_ABI_H
#define BERTH_GGML_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GGML_MAX_DIMS = 4,
    GGML_MAX_SRC = 10,
    GGML_MAX_OP_PARAMS = 64,
    GGML_MAX_NAME = 64,
    GGML_OBJECT_BYTES = 32, /* what stands before each tensor in a context */
};
enum { GGML_TYPE_F32 = 0 };
enum { GGML_OP_NONE = 0 };
enum { GGML_TENSOR_FLAG_INPUT = 1, GGML_TENSOR_FLAG_OUTPUT = 2 };
enum { GGML_STATUS_ALLOC_FAILED = -2, GGML_STATUS_SUCCESS = 0 };
enum { GGML_BACKEND_BUFFER_USAGE_COMPUTE = 2 };
enum { GGML_LOG_LEVEL_ERROR = 4 };

struct ggml_context;
struct ggml_backend_device;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;

struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

struct ggml_tensor {
    int type;
    struct ggml_backend_buffer *buffer;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    int op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t flags;
    struct ggml_tensor *src[GGML_MAX_SRC];
    struct ggml_tensor *view_src;
    size_t view_offs;
    void *data;
    char name[GGML_MAX_NAME];
    void *extra;
    char padding[8];
};

/* Its head; what follows is not used. */
struct ggml_cgraph {
    int size;
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;
    struct ggml_tensor **grads;
    struct ggml_tensor **grad_accs;
    struct ggml_tensor **leafs;
};

struct ggml_backend_buffer_type_i {
    const char *(*get_name)(struct ggml_backend_buffer_type *type);
    struct ggml_backend_buffer *(*alloc_buffer)(struct ggml_backend_buffer_type *type, size_t size);
    size_t (*get_alignment)(struct ggml_backend_buffer_type *type);
    size_t (*get_max_size)(struct ggml_backend_buffer_type *type);
    size_t (*get_alloc_size)(struct ggml_backend_buffer_type *type, const struct ggml_tensor *tensor);
    bool (*is_host)(struct ggml_backend_buffer_type *type);
};

struct ggml_backend_buffer_type {
    struct ggml_backend_buffer_type_i iface;
    struct ggml_backend_device *device;
    void *context;
};

struct ggml_backend_buffer_i {
    void (*free_buffer)(struct ggml_backend_buffer *buffer);
    void *(*get_base)(struct ggml_backend_buffer *buffer);
    int (*init_tensor)(struct ggml_backend_buffer *buffer, struct ggml_tensor *tensor);
    void (*memset_tensor)(struct ggml_backend_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size);
    void (*set_tensor)(struct ggml_backend_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size);
    void (*get_tensor)(struct ggml_backend_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size);
    bool (*cpy_tensor)(struct ggml_backend_buffer *buffer, const struct ggml_tensor *src,
                       struct ggml_tensor *dst);
    void (*clear)(struct ggml_backend_buffer *buffer, uint8_t value);
    void (*reset)(struct ggml_backend_buffer *buffer);
};

struct ggml_backend_buffer {
    struct ggml_backend_buffer_i iface;
    struct ggml_backend_buffer_type *buft;
    void *context;
    size_t size;
    int usage;
};

/* X(result, name, parameters): the functions that are looked up in the library. */
#define BGG_CALLS(X)                                                                                         \
    X(const char *, ggml_version, (void))                                                                    \
    X(const char *, ggml_commit, (void))                                                                     \
    X(size_t, ggml_tensor_overhead, (void))                                                                  \
    X(const char *, ggml_op_name, (int op))                                                                  \
    X(bool, ggml_op_can_inplace, (int op))                                                                   \
    X(size_t, ggml_nbytes, (const struct ggml_tensor *tensor))                                               \
    X(void, ggml_log_internal, (int level, const char *format, ...))                                         \
    X(struct ggml_context *, ggml_init, (struct ggml_init_params params))                                    \
    X(void, ggml_free, (struct ggml_context * context))                                                      \
    X(struct ggml_tensor *, ggml_new_tensor_1d, (struct ggml_context * context, int type, int64_t ne0))      \
    X(struct ggml_tensor *, ggml_view_1d,                                                                    \
      (struct ggml_context * context, struct ggml_tensor * a, int64_t ne0, size_t offset))                   \
    X(struct ggml_tensor *, ggml_add,                                                                        \
      (struct ggml_context * context, struct ggml_tensor * a, struct ggml_tensor * b))                       \
    X(struct ggml_tensor *, ggml_set_name, (struct ggml_tensor * tensor, const char *name))                  \
    X(void, ggml_set_input, (struct ggml_tensor * tensor))                                                   \
    X(void, ggml_set_output, (struct ggml_tensor * tensor))                                                  \
    X(struct ggml_cgraph *, ggml_new_graph_custom, (struct ggml_context * context, size_t size, bool grads)) \
    X(void, ggml_build_forward_expand, (struct ggml_cgraph * graph, struct ggml_tensor * tensor))            \
    X(int, ggml_graph_n_nodes, (struct ggml_cgraph * graph))                                                 \
    X(const char *, ggml_backend_buft_name, (struct ggml_backend_buffer_type * type))                        \
    X(struct ggml_backend_buffer *, ggml_backend_buft_alloc_buffer,                                          \
      (struct ggml_backend_buffer_type * type, size_t size))                                                 \
    X(size_t, ggml_backend_buft_get_alignment, (struct ggml_backend_buffer_type * type))                     \
    X(size_t, ggml_backend_buft_get_max_size, (struct ggml_backend_buffer_type * type))                      \
    X(size_t, ggml_backend_buft_get_alloc_size,                                                              \
      (struct ggml_backend_buffer_type * type, const struct ggml_tensor *tensor))                            \
    X(bool, ggml_backend_buft_is_host, (struct ggml_backend_buffer_type * type))                             \
    X(struct ggml_backend_device *, ggml_backend_buft_get_device, (struct ggml_backend_buffer_type * type))  \
    X(struct ggml_backend_buffer *, ggml_backend_buffer_init,                                                \
      (struct ggml_backend_buffer_type * type, struct ggml_backend_buffer_i iface, void *context,            \
       size_t size))                                                                                         \
    X(void, ggml_backend_buffer_free, (struct ggml_backend_buffer * buffer))                                 \
    X(void *, ggml_backend_buffer_get_base, (struct ggml_backend_buffer * buffer))                           \
    X(size_t, ggml_backend_buffer_get_size, (struct ggml_backend_buffer * buffer))                           \
    X(bool, ggml_backend_buffer_is_host, (struct ggml_backend_buffer * buffer))                              \
    X(int, ggml_backend_buffer_init_tensor,                                                                  \
      (struct ggml_backend_buffer * buffer, struct ggml_tensor * tensor))                                    \
    X(void, ggml_backend_buffer_clear, (struct ggml_backend_buffer * buffer, uint8_t value))                 \
    X(void, ggml_backend_buffer_reset, (struct ggml_backend_buffer * buffer))                                \
    X(void, ggml_backend_buffer_set_usage, (struct ggml_backend_buffer * buffer, int usage))                 \
    X(int, ggml_backend_view_init, (struct ggml_tensor * tensor))

#endif

/* A U-Net as a ggml graph. A program that has ggml's headers includes those; here the functions are found at run time, so
 * that the example builds without them. */
#ifndef BERTH_EXAMPLE_UNET_H
#define BERTH_EXAMPLE_UNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
typedef struct ggml_context *context_t;
typedef struct ggml_tensor *tensor_t;
typedef struct ggml_backend_buffer_type *type_t;
struct ggml_cgraph;

/* X(result, name, parameters) */
#define GGML_CALLS(X)                                                                                    \
    X(context_t, ggml_init, (struct ggml_init_params params))                                            \
    X(void, ggml_free, (context_t c))                                                                    \
    X(void, ggml_backend_load_all_from_path, (const char *folder))                                       \
    X(void, ggml_log_set, (void (*log)(int level, const char *text, void *user), void *user))            \
    X(void *, ggml_backend_init_by_name, (const char *name, const char *params))                         \
    X(void *, ggml_backend_get_device, (void *backend))                                                  \
    X(void *, ggml_backend_dev_backend_reg, (void *device))                                              \
    X(void *, ggml_backend_reg_get_proc_address, (void *reg, const char *name))                          \
    X(void, ggml_backend_free, (void *backend))                                                          \
    X(type_t, ggml_backend_get_default_buffer_type, (void *backend))                                     \
    X(size_t, ggml_backend_buft_get_alignment, (type_t type))                                            \
    X(int, ggml_backend_graph_compute, (void *backend, struct ggml_cgraph *graph))                       \
    X(void *, ggml_backend_alloc_ctx_tensors_from_buft, (context_t c, type_t type))                      \
    X(void, ggml_backend_buffer_free, (void *buffer))                                                    \
    X(void, ggml_backend_tensor_set, (tensor_t t, const void *data, size_t offset, size_t size))         \
    X(void, ggml_backend_tensor_get, (tensor_t t, void *data, size_t offset, size_t size))               \
    X(void *, ggml_gallocr_new, (type_t type))                                                           \
    X(bool, ggml_gallocr_alloc_graph, (void *galloc, struct ggml_cgraph *graph))                         \
    X(size_t, ggml_gallocr_get_buffer_size, (void *galloc, int buffer))                                  \
    X(void, ggml_gallocr_free, (void *galloc))                                                           \
    X(size_t, ggml_nbytes, (tensor_t t))                                                                 \
    X(tensor_t, ggml_get_first_tensor, (context_t c))                                                    \
    X(tensor_t, ggml_get_next_tensor, (context_t c, tensor_t t))                                         \
    X(tensor_t, ggml_set_name, (tensor_t t, const char *name))                                           \
    X(void, ggml_set_input, (tensor_t t))                                                                \
    X(void, ggml_set_output, (tensor_t t))                                                               \
    X(struct ggml_cgraph *, ggml_new_graph_custom, (context_t c, size_t size, bool grads))               \
    X(void, ggml_build_forward_expand, (struct ggml_cgraph * graph, tensor_t t))                         \
    X(tensor_t, ggml_new_tensor_4d, (context_t c, int type, int64_t x, int64_t y, int64_t z, int64_t w)) \
    X(tensor_t, ggml_add, (context_t c, tensor_t a, tensor_t b))                                         \
    X(tensor_t, ggml_relu, (context_t c, tensor_t a))                                                    \
    X(tensor_t, ggml_concat, (context_t c, tensor_t a, tensor_t b, int dim))                             \
    X(tensor_t, ggml_upscale, (context_t c, tensor_t a, int factor, int mode))                           \
    X(tensor_t, ggml_pool_2d,                                                                            \
      (context_t c, tensor_t a, int op, int k0, int k1, int s0, int s1, float p0, float p1))             \
    X(tensor_t, ggml_conv_2d_direct,                                                                     \
      (context_t c, tensor_t kernel, tensor_t a, int s0, int s1, int p0, int p1, int d0, int d1))

typedef struct ggml_calls {
#define GGML_FIELD(result, name, parameters) result(*name) parameters;
    GGML_CALLS(GGML_FIELD)
#undef GGML_FIELD
} ggml_calls;
extern ggml_calls ggml;

/* Finds ggml in the folder that tools/runtimes printed, and its CPU backend. NULL with words on stderr if it is not there. */
void *unet_backend(const char *folder);

typedef struct unet {
    context_t weights, nodes;
    struct ggml_cgraph *graph;
    tensor_t input, output;
    void *weight_buffer;
} unet;

/* Levels of two convolutions each, down and up again, `size` pixels a side; weights in a buffer of `type`. */
void unet_init(unet *net, int levels, int size, int channels, type_t type);
void unet_finish(unet *net);
/* Sets the input, runs, and returns the output, which the caller frees. */
float *unet_run(unet *net, void *backend, size_t *bytes);

#endif

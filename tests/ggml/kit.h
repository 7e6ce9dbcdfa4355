/* The real ggml for tests and benches: its functions by name, a CPU backend, and models whose graphs are built in code. */
#ifndef BERTH_TESTS_GGML_KIT_H
#define BERTH_TESTS_GGML_KIT_H

#include "bindings/ggml/ggml_abi.h"

typedef struct ggml_context *kit_context;
typedef struct ggml_tensor *kit_tensor;

/* X(result, name, parameters), by the order of ggml's headers. */
#define KIT_CALLS(X)                                                                                         \
    X(struct ggml_context *, ggml_init, (struct ggml_init_params params))                                    \
    X(void, ggml_free, (kit_context c))                                                                      \
    X(void, ggml_log_set, (void (*log)(int level, const char *text, void *user), void *user))                \
    X(void *, ggml_backend_load_all_from_path, (const char *folder))                                         \
    X(void *, ggml_backend_init_by_name, (const char *name, const char *params))                             \
    X(void *, ggml_backend_get_device, (void *backend))                                                      \
    X(void *, ggml_backend_dev_backend_reg, (void *device))                                                  \
    X(void *, ggml_backend_reg_get_proc_address, (void *reg, const char *name))                              \
    X(void, ggml_backend_free, (void *backend))                                                              \
    X(struct ggml_backend_buffer_type *, ggml_backend_get_default_buffer_type, (void *backend))              \
    X(int, ggml_backend_graph_compute, (void *backend, struct ggml_cgraph *graph))                           \
    X(struct ggml_backend_buffer *, ggml_backend_alloc_ctx_tensors_from_buft,                                \
      (kit_context c, struct ggml_backend_buffer_type * type))                                               \
    X(struct ggml_backend_buffer *, ggml_backend_buft_alloc_buffer,                                          \
      (struct ggml_backend_buffer_type * type, size_t size))                                                 \
    X(size_t, ggml_backend_buft_get_alignment, (struct ggml_backend_buffer_type * type))                     \
    X(size_t, ggml_backend_buft_get_max_size, (struct ggml_backend_buffer_type * type))                      \
    X(size_t, ggml_backend_buft_get_alloc_size,                                                              \
      (struct ggml_backend_buffer_type * type, const struct ggml_tensor *t))                                 \
    X(bool, ggml_backend_buft_is_host, (struct ggml_backend_buffer_type * type))                             \
    X(const char *, ggml_backend_buft_name, (struct ggml_backend_buffer_type * type))                        \
    X(void, ggml_backend_buffer_free, (struct ggml_backend_buffer * buffer))                                 \
    X(void *, ggml_backend_buffer_get_base, (struct ggml_backend_buffer * buffer))                           \
    X(size_t, ggml_backend_buffer_get_size, (struct ggml_backend_buffer * buffer))                           \
    X(void, ggml_backend_buffer_clear, (struct ggml_backend_buffer * buffer, uint8_t value))                 \
    X(void, ggml_backend_buffer_set_usage, (struct ggml_backend_buffer * buffer, int usage))                 \
    X(int, ggml_backend_tensor_alloc, (struct ggml_backend_buffer * buffer, kit_tensor t, void *address))    \
    X(void, ggml_backend_tensor_set, (kit_tensor t, const void *data, size_t offset, size_t size))           \
    X(void, ggml_backend_tensor_get, (const struct ggml_tensor *t, void *data, size_t offset, size_t size))  \
    X(void, ggml_backend_tensor_memset, (kit_tensor t, uint8_t value, size_t offset, size_t size))           \
    X(void, ggml_backend_tensor_copy, (kit_tensor from, kit_tensor to))                                      \
    X(void *, ggml_gallocr_new_n, (struct ggml_backend_buffer_type * *types, int count))                     \
    X(bool, ggml_gallocr_reserve_n,                                                                          \
      (void *galloc, struct ggml_cgraph *graph, const int *nodes, const int *leafs))                         \
    X(bool, ggml_gallocr_alloc_graph, (void *galloc, struct ggml_cgraph *graph))                             \
    X(size_t, ggml_gallocr_get_buffer_size, (void *galloc, int buffer))                                      \
    X(void, ggml_gallocr_free, (void *galloc))                                                               \
    X(void *, ggml_backend_sched_new,                                                                        \
      (void **backends, struct ggml_backend_buffer_type **types, int count, size_t graph_size,               \
       bool parallel, bool op_offload))                                                                      \
    X(void, ggml_backend_sched_free, (void *sched))                                                          \
    X(void, ggml_backend_sched_set_tensor_backend, (void *sched, kit_tensor t, void *backend))               \
    X(bool, ggml_backend_sched_alloc_graph, (void *sched, struct ggml_cgraph *graph))                        \
    X(int, ggml_backend_sched_graph_compute, (void *sched, struct ggml_cgraph *graph))                       \
    X(size_t, ggml_backend_sched_get_buffer_size, (void *sched, void *backend))                              \
    X(int, ggml_backend_sched_get_n_splits, (void *sched))                                                   \
    X(size_t, ggml_nbytes, (const struct ggml_tensor *t))                                                    \
    X(int64_t, ggml_nelements, (const struct ggml_tensor *t))                                                \
    X(bool, ggml_is_contiguous, (const struct ggml_tensor *t))                                               \
    X(void, ggml_set_input, (kit_tensor t))                                                                  \
    X(void, ggml_set_output, (kit_tensor t))                                                                 \
    X(kit_tensor, ggml_set_name, (kit_tensor t, const char *name))                                           \
    X(struct ggml_cgraph *, ggml_new_graph_custom, (kit_context c, size_t size, bool grads))                 \
    X(void, ggml_build_forward_expand, (struct ggml_cgraph * graph, kit_tensor t))                           \
    X(kit_tensor, ggml_new_tensor_1d, (kit_context c, int type, int64_t a))                                  \
    X(kit_tensor, ggml_new_tensor_2d, (kit_context c, int type, int64_t a, int64_t b))                       \
    X(kit_tensor, ggml_new_tensor_3d, (kit_context c, int type, int64_t a, int64_t b, int64_t d))            \
    X(kit_tensor, ggml_new_tensor_4d, (kit_context c, int type, int64_t a, int64_t b, int64_t d, int64_t e)) \
    X(kit_tensor, ggml_add, (kit_context c, kit_tensor a, kit_tensor b))                                     \
    X(kit_tensor, ggml_add_inplace, (kit_context c, kit_tensor a, kit_tensor b))                             \
    X(kit_tensor, ggml_sub, (kit_context c, kit_tensor a, kit_tensor b))                                     \
    X(kit_tensor, ggml_mul, (kit_context c, kit_tensor a, kit_tensor b))                                     \
    X(kit_tensor, ggml_mul_mat, (kit_context c, kit_tensor a, kit_tensor b))                                 \
    X(kit_tensor, ggml_silu, (kit_context c, kit_tensor a))                                                  \
    X(kit_tensor, ggml_relu, (kit_context c, kit_tensor a))                                                  \
    X(kit_tensor, ggml_relu_inplace, (kit_context c, kit_tensor a))                                          \
    X(kit_tensor, ggml_tanh, (kit_context c, kit_tensor a))                                                  \
    X(kit_tensor, ggml_gelu, (kit_context c, kit_tensor a))                                                  \
    X(kit_tensor, ggml_sqr, (kit_context c, kit_tensor a))                                                   \
    X(kit_tensor, ggml_dup, (kit_context c, kit_tensor a))                                                   \
    X(kit_tensor, ggml_cont, (kit_context c, kit_tensor a))                                                  \
    X(kit_tensor, ggml_cpy, (kit_context c, kit_tensor a, kit_tensor b))                                     \
    X(kit_tensor, ggml_sum_rows, (kit_context c, kit_tensor a))                                              \
    X(kit_tensor, ggml_transpose, (kit_context c, kit_tensor a))                                             \
    X(kit_tensor, ggml_permute, (kit_context c, kit_tensor a, int x, int y, int z, int w))                   \
    X(kit_tensor, ggml_scale, (kit_context c, kit_tensor a, float s))                                        \
    X(kit_tensor, ggml_scale_inplace, (kit_context c, kit_tensor a, float s))                                \
    X(kit_tensor, ggml_norm, (kit_context c, kit_tensor a, float eps))                                       \
    X(kit_tensor, ggml_rms_norm, (kit_context c, kit_tensor a, float eps))                                   \
    X(kit_tensor, ggml_group_norm, (kit_context c, kit_tensor a, int groups, float eps))                     \
    X(kit_tensor, ggml_soft_max, (kit_context c, kit_tensor a))                                              \
    X(kit_tensor, ggml_soft_max_inplace, (kit_context c, kit_tensor a))                                      \
    X(kit_tensor, ggml_soft_max_ext,                                                                         \
      (kit_context c, kit_tensor a, kit_tensor mask, float scale, float bias))                               \
    X(kit_tensor, ggml_rope, (kit_context c, kit_tensor a, kit_tensor pos, int dims, int mode))              \
    X(kit_tensor, ggml_rope_inplace, (kit_context c, kit_tensor a, kit_tensor pos, int dims, int mode))      \
    X(kit_tensor, ggml_reshape_2d, (kit_context c, kit_tensor a, int64_t x, int64_t y))                      \
    X(kit_tensor, ggml_reshape_3d, (kit_context c, kit_tensor a, int64_t x, int64_t y, int64_t z))           \
    X(kit_tensor, ggml_reshape_4d,                                                                           \
      (kit_context c, kit_tensor a, int64_t x, int64_t y, int64_t z, int64_t w))                             \
    X(kit_tensor, ggml_view_1d, (kit_context c, kit_tensor a, int64_t x, size_t offset))                     \
    X(kit_tensor, ggml_view_2d,                                                                              \
      (kit_context c, kit_tensor a, int64_t x, int64_t y, size_t nb1, size_t offset))                        \
    X(kit_tensor, ggml_view_3d,                                                                              \
      (kit_context c, kit_tensor a, int64_t x, int64_t y, int64_t z, size_t nb1, size_t nb2, size_t offset)) \
    X(kit_tensor, ggml_get_rows, (kit_context c, kit_tensor a, kit_tensor rows))                             \
    X(kit_tensor, ggml_mul_mat_id, (kit_context c, kit_tensor a, kit_tensor b, kit_tensor ids))              \
    X(kit_tensor, ggml_argsort_top_k, (kit_context c, kit_tensor a, int k))                                  \
    X(kit_tensor, ggml_swiglu_split, (kit_context c, kit_tensor a, kit_tensor b))                            \
    X(kit_tensor, ggml_add_id, (kit_context c, kit_tensor a, kit_tensor b, kit_tensor ids))                  \
    X(kit_tensor, ggml_rms_norm_back, (kit_context c, kit_tensor a, kit_tensor b, float eps))                \
    X(kit_tensor, ggml_soft_max_ext_back,                                                                    \
      (kit_context c, kit_tensor a, kit_tensor b, float scale, float bias))                                  \
    X(kit_tensor, ggml_concat, (kit_context c, kit_tensor a, kit_tensor b, int dim))                         \
    X(kit_tensor, ggml_upscale, (kit_context c, kit_tensor a, int factor, int mode))                         \
    X(kit_tensor, ggml_conv_2d,                                                                              \
      (kit_context c, kit_tensor kernel, kit_tensor a, int s0, int s1, int p0, int p1, int d0, int d1))      \
    X(kit_tensor, ggml_conv_2d_direct,                                                                       \
      (kit_context c, kit_tensor kernel, kit_tensor a, int s0, int s1, int p0, int p1, int d0, int d1))      \
    X(kit_tensor, ggml_pool_2d,                                                                              \
      (kit_context c, kit_tensor a, int op, int k0, int k1, int s0, int s1, float p0, float p1))

typedef struct kit_calls {
#define KIT_FIELD(result, name, parameters) result(*name) parameters;
    KIT_CALLS(KIT_FIELD)
#undef KIT_FIELD
} kit_calls;

extern kit_calls kit;

enum { KIT_TYPE_F16 = 1, KIT_TYPE_I32 = 26 };

/* Loads ggml from the folder of tools/runtimes ggml, also into the binding. False with words on stderr where it is absent. */
bool kit_open(const char *folder);
/* The folder: the first argument, else BERTH_RUNTIMES/ggml. NULL: neither. */
const char *kit_folder(int argc, char **argv);
/* A CPU backend with so many threads; ggml_backend_free gives it back. */
void *kit_backend(int threads);

/* ---- Models -------------------------------------------------------------------------------------------- */

enum { KIT_TENSORS_MAX = 512, KIT_NODES_MAX = 8192 };

/* A graph, its weights (in buffers of their own) and the tensors that the caller sets and reads. Built by the same function
 * with the same seed it is the same model. */
typedef struct kit_model {
    kit_context weights, nodes;
    struct ggml_cgraph *graph;
    struct ggml_backend_buffer *weight_buffer;
    kit_tensor inputs[KIT_TENSORS_MAX], outputs[KIT_TENSORS_MAX];
    int input_count, output_count;
    uint64_t random;
} kit_model;

typedef void (*kit_family)(kit_model *model, uint64_t seed);

/* Graphs by family; `about` says what it is. The seed chooses sizes, depths and turns. */
typedef struct kit_named_family {
    const char *name;
    kit_family build;
    bool is_unet;
} kit_named_family;
extern const kit_named_family kit_families[];
extern const int kit_family_count;

/* Builds a model with its weights in buffers of `type`. */
void kit_model_init(kit_model *model, kit_family build, uint64_t seed, struct ggml_backend_buffer_type *type);
void kit_model_finish(kit_model *model);
/* Sets all inputs from `seed`. */
void kit_model_set(kit_model *model, uint64_t seed);
/* Bytes of all outputs behind one another; the caller frees them. */
void *kit_model_get(const kit_model *model, size_t *size);

/* For builders. */
uint64_t kit_random(kit_model *model, uint64_t below);
kit_tensor kit_weight(kit_model *model, int type, int64_t a, int64_t b, int64_t c, int64_t d);
kit_tensor kit_input(kit_model *model, kit_tensor tensor);
void kit_output(kit_model *model, kit_tensor tensor);

/* A U-Net: `blocks` a level on either side, each of which leaves its result for the other side. */
enum { KIT_UNET_SKIPS = 16 };
typedef struct kit_unet {
    int levels, blocks, size, channels;
    bool direct;    /* convolutions in one operation, else through im2col */
    bool plain;     /* two convolutions a block, else normalised and residual as in diffusion models */
    bool attention; /* at the bottom */
} kit_unet;
void kit_build_unet(kit_model *model, const kit_unet *style);

#endif

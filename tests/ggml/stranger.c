/* A stand-in that calls itself ggml and is not the one the binding knows; GGML_STRANGER says in which way:
 *     old      another version
 *     bare     the right version, without most functions
 *     tensors  everything there, but tensors of another size
 *     poor     no memory for a context */
#include <stdlib.h>
#include <string.h>

#include "bindings/ggml/ggml_abi.h"

#define STRANGER_API __attribute__((visibility("default")))

static int is_mode(const char *name)
{
    const char *mode = getenv("GGML_STRANGER");
    return mode && strcmp(mode, name) == 0;
}

STRANGER_API const char *ggml_version(void);
STRANGER_API const char *ggml_version(void)
{
    return is_mode("old") ? "0.4.2" : "0.9.7";
}

#ifdef STRANGER_WHOLE
static struct ggml_tensor stranger_tensor;

STRANGER_API size_t ggml_tensor_overhead(void);
STRANGER_API size_t ggml_tensor_overhead(void)
{
    return sizeof(struct ggml_tensor) + GGML_OBJECT_BYTES + 8;
}

STRANGER_API const char *ggml_commit(void);
STRANGER_API const char *ggml_commit(void)
{
    return "stranger";
}

STRANGER_API struct ggml_context *ggml_init(struct ggml_init_params params);
STRANGER_API struct ggml_context *ggml_init(struct ggml_init_params params)
{
    (void)params;
    return is_mode("poor") ? NULL : (struct ggml_context *)(void *)&stranger_tensor;
}

#define STRANGER_TENSOR(name, ...)                      \
    STRANGER_API struct ggml_tensor *name(__VA_ARGS__); \
    STRANGER_API struct ggml_tensor *name(__VA_ARGS__)  \
    {                                                   \
        return &stranger_tensor;                        \
    }
STRANGER_TENSOR(ggml_new_tensor_1d, void)
STRANGER_TENSOR(ggml_view_1d, void)
STRANGER_TENSOR(ggml_add, void)

/* Tensors whose size is not known are not touched. */
STRANGER_API struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name);
STRANGER_API struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name)
{
    (void)tensor;
    (void)name;
    abort();
}

/* Never called: the size of tensors is looked at first. */
#define STRANGER_REST(name)       \
    STRANGER_API void name(void); \
    STRANGER_API void name(void)  \
    {                             \
    }
STRANGER_REST(ggml_free)
STRANGER_REST(ggml_op_name)
STRANGER_REST(ggml_op_can_inplace)
STRANGER_REST(ggml_nbytes)
STRANGER_REST(ggml_log_internal)
STRANGER_REST(ggml_set_input)
STRANGER_REST(ggml_set_output)
STRANGER_REST(ggml_new_graph_custom)
STRANGER_REST(ggml_build_forward_expand)
STRANGER_REST(ggml_graph_n_nodes)
STRANGER_REST(ggml_backend_buft_name)
STRANGER_REST(ggml_backend_buft_alloc_buffer)
STRANGER_REST(ggml_backend_buft_get_alignment)
STRANGER_REST(ggml_backend_buft_get_max_size)
STRANGER_REST(ggml_backend_buft_get_alloc_size)
STRANGER_REST(ggml_backend_buft_is_host)
STRANGER_REST(ggml_backend_buft_get_device)
STRANGER_REST(ggml_backend_buffer_init)
STRANGER_REST(ggml_backend_buffer_free)
STRANGER_REST(ggml_backend_buffer_get_base)
STRANGER_REST(ggml_backend_buffer_get_size)
STRANGER_REST(ggml_backend_buffer_is_host)
STRANGER_REST(ggml_backend_buffer_init_tensor)
STRANGER_REST(ggml_backend_buffer_clear)
STRANGER_REST(ggml_backend_buffer_reset)
STRANGER_REST(ggml_backend_buffer_set_usage)
STRANGER_REST(ggml_backend_view_init)
#endif

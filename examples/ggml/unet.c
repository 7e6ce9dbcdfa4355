/* The network, and ggml's functions by name. */
#include "unet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <berth_ggml.h>

enum { TYPE_F32 = 0, POOL_AVG = 1, CHANNELS_IN = 4, LEVELS_MAX = 8, CONTEXT_BYTES = 4 << 20, NODES = 1024 };

ggml_calls ggml;

static void log_errors(int level, const char *text, void *user)
{
    (void)user;
    if (level >= 4)
        (void)fputs(text, stderr);
}

void *unet_backend(const char *folder)
{
    char place[2048], path[2100];
    (void)snprintf(place, sizeof place, "%s/linux-x64/bins/linux-x64", folder);
    (void)snprintf(path, sizeof path, "%s/libggml.b8390.so", place);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
#define LOOK_UP(result, name, parameters) *(void **)&ggml.name = dlsym(library, #name);
    GGML_CALLS(LOOK_UP)
#undef LOOK_UP
    /* Berth looks at the version and at every function and table that it uses. */
    if (berth_ggml_load(place) != BERTH_OK) {
        (void)fprintf(stderr, "%s\n", berth_last_error()->message);
        return NULL;
    }
    ggml.ggml_log_set(log_errors, NULL);
    ggml.ggml_backend_load_all_from_path(place);
    void *backend = ggml.ggml_backend_init_by_name("CPU", NULL);
    if (backend) { /* one thread: ggml's own wait for each other by spinning, which a busy machine does not thank */
        void (*set_threads)(void *, int);
        void *device = ggml.ggml_backend_get_device(backend);
        *(void **)&set_threads = ggml.ggml_backend_reg_get_proc_address(
            ggml.ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads");
        set_threads(backend, 1);
    }
    return backend;
}

static tensor_t convolve(unet *net, tensor_t x, int in, int out, const char *name)
{
    tensor_t kernel = ggml.ggml_new_tensor_4d(net->weights, TYPE_F32, 3, 3, in, out);
    tensor_t bias = ggml.ggml_new_tensor_4d(net->weights, TYPE_F32, 1, 1, out, 1);
    x = ggml.ggml_conv_2d_direct(net->nodes, kernel, x, 1, 1, 1, 1, 1, 1);
    return ggml.ggml_set_name(ggml.ggml_add(net->nodes, ggml.ggml_set_name(x, name), bias), name);
}

static tensor_t two_convolutions(unet *net, tensor_t x, int in, int out, const char *name)
{
    x = ggml.ggml_relu(net->nodes, convolve(net, x, in, out, name));
    return ggml.ggml_relu(net->nodes, convolve(net, x, out, out, name));
}

static void build(unet *net, int levels, int size, int channels)
{
    tensor_t skips[LEVELS_MAX], x;
    char name[32];
    x = ggml.ggml_new_tensor_4d(net->nodes, TYPE_F32, size, size, CHANNELS_IN, 1);
    net->input = ggml.ggml_set_name(x, "input");
    ggml.ggml_set_input(x);
    for (int i = 0, in = CHANNELS_IN; i < levels; in = channels << i, i++) {
        (void)snprintf(name, sizeof name, "down%d", i);
        skips[i] = two_convolutions(net, x, in, channels << i, name);
        x = ggml.ggml_pool_2d(net->nodes, skips[i], POOL_AVG, 2, 2, 2, 2, 0, 0);
    }
    x = two_convolutions(net, x, channels << (levels - 1), channels << levels, "bottom");
    for (int i = levels - 1; i >= 0; i--) {
        (void)snprintf(name, sizeof name, "up%d", i);
        x = ggml.ggml_concat(net->nodes, ggml.ggml_upscale(net->nodes, x, 2, 0), skips[i], 2);
        x = two_convolutions(net, x, (channels << i) * 3, channels << i, name);
    }
    net->output = convolve(net, x, channels, CHANNELS_IN, "output");
    ggml.ggml_set_output(net->output);
    ggml.ggml_build_forward_expand(net->graph, net->output);
}

/* Any numbers do, as long as they are the same each time. */
static void fill(tensor_t tensor)
{
    size_t bytes = ggml.ggml_nbytes(tensor), count = bytes / sizeof(float);
    float *data = malloc(bytes);
    if (!data)
        exit(1);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)((i * 7919 + count) % 1009) / 2018.0f - 0.25f;
    ggml.ggml_backend_tensor_set(tensor, data, 0, bytes);
    free(data);
}

void unet_init(unet *net, int levels, int size, int channels, type_t type)
{
    struct ggml_init_params params = {.mem_size = CONTEXT_BYTES, .no_alloc = true};
    net->weights = ggml.ggml_init(params);
    net->nodes = ggml.ggml_init(params);
    net->graph = ggml.ggml_new_graph_custom(net->nodes, NODES, false);
    build(net, levels, size, channels);
    net->weight_buffer = ggml.ggml_backend_alloc_ctx_tensors_from_buft(net->weights, type);
    for (tensor_t t = ggml.ggml_get_first_tensor(net->weights); t;
         t = ggml.ggml_get_next_tensor(net->weights, t))
        fill(t);
}

void unet_finish(unet *net)
{
    ggml.ggml_backend_buffer_free(net->weight_buffer);
    ggml.ggml_free(net->nodes);
    ggml.ggml_free(net->weights);
}

float *unet_run(unet *net, void *backend, size_t *bytes)
{
    *bytes = ggml.ggml_nbytes(net->output);
    float *output = malloc(*bytes);
    fill(net->input);
    if (!output || ggml.ggml_backend_graph_compute(backend, net->graph) != 0)
        exit(1);
    ggml.ggml_backend_tensor_get(net->output, output, 0, *bytes);
    return output;
}

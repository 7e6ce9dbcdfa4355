/* The real ggml: loading, and models that are filled and read. */
#include "kit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth_ggml.h>

enum { NODES_MEMORY = 16 << 20, WEIGHTS_MEMORY = 1 << 20 };

kit_calls kit;
static void *kit_library;

static void log_quietly(int level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR && getenv("KIT_LOG"))
        fputs(text, stderr);
}

const char *kit_folder(int argc, char **argv)
{
    static char folder[4096];
    const char *runtimes = getenv("BERTH_RUNTIMES");
    if (argc > 1)
        return argv[1];
    if (!runtimes)
        return NULL;
    (void)snprintf(folder, sizeof folder, "%s/ggml", runtimes);
    return folder;
}

bool kit_open(const char *folder)
{
    char bin[4096], path[4200];
    const char *missing = NULL;
    (void)snprintf(bin, sizeof bin, "%s/linux-x64/bins/linux-x64", folder ? folder : "");
    (void)snprintf(path, sizeof path, "%s/libggml.b8390.so", bin);
    kit_library = folder ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!kit_library) {
        (void)fprintf(stderr, "ggml is not there: %s; tools/runtimes ggml fetches it\n",
                      folder ? dlerror() : "BERTH_RUNTIMES names no folder");
        return false;
    }
#define KIT_LOOK_UP(result, name, parameters)        \
    *(void **)&kit.name = dlsym(kit_library, #name); \
    if (!kit.name)                                   \
        missing = #name;
    KIT_CALLS(KIT_LOOK_UP)
#undef KIT_LOOK_UP
    if (missing) {
        (void)fprintf(stderr, "ggml has no %s\n", missing);
        return false;
    }
    kit.ggml_log_set(log_quietly, NULL);
    (void)kit.ggml_backend_load_all_from_path(bin);
    if (berth_ggml_load(bin) != BERTH_OK) {
        (void)fprintf(stderr, "%s\n", berth_last_error()->message);
        return false;
    }
    return true;
}

void *kit_backend(int threads)
{
    void *backend = kit.ggml_backend_init_by_name("CPU", NULL);
    void (*set_threads)(void *, int);
    void *reg = kit.ggml_backend_dev_backend_reg(kit.ggml_backend_get_device(backend));
    *(void **)&set_threads = kit.ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    set_threads(backend, threads);
    return backend;
}

/* ---- Models -------------------------------------------------------------------------------------------- */

static uint64_t mix_numbers(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t kit_random(kit_model *model, uint64_t below)
{
    model->random += UINT64_C(0x9e3779b97f4a7c15);
    return mix_numbers(model->random) % below;
}

static uint16_t half_of(float x)
{
    union {
        float f;
        uint32_t u;
    } bits = {x};
    uint32_t sign = bits.u >> 16 & 0x8000, exponent = bits.u >> 23 & 0xff, part = bits.u >> 13 & 0x3ff;
    return (uint16_t)(exponent < 113 ? sign : sign | (exponent - 112) << 10 | part);
}

/* Small numbers around 0, or positions for integers. */
static void fill_tensor(kit_tensor tensor, uint64_t seed)
{
    size_t count = (size_t)kit.ggml_nelements(tensor), size = kit.ggml_nbytes(tensor);
    void *data = malloc(size + 1);
    for (size_t i = 0; i < count; i++) {
        float x = (float)(mix_numbers(seed * 1000003 + i) % 2001) / 4000.0f - 0.25f;
        if (tensor->type == GGML_TYPE_F32)
            ((float *)data)[i] = x;
        else if (tensor->type == KIT_TYPE_F16)
            ((uint16_t *)data)[i] = half_of(x);
        else
            ((int32_t *)data)[i] = (int32_t)i;
    }
    kit.ggml_backend_tensor_set(tensor, data, 0, size);
    free(data);
}

kit_tensor kit_weight(kit_model *model, int type, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return kit.ggml_new_tensor_4d(model->weights, type, a, b, c, d);
}

kit_tensor kit_input(kit_model *model, kit_tensor tensor)
{
    kit.ggml_set_input(tensor);
    model->inputs[model->input_count++] = tensor;
    return tensor;
}

void kit_output(kit_model *model, kit_tensor tensor)
{
    kit.ggml_set_output(tensor);
    kit.ggml_build_forward_expand(model->graph, tensor);
    model->outputs[model->output_count++] = tensor;
}

/* Weights lie one behind the other in their context, which ggml has no public walk for that is needed elsewhere: they are
 * found among the sources of the nodes and the leaves. */
static void fill_weights(kit_model *model)
{
    for (int i = 0; i < model->graph->n_leafs; i++)
        if (model->graph->leafs[i]->data)
            fill_tensor(model->graph->leafs[i], (uint64_t)i + 17);
}

void kit_model_init(kit_model *model, kit_family build, uint64_t seed, struct ggml_backend_buffer_type *type)
{
    struct ggml_init_params nodes = {.mem_size = NODES_MEMORY, .no_alloc = true};
    struct ggml_init_params weights = {.mem_size = WEIGHTS_MEMORY, .no_alloc = true};
    memset(model, 0, sizeof *model);
    model->random = seed;
    model->nodes = kit.ggml_init(nodes);
    model->weights = kit.ggml_init(weights);
    model->graph = kit.ggml_new_graph_custom(model->nodes, KIT_NODES_MAX, false);
    build(model, seed);
    model->weight_buffer = kit.ggml_backend_alloc_ctx_tensors_from_buft(model->weights, type);
    fill_weights(model);
}

void kit_model_finish(kit_model *model)
{
    kit.ggml_backend_buffer_free(model->weight_buffer);
    kit.ggml_free(model->nodes);
    kit.ggml_free(model->weights);
}

void kit_model_set(kit_model *model, uint64_t seed)
{
    for (int i = 0; i < model->input_count; i++)
        if (model->inputs[i]->buffer) /* else nobody uses it */
            fill_tensor(model->inputs[i], seed + (uint64_t)i);
}

void *kit_model_get(const kit_model *model, size_t *size)
{
    char *bytes, *at;
    *size = 0;
    for (int i = 0; i < model->output_count; i++)
        *size += kit.ggml_nbytes(model->outputs[i]);
    bytes = at = malloc(*size + 1);
    for (int i = 0; i < model->output_count; i++) {
        kit.ggml_backend_tensor_get(model->outputs[i], at, 0, kit.ggml_nbytes(model->outputs[i]));
        at += kit.ggml_nbytes(model->outputs[i]);
    }
    return bytes;
}

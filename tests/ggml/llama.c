/* libllama with its weights in buffers over Berth: a small model, written by ggml's own functions, gives the same logits bit
 * for bit as with libllama's own buffers. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* setjmp, stdarg and stddef stand before it, as it asks. */
#include <cmocka.h>

#include <berth/source.h>

#include "kit.h"
#include <berth_ggml.h>

enum { WIDTH = 64, HEADS = 4, LAYERS = 2, INNER = 128, WORDS = 96, ROOM = 64, PROMPT = 9, STEPS = 6 };

/* Parameters go by value: the heads that are used here, in the order of llama.h, with room for what follows. The library
 * reads and writes what it thinks they are long. */
typedef struct llama_override {
    const char *pattern;
    struct ggml_backend_buffer_type *type;
} llama_override;
typedef struct llama_model_params {
    void **devices;
    const llama_override *overrides;
    char rest[496];
} llama_model_params;
typedef struct llama_context_params {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max;
    int32_t n_threads, n_threads_batch;
    char rest[488];
} llama_context_params;
typedef struct llama_batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos, *n_seq_id, **seq_id;
    int8_t *logits;
} llama_batch;

/* X(result, name, parameters) */
#define LLAMA_CALLS(X)                                                                         \
    X(void, llama_backend_init, (void))                                                        \
    X(void, llama_backend_free, (void))                                                        \
    X(void, llama_log_set, (void (*log)(int level, const char *text, void *user), void *user)) \
    X(llama_model_params, llama_model_default_params, (void))                                  \
    X(llama_context_params, llama_context_default_params, (void))                              \
    X(void *, llama_model_load_from_file, (const char *path, llama_model_params params))       \
    X(void, llama_model_free, (void *model))                                                   \
    X(void *, llama_init_from_model, (void *model, llama_context_params params))               \
    X(void, llama_free, (void *context))                                                       \
    X(llama_batch, llama_batch_get_one, (int32_t * tokens, int32_t count))                     \
    X(int32_t, llama_decode, (void *context, llama_batch batch))                               \
    X(float *, llama_get_logits_ith, (void *context, int32_t i))                               \
    X(void *, gguf_init_empty, (void))                                                         \
    X(void, gguf_free, (void *gguf))                                                           \
    X(void, gguf_set_val_u32, (void *gguf, const char *key, uint32_t value))                   \
    X(void, gguf_set_val_f32, (void *gguf, const char *key, float value))                      \
    X(void, gguf_set_val_str, (void *gguf, const char *key, const char *value))                \
    X(void, gguf_add_tensor, (void *gguf, const struct ggml_tensor *tensor))                   \
    X(bool, gguf_write_to_file, (const void *gguf, const char *path, bool only_meta))

static struct {
#define LLAMA_FIELD(result, name, parameters) result(*name) parameters;
    LLAMA_CALLS(LLAMA_FIELD)
#undef LLAMA_FIELD
} llama;

static char model_path[] = "/tmp/berth_llama_XXXXXX";

static void say_nothing(int level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

static bool llama_open(const char *folder)
{
    char path[4200];
    bool whole = true;
    (void)snprintf(path, sizeof path, "%s/linux-x64/bins/linux-x64/libllama.b8390.so", folder ? folder : "");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
#define LLAMA_LOOK_UP(result, name, parameters)    \
    *(void **)&llama.name = dlsym(library, #name); \
    whole &= llama.name != NULL;
    LLAMA_CALLS(LLAMA_LOOK_UP)
#undef LLAMA_LOOK_UP
    return whole;
}

/* ---- The model file --------------------------------------------------------------------------------------- */

static void add_weights(kit_context c, void *gguf, const char *name, int64_t x, int64_t y)
{
    static uint32_t seed = 1;
    kit_tensor tensor =
        y > 0 ? kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, x, y) : kit.ggml_new_tensor_1d(c, GGML_TYPE_F32, x);
    float *data = tensor->data;
    for (int64_t i = 0; i < kit.ggml_nelements(tensor); i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 16) / 65536.0f - 0.5f;
    }
    (void)kit.ggml_set_name(tensor, name);
    llama.gguf_add_tensor(gguf, tensor);
}

static void add_layer(kit_context c, void *gguf, int layer)
{
    static const struct {
        const char *name;
        int64_t x, y;
    } parts[] = {{"attn_norm", WIDTH, 0},    {"attn_q", WIDTH, WIDTH},      {"attn_k", WIDTH, WIDTH},
                 {"attn_v", WIDTH, WIDTH},   {"attn_output", WIDTH, WIDTH}, {"ffn_norm", WIDTH, 0},
                 {"ffn_gate", WIDTH, INNER}, {"ffn_up", WIDTH, INNER},      {"ffn_down", INNER, WIDTH}};
    char name[64];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
        add_weights(c, gguf, name, parts[i].x, parts[i].y);
    }
}

static void write_model(void)
{
    struct ggml_init_params params = {.mem_size = 4 << 20};
    kit_context c = kit.ggml_init(params);
    void *gguf = llama.gguf_init_empty();
    llama.gguf_set_val_str(gguf, "general.architecture", "llama");
    llama.gguf_set_val_u32(gguf, "llama.context_length", ROOM);
    llama.gguf_set_val_u32(gguf, "llama.embedding_length", WIDTH);
    llama.gguf_set_val_u32(gguf, "llama.block_count", LAYERS);
    llama.gguf_set_val_u32(gguf, "llama.feed_forward_length", INNER);
    llama.gguf_set_val_u32(gguf, "llama.attention.head_count", HEADS);
    llama.gguf_set_val_u32(gguf, "llama.rope.dimension_count", WIDTH / HEADS);
    llama.gguf_set_val_f32(gguf, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    llama.gguf_set_val_u32(gguf, "llama.vocab_size", WORDS);
    llama.gguf_set_val_str(gguf, "tokenizer.ggml.model", "no_vocab");
    add_weights(c, gguf, "token_embd.weight", WIDTH, WORDS);
    add_weights(c, gguf, "output_norm.weight", WIDTH, 0);
    add_weights(c, gguf, "output.weight", WIDTH, WORDS);
    for (int i = 0; i < LAYERS; i++)
        add_layer(c, gguf, i);
    assert_true(llama.gguf_write_to_file(gguf, model_path, false));
    llama.gguf_free(gguf);
    kit.ggml_free(c);
}

/* ---- Runs ------------------------------------------------------------------------------------------------- */

/* A prompt and a few words after it; all logits go to `logits`. */
static void run_llama(const llama_override *overrides, float logits[STEPS][WORDS],
                      struct ggml_backend_buffer_type *type, uint64_t *weight_bytes)
{
    llama_model_params model_params = llama.llama_model_default_params();
    llama_context_params context_params = llama.llama_context_default_params();
    int32_t tokens[PROMPT];
    model_params.overrides = overrides;
    context_params.n_ctx = ROOM;
    context_params.n_threads = context_params.n_threads_batch = 1;
    void *model = llama.llama_model_load_from_file(model_path, model_params);
    assert_non_null(model);
    if (type) {
        berth_ggml_buffer_figures figures = BERTH_GGML_BUFFER_FIGURES_INIT;
        assert_int_equal(berth_ggml_buffer_type_figures(type, &figures), BERTH_OK);
        *weight_bytes = figures.bytes;
    }
    void *context = llama.llama_init_from_model(model, context_params);
    assert_non_null(context);
    for (int32_t i = 0; i < PROMPT; i++)
        tokens[i] = (i * 31 + 5) % WORDS;
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(llama.llama_decode(context, llama.llama_batch_get_one(tokens, step ? 1 : PROMPT)),
                         0);
        memcpy(logits[step], llama.llama_get_logits_ith(context, -1), sizeof logits[step]);
        tokens[0] = 0;
        for (int32_t i = 1; i < WORDS; i++)
            tokens[0] = logits[step][i] > logits[step][tokens[0]] ? i : tokens[0];
    }
    llama.llama_free(context);
    llama.llama_model_free(model);
}

static void test_logits_are_identical(void **state)
{
    static float expected[STEPS][WORDS], got[STEPS][WORDS];
    void *backend = kit_backend(1);
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    struct ggml_backend_buffer_type *type;
    berth_ggml_buffer_figures figures = BERTH_GGML_BUFFER_FIGURES_INIT;
    uint64_t bytes = 0;
    (void)state;
    options.device = kit.ggml_backend_get_device(backend);
    assert_int_equal(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &type), BERTH_OK);
    const llama_override overrides[] = {{".*", type}, {NULL, NULL}};
    write_model();
    run_llama(NULL, expected, NULL, NULL);
    run_llama(overrides, got, type, &bytes);
    assert_memory_equal(expected, got, sizeof expected);
    assert_true(expected[0][0] != expected[0][1]);
    /* Every weight but the embeddings, which libllama keeps with the CPU's, lay in Berth's memory, and went back. */
    size_t layer = sizeof(float) * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER + 2 * WIDTH);
    assert_true(bytes >= LAYERS * layer);
    assert_int_equal(berth_ggml_buffer_type_figures(type, &figures), BERTH_OK);
    assert_int_equal(figures.buffers, 0);
    berth_ggml_buffer_type_release(type);
    kit.ggml_backend_free(backend);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits_are_identical)};
    const char *folder = kit_folder(argc, argv);
    if (!kit_open(folder) || !llama_open(folder))
        return 77;
    int file = mkstemp(model_path);
    if (file < 0 || close(file))
        return 1;
    llama.llama_log_set(say_nothing, NULL);
    llama.llama_backend_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llama.llama_backend_free();
    (void)unlink(model_path);
    return failed;
}

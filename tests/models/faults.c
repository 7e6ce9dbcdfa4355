/* Every allocation of the readers of models fails once: the answer is a status with words, and nothing is left behind.
 *
 * usage: models_faults MODEL... */
#include <stdio.h>
#include <string.h>

#include "format/onnx.h"
#include "format/tflite.h"

static size_t taken, until_failure, live;

static bool heap_fails(void)
{
    taken++;
    return until_failure && taken == until_failure;
}

void *heap_malloc(size_t size)
{
    void *block = heap_fails() ? NULL : malloc(size);
    live += block != NULL;
    return block;
}

void *heap_calloc(size_t count, size_t size)
{
    void *block = heap_fails() ? NULL : calloc(count, size);
    live += block != NULL;
    return block;
}

void *heap_realloc(void *old, size_t size)
{
    void *block = heap_fails() ? NULL : realloc(old, size);
    live += block != NULL && !old;
    return block;
}

void heap_free(void *block)
{
    live -= block != NULL;
    free(block);
}

typedef struct input {
    const char *name;
    uint8_t *data;
    size_t size;
    bool tflite;
} input;

static void check(const input *in, bool condition, const char *words)
{
    if (condition)
        return;
    fprintf(stderr, "%s: allocation %zu fails: %s\n", in->name, until_failure, words);
    exit(1);
}

/* All that the command does with a model. */
static berth_status use(const input *in, const format_model *model, format_runtime runtime,
                        format_error *error)
{
    format_lives lives;
    berth_status status = format_lives_init(&lives, model, runtime, NULL, error);
    if (status)
        return status;
    uint32_t *order = malloc((model->operator_count + 1) * sizeof *order);
    int32_t *plan = calloc(model->tensor_count + 1, sizeof *plan);
    uint32_t *groups = calloc(model->tensor_count + 1, sizeof *groups);
    uint64_t bound;
    check(in, order && plan && groups, "no memory for the test");
    format_greedy(model, &lives, runtime, NULL, NULL); /* 0 where it has no memory: the figure is left out */
    format_inplace(model, &lives, groups);
    status = format_reorder(model, &lives, runtime, false, order, &bound, error);
    uint8_t *out = NULL;
    size_t size;
    if (!status && in->tflite)
        status =
            format_tflite_write(in->data, in->size, plan, model->tensor_count, order, &out, &size, error);
    heap_free(out);
    free(order);
    free(plan);
    free(groups);
    format_lives_finish(&lives);
    return status;
}

static berth_status run(const input *in, format_error *error)
{
    const char *const items[] = {"*=2"};
    const format_dims dims = {items, 1, NULL};
    format_model model;
    const format_runtime runtime = in->tflite ? FORMAT_MICRO : FORMAT_ORT;
    berth_status status = in->tflite ? format_tflite_read(in->data, in->size, &dims, runtime, &model, error)
                                     : format_onnx_read(in->data, in->size, &dims, &model, error);
    if (!status && model.operator_count && !format_add_scratch(&model, 0, 64))
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for scratch");
    const size_t of_file = model.tensor_count - model.scratch_count;
    if (!status) {
        status = use(in, &model, runtime, error);
        check(in, model.tensor_count - model.scratch_count == of_file, "the model changed");
    }
    format_model_finish(&model);
    return status;
}

/* How many allocations there are. */
static size_t sweep(const input *in)
{
    format_error error = {0};
    until_failure = taken = 0;
    const berth_status wanted = run(in, &error);
    const size_t count = taken;
    check(in, live == 0, "something is left without any failure");
    for (until_failure = 1; until_failure <= count; until_failure++) {
        memset(&error, 0, sizeof error);
        taken = 0;
        const berth_status status = run(in, &error);
        check(in, status == BERTH_OUT_OF_HOST_MEMORY || status == wanted, "another status");
        check(in, !status || error.words[0], "no words");
        check(in, live == 0, "something is left");
    }
    return count;
}

static bool input_read(const char *path, input *in)
{
    FILE *file = fopen(path, "rb");
    *in = (input){.name = path, .data = malloc(1 << 20)};
    if (!file || !in->data)
        return false;
    in->size = fread(in->data, 1, 1 << 20, file);
    in->tflite = format_is_tflite(in->data, in->size);
    fclose(file);
    return true;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    for (int i = 1; i < argc; i++) {
        input in;
        if (!input_read(argv[i], &in)) {
            fprintf(stderr, "%s cannot be read\n", argv[i]);
            return 1;
        }
        count += sweep(&in);
        free(in.data);
    }
    printf("%d models, %zu allocations that failed once each\n", argc - 1, count);
    return count > 100 ? 0 : 1;
}

/* Any bytes as a TFLite model: either refused with words, or a model whose lives can be counted and whose plan can be written. */
#include <stdlib.h>
#include <string.h>

#include "format/tflite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* The plan that the runtime itself would make, written and read back. */
static void write_back(const uint8_t *data, size_t size, const format_model *model)
{
    format_error error = {0};
    uint8_t *out;
    size_t out_size;
    bool present;
    int32_t *plan = malloc((model->tensor_count + 1) * sizeof *plan);
    int32_t *again = malloc((model->tensor_count + 1) * sizeof *again);
    must(plan && again);
    for (size_t i = 0; i < model->tensor_count; i++)
        plan[i] = (int32_t)(16 * i);
    if (!format_tflite_write(data, size, plan, model->tensor_count, NULL, &out, &out_size, &error)) {
        must(!format_tflite_offline(out, out_size, model->tensor_count, again, &present, &error) && present);
        must(memcmp(plan, again, model->tensor_count * sizeof *plan) == 0);
        free(out);
    } else
        must(error.words[0]);
    free(plan);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const items[] = {"*=2"};
    format_dims dims = {items, 1, NULL};
    uint8_t *copy = malloc(size ? size : 1); /* of exactly this size, so that a look past its end is seen */
    must(copy);
    if (size)
        memcpy(copy, data, size);
    for (int runtime = FORMAT_MICRO; runtime <= FORMAT_TFLITE; runtime++) {
        format_model model;
        format_lives lives;
        format_error error = {0};
        if (format_tflite_read(copy, size, &dims, (format_runtime)runtime, &model, &error)) {
            must(error.words[0] && !model.tensors);
            continue;
        }
        if (!format_lives_init(&lives, &model, (format_runtime)runtime, NULL, &error)) {
            format_greedy(&model, &lives, (format_runtime)runtime, NULL, NULL);
            format_lives_finish(&lives);
        } else
            must(error.words[0]);
        write_back(copy, size, &model);
        format_model_finish(&model);
    }
    free(copy);
    return 0;
}

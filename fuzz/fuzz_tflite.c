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
static void write_back(const uint8_t *data, size_t size, const format_model *model, const uint32_t *order)
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
    if (!format_tflite_write(data, size, plan, model->tensor_count, order, &out, &out_size, &error)) {
        must(!format_tflite_offline(out, out_size, model->tensor_count, again, &present, &error) && present);
        must(memcmp(plan, again, model->tensor_count * sizeof *plan) == 0);
        free(out);
    } else
        must(error.words[0]);
    free(plan);
    free(again);
}

/* Another order is a permutation, and one whose lives can be counted. */
static void reorder(const format_model *model, const format_lives *lives, format_runtime runtime,
                    uint32_t *order)
{
    format_error error = {0};
    format_lives again;
    uint64_t bound;
    bool *seen = calloc(model->operator_count + 1, sizeof *seen);
    must(seen && !format_reorder(model, lives, runtime, false, order, &bound, &error));
    for (size_t i = 0; i < model->operator_count; i++) {
        must(order[i] < model->operator_count && !seen[order[i]]);
        seen[order[i]] = true;
    }
    must(!format_lives_init(&again, model, runtime, order, &error));
    format_lives_finish(&again);
    free(seen);
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
            uint32_t *order = malloc((model.operator_count + 1) * sizeof *order);
            must(order != NULL);
            format_greedy(&model, &lives, (format_runtime)runtime, NULL, NULL);
            reorder(&model, &lives, (format_runtime)runtime, order);
            write_back(copy, size, &model, order);
            free(order);
            format_lives_finish(&lives);
        } else
            must(error.words[0]);
        write_back(copy, size, &model, NULL);
        format_model_finish(&model);
    }
    free(copy);
    return 0;
}

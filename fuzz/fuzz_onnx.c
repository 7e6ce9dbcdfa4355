/* Any bytes as an ONNX model: either refused with words, or a model whose lives can be counted. */
#include <stdlib.h>
#include <string.h>

#include "format/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const items[] = {"*=2"};
    format_dims dims = {items, 1, NULL};
    format_model model;
    format_lives lives;
    format_error error = {0};
    uint8_t *copy = malloc(size ? size : 1); /* of exactly this size, so that a look past its end is seen */
    must(copy);
    if (size)
        memcpy(copy, data, size);
    if (!format_onnx_read(copy, size, &dims, &model, &error)) {
        if (!format_lives_init(&lives, &model, FORMAT_ORT, NULL, &error)) {
            uint32_t *order = malloc((model.operator_count + 1) * sizeof *order);
            uint64_t bound;
            must(order != NULL);
            format_greedy(&model, &lives, FORMAT_ORT, NULL, NULL);
            must(!format_reorder(&model, &lives, FORMAT_ORT, false, order, &bound, &error));
            free(order);
            format_lives_finish(&lives);
        }
        format_model_finish(&model);
    } else
        must(error.words[0] && !model.tensors);
    free(copy);
    return 0;
}

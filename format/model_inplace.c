/* Outputs that may lie where an input lay: of operators that go element by element or only change the shape, if nobody needs that
 * input afterwards. */
#include "format/model.h"

/* Whether the operator that makes `output` may write over `input`. */
static bool may_overwrite(const format_model *model, const format_lives *lives, int32_t input, int32_t output)
{
    if (input < 0 || output < 0 || input == output)
        return false;
    const format_life *in = &lives->tensors[input], *out = &lives->tensors[output];
    return in->first != FORMAT_NEVER && out->first != FORMAT_NEVER && in->last == out->first &&
           in->first < out->first && model->tensors[input].subgraph == model->tensors[output].subgraph &&
           model->tensors[input].size_bytes == model->tensors[output].size_bytes;
}

void format_inplace(const format_model *model, const format_lives *lives, uint32_t *groups)
{
    uint32_t next = 1;
    for (size_t i = 0; i < model->tensor_count; i++)
        groups[i] = 0;
    for (int64_t time = 0; time < lives->step_count; time++) {
        if (lives->steps[time] == UINT32_MAX)
            continue;
        const format_operator *op = &model->operators[lives->steps[time]];
        int32_t output = op->output_count == 1 ? model->links[op->output_first] : -1;
        if ((!op->elementwise && !op->reshapes) || output < 0 || lives->tensors[output].first != time ||
            groups[output])
            continue;
        for (uint32_t k = 0; k < (op->reshapes ? 1 : op->input_count) && !groups[output]; k++) {
            int32_t input = model->links[op->input_first + k];
            if (!may_overwrite(model, lives, input, output))
                continue;
            if (!groups[input])
                groups[input] = next++;
            groups[output] = groups[input];
        }
    }
}

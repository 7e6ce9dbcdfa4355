/* Shapes of operators that rearrange, reduce or go element by element. */
#include <math.h>
#include <string.h>

#include "format/onnx_graph.h"

bool onnx_is_one_of(format_text type, const char *const *names)
{
    for (; *names; names++)
        if (format_text_is(type, *names))
            return true;
    return false;
}

void onnx_take_shape(onnx_value *y, const onnx_value *x, int type)
{
    if (!y || !x || x->rank < 0)
        return;
    y->rank = x->rank;
    memcpy(y->dims, x->dims, sizeof y->dims);
    y->type = type ? type : x->type;
}

int onnx_axis(int64_t axis, int rank)
{
    axis = axis < 0 ? axis + rank : axis;
    return axis < 0 || axis >= rank ? -1 : (int)axis;
}

int onnx_numbers(onnx *o, const onnx_node *n, uint32_t input, const char *attribute, int64_t *list)
{
    const onnx_value *value = onnx_in(o, n, input);
    if (value) {
        if (!value->small)
            return -1;
        memcpy(list, value->small->whole, sizeof value->small->whole);
        return (int)value->small->count;
    }
    int count = attribute ? onnx_ints(n, attribute, list) : -1;
    return count < 0 ? -2 : count;
}

/* Axes of 1 are stretched; false: they do not meet. */
static bool broadcast(onnx_value *result, const onnx_value *x)
{
    const int rank = result->rank > x->rank ? result->rank : x->rank;
    onnx_value wider = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        const int a = i - (rank - result->rank), b = i - (rank - x->rank);
        const int64_t da = a >= 0 ? result->dims[a] : 1, db = b >= 0 ? x->dims[b] : 1;
        if (da != db && da != 1 && db != 1)
            return false;
        wider.dims[i] = da == 1 ? db : da;
    }
    *result = wider;
    return true;
}

/* Of every `step`th input; the type is that of the `first`, unless it is said. */
static void infer_broadcast(onnx *o, const onnx_node *n, uint32_t first, uint32_t step, int type)
{
    onnx_value result = {.rank = 0};
    uint32_t parts = 0;
    for (uint32_t k = 0; k < n->input_count && (step == 1 || parts < 2); k += step, parts++) {
        const onnx_value *x = onnx_in(o, n, k);
        if (!x || x->rank < 0 || !broadcast(&result, x))
            return;
    }
    const onnx_value *typed = onnx_in(o, n, first);
    onnx_take_shape(onnx_out(o, n, 0), &result, type ? type : typed ? typed->type : 0);
}

static void infer_reshape(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t shape[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, "shape", shape), open = -1;
    if (!x || !y || x->rank < 0 || count < 0 || count > ONNX_RANK)
        return;
    uint64_t known = 1, all = onnx_elements(x);
    for (int i = 0; i < count; i++) {
        if (shape[i] == 0 && !onnx_int(n, "allowzero", 0) && i < x->rank)
            shape[i] = x->dims[i];
        if (shape[i] == -1)
            open = i;
        else if (shape[i] < 0 || __builtin_mul_overflow(known, (uint64_t)shape[i], &known))
            return;
    }
    if (open >= 0)
        shape[open] = known ? (int64_t)(all / known) : 0;
    memcpy(y->dims, shape, sizeof y->dims);
    y->rank = count;
    y->type = x->type;
}

static void infer_squeeze(onnx *o, const onnx_node *n, bool adds)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t axes[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, "axes", axes);
    bool marked[ONNX_RANK] = {0};
    if (!x || !y || x->rank < 0 || count == -1 || (adds && (count < 0 || x->rank + count > ONNX_RANK)))
        return;
    int rank = adds ? x->rank + count : x->rank, to = 0, from = 0;
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis(axes[i], rank);
        if (axis < 0)
            return;
        marked[axis] = true;
    }
    for (int i = 0; i < rank; i++) {
        bool dropped = count == -2 ? x->dims[i] == 1 : marked[i];
        if (adds)
            y->dims[i] = marked[i] || from >= x->rank ? 1 : x->dims[from++];
        else if (!dropped)
            y->dims[to++] = x->dims[i];
    }
    y->rank = adds ? rank : to;
    y->type = x->type;
}

static void infer_transpose(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t order[ONNX_SMALL];
    int count = onnx_ints(n, "perm", order);
    if (!x || !y || x->rank < 0 || (count >= 0 && count != x->rank))
        return;
    for (int i = 0; i < x->rank; i++) {
        int from = count < 0 ? x->rank - 1 - i : onnx_axis(order[i], x->rank);
        if (from < 0)
            return;
        y->dims[i] = x->dims[from];
    }
    y->rank = x->rank;
    y->type = x->type;
}

static void infer_concat(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int axis = x ? onnx_axis(onnx_int(n, "axis", 0), x->rank) : -1;
    int64_t sum = 0;
    if (axis < 0 || !y)
        return;
    for (uint32_t k = 0; k < n->input_count; k++) {
        const onnx_value *part = onnx_in(o, n, k);
        if (!part || part->rank != x->rank)
            return;
        sum += part->dims[axis];
    }
    onnx_take_shape(y, x, 0);
    y->dims[axis] = sum;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void infer_slice(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t starts[ONNX_SMALL], ends[ONNX_SMALL], axes[ONNX_SMALL], steps[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, "starts", starts), ending = onnx_numbers(o, n, 2, "ends", ends);
    int axis_count = onnx_numbers(o, n, 3, "axes", axes), step_count = onnx_numbers(o, n, 4, NULL, steps);
    if (!x || !y || x->rank < 0 || count < 0 || ending != count || axis_count == -1 || step_count == -1 ||
        (axis_count >= 0 && axis_count != count))
        return;
    onnx_value result = *x;
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis(axis_count < 0 ? i : axes[i], x->rank);
        int64_t step = step_count > i ? steps[i] : 1;
        if (axis < 0 || step == 0 || step == INT64_MIN)
            return;
        int64_t size = x->dims[axis], from = starts[i], to = ends[i];
        from = from < 0 && from >= -size ? from + size : from;
        to = to < 0 && to >= -size ? to + size : to;
        from = clamp(from, 0, step < 0 ? size - 1 : size);
        to = to < 0 && step < 0 ? -1 : clamp(to, 0, size);
        int64_t span = step > 0 ? to - from : from - to, stride = step > 0 ? step : -step;
        result.dims[axis] = span <= 0 ? 0 : (span - 1) / stride + 1;
    }
    onnx_take_shape(y, &result, 0);
}

static void infer_split(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0);
    int64_t sizes[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, "split", sizes),
        axis = x ? onnx_axis(onnx_int(n, "axis", 0), x->rank) : -1;
    if (axis < 0 || count == -1)
        return;
    int64_t each = (x->dims[axis] + n->output_count - 1) / (n->output_count ? n->output_count : 1);
    for (uint32_t k = 0; k < n->output_count; k++) {
        onnx_value *y = onnx_out(o, n, k);
        int64_t left = x->dims[axis] - (int64_t)k * each;
        if (count >= 0 && (int)k >= count)
            return;
        onnx_take_shape(y, x, 0);
        if (y)
            y->dims[axis] = count >= 0 ? sizes[k] : left < each ? left : each;
    }
}

static void infer_gather(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *at = onnx_in(o, n, 1), *y = onnx_out(o, n, 0);
    int axis = x ? onnx_axis(onnx_int(n, "axis", 0), x->rank) : -1, rank = 0;
    if (axis < 0 || !at || !y || at->rank < 0 || x->rank - 1 + at->rank > ONNX_RANK)
        return;
    for (int i = 0; i < x->rank; i++) {
        if (i != axis)
            y->dims[rank++] = x->dims[i];
        for (int k = 0; i == axis && k < at->rank; k++)
            y->dims[rank++] = at->dims[k];
    }
    y->rank = rank;
    y->type = x->type;
}

static void infer_flatten(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t axis = onnx_int(n, "axis", 1);
    if (!x || !y || x->rank < 0)
        return;
    axis = axis < 0 ? axis + x->rank : axis;
    onnx_value front = *x, back = *x;
    front.rank = (int)clamp(axis, 0, x->rank);
    back.rank = x->rank - front.rank;
    memmove(back.dims, x->dims + front.rank, (size_t)back.rank * sizeof *back.dims);
    y->dims[0] = (int64_t)onnx_elements(&front);
    y->dims[1] = (int64_t)onnx_elements(&back);
    y->rank = 2;
    y->type = x->type;
}

static void infer_expand(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t shape[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, NULL, shape);
    if (!x || !y || x->rank < 0 || count < 0 || count > ONNX_RANK)
        return;
    int rank = count > x->rank ? count : x->rank;
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - x->rank), b = i - (rank - count);
        int64_t da = a >= 0 ? x->dims[a] : 1, db = b >= 0 ? shape[b] : 1;
        y->dims[i] = da == 1 ? db : da;
    }
    y->rank = rank;
    y->type = x->type;
}

static void infer_tile(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t times[ONNX_SMALL];
    if (!x || !y || onnx_numbers(o, n, 1, NULL, times) != x->rank)
        return;
    onnx_take_shape(y, x, 0);
    for (int i = 0; i < x->rank; i++)
        if (__builtin_mul_overflow(x->dims[i], times[i], &y->dims[i]) || y->dims[i] < 0)
            y->rank = -1;
}

static void infer_pad(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t pads[ONNX_SMALL], axes[ONNX_SMALL];
    int count = onnx_numbers(o, n, 1, "pads", pads), axis_count = onnx_numbers(o, n, 3, NULL, axes);
    int pairs = count / 2;
    if (!x || !y || x->rank < 0 || count < 0 || axis_count == -1 ||
        pairs != (axis_count < 0 ? x->rank : axis_count))
        return;
    onnx_take_shape(y, x, 0);
    for (int i = 0; i < pairs; i++) {
        int axis = onnx_axis(axis_count < 0 ? i : axes[i], x->rank);
        if (axis < 0) {
            y->rank = -1;
            return;
        }
        y->dims[axis] +=
            clamp(pads[i], -INT32_MAX, INT32_MAX) + clamp(pads[i + pairs], -INT32_MAX, INT32_MAX);
    }
}

/* The sizes or, if they are factors, by how much all axes grow that `axes` names; false: not known. */
static bool resize_wishes(onnx *o, const onnx_node *n, int rank, double *wishes, bool *are_sizes)
{
    const onnx_value *scales = onnx_in(o, n, n->input_count > 2 ? 2 : 1), *sizes = onnx_in(o, n, 3);
    int64_t axes[ONNX_SMALL];
    double given[ONNX_SMALL];
    const int some = onnx_ints(n, "axes", axes), count = some < 0 ? rank : some;
    *are_sizes = sizes && sizes->small && (int)sizes->small->count == count;
    for (int i = 0; *are_sizes && i < count; i++)
        given[i] = (double)sizes->small->whole[i];
    if (!*are_sizes && scales && scales->small && (int)scales->small->count == count)
        memcpy(given, scales->small->real, (size_t)count * sizeof *given);
    else if (!*are_sizes && onnx_reals(n, "scales", given) != count) /* up to operator set 8 */
        return false;
    for (int i = 0; i < rank; i++)
        wishes[i] = *are_sizes ? -1 : 1;
    for (int i = 0; i < count; i++) {
        const int axis = onnx_axis(some < 0 ? i : axes[i], rank);
        if (axis < 0)
            return false;
        wishes[axis] = given[i];
    }
    return true;
}

/* Sizes that keep the picture's form are limits, the smallest or the largest factor counts for all axes. */
static void resize_keep_form(const onnx_node *n, const onnx_value *x, double *wishes, bool *are_sizes)
{
    const format_text policy = onnx_words(n, "keep_aspect_ratio_policy");
    const bool larger = format_text_is(policy, "not_smaller");
    double factor = -1;
    if (!*are_sizes || !(larger || format_text_is(policy, "not_larger")))
        return;
    for (int i = 0; i < x->rank; i++)
        if (wishes[i] >= 0 && x->dims[i] > 0) {
            const double own = wishes[i] / (double)x->dims[i];
            factor = factor < 0 || (larger ? own > factor : own < factor) ? own : factor;
        }
    for (int i = 0; i < x->rank; i++)
        wishes[i] = wishes[i] >= 0 ? floor(factor * (double)x->dims[i] + 0.5) : -1;
}

static void infer_resize(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    double wishes[ONNX_RANK];
    bool are_sizes;
    if (!x || !y || x->rank < 0 || !resize_wishes(o, n, x->rank, wishes, &are_sizes))
        return;
    resize_keep_form(n, x, wishes, &are_sizes);
    onnx_take_shape(y, x, 0);
    for (int i = 0; i < x->rank; i++) {
        const double size = !are_sizes      ? floor((double)x->dims[i] * wishes[i])
                            : wishes[i] < 0 ? (double)x->dims[i]
                                            : wishes[i];
        y->dims[i] = size >= 0 && size < 2147483648.0 ? (int64_t)size : -1;
    }
}

static void infer_reduce(onnx *o, const onnx_node *n, int type)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t axes[ONNX_SMALL];
    bool arg = type != 0, gone[ONNX_RANK] = {0};
    int count = arg ? 1 : onnx_numbers(o, n, 1, "axes", axes), rank = 0;
    bool keep = onnx_int(n, "keepdims", 1) != 0;
    if (arg)
        axes[0] = onnx_int(n, "axis", 0);
    if (!x || !y || x->rank < 0 || count == -1)
        return;
    bool all = count <= 0 && !onnx_int(n, "noop_with_empty_axes", 0);
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis(axes[i], x->rank);
        if (axis < 0)
            return;
        gone[axis] = true;
    }
    for (int i = 0; i < x->rank; i++) {
        if (!all && !gone[i])
            y->dims[rank++] = x->dims[i];
        else if (keep)
            y->dims[rank++] = 1;
    }
    y->rank = rank;
    y->type = type ? type : x->type;
}

static void infer_topk(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0);
    int64_t k[ONNX_SMALL];
    int axis = x ? onnx_axis(onnx_int(n, "axis", -1), x->rank) : -1;
    if (onnx_in(o, n, 1) ? onnx_numbers(o, n, 1, NULL, k) != 1 : (k[0] = onnx_int(n, "k", -1)) < 0)
        return; /* up to operator set 9 an attribute */
    for (uint32_t i = 0; i < n->output_count && axis >= 0; i++) {
        onnx_value *y = onnx_out(o, n, i);
        onnx_take_shape(y, x, i ? ONNX_INT64 : 0);
        if (y)
            y->dims[axis] = k[0];
    }
}

static void infer_blocks(onnx *o, const onnx_node *n, bool to_space)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    int64_t block = onnx_int(n, "blocksize", 0);
    if (!x || !y || x->rank != 4 || block < 1 || block > 1 << 15)
        return;
    onnx_take_shape(y, x, 0);
    y->dims[1] = to_space ? x->dims[1] / (block * block) : x->dims[1] * block * block;
    for (int i = 2; i < 4; i++)
        y->dims[i] = to_space ? x->dims[i] * block : x->dims[i] / block;
}

static void infer_shape_of(onnx *o, const onnx_node *n, bool size)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    if (!y)
        return;
    y->type = ONNX_INT64;
    if (!x || x->rank < 0)
        return;
    int64_t from = clamp(onnx_int(n, "start", 0), -x->rank, x->rank),
            to = clamp(onnx_int(n, "end", x->rank), -x->rank, x->rank);
    from = from < 0 ? from + x->rank : from;
    to = to < 0 ? to + x->rank : to;
    y->rank = size ? 0 : 1;
    y->dims[0] = to > from ? to - from : 0;
}

static void infer_filled(onnx *o, const onnx_node *n)
{
    onnx_value *y = onnx_out(o, n, 0);
    int64_t shape[ONNX_SMALL];
    int count = onnx_numbers(o, n, 0, NULL, shape);
    if (!y || count < 0 || count > ONNX_RANK)
        return;
    memcpy(y->dims, shape, sizeof y->dims);
    y->rank = count;
    if (!y->type)
        y->type = ONNX_FLOAT;
}

static void infer_range(onnx *o, const onnx_node *n)
{
    onnx_value *y = onnx_out(o, n, 0), *part[3];
    for (uint32_t i = 0; i < 3; i++) {
        part[i] = onnx_in(o, n, i);
        if (!part[i] || !part[i]->small || part[i]->small->count != 1)
            return;
    }
    double step = part[2]->small->real[0];
    double count = step != 0 ? ceil((part[1]->small->real[0] - part[0]->small->real[0]) / step) : -1;
    if (!y || !(count < 2147483648.0))
        return;
    y->dims[0] = count > 0 ? (int64_t)count : 0;
    y->rank = 1;
    y->type = part[0]->type;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static bool infer_alike(onnx *o, const onnx_node *n)
{
    static const char *const alike[] = {"Relu",
                                        "LeakyRelu",
                                        "Sigmoid",
                                        "Tanh",
                                        "Clip",
                                        "Abs",
                                        "Neg",
                                        "Exp",
                                        "Log",
                                        "Sqrt",
                                        "Erf",
                                        "Softmax",
                                        "LogSoftmax",
                                        "Hardmax",
                                        "HardSigmoid",
                                        "HardSwish",
                                        "Elu",
                                        "Selu",
                                        "Celu",
                                        "Softplus",
                                        "Softsign",
                                        "Identity",
                                        "Dropout",
                                        "BatchNormalization",
                                        "InstanceNormalization",
                                        "LayerNormalization",
                                        "GroupNormalization",
                                        "LpNormalization",
                                        "MeanVarianceNormalization",
                                        "Reciprocal",
                                        "Floor",
                                        "Ceil",
                                        "Round",
                                        "Sign",
                                        "Sin",
                                        "Cos",
                                        "Tan",
                                        "Asin",
                                        "Acos",
                                        "Atan",
                                        "Sinh",
                                        "Cosh",
                                        "Asinh",
                                        "Acosh",
                                        "Atanh",
                                        "BitwiseNot",
                                        "Not",
                                        "Gelu",
                                        "FastGelu",
                                        "QuickGelu",
                                        "Mish",
                                        "CumSum",
                                        "LRN",
                                        "ThresholdedRelu",
                                        "Trilu",
                                        "ScatterND",
                                        "ScatterElements",
                                        "Scatter",
                                        "SimplifiedLayerNormalization",
                                        "ReverseSequence",
                                        "Shrink",
                                        NULL};
    static const char *const told[] = {"IsNaN", "IsInf", NULL};
    if (onnx_is_one_of(n->type, alike))
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), 0);
    else if (onnx_is_one_of(n->type, told))
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), ONNX_BOOL);
    else if (format_text_is(n->type, "GatherElements")) {
        onnx_value *x = onnx_in(o, n, 0);
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 1), x ? x->type : 0);
    } else if (format_text_is(n->type, "Cast"))
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), (int)clamp(onnx_int(n, "to", 0), 0, 100));
    else if (format_text_is(n->type, "DequantizeLinear")) {
        const onnx_value *scale = onnx_in(o, n, 1);
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), scale && scale->type ? scale->type : ONNX_FLOAT);
    } else if (format_text_is(n->type, "QuantizeLinear") ||
               format_text_is(n->type, "DynamicQuantizeLinear")) {
        onnx_value *zero = n->input_count > 2 ? onnx_in(o, n, 2) : NULL;
        const int asked = (int)clamp(onnx_int(n, "output_dtype", 0), 0, 100);
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0),
                        zero && zero->type ? zero->type
                        : asked            ? asked
                                           : ONNX_UINT8);
        for (uint32_t i = 1; i < n->output_count; i++)
            if (onnx_out(o, n, i))
                *onnx_out(o, n, i) = (onnx_value){.rank = 0, .type = i == 1 ? ONNX_FLOAT : ONNX_UINT8};
    } else
        return false;
    return true;
}

static bool infer_elementwise(onnx *o, const onnx_node *n)
{
    static const char *const arithmetic[] = {
        "Add", "Sub", "Mul", "Div",   "Pow",      "Mod",        "Max",       "Min",        "Mean", "Sum",
        "And", "Or",  "Xor", "PRelu", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", NULL};
    static const char *const compare[] = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", NULL};
    if (onnx_is_one_of(n->type, arithmetic))
        infer_broadcast(o, n, 0, 1, 0);
    else if (onnx_is_one_of(n->type, compare))
        infer_broadcast(o, n, 0, 1, ONNX_BOOL);
    else if (format_text_is(n->type, "QLinearAdd") || format_text_is(n->type, "QLinearMul"))
        infer_broadcast(o, n, 0, 3, 0); /* each with its scale and its zero */
    else if (format_text_is(n->type, "Where"))
        infer_broadcast(o, n, 1, 1, 0);
    else
        return false;
    return true;
}

/* -1: not known. */
static int64_t count_nonzero(const onnx_value *x)
{
    int64_t count = x->small ? 0 : -1;
    for (uint32_t i = 0; x->small && i < x->small->count; i++)
        count += x->small->real[i] != 0;
    return count;
}

/* How many there are depends on data, if that is not known: that axis stays open (-1), for the user to set. */
static bool infer_by_data(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *y = onnx_out(o, n, 0);
    if (!y)
        return false;
    if (format_text_is(n->type, "NonZero") && x && x->rank >= 0)
        *y = (onnx_value){.rank = 2, .type = ONNX_INT64, .dims = {x->rank ? x->rank : 1, count_nonzero(x)}};
    else if (format_text_is(n->type, "NonMaxSuppression"))
        *y = (onnx_value){.rank = 2, .type = ONNX_INT64, .dims = {-1, 3}};
    else if ((format_text_is(n->type, "Compress") || format_text_is(n->type, "Unique")) && x &&
             x->rank >= 0) {
        int64_t axis = onnx_int(n, "axis", INT64_MAX);
        axis = axis < 0 ? axis + x->rank : axis;
        if (axis >= 0 && axis < x->rank) {
            y->rank = x->rank;
            memcpy(y->dims, x->dims, sizeof y->dims);
            y->dims[axis] = -1;
        } else {
            y->rank = 1;
            y->dims[0] = -1;
        }
        y->type = x->type;
        for (uint32_t i = 1; i < n->output_count; i++)
            if (onnx_out(o, n, i))
                *onnx_out(o, n, i) = (onnx_value){.rank = 1, .type = ONNX_INT64, .dims = {-1}};
    } else
        return false;
    return true;
}

static bool infer_moved(onnx *o, const onnx_node *n)
{
    static const struct {
        const char *name;
        void (*infer)(onnx *, const onnx_node *);
    } table[] = {{"Reshape", infer_reshape}, {"Transpose", infer_transpose},
                 {"Concat", infer_concat},   {"Slice", infer_slice},
                 {"Split", infer_split},     {"Gather", infer_gather},
                 {"Flatten", infer_flatten}, {"Expand", infer_expand},
                 {"Tile", infer_tile},       {"Pad", infer_pad},
                 {"Resize", infer_resize},   {"Upsample", infer_resize},
                 {"TopK", infer_topk},       {"ConstantOfShape", infer_filled},
                 {"Range", infer_range}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (format_text_is(n->type, table[i].name)) {
            table[i].infer(o, n);
            return true;
        }
    return false;
}

void onnx_infer(onnx *o, const onnx_node *n)
{
    const bool rare = onnx_infer_rare(o, n); /* perhaps for further outputs alone */
    if (infer_alike(o, n) || rare || infer_elementwise(o, n) || infer_moved(o, n) || onnx_infer_layer(o, n) ||
        infer_by_data(o, n) || onnx_infer_einsum(o, n) || onnx_infer_contrib(o, n))
        return;
    if (format_text_is(n->type, "Squeeze") || format_text_is(n->type, "Unsqueeze"))
        infer_squeeze(o, n, n->type.bytes[0] == 'U');
    else if (format_text_is(n->type, "Shape") || format_text_is(n->type, "Size"))
        infer_shape_of(o, n, n->type.length == 4);
    else if (format_text_is(n->type, "ArgMax") || format_text_is(n->type, "ArgMin"))
        infer_reduce(o, n, ONNX_INT64);
    else if (n->type.length > 6 && memcmp(n->type.bytes, "Reduce", 6) == 0)
        infer_reduce(o, n, 0);
    else if (format_text_is(n->type, "DepthToSpace") || format_text_is(n->type, "SpaceToDepth"))
        infer_blocks(o, n, n->type.bytes[0] == 'D');
}

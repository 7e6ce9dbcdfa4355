/* Shapes of operators that few models have: samples and windows, grids and regions, losses, and the further outputs of some that many
 * models have. */
#include <math.h>
#include <string.h>

#include "format/onnx_graph.h"

static void set_shape(onnx_value *y, int type, int rank, const int64_t *dims)
{
    if (!y || rank > ONNX_RANK)
        return;
    *y = (onnx_value){.rank = rank, .type = type, .small = y->small};
    memcpy(y->dims, dims, (size_t)rank * sizeof *dims);
}

/* A known single number; false: it is not known. */
static bool one_number(onnx *o, const onnx_node *n, uint32_t input, int64_t *number)
{
    const onnx_value *value = onnx_in(o, n, input);
    if (!value || !value->small || value->small->count != 1)
        return false;
    const double real = value->small->real[0]; /* of whole numbers too */
    *number = real >= 0 && real <= INT32_MAX ? (int64_t)real : -1;
    return *number >= 0;
}

/* The type that an attribute names, or `absent`. */
static int named_type(const onnx_node *n, const char *name, int absent)
{
    return (int)onnx_int(n, name, absent) & 0xff;
}

static void rare_random(onnx *o, const onnx_node *n)
{
    int64_t shape[ONNX_SMALL];
    const int count = onnx_ints(n, "shape", shape);
    if (count >= 0)
        set_shape(onnx_out(o, n, 0), named_type(n, "dtype", ONNX_FLOAT), count, shape);
}

static void rare_like(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    onnx_take_shape(onnx_out(o, n, 0), x, named_type(n, "dtype", x ? x->type : 0));
}

static void rare_cast_like(onnx *o, const onnx_node *n)
{
    const onnx_value *to = onnx_in(o, n, 1);
    if (to)
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), to->type);
}

static void rare_multinomial(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    if (x && x->rank == 2)
        set_shape(onnx_out(o, n, 0), named_type(n, "dtype", ONNX_INT32), 2,
                  (int64_t[]){x->dims[0], onnx_int(n, "sample_size", 1)});
}

static void rare_one_hot(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *values = onnx_in(o, n, 2);
    int64_t depth, dims[ONNX_RANK + 1];
    if (!x || !values || x->rank < 0 || x->rank == ONNX_RANK || !one_number(o, n, 1, &depth))
        return;
    const int axis = onnx_axis(onnx_int(n, "axis", -1), x->rank + 1);
    for (int i = 0, from = 0; i <= x->rank; i++)
        dims[i] = i == axis ? depth : x->dims[from++];
    if (axis >= 0)
        set_shape(onnx_out(o, n, 0), values->type, x->rank + 1, dims);
}

static void rare_gather_nd(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *at = onnx_in(o, n, 1);
    const int64_t batch = onnx_int(n, "batch_dims", 0);
    int64_t dims[2 * ONNX_RANK];
    int rank = 0;
    if (!x || !at || x->rank < 1 || at->rank < 1 || batch < 0 || batch >= at->rank)
        return;
    const int64_t indexed = batch + at->dims[at->rank - 1];
    if (indexed < 0 || indexed > x->rank)
        return;
    for (int i = 0; i + 1 < at->rank; i++)
        dims[rank++] = at->dims[i];
    for (int64_t i = indexed; i < x->rank; i++)
        dims[rank++] = x->dims[i];
    set_shape(onnx_out(o, n, 0), x->type, rank, dims);
}

/* Batch and channels of x, the places of the grid. */
static void rare_grid_sample(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *grid = onnx_in(o, n, 1);
    if (!x || !grid || x->rank < 3 || grid->rank != x->rank)
        return;
    onnx_value result = *x;
    memcpy(result.dims + 2, grid->dims + 1, (size_t)(x->rank - 2) * sizeof *grid->dims);
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

static void rare_affine_grid(onnx *o, const onnx_node *n)
{
    const onnx_value *theta = onnx_in(o, n, 0);
    int64_t size[ONNX_SMALL];
    const int count = onnx_numbers(o, n, 1, NULL, size);
    if (!theta || (count != 4 && count != 5))
        return;
    memmove(size + 1, size + 2, (size_t)(count - 2) * sizeof *size);
    size[count - 1] = count - 2;
    set_shape(onnx_out(o, n, 0), theta->type, count, size);
}

static void rare_regions(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *regions = onnx_in(o, n, 1);
    int64_t pooled[ONNX_SMALL] = {onnx_int(n, "output_height", 1), onnx_int(n, "output_width", 1)};
    const bool aligned = format_text_is(n->type, "RoiAlign");
    if (!x || !regions || x->rank != 4 || regions->rank != 2 ||
        (!aligned && onnx_ints(n, "pooled_shape", pooled) != 2))
        return;
    set_shape(onnx_out(o, n, 0), x->type, 4, (int64_t[]){regions->dims[0], x->dims[1], pooled[0], pooled[1]});
}

static void rare_max_unpool(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    int64_t kernel[ONNX_SMALL], strides[ONNX_SMALL], pads[ONNX_SMALL] = {0}, dims[ONNX_SMALL];
    if (!x || x->rank < 3)
        return;
    const int spatial = x->rank - 2, given = onnx_numbers(o, n, 2, NULL, dims);
    if (given == x->rank)
        set_shape(onnx_out(o, n, 0), x->type, given, dims);
    if (given != -2 || onnx_ints(n, "kernel_shape", kernel) != spatial)
        return;
    for (int i = 0; i < spatial; i++)
        strides[i] = 1;
    onnx_ints(n, "strides", strides);
    onnx_ints(n, "pads", pads);
    onnx_value result = *x;
    for (int i = 0; i < spatial; i++)
        result.dims[i + 2] = (x->dims[i + 2] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + spatial];
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

/* Columns of blocks, put together to an image. */
static void rare_col2im(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    int64_t image[ONNX_SMALL], block[ONNX_SMALL], dims[ONNX_RANK], area = 1;
    const int spatial = onnx_numbers(o, n, 1, NULL, image), axes = onnx_numbers(o, n, 2, NULL, block);
    if (!x || x->rank != 3 || spatial < 1 || spatial + 2 > ONNX_RANK || axes != spatial)
        return;
    for (int i = 0; i < spatial; i++)
        if (__builtin_mul_overflow(area, block[i], &area) || area < 1)
            return;
    dims[0] = x->dims[0];
    dims[1] = x->dims[1] / area;
    memcpy(dims + 2, image, (size_t)spatial * sizeof *image);
    set_shape(onnx_out(o, n, 0), x->type, spatial + 2, dims);
}

static void rare_center_crop(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    int64_t shape[ONNX_SMALL], axes[ONNX_SMALL];
    const int count = onnx_numbers(o, n, 1, NULL, shape), some = onnx_ints(n, "axes", axes);
    if (!x || x->rank < 0 || count < 0 || count != (some < 0 ? x->rank : some))
        return;
    onnx_value result = *x;
    for (int i = 0; i < count; i++) {
        const int axis = onnx_axis(some < 0 ? i : axes[i], x->rank);
        if (axis < 0)
            return;
        result.dims[axis] = shape[i];
    }
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

static void rare_determinant(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    if (x && x->rank >= 2)
        set_shape(onnx_out(o, n, 0), x->type, x->rank - 2, x->dims);
}

static void rare_window(onnx *o, const onnx_node *n)
{
    int64_t size;
    if (one_number(o, n, 0, &size))
        set_shape(onnx_out(o, n, 0), named_type(n, "output_datatype", ONNX_FLOAT), 1, &size);
}

static void rare_mel(onnx *o, const onnx_node *n)
{
    int64_t bins, length;
    if (one_number(o, n, 0, &bins) && one_number(o, n, 1, &length))
        set_shape(onnx_out(o, n, 0), named_type(n, "output_datatype", ONNX_FLOAT), 2,
                  (int64_t[]){length / 2 + 1, bins});
}

/* The last axis holds one number or two, real and imaginary; a transform makes two. */
static void rare_dft(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    int64_t axis, length = -1;
    if (!x || x->rank < 2)
        return;
    if (!onnx_in(o, n, 2)) /* up to operator set 19 an attribute */
        axis = onnx_int(n, "axis", o->opset >= 20 ? -2 : 1);
    else if (onnx_in(o, n, 2)->small && onnx_in(o, n, 2)->small->count == 1)
        axis = onnx_in(o, n, 2)->small->whole[0];
    else
        return;
    const int at = onnx_axis(axis, x->rank);
    onnx_value result = *x;
    if (at < 0 || (onnx_in(o, n, 1) && !one_number(o, n, 1, &length)))
        return;
    result.dims[at] = onnx_in(o, n, 1) ? length : x->dims[at];
    if (onnx_int(n, "onesided", 0))
        result.dims[at] = result.dims[at] / 2 + 1;
    result.dims[x->rank - 1] = 2;
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

static void rare_stft(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *window = onnx_in(o, n, 2);
    int64_t step, length = window && window->rank == 1 ? window->dims[0] : -1;
    if (!x || x->rank < 2 || !one_number(o, n, 1, &step) || step < 1 ||
        (onnx_in(o, n, 3) && !one_number(o, n, 3, &length)) || length < 1 || length > x->dims[1])
        return;
    const int64_t bins = onnx_int(n, "onesided", 1) ? length / 2 + 1 : length;
    set_shape(onnx_out(o, n, 0), x->type, 4,
              (int64_t[]){x->dims[0], (x->dims[1] - length) / step + 1, bins, 2});
}

static void rare_loss(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *labels = onnx_in(o, n, 1);
    if (!x || !labels || labels->rank < 0)
        return;
    if (format_text_is(onnx_words(n, "reduction"), "none"))
        onnx_take_shape(onnx_out(o, n, 0), labels, x->type);
    else
        set_shape(onnx_out(o, n, 0), x->type, 0, labels->dims);
    onnx_take_shape(onnx_out(o, n, 1), x, 0);
}

/* Queries, keys and values by head, or with the heads side by side. */
static void rare_attention(onnx *o, const onnx_node *n)
{
    const onnx_value *q = onnx_in(o, n, 0), *v = onnx_in(o, n, 2);
    const int64_t heads = onnx_int(n, "q_num_heads", 0), kept = onnx_int(n, "kv_num_heads", 0);
    if (!q || !v || q->rank != v->rank || n->output_count > 1)
        return;
    onnx_value result = *q;
    if (q->rank == 4)
        result.dims[3] = v->dims[3];
    else if (q->rank == 3 && heads > 0 && kept > 0)
        result.dims[2] = v->dims[2] / kept * heads;
    else
        return;
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

/* ---- Further outputs ------------------------------------------------------------------------------------ */

/* A mask of what is kept. */
static void further_dropout(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    onnx_take_shape(onnx_out(o, n, 1), x, o->opset && o->opset < 10 ? 0 : ONNX_BOOL);
}

/* Statistics by channel, from training. */
static void further_batch(onnx *o, const onnx_node *n)
{
    for (uint32_t i = 1; i < n->output_count; i++)
        onnx_take_shape(onnx_out(o, n, i), onnx_in(o, n, i % 2 ? 3 : 4), 0);
}

/* Mean and deviation of what is normalized, with axes of 1 in its place. */
static void further_layer(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    const int axis = x ? onnx_axis(onnx_int(n, "axis", -1), x->rank) : -1;
    if (axis < 0)
        return;
    onnx_value result = *x;
    for (int i = axis; i < x->rank; i++)
        result.dims[i] = 1;
    for (uint32_t i = 1; i < n->output_count; i++)
        onnx_take_shape(onnx_out(o, n, i), &result, named_type(n, "stash_type", ONNX_FLOAT));
}

bool onnx_infer_rare(onnx *o, const onnx_node *n)
{
    static const struct {
        const char *name;
        void (*infer)(onnx *, const onnx_node *);
    } table[] = {{"RandomNormal", rare_random},
                 {"RandomUniform", rare_random},
                 {"RandomNormalLike", rare_like},
                 {"RandomUniformLike", rare_like},
                 {"Bernoulli", rare_like},
                 {"EyeLike", rare_like},
                 {"CastLike", rare_cast_like},
                 {"Multinomial", rare_multinomial},
                 {"OneHot", rare_one_hot},
                 {"GatherND", rare_gather_nd},
                 {"GridSample", rare_grid_sample},
                 {"AffineGrid", rare_affine_grid},
                 {"RoiAlign", rare_regions},
                 {"MaxRoiPool", rare_regions},
                 {"MaxUnpool", rare_max_unpool},
                 {"Col2Im", rare_col2im},
                 {"CenterCropPad", rare_center_crop},
                 {"Det", rare_determinant},
                 {"HannWindow", rare_window},
                 {"HammingWindow", rare_window},
                 {"BlackmanWindow", rare_window},
                 {"MelWeightMatrix", rare_mel},
                 {"DFT", rare_dft},
                 {"STFT", rare_stft},
                 {"NegativeLogLikelihoodLoss", rare_loss},
                 {"SoftmaxCrossEntropyLoss", rare_loss},
                 {"Dropout", further_dropout},
                 {"BatchNormalization", further_batch},
                 {"LayerNormalization", further_layer}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (format_text_is(n->type, table[i].name)) {
            table[i].infer(o, n);
            return true;
        }
    /* ONNX Runtime has an Attention of its own with other inputs */
    if (!format_text_is(n->type, "Attention") || onnx_is_contrib(n))
        return false;
    rare_attention(o, n);
    return true;
}

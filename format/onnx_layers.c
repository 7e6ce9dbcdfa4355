/* Shapes of convolutions, pools, products and recurrent layers. */
#include "format/onnx_graph.h"

/* Padding of one axis from auto_pad or pads; the rest of the window in `kernel`, `stride` and `dilation`. */
typedef struct window {
    int64_t kernel[ONNX_SMALL], stride[ONNX_SMALL], dilation[ONNX_SMALL], pads[ONNX_SMALL];
    int spatial;
    bool same, ceil;
} window;

static bool window_read(const onnx_node *n, window *w, int spatial)
{
    w->spatial = spatial;
    for (int i = 0; i < ONNX_SMALL; i++) {
        w->stride[i] = w->dilation[i] = 1;
        w->pads[i] = 0;
    }
    int kernel = onnx_ints(n, "kernel_shape", w->kernel);
    onnx_ints(n, "strides", w->stride);
    onnx_ints(n, "dilations", w->dilation);
    onnx_ints(n, "pads", w->pads);
    format_text pad = onnx_words(n, "auto_pad");
    w->same = format_text_is(pad, "SAME_UPPER") || format_text_is(pad, "SAME_LOWER");
    w->ceil = onnx_int(n, "ceil_mode", 0) != 0;
    for (int i = 0; i < spatial; i++)
        if (w->stride[i] < 1 || w->dilation[i] < 1 || (kernel >= 0 && (i >= kernel || w->kernel[i] < 1)))
            return false;
    return true;
}

static int64_t window_size(const window *w, int i, int64_t size)
{
    if (w->same)
        return (size + w->stride[i] - 1) / w->stride[i];
    int64_t room = size + w->pads[i] + w->pads[i + w->spatial] - ((w->kernel[i] - 1) * w->dilation[i] + 1);
    if (room < 0)
        return size ? -1 : 0; /* the window does not fit in */
    int64_t out = (w->ceil ? (room + w->stride[i] - 1) / w->stride[i] : room / w->stride[i]) + 1;
    /* a window that would begin in the padding behind does not count */
    if (w->ceil && (out - 1) * w->stride[i] >= size + w->pads[i])
        out--;
    return out;
}

static int64_t window_transposed(const onnx_node *n, const window *w, int i, int64_t size)
{
    int64_t given[ONNX_SMALL], extra[ONNX_SMALL] = {0};
    onnx_ints(n, "output_padding", extra);
    if (onnx_ints(n, "output_shape", given) > i)
        return given[i];
    if (w->same)
        return size * w->stride[i];
    return w->stride[i] * (size - 1) + extra[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - w->pads[i] -
           w->pads[i + w->spatial];
}

static void infer_conv(onnx *o, const onnx_node *n, uint32_t weights, bool transposed)
{
    onnx_value *x = onnx_in(o, n, 0), *k = onnx_in(o, n, weights), *y = onnx_out(o, n, 0);
    window w;
    if (!x || !k || !y || x->rank < 3 || k->rank != x->rank || !window_read(n, &w, x->rank - 2))
        return;
    int64_t unused[ONNX_SMALL];
    for (int i = 0; i < w.spatial && onnx_ints(n, "kernel_shape", unused) < 0; i++)
        w.kernel[i] = k->dims[i + 2];
    y->dims[0] = x->dims[0];
    y->dims[1] = transposed ? k->dims[1] * onnx_int(n, "group", 1) : k->dims[0];
    for (int i = 0; i < w.spatial; i++)
        y->dims[i + 2] =
            transposed ? window_transposed(n, &w, i, x->dims[i + 2]) : window_size(&w, i, x->dims[i + 2]);
    y->rank = x->rank;
    y->type = format_text_is(n->type, "ConvInteger") ? ONNX_INT32 : x->type;
}

static void infer_pool(onnx *o, const onnx_node *n, bool global)
{
    onnx_value *x = onnx_in(o, n, 0);
    window w;
    if (!x || x->rank < 3 || !window_read(n, &w, x->rank - 2))
        return;
    for (uint32_t k = 0; k < n->output_count; k++) {
        onnx_value *y = onnx_out(o, n, k);
        if (!y)
            continue;
        for (int i = 0; i < x->rank; i++)
            y->dims[i] = i < 2 ? x->dims[i] : global ? 1 : window_size(&w, i - 2, x->dims[i]);
        y->rank = x->rank;
        y->type = k ? ONNX_INT64 : x->type;
    }
}

static void infer_gemm(onnx *o, const onnx_node *n, uint32_t second, int type)
{
    onnx_value *a = onnx_in(o, n, 0), *b = onnx_in(o, n, second), *y = onnx_out(o, n, 0);
    if (!a || !b || !y || a->rank != 2 || b->rank != 2)
        return;
    y->dims[0] = a->dims[onnx_int(n, "transA", 0) ? 1 : 0];
    y->dims[1] = b->dims[onnx_int(n, "transB", 0) ? 0 : 1];
    y->rank = 2;
    y->type = type ? type : a->type;
}

/* ONNX Runtime's fused products may turn their matrices around. */
static void infer_matmul(onnx *o, const onnx_node *n, uint32_t second, int type)
{
    onnx_value *a = onnx_in(o, n, 0), *b = onnx_in(o, n, second), *y = onnx_out(o, n, 0);
    if (!a || !b || !y || a->rank < 1 || b->rank < 1)
        return;
    int batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
    int batch = batch_a > batch_b ? batch_a : batch_b, rank = 0;
    for (int i = 0; i < batch; i++) {
        int64_t da = i >= batch - batch_a ? a->dims[i - (batch - batch_a)] : 1;
        int64_t db = i >= batch - batch_b ? b->dims[i - (batch - batch_b)] : 1;
        y->dims[rank++] = da == 1 ? db : da;
    }
    if (a->rank > 1)
        y->dims[rank++] = a->dims[a->rank - (onnx_int(n, "transA", 0) ? 1 : 2)];
    if (b->rank > 1)
        y->dims[rank++] = b->dims[b->rank - (onnx_int(n, "transB", 0) ? 2 : 1)];
    y->rank = rank;
    y->type = type ? type : a->type;
}

static void infer_recurrent(onnx *o, const onnx_node *n)
{
    onnx_value *x = onnx_in(o, n, 0), *r = onnx_in(o, n, 2);
    if (!x || x->rank != 3)
        return;
    bool batch_first = onnx_int(n, "layout", 0) != 0;
    int64_t hidden = onnx_int(n, "hidden_size", r && r->rank == 3 ? r->dims[2] : -1);
    int64_t ways = format_text_is(onnx_words(n, "direction"), "bidirectional") ? 2 : 1;
    int64_t steps = x->dims[batch_first ? 1 : 0], batch = x->dims[batch_first ? 0 : 1];
    for (uint32_t k = 0; k < n->output_count && hidden >= 0; k++) {
        onnx_value *y = onnx_out(o, n, k);
        if (!y)
            continue;
        const int64_t whole[2][4] = {{steps, ways, batch, hidden}, {batch, steps, ways, hidden}};
        const int64_t last[2][3] = {{ways, batch, hidden}, {batch, ways, hidden}};
        y->rank = k ? 3 : 4;
        for (int i = 0; i < y->rank; i++)
            y->dims[i] = k ? last[batch_first][i] : whole[batch_first][i];
        y->type = x->type;
    }
}

bool onnx_infer_layer(onnx *o, const onnx_node *n)
{
    static const char *const convolutions[] = {"Conv", "ConvInteger", "FusedConv", "DeformConv", NULL};
    static const char *const pools[] = {"MaxPool", "AveragePool", "LpPool", "QLinearAveragePool", NULL};
    static const char *const globals[] = {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", NULL};
    static const char *const recurrent[] = {"LSTM", "GRU", "RNN", NULL};
    static const char *const products[] = {"MatMul", "FusedMatMul", "TransposeMatMul",
                                           "DynamicQuantizeMatMul", NULL};
    if (onnx_is_one_of(n->type, convolutions))
        infer_conv(o, n, 1, false);
    else if (format_text_is(n->type, "QLinearConv"))
        infer_conv(o, n, 3, false);
    else if (format_text_is(n->type, "ConvTranspose"))
        infer_conv(o, n, 1, true);
    else if (onnx_is_one_of(n->type, pools))
        infer_pool(o, n, false);
    else if (onnx_is_one_of(n->type, globals))
        infer_pool(o, n, true);
    else if (format_text_is(n->type, "Gemm") || format_text_is(n->type, "FusedGemm"))
        infer_gemm(o, n, 1, 0);
    else if (format_text_is(n->type, "QGemm")) /* without a scale of the result it is not quantized */
        infer_gemm(o, n, 3, onnx_in(o, n, 7) ? 0 : ONNX_FLOAT);
    else if (onnx_is_one_of(n->type, products))
        infer_matmul(o, n, 1, 0);
    else if (format_text_is(n->type, "MatMulIntegerToFloat"))
        infer_matmul(o, n, 1, ONNX_FLOAT);
    else if (format_text_is(n->type, "MatMulInteger"))
        infer_matmul(o, n, 1, ONNX_INT32);
    else if (format_text_is(n->type, "QLinearMatMul"))
        infer_matmul(o, n, 3, 0);
    else if (onnx_is_one_of(n->type, recurrent))
        infer_recurrent(o, n);
    else
        return false;
    return true;
}

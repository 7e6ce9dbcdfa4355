/* Shapes of ONNX Runtime's own operators (com.microsoft), which its optimizer and its quantizer write. */
#include <string.h>

#include "format/onnx_graph.h"

bool onnx_is_contrib(const onnx_node *n)
{
    enum { NODE_DOMAIN_FIELD = 7 };
    wire message = n->message;
    wire_field field;
    while (wire_next(&message, &field))
        if (field.number == NODE_DOMAIN_FIELD)
            return format_text_is(wire_text(&field), "com.microsoft");
    return false;
}

/* x with another size of the last axis. */
static void last_axis(onnx_value *y, const onnx_value *x, int64_t size, int type)
{
    if (!x || x->rank < 1 || size < 0)
        return;
    onnx_value result = *x;
    result.dims[x->rank - 1] = size;
    onnx_take_shape(y, &result, type);
}

/* Skip connections: what is normalized, perhaps mean and deviation, perhaps the sum before it. */
static void contrib_skip(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    onnx_take_shape(onnx_out(o, n, 0), x, 0);
    last_axis(onnx_out(o, n, 1), x, 1, ONNX_FLOAT);
    last_axis(onnx_out(o, n, 2), x, 1, ONNX_FLOAT);
    onnx_take_shape(onnx_out(o, n, 3), x, 0);
}

/* Weights hold queries, keys and values side by side, of one width unless it is said. */
static void contrib_attention(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0), *w = onnx_in(o, n, 1), *bias = onnx_in(o, n, 2);
    int64_t widths[ONNX_SMALL];
    int64_t size = w && w->rank == 2 ? w->dims[1] / 3 : bias && bias->rank == 1 ? bias->dims[0] / 3 : -1;
    if (onnx_ints(n, "qkv_hidden_sizes", widths) == 3)
        size = widths[2];
    if (n->output_count == 1) /* what it keeps from step to step is another matter */
        last_axis(onnx_out(o, n, 0), x, size, 0);
}

static void contrib_multi_head(onnx *o, const onnx_node *n)
{
    const onnx_value *q = onnx_in(o, n, 0), *v = onnx_in(o, n, 2);
    if (q && q->rank == 3 && v && (v->rank == 3 || v->rank == 4) && n->output_count == 1)
        last_axis(onnx_out(o, n, 0), q, v->rank == 3 ? v->dims[2] : v->dims[1] * v->dims[3], 0);
}

static void contrib_embed(onnx *o, const onnx_node *n)
{
    const onnx_value *ids = onnx_in(o, n, 0), *words = onnx_in(o, n, 2);
    if (!ids || !words || ids->rank != 2 || words->rank != 2)
        return;
    onnx_value result = {.rank = 3, .dims = {ids->dims[0], ids->dims[1], words->dims[1]}};
    onnx_value mask = {.rank = 1, .dims = {ids->dims[0]}};
    onnx_take_shape(onnx_out(o, n, 0), &result, words->type);
    onnx_take_shape(onnx_out(o, n, 1), &mask, ONNX_INT32);
    onnx_take_shape(onnx_out(o, n, 2), &result, words->type);
}

/* Weights in a few bits each, in blocks: their shape says nothing. */
static void contrib_matmul_bits(onnx *o, const onnx_node *n)
{
    last_axis(onnx_out(o, n, 0), onnx_in(o, n, 0), onnx_int(n, "N", -1), 0);
}

static void contrib_concat(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 2);
    const int axis = x ? onnx_axis(onnx_int(n, "axis", 0), x->rank) : -1;
    if (axis < 0)
        return;
    onnx_value result = *x;
    for (uint32_t k = 5; k < n->input_count; k += 3) { /* each with its scale and its zero */
        const onnx_value *part = onnx_in(o, n, k);
        if (!part || part->rank != x->rank)
            return;
        result.dims[axis] += part->dims[axis];
    }
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

static void contrib_global_pool(onnx *o, const onnx_node *n)
{
    const onnx_value *x = onnx_in(o, n, 0);
    const bool last = onnx_int(n, "channels_last", 0) != 0;
    if (!x || x->rank < 3)
        return;
    onnx_value result = *x;
    for (int i = last ? 1 : 2; i < x->rank - last; i++)
        result.dims[i] = 1;
    onnx_take_shape(onnx_out(o, n, 0), &result, 0);
}

bool onnx_infer_contrib(onnx *o, const onnx_node *n)
{
    static const char *const alike[] = {
        "BiasGelu",       "FusedGelu",        "RotaryEmbedding", "QLinearSigmoid", "QLinearLeakyRelu",
        "QLinearSoftmax", "RMSNormalization", "Swish",           "TensorScatter",  NULL};
    static const struct {
        const char *name;
        void (*infer)(onnx *, const onnx_node *);
    } table[] = {{"SkipLayerNormalization", contrib_skip},
                 {"SkipSimplifiedLayerNormalization", contrib_skip},
                 {"MultiHeadAttention", contrib_multi_head},
                 {"EmbedLayerNormalization", contrib_embed},
                 {"MatMulNBits", contrib_matmul_bits},
                 {"QLinearConcat", contrib_concat},
                 {"QLinearGlobalAveragePool", contrib_global_pool}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (format_text_is(n->type, table[i].name)) {
            table[i].infer(o, n);
            return true;
        }
    if (onnx_is_one_of(n->type, alike))
        onnx_take_shape(onnx_out(o, n, 0), onnx_in(o, n, 0), 0);
    else if (format_text_is(n->type, "Attention") || format_text_is(n->type, "QAttention"))
        contrib_attention(o, n);
    else
        return false;
    return true;
}

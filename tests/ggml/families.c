/* Families of graphs: U-Nets, transformers with caches, and graphs of any shape. */
#include "kit.h"

#define EPS 1e-5f

/* ---- U-Nets -------------------------------------------------------------------------------------------- */

static kit_tensor unet_conv(kit_model *m, kit_tensor x, int64_t out, int side, bool direct)
{
    kit_tensor kernel = kit_weight(m, KIT_TYPE_F16, side, side, x->ne[2], out);
    kit_tensor bias = kit_weight(m, GGML_TYPE_F32, 1, 1, out, 1);
    kit_tensor y = direct ? kit.ggml_conv_2d_direct(m->nodes, kernel, x, 1, 1, side / 2, side / 2, 1, 1)
                          : kit.ggml_conv_2d(m->nodes, kernel, x, 1, 1, side / 2, side / 2, 1, 1);
    return kit.ggml_add(m->nodes, y, bias);
}

static kit_tensor unet_block(kit_model *m, kit_tensor x, int64_t out, const kit_unet *style)
{
    if (style->plain) { /* two convolutions, as in the first U-Net */
        x = kit.ggml_relu(m->nodes, unet_conv(m, x, out, 3, style->direct));
        return kit.ggml_relu(m->nodes, unet_conv(m, x, out, 3, style->direct));
    }
    kit_tensor h = kit.ggml_silu(m->nodes, kit.ggml_group_norm(m->nodes, x, 4, EPS));
    h = unet_conv(m, h, out, 3, style->direct);
    h = kit.ggml_silu(m->nodes, kit.ggml_group_norm(m->nodes, h, 4, EPS));
    h = unet_conv(m, h, out, 3, style->direct);
    if (x->ne[2] != out)
        x = unet_conv(m, x, out, 1, style->direct);
    return kit.ggml_add(m->nodes, h, x);
}

static kit_tensor unet_attention(kit_model *m, kit_tensor x)
{
    kit_context c = m->nodes;
    int64_t pixels = x->ne[0] * x->ne[1], channels = x->ne[2];
    kit_tensor flat = kit.ggml_reshape_2d(c, kit.ggml_group_norm(c, x, 4, EPS), pixels, channels);
    flat = kit.ggml_cont(c, kit.ggml_transpose(c, flat));
    kit_tensor q = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, channels, channels, 1, 1), flat);
    kit_tensor k = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, channels, channels, 1, 1), flat);
    kit_tensor v = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, channels, channels, 1, 1), flat);
    kit_tensor scores = kit.ggml_soft_max(c, kit.ggml_scale(c, kit.ggml_mul_mat(c, k, q), 0.2f));
    kit_tensor mixed = kit.ggml_mul_mat(c, kit.ggml_cont(c, kit.ggml_transpose(c, v)), scores);
    mixed = kit.ggml_cont(c, kit.ggml_transpose(c, mixed));
    return kit.ggml_add(c, x, kit.ggml_reshape_4d(c, mixed, x->ne[0], x->ne[1], channels, 1));
}

void kit_build_unet(kit_model *m, const kit_unet *style)
{
    kit_tensor skips[KIT_UNET_SKIPS], x;
    int count = 0;
    x = kit_input(m, kit.ggml_new_tensor_4d(m->nodes, GGML_TYPE_F32, style->size, style->size, 4, 1));
    x = unet_conv(m, x, style->channels, 3, style->direct);
    for (int i = 0; i < style->levels; i++) {
        for (int j = 0; j < style->blocks; j++)
            x = skips[count++] = unet_block(m, x, (int64_t)style->channels << i, style);
        x = kit.ggml_pool_2d(m->nodes, x, 1, 2, 2, 2, 2, 0, 0);
    }
    x = unet_block(m, x, (int64_t)style->channels << style->levels, style);
    if (style->attention)
        x = unet_attention(m, x);
    for (int i = style->levels - 1; i >= 0; i--) {
        x = kit.ggml_upscale(m->nodes, x, 2, 0);
        for (int j = 0; j < style->blocks; j++) {
            x = kit.ggml_concat(m->nodes, x, skips[--count], 2);
            x = unet_block(m, x, (int64_t)style->channels << i, style);
        }
    }
    kit_output(m, unet_conv(m, x, 4, 3, style->direct));
}

static void build_unet(kit_model *m, bool direct, bool plain)
{
    kit_unet style = {.direct = direct, .plain = plain};
    style.levels = 1 + (int)kit_random(m, 4);
    style.blocks = 1 + (int)kit_random(m, 3);
    style.size = (8 + 8 * (int)kit_random(m, 3)) << (style.levels > 1 ? style.levels - 1 : 0);
    style.size = style.size > 64 ? 64 : style.size;
    style.channels = 4 + 4 * (int)kit_random(m, 3);
    style.attention = kit_random(m, 2) == 0;
    kit_build_unet(m, &style);
}

static void build_unet_im2col(kit_model *m, uint64_t seed)
{
    (void)seed;
    build_unet(m, false, false);
}

static void build_unet_direct(kit_model *m, uint64_t seed)
{
    (void)seed;
    build_unet(m, true, false);
}

static void build_unet_plain(kit_model *m, uint64_t seed)
{
    build_unet(m, seed % 2 == 0, true);
}

/* ---- Transformers -------------------------------------------------------------------------------------- */

typedef struct transformer_sizes {
    int64_t width, heads, tokens, past, room;
    bool in_place;
} transformer_sizes;

/* The new keys or values go to the end of the cache, a leaf of the graph with memory of its own; all of it is read. */
static kit_tensor cache_write(kit_model *m, kit_tensor cache, kit_tensor rows, const transformer_sizes *s)
{
    kit_context c = m->nodes;
    size_t row = (size_t)s->width * sizeof(float);
    kit_tensor place = kit.ggml_view_2d(c, cache, s->width, s->tokens, row, row * (size_t)s->past);
    kit.ggml_build_forward_expand(m->graph,
                                  kit.ggml_cpy(c, kit.ggml_reshape_2d(c, rows, s->width, s->tokens), place));
    kit_tensor all = kit.ggml_view_2d(c, cache, s->width, s->past + s->tokens, row, 0);
    return kit.ggml_reshape_3d(c, all, s->width / s->heads, s->heads, s->past + s->tokens);
}

static kit_tensor attention(kit_model *m, kit_tensor x, kit_tensor positions, kit_tensor mask,
                            const transformer_sizes *s)
{
    kit_context c = m->nodes;
    int64_t head = s->width / s->heads;
    kit_tensor part[3];
    for (int i = 0; i < 3; i++) {
        kit_tensor y = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, s->width, s->width, 1, 1), x);
        part[i] = kit.ggml_reshape_3d(c, y, head, s->heads, s->tokens);
        if (i < 2)
            part[i] =
                (s->in_place ? kit.ggml_rope_inplace : kit.ggml_rope)(c, part[i], positions, (int)head, 0);
    }
    kit_tensor keys = cache_write(m, kit_weight(m, GGML_TYPE_F32, s->width, s->room, 1, 1), part[1], s);
    kit_tensor values = cache_write(m, kit_weight(m, GGML_TYPE_F32, s->width, s->room, 1, 1), part[2], s);
    kit_tensor q = kit.ggml_permute(c, part[0], 0, 2, 1, 3), k = kit.ggml_permute(c, keys, 0, 2, 1, 3);
    kit_tensor scores = kit.ggml_mul_mat(c, k, q);
    if (s->in_place)
        scores = kit.ggml_soft_max_inplace(c, kit.ggml_scale_inplace(c, scores, 0.3f));
    else
        scores = kit.ggml_soft_max_ext(c, scores, mask, 0.3f, 0.0f);
    kit_tensor v = kit.ggml_cont(c, kit.ggml_permute(c, values, 1, 2, 0, 3));
    kit_tensor mixed = kit.ggml_permute(c, kit.ggml_mul_mat(c, v, scores), 0, 2, 1, 3);
    mixed = kit.ggml_reshape_2d(c, kit.ggml_cont(c, mixed), s->width, s->tokens);
    return kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, s->width, s->width, 1, 1), mixed);
}

static kit_tensor feed_forward(kit_model *m, kit_tensor x, const transformer_sizes *s)
{
    kit_context c = m->nodes;
    kit_tensor gate = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, s->width, 3 * s->width, 1, 1), x);
    kit_tensor up = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, s->width, 3 * s->width, 1, 1), x);
    kit_tensor both = kit.ggml_mul(c, kit.ggml_silu(c, gate), up);
    return kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, 3 * s->width, s->width, 1, 1), both);
}

static void build_transformer(kit_model *m, uint64_t seed)
{
    kit_context c = m->nodes;
    int layers = 1 + (int)kit_random(m, 4);
    transformer_sizes s = {.heads = 1 + (int64_t)kit_random(m, 4),
                           .tokens = 1 + (int64_t)kit_random(m, 40),
                           .past = (int64_t)kit_random(m, 60),
                           .room = 128,
                           .in_place = seed % 2 == 0};
    s.width = s.heads * 16;
    kit_tensor positions = kit_input(m, kit.ggml_new_tensor_1d(c, KIT_TYPE_I32, s.tokens));
    kit_tensor mask =
        s.in_place ? NULL
                   : kit_input(m, kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, s.past + s.tokens, s.tokens));
    kit_tensor x = kit_input(m, kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, s.width, s.tokens));
    for (int i = 0; i < layers; i++) {
        kit_tensor norm =
            kit.ggml_mul(c, kit.ggml_rms_norm(c, x, EPS), kit_weight(m, GGML_TYPE_F32, s.width, 1, 1, 1));
        kit_tensor y = attention(m, norm, positions, mask, &s);
        x = s.in_place ? kit.ggml_add_inplace(c, y, x) : kit.ggml_add(c, x, y);
        norm = kit.ggml_mul(c, kit.ggml_rms_norm(c, x, EPS), kit_weight(m, GGML_TYPE_F32, s.width, 1, 1, 1));
        x = kit.ggml_add(c, feed_forward(m, norm, &s), x);
    }
    kit_output(
        m, kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, s.width, 96, 1, 1), kit.ggml_norm(c, x, EPS)));
}

/* As an operation wants it. */
static kit_tensor random_flat(kit_model *m, kit_tensor x)
{
    return kit.ggml_is_contiguous(x) ? x : kit.ggml_cont(m->nodes, x);
}

/* ---- Mixtures of experts ------------------------------------------------------------------------------ */

/* Each token goes through the experts that its router prefers; their answers are views of one tensor, and summed. */
static kit_tensor experts(kit_model *m, kit_tensor x, int64_t count, int used)
{
    enum { INNER = 48 };
    kit_context c = m->nodes;
    const int64_t width = x->ne[0], tokens = x->ne[1];
    kit_tensor chances =
        kit.ggml_soft_max(c, kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, width, count, 1, 1), x));
    kit_tensor chosen = kit.ggml_argsort_top_k(c, chances, used);
    kit_tensor rows = kit.ggml_reshape_3d(c, x, width, 1, tokens);
    kit_tensor up =
        kit.ggml_mul_mat_id(c, kit_weight(m, GGML_TYPE_F32, width, INNER, count, 1), rows, chosen);
    kit_tensor gate =
        kit.ggml_mul_mat_id(c, kit_weight(m, GGML_TYPE_F32, width, INNER, count, 1), rows, chosen);
    kit_tensor inner = kit.ggml_swiglu_split(c, gate, up), sum = NULL;
    kit_tensor down =
        kit.ggml_mul_mat_id(c, kit_weight(m, GGML_TYPE_F32, INNER, width, count, 1), inner, chosen);
    kit_tensor shares = kit.ggml_get_rows(c, kit.ggml_reshape_3d(c, chances, 1, count, tokens), chosen);
    down = kit.ggml_mul(c, down, shares);
    for (int i = 0; i < used; i++) {
        kit_tensor part = kit.ggml_view_2d(c, down, width, tokens, down->nb[2], (size_t)i * down->nb[1]);
        sum = sum ? kit.ggml_add(c, sum, part) : part;
    }
    return random_flat(m, sum);
}

static void build_experts(kit_model *m, uint64_t seed)
{
    kit_context c = m->nodes;
    const int layers = 1 + (int)kit_random(m, 4), used = 1 + (int)kit_random(m, 3);
    const int64_t count = used + 1 + (int64_t)kit_random(m, 4), tokens = 1 + (int64_t)kit_random(m, 30);
    kit_tensor x = kit_input(m, kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, 64, tokens));
    for (int i = 0; i < layers; i++) {
        kit_tensor norm =
            kit.ggml_mul(c, kit.ggml_rms_norm(c, x, EPS), kit_weight(m, GGML_TYPE_F32, 64, 1, 1, 1));
        x = kit.ggml_add(c, x, experts(m, norm, count, used));
        if (seed % 2)
            kit_output(m, kit.ggml_sum_rows(c, x)); /* each layer's answer, too */
    }
    kit_output(m, x);
}

/* ---- Any shape ----------------------------------------------------------------------------------------- */

enum { RANDOM_KEPT = 24, RANDOM_TURNS = 16 };

static kit_tensor random_unary(kit_model *m, kit_tensor x)
{
    kit_context c = m->nodes;
    switch (kit_random(m, 8)) {
    case 0:
        return kit.ggml_silu(c, random_flat(m, x));
    case 1:
        return kit.ggml_relu(c, random_flat(m, x));
    case 2:
        return kit.ggml_scale(c, random_flat(m, x), 0.7f);
    case 3:
        return kit.ggml_soft_max(c, random_flat(m, x));
    case 4:
        return kit.ggml_rms_norm(c, random_flat(m, x), EPS);
    case 5:
        return kit.ggml_dup(c, x);
    case 6:
        return kit.ggml_tanh(c, random_flat(m, x));
    default:
        return kit.ggml_norm(c, random_flat(m, x), EPS);
    }
}

/* Parts, turned shapes, reshapes: views that later operations read. */
static kit_tensor random_view(kit_model *m, kit_tensor x)
{
    kit_context c = m->nodes;
    switch (kit_random(m, 4)) {
    case 0:
        return x->ne[1] > 1 ? kit.ggml_view_2d(c, x, x->ne[0], x->ne[1] / 2, x->nb[1],
                                               x->nb[1] * (size_t)(x->ne[1] - x->ne[1] / 2))
                            : x;
    case 1:
        return x->ne[1] > 1 ? kit.ggml_view_2d(c, x, x->ne[0], x->ne[1] - 1, x->nb[1], 0) : x;
    case 2:
        return kit.ggml_transpose(c, x);
    default:
        x = random_flat(m, x);
        return kit.ggml_reshape_2d(c, x, x->ne[0] * x->ne[1], 1);
    }
}

static kit_tensor random_binary(kit_model *m, kit_tensor x, kit_tensor y)
{
    kit_context c = m->nodes;
    bool same = x->ne[0] == y->ne[0] && x->ne[1] == y->ne[1];
    x = random_flat(m, x);
    if (same && kit_random(m, 4) > 0) {
        y = random_flat(m, y);
        switch (kit_random(m, 3)) {
        case 0:
            return kit.ggml_add(c, x, y);
        case 1:
            return kit.ggml_sub(c, x, y);
        default:
            return kit.ggml_mul(c, x, y);
        }
    }
    if (x->ne[1] == y->ne[1])
        return kit.ggml_concat(c, x, random_flat(m, y), 0);
    int64_t out = 8 + 8 * (int64_t)kit_random(m, 40);
    return kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, x->ne[0], out, 1, 1), x);
}

/* Shapes stay within bounds, so that a model runs in a moment. */
static kit_tensor random_bounded(kit_model *m, kit_tensor x)
{
    kit_context c = m->nodes;
    if (x->ne[0] <= 2048 && x->ne[1] <= 256)
        return x;
    x = random_flat(m, x);
    if (x->ne[1] > 256)
        x = kit.ggml_cont(c, kit.ggml_transpose(c, x));
    return kit.ggml_mul_mat(
        c, kit_weight(m, GGML_TYPE_F32, x->ne[0], 8 + 8 * (int64_t)kit_random(m, 16), 1, 1), x);
}

static void build_random(kit_model *m, uint64_t seed)
{
    kit_context c = m->nodes;
    kit_tensor kept[RANDOM_KEPT];
    int count = 0, steps = 10 + (int)kit_random(m, 90);
    bool marked = seed % 3 != 0; /* else the inputs are plain leaves */
    for (int i = 0; i < 3; i++) {
        kit_tensor leaf = kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, 8 + 8 * (int64_t)kit_random(m, 60),
                                                 1 + (int64_t)kit_random(m, 60));
        if (marked)
            (void)kit_input(m, leaf);
        else
            m->inputs[m->input_count++] = leaf;
        kept[count++] = leaf;
    }
    for (int i = 0; i < steps; i++) {
        kit_tensor x = kept[kit_random(m, (uint64_t)count)], y = kept[kit_random(m, (uint64_t)count)];
        uint64_t turn = kit_random(m, RANDOM_TURNS);
        kit_tensor z = turn < 6 ? random_unary(m, x) : turn < 9 ? random_view(m, x) : random_binary(m, x, y);
        z = random_bounded(m, z);
        kept[count < RANDOM_KEPT ? count++ : (int)kit_random(m, RANDOM_KEPT)] = z;
        if (kit_random(m, 12) == 0)
            kit_output(m, random_flat(m, z)->view_src ? kit.ggml_dup(c, z) : random_flat(m, z));
    }
    kit_tensor all = NULL;
    for (int i = 0; i < count; i++) {
        kit_tensor sum = kit.ggml_sum_rows(
            c, kit.ggml_reshape_2d(c, random_flat(m, kept[i]), kept[i]->ne[0] * kept[i]->ne[1], 1));
        all = all ? kit.ggml_add(c, all, sum) : sum;
    }
    kit_output(m, all);
}

/* A chain with few branches, as most networks are: what gallocr does well. */
static void build_chain(kit_model *m, uint64_t seed)
{
    kit_context c = m->nodes;
    kit_tensor x = kit_input(m, kit.ggml_new_tensor_2d(c, GGML_TYPE_F32, 64, 32)), skip = x;
    int steps = 10 + (int)kit_random(m, 60);
    (void)seed;
    for (int i = 0; i < steps; i++) {
        int64_t out = 16 + 16 * (int64_t)kit_random(m, 20);
        if (kit_random(m, 3) == 0)
            x = kit.ggml_gelu(c, x);
        else if (kit_random(m, 4) == 0)
            x = kit.ggml_concat(c, x, skip, 0);
        else
            x = kit.ggml_mul_mat(c, kit_weight(m, GGML_TYPE_F32, x->ne[0], out, 1, 1), x);
        if (kit_random(m, 5) == 0)
            skip = x;
        x = random_bounded(m, x);
    }
    kit_output(m, x);
}

const kit_named_family kit_families[] = {
    {"unet, im2col", build_unet_im2col, true},
    {"unet, direct", build_unet_direct, true},
    {"unet, plain", build_unet_plain, true},
    {"transformer", build_transformer, false},
    {"experts", build_experts, false},
    {"random", build_random, false},
    {"chain", build_chain, false},
};
const int kit_family_count = sizeof kit_families / sizeof *kit_families;

/* Numbers of small tensors, so that shapes that are computed by the model are known. */
#include <math.h>
#include <string.h>

#include "format/onnx_graph.h"

static onnx_small *fold_begin(onnx_value *y)
{
    uint64_t count = y->rank < 0 ? UINT64_MAX : onnx_elements(y);
    return count > ONNX_SMALL ? NULL : onnx_make_small(y, (uint32_t)count);
}

static void fold_set(onnx_small *s, uint32_t i, int64_t whole, double real)
{
    s->whole[i] = whole;
    s->real[i] = real;
}

static int64_t whole_of(double real)
{
    return real >= -9.2e18 && real <= 9.2e18 ? (int64_t)real : real > 0 ? INT64_MAX : INT64_MIN;
}

static bool is_real(int type)
{
    return type == ONNX_FLOAT || type == ONNX_DOUBLE || type == 10 || type == 16;
}

static void fold_copy(onnx_value *y, const onnx_value *x)
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    if (!s || s->count != x->small->count)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        fold_set(s, i, is_real(x->type) ? whole_of(x->small->real[i]) : x->small->whole[i],
                 x->small->real[i]);
}

static void fold_shape(onnx_value *y, const onnx_value *x, int64_t start)
{
    onnx_small *s = x->rank >= 0 ? fold_begin(y) : NULL;
    start = start < 0 ? start + x->rank : start;
    for (uint32_t i = 0; s && i < s->count && start >= 0 && start + i < ONNX_RANK; i++) {
        int64_t size = y->rank == 0 ? (int64_t)onnx_elements(x) : x->dims[start + i];
        fold_set(s, i, size, (double)size);
    }
}

static void fold_gather(onnx_value *y, const onnx_value *x, const onnx_value *at)
{
    onnx_small *s = x->small && at->small && x->rank == 1 ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count; i++) {
        int64_t k = i < at->small->count ? at->small->whole[i] : 0;
        k = k < 0 ? k + x->small->count : k;
        if (k >= 0 && k < x->small->count)
            fold_set(s, i, x->small->whole[k], x->small->real[k]);
    }
}

static void fold_concat(onnx *o, const onnx_node *n, onnx_value *y)
{
    for (uint32_t k = 0; k < n->input_count; k++)
        if (!onnx_in(o, n, k) || !onnx_in(o, n, k)->small || onnx_in(o, n, k)->rank != 1)
            return;
    onnx_small *s = fold_begin(y);
    uint32_t at = 0;
    for (uint32_t k = 0; s && k < n->input_count; k++) {
        const onnx_small *part = onnx_in(o, n, k)->small;
        for (uint32_t i = 0; i < part->count && at < s->count; i++, at++)
            fold_set(s, at, part->whole[i], part->real[i]);
    }
}

/* A view of x with a first element and a step for each axis of y. */
static void fold_view(onnx_value *y, const onnx_value *x, int64_t first, const int64_t *steps)
{
    onnx_small *s = x->small && y->rank >= 0 ? fold_begin(y) : NULL;
    int64_t place[ONNX_RANK] = {0};
    for (uint32_t i = 0; s && i < s->count; i++) {
        int64_t at = first;
        for (int k = 0; k < y->rank; k++)
            at += place[k] * steps[k];
        if (at >= 0 && at < x->small->count)
            fold_set(s, i, x->small->whole[at], x->small->real[at]);
        for (int k = y->rank - 1; k >= 0 && ++place[k] == y->dims[k]; k--)
            place[k] = 0;
    }
}

/* How far apart neighbours along each axis are. */
static void fold_strides(const onnx_value *x, int64_t *strides)
{
    int64_t stride = 1;
    for (int k = x->rank - 1; k >= 0; k--) {
        strides[k] = stride;
        stride *= x->dims[k] < ONNX_SMALL ? x->dims[k] : ONNX_SMALL;
    }
}

/* The numbers of an input or, in older operator sets, of an attribute. */
static int fold_numbers(onnx *o, const onnx_node *n, uint32_t input, const char *attribute, int64_t *list)
{
    const onnx_value *value = onnx_in(o, n, input);
    if (!value)
        return onnx_ints(n, attribute, list);
    if (!value->small)
        return -1;
    memcpy(list, value->small->whole, sizeof value->small->whole);
    return (int)value->small->count;
}

static void fold_slice(onnx *o, const onnx_node *n, onnx_value *y)
{
    const onnx_value *x = onnx_in(o, n, 0);
    int64_t strides[ONNX_RANK] = {0}, starts[ONNX_SMALL], axes[ONNX_SMALL], steps[ONNX_SMALL], first = 0;
    if (!x->small || x->rank < 1 || y->rank != x->rank)
        return;
    int count = fold_numbers(o, n, 1, "starts", starts), axis_count = fold_numbers(o, n, 3, "axes", axes);
    int step_count = fold_numbers(o, n, 4, "steps", steps);
    fold_strides(x, strides);
    for (int i = 0; i < count; i++) {
        int64_t axis = i < axis_count ? axes[i] : i, step = i < step_count ? steps[i] : 1;
        axis = axis < 0 ? axis + x->rank : axis;
        if (axis < 0 || axis >= x->rank || step > ONNX_SMALL || step < -INT32_MAX)
            return;
        int64_t size = x->dims[axis], at = starts[i];
        at = at < 0 && at >= -size ? at + size : at;
        at = at < 0 ? 0 : at > size - 1 ? (step < 0 ? size - 1 : size) : at;
        first += at * strides[axis];
        strides[axis] *= step;
    }
    fold_view(y, x, first, strides);
}

static void fold_transpose(const onnx_node *n, onnx_value *y, const onnx_value *x)
{
    int64_t strides[ONNX_RANK] = {0}, order[ONNX_SMALL], turned[ONNX_RANK] = {0};
    int count = onnx_ints(n, "perm", order);
    if (!x->small || y->rank != x->rank)
        return;
    fold_strides(x, strides);
    for (int i = 0; i < x->rank; i++) {
        int64_t from = count == x->rank ? order[i] : x->rank - 1 - i;
        if (from < 0 || from >= x->rank)
            return;
        turned[i] = strides[from];
    }
    fold_view(y, x, 0, turned);
}

static int64_t arithmetic(char kind, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool bad = false;
    switch (kind) {
    case '+':
        bad = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        bad = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        bad = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        result = b == 0 || (a == INT64_MIN && b == -1) ? 0 : a / b;
        break;
    case '=':
        return a == b;
    case '>':
        return a > b;
    case '<':
        return a < b;
    }
    return bad ? 0 : result;
}

static double arithmetic_real(char kind, double a, double b)
{
    return kind == '+'   ? a + b
           : kind == '-' ? a - b
           : kind == '*' ? a * b
           : kind == '/' ? a / b
           : kind == '=' ? a == b
           : kind == '>' ? a > b
                         : a < b;
}

/* Lists of one length, or one of them a single number. */
static void fold_arithmetic(char kind, onnx_value *y, const onnx_value *a, const onnx_value *b)
{
    onnx_small *s = a->small && b->small ? fold_begin(y) : NULL;
    if (!s || (a->small->count != 1 && a->small->count != s->count) ||
        (b->small->count != 1 && b->small->count != s->count))
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t ia = a->small->count == 1 ? 0 : i, ib = b->small->count == 1 ? 0 : i;
        double real = arithmetic_real(kind, a->small->real[ia], b->small->real[ib]);
        fold_set(s, i,
                 is_real(a->type) ? whole_of(real)
                                  : arithmetic(kind, a->small->whole[ia], b->small->whole[ib]),
                 real);
    }
    for (uint32_t i = 0; i < s->count && !is_real(a->type); i++)
        s->real[i] = (double)s->whole[i];
}

static void fold_rounded(onnx_value *y, const onnx_value *x, double (*round_to)(double))
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count && i < x->small->count; i++)
        fold_set(s, i, whole_of(round_to(x->small->real[i])), round_to(x->small->real[i]));
}

static void fold_product(onnx_value *y, const onnx_value *x)
{
    onnx_small *s = x->small && y->rank >= 0 && onnx_elements(y) == 1 ? fold_begin(y) : NULL;
    int64_t product = 1;
    for (uint32_t i = 0; s && i < x->small->count; i++)
        product = arithmetic('*', product, x->small->whole[i]);
    if (s)
        fold_set(s, 0, product, (double)product);
}

static void fold_unary(const onnx_node *n, onnx_value *y, const onnx_value *x)
{
    static const char *const copies[] = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"};
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++)
        if (format_text_is(n->type, copies[i]))
            fold_copy(y, x);
    if (format_text_is(n->type, "Shape") || format_text_is(n->type, "Size"))
        fold_shape(y, x, onnx_int(n, "start", 0));
    else if (format_text_is(n->type, "Floor"))
        fold_rounded(y, x, floor);
    else if (format_text_is(n->type, "Ceil"))
        fold_rounded(y, x, ceil);
    else if (format_text_is(n->type, "Sqrt"))
        fold_rounded(y, x, sqrt);
    else if (format_text_is(n->type, "ReduceProd"))
        fold_product(y, x);
    else if (format_text_is(n->type, "Not") && x->small) {
        onnx_small *s = fold_begin(y);
        for (uint32_t i = 0; s && i < s->count; i++)
            fold_set(s, i, !x->small->whole[i], !x->small->whole[i]);
    }
}

void onnx_fold(onnx *o, const onnx_node *n)
{
    static const struct {
        const char *name;
        char kind;
    } pairs[] = {{"Add", '+'},   {"Sub", '-'},     {"Mul", '*'}, {"Div", '/'},
                 {"Equal", '='}, {"Greater", '>'}, {"Less", '<'}};
    onnx_value *y = onnx_out(o, n, 0), *a = onnx_in(o, n, 0), *b = onnx_in(o, n, 1);
    if (!y || !a || y->small)
        return;
    if (format_text_is(n->type, "Concat"))
        fold_concat(o, n, y);
    else if (format_text_is(n->type, "Slice"))
        fold_slice(o, n, y);
    else if (format_text_is(n->type, "Transpose"))
        fold_transpose(n, y, a);
    else if (format_text_is(n->type, "Gather") && b)
        fold_gather(y, a, b);
    else
        fold_unary(n, y, a);
    for (size_t i = 0; b && i < sizeof pairs / sizeof pairs[0]; i++)
        if (format_text_is(n->type, pairs[i].name))
            fold_arithmetic(pairs[i].kind, y, a, b);
}

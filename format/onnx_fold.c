/* Numbers of small tensors, so that shapes that are computed by the model are known. */
#include <math.h>
#include <string.h>

#include "format/onnx_graph.h"

typedef enum fold_kind {
    FOLD_ADD,
    FOLD_SUB,
    FOLD_MUL,
    FOLD_DIV,
    FOLD_MOD,
    FOLD_POW,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_EQUAL,
    FOLD_GREATER,
    FOLD_LESS,
    FOLD_AT_LEAST,
    FOLD_AT_MOST,
    FOLD_AND,
    FOLD_OR
} fold_kind;

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

static bool is_real(int type)
{
    return type == ONNX_FLOAT || type == ONNX_DOUBLE || type == ONNX_HALF || type == ONNX_BFLOAT16;
}

static void fold_copy(onnx_value *y, const onnx_value *x)
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    if (!s || s->count != x->small->count)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        fold_set(s, i, is_real(x->type) ? onnx_whole(x->small->real[i]) : x->small->whole[i],
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

/* Along the first axis. */
static void fold_gather(onnx_value *y, const onnx_value *x, const onnx_value *at)
{
    onnx_small *s = x->small && at->small && x->rank >= 1 && x->dims[0] > 0 ? fold_begin(y) : NULL;
    const uint32_t row = s ? x->small->count / (uint32_t)x->dims[0] : 0;
    for (uint32_t i = 0; s && row && i < s->count; i++) {
        int64_t k = i / row < at->small->count ? at->small->whole[i / row] : 0;
        k = k < 0 ? k + x->dims[0] : k;
        if (k >= 0 && k < x->dims[0])
            fold_set(s, i, x->small->whole[k * row + i % row], x->small->real[k * row + i % row]);
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

static int64_t whole_power(int64_t a, int64_t b)
{
    return onnx_whole(pow((double)a, (double)b));
}

/* The rest has the sign of the divisor, as in Python. */
static int64_t whole_rest(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    const int64_t rest = a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t arithmetic(fold_kind kind, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool bad = false;
    switch (kind) {
    case FOLD_ADD:
        bad = __builtin_add_overflow(a, b, &result);
        break;
    case FOLD_SUB:
        bad = __builtin_sub_overflow(a, b, &result);
        break;
    case FOLD_MUL:
        bad = __builtin_mul_overflow(a, b, &result);
        break;
    case FOLD_DIV:
        return b == 0 || (a == INT64_MIN && b == -1) ? 0 : a / b;
    case FOLD_MOD:
        return whole_rest(a, b);
    case FOLD_POW:
        return whole_power(a, b);
    case FOLD_MAX:
        return a > b ? a : b;
    case FOLD_MIN:
        return a < b ? a : b;
    case FOLD_EQUAL:
        return a == b;
    case FOLD_GREATER:
        return a > b;
    case FOLD_LESS:
        return a < b;
    case FOLD_AT_LEAST:
        return a >= b;
    case FOLD_AT_MOST:
        return a <= b;
    case FOLD_AND:
        return a && b;
    case FOLD_OR:
        return a || b;
    }
    return bad ? 0 : result;
}

static double arithmetic_real(fold_kind kind, double a, double b)
{
    switch (kind) {
    case FOLD_ADD:
        return a + b;
    case FOLD_SUB:
        return a - b;
    case FOLD_MUL:
        return a * b;
    case FOLD_DIV:
        return a / b;
    case FOLD_MOD:
        return fmod(a, b);
    case FOLD_POW:
        return pow(a, b);
    case FOLD_MAX:
        return a > b ? a : b;
    case FOLD_MIN:
        return a < b ? a : b;
    case FOLD_EQUAL:
        return a == b;
    case FOLD_GREATER:
        return a > b;
    case FOLD_LESS:
        return a < b;
    case FOLD_AT_LEAST:
        return a >= b;
    case FOLD_AT_MOST:
        return a <= b;
    case FOLD_AND:
        return a != 0 && b != 0;
    case FOLD_OR:
        return a != 0 || b != 0;
    }
    return 0;
}

/* Which number of `x` stands at place `i` of `y` when axes of 1 are stretched. */
static uint32_t fold_place(const onnx_value *y, uint32_t i, const onnx_value *x)
{
    uint64_t at = 0, stride = 1, rest = i;
    for (int k = y->rank - 1; k >= 0 && y->dims[k] > 0; k--) {
        const uint64_t place = rest % (uint64_t)y->dims[k];
        const int axis = k - (y->rank - x->rank);
        rest /= (uint64_t)y->dims[k];
        if (axis < 0)
            break;
        at += x->dims[axis] == 1 ? 0 : place * stride;
        stride *= (uint64_t)x->dims[axis];
    }
    return at < x->small->count ? (uint32_t)at : 0;
}

/* Whole numbers and truths follow the types: a comparison of reals is a truth. */
static void fold_arithmetic(fold_kind kind, onnx_value *y, const onnx_value *a, const onnx_value *b)
{
    onnx_small *s = a->small && b->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count; i++) {
        const uint32_t ia = fold_place(y, i, a), ib = fold_place(y, i, b);
        if (is_real(a->type)) {
            const double real = arithmetic_real(kind, a->small->real[ia], b->small->real[ib]);
            fold_set(s, i, onnx_whole(real), real);
        } else {
            const int64_t whole = arithmetic(kind, a->small->whole[ia], b->small->whole[ib]);
            fold_set(s, i, whole, (double)whole);
        }
    }
}

static void fold_where(onnx_value *y, const onnx_value *c, const onnx_value *a, const onnx_value *b)
{
    onnx_small *s = c->small && a->small && b->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count; i++) {
        const onnx_value *from = c->small->whole[fold_place(y, i, c)] ? a : b;
        const uint32_t at = fold_place(y, i, from);
        fold_set(s, i, from->small->whole[at], from->small->real[at]);
    }
}

static void fold_expand(onnx_value *y, const onnx_value *x)
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count; i++) {
        const uint32_t at = fold_place(y, i, x);
        fold_set(s, i, x->small->whole[at], x->small->real[at]);
    }
}

static void fold_range(onnx_value *y, const onnx_value *from, const onnx_value *step)
{
    onnx_small *s = from->small && step->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count; i++) {
        const double real = from->small->real[0] + i * step->small->real[0];
        fold_set(s, i, onnx_whole(real), real);
    }
}

/* Places of what is not 0, a row for each axis. */
static void fold_nonzero(onnx_value *y, const onnx_value *x)
{
    onnx_small *s = x->small && y->rank == 2 ? fold_begin(y) : NULL;
    const uint32_t found = s ? (uint32_t)y->dims[1] : 0;
    for (uint32_t i = 0, column = 0; found && i < x->small->count && column < found; i++) {
        uint64_t rest = i;
        if (x->small->real[i] == 0)
            continue;
        for (int k = (int)y->dims[0] - 1; k >= 0; k--) {
            const int64_t size = x->rank ? x->dims[k] : 1, place = (int64_t)(rest % (uint64_t)size);
            rest /= (uint64_t)size;
            fold_set(s, (uint32_t)k * found + column, place, (double)place);
        }
        column++;
    }
}

/* Parts of a list, one after the other. */
static void fold_split(onnx *o, const onnx_node *n, const onnx_value *x)
{
    int64_t at = 0;
    for (uint32_t k = 0; k < n->output_count && x->small && x->rank == 1; k++) {
        onnx_value *y = onnx_out(o, n, k);
        if (!y || y->rank != 1)
            return;
        onnx_small *s = fold_begin(y);
        for (uint32_t i = 0; s && i < s->count && at + i < x->small->count; i++)
            fold_set(s, i, x->small->whole[at + i], x->small->real[at + i]);
        at += y->dims[0];
    }
}

static void fold_rounded(onnx_value *y, const onnx_value *x, double (*round_to)(double))
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count && i < x->small->count; i++)
        fold_set(s, i, onnx_whole(round_to(x->small->real[i])), round_to(x->small->real[i]));
}

/* All numbers put together to one. */
static void fold_all(fold_kind kind, onnx_value *y, const onnx_value *x)
{
    const bool fits = x->small && x->small->count && y->rank >= 0 && onnx_elements(y) == 1;
    onnx_small *s = fits ? fold_begin(y) : NULL;
    double real = s ? x->small->real[0] : 0;
    int64_t whole = s ? x->small->whole[0] : 0;
    for (uint32_t i = 1; s && i < x->small->count; i++) {
        real = arithmetic_real(kind, real, x->small->real[i]);
        whole = arithmetic(kind, whole, x->small->whole[i]);
    }
    if (s)
        fold_set(s, 0, is_real(x->type) ? onnx_whole(real) : whole, is_real(x->type) ? real : (double)whole);
}

static double reciprocal(double real)
{
    return 1 / real;
}

static void fold_negative(onnx_value *y, const onnx_value *x, bool always)
{
    onnx_small *s = x->small ? fold_begin(y) : NULL;
    for (uint32_t i = 0; s && i < s->count && i < x->small->count; i++) {
        const bool turns = always || x->small->real[i] < 0;
        fold_set(s, i, turns ? arithmetic(FOLD_SUB, 0, x->small->whole[i]) : x->small->whole[i],
                 turns ? -x->small->real[i] : x->small->real[i]);
    }
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
    else if (format_text_is(n->type, "Reciprocal"))
        fold_rounded(y, x, reciprocal);
    else if (format_text_is(n->type, "ReduceProd"))
        fold_all(FOLD_MUL, y, x);
    else if (format_text_is(n->type, "ReduceSum"))
        fold_all(FOLD_ADD, y, x);
    else if (format_text_is(n->type, "ReduceMax"))
        fold_all(FOLD_MAX, y, x);
    else if (format_text_is(n->type, "ReduceMin"))
        fold_all(FOLD_MIN, y, x);
    else if (format_text_is(n->type, "Neg") || format_text_is(n->type, "Abs"))
        fold_negative(y, x, n->type.bytes[0] == 'N');
    else if (format_text_is(n->type, "Expand"))
        fold_expand(y, x);
    else if (format_text_is(n->type, "NonZero"))
        fold_nonzero(y, x);
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
        fold_kind kind;
    } pairs[] = {{"Add", FOLD_ADD},
                 {"Sub", FOLD_SUB},
                 {"Mul", FOLD_MUL},
                 {"Div", FOLD_DIV},
                 {"Mod", FOLD_MOD},
                 {"Pow", FOLD_POW},
                 {"Max", FOLD_MAX},
                 {"Min", FOLD_MIN},
                 {"Equal", FOLD_EQUAL},
                 {"Greater", FOLD_GREATER},
                 {"Less", FOLD_LESS},
                 {"GreaterOrEqual", FOLD_AT_LEAST},
                 {"LessOrEqual", FOLD_AT_MOST},
                 {"And", FOLD_AND},
                 {"Or", FOLD_OR}};
    onnx_value *y = onnx_out(o, n, 0), *a = onnx_in(o, n, 0), *b = onnx_in(o, n, 1), *c = onnx_in(o, n, 2);
    if (!y || !a || y->small)
        return;
    if (format_text_is(n->type, "Concat"))
        fold_concat(o, n, y);
    else if (format_text_is(n->type, "Slice"))
        fold_slice(o, n, y);
    else if (format_text_is(n->type, "Transpose"))
        fold_transpose(n, y, a);
    else if (format_text_is(n->type, "Split"))
        fold_split(o, n, a);
    else if (format_text_is(n->type, "Gather") && b && onnx_int(n, "axis", 0) == 0)
        fold_gather(y, a, b);
    else if (format_text_is(n->type, "Where") && b && c)
        fold_where(y, a, b, c);
    else if (format_text_is(n->type, "Range") && c)
        fold_range(y, a, c);
    else
        fold_unary(n, y, a);
    for (size_t i = 0; n->input_count == 2 && b && i < sizeof pairs / sizeof pairs[0]; i++)
        if (format_text_is(n->type, pairs[i].name))
            fold_arithmetic(pairs[i].kind, y, a, b);
}

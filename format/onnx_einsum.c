/* The shape of an Einsum: letters of its equation stand for axes, "..." for any number of them.
 *
 * Both kinds have a place in one table: 'a' .. 'z' and 'A' .. 'Z' first, then the axes of "..." counted from the last. */
#include <ctype.h>
#include <string.h>

#include "format/onnx_graph.h"

enum { LETTERS = 128, AXES = LETTERS + ONNX_RANK };

typedef struct einsum {
    int64_t sizes[AXES]; /* -1: not seen */
    uint8_t uses[LETTERS];
    int dots; /* the most axes that "..." stood for */
} einsum;

/* The next sign of the equation: a letter, '.', ',' or '>', 0 at the end, 1 for what it cannot have. */
static char einsum_sign(format_text text, size_t *at)
{
    while (*at < text.length && text.bytes[*at] == ' ')
        ++*at;
    if (*at == text.length)
        return 0;
    const char c = text.bytes[(*at)++];
    const size_t left = text.length - *at;
    if (isalpha((unsigned char)c) || c == ',')
        return c;
    if (c == '.' && left >= 2 && memcmp(text.bytes + *at, "..", 2) == 0) {
        *at += 2;
        return '.';
    }
    if (c == '-' && left && text.bytes[*at] == '>') {
        ++*at;
        return '>';
    }
    return 1;
}

static bool einsum_meet(int64_t *size, int64_t other)
{
    if (*size < 0 || *size == 1)
        *size = other;
    return *size == other || other == 1;
}

/* The term of one input; *at ends behind the sign that closed it, which is given back; 1: the input does not fit. */
static char einsum_term(einsum *e, format_text text, size_t *at, const onnx_value *x)
{
    char signs[ONNX_RANK + 1], sign;
    int count = 0, dots = -1;
    while ((sign = einsum_sign(text, at)) != 0 && sign != ',' && sign != '>') {
        if (sign == 1 || count > ONNX_RANK || (sign == '.' && dots >= 0))
            return 1;
        if (sign == '.')
            dots = count;
        else if (count == ONNX_RANK)
            return 1;
        signs[count++] = sign;
    }
    const int letters = count - (dots >= 0), open = x->rank - letters;
    if (open < 0 || (dots < 0 && open))
        return 1;
    for (int i = 0, axis = 0; i < count; i++) {
        if (signs[i] != '.') {
            const unsigned char letter = (unsigned char)signs[i];
            e->uses[letter] = (uint8_t)(e->uses[letter] + (e->uses[letter] < 2));
            if (!einsum_meet(&e->sizes[letter], x->dims[axis++]))
                return 1;
            continue;
        }
        for (int k = open; k-- > 0;)
            if (!einsum_meet(&e->sizes[LETTERS + k], x->dims[axis++]))
                return 1;
        e->dots = open > e->dots ? open : e->dots;
    }
    return sign;
}

static bool einsum_add(onnx_value *y, int64_t size)
{
    if (y->rank == ONNX_RANK || size < 0)
        return false;
    y->dims[y->rank++] = size;
    return true;
}

static bool einsum_add_dots(const einsum *e, onnx_value *y)
{
    for (int k = e->dots; k-- > 0;)
        if (!einsum_add(y, e->sizes[LETTERS + k]))
            return false;
    return true;
}

/* What the equation says comes out; without it, "..." and the letters that are there once, in their order. */
static bool einsum_result(const einsum *e, format_text text, size_t at, bool said, onnx_value *y)
{
    char sign;
    if (!said) {
        bool fine = einsum_add_dots(e, y);
        for (int letter = 0; letter < LETTERS && fine; letter++)
            if (e->uses[letter] == 1)
                fine = einsum_add(y, e->sizes[letter]);
        return fine;
    }
    while ((sign = einsum_sign(text, &at)) != 0) {
        const bool fine = sign == '.'                         ? einsum_add_dots(e, y)
                          : isalpha((unsigned char)sign) != 0 ? einsum_add(y, e->sizes[(unsigned char)sign])
                                                              : false;
        if (!fine)
            return false;
    }
    return true;
}

bool onnx_infer_einsum(onnx *o, const onnx_node *n)
{
    if (!format_text_is(n->type, "Einsum"))
        return false;
    const format_text text = onnx_words(n, "equation");
    onnx_value *y = onnx_out(o, n, 0), result = {.rank = 0};
    einsum e = {.dots = 0};
    size_t at = 0;
    char sign = ',';
    for (int i = 0; i < AXES; i++)
        e.sizes[i] = -1;
    for (uint32_t i = 0; i < n->input_count; i++) {
        const onnx_value *x = onnx_in(o, n, i);
        if (!x || x->rank < 0 || sign != ',')
            return true;
        sign = einsum_term(&e, text, &at, x);
        result.type = result.type ? result.type : x->type;
    }
    if (y && sign != ',' && sign != 1 && n->input_count && einsum_result(&e, text, at, sign == '>', &result))
        *y = result;
    return true;
}

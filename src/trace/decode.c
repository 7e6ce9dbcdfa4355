/* The bytes of a chunk back into events. */
#include "trace/decode.h"

/* ---- Events ---------------------------------------------------------------------------------------- */

static const unsigned char *take_address(const unsigned char *at, const unsigned char *end,
                                         berth__trace_state *s, const berth__trace_recent *recent)
{
    uint64_t n;
    at = berth__trace_take(at, end, &n);
    if (!at)
        return NULL;
    if (n < BERTH__TRACE_RECENT) {
        s->address = recent->address[(recent->next - 1 - (uint32_t)n) % BERTH__TRACE_RECENT];
        return at;
    }
    if (n == BERTH__TRACE_RECENT)
        return berth__trace_take(at, end, &s->address);
    n -= BERTH__TRACE_RECENT + 1;
    uint64_t steps = berth__trace_unzigzag(n >> 1);
    s->address += n & 1 ? steps : steps << 4;
    return at;
}

/* A number that fits 32 bits. */
static const unsigned char *take_small(const unsigned char *at, const unsigned char *end, uint32_t *out)
{
    uint64_t n;
    at = berth__trace_take(at, end, &n);
    if (!at || n > UINT32_MAX)
        return NULL;
    *out = (uint32_t)n;
    return at;
}

static const unsigned char *take_context(const unsigned char *at, const unsigned char *end,
                                         berth__trace_state *s)
{
    uint64_t zero;
    at = berth__trace_take(at, end, &zero);
    if (at)
        at = take_small(at, end, &s->device);
    if (at)
        at = berth__trace_take(at, end, &s->stream);
    return at ? take_small(at, end, &s->label) : NULL;
}

static const unsigned char *take_alloc(const unsigned char *at, const unsigned char *end, unsigned char tag,
                                       berth__trace_state *s, berth_trace_event *e)
{
    if (!(tag & BERTH__TRACE_SAME_SIZE))
        at = berth__trace_take(at, end, &s->size);
    if (at && !(tag & BERTH__TRACE_SAME_STACK))
        at = take_small(at, end, &s->stack);
    if (at)
        at = take_address(at, end, s, &s->freed);
    if (!at)
        return NULL;
    berth__trace_remember(&s->allocated, s->address);
    e->address = s->address;
    e->size_bytes = s->size;
    e->stack = s->stack;
    if (tag & BERTH__TRACE_HAS_ID) {
        uint64_t step;
        at = berth__trace_take(at, end, &step);
        if (at)
            e->id = s->id += berth__trace_unzigzag(step) + 1;
    }
    return at;
}

static const unsigned char *take_sized(const unsigned char *at, const unsigned char *end, bool has_stack,
                                       berth_trace_event *e)
{
    at = berth__trace_take(at, end, &e->size_bytes);
    return at && has_stack ? take_small(at, end, &e->stack) : at;
}

static const unsigned char *take_body(const unsigned char *at, const unsigned char *end, unsigned char tag,
                                      berth__trace_state *s, berth_trace_event *e)
{
    switch (tag & 15) {
    case BERTH_TRACE_ALLOC:
        return take_alloc(at, end, tag, s, e);
    case BERTH_TRACE_FREE:
    case BERTH_TRACE_USE:
        at = take_address(at, end, s, &s->allocated);
        e->address = s->address;
        if (at && (tag & 15) == BERTH_TRACE_FREE)
            berth__trace_remember(&s->freed, s->address);
        return at;
    case BERTH_TRACE_MAP:
    case BERTH_TRACE_UNMAP: {
        bool is_map = (tag & 15) == BERTH_TRACE_MAP;
        at = take_sized(at, end, is_map, e);
        if (at)
            at = take_address(at, end, s, is_map ? &s->freed : &s->allocated);
        e->address = s->address;
        return at;
    }
    case BERTH_TRACE_FAIL:
        s->refusals++;
        return take_sized(at, end, true, e);
    case BERTH_TRACE_CAPACITY:
        return take_sized(at, end, false, e);
    case BERTH_TRACE_MARK:
        return at;
    default:
        return NULL;
    }
}

bool berth__trace_decode(const unsigned char **at, const unsigned char *end, berth__trace_state *s,
                         berth_trace_event *e)
{
    const unsigned char *next = *at;
    while (next && next < end && *next == BERTH__TRACE_CONTEXT)
        next = take_context(next + 1, end, s);
    if (!next || next >= end)
        return false;
    unsigned char tag = *next++;
    uint64_t passed;
    next = berth__trace_take(next, end, &passed);
    if (!next)
        return false;
    *e = (berth_trace_event){.struct_size = sizeof *e, .kind = (berth_trace_kind)(tag & 15)};
    next = take_body(next, end, tag, s, e);
    if (!next)
        return false;
    s->tick += passed;
    e->device = s->device;
    e->stream = s->stream;
    e->label = s->label;
    *at = next;
    return true;
}

/* ---- Columns --------------------------------------------------------------------------------------- */

enum column { TAG, TICK, SIZE, STACK, ADDRESS, FREED, OTHER };

/* In which columns the numbers behind tag and ticks stand, in their order; how many there are, -1 for a tag that is
 * none. */
static int columns_of(unsigned char tag, unsigned char columns[4])
{
    int n = 0;
    switch (tag & 15) {
    case BERTH_TRACE_ALLOC:
        if (!(tag & BERTH__TRACE_SAME_SIZE))
            columns[n++] = SIZE;
        if (!(tag & BERTH__TRACE_SAME_STACK))
            columns[n++] = STACK;
        columns[n++] = ADDRESS;
        if (tag & BERTH__TRACE_HAS_ID)
            columns[n++] = OTHER;
        return n;
    case BERTH_TRACE_FREE:
    case BERTH_TRACE_USE:
        columns[n++] = FREED;
        return n;
    case BERTH_TRACE_MAP:
        columns[n++] = SIZE;
        columns[n++] = STACK;
        columns[n++] = ADDRESS;
        return n;
    case BERTH_TRACE_UNMAP:
        columns[n++] = SIZE;
        columns[n++] = FREED;
        return n;
    case BERTH_TRACE_FAIL:
        columns[n++] = SIZE;
        columns[n++] = STACK;
        return n;
    case BERTH_TRACE_CAPACITY:
        columns[n++] = SIZE;
        return n;
    case BERTH_TRACE_MARK:
        return 0;
    case BERTH__TRACE_CONTEXT:
        columns[n++] = OTHER;
        columns[n++] = OTHER;
        columns[n++] = OTHER;
        return n;
    default:
        return -1;
    }
}

/* Where each column is read or written. */
struct cursors {
    const unsigned char *from[BERTH__TRACE_COLUMNS], *from_end[BERTH__TRACE_COLUMNS];
    unsigned char *to[BERTH__TRACE_COLUMNS];
};

/* Moves one number from its place on one side to the other's; an address that says "absolute" brings a second one. */
static bool move_number(const unsigned char **from, const unsigned char *end, unsigned char **to,
                        const unsigned char *to_end, bool is_address)
{
    uint64_t n;
    const unsigned char *next = berth__trace_take(*from, end, &n);
    if (next && is_address && n == BERTH__TRACE_RECENT)
        next = berth__trace_take(next, end, &n);
    if (!next || next - *from > to_end - *to)
        return false;
    memcpy(*to, *from, (size_t)(next - *from));
    *to += next - *from;
    *from = next;
    return true;
}

static bool row_to_columns(const unsigned char **from, const unsigned char *end, struct cursors *c,
                           const unsigned char *to_end)
{
    unsigned char columns[4];
    unsigned char tag = *(*from)++;
    int n = columns_of(tag, columns);
    if (n < 0)
        return false;
    *c->to[TAG]++ = tag;
    bool ok = move_number(from, end, &c->to[TICK], to_end, false);
    for (int i = 0; ok && i < n; i++)
        ok = move_number(from, end, &c->to[columns[i]], to_end, columns[i] == ADDRESS || columns[i] == FREED);
    return ok;
}

/* Rows are walked twice: for the columns' lengths, then to move the numbers. In the first walk every column is written
 * to one place, which is large enough for any, and only its length counts. */
size_t berth__trace_to_columns(const unsigned char *from, size_t size_bytes, unsigned char *to)
{
    const unsigned char *end = from + size_bytes;
    unsigned char *body = to + BERTH__TRACE_COLUMNS_EXTRA;
    uint32_t lengths[BERTH__TRACE_COLUMNS] = {0};
    struct cursors c = {0};
    for (const unsigned char *at = from; at < end;) {
        for (int i = 0; i < BERTH__TRACE_COLUMNS; i++)
            c.to[i] = body;
        if (!row_to_columns(&at, end, &c, body + size_bytes))
            return 0;
        for (int i = 0; i < BERTH__TRACE_COLUMNS; i++)
            lengths[i] += (uint32_t)(c.to[i] - body);
    }
    for (int i = 0; i < BERTH__TRACE_COLUMNS; i++) {
        c.to[i] = body;
        body += lengths[i];
    }
    memcpy(to, lengths, sizeof lengths);
    for (const unsigned char *at = from; at < end;)
        if (!row_to_columns(&at, end, &c, body))
            return 0;
    return (size_t)(body - to);
}

static bool row_from_columns(struct cursors *c, unsigned char **to, const unsigned char *to_end)
{
    unsigned char columns[4];
    unsigned char tag = *c->from[TAG]++;
    int n = columns_of(tag, columns);
    if (n < 0 || *to == to_end)
        return false;
    *(*to)++ = tag;
    bool ok = move_number(&c->from[TICK], c->from_end[TICK], to, to_end, false);
    for (int i = 0; ok && i < n; i++)
        ok = move_number(&c->from[columns[i]], c->from_end[columns[i]], to, to_end,
                         columns[i] == ADDRESS || columns[i] == FREED);
    return ok;
}

size_t berth__trace_from_columns(const unsigned char *from, size_t size_bytes, unsigned char *to, size_t room)
{
    uint32_t lengths[BERTH__TRACE_COLUMNS];
    if (size_bytes < BERTH__TRACE_COLUMNS_EXTRA)
        return 0;
    memcpy(lengths, from, sizeof lengths);
    const unsigned char *end = from + size_bytes;
    struct cursors c = {0};
    from += BERTH__TRACE_COLUMNS_EXTRA;
    for (int i = 0; i < BERTH__TRACE_COLUMNS; i++) {
        if (lengths[i] > (size_t)(end - from))
            return 0;
        c.from[i] = from;
        c.from_end[i] = from += lengths[i];
    }
    unsigned char *at = to;
    while (c.from[TAG] < c.from_end[TAG])
        if (!row_from_columns(&c, &at, to + room))
            return 0;
    return (size_t)(at - to);
}

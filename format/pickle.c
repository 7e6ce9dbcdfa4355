/* Python's pickles as plain values: a machine with a stack, whose objects belong to the pickle. */
#include "format/pickle_machine.h"

#include <stdlib.h>

enum { PROGRESS_EVERY = 1 << 20 };

/* ---- Rare instructions --------------------------------------------------------------------------------- */

/* Classes and what they would make: nothing of it is done. False: it is none of these. */
static bool step_class(format_pickle *p, unsigned char code)
{
    switch (code) {
    case 'c': /* a module and a name */
        if (format_pickle_skip_lines(p, 2))
            (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return true;
    case 'P':
        if (format_pickle_skip_lines(p, 1))
            (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return true;
    case 'i':
        if (!format_pickle_skip_lines(p, 2))
            return true;
        __attribute__((fallthrough));
    case 'o':
        (void)pickle_pop_mark(p);
        if (!p->over)
            (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return true;
    case 0x93:
    case 'R':
    case 0x81:
        format_pickle_replace(p, 2);
        return true;
    case 0x92:
        format_pickle_replace(p, 3);
        return true;
    case 'Q':
        format_pickle_replace(p, 1);
        return true;
    case 'b':
        if (pickle_has(p, 2))
            p->depth--;
        return true;
    case 0x82:
    case 0x83:
    case 0x84: /* an extension's number, of 1, 2 or 4 bytes */
        (void)pickle_take(p, UINT64_C(1) << (code - 0x82));
        (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return true;
    case 0x97:
        (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return true;
    case 0x98:
        return true;
    default:
        return false;
    }
}

static void pop_one(format_pickle *p)
{
    if (p->fence && p->depth == p->fence)
        (void)pickle_pop_mark(p);
    else if (pickle_has(p, 1))
        p->depth--;
}

static void push_again(format_pickle *p)
{
    if (!pickle_has(p, 1))
        return;
    format_pickle_value value = p->stack[p->depth - 1];
    if (pickle_is_object(&value))
        value.as.object->shared = true;
    pickle_push(p, value);
}

static bool step_stack(format_pickle *p, unsigned char code)
{
    switch (code) {
    case 0x80: /* the protocol */
        (void)pickle_take(p, 1);
        return true;
    case 0x95: /* a frame's length */
        (void)pickle_take(p, 8);
        return true;
    case '0':
        pop_one(p);
        return true;
    case '1':
        (void)pickle_pop_mark(p);
        return true;
    case '2':
        push_again(p);
        return true;
    case '.':
        p->over = true;
        return true;
    default:
        return false;
    }
}

/* Numbers and texts of old protocols, and large ones. */
static bool step_value(format_pickle *p, unsigned char code)
{
    switch (code) {
    case 'I':
    case 'L':
        format_pickle_push_line_number(p);
        return true;
    case 'F':
        format_pickle_push_line_real(p);
        return true;
    case 'V':
    case 'S':
        format_pickle_push_line_text(p);
        return true;
    case 'p':
        format_pickle_memo_put(p, format_pickle_line_number(p));
        return true;
    case 'g':
        pickle_memo_get(p, format_pickle_line_number(p));
        return true;
    case 0x8b:
        format_pickle_push_long(p, pickle_take_4(p));
        return true;
    case 0x8d:
    case 0x8e:
    case 0x96:
        format_pickle_push_text(p, pickle_take_8(p));
        return true;
    default:
        return false;
    }
}

static bool step_collection(format_pickle *p, unsigned char code)
{
    switch (code) {
    case 'a':
        format_pickle_fill_one(p, 1);
        return true;
    case 's':
        format_pickle_fill_one(p, 2);
        return true;
    case 'l':
    case 't':
    case 0x91:
        format_pickle_collect(p, FORMAT_PICKLE_LIST);
        return true;
    case 'd':
        format_pickle_collect(p, FORMAT_PICKLE_DICT);
        return true;
    case 0x85:
    case 0x86:
    case 0x87:
        format_pickle_collect_some(p, code - 0x84u);
        return true;
    default:
        return false;
    }
}

static void step_rarely(format_pickle *p, unsigned char code)
{
    if (!step_value(p, code) && !step_collection(p, code) && !step_stack(p, code) && !step_class(p, code))
        pickle_fail(p, "it has an instruction that no pickle has");
}

/* ---- The machine -------------------------------------------------------------------------------------- */

/* What snapshots consist of stands here, all else in the functions above. */
static inline void step(format_pickle *p, unsigned char code)
{
    switch (code) {
    case 'h':
        pickle_memo_get(p, pickle_take_1(p));
        return;
    case 'j':
        pickle_memo_get(p, pickle_take_4(p));
        return;
    case 'K':
        pickle_push_number(p, pickle_take_1(p));
        return;
    case 'M':
        pickle_push_number(p, pickle_take_2(p));
        return;
    case 'J':
        pickle_push_number(p, (int32_t)pickle_take_4(p));
        return;
    case 0x8a:
        pickle_push_short_long(p, pickle_take_1(p));
        return;
    case 'N':
        pickle_push(p, (format_pickle_value){FORMAT_PICKLE_NONE, {0}});
        return;
    case 0x88:
    case 0x89:
        pickle_push_number(p, code == 0x88);
        return;
    case 'G':
        format_pickle_push_real(p);
        return;
    case 'U':
    case 'C':
    case 0x8c:
        format_pickle_push_text(p, pickle_take_1(p));
        return;
    case 'X':
    case 'T':
    case 'B':
        format_pickle_push_text(p, pickle_take_4(p));
        return;
    case 0x94:
        format_pickle_memo_put(p, p->memo.next);
        return;
    case 'q':
        format_pickle_memo_put(p, pickle_take_1(p));
        return;
    case 'r':
        format_pickle_memo_put(p, pickle_take_4(p));
        return;
    case '(':
        pickle_push_mark(p);
        return;
    case '}':
        if (p->fence && p->depth > p->fence && (p->depth - p->fence) % PICKLE_AHEAD == 0)
            format_pickle_fill_ahead(p);
        (void)format_pickle_push_object(p, FORMAT_PICKLE_DICT);
        return;
    case ']':
    case ')':
    case 0x8f:
        (void)format_pickle_push_object(p, FORMAT_PICKLE_LIST);
        return;
    case 'u':
        format_pickle_fill_dict(p);
        return;
    case 'e':
    case 0x90:
        format_pickle_fill_list(p);
        return;
    default:
        step_rarely(p, code);
    }
}

/* At the end, or where progress is to be told. */
static void run_pause(format_pickle *p)
{
    if (p->at == p->end) {
        pickle_fail(p, "it ends in the middle");
        return;
    }
    if (p->progress && p->at != p->start)
        p->progress(p->context, (uint64_t)(p->at - p->start), (uint64_t)(p->end - p->start));
    p->pause = p->end - p->at > PROGRESS_EVERY ? p->at + PROGRESS_EVERY : p->end;
}

static void run(format_pickle *p)
{
    while (!p->over) {
        if (p->at >= p->pause)
            run_pause(p);
        if (!p->over)
            step(p, *p->at++);
    }
}

/* ---- The whole ----------------------------------------------------------------------------------------- */

static berth_status machine_result(const format_pickle *p, format_error *error)
{
    unsigned long long at = (unsigned long long)(p->at - p->start);
    if (p->no_memory)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY,
                           "no memory for the objects of a pickle, at byte %llu", at);
    if (p->fault)
        return format_fail(error, BERTH_BAD_DATA, "the pickle is damaged at byte %llu: %s", at, p->fault);
    return BERTH_OK;
}

berth_status format_pickle_read(const void *bytes, size_t size_bytes, format_history *h,
                                format_pickle_item item, format_progress progress, void *context,
                                format_pickle **out, format_pickle_value *value, format_error *error)
{
    *out = NULL;
    format_pickle *p = calloc(1, sizeof *p);
    if (!p)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for reading a pickle");
    p->start = p->at = p->pause = bytes;
    p->end = p->start + size_bytes;
    p->history = h;
    p->item = item;
    p->progress = progress;
    p->context = context;
    run(p);
    if (p->depth == p->fence)
        pickle_fail(p, "it ends without a value");
    berth_status status = machine_result(p, error);
    if (status) {
        format_pickle_destroy(p);
        return status;
    }
    if (p->stack) /* always, by now: it ended with a value */
        *value = p->stack[p->depth - 1];
    *out = p;
    return BERTH_OK;
}

void format_pickle_destroy(format_pickle *pickle)
{
    if (!pickle)
        return;
    format_pickle_free_objects(pickle);
    free(pickle->stack);
    format_pickle_memo_finish(&pickle->memo);
    free(pickle);
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

const format_pickle_value *format_pickle_get(const struct format_pickle_object *dict, uint32_t key)
{
    for (size_t i = 0; i + 1 < dict->count; i += 2)
        if (dict->items[i].type == FORMAT_PICKLE_TEXT && dict->items[i].as.number == (int64_t)key)
            return &dict->items[i + 1];
    return NULL;
}

int64_t format_pickle_number(const struct format_pickle_object *dict, uint32_t key)
{
    return format_pickle_value_number(format_pickle_get(dict, key));
}

int64_t format_pickle_real_number(double real)
{
    return real > -9e18 && real < 9e18 ? (int64_t)real : 0;
}

/* The machine that reads pickles: what its files share. Nothing here is for the users of pickle.h.
 *
 *     pickle.c          the instructions, and the whole
 *     pickle_bytes.c    numbers and texts out of the file
 *     pickle_objects.c  lists and dictionaries, and who holds them
 *     pickle_memo.c     what an instruction has kept for a later one
 *
 * What each instruction does is inline: a snapshot of a gigabyte has a third of a milliard of them. */
#ifndef BERTH_FORMAT_PICKLE_MACHINE_H
#define BERTH_FORMAT_PICKLE_MACHINE_H

#include "format/pickle.h"

enum { PICKLE_SPARE_MOST = 2048, PICKLE_AHEAD = 1024 };
/* What objects may take at most: a file can ask for sixty times its size. */
#define PICKLE_BYTES_MOST ((size_t)8 << 30)

/* Picklers give numbers out one after another, and values that were dropped leave the memo: it consists of pages of neighbours, found
 * by a hash of the page's number. A page that is empty goes. */
enum { PICKLE_PAGE_BITS = 5, PICKLE_PAGE_SIZE = 1 << PICKLE_PAGE_BITS };

struct pickle_page {
    format_pickle_value values[PICKLE_PAGE_SIZE]; /* a mark: nothing is kept there */
    uint32_t count;
    struct pickle_page *next; /* among the spare ones */
};

struct pickle_memo {
    struct pickle_shelf {
        uint64_t number;
        struct pickle_page *page; /* NULL: empty */
    } * shelves;                  /* open addressing */
    unsigned shift;               /* of the hash, to a place among 1 << (64 - shift) */
    size_t mask, count;
    uint64_t next; /* what MEMOIZE gives out */
    struct pickle_page *spare;
};

struct format_pickle {
    const unsigned char *start, *at, *end;
    const unsigned char *pause; /* where to look up: the end, or progress is to be told */
    bool over;                  /* it has stopped, is damaged, or memory was refused */
    bool no_memory;
    const char *fault; /* NULL: none */
    /* A mark's number is what `fence` was below it. */
    format_pickle_value *stack;
    size_t depth, room;
    size_t fence; /* the values of the innermost mark begin here */
    struct pickle_memo memo;
    format_history *history;
    format_pickle_item item;
    format_progress progress;
    void *context;
    size_t bytes;                          /* that all of this takes */
    struct format_pickle_object **objects; /* all that are there, for the end */
    size_t object_count, object_room;
    /* Dropped ones with their room for items, for the next: a pickler appends a thousand events at once. */
    struct format_pickle_object *spare[PICKLE_SPARE_MOST];
    size_t spare_count;
};

/* ---- Ends --------------------------------------------------------------------------------------------- */

/* The file is damaged, in words. The first fault counts. */
static inline void pickle_fail(format_pickle *p, const char *words)
{
    p->fault = p->fault ? p->fault : words;
    p->over = true;
}

/* Memory was refused. Returns false. */
static inline bool pickle_refuse(format_pickle *p)
{
    p->no_memory = true;
    p->over = true;
    return false;
}

/* ---- The stack ---------------------------------------------------------------------------------------- */

/* Room for one more in an array. False: no memory, and the machine is over. */
bool format_pickle_grow(format_pickle *p, void *array, size_t wanted, size_t *room, size_t element_bytes);

static inline void pickle_push(format_pickle *p, format_pickle_value value)
{
    if (p->depth == p->room && !format_pickle_grow(p, &p->stack, p->depth + 1, &p->room, sizeof *p->stack))
        return;
    p->stack[p->depth++] = value;
}
static inline void pickle_push_number(format_pickle *p, int64_t number)
{
    pickle_push(p, (format_pickle_value){FORMAT_PICKLE_INT, {.number = number}});
}
static inline void pickle_push_mark(format_pickle *p)
{
    pickle_push(p, (format_pickle_value){FORMAT_PICKLE_MARK, {.number = (int64_t)p->fence}});
    p->fence = p->depth;
}

/* Whether `count` values stand above the innermost mark; else it is a fault. */
static inline bool pickle_has(format_pickle *p, size_t count)
{
    if (p->depth - p->fence >= count)
        return true;
    pickle_fail(p, "its stack is empty");
    return false;
}

/* Takes the innermost mark and all above it away; they stay readable until the next push. Where the mark was; the depth if there
 * is none, which is a fault. */
static inline size_t pickle_pop_mark(format_pickle *p)
{
    if (!p->fence) {
        pickle_fail(p, "it lacks a mark");
        return p->depth;
    }
    size_t mark = p->fence - 1;
    p->fence = (size_t)p->stack[mark].as.number;
    p->depth = mark;
    return mark;
}

static inline bool pickle_is_object(const format_pickle_value *v)
{
    return v->type == FORMAT_PICKLE_LIST || v->type == FORMAT_PICKLE_DICT;
}

/* ---- Objects and collections (pickle_objects.c) -------------------------------------------------------- */

/* Pushes an empty one; NULL: no memory. */
struct format_pickle_object *format_pickle_push_object(format_pickle *p, format_pickle_type type);
/* What stands above the mark goes into the collection below it. */
void format_pickle_fill_list(format_pickle *p);
void format_pickle_fill_dict(format_pickle *p);
/* Of what is to be appended to a list the first items, as long as their user deals with them. Python appends a thousand at once, the
 * pickler of PyTorch's C++ all that there are: they would wait on the stack till then. */
void format_pickle_fill_ahead(format_pickle *p);
/* One item: APPEND (1 value) and SETITEM (2). */
void format_pickle_fill_one(format_pickle *p, size_t count);
/* What stands above the mark becomes one collection. */
void format_pickle_collect(format_pickle *p, format_pickle_type type);
/* The topmost `count` values become a tuple. */
void format_pickle_collect_some(format_pickle *p, size_t count);
/* Takes `count` values and leaves an object that nobody made. */
void format_pickle_replace(format_pickle *p, size_t count);
void format_pickle_free_objects(format_pickle *p);

/* ---- The memo (pickle_memo.c) -------------------------------------------------------------------------- */

static inline size_t pickle_memo_home(const struct pickle_memo *m, uint64_t number)
{
    return (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> m->shift);
}
/* Where the page of this number stands, or would. */
static inline struct pickle_shelf *pickle_memo_shelf(const struct pickle_memo *m, uint64_t number)
{
    size_t i = pickle_memo_home(m, number);
    while (m->shelves[i].page && m->shelves[i].number != number)
        i = (i + 1) & m->mask;
    return &m->shelves[i];
}

/* For a key that is not there: its object was dropped, or it is a fault. */
void format_pickle_memo_miss(format_pickle *p, uint64_t key);

static inline void pickle_memo_get(format_pickle *p, uint64_t key)
{
    const struct pickle_page *page =
        p->memo.shelves ? pickle_memo_shelf(&p->memo, key >> PICKLE_PAGE_BITS)->page : NULL;
    const format_pickle_value *kept = page ? &page->values[key % PICKLE_PAGE_SIZE] : NULL;
    if (!kept || kept->type == FORMAT_PICKLE_MARK) {
        format_pickle_memo_miss(p, key);
        return;
    }
    if (pickle_is_object(kept))
        kept->as.object->shared = true;
    pickle_push(p, *kept);
}

/* Keeps the topmost value. */
void format_pickle_memo_put(format_pickle *p, uint64_t key);
void format_pickle_memo_forget(struct pickle_memo *m, uint64_t key);
void format_pickle_memo_finish(struct pickle_memo *m);

/* ---- Bytes (pickle_bytes.c) ---------------------------------------------------------------------------- */

static inline const unsigned char *pickle_take(format_pickle *p, uint64_t length)
{
    if (length > (uint64_t)(p->end - p->at)) {
        pickle_fail(p, "it ends in the middle");
        return NULL;
    }
    const unsigned char *bytes = p->at;
    p->at += length;
    return bytes;
}

/* Little-endian numbers; 0 at the end of the file, which is a fault. */
static inline uint8_t pickle_take_1(format_pickle *p)
{
    const unsigned char *b = pickle_take(p, 1);
    return b ? *b : 0;
}
static inline uint32_t pickle_take_2(format_pickle *p)
{
    const unsigned char *b = pickle_take(p, 2);
    return b ? b[0] | (uint32_t)b[1] << 8 : 0;
}
static inline uint32_t pickle_load_4(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t pickle_load_8(const unsigned char *b)
{
    return pickle_load_4(b) | (uint64_t)pickle_load_4(b + 4) << 32;
}
static inline uint32_t pickle_take_4(format_pickle *p)
{
    const unsigned char *b = pickle_take(p, 4);
    return b ? pickle_load_4(b) : 0;
}
static inline uint64_t pickle_take_8(format_pickle *p)
{
    const unsigned char *b = pickle_take(p, 8);
    return b ? pickle_load_8(b) : 0;
}

/* Two's complement of any length; what does not fit keeps its lowest bits. */
void format_pickle_push_long(format_pickle *p, uint64_t length);
/* The usual one, of one to eight bytes that are not the last of the file. */
static inline void pickle_push_short_long(format_pickle *p, unsigned length)
{
    if (length - 1 >= 8 || p->end - p->at < 8) {
        format_pickle_push_long(p, length);
        return;
    }
    uint64_t sign = UINT64_C(1) << (8 * length - 1);
    uint64_t n = pickle_load_8(p->at) & (sign - 1 + sign);
    p->at += length;
    pickle_push_number(p, (int64_t)((n ^ sign) - sign));
}

void format_pickle_push_text(format_pickle *p, uint64_t length);
void format_pickle_push_real(format_pickle *p);
/* What stands in a line of text, in protocol 0. */
void format_pickle_push_line_number(format_pickle *p);
void format_pickle_push_line_real(format_pickle *p);
void format_pickle_push_line_text(format_pickle *p);
uint64_t format_pickle_line_number(format_pickle *p);
/* Passes lines; false: the file ends before. */
bool format_pickle_skip_lines(format_pickle *p, unsigned count);

#endif

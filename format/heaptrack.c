/* A file of heaptrack as a history. It is text, a letter a line and numbers in hexadecimal:
 *
 *     v VERSION FORMAT    X COMMAND    s [LENGTH] TEXT    i ADDRESS MODULE (FUNCTION FILE LINE)*    t IP PARENT
 *     a SIZE TRACE        + A          - A                c MILLISECONDS
 *
 * s, i, t and a are numbered in their order, s, i and t from 1. Addresses of blocks are not in it: among the live ones of one
 * size and call stack, the youngest is taken to be the freed one. */
#include <stdlib.h>
#include <string.h>

#include "format/inputs.h"
#include "format/lines.h"

enum { INLINED_MOST = 64, FORMAT_KNOWN = 3, NOBODY = UINT32_MAX };

struct place {
    uint32_t function, file, line;
};

struct pointer {
    uint64_t address;
    uint32_t module, first, count; /* of places, the innermost first */
};

struct site {
    uint64_t size_bytes;
    uint32_t stack;
    uint32_t youngest; /* live block, NOBODY */
};

/* What grows with the file. */
struct pile {
    void *items;
    uint32_t count, room;
};

struct heaptrack_reader {
    format_history *h;
    format_bad_lines bad;
    struct pile texts, pointers, places, stacks, sites;
    struct pile older; /* by block: the live one before it of its site */
    uint64_t time_ns, version;
    bool is_raw;
};

static void *pile_add(struct heaptrack_reader *r, struct pile *p, size_t item_bytes)
{
    if (p->count == p->room) {
        uint32_t room = p->room ? p->room * 2 : 256;
        void *grown = p->room > UINT32_MAX / 4 ? NULL : realloc(p->items, room * item_bytes);
        if (!grown) {
            r->h->no_memory = true;
            return NULL;
        }
        p->items = grown;
        p->room = room;
    }
    return memset((char *)p->items + p->count++ * item_bytes, 0, item_bytes);
}

/* The next number of the line. */
static bool take(const char **at, uint64_t *number)
{
    while (**at == ' ')
        (*at)++;
    return format_lines_number(at, 16, number);
}

static bool take_index(const char **at, const struct pile *of, uint32_t *index)
{
    uint64_t number;
    if (!take(at, &number) || number > of->count)
        return false;
    *index = (uint32_t)number;
    return true;
}

static uint32_t text_of(const struct heaptrack_reader *r, uint32_t index)
{
    return index ? ((const uint32_t *)r->texts.items)[index - 1] : 0;
}

/* ---- Definitions ---------------------------------------------------------------------------------------- */

static const char *read_text(struct heaptrack_reader *r, const char *at)
{
    uint64_t length;
    if (r->version >= 3 && !take(&at, &length))
        return "the length of the text is missing";
    at += *at == ' ';
    uint32_t *text = pile_add(r, &r->texts, sizeof *text);
    if (text)
        *text = format_history_text(r->h, at, strlen(at));
    return NULL;
}

static const char *read_pointer(struct heaptrack_reader *r, const char *at)
{
    struct pointer p = {.first = r->places.count};
    uint32_t module, function, file;
    uint64_t line;
    /* One that cannot be read counts all the same: those behind it have their numbers. */
    bool right = take(&at, &p.address) && take_index(&at, &r->texts, &module);
    p.module = right ? text_of(r, module) : 0;
    while (right && p.count < INLINED_MOST && take_index(&at, &r->texts, &function)) {
        bool has_file = take_index(&at, &r->texts, &file) && take(&at, &line);
        struct place *place = pile_add(r, &r->places, sizeof *place);
        if (!place)
            break;
        *place = (struct place){text_of(r, function), has_file ? text_of(r, file) : 0,
                                has_file ? (uint32_t)line : 0};
        p.count++;
    }
    struct pointer *added = pile_add(r, &r->pointers, sizeof *added);
    if (added)
        *added = p;
    return right ? NULL : "an instruction's numbers are missing";
}

static uint32_t push_pointer(struct heaptrack_reader *r, const struct pointer *p, uint32_t caller)
{
    if (!p->count)
        return format_history_frame(
            r->h, &(format_frame){.caller = caller, .module = p->module, .address = p->address});
    for (uint32_t i = p->count; i-- > 0;) {
        const struct place *at = (const struct place *)r->places.items + p->first + i;
        caller = format_history_frame(r->h, &(format_frame){.caller = caller,
                                                            .function = at->function,
                                                            .file = at->file,
                                                            .module = p->module,
                                                            .line = at->line,
                                                            .address = p->address});
    }
    return caller;
}

static const char *read_trace(struct heaptrack_reader *r, const char *at)
{
    uint32_t pointer = 0, parent = 0;
    bool right =
        take_index(&at, &r->pointers, &pointer) && take_index(&at, &r->stacks, &parent) && pointer > 0;
    uint32_t caller = right && parent ? ((const uint32_t *)r->stacks.items)[parent - 1] : 0;
    uint32_t *stack = pile_add(r, &r->stacks, sizeof *stack);
    if (stack && right)
        *stack = push_pointer(r, (const struct pointer *)r->pointers.items + pointer - 1, caller);
    return right ? NULL : "its instruction or its parent is not known";
}

static const char *read_site(struct heaptrack_reader *r, const char *at)
{
    uint64_t size = 0;
    uint32_t trace = 0;
    bool right = take(&at, &size) && take_index(&at, &r->stacks, &trace);
    struct site *site = pile_add(r, &r->sites, sizeof *site);
    if (site)
        *site =
            (struct site){size, right && trace ? ((const uint32_t *)r->stacks.items)[trace - 1] : 0, NOBODY};
    return right ? NULL : "its size or its call stack is not known";
}

/* ---- Events --------------------------------------------------------------------------------------------- */

static struct site *take_site(const struct heaptrack_reader *r, const char *at)
{
    uint64_t number;
    return take(&at, &number) && number < r->sites.count ? (struct site *)r->sites.items + number : NULL;
}

/* A block's number is its address: there is no other. */
static const char *read_alloc(struct heaptrack_reader *r, const char *at)
{
    struct site *site = take_site(r, at);
    if (!site)
        return "what it allocates is not known";
    uint32_t block = r->older.count;
    uint32_t *older = pile_add(r, &r->older, sizeof *older);
    if (!older)
        return NULL;
    *older = site->youngest;
    site->youngest = block;
    format_history_alloc(r->h, &(format_block){.address = block,
                                               .size_bytes = site->size_bytes,
                                               .begin_ns = r->time_ns,
                                               .stack = site->stack});
    return NULL;
}

static const char *read_free(struct heaptrack_reader *r, const char *at)
{
    struct site *site = take_site(r, at);
    if (!site)
        return "what it frees is not known";
    if (site->youngest == NOBODY) {
        r->h->unknown_frees++;
        return NULL;
    }
    format_history_free(r->h, 0, 0, site->youngest, r->time_ns);
    site->youngest = ((const uint32_t *)r->older.items)[site->youngest];
    return NULL;
}

static const char *read_time(struct heaptrack_reader *r, const char *at)
{
    uint64_t ms;
    if (!take(&at, &ms) || ms > UINT64_MAX / 1000000)
        return "the time is missing";
    r->time_ns = ms * 1000000 > r->time_ns ? ms * 1000000 : r->time_ns;
    return NULL;
}

static const char *read_version(struct heaptrack_reader *r, const char *at)
{
    const uint64_t before_1_0 = 0x010200; /* has the first format without saying so */
    uint64_t of_program;
    if (!take(&at, &of_program))
        return "the version is missing";
    if (!take(&at, &r->version))
        r->version = of_program == before_1_0;
    if (r->version > FORMAT_KNOWN)
        format_history_notice(r->h, "the file has format %llu of heaptrack; up to %d are known",
                              (unsigned long long)r->version, FORMAT_KNOWN);
    return NULL;
}

static const char *heaptrack_line(struct heaptrack_reader *r, const format_lines *lines)
{
    const char *at = lines->line + (lines->length > 0);
    switch (lines->line[0]) {
    case 'v':
        return read_version(r, at);
    case 's':
        return read_text(r, at);
    case 'i':
        return read_pointer(r, at);
    case 't':
        return read_trace(r, at);
    case 'a':
        return read_site(r, at);
    case '+':
        return read_alloc(r, at);
    case '-':
        return read_free(r, at);
    case 'c':
        return read_time(r, at);
    case 'X':
        at += *at == ' ';
        format_history_process(r->h, 0, format_history_text(r->h, at, strlen(at)));
        return NULL;
    case 'x':
    case 'm':
        r->is_raw = true;
        return NULL;
    case 0:   /* empty */
    case '#': /* a remark */
    case 'A': /* heaptrack was attached to a program that ran */
    case 'I': /* pages of the system */
    case 'R': /* resident bytes */
    case 'S': /* what heaptrack is not to show */
        return NULL;
    default:
        return "its letter is not known";
    }
}

berth_status format_heaptrack_read(const char *path, format_history *h, format_progress progress,
                                   void *context, format_error *error)
{
    struct heaptrack_reader r = {.h = h};
    format_lines lines;
    bool ready = format_history_begin(h, "heaptrack");
    berth_status status = format_lines_open(&lines, path, error);
    h->has_addresses = false;
    while (ready && !status && !h->no_memory && !r.is_raw && format_lines_next(&lines)) {
        format_lines_progress(&lines, progress, context);
        const char *wrong = heaptrack_line(&r, &lines);
        if (wrong)
            format_lines_bad(&r.bad, &lines, wrong);
    }
    if (r.is_raw)
        status = format_fail(error, BERTH_BAD_DATA,
                             "%s was recorded with heaptrack --raw: finish it first (heaptrack --interpret)",
                             path);
    else if (!status && !h->no_memory && r.version == 0)
        status = format_fail(error, BERTH_BAD_DATA, "%s was written by a heaptrack before 1.0", path);
    format_lines_tell(&r.bad, h);
    free(r.texts.items);
    free(r.pointers.items);
    free(r.places.items);
    free(r.stacks.items);
    free(r.sites.items);
    free(r.older.items);
    return format_lines_end(&lines, status, path, h, error);
}

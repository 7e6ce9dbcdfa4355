/* A file of valgrind's massif as a history. It has no single blocks, only figures of some moments: the bytes of the heap, what
 * the allocator and stacks take besides, and in some of the moments who holds them, as a tree of callers.
 *
 *     a moment with a tree       one block for each call stack
 *     one without                one block for the whole heap
 *
 * A block whose size changes ends and begins anew, ends first; so the bytes alive at each moment are those of the file. */
#include <stdlib.h>
#include <string.h>

#include "format/inputs.h"
#include "format/lines.h"

enum { DEPTH_MOST = 256, HEAP = 0, EXTRA = 1, STACKS = 2, SITES_OWN = 3 };

/* Who holds bytes: three that have no stack, then one for each stack, by its number. */
struct holder {
    uint64_t now, next;
    bool listed; /* in `holders` */
};

struct massif_reader {
    format_history *h;
    format_bad_lines bad;
    struct holder *all;
    uint32_t all_count;
    uint32_t *holders; /* those that hold something now or next */
    uint32_t holder_count, holder_room;
    uint64_t time, time_unit_ns;
    uint64_t heap, extra, stacks, itemised;
    bool whole;                    /* the moment was told to its tree */
    format_frame path[DEPTH_MOST]; /* of the tree: what calls is deeper */
    uint64_t rest[DEPTH_MOST];     /* bytes of the node that no child has */
    uint32_t depth;
};

/* ---- Moments -------------------------------------------------------------------------------------------- */

static bool massif_reserve(struct massif_reader *r, uint32_t holder)
{
    if (holder >= r->all_count) {
        uint32_t count = holder < 512 ? 1024 : holder * 2;
        struct holder *grown = holder > UINT32_MAX / 4 ? NULL : realloc(r->all, count * sizeof *grown);
        if (!grown)
            return false;
        memset(grown + r->all_count, 0, (count - r->all_count) * sizeof *grown);
        r->all = grown;
        r->all_count = count;
    }
    if (r->holder_count == r->holder_room) {
        uint32_t room = r->holder_room ? r->holder_room * 2 : 256;
        uint32_t *grown = realloc(r->holders, room * sizeof *grown);
        if (!grown)
            return false;
        r->holders = grown;
        r->holder_room = room;
    }
    return true;
}

static void massif_hold(struct massif_reader *r, uint32_t holder, uint64_t bytes)
{
    if (!bytes)
        return;
    if (!massif_reserve(r, holder)) {
        r->h->no_memory = true;
        return;
    }
    struct holder *x = &r->all[holder];
    x->next = bytes > UINT64_MAX - x->next ? UINT64_MAX : x->next + bytes;
    if (!x->listed)
        r->holders[r->holder_count++] = holder;
    x->listed = true;
}

static uint32_t massif_label(struct massif_reader *r, uint32_t holder)
{
    static const char *const names[SITES_OWN] = {"heap, not itemised", "heap, the allocator's own", "stacks"};
    return holder < SITES_OWN ? format_history_text(r->h, names[holder], strlen(names[holder])) : 0;
}

/* What has changed ends, then what is there begins. */
static void massif_commit(struct massif_reader *r)
{
    if (!r->whole)
        return;
    massif_hold(r, HEAP, r->heap > r->itemised ? r->heap - r->itemised : 0);
    massif_hold(r, EXTRA, r->extra);
    massif_hold(r, STACKS, r->stacks);
    for (uint32_t i = 0; i < r->holder_count; i++) {
        const struct holder *x = &r->all[r->holders[i]];
        if (x->now && x->now != x->next)
            format_history_free(r->h, 0, 0, r->holders[i], r->time);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->holder_count; i++) {
        uint32_t number = r->holders[i];
        struct holder *x = &r->all[number];
        if (x->next && x->now != x->next)
            format_history_alloc(r->h, &(format_block){.address = number,
                                                       .size_bytes = x->next,
                                                       .begin_ns = r->time,
                                                       .stack = number < SITES_OWN ? 0 : number - SITES_OWN,
                                                       .label = massif_label(r, number)});
        x->now = x->next;
        x->next = 0;
        x->listed = x->now != 0;
        if (x->listed)
            r->holders[kept++] = number;
    }
    r->holder_count = kept;
    r->whole = false;
}

/* ---- The tree ------------------------------------------------------------------------------------------- */

/* What no child has belongs to the node itself. */
static void tree_leaf(struct massif_reader *r, uint64_t bytes)
{
    uint32_t stack = 0;
    if (!r->depth || !bytes)
        return;
    for (uint32_t i = r->depth; i-- > 0;) {
        r->path[i].caller = stack;
        stack = format_history_frame(r->h, &r->path[i]);
    }
    massif_hold(r, SITES_OWN + stack, bytes);
    r->itemised = bytes > UINT64_MAX - r->itemised ? UINT64_MAX : r->itemised + bytes;
}

static void tree_rise(struct massif_reader *r, uint32_t depth)
{
    for (; r->depth > depth; r->depth--)
        tree_leaf(r, r->rest[r->depth - 1]);
}

/* "0x10919A: mid (p.c:4)", "0x4838B0: ??? (in /usr/lib/libx.so)", or words in place of a caller. */
static format_frame tree_frame(struct massif_reader *r, const char *at)
{
    format_frame f = {0};
    if (at[0] == '0' && at[1] == 'x') {
        at += 2;
        if (!format_lines_number(&at, 16, &f.address))
            f.address = 0;
        at += strspn(at, ": ");
    }
    size_t length = strlen(at);
    const char *open = length && at[length - 1] == ')' ? strrchr(at, '(') : NULL;
    if (!open || open == at || !f.address) {
        f.function = strcmp(at, "???") == 0 ? 0 : format_history_text(r->h, at, length);
        return f;
    }
    size_t name = (size_t)(open - at) - (open[-1] == ' ');
    size_t inside = length - (size_t)(open - at) - 2;
    if (strncmp(at, "???", name) != 0)
        f.function = format_history_text(r->h, at, name);
    if (strncmp(open, "(in ", 4) == 0) {
        f.module = format_history_text(r->h, open + 4, inside - 3);
        return f;
    }
    const char *colon = memchr(open, ':', inside + 1) ? strrchr(open, ':') : NULL;
    uint64_t line = 0;
    if (colon) {
        const char *digits = colon + 1;
        if (format_lines_number(&digits, 10, &line))
            inside = (size_t)(colon - open) - 1;
    }
    f.file = format_history_text(r->h, open + 1, inside);
    f.line = (uint32_t)line;
    return f;
}

/* "  n1: 92512 0x10919A: mid (p.c:4)" */
static const char *tree_line(struct massif_reader *r, const char *line)
{
    size_t depth = strspn(line, " ");
    const char *at = line + depth + 1;
    uint64_t children, bytes;
    if (!format_lines_number(&at, 10, &children) || strncmp(at, ": ", 2) != 0)
        return "it is no node of a tree";
    at += 2;
    if (!format_lines_number(&at, 10, &bytes))
        return "the bytes of a node are missing";
    at += *at == ' ';
    if (!depth) { /* the root: malloc and its kin */
        tree_rise(r, 0);
        return NULL;
    }
    if (depth > DEPTH_MOST || depth > r->depth + 1)
        return "a node is deeper than its caller";
    tree_rise(r, (uint32_t)depth - 1);
    if (depth > 1) {
        uint64_t *above = &r->rest[depth - 2];
        *above -= bytes < *above ? bytes : *above;
    }
    r->path[depth - 1] = tree_frame(r, at);
    r->rest[depth - 1] = bytes;
    r->depth = (uint32_t)depth;
    return NULL;
}

/* ---- Lines ---------------------------------------------------------------------------------------------- */

/* The number behind "NAME=". */
static bool figure(const char *line, const char *name, uint64_t *number)
{
    size_t length = strlen(name);
    const char *at = line + length;
    return strncmp(line, name, length) == 0 && format_lines_number(&at, 10, number);
}

static void massif_begin(struct massif_reader *r)
{
    tree_rise(r, 0);
    massif_commit(r);
    r->heap = r->extra = r->stacks = r->itemised = 0;
}

static void massif_time(struct massif_reader *r, uint64_t time)
{
    time = time > UINT64_MAX / r->time_unit_ns ? UINT64_MAX : time * r->time_unit_ns;
    r->time = time > r->time ? time : r->time;
}

static const char *massif_line(struct massif_reader *r, const char *line)
{
    uint64_t number;
    if (line[strspn(line, " ")] == 'n' && r->whole)
        return tree_line(r, line);
    if (figure(line, "snapshot=", &number))
        massif_begin(r);
    else if (figure(line, "time=", &number))
        massif_time(r, number);
    else if (strncmp(line, "heap_tree=", 10) == 0)
        r->whole = true;
    else if (strncmp(line, "cmd: ", 5) == 0)
        format_history_process(r->h, 0, format_history_text(r->h, line + 5, strlen(line + 5)));
    else if (strncmp(line, "time_unit: ms", 13) == 0) {
        r->time_unit_ns = 1000000;
        r->h->has_times = true;
    } else if (!figure(line, "mem_heap_B=", &r->heap) && !figure(line, "mem_heap_extra_B=", &r->extra) &&
               !figure(line, "mem_stacks_B=", &r->stacks) && line[0] && line[0] != '#' &&
               strncmp(line, "desc:", 5) != 0 && strncmp(line, "time_unit:", 10) != 0)
        return "it is none that massif writes";
    return NULL;
}

berth_status format_massif_read(const char *path, format_history *h, format_progress progress, void *context,
                                format_error *error)
{
    struct massif_reader *r = calloc(1, sizeof *r);
    format_lines lines;
    bool ready = format_history_begin(h, "massif");
    berth_status status = format_lines_open(&lines, path, error);
    if (!r || !ready) {
        free(r);
        h->no_memory = true;
        return format_lines_end(&lines, status, path, h, error);
    }
    r->h = h;
    r->time_unit_ns = 1;
    h->has_addresses = h->has_times = false;
    while (!status && !h->no_memory && format_lines_next(&lines)) {
        format_lines_progress(&lines, progress, context);
        const char *wrong = massif_line(r, lines.line);
        if (wrong)
            format_lines_bad(&r->bad, &lines, wrong);
    }
    massif_begin(r);
    format_lines_tell(&r->bad, h);
    if (h->block_count)
        format_history_notice(h, "massif keeps figures of moments, not blocks: a block here is what one call "
                                 "stack held between two of them");
    free(r->all);
    free(r->holders);
    free(r);
    return format_lines_end(&lines, status, path, h, error);
}

/* What is the same call site or label in two recordings: functions by name and file, whatever their address and their line. */
#include <stdlib.h>
#include <string.h>

#include "cli/compare.h"

/* ---- Frames ------------------------------------------------------------------------------------------- */

/* What a frame is known by. Paths differ between two checkouts, so that only their last part counts. */
typedef struct identity {
    const char *function; /* without what the compiler appends to copies of it */
    size_t function_length;
    const char *file, *module;
    uint64_t offset; /* in the module, where no name is known */
    uint32_t frame;
    int side;
} identity;

static size_t function_length(const char *function)
{
    static const char *const appended[] = {".isra.",     ".part.", ".constprop.", ".cold",
                                           ".lto_priv.", ".llvm.", " [clone"};
    size_t length = strlen(function);
    for (size_t i = 0; i < sizeof appended / sizeof appended[0]; i++) {
        const char *at = strstr(function, appended[i]);
        if (at && at != function && (size_t)(at - function) < length)
            length = (size_t)(at - function);
    }
    return length;
}

static identity identity_of(const format_history *h, uint32_t frame, int side)
{
    const format_frame *f = &h->frames[frame];
    identity id = {.function = format_history_words(h, f->function),
                   .file = holders_file_name(format_history_words(h, f->file)),
                   .module = "",
                   .frame = frame,
                   .side = side};
    id.function_length = function_length(id.function);
    if (f->function || f->file)
        return id;
    id.module = holders_file_name(format_history_words(h, f->module));
    if (f->module ||
        f->base) /* code without a module was made while the program ran: its address says nothing */
        id.offset = f->address - (f->base <= f->address ? f->base : 0);
    return id;
}

static int function_compare(const identity *a, const identity *b)
{
    size_t least = a->function_length < b->function_length ? a->function_length : b->function_length;
    int order = memcmp(a->function, b->function, least);
    if (order)
        return order;
    return a->function_length < b->function_length ? -1 : a->function_length > b->function_length;
}

static int identity_compare(const void *x, const void *y)
{
    const identity *a = x, *b = y;
    int order = function_compare(a, b);
    order = order ? order : strcmp(a->file, b->file);
    order = order ? order : strcmp(a->module, b->module);
    if (order || a->offset == b->offset)
        return order;
    return a->offset < b->offset ? -1 : 1;
}

/* A run of equal identities, [from, to). */
typedef struct run {
    uint32_t from, to;
} run;

static uint32_t run_end(const identity *ids, uint32_t from, uint32_t count,
                        int (*order)(const identity *, const identity *))
{
    uint32_t to = from + 1;
    while (to < count && order(&ids[from], &ids[to]) == 0)
        to++;
    return to;
}

static int whole_compare(const identity *a, const identity *b)
{
    return identity_compare(a, b);
}

/* The side in which all of a run are; SIDES: in both. */
static int run_side(const identity *ids, run r)
{
    for (uint32_t i = r.from + 1; i < r.to; i++)
        if (ids[i].side != ids[r.from].side)
            return SIDES;
    return ids[r.from].side;
}

static void run_number(compare *c, const identity *ids, run r, uint32_t number)
{
    for (uint32_t i = r.from; i < r.to; i++)
        c->classes[ids[i].side][ids[i].frame] = number;
}

/* Numbers the runs of one function. If one file has it in the earlier recording alone and one in the later alone, the function has
 * moved, or one of the two does not know its file: they are the same. */
static void number_function(compare *c, const identity *ids, uint32_t from, uint32_t to, uint32_t *number)
{
    run alone[SIDES] = {{0}};
    uint32_t alone_count[SIDES] = {0};
    for (uint32_t i = from; i < to;) {
        run r = {i, run_end(ids, i, to, whole_compare)};
        int side = run_side(ids, r);
        run_number(c, ids, r, (*number)++);
        if (side < SIDES) {
            alone[side] = r;
            alone_count[side]++;
        }
        i = r.to;
    }
    if (ids[from].function_length && alone_count[BEFORE] == 1 && alone_count[AFTER] == 1)
        run_number(c, ids, alone[BEFORE], c->classes[AFTER][ids[alone[AFTER].from].frame]);
}

static bool match_frames(compare *c)
{
    const uint32_t counts[SIDES] = {c->h[BEFORE]->frame_count, c->h[AFTER]->frame_count};
    identity *ids = calloc((size_t)counts[BEFORE] + counts[AFTER] + 1, sizeof *ids);
    uint32_t count = 0, number = 1; /* class 0 is frame 0: no stack */
    for (int side = 0; side < SIDES; side++)
        c->classes[side] = calloc((size_t)counts[side] + 1, sizeof *c->classes[side]);
    if (!ids || !c->classes[BEFORE] || !c->classes[AFTER]) {
        free(ids);
        return false;
    }
    for (int side = 0; side < SIDES; side++)
        for (uint32_t f = 1; f < counts[side]; f++)
            ids[count++] = identity_of(c->h[side], f, side);
    if (count)
        qsort(ids, count, sizeof *ids, identity_compare);
    for (uint32_t i = 0; i < count;) {
        uint32_t to = run_end(ids, i, count, function_compare);
        number_function(c, ids, i, to, &number);
        i = to;
    }
    free(ids);
    return true;
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

/* A holder of either side on its way to its row. */
typedef struct candidate {
    const char *label; /* by label */
    uint32_t class, line, holder;
    int side;
} candidate;

static int candidate_compare(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    int order = strcmp(a->label, b->label);
    if (order)
        return order;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->side != b->side)
        return a->side < b->side ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->holder < b->holder ? -1 : a->holder > b->holder;
}

static void row_take(compare_table *t, uint32_t row, const candidate *one)
{
    const holder *g = &t->groups[one->side].items[one->holder];
    compare_row *r = &t->rows[row];
    t->row_of[one->side][one->holder] = row;
    if (!r->is_in[one->side] || g->total_bytes > r->weight[one->side]) {
        r->name[one->side] = t->groups[one->side].by == HOLDERS_BY_LABEL ? g->label : g->frame;
        r->weight[one->side] = g->total_bytes;
    }
    r->is_in[one->side] = true;
}

/* Whether the lines of a function can be told apart in both: they are as many, all moved by the same distance. */
static bool lines_agree(const candidate *before, uint32_t before_count, const candidate *after,
                        uint32_t after_count)
{
    for (uint32_t i = 0; i < before_count && before_count == after_count; i++)
        if (after[i].line - before[i].line != after[0].line - before[0].line ||
            (i && (after[i].line == after[i - 1].line || before[i].line == before[i - 1].line)))
            return false;
    return before_count == after_count;
}

/* The rows of one function or label, candidates [0, count) with the earlier recording's first. */
static void rows_of_class(compare_table *t, const candidate *all, uint32_t count)
{
    uint32_t before = 0;
    while (before < count && all[before].side == BEFORE)
        before++;
    const uint32_t after = count - before;
    const bool one_side = !before || !after;
    if (!one_side && !lines_agree(all, before, all + before, after)) {
        for (uint32_t i = 0; i < count; i++)
            row_take(t, t->count, &all[i]);
        t->rows[t->count++].lines_merged = true;
        return;
    }
    const uint32_t rows = one_side ? count : before;
    for (uint32_t i = 0; i < count; i++)
        row_take(t, t->count + i % rows, &all[i]);
    t->count += rows;
}

static bool match_rows(compare *c, compare_table *t)
{
    uint32_t count = 0, all = t->groups[BEFORE].count + t->groups[AFTER].count;
    candidate *candidates = calloc((size_t)all + 1, sizeof *candidates);
    t->rows = calloc((size_t)all + 1, sizeof *t->rows);
    bool done = candidates && t->rows;
    for (int side = 0; side < SIDES; side++) {
        const holders *g = &t->groups[side];
        t->row_of[side] = calloc((size_t)g->count + 1, sizeof *t->row_of[side]);
        done = done && t->row_of[side];
        for (uint32_t i = 0; done && i < g->count; i++)
            candidates[count++] = (candidate){.label = format_history_words(c->h[side], g->items[i].label),
                                              .class = c->classes[side][g->items[i].frame],
                                              .line = c->h[side]->frames[g->items[i].frame].line,
                                              .holder = i,
                                              .side = side};
    }
    if (done && count)
        qsort(candidates, count, sizeof *candidates, candidate_compare);
    for (uint32_t i = 0; done && i < count;) {
        uint32_t to = i + 1;
        while (to < count && candidates[to].class == candidates[i].class &&
               strcmp(candidates[to].label, candidates[i].label) == 0)
            to++;
        rows_of_class(t, candidates + i, to - i);
        i = to;
    }
    free(candidates);
    return done;
}

bool compare_match(compare *c)
{
    return match_frames(c) && match_rows(c, &c->sites) && match_rows(c, &c->labels) &&
           compare_match_renamed(c, &c->sites) && compare_match_renamed(c, &c->labels);
}

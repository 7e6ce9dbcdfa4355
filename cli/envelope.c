/* The envelope of several inputs: the same allocations in the same order, each at its largest and longest. */
#include "cli/envelope.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "berth/plan.h"
#include "cli/cli.h"

static int no_memory(const char *verb)
{
    return cli_fail(verb, berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an envelope"), "");
}

static const char *path_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- One input on the envelope's time --------------------------------------------------------------- */

typedef struct row_key {
    int64_t lower;
    size_t row;
} row_key;

static int compare_keys(const void *a, const void *b)
{
    const row_key *x = a, *y = b;
    if (x->lower != y->lower)
        return x->lower < y->lower ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Rows that begin at one time stay as they are in the file. */
static bool order_rows(cli_envelope_part *part)
{
    const berth_problem *p = berth_problem_file_problem(part->file);
    row_key *keys = malloc((p->buffer_count + 1) * sizeof *keys);
    part->order = calloc(p->buffer_count + 1, sizeof *part->order);
    if (!keys || !part->order) {
        free(keys);
        return false;
    }
    for (size_t i = 0; i < p->buffer_count; i++)
        keys[i] = (row_key){p->buffers[i].lower, i};
    qsort(keys, p->buffer_count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < p->buffer_count; i++)
        part->order[i] = keys[i].row;
    free(keys);
    return true;
}

/* How many of the rows begin before `time`: a free at a time comes before an allocation at that time. */
static int64_t rows_before(const cli_envelope_part *part, int64_t time)
{
    const berth_problem *p = berth_problem_file_problem(part->file);
    size_t low = 0, high = p->buffer_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (p->buffers[part->order[middle]].lower < time)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low;
}

void cli_envelope_rows_of(const cli_envelope *e, size_t part)
{
    const cli_envelope_part *one = &e->parts[part];
    const berth_problem *p = berth_problem_file_problem(one->file);
    for (size_t i = 0; i < e->row_count; i++) {
        berth_problem_buffer b = p->buffers[one->order[i]];
        if (!e->same_times) {
            const int64_t upper = rows_before(one, b.upper);
            b.lower = (int64_t)i;
            b.upper = upper > b.lower ? upper : b.lower;
        }
        e->part[i] = b;
    }
}

static bool begin_alike(const cli_envelope *e)
{
    const berth_problem *first = berth_problem_file_problem(e->parts[0].file);
    for (size_t k = 1; k < e->count; k++) {
        const berth_problem *p = berth_problem_file_problem(e->parts[k].file);
        for (size_t i = 0; i < e->row_count; i++)
            if (p->buffers[e->parts[k].order[i]].lower != first->buffers[e->parts[0].order[i]].lower)
                return false;
    }
    return true;
}

/* ---- Whether it is the same program ----------------------------------------------------------------- */

static bool is_number(const char *text)
{
    while (isdigit((unsigned char)*text))
        text++;
    return !*text;
}

/* What a row is called, for a complaint. */
static const char *row_name(const cli_envelope_part *part, size_t row, char text[2 * CLI_ID_ROOM + 8])
{
    char id[CLI_ID_ROOM], label[CLI_ID_ROOM];
    cli_problem_id(part->file, row, id);
    if (*cli_problem_label(part->file, row, label))
        snprintf(text, 2 * CLI_ID_ROOM + 8, "'%s' (%s)", id, label);
    else
        snprintf(text, 2 * CLI_ID_ROOM + 8, "'%s'", id);
    return text;
}

static bool same_name(const cli_envelope_part *a, size_t row_a, const cli_envelope_part *b, size_t row_b)
{
    enum { ROOM = 256 };
    char one[ROOM], other[ROOM];
    const size_t length = berth_problem_file_label(a->file, row_a, one, ROOM);
    if (berth_problem_file_label(b->file, row_b, other, ROOM) != length || strcmp(one, other) != 0)
        return false;
    berth_problem_file_id(a->file, row_a, one, ROOM);
    berth_problem_file_id(b->file, row_b, other, ROOM);
    /* numbers only count: other memory of a recording may lie between */
    return strcmp(one, other) == 0 || (is_number(one) && is_number(other));
}

static bool same_gaps(const cli_envelope_part *a, const berth_problem_buffer *x, const cli_envelope_part *b,
                      const berth_problem_buffer *y)
{
    const berth_problem *p = berth_problem_file_problem(a->file), *q = berth_problem_file_problem(b->file);
    return x->gap_count == y->gap_count &&
           (x->gap_count == 0 ||
            memcmp(p->gaps + x->gap_first, q->gaps + y->gap_first, x->gap_count * sizeof *p->gaps) == 0);
}

/* Files number their alias groups in the order of their rows, which need not be that of time; no number is above that of
 * rows. */
static bool find_groups(const cli_envelope *e, cli_envelope_part *part)
{
    const berth_problem_buffer *buffers = berth_problem_file_problem(part->file)->buffers;
    size_t *first = calloc(e->row_count + 1, sizeof *first);
    part->groups = calloc(e->row_count + 1, sizeof *part->groups);
    const bool enough = first && part->groups;
    for (size_t i = 0; enough && i < e->row_count; i++) {
        const uint32_t group = buffers[part->order[i]].alias_group;
        if (group && !first[group])
            first[group] = i + 1;
        part->groups[i] = first[group];
    }
    free(first);
    return enough;
}

/* What no envelope can take from both, or NULL. */
static const char *conflict(const cli_envelope *e, const cli_envelope_part *a, const cli_envelope_part *b,
                            size_t i)
{
    const berth_problem_buffer *x = &berth_problem_file_problem(a->file)->buffers[a->order[i]];
    const berth_problem_buffer *y = &berth_problem_file_problem(b->file)->buffers[b->order[i]];
    if (x->fixed_offset != y->fixed_offset)
        return "is fixed to another place than";
    if (a->groups[i] != b->groups[i])
        return "shares its place with others than";
    if (!same_gaps(a, x, b, y))
        return "has other gaps than";
    if (!e->same_times && x->gap_count)
        return "has gaps, and in a recording with other times than";
    return NULL;
}

static int complain_row(const char *verb, const cli_envelope *e, size_t part, size_t i, const char *what)
{
    const cli_envelope_part *a = &e->parts[0], *b = &e->parts[part];
    char here[2 * CLI_ID_ROOM + 8], there[2 * CLI_ID_ROOM + 8];
    (void)berth_fail(
        BERTH_MISMATCH,
        "line %zu: allocation %zu, %s, %s %s on line %zu of %s; an envelope needs the same program",
        berth_problem_file_line(b->file, b->order[i]), i, row_name(b, b->order[i], here), what,
        row_name(a, a->order[i], there), berth_problem_file_line(a->file, a->order[i]), path_name(a->path));
    return cli_problem_fail(verb, BERTH_MISMATCH, b->path);
}

/* One of two inputs ends before the other. */
static int complain_length(const char *verb, const cli_envelope *e, size_t part, size_t common)
{
    const size_t own = berth_problem_file_problem(e->parts[part].file)->buffer_count;
    const size_t longer = own > common ? part : 0, shorter = own > common ? 0 : part;
    const cli_envelope_part *l = &e->parts[longer];
    char name[2 * CLI_ID_ROOM + 8];
    (void)berth_fail(
        BERTH_MISMATCH,
        "line %zu: allocation %zu, %s, is not in %s, which has %zu; an envelope needs the same program",
        berth_problem_file_line(l->file, l->order[common]), common, row_name(l, l->order[common], name),
        path_name(e->parts[shorter].path), common);
    return cli_problem_fail(verb, BERTH_MISMATCH, l->path);
}

static int check_part(const char *verb, const cli_envelope *e, size_t part)
{
    const cli_envelope_part *a = &e->parts[0], *b = &e->parts[part];
    const size_t first = berth_problem_file_problem(a->file)->buffer_count;
    const size_t own = berth_problem_file_problem(b->file)->buffer_count;
    const size_t common = own < first ? own : first;
    for (size_t i = 0; i < common; i++)
        if (!same_name(a, a->order[i], b, b->order[i]))
            return complain_row(verb, e, part, i, "is not");
    return own == first ? CLI_OK : complain_length(verb, e, part, common);
}

static int check_conflicts(const char *verb, const cli_envelope *e)
{
    for (size_t k = 1; k < e->count; k++)
        for (size_t i = 0; i < e->row_count; i++) {
            const char *what = conflict(e, &e->parts[0], &e->parts[k], i);
            if (what)
                return complain_row(verb, e, k, i, what);
        }
    return CLI_OK;
}

/* ---- The largest and longest ------------------------------------------------------------------------ */

static void top_raise(cli_envelope_top *top, uint64_t value, size_t part)
{
    top->differs = top->differs || value != top->first;
    if (value > top->first) {
        top->second = top->first;
        top->first = value;
        top->owner = part;
    } else if (value > top->second) {
        top->second = value;
    }
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* An offset that suits both. False: there is none below 4 GiB. */
static bool join_alignment(uint32_t *all, uint32_t one)
{
    const uint32_t a = *all ? *all : 1, b = one ? one : 1;
    const uint64_t both = (uint64_t)a / common_divisor(a, b) * b;
    *all = both <= UINT32_MAX ? (uint32_t)both : a;
    return both <= UINT32_MAX;
}

/* Lengths of lives are numbers from 0, whatever the times are. */
static uint64_t life_of(const berth_problem_buffer *b)
{
    return (uint64_t)b->upper - (uint64_t)b->lower;
}

static int widen(const char *verb, cli_envelope *e, size_t part)
{
    cli_envelope_rows_of(e, part);
    for (size_t i = 0; i < e->row_count; i++) {
        const berth_problem_buffer *b = &e->part[i];
        if (part == 0) {
            e->rows[i] = *b;
            e->sizes[i] = (cli_envelope_top){b->size_bytes, 0, 0, false};
            e->ends[i] = (cli_envelope_top){life_of(b), 0, 0, false};
            continue;
        }
        /* an empty life in a saved plan is one that outlives the run: it has no place, then */
        if (e->saved && (life_of(b) == 0) != (e->ends[i].first == 0))
            return complain_row(verb, e, part, i,
                                life_of(b) ? "is freed inside the run, unlike" : "outlives the run, unlike");
        top_raise(&e->sizes[i], b->size_bytes, part);
        top_raise(&e->ends[i], life_of(b), part);
        if (!join_alignment(&e->rows[i].alignment, b->alignment))
            return complain_row(verb, e, part, i,
                                "has an alignment that cannot be had together with that of");
    }
    return CLI_OK;
}

static void take_widest(cli_envelope *e)
{
    for (size_t i = 0; i < e->row_count; i++) {
        e->other_size += e->sizes[i].differs;
        e->other_life += e->ends[i].differs;
        e->rows[i].size_bytes = e->sizes[i].first;
        e->rows[i].upper = (int64_t)((uint64_t)e->rows[i].lower + e->ends[i].first);
    }
}

/* ---- As a file -------------------------------------------------------------------------------------- */

/* Quoted where the text itself would be read as something else. */
static void put_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n\t;") && text[0] != ' ' && (!*text || text[strlen(text) - 1] != ' ')) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (char[2]){*text, 0}, out);
    fputc('"', out);
}

static bool put_named(FILE *out, const cli_envelope *e, size_t row,
                      size_t (*name)(const berth_problem_file *, size_t, char *, size_t))
{
    const berth_problem_file *file = e->parts[0].file;
    const size_t room = name(file, row, NULL, 0) + 1;
    char *text = malloc(room);
    if (!text)
        return false;
    name(file, row, text, room);
    put_text(out, text);
    free(text);
    return true;
}

static void put_gaps(FILE *out, const cli_envelope *e, const berth_problem_buffer *b)
{
    const berth_gap *gaps = berth_problem_file_problem(e->parts[0].file)->gaps;
    for (size_t g = 0; g < b->gap_count; g++)
        fprintf(out, "%s%" PRId64 "-%" PRId64, g ? " " : "", gaps[b->gap_first + g].lower,
                gaps[b->gap_first + g].upper);
}

/* Columns that some row needs. */
typedef struct used_columns {
    bool alignment, hint, gaps, fixed, alias, label;
} used_columns;

static used_columns look_for_columns(const cli_envelope *e)
{
    used_columns used = {.alignment = e->saved, .hint = e->saved, .label = e->saved};
    for (size_t i = 0; i < e->row_count; i++) {
        const berth_problem_buffer *b = &e->rows[i];
        used.alignment = used.alignment || b->alignment > 1;
        used.hint = used.hint || b->hint;
        used.gaps = used.gaps || b->gap_count;
        used.fixed = used.fixed || b->fixed_offset != BERTH_NO_OFFSET;
        used.alias = used.alias || b->alias_group;
        used.label =
            used.label || berth_problem_file_label(e->parts[0].file, e->parts[0].order[i], NULL, 0) > 0;
    }
    return used;
}

static void put_numbers(FILE *out, const cli_envelope *e, const berth_problem_buffer *b, used_columns used)
{
    fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRIu64, b->lower, b->upper, b->size_bytes);
    if (used.alignment)
        fprintf(out, ",%" PRIu32, b->alignment ? b->alignment : 1);
    if (used.hint)
        fprintf(out, ",%" PRId64, b->hint);
    if (used.gaps) {
        fputc(',', out);
        put_gaps(out, e, b);
    }
    if (used.fixed)
        fputc(',', out);
    if (used.fixed && b->fixed_offset != BERTH_NO_OFFSET)
        fprintf(out, "%" PRIu64, b->fixed_offset);
    if (used.alias)
        fputc(',', out);
    if (used.alias && b->alias_group)
        fprintf(out, "%" PRIu32, b->alias_group);
}

static bool put_row(FILE *out, const cli_envelope *e, size_t i, used_columns used)
{
    const size_t row = e->parts[0].order[i];
    if (!put_named(out, e, row, berth_problem_file_id))
        return false;
    put_numbers(out, e, &e->rows[i], used);
    if (used.label)
        fputc(',', out);
    const bool done = !used.label || put_named(out, e, row, berth_problem_file_label);
    fputs(e->saved ? ",0\n" : "\n", out);
    return done;
}

/* The fingerprint that berth_plan_load will expect, of the allocations at places of their own. */
static berth_status plan_print(const cli_envelope *e, uint64_t *print)
{
    berth_plan *plan = NULL;
    berth_plan_allocation *all = malloc((e->row_count + 1) * sizeof *all);
    uint64_t end = 0;
    for (size_t i = 0; all && i < e->row_count; i++) {
        const berth_problem_buffer *b = &e->rows[i];
        all[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        all[i].size_bytes = b->size_bytes;
        all[i].alignment = b->alignment ? b->alignment : 1;
        if (b->upper == b->lower)
            continue;
        all[i].freed_at = (uint64_t)b->upper;
        all[i].offset = (end + all[i].alignment - 1) / all[i].alignment * all[i].alignment;
        end = all[i].offset + b->size_bytes;
    }
    berth_status status = all ? berth_plan_create(&plan) : BERTH_OUT_OF_HOST_MEMORY;
    if (!status)
        status = berth_plan_set(plan, all, e->row_count, NULL);
    *print = berth_plan_fingerprint(plan);
    berth_plan_release(plan);
    free(all);
    return status;
}

static bool put_rows(FILE *out, const cli_envelope *e)
{
    const used_columns used = look_for_columns(e);
    fprintf(out, "id,lower,upper,size%s%s%s%s%s%s%s\n", used.alignment ? ",alignment" : "",
            used.hint ? ",hint" : "", used.gaps ? ",gaps" : "", used.fixed ? ",fixed" : "",
            used.alias ? ",alias" : "", used.label ? ",label" : "", e->saved ? ",offset" : "");
    for (size_t i = 0; i < e->row_count; i++)
        if (!put_row(out, e, i, used))
            return false;
    uint64_t print = 0;
    if (!e->saved)
        return true;
    if (plan_print(e, &print))
        return false;
    fprintf(out, "fingerprint,%zu,%zu,0,1,0,%016" PRIx64 ",0\n", e->row_count, e->row_count, print);
    return true;
}

static int make_file(const char *verb, cli_envelope *e)
{
    size_t size = 0;
    FILE *out = open_memstream(&e->text, &size);
    bool done = out && put_rows(out, e);
    done = out && fclose(out) == 0 && done;
    if (!done)
        return no_memory(verb);
    berth_status status = berth_problem_file_parse(e->text, size, &e->file);
    return status ? cli_fail(verb, status, "the envelope") : CLI_OK;
}

/* ---- All of it -------------------------------------------------------------------------------------- */

/* A plan of berth_plan_save, whole and unchanged, with its numbers in order. A pipe cannot be read again: one with a name
 * would be waited for. */
static bool is_saved_plan(const cli_envelope_part *part)
{
    berth_plan *plan = NULL;
    struct stat about;
    const bool saved = stat(part->path, &about) == 0 && S_ISREG(about.st_mode) && !berth_plan_create(&plan) &&
                       berth_plan_load(plan, part->path) == BERTH_OK &&
                       berth_plan_count(plan) == berth_problem_file_problem(part->file)->buffer_count;
    berth_plan_release(plan);
    return saved;
}

static int read_parts(const char *verb, cli_envelope *e, const char *const *paths,
                      const cli_model_options *options)
{
    size_t streams = 0;
    for (size_t k = 0; k < e->count; k++)
        streams += strcmp(paths[k], "-") == 0;
    if (streams > 1)
        return cli_misuse(verb, "there is one standard input, and - was named %zu times", streams);
    for (size_t k = 0; k < e->count; k++) {
        cli_envelope_part *part = &e->parts[k];
        cli_model *model;
        part->path = paths[k];
        int code = cli_problem_read_model(verb, paths[k], true, options, &part->file, &model);
        if (code)
            return code;
        if (!order_rows(part))
            return no_memory(verb);
        berth_status status =
            berth_problem_fingerprint(berth_problem_file_problem(part->file), &part->fingerprint);
        code = status ? cli_problem_fail(verb, status, paths[k]) : check_part(verb, e, k);
        if (code)
            return code;
    }
    return CLI_OK;
}

static int join_parts(const char *verb, cli_envelope *e)
{
    const size_t room = e->row_count + 1;
    e->same_times = begin_alike(e);
    e->saved = e->same_times;
    for (size_t k = 0; k < e->count && e->saved; k++)
        e->saved = is_saved_plan(&e->parts[k]);
    e->rows = calloc(room, sizeof *e->rows);
    e->part = calloc(room, sizeof *e->part);
    e->sizes = calloc(room, sizeof *e->sizes);
    e->ends = calloc(room, sizeof *e->ends);
    if (!e->rows || !e->part || !e->sizes || !e->ends)
        return no_memory(verb);
    for (size_t k = 0; k < e->count; k++)
        if (!find_groups(e, &e->parts[k]))
            return no_memory(verb);
    int code = check_conflicts(verb, e);
    for (size_t k = 0; k < e->count && !code; k++)
        code = widen(verb, e, k);
    if (code)
        return code;
    take_widest(e);
    return make_file(verb, e);
}

int cli_envelope_read(const char *verb, const char *const *paths, size_t count,
                      const cli_model_options *options, cli_envelope **out)
{
    cli_envelope *e = calloc(1, sizeof *e);
    *out = e;
    if (!e || !(e->parts = calloc(count, sizeof *e->parts)))
        return no_memory(verb);
    e->count = count;
    e->driver = count;
    int code = read_parts(verb, e, paths, options);
    if (code)
        return code;
    e->row_count = berth_problem_file_problem(e->parts[0].file)->buffer_count;
    return join_parts(verb, e);
}

void cli_envelope_destroy(cli_envelope *e)
{
    if (!e)
        return;
    berth_problem_file_destroy(e->file);
    for (size_t k = 0; k < e->count; k++) {
        berth_problem_file_destroy(e->parts[k].file);
        free(e->parts[k].order);
        free(e->parts[k].groups);
    }
    free(e->text);
    free(e->ends);
    free(e->sizes);
    free(e->part);
    free(e->rows);
    free(e->parts);
    free(e);
}

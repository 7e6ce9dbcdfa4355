/* The document that berth view writes, as docs/view-format.md says: JSON with columns of numbers packed into texts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/view.h"
#include "format/site.h"
#include "format/text.h"

/* Names are told at most this long, and so many bytes of them. */
enum { NAME_MOST = 240, NAMES_MOST = 2000000, NO_TEXT = 0, SEGMENTS_MOST = 20000, MOMENTS_MOST = 1000 };

/* ---- Columns ----------------------------------------------------------------------------------------- */

/* Numbers in LEB128, and base64 of those. */
struct column {
    unsigned char *bytes;
    size_t count, room;
    uint64_t last; /* of differences */
    bool failed;
};

static void column_byte(struct column *c, unsigned char byte)
{
    if (c->count == c->room) {
        size_t room = c->room ? c->room * 2 : 4096;
        unsigned char *grown = realloc(c->bytes, room);
        if (!grown) {
            c->failed = true;
            return;
        }
        c->bytes = grown;
        c->room = room;
    }
    c->bytes[c->count++] = byte;
}

static void column_number(struct column *c, uint64_t n)
{
    for (; n >= 128; n >>= 7)
        column_byte(c, (unsigned char)(n | 128));
    column_byte(c, (unsigned char)n);
}

/* The difference from the number before; negative ones in between. */
static void column_difference(struct column *c, uint64_t n)
{
    uint64_t difference = n - c->last;
    column_number(c, difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0));
    c->last = n;
}

/* Writes it and frees it. */
static bool column_write(struct column *c, FILE *out, const char *name)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fprintf(out, "\"%s\":\"", name);
    for (size_t i = 0; i < c->count; i += 3) {
        size_t n = c->count - i;
        uint32_t bits = (uint32_t)c->bytes[i] << 16 | (n > 1 ? (uint32_t)c->bytes[i + 1] << 8 : 0) |
                        (n > 2 ? c->bytes[i + 2] : 0);
        char text[4] = {digits[bits >> 18], digits[bits >> 12 & 63], n > 1 ? digits[bits >> 6 & 63] : '=',
                        n > 2 ? digits[bits & 63] : '='};
        fwrite(text, 1, sizeof text, out);
    }
    fputc('"', out);
    bool done = !c->failed;
    free(c->bytes);
    *c = (struct column){0};
    return done;
}

/* ---- Texts ------------------------------------------------------------------------------------------- */

/* Writes about `most` bytes of a text, whole characters of it: names of C++ differ at their ends, so the middle is left out. */
static size_t write_some(FILE *out, const char *text, size_t most)
{
    const char *cut = strlen(text) > most ? text + most - most / 3 : NULL;
    const char *tail = cut ? text + strlen(text) - most / 3 : NULL;
    size_t written = 0;
    fputc('"', out);
    while (*text) {
        const unsigned char *c = (const unsigned char *)text;
        size_t length = format_text_character(text);
        if (cut && text >= cut) {
            fputs("\\u2026", out);
            text = tail;
            while (((unsigned char)*text & 0xc0) == 0x80) /* not inside a character */
                text++;
            cut = NULL;
            continue;
        }
        /* < > & so that no text ends the script that it is in; the two line ends that only JavaScript has */
        if (!length || format_text_turns_around(text))
            fputs("\\ufffd", out);
        else if (length == 1 && (*c < ' ' || *c == 127 || strchr("<>&'\"\\", *c)))
            fprintf(out, "\\u%04x", *c);
        else if (length == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] & 0xfe) == 0xa8)
            fprintf(out, "\\u20%02x", c[2] & 0x2f);
        else
            fwrite(c, 1, length, out);
        text += length ? length : 1;
        written += length ? length : 1;
    }
    fputc('"', out);
    return written;
}

void view_write_text(FILE *out, const char *text)
{
    write_some(out, text, NAME_MOST);
}

/* ---- What the kept blocks refer to ------------------------------------------------------------------- */

/* New numbers, given when they are first used, for texts and frames. */
struct numbering {
    uint32_t *number; /* of the old one; 0: not used yet */
    uint32_t *old;    /* of the new one, from 1 */
    uint32_t count;
};

struct names {
    struct numbering texts, frames;
};

static bool numbering_init(struct numbering *n, uint32_t count)
{
    n->number = calloc((size_t)count + 1, sizeof *n->number);
    n->old = calloc((size_t)count + 2, sizeof *n->old);
    return n->number && n->old;
}

static uint32_t number_of(struct numbering *n, uint32_t old)
{
    if (!old)
        return 0;
    if (!n->number[old]) {
        n->number[old] = ++n->count;
        n->old[n->count] = old;
    }
    return n->number[old];
}

/* Callers come before those whom they call. */
static uint32_t number_stack(struct names *names, const format_history *h, uint32_t frame)
{
    enum { DEEPEST = 4096 };
    uint32_t path[DEEPEST], depth = 0;
    for (uint32_t f = frame; f && f < h->frame_count && !names->frames.number[f] && depth < DEEPEST;
         f = h->frames[f].caller)
        path[depth++] = f;
    while (depth)
        number_of(&names->frames, path[--depth]);
    return frame < h->frame_count ? names->frames.number[frame] : 0;
}

static void names_finish(struct names *names)
{
    free(names->texts.number);
    free(names->texts.old);
    free(names->frames.number);
    free(names->frames.old);
}

static bool write_frames(const view *v, struct names *names, FILE *out)
{
    struct column caller = {0}, function = {0}, file = {0}, line = {0}, module = {0}, address = {0},
                  general = {0};
    for (uint32_t i = 1; i <= names->frames.count; i++) {
        const format_frame *f = &v->h->frames[names->frames.old[i]];
        column_difference(&caller, f->caller < v->h->frame_count ? names->frames.number[f->caller] : 0);
        column_number(&function, number_of(&names->texts, f->function));
        column_number(&file, number_of(&names->texts, f->file));
        column_number(&module, number_of(&names->texts, f->module));
        column_number(&line, f->line);
        column_number(&general, format_site_is_general(v->h, f));
        /* What stands for a name that is not known: from its module's begin, so that it is the same in every run. */
        column_number(&address, f->function ? 0 : f->address - (f->base <= f->address ? f->base : 0));
    }
    fprintf(out, "\"frames\":{\"count\":%u,", names->frames.count);
    bool done = column_write(&caller, out, "caller");
    fputc(',', out);
    done = column_write(&function, out, "function") && done;
    fputc(',', out);
    done = column_write(&file, out, "file") && done;
    fputc(',', out);
    done = column_write(&module, out, "module") && done;
    fputc(',', out);
    done = column_write(&line, out, "line") && done;
    fputc(',', out);
    done = column_write(&address, out, "address") && done;
    fputc(',', out);
    done = column_write(&general, out, "general") && done;
    fputs("},\n", out);
    return done;
}

static void write_texts(const view *v, const struct names *names, FILE *out)
{
    size_t written = 0;
    fputs("\"texts\":[\"\"", out);
    for (uint32_t i = 1; i <= names->texts.count; i++) {
        fputc(',', out);
        written += write_some(out, format_history_words(v->h, names->texts.old[i]),
                              written < NAMES_MOST ? NAME_MOST : 16);
    }
    fputs("]\n", out);
}

/* ---- Spaces ------------------------------------------------------------------------------------------ */

static bool write_blocks(const view *v, const view_space *s, struct names *names, FILE *out)
{
    struct column begin = {0}, life = {0}, address = {0}, size = {0}, label = {0}, stack = {0}, stream = {0},
                  thread = {0}, planned = {0};
    bool labels = false, stacks = false, streams = false, threads = false;
    for (uint32_t k = 0; k < s->block_count; k++) {
        const format_block *b = &v->h->blocks[s->blocks[k]];
        if (!s->kept[k])
            continue;
        column_difference(&begin, b->begin);
        column_number(&life, b->end == FORMAT_ALIVE ? 0 : b->end - b->begin);
        column_number(&size, b->size_bytes);
        column_number(&label, number_of(&names->texts, b->label));
        column_difference(&stack, number_stack(names, v->h, b->stack));
        column_number(&stream, b->stream);
        column_number(&thread, b->thread);
        if (v->h->has_addresses)
            column_difference(&address, view_folded(s, b->address));
        if (s->planned)
            column_difference(&planned, s->planned[k]);
        labels = labels || b->label;
        stacks = stacks || b->stack;
        streams = streams || b->stream;
        threads = threads || b->thread;
    }
    fputs("\"columns\":{", out);
    bool done = column_write(&begin, out, "begin");
    struct {
        struct column *column;
        const char *name;
        bool wanted;
    } others[] = {{&life, "life", true},
                  {&size, "size", true},
                  {&label, "label", labels},
                  {&stack, "stack", stacks},
                  {&stream, "stream", streams},
                  {&thread, "thread", threads},
                  {&address, "address", v->h->has_addresses},
                  {&planned, "planned", s->planned != NULL}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].wanted) {
            fputc(',', out);
            done = column_write(others[i].column, out, others[i].name) && done;
        }
        free(others[i].column->bytes);
    }
    fputs("}", out);
    return done;
}

static bool write_curve(const view *v, const view_space *s, FILE *out)
{
    struct column high = {0}, low = {0};
    for (uint32_t i = 0; i < v->bucket_count; i++) {
        column_difference(&high, s->high[i]);
        column_number(&low, s->high[i] - s->low[i]);
    }
    fprintf(out, ",\n\"curve\":{\"buckets\":%u,", v->bucket_count);
    bool done = column_write(&high, out, "high");
    fputc(',', out);
    done = column_write(&low, out, "below") && done;
    fputc('}', out);
    return done;
}

static bool write_density(const view *v, const view_space *s, bool planned, const char *name, FILE *out)
{
    unsigned char *cells = view_density(v, s, planned);
    struct column column = {.bytes = cells, .count = cells ? VIEW_COLUMNS * VIEW_ROWS : 0};
    fputc(',', out);
    return column_write(&column, out, name) && cells;
}

static bool write_left_out(const view *v, const view_space *s, FILE *out)
{
    bool done = true;
    if (s->kept_count == s->block_count)
        return true;
    fprintf(out, ",\n\"left_out\":{\"blocks\":%u,\"largest_bytes\":%" PRIu64 ",\"across\":%d,\"up\":%d",
            s->block_count - s->kept_count, s->left_bytes, VIEW_COLUMNS, VIEW_ROWS);
    if (v->h->has_addresses)
        done = write_density(v, s, false, "cells", out);
    if (s->planned)
        done = write_density(v, s, true, "planned_cells", out) && done;
    fputc('}', out);
    return done;
}

static bool write_segments(const view *v, const view_space *s, struct names *names, FILE *out)
{
    const format_history *h = v->h;
    struct column begin = {0}, life = {0}, address = {0}, size = {0}, stream = {0}, pool = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->segment_count && count < SEGMENTS_MOST; i++) {
        const format_segment *g = &h->segments[i];
        if (g->process != s->process || g->device != s->device || !g->size_bytes)
            continue;
        column_difference(&begin, g->begin);
        column_number(&life, g->end == FORMAT_ALIVE ? 0 : g->end - g->begin + 1);
        column_difference(&address, view_folded(s, g->address));
        column_number(&size, g->size_bytes);
        column_number(&stream, g->stream);
        column_number(&pool, number_of(&names->texts, g->pool));
        count++;
    }
    fprintf(out, ",\n\"segments\":{\"count\":%u,", count);
    bool done = column_write(&begin, out, "begin");
    fputc(',', out);
    done = column_write(&life, out, "life") && done;
    fputc(',', out);
    done = column_write(&address, out, "address") && done;
    fputc(',', out);
    done = column_write(&size, out, "size") && done;
    fputc(',', out);
    done = column_write(&stream, out, "stream") && done;
    fputc(',', out);
    done = column_write(&pool, out, "pool") && done;
    fputc('}', out);
    return done;
}

static void write_moments(const view *v, const view_space *s, struct names *names, FILE *out)
{
    uint32_t count = 0;
    fputs(",\n\"moments\":[", out);
    for (uint32_t i = 0; i < v->h->moment_count && count < MOMENTS_MOST; i++) {
        const format_moment *m = &v->h->moments[i];
        if (m->process != s->process || m->device != s->device)
            continue;
        fprintf(out, "%s{\"event\":%u,\"size\":%" PRIu64 ",\"label\":%u,\"stack\":%u}", count++ ? "," : "",
                m->before, m->size_bytes, number_of(&names->texts, m->label),
                number_stack(names, v->h, m->stack));
    }
    fputc(']', out);
}

static void write_plan(const view_space *s, FILE *out)
{
    if (!s->planned) {
        fputs("\"plan\":null,\"not_planned\":", out);
        view_write_text(out, s->not_planned ? s->not_planned : "not asked for");
        return;
    }
    fprintf(out, "\"plan\":{\"peak_bytes\":%" PRIu64 ",\"bound_bytes\":%" PRIu64 ",\"proven\":%s,\"solver\":",
            s->certificate.peak_bytes, s->certificate.lower_bound_bytes,
            s->certificate.proven_optimal ? "true" : "false");
    view_write_text(out, s->certificate.solver);
    fputc('}', out);
}

/* The threads of its process that have names. */
static void write_threads(const view *v, const view_space *s, struct names *names, FILE *out)
{
    const char *before = ",\n\"threads\":[";
    for (uint32_t i = 0; i < v->h->named_count; i++) {
        const format_thread *t = &v->h->threads[i];
        if (t->process != s->process)
            continue;
        fprintf(out, "%s[%u,%u]", before, t->thread, number_of(&names->texts, t->name));
        before = ",";
    }
    if (*before == ',' && !before[1])
        fputc(']', out);
}

static bool write_space(const view *v, const view_space *s, struct names *names, FILE *out)
{
    char name[VIEW_NAME_ROOM];
    fputs("{\"name\":", out);
    view_write_text(out, view_space_name(v, s, name));
    fprintf(out,
            ",\"blocks\":%u,\"kept\":%u,\"capacity_bytes\":%" PRIu64 ",\"extent_bytes\":%" PRIu64
            ",\"range_bytes\":%" PRIu64 ",\n\"peak\":{\"bytes\":%" PRIu64 ",\"event\":%u,\"blocks\":%u},"
            "\"bound_bytes\":%" PRIu64 ",\n",
            s->block_count, s->kept_count,
            s->device < v->h->device_count ? v->h->devices[s->device].capacity_bytes : 0, s->extent_bytes,
            s->range_bytes, s->peak.bytes, s->peak.event == FORMAT_ALIVE ? 0 : s->peak.event, s->peak.blocks,
            s->bound_bytes);
    write_plan(s, out);
    fputs(",\n\"regions\":[", out);
    for (uint32_t i = 0; i < s->region_count; i++)
        fprintf(out, "%s[\"%" PRIx64 "\",%" PRIu64 ",%" PRIu64 "]", i ? "," : "", s->regions[i].address,
                s->regions[i].size_bytes, s->regions[i].at);
    fputs("],\n", out);
    bool done = write_blocks(v, s, names, out);
    done = write_curve(v, s, out) && done;
    done = write_left_out(v, s, out) && done;
    done = write_segments(v, s, names, out) && done;
    write_moments(v, s, names, out);
    write_threads(v, s, names, out);
    fputs("}", out);
    return done;
}

/* ---- All of it --------------------------------------------------------------------------------------- */

/* The time of some events, all of them if they are few; between them time passes evenly. */
static bool write_times(const view *v, FILE *out)
{
    const format_history *h = v->h;
    struct column event = {0}, time = {0};
    uint32_t step = h->event_count / VIEW_BUCKETS + 1, count = 0;
    uint64_t latest = h->first_ns, before = h->first_ns;
    for (uint32_t e = 0; e < h->event_count; e++) {
        const format_block *b = &h->blocks[h->events[e] / 2];
        uint64_t t = h->events[e] % 2 ? b->end_ns : b->begin_ns;
        latest = t > latest ? t : latest; /* threads may tell a little out of order */
        if (e % step && e + 1 != h->event_count)
            continue;
        column_difference(&event, e);
        column_number(&time, latest - before);
        before = latest;
        count++;
    }
    fprintf(out, "\"times\":{\"count\":%u,\"first\":\"%" PRId64 "\",\"last\":%" PRIu64 ",", count,
            (int64_t)(h->first_ns + (uint64_t)h->zero), h->last_ns - h->first_ns);
    bool done = column_write(&event, out, "event");
    fputc(',', out);
    done = column_write(&time, out, "passed") && done;
    fputs("},\n", out);
    return done;
}

static void write_notices(const view *v, FILE *out)
{
    const format_history *h = v->h;
    char words[200];
    bool some = false;
    fputs("\"notices\":[", out);
    for (uint32_t i = 0; i < h->notice_count && i < 20; i++, some = true) {
        fputs(some ? "," : "", out);
        view_write_text(out, h->notices[i].words);
    }
    const struct {
        uint64_t count;
        const char *words;
    } counts[] = {{h->unknown_frees, "frees of blocks from before the recording"},
                  {h->lost_frees, "blocks came where another was alive; that one ends there"},
                  {v->spaces_left, "processes and devices with lower peaks are not shown"}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (!counts[i].count)
            continue;
        snprintf(words, sizeof words, "%" PRIu64 " %s", counts[i].count, counts[i].words);
        fputs(some ? "," : "", out);
        view_write_text(out, words);
        some = true;
    }
    fputs("],\n", out);
}

bool view_write_json(const view *v, FILE *out, cli_progress *progress)
{
    const format_history *h = v->h;
    struct names names = {0};
    bool done = numbering_init(&names.texts, h->text_count) && numbering_init(&names.frames, h->frame_count);
    fputs("{\"format\":\"berth-view\",\"version\":1,\n\"name\":", out);
    view_write_text(out, v->name);
    fputs(",\"input\":", out);
    view_write_text(out, h->format);
    fprintf(out, ",\"has_times\":%s,\"has_addresses\":%s,\"events\":%u,\"blocks\":%u,\n",
            h->has_times ? "true" : "false", h->has_addresses ? "true" : "false", h->event_count,
            h->block_count);
    write_notices(v, out);
    done = done && write_times(v, out);
    fputs("\"spaces\":[", out);
    for (uint32_t i = 0; done && i < v->space_count; i++) {
        cli_progress_show(progress, i, v->space_count);
        fputs(i ? ",\n" : "\n", out);
        done = write_space(v, &v->spaces[i], &names, out);
    }
    fputs("],\n", out);
    done = done && write_frames(v, &names, out);
    if (done)
        write_texts(v, &names, out);
    fputs("}\n", out);
    names_finish(&names);
    return done && !ferror(out);
}

bool view_write_page(const view *v, FILE *out, cli_progress *progress)
{
    fwrite(view_page_head, 1, view_page_head_bytes, out);
    bool done = view_write_json(v, out, progress);
    fwrite(view_page_tail, 1, view_page_tail_bytes, out);
    return done && !ferror(out);
}

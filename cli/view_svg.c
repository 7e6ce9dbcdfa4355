/* A space as a picture for papers: live bytes with their peak and bound above, blocks by time and address below. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/holders.h"
#include "cli/size.h"
#include "cli/view.h"
#include "format/text.h"

enum {
    WIDTH = 900,
    CURVE = 150,
    MAP = 380,
    LEFT = 90,
    TOP = 24,
    GAP = 34,
    RIGHT = 20,
    BELOW = 34,
    DRAWN_MOST = 20000
};

/* After Okabe and Ito: told apart by people with any colour vision. */
static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                      "#56b4e9", "#d55e00", "#f0e442", "#7a7a7a"};
enum { NAMED = 7 };
/* As on the page. */
#define SEGMENT_INK "fill=\"#eaf2fa\" stroke=\"#86a3c0\""

typedef struct svg {
    const view *v;
    const view_space *s;
    FILE *out;
    bool planned;
    uint32_t named[NAMED]; /* labels or functions with the most bytes at the peak */
    uint32_t named_count;
    uint32_t *sites; /* for each frame: the name of the first that is no general way to ask for memory */
} svg;

static double svg_x(const svg *g, uint64_t event)
{
    return LEFT + (double)event / (g->v->h->event_count ? (double)g->v->h->event_count : 1) * WIDTH;
}

/* About `most` bytes of a text, whole characters of it; of a long one the middle is left out. */
static void svg_words(FILE *out, const char *text, size_t most)
{
    const char *cut = strlen(text) > most ? text + most - most / 3 : NULL;
    const char *tail = cut ? text + strlen(text) - most / 3 : NULL;
    while (*text) {
        size_t length = format_text_character(text);
        unsigned char c = (unsigned char)*text;
        if (cut && text >= cut) {
            fputs("&#8230;", out);
            for (text = tail; ((unsigned char)*text & 0xc0) == 0x80;) /* not inside a character */
                text++;
            cut = NULL;
            continue;
        }
        bool is_none = length == 3 && memcmp(text, "\xef\xbf", 2) == 0; /* two of them no XML may have */
        if (!length || is_none || format_text_turns_around(text))
            fputs("&#65533;", out);
        else if (c < ' ' || c == 127 || strchr("<>&\"'", c))
            fprintf(out, "&#%d;", c < ' ' || c == 127 ? '?' : c);
        else
            fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
}

/* What a block is called: its label, else the function that asked for it. */
static uint32_t name_of(const svg *g, const format_block *b)
{
    return b->label ? b->label : b->stack < g->v->h->frame_count ? g->sites[b->stack] : 0;
}

/* The functions that asked, found once for each stack. False: no memory. */
static bool find_sites(svg *g)
{
    const format_history *h = g->v->h;
    g->sites = calloc((size_t)h->frame_count + 1, sizeof *g->sites);
    for (uint32_t f = 1; g->sites && f < h->frame_count; f++)
        g->sites[f] = h->frames[holders_site(h, f)].function;
    return g->sites;
}

/* Those with the most bytes at the peak, then those with the most bytes for the longest time. False: no memory. */
static bool choose_names(svg *g)
{
    const format_history *h = g->v->h;
    double *weights = calloc((size_t)h->text_count + 1, sizeof *weights);
    if (!weights)
        return false;
    for (uint32_t k = 0; k < g->s->block_count; k++) {
        const format_block *b = &h->blocks[g->s->blocks[k]];
        bool at_peak = g->s->peak.event != FORMAT_ALIVE && format_block_is_alive(b, g->s->peak.event);
        double life = (double)(b->end == FORMAT_ALIVE ? h->event_count : b->end) - b->begin;
        weights[name_of(g, b)] += (double)b->size_bytes * (life + (at_peak ? 1e9 * h->event_count : 0));
    }
    while (g->named_count < NAMED) {
        uint32_t best = 0;
        weights[0] = 0;
        for (uint32_t t = 1; t < h->text_count; t++)
            if (weights[t] > weights[best])
                best = t;
        if (!best)
            break;
        weights[best] = 0;
        g->named[g->named_count++] = best;
    }
    free(weights);
    return true;
}

static const char *colour_of(const svg *g, const format_block *b)
{
    for (uint32_t i = 0; i < g->named_count; i++)
        if (g->named[i] == name_of(g, b))
            return colours[i];
    return colours[NAMED];
}

static void svg_text(const svg *g, double x, double y, const char *anchor, const char *text)
{
    fprintf(g->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    svg_words(g->out, text, 60);
    fputs("</text>\n", g->out);
}

static void draw_curve(const svg *g)
{
    const view_space *s = g->s;
    char words[CLI_SIZE_ROOM], line[80];
    const double scale = s->bound_bytes ? (double)CURVE / (double)s->bound_bytes : 0;
    const double base = TOP + CURVE;
    fprintf(g->out, "<path fill=\"#9ecae1\" stroke=\"#3182bd\" stroke-width=\"0.8\" d=\"M%d %.1f", LEFT,
            base);
    for (uint32_t i = 0; i < g->v->bucket_count; i++)
        fprintf(g->out, "L%.2f %.2fH%.2f", LEFT + (double)i / g->v->bucket_count * WIDTH,
                base - (double)s->high[i] * scale, LEFT + (double)(i + 1) / g->v->bucket_count * WIDTH);
    fprintf(g->out, "V%.1fZ\"/>\n", base);
    const double x = svg_x(g, s->peak.event == FORMAT_ALIVE ? 0 : s->peak.event),
                 y = base - (double)s->peak.bytes * scale;
    fprintf(g->out,
            "<path d=\"M%d %dH%d\" stroke=\"#000\" stroke-dasharray=\"5 3\"/>\n"
            "<path d=\"M%.2f %.2fl-5 -8h10z\"/>\n",
            LEFT, TOP, LEFT + WIDTH, x, y);
    snprintf(line, sizeof line, "peak %s", cli_size_text(s->peak.bytes, words));
    svg_text(g, x > LEFT + WIDTH / 2.0 ? x - 8 : x + 8, TOP - 6, x > LEFT + WIDTH / 2.0 ? "end" : "start",
             line);
    svg_text(g, LEFT - 6, TOP + 4, "end", cli_size_text(s->bound_bytes, words));
    svg_text(g, LEFT - 6, base, "end", "0");
}

/* Blocks that are too small to be seen are left out, the largest areas are drawn. */
static void draw_blocks(const svg *g)
{
    const view_space *s = g->s;
    const format_history *h = g->v->h;
    const uint64_t height = view_height(s, g->planned);
    const double scale = height ? (double)MAP / (double)height : 0, base = TOP + CURVE + GAP + MAP;
    uint32_t drawn = 0;
    for (double least = 64; least > 0.01 && drawn < DRAWN_MOST; least /= 8) /* large ones first */
        for (uint32_t k = 0; k < s->block_count && drawn < DRAWN_MOST; k++) {
            const format_block *b = &h->blocks[s->blocks[k]];
            double x = svg_x(g, b->begin), w = svg_x(g, b->end == FORMAT_ALIVE ? h->event_count : b->end) - x;
            double at = (double)(g->planned ? s->planned[k] : view_folded(s, b->address)) * scale;
            double tall = (double)b->size_bytes * scale;
            if (w * tall < least || (least < 64 && w * tall >= least * 8))
                continue;
            drawn++;
            /* A border would be all that is seen of a thin one. */
            fprintf(g->out,
                    "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s><title>", x,
                    base - at - tall, w, tall, colour_of(g, b), w < 2 || tall < 2 ? " stroke=\"none\"" : "");
            svg_words(g->out, format_history_words(h, name_of(g, b)), 200);
            fprintf(g->out, " %" PRIu64 " bytes</title></rect>\n", b->size_bytes);
        }
}

static bool is_drawn_segment(const svg *g, const format_segment *segment)
{
    return !g->planned && g->v->h->has_addresses && segment->process == g->s->process &&
           segment->device == g->s->device && segment->size_bytes;
}

static uint32_t count_segments(const svg *g)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->v->h->segment_count; i++)
        count += is_drawn_segment(g, &g->v->h->segments[i]);
    return count;
}

/* What a cache or the program holds from the driver or the system, behind the blocks that live in it. */
static void draw_segments(const svg *g)
{
    const format_history *h = g->v->h;
    const uint64_t height = view_height(g->s, false);
    const double scale = height ? (double)MAP / (double)height : 0, base = TOP + CURVE + GAP + MAP;
    uint32_t drawn = 0;
    fputs("<g class=\"segments\" " SEGMENT_INK " stroke-width=\"0.8\">\n", g->out);
    for (uint32_t i = 0; i < h->segment_count && drawn < DRAWN_MOST; i++) {
        const format_segment *segment = &h->segments[i];
        if (!is_drawn_segment(g, segment))
            continue;
        double x = svg_x(g, segment->begin);
        double w = svg_x(g, segment->end == FORMAT_ALIVE ? h->event_count : segment->end) - x;
        double at = (double)view_folded(g->s, segment->address) * scale;
        double tall = (double)segment->size_bytes * scale;
        drawn++;
        fprintf(g->out,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>segment of %" PRIu64
                " bytes",
                x, base - at - tall, w, tall, segment->size_bytes);
        if (segment->pool) {
            fputs(", pool ", g->out);
            svg_words(g->out, format_history_words(h, segment->pool), 200);
        }
        if (segment->stream)
            fprintf(g->out, ", stream %" PRIu64, segment->stream);
        fputs("</title></rect>\n", g->out);
    }
    fputs("</g>\n", g->out);
}

/* Blocks that have no colour of their own. */
static uint32_t count_others(const svg *g)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < g->s->block_count; k++)
        count += colour_of(g, &g->v->h->blocks[g->s->blocks[k]]) == colours[NAMED];
    return count;
}

static void draw_legend(const svg *g, uint32_t others, uint32_t segments)
{
    char line[80];
    double y = TOP + CURVE + GAP + MAP + BELOW;
    for (uint32_t i = 0; i < g->named_count; i++, y += 18) {
        fprintf(g->out, "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT, y,
                colours[i]);
        svg_text(g, LEFT + 18, y + 11, "start", format_history_words(g->v->h, g->named[i]));
    }
    if (others) {
        fprintf(g->out, "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT, y,
                colours[NAMED]);
        snprintf(line, sizeof line, "all others (%" PRIu32 " block%s)", others, others == 1 ? "" : "s");
        svg_text(g, LEFT + 18, y + 11, "start", line);
        y += 18;
    }
    if (!segments)
        return;
    fprintf(g->out, "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" " SEGMENT_INK "/>\n", LEFT, y);
    snprintf(line, sizeof line, "segments, held from the driver or the system (%" PRIu32 ")", segments);
    svg_text(g, LEFT + 18, y + 11, "start", line);
}

bool view_write_svg(const view *v, const view_space *s, FILE *out)
{
    svg g = {.v = v, .s = s, .out = out, .planned = !v->h->has_addresses};
    char words[CLI_SIZE_ROOM], line[160], name[VIEW_NAME_ROOM];
    const double base = TOP + CURVE + GAP + MAP;
    if (g.planned && !s->planned)
        g.planned = false;
    if (!find_sites(&g) || !choose_names(&g)) {
        free(g.sites);
        return false;
    }
    const uint32_t segments = count_segments(&g), others = count_others(&g);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + WIDTH + RIGHT,
            TOP + CURVE + GAP + MAP + BELOW + 10 + 18 * (g.named_count + (others > 0) + (segments > 0)));
    draw_curve(&g);
    if (segments)
        draw_segments(&g);
    fputs("<g stroke=\"#fff\" stroke-width=\"0.4\">\n", out);
    draw_blocks(&g);
    fprintf(out, "</g>\n<path d=\"M%d %dV%.0fH%d\" fill=\"none\" stroke=\"#000\"/>\n", LEFT,
            TOP + CURVE + GAP, base, LEFT + WIDTH);
    svg_text(&g, LEFT - 6, TOP + CURVE + GAP + 10, "end", cli_size_text(view_height(s, g.planned), words));
    svg_text(&g, LEFT - 6, base, "end", "0");
    snprintf(line, sizeof line, "%s: %u blocks, %s, in the order of events", view_space_name(v, s, name),
             s->block_count, g.planned ? "planned" : "as recorded");
    svg_text(&g, LEFT, base + 18, "start", line);
    draw_legend(&g, others, segments);
    fputs("</svg>\n", out);
    free(g.sites);
    return !ferror(out);
}

/* A plan as a picture: SVG, with the id, life, size and place of each buffer as the words that a viewer shows at it. */
#include "cli/svg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/problem.h"
#include "cli/size.h"

enum { WIDTH = 1000, HEIGHT = 600, LEFT = 90, TOP = 20, BELOW = 40, RIGHT = 20 };

typedef struct svg {
    FILE *out;
    const berth_problem_file *file;
    const uint64_t *offsets;
    int64_t start, end;
    uint64_t peak;
} svg;

static double svg_x(const svg *s, int64_t time)
{
    /* whole numbers first: nanoseconds since 1970 are so large that a double tells only every 256th apart */
    const double span = (double)((uint64_t)s->end - (uint64_t)s->start);
    return LEFT + (span > 0 ? (double)((uint64_t)time - (uint64_t)s->start) / span * WIDTH : 0);
}

static double svg_y(const svg *s, uint64_t address)
{
    return TOP + HEIGHT - (s->peak ? (double)address / (double)s->peak * HEIGHT : 0);
}

void cli_svg_text(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
}

/* The times at which a buffer is there: its life without its gaps. */
static void svg_patch(const svg *s, const berth_problem_buffer *b, size_t index, int64_t from, int64_t to)
{
    char id[CLI_ID_ROOM];
    const double x = svg_x(s, from), y = svg_y(s, s->offsets[index] + b->size_bytes);
    if (to <= from)
        return;
    fprintf(s->out,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%u,55%%,65%%)\"><title>",
            x, y, svg_x(s, to) - x, svg_y(s, s->offsets[index]) - y, (unsigned)(index * 137 % 360));
    cli_svg_text(s->out, cli_problem_id(s->file, index, id));
    fprintf(s->out, ": %" PRIu64 " bytes at %" PRIu64 ", times %" PRId64 " to %" PRId64 "</title></rect>\n",
            b->size_bytes, s->offsets[index], b->lower, b->upper);
}

static void svg_buffer(const svg *s, const berth_problem *problem, size_t index)
{
    const berth_problem_buffer *b = &problem->buffers[index];
    const berth_gap *gaps = problem->gaps + b->gap_first;
    int64_t from = b->lower;
    if (!b->size_bytes)
        return;
    for (size_t k = 0; k < b->gap_count; k++) {
        svg_patch(s, b, index, from, gaps[k].lower);
        from = gaps[k].upper;
    }
    svg_patch(s, b, index, from, b->upper);
}

static void svg_draw(svg *s, const berth_problem *problem)
{
    char size[CLI_SIZE_ROOM];
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        s->start = !i || b->lower < s->start ? b->lower : s->start;
        s->end = !i || b->upper > s->end ? b->upper : s->end;
    }
    fprintf(s->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<g stroke=\"white\" stroke-width=\"0.5\">\n",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW);
    for (size_t i = 0; i < problem->buffer_count; i++)
        svg_buffer(s, problem, i);
    fprintf(s->out,
            "</g>\n<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"black\"/>\n"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n<text x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">0</text>\n"
            "<text x=\"%d\" y=\"%d\">%" PRId64 "</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%" PRId64
            "</text>\n</svg>\n",
            LEFT, TOP, TOP + HEIGHT, LEFT + WIDTH, LEFT - 6, TOP + 10, cli_size_text(s->peak, size), LEFT - 6,
            TOP + HEIGHT, LEFT, TOP + HEIGHT + 18, s->start, LEFT + WIDTH, TOP + HEIGHT + 18, s->end);
}

int cli_svg_write(const char *verb, const berth_problem_file *file, const uint64_t *offsets,
                  uint64_t peak_bytes, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    svg s = {.out = open_memstream(&text, &size), .file = file, .offsets = offsets, .peak = peak_bytes};
    if (!s.out)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    svg_draw(&s, berth_problem_file_problem(file));
    bool done = !ferror(s.out);
    done = fclose(s.out) == 0 && done;
    const int code =
        done ? cli_write_whole(verb, path, text, size) : cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    free(text);
    return code;
}

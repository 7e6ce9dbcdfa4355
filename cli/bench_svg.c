/* The picture of berth bench-allocators: a row of bars for each allocator. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/size.h"
#include "cli/svg.h"

enum { PANELS = 3, LEFT = 210, PANEL = 280, GAP = 20, BAR = 200, ROW = 26, TOP = 64, BELOW = 20 };

/* One figure of all allocators. */
typedef struct panel {
    const char *title;
    double (*value)(const bench *b, const bench_row *row); /* below 0: unknown */
    void (*words)(double value, char text[CLI_SIZE_ROOM]);
} panel;

static double time_value(const bench *b, const bench_row *row)
{
    (void)b;
    return row->run_count ? bench_figures_of(row).seconds : -1;
}
static double resident_value(const bench *b, const bench_row *row)
{
    return row->run_count && row != b->rows ? (double)bench_figures_of(row).resident_bytes : -1;
}
static double calls_value(const bench *b, const bench_row *row)
{
    (void)b;
    return row->calls.is_known ? (double)row->calls.all : -1;
}

static void time_words(double value, char text[CLI_SIZE_ROOM])
{
    cli_time_text(value, text);
}
static void size_words(double value, char text[CLI_SIZE_ROOM])
{
    cli_size_text((uint64_t)value, text);
}
static void count_words(double value, char text[CLI_SIZE_ROOM])
{
    snprintf(text, CLI_SIZE_ROOM, "%.0f", value);
}

static const panel panels[PANELS] = {{"time, the driver's own darker", time_value, time_words},
                                     {"peak resident, live bytes as a line", resident_value, size_words},
                                     {"system calls", calls_value, count_words}};

static void draw_bar(const bench *b, const panel *p, double most, uint32_t row, int x, FILE *out)
{
    char words[CLI_SIZE_ROOM];
    const double value = p->value(b, &b->rows[row]), driver = p->value(b, &b->rows[0]);
    const int y = TOP + (int)row * ROW;
    if (value < 0)
        return;
    const double wide = most > 0 ? value / most * BAR : 0;
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"hsl(%u,55%%,65%%)\"/>\n", x, y,
            wide, ROW - 8, row * 137 % 360);
    if (p->value == time_value && driver > 0 && most > 0)
        fprintf(
            out,
            "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"black\" fill-opacity=\"0.25\"/>\n",
            x, y, (driver < value ? driver : value) / most * BAR, ROW - 8);
    p->words(value, words);
    fprintf(out, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x + wide + 5, y + ROW - 13, words);
}

static void draw_panel(const bench *b, const panel *p, int x, FILE *out)
{
    double most = p->value == resident_value ? (double)b->script->live_bytes : 0;
    const double live = most;
    for (uint32_t i = 0; i < b->row_count; i++) {
        const double value = p->value(b, &b->rows[i]);
        most = value > most ? value : most;
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", x, TOP - 14, p->title);
    for (uint32_t i = 0; i < b->row_count; i++)
        draw_bar(b, p, most, i, x, out);
    if (live > 0 && most > 0)
        fprintf(out, "<path d=\"M%.1f %dV%d\" stroke=\"black\" stroke-dasharray=\"3 3\"/>\n",
                x + live / most * BAR, TOP - 6, TOP + (int)b->row_count * ROW);
}

void bench_print_svg(const bench *b, FILE *out)
{
    const int width = LEFT + PANELS * (PANEL + GAP), height = TOP + (int)b->row_count * ROW + BELOW;
    char live[CLI_SIZE_ROOM];
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"10\" "
            "y=\"22\">",
            width, height);
    cli_svg_text(out, b->input);
    fprintf(out, ": %" PRIu64 " events on %" PRIu32 " thread%s, %s alive at the peak</text>\n",
            b->script->event_count, b->thread_count, b->thread_count == 1 ? "" : "s",
            cli_size_text(b->script->live_bytes, live));
    for (uint32_t i = 0; i < b->row_count; i++) {
        char name[30];
        snprintf(name, sizeof name, "%s", b->rows[i].allocator.name);
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 10,
                TOP + (int)i * ROW + ROW - 13);
        cli_svg_text(out, name);
        fputs("</text>\n", out);
        if (!b->rows[i].run_count) {
            fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#a00\">", LEFT, TOP + (int)i * ROW + ROW - 13);
            cli_svg_text(out, b->rows[i].words);
            fputs("</text>\n", out);
        }
    }
    for (int i = 0; i < PANELS; i++)
        draw_panel(b, &panels[i], LEFT + i * (PANEL + GAP), out);
    fputs("</svg>\n", out);
}

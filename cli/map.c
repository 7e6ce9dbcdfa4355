/* The map of a plan. It is sampled: a cell shows who holds the middle of its time and address. In a valid
 * plan that is one buffer at most, so all buffers together fill no more than the grid, and a million of them
 * cost a look each. With colour a character shows two cells, one above the other, as the two colours of a
 * half block. */
#include "cli/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/size.h"

#define NOBODY UINT32_MAX
enum { AXIS = 12, SMALLEST = 24, LARGEST = 1000, SHADES = 4, COLOURS = 12, NO_CLASS = 255 };

/* One direction of the grid. Millions of buffers ask for their cells, so that where cells begin and have their
 * middles is found once. */
typedef struct axis {
    double scale; /* cells in a unit */
    unsigned cells;
    uint64_t first[2 * LARGEST];  /* what lies here or after lies in this cell or after */
    uint64_t middle[2 * LARGEST]; /* rounded down */
} axis;

typedef struct grid {
    const berth_problem *problem;
    const uint64_t *offsets;
    uint64_t peak;
    int64_t first; /* time of the left edge */
    uint64_t span; /* times across */
    unsigned columns, rows;
    unsigned halves;        /* cells a character is high */
    uint32_t *cells;        /* rows from the top, halves included */
    char *letters;          /* by character, 0: none */
    unsigned char *classes; /* by buffer: its colour or shade, NO_CLASS until it has one */
    axis across, upward;
} grid;

/* ---- Surroundings -------------------------------------------------------------------------------- */

bool cli_map_colour(const char *word, FILE *out, bool *colour)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    *colour = isatty(fileno(out)) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
    if (!word || strcmp(word, "auto") == 0)
        return true;
    *colour = strcmp(word, "always") == 0;
    return *colour || strcmp(word, "never") == 0;
}

bool cli_map_ascii(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return !strcasestr(value, "utf-8") && !strcasestr(value, "utf8");
    }
    return true;
}

static void fit_terminal(FILE *out, unsigned *width, unsigned *height)
{
    struct winsize size;
    bool known = isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col;
    if (!*width)
        *width = known ? size.ws_col : 80;
    if (!*height)
        *height = known && size.ws_row > 16 ? (size.ws_row < 60 ? size.ws_row / 2 + 4U : 34) : 22;
    *width = *width < SMALLEST ? SMALLEST : *width > LARGEST ? LARGEST : *width;
    *height = *height < 4 ? 4 : *height > LARGEST ? LARGEST : *height;
}

/* ---- Sampling ------------------------------------------------------------------------------------ */

/* The middle of cell k of n over [0, span), doubled so that it stays whole: 2k + 1 of 2n. */
static uint64_t middle(unsigned k, unsigned n, uint64_t span)
{
    return (uint64_t)((unsigned __int128)span * (2 * (uint64_t)k + 1) / (2 * (uint64_t)n));
}

static void axis_fill(axis *a, unsigned cells, uint64_t span)
{
    a->cells = cells;
    a->scale = cells / (double)span;
    for (unsigned k = 0; k < cells; k++) {
        a->middle[k] = middle(k, cells, span);
        a->first[k] = (uint64_t)(((unsigned __int128)span * k + cells - 1) / cells);
    }
}

/* The first cell whose middle is at or after `at`: guessed, and put right where rounding erred. */
static unsigned cell_from(const axis *a, uint64_t at)
{
    double guess = (double)at * a->scale;
    unsigned k = guess < a->cells ? (unsigned)guess : a->cells;
    while (k > 0 && a->middle[k - 1] >= at)
        k--;
    while (k < a->cells && a->middle[k] < at)
        k++;
    return k;
}

/* The same for what lies at or after what gave `from`. Most buffers of a million end before the next middle. */
static unsigned cell_until(const axis *a, unsigned from, uint64_t at)
{
    return from == a->cells || a->middle[from] >= at ? from : cell_from(a, at);
}

/* The cell that `at` lies in; its middle is the next one or the last one. */
static unsigned cell_of(const axis *a, uint64_t at)
{
    unsigned k = cell_from(a, at);
    return k < a->cells && a->first[k] <= at ? k : k ? k - 1 : 0;
}

static void find_span(grid *g)
{
    bool any = false;
    int64_t first = 0, last = 0;
    for (size_t i = 0; i < g->problem->buffer_count; i++) {
        const berth_problem_buffer *b = &g->problem->buffers[i];
        if (!b->size_bytes || b->lower == b->upper)
            continue;
        first = !any || b->lower < first ? b->lower : first;
        last = !any || b->upper > last ? b->upper : last;
        any = true;
    }
    g->first = first;
    g->span = (uint64_t)last - (uint64_t)first;
}

static void fill_piece(grid *g, size_t buffer, int64_t lower, int64_t upper, bool specks)
{
    uint64_t size = g->problem->buffers[buffer].size_bytes, start = g->offsets[buffer];
    unsigned x0 = cell_from(&g->across, (uint64_t)lower - (uint64_t)g->first);
    unsigned x1 = cell_until(&g->across, x0, (uint64_t)upper - (uint64_t)g->first);
    unsigned rows = g->rows * g->halves;
    if (x0 == x1 && !specks) /* as nearly all of very many are: no need to know where it is upward */
        return;
    unsigned y0 = cell_from(&g->upward, start), y1 = cell_until(&g->upward, y0, start + size);
    bool is_speck = x0 == x1 || y0 == y1;
    if (is_speck != specks)
        return;
    if (x0 == x1) /* between two middles: the cell that it lies in */
        x0 = cell_of(&g->across, (uint64_t)lower - (uint64_t)g->first), x1 = x0 + 1;
    if (y0 == y1)
        y0 = cell_of(&g->upward, start), y1 = y0 + 1;
    for (unsigned y = y0; y < y1; y++)
        for (unsigned x = x0; x < x1; x++) {
            uint32_t *cell = &g->cells[(rows - 1 - y) * g->columns + x];
            if (*cell == NOBODY)
                *cell = (uint32_t)buffer;
        }
}

/* Those too small to be met by a sample are put into cells that are still empty, in a second round. */
static void fill(grid *g, bool specks)
{
    for (size_t i = 0; i < g->problem->buffer_count; i++) {
        const berth_problem_buffer *b = &g->problem->buffers[i];
        int64_t from = b->lower;
        if (!b->size_bytes || b->lower == b->upper || g->offsets[i] == BERTH_NO_OFFSET)
            continue;
        for (uint32_t k = 0; k < b->gap_count; k++) {
            const berth_gap *gap = &g->problem->gaps[b->gap_first + k];
            if (gap->lower > from)
                fill_piece(g, i, from, gap->lower, specks);
            from = gap->upper;
        }
        if (b->upper > from)
            fill_piece(g, i, from, b->upper, specks);
    }
}

/* Puts a letter on the character of a buffer's patch that is nearest to the patch's middle. */
static void place_letter(grid *g, size_t buffer, char letter)
{
    uint64_t sum_x = 0, sum_y = 0, count = 0, best = UINT64_MAX;
    size_t at = 0;
    for (int round = 0; round < 2; round++) {
        for (unsigned y = 0; y < g->rows; y++)
            for (unsigned x = 0; x < g->columns; x++) {
                const uint32_t *cell = &g->cells[(size_t)y * g->halves * g->columns + x];
                if (cell[0] != buffer || cell[(g->halves - 1) * g->columns] != buffer)
                    continue;
                if (round == 0) {
                    sum_x += x;
                    sum_y += y;
                    count++;
                    continue;
                }
                uint64_t dx = x > sum_x / count ? x - sum_x / count : sum_x / count - x;
                uint64_t dy = y > sum_y / count ? y - sum_y / count : sum_y / count - y;
                if (dx + 2 * dy < best) {
                    best = dx + 2 * dy;
                    at = (size_t)y * g->columns + x;
                }
            }
        if (!count)
            return;
    }
    g->letters[at] = letter;
}

/* ---- Drawing ------------------------------------------------------------------------------------- */

/* Gives every buffer on the map a colour or shade that its neighbours on the map do not have, as far as
 * looking left and up can tell. */
static void classify(grid *g, unsigned count)
{
    unsigned rows = g->rows * g->halves;
    for (unsigned y = 0; y < rows; y++)
        for (unsigned x = 0; x < g->columns; x++) {
            const uint32_t *cell = &g->cells[(size_t)y * g->columns + x];
            if (*cell == NOBODY || g->classes[*cell] != NO_CLASS)
                continue;
            unsigned class = (*cell * 0x9e3779b1u >> 16) % count;
            unsigned left = x && cell[-1] != NOBODY ? g->classes[cell[-1]] : NO_CLASS;
            unsigned up = y && *(cell - g->columns) != NOBODY ? g->classes[*(cell - g->columns)] : NO_CLASS;
            while (class == left || class == up)
                class = (class + 1) % count;
            g->classes[*cell] = (unsigned char)class;
        }
}

static unsigned colour_of(const grid *g, uint32_t buffer)
{
    static const unsigned char palette[COLOURS] = {67, 173, 108, 139, 179, 73, 168, 104, 143, 131, 110, 137};
    return palette[g->classes[buffer]];
}

static void draw_plain(FILE *out, const grid *g, uint32_t buffer, char letter, bool ascii)
{
    static const char *const shades[SHADES] = {"░", "▒", "▓", "█"};
    if (letter)
        fputc(letter, out);
    else if (buffer == NOBODY)
        fputc(' ', out);
    else if (ascii)
        fputc(":+x#"[g->classes[buffer]], out);
    else
        fputs(shades[g->classes[buffer]], out);
}

static void draw_coloured(FILE *out, const grid *g, uint32_t above, uint32_t below, char letter)
{
    if (letter)
        fprintf(out, "\033[1;38;5;16;48;5;%um%c\033[0m", colour_of(g, above), letter);
    else if (above == NOBODY && below == NOBODY)
        fputc(' ', out);
    else if (below == NOBODY)
        fprintf(out, "\033[38;5;%um▀\033[0m", colour_of(g, above));
    else if (above == NOBODY)
        fprintf(out, "\033[38;5;%um▄\033[0m", colour_of(g, below));
    else
        fprintf(out, "\033[38;5;%u;48;5;%um▀\033[0m", colour_of(g, above), colour_of(g, below));
}

static void draw_rows(FILE *out, const grid *g, const cli_map_style *style)
{
    for (unsigned y = 0; y < g->rows; y++) {
        char text[CLI_SIZE_ROOM] = "";
        if (y == 0)
            cli_size_text(g->peak, text);
        else if (y == g->rows / 2)
            cli_size_text(middle(g->rows - 1 - y, g->rows, g->peak), text);
        else if (y + 1 == g->rows)
            strcpy(text, "0");
        fprintf(out, "%*s %s", AXIS - 2, text, style->ascii ? "|" : "│");
        const uint32_t *cells = &g->cells[(size_t)y * g->halves * g->columns];
        for (unsigned x = 0; x < g->columns; x++) {
            char letter = g->letters[(size_t)y * g->columns + x];
            if (g->halves == 2)
                draw_coloured(out, g, cells[x], cells[x + g->columns], letter);
            else
                draw_plain(out, g, cells[x], letter, style->ascii);
        }
        fputc('\n', out);
    }
}

static void draw_axis(FILE *out, const grid *g, const cli_map_style *style)
{
    unsigned mark = g->columns;
    if (style->mark_time && g->span)
        mark = (unsigned)((unsigned __int128)((uint64_t)style->time - (uint64_t)g->first) * g->columns /
                          g->span);
    fprintf(out, "%*s%s", AXIS - 1, "", style->ascii ? "+" : "└");
    for (unsigned x = 0; x < g->columns; x++)
        fputs(x == mark ? (style->ascii ? "^" : "▲") : style->ascii ? "-" : "─", out);
    char left[32], right[32], now[48] = "";
    int a = snprintf(left, sizeof left, "%" PRId64, g->first);
    int b = snprintf(right, sizeof right, "%" PRId64, (int64_t)((uint64_t)g->first + g->span));
    int c = mark < g->columns ? snprintf(now, sizeof now, "%" PRId64, style->time) : 0;
    int width = (int)g->columns, at = (int)mark - c / 2;
    if (at > width - b - 1 - c)
        at = width - b - 1 - c;
    if (at < a + 1) /* no room between the ends: they matter more */
        c = 0;
    fprintf(out, "\n%*s%s", AXIS, "", left);
    if (c)
        fprintf(out, "%*s%s%*s", at - a, "", now, width - at - c, right);
    else
        fprintf(out, "%*s", width - a > b ? width - a : b + 1, right);
    fputc('\n', out);
}

bool cli_map_draw(FILE *out, const berth_problem *problem, const uint64_t *offsets, uint64_t peak_bytes,
                  const cli_map_style *style)
{
    grid g = {.problem = problem, .offsets = offsets, .peak = peak_bytes};
    unsigned width = style->width, height = style->height;
    fit_terminal(out, &width, &height);
    find_span(&g);
    if (!peak_bytes || !g.span) {
        fprintf(out, "%*s(nobody ever lives: there is nothing to draw)\n", AXIS, "");
        return true;
    }
    g.columns = width - AXIS;
    g.rows = height - 2;
    g.halves = style->colour && !style->ascii ? 2 : 1;
    axis_fill(&g.across, g.columns, g.span);
    axis_fill(&g.upward, g.rows * g.halves, g.peak);
    size_t cells = (size_t)g.columns * g.rows * g.halves;
    g.cells = malloc(cells * sizeof *g.cells);
    g.letters = calloc((size_t)g.columns * g.rows, 1);
    g.classes = malloc(problem->buffer_count);
    bool enough = g.cells && g.letters && g.classes;
    if (enough) {
        memset(g.cells, 0xff, cells * sizeof *g.cells);
        memset(g.classes, NO_CLASS, problem->buffer_count);
        fill(&g, false);
        fill(&g, true);
        classify(&g, g.halves == 2 ? COLOURS : SHADES);
        for (size_t k = 0; k < style->lettered_count && k < 26; k++)
            place_letter(&g, style->lettered[k], (char)('A' + k));
        draw_rows(out, &g, style);
        draw_axis(out, &g, style);
    }
    free(g.cells);
    free(g.letters);
    free(g.classes);
    return enough;
}

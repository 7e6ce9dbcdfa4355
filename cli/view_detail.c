/* Which blocks a page tells one by one, and how full the rest is: a page with ten million events must still open. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/view.h"

/* Blocks are chosen by the area that they take in the picture, counted in steps of a sixteenth of a doubling. */
enum { STEPS = 16, SCORES = 160 * STEPS, PEAK_BONUS = 24 * STEPS };

static unsigned varint_bytes(uint64_t n)
{
    unsigned bytes = 1;
    while (n >>= 7)
        bytes++;
    return bytes;
}

static uint64_t life_of(const format_history *h, const format_block *b)
{
    return (b->end == FORMAT_ALIVE ? h->event_count : b->end) - (uint64_t)b->begin;
}

/* What the peak consists of matters as if it were sixteen million times as large. */
static uint32_t score_of(const view *v, const view_space *s, const format_block *b)
{
    double area = (double)b->size_bytes * (double)life_of(v->h, b);
    double score = area > 1 ? log2(area) * STEPS : 0;
    if (s->peak.event != FORMAT_ALIVE && format_block_is_alive(b, s->peak.event))
        score += PEAK_BONUS;
    return score < SCORES - 1 ? (uint32_t)score : SCORES - 1;
}

/* About what a block takes in the document; neighbours are told by their differences, which are shorter. */
static unsigned cost_of(const view *v, const view_space *s, const format_block *b)
{
    unsigned place = varint_bytes(s->extent_bytes / 64);
    return 2 + varint_bytes(life_of(v->h, b)) + varint_bytes(b->size_bytes) + place +
           (s->planned ? varint_bytes(s->certificate.peak_bytes / 64) : 0) + (b->stack ? 2 : 0) +
           (b->label ? 1 : 0);
}

/* The lowest score that is kept, and the part of the blocks of that score for which there is room. False: no memory. */
static bool choose_threshold(const view *v, uint64_t budget, uint32_t *lowest, uint64_t *room)
{
    uint64_t *costs = calloc(SCORES, sizeof *costs);
    *lowest = SCORES;
    *room = 0;
    if (!costs)
        return false;
    for (uint32_t i = 0; i < v->space_count; i++)
        for (uint32_t k = 0; k < v->spaces[i].block_count; k++) {
            const format_block *b = &v->h->blocks[v->spaces[i].blocks[k]];
            costs[score_of(v, &v->spaces[i], b)] += cost_of(v, &v->spaces[i], b);
        }
    uint64_t used = 0;
    while (*lowest > 0 && used + costs[*lowest - 1] <= budget)
        used += costs[--*lowest];
    *room = budget - used;
    free(costs);
    return true;
}

bool view_choose(view *v, uint64_t budget_bytes)
{
    uint32_t lowest;
    uint64_t room;
    if (!choose_threshold(v, budget_bytes, &lowest, &room))
        return false;
    for (uint32_t i = 0; i < v->space_count; i++) {
        view_space *s = &v->spaces[i];
        free(s->kept);
        s->kept_count = 0;
        s->left_bytes = 0;
        s->kept = calloc((size_t)s->block_count + 1, sizeof *s->kept);
        if (!s->kept)
            return false;
        for (uint32_t k = 0; k < s->block_count; k++) {
            const format_block *b = &v->h->blocks[s->blocks[k]];
            uint32_t score = score_of(v, s, b);
            uint64_t cost = cost_of(v, s, b);
            s->kept[k] = score >= lowest || (score + 1 == lowest && cost <= room);
            if (s->kept[k] && score < lowest)
                room -= cost;
            s->kept_count += s->kept[k];
            if (!s->kept[k] && b->size_bytes > s->left_bytes)
                s->left_bytes = b->size_bytes;
        }
    }
    return true;
}

/* ---- The rest ---------------------------------------------------------------------------------------- */

/* How much of cell `i` lies in [from, to), all in cells. */
static double overlap(double from, double to, int i)
{
    double a = from > i ? from : i, b = to < i + 1 ? to : i + 1;
    return b > a ? b - a : 0;
}

static void density_add(float *cells, double x0, double x1, double y0, double y1)
{
    int last_x = x1 < VIEW_COLUMNS ? (int)x1 : VIEW_COLUMNS - 1;
    int last_y = y1 < VIEW_ROWS ? (int)y1 : VIEW_ROWS - 1;
    for (int y = (int)y0; y <= last_y; y++)
        for (int x = (int)x0; x <= last_x; x++)
            cells[y * VIEW_COLUMNS + x] += (float)(overlap(x0, x1, x) * overlap(y0, y1, y));
}

unsigned char *view_density(const view *v, const view_space *s, bool planned)
{
    const double across = VIEW_COLUMNS / (v->h->event_count ? (double)v->h->event_count : 1);
    const double up = VIEW_ROWS / (view_height(s, planned) ? (double)view_height(s, planned) : 1);
    float *cells = calloc(VIEW_COLUMNS * VIEW_ROWS, sizeof *cells);
    unsigned char *levels = malloc(VIEW_COLUMNS * VIEW_ROWS);
    if (!cells || !levels) {
        free(cells);
        free(levels);
        return NULL;
    }
    for (uint32_t k = 0; k < s->block_count; k++) {
        if (s->kept[k])
            continue;
        const format_block *b = &v->h->blocks[s->blocks[k]];
        double x = (double)b->begin, y = (double)(planned ? s->planned[k] : view_folded(s, b->address));
        density_add(cells, x * across, (x + (double)life_of(v->h, b)) * across, y * up,
                    (y + (double)b->size_bytes) * up);
    }
    for (int i = 0; i < VIEW_COLUMNS * VIEW_ROWS; i++) /* what is there at all is seen */
        levels[i] = (unsigned char)(cells[i] >= 1 ? 255 : ceil((double)cells[i] * 255));
    free(cells);
    return levels;
}

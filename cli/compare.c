/* Two recordings side by side: the figures, their order, and through whom a call site grew. */
#include "cli/compare.h"

#include <stdlib.h>
#include <string.h>

/* ---- Figures ------------------------------------------------------------------------------------------ */

static void figures_total(compare_figures *f, const format_block *b)
{
    f->total_bytes += b->size_bytes;
    f->allocations++;
    if (b->end == FORMAT_ALIVE) {
        f->end_bytes += b->size_bytes;
        f->end_blocks++;
    }
}

static void figures_peak(compare_figures *f, const format_block *b)
{
    f->peak_bytes += b->size_bytes;
    f->peak_blocks++;
}

/* Adds to the whole and to both tables what a block tells by `add`. */
static void figures_add(compare *c, int side, const format_block *b,
                        void (*add)(compare_figures *, const format_block *))
{
    add(&c->all[side], b);
    add(&c->sites.rows[compare_row_of(&c->sites, side, b)].of[side], b);
    add(&c->labels.rows[compare_row_of(&c->labels, side, b)].of[side], b);
}

static void figures_fill(compare *c, bool at_moment)
{
    for (int side = 0; side < SIDES; side++)
        for (uint32_t i = 0; i < c->h[side]->block_count; i++) {
            const format_block *b = &c->h[side]->blocks[i];
            if (!compare_takes(c, side, b))
                continue;
            if (!at_moment)
                figures_add(c, side, b, figures_total);
            else if (c->moment[side] != FORMAT_ALIVE && format_block_is_alive(b, c->moment[side]))
                figures_add(c, side, b, figures_peak);
        }
}

/* ---- Order -------------------------------------------------------------------------------------------- */

static int64_t grown(uint64_t before, uint64_t after)
{
    return (int64_t)(after - before);
}

int64_t compare_growth(const compare_row *row, compare_order order)
{
    const compare_figures *before = &row->of[BEFORE], *after = &row->of[AFTER];
    switch (order) {
    case COMPARE_AT_PEAK:
        return grown(before->peak_bytes, after->peak_bytes);
    case COMPARE_AT_END:
        return grown(before->end_bytes, after->end_bytes);
    case COMPARE_IN_ALL:
        break;
    }
    return grown(before->total_bytes, after->total_bytes);
}

/* By growth in the order asked for, then at the peak, at the end and in all, then by what they were. */
typedef struct rank {
    int64_t growth[4];
    uint64_t size;
    uint32_t row;
} rank;

static int rank_compare(const void *x, const void *y)
{
    const rank *a = x, *b = y;
    for (size_t i = 0; i < 4; i++)
        if (a->growth[i] != b->growth[i])
            return a->growth[i] > b->growth[i] ? -1 : 1;
    if (a->size != b->size)
        return a->size > b->size ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

uint32_t *compare_sorted(const compare_table *table, compare_order order)
{
    rank *ranks = calloc((size_t)table->count + 1, sizeof *ranks);
    uint32_t *sorted = calloc((size_t)table->count + 1, sizeof *sorted);
    if (!ranks || !sorted) {
        free(ranks);
        free(sorted);
        return NULL;
    }
    for (uint32_t i = 0; i < table->count; i++) {
        const compare_row *r = &table->rows[i];
        ranks[i] = (rank){{compare_growth(r, order), compare_growth(r, COMPARE_AT_PEAK),
                           compare_growth(r, COMPARE_AT_END), compare_growth(r, COMPARE_IN_ALL)},
                          r->of[AFTER].peak_bytes,
                          i};
    }
    if (table->count)
        qsort(ranks, table->count, sizeof *ranks, rank_compare);
    for (uint32_t i = 0; i < table->count; i++)
        sorted[i] = ranks[i].row;
    free(ranks);
    return sorted;
}

/* Puts the rows in the order of their growth at the peak. */
static bool rows_sort(compare_table *t)
{
    uint32_t *sorted = compare_sorted(t, COMPARE_AT_PEAK);
    uint32_t *now = calloc((size_t)t->count + 1, sizeof *now);
    compare_row *rows = calloc((size_t)t->count + 1, sizeof *rows);
    bool done = sorted && now && rows;
    for (uint32_t i = 0; done && i < t->count; i++) {
        rows[i] = t->rows[sorted[i]];
        now[sorted[i]] = i;
    }
    for (int side = 0; done && side < SIDES; side++)
        for (uint32_t i = 0; i < t->groups[side].count; i++)
            t->row_of[side][i] = now[t->row_of[side][i]];
    free(sorted);
    free(now);
    if (!done) {
        free(rows);
        return false;
    }
    free(t->rows);
    t->rows = rows;
    return true;
}

/* ---- All of it ---------------------------------------------------------------------------------------- */

bool compare_init(compare *c, const format_history *before, uint16_t device_before,
                  const format_history *after, uint16_t device_after)
{
    *c = (compare){.h = {before, after}, .device = {device_before, device_after}};
    bool done = true;
    for (int side = 0; side < SIDES && done; side++) {
        c->peak[side] = format_history_peak(c->h[side], c->device[side]);
        done = holders_init(&c->sites.groups[side], c->h[side], c->device[side], HOLDERS_AT_END,
                            HOLDERS_BY_SITE) &&
               holders_init(&c->labels.groups[side], c->h[side], c->device[side], HOLDERS_AT_END,
                            HOLDERS_BY_LABEL);
    }
    if (!done || !compare_match(c))
        return false;
    figures_fill(c, false);
    if (!compare_find_moment(c))
        return false;
    figures_fill(c, true);
    return rows_sort(&c->sites) && rows_sort(&c->labels);
}

static void table_finish(compare_table *t)
{
    free(t->rows);
    for (int side = 0; side < SIDES; side++) {
        holders_finish(&t->groups[side]);
        free(t->row_of[side]);
    }
}

void compare_finish(compare *c)
{
    if (!c)
        return;
    table_finish(&c->sites);
    table_finish(&c->labels);
    for (int side = 0; side < SIDES; side++)
        free(c->classes[side]);
    *c = (compare){0};
}

const char *compare_name_in(const compare *c, const compare_table *table, const compare_row *row, int side,
                            char text[HOLDERS_NAME_ROOM])
{
    const bool by_label = table->groups[side].by == HOLDERS_BY_LABEL;
    const holder named = {.label = by_label ? row->name[side] : 0, .frame = by_label ? 0 : row->name[side]};
    return holders_name(c->h[side], &table->groups[side], &named, text);
}

const char *compare_name(const compare *c, const compare_table *table, const compare_row *row,
                         char text[HOLDERS_NAME_ROOM])
{
    return compare_name_in(c, table, row, row->is_in[AFTER] ? AFTER : BEFORE, text);
}

/* ---- Callers ------------------------------------------------------------------------------------------ */

/* What one stack holds at the peak; `at` climbs from the call site to its callers. */
typedef struct climber {
    int64_t bytes; /* of the earlier recording negative */
    uint32_t at, class;
    int side;
} climber;

static int climber_compare(const void *x, const void *y)
{
    const climber *a = x, *b = y;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return b->side - a->side; /* the later recording's first: it gives the name */
}

/* The climbers of a row, one for each stack. NULL: no memory, or none. */
static climber *climbers_gather(const compare *c, uint32_t row, uint32_t *count)
{
    climber *all = calloc((size_t)c->h[BEFORE]->frame_count + c->h[AFTER]->frame_count + 1, sizeof *all);
    *count = 0;
    for (int side = 0; all && side < SIDES; side++) {
        const format_history *h = c->h[side];
        const uint32_t first = *count;
        uint32_t *of = calloc((size_t)h->frame_count + 1, sizeof *of);
        for (uint32_t i = 0; of && i < h->block_count; i++) {
            const format_block *b = &h->blocks[i];
            if (!b->stack || !compare_takes(c, side, b) || !format_block_is_alive(b, c->moment[side]) ||
                compare_row_of(&c->sites, side, b) != row)
                continue;
            if (!of[b->stack]) {
                of[b->stack] = ++*count - first;
                all[*count - 1] = (climber){.at = holders_site(h, b->stack), .side = side};
            }
            all[first + of[b->stack] - 1].bytes +=
                side == AFTER ? (int64_t)b->size_bytes : -(int64_t)b->size_bytes;
        }
        free(of);
    }
    return all;
}

/* Goes one caller up and keeps those who have most of the growth in common. How many; 0: there is no such caller. */
static uint32_t climbers_step(const compare *c, climber *all, uint32_t count, int64_t *growth)
{
    for (uint32_t i = 0; i < count; i++) {
        const format_history *h = c->h[all[i].side];
        all[i].at = h->frames[all[i].at].caller;
        all[i].class = all[i].at < h->frame_count ? c->classes[all[i].side][all[i].at] : 0;
    }
    qsort(all, count, sizeof *all, climber_compare);
    uint32_t best = 0, best_count = 0;
    int64_t most = *growth / 2;
    for (uint32_t i = 0; i < count;) {
        uint32_t to = i;
        int64_t bytes = 0;
        for (; to < count && all[to].class == all[i].class; to++)
            bytes += all[to].bytes;
        if (bytes > most && all[i].class) {
            most = bytes;
            best = i;
            best_count = to - i;
        }
        i = to;
    }
    memmove(all, all + best, best_count * sizeof *all);
    *growth = most;
    return best_count;
}

/* What runs before main tells nothing. */
static bool is_start(const format_history *h, uint32_t frame)
{
    const char *function = format_history_words(h, h->frames[frame].function);
    return strncmp(function, "__libc_start", 12) == 0 || strcmp(function, "_start") == 0 ||
           strcmp(function, "start_thread") == 0 || strcmp(function, "clone3") == 0;
}

uint32_t compare_callers(const compare *c, const compare_row *site, uint32_t *frames, uint32_t room)
{
    uint32_t count, found = 0;
    int64_t growth = compare_growth(site, COMPARE_AT_PEAK);
    if (growth <= 0)
        return 0;
    climber *all = climbers_gather(c, (uint32_t)(site - c->sites.rows), &count);
    while (all && count && found < room && (count = climbers_step(c, all, count, &growth)) > 0 &&
           !is_start(c->h[AFTER], all[0].at))
        frames[found++] = all[0].at;
    free(all);
    return found;
}

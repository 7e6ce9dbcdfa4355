/* Labels and functions that have another name in the later recording: what went and what came make the same allocations, of the same
 * sizes in the same order. */
#include <stdlib.h>

#include "cli/compare.h"

enum { ENOUGH_ALLOCATIONS = 4 }; /* fewer may be alike by chance */

/* A row that one recording alone has. */
typedef struct lone {
    uint64_t print; /* of its sizes, one after the other */
    uint64_t allocations;
    uint32_t row;
    int side;
} lone;

static int lone_compare(const void *x, const void *y)
{
    const lone *a = x, *b = y;
    if (a->print != b->print)
        return a->print < b->print ? -1 : 1;
    if (a->allocations != b->allocations)
        return a->allocations < b->allocations ? -1 : 1;
    return a->side != b->side ? a->side - b->side : a->row < b->row ? -1 : a->row > b->row;
}

static uint64_t print_add(uint64_t print, uint64_t size)
{
    uint64_t z = (print + size + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 32;
}

static void lones_fill(const compare *c, const compare_table *t, lone *lones)
{
    for (uint32_t i = 0; i < t->count; i++)
        lones[i] = (lone){.row = i, .side = t->rows[i].is_in[BEFORE] ? BEFORE : AFTER};
    for (int side = 0; side < SIDES; side++)
        for (uint32_t i = 0; i < c->h[side]->block_count; i++) {
            const format_block *b = &c->h[side]->blocks[i];
            if (!compare_takes(c, side, b))
                continue;
            lone *one = &lones[compare_row_of(t, side, b)];
            one->print = print_add(one->print, b->size_bytes);
            one->allocations++;
        }
}

/* Puts pairs together: into[row] is where the row goes. How many there are. */
static uint32_t lones_pair(compare_table *t, const lone *lones, uint32_t count, uint32_t *into)
{
    uint32_t pairs = 0;
    for (uint32_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && lones[to].print == lones[from].print &&
                            lones[to].allocations == lones[from].allocations;)
            to++;
        const lone *went = &lones[from], *came = &lones[from + 1];
        if (to - from != 2 || went->side == came->side || went->allocations < ENOUGH_ALLOCATIONS)
            continue;
        compare_row *row = &t->rows[went->row];
        const compare_row *other = &t->rows[came->row];
        row->is_in[AFTER] = row->is_renamed = true;
        row->name[AFTER] = other->name[AFTER];
        row->weight[AFTER] = other->weight[AFTER];
        into[came->row] = went->row;
        pairs++;
    }
    return pairs;
}

/* Takes out the rows that went into others. `now` is room for a number a row. */
static void rows_close(compare_table *t, const uint32_t *into, uint32_t *now)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (into[i] == i) {
            t->rows[kept] = t->rows[i];
            now[i] = kept++;
        }
    t->count = kept;
    for (int side = 0; side < SIDES; side++)
        for (uint32_t i = 0; i < t->groups[side].count; i++)
            t->row_of[side][i] = now[into[t->row_of[side][i]]];
}

bool compare_match_renamed(compare *c, compare_table *t)
{
    lone *lones = calloc((size_t)t->count + 1, sizeof *lones);
    uint32_t *into = calloc((size_t)t->count + 1, sizeof *into);
    uint32_t *now = calloc((size_t)t->count + 1, sizeof *now);
    const bool done = lones && into && now;
    uint32_t count = 0;
    if (done)
        lones_fill(c, t, lones);
    for (uint32_t i = 0; done && i < t->count; i++) {
        into[i] = i;
        if (t->rows[i].is_in[BEFORE] != t->rows[i].is_in[AFTER])
            lones[count++] = lones[i];
    }
    if (done && count)
        qsort(lones, count, sizeof *lones, lone_compare);
    if (done && lones_pair(t, lones, count, into))
        rows_close(t, into, now);
    free(lones);
    free(into);
    free(now);
    return done;
}

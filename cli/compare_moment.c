/* When the earlier recording was where the later one has its peak.
 *
 * Rows that allocate equally often in both are taken to do the same: the k-th allocation of such a row is one moment of the program.
 * The last such allocation up to the peak and the first behind it bound the moment; between the two the earlier recording counts
 * where it held the most. */
#include <stdlib.h>

#include "cli/compare.h"

/* The k-th allocation of a row. */
typedef struct anchor {
    uint32_t row, k;
    bool is_known;
} anchor;

static bool is_steady(const compare_table *t, uint32_t row)
{
    const compare_row *r = &t->rows[row];
    return r->of[BEFORE].allocations == r->of[AFTER].allocations;
}

/* Those around the later recording's peak. `seen` has a zero for every row. */
static void anchors_find(compare *c, const compare_table *t, uint32_t *seen, anchor *last, anchor *next)
{
    const format_history *h = c->h[AFTER];
    for (uint32_t i = 0; i < h->block_count && !next->is_known; i++) {
        const format_block *b = &h->blocks[i];
        if (!compare_takes(c, AFTER, b))
            continue;
        const uint32_t row = compare_row_of(t, AFTER, b), k = ++seen[row];
        if (!is_steady(t, row))
            continue;
        if (b->begin <= c->moment[AFTER]) {
            *last = (anchor){row, k, true};
            c->anchors++;
        } else
            *next = (anchor){row, k, true};
    }
}

/* The event of an anchor in the earlier recording; `otherwise` if it is unknown. `seen` as above. */
static void anchors_place(const compare *c, const compare_table *t, uint32_t *seen, const anchor *last,
                          const anchor *next, uint32_t *from, uint32_t *to)
{
    const format_history *h = c->h[BEFORE];
    *from = 0;
    *to = h->event_count;
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (!compare_takes(c, BEFORE, b))
            continue;
        const uint32_t row = compare_row_of(t, BEFORE, b), k = ++seen[row];
        if (last->is_known && row == last->row && k == last->k)
            *from = b->begin;
        if (next->is_known && row == next->row && k == next->k)
            *to = b->begin;
    }
    if (*to <= *from) /* threads came in another order */
        *to = *from + 1;
}

/* The event in [from, to) at which the earlier recording held the most; the first of them if it never held anything. */
static uint32_t highest_between(const compare *c, uint32_t from, uint32_t to)
{
    const format_history *h = c->h[BEFORE];
    uint64_t live = 0, most = 0;
    uint32_t at = from;
    for (uint32_t i = 0; i < to && i < h->event_count; i++) {
        const format_block *b = &h->blocks[h->events[i] / 2];
        if (compare_takes(c, BEFORE, b))
            live += h->events[i] & 1 ? 0 - b->size_bytes : b->size_bytes;
        if (i >= from && (i == from || live > most)) {
            most = live;
            at = i;
        }
    }
    return at;
}

bool compare_find_moment(compare *c)
{
    /* without stacks labels must do */
    const compare_table *t = c->sites.count > 1 ? &c->sites : &c->labels;
    c->moment[BEFORE] = c->peak[BEFORE].event;
    c->moment[AFTER] = c->peak[AFTER].event;
    if (c->moment[BEFORE] == FORMAT_ALIVE || c->moment[AFTER] == FORMAT_ALIVE)
        return true;
    uint32_t *seen = calloc((size_t)t->count * 2 + 1, sizeof *seen);
    anchor last = {0}, next = {0};
    uint32_t from, to;
    if (!seen)
        return false;
    anchors_find(c, t, seen, &last, &next);
    anchors_place(c, t, seen + t->count, &last, &next, &from, &to);
    free(seen);
    c->moment[BEFORE] = highest_between(c, from, to);
    return true;
}

/* Units of a problem: blocks that are parts of one thing at one place become one life. */
#include <stdlib.h>

#include "cli/lives.h"

typedef struct tied {
    uint32_t unit, block;
} tied;

static int tied_compare(const void *a, const void *b)
{
    const tied *x = a, *y = b;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* One unit of the sorted blocks. Until the lives are there, part_first names its largest block and life its first. */
static void unit_add(lives *l, const tied *blocks, uint32_t count, uint32_t *unit_of)
{
    const format_history *h = l->h;
    const format_tie *tie = &h->ties[blocks[0].block];
    life_unit unit = {.fixed_offset = tie->fixed_offset,
                      .alignment = tie->alignment,
                      .life = blocks[0].block,
                      .part_first = blocks[0].block,
                      .part_count = count};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t block = blocks[i].block;
        unit_of[block] = l->unit_count;
        if (h->blocks[block].size_bytes > h->blocks[unit.part_first].size_bytes)
            unit.part_first = block;
    }
    unit.is_plain = count == 1 && unit.fixed_offset == UINT64_MAX;
    l->units[l->unit_count++] = unit;
}

uint32_t *lives_units_make(lives *l)
{
    const uint32_t count = l->h->block_count;
    tied *order = malloc(((size_t)count + 1) * sizeof *order);
    uint32_t *unit_of = calloc((size_t)count + 1, sizeof *unit_of);
    l->units = malloc(((size_t)count + 1) * sizeof *l->units);
    l->parts = malloc(((size_t)count + 1) * sizeof *l->parts);
    if (!order || !unit_of || !l->units || !l->parts) {
        free(order);
        free(unit_of);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = (tied){l->h->ties[i].unit, i};
    if (count)
        qsort(order, count, sizeof *order, tied_compare);
    for (uint32_t from = 0, to; from < count; from = to) {
        for (to = from; to < count && order[to].unit == order[from].unit;)
            to++;
        unit_add(l, order + from, to - from, unit_of);
    }
    free(order);
    return unit_of;
}

void lives_units_settle(lives *l, const uint32_t *unit_of)
{
    uint32_t next = 0;
    for (uint32_t u = 0; u < l->unit_count; u++) {
        l->units[u].part_first = next;
        next += l->units[u].part_count;
        l->units[u].part_count = 0;
    }
    for (uint32_t g = 0; g < l->group_count; g++)
        for (uint32_t i = l->first[g]; i < l->first[g + 1]; i++)
            if (l->items[i].unit) {
                l->units[l->items[i].unit - 1].life = i;
                l->units[l->items[i].unit - 1].group = g;
            }
    for (uint32_t i = 0; i < l->h->block_count; i++) {
        const format_block *b = &l->h->blocks[i];
        life_unit *unit = &l->units[unit_of[i]];
        if (unit->is_plain)
            continue;
        life *one = &l->items[unit->life];
        l->parts[unit->part_first + unit->part_count++] =
            (life_part){b->size_bytes, b->begin + 1, lives_end_of(l, b)};
        one->end = lives_end_of(l, b) > one->end ? lives_end_of(l, b) : one->end;
        one->asked_bytes = b->size_bytes > one->asked_bytes ? b->size_bytes : one->asked_bytes;
        one->size_bytes = lives_round_up(l, one->asked_bytes);
    }
    l->sum_bytes = 0;
    for (uint32_t i = 0; i < l->count && !l->is_too_large; i++) {
        l->is_too_large = l->items[i].size_bytes > INT64_MAX - l->sum_bytes;
        l->sum_bytes += l->items[i].size_bytes;
    }
}

/* Stacking what is left: the cheapest valid plan, for when time is up. Sizes are rounded up to one of four
 * classes between a power of two and the next; a place is kept for its class, and whoever is gone leaves it
 * to the next of the class. A fifth may be lost by rounding and more by classes that are never full together,
 * but it takes a look at each item and no more. */
#include "planner/place/stack.h"

#include <string.h>

#include "base/sort.h"

#define NONE UINT32_MAX

enum { CLASSES = 4 * 64 + 4 };

typedef struct stacking {
    const berth__prepared *p;
    uint64_t *offsets;
    uint64_t top;
    uint32_t *ending; /* by column: the first of those that end there */
    uint32_t *next;   /* by item: the next that ends there, or the next free place of its class */
    uint32_t free_place[CLASSES];
    uint32_t column; /* those that end here or before have left their places */
} stacking;

/* Four classes for the sizes whose last but one has so many bits. */
static unsigned class_of(uint64_t size)
{
    BERTH_DCHECK(size > 0, "[L7] every piece has a size");
    const unsigned bits = berth__bits_of(size - 1);
    return bits <= 2 ? (unsigned)(size - 1) : 4 * (bits - 2) + (unsigned)(((size - 1) >> (bits - 3)) & 3);
}

/* The largest size of the class of this one. */
static uint64_t class_size(uint64_t size)
{
    const unsigned bits = berth__bits_of(size - 1);
    return bits <= 2 ? size : (((size - 1) >> (bits - 3)) + 1) << (bits - 3);
}

static void leave_places(stacking *s, uint32_t column)
{
    for (; s->column <= column; s->column++)
        for (uint32_t i = s->ending[s->column], next; i != NONE; i = next) {
            const unsigned class = class_of(s->p->size[i]);
            BERTH_DCHECK(class < CLASSES && s->p->upper[i] == s->column,
                         "[L10] places are left where lives end");
            next = s->next[i];
            s->next[i] = s->free_place[class];
            s->free_place[class] = i;
        }
}

static void stack_put(stacking *s, uint32_t item)
{
    const berth__prepared *p = s->p;
    const unsigned class = class_of(p->size[item]);
    BERTH_DCHECK(s->offsets[item] == BERTH_NO_OFFSET, "[L2] an item is placed once");
    if (!s->ending) {
        s->offsets[item] = berth__item_align(p, item, s->top);
        s->top = s->offsets[item] + p->size[item];
        return;
    }
    leave_places(s, p->lower[item]);
    const uint32_t free_place = s->free_place[class];
    if (free_place != NONE && s->offsets[free_place] % berth__item_alignment(p, item) == 0) {
        BERTH_DCHECK(p->upper[free_place] <= p->lower[item] &&
                         class_size(p->size[free_place]) >= p->size[item],
                     "[L14] a place that is reused is free, and large enough");
        s->offsets[item] = s->offsets[free_place];
        s->free_place[class] = s->next[free_place];
    } else {
        s->offsets[item] = berth__item_align(p, item, s->top);
        s->top = s->offsets[item] + class_size(p->size[item]);
    }
    s->next[item] = s->ending[p->upper[item]];
    s->ending[p->upper[item]] = item;
}

uint64_t berth__stack_above(const berth__prepared *p, uint64_t *offsets)
{
    stacking s = {.p = p, .offsets = offsets};
    const size_t columns = (size_t)p->column_count + 1;
    memset(s.free_place, 0xff, sizeof s.free_place);
    for (uint32_t i = 0; i < p->item_count; i++) {
        if (berth__item_fixed(p, i) != BERTH_NO_OFFSET)
            offsets[i] = p->fixed[i];
        if (offsets[i] != BERTH_NO_OFFSET && offsets[i] + p->size[i] > s.top)
            s.top = offsets[i] + p->size[i];
    }
    /* Rounding up adds a quarter at most, which must stay within 63 bits too. */
    if (p->horizon < INT64_MAX / p->unit_bytes / 5 * 4)
        s.ending = berth__heap_alloc(columns * sizeof *s.ending);
    s.next = berth__heap_alloc((size_t)p->item_count * sizeof *s.next);
    if (s.ending && s.next) {
        memset(s.ending, 0xff, columns * sizeof *s.ending);
    } else {
        berth__heap_free(s.ending);
        s.ending = NULL;
    }
    for (uint32_t i = 0; i < p->item_count; i++) /* in order of their first column */
        if (offsets[i] == BERTH_NO_OFFSET)
            stack_put(&s, i);
    berth__heap_free(s.ending);
    berth__heap_free(s.next);
    BERTH_DCHECK(berth__prepared_peak(p, offsets) <= s.top, "[L3] nothing ends above the top");
    return berth__prepared_peak(p, offsets);
}

/* A table from pointers to a number each, for one thread: what a recording or a fallback has handed out. Open
 * addressing, at most half full; removing closes the gap, so that nothing but live pointers is ever probed.
 */
#ifndef BERTH_REPLAY_POINTERS_H
#define BERTH_REPLAY_POINTERS_H

#include "base/base.h"

typedef struct berth__pointer {
    uintptr_t address; /* 0: empty */
    uint64_t value;
} berth__pointer;

typedef struct berth__pointers {
    berth__pointer *places;
    size_t count;
    size_t mask;
    uint32_t shift;
} berth__pointers;

/* Makes room for twice as many. False: no memory, the table is as it was. */
bool berth__pointers_grow(berth__pointers *table);
void berth__pointers_finish(berth__pointers *table);

static inline size_t berth__pointers_home(const berth__pointers *t, uintptr_t address)
{
    return (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> t->shift);
}

/* The place of `p`, or the empty one where it belongs. The table has places. */
static inline berth__pointer *berth__pointers_find(const berth__pointers *t, const void *p)
{
    size_t at = berth__pointers_home(t, (uintptr_t)p);
    while (t->places[at].address && t->places[at].address != (uintptr_t)p)
        at = (at + 1) & t->mask;
    return &t->places[at];
}

/* Enters `p`; if it is there already, `*old` gets its number, which is replaced. False: no memory. */
static inline bool berth__pointers_put(berth__pointers *t, const void *p, uint64_t value, bool *replaced,
                                       uint64_t *old)
{
    if (BERTH_UNLIKELY(!t->places || t->count * 2 > t->mask) && !berth__pointers_grow(t))
        return false;
    berth__pointer *place = berth__pointers_find(t, p);
    *replaced = place->address != 0;
    *old = place->value;
    t->count += !*replaced;
    *place = (berth__pointer){(uintptr_t)p, value};
    return true;
}

/* Takes `p` out; false if it is not there. */
static inline bool berth__pointers_take(berth__pointers *t, const void *p, uint64_t *value)
{
    if (!t->places)
        return false;
    berth__pointer *place = berth__pointers_find(t, p);
    if (!place->address)
        return false;
    *value = place->value;
    t->count--;
    size_t hole = (size_t)(place - t->places);
    for (size_t at = (hole + 1) & t->mask; t->places[at].address; at = (at + 1) & t->mask) {
        size_t home = berth__pointers_home(t, t->places[at].address);
        if (((at - home) & t->mask) < ((at - hole) & t->mask))
            continue; /* its home lies after the hole */
        t->places[hole] = t->places[at];
        hole = at;
    }
    t->places[hole].address = 0;
    return true;
}

#endif

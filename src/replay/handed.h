/* A table from pointers to a number each, for one thread: what a recording or a fallback has handed out. Open
 * addressing, at most half full; removing closes the gap, so that nothing but live pointers is ever probed. */
#ifndef BERTH_REPLAY_HANDED_H
#define BERTH_REPLAY_HANDED_H

#include "base/base.h"

typedef struct berth__handed_place {
    uintptr_t address; /* 0: empty */
    uint64_t value;
} berth__handed_place;

typedef struct berth__handed {
    berth__handed_place *places;
    size_t count;
    size_t mask;
    uint32_t shift;
} berth__handed;

/* For assertions. Larger tables than a few hundred places are taken to be valid, since each removal asks. */
bool berth__handed_is_valid(const berth__handed *table);
/* Makes room for twice as many. False: no memory, the table is as it was. */
bool berth__handed_grow(berth__handed *table);
void berth__handed_finish(berth__handed *table);

static inline size_t berth__handed_home(const berth__handed *t, uintptr_t address)
{
    return (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> t->shift);
}

/* The place of `p`, or the empty one where it belongs. The table has places. */
static inline berth__handed_place *berth__handed_find(const berth__handed *t, const void *p)
{
    size_t at = berth__handed_home(t, (uintptr_t)p);
    BERTH_DCHECK(p && t->count <= t->mask, "[R12] the search for a pointer ends at an empty place");
    while (t->places[at].address && t->places[at].address != (uintptr_t)p)
        at = (at + 1) & t->mask;
    return &t->places[at];
}

/* Enters `p`; if it is there already, `*old` gets its number, which is replaced. False: no memory. */
static inline bool berth__handed_put(berth__handed *t, const void *p, uint64_t value, bool *replaced,
                                     uint64_t *old)
{
    if (BERTH_UNLIKELY(!t->places || t->count * 2 > t->mask) && !berth__handed_grow(t))
        return false;
    BERTH_DCHECK(t->count * 2 <= t->mask + 1, "[R12] at most half of the places are taken");
    berth__handed_place *place = berth__handed_find(t, p);
    *replaced = place->address != 0;
    *old = place->value;
    t->count += !*replaced;
    *place = (berth__handed_place){(uintptr_t)p, value};
    return true;
}

/* Takes `p` out; false if it is not there. */
static inline bool berth__handed_take(berth__handed *t, const void *p, uint64_t *value)
{
    if (!t->places)
        return false;
    berth__handed_place *place = berth__handed_find(t, p);
    if (!place->address)
        return false;
    BERTH_DCHECK(t->count > 0, "[R12] what is found was counted");
    *value = place->value;
    t->count--;
    size_t hole = (size_t)(place - t->places);
    for (size_t at = (hole + 1) & t->mask; t->places[at].address; at = (at + 1) & t->mask) {
        size_t home = berth__handed_home(t, t->places[at].address);
        if (((at - home) & t->mask) < ((at - hole) & t->mask))
            continue; /* its home lies after the hole */
        t->places[hole] = t->places[at];
        hole = at;
    }
    t->places[hole].address = 0;
    BERTH_DCHECK(berth__handed_is_valid(t), "[R12] every pointer is found from its home on");
    return true;
}

#endif

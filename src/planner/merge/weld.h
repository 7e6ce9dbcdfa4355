/* Welding: items that probably belong together become one, so that a search has fewer to place. See weld.c.
 */
#ifndef BERTH_PLANNER_MERGE_WELD_H
#define BERTH_PLANNER_MERGE_WELD_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

/* How much is dared. Each level does what the ones before it do. */
typedef enum berth__weld_level {
    BERTH__WELD_SUCCESSORS, /* one ends where another of its size starts; stacks that make such a pair */
    BERTH__WELD_COLUMNS,    /* also all that start together and end together */
    BERTH__WELD_LEVELS,
} berth__weld_level;

/* A smaller problem, and where the items of the first one are in it. Made by berth__weld, read-only
 * afterwards, emptied by berth__welded_finish. */
typedef struct berth__welded {
    berth__prepared prepared; /* without buffers; same unit, same load at every time */
    uint32_t *item;           /* by item of the first problem: what it is part of */
    uint64_t *shift;          /* by item of the first problem: how far above that one's offset */
    uint32_t item_count;      /* of the first problem */
} berth__welded;

/* Seed 0 goes by the rules alone; every other varies how sure is sure enough, and so what is welded. Counts
 * its work in `search` and stops early with it, with whatever is welded by then. Needs about 75 bytes an item
 * while it works. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__weld(const berth__prepared *from, berth__weld_level level, uint64_t seed,
                         berth__search *search, berth__welded *welded);
void berth__welded_finish(berth__welded *welded);

/* Offsets of the first problem's items from offsets of the welded ones. */
void berth__welded_expand(const berth__welded *welded, const uint64_t *offsets, uint64_t *expanded);

#endif

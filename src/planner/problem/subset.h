/* Some items of a problem as a problem of their own. */
#ifndef BERTH_PLANNER_PROBLEM_SUBSET_H
#define BERTH_PLANNER_PROBLEM_SUBSET_H

#include "planner/problem/prepared.h"

typedef struct berth__subset {
    berth__prepared prepared;
    uint32_t *item; /* of the whole, by item of the subset */
} berth__subset;

/* The `count` items of `list`, each listed once, with fewer columns where fewer begin. Those of `whole`
 * have one piece each and no pins. 20 bytes an item, and while it works 8 a column.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY; finish either way. */
berth_status berth__subset_init(berth__subset *subset, const berth__prepared *whole, const uint32_t *list,
                                uint32_t count);
void berth__subset_finish(berth__subset *subset);

#endif

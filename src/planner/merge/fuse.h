/* Items that join without a seam, placed as one: a smaller problem whose plans are plans of the whole. */
#ifndef BERTH_PLANNER_MERGE_FUSE_H
#define BERTH_PLANNER_MERGE_FUSE_H

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

/* Made by berth__fuse_init, emptied by berth__fuse_finish. Arrays are by item of the whole problem. */
typedef struct berth__fused {
    berth__prepared prepared; /* the fused problem; no items: so few join that none was made */
    uint32_t *into;           /* the item it is a part of; itself: of none */
    uint64_t *above;          /* how far above that item's offset its own is */
    uint32_t *place;          /* for items that are a part of none: their number in the fused problem */
} berth__fused;

/* Fuses what there is to fuse in a plain problem; counts its steps. Needs about 70 bytes an item while it
 * works. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__fuse_init(berth__fused *fused, berth__search *search);
void berth__fuse_finish(berth__fused *fused);

/* Writes the offsets of all `count` items for those of the fused ones. */
void berth__fuse_expand(berth__fused *fused, uint32_t count, const uint64_t *fused_offsets,
                        uint64_t *offsets);

#endif

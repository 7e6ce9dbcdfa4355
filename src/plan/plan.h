/* The inside of a plan: its allocations, and the same laid out for replay.
 *
 *   a program      allocate 0, allocate 1, free 0, allocate 2, free 2, free 1
 *   entries        0: freed at 2      1: freed at 3      2: freed at 3
 *   steps          +0  +1  -0  +2  -2  -1  end
 *                              ^ a run in step is this one position: everything that is live, and what must
 *                                come next, follows from it
 *   ranks          the distinct offsets in rising order; at each there is at most one live block, since live
 *                  blocks do not overlap and none is empty. A hash table, laid out once, leads from an offset
 *                  to its rank, so that a run out of step finds a pointer's allocation in one probe.
 *
 * A content is immutable and counted: a scope holds the one it began with, whatever happens to the plan. */
#ifndef BERTH_PLAN_PLAN_H
#define BERTH_PLAN_PLAN_H

#include <stdatomic.h>

#include "base/base.h"
#include "berth/plan.h"
#include "berth/replay.h"

#define BERTH__NO_RANK UINT32_MAX
/* No user pointer lies this far from a block: the offset of a step that no free can match. */
#define BERTH__NOWHERE ((uint64_t)1 << 63)

typedef struct berth__plan_entry {
    uint64_t size_bytes;
    uint64_t least_bytes; /* an envelope: the smallest of its recordings; else the size */
    uint64_t offset;      /* BERTH_NO_OFFSET: never freed inside */
    const char *label;    /* in the content's text; NULL: none */
    uint32_t alignment;
    uint32_t freed_at; /* UINT32_MAX: never */
    uint32_t rank;     /* BERTH__NO_RANK: never freed inside, or displaced */
    uint32_t step;     /* where the steps allocate it */
} berth__plan_entry;

typedef struct berth__plan_content {
    _Atomic uint32_t references;
    berth__plan_entry *entries; /* count + 1: the last one is not an allocation, its step is the end */
    uint32_t count;
    uint32_t planned;   /* entries with a place */
    uint32_t displaced; /* entries that have lost theirs to `ranges` */
    uint64_t total_bytes;
    uint64_t alignment; /* the strictest of all, for the block */
    uint64_t fingerprint;
    berth_certificate certificate;
    char *text;
    size_t text_bytes;
    berth_step *steps; /* step_count + 1: an end that nothing matches */
    uint32_t *step_ids;
    const char **step_labels; /* learned from requests, see berth_run; NULL: no entry has a label. Atomic */
    uint32_t step_count;
    uint64_t *live_bytes;   /* planned bytes live right after allocation i */
    uint64_t most_bytes;    /* of these */
    uint64_t sum_bytes;     /* of all planned allocations */
    uint64_t largest_bytes; /* of these */
    uint64_t *rank_offsets; /* rising */
    uint32_t rank_count;
    uint32_t *slots; /* rank + 1 by hash of the offset; 0: empty */
    uint32_t slot_shift;
    uint32_t slot_mask;
    /* Of a content that was made of another only: with displaced entries, or in several pieces. */
    struct berth__plan_content *whole; /* what it was made of, retained: the labels are there */
    struct berth__plan_range *ranges;  /* rising */
    size_t range_count;
} berth__plan_content;

/* Bytes of a block that its plan may not use. */
typedef struct berth__plan_range {
    uint64_t offset, size_bytes;
    uint64_t asked_bytes, tag; /* how it is counted, and for whom; the plan does not look at them */
} berth__plan_range;

struct berth_plan {
    _Atomic uint32_t references;
    /* The room's lock guards both; a writer changes `content` when it is the one. */
    uint32_t writer; /* 0: none; else the process in which somebody records or changes the plan */
    berth__plan_content *content; /* never NULL */
};

/* What a plan is made of. `offsets` NULL: to be solved for. `free_order` lists the freed ids in the order of
 * their frees, NULL: unknown; it decides only which free is expected first among those between the same two
 * allocations. `least_bytes` of an envelope: by id; NULL: the sizes themselves. */
typedef struct berth__plan_source {
    const berth_plan_allocation *allocations;
    size_t count;
    const uint32_t *free_order;
    const uint64_t *least_bytes;
    bool has_offsets;
    /* The allocations are those of this content, at other places: its fingerprint and bound hold. NULL: none. */
    const struct berth__plan_content *like;
} berth__plan_source;

/* Makes a content with one reference: copies, solves or takes the offsets, has the checker prove them, lays
 * out. NULL on failure. */
berth_status berth__plan_build(const berth__plan_source *source, const berth_solve_options *options,
                               berth__plan_content **out);
/* The content without allocations, shared by all empty plans. */
berth__plan_content *berth__plan_empty(void);
berth__plan_content *berth__plan_content_retain(berth__plan_content *content);
void berth__plan_content_release(berth__plan_content *content);
/* The content for a block in which `ranges` (rising, disjoint) are somebody else's: allocations whose place
 * touches one are displaced, which is to the steps as if they were never freed inside; they keep their offset.
 * One reference. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__plan_displace(berth__plan_content *whole, const berth__plan_range *ranges, size_t count,
                                  berth__plan_content **out);
/* A plan in several pieces of memory, none larger than was said. */
typedef struct berth__plan_split {
    uint64_t *piece_bytes;
    size_t piece_count;
    uint32_t *pieces;  /* by id: which piece; of entries with a place */
    uint64_t *offsets; /* by id: where in it */
} berth__plan_split;

/* Divides the content; `most_bytes` is at least its largest allocation, and pieces will begin at multiples of
 * `alignment`. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__plan_split_make(const berth__plan_content *content, uint64_t most_bytes,
                                    uint64_t alignment, berth__plan_split *out);
void berth__plan_split_finish(berth__plan_split *split);
/* The content for pieces that lie at these distances from the lowest of them. One reference. BERTH_OK,
 * BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__plan_relocate(berth__plan_content *whole, const berth__plan_split *split,
                                  const uint64_t *distances, berth__plan_content **out);
static inline bool berth__plan_is_displaced(const berth__plan_entry *e)
{
    return e->rank == BERTH__NO_RANK && e->offset != BERTH_NO_OFFSET;
}
/* Fills steps, ranks and the hash table of a content whose entries have their offsets. */
berth_status berth__plan_lay_out(berth__plan_content *content, const uint32_t *free_order);

/* The content as it is now, with a reference. BERTH_BUSY while the plan is recorded or changed. */
berth_status berth__plan_content_of(const berth_plan *plan, berth__plan_content **out);
/* Makes the caller the plan's only user until berth__plan_unlock. BERTH_BUSY if another one is. */
berth_status berth__plan_lock(berth_plan *plan);
void berth__plan_unlock(berth_plan *plan);
/* Replaces the content of a locked plan; takes the reference over. */
void berth__plan_put(berth_plan *plan, berth__plan_content *content);

/* The allocation `id` of a content as callers see it. */
berth_plan_allocation berth__plan_describe(const berth__plan_content *content, size_t id);

/* The ids of all frees in the order of the steps: an array of content->planned places. */
void berth__plan_free_order(const berth__plan_content *content, uint32_t *ids);

/* The rank of `offset`, or BERTH__NO_RANK. */
static inline uint32_t berth__plan_slot(const berth__plan_content *c, uint64_t offset)
{
    return (uint32_t)((offset * UINT64_C(0x9E3779B97F4A7C15)) >> c->slot_shift);
}
static inline uint32_t berth__plan_rank(const berth__plan_content *c, uint64_t offset)
{
    if (c->rank_count == 0)
        return BERTH__NO_RANK;
    for (uint32_t s = berth__plan_slot(c, offset);; s = (s + 1) & c->slot_mask) {
        uint32_t rank = c->slots[s] - 1;
        if (rank == BERTH__NO_RANK || c->rank_offsets[rank] == offset)
            return rank;
    }
}

#endif

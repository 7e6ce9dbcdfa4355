/* What the files of welding share. See weld.c for the ideas. */
#ifndef BERTH_PLANNER_MERGE_WELD_STATE_H
#define BERTH_PLANNER_MERGE_WELD_STATE_H

#include "planner/merge/weld.h"

#define WELD_NONE UINT32_MAX

enum {
    WELD_ONE = 256,
    WELD_DARE_TOGETHER = 800, /* so much is dared before what starts and ends together is put together */
};

/* What is left of a piece of the first problem and all that has been welded to it. Items of several pieces
 * and pinned ones are never welded but have their part in time. */
typedef struct weld_part {
    uint64_t size;
    uint32_t lower, upper; /* columns of now */
    uint32_t piece;        /* of the first problem: the lowest of the first */
    bool is_fixed;         /* not to be welded */
    bool is_welded;        /* to another in this round: no longer one of its own */
} weld_part;

/* Parts by a time: those of time t are list[first[t]] to list[first[t + 1] - 1]. Their sizes are beside them,
 * since that is all that most looks are for. */
typedef struct weld_lists {
    uint32_t *first, *list;
    uint64_t *size;
} weld_lists;

typedef struct welding {
    const berth__prepared *from;
    weld_part *parts; /* in order of start; kept close together, since they are looked up at random */
    uint32_t count, columns;
    uint64_t *alignment;         /* by piece, of all that is welded to it */
    uint32_t *into;              /* by piece: what it is welded to, or itself */
    uint64_t *shift;             /* by piece: how far above that */
    weld_lists ending, starting; /* by time, then by size */
    uint32_t *lives;             /* by start, then by end and size */
    uint32_t *scratch;           /* by part */
    bool has_looked;             /* the lists are of now */

    double daring;   /* how likely chance may be, in parts of WELD_ONE; see is_sure */
    double boldness; /* what dares are multiplied with */
    bool is_varied;
    uint64_t random;
} welding;

/* In the order in which they are tried. */
typedef enum weld_rule {
    WELD_SUCCESSORS,
    WELD_PARTNERED,
    WELD_PARTNERED_BY_SEVERAL,
    WELD_TOGETHER,
} weld_rule;

/* Looks at all parts once and does all it finds; returns how many welds. What is welded is still among the
 * parts, and times are as before. */
uint32_t berth__weld_apply(welding *w, weld_rule rule);

#endif

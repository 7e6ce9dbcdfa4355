/* The lives of a device's blocks, put together in groups (a label, or a call site where there is none), and what their peak would be
 * if a group were changed.
 *
 *     history -> lives -> bound of a change (exact: the most bytes alive at once) -> plan of what is shown
 *
 * Time is counted in states: state n is what is alive after n events. */
#ifndef BERTH_CLI_LIVES_H
#define BERTH_CLI_LIVES_H

#include "cli/holders.h"

typedef enum lives_kind {
    LIVES_AS_IS,
    LIVES_FREE_PREVIOUS, /* each goes when the next one of its group comes, if not before */
    LIVES_SHRINK,
    LIVES_FREE_HALFWAY, /* each after half its life */
    LIVES_RECOMPUTE,    /* each exists when it begins and when it ends, not between */
    LIVES_FREE_EARLY,   /* each after that part of its life */
    LIVES_KINDS,
} lives_kind;

enum {
    LIVES_WHOLE = 1000000, /* a scale is in parts of this */
    LIVES_STRETCH = 1024,  /* states that are looked at as one */
};

typedef struct lives_change {
    uint32_t group;
    lives_kind kind;
    uint32_t scale; /* LIVES_SHRINK, LIVES_FREE_EARLY: a part of LIVES_WHOLE */
} lives_change;

typedef struct life {
    uint64_t size_bytes; /* rounded up to the alignment */
    uint64_t asked_bytes;
    uint32_t begin, end; /* states; it is not alive in `end` any more */
    uint32_t gap_begin, gap_end;
    uint32_t unit;      /* of parts, or with a fixed place: its number in `units` plus 1, else 0 */
    uint32_t alignment; /* of its place */
} life;

/* A time of a life that comes and goes, or is not always as large. */
typedef struct life_part {
    uint64_t asked_bytes;
    uint32_t begin, end;
} life_part;

/* What a problem says of one place: its parts, in order of time, and where it may be. */
typedef struct life_unit {
    uint64_t fixed_offset; /* UINT64_MAX: anywhere */
    uint32_t alignment;
    uint32_t part_first, part_count;
    uint32_t life, group; /* where its life is, and in which group */
    bool is_plain;        /* a block like others, but for its alignment */
} life_unit;

typedef struct lives {
    const format_history *h;
    life *items; /* by group, each group in the order of begins */
    uint32_t count;
    uint32_t *first;       /* by group: of its lives; one more at the end */
    lives_change *changes; /* by group: what holds now */
    uint32_t group_count;
    life_unit *units; /* of a problem with gaps, aliases, fixed offsets or alignments */
    uint32_t unit_count;
    life_part *parts;
    holders labels, sites;
    uint32_t states;
    uint32_t alignment;
    int64_t *live;        /* in each state, as changed */
    int64_t *peaks;       /* of each LIVES_STRETCH states of these, the most */
    int64_t *differences; /* scratch, all zero between calls */
    uint64_t peak_bytes;
    uint32_t peak_state;
    uint64_t sum_bytes;
    bool knows_use;    /* lives end with the last use: nothing can go earlier; false until somebody says so */
    bool is_too_large; /* sizes add up to more than 63 bits: nothing else is right then */
} lives;

/* A request that was refused, as one more life of one state. */
typedef struct lives_request {
    uint64_t size_bytes;
    uint32_t state, label, stack;
} lives_request;

/* All blocks of a device, those of one unit as one life, which goes by the label of its largest; sizes rounded up to `alignment` (from
 * 1); `request` may be NULL. False: no memory; finish is still right. */
bool lives_init(lives *l, const format_history *h, uint16_t device, uint32_t alignment,
                const lives_request *request);
void lives_finish(lives *l);

/* "conv1", or "parse (reader.c:81)" for blocks without a label. */
const char *lives_name(const lives *l, uint32_t group, char text[HOLDERS_NAME_ROOM]);
bool lives_is_labelled(const lives *l, uint32_t group);
/* How many bytes of a group are alive in a state, as changed. */
uint64_t lives_group_bytes(const lives *l, uint32_t group, uint32_t state);
uint32_t lives_group_count(const lives *l, uint32_t group);
/* Whether a group looks like a leak in a state: 8 blocks or more are alive, and they come from 6 or more of the 8 parts of the time
 * before. What was loaded once at the start does not, nor what comes and goes. */
bool lives_grows(const lives *l, uint32_t group, uint32_t state);

/* The peak if `change` were made too. */
uint64_t lives_bound(lives *l, const lives_change *change);
/* The largest scale in hundredths (as a part of LIVES_WHOLE) at which all fits `limit`; 0: none. */
uint32_t lives_scale_for(lives *l, uint32_t group, uint64_t limit);
/* The same for how much of its life each may live. */
uint32_t lives_longest_for(lives *l, uint32_t group, uint64_t limit);
/* Makes a change, in place of the group's last one, or takes all back. */
void lives_change_set(lives *l, const lives_change *change);
void lives_change_clear(lives *l);

/* Plans the lives as changed, in at most *seconds_left of processor time, which become less. False: not planned in time, or too
 * large for the planner; *peak is left alone. */
bool lives_plan(const lives *l, double *seconds_left, uint64_t *peak);

/* ---- Between the files ---------------------------------------------------------------------------------- */

uint64_t lives_round_up(const lives *l, uint64_t bytes);
/* The state in which a block is not alive any more. */
uint32_t lives_end_of(const lives *l, const format_block *b);
/* By block of the history: its unit. For the caller to free; NULL: no memory. */
uint32_t *lives_units_make(lives *l);
/* Gives the lives their parts, which reach from the first begin to the last end and are as large as the largest. */
void lives_units_settle(lives *l, const uint32_t *unit_of);

#endif

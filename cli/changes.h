/* Which changes to a program would lower its peak: one at a time in the order of what they gain, or each alone so that it fits. */
#ifndef BERTH_CLI_CHANGES_H
#define BERTH_CLI_CHANGES_H

#include "cli/lives.h"

enum { CHANGES_MOST = 6 };

typedef struct changes_one {
    lives_change change;
    uint64_t
        bound_bytes; /* the peak after it, and after those before it in a row of steps; no plan is smaller */
    uint64_t
        bounds[LIVES_KINDS]; /* the same for each kind of change of this group; UINT64_MAX: not of use here */
    uint64_t cost_bytes;     /* what the program would have to do without, or to make again */
    bool is_planned;
    uint64_t planned_bytes; /* what a plan reaches */
} changes_one;

typedef struct changes {
    changes_one items[CHANGES_MOST];
    uint32_t count;
} changes;

/* The groups that hold the most when the peak is reached are changed one after another, each time the one whose change gains the
 * most, until the peak is `limit` or below (0: none), nothing gains any more, or there are CHANGES_MOST. Steps that the later ones
 * have made needless are taken back. `l` has no change before, and is left with these made. */
void changes_steps(lives *l, uint64_t limit, changes *out);

/* Changes of one group each, under which the lives as they are would fit `limit`, the cheapest first. `l` is left as it was. */
void changes_alone(lives *l, uint64_t limit, changes *out);

/* "halve conv1": what to do. */
enum { CHANGES_WORDS = HOLDERS_NAME_ROOM + 64 };
const char *changes_words(const lives *l, const lives_change *change, char text[CHANGES_WORDS]);
/* "shrink", as --json says it. */
const char *changes_kind_word(lives_kind kind);

#endif

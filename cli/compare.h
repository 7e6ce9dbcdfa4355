/* Two recordings of one program, side by side: who held how much in each, by call site and by label.
 *
 *     blocks -> holders (cli/holders.h) -> rows, one for what is the same place or label in both
 *
 * Addresses differ from run to run, lines move from version to version: compare_match.c tells what is the same. Figures "at the
 * peak" are those of one moment of the program in both: the peak of the later recording, and what the earlier one held when it
 * was there (compare_moment.c). Else a peak that moves to another phase would show that whole phase as grown. */
#ifndef BERTH_CLI_COMPARE_H
#define BERTH_CLI_COMPARE_H

#include "cli/holders.h"

enum { BEFORE, AFTER, SIDES };

typedef struct compare_figures {
    uint64_t peak_bytes, end_bytes; /* alive at the moment of the peak, and when the recording ended */
    uint64_t total_bytes, allocations;
    uint32_t peak_blocks, end_blocks;
} compare_figures;

typedef struct compare_row {
    compare_figures of[SIDES];
    uint32_t name[SIDES];   /* a frame or a label's text; as holders have it */
    uint64_t weight[SIDES]; /* of the holder that gave the name: its total bytes */
    bool is_in[SIDES];
    bool is_renamed;   /* it went by another name before */
    bool lines_merged; /* of a function whose lines cannot be told apart in both */
} compare_row;

typedef struct compare_table {
    compare_row *rows; /* what grew most at the peak first */
    uint32_t count;
    holders groups[SIDES];
    uint32_t *row_of[SIDES]; /* by holder */
} compare_table;

typedef struct compare {
    const format_history *h[SIDES];
    uint16_t device[SIDES];
    format_peak peak[SIDES];
    compare_figures all[SIDES];
    uint32_t moment[SIDES];   /* events; FORMAT_ALIVE: nothing was ever alive */
    uint32_t anchors;         /* allocations of equally frequent rows by which the moment was found */
    uint32_t *classes[SIDES]; /* by frame: equal for what is the same function in both */
    compare_table sites, labels;
} compare;

/* Compares; the histories outlive `c`, which the caller finishes. False: no memory; finish is still right. */
bool compare_init(compare *c, const format_history *before, uint16_t device_before,
                  const format_history *after, uint16_t device_after);
void compare_finish(compare *c);

/* What a row is called: as the later recording has it, if it is there; and in one of them. */
const char *compare_name(const compare *c, const compare_table *table, const compare_row *row,
                         char text[HOLDERS_NAME_ROOM]);
const char *compare_name_in(const compare *c, const compare_table *table, const compare_row *row, int side,
                            char text[HOLDERS_NAME_ROOM]);

/* Through whom a call site grew at the peak: from its caller outward, as long as one caller has more than half of the growth. Their
 * frames in the later recording go to frames[]; how many there are, at most `room`. */
uint32_t compare_callers(const compare *c, const compare_row *site, uint32_t *frames, uint32_t room);

/* Which figure rows are ordered by. */
typedef enum compare_order { COMPARE_AT_PEAK, COMPARE_AT_END, COMPARE_IN_ALL } compare_order;
int64_t compare_growth(const compare_row *row, compare_order order);
/* The indices of the rows in another order, the largest growth first; the caller frees them. NULL: no memory. */
uint32_t *compare_sorted(const compare_table *table, compare_order order);

/* ---- Parts -------------------------------------------------------------------------------------------- */

/* Fills classes, and the tables' row_of and rows without figures. False: no memory. */
bool compare_match(compare *c);
/* Puts rows of one side together that are one thing with two names. False: no memory. */
bool compare_match_renamed(compare *c, compare_table *t);
/* Fills moment[] and anchors. False: no memory. */
bool compare_find_moment(compare *c);

/* The row of a block, in one of the tables. */
static inline uint32_t compare_row_of(const compare_table *t, int side, const format_block *b)
{
    return t->row_of[side][holders_of_block(&t->groups[side], b)];
}
static inline bool compare_takes(const compare *c, int side, const format_block *b)
{
    return c->device[side] == FORMAT_ANY_DEVICE || b->device == c->device[side];
}

#endif

/* Buffers folded away while nobody looks at them: what is the same in all of them, and what fits into 32 bits, takes
 * less room. */
#ifndef BERTH_FILE_FOLDED_H
#define BERTH_FILE_FOLDED_H

#include "base/base.h"
#include "berth/problem.h"

enum { BERTH__FOLDED_FIELDS = 9 };

/* Zeroed is unfolded. */
typedef struct berth__folded {
    berth_problem_buffer *buffers;
    size_t count;
    struct {
        uint64_t base;  /* taken off every value */
        uint32_t at;    /* in the folded row */
        uint32_t bytes; /* 0: all are `base`; 4 or 8 */
    } field[BERTH__FOLDED_FIELDS];
    size_t row_bytes; /* of a folded row */
    bool is_folded;
} berth__folded;

/* Folds buffers[0 .. count), which came from berth__heap_*, in their own place and gives the pages behind back.
 * They are not to be touched before berth__folded_open, which puts them back as they were. Few buffers are left
 * as they are. Neither can fail. */
void berth__folded_close(berth__folded *folded, berth_problem_buffer *buffers, size_t count);
void berth__folded_open(berth__folded *folded);

#endif

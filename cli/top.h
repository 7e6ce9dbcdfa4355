/* What berth top shows, and where it comes from. */
#ifndef BERTH_CLI_TOP_H
#define BERTH_CLI_TOP_H

#include <stdio.h>

#include "format/follow.h"

enum { TOP_PATH_ROOM = 4096 };

typedef enum top_table { TOP_HOLDERS, TOP_THREADS, TOP_DEVICES } top_table;
typedef enum top_order { TOP_BY_LIVE, TOP_BY_PEAK, TOP_BY_ALLOCS, TOP_ORDERS } top_order;

/* One moment. Everything is borrowed. */
typedef struct top_picture {
    const char *name;  /* of the input */
    const char *state; /* "recording", "ended", "file" */
    const format_history *h;
    const format_tally *tally;
    double seconds; /* from the first event to the last */
    double rate;    /* allocations a second, lately; of a file over all of it */
    top_table table;
    top_order order;
    bool is_live; /* on a terminal: keys are told, and tables one at a time */
} top_picture;

/* At most `width` characters a line and `height` lines; 0: as many as there are. `end` closes each line. */
void top_print(FILE *out, const top_picture *p, unsigned width, unsigned height, const char *end);
void top_print_json(FILE *out, const top_picture *p, unsigned rows);

/* The trace that a process of this number, or one that it has started, is writing. CLI_OK with `path`, which has room for
 * TOP_PATH_ROOM, and whether it is of the process itself; else the exit code after a complaint that says what to do. */
int top_find_trace(const char *verb, uint64_t pid, char *path, bool *is_own);

#endif

/* The map of a plan: time across, address upward, a patch for every buffer that is large enough to see. */
#ifndef BERTH_CLI_MAP_H
#define BERTH_CLI_MAP_H

#include <stdbool.h>
#include <stdio.h>

#include "berth/problem.h"

typedef struct cli_map_style {
    unsigned width, height; /* in characters, axes included; 0: as the terminal is, or 80 by 24 */
    bool colour;
    bool ascii;             /* no characters beyond ASCII */
    const size_t *lettered; /* buffers that get a letter A, B, ... where there is room */
    size_t lettered_count;
    bool mark_time; /* a caret under `time` */
    int64_t time;
} cli_map_style;

/* "auto", "always" or "never" (NULL: auto, a terminal that is not dumb and no NO_COLOR) to whether `out` gets
 * colour. False if the word is none of them. */
bool cli_map_colour(const char *word, FILE *out, bool *colour);

/* Whether the surroundings ask for plain ASCII: no UTF-8 in the locale's name. */
bool cli_map_ascii(void);

/* Draws a valid plan. False if there is no memory. */
bool cli_map_draw(FILE *out, const berth_problem *problem, const uint64_t *offsets, uint64_t peak_bytes,
                  const cli_map_style *style);

#endif

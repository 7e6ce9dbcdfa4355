/* The times at which buffers of a problem take memory of their own. */
#ifndef BERTH_FORMAT_PROBLEM_H
#define BERTH_FORMAT_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/problem.h"

/* A time in which a buffer is what its place holds. */
typedef struct problem_piece {
    int64_t lower, upper;
    size_t buffer;
} problem_piece;

typedef struct problem_pieces {
    problem_piece *items; /* by buffer, but those of alias groups last; each buffer's in order of time */
    size_t count, room;
} problem_pieces;

/* Gaps split a life. Of buffers that share a place the largest is what is there, the one that came first of equals: the others take
 * nothing meanwhile. False: no memory; finish is still right. */
bool problem_pieces_make(problem_pieces *pieces, const berth_problem *problem);
void problem_pieces_finish(problem_pieces *pieces);

#endif

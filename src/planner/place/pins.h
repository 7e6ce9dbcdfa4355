/* Pins above a skyline: which is the lowest over a stretch of columns? Logarithmic, however many there are.
 */
#ifndef BERTH_PLANNER_PLACE_PINS_H
#define BERTH_PLANNER_PLACE_PINS_H

#include "base/base.h"

#define BERTH__NO_PIN UINT32_MAX

/* One pin: columns [lower, upper). Pins are numbered from the lowest offset up; two that share a column do
 * not overlap. */
typedef struct berth__pin {
    uint32_t lower, upper;
    uint32_t piece, item; /* the caller's names for it */
} berth__pin;

/* A tree over columns. A pin hangs at the largest nodes that lie whole in its life, so all pins of a node
 * live together all through it, and the skyline reaches them one after the other. */
typedef struct berth__pins {
    const berth__pin *pin; /* the caller's */
    uint32_t leaves;
    uint32_t *first;  /* by node: where its part of `list` begins; one more at the end */
    uint32_t *list;   /* numbers of pins, upward within a node */
    uint32_t *passed; /* by node: how many of its own the skyline has reached */
    uint32_t *lowest; /* by node: the lowest number at it and below that has not been reached */
} berth__pins;

/* Takes `count` pins in order of their offsets, which must live as long. Needs 4 bytes for every node that a
 * pin hangs at, two for each bit of its length at most, and 24 a column. False: no memory. Finish with
 * berth__pins_finish either way. */
bool berth__pins_init(berth__pins *pins, const berth__pin *pin, uint32_t count, uint32_t columns);
void berth__pins_finish(berth__pins *pins);

/* The number of the lowest pin that meets [lower, upper) and has not been taken; BERTH__NO_PIN: none. */
uint32_t berth__pins_lowest(const berth__pins *pins, uint32_t lower, uint32_t upper);

/* Takes a pin of which no lower one that shares a column is left. */
void berth__pins_take(berth__pins *pins, uint32_t number);

#endif

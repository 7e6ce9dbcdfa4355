/* Orders of steps that hold little at once.
 *
 * A step touches things: it uses some and makes some. A thing is there from the first step that makes it (or from the start) to the
 * last step that touches it (or to the end). The sum of what is there while a step runs is what an order is judged by, at its
 * fullest moment. Numbers in, numbers out: nothing here knows of models. */
#ifndef BERTH_FORMAT_ORDER_H
#define BERTH_FORMAT_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_NONE UINT32_MAX

/* Lists of numbers, one after the other: list i is items[first[i]] .. items[first[i + 1] - 1]. */
typedef struct order_lists {
    uint32_t *first, *items;
} order_lists;

typedef struct order_graph {
    uint32_t step_count, thing_count;
    uint64_t base; /* what is there all the time beside the things */
    uint64_t *size;
    bool *initial, *kept; /* by thing: there from the start; there to the end */
    uint64_t *work;       /* by step: what it needs beside the things while it runs */
    uint32_t *
        over; /* by step: the thing it may write over one of the same size that ends with it, or ORDER_NONE */
    order_lists touch;             /* by step: things, each once */
    order_lists touched, made;     /* by thing: steps, each once */
    order_lists before, following; /* by step: those it waits for, and those that wait for it */
} order_graph;

/* Room for a graph, zeroed; false: no memory, and nothing is kept. Lists are the caller's to make with order_lists_make. */
bool order_graph_init(order_graph *g, uint32_t step_count, uint32_t thing_count);
void order_graph_finish(order_graph *g);

/* A pair puts `item` into list `list`. */
typedef struct order_pair {
    uint32_t list, item;
} order_pair;

/* Sorts the pairs, drops repeated ones and makes lists of them. False: no memory. */
bool order_lists_make(order_lists *lists, uint32_t list_count, order_pair *pairs, size_t pair_count);

/* What there is at the fullest moment of an order. `during` (NULL: not wanted) gets what is there while each step runs. */
uint64_t order_peak(const order_graph *g, const uint32_t *order, uint64_t *during);

/* What no order can do without: the fullest step alone. */
uint64_t order_bound(const order_graph *g);

/* Looks for the best order of all, one better than `best`: ORDER_BETTER with `order` filled, ORDER_NO_BETTER if there is none, ORDER_UNKNOWN
 * if it takes more than `states` sets of steps to look at, ORDER_NO_MEMORY. */
typedef enum order_answer { ORDER_BETTER, ORDER_NO_BETTER, ORDER_UNKNOWN, ORDER_NO_MEMORY } order_answer;
order_answer order_exact(const order_graph *g, uint64_t best, size_t states, uint32_t *order);

/* An order made by always keeping the `width` best beginnings. */
order_answer order_beam(const order_graph *g, uint64_t best, uint32_t width, uint32_t *order);

/* Makes `order`, a valid one, as good as it can. *exact: no order is better. False: no memory, and `order` is valid still. */
bool order_improve(const order_graph *g, uint32_t *order, bool *exact);

/* ---- Between the files of the search ------------------------------------------------------------------ */

/* A beginning of an order: which steps are done, and what that took. */
typedef struct order_set {
    uint64_t *done, *ready; /* a bit a step */
    uint64_t live, peak;
    uint32_t count;
} order_set;

static inline bool order_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* What is there while `step` runs after the set, and after it. */
void order_effect(const order_graph *g, const uint64_t *done, uint64_t live, uint32_t step, uint64_t *during,
                  uint64_t *after);
/* Takes the step into the set. */
void order_take(const order_graph *g, order_set *set, uint32_t step);
/* The empty set; its bits must be zero. */
void order_begin(const order_graph *g, order_set *set);
/* A step that can be taken at once without loss, or ORDER_NONE. *effects counts what was looked at. */
uint32_t order_free_step(const order_graph *g, const order_set *set, uint64_t *effects);
/* Part of a number that stands for a set. */
uint64_t order_hash(uint32_t step);

#endif

/* The true optimum of a tiny problem, by trying every order: in order of their offsets the buffers of an
 * optimal plan can be pushed down one by one, so first fit in that order is as good. Knows nothing of the
 * planner. */
#ifndef BERTH_TESTS_BRUTE_H
#define BERTH_TESTS_BRUTE_H

#include "plan_random.h"

enum { BRUTE_ITEMS = 8, BRUTE_TIMES = 64, BRUTE_TIME_0 = -8 };

typedef struct brute_problem {
    size_t count;
    uint64_t size[BRUTE_ITEMS][BRUTE_TIMES]; /* by item and time */
    uint64_t alignment[BRUTE_ITEMS];
    uint64_t pin[BRUTE_ITEMS], offset[BRUTE_ITEMS];
    uint64_t best;
} brute_problem;

static inline uint64_t brute_lcm(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Buffers of one alias group become one item that is as large as the largest of them live. */
static inline void brute_items(brute_problem *brute, const random_problem *random)
{
    uint32_t group_of[BRUTE_ITEMS] = {0};
    memset(brute, 0, sizeof *brute);
    brute->best = UINT64_MAX;
    for (size_t b = 0; b < random->problem.buffer_count; b++) {
        const berth_problem_buffer *buffer = &random->buffers[b];
        size_t i = 0;
        while (i < brute->count && !(buffer->alias_group && buffer->alias_group == group_of[i]))
            i++;
        if (i == brute->count) {
            group_of[brute->count++] = buffer->alias_group;
            brute->alignment[i] = random->problem.alignment > 1 ? random->problem.alignment : 1;
            brute->pin[i] = BERTH_NO_OFFSET;
        }
        brute->alignment[i] = brute_lcm(brute->alignment[i], buffer->alignment ? buffer->alignment : 1);
        if (buffer->fixed_offset != BERTH_NO_OFFSET)
            brute->pin[i] = buffer->fixed_offset;
        for (int t = 0; t < BRUTE_TIMES; t++)
            if (random_is_live(random, b, t + BRUTE_TIME_0)) {
                uint64_t step = random->problem.alignment > 1 ? random->problem.alignment : 1;
                uint64_t size = (buffer->size_bytes + step - 1) / step * step;
                if (size > brute->size[i][t])
                    brute->size[i][t] = size;
            }
    }
}

/* The end of the first thing in the way of item `i` at `offset`, or 0 if nothing is. */
static inline uint64_t brute_in_the_way(const brute_problem *brute, unsigned placed, size_t i,
                                        uint64_t offset)
{
    for (size_t j = 0; j < brute->count; j++)
        for (int t = 0; (placed >> j & 1) && t < BRUTE_TIMES; t++)
            if (brute->size[i][t] && brute->size[j][t] && offset < brute->offset[j] + brute->size[j][t] &&
                brute->offset[j] < offset + brute->size[i][t])
                return brute->offset[j] + brute->size[j][t];
    return 0;
}

static inline uint64_t brute_top(const brute_problem *brute, size_t i)
{
    uint64_t top = 0;
    for (int t = 0; t < BRUTE_TIMES; t++)
        if (brute->size[i][t] && brute->offset[i] + brute->size[i][t] > top)
            top = brute->offset[i] + brute->size[i][t];
    return top;
}

static inline void brute_try(brute_problem *brute, unsigned placed, uint64_t peak)
{
    if (peak >= brute->best)
        return;
    if (placed == (1U << brute->count) - 1) {
        brute->best = peak;
        return;
    }
    for (size_t i = 0; i < brute->count; i++) {
        if (placed >> i & 1)
            continue;
        uint64_t offset = 0, end;
        while ((end = brute_in_the_way(brute, placed, i, offset)))
            offset = (end + brute->alignment[i] - 1) / brute->alignment[i] * brute->alignment[i];
        brute->offset[i] = offset;
        uint64_t top = brute_top(brute, i);
        brute_try(brute, placed | 1U << i, top > peak ? top : peak);
    }
}

static inline uint64_t brute_optimum(const random_problem *random)
{
    brute_problem brute;
    brute_items(&brute, random);
    unsigned placed = 0;
    uint64_t peak = 0;
    for (size_t i = 0; i < brute.count; i++)
        if (brute.pin[i] != BERTH_NO_OFFSET) {
            brute.offset[i] = brute.pin[i];
            placed |= 1U << i;
            uint64_t top = brute_top(&brute, i);
            peak = top > peak ? top : peak;
        }
    brute_try(&brute, placed, peak);
    return brute.best;
}

#endif

/* Small random problems for the planner's tests, with everything a problem can say. */
#ifndef BERTH_TESTS_PLAN_RANDOM_H
#define BERTH_TESTS_PLAN_RANDOM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "berth/problem.h"

enum { RANDOM_BUFFERS = 64, RANDOM_GAPS = 64 };

typedef struct random_problem {
    berth_problem problem;
    berth_problem_buffer buffers[RANDOM_BUFFERS];
    berth_gap gaps[RANDOM_GAPS];
    uint64_t state;
} random_problem;

typedef struct random_shape {
    uint32_t buffers; /* at most */
    uint32_t times;
    uint32_t sizes;
    uint64_t unit;             /* sizes are multiples of it */
    uint32_t largest_gap;      /* 0: no gaps */
    uint32_t alias_groups;     /* 0: none */
    uint32_t alignments;       /* up to this number of units, 0: none */
    uint32_t pinned_percent;   /* of the buffers, where they do not collide */
    uint32_t anywhere_percent; /* pinned wherever that is valid: one above the other at different times, in
                                * groups, into gaps */
    uint32_t rounding;
    uint32_t full; /* not 0: lives and sizes are such that at most, and mostly, this many units are live */
} random_shape;

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

static inline uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return bound ? (uint32_t)(random_next(state) % bound) : 0;
}

/* A life and a size for a buffer that leaves the load at shape->full or below: problems that are full at all
 * times are those whose optimum is above the bound. */
static inline int random_fill(uint64_t *state, const random_shape *shape, uint32_t *load,
                              berth_problem_buffer *buffer)
{
    for (int attempt = 0; attempt < 60; attempt++) {
        uint32_t lower = random_below(state, shape->times);
        uint32_t upper = lower + 1 + random_below(state, shape->times - lower);
        uint32_t size = 1 + random_below(state, shape->sizes), t = lower;
        while (t < upper && load[t] + size <= shape->full)
            t++;
        if (t < upper)
            continue;
        for (t = lower; t < upper; t++)
            load[t] += size;
        buffer->lower = lower;
        buffer->upper = upper;
        buffer->size_bytes = size * shape->unit;
        return 1;
    }
    return 0;
}

/* Pins a share of the buffers, each at a place drawn from the lower part of memory that validation accepts. */
static inline void random_pin_anywhere(random_problem *random, const random_shape *shape)
{
    uint64_t *state = &random->state, span = 0;
    for (size_t i = 0; i < random->problem.buffer_count; i++)
        span += random->buffers[i].size_bytes / 2 + 1;
    for (size_t i = 0; i < random->problem.buffer_count; i++) {
        berth_problem_buffer *b = &random->buffers[i];
        const uint64_t step = (b->alignment ? b->alignment : 1) * (shape->rounding > 1 ? shape->rounding : 1);
        if (random_below(state, 100) >= shape->anywhere_percent || b->fixed_offset != BERTH_NO_OFFSET)
            continue;
        for (int attempt = 0; attempt < 4; attempt++) {
            b->fixed_offset = random_next(state) % (span + 1) / step * step;
            if (berth_problem_validate(&random->problem) == BERTH_OK)
                break;
            b->fixed_offset = BERTH_NO_OFFSET;
        }
    }
}

/* Pins by pinned_percent never lie on one another, whatever their times: the simplest of all valid ways. */
static inline void random_problem_make(random_problem *random, const random_shape *shape, uint64_t seed)
{
    memset(random, 0, sizeof *random);
    random->state = seed;
    uint64_t *state = &random->state;
    uint32_t count = shape->full ? shape->buffers : random_below(state, shape->buffers) + 1, gaps = 0;
    uint64_t pin_floor = 0;
    uint32_t load[64] = {0};
    for (uint32_t i = 0; i < count; i++) {
        berth_problem_buffer *buffer = &random->buffers[i];
        buffer->lower = (int64_t)random_below(state, shape->times) - 3;
        buffer->upper = buffer->lower + 1 + random_below(state, shape->times);
        buffer->size_bytes = (1 + random_below(state, shape->sizes)) * shape->unit;
        buffer->fixed_offset = BERTH_NO_OFFSET;
        if (shape->full && !random_fill(state, shape, load, buffer)) {
            count = i ? i : 1;
            break;
        }
        if (!shape->full && random_below(state, 40) == 0)
            buffer->size_bytes = 0;
        if (shape->alignments && random_below(state, 3) == 0)
            buffer->alignment = 1 + random_below(state, shape->alignments);
        if (shape->alias_groups && random_below(state, 2) == 0)
            buffer->alias_group = 1 + random_below(state, shape->alias_groups);
        buffer->gap_first = gaps;
        int64_t at = buffer->lower;
        while (shape->largest_gap && gaps < RANDOM_GAPS && random_below(state, 3) == 0) {
            berth_gap gap = {at + random_below(state, 3), 0};
            gap.upper = gap.lower + 1 + random_below(state, shape->largest_gap);
            if (gap.upper > buffer->upper)
                break;
            random->gaps[gaps++] = gap;
            buffer->gap_count++;
            at = gap.upper + 1;
        }
        if (random_below(state, 100) < shape->pinned_percent && buffer->alias_group == 0) {
            buffer->alignment = 1;
            uint64_t step = shape->rounding > 1 ? shape->rounding : 1;
            buffer->fixed_offset =
                (pin_floor + random_below(state, 3) * shape->unit + step - 1) / step * step;
            pin_floor = buffer->fixed_offset + (buffer->size_bytes + step - 1) / step * step;
        }
    }
    random->problem = (berth_problem){.struct_size = sizeof random->problem,
                                      .buffers = random->buffers,
                                      .buffer_count = count,
                                      .gaps = random->gaps,
                                      .gap_count = gaps,
                                      .alignment = shape->rounding};
    if (shape->anywhere_percent)
        random_pin_anywhere(random, shape);
}

/* The same problem with its rows in another order; to[i] is where row i went. */
static inline void random_problem_shuffle(random_problem *shuffled, const random_problem *random, size_t *to)
{
    *shuffled = *random;
    shuffled->problem.buffers = shuffled->buffers;
    shuffled->problem.gaps = shuffled->gaps;
    size_t count = random->problem.buffer_count;
    for (size_t i = 0; i < count; i++)
        to[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = random_below(&shuffled->state, (uint32_t)i), swap = to[i - 1];
        to[i - 1] = to[j];
        to[j] = swap;
    }
    for (size_t i = 0; i < count; i++)
        shuffled->buffers[to[i]] = random->buffers[i];
}

/* Gives every buffer a hint of its own, so that no two are equal in all and a plan is one by name. */
static inline void random_problem_name(random_problem *random)
{
    for (size_t i = 0; i < random->problem.buffer_count; i++)
        random->buffers[i].hint = (int64_t)(i * 37 % 64);
}

static inline int random_is_live(const random_problem *random, size_t buffer, int64_t time)
{
    const berth_problem_buffer *b = &random->buffers[buffer];
    if (time < b->lower || time >= b->upper || b->size_bytes == 0)
        return 0;
    for (uint32_t g = 0; g < b->gap_count; g++)
        if (time >= random->gaps[b->gap_first + g].lower && time < random->gaps[b->gap_first + g].upper)
            return 0;
    return 1;
}

static inline uint64_t random_rounded(const random_problem *random, size_t buffer)
{
    uint64_t step = random->problem.alignment > 1 ? random->problem.alignment : 1;
    return (random->buffers[buffer].size_bytes + step - 1) / step * step;
}

/* Problems for single phases: one of everything that a problem can say, and all of it together. */
static const random_shape phase_shapes[] = {
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 64},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 3, .largest_gap = 3},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alias_groups = 6},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alignments = 7},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .pinned_percent = 20},
    {.buffers = 60,
     .times = 25,
     .sizes = 9,
     .unit = 2,
     .largest_gap = 2,
     .alias_groups = 3,
     .alignments = 4,
     .pinned_percent = 10,
     .rounding = 3},
};

#endif

/* Families of planning problems of any size, for tests and benches: what compilers and runtimes produce,
 * problems whose optimum is known, and shapes that slow planners down. The same seed gives the same problem
 * anywhere. */
#ifndef BERTH_TESTS_PLAN_FAMILIES_H
#define BERTH_TESTS_PLAN_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "berth/problem.h"

typedef struct family {
    const char *name;
    const char *about;
    /* Fills `count` buffers. Returns the optimum in bytes where it is known, else 0. */
    uint64_t (*fill)(berth_problem_buffer *buffers, size_t count, uint64_t seed);
} family;

static inline uint64_t family_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

static inline uint64_t family_below(uint64_t *state, uint64_t bound)
{
    return family_random(state) % bound;
}

static inline void family_buffer(berth_problem_buffer *buffer, uint64_t lower, uint64_t life, uint64_t size)
{
    *buffer = (berth_problem_buffer){.lower = (int64_t)lower,
                                     .upper = (int64_t)(lower + life),
                                     .size_bytes = size,
                                     .fixed_offset = BERTH_NO_OFFSET};
}

/* With a life of 1 to `longest` steps. Draws come one after the other here and below, since C leaves the
 * order open in which arguments are worked out, and every machine is to make the same problems. */
static inline void family_buffer_drawn(berth_problem_buffer *buffer, uint64_t *state, uint64_t lower,
                                       uint64_t longest, uint64_t size)
{
    uint64_t life = 1 + family_below(state, longest);
    family_buffer(buffer, lower, life, size);
}

/* The same, starting at any of `span` steps. */
static inline void family_buffer_anywhere(berth_problem_buffer *buffer, uint64_t *state, uint64_t span,
                                          uint64_t longest, uint64_t size)
{
    uint64_t life = 1 + family_below(state, longest), lower = family_below(state, span);
    family_buffer(buffer, lower, life, size);
}

/* Sizes as tensors have them: a few values, each a multiple of 512, over four orders of magnitude. */
static inline uint64_t family_tensor(uint64_t *state)
{
    static const uint64_t bases[] = {1, 1, 2, 4, 8, 16, 49, 64, 98, 196, 392, 784, 1568};
    return bases[family_below(state, sizeof bases / sizeof *bases)] * (1 + family_below(state, 4)) * 512;
}

/* A network run forward: an output a step, read by the next few, now and then by one far away (a residual),
 * and workspaces of one step. */
static inline uint64_t family_inference(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed, step = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t kind = family_below(&state, 20), life = 1 + family_below(&state, 4);
        if (kind < 2)
            life = 4 + family_below(&state, 40);
        if (kind == 19)
            life = 1;
        family_buffer(&buffers[i], step, life, family_tensor(&state));
        step += family_below(&state, 3) != 0;
    }
    return 0;
}

/* Forward and backward: an activation lives until its gradient is computed, so lives nest; temporaries and
 * gradients live a few steps on either side. */
static inline uint64_t family_training(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    /* Micro-batches of some 600 layers, one after the other. */
    uint64_t start = 0;
    for (size_t i = 0; i < count;) {
        size_t layers = 200 + family_below(&state, 800);
        for (size_t k = 0; k < layers && i < count; k++) {
            uint64_t forward = start + k, backward = start + 2 * layers - k;
            family_buffer(&buffers[i++], forward, backward - forward, family_tensor(&state));
            if (i < count)
                family_buffer_drawn(&buffers[i++], &state, forward, 2, family_tensor(&state));
            if (i < count)
                family_buffer_drawn(&buffers[i++], &state, backward, 3, family_tensor(&state));
        }
        start += 2 * layers + 1;
    }
    return 0;
}

/* Some of each, with weights that live throughout long stretches. */
static inline uint64_t family_mixed(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    size_t half = count / 2, kept = count / 1000;
    family_inference(buffers, half, family_random(&state));
    family_training(buffers + half, count - half - kept, family_random(&state));
    uint64_t span = count / 4 + 1;
    for (size_t i = 0; i < kept; i++)
        family_buffer_anywhere(&buffers[count - kept + i], &state, span, span, family_tensor(&state));
    return 0;
}

/* A perfect tiling: a rectangle cut again and again, so that the optimum is its height and nothing is free at
 * any time. Cut next is the largest of a few; across its longer side, mostly. */
static inline uint64_t family_cut(berth_problem_buffer *buffers, size_t count, uint64_t seed, uint64_t width,
                                  uint64_t height)
{
    uint64_t state = seed;
    family_buffer(&buffers[0], 0, width, height);
    size_t have = 1;
    while (have < count) {
        size_t chosen = family_below(&state, have);
        for (int look = 0; look < 6; look++) {
            size_t other = family_below(&state, have);
            const berth_problem_buffer *a = &buffers[chosen], *b = &buffers[other];
            if ((double)(b->upper - b->lower) * (double)b->size_bytes >
                (double)(a->upper - a->lower) * (double)a->size_bytes)
                chosen = other;
        }
        berth_problem_buffer *old = &buffers[chosen], *cut = &buffers[have];
        uint64_t life = (uint64_t)(old->upper - old->lower), size = old->size_bytes;
        bool in_time = (double)life * (double)height > (double)size * (double)width;
        if (family_below(&state, 4) == 0)
            in_time = !in_time;
        *cut = *old;
        if (in_time && life > 1) {
            uint64_t at = 1 + family_below(&state, life - 1);
            old->upper = old->lower + (int64_t)at;
            cut->lower = old->upper;
            have++;
        } else if (!in_time && size > 1) {
            uint64_t at = 1 + family_below(&state, size - 1);
            old->size_bytes = at;
            cut->size_bytes = size - at;
            have++;
        }
    }
    return height;
}

/* With times and sizes so fine that few meet by chance. */
static inline uint64_t family_tiling(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    return family_cut(buffers, count, seed, (uint64_t)1 << 24, (uint64_t)1 << 28);
}

/* With times and sizes so coarse that many meet by chance, which is much harder. */
static inline uint64_t family_mosaic(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t side = 8;
    while (side * side < 16 * (uint64_t)count)
        side *= 2;
    return family_cut(buffers, count, seed, side, 16 * side);
}

static inline uint64_t family_long(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++)
        family_buffer_anywhere(&buffers[i], &state, count, count, 1 + family_below(&state, 1000000));
    return 0;
}

static inline uint64_t family_equal(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++)
        family_buffer_anywhere(&buffers[i], &state, count, 100, 4096);
    return 0;
}

static inline uint64_t family_together(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed, sum = 0;
    for (size_t i = 0; i < count; i++) {
        family_buffer_drawn(&buffers[i], &state, 0, count, 64 * (1 + family_below(&state, 1000)));
        sum += buffers[i].size_bytes;
    }
    return sum;
}

static inline uint64_t family_huge(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++)
        family_buffer_anywhere(&buffers[i], &state, count, 30, 1 + family_below(&state, 255));
    family_buffer(&buffers[0], count / 4, count / 2, (uint64_t)1 << 32);
    return 0;
}

/* ---- What large real programs do ---- */

/* Greedy decoding: every layer keeps keys and values in two caches that grow by a concatenation a token, so that
 * each token's cache is a little larger than the last and lives until the next is made. Between them are the
 * activations of a token, all of a few sizes. */
static inline uint64_t family_decode(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed, now = 0;
    const size_t layers = 3 + family_below(&state, 10), width = 64 * (1 + family_below(&state, 12));
    const uint64_t prompt = 1 + family_below(&state, 40), each = 12 * layers + 2;
    for (size_t i = 0, token = 0; i < count; token++) {
        for (size_t layer = 0; layer < layers && i < count; layer++, now += 6) {
            const uint64_t cache = (prompt + token) * width * 4;
            for (int half = 0; half < 2 && i < count; half++) {
                family_buffer(&buffers[i++], now + 1, 1, width * 4); /* this token's key or value */
                if (i < count)                                       /* the cache with it */
                    family_buffer(&buffers[i++], now + 2, 6 * layers + 1, cache);
            }
            if (i < count)
                family_buffer(&buffers[i++], now + 3, 2, (prompt + token) * 4 * (1 + width / 64));
            if (i < count)
                family_buffer(&buffers[i++], now + 4, 2, width * 16);
            if (i < count)
                family_buffer(&buffers[i++], now + 5, 2, width * 4);
        }
        if (i < count)
            family_buffer(&buffers[i++], now, 1 + family_below(&state, 2), 4 * (8000 + each));
        now++;
    }
    return 0;
}

/* Decoding of other shapes, all drawn by the seed: heads that share keys and values, a batch of requests, beams whose
 * caches are copied into another order now and then, requests that end and make room for the next. */
static inline uint64_t family_decode_shapes(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    enum { CACHES = 48 };
    uint64_t state = seed, now = 0;
    const uint64_t caches = 4 + 2 * family_below(&state, (CACHES - 4) / 2);
    const uint64_t width = 64 * (1 + family_below(&state, 16)),
                   shared = (uint64_t)1 << family_below(&state, 4);
    const uint64_t beams = family_below(&state, 3) ? 1 : 2 + family_below(&state, 4);
    const uint64_t requests = (1 + family_below(&state, 4)) * beams;
    const uint64_t prompt = 1 + family_below(&state, 100), longest = 50 + family_below(&state, 2000);
    const uint64_t row = 4 * requests * width / shared;
    size_t cache[CACHES]; /* the buffers that hold them by now, each until the next is made of it */
    for (size_t i = 0, token = 0; i < count; token++, now += 2) {
        const uint64_t length = prompt + token % longest;
        const bool is_first = token % longest == 0, is_moved = beams > 1 && family_below(&state, 4) == 0;
        for (size_t c = 0; c < caches; c++, now += 4) {
            for (uint64_t made = is_moved && !is_first ? 2 : 1; made > 0 && i < count; made--) {
                const uint64_t at = now + 2 - (made > 1);
                family_buffer(&buffers[i], at, UINT32_MAX, row * (made > 1 ? length - 1 : length));
                if (token > 0)
                    buffers[cache[c]].upper = (int64_t)(is_first ? now : at + 1);
                cache[c] = i++;
            }
            if (i < count) /* this token's key or value */
                family_buffer(&buffers[i++], now, 3, row);
            if (c % 2 && i < count) /* the scores, which grow too */
                family_buffer(&buffers[i++], now + 2, 2, 4 * requests * (width / 64) * length);
            if (c % 2 && i < count)
                family_buffer(&buffers[i++], now + 3, 2, 16 * requests * width);
        }
        if (i < count)
            family_buffer(&buffers[i++], now, 2, 4 * requests * 8000);
    }
    for (size_t i = 0; i < count; i++) /* what lives still lives to the end */
        if (buffers[i].upper > (int64_t)now)
            buffers[i].upper = (int64_t)now;
    return 0;
}

/* A compiler's graph: thousands alive at once, of all sizes, with lives from a step to a large part of all. */
static inline uint64_t family_graph_of(berth_problem_buffer *buffers, size_t count, uint64_t seed,
                                       uint64_t alive)
{
    uint64_t state = seed;
    const uint64_t longest = 2 * alive;
    for (size_t i = 0; i < count; i++) {
        uint64_t life = 1 + family_below(&state, 12);
        if (family_below(&state, 8) == 0)
            life = 1 + family_below(&state, longest * 4);
        uint64_t tensor = family_tensor(&state);
        family_buffer(&buffers[i], i, life, tensor / (1 + family_below(&state, 8)));
        if (family_below(&state, 200) == 0)
            buffers[i].size_bytes *= 40;
    }
    return 0;
}

static inline uint64_t family_graph(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    return family_graph_of(buffers, count, seed, 1100 * 2);
}

static inline uint64_t family_wide_graph(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    return family_graph_of(buffers, count, seed, 3200 * 2);
}

/* Several optimiser steps in a row: activations nest, a gradient lives from its layer's backward step to the
 * update of its weight, updates make short-lived copies of it. */
static inline uint64_t family_steps(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    enum { LAYERS = 300 };
    uint64_t state = seed, weight[LAYERS], activation[LAYERS], start = 0;
    for (size_t k = 0; k < LAYERS; k++) {
        weight[k] = family_tensor(&state);
        activation[k] = family_tensor(&state);
    }
    for (size_t i = 0; i < count; start += 4 * LAYERS)
        for (size_t k = 0; k < LAYERS && i < count; k++) {
            const uint64_t backward = start + 2 * LAYERS - k, update = start + 2 * LAYERS + 2 * k + 1;
            family_buffer(&buffers[i++], start + k, backward - start - k, activation[k]);
            if (i < count)
                family_buffer(&buffers[i++], start + k, 1 + family_below(&state, 3), activation[k] / 2 + 512);
            if (i < count)
                family_buffer(&buffers[i++], backward, update - backward, weight[k]);
            if (i < count)
                family_buffer(&buffers[i++], backward, 1 + family_below(&state, 2), activation[k]);
            if (i < count)
                family_buffer(&buffers[i++], update - 1, 2, weight[k]);
        }
    return 0;
}

/* Requests that come and go: each has a cache of its length, or one that doubles as it grows; a few are very long. */
static inline uint64_t family_pool(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    uint64_t state = seed, now = 0;
    const uint64_t page = 1024 * (1 + family_below(&state, 64)), longest = 10 + family_below(&state, 200);
    const bool grows = family_below(&state, 2) != 0;
    for (size_t i = 0; i < count;) {
        uint64_t length = 1 + family_below(&state, longest);
        if (family_below(&state, 10) == 0)
            length *= 1 + family_below(&state, 40);
        if (!grows)
            family_buffer(&buffers[i++], now, length, page * (1 + family_below(&state, length)));
        for (uint64_t at = now, size = 1, left = grows ? length : 0; left > 0 && i < count; size *= 2) {
            const uint64_t life = size < left ? size : left;
            family_buffer(&buffers[i++], at, life + 1, page * size * 2);
            at += life;
            left -= life;
        }
        if (i < count)
            family_buffer(&buffers[i++], now, 1, page * (1 + family_below(&state, 32)));
        now += family_below(&state, 3);
    }
    return 0;
}

/* A pipeline of micro-batches: each one's activations wait while the next ones go forward, then go layer by layer. */
static inline uint64_t family_pipeline(berth_problem_buffer *buffers, size_t count, uint64_t seed)
{
    enum { DEPTH = 16, LAYERS = 34 };
    uint64_t state = seed, now = 0, activation[LAYERS], scratch[LAYERS];
    const size_t depth = 2 + family_below(&state, DEPTH - 2), layers = 4 + family_below(&state, LAYERS - 4);
    size_t waiting[DEPTH][LAYERS];
    for (size_t k = 0; k < layers; k++) {
        activation[k] = family_tensor(&state);
        scratch[k] = family_tensor(&state);
    }
    for (size_t i = 0, batch = 0; i < count; batch++) {
        size_t *mine = waiting[batch % depth];
        for (size_t k = layers; batch >= depth && k-- > 0 && i < count; now++) {
            buffers[mine[k]].upper = (int64_t)now + 1;
            family_buffer(&buffers[i++], now, 2, activation[k]);
            if (i < count && family_below(&state, 2))
                family_buffer(&buffers[i++], now, 1, scratch[k]);
        }
        for (size_t k = 0; k < layers && i < count; k++, now++) {
            const uint64_t copies = 1 + family_below(&state, 2);
            mine[k] = i;
            family_buffer(&buffers[i++], now, UINT32_MAX, activation[k] * copies);
            if (i < count)
                family_buffer_drawn(&buffers[i++], &state, now, 2, scratch[k]);
        }
    }
    for (size_t i = 0; i < count; i++) /* what waits still waits to the end */
        if (buffers[i].upper > (int64_t)now)
            buffers[i].upper = (int64_t)now + 1;
    return 0;
}

static const family programs[] = {
    {"decode", "decoding with caches that grow by a concatenation a token", family_decode},
    {"graph", "a compiler's graph, some 1,100 alive", family_graph},
    {"wide graph", "the same, some 3,200 alive", family_wide_graph},
    {"steps", "several optimiser steps in a row", family_steps},
    {"decode shapes", "decoding with beams, batches, shared heads, requests that end", family_decode_shapes},
    {"pool", "requests of all lengths that come and go", family_pool},
    {"pipeline", "micro-batches in a pipeline, one forward, one backward", family_pipeline},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static const family families[] = {
    {"inference", "a network run forward", family_inference},
    {"training", "forward and backward, nested lives", family_training},
    {"mixed", "both, and weights kept for long", family_mixed},
    {"tiling", "a rectangle cut without waste: the optimum is known", family_tiling},
    {"mosaic", "the same with coarse cuts, much harder", family_mosaic},
    {"long", "random long lives, half of everything alive at once", family_long},
    {"equal", "all sizes equal", family_equal},
    {"together", "all start at once: the optimum is their sum", family_together},
    {"huge", "one huge buffer among tiny ones", family_huge},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* A problem of a family, with buffers of malloc; free them with family_free. The generator starts at a hash of the
 * seed: were it a multiple of the generator's own increment, every seed would give the same stream of numbers,
 * shifted by a few places. */
static inline uint64_t family_make(const family *which, size_t count, uint64_t seed, berth_problem *problem)
{
    berth_problem_buffer *buffers = malloc(count * sizeof *buffers);
    uint64_t state = seed, start = family_random(&state);
    uint64_t optimum = which->fill(buffers, count, start);
    *problem = (berth_problem){.struct_size = sizeof *problem, .buffers = buffers, .buffer_count = count};
    return optimum;
}

static inline void family_free(berth_problem *problem)
{
    free((void *)problem->buffers);
}

#endif

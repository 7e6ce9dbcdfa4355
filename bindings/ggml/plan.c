/* From places with lives to offsets: a problem of the planner's for each buffer type, split over several buffers where one
 * may not be large enough. */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

berth_status bgg_plan_problem(const bgg_shape *shape, int32_t index, size_t alignment, berth_problem *problem,
                              berth_problem_buffer **buffers, int32_t **which)
{
    size_t count = 0, room = (size_t)shape->place_count + 1;
    *buffers = calloc(room, sizeof **buffers);
    *which = calloc(room, sizeof **which);
    if (!*buffers || !*which) {
        free(*buffers);
        free(*which);
        *buffers = NULL;
        *which = NULL;
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan %d tensors", shape->place_count);
    }
    for (int32_t i = 0; i < shape->place_count; i++) {
        const bgg_place *place = &shape->places[i];
        if (place->type != index || place->size_bytes == 0)
            continue;
        (*buffers)[count] = (berth_problem_buffer){.lower = place->lower,
                                                   .upper = place->upper,
                                                   .size_bytes = place->size_bytes,
                                                   .fixed_offset = BERTH_NO_OFFSET};
        (*which)[count++] = i;
    }
    *problem = (berth_problem)BERTH_PROBLEM_INIT;
    problem->buffers = *buffers;
    problem->buffer_count = count;
    problem->alignment = (uint32_t)alignment;
    return BERTH_OK;
}

static berth_status check_sizes(const bgg_shape *shape, const berth_problem *problem, const int32_t *which,
                                const bgg_pool *pool)
{
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].size_bytes > pool->max_bytes)
            return berth_fail(BERTH_INVALID_ARGUMENT,
                              "the tensor '%s' takes %llu bytes, and a buffer of type %s at most %zu",
                              shape->places[which[i]].name,
                              (unsigned long long)problem->buffers[i].size_bytes,
                              bgg_ggml.ggml_backend_buft_name(pool->type), pool->max_bytes);
    return BERTH_OK;
}

/* Places that end within `limit` stay in buffer number `number`; the others move to the front of the problem, to be planned
 * again for the next. Returns the bytes that the buffer needs. */
static uint64_t keep_within(bgg_shape *shape, berth_problem *problem, berth_problem_buffer *buffers,
                            int32_t *which, const uint64_t *offsets, uint64_t limit, size_t number)
{
    uint64_t needed = 0;
    size_t left = 0;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        uint64_t end = offsets[i] + buffers[i].size_bytes;
        if (end > limit) {
            buffers[left] = buffers[i];
            which[left++] = which[i];
            continue;
        }
        shape->places[which[i]].offset = offsets[i];
        shape->places[which[i]].buffer = (int32_t)number;
        needed = BGG_MAX(needed, end);
    }
    problem->buffer_count = left;
    return needed;
}

static berth_status solve_pool(bgg_shape *shape, berth_problem *problem, berth_problem_buffer *buffers,
                               int32_t *which, bgg_pool *pool, const berth_solve_options *options,
                               uint64_t *offsets, uint64_t **needed, size_t *count)
{
    pool->lower_bound_bytes = 0;
    pool->proven_optimal = true;
    while (problem->buffer_count > 0) {
        berth_certificate certificate = BERTH_CERTIFICATE_INIT;
        berth_status status = berth_solve(problem, options, offsets, &certificate);
        uint64_t *more = status ? NULL : realloc(*needed, (*count + 1) * sizeof **needed);
        if (status)
            return status;
        if (!more)
            return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan a graph");
        *needed = more;
        if (*count == 0)
            pool->lower_bound_bytes = certificate.lower_bound_bytes;
        /* Over several buffers the bound is one for all of them together, and nobody has proven that it can be met. */
        pool->proven_optimal = *count == 0 && certificate.proven_optimal;
        more[*count] = keep_within(shape, problem, buffers, which, offsets, pool->max_bytes, *count);
        if (more[(*count)++] == 0)
            return berth_fail(BERTH_INTERNAL, "a plan of %zu tensors leaves the bottom empty",
                              problem->buffer_count);
    }
    return BERTH_OK;
}

berth_status bgg_plan_pool(bgg_shape *shape, int32_t index, bgg_pool *pool,
                           const berth_solve_options *options, uint64_t **needed, size_t *count)
{
    berth_problem problem;
    berth_problem_buffer *buffers;
    int32_t *which;
    berth_status status = bgg_plan_problem(shape, index, pool->alignment, &problem, &buffers, &which);
    *needed = NULL;
    *count = 0;
    if (status)
        return status;
    uint64_t *offsets = calloc(problem.buffer_count + 1, sizeof *offsets);
    if (!offsets)
        status = berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan %zu tensors", problem.buffer_count);
    if (!status)
        status = check_sizes(shape, &problem, which, pool);
    if (!status)
        status = solve_pool(shape, &problem, buffers, which, pool, options, offsets, needed, count);
    free(offsets);
    free(buffers);
    free(which);
    return status;
}

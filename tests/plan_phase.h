/* What tests of single phases share: a search with all the steps there are, and a plan held against the
 * checker. After cmocka.h. */
#ifndef BERTH_TESTS_PLAN_PHASE_H
#define BERTH_TESTS_PLAN_PHASE_H

#include <stdlib.h>

#include "planner/engine/solver.h"
#include "planner/problem/prepared.h"

static inline berth__search search_of(const berth__prepared *prepared)
{
    return (berth__search){.prepared = prepared,
                           .step_budget = UINT64_MAX,
                           .best_peak = UINT64_MAX,
                           .lower_bound = prepared->max_live,
                           .capacity = BERTH__NO_CAPACITY};
}

static inline void expect_valid(const berth_problem *problem, const berth__prepared *prepared,
                                const uint64_t *offsets)
{
    uint64_t *bytes = malloc((problem->buffer_count + 1) * sizeof *bytes);
    berth__prepared_expand(prepared, offsets, bytes);
    berth_verdict verdict = {.struct_size = sizeof verdict};
    if (berth_problem_check(problem, bytes, &verdict) != BERTH_OK)
        fail_msg("%s", verdict.words);
    free(bytes);
}

#endif

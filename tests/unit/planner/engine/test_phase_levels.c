/* Levels: what they offer is a plan, with alignments too, and what they are for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "planner/engine/phases.h"
#include "planner/place/valley.h"

enum { COUNT = 4000, POOL = 6000 };

static berth_problem make(const family *which, size_t count, uint64_t seed)
{
    berth_problem problem;
    family_make(which, count, seed, &problem);
    return problem;
}

/* The best plan that levels find from nothing, held against the checker; UINT64_MAX: none. */
static uint64_t plan(const berth_problem *problem, uint64_t steps, berth__search *search)
{
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, problem), BERTH_OK);
    *search = search_of(&p);
    search->step_budget = 100 * (uint64_t)p.item_count;
    search->best = malloc(p.item_count * sizeof *search->best);
    assert_int_equal(berth__phase_levels(search, steps), BERTH_OK);
    const uint64_t peak = search->best_peak;
    if (peak != UINT64_MAX)
        expect_valid(problem, &p, search->best);
    free(search->best);
    berth__prepared_finish(&p);
    return peak;
}

/* Pins would have to come first; with them there is none. */
static void test_every_plan_is_valid(void **state)
{
    (void)state;
    for (size_t k = 0; k < PROGRAMS; k++)
        for (int pinned = 0; pinned < 2; pinned++) {
            berth_problem problem = make(&programs[k], COUNT, 3 + k);
            berth_problem_buffer *buffers = (berth_problem_buffer *)problem.buffers;
            uint64_t state_of = k;
            for (size_t i = 0; i < COUNT; i++) /* odd sizes, and alignments that matter */
                if (family_below(&state_of, 4) == 0) {
                    buffers[i].size_bytes += 1 + family_below(&state_of, 100);
                    buffers[i].alignment = (uint32_t)1 << family_below(&state_of, 9);
                }
            buffers[7].alignment = 1;
            if (pinned)
                buffers[7].fixed_offset = 512;
            berth__search search;
            assert_int_equal(plan(&problem, 60 * COUNT, &search) != UINT64_MAX, !pinned);
            family_free(&problem);
        }
}

/* A plan that is there already is kept unless a better one is found, and a level that is no better ends it. */
static void test_only_a_better_plan_is_offered(void **state)
{
    (void)state;
    berth_problem problem = make(&programs[1], COUNT, 1);
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    berth__search search = search_of(&p);
    search.step_budget = 100 * COUNT;
    search.best_peak = p.max_live / 2; /* as if there were one below any level's */
    search.lower_bound = 0;
    assert_int_equal(berth__phase_levels(&search, 60 * COUNT), BERTH_OK);
    assert_int_equal(search.best_peak, p.max_live / 2);
    assert_true(search.steps < 8 * COUNT); /* to the end it is eighteen */
    berth__prepared_finish(&p);
    family_free(&problem);
}

/* With too few steps for one kind it leaves the steps to others. */
static void test_few_steps_are_left_to_others(void **state)
{
    (void)state;
    berth_problem problem = make(&programs[1], COUNT, 1);
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    berth__search search = search_of(&p);
    search.step_budget = 5 * COUNT;
    assert_int_equal(berth__phase_levels(&search, 5 * COUNT), BERTH_OK);
    assert_int_equal(search.steps, 0);
    berth__prepared_finish(&p);
    family_free(&problem);
}

static berth_stop strike(void *context, const berth_progress *progress)
{
    uint64_t *calls = context;
    assert_true(progress->best_bytes == UINT64_MAX &&
                strcmp(progress->phase, "levels") == 0); /* the whole's */
    return (*calls)-- > 0 ? BERTH_STOP_DONE : BERTH_STOP_CLOCK;
}

/* The clock strikes while a part is searched: that ends the whole, soon. */
static void test_the_clock_ends_it(void **state)
{
    (void)state;
    berth_problem problem = make(&programs[5], POOL, 3);
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *best = malloc(p.item_count * sizeof *best);
    for (uint64_t calls = 0; calls < 12; calls += 3) {
        uint64_t left = calls;
        berth__search search = search_of(&p);
        search.step_budget = 100 * (uint64_t)POOL;
        search.phase = "levels";
        search.best = best;
        search.progress = strike;
        search.context = &left;
        assert_int_equal(berth__phase_levels(&search, 60 * POOL), BERTH_OK);
        assert_true(search.stopped && search.stop == BERTH_STOP_CLOCK);
        assert_true(search.steps <= (calls + 2) * 2 * POOL);
    }
    free(best);
    berth__prepared_finish(&p);
    family_free(&problem);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    berth_problem problem = make(&programs[3], 2100, 2);
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *best = malloc(p.item_count * sizeof *best);
    const uint64_t live = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n += 1 + n / 16) {
        berth__search search = search_of(&p);
        search.step_budget = 100 * (uint64_t)p.item_count;
        search.best = best;
        berth__heap_fail_at(n, false);
        status = berth__phase_levels(&search, 30 * (uint64_t)p.item_count);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
        assert_true(n < 100000);
    }
    assert_int_equal(status, BERTH_OK);
    free(best);
    berth__prepared_finish(&p);
    family_free(&problem);
}

/* Requests of all lengths that come and go: levels end within a thousandth of the bound, no skyline within a hundredth. */
static void test_a_pool_of_caches(void **state)
{
    (void)state;
    berth_problem problem = make(&programs[5], POOL, 3);
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *offsets = malloc(p.item_count * sizeof *offsets), peak, least = UINT64_MAX;
    for (unsigned k = 0; k < BERTH__VALLEY_VARIANTS; k++) {
        berth__search search = search_of(&p);
        assert_int_equal(berth__valley_run(&search, k, UINT64_MAX, offsets, &peak), BERTH_OK);
        least = peak < least ? peak : least;
    }
    berth__search search;
    assert_true(least > p.max_live + p.max_live / 100);
    assert_true(plan(&problem, 80 * POOL, &search) <= p.max_live + p.max_live / 1000);
    free(offsets);
    berth__prepared_finish(&p);
    family_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_is_valid),
        cmocka_unit_test(test_only_a_better_plan_is_offered),
        cmocka_unit_test(test_few_steps_are_left_to_others),
        cmocka_unit_test(test_the_clock_ends_it),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_a_pool_of_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Frames: every plan is valid, steps and a better plan end it, and what it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/place/frame.h"
#include "planner/place/valley.h"
#include "scale.h"

static void test_every_plan_is_valid(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 480 / SCALE; seed++)
        for (unsigned variant = 0; variant < BERTH__FRAME_VARIANTS; variant++) {
            random_problem random;
            berth__prepared p;
            uint64_t offsets[RANDOM_BUFFERS], peak;
            random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
            assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
            berth__search search = search_of(&p);
            if (p.item_count) {
                assert_int_equal(
                    berth__frame_run(&search, variant, p.max_live + seed % 3, UINT64_MAX, offsets, &peak),
                    BERTH_OK);
                assert_int_equal(peak, berth__prepared_peak(&p, offsets));
                expect_valid(&random.problem, &p, offsets);
            }
            berth__prepared_finish(&p);
        }
}

static void test_a_better_plan_and_few_steps_end_it(void **state)
{
    (void)state;
    berth_problem problem;
    berth__prepared p;
    family_make(&families[5], 2000, 1, &problem);
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *offsets = malloc(p.item_count * sizeof *offsets), peak;
    berth__search search = search_of(&p);
    search.best_peak = p.max_live; /* as if there were one at the bound */
    assert_int_equal(berth__frame_run(&search, 4, p.max_live, UINT64_MAX, offsets, &peak), BERTH_OK);
    assert_true(peak == UINT64_MAX);
    search = search_of(&p);
    assert_int_equal(berth__frame_run(&search, 4, p.max_live, 20, offsets, &peak), BERTH_OK);
    assert_true(peak == UINT64_MAX && search.steps < 1000);
    free(offsets);
    berth__prepared_finish(&p);
    family_free(&problem);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    random_problem random;
    berth__prepared p;
    uint64_t offsets[RANDOM_BUFFERS], peak;
    random_problem_make(&random, &phase_shapes[5], 3);
    assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
    const uint64_t live = berth__heap_live();
    for (unsigned variant = 0; variant < BERTH__FRAME_VARIANTS; variant++) {
        berth_status status = BERTH_OUT_OF_HOST_MEMORY;
        for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
            berth__search search = search_of(&p);
            berth__heap_fail_at(n, false);
            status = berth__frame_run(&search, variant, p.max_live, UINT64_MAX, offsets, &peak);
            berth__heap_fail_at(0, false);
            assert_int_equal(berth__heap_live(), live);
            assert_true(n < 2000);
        }
        assert_int_equal(status, BERTH_OK);
    }
    berth__prepared_finish(&p);
}

/* A graph with a few huge buffers: the best of the frames is at the bound, a skyline alone is a hundredth above. */
static void test_huge_buffers_reach_the_bound(void **state)
{
    (void)state;
    enum { COUNT = 80000 };
    berth_problem problem;
    berth__prepared p;
    family_make(&programs[1], COUNT, 6, &problem);
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *offsets = malloc(p.item_count * sizeof *offsets), peak, least = UINT64_MAX;
    for (unsigned variant = 0; variant < 4; variant++) {
        berth__search search = search_of(&p);
        assert_int_equal(berth__frame_run(&search, variant, p.max_live, UINT64_MAX, offsets, &peak),
                         BERTH_OK);
        least = peak < least ? peak : least;
    }
    assert_int_equal(least, p.max_live);
    berth__search search = search_of(&p);
    assert_int_equal(berth__valley_run(&search, 0, UINT64_MAX, offsets, &peak), BERTH_OK);
    assert_true(peak > p.max_live + p.max_live / 100);
    free(offsets);
    berth__prepared_finish(&p);
    family_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_is_valid),
        cmocka_unit_test(test_a_better_plan_and_few_steps_end_it),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_huge_buffers_reach_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

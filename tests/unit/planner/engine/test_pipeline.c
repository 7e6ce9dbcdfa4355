/* The table of `auto`'s phases: every one can be left out, alone or with all others,
 * and a capacity below the bound is refused at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_random.h"

enum { COUNT = 2500 };

static berth_certificate solve(const berth_problem *problem, berth_solve_options options)
{
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    berth_certificate c = {.struct_size = sizeof c};
    options.struct_size = sizeof options;
    assert_int_equal(berth_solve(problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(problem, offsets, NULL), BERTH_OK);
    free(offsets);
    return c;
}

static void expect_plans_without_each(const berth_problem *problem, uint64_t steps)
{
    char all[1024] = "";
    for (size_t k = 0; berth_phase_name(k); k++) {
        assert_non_null(berth_phase_about(k));
        solve(problem, (berth_solve_options){.without = berth_phase_name(k), .step_budget = steps});
        strcat(strcat(all, k ? "," : ""), berth_phase_name(k));
    }
    solve(problem, (berth_solve_options){.without = all, .step_budget = steps});
    for (size_t k = 0; berth_phase_name(k); k++) { /* each one alone */
        char others[1024] = "";
        for (size_t j = 0; berth_phase_name(j); j++)
            if (strcmp(berth_phase_name(j), berth_phase_name(k)) != 0)
                strcat(strcat(others, others[0] ? "," : ""), berth_phase_name(j));
        solve(problem, (berth_solve_options){.without = others, .step_budget = steps});
    }
}

static void test_every_phase_can_be_left_out(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < BERTH_COUNT_OF(phase_shapes); seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed], seed);
        expect_plans_without_each(&random.problem, 20000);
    }
    berth_problem problem;
    family_make(&programs[1], COUNT, 1, &problem);
    expect_plans_without_each(&problem, 40 * COUNT);
    family_free(&problem);
}

static void test_an_unknown_phase_is_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {"welds", "weld,", "weld,,exact", "weld exact"};
    berth_problem_buffer one = {.lower = 0, .upper = 1, .size_bytes = 1, .fixed_offset = BERTH_NO_OFFSET};
    berth_problem problem = {.struct_size = sizeof problem, .buffers = &one, .buffer_count = 1};
    uint64_t offset;
    for (size_t k = 0; k < BERTH_COUNT_OF(wrong); k++) {
        berth_solve_options options = {.struct_size = sizeof options, .without = wrong[k]};
        const berth_status status = berth_solve(&problem, &options, &offset, NULL);
        if (strcmp(wrong[k], "weld,") == 0) /* a comma at the end is forgiven */
            assert_int_equal(status, BERTH_OK);
        else
            assert_int_equal(status, BERTH_NOT_FOUND);
    }
}

/* A caller compiled before there was `without` has a shorter struct. */
static void test_a_shorter_struct_leaves_nothing_out(void **state)
{
    (void)state;
    random_problem random;
    uint64_t offsets[RANDOM_BUFFERS];
    random_problem_make(&random, &phase_shapes[0], 1);
    berth_solve_options options = {.struct_size = offsetof(berth_solve_options, without),
                                   .step_budget = 1000,
                                   .without = "no such phase"};
    assert_int_equal(berth_solve(&random.problem, &options, offsets, NULL), BERTH_OK);
}

static void test_a_capacity_below_the_bound_is_refused_at_once(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        berth_problem problem;
        family_make(&families[f], COUNT, 1, &problem);
        uint64_t live;
        assert_int_equal(berth_problem_max_live(&problem, &live, NULL), BERTH_OK);
        problem.capacity_bytes = live - 1;
        const berth_certificate c = solve(&problem, (berth_solve_options){.solver = NULL});
        assert_int_equal(c.fits, BERTH_FITS_NO);
        assert_true(c.stopped_by == BERTH_STOP_INFEASIBLE);
        assert_true(c.steps <= 8 * COUNT); /* a plan, and no search */
        family_free(&problem);
    }
}

/* Three at once, 8 bytes in all, that need 9: two ask for a multiple of 4 and leave a hole of one byte. Only the exact
 * search tells. Where it runs alone its proof comes before any plan, and a whole plan comes with it all the same. */
static void test_a_proof_before_the_first_plan(void **state)
{
    (void)state;
    char others[1024] = "";
    for (size_t k = 0; berth_phase_name(k); k++)
        if (strcmp(berth_phase_name(k), "exact") != 0)
            strcat(strcat(others, others[0] ? "," : ""), berth_phase_name(k));
    static const uint64_t pins[] = {BERTH_NO_OFFSET, 0};
    static const uint64_t budgets[] = {0, 1, 40, 100000};
    for (size_t k = 0; k < BERTH_COUNT_OF(pins) * BERTH_COUNT_OF(budgets); k++) {
        const berth_problem_buffer buffers[] = {
            {.upper = 1, .size_bytes = 3, .fixed_offset = pins[k % 2], .alignment = 4},
            {.upper = 1, .size_bytes = 3, .fixed_offset = BERTH_NO_OFFSET, .alignment = 4},
            {.upper = 1, .size_bytes = 2, .fixed_offset = BERTH_NO_OFFSET}};
        const berth_problem problem = {.struct_size = sizeof problem,
                                       .buffers = buffers,
                                       .buffer_count = BERTH_COUNT_OF(buffers),
                                       .capacity_bytes = 8};
        const berth_certificate c =
            solve(&problem, (berth_solve_options){.without = others, .step_budget = budgets[k / 2]});
        assert_true(c.peak_bytes >= 9);
        if (budgets[k / 2] == 0) {
            assert_int_equal(c.fits, BERTH_FITS_NO);
            assert_int_equal(c.stopped_by, BERTH_STOP_INFEASIBLE);
        }
    }
}

static berth_stop answer_it(void *context, const berth_progress *progress)
{
    (void)progress;
    return *(const berth_stop *)context;
}

/* A progress function may answer three things. Whatever else it says ends the search as a clock does: it proves
 * nothing, and there is a whole plan. */
static void test_what_no_progress_function_may_answer(void **state)
{
    (void)state;
    random_problem random;
    random_problem_make(&random, &phase_shapes[0], 1);
    for (int k = BERTH_STOP_OPTIMAL; k <= BERTH_STOP_CLOCK; k++) {
        berth_stop answer = (berth_stop)k;
        const berth_certificate c =
            solve(&random.problem, (berth_solve_options){.progress = answer_it, .context = &answer});
        assert_int_equal(c.stopped_by, BERTH_STOP_CLOCK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_phase_can_be_left_out),
        cmocka_unit_test(test_an_unknown_phase_is_named),
        cmocka_unit_test(test_a_shorter_struct_leaves_nothing_out),
        cmocka_unit_test(test_a_capacity_below_the_bound_is_refused_at_once),
        cmocka_unit_test(test_a_proof_before_the_first_plan),
        cmocka_unit_test(test_what_no_progress_function_may_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sound answers: whatever a problem says, and however its pins, gaps, groups and alignments meet, every plan is
 * valid, every claim about it true, and every search ends with its steps. Small problems of every combination,
 * against brute force where they are small enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "brute.h"
#include "planner/engine/solver.h"
#include "scale.h"

enum { GAPS = 1, GROUPS = 2, ALIGNMENTS = 4, PINS = 8, ROUNDING = 16, COMBINATIONS = 32 };

/* A hang is no answer: the alarm ends the test, and says so by its signal. */
enum { WATCHDOG_SECONDS = 600 };

static random_shape shape_of(unsigned combination, uint32_t buffers)
{
    return (random_shape){.buffers = buffers,
                          .times = buffers < 12 ? 8 : 20,
                          .sizes = 40,
                          .unit = 1,
                          .largest_gap = combination & GAPS ? 3 : 0,
                          .alias_groups = combination & GROUPS ? buffers / 4 + 1 : 0,
                          .alignments = combination & ALIGNMENTS ? 12 : 0,
                          .anywhere_percent = combination & PINS ? 35 : 0,
                          .rounding = combination & ROUNDING ? 3 : 0};
}

static berth_certificate solve(const berth_problem *problem, const char *solver, uint64_t steps,
                               uint64_t *offsets)
{
    berth_certificate c = {.struct_size = sizeof c};
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver, .step_budget = steps};
    berth_verdict verdict = {.struct_size = sizeof verdict};
    if (berth_solve(problem, &options, offsets, &c) != BERTH_OK)
        fail_msg("%s", berth_last_error()->message);
    if (berth_problem_check(problem, offsets, &verdict) != BERTH_OK)
        fail_msg("%s", verdict.words);
    assert_int_equal(verdict.peak_bytes, c.peak_bytes);
    assert_true(c.lower_bound_bytes <= c.peak_bytes);
    return c;
}

/* ---- Seen ---- */

#define FREE BERTH_NO_OFFSET
#define BUFFER(from, to, bytes, pin, group)                                                                  \
    {                                                                                                        \
        .lower = (from), .upper = (to), .size_bytes = (bytes), .fixed_offset = (pin), .alias_group = (group) \
    }

/* A pinned group whose members have two sizes; its hull covers another pin, its members do not. The plan was
 * 392 and overlapped; 397 are live at once. */
static void test_a_pinned_group_beside_a_pin(void **state)
{
    (void)state;
    const berth_problem_buffer buffers[] = {
        BUFFER(2, 3, 36, 75, 0),   BUFFER(0, 4, 61, FREE, 0), BUFFER(1, 3, 53, 12, 2),
        BUFFER(3, 4, 70, FREE, 2), BUFFER(1, 4, 98, FREE, 0), BUFFER(0, 4, 75, FREE, 0),
        BUFFER(3, 4, 36, FREE, 0), BUFFER(1, 4, 47, FREE, 0), BUFFER(1, 4, 10, FREE, 0),
    };
    berth_problem problem = {
        .struct_size = sizeof problem, .buffers = buffers, .buffer_count = BERTH_COUNT_OF(buffers)};
    uint64_t offsets[BERTH_COUNT_OF(buffers)];
    for (size_t k = 0; berth_solver_name(k); k++)
        assert_true(solve(&problem, berth_solver_name(k), 100000, offsets).peak_bytes >= 397);
}

/* Two pins with gaps, each living in the other's gap, with places that overlap: it crashed. */
static void test_pins_in_each_others_gaps(void **state)
{
    (void)state;
    berth_problem_buffer buffers[] = {
        BUFFER(0, 4, 34, FREE, 0),  BUFFER(3, 9, 51, 52, 3),   BUFFER(1, 5, 82, 64, 0),
        BUFFER(6, 10, 96, FREE, 2), BUFFER(2, 8, 39, FREE, 0),
    };
    const berth_gap gaps[] = {{0, 3}, {4, 7}, {2, 4}, {5, 7}};
    static const size_t with_gap[] = {0, 1, 2, 4};
    for (uint32_t k = 0; k < BERTH_COUNT_OF(with_gap); k++) {
        buffers[with_gap[k]].gap_first = k;
        buffers[with_gap[k]].gap_count = 1;
    }
    berth_problem problem = {.struct_size = sizeof problem,
                             .buffers = buffers,
                             .buffer_count = BERTH_COUNT_OF(buffers),
                             .gaps = gaps,
                             .gap_count = BERTH_COUNT_OF(gaps)};
    uint64_t offsets[BERTH_COUNT_OF(buffers)];
    for (size_t k = 0; berth_solver_name(k); k++)
        solve(&problem, berth_solver_name(k), 100000, offsets);
}

/* Welding counted an eighth of a step a buffer, which is none for four: the search never ended. */
static void test_few_buffers_cost_steps(void **state)
{
    (void)state;
    const berth_problem_buffer buffers[] = {BUFFER(1, 2, 19, FREE, 0), BUFFER(0, 1, 12, FREE, 0),
                                            BUFFER(0, 1, 11, FREE, 0), BUFFER(1, 2, 7, 12, 0)};
    berth_problem problem = {
        .struct_size = sizeof problem, .buffers = buffers, .buffer_count = BERTH_COUNT_OF(buffers)};
    uint64_t offsets[BERTH_COUNT_OF(buffers)];
    const berth_certificate c = solve(&problem, "auto", 0, offsets);
    assert_int_equal(c.peak_bytes, 38);
    assert_true(c.proven_optimal);
}

/* ---- Every combination ---- */

static void test_no_claim_is_wrong(void **state)
{
    (void)state;
    for (unsigned combination = 0; combination < COMBINATIONS; combination++)
        for (uint64_t seed = 0; seed < 160 / SCALE; seed++) {
            const random_shape shape = shape_of(combination, seed % 8 == 0 ? 7 : 6);
            random_problem random;
            uint64_t offsets[RANDOM_BUFFERS];
            random_problem_make(&random, &shape, seed * 1009 + combination);
            const uint64_t optimum = brute_optimum(&random);
            random.problem.capacity_bytes = seed % 4 ? 0 : optimum - (optimum > 0) + seed % 3;
            for (size_t k = 0; berth_solver_name(k); k++) {
                const berth_certificate c = solve(&random.problem, berth_solver_name(k), 20000, offsets);
                assert_true(c.peak_bytes >= optimum);
                assert_true(c.lower_bound_bytes <= optimum);
                assert_true(!c.proven_optimal || c.peak_bytes == optimum);
                assert_true(c.fits != BERTH_FITS_NO || optimum > random.problem.capacity_bytes);
            }
        }
}

/* Too large for brute force, large enough for phases that small ones never reach. */
static void test_larger_ones_are_valid(void **state)
{
    (void)state;
    for (unsigned combination = 0; combination < COMBINATIONS; combination++)
        for (uint64_t seed = 0; seed < 160 / SCALE; seed++) {
            const random_shape shape = shape_of(combination, 8 + (uint32_t)(seed * 7 % 56));
            random_problem random;
            uint64_t offsets[RANDOM_BUFFERS];
            random_problem_make(&random, &shape, seed * 31 + combination);
            solve(&random.problem, "auto", seed % 2 ? 3000 : 30000, offsets);
        }
}

/* Tens of thousands, each for a few hundred steps: a loop that spends nothing never comes back. Where the
 * steps end before the first plan it is finished all the same, and a phase may finish what it is at. */
static void test_every_search_ends(void **state)
{
    (void)state;
    enum { MANY = 40000 / SCALE, SLACK = 2500 };
    for (uint64_t seed = 0; seed < MANY; seed++) {
        const random_shape shape = shape_of((unsigned)(seed % COMBINATIONS), 1 + (uint32_t)(seed / 32 % 12));
        const uint64_t steps = 1 + seed * 37 % 900;
        random_problem random;
        uint64_t offsets[RANDOM_BUFFERS];
        random_problem_make(&random, &shape, seed);
        if (seed % 5 == 0) /* below what can be: nothing to find, only something to refute */
            random.problem.capacity_bytes = 1 + seed % 60;
        assert_true(solve(&random.problem, "auto", steps, offsets).steps <= steps + SLACK);
    }
}

/* Pins raise the optimum far above the bound, which once moved up by one unit a turn while other forms of the problem used
 * the steps: of four buffers the bound stayed at 27 where the plan took 38. */
static void test_small_ones_with_pins_are_proven(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 160 / SCALE; seed++) {
        const random_shape shape = shape_of(PINS, 4 + (uint32_t)(seed % 13));
        random_problem random;
        uint64_t offsets[RANDOM_BUFFERS];
        random_problem_make(&random, &shape, seed * 57);
        assert_true(solve(&random.problem, "auto", 0, offsets).proven_optimal);
    }
}

/* ---- The proof itself ---- */

static void test_a_wrong_plan_is_an_internal_error(void **state)
{
    (void)state;
    const berth_problem_buffer buffers[] = {BUFFER(0, 2, 8, FREE, 0), BUFFER(1, 3, 8, FREE, 0)};
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 2};
    const uint64_t right[] = {0, 8}, wrong[] = {0, 4};
    berth_certificate c = {.struct_size = sizeof c, .peak_bytes = 16, .lower_bound_bytes = 16};
    assert_int_equal(berth__prove(&problem, right, &c), BERTH_OK);
    assert_int_equal(berth__prove(&problem, wrong, &c), BERTH_INTERNAL);
    assert_non_null(strstr(berth_last_error()->message, "overlap"));
    c.peak_bytes = 12;
    assert_int_equal(berth__prove(&problem, right, &c), BERTH_INTERNAL);
    c.peak_bytes = 16;
    c.lower_bound_bytes = 17;
    assert_int_equal(berth__prove(&problem, right, &c), BERTH_INTERNAL);
    assert_non_null(strstr(berth_last_error()->message, "16 bytes suffice and that 16 do not"));
}

int main(void)
{
    alarm(WATCHDOG_SECONDS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pinned_group_beside_a_pin),
        cmocka_unit_test(test_pins_in_each_others_gaps),
        cmocka_unit_test(test_few_buffers_cost_steps),
        cmocka_unit_test(test_no_claim_is_wrong),
        cmocka_unit_test(test_larger_ones_are_valid),
        cmocka_unit_test(test_every_search_ends),
        cmocka_unit_test(test_small_ones_with_pins_are_proven),
        cmocka_unit_test(test_a_wrong_plan_is_an_internal_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

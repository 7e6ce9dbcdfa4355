/* Plans of buffers so large that an offset and a number no longer fit into one word: what is sorted by packing elsewhere is
 * compared here, and the plans are as sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "berth/problem.h"

enum { COUNT = 120, PROBLEMS = 12 };

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Sizes up to 2^55: all together stay below 2^62. */
static void make_problem(uint64_t *seed, berth_problem_buffer *buffers)
{
    for (int i = 0; i < COUNT; i++) {
        int64_t lower = (int64_t)(draw(seed) % 40);
        buffers[i] = (berth_problem_buffer){
            .lower = lower,
            .upper = lower + 1 + (int64_t)(draw(seed) % 15),
            .size_bytes = ((uint64_t)1 << 54) + (draw(seed) << 20) + draw(seed) % 4096,
            .alignment = 1,
            .fixed_offset = BERTH_NO_OFFSET,
        };
    }
}

static void check_solver(const char *solver, uint64_t seed)
{
    berth_problem_buffer buffers[COUNT];
    uint64_t offsets[COUNT];
    for (int i = 0; i < PROBLEMS; i++) {
        make_problem(&seed, buffers);
        berth_problem problem = {
            .struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT, .alignment = 1};
        berth_solve_options options = {
            .struct_size = sizeof options, .solver = solver, .step_budget = 200000};
        berth_certificate certificate = {.struct_size = sizeof certificate};
        assert_int_equal(berth_solve(&problem, &options, offsets, &certificate), BERTH_OK);
        berth_verdict verdict = {.struct_size = sizeof verdict};
        assert_int_equal(berth_problem_check(&problem, offsets, &verdict), BERTH_OK);
        assert_true(verdict.peak_bytes == certificate.peak_bytes);
        assert_true(certificate.peak_bytes >= certificate.lower_bound_bytes);
        assert_true(certificate.lower_bound_bytes >= (uint64_t)1 << 56);
    }
}

static void test_every_solver_plans_the_largest(void **state)
{
    (void)state;
    check_solver(NULL, 1);
    size_t tried = 0;
    for (; berth_solver_name(tried); tried++)
        check_solver(berth_solver_name(tried), 2 + tried);
    assert_true(tried > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_solver_plans_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

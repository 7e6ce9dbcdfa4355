/* The lower bound: what is live at once, how high pins reach, and the holes that a common alignment leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "berth/problem.h"
#include "planner/problem/bound.h"
#include "planner/problem/prepared.h"

static berth_problem_buffer buffer(int64_t lower, int64_t upper, uint64_t size, uint64_t fixed,
                                   uint32_t alignment)
{
    return (berth_problem_buffer){
        .lower = lower, .upper = upper, .size_bytes = size, .fixed_offset = fixed, .alignment = alignment};
}

/* As it is before any search has proven more. */
static uint64_t bound_of(const berth_problem_buffer *buffers, size_t count)
{
    berth_problem problem = {
        .struct_size = sizeof problem, .buffers = buffers, .buffer_count = count, .alignment = 1};
    berth__prepared prepared = {0};
    uint64_t bound = 0;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    assert_int_equal(berth__bound(&prepared, &bound), BERTH_OK);
    bound *= prepared.unit_bytes;
    berth__prepared_finish(&prepared);
    return bound;
}

static void test_what_is_live_at_once(void **state)
{
    (void)state;
    const berth_problem_buffer b[] = {buffer(0, 2, 10, BERTH_NO_OFFSET, 1),
                                      buffer(1, 3, 20, BERTH_NO_OFFSET, 1),
                                      buffer(2, 4, 25, BERTH_NO_OFFSET, 1)};
    assert_int_equal(bound_of(b, 3), 45);
}

static void test_a_pin_is_reached(void **state)
{
    (void)state;
    const berth_problem_buffer b[] = {buffer(0, 2, 10, 1000, 1), buffer(1, 3, 20, BERTH_NO_OFFSET, 1)};
    assert_int_equal(bound_of(b, 2), 1010);
}

/* All but the highest take their size rounded up: 64 + 64 + 10. */
static void test_alignment_leaves_holes(void **state)
{
    (void)state;
    const berth_problem_buffer b[] = {buffer(0, 2, 10, BERTH_NO_OFFSET, 64),
                                      buffer(0, 2, 40, BERTH_NO_OFFSET, 64),
                                      buffer(0, 2, 50, BERTH_NO_OFFSET, 64)};
    assert_int_equal(bound_of(b, 3), 64 + 64 + 10);
}

/* 4 and 6 have no multiple that both must keep: 0 and 6 are good for both, and the bound may not say 13. */
static void test_mixed_alignments_promise_nothing(void **state)
{
    (void)state;
    const berth_problem_buffer b[] = {buffer(0, 2, 5, BERTH_NO_OFFSET, 4),
                                      buffer(0, 2, 5, BERTH_NO_OFFSET, 6)};
    assert_int_equal(bound_of(b, 2), 10);
}

/* A block that becomes free at the very bottom is the best fit for one of its size. */
static void test_best_fit_takes_the_lowest_of_a_size(void **state)
{
    (void)state;
    const berth_problem_buffer b[] = {buffer(0, 1, 10, BERTH_NO_OFFSET, 1),
                                      buffer(0, 3, 10, BERTH_NO_OFFSET, 1),
                                      buffer(1, 2, 10, BERTH_NO_OFFSET, 1)};
    uint64_t offsets[3];
    berth_problem problem = {.struct_size = sizeof problem, .buffers = b, .buffer_count = 3, .alignment = 1};
    berth_solve_options options = {.struct_size = sizeof options, .solver = "greedy"};
    berth_certificate certificate = {.struct_size = sizeof certificate};
    assert_int_equal(berth_solve(&problem, &options, offsets, &certificate), BERTH_OK);
    assert_int_equal(certificate.peak_bytes, 20);
    assert_int_equal(offsets[2], offsets[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_live_at_once),
        cmocka_unit_test(test_a_pin_is_reached),
        cmocka_unit_test(test_alignment_leaves_holes),
        cmocka_unit_test(test_mixed_alignments_promise_nothing),
        cmocka_unit_test(test_best_fit_takes_the_lowest_of_a_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* First and best fit: their orders, their gaps, and that their work is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_random.h"
#include "planner/place/fit.h"

#define FREE BERTH_NO_OFFSET
#define BUFFER(l, u, s)                                                     \
    {                                                                       \
        .lower = (l), .upper = (u), .size_bytes = (s), .fixed_offset = FREE \
    }

static berth_problem of(const berth_problem_buffer *buffers, size_t count)
{
    return (berth_problem){.struct_size = sizeof(berth_problem), .buffers = buffers, .buffer_count = count};
}

static uint64_t solve(const berth_problem *problem, const char *solver, uint64_t *offsets, uint64_t *steps)
{
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver};
    berth_certificate c = {.struct_size = sizeof c};
    assert_int_equal(berth_solve(problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(problem, offsets, NULL), BERTH_OK);
    if (steps)
        *steps = c.steps;
    return c.peak_bytes;
}

static void check_order(berth__fit_order order, const uint64_t *sizes_in_order, size_t count,
                        const berth_problem *problem)
{
    berth__prepared prepared;
    uint32_t list[16];
    assert_int_equal(berth__prepared_init(&prepared, problem), BERTH_OK);
    assert_int_equal(berth__fit_list(&prepared, order, list), BERTH_OK);
    assert_int_equal(prepared.item_count, count);
    for (size_t k = 0; k < count; k++)
        assert_int_equal(prepared.size[list[k]] * prepared.unit_bytes, sizes_in_order[k]);
    berth__prepared_finish(&prepared);
}

static void the_orders_are_what_they_say(void **state)
{
    (void)state;
    /* columns: [0,2) [2,4) [4,6); loads 9+1 = 10, 8+1 = 9, 5+7+1 = 13 */
    berth_problem_buffer rows[] = {BUFFER(0, 2, 9), BUFFER(2, 4, 8), BUFFER(4, 6, 5), BUFFER(4, 6, 7),
                                   BUFFER(0, 6, 1)};
    berth_problem problem = of(rows, 5);
    check_order(BERTH__FIT_BY_SIZE, (uint64_t[]){9, 8, 7, 5, 1}, 5, &problem);
    check_order(BERTH__FIT_BY_BREADTH, (uint64_t[]){7, 5, 1, 9, 8}, 5, &problem);
    rows[4].size_bytes = 4; /* three columns long: the largest area */
    check_order(BERTH__FIT_BY_AREA, (uint64_t[]){4, 9, 8, 7, 5}, 5, &problem);
}

static void first_fit_takes_the_lowest_gap_and_best_fit_the_tightest(void **state)
{
    (void)state;
    /* two pillars leave gaps of 30 (low) and 20 (between); the last one measures 20 */
    berth_problem_buffer rows[] = {
        {.lower = 0, .upper = 9, .size_bytes = 100, .fixed_offset = 30},
        {.lower = 0, .upper = 9, .size_bytes = 100, .fixed_offset = 150},
        BUFFER(0, 9, 20),
    };
    berth_problem problem = of(rows, 3);
    uint64_t offsets[3];
    solve(&problem, "first-fit-size", offsets, NULL);
    assert_int_equal(offsets[2], 0);
    solve(&problem, "best-fit-size", offsets, NULL);
    assert_int_equal(offsets[2], 130);
    rows[2].alignment = 40; /* 160 would be inside the second pillar */
    solve(&problem, "best-fit-size", offsets, NULL);
    assert_int_equal(offsets[2], 0);
}

/* What lies in a buffer's gap, or beside the small member of a group, is free for others. */
static void gaps_and_small_members_leave_room(void **state)
{
    (void)state;
    berth_gap gaps[] = {{3, 6}};
    berth_problem_buffer rows[] = {BUFFER(0, 9, 64), BUFFER(3, 6, 64)};
    rows[0].gap_count = 1;
    berth_problem problem = of(rows, 2);
    problem.gaps = gaps;
    problem.gap_count = 1;
    uint64_t offsets[4];
    for (size_t k = 0; berth_solver_name(k); k++)
        assert_int_equal(solve(&problem, berth_solver_name(k), offsets, NULL), 64);
    berth_problem_buffer group[] = {BUFFER(0, 3, 8), BUFFER(3, 6, 64), BUFFER(0, 3, 56)};
    group[0].alias_group = group[1].alias_group = 5;
    problem = of(group, 3);
    for (size_t k = 0; berth_solver_name(k); k++)
        assert_int_equal(solve(&problem, berth_solver_name(k), offsets, NULL), 64);
}

/* All pairs meet, so fitting one by one would be quadratic; the work stays within its limit, and the plan
 * valid. */
static void the_work_is_bounded(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    berth_problem_buffer *buffers = calloc(MANY, sizeof *buffers);
    uint64_t *offsets = calloc(MANY, sizeof *offsets);
    for (int i = 0; i < MANY; i++)
        buffers[i] = (berth_problem_buffer)BUFFER(i, i + MANY, 16 + 16 * (uint64_t)(i * 31 % 97));
    berth_problem problem = of(buffers, MANY);
    uint64_t steps;
    solve(&problem, "best-fit-area", offsets, &steps);
    assert_true(steps < (uint64_t)MANY * 200); /* all pairs would be MANY * MANY / 2 */
    free(buffers);
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_orders_are_what_they_say),
        cmocka_unit_test(first_fit_takes_the_lowest_gap_and_best_fit_the_tightest),
        cmocka_unit_test(gaps_and_small_members_leave_room),
        cmocka_unit_test(the_work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

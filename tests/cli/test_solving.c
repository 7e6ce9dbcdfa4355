/* Solving by the clock, with a clock that the test turns: a tick a look. */
#include "cli/solving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static long ticks, ticks_a_look = 1;

/* Stands before the one of libc. A tick is a second, so that nothing is rounded. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    ticks += ticks_a_look;
    t->tv_sec = ticks;
    t->tv_nsec = 0;
    return 0;
}

/* Buffers that no plan of a few steps is good for, so that only the clock ends the search. */
static berth_problem_file *many_rows(char **text)
{
    enum { rows = 400, row_bytes = 64 };
    *text = malloc((rows + 1) * row_bytes);
    assert_non_null(*text);
    size_t used = (size_t)sprintf(*text, "id,lower,upper,size\n");
    uint64_t random = 1;
    for (unsigned i = 0; i < rows; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const unsigned lower = (unsigned)(random >> 40) % 300, life = 1 + (unsigned)(random >> 50) % 60;
        used += (size_t)sprintf(*text + used, "%u,%u,%u,%u\n", i, lower, lower + life,
                                1 + (unsigned)(random >> 34) % 977);
    }
    berth_problem_file *file;
    assert_int_equal(berth_problem_file_parse(*text, used, &file), BERTH_OK);
    return file;
}

static void solve_within(double budget_seconds, cli_solving *s)
{
    char *text;
    berth_problem_file *file = many_rows(&text);
    const berth_problem *problem = berth_problem_file_problem(file);
    uint64_t *offsets = calloc(problem->buffer_count, sizeof *offsets);
    assert_non_null(offsets);
    *s = (cli_solving){.options = {.effort = BERTH_EFFORT_MAX}, .budget_seconds = budget_seconds};
    assert_int_equal(cli_solve(s, file, problem, offsets), BERTH_OK);
    free(offsets);
    berth_problem_file_destroy(file);
    free(text);
}

/* Preparing takes a tick, and so does what comes after the search: it is over when the budget is. */
static void test_the_proof_is_within_the_budget(void **state)
{
    (void)state;
    for (int budget = 3; budget < 20; budget++) {
        cli_solving s;
        solve_within(budget, &s);
        assert_int_equal(s.certificate.stopped_by, BERTH_STOP_CLOCK);
        assert_int_equal((int)s.seconds, budget);
    }
}

/* However short it is, there is a plan. */
static void test_no_time_at_all(void **state)
{
    (void)state;
    cli_solving s;
    solve_within(1e-9, &s);
    assert_int_equal(s.certificate.stopped_by, BERTH_STOP_CLOCK);
    assert_true(s.certificate.peak_bytes >= s.certificate.lower_bound_bytes);
}

static void test_no_budget_is_no_clock(void **state)
{
    (void)state;
    char *text = (char *)(uintptr_t) "id,lower,upper,size\na,0,3,10\nb,1,2,20\n";
    berth_problem_file *file;
    assert_int_equal(berth_problem_file_parse(text, strlen(text), &file), BERTH_OK);
    uint64_t offsets[2];
    cli_solving s = {.budget_seconds = 0};
    ticks_a_look = 100000;
    assert_int_equal(cli_solve(&s, file, berth_problem_file_problem(file), offsets), BERTH_OK);
    ticks_a_look = 1;
    assert_int_equal(s.certificate.stopped_by, BERTH_STOP_OPTIMAL);
    berth_problem_file_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_proof_is_within_the_budget),
                                       cmocka_unit_test(test_no_time_at_all),
                                       cmocka_unit_test(test_no_budget_is_no_clock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

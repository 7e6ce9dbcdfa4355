/* Windows alone: what is cut out is the problem of that time, a bound that a window proves is true, and a
 * plan that windows improve is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brute.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "planner/improve/window.h"
#include "planner/place/valley.h"
#include "planner/problem/bound.h"

static const random_shape tiny[] = {
    {.buffers = 7, .times = 8, .sizes = 6, .unit = 1, .full = 11},
    {.buffers = 7, .times = 6, .sizes = 6, .unit = 1, .alignments = 4},
    {.buffers = 7, .times = 6, .sizes = 6, .unit = 1, .pinned_percent = 30},
};
enum { PINNED = 2 };

static const random_shape middling[] = {
    {.buffers = 60, .times = 40, .sizes = 30, .unit = 1},
    {.buffers = 60, .times = 40, .sizes = 30, .unit = 8, .alignments = 4},
    {.buffers = 60, .times = 40, .sizes = 30, .unit = 1, .pinned_percent = 10},
};

/* A window holds what lives in it, with the same load in every column, in canonical order. */
static void test_a_window_is_the_problem_of_its_time(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        random_problem random;
        random_problem_make(&random, &middling[seed % BERTH_COUNT_OF(middling)], seed);
        berth__prepared p;
        berth__overlap overlap;
        berth__window window;
        uint64_t dice = seed, load[RANDOM_BUFFERS + 1], cut[RANDOM_BUFFERS + 1];
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        assert_int_equal(berth__overlap_init(&overlap, &p), BERTH_OK);
        const uint32_t lower = random_below(&dice, p.column_count),
                       upper = lower + 1 + random_below(&dice, p.column_count - lower);
        assert_int_equal(berth__window_cut(&window, &overlap, lower, upper, NULL), BERTH_OK);
        const berth__prepared *w = &window.prepared;
        berth__bound_loads(&p, load);
        berth__bound_loads(w, cut);
        assert_int_equal(w->column_count, upper - lower);
        for (uint32_t c = lower; c < upper; c++) {
            assert_int_equal(cut[c - lower], load[c]);
            assert_true(load[c] <= w->max_live);
        }
        for (uint32_t k = 0; k < w->item_count; k++) {
            assert_int_equal(w->size[k], p.size[window.item[k]]);
            assert_int_equal(berth__item_fixed(w, k), berth__item_fixed(&p, window.item[k]));
            if (k)
                assert_true(w->lower[k - 1] < w->lower[k] ||
                            (w->lower[k - 1] == w->lower[k] && w->upper[k - 1] <= w->upper[k]));
        }
        berth__window_finish(&window);
        berth__overlap_finish(&overlap);
        berth__prepared_finish(&p);
    }
}

/* Windows of four items and of all seven against trying everything. */
static void test_no_bound_is_too_high(void **state)
{
    (void)state;
    unsigned raised = 0, reached = 0;
    for (uint64_t seed = 0; seed < 900; seed++) {
        random_problem random;
        random_problem_make(&random, &tiny[seed % BERTH_COUNT_OF(tiny)], seed);
        berth__prepared p;
        uint64_t offsets[RANDOM_BUFFERS], best[RANDOM_BUFFERS], peak;
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        berth__search search = search_of(&p);
        search.best = best;
        assert_int_equal(berth__valley_run(&search, 0, UINT64_MAX, offsets, &peak), BERTH_OK);
        if (p.item_count && !berth__search_offer(&search, offsets, "valley")) {
            const uint64_t optimum = brute_optimum(&random);
            assert_int_equal(berth__window_bound(&search, 4 + (uint32_t)seed % 4, 20000), BERTH_OK);
            assert_true(search.lower_bound * p.unit_bytes <= optimum);
            raised += search.lower_bound > p.max_live;
            reached += search.lower_bound * p.unit_bytes == optimum && optimum > p.max_live * p.unit_bytes;
        }
        berth__prepared_finish(&p);
    }
    assert_true(raised > 20 && reached > 20);
}

static void test_improved_plans_are_plans(void **state)
{
    (void)state;
    unsigned improved = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        random_problem random;
        random_problem_make(&random, &middling[seed % BERTH_COUNT_OF(middling)], seed);
        berth__prepared p;
        uint64_t offsets[RANDOM_BUFFERS], best[RANDOM_BUFFERS], bytes[RANDOM_BUFFERS], peak;
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        berth__search search = search_of(&p);
        search.best = best;
        assert_int_equal(berth__valley_run(&search, 1, UINT64_MAX, offsets, &peak), BERTH_OK);
        berth__search_offer(&search, offsets, "valley");
        assert_int_equal(berth__window_improve(&search, 40, 20000), BERTH_OK);
        assert_true(search.best_peak <= peak);
        improved += search.best_peak < peak;
        assert_int_equal(search.best_peak, berth__prepared_peak(&p, best));
        berth__prepared_expand(&p, best, bytes);
        assert_int_equal(berth_problem_check(&random.problem, bytes, NULL), BERTH_OK);
        berth__prepared_finish(&p);
    }
    assert_true(improved > 20);
}

/* A hard knot of seven, some of them pinned, in a long quiet problem: nothing that is had by looking tells
 * its optimum, and a window around the knot proves it, though the whole is too large to be searched. */
static void test_a_knot_in_a_large_problem(void **state)
{
    (void)state;
    enum { QUIET = 3000 };
    unsigned proven = 0;
    for (uint64_t seed = 0; seed < 400 && proven < 5; seed++) {
        random_problem knot;
        random_problem_make(&knot, &tiny[PINNED], seed);
        berth__prepared p;
        uint64_t bound = 0;
        assert_int_equal(berth__prepared_init(&p, &knot.problem), BERTH_OK);
        assert_int_equal(berth__bound(&p, &bound), BERTH_OK);
        bound *= p.unit_bytes;
        berth__prepared_finish(&p);
        const uint64_t optimum = brute_optimum(&knot);
        if (optimum == bound)
            continue;
        const size_t count = knot.problem.buffer_count + QUIET;
        berth_problem_buffer *buffers = calloc(count, sizeof *buffers);
        memcpy(buffers, knot.buffers, knot.problem.buffer_count * sizeof *buffers);
        for (size_t i = 0; i < QUIET; i++)
            family_buffer(&buffers[knot.problem.buffer_count + i], 100 + i, 3, 1);
        berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = count};
        uint64_t *offsets = malloc(count * sizeof *offsets);
        berth_certificate c = {.struct_size = sizeof c};
        berth_solve_options options = {.struct_size = sizeof options, .effort = BERTH_EFFORT_FAST};
        assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
        assert_int_equal(berth_problem_check(&problem, offsets, NULL), BERTH_OK);
        assert_true(c.proven_optimal);
        assert_int_equal(c.peak_bytes, optimum);
        proven++;
        free(offsets);
        free(buffers);
    }
    assert_int_equal(proven, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_is_the_problem_of_its_time),
        cmocka_unit_test(test_no_bound_is_too_high),
        cmocka_unit_test(test_improved_plans_are_plans),
        cmocka_unit_test(test_a_knot_in_a_large_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

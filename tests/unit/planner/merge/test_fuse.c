/* Fusing alone: the fused problem is a problem, its plans are plans of the whole, and what was cut is put
 * together again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/merge/fuse.h"
#include "planner/place/valley.h"
#include "planner/problem/bound.h"

/* In canonical order, no column too many, and as full as the whole problem at its fullest. */
static void expect_prepared(const berth__prepared *small, const berth__prepared *p)
{
    assert_true(small->item_count <= p->item_count && small->column_count <= p->column_count);
    uint64_t *load = malloc((size_t)small->column_count * sizeof *load), most = 0;
    berth__bound_loads(small, load);
    for (uint32_t c = 0; c < small->column_count; c++)
        most = load[c] > most ? load[c] : most;
    assert_int_equal(most, p->max_live);
    assert_int_equal(small->max_live, p->max_live);
    assert_int_equal(load[small->max_live_column], most);
    for (uint32_t i = 0; i < small->item_count; i++) {
        assert_true(small->lower[i] < small->upper[i] && small->upper[i] <= small->column_count);
        if (i)
            assert_true(small->lower[i - 1] < small->lower[i] ||
                        (small->lower[i - 1] == small->lower[i] && small->upper[i - 1] <= small->upper[i]));
    }
    free(load);
}

/* Fuses, plans the fused problem by one skyline, and has the checker prove the plan of the whole. */
static uint32_t fuse_and_check(const berth_problem *problem, uint64_t step_budget, uint64_t *peak)
{
    berth__prepared p;
    berth__fused fused;
    assert_int_equal(berth__prepared_init(&p, problem), BERTH_OK);
    berth__search search = search_of(&p);
    search.step_budget = step_budget;
    assert_int_equal(berth__fuse_init(&fused, &search), BERTH_OK);
    expect_prepared(&fused.prepared, &p);
    const uint32_t count = fused.prepared.item_count;
    uint64_t *few = malloc(count * sizeof *few), *all = malloc(p.item_count * sizeof *all);
    uint64_t *bytes = malloc(problem->buffer_count * sizeof *bytes);
    berth__search small = search_of(&fused.prepared);
    assert_int_equal(berth__valley_run(&small, 0, UINT64_MAX, few, peak), BERTH_OK);
    for (int twice = 0; twice < 2; twice++) { /* the first shortens the ways for the second */
        berth__fuse_expand(&fused, p.item_count, few, all);
        assert_int_equal(berth__prepared_peak(&p, all), *peak);
        berth__prepared_expand(&p, all, bytes);
        assert_int_equal(berth_problem_check(problem, bytes, NULL), BERTH_OK);
    }
    *peak *= p.unit_bytes;
    free(bytes);
    free(all);
    free(few);
    berth__fuse_finish(&fused);
    berth__prepared_finish(&p);
    return count;
}

static void test_random_problems(void **state)
{
    (void)state;
    unsigned fused = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        random_shape shape = {.buffers = 60, .times = 4 + (uint32_t)seed % 20, .sizes = 3, .unit = 64};
        random_problem random;
        uint64_t peak;
        random_problem_make(&random, &shape, seed);
        berth__prepared p;
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        const uint32_t before = p.item_count;
        berth__prepared_finish(&p);
        if (before)
            fused += before > fuse_and_check(&random.problem, UINT64_MAX, &peak);
    }
    assert_true(fused > 300);
}

/* Whatever was cut again and again, with many cuts at the same moment too. */
static void test_tilings_are_put_together(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 50, 1000, 40000};
    assert_string_equal(families[3].name, "tiling");
    for (size_t k = 0; k < BERTH_COUNT_OF(counts); k++)
        for (uint64_t seed = 1; seed < 4; seed++) {
            berth_problem problem;
            uint64_t peak, optimum = family_make(&families[3], counts[k], seed, &problem);
            uint32_t left = fuse_and_check(&problem, UINT64_MAX, &peak);
            if (counts[k] <= 1000) {
                assert_int_equal(left, 1);
                assert_int_equal(peak, optimum);
            }
            assert_true(left <= counts[k] / 1000 + 1);
            family_free(&problem);
        }
}

/* Of many items the first ones tell whether fusing is of use: what was cut is put together, and what joins by chance is left
 * alone after them. */
static void test_many_that_join_by_chance_are_left(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        const bool is_cut =
            strcmp(families[f].name, "tiling") == 0 || strcmp(families[f].name, "mosaic") == 0;
        if (!is_cut && strcmp(families[f].name, "mixed") != 0 && strcmp(families[f].name, "inference") != 0)
            continue;
        berth_problem problem;
        berth__prepared p;
        berth__fused fused;
        family_make(&families[f], 100000, 1, &problem);
        assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
        berth__search search = search_of(&p);
        assert_int_equal(berth__fuse_init(&fused, &search), BERTH_OK);
        assert_true(is_cut ? fused.prepared.item_count > 0 && fused.prepared.item_count < p.item_count / 2
                           : fused.prepared.item_count == 0);
        assert_true(is_cut || search.steps < p.item_count);
        berth__fuse_finish(&fused);
        berth__prepared_finish(&p);
        family_free(&problem);
    }
}

/* Where coarse cuts make many join that should not, or the search is stopped on the way, it is still sound.
 */
static void test_mistakes_and_stops_are_sound(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++)
        for (uint64_t seed = 1; seed < 4; seed++) {
            berth_problem problem;
            uint64_t peak;
            family_make(&families[f], 3000, seed, &problem);
            fuse_and_check(&problem, UINT64_MAX, &peak);
            fuse_and_check(&problem, 1700, &peak);
            family_free(&problem);
        }
}

/* No list of equal keys is walked: all sizes equal, all starting at once. */
static void test_equal_keys_are_not_walked(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    berth_problem_buffer *buffers = malloc(COUNT * sizeof *buffers);
    for (size_t i = 0; i < COUNT; i++)
        family_buffer(&buffers[i], 0, 1 + i, 64);
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT};
    uint64_t peak;
    fuse_and_check(&problem, UINT64_MAX, &peak);
    assert_int_equal(peak, 64 * (uint64_t)COUNT);
    free(buffers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems),
        cmocka_unit_test(test_tilings_are_put_together),
        cmocka_unit_test(test_many_that_join_by_chance_are_left),
        cmocka_unit_test(test_mistakes_and_stops_are_sound),
        cmocka_unit_test(test_equal_keys_are_not_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

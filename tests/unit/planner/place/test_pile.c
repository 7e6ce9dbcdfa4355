/* Piles: who is in one and in which order, when one suits, and what it is for. */
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
#include "planner/place/pile.h"
#include "planner/place/valley.h"

enum { MOST = 32 };

/* Buffers of (lower, upper, size), prepared; returns how many are listed first. */
static uint32_t pile_of(const int64_t (*rows)[3], size_t count, uint32_t groups, bool is_mirrored,
                        berth__prepared *p, uint32_t *list)
{
    berth_problem_buffer buffers[MOST];
    for (size_t i = 0; i < count; i++)
        family_buffer(&buffers[i], (uint64_t)rows[i][0], (uint64_t)(rows[i][1] - rows[i][0]),
                      (uint64_t)rows[i][2]);
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = count};
    assert_int_equal(berth__prepared_init(p, &problem), BERTH_OK);
    for (uint32_t i = 0; i < p->item_count; i++)
        list[i] = p->item_count - 1 - i;
    uint32_t piled = 0;
    assert_int_equal(berth__pile_first(p, groups, is_mirrored, list, &piled), BERTH_OK);
    return piled;
}

/* The first six, of size 4, live at 10. The others, of size 1, only keep moments apart. */
static const int64_t around_ten[][3] = {{0, 30, 4},  {2, 12, 4},  {4, 50, 4},  {6, 14, 4},  {8, 40, 4},
                                        {10, 20, 4}, {0, 1, 1},   {2, 3, 1},   {4, 5, 1},   {6, 7, 1},
                                        {8, 9, 1},   {13, 14, 1}, {15, 16, 1}, {21, 22, 1}, {31, 32, 1},
                                        {41, 42, 1}, {51, 60, 1}};
enum { AROUND = sizeof around_ten / sizeof *around_ten, AT_TEN = 6 };

static void test_the_fullest_moment_is_first(void **state)
{
    (void)state;
    for (uint32_t groups = 1; groups < 8; groups++) {
        berth__prepared p;
        uint32_t list[MOST], seen[MOST] = {0};
        assert_int_equal(pile_of(around_ten, AROUND, groups, groups % 2, &p, list), AT_TEN);
        for (uint32_t k = 0; k < AROUND; k++) {
            assert_int_equal(seen[list[k]]++, 0);
            assert_int_equal(p.size[list[k]] > 1, k < AT_TEN);
            assert_true(k <= AT_TEN || list[k] < list[k - 1]); /* as they were */
        }
        berth__prepared_finish(&p);
    }
}

static void test_one_group_is_a_stair(void **state)
{
    (void)state;
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        berth__prepared p;
        uint32_t list[MOST];
        const uint32_t piled = pile_of(around_ten, AROUND, 1, mirrored, &p, list);
        for (uint32_t k = 1; k < piled; k++)
            assert_true(mirrored ? p.lower[list[k - 1]] < p.lower[list[k]]
                                 : p.upper[list[k - 1]] > p.upper[list[k]]);
        berth__prepared_finish(&p);
    }
}

/* Six of one size in three groups are three pairs by start; in each the first to end is above, in the second below. */
static void test_groups_turn_over(void **state)
{
    (void)state;
    berth__prepared p;
    uint32_t list[MOST];
    assert_int_equal(pile_of(around_ten, AROUND, 3, false, &p, list), AT_TEN);
    for (uint32_t k = 0; k < AT_TEN; k += 2) {
        const uint32_t a = list[k], b = list[k + 1];
        assert_int_equal(p.upper[a] > p.upper[b], k != 2);
        for (uint32_t later = k + 2; later < AT_TEN; later++)
            assert_true(p.lower[a] < p.lower[list[later]] && p.lower[b] < p.lower[list[later]]);
    }
    berth__prepared_finish(&p);
}

static bool suits(const int64_t (*rows)[3], size_t count)
{
    berth__prepared p;
    uint32_t list[MOST];
    bool answer = false;
    pile_of(rows, count, 1, false, &p, list);
    assert_int_equal(berth__pile_suits(&p, &answer), BERTH_OK);
    berth__prepared_finish(&p);
    return answer;
}

static void test_it_suits_where_one_moment_decides(void **state)
{
    (void)state;
    static const int64_t one[][3] = {{0, 9, 50}, {4, 5, 50}, {6, 7, 20}};
    static const int64_t shared[][3] = {{0, 9, 50}, {4, 5, 50}, {6, 7, 50}};
    static const int64_t two[][3] = {{0, 5, 50}, {4, 5, 50}, {6, 7, 99}};
    static const int64_t two_of_which_one_is_low[][3] = {{0, 5, 50}, {4, 5, 50}, {6, 7, 90}};
    assert_true(suits(one, 3));
    assert_true(suits(shared, 3));
    assert_false(suits(two, 3));
    assert_true(suits(two_of_which_one_is_low, 3));
    assert_true(suits(around_ten, AROUND));
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    random_problem random;
    berth__prepared p;
    random_problem_make(&random, &phase_shapes[5], 3);
    assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
    const uint64_t live = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    uint64_t *best = malloc(p.item_count * sizeof *best);
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
        berth__search search = search_of(&p);
        search.best = best;
        berth__heap_fail_at(n, false);
        status = berth__piles(&search, 100000);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
        assert_true(n < 100000);
    }
    assert_int_equal(status, BERTH_OK);
    free(best);
    berth__prepared_finish(&p);
}

/* A graph whose bound is one moment at which huge buffers meet: a pile is at the bound, no other frame is within a thirtieth of it. */
static void test_one_full_moment_reaches_the_bound(void **state)
{
    (void)state;
    berth_problem problem;
    berth__prepared p;
    family_make(&programs[1], 20000, 27, &problem);
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *offsets = malloc(p.item_count * sizeof *offsets), peak, least = UINT64_MAX, framed = UINT64_MAX;
    for (unsigned variant = 0; variant < BERTH__FRAME_VARIANTS; variant++) {
        berth__search search = search_of(&p);
        assert_int_equal(berth__frame_run(&search, variant, p.max_live, UINT64_MAX, offsets, &peak),
                         BERTH_OK);
        uint64_t *of = variant < BERTH__FRAME_PILES ? &framed : &least;
        *of = peak < *of ? peak : *of;
    }
    assert_int_equal(least, p.max_live);
    assert_true(framed > p.max_live + p.max_live / 30);
    free(offsets);
    berth__prepared_finish(&p);
    family_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fullest_moment_is_first),
        cmocka_unit_test(test_one_group_is_a_stair),
        cmocka_unit_test(test_groups_turn_over),
        cmocka_unit_test(test_it_suits_where_one_moment_decides),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_one_full_moment_reaches_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

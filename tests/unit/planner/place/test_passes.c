/* Phase B alone: the tree of heights, the gaps of a stretch of time, and passes in every order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/place/gaps.h"
#include "planner/place/heights.h"
#include "planner/place/passes.h"
#include "planner/place/valley.h"
#include "scale.h"

static void heights_of(uint32_t columns)
{
    enum { MOST_COLUMNS = 600 };
    uint64_t random = 3, height[MOST_COLUMNS] = {0};
    berth__heights heights;
    assert_true(columns <= MOST_COLUMNS && berth__heights_init(&heights, columns));
    for (int round = 0; round < 4000; round++) {
        if (round == 2000) {
            memset(height, 0, sizeof height);
            berth__heights_clear(&heights);
        }
        uint32_t from = random_below(&random, columns), to = from + 1 + random_below(&random, columns - from);
        uint64_t most = 0, to_height = random_below(&random, 100 + (uint32_t)round);
        for (uint32_t c = from; c < to; c++)
            most = height[c] > most ? height[c] : most;
        assert_int_equal(berth__heights_most(&heights, from, to), most);
        to = round % 3 ? to : from + 1;
        for (uint32_t c = from; c < to; c++)
            height[c] = height[c] > to_height ? height[c] : to_height;
        berth__heights_raise(&heights, from, to, to_height);
    }
    berth__heights_finish(&heights);
}

/* Around the size of a block, and of a level of the tree. */
static void test_heights(void **state)
{
    (void)state;
    static const uint32_t columns[] = {1, 7, 8, 9, 16, 63, 64, 65, 77, 513, 600};
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
        heights_of(columns[k]);
}

/* Whether `item` as its hull is free of all other placed pieces at `at`. */
static bool is_free(const berth__prepared *p, const uint64_t *offsets, uint32_t item, uint64_t at)
{
    if (at % berth__item_alignment(p, item))
        return false;
    for (uint32_t j = 0; j < p->item_count; j++)
        for (uint32_t k = berth__piece_begin(p, j); k < berth__piece_end(p, j); k++)
            if (offsets[j] != BERTH_NO_OFFSET && p->lower[item] < p->piece_upper[k] &&
                p->piece_lower[k] < p->upper[item] && at < offsets[j] + p->piece_size[k] &&
                offsets[j] < at + p->size[item])
                return false;
    return true;
}

/* Takes some items out of a plan and puts them back into gaps: one is found where trying finds one. */
static void test_gaps_against_trying(void **state)
{
    (void)state;
    unsigned found = 0;
    for (uint64_t seed = 0; seed < 240; seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        berth__prepared p;
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        berth__search search = search_of(&p);
        berth__overlap overlap;
        berth__gaps gaps;
        uint64_t offsets[RANDOM_BUFFERS], peak, dice = seed;
        assert_int_equal(berth__valley_run(&search, 0, UINT64_MAX, offsets, &peak), BERTH_OK);
        for (uint32_t i = 0; i < p.item_count; i++)
            if (berth__item_fixed(&p, i) == BERTH_NO_OFFSET && random_below(&dice, 3) == 0)
                offsets[i] = BERTH_NO_OFFSET;
        assert_int_equal(berth__overlap_init(&overlap, &p), BERTH_OK);
        berth__gaps_init(&gaps, &overlap);
        const uint32_t lower = random_below(&dice, p.column_count / 3 + 1),
                       upper = p.column_count - random_below(&dice, p.column_count / 3 + 1);
        const uint64_t capacity = 1 + random_below(&dice, (uint32_t)peak + 3);
        assert_int_equal(berth__gaps_open(&gaps, offsets, lower, upper), BERTH_OK);
        for (uint32_t i = 0; i < p.item_count; i++) {
            if (offsets[i] != BERTH_NO_OFFSET || p.lower[i] < lower || p.upper[i] > upper)
                continue;
            bool any = false;
            for (uint64_t at = 0; at + p.size[i] <= capacity && !any; at++)
                any = is_free(&p, offsets, i, at);
            const uint64_t offset = berth__gaps_find(&gaps, i, capacity);
            assert_int_equal(offset != BERTH_NO_OFFSET, any);
            if (!any)
                continue;
            found++;
            assert_true(offset + p.size[i] <= capacity && is_free(&p, offsets, i, offset));
            assert_int_equal(berth__gaps_take(&gaps, i, offset), BERTH_OK);
            offsets[i] = offset;
        }
        berth__gaps_finish(&gaps);
        berth__overlap_finish(&overlap);
        berth__prepared_finish(&p);
    }
    assert_true(found > 300);
}

static void test_every_pass_is_a_plan(void **state)
{
    (void)state;
    unsigned fitting = 0;
    for (uint64_t seed = 0; seed < 240; seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        berth__prepared prepared;
        assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
        for (unsigned order = 0; order < BERTH__PASS_ORDERS; order++) {
            berth__search search = search_of(&prepared);
            uint64_t offsets[RANDOM_BUFFERS], peak, capacity = prepared.max_live + seed % 7;
            assert_int_equal(
                berth__pass_run(&search, (berth__pass_order)order, capacity, UINT64_MAX, offsets, &peak),
                BERTH_OK);
            assert_int_equal(peak, prepared.item_count ? berth__prepared_peak(&prepared, offsets) : 0);
            expect_valid(&random.problem, &prepared, offsets);
            fitting += peak <= capacity;
            search.stopped = true;
            if (prepared.item_count) {
                assert_int_equal(
                    berth__pass_run(&search, (berth__pass_order)order, capacity, 1000, offsets, &peak),
                    BERTH_OK);
                assert_int_equal(peak, UINT64_MAX);
            }
        }
        berth__prepared_finish(&prepared);
    }
    assert_true(fitting > 200);
}

/* Lives of very different lengths, where a skyline builds over what it needs. What nearly fills the arena at
 * some moment goes first, and all but a crumb of it fits. */
static void test_long_and_short_lives_together(void **state)
{
    (void)state;
    enum { COUNT = 30000 };
    uint64_t *offsets = malloc(COUNT * sizeof *offsets), peak;
    assert_string_equal(families[2].name, "mixed");
    for (uint64_t seed = SCALE == 1 ? 4 : 6; seed < 8; seed++)
        for (unsigned order = 0; order < BERTH__PASS_ORDERS; order++) {
            berth_problem problem;
            berth__prepared p;
            family_make(&families[2], COUNT, seed, &problem);
            assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
            berth__search search = search_of(&p);
            assert_int_equal(
                berth__pass_run(&search, (berth__pass_order)order, p.max_live, UINT64_MAX, offsets, &peak),
                BERTH_OK);
            expect_valid(&problem, &p, offsets);
            if (order == BERTH__PASS_CONTENTION)
                assert_true(peak <= p.max_live + p.max_live / 10000);
            else
                assert_true((double)peak <= 1.03 * (double)p.max_live);
            assert_true(search.steps < 20 * (uint64_t)COUNT);
            berth__prepared_finish(&p);
            family_free(&problem);
        }
    free(offsets);
}

/* Where gaps are without end the pass gives up near its limit, and nothing is written past it. */
static void test_a_pass_keeps_to_its_steps(void **state)
{
    (void)state;
    enum { COUNT = 20000 / SCALE };
    berth_problem problem;
    berth__prepared p;
    uint64_t *offsets = malloc(COUNT * sizeof *offsets), peak;
    for (size_t f = 0; f < FAMILIES; f++)
        for (unsigned order = 0; order < BERTH__PASS_ORDERS; order++) {
            family_make(&families[f], COUNT, 1, &problem);
            assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
            berth__search search = search_of(&p);
            assert_int_equal(
                berth__pass_run(&search, (berth__pass_order)order, p.max_live, COUNT, offsets, &peak),
                BERTH_OK);
            if (peak == UINT64_MAX) /* one window more at most */
                assert_true(search.steps <= COUNT + COUNT / 4);
            else
                expect_valid(&problem, &p, offsets);
            berth__prepared_finish(&p);
            family_free(&problem);
        }
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heights),
        cmocka_unit_test(test_gaps_against_trying),
        cmocka_unit_test(test_every_pass_is_a_plan),
        cmocka_unit_test(test_long_and_short_lives_together),
        cmocka_unit_test(test_a_pass_keeps_to_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

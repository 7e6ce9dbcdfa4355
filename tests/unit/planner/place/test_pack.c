/* Packing below a lid, and the tree of what is taken that it asks: against a look at every item. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/place/gaptree.h"
#include "planner/place/pack.h"
#include "planner/problem/overlap.h"
#include "scale.h"

/* Whether any pair of pieces that meet would overlap. */
static bool is_free(const berth__prepared *p, const uint64_t *offsets, uint32_t item, uint64_t offset)
{
    for (uint32_t other = 0; other < p->item_count; other++)
        for (uint32_t a = berth__piece_begin(p, item); a < berth__piece_end(p, item); a++)
            for (uint32_t b = berth__piece_begin(p, other); b < berth__piece_end(p, other); b++)
                if (other != item && offsets[other] != BERTH_NO_OFFSET &&
                    p->piece_lower[a] < p->piece_upper[b] && p->piece_lower[b] < p->piece_upper[a] &&
                    offset < offsets[other] + p->piece_size[b] && offsets[other] < offset + p->piece_size[a])
                    return false;
    return true;
}

static uint64_t lowest_by_looking(const berth__prepared *p, const uint64_t *offsets, uint32_t item,
                                  uint64_t capacity)
{
    for (uint64_t at = 0; at + p->size[item] <= capacity; at += berth__item_alignment(p, item))
        if (is_free(p, offsets, item, at))
            return at;
    return BERTH_NO_OFFSET;
}

static void test_the_tree_against_looking(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 240 / SCALE; seed++) {
        random_problem random;
        berth__prepared p;
        berth__gaptree tree;
        uint64_t offsets[RANDOM_BUFFERS], low, tight;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        memset(offsets, 0xff, sizeof offsets);
        assert_true(p.item_count == 0 || berth__gaptree_init(&tree, &p));
        for (uint32_t i = 0; i < p.item_count; i++) {
            const uint32_t item = (uint32_t)((i * 37 + seed) % p.item_count);
            if (offsets[item] != BERTH_NO_OFFSET)
                continue;
            const uint64_t capacity = p.max_live + seed % 7;
            assert_true(berth__gaptree_find(&tree, item, capacity, false, &low));
            assert_int_equal(low, lowest_by_looking(&p, offsets, item, capacity));
            assert_true(berth__gaptree_find(&tree, item, capacity, true, &tight));
            assert_int_equal(low == BERTH_NO_OFFSET, tight == BERTH_NO_OFFSET);
            if (tight == BERTH_NO_OFFSET)
                continue;
            assert_true(is_free(&p, offsets, item, tight) && tight + p.size[item] <= capacity);
            offsets[item] = seed % 2 ? low : tight;
            assert_true(berth__gaptree_take(&tree, item, offsets[item]));
        }
        if (p.item_count)
            berth__gaptree_finish(&tree);
        berth__prepared_finish(&p);
    }
}

static void test_every_plan_is_valid(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 240 / SCALE; seed++)
        for (unsigned order = 0; order < BERTH__PACK_ORDERS; order++) {
            random_problem random;
            berth__prepared p;
            uint64_t offsets[RANDOM_BUFFERS], peak;
            random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
            assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
            berth__search search = search_of(&p);
            if (p.item_count) {
                assert_int_equal(berth__pack_run(&search, (berth__pack_order)order, p.max_live, UINT64_MAX,
                                                 offsets, &peak),
                                 BERTH_OK);
                assert_int_equal(peak, berth__prepared_peak(&p, offsets));
                expect_valid(&random.problem, &p, offsets);
            }
            berth__prepared_finish(&p);
        }
}

static void test_steps_end_it(void **state)
{
    (void)state;
    berth_problem problem;
    berth__prepared p;
    family_make(&families[5], 2000, 1, &problem);
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    uint64_t *offsets = malloc(p.item_count * sizeof *offsets), peak;
    berth__search search = search_of(&p);
    assert_int_equal(berth__pack_run(&search, BERTH__PACK_SIZE, p.max_live, 1000, offsets, &peak), BERTH_OK);
    assert_true(peak == UINT64_MAX && search.steps < 3000);
    free(offsets);
    berth__prepared_finish(&p);
    family_free(&problem);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    random_problem random;
    berth__prepared p;
    uint64_t offsets[RANDOM_BUFFERS], peak;
    random_problem_make(&random, &phase_shapes[5], 3);
    assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
    const uint64_t live = berth__heap_live();
    for (unsigned order = 0; order < BERTH__PACK_ORDERS; order++) {
        berth_status status = BERTH_OUT_OF_HOST_MEMORY;
        for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
            berth__search search = search_of(&p);
            berth__heap_fail_at(n, false);
            status =
                berth__pack_run(&search, (berth__pack_order)order, p.max_live, UINT64_MAX, offsets, &peak);
            berth__heap_fail_at(0, false);
            assert_int_equal(berth__heap_live(), live);
            assert_true(n < 2000);
        }
        assert_int_equal(status, BERTH_OK);
    }
    berth__prepared_finish(&p);
}

/* ---- What it is for: programs whose plans ended above the bound ---- */

/* A program of a family at the default effort, and whether it is at the bound. */
static bool plan_decoding(const family *which, size_t count, uint64_t seed, uint32_t alignment,
                          uint64_t *offsets)
{
    berth_problem problem;
    berth_certificate c = {.struct_size = sizeof c};
    family_make(which, count, seed, &problem);
    problem.alignment = alignment;
    assert_int_equal(berth_solve(&problem, NULL, offsets, &c), BERTH_OK);
    assert_true((double)c.peak_bytes <= 1.002 * (double)c.lower_bound_bytes);
    family_free(&problem);
    return c.proven_optimal;
}

/* With the alignment that the end of a recording plans with, and without. Of most programs the bound can be
 * reached; that it can be of all is not known: of some that end in the middle of a token it is missed by a few
 * thousandths of a cache. */
static void test_decoding_reaches_the_bound(void **state)
{
    (void)state;
    enum { COUNT = 12000 / SCALE };
    uint64_t *offsets = malloc(COUNT * sizeof *offsets);
    for (size_t f = 0; f < PROGRAMS; f++) {
        unsigned reached = 0, asked = 0;
        if (strncmp(programs[f].name, "decode", 6) != 0)
            continue;
        for (uint64_t seed = 1; seed <= (SCALE == 1 ? 8 : 2); seed++)
            for (uint32_t alignment = 1; alignment <= 64; alignment += 63, asked++)
                reached += plan_decoding(&programs[f], COUNT, seed, alignment, offsets);
        assert_true(f ? 2 * reached >= asked : 8 * reached >= 7 * asked);
    }
    free(offsets);
}

/* Equals by their ends, the last first: whoever conflicts with the one to be placed is alive at its end, so as many
 * places as are alive at once are enough, whatever the lives. By the first end or by length they are not. */
static void test_of_equals_the_last_chooses_first(void **state)
{
    (void)state;
    enum { COUNT = 120, PROGRAMS_TRIED = 20 };
    for (uint64_t seed = 1; seed <= PROGRAMS_TRIED; seed++) {
        berth_problem_buffer buffers[COUNT];
        uint64_t random = seed;
        for (uint64_t i = 0; i < COUNT; i++)
            family_buffer(&buffers[i], 2 * i, 1 + family_random(&random) % 29, 64);
        const berth_problem problem = {
            .struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT};
        berth__prepared p;
        uint64_t offsets[COUNT], peak;
        assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
        berth__search search = search_of(&p);
        assert_int_equal(berth__pack_run(&search, BERTH__PACK_SIZE, p.max_live, UINT64_MAX, offsets, &peak),
                         BERTH_OK);
        assert_int_equal(peak, p.max_live);
        berth__prepared_finish(&p);
    }
}

/* The room below the lid is as tight as the lid says: one unit more, and these six choose otherwise and end above. */
static void test_rooms_end_at_the_lid(void **state)
{
    (void)state;
    static const uint64_t lives[][3] = {{1, 3, 5}, {1, 3, 4}, {0, 2, 2}, {0, 1, 2}, {3, 3, 3}, {0, 4, 4}};
    enum { COUNT = BERTH_COUNT_OF(lives), BOUND = 16 };
    berth_problem_buffer buffers[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        family_buffer(&buffers[i], lives[i][0], lives[i][1], lives[i][2]);
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT};
    berth__prepared p;
    uint64_t offsets[COUNT], peak;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    assert_int_equal(p.max_live, BOUND);
    for (uint64_t higher = 0; higher <= 2; higher += 2) {
        berth__search search = search_of(&p);
        assert_int_equal(
            berth__pack_run(&search, BERTH__PACK_TIGHT, BOUND + higher, UINT64_MAX, offsets, &peak),
            BERTH_OK);
        assert_int_equal(peak, higher ? BOUND + 1 : BOUND);
    }
    berth__prepared_finish(&p);
}

/* By the steps of the default, auto is not worse than any single solver to its end. */
static void test_programs_are_not_worse_than_a_solver(void **state)
{
    (void)state;
    enum { COUNT = 6000 / SCALE };
    uint64_t *offsets = malloc(COUNT * sizeof *offsets);
    for (size_t f = 0; f < PROGRAMS; f++) {
        berth_problem problem;
        berth_certificate best = {.struct_size = sizeof best}, c = best;
        family_make(&programs[f], COUNT, 7, &problem);
        assert_int_equal(berth_solve(&problem, NULL, offsets, &best), BERTH_OK);
        for (size_t k = 1; berth_solver_name(k); k++) {
            berth_solve_options options = {.struct_size = sizeof options, .solver = berth_solver_name(k)};
            assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
            assert_true(best.peak_bytes <= c.peak_bytes);
        }
        family_free(&problem);
    }
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tree_against_looking),
        cmocka_unit_test(test_every_plan_is_valid),
        cmocka_unit_test(test_steps_end_it),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_decoding_reaches_the_bound),
        cmocka_unit_test(test_of_equals_the_last_chooses_first),
        cmocka_unit_test(test_rooms_end_at_the_lid),
        cmocka_unit_test(test_programs_are_not_worse_than_a_solver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Time-ordered best fit, and the faults of the planner it is modelled on: each test here fails on one of
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_random.h"
#include "planner/place/blocks.h"

#define FREE BERTH_NO_OFFSET
#define BUFFER(l, u, s)                                                     \
    {                                                                       \
        .lower = (l), .upper = (u), .size_bytes = (s), .fixed_offset = FREE \
    }

static uint64_t greedy(const berth_problem_buffer *buffers, size_t count, uint32_t alignment,
                       uint64_t *offsets)
{
    berth_problem problem = {
        .struct_size = sizeof problem, .buffers = buffers, .buffer_count = count, .alignment = alignment};
    berth_solve_options options = {.struct_size = sizeof options, .solver = "greedy"};
    berth_certificate c = {.struct_size = sizeof c};
    assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(&problem, offsets, NULL), BERTH_OK);
    return c.peak_bytes;
}

/* A set of free blocks ordered by size alone forgets the second of two equal ones: here two equal blocks are
 * free apart from each other, kept so by a third that lives on, and both are wanted again. */
static void equal_free_blocks_are_all_kept(void **state)
{
    (void)state;
    berth_problem_buffer rows[] = {BUFFER(0, 2, 48), BUFFER(0, 9, 16), BUFFER(0, 2, 48),
                                   BUFFER(0, 9, 32), BUFFER(3, 6, 48), BUFFER(3, 6, 48)};
    uint64_t offsets[6];
    assert_int_equal(greedy(rows, 6, 0, offsets), 48 + 16 + 48 + 32);
    /* and a whole row of them, freed in an order of no use */
    enum { MANY = 200 };
    berth_problem_buffer many[3 * MANY];
    uint64_t places[3 * MANY];
    for (int i = 0; i < MANY; i++) {
        many[3 * i] = (berth_problem_buffer)BUFFER(i, MANY + (i * 37) % MANY, 10);
        many[3 * i + 1] = (berth_problem_buffer)BUFFER(i, 4 * MANY, 3);
        many[3 * i + 2] = (berth_problem_buffer)BUFFER(2 * MANY + i, 4 * MANY, 10);
    }
    assert_int_equal(greedy(many, 3 * MANY, 0, places), 13 * MANY);
}

/* A free at time t comes before an allocation at t, in whatever order the rows stand. */
static void an_end_comes_before_a_beginning_at_the_same_time(void **state)
{
    (void)state;
    berth_problem_buffer rows[] = {BUFFER(4, 8, 100), BUFFER(0, 4, 100), BUFFER(8, 12, 100)};
    uint64_t offsets[3];
    assert_int_equal(greedy(rows, 3, 0, offsets), 100);
    for (int i = 0; i < 3; i++)
        assert_int_equal(offsets[i], 0);
}

/* Merging takes neighbours out of the set of free blocks while that set is being searched: the fault was to
 * go on from the entry taken out. Blocks freed in every order around each other must end as one. */
static void neighbours_merge_from_both_sides(void **state)
{
    (void)state;
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 2, 0}, {2, 0, 3, 1}};
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        berth_problem_buffer rows[5];
        uint64_t offsets[5];
        for (int i = 0; i < 4; i++)
            rows[orders[k][i]] = (berth_problem_buffer)BUFFER(0, 2 + i, 25);
        rows[4] = (berth_problem_buffer)BUFFER(6, 8, 100); /* fits only where all four were */
        assert_int_equal(greedy(rows, 5, 0, offsets), 100);
    }
}

static void offsets_are_aligned_and_the_skipped_bytes_are_used(void **state)
{
    (void)state;
    /* the last two only end, so that time puts the others in order */
    berth_problem_buffer rows[] = {BUFFER(0, 9, 10), BUFFER(1, 9, 64), BUFFER(2, 9, 20), BUFFER(0, 1, 1),
                                   BUFFER(1, 2, 1)};
    rows[1].alignment = 64;
    uint64_t offsets[5];
    assert_int_equal(greedy(rows, 5, 0, offsets), 128);
    assert_int_equal(offsets[1], 64);
    assert_true(offsets[2] < 64); /* between the first and the second */
    assert_int_equal(greedy(rows, 5, 16, offsets), 128);
    for (int i = 0; i < 5; i++)
        assert_int_equal(offsets[i] % 16, 0);
}

/* What fits nowhere grows the arena's last free block instead of starting behind it. */
static void the_last_free_block_is_extended(void **state)
{
    (void)state;
    berth_problem_buffer rows[] = {BUFFER(0, 9, 10), BUFFER(1, 3, 50), BUFFER(3, 9, 60)};
    uint64_t offsets[3];
    assert_int_equal(greedy(rows, 3, 0, offsets), 70);
    assert_int_equal(offsets[2], 10);
}

static void the_smallest_block_that_holds_it_is_taken(void **state)
{
    (void)state;
    /* free at time 2: 30 bytes low, 20 bytes high; the newcomer of 20 leaves the 30 alone */
    berth_problem_buffer rows[] = {BUFFER(0, 2, 30), BUFFER(0, 9, 5),  BUFFER(0, 2, 20),
                                   BUFFER(0, 9, 6),  BUFFER(3, 9, 20), BUFFER(4, 9, 30)};
    uint64_t offsets[6];
    assert_int_equal(greedy(rows, 6, 0, offsets), 61);
}

/* Random taking and giving, the invariants walked after every step. */
static void blocks_stay_in_order(void **state)
{
    (void)state;
    enum { HELD = 64 };
    berth__blocks blocks;
    uint32_t held[HELD];
    size_t count = 0;
    uint64_t random = 7;
    berth__blocks_init(&blocks);
    for (int step = 0; step < 20000; step++) {
        if (count < HELD && random_below(&random, 100) < 52) {
            uint64_t alignment = random_below(&random, 4) ? 1 : 1 + random_below(&random, 48);
            uint64_t size = 1 + random_below(&random, 100);
            assert_int_equal(berth__blocks_take(&blocks, size, alignment, &held[count]), BERTH_OK);
            assert_int_equal(blocks.nodes[held[count]].start % alignment, 0);
            assert_int_equal(blocks.nodes[held[count++]].size, size);
        } else if (count) {
            size_t k = random_below(&random, (uint32_t)count);
            berth__blocks_give(&blocks, held[k]);
            held[k] = held[--count];
        }
        assert_true(berth__blocks_is_valid(&blocks));
    }
    while (count)
        berth__blocks_give(&blocks, held[--count]);
    assert_true(berth__blocks_is_valid(&blocks));
    assert_int_equal(blocks.nodes[blocks.tail].size, blocks.end); /* one free block is left */
    berth__blocks_finish(&blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_free_blocks_are_all_kept),
        cmocka_unit_test(an_end_comes_before_a_beginning_at_the_same_time),
        cmocka_unit_test(neighbours_merge_from_both_sides),
        cmocka_unit_test(offsets_are_aligned_and_the_skipped_bytes_are_used),
        cmocka_unit_test(the_last_free_block_is_extended),
        cmocka_unit_test(the_smallest_block_that_holds_it_is_taken),
        cmocka_unit_test(blocks_stay_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

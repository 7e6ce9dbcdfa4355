/* The prepared form says the same as the problem: same conflicts, same loads, whatever the order of rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sort.h"
#include "plan_random.h"
#include "planner/problem/bound.h"
#include "planner/problem/prepared.h"

static const random_shape shapes[] = {
    {.buffers = 40, .times = 12, .sizes = 9, .unit = 64},
    {.buffers = 24, .times = 9, .sizes = 5, .unit = 3, .largest_gap = 3},
    {.buffers = 24, .times = 9, .sizes = 5, .unit = 1, .alias_groups = 4},
    {.buffers = 24, .times = 9, .sizes = 5, .unit = 1, .alias_groups = 3, .largest_gap = 2, .alignments = 6},
    {.buffers = 30,
     .times = 9,
     .sizes = 7,
     .unit = 8,
     .alignments = 48,
     .pinned_percent = 20,
     .rounding = 12},
};

static uint64_t live_size(const random_problem *random, const berth__prepared *prepared, uint32_t item,
                          int64_t t)
{
    uint64_t size = 0;
    for (size_t b = 0; b < random->problem.buffer_count; b++)
        if (prepared->item_of_buffer[b] == item && random_is_live(random, b, t)) {
            uint64_t own = random_rounded(random, b);
            size = own > size ? own : size;
        }
    return size;
}

static uint64_t column_size(const berth__prepared *prepared, uint32_t item, uint32_t column)
{
    for (uint32_t k = berth__piece_begin(prepared, item); k < berth__piece_end(prepared, item); k++)
        if (prepared->piece_lower[k] <= column && column < prepared->piece_upper[k])
            return prepared->piece_size[k];
    return 0;
}

/* Every moment's live sizes appear in some column, and every column's in some moment: no conflict is lost and
 * none is invented. */
static void check_moments(const random_problem *random, const berth__prepared *prepared)
{
    enum { TIMES = 40 };
    bool moment_seen[TIMES] = {0};
    for (uint32_t c = 0; c < prepared->column_count; c++) {
        bool column_found = false;
        for (int64_t t = 0; t < TIMES; t++) {
            bool inside = true, equal = true;
            for (uint32_t i = 0; i < prepared->item_count; i++) {
                uint64_t now = live_size(random, prepared, i, t - 5);
                uint64_t then = column_size(prepared, i, c) * prepared->unit_bytes;
                inside &= now == 0 || now == then;
                equal &= now == then;
            }
            moment_seen[t] |= inside;
            column_found |= equal;
        }
        assert_true(column_found);
    }
    for (int64_t t = 0; t < TIMES; t++)
        assert_true(moment_seen[t] || prepared->item_count == 0);
}

static void check_bounds(const random_problem *random, const berth__prepared *prepared)
{
    uint64_t most = 0, *loads = calloc(prepared->column_count + 1, sizeof *loads), largest = 0, bound;
    int64_t when = 0;
    for (int64_t t = -5; t < 40; t++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < prepared->item_count; i++)
            live += live_size(random, prepared, i, t);
        if (live > most) {
            most = live;
            when = t;
        }
    }
    berth__bound_loads(prepared, loads);
    for (uint32_t c = 0; c < prepared->column_count; c++)
        largest = loads[c] > largest ? loads[c] : largest;
    assert_int_equal(most, largest * prepared->unit_bytes);
    assert_int_equal(most, prepared->max_live * prepared->unit_bytes);
    if (most) {
        assert_int_equal(when, prepared->max_live_time);
        assert_int_equal(loads[prepared->max_live_column], largest);
    }
    assert_int_equal(berth__bound(prepared, &bound), BERTH_OK);
    assert_true(bound >= prepared->max_live);
    free(loads);
}

static void test_says_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        random_problem random;
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        berth__prepared prepared;
        assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
        for (size_t b = 0; b < random.problem.buffer_count; b++)
            assert_int_equal(prepared.item_of_buffer[b] == BERTH__NO_ITEM,
                             prepared.item_of_buffer[b] >= prepared.item_count);
        check_moments(&random, &prepared);
        check_bounds(&random, &prepared);
        berth__prepared_finish(&prepared);
        assert_int_equal(berth__heap_live(), 0);
    }
}

static void test_order_of_rows_does_not_matter(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        random_problem random, shuffled;
        size_t to[RANDOM_BUFFERS];
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        random_problem_shuffle(&shuffled, &random, to);
        berth__prepared one, two;
        assert_int_equal(berth__prepared_init(&one, &random.problem), BERTH_OK);
        assert_int_equal(berth__prepared_init(&two, &shuffled.problem), BERTH_OK);
        assert_int_equal(one.item_count, two.item_count);
        assert_int_equal(one.piece_count, two.piece_count);
        size_t items = one.item_count;
        assert_memory_equal(one.lower, two.lower, items * sizeof *one.lower);
        assert_memory_equal(one.upper, two.upper, items * sizeof *one.upper);
        assert_memory_equal(one.size, two.size, items * sizeof *one.size);
        assert_memory_equal(one.piece_lower, two.piece_lower, one.piece_count * sizeof *one.piece_lower);
        assert_memory_equal(one.piece_size, two.piece_size, one.piece_count * sizeof *one.piece_size);
        assert_int_equal(!one.alignment, !two.alignment);
        if (one.alignment)
            assert_memory_equal(one.alignment, two.alignment, items * sizeof *one.alignment);
        assert_int_equal(one.unit_bytes, two.unit_bytes);
        berth__prepared_finish(&one);
        berth__prepared_finish(&two);
    }
}

static void test_times_may_be_far_apart(void **state)
{
    (void)state;
    berth_problem_buffer buffers[] = {
        {.lower = INT64_MIN, .upper = 0, .size_bytes = 6, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = -1, .upper = INT64_MAX, .size_bytes = 4, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = 7, .upper = 9, .size_bytes = 10, .fixed_offset = BERTH_NO_OFFSET},
    };
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 3};
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    assert_int_equal(prepared.column_count, 2);
    assert_int_equal(prepared.unit_bytes, 2);
    assert_int_equal(prepared.max_live, 7);
    assert_int_equal(prepared.max_live_time, 7);
    berth__prepared_finish(&prepared);
}

/* 12 and 18 as alignments over sizes of 36: 36 is a unit for both. Sizes of 8 are not. */
static void test_unit_respects_alignment(void **state)
{
    (void)state;
    berth_problem_buffer buffers[] = {
        {.lower = 0, .upper = 2, .size_bytes = 36, .alignment = 12, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = 1, .upper = 3, .size_bytes = 72, .alignment = 18, .fixed_offset = BERTH_NO_OFFSET},
    };
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 2};
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    assert_int_equal(prepared.unit_bytes, 36);
    assert_int_equal(prepared.alignment[0], 1);
    berth__prepared_finish(&prepared);
    buffers[0].size_bytes = 8;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    assert_int_equal(prepared.unit_bytes, 2);
    assert_int_equal(berth__item_align(&prepared, 0, 1), 6);
    assert_int_equal(berth__item_align(&prepared, 1, 10), 18);
    berth__prepared_finish(&prepared);
}

static void test_empty_and_pinned(void **state)
{
    (void)state;
    berth_problem_buffer buffers[] = {
        {.lower = 3, .upper = 3, .size_bytes = 36, .fixed_offset = 24},
        {.lower = 1, .upper = 3, .size_bytes = 0, .fixed_offset = BERTH_NO_OFFSET, .alias_group = 5},
        {.lower = 1, .upper = 1, .size_bytes = 9, .fixed_offset = 77, .alias_group = 5},
    };
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 3};
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    assert_int_equal(prepared.item_count, 0);
    uint64_t offsets[3];
    berth__prepared_expand(&prepared, NULL, offsets);
    assert_int_equal(offsets[0], 24);
    assert_int_equal(offsets[1], 77);
    assert_int_equal(offsets[2], 77);
    berth__prepared_finish(&prepared);
    problem.buffer_count = 0;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    berth__prepared_finish(&prepared);
}

static void test_sums_past_63_bits_are_refused(void **state)
{
    (void)state;
    berth_problem_buffer buffers[] = {
        {.lower = 0, .upper = 2, .size_bytes = UINT64_MAX / 2, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = 5, .upper = 6, .size_bytes = UINT64_MAX / 4 + 1, .fixed_offset = BERTH_NO_OFFSET},
    };
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 2};
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OVERFLOW);
    assert_int_equal(berth__heap_live(), 0);
}

static void test_memory_failures_leak_nothing(void **state)
{
    (void)state;
    random_problem random;
    random_problem_make(&random, &shapes[3], 11);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status != BERTH_OK; n++) {
        berth__prepared prepared;
        berth__heap_fail_at(n, false);
        status = berth__prepared_init(&prepared, &random.problem);
        berth__heap_fail_at(0, false);
        if (status == BERTH_OK)
            berth__prepared_finish(&prepared);
        else
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_int_equal(berth__heap_live(), 0);
    }
}

static int by_low_byte(const void *context, uint32_t a, uint32_t b)
{
    (void)context;
    return (int)(a & 255) - (int)(b & 255);
}

static void test_sorts_are_stable(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static uint64_t keys[COUNT], scratch[COUNT];
    static uint32_t indices[COUNT], room[COUNT];
    uint64_t random = 3;
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = random_next(&random) << 20 | i;
        indices[i] = random_below(&random, 256) | i << 8;
    }
    berth__sort_keys(keys, scratch, COUNT, 30, 47);
    berth__sort_indices(indices, room, COUNT, by_low_byte, NULL);
    for (uint32_t i = 1; i < COUNT; i++) {
        uint64_t before = (keys[i - 1] >> 30) & 0x1FFFF, here = (keys[i] >> 30) & 0x1FFFF;
        assert_true(before < here || (before == here && (keys[i - 1] & 0xFFFFF) < (keys[i] & 0xFFFFF)));
        assert_true((indices[i - 1] & 255) < (indices[i] & 255) ||
                    ((indices[i - 1] & 255) == (indices[i] & 255) && indices[i - 1] < indices[i]));
    }
}

/* The walker that debug builds call sees each way in which a problem can be out of order. */
static void test_what_is_out_of_order_is_seen(void **state)
{
    (void)state;
    berth_gap gap = {2, 3};
    berth_problem_buffer buffers[] = {
        {.upper = 5, .size_bytes = 4, .fixed_offset = BERTH_NO_OFFSET, .gap_count = 1},
        {.lower = 2, .upper = 3, .size_bytes = 2, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = 4, .upper = 6, .size_bytes = 3, .fixed_offset = 8}};
    const berth_problem problem = {.struct_size = sizeof problem,
                                   .buffers = buffers,
                                   .buffer_count = 3,
                                   .gaps = &gap,
                                   .gap_count = 1,
                                   .alignment = 1};
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    assert_true(berth__prepared_is_valid(&p));
    assert_int_equal(p.piece_count, 4);
#define SEES(field, wrong)                          \
    do {                                            \
        const uint64_t right_ = (field);            \
        (field) = (wrong);                          \
        assert_false(berth__prepared_is_valid(&p)); \
        (field) = (__typeof__(field))right_;        \
        assert_true(berth__prepared_is_valid(&p));  \
    } while (0)
    SEES(p.piece_first[1], 0);        /* an item without pieces */
    SEES(p.piece_count, 5);           /* a piece of no item */
    SEES(p.piece_upper[0], 9);        /* past the columns */
    SEES(p.piece_size[1], 5);         /* larger than its item */
    SEES(p.piece_lower[1], 0);        /* before the one before it */
    SEES(p.lower[0], p.lower[2]);     /* not its first piece's */
    SEES(p.max_live, p.max_live + 1); /* not the loads' */
    SEES(p.is_plain, true);           /* it has pieces and pins */
#undef SEES
    berth__prepared_finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_says_the_same),
        cmocka_unit_test(test_order_of_rows_does_not_matter),
        cmocka_unit_test(test_times_may_be_far_apart),
        cmocka_unit_test(test_unit_respects_alignment),
        cmocka_unit_test(test_empty_and_pinned),
        cmocka_unit_test(test_sums_past_63_bits_are_refused),
        cmocka_unit_test(test_memory_failures_leak_nothing),
        cmocka_unit_test(test_sorts_are_stable),
        cmocka_unit_test(test_what_is_out_of_order_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

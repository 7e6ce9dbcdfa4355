/* What a problem may say, its fingerprint, who is live, and the bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_random.h"

#define FREE BERTH_NO_OFFSET
#define BUFFER(l, u, s) .lower = (l), .upper = (u), .size_bytes = (s), .fixed_offset = FREE

static berth_problem of(const berth_problem_buffer *buffers, size_t count)
{
    return (berth_problem){.struct_size = sizeof(berth_problem), .buffers = buffers, .buffer_count = count};
}

static void refused(const berth_problem *problem, berth_status status, const char *words)
{
    assert_int_equal(berth_problem_validate(problem), status);
    if (!strstr(berth_last_error()->message, words))
        fail_msg("'%s' is not in '%s'", words, berth_last_error()->message);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    berth_problem_buffer one = {BUFFER(5, 4, 8)};
    berth_problem p = of(&one, 1);
    refused(&p, BERTH_INVALID_ARGUMENT, "buffer 0 ends at 4");
    one = (berth_problem_buffer){BUFFER(0, 4, (uint64_t)1 << 63)};
    refused(&p, BERTH_OVERFLOW, "63 bits");
    one = (berth_problem_buffer){.lower = 0, .upper = 1, .size_bytes = 8, .fixed_offset = 12, .alignment = 8};
    refused(&p, BERTH_INVALID_ARGUMENT, "multiple of its alignment 8");
    one.alignment = 4;
    assert_int_equal(berth_problem_validate(&p), BERTH_OK);
    p.alignment = 8;
    refused(&p, BERTH_INVALID_ARGUMENT, "multiple of its alignment 8");
    one.fixed_offset = INT64_MAX - 7;
    refused(&p, BERTH_OVERFLOW, "63 bits");
    p.struct_size = 0;
    refused(&p, BERTH_INVALID_ARGUMENT, "struct_size");
    refused(NULL, BERTH_INVALID_ARGUMENT, "NULL");
    p = of(NULL, 3);
    refused(&p, BERTH_INVALID_ARGUMENT, "has none");
}

static void gaps_lie_inside_and_ascend(void **state)
{
    (void)state;
    berth_gap gaps[] = {{2, 3}, {5, 7}};
    berth_problem_buffer one = {BUFFER(0, 9, 8), .gap_count = 2};
    berth_problem p = of(&one, 1);
    refused(&p, BERTH_INVALID_ARGUMENT, "names gaps");
    p.gaps = gaps;
    p.gap_count = 2;
    assert_int_equal(berth_problem_validate(&p), BERTH_OK);
    gaps[1].upper = 10;
    refused(&p, BERTH_INVALID_ARGUMENT, "outside");
    gaps[1].upper = 5;
    refused(&p, BERTH_INVALID_ARGUMENT, "is empty");
    gaps[1] = (berth_gap){2, 4};
    refused(&p, BERTH_INVALID_ARGUMENT, "overlaps the gap before it");
}

static void pins_do_not_collide(void **state)
{
    (void)state;
    berth_problem_buffer two[] = {
        {.lower = 0, .upper = 3, .size_bytes = 8, .fixed_offset = 0, .alias_group = 1},
        {.lower = 2, .upper = 4, .size_bytes = 8, .fixed_offset = 4},
        {BUFFER(0, 9, 4), .alias_group = 1}};
    berth_problem p = of(two, 3);
    refused(&p, BERTH_INVALID_ARGUMENT, "collide");
    two[1].lower = 3; /* the third shares the first's place, but is small */
    assert_int_equal(berth_problem_validate(&p), BERTH_OK);
    two[2].size_bytes = 5;
    refused(&p, BERTH_INVALID_ARGUMENT, "collide");
    two[2].size_bytes = 4;
    two[2].fixed_offset = 8;
    refused(&p, BERTH_INVALID_ARGUMENT, "share one place but are fixed at 0 and 8");
    two[2].fixed_offset = FREE;
    two[0].fixed_offset = 24;
    two[2].alignment = 16;
    refused(&p, BERTH_INVALID_ARGUMENT, "multiple of its alignment 16");
}

static uint64_t fingerprint(const berth_problem *problem)
{
    uint64_t out = 0;
    assert_int_equal(berth_problem_fingerprint(problem, &out), BERTH_OK);
    return out;
}

static void a_fingerprint_sees_everything_but_order(void **state)
{
    (void)state;
    berth_gap gaps[] = {{1, 2}};
    berth_problem_buffer rows[] = {{BUFFER(0, 4, 8), .gap_count = 1},
                                   {BUFFER(0, 4, 8), .alias_group = 1},
                                   {BUFFER(2, 4, 8), .alias_group = 1},
                                   {BUFFER(3, 4, 8), .alias_group = 2},
                                   {BUFFER(3, 5, 8), .alias_group = 2}};
    berth_problem p = of(rows, 5);
    p.gaps = gaps;
    p.gap_count = 1;
    uint64_t was = fingerprint(&p);
    berth_problem_buffer held = rows[0];
    rows[0] = rows[2];
    rows[2] = held;
    assert_int_equal(fingerprint(&p), was);
    for (int i = 0; i < 5; i++) /* groups are what matters, not their numbers */
        rows[i].alias_group = rows[i].alias_group ? 9 - rows[i].alias_group : 0;
    assert_int_equal(fingerprint(&p), was);
#define CHANGES(statement, undo)         \
    statement;                           \
    assert_true(fingerprint(&p) != was); \
    undo;                                \
    assert_int_equal(fingerprint(&p), was)
    CHANGES(rows[1].size_bytes++, rows[1].size_bytes--);
    CHANGES(rows[1].lower++, rows[1].lower--);
    CHANGES(rows[1].upper++, rows[1].upper--);
    CHANGES(rows[1].hint++, rows[1].hint--);
    CHANGES(rows[1].alignment = 2, rows[1].alignment = 1);
    CHANGES(rows[1].fixed_offset = 0, rows[1].fixed_offset = FREE);
    CHANGES(gaps[0].upper++, gaps[0].upper--);
    CHANGES(p.capacity_bytes++, p.capacity_bytes--);
    CHANGES(p.alignment = 2, p.alignment = 1);
    CHANGES(p.buffer_count--, p.buffer_count++);
    uint32_t group = rows[3].alias_group; /* one member moves to the other group */
    CHANGES(rows[3].alias_group = rows[1].alias_group, rows[3].alias_group = group);
}

static void the_live_are_listed_largest_first(void **state)
{
    (void)state;
    static const random_shape shape = {.buffers = 50, .times = 9, .sizes = 20, .unit = 1, .largest_gap = 3};
    for (uint64_t seed = 0; seed < 300; seed++) {
        random_problem random;
        random_problem_make(&random, &shape, seed);
        int64_t time = (int64_t)(seed % 12);
        size_t indices[RANDOM_BUFFERS], some[4], count, again, expected = 0;
        for (size_t i = 0; i < random.problem.buffer_count; i++)
            expected += (size_t)random_is_live(&random, i, time);
        assert_int_equal(berth_problem_live(&random.problem, time, indices, RANDOM_BUFFERS, &count),
                         BERTH_OK);
        assert_int_equal(count, expected);
        for (size_t k = 0; k < count; k++) {
            assert_true(random_is_live(&random, indices[k], time));
            if (k) {
                uint64_t a = random.buffers[indices[k - 1]].size_bytes,
                         b = random.buffers[indices[k]].size_bytes;
                assert_true(a > b || (a == b && indices[k - 1] < indices[k]));
            }
        }
        assert_int_equal(berth_problem_live(&random.problem, time, some, 4, &again), BERTH_OK);
        assert_int_equal(again, count);
        for (size_t k = 0; k < count && k < 4; k++)
            assert_int_equal(some[k], indices[k]);
    }
}

static void most_live_is_found_with_its_first_time(void **state)
{
    (void)state;
    static const random_shape shape = {
        .buffers = 30, .times = 9, .sizes = 20, .unit = 3, .largest_gap = 3, .rounding = 4};
    for (uint64_t seed = 0; seed < 300; seed++) {
        random_problem random;
        random_problem_make(&random, &shape, seed);
        uint64_t most = 0, bytes;
        int64_t first = 0, when;
        for (int64_t t = -4; t < 40; t++) {
            uint64_t sum = 0;
            for (size_t i = 0; i < random.problem.buffer_count; i++)
                sum += random_is_live(&random, i, t) ? random_rounded(&random, i) : 0;
            if (sum > most) {
                most = sum;
                first = t;
            }
        }
        assert_int_equal(berth_problem_max_live(&random.problem, &bytes, &when), BERTH_OK);
        assert_int_equal(bytes, most);
        if (most)
            assert_int_equal(when, first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(gaps_lie_inside_and_ascend),
        cmocka_unit_test(pins_do_not_collide),
        cmocka_unit_test(a_fingerprint_sees_everything_but_order),
        cmocka_unit_test(the_live_are_listed_largest_first),
        cmocka_unit_test(most_live_is_found_with_its_first_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

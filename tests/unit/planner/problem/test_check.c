/* The checker accepts what is right and names what is wrong: every kind of broken plan, and random places
 * against a comparison of all pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_random.h"

#define FREE BERTH_NO_OFFSET

static const berth_gap gaps[] = {{2, 4}};
/* a and b meet at time 1; c follows a; d sleeps while e lives; f and g share a place */
static const berth_problem_buffer rows[] = {
    {.lower = 0, .upper = 2, .size_bytes = 16, .fixed_offset = FREE},
    {.lower = 1, .upper = 3, .size_bytes = 16, .fixed_offset = FREE, .alignment = 16},
    {.lower = 2, .upper = 5, .size_bytes = 16, .fixed_offset = FREE},
    {.lower = 0, .upper = 6, .size_bytes = 8, .fixed_offset = 64, .gap_count = 1},
    {.lower = 2, .upper = 4, .size_bytes = 8, .fixed_offset = FREE},
    {.lower = 0, .upper = 3, .size_bytes = 4, .fixed_offset = FREE, .alias_group = 7},
    {.lower = 2, .upper = 5, .size_bytes = 12, .fixed_offset = FREE, .alias_group = 7},
    {.lower = 4, .upper = 4, .size_bytes = 99, .fixed_offset = FREE},
};
enum { ROWS = sizeof rows / sizeof rows[0] };
static const uint64_t good[ROWS] = {0, 16, 0, 64, 64, 32, 32, FREE};
static const berth_problem problem = {
    .struct_size = sizeof problem, .buffers = rows, .buffer_count = ROWS, .gaps = gaps, .gap_count = 1};

static void a_valid_plan_is_proven(void **state)
{
    (void)state;
    berth_verdict verdict = {.struct_size = sizeof verdict};
    assert_int_equal(berth_problem_check(&problem, good, &verdict), BERTH_OK);
    assert_int_equal(verdict.peak_bytes, 72);
    assert_int_equal(berth_problem_check(&problem, good, NULL), BERTH_OK);
}

static void every_kind_of_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t buffer;
        uint64_t offset;
        const char *words;
        size_t first, second;
        int64_t time;
    } faults[] = {
        {0, 8, "overlap", 0, 1, 1},  /* over the buffer above it */
        {1, 0, "overlap", 0, 1, 1},  /* on the same place */
        {2, 24, "overlap", 1, 2, 2}, /* half over one that is still live */
        {4, 60, "overlap", 3, 4, 0}, /* never: see below */
        {1, 24, "multiple of its alignment", 1, 0, 0},
        {3, 128, "fixed at 64", 3, 0, 0},
        {6, 40, "share one place", 5, 6, 0},
        {2, FREE, "no offset", 2, 0, 0},
        {0, INT64_MAX, "63 bits", 0, 0, 0},
    };
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        uint64_t offsets[ROWS];
        berth_verdict verdict = {.struct_size = sizeof verdict};
        memcpy(offsets, good, sizeof offsets);
        offsets[faults[k].buffer] = faults[k].offset;
        berth_status status = berth_problem_check(&problem, offsets, &verdict);
        if (faults[k].buffer == 4) { /* d sleeps during all of e's life */
            assert_int_equal(status, BERTH_OK);
            continue;
        }
        assert_int_equal(status, BERTH_MISMATCH);
        if (!strstr(verdict.words, faults[k].words))
            fail_msg("'%s' is not in '%s'", faults[k].words, verdict.words);
        assert_int_equal(verdict.first, faults[k].first);
        assert_int_equal(verdict.second, faults[k].second);
        assert_int_equal(verdict.time, faults[k].time);
        assert_string_equal(berth_last_error()->message, verdict.words);
    }
}

static void the_larger_member_of_a_group_counts(void **state)
{
    (void)state;
    /* behind the small member is room until the large one comes alive at 2 */
    berth_problem_buffer with[ROWS + 1];
    uint64_t offsets[ROWS + 1];
    memcpy(with, rows, sizeof rows);
    memcpy(offsets, good, sizeof good);
    with[ROWS] = (berth_problem_buffer){.lower = 0, .upper = 2, .size_bytes = 8, .fixed_offset = FREE};
    offsets[ROWS] = 36;
    berth_problem more = problem;
    more.buffers = with;
    more.buffer_count = ROWS + 1;
    assert_int_equal(berth_problem_check(&more, offsets, NULL), BERTH_OK);
    with[ROWS].upper = 3;
    assert_int_equal(berth_problem_check(&more, offsets, NULL), BERTH_MISMATCH);
    with[ROWS] = (berth_problem_buffer){.lower = 4, .upper = 5, .size_bytes = 8, .fixed_offset = FREE};
    assert_int_equal(berth_problem_check(&more, offsets, NULL), BERTH_MISMATCH);
}

static void the_problems_alignment_rounds_sizes_too(void **state)
{
    (void)state;
    berth_problem_buffer two[] = {{.lower = 0, .upper = 1, .size_bytes = 10, .fixed_offset = FREE},
                                  {.lower = 0, .upper = 1, .size_bytes = 10, .fixed_offset = FREE}};
    berth_problem rounded = {
        .struct_size = sizeof rounded, .buffers = two, .buffer_count = 2, .alignment = 12};
    berth_verdict verdict = {.struct_size = sizeof verdict};
    assert_int_equal(berth_problem_check(&rounded, (uint64_t[]){0, 12}, &verdict), BERTH_OK);
    assert_int_equal(verdict.peak_bytes, 24);
    assert_int_equal(berth_problem_check(&rounded, (uint64_t[]){0, 16}, &verdict), BERTH_MISMATCH);
    rounded.alignment = 5;
    assert_int_equal(berth_problem_check(&rounded, (uint64_t[]){0, 10}, &verdict), BERTH_OK);
    rounded.alignment = 0;
    assert_int_equal(berth_problem_check(&rounded, (uint64_t[]){0, 9}, &verdict), BERTH_MISMATCH);
}

/* One that is never live needs no place, but what it is given is handed out by whoever replays the plan. */
static void empty_buffers_keep_their_rules(void **state)
{
    (void)state;
    static const struct {
        berth_problem_buffer empty;
        uint64_t offset;
        bool is_right;
    } cases[] = {
        {{.lower = 0, .upper = 2, .alignment = 16, .fixed_offset = FREE}, 8, false},
        {{.lower = 0, .upper = 2, .alignment = 16, .fixed_offset = FREE}, 32, true},
        {{.lower = 0, .upper = 2, .alignment = 16, .fixed_offset = FREE}, FREE, true},
        {{.lower = 1, .upper = 1, .size_bytes = 9, .alignment = 16, .fixed_offset = FREE}, 8, false},
        {{.lower = 0, .upper = 2, .fixed_offset = FREE}, 4, true}, /* on another: it takes no place */
        {{.lower = 0, .upper = 2, .fixed_offset = 8}, 0, false},
        {{.lower = 0, .upper = 2, .fixed_offset = FREE, .alias_group = 7}, 1, false},
        {{.lower = 0, .upper = 2, .fixed_offset = FREE, .alias_group = 7}, 0, true},
        {{.lower = 0, .upper = 2, .fixed_offset = FREE}, (uint64_t)1 << 63, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const berth_problem_buffer two[] = {
            {.lower = 0, .upper = 1, .size_bytes = 10, .fixed_offset = FREE, .alias_group = 7},
            cases[k].empty};
        berth_problem small = {.struct_size = sizeof small, .buffers = two, .buffer_count = 2};
        const uint64_t offsets[] = {0, cases[k].offset};
        berth_verdict verdict = {.struct_size = sizeof verdict};
        assert_int_equal(berth_problem_check(&small, offsets, &verdict),
                         cases[k].is_right ? BERTH_OK : BERTH_MISMATCH);
        if (cases[k].is_right)
            assert_int_equal(verdict.peak_bytes, 10);
    }
}

/* All pairs at all times. */
static bool pairs_are_apart(const random_problem *random, const uint64_t *offsets)
{
    size_t count = random->problem.buffer_count;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            const berth_problem_buffer *a = &random->buffers[i], *b = &random->buffers[j];
            bool group = a->alias_group && a->alias_group == b->alias_group;
            bool apart = offsets[i] + random_rounded(random, i) <= offsets[j] ||
                         offsets[j] + random_rounded(random, j) <= offsets[i];
            for (int64_t t = -4; t < 60 && !apart && !group; t++)
                if (random_is_live(random, i, t) && random_is_live(random, j, t))
                    return false;
        }
    return true;
}

/* The same problem at times so far apart that they fill all 64 bits. */
static void stretch(random_problem *random)
{
    const int64_t times = (int64_t)1 << 57;
    for (size_t i = 0; i < random->problem.buffer_count; i++) {
        assert_true(random->buffers[i].lower >= -60 && random->buffers[i].upper <= 60);
        random->buffers[i].lower *= times;
        random->buffers[i].upper *= times;
    }
    for (size_t i = 0; i < random->problem.gap_count; i++) {
        random->gaps[i].lower *= times;
        random->gaps[i].upper *= times;
    }
}

static void random_places_are_judged_like_all_pairs(void **state)
{
    (void)state;
    static const random_shape shape = {
        .buffers = 9, .times = 9, .sizes = 9, .unit = 1, .largest_gap = 3, .alias_groups = 2};
    size_t valid = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        random_problem random;
        uint64_t offsets[RANDOM_BUFFERS], group[3] = {0};
        random_problem_make(&random, &shape, seed);
        for (size_t i = 0; i < random.problem.buffer_count; i++) {
            offsets[i] = random_below(&random.state, 40);
            random.buffers[i].alignment = 1;
            if (random.buffers[i].alias_group) {
                uint64_t *place = &group[random.buffers[i].alias_group];
                *place = *place ? *place : offsets[i] + 1;
                offsets[i] = *place - 1;
            }
        }
        bool expected = pairs_are_apart(&random, offsets);
        valid += expected;
        assert_int_equal(berth_problem_check(&random.problem, offsets, NULL),
                         expected ? BERTH_OK : BERTH_MISMATCH);
        stretch(&random);
        assert_int_equal(berth_problem_check(&random.problem, offsets, NULL),
                         expected ? BERTH_OK : BERTH_MISMATCH);
    }
    assert_true(valid > 1000 && valid < 19000); /* both answers were asked for */
}

/* Enough pieces for all levels of the checker's set. */
static void many_buffers_are_checked(void **state)
{
    (void)state;
    enum { MANY = 300000 };
    berth_problem_buffer *buffers = calloc(MANY, sizeof *buffers);
    uint64_t *offsets = calloc(MANY, sizeof *offsets);
    for (size_t i = 0; i < MANY; i++) {
        buffers[i] = (berth_problem_buffer){
            .lower = 0, .upper = 10, .size_bytes = 2, .fixed_offset = FREE, .alignment = 1};
        offsets[i] = 2 * ((i * 7919) % MANY);
    }
    berth_problem many = {.struct_size = sizeof many, .buffers = buffers, .buffer_count = MANY};
    berth_verdict verdict = {.struct_size = sizeof verdict};
    assert_int_equal(berth_problem_check(&many, offsets, &verdict), BERTH_OK);
    assert_int_equal(verdict.peak_bytes, 2 * MANY);
    offsets[123456] += 1;
    assert_int_equal(berth_problem_check(&many, offsets, &verdict), BERTH_MISMATCH);
    assert_true(verdict.first == 123456 || verdict.second == 123456);
    free(buffers);
    free(offsets);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
        berth__heap_fail_at(n, false);
        status = berth_problem_check(&problem, good, NULL);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
        assert_true(n < 20);
    }
    assert_int_equal(status, BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_plan_is_proven),
        cmocka_unit_test(every_kind_of_fault_is_named),
        cmocka_unit_test(the_larger_member_of_a_group_counts),
        cmocka_unit_test(the_problems_alignment_rounds_sizes_too),
        cmocka_unit_test(empty_buffers_keep_their_rules),
        cmocka_unit_test(random_places_are_judged_like_all_pairs),
        cmocka_unit_test(many_buffers_are_checked),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Welding: each rule alone, that a plan of what is left is a plan of the whole, and that rectangles cut apart
 * come together again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/merge/weld.h"
#include "planner/problem/bound.h"

#define BUFFER(from, to, bytes)                                                                \
    {                                                                                          \
        .lower = (from), .upper = (to), .size_bytes = (bytes), .fixed_offset = BERTH_NO_OFFSET \
    }

/* How many items are left of the buffers at a level. */
static uint32_t left_of(const berth_problem_buffer *buffers, size_t count, berth__weld_level level)
{
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = count};
    berth__prepared prepared;
    berth__welded welded;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    berth__search search = search_of(&prepared);
    assert_int_equal(berth__weld(&prepared, level, 0, &search, &welded), BERTH_OK);
    const uint32_t left = welded.prepared.item_count;
    berth__welded_finish(&welded);
    berth__prepared_finish(&prepared);
    return left;
}

static void test_successors(void **state)
{
    (void)state;
    /* A chain of three, beside one that lives throughout. */
    const berth_problem_buffer chain[] = {BUFFER(0, 3, 7), BUFFER(3, 5, 7), BUFFER(5, 9, 7), BUFFER(0, 9, 2)};
    assert_int_equal(left_of(chain, 4, BERTH__WELD_SUCCESSORS), 2);
    /* Two of a size start where one ends: nobody can tell which follows. */
    const berth_problem_buffer unclear[] = {BUFFER(0, 3, 7), BUFFER(3, 5, 7), BUFFER(3, 9, 7),
                                            BUFFER(0, 9, 2)};
    assert_int_equal(left_of(unclear, 4, BERTH__WELD_SUCCESSORS), 4);
    berth_problem_buffer pinned[] = {BUFFER(0, 3, 7), BUFFER(3, 5, 7), BUFFER(0, 5, 1)};
    assert_int_equal(left_of(pinned, 3, BERTH__WELD_SUCCESSORS), 2);
    pinned[1].fixed_offset = 14;
    assert_int_equal(left_of(pinned, 3, BERTH__WELD_SUCCESSORS), 3);
}

static void test_alignments(void **state)
{
    (void)state;
    /* One that satisfies both is a multiple of both; where there is none of the two, nothing is welded. */
    berth_problem_buffer chain[] = {BUFFER(0, 3, 6), BUFFER(3, 5, 6), BUFFER(0, 5, 1)};
    chain[0].alignment = 2;
    chain[1].alignment = 4;
    assert_int_equal(left_of(chain, 3, BERTH__WELD_SUCCESSORS), 2);
    /* In a stack the upper one must start aligned: 3 + 4 make 7, but 4 aligned to 4 does not lie on 3. */
    berth_problem_buffer stack[] = {BUFFER(0, 3, 7), BUFFER(3, 5, 3), BUFFER(3, 5, 4)};
    assert_int_equal(left_of(stack, 3, BERTH__WELD_SUCCESSORS), 1);
    stack[2].alignment = 4;
    assert_int_equal(left_of(stack, 3, BERTH__WELD_SUCCESSORS), 3);
}

static void test_stacks(void **state)
{
    (void)state;
    const berth_problem_buffer three[] = {BUFFER(0, 3, 9), BUFFER(3, 5, 2), BUFFER(3, 5, 3),
                                          BUFFER(3, 5, 4), BUFFER(5, 8, 9), BUFFER(0, 8, 1)};
    assert_int_equal(left_of(three, 6, BERTH__WELD_SUCCESSORS), 2);
    /* What starts and ends together, with nothing that says so, only at the second level. */
    const berth_problem_buffer together[] = {BUFFER(0, 3, 9), BUFFER(3, 5, 2), BUFFER(3, 5, 5),
                                             BUFFER(0, 5, 1), BUFFER(0, 3, 4)};
    assert_int_equal(left_of(together, 5, BERTH__WELD_SUCCESSORS), 5);
    assert_true(left_of(together, 5, BERTH__WELD_COLUMNS) < 5);
}

/* A moment at which nothing ends any more is none: what starts there might as well have started before. */
static void test_moments_go(void **state)
{
    (void)state;
    const berth_problem_buffer buffers[] = {BUFFER(0, 2, 5), BUFFER(2, 4, 5), BUFFER(2, 4, 3),
                                            BUFFER(4, 6, 3), BUFFER(0, 6, 9)};
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 5};
    berth__prepared prepared;
    berth__welded welded;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    berth__search search = search_of(&prepared);
    assert_int_equal(berth__weld(&prepared, BERTH__WELD_SUCCESSORS, 0, &search, &welded), BERTH_OK);
    assert_int_equal(prepared.column_count, 3);
    assert_int_equal(welded.prepared.item_count, 3);
    assert_int_equal(welded.prepared.column_count, 1);
    berth__welded_finish(&welded);
    berth__prepared_finish(&prepared);
}

static const random_shape shapes[] = {
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 64},
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 3, .largest_gap = 3},
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 1, .alias_groups = 6},
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 1, .alignments = 7},
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 1, .pinned_percent = 20},
    {.buffers = 60, .times = 12, .sizes = 6, .unit = 1, .full = 30},
    {.buffers = 60,
     .times = 12,
     .sizes = 6,
     .unit = 2,
     .largest_gap = 2,
     .alias_groups = 3,
     .alignments = 4,
     .pinned_percent = 10,
     .rounding = 3},
};

/* The lowest place for one item after another that is on none of those before it. */
static void plan_simply(const berth__prepared *p, uint64_t *offsets)
{
    for (int pinned = 1; pinned >= 0; pinned--)
        for (uint32_t i = 0; i < p->item_count; i++) {
            const bool is_pinned = berth__item_fixed(p, i) != BERTH_NO_OFFSET;
            if (is_pinned != (pinned == 1))
                continue;
            uint64_t at = is_pinned ? berth__item_fixed(p, i) : 0;
            for (bool moved = !is_pinned; moved;) {
                moved = false;
                at = berth__item_align(p, i, at);
                for (uint32_t j = 0; j < p->item_count; j++) {
                    bool is_placed = berth__item_fixed(p, j) != BERTH_NO_OFFSET || (!is_pinned && j < i);
                    if (j == i || !is_placed || p->lower[j] >= p->upper[i] || p->lower[i] >= p->upper[j])
                        continue;
                    if (at < offsets[j] + p->size[j] && offsets[j] < at + p->size[i]) {
                        at = offsets[j] + p->size[j];
                        moved = true;
                    }
                }
            }
            offsets[i] = at;
        }
}

/* A plan of what is left, expanded, is a plan; nothing is gained or lost at any time. */
static void test_plans_expand(void **state)
{
    (void)state;
    unsigned welds = 0;
    for (uint64_t seed = 0; seed < 700; seed++) {
        random_problem random;
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        berth__prepared prepared;
        if (berth_problem_validate(&random.problem) != BERTH_OK)
            continue;
        assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
        for (int level = 0; level < BERTH__WELD_LEVELS; level++) {
            berth__welded welded;
            berth__search search = search_of(&prepared);
            uint64_t offsets[RANDOM_BUFFERS], expanded[RANDOM_BUFFERS], bytes[RANDOM_BUFFERS], load[128],
                most = 0;
            assert_int_equal(berth__weld(&prepared, (berth__weld_level)level, 0, &search, &welded), BERTH_OK);
            welds += prepared.item_count - welded.prepared.item_count;
            berth__bound_loads(&welded.prepared, load);
            for (uint32_t t = 0; t < welded.prepared.column_count; t++)
                most = load[t] > most ? load[t] : most;
            assert_int_equal(most, prepared.max_live);
            plan_simply(&welded.prepared, offsets);
            berth__welded_expand(&welded, offsets, expanded);
            berth__prepared_expand(&prepared, expanded, bytes);
            berth_verdict verdict = {.struct_size = sizeof verdict};
            if (berth_problem_check(&random.problem, bytes, &verdict) != BERTH_OK)
                fail_msg("seed %llu: %s", (unsigned long long)seed, verdict.words);
            for (uint32_t i = 1; i < welded.prepared.item_count; i++)
                assert_true(welded.prepared.lower[i - 1] <= welded.prepared.lower[i]);
            berth__welded_finish(&welded);
        }
        berth__prepared_finish(&prepared);
    }
    assert_true(welds > 2000);
}

/* What was cut apart with fine cuts comes together again. */
static void test_tilings_come_together(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        berth_problem problem;
        family_make(&families[3], 1000, seed, &problem);
        assert_true(left_of(problem.buffers, problem.buffer_count, BERTH__WELD_COLUMNS) < 30);
        family_free(&problem);
    }
}

/* Through `auto`: tilings of tens of thousands exactly, and without waste. */
static void test_large_tilings_are_solved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 3; seed++) {
        berth_problem problem;
        uint64_t optimum = family_make(&families[3], 20000, seed, &problem);
        uint64_t *offsets = malloc(problem.buffer_count * sizeof *offsets);
        berth_certificate c = {.struct_size = sizeof c};
        assert_int_equal(berth_solve(&problem, NULL, offsets, &c), BERTH_OK);
        assert_int_equal(berth_problem_check(&problem, offsets, NULL), BERTH_OK);
        assert_int_equal(c.peak_bytes, optimum);
        assert_true(c.proven_optimal);
        free(offsets);
        family_free(&problem);
    }
}

static void test_memory(void **state)
{
    (void)state;
    random_problem random;
    random_problem_make(&random, &shapes[BERTH_COUNT_OF(shapes) - 1], 4);
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
    const uint64_t before = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status != BERTH_OK; n++) {
        berth__welded welded;
        berth__search search = search_of(&prepared);
        berth__heap_fail_at(n, false);
        status = berth__weld(&prepared, BERTH__WELD_COLUMNS, 0, &search, &welded);
        berth__heap_fail_at(0, false);
        if (status == BERTH_OK)
            berth__welded_finish(&welded);
        assert_int_equal(berth__heap_live(), before);
    }
    berth__prepared_finish(&prepared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_successors),   cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_stacks),       cmocka_unit_test(test_moments_go),
        cmocka_unit_test(test_plans_expand), cmocka_unit_test(test_tilings_come_together),
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_large_tilings_are_solved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

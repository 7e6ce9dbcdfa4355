/* Parts of a problem: whoever lives together in the whole does in the part, nobody else, and what is most live is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/problem/subset.h"

static const random_shape shapes[] = {
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 64},
    {.buffers = 60, .times = 200, .sizes = 9, .unit = 3},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alignments = 7},
};

/* Some of the items, in any order. */
static uint32_t draw_list(const berth__prepared *p, uint64_t *random, uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->item_count; i++)
        if (random_below(random, 3) == 0) {
            const uint32_t at = random_below(random, count + 1);
            list[count++] = list[at];
            list[at] = i;
        }
    return count;
}

static bool meet(const berth__prepared *p, uint32_t a, uint32_t b)
{
    return p->lower[a] < p->upper[b] && p->lower[b] < p->upper[a];
}

static void expect_a_part(const berth__prepared *whole, const berth__subset *part)
{
    const berth__prepared *s = &part->prepared;
    uint64_t most = 0;
    assert_true(berth__prepared_is_valid(s));
    for (uint32_t a = 0; a < s->item_count; a++) {
        uint64_t live = 0;
        assert_int_equal(s->size[a], whole->size[part->item[a]]);
        assert_int_equal(berth__item_alignment(s, a), berth__item_alignment(whole, part->item[a]));
        for (uint32_t b = 0; b < s->item_count; b++) {
            assert_int_equal(meet(s, a, b), meet(whole, part->item[a], part->item[b]));
            live += s->lower[b] <= s->lower[a] && s->lower[a] < s->upper[b] ? s->size[b] : 0;
        }
        most = live > most ? live : most;
    }
    assert_int_equal(most, s->max_live); /* it is reached where something begins */
}

static void test_a_part_is_a_problem(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        random_problem random;
        berth__prepared p;
        berth__subset part;
        uint32_t list[RANDOM_BUFFERS];
        uint64_t draw = seed;
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        const uint32_t count = draw_list(&p, &draw, list);
        if (count) {
            assert_int_equal(berth__subset_init(&part, &p, list, count), BERTH_OK);
            assert_int_equal(part.prepared.item_count, count);
            expect_a_part(&p, &part);
            berth__subset_finish(&part);
        }
        berth__prepared_finish(&p);
    }
}

/* Where few are left, few columns are. */
static void test_columns_of_nobody_go(void **state)
{
    (void)state;
    berth_problem_buffer buffers[9];
    for (uint64_t i = 0; i < 8; i++)
        family_buffer(&buffers[i], 2 * i, 1, 1 + i);
    family_buffer(&buffers[8], 0, 16, 100);
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 9};
    berth__prepared p;
    berth__subset part;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    assert_int_equal(p.column_count, 8);
    uint32_t list[3], count = 0;
    for (uint32_t i = 0; i < p.item_count; i++)
        if (p.size[i] == 100 || p.size[i] == 3 || p.size[i] == 8)
            list[count++] = i;
    assert_int_equal(berth__subset_init(&part, &p, list, count), BERTH_OK);
    assert_int_equal(part.prepared.column_count, 2);
    assert_int_equal(part.prepared.max_live, 108);
    berth__subset_finish(&part);
    berth__prepared_finish(&p);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    random_problem random;
    berth__prepared p;
    uint32_t list[RANDOM_BUFFERS];
    random_problem_make(&random, &shapes[2], 3);
    assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
    for (uint32_t i = 0; i < p.item_count; i++)
        list[i] = i;
    const uint64_t live = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
        berth__subset part;
        berth__heap_fail_at(n, false);
        status = berth__subset_init(&part, &p, list, p.item_count);
        berth__heap_fail_at(0, false);
        berth__subset_finish(&part);
        assert_int_equal(berth__heap_live(), live);
        assert_true(n < 100);
    }
    assert_int_equal(status, BERTH_OK);
    berth__prepared_finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_part_is_a_problem),
        cmocka_unit_test(test_columns_of_nobody_go),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Plans in several pieces: every allocation has a place, no two that are alive together share a byte, no piece is larger
 * than it may be, and alignments hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

/* The content of a plan; the caller releases it. */
static berth__plan_content *content_of(const berth_plan_allocation *a, size_t count)
{
    berth_plan *plan = NULL;
    berth__plan_content *content = NULL;
    berth_solve_options options = BERTH_SOLVE_OPTIONS_INIT;
    options.step_budget = 1000; /* any plan will do */
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, a, count, &options), BERTH_OK);
    assert_int_equal(berth__plan_content_of(plan, &content), BERTH_OK);
    berth_plan_release(plan);
    return content;
}

static uint64_t end_of(const berth__plan_content *c, const berth__plan_split *s, uint32_t id)
{
    return s->offsets[id] + c->entries[id].size_bytes;
}

static bool share_a_byte(const berth__plan_content *c, const berth__plan_split *s, uint32_t a, uint32_t b)
{
    return s->pieces[a] == s->pieces[b] && s->offsets[a] < end_of(c, s, b) && s->offsets[b] < end_of(c, s, a);
}

/* Knows nothing of how a plan is divided. */
static void check(const berth__plan_content *c, const berth__plan_split *s, uint64_t most, uint64_t alignment)
{
    for (size_t i = 0; i < s->piece_count; i++)
        assert_true(s->piece_bytes[i] > 0 && s->piece_bytes[i] <= most);
    for (uint32_t i = 0; i < c->count; i++) {
        const berth__plan_entry *e = &c->entries[i];
        if (e->rank == BERTH__NO_RANK)
            continue;
        assert_true(s->pieces[i] < s->piece_count);
        assert_true(end_of(c, s, i) <= s->piece_bytes[s->pieces[i]]);
        uint64_t kept = e->alignment < alignment ? e->alignment : alignment;
        assert_int_equal(s->offsets[i] % kept, 0);
        for (uint32_t k = i + 1; k < c->count && k < e->freed_at; k++)
            if (c->entries[k].rank != BERTH__NO_RANK && share_a_byte(c, s, i, k))
                fail_msg("%u and %u are alive together and share bytes", i, k);
    }
}

static uint64_t sum_of(const berth__plan_split *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->piece_count; i++)
        sum += s->piece_bytes[i];
    return sum;
}

static size_t random_plan(uint64_t *seed, berth_plan_allocation *a, size_t most)
{
    size_t count = 2 + (size_t)draw(seed, most - 2);
    for (size_t i = 0; i < count; i++) {
        a[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        a[i].size_bytes = 1 + draw(seed, draw(seed, 4) ? 1000 : 20000);
        a[i].alignment = (uint64_t)1 << draw(seed, 9);
        a[i].freed_at = i + 1 + draw(seed, count - i);
        if (draw(seed, 20) == 0)
            a[i].freed_at = BERTH_NEVER_FREED;
    }
    return count;
}

static void test_random_plans_in_pieces_of_any_size(void **state)
{
    (void)state;
    enum { PLANS = 150, MOST = 60 };
    berth_plan_allocation a[MOST];
    uint64_t seed = 3;
    for (int plan = 0; plan < PLANS; plan++) {
        berth__plan_content *c = content_of(a, random_plan(&seed, a, MOST));
        uint64_t alignment = c->alignment > 64 ? c->alignment : 64, most = c->total_bytes;
        for (; c->rank_count > 0; most = most / 2 > c->largest_bytes ? most / 2 : c->largest_bytes) {
            berth__plan_split split;
            assert_int_equal(berth__plan_split_make(c, most, alignment, &split), BERTH_OK);
            check(c, &split, most, alignment);
            if (most >= c->total_bytes)
                assert_int_equal(split.piece_count, 1);
            assert_true(sum_of(&split) <=
                        c->total_bytes + split.piece_count * (c->largest_bytes + alignment));
            berth__plan_split_finish(&split);
            if (most == c->largest_bytes)
                break;
        }
        berth__plan_content_release(c);
    }
}

/* Pieces begin at multiples of the alignment, so none is small enough; a device then refuses it. It ends. */
static void test_an_alignment_larger_than_a_piece(void **state)
{
    (void)state;
    enum { PLANS = 20, MOST = 60 };
    berth_plan_allocation a[MOST];
    uint64_t seed = 5;
    for (int plan = 0; plan < PLANS; plan++) {
        berth__plan_content *c = content_of(a, random_plan(&seed, a, MOST));
        berth__plan_split split;
        assert_int_equal(berth__plan_split_make(c, c->largest_bytes, (uint64_t)1 << 30, &split), BERTH_OK);
        check(c, &split, UINT64_MAX, (uint64_t)1 << 30);
        berth__plan_split_finish(&split);
        berth__plan_content_release(c);
    }
}

/* Where nothing lies across, nothing is moved and nothing is wasted. */
static void test_clean_cuts_cost_nothing(void **state)
{
    (void)state;
    enum { COUNT = 8, BYTES = 4096 };
    berth_plan_allocation a[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        a[i].size_bytes = BYTES;
        a[i].alignment = 64;
        a[i].freed_at = COUNT; /* all alive together */
    }
    berth__plan_content *c = content_of(a, COUNT);
    berth__plan_split split;
    assert_int_equal(berth__plan_split_make(c, 2 * BYTES + 100, 64, &split), BERTH_OK);
    assert_int_equal(split.piece_count, COUNT / 2);
    assert_int_equal(sum_of(&split), (uint64_t)COUNT * BYTES);
    check(c, &split, 2 * BYTES + 100, 64);
    berth__plan_split_finish(&split);
    berth__plan_content_release(c);
}

/* Relocated: the same plan at the places of its pieces, wherever these are. */
static void test_relocated_plans(void **state)
{
    (void)state;
    enum { MOST = 60 };
    berth_plan_allocation a[MOST];
    uint64_t seed = 77;
    for (int plan = 0; plan < 30; plan++) {
        berth__plan_content *c = content_of(a, random_plan(&seed, a, MOST)), *moved = NULL;
        berth__plan_split split;
        assert_int_equal(berth__plan_split_make(c, c->largest_bytes, 512, &split), BERTH_OK);
        uint64_t distances[2 * MOST + 2];
        for (size_t i = 0; i < split.piece_count; i++) /* the other way round */
            distances[i] = (split.piece_count - 1 - i) * ((uint64_t)1 << 30);
        assert_int_equal(berth__plan_relocate(c, &split, distances, &moved), BERTH_OK);
        assert_int_equal(moved->planned, c->planned);
        assert_int_equal(moved->step_count, c->step_count);
        assert_int_equal(moved->total_bytes, sum_of(&split));
        assert_ptr_equal(moved->whole, c);
        for (uint32_t i = 0; i < c->count; i++) {
            if (c->entries[i].rank == BERTH__NO_RANK)
                continue;
            assert_int_equal(moved->entries[i].offset, distances[split.pieces[i]] + split.offsets[i]);
            assert_true(berth__plan_rank(moved, moved->entries[i].offset) == moved->entries[i].rank);
            assert_int_equal(moved->steps[moved->entries[i].step].offset, moved->entries[i].offset);
        }
        berth__plan_content_release(moved);
        berth__plan_split_finish(&split);
        berth__plan_content_release(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans_in_pieces_of_any_size),
        cmocka_unit_test(test_an_alignment_larger_than_a_piece),
        cmocka_unit_test(test_clean_cuts_cost_nothing),
        cmocka_unit_test(test_relocated_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

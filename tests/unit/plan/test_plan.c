/* The plan object: made from allocations, proven, laid out, joined and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

static berth_plan_allocation one(uint64_t size, uint64_t alignment, uint64_t freed_at, const char *label)
{
    berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
    a.size_bytes = size;
    a.alignment = alignment;
    a.freed_at = freed_at;
    a.label = label;
    return a;
}

static berth_plan *plan_of(const berth_plan_allocation *a, size_t count)
{
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, a, count, NULL), BERTH_OK);
    return plan;
}

static void test_a_plan_tells_what_it_holds(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(100, 64, 2, "x"), one(50, 1, 3, NULL),
                                 one(10, 8, BERTH_NEVER_FREED, "y"), one(100, 64, 4, "x")};
    berth_plan *plan = plan_of(a, 4);
    assert_int_equal(berth_plan_count(plan), 4);
    assert_int_equal(berth_plan_total_bytes(plan), 150);
    for (size_t i = 0; i < 4; i++) {
        berth_plan_allocation got = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(plan, i, &got), BERTH_OK);
        assert_int_equal(got.size_bytes, a[i].size_bytes);
        assert_true(got.freed_at == a[i].freed_at);
        assert_int_equal(got.offset == BERTH_NO_OFFSET, i == 2);
        if (i != 2)
            assert_int_equal(got.offset % a[i].alignment, 0);
        if (a[i].label)
            assert_string_equal(got.label, a[i].label);
        else
            assert_null(got.label);
    }
    berth_plan_allocation none = BERTH_PLAN_ALLOCATION_INIT;
    assert_int_equal(berth_plan_get(plan, 4, &none), BERTH_NOT_FOUND);
    berth_certificate c = {.struct_size = sizeof c};
    assert_int_equal(berth_plan_certificate(plan, &c), BERTH_OK);
    assert_int_equal(c.peak_bytes, 150);
    assert_int_equal(c.max_live_bytes, 150);
    assert_true(berth_plan_memory_bytes(plan) > 4 * sizeof none);
    assert_int_equal(berth_plan_clear(plan), BERTH_OK);
    assert_int_equal(berth_plan_count(plan), 0);
    assert_int_equal(berth_plan_total_bytes(plan), 0);
    assert_int_equal(berth_plan_fingerprint(plan), 0);
    berth_plan_release(plan);
}

/* Of offsets that were given only the bound is known; of those that were found, how. */
static void test_a_certificate_says_how_offsets_came(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(100, 64, 2, NULL), one(50, 1, 3, NULL), one(100, 64, 3, NULL)};
    berth_plan *plan = plan_of(a, 3);
    berth_certificate found = {.struct_size = sizeof found}, given = found;
    assert_int_equal(berth_plan_certificate(plan, &found), BERTH_OK);
    assert_string_not_equal(found.solver, "given");
    assert_int_equal(found.naive_bytes, 250);
    assert_true(found.proven_optimal && found.steps > 0);
    a[0].offset = 0;
    a[1].offset = 100;
    a[2].offset = 192;
    assert_int_equal(berth_plan_set(plan, a, 3, NULL), BERTH_OK);
    assert_int_equal(berth_plan_certificate(plan, &given), BERTH_OK);
    assert_string_equal(given.solver, "given");
    assert_int_equal(given.naive_bytes, 250);
    assert_int_equal(given.peak_bytes, 292);
    assert_int_equal(given.lower_bound_bytes, 150);
    assert_true(!given.proven_optimal && given.fits == BERTH_FITS_YES && given.steps == 0);
    assert_true(given.fingerprint == found.fingerprint);
    berth_plan_release(plan);
}

static void test_steps_free_before_they_allocate(void **state)
{
    (void)state;
    /* +0 +1 -0 +2 (never) +3 -3 -1: frees of one place in the order of ids, for want of a better one */
    berth_plan_allocation a[] = {one(8, 1, 2, NULL), one(8, 1, 4, NULL), one(8, 1, BERTH_NEVER_FREED, NULL),
                                 one(8, 1, 4, NULL)};
    berth_plan *plan = plan_of(a, 4);
    const berth__plan_content *c = plan->content;
    static const uint32_t ids[] = {0, 1, 0, 2, 3, 1, 3};
    static const bool allocates[] = {true, true, false, true, true, false, false};
    assert_int_equal(c->step_count, 7);
    for (uint32_t s = 0; s < 7; s++) {
        assert_int_equal(c->step_ids[s], ids[s]);
        assert_int_equal(c->entries[ids[s]].step == s, allocates[s]);
        assert_int_equal(c->steps[s].size_bytes, allocates[s] && ids[s] != 2 ? 8 : BERTH_STEP_FREE);
    }
    assert_int_equal(c->steps[7].size_bytes, BERTH_STEP_FREE);
    assert_true(c->steps[7].offset == BERTH__NOWHERE);
    assert_int_equal(c->live_bytes[0], 8);
    assert_int_equal(c->live_bytes[1], 16);
    assert_int_equal(c->live_bytes[2], 8);
    assert_int_equal(c->live_bytes[3], 16);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            assert_int_equal(c->rank_offsets[berth__plan_rank(c, c->entries[i].offset)],
                             c->entries[i].offset);
    assert_int_equal(berth__plan_rank(c, 1), BERTH__NO_RANK);
    berth_plan_release(plan);
}

static void test_what_makes_no_plan(void **state)
{
    (void)state;
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    berth_plan_allocation good = one(8, 1, 1, NULL);
    berth_plan_allocation bad[] = {
        one(0, 1, 1, NULL), one(8, 3, 1, NULL), one(8, 1, 0, NULL), one(8, 1, 2, NULL), {0}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(berth_plan_set(plan, &good, 1, NULL), BERTH_OK);
        assert_int_equal(berth_plan_set(plan, &bad[i], 1, NULL), BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_plan_count(plan), 0);
    }
    assert_int_equal(berth_plan_set(plan, NULL, 1, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_set(NULL, &good, 1, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_set(plan, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_plan_create(NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_clear(NULL), BERTH_INVALID_ARGUMENT);
    berth_plan_release(plan);
    berth_plan_release(NULL);
}

static void test_given_offsets_are_proven(void **state)
{
    (void)state;
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    berth_plan_allocation a[] = {one(100, 64, 2, NULL), one(100, 64, 2, NULL)};
    a[0].offset = 128;
    a[1].offset = 0;
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_OK);
    assert_int_equal(berth_plan_total_bytes(plan), 228);
    a[1].offset = 64;
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_MISMATCH); /* overlap */
    a[1].offset = 300;
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_MISMATCH); /* not aligned */
    a[1].offset = BERTH_NO_OFFSET;
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_INVALID_ARGUMENT); /* one of two */
    /* Solving again makes it as small as can be. */
    a[1].offset = 512;
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_OK);
    assert_int_equal(berth_plan_total_bytes(plan), 612);
    assert_int_equal(berth_plan_solve(plan, NULL), BERTH_OK);
    assert_int_equal(berth_plan_total_bytes(plan), 228);
    berth_plan_release(plan);
}

static void test_agreed_places_are_proven_and_taken(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(100, 64, 3, "a"), one(100, 64, 3, "b"),
                                 one(8, 1, BERTH_NEVER_FREED, "c")};
    berth_plan *plan = plan_of(a, 3);
    const uint64_t print = berth_plan_fingerprint(plan);
    berth_plan_allocation got = BERTH_PLAN_ALLOCATION_INIT;
    const uint64_t far[] = {4096, 64, BERTH_NO_OFFSET}, close[] = {0, 64, 0}, crooked[] = {0, 300, 0};
    const uint64_t missing[] = {0, BERTH_NO_OFFSET, 0}, huge[] = {0, UINT64_MAX - 63, 0};
    assert_int_equal(berth_plan_place(plan, far, 3), BERTH_OK);
    assert_int_equal(berth_plan_total_bytes(plan), 4196);
    assert_true(berth_plan_fingerprint(plan) == print);
    /* what is refused leaves the plan as it was */
    assert_int_equal(berth_plan_place(plan, close, 3), BERTH_MISMATCH);
    assert_int_equal(berth_plan_place(plan, crooked, 3), BERTH_MISMATCH);
    assert_int_equal(berth_plan_place(plan, missing, 3), BERTH_INVALID_ARGUMENT);
    assert_int_not_equal(berth_plan_place(plan, huge, 3), BERTH_OK);
    assert_int_equal(berth_plan_place(plan, far, 2), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_place(plan, NULL, 3), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_place(NULL, far, 3), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_get(plan, 0, &got), BERTH_OK);
    assert_int_equal(got.offset, 4096);
    assert_int_equal(berth_plan_get(plan, 2, &got), BERTH_OK);
    assert_true(got.offset == BERTH_NO_OFFSET && got.freed_at == BERTH_NEVER_FREED);
    assert_int_equal(berth_plan_clear(plan), BERTH_OK);
    assert_int_equal(berth_plan_place(plan, NULL, 0), BERTH_OK);
    berth_plan_release(plan);
}

static void test_fingerprints_tell_programs_apart(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(8, 1, 1, "a"), one(8, 1, 3, "b"), one(8, 1, BERTH_NEVER_FREED, "c")};
    berth_plan *plan = plan_of(a, 3);
    uint64_t print = berth_plan_fingerprint(plan);
    assert_true(print != 0);
    assert_int_equal(berth_plan_set(plan, a, 3, NULL), BERTH_OK);
    assert_true(berth_plan_fingerprint(plan) == print);
    a[0].label = "other"; /* names are not what is planned */
    assert_int_equal(berth_plan_set(plan, a, 3, NULL), BERTH_OK);
    assert_true(berth_plan_fingerprint(plan) == print);
    a[2].size_bytes = 9;
    assert_int_equal(berth_plan_set(plan, a, 3, NULL), BERTH_OK);
    assert_true(berth_plan_fingerprint(plan) != print);
    a[2].size_bytes = 8;
    a[0].freed_at = 2;
    assert_int_equal(berth_plan_set(plan, a, 3, NULL), BERTH_OK);
    assert_true(berth_plan_fingerprint(plan) != print);
    berth_plan_release(plan);
}

static void test_an_envelope_is_the_largest_and_longest(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(100, 64, 1, "x"), one(10, 1, 2, "y"), one(70, 8, 3, "z")};
    berth_plan_allocation b[] = {one(50, 128, 3, "x"), one(20, 1, 2, "y"),
                                 one(60, 8, BERTH_NEVER_FREED, "z")};
    berth_plan *parts[2] = {plan_of(a, 3), plan_of(b, 3)}, *all = NULL;
    assert_int_equal(berth_plan_create(&all), BERTH_OK);
    assert_int_equal(berth_plan_join(all, parts, 2, NULL), BERTH_OK);
    static const uint64_t size[] = {100, 20, 70}, alignment[] = {128, 1, 8},
                          freed_at[] = {3, 2, BERTH_NEVER_FREED};
    assert_int_equal(berth_plan_count(all), 3);
    for (size_t i = 0; i < 3; i++) {
        berth_plan_allocation got = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(all, i, &got), BERTH_OK);
        assert_int_equal(got.size_bytes, size[i]);
        assert_int_equal(got.alignment, alignment[i]);
        assert_true(got.freed_at == freed_at[i]);
    }
    berth_plan *turned[2] = {parts[1], parts[0]}, *other = NULL;
    assert_int_equal(berth_plan_create(&other), BERTH_OK);
    assert_int_equal(berth_plan_join(other, turned, 2, NULL), BERTH_OK); /* whichever comes first */
    assert_true(berth_plan_fingerprint(other) == berth_plan_fingerprint(all));
    berth_plan_release(other);
    assert_int_equal(berth_plan_join(parts[0], parts, 2, NULL), BERTH_OK); /* into one of them */
    assert_true(berth_plan_fingerprint(parts[0]) == berth_plan_fingerprint(all));
    assert_int_equal(berth_plan_join(all, parts, 0, NULL), BERTH_INVALID_ARGUMENT);
    berth_plan_release(all);
    berth_plan_release(parts[0]);
    berth_plan_release(parts[1]);
}

static void test_an_envelope_ends_where_recordings_part(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(8, 1, 3, "x"), one(8, 1, 2, "y"), one(8, 1, 3, "z")};
    berth_plan_allocation b[] = {one(8, 1, 3, "x"), one(8, 1, 2, "y"), one(8, 1, 3, "other")};
    berth_plan *parts[2] = {plan_of(a, 3), plan_of(b, 3)}, *all = NULL;
    assert_int_equal(berth_plan_create(&all), BERTH_OK);
    assert_int_equal(berth_plan_join(all, parts, 2, NULL), BERTH_OK);
    assert_int_equal(berth_plan_count(all), 2);
    berth_plan_allocation got = BERTH_PLAN_ALLOCATION_INIT;
    assert_int_equal(berth_plan_get(all, 0, &got), BERTH_OK);
    assert_int_equal(got.freed_at, 2); /* it was freed later: at the end */
    berth_plan_release(parts[1]);
    berth_plan_allocation c[] = {one(9, 1, 1, "x")};
    parts[1] = plan_of(c, 1); /* one that is shorter */
    assert_int_equal(berth_plan_join(all, parts, 2, NULL), BERTH_OK);
    assert_int_equal(berth_plan_count(all), 1);
    assert_int_equal(berth_plan_total_bytes(all), 9);
    berth_plan_release(all);
    berth_plan_release(parts[0]);
    berth_plan_release(parts[1]);
}

static void test_how_much_of_a_stale_plan_fits(void **state)
{
    (void)state;
    berth_plan_allocation a[] = {one(100, 64, 2, "x"), one(10, 1, 2, "y"), one(70, 8, 3, "z")};
    berth_plan_allocation b[] = {one(90, 64, 2, "x"), one(20, 1, 2, "y"), one(70, 8, 3, "z"),
                                 one(5, 1, 4, NULL)};
    berth_plan *kept = plan_of(a, 3), *now = plan_of(b, 4), *same = plan_of(a, 3);
    berth_plan_fit fit = {.struct_size = sizeof fit};
    assert_int_equal(berth_plan_compare(kept, same, &fit), BERTH_OK);
    assert_int_equal(fit.fitting, 3);
    assert_true(fit.first_difference == BERTH_NEVER_FREED);
    assert_int_equal(berth_plan_compare(kept, now, &fit), BERTH_MISMATCH);
    assert_int_equal(fit.allocations, 4);
    assert_int_equal(fit.fitting, 2);
    assert_int_equal(fit.bytes, 185);
    assert_int_equal(fit.fitting_bytes, 160);
    assert_int_equal(fit.first_difference, 0);
    assert_non_null(strstr(fit.words, "100 bytes"));
    assert_int_equal(berth_plan_compare(now, kept, &fit), BERTH_MISMATCH);
    berth_plan_allocation c[] = {one(100, 64, 2, "x"), one(10, 4, 2, "y"), one(70, 8, 3, "z")};
    berth_plan *stricter = plan_of(c, 3); /* an alignment alone */
    assert_int_equal(berth_plan_compare(kept, stricter, &fit), BERTH_MISMATCH);
    assert_int_equal(fit.first_difference, 1);
    assert_int_equal(fit.fitting, 2);
    berth_plan_release(stricter);
    assert_int_equal(berth_plan_compare(kept, NULL, &fit), BERTH_INVALID_ARGUMENT);
    berth_plan_release(kept);
    berth_plan_release(now);
    berth_plan_release(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_tells_what_it_holds),
        cmocka_unit_test(test_a_certificate_says_how_offsets_came),
        cmocka_unit_test(test_steps_free_before_they_allocate),
        cmocka_unit_test(test_what_makes_no_plan),
        cmocka_unit_test(test_given_offsets_are_proven),
        cmocka_unit_test(test_agreed_places_are_proven_and_taken),
        cmocka_unit_test(test_fingerprints_tell_programs_apart),
        cmocka_unit_test(test_an_envelope_is_the_largest_and_longest),
        cmocka_unit_test(test_an_envelope_ends_where_recordings_part),
        cmocka_unit_test(test_how_much_of_a_stale_plan_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Replay: the plan is followed, what is not in it goes to the fallback or is refused, and nothing that a
 * program does wrong with its pointers is undefined. */
#include "usual.h"

static void test_recorded_then_served_from_one_block(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    for (int round = 0; round < 3; round++) {
        berth_report report = BERTH_REPORT_INIT;
        program p = usual;
        BERTH_REPLAY(r.planned, &report)
        {
            work(&r, &p);
        }
        assert_int_equal(report.status, BERTH_OK);
        assert_int_equal(report.planned, 3);
        assert_int_equal(report.from_plan, 3);
        assert_int_equal(report.by_fallback, 0);
        assert_int_equal(report.deviation_count, 0);
        assert_int_equal(report.block_bytes, 384);
        assert_int_equal(report.peak_with_plan_bytes, 384);
        assert_int_equal(report.peak_without_plan_bytes, 384);
        assert_ptr_equal(p.pc, p.pa);        /* a's place was free again */
        assert_int_equal(r.inner_allocs, 1); /* the block, kept between runs */
    }
    rig_end(&r);
}

/* The first smaller request could be a stranger, whose place would be lost to the planned one: it costs a
 * fallback. That the planned size does not come shows that the run asks for less; from then on it takes its
 * places, and the peak counts what was asked. */
static void test_a_run_that_asks_for_less_takes_its_places(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    program p = {100, 1, 150, NULL, NULL, NULL};
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r, &p);
    }
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(report.by_fallback, 1);
    assert_int_equal(report.deviation_count, 1);
    assert_int_equal(report.deviations[0].id, 0);
    assert_int_equal(report.fallback_bytes, 100);
    assert_int_equal(report.peak_without_plan_bytes, 151); /* b and c */
    rig_end(&r);
}

/* A plan of two recordings knows the sizes between: no fallback at all. */
static void test_smaller_requests_take_their_place_in_an_envelope(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_plan *small = NULL;
    assert_int_equal(berth_plan_create(&small), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.plan = small;
    program p = {100, 1, 200, NULL, NULL, NULL};
    assert_int_equal(berth_record_begin(r.planned, &options), BERTH_OK);
    work(&r, &p);
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    berth_plan *parts[] = {r.plan, small};
    assert_int_equal(berth_plan_join(r.plan, parts, 2, NULL), BERTH_OK);
    assert_int_equal(berth_plan_solve(r.plan, NULL), BERTH_OK); /* which keeps that */
    static const program runs[] = {{100, 1, 200, 0, 0, 0}, {256, 128, 200, 0, 0, 0}, {180, 60, 200, 0, 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        berth_report report = BERTH_REPORT_INIT;
        p = runs[i];
        BERTH_REPLAY(r.planned, &report)
        {
            work(&r, &p);
        }
        assert_int_equal(report.from_plan, 3);
        assert_int_equal(report.deviation_count, 0);
        uint64_t first = p.a + p.b, second = p.b + p.c;
        assert_int_equal(report.peak_without_plan_bytes, first > second ? first : second);
    }
    berth_plan_release(small);
    rig_end(&r);
}

static void test_a_larger_request_is_served_by_the_fallback_and_named(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    program p = {256, 129, 200, NULL, NULL, NULL};
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r, &p);
    }
    assert_int_equal(report.from_plan, 2); /* back in step for c */
    assert_int_equal(report.by_fallback, 1);
    assert_int_equal(report.deviation_count, 1);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_SIZE);
    assert_int_equal(report.deviations[0].id, 1);
    assert_int_equal(report.deviations[0].expected, 128);
    assert_int_equal(report.deviations[0].got, 129);
    assert_int_equal(report.fallback_bytes, 129);
    assert_int_equal(report.peak_with_plan_bytes, 384 + 129);
    assert_int_equal(report.peak_without_plan_bytes, 256 + 129);
    char text[1024];
    size_t length = berth_report_text(&report, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "2 of 3 planned allocations"));
    assert_non_null(strstr(text, "allocation 1: not the planned size: expected 128 bytes, got 129"));
    rig_end(&r);
}

static void test_strict_refuses_what_is_not_in_the_plan(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_run_options strict = BERTH_RUN_OPTIONS_INIT;
    strict.strict = true;
    assert_int_equal(berth_replay_begin(r.planned, &strict), BERTH_OK);
    void *p = NULL;
    assert_int_equal(berth_allocate(r.planned, 255, 64, NULL, &p), BERTH_MISMATCH); /* smaller too */
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "allocation 0"));
    assert_non_null(strstr(berth_last_error()->message, "expected 256, got 255"));
    assert_int_equal(berth_allocate(r.planned, 257, 64, NULL, &p), BERTH_MISMATCH);
    program q = usual;
    work(&r, &q); /* a refused request moves nothing */
    assert_int_equal(berth_allocate(r.planned, 64, 64, NULL, &p), BERTH_MISMATCH);
    assert_non_null(strstr(berth_last_error()->message, "past the end of the plan"));
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.refused, 3);
    assert_int_equal(report.by_fallback, 0);
    rig_end(&r);
}

static void test_a_block_freed_late_keeps_its_place(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        char *a = take(&r, 256), *b = take(&r, 128);
        memset(a, 1, 256);
        char *c = take(&r, 200); /* a is still there */
        memset(c, 2, 200);
        for (int i = 0; i < 256; i++)
            assert_int_equal(a[i], 1);
        give(&r, a);
        give(&r, c);
        give(&r, b);
    }
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(report.by_fallback, 1);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_HELD);
    assert_int_equal(report.deviations[0].id, 2);
    assert_int_equal(report.deviations[0].got, 0); /* held by allocation 0 */
    rig_end(&r);
}

static void test_strict_tells_of_a_late_free_before_the_pointer_is_out(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_run_options strict = BERTH_RUN_OPTIONS_INIT;
    strict.strict = true;
    assert_int_equal(berth_replay_begin(r.planned, &strict), BERTH_OK);
    void *a = take(&r, 256), *b = take(&r, 128), *c = NULL;
    assert_int_equal(berth_allocate(r.planned, 200, 64, NULL, &c), BERTH_MISMATCH);
    assert_null(c);
    give(&r, a);
    c = take(&r, 200); /* once the place is free, the same request is served */
    assert_ptr_equal(c, a);
    give(&r, c);
    give(&r, b);
    assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
    rig_end(&r);
}

static void test_a_run_with_fewer_allocations(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        give(&r, take(&r, 256));
    }
    assert_int_equal(report.planned, 3);
    assert_int_equal(report.from_plan, 1);
    assert_int_equal(report.stragglers, 0);
    program p = usual;
    BERTH_REPLAY(r.planned, &report) /* and the next run begins at the beginning */
    {
        work(&r, &p);
    }
    assert_int_equal(report.from_plan, 3);
    rig_end(&r);
}

static void test_allocation_past_the_end(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    program p = usual;
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r, &p);
        void *more = take(&r, 64);
        give(&r, more);
        give(&r, take(&r, 1));
    }
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.by_fallback, 2);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_PAST_END);
    assert_int_equal(report.deviations[0].id, 3);
    rig_end(&r);
}

static void test_double_free_is_refused(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        void *a = take(&r, 256), *b = take(&r, 128);
        give(&r, a);
        assert_int_equal(berth_deallocate(r.planned, a, 0, NULL), BERTH_BAD_FREE);
        assert_non_null(strstr(berth_last_error()->message, "freed twice"));
        void *c = take(&r, 200); /* and the run goes on from the plan */
        assert_ptr_equal(c, a);
        give(&r, c);
        give(&r, b);
        assert_int_equal(berth_deallocate(r.planned, b, 0, NULL), BERTH_BAD_FREE);
    }
    assert_int_equal(report.bad_frees, 2);
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(berth_deallocate(r.planned, NULL, 0, NULL), BERTH_OK);
    rig_end(&r);
}

static void test_interior_free_is_refused(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        char *a = take(&r, 256), *b = take(&r, 128);
        assert_int_equal(berth_deallocate(r.planned, a + 64, 0, NULL), BERTH_BAD_FREE);
        assert_non_null(strstr(berth_last_error()->message, "64 bytes inside planned allocation 0"));
        give(&r, a);
        give(&r, b);
    }
    assert_int_equal(report.bad_frees, 1);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_BAD_FREE);
    rig_end(&r);
}

static void test_a_pointer_that_outlives_its_scope(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    char *kept = NULL;
    BERTH_REPLAY(r.planned, &report)
    {
        kept = take(&r, 256);
        memset(kept, 7, 256);
        give(&r, take(&r, 128));
    }
    assert_int_equal(report.stragglers, 1);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_STRAGGLER);
    assert_int_equal(berth_allocator_owns(r.planned, kept + 10), BERTH_OK);
    program p = usual;
    BERTH_REPLAY(r.planned, &report) /* gets another block */
    {
        work(&r, &p);
    }
    assert_int_equal(r.inner_allocs, 2);
    assert_ptr_not_equal(p.pa, kept);
    for (int i = 0; i < 256; i++)
        assert_int_equal(kept[i], 7);
    assert_int_equal(berth_deallocate(r.planned, kept + 1, 0, NULL), BERTH_BAD_FREE);
    give(&r, kept);
    assert_int_equal(berth_deallocate(r.planned, kept, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_allocator_owns(r.planned, kept), BERTH_NOT_FOUND);
    BERTH_REPLAY(r.planned, &report) /* its block is idle again: no third one */
    {
        work(&r, &p);
    }
    assert_int_equal(r.inner_allocs, 2);
    rig_end(&r);
}

static void test_a_straggler_keeps_a_released_allocator_alive(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    char *kept = NULL;
    BERTH_REPLAY(r.planned, NULL)
    {
        kept = take(&r, 256);
    }
    berth_allocator *planned = r.planned;
    berth_allocator_release(planned);
    memset(kept, 1, 256);
    assert_int_equal(r.inner_frees, 0);
    assert_int_equal(berth_deallocate(planned, kept, 0, NULL), BERTH_OK); /* the last: it goes with it */
    r.planned = NULL;
    rig_end(&r);
}

static void test_foreign_pointers_pass_in_every_scope(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    for (int kind = 0; kind < 3; kind++) {
        void *outside = take(&r, 512);
        size_t frees = r.inner_frees;
        if (kind == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else if (kind == 1)
            assert_int_equal(berth_validate_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        give(&r, outside);
        assert_int_equal(r.inner_frees, frees + 1);
        program p = usual;
        work(&r, &p);
        if (kind == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else if (kind == 1)
            assert_int_equal(berth_validate_end(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
    }
    rig_end(&r);
}

static void test_order_of_frees_between_two_allocations_does_not_matter(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    for (int round = 0; round < 3; round++) {
        berth_report report = BERTH_REPORT_INIT;
        berth_difference difference = BERTH_DIFFERENCE_INIT;
        if (round == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else if (round == 1)
            assert_int_equal(berth_validate_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        for (int layer = 0; layer < 10; layer++) {
            void *x = take(&r, 100), *y = take(&r, 200), *z = take(&r, 300);
            give(&r, round ? z : x);
            give(&r, y);
            give(&r, round ? x : z);
        }
        if (round == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else if (round == 1)
            assert_int_equal(berth_validate_end(r.planned, &difference), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        if (round == 2) {
            assert_int_equal(report.from_plan, 30);
            assert_int_equal(report.deviation_count, 0);
        }
    }
    rig_end(&r);
}

static void test_one_stranger_costs_one_fallback(void **state)
{
    (void)state;
    /* Sizes that tell allocations apart; one is inserted, left out or replaced in turn. */
    for (int deviation = 0; deviation < 3; deviation++) {
        rig r;
        rig_begin(&r);
        berth_report report = BERTH_REPORT_INIT;
        for (int round = 0; round < 2; round++) {
            if (round == 0)
                assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
            else
                assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
            for (int i = 0; i < 100; i++) {
                size_t size = 1000 - (size_t)i * 5;
                if (round == 1 && i == 40 && deviation == 0)
                    give(&r, take(&r, 5000)); /* one more */
                if (round == 1 && i == 40 && deviation == 1)
                    continue; /* one less */
                if (round == 1 && i == 40 && deviation == 2)
                    size = 5000; /* another one */
                give(&r, take(&r, size));
            }
            if (round == 0)
                assert_int_equal(berth_record_end(r.planned), BERTH_OK);
            else
                assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        }
        assert_int_equal(report.from_plan, deviation == 0 ? 100 : 99);
        assert_int_equal(report.by_fallback, deviation == 1 ? 0 : 1);
        rig_end(&r);
    }
}

static void test_labels_find_the_way_back(void **state)
{
    (void)state;
    /* All sizes alike or growing: only the labels tell that a whole layer was left out. */
    static const char *const names[] = {"embed", "attention", "mlp", "norm", "head"};
    rig r;
    rig_begin(&r);
    berth_report report = BERTH_REPORT_INIT;
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        for (size_t i = 0; i < 5; i++) {
            if (round == 1 && i == 1)
                continue;
            berth_request request = BERTH_REQUEST_INIT;
            request.label = names[i];
            void *p = NULL;
            assert_int_equal(berth_allocate(r.planned, 100 * (i + 1), 64, &request, &p), BERTH_OK);
            give(&r, p);
        }
        if (round == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    }
    assert_int_equal(report.from_plan, 4);
    assert_int_equal(report.by_fallback, 0);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_then_served_from_one_block),
        cmocka_unit_test(test_a_run_that_asks_for_less_takes_its_places),
        cmocka_unit_test(test_smaller_requests_take_their_place_in_an_envelope),
        cmocka_unit_test(test_a_larger_request_is_served_by_the_fallback_and_named),
        cmocka_unit_test(test_strict_refuses_what_is_not_in_the_plan),
        cmocka_unit_test(test_a_block_freed_late_keeps_its_place),
        cmocka_unit_test(test_strict_tells_of_a_late_free_before_the_pointer_is_out),
        cmocka_unit_test(test_a_run_with_fewer_allocations),
        cmocka_unit_test(test_allocation_past_the_end),
        cmocka_unit_test(test_double_free_is_refused),
        cmocka_unit_test(test_interior_free_is_refused),
        cmocka_unit_test(test_a_pointer_that_outlives_its_scope),
        cmocka_unit_test(test_a_straggler_keeps_a_released_allocator_alive),
        cmocka_unit_test(test_foreign_pointers_pass_in_every_scope),
        cmocka_unit_test(test_order_of_frees_between_two_allocations_does_not_matter),
        cmocka_unit_test(test_one_stranger_costs_one_fallback),
        cmocka_unit_test(test_labels_find_the_way_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

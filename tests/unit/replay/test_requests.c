/* What a planned allocator is asked for beside plain blocks, and how its scopes begin and end. */
#include "usual.h"

static void test_never_freed_inside_is_outside_the_plan(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    void *kept[3];
    berth_report report = BERTH_REPORT_INIT;
    for (int round = 0; round < 3; round++) {
        if (round == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        void *a = take(&r, 300);
        kept[round] = take(&r, 1000); /* the result */
        give(&r, a);
        give(&r, take(&r, 300));
        if (round == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        if (round == 0)
            continue;
        assert_int_equal(report.from_plan, 2);
        assert_int_equal(report.outside_plan, 1);
        assert_int_equal(report.by_fallback, 0);
        assert_int_equal(report.deviation_count, 0);
        assert_int_equal(report.fallback_bytes, 1000);
        assert_int_equal(report.peak_without_plan_bytes, 1300);
    }
    berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
    assert_int_equal(berth_plan_get(r.plan, 1, &a), BERTH_OK);
    assert_true(a.freed_at == BERTH_NEVER_FREED);
    assert_int_equal(berth_plan_total_bytes(r.plan), 300);
    for (int round = 0; round < 3; round++)
        give(&r, kept[round]);
    rig_end(&r);
}

static void test_alignment_is_honoured(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_report report = BERTH_REPORT_INIT;
    static const size_t alignments[] = {1, 4096, 8, 64, 256};
    for (int round = 0; round < 3; round++) {
        if (round == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        void *p[5];
        for (size_t i = 0; i < 5; i++) {
            size_t alignment = round == 2 && i == 2 ? 8192 : alignments[i];
            assert_int_equal(berth_allocate(r.planned, 33, alignment, NULL, &p[i]), BERTH_OK);
            assert_int_equal((uintptr_t)p[i] % alignment, 0);
        }
        for (size_t i = 0; i < 5; i++)
            give(&r, p[i]);
        if (round == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        if (round == 1)
            assert_int_equal(report.from_plan, 5);
    }
    assert_int_equal(report.from_plan, 4);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_ALIGNMENT);
    assert_int_equal(report.deviations[0].got, 8192);
    rig_end(&r);
}

static void test_zero_sizes_pass(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    program p = usual;
    BERTH_REPLAY(r.planned, &report)
    {
        void *nothing = &nothing;
        assert_int_equal(berth_allocate(r.planned, 0, 64, NULL, &nothing), BERTH_OK);
        assert_null(nothing);
        assert_null(berth_run_allocate(berth_run_current(), 0, 64));
        work(&r, &p);
    }
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.deviation_count, 0);
    rig_end(&r);
}

static void test_zeroed_requests_are_zeroed(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    BERTH_REPLAY(r.planned, &report)
    {
        unsigned char *a = NULL;
        assert_int_equal(berth_allocate(r.planned, 256, 64, &zeroed, (void **)&a), BERTH_OK);
        for (int i = 0; i < 256; i++)
            assert_int_equal(a[i], 0);
        give(&r, a);
    }
    assert_int_equal(report.from_plan, 1);
    rig_end(&r);
}

static void test_the_block_grows_for_a_larger_plan_and_is_kept_for_a_smaller(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_plan *large = NULL;
    assert_int_equal(berth_plan_create(&large), BERTH_OK);
    berth_plan_allocation one = BERTH_PLAN_ALLOCATION_INIT;
    one.size_bytes = 100000;
    one.freed_at = 1;
    assert_int_equal(berth_plan_set(large, &one, 1, NULL), BERTH_OK);
    program p = usual;
    BERTH_REPLAY(r.planned, NULL)
    {
        work(&r, &p);
    }
    assert_int_equal(r.inner_allocs, 1);
    assert_int_equal(berth_planned_set_plan(r.planned, large), BERTH_OK);
    BERTH_REPLAY(r.planned, NULL)
    {
        give(&r, take(&r, 100000));
    }
    assert_int_equal(r.inner_allocs, 2);
    assert_int_equal(r.inner_frees, 1); /* exchanged */
    assert_int_equal(berth_planned_set_plan(r.planned, r.plan), BERTH_OK);
    BERTH_REPLAY(r.planned, NULL)
    {
        work(&r, &p);
    }
    assert_int_equal(r.inner_allocs, 2); /* kept: large enough */
    assert_int_equal(berth_planned_set_plan(r.planned, NULL), BERTH_INVALID_ARGUMENT);
    size_t released = 0;
    assert_int_equal(berth_trim(r.planned, 0, &released), BERTH_OK);
    assert_true(released >= 100000);
    assert_int_equal(r.inner_frees, 2);
    BERTH_REPLAY(r.planned, NULL)
    {
        assert_int_equal(berth_planned_set_plan(r.planned, large), BERTH_BUSY);
    }
    berth_plan_release(large);
    rig_end(&r);
}

static void test_scopes_do_not_nest(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    assert_null(berth_run_current());
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
    berth_run *run = berth_run_current();
    assert_non_null(run);
    assert_int_equal(run->kind, BERTH_RUN_REPLAY);
    assert_ptr_equal(run->allocator, r.planned);
    assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_BUSY);
    assert_non_null(strstr(berth_last_error()->message, "do not nest"));
    assert_int_equal(berth_validate_begin(r.planned, NULL), BERTH_BUSY);
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_BUSY);
    assert_int_equal(berth_record_end(r.planned), BERTH_NOT_FOUND);
    assert_ptr_equal(berth_run_current(), run);
    assert_int_equal(berth_plan_count(r.plan), 3); /* the refused recording cleared nothing */
    assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
    assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_NOT_FOUND);
    assert_null(berth_run_current());
    assert_int_equal(berth_replay_begin(r.inner, NULL), BERTH_INVALID_ARGUMENT);
    rig_end(&r);
}

static int leave_by(rig *r, int way)
{
    program p = usual;
    BERTH_REPLAY(r->planned, NULL)
    {
        p.pa = take(r, p.a);
        give(r, p.pa);
        if (way == 0)
            break;
        if (way == 1)
            return 1;
        if (way == 2)
            goto out;
        if (way == 3)
            continue;
    }
    return 0;
out:
    return 2;
}

static void test_the_block_macro_ends_on_every_way_out(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    for (int way = 0; way < 5; way++) {
        leave_by(&r, way);
        assert_null(berth_run_current());
    }
    rig_end(&r);
}

static void quiet(void *context, berth_log_level level, const char *line)
{
    (void)level, (void)line;
    ++*(int *)context;
}

static void test_a_scope_that_cannot_begin_lets_the_body_run(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    int lines = 0;
    berth_log_set(quiet, &lines, BERTH_LOG_WARNING);
    r.fail = true;
    berth_report report = BERTH_REPORT_INIT;
    int bodies = 0;
    BERTH_REPLAY(r.planned, &report)
    {
        r.fail = false;
        bodies++;
        give(&r, take(&r, 256)); /* by the inner allocator */
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(bodies, 1);
    assert_int_equal(lines, 1);
    assert_int_equal(report.status, BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(r.inner_allocs, 1);
    rig_end(&r);
}

static void test_the_inline_path(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        berth_run *run = berth_run_current();
        void *a = berth_run_allocate(run, 256, 64);
        void *b = berth_run_allocate(run, 128, 64);
        assert_int_equal(berth_run_deallocate(run, a), BERTH_OK);
        assert_int_equal(berth_run_deallocate(run, a), BERTH_BAD_FREE);
        void *c = berth_run_allocate(run, 200, 64);
        assert_ptr_equal(a, c);
        assert_null(berth_run_allocate(run, 10, 3));
        assert_int_equal(berth_run_deallocate(run, c), BERTH_OK);
        assert_int_equal(berth_run_deallocate(run, b), BERTH_OK);
        assert_int_equal(berth_run_deallocate(run, NULL), BERTH_OK);
    }
    assert_int_equal(report.from_plan, 3);
    rig_end(&r);
}

static void test_reallocate_inside_a_scope(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_report report = BERTH_REPORT_INIT;
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        char *p = take(&r, 100), *q = NULL;
        memset(p, 3, 100);
        assert_int_equal(berth_reallocate(r.planned, p, 100, 200, 64, NULL, (void **)&q), BERTH_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(q[i], 3);
        give(&r, q);
        if (round == 0)
            assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        else
            assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    }
    assert_int_equal(report.from_plan, 2);
    rig_end(&r);
}

static void test_sizes_are_not_guessed(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    assert_false(berth_allocator_tracks_sizes(r.planned));
    BERTH_REPLAY(r.planned, NULL)
    {
        void *first = take(&r, 150); /* smaller than planned: one is a stranger, two are a smaller run */
        char *a = take(&r, 100);
        size_t size = 0;
        uint64_t id = 1;
        assert_int_equal(berth_requested_size(r.planned, a, &size), BERTH_UNSUPPORTED);
        assert_int_equal(berth_allocation_id(r.planned, a, &id), BERTH_OK);
        assert_int_equal(id, 0);
        assert_int_equal(berth_allocated_size_slow(r.planned, a, &size), BERTH_OK);
        assert_int_equal(size, 128); /* the place it has */
        assert_int_equal(berth_allocator_owns(r.planned, a + 127), BERTH_OK);
        give(&r, first);
        give(&r, a);
        assert_int_equal(berth_allocator_owns(r.planned, a), BERTH_NOT_FOUND);
        assert_int_equal(berth_allocated_size_slow(r.planned, a, &size), BERTH_NOT_FOUND);
    }
    rig_end(&r);
}

static void test_a_stale_plan_is_refused_in_strict_and_named_in_elastic(void **state)
{
    (void)state;
    rig r;
    record_usual(&r);
    int lines = 0;
    berth_log_set(quiet, &lines, BERTH_LOG_WARNING);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.fingerprint = berth_plan_fingerprint(r.plan) + 1;
    options.strict = true;
    assert_int_equal(berth_replay_begin(r.planned, &options), BERTH_MISMATCH);
    assert_non_null(strstr(berth_last_error()->message, "stale"));
    options.strict = false;
    assert_int_equal(berth_replay_begin(r.planned, &options), BERTH_OK);
    program p = {256, 500, 200, NULL, NULL, NULL};
    work(&r, &p);
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_true(report.stale);
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(report.planned, 3);
    options.fingerprint = berth_plan_fingerprint(r.plan);
    options.strict = true;
    assert_int_equal(berth_replay_begin(r.planned, &options), BERTH_OK);
    p = usual;
    work(&r, &p);
    assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(lines, 1);
    rig_end(&r);
}

static void test_an_empty_plan_serves_nothing(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_report report = BERTH_REPORT_INIT;
    program p = usual;
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r, &p);
    }
    assert_int_equal(report.by_fallback, 3);
    assert_int_equal(report.block_bytes, 0);
    assert_int_equal(report.peak_without_plan_bytes, 384);
    berth_allocator *none = r.inner;
    assert_int_equal(berth_planned_create(r.inner, NULL, &none), BERTH_INVALID_ARGUMENT);
    assert_null(none);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_freed_inside_is_outside_the_plan),
        cmocka_unit_test(test_alignment_is_honoured),
        cmocka_unit_test(test_zero_sizes_pass),
        cmocka_unit_test(test_zeroed_requests_are_zeroed),
        cmocka_unit_test(test_the_block_grows_for_a_larger_plan_and_is_kept_for_a_smaller),
        cmocka_unit_test(test_scopes_do_not_nest),
        cmocka_unit_test(test_the_block_macro_ends_on_every_way_out),
        cmocka_unit_test(test_a_scope_that_cannot_begin_lets_the_body_run),
        cmocka_unit_test(test_the_inline_path),
        cmocka_unit_test(test_reallocate_inside_a_scope),
        cmocka_unit_test(test_sizes_are_not_guessed),
        cmocka_unit_test(test_a_stale_plan_is_refused_in_strict_and_named_in_elastic),
        cmocka_unit_test(test_an_empty_plan_serves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

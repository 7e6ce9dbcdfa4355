/* What is rare: broken inner allocators, scopes that cannot begin, strict runs that stop, planned allocators
 * inside each other, and requests at the edge of what there is. */
#include <pthread.h>

#include "berth/source.h"
#include "rig.h"

static void quiet(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

/* +a 256  +b 128  -a  +c 200  -c  -b */
static void work(rig *r)
{
    void *a = take(r, 256), *b = take(r, 128);
    give(r, a);
    give(r, take(r, 200));
    give(r, b);
}

static void record_work(rig *r)
{
    rig_begin(r);
    BERTH_RECORD(r->planned)
    {
        work(r);
    }
}

/* ---- An inner allocator that answers BERTH_OK and gives nothing ---------------------------------------- */

static berth_status give_nothing(void *self, size_t size, size_t alignment, const berth_request *request,
                                 void **out)
{
    bool *broken = self;
    (void)request;
    *out = *broken ? NULL : aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    return BERTH_OK;
}

static berth_status take_something(void *self, void *p, size_t size, berth_stream *stream)
{
    (void)self, (void)size, (void)stream;
    free(p);
    return BERTH_OK;
}

static void test_nothing_is_not_a_block(void **state)
{
    (void)state;
    bool broken = false;
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = give_nothing,
                               .deallocate = take_something,
                               .destroy = rig_destroyed};
    rig r = {0};
    assert_int_equal(berth_allocator_create(&ops, &broken, &r.inner), BERTH_OK);
    assert_int_equal(berth_plan_create(&r.plan), BERTH_OK);
    assert_int_equal(berth_planned_create(r.inner, r.plan, &r.planned), BERTH_OK);
    void *p = NULL;
    BERTH_RECORD(r.planned)
    {
        work(&r);
        broken = true;
        assert_int_equal(berth_allocate(r.planned, 64, 64, NULL, &p), BERTH_INTERNAL);
        broken = false;
    }
    assert_int_equal(berth_plan_count(r.plan), 3);
    broken = true;
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_INTERNAL); /* the block */
    assert_non_null(strstr(berth_last_error()->message, "without a block"));
    assert_int_equal(berth_allocate(r.planned, 64, 64, NULL, &p), BERTH_INTERNAL); /* outside scopes */
    broken = false;
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        broken = true;
        assert_int_equal(berth_allocate(r.planned, 5000, 64, NULL, &p), BERTH_INTERNAL); /* a fallback */
        assert_null(p);
        assert_null(berth_run_allocate(berth_run_current(), 5000, 64));
        broken = false;
        work(&r);
    }
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.by_fallback, 0);
    rig_end(&r);
}

/* ---- A dry run ------------------------------------------------------------------------------------------ */

static void test_zeroed_over_a_dry_run(void **state)
{
    (void)state;
    berth_allocator *dry = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &dry), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(dry, plan, &planned), BERTH_OK);
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    for (int round = 0; round < 3; round++) {
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(round ? berth_replay_begin(planned, NULL) : berth_record_begin(planned, NULL),
                         BERTH_OK);
        void *p = NULL, *q = NULL;
        assert_int_equal(berth_allocate(planned, 1000, 64, &zeroed, &p), BERTH_OK);
        assert_int_equal(berth_allocate(planned, round == 2 ? 5000 : 500, 64, &zeroed, &q), BERTH_OK);
        assert_int_equal(berth_deallocate(planned, p, 0, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(planned, q, 0, NULL), BERTH_OK);
        assert_int_equal(round ? berth_replay_end(planned, &report) : berth_record_end(planned), BERTH_OK);
        if (round)
            assert_int_equal(report.from_plan, round == 1 ? 2 : 1);
    }
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(dry);
}

/* ---- Reports of what did not happen --------------------------------------------------------------------- */

static void test_a_failed_begin_leaves_no_old_figures(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    berth_report report = BERTH_REPORT_INIT;
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        give(&r, take(&r, 999));
    }
    BERTH_VALIDATE(r.planned, &difference)
    {
    }
    assert_int_equal(report.by_fallback, 1);
    assert_int_equal(difference.status, BERTH_MISMATCH);
    assert_int_equal(berth_trim(r.planned, 0, NULL), BERTH_OK);
    berth_log_set(quiet, NULL, BERTH_LOG_NONE);
    r.fail = true;
    BERTH_REPLAY(r.planned, &report)
    {
    }
    r.fail = false;
    assert_int_equal(report.status, BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(report.struct_size, sizeof report);
    assert_int_equal(report.planned, 0);
    assert_int_equal(report.by_fallback, 0);
    assert_int_equal(report.deviation_count, 0);
    assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
    BERTH_VALIDATE(r.planned, &difference)
    {
    }
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(difference.status, BERTH_BUSY);
    assert_string_equal(difference.words, "");
    assert_int_equal(difference.expected, 0);
    report.planned = 77;
    difference.id = 77;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_NOT_FOUND);
    assert_int_equal(berth_validate_end(r.planned, &difference), BERTH_NOT_FOUND);
    assert_int_equal(report.status, BERTH_NOT_FOUND);
    assert_int_equal(report.planned, 0);
    assert_int_equal(difference.id, 0);
    rig_end(&r);
}

/* ---- Strict ---------------------------------------------------------------------------------------------- */

static void begin_strict(rig *r)
{
    berth_run_options strict = BERTH_RUN_OPTIONS_INIT;
    strict.strict = true;
    assert_int_equal(berth_replay_begin(r->planned, &strict), BERTH_OK);
}

static void test_strict_tells_of_early_frees(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    begin_strict(&r);
    void *a = take(&r, 256), *b = take(&r, 128);
    assert_int_equal(berth_deallocate(r.planned, b, 0, NULL), BERTH_MISMATCH); /* planned after c */
    assert_non_null(
        strstr(berth_last_error()->message, "allocation 1 is freed before allocation 2, planned"));
    assert_int_equal(berth_deallocate(r.planned, b, 0, NULL), BERTH_BAD_FREE); /* it was freed */
    give(&r, a);
    give(&r, take(&r, 200));
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK); /* all of the plan came */
    assert_int_equal(report.early_frees, 1);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_EARLY_FREE);
    assert_int_equal(report.deviations[0].expected, 3);
    assert_int_equal(report.deviations[0].got, 2);
    BERTH_REPLAY(r.planned, &report) /* elastic: as it likes */
    {
        a = take(&r, 256), b = take(&r, 128);
        give(&r, b);
        give(&r, a);
        give(&r, take(&r, 200));
    }
    assert_int_equal(report.early_frees, 0);
    assert_int_equal(report.deviation_count, 0);
    rig_end(&r);
}

static void test_strict_tells_of_an_early_end(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    berth_report report = BERTH_REPORT_INIT;
    begin_strict(&r);
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_MISMATCH);
    assert_int_equal(report.status, BERTH_MISMATCH);
    assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_MISSING);
    assert_null(berth_run_current()); /* it has ended all the same */
    begin_strict(&r);
    void *a = take(&r, 256), *b = take(&r, 128);
    give(&r, a);
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_MISMATCH);
    assert_non_null(strstr(berth_last_error()->message, "ended before allocation 2"));
    give(&r, b);
    begin_strict(&r);
    a = take(&r, 256), b = take(&r, 128);
    give(&r, a);
    give(&r, take(&r, 200)); /* and the last free is missing */
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_MISMATCH);
    assert_int_equal(report.stragglers, 1);
    give(&r, b);
    begin_strict(&r);
    work(&r);
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    rig_end(&r);
}

/* ---- Neighbours ------------------------------------------------------------------------------------------ */

static void *end_elsewhere(void *context)
{
    rig *r = context;
    assert_int_equal(berth_replay_end(r->planned, NULL), BERTH_NOT_FOUND);
    assert_non_null(strstr(berth_last_error()->message, "no scope is open on this thread"));
    return NULL;
}

static void test_a_scope_ends_on_its_own_thread_only(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &r), 0);
    pthread_join(thread, NULL);
    work(&r);
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 3);
    rig_end(&r);
}

/* A planned allocator over a planned one: each scope is of one of them, the other passes on. */
static void test_planned_over_planned(void **state)
{
    (void)state;
    rig r, outer;
    record_work(&r);
    memset(&outer, 0, sizeof outer);
    outer.inner = berth_allocator_retain(r.planned);
    assert_int_equal(berth_plan_create(&outer.plan), BERTH_OK);
    assert_int_equal(berth_planned_create(r.planned, outer.plan, &outer.planned), BERTH_OK);
    BERTH_RECORD(outer.planned)
    {
        work(&outer);
    }
    for (int round = 0; round < 3; round++) {
        berth_report report = BERTH_REPORT_INIT;
        BERTH_REPLAY(outer.planned, &report)
        {
            work(&outer);
            work(&r); /* outside of any scope of its own */
            assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_BUSY);
        }
        assert_int_equal(report.from_plan, 3);
        void *kept = NULL;
        BERTH_REPLAY(r.planned, &report)
        {
            work(&outer); /* outside its scopes the outer one hands on: the inner plan serves it */
            kept = take(&outer, 100);
            assert_int_equal(berth_trim(outer.planned, 0, NULL),
                             BERTH_OK); /* the outer block goes meanwhile */
        }
        assert_int_equal(report.from_plan, 3);
        assert_int_equal(report.by_fallback, 1);
        give(&outer, kept);
    }
    rig_end(&outer);
    rig_end(&r);
}

static void test_reallocate_around_a_scope(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    char *p = NULL, *q = NULL, *kept = NULL;
    BERTH_REPLAY(r.planned, NULL)
    {
        p = take(&r, 256);
        memset(p, 5, 256);
        /* Larger than anything planned: it moves to the inner allocator, and its place is free again. */
        assert_int_equal(berth_reallocate(r.planned, p, 0, 4000, 64, NULL, (void **)&q), BERTH_OK);
        for (int i = 0; i < 256; i++)
            assert_int_equal(q[i], 5);
        assert_int_equal(berth_allocator_owns(r.planned, p), BERTH_NOT_FOUND);
        kept = take(&r, 128);
        memset(kept, 6, 128);
    }
    give(&r, q);
    /* A straggler, after its scope: its size is that of its place. */
    assert_int_equal(berth_reallocate(r.planned, kept, 0, 1000, 64, NULL, (void **)&q), BERTH_OK);
    for (int i = 0; i < 128; i++)
        assert_int_equal(q[i], 6);
    assert_int_equal(berth_allocator_owns(r.planned, kept), BERTH_NOT_FOUND);
    give(&r, q);
    rig_end(&r);
}

static void test_requests_at_the_edge(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    for (int strict = 0; strict < 2; strict++) {
        berth_run_options options = BERTH_RUN_OPTIONS_INIT;
        options.strict = strict;
        assert_int_equal(berth_replay_begin(r.planned, &options), BERTH_OK);
        berth_run *run = berth_run_current();
        /* The allocation that is due, but for its alignment or the place for its result: refused, and due still. */
        void *p = NULL;
        static const size_t alignments[] = {0, 3, 63, 65, SIZE_MAX, (size_t)1 << 31};
        for (size_t i = 0; i < 6; i++)
            assert_int_equal(berth_allocate(r.planned, 256, alignments[i], NULL, &p), BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_allocate(r.planned, 256, 64, NULL, NULL), BERTH_INVALID_ARGUMENT);
        void *a = take(&r, 256), *b = take(&r, 128);
        /* A free is due: no size is that of a free. */
        static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, (size_t)1 << 63, PTRDIFF_MAX};
        for (size_t i = 0; i < 4; i++) {
            assert_null(berth_run_allocate(run, sizes[i], 64));
            assert_int_equal(berth_allocate(r.planned, sizes[i], 64, NULL, &p), BERTH_OVERFLOW);
        }
        assert_null(berth_run_allocate(run, 0, 64));
        assert_int_equal(berth_allocate(r.planned, 0, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_allocate(r.planned, 200, (size_t)1 << 31, NULL, &p), BERTH_INVALID_ARGUMENT);
        /* Stricter than planned: elsewhere, or refused. */
        give(&r, a);
        berth_status status = berth_allocate(r.planned, 200, 1 << 20, NULL, &p);
        assert_int_equal(status, strict ? BERTH_MISMATCH : BERTH_OK);
        if (strict)
            p = take(&r, 200);
        else
            assert_int_equal((uintptr_t)p % (1 << 20), 0);
        give(&r, p);
        give(&r, b);
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        assert_int_equal(report.deviation_count, 1);
        assert_int_equal(report.deviations[0].reason, BERTH_DEVIATION_ALIGNMENT);
    }
    rig_end(&r);
}

/* An older program's report is shorter: it gets what it knows, and nothing behind it is written. */
static void test_shorter_reports(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    berth_report report = BERTH_REPORT_INIT;
    report.struct_size = offsetof(berth_report, displaced);
    report.held_bytes = 1234567;
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r);
    }
    assert_int_equal(report.struct_size, offsetof(berth_report, displaced));
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.held_bytes, 1234567);
    char text[512];
    assert_true(berth_report_text(&report, text, sizeof text) > 0);
    assert_non_null(strstr(text, "3 of 3"));
    assert_null(strstr(text, "1234567"));
    /* One that ends between the two figures that are known last. */
    report = (berth_report)BERTH_REPORT_INIT;
    report.struct_size = offsetof(berth_report, straggler_bytes);
    report.straggler_bytes = 1234567;
    BERTH_REPLAY(r.planned, &report)
    {
        work(&r);
    }
    assert_int_equal(report.held_bytes, report.block_bytes);
    assert_int_equal(report.straggler_bytes, 1234567);
    rig_end(&r);
}

/* Recording a plan that another scope replays is fine: that one keeps what it began with. */
static void test_recording_under_a_replay(void **state)
{
    (void)state;
    rig r;
    record_work(&r);
    berth_allocator *other = NULL;
    assert_int_equal(berth_planned_create(r.inner, r.plan, &other), BERTH_OK);
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
    void *a = take(&r, 256);
    assert_int_equal(berth_plan_clear(r.plan), BERTH_OK);
    void *b = take(&r, 128);
    give(&r, a);
    give(&r, take(&r, 200));
    give(&r, b);
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 3);
    berth_allocator_release(other);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_not_a_block),
        cmocka_unit_test(test_zeroed_over_a_dry_run),
        cmocka_unit_test(test_a_failed_begin_leaves_no_old_figures),
        cmocka_unit_test(test_strict_tells_of_early_frees),
        cmocka_unit_test(test_strict_tells_of_an_early_end),
        cmocka_unit_test(test_a_scope_ends_on_its_own_thread_only),
        cmocka_unit_test(test_planned_over_planned),
        cmocka_unit_test(test_reallocate_around_a_scope),
        cmocka_unit_test(test_requests_at_the_edge),
        cmocka_unit_test(test_shorter_reports),
        cmocka_unit_test(test_recording_under_a_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Streams: a place of the block is reused only by work that comes after the work that used it. Time is
 * virtual, so that "not yet" can be seen. */
#include "berth/virtual.h"
#include "rig.h"

typedef struct stage {
    rig r;
    berth_device device;
    berth_stream *s, *t;
} stage;

static void nothing(void *context)
{
    (void)context;
}

/* The program: +a -a +b -b at one place. */
static void stage_begin(stage *x)
{
    rig_begin(&x->r);
    BERTH_RECORD(x->r.planned)
    {
        give(&x->r, take(&x->r, 256));
        give(&x->r, take(&x->r, 256));
    }
    assert_int_equal(berth_virtual_create(&x->device), BERTH_OK);
    assert_int_equal(berth_stream_create(x->device, &x->s), BERTH_OK);
    assert_int_equal(berth_stream_create(x->device, &x->t), BERTH_OK);
}

static void stage_end(stage *x)
{
    assert_int_equal(berth_virtual_run_all(x->device), BERTH_OK);
    rig_end(&x->r);
    berth_stream_destroy(x->s);
    berth_stream_destroy(x->t);
    assert_int_equal(berth_virtual_destroy(x->device), BERTH_OK);
}

static void *take_on(stage *x, berth_stream *stream)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = stream;
    void *p = NULL;
    assert_int_equal(berth_allocate(x->r.planned, 256, 64, &request, &p), BERTH_OK);
    return p;
}

static void enqueue(berth_stream *stream)
{
    assert_int_equal(berth_stream_call(stream, nothing, NULL), BERTH_OK);
}

static void begin_on(stage *x, berth_stream *stream)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.stream = stream;
    assert_int_equal(berth_replay_begin(x->r.planned, &options), BERTH_OK);
}

static void end(stage *x)
{
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(x->r.planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(report.deviation_count, 0);
}

static void test_one_stream_needs_no_waiting(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    void *a = take_on(&x, x.s);
    enqueue(x.s);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.s), BERTH_OK);
    void *b = take_on(&x, NULL); /* without one: the scope's */
    assert_ptr_equal(a, b);
    assert_int_equal(berth_virtual_pending(x.s), 1); /* our work alone; nobody waited */
    assert_int_equal(berth_deallocate(x.r.planned, b, 0, x.s), BERTH_OK);
    end(&x);
    stage_end(&x);
}

static void test_a_free_on_another_stream_is_waited_for(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    void *a = take_on(&x, x.s);
    enqueue(x.t);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.t), BERTH_OK);
    void *b = take_on(&x, x.s);
    assert_ptr_equal(a, b);
    enqueue(x.s);
    assert_int_equal(berth_virtual_run(x.s), BERTH_NOT_READY); /* t uses the place still */
    assert_int_equal(berth_virtual_run(x.t), BERTH_OK);
    assert_int_equal(berth_virtual_run(x.s), BERTH_OK);
    assert_int_equal(berth_deallocate(x.r.planned, b, 0, x.s), BERTH_OK);
    end(&x);
    stage_end(&x);
}

static void test_a_request_on_another_stream_waits(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    void *a = take_on(&x, x.s);
    enqueue(x.s);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.s), BERTH_OK);
    void *b = take_on(&x, x.t);
    assert_ptr_equal(a, b);
    enqueue(x.t);
    assert_int_equal(berth_virtual_run(x.t), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(x.s), BERTH_OK);
    assert_int_equal(berth_virtual_run(x.t), BERTH_OK);
    assert_int_equal(berth_deallocate(x.r.planned, b, 0, x.t), BERTH_OK);
    end(&x);
    stage_end(&x);
}

static void test_the_host_waits_where_it_is_next(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, NULL);
    void *a = take_on(&x, NULL);
    enqueue(x.t);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.t), BERTH_OK);
    assert_int_equal(berth_virtual_pending(x.t), 1);
    void *b = take_on(&x, NULL);
    assert_int_equal(berth_virtual_pending(x.t), 0);
    give(&x.r, b);
    end(&x);
    stage_end(&x);
}

static void test_recorded_uses_are_waited_for(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    char *a = take_on(&x, x.s);
    assert_int_equal(berth_record_use(x.r.planned, a + 17, x.t), BERTH_OK);
    assert_int_equal(berth_record_use(x.r.planned, a, x.t), BERTH_OK); /* twice is once */
    enqueue(x.t);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.s), BERTH_OK);
    assert_int_equal(berth_record_use(x.r.planned, a, x.t), BERTH_NOT_FOUND);
    void *b = take_on(&x, x.s);
    enqueue(x.s);
    assert_int_equal(berth_virtual_run(x.s), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(x.t), BERTH_OK);
    assert_int_equal(berth_virtual_run(x.s), BERTH_OK);
    assert_int_equal(berth_deallocate(x.r.planned, b, 0, x.s), BERTH_OK);
    end(&x);
    stage_end(&x);
}

static void run_on(stage *x, berth_stream *stream)
{
    begin_on(x, stream);
    for (int i = 0; i < 2; i++) {
        void *p = take_on(x, stream);
        if (stream)
            enqueue(stream);
        assert_int_equal(berth_deallocate(x->r.planned, p, 0, stream), BERTH_OK);
    }
    end(x);
}

static void test_scopes_follow_each_other_on_their_streams(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    run_on(&x, x.s);
    assert_int_equal(berth_virtual_pending(x.s) > 0, 1);
    run_on(&x, x.t); /* the same block: t waits for s, the host does not */
    assert_int_equal(x.r.inner_allocs, 3);
    assert_int_equal(berth_virtual_run(x.t), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(x.s), BERTH_OK);
    assert_int_equal(berth_virtual_run(x.t), BERTH_OK);
    run_on(&x, x.s);
    assert_int_equal(berth_virtual_pending(x.s) > 0, 1);
    run_on(&x, NULL); /* the host must wait */
    assert_int_equal(berth_virtual_pending(x.s), 0);
    stage_end(&x);
}

static void test_a_stream_may_go_between_scopes(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    berth_stream *gone = NULL;
    assert_int_equal(berth_stream_create(x.device, &gone), BERTH_OK);
    run_on(&x, gone);
    berth_stream_destroy(gone);
    assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK);
    run_on(&x, x.s);
    stage_end(&x);
}

static void test_stragglers_wait_on_the_host(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    void *a = take_on(&x, x.s);
    assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
    assert_int_equal(berth_record_use(x.r.planned, a, x.t), BERTH_OK);
    enqueue(x.t);
    enqueue(x.s);
    assert_int_equal(berth_deallocate(x.r.planned, a, 0, x.s), BERTH_OK);
    assert_int_equal(berth_virtual_pending(x.t), 0);
    assert_int_equal(berth_virtual_pending(x.s), 0);
    run_on(&x, NULL);
    stage_end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stream_needs_no_waiting),
        cmocka_unit_test(test_a_free_on_another_stream_is_waited_for),
        cmocka_unit_test(test_a_request_on_another_stream_waits),
        cmocka_unit_test(test_the_host_waits_where_it_is_next),
        cmocka_unit_test(test_recorded_uses_are_waited_for),
        cmocka_unit_test(test_scopes_follow_each_other_on_their_streams),
        cmocka_unit_test(test_a_stream_may_go_between_scopes),
        cmocka_unit_test(test_stragglers_wait_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

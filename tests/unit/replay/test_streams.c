/* Streams: a place of the block is reused only by work that comes after the work that used it. Time is
 * virtual, so that "not yet" can be seen. */
#include <pthread.h>

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

/* The free itself waits for nobody; whoever has the block next waits for both. */
static void test_streams_of_a_straggler_are_waited_for(void **state)
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
    assert_true(berth_virtual_pending(x.t) > 0);
    assert_true(berth_virtual_pending(x.s) > 0);
    begin_on(&x, NULL);
    assert_int_equal(berth_virtual_pending(x.t), 0);
    assert_int_equal(berth_virtual_pending(x.s), 0);
    assert_ptr_equal(take_on(&x, NULL), a);
    give(&x.r, a);
    give(&x.r, take_on(&x, NULL));
    end(&x);
    stage_end(&x);
}

/* One straggler goes while another stays: the block runs again around that one, at places that a stream still uses. */
static void test_streams_of_one_of_two_stragglers(void **state)
{
    (void)state;
    for (int way = 0; way < 4;
         way++) { /* the use is recorded, or its stream is told at the free; by the host or s */
        stage x;
        stage_begin(&x);
        BERTH_RECORD(x.r.planned)
        {
            void *p = take(&x.r, 4096), *q = take(&x.r, 64);
            give(&x.r, p);
            give(&x.r, q);
        }
        begin_on(&x, NULL);
        unsigned char *large = take(&x.r, 4096), *kept = take(&x.r, 64);
        assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
        size_t blocks = x.r.inner_allocs;
        enqueue(x.t);
        if (way & 1)
            assert_int_equal(berth_record_use(x.r.planned, large, x.t), BERTH_OK);
        assert_int_equal(berth_deallocate(x.r.planned, large, 0, way & 1 ? NULL : x.t), BERTH_OK);
        assert_int_equal(berth_virtual_pending(x.t), 1); /* nobody waits at the free */
        begin_on(&x, way & 2 ? x.s : NULL);
        assert_ptr_equal(take(&x.r, 4096), large);
        assert_int_equal(x.r.inner_allocs, blocks); /* the same block, around what is kept */
        enqueue(x.s);
        if (way & 2)
            assert_int_equal(berth_virtual_run(x.s), BERTH_NOT_READY);
        else
            assert_int_equal(berth_virtual_pending(x.t), 0);
        assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK);
        give(&x.r, large);
        assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
        give(&x.r, kept);
        stage_end(&x);
    }
}

/* Without a stream at its free the scope's is meant: it may have used the pointer until then. */
static void test_a_straggler_freed_without_a_stream(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    begin_on(&x, x.s);
    void *a = take_on(&x, NULL);
    assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
    assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK);
    enqueue(x.s);
    give(&x.r, a);
    begin_on(&x, x.t);
    assert_ptr_equal(take_on(&x, NULL), a);
    enqueue(x.t);
    assert_int_equal(berth_virtual_run(x.t), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(x.s), BERTH_OK);
    assert_int_equal(berth_virtual_run(x.t), BERTH_OK);
    give(&x.r, a);
    give(&x.r, take_on(&x, NULL));
    end(&x);
    stage_end(&x);
}

typedef struct remote {
    berth_allocator *a;
    void *p;
    berth_stream *stream;
} remote;

static void *free_there(void *context)
{
    remote *f = context;
    assert_int_equal(berth_deallocate(f->a, f->p, 0, f->stream), BERTH_OK);
    return NULL;
}

static void free_elsewhere(stage *x, void *p, berth_stream *stream)
{
    remote f = {x->r.planned, p, stream};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_there, &f), 0);
    pthread_join(thread, NULL);
}

static void fill(void *p)
{
    memset(p, 0xee, 256);
}

/* Four ways for another thread to free what a stream still writes: with a recorded use or with the stream
 * itself, seen by the scope's next call or only at its end. */
static void test_a_free_by_another_thread_honours_streams(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        stage x;
        stage_begin(&x);
        begin_on(&x, NULL);
        unsigned char *a = take_on(&x, NULL), *b = NULL;
        if (way & 1)
            assert_int_equal(berth_record_use(x.r.planned, a, x.t), BERTH_OK);
        assert_int_equal(berth_stream_call(x.t, fill, a), BERTH_OK);
        free_elsewhere(&x, a, way & 1 ? NULL : x.t);
        if (way & 2) {
            assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
            begin_on(&x, NULL);
        }
        b = take_on(&x, NULL);
        assert_ptr_equal(a, b);
        memset(b, 0x11, 256);
        assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK);
        size_t damaged = 0;
        for (size_t i = 0; i < 256; i++)
            damaged += b[i] != 0x11;
        assert_int_equal(damaged, 0);
        give(&x.r, b);
        assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
        stage_end(&x);
    }
}

/* The scope holds its streams: their user may destroy them while it is open, and with stragglers even later. */
static void test_streams_are_retained(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    berth_stream *gone[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(berth_stream_create(x.device, &gone[i]), BERTH_OK);
    begin_on(&x, gone[0]);
    void *a = take_on(&x, NULL);
    assert_int_equal(berth_record_use(x.r.planned, a, gone[1]), BERTH_OK);
    enqueue(gone[0]);
    enqueue(gone[1]);
    assert_int_equal(berth_virtual_run_all(x.device), BERTH_OK); /* else their work would keep them */
    berth_stream_destroy(gone[0]);
    berth_stream_destroy(gone[1]);
    give(&x.r, a);
    void *b = take_on(&x, gone[2]);
    berth_stream_destroy(gone[2]);
    assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
    give(&x.r, b);
    run_on(&x, NULL);
    stage_end(&x);
}

static void quiet(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

/* Where the block can be neither marked nor waited for it is not handed out: the next scope says so. */
static void test_a_block_whose_streams_cannot_be_marked_is_kept(void **state)
{
    (void)state;
    stage x;
    stage_begin(&x);
    berth_log_set(quiet, NULL, BERTH_LOG_NONE);
    begin_on(&x, x.s);
    void *a = take_on(&x, NULL);
    enqueue(x.s);
    give(&x.r, a);
    berth_virtual_fail(x.device, BERTH_VIRTUAL_EVENT_RECORD, 1, BERTH_DEVICE_ERROR, true);
    berth_virtual_fail(x.device, BERTH_VIRTUAL_STREAM_SYNCHRONIZE, 1, BERTH_DEVICE_ERROR, true);
    assert_int_equal(berth_replay_end(x.r.planned, NULL), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    assert_int_equal(berth_replay_begin(x.r.planned, &options), BERTH_DEVICE_ERROR);
    assert_int_equal(berth_virtual_pending(x.s), 1);
    berth_virtual_fail(x.device, BERTH_VIRTUAL_EVENT_RECORD, 0, BERTH_OK, false);
    berth_virtual_fail(x.device, BERTH_VIRTUAL_STREAM_SYNCHRONIZE, 0, BERTH_OK, false);
    run_on(&x, NULL);
    assert_int_equal(berth_virtual_pending(x.s), 0);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    stage_end(&x);
}

/* ---- What is not in the plan, over a pool ------------------------------------------------------------- */

enum { FIRST = 256, STRANGER = 4096 };

typedef struct pool_stage {
    berth_device device;
    berth_allocator *pool, *planned;
    berth_plan *plan;
    berth_stream *s;
} pool_stage;

static void pool_begin(pool_stage *x)
{
    assert_int_equal(berth_virtual_create(&x->device), BERTH_OK);
    assert_int_equal(berth_stream_create(x->device, &x->s), BERTH_OK);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = x->device;
    assert_int_equal(berth_pool_create(&options, &x->pool), BERTH_OK);
    assert_int_equal(berth_plan_create(&x->plan), BERTH_OK);
    assert_int_equal(berth_planned_create(x->pool, x->plan, &x->planned), BERTH_OK);
}

static void pool_end(pool_stage *x)
{
    berth_allocator_release(x->planned);
    berth_plan_release(x->plan);
    berth_allocator_release(x->pool);
    berth_stream_destroy(x->s);
    assert_int_equal(berth_virtual_destroy(x->device), BERTH_OK);
}

static unsigned char *pool_take(berth_allocator *a, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size, 64, NULL, &p), BERTH_OK);
    return p;
}

static void fill_stranger(void *p)
{
    memset(p, 0xee, STRANGER);
}

/* The stream writes into a block that is not the plan's; freed without a stream, it is somebody else's. */
static void use_and_lose(pool_stage *x, unsigned char *p)
{
    assert_int_equal(berth_stream_call(x->s, fill_stranger, p), BERTH_OK);
    assert_int_equal(berth_deallocate(x->planned, p, 0, NULL), BERTH_OK);
}

static void check_stranger(pool_stage *x)
{
    unsigned char *q = pool_take(x->pool, STRANGER);
    memset(q, 0x11, STRANGER);
    assert_int_equal(berth_virtual_run_all(x->device), BERTH_OK);
    size_t damaged = 0;
    for (size_t i = 0; i < STRANGER; i++)
        damaged += q[i] != 0x11;
    assert_int_equal(damaged, 0);
    assert_int_equal(berth_deallocate(x->pool, q, 0, NULL), BERTH_OK);
}

/* A request that deviates; one that is outside the plan, freed inside or after the scope; and while recording
 * or validating. */
static void test_the_fallback_knows_the_scopes_stream(void **state)
{
    (void)state;
    enum { DEVIATES, OUTSIDE, OUTSIDE_AFTER, RECORDED, VALIDATED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        pool_stage x;
        pool_begin(&x);
        berth_run_options options = BERTH_RUN_OPTIONS_INIT;
        assert_int_equal(berth_record_begin(x.planned, NULL), BERTH_OK);
        unsigned char *kept = way == DEVIATES ? NULL : pool_take(x.planned, STRANGER);
        assert_int_equal(berth_deallocate(x.planned, pool_take(x.planned, FIRST), 0, NULL), BERTH_OK);
        assert_int_equal(berth_record_end(x.planned), BERTH_OK);
        assert_int_equal(berth_deallocate(x.planned, kept, 0, NULL), BERTH_OK);
        options.stream = x.s;
        assert_int_equal(way == RECORDED    ? berth_record_begin(x.planned, &options)
                         : way == VALIDATED ? berth_validate_begin(x.planned, &options)
                                            : berth_replay_begin(x.planned, &options),
                         BERTH_OK);
        unsigned char *p = pool_take(x.planned, STRANGER);
        if (way != OUTSIDE_AFTER)
            use_and_lose(&x, p);
        assert_int_equal(berth_deallocate(x.planned, pool_take(x.planned, FIRST), 0, NULL), BERTH_OK);
        if (way == RECORDED)
            assert_int_equal(berth_record_end(x.planned), BERTH_OK);
        else if (way == VALIDATED)
            assert_int_equal(berth_validate_end(x.planned, NULL), BERTH_MISMATCH);
        else
            assert_int_equal(berth_replay_end(x.planned, NULL), BERTH_OK);
        if (way == OUTSIDE_AFTER)
            use_and_lose(&x, p);
        check_stranger(&x);
        pool_end(&x);
    }
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
        cmocka_unit_test(test_streams_of_a_straggler_are_waited_for),
        cmocka_unit_test(test_streams_of_one_of_two_stragglers),
        cmocka_unit_test(test_a_straggler_freed_without_a_stream),
        cmocka_unit_test(test_a_free_by_another_thread_honours_streams),
        cmocka_unit_test(test_streams_are_retained),
        cmocka_unit_test(test_a_block_whose_streams_cannot_be_marked_is_kept),
        cmocka_unit_test(test_the_fallback_knows_the_scopes_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

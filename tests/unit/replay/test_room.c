/* Idle blocks of a planned allocator never stand in the way of a request: they go back before one is refused. */
#include "berth/virtual.h"
#include "rig.h"

enum { LIMIT = 1000000, BLOCK = 700000, MORE = 600000 };

typedef struct tight {
    berth_allocator *inner; /* gives LIMIT bytes and no more */
    berth_budget *budget;
    berth_plan *plan; /* one allocation of BLOCK bytes */
    berth_allocator *planned;
} tight;

static void tight_begin(tight *t)
{
    berth_allocator *system = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    assert_int_equal(berth_budget_create(LIMIT, &t->budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, t->budget, &t->inner), BERTH_OK);
    berth_allocator_release(system);
    assert_int_equal(berth_plan_create(&t->plan), BERTH_OK);
    berth_plan_allocation one = BERTH_PLAN_ALLOCATION_INIT;
    one.size_bytes = BLOCK;
    one.freed_at = 1;
    assert_int_equal(berth_plan_set(t->plan, &one, 1, NULL), BERTH_OK);
    assert_int_equal(berth_planned_create(t->inner, t->plan, &t->planned), BERTH_OK);
}

static uint64_t in_use(const tight *t)
{
    return berth_budget_in_use(t->budget);
}

static void tight_end(tight *t)
{
    berth_allocator_release(t->planned);
    assert_int_equal(in_use(t), 0);
    berth_plan_release(t->plan);
    berth_allocator_release(t->inner);
    berth_budget_release(t->budget);
}

static void *must(const tight *t, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(t->planned, size, 64, NULL, &p), BERTH_OK);
    return p;
}

static void drop(const tight *t, void *p)
{
    assert_int_equal(berth_deallocate(t->planned, p, 0, NULL), BERTH_OK);
}

static void nothing(void *context)
{
    (void)context;
}

/* Leaves an idle block. */
static void replay_once(const tight *t, berth_stream *stream)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.stream = stream;
    assert_int_equal(berth_replay_begin(t->planned, &options), BERTH_OK);
    void *p = must(t, BLOCK);
    if (stream)
        assert_int_equal(berth_stream_call(stream, nothing, NULL), BERTH_OK);
    drop(t, p);
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(t->planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 1);
    assert_true(in_use(t) >= BLOCK);
}

static void test_a_request_outside_scopes(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    replay_once(&t, NULL);
    void *p = must(&t, MORE);
    void *none = p;
    assert_int_equal(berth_allocate(t.planned, MORE, 64, NULL, &none), BERTH_OVER_BUDGET);
    assert_null(none);
    drop(&t, p);
    replay_once(&t, NULL); /* and the block comes again */
    tight_end(&t);
}

static void test_a_reallocation(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    void *p = must(&t, 100000);
    replay_once(&t, NULL);
    assert_int_equal(berth_reallocate(t.planned, p, 100000, MORE, 64, NULL, &p), BERTH_OK);
    drop(&t, p);
    tight_end(&t);
}

static void test_a_recording_and_a_fallback(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    berth_plan *small = NULL;
    assert_int_equal(berth_plan_create(&small), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.plan = small;
    replay_once(&t, NULL);
    assert_int_equal(berth_record_begin(t.planned, &options), BERTH_OK);
    drop(&t, must(&t, MORE));
    assert_int_equal(berth_record_end(t.planned), BERTH_OK);
    assert_int_equal(berth_plan_clear(small), BERTH_OK);
    replay_once(&t, NULL);
    assert_int_equal(berth_replay_begin(t.planned, &options), BERTH_OK); /* on the same block */
    void *p = NULL;
    assert_int_equal(berth_allocate(t.planned, MORE, 64, NULL, &p),
                     BERTH_OVER_BUDGET); /* which is not idle */
    assert_int_equal(berth_replay_end(t.planned, NULL), BERTH_OK);
    berth_plan_release(small);
    tight_end(&t);
}

/* Two scopes at once have made two blocks, of which a third plan needs neither. */
static void test_a_block_for_a_larger_plan(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    berth_plan *half = NULL, *large = NULL;
    berth_plan_allocation one = BERTH_PLAN_ALLOCATION_INIT;
    one.freed_at = 1;
    one.size_bytes = 400000;
    assert_int_equal(berth_plan_create(&half), BERTH_OK);
    assert_int_equal(berth_plan_set(half, &one, 1, NULL), BERTH_OK);
    one.size_bytes = 900000;
    assert_int_equal(berth_plan_create(&large), BERTH_OK);
    assert_int_equal(berth_plan_set(large, &one, 1, NULL), BERTH_OK);
    assert_int_equal(berth_planned_set_plan(t.planned, half), BERTH_OK);
    BERTH_REPLAY(t.planned, NULL)
    {
        void *p = must(&t, 400000); /* a straggler: the next scope has a block of its own */
        assert_int_equal(berth_replay_end(t.planned, NULL), BERTH_OK);
        assert_int_equal(berth_replay_begin(t.planned, NULL), BERTH_OK);
        drop(&t, must(&t, 400000));
        drop(&t, p);
    }
    assert_int_equal(berth_planned_set_plan(t.planned, large), BERTH_OK);
    assert_int_equal(berth_replay_begin(t.planned, NULL), BERTH_OK);
    drop(&t, must(&t, 900000));
    assert_int_equal(berth_replay_end(t.planned, NULL), BERTH_OK);
    berth_plan_release(half);
    berth_plan_release(large);
    tight_end(&t);
}

static void test_what_is_live_stays(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    assert_int_equal(berth_replay_begin(t.planned, NULL), BERTH_OK);
    char *kept = must(&t, BLOCK);
    assert_int_equal(berth_replay_end(t.planned, NULL), BERTH_OK);
    memset(kept, 7, BLOCK);
    void *none = NULL;
    assert_int_equal(berth_allocate(t.planned, MORE, 64, NULL, &none), BERTH_OVER_BUDGET);
    for (size_t i = 0; i < BLOCK; i++)
        assert_int_equal(kept[i], 7);
    drop(&t, kept);
    drop(&t, must(&t, MORE)); /* now it is idle */
    tight_end(&t);
}

/* A block that a stream uses goes back when the stream has passed; BERTH_NO_RETRY does not wait for that. */
static void test_streams(void **state)
{
    (void)state;
    tight t;
    tight_begin(&t);
    berth_device device;
    berth_stream *stream = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    replay_once(&t, stream);
    berth_request at_once = BERTH_REQUEST_INIT;
    at_once.flags = BERTH_NO_RETRY;
    void *p = NULL;
    assert_int_equal(berth_allocate(t.planned, MORE, 64, &at_once, &p), BERTH_OVER_BUDGET);
    assert_true(berth_virtual_pending(stream) > 0); /* nobody waited */
    assert_true(in_use(&t) >= BLOCK);
    assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
    assert_int_equal(berth_allocate(t.planned, MORE, 64, &at_once, &p), BERTH_OK);
    drop(&t, p);
    replay_once(&t, stream);
    drop(&t, must(&t, MORE)); /* the host waits */
    assert_int_equal(berth_virtual_pending(stream), 0);
    tight_end(&t);
    berth_stream_destroy(stream);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_outside_scopes),   cmocka_unit_test(test_a_reallocation),
        cmocka_unit_test(test_a_recording_and_a_fallback), cmocka_unit_test(test_a_block_for_a_larger_plan),
        cmocka_unit_test(test_what_is_live_stays),         cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

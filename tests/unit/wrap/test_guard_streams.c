/* A guard and the stream that a block is asked for: that stream may still be at work where the block lies, fills it with
 * zero when it gets there, and uses it until it has passed the free. [W4] */
#include "unit/wrap/wrap_test.h"

#include "berth/pool.h"
#include "gate.h"

static void note_report(void *context, const berth_guard_report *report)
{
    (void)report;
    ++*(int *)context;
}

/* A guard over a pool, and a stream that stands at a gate. */
struct streamed {
    int found;
    berth_allocator *pool, *guard;
    berth_stream *stream;
    gate gate;
    berth_request request;
};

static void begin_streamed(struct streamed *s)
{
    static const gate closed = GATE_INIT;
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    memset(s, 0, sizeof *s);
    s->gate = closed;
    options.report = note_report;
    options.context = &s->found;
    assert_int_equal(berth_pool_create(NULL, &s->pool), BERTH_OK);
    assert_int_equal(berth_guard_create(s->pool, &options, &s->guard), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &s->stream), BERTH_OK);
    s->request = (berth_request){.struct_size = sizeof s->request, .stream = s->stream};
    assert_int_equal(berth_stream_call(s->stream, gate_stop, &s->gate), BERTH_OK);
}

static void *take_streamed(struct streamed *s, size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(s->guard, size_bytes, 64, &s->request, &p), BERTH_OK);
    return p;
}

static void go_on(struct streamed *s)
{
    gate_open(&s->gate);
    assert_int_equal(berth_stream_synchronize(s->stream), BERTH_OK);
}

static void end_streamed(struct streamed *s)
{
    assert_int_equal(berth_guard_check(s->guard, NULL), BERTH_OK);
    berth_allocator_release(s->guard);
    assert_int_equal(s->found, 0);
    berth_allocator_release(s->pool);
    berth_stream_destroy(s->stream);
}

/* Zeros that the stream brings when it gets there end where the block does. */
static void zeros_of_a_stream_leave_the_zones(void **state)
{
    (void)state;
    struct streamed s;
    begin_streamed(&s);
    s.request.flags = BERTH_ZEROED;
    unsigned char *p = take_streamed(&s, 1000);
    go_on(&s);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    give(s.guard, p);
    end_streamed(&s);
}

/* What is free for the stream at once is not for the host: the stream's work is still to come. */
static void zones_are_not_put_where_a_stream_still_works(void **state)
{
    (void)state;
    struct streamed s;
    begin_streamed(&s);
    void *p = take_streamed(&s, 5000);
    assert_int_equal(berth_zero(berth_device_cpu(), p, 5000, s.stream, false), BERTH_OK);
    assert_int_equal(berth_deallocate(s.guard, p, 0, s.stream), BERTH_OK);
    void *q = take_streamed(&s, 4999);
    go_on(&s);
    give(s.guard, q);
    end_streamed(&s);
}

/* A block that was asked for with a stream is used by it: nothing is filled before it has passed. [W4] */
static void the_stream_of_a_request_uses_the_block(void **state)
{
    (void)state;
    static unsigned char from[1000], seen[1000];
    struct streamed s;
    begin_streamed(&s);
    memset(from, 5, sizeof from);
    berth_device cpu = berth_device_cpu();
    void *p = take_streamed(&s, 1000);
    assert_int_equal(berth_copy(cpu, p, from, 1000, BERTH_COPY_INFER, s.stream, false), BERTH_OK);
    assert_int_equal(berth_copy(cpu, seen, p, 1000, BERTH_COPY_INFER, s.stream, false), BERTH_OK);
    give(s.guard, p);
    void *q = take(s.guard, 1000); /* another one: the stream is not there yet */
    memset(q, 9, 1000);
    go_on(&s);
    assert_memory_equal(seen, from, 1000);
    assert_int_equal(((unsigned char *)q)[500], 9);
    give(s.guard, q);
    end_streamed(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_of_a_stream_leave_the_zones),
        cmocka_unit_test(zones_are_not_put_where_a_stream_still_works),
        cmocka_unit_test(the_stream_of_a_request_uses_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

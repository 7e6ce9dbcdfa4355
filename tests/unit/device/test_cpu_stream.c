/* Streams and events of the CPU: asynchronous for real, in order, torn down in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "gate.h"

static const berth_device cpu = {BERTH_DEVICE_CPU, 0};

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    return stream;
}

static berth_event *new_event(void)
{
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(cpu, &event), BERTH_OK);
    return event;
}

static void copies_return_before_they_have_run(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT;
    char src[4] = "abc", dst[4] = "...", other[4] = "xyz";
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK); /* not recorded counts as complete */
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, stream, false), BERTH_OK);
    assert_int_equal(berth_zero(cpu, other, 4, stream, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    gate_wait_reached(&g);
    assert_string_equal(dst, "...");
    assert_string_equal(other, "xyz");
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_string_equal(dst, "abc");
    assert_string_equal(other, "");
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

static void need_sync_waits_for_that_stream_only(void **state)
{
    (void)state;
    berth_stream *stuck = new_stream(), *free_one = new_stream();
    gate g = GATE_INIT;
    char src[4] = "abc", dst[4] = "...";
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, free_one, true), BERTH_OK);
    assert_string_equal(dst, "abc");
    assert_int_equal(berth_stream_query(stuck), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_zero(cpu, NULL, 0, stuck, true), BERTH_OK); /* nothing to do, but it waits */
    assert_int_equal(berth_stream_query(stuck), BERTH_OK);
    berth_stream_destroy(stuck);
    berth_stream_destroy(free_one);
}

enum { MANY = 5000 };
static struct {
    int next;
    bool in_order;
} order;

static void expect_number(void *context)
{
    order.in_order &= order.next == (int)(intptr_t)context;
    order.next++;
}

static void a_long_queue_runs_in_order(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    gate g = GATE_INIT;
    order.next = 0;
    order.in_order = true;
    berth_stream_call(stream, gate_stop, &g); /* so that the queue must grow, */
    gate_wait_reached(&g);                    /* and its first is not the ring's first then */
    for (intptr_t i = 0; i < MANY; i++)
        assert_int_equal(berth_stream_call(stream, expect_number, (void *)i), BERTH_OK);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(order.next, MANY);
    assert_true(order.in_order);
    berth_stream_destroy(stream);
}

static void streams_wait_for_events_of_others(void **state)
{
    (void)state;
    berth_stream *first = new_stream(), *second = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT;
    char a[4] = "abc", b[4] = "...", c[4] = "...";
    berth_stream_call(first, gate_stop, &g);
    berth_copy(cpu, b, a, 4, BERTH_COPY_INFER, first, false);
    berth_event_record(event, first);
    assert_int_equal(berth_stream_wait_event(second, event), BERTH_OK);
    berth_event_destroy(event); /* the mark has been taken */
    berth_copy(cpu, c, b, 4, BERTH_COPY_INFER, second, false);
    gate_wait_reached(&g);
    assert_int_equal(berth_stream_query(second), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(second), BERTH_OK);
    assert_string_equal(c, "abc");
    berth_stream_destroy(first);
    berth_stream_destroy(second);
}

static void recording_again_moves_the_mark(void **state)
{
    (void)state;
    berth_stream *slow = new_stream(), *fast = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT;
    berth_stream_call(slow, gate_stop, &g);
    berth_event_record(event, slow);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    berth_event_record(event, fast);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    berth_event_record(event, slow);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(slow);
    berth_stream_destroy(fast);
}

static void events_outlive_their_stream(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *event = new_event(), *dropped = new_event();
    gate g = GATE_INIT;
    char src[4] = "abc", dst[4] = "...";
    berth_stream_call(stream, gate_stop, &g);
    berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, stream, false);
    berth_event_record(event, stream);
    berth_event_record(dropped, stream);
    berth_event_destroy(dropped);
    berth_stream_destroy(stream); /* does not wait; the work still runs */
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_string_equal(dst, "abc");
    /* The timeline may have gone to another stream by now: the event stays complete. */
    for (int i = 0; i < 50; i++) {
        berth_stream *next = new_stream();
        gate again = GATE_INIT;
        berth_stream_call(next, gate_stop, &again);
        assert_int_equal(berth_event_query(event), BERTH_OK);
        gate_open(&again);
        berth_stream_synchronize(next);
        berth_stream_destroy(next);
    }
    berth_event_destroy(event);
}

static void a_retained_stream_stays_usable(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    char src[4] = "abc", dst[4] = "...";
    assert_ptr_equal(berth__stream_retain(stream), stream);
    berth_stream_destroy(stream);
    assert_int_equal(berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, stream, true), BERTH_OK);
    assert_string_equal(dst, "abc");
    uint64_t id = berth_stream_id(stream);
    berth__stream_release(stream);
    stream = new_stream();
    assert_true(berth_stream_id(stream) > id);
    berth_stream_destroy(stream);
}

typedef struct own_wait {
    berth_stream *stream;
    berth_event *event;
    berth_status synchronize, copy, wait, enqueue;
    char src[4], dst[4];
} own_wait;

static void wait_for_oneself(void *context)
{
    own_wait *own = context;
    own->synchronize = berth_stream_synchronize(own->stream);
    own->copy = berth_copy(cpu, own->dst, own->src, 4, BERTH_COPY_INFER, own->stream, true);
    berth_event_record(own->event, own->stream);
    own->wait = berth_event_wait(own->event);
    own->enqueue = berth_copy(cpu, own->dst, own->src, 4, BERTH_COPY_INFER, own->stream, false);
}

static void waiting_for_oneself_is_refused(void **state)
{
    (void)state;
    own_wait own = {.stream = new_stream(), .event = new_event(), .src = "abc", .dst = "..."};
    berth_stream_call(own.stream, wait_for_oneself, &own);
    berth_stream_synchronize(own.stream);
    assert_int_equal(own.synchronize, BERTH_BUSY);
    assert_int_equal(own.copy, BERTH_BUSY);
    assert_int_equal(own.wait, BERTH_BUSY);
    assert_int_equal(own.enqueue, BERTH_OK);
    berth_stream_synchronize(own.stream);
    assert_string_equal(own.dst, "abc");
    berth_event_destroy(own.event);
    berth_stream_destroy(own.stream);
}

static void destroy_from_inside(void *context)
{
    berth_stream_destroy(context);
}

static void a_stream_may_destroy_itself(void **state)
{
    (void)state;
    berth_event *event = new_event();
    berth_stream *stream = new_stream();
    gate g = GATE_INIT;
    berth_stream_call(stream, gate_stop, &g);
    berth_stream_call(stream, destroy_from_inside, stream);
    berth_event_record(event, stream);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    berth_event_destroy(event);
}

/* Fails the 1st, 2nd, ... internal allocation of a whole scene until it succeeds. */
static void every_internal_allocation_may_fail(void **state)
{
    (void)state;
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        uint64_t live = berth__heap_live();
        berth_stream *stream = NULL;
        berth_event *event = NULL;
        gate g = GATE_INIT;
        char src[4] = "abc", dst[4] = "...";
        int enqueued = 0;
        berth__heap_fail_at(n, false);
        berth_status status = berth_stream_create(cpu, &stream);
        if (status == BERTH_OK)
            status = berth_event_create(cpu, &event);
        if (status == BERTH_OK)
            status = berth_stream_call(stream, gate_stop, &g);
        for (; status == BERTH_OK && enqueued < 40; enqueued++)
            status = berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, stream, false);
        if (status == BERTH_OK)
            status = berth_event_record(event, stream);
        berth__heap_fail_at(0, false);
        bool done = status == BERTH_OK;
        if (!done) {
            failures++;
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
            assert_int_equal(berth_last_error()->status, status);
        }
        gate_open(&g);
        if (stream)
            assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        berth_event_destroy(event);
        berth_stream_destroy(stream);
        assert_true(berth__heap_live() == live);
        if (done)
            break;
    }
    assert_true(failures >= 3); /* the stream, the event, the growing queue */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_return_before_they_have_run),
        cmocka_unit_test(need_sync_waits_for_that_stream_only),
        cmocka_unit_test(a_long_queue_runs_in_order),
        cmocka_unit_test(streams_wait_for_events_of_others),
        cmocka_unit_test(recording_again_moves_the_mark),
        cmocka_unit_test(events_outlive_their_stream),
        cmocka_unit_test(a_retained_stream_stays_usable),
        cmocka_unit_test(waiting_for_oneself_is_refused),
        cmocka_unit_test(a_stream_may_destroy_itself),
        cmocka_unit_test(every_internal_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

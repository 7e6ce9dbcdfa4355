/* What happens after a stream: once, when the stream has passed or its device is lost, and not at all where waiting
 * could not begin. */
#include "core/after.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/virtual.h"
#include "gate.h"

static _Atomic int called;

static void note_call(void *context)
{
    (void)context;
    atomic_fetch_add(&called, 1);
}

/* Our thread calls in its own time. */
static bool comes_to(int wanted)
{
    time_t begun = time(NULL);
    while (atomic_load(&called) != wanted && time(NULL) - begun < 60)
        sched_yield();
    return atomic_load(&called) == wanted;
}

/* The driver's wait, which can be made to refuse (see tests/CMakeLists.txt). */
static _Atomic bool refuses_waits;
static _Atomic int refusals_left; /* so many are refused, then no more */
static _Atomic int refused_waits, granted_waits;

berth_status __real_berth_event_wait(berth_event *event);
berth_status __wrap_berth_event_wait(berth_event *event);
berth_status __wrap_berth_event_wait(berth_event *event)
{
    if (atomic_load(&refuses_waits) ||
        (atomic_load(&refusals_left) > 0 && atomic_fetch_sub(&refusals_left, 1) > 0)) {
        atomic_fetch_add(&refused_waits, 1);
        return BERTH_DEVICE_ERROR;
    }
    atomic_fetch_add(&granted_waits, 1);
    return __real_berth_event_wait(event);
}

static void no_memory_is_told_and_nothing_called(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    atomic_store(&called, 0);
    uint64_t live = berth__heap_live();
    int refused = 0;
    for (uint64_t n = 1; n <= 2; n++) { /* the entry, its event */
        berth__heap_fail_at(n, false);
        berth_status status = berth__after_stream(stream, note_call, NULL);
        berth__heap_fail_at(0, false);
        refused += status == BERTH_OUT_OF_HOST_MEMORY;
        assert_int_equal(berth__heap_live(), live);
    }
    assert_int_equal(refused, 2);
    assert_int_equal(atomic_load(&called), 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
}

static void a_refused_mark_leaves_nothing(void **state)
{
    (void)state;
    berth_device device;
    berth_stream *stream = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    atomic_store(&called, 0);
    uint64_t live = berth__heap_live();
    assert_int_equal(berth_virtual_fail(device, BERTH_VIRTUAL_EVENT_CREATE, 1, BERTH_DEVICE_ERROR, false),
                     BERTH_OK);
    assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_DEVICE_ERROR);
    assert_int_equal(berth_virtual_fail(device, BERTH_VIRTUAL_EVENT_RECORD, 1, BERTH_DEVICE_ERROR, false),
                     BERTH_OK);
    assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_DEVICE_ERROR);
    assert_int_equal(berth__heap_live(), live);
    assert_int_equal(atomic_load(&called), 0);
    berth_stream_destroy(stream);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

static void each_is_called_once_in_the_end(void **state)
{
    (void)state;
    enum { CALLS = 200 };
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    atomic_store(&called, 0);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_OK);
    assert_true(comes_to(CALLS));
    berth__after_sweep();
    assert_int_equal(atomic_load(&called), CALLS);
    berth_stream_destroy(stream);
}

/* Our thread gave up, and a caller that comes by finds the entry not due: then the thread waits again, or nobody would. */
static void what_is_put_back_is_waited_for(void **state)
{
    (void)state;
    static gate stop = GATE_INIT;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &stop), BERTH_OK);
    atomic_store(&called, 0);
    atomic_store(&refused_waits, 0);
    atomic_store(&refuses_waits, true);
    assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_OK);
    time_t begun = time(NULL);
    while (atomic_load(&refused_waits) < 1000 &&
           time(NULL) - begun < 60) /* many times what one thread tries */
        berth__after_sweep();
    assert_true(atomic_load(&refused_waits) >= 1000);
    atomic_store(&granted_waits, 0);
    atomic_store(&refuses_waits, false);
    while (atomic_load(&granted_waits) == 0 && time(NULL) - begun < 60)
        berth__after_sweep();
    gate_open(&stop);
    assert_true(comes_to(1));
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
}

/* Nobody comes by: our thread itself asks again when a wait was refused for the moment. */
static void a_wait_that_is_refused_now_and_then_is_repeated(void **state)
{
    (void)state;
    static gate stop = GATE_INIT;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &stop), BERTH_OK);
    atomic_store(&called, 0);
    atomic_store(&refusals_left, 5);
    assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_OK);
    gate_open(&stop);
    assert_true(comes_to(1));
    assert_int_equal(atomic_load(&refusals_left), 0);
    berth_stream_destroy(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_is_told_and_nothing_called),
        cmocka_unit_test(a_refused_mark_leaves_nothing),
        cmocka_unit_test(each_is_called_once_in_the_end),
        cmocka_unit_test(what_is_put_back_is_waited_for),
        cmocka_unit_test(a_wait_that_is_refused_now_and_then_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

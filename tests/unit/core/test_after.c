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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_is_told_and_nothing_called),
        cmocka_unit_test(a_refused_mark_leaves_nothing),
        cmocka_unit_test(each_is_called_once_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

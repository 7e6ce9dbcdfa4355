/* What happens after a stream: once, when the stream has passed or its device is lost, and not at all where waiting
 * could not begin. */
#include "core/after.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>

#include "at_fork.h"
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

/* ---- Forks ------------------------------------------------------------------------------------------- */

/* ThreadSanitizer cannot start threads in the child of a process that had several. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_MAY_START_THREADS 0
#else
#define CHILD_MAY_START_THREADS 1
#endif

static void expect_child(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status)); /* else the alarm: it hung */
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The child comes by and finds what its parent's thread waited for lost; then a thread of its own waits, with nobody
 * coming by. Its exit code. */
static int go_on_in_child(void)
{
    alarm(60);
    berth__after_sweep();
    if (atomic_load(&called) != 1)
        return 1;
    if (!CHILD_MAY_START_THREADS)
        return 0;
    static gate stop = GATE_INIT;
    berth_stream *stream = NULL;
    if (berth_stream_create(berth_device_cpu(), &stream) != BERTH_OK ||
        berth_stream_call(stream, gate_stop, &stop) != BERTH_OK ||
        berth__after_stream(stream, note_call, NULL) != BERTH_OK)
        return 2;
    gate_open(&stop);
    return comes_to(2) ? 0 : 3;
}

static void a_child_does_without_its_parents_thread(void **state)
{
    (void)state;
    static gate stop = GATE_INIT;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &stop), BERTH_OK);
    atomic_store(&called, 0);
    atomic_store(&granted_waits, 0);
    assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_OK);
    while (atomic_load(&granted_waits) == 0) /* our thread stands in the driver */
        sched_yield();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(go_on_in_child());
    expect_child(child);
    gate_open(&stop);
    assert_true(comes_to(1));
    berth_stream_destroy(stream);
}

static _Atomic bool enough;

static void *come_by(void *unused)
{
    while (!atomic_load(&enough))
        berth__after_sweep();
    return unused;
}

/* Whatever callers that come by hold at that moment, the child finds the list whole and nobody in it. */
static void a_fork_finds_nobody_in_the_list(void **state)
{
    (void)state;
    enum { THREADS = 2, FORKS = 40, ENTRIES = 3 };
    static gate stop = GATE_INIT;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &stop), BERTH_OK);
    atomic_store(&called, 0);
    for (int i = 0; i < ENTRIES; i++)
        assert_int_equal(berth__after_stream(stream, note_call, NULL), BERTH_OK);
    atomic_store(&enough, false);
    pthread_t threads[THREADS];
    int running = at_fork_threads(THREADS);
    for (int i = 0; i < running; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_by, NULL), 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(60);
            berth__after_sweep();
            _exit(atomic_load(&called) == ENTRIES ? 0 : 1);
        }
        expect_child(child);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < running; i++)
        pthread_join(threads[i], NULL);
    gate_open(&stop);
    assert_true(comes_to(ENTRIES));
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
        cmocka_unit_test(a_child_does_without_its_parents_thread),
        cmocka_unit_test(a_fork_finds_nobody_in_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

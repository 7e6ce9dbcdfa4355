/* Threads of CPU streams: thousands of streams, many users at once, forks, and leaving in the middle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "gate.h"
#include "refuse_call.h"

static const berth_device cpu = {BERTH_DEVICE_CPU, 0};

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    return stream;
}

static void thousands_of_streams(void **state)
{
    (void)state;
    enum { STREAMS = 4000 };
    static berth_stream *streams[STREAMS];
    static uint32_t numbers[STREAMS], copies[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        numbers[i] = i + 1;
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(berth_copy(cpu, &copies[i], &numbers[i], 4, BERTH_COPY_INFER, streams[i], false),
                         BERTH_OK);
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(berth_stream_synchronize(streams[i]), BERTH_OK);
        assert_int_equal(copies[i], i + 1);
        berth_stream_destroy(streams[i]);
    }
}

/* A chain in which each stream waits for the one before: none of them holds a thread while it waits. */
static void a_long_chain_of_waiting_streams(void **state)
{
    (void)state;
    enum { LENGTH = 300 };
    static uint32_t values[LENGTH + 1];
    berth_stream *streams[LENGTH];
    berth_event *event;
    gate g = GATE_INIT;
    assert_int_equal(berth_event_create(cpu, &event), BERTH_OK);
    memset(values, 0, sizeof values);
    values[0] = 42;
    for (int i = 0; i < LENGTH; i++) {
        streams[i] = new_stream();
        if (i == 0)
            berth_stream_call(streams[i], gate_stop, &g);
        else
            assert_int_equal(berth_stream_wait_event(streams[i], event), BERTH_OK);
        berth_copy(cpu, &values[i + 1], &values[i], 4, BERTH_COPY_INFER, streams[i], false);
        berth_event_record(event, streams[i]);
        if (i % 2)
            berth_stream_destroy(streams[i]); /* parked streams may be destroyed */
    }
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(values[LENGTH], 42);
    for (int i = 0; i < LENGTH; i += 2)
        berth_stream_destroy(streams[i]);
    berth_event_destroy(event);
}

/* ---- Many threads ---------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 400, SHARED = 3 };
static berth_stream *shared[SHARED];
static _Atomic uint64_t calls;

static void count_call(void *context)
{
    (void)context;
    atomic_fetch_add(&calls, 1);
}

static void *use_streams(void *context)
{
    uint32_t random = (uint32_t)(uintptr_t)context * 2654435761u + 1;
    berth_event *event = NULL;
    char src[64], dst[64];
    uint64_t mine = 0;
    if (berth_event_create(cpu, &event) != BERTH_OK)
        return NULL;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525u + 1013904223u;
        berth_stream *one = shared[(random >> 8) % SHARED], *two = shared[(random >> 16) % SHARED];
        memset(src, round, sizeof src);
        bool ok = berth_copy(cpu, dst, src, sizeof dst, BERTH_COPY_INFER, one, false) == BERTH_OK;
        ok &= berth_event_record(event, one) == BERTH_OK;
        ok &= berth_stream_wait_event(two, event) == BERTH_OK;
        ok &= berth_stream_call(two, count_call, NULL) == BERTH_OK;
        if ((random >> 24) % 2)
            ok &= berth_event_wait(event) == BERTH_OK;
        else
            ok &= berth_stream_synchronize(two) == BERTH_OK;
        ok &= berth_event_query(event) == BERTH_OK;
        mine += ok && memcmp(src, dst, sizeof dst) == 0;
    }
    berth_event_destroy(event);
    return (void *)(uintptr_t)mine;
}

static void many_threads_share_streams(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < SHARED; i++)
        shared[i] = new_stream();
    atomic_store(&calls, 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_streams, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *mine = NULL;
        pthread_join(threads[i], &mine);
        assert_int_equal((uintptr_t)mine, ROUNDS);
    }
    for (int i = 0; i < SHARED; i++) {
        assert_int_equal(berth_stream_synchronize(shared[i]), BERTH_OK);
        berth_stream_destroy(shared[i]);
    }
    assert_int_equal(atomic_load(&calls), THREADS * ROUNDS);
}

/* Streams that come and go while threads wait for them: the struct must be free of users when it is freed. */
static void *come_and_go(void *context)
{
    uintptr_t good = 0;
    (void)context;
    for (int round = 0; round < 300; round++) {
        berth_stream *stream = NULL;
        int from = round, to = -1;
        if (berth_stream_create(cpu, &stream) != BERTH_OK)
            break;
        good +=
            berth_copy(cpu, &to, &from, sizeof to, BERTH_COPY_INFER, stream, true) == BERTH_OK && to == round;
        berth_stream_destroy(stream);
    }
    return (void *)good;
}

static void streams_come_and_go(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        assert_int_equal((uintptr_t)good, 300);
    }
    assert_true(berth__heap_live() == live);
}

/* ---- Forks and exits --------------------------------------------------------------------------------- */

/* ThreadSanitizer cannot start threads in the child of a process that had several. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_MAY_START_THREADS 0
#else
#define CHILD_MAY_START_THREADS 1
#endif

/* The number of the first check that fails, 0 if none. */
static int check_in_child(berth_stream *stream, berth_event *pending, berth_event *complete)
{
    char src[4] = "abc", dst[4] = "...";
    berth_event *event = NULL;
    if (berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, stream, true) != BERTH_DEVICE_LOST)
        return 1;
    if (!strstr(berth_last_error()->message, "parent"))
        return 2;
    if (berth_stream_query(stream) != BERTH_DEVICE_LOST ||
        berth_stream_synchronize(stream) != BERTH_DEVICE_LOST)
        return 3;
    if (berth_event_query(pending) != BERTH_DEVICE_LOST || berth_event_wait(pending) != BERTH_DEVICE_LOST)
        return 4;
    if (berth_event_query(complete) != BERTH_OK || berth_event_wait(complete) != BERTH_OK)
        return 5;
    if (berth_event_create(cpu, &event) != BERTH_OK || berth_event_record(event, stream) != BERTH_DEVICE_LOST)
        return 6;
    berth_event_destroy(event);
    berth_event_destroy(pending);
    berth_stream_destroy(stream);
    if (!CHILD_MAY_START_THREADS)
        return 0;
    berth_stream *own = NULL;
    if (berth_stream_create(cpu, &own) != BERTH_OK ||
        berth_copy(cpu, dst, src, 4, BERTH_COPY_INFER, own, true) != BERTH_OK || strcmp(dst, "abc") != 0)
        return 7;
    berth_stream_destroy(own);
    return 0;
}

static void a_child_process_finds_its_streams_dead(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *pending, *complete;
    gate g = GATE_INIT;
    assert_int_equal(berth_event_create(cpu, &pending), BERTH_OK);
    assert_int_equal(berth_event_create(cpu, &complete), BERTH_OK);
    berth_event_record(complete, stream);
    berth_stream_call(stream, gate_stop, &g);
    berth_event_record(pending, stream);
    gate_wait_reached(&g);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(check_in_child(stream, pending, complete));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* The parent goes on as if nothing had happened. */
    gate_open(&g);
    assert_int_equal(berth_event_wait(pending), BERTH_OK);
    assert_int_equal(berth_event_query(complete), BERTH_OK);
    berth_event_destroy(pending);
    berth_event_destroy(complete);
    berth_stream_destroy(stream);
}

static void leaving_does_not_wait_for_streams(void **state)
{
    (void)state;
    if (!CHILD_MAY_START_THREADS)
        return; /* the same is seen when this program itself ends: its threads are idle */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static gate never = GATE_INIT;
        berth_stream *stream = NULL;
        if (berth_stream_create(cpu, &stream) != BERTH_OK ||
            berth_stream_call(stream, gate_stop, &never) != BERTH_OK)
            _exit(1);
        gate_wait_reached(&never);
        alarm(20); /* a hang becomes a failure */
        exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
}

enum { UNTRIED = 77 };

static bool refuse_threads(void)
{
#if defined(SYS_clone3)
    if (!refuse_call(SYS_clone3))
        return false;
#endif
    return refuse_call(SYS_clone);
}

/* Where no more threads are to be had, a stream waits for one of those there are; where there is none at all, its work
 * is refused. In a child, since nothing takes the filter back. */
static int run_without_more_threads(void)
{
    alarm(60);
    berth_stream *first = new_stream(), *second = new_stream(), *third = new_stream();
    static gate g = GATE_INIT;
    static uint32_t number = 42, copies[2];
    if (berth_stream_call(first, gate_stop, &g) != BERTH_OK)
        return 1;
    gate_wait_reached(&g); /* the one thread is busy */
    if (!refuse_threads())
        return UNTRIED;
    if (berth_copy(cpu, &copies[0], &number, 4, BERTH_COPY_INFER, second, false) != BERTH_OK ||
        berth_copy(cpu, &copies[1], &number, 4, BERTH_COPY_INFER, third, false) != BERTH_OK)
        return 3;
    gate_open(&g);
    if (berth_stream_synchronize(second) != BERTH_OK || berth_stream_synchronize(third) != BERTH_OK)
        return 4;
    return copies[0] == 42 && copies[1] == 42 ? 0 : 5;
}

static int be_refused_the_first_thread(void)
{
    alarm(60);
    berth_stream *stream = new_stream();
    uint32_t number = 42, copy = 0;
    if (!refuse_threads())
        return UNTRIED;
    return berth_copy(cpu, &copy, &number, 4, BERTH_COPY_INFER, stream, false) == BERTH_OUT_OF_HOST_MEMORY
               ? 0
               : 2;
}

static void streams_share_the_threads_that_there_are(void **state)
{
    (void)state;
    int (*const lives[])(void) = {run_without_more_threads, be_refused_the_first_thread};
    for (size_t i = 0; i < BERTH_COUNT_OF(lives) && CHILD_MAY_START_THREADS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(lives[i]());
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != UNTRIED)
            assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_of_streams),
        cmocka_unit_test(a_long_chain_of_waiting_streams),
        cmocka_unit_test(many_threads_share_streams),
        cmocka_unit_test(streams_come_and_go),
        cmocka_unit_test(a_child_process_finds_its_streams_dead),
        cmocka_unit_test(leaving_does_not_wait_for_streams),
        cmocka_unit_test(streams_share_the_threads_that_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

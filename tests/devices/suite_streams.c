/* The judge of a device: streams and events, forks and threads. suite.c lists these checks. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "gate.h"
#include "suite.h"

void check_streams_are_asynchronous(void)
{
    needs_calls();
    berth_stream *stream = new_stream();
    berth_event *event = new_event(), *after = new_event();
    gate g = GATE_INIT;
    char src[4] = "abc", dst[4] = "...";
    char *p = take(4);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(device, p, src, 4, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(berth_copy(device, dst, p, 4, BERTH_COPY_DEVICE_TO_HOST, stream, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    assert_int_equal(berth_event_record(after, stream), BERTH_OK);
    gate_wait_reached(&g);
    assert_string_equal(dst, "...");
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_string_equal(dst, "abc");
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(berth_event_query(after), BERTH_OK);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    berth_event_destroy(event);
    berth_event_destroy(after);
    berth_stream_destroy(stream);
    give(p, 4);
}

static void *open_later(void *context)
{
    for (int i = 0; i < 5; i++)
        rest();
    gate_open(context);
    return NULL;
}

/* Who has waited finds the gate open, before which the stream stood. */
void check_waits_last_until_the_end(void)
{
    needs_calls();
    static gate gates[6]; /* a stream may stand there longer than a check that fails */
    for (size_t i = 0; i < BERTH_COUNT_OF(gates); i++) {
        berth_stream *stream = new_stream();
        berth_event *event = new_event();
        pthread_t opener;
        gates[i] = (gate)GATE_INIT;
        assert_int_equal(berth_stream_call(stream, gate_stop, &gates[i]), BERTH_OK);
        assert_int_equal(berth_event_record(event, stream), BERTH_OK);
        assert_int_equal(pthread_create(&opener, NULL, open_later, &gates[i]), 0);
        berth_status status = i % 2 ? berth_stream_synchronize(stream) : berth_event_wait(event);
        pthread_mutex_lock(&gates[i].lock);
        bool was_open = gates[i].open;
        pthread_mutex_unlock(&gates[i].lock);
        pthread_join(opener, NULL);
        assert_int_equal(status, BERTH_OK);
        assert_true(was_open);
        berth_event_destroy(event);
        berth_stream_destroy(stream);
    }
}

void check_waits_are_for_one_stream_only(void)
{
    needs_calls();
    berth_stream *stuck = new_stream(), *free_one = new_stream();
    gate g = GATE_INIT;
    char src[4] = "abc", dst[4] = "...";
    char *p = take(4);
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_copy(device, p, src, 4, BERTH_COPY_HOST_TO_DEVICE, free_one, true), BERTH_OK);
    assert_int_equal(berth_copy(device, dst, p, 4, BERTH_COPY_DEVICE_TO_HOST, free_one, true), BERTH_OK);
    assert_string_equal(dst, "abc");
    memset(dst, 0, sizeof dst);
    get(dst, p, 4); /* nor does work without a stream wait for it */
    assert_string_equal(dst, "abc");
    assert_int_equal(berth_stream_query(stuck), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stuck), BERTH_OK);
    berth_stream_destroy(stuck);
    berth_stream_destroy(free_one);
    give(p, 4);
}

static struct {
    int next;
    bool in_order;
} order;

static void expect_number(void *context)
{
    order.in_order &= order.next == (int)(intptr_t)context;
    order.next++;
}

void check_functions_and_copies_run_in_order(void)
{
    needs_calls();
    enum { MANY = 100 };
    static int values[MANY], seen[MANY];
    berth_stream *stream = new_stream();
    int *p = take(sizeof(int));
    order.next = 0;
    order.in_order = true;
    for (intptr_t i = 0; i < MANY; i++) {
        values[i] = (int)i + 1;
        assert_int_equal(
            berth_copy(device, p, &values[i], sizeof *p, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
        assert_int_equal(berth_stream_call(stream, expect_number, (void *)i), BERTH_OK);
        assert_int_equal(berth_copy(device, &seen[i], p, sizeof *p, BERTH_COPY_DEVICE_TO_HOST, stream, false),
                         BERTH_OK);
    }
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(order.next, MANY);
    assert_true(order.in_order);
    assert_memory_equal(seen, values, sizeof seen);
    berth_stream_destroy(stream);
    give(p, sizeof(int));
}

void check_streams_wait_for_events_of_others(void)
{
    needs_calls();
    berth_stream *first = new_stream(), *second = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT;
    char a[4] = "abc", c[4] = "...";
    char *p = take(4);
    put(p, "xyz", 4);
    assert_int_equal(berth_stream_call(first, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(device, p, a, 4, BERTH_COPY_HOST_TO_DEVICE, first, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, first), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(second, event), BERTH_OK);
    berth_event_destroy(event); /* the point has been taken */
    assert_int_equal(berth_copy(device, c, p, 4, BERTH_COPY_DEVICE_TO_HOST, second, false), BERTH_OK);
    gate_wait_reached(&g);
    for (int i = 0; i < 20; i++) { /* one that does not wait has time to show it */
        assert_int_equal(berth_stream_query(second), BERTH_NOT_READY);
        assert_string_equal(c, "...");
        rest();
    }
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(second), BERTH_OK);
    assert_string_equal(c, "abc");
    berth_stream_destroy(first);
    berth_stream_destroy(second);
    give(p, 4);
}

/* What was told to wait has taken the mark as it was: recording the event again does not hold it back. */
void check_waits_are_for_the_mark_as_it_was(void)
{
    needs_calls();
    berth_stream *passed = new_stream(), *stuck = new_stream(), *waits = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT, held = GATE_INIT;
    assert_int_equal(berth_stream_call(waits, gate_stop, &held), BERTH_OK);
    assert_int_equal(berth_event_record(event, passed), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(waits, event), BERTH_OK);
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_event_record(event, stuck), BERTH_OK);
    gate_open(&held);
    assert_int_equal(berth_stream_synchronize(waits), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(passed);
    berth_stream_destroy(stuck);
    berth_stream_destroy(waits);
}

void check_recording_again_moves_the_mark(void)
{
    needs_calls();
    berth_stream *slow = new_stream(), *fast = new_stream();
    berth_event *event = new_event();
    gate g = GATE_INIT;
    assert_int_equal(berth_stream_call(slow, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_event_record(event, slow), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(berth_event_record(event, fast), BERTH_OK);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(berth_event_record(event, slow), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(slow);
    berth_stream_destroy(fast);
}

void check_teardown_in_any_order(void)
{
    needs_calls();
    for (int way = 0; way < 4; way++) {
        berth_stream *stream = new_stream();
        berth_event *event = new_event(), *dropped = new_event();
        gate g = GATE_INIT;
        char src[4] = "abc", dst[4] = "...";
        assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
        assert_int_equal(berth_copy(device, dst, src, 4, BERTH_COPY_HOST_TO_HOST, stream, false), BERTH_OK);
        assert_int_equal(berth_event_record(event, stream), BERTH_OK);
        assert_int_equal(berth_event_record(dropped, stream), BERTH_OK);
        if (way & 1)
            berth_event_destroy(dropped);
        berth_stream_destroy(stream); /* does not wait */
        assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
        if (!(way & 1))
            berth_event_destroy(dropped);
        gate_open(&g);
        assert_int_equal(berth_event_wait(event), BERTH_OK);
        assert_string_equal(dst, "abc");
        berth_event_destroy(event);
    }
}

/* For devices that call no functions, which nothing can hold back: only events keep the two streams apart, and a stream that
 * does not wait reads what was there before. One that always lags may pass all the same. */
void check_streams_take_turns(void)
{
    needs_streams();
    enum { SIZE = 1 << 18, STEPS = 4 };
    const int turns = has_calls ? 8 : 40; /* others are judged by the checks with gates */
    static unsigned char there[2][SIZE], back[SIZE];
    unsigned char *p[STEPS];
    berth_stream *writes = new_stream(), *reads = new_stream();
    berth_event *written = new_event(), *was_read = new_event();
    fill_pattern(there[0], SIZE, 1);
    fill_pattern(there[1], SIZE, 2);
    for (int i = 0; i < STEPS; i++)
        p[i] = take(SIZE);
    for (int turn = 0; turn < turns; turn++) {
        assert_int_equal(berth_stream_wait_event(writes, was_read), BERTH_OK);
        assert_int_equal(
            berth_copy(device, p[0], there[turn % 2], SIZE, BERTH_COPY_HOST_TO_DEVICE, writes, false),
            BERTH_OK);
        for (int i = 1; i < STEPS; i++)
            assert_int_equal(
                berth_copy(device, p[i], p[i - 1], SIZE, BERTH_COPY_DEVICE_TO_DEVICE, writes, false),
                BERTH_OK);
        assert_int_equal(berth_event_record(written, writes), BERTH_OK);
        assert_int_equal(berth_stream_wait_event(reads, written), BERTH_OK);
        assert_int_equal(
            berth_copy(device, back, p[STEPS - 1], SIZE, BERTH_COPY_DEVICE_TO_HOST, reads, false), BERTH_OK);
        assert_int_equal(berth_event_record(was_read, reads), BERTH_OK);
        assert_int_equal(berth_event_wait(was_read), BERTH_OK);
        assert_memory_equal(back, there[turn % 2], SIZE);
    }
    assert_int_equal(berth_stream_synchronize(writes), BERTH_OK);
    berth_event_destroy(written);
    berth_event_destroy(was_read);
    berth_stream_destroy(writes);
    berth_stream_destroy(reads);
    for (int i = 0; i < STEPS; i++)
        give(p[i], SIZE);
}

typedef struct own_wait {
    berth_stream *stream;
    berth_status synchronize;
} own_wait;

static void wait_for_oneself(void *context)
{
    own_wait *own = context;
    own->synchronize = berth_stream_synchronize(own->stream);
}

void check_waiting_for_oneself_is_refused(void)
{
    needs_calls();
    own_wait own = {.stream = new_stream()};
    assert_int_equal(berth_stream_call(own.stream, wait_for_oneself, &own), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(own.stream), BERTH_OK);
    assert_int_equal(own.synchronize, BERTH_BUSY);
    berth_stream_destroy(own.stream);
}

typedef struct use_inside {
    unsigned char there[64], back[64];
    berth_status allocated, copied, fetched, released;
} use_inside;

static void use_the_device(void *context)
{
    use_inside *use = context;
    void *p = NULL;
    use->allocated = berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof use->there, 64, NULL, &p);
    use->copied =
        berth_copy(device, p, use->there, sizeof use->there, BERTH_COPY_HOST_TO_DEVICE, NULL, false);
    use->fetched = berth_copy(device, use->back, p, sizeof use->back, BERTH_COPY_DEVICE_TO_HOST, NULL, false);
    use->released = berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof use->there, NULL);
}

void check_functions_may_use_the_device(void)
{
    needs_calls();
    if (!(berth__device_type_of(device.kind)->ops.abilities & BERTH_DEVICE_CALLS_USE_DEVICE))
        check_skip("the device does not say BERTH_DEVICE_CALLS_USE_DEVICE");
    static use_inside use; /* outlives a check that fails */
    berth_stream *stream = new_stream();
    fill_pattern(use.there, sizeof use.there, 11);
    assert_int_equal(berth_stream_call(stream, use_the_device, &use), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(use.allocated, BERTH_OK);
    assert_int_equal(use.copied, BERTH_OK);
    assert_int_equal(use.fetched, BERTH_OK);
    assert_int_equal(use.released, BERTH_OK);
    assert_memory_equal(use.back, use.there, sizeof use.there);
    berth_stream_destroy(stream);
}

/* Blocks given back on a stream while that stream still has to use them, held back for certain where that can be had. */
void check_release_on_a_stream(void)
{
    if (!info.stream_ordered)
        check_skip("the device does not say stream_ordered");
    enum { ROUNDS = 20, SIZE = 10000 };
    static unsigned char there[ROUNDS][SIZE], back[ROUNDS][SIZE], other[SIZE];
    void *next[ROUNDS];
    berth_stream *stream = new_stream();
    static gate g;
    g = (gate)GATE_INIT;
    if (has_calls)
        assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    for (int i = 0; i < ROUNDS; i++) {
        void *p = NULL;
        size_t alignment = i % 2 ? 64 : 4096;
        fill_pattern(there[i], SIZE, (unsigned)i);
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, SIZE, alignment, stream, &p),
                         BERTH_OK);
        assert_int_equal(berth_copy(device, p, there[i], SIZE, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                         BERTH_OK);
        assert_int_equal(berth_copy(device, back[i], p, SIZE, BERTH_COPY_DEVICE_TO_HOST, stream, false),
                         BERTH_OK);
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, SIZE, stream), BERTH_OK);
        fill_pattern(other, SIZE, (unsigned)i + 128);
        next[i] = take(SIZE); /* whose block is this? */
        put(next[i], other, SIZE);
    }
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_memory_equal(back, there, sizeof back);
    for (int i = 0; i < ROUNDS; i++) {
        fill_pattern(other, SIZE, (unsigned)i + 128);
        get(back[0], next[i], SIZE);
        assert_memory_equal(back[0], other, SIZE);
        give(next[i], SIZE);
    }
    berth_stream_destroy(stream);
}

/* ---- Forks and threads ----------------------------------------------------------------------------------------- */

/* In a child, which has none of the threads that the device may have: each call answers, and does not wait for them. Ends
 * with the number of the first that says something else than that it works or that the device is lost. */
_Noreturn static void ask_in_child(berth_stream *stream, berth_event *event, void *p, unsigned seconds)
{
    enum { SIZE = 64 };
    static char host[SIZE];
    berth_stream *own = NULL;
    void *q = NULL;
    alarm(seconds);
    const berth_status answers[] = {
        berth_stream_query(stream),
        berth_event_query(event),
        berth_event_wait(event),
        berth_stream_synchronize(stream),
        berth_copy(device, p, host, SIZE, BERTH_COPY_HOST_TO_DEVICE, stream, false),
        berth_copy(device, host, p, SIZE, BERTH_COPY_DEVICE_TO_HOST, NULL, false),
        berth_zero(device, p, SIZE, NULL, false),
        berth_stream_create(device, &own),
        own ? berth_zero(device, p, SIZE, own, true) : BERTH_OK,
        berth_device_allocate(device, BERTH_MEMORY_DEVICE, SIZE, 64, NULL, &q),
        q ? berth_device_release(device, BERTH_MEMORY_DEVICE, q, SIZE, NULL) : BERTH_OK,
    };
    berth_stream_destroy(own);
    berth_stream_destroy(stream);
    berth_event_destroy(event);
    for (size_t i = 0; i < BERTH_COUNT_OF(answers); i++)
        if (answers[i] != BERTH_OK && answers[i] != BERTH_DEVICE_LOST &&
            !(i < 2 && answers[i] == BERTH_NOT_READY))
            _exit((int)i + 1);
    _exit(0);
}

void check_a_forked_child_is_answered(void)
{
    needs_streams();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    check_skip("a sanitizer's own locks do not survive a fork while there are threads");
#elif defined(BERTH_TEST_EMULATED)
    check_skip("qemu-user 7.2 fails an assertion of its own at a fork while there are threads");
#endif
    berth_stream *stream = new_stream();
    berth_event *event = new_event();
    static gate g;
    g = (gate)GATE_INIT;
    char *p = take(64);
    if (has_calls) { /* behind this the child could wait for ever */
        assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
        gate_wait_reached(&g);
    }
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    unsigned left = alarm(0); /* of berth-device-check's own limit, if that is what runs */
    alarm(left);
    pid_t child = fork();
    if (child == 0)
        ask_in_child(stream, event, p, left && left < 5 ? left : 5);
    int end = 0;
    assert_true(child > 0 && waitpid(child, &end, 0) == child);
    gate_open(&g);
    assert_true(!WIFSIGNALED(end)); /* by SIGALRM: a call waited for a thread that the child does not have */
    assert_int_equal(WEXITSTATUS(end), 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    give(p, 64);
}

enum { THREADS = 4, ROUNDS = 30 };

static void *work(void *context)
{
    unsigned char there[512], back[512];
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    uintptr_t good = 0;
    if (berth_stream_create(device, &stream) != BERTH_OK || berth_event_create(device, &event) != BERTH_OK)
        return NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        fill_pattern(there, sizeof there, i * 31 + (unsigned)(uintptr_t)context);
        bool ok = berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof there, 64, NULL, &p) == BERTH_OK;
        ok = ok && berth_copy(device, p, there, sizeof there, BERTH_COPY_INFER, stream, false) == BERTH_OK;
        ok = ok && berth_copy(device, back, p, sizeof back, BERTH_COPY_INFER, stream, false) == BERTH_OK;
        ok = ok && berth_event_record(event, stream) == BERTH_OK && berth_event_wait(event) == BERTH_OK;
        ok = ok && memcmp(there, back, sizeof back) == 0;
        ok = ok && berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof there, NULL) == BERTH_OK;
        good += ok;
    }
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    return (void *)good;
}

void check_many_threads(void)
{
    needs_streams();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        assert_int_equal((uintptr_t)good, ROUNDS);
    }
}

/* The judge of a device: every promise of berth/device.h. Every byte goes through the device's own copies, so that nothing
 * depends on what the host may touch. tests/devices/main.c runs it as a test, check.c as berth-device-check. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "berth/buffer.h"
#include "device/device.h"
#include "gate.h"
#include "harness.h"
#include "schedules.h"

berth_device device;
berth_device_info info;
static bool has_streams, has_calls;

static bool has(berth_memory_kind kind)
{
    return (info.memory_kinds >> kind & 1) != 0;
}

static void needs_streams(void)
{
    if (!has_streams)
        check_skip("the device has no streams");
}

static void needs_calls(void)
{
    needs_streams();
    if (!has_calls)
        check_skip(
            "the device does not call functions of the host, and only these hold a stream back for certain");
}

/* NULL on a device without streams: then work is done at once. */
static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    if (!has_streams)
        return NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

static berth_event *new_event(void)
{
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    return event;
}

static void *take(size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size_bytes, 64, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static void give(void *p, size_t size_bytes)
{
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, size_bytes, NULL), BERTH_OK);
}

static void put(void *dst, const void *src, size_t size_bytes)
{
    assert_int_equal(berth_copy(device, dst, src, size_bytes, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
                     BERTH_OK);
}

static void get(void *dst, const void *src, size_t size_bytes)
{
    assert_int_equal(berth_copy(device, dst, src, size_bytes, BERTH_COPY_DEVICE_TO_HOST, NULL, false),
                     BERTH_OK);
}

static void fill_pattern(unsigned char *p, size_t size_bytes, unsigned seed)
{
    for (size_t i = 0; i < size_bytes; i++)
        p[i] = (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

static void rest(void)
{
    const struct timespec moment = {0, 1000000};
    nanosleep(&moment, NULL);
}

/* ---- Memory and copies ----------------------------------------------------------------------------- */

static void says_what_it_is(void)
{
    assert_true(info.name[0] != '\0');
    assert_true(has(BERTH_MEMORY_DEVICE));
    assert_string_not_equal(berth_device_kind_name((berth_device_kind)device.kind), "unknown");
    int32_t count = 0, again = 0;
    for (int i = 0; i < 10; i++) { /* never shrinks */
        assert_int_equal(berth_device_count((berth_device_kind)device.kind, &again), BERTH_OK);
        assert_true(again > device.ordinal && again >= count);
        count = again;
    }
    uint64_t free_bytes = 0, total_bytes = 0;
    berth_status status = berth_device_memory(device, &free_bytes, &total_bytes);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    assert_true(free_bytes <= total_bytes);
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_WRITE_COMBINED; kind++)
        assert_true(!has((berth_memory_kind)kind) ||
                    berth__device_most_bytes(device, (berth_memory_kind)kind) > 0);
}

static void every_kind_of_memory(void)
{
    static unsigned char there[5000], back[5000];
    fill_pattern(there, sizeof there, 1);
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_WRITE_COMBINED; kind++) {
        void *p = NULL;
        if (!has((berth_memory_kind)kind)) {
            assert_int_equal(berth_device_allocate(device, (berth_memory_kind)kind, 8, 8, NULL, &p),
                             BERTH_UNSUPPORTED);
            continue;
        }
        for (size_t alignment = 1; alignment <= 1 << 20; alignment *= 4) {
            assert_int_equal(
                berth_device_allocate(device, (berth_memory_kind)kind, sizeof there, alignment, NULL, &p),
                BERTH_OK);
            assert_true((uintptr_t)p % alignment == 0);
            berth_copy_kind in = BERTH_COPY_INFER;
            assert_int_equal(berth_copy(device, p, there, sizeof there, in, NULL, false), BERTH_OK);
            memset(back, 0, sizeof back);
            assert_int_equal(berth_copy(device, back, p, sizeof back, in, NULL, false), BERTH_OK);
            assert_memory_equal(back, there, sizeof back);
            if (kind != BERTH_MEMORY_DEVICE || info.host_accessible) { /* the host may touch it */
                assert_memory_equal(p, there, sizeof there);
                memset(p, 0x3c, sizeof there);
                assert_int_equal(berth_copy(device, back, p, sizeof back, in, NULL, false), BERTH_OK);
                for (size_t i = 0; i < sizeof back; i++)
                    assert_int_equal(back[i], 0x3c);
            }
            assert_int_equal(berth_zero(device, p, sizeof there, NULL, false), BERTH_OK);
            assert_int_equal(berth_copy(device, back, p, sizeof back, in, NULL, false), BERTH_OK);
            for (size_t i = 0; i < sizeof back; i++)
                assert_int_equal(back[i], 0);
            assert_int_equal(berth_device_release(device, (berth_memory_kind)kind, p, sizeof there, NULL),
                             BERTH_OK);
        }
    }
}

static void copies_of_all_kinds_and_sizes(void)
{
    static unsigned char there[70000], back[70000], expected[70000];
    const size_t sizes[] = {1, 3, 64, 4095, 4096, 65537};
    unsigned char *a = take(sizeof there), *b = take(sizeof there);
    berth_stream *stream = new_stream();
    for (size_t s = 0; s < BERTH_COUNT_OF(sizes); s++)
        for (int way = 0; way < 6; way++) {
            berth_stream *on = way % 2 ? stream : NULL;
            bool infer = way >= 4;
            size_t offset = (size_t)way * 7;
            fill_pattern(there, sizeof there, (unsigned)(s * 10 + (size_t)way));
            put(b, there, sizeof there);
            fill_pattern(there, sizeof there, (unsigned)(s * 10 + (size_t)way + 100));
            get(expected, b, sizeof expected);
            memcpy(expected + offset, there + 1, sizes[s]);
            assert_int_equal(berth_copy(device, a + 5, there + 1, sizes[s],
                                        infer ? BERTH_COPY_INFER : BERTH_COPY_HOST_TO_DEVICE, on, false),
                             BERTH_OK);
            assert_int_equal(berth_copy(device, b + offset, a + 5, sizes[s],
                                        infer ? BERTH_COPY_INFER : BERTH_COPY_DEVICE_TO_DEVICE, on, false),
                             BERTH_OK);
            assert_int_equal(berth_copy(device, back, b, sizeof back,
                                        infer ? BERTH_COPY_INFER : BERTH_COPY_DEVICE_TO_HOST, on, true),
                             BERTH_OK);
            assert_memory_equal(back, expected, sizeof back);
        }
    assert_int_equal(berth_copy(device, back, there, 100, BERTH_COPY_HOST_TO_HOST, NULL, false), BERTH_OK);
    assert_memory_equal(back, there, 100);
    assert_int_equal(berth_copy(device, back + 100, there + 100, 100, BERTH_COPY_HOST_TO_HOST, stream, true),
                     BERTH_OK);
    assert_memory_equal(back, there, 200);
    berth_stream_destroy(stream);
    give(a, sizeof there);
    give(b, sizeof there);
}

static void overlapping_copies_move(void)
{
    static unsigned char there[10000], back[10000], expected[10000];
    unsigned char *p = take(sizeof there);
    berth_stream *stream = new_stream();
    for (int way = 0; way < 4; way++) {
        size_t from = way & 1 ? 0 : 500, to = way & 1 ? 500 : 0;
        fill_pattern(there, sizeof there, 3);
        memcpy(expected, there, sizeof there);
        memmove(expected + to, expected + from, 9000);
        put(p, there, sizeof there);
        assert_int_equal(berth_copy(device, p + to, p + from, 9000, BERTH_COPY_DEVICE_TO_DEVICE,
                                    way & 2 ? stream : NULL, true),
                         BERTH_OK);
        get(back, p, sizeof back);
        assert_memory_equal(back, expected, sizeof back);
    }
    berth_stream_destroy(stream);
    give(p, sizeof there);
}

static void zero_fills_exactly(void)
{
    static unsigned char there[9000], back[9000];
    const size_t ranges[][2] = {{0, 9000}, {1, 1}, {3, 17}, {16, 4096}, {63, 8900}};
    unsigned char *p = take(sizeof there);
    berth_stream *stream = new_stream();
    for (size_t r = 0; r < BERTH_COUNT_OF(ranges); r++)
        for (int on = 0; on < 2; on++) {
            memset(there, 0xff, sizeof there);
            put(p, there, sizeof there);
            assert_int_equal(berth_zero(device, p + ranges[r][0], ranges[r][1], on ? stream : NULL, true),
                             BERTH_OK);
            memset(there + ranges[r][0], 0, ranges[r][1]);
            get(back, p, sizeof back);
            assert_memory_equal(back, there, sizeof back);
        }
    berth_stream_destroy(stream);
    give(p, sizeof there);
}

static void zero_bytes_and_bad_input(void)
{
    void *p = &p;
    char a[8] = {0};
    berth_stream *stream = new_stream(), *foreign = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 0, 64, NULL, &p), BERTH_OK);
    assert_null(p);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_copy(device, NULL, NULL, 0, BERTH_COPY_INFER, stream, true), BERTH_OK);
    assert_int_equal(berth_copy(device, NULL, a, 1, BERTH_COPY_INFER, stream, true), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 8, 3, NULL, &p),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, SIZE_MAX, 8, NULL, &p),
                     BERTH_OVERFLOW);
    berth_status huge = berth_device_allocate(device, BERTH_MEMORY_DEVICE, (size_t)1 << 60, 64, NULL, &p);
    assert_true(huge == BERTH_OUT_OF_DEVICE_MEMORY ||
                (info.host_accessible && huge == BERTH_OUT_OF_HOST_MEMORY));
    assert_null(p);
    assert_true(berth_last_error()->message[0] != '\0');
    char words[256]; /* what stands there when the device keeps none of its own */
    snprintf(words, sizeof words, "%s failed to allocate memory: %s",
             berth_device_kind_name((berth_device_kind)device.kind), berth_status_words(huge));
    assert_string_not_equal(berth_last_error()->message, words);
    const berth_device nowhere = {device.kind, 4000};
    assert_int_equal(berth_device_allocate(nowhere, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_describe(nowhere, &info), BERTH_NOT_FOUND);
    if (device.kind != BERTH_DEVICE_CPU && has_streams) {
        assert_int_equal(berth_stream_create(berth_device_cpu(), &foreign), BERTH_OK);
        assert_int_equal(berth_zero(device, a, 8, foreign, false), BERTH_INVALID_ARGUMENT);
        berth_event *event = new_event();
        assert_int_equal(berth_event_record(event, foreign), BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_stream_wait_event(foreign, event), BERTH_INVALID_ARGUMENT);
        berth_event_destroy(event);
        berth_stream_destroy(foreign);
    }
    berth_stream_destroy(stream);
}

/* ---- Streams and events ---------------------------------------------------------------------------- */

static void streams_are_asynchronous(void)
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
static void waits_last_until_the_end(void)
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

static void waits_are_for_one_stream_only(void)
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

static void functions_and_copies_run_in_order(void)
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

static void streams_wait_for_events_of_others(void)
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
static void waits_are_for_the_mark_as_it_was(void)
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

static void recording_again_moves_the_mark(void)
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

static void teardown_in_any_order(void)
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
static void streams_take_turns(void)
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

static void waiting_for_oneself_is_refused(void)
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

static void functions_may_use_the_device(void)
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
static void release_on_a_stream(void)
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

static void a_forked_child_is_answered(void)
{
    needs_streams();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    check_skip("a sanitizer's own locks do not survive a fork while there are threads");
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

static void many_threads(void)
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

/* ---- Buffers, pieces, faults ------------------------------------------------------------------------- */

static void buffers_live_as_long_as_their_copies(void)
{
    needs_calls();
    static char host[100000], back[100000];
    char *p = take(sizeof host);
    berth_buffer *from, *on, *to;
    berth_stream *stream = new_stream();
    gate g = GATE_INIT;
    fill_pattern((unsigned char *)host, sizeof host, 9);
    assert_int_equal(berth_buffer_view(host, sizeof host, berth_device_cpu(), &from), BERTH_OK);
    assert_int_equal(berth_buffer_view(p, sizeof host, device, &on), BERTH_OK);
    assert_int_equal(berth_buffer_view(back, sizeof back, berth_device_cpu(), &to), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_buffer_zero(on, stream, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(on, from, stream, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(to, on, stream, false), BERTH_OK);
    berth_buffer_release(from);
    berth_buffer_release(on);
    berth_buffer_release(to);
    gate_wait_reached(&g);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_memory_equal(back, host, sizeof back);
    berth_stream_destroy(stream);
    give(p, sizeof host);
}

static void memory_in_pieces(void)
{
    size_t piece = 0;
    if (!info.virtual_memory) {
        assert_int_equal(berth__device_granularity(device, &piece), BERTH_UNSUPPORTED);
        check_skip("the device does not say virtual_memory");
    }
    unsigned char *base = NULL, there[64], back[64];
    assert_int_equal(berth__device_granularity(device, &piece), BERTH_OK);
    assert_int_equal(berth__device_reserve(device, 16 * piece, (void **)&base), BERTH_OK);
    assert_int_equal(berth__device_map(device, base + piece, 2 * piece), BERTH_OK);
    assert_int_equal(berth__device_map(device, base + 3 * piece, piece), BERTH_OK);
    fill_pattern(there, sizeof there, 5);
    put(base + 3 * piece - 32, there, sizeof there); /* over the seam */
    get(back, base + 3 * piece - 32, sizeof back);
    assert_memory_equal(back, there, sizeof back);
    assert_int_equal(berth__device_unmap(device, base + piece, 2 * piece), BERTH_OK);
    get(back, base + 3 * piece, 32);
    assert_memory_equal(back, there + 32, 32);
    assert_int_equal(berth__device_map(device, base + piece, 2 * piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + piece, 2 * piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + 3 * piece, piece), BERTH_OK);
    /* From the middle of what was mapped at once, and over the seam of two: a pool gives back so. */
    assert_int_equal(berth__device_map(device, base, 4 * piece), BERTH_OK);
    assert_int_equal(berth__device_map(device, base + 4 * piece, 4 * piece), BERTH_OK);
    put(base + 5 * piece, there, sizeof there);
    assert_int_equal(berth__device_unmap(device, base + piece, piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + 3 * piece, 2 * piece), BERTH_OK);
    get(back, base + 5 * piece, sizeof back);
    assert_memory_equal(back, there, sizeof back);
    assert_int_equal(berth__device_map(device, base + piece, piece), BERTH_OK);
    put(base + 2 * piece - 32, there, sizeof there);
    assert_int_equal(berth__device_unmap(device, base, 3 * piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + 5 * piece, 3 * piece), BERTH_OK);
    assert_int_equal(berth__device_unreserve(device, base, 16 * piece), BERTH_OK);
}

static void note(void *context)
{
    *(bool *)context = true;
}

static berth_status scene(void)
{
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    bool ran = false;
    char src[4] = "abc", dst[4] = "...";
    berth_status status = berth_stream_create(device, &stream);
    if (status == BERTH_OK)
        status = berth_event_create(device, &event);
    if (status == BERTH_OK)
        status = berth_device_allocate(device, BERTH_MEMORY_DEVICE, 4, 4096, NULL, &p);
    if (status == BERTH_OK)
        status = berth_copy(device, p, src, 4, BERTH_COPY_HOST_TO_DEVICE, stream, false);
    if (status == BERTH_OK)
        status = berth_stream_call(stream, note, &ran);
    if (status == BERTH_OK)
        status = berth_event_record(event, stream);
    if (status == BERTH_OK)
        status = berth_stream_wait_event(stream, event);
    if (status == BERTH_OK)
        status = berth_copy(device, dst, p, 4, BERTH_COPY_DEVICE_TO_HOST, stream, true);
    if (status == BERTH_OK)
        assert_true(ran && strcmp(dst, "abc") == 0);
    berth__heap_fail_at(0, false);
    if (stream)
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    if (p)
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 4, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    return status;
}

/* A device may finish with a stream on a thread of its own, a moment after the last wait for it. */
static bool settles_at(uint64_t live)
{
    for (int i = 0; i < 10000 && berth__heap_live() != live; i++)
        rest();
    return berth__heap_live() == live;
}

static uint64_t settled(void)
{
    uint64_t live = berth__heap_live();
    for (int same = 0; same < 50; same++) {
        rest();
        if (berth__heap_live() != live)
            same = 0;
        live = berth__heap_live();
    }
    return live;
}

static void every_internal_allocation_may_fail(void)
{
    needs_calls();
    uint64_t at_first = berth__heap_live();
    void *probe = take(64);
    berth_stream *own = new_stream();
    bool uses_our_heap = berth__heap_live() != at_first; /* else there is nothing to fail */
    berth_stream_destroy(own);
    give(probe, 64);
    if (!uses_our_heap)
        check_skip("the device has memory of its own for its bookkeeping");
    assert_int_equal(scene(), BERTH_OK); /* what is made once and kept */
    uint64_t live = settled();
    berth_status status;
    uint64_t n = 0;
    do {
        berth__heap_fail_at(++n, false);
        status = scene();
        assert_true(status == BERTH_OK || status == BERTH_OUT_OF_HOST_MEMORY);
        assert_true(settles_at(live));
    } while (status != BERTH_OK && n < 100);
    assert_int_equal(status, BERTH_OK);
    assert_true(n > 2);
}

/* An address inside a block lies as far into what is behind it. */
static void addresses_are_located(void)
{
    berth_device_place at = {.struct_size = sizeof at}, within = {.struct_size = sizeof within};
    char *p = take(5000);
    berth_status status = berth_device_locate(device, p, &at);
    if (status == BERTH_UNSUPPORTED) {
        give(p, 5000);
        check_skip("the device's addresses are the memory's own");
    }
    assert_int_equal(status, BERTH_OK);
    assert_int_equal(berth_device_locate(device, p + 4999, &within), BERTH_OK);
    assert_true(at.handle == within.handle && at.handle != 0);
    assert_int_equal(within.offset_bytes - at.offset_bytes, 4999);
    assert_true(within.offset_bytes < within.size_bytes);
    give(p, 5000);
    assert_int_equal(berth_device_locate(device, p, &at), BERTH_NOT_FOUND);
}

/* In the middle of pages, as a program has it. */
static void memory_of_the_program_is_registered(void)
{
    enum { SIZE = 20000 };
    static unsigned char around[SIZE + 64], back[SIZE];
    unsigned char *there = around + 3;
    berth_status status = berth_device_register_host(device, there, SIZE);
    if (status == BERTH_UNSUPPORTED)
        check_skip("the device does not register memory of the host");
    assert_int_equal(status, BERTH_OK);
    berth_stream *stream = new_stream();
    unsigned char *p = take(SIZE);
    fill_pattern(there, SIZE, 21);
    assert_int_equal(berth_copy(device, p, there, SIZE, BERTH_COPY_HOST_TO_DEVICE, stream, true), BERTH_OK);
    get(back, p, SIZE);
    assert_memory_equal(back, there, SIZE);
    memset(around, 0, sizeof around);
    assert_int_equal(berth_copy(device, there + 1, p, SIZE - 2, BERTH_COPY_DEVICE_TO_HOST, stream, true),
                     BERTH_OK);
    assert_memory_equal(there + 1, back, SIZE - 2);
    assert_true(there[0] == 0 && there[SIZE - 1] == 0);
    assert_int_equal(berth_device_unregister_host(device, there), BERTH_OK);
    assert_true(berth_device_unregister_host(device, there) != BERTH_OK);
    put(p, there, SIZE); /* which is ordinary memory again */
    assert_int_equal(berth_device_register_host(device, there, SIZE), BERTH_OK);
    assert_int_equal(berth_device_unregister_host(device, there), BERTH_OK);
    give(p, SIZE);
    berth_stream_destroy(stream);
}

/* To and from the device behind this one, where there is one and the kind has a way of its own. */
static void copies_reach_another_device(void)
{
    enum { SIZE = 30000 };
    static unsigned char there[SIZE], back[SIZE];
    const berth_device other = {device.kind, device.ordinal + 1};
    int32_t count = 0;
    void *q = NULL;
    assert_int_equal(berth_device_count((berth_device_kind)device.kind, &count), BERTH_OK);
    if (other.ordinal >= count)
        check_skip("there is no device of the kind behind this one");
    if (berth_device_allocate(other, BERTH_MEMORY_DEVICE, SIZE, 64, NULL, &q) != BERTH_OK)
        check_skip("the device behind this one gives no memory");
    unsigned char *p = take(SIZE);
    fill_pattern(there, SIZE, 33);
    put(p, there, SIZE);
    berth_status status = berth_copy_between(other, q, device, p, SIZE, NULL, false);
    if (status == BERTH_OK) {
        assert_int_equal(berth_zero(device, p, SIZE, NULL, false), BERTH_OK);
        berth_stream *stream = new_stream();
        assert_int_equal(berth_copy_between(device, p, other, q, SIZE, stream, true), BERTH_OK);
        berth_stream_destroy(stream);
        get(back, p, SIZE);
        assert_memory_equal(back, there, SIZE);
    }
    assert_int_equal(berth_device_release(other, BERTH_MEMORY_DEVICE, q, SIZE, NULL), BERTH_OK);
    give(p, SIZE);
    if (status == BERTH_UNSUPPORTED)
        check_skip("the kind has no way of its own between two devices");
    assert_int_equal(status, BERTH_OK);
}

static void schedules_at_random(void)
{
    needs_calls();
    random_schedules();
}

static void nothing(void *context)
{
    (void)context;
}

bool checks_begin(berth_device on)
{
    device = on;
    info = (berth_device_info){.struct_size = sizeof info};
    if (berth_device_describe(device, &info) != BERTH_OK)
        return false;
    berth_stream *stream = NULL;
    berth_status status = berth_stream_create(device, &stream);
    has_streams = status != BERTH_UNSUPPORTED; /* one that fails otherwise is found by the checks */
    has_calls = has_streams && (!stream || berth_stream_call(stream, nothing, NULL) != BERTH_UNSUPPORTED);
    berth_stream_destroy(stream);
    return true;
}

const device_check device_checks[] = {
    {"says what it is", says_what_it_is},
    {"every kind of memory", every_kind_of_memory},
    {"copies of all kinds and sizes", copies_of_all_kinds_and_sizes},
    {"overlapping copies move", overlapping_copies_move},
    {"zero fills exactly", zero_fills_exactly},
    {"zero bytes and bad input", zero_bytes_and_bad_input},
    {"streams are asynchronous", streams_are_asynchronous},
    {"waits last until the end", waits_last_until_the_end},
    {"waits are for one stream only", waits_are_for_one_stream_only},
    {"functions and copies run in order", functions_and_copies_run_in_order},
    {"streams wait for events of others", streams_wait_for_events_of_others},
    {"streams take turns by events", streams_take_turns},
    {"waits are for the mark as it was", waits_are_for_the_mark_as_it_was},
    {"recording again moves the mark", recording_again_moves_the_mark},
    {"teardown in any order", teardown_in_any_order},
    {"waiting for oneself is refused", waiting_for_oneself_is_refused},
    {"functions may use the device", functions_may_use_the_device},
    {"release on a stream", release_on_a_stream},
    {"a forked child is answered", a_forked_child_is_answered},
    {"many threads", many_threads},
    {"buffers live as long as their copies", buffers_live_as_long_as_their_copies},
    {"memory in pieces", memory_in_pieces},
    {"every internal allocation may fail", every_internal_allocation_may_fail},
    {"addresses are located", addresses_are_located},
    {"memory of the program is registered", memory_of_the_program_is_registered},
    {"copies reach another device", copies_reach_another_device},
    {"schedules at random", schedules_at_random},
    {NULL, NULL},
};

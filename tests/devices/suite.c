/* The judge of a device: every promise of berth/device.h. Every byte goes through the device's own copies, so that nothing
 * depends on what the host may touch. tests/devices/main.c runs it as a test, check.c as berth-device-check. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "berth/buffer.h"
#include "device/device.h"
#include "gate.h"
#include "schedules.h"
#include "suite.h"

berth_device device;
berth_device_info info;
bool has_streams, has_calls;

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
    {"streams are asynchronous", check_streams_are_asynchronous},
    {"waits last until the end", check_waits_last_until_the_end},
    {"waits are for one stream only", check_waits_are_for_one_stream_only},
    {"functions and copies run in order", check_functions_and_copies_run_in_order},
    {"streams wait for events of others", check_streams_wait_for_events_of_others},
    {"streams take turns by events", check_streams_take_turns},
    {"waits are for the mark as it was", check_waits_are_for_the_mark_as_it_was},
    {"recording again moves the mark", check_recording_again_moves_the_mark},
    {"teardown in any order", check_teardown_in_any_order},
    {"waiting for oneself is refused", check_waiting_for_oneself_is_refused},
    {"functions may use the device", check_functions_may_use_the_device},
    {"release on a stream", check_release_on_a_stream},
    {"a forked child is answered", check_a_forked_child_is_answered},
    {"many threads", check_many_threads},
    {"buffers live as long as their copies", buffers_live_as_long_as_their_copies},
    {"memory in pieces", memory_in_pieces},
    {"every internal allocation may fail", every_internal_allocation_may_fail},
    {"addresses are located", addresses_are_located},
    {"memory of the program is registered", memory_of_the_program_is_registered},
    {"copies reach another device", copies_reach_another_device},
    {"schedules at random", schedules_at_random},
    {NULL, NULL},
};

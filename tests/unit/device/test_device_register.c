/* Devices that programs register: numbers and names, what is refused, what must be given back first, devices that
 * answer nonsense or are lost, threads and forks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "gate.h"
#include "own_device.h"

static berth_device_kind must_register(const char *name, own_device *own)
{
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    assert_int_equal(own_register(name, own, &kind), BERTH_OK);
    return kind;
}

static bool said(const char *words)
{
    return strstr(berth_last_error()->message, words) != NULL;
}

static void test_numbers_and_names(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind = must_register("first", &own), other = BERTH_DEVICE_UNKNOWN;
    assert_true(kind >= BERTH_DEVICE_REGISTERED);
    assert_string_equal(berth_device_kind_name(kind), "first");
    assert_int_equal(berth_device_kind_find("first"), kind);
    int32_t count = 0;
    assert_int_equal(berth_device_count(kind, &count), BERTH_OK);
    assert_int_equal(count, 1);
    berth_device_info info = {.struct_size = sizeof info};
    assert_int_equal(berth_device_describe((berth_device){(int32_t)kind, 0}, &info), BERTH_OK);
    assert_int_equal(berth_device_describe((berth_device){(int32_t)kind, 1}, &info), BERTH_NOT_FOUND);
    bool seen = false;
    for (berth_device_kind k = BERTH_DEVICE_UNKNOWN; (k = berth_device_kind_next(k)) != BERTH_DEVICE_UNKNOWN;)
        seen |= k == kind;
    assert_true(seen);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    assert_int_equal(own.destroyed, 1);
    assert_int_equal(berth_device_kind_find("first"), BERTH_DEVICE_UNKNOWN);
    assert_string_equal(berth_device_kind_name(kind), "unknown");
    assert_int_equal(berth_device_unregister(kind), BERTH_NOT_FOUND);
    /* The name is free, the number is not given again. */
    for (int i = 0; i < 200; i++) {
        other = must_register("first", &own);
        assert_int_not_equal(other, kind);
        assert_int_equal(berth_device_count(kind, &count), BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_device_unregister(other), BERTH_OK);
    }
    assert_int_equal(own.destroyed, 201);
}

static void test_a_name_is_given_once(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind = must_register("twice", &own), again = (berth_device_kind)7;
    assert_int_equal(own_register("twice", &own, &again), BERTH_ALREADY_EXISTS);
    assert_int_equal(again, BERTH_DEVICE_UNKNOWN);
    assert_true(said("'twice'"));
    assert_int_equal(own_register("opencl", &own, &again), BERTH_ALREADY_EXISTS);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    assert_int_equal(own.destroyed, 1);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind;
    berth_device_ops table = own_table("refused");
    assert_int_equal(berth_device_register(NULL, NULL, &kind), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_register(&table, NULL, NULL), BERTH_INVALID_ARGUMENT);
    table.event_wait = NULL;
    assert_int_equal(berth_device_register(&table, NULL, &kind), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_unregister(BERTH_DEVICE_CPU), BERTH_INVALID_ARGUMENT);
    assert_true(said("cpu"));
    assert_int_equal(berth_device_unregister(BERTH_DEVICE_UNKNOWN), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_unregister((berth_device_kind)(BERTH_DEVICE_REGISTERED + 5)),
                     BERTH_NOT_FOUND);
    berth_device_kind kinds[64];
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        kinds[i] = must_register(name, &own);
    }
    assert_int_equal(own_register("too-many", &own, &kind), BERTH_BUSY);
    for (int i = 0; i < 64; i++)
        assert_int_equal(berth_device_unregister(kinds[i]), BERTH_OK);
}

/* A table of an older header ends sooner: as long as no group is cut in two it is a whole device, which lacks the rest. */
static void test_tables_of_older_headers(void **state)
{
    (void)state;
    /* From the first of a group to its end: no table may stop between. */
    const struct {
        size_t first, end;
        bool is_there;
    } groups[] = {
        {0, offsetof(berth_device_ops, destroy), true},
        {offsetof(berth_device_ops, stream_create), offsetof(berth_device_ops, granularity), true},
        {offsetof(berth_device_ops, granularity), offsetof(berth_device_ops, copy_between), true},
        {offsetof(berth_device_ops, register_host), offsetof(berth_device_ops, prefetch),
         own_table("older").register_host != NULL},
        {offsetof(berth_device_ops, share), offsetof(berth_device_ops, most_bytes),
         own_table("older").share != NULL},
    };
    own_device own = {0};
    struct {
        berth_device_ops ops;
        void *later[10];
    } table = {own_table("older"), {&own}};
    for (size_t size = 0; size <= sizeof table; size += sizeof(void *)) {
        berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
        bool expected = size > 0;
        for (size_t i = 0; i < BERTH_COUNT_OF(groups); i++)
            expected &= !(groups[i].is_there && size > groups[i].first && size < groups[i].end);
        table.ops.struct_size = size;
        berth_status status = berth_device_register(&table.ops, &own, &kind);
        assert_int_equal(status, expected ? BERTH_OK : BERTH_INVALID_ARGUMENT);
        if (status)
            continue;
        const berth_device device = {(int32_t)kind, 0};
        void *p = NULL;
        berth_stream *stream = NULL;
        char bytes[64] = "abc";
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_copy(device, p, bytes, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
        assert_string_equal(p, "abc");
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
        bool streams = size >= offsetof(berth_device_ops, granularity);
        assert_int_equal(berth_stream_create(device, &stream), streams ? BERTH_OK : BERTH_UNSUPPORTED);
        berth_stream_destroy(stream);
        assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    }
}

static void expect_busy(berth_device_kind kind, const char *words)
{
    assert_int_equal(berth_device_unregister(kind), BERTH_BUSY);
    assert_true(said(words));
}

static void test_unregister_waits_for_what_lives(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind = must_register("lives", &own);
    const berth_device device = {(int32_t)kind, 0};
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    expect_busy(kind, "1 blocks, 0 streams and 0 events");
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    expect_busy(kind, "0 blocks, 1 streams and 1 events");
    berth_stream_destroy(stream);
    expect_busy(kind, "0 streams and 1 events");
    berth_event_destroy(event);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = NULL;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 1000, 64, NULL, &p), BERTH_OK);
    expect_busy(kind, "blocks");
    assert_int_equal(berth_deallocate(pool, p, 1000, NULL), BERTH_OK);
    berth_allocator_release(pool);
    assert_int_equal(own.destroyed, 0);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    assert_int_equal(own.destroyed, 1);
}

static void test_nonsense_is_noticed(void **state)
{
    (void)state;
    own_device own = {.empty = true};
    const berth_device device = {(int32_t)must_register("nonsense", &own), 0};
    void *p = &p;
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p),
                     BERTH_DEVICE_ERROR);
    assert_null(p);
    assert_true(said("gave none"));
    assert_int_equal(berth_stream_create(device, &stream), BERTH_DEVICE_ERROR);
    assert_int_equal(berth_event_create(device, &event), BERTH_DEVICE_ERROR);
    assert_null(stream);
    assert_null(event);
    own.empty = false;
    own.crooked = true;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p),
                     BERTH_DEVICE_ERROR);
    assert_null(p);
    assert_true(said("alignment"));
    assert_int_equal(own.released, 1);
    /* Another failure's words do not stand for one that said nothing. */
    own.crooked = false;
    own.lost = own.wordless = true;
    (void)berth_fail(BERTH_IO, "an old story");
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_DEVICE_LOST);
    assert_false(said("old story"));
    assert_true(said("nonsense"));
    assert_int_equal(berth_last_error()->status, BERTH_DEVICE_LOST);
    /* Steps that no address can be cut into, and addresses that are not in its own steps. */
    own.lost = own.wordless = false;
    own.steps = 3000;
    assert_int_equal(berth__device_reserve(device, 3000, &p), BERTH_DEVICE_ERROR);
    assert_true(said("no power of two"));
    own.steps = (size_t)1 << 40;
    assert_int_equal(berth__device_reserve(device, (size_t)1 << 40, &p), BERTH_DEVICE_ERROR);
    assert_true(said("reserved addresses from"));
    assert_null(p);
    /* A pool asks for half as much while it is refused, and that is never less than a step. */
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_DEVICE_ERROR);
    own.steps = 0;
    /* Kinds of memory that the table does not name never reach the device. */
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_WRITE_COMBINED, 64, 64, NULL, &p),
                     BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* What a device says of itself is made fit to be read. */
static void test_babble_is_cut_off(void **state)
{
    (void)state;
    own_device own = {.babbles = true};
    const berth_device device = {(int32_t)must_register("babbler", &own), 0};
    const uint64_t kinds = berth__cpu_device_ops.memory_kinds;
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_true(strnlen(info.name, sizeof info.name) == sizeof info.name - 1);
    assert_true(strnlen(info.driver, sizeof info.driver) == sizeof info.driver - 1);
    assert_int_equal(info.memory_kinds, kinds);
    int32_t count = 1;
    own.negative = true;
    assert_int_equal(berth_device_count((berth_device_kind)device.kind, &count), BERTH_OK);
    assert_int_equal(count, 0);
    assert_int_equal(berth_device_describe(device, &info), BERTH_NOT_FOUND);
    assert_true(said("0 of that kind"));
    own.negative = false;
    own.lost = true;
    (void)berth_fail(BERTH_IO, "an old story");
    assert_int_equal(berth_device_count((berth_device_kind)device.kind, &count), BERTH_DEVICE_LOST);
    assert_int_equal(count, 0);
    assert_true(said("babbler"));
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* Operations that fail and say nothing. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define MUTE(name, ...)                                        \
    static berth_status mute_##name(void *self, ##__VA_ARGS__) \
    {                                                          \
        return BERTH_TIMED_OUT;                                \
    }
MUTE(of_device, berth_device device, void **out)
MUTE(size, berth_device device, size_t *out)
MUTE(zero, berth_device device, void *p, size_t size_bytes, berth_stream *stream)
MUTE(of_stream, berth_stream *stream)
MUTE(wait_event, berth_stream *stream, berth_event *event)
MUTE(call, berth_stream *stream, void (*fn)(void *context), void *context)
MUTE(record, berth_event *event, berth_stream *stream)
MUTE(of_event, berth_event *event)
MUTE(reserve, berth_device device, size_t size_bytes, void **out)
MUTE(piece, berth_device device, void *p, size_t size_bytes)
MUTE(between, berth_device to, void *dst, berth_device from, const void *src, size_t size,
     berth_stream *stream)
MUTE(memory, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
MUTE(of_block, berth_device device, void *p)
MUTE(prefetch, berth_device device, void *p, size_t size_bytes, bool to_host, berth_stream *stream)
MUTE(advise, berth_device device, void *p, size_t size_bytes, berth_advice advice)
MUTE(share, berth_device device, void *p, berth_shared_handle *out)
MUTE(open, berth_device device, const berth_shared_handle *handle, void **out)
MUTE(locate, berth_device device, const void *p, berth_device_place *out)
#pragma GCC diagnostic pop

static berth_status two_devices(void *self, int32_t *count)
{
    (void)self;
    *count = 2;
    return BERTH_OK;
}

static berth_status steps_of_64_kib(void *self, berth_device device, size_t *out)
{
    (void)self, (void)device;
    *out = 65536;
    return BERTH_OK;
}

static berth_device_ops mute_table(void)
{
    berth_device_ops ops = own_table("mute");
    ops.count = two_devices;
    ops.native = mute_of_device;
    ops.zero = mute_zero;
    ops.stream_query = ops.stream_synchronize = mute_of_stream;
    ops.stream_wait_event = mute_wait_event;
    ops.stream_call = mute_call;
    ops.event_record = mute_record;
    ops.event_query = ops.event_wait = mute_of_event;
    ops.granularity = steps_of_64_kib;
    ops.reserve = mute_reserve;
    ops.unreserve = ops.map = ops.unmap = ops.register_host = mute_piece;
    ops.copy_between = mute_between;
    ops.memory = mute_memory;
    ops.unregister_host = ops.close_shared = mute_of_block;
    ops.prefetch = mute_prefetch;
    ops.advise = mute_advise;
    ops.share = mute_share;
    ops.open_shared = mute_open;
    ops.locate = mute_locate;
    return ops;
}

/* What a device does not say is said for it: never do the words of an older failure stand there, though of the same
 * status. */
#define EXPECT_NEW_WORDS(call)                                         \
    do {                                                               \
        (void)berth_fail(BERTH_TIMED_OUT, "an old story");             \
        assert_int_equal(call, BERTH_TIMED_OUT);                       \
        assert_false(said("old story"));                               \
        assert_true(said("mute failed to "));                          \
        assert_int_equal(berth_last_error()->status, BERTH_TIMED_OUT); \
    } while (0)

static void test_words_are_never_old(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_ops table = mute_table();
    berth_device_kind kind;
    assert_int_equal(berth_device_register(&table, &own, &kind), BERTH_OK);
    const berth_device device = {(int32_t)kind, 0}, other = {(int32_t)kind, 1};
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    berth_shared_handle handle = {{0}};
    berth_device_place place = BERTH_DEVICE_PLACE_INIT;
    void *p = NULL, *piece = (void *)(uintptr_t)65536; /* nobody looks there */
    static char bytes[64]; /* a copy that is not waited for has it longer than this test */
    size_t step = 0;
    uint64_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    EXPECT_NEW_WORDS(berth_device_native(device, &p));
    EXPECT_NEW_WORDS(berth_zero(device, bytes, sizeof bytes, NULL, false));
    EXPECT_NEW_WORDS(berth_copy(device, bytes, bytes + 32, 32, BERTH_COPY_INFER, stream, true));
    EXPECT_NEW_WORDS(berth_stream_query(stream));
    EXPECT_NEW_WORDS(berth_stream_synchronize(stream));
    EXPECT_NEW_WORDS(berth_stream_wait_event(stream, event));
    EXPECT_NEW_WORDS(berth_stream_call(stream, gate_stop, NULL));
    EXPECT_NEW_WORDS(berth_event_record(event, stream));
    EXPECT_NEW_WORDS(berth_event_query(event));
    EXPECT_NEW_WORDS(berth_event_wait(event));
    EXPECT_NEW_WORDS(berth__device_reserve(device, 65536, &p));
    EXPECT_NEW_WORDS(berth__device_unreserve(device, piece, 65536));
    EXPECT_NEW_WORDS(berth__device_map(device, piece, 65536));
    EXPECT_NEW_WORDS(berth__device_unmap(device, piece, 65536));
    EXPECT_NEW_WORDS(berth_copy_between(device, bytes, other, bytes, 1, NULL, false));
    EXPECT_NEW_WORDS(berth_device_memory(device, &free_bytes, &total_bytes));
    EXPECT_NEW_WORDS(berth_device_register_host(device, bytes, sizeof bytes));
    EXPECT_NEW_WORDS(berth_device_unregister_host(device, bytes));
    EXPECT_NEW_WORDS(berth_device_prefetch(device, bytes, sizeof bytes, true, NULL));
    EXPECT_NEW_WORDS(berth_device_advise(device, bytes, sizeof bytes, BERTH_ADVICE_KEEP_HERE));
    EXPECT_NEW_WORDS(berth_device_share(device, bytes, &handle));
    EXPECT_NEW_WORDS(berth_device_open_shared(device, &handle, &p));
    EXPECT_NEW_WORDS(berth_device_close_shared(device, bytes));
    EXPECT_NEW_WORDS(berth_device_locate(device, bytes, &place));
    berth_stream_destroy(stream);
    berth_event_destroy(event);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    table.granularity = mute_size;
    assert_int_equal(berth_device_register(&table, &own, &kind), BERTH_OK);
    EXPECT_NEW_WORDS(berth__device_granularity((berth_device){(int32_t)kind, 0}, &step));
    EXPECT_NEW_WORDS(berth__device_reserve((berth_device){(int32_t)kind, 0}, 65536, &p));
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
}

/* Two devices that have nothing but memory of their own, and no way between them. */
static void test_copies_between_kinds(void **state)
{
    (void)state;
    enum { SIZE = (1 << 20) + 7 };
    own_device own = {0};
    berth_device_kind kinds[2];
    berth_buffer *host, *back, *on[2];
    berth_allocator *sources[2];
    for (int i = 0; i < 2; i++) {
        berth_device_ops table = own_table(i ? "bare-b" : "bare-a");
        table.memory_kinds = 1u << BERTH_MEMORY_DEVICE;
        table.copy_between = NULL;
        assert_int_equal(berth_device_register(&table, &own, &kinds[i]), BERTH_OK);
        const berth_device device = {(int32_t)kinds[i], 0};
        assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &sources[i]), BERTH_OK);
        assert_int_equal(berth_buffer_create(sources[i], SIZE, 64, false, &on[i]), BERTH_OK);
    }
    assert_int_equal(berth_buffer_create(berth_cpu_allocator(), SIZE, 64, false, &host), BERTH_OK);
    assert_int_equal(berth_buffer_create(berth_cpu_allocator(), SIZE, 64, false, &back), BERTH_OK);
    for (size_t i = 0; i < SIZE; i++)
        ((unsigned char *)berth_buffer_data(host))[i] = (unsigned char)(i * 7 + (i >> 8));
    assert_int_equal(berth_buffer_copy(on[0], host, NULL, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(on[1], on[0], NULL, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(back, on[1], NULL, false), BERTH_OK);
    assert_memory_equal(berth_buffer_data(back), berth_buffer_data(host), SIZE);
    berth_buffer_release(host);
    berth_buffer_release(back);
    for (int i = 0; i < 2; i++) {
        berth_buffer_release(on[i]);
        berth_allocator_release(sources[i]);
        assert_int_equal(berth_device_unregister(kinds[i]), BERTH_OK);
    }
}

static void step(berth_allocator *a, berth_device device, berth_stream *stream, unsigned char seed)
{
    unsigned char in[3000], out[3000];
    void *p = NULL, *q = NULL;
    memset(in, seed, sizeof in);
    assert_int_equal(berth_allocate(a, sizeof in, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_copy(device, p, in, sizeof in, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                     BERTH_OK);
    assert_int_equal(berth_allocate(a, sizeof in, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_copy(device, q, p, sizeof in, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
                     BERTH_OK);
    assert_int_equal(berth_copy(device, out, q, sizeof out, BERTH_COPY_DEVICE_TO_HOST, stream, true),
                     BERTH_OK);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
}

static void test_plans_replay_on_it(void **state)
{
    (void)state;
    own_device own = {0};
    const berth_device device = {(int32_t)must_register("replays", &own), 0};
    berth_allocator *source = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    berth_stream *stream = NULL;
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &source), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(source, plan, &planned), BERTH_OK);
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    step(planned, device, stream, 1);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    assert_int_equal(berth_replay_begin(planned, NULL), BERTH_OK);
    step(planned, device, stream, 2);
    assert_int_equal(berth_replay_end(planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 2);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(source);
    berth_stream_destroy(stream);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* Takes a few blocks that ask for no alignment; each has it all the same. */
static void take_aligned(berth_allocator *a, size_t alignment)
{
    enum { COUNT = 9 };
    void *p[COUNT];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(berth_allocate(a, 1 + i * 300, 1, NULL, &p[i]), BERTH_OK);
            assert_int_equal((uintptr_t)p[i] % alignment, 0);
        }
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(berth_deallocate(a, p[i], 0, NULL), BERTH_OK);
    }
}

/* What a device says that offsets must be, pools and recorded plans keep to; not to what no offset can be. */
static void test_blocks_can_be_bound(void **state)
{
    (void)state;
    own_device own = {0};
    const berth_device device = {(int32_t)must_register("binds", &own), 0};
    berth_device_info info = {.struct_size = sizeof info};
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    berth_report report = BERTH_REPORT_INIT;
    atomic_store(&own.offset_alignment, 3);
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_int_equal(info.offset_alignment, 0);
    atomic_store(&own.offset_alignment, 2048);
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_int_equal(info.offset_alignment, 2048);
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    take_aligned(pool, 2048);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(pool, plan, &planned), BERTH_OK);
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    take_aligned(planned, 2048);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    assert_int_equal(berth_replay_begin(planned, NULL), BERTH_OK);
    take_aligned(planned, 2048);
    assert_int_equal(berth_replay_end(planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, 18);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(pool);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* Everything that stands on the device has memory that waits for a stream when the device goes. */
static void test_a_lost_device_is_passed_on(void **state)
{
    (void)state;
    own_device own = {0};
    const berth_device device = {(int32_t)must_register("loses", &own), 0};
    berth_pool_options on = BERTH_POOL_OPTIONS_INIT;
    berth_host_cache_options host = BERTH_HOST_CACHE_OPTIONS_INIT;
    on.device = host.device = device;
    berth_allocator *pool = NULL, *cache = NULL;
    berth_stream *stream = NULL;
    void *p = NULL, *q = NULL;
    gate g = GATE_INIT;
    assert_int_equal(berth_pool_create(&on, &pool), BERTH_OK);
    assert_int_equal(berth_host_cache_create(&host, &cache), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 5000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocate(cache, 5000, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_record_use(cache, q, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 5000, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, q, 5000, NULL), BERTH_OK);
    own.lost = true; /* the stream stands at the gate, and nobody may wait for it */
    assert_int_equal(berth_allocate(pool, (size_t)1 << 30, 64, NULL, &p), BERTH_DEVICE_LOST);
    berth_status status = berth_allocate(cache, (size_t)1 << 30, 64, NULL, &q);
    assert_int_equal(status, BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
    berth_allocator_release(pool);
    berth_allocator_release(cache);
    own.lost = false; /* its thread is still there, and stands at a gate of ours */
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    if (berth_device_unregister((berth_device_kind)device.kind) != BERTH_OK)
        fail_msg("%s", berth_last_error()->message);
}

/* What a lost device was given is gone: it is not given a second time, at a trim or when the pool goes. */
static void test_a_lost_device_is_given_memory_once(void **state)
{
    (void)state;
    own_device own = {0};
    const berth_device device = {(int32_t)must_register("once", &own), 0};
    berth_pool_options on = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    void *p = NULL;
    on.device = device;
    on.memory_kind = BERTH_MEMORY_PINNED; /* in segments, by allocate and release */
    assert_int_equal(berth_pool_create(&on, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 5000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 5000, NULL), BERTH_OK);
    own.lost = true;
    assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(own.released, 1);
    assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    berth_allocator_release(pool);
    assert_int_equal(own.released, 1);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* Also where it answers nothing but that it is lost: what the host holds goes back. */
static void test_a_device_lost_to_all_is_given_its_memory(void **state)
{
    (void)state;
    for (int pieces = 0; pieces < 2; pieces++) {
        own_device own = {.lost_to_all = true};
        berth_device_ops table = own_table("lost-to-all");
        if (!pieces)
            table.granularity = NULL, table.reserve = NULL, table.unreserve = NULL, table.map = NULL,
            table.unmap = NULL;
        berth_device_kind kind;
        assert_int_equal(berth_device_register(&table, &own, &kind), BERTH_OK);
        berth_pool_options on = BERTH_POOL_OPTIONS_INIT;
        berth_host_cache_options host = BERTH_HOST_CACHE_OPTIONS_INIT;
        on.device = host.device = (berth_device){(int32_t)kind, 0};
        berth_allocator *pool = NULL, *cache = NULL, *source = NULL;
        void *p = NULL, *q = NULL, *r = NULL;
        assert_int_equal(berth_pool_create(&on, &pool), BERTH_OK);
        assert_int_equal(berth_host_cache_create(&host, &cache), BERTH_OK);
        assert_int_equal(berth_device_allocator_create(on.device, BERTH_MEMORY_DEVICE, &source), BERTH_OK);
        assert_int_equal(berth_allocate(pool, 5000, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_allocate(cache, 5000, 64, NULL, &q), BERTH_OK);
        assert_int_equal(berth_allocate(source, 5000, 64, NULL, &r), BERTH_OK);
        own.lost = true;
        assert_int_equal(berth_deallocate(pool, p, 5000, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(cache, q, 5000, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(source, r, 5000, NULL), BERTH_DEVICE_LOST);
        berth_allocator_release(pool);
        berth_allocator_release(cache);
        berth_allocator_release(source);
        assert_int_equal(berth_device_unregister(kind), BERTH_OK);
    }
}

/* A release that fails has not happened: the block is given back again. */
static void test_what_a_device_refuses_is_given_again(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_ops table = own_table("refuses");
    table.granularity = NULL, table.reserve = NULL, table.unreserve = NULL, table.map = NULL,
    table.unmap = NULL;
    berth_device_kind kind;
    assert_int_equal(berth_device_register(&table, &own, &kind), BERTH_OK);
    berth_pool_options on = BERTH_POOL_OPTIONS_INIT;
    berth_host_cache_options host = BERTH_HOST_CACHE_OPTIONS_INIT;
    on.device = host.device = (berth_device){(int32_t)kind, 0};
    berth_log_set(NULL, NULL, BERTH_LOG_NONE); /* both say what was refused */
    for (int i = 0; i < 2; i++)
        for (int twice = 0; twice < 2; twice++) {
            berth_allocator *a = NULL;
            void *p = NULL;
            size_t released = 0;
            berth_stats stats = BERTH_STATS_INIT;
            assert_int_equal(i ? berth_host_cache_create(&host, &a) : berth_pool_create(&on, &a), BERTH_OK);
            assert_int_equal(berth_allocate(a, 5000, 64, NULL, &p), BERTH_OK);
            assert_int_equal(berth_deallocate(a, p, 5000, NULL), BERTH_OK);
            own.refuses = 1;
            assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
            assert_int_equal(own.refuses, 0);
            assert_int_equal(released, 0);
            assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
            assert_true(stats.bytes_reserved > 0);
            if (twice) {
                assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
                assert_true(released == stats.bytes_reserved);
                assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
                assert_int_equal(stats.bytes_reserved, 0);
            } else
                own.refuses = 1; /* and once more when it ends */
            berth_allocator_release(a);
            assert_int_equal(own.refuses, 0);
        }
    /* A buffer's block and a plan's, which nobody else asks for again. */
    berth_allocator *source = NULL, *planned = NULL;
    berth_buffer *buffer = NULL;
    berth_plan *plan = NULL;
    assert_int_equal(berth_device_allocator_create(on.device, BERTH_MEMORY_DEVICE, &source), BERTH_OK);
    assert_int_equal(berth_buffer_create(source, 5000, 64, false, &buffer), BERTH_OK);
    own.refuses = 1;
    berth_buffer_release(buffer);
    assert_int_equal(own.refuses, 0);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(source, plan, &planned), BERTH_OK);
    for (int run = 0; run < 2; run++) {
        void *p = NULL;
        assert_int_equal(run ? berth_replay_begin(planned, NULL) : berth_record_begin(planned, NULL),
                         BERTH_OK);
        assert_int_equal(berth_allocate(planned, 5000, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_deallocate(planned, p, 5000, NULL), BERTH_OK);
        assert_int_equal(run ? berth_replay_end(planned, NULL) : berth_record_end(planned), BERTH_OK);
    }
    own.refuses = 1;
    berth_allocator_release(planned);
    assert_int_equal(own.refuses, 0);
    berth_plan_release(plan);
    berth_allocator_release(source);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
}

static void test_addresses_that_stand_for_memory(void **state)
{
    (void)state;
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_addresses_reserve(0, 64, &p), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_addresses_reserve(100, 3, &p), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_addresses_reserve(100, 64, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_addresses_reserve(SIZE_MAX, 64, &p), BERTH_OVERFLOW);
    for (size_t alignment = 1; alignment <= (size_t)1 << 30; alignment *= 32) {
        assert_int_equal(berth_addresses_reserve(5000, alignment, &p), BERTH_OK);
        assert_int_equal(berth_addresses_reserve((size_t)1 << 34, alignment, &q), BERTH_OK);
        assert_int_equal((uintptr_t)p % alignment, 0);
        assert_true((char *)q + ((size_t)1 << 34) <= (char *)p || (char *)p + 5000 <= (char *)q);
        berth_addresses_release(p, 5000);
        berth_addresses_release(q, (size_t)1 << 34);
    }
    berth_device_place place = {.struct_size = sizeof place};
    assert_int_equal(berth_device_locate(berth_device_cpu(), &place, &place), BERTH_UNSUPPORTED);
    place.struct_size = 0;
    assert_int_equal(berth_device_locate(berth_device_cpu(), &place, &place), BERTH_INVALID_ARGUMENT);
}

static own_device shared_own;
static berth_device shared_device;

static void *come_and_go(void *context)
{
    char name[32];
    own_device own = {0};
    uintptr_t good = 0;
    snprintf(name, sizeof name, "thread-%d", (int)(intptr_t)context);
    for (int i = 0; i < 200; i++) {
        berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
        void *p = NULL, *q = NULL;
        bool ok = own_register(name, &own, &kind) == BERTH_OK;
        ok = ok && berth_device_kind_find(name) == kind;
        ok = ok && berth_device_allocate(shared_device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p) == BERTH_OK;
        const berth_device mine = {(int32_t)kind, 0};
        ok = ok && berth_device_allocate(mine, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q) == BERTH_OK;
        ok = ok && berth_device_unregister(kind) == BERTH_BUSY;
        ok = ok && berth_device_release(mine, BERTH_MEMORY_DEVICE, q, 64, NULL) == BERTH_OK;
        ok = ok && berth_device_unregister(kind) == BERTH_OK;
        ok = ok && berth_device_release(shared_device, BERTH_MEMORY_DEVICE, p, 64, NULL) == BERTH_OK;
        good += ok;
    }
    return (void *)good;
}

static void test_threads_come_and_go(void **state)
{
    (void)state;
    pthread_t threads[4];
    shared_device = (berth_device){(int32_t)must_register("shared", &shared_own), 0};
    for (intptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, (void *)i), 0);
    for (int i = 0; i < 4; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        assert_int_equal((uintptr_t)good, 200);
    }
    assert_int_equal(berth_device_unregister((berth_device_kind)shared_device.kind), BERTH_OK);
}

static int in_child(berth_device_kind kind)
{
    const berth_device device = {(int32_t)kind, 0};
    own_device own = {0};
    void *p = NULL;
    berth_device_kind other = BERTH_DEVICE_UNKNOWN;
    if (berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p) != BERTH_OK ||
        berth_device_unregister(kind) != BERTH_BUSY ||
        berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL) != BERTH_OK)
        return 1;
    return own_register("child", &own, &other) != BERTH_OK || berth_device_unregister(other) != BERTH_OK ||
           berth_device_unregister(kind) != BERTH_OK;
}

static void test_a_forked_child_has_it_too(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind = must_register("forks", &own);
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(kind));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(berth_device_unregister(kind), BERTH_OK);
}

static void test_registering_without_memory(void **state)
{
    (void)state;
    own_device own = {0};
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    assert_int_equal(berth_device_unregister(must_register("swept", &own)), BERTH_OK);
    uint64_t live = berth__heap_live();
    for (uint64_t n = 1; n <= 2; n++) {
        berth__heap_fail_at(n, false);
        assert_int_equal(own_register("swept", &own, &kind), BERTH_OUT_OF_HOST_MEMORY);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
    }
    assert_int_equal(berth_device_unregister(must_register("swept", &own)), BERTH_OK);
    assert_int_equal(berth__heap_live(), live + 1); /* the table of a kind that is gone is kept */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_and_names),
        cmocka_unit_test(test_a_name_is_given_once),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_tables_of_older_headers),
        cmocka_unit_test(test_unregister_waits_for_what_lives),
        cmocka_unit_test(test_nonsense_is_noticed),
        cmocka_unit_test(test_babble_is_cut_off),
        cmocka_unit_test(test_words_are_never_old),
        cmocka_unit_test(test_copies_between_kinds),
        cmocka_unit_test(test_plans_replay_on_it),
        cmocka_unit_test(test_blocks_can_be_bound),
        cmocka_unit_test(test_a_lost_device_is_passed_on),
        cmocka_unit_test(test_a_lost_device_is_given_memory_once),
        cmocka_unit_test(test_a_device_lost_to_all_is_given_its_memory),
        cmocka_unit_test(test_what_a_device_refuses_is_given_again),
        cmocka_unit_test(test_addresses_that_stand_for_memory),
        cmocka_unit_test(test_threads_come_and_go),
        cmocka_unit_test(test_a_forked_child_has_it_too),
        cmocka_unit_test(test_registering_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

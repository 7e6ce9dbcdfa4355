/* CUDA and HIP when things go wrong, on the stand-in driver: failing calls, shortage, a lost device, the
 * current device put back, and nothing left behind. Arguments: cuda or hip, then the stand-in's path. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <dlfcn.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "device/device.h"
#include "fakes/fake_gpu.h"

static berth_device device = {0, 1}; /* the second: the current device is another */
static bool is_cuda;

static struct {
    void (*arrange)(const char *, int, int, bool);
    void (*delay)(long);
    void (*limit)(uint64_t);
    int (*misuses)(char *, size_t);
    int (*live)(void);
    uint64_t (*bytes)(void);
    long (*calls)(const char *);
    int (*current)(int *);
} fake;

static bool find(void *library)
{
    const berth_device_kind kind = is_cuda ? BERTH_DEVICE_CUDA : BERTH_DEVICE_HIP;
    device.kind = (int32_t)kind;
    *(void **)&fake.arrange = dlsym(library, "fake_gpu_fail");
    *(void **)&fake.delay = dlsym(library, "fake_gpu_delay");
    *(void **)&fake.limit = dlsym(library, "fake_gpu_limit");
    *(void **)&fake.misuses = dlsym(library, "fake_gpu_misuses");
    *(void **)&fake.live = dlsym(library, "fake_gpu_live");
    *(void **)&fake.bytes = dlsym(library, "fake_gpu_bytes");
    *(void **)&fake.calls = dlsym(library, "fake_gpu_calls");
    *(void **)&fake.current = dlsym(library, "fake_gpu_current");
    return fake.arrange && fake.delay && fake.limit && fake.misuses && fake.live && fake.bytes &&
           fake.calls && fake.current;
}

/* The name of a function in the driver at hand. */
static const char *name(const char *cuda, const char *hip)
{
    return is_cuda ? cuda : hip;
}

static void nothing_is_wrong(void)
{
    char words[200] = "";
    if (fake.misuses(words, sizeof words) != 0)
        fail_msg("the driver was misused: %s", words);
    int depth = 0, current = fake.current(&depth);
    assert_int_equal(current, is_cuda ? -1 : 0);
    assert_int_equal(depth, is_cuda ? 0 : 1);
}

/* ---- One failing call at a time ------------------------------------------------------------------------ */

#define FAILS(cuda, hip, code, status, call)                       \
    do {                                                           \
        fake.arrange(name(cuda, hip), 1, code, false);             \
        berth_clear_last_error();                                  \
        assert_int_equal((call), (status));                        \
        assert_int_equal(berth_last_error()->driver_code, (code)); \
        assert_true(berth_last_error()->driver_words[0] != '\0');  \
        nothing_is_wrong();                                        \
    } while (0)

static void failures_keep_the_drivers_code(void **state)
{
    (void)state;
    const int code = 999;
    berth_stream *stream = NULL, *none = NULL;
    berth_event *event = NULL, *no_event = NULL;
    char *p = NULL, *q = NULL, host[64] = "x";
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, (void **)&p), BERTH_OK);
    int live = fake.live();
    FAILS("cuMemAlloc_v2", "hipMalloc", code, BERTH_DEVICE_ERROR,
          berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, (void **)&q));
    FAILS("cuMemAllocManaged", "hipMallocManaged", code, BERTH_DEVICE_ERROR,
          berth_device_allocate(device, BERTH_MEMORY_MANAGED, 64, 64, NULL, (void **)&q));
    FAILS("cuMemHostAlloc", "hipHostMalloc", code, BERTH_DEVICE_ERROR,
          berth_device_allocate(device, BERTH_MEMORY_PINNED, 64, 64, NULL, (void **)&q));
    FAILS("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync", code, BERTH_DEVICE_ERROR,
          berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, (void **)&q));
    FAILS("cuMemcpyAsync", "hipMemcpyAsync", code, BERTH_DEVICE_ERROR,
          berth_copy(device, p, host, 64, BERTH_COPY_INFER, stream, false));
    FAILS("cuMemcpyAsync", "hipMemcpyAsync", code, BERTH_DEVICE_ERROR,
          berth_copy(device, p, host, 64, BERTH_COPY_INFER, NULL, false));
    FAILS("cuMemcpyAsync", "hipMemcpyAsync", code, BERTH_DEVICE_ERROR,
          berth_copy(device, p, p + 1, 60, BERTH_COPY_INFER, stream, false));
    FAILS("cuMemsetD8Async", "hipMemsetAsync", code, BERTH_DEVICE_ERROR,
          berth_zero(device, p, 64, stream, false));
    FAILS("cuStreamCreate", "hipStreamCreateWithFlags", code, BERTH_DEVICE_ERROR,
          berth_stream_create(device, &none));
    FAILS("cuStreamQuery", "hipStreamQuery", code, BERTH_DEVICE_ERROR, berth_stream_query(stream));
    FAILS("cuStreamSynchronize", "hipStreamSynchronize", code, BERTH_DEVICE_ERROR,
          berth_stream_synchronize(stream));
    FAILS("cuStreamWaitEvent", "hipStreamWaitEvent", code, BERTH_DEVICE_ERROR,
          berth_stream_wait_event(stream, event));
    FAILS("cuLaunchHostFunc", "hipLaunchHostFunc", code, BERTH_DEVICE_ERROR,
          berth_stream_call(stream, berth__heap_free, NULL));
    FAILS("cuEventCreate", "hipEventCreateWithFlags", code, BERTH_DEVICE_ERROR,
          berth_event_create(device, &no_event));
    FAILS("cuEventRecord", "hipEventRecord", code, BERTH_DEVICE_ERROR, berth_event_record(event, stream));
    FAILS("cuEventQuery", "hipEventQuery", code, BERTH_DEVICE_ERROR, berth_event_query(event));
    FAILS("cuEventSynchronize", "hipEventSynchronize", code, BERTH_DEVICE_ERROR, berth_event_wait(event));
    FAILS("cuCtxGetCurrent", "hipGetDevice", code, BERTH_DEVICE_ERROR,
          berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, (void **)&q));
    FAILS("cuCtxPushCurrent_v2", "hipSetDevice", code, BERTH_DEVICE_ERROR,
          berth_copy(device, p, host, 64, BERTH_COPY_INFER, stream, false));
    assert_null(q);
    assert_null(none);
    assert_null(no_event);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(fake.live(), live + 1); /* the stream for work without one was made */
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

static void mapping_fails_in_the_middle(void **state)
{
    (void)state;
    size_t piece = 0;
    assert_int_equal(berth__device_granularity(device, &piece), BERTH_OK);
    static const char *const steps[][2] = {
        {"cuMemCreate", "hipMemCreate"}, {"cuMemMap", "hipMemMap"}, {"cuMemSetAccess", "hipMemSetAccess"}};
    char *base = NULL;
    assert_int_equal(berth__device_reserve(device, 4 * piece, (void **)&base), BERTH_OK);
    int live = fake.live();
    uint64_t bytes = fake.bytes();
    for (size_t i = 0; i < BERTH_COUNT_OF(steps); i++) {
        /* Of the second piece; access is asked for once a run. */
        fake.arrange(name(steps[i][0], steps[i][1]), i == 2 ? 1 : 2, FAKE_OUT_OF_MEMORY, false);
        assert_int_equal(berth__device_map(device, base, 3 * piece), BERTH_OUT_OF_DEVICE_MEMORY);
        assert_int_equal(fake.live(), live);
        assert_true(fake.bytes() == bytes);
        nothing_is_wrong();
    }
    assert_int_equal(berth__device_map(device, base, piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base, piece), BERTH_OK);
    assert_int_equal(berth__device_unreserve(device, base, 4 * piece), BERTH_OK);
}

static void shortages_are_told_apart(void **state)
{
    (void)state;
    void *p = NULL;
    fake.limit(1000);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 5000, 64, NULL, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_last_error()->driver_code, FAKE_OUT_OF_MEMORY);
    assert_string_equal(berth_last_error()->driver_words, "FAKE_OUT_OF_MEMORY");
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, 5000, 64, NULL, &p),
                     BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_MANAGED, 5000, 64, NULL, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    fake.limit((uint64_t)1 << 30);
    nothing_is_wrong();
}

static void the_current_device_is_put_back(void **state)
{
    (void)state;
    /* Whatever the thread had before: the other device, in CUDA also none. nothing_is_wrong looks. */
    for (int32_t ordinal = 0; ordinal < FAKE_DEVICES; ordinal++) {
        const berth_device on = {device.kind, ordinal};
        berth_stream *stream = NULL;
        void *p = NULL, *native = NULL;
        assert_int_equal(berth_stream_create(on, &stream), BERTH_OK);
        nothing_is_wrong();
        assert_int_equal(berth_device_allocate(on, BERTH_MEMORY_DEVICE, 100, 64, stream, &p), BERTH_OK);
        nothing_is_wrong();
        assert_int_equal(berth_zero(on, p, 100, NULL, false), BERTH_OK);
        nothing_is_wrong();
        assert_int_equal(berth_device_release(on, BERTH_MEMORY_DEVICE, p, 100, stream), BERTH_OK);
        assert_int_equal(berth_device_native(on, &native), is_cuda ? BERTH_OK : BERTH_UNSUPPORTED);
        nothing_is_wrong();
        assert_non_null(berth_stream_native(stream));
        berth_stream_destroy(stream);
        nothing_is_wrong();
    }
}

static void a_wrapped_stream_stays_the_programs(void **state)
{
    (void)state;
    berth_stream *owner = NULL, *wrapped = NULL, *plain = NULL;
    char host[4] = "abc", back[4] = "...";
    assert_int_equal(berth_stream_create(device, &owner), BERTH_OK);
    assert_int_equal(berth_stream_wrap(device, berth_stream_native(owner), &wrapped), BERTH_OK);
    assert_ptr_equal(berth_stream_native(wrapped), berth_stream_native(owner));
    assert_int_equal(berth_copy(device, back, host, 4, BERTH_COPY_INFER, wrapped, true), BERTH_OK);
    assert_string_equal(back, "abc");
    berth_stream_destroy(wrapped);
    assert_int_equal(berth_stream_query(owner), BERTH_OK);
    berth_stream_destroy(owner);
    assert_int_equal(berth_stream_wrap(device, NULL, &plain), BERTH_OK); /* the driver's default stream */
    assert_int_equal(berth_stream_synchronize(plain), BERTH_OK);
    berth_stream_destroy(plain);
    nothing_is_wrong();
}

static void a_driver_that_only_pretends_to_order_memory(void **state)
{
    (void)state;
    const berth_device first = {device.kind, 0};
    berth_device_info info = {.struct_size = sizeof info};
    berth_stream *stream = NULL;
    void *p = NULL;
    assert_int_equal(berth_stream_create(first, &stream), BERTH_OK);
    fake.arrange(name("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"), 1, FAKE_NOT_SUPPORTED, true);
    assert_int_equal(berth_device_allocate(first, BERTH_MEMORY_DEVICE, 100, 64, stream, &p), BERTH_OK);
    assert_int_equal(berth_zero(first, p, 100, stream, false), BERTH_OK);
    assert_int_equal(berth_device_release(first, BERTH_MEMORY_DEVICE, p, 100, stream), BERTH_OK);
    fake.arrange(name("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"), 0, 0, false);
    assert_int_equal(berth_device_describe(first, &info), BERTH_OK);
    assert_false(info.stream_ordered);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

/* Up to a constant: attempts that failed count too. */
static long events_alive(void)
{
    return fake.calls(name("cuEventCreate", "hipEventCreateWithFlags")) -
           fake.calls(name("cuEventDestroy_v2", "hipEventDestroy"));
}

/* Buffers are let go on a thread where the driver may be called, not in the stream's function. */
static void buffers_are_freed_where_they_may(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    static char host[1000], back[1000];
    char *p = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof host, 64, NULL, (void **)&p),
                     BERTH_OK);
    memset(host, 'h', sizeof host);
    const long before = events_alive();
    fake.delay(100000);
    for (int i = 0; i < 20; i++) {
        berth_buffer *from, *on, *to;
        assert_int_equal(berth_buffer_view(host, sizeof host, berth_device_cpu(), &from), BERTH_OK);
        assert_int_equal(berth_buffer_view(p, sizeof host, device, &on), BERTH_OK);
        assert_int_equal(berth_buffer_view(back, sizeof back, berth_device_cpu(), &to), BERTH_OK);
        assert_int_equal(berth_buffer_copy(on, from, stream, false), BERTH_OK);
        assert_int_equal(berth_buffer_copy(to, on, stream, false), BERTH_OK);
        berth_buffer_release(from);
        berth_buffer_release(on);
        berth_buffer_release(to);
    }
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    fake.delay(0);
    assert_memory_equal(back, host, sizeof back);
    while (events_alive() > before) /* they go on a thread of ours, and a later test loses the device */
        sched_yield();
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof host, NULL), BERTH_OK);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

static int lost_lines;
static void count_lost(void *context, berth_log_level level, const char *line)
{
    (void)context;
    lost_lines += level == BERTH_LOG_ERROR && strstr(line, "is lost") != NULL;
}

/* The last test on this device. */
static void sharing_is_lost(void *p)
{
    uint64_t left = 7, whole = 7;
    void *q = NULL;
    berth_shared_handle handle = {0};
    assert_int_equal(berth_device_memory(device, &left, &whole), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_register_host(device, &left, sizeof left), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_unregister_host(device, &left), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_prefetch(device, p, 64, false, NULL), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_advise(device, p, 64, BERTH_ADVICE_READ_MOSTLY), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_share(device, p, &handle), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_open_shared(device, &handle, &q), BERTH_DEVICE_LOST);
    assert_null(q);
    assert_int_equal(berth_device_close_shared(device, p), BERTH_DEVICE_LOST);
}

static void a_lost_device_is_reported_once(void **state)
{
    (void)state;
    berth_stream *stream = NULL, *none = NULL;
    berth_event *event = NULL;
    void *p = NULL, *q = NULL, *there = NULL;
    char host[8] = "";
    const berth_device other = {device.kind, 0};
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_device_allocate(other, BERTH_MEMORY_DEVICE, 64, 64, NULL, &there), BERTH_OK);
    berth_log_set(count_lost, NULL, BERTH_LOG_DEBUG);
    fake.arrange("*", 1, FAKE_LOST, true);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_DEVICE_LOST);
    assert_string_equal(berth_last_error()->driver_words, "FAKE_LAUNCH_FAILED");
    long calls = fake.calls(name("cuMemAlloc_v2", "hipMalloc"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q),
                         BERTH_DEVICE_LOST);
        assert_int_equal(berth_copy(device, p, host, 8, BERTH_COPY_INFER, stream, true), BERTH_DEVICE_LOST);
        assert_int_equal(berth_zero(device, p, 8, NULL, true), BERTH_DEVICE_LOST);
        assert_int_equal(berth_copy_between(other, there, device, p, 8, NULL, true), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_call(stream, berth__heap_free, NULL), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_wait_event(stream, event), BERTH_DEVICE_LOST);
        assert_int_equal(berth_event_query(event), BERTH_DEVICE_LOST);
        assert_int_equal(berth_event_wait(event), BERTH_DEVICE_LOST);
        assert_int_equal(berth_event_record(event, stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_create(device, &none), BERTH_DEVICE_LOST);
        sharing_is_lost(p);
    }
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_DEVICE_LOST);
    assert_int_equal(lost_lines, 1);
    assert_int_equal(fake.calls(name("cuMemAlloc_v2", "hipMalloc")), calls); /* the driver is left in peace */
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    fake.arrange("*", 0, 0, false);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    /* The other device goes on. */
    assert_int_equal(berth_device_release(other, BERTH_MEMORY_DEVICE, there, 64, NULL), BERTH_OK);
    assert_int_equal(berth_device_allocate(other, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_device_release(other, BERTH_MEMORY_DEVICE, q, 64, NULL), BERTH_OK);
    nothing_is_wrong();
}

/* A block that is aligned by hand, and one that goes in its stream's order, are noted. Where there is no memory for a note
 * the block goes back to the driver. */
static void without_memory_for_a_note(void **state)
{
    (void)state;
    enum { FAR_APART = 1 << 20 };
    berth_stream *stream = NULL;
    void *p = NULL;
    int refused = 0;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    const int live = fake.live();
    for (uint64_t n = 1;; n++) {
        p = &refused;
        berth__heap_fail_at(n, false);
        const berth_status status =
            berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, FAR_APART, stream, &p);
        berth__heap_fail_at(0, false);
        if (status == BERTH_OK)
            break;
        refused++;
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_null(p);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        assert_int_equal(fake.live(), live);
    }
    assert_true(refused >= 1);
    assert_int_equal((uintptr_t)p % FAR_APART, 0);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(fake.live(), live);
    /* A free that the driver refuses, and no memory for the note: said, and the block can still be freed as any other. */
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p), BERTH_OK);
    fake.arrange(name("cuMemFreeAsync", "hipFreeAsync"), 1, 999, false);
    berth__heap_fail_at(1, false);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_DEVICE_ERROR);
    berth__heap_fail_at(0, false);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    assert_int_equal(fake.live(), live);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

/* Copies between two devices work, only slower, where one may not reach into the other; what is in their way is said. */
static void peers_that_do_not_let_each_other_in(void **state)
{
    (void)state;
    const berth_device first = {device.kind, 0};
    berth_stream *stream = NULL;
    char *p = NULL, *q = NULL, words[64] = "as it was", back[64] = "";
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, (void **)&p), BERTH_OK);
    assert_int_equal(berth_device_allocate(first, BERTH_MEMORY_DEVICE, 64, 64, NULL, (void **)&q), BERTH_OK);
    assert_int_equal(berth_copy(device, p, words, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, true), BERTH_OK);
    fake.arrange(name("cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess"), 1, 999, false);
    assert_int_equal(berth_copy_between(first, q, device, p, 64, NULL, true), BERTH_OK);
    fake.arrange(name("cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess"), 0, 0, false);
    assert_int_equal(berth_copy(first, back, q, 64, BERTH_COPY_DEVICE_TO_HOST, NULL, true), BERTH_OK);
    assert_string_equal(back, words);
    FAILS("cuMemcpyPeerAsync", "hipMemcpyPeerAsync", 999, BERTH_DEVICE_ERROR,
          berth_copy_between(first, q, device, p, 64, stream, true));
    FAILS("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync", 999, BERTH_DEVICE_ERROR,
          berth_copy(device, p, p + 1, 60, BERTH_COPY_INFER, stream, false));
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    assert_int_equal(berth_device_release(first, BERTH_MEMORY_DEVICE, q, 64, NULL), BERTH_OK);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_keep_the_drivers_code),
        cmocka_unit_test(mapping_fails_in_the_middle),
        cmocka_unit_test(shortages_are_told_apart),
        cmocka_unit_test(the_current_device_is_put_back),
        cmocka_unit_test(a_wrapped_stream_stays_the_programs),
        cmocka_unit_test(buffers_are_freed_where_they_may),
        cmocka_unit_test(without_memory_for_a_note),
        cmocka_unit_test(peers_that_do_not_let_each_other_in),
        cmocka_unit_test(a_driver_that_only_pretends_to_order_memory),
        cmocka_unit_test(a_lost_device_is_reported_once),
    };
    if (argc < 3)
        return 2;
    is_cuda = strcmp(argv[1], "cuda") == 0;
    /* The program has the driver already, under the name that everybody knows: berth must take that one. */
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    int32_t count = 0;
    if (!library || !find(library)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (berth_device_count((berth_device_kind)device.kind, &count) != BERTH_OK || count != FAKE_DEVICES) {
        fprintf(stderr, "the driver that is loaded was not taken: %s\n", berth_last_error()->message);
        return 1;
    }
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}

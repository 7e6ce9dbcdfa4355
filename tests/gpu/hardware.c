/* CUDA and HIP where hardware is less kind than a simple stand-in: threads without a context, default streams of other
 * devices, captures, errors that stick, forks, other devices' memory. README.md beside this file lists the rules and
 * where each is documented. Arguments: cuda or hip, the stand-in's path, and for what ends a process the case's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "device/device.h"
#include "fakes/fake_gpu.h"

static berth_device device = {0, 1}; /* the second: the current device is another */
static bool is_cuda;
static void *driver;

static struct {
    void (*arrange)(const char *, int, int, bool);
    void (*hold)(int, bool);
    void (*limit)(uint64_t);
    void (*breaks)(int, int);
    void (*reuse)(bool);
    void (*peers)(bool);
    void *(*foreign_context)(int);
    int (*misuses)(char *, size_t);
    int (*live)(void);
    long (*calls)(const char *);
    int (*current)(int *);
    bool (*peek)(const void *, void *, size_t);
} fake;

static void *symbol(const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "the stand-in has no %s\n", name);
        exit(2);
    }
    return found;
}

static void find_all(void)
{
    *(void **)&fake.arrange = symbol("fake_gpu_fail");
    *(void **)&fake.hold = symbol("fake_gpu_hold");
    *(void **)&fake.limit = symbol("fake_gpu_limit");
    *(void **)&fake.breaks = symbol("fake_gpu_break");
    *(void **)&fake.reuse = symbol("fake_gpu_reuse");
    *(void **)&fake.peers = symbol("fake_gpu_peers");
    *(void **)&fake.foreign_context = symbol("fake_gpu_foreign_context");
    *(void **)&fake.misuses = symbol("fake_gpu_misuses");
    *(void **)&fake.live = symbol("fake_gpu_live");
    *(void **)&fake.calls = symbol("fake_gpu_calls");
    *(void **)&fake.current = symbol("fake_gpu_current");
    *(void **)&fake.peek = symbol("fake_gpu_peek");
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
}

static void on_fresh_thread(void *(*work)(void *), void *context)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, work, context), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
}

#define EXPECT(condition)                                                       \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    berth_last_error()->message);                               \
            return (void *)(uintptr_t)__LINE__;                                 \
        }                                                                       \
    } while (0)

/* ---- Contexts ---------------------------------------------------------------------------------------- */

/* The default stream of device 1, while device 0 or none is current. */
static void a_default_stream_is_its_devices(void **state)
{
    (void)state;
    berth_stream *plain = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    assert_int_equal(berth_stream_wrap(device, NULL, &plain), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    fake.hold(1, true);
    assert_int_equal(berth_zero(device, p, 64, plain, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, plain), BERTH_OK);
    assert_int_equal(berth_stream_query(plain), BERTH_NOT_READY);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    fake.hold(1, false);
    assert_int_equal(berth_stream_synchronize(plain), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(plain);
    nothing_is_wrong();
}

/* The pool does not hand a block out that the default stream of its device still uses. */
static void a_busy_block_is_not_handed_out(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = NULL;
    berth_stream *plain = NULL, *other = NULL;
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_stream_wrap(device, NULL, &plain), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &other), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 1 << 20, 64, NULL, &p), BERTH_OK);
    fake.hold(1, true);
    assert_int_equal(berth_zero(device, p, 1 << 20, plain, false), BERTH_OK);
    assert_int_equal(berth_record_use(pool, p, plain), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 1 << 20, 64, NULL, &q), BERTH_OK);
    assert_ptr_not_equal(q, p);
    fake.hold(1, false);
    assert_int_equal(berth_stream_synchronize(plain), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, q, 0, NULL), BERTH_OK);
    berth_allocator_release(pool);
    berth_stream_destroy(other);
    berth_stream_destroy(plain);
    nothing_is_wrong();
}

struct things {
    berth_stream *stream;
    berth_event *event;
    void *p;
};

static void *use_everything(void *context)
{
    struct things *t = context;
    berth_stream *made = NULL, *wrapped = NULL;
    char host[64] = "";
    int depth = -1;
    EXPECT(berth_stream_query(t->stream) == BERTH_OK);
    EXPECT(berth_stream_synchronize(t->stream) == BERTH_OK);
    EXPECT(berth_event_record(t->event, t->stream) == BERTH_OK);
    EXPECT(berth_stream_wait_event(t->stream, t->event) == BERTH_OK);
    EXPECT(berth_event_wait(t->event) == BERTH_OK);
    EXPECT(berth_event_query(t->event) == BERTH_OK);
    EXPECT(berth_copy(device, t->p, host, 64, BERTH_COPY_INFER, t->stream, true) == BERTH_OK);
    EXPECT(berth_zero(device, t->p, 64, NULL, false) == BERTH_OK);
    EXPECT(berth_stream_create(device, &made) == BERTH_OK);
    EXPECT(berth_stream_wrap(device, berth_stream_native(made), &wrapped) == BERTH_OK);
    berth_stream_destroy(wrapped);
    berth_stream_destroy(made);
    EXPECT(berth_device_release(device, BERTH_MEMORY_DEVICE, t->p, 64, NULL) == BERTH_OK);
    berth_event_destroy(t->event);
    berth_stream_destroy(t->stream);
    EXPECT(fake.current(&depth) == (is_cuda ? -1 : 0));
    EXPECT(depth == (is_cuda ? 0 : 1));
    return NULL;
}

static void a_fresh_thread_can_call_everything(void **state)
{
    (void)state;
    struct things t = {0};
    assert_int_equal(berth_stream_create(device, &t.stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &t.event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &t.p), BERTH_OK);
    on_fresh_thread(use_everything, &t);
    nothing_is_wrong();
}

static void streams_that_are_not_ours_are_refused(void **state)
{
    (void)state;
    berth_stream *stream = NULL, *elsewhere = NULL;
    assert_int_equal(berth_stream_wrap(device, (void *)2, &stream), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "per-thread"));
    assert_null(stream);
    const berth_device first = {device.kind, 0};
    assert_int_equal(berth_stream_create(first, &elsewhere), BERTH_OK);
    assert_int_equal(berth_stream_wrap(device, berth_stream_native(elsewhere), &stream),
                     BERTH_INVALID_ARGUMENT);
    assert_null(stream);
    berth_stream_destroy(elsewhere);
    if (is_cuda) { /* another context on the same device */
        unsigned (*push)(void *), (*pop)(void **), (*create)(void **, unsigned), (*destroy)(void *);
        *(void **)&push = symbol("cuCtxPushCurrent_v2");
        *(void **)&pop = symbol("cuCtxPopCurrent_v2");
        *(void **)&create = symbol("cuStreamCreate");
        *(void **)&destroy = symbol("cuStreamDestroy_v2");
        void *native = NULL, *popped = NULL;
        assert_int_equal(push(fake.foreign_context(1)), 0);
        assert_int_equal(create(&native, 1), 0);
        assert_int_equal(berth_stream_wrap(device, native, &stream), BERTH_INVALID_ARGUMENT);
        assert_non_null(strstr(berth_last_error()->message, "context"));
        assert_int_equal(destroy(native), 0);
        assert_int_equal(pop(&popped), 0);
    }
    nothing_is_wrong();
}

/* ---- Captures ---------------------------------------------------------------------------------------- */

static unsigned capture_begin(void *native)
{
    unsigned (*begin)(void *, unsigned);
    *(void **)&begin = symbol(name("cuStreamBeginCapture_v2", "hipStreamBeginCapture"));
    return begin(native, 0);
}

static unsigned capture_end(void *native)
{
    unsigned (*end)(void *, void **);
    void *graph = NULL;
    *(void **)&end = symbol(name("cuStreamEndCapture", "hipStreamEndCapture"));
    return end(native, &graph);
}

static void *use_a_pool(void *context)
{
    berth_allocator *pool = context;
    berth_stream *stream = NULL;
    EXPECT(berth_stream_create(device, &stream) == BERTH_OK);
    void *held[20];
    for (int i = 0; i < 20; i++) {
        EXPECT(berth_allocate(pool, (size_t)(i + 1) << 18, 64, NULL, &held[i]) == BERTH_OK);
        EXPECT(berth_zero(device, held[i], 100, stream, false) == BERTH_OK);
        EXPECT(berth_record_use(pool, held[i], stream) == BERTH_OK);
    }
    for (int i = 0; i < 20; i++)
        EXPECT(berth_deallocate(pool, held[i], 0, NULL) == BERTH_OK);
    EXPECT(berth_stream_synchronize(stream) == BERTH_OK);
    EXPECT(berth_trim(pool, 0, NULL) == BERTH_OK);
    berth_stream_destroy(stream);
    return NULL;
}

/* The capturing thread has the device current, as CUDA asks of it. */
static void with_current(bool begin)
{
    if (!is_cuda)
        return;
    unsigned (*push)(void *), (*pop)(void **);
    void *context = NULL;
    *(void **)&push = symbol("cuCtxPushCurrent_v2");
    *(void **)&pop = symbol("cuCtxPopCurrent_v2");
    if (begin) {
        assert_int_equal(berth_device_native(device, &context), BERTH_OK);
        assert_int_equal(push(context), 0);
    } else {
        assert_int_equal(pop(&context), 0);
    }
}

static void a_busy_pool_does_not_break_a_capture(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = NULL;
    berth_stream *captured = NULL;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &captured), BERTH_OK);
    with_current(true);
    assert_int_equal(capture_begin(berth_stream_native(captured)), 0);
    on_fresh_thread(use_a_pool, pool);
    assert_null(use_a_pool(pool)); /* on the capturing thread too */
    assert_int_equal(capture_end(berth_stream_native(captured)), 0);
    with_current(false);
    berth_stream_destroy(captured);
    berth_allocator_release(pool);
    nothing_is_wrong();
}

static void a_captured_stream_is_not_asked(void **state)
{
    (void)state;
    berth_stream *captured = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    assert_int_equal(berth_stream_create(device, &captured), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    with_current(true);
    assert_int_equal(capture_begin(berth_stream_native(captured)), 0);
    assert_int_equal(berth_stream_query(captured), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "captured"));
    assert_int_equal(berth_stream_synchronize(captured), BERTH_UNSUPPORTED);
    assert_int_equal(berth_event_record(event, captured), BERTH_UNSUPPORTED);
    assert_int_equal(berth_stream_call(captured, free, NULL), BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, captured), BERTH_UNSUPPORTED);
    assert_int_equal(berth_zero(device, p, 64, captured, false), BERTH_OK); /* a node of the graph */
    void *q = NULL; /* not the graph's: it stays when the graph goes */
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, captured, &q), BERTH_OK);
    assert_int_equal(capture_end(berth_stream_native(captured)), 0);
    with_current(false);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, q, 64, captured), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, captured), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(captured);
    nothing_is_wrong();
}

/* ---- Address space ----------------------------------------------------------------------------------- */

static void access_is_asked_for_once_a_run(void **state)
{
    (void)state;
    size_t piece = 0;
    char *base = NULL;
    assert_int_equal(berth__device_granularity(device, &piece), BERTH_OK);
    assert_true(piece >= (size_t)2 << 20);
    size_t size = 64 * piece;
    assert_int_equal(berth__device_reserve(device, size, (void **)&base), BERTH_OK);
    long calls = fake.calls(name("cuMemSetAccess", "hipMemSetAccess"));
    assert_int_equal(berth__device_map(device, base, size), BERTH_OK);
    assert_int_equal(fake.calls(name("cuMemSetAccess", "hipMemSetAccess")), calls + 1);
    assert_int_equal(berth_zero(device, base + piece / 2, size - piece, NULL, false), BERTH_OK);
    for (size_t at = piece; at < 5 * piece; at += piece) /* any run can go, however it was mapped */
        assert_int_equal(berth__device_unmap(device, base + at, piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base, piece), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + 5 * piece, size - 5 * piece), BERTH_OK);
    assert_int_equal(berth__device_unreserve(device, base, size), BERTH_OK);
    nothing_is_wrong();
}

/* ---- Two devices ------------------------------------------------------------------------------------- */

static void copy_both_ways(berth_stream *stream)
{
    const berth_device first = {device.kind, 0};
    berth_allocator *here = NULL, *there = NULL;
    berth_buffer *a = NULL, *b = NULL, *in = NULL, *out = NULL;
    char host[3000], back[3000] = "";
    memset(host, 'h', sizeof host);
    assert_int_equal(berth_device_allocator_create(first, BERTH_MEMORY_DEVICE, &here), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &there), BERTH_OK);
    assert_int_equal(berth_buffer_create(here, sizeof host, 64, false, &a), BERTH_OK);
    assert_int_equal(berth_buffer_create(there, sizeof host, 64, false, &b), BERTH_OK);
    assert_int_equal(berth_buffer_view(host, sizeof host, berth_device_cpu(), &in), BERTH_OK);
    assert_int_equal(berth_buffer_view(back, sizeof back, berth_device_cpu(), &out), BERTH_OK);
    assert_int_equal(berth_buffer_copy(a, in, NULL, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(b, a, stream, true), BERTH_OK);
    assert_int_equal(berth_buffer_copy(out, b, NULL, false), BERTH_OK);
    assert_memory_equal(back, host, sizeof host);
    berth_buffer_release(a);
    berth_buffer_release(b);
    berth_buffer_release(in);
    berth_buffer_release(out);
    berth_allocator_release(here);
    berth_allocator_release(there);
}

static void devices_copy_between_each_other(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    const char *peer = name("cuMemcpyPeerAsync", "hipMemcpyPeerAsync");
    const char *enable = name("cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess");
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    long before = fake.calls(peer);
    copy_both_ways(NULL);
    copy_both_ways(stream);
    assert_int_equal(fake.calls(peer), before + 2);
    assert_int_equal(fake.calls(enable), 1); /* once a pair */
    fake.peers(false);
    copy_both_ways(stream);
    fake.peers(true);
    /* A driver without the call: through pinned memory of the host. */
    fake.arrange(peer, 1, FAKE_NOT_SUPPORTED, true);
    copy_both_ways(NULL);
    copy_both_ways(stream);
    fake.arrange(peer, 0, 0, false);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

/* A pool's mapped memory can be reached by the other device. */
static void mapped_memory_is_open_to_peers(void **state)
{
    (void)state;
    const berth_device first = {device.kind, 0};
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = NULL;
    void *p = NULL, *q = NULL;
    char back[100] = "x";
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 100, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_device_allocate(first, BERTH_MEMORY_DEVICE, 100, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_zero(device, p, 100, NULL, false), BERTH_OK);
    assert_int_equal(berth_copy_between(first, q, device, p, 100, NULL, false), BERTH_OK);
    assert_int_equal(berth_copy(first, back, p, 100, BERTH_COPY_DEVICE_TO_HOST, NULL, false), BERTH_OK);
    assert_int_equal(back[0], 0);
    assert_int_equal(berth_device_release(first, BERTH_MEMORY_DEVICE, q, 100, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 0, NULL), BERTH_OK);
    berth_allocator_release(pool);
    nothing_is_wrong();
}

/* ---- What programs see ------------------------------------------------------------------------------- */

static void the_last_error_is_the_programs(void **state)
{
    (void)state;
    unsigned (*peek)(void), (*get)(void), (*set_device)(int);
    *(void **)&peek = symbol("hipPeekAtLastError");
    *(void **)&get = symbol("hipGetLastError");
    *(void **)&set_device = symbol("hipSetDevice");
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL, *q = NULL;
    (void)get();
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    /* Ours leave none behind. */
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    fake.hold(1, true);
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(peek(), 0);
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    assert_int_equal(peek(), 0);
    fake.hold(1, false);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, (size_t)1 << 40, 64, NULL, &q),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(peek(), 0);
    /* Theirs stays. */
    assert_int_not_equal(set_device(99), 0);
    unsigned theirs = peek();
    assert_int_not_equal(theirs, 0);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_zero(device, q, 64, stream, true), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, q, 64, NULL), BERTH_OK);
    assert_int_equal(peek(), theirs);
    (void)get();
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

static void another_process_has_the_device(void **state)
{
    (void)state;
    void *p = NULL;
    fake.arrange(name("cuMemAlloc_v2", "hipMalloc"), 1, FAKE_UNAVAILABLE, false);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_BUSY);
    assert_non_null(strstr(berth_last_error()->message, "another process"));
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    nothing_is_wrong();
}

/* A copy with buffers enqueues no function of the host, which would stall the stream. */
static void copies_do_not_stop_the_stream(void **state)
{
    (void)state;
    const char *call = name("cuLaunchHostFunc", "hipLaunchHostFunc");
    long before = fake.calls(call);
    berth_stream *stream = NULL;
    berth_buffer *a = NULL, *b = NULL;
    berth_allocator *memory = NULL;
    char host[100] = "kept";
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &memory), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    int live = fake.live();
    assert_int_equal(berth_buffer_create(memory, sizeof host, 64, false, &a), BERTH_OK);
    assert_int_equal(berth_buffer_view(host, sizeof host, berth_device_cpu(), &b), BERTH_OK);
    fake.hold(1, true);
    assert_int_equal(berth_buffer_copy(a, b, stream, false), BERTH_OK);
    berth_buffer_release(a); /* the stream still writes to it */
    berth_buffer_release(b);
    assert_true(fake.live() > live);
    fake.hold(1, false);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    while (fake.live() > live) /* a thread of ours lets go; ends by the test's own time limit if not */
        sched_yield();
    assert_int_equal(fake.calls(call), before);
    berth_stream_destroy(stream);
    berth_allocator_release(memory);
    nothing_is_wrong();
}

static void freed_memory_on_streams_is_trimmed_before_a_failure(void **state)
{
    (void)state;
    const char *take = name("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync");
    const char *trim = name("cuMemPoolTrimTo", "hipMemPoolTrimTo");
    berth_stream *stream = NULL;
    void *p = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    long trims = fake.calls(trim);
    fake.arrange(take, 1, FAKE_OUT_OF_MEMORY, false);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p), BERTH_OK);
    assert_int_equal(fake.calls(trim), trims + 1);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    fake.arrange(take, 1, FAKE_OUT_OF_MEMORY, true);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    fake.arrange(take, 0, 0, false);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

static void memory_is_told_moved_and_shared(void **state)
{
    (void)state;
    uint64_t left = 0, whole = 0, later = 0;
    berth_shared_handle handle;
    char *p = NULL, *q = NULL, *managed = NULL, *combined = NULL, own[4096], back[4] = "";
    assert_int_equal(berth_device_memory(device, &left, &whole), BERTH_OK);
    assert_true(whole > 0 && left <= whole);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 1 << 20, 64, NULL, (void **)&p),
                     BERTH_OK);
    assert_int_equal(berth_device_memory(device, &later, &whole), BERTH_OK);
    assert_true(later == left - (1 << 20));
    assert_int_equal(berth_copy(device, p, "abc", 4, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(berth_device_share(device, p, &handle), BERTH_OK);
    assert_int_equal(berth_device_open_shared(device, &handle, (void **)&q), BERTH_OK);
    assert_true(fake.peek(q, back, sizeof back));
    assert_string_equal(back, "abc");
    assert_int_equal(berth_device_close_shared(device, q), BERTH_OK);
    assert_int_equal(berth_device_share(device, p + 64, &handle), BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 1 << 20, NULL), BERTH_OK);
    assert_int_equal(berth_device_register_host(device, own, sizeof own), BERTH_OK);
    assert_int_equal(berth_device_register_host(device, own, 10), BERTH_ALREADY_EXISTS);
    assert_int_equal(berth_device_unregister_host(device, own), BERTH_OK);
    assert_int_equal(berth_device_unregister_host(device, own), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_MANAGED, 4096, 64, NULL, (void **)&managed),
                     BERTH_OK);
    assert_int_equal(berth_device_prefetch(device, managed, 4096, false, NULL), BERTH_OK);
    assert_int_equal(berth_device_prefetch(device, managed, 4096, true, NULL), BERTH_OK);
    assert_int_equal(berth_device_advise(device, managed, 4096, BERTH_ADVICE_READ_MOSTLY), BERTH_OK);
    assert_int_equal(berth_device_advise(device, managed, 4096, (berth_advice)9), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_MANAGED, managed, 4096, NULL), BERTH_OK);
    assert_int_equal(
        berth_device_allocate(device, BERTH_MEMORY_WRITE_COMBINED, 100, 64, NULL, (void **)&combined),
        BERTH_OK);
    combined[0] = 1;
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_WRITE_COMBINED, combined, 100, NULL),
                     BERTH_OK);
    const berth_device cpu = berth_device_cpu();
    assert_int_equal(berth_device_allocate(cpu, BERTH_MEMORY_WRITE_COMBINED, 100, 64, NULL, (void **)&q),
                     BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_share(cpu, own, &handle), BERTH_UNSUPPORTED);
    nothing_is_wrong();
}

/* The child of a program that has used the driver. */
static void a_forked_child_is_told(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    void *p = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        berth_status status = berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p);
        bool told = status == BERTH_DEVICE_LOST && strstr(berth_last_error()->message, "forked");
        told = told && berth_stream_synchronize(stream) == BERTH_DEVICE_LOST;
        berth_stream_destroy(stream);
        _exit(told ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, stream, &p), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    berth_stream_destroy(stream);
    nothing_is_wrong();
}

/* ---- What a process does not survive: one case a process ----------------------------------------------- */

/* The code arrives with an operation that a stream runs, not with a call. */
static int case_sticks(int code)
{
    const berth_device other = {device.kind, 0};
    berth_allocator *memory = NULL, *cache = NULL;
    berth_buffer *a = NULL, *b = NULL;
    berth_stream *stream = NULL;
    void *p = NULL, *q = NULL;
    char host[100] = "";
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = device;
    bool ok = berth_stream_create(device, &stream) == BERTH_OK &&
              berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &memory) == BERTH_OK &&
              berth_host_cache_create(&options, &cache) == BERTH_OK &&
              berth_allocate(cache, 4096, 64, NULL, &p) == BERTH_OK &&
              berth_buffer_create(memory, sizeof host, 64, false, &a) == BERTH_OK &&
              berth_buffer_view(host, sizeof host, berth_device_cpu(), &b) == BERTH_OK;
    fake.hold(1, true); /* the operation runs when everything is enqueued */
    fake.breaks(1, code);
    ok = ok && berth_buffer_copy(a, b, stream, false) == BERTH_OK &&
         berth_record_use(cache, p, stream) == BERTH_OK;
    berth_buffer_release(a);
    berth_buffer_release(b);
    fake.hold(1, false);
    berth_status status = berth_stream_synchronize(stream);
    ok = ok && status == BERTH_DEVICE_LOST && berth_last_error()->driver_code == code;
    ok = ok && berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q) == BERTH_DEVICE_LOST;
    /* The host cache gives up what it holds instead of waiting for ever. */
    ok = ok && berth_deallocate(cache, p, 0, NULL) == BERTH_OK;
    (void)berth_trim(cache, 0, NULL);
    berth_allocator_release(cache);
    berth_stream_destroy(stream);
    berth_allocator_release(memory);
    /* A thread of ours lets the copy's buffers go; if it never does, the test's own time limit ends this. */
    while (fake.calls(name("cuEventDestroy_v2", "hipEventDestroy")) <
           fake.calls(name("cuEventCreate", "hipEventCreateWithFlags")))
        sched_yield();
    /* The other device goes on. */
    ok = ok && berth_device_allocate(other, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q) == BERTH_OK &&
         berth_device_release(other, BERTH_MEMORY_DEVICE, q, 64, NULL) == BERTH_OK;
    if (!ok)
        fprintf(stderr, "code %d: %s\n", code, berth_last_error()->message);
    return ok ? 0 : 1;
}

/* Everything is still alive when the process ends, and the driver goes first. */
static int case_exits(void)
{
    static berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    static berth_allocator *pool;
    static berth_stream *stream;
    static void *p;
    options.device = device;
    bool ok = berth_pool_create(&options, &pool) == BERTH_OK &&
              berth_stream_create(device, &stream) == BERTH_OK &&
              berth_allocate(pool, 1000, 64, NULL, &p) == BERTH_OK &&
              berth_zero(device, p, 1000, stream, false) == BERTH_OK;
    exit(ok ? 0 : 1);
}

/* FAKE_GPU_GRANULARITY says what the driver answers, argv[4] whether the pool may map in pieces. */
static int case_granularity(bool pieces)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_device_info info = {.struct_size = sizeof info};
    berth_allocator *pool = NULL;
    size_t piece = 0;
    void *p = NULL;
    bool ok = berth_pool_create(&options, &pool) == BERTH_OK &&
              berth_allocate(pool, 5000, 64, NULL, &p) == BERTH_OK &&
              berth_deallocate(pool, p, 0, NULL) == BERTH_OK &&
              berth_device_describe(device, &info) == BERTH_OK;
    ok = ok && info.virtual_memory == pieces;
    ok = ok && (berth__device_granularity(device, &piece) == BERTH_OK) == pieces;
    ok = ok && (!pieces || piece >= (size_t)2 << 20);
    berth_allocator_release(pool);
    if (!ok)
        fprintf(stderr, "piece %zu, virtual memory %d: %s\n", piece, info.virtual_memory,
                berth_last_error()->message);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    is_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    driver = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
    int32_t count = 0;
    if (!driver) {
        fprintf(stderr, "usage: gpu_hardware cuda|hip STAND-IN [sticks CODE | exits | granularity yes|no]\n");
        return 2;
    }
    find_all();
    device.kind = is_cuda ? BERTH_DEVICE_CUDA : BERTH_DEVICE_HIP;
    setenv(is_cuda ? "BERTH_CUDA_LIBRARY" : "BERTH_HIP_LIBRARY", argv[2], 1);
    if (berth_device_count((berth_device_kind)device.kind, &count) != BERTH_OK || count != FAKE_DEVICES) {
        fprintf(stderr, "%d devices: %s\n", (int)count, berth_last_error()->message);
        return 1;
    }
    if (argc > 4 && strcmp(argv[3], "sticks") == 0)
        return case_sticks(atoi(argv[4]));
    if (argc > 3 && strcmp(argv[3], "exits") == 0)
        return case_exits();
    if (argc > 4 && strcmp(argv[3], "granularity") == 0)
        return case_granularity(strcmp(argv[4], "yes") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_default_stream_is_its_devices),
        cmocka_unit_test(a_busy_block_is_not_handed_out),
        cmocka_unit_test(a_fresh_thread_can_call_everything),
        cmocka_unit_test(streams_that_are_not_ours_are_refused),
        cmocka_unit_test(a_busy_pool_does_not_break_a_capture),
        cmocka_unit_test(a_captured_stream_is_not_asked),
        cmocka_unit_test(access_is_asked_for_once_a_run),
        cmocka_unit_test(devices_copy_between_each_other),
        cmocka_unit_test(mapped_memory_is_open_to_peers),
        cmocka_unit_test(another_process_has_the_device),
        cmocka_unit_test(copies_do_not_stop_the_stream),
        cmocka_unit_test(freed_memory_on_streams_is_trimmed_before_a_failure),
        cmocka_unit_test(memory_is_told_moved_and_shared),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(the_last_error_is_the_programs), /* of HIP: CUDA's driver has none */
    };
    return _cmocka_run_group_tests(argv[1], tests, BERTH_COUNT_OF(tests) - is_cuda, NULL, NULL);
}

/* OpenCL as drivers behave that are not here: slow, failing, with less memory, without fine-grained memory;
 * and the rules of the specification. On PoCL, through the shim. Arguments: the shim's path, and the mode that
 * it was started in (BERTH_SHIM); a third names the tests to run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shim/shim.h"

#include "berth/berth.h"
#include "device/device.h"
#include "gate.h"

static const berth_device device = {BERTH_DEVICE_OPENCL, 0};
static const char *mode;

#define SHIM_FUNCTIONS(X) \
    X(shim_set)           \
    X(shim_fail)          \
    X(shim_calls)         \
    X(shim_fail_marker)   \
    X(shim_unflushed)     \
    X(shim_blocks)        \
    X(shim_map_flags)     \
    X(shim_notify)
static struct {
#define MEMBER(name) __typeof__(&(name)) name;
    SHIM_FUNCTIONS(MEMBER)
#undef MEMBER
} shim;

/* The mode that the program was started in, and what else a test wants. */
static void set(const char *more)
{
    char words[128];
    snprintf(words, sizeof words, "%s,%s", mode, more);
    shim.shim_set(words);
}

static int back_to_normal(void **state)
{
    (void)state;
    set("");
    return 0;
}

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

/* A stream on an out-of-order queue. */
static berth_stream *new_wild_stream(void)
{
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    cl_context context = NULL;
    cl_device_id id = NULL;
    cl_int code = CL_SUCCESS;
    berth_stream *stream = NULL;
    assert_int_equal(berth_device_native(device, (void **)&context), BERTH_OK);
    assert_int_equal(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof id, &id, NULL), CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, id, properties, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(berth_stream_wrap(device, queue, &stream), BERTH_OK);
    clReleaseCommandQueue(queue); /* the stream has its own reference */
    return stream;
}

static void *take(size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size_bytes, 64, NULL, &p), BERTH_OK);
    return p;
}

static void give(void *p, size_t size_bytes)
{
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, size_bytes, NULL), BERTH_OK);
}

/* The device again, in a context of the test's own, which may be lost without harm to the others. */
static berth_device in_new_context(void)
{
    cl_context context;
    cl_device_id id = NULL;
    berth_device adopted = {0};
    int32_t count = 0;
    cl_int code = CL_SUCCESS;
    assert_int_equal(berth_opencl_device_id(device, (void **)&id), BERTH_OK);
    context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(berth_opencl_adopt(context, &adopted, 1, &count), BERTH_OK);
    assert_int_equal(count, 1);
    clReleaseContext(context); /* berth holds it */
    return adopted;
}

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

/* ---- Order --------------------------------------------------------------------------------------- */

/* Nothing but us orders the halves of an overlapping copy, and the end of the block between. */
static void overlapping_copies_on_an_out_of_order_queue(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20, SHIFT = 4096, ROUNDS = 20 };
    static unsigned char there[BYTES], back[BYTES];
    set("slow");
    berth_stream *stream = new_wild_stream();
    unsigned char *p = take(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        there[i] = pattern(i, 5);
    long blocks = shim.shim_blocks();
    assert_int_equal(berth_copy(device, p, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(
            berth_copy(device, p + SHIFT, p, BYTES - SHIFT, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
            BERTH_OK);
    assert_int_equal(berth_copy(device, back, p, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    for (size_t i = 0; i < BYTES; i++) {
        size_t from = i < (size_t)ROUNDS * SHIFT ? i % SHIFT : i - (size_t)ROUNDS * SHIFT;
        if (back[i] != there[from])
            fail_msg("byte %zu is %d, not %d", i, back[i], there[from]);
    }
    assert_int_equal(shim.shim_blocks(), blocks);
    berth_stream_destroy(stream);
    give(p, BYTES);
}

/* When the second half is refused, the first may still run: the block between goes on the queue. When the first
 * is, nobody has the block, and it goes at once. */
static void a_half_enqueued_copy_keeps_its_block(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    berth_stream *stream = new_stream();
    unsigned char *p = take(BYTES);
    long blocks = shim.shim_blocks();
    for (long half = 1; half <= 2; half++) {
        gate g = GATE_INIT;
        assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
        gate_wait_reached(&g);
        long now = shim.shim_calls("clSVMFree"), later = shim.shim_calls("clEnqueueSVMFree");
        shim.shim_fail("clEnqueueSVMMemcpy", half, 1, CL_INVALID_OPERATION);
        assert_int_equal(
            berth_copy(device, p + 64, p, BYTES - 64, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
            BERTH_DEVICE_ERROR);
        assert_int_equal(berth_last_error()->driver_code, CL_INVALID_OPERATION);
        assert_int_equal(shim.shim_calls("clSVMFree"), now + (half == 1));
        assert_int_equal(shim.shim_calls("clEnqueueSVMFree"), later + (half == 2));
        gate_open(&g);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        assert_int_equal(shim.shim_blocks(), blocks);
    }
    berth_stream_destroy(stream);
    give(p, BYTES);
}

static void copy_onto_itself(void *context)
{
    char *p = ((void **)context)[0];
    berth_stream *stream = ((void **)context)[1];
    berth_status *status = ((void **)context)[2];
    *status = berth_copy(device, p + 1, p, 1000, BERTH_COPY_DEVICE_TO_DEVICE, stream, false);
    if (*status == BERTH_OK)
        *status = berth_device_release(device, BERTH_MEMORY_DEVICE, p, 4096, stream);
}

/* A stream's own function copies and frees on it, also when the queue refuses the free: nothing waits there. */
static void a_streams_function_does_not_hang(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    long blocks = shim.shim_blocks();
    for (long refused = 0; refused < 3; refused++) {
        berth_status status = BERTH_INTERNAL;
        void *context[] = {take(4096), stream, &status};
        shim.shim_fail("clEnqueueSVMFree", 1, refused, CL_OUT_OF_RESOURCES);
        assert_int_equal(berth_stream_call(stream, copy_onto_itself, context), BERTH_OK);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        assert_int_equal(status, BERTH_OK);
    }
    while (shim.shim_blocks() != blocks) /* else the test's time limit ends it */
        sched_yield();
    berth_stream_destroy(stream);
}

/* ---- Questions ----------------------------------------------------------------------------------- */

/* Markers that take longer than a question does: an idle stream is still seen to be idle, also one whose queue
 * the program has as well. */
static void questions_come_to_an_end(void **state)
{
    (void)state;
    enum { MOST_QUESTIONS = 100000 };
    set("late=1000");
    for (int shared = 0; shared < 2; shared++) {
        berth_stream *stream = new_stream();
        char *p = take(64);
        if (shared)
            assert_non_null(berth_stream_native(stream));
        assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
        int questions = 1;
        while (berth_stream_query(stream) != BERTH_OK && questions < MOST_QUESTIONS)
            questions++;
        assert_in_range(questions, 1, MOST_QUESTIONS - 1);
        berth_stream_destroy(stream);
        give(p, 64);
    }
}

typedef struct asker {
    berth_stream *stream;
    _Atomic int *answered;
} asker;

static void *ask_until_ok(void *context)
{
    asker *a = context;
    for (int i = 0; i < 1000000 && berth_stream_query(a->stream) != BERTH_OK; i++)
        ;
    ++*a->answered;
    return NULL;
}

/* Several threads ask one stream: no pending marker is thrown away, so that all get their answer. */
static void threads_ask_together(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    set("late=200");
    berth_stream *stream = new_stream();
    char *p = take(64);
    pthread_t threads[THREADS];
    _Atomic int answered = 0;
    asker a = {stream, &answered};
    long markers = shim.shim_calls("clEnqueueMarkerWithWaitList");
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_until_ok, &a), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    assert_int_equal(answered, THREADS);
    assert_in_range(shim.shim_calls("clEnqueueMarkerWithWaitList") - markers, 1, THREADS);
    berth_stream_destroy(stream);
    give(p, 64);
}

/* ---- Failed commands ----------------------------------------------------------------------------- */

/* What failed is over: it is said once, with the driver's words, and then the point has been passed. */
static void a_failed_command_is_final(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    for (int way = 0; way < 2; way++) {
        shim.shim_fail_marker(CL_INVALID_OPERATION);
        assert_int_equal(berth_event_record(event, stream), BERTH_OK);
        berth_status status;
        if (way == 0)
            while ((status = berth_event_query(event)) == BERTH_NOT_READY)
                ;
        else
            status = berth_event_wait(event);
        assert_int_equal(status, BERTH_DEVICE_ERROR);
        assert_int_equal(berth_last_error()->driver_code, CL_INVALID_OPERATION);
        assert_string_equal(berth_last_error()->driver_words, "CL_INVALID_OPERATION");
        assert_int_equal(berth_event_query(event), BERTH_OK);
        assert_int_equal(berth_event_wait(event), BERTH_OK);
    }
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

/* The same for a pool: the block that waits for the stream comes free. */
static void a_failed_command_does_not_hold_the_pool(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = new_stream();
    void *p = NULL;
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, BYTES, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_record_use(pool, p, stream), BERTH_OK);
    shim.shim_fail_marker(CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_deallocate(pool, p, BYTES, stream), BERTH_OK);
    shim.shim_fail_marker(CL_SUCCESS);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stats stats = {.struct_size = sizeof stats};
    for (int i = 0; i < 2; i++) /* the first hears of the failure */
        assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_reserved, 0);
    berth_allocator_release(pool);
    berth_stream_destroy(stream);
}

/* ---- Limits -------------------------------------------------------------------------------------- */

/* Segments of 20 MiB where 8 MiB are the most: what the device says beforehand is not even asked for. */
static void small_requests_where_segments_are_refused(void **state)
{
    (void)state;
    enum { SMALL = 1 << 20, MOST = (8 << 20) - 4096 /* its alignment may need some */ };
    for (int honest = 0; honest < 2; honest++) {
        set(honest ? "most=8388608,honest" : "most=8388608");
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        berth_allocator *pool = NULL;
        void *p = NULL, *q = NULL;
        options.device = in_new_context();
        assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
        long asked = shim.shim_calls("clSVMAlloc"), freed = shim.shim_calls("clSVMFree");
        assert_int_equal(berth_allocate(pool, SMALL, 64, NULL, &p), BERTH_OK);
        if (honest) /* once more where the first was not aligned */
            assert_int_equal(shim.shim_calls("clSVMAlloc") - asked, 1 + shim.shim_calls("clSVMFree") - freed);
        assert_int_equal(berth_allocate(pool, MOST, 64, NULL, &q), BERTH_OK);
        assert_int_equal(berth_deallocate(pool, p, SMALL, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(pool, q, MOST, NULL), BERTH_OK);
        berth_allocator_release(pool);
    }
}

/* ---- Failures everywhere ------------------------------------------------------------------------- */

static bool may_fail(berth_status status)
{
    if (status != BERTH_OK)
        assert_int_equal(berth_last_error()->driver_code, CL_OUT_OF_RESOURCES);
    return status == BERTH_OK || status == BERTH_DEVICE_ERROR || status == BERTH_OUT_OF_DEVICE_MEMORY ||
           status == BERTH_OUT_OF_HOST_MEMORY;
}

static void count_call(void *context)
{
    ++*(_Atomic int *)context;
}

/* One of everything, where any call may be refused. What was accepted happens. Returns how much was refused. */
static int some_of_everything(berth_stream *stream, berth_event *event, _Atomic int *called, int *accepted)
{
    enum { BYTES = 4096 };
    static char host[BYTES];
    char *p = NULL, *q = NULL, *pinned = NULL;
    int refused = 0;
    assert_true(
        may_fail(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&pinned)));
    p = take(BYTES);
    q = take(BYTES); /* for work without a stream, which is not ordered with the stream's */
    berth_status statuses[] = {
        berth_copy(device, q, host, BYTES, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
        berth_copy(device, p, host, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false),
        berth_copy(device, p + 8, p, BYTES - 8, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
        berth_copy(device, q, q + 8, BYTES - 8, BERTH_COPY_DEVICE_TO_DEVICE, NULL, false),
        berth_zero(device, p, BYTES, stream, false),
        berth_event_record(event, stream),
        berth_stream_wait_event(stream, event),
        berth_stream_call(stream, count_call, called),
        berth_event_wait(event),
    };
    *accepted += statuses[7] == BERTH_OK;
    for (size_t i = 0; i < BERTH_COUNT_OF(statuses); i++)
        refused += statuses[i] != BERTH_OK;
    berth_status asked;
    while ((asked = berth_stream_query(stream)) == BERTH_NOT_READY)
        ;
    assert_true(may_fail(asked));
    if (pinned) /* what is refused is still ours: again, without the stream */
        if (berth_device_release(device, BERTH_MEMORY_PINNED, pinned, BYTES, stream) != BERTH_OK)
            assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, pinned, BYTES, NULL),
                             BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    if (berth_device_release(device, BERTH_MEMORY_DEVICE, p, BYTES, stream) != BERTH_OK)
        give(p, BYTES);
    give(q, BYTES);
    return refused;
}

/* Every so many calls one is refused, at ever other places: what was accepted happens, the rest says so, and in
 * the end nothing is held and the device works. */
static void any_call_may_fail(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    _Atomic int called = 0;
    int accepted = 0, refused = 0;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    long blocks = shim.shim_blocks();
    for (int every = 2; every <= 12; every++) {
        char words[32];
        snprintf(words, sizeof words, "flaky=%d", every);
        set(words);
        for (int round = 0; round < ROUNDS; round++)
            refused += some_of_everything(stream, event, &called, &accepted);
    }
    set("");
    assert_true(refused > 0 && accepted > 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(called, accepted);
    while (shim.shim_blocks() != blocks) /* else the test's time limit ends it */
        sched_yield();
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    give(take(64), 64);
}

/* ---- Rules --------------------------------------------------------------------------------------- */

/* A stream goes while another stands at a user event, and while its own function runs. The shim judges. */
static void nothing_is_released_while_a_user_event_is_unset(void **state)
{
    (void)state;
    berth_stream *stuck = new_stream(), *other = new_stream();
    gate g = GATE_INIT;
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    long released = shim.shim_calls("clReleaseCommandQueue");
    berth_stream_destroy(other);
    berth_stream_destroy(stuck);
    assert_int_equal(shim.shim_calls("clReleaseCommandQueue"), released);
    gate_open(&g);
    while (shim.shim_calls("clReleaseCommandQueue") < released + 2) /* else the test's time limit ends it */
        sched_yield();
}

static void what_streams_get_is_flushed(void **state)
{
    (void)state;
    char host[64] = "";
    berth_stream *stream = new_stream();
    cl_command_queue queue = berth_stream_native(stream);
    char *p = take(128), *q = take(64);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_copy(device, p + 8, p, 64, BERTH_COPY_DEVICE_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, q, 64, stream), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    give(p, 128);
}

/* ---- Amounts of work ----------------------------------------------------------------------------- */

static void zero_is_one_command(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    char *p = take(BYTES);
    long copies = shim.shim_calls("clEnqueueSVMMemcpy"), fills = shim.shim_calls("clEnqueueSVMMemFill");
    assert_int_equal(berth_zero(device, p, BYTES, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_calls("clEnqueueSVMMemcpy"), copies);
    assert_int_equal(shim.shim_calls("clEnqueueSVMMemFill"), fills + 1);
    give(p, BYTES);
}

static void maps_for_writing_do_not_read(void **state)
{
    (void)state;
    char host[64] = "", *p = take(64);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_map_flags(), CL_MAP_WRITE_INVALIDATE_REGION);
    assert_int_equal(berth_copy(device, host, p, 64, BERTH_COPY_DEVICE_TO_HOST, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_map_flags(), CL_MAP_READ);
    give(p, 64);
}

/* ---- A device that is gone ------------------------------------------------------------------------ */

static int lost_lines;
static void count_lost(void *context, berth_log_level level, const char *line)
{
    (void)context;
    lost_lines += level == BERTH_LOG_ERROR && strstr(line, "is lost") != NULL;
}

/* What is over for good and what may pass. A code that can mean both is asked a second time. */
static void codes_that_mean_a_lost_device(void **state)
{
    (void)state;
    enum { ILLEGAL_ACCESS = -9999, TERMINATED = -1121 };
    static const struct {
        int32_t code;
        long times;
        berth_status status;
    } cases[] = {
        {CL_DEVICE_NOT_AVAILABLE, 1, BERTH_DEVICE_LOST},
        {ILLEGAL_ACCESS, 1, BERTH_DEVICE_LOST},
        {TERMINATED, 1, BERTH_DEVICE_LOST},
        {CL_OUT_OF_RESOURCES, 2, BERTH_DEVICE_LOST},
        {CL_INVALID_COMMAND_QUEUE, 2, BERTH_DEVICE_LOST},
        {CL_INVALID_CONTEXT, 2, BERTH_DEVICE_LOST},
        {CL_OUT_OF_RESOURCES, 1, BERTH_DEVICE_ERROR},
        {CL_INVALID_COMMAND_QUEUE, 1, BERTH_DEVICE_ERROR},
        {CL_INVALID_VALUE, 2, BERTH_DEVICE_ERROR},
        {CL_OUT_OF_HOST_MEMORY, 2, BERTH_OUT_OF_HOST_MEMORY},
    };
    berth_log_set(count_lost, NULL, BERTH_LOG_ERROR);
    for (size_t i = 0; i < BERTH_COUNT_OF(cases); i++) {
        berth_device mine = in_new_context();
        berth_stream *stream = NULL;
        void *p = NULL;
        bool lost = cases[i].status == BERTH_DEVICE_LOST;
        lost_lines = 0;
        assert_int_equal(berth_stream_create(mine, &stream), BERTH_OK);
        shim.shim_fail("clFinish", 1, cases[i].times, cases[i].code);
        assert_int_equal(berth_stream_synchronize(stream), cases[i].status);
        assert_int_equal(berth_last_error()->driver_code, cases[i].code);
        shim.shim_fail("clFinish", 1, 0, 0);
        assert_int_equal(berth_stream_synchronize(stream), lost ? BERTH_DEVICE_LOST : BERTH_OK);
        assert_int_equal(berth_device_allocate(mine, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p),
                         lost ? BERTH_DEVICE_LOST : BERTH_OK);
        assert_int_equal(lost_lines, lost);
        if (!lost)
            assert_int_equal(berth_device_release(mine, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
        berth_stream_destroy(stream);
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    give(take(64), 64); /* the others go on */
}

static char heard[256];
static void hear(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "says"))
        snprintf(heard, sizeof heard, "%s", line);
}

static void what_the_driver_says_is_heard(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(berth_device_native(device, &context), BERTH_OK);
    berth_log_set(hear, NULL, BERTH_LOG_WARNING);
    shim.shim_notify("the fan has stopped");
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_non_null(strstr(heard, "OpenCL device 0 says: the fan has stopped"));
}

/* Without fine-grained memory pinned memory is a buffer that the driver knows, mapped; it goes with its stream,
 * and not while a user event is unset (the shim judges). */
static void pinned_memory_is_the_drivers(void **state)
{
    (void)state;
    if (strcmp(mode, "coarse") != 0)
        return; /* there it is fine-grained memory: the device suite */
    enum { BYTES = 100000 };
    unsigned char *p = NULL, *d = take(BYTES);
    berth_stream *stream = new_stream();
    long made = shim.shim_calls("clCreateBuffer"), gone = shim.shim_calls("clReleaseMemObject");
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 4096, NULL, (void **)&p),
                     BERTH_OK);
    assert_int_equal(shim.shim_calls("clCreateBuffer"), made + 1);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (size_t i = 0; i < BYTES; i++)
        p[i] = pattern(i, 9);
    gate g = GATE_INIT;
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(device, d, p, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, p, BYTES, stream), BERTH_OK);
    assert_int_equal(shim.shim_calls("clReleaseMemObject"), gone); /* the copy has not run */
    gate_open(&g);
    unsigned char *back = malloc(BYTES);
    assert_int_equal(berth_copy(device, back, d, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(back[i], pattern(i, 9));
    while (shim.shim_calls("clReleaseMemObject") != gone + 1) /* else the test's time limit ends it */
        sched_yield();
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, back, BYTES, NULL), BERTH_NOT_FOUND);
    free(back);
    shim.shim_fail("clCreateBuffer", 1, 1, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&p),
                     BERTH_OUT_OF_HOST_MEMORY);
    shim.shim_fail("clEnqueueMapBuffer", 1, 1, CL_MAP_FAILURE);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&p),
                     BERTH_DEVICE_ERROR);
    assert_int_equal(shim.shim_calls("clReleaseMemObject"), gone + 2);
    berth_stream_destroy(stream);
    give(d, BYTES);
}

typedef struct copier {
    int rounds;
    bool ok;
} copier;

static void *copy_many(void *context)
{
    copier *c = context;
    char there[256], back[256];
    void *p = NULL;
    c->ok = berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof there, 64, NULL, &p) == BERTH_OK;
    for (int i = 0; i < c->rounds && c->ok; i++) {
        memset(there, i, sizeof there);
        c->ok =
            berth_copy(device, p, there, sizeof there, BERTH_COPY_HOST_TO_DEVICE, NULL, false) == BERTH_OK &&
            berth_copy(device, back, p, sizeof back, BERTH_COPY_DEVICE_TO_HOST, NULL, false) == BERTH_OK &&
            memcmp(there, back, sizeof back) == 0 &&
            berth_zero(device, p, sizeof there, NULL, false) == BERTH_OK;
    }
    c->ok &= berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof there, NULL) == BERTH_OK;
    return NULL;
}

/* Work without a stream, by several threads: as many queues as there are threads at most, and they are kept. */
static void threads_have_queues_of_their_own(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    copier copiers[THREADS];
    pthread_t threads[THREADS];
    long made = shim.shim_calls("clCreateCommandQueueWithProperties");
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < THREADS; i++) {
            copiers[i] = (copier){.rounds = 100};
            assert_int_equal(pthread_create(&threads[i], NULL, copy_many, &copiers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(copiers[i].ok);
        }
    }
    assert_in_range(shim.shim_calls("clCreateCommandQueueWithProperties") - made, 0, THREADS);
}

/* Nor does one that waits hold up another: a mapping that waits for work of the first thread's would. */
static void work_without_a_stream_waits_for_nobody(void **state)
{
    (void)state;
    berth_stream *stuck = new_stream();
    gate g = GATE_INIT;
    char host[64] = "", *p = take(64);
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stuck), BERTH_OK);
    berth_stream_destroy(stuck);
    give(p, 64);
}

/* Returns the child's exit code. */
static int in_child(int (*test)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(test());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- Forks ---------------------------------------------------------------------------------------- */

static berth_stream *parents_stream;
static berth_event *parents_event;
static char *parents_block;

/* Everything in the child says that the device is lost, and nothing hangs. */
static int use_in_child(void)
{
    char host[64] = "";
    void *p = NULL;
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    if (berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p) != BERTH_DEVICE_LOST)
        return 1;
    if (berth_copy(device, parents_block, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false) !=
        BERTH_DEVICE_LOST)
        return 2;
    if (berth_copy(device, parents_block, host, 64, BERTH_COPY_HOST_TO_DEVICE, parents_stream, true) !=
        BERTH_DEVICE_LOST)
        return 3;
    if (berth_zero(device, parents_block, 64, NULL, false) != BERTH_DEVICE_LOST)
        return 4;
    if (berth_stream_synchronize(parents_stream) != BERTH_DEVICE_LOST ||
        berth_stream_query(parents_stream) != BERTH_DEVICE_LOST)
        return 5;
    if (berth_event_wait(parents_event) != BERTH_DEVICE_LOST ||
        berth_event_query(parents_event) != BERTH_DEVICE_LOST)
        return 6;
    if (berth_stream_create(device, &stream) != BERTH_DEVICE_LOST ||
        berth_event_create(device, &event) != BERTH_DEVICE_LOST)
        return 7;
    if (berth_device_release(device, BERTH_MEMORY_DEVICE, parents_block, 64, NULL) != BERTH_DEVICE_LOST)
        return 8;
    if (!strstr(berth_last_error()->message, "fork"))
        return 9;
    berth_event_destroy(parents_event);
    berth_stream_destroy(parents_stream);
    return 0;
}

static void a_forked_child_is_told(void **state)
{
    (void)state;
    gate g = GATE_INIT;
    parents_stream = new_stream();
    parents_block = take(64);
    assert_int_equal(berth_event_create(device, &parents_event), BERTH_OK);
    assert_int_equal(berth_stream_call(parents_stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_event_record(parents_event, parents_stream), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(in_child(use_in_child), 0);
    gate_open(&g);
    assert_int_equal(berth_event_wait(parents_event), BERTH_OK); /* the parent goes on */
    assert_int_equal(berth_stream_synchronize(parents_stream), BERTH_OK);
    berth_event_destroy(parents_event);
    berth_stream_destroy(parents_stream);
    give(parents_block, 64);
}

static void without_shared_memory_it_is_said(void **state)
{
    (void)state;
    void *p = NULL;
    berth_stream *stream = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "shared virtual memory"));
    assert_int_equal(berth_stream_create(device, &stream), BERTH_UNSUPPORTED);
}

#define TEST(f) cmocka_unit_test_teardown(f, back_to_normal)

static int run(void)
{
    const struct CMUnitTest without[] = {TEST(without_shared_memory_it_is_said)};
    const struct CMUnitTest with[] = {
        TEST(overlapping_copies_on_an_out_of_order_queue),
        TEST(a_half_enqueued_copy_keeps_its_block),
        TEST(a_streams_function_does_not_hang),
        TEST(questions_come_to_an_end),
        TEST(threads_ask_together),
        TEST(a_failed_command_is_final),
        TEST(a_failed_command_does_not_hold_the_pool),
        TEST(small_requests_where_segments_are_refused),
        TEST(nothing_is_released_while_a_user_event_is_unset),
        TEST(what_streams_get_is_flushed),
        TEST(zero_is_one_command),
        TEST(maps_for_writing_do_not_read),
        TEST(codes_that_mean_a_lost_device),
        TEST(what_the_driver_says_is_heard),
        TEST(pinned_memory_is_the_drivers),
        TEST(threads_have_queues_of_their_own),
        TEST(work_without_a_stream_waits_for_nobody),
        TEST(a_forked_child_is_told),
        TEST(any_call_may_fail), /* last: what it gives back late would be counted by others */
    };
    return strcmp(mode, "nosvm") == 0 ? cmocka_run_group_tests(without, NULL, NULL)
                                      : cmocka_run_group_tests(with, NULL, NULL);
}

int main(int argc, char **argv)
{
    void *library = argc >= 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int32_t count = 0;
    if (!library) {
        fprintf(stderr, "%s\n", argc >= 3 ? dlerror() : "which shim, and in which mode?");
        return 1;
    }
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        return 77;
    }
#define FIND(name) *(void **)&shim.name = dlsym(library, #name);
    SHIM_FUNCTIONS(FIND)
#undef FIND
    mode = argv[2];
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return run();
}

/* OpenCL when things go wrong, on the stand-in driver: a device that cannot hold memory for us, failing
 * calls, a lost device. Argument: the stand-in's path, which BERTH_OPENCL_LIBRARY names too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <dlfcn.h>
#include <sched.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "device/device.h"

static const berth_device usm = {BERTH_DEVICE_OPENCL, 0}, coarse = {BERTH_DEVICE_OPENCL, 1},
                          neither = {BERTH_DEVICE_OPENCL, 2};
static void (*arrange)(const char *, int, int, bool);
static long (*calls)(const char *);

static void a_device_with_neither_kind_of_memory(void **state)
{
    (void)state;
    berth_device_info info = {.struct_size = sizeof info};
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    berth_allocator *a = NULL;
    void *p = NULL;
    char host[8] = "";
    assert_int_equal(berth_device_describe(neither, &info), BERTH_OK);
    assert_true(info.memory_kinds == 0);
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_MANAGED; kind++)
        assert_int_equal(berth_device_allocate(neither, (berth_memory_kind)kind, 8, 8, NULL, &p),
                         BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "cl_intel_unified_shared_memory"));
    assert_int_equal(berth_stream_create(neither, &stream), BERTH_UNSUPPORTED);
    assert_int_equal(berth_event_create(neither, &event), BERTH_UNSUPPORTED);
    assert_int_equal(berth_copy(neither, host, host + 4, 4, BERTH_COPY_INFER, NULL, false),
                     BERTH_UNSUPPORTED);
    assert_int_equal(berth_zero(neither, host, 4, NULL, false), BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_allocator_create(neither, BERTH_MEMORY_DEVICE, &a), BERTH_UNSUPPORTED);
}

static void kinds_of_memory_by_what_there_is(void **state)
{
    (void)state;
    berth_device_info info = {.struct_size = sizeof info};
    assert_int_equal(berth_device_describe(usm, &info), BERTH_OK);
    assert_true(info.memory_kinds == 7);
    assert_false(info.stream_ordered);
    assert_int_equal(berth_device_describe(coarse, &info), BERTH_OK);
    assert_true(info.memory_kinds == 3);
    assert_true(info.stream_ordered);
}

/* Intel's driver gives more than the largest block that it names only if asked to in so many words; a driver that
 * does not know them is asked without. */
static void blocks_above_the_largest_size(void **state)
{
    (void)state;
    const size_t large = (size_t)320 << 20;
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_MANAGED; kind++) {
        void *p = NULL;
        assert_int_equal(berth_device_allocate(usm, (berth_memory_kind)kind, large, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_device_release(usm, (berth_memory_kind)kind, p, large, NULL), BERTH_OK);
    }
    void *p = NULL;
    long before = calls("clDeviceMemAllocINTEL");
    arrange("clDeviceMemAllocINTEL", 1, -64, false); /* CL_INVALID_PROPERTY */
    assert_int_equal(berth_device_allocate(usm, BERTH_MEMORY_DEVICE, large, 64, NULL, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_last_error()->driver_code, -61); /* what it says of the plain request */
    assert_int_equal(calls("clDeviceMemAllocINTEL") - before, 2);
}

#define FAILS(function, code, expected, call)                      \
    do {                                                           \
        arrange(function, 1, code, false);                         \
        assert_int_equal((call), (expected));                      \
        assert_int_equal(berth_last_error()->driver_code, (code)); \
        assert_int_equal(berth_last_error()->status, (expected));  \
    } while (0)

/* Before anything else: afterwards the device has its context. */
static void no_context_is_told_each_time(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    for (int i = 0; i < 2; i++) {
        FAILS("clCreateContext", -6, BERTH_OUT_OF_HOST_MEMORY, berth_stream_create(usm, &stream));
        assert_null(stream);
    }
    assert_int_equal(berth_stream_create(usm, &stream), BERTH_OK);
    berth_stream_destroy(stream);
}

/* A context that the driver tells nothing of, or does not let us keep, is not adopted. */
static void contexts_that_cannot_be_kept_are_not_adopted(void **state)
{
    (void)state;
    void *context = NULL;
    berth_device found[2] = {{BERTH_DEVICE_UNKNOWN, 0}};
    int32_t count = 7, before = 0, after = 0;
    assert_int_equal(berth_device_count(BERTH_DEVICE_OPENCL, &before), BERTH_OK);
    assert_int_equal(berth_device_native(usm, &context), BERTH_OK);
    FAILS("clGetContextInfo", -34, BERTH_INVALID_ARGUMENT, berth_opencl_adopt(context, found, 2, &count));
    assert_int_equal(count, 0);
    FAILS("clRetainContext", -34, BERTH_DEVICE_ERROR, berth_opencl_adopt(context, found, 2, &count));
    assert_int_equal(count, 0);
    assert_int_equal(berth_device_count(BERTH_DEVICE_OPENCL, &after), BERTH_OK);
    assert_int_equal(before, after);
    assert_int_equal(berth_opencl_device_find(&count, &found[0]), BERTH_NOT_FOUND);
}

static void failures_keep_the_drivers_code(void **state)
{
    (void)state;
    berth_stream *stream = NULL, *none = NULL;
    berth_event *event = NULL;
    void *p = NULL, *q = NULL;
    char host[64] = "";
    assert_int_equal(berth_stream_create(usm, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(usm, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(usm, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    FAILS("clDeviceMemAllocINTEL", -4, BERTH_OUT_OF_DEVICE_MEMORY,
          berth_device_allocate(usm, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q));
    FAILS("clDeviceMemAllocINTEL", -5, BERTH_OUT_OF_DEVICE_MEMORY,
          berth_device_allocate(usm, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q));
    FAILS("clHostMemAllocINTEL", -6, BERTH_OUT_OF_HOST_MEMORY,
          berth_device_allocate(usm, BERTH_MEMORY_PINNED, 64, 64, NULL, &q));
    FAILS("clEnqueueMemcpyINTEL", -5, BERTH_DEVICE_ERROR,
          berth_copy(usm, p, host, 64, BERTH_COPY_INFER, stream, false));
    assert_string_equal(berth_last_error()->driver_words, "CL_OUT_OF_RESOURCES");
    FAILS("clEnqueueMemFillINTEL", -36, BERTH_DEVICE_ERROR, berth_zero(usm, p, 64, stream, false));
    assert_string_equal(berth_last_error()->driver_words, "CL_INVALID_COMMAND_QUEUE");
    FAILS("clCreateCommandQueueWithProperties", -6, BERTH_OUT_OF_HOST_MEMORY,
          berth_stream_create(usm, &none));
    FAILS("clEnqueueMarkerWithWaitList", -36, BERTH_DEVICE_ERROR, berth_event_record(event, stream));
    FAILS("clEnqueueMarkerWithWaitList", -36, BERTH_DEVICE_ERROR,
          berth_stream_call(stream, berth__heap_free, NULL));
    FAILS("clCreateUserEvent", -6, BERTH_OUT_OF_HOST_MEMORY,
          berth_stream_call(stream, berth__heap_free, NULL));
    FAILS("clFinish", -36, BERTH_DEVICE_ERROR, berth_stream_synchronize(stream));
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_null(q);
    assert_null(none);
    assert_int_equal(berth_device_release(usm, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

/* What a function of the stream does: an overlapping copy on it, and the end of the block. */
struct on_stream {
    berth_stream *stream;
    char *p;
    berth_status copied, freed;
};

static void copy_and_free(void *context)
{
    struct on_stream *work = context;
    work->copied =
        berth_copy(usm, work->p + 1, work->p, 60, BERTH_COPY_DEVICE_TO_DEVICE, work->stream, false);
    work->freed = berth_device_release(usm, BERTH_MEMORY_DEVICE, work->p, 64, work->stream);
}

/* The extension's free waits for the queue, which waits for the function: it must not be called there. */
static void a_streams_function_frees_without_waiting(void **state)
{
    (void)state;
    struct on_stream work = {.copied = BERTH_INTERNAL, .freed = BERTH_INTERNAL};
    void *p = NULL;
    assert_int_equal(berth_stream_create(usm, &work.stream), BERTH_OK);
    assert_int_equal(berth_device_allocate(usm, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    work.p = p;
    long freed = calls("clMemBlockingFreeINTEL");
    assert_int_equal(berth_stream_call(work.stream, copy_and_free, &work), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(work.stream), BERTH_OK);
    assert_int_equal(work.copied, BERTH_OK);
    assert_int_equal(work.freed, BERTH_OK);
    while (calls("clMemBlockingFreeINTEL") != freed + 2) /* else the test's time limit ends it */
        sched_yield();
    berth_stream_destroy(work.stream);
}

static int lost_lines;
static void count_lost(void *context, berth_log_level level, const char *line)
{
    (void)context;
    lost_lines += level == BERTH_LOG_ERROR && strstr(line, "is lost") != NULL;
}

static void a_lost_device_is_reported_once(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    char host[8] = "";
    assert_int_equal(berth_stream_create(coarse, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(coarse, &event), BERTH_OK);
    berth_log_set(count_lost, NULL, BERTH_LOG_DEBUG);
    FAILS("clFinish", -2, BERTH_DEVICE_LOST, berth_stream_synchronize(stream));
    long before = calls("clEnqueueSVMMemcpy");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_device_allocate(coarse, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p),
                         BERTH_DEVICE_LOST);
        assert_int_equal(berth_copy(coarse, host, host + 4, 4, BERTH_COPY_INFER, stream, false),
                         BERTH_DEVICE_LOST);
        assert_int_equal(berth_zero(coarse, host, 4, stream, false), BERTH_DEVICE_LOST);
        assert_int_equal(berth_event_record(event, stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_call(stream, berth__heap_free, NULL), BERTH_DEVICE_LOST);
    }
    assert_int_equal(calls("clEnqueueSVMMemcpy"), before);
    assert_int_equal(lost_lines, 1);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    assert_int_equal(berth_device_allocate(usm, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p),
                     BERTH_OK); /* the other goes on */
    assert_int_equal(berth_device_release(usm, BERTH_MEMORY_DEVICE, p, 8, NULL), BERTH_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_context_is_told_each_time),
        cmocka_unit_test(contexts_that_cannot_be_kept_are_not_adopted),
        cmocka_unit_test(a_device_with_neither_kind_of_memory),
        cmocka_unit_test(kinds_of_memory_by_what_there_is),
        cmocka_unit_test(blocks_above_the_largest_size),
        cmocka_unit_test(failures_keep_the_drivers_code),
        cmocka_unit_test(a_streams_function_frees_without_waiting),
        cmocka_unit_test(a_lost_device_is_reported_once),
    };
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "which stand-in?");
        return 1;
    }
    *(void **)&arrange = dlsym(library, "fake_gpu_fail");
    *(void **)&calls = dlsym(library, "fake_gpu_calls");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

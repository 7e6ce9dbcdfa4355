/* OpenCL with the extension cl_intel_unified_shared_memory, which the shim makes of PoCL's memory. What every kind of
 * memory must do is in vendors.c and trouble.c, which run in this mode too. */
#include "vendors.h"

#define FAILS(function, code, expected, call)                      \
    do {                                                           \
        shim.shim_fail(function, 1, 1, code);                      \
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
        FAILS("clCreateContext", CL_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_HOST_MEMORY,
              berth_stream_create(device, &stream));
        assert_null(stream);
    }
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
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
    assert_int_equal(berth_device_native(device, &context), BERTH_OK);
    FAILS("clGetContextInfo", CL_INVALID_CONTEXT, BERTH_INVALID_ARGUMENT,
          berth_opencl_adopt(context, found, 2, &count));
    assert_int_equal(count, 0);
    FAILS("clRetainContext", CL_INVALID_CONTEXT, BERTH_DEVICE_ERROR,
          berth_opencl_adopt(context, found, 2, &count));
    assert_int_equal(count, 0);
    assert_int_equal(berth_device_count(BERTH_DEVICE_OPENCL, &after), BERTH_OK);
    assert_int_equal(before, after);
    assert_int_equal(berth_opencl_device_find(&count, &found[0]), BERTH_NOT_FOUND);
}

/* Intel's driver gives more than the largest block that it names only if asked to in so many words; a driver that
 * does not know them is asked without. */
static void blocks_above_the_largest_size(void **state)
{
    (void)state;
    const size_t large = 3 << 20;
    set("most=1048576,honest");
    berth_device mine = in_new_context();
    void *p = NULL;
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_MANAGED; kind++) {
        assert_int_equal(berth_device_allocate(mine, (berth_memory_kind)kind, large, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_device_release(mine, (berth_memory_kind)kind, p, large, NULL), BERTH_OK);
    }
    p = NULL;
    long before = shim.shim_calls("clDeviceMemAllocINTEL");
    shim.shim_fail("clDeviceMemAllocINTEL", 1, 1, CL_INVALID_PROPERTY);
    assert_int_equal(berth_device_allocate(mine, BERTH_MEMORY_DEVICE, large, 64, NULL, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_last_error()->driver_code, CL_INVALID_BUFFER_SIZE); /* of the plain request */
    assert_int_equal(shim.shim_calls("clDeviceMemAllocINTEL") - before, 2);
}

static void failures_keep_the_drivers_code(void **state)
{
    (void)state;
    berth_stream *stream = new_stream(), *none = NULL;
    berth_event *event = NULL;
    void *p = take(64), *q = NULL;
    char host[64] = "";
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    FAILS("clDeviceMemAllocINTEL", CL_MEM_OBJECT_ALLOCATION_FAILURE, BERTH_OUT_OF_DEVICE_MEMORY,
          berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q));
    FAILS("clDeviceMemAllocINTEL", CL_OUT_OF_RESOURCES, BERTH_OUT_OF_DEVICE_MEMORY,
          berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q));
    FAILS("clHostMemAllocINTEL", CL_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_HOST_MEMORY,
          berth_device_allocate(device, BERTH_MEMORY_PINNED, 64, 64, NULL, &q));
    FAILS("clEnqueueMemcpyINTEL", CL_OUT_OF_RESOURCES, BERTH_DEVICE_ERROR,
          berth_copy(device, p, host, 64, BERTH_COPY_INFER, stream, false));
    assert_string_equal(berth_last_error()->driver_words, "CL_OUT_OF_RESOURCES");
    FAILS("clEnqueueMemFillINTEL", CL_INVALID_COMMAND_QUEUE, BERTH_DEVICE_ERROR,
          berth_zero(device, p, 64, stream, false));
    assert_string_equal(berth_last_error()->driver_words, "CL_INVALID_COMMAND_QUEUE");
    FAILS("clCreateCommandQueueWithProperties", CL_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_HOST_MEMORY,
          berth_stream_create(device, &none));
    FAILS("clEnqueueMarkerWithWaitList", CL_INVALID_COMMAND_QUEUE, BERTH_DEVICE_ERROR,
          berth_event_record(event, stream));
    FAILS("clEnqueueMarkerWithWaitList", CL_INVALID_COMMAND_QUEUE, BERTH_DEVICE_ERROR,
          berth_stream_call(stream, berth__heap_free, NULL));
    FAILS("clCreateUserEvent", CL_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_HOST_MEMORY,
          berth_stream_call(stream, berth__heap_free, NULL));
    FAILS("clFinish", CL_INVALID_COMMAND_QUEUE, BERTH_DEVICE_ERROR, berth_stream_synchronize(stream));
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_null(q);
    assert_null(none);
    give(p, 64);
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
        berth_copy(device, work->p + 1, work->p, 60, BERTH_COPY_DEVICE_TO_DEVICE, work->stream, false);
    work->freed = berth_device_release(device, BERTH_MEMORY_DEVICE, work->p, 64, work->stream);
}

/* The extension's free waits for the queue, which waits for the function: it must not be called there. */
static void a_streams_function_frees_without_waiting(void **state)
{
    (void)state;
    struct on_stream work = {.copied = BERTH_INTERNAL, .freed = BERTH_INTERNAL};
    work.stream = new_stream();
    work.p = take(64);
    long freed = shim.shim_calls("clMemBlockingFreeINTEL");
    assert_int_equal(berth_stream_call(work.stream, copy_and_free, &work), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(work.stream), BERTH_OK);
    assert_int_equal(work.copied, BERTH_OK);
    assert_int_equal(work.freed, BERTH_OK);
    while (shim.shim_calls("clMemBlockingFreeINTEL") != freed + 2) /* else the test's time limit ends it */
        sched_yield();
    berth_stream_destroy(work.stream);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(no_context_is_told_each_time), /* first */
        TEST(contexts_that_cannot_be_kept_are_not_adopted),
        TEST(blocks_above_the_largest_size),
        TEST(failures_keep_the_drivers_code),
        TEST(a_streams_function_frees_without_waiting),
    };
    int code;
    if (!vendors_begin(argc, argv, &code))
        return code;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

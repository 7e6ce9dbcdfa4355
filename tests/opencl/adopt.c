/* A program with contexts, queues and kernels of its own, whose memory berth manages: nothing is refused that is
 * the program's, and what its kernels see is what was written. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { COUNT = 6400, QUEUES = 4, ROUNDS = 40, BYTES = COUNT * sizeof(uint32_t) };

static cl_command_queue new_queue(cl_context context, cl_device_id id, bool out_of_order)
{
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES,
                                              out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, 0};
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, id, properties, &code);
    assert_int_equal(code, CL_SUCCESS);
    return queue;
}

static cl_context new_context(void)
{
    cl_int code = CL_SUCCESS;
    cl_context context = clCreateContext(NULL, 1, &device_id, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    return context;
}

static uint32_t references(cl_context context)
{
    cl_uint count = 0;
    assert_int_equal(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL),
                     CL_SUCCESS);
    return count;
}

static void adopting_again_gives_the_same(void **state)
{
    (void)state;
    cl_context first = new_context(), second = new_context();
    berth_device a, b, again;
    int32_t count = 0;
    assert_int_equal(berth_opencl_adopt(first, &a, 1, &count), BERTH_OK);
    assert_int_equal(count, 1);
    assert_int_equal(references(first), 2); /* the program's and berth's */
    assert_int_equal(berth_opencl_adopt(second, &b, 1, &count), BERTH_OK);
    assert_false(berth_device_equal(a, b));
    assert_int_equal(berth_opencl_adopt(first, &again, 1, &count), BERTH_OK);
    assert_true(berth_device_equal(a, again));
    assert_int_equal(references(first), 2);
    count = 0;
    assert_int_equal(berth_opencl_adopt(first, NULL, 0, &count), BERTH_OK); /* how many */
    assert_int_equal(count, 1);
    void *native = NULL;
    assert_int_equal(berth_device_native(a, &native), BERTH_OK);
    assert_ptr_equal(native, first);
    clReleaseContext(first);
    clReleaseContext(second);
}

/* Not while something of it is there; afterwards its devices are lost, its place is free, and nothing of it stays. */
static void a_context_is_given_back(void **state)
{
    (void)state;
    cl_context context = new_context(), next = new_context();
    berth_device a, b;
    int32_t count = 0;
    void *p = NULL, *q = NULL;
    berth_stream *stream = NULL, *none = NULL;
    berth_device_info info = {.struct_size = sizeof info};
    assert_int_equal(berth_opencl_release(context), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_adopt(context, &a, 1, &count), BERTH_OK);
    assert_int_equal(berth_device_allocate(a, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_zero(a, p, 64, NULL, true), BERTH_OK); /* on a queue that is kept */
    assert_int_equal(berth_stream_create(a, &stream), BERTH_OK);
    assert_int_equal(berth_opencl_release(context), BERTH_BUSY);
    assert_int_equal(berth_device_release(a, BERTH_MEMORY_DEVICE, p, 64, stream), BERTH_OK);
    assert_int_equal(berth_opencl_release(context), BERTH_BUSY);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK); /* it works on as before */
    berth_stream_destroy(stream);
    berth_status released;
    while ((released = berth_opencl_release(context)) == BERTH_BUSY && has_buffers)
        sched_yield(); /* what is freed on a stream is put away on a thread of the driver's */
    assert_int_equal(released, BERTH_OK);
    while (references(context) !=
           1) /* PoCL's own thread may hold it until it has put a finished command away */
        sched_yield();
    assert_int_equal(berth_opencl_release(context), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_allocate(a, BERTH_MEMORY_DEVICE, 64, 64, NULL, &q), BERTH_DEVICE_LOST);
    assert_non_null(strstr(berth_last_error()->message, "berth_opencl_release"));
    assert_int_equal(berth_device_release(a, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_create(a, &none), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_describe(a, &info), BERTH_DEVICE_LOST);
    assert_int_equal(berth_device_native(a, &q), BERTH_DEVICE_LOST);
    assert_int_equal(berth_opencl_device_id(a, &q), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_adopt(next, &b, 1, &count), BERTH_OK);
    assert_true(berth_device_equal(a, b));
    assert_int_equal(berth_device_allocate(b, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_device_release(b, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    assert_int_equal(berth_opencl_release(next), BERTH_OK);
    assert_int_equal(berth_opencl_release(NULL), BERTH_INVALID_ARGUMENT);
    clReleaseContext(context);
    clReleaseContext(next);
}

/* More often than there are places. */
static void contexts_come_and_go(void **state)
{
    (void)state;
    cl_context context = new_context();
    for (int i = 0; i < 600; i++) {
        berth_device a;
        int32_t count = 0;
        assert_int_equal(berth_opencl_adopt(context, &a, 1, &count), BERTH_OK);
        assert_int_equal(berth_opencl_release(context), BERTH_OK);
    }
    assert_int_equal(references(context), 1);
    clReleaseContext(context);
}

static void devices_and_ordinals(void **state)
{
    (void)state;
    const berth_device first = {BERTH_DEVICE_OPENCL, 0}, cpu = berth_device_cpu(),
                       nowhere = {BERTH_DEVICE_OPENCL, 4000};
    void *id = NULL;
    berth_device found;
    berth_opencl_memory_model model;
    assert_int_equal(berth_opencl_device_id(first, &id), BERTH_OK);
    assert_ptr_equal(id, device_id);
    assert_int_equal(berth_opencl_device_find(device_id, &found), BERTH_OK);
    assert_true(berth_device_equal(found, first)); /* not one of the adopted, which have the same id */
    assert_int_equal(berth_opencl_memory(first, &model), BERTH_OK);
    assert_int_equal(model, has_buffers ? BERTH_OPENCL_NO_POINTERS : BERTH_OPENCL_SVM);
    assert_int_equal(berth_opencl_device_find(&id, &found), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_device_find(NULL, &found), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_device_id(cpu, &id), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_device_id(nowhere, &id), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_memory(nowhere, &model), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_adopt(NULL, &found, 1, NULL), BERTH_INVALID_ARGUMENT);
    assert_null(id);
}

static void queues_of_other_contexts_are_refused(void **state)
{
    (void)state;
    cl_context other = new_context();
    cl_command_queue queue = new_queue(other, device_id, false);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_wrap(device, queue, &stream), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "berth_opencl_adopt"));
    berth_device adopted;
    int32_t count = 0;
    assert_int_equal(berth_opencl_adopt(other, &adopted, 1, &count), BERTH_OK);
    assert_int_equal(berth_stream_wrap(adopted, queue, &stream), BERTH_OK);
    berth_stream_destroy(stream);
    clReleaseCommandQueue(queue);
    clReleaseContext(other);
}

/* Several queues of the program's, in and out of order; blocks of a pool go through kernels, are freed while these
 * run, and come back to others. */
static void kernels_on_several_queues_with_a_pool(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    cl_command_queue queues[QUEUES];
    berth_stream *streams[QUEUES];
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    for (int i = 0; i < QUEUES; i++) {
        queues[i] = new_queue(cl_ours, device_id, i % 2 == 1);
        assert_int_equal(berth_stream_wrap(device, queues[i], &streams[i]), BERTH_OK);
    }
    uint32_t *in = malloc((size_t)ROUNDS * QUEUES * BYTES), *out = malloc((size_t)ROUNDS * QUEUES * BYTES);
    assert_true(in && out);
    for (uint32_t i = 0; i < ROUNDS * QUEUES * COUNT; i++)
        in[i] = i * 2654435761u;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < QUEUES; i++) {
            berth_request request = BERTH_REQUEST_INIT;
            void *x = NULL, *y = NULL;
            size_t at = (round * QUEUES + i) * COUNT;
            request.stream = streams[i];
            assert_int_equal(berth_allocate(pool, BYTES, 64, &request, &x), BERTH_OK);
            assert_int_equal(berth_allocate(pool, BYTES, 64, &request, &y), BERTH_OK);
            assert_int_equal(
                berth_copy(device, x, in + at, BYTES, BERTH_COPY_HOST_TO_DEVICE, streams[i], false),
                BERTH_OK);
            launch_kernel(queues[i], x, y, COUNT, 0, NULL);
            assert_int_equal(
                berth_copy(device, out + at, y, BYTES, BERTH_COPY_DEVICE_TO_HOST, streams[i], false),
                BERTH_OK);
            assert_int_equal(berth_deallocate(pool, x, BYTES, streams[i]), BERTH_OK);
            assert_int_equal(berth_deallocate(pool, y, BYTES, streams[i]), BERTH_OK);
        }
    for (int i = 0; i < QUEUES; i++)
        assert_int_equal(berth_stream_synchronize(streams[i]), BERTH_OK);
    for (uint32_t i = 0; i < ROUNDS * QUEUES * COUNT; i++)
        if (out[i] != 2 * in[i] + 1)
            fail_msg("number %u is %u, not %u", i, out[i], 2 * in[i] + 1);
    for (int i = 0; i < QUEUES; i++) {
        berth_stream_destroy(streams[i]);
        assert_int_equal(clReleaseCommandQueue(queues[i]), CL_SUCCESS);
    }
    berth_allocator_release(pool);
    free(in);
    free(out);
}

/* A context of sub-devices: an ordinal for each that the context lists (PoCL lists the whole device in their place);
 * queues of the parts become streams, and an event of one orders the other. */
static void a_context_of_sub_devices(void **state)
{
    (void)state;
    enum { MOST = 8, PARTS = 2 };
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[MOST], listed[MOST];
    cl_uint part_count = 0;
    cl_int code = CL_SUCCESS;
    size_t listed_bytes = 0;
    if (clCreateSubDevices(device_id, equally, MOST, parts, &part_count) != CL_SUCCESS || part_count < PARTS)
        skip(); /* one core, or a driver that does not divide */
    cl_context context = clCreateContext(NULL, PARTS, parts, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof listed, listed, &listed_bytes),
                     CL_SUCCESS);
    berth_device devices[MOST];
    int32_t count = 0;
    assert_int_equal(berth_opencl_adopt(context, devices, MOST, &count), BERTH_OK);
    assert_int_equal(count, listed_bytes / sizeof listed[0]);
    berth_stream *streams[PARTS];
    for (int i = 0; i < PARTS; i++) {
        void *id = NULL;
        berth_device on = devices[i < count ? i : count - 1];
        assert_int_equal(berth_opencl_device_id(on, &id), BERTH_OK);
        assert_ptr_equal(id, listed[i < count ? i : count - 1]);
        cl_command_queue queue = new_queue(context, parts[i], false);
        assert_int_equal(berth_stream_wrap(on, queue, &streams[i]), BERTH_OK);
        clReleaseCommandQueue(queue); /* the stream has its own reference */
    }
    const berth_device one = berth_stream_device(streams[0]), other = berth_stream_device(streams[1]);
    berth_event *event = NULL;
    char there[64] = "through two devices", back[64] = "";
    void *p = NULL;
    assert_int_equal(berth_device_allocate(one, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_event_create(one, &event), BERTH_OK);
    assert_int_equal(berth_copy(one, p, there, 64, BERTH_COPY_HOST_TO_DEVICE, streams[0], false), BERTH_OK);
    assert_int_equal(berth_event_record(event, streams[0]), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(streams[1], event), BERTH_OK);
    assert_int_equal(berth_copy(other, back, p, 64, BERTH_COPY_DEVICE_TO_HOST, streams[1], true), BERTH_OK);
    assert_string_equal(back, there);
    berth_event_destroy(event);
    for (int i = 0; i < PARTS; i++)
        berth_stream_destroy(streams[i]);
    assert_int_equal(berth_device_release(one, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    clReleaseContext(context);
    for (cl_uint i = 0; i < part_count && i < MOST; i++)
        clReleaseDevice(parts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopting_again_gives_the_same),
        cmocka_unit_test(a_context_is_given_back),
        cmocka_unit_test(contexts_come_and_go),
        cmocka_unit_test(devices_and_ordinals),
        cmocka_unit_test(queues_of_other_contexts_are_refused),
        cmocka_unit_test(kernels_on_several_queues_with_a_pool),
        cmocka_unit_test(a_context_of_sub_devices),
    };
    int32_t count = 0;
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        return 77;
    }
    in_own_context = true;
    return cmocka_run_group_tests(tests, set_up_kernel, tear_down_kernel);
}

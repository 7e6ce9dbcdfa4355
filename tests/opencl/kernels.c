/* Kernels of a program on berth's OpenCL memory and streams: what they hold is not reused under them, queues
 * of the program's own become streams, and stay the program's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#include "gate.h"

enum { COUNT = 51200 };

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

static void *take(berth_memory_kind kind)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, kind, COUNT * sizeof(uint32_t), 64, NULL, &p), BERTH_OK);
    return p;
}

static void launch(cl_command_queue queue, const void *x, const void *y, cl_uint waits,
                   const cl_event *events)
{
    launch_kernel(queue, x, y, COUNT, waits, events);
}

static uint32_t *new_numbers(uint32_t first)
{
    uint32_t *numbers = malloc(COUNT * sizeof *numbers);
    assert_non_null(numbers);
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = first + i * 3;
    return numbers;
}

/* A kernel that has not run yet holds its input, which is given back on the stream; meanwhile another stream
 * takes and overwrites blocks of the same size. */
static void what_a_kernel_holds_is_not_reused(void **state)
{
    (void)state;
    enum { OTHERS = 50, BYTES = COUNT * sizeof(uint32_t) };
    berth_stream *stream = new_stream(), *other = new_stream();
    uint32_t *there = new_numbers(7), *back = new_numbers(0);
    void *others[OTHERS];
    gate g = GATE_INIT;
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE);
    assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    launch(berth_stream_native(stream), x, y, 0, NULL);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, x, BYTES, stream), BERTH_OK);
    gate_wait_reached(&g);
    for (int i = 0; i < OTHERS; i++) {
        others[i] = take(BERTH_MEMORY_DEVICE);
        assert_ptr_not_equal(others[i], x);
        assert_int_equal(berth_zero(device, others[i], BYTES, other, false), BERTH_OK);
    }
    assert_int_equal(berth_stream_synchronize(other), BERTH_OK);
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    gate_open(&g);
    assert_int_equal(berth_copy(device, back, y, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(back[i], 2 * there[i] + 1);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, others[i], BYTES, NULL), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, y, BYTES, NULL), BERTH_OK);
    berth_stream_destroy(stream);
    berth_stream_destroy(other);
    free(there);
    free(back);
}

/* The host writes and reads managed memory in place, the kernel runs between. */
static void managed_memory_is_shared(void **state)
{
    (void)state;
    if (has_buffers)
        return; /* there is none */
    berth_stream *stream = new_stream();
    uint32_t *x = take(BERTH_MEMORY_MANAGED), *y = take(BERTH_MEMORY_PINNED);
    for (uint32_t i = 0; i < COUNT; i++)
        x[i] = i ^ 5;
    launch(berth_stream_native(stream), x, y, 0, NULL);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(y[i], 2 * (i ^ 5) + 1);
    berth_device_release(device, BERTH_MEMORY_MANAGED, x, COUNT * sizeof *x, NULL);
    berth_device_release(device, BERTH_MEMORY_PINNED, y, COUNT * sizeof *y, NULL);
    berth_stream_destroy(stream);
}

/* What the program enqueues by itself counts for queries and events too. */
static void queries_see_the_programs_own_work(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_zero(device, x, COUNT * sizeof(uint32_t), stream, true), BERTH_OK);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    cl_event user = clCreateUserEvent(cl_ours, NULL);
    launch(berth_stream_native(stream), x, y, 1, &user);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
        assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    }
    clSetUserEventStatus(user, CL_COMPLETE);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    clReleaseEvent(user);
    berth_event_destroy(event);
    berth_device_release(device, BERTH_MEMORY_DEVICE, x, COUNT * sizeof(uint32_t), NULL);
    berth_device_release(device, BERTH_MEMORY_DEVICE, y, COUNT * sizeof(uint32_t), NULL);
    berth_stream_destroy(stream);
}

/* A stream keeps its order, whatever queue it stands on. */
static void an_out_of_order_queue_as_stream(void **state)
{
    (void)state;
    enum { ROUNDS = 40, BYTES = COUNT * sizeof(uint32_t) };
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueueWithProperties(cl_ours, device_id, properties, &code);
    assert_int_equal(code, CL_SUCCESS);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_wrap(device, queue, &stream), BERTH_OK);
    assert_ptr_equal(berth_stream_native(stream), queue);
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE);
    uint32_t *numbers = new_numbers(1), *back = new_numbers(0), *expected = new_numbers(1);
    assert_int_equal(berth_copy(device, x, numbers, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                     BERTH_OK);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(berth_zero(device, y, BYTES, stream, false), BERTH_OK);
        launch(queue, x, y, 0, NULL); /* the program's own, between two of ours */
        assert_int_equal(berth_copy(device, x, y, BYTES, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
                         BERTH_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            expected[i] = 2 * expected[i] + 1;
    }
    assert_int_equal(berth_copy(device, back, x, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    assert_memory_equal(back, expected, BYTES);
    berth_stream_destroy(stream); /* the queue stays the program's */
    launch(queue, x, y, 0, NULL);
    assert_int_equal(clFinish(queue), CL_SUCCESS);
    assert_int_equal(clReleaseCommandQueue(queue), CL_SUCCESS);
    berth_device_release(device, BERTH_MEMORY_DEVICE, x, BYTES, NULL);
    berth_device_release(device, BERTH_MEMORY_DEVICE, y, BYTES, NULL);
    free(numbers);
    free(back);
    free(expected);
}

static void queues_of_other_contexts_are_refused(void **state)
{
    (void)state;
    cl_int code = CL_SUCCESS;
    berth_stream *stream = NULL;
    cl_context other = clCreateContext(NULL, 1, &device_id, NULL, NULL, &code);
    cl_command_queue queue = clCreateCommandQueueWithProperties(other, device_id, NULL, &code);
    assert_int_equal(berth_stream_wrap(device, queue, &stream), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "berth_device_native"));
    assert_int_equal(berth_stream_wrap(device, NULL, &stream), BERTH_INVALID_ARGUMENT);
    assert_null(stream);
    clReleaseCommandQueue(queue);
    clReleaseContext(other);
}

static void errors_keep_the_drivers_words(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, (size_t)1 << 50, 64, NULL, &p),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_last_error()->driver_code,
                     has_buffers ? CL_INVALID_BUFFER_SIZE : CL_MEM_OBJECT_ALLOCATION_FAILURE);
    assert_string_equal(berth_last_error()->driver_words,
                        has_buffers ? "CL_INVALID_BUFFER_SIZE" : "CL_MEM_OBJECT_ALLOCATION_FAILURE");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_kernel_holds_is_not_reused),
        cmocka_unit_test(managed_memory_is_shared),
        cmocka_unit_test(queries_see_the_programs_own_work),
        cmocka_unit_test(an_out_of_order_queue_as_stream),
        cmocka_unit_test(queues_of_other_contexts_are_refused),
        cmocka_unit_test(errors_keep_the_drivers_words),
    };
    int32_t count = 0;
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        return 77;
    }
    in_own_context = argc > 1 && strcmp(argv[1], "own") == 0;
    return cmocka_run_group_tests(tests, set_up_kernel, tear_down_kernel);
}

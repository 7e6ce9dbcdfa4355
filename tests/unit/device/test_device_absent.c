/* A device that leaves its optional operations out answers each of them with BERTH_UNSUPPORTED and words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/device_absent.h"

static berth_status count(berth_device_kind kind, int32_t *out)
{
    (void)kind;
    *out = 1;
    return BERTH_OK;
}

static berth_status describe(berth_device device, berth_device_info *info)
{
    (void)device, (void)info;
    return BERTH_OK;
}

static berth_status allocate(berth_device device, berth_memory_kind kind, size_t size_bytes, size_t alignment,
                             berth_stream *stream, void **out)
{
    (void)device, (void)kind, (void)size_bytes, (void)alignment, (void)stream, (void)out;
    return BERTH_OUT_OF_DEVICE_MEMORY;
}

static berth_status release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                            berth_stream *stream)
{
    (void)device, (void)kind, (void)p, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static berth_status copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream)
{
    (void)device, (void)dst, (void)src, (void)size_bytes, (void)kind, (void)stream;
    return BERTH_OK;
}

static berth_status zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream)
{
    (void)device, (void)dst, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static const berth__device_ops bare = {
    .struct_size = sizeof(berth__device_ops),
    .name = "bare",
    .count = count,
    .describe = describe,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .zero = zero,
};

static void expect_absent(berth_status status, const char *words)
{
    assert_int_equal(status, BERTH_UNSUPPORTED);
    assert_int_equal(berth_last_error()->status, BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, words));
    berth_clear_last_error();
}

static void call_nothing(void *context)
{
    (void)context;
}

static void test_everything_optional_is_unsupported(void **state)
{
    (void)state;
    berth__device_ops ops;
    assert_true(berth__device_ops_complete(&ops, &bare));
    berth_device device = {BERTH_DEVICE_CPU, 0};
    void *p = &ops;
    berth_stream *made = NULL, stream = {.ops = &ops, .device = device};
    berth_event *fresh = NULL, event = {.ops = &ops, .device = device};
    size_t size = 7;
    expect_absent(ops.native(device, &p), "a cpu device cannot give a native handle");
    expect_absent(ops.stream_create(device, &made), "make streams");
    expect_absent(ops.stream_wrap(device, p, &made), "wrap a stream");
    assert_null(ops.stream_native(&stream));
    ops.stream_destroy(&stream);
    expect_absent(ops.stream_query(&stream), "a bare device cannot query streams");
    expect_absent(ops.stream_synchronize(&stream), "query streams");
    expect_absent(ops.stream_wait_event(&stream, &event), "make streams wait");
    expect_absent(ops.stream_call(&stream, call_nothing, NULL), "call functions of the host");
    expect_absent(ops.event_create(device, &fresh), "make events");
    expect_absent(ops.event_record(&event, &stream), "record events");
    expect_absent(ops.event_query(&event), "query events");
    expect_absent(ops.event_wait(&event), "query events");
    ops.event_destroy(&event);
    expect_absent(ops.granularity(device, &size), "map memory in pieces");
    expect_absent(ops.reserve(device, 4096, &p), "reserve address space");
    expect_absent(ops.unreserve(device, p, 4096), "map memory in pieces");
    expect_absent(ops.map(device, p, 4096), "map memory in pieces");
    expect_absent(ops.unmap(device, p, 4096), "map memory in pieces");
    /* A failure leaves results as they were. */
    assert_ptr_equal(p, &ops);
    assert_null(made);
    assert_null(fresh);
    assert_int_equal(size, 7);
}

static void test_what_is_there_stays(void **state)
{
    (void)state;
    berth__device_ops ops;
    assert_true(berth__device_ops_complete(&ops, &berth__cpu_device_ops));
    assert_ptr_equal(ops.stream_create, berth__cpu_device_ops.stream_create);
    assert_ptr_equal(ops.event_record, berth__cpu_device_ops.event_record);
    assert_ptr_equal(ops.map, berth__cpu_device_ops.map);
}

#ifdef NDEBUG
/* A broken promise of our own: an assertion, which aborts in debug builds and is told otherwise. */
static void test_a_half_filled_table_is_refused(void **state)
{
    (void)state;
    berth__device_ops ops = {0}, half = bare;
    half.release = NULL;
    assert_false(berth__device_ops_complete(&ops, &half));
    half = bare;
    half.struct_size--;
    assert_false(berth__device_ops_complete(&ops, &half));
    assert_null(ops.name);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_optional_is_unsupported),
        cmocka_unit_test(test_what_is_there_stays),
#ifdef NDEBUG
        cmocka_unit_test(test_a_half_filled_table_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

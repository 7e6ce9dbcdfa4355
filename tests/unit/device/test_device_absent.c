/* A device that leaves its optional operations out answers each of them with BERTH_UNSUPPORTED and words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

static berth_status count(void *self, int32_t *out)
{
    (void)self;
    *out = 1;
    return BERTH_OK;
}

static berth_status describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device, (void)info;
    return BERTH_OK;
}

static berth_status allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                             size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)device, (void)kind, (void)size_bytes, (void)alignment, (void)stream, (void)out;
    return BERTH_OUT_OF_DEVICE_MEMORY;
}

static berth_status release(void *self, berth_device device, berth_memory_kind kind, void *p,
                            size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)device, (void)kind, (void)p, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static berth_status copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)src, (void)size_bytes, (void)kind, (void)stream;
    return BERTH_OK;
}

static berth_status zero(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static const berth_device_ops bare = {
    .struct_size = sizeof(berth_device_ops),
    .name = "bare",
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE,
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
    berth_device_ops ops;
    assert_int_equal(berth__device_ops_complete(&ops, &bare), BERTH_OK);
    berth_device device = {BERTH_DEVICE_CPU, 0};
    void *p = &ops;
    const berth__device_type type = {.name = "bare"};
    berth_stream *made = NULL, stream = {.type = &type, .device = device};
    berth_event *fresh = NULL, event = {.type = &type, .device = device};
    size_t size = 7;
    expect_absent(ops.native(NULL, device, &p), "a cpu device cannot give a native handle");
    expect_absent(ops.stream_create(NULL, device, &made), "make streams");
    expect_absent(ops.stream_wrap(NULL, device, p, &made), "wrap a stream");
    assert_null(ops.stream_native(NULL, &stream));
    ops.stream_destroy(NULL, &stream);
    expect_absent(ops.stream_query(NULL, &stream), "a bare device cannot query streams");
    expect_absent(ops.stream_synchronize(NULL, &stream), "query streams");
    expect_absent(ops.stream_wait_event(NULL, &stream, &event), "make streams wait");
    expect_absent(ops.stream_call(NULL, &stream, call_nothing, NULL), "call functions of the host");
    expect_absent(ops.event_create(NULL, device, &fresh), "make events");
    expect_absent(ops.event_record(NULL, &event, &stream), "record events");
    expect_absent(ops.event_query(NULL, &event), "query events");
    expect_absent(ops.event_wait(NULL, &event), "query events");
    ops.event_destroy(NULL, &event);
    expect_absent(ops.granularity(NULL, device, &size), "map memory in pieces");
    expect_absent(ops.reserve(NULL, device, 4096, &p), "reserve address space");
    expect_absent(ops.unreserve(NULL, device, p, 4096), "map memory in pieces");
    expect_absent(ops.map(NULL, device, p, 4096), "map memory in pieces");
    expect_absent(ops.unmap(NULL, device, p, 4096), "map memory in pieces");
    /* A failure leaves results as they were. */
    assert_ptr_equal(p, &ops);
    assert_null(made);
    assert_null(fresh);
    assert_int_equal(size, 7);
}

static void test_what_is_there_stays(void **state)
{
    (void)state;
    berth_device_ops ops;
    assert_int_equal(berth__device_ops_complete(&ops, &berth__cpu_device_ops), BERTH_OK);
    assert_ptr_equal(ops.stream_create, berth__cpu_device_ops.stream_create);
    assert_ptr_equal(ops.event_record, berth__cpu_device_ops.event_record);
    assert_ptr_equal(ops.map, berth__cpu_device_ops.map);
}

static void refused(const berth_device_ops *table, const char *words)
{
    berth_device_ops out;
    assert_int_equal(berth__device_ops_complete(&out, table), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, words));
}

static void test_a_short_or_half_filled_table_is_refused(void **state)
{
    (void)state;
    berth_device_ops half = bare;
    half.release = NULL;
    refused(&half, "lacks one of");
    half = bare;
    half.struct_size = 0;
    refused(&half, "struct_size");
    half.struct_size = offsetof(berth_device_ops, zero);
    refused(&half, "struct_size");
    half.struct_size = sizeof half - 1;
    refused(&half, "struct_size");
    half = bare;
    half.memory_kinds = 1u << BERTH_MEMORY_PINNED;
    refused(&half, "kinds of memory");
    half.memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << 9;
    refused(&half, "kinds of memory");
    half = bare;
    half.abilities = 1u << 17;
    refused(&half, "abilities");
    const char *const names[] = {NULL,         "",        "Upper",
                                 "with space", "unknown", "a-name-of-thirty-two-characters!"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        half = bare;
        half.name = names[i];
        refused(&half, "name");
    }
}

static void test_what_belongs_together_comes_together(void **state)
{
    (void)state;
    const size_t members[] = {
        offsetof(berth_device_ops, stream_create), offsetof(berth_device_ops, event_query),
        offsetof(berth_device_ops, stream_call),   offsetof(berth_device_ops, map),
        offsetof(berth_device_ops, register_host), offsetof(berth_device_ops, share)};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        berth_device_ops half = bare;
        memcpy((char *)&half + members[i], &half.zero, sizeof half.zero); /* never called */
        refused(&half, "belongs together");
    }
}

/* A table of an older header ends after what was there then; what lies behind it is not read. */
static void test_a_table_may_end_after_what_is_required(void **state)
{
    (void)state;
    struct {
        char bytes[offsetof(berth_device_ops, zero) + sizeof bare.zero];
        char behind[64];
    } old;
    memcpy(old.bytes, &bare, sizeof old.bytes);
    memset(old.behind, 0xff, sizeof old.behind);
    const size_t size = sizeof old.bytes;
    memcpy(old.bytes, &size, sizeof size);
    berth_device_ops out;
    assert_int_equal(berth__device_ops_complete(&out, (const berth_device_ops *)(void *)&old), BERTH_OK);
    void *p = NULL;
    expect_absent(out.native(NULL, berth_device_cpu(), &p), "native");
    assert_int_equal(out.struct_size, sizeof out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_optional_is_unsupported),
        cmocka_unit_test(test_what_is_there_stays),
        cmocka_unit_test(test_a_short_or_half_filled_table_is_refused),
        cmocka_unit_test(test_what_belongs_together_comes_together),
        cmocka_unit_test(test_a_table_may_end_after_what_is_required),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

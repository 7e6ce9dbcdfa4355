/* The front of devices: what it refuses, in words, before any driver hears of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

#define REFUSES(expected, call)                                   \
    do {                                                          \
        berth_clear_last_error();                                 \
        assert_int_equal((call), (expected));                     \
        assert_int_equal(berth_last_error()->status, (expected)); \
        assert_true(berth_last_error()->message[0] != '\0');      \
    } while (0)

static const berth_device cpu = {BERTH_DEVICE_CPU, 0};

static void kind_zero_is_refused_everywhere(void **state)
{
    (void)state;
    const berth_device none = {0, 0};
    berth_device_info info = {.struct_size = sizeof info};
    berth_stream *stream = (berth_stream *)1;
    berth_event *event = (berth_event *)1;
    int32_t count = 7;
    char a[8] = {0}, b[8];
    void *p = a;
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_count(BERTH_DEVICE_UNKNOWN, &count));
    assert_int_equal(count, 0);
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_describe(none, &info));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_allocate(none, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p));
    assert_null(p);
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_allocate(none, BERTH_MEMORY_DEVICE, 0, 8, NULL, &p));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_release(none, BERTH_MEMORY_DEVICE, a, 8, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(none, b, a, 8, BERTH_COPY_INFER, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(none, b, a, 0, BERTH_COPY_INFER, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_zero(none, b, 8, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_create(none, &stream));
    assert_null(stream);
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_wrap(none, a, &stream));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_create(none, &event));
    assert_null(event);
    assert_string_equal(berth_device_kind_name(BERTH_DEVICE_UNKNOWN), "unknown");
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_count((berth_device_kind)-1, &count));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_count((berth_device_kind)99, &count));
}

static void ordinals_that_are_not_there(void **state)
{
    (void)state;
    const int32_t wrong[] = {-1, 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < BERTH_COUNT_OF(wrong); i++) {
        const berth_device device = {BERTH_DEVICE_CPU, wrong[i]};
        berth_stream *stream;
        void *p;
        char a[8], b[8] = {0};
        REFUSES(BERTH_NOT_FOUND, berth_device_allocate(device, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p));
        REFUSES(BERTH_NOT_FOUND, berth_stream_create(device, &stream));
        REFUSES(BERTH_NOT_FOUND, berth_copy(device, a, b, 8, BERTH_COPY_INFER, NULL, false));
        REFUSES(BERTH_NOT_FOUND, berth_zero(device, a, 8, NULL, false));
    }
}

static void null_and_overflow_and_alignment(void **state)
{
    (void)state;
    char a[8] = {0};
    void *p;
    const size_t alignments[] = {0, 3, 48, (size_t)1 << 40};
    for (size_t i = 0; i < BERTH_COUNT_OF(alignments); i++)
        REFUSES(BERTH_INVALID_ARGUMENT,
                berth_device_allocate(cpu, BERTH_MEMORY_DEVICE, 8, alignments[i], NULL, &p));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_allocate(cpu, BERTH_MEMORY_DEVICE, 8, 8, NULL, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_allocate(cpu, (berth_memory_kind)9, 8, 8, NULL, &p));
    REFUSES(BERTH_OVERFLOW, berth_device_allocate(cpu, BERTH_MEMORY_DEVICE, SIZE_MAX, 8, NULL, &p));
    REFUSES(BERTH_OVERFLOW, berth_device_allocate(cpu, BERTH_MEMORY_PINNED, SIZE_MAX - 4096, 8, NULL, &p));
    REFUSES(BERTH_OUT_OF_HOST_MEMORY,
            berth_device_allocate(cpu, BERTH_MEMORY_PINNED, (size_t)1 << 60, 64, NULL, &p));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_release(cpu, BERTH_MEMORY_DEVICE, a, 0, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(cpu, NULL, a, 8, BERTH_COPY_INFER, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(cpu, a, NULL, 8, BERTH_COPY_INFER, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(cpu, a, a, 8, (berth_copy_kind)5, NULL, false));
    REFUSES(BERTH_OVERFLOW, berth_copy(cpu, a, a, SIZE_MAX, BERTH_COPY_INFER, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_zero(cpu, NULL, 8, NULL, false));
    REFUSES(BERTH_OVERFLOW, berth_zero(cpu, a, SIZE_MAX, NULL, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_count(BERTH_DEVICE_CPU, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_create(cpu, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_create(cpu, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_query(NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_synchronize(NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_query(NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_wait(NULL));
    berth_stream_destroy(NULL);
    berth_event_destroy(NULL);
    assert_null(berth_stream_native(NULL));
    assert_int_equal(berth_stream_device(NULL).kind, BERTH_DEVICE_UNKNOWN);
    assert_true(berth_stream_id(NULL) == 0);
}

static void streams_and_events_with_null_partners(void **state)
{
    (void)state;
    berth_stream *stream;
    berth_event *event;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(cpu, &event), BERTH_OK);
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_wait_event(stream, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_wait_event(NULL, event));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_record(event, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_event_record(NULL, stream));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_call(stream, NULL, NULL));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_stream_wrap(cpu, stream, NULL));
    berth_stream *wrapped;
    REFUSES(BERTH_UNSUPPORTED, berth_stream_wrap(cpu, stream, &wrapped));
    berth_stream_destroy(stream);
    berth_event_destroy(event);
}

static void a_stream_of_another_device_is_refused(void **state)
{
    (void)state;
    berth_stream *stream;
    char a[8] = {1}, b[8] = {0};
    void *p;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    const berth_device other = {BERTH_DEVICE_CPU, 1};
    REFUSES(BERTH_INVALID_ARGUMENT, berth_copy(other, b, a, 8, BERTH_COPY_INFER, stream, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_zero(other, b, 8, stream, false));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_allocate(other, BERTH_MEMORY_DEVICE, 8, 8, stream, &p));
    assert_int_equal(b[0], 0);
    berth_stream_destroy(stream);
}

static void zero_bytes_never_reach_the_driver(void **state)
{
    (void)state;
    void *p = &p;
    assert_int_equal(berth_device_allocate(cpu, BERTH_MEMORY_DEVICE, 0, 64, NULL, &p), BERTH_OK);
    assert_null(p);
    assert_int_equal(berth_device_release(cpu, BERTH_MEMORY_DEVICE, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_copy(cpu, NULL, NULL, 0, BERTH_COPY_INFER, NULL, true), BERTH_OK);
    assert_int_equal(berth_zero(cpu, NULL, 0, NULL, true), BERTH_OK);
}

static void describes_what_there_is_room_for(void **state)
{
    (void)state;
    berth_device_info info = {.struct_size = sizeof info};
    assert_int_equal(berth_device_describe(cpu, &info), BERTH_OK);
    assert_true(info.struct_size == sizeof info);
    assert_true(info.name[0] != '\0');
    assert_string_equal(info.driver, "");
    assert_true(info.total_bytes > 0);
    assert_true(info.memory_kinds == 7);
    assert_true(info.host_accessible);
    memset(&info, 0x5a, sizeof info);
    info.struct_size = offsetof(berth_device_info, driver);
    assert_int_equal(berth_device_describe(cpu, &info), BERTH_OK);
    assert_int_equal(info.driver[0], 0x5a);
    info.struct_size = 0;
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_describe(cpu, &info));
    REFUSES(BERTH_INVALID_ARGUMENT, berth_device_describe(cpu, NULL));
    int32_t count = 0;
    assert_int_equal(berth_device_count(BERTH_DEVICE_CPU, &count), BERTH_OK);
    assert_int_equal(count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kind_zero_is_refused_everywhere),
        cmocka_unit_test(ordinals_that_are_not_there),
        cmocka_unit_test(null_and_overflow_and_alignment),
        cmocka_unit_test(streams_and_events_with_null_partners),
        cmocka_unit_test(a_stream_of_another_device_is_refused),
        cmocka_unit_test(zero_bytes_never_reach_the_driver),
        cmocka_unit_test(describes_what_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

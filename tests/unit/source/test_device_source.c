/* The device source: one driver call a block, streams respected, nothing lost when memory is short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/source.h"
#include "berth/virtual.h"
#include "gate.h"

static void bad_input(void **state)
{
    (void)state;
    berth_allocator *a = (berth_allocator *)1;
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), BERTH_MEMORY_DEVICE, NULL),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_device_allocator_create((berth_device){0, 0}, BERTH_MEMORY_DEVICE, &a),
                     BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(
        berth_device_allocator_create((berth_device){BERTH_DEVICE_CPU, 5}, BERTH_MEMORY_DEVICE, &a),
        BERTH_NOT_FOUND);
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), (berth_memory_kind)3, &a),
                     BERTH_INVALID_ARGUMENT);
}

static void it_says_what_it_is(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), BERTH_MEMORY_PINNED, &a), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), "cpu:0:pinned");
    assert_int_equal(berth_allocator_memory_kind(a), BERTH_MEMORY_PINNED);
    assert_true(berth_device_equal(berth_allocator_device(a), berth_device_cpu()));
    assert_true(berth_allocator_tracks_sizes(a));
    berth_allocator_release(a);
}

/* A stream's work is over before the block goes, on a device that does not see to that itself. */
static void a_free_waits_for_its_stream(void **state)
{
    (void)state;
    berth_device device, other;
    berth_allocator *a = NULL;
    berth_stream *stream = NULL, *stranger = NULL;
    char host[64], back[64] = "";
    char *p = NULL;
    memset(host, 'h', sizeof host);
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_virtual_create(&other), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_stream_create(other, &stranger), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, sizeof host, 64, NULL, (void **)&p), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, p + 63), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, p + 64), BERTH_NOT_FOUND);
    berth_copy(device, p, host, sizeof host, BERTH_COPY_INFER, stream, false);
    berth_copy(device, back, p, sizeof back, BERTH_COPY_INFER, stream, false);
    assert_int_equal(berth_deallocate(a, p, 0, stream), BERTH_OK);
    assert_memory_equal(back, host, sizeof back);
    assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    /* Another device's stream is waited for too. */
    assert_int_equal(berth_allocate(a, sizeof host, 64, NULL, (void **)&p), BERTH_OK);
    assert_int_equal(berth_zero(other, host, sizeof host, stranger, false), BERTH_OK);
    assert_int_equal(berth_virtual_pending(stranger), 1);
    assert_int_equal(berth_deallocate(a, p, 0, stranger), BERTH_OK);
    assert_int_equal(berth_virtual_pending(stranger), 0);
    assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    berth_allocator_release(a);
    berth_stream_destroy(stream);
    berth_stream_destroy(stranger);
    berth_virtual_destroy(device);
    berth_virtual_destroy(other);
}

/* A block is filled with zero bytes without the stream that will use it: nothing on a stream can outlive a block that was
 * refused in the end, and nobody waits for what the stream still has to do. */
static void zeroed_blocks_wait_for_no_stream(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    berth_stream *stream = NULL;
    gate g = GATE_INIT;
    unsigned char *p = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    berth_request request = {sizeof request, BERTH_ZEROED, stream, NULL};
    alarm(30); /* does not end where it waits for the gate */
    assert_int_equal(berth_allocate(a, 3000, 64, &request, (void **)&p), BERTH_OK);
    alarm(0);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(p[i], 0);
    gate_open(&g);
    assert_int_equal(berth_deallocate(a, p, 3000, stream), BERTH_OK);
    berth_stream_destroy(stream);
    berth_allocator_release(a);
}

static void failing_calls_leave_no_trace(void **state)
{
    (void)state;
    berth_device device;
    berth_allocator *a = NULL;
    berth_request zeroed = BERTH_REQUEST_INIT;
    berth_stats stats = {.struct_size = sizeof stats};
    void *p = NULL;
    zeroed.flags = BERTH_ZEROED;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, 10, 64, NULL, &p), BERTH_OK); /* what is made once */
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    uint64_t live = berth__heap_live();
    berth_virtual_fail(device, BERTH_VIRTUAL_ALLOCATE, 1, BERTH_OUT_OF_DEVICE_MEMORY, false);
    assert_int_equal(berth_allocate(a, 100, 64, &zeroed, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    berth_virtual_fail(device, BERTH_VIRTUAL_ZERO, 1, BERTH_DEVICE_ERROR, false);
    assert_int_equal(berth_allocate(a, 100, 64, &zeroed, &p), BERTH_DEVICE_ERROR);
    for (uint64_t n = 1;; n++) {
        berth__heap_fail_at(n, false);
        berth_status status = berth_allocate(a, 100, 64, &zeroed, &p);
        berth__heap_fail_at(0, false);
        if (status == BERTH_OK)
            break;
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_true(berth__heap_live() == live);
    }
    assert_int_equal(berth_virtual_bytes_in_use(device), 100);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 100);
    assert_int_equal(stats.num_allocs, 2);
    assert_true(stats.num_failures >= 3);
    berth_allocator_release(a); /* goes with its last block */
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    berth_virtual_destroy(device);
}

/* A free that the device refuses has not happened: the block is the caller's, and the next try takes it. */
static void a_refused_free_may_be_tried_again(void **state)
{
    (void)state;
    static const berth_status refusals[] = {BERTH_DEVICE_ERROR, BERTH_OUT_OF_HOST_MEMORY,
                                            BERTH_OUT_OF_DEVICE_MEMORY};
    berth_device device;
    berth_allocator *a = NULL;
    berth_stream *stream = NULL;
    berth_stats stats = {.struct_size = sizeof stats};
    void *p = NULL;
    size_t size = 0;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    for (size_t k = 0; k < 2 * BERTH_COUNT_OF(refusals); k++) {
        berth_stream *on = k % 2 ? stream : NULL;
        assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK);
        berth_virtual_fail(device, BERTH_VIRTUAL_RELEASE, 1, refusals[k / 2], false);
        assert_int_equal(berth_deallocate(a, p, 100, on), refusals[k / 2]);
        assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
        assert_int_equal(size, 100);
        assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 100);
        assert_int_equal(berth_deallocate(a, p, 100, on), BERTH_OK);
        assert_int_equal(berth_deallocate(a, p, 100, on), BERTH_BAD_FREE);
        assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 0);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    }
    berth_stream_destroy(stream);
    berth_allocator_release(a);
    berth_virtual_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input),
        cmocka_unit_test(it_says_what_it_is),
        cmocka_unit_test(a_free_waits_for_its_stream),
        cmocka_unit_test(zeroed_blocks_wait_for_no_stream),
        cmocka_unit_test(failing_calls_leave_no_trace),
        cmocka_unit_test(a_refused_free_may_be_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

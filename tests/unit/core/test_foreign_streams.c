/* A stream of another device than the allocator's means the same in allocate, record_use and free: the block is not
 * reused before that stream has passed the point of the free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "berth/berth.h"

#define MIB ((size_t)1 << 20)

struct fixture {
    berth_device device; /* the streams' */
    berth_stream *stream;
    berth_allocator *a; /* of the CPU */
};

static struct fixture set_up(berth_allocator *a)
{
    struct fixture f = {.a = a};
    assert_int_equal(berth_virtual_create(&f.device), BERTH_OK);
    assert_int_equal(berth_stream_create(f.device, &f.stream), BERTH_OK);
    return f;
}

static void tear_down(struct fixture *f)
{
    berth_allocator_release(f->a);
    berth_stream_destroy(f->stream);
    assert_int_equal(berth_virtual_destroy(f->device), BERTH_OK);
}

/* Something for the stream to do. */
static void work(const struct fixture *f, void *p)
{
    assert_int_equal(berth_zero(f->device, p, 8, f->stream, false), BERTH_OK);
}

static void *take(struct fixture *f, berth_stream *stream, uint32_t flags)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = stream;
    request.flags = flags;
    void *p = NULL;
    assert_int_equal(berth_allocate(f->a, MIB, BERTH_ALIGNMENT, &request, &p), BERTH_OK);
    return p;
}

/* `p` has been freed and the stream has not come that far: a block for the host is another one until it has. */
static void is_held_until_the_stream_passes(struct fixture *f, void *p)
{
    void *other = take(f, NULL, 0);
    assert_ptr_not_equal(other, p);
    assert_int_equal(berth_virtual_run(f->stream), BERTH_OK);
    size_t released = 0;
    assert_int_equal(berth_deallocate(f->a, other, 0, NULL), BERTH_OK);
    assert_int_equal(berth_trim(f->a, 0, &released), BERTH_OK);
    assert_true(released >= 2 * MIB); /* both are idle */
}

static void means_the_same_everywhere(berth_allocator *a)
{
    struct fixture f = set_up(a);
    void *p = take(&f, NULL, 0);
    work(&f, p);
    assert_int_equal(berth_deallocate(f.a, p, MIB, f.stream), BERTH_OK);
    is_held_until_the_stream_passes(&f, p);

    p = take(&f, f.stream, 0);
    work(&f, p);
    assert_int_equal(berth_deallocate(f.a, p, MIB, NULL), BERTH_OK);
    is_held_until_the_stream_passes(&f, p);

    p = take(&f, NULL, 0);
    work(&f, p);
    assert_int_equal(berth_record_use(f.a, (char *)p + 5, f.stream), BERTH_OK);
    assert_int_equal(berth_deallocate(f.a, p, MIB, NULL), BERTH_OK);
    is_held_until_the_stream_passes(&f, p);

    /* Its own device zeroes, before the call returns. */
    p = take(&f, NULL, 0);
    memset(p, 7, MIB);
    assert_int_equal(berth_deallocate(f.a, p, MIB, NULL), BERTH_OK);
    p = take(&f, f.stream, BERTH_ZEROED);
    for (size_t i = 0; i < MIB; i += 1000)
        assert_int_equal(((char *)p)[i], 0);
    assert_int_equal(berth_deallocate(f.a, p, MIB, NULL), BERTH_OK);
    assert_int_equal(berth_virtual_run(f.stream), BERTH_OK);
    tear_down(&f);
}

static void in_a_pool(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(NULL, &a), BERTH_OK);
    means_the_same_everywhere(a);
}

static void in_a_host_cache(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &a), BERTH_OK);
    means_the_same_everywhere(a);
}

/* The driver's own memory goes back when the foreign stream has done its part: it is waited for. */
static void in_a_device_source(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    struct fixture f = set_up(a);
    assert_int_equal(berth_virtual_set_waits_run(f.device, true), BERTH_OK);
    void *p = take(&f, f.stream, BERTH_ZEROED);
    work(&f, p);
    assert_int_equal(berth_virtual_pending(f.stream), 1);
    assert_int_equal(berth_deallocate(f.a, p, MIB, f.stream), BERTH_OK);
    assert_int_equal(berth_virtual_pending(f.stream), 0);
    tear_down(&f);
}

/* Streams of two devices use one block: both are waited for, and the spare events of one are not used for the other. */
static void two_devices_share_a_block(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(NULL, &a), BERTH_OK);
    struct fixture f = set_up(a);
    berth_device second;
    berth_stream *other = NULL;
    assert_int_equal(berth_virtual_create(&second), BERTH_OK);
    assert_int_equal(berth_stream_create(second, &other), BERTH_OK);
    for (int round = 0; round < 4; round++) {
        void *p = take(&f, NULL, 0);
        work(&f, p);
        assert_int_equal(berth_zero(second, p, 8, other, false), BERTH_OK);
        assert_int_equal(berth_record_use(f.a, p, f.stream), BERTH_OK);
        assert_int_equal(berth_record_use(f.a, p, other), BERTH_OK);
        assert_int_equal(berth_deallocate(f.a, p, 0, NULL), BERTH_OK);
        assert_int_equal(berth_virtual_run(round % 2 ? f.stream : other), BERTH_OK);
        size_t released = 1;
        assert_int_equal(berth_trim(f.a, 0, &released), BERTH_OK);
        assert_int_equal(released, 0);
        assert_int_equal(berth_virtual_run(round % 2 ? other : f.stream), BERTH_OK);
        assert_int_equal(berth_trim(f.a, 0, &released), BERTH_OK);
        assert_true(released >= MIB);
    }
    tear_down(&f);
    berth_stream_destroy(other);
    assert_int_equal(berth_virtual_destroy(second), BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_pool),
        cmocka_unit_test(in_a_host_cache),
        cmocka_unit_test(in_a_device_source),
        cmocka_unit_test(two_devices_share_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

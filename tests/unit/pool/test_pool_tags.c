/* Pointers with a tag in their top byte: on ARM the pool finds their blocks, elsewhere it refuses them. */
#include "unit/pool/pool_test.h"

/* ARM's processors leave the top byte of an address alone, and MTE and HWASan keep tags there. Elsewhere such a
 * pointer is another one. */
#if defined(__aarch64__)
enum { TAGS_COUNT = 0 };
#else
enum { TAGS_COUNT = 1 };
#endif

static void *with_tag(void *p)
{
    return (void *)((uintptr_t)p | (uintptr_t)0xb4 << 56);
}

static void check_tagged(berth_allocator *pool, void *p, size_t size_bytes, berth_stream *stream)
{
    void *tagged = with_tag(p);
    size_t told = 0;
    if (TAGS_COUNT) {
        assert_int_equal(berth_allocator_owns(pool, tagged), BERTH_NOT_FOUND);
        assert_int_equal(berth_deallocate(pool, tagged, 0, stream), BERTH_BAD_FREE);
        assert_int_equal(berth_deallocate(pool, p, 0, stream), BERTH_OK);
        return;
    }
    assert_int_equal(berth_allocator_owns(pool, (char *)tagged + 1), BERTH_OK);
    assert_int_equal(berth_requested_size(pool, tagged, &told), BERTH_OK);
    assert_int_equal(told, size_bytes);
    if (stream)
        assert_int_equal(berth_record_use(pool, (char *)tagged + 1, stream), BERTH_OK);
    void *moved = NULL;
    assert_int_equal(berth_reallocate(pool, tagged, size_bytes, 2 * size_bytes, 64, NULL, &moved), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, with_tag(moved), 2 * size_bytes, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, with_tag(moved), 0, stream), BERTH_BAD_FREE);
}

/* On the fast path, which takes what was freed last; on the general one; of large blocks; on a stream. */
static void tags_are_no_part_of_an_address(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 70 * KIB, 3 * MIB};
    berth_allocator *pool = make(NULL);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++) {
        check_tagged(pool, take(pool, sizes[i]), sizes[i], NULL);
        check_tagged(pool, take(pool, sizes[i]), sizes[i], stream);
    }
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(stats_of(pool).bytes_in_use, 0);
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_no_part_of_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

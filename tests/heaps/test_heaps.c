/* The adapter over the real mimalloc and jemalloc: blocks come from that heap and go back to it. */
#include "unit/wrap/wrap_test.h"

#include "base/header.h"

#if defined(HEAP_mimalloc)
#include <mimalloc.h>

static const berth_malloc_family family = {
    .struct_size = sizeof(berth_malloc_family),
    .name = "mimalloc",
    .malloc = mi_malloc,
    .free = mi_free,
    .calloc = mi_calloc,
};

static bool is_from_heap(const void *p)
{
    return mi_is_in_heap_region(p);
}

#else
#include <jemalloc/jemalloc.h>

static size_t usable(void *p)
{
    return malloc_usable_size(p);
}

static const berth_malloc_family family = {
    .struct_size = sizeof(berth_malloc_family),
    .name = "jemalloc",
    .malloc = malloc, /* linked with jemalloc this is its own */
    .free = free,
    .calloc = calloc,
    .usable_size = usable,
};

static bool is_from_heap(const void *p)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    /* Asks which arena the raw block lies in: only jemalloc's own have one. */
    berth__header header;
    if (berth__header_read(p, &header))
        p = (const char *)p - header.offset;
    return mallctl("arenas.lookup", &arena, &size, &p, sizeof p) == 0;
}
#endif

static void blocks_come_from_the_heap(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), family.name);
    enum { MANY = 200 };
    void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        size_t alignment = (size_t)1 << i % 13, size = 1 + i * i * 7 % 70000;
        assert_int_equal(berth_allocate(a, size, alignment, NULL, &blocks[i]), BERTH_OK);
        assert_int_equal((uintptr_t)blocks[i] % alignment, 0);
        assert_true(is_from_heap(blocks[i]));
        memset(blocks[i], (int)i, size);
    }
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, MANY);
    for (size_t i = 0; i < MANY; i++)
        give(a, blocks[i]);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
#if defined(HEAP_mimalloc)
    int local = 0;
    assert_false(is_from_heap(&local)); /* the question can say no; jemalloc's must not be asked that */
#endif
    berth_allocator_release(a);
}

static void zeroed_means_zeroed(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_ZEROED;
    for (int round = 0; round < 20; round++) {
        unsigned char *p = NULL;
        assert_int_equal(berth_allocate(a, 5000, 64, &request, (void **)&p), BERTH_OK);
        for (int i = 0; i < 5000; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, 5000);
        give(a, p);
    }
    berth_allocator_release(a);
}

static void *churn(void *a)
{
    for (int i = 0; i < 2000; i++) {
        void *p = take(a, 1 + (size_t)i % 3000);
        memset(p, i, 1);
        give(a, p);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, a), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, 8000);
    assert_int_equal(stats.bytes_in_use, 0);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_from_the_heap),
        cmocka_unit_test(zeroed_means_zeroed),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

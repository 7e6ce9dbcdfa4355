/* The adapter: any heap with a malloc and a free, also one that aligns badly, runs out or cannot tell sizes.
 */
#include "unit/wrap/wrap_test.h"

#include <malloc.h>

static size_t left_bytes = SIZE_MAX; /* what the heap still gives */
static long live;

/* Aligned to 8 and no better, as some heaps are. */
static void *poor_malloc(size_t size_bytes)
{
    if (size_bytes > left_bytes)
        return NULL;
    char *p = malloc(size_bytes + 8);
    live += p != NULL;
    return p ? p + 8 : NULL;
}

static void poor_free(void *p)
{
    live--;
    free((char *)p - 8);
}

static const berth_malloc_family poor = {
    .struct_size = sizeof(berth_malloc_family), .name = "poor", .malloc = poor_malloc, .free = poor_free};

static void a_poor_heap_is_enough(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&poor, &a), BERTH_OK);
    for (size_t alignment = 1; alignment <= 8192; alignment *= 2)
        for (size_t size = 1; size < 5000; size = size * 3 + 1) {
            void *p = NULL;
            berth_request request = BERTH_REQUEST_INIT;
            request.flags = size % 2 ? BERTH_ZEROED : 0;
            assert_int_equal(berth_allocate(a, size, alignment, &request, &p), BERTH_OK);
            assert_int_equal((uintptr_t)p % alignment, 0);
            assert_true(!(size % 2) || *(char *)p == 0);
            memset(p, 0xff, size);
            size_t known = 0;
            assert_int_equal(berth_allocated_size_slow(a, p, &known), BERTH_UNSUPPORTED);
            assert_int_equal(berth_deallocate(a, p, size, NULL), BERTH_OK);
        }
    assert_int_equal(live, 0);
    left_bytes = 100;
    void *p = (void *)1;
    assert_int_equal(berth_allocate(a, 1000, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "poor"));
    left_bytes = SIZE_MAX;
    berth_allocator_release(a);
}

static void *late; /* a heap that gives what was freed to nobody else yet */

static void late_free(void *p)
{
    late = p;
}

static void a_second_free_is_told(void **state)
{
    (void)state;
    berth_malloc_family family = poor;
    family.free = late_free;
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    void *p = take(a, 100);
    give(a, p);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    poor_free(late);
    berth_allocator_release(a);
}

static size_t usable(void *p)
{
    return malloc_usable_size(p);
}

static void sizes_come_from_the_heap(void **state)
{
    (void)state;
    const berth_malloc_family family = {.struct_size = sizeof family,
                                        .name = "c",
                                        .malloc = malloc,
                                        .free = free,
                                        .calloc = calloc,
                                        .usable_size = usable};
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    void *p = take(a, 1000);
    size_t size = 0;
    assert_int_equal(berth_allocated_size_slow(a, p, &size), BERTH_OK);
    assert_true(size >= 1000 && size < 1200);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_UNSUPPORTED);
    give(a, p);
    assert_int_equal(berth_deallocate(a, (char *)&size + 1, 0, NULL), BERTH_BAD_FREE);
    berth_allocator_release(a);
}

/* What the heap gave beyond what was asked for was never the program's: it is neither kept nor shown. */
static void a_block_grows_into_zeros(void **state)
{
    (void)state;
    const berth_malloc_family family = {
        .struct_size = sizeof family, .name = "c", .malloc = malloc, .free = free, .usable_size = usable};
    berth_allocator *adapter = NULL, *over[2] = {NULL, NULL};
    assert_int_equal(berth_adapter_create(&family, &adapter), BERTH_OK);
    assert_int_equal(berth_retry_create(adapter, NULL, &over[0]), BERTH_OK);
    berth_allocator *system = new_system();
    assert_int_equal(berth_retry_create(system, NULL, &over[1]), BERTH_OK);
    berth_allocator *const all[] = {adapter, over[0], over[1]};
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    for (size_t i = 0; i < BERTH_COUNT_OF(all); i++)
        for (size_t size = 1; size < 40; size++) {
            unsigned char *p = NULL, *q = NULL;
            assert_int_equal(berth_allocate(all[i], size, 16, NULL, (void **)&p), BERTH_OK);
            size_t room = 0;
            assert_int_equal(berth_allocated_size_slow(all[i], p, &room), BERTH_OK);
            memset(p, 7, room);
            assert_int_equal(berth_reallocate(all[i], p, 0, 1000, 16, &zeroed, (void **)&q), BERTH_OK);
            for (size_t k = 0; k < 1000; k++)
                assert_int_equal(q[k], k < size ? 7 : 0);
            give(all[i], q);
        }
    berth_allocator_release(over[0]);
    berth_allocator_release(over[1]);
    berth_allocator_release(adapter);
    berth_allocator_release(system);
}

static void bad_families_are_refused(void **state)
{
    (void)state;
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_adapter_create(NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    berth_malloc_family family = poor;
    family.free = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "free"));
    family = poor;
    family.struct_size = 8;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poor_heap_is_enough),    cmocka_unit_test(a_second_free_is_told),
        cmocka_unit_test(sizes_come_from_the_heap), cmocka_unit_test(a_block_grows_into_zeros),
        cmocka_unit_test(bad_families_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

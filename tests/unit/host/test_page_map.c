/* The page map: every page of a range is found, no other is, and a full heap changes nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/page_map.h"

static void *at(uintptr_t address)
{
    return (void *)address; /* never followed */
}

static berth__page_map *new_map(uint32_t page_log2)
{
    berth__page_map *map = berth__page_map_create();
    assert_int_equal((size_t)1 << map->page_log2, sysconf(_SC_PAGESIZE));
    map->page_log2 = page_log2;
    return map;
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        uintptr_t base;
        size_t size;
    } ranges[] = {
        {0x1000, 0x1000},
        {0x7f0000ff0000, 0x20000},          /* over the edge of a leaf */
        {0x7f0fff000000, (size_t)64 << 20}, /* over several leaves, and the edge of a middle table */
        {0xfffffffff000, 0x1000},           /* the last page there is */
        {0x555500000000, 0x1800},           /* ends inside a page */
    };
    berth__page_map *map = new_map(12);
    int marks[BERTH_COUNT_OF(ranges)];
    for (size_t i = 0; i < BERTH_COUNT_OF(ranges); i++)
        assert_int_equal(berth__page_map_set(map, at(ranges[i].base), ranges[i].size, &marks[i]), BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT_OF(ranges); i++) {
        for (uintptr_t p = ranges[i].base; p < ranges[i].base + ranges[i].size; p += 0x800)
            assert_ptr_equal(berth__page_map_find(map, at(p)), &marks[i]);
        assert_ptr_equal(berth__page_map_find(map, at(ranges[i].base + ranges[i].size - 1)), &marks[i]);
        assert_null(berth__page_map_find(map, at(ranges[i].base - 1)));
        assert_null(berth__page_map_find(map, at(berth__align_up(ranges[i].base + ranges[i].size, 4096))));
    }
    berth__page_map_clear(map, at(ranges[2].base), ranges[2].size);
    assert_null(berth__page_map_find(map, at(ranges[2].base + 4096)));
    assert_ptr_equal(berth__page_map_find(map, at(ranges[1].base)), &marks[1]);
    berth__page_map_destroy(map);
}

static void test_strange_addresses(void **state)
{
    (void)state;
    berth__page_map *map = new_map(12);
    assert_null(berth__page_map_find(map, NULL));
    assert_null(berth__page_map_find(map, at(UINTPTR_MAX)));
    assert_null(berth__page_map_find(map, at((uintptr_t)1 << 48)));
    assert_int_equal(berth__page_map_set(map, at((uintptr_t)1 << 48), 4096, map), BERTH_UNSUPPORTED);
    assert_int_equal(berth__page_map_set(map, at(0xfffffffff000), 8192, map), BERTH_UNSUPPORTED);
    assert_null(berth__page_map_find(map, at(0xfffffffff000)));
    berth__page_map_destroy(map);
    berth__page_map_destroy(NULL);
}

/* Pages of 64 KiB: the same tables reach four bits further. */
static void test_large_pages(void **state)
{
    (void)state;
    berth__page_map *map = new_map(16);
    assert_int_equal(berth__page_map_set(map, at(0x7f0000ff0000), 0x30000, map), BERTH_OK);
    assert_ptr_equal(berth__page_map_find(map, at(0x7f0000ff0000)), map);
    assert_ptr_equal(berth__page_map_find(map, at(0x7f000101ffff)), map);
    assert_null(berth__page_map_find(map, at(0x7f0001020000)));
    assert_null(berth__page_map_find(map, at(0x7f0000feffff)));
    assert_int_equal(berth__page_map_set(map, at((uintptr_t)1 << 51), 0x10000, map), BERTH_OK);
    assert_ptr_equal(berth__page_map_find(map, at((uintptr_t)1 << 51)), map);
    assert_int_equal(berth__page_map_set(map, at((uintptr_t)1 << 52), 0x10000, map), BERTH_UNSUPPORTED);
    berth__page_map_destroy(map);
}

/* Tags in the top byte: set and found under any of them. */
static void test_tagged_addresses(void **state)
{
    (void)state;
    berth__page_map *map = new_map(12);
    map->address_mask = UINTPTR_MAX >> 8;
    uintptr_t tag = (uintptr_t)0xb4 << 56;
    assert_int_equal(berth__page_map_set(map, at(0x7f0000000000 | tag), 0x2000, map), BERTH_OK);
    assert_ptr_equal(berth__page_map_find(map, at(0x7f0000000000)), map);
    assert_ptr_equal(berth__page_map_find(map, at(0x7f0000001fff | (uintptr_t)0xff << 56)), map);
    assert_null(berth__page_map_find(map, at(0x7f0000002000 | tag)));
    berth__page_map_clear(map, at(0x7f0000000000), 0x2000);
    assert_null(berth__page_map_find(map, at(0x7f0000000000 | tag)));
    berth__page_map_destroy(map);
}

static void test_full_heap(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (uint64_t n = 1;; n++) {
        berth__page_map *map = new_map(12);
        berth__heap_fail_at(n, false);
        berth_status status = berth__page_map_set(map, at(0x7f0fff000000), (size_t)32 << 20, map);
        berth__heap_fail_at(0, false);
        if (status != BERTH_OK) {
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
            assert_null(berth__page_map_find(map, at(0x7f0fff000000)));
        }
        berth__page_map_destroy(map);
        if (status == BERTH_OK) {
            assert_true(n > 3);
            break;
        }
    }
    assert_int_equal(berth__heap_live(), live);
}

enum { threads = 4, pages_each = 2000 };

static berth__page_map *shared;

static void *fill_some(void *context)
{
    uintptr_t mine = (uintptr_t)context;
    for (uintptr_t i = 0; i < pages_each; i++) {
        uintptr_t page = 0x7f0000000000 + (i * threads + mine) * 4096;
        if (berth__page_map_set(shared, at(page), 4096, at(mine + 1)) != BERTH_OK ||
            berth__page_map_find(shared, at(page)) != at(mine + 1))
            return at(1);
    }
    return NULL;
}

static void test_threads_share_leaves(void **state)
{
    (void)state;
    shared = new_map(12);
    pthread_t ids[threads];
    for (uintptr_t i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, fill_some, at(i)), 0);
    for (int i = 0; i < threads; i++) {
        void *failed = NULL;
        pthread_join(ids[i], &failed);
        assert_null(failed);
    }
    for (uintptr_t i = 0; i < threads * (uintptr_t)pages_each; i++)
        assert_ptr_equal(berth__page_map_find(shared, at(0x7f0000000000 + i * 4096)), at(i % threads + 1));
    berth__page_map_destroy(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),      cmocka_unit_test(test_strange_addresses),
        cmocka_unit_test(test_large_pages), cmocka_unit_test(test_tagged_addresses),
        cmocka_unit_test(test_full_heap),   cmocka_unit_test(test_threads_share_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

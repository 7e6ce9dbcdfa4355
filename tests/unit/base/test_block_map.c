/* The address map: finds what was put in, once, across growth, shards and threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/block_map.h"

enum { MANY = 5000 };

struct entry {
    berth__block_entry entry;
    int value;
};

static void finds_what_was_put_in(void **state)
{
    (void)state;
    berth__block_map map = {0};
    struct entry *entries = calloc(MANY, sizeof *entries), copy;
    assert_null(berth__block_map_take(&map, (void *)64));
    for (int i = 0; i < MANY; i++) {
        entries[i].entry.address = 64 * (uintptr_t)(i + 1);
        entries[i].value = i;
        assert_true(berth__block_map_put(&map, &entries[i].entry));
    }
    assert_int_equal(berth__block_map_count(&map), MANY);
    for (int i = 0; i < MANY; i++) {
        void *address = (void *)entries[i].entry.address;
        assert_true(berth__block_map_read(&map, address, &copy, sizeof copy));
        assert_int_equal(copy.value, i);
        assert_false(berth__block_map_read(&map, (char *)address + 1, &copy, sizeof copy));
    }
    void *copies = NULL;
    size_t count = 0;
    assert_true(berth__block_map_copy(&map, sizeof copy, &copies, &count));
    assert_int_equal(count, MANY);
    long sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((struct entry *)copies)[i].value;
    assert_int_equal(sum, (long)MANY * (MANY - 1) / 2);
    berth__heap_free(copies);
    for (int i = 0; i < MANY; i += 2) {
        void *address = (void *)entries[i].entry.address;
        assert_ptr_equal(berth__block_map_take(&map, address), &entries[i]);
        assert_null(berth__block_map_take(&map, address));
    }
    int left = 0;
    while (berth__block_map_take_any(&map))
        left++;
    assert_int_equal(left, MANY / 2);
    berth__block_map_finish(&map);
    free(entries);
}

static void lives_without_memory_to_grow(void **state)
{
    (void)state;
    berth__block_map map = {0};
    static struct entry entries[MANY];
    entries[0].entry.address = 64;
    berth__heap_fail_at(1, true);
    assert_false(berth__block_map_put(&map, &entries[0].entry));
    berth__heap_fail_at(0, false);
    struct entry first[256];
    for (uintptr_t i = 0; i < 256; i++) { /* every shard has buckets now */
        first[i].entry.address = 1 << 20 | i * 64;
        assert_true(berth__block_map_put(&map, &first[i].entry));
    }
    berth__heap_fail_at(1, true);
    for (uintptr_t i = 0; i < MANY; i++) {
        entries[i].entry.address = 64 * (i + 1) | (uintptr_t)1 << 30;
        assert_true(berth__block_map_put(&map, &entries[i].entry));
    }
    for (uintptr_t i = 0; i < MANY; i++)
        assert_ptr_equal(berth__block_map_take(&map, (void *)entries[i].entry.address), &entries[i]);
    void *copies = NULL;
    size_t count = 1;
    assert_false(berth__block_map_copy(&map, sizeof(struct entry), &copies, &count));
    berth__heap_fail_at(0, false);
    berth__block_map_finish(&map);
}

struct worker {
    berth__block_map *map;
    uintptr_t base;
};

static void *churn(void *context)
{
    struct worker *w = context;
    struct entry entries[64];
    for (int round = 0; round < 200; round++) {
        for (uintptr_t i = 0; i < 64; i++) {
            entries[i].entry.address = w->base + i * 64;
            assert_true(berth__block_map_put(w->map, &entries[i].entry));
        }
        for (uintptr_t i = 0; i < 64; i++)
            assert_ptr_equal(berth__block_map_take(w->map, (void *)(w->base + i * 64)), &entries[i]);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    berth__block_map map = {0};
    pthread_t threads[4];
    struct worker workers[4];
    for (uintptr_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){&map, (i + 1) << 24};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(berth__block_map_count(&map), 0);
    berth__block_map_finish(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_put_in),
        cmocka_unit_test(lives_without_memory_to_grow),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

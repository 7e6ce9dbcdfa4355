/* The map of pointers: what goes in comes out once, from many threads, and memory may run out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pointers.h"

enum { KEYS = 1000, THREADS = 4 };
static char keys[THREADS][KEYS];
static berth__pointers map;

static void *put_and_take(void *context)
{
    char *mine = context;
    uintptr_t good = 0;
    for (int i = 0; i < KEYS; i++)
        good += berth__pointers_put(&map, &mine[i], &mine[KEYS - 1 - i], BERTH__RANK_DEVICE);
    for (int i = 0; i < KEYS; i++)
        good += berth__pointers_take(&map, &mine[i], BERTH__RANK_DEVICE) == &mine[KEYS - 1 - i];
    for (int i = 0; i < KEYS; i++)
        good += berth__pointers_take(&map, &mine[i], BERTH__RANK_DEVICE) == NULL;
    return (void *)good;
}

static void everything_comes_out_once(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_take, keys[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        assert_int_equal((uintptr_t)good, 3 * KEYS);
    }
    assert_true(berth__heap_live() == live);
}

/* Whatever lies before it in its bucket, a key brings its own value. */
static void keys_are_not_taken_for_others(void **state)
{
    (void)state;
    for (int i = KEYS - 1; i >= 0; i--)
        assert_true(berth__pointers_put(&map, &keys[0][i], &keys[1][i], BERTH__RANK_DEVICE));
    for (int i = KEYS - 1; i >= 0; i -= 2)
        assert_ptr_equal(berth__pointers_take(&map, &keys[0][i], BERTH__RANK_DEVICE), &keys[1][i]);
    for (int i = KEYS - 2; i >= 0; i -= 2)
        assert_ptr_equal(berth__pointers_take(&map, &keys[0][i], BERTH__RANK_DEVICE), &keys[1][i]);
}

static void no_memory_changes_nothing(void **state)
{
    (void)state;
    berth__heap_fail_at(1, false);
    assert_false(berth__pointers_put(&map, keys[0], keys[1], BERTH__RANK_DEVICE));
    assert_null(berth__pointers_take(&map, keys[0], BERTH__RANK_DEVICE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_out_once),
        cmocka_unit_test(keys_are_not_taken_for_others),
        cmocka_unit_test(no_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

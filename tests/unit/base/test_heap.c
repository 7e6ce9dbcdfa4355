/* The door to the C heap: what is handed out is counted, and the request that is to fail is the one that does. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void *ask(int way)
{
    switch (way) {
    case 0:
        return berth__heap_alloc(10);
    case 1:
        return berth__heap_zalloc(2, 5);
    case 2:
        return berth__heap_realloc(NULL, 10);
    default:
        return berth__heap_aligned(10, 64);
    }
}

static void test_the_nth_request_fails(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (int way = 0; way < 4; way++) {
        berth__heap_fail_at(2, false);
        void *first = ask(way), *second = ask(way), *third = ask(way);
        assert_non_null(first);
        assert_null(second);
        assert_non_null(third);
        assert_int_equal(berth__heap_fail_left(), 0);
        assert_int_equal(berth__heap_live(), live + 2);
        berth__heap_free(first);
        berth__heap_free(third);
        berth__heap_free(NULL);
        assert_int_equal(berth__heap_live(), live);
    }
}

static void test_and_all_after_it_if_asked(void **state)
{
    (void)state;
    berth__heap_fail_at(1, true);
    for (int way = 0; way < 4; way++)
        assert_null(ask(way));
    assert_int_equal(berth__heap_fail_left(), 1);
    berth__heap_fail_at(0, false);
    void *p = ask(0);
    assert_non_null(p);
    berth__heap_free(p);
}

/* A block that is moved is still one; nothing at all is a block too, as malloc may have it. */
static void test_moving_and_nothing(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    void *p = berth__heap_alloc(0);
    assert_non_null(p);
    p = berth__heap_realloc(p, 100000);
    assert_non_null(p);
    berth__heap_fail_at(1, false);
    assert_null(berth__heap_realloc(p, 200000));
    assert_int_equal(berth__heap_live(), live + 1);
    berth__heap_free(p);
    assert_int_equal(berth__heap_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nth_request_fails),
        cmocka_unit_test(test_and_all_after_it_if_asked),
        cmocka_unit_test(test_moving_and_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

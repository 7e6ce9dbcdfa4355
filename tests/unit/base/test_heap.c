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

enum { LARGE = 4 << 20 };

static void test_a_scope_gives_freed_blocks_again(void **state)
{
    (void)state;
    berth__heap_scope scope;
    berth__heap_scope_begin(&scope);
    void *first = berth__heap_alloc(LARGE), *second = berth__heap_alloc(LARGE / 2);
    berth__heap_free(first);
    berth__heap_free(second);
    assert_int_equal(scope.kept_count, 2);
    assert_ptr_equal(berth__heap_alloc(LARGE - 5000), first); /* a little smaller is as good */
    void *zeroed = berth__heap_zalloc(LARGE / 2, 1);
    assert_ptr_not_equal(zeroed, second); /* pages that nobody touches are had for nothing */
    assert_int_equal(((char *)zeroed)[LARGE / 4], 0);
    berth__heap_free(zeroed);
    berth__heap_free(first);
    berth__heap_scope_end(&scope);
    assert_int_equal(scope.kept_count, 0);
    assert_int_equal(scope.kept_bytes, 0);
}

/* Whatever is asked for in whatever order: used and kept together are never more than was used at once. */
static void test_what_a_scope_keeps_makes_nothing_larger(void **state)
{
    (void)state;
    uint64_t random = 1, live = berth__heap_live();
    void *blocks[48] = {0};
    berth__heap_scope scope;
    berth__heap_scope_begin(&scope);
    for (int round = 0; round < 5000; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        void **block = &blocks[(random >> 33) % 48];
        const size_t bytes = (size_t)(random >> 40) % LARGE;
        if (*block && random >> 63) {
            void *moved = berth__heap_realloc(*block, bytes);
            *block = moved ? moved : *block;
        } else if (*block) {
            berth__heap_free(*block);
            *block = NULL;
        } else {
            *block = random >> 62 & 1 ? berth__heap_alloc(bytes) : berth__heap_zalloc(bytes, 1);
        }
        assert_true(scope.used_bytes + scope.kept_bytes <= scope.most_bytes);
        assert_true(scope.kept_count <= BERTH__HEAP_KEPT);
    }
    for (int k = 0; k < 48; k++)
        berth__heap_free(blocks[k]);
    assert_int_equal(scope.used_bytes, 0);
    berth__heap_scope_trim(LARGE);
    assert_true(scope.kept_bytes <= LARGE);
    berth__heap_scope_end(&scope);
    assert_int_equal(berth__heap_live(), live);
}

/* The inner one has what it keeps for itself; what was asked for before a scope may be freed in it. */
static void test_scopes_nest(void **state)
{
    (void)state;
    berth__heap_scope outer, inner;
    void *before = berth__heap_alloc(LARGE);
    berth__heap_scope_begin(&outer);
    berth__heap_free(before);
    assert_int_equal(outer.kept_count, 0); /* it was never counted */
    void *p = berth__heap_alloc(LARGE);
    berth__heap_free(p);
    berth__heap_scope_begin(&inner);
    void *q = berth__heap_alloc(LARGE);
    assert_ptr_not_equal(p, q);
    berth__heap_free(q);
    berth__heap_scope_end(&inner);
    assert_int_equal(outer.kept_count, 1);
    assert_ptr_equal(berth__heap_alloc(LARGE), p);
    berth__heap_free(p);
    berth__heap_scope_end(&outer);
    berth__heap_scope_trim(0); /* none: nothing to do */
    berth__heap_free(berth__heap_alloc(LARGE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nth_request_fails),
        cmocka_unit_test(test_and_all_after_it_if_asked),
        cmocka_unit_test(test_moving_and_nothing),
        cmocka_unit_test(test_a_scope_gives_freed_blocks_again),
        cmocka_unit_test(test_what_a_scope_keeps_makes_nothing_larger),
        cmocka_unit_test(test_scopes_nest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

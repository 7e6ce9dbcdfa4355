/* Call stacks: equal ones are one object, different ways to a place are told apart, also from the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/stack.h"

#define KEPT __attribute__((noinline))

KEPT static const berth__stack *leaf(void)
{
    const berth__stack *stack = berth__stack_here();
    __asm__ volatile("" ::: "memory");
    return stack;
}

KEPT static const berth__stack *left(int depth)
{
    const berth__stack *stack = depth ? left(depth - 1) : leaf();
    __asm__ volatile("" ::: "memory");
    return stack;
}

/* As left, with frames of the same size: the stack pointer does not tell them apart. */
KEPT static const berth__stack *right(int depth)
{
    const berth__stack *stack = depth ? right(depth - 1) : leaf();
    __asm__ volatile("nop" ::: "memory"); /* so that the compiler does not make one of both */
    return stack;
}

static void equal_stacks_are_one(void **state)
{
    (void)state;
    const berth__stack *first = NULL;
    for (int i = 0; i < 100; i++) {
        const berth__stack *stack = left(3);
        assert_non_null(stack);
        first = first ? first : stack;
        assert_ptr_equal(stack, first);
    }
    assert_true(first->depth >= 5);
}

static void ways_are_told_apart(void **state)
{
    (void)state;
    const berth__stack *(*const ways[2])(int depth) = {left, right};
    const berth__stack *seen[2] = {NULL, NULL};
    for (int i = 0; i < 200; i++) {
        const berth__stack *stack = ways[i % 2](2);
        seen[i % 2] = seen[i % 2] ? seen[i % 2] : stack;
        assert_ptr_equal(stack, seen[i % 2]);
    }
    assert_ptr_not_equal(seen[0], seen[1]);
    /* Both end in leaf and begin in here; the frames in between differ. */
    assert_int_equal(seen[0]->depth, seen[1]->depth);
    assert_ptr_equal(seen[0]->frames[0], seen[1]->frames[0]);
    for (int i = 1; i <= 3; i++)
        assert_ptr_not_equal(seen[0]->frames[i], seen[1]->frames[i]);
    assert_ptr_equal(seen[0]->frames[4], seen[1]->frames[4]);
}

static void deep_ones_are_cut(void **state)
{
    (void)state;
    const berth__stack *stack = left(100);
    assert_int_equal(stack->depth, BERTH__STACK_DEPTH);
    assert_ptr_equal(left(100), stack);
}

static void it_has_words(void **state)
{
    (void)state;
    char text[512], tiny[8];
    berth__stack_format(left(1), text, sizeof text);
    assert_non_null(strstr(text, " < "));
    assert_non_null(strstr(text, "(leaf+0x")); /* static, so nothing that the program exports */
    assert_non_null(strstr(text, "(left"));
    berth__stack_format(left(1), tiny, sizeof tiny); /* cut, not overrun */
    assert_true(strlen(tiny) < sizeof tiny);
    berth__stack_format(NULL, text, sizeof text);
    assert_string_equal(text, "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stacks_are_one),
        cmocka_unit_test(ways_are_told_apart),
        cmocka_unit_test(deep_ones_are_cut),
        cmocka_unit_test(it_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

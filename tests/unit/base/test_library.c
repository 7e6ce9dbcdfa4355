/* Run-time loading: what is there, what is not, and what to say about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/library.h"

typedef struct math {
    double (*cos)(double);
    int (*no_such_function)(void);
} math;

static void a_library_that_is_there(void **state)
{
    (void)state;
    static const char *const names[] = {"libno-such-thing.so.9", "libm.so.6", NULL};
    const berth__symbol symbols[] = {{"cos", offsetof(math, cos), false},
                                     {"no_such_function", offsetof(math, no_such_function), true}};
    char why[200] = "";
    math m = {0};
    unsetenv("BERTH_TEST_LIBRARY");
    void *library = berth__library_open("BERTH_TEST_LIBRARY", names, why, sizeof why);
    if (!library)
        skip(); /* another C library */
    assert_true(berth__library_symbols(library, symbols, 2, &m, why, sizeof why));
    assert_true(m.cos(0.0) == 1.0);
    assert_null(m.no_such_function);
    const berth__symbol needed[] = {{"no_such_function", offsetof(math, no_such_function), false}};
    assert_false(berth__library_symbols(library, needed, 1, &m, why, sizeof why));
    assert_non_null(strstr(why, "no_such_function"));
}

static void a_library_that_is_not(void **state)
{
    (void)state;
    static const char *const names[] = {"libno-such-thing.so.9", NULL}, *const there[] = {"libc.so.6", NULL};
    char why[200] = "";
    unsetenv("BERTH_TEST_LIBRARY");
    assert_null(berth__library_open("BERTH_TEST_LIBRARY", names, why, sizeof why));
    assert_non_null(strstr(why, "libno-such-thing.so.9 is not installed"));
    /* A name from the environment replaces all others, also when it is wrong. */
    setenv("BERTH_TEST_LIBRARY", "/nowhere/lib.so", 1);
    assert_null(berth__library_open("BERTH_TEST_LIBRARY", there, why, sizeof why));
    assert_non_null(strstr(why, "BERTH_TEST_LIBRARY names /nowhere/lib.so"));
    unsetenv("BERTH_TEST_LIBRARY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_there),
        cmocka_unit_test(a_library_that_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

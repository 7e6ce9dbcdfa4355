/* Statuses have names and words; the last failure is kept per thread with its driver's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static void every_status_has_a_name_and_words(void **state)
{
    (void)state;
#define EXPECT(name, value, words)                                        \
    assert_string_equal(berth_status_name(BERTH_##name), "BERTH_" #name); \
    assert_string_equal(berth_status_words(BERTH_##name), words);
    BERTH_STATUS_LIST(EXPECT)
#undef EXPECT
    assert_string_equal(berth_status_name((berth_status)999), "BERTH_?");
}

static void a_failure_keeps_its_words(void **state)
{
    (void)state;
    assert_int_equal(berth__fail(BERTH_NOT_FOUND, "no allocator named %s", "x"), BERTH_NOT_FOUND);
    assert_string_equal(berth_last_error()->message, "no allocator named x");
    assert_int_equal(berth_last_error()->status, BERTH_NOT_FOUND);
    berth__fail_driver(BERTH_DEVICE_ERROR, 700, "illegal address", "copy of %d bytes", 3);
    assert_int_equal(berth_last_error()->driver_code, 700);
    assert_string_equal(berth_last_error()->driver_words, "illegal address");
    berth__fail(BERTH_IO, "again: %s", berth_last_error()->message);
    assert_string_equal(berth_last_error()->message, "again: copy of 3 bytes");
    assert_string_equal(berth_last_error()->driver_words, "");
    berth_clear_last_error();
    assert_int_equal(berth_last_error()->status, BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_words),
        cmocka_unit_test(a_failure_keeps_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

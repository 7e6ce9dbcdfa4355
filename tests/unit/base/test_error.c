/* Statuses have names and words; the last failure is kept per thread with its driver's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static void users_have_words_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "heap %d is full", 3),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_string_equal(berth_last_error()->message, "heap 3 is full");
    assert_int_equal(berth_last_error()->status, BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_fail(BERTH_OK, "nothing"), BERTH_OK);
    assert_string_equal(berth_last_error()->message, "heap 3 is full");
    assert_int_equal(berth_fail(BERTH_IO, NULL), BERTH_IO);
    assert_string_equal(berth_last_error()->message, berth_status_words(BERTH_IO));
}

static void devices_have_their_drivers_words_too(void **state)
{
    (void)state;
    assert_int_equal(berth_fail_driver(BERTH_DEVICE_LOST, -4, "GONE", "while copying %d bytes", 3),
                     BERTH_DEVICE_LOST);
    assert_string_equal(berth_last_error()->message, "while copying 3 bytes");
    assert_string_equal(berth_last_error()->driver_words, "GONE");
    assert_int_equal(berth_last_error()->driver_code, -4);
    assert_int_equal(berth_fail_driver(BERTH_OK, 1, "x", "nothing"), BERTH_OK);
    assert_int_equal(berth_last_error()->driver_code, -4);
    assert_int_equal(berth_fail_driver(BERTH_IO, 7, NULL, NULL), BERTH_IO);
    assert_string_equal(berth_last_error()->message, berth_status_words(BERTH_IO));
    assert_string_equal(berth_last_error()->driver_words, "");
    assert_int_equal(berth_last_error()->driver_code, 7);
}

/* What stands in the last error when a user's code has said nothing is another failure's. */
static void silence_is_told_apart_from_old_words(void **state)
{
    (void)state;
    berth__fail(BERTH_IO, "an old one");
    uint64_t before = berth__failures();
    assert_int_equal(berth__fail_unless_said(BERTH_IO, before, "mine", "sing"), BERTH_IO);
    assert_string_equal(berth_last_error()->message,
                        "mine failed to sing: a file could not be read or written");
    before = berth__failures();
    berth_fail(BERTH_IO, "a new one");
    assert_int_equal(berth__fail_unless_said(BERTH_IO, before, "mine", "sing"), BERTH_IO);
    assert_string_equal(berth_last_error()->message, "a new one");
    assert_int_equal(berth__fail_unless_said(BERTH_BUSY, before, "mine", "sing"),
                     BERTH_BUSY); /* of another status */
    assert_int_equal(berth_last_error()->status, BERTH_BUSY);
}

/* How many bytes an error's line leaves on stderr. */
static long heard_bytes(berth_log_level threshold)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    berth_log_set(NULL, NULL, threshold);
    berth__log(BERTH_LOG_ERROR, "a line");
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    fclose(file);
    return size;
}

static void the_log_can_be_silenced(void **state)
{
    (void)state;
    assert_int_equal(heard_bytes(BERTH_LOG_NONE), 0);
    assert_int_equal(heard_bytes(BERTH_LOG_WARNING), strlen("berth: error: a line\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_words),
        cmocka_unit_test(a_failure_keeps_its_words),
        cmocka_unit_test(users_have_words_of_their_own),
        cmocka_unit_test(devices_have_their_drivers_words_too),
        cmocka_unit_test(silence_is_told_apart_from_old_words),
        cmocka_unit_test(the_log_can_be_silenced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

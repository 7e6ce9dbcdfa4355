/* What the checks of a device are written with: assertions that leave the check, and checks that say that they do not
 * apply. No library stands behind it, since the checks are part of an installed program. */
#ifndef BERTH_TESTS_DEVICES_HARNESS_H
#define BERTH_TESTS_DEVICES_HARNESS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "berth/device_ops.h"

typedef struct device_check {
    const char *title;
    void (*run)(void);
} device_check;

/* The suite, up to a row without title; the device that it runs on. */
extern const device_check device_checks[];
extern berth_device device;
extern berth_device_info info;

typedef enum check_verdict { CHECK_HOLDS, CHECK_FAILS, CHECK_SKIPPED } check_verdict;

/* Finds out what the device has; false, with words kept, if it is not there. */
bool checks_begin(berth_device on);
/* Runs one; `words` gets why it failed or was left out, "" otherwise. */
check_verdict check_run(const device_check *check, char *words, size_t room);

/* Leave the check that is running. */
_Noreturn void check_fail(const char *file, int line, const char *format, ...) BERTH_PRINTF(3, 4);
_Noreturn void check_skip(const char *why);

#define assert_true(condition) \
    ((condition) ? (void)0 : check_fail(__FILE__, __LINE__, "%s does not hold", #condition))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_string_not_equal(a, b) assert_true(strcmp(a, b) != 0)
#define assert_memory_equal(a, b, size) check_bytes(a, b, size, #a, #b, __FILE__, __LINE__)
#define assert_int_equal(a, b) check_equal((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__)

/* Statuses are told by name where the expected side is one. */
static inline void check_equal(long long got, long long expected, const char *what, const char *right,
                               const char *file, int line)
{
    if (got == expected)
        return;
    if (strncmp(right, "BERTH_", 6) == 0)
        check_fail(file, line, "%s answers %s, not %s (%s)", what, berth_status_name((berth_status)got),
                   right, berth_last_error()->message);
    check_fail(file, line, "%s is %lld, not %lld", what, got, expected);
}

static inline void check_bytes(const void *a, const void *b, size_t size, const char *what, const char *right,
                               const char *file, int line)
{
    for (size_t i = 0; i < size; i++) {
        unsigned x = ((const unsigned char *)a)[i], y = ((const unsigned char *)b)[i];
        if (x != y)
            check_fail(file, line, "byte %zu of %zu is 0x%02x in %s, 0x%02x in %s", i, size, x, what, y,
                       right);
    }
}

#endif

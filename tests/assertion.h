/* For tests that damage something and see that an assertion notices: link with -Wl,--wrap=berth__assert_failed. */
#ifndef BERTH_TESTS_ASSERTION_H
#define BERTH_TESTS_ASSERTION_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool assertion_is_expected;        /* else a failed one ends the test as everywhere */
static const char *assertion_that_failed; /* what the first one says that was expected */

bool __real_berth__assert_failed(const char *what, const char *why, const char *file, int line);
bool __wrap_berth__assert_failed(const char *what, const char *why, const char *file, int line);
bool __wrap_berth__assert_failed(const char *what, const char *why, const char *file, int line)
{
    if (!assertion_is_expected)
        return __real_berth__assert_failed(what, why, file, line);
    if (!assertion_that_failed)
        assertion_that_failed = why;
    return false;
}

static inline void assertion_expect(void)
{
    assertion_is_expected = true;
    assertion_that_failed = NULL;
}

/* Whether one failed since, the first of them with `words`. In release builds, which have no such checks, always. */
static inline bool assertion_came(const char *words)
{
    assertion_is_expected = false;
#ifdef NDEBUG
    (void)words;
    return true;
#else
    return assertion_that_failed && strstr(assertion_that_failed, words);
#endif
}

#endif

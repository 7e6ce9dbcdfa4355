/* The thread's last failure: status, words, and the driver's own. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local berth_error last_error = {.struct_size = sizeof(berth_error)};
/* Read by core/answer.h too, on every allocation of a user's. */
extern _Thread_local uint64_t berth__failure_count;
_Thread_local uint64_t berth__failure_count; /* how many words were kept on this thread */

const char *berth_status_name(berth_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, words) \
    case BERTH_##name:                  \
        return "BERTH_" #name;
        BERTH_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "BERTH_?";
}

const char *berth_status_words(berth_status status)
{
    switch (status) {
#define STATUS_WORDS(name, value, words) \
    case BERTH_##name:                   \
        return words;
        BERTH_STATUS_LIST(STATUS_WORDS)
#undef STATUS_WORDS
    }
    return "not a berth status";
}

const berth_error *berth_last_error(void)
{
    return &last_error;
}

void berth_clear_last_error(void)
{
    memset(&last_error, 0, sizeof last_error);
    last_error.struct_size = sizeof last_error;
}

static berth_status error_keep(berth_status status, int64_t driver_code, const char *driver_words,
                               const char *format, va_list args)
{
    /* Formatted aside first: an argument may be the old message itself. */
    char message[sizeof last_error.message];
    vsnprintf(message, sizeof message, format, args);
    snprintf(last_error.driver_words, sizeof last_error.driver_words, "%s", driver_words ? driver_words : "");
    memcpy(last_error.message, message, sizeof message);
    last_error.status = status;
    last_error.driver_code = driver_code;
    berth__failure_count++;
    return status;
}

uint64_t berth__failures(void)
{
    return berth__failure_count;
}

berth_status berth_fail(berth_status status, const char *format, ...)
{
    if (!status)
        return BERTH_OK;
    va_list args;
    va_start(args, format);
    if (format)
        error_keep(status, 0, NULL, format, args);
    else
        (void)berth__fail(status, "%s", berth_status_words(status));
    va_end(args);
    return status;
}

berth_status berth_fail_driver(berth_status status, int64_t driver_code, const char *driver_words,
                               const char *format, ...)
{
    if (!status)
        return BERTH_OK;
    va_list args;
    va_start(args, format);
    if (format)
        error_keep(status, driver_code, driver_words, format, args);
    else
        (void)berth__fail_driver(status, driver_code, driver_words, "%s", berth_status_words(status));
    va_end(args);
    return status;
}

berth_status berth__fail_unless_said(berth_status status, uint64_t before, const char *name, const char *what)
{
    if (berth__failure_count == before || last_error.status != status)
        (void)berth__fail(status, "%s failed to %s: %s", name, what, berth_status_words(status));
    return status;
}

#undef berth__fail
berth_status berth__fail(berth_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_keep(status, 0, NULL, format, args);
    va_end(args);
    return status;
}

#undef berth__fail_driver
berth_status berth__fail_driver(berth_status status, int64_t driver_code, const char *driver_words,
                                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_keep(status, driver_code, driver_words, format, args);
    va_end(args);
    return status;
}

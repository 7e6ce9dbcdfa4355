/* Runs the checks of a device, one at a time. */
#include "harness.h"

#include <stdarg.h>

static jmp_buf leave;
static char said[1024];

void check_fail(const char *file, int line, const char *format, ...)
{
    const char *base = strrchr(file, '/');
    int length = snprintf(said, sizeof said, "%s:%d: ", base ? base + 1 : file, line);
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the line above has begun it */
    vsnprintf(said + length, sizeof said - (size_t)length, format, arguments);
    va_end(arguments);
    longjmp(leave, CHECK_FAILS);
}

void check_skip(const char *why)
{
    snprintf(said, sizeof said, "%s", why);
    longjmp(leave, CHECK_SKIPPED);
}

check_verdict check_run(const device_check *check, char *words, size_t room)
{
    said[0] = '\0';
    int left = setjmp(leave);
    if (left == 0)
        check->run();
    snprintf(words, room, "%s", said);
    return (check_verdict)left;
}

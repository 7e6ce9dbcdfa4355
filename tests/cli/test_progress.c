/* The line that says how far long work is, with a terminal that the test reads and a clock that it turns. */
#include "cli/progress.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static long now_ms = 5000;

/* Stands before the one of libc. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    t->tv_sec = now_ms / 1000;
    t->tv_nsec = now_ms % 1000 * 1000000;
    return 0;
}

/* Standard error goes to `file` until errors_return. */
static int kept_errors;

static void errors_to(int file)
{
    fflush(stderr);
    kept_errors = dup(STDERR_FILENO);
    assert_true(kept_errors >= 0 && dup2(file, STDERR_FILENO) >= 0);
}

static void errors_return(void)
{
    fflush(stderr);
    assert_true(dup2(kept_errors, STDERR_FILENO) >= 0);
    close(kept_errors);
}

/* What has come so far: up to a mark, since a terminal may pass bytes on a little later. The caller frees it. */
static char *told(int from)
{
    char text[512];
    size_t length = 0;
    fputc('|', stderr);
    fflush(stderr);
    while (length < sizeof text && read(from, &text[length], 1) == 1 && text[length] != '|')
        length++;
    return strndup(text, length);
}

/* Both ends of a terminal that passes bytes on as they are. */
static void open_terminal(int *outside, int *inside)
{
    struct termios plain;
    *outside = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*outside >= 0 && grantpt(*outside) == 0 && unlockpt(*outside) == 0);
    *inside = open(ptsname(*outside), O_RDWR | O_NOCTTY);
    assert_true(*inside >= 0 && tcgetattr(*inside, &plain) == 0);
    cfmakeraw(&plain);
    assert_int_equal(tcsetattr(*inside, TCSANOW, &plain), 0);
}

static void test_a_terminal_sees_long_work(void **state)
{
    (void)state;
    int outside, inside;
    cli_progress p;
    open_terminal(&outside, &inside);
    errors_to(inside);
    cli_progress_begin(&p, "reading it");
    cli_progress_show(&p, 1, 10);
    now_ms += 490;
    cli_progress_show(&p, 2, 10);
    char *early = told(outside);
    now_ms += 20;
    cli_progress_show(&p, 4, 10);
    char *first = told(outside);
    now_ms += 90;
    cli_progress_show(&p, 5, 10);
    char *soon = told(outside);
    now_ms += 20;
    cli_progress_show(&p, 70000, 0); /* how much there is is not known */
    char *second = told(outside);
    now_ms += 110;
    cli_progress_show(&p, 12, 10);
    char *beyond = told(outside);
    cli_progress_end(&p);
    char *end = told(outside);
    cli_progress_end(&p);
    char *again = told(outside);
    errors_return();
    assert_string_equal(early, "");
    assert_string_equal(first, "\r\033[Kreading it: 40 %");
    assert_string_equal(soon, "");
    assert_string_equal(second, "\r\033[Kreading it: 70000");
    assert_string_equal(beyond, "\r\033[Kreading it: 100 %");
    assert_string_equal(end, "\r\033[K");
    assert_string_equal(again, "");
    char *all[] = {early, first, soon, second, beyond, end, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    close(inside);
    close(outside);
}

static void test_short_work_and_files_see_nothing(void **state)
{
    (void)state;
    int outside, inside, pipe_ends[2];
    cli_progress p;
    open_terminal(&outside, &inside);
    assert_int_equal(pipe(pipe_ends), 0);
    errors_to(inside);
    cli_progress_begin(&p, "reading it");
    now_ms += 400;
    cli_progress_show(&p, 9, 10);
    cli_progress_end(&p);
    char *quick = told(outside);
    errors_return();
    errors_to(pipe_ends[1]);
    cli_progress_begin(&p, "reading it");
    now_ms += 4000;
    cli_progress_show(&p, 9, 10);
    cli_progress_end(&p);
    char *piped = told(pipe_ends[0]);
    errors_return();
    assert_string_equal(quick, "");
    assert_string_equal(piped, "");
    free(quick);
    free(piped);
    close(inside);
    close(outside);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_terminal_sees_long_work),
        cmocka_unit_test(test_short_work_and_files_see_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Writing a trace where the surroundings fail: the file cannot grow, is none, or belongs to the parent. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/trace.h"

static char path[64];
static int closed_twice;

/* In the place of the C library's: a descriptor that is not open may be another thread's in the next moment. */
int close(int file)
{
    long answer = syscall(SYS_close, file);
    if (answer != 0 && errno == EBADF)
        closed_twice++;
    return (int)answer;
}

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_writer_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static berth_trace *begin(bool times_given)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    berth_trace *t = NULL;
    options.times_given = times_given;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    return t;
}

static void put(berth_trace *t, uint64_t address)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = BERTH_TRACE_ALLOC;
    e.thread = 3;
    e.address = address;
    e.size_bytes = address;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
}

static uint64_t count_events(void)
{
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    uint64_t count = berth_trace_event_count(r);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
    return count;
}

static void test_a_flush_tells_that_the_disk_is_full(void **state)
{
    (void)state;
    berth_trace *t = begin(true);
    signal(SIGXFSZ, SIG_IGN);
    for (uint64_t i = 1; i <= 1000; i++)
        put(t, i << 20);
    limit_files(5000);
    assert_int_equal(berth_trace_flush(t), BERTH_IO);
    limit_files(0);
    berth_trace_release(t);
    assert_int_equal(berth_trace_flush(NULL), BERTH_INVALID_ARGUMENT);
}

static void test_a_flush_leaves_a_trace_that_goes_on(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        berth_trace *t = begin(given);
        uint32_t text;
        assert_int_equal(berth_trace_flush(t), BERTH_OK);
        put(t, 4096);
        assert_int_equal(berth_trace_define_text(t, "one", 3, &text), BERTH_OK);
        assert_int_equal(berth_trace_flush(t), BERTH_OK);
        assert_int_equal(count_events(), 1);
        assert_int_equal(berth_trace_flush(t), BERTH_OK);
        put(t, 8192);
        assert_int_equal(berth_trace_flush(t), BERTH_OK);
        assert_int_equal(count_events(), 2);
        put(t, 4096 * 3);
        berth_trace_release(t);
        assert_int_equal(count_events(), 3);
    }
}

/* Neither killed by SIGXFSZ nor silent. */
static void test_a_limit_on_files_is_a_status(void **state)
{
    (void)state;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    berth_trace *t = begin(false);
    e.kind = BERTH_TRACE_MARK;
    signal(SIGXFSZ, SIG_DFL);
    limit_files(100000);
    berth_status status = BERTH_OK;
    for (int i = 0; i < 200000 && !status; i++)
        status = berth_trace_write(t, &e);
    assert_int_equal(status, BERTH_IO);
    assert_int_equal(berth_trace_flush(t), BERTH_IO);
    limit_files(0);
    berth_trace_release(t);
}

static void test_what_is_no_file_is_closed_once(void **state)
{
    (void)state;
    berth_trace *t;
    closed_twice = 0;
    assert_int_equal(berth_trace_create("/dev/null", NULL, &t), BERTH_IO);
    assert_null(t);
    assert_int_equal(closed_twice, 0);
}

static void test_a_definition_that_failed_is_not_there(void **state)
{
    (void)state;
    berth_trace *t = begin(false);
    uint32_t number;
    limit_files(8192);
    assert_int_equal(berth_trace_define_text(t, "lost", 4, &number), BERTH_IO);
    assert_int_equal(berth_trace_define_text(t, "lost", 4, &number), BERTH_IO);
    assert_int_equal(number, 0);
    limit_files(0);
    berth_trace_release(t);
}

static void test_a_child_defines_nothing(void **state)
{
    (void)state;
    berth_trace *t = begin(false);
    berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
    assert_int_equal(berth_trace_define_process(t, 0, &p), BERTH_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(berth_trace_define_process(t, 1, &p) == BERTH_BUSY ? 0 : 1);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    berth_trace_release(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_flush_tells_that_the_disk_is_full, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_flush_leaves_a_trace_that_goes_on, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_limit_on_files_is_a_status, make_path, remove_path),
        cmocka_unit_test(test_what_is_no_file_is_closed_once),
        cmocka_unit_test_setup_teardown(test_a_definition_that_failed_is_not_there, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_child_defines_nothing, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A file that somebody writes is not begun anew, whoever it is and however the writer ends. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "trace/reader.h"
#include "trace/writer.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_busy_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static berth_status begin(bool given, berth_trace **out)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = given;
    return berth_trace_create(path, &options, out);
}

static bool write_one(berth_trace *t)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.thread = t->times_given ? 0 : BERTH_TRACE_CALLER;
    return berth_trace_write(t, &e) == BERTH_OK;
}

static uint64_t count_written(void)
{
    berth_trace_reader_options options = BERTH_TRACE_READER_OPTIONS_INIT;
    berth_trace_reader *r = NULL;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t n = 0;
    assert_int_equal(berth_trace_reader_open(path, &options, &r), BERTH_OK);
    while (berth_trace_next(r, &e) == BERTH_OK)
        n++;
    berth_trace_reader_destroy(r);
    return n;
}

/* A process that writes one event and then waits to be told: `tell` is closed, or it is killed. */
struct other {
    pid_t pid;
    int tell;
};

static struct other start_other(bool given)
{
    int to[2], from[2];
    char byte;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        berth_trace *t = NULL;
        close(to[1]);
        bool ok = begin(given, &t) == BERTH_OK && write_one(t) && write(from[1], "r", 1) == 1;
        ok = ok && read(to[0], &byte, 1) == 0;
        ok = ok && write_one(t); /* into a file that has lost its pages: a SIGBUS */
        berth_trace_release(t);
        _exit(ok ? 0 : 1);
    }
    close(to[0]);
    close(from[1]);
    assert_int_equal(read(from[0], &byte, 1), 1);
    close(from[0]);
    return (struct other){child, to[1]};
}

static int end_other(struct other o)
{
    int how;
    close(o.tell);
    assert_int_equal(waitpid(o.pid, &how, 0), o.pid);
    return how;
}

static void other_process(bool given, bool we_give)
{
    berth_trace *t = NULL;
    struct other o = start_other(given);
    assert_int_equal(begin(we_give, &t), BERTH_BUSY);
    assert_null(t);
    assert_non_null(strstr(berth_last_error()->message, "is being written"));
    assert_int_equal(end_other(o), 0);
    assert_int_equal(count_written(), 2);
    assert_int_equal(begin(we_give, &t), BERTH_OK);
    berth_trace_release(t);
}

static void test_another_process_keeps_its_file(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        other_process(i & 1, i & 2);
}

static void test_a_killed_writer_is_in_nobodys_way(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        berth_trace *t = NULL;
        struct other o = start_other(given);
        assert_int_equal(kill(o.pid, SIGKILL), 0);
        assert_true(WIFSIGNALED(end_other(o)));
        assert_int_equal(begin(false, &t), BERTH_OK);
        berth_trace_release(t);
    }
}

static void test_one_process_has_a_file_once(void **state)
{
    (void)state;
    berth_trace *t = NULL, *second = NULL;
    assert_int_equal(begin(false, &t), BERTH_OK);
    assert_true(write_one(t));
    assert_int_equal(begin(true, &second), BERTH_BUSY);
    /* Readers and pauses come and go without taking the lock along. */
    assert_int_equal(count_written(), 1);
    assert_int_equal(berth_trace_pause(path, true), BERTH_OK);
    assert_int_equal(berth_trace_pause(path, false), BERTH_OK);
    assert_int_equal(begin(false, &second), BERTH_BUSY);
    assert_true(write_one(t));
    berth_trace_release(t);
    assert_int_equal(count_written(), 2);
    assert_int_equal(begin(false, &second), BERTH_OK);
    berth_trace_release(second);
}

/* The child has the parent's descriptor, and with it the lock: it neither drops it nor keeps it. */
static void test_forked_children_neither_drop_nor_keep_it(void **state)
{
    (void)state;
    berth_trace *t = NULL, *second = NULL;
    int to[2], how;
    char byte;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(begin(false, &t), BERTH_OK);
    pid_t letting_go = fork();
    assert_true(letting_go >= 0);
    if (letting_go == 0) {
        berth_trace_release(t);
        _exit(begin(false, &second) == BERTH_BUSY ? 0 : 1);
    }
    assert_int_equal(waitpid(letting_go, &how, 0), letting_go);
    assert_int_equal(how, 0);
    assert_int_equal(begin(false, &second), BERTH_BUSY);
    pid_t staying = fork();
    assert_true(staying >= 0);
    if (staying == 0) {
        close(to[1]);
        _exit(read(to[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(to[0]);
    assert_true(write_one(t));
    berth_trace_release(t);
    assert_int_equal(begin(false, &second), BERTH_OK);
    berth_trace_release(second);
    close(to[1]);
    assert_int_equal(waitpid(staying, &how, 0), staying);
    assert_int_equal(how, 0);
}

static void test_a_descriptor_that_was_closed_is_locked_anew(void **state)
{
    (void)state;
    berth_trace *t = NULL, *second = NULL;
    assert_int_equal(begin(false, &t), BERTH_OK);
    assert_int_equal(close(t->live.file), 0);
    assert_true(write_one(t)); /* opens the file again, for a chunk */
    assert_int_equal(begin(false, &second), BERTH_BUSY);
    berth_trace_release(t);
    assert_int_equal(begin(false, &second), BERTH_OK);
    berth_trace_release(second);
}

static void test_several_write_what_one_has_made(void **state)
{
    (void)state;
    berth_trace *t = NULL, *second = NULL;
    berth__trace_live one, two;
    assert_int_equal(begin(false, &t), BERTH_OK);
    berth_trace_release(t); /* as berth record makes it for its children */
    assert_int_equal(berth__trace_live_open(&one, path, true), 0);
    assert_int_equal(berth__trace_live_open(&two, path, true), 0);
    assert_int_equal(begin(false, &second), BERTH_BUSY);
    berth__trace_live_close(&one);
    assert_int_equal(begin(false, &second), BERTH_BUSY);
    berth__trace_live_close(&two);
    assert_int_equal(begin(false, &second), BERTH_OK);
    berth_trace_release(second);
}

static void test_devices_have_no_owner(void **state)
{
    (void)state;
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    berth_trace *t = NULL, *second = NULL;
    assert_int_equal(berth_trace_create("/dev/null", &options, &t), BERTH_OK);
    assert_int_equal(berth_trace_create("/dev/null", &options, &second), BERTH_OK);
    berth_trace_release(t);
    berth_trace_release(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_process_keeps_its_file, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_killed_writer_is_in_nobodys_way, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_one_process_has_a_file_once, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_forked_children_neither_drop_nor_keep_it, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(test_a_descriptor_that_was_closed_is_locked_anew, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(test_several_write_what_one_has_made, make_path, remove_path),
        cmocka_unit_test(test_devices_have_no_owner),
    };
    return cmocka_run_group_tests_name("unit_trace_busy", tests, NULL, NULL);
}

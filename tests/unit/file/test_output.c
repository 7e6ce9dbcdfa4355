/* Files appear whole or not at all, and keep what is theirs: mode, owner, links, and the folder around them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
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

#include "file/output.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static unsigned next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
    return at;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/berth_output_XXXXXX");
    return mkdtemp(folder) && chmod(folder, 0755) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT(cert-env33-c): a folder of our own, named by mkdtemp */
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(in_folder(name), mode), 0);
}

static void assert_holds(const char *name, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(in_folder(name), "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static unsigned entries(void)
{
    char command[128];
    unsigned count = 0;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c): see above */
    assert_int_equal(fscanf(f, "%u", &count), 1);
    pclose(f);
    return count;
}

static berth_status write_word(const char *path, berth_status so_far)
{
    berth__output *o;
    berth_status status = berth__output_open(path, &o);
    if (status)
        return status;
    berth__output_put(o, "new", 3);
    return berth__output_close(o, so_far);
}

static void a_file_keeps_its_mode_and_owner(void **state)
{
    (void)state;
    make_file("a", "old", 0640);
    bool root = geteuid() == 0;
    if (root)
        assert_int_equal(chown(in_folder("a"), 12345, 54321), 0);
    assert_int_equal(write_word(in_folder("a"), BERTH_OK), BERTH_OK);
    assert_holds("a", "new");
    struct stat info;
    assert_int_equal(stat(in_folder("a"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(info.st_uid, root ? 12345 : geteuid());
    if (root)
        assert_int_equal(info.st_gid, 54321);
    assert_int_equal(entries(), 1);
}

static void a_new_file_has_its_name(void **state)
{
    (void)state;
    assert_int_equal(write_word(in_folder("a.csv"), BERTH_OK), BERTH_OK);
    assert_holds("a.csv", "new");
    assert_int_equal(entries(), 1);
}

static void others_cannot_read_it_while_it_grows(void **state)
{
    (void)state;
    make_file("a", "old", 0600);
    berth__output *o;
    struct stat info;
    char name[48];
    assert_int_equal(berth__output_open(in_folder("a"), &o), BERTH_OK);
    snprintf(name, sizeof name, ".berth.%ld.0.tmp", (long)getpid());
    assert_int_equal(stat(in_folder(name), &info), 0);
    assert_int_equal(info.st_mode & 077, 0);
    assert_int_equal(berth__output_close(o, BERTH_OK), BERTH_OK);
}

static void a_failure_leaves_what_was_there(void **state)
{
    (void)state;
    make_file("a", "old", 0644);
    assert_int_equal(write_word(in_folder("a"), BERTH_BAD_DATA), BERTH_BAD_DATA);
    assert_holds("a", "old");
    assert_int_equal(write_word(in_folder("b"), BERTH_BAD_DATA), BERTH_BAD_DATA);
    assert_int_equal(entries(), 1);
}

static void a_link_stays_a_link(void **state)
{
    (void)state;
    make_file("a", "old", 0644);
    assert_int_equal(symlink("a", in_folder("link")), 0);
    assert_int_equal(symlink("link", in_folder("second")), 0);
    assert_int_equal(write_word(in_folder("second"), BERTH_BAD_DATA), BERTH_BAD_DATA);
    assert_holds("a", "old");
    assert_int_equal(write_word(in_folder("second"), BERTH_OK), BERTH_OK);
    assert_holds("a", "new");
    struct stat info;
    assert_int_equal(lstat(in_folder("second"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(entries(), 3);
    assert_int_equal(symlink("round", in_folder("round")), 0);
    assert_int_equal(write_word(in_folder("round"), BERTH_OK), BERTH_IO);
}

/* Somebody else's file of the name that we would take is neither followed nor overwritten. */
static void a_name_that_is_taken_is_left_alone(void **state)
{
    (void)state;
    char name[48];
    snprintf(name, sizeof name, ".berth.%ld.0.tmp", (long)getpid());
    make_file("victim", "theirs", 0644);
    assert_int_equal(symlink("victim", in_folder(name)), 0);
    assert_int_equal(write_word(in_folder("a"), BERTH_OK), BERTH_OK);
    assert_holds("a", "new");
    assert_holds("victim", "theirs");
    assert_int_equal(entries(), 3);
}

/* ---- What others may not write ------------------------------------------------------------------- */

/* Runs a try as somebody without rights, in a process of its own: exit 0 if the answer is as expected. */
static void assert_refused_to_others(const char *name, const char *words)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(2);
        berth_status status = write_word(in_folder(name), BERTH_OK);
        if (status == BERTH_IO && strstr(berth_last_error()->message, words) != NULL)
            _exit(0);
        fprintf(stderr, "status %d: %s\n", (int)status, berth_last_error()->message);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_file_that_may_not_be_written_is_not_replaced(void **state)
{
    (void)state;
    make_file("a", "old", 0444);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_refused_to_others("a", "cannot be written: Permission denied");
    assert_holds("a", "old");
    assert_int_equal(entries(), 1);
}

static void a_file_in_a_closed_folder_is_not_replaced(void **state)
{
    (void)state;
    make_file("a", "old", 0666);
    assert_int_equal(chmod(folder, 0555), 0);
    assert_refused_to_others("a", "no new file can be made in its folder: Permission denied");
    assert_refused_to_others("b", "cannot be written: Permission denied");
    assert_int_equal(chmod(folder, 0755), 0);
    assert_holds("a", "old");
    assert_int_equal(entries(), 1);
}

static void a_file_of_another_owner_is_not_taken_over(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return; /* there is no other owner to be had */
    make_file("a", "old", 0666);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_refused_to_others("a", "of the same owner and group");
    assert_holds("a", "old");
    assert_int_equal(entries(), 1);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    make_file("a", "old", 0644);
    uint64_t live = berth__heap_live();
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
        assert_holds("a", "old");
        berth__heap_fail_at(n, false);
        status = write_word(in_folder("a"), BERTH_OK);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
        assert_int_equal(entries(), 1);
        assert_true(n < 20);
    }
    assert_int_equal(status, BERTH_OK);
    assert_holds("a", "new");
}

int main(void)
{
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(a_file_keeps_its_mode_and_owner),
        IN_A_FOLDER(a_new_file_has_its_name),
        IN_A_FOLDER(others_cannot_read_it_while_it_grows),
        IN_A_FOLDER(a_failure_leaves_what_was_there),
        IN_A_FOLDER(a_link_stays_a_link),
        IN_A_FOLDER(a_name_that_is_taken_is_left_alone),
        IN_A_FOLDER(a_file_that_may_not_be_written_is_not_replaced),
        IN_A_FOLDER(a_file_in_a_closed_folder_is_not_replaced),
        IN_A_FOLDER(a_file_of_another_owner_is_not_taken_over),
        IN_A_FOLDER(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

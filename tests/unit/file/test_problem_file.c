/* Problem files: every column under every name, and every way in which a file can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/problem_file.h"

static berth_problem_file *parse(const char *text)
{
    berth_problem_file *file = NULL;
    berth_status status = berth_problem_file_parse(text, strlen(text), &file);
    if (status)
        fail_msg("%s: %s", text, berth_last_error()->message);
    return file;
}

static void refused(const char *text, berth_status status, const char *words)
{
    berth_problem_file *file = (void *)&file;
    uint64_t live = berth__heap_live();
    assert_int_equal(berth_problem_file_parse(text, strlen(text), &file), status);
    assert_null(file);
    assert_int_equal(berth__heap_live(), live);
    if (!strstr(berth_last_error()->message, words))
        fail_msg("'%s' is not in '%s'", words, berth_last_error()->message);
}

static void plain_columns_are_read(void **state)
{
    (void)state;
    berth_problem_file *file = parse("id,lower,upper,size\na,0,3,4\nb,-5,9,18446744073\n");
    const berth_problem *p = berth_problem_file_problem(file);
    assert_int_equal(p->buffer_count, 2);
    assert_int_equal(p->buffers[0].lower, 0);
    assert_int_equal(p->buffers[0].upper, 3);
    assert_int_equal(p->buffers[0].size_bytes, 4);
    assert_int_equal(p->buffers[0].alignment, 1);
    assert_int_equal(p->buffers[0].fixed_offset, BERTH_NO_OFFSET);
    assert_int_equal(p->buffers[1].lower, -5);
    assert_int_equal(p->buffers[1].size_bytes, 18446744073);
    assert_null(berth_problem_file_offsets(file));
    assert_null(berth_problem_file_notice(file, 0));
    char id[8];
    assert_int_equal(berth_problem_file_id(file, 1, id, sizeof id), 1);
    assert_string_equal(id, "b");
    assert_int_equal(berth_problem_file_label(file, 1, id, sizeof id), 0);
    assert_int_equal(berth_problem_file_id(file, 2, id, sizeof id), 0);
    assert_int_equal(berth_problem_file_line(file, 1), 3);
    berth_problem_file_destroy(file);
}

static void every_column_is_read_under_every_name(void **state)
{
    (void)state;
    berth_problem_file *file = parse("label,Buffer_ID,start,end,SIZE,alignment,hint,gaps,fixed,alias,offset\n"
                                     "conv,x,0,9,64,16,-3,2-3 6-7,32,pool,1\n"
                                     ",y,0,4,8,,,,,,\n"
                                     "\"a, \"\"b\"\"\",z,0,4,8,,,,,pool,7\n");
    const berth_problem *p = berth_problem_file_problem(file);
    const berth_problem_buffer *b = p->buffers;
    assert_int_equal(p->buffer_count, 3);
    assert_int_equal(b[0].upper, 10); /* `end` is inclusive */
    assert_int_equal(b[0].alignment, 16);
    assert_int_equal(b[0].hint, -3);
    assert_int_equal(b[0].fixed_offset, 32);
    assert_int_equal(b[0].gap_count, 2);
    assert_int_equal(p->gaps[b[0].gap_first].lower, 2); /* and so are gaps then */
    assert_int_equal(p->gaps[b[0].gap_first].upper, 4);
    assert_int_equal(p->gaps[b[0].gap_first + 1].upper, 8);
    assert_int_equal(b[1].alignment, 1);
    assert_int_equal(b[1].fixed_offset, BERTH_NO_OFFSET);
    assert_int_equal(b[1].alias_group, 0);
    assert_true(b[0].alias_group != 0);
    assert_int_equal(b[0].alias_group, b[2].alias_group);
    const uint64_t *offsets = berth_problem_file_offsets(file);
    assert_int_equal(offsets[0], 1);
    assert_int_equal(offsets[1], BERTH_NO_OFFSET);
    assert_non_null(strstr(berth_problem_file_notice(file, 0), "`offset`"));
    char label[16];
    assert_int_equal(berth_problem_file_label(file, 2, label, sizeof label), 6);
    assert_string_equal(label, "a, \"b\"");
    assert_int_equal(berth_problem_file_label(file, 2, label, 4), 6); /* cut, closed, full length told */
    assert_string_equal(label, "a, ");
    berth_problem_file_destroy(file);
    file = parse("buffer,begin,upper,size,note\nx,1,2,3,hello\n");
    assert_int_equal(berth_problem_file_problem(file)->buffers[0].upper, 2);
    assert_non_null(strstr(berth_problem_file_notice(file, 0), "`note`"));
    berth_problem_file_destroy(file);
}

/* However many columns are not known: who wants the offsets leaves the last one out. */
static void the_notice_of_offsets_is_the_last(void **state)
{
    (void)state;
    berth_problem_file *file = parse("offset,id,lower,upper,size,a,b,c,d,e,f\n1,x,1,2,3,,,,,,\n");
    size_t count = 0;
    while (berth_problem_file_notice(file, count + 1))
        assert_null(strstr(berth_problem_file_notice(file, count++), "`offset`"));
    assert_true(count > 1);
    assert_non_null(strstr(berth_problem_file_notice(file, count), "`offset`"));
    berth_problem_file_destroy(file);
}

static void other_systems_files_are_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\xef\xbb\xbfid,lower,upper,size\r\na,0,3,4\r\nb,1,2,5\r\n",
        "\"id\",\"lower\" , upper,size\n\"a\", 0 ,\t3,\"4\"\n\n  \nb,1,2,5",
        "id,lower,upper,size\r\na,0,3,4\r\nb,1,2,5\r",
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        berth_problem_file *file = parse(texts[k]);
        const berth_problem *p = berth_problem_file_problem(file);
        assert_int_equal(p->buffer_count, 2);
        assert_int_equal(p->buffers[0].upper, 3);
        assert_int_equal(p->buffers[0].size_bytes, 4);
        assert_int_equal(p->buffers[1].size_bytes, 5);
        char id[4];
        berth_problem_file_id(file, 0, id, sizeof id);
        assert_string_equal(id, "a");
        berth_problem_file_destroy(file);
    }
}

#define HEADER "id,lower,upper,size\n"

static void what_is_wrong_is_named_by_line_and_column(void **state)
{
    (void)state;
    refused("", BERTH_BAD_DATA, "line 1: the file is empty");
    refused("\n\n", BERTH_BAD_DATA, "the file is empty");
    refused("id,lower,size\na,0,1\n", BERTH_BAD_DATA, "no column `upper`");
    refused("id,lower,upper,size,end\n", BERTH_BAD_DATA, "`upper` and `end` mean the same");
    refused("id,buffer,lower,upper,size\n", BERTH_BAD_DATA, "`id` and `buffer` mean the same");
    refused("\xff\xfei\0d", BERTH_BAD_DATA, "UTF-16");
    refused("id|lower|upper|size\n", BERTH_BAD_DATA,
            "upper and size, with commas, semicolons or tabs between");
    refused("\x1f\x8b\x08", BERTH_BAD_DATA, "packed by gzip");
    refused(HEADER "a,0,1\n", BERTH_BAD_DATA, "line 2: 3 fields where the header has 4 columns");
    refused("id;lower;upper;size\na,0,1,2\n", BERTH_BAD_DATA,
            "line 2: 1 field where the header has 4 columns");
    refused(HEADER "a,0,1,2,3\n", BERTH_BAD_DATA, "line 2: 5 fields");
    refused(HEADER "a,0,1,2\nb,0,x,2\n", BERTH_BAD_DATA, "line 3, column `upper`: 'x' is not a whole number");
    refused(HEADER "a,0,1,-2\n", BERTH_BAD_DATA, "line 2, column `size`: '-2' is not a whole number from 0");
    refused(HEADER "a,0,1,1.5\n", BERTH_BAD_DATA, "column `size`");
    refused(HEADER "a,,1,1\n", BERTH_BAD_DATA, "column `lower`: '' is not");
    refused(HEADER "a,0,1,18446744073709551616\n", BERTH_OVERFLOW, "line 2, column `size`");
    refused(HEADER "a,0,9223372036854775808,1\n", BERTH_OVERFLOW, "line 2, column `upper`");
    refused(HEADER "a,-9223372036854775809,1,1\n", BERTH_OVERFLOW, "line 2, column `lower`");
    refused(HEADER "a,0,1,9223372036854775807\nb,5,6,1\n", BERTH_OVERFLOW, "line 3, column `size`");
    refused("id,lower,end,size\na,0,9223372036854775807,1\n", BERTH_OVERFLOW, "column `end`");
    refused(HEADER "a,5,4,1\n", BERTH_BAD_DATA, "line 2, column `upper`: '4' lies before");
    refused(HEADER ",0,1,1\n", BERTH_BAD_DATA, "line 2, column `id`: the id is empty");
    refused(HEADER "a,0,1,1\nb,0,1,1\na,0,1,1\n", BERTH_BAD_DATA,
            "line 4, column `id`: 'a' is already the id of line 2");
    refused(HEADER "7,0,1,1\n\n07,0,1,1\n\"7\",0,1,1\n", BERTH_BAD_DATA,
            "line 5, column `id`: '7' is already the id of line 2");
    refused(HEADER "a,0,1,1\na,0,1,1\nb,x,1,1\n", BERTH_BAD_DATA,
            "line 3, column `id`"); /* the first of two */
    refused(HEADER "a,0,1,1\nb,x,1,1\na,0,1,1\n", BERTH_BAD_DATA, "line 3, column `lower`");
    refused(HEADER "a,0,1,1\na,x,1,1\n", BERTH_BAD_DATA, "line 3, column `id`");
    refused(HEADER "a,0,1,1\nb1c,0,1,1\nb1c,0,1,1\na,0,1,1\n", BERTH_BAD_DATA, "line 4, column `id`: 'b1c'");
    refused(HEADER "\"a,0,1,1\n", BERTH_BAD_DATA, "line 2: a quoted field is never closed");
    refused(HEADER "\"a\"b,0,1,1\n", BERTH_BAD_DATA, "line 2: there is text after a closing quote");
    refused(HEADER "a\"b,0,1,1\n", BERTH_BAD_DATA, "line 2: a quote inside a field");
    refused("id,lower,upper,size,alignment\na,0,1,1,4294967296\n", BERTH_OVERFLOW, "column `alignment`");
    refused("id,lower,upper,size,alignment,fixed\na,0,1,1,8,12\n", BERTH_BAD_DATA, "column `fixed`");
    refused("id,lower,upper,size,fixed\na,0,1,1,9223372036854775807\n", BERTH_OVERFLOW, "column `fixed`");
    refused("id,lower,upper,size,fixed\na,0,1,1,18446744073709551615\n", BERTH_OVERFLOW, "column `fixed`");
    refused("id,lower,upper,size,offset\na,0,1,1,here\n", BERTH_BAD_DATA, "column `offset`");
}

static void zero_bytes_are_found_wherever_they_are(void **state)
{
    (void)state;
#define BYTES(text) text, sizeof text - 1
    static const struct {
        const char *text;
        size_t size_bytes;
        const char *words;
    } bad[] = {{BYTES("id,lower\0,upper,size\na,0,1,2\n"), "line 1: there is a zero byte"},
               {BYTES("id,lower,upper,size,x\0y\na,0,1,2,3\n"), "line 1: there is a zero byte"},
               {BYTES("\x7f\105LF\0\0\""), "line 1: there is a zero byte"},
               {BYTES(HEADER "a\0b,0,1,2\n"), "line 2: there is a zero byte"}};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        berth_problem_file *file;
        assert_int_equal(berth_problem_file_parse(bad[k].text, bad[k].size_bytes, &file), BERTH_BAD_DATA);
        assert_non_null(strstr(berth_last_error()->message, bad[k].words));
    }
}

/* The least of some tries, in seconds of the processor. */
static double cost_of(const char *text)
{
    double least = 1e9;
    for (int k = 0; k < 3; k++) {
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        berth_problem_file_destroy(parse(text));
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        const double took = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        least = took < least ? took : least;
    }
    return least;
}

/* A million of them in one row were an hour. */
static void the_order_of_gaps_costs_little(void **state)
{
    (void)state;
    enum { GAPS = 30000, ROOM = 64 + GAPS * 16 };
    char *forth = malloc(ROOM), *back = malloc(ROOM);
    assert_true(forth && back);
    size_t a = (size_t)snprintf(forth, ROOM, "id,lower,upper,size,gaps\na,0,%d,1,", 4 * GAPS);
    size_t b = (size_t)snprintf(back, ROOM, "%s", forth);
    for (int k = 0; k < GAPS; k++) {
        a += (size_t)snprintf(forth + a, ROOM - a, "%d-%d ", 4 * k, 4 * k + 1);
        b += (size_t)snprintf(back + b, ROOM - b, "%d-%d ", 4 * (GAPS - k - 1), 4 * (GAPS - k - 1) + 1);
    }
    const double in_order = cost_of(forth), turned = cost_of(back);
    assert_true(turned < 0.01 + 15 * in_order);
    free(forth);
    free(back);
}

/* Whoever joins a group was looked up by a walk from the row that named it first. */
static void a_long_row_costs_once(void **state)
{
    (void)state;
    enum { LONG = 1000000, MEMBERS = 2000, ROOM = 64 + LONG + MEMBERS * 32 };
    char *alone = malloc(ROOM), *joined = malloc(ROOM);
    assert_true(alone && joined);
    size_t used = (size_t)snprintf(alone, ROOM, "id,lower,upper,size,alias,label\na,0,1,1,g,");
    memset(alone + used, 'x', LONG);
    used += LONG;
    alone[used] = '\0';
    memcpy(joined, alone, used);
    for (int k = 0; k < MEMBERS; k++)
        used += (size_t)snprintf(joined + used, ROOM - used, "\nb%d,0,1,1,g,", k);
    assert_true(cost_of(joined) < 0.01 + 15 * cost_of(alone));
    free(alone);
    free(joined);
}

static void gaps_are_read_and_checked(void **state)
{
    (void)state;
#define WITH "id,lower,upper,size,gaps\n"
    berth_problem_file *file = parse(WITH "a,-9,9,8,  5-7 -8--6 0-1 \n");
    const berth_problem *p = berth_problem_file_problem(file);
    assert_int_equal(p->buffers[0].gap_count, 3); /* in order, however they stood */
    assert_int_equal(p->gaps[0].lower, -8);
    assert_int_equal(p->gaps[0].upper, -6);
    assert_int_equal(p->gaps[2].lower, 5);
    berth_problem_file_destroy(file);
    refused(WITH "a,0,9,8,1-2@3:4\n", BERTH_BAD_DATA, "line 2, column `gaps`: '1-2@3:4' has a windowed gap");
    refused(WITH "a,0,9,8,1-\n", BERTH_BAD_DATA, "list of gaps");
    refused(WITH "a,0,9,8,1\n", BERTH_BAD_DATA, "list of gaps");
    refused(WITH "a,0,9,8,1-2x\n", BERTH_BAD_DATA, "list of gaps");
    refused(WITH "a,0,9,8,1-2;3-4\n", BERTH_BAD_DATA, "list of gaps");
    refused(WITH "a,0,9,8,2-2\n", BERTH_BAD_DATA, "empty or lies outside");
    refused(WITH "a,0,9,8,2-10\n", BERTH_BAD_DATA, "empty or lies outside");
    refused(WITH "a,0,9,8,2-5 4-6\n", BERTH_BAD_DATA, "overlap");
    refused(WITH "a,0,9,8,2-99999999999999999999\n", BERTH_OVERFLOW, "64 bits");
}

static void pins_are_checked_across_rows(void **state)
{
    (void)state;
    refused("id,lower,upper,size,fixed\na,0,2,8,0\nb,1,3,8,4\n", BERTH_BAD_DATA, "collide");
    refused("id,lower,upper,size,fixed,alias\na,0,2,8,0,g\nb,2,3,8,8,g\n", BERTH_BAD_DATA, "share one place");
}

static char *slurp(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void temporary(char *path)
{
    strcpy(path, "/tmp/berth_test_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void written(const char *text, const uint64_t *offsets, const char *expected)
{
    char path[32];
    temporary(path);
    berth_problem_file *file = parse(text);
    assert_int_equal(berth_problem_file_write(file, offsets, path), BERTH_OK);
    assert_string_equal(slurp(path), expected);
    berth_problem_file_destroy(file);
    unlink(path);
}

static void a_plan_keeps_the_rows_as_they_are(void **state)
{
    (void)state;
    uint64_t offsets[] = {7, 18446744073709551614u};
    written("id,start,end,size,note\nb, 0,1,2,\"x,y\"\n\na,0,3,4,", offsets,
            "id,start,end,size,note,offset\nb, 0,1,2,\"x,y\",7\na,0,3,4,,18446744073709551614\n");
    written("\xef\xbb\xbfid,lower,upper,size\r\na,0,1,2\r\nb,0,1,2\r\n", offsets,
            "id,lower,upper,size,offset\r\na,0,1,2,7\r\nb,0,1,2,18446744073709551614\r\n");
    written("id,offset,lower,upper,size\na,99,0,1,2\nb, ,0,1,2\n", offsets,
            "id,offset,lower,upper,size\na,7,0,1,2\nb,18446744073709551614,0,1,2\n");
    written("id,lower,upper,size\n", offsets, "id,lower,upper,size,offset\n");
}

static void a_plan_may_replace_its_problem(void **state)
{
    (void)state;
    char path[32];
    temporary(path);
    FILE *f = fopen(path, "w");
    fputs("id,lower,upper,size\na,0,1,2\n", f);
    fclose(f);
    berth_problem_file *file;
    assert_int_equal(berth_problem_file_read(path, &file), BERTH_OK);
    assert_int_equal(berth_problem_file_write(file, (uint64_t[]){5}, path), BERTH_OK);
    assert_string_equal(slurp(path), "id,lower,upper,size,offset\na,0,1,2,5\n");
    assert_int_equal(berth_problem_file_write(file, (uint64_t[]){5}, "/nonexistent/place"), BERTH_IO);
    assert_non_null(strstr(berth_last_error()->message, "/nonexistent/place"));
    berth_problem_file_destroy(file);
    unlink(path);
    assert_int_equal(berth_problem_file_read(path, &file), BERTH_IO);
}

/* What is no file has no size: its text comes piece by piece. */
static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    enum { ROWS = 20000 }; /* more than twice what is first made room for */
    char path[32];
    temporary(path);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    const pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        alarm(60); /* should nobody read */
        FILE *f = fopen(path, "w");
        fputs(HEADER, f);
        for (int i = 0; i < ROWS; i++)
            fprintf(f, "%d,%d,%d,8\n", i, i, i + 1);
        fclose(f);
        _exit(0);
    }
    berth_problem_file *file = NULL;
    const berth_status status = berth_problem_file_read(path, &file);
    waitpid(writer, NULL, 0);
    unlink(path);
    assert_int_equal(status, BERTH_OK);
    assert_int_equal(berth_problem_file_problem(file)->buffer_count, ROWS);
    assert_int_equal(berth_problem_file_problem(file)->buffers[ROWS - 1].lower, ROWS - 1);
    berth_problem_file_destroy(file);
}

static void rows_that_changed_are_not_written(void **state)
{
    (void)state;
    char path[32], text[] = HEADER "a,0,1,2\nb,0,1,2\n";
    temporary(path);
    berth_problem_file *file = parse(text);
    text[strlen(HEADER) + 1] = ';'; /* a field less, now that it is read */
    assert_int_equal(berth_problem_file_write(file, (uint64_t[]){0, 2}, path), BERTH_BAD_DATA);
    assert_int_equal(berth_problem_file_convert(file, path), BERTH_BAD_DATA);
    assert_string_equal(slurp(path), ""); /* as it was */
    berth_problem_file_destroy(file);
    unlink(path);
}

static void a_plan_is_matched_by_id(void **state)
{
    (void)state;
    berth_problem_file *problem = parse("id,lower,upper,size\na,0,1,2\n5,0,3,4\n");
    uint64_t offsets[2];
    berth_problem_file *plan = parse("size,upper,start,offset,buffer\n4,3,0,16,5\n2,1,0,8,a\n");
    assert_int_equal(berth_problem_file_match(problem, plan, offsets), BERTH_OK);
    assert_int_equal(offsets[0], 8);
    assert_int_equal(offsets[1], 16);
    berth_problem_file_destroy(plan);
    static const struct {
        const char *text;
        berth_status status;
        const char *words;
    } bad[] = {
        {"id,lower,upper,size\na,0,1,2\n5,0,3,4\n", BERTH_BAD_DATA, "no column `offset`"},
        {"id,lower,upper,size,offset\na,0,1,2,0\n", BERTH_MISMATCH, "'5'"},
        {"id,lower,upper,size,offset\na,0,1,2,0\n5,0,3,4,0\n6,0,3,4,0\n", BERTH_MISMATCH, "has 3 buffers"},
        {"id,lower,upper,size,offset\na,0,1,2,0\n5,0,4,4,0\n", BERTH_MISMATCH, "'5' lives 0-3"},
        {"id,lower,upper,size,offset\na,0,1,3,0\n5,0,3,4,0\n", BERTH_MISMATCH, "'a' lives"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        plan = parse(bad[k].text);
        assert_int_equal(berth_problem_file_match(problem, plan, offsets), bad[k].status);
        if (!strstr(berth_last_error()->message, bad[k].words))
            fail_msg("'%s' is not in '%s'", bad[k].words, berth_last_error()->message);
        berth_problem_file_destroy(plan);
    }
    berth_problem_file_destroy(problem);
}

static size_t label_of(void *context, size_t buffer, char *text, size_t room)
{
    return berth_problem_file_label(context, buffer, text, room);
}

static void any_problem_can_be_written_and_read_again(void **state)
{
    (void)state;
    char path[32];
    temporary(path);
    berth_problem_file *file = parse("label,id,start,end,size,alignment,hint,gaps,fixed,alias\n"
                                     "\"say \"\"hi\"\", all\",a,-3,9,64,16,-3,2-3 6-7,32,pool\n"
                                     " plain,b,0,4,8,,,,,pool\n");
    const berth_problem *p = berth_problem_file_problem(file);
    assert_int_equal(berth_problem_write(p, NULL, label_of, file, (uint64_t[]){32, 32}, path), BERTH_OK);
    assert_string_equal(slurp(path), "id,lower,upper,size,alignment,hint,gaps,fixed,alias,label,offset\n"
                                     "0,-3,10,64,16,-3,2-4 6-8,32,1,\"say \"\"hi\"\", all\",32\n"
                                     "1,0,5,8,1,0,,,1,plain,32\n");
    berth_problem_file *again;
    uint64_t was, is;
    assert_int_equal(berth_problem_file_read(path, &again), BERTH_OK);
    berth_problem_fingerprint(p, &was);
    berth_problem_fingerprint(berth_problem_file_problem(again), &is);
    assert_int_equal(was, is);
    berth_problem_file_destroy(again);
    berth_problem_file_destroy(file);
    unlink(path);
}

/* More rows than marks, ids of all kinds, and a name found again from anywhere. */
static void converted(const char *text, const char *expected)
{
    char path[32];
    temporary(path);
    berth_problem_file *file = parse(text);
    assert_int_equal(berth_problem_file_convert(file, path), BERTH_OK);
    assert_string_equal(slurp(path), expected);
    berth_problem_file_destroy(file);
    unlink(path);
}

/* Names of aliases and columns that are not known come through; columns that say nothing do not. */
static void converting_loses_nothing(void **state)
{
    (void)state;
    converted("label,alias,x,end,start,size,id\r\n,g,1,3,0,4,a\r\n,\"h, i\",,3,0,4,b\r\n",
              "id,lower,upper,size,alias,x\na,0,4,4,g,1\nb,0,4,4,\"h, i\",\n");
    converted("id,lower,upper,size,y,,x,hint,gaps\n\"a\"\"b\",0,9,4,\" \",2,3,0,\n",
              "id,lower,upper,size,y,,x\n\"a\"\"b\",0,9,4,\" \",2,3\n");
    converted("id,lower,upper,size,offset,label\n", "id,lower,upper,size,offset\n");
    assert_int_equal(berth_problem_file_convert(NULL, "-"), BERTH_INVALID_ARGUMENT);
}

/* The row of a saved plan that is no buffer, wherever it stands, and what only looks like it. */
static void a_fingerprint_is_no_buffer(void **state)
{
    (void)state;
    char text[8192], id[16], *at = text;
    at += sprintf(at, "id,lower,upper,size,label,offset\n");
    for (int row = 0; row < 200; row++) {
        if (row == 70)
            at += sprintf(at, "fingerprint,7,7,0,00000000000000ff,0\n");
        at += sprintf(at, "%d,%d,%d,8,,0\n", row, row, row + 1);
    }
    berth_problem_file *file = parse(text);
    assert_int_equal(berth_problem_file_problem(file)->buffer_count, 200);
    for (size_t row = 0; row < 200; row++) {
        berth_problem_file_id(file, row, id, sizeof id);
        assert_int_equal(atoi(id), row);
        assert_int_equal(berth_problem_file_line(file, row), row + 2 + (row >= 70));
        assert_int_equal(berth_problem_file_problem(file)->buffers[row].lower, row);
    }
    uint64_t offsets[200] = {0};
    assert_int_equal(berth_problem_file_match(file, file, offsets), BERTH_OK);
    written(text, offsets, text);
    converted(text, text);
    berth_problem_file_destroy(file);
    static const char *const buffers[] = {"fingerprint,7,7,1,ff,0\n", "fingerprint,7,8,0,ff,0\n",
                                          "fingerprint,7,7,0,fg,0\n", "fingerprint,7,7,0,,0\n",
                                          "fingerprints,7,7,0,ff,0\n"};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++) {
        snprintf(text, sizeof text, "id,lower,upper,size,label,offset\n%s", buffers[k]);
        file = parse(text);
        assert_int_equal(berth_problem_file_problem(file)->buffer_count, 1);
        berth_problem_file_destroy(file);
    }
    refused("id,lower,upper,size,label,offset\nfingerprint,7,7,0,ff,0\nfingerprint,7,7,0,fe,0\n",
            BERTH_BAD_DATA, "line 3: a second fingerprint");
}

static void many_rows_are_found_again(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    char *text = malloc(MANY * 48 + 64), *at = text, id[32], expected[32];
    at += sprintf(at, HEADER);
    for (int i = 0; i < MANY; i++)
        at += sprintf(at, i % 2 ? "n%d,0,1,%d\n" : "%d,0,1,%d\n", i * 3, i);
    berth_problem_file *file = parse(text);
    for (int i = 0; i < MANY; i += 37) {
        snprintf(expected, sizeof expected, i % 2 ? "n%d" : "%d", i * 3);
        berth_problem_file_id(file, (size_t)i, id, sizeof id);
        assert_string_equal(id, expected);
        assert_int_equal(berth_problem_file_line(file, (size_t)i), i + 2);
    }
    berth_problem_file_destroy(file);
    sprintf(at, "n3,0,1,1\n");
    refused(text, BERTH_BAD_DATA, "line 5002, column `id`: 'n3' is already the id of line 3");
    free(text);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] = "id,lower,upper,size,gaps,alias,fixed,offset\n"
                               "a,0,9,4,1-2,g,0,1\nb,0,9,4,1-2,h,8,2\nc,0,9,4,,g,,3\n4,0,9,1,,,,\n";
    uint64_t live = berth__heap_live(), offsets[4];
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
        berth_problem_file *file = NULL;
        berth__heap_fail_at(n, false);
        status = berth_problem_file_parse(text, sizeof text - 1, &file);
        if (!status)
            status = berth_problem_file_match(file, file, offsets);
        if (!status)
            status = berth_problem_file_write(file, offsets, "/dev/null");
        if (!status)
            status =
                berth_problem_write(berth_problem_file_problem(file), NULL, NULL, NULL, NULL, "/dev/null");
        if (!status)
            status = berth_problem_file_convert(file, "/dev/null");
        berth__heap_fail_at(0, false);
        berth_problem_file_destroy(file);
        assert_int_equal(berth__heap_live(), live);
        assert_true(n < 100);
    }
    assert_int_equal(status, BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_columns_are_read),
        cmocka_unit_test(every_column_is_read_under_every_name),
        cmocka_unit_test(the_notice_of_offsets_is_the_last),
        cmocka_unit_test(other_systems_files_are_read),
        cmocka_unit_test(what_is_wrong_is_named_by_line_and_column),
        cmocka_unit_test(zero_bytes_are_found_wherever_they_are),
        cmocka_unit_test(gaps_are_read_and_checked),
        cmocka_unit_test(the_order_of_gaps_costs_little),
        cmocka_unit_test(a_long_row_costs_once),
        cmocka_unit_test(pins_are_checked_across_rows),
        cmocka_unit_test(a_plan_keeps_the_rows_as_they_are),
        cmocka_unit_test(a_plan_may_replace_its_problem),
        cmocka_unit_test(a_pipe_is_read_to_its_end),
        cmocka_unit_test(rows_that_changed_are_not_written),
        cmocka_unit_test(a_plan_is_matched_by_id),
        cmocka_unit_test(any_problem_can_be_written_and_read_again),
        cmocka_unit_test(converting_loses_nothing),
        cmocka_unit_test(a_fingerprint_is_no_buffer),
        cmocka_unit_test(many_rows_are_found_again),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Plans as files: what is saved comes back, and a damaged file never becomes a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "berth/problem_file.h"
#include "plan/plan.h"

static char path[64];

static int name_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "test_plan_file.%ld.csv", (long)getpid());
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static berth_plan *new_plan(void)
{
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    return plan;
}

static berth_plan *sample(void)
{
    static const char *const labels[] = {"plain",           NULL,      "with, comma",
                                         "with \"quotes\"", " blank ", "two\nlines"};
    berth_plan_allocation a[30];
    for (size_t i = 0; i < 30; i++) {
        a[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        a[i].size_bytes = 100 + i * 7;
        a[i].alignment = (uint64_t)1 << (i % 8);
        a[i].freed_at = i % 9 == 4 ? BERTH_NEVER_FREED : i + 1 + i % 5 > 30 ? 30 : i + 1 + i % 5;
        a[i].label = labels[i % 6];
    }
    berth_plan *plan = new_plan();
    assert_int_equal(berth_plan_set(plan, a, 30, NULL), BERTH_OK);
    return plan;
}

static void assert_alike(const berth_plan *x, const berth_plan *y)
{
    assert_int_equal(berth_plan_count(x), berth_plan_count(y));
    assert_int_equal(berth_plan_total_bytes(x), berth_plan_total_bytes(y));
    assert_true(berth_plan_fingerprint(x) == berth_plan_fingerprint(y));
    for (size_t i = 0; i < berth_plan_count(x); i++) {
        berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT, b = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(x, i, &a), BERTH_OK);
        assert_int_equal(berth_plan_get(y, i, &b), BERTH_OK);
        assert_int_equal(a.size_bytes, b.size_bytes);
        assert_int_equal(a.alignment, b.alignment);
        assert_true(a.freed_at == b.freed_at && a.offset == b.offset);
        assert_int_equal(a.label == NULL, b.label == NULL);
        if (a.label)
            assert_string_equal(a.label, b.label);
    }
    assert_int_equal(x->content->step_count, y->content->step_count);
    assert_memory_equal(x->content->step_ids, y->content->step_ids,
                        x->content->step_count * sizeof *x->content->step_ids);
}

static void test_saved_and_loaded(void **state)
{
    (void)state;
    berth_plan *plan = sample(), *back = new_plan();
    assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
    assert_int_equal(berth_plan_load(back, path), BERTH_OK);
    assert_alike(plan, back);
    assert_int_equal(berth_plan_clear(plan), BERTH_OK); /* an empty one too */
    assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
    assert_int_equal(berth_plan_load(back, path), BERTH_OK);
    assert_int_equal(berth_plan_count(back), 0);
    berth_plan_release(plan);
    berth_plan_release(back);
}

static char *read_all(void)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 20000);
    assert_true(fread(text, 1, 19999, file) > 0);
    fclose(file);
    return text;
}

static void write_all(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

/* What the command does to a saved plan leaves one that can be loaded. */
static void test_a_saved_plan_is_a_problem_file(void **state)
{
    (void)state;
    berth_plan *plan = sample(), *back = new_plan();
    berth_problem_file *file = NULL;
    assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
    assert_int_equal(berth_problem_file_read(path, &file), BERTH_OK);
    const berth_problem *problem = berth_problem_file_problem(file);
    assert_int_equal(problem->buffer_count, 30);
    uint64_t offsets[30];
    assert_int_equal(berth_solve(problem, NULL, offsets, NULL), BERTH_OK);
    assert_int_equal(berth_problem_file_write(file, offsets, path), BERTH_OK);
    assert_int_equal(berth_plan_load(back, path), BERTH_OK);
    assert_true(berth_plan_fingerprint(back) == berth_plan_fingerprint(plan));
    assert_int_equal(berth_problem_file_convert(file, path), BERTH_OK);
    assert_int_equal(berth_plan_load(back, path), BERTH_OK);
    assert_alike(plan, back);
    berth_problem_file_destroy(file);
    berth_plan_release(plan);
    berth_plan_release(back);
}

static void test_a_file_cut_short_is_refused(void **state)
{
    (void)state;
    berth_plan *plan = sample(), *back = new_plan();
    assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
    char *text = read_all();
    size_t length = strlen(text);
    for (size_t cut = 0; cut + 4 < length; cut += 13) {
        assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
        assert_int_equal(berth_plan_load(back, path), BERTH_OK);
        write_all(text, cut);
        assert_true(berth_plan_load(back, path) != BERTH_OK);
        assert_true(strlen(berth_last_error()->message) > 10);
        assert_int_equal(berth_plan_count(back), 0);
    }
    free(text);
    berth_plan_release(plan);
    berth_plan_release(back);
}

/* Every byte changed in turn: the plan is the same, or there is none. */
static void test_a_damaged_file_is_never_another_plan(void **state)
{
    (void)state;
    berth_plan *plan = sample(), *back = new_plan();
    assert_int_equal(berth_plan_save(plan, path), BERTH_OK);
    char *text = read_all();
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        char was = text[i];
        text[i] = (char)(was >= '0' && was <= '9' ? '0' + (was - '0' + 1) % 10 : was == ',' ? '7' : was ^ 2);
        write_all(text, length);
        if (berth_plan_load(back, path) == BERTH_OK) {
            /* Labels, the order of frees and, where it still fits, an offset are not the program's shape. */
            assert_true(berth_plan_fingerprint(back) == berth_plan_fingerprint(plan));
        }
        text[i] = was;
    }
    free(text);
    berth_plan_release(plan);
    berth_plan_release(back);
}

static void test_overlapping_offsets_are_refused(void **state)
{
    (void)state;
    berth_plan *plan = new_plan();
    berth_plan_allocation a[2] = {BERTH_PLAN_ALLOCATION_INIT, BERTH_PLAN_ALLOCATION_INIT};
    for (size_t i = 0; i < 2; i++) {
        a[i].size_bytes = 64;
        a[i].alignment = 64;
        a[i].freed_at = 2;
    }
    assert_int_equal(berth_plan_set(plan, a, 2, NULL), BERTH_OK);
    uint64_t print = berth_plan_fingerprint(plan);
    char text[256];
    static const struct {
        const char *rows;
        berth_status status;
    } cases[] = {
        {"0,0,2,64,64,0\n1,1,2,64,64,64\n", BERTH_OK},
        {"1,1,2,64,64,64\n0,0,2,64,64,0\n", BERTH_OK}, /* in any order */
        {"0,0,2,64,64,0\n1,1,2,64,64,0\n", BERTH_MISMATCH},
        {"0,0,2,64,64,0\n1,1,2,64,64,96\n", BERTH_MISMATCH},
        {"0,0,2,64,64,0\n1,1,2,64,64,\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n2,1,2,64,64,64\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n1,0,2,64,64,64\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n1,1,3,64,64,64\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n1,1,2,0,64,64\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n1,1,2,64,3,66\n", BERTH_BAD_DATA},
        {"0,0,2,64,64,0\n1,1,2,65,64,64\n", BERTH_BAD_DATA}, /* another program: the fingerprint */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char rows[128] = "", *to = rows;
        for (const char *p = cases[i].rows; *p; p++) { /* the label's column is empty but for the last row */
            if (*p == '\n')
                *to++ = ',';
            *to++ = *p;
        }
        snprintf(text, sizeof text,
                 "id,lower,upper,size,alignment,offset,label\n%sfingerprint,2,2,0,1,0,%016llx\n", rows,
                 (unsigned long long)print);
        write_all(text, strlen(text));
        assert_int_equal(berth_plan_load(plan, path), cases[i].status);
    }
    assert_int_equal(berth_plan_load(plan, "no/such/file.csv"), BERTH_IO);
    assert_int_equal(berth_plan_load(plan, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_save(NULL, path), BERTH_INVALID_ARGUMENT);
    berth_plan_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_and_loaded),
        cmocka_unit_test(test_a_saved_plan_is_a_problem_file),
        cmocka_unit_test(test_a_file_cut_short_is_refused),
        cmocka_unit_test(test_a_damaged_file_is_never_another_plan),
        cmocka_unit_test(test_overlapping_offsets_are_refused),
    };
    return cmocka_run_group_tests(tests, name_file, remove_file);
}

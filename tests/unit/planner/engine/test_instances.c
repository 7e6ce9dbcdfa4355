/* All instances at hand: by default `auto` is never above a single solver that runs to its end, with the alignment
 * of the file and with the one that a recording's end plans with; and the greatest effort is never above the default.
 * Without BERTH_DATA skipped, and said so, but for what is generated. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/problem_file.h"
#include "plan_families.h"
#include "scale.h"

enum { LARGEST = SCALE == 1 ? 200000 : 1000, SMALL = 2000 };

static uint64_t solve(const berth_problem *problem, const char *solver, uint64_t *offsets)
{
    berth_certificate c = {.struct_size = sizeof c};
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver};
    assert_int_equal(berth_solve(problem, &options, offsets, &c), BERTH_OK);
    return c.peak_bytes;
}

static void expect_not_worse(const char *path, uint32_t alignment)
{
    berth_problem_file *file;
    assert_int_equal(berth_problem_file_read(path, &file), BERTH_OK);
    berth_problem problem = *berth_problem_file_problem(file);
    problem.alignment = alignment;
    uint64_t *offsets = malloc((problem.buffer_count + 1) * sizeof *offsets);
    const uint64_t best = problem.buffer_count <= LARGEST ? solve(&problem, NULL, offsets) : 0;
    for (size_t k = 1; best && berth_solver_name(k); k++)
        if (solve(&problem, berth_solver_name(k), offsets) < best)
            fail_msg("%s, alignment %u: %s is better than auto", path, alignment, berth_solver_name(k));
    free(offsets);
    berth_problem_file_destroy(file);
}

/* The greatest effort goes on for minutes where the default has found no proof; some steps beyond those of the default
 * are enough to see that it begins with all that the default does. */
static berth_stop soon_after(void *context, const berth_progress *progress)
{
    const uint64_t *steps = context;
    return progress->steps > *steps + 200000 ? BERTH_STOP_CLOCK : BERTH_STOP_DONE;
}

/* Returns whether the default left something to find. */
static bool expect_max_not_worse(const char *name, const berth_problem *problem)
{
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    berth_certificate usual = {.struct_size = sizeof usual}, most = {.struct_size = sizeof most};
    berth_solve_options options = {.struct_size = sizeof options};
    assert_int_equal(berth_solve(problem, &options, offsets, &usual), BERTH_OK);
    options.effort = BERTH_EFFORT_MAX;
    options.progress = soon_after;
    options.context = &usual.steps;
    assert_int_equal(berth_solve(problem, &options, offsets, &most), BERTH_OK);
    assert_int_equal(berth_problem_check(problem, offsets, NULL), BERTH_OK);
    if (most.peak_bytes > usual.peak_bytes || most.lower_bound_bytes < usual.lower_bound_bytes)
        fail_msg("%s: the greatest effort ends at %llu, the default at %llu", name,
                 (unsigned long long)most.peak_bytes, (unsigned long long)usual.peak_bytes);
    free(offsets);
    return !usual.proven_optimal;
}

static void expect_max_not_worse_of(const char *path)
{
    berth_problem_file *file;
    assert_int_equal(berth_problem_file_read(path, &file), BERTH_OK);
    const berth_problem *problem = berth_problem_file_problem(file);
    if (problem->buffer_count < SMALL)
        expect_max_not_worse(path, problem);
    berth_problem_file_destroy(file);
}

/* Alignments waste what no bound knows of, so that there is no proof. */
static void test_max_is_never_worse_than_the_default(void **state)
{
    (void)state;
    enum { COUNT = 40, SETS = 4 };
    unsigned open = 0;
    for (uint64_t seed = 0; seed < SETS; seed++) {
        berth_problem_buffer buffers[COUNT];
        uint64_t random = seed << 32;
        for (size_t i = 0; i < COUNT; i++) {
            const uint64_t size = 1 + family_below(&random, 1000);
            family_buffer_anywhere(&buffers[i], &random, COUNT, COUNT / 4, size);
            buffers[i].alignment = (uint32_t)1 << family_below(&random, 9);
        }
        const berth_problem problem = {
            .struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT};
        open += expect_max_not_worse("a random set", &problem);
    }
    assert_int_equal(open, SETS);
}

static unsigned visit(const char *folder)
{
    unsigned count = 0;
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing));) {
        char path[4096 + 512];
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".csv") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        expect_not_worse(path, 1);
        expect_not_worse(path, 64);
        expect_max_not_worse_of(path);
        count++;
    }
    if (listing)
        closedir(listing);
    return count;
}

static void test_auto_is_never_worse_than_a_solver(void **state)
{
    (void)state;
    static const char *const folders[] = {"minimalloc", "graphs", "traces", "models"};
    const char *data = getenv("BERTH_DATA");
    unsigned count = 0;
    for (size_t k = 0; data && k < sizeof folders / sizeof *folders; k++) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%s/planner/%s", data, folders[k]);
        count += visit(folder);
    }
    if (count == 0) {
        print_message("there are no instances; name their folder with BERTH_DATA\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_is_never_worse_than_a_solver),
        cmocka_unit_test(test_max_is_never_worse_than_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

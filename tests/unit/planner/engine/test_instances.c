/* All instances at hand: by default `auto` is never above a single solver that runs to its end, with the alignment
 * of the file and with the one that a recording's end plans with. Skipped, and said so, without BERTH_DATA. */
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
#include "scale.h"

enum { LARGEST = SCALE == 1 ? 200000 : 1000 };

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_auto_is_never_worse_than_a_solver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

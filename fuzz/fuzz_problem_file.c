/* Any bytes as a problem file: either refused with words, or a problem that can be planned and checked. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "berth/problem_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void plan(const berth_problem *problem)
{
    static const char *const solvers[] = {"greedy", "best-fit-breadth"};
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    must(offsets);
    for (size_t k = 0; k < BERTH_COUNT_OF(solvers); k++) {
        berth_solve_options options = {.struct_size = sizeof options, .solver = solvers[k]};
        berth_certificate c = {.struct_size = sizeof c};
        berth_status status = berth_solve(problem, &options, offsets, &c);
        /* alignments of a group may have no common multiple within 63 bits */
        must(status == BERTH_OK || status == BERTH_OVERFLOW);
        if (!status) {
            must(berth_problem_check(problem, offsets, NULL) == BERTH_OK);
            must(c.lower_bound_bytes <= c.peak_bytes);
        }
    }
    free(offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* a copy of exactly this size, so that a look past its end is seen */
    char *text = malloc(size ? size : 1);
    must(text);
    if (size)
        memcpy(text, data, size);
    uint64_t live = berth__heap_live();
    berth_problem_file *file = NULL;
    berth_status status = berth_problem_file_parse(text, size, &file);
    must((status == BERTH_OK) == (file != NULL));
    must(status == BERTH_OK || berth_last_error()->message[0]);
    if (!status) {
        const berth_problem *problem = berth_problem_file_problem(file);
        char name[16];
        for (size_t i = 0; i < problem->buffer_count && i < 200; i++) {
            must(berth_problem_file_id(file, i, name, sizeof name) > 0);
            berth_problem_file_label(file, i, name, sizeof name);
            must(berth_problem_file_line(file, i) >= 2);
        }
        if (problem->buffer_count < 300)
            plan(problem);
        berth_problem_file_destroy(file);
    }
    must(berth__heap_live() == live);
    free(text);
    return 0;
}

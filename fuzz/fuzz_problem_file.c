/* Any bytes as a problem file: either refused with words, or a problem that can be planned and checked. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "berth/problem_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* So that an input takes milliseconds: a search that does not end with its steps is a hang, and seen as one.
 */
enum { STEPS = 3000 };

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Plans, and holds the answer against the checker. */
static void plan(const berth_problem *problem, const char *solver, uint64_t *offsets)
{
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver, .step_budget = STEPS};
    berth_certificate c = {.struct_size = sizeof c};
    berth_status status = berth_solve(problem, &options, offsets, &c);
    /* alignments of a group may have no common multiple within 63 bits */
    must(!status || status == BERTH_OVERFLOW);
    if (!status) {
        must(berth_problem_check(problem, offsets, NULL) == BERTH_OK);
        must(c.lower_bound_bytes <= c.peak_bytes);
        must(c.steps <= STEPS + 100 * (uint64_t)problem->buffer_count + 10000);
    }
}

/* The same problem without what `left_out` names, or with alignments that are no powers of two. */
enum { PINS = 1, GAPS = 2, GROUPS = 4, ODD_ALIGNMENTS = 8, VARIANTS = 16 };

static void vary(const berth_problem *problem, unsigned left_out, berth_problem_buffer *buffers)
{
    for (size_t i = 0; i < problem->buffer_count; i++) {
        buffers[i] = problem->buffers[i];
        if (left_out & PINS)
            buffers[i].fixed_offset = BERTH_NO_OFFSET;
        if (left_out & GAPS)
            buffers[i].gap_count = 0;
        if (left_out & GROUPS)
            buffers[i].alias_group = 0;
        if ((left_out & ODD_ALIGNMENTS) && buffers[i].fixed_offset == BERTH_NO_OFFSET)
            buffers[i].alignment = 1 + (uint32_t)(i * 7 % 12);
    }
}

/* What stands in the file, by every solver; and by `auto` what becomes of it when parts are left out. */
static void plan_all(const berth_problem *problem)
{
    berth_problem_buffer *buffers = malloc((problem->buffer_count + 1) * sizeof *buffers);
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    must(buffers && offsets);
    for (size_t k = 0; berth_solver_name(k); k++)
        plan(problem, berth_solver_name(k), offsets);
    for (unsigned left_out = 1; left_out < VARIANTS; left_out++) {
        berth_problem varied = *problem;
        varied.buffers = buffers;
        vary(problem, left_out, buffers);
        if (berth_problem_validate(&varied) == BERTH_OK) /* pins may collide once gaps are closed */
            plan(&varied, "auto", offsets);
    }
    free(offsets);
    free(buffers);
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
    must((!status) == (file != NULL));
    must(!status || berth_last_error()->message[0]);
    if (!status) {
        const berth_problem *problem = berth_problem_file_problem(file);
        char name[16];
        for (size_t i = 0; i < problem->buffer_count && i < 200; i++) {
            must(berth_problem_file_id(file, i, name, sizeof name) > 0);
            berth_problem_file_label(file, i, name, sizeof name);
            must(berth_problem_file_line(file, i) >= 2);
        }
        if (problem->buffer_count < 300)
            plan_all(problem);
        berth_problem_file_destroy(file);
    }
    must(berth__heap_live() == live);
    free(text);
    return 0;
}

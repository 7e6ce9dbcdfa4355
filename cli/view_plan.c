/* Plans for what berth view shows: the places that the blocks could have had. */
#include <stdlib.h>
#include <string.h>

#include "berth/problem_file.h"
#include "cli/view.h"

/* The planner tells of steps, of which nobody knows how many there will be. */
static berth_stop plan_progress(void *context, const berth_progress *progress)
{
    cli_progress_show(context, progress->steps, 0);
    return BERTH_STOP_DONE;
}

static berth_solve_options plan_options(cli_progress *progress)
{
    berth_solve_options options = BERTH_SOLVE_OPTIONS_INIT;
    options.effort = BERTH_EFFORT_FAST;
    options.progress = plan_progress;
    options.context = progress;
    return options;
}

static void plan_take(view_space *s, uint64_t *offsets, const berth_certificate *certificate)
{
    s->planned = offsets;
    s->certificate = *certificate;
    if (certificate->lower_bound_bytes > s->bound_bytes)
        s->bound_bytes = certificate->lower_bound_bytes;
}

static berth_status plan_space(const view *v, view_space *s, uint32_t alignment, cli_progress *progress)
{
    const format_history *h = v->h;
    berth_solve_options options = plan_options(progress);
    berth_certificate certificate = BERTH_CERTIFICATE_INIT;
    berth_problem problem = BERTH_PROBLEM_INIT;
    uint64_t *offsets = malloc(((size_t)s->block_count + 1) * sizeof *offsets);
    berth_problem_buffer *buffers = calloc((size_t)s->block_count + 1, sizeof *buffers);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (offsets && buffers) {
        for (uint32_t i = 0; i < s->block_count; i++) {
            const format_block *b = &h->blocks[s->blocks[i]];
            buffers[i] = (berth_problem_buffer){.lower = b->begin,
                                                .upper = b->end == FORMAT_ALIVE ? h->event_count : b->end,
                                                .size_bytes = b->size_bytes,
                                                .fixed_offset = BERTH_NO_OFFSET,
                                                .alignment = alignment};
        }
        problem.buffers = buffers;
        problem.buffer_count = s->block_count;
        status = berth_solve(&problem, &options, offsets, &certificate);
    }
    free(buffers);
    if (!status)
        plan_take(s, offsets, &certificate);
    else
        free(offsets);
    return status;
}

/* ---- From the file that the history was read from ---------------------------------------------------- */

struct order {
    int64_t lower;
    size_t buffer;
};

static int compare_orders(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    if (x->lower != y->lower)
        return x->lower < y->lower ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* A problem that says more than lives and sizes has told of each block which row it is of: a row may be several blocks. */
static bool plan_order_told(const view *v, const view_space *s, size_t row_count, struct order *order)
{
    bool fine = true;
    for (uint32_t i = 0; i < s->block_count; i++) {
        order[i] = (struct order){0, v->h->ties[s->blocks[i]].row};
        fine = fine && order[i].buffer < row_count;
    }
    return fine;
}

/* Blocks are the buffers that take memory at some time, by their begins and then in the order of the rows. */
static bool plan_order(const berth_problem *problem, struct order *order, size_t expected)
{
    size_t count = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].size_bytes && problem->buffers[i].lower < problem->buffers[i].upper)
            order[count++] = (struct order){problem->buffers[i].lower, i};
    qsort(order, count, sizeof *order, compare_orders);
    return count == expected;
}

/* Takes the lives away from `file`, which only its solving may see. */
static berth_status plan_file(const view *v, view_space *s, berth_problem_file *file, cli_progress *progress)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    berth_solve_options options = plan_options(progress);
    berth_certificate certificate = BERTH_CERTIFICATE_INIT;
    size_t count = problem->buffer_count;
    const size_t rooms = count > s->block_count ? count : s->block_count;
    struct order *order = malloc((rooms + 1) * sizeof *order);
    uint64_t *solved = malloc((count + 1) * sizeof *solved);
    uint64_t *offsets = malloc((rooms + 1) * sizeof *offsets);
    berth_status status = order && solved && offsets ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    if (!status &&
        !(v->h->ties ? plan_order_told(v, s, count, order) : plan_order(problem, order, s->block_count)))
        status = BERTH_MISMATCH; /* it was another file when the history was read */
    if (!status)
        status = berth_problem_file_solve(file, 0, 0, &options, solved, &certificate);
    if (!status) {
        for (uint32_t i = 0; i < s->block_count; i++)
            offsets[i] = solved[order[i].buffer];
        plan_take(s, offsets, &certificate);
        offsets = NULL;
    }
    free(order);
    free(solved);
    free(offsets);
    return status;
}

berth_status view_plan(view *v, const char *path, uint32_t alignment, cli_progress *progress)
{
    berth_problem_file *file = NULL;
    berth_status status = path ? berth_problem_file_read(path, &file) : BERTH_OK;
    for (uint32_t i = 0; !status && i < v->space_count; i++) {
        view_space *s = &v->spaces[i];
        if (s->block_count > VIEW_PLAN_MOST) {
            s->not_planned = "not planned, since it has more than two million blocks";
            continue;
        }
        status = file ? plan_file(v, s, file, progress) : plan_space(v, s, alignment, progress);
        if (status == BERTH_OVERFLOW || status == BERTH_INVALID_ARGUMENT) {
            s->not_planned = "not planned, since its sizes add up to more than 63 bits";
            status = BERTH_OK;
        }
    }
    berth_problem_file_destroy(file);
    return status;
}

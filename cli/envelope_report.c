/* Who drives the peak of an envelope: each input alone, at the binding moment, and left out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/envelope.h"
#include "cli/size.h"

/* The least that a search is given when the budget is used up: it then answers with its first plan. */
#define LEAST_SECONDS 1e-3

/* ---- Judging ---------------------------------------------------------------------------------------- */

/* Ranks mostly run the same program: what is alike is planned once. */
static const cli_envelope_part *planned_before(const cli_envelope *e, size_t part)
{
    for (size_t k = 0; k < part; k++)
        if (e->parts[k].fingerprint == e->parts[part].fingerprint)
            return &e->parts[k];
    return NULL;
}

static int plan_alone(const char *verb, cli_envelope *e, size_t part, const cli_solving *how,
                      uint32_t alignment, double *left_seconds)
{
    cli_envelope_part *one = &e->parts[part];
    const cli_envelope_part *same = planned_before(e, part);
    if (same) {
        one->own = same->own;
        return CLI_OK;
    }
    cli_solving alone = {.options = how->options};
    berth_problem problem = *berth_problem_file_problem(one->file);
    problem.alignment = alignment;
    alone.options.minimise = false;
    alone.budget_seconds = how->budget_seconds <= 0        ? 0
                           : *left_seconds > LEAST_SECONDS ? *left_seconds
                                                           : LEAST_SECONDS;
    uint64_t *offsets = malloc((problem.buffer_count + 1) * sizeof *offsets);
    berth_status status =
        offsets ? cli_solve(&alone, one->file, &problem, offsets) : BERTH_OUT_OF_HOST_MEMORY;
    free(offsets);
    *left_seconds -= alone.seconds;
    one->own = alone.certificate;
    return status ? cli_problem_fail_of(verb, status, one->path, one->file) : CLI_OK;
}

static bool is_live_at(const berth_problem *p, const berth_problem_buffer *b, int64_t time)
{
    if (time < b->lower || time >= b->upper)
        return false;
    for (size_t g = 0; g < b->gap_count; g++)
        if (time >= p->gaps[b->gap_first + g].lower && time < p->gaps[b->gap_first + g].upper)
            return false;
    return true;
}

static uint64_t live_at(const cli_envelope *e, size_t part, int64_t time)
{
    const berth_problem *p = berth_problem_file_problem(e->parts[part].file);
    uint64_t bytes = 0;
    cli_envelope_rows_of(e, part);
    for (size_t i = 0; i < e->row_count; i++)
        bytes += is_live_at(p, &e->part[i], time) ? e->part[i].size_bytes : 0;
    return bytes;
}

/* Into e->part: the envelope of all inputs but one. False: that one is nowhere the largest alone. */
static bool leave_out(const cli_envelope *e, size_t part)
{
    bool matters = false;
    for (size_t i = 0; i < e->row_count; i++) {
        const cli_envelope_top *size = &e->sizes[i], *end = &e->ends[i];
        berth_problem_buffer *b = &e->part[i];
        *b = e->rows[i];
        if (size->owner == part && size->second < size->first) {
            b->size_bytes = size->second;
            matters = true;
        }
        if (end->owner == part && end->second < end->first) {
            b->upper = (int64_t)((uint64_t)b->lower + end->second);
            b->gap_count = 0; /* they may lie outside the shorter life */
            matters = true;
        }
    }
    return matters;
}

static berth_status judge_part(cli_envelope *e, size_t part, const berth_certificate *all,
                               const berth_problem *problem)
{
    cli_envelope_part *one = &e->parts[part];
    one->at_binding_bytes = live_at(e, part, all->binding_time);
    one->without_bytes = all->max_live_bytes;
    if (!leave_out(e, part))
        return BERTH_OK;
    berth_problem others = *problem;
    const berth_problem *first = berth_problem_file_problem(e->parts[0].file);
    others.buffers = e->part;
    others.gaps = first->gaps;
    others.gap_count = first->gap_count;
    others.capacity_bytes = 0;
    return berth_problem_max_live(&others, &one->without_bytes, NULL);
}

static size_t find_driver(const cli_envelope *e, uint64_t max_live)
{
    size_t driver = e->count;
    uint64_t least = max_live;
    for (size_t k = 0; k < e->count; k++)
        if (e->parts[k].without_bytes < least) {
            least = e->parts[k].without_bytes;
            driver = k;
        }
    return driver;
}

int cli_envelope_judge(const char *verb, cli_envelope *e, const cli_solving *how,
                       const berth_problem *problem)
{
    double left = how->budget_seconds - how->seconds;
    for (size_t k = 0; k < e->count; k++) {
        int code = plan_alone(verb, e, k, how, problem->alignment, &left);
        berth_status status = code ? BERTH_OK : judge_part(e, k, &how->certificate, problem);
        if (code || status)
            return code ? code : cli_problem_fail(verb, status, e->parts[k].path);
    }
    e->driver = find_driver(e, how->certificate.max_live_bytes);
    return CLI_OK;
}

/* ---- Saying ----------------------------------------------------------------------------------------- */

static size_t largest_at_binding(const cli_envelope *e)
{
    size_t largest = 0;
    for (size_t k = 1; k < e->count; k++)
        largest = e->parts[k].at_binding_bytes > e->parts[largest].at_binding_bytes ? k : largest;
    return largest;
}

static void say_driver(FILE *out, const cli_envelope *e, uint64_t max_live)
{
    char size[CLI_SIZE_ROOM], less[CLI_SIZE_ROOM];
    if (e->driver < e->count) {
        const cli_envelope_part *one = &e->parts[e->driver];
        fprintf(out, "\n%s drives the peak: without it %s would be live at most, %s less\n", one->path,
                cli_size_text(one->without_bytes, size), cli_size_text(max_live - one->without_bytes, less));
        return;
    }
    const cli_envelope_part *one = &e->parts[largest_at_binding(e)];
    fprintf(out, "\nNo input drives the peak alone; %s has most live at the binding moment, %s\n", one->path,
            cli_size_text(one->at_binding_bytes, size));
}

void cli_envelope_report(FILE *out, const cli_envelope *e, const berth_certificate *c)
{
    char peak[CLI_SIZE_ROOM], bound[CLI_SIZE_ROOM], then[CLI_SIZE_ROOM], without[CLI_SIZE_ROOM];
    fprintf(out, "\n  of %zu inputs: %zu size%s and %zu li%s not the same in all%s\n\n", e->count,
            e->other_size, e->other_size == 1 ? "" : "s", e->other_life, e->other_life == 1 ? "fe" : "ves",
            e->same_times ? "" : "; times are numbers of allocations");
    fprintf(out, "  %10s  %11s  %10s  %10s  %s\n", "own peak", "lower bound", "binding", "without", "input");
    for (size_t k = 0; k < e->count; k++) {
        const cli_envelope_part *one = &e->parts[k];
        fprintf(out, "  %10s  %11s  %10s  %10s  %s\n", cli_size_text(one->own.peak_bytes, peak),
                cli_size_text(one->own.lower_bound_bytes, bound), cli_size_text(one->at_binding_bytes, then),
                one->without_bytes < c->max_live_bytes ? cli_size_text(one->without_bytes, without)
                                                       : "the same",
                one->path);
    }
    say_driver(out, e, c->max_live_bytes);
}

void cli_envelope_json(cli_json *json, const cli_envelope *e)
{
    cli_json_bool(json, "same_times", e->same_times);
    cli_json_number(json, "sizes_differ", e->other_size);
    cli_json_number(json, "lives_differ", e->other_life);
    cli_json_text(json, "driver", e->driver < e->count ? e->parts[e->driver].path : NULL);
    cli_json_list_begin(json, "inputs");
    for (size_t k = 0; k < e->count; k++) {
        const cli_envelope_part *one = &e->parts[k];
        cli_json_item_begin(json);
        cli_json_text(json, "input", one->path);
        cli_json_number(json, "peak", one->own.peak_bytes);
        cli_json_number(json, "lower_bound", one->own.lower_bound_bytes);
        cli_json_number(json, "max_live", one->own.max_live_bytes);
        cli_json_bool(json, "proven_optimal", one->own.proven_optimal);
        cli_json_number(json, "at_binding", one->at_binding_bytes);
        cli_json_number(json, "without", one->without_bytes);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

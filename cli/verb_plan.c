/* berth plan: gives every buffer of a problem its place, says how good the plan is, and draws it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/envelope.h"
#include "cli/json.h"
#include "cli/map.h"
#include "cli/options.h"
#include "cli/place.h"
#include "cli/problem.h"
#include "cli/size.h"
#include "cli/solving.h"

enum { LISTED = 8, ENVELOPE_NAME_ROOM = 48 };

typedef struct plan_request {
    const char **inputs; /* as many as arguments at most */
    size_t input_count;
    const char *input, *output, *write, *solver, *effort, *without, *colour;
    uint64_t capacity, alignment, seed, step_budget, width, height;
    double budget_seconds;
    bool minimise, json, explain, reorder, quiet, ascii;
    cli_model_options model;
} plan_request;

typedef struct plan_answer {
    berth_problem_file *file;
    cli_model *model;       /* NULL: the input is none */
    cli_envelope *envelope; /* NULL: there is one input */
    berth_problem problem;
    uint64_t *offsets;
    cli_solving solving;
} plan_answer;

static int check_solver(const char *name)
{
    const char *names[32];
    size_t count = 0;
    for (; count < 32 && berth_solver_name(count); count++) {
        names[count] = berth_solver_name(count);
        if (strcmp(name, names[count]) == 0)
            return CLI_OK;
    }
    const char *near = cli_nearest(name, names, count);
    if (near)
        return cli_misuse("plan", "there is no solver '%s'; did you mean '%s'?", name, near);
    char all[512] = "";
    for (size_t k = 0, used = 0; k < count && used < sizeof all; k++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k ? ", " : "", names[k]);
    return cli_misuse("plan", "there is no solver '%s'; there are %s", name, all);
}

static bool is_phase(const char *word, size_t length)
{
    for (size_t k = 0; berth_phase_name(k); k++)
        if (strlen(berth_phase_name(k)) == length && strncmp(word, berth_phase_name(k), length) == 0)
            return true;
    return false;
}

static int no_phase(const char *word, size_t length)
{
    enum { PHASES = 64, ROOM = 32 };
    const char *names[PHASES];
    char cut[ROOM];
    size_t count = 0;
    for (; count < PHASES && berth_phase_name(count); count++)
        names[count] = berth_phase_name(count);
    snprintf(cut, sizeof cut, "%.*s", (int)(length < ROOM ? length : ROOM), word);
    const char *near = cli_nearest(cut, names, count);
    return near ? cli_misuse("plan", "there is no phase '%.*s'; did you mean '%s'?", (int)length, word, near)
                : cli_misuse("plan", "there is no phase '%.*s'; --explain shows those that run", (int)length,
                             word);
}

/* Phases with commas between, each of which there is. */
static int check_phases(const char *list)
{
    for (const char *at = list; *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (!is_phase(at, length))
            return no_phase(at, length);
        at += length;
    }
    return CLI_OK;
}

static int read_request(int argc, char **argv, plan_request *r)
{
    const struct cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &r->output},
        {"--write", NULL, CLI_TEXT, &r->write},
        {"--solver", NULL, CLI_TEXT, &r->solver},
        {"--capacity", NULL, CLI_SIZE, &r->capacity},
        {"--minimise", NULL, CLI_FLAG, &r->minimise},
        {"--align", NULL, CLI_SIZE, &r->alignment},
        {"--seed", NULL, CLI_NUMBER, &r->seed},
        {"--effort", NULL, CLI_TEXT, &r->effort},
        {"--steps", NULL, CLI_NUMBER, &r->step_budget},
        {"--budget", NULL, CLI_SECONDS, &r->budget_seconds},
        {"--json", NULL, CLI_FLAG, &r->json},
        {"--reorder", NULL, CLI_FLAG, &r->reorder},
        {"--explain", NULL, CLI_FLAG, &r->explain},
        {"--without", NULL, CLI_TEXT, &r->without},
        {"--width", NULL, CLI_NUMBER, &r->width},
        {"--height", NULL, CLI_NUMBER, &r->height},
        {"--minimize", NULL, CLI_FLAG, &r->minimise},
        {"--quiet", "-q", CLI_FLAG, &r->quiet},
        {"--ascii", NULL, CLI_FLAG, &r->ascii},
        {"--color", NULL, CLI_TEXT, &r->colour},
        CLI_MODEL_OPTIONS(r->model),
        {"--device", NULL, CLI_TEXT, &r->model.device},
    };
    int code = cli_options_read("plan", argc, argv, options, sizeof options / sizeof options[0], r->inputs,
                                (size_t)argc, &r->input_count);
    bool colour;
    if (code)
        return code;
    r->input = r->input_count ? r->inputs[0] : cli_problem_unnamed();
    if (!r->input)
        return cli_misuse("plan", "which problem? Name a CSV file, or - for the standard input");
    if (r->alignment > UINT32_MAX)
        return cli_misuse("plan", "--align %" PRIu64 " is larger than any alignment", r->alignment);
    if (r->json && r->output && cli_is_stdout(r->output))
        return cli_misuse("plan", "--json and -o %s would both go to the standard output", r->output);
    if (!cli_map_colour(r->colour, stdout, &colour))
        return cli_misuse("plan", "--color is auto, always or never, not '%s'", r->colour);
    code = r->without ? check_phases(r->without) : CLI_OK;
    return !code && r->solver ? check_solver(r->solver) : code;
}

static int read_effort(const char *word, berth_effort *effort)
{
    static const char *const words[] = {"default", "fast", "max"};
    for (int k = 0; k < 3; k++)
        if (!word || strcmp(word, words[k]) == 0) {
            *effort = (berth_effort)k;
            return CLI_OK;
        }
    return cli_misuse("plan", "--effort is fast, default or max, not '%s'", word);
}

/* ---- The answer in numbers ------------------------------------------------------------------------ */

static void print_json(const plan_request *r, const plan_answer *a)
{
    const berth_certificate *c = &a->solving.certificate;
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, c->fingerprint);
    cli_json json;
    cli_json_begin(&json, stdout);
    cli_json_number(&json, "schema", 1);
    cli_json_text(&json, "input", r->input);
    cli_json_number(&json, "buffers", a->problem.buffer_count);
    cli_json_number(&json, "lower_bound", c->lower_bound_bytes);
    cli_json_number(&json, "max_live", c->max_live_bytes);
    cli_json_number(&json, "peak", c->peak_bytes);
    cli_json_number(&json, "naive_bytes", c->naive_bytes);
    cli_json_number(&json, "alignment", a->problem.alignment);
    if (r->capacity)
        cli_json_number(&json, "capacity", r->capacity);
    else
        cli_json_null(&json, "capacity");
    cli_json_text(&json, "fits", cli_fits_word(c->fits));
    cli_json_bool(&json, "proven_optimal", c->proven_optimal);
    cli_json_text(&json, "solver", r->solver ? r->solver : "auto");
    cli_json_text(&json, "found_by", c->solver);
    cli_json_number(&json, "seed", c->seed);
    cli_json_number(&json, "steps", c->steps);
    cli_json_text(&json, "stopped_by", cli_stop_word(c->stopped_by));
    cli_json_real(&json, "seconds", a->solving.seconds);
    cli_json_signed(&json, "binding_time", c->binding_time);
    cli_json_number(&json, "binding_buffers", c->binding_buffers);
    cli_json_text(&json, "fingerprint", fingerprint);
    cli_json_numbers(&json, "offsets", a->offsets, a->problem.buffer_count);
    if (a->model)
        cli_model_json(&json, a->model, c, a->offsets);
    if (a->envelope)
        cli_envelope_json(&json, a->envelope);
    cli_json_end(&json);
}

/* ---- The answer for a person ---------------------------------------------------------------------- */

static void print_figures(FILE *out, const plan_request *r, const plan_answer *a)
{
    const berth_certificate *c = &a->solving.certificate;
    char size[CLI_SIZE_ROOM], gap[CLI_SIZE_ROOM], time[CLI_SIZE_ROOM];
    fprintf(out, "%s: %zu buffer%s planned in %s by %s\n\n",
            strcmp(r->input, "-") == 0 ? "standard input" : r->input, a->problem.buffer_count,
            a->problem.buffer_count == 1 ? "" : "s", cli_time_text(a->solving.seconds, time), c->solver);
    fprintf(out, "  peak         %12s  %" PRIu64 " byte%s\n", cli_size_text(c->peak_bytes, size),
            c->peak_bytes, c->peak_bytes == 1 ? "" : "s");
    fprintf(out, "  lower bound  %12s  ", cli_size_text(c->lower_bound_bytes, size));
    if (c->proven_optimal)
        fprintf(out, "reached: no plan is smaller\n");
    else
        fprintf(out, "%s: the best plan there is lies between\n",
                cli_gap_text(c->peak_bytes, c->lower_bound_bytes, gap));
    fprintf(out, "  separately   %12s", cli_size_text(c->naive_bytes, size));
    if (c->peak_bytes)
        fprintf(out, "  %.1f times the peak, if no memory were reused",
                (double)c->naive_bytes / (double)c->peak_bytes);
    fputc('\n', out);
    if (r->capacity)
        fprintf(out, "  capacity     %12s  %s\n", cli_size_text(r->capacity, size),
                c->fits == BERTH_FITS_YES  ? "fits"
                : c->fits == BERTH_FITS_NO ? "does not fit, and no plan does"
                                           : "does not fit; whether another plan does is unknown");
    if (c->stopped_by == BERTH_STOP_CLOCK || c->stopped_by == BERTH_STOP_CANCELLED ||
        c->stopped_by == BERTH_STOP_STEPS)
        fprintf(out, "  stopped by   %12s  more time may find a smaller plan\n",
                cli_stop_word(c->stopped_by));
}

static void print_binding(FILE *out, const plan_answer *a, const size_t *live, size_t listed)
{
    const berth_certificate *c = &a->solving.certificate;
    if (!c->binding_buffers)
        return;
    char size[CLI_SIZE_ROOM], id[CLI_ID_ROOM], label[CLI_ID_ROOM];
    fprintf(out, "\nThe binding moment is time %" PRId64 ", with %zu buffer%s live", c->binding_time,
            c->binding_buffers, c->binding_buffers == 1 ? "" : "s");
    fprintf(out, listed < c->binding_buffers ? "; the largest:\n" : ":\n");
    fprintf(out, "     %10s  %6s  %-12s  %-17s  %s\n", "size", "share", "offset", "life", "buffer");
    for (size_t k = 0; k < listed; k++) {
        const berth_problem_buffer *b = &a->problem.buffers[live[k]];
        char life[48];
        snprintf(life, sizeof life, "%" PRId64 "-%" PRId64, b->lower, b->upper);
        fprintf(out, "  %c  %10s  %4.0f %%  %-12" PRIu64 "  %-17s  %s", (int)('A' + k),
                cli_size_text(b->size_bytes, size), 100.0 * (double)b->size_bytes / (double)c->max_live_bytes,
                a->offsets[live[k]], life, cli_problem_id(a->file, live[k], id));
        if (*cli_problem_label(a->file, live[k], label))
            fprintf(out, " (%s)", label);
        fputc('\n', out);
    }
}

/* The last phase after which there was a better plan than before it. */
static size_t phase_that_found(const cli_solving *s)
{
    size_t found = 0;
    uint64_t before = UINT64_MAX;
    for (size_t k = 0; k < s->phase_count; k++) {
        found = s->phases[k].best_bytes < before ? k : found;
        before = s->phases[k].best_bytes;
    }
    return found;
}

static void print_phases(FILE *out, const cli_solving *s)
{
    char time[CLI_SIZE_ROOM], size[CLI_SIZE_ROOM], gained[CLI_SIZE_ROOM];
    uint64_t before = UINT64_MAX;
    const size_t found = phase_that_found(s);
    fprintf(out, "\n  %-20s %10s %14s %12s %12s\n", "phase", "time", "steps", "best after", "gained");
    for (size_t k = 0; k < s->phase_count; k++) {
        const cli_phase *p = &s->phases[k];
        const bool better = p->best_bytes < before, first = better && before == UINT64_MAX;
        fprintf(out, "  %-20s %10s %14" PRIu64 " %12s %12s%s\n", p->name, cli_time_text(p->seconds, time),
                p->steps, p->best_bytes == UINT64_MAX ? "-" : cli_size_text(p->best_bytes, size),
                first    ? "first plan"
                : better ? cli_size_text(before - p->best_bytes, gained)
                         : "-",
                k == found ? "  found the plan" : "");
        before = p->best_bytes;
    }
}

static bool print_report(FILE *out, const plan_request *r, const plan_answer *a)
{
    const berth_certificate *c = &a->solving.certificate;
    size_t live[LISTED], count = 0;
    berth_problem_live(&a->problem, c->binding_time, live, LISTED, &count);
    size_t listed = count < LISTED ? count : LISTED;
    print_figures(out, r, a);
    if (a->model)
        cli_model_report(out, a->model, c);
    if (a->envelope)
        cli_envelope_report(out, a->envelope, c);
    if (r->explain)
        print_phases(out, &a->solving);
    print_binding(out, a, live, listed);
    fputc('\n', out);
    cli_map_style style = {.width = (unsigned)r->width,
                           .height = (unsigned)r->height,
                           .ascii = r->ascii || cli_map_ascii(),
                           .lettered = live,
                           .lettered_count = listed,
                           .mark_time = count > 0,
                           .time = c->binding_time};
    cli_map_colour(r->colour, out, &style.colour);
    return cli_map_draw(out, &a->problem, a->offsets, c->peak_bytes, &style);
}

/* ---- The verb ------------------------------------------------------------------------------------- */

static int say_whether_it_fits(const plan_request *r, const plan_answer *a)
{
    const berth_certificate *c = &a->solving.certificate;
    if (c->fits == BERTH_FITS_YES)
        return CLI_OK;
    char size[CLI_SIZE_ROOM];
    uint64_t over = c->peak_bytes - r->capacity;
    fflush(stdout); /* where both go to one place this comes after the report, not into it */
    if (c->fits == BERTH_FITS_NO)
        fprintf(stderr,
                "berth plan: does not fit: the plan is %" PRIu64
                " byte%s (%s) above the capacity, and no plan "
                "needs less than %" PRIu64 "\n",
                over, over == 1 ? "" : "s", cli_size_text(over, size), c->lower_bound_bytes);
    else
        fprintf(stderr,
                "berth plan: no plan that fits was found: the best is %" PRIu64
                " byte%s (%s) above the capacity; --effort max or a longer --budget may find one\n",
                over, over == 1 ? "" : "s", cli_size_text(over, size));
    if (r->output)
        fprintf(stderr, "berth plan: nothing is written to '%s'; without --capacity the plan would be\n",
                r->output);
    return CLI_NO;
}

/* As rows, or as constants if the name says so. */
static int keep(const plan_request *r, const plan_answer *a)
{
    size_t length = strlen(r->output);
    if (length > 2 && strcmp(r->output + length - 2, ".h") == 0)
        return cli_header_write("plan", a->file, a->offsets, a->solving.certificate.peak_bytes, r->output);
    cli_place_rows_begin(r->output);
    berth_status status = berth_problem_file_write(a->file, a->offsets, r->output);
    cli_place_rows_end();
    return status ? cli_fail("plan", status, "") : CLI_OK;
}

static int answer(const plan_request *r, plan_answer *a)
{
    bool to_stdout = r->output && cli_is_stdout(r->output);
    /* A plan that does not fit is no answer to keep: what the file holds may be one that does. */
    if (r->output && a->solving.certificate.fits == BERTH_FITS_YES) {
        int code = keep(r, a);
        if (code)
            return code;
    }
    if (r->write && a->solving.certificate.fits == BERTH_FITS_YES) {
        int code = cli_model_write("plan", a->model, a->offsets, a->solving.certificate.peak_bytes, r->write);
        if (code)
            return code;
    }
    if (r->json)
        print_json(r, a);
    else if (!r->quiet && !print_report(to_stdout ? stderr : stdout, r, a))
        return cli_fail("plan", BERTH_OUT_OF_HOST_MEMORY, "the map");
    return say_whether_it_fits(r, a);
}

/* Solves what was read. */
static int plan_solve(const plan_request *r, plan_answer *a)
{
    a->problem = *berth_problem_file_problem(a->file);
    a->problem.capacity_bytes = r->capacity;
    a->problem.alignment = r->alignment ? (uint32_t)r->alignment : 1;
    a->solving.options.solver = r->solver;
    a->solving.options.step_budget = r->step_budget;
    a->solving.options.seed = r->seed;
    a->solving.options.minimise = r->minimise;
    a->solving.options.without = r->without;
    a->offsets = malloc((a->problem.buffer_count + 1) * sizeof *a->offsets);
    berth_status status =
        a->offsets ? cli_solve(&a->solving, a->file, &a->problem, a->offsets) : BERTH_OUT_OF_HOST_MEMORY;
    return status ? cli_problem_fail_of("plan", status, r->input, a->file) : CLI_OK;
}

static void answer_finish(plan_answer *a)
{
    free(a->offsets);
    berth_problem_file_destroy(a->file);
}

/* The same model in another order, kept if its plan is smaller. */
static int plan_reorder(const plan_request *r, plan_answer *a)
{
    plan_answer other = {.solving.options.effort = a->solving.options.effort};
    cli_model_options options = r->model;
    const uint64_t peak = a->solving.certificate.peak_bytes;
    uint32_t *order = NULL;
    uint64_t bound = 0;
    int code = cli_model_find_order("plan", r->input, a->model, options.inplace, &order, &bound);
    options.order = order;
    if (!code && order)
        code = cli_problem_read_model("plan", r->input, false, &options, &other.file, &other.model);
    free(order);
    const double left = r->budget_seconds - a->solving.seconds;
    other.solving.budget_seconds = r->budget_seconds <= 0 ? 0 : left > 1e-3 ? left : 1e-3;
    if (!code && other.file)
        code = plan_solve(r, &other);
    if (!code && other.file && other.solving.certificate.peak_bytes < peak) {
        answer_finish(a);
        *a = other;
        other = (plan_answer){0};
    }
    answer_finish(&other);
    if (a->model) { /* there is one, or this would not run: it tells the analyzer */
        a->model->file_order_bytes = peak;
        a->model->order_bound = bound;
    }
    return code;
}

/* One input, or the envelope of several. */
static int plan_read(plan_request *r, plan_answer *a, char name[ENVELOPE_NAME_ROOM])
{
    if (r->input_count < 2)
        return cli_problem_read_model("plan", r->input, false, &r->model, &a->file, &a->model);
    snprintf(name, ENVELOPE_NAME_ROOM, "envelope of %zu inputs", r->input_count);
    r->input = name;
    int code = cli_envelope_read("plan", r->inputs, r->input_count, &r->model, &a->envelope);
    if (code)
        return code;
    a->file = a->envelope->file;
    a->envelope->file = NULL;
    return CLI_OK;
}

static int plan_all(plan_request *r, plan_answer *a, char name[ENVELOPE_NAME_ROOM])
{
    int code = read_effort(r->effort, &a->solving.options.effort);
    if (!code)
        code = plan_read(r, a, name);
    if (!code && (r->write || r->reorder) && !a->model)
        code = cli_misuse("plan", a->envelope ? "--write and --reorder are for one model"
                                              : "--write and --reorder are for models");
    a->solving.budget_seconds = r->budget_seconds;
    if (!code)
        code = plan_solve(r, a);
    if (!code && a->envelope)
        code = cli_envelope_judge("plan", a->envelope, &a->solving, &a->problem);
    if (!code && r->reorder)
        code = plan_reorder(r, a);
    return code ? code : answer(r, a);
}

static int plan_run(int argc, char **argv)
{
    plan_request r = {.inputs = calloc((size_t)argc + 1, sizeof *r.inputs)};
    plan_answer a = {0};
    char name[ENVELOPE_NAME_ROOM];
    if (!r.inputs)
        return cli_fail("plan", BERTH_OUT_OF_HOST_MEMORY, "");
    int code = read_request(argc, argv, &r);
    if (!code)
        code = plan_all(&r, &a, name);
    answer_finish(&a);
    cli_envelope_destroy(a.envelope);
    free(r.inputs);
    return code;
}

const struct cli_verb cli_verb_plan = {
    .name = "plan",
    .summary = "give every buffer a place in one arena, and say how good the plan is",
    .help =
        "usage: berth plan INPUT... [-o OUT.csv] [OPTION...]\n\n"
        "INPUT is a CSV file with the columns id,lower,upper,size (see berth help formats or "
        "docs/formats.md)\n"
        "a model (.tflite, .onnx, see docs/models.md), or a recording: a trace (berth record), a snapshot "
        "of PyTorch,\n"
        "an event log, RMM's log, a file of heaptrack or massif, whose blocks are the buffers; - reads the "
        "standard input, and so "
        "does "
        "no\n"
        "INPUT where something is piped in. Prints the peak, the lower bound, what separate allocations "
        "would\n"
        "cost, the binding moment with its largest buffers, and a map of time against address.\n\n"
        "Several INPUTs are runs of one program, as the ranks of a job record them: the plan is for their "
        "envelope, the\n"
        "same allocations in the same order, each at its largest and longest; the report says what each "
        "input "
        "takes\n"
        "alone and which drives the peak. Exit 1 if they are not one program.\n\n"
        "  -o, --output FILE     write the rows with their offsets, or constants for C if it ends in .h, "
        "unless the "
        "plan\n"
        "                        does not fit; - is the standard output, and the report then goes to stderr\n"
        "  --capacity BYTES      stop at the first plan that fits: 1048576, 512K, 1.5M; exit 1 if none is "
        "found\n"
        "  --minimise            with --capacity: go on for a smaller plan (also --minimize)\n"
        "  --align BYTES         round sizes and offsets up to multiples; 1, the default, rounds nothing\n"
        "  --solver NAME         auto, greedy, first-fit-size, first-fit-area, first-fit-breadth,\n"
        "                        best-fit-size, best-fit-area, best-fit-breadth\n"
        "  --effort HOW          fast, default or max: how many steps to search\n"
        "  --steps N             the same as a number; 0 leaves it to --effort\n"
        "  --budget TIME         end the search by the clock, with the best plan so far: 2, 0.5s, 500ms\n"
        "  --seed N              another seed, perhaps another plan; the same seed, the same plan\n"
        "  --json                print the figures as one JSON object\n"
        "  -q, --quiet           no report: the exit code says whether it fits, complaints go to stderr\n"
        "  --explain             show what each phase of the search gained and cost\n"
        "  --without PHASE,...   leave phases of auto out, to see what they are worth\n"
        "  --dim NAME=N          of a model: the size of a dimension that it leaves open, TENSOR:AXIS=N for "
        "one "
        "place,\n"
        "                        *:AXIS=N for that axis of all, *=N for all others; may be repeated\n"
        "  --runtime NAME        of a model: who runs it: micro (the default), tflite, or ort (for .onnx)\n"
        "  --inplace             of a model: operators may write over inputs that nobody needs any more\n"
        "  --scratch FILE        of a model: what kernels need, CSV with the columns operator and bytes\n"
        "  --reorder             of a model: look for an order of its operators whose plan is smaller\n"
        "  --write OUT.tflite    the model with the plan in its metadata, for TensorFlow Lite Micro\n"
        "  --device NAME         of a recording: whose memory; else where the peak is largest; host is the "
        "host's\n"
        "  --width N, --height N of the map, in characters; else the terminal's\n"
        "  --color WHEN          auto, always or never\n"
        "  --ascii               nothing beyond ASCII\n\n"
        "Ctrl-C keeps the best plan found so far.\n\n"
        "examples:\n"
        "  berth plan model.csv\n"
        "  berth plan model.csv --capacity 16M -o planned.csv\n"
        "  berth plan - --json < model.csv\n"
        "  berth plan model.tflite --capacity 64K --write planned.tflite\n"
        "  berth plan model.tflite -o plan.h\n"
        "  berth plan app.trace\n"
        "  berth plan rank*.csv -o all.csv\n",
    .run = plan_run,
};

/* berth convert: a problem in our columns, or a history in the form of another tool. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/history.h"
#include "cli/options.h"
#include "cli/place.h"
#include "cli/problem.h"
#include "cli/progress.h"
#include "format/outputs.h"

enum target { TO_CSV, TO_TRACE, TO_CHROME, TO_SNAPSHOT, TO_NOTHING };

static const struct {
    const char *word; /* after --to, or an ending with its dot */
    enum target target;
} targets[] = {
    {"csv", TO_CSV},          {".csv", TO_CSV},        {"trace", TO_TRACE},  {".trace", TO_TRACE},
    {"chrome", TO_CHROME},    {"perfetto", TO_CHROME}, {".json", TO_CHROME}, {"snapshot", TO_SNAPSHOT},
    {".pickle", TO_SNAPSHOT}, {".pkl", TO_SNAPSHOT},
};

struct convert_request {
    const char *input, *output, *to;
    cli_model_options options;
    enum target target;
};

static enum target find_target(const char *word)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(targets[i].word, word) == 0)
            return targets[i].target;
    return TO_NOTHING;
}

/* As asked, else by the output's ending, else rows. */
static int choose_target(struct convert_request *r)
{
    const char *slash = strrchr(r->output, '/'), *dot = strrchr(r->output, '.');
    if (r->to)
        r->target = *r->to == '.' ? TO_NOTHING : find_target(r->to);
    else if (dot && (!slash || dot > slash))
        r->target = find_target(dot);
    else
        r->target = TO_CSV;
    if (r->target == TO_NOTHING && r->to)
        return cli_misuse("convert", "--to is csv, trace, chrome or snapshot, not '%s'", r->to);
    if (r->target == TO_NOTHING)
        r->target = TO_CSV;
    if (r->target == TO_TRACE && cli_is_stdout(r->output))
        return cli_misuse("convert", "a trace goes to a file: name it with -o");
    return CLI_OK;
}

static int read_request(int argc, char **argv, struct convert_request *r)
{
    const struct cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &r->output},
        {"--to", NULL, CLI_TEXT, &r->to},
        {"--device", NULL, CLI_TEXT, &r->options.device},
    };
    const char *files[2] = {NULL, NULL};
    size_t count;
    int code = cli_options_read("convert", argc, argv, options, sizeof options / sizeof options[0], files, 2,
                                &count);
    if (code)
        return code;
    if (files[1] && r->output)
        return cli_misuse("convert", "two outputs are named: '%s' and '%s'", r->output, files[1]);
    r->input = count ? files[0] : cli_problem_unnamed();
    r->output = files[1] ? files[1] : r->output ? r->output : "-";
    if (!r->input)
        return cli_misuse("convert", "which file? Name the input, and the output unless it is stdout");
    return choose_target(r);
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static int convert_to_rows(const struct convert_request *r)
{
    berth_problem_file *file;
    cli_model *model;
    int code = cli_problem_read_model("convert", r->input, true, &r->options, &file, &model);
    if (code)
        return code;
    cli_place_rows_begin(r->output);
    berth_status status = berth_problem_file_convert(file, r->output);
    cli_place_rows_end();
    berth_problem_file_destroy(file);
    return status ? cli_fail("convert", status, "") : CLI_OK;
}

/* ---- Histories ------------------------------------------------------------------------------------------ */

static berth_status write_file(const struct convert_request *r, const format_history *h, const char *path,
                               cli_progress *progress, format_error *error)
{
    if (r->target == TO_TRACE)
        return format_trace_write(h, path, cli_progress_show, progress, error);
    FILE *out = path ? fopen(path, "wb") : stdout;
    if (!out)
        return format_fail(error, BERTH_IO, "%s", strerror(errno));
    berth_status status = r->target == TO_CHROME
                              ? format_chrome_write(h, out, cli_progress_show, progress, error)
                              : format_snapshot_write(h, out, cli_progress_show, progress, error);
    if (path && fclose(out) && !status)
        status = format_fail(error, BERTH_IO, "%s", strerror(errno));
    return status;
}

/* Beside the place and then there, so that a full disk leaves what was there. */
static berth_status write_whole(const struct convert_request *r, const format_history *h,
                                cli_progress *progress, format_error *error)
{
    cli_place place;
    if (cli_is_stdout(r->output))
        return write_file(r, h, NULL, progress, error);
    if (!cli_place_begin(&place, r->output))
        return format_fail(error, BERTH_IO, "%s%s", cli_place_why(&place), strerror(errno));
    berth_status status = write_file(r, h, place.beside, progress, error);
    if (!cli_place_end(&place, !status))
        status = format_fail(error, BERTH_IO, "%s", strerror(errno));
    return status;
}

static int convert_history(const struct convert_request *r)
{
    format_history h = {0};
    format_error error;
    cli_progress progress;
    int code = cli_history_read("convert", r->input, NULL, &h);
    if (code)
        return code;
    if (!h.has_addresses && r->target != TO_CHROME)
        fprintf(stderr,
                "berth convert: %s: addresses are not known; those that are written only tell blocks "
                "apart\n",
                r->input);
    cli_progress_begin(&progress, "writing");
    berth_status status = write_whole(r, &h, &progress, &error);
    cli_progress_end(&progress);
    format_history_finish(&h);
    if (!status)
        return CLI_OK;
    fprintf(stderr, "berth convert: %s: it cannot be written: %s\n", r->output, error.words);
    return cli_exit_for(status);
}

static int convert_run(int argc, char **argv)
{
    struct convert_request r = {0};
    int code = read_request(argc, argv, &r);
    if (code)
        return code;
    if (r.target == TO_CSV)
        return convert_to_rows(&r);
    if (r.options.device)
        return cli_misuse("convert", "--device is for --to csv; the other forms take all devices");
    return convert_history(&r);
}

const struct cli_verb cli_verb_convert = {
    .name = "convert",
    .summary = "rewrite a problem, a plan or a recording in another form",
    .help =
        "usage: berth convert INPUT [OUTPUT | -o OUTPUT] [--to FORM]\n\n"
        "INPUT is a problem or a plan in CSV, a model, or what tells a program's history: a trace (berth\n"
        "record), an event log, RMM's log, a file of heaptrack or massif. It is recognised by what is in "
        "it.\n"
        "- is a stream, and the output if none is named.\n\n"
        "  -o, --output FILE   where to; its ending tells the form: .csv, .trace, .json, .pickle\n"
        "  --to csv            id,lower,upper,size with half-open lives, and those of alignment, hint, "
        "gaps,\n"
        "                      fixed, alias, label and offset that are in use; other columns come after "
        "them\n"
        "                      as they were. A history becomes the lives of its blocks, counted in events,\n"
        "                      which berth plan takes (the form if nothing tells another)\n"
        "  --to trace          Berth's own, packed (docs/trace-format.md)\n"
        "  --to chrome         JSON for chrome://tracing and ui.perfetto.dev: lives as async events, live\n"
        "                      bytes as counters\n"
        "  --to snapshot       a pickle as torch.cuda.memory._snapshot() gives it\n"
        "  --device NAME       with --to csv: of a history, the memory of this device (the one with the\n"
        "                      largest peak); host is the host's\n\n"
        "examples:\n"
        "  berth convert old.csv new.csv\n"
        "  berth convert app.trace app.json\n"
        "  berth convert rmm_log.csv --to csv -o lives.csv\n",
    .run = convert_run,
};

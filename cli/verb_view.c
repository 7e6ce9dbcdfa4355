/* berth view: what a program did with its memory as one page that opens without a network. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/problem.h"
#include "cli/size.h"
#include "cli/view.h"
#include "format/inputs.h"

/* base64 makes a third more of the details, and names come to them; what is too large after all is written again with less. */
enum {
    DETAIL_BYTES = 10500000,
    DETAIL_LEAST = 149000,
    PAGE_BYTES = 14900000,
    PATH_ROOM = 4096,
    HOST_ALIGNMENT = 16
};

typedef struct view_request {
    const char *input, *output;
    uint64_t alignment, detail_bytes;
    bool svg, json, no_plan, quiet;
    cli_model_options model;
} view_request;

/* INPUT.html beside the input, if nothing is said; the standard output for what came from the standard input or a pipe. */
static const char *name_output(const view_request *r, char room[PATH_ROOM])
{
    struct stat about;
    if (r->output)
        return r->output;
    if (r->json || strcmp(r->input, "-") == 0 || (stat(r->input, &about) == 0 && !S_ISREG(about.st_mode)))
        return "-";
    snprintf(room, PATH_ROOM, "%s.%s", r->input, r->svg ? "svg" : "html");
    return room;
}

static bool write_as(const view_request *r, const view *v, FILE *out, cli_progress *progress)
{
    if (r->svg)
        return view_write_svg(v, v->spaces, out);
    return r->json ? view_write_json(v, out, progress) : view_write_page(v, out, progress);
}

/* The output as it is, in *text, which the caller frees. False: no memory. */
static bool view_text(const view_request *r, const view *v, char **text, size_t *size)
{
    cli_progress progress;
    FILE *out = open_memstream(text, size);
    cli_progress_begin(&progress, "writing");
    bool done = out && write_as(r, v, out, &progress);
    done = out && fclose(out) == 0 && done;
    cli_progress_end(&progress);
    return done;
}

static uint64_t kept_count(const view *v)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < v->space_count; i++)
        kept += v->spaces[i].kept_count;
    return kept;
}

/* The output with as much detail as fits a page. False: no memory. */
static bool view_fit(const view_request *r, view *v, char **text, size_t *size)
{
    uint64_t detail = r->detail_bytes ? r->detail_bytes : DETAIL_BYTES;
    bool done = view_choose(v, detail) && view_text(r, v, text, size);
    while (done && !r->detail_bytes && !r->svg && *size > PAGE_BYTES && detail > DETAIL_LEAST) {
        const uint64_t kept = kept_count(v);
        do {
            detail -= detail / 6;
            done = view_choose(v, detail);
        } while (done && kept_count(v) == kept && detail > DETAIL_LEAST);
        if (!done || kept_count(v) == kept)
            break;
        free(*text);
        *text = NULL;
        done = view_text(r, v, text, size);
    }
    return done;
}

static int view_output(const view_request *r, view *v, const char *path)
{
    char *text = NULL, words[CLI_SIZE_ROOM];
    size_t size = 0;
    bool done = view_fit(r, v, &text, &size);
    if (done && !r->detail_bytes && !r->svg && size > PAGE_BYTES)
        fprintf(stderr,
                "berth view: the page has %s, more than browsers open with ease: call stacks and names take "
                "so much\n",
                cli_size_text(size, words));
    int code = done ? cli_write_whole("view", path, text, size)
                    : cli_fail("view", BERTH_OUT_OF_HOST_MEMORY, r->input);
    free(text);
    if (code == CLI_OK && !r->quiet && !cli_is_stdout(path))
        fprintf(stderr, "berth view: %u block%s in %s (%s)\n", v->h->block_count,
                v->h->block_count == 1 ? "" : "s", path, cli_size_text(size, words));
    return code;
}

/* Divides, plans, chooses and writes. */
static int view_show(const view_request *r, const format_history *h, const char *path, const char *name)
{
    char room[PATH_ROOM];
    view v;
    cli_progress progress;
    if (!h->block_count) {
        for (uint32_t i = 0; i < h->notice_count; i++) /* else the page tells */
            fprintf(stderr, "berth view: %s: %s\n", name, h->notices[i].words);
        fprintf(stderr, "berth view: %s has no block that was ever alive\n", name);
        return CLI_NO;
    }
    bool from_csv = !h->has_times && (strcmp(h->format, "plan") == 0 || strcmp(h->format, "problem") == 0);
    uint32_t alignment = r->alignment ? (uint32_t)r->alignment : from_csv ? 1 : HOST_ALIGNMENT;
    bool done = view_init(&v, h, name);
    berth_status status = done ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    cli_progress_begin(&progress, "planning");
    if (done && (!r->no_plan || !h->has_addresses))
        status = view_plan(&v, from_csv && !r->alignment ? path : NULL, alignment, &progress);
    cli_progress_end(&progress);
    int code = !status ? view_output(r, &v, name_output(r, room)) : cli_fail("view", status, name);
    view_finish(&v);
    return code;
}

/* The file to read: the input itself, or what was kept of a pipe or of a model in *kept, which the caller closes. It is read twice. */
static int view_input(const view_request *r, int *kept, char path[PATH_ROOM])
{
    format_error error;
    bool is_kept;
    *kept = -1;
    if (cli_is_model(r->input))
        return cli_model_rows("view", r->input, &r->model, kept, path);
    int code = cli_model_options_check("view", r->input, &r->model);
    if (code)
        return code;
    int file = format_input_open(r->input, &is_kept, &error);
    if (file < 0) {
        fprintf(stderr, "berth view: %s\n", error.words);
        return cli_exit_for(error.status);
    }
    if (is_kept) {
        *kept = file;
        snprintf(path, PATH_ROOM, "/proc/self/fd/%d", file);
        return CLI_OK;
    }
    close(file);
    snprintf(path, PATH_ROOM, "%s", r->input);
    return CLI_OK;
}

static int view_read(const view_request *r)
{
    char path[PATH_ROOM], doing[PATH_ROOM + 16];
    int kept;
    bool is_stdin = strcmp(r->input, "-") == 0;
    int code = view_input(r, &kept, path);
    if (code)
        return code;
    const char *name = is_stdin ? "standard input" : r->input;
    snprintf(doing, sizeof doing, "reading %s", name);
    format_history h = {0};
    format_error error;
    cli_progress progress;
    cli_progress_begin(&progress, doing);
    berth_status status = format_history_read(path, &h, cli_progress_show, &progress, &error);
    cli_progress_end(&progress);
    if (status) {
        bool by_path = kept >= 0 && strncmp(error.words, path, strlen(path)) == 0;
        fprintf(stderr, "berth view: %s%s\n",
                !by_path   ? ""
                : is_stdin ? "the standard input"
                           : name,
                error.words + (by_path ? strlen(path) : 0));
        code = cli_exit_for(status);
    } else {
        const char *slash = strrchr(name, '/');
        code = view_show(r, &h, path, slash ? slash + 1 : name);
        format_history_finish(&h);
    }
    if (kept >= 0)
        close(kept);
    return code;
}

static int view_run(int argc, char **argv)
{
    view_request r = {0};
    const struct cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &r.output},   {"--svg", NULL, CLI_FLAG, &r.svg},
        {"--json", NULL, CLI_FLAG, &r.json},       {"--no-plan", NULL, CLI_FLAG, &r.no_plan},
        {"--align", NULL, CLI_SIZE, &r.alignment}, {"--detail", NULL, CLI_SIZE, &r.detail_bytes},
        {"--quiet", "-q", CLI_FLAG, &r.quiet},     CLI_MODEL_OPTIONS(r.model),
    };
    size_t count;
    int code = cli_options_read("view", argc, argv, options, sizeof options / sizeof options[0], &r.input, 1,
                                &count);
    if (code != CLI_OK)
        return code;
    if (!count)
        r.input = cli_problem_unnamed();
    if (!r.input)
        return cli_misuse("view",
                          "which file? Name a trace, a problem or a plan, or - for the standard input");
    if (r.svg && r.json)
        return cli_misuse("view", "--svg and --json are two kinds of output; choose one");
    if (r.alignment > UINT32_MAX)
        return cli_misuse("view", "--align is at most 4294967295");
    return view_read(&r);
}

const struct cli_verb cli_verb_view = {
    .name = "view",
    .summary = "show a trace, a problem, a plan or a model as one page for a browser",
    .help =
        "usage: berth view INPUT [-o PAGE.html] [OPTION...]\n\n"
        "Writes one page that opens from the disk without a network: every block as a rectangle of time and "
        "address, the\n"
        "live bytes with their peak and the lower bound, who is alive at any moment, the holes of that "
        "moment, "
        "the call\n"
        "stacks of the peak, and beside what happened the plan that Berth makes of it. INPUT is a trace "
        "(berth record), a\n"
        "snapshot of PyTorch or of a pool (berth_snapshot_write), a file of another tool, a problem or a "
        "plan "
        "in CSV, or a\n"
        "model (.tflite, .onnx), whose times are its operators; - is the standard input.\n\n"
        "  -o, --output FILE  the page (INPUT.html); - is the standard output\n"
        "      --svg          a picture for papers instead, of the device or process with the highest peak\n"
        "      --json         the page's data alone, as docs/view-format.md says\n"
        "      --no-plan      leave the plan out\n"
        "      --align BYTES  alignment of planned blocks (16; of a CSV file what its rows say)\n"
        "      --detail BYTES how much to tell of blocks one by one (as fits a page of 15 MB); the smallest\n"
        "                     are shaded beyond that\n"
        "  -q, --quiet        say nothing when all is well\n"
        "  --dim, --runtime, --inplace, --scratch  of a model, as for berth plan\n\n"
        "Examples:\n"
        "  berth record -o app.trace -- ./app && berth view app.trace\n"
        "  berth view planned.csv -o planned.html\n"
        "  berth view app.trace --svg -o figure.svg\n",
    .run = view_run,
};

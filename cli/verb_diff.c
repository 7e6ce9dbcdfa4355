/* berth diff: what grew between two recordings of one program. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/diff_report.h"
#include "cli/history.h"
#include "cli/options.h"
#include "format/outputs.h"

/* "5", "2.5" or "5%"; from 0. */
static bool read_percent(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    end += strspn(end, " ");
    return end != text && (!*end || strcmp(end, "%") == 0) && isfinite(*out) && *out >= 0;
}

static int diff_options(int argc, char **argv, diff_request *r)
{
    const char *fail_above = NULL;
    const struct cli_option options[] = {
        {"--fail-above", NULL, CLI_TEXT, &fail_above}, {"--device", NULL, CLI_TEXT, &r->device},
        {"--top", NULL, CLI_NUMBER, &r->top},          {"--json", NULL, CLI_FLAG, &r->json},
        {"--quiet", "-q", CLI_FLAG, &r->quiet},        CLI_MODEL_OPTIONS(r->model),
    };
    size_t count;
    int code = cli_options_read("diff", argc, argv, options, sizeof options / sizeof options[0], r->input,
                                SIDES, &count);
    if (code != CLI_OK)
        return code;
    if (count < SIDES)
        return cli_misuse("diff", "two recordings are compared, the earlier one first; %s",
                          count ? "only one is named" : "none is named");
    if (strcmp(r->input[BEFORE], "-") == 0 && strcmp(r->input[AFTER], "-") == 0)
        return cli_misuse("diff", "only one of the two can be the standard input");
    if (fail_above && !read_percent(fail_above, &r->fail_above))
        return cli_misuse("diff", "--fail-above wants a percentage from 0 such as 5 or 2.5, not '%s'",
                          fail_above);
    return CLI_OK;
}

static const char *device_words(const format_history *h, uint16_t device)
{
    return device ? format_history_words(h, h->devices[device].name) : "host";
}

static bool has_blocks(const format_history *h, uint16_t device)
{
    for (uint32_t i = 0; i < h->block_count; i++)
        if (h->blocks[i].device == device)
            return true;
    return false;
}

/* The device in the earlier recording that is called like that of the later one. Where each tells of one device only, it is that one: some
 * formats have no names for them. */
static int device_before(const diff_request *r, const format_history *h, const format_history *after,
                         uint16_t device_after, uint16_t *device)
{
    const char *name = device_words(after, device_after);
    *device = format_find_device(h, name);
    if (!h->block_count || (*device != FORMAT_ANY_DEVICE && (r->device || has_blocks(h, *device))))
        return CLI_OK;
    *device = format_main_device(h);
    if (!r->device && format_used_devices(h) == 1 && format_used_devices(after) <= 1) {
        if (after->block_count)
            fprintf(stderr, "berth diff: %s of %s is compared with %s of %s\n", device_words(h, *device),
                    r->input[BEFORE], name, r->input[AFTER]);
        return CLI_OK;
    }
    return cli_misuse("diff", "%s has no device '%s', of which %s tells; --device names one that both have",
                      r->input[BEFORE], name, r->input[AFTER]);
}

static int diff_compare(const diff_request *r, const format_history *before, const format_history *after)
{
    compare c = {0};
    uint16_t devices[SIDES];
    int code = cli_history_device("diff", after, r->device, &devices[AFTER]);
    if (code == CLI_OK)
        code = device_before(r, before, after, devices[AFTER], &devices[BEFORE]);
    if (code != CLI_OK)
        return code;
    bool done = compare_init(&c, before, devices[BEFORE], after, devices[AFTER]);
    if (done && !r->quiet)
        done = r->json ? diff_print_json(&c, r, stdout) : diff_print(&c, r, stdout);
    if (!done)
        code = cli_fail("diff", BERTH_OUT_OF_HOST_MEMORY, "");
    else if (r->fail_above >= 0 && diff_percent(&c) > r->fail_above)
        code = CLI_NO;
    compare_finish(&c);
    return code;
}

static int diff_run(int argc, char **argv)
{
    diff_request r = {.fail_above = -1, .top = 8, .model.labels = CLI_MODEL_OPERATORS};
    format_history before, after;
    int code = diff_options(argc, argv, &r);
    if (code == CLI_OK)
        code = cli_history_read("diff", r.input[BEFORE], &r.model, &before);
    if (code != CLI_OK)
        return code;
    code = cli_history_read("diff", r.input[AFTER], &r.model, &after);
    if (code == CLI_OK) {
        code = diff_compare(&r, &before, &after);
        format_history_finish(&after);
    }
    format_history_finish(&before);
    return code;
}

const struct cli_verb cli_verb_diff = {
    .name = "diff",
    .summary = "compare two recordings of one program: what grew, and where",
    .help = "usage: berth diff BEFORE AFTER [--fail-above PERCENT] [OPTION...]\n\n"
            "Says whether the peak of live memory grew from one recording to the other, and which call sites "
            "and labels did:\n"
            "at the peak, never freed, and in all. The recordings are of two versions of a program or of two "
            "runs; each is\n"
            "anything that tells a history: a trace (berth record), a PyTorch snapshot, files of heaptrack, "
            "massif and RMM, a\n"
            "problem in CSV, a model (.tflite, .onnx). Call sites are matched by function and file, so that "
            "lines and\n"
            "addresses may move.\n\n"
            "      --fail-above PERCENT  exit with 1 if the peak grew by more than this\n"
            "      --device NAME         of several devices this one (the one with the largest peak)\n"
            "      --top N               rows of the tables (8)\n"
            "      --json                all rows, as one object\n"
            "  -q, --quiet               only the exit code\n"
            "  --dim, --runtime, --inplace, --scratch  of models, as for berth plan\n\n"
            "Exit code: 0; 1 the peak grew by more than --fail-above; 2 misuse; 3 bad input; 4 memory or "
            "disk.\n\n"
            "Examples:\n"
            "  berth record -o new.trace -- ./app && berth diff old.trace new.trace\n"
            "  berth diff --fail-above 5 main.trace branch.trace\n",
    .run = diff_run,
};

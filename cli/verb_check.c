/* berth check: proves a plan against its problem, independently of every solver. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/problem.h"
#include "cli/size.h"

typedef struct check_request {
    const char *files[2];
    size_t file_count;
    uint64_t alignment, capacity;
    bool json, quiet;
} check_request;

static int answer(const check_request *r, const berth_problem_file *file, const berth_problem *problem,
                  const uint64_t *offsets)
{
    berth_verdict verdict = {.struct_size = sizeof verdict};
    berth_status status = berth_problem_check(problem, offsets, &verdict);
    if (status && status != BERTH_MISMATCH)
        return cli_problem_fail("check", status, r->files[0]);
    bool fits = !r->capacity || verdict.peak_bytes <= r->capacity;
    char size[CLI_SIZE_ROOM], fault[512];
    (void)berth_problem_file_words(file, verdict.words, fault, sizeof fault);
    if (r->json) {
        cli_json json;
        cli_json_begin(&json, stdout);
        cli_json_number(&json, "schema", 1);
        cli_json_bool(&json, "valid", !status);
        cli_json_number(&json, "buffers", problem->buffer_count);
        if (status)
            cli_json_null(&json, "peak");
        else
            cli_json_number(&json, "peak", verdict.peak_bytes);
        cli_json_text(&json, "fits", status ? "unknown" : fits ? "yes" : "no");
        cli_json_text(&json, "fault", status ? fault : NULL);
        cli_json_end(&json);
    } else if (status) {
        printf("not valid: %s\n", fault);
    } else if (!r->quiet || !fits) {
        printf("valid: %zu buffer%s, no two live ones overlap, every offset is aligned; peak %" PRIu64
               " byte%s (%s)\n",
               problem->buffer_count, problem->buffer_count == 1 ? "" : "s", verdict.peak_bytes,
               verdict.peak_bytes == 1 ? "" : "s", cli_size_text(verdict.peak_bytes, size));
        uint64_t over = fits ? 0 : verdict.peak_bytes - r->capacity;
        if (over)
            printf("but it is %" PRIu64 " byte%s above the capacity\n", over, over == 1 ? "" : "s");
    }
    return status || !fits ? CLI_NO : CLI_OK;
}

/* Once its offsets are known the plan's file is let go of: a tenth of a kilobyte a row that the proof does not need. */
static int check(const check_request *r, const berth_problem_file *problem_file,
                 berth_problem_file **plan_file)
{
    berth_problem problem = *berth_problem_file_problem(problem_file);
    problem.alignment = r->alignment ? (uint32_t)r->alignment : 1;
    /* A plan alone has its offsets in the order of its rows: its text, and a copy, would take 45 bytes a row. */
    const berth_problem_file *plan = *plan_file ? *plan_file : problem_file;
    if (problem_file == plan && berth_problem_file_offsets(plan))
        return answer(r, problem_file, &problem, berth_problem_file_offsets(plan));
    uint64_t *offsets = malloc((problem.buffer_count + 1) * sizeof *offsets);
    if (!offsets)
        return cli_fail("check", BERTH_OUT_OF_HOST_MEMORY, "");
    berth_status status = berth_problem_file_match(problem_file, plan, offsets);
    if (!status) {
        berth_problem_file_destroy(*plan_file);
        *plan_file = NULL;
    }
    int code = status ? cli_problem_fail("check", status, r->files[r->file_count - 1])
                      : answer(r, problem_file, &problem, offsets);
    free(offsets);
    return code;
}

static int check_run(int argc, char **argv)
{
    check_request r = {0};
    const struct cli_option options[] = {
        {"--align", NULL, CLI_SIZE, &r.alignment},
        {"--capacity", NULL, CLI_SIZE, &r.capacity},
        {"--json", NULL, CLI_FLAG, &r.json},
        {"--quiet", "-q", CLI_FLAG, &r.quiet},
    };
    int code = cli_options_read("check", argc, argv, options, sizeof options / sizeof options[0], r.files, 2,
                                &r.file_count);
    if (code)
        return code;
    if (!r.file_count && cli_problem_unnamed())
        r.files[r.file_count++] = cli_problem_unnamed();
    if (!r.file_count)
        return cli_misuse("check", "which plan? Name the problem and the plan, or a plan alone");
    if (r.alignment > UINT32_MAX)
        return cli_misuse("check", "--align %" PRIu64 " is larger than any alignment", r.alignment);
    if (r.file_count == 2 && strcmp(r.files[0], "-") == 0 && strcmp(r.files[1], "-") == 0)
        return cli_misuse("check", "there is one standard input, and - was named 2 times");
    berth_problem_file *problem = NULL, *plan = NULL;
    code = cli_problem_read("check", r.files[0], true, &problem);
    if (!code && r.file_count == 2)
        code = cli_problem_read("check", r.files[1], true, &plan);
    if (!code)
        code = check(&r, problem, &plan);
    berth_problem_file_destroy(plan);
    berth_problem_file_destroy(problem);
    return code;
}

const struct cli_verb cli_verb_check = {
    .name = "check",
    .summary = "prove a plan: no overlaps, aligned, nothing missing",
    .help =
        "usage: berth check PROBLEM.csv [PLAN.csv] [OPTION...]\n\n"
        "Proves that PLAN gives every buffer of PROBLEM a place: the same buffers with the same lives and\n"
        "sizes, no two live ones on top of each other, offsets aligned, pins and alias groups kept. It\n"
        "shares no code with the planner. With one file, the plan's own rows are the problem.\n\n"
        "  --align BYTES      the alignment it was planned with, if any\n"
        "  --capacity BYTES   also ask whether it fits\n"
        "  --json             print the verdict as one JSON object\n"
        "  -q, --quiet        print nothing if it is valid: the exit code says it\n\n"
        "Exit 0 if it is valid (and fits), 1 if not, 3 if a file is damaged.\n\n"
        "example:\n"
        "  berth plan model.csv -o planned.csv && berth check model.csv planned.csv\n",
    .run = check_run,
};

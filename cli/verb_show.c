/* berth show: the map of a plan alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/map.h"
#include "cli/options.h"
#include "cli/problem.h"
#include "cli/solving.h"
#include "cli/svg.h"

typedef struct show_request {
    const char *input, *output, *colour;
    uint64_t width, height;
    bool ascii;
    cli_model_options model;
} show_request;

/* The offsets that the file has, proven, or a plan made for the purpose. */
static int offsets_of(const show_request *r, berth_problem_file *file, uint64_t *offsets, uint64_t *peak)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    const uint64_t *given = berth_problem_file_offsets(file);
    if (given) {
        berth_verdict verdict = {.struct_size = sizeof verdict};
        memcpy(offsets, given, problem->buffer_count * sizeof *offsets);
        berth_status status = berth_problem_check(problem, offsets, &verdict);
        *peak = verdict.peak_bytes;
        return status ? cli_problem_fail_of("show", status, r->input, file) : CLI_OK;
    }
    cli_solving solving = {.options.effort = BERTH_EFFORT_FAST};
    berth_status status = cli_solve(&solving, file, problem, offsets);
    *peak = solving.certificate.peak_bytes;
    return status ? cli_problem_fail_of("show", status, r->input, file) : CLI_OK;
}

static int draw(const show_request *r, berth_problem_file *file)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets), peak = 0;
    if (!offsets)
        return cli_fail("show", BERTH_OUT_OF_HOST_MEMORY, "");
    int code = offsets_of(r, file, offsets, &peak);
    if (!code && r->output) {
        code = cli_svg_write("show", file, offsets, peak, r->output);
        free(offsets);
        return code;
    }
    cli_map_style style = {
        .width = (unsigned)r->width, .height = (unsigned)r->height, .ascii = r->ascii || cli_map_ascii()};
    cli_map_colour(r->colour, stdout, &style.colour);
    if (!code && !cli_map_draw(stdout, problem, offsets, peak, &style))
        code = cli_fail("show", BERTH_OUT_OF_HOST_MEMORY, "the map");
    free(offsets);
    return code;
}

static int show_run(int argc, char **argv)
{
    show_request r = {0};
    const struct cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &r.output},       {"--width", NULL, CLI_NUMBER, &r.width},
        {"--height", NULL, CLI_NUMBER, &r.height},     {"--color", NULL, CLI_TEXT, &r.colour},
        {"--ascii", NULL, CLI_FLAG, &r.ascii},         CLI_MODEL_OPTIONS(r.model),
        {"--device", NULL, CLI_TEXT, &r.model.device},
    };
    size_t count;
    bool colour;
    int code = cli_options_read("show", argc, argv, options, sizeof options / sizeof options[0], &r.input, 1,
                                &count);
    if (code)
        return code;
    if (!count)
        r.input = cli_problem_unnamed();
    if (!r.input)
        return cli_misuse("show", "which plan? Name a CSV file, or - for the standard input");
    if (!cli_map_colour(r.colour, stdout, &colour))
        return cli_misuse("show", "--color is auto, always or never, not '%s'", r.colour);
    berth_problem_file *file;
    cli_model *model;
    code = cli_problem_read_model("show", r.input, true, &r.model, &file, &model);
    if (code)
        return code;
    code = draw(&r, file);
    berth_problem_file_destroy(file);
    return code;
}

const struct cli_verb cli_verb_show = {
    .name = "show",
    .summary = "draw a plan as a map of time against address",
    .help =
        "usage: berth show PLAN.csv [OPTION...]\n\n"
        "Draws the map alone: time across, address upward, a patch for every buffer that is large enough to\n"
        "see. A plan is proven before it is drawn; a problem without offsets is planned first.\n\n"
        "  -o, --output FILE      write the plan as a picture instead, as SVG; - is the standard output\n"
        "  --width N, --height N  in characters; else the terminal's, or 80 by 22\n"
        "  --color WHEN           auto (on a terminal), always or never\n"
        "  --ascii                nothing beyond ASCII\n"
        "  --dim, --runtime, --inplace, --scratch  of a model, as for berth plan\n"
        "  --device NAME         of a recording, as for berth plan\n\n"
        "examples:\n"
        "  berth show planned.csv\n"
        "  berth show planned.csv -o plan.svg\n"
        "  berth plan model.csv -o - 2>/dev/null | berth show - --width 120\n",
    .run = show_run,
};

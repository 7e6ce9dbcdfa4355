/* berth convert: any problem file that berth reads, in our columns. */
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/problem.h"

static size_t id_of(void *context, size_t buffer, char *text, size_t room)
{
    return berth_problem_file_id(context, buffer, text, room);
}

static size_t label_of(void *context, size_t buffer, char *text, size_t room)
{
    return berth_problem_file_label(context, buffer, text, room);
}

static bool has_labels(const berth_problem_file *file)
{
    size_t count = berth_problem_file_problem(file)->buffer_count;
    for (size_t i = 0; i < count; i++)
        if (berth_problem_file_label(file, i, NULL, 0))
            return true;
    return false;
}

static int convert_run(int argc, char **argv)
{
    const char *files[2] = {NULL, "-"};
    size_t count;
    int code = cli_options_read("convert", argc, argv, NULL, 0, files, 2, &count);
    if (code)
        return code;
    if (!count)
        return cli_misuse("convert", "which file? Name the input, and the output unless it is stdout");
    berth_problem_file *file;
    code = cli_problem_read("convert", files[0], true, &file);
    if (code)
        return code;
    berth_status status =
        berth_problem_write(berth_problem_file_problem(file), id_of, has_labels(file) ? label_of : NULL, file,
                            berth_problem_file_offsets(file), files[1]);
    berth_problem_file_destroy(file);
    return status ? cli_fail("convert", status, "") : CLI_OK;
}

const struct cli_verb cli_verb_convert = {
    .name = "convert",
    .summary = "rewrite a problem or plan in berth's own columns",
    .help =
        "usage: berth convert INPUT [OUTPUT.csv]\n\n"
        "Reads a problem or a plan under any of the column names berth knows (start, begin, end inclusive,\n"
        "buffer, buffer_id, quoted, CRLF) and writes it as id,lower,upper,size with half-open lives and\n"
        "those of alignment, hint, gaps, fixed, alias, label and offset that are in use. Columns that berth\n"
        "does not know are left out. - is a stream, and the output if none is named.\n\n"
        "example:\n"
        "  berth convert old.csv new.csv\n",
    .run = convert_run,
};

/* berth convert: any problem file that berth reads, in our columns. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/problem.h"

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
    berth_status status = berth_problem_file_convert(file, files[1]);
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
        "does not know come after them as they were. - is a stream, and the output if none is named.\n\n"
        "example:\n"
        "  berth convert old.csv new.csv\n",
    .run = convert_run,
};

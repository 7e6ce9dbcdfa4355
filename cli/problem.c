/* A problem that a verb was given. */
#include "cli/problem.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int cli_problem_fail(const char *verb, berth_status status, const char *path)
{
    return cli_fail(verb, status, name_of(path));
}

static int problem_of_rows(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out)
{
    berth_status status = berth_problem_file_read(path, out);
    if (status)
        return cli_problem_fail(verb, status, path);
    const char *notice;
    for (size_t i = 0; (notice = berth_problem_file_notice(*out, i)); i++)
        if (!wants_offsets || strncmp(notice, "the column `offset`", 19) != 0)
            fprintf(stderr, "berth %s: %s: %s\n", verb, name_of(path), notice);
    return CLI_OK;
}

/* A problem that is made of a model refers to its text. A command reads one or two, so they stay until it ends. */
enum { MOST_MODELS = 4 };
static cli_model *kept_models[MOST_MODELS];
static size_t kept_count;

static int problem_of_model(const char *verb, const char *path, const cli_model_options *options,
                            berth_problem_file **out, cli_model **model)
{
    int code = kept_count < MOST_MODELS ? cli_model_read(verb, path, options, model)
                                        : cli_misuse(verb, "'%s' is one model too many", path);
    if (code || !*model)
        return code;
    kept_models[kept_count++] = *model;
    berth_status status = berth_problem_file_parse((*model)->text, (*model)->text_bytes, out);
    return status ? cli_problem_fail(verb, status, path) : CLI_OK;
}

int cli_problem_read_model(const char *verb, const char *path, bool wants_offsets,
                           const cli_model_options *options, berth_problem_file **out, cli_model **model)
{
    *model = NULL;
    if (cli_is_model(path))
        return problem_of_model(verb, path, options, out, model);
    if (options->dims.count || options->runtime || options->inplace)
        return cli_misuse(verb, "'%s' is no model; --dim, --runtime and --inplace are for models", path);
    return problem_of_rows(verb, path, wants_offsets, out);
}

int cli_problem_read(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out)
{
    cli_model *model;
    return cli_problem_read_model(verb, path, wants_offsets, &(cli_model_options){0}, out, &model);
}

static const char *harmless(char *text, size_t length)
{
    for (size_t i = 0; text[i]; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            text[i] = '?';
    if (length >= CLI_ID_ROOM)
        memcpy(text + CLI_ID_ROOM - 4, "...", 4);
    return text;
}

const char *cli_problem_id(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM])
{
    return harmless(text, berth_problem_file_id(file, buffer, text, CLI_ID_ROOM));
}

const char *cli_problem_label(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM])
{
    return harmless(text, berth_problem_file_label(file, buffer, text, CLI_ID_ROOM));
}

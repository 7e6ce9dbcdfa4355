/* A problem that a verb was given. */
#include "cli/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/history.h"
#include "format/outputs.h"
#include "format/text.h"

static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

const char *cli_problem_unnamed(void)
{
    struct stat about;
    if (fstat(STDIN_FILENO, &about) != 0)
        return NULL;
    return S_ISFIFO(about.st_mode) || S_ISREG(about.st_mode) || S_ISSOCK(about.st_mode) ? "-" : NULL;
}

int cli_problem_fail(const char *verb, berth_status status, const char *path)
{
    return cli_fail(verb, status, name_of(path));
}

int cli_problem_fail_of(const char *verb, berth_status status, const char *path,
                        const berth_problem_file *file)
{
    char words[512];
    (void)berth_problem_file_words(file, berth_last_error()->message, words, sizeof words);
    if (berth_last_error()->status == status && words[0])
        (void)berth_fail(status, "%s", words);
    return cli_problem_fail(verb, status, path);
}

static int problem_of_rows(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out)
{
    berth_status status = berth_problem_file_read(path, out);
    if (status)
        return cli_problem_fail(verb, status, path);
    /* That offsets are no wishes is the last notice, and news only to who wants no offsets. */
    bool skips_last = wants_offsets && berth_problem_file_offsets(*out);
    const char *notice;
    for (size_t i = 0; (notice = berth_problem_file_notice(*out, i)); i++)
        if (!skips_last || berth_problem_file_notice(*out, i + 1))
            fprintf(stderr, "berth %s: %s: %s\n", verb, name_of(path), notice);
    return CLI_OK;
}

/* A problem that is made of a model or a history refers to its text. They stay until the command ends. */
static struct kept {
    void **items;
    size_t count;
} kept_models, kept_rows;

/* Room for one more. */
static bool kept_grow(struct kept *kept)
{
    void **items = realloc(kept->items, (kept->count + 1) * sizeof *items);
    if (!items)
        return false;
    kept->items = items;
    return true;
}

static int problem_of_model(const char *verb, const char *path, const cli_model_options *options,
                            berth_problem_file **out, cli_model **model)
{
    int code = kept_grow(&kept_models) ? cli_model_read(verb, path, options, model)
                                       : cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    if (code || !*model)
        return code;
    kept_models.items[kept_models.count++] = *model;
    berth_status status = berth_problem_file_parse((*model)->text, (*model)->text_bytes, out);
    return status ? cli_problem_fail(verb, status, path) : CLI_OK;
}

/* The lives of a history's blocks as rows. */
static int problem_of_history(const char *verb, const char *path, const char *device_name,
                              berth_problem_file **out)
{
    format_history h = {0};
    format_error error;
    uint16_t device;
    char *rows = NULL;
    size_t size = 0;
    if (!kept_grow(&kept_rows))
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    int code = cli_history_read(verb, path, NULL, &h);
    if (code)
        return code;
    code = cli_history_device(verb, &h, device_name, &device);
    if (!code && format_problem_text(&h, device, &rows, &size, &error) != BERTH_OK)
        code = cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, error.words);
    format_history_finish(&h);
    if (code)
        return code;
    kept_rows.items[kept_rows.count++] = rows;
    berth_status status = berth_problem_file_parse(rows, size, out);
    return status ? cli_problem_fail(verb, status, path) : CLI_OK;
}

int cli_problem_read_model(const char *verb, const char *path, bool wants_offsets,
                           const cli_model_options *options, berth_problem_file **out, cli_model **model)
{
    *model = NULL;
    if (cli_is_model(path))
        return problem_of_model(verb, path, options, out, model);
    int code = cli_model_options_check(verb, path, options);
    if (code)
        return code;
    if (cli_is_history(path))
        return problem_of_history(verb, path, options->device, out);
    if (options->device)
        return cli_misuse(verb, "'%s' is no recording; --device is for those", path);
    return problem_of_rows(verb, path, wants_offsets, out);
}

int cli_problem_read(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out)
{
    cli_model *model;
    return cli_problem_read_model(verb, path, wants_offsets, &(cli_model_options){0}, out, &model);
}

static const char *harmless(char *text, size_t length)
{
    return format_text_fit(text, CLI_ID_ROOM, length);
}

const char *cli_problem_id(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM])
{
    return harmless(text, berth_problem_file_id(file, buffer, text, CLI_ID_ROOM));
}

const char *cli_problem_label(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM])
{
    return harmless(text, berth_problem_file_label(file, buffer, text, CLI_ID_ROOM));
}

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

int cli_problem_read(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out)
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

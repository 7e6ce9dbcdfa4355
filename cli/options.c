/* Options of a verb, read from a table. */
#include "cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/size.h"

enum { LONGEST_TABLE = 32 };

static const struct cli_option *find(const struct cli_option *options, size_t count, const char *word,
                                     size_t length)
{
    for (size_t i = 0; i < count; i++)
        if ((strlen(options[i].name) == length && strncmp(options[i].name, word, length) == 0) ||
            (options[i].brief && strlen(options[i].brief) == length &&
             strncmp(options[i].brief, word, length) == 0))
            return &options[i];
    return NULL;
}

static int unknown(const char *verb, const struct cli_option *options, size_t count, const char *word)
{
    const char *names[LONGEST_TABLE];
    for (size_t i = 0; i < count && i < LONGEST_TABLE; i++)
        names[i] = options[i].name;
    const char *near = cli_nearest(word, names, count < LONGEST_TABLE ? count : LONGEST_TABLE);
    if (near)
        return cli_misuse(verb, "there is no option '%s'; did you mean '%s'?", word, near);
    return cli_misuse(verb, "there is no option '%s'", word);
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* Seconds, or with a unit: 500ms, 2s, 1.5min. */
static bool read_seconds(const char *text, double *out)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60}};
    char *end;
    *out = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].name) == 0) {
            *out *= units[i].seconds;
            return isfinite(*out) && *out > 0;
        }
    return false;
}

static int store(const char *verb, const struct cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->value = true;
        return CLI_OK;
    case CLI_TEXT:
        *(const char **)option->value = text;
        return CLI_OK;
    case CLI_SIZE:
        if (cli_size_read(text, option->value) && *(uint64_t *)option->value > 0)
            return CLI_OK;
        return cli_misuse(verb, "%s wants a number of bytes such as 4096, 512K or 1.5M, not '%s'",
                          option->name, text);
    case CLI_NUMBER:
        if (read_number(text, option->value))
            return CLI_OK;
        return cli_misuse(verb, "%s wants a whole number from 0, not '%s'", option->name, text);
    case CLI_SECONDS:
        if (read_seconds(text, option->value))
            return CLI_OK;
        return cli_misuse(verb, "%s wants a time above 0 such as 2, 0.5s or 500ms, not '%s'", option->name,
                          text);
    case CLI_LIST: {
        cli_list *list = option->value;
        if (list->count == CLI_LIST_ROOM)
            return cli_misuse(verb, "%s is given more than %d times", option->name, CLI_LIST_ROOM);
        list->items[list->count++] = text;
        return CLI_OK;
    }
    }
    return CLI_MISUSE;
}

int cli_options_read(const char *verb, int argc, char **argv, const struct cli_option *options, size_t count,
                     const char **operands, size_t room, size_t *operand_count)
{
    bool open = true;
    *operand_count = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (open && strcmp(word, "--") == 0) {
            open = false;
            continue;
        }
        if (!open || word[0] != '-' || !word[1]) {
            if (!word[0])
                return cli_misuse(verb, "a name of a file is empty; is a variable of the shell not set?");
            if (*operand_count == room)
                return cli_misuse(verb, "'%s' is one file too many", word);
            operands[(*operand_count)++] = word;
            continue;
        }
        const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        /* "-oFILE" is "-o FILE" */
        const bool joined = word[1] != '-' && word[2] && find(options, count, word, 2) &&
                            find(options, count, word, 2)->kind != CLI_FLAG;
        const struct cli_option *option = find(options, count, word,
                                               equals   ? (size_t)(equals - word)
                                               : joined ? 2
                                                        : strlen(word));
        if (!option)
            return unknown(verb, options, count, word);
        const char *value = equals ? equals + 1 : joined ? word + 2 : NULL;
        if (option->kind == CLI_FLAG && value)
            return cli_misuse(verb, "%s takes no value", option->name);
        if (option->kind != CLI_FLAG && !value) {
            if (i + 1 == argc)
                return cli_misuse(verb, "%s needs a value", option->name);
            value = argv[++i];
        }
        int code = store(verb, option, value);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

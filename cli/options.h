/* Options of a verb: a table says what there is, one function reads them. */
#ifndef BERTH_CLI_OPTIONS_H
#define BERTH_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_option_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_SIZE,    /* uint64_t, with suffixes; above 0 */
    CLI_NUMBER,  /* uint64_t */
    CLI_SECONDS, /* double, above 0 */
    CLI_LIST,    /* cli_list: may be given several times */
};

enum { CLI_LIST_ROOM = 32 };

typedef struct cli_list {
    const char *items[CLI_LIST_ROOM];
    size_t count;
} cli_list;

struct cli_option {
    const char *name;  /* "--json" */
    const char *brief; /* "-o", or NULL */
    enum cli_option_kind kind;
    void *value;
};

/* Reads options and operands in any order; "--x=v" and "--x v" are the same, so are "-ov" and "-o v", "--" ends the options. Operands
 * go to operands[] in their order, `*operand_count` of them and at most `room`. CLI_OK, or CLI_MISUSE after a
 * complaint that names the option and the nearest known one. */
int cli_options_read(const char *verb, int argc, char **argv, const struct cli_option *options, size_t count,
                     const char **operands, size_t room, size_t *operand_count);

#endif

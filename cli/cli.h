/* What the verbs of the berth command share: their table, the exit codes, and how to complain. */
#ifndef BERTH_CLI_H
#define BERTH_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "berth/status.h"

/* A verb lives in cli/verb_<name>.c, which defines `const struct cli_verb cli_verb_<name>`; cli/verbs.h lists
 * it. Everything points to constants. */
struct cli_verb {
    const char *name;
    const char *summary; /* one line for `berth help`, no full stop */
    const char *help;    /* what `berth help <name>` prints: a usage line first, then options and examples */
    int (*run)(int argc, char **argv); /* argv[0] is the verb's name; answers an exit code */
};

/* A page of `berth help` that belongs to no verb. */
struct cli_topic {
    const char *name;
    const char *summary;
    const char *text;
};

enum cli_exit {
    CLI_OK = 0,
    CLI_NO = 1,           /* the answer is no or unknown: does not fit, plan invalid */
    CLI_MISUSE = 2,       /* of the command line */
    CLI_BAD_INPUT = 3,    /* a file is damaged or not what it should be */
    CLI_SURROUNDINGS = 4, /* memory, disk, a missing runtime */
};

/* Complains on stderr about how the verb was called and says where its help is. CLI_MISUSE. */
int cli_misuse(const char *verb, const char *format, ...) BERTH_PRINTF(2, 3);

/* Complains on stderr with the words of the calling thread's last berth failure, prefixed by `where` (a file
 * or "" for none). The exit code that belongs to `status`. */
int cli_fail(const char *verb, berth_status status, const char *where);

/* Whether a path is "-" or another name of the ordinary file, pipe or terminal that the standard output is. */
bool cli_is_stdout(const char *path);

/* Writes a file as a whole: beside its place, and moved there (place.h), so that a full disk leaves what was there. "-" is the
 * standard output. CLI_OK, or the exit code after a complaint. */
int cli_write_whole(const char *verb, const char *path, const void *data, size_t size);

/* The exit code that belongs to a status. */
int cli_exit_for(berth_status status);

/* The name nearest to `word` by edits, or NULL if none is near enough to be what was meant. */
const char *cli_nearest(const char *word, const char *const *names, size_t count);

/* Ended by a NULL name; in topics.c. */
extern const struct cli_topic cli_topics[];

#endif

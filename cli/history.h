/* A history that a verb was given: read with a line of progress, its notices said. */
#ifndef BERTH_CLI_HISTORY_H
#define BERTH_CLI_HISTORY_H

#include "cli/model.h"
#include "format/history.h"

/* Whether `path` ("-": the standard input) is a trace or another file that tells a history, by what is in it. Problems in CSV,
 * models and files that cannot be read are none. */
bool cli_is_history(const char *path);

/* Reads any file that format_history_read knows, or a model (by `options`; NULL: none), whose times are operators, and says what the user should know of it on stderr. CLI_OK with `h`, which the
 * caller finishes, or the exit code after a complaint. */
int cli_history_read(const char *verb, const char *path, const cli_model_options *options, format_history *h);

/* The device of this name; `name` NULL: the one with the largest peak, which is said if there are others. CLI_OK, or CLI_MISUSE after a
 * complaint. */
int cli_history_device(const char *verb, const format_history *h, const char *name, uint16_t *device);

#endif

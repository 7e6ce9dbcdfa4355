/* A problem that a verb was given: read, with its notices said. */
#ifndef BERTH_CLI_PROBLEM_H
#define BERTH_CLI_PROBLEM_H

#include "berth/problem_file.h"
#include "cli/model.h"

/* Reads `path` ("-": the standard input) and says its notices on stderr, but for that of an offset column if
 * `wants_offsets`. CLI_OK with *out, which the caller destroys, or the exit code after a complaint. */
int cli_problem_read(const char *verb, const char *path, bool wants_offsets, berth_problem_file **out);

/* The same for a model, read as `options` say. *model is NULL if the file is none; it belongs to the command and lives until its end. */
int cli_problem_read_model(const char *verb, const char *path, bool wants_offsets,
                           const cli_model_options *options, berth_problem_file **out, cli_model **model);

/* What is read when no file is named: "-" if something is piped or redirected into the command, else NULL. */
const char *cli_problem_unnamed(void);

/* Complains about a failure that concerns the file. */
int cli_problem_fail(const char *verb, berth_status status, const char *path);
/* The same for what the planner or the checker said of the file's problem: buffers are named by id and line. */
int cli_problem_fail_of(const char *verb, berth_status status, const char *path,
                        const berth_problem_file *file);

/* A buffer's id, its control characters made harmless, shortened to `width` characters. */
enum { CLI_ID_ROOM = 40 };
const char *cli_problem_id(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM]);
const char *cli_problem_label(const berth_problem_file *file, size_t buffer, char text[CLI_ID_ROOM]);

#endif

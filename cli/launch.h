/* Running a program with one of our libraries in front. */
#ifndef BERTH_CLI_LAUNCH_H
#define BERTH_CLI_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

/* A library to preload, by its name: beside the command in a build folder, or where it is installed, unless a variable of
 * the environment names it. CLI_OK with `path`, or the exit code after a complaint. */
int cli_launch_find(const char *verb, const char *library, const char *variable, char *path, size_t room);
/* Puts it in front of what the environment preloads already. */
void cli_launch_preload(const char *library);

/* Whether a library can be preloaded into the program that `name` means, found as a shell finds it. CLI_OK, or the exit
 * code after a complaint that says why not: no such program, linked statically (then `instead` says what else can be
 * done), with privileges of its own. */
int cli_launch_check(const char *verb, const char *name, const char *instead);

/* Runs the program, with what is in its environment already, and waits for it. Signals that come to us go on to it, but for
 * SIGUSR1, which calls `toggle`, and those that the terminal has sent to both. CLI_OK with how waitpid says that it ended, or the
 * exit code after a complaint. */
int cli_launch(const char *verb, char *const *argv, void (*toggle)(void), int *ended);

#endif

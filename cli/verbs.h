/* The list of verbs, in the order in which `berth help` shows them. A new verb is a line here and a file
 * verb_<name>.c. */
#ifndef BERTH_CLI_VERBS_H
#define BERTH_CLI_VERBS_H

#include "cli/cli.h"

/* clang-format off */
#define CLI_VERBS(X)                                      \
    X(plan) X(check) X(show) X(convert)                   \
    X(record) X(run) X(view) X(top)                       \
    X(explain_oom) X(what_if) X(diff) X(bench_allocators) \
    X(devices) X(help)
/* clang-format on */

#define CLI_VERB_DECLARE(name) extern const struct cli_verb cli_verb_##name;
CLI_VERBS(CLI_VERB_DECLARE)
#undef CLI_VERB_DECLARE

/* In main.c; ended by NULL. */
extern const struct cli_verb *const cli_verbs[];

#endif

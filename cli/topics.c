/* The pages of `berth help` that belong to no verb. */
#include "cli/cli.h"

const struct cli_topic cli_topics[] = {
    {"exits", "what the exit codes mean",
     "Exit codes, the same for every verb:\n"
     "  0  ok\n"
     "  1  the answer is no or unknown: it does not fit, the plan is not valid\n"
     "  2  misuse of the command line\n"
     "  3  bad input: a file is damaged or not what it should be\n"
     "  4  the surroundings failed: memory, disk, a missing runtime\n"},
    {"streams", "what goes to stdout and to stderr, and what '-' means",
     "Results go to stdout, talk and complaints to stderr. Where a file is expected, '-' is stdin\n"
     "for an input and stdout for an output. '--' ends the options.\n"},
    {NULL, NULL, NULL},
};

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
    {"formats", "the columns of a problem or plan in CSV",
     "A problem is a CSV file with a header; columns may come in any order:\n"
     "  id         a unique name (also: buffer, buffer_id)\n"
     "  lower      the first time at which the buffer is live (also: start, begin)\n"
     "  upper      the first time at which it is not any more; or `end`, the last at which it is\n"
     "  size       in bytes\n"
     "and optionally:\n"
     "  alignment  the offset is a multiple of it\n"
     "  gaps       times lo-hi at which it is not live, with blanks between them\n"
     "  fixed      the offset it must have\n"
     "  alias      a name; all buffers with it share one offset\n"
     "  hint       orders buffers that are otherwise equal, lower first\n"
     "  label      words for people\n"
     "  offset     the plan: written by 'berth plan -o', not read back as a wish\n"
     "Fields may be quoted, lines end with LF or CRLF, a byte-order mark is skipped.\n"},
    {NULL, NULL, NULL},
};

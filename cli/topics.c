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
     "Fields are separated by commas, or by semicolons or tabs if the header is; they may be quoted, lines "
     "end with LF or CRLF, a byte-order mark is skipped.\n"},
    {"environment", "the variables that programs with berth obey",
     "Read when the library is loaded; a mistake is said on stderr and the variable ignored as a whole.\n\n"
     "  BERTH_LOG=LEVEL[:FILE]   debug, info, warning (the default), error or none; to FILE, not stderr\n"
     "  BERTH_SHOW_STATS=1       a table of figures on stderr when the program ends\n"
     "  BERTH_CONF=KEY=VALUE;... decorates the host allocator of the program (berth_cpu_allocator):\n\n"
     "    stats=MODE         off, basic or full: figures; full adds sizes, ids, labels and leaks\n"
     "    limit=BYTES        a hard budget; BYTES may end in K, M, G or T\n"
     "    guard=yes          red zones and a quarantine: overflow, double free, late writes\n"
     "    quarantine=BYTES   freed memory that the guard keeps back (1M)\n"
     "    zero_on_free=yes   the guard wipes freed blocks with zeros\n"
     "    scopes=yes         true peaks of scopes and labels\n"
     "    retry_ms=NUMBER    an allocation that finds no room waits this long for frees\n"
     "    event_log=FILE     a line of CSV for each allocation and free\n"
     "    trace=FILE         every allocation and free in a trace, for berth view and its kin\n"
     "    explain=yes        out-of-memory messages say who holds what, and what would help\n"
     "    huge_pages=yes     large blocks ask for huge pages\n"
     "    numa_node=NUMBER   memory comes from this node\n"
     "    prefault=yes       pages are there before the first touch\n"
     "    lock_pages=yes     pages stay in memory\n"
     "    pool=yes           a pool cuts blocks from such pages\n\n"
     "huge_pages, numa_node, prefault and lock_pages take every block straight from the kernel, in whole "
     "pages;\n"
     "with pool=yes they are the ground of a pool. A program can make the same\n"
     "stack itself: berth_stack_create(\"limit=64M;guard=yes\", NULL, &a).\n\n"
     "libberth_malloc.so (see 'berth help run') obeys BERTH_LOG, and BERTH_MALLOC in place of the others:\n\n"
     "  BERTH_MALLOC=KEY=VALUE;... limit=BYTES and report=FILE ('-' or yes: stderr); any other setting, but "
     "for\n"
     "                             those of pages, makes every block one of a stack around the pool\n\n"
     "Example: BERTH_CONF='guard=yes;limit=2G;explain=yes' BERTH_SHOW_STATS=1 ./program\n"},
    {NULL, NULL, NULL},
};

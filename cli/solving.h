/* Solving with a clock, a progress line and Ctrl-C: what the planner itself knows nothing of. */
#ifndef BERTH_CLI_SOLVING_H
#define BERTH_CLI_SOLVING_H

#include "berth/problem_file.h"

enum { CLI_PHASES = 64 };

/* What a phase of the search gained and cost. */
typedef struct cli_phase {
    const char *name;
    double seconds;
    uint64_t steps;
    uint64_t best_bytes; /* when it ended; UINT64_MAX: no plan yet */
} cli_phase;

typedef struct cli_solving {
    berth_solve_options options; /* filled by the caller, but for progress and context */
    double budget_seconds;       /* 0: none */

    /* results */
    berth_certificate certificate;
    double seconds; /* solving alone */
    cli_phase phases[CLI_PHASES];
    size_t phase_count;

    /* while it runs */
    double started, phase_started, shown;
    double prepared_seconds; /* from the start to the first report; 0: none yet */
    uint64_t phase_steps;
    uint64_t best_bytes;
    bool talks; /* progress goes to a terminal */
} cli_solving;

/* As berth_problem_file_solve, with the capacity and the alignment of `problem`. The first Ctrl-C ends the search with the best plan so far, a second one the command. */
berth_status cli_solve(cli_solving *solving, berth_problem_file *file, const berth_problem *problem,
                       uint64_t *offsets);

/* "yes", "clock", ... as --json says it. */
const char *cli_fits_word(berth_fits fits);
const char *cli_stop_word(berth_stop stop);

#endif

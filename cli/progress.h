/* A line that says how far long work is: on a terminal only, and only past half a second. */
#ifndef BERTH_CLI_PROGRESS_H
#define BERTH_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
    const char *doing; /* "reading app.trace" */
    double started, shown;
    bool visible, on_terminal;
} cli_progress;

void cli_progress_begin(cli_progress *p, const char *doing);
/* As format_progress: `context` is a cli_progress. */
void cli_progress_show(void *context, uint64_t done, uint64_t all);
/* Takes the line away. */
void cli_progress_end(cli_progress *p);

#endif

/* What berth diff says: a screen for people, JSON for scripts. */
#ifndef BERTH_CLI_DIFF_REPORT_H
#define BERTH_CLI_DIFF_REPORT_H

#include <stdio.h>

#include "cli/compare.h"
#include "cli/model.h"

typedef struct diff_request {
    const char *input[SIDES];
    const char *device;
    double fail_above; /* percent; below 0: the peak may grow as it likes */
    uint64_t top;      /* rows of a table */
    bool json, quiet;
    cli_model_options model; /* how models are read */
} diff_request;

/* How far the peak grew, in percent of what it was; infinite from nothing. */
double diff_percent(const compare *c);
/* False: no memory. */
bool diff_print(const compare *c, const diff_request *r, FILE *out);
bool diff_print_json(const compare *c, const diff_request *r, FILE *out);

#endif

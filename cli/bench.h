/* What berth bench-allocators found, and how it says so. */
#ifndef BERTH_CLI_BENCH_H
#define BERTH_CLI_BENCH_H

#include <stdio.h>

#include "cli/drive.h"

enum { BENCH_RUNS_MOST = 99, BENCH_ALLOCATORS_MOST = 32 };

typedef struct bench_row {
    drive_allocator allocator;
    drive_result runs[BENCH_RUNS_MOST];
    uint32_t run_count; /* that were done */
    drive_calls calls;
    char words[DRIVE_WORDS]; /* why a run was not done; "" if all were */
} bench_row;

typedef struct bench {
    const char *input;
    const drive_script *script;
    uint32_t thread_count, run_count;
    bench_row *rows; /* the first is the driver alone */
    uint32_t row_count;
    char calls_words[DRIVE_WORDS]; /* why system calls are not counted */
} bench;

/* Figures of a row's runs. */
typedef struct bench_figures {
    double seconds, least_seconds, most_seconds; /* the median, and the ends */
    double cpu_seconds;
    uint64_t
        resident_bytes; /* the median of the most that was resident beyond what was before the first event */
    uint64_t refused;
} bench_figures;

/* Of a row with at least one run. */
bench_figures bench_figures_of(const bench_row *row);

void bench_print(const bench *b, FILE *out);
void bench_print_json(const bench *b, FILE *out);
/* A picture: bars for time, memory and system calls. */
void bench_print_svg(const bench *b, FILE *out);

#endif

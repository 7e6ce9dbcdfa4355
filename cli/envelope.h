/* Several recordings of one program, as ranks or batches make them: one problem that holds each of them, and which of them needs the
 * memory. */
#ifndef BERTH_CLI_ENVELOPE_H
#define BERTH_CLI_ENVELOPE_H

#include "cli/json.h"
#include "cli/problem.h"
#include "cli/solving.h"

/* One input. */
typedef struct cli_envelope_part {
    const char *path;
    berth_problem_file *file;
    size_t *order;  /* its rows in the order of their beginnings */
    size_t *groups; /* in that order: the first of the alias group, counted from 1; 0 without one */
    uint64_t fingerprint;
    berth_certificate own;     /* of a plan for this input alone */
    uint64_t at_binding_bytes; /* what it has live at the envelope's binding moment */
    uint64_t without_bytes;    /* the most live in an envelope of all others */
} cli_envelope_part;

/* The largest value of a row among the inputs, the largest of those that are not `owner`'s, and whose it is. */
typedef struct cli_envelope_top {
    uint64_t first, second;
    size_t owner;
    bool differs; /* not the same in all */
} cli_envelope_top;

typedef struct cli_envelope {
    cli_envelope_part *parts;
    size_t count;      /* of inputs */
    size_t row_count;  /* of each of them */
    bool same_times;   /* rows begin at the same times in all; else times are numbers of allocations */
    bool saved;        /* all are plans that berth_plan_save wrote, and so is the envelope */
    size_t other_size; /* rows whose sizes are not the same in all */
    size_t other_life;
    berth_problem_buffer *rows; /* the envelope's, in the order of their beginnings */
    berth_problem_buffer *part; /* room for those of one input */
    cli_envelope_top *sizes, *ends;
    char *text; /* the envelope as CSV, which its file refers to */
    berth_problem_file *file;
    size_t driver; /* the input without which least is live; `count`: none makes a difference alone */
} cli_envelope;

/* Reads `count` inputs (at least two) and makes their envelope. CLI_OK with *out, which the caller destroys, or the exit code after a
 * complaint that names file and line. */
int cli_envelope_read(const char *verb, const char *const *paths, size_t count,
                      const cli_model_options *options, cli_envelope **out);
void cli_envelope_destroy(cli_envelope *envelope);

/* The rows of an input on the envelope's time, into envelope->part. */
void cli_envelope_rows_of(const cli_envelope *envelope, size_t part);

/* Plans every input alone, as `how` says and in the time that its budget leaves, and finds who drives the peak of `certificate`, which
 * is the envelope's with the alignment of `problem`. CLI_OK, or the exit code after a complaint. */
int cli_envelope_judge(const char *verb, cli_envelope *envelope, const cli_solving *how,
                       const berth_problem *problem);

void cli_envelope_report(FILE *out, const cli_envelope *envelope, const berth_certificate *certificate);
void cli_envelope_json(cli_json *json, const cli_envelope *envelope);

#endif

/* A history as files of other tools, and as a problem. */
#ifndef BERTH_FORMAT_OUTPUTS_H
#define BERTH_FORMAT_OUTPUTS_H

#include <stdio.h>

#include "format/history.h"

/* What blocks are called. Each stack is looked at once. */
typedef struct format_names {
    const format_history *h;
    uint32_t *functions; /* by stack; UINT32_MAX: not looked at yet */
} format_names;

/* False: no memory. */
bool format_names_init(format_names *names, const format_history *h);
void format_names_finish(format_names *names);

/* A block's label, else the function that asked for it (no malloc or operator new), else "". */
const char *format_block_name(format_names *names, const format_block *b);

/* The device with the largest peak. */
uint16_t format_main_device(const format_history *h);
/* The device of this name ("host" or "cpu": the host); FORMAT_ANY_DEVICE if there is none. */
uint16_t format_find_device(const format_history *h, const char *name);
/* How many devices hold blocks. */
uint32_t format_used_devices(const format_history *h);

/* The lives of a device's blocks as rows of a problem (docs/formats.md): times are numbers of events. The caller frees *text.
 * BERTH_OK, or the error's status. */
berth_status format_problem_text(const format_history *h, uint16_t device, char **text, size_t *size_bytes,
                                 format_error *error);

/* Writers. BERTH_OK, or the error's status; what is written then is not whole. */
berth_status format_trace_write(const format_history *h, const char *path, format_progress progress,
                                void *context, format_error *error);
/* Chrome's trace events, which Perfetto reads too: lives as async events, live bytes as counters. */
berth_status format_chrome_write(const format_history *h, FILE *out, format_progress progress, void *context,
                                 format_error *error);
/* What torch.cuda.memory._snapshot() gives, as a pickle of protocol 4. */
berth_status format_snapshot_write(const format_history *h, FILE *out, format_progress progress,
                                   void *context, format_error *error);

/* ---- Everything in its order --------------------------------------------------------------------------- */

typedef enum format_step_kind {
    FORMAT_STEP_ALLOC, /* index: of a block */
    FORMAT_STEP_FREE,
    FORMAT_STEP_MAP, /* of a segment */
    FORMAT_STEP_UNMAP,
    FORMAT_STEP_MOMENT, /* of a moment */
} format_step_kind;

typedef struct format_step {
    format_step_kind kind;
    uint32_t index;
    uint64_t time_ns; /* does not go back from one step to the next */
} format_step;

typedef struct format_steps {
    const format_history *h;
    uint32_t *ended; /* segments, in the order of their ends */
    uint32_t ended_count, event, segment, end, moment;
    uint64_t time_ns;
} format_steps;

/* Walks through blocks, segments and moments. False: no memory. */
bool format_steps_begin(format_steps *s, const format_history *h);
bool format_steps_next(format_steps *s, format_step *step);
void format_steps_end(format_steps *s);

#endif

/* A trace that is being written, counted as it grows. */
#ifndef BERTH_FORMAT_FOLLOW_H
#define BERTH_FORMAT_FOLLOW_H

#include "berth/trace.h"
#include "format/tally.h"

typedef struct format_follow format_follow;

/* Opens a trace, of which nothing is counted yet; `tally` is empty and stays until close. `pid` not 0: of this process of the
 * system alone. BERTH_OK, else the error's status. */
berth_status format_follow_open(const char *path, format_tally *tally, uint64_t pid, format_follow **out,
                                format_error *error);
/* NULL is a no-op. */
void format_follow_close(format_follow *follow);

/* Counts what was added since. BERTH_OK, else the error's status. */
berth_status format_follow_more(format_follow *follow, format_progress progress, void *context,
                                format_error *error);

/* What names and times mean; it grows with every call above. */
const format_history *format_follow_history(const format_follow *follow);
const berth_trace_reader *format_follow_reader(const format_follow *follow);

#endif

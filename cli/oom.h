/* The moment at which memory ran out, or would have under a limit, and why. */
#ifndef BERTH_CLI_OOM_H
#define BERTH_CLI_OOM_H

#include "cli/holes.h"
#include "cli/lives.h"

typedef enum oom_cause {
    OOM_TOO_MUCH_LIVE,
    OOM_FRAGMENTED,
    OOM_HELD_BY_CACHE,
    OOM_HELD_BY_STREAMS,
    OOM_NOT_KNOWN, /* a hole was large enough, and the limit leaves room: something else has refused */
} oom_cause;

enum { OOM_GROWING = 3 };

typedef struct oom {
    bool is_recorded;  /* else it would fail under the limit that was asked about */
    uint32_t failures; /* recorded in all */
    uint32_t state;    /* after so many events */
    uint32_t label, stack;
    uint64_t size_bytes, time_ns, stream;
    uint16_t process;
    uint64_t fixed_end_bytes; /* of a block whose place is fixed: where it would end; else 0 */
    uint64_t limit_bytes;     /* 0: not known */
    const char *limit_from;
    uint64_t live_bytes, waiting_bytes;
    bool waits_beside; /* what waits is none of what is alive: a trace's blocks end when they are freed */
    const format_moment *failure; /* if it is recorded */
    uint32_t live_blocks;
    holes holes;
    oom_cause cause;
    /* Groups that grew all the time before, those that hold the most first. */
    struct {
        uint32_t group;
        uint64_t bytes;
    } growing[OOM_GROWING];
    uint32_t growing_count;
} oom;

/* Finds the moment: the `number`th recorded failure (from 1), or under `limit` (not 0) the first request that does not fit.
 * False: nothing fails. */
bool oom_find(const format_history *h, uint16_t device, uint64_t limit, uint32_t number, oom *out);
/* Finds why. False: no memory. */
bool oom_explain(const format_history *h, uint16_t device, oom *o);
/* Finds who grew, among the groups of `l`. */
void oom_find_growing(const lives *l, oom *o);

/* "fragmented", as people and --json read it. */
const char *oom_cause_word(oom_cause cause);

#endif

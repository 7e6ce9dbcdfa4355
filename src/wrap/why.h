/* Why an allocator cannot serve a request, from what it shows of its blocks: the causes that `berth explain-oom` names for a
 * recording, found by the same questions in the same order. */
#ifndef BERTH_WRAP_WHY_H
#define BERTH_WRAP_WHY_H

#include "core/allocator.h"

typedef enum berth__cause {
    BERTH__TOO_MUCH_LIVE,
    BERTH__FRAGMENTED,
    BERTH__HELD_BY_CACHE,
    BERTH__HELD_BY_STREAMS,
    BERTH__CAUSE_NOT_KNOWN, /* a hole is large enough, or the limit leaves room: something else has refused */
} berth__cause;

/* What lies where. Live bytes are not here: statistics know them better. */
typedef struct berth__picture {
    bool is_known; /* the allocator, or one inside it, shows pieces of memory that blocks are cut from */
    uint64_t waiting_bytes; /* freed, but streams use them */
    uint64_t idle_bytes;
    uint64_t largest_bytes; /* of one hole */
    uint64_t unused_bytes;  /* of pieces in which all is idle */
    /* The cheapest run of neighbours without which one hole were large enough. */
    size_t pin_count;
    uint64_t pin_bytes;
    const char *pin_label; /* of the largest; NULL: it has none */
} berth__picture;

/* Looks at `a`, and inside it until something shows pieces. Where memory for a list of the blocks lacks, nothing is said of pins. */
void berth__picture_take(berth_allocator *a, uint64_t size_bytes, berth__picture *out);

/* `live_bytes` as the limit counts them; limit 0: none. */
berth__cause berth__find_cause(const berth__picture *p, uint64_t size_bytes, uint64_t live_bytes,
                               uint64_t limit_bytes);
/* "fragmented" */
const char *berth__cause_words(berth__cause cause);

/* Bytes by call site, from the first tracker at or inside `a` that keeps call stacks. */
enum { BERTH__SITES_SEEN = 64, BERTH__SITES_TOLD = 5, BERTH__SITE_WORDS = 160 };
typedef struct berth__sites {
    struct berth__site_sum {
        const void *frame;
        uint64_t bytes;
    } sums[BERTH__SITES_SEEN]; /* the largest first */
    size_t count;
} berth__sites;
void berth__sites_find(berth_allocator *a, berth__sites *out);

#endif

/* Warnings of host allocators about very large allocations and totals: rate limited, through the log. */
#ifndef BERTH_COUNT_WARNINGS_H
#define BERTH_COUNT_WARNINGS_H

#include <stdatomic.h>

#include "base/base.h"

/* All fields but the fractions start as 0. */
typedef struct berth__warnings {
    double large_fraction, total_fraction; /* of memory, for one allocation and for all; negative: never */
    /* Thresholds in bytes; 0: not worked out yet, UINT64_MAX: never. */
    _Atomic uint64_t large_bytes, total_bytes;
    _Atomic uint64_t large_count, total_count;
} berth__warnings;

/* Whether an allocation may be worth a warning: one comparison. */
static inline bool berth__warnings_is_large(berth__warnings *w, uint64_t size_bytes)
{
    return size_bytes >= atomic_load_explicit(&w->large_bytes, memory_order_relaxed);
}

/* Any thread, without a lock: the log may be the user's. */
void berth__warn_of_large(berth__warnings *w, uint64_t size_bytes);
void berth__warn_of_total(berth__warnings *w, uint64_t in_use_bytes);

#endif

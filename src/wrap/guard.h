/* What the guard keeps of a block, and how its faults are told; shared by guard.c and guard_report.c. */
#ifndef BERTH_WRAP_GUARD_H
#define BERTH_WRAP_GUARD_H

#include "base/block_map.h"
#include "base/stack.h"
#include "berth/decorators.h"

/* A block from its allocation until it leaves the quarantine. Owned by the live map, then by the quarantine. */
typedef struct berth__guarded {
    berth__block_entry entry; /* address: the caller's block */
    uint64_t size_bytes;
    uint64_t id;
    const char *label;
    const berth__stack *allocated_by;
    const berth__stack *freed_by; /* NULL while live */
    uint32_t front_bytes;         /* from the raw block to ours */
    uint32_t back_bytes;          /* behind it */
    bool used_by_stream;          /* its bytes may be in use after the free: never filled, never kept back */
} berth__guarded;

/* Tells of one fault: to `report`, or line by line to the log. */
void berth__guard_tell(const berth_guard_options *options, berth_guard_fault fault,
                       const berth__guarded *block, int64_t offset_bytes);
/* Of a pointer that is no block. */
void berth__guard_tell_foreign(const berth_guard_options *options, const void *p);

#endif

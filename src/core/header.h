/* The header in front of a block from the heap: how a free finds the raw block, and how large the block is.
 *
 *      raw (from malloc)                 block (what the caller gets, aligned)
 *      |<------------ offset ----------->|<-------- size -------->|
 *      |            | size offset check  |
 *                   |<--- 16 bytes ----->|
 *
 * Sources that use it say so in their handle (has_header), so that wrappers right above need no note of a
 * block's size of their own. */
#ifndef BERTH_CORE_HEADER_H
#define BERTH_CORE_HEADER_H

#include "base/annotate.h"

typedef struct berth__header {
    uint64_t size_bytes; /* as asked for */
    uint32_t offset;
    uint32_t check;
} berth__header;

static inline uint32_t berth__header_check(const void *block, uint32_t offset)
{
    return (uint32_t)((uintptr_t)block >> 4) * 0x9e3779b1u ^ offset ^ 0x5ea7be54u;
}

static inline berth__header *berth__header_of(const void *block)
{
    return (berth__header *)((uintptr_t)block - sizeof(berth__header));
}

/* Whether `block` is a live block with a header. A guess only for pointers that never were, so the read
 * before the block is kept from the sanitizer: it is what finds a second free. */
BERTH__NO_ASAN static inline bool berth__header_is_live(const void *block)
{
    if ((uintptr_t)block % sizeof(berth__header) != 0)
        return false;
    const berth__header *header = berth__header_of(block);
    return header->check == berth__header_check(block, header->offset);
}

/* The size of what should be a live block. */
BERTH__NO_ASAN static inline uint64_t berth__header_size(const void *block)
{
    return berth__header_of(block)->size_bytes;
}

#endif

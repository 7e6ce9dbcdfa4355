/* The header in front of a block from the heap: how a free finds the raw block, and how large the block is.
 *
 *      raw (from malloc)                 block (what the caller gets, aligned)
 *      |<------------ offset ----------->|<-------- size -------->|
 *      |            | size offset check  |
 *                   |<--- 16 bytes ----->|
 *
 * Sources that use it say so in their handle, so that wrappers right above need no note of a block's size of
 * their own. One of them may also keep a tag there, in bits that no size has: no heap hands out 2^48 bytes.
 * It writes size and tag as one word, since a load waits for the store of a part of it. */
#ifndef BERTH_BASE_HEADER_H
#define BERTH_BASE_HEADER_H

#include "base/annotate.h"

typedef struct berth__header {
    uint64_t size_and_tag; /* the size as asked for; a tag, or 0, from BERTH__TAG_SHIFT on */
    uint32_t offset;
    uint32_t check;
} berth__header;

enum { BERTH__TAG_SHIFT = 48 };

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

/* Of what should be a live block: the source checks that afterwards, so any pointer may come here. */
typedef uint64_t __attribute__((aligned(1), may_alias)) berth__any_word;
BERTH__NO_ASAN static inline uint64_t berth__header_word(const void *block)
{
    uintptr_t word = (uintptr_t)block - sizeof(berth__header) + offsetof(berth__header, size_and_tag);
    return *(const berth__any_word *)word;
}
static inline uint64_t berth__size_of_word(uint64_t word)
{
    return word & (((uint64_t)1 << BERTH__TAG_SHIFT) - 1);
}
BERTH__NO_ASAN static inline uint64_t berth__header_size(const void *block)
{
    return berth__size_of_word(berth__header_word(block));
}

#endif

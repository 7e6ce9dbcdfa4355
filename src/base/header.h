/* The header in front of a block from the heap: how a free finds the raw block, and how large the block is.
 *
 *      raw (from malloc)                 block (what the caller gets, aligned)
 *      |<------------ offset ----------->|<-------- size -------->|
 *      |            | size offset check  |
 *                   |<--- 16 bytes ----->|
 *
 * A heap gives large blocks back to the system when they are freed, and a read in front of one would fault. So
 * no read ever leaves the page of the pointer that it is for: where a block starts at a page, its header is not
 * in front of it but in a map. Large blocks are made to start at one, others do so by chance. That finds a
 * second free of a large block, and a pointer to a page of somebody else's, without touching memory.
 *
 * What is not found: a second free of a small block whose page the heap has given back meanwhile (the end of
 * the heap, trimmed), and a pointer into memory that is not mapped at all. Both fault, as with free().
 *
 * Sources that use headers say so in their handle, so that wrappers right above need no note of a block's size
 * of their own. One of them may also keep a tag there, in bits that no size has: no heap hands out 2^48 bytes.
 * It writes size and tag as one word, since a load waits for the store of a part of it. */
#ifndef BERTH_BASE_HEADER_H
#define BERTH_BASE_HEADER_H

#include "base/annotate.h"

typedef struct berth__header {
    uint64_t size_and_tag; /* the size as asked for; a tag, or 0, from BERTH__TAG_SHIFT on */
    uint32_t offset;
    uint32_t check;
} berth__header;

enum {
    BERTH__TAG_SHIFT = 48,
    BERTH__PAGE_LEAST = 4096, /* no system that we run on has smaller pages, and larger ones are multiples */
    /* From here on blocks are made to start at a page: glibc maps from 128 KiB on, with what aligning adds. The note and
     * the map's two locks cost a pair 40 ns (69 against 28), what writing the memory costs a hundred times over. */
    BERTH__LARGE_BYTES = 96 << 10
};

static inline uint32_t berth__header_check(const void *block, uint32_t offset)
{
    return (uint32_t)((uintptr_t)block >> 4) * 0x9e3779b1u ^ offset ^ 0x5ea7be54u;
}

static inline berth__header *berth__header_of(const void *block)
{
    return (berth__header *)((uintptr_t)block - sizeof(berth__header));
}

static inline bool berth__starts_page(const void *block)
{
    return (uintptr_t)block % BERTH__PAGE_LEAST == 0;
}

/* The alignment of a block of `size_bytes` for which `alignment` was asked. */
static inline size_t berth__header_alignment(size_t size_bytes, size_t alignment)
{
    if (BERTH_UNLIKELY(size_bytes >= BERTH__LARGE_BYTES) && alignment < BERTH__PAGE_LEAST)
        return BERTH__PAGE_LEAST;
    return alignment < sizeof(berth__header) ? sizeof(berth__header) : alignment;
}

/* In the map. `put` is false without memory, which a reserved place prevents; `take` removes, for one of several
 * threads. */
bool berth__far_put(const void *block, uint64_t word, uint32_t offset);
void *berth__far_reserve(void); /* NULL: no memory */
void berth__far_put_reserved(void *reserved, const void *block, uint64_t word, uint32_t offset);
void berth__far_unreserve(void *reserved);
bool berth__far_read(const void *block, berth__header *out);
bool berth__far_take(const void *block, berth__header *out);
void berth__far_set_word(const void *block, uint64_t word);

/* Makes `block`, `offset` bytes behind its raw one, live. False: no memory. */
static inline bool berth__header_put(void *block, uint64_t word, uint32_t offset)
{
    if (BERTH_UNLIKELY(berth__starts_page(block)))
        return berth__far_put(block, word, offset);
    berth__header *header = berth__header_of(block); /* in parts, as it is read: see above */
    header->size_and_tag = word;
    header->offset = offset;
    header->check = berth__header_check(block, offset);
    return true;
}

/* The same with a place that was reserved, which is gone afterwards. */
static inline void berth__header_put_reserved(void *block, uint64_t word, uint32_t offset, void *reserved)
{
    if (berth__starts_page(block)) {
        berth__far_put_reserved(reserved, block, word, offset);
    } else {
        (void)berth__header_put(block, word, offset);
        berth__far_unreserve(reserved);
    }
}

/* Whether a block that does not start a page has its header. A guess only for pointers that never were blocks, so
 * the read is kept from the sanitizer: it is what finds a second free. */
BERTH__NO_ASAN static inline bool berth__near_is_live(const void *block)
{
    if ((uintptr_t)block % sizeof(berth__header) != 0)
        return false;
    const berth__header *header = berth__header_of(block);
    return header->check == berth__header_check(block, header->offset);
}

/* The header of `block` if that is live. */
static inline bool berth__header_read(const void *block, berth__header *out)
{
    if (berth__starts_page(block))
        return berth__far_read(block, out);
    if (!berth__near_is_live(block))
        return false;
    *out = *berth__header_of(block);
    return true;
}

/* The same, and it is live no more. */
static inline bool berth__header_take(void *block, berth__header *out)
{
    if (berth__starts_page(block))
        return berth__far_take(block, out);
    if (!berth__header_read(block, out))
        return false;
    berth__header_of(block)->check = ~out->check;
    return true;
}

/* Of what should be a live block: the source checks that afterwards, so any pointer may come here. */
BERTH__NO_ASAN static inline uint64_t berth__header_word(const void *block)
{
    if (BERTH_UNLIKELY(berth__starts_page(block))) {
        berth__header header = {0};
        return berth__far_read(block, &header) ? header.size_and_tag : 0;
    }
    if (BERTH_UNLIKELY((uintptr_t)block % sizeof(berth__header) != 0))
        return 0;
    return berth__header_of(block)->size_and_tag;
}
static inline void berth__header_set_word(void *block, uint64_t word)
{
    if (BERTH_UNLIKELY(berth__starts_page(block)))
        berth__far_set_word(block, word);
    else
        berth__header_of(block)->size_and_tag = word;
}
static inline uint64_t berth__size_of_word(uint64_t word)
{
    return word & (((uint64_t)1 << BERTH__TAG_SHIFT) - 1);
}
static inline uint64_t berth__header_size(const void *block)
{
    return berth__size_of_word(berth__header_word(block));
}

#endif

/* Headers of blocks that start at a page, in one map for all sources. */
#include "base/header.h"

#include "base/block_map.h"

struct far {
    berth__block_entry entry;
    berth__header header;
};

static berth__block_map fars;

/* The map's first buckets belong to the process: they are here before anybody counts what is asked for. */
__attribute__((constructor(120))) static void prepare_early(void)
{
    (void)berth__block_map_prepare(&fars);
}

void *berth__far_reserve(void)
{
    struct far *far = berth__heap_alloc(sizeof *far);
    if (far && !berth__block_map_prepare(&fars)) {
        berth__heap_free(far);
        return NULL;
    }
    return far;
}

void berth__far_unreserve(void *reserved)
{
    berth__heap_free(reserved);
}

void berth__far_put_reserved(void *reserved, const void *block, uint64_t word, uint32_t offset)
{
    struct far *far = reserved;
    far->entry.address = (uintptr_t)block;
    far->header = (berth__header){word, offset, berth__header_check(block, offset)};
    (void)BERTH_ASSERT(berth__block_map_put(&fars, &far->entry), "a prepared map takes every block");
}

bool berth__far_put(const void *block, uint64_t word, uint32_t offset)
{
    void *reserved = berth__far_reserve();
    if (reserved)
        berth__far_put_reserved(reserved, block, word, offset);
    return reserved != NULL;
}

bool berth__far_read(const void *block, berth__header *out)
{
    struct far far;
    if (!berth__block_map_read(&fars, block, &far, sizeof far))
        return false;
    *out = far.header;
    return true;
}

bool berth__far_take(const void *block, berth__header *out)
{
    struct far *far = (struct far *)(void *)berth__block_map_take(&fars, block);
    if (!far)
        return false;
    *out = far->header;
    berth__heap_free(far);
    return true;
}

void berth__far_set_word(const void *block, uint64_t word)
{
    (void)berth__block_map_write(&fars, block, offsetof(struct far, header.size_and_tag), &word, sizeof word);
}

/* Which block an address belongs to: an array of blocks by address. Pools take few and large ones, so that adding and taking
 * out may move the rest; finding is what every copy does. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* The first block that begins behind `p`. Call under the lock. */
static size_t first_behind(const bvk_device *device, const void *p)
{
    size_t low = 0, high = device->blocks_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)device->blocks[middle]->base <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bvk_block *holder(const bvk_device *device, const void *p)
{
    size_t behind = first_behind(device, p);
    bvk_block *block = behind ? device->blocks[behind - 1] : NULL;
    return block && (uintptr_t)p - (uintptr_t)block->base < block->size ? block : NULL;
}

static bool has_room(bvk_device *device)
{
    if (device->blocks_count < device->blocks_room)
        return true;
    size_t room = device->blocks_room ? 2 * device->blocks_room : 64;
    bvk_block **more = realloc(device->blocks, room * sizeof *more);
    if (!more)
        return false;
    device->blocks = more;
    device->blocks_room = room;
    return true;
}

/* Only memory that the program registers can overlap what is there. */
static berth_status add(bvk_device *device, bvk_block *block)
{
    size_t at = first_behind(device, block->base);
    bool overlaps = holder(device, block->base) != NULL ||
                    (at < device->blocks_count &&
                     (uintptr_t)device->blocks[at]->base - (uintptr_t)block->base < block->size);
    if (overlaps)
        return BERTH_ALREADY_EXISTS;
    if (!has_room(device))
        return BERTH_OUT_OF_HOST_MEMORY;
    memmove(device->blocks + at + 1, device->blocks + at,
            (device->blocks_count - at) * sizeof *device->blocks);
    device->blocks[at] = block;
    device->blocks_count++;
    return BERTH_OK;
}

berth_status bvk_blocks_add(bvk_device *device, bvk_block *block)
{
    pthread_rwlock_wrlock(&device->blocks_lock);
    berth_status status = add(device, block);
    pthread_rwlock_unlock(&device->blocks_lock);
    if (status == BERTH_ALREADY_EXISTS)
        return berth_fail(status, "of the %zu bytes at %p some are the device's already", block->size,
                          (void *)block->base);
    return berth_fail(status, "no memory to note a block");
}

/* Is it there, and is true what the caller says of it? */
static berth_status check_block(const bvk_block *block, const bvk_block *as)
{
    if (!block || block->base != as->base || block->imported != as->imported)
        return BERTH_NOT_FOUND;
    return as->imported || (block->size == as->size && block->kind == as->kind) ? BERTH_OK : BERTH_BAD_FREE;
}

bvk_block *bvk_blocks_take(bvk_device *device, const bvk_block *as, size_t *size_bytes)
{
    pthread_rwlock_wrlock(&device->blocks_lock);
    size_t behind = first_behind(device, as->base);
    bvk_block *block = behind ? device->blocks[behind - 1] : NULL;
    berth_status status = check_block(block, as);
    *size_bytes = status == BERTH_BAD_FREE ? block->size : 0;
    if (!status) {
        memmove(device->blocks + behind - 1, device->blocks + behind,
                (device->blocks_count - behind) * sizeof *device->blocks);
        device->blocks_count--;
    }
    pthread_rwlock_unlock(&device->blocks_lock);
    return !status ? block : NULL;
}

bvk_block *bvk_blocks_find(bvk_device *device, const void *p)
{
    pthread_rwlock_rdlock(&device->blocks_lock);
    bvk_block *block = holder(device, p);
    pthread_rwlock_unlock(&device->blocks_lock);
    return block;
}

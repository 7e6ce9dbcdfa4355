/* What a copy or a fill is in commands. */
#include "inside.h"

#include <stdlib.h>

static VkDeviceSize offset_in(const bvk_block *block, const char *p)
{
    return block->offset + (VkDeviceSize)(p - block->base);
}

static void copy_piece(const bvk_device *device, VkCommandBuffer commands, const bvk_block *from,
                       VkDeviceSize from_offset, const bvk_block *to, VkDeviceSize to_offset,
                       VkDeviceSize size)
{
    const VkBufferCopy region = {from_offset, to_offset, size};
    device->call.vkCmdCopyBuffer(commands, from->buffer, to->buffer, 1, &region);
}

static void barrier(const bvk_device *device, VkCommandBuffer commands, VkPipelineStageFlags to_stage,
                    VkAccessFlags to_access)
{
    const VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                    .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                    .dstAccessMask = to_access};
    device->call.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, to_stage, 0, 1, &memory, 0,
                                      NULL, 0, NULL);
}

/* Fills come in whole words at whole words; the ends are copied from zeros. */
static void record_zeros(const bvk_device *device, VkCommandBuffer commands, const bvk_copy *copy)
{
    const VkDeviceSize word = 4;
    VkDeviceSize begin = offset_in(copy->to, copy->dst), end = begin + copy->size;
    VkDeviceSize words_begin = (begin + word - 1) / word * word, words_end = end / word * word;
    if (words_begin > words_end) /* inside one word */
        words_begin = words_end = end;
    if (begin < words_begin)
        copy_piece(device, commands, device->zeros, device->zeros->offset, copy->to, begin,
                   words_begin - begin);
    if (words_begin < words_end)
        device->call.vkCmdFillBuffer(commands, copy->to->buffer, words_begin, words_end - words_begin, 0);
    if (words_end < end)
        copy_piece(device, commands, device->zeros, device->zeros->offset, copy->to, words_end,
                   end - words_end);
}

static bool overlaps(const bvk_copy *copy)
{
    size_t apart = copy->dst > copy->src ? (size_t)(copy->dst - copy->src) : (size_t)(copy->src - copy->dst);
    return copy->from == copy->to && apart < copy->size;
}

/* Piece by piece through the line's staging memory; from the far end when it moves up, so that no piece of the source is
 * written before it has been read. */
static void record_move(const bvk_line *line, VkCommandBuffer commands, const bvk_copy *copy)
{
    const bvk_device *device = line->device;
    const bvk_block *through = line->staging;
    bool up = copy->dst > copy->src;
    for (size_t done = 0, size; done < copy->size; done += size) {
        size = copy->size - done < BVK_STAGING_BYTES ? copy->size - done : BVK_STAGING_BYTES;
        size_t at = up ? copy->size - done - size : done;
        if (done > 0)
            barrier(device, commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                    VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
        copy_piece(device, commands, copy->from, offset_in(copy->from, copy->src + at), through,
                   through->offset, size);
        barrier(device, commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
        copy_piece(device, commands, through, through->offset, copy->to, offset_in(copy->to, copy->dst + at),
                   size);
    }
}

berth_status bvk_line_staging(bvk_line *line)
{
    return line->staging
               ? BERTH_OK
               : bvk_block_make(line->device, BERTH_MEMORY_PINNED, BVK_STAGING_BYTES, 64, &line->staging);
}

bool bvk_needs_staging(const bvk_copy *copy)
{
    return copy->src && copy->from && overlaps(copy);
}

void bvk_record_copy(bvk_line *line, VkCommandBuffer commands, const bvk_copy *copy)
{
    const bvk_device *device = line->device;
    if (!copy->src)
        record_zeros(device, commands, copy);
    else if (overlaps(copy))
        record_move(line, commands, copy);
    else
        copy_piece(device, commands, copy->from, offset_in(copy->from, copy->src), copy->to,
                   offset_in(copy->to, copy->dst), copy->size);
    if (copy->to->touchable)
        barrier(device, commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
}

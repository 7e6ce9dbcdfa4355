/* Copies and fills of the table: finds the blocks behind both addresses. */
#include "inside.h"

/* The block that holds all of [p, p + size), NULL if the driver does not know the memory. */
static berth_status find_end(bvk_device *device, const char *p, size_t size_bytes, bool must, bvk_block **out)
{
    bvk_block *block = bvk_blocks_find(device, p);
    if (!block && must)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%p is not memory of this Vulkan device", (const void *)p);
    if (block && size_bytes > block->size - (size_t)(p - block->base))
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "%zu bytes from %p run past the end of their block, which has %zu at %p",
                          size_bytes, (const void *)p, block->size, (void *)block->base);
    *out = block;
    return BERTH_OK;
}

static berth_status run(bvk_device *device, const bvk_copy *copy, berth_stream *stream)
{
    const bvk_job job = {.kind = BVK_JOB_COPY, .copy = *copy};
    return stream ? bvk_enqueue((bvk_line *)stream, &job) : bvk_copy_now(device, copy, NULL);
}

berth_status bvk_op_copy(void *self, berth_device which, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream)
{
    bvk_device *device = NULL;
    bvk_copy copy = {.dst = dst, .src = src, .size = size_bytes};
    bool to_device = kind == BERTH_COPY_HOST_TO_DEVICE || kind == BERTH_COPY_DEVICE_TO_DEVICE;
    bool from_device = kind == BERTH_COPY_DEVICE_TO_HOST || kind == BERTH_COPY_DEVICE_TO_DEVICE;
    berth_status status = bvk_open(self, which, &device);
    if (!status)
        status = find_end(device, dst, size_bytes, to_device, &copy.to);
    if (!status)
        status = find_end(device, src, size_bytes, from_device, &copy.from);
    return !status ? run(device, &copy, stream) : status;
}

berth_status bvk_op_zero(void *self, berth_device which, void *dst, size_t size_bytes, berth_stream *stream)
{
    bvk_device *device = NULL;
    bvk_copy copy = {.dst = dst, .size = size_bytes};
    berth_status status = bvk_open(self, which, &device);
    if (!status)
        status = find_end(device, dst, size_bytes, true, &copy.to);
    return !status ? run(device, &copy, stream) : status;
}

/* Pinned memory of OpenCL devices without fine-grained memory: a buffer that the driver places in memory it can
 * copy from at full speed (CL_MEM_ALLOC_HOST_PTR), mapped for as long as it lives. Its pointer is host memory to
 * everybody, the driver's commands too. */
#include "device/opencl.h"

#include <sched.h>
#include <string.h>

typedef struct ocl_pinned {
    ocl_leaving leaving; /* first */
    ocl_device *device;
    ocl_mem buffer;
    char *p;      /* the caller's */
    char *mapped; /* the driver's */
    size_t size_bytes;
} ocl_pinned;

/* All blocks, by address. */
static berth__spin pinned_lock;
static ocl_pinned **pinned; /* guard: pinned_lock; so are the two below */
static size_t pinned_count, pinned_room;

/* With the lock held: the place of the first block that ends behind `p`. */
static size_t place_of(const void *p)
{
    size_t low = 0, high = pinned_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pinned[middle]->p + pinned[middle]->size_bytes > (const char *)p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool berth__ocl_is_pinned(const void *p)
{
    berth__spin_lock(&pinned_lock, BERTH__RANK_DEVICE);
    size_t place = place_of(p);
    bool found = place < pinned_count && pinned[place]->p <= (const char *)p;
    berth__spin_unlock(&pinned_lock, BERTH__RANK_DEVICE);
    return found;
}

static bool remember(ocl_pinned *block)
{
    berth__spin_lock(&pinned_lock, BERTH__RANK_DEVICE);
    bool room = pinned_count < pinned_room;
    if (!room) {
        size_t wanted = pinned_room ? pinned_room * 2 : 64;
        ocl_pinned **larger = berth__heap_zalloc(wanted, sizeof *larger);
        if (larger) {
            if (pinned_count)
                memcpy(larger, pinned, pinned_count * sizeof(*larger));
            berth__heap_free(pinned);
            pinned = larger;
            pinned_room = wanted;
            room = true;
        }
    }
    if (room) {
        size_t place = place_of(block->p);
        memmove(&pinned[place + 1], &pinned[place], (pinned_count - place) * sizeof(*pinned));
        pinned[place] = block;
        pinned_count++;
    }
    berth__spin_unlock(&pinned_lock, BERTH__RANK_DEVICE);
    return room;
}

static ocl_pinned *forget(const void *p)
{
    ocl_pinned *found = NULL;
    berth__spin_lock(&pinned_lock, BERTH__RANK_DEVICE);
    size_t place = place_of(p);
    if (place < pinned_count && pinned[place]->p == p) {
        found = pinned[place];
        memmove(&pinned[place], &pinned[place + 1], (pinned_count - place - 1) * sizeof(*pinned));
        if (--pinned_count == 0) {
            berth__heap_free(pinned);
            pinned = NULL;
            pinned_room = 0;
        }
    }
    berth__spin_unlock(&pinned_lock, BERTH__RANK_DEVICE);
    return found;
}

static void release_buffer(ocl_leaving *leaving)
{
    ocl_pinned *block = (ocl_pinned *)leaving;
    (void)berth__ocl.clReleaseMemObject(block->buffer);
    berth__heap_free(block);
}

/* A shortage that passes must not leave it mapped; false: this one does not pass. */
static bool undo_map(const ocl_pinned *block)
{
    enum { ATTEMPTS = 100 };
    ocl_queue on = NULL;
    int32_t code = OCL_OUT_OF_RESOURCES;
    if (berth__ocl_queue_borrow(block->device, &on) != BERTH_OK)
        return false;
    for (int i = 0; i < ATTEMPTS && code != OCL_SUCCESS; i++) {
        code = berth__ocl.clEnqueueUnmapMemObject(on, block->buffer, block->mapped, 0, NULL, NULL);
        if (BERTH_UNLIKELY(code != OCL_SUCCESS))
            sched_yield();
    }
    (void)berth__ocl.clFinish(on);
    berth__ocl_queue_return(block->device, on);
    return code == OCL_SUCCESS;
}

/* Nothing uses the block any more. */
static void unmap(void *context)
{
    ocl_pinned *block = context;
    if (!undo_map(block))
        berth__log(BERTH_LOG_WARNING, "OpenCL device %d: %zu bytes of pinned memory cannot be unmapped",
                   berth__ocl_ordinal(block->device), block->size_bytes);
    block->leaving.release = release_buffer;
    berth__ocl_leave(&block->leaving);
}

static berth_status map_buffer(ocl_pinned *block, size_t buffer_bytes)
{
    ocl_queue on = NULL;
    int32_t code = OCL_SUCCESS;
    berth_status status = berth__ocl_queue_borrow(block->device, &on);
    if (status != BERTH_OK)
        return status;
    block->mapped =
        berth__ocl.clEnqueueMapBuffer(on, block->buffer, true, (uint64_t)(OCL_MAP_READ | OCL_MAP_WRITE), 0,
                                      buffer_bytes, 0, NULL, NULL, &code);
    berth__ocl_queue_return(block->device, on);
    return block->mapped ? BERTH_OK : berth__ocl_fail(block->device, code, "mapping pinned memory");
}

berth_status berth__ocl_pinned_allocate(ocl_device *device, size_t size_bytes, size_t alignment, void **out)
{
    ocl_context context;
    int32_t code = OCL_SUCCESS;
    berth_status status = berth__ocl_context(device, &context);
    if (status != BERTH_OK)
        return status;
    ocl_pinned *block = berth__heap_zalloc(1, sizeof *block);
    if (!block)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember a pinned block");
    block->device = device;
    block->size_bytes = size_bytes;
    block->buffer = berth__ocl.clCreateBuffer(context, OCL_MEM_READ_WRITE | OCL_MEM_ALLOC_HOST_PTR,
                                              size_bytes + alignment, NULL, &code);
    if (!block->buffer) {
        berth__heap_free(block);
        return code == OCL_OUT_OF_RESOURCES || code == OCL_MEM_OBJECT_ALLOCATION_FAILURE
                   ? berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, code, berth__ocl_words(code),
                                        "OpenCL device %d has no %zu bytes of pinned memory",
                                        berth__ocl_ordinal(device), size_bytes)
                   : berth__ocl_fail(device, code, "allocating pinned memory");
    }
    status = map_buffer(block, size_bytes + alignment);
    if (status != BERTH_OK) {
        block->leaving.release = release_buffer;
        berth__ocl_leave(&block->leaving);
        return status;
    }
    block->p =
        block->mapped + (berth__align_up((uintptr_t)block->mapped, alignment) - (uintptr_t)block->mapped);
    if (!remember(block)) {
        unmap(block);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember a pinned block");
    }
    *out = block->p;
    return BERTH_OK;
}

bool berth__ocl_pinned_release(ocl_device *device, void *p, ocl_stream *stream, berth_status *status)
{
    (void)device;
    ocl_pinned *block = forget(p);
    if (!block)
        return false;
    *status = stream ? berth__ocl_when_passed(stream, unmap, block) : BERTH_OK;
    if (!stream)
        unmap(block);
    else if (*status != BERTH_OK)
        (void)remember(block); /* still the caller's; there was room for it before */
    return true;
}

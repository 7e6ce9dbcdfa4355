/* Memory of OpenCL devices that is a buffer (cl_mem): all of it where the device has no shared memory, and pinned memory
 * where it has none that is fine-grained.
 *
 * Device memory has no pointer then. What callers get is an address that stands for it (berth_addresses_reserve): pools
 * and plans compute with it, and it is turned into the buffer and an offset whenever the driver is called.
 *
 * Pinned memory is a buffer that the driver places in memory it can copy from at full speed (CL_MEM_ALLOC_HOST_PTR),
 * mapped for as long as it lives. Its pointer is host memory to everybody, the driver's commands too. */
#include "device/opencl.h"

#include <string.h>

#include "berth/opencl.h"

/* ---- All buffers, by address --------------------------------------------------------------------- */

static berth__spin buffers_lock;
static ocl_buffer **buffers; /* guard: buffers_lock; so are the two below */
static size_t buffer_count, buffer_room;

/* With the lock held: the place of the first one that ends behind `p`. */
static size_t index_of(const void *p)
{
    size_t low = 0, high = buffer_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (buffers[middle]->p + buffers[middle]->size_bytes > (const char *)p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

ocl_place berth__ocl_place_of(const void *p)
{
    ocl_place place = {0};
    berth__spin_lock(&buffers_lock, BERTH__RANK_DEVICE);
    size_t index = index_of(p);
    if (index < buffer_count && buffers[index]->p <= (const char *)p) {
        const ocl_buffer *found = buffers[index];
        place = (ocl_place){found->id, found->mapped != NULL, found->device,
                            (size_t)((const char *)p - found->p), found->size_bytes};
    }
    berth__spin_unlock(&buffers_lock, BERTH__RANK_DEVICE);
    return place;
}

bool berth__ocl_is_pinned(const void *p)
{
    return berth__ocl_place_of(p).pinned;
}

/* With the lock held. */
static bool make_room(void)
{
    if (buffer_count < buffer_room)
        return true;
    size_t wanted = buffer_room ? buffer_room * 2 : 64;
    ocl_buffer **larger = berth__heap_zalloc(wanted, sizeof *larger);
    if (!larger)
        return false;
    if (buffer_count)
        memcpy(larger, buffers, buffer_count * sizeof *larger);
    berth__heap_free(buffers);
    buffers = larger;
    buffer_room = wanted;
    return true;
}

static bool opencl_remember(ocl_buffer *buffer)
{
    berth__spin_lock(&buffers_lock, BERTH__RANK_DEVICE);
    bool room = make_room();
    if (room) {
        size_t index = index_of(buffer->p);
        memmove(&buffers[index + 1], &buffers[index], (buffer_count - index) * sizeof *buffers);
        buffers[index] = buffer;
        buffer_count++;
    }
    berth__spin_unlock(&buffers_lock, BERTH__RANK_DEVICE);
    return room;
}

static void forget(const ocl_buffer *buffer)
{
    berth__spin_lock(&buffers_lock, BERTH__RANK_DEVICE);
    size_t index = index_of(buffer->p);
    memmove(&buffers[index], &buffers[index + 1], (buffer_count - index - 1) * sizeof *buffers);
    if (--buffer_count == 0) {
        berth__heap_free(buffers);
        buffers = NULL;
        buffer_room = 0;
    }
    berth__spin_unlock(&buffers_lock, BERTH__RANK_DEVICE);
}

/* Marks the one that begins at `p` as released, or takes that back; NULL if there is none, or it was before. */
static ocl_buffer *set_released(const ocl_device *device, const void *p, bool released)
{
    ocl_buffer *found = NULL;
    berth__spin_lock(&buffers_lock, BERTH__RANK_DEVICE);
    size_t index = index_of(p);
    if (index < buffer_count && buffers[index]->p == p && buffers[index]->device == device &&
        buffers[index]->released != released) {
        found = buffers[index];
        found->released = released;
    }
    berth__spin_unlock(&buffers_lock, BERTH__RANK_DEVICE);
    return found;
}

/* ---- The driver's part --------------------------------------------------------------------------- */

bool berth__ocl_is_buffer(const ocl_device *device, berth_memory_kind kind)
{
    return device->buffers || (kind == BERTH_MEMORY_PINNED && !device->usm && !device->fine);
}

ocl_buffer *berth__ocl_buffer_new(ocl_device *device, uint64_t flags, size_t size_bytes, berth_status *status)
{
    ocl_context context;
    int32_t code = OCL_SUCCESS;
    *status = berth__ocl_context(device, &context);
    if (*status)
        return NULL;
    ocl_buffer *buffer = berth__heap_zalloc(1, sizeof *buffer);
    if (!buffer) {
        *status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember a buffer");
        return NULL;
    }
    buffer->device = device;
    buffer->size_bytes = size_bytes;
    buffer->id = berth__ocl.clCreateBuffer(context, OCL_MEM_READ_WRITE | flags, size_bytes, NULL, &code);
    if (!buffer->id) {
        berth__heap_free(buffer);
        *status = berth__ocl_fail_memory(device, code, size_bytes);
        return NULL;
    }
    return buffer;
}

/* The driver keeps the memory until the commands that use it have run. */
static void release_buffer(ocl_leaving *leaving)
{
    ocl_buffer *buffer = (ocl_buffer *)leaving;
    (void)berth__ocl.clReleaseMemObject(buffer->id);
    if (!buffer->mapped)
        berth_addresses_release(buffer->p, buffer->size_bytes);
    berth__heap_free(buffer);
}

void berth__ocl_buffer_drop(ocl_buffer *buffer)
{
    buffer->leaving.release = release_buffer;
    berth__ocl_leave(&buffer->leaving);
}

/* A shortage that passes must not leave it mapped; false: this one does not pass. */
static bool undo_map(const ocl_buffer *buffer)
{
    ocl_queue on = NULL;
    int32_t code;
    int attempts = 0;
    if (berth__ocl_queue_borrow(buffer->device, &on) != BERTH_OK)
        return false;
    do
        code = berth__ocl.clEnqueueUnmapMemObject(on, buffer->id, buffer->mapped, 0, NULL, NULL);
    while (berth__ocl_once_more(code, &attempts));
    (void)berth__ocl_drain(on);
    berth__ocl_queue_return(buffer->device, on);
    return code == OCL_SUCCESS;
}

static berth_status map_buffer(ocl_buffer *buffer, size_t mapped_bytes)
{
    ocl_queue on = NULL;
    int32_t code = OCL_SUCCESS;
    berth_status status = berth__ocl_queue_borrow(buffer->device, &on);
    if (status)
        return status;
    buffer->mapped =
        berth__ocl.clEnqueueMapBuffer(on, buffer->id, true, (uint64_t)(OCL_MAP_READ | OCL_MAP_WRITE), 0,
                                      mapped_bytes, 0, NULL, NULL, &code);
    berth__ocl_queue_return(buffer->device, on);
    return buffer->mapped ? BERTH_OK : berth__ocl_fail(buffer->device, code, "mapping pinned memory");
}

/* Nobody has it, and nothing that is pinned is used by a command any more. */
static void let_go(ocl_buffer *buffer)
{
    if (buffer->mapped && !undo_map(buffer))
        berth__log(BERTH_LOG_WARNING, "OpenCL device %d: %zu bytes of pinned memory cannot be unmapped",
                   berth__ocl_ordinal(buffer->device), buffer->size_bytes);
    berth__ocl_buffer_drop(buffer);
}

/* ---- Blocks -------------------------------------------------------------------------------------- */

/* Pinned memory that lacks is the host's. */
static berth_status fail_pinned(berth_status status, const ocl_device *device, size_t size_bytes)
{
    if (status != BERTH_OUT_OF_DEVICE_MEMORY)
        return status;
    int32_t code = (int32_t)berth_last_error()->driver_code;
    return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, code, berth__ocl_words(code),
                              "OpenCL device %d has no %zu bytes of pinned memory",
                              berth__ocl_ordinal(device), size_bytes);
}

/* With room to align it. */
static berth_status pinned_block(ocl_device *device, size_t size_bytes, size_t alignment, ocl_buffer **out)
{
    berth_status status;
    ocl_buffer *buffer =
        berth__ocl_buffer_new(device, OCL_MEM_ALLOC_HOST_PTR, size_bytes + alignment, &status);
    if (!buffer)
        return fail_pinned(status, device, size_bytes);
    buffer->size_bytes = size_bytes;
    status = map_buffer(buffer, size_bytes + alignment);
    if (status) {
        berth__ocl_buffer_drop(buffer);
        return status;
    }
    uintptr_t mapped = (uintptr_t)buffer->mapped;
    buffer->p = buffer->mapped + (berth__align_up(mapped, alignment) - mapped);
    *out = buffer;
    return BERTH_OK;
}

/* At least a page apart from any other, so that distances between addresses are as aligned as the addresses. */
static berth_status device_block(ocl_device *device, size_t size_bytes, size_t alignment, ocl_buffer **out)
{
    void *p = NULL;
    berth_status status;
    ocl_buffer *buffer = berth__ocl_buffer_new(device, 0, size_bytes, &status);
    if (!buffer)
        return status;
    status = berth_addresses_reserve(size_bytes, alignment, &p);
    if (status) {
        berth__ocl_buffer_drop(buffer);
        return status;
    }
    buffer->p = p;
    *out = buffer;
    return BERTH_OK;
}

berth_status berth__ocl_buffer_allocate(ocl_device *device, berth_memory_kind kind, size_t size_bytes,
                                        size_t alignment, void **out)
{
    ocl_buffer *buffer = NULL;
    berth_status status = kind == BERTH_MEMORY_PINNED ? pinned_block(device, size_bytes, alignment, &buffer)
                                                      : device_block(device, size_bytes, alignment, &buffer);
    if (!buffer)
        return status;
    void *p = buffer->p;
    if (!opencl_remember(buffer)) {
        let_go(buffer);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember a buffer");
    }
    *out = p;
    return BERTH_OK;
}

static void forget_and_let_go(void *context)
{
    forget(context);
    let_go(context);
}

berth_status berth__ocl_buffer_release(ocl_device *device, void *p, ocl_stream *stream)
{
    ocl_buffer *buffer = set_released(device, p, true);
    if (!buffer)
        return berth__fail(BERTH_NOT_FOUND, "%p is no block of OpenCL device %d", p,
                           berth__ocl_ordinal(device));
    berth_status status = stream ? berth__ocl_when_passed(stream, forget_and_let_go, buffer) : BERTH_OK;
    if (!stream)
        forget_and_let_go(buffer);
    else if (status)
        (void)set_released(device, p, false); /* still the caller's */
    return status;
}

/* ---- For programs -------------------------------------------------------------------------------- */

/* The memory of `device` that `p` lies in. */
static berth_status find_place(berth_device device, const void *p, ocl_place *place)
{
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = berth__ocl_alive(ocl);
    if (status)
        return status;
    if (!ocl->buffers)
        return berth__fail(BERTH_UNSUPPORTED,
                           "the addresses of OpenCL device %d are pointers: see berth_opencl_memory",
                           (int)device.ordinal);
    *place = berth__ocl_place_of(p);
    if (place->buffer && !place->pinned && place->device == ocl)
        return BERTH_OK;
    return berth__fail(BERTH_NOT_FOUND, "%p is no memory of OpenCL device %d", p, (int)device.ordinal);
}

berth_status berth__ocl_locate(void *self, berth_device device, const void *p, berth_device_place *out)
{
    (void)self;
    ocl_place place = {0};
    berth_status status = find_place(device, p, &place);
    if (status)
        return status;
    out->handle = (uint64_t)(uintptr_t)place.buffer;
    out->offset_bytes = place.offset;
    out->size_bytes = place.size_bytes;
    return BERTH_OK;
}

static berth_status part_of(const ocl_place *place, size_t size_bytes, void **out)
{
    const ocl_region region = {place->offset, size_bytes};
    int32_t code = OCL_SUCCESS;
    if (place->offset % place->device->part_alignment != 0)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "a buffer of OpenCL device %d cannot begin at offset %zu: ask for memory at an "
                           "alignment of %zu",
                           berth__ocl_ordinal(place->device), place->offset, place->device->part_alignment);
    ocl_mem part =
        berth__ocl.clCreateSubBuffer(place->buffer, 0, OCL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (!part)
        return berth__ocl_fail(place->device, code, "making a part of a buffer");
    *out = part;
    return BERTH_OK;
}

berth_status berth_opencl_buffer(berth_device device, const void *p, size_t size_bytes, void **out)
{
    berth_opencl_memory_model model;
    ocl_place place = {0};
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    if (!p || size_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s", p ? "a buffer of 0 bytes" : "the address is NULL");
    berth_status status = berth_opencl_memory(device, &model); /* that there is such a device */
    if (!status)
        status = find_place(device, p, &place);
    if (status)
        return status;
    if (size_bytes > place.size_bytes - place.offset)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes from %p run past the end of the block",
                           size_bytes, p);
    if (size_bytes < place.size_bytes)
        return part_of(&place, size_bytes, out);
    int32_t code = berth__ocl.clRetainMemObject(place.buffer);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(place.device, code, "retaining a buffer");
    *out = place.buffer;
    return BERTH_OK;
}

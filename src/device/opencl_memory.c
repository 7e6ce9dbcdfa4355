/* Blocks of OpenCL devices: shared virtual memory or the USM extension, and which memory is a buffer instead.
 *
 * Device memory is coarse-grained: the host may touch it only between a map and an unmap, which a copy
 * without a stream does; a copy on a stream is a command of the device and needs neither. Pinned and managed
 * memory is fine-grained where the device has that. What has no pointer of that sort is a buffer
 * (opencl_buffer.c). */
#include "device/opencl.h"

#include "base/pointers.h"

/* Large blocks of most drivers have this, so that we ask for more than the size only beyond it, or when one has
 * not (PoCL). OpenCL itself promises 128, the size of its largest type. */
enum { USUAL_ALIGNMENT = 4096 };

static berth__pointers raw_blocks; /* blocks that begin behind where the driver's do, and where that is */

static berth_status no_such_memory(berth_device device, const char *what)
{
    return berth__fail(BERTH_UNSUPPORTED, "OpenCL device %d has no %s", (int)device.ordinal, what);
}

berth_status berth__ocl_check_kind(berth_device device, berth_memory_kind kind)
{
    const ocl_device *ocl = berth__ocl_device(device);
    if (ocl->usm)
        return BERTH_OK;
    if (!ocl->coarse && !ocl->buffers)
        return no_such_memory(device, "OpenCL 1.2, which Berth needs");
    if (kind == BERTH_MEMORY_MANAGED && !ocl->fine)
        return no_such_memory(device, "fine-grained shared virtual memory, which managed memory needs");
    return BERTH_OK;
}

/* With room to align it, which buffers without a pointer do not need. */
berth_status berth__ocl_most_bytes(void *self, berth_device device, berth_memory_kind kind, size_t *out)
{
    (void)self;
    const ocl_device *ocl = berth__ocl_device(device);
    /* Asked for often, and the driver's own devices stay. */
    bool locked = device.ordinal >= berth__ocl_listed_count() && berth__ocl_places_lock();
    size_t room = ocl->buffers && kind == BERTH_MEMORY_DEVICE ? 0 : USUAL_ALIGNMENT;
    bool known = ocl->most_bytes > room && ocl->most_bytes < SIZE_MAX;
    *out = known ? (size_t)ocl->most_bytes - room : SIZE_MAX;
    berth__ocl_places_unlock(locked);
    return BERTH_OK;
}

/* ---- From the driver ----------------------------------------------------------------------------- */

static void *ask_usm(const ocl_device *device, ocl_context context, berth_memory_kind kind,
                     const uint64_t *properties, size_t size_bytes, int32_t *code)
{
    const ocl_usm_functions *usm = &device->usm_functions;
    if (kind == BERTH_MEMORY_PINNED)
        return usm->clHostMemAllocINTEL(context, properties, size_bytes, 0, code);
    if (kind == BERTH_MEMORY_DEVICE)
        return usm->clDeviceMemAllocINTEL(context, device->id, properties, size_bytes, 0, code);
    return usm->clSharedMemAllocINTEL(context, device->id, properties, size_bytes, 0, code);
}

/* Above the largest size that the device tells, Intel's driver wants to be told that it is meant. Another driver with
 * the extension need not know that property, and is asked without it. */
static berth_status usm_block(ocl_device *device, ocl_context context, berth_memory_kind kind,
                              size_t size_bytes, void **out)
{
    static const uint64_t any_size[] = {OCL_MEM_FLAGS_INTEL, OCL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL, 0};
    int32_t code = OCL_SUCCESS;
    void *p = NULL;
    if (device->most_bytes && size_bytes > device->most_bytes)
        p = ask_usm(device, context, kind, any_size, size_bytes, &code);
    if (!p)
        p = ask_usm(device, context, kind, NULL, size_bytes, &code);
    if (!p)
        return berth__ocl_fail_memory(device, code, size_bytes);
    *out = p;
    return BERTH_OK;
}

berth_status berth__ocl_block(ocl_device *device, berth_memory_kind kind, size_t size_bytes, void **out)
{
    ocl_context context;
    berth_status status = berth__ocl_context(device, &context);
    if (status)
        return status;
    if (device->usm)
        return usm_block(device, context, kind, size_bytes, out);
    uint64_t flags = OCL_MEM_READ_WRITE;
    if (kind != BERTH_MEMORY_DEVICE)
        flags |= OCL_MEM_SVM_FINE_GRAIN_BUFFER;
    void *p = berth__ocl.clSVMAlloc(context, flags, size_bytes, 0);
    if (!p) /* there is no code to ask for */
        return berth__ocl_fail_memory(device, OCL_MEM_OBJECT_ALLOCATION_FAILURE, size_bytes);
    *out = p;
    return BERTH_OK;
}

void berth__ocl_free_block(ocl_device *device, void *raw)
{
    ocl_context context = atomic_load_explicit(&device->context, memory_order_acquire);
    if (device->usm)
        (void)device->usm_functions.clMemBlockingFreeINTEL(context, raw);
    else
        berth__ocl.clSVMFree(context, raw);
}

/* ---- Freed by a stream --------------------------------------------------------------------------- */

typedef struct ocl_late_free {
    ocl_device *device;
    void *raw;
} ocl_late_free;

static void run_late_free(void *context)
{
    ocl_late_free *late = context;
    berth__ocl_free_block(late->device, late->raw);
    berth__heap_free(late);
}

/* The extension has no free on a queue, and its own waits for the commands that use the block: from a function
 * of the stream, for ever. So it is called when they have run. */
static berth_status free_when_passed(ocl_stream *stream, void *raw)
{
    ocl_late_free *late = berth__heap_alloc(sizeof *late);
    if (!late)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to free a block on a stream");
    *late = (ocl_late_free){stream->device, raw};
    berth_status status = berth__ocl_when_passed(stream, run_late_free, late);
    if (status)
        berth__heap_free(late);
    return status;
}

berth_status berth__ocl_free_on_stream(ocl_stream *stream, void *raw)
{
    if (stream->device->usm)
        return free_when_passed(stream, raw);
    int32_t code = berth__ocl_before(stream);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clEnqueueSVMFree(stream->queue, 1, &raw, NULL, NULL, 0, NULL, NULL);
    if (code != OCL_SUCCESS)
        return free_when_passed(stream, raw);
    (void)berth__ocl_after(stream); /* the block goes, whatever this says */
    return BERTH_OK;
}

/* ---- The operations ------------------------------------------------------------------------------ */

static void *align_in(void *raw, size_t alignment)
{
    return (char *)raw + (berth__align_up((uintptr_t)raw, alignment) - (uintptr_t)raw);
}

static berth_status aligned_block(ocl_device *device, berth_memory_kind kind, size_t size_bytes,
                                  size_t alignment, void **raw)
{
    if (alignment <= USUAL_ALIGNMENT) {
        berth_status status = berth__ocl_block(device, kind, size_bytes, raw);
        if (status || align_in(*raw, alignment) == *raw)
            return status;
        berth__ocl_free_block(device, *raw);
    }
    return berth__ocl_block(device, kind, size_bytes + alignment, raw);
}

static berth_status allocate_counted(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                     size_t alignment, void **out)
{
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = berth__ocl_alive(ocl);
    if (!status)
        status = berth__ocl_check_kind(device, kind);
    if (status)
        return status;
    if (berth__ocl_is_buffer(ocl, kind))
        return berth__ocl_buffer_allocate(ocl, kind, size_bytes, alignment, out);
    void *raw = NULL;
    status = aligned_block(ocl, kind, size_bytes, alignment, &raw);
    if (status)
        return status;
    void *p = align_in(raw, alignment);
    if (p != raw && !berth__pointers_put(&raw_blocks, p, raw, BERTH__RANK_DEVICE)) {
        berth__ocl_free_block(ocl, raw);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember where a block begins");
    }
    *out = p;
    return BERTH_OK;
}

berth_status berth__ocl_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)stream;
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = berth__ocl_hold(ocl);
    if (status)
        return status;
    status = allocate_counted(device, kind, size_bytes, alignment, out);
    if (status)
        berth__ocl_drop(ocl);
    return status;
}

static berth_status release_counted(berth_device device, berth_memory_kind kind, void *p,
                                    berth_stream *stream)
{
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = berth__ocl_check_kind(device, kind);
    if (!status && (berth__ocl_is_forked() || atomic_load(&ocl->gone)))
        status = berth__ocl_alive(ocl);
    if (status)
        return status;
    ocl_stream *on = berth__ocl_alive(ocl) == BERTH_OK ? (ocl_stream *)stream : NULL;
    if (berth__ocl_is_buffer(ocl, kind))
        return berth__ocl_buffer_release(ocl, p, on);
    void *raw = berth__pointers_take(&raw_blocks, p, BERTH__RANK_DEVICE), *begin = raw ? raw : p;
    if (!on)
        berth__ocl_free_block(ocl, begin);
    else
        status = berth__ocl_free_on_stream(on, begin);
    if (status && raw) /* the block is still the caller's; there was room for it before */
        (void)berth__pointers_put(&raw_blocks, p, raw, BERTH__RANK_DEVICE);
    return status;
}

berth_status berth__ocl_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes;
    berth_status status = release_counted(device, kind, p, stream);
    if (!status)
        berth__ocl_drop(berth__ocl_device(device));
    return status;
}

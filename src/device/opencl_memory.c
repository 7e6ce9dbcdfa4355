/* Memory of OpenCL devices: shared virtual memory or the USM extension, copies and fills.
 *
 * Device memory is coarse-grained: the host may touch it only between a map and an unmap, which a copy
 * without a stream does; a copy on a stream is a command of the device and needs neither. Pinned and managed
 * memory is fine-grained where the device has that. Without it pinned memory is the system's: commands take
 * such pointers too. */
#include "device/opencl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pointers.h"

/* What clSVMAlloc is sure to give: the size of its largest type, long16. */
enum { NATURAL_ALIGNMENT = 128 };

static berth__pointers raw_blocks; /* blocks with a larger alignment, and where they really begin */

/* ---- Blocks -------------------------------------------------------------------------------------- */

static bool from_system(const ocl_device *device, berth_memory_kind kind)
{
    return kind == BERTH_MEMORY_PINNED && !device->usm && !device->fine;
}

static berth_status no_such_memory(berth_device device, const char *what)
{
    return berth__fail(BERTH_UNSUPPORTED, "OpenCL device %d has no %s", (int)device.ordinal, what);
}

static berth_status check_kind(berth_device device, berth_memory_kind kind)
{
    const ocl_device *ocl = berth__ocl_device(device);
    if (ocl->usm)
        return BERTH_OK;
    if (!ocl->coarse)
        return no_such_memory(device, "shared virtual memory, nor the extension "
                                      "cl_intel_unified_shared_memory");
    if (kind == BERTH_MEMORY_MANAGED && !ocl->fine)
        return no_such_memory(device, "fine-grained shared virtual memory, which managed memory needs");
    return BERTH_OK;
}

static berth_status usm_block(ocl_device *device, ocl_context context, berth_memory_kind kind,
                              size_t size_bytes, void **out)
{
    const ocl_usm_functions *usm = &device->usm_functions;
    int32_t code = OCL_SUCCESS;
    void *p = NULL;
    if (kind == BERTH_MEMORY_PINNED)
        p = usm->clHostMemAllocINTEL(context, NULL, size_bytes, 0, &code);
    else if (kind == BERTH_MEMORY_DEVICE)
        p = usm->clDeviceMemAllocINTEL(context, device->id, NULL, size_bytes, 0, &code);
    else
        p = usm->clSharedMemAllocINTEL(context, device->id, NULL, size_bytes, 0, &code);
    if (!p)
        return berth__ocl_fail_memory(device, code, size_bytes);
    *out = p;
    return BERTH_OK;
}

/* A block with whatever alignment the driver gives. */
static berth_status block(ocl_device *device, berth_memory_kind kind, size_t size_bytes, void **out)
{
    ocl_context context;
    berth_status status = berth__ocl_context(device, &context);
    if (status != BERTH_OK)
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

static void free_block(ocl_device *device, void *raw)
{
    ocl_context context = atomic_load_explicit(&device->context, memory_order_acquire);
    if (device->usm)
        (void)device->usm_functions.clMemBlockingFreeINTEL(context, raw);
    else
        berth__ocl.clSVMFree(context, raw);
}

static berth_status system_block(size_t size_bytes, size_t alignment, void **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = NULL;
    if (posix_memalign(&p, alignment < page ? page : alignment, size_bytes) != 0)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "the system has no %zu bytes", size_bytes);
    *out = p;
    return BERTH_OK;
}

berth_status berth__ocl_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    (void)stream;
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = berth__ocl_alive(ocl);
    if (status == BERTH_OK)
        status = check_kind(device, kind);
    if (status != BERTH_OK)
        return status;
    if (from_system(ocl, kind))
        return system_block(size_bytes, alignment, out);
    void *raw = NULL;
    bool over_aligned = alignment > NATURAL_ALIGNMENT;
    status = block(ocl, kind, over_aligned ? size_bytes + alignment : size_bytes, &raw);
    if (status != BERTH_OK)
        return status;
    void *p = (char *)raw + (berth__align_up((uintptr_t)raw, alignment) - (uintptr_t)raw);
    if (p != raw && !over_aligned) { /* a driver that aligns less than its largest type */
        free_block(ocl, raw);
        status = block(ocl, kind, size_bytes + alignment, &raw);
        if (status != BERTH_OK)
            return status;
        p = (char *)raw + (berth__align_up((uintptr_t)raw, alignment) - (uintptr_t)raw);
    }
    if (p != raw && !berth__pointers_put(&raw_blocks, p, raw, BERTH__RANK_DEVICE)) {
        free_block(ocl, raw);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember where a block begins");
    }
    *out = p;
    return BERTH_OK;
}

berth_status berth__ocl_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                berth_stream *stream)
{
    (void)size_bytes;
    ocl_device *ocl = berth__ocl_device(device);
    berth_status status = check_kind(device, kind);
    if (status != BERTH_OK)
        return status;
    void *raw = berth__pointers_take(&raw_blocks, p, BERTH__RANK_DEVICE);
    if (!raw)
        raw = p;
    /* On a stream the block goes when the stream gets there. The extension's free waits by itself. */
    if (stream && !ocl->usm && !from_system(ocl, kind) && berth__ocl_alive(ocl) == BERTH_OK) {
        ocl_stream *on = (ocl_stream *)stream;
        int32_t code = berth__ocl_before(on);
        if (code == OCL_SUCCESS)
            code = berth__ocl.clEnqueueSVMFree(on->queue, 1, &raw, NULL, NULL, 0, NULL, NULL);
        if (code == OCL_SUCCESS)
            code = berth__ocl_after(on);
        return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(ocl, code, "freeing a block on a queue");
    }
    if (from_system(ocl, kind)) {
        if (stream && berth__ocl_alive(ocl) == BERTH_OK)
            status = berth__ocl_stream_synchronize(stream);
        free(raw);
    } else {
        free_block(ocl, raw);
    }
    return status;
}

/* ---- Copies -------------------------------------------------------------------------------------- */

static int32_t enqueue_copy(ocl_device *device, ocl_queue queue, bool blocking, void *dst, const void *src,
                            size_t size_bytes)
{
    return device->usm ? device->usm_functions.clEnqueueMemcpyINTEL(queue, blocking, dst, src, size_bytes, 0,
                                                                    NULL, NULL)
                       : berth__ocl.clEnqueueSVMMemcpy(queue, blocking, dst, src, size_bytes, 0, NULL, NULL);
}

static bool overlaps(const void *a, const void *b, size_t size_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < size_bytes : x - y < size_bytes;
}

/* The driver forbids overlapping copies: through a block that the queue itself frees afterwards. */
static berth_status copy_overlapping(berth_device device, ocl_queue queue, void *dst, const void *src,
                                     size_t size_bytes)
{
    ocl_device *ocl = berth__ocl_device(device);
    void *between = NULL;
    berth_status status = block(ocl, BERTH_MEMORY_DEVICE, size_bytes, &between);
    if (status != BERTH_OK)
        return status;
    int32_t code = enqueue_copy(ocl, queue, false, between, src, size_bytes);
    if (code == OCL_SUCCESS)
        code = enqueue_copy(ocl, queue, false, dst, between, size_bytes);
    if (code == OCL_SUCCESS && !ocl->usm)
        code = berth__ocl.clEnqueueSVMFree(queue, 1, &between, NULL, NULL, 0, NULL, NULL);
    else
        free_block(ocl, between); /* the extension's waits */
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(ocl, code, "a copy");
}

static berth_status copy_on_stream(berth_device device, void *dst, const void *src, size_t size_bytes,
                                   ocl_stream *stream)
{
    ocl_device *ocl = stream->device;
    berth_status status = BERTH_OK;
    int32_t code = berth__ocl_before(stream);
    if (code == OCL_SUCCESS && BERTH_UNLIKELY(overlaps(dst, src, size_bytes)))
        status = copy_overlapping(device, stream->queue, dst, src, size_bytes);
    else if (code == OCL_SUCCESS)
        code = enqueue_copy(ocl, stream->queue, false, dst, src, size_bytes);
    if (code == OCL_SUCCESS && status == BERTH_OK)
        code = berth__ocl_after(stream);
    return code == OCL_SUCCESS ? status : berth__ocl_fail(ocl, code, "a copy");
}

/* Between the host and coarse-grained memory: the host copies, while the block is mapped. */
static int32_t copy_mapped(ocl_queue queue, void *dst, const void *src, size_t size_bytes, bool to_device)
{
    void *shared = to_device ? dst : (void *)(uintptr_t)src;
    int32_t code = berth__ocl.clEnqueueSVMMap(queue, true, to_device ? OCL_MAP_WRITE : OCL_MAP_READ, shared,
                                              size_bytes, 0, NULL, NULL);
    if (code != OCL_SUCCESS)
        return code;
    memcpy(dst, src, size_bytes);
    code = berth__ocl.clEnqueueSVMUnmap(queue, shared, 0, NULL, NULL);
    return code == OCL_SUCCESS ? berth__ocl.clFinish(queue) : code;
}

static berth_status copy_now(berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind)
{
    ocl_device *ocl = berth__ocl_device(device);
    ocl_queue queue;
    if (kind == BERTH_COPY_HOST_TO_HOST) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    berth_status status = berth__ocl_own_queue(ocl, &queue);
    if (status != BERTH_OK)
        return status;
    bool one_side = kind == BERTH_COPY_HOST_TO_DEVICE || kind == BERTH_COPY_DEVICE_TO_HOST;
    int32_t code;
    if (overlaps(dst, src, size_bytes)) {
        status = copy_overlapping(device, queue, dst, src, size_bytes);
        code = status == BERTH_OK ? berth__ocl.clFinish(queue) : OCL_SUCCESS;
    } else if (one_side && !ocl->usm) {
        code = copy_mapped(queue, dst, src, size_bytes, kind == BERTH_COPY_HOST_TO_DEVICE);
    } else {
        code = enqueue_copy(ocl, queue, true, dst, src, size_bytes);
    }
    return code == OCL_SUCCESS ? status : berth__ocl_fail(ocl, code, "a copy");
}

static berth_status check_can(berth_device device)
{
    berth_status status = berth__ocl_alive(berth__ocl_device(device));
    return status == BERTH_OK ? check_kind(device, BERTH_MEMORY_DEVICE) : status;
}

berth_status berth__ocl_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    berth_status status = check_can(device);
    if (status != BERTH_OK)
        return status;
    return stream ? copy_on_stream(device, dst, src, size_bytes, (ocl_stream *)stream)
                  : copy_now(device, dst, src, size_bytes, kind);
}

/* ---- Zero ---------------------------------------------------------------------------------------- */

/* Without fine-grained memory a pointer may be the system's (pinned memory), which a fill does not take but a
 * copy does: from a piece of zeros. */
static int32_t zero_by_copies(ocl_queue queue, char *dst, size_t size_bytes)
{
    static const char zeros[64 << 10];
    int32_t code = OCL_SUCCESS;
    while (size_bytes > 0 && code == OCL_SUCCESS) {
        size_t piece = size_bytes < sizeof zeros ? size_bytes : sizeof zeros;
        code = berth__ocl.clEnqueueSVMMemcpy(queue, false, dst, zeros, piece, 0, NULL, NULL);
        dst += piece;
        size_bytes -= piece;
    }
    return code;
}

static int32_t enqueue_zero(ocl_device *device, ocl_queue queue, void *dst, size_t size_bytes)
{
    static const char zeros[16];
    size_t pattern = (((uintptr_t)dst | size_bytes) % sizeof zeros) == 0 ? sizeof zeros : 1;
    if (device->usm)
        return device->usm_functions.clEnqueueMemFillINTEL(queue, dst, zeros, pattern, size_bytes, 0, NULL,
                                                           NULL);
    if (!device->fine)
        return zero_by_copies(queue, dst, size_bytes);
    return berth__ocl.clEnqueueSVMMemFill(queue, dst, zeros, pattern, size_bytes, 0, NULL, NULL);
}

berth_status berth__ocl_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream)
{
    ocl_device *ocl = berth__ocl_device(device);
    ocl_queue queue = NULL;
    int32_t code = OCL_SUCCESS;
    berth_status status = check_can(device);
    if (status == BERTH_OK && !stream)
        status = berth__ocl_own_queue(ocl, &queue);
    if (status != BERTH_OK)
        return status;
    if (!stream) {
        code = enqueue_zero(ocl, queue, dst, size_bytes);
        if (code == OCL_SUCCESS)
            code = berth__ocl.clFinish(queue);
    } else {
        ocl_stream *on = (ocl_stream *)stream;
        code = berth__ocl_before(on);
        if (code == OCL_SUCCESS)
            code = enqueue_zero(ocl, on->queue, dst, size_bytes);
        if (code == OCL_SUCCESS)
            code = berth__ocl_after(on);
    }
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(ocl, code, "filling with zero");
}

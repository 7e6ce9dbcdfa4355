/* Copies and fills of OpenCL devices whose memory has pointers; opencl_move.c has the others. */
#include "device/opencl.h"

#include <string.h>

/* ---- Copies -------------------------------------------------------------------------------------- */

/* `after`, if not NULL, is waited for; `event`, if not NULL, is the copy's. */
static int32_t enqueue_copy(ocl_device *device, ocl_queue queue, bool blocking, void *dst, const void *src,
                            size_t size_bytes, ocl_event_id after, ocl_event_id *event)
{
    uint32_t waits = after != NULL;
    const ocl_event_id *list = after ? &after : NULL;
    return device->usm
               ? device->usm_functions.clEnqueueMemcpyINTEL(queue, blocking, dst, src, size_bytes, waits,
                                                            list, event)
               : berth__ocl.clEnqueueSVMMemcpy(queue, blocking, dst, src, size_bytes, waits, list, event);
}

static bool copy_overlaps(const void *a, const void *b, size_t size_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < size_bytes : x - y < size_bytes;
}

static void keep_for_good(const ocl_device *device, size_t size_bytes)
{
    berth__log(BERTH_LOG_WARNING,
               "OpenCL device %d: %zu bytes stay allocated, since a copy may still use them and cannot be "
               "waited for",
               berth__ocl_ordinal(device), size_bytes);
}

/* Frees the block between once the copies from and to it have run, of which `last` is the last. Without a stream these
 * have run on return, or it says why that is not known. */
static berth_status free_between(ocl_device *device, ocl_queue queue, ocl_stream *stream, void *between,
                                 size_t size_bytes, ocl_event_id last)
{
    if (stream && !device->usm &&
        berth__ocl.clEnqueueSVMFree(queue, 1, &between, NULL, NULL, 1, &last, NULL) == OCL_SUCCESS)
        return BERTH_OK;
    if (stream && berth__ocl_free_on_stream(stream, between) == BERTH_OK)
        return BERTH_OK;
    bool own = stream && &stream->base == berth__running_stream;
    berth_status status = own ? BERTH_OK : berth__ocl_finish(device, queue, "a copy");
    if (!own && (!status || berth__ocl_drain(queue)))
        berth__ocl_free_block(device, between);
    else
        keep_for_good(device, size_bytes);
    return stream ? BERTH_OK : status;
}

/* The driver forbids overlapping copies: through a block between. Events order both halves and the free, since
 * the queue may be one that does not. `stream` is NULL for a queue that is ours alone. */
static berth_status copy_overlapping(ocl_device *device, ocl_queue queue, ocl_stream *stream, void *dst,
                                     const void *src, size_t size_bytes)
{
    void *between = NULL;
    ocl_event_id first = NULL, second = NULL;
    berth_status status = berth__ocl_block(device, BERTH_MEMORY_DEVICE, size_bytes, &between);
    if (status)
        return status;
    int32_t code = enqueue_copy(device, queue, false, between, src, size_bytes, NULL, &first);
    if (code != OCL_SUCCESS) {
        berth__ocl_free_block(device, between); /* nobody has it */
        return berth__ocl_fail(device, code, "a copy");
    }
    code = enqueue_copy(device, queue, false, dst, between, size_bytes, first, &second);
    status = free_between(device, queue, stream, between, size_bytes, code == OCL_SUCCESS ? second : first);
    (void)berth__ocl.clReleaseEvent(first);
    if (second)
        (void)berth__ocl.clReleaseEvent(second);
    return code == OCL_SUCCESS ? status : berth__ocl_fail(device, code, "a copy");
}

static berth_status copy_on_stream(void *dst, const void *src, size_t size_bytes, ocl_stream *stream)
{
    ocl_device *ocl = stream->device;
    berth_status status = BERTH_OK;
    int32_t code = berth__ocl_before(stream);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(ocl, code, "a copy");
    if (BERTH_UNLIKELY(copy_overlaps(dst, src, size_bytes)))
        status = copy_overlapping(ocl, stream->queue, stream, dst, src, size_bytes);
    else
        code = enqueue_copy(ocl, stream->queue, false, dst, src, size_bytes, NULL, NULL);
    /* Half a copy may be under way even when the whole was refused. */
    int32_t sent = berth__ocl_after(stream);
    if (code == OCL_SUCCESS)
        code = sent;
    return status || code == OCL_SUCCESS ? status : berth__ocl_fail(ocl, code, "a copy");
}

/* Between the host and coarse-grained memory: the host copies, while the block is mapped. What is written whole
 * need not be read first. */
static int32_t copy_mapped(ocl_queue queue, void *dst, const void *src, size_t size_bytes, bool to_device)
{
    void *shared = to_device ? dst : (void *)(uintptr_t)src;
    int32_t code = berth__ocl.clEnqueueSVMMap(
        queue, true, to_device ? OCL_MAP_WRITE_INVALIDATE : OCL_MAP_READ, shared, size_bytes, 0, NULL, NULL);
    if (code != OCL_SUCCESS)
        return code;
    memcpy(dst, src, size_bytes);
    /* A block that stays mapped is of no use to any command: a shortage that passes must not cause that. */
    int attempts = 0;
    do
        code = berth__ocl.clEnqueueSVMUnmap(queue, shared, 0, NULL, NULL);
    while (berth__ocl_once_more(code, &attempts));
    return code;
}

berth_status berth__ocl_finish_or_fail(ocl_device *device, ocl_queue queue, int32_t code, const char *what)
{
    berth_status status = BERTH_LIKELY(code == OCL_SUCCESS) ? berth__ocl_finish(device, queue, what)
                                                            : berth__ocl_fail(device, code, what);
    if (status)
        (void)berth__ocl_drain(queue); /* some of it may be under way, and what it uses goes on this return */
    return status;
}

static berth_status copy_now(ocl_device *ocl, ocl_queue queue, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind)
{
    int32_t code;
    bool to_device = kind == BERTH_COPY_HOST_TO_DEVICE, to_host = kind == BERTH_COPY_DEVICE_TO_HOST;
    if (copy_overlaps(dst, src, size_bytes))
        return copy_overlapping(ocl, queue, NULL, dst, src, size_bytes);
    if ((to_device || to_host) && !ocl->usm && !berth__ocl_is_pinned(to_device ? dst : src))
        code = copy_mapped(queue, dst, src, size_bytes, to_device);
    else
        code = enqueue_copy(ocl, queue, true, dst, src, size_bytes, NULL, NULL);
    return berth__ocl_finish_or_fail(ocl, queue, code, "a copy");
}

static berth_status check_can(berth_device device)
{
    berth_status status = berth__ocl_alive(berth__ocl_device(device));
    return !status ? berth__ocl_check_kind(device, BERTH_MEMORY_DEVICE) : status;
}

berth_status berth__ocl_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    (void)self;
    ocl_device *ocl = berth__ocl_device(device);
    ocl_queue on = NULL;
    berth_status status = check_can(device);
    if (status)
        return status;
    if (ocl->buffers)
        return berth__ocl_move(ocl, dst, src, size_bytes, kind, (ocl_stream *)stream);
    if (stream)
        return copy_on_stream(dst, src, size_bytes, (ocl_stream *)stream);
    if (kind == BERTH_COPY_HOST_TO_HOST) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    status = berth__ocl_queue_borrow(ocl, &on);
    if (status)
        return status;
    status = copy_now(ocl, on, dst, src, size_bytes, kind);
    berth__ocl_queue_return(ocl, on);
    return status;
}

/* ---- Zero ---------------------------------------------------------------------------------------- */

/* A mapped buffer (pinned memory) is host memory, which a fill does not take but a copy does: from a piece of
 * zeros. */
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
    if (!device->fine && berth__ocl_is_pinned(dst))
        return zero_by_copies(queue, dst, size_bytes);
    return berth__ocl.clEnqueueSVMMemFill(queue, dst, zeros, pattern, size_bytes, 0, NULL, NULL);
}

static berth_status zero_on_stream(ocl_stream *stream, void *dst, size_t size_bytes)
{
    int32_t code = berth__ocl_before(stream);
    if (code == OCL_SUCCESS)
        code = enqueue_zero(stream->device, stream->queue, dst, size_bytes);
    int32_t sent = berth__ocl_after(stream); /* some of it may be under way */
    if (code == OCL_SUCCESS)
        code = sent;
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(stream->device, code, "filling with zero");
}

berth_status berth__ocl_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream)
{
    (void)self;
    ocl_device *ocl = berth__ocl_device(device);
    ocl_queue on = NULL;
    berth_status status = check_can(device);
    if (status)
        return status;
    if (ocl->buffers)
        return berth__ocl_move_zero(ocl, dst, size_bytes, (ocl_stream *)stream);
    if (stream)
        return zero_on_stream((ocl_stream *)stream, dst, size_bytes);
    status = berth__ocl_queue_borrow(ocl, &on);
    if (status)
        return status;
    status = berth__ocl_finish_or_fail(ocl, on, enqueue_zero(ocl, on, dst, size_bytes), "filling with zero");
    berth__ocl_queue_return(ocl, on);
    return status;
}

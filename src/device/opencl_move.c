/* Copies and fills on OpenCL devices whose memory are buffers: an address of theirs becomes a buffer and an offset, and
 * which command it is follows from what both ends are. */
#include "device/opencl.h"

#include <string.h>

/* ---- What both ends are -------------------------------------------------------------------------- */

/* Where a range lies. `must`: the caller says that it is the device's. */
static berth_status find_end(ocl_device *device, const void *p, size_t size_bytes, bool must, ocl_place *out)
{
    *out = berth__ocl_place_of(p);
    if (!out->buffer)
        return must ? berth__fail(BERTH_INVALID_ARGUMENT, "%p is no memory of OpenCL device %d", p,
                                  berth__ocl_ordinal(device))
                    : BERTH_OK;
    if (size_bytes > out->size_bytes - out->offset)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes from %p run past the end of a block of %zu",
                           size_bytes, p, out->size_bytes);
    if (out->pinned) /* to the commands it is host memory */
        out->buffer = NULL;
    else if (atomic_load(&out->device->context) != atomic_load(&device->context))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "%p is memory of OpenCL device %d, in another context than that of device %d", p,
                           berth__ocl_ordinal(out->device), berth__ocl_ordinal(device));
    return BERTH_OK;
}

/* ---- On the host, in the stream's order ---------------------------------------------------------- */

typedef struct host_work {
    void *dst;
    const void *src; /* NULL: fill with zero */
    size_t size_bytes;
} host_work;

static void do_host_work(const host_work *work)
{
    if (work->src)
        memmove(work->dst, work->src, work->size_bytes);
    else
        memset(work->dst, 0, work->size_bytes);
}

static void run_host_work(void *context)
{
    do_host_work(context);
    berth__heap_free(context);
}

/* OpenCL has no command for two ends on the host. */
static berth_status on_host(const host_work *work, ocl_stream *stream)
{
    if (!stream) {
        do_host_work(work);
        return BERTH_OK;
    }
    host_work *kept = berth__heap_alloc(sizeof *kept);
    if (!kept)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue work on the host's memory");
    *kept = *work;
    berth_status status = berth__ocl_stream_call(NULL, &stream->base, run_host_work, kept);
    if (status)
        berth__heap_free(kept);
    return status;
}

/* ---- Commands ------------------------------------------------------------------------------------ */

/* The driver forbids copies that overlap: through a buffer between, which an event orders on any queue. It is given
 * back at once, since the driver keeps it for the commands. */
static int32_t copy_overlapping(ocl_queue queue, const ocl_place *to, const ocl_place *from,
                                size_t size_bytes, const ocl_buffer *between)
{
    ocl_event_id first = NULL;
    int32_t code = berth__ocl.clEnqueueCopyBuffer(queue, from->buffer, between->id, from->offset, 0,
                                                  size_bytes, 0, NULL, &first);
    if (code != OCL_SUCCESS)
        return code;
    code = berth__ocl.clEnqueueCopyBuffer(queue, between->id, to->buffer, 0, to->offset, size_bytes, 1,
                                          &first, NULL);
    (void)berth__ocl.clReleaseEvent(first);
    return code;
}

static bool move_overlaps(const ocl_place *a, const ocl_place *b, size_t size_bytes)
{
    size_t distance = a->offset < b->offset ? b->offset - a->offset : a->offset - b->offset;
    return a->buffer == b->buffer && distance < size_bytes;
}

typedef struct command {
    ocl_place to, from;
    void *dst;
    const void *src;
    size_t size_bytes;
    bool zero;
    ocl_buffer *between; /* of a copy that overlaps; NULL otherwise */
} command;

static int32_t move_enqueue(const command *c, ocl_queue queue, bool blocking)
{
    static const char zeros[16];
    if (c->zero) {
        size_t pattern = (c->to.offset | c->size_bytes) % sizeof zeros == 0 ? sizeof zeros : 1;
        return berth__ocl.clEnqueueFillBuffer(queue, c->to.buffer, zeros, pattern, c->to.offset,
                                              c->size_bytes, 0, NULL, NULL);
    }
    if (c->between)
        return copy_overlapping(queue, &c->to, &c->from, c->size_bytes, c->between);
    if (c->to.buffer && c->from.buffer)
        return berth__ocl.clEnqueueCopyBuffer(queue, c->from.buffer, c->to.buffer, c->from.offset,
                                              c->to.offset, c->size_bytes, 0, NULL, NULL);
    if (c->to.buffer)
        return berth__ocl.clEnqueueWriteBuffer(queue, c->to.buffer, blocking, c->to.offset, c->size_bytes,
                                               c->src, 0, NULL, NULL);
    return berth__ocl.clEnqueueReadBuffer(queue, c->from.buffer, blocking, c->from.offset, c->size_bytes,
                                          c->dst, 0, NULL, NULL);
}

static berth_status run_on_stream(const command *c, ocl_stream *stream, const char *what)
{
    int32_t code = berth__ocl_before(stream);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(stream->device, code, what);
    code = move_enqueue(c, stream->queue, false);
    int32_t sent = berth__ocl_after(stream); /* some of it may be under way even when the whole was refused */
    if (code == OCL_SUCCESS)
        code = sent;
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(stream->device, code, what);
}

static berth_status run_now(ocl_device *device, const command *c, const char *what)
{
    ocl_queue on = NULL;
    berth_status status = berth__ocl_queue_borrow(device, &on);
    if (status)
        return status;
    status = berth__ocl_finish_or_fail(device, on, move_enqueue(c, on, true), what);
    berth__ocl_queue_return(device, on);
    return status;
}

static berth_status move_run(ocl_device *device, const command *c, ocl_stream *stream, const char *what)
{
    return stream ? run_on_stream(c, stream, what) : run_now(device, c, what);
}

berth_status berth__ocl_move(ocl_device *device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, ocl_stream *stream)
{
    command c = {.dst = dst, .src = src, .size_bytes = size_bytes};
    bool to_device = kind == BERTH_COPY_HOST_TO_DEVICE || kind == BERTH_COPY_DEVICE_TO_DEVICE;
    bool from_device = kind == BERTH_COPY_DEVICE_TO_HOST || kind == BERTH_COPY_DEVICE_TO_DEVICE;
    berth_status status = find_end(device, dst, size_bytes, to_device, &c.to);
    if (!status)
        status = find_end(device, src, size_bytes, from_device, &c.from);
    if (status)
        return status;
    if (!c.to.buffer && !c.from.buffer)
        return on_host(&(host_work){dst, src, size_bytes}, stream);
    if (c.to.buffer && c.from.buffer && move_overlaps(&c.to, &c.from, size_bytes))
        c.between = berth__ocl_buffer_new(device, 0, size_bytes, &status);
    if (!status)
        status = move_run(device, &c, stream, "a copy");
    if (c.between)
        berth__ocl_buffer_drop(c.between);
    return status;
}

berth_status berth__ocl_move_zero(ocl_device *device, void *dst, size_t size_bytes, ocl_stream *stream)
{
    command c = {.dst = dst, .size_bytes = size_bytes, .zero = true};
    berth_status status = find_end(device, dst, size_bytes, true, &c.to);
    if (status)
        return status;
    return c.to.buffer ? move_run(device, &c, stream, "filling with zero")
                       : on_host(&(host_work){dst, NULL, size_bytes}, stream);
}

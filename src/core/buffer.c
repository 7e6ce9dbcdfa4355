/* Buffers: a counted owner of one block, or a view of somebody else's memory, and copies between them.
 *
 *     owner      allocator, data taken now or on first use
 *     view       no allocator, data from the caller
 *     sub        no allocator, data inside the parent, which it retains
 */
#include <pthread.h>
#include <string.h>

#include "base/park.h"
#include "base/thread.h"
#include "berth/buffer.h"
#include "core/after.h"
#include "device/device.h"

/* Or, while one thread allocates, what berth__inside gave it, which is 2 at least: after a fork the child sees
 * that nobody brings the block any more. */
enum { BLOCK_NONE = 0, BLOCK_HERE = 1 };

struct berth_buffer {
    _Atomic uint32_t references;
    _Atomic uint32_t state; /* BLOCK_NONE, BLOCK_HERE, or a mark */
    void *data;             /* written before state becomes BLOCK_HERE */
    size_t size_bytes;
    size_t alignment;
    berth_device device;
    berth_allocator *allocator; /* retained; NULL: the block is not ours */
    berth_buffer *parent;       /* retained; NULL: not a part */
};

static berth_status null_argument(const char *what)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", what);
}

/* ---- Life ---------------------------------------------------------------------------------------- */

/* NULL, with words kept, when there is no memory. */
static berth_buffer *new_buffer(size_t size_bytes, berth_device device)
{
    berth_buffer *buffer = berth__heap_zalloc(1, sizeof *buffer);
    if (!buffer) {
        (void)berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a buffer's handle");
        return NULL;
    }
    atomic_init(&buffer->references, 1);
    buffer->size_bytes = size_bytes;
    buffer->device = device;
    return buffer;
}

berth_status berth_buffer_create(berth_allocator *allocator, size_t size_bytes, size_t alignment, bool lazy,
                                 berth_buffer **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    if (!allocator)
        return null_argument("allocator");
    if (!berth__is_power_of_two(alignment) || alignment > BERTH_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "alignment %zu is not a power of two up to %zu", alignment,
                           BERTH_ALIGNMENT_MAX);
    berth_buffer *buffer = new_buffer(size_bytes, berth_allocator_device(allocator));
    if (!buffer)
        return BERTH_OUT_OF_HOST_MEMORY;
    buffer->alignment = alignment;
    buffer->allocator = berth_allocator_retain(allocator);
    berth_status status = lazy ? BERTH_OK : berth_buffer_allocate(buffer);
    if (status != BERTH_OK) {
        berth_buffer_release(buffer);
        return status;
    }
    *out = buffer;
    return BERTH_OK;
}

berth_status berth_buffer_view(void *p, size_t size_bytes, berth_device device, berth_buffer **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    if (!p && size_bytes > 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a view of %zu bytes needs an address", size_bytes);
    if (size_bytes > UINTPTR_MAX - (uintptr_t)p)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes from %p run past the end of memory", size_bytes, p);
    int32_t count = 0;
    berth_status status = berth_device_count((berth_device_kind)device.kind, &count);
    if (status != BERTH_OK)
        return status;
    if (device.ordinal < 0 || device.ordinal >= count)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no %s device %d to view memory of",
                           berth_device_kind_name((berth_device_kind)device.kind), (int)device.ordinal);
    berth_buffer *view = new_buffer(size_bytes, device);
    if (!view)
        return BERTH_OUT_OF_HOST_MEMORY;
    view->data = p;
    atomic_init(&view->state, BLOCK_HERE);
    *out = view;
    return BERTH_OK;
}

berth_status berth_buffer_sub(berth_buffer *parent, size_t offset_bytes, size_t size_bytes,
                              berth_buffer **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    if (!parent)
        return null_argument("parent");
    if (offset_bytes > parent->size_bytes || size_bytes > parent->size_bytes - offset_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes from %zu do not lie in a buffer of %zu bytes",
                           size_bytes, offset_bytes, parent->size_bytes);
    berth_buffer *sub = new_buffer(size_bytes, parent->device);
    if (!sub)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth_status status = berth_buffer_allocate(parent);
    if (status != BERTH_OK) {
        berth__heap_free(sub);
        return status;
    }
    sub->parent = berth_buffer_retain(parent);
    sub->data = size_bytes > 0 ? (char *)parent->data + offset_bytes : NULL;
    atomic_init(&sub->state, BLOCK_HERE);
    *out = sub;
    return BERTH_OK;
}

berth_buffer *berth_buffer_retain(berth_buffer *buffer)
{
    if (buffer)
        atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

void berth_buffer_release(berth_buffer *buffer)
{
    /* A loop, not a recursion: subs of subs may be nested as deep as the user likes. */
    while (buffer && atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) == 1) {
        berth_buffer *parent = buffer->parent;
        if (buffer->allocator && buffer->data &&
            berth_deallocate(buffer->allocator, buffer->data, buffer->size_bytes, NULL) != BERTH_OK)
            berth__log(BERTH_LOG_ERROR, "the block of a buffer could not be given back: %s",
                       berth_last_error()->message);
        berth_allocator_release(buffer->allocator);
        berth__heap_free(buffer);
        buffer = parent;
    }
}

/* ---- The block ----------------------------------------------------------------------------------- */

berth_status berth_buffer_allocate(berth_buffer *buffer)
{
    if (!buffer)
        return null_argument("buffer");
    for (;;) {
        uint32_t state = atomic_load_explicit(&buffer->state, memory_order_acquire);
        if (BERTH_LIKELY(state == BLOCK_HERE) || buffer->size_bytes == 0)
            return BERTH_OK;
        if (state != BLOCK_NONE && berth__same_generation(state))
            berth__park(&buffer->state, state, BERTH__PARK_FOR_EVER);
        else if (atomic_compare_exchange_strong(&buffer->state, &state, berth__inside()))
            break;
    }
    /* With no lock held: the allocator may be anybody's code. */
    berth_status status =
        berth_allocate(buffer->allocator, buffer->size_bytes, buffer->alignment, NULL, &buffer->data);
    atomic_store_explicit(&buffer->state, status == BERTH_OK ? BLOCK_HERE : BLOCK_NONE, memory_order_release);
    berth__unpark_all(&buffer->state);
    return status;
}

void *berth_buffer_data(berth_buffer *buffer)
{
    return berth_buffer_allocate(buffer) == BERTH_OK ? buffer->data : NULL;
}

size_t berth_buffer_size(const berth_buffer *buffer)
{
    return buffer ? buffer->size_bytes : 0;
}

berth_device berth_buffer_device(const berth_buffer *buffer)
{
    return buffer ? buffer->device : (berth_device){BERTH_DEVICE_UNKNOWN, 0};
}

berth_allocator *berth_buffer_allocator(const berth_buffer *buffer)
{
    return buffer ? buffer->allocator : NULL;
}

/* ---- Work that keeps its buffers alive ----------------------------------------------------------- */

/* One copy, or a fill with zero, and the references that a stream holds until it is done. */
typedef struct job {
    berth_device device; /* who does it */
    berth_device peer;   /* the source's, in a copy between two devices; else unknown */
    berth_copy_kind kind;
    void *to;
    const void *from; /* NULL: fill with zero */
    size_t size_bytes;
    berth_buffer *dst, *src; /* retained once the job is on a stream */
} job;

static berth_status run(const job *work, berth_stream *stream)
{
    if (work->peer.kind != BERTH_DEVICE_UNKNOWN)
        return berth_copy_between(work->device, work->to, work->peer, work->from, work->size_bytes, stream,
                                  false);
    return work->from
               ? berth_copy(work->device, work->to, work->from, work->size_bytes, work->kind, stream, false)
               : berth_zero(work->device, work->to, work->size_bytes, stream, false);
}

static void let_go(void *context)
{
    job *work = context;
    berth_buffer_release(work->dst);
    berth_buffer_release(work->src);
    berth__heap_free(work);
}

/* On a CPU stream: one function does it and lets go, so that nothing can fail halfway. */
static void run_and_let_go(void *context)
{
    const job *work = context;
    if (run(work, NULL) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "enqueued work on %zu bytes failed: %s", work->size_bytes,
                   berth_last_error()->message);
    let_go(context);
}

/* Has the buffers let go once the stream gets there. Where a stream's function may use the device it does so itself; a
 * function would stall other streams, and after an error never runs, so elsewhere an event is waited for on a thread
 * of ours. If neither can be had, waits here: work that is enqueued never outlives its buffers. */
static berth_status let_go_after(berth_stream *stream, job *work)
{
    berth_status status = stream->ops->calls_may_use_device ? berth_stream_call(stream, let_go, work)
                                                            : berth__after_stream(stream, let_go, work);
    if (status == BERTH_OK)
        return BERTH_OK;
    status = berth_stream_synchronize(stream);
    if (status == BERTH_OK || status == BERTH_DEVICE_LOST)
        let_go(work);
    else
        berth__log(BERTH_LOG_ERROR, "the buffers of enqueued work are kept for ever: %s",
                   berth_last_error()->message);
    return status;
}

static berth_status enqueue(const job *work, berth_buffer *dst, berth_buffer *src, berth_stream *stream)
{
    job *kept = berth__heap_alloc(sizeof *kept);
    if (!kept)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue work on a buffer");
    *kept = *work;
    kept->dst = berth_buffer_retain(dst);
    kept->src = berth_buffer_retain(src);
    berth_status status;
    if (stream->device.kind == BERTH_DEVICE_CPU) {
        status = berth_stream_call(stream, run_and_let_go, kept);
        if (status == BERTH_OK)
            return BERTH_OK;
    } else {
        status = run(kept, stream);
        if (status == BERTH_OK)
            return let_go_after(stream, kept);
    }
    let_go(kept);
    return status;
}

/* ---- Copies -------------------------------------------------------------------------------------- */

static bool is_cpu(berth_device device)
{
    return device.kind == BERTH_DEVICE_CPU;
}

/* Whether one device can copy between both buffers by itself; fills `work` if so. */
static bool one_device_copies(const berth_buffer *dst, const berth_buffer *src, job *work)
{
    bool to_host = is_cpu(dst->device), from_host = is_cpu(src->device);
    *work = (job){.device = to_host ? src->device : dst->device,
                  .kind = to_host && from_host ? BERTH_COPY_HOST_TO_HOST
                          : to_host            ? BERTH_COPY_DEVICE_TO_HOST
                          : from_host          ? BERTH_COPY_HOST_TO_DEVICE
                                               : BERTH_COPY_DEVICE_TO_DEVICE,
                  .to = dst->data,
                  .from = src->data,
                  .size_bytes = src->size_bytes};
    if (to_host || from_host || berth_device_equal(dst->device, src->device))
        return true;
    work->peer = src->device;
    return false;
}

/* From one device to another through pieces of pinned host memory. */
static berth_status copy_staged(const berth_buffer *dst, const berth_buffer *src)
{
    const size_t most = (size_t)1 << 20;
    size_t piece = src->size_bytes < most ? src->size_bytes : most;
    void *staging = NULL;
    berth_status status =
        berth_device_allocate(src->device, BERTH_MEMORY_PINNED, piece, BERTH_ALIGNMENT, NULL, &staging);
    if (status != BERTH_OK)
        return status;
    for (size_t done = 0; done < src->size_bytes && status == BERTH_OK; done += piece) {
        size_t size = src->size_bytes - done < piece ? src->size_bytes - done : piece;
        status = berth_copy(src->device, staging, (char *)src->data + done, size, BERTH_COPY_DEVICE_TO_HOST,
                            NULL, false);
        if (status == BERTH_OK)
            status = berth_copy(dst->device, (char *)dst->data + done, staging, size,
                                BERTH_COPY_HOST_TO_DEVICE, NULL, false);
    }
    berth_status given = berth_device_release(src->device, BERTH_MEMORY_PINNED, staging, piece, NULL);
    return status == BERTH_OK ? given : status;
}

static berth_status check_wait(const berth_stream *stream, bool need_sync)
{
    if (!stream || !need_sync || stream != berth__running_stream)
        return BERTH_OK;
    return berth__fail(BERTH_BUSY, "a function running on stream %llu cannot wait for that stream",
                       (unsigned long long)stream->id);
}

static berth_status check_copy(berth_buffer *dst, berth_buffer *src, berth_stream *stream)
{
    if (!dst || !src)
        return null_argument(dst ? "the source" : "the destination");
    if (dst->size_bytes < src->size_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes do not fit into a buffer of %zu",
                           src->size_bytes, dst->size_bytes);
    if (stream && !berth_device_equal(stream->device, dst->device) &&
        !berth_device_equal(stream->device, src->device))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the stream belongs to %s device %d, neither the source's nor the destination's",
                           stream->ops->name, (int)stream->device.ordinal);
    return BERTH_OK;
}

/* Both have their blocks and the source is not empty. */
static berth_status copy_bytes(berth_buffer *dst, berth_buffer *src, berth_stream *stream)
{
    job work;
    bool direct = one_device_copies(dst, src, &work);
    if (direct && stream)
        return enqueue(&work, dst, src, stream);
    if (direct)
        return run(&work, NULL);
    if (dst->device.kind == src->device.kind) { /* two devices of a kind may have a way of their own */
        berth_status between = stream ? enqueue(&work, dst, src, stream) : run(&work, NULL);
        if (between != BERTH_UNSUPPORTED)
            return between;
    }
    /* Two devices that are not the host: done at once, but not before what the stream already has. */
    berth_status status = stream ? berth_stream_synchronize(stream) : BERTH_OK;
    return status == BERTH_OK ? copy_staged(dst, src) : status;
}

berth_status berth_buffer_copy(berth_buffer *dst, berth_buffer *src, berth_stream *stream, bool need_sync)
{
    berth__after_sweep();
    berth_status status = check_copy(dst, src, stream);
    if (status == BERTH_OK)
        status = check_wait(stream, need_sync);
    if (status == BERTH_OK)
        status = berth_buffer_allocate(src);
    if (status == BERTH_OK)
        status = berth_buffer_allocate(dst);
    if (status == BERTH_OK && src->size_bytes > 0)
        status = copy_bytes(dst, src, stream);
    if (status == BERTH_OK && stream && need_sync)
        status = berth_stream_synchronize(stream);
    return status;
}

berth_status berth_buffer_zero(berth_buffer *buffer, berth_stream *stream, bool need_sync)
{
    berth__after_sweep();
    if (buffer && stream && !berth_device_equal(stream->device, buffer->device))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the stream belongs to another device than the buffer");
    berth_status status = check_wait(stream, need_sync);
    if (status == BERTH_OK)
        status = berth_buffer_allocate(buffer);
    if (status == BERTH_OK && buffer->size_bytes > 0) {
        job work = {.device = buffer->device, .to = buffer->data, .size_bytes = buffer->size_bytes};
        status = stream ? enqueue(&work, buffer, NULL, stream) : run(&work, NULL);
    }
    if (status == BERTH_OK && stream && need_sync)
        status = berth_stream_synchronize(stream);
    return status;
}

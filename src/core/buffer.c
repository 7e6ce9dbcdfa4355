/* Buffers: a counted owner of one block, or a view of somebody else's memory, and copies between them.
 *
 *     owner      allocator, data taken now or on first use
 *     view       no allocator, data from the caller
 *     adopted    no allocator, data from the caller, and a function that gives it back
 *     sub        no allocator, data inside the parent, which it retains */
#include <pthread.h>
#include <string.h>

#include "base/park.h"
#include "base/thread.h"
#include "berth/buffer.h"
#include "core/after.h"
#include "core/allocator.h"
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
    berth_allocator *allocator;   /* retained; NULL: the block is not ours */
    berth_buffer *parent;         /* retained; NULL: not a part */
    berth_buffer_deleter deleter; /* NULL: not adopted */
    void *deleter_context;
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
    if (status) {
        berth_buffer_release(buffer);
        return status;
    }
    *out = buffer;
    return BERTH_OK;
}

static berth_status check_memory(const void *p, size_t size_bytes, berth_device device)
{
    if (!p && size_bytes > 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a view of %zu bytes needs an address", size_bytes);
    if (size_bytes > UINTPTR_MAX - (uintptr_t)p)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes from %p run past the end of memory", size_bytes, p);
    int32_t count = 0;
    berth_status status = berth_device_count((berth_device_kind)device.kind, &count);
    if (status)
        return status;
    if (device.ordinal < 0 || device.ordinal >= count)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no %s device %d to view memory of",
                           berth_device_kind_name((berth_device_kind)device.kind), (int)device.ordinal);
    return BERTH_OK;
}

berth_status berth_buffer_view(void *p, size_t size_bytes, berth_device device, berth_buffer **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    berth_status status = check_memory(p, size_bytes, device);
    if (status)
        return status;
    berth_buffer *view = new_buffer(size_bytes, device);
    if (!view)
        return BERTH_OUT_OF_HOST_MEMORY;
    view->data = p;
    atomic_init(&view->state, BLOCK_HERE);
    *out = view;
    return BERTH_OK;
}

berth_status berth_buffer_adopt(void *p, size_t size_bytes, berth_device device, berth_buffer_deleter deleter,
                                void *context, berth_buffer **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    if (!deleter)
        return null_argument("the deleter");
    berth_status status = berth_buffer_view(p, size_bytes, device, out);
    if (status)
        return status;
    (*out)->deleter = deleter;
    (*out)->deleter_context = context;
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
    if (status) {
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

/* A driver may be short of something for a moment, and nobody asks for this block again: it is asked twice. */
static void give_block(const berth_buffer *buffer)
{
    berth_status status = berth_deallocate(buffer->allocator, buffer->data, buffer->size_bytes, NULL);
    if (!berth__free_is_done(status))
        status = berth_deallocate(buffer->allocator, buffer->data, buffer->size_bytes, NULL);
    if (status)
        berth__log(BERTH_LOG_ERROR, "the block of a buffer %s: %s",
                   berth__free_is_done(status) ? "is given back" : "could not be given back",
                   berth_last_error()->message);
}

void berth_buffer_release(berth_buffer *buffer)
{
    /* A loop, not a recursion: subs of subs may be nested as deep as the user likes. */
    while (buffer && atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) == 1) {
        berth_buffer *parent = buffer->parent;
        if (buffer->allocator && buffer->data)
            give_block(buffer);
        if (buffer->deleter)
            buffer->deleter(buffer->deleter_context, buffer->data, buffer->size_bytes);
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
    atomic_store_explicit(&buffer->state, !status ? BLOCK_HERE : BLOCK_NONE, memory_order_release);
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
    while (buffer && buffer->parent)
        buffer = buffer->parent;
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

static berth_status buffer_run(const job *work, berth_stream *stream)
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
    if (buffer_run(work, NULL) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "enqueued work on %zu bytes failed: %s", work->size_bytes,
                   berth_last_error()->message);
    let_go(context);
}

/* Has the buffers let go once the stream gets there. Where a stream's function may use the device it does so itself; a
 * function would stall other streams, and after an error never runs, so elsewhere an event is waited for on a thread
 * of ours. A driver that is short of something refuses the one and perhaps not the other. If neither can be had, waits
 * here, though the stream may be one that the caller holds up: work that is enqueued never outlives its buffers. */
static berth_status let_go_after(berth_stream *stream, job *work)
{
    enum { ATTEMPTS = 4 };
    bool calls = stream->type->ops.abilities & BERTH_DEVICE_CALLS_USE_DEVICE;
    for (int i = 0; i < ATTEMPTS; i++)
        if ((calls && i % 2 == 0 ? berth_stream_call(stream, let_go, work)
                                 : berth__after_stream(stream, let_go, work)) == BERTH_OK)
            return BERTH_OK;
    berth_status status = berth_stream_synchronize(stream);
    if (!status || status == BERTH_DEVICE_LOST)
        let_go(work);
    else
        berth__log(BERTH_LOG_ERROR, "the buffers of enqueued work are kept for ever: %s",
                   berth_last_error()->message);
    return status;
}

static berth_status buffer_enqueue(const job *work, berth_buffer *dst, berth_buffer *src,
                                   berth_stream *stream)
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
        if (!status)
            return BERTH_OK;
    } else {
        status = buffer_run(kept, stream);
        if (!status)
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

/* Which bytes of which buffers; both have their blocks. */
typedef struct span {
    berth_buffer *dst, *src;
    size_t to, from; /* offsets */
    size_t size_bytes;
} span;

/* Whether one device can copy between both buffers by itself; fills `work` in either case. */
static bool one_device_copies(const span *s, job *work)
{
    const berth_buffer *dst = s->dst, *src = s->src;
    bool to_host = is_cpu(dst->device), from_host = is_cpu(src->device);
    *work = (job){.device = to_host ? src->device : dst->device,
                  .kind = to_host && from_host ? BERTH_COPY_HOST_TO_HOST
                          : to_host            ? BERTH_COPY_DEVICE_TO_HOST
                          : from_host          ? BERTH_COPY_HOST_TO_DEVICE
                                               : BERTH_COPY_DEVICE_TO_DEVICE,
                  .to = (char *)dst->data + s->to,
                  .from = (char *)src->data + s->from,
                  .size_bytes = s->size_bytes};
    if (to_host || from_host || berth_device_equal(dst->device, src->device))
        return true;
    work->peer = src->device;
    return false;
}

/* From one device to another through pieces of host memory, pinned where the source has such. */
static berth_status copy_staged(const span *s)
{
    const size_t most = (size_t)1 << 20;
    size_t piece = s->size_bytes < most ? s->size_bytes : most;
    char *to = (char *)s->dst->data + s->to, *from = (char *)s->src->data + s->from;
    berth_device source = s->src->device, keeper = source;
    berth_memory_kind kind = BERTH_MEMORY_PINNED;
    void *staging = NULL;
    berth_status status = berth_device_allocate(keeper, kind, piece, BERTH_ALIGNMENT, NULL, &staging);
    if (status == BERTH_UNSUPPORTED) {
        keeper = berth_device_cpu();
        kind = BERTH_MEMORY_DEVICE;
        status = berth_device_allocate(keeper, kind, piece, BERTH_ALIGNMENT, NULL, &staging);
    }
    if (status)
        return status;
    for (size_t done = 0; done < s->size_bytes && !status; done += piece) {
        size_t size = s->size_bytes - done < piece ? s->size_bytes - done : piece;
        status = berth_copy(source, staging, from + done, size, BERTH_COPY_DEVICE_TO_HOST, NULL, false);
        if (!status)
            status =
                berth_copy(s->dst->device, to + done, staging, size, BERTH_COPY_HOST_TO_DEVICE, NULL, false);
    }
    berth_status given = berth_device_release(keeper, kind, staging, piece, NULL);
    if (given && given != BERTH_DEVICE_LOST)
        given = berth_device_release(keeper, kind, staging, piece, NULL);
    return !status ? given : status;
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
    if (stream && !berth_device_equal(stream->device, dst->device) &&
        !berth_device_equal(stream->device, src->device))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the stream belongs to %s device %d, neither the source's nor the destination's",
                           stream->type->name, (int)stream->device.ordinal);
    return BERTH_OK;
}

/* Both have their blocks and there is something to copy. */
static berth_status copy_span(const span *s, berth_stream *stream)
{
    job work;
    bool direct = one_device_copies(s, &work);
    if (direct && stream)
        return buffer_enqueue(&work, s->dst, s->src, stream);
    if (direct)
        return buffer_run(&work, NULL);
    if (s->dst->device.kind == s->src->device.kind) { /* two devices of a kind may have a way of their own */
        berth_status between =
            stream ? buffer_enqueue(&work, s->dst, s->src, stream) : buffer_run(&work, NULL);
        if (between != BERTH_UNSUPPORTED)
            return between;
    }
    /* Two devices that are not the host: done at once, but not before what the stream already has. */
    berth_status status = stream ? berth_stream_synchronize(stream) : BERTH_OK;
    return !status ? copy_staged(s) : status;
}

static berth_status copy_checked(const span *s, berth_stream *stream, bool need_sync)
{
    berth_status status = check_wait(stream, need_sync);
    if (!status)
        status = berth_buffer_allocate(s->src);
    if (!status)
        status = berth_buffer_allocate(s->dst);
    if (!status && s->size_bytes > 0)
        status = copy_span(s, stream);
    if (!status && stream && need_sync)
        status = berth_stream_synchronize(stream);
    return status;
}

berth_status berth_buffer_copy(berth_buffer *dst, berth_buffer *src, berth_stream *stream, bool need_sync)
{
    berth__after_sweep();
    berth_status status = check_copy(dst, src, stream);
    if (status)
        return status;
    if (dst->size_bytes < src->size_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes do not fit into a buffer of %zu",
                           src->size_bytes, dst->size_bytes);
    return copy_checked(&(span){.dst = dst, .src = src, .size_bytes = src->size_bytes}, stream, need_sync);
}

/* Cuts `s` to what is left of the buffer from `offset`, or refuses. */
static berth_status fit_range(span *s, const berth_buffer *buffer, size_t offset, bool clip,
                              const char *whose)
{
    if (offset > buffer->size_bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "offset %zu is past the end of %s, which has %zu bytes",
                           offset, whose, buffer->size_bytes);
    size_t left = buffer->size_bytes - offset;
    if (s->size_bytes <= left)
        return BERTH_OK;
    if (!clip)
        return berth__fail(
            BERTH_INVALID_ARGUMENT,
            "%zu bytes from %zu do not lie in %s, which has %zu bytes; BERTH_RANGE_CLIP copies what does",
            s->size_bytes, offset, whose, buffer->size_bytes);
    s->size_bytes = left;
    return BERTH_OK;
}

berth_status berth_buffer_copy_range(berth_buffer *dst, size_t dst_offset, berth_buffer *src,
                                     size_t src_offset, size_t size_bytes, unsigned flags,
                                     berth_stream *stream, size_t *copied)
{
    berth__after_sweep();
    if (copied)
        *copied = 0;
    if (flags & ~(unsigned)(BERTH_RANGE_WAIT | BERTH_RANGE_CLIP))
        return berth__fail(BERTH_INVALID_ARGUMENT, "flags %#x hold bits that mean nothing", flags);
    span s = {.dst = dst, .src = src, .to = dst_offset, .from = src_offset, .size_bytes = size_bytes};
    bool clip = flags & BERTH_RANGE_CLIP;
    berth_status status = check_copy(dst, src, stream);
    if (!status)
        status = fit_range(&s, src, src_offset, clip, "the source");
    if (!status)
        status = fit_range(&s, dst, dst_offset, clip, "the destination");
    if (!status)
        status = copy_checked(&s, stream, flags & BERTH_RANGE_WAIT);
    if (!status && copied)
        *copied = s.size_bytes;
    return status;
}

berth_status berth_buffer_zero(berth_buffer *buffer, berth_stream *stream, bool need_sync)
{
    berth__after_sweep();
    if (buffer && stream && !berth_device_equal(stream->device, buffer->device))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the stream belongs to another device than the buffer");
    berth_status status = check_wait(stream, need_sync);
    if (!status)
        status = berth_buffer_allocate(buffer);
    if (!status && buffer->size_bytes > 0) {
        job work = {.device = buffer->device, .to = buffer->data, .size_bytes = buffer->size_bytes};
        status = stream ? buffer_enqueue(&work, buffer, NULL, stream) : buffer_run(&work, NULL);
    }
    if (!status && stream && need_sync)
        status = berth_stream_synchronize(stream);
    return status;
}

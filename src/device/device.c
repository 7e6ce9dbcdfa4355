/* The front of every device: checks arguments once, completes the backends' tables, dispatches by kind. */
#include "device/device.h"

#include <pthread.h>
#include <string.h>

#include "device/device_absent.h"

_Thread_local const berth_stream *berth__running_stream;

/* ---- Backends by kind ---------------------------------------------------------------------------- */

enum { KIND_COUNT = BERTH_DEVICE_VIRTUAL + 1 };

static const berth__device_ops *const backends[KIND_COUNT] = {
    [BERTH_DEVICE_CPU] = &berth__cpu_device_ops,         [BERTH_DEVICE_CUDA] = &berth__cuda_device_ops,
    [BERTH_DEVICE_HIP] = &berth__hip_device_ops,         [BERTH_DEVICE_OPENCL] = &berth__opencl_device_ops,
    [BERTH_DEVICE_VIRTUAL] = &berth__virtual_device_ops,
};

static berth__device_ops complete_tables[KIND_COUNT]; /* written once, before it is published */
static _Atomic(const berth__device_ops *) published[KIND_COUNT];
static pthread_once_t completed = PTHREAD_ONCE_INIT;

static void complete_all(void)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (backends[kind] && berth__device_ops_complete(&complete_tables[kind], backends[kind]))
            atomic_store_explicit(&published[kind], &complete_tables[kind], memory_order_release);
}

const berth__device_ops *berth__device_ops_for(int32_t kind)
{
    if (kind <= BERTH_DEVICE_UNKNOWN || kind >= KIND_COUNT)
        return NULL;
    const berth__device_ops *ops = atomic_load_explicit(&published[kind], memory_order_acquire);
    if (BERTH_LIKELY(ops != NULL))
        return ops;
    pthread_once(&completed, complete_all);
    return atomic_load_explicit(&published[kind], memory_order_acquire);
}

berth_device berth_device_cpu(void)
{
    return (berth_device){BERTH_DEVICE_CPU, 0};
}

const char *berth_device_kind_name(berth_device_kind kind)
{
    const berth__device_ops *ops = berth__device_ops_for((int32_t)kind);
    return ops ? ops->name : "unknown";
}

/* ---- Checks that several functions share --------------------------------------------------------- */

static berth_status find_kind(int32_t kind, const berth__device_ops **ops)
{
    *ops = berth__device_ops_for(kind);
    if (*ops)
        return BERTH_OK;
    if (kind == BERTH_DEVICE_UNKNOWN)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "device kind 0 is unknown: say which device, berth_device_cpu() for the host");
    return berth__fail(BERTH_INVALID_ARGUMENT, "there is no device kind %d", (int)kind);
}

static berth_status find_device(berth_device device, const berth__device_ops **ops)
{
    int32_t count = 0;
    berth_status status = find_kind(device.kind, ops);
    if (status == BERTH_OK)
        status = (*ops)->count((berth_device_kind)device.kind, &count);
    if (status != BERTH_OK)
        return status;
    if (device.ordinal < 0 || device.ordinal >= count)
        return berth__fail(BERTH_NOT_FOUND, "there is no %s device %d: %d of that kind are here",
                           (*ops)->name, (int)device.ordinal, (int)count);
    return BERTH_OK;
}

/* A stream proves by itself that its device exists. */
static berth_status find_device_or_stream(berth_device device, berth_stream *stream,
                                          const berth__device_ops **ops)
{
    if (!stream)
        return find_device(device, ops);
    berth_status status = find_kind(device.kind, ops);
    if (status != BERTH_OK)
        return status;
    if (!berth_device_equal(stream->device, device))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the stream belongs to %s device %d, not to %s device %d",
                           stream->ops->name, (int)stream->device.ordinal, (*ops)->name, (int)device.ordinal);
    return BERTH_OK;
}

berth_status berth__device_find(berth_device device, berth_stream *stream, const berth__device_ops **ops)
{
    return find_device_or_stream(device, stream, ops);
}

static berth_status check_range(const void *p, size_t size_bytes, const char *what)
{
    if (!p)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the %s of %zu bytes is NULL", what, size_bytes);
    if (size_bytes > UINTPTR_MAX - (uintptr_t)p)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes from the %s %p run past the end of memory", size_bytes,
                           what, p);
    return BERTH_OK;
}

static berth_status check_memory_kind(const berth__device_ops *ops, berth_memory_kind kind)
{
    if (kind == BERTH_MEMORY_DEVICE || kind == BERTH_MEMORY_PINNED || kind == BERTH_MEMORY_MANAGED)
        return BERTH_OK;
    if (kind == BERTH_MEMORY_WRITE_COMBINED)
        return ops->write_combined
                   ? BERTH_OK
                   : berth__fail(BERTH_UNSUPPORTED, "a %s device has no write-combined memory", ops->name);
    return berth__fail(BERTH_INVALID_ARGUMENT, "there is no memory kind %d", (int)kind);
}

static berth_status check_not_own(const berth_stream *stream)
{
    if (BERTH_LIKELY(stream != berth__running_stream))
        return BERTH_OK;
    return berth__fail(BERTH_BUSY, "a function running on stream %llu cannot wait for that stream",
                       (unsigned long long)stream->id);
}

static berth_status null_argument(const char *what)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", what);
}

/* ---- Devices and memory -------------------------------------------------------------------------- */

berth_status berth_device_count(berth_device_kind kind, int32_t *count)
{
    if (!count)
        return null_argument("count");
    *count = 0;
    const berth__device_ops *ops;
    berth_status status = find_kind((int32_t)kind, &ops);
    return status == BERTH_OK ? ops->count(kind, count) : status;
}

berth_status berth_device_describe(berth_device device, berth_device_info *info)
{
    if (!info)
        return null_argument("info");
    if (info->struct_size <= sizeof info->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT, "info->struct_size is %zu: set it to sizeof *info",
                           info->struct_size);
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    if (status != BERTH_OK)
        return status;
    berth_device_info all = {.struct_size = sizeof all};
    status = ops->describe(device, &all);
    if (status != BERTH_OK)
        return status;
    size_t known = info->struct_size < sizeof all ? info->struct_size : sizeof all;
    all.struct_size = info->struct_size;
    memcpy(info, &all, known);
    return BERTH_OK;
}

berth_status berth_device_native(berth_device device, void **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    return status == BERTH_OK ? ops->native(device, out) : status;
}

berth_status berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                   size_t alignment, berth_stream *stream, void **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_ops *ops;
    /* Nothing asks for no driver: only the kind is looked at, and nothing is loaded. */
    berth_status status =
        size_bytes == 0 ? find_kind(device.kind, &ops) : find_device_or_stream(device, stream, &ops);
    if (status == BERTH_OK)
        status = check_memory_kind(ops, kind);
    if (status != BERTH_OK)
        return status;
    if (!berth__is_power_of_two(alignment) || alignment > BERTH__DEVICE_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "alignment %zu is not a power of two up to %zu", alignment,
                           BERTH__DEVICE_ALIGNMENT_MAX);
    if (size_bytes == 0)
        return BERTH_OK;
    if (size_bytes > (size_t)PTRDIFF_MAX - alignment)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes do not fit into the address space", size_bytes);
    return ops->allocate(device, kind, size_bytes, alignment, stream, out);
}

berth_status berth_device_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                  berth_stream *stream)
{
    const berth__device_ops *ops;
    berth_status status = find_device_or_stream(device, stream, &ops);
    if (status == BERTH_OK)
        status = check_memory_kind(ops, kind);
    if (status != BERTH_OK || !p)
        return status;
    if (size_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the size of the block at %p is missing", p);
    return ops->release(device, kind, p, size_bytes, stream);
}

berth_status berth_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                        berth_copy_kind kind, berth_stream *stream, bool need_sync)
{
    const berth__device_ops *ops;
    berth_status status = find_device_or_stream(device, stream, &ops);
    if (status == BERTH_OK && (kind < BERTH_COPY_INFER || kind > BERTH_COPY_DEVICE_TO_DEVICE))
        status = berth__fail(BERTH_INVALID_ARGUMENT, "there is no copy kind %d", (int)kind);
    if (status == BERTH_OK && stream && need_sync)
        status = check_not_own(stream);
    if (status == BERTH_OK && size_bytes > 0) {
        status = check_range(dst, size_bytes, "destination");
        if (status == BERTH_OK)
            status = check_range(src, size_bytes, "source");
        if (status == BERTH_OK)
            status = ops->copy(device, dst, src, size_bytes, kind, stream);
    }
    if (status == BERTH_OK && stream && need_sync)
        status = ops->stream_synchronize(stream);
    return status;
}

berth_status berth_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream,
                        bool need_sync)
{
    const berth__device_ops *ops;
    berth_status status = find_device_or_stream(device, stream, &ops);
    if (status == BERTH_OK && stream && need_sync)
        status = check_not_own(stream);
    if (status == BERTH_OK && size_bytes > 0) {
        status = check_range(dst, size_bytes, "destination");
        if (status == BERTH_OK)
            status = ops->zero(device, dst, size_bytes, stream);
    }
    if (status == BERTH_OK && stream && need_sync)
        status = ops->stream_synchronize(stream);
    return status;
}

/* ---- Streams ------------------------------------------------------------------------------------- */

void berth__stream_init(berth_stream *stream, berth_device device)
{
    static _Atomic uint64_t last_id;
    stream->ops = berth__device_ops_for(device.kind);
    stream->device = device;
    stream->id = 1 + atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed);
    atomic_init(&stream->references, 1);
}

berth_stream *berth__stream_retain(berth_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    return stream;
}

void berth__stream_release(berth_stream *stream)
{
    if (stream && atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) == 1)
        stream->ops->stream_destroy(stream);
}

berth_status berth_stream_create(berth_device device, berth_stream **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    return status == BERTH_OK ? ops->stream_create(device, out) : status;
}

berth_status berth_stream_wrap(berth_device device, void *native, berth_stream **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    return status == BERTH_OK ? ops->stream_wrap(device, native, out) : status;
}

void *berth_stream_native(berth_stream *stream)
{
    return stream ? stream->ops->stream_native(stream) : NULL;
}

berth_device berth_stream_device(const berth_stream *stream)
{
    return stream ? stream->device : (berth_device){BERTH_DEVICE_UNKNOWN, 0};
}

uint64_t berth_stream_id(const berth_stream *stream)
{
    return stream ? stream->id : 0;
}

void berth_stream_destroy(berth_stream *stream)
{
    berth__stream_release(stream);
}

berth_status berth_stream_query(berth_stream *stream)
{
    return stream ? stream->ops->stream_query(stream) : null_argument("stream");
}

berth_status berth_stream_synchronize(berth_stream *stream)
{
    if (!stream)
        return null_argument("stream");
    berth_status status = check_not_own(stream);
    return status == BERTH_OK ? stream->ops->stream_synchronize(stream) : status;
}

berth_status berth_stream_wait_event(berth_stream *stream, berth_event *event)
{
    if (!stream || !event)
        return null_argument(stream ? "event" : "stream");
    if (stream->ops != event->ops)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a stream of a %s device cannot wait for an event of a %s",
                           stream->ops->name, event->ops->name);
    return stream->ops->stream_wait_event(stream, event);
}

berth_status berth_stream_call(berth_stream *stream, void (*fn)(void *context), void *context)
{
    if (!stream || !fn)
        return null_argument(stream ? "fn" : "stream");
    return stream->ops->stream_call(stream, fn, context);
}

/* ---- Events -------------------------------------------------------------------------------------- */

void berth__event_init(berth_event *event, berth_device device)
{
    event->ops = berth__device_ops_for(device.kind);
    event->device = device;
}

berth_status berth_event_create(berth_device device, berth_event **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    return status == BERTH_OK ? ops->event_create(device, out) : status;
}

berth_status berth_event_record(berth_event *event, berth_stream *stream)
{
    if (!stream || !event)
        return null_argument(stream ? "event" : "stream");
    if (!berth_device_equal(event->device, stream->device))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "an event of %s device %d cannot mark a stream of %s device %d", event->ops->name,
                           (int)event->device.ordinal, stream->ops->name, (int)stream->device.ordinal);
    return event->ops->event_record(event, stream);
}

berth_status berth_event_query(berth_event *event)
{
    return BERTH_LIKELY(event != NULL) ? event->ops->event_query(event) : null_argument("event");
}

berth_status berth_event_wait(berth_event *event)
{
    return event ? event->ops->event_wait(event) : null_argument("event");
}

void berth_event_destroy(berth_event *event)
{
    if (event)
        event->ops->event_destroy(event);
}

/* ---- Address space ------------------------------------------------------------------------------- */

static berth_status check_pieces(berth_device device, const void *p, size_t size_bytes,
                                 const berth__device_ops **ops)
{
    size_t granularity = 0;
    berth_status status = find_device(device, ops);
    if (status == BERTH_OK)
        status = (*ops)->granularity(device, &granularity);
    if (status != BERTH_OK)
        return status;
    if (size_bytes == 0 || size_bytes % granularity != 0 || (uintptr_t)p % granularity != 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes at %p are not a piece in steps of %zu bytes",
                           size_bytes, p, granularity);
    return BERTH_OK;
}

berth_status berth__device_granularity(berth_device device, size_t *out)
{
    const berth__device_ops *ops;
    berth_status status = find_device(device, &ops);
    return status == BERTH_OK ? ops->granularity(device, out) : status;
}

berth_status berth__device_reserve(berth_device device, size_t size_bytes, void **out)
{
    *out = NULL;
    const berth__device_ops *ops;
    berth_status status = check_pieces(device, NULL, size_bytes, &ops);
    return status == BERTH_OK ? ops->reserve(device, size_bytes, out) : status;
}

berth_status berth__device_unreserve(berth_device device, void *base, size_t size_bytes)
{
    const berth__device_ops *ops;
    berth_status status = check_pieces(device, base, size_bytes, &ops);
    return status == BERTH_OK ? ops->unreserve(device, base, size_bytes) : status;
}

berth_status berth__device_map(berth_device device, void *p, size_t size_bytes)
{
    const berth__device_ops *ops;
    berth_status status = check_pieces(device, p, size_bytes, &ops);
    return status == BERTH_OK ? ops->map(device, p, size_bytes) : status;
}

berth_status berth__device_unmap(berth_device device, void *p, size_t size_bytes)
{
    const berth__device_ops *ops;
    berth_status status = check_pieces(device, p, size_bytes, &ops);
    return status == BERTH_OK ? ops->unmap(device, p, size_bytes) : status;
}

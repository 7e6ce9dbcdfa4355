/* The front of every device: checks arguments once, dispatches by kind, and takes no device at its word. */
#include "device/device.h"

#include <string.h>

_Thread_local const berth_stream *berth__running_stream;

berth_device berth_device_cpu(void)
{
    return (berth_device){BERTH_DEVICE_CPU, 0};
}

/* ---- Checks that several functions share --------------------------------------------------------- */

static berth_status find_kind(int32_t kind, const berth__device_type **type)
{
    *type = berth__device_type_of(kind);
    if (*type)
        return BERTH_OK;
    if (kind == BERTH_DEVICE_UNKNOWN)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "device kind 0 is unknown: say which device, berth_device_cpu() for the host");
    return berth__fail(BERTH_INVALID_ARGUMENT, "there is no device kind %d", (int)kind);
}

/* A device's count is a number, whatever it answers: nothing less than none, and none where it fails. */
static berth_status ask_count(const berth__device_type *type, int32_t *count)
{
    uint64_t before = berth__device_before(type);
    berth_status status = type->ops.count(type->self, count);
    if (BERTH_UNLIKELY(status || *count < 0))
        *count = 0;
    return berth__device_answer(type, status, before, "count its devices");
}

static berth_status find_device(berth_device device, const berth__device_type **type)
{
    int32_t count = 0;
    berth_status status = find_kind(device.kind, type);
    if (!status)
        status = ask_count(*type, &count);
    if (status)
        return status;
    if (device.ordinal < 0 || device.ordinal >= count)
        return berth__fail(BERTH_NOT_FOUND, "there is no %s device %d: %d of that kind are here",
                           (*type)->name, (int)device.ordinal, (int)count);
    return BERTH_OK;
}

/* A stream proves by itself that its device exists. */
static berth_status find_device_or_stream(berth_device device, berth_stream *stream,
                                          const berth__device_type **type)
{
    if (!stream)
        return find_device(device, type);
    berth_status status = find_kind(device.kind, type);
    if (status)
        return status;
    if (!berth_device_equal(stream->device, device))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the stream belongs to %s device %d, not to %s device %d",
                           stream->type->name, (int)stream->device.ordinal, (*type)->name,
                           (int)device.ordinal);
    return BERTH_OK;
}

berth_status berth__device_find(berth_device device, berth_stream *stream, const berth__device_type **type)
{
    return find_device_or_stream(device, stream, type);
}

berth_status berth__device_find_to_give_back(berth_device device, berth_stream *stream,
                                             const berth__device_type **type)
{
    berth_status status = find_device_or_stream(device, stream, type);
    return status == BERTH_DEVICE_LOST ? BERTH_OK : status;
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

static berth_status check_memory_kind(const berth__device_type *type, berth_memory_kind kind)
{
    static const char *const names[] = {"device", "pinned", "managed", "write-combined"};
    if (BERTH_UNLIKELY((unsigned)kind >= BERTH_COUNT_OF(names)))
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no memory kind %d", (int)kind);
    if (BERTH_UNLIKELY(!(type->ops.memory_kinds >> kind & 1)))
        return berth__fail(BERTH_UNSUPPORTED, "a %s device has no %s memory", type->name, names[kind]);
    return BERTH_OK;
}

static berth_status no_result(const berth__device_type *type, const char *what)
{
    return berth__fail(BERTH_DEVICE_ERROR, "the %s device says that it made %s, but gave none", type->name,
                       what);
}

static berth_status check_not_own(const berth_stream *stream)
{
    if (BERTH_LIKELY(stream != berth__running_stream))
        return BERTH_OK;
    return berth__fail(BERTH_BUSY, "a function running on stream %llu cannot wait for that stream",
                       (unsigned long long)stream->id);
}

static berth_status stream_wait(berth_stream *stream)
{
    const berth__device_type *type = stream->type;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.stream_synchronize(type->self, stream), before,
                                "wait for a stream");
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
    const berth__device_type *type;
    berth_status status = find_kind((int32_t)kind, &type);
    return !status ? ask_count(type, count) : status;
}

berth_status berth_device_describe(berth_device device, berth_device_info *info)
{
    if (!info)
        return null_argument("info");
    if (info->struct_size <= sizeof info->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT, "info->struct_size is %zu: set it to sizeof *info",
                           info->struct_size);
    const berth__device_type *type;
    berth_status status = find_device(device, &type);
    if (status)
        return status;
    berth_device_info all = {.struct_size = sizeof all};
    uint64_t before = berth__device_before(type);
    status = type->ops.describe(type->self, device, &all);
    if (status)
        return berth__device_answer(type, status, before, "describe itself");
    all.name[sizeof all.name - 1] = all.driver[sizeof all.driver - 1] = '\0';
    all.memory_kinds &= type->ops.memory_kinds; /* what is asked of others is refused */
    if (!berth__is_power_of_two((size_t)all.offset_alignment) ||
        all.offset_alignment > BERTH__DEVICE_ALIGNMENT_MAX)
        all.offset_alignment = 0; /* what nobody can keep to */
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
    const berth__device_type *type;
    berth_status status = find_device(device, &type);
    if (status)
        return status;
    void *native = NULL;
    uint64_t before = berth__device_before(type);
    status = type->ops.native(type->self, device, &native);
    if (!status)
        *out = native;
    return berth__device_answer(type, status, before, "give a native handle");
}

/* The arguments are good; the answer may not be. */
static berth_status allocate_checked(const berth__device_type *type, berth_device device,
                                     berth_memory_kind kind, size_t size_bytes, size_t alignment,
                                     berth_stream *stream, void **out)
{
    void *p = NULL;
    uint64_t before = berth__device_before(type);
    berth_status status = type->ops.allocate(type->self, device, kind, size_bytes, alignment, stream, &p);
    if (BERTH_UNLIKELY(status))
        return berth__device_answer(type, status, before, "allocate memory");
    if (BERTH_UNLIKELY(!p))
        return no_result(type, "a block");
    if (BERTH_UNLIKELY((uintptr_t)p % alignment != 0)) {
        (void)type->ops.release(type->self, device, kind, p, size_bytes, stream);
        return berth__fail(BERTH_DEVICE_ERROR, "the %s device gave %p for an alignment of %zu", type->name, p,
                           alignment);
    }
    berth__device_lives(type, BERTH__DEVICE_BLOCKS, 1);
    *out = p;
    return BERTH_OK;
}

berth_status berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                   size_t alignment, berth_stream *stream, void **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_type *type;
    /* Nothing asks for no driver: only the kind is looked at, and nothing is loaded. */
    berth_status status =
        size_bytes == 0 ? find_kind(device.kind, &type) : find_device_or_stream(device, stream, &type);
    if (!status)
        status = check_memory_kind(type, kind);
    if (status)
        return status;
    if (!berth__is_power_of_two(alignment) || alignment > BERTH__DEVICE_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "alignment %zu is not a power of two up to %zu", alignment,
                           BERTH__DEVICE_ALIGNMENT_MAX);
    if (size_bytes == 0)
        return BERTH_OK;
    if (size_bytes > (size_t)PTRDIFF_MAX - alignment)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes do not fit into the address space", size_bytes);
    return allocate_checked(type, device, kind, size_bytes, alignment, stream, out);
}

berth_status berth_device_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                  berth_stream *stream)
{
    const berth__device_type *type;
    berth_status status = berth__device_find_to_give_back(device, stream, &type);
    if (!status)
        status = check_memory_kind(type, kind);
    if (status || !p)
        return status;
    if (size_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the size of the block at %p is missing", p);
    uint64_t before = berth__device_before(type);
    status = type->ops.release(type->self, device, kind, p, size_bytes, stream);
    status = berth__device_answer(type, status, before, "release memory");
    if (BERTH_LIKELY(!status || status == BERTH_DEVICE_LOST)) /* nobody gets that back either */
        berth__device_lives(type, BERTH__DEVICE_BLOCKS, -1);
    return status;
}

berth_status berth_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                        berth_copy_kind kind, berth_stream *stream, bool need_sync)
{
    const berth__device_type *type;
    berth_status status = find_device_or_stream(device, stream, &type);
    if (!status && (kind < BERTH_COPY_INFER || kind > BERTH_COPY_DEVICE_TO_DEVICE))
        status = berth__fail(BERTH_INVALID_ARGUMENT, "there is no copy kind %d", (int)kind);
    if (!status && stream && need_sync)
        status = check_not_own(stream);
    if (!status && size_bytes > 0) {
        uint64_t before = berth__device_before(type);
        status = check_range(dst, size_bytes, "destination");
        if (!status)
            status = check_range(src, size_bytes, "source");
        if (!status)
            status = berth__device_answer(
                type, type->ops.copy(type->self, device, dst, src, size_bytes, kind, stream), before, "copy");
    }
    return !status && stream && need_sync ? stream_wait(stream) : status;
}

berth_status berth_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream,
                        bool need_sync)
{
    const berth__device_type *type;
    berth_status status = find_device_or_stream(device, stream, &type);
    if (!status && stream && need_sync)
        status = check_not_own(stream);
    if (!status && size_bytes > 0) {
        uint64_t before = berth__device_before(type);
        status = check_range(dst, size_bytes, "destination");
        if (!status)
            status = berth__device_answer(type, type->ops.zero(type->self, device, dst, size_bytes, stream),
                                          before, "zero memory");
    }
    return !status && stream && need_sync ? stream_wait(stream) : status;
}

/* ---- Streams ------------------------------------------------------------------------------------- */

/* A device gave `made`, or says so. */
static berth_status stream_begin(const berth__device_type *type, berth_device device, berth_stream *made,
                                 berth_stream **out)
{
    static _Atomic uint64_t last_id;
    if (!made)
        return no_result(type, "a stream");
    made->type = type;
    made->device = device;
    made->id = 1 + atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed);
    atomic_init(&made->references, 1);
    atomic_init(&made->destroyed, false);
    berth__device_lives(type, BERTH__DEVICE_STREAMS, 1);
    *out = made;
    return BERTH_OK;
}

berth_stream *berth__stream_retain(berth_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    return stream;
}

void berth__stream_release(berth_stream *stream)
{
    if (!stream || atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
        return;
    const berth__device_type *type = stream->type;
    type->ops.stream_destroy(type->self, stream);
    berth__device_lives(type, BERTH__DEVICE_STREAMS, -1);
}

berth_status berth_stream_create(berth_device device, berth_stream **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_type *type;
    berth_status status = find_device(device, &type);
    if (status)
        return status;
    berth_stream *made = NULL;
    uint64_t before = berth__device_before(type);
    status = type->ops.stream_create(type->self, device, &made);
    return !status ? stream_begin(type, device, made, out)
                   : berth__device_answer(type, status, before, "make a stream");
}

berth_status berth_stream_wrap(berth_device device, void *native, berth_stream **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_type *type;
    berth_status status = find_device(device, &type);
    if (status)
        return status;
    berth_stream *made = NULL;
    uint64_t before = berth__device_before(type);
    status = type->ops.stream_wrap(type->self, device, native, &made);
    return !status ? stream_begin(type, device, made, out)
                   : berth__device_answer(type, status, before, "wrap a stream");
}

void *berth_stream_native(berth_stream *stream)
{
    return stream ? stream->type->ops.stream_native(stream->type->self, stream) : NULL;
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
    if (stream)
        atomic_store_explicit(&stream->destroyed, true, memory_order_release);
    berth__stream_release(stream);
}

berth_status berth_stream_query(berth_stream *stream)
{
    if (!stream)
        return null_argument("stream");
    const berth__device_type *type = stream->type;
    uint64_t before = berth__device_before(type);
    berth_status status = type->ops.stream_query(type->self, stream);
    return status == BERTH_NOT_READY ? status : berth__device_answer(type, status, before, "ask a stream");
}

berth_status berth_stream_synchronize(berth_stream *stream)
{
    if (!stream)
        return null_argument("stream");
    berth_status status = check_not_own(stream);
    return !status ? stream_wait(stream) : status;
}

berth_status berth_stream_wait_event(berth_stream *stream, berth_event *event)
{
    if (!stream || !event)
        return null_argument(stream ? "event" : "stream");
    if (stream->type != event->type)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a stream of a %s device cannot wait for an event of a %s",
                           stream->type->name, event->type->name);
    const berth__device_type *type = stream->type;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.stream_wait_event(type->self, stream, event), before,
                                "make a stream wait");
}

berth_status berth_stream_call(berth_stream *stream, void (*fn)(void *context), void *context)
{
    if (!stream || !fn)
        return null_argument(stream ? "fn" : "stream");
    const berth__device_type *type = stream->type;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.stream_call(type->self, stream, fn, context), before,
                                "enqueue a function");
}

void berth_stream_run(const berth_stream *stream, void (*fn)(void *context), void *context)
{
    if (!fn)
        return;
    const berth_stream *outer = berth__running_stream;
    berth__running_stream = stream;
    fn(context);
    berth__running_stream = outer;
}

/* ---- Events -------------------------------------------------------------------------------------- */

berth_status berth_event_create(berth_device device, berth_event **out)
{
    if (!out)
        return null_argument("out");
    *out = NULL;
    const berth__device_type *type;
    berth_status status = find_device(device, &type);
    if (status)
        return status;
    berth_event *made = NULL;
    uint64_t before = berth__device_before(type);
    status = type->ops.event_create(type->self, device, &made);
    if (status)
        return berth__device_answer(type, status, before, "make an event");
    if (!made)
        return no_result(type, "an event");
    made->type = type;
    made->device = device;
    berth__device_lives(type, BERTH__DEVICE_EVENTS, 1);
    *out = made;
    return BERTH_OK;
}

berth_status berth_event_record(berth_event *event, berth_stream *stream)
{
    if (!stream || !event)
        return null_argument(stream ? "event" : "stream");
    if (!berth_device_equal(event->device, stream->device))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "an event of %s device %d cannot mark a stream of %s device %d", event->type->name,
                           (int)event->device.ordinal, stream->type->name, (int)stream->device.ordinal);
    const berth__device_type *type = event->type;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.event_record(type->self, event, stream), before,
                                "record an event");
}

berth_status berth_event_query(berth_event *event)
{
    if (BERTH_UNLIKELY(!event))
        return null_argument("event");
    const berth__device_type *type = event->type;
    uint64_t before = berth__device_before(type);
    berth_status status = type->ops.event_query(type->self, event);
    return status == BERTH_NOT_READY ? status : berth__device_answer(type, status, before, "ask an event");
}

berth_status berth_event_wait(berth_event *event)
{
    if (!event)
        return null_argument("event");
    const berth__device_type *type = event->type;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.event_wait(type->self, event), before, "wait for an event");
}

void berth_event_destroy(berth_event *event)
{
    if (!event)
        return;
    const berth__device_type *type = event->type;
    type->ops.event_destroy(type->self, event);
    berth__device_lives(type, BERTH__DEVICE_EVENTS, -1);
}

/* Completes a device's table with operations that answer BERTH_UNSUPPORTED. */
#include "device/device_absent.h"

#include <string.h>

static berth_status absent(const char *name, const char *what)
{
    return berth__fail(BERTH_UNSUPPORTED, "a %s device cannot %s", name, what);
}

static const char *kind_name(berth_device device)
{
    return berth_device_kind_name((berth_device_kind)device.kind);
}

static berth_status no_device_native(berth_device device, void **out)
{
    (void)out;
    return absent(kind_name(device), "give a native handle: it has none");
}

static berth_status no_stream_create(berth_device device, berth_stream **out)
{
    (void)out;
    return absent(kind_name(device), "make streams");
}

static berth_status no_stream_wrap(berth_device device, void *native, berth_stream **out)
{
    (void)native, (void)out;
    return absent(kind_name(device), "wrap a stream: it has no native ones");
}

static void *no_native(berth_stream *stream)
{
    (void)stream;
    return NULL;
}

static void no_stream_destroy(berth_stream *stream)
{
    (void)stream;
}

static berth_status no_stream_query(berth_stream *stream)
{
    return absent(stream->ops->name, "query streams");
}

static berth_status no_stream_wait_event(berth_stream *stream, berth_event *event)
{
    (void)event;
    return absent(stream->ops->name, "make streams wait");
}

static berth_status no_stream_call(berth_stream *stream, void (*fn)(void *context), void *context)
{
    (void)fn, (void)context;
    return absent(stream->ops->name, "call functions of the host");
}

static berth_status no_event_create(berth_device device, berth_event **out)
{
    (void)out;
    return absent(kind_name(device), "make events");
}

static berth_status no_event_record(berth_event *event, berth_stream *stream)
{
    (void)stream;
    return absent(event->ops->name, "record events");
}

static berth_status no_event_query(berth_event *event)
{
    return absent(event->ops->name, "query events");
}

static void no_event_destroy(berth_event *event)
{
    (void)event;
}

static berth_status no_granularity(berth_device device, size_t *out)
{
    (void)out;
    return absent(kind_name(device), "map memory in pieces");
}

static berth_status no_reserve(berth_device device, size_t size_bytes, void **out)
{
    (void)size_bytes, (void)out;
    return absent(kind_name(device), "reserve address space");
}

static berth_status no_piece(berth_device device, void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
    return absent(kind_name(device), "map memory in pieces");
}

static berth_status no_copy_between(berth_device to, void *dst, berth_device from, const void *src,
                                    size_t size_bytes, berth_stream *stream)
{
    (void)dst, (void)from, (void)src, (void)size_bytes, (void)stream;
    return absent(kind_name(to), "copy to or from another one by itself");
}

static berth_status no_memory(berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)free_bytes, (void)total_bytes;
    return absent(kind_name(device), "say how much of its memory is free");
}

static berth_status no_unregister(berth_device device, void *p)
{
    (void)p;
    return absent(kind_name(device), "register memory of the host");
}

static berth_status no_register(berth_device device, void *p, size_t size_bytes)
{
    (void)size_bytes;
    return no_unregister(device, p);
}

static berth_status no_prefetch(berth_device device, void *p, size_t size_bytes, bool to_host,
                                berth_stream *stream)
{
    (void)p, (void)size_bytes, (void)to_host, (void)stream;
    return absent(kind_name(device), "move managed memory ahead of its use");
}

static berth_status no_advise(berth_device device, void *p, size_t size_bytes, berth_advice advice)
{
    (void)p, (void)size_bytes, (void)advice;
    return absent(kind_name(device), "be told how managed memory is used");
}

static berth_status no_share(berth_device device, void *p, berth_shared_handle *out)
{
    (void)p, (void)out;
    return absent(kind_name(device), "share memory with other processes");
}

static berth_status no_open_shared(berth_device device, const berth_shared_handle *handle, void **out)
{
    (void)handle, (void)out;
    return absent(kind_name(device), "share memory with other processes");
}

static berth_status no_close_shared(berth_device device, void *p)
{
    (void)p;
    return absent(kind_name(device), "share memory with other processes");
}

static berth_status no_most_bytes(berth_device device, berth_memory_kind kind, size_t *out)
{
    (void)device, (void)kind;
    *out = SIZE_MAX;
    return BERTH_OK;
}

#define FILL(field, with)      \
    do {                       \
        if (!out->field)       \
            out->field = with; \
    } while (0)

bool berth__device_ops_complete(berth__device_ops *out, const berth__device_ops *given)
{
    bool whole = given->struct_size == sizeof *given && given->name && given->count && given->describe &&
                 given->allocate && given->release && given->copy && given->zero;
    if (!BERTH_ASSERT(whole, "a device's table is of our size and has every required operation"))
        return false;
    memcpy(out, given, sizeof *out);
    FILL(native, no_device_native);
    FILL(stream_create, no_stream_create);
    FILL(stream_wrap, no_stream_wrap);
    FILL(stream_native, no_native);
    FILL(stream_destroy, no_stream_destroy);
    FILL(stream_query, no_stream_query);
    FILL(stream_synchronize, no_stream_query);
    FILL(stream_wait_event, no_stream_wait_event);
    FILL(stream_call, no_stream_call);
    FILL(event_create, no_event_create);
    FILL(event_record, no_event_record);
    FILL(event_query, no_event_query);
    FILL(event_wait, no_event_query);
    FILL(event_destroy, no_event_destroy);
    FILL(granularity, no_granularity);
    FILL(reserve, no_reserve);
    FILL(unreserve, no_piece);
    FILL(map, no_piece);
    FILL(unmap, no_piece);
    FILL(copy_between, no_copy_between);
    FILL(memory, no_memory);
    FILL(register_host, no_register);
    FILL(unregister_host, no_unregister);
    FILL(prefetch, no_prefetch);
    FILL(advise, no_advise);
    FILL(share, no_share);
    FILL(open_shared, no_open_shared);
    FILL(close_shared, no_close_shared);
    FILL(most_bytes, no_most_bytes);
    return true;
}

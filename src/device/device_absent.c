/* Checks a device's table and completes it with operations that answer BERTH_UNSUPPORTED. */
#include "device/device.h"

#include <string.h>

static berth_status device_absent(const char *name, const char *what)
{
    return berth__fail(BERTH_UNSUPPORTED, "a %s device cannot %s", name, what);
}

static const char *kind_name(berth_device device)
{
    return berth_device_kind_name((berth_device_kind)device.kind);
}

static berth_status no_device_native(void *self, berth_device device, void **out)
{
    (void)self, (void)out;
    return device_absent(kind_name(device), "give a native handle: it has none");
}

static berth_status no_stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self, (void)out;
    return device_absent(kind_name(device), "make streams");
}

static berth_status no_stream_wrap(void *self, berth_device device, void *native, berth_stream **out)
{
    (void)self, (void)native, (void)out;
    return device_absent(kind_name(device), "wrap a stream: it has no native ones");
}

static void *no_native(void *self, berth_stream *stream)
{
    (void)self, (void)stream;
    return NULL;
}

static void no_stream_destroy(void *self, berth_stream *stream)
{
    (void)self, (void)stream;
}

static berth_status no_stream_query(void *self, berth_stream *stream)
{
    (void)self;
    return device_absent(stream->type->name, "query streams");
}

static berth_status no_stream_wait_event(void *self, berth_stream *stream, berth_event *event)
{
    (void)self, (void)event;
    return device_absent(stream->type->name, "make streams wait");
}

static berth_status no_stream_call(void *self, berth_stream *stream, void (*fn)(void *context), void *context)
{
    (void)self, (void)fn, (void)context;
    return device_absent(stream->type->name, "call functions of the host");
}

static berth_status no_event_create(void *self, berth_device device, berth_event **out)
{
    (void)self, (void)out;
    return device_absent(kind_name(device), "make events");
}

static berth_status no_event_record(void *self, berth_event *event, berth_stream *stream)
{
    (void)self, (void)stream;
    return device_absent(event->type->name, "record events");
}

static berth_status no_event_query(void *self, berth_event *event)
{
    (void)self;
    return device_absent(event->type->name, "query events");
}

static void no_event_destroy(void *self, berth_event *event)
{
    (void)self, (void)event;
}

static berth_status no_granularity(void *self, berth_device device, size_t *out)
{
    (void)self, (void)out;
    return device_absent(kind_name(device), "map memory in pieces");
}

static berth_status no_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    (void)self, (void)size_bytes, (void)out;
    return device_absent(kind_name(device), "reserve address space");
}

static berth_status no_piece(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)p, (void)size_bytes;
    return device_absent(kind_name(device), "map memory in pieces");
}

static berth_status no_copy_between(void *self, berth_device to, void *dst, berth_device from,
                                    const void *src, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)dst, (void)from, (void)src, (void)size_bytes, (void)stream;
    return device_absent(kind_name(to), "copy to or from another one by itself");
}

static berth_status no_memory(void *self, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)self, (void)free_bytes, (void)total_bytes;
    return device_absent(kind_name(device), "say how much of its memory is free");
}

static berth_status no_unregister(void *self, berth_device device, void *p)
{
    (void)self, (void)p;
    return device_absent(kind_name(device), "register memory of the host");
}

static berth_status no_register(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)size_bytes;
    return no_unregister(self, device, p);
}

static berth_status no_prefetch(void *self, berth_device device, void *p, size_t size_bytes, bool to_host,
                                berth_stream *stream)
{
    (void)self, (void)p, (void)size_bytes, (void)to_host, (void)stream;
    return device_absent(kind_name(device), "move managed memory ahead of its use");
}

static berth_status no_advise(void *self, berth_device device, void *p, size_t size_bytes,
                              berth_advice advice)
{
    (void)self, (void)p, (void)size_bytes, (void)advice;
    return device_absent(kind_name(device), "be told how managed memory is used");
}

static berth_status no_share(void *self, berth_device device, void *p, berth_shared_handle *out)
{
    (void)self, (void)p, (void)out;
    return device_absent(kind_name(device), "share memory with other processes");
}

static berth_status no_open_shared(void *self, berth_device device, const berth_shared_handle *handle,
                                   void **out)
{
    (void)self, (void)handle, (void)out;
    return device_absent(kind_name(device), "share memory with other processes");
}

static berth_status no_close_shared(void *self, berth_device device, void *p)
{
    (void)self, (void)p;
    return device_absent(kind_name(device), "share memory with other processes");
}

static berth_status no_most_bytes(void *self, berth_device device, berth_memory_kind kind, size_t *out)
{
    (void)self, (void)device, (void)kind;
    *out = SIZE_MAX;
    return BERTH_OK;
}

static berth_status no_locate(void *self, berth_device device, const void *p, berth_device_place *out)
{
    (void)self, (void)p, (void)out;
    return device_absent(kind_name(device), "say where its memory lies: its addresses are the memory's own");
}

static void no_destroy(void *self)
{
    (void)self;
}

#define FILL(field, with)      \
    do {                       \
        if (!out->field)       \
            out->field = with; \
    } while (0)

/* Where the required ones end: a table may stop there. */
#define REQUIRED_BYTES (offsetof(berth_device_ops, zero) + sizeof(((berth_device_ops *)0)->zero))

static berth_status bad_table(const char *what)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the device's table %s", what);
}

static berth_status check_name(const char *name)
{
    size_t length = name ? strnlen(name, sizeof((berth__device_type *)0)->name) : 0;
    if (length == 0 || length >= sizeof((berth__device_type *)0)->name)
        return bad_table("needs a name of 1 to 31 characters");
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != length)
        return bad_table("has a name with other characters than a-z, 0-9, '_' and '-'");
    return strcmp(name, "unknown") == 0 ? bad_table("may not be named 'unknown'") : BERTH_OK;
}

/* What belongs together is there or absent together. */
static bool groups_are_whole(const berth_device_ops *o)
{
    int streams = !!o->stream_create + !!o->stream_destroy + !!o->stream_query + !!o->stream_synchronize +
                  !!o->stream_wait_event + !!o->event_create + !!o->event_record + !!o->event_query +
                  !!o->event_wait + !!o->event_destroy;
    int beside = !!o->stream_wrap + !!o->stream_native + !!o->stream_call;
    int pieces = !!o->granularity + !!o->reserve + !!o->unreserve + !!o->map + !!o->unmap;
    int shares = !!o->share + !!o->open_shared + !!o->close_shared;
    return (streams == 10 || (streams == 0 && beside == 0)) && (pieces == 0 || pieces == 5) &&
           (shares == 0 || shares == 3) && !o->register_host == !o->unregister_host;
}

static berth_status check_table(const berth_device_ops *o)
{
    berth_status status = check_name(o->name);
    if (status)
        return status;
    if (!(o->memory_kinds >> BERTH_MEMORY_DEVICE & 1) || o->memory_kinds >> (BERTH_MEMORY_WRITE_COMBINED + 1))
        return bad_table(
            "must name its kinds of memory, BERTH_MEMORY_DEVICE among them and none that is unknown");
    if (o->abilities & ~(uint64_t)BERTH_DEVICE_CALLS_USE_DEVICE)
        return bad_table("names abilities that this version does not know");
    if (!o->count || !o->describe || !o->allocate || !o->release || !o->copy || !o->zero)
        return bad_table("lacks one of count, describe, allocate, release, copy and zero");
    if (!groups_are_whole(o))
        return bad_table(
            "has a part of what belongs together: streams and events; address space; memory between "
            "processes; register_host and unregister_host");
    return BERTH_OK;
}

berth_status berth__device_ops_complete(berth_device_ops *out, const berth_device_ops *given)
{
    if (given->struct_size < REQUIRED_BYTES || given->struct_size % sizeof(void *) != 0)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the table's struct_size is %zu, at least %zu is needed: set it to "
                           "sizeof(berth_device_ops)",
                           given->struct_size, REQUIRED_BYTES);
    memset(out, 0, sizeof *out);
    memcpy(out, given, given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
    out->struct_size = sizeof *out;
    berth_status status = check_table(out);
    if (status)
        return status;
    FILL(destroy, no_destroy);
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
    FILL(locate, no_locate);
    return BERTH_OK;
}

/* A whole device in one file: the host's memory under the name "example", built as a shared library. A real one calls its
 * driver where this one calls libc. Its streams are the simplest that keep every promise: work is done before the
 * enqueuing call returns, so each stream and event is always complete. docs/adding-a-device.md goes through it;
 * `berth-device-check libberth_example_device.so` judges it. */
#include <berth/device_ops.h>
#include <stdlib.h>
#include <string.h>

/* What the operations get as `self`. */
typedef struct example {
    int32_t devices;
} example;

/* Berth's part comes first; what the driver knows a stream or an event by would follow. */
typedef struct stream {
    berth_stream_base base;
} stream;

typedef struct event {
    berth_event_base base;
} event;

/* ---- Memory ----------------------------------------------------------------------------------------- */

static berth_status count(void *self, int32_t *out)
{
    *out = ((example *)self)->devices;
    return BERTH_OK;
}

static berth_status describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device;
    strcpy(info->name, "the host, as an example");
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED;
    info->host_accessible = true; /* the host may read and write device memory in place */
    return BERTH_OK;
}

static berth_status allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                             size_t alignment, berth_stream *on, void **out)
{
    (void)self, (void)device, (void)kind, (void)on;
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "the host has no %zu bytes", size_bytes);
    return BERTH_OK;
}

static berth_status release(void *self, berth_device device, berth_memory_kind kind, void *p,
                            size_t size_bytes, berth_stream *on)
{
    (void)self, (void)device, (void)kind, (void)size_bytes, (void)on;
    free(p);
    return BERTH_OK;
}

static berth_status copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *on)
{
    (void)self, (void)device, (void)kind, (void)on;
    memmove(dst, src, size_bytes); /* not memcpy: copies that overlap must move */
    return BERTH_OK;
}

static berth_status zero(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *on)
{
    (void)self, (void)device, (void)on;
    memset(dst, 0, size_bytes);
    return BERTH_OK;
}

/* ---- Streams and events ----------------------------------------------------------------------------- */

static berth_status stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self, (void)device;
    stream *made = calloc(1, sizeof *made);
    if (!made)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    *out = berth_stream_from_base(&made->base);
    return BERTH_OK;
}

static void stream_destroy(void *self, berth_stream *on)
{
    (void)self;
    free(on);
}

/* BERTH_NOT_READY, or waiting, where a driver is still at work. */
static berth_status stream_is_done(void *self, berth_stream *on)
{
    (void)self, (void)on;
    return BERTH_OK;
}

static berth_status stream_wait_event(void *self, berth_stream *on, berth_event *mark)
{
    (void)self, (void)on, (void)mark;
    return BERTH_OK;
}

static berth_status event_create(void *self, berth_device device, berth_event **out)
{
    (void)self, (void)device;
    event *made = calloc(1, sizeof *made);
    if (!made)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    *out = berth_event_from_base(&made->base);
    return BERTH_OK;
}

static berth_status event_record(void *self, berth_event *mark, berth_stream *on)
{
    (void)self, (void)mark, (void)on;
    return BERTH_OK;
}

static berth_status event_is_done(void *self, berth_event *mark)
{
    (void)self, (void)mark;
    return BERTH_OK;
}

static void event_destroy(void *self, berth_event *mark)
{
    (void)self;
    free(mark);
}

/* ---- The table -------------------------------------------------------------------------------------- */

static const berth_device_ops table = {
    .struct_size = sizeof(berth_device_ops),
    .name = "example",
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED,
    .count = count,
    .describe = describe,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .zero = zero,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_is_done,
    .stream_synchronize = stream_is_done,
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_record = event_record,
    .event_query = event_is_done,
    .event_wait = event_is_done,
    .event_destroy = event_destroy,
};

/* What `berth devices --load` and berth-device-check look for; a program that links the device calls it too, and
 * gives the answer to berth_device_register. */
BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self);

berth_status berth_device_entry(const berth_device_ops **ops, void **self)
{
    static example devices = {.devices = 1};
    *ops = &table;
    *self = &devices;
    return BERTH_OK;
}

/* The device of device.h. Its own state is not under test: it is not seen by the explorer, and so its calls order
 * nothing between threads. */
#include "device.h"

#include <string.h>

#include "device/device.h"
#include "inside.h"

enum { STREAMS = 2, MEMORY = 8 << 20 };

typedef struct device_work {
    berth_stream base;
    uint64_t enqueued, completed;
} device_work;

typedef struct device_mark {
    berth_event base;
    device_work *stream;
    uint64_t number;
} device_mark;

static device_work streams[STREAMS];
static size_t memory_used, memory_held;

/* At an address that is the same in every run; nobody writes to it. */
static char *const memory = (char *)0x100000000;

berth_stream *device_stream(int which)
{
    device_work *s = &streams[which];
    if (!s->base.id) {
        s->base.id = (uint64_t)which + 1;
        s->base.device = berth_device_cpu();
        atomic_init(&s->base.references, 1);
    }
    return &s->base;
}

void device_enqueue(int which)
{
    explore_step();
    streams[which].enqueued++;
}

void device_complete(int which)
{
    explore_step();
    streams[which].completed = streams[which].enqueued;
    explore_stored();
}

bool device_has_passed(const berth_event *event)
{
    const device_mark *mark = (const device_mark *)event;
    return mark->stream->completed >= mark->number;
}

uint64_t device_bytes(void)
{
    return memory_held;
}

/* ---- What berth calls ------------------------------------------------------------------------------------------ */

berth_device berth_device_cpu(void)
{
    return (berth_device){.kind = BERTH_DEVICE_CPU};
}

berth_device berth_stream_device(const berth_stream *stream)
{
    return stream->device;
}

berth_status berth_device_describe(berth_device device, berth_device_info *info)
{
    (void)device;
    info->memory_kinds = (uint64_t)1 << BERTH_MEMORY_PINNED | (uint64_t)1 << BERTH_MEMORY_DEVICE;
    info->host_accessible = info->virtual_memory = true;
    return BERTH_OK;
}

size_t berth__device_most_bytes(berth_device device, berth_memory_kind kind)
{
    (void)device, (void)kind;
    return SIZE_MAX;
}

berth_status berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                   size_t alignment, berth_stream *stream, void **out)
{
    (void)device, (void)kind, (void)stream;
    explore_step();
    memory_used = berth__align_up(memory_used, alignment < 4096 ? 4096 : alignment) + size_bytes;
    if (memory_used > MEMORY)
        return BERTH_OUT_OF_DEVICE_MEMORY;
    memory_held += size_bytes;
    *out = memory + memory_used - size_bytes;
    return BERTH_OK;
}

berth_status berth_device_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                  berth_stream *stream)
{
    (void)device, (void)kind, (void)stream;
    explore_step();
    memory_held -= size_bytes;
    if ((char *)p + size_bytes == memory + memory_used) /* the next to come gets the same address */
        memory_used -= size_bytes;
    return BERTH_OK;
}

berth_stream *berth__stream_retain(berth_stream *stream)
{
    stream->references++;
    return stream;
}

void berth__stream_release(berth_stream *stream)
{
    stream->references--;
}

berth_status berth_stream_query(berth_stream *stream)
{
    explore_step();
    const device_work *s = (const device_work *)stream;
    return s->completed == s->enqueued ? BERTH_OK : BERTH_NOT_READY;
}

berth_status berth_stream_synchronize(berth_stream *stream)
{
    device_work *s = (device_work *)stream;
    s->completed = s->enqueued;
    return BERTH_OK;
}

berth_status berth_event_create(berth_device device, berth_event **out)
{
    device_mark *made = berth__heap_zalloc(1, sizeof *made);
    made->base.device = device;
    *out = &made->base;
    return BERTH_OK;
}

void berth_event_destroy(berth_event *event)
{
    berth__heap_free(event);
}

berth_status berth_event_record(berth_event *event, berth_stream *stream)
{
    explore_step();
    device_mark *mark = (device_mark *)event;
    mark->stream = (device_work *)stream;
    mark->number = mark->stream->enqueued;
    return BERTH_OK;
}

berth_status berth_event_query(berth_event *event)
{
    explore_step();
    return device_has_passed(event) ? BERTH_OK : BERTH_NOT_READY;
}

berth_status berth_event_wait(berth_event *event)
{
    return berth_stream_synchronize(&((device_mark *)event)->stream->base);
}

berth_status berth_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                        berth_copy_kind kind, berth_stream *stream, bool sync)
{
    (void)device, (void)dst, (void)src, (void)size_bytes, (void)kind, (void)stream, (void)sync;
    return BERTH_UNSUPPORTED;
}

berth_status berth_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream, bool sync)
{
    (void)device, (void)dst, (void)size_bytes, (void)stream, (void)sync;
    return BERTH_UNSUPPORTED;
}

enum { GRANULARITY = 64 << 10 };

berth_status berth__device_granularity(berth_device device, size_t *out)
{
    (void)device;
    *out = GRANULARITY;
    return BERTH_OK;
}

berth_status berth__device_reserve(berth_device device, size_t size_bytes, void **out)
{
    (void)device;
    memory_used = berth__align_up(memory_used, GRANULARITY) + size_bytes;
    *out = memory + memory_used - size_bytes;
    return BERTH_OK;
}

berth_status berth__device_unreserve(berth_device device, void *base, size_t size_bytes)
{
    (void)device, (void)base, (void)size_bytes;
    return BERTH_OK;
}

berth_status berth__device_map(berth_device device, void *p, size_t size_bytes)
{
    (void)device, (void)p;
    explore_step();
    memory_held += size_bytes;
    return BERTH_OK;
}

berth_status berth__device_unmap(berth_device device, void *p, size_t size_bytes)
{
    (void)device, (void)p;
    explore_step();
    memory_held -= size_bytes;
    return BERTH_OK;
}

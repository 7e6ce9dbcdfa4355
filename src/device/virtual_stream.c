/* Streams and events in virtual time, and the steps that move them. */
#include "device/virtual.h"

#include <string.h>

static virtual_stream *virtual_of(berth_stream *stream)
{
    return (virtual_stream *)stream;
}

/* ---- Life ---------------------------------------------------------------------------------------- */

berth_status berth__virtual_stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self;
    virtual_device *found = berth__virtual_find(device);
    berth_status status = found ? berth__virtual_allow(found, BERTH_VIRTUAL_STREAM_CREATE) : BERTH_NOT_FOUND;
    if (status)
        return status;
    virtual_stream *stream = berth__heap_alloc(sizeof *stream);
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a virtual stream");
    memset(stream, 0, offsetof(virtual_stream, inline_ring));
    stream->device = found;
    stream->ring = stream->inline_ring;
    stream->capacity = VIRTUAL_INLINE_TASKS;
    stream->previous = found->streams_end;
    *(stream->previous ? &stream->previous->next : &found->streams) = stream;
    found->streams_end = stream;
    found->members++;
    *out = &stream->base;
    return BERTH_OK;
}

void berth__virtual_free_if_done(virtual_stream *stream)
{
    bool heard = stream->visible == stream->completed || !stream->events;
    if (!stream->released || virtual_pending(stream) > 0 || stream->holds > 0 || stream->stepping || !heard)
        return;
    virtual_device *device = stream->device;
    while (stream->events)
        berth__virtual_mark(stream->events, NULL, 0, stream->events->lost);
    *(stream->previous ? &stream->previous->next : &device->streams) = stream->next;
    *(stream->next ? &stream->next->previous : &device->streams_end) = stream->previous;
    if (stream->ring != stream->inline_ring)
        berth__heap_free(stream->ring);
    berth__heap_free(stream);
    berth__virtual_leave(device);
}

void berth__virtual_stream_destroy(void *self, berth_stream *stream)
{
    (void)self;
    virtual_of(stream)->released = true;
    berth__virtual_free_if_done(virtual_of(stream));
}

static void unhold(virtual_stream *stream)
{
    stream->holds--;
    berth__virtual_free_if_done(stream);
}

void berth__virtual_drop_tasks(virtual_stream *stream)
{
    size_t count = virtual_pending(stream);
    for (size_t i = 0; i < count; i++) {
        virtual_task *task = virtual_task_at(stream, i);
        if (task->kind == VIRTUAL_WAIT && task->u.wait.stream)
            unhold(task->u.wait.stream);
    }
    stream->completed = stream->visible = stream->enqueued;
    stream->head = 0;
}

void berth__virtual_streams_reset(virtual_device *device)
{
    for (virtual_event *event = device->events; event; event = event->next)
        event->lost = false;
    for (virtual_stream *stream = device->streams; stream; stream = stream->next)
        stream->holds++; /* none goes away while we walk */
    for (virtual_stream *stream = device->streams; stream; stream = stream->next) {
        berth__virtual_drop_tasks(stream);
        stream->late = false;
        stream->lose = 0;
    }
    for (virtual_stream *stream = device->streams; stream;) {
        virtual_stream *next = stream->next;
        unhold(stream);
        stream = next;
    }
}

/* ---- Enqueuing ----------------------------------------------------------------------------------- */

bool berth__virtual_ring_fit(virtual_stream *stream, size_t count)
{
    size_t capacity = stream->capacity, pending = virtual_pending(stream);
    if (count <= capacity)
        return true;
    while (capacity < count)
        capacity *= 2;
    virtual_task *ring = berth__heap_zalloc(capacity, sizeof *ring);
    if (!ring)
        return false;
    for (size_t i = 0; i < pending; i++)
        ring[i] = *virtual_task_at(stream, i);
    if (stream->ring != stream->inline_ring)
        berth__heap_free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    stream->head = 0;
    return true;
}

berth_status berth__virtual_enqueue(virtual_stream *stream, const virtual_task *task)
{
    size_t pending = virtual_pending(stream);
    if (BERTH_UNLIKELY(!berth__virtual_ring_fit(stream, pending + 1)))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for more work on virtual stream %llu",
                           (unsigned long long)stream->base.id);
    *virtual_task_at(stream, pending) = *task;
    stream->enqueued++;
    if (task->kind == VIRTUAL_WAIT && task->u.wait.stream)
        task->u.wait.stream->holds++;
    return BERTH_OK;
}

berth_status berth__virtual_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                        void *context)
{
    (void)self;
    berth_status status = berth__virtual_allow(virtual_of(stream)->device, BERTH_VIRTUAL_STREAM_CALL);
    virtual_task task = {.kind = VIRTUAL_CALL, .u.call = {fn, context}};
    return !status ? berth__virtual_enqueue(virtual_of(stream), &task) : status;
}

berth_status berth__virtual_stream_wait_event(void *self, berth_stream *stream, berth_event *base)
{
    (void)self;
    const virtual_event *event = (virtual_event *)base;
    berth_status status = berth__virtual_allow(virtual_of(stream)->device, BERTH_VIRTUAL_STREAM_WAIT_EVENT);
    if (status)
        return status;
    if (!event->lost && (!event->stream || event->stream->completed >= event->number))
        return BERTH_OK;
    virtual_task task = {.kind = VIRTUAL_WAIT, .u.wait = {event->lost ? NULL : event->stream, event->number}};
    return berth__virtual_enqueue(virtual_of(stream), &task);
}

/* ---- Time ---------------------------------------------------------------------------------------- */

static void run_task(virtual_stream *stream, const virtual_task *task)
{
    switch (task->kind) {
    case VIRTUAL_COPY:
        memmove(task->u.copy.dst, task->u.copy.src, task->u.copy.size_bytes);
        break;
    case VIRTUAL_ZERO:
        memset(task->u.copy.dst, 0, task->u.copy.size_bytes);
        break;
    case VIRTUAL_CALL:
        berth_stream_run(&stream->base, task->u.call.fn, task->u.call.context);
        break;
    case VIRTUAL_WAIT:
        if (task->u.wait.stream != stream)
            unhold(task->u.wait.stream);
        else
            stream->holds--;
        break;
    }
}

static bool must_wait(const virtual_task *task)
{
    return task->kind == VIRTUAL_WAIT &&
           (!task->u.wait.stream || task->u.wait.stream->completed < task->u.wait.number);
}

static berth_status step(virtual_stream *stream)
{
    if (virtual_pending(stream) == 0)
        return BERTH_NOT_FOUND;
    virtual_task task = *virtual_task_at(stream, 0); /* a copy: the function may make the ring grow */
    if (stream->stepping || must_wait(&task))
        return BERTH_NOT_READY;
    uint64_t before = stream->completed;
    stream->stepping = true;
    run_task(stream, &task);
    stream->stepping = false;
    if (stream->completed == before) { /* else the function has reset the device */
        stream->head = (stream->head + 1) & (stream->capacity - 1);
        stream->completed++;
        if (!stream->late)
            stream->visible = stream->completed;
    }
    berth__virtual_free_if_done(stream);
    return BERTH_OK;
}

/* Runs the stream, and those it waits for, until it has passed `number`. False if that cannot happen. The
 * caller holds the stream. */
static bool run_until(virtual_stream *stream, uint64_t number)
{
    while (stream->completed < number) {
        berth_status status = step(stream);
        if (!status)
            continue;
        if (status != BERTH_NOT_READY || stream->stepping)
            return false;
        const virtual_task *task = virtual_task_at(stream, 0);
        virtual_stream *other = task->u.wait.stream;
        if (!other)
            return false;
        uint64_t mark = task->u.wait.number;
        other->holds++;
        bool passed = run_until(other, mark);
        unhold(other);
        if (!passed)
            return false;
    }
    return true;
}

static berth_status check_virtual(const berth_stream *stream)
{
    if (stream && stream->device.kind == BERTH_DEVICE_VIRTUAL)
        return BERTH_OK;
    return berth__fail(BERTH_INVALID_ARGUMENT,
                       stream ? "the stream is not one of virtual time" : "stream is NULL");
}

berth_status berth_virtual_step(berth_stream *stream)
{
    berth_status status = check_virtual(stream);
    return !status ? step(virtual_of(stream)) : status;
}

berth_status berth_virtual_run(berth_stream *stream)
{
    berth_status status = check_virtual(stream);
    if (status)
        return status;
    virtual_of(stream)->holds++;
    do
        status = step(virtual_of(stream));
    while (!status);
    unhold(virtual_of(stream));
    return status == BERTH_NOT_FOUND ? BERTH_OK : status;
}

berth_status berth_virtual_run_all(berth_device device)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    bool moved = true, waiting = false;
    found->members++;
    while (moved) {
        moved = waiting = false;
        for (virtual_stream *stream = found->streams; stream;) {
            stream->holds++;
            berth_status status = step(stream);
            moved |= !status;
            waiting |= status == BERTH_NOT_READY;
            virtual_stream *next = stream->next;
            unhold(stream);
            stream = next;
        }
    }
    berth__virtual_leave(found);
    return waiting ? BERTH_NOT_READY : BERTH_OK;
}

uint64_t berth_virtual_pending(const berth_stream *stream)
{
    return check_virtual(stream) == BERTH_OK ? virtual_pending((const virtual_stream *)stream) : 0;
}

/* ---- Late and lost ------------------------------------------------------------------------------- */

berth_status berth_virtual_deliver(berth_stream *stream)
{
    berth_status status = check_virtual(stream);
    if (status)
        return status;
    virtual_of(stream)->visible = virtual_of(stream)->completed;
    berth__virtual_free_if_done(virtual_of(stream));
    return BERTH_OK;
}

berth_status berth_virtual_set_late(berth_stream *stream, bool late)
{
    berth_status status = check_virtual(stream);
    if (status)
        return status;
    virtual_of(stream)->late = late;
    return late ? BERTH_OK : berth_virtual_deliver(stream);
}

berth_status berth_virtual_lose_events(berth_stream *stream, uint64_t count)
{
    berth_status status = check_virtual(stream);
    if (!status)
        virtual_of(stream)->lose = count;
    return status;
}

/* ---- Asking and waiting -------------------------------------------------------------------------- */

/* Waits on the host for a point of a stream. */
static berth_status wait_for(virtual_stream *stream, uint64_t number)
{
    bool passed = stream->completed >= number;
    stream->holds++;
    if (!passed && stream->device->waits_run)
        passed = run_until(stream, number);
    if (passed && stream->visible < number)
        stream->visible = number;
    uint64_t id = stream->base.id;
    unhold(stream);
    if (passed)
        return BERTH_OK;
    return berth__fail(BERTH_TIMED_OUT,
                       "virtual stream %llu does not get there by itself: step it, or what it "
                       "waits for",
                       (unsigned long long)id);
}

berth_status berth__virtual_stream_query(void *self, berth_stream *stream)
{
    (void)self;
    berth_status status = berth__virtual_allow(virtual_of(stream)->device, BERTH_VIRTUAL_STREAM_QUERY);
    if (status)
        return status;
    return virtual_of(stream)->visible == virtual_of(stream)->enqueued ? BERTH_OK : BERTH_NOT_READY;
}

berth_status berth__virtual_stream_synchronize(void *self, berth_stream *stream)
{
    (void)self;
    berth_status status = berth__virtual_allow(virtual_of(stream)->device, BERTH_VIRTUAL_STREAM_SYNCHRONIZE);
    return !status ? wait_for(virtual_of(stream), virtual_of(stream)->enqueued) : status;
}

berth_status berth__virtual_event_create(void *self, berth_device device, berth_event **out)
{
    (void)self;
    virtual_device *found = berth__virtual_find(device);
    berth_status status = found ? berth__virtual_allow(found, BERTH_VIRTUAL_EVENT_CREATE) : BERTH_NOT_FOUND;
    if (status)
        return status;
    virtual_event *event = berth__heap_zalloc(1, sizeof *event);
    if (!event)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a virtual event");
    event->device = found;
    event->next = found->events;
    if (event->next)
        event->next->previous = event;
    found->events = event;
    found->members++;
    *out = &event->base;
    return BERTH_OK;
}

void berth__virtual_mark(virtual_event *event, virtual_stream *stream, uint64_t number, bool lost)
{
    if (event->stream != stream) {
        if (event->stream)
            *(event->stream_previous ? &event->stream_previous->stream_next : &event->stream->events) =
                event->stream_next;
        if (event->stream_next)
            event->stream_next->stream_previous = event->stream_previous;
        event->stream_previous = NULL;
        event->stream_next = stream ? stream->events : NULL;
        if (event->stream_next)
            event->stream_next->stream_previous = event;
        if (stream)
            stream->events = event;
        event->stream = stream;
    }
    event->number = number;
    event->lost = lost;
}

berth_status berth__virtual_event_record(void *self, berth_event *base, berth_stream *stream)
{
    (void)self;
    virtual_event *event = (virtual_event *)base;
    berth_status status = berth__virtual_allow(event->device, BERTH_VIRTUAL_EVENT_RECORD);
    if (status)
        return status;
    bool lost = virtual_of(stream)->lose > 0;
    virtual_of(stream)->lose -= lost;
    virtual_stream *old = event->stream;
    berth__virtual_mark(event, virtual_of(stream), virtual_of(stream)->enqueued, lost);
    if (old && old != virtual_of(stream))
        berth__virtual_free_if_done(old);
    return BERTH_OK;
}

berth_status berth__virtual_event_query(void *self, berth_event *base)
{
    (void)self;
    const virtual_event *event = (virtual_event *)base;
    berth_status status = berth__virtual_allow(event->device, BERTH_VIRTUAL_EVENT_QUERY);
    if (status)
        return status;
    bool passed = !event->lost && (!event->stream || event->stream->visible >= event->number);
    return passed ? BERTH_OK : BERTH_NOT_READY;
}

berth_status berth__virtual_event_wait(void *self, berth_event *base)
{
    (void)self;
    const virtual_event *event = (virtual_event *)base;
    berth_status status = berth__virtual_allow(event->device, BERTH_VIRTUAL_EVENT_WAIT);
    if (status)
        return status;
    if (event->lost)
        return berth__fail(BERTH_TIMED_OUT, "the event is lost: waiting for it would never end");
    if (event->stream && &event->stream->base == berth__running_stream &&
        event->stream->completed < event->number)
        return berth__fail(BERTH_BUSY, "a function running on stream %llu cannot wait for that stream",
                           (unsigned long long)event->stream->base.id);
    return event->stream ? wait_for(event->stream, event->number) : BERTH_OK;
}

void berth__virtual_event_destroy(void *self, berth_event *base)
{
    (void)self;
    virtual_event *event = (virtual_event *)base;
    virtual_device *device = event->device;
    virtual_stream *stream = event->stream;
    berth__virtual_mark(event, NULL, 0, false);
    if (stream)
        berth__virtual_free_if_done(stream);
    *(event->previous ? &event->previous->next : &device->events) = event->next;
    if (event->next)
        event->next->previous = event->previous;
    berth__heap_free(event);
    berth__virtual_leave(device);
}

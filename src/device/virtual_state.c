/* Going back in virtual time: where every stream and event stands, kept and put back.
 *
 *     state   header | stream, stream, ... | event, event, ... | tasks of the first stream, of the second,
 * ... */
#include "device/virtual.h"

#include <string.h>

typedef struct kept_stream {
    virtual_stream *stream;
    uint64_t id, enqueued, completed, visible, lose;
    bool late, released;
} kept_stream;

typedef struct kept_event {
    virtual_event *event;
    virtual_stream *stream;
    uint64_t number;
    bool lost;
} kept_event;

struct berth_virtual_state {
    size_t stream_count, event_count;
    uint64_t limit_bytes;
    bool waits_run, rules_set;
    virtual_rule rules[VIRTUAL_CALLS];
    uint64_t calls[VIRTUAL_CALLS];
    kept_stream *streams;
    kept_event *events;
    virtual_task *tasks;
};

static void virtual_measure(const virtual_device *device, size_t *streams, size_t *events, size_t *tasks)
{
    *streams = *events = *tasks = 0;
    for (const virtual_stream *stream = device->streams; stream; stream = stream->next) {
        *streams += 1;
        *tasks += virtual_pending(stream);
    }
    for (const virtual_event *event = device->events; event; event = event->next)
        *events += 1;
}

static void virtual_fill(berth_virtual_state *state, virtual_device *device)
{
    virtual_task *task = state->tasks;
    kept_stream *s = state->streams;
    kept_event *e = state->events;
    for (virtual_stream *stream = device->streams; stream; stream = stream->next) {
        *s++ = (kept_stream){stream,          stream->base.id, stream->enqueued, stream->completed,
                             stream->visible, stream->lose,    stream->late,     stream->released};
        for (size_t i = 0; i < virtual_pending(stream); i++)
            *task++ = *virtual_task_at(stream, i);
    }
    for (virtual_event *event = device->events; event; event = event->next)
        *e++ = (kept_event){event, event->stream, event->number, event->lost};
    state->limit_bytes = device->limit_bytes;
    state->waits_run = device->waits_run;
    state->rules_set = device->rules_set;
    memcpy(state->rules, device->rules, sizeof state->rules);
    for (int i = 0; i < VIRTUAL_CALLS; i++)
        state->calls[i] = atomic_load_explicit(&device->calls[i], memory_order_relaxed);
}

berth_status berth_virtual_save(berth_device device, berth_virtual_state **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    size_t streams, events, tasks;
    virtual_measure(found, &streams, &events, &tasks);
    berth_virtual_state *state =
        berth__heap_alloc(sizeof *state + streams * sizeof(kept_stream) + events * sizeof(kept_event) +
                          tasks * sizeof(virtual_task));
    if (!state)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to save %zu virtual streams", streams);
    state->stream_count = streams;
    state->event_count = events;
    state->streams = (kept_stream *)(state + 1);
    state->events = (kept_event *)(state->streams + streams);
    state->tasks = (virtual_task *)(state->events + events);
    virtual_fill(state, found);
    *out = state;
    return BERTH_OK;
}

/* Whether the device has exactly the streams and events that were kept. */
static bool matches(const berth_virtual_state *state, const virtual_device *device)
{
    const virtual_stream *stream = device->streams;
    const virtual_event *event = device->events;
    for (size_t i = 0; i < state->stream_count; i++, stream = stream->next)
        if (!stream || stream != state->streams[i].stream || stream->base.id != state->streams[i].id ||
            stream->released != state->streams[i].released || stream->stepping)
            return false;
    for (size_t i = 0; i < state->event_count; i++, event = event->next)
        if (!event || event != state->events[i].event)
            return false;
    return !stream && !event;
}

static bool make_room(const berth_virtual_state *state)
{
    for (size_t i = 0; i < state->stream_count; i++) {
        const kept_stream *kept = &state->streams[i];
        if (!berth__virtual_ring_fit(kept->stream, (size_t)(kept->enqueued - kept->completed)))
            return false;
    }
    return true;
}

/* Nothing can fail here, and no stream goes away: all are held until all stand where they stood. */
static void put_back(const berth_virtual_state *state, virtual_device *device)
{
    const virtual_task *task = state->tasks;
    for (size_t i = 0; i < state->stream_count; i++)
        state->streams[i].stream->holds++;
    for (size_t i = 0; i < state->stream_count; i++)
        berth__virtual_drop_tasks(state->streams[i].stream);
    for (size_t i = 0; i < state->event_count; i++)
        berth__virtual_mark(state->events[i].event, state->events[i].stream, state->events[i].number,
                            state->events[i].lost);
    for (size_t i = 0; i < state->stream_count; i++) {
        const kept_stream *kept = &state->streams[i];
        virtual_stream *stream = kept->stream;
        stream->enqueued = stream->completed = kept->completed;
        while (stream->enqueued < kept->enqueued)
            (void)berth__virtual_enqueue(stream, task++);
        stream->visible = kept->visible;
        stream->late = kept->late;
        stream->lose = kept->lose;
    }
    for (size_t i = 0; i < state->stream_count; i++)
        state->streams[i].stream->holds--;
    device->limit_bytes = state->limit_bytes;
    device->waits_run = state->waits_run;
    device->rules_set = state->rules_set;
    memcpy(device->rules, state->rules, sizeof state->rules);
    for (int i = 0; i < VIRTUAL_CALLS; i++)
        atomic_store_explicit(&device->calls[i], state->calls[i], memory_order_relaxed);
}

berth_status berth_virtual_restore(berth_device device, const berth_virtual_state *state)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    if (!state)
        return berth__fail(BERTH_INVALID_ARGUMENT, "state is NULL");
    if (!matches(state, found))
        return berth__fail(BERTH_MISMATCH,
                           "virtual device %d has other streams or events than when it was saved",
                           (int)device.ordinal);
    if (!make_room(state))
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to put virtual streams back");
    put_back(state, found);
    return BERTH_OK;
}

void berth_virtual_state_destroy(berth_virtual_state *state)
{
    berth__heap_free(state);
}

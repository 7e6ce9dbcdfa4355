/* Streams and events of the CPU: what is enqueued, and when it counts as done. */
#include "device/cpu.h"

#include <string.h>

typedef struct cpu_event {
    berth_event base;
    _Atomic uint64_t mark; /* timeline and number in one word, so that query and record may race */
} cpu_event;

static cpu_stream *cpu_of(berth_stream *stream)
{
    return (cpu_stream *)stream;
}

/* ---- Life ---------------------------------------------------------------------------------------- */

berth_status berth__cpu_stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self, (void)device;
    berth__cpu_watch_forks();
    cpu_stream *stream = berth__heap_aligned(sizeof *stream, _Alignof(cpu_stream));
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    memset(stream, 0, offsetof(cpu_stream, inline_ring));
    stream->timeline = berth__cpu_timeline_take();
    if (!stream->timeline) {
        berth__heap_free(stream);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream's timeline, or 2^18 are in use");
    }
    atomic_store_explicit(&stream->timeline->owner, &stream->base, memory_order_relaxed);
    stream->process = berth__cpu_process();
    atomic_init(&stream->enqueued, atomic_load(&stream->timeline->completed));
    pthread_mutex_init(&stream->lock, NULL);
    stream->ring = stream->inline_ring;
    stream->capacity = CPU_INLINE_TASKS;
    *out = &stream->base;
    return BERTH_OK;
}

static void free_stream(cpu_stream *stream)
{
    berth__cpu_timeline_give(stream->timeline);
    pthread_mutex_destroy(&stream->lock);
    if (stream->ring != stream->inline_ring)
        berth__heap_free(stream->ring);
    berth__heap_free(stream);
}

void berth__cpu_stream_destroy(void *self, berth_stream *base)
{
    (void)self;
    cpu_stream *stream = cpu_of(base);
    /* After a fork its lock and queue are as some thread of the parent left them: not touched, not freed. */
    if (stream->process != berth__cpu_process())
        return;
    berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
    bool idle = stream->state == CPU_IDLE;
    stream->orphaned = !idle;
    berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
    if (idle)
        free_stream(stream);
}

/* ---- Running ------------------------------------------------------------------------------------- */

static void run_task(cpu_stream *stream, const cpu_task *task)
{
    switch (task->kind) {
    case CPU_COPY:
        memmove(task->u.copy.dst, task->u.copy.src, task->u.copy.size_bytes);
        break;
    case CPU_ZERO:
        memset(task->u.copy.dst, 0, task->u.copy.size_bytes);
        break;
    case CPU_CALL:
        berth_stream_run(&stream->base, task->u.call.fn, task->u.call.context);
        break;
    case CPU_WAIT:
        break; /* it has been passed, else it would not run */
    }
}

/* Takes the next task, with the lock held. False, and the lock released, when there is none or the stream is
 * parked: then it may already be gone. */
static bool take_task(cpu_stream *stream, cpu_task *task)
{
    for (;;) {
        if (stream->count == 0) {
            stream->state = CPU_IDLE;
            bool orphaned = stream->orphaned;
            berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
            if (orphaned)
                free_stream(stream);
            return false;
        }
        *task = stream->ring[stream->head];
        if (task->kind != CPU_WAIT || berth__cpu_mark_passed(task->u.mark))
            break;
        stream->state = CPU_PARKED;
        berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
        if (berth__cpu_mark_park(task->u.mark, stream))
            return false;
        berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
        stream->state = CPU_ACTIVE;
    }
    stream->head = (stream->head + 1) & (stream->capacity - 1);
    stream->count--;
    return true;
}

void berth__cpu_stream_run(cpu_stream *stream)
{
    cpu_timeline *timeline = stream->timeline;
    cpu_task task;
    berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
    while (take_task(stream, &task)) {
        berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
        run_task(stream, &task);
        /* Under the lock, together with becoming idle: who has seen the last operation complete may destroy
         * the stream, and that frees it at once. */
        berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
        atomic_fetch_add(&timeline->completed, 1);
        if (atomic_load(&timeline->waiters) == 0)
            continue;
        if (stream->count == 0) {
            take_task(stream, &task); /* gives the stream up */
            break;
        }
        berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
        berth__cpu_timeline_wake(timeline);
        berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
    }
    /* Those who came while the stream was given up; the timeline itself never goes away. */
    berth__cpu_timeline_wake(timeline);
}

void berth__cpu_stream_resume(cpu_stream *stream)
{
    int error = 0;
    berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
    stream->state = CPU_ACTIVE;
    bool started = berth__cpu_worker_start(stream, &error);
    berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
    /* The caller is a worker, so there is one to leave it to. */
    (void)BERTH_ASSERT(started, "a resumed stream finds a thread");
}

/* ---- Enqueuing ----------------------------------------------------------------------------------- */

/* Call under the lock. */
static bool cpu_grow(cpu_stream *stream)
{
    if (stream->capacity > SIZE_MAX / 2 / sizeof(cpu_task))
        return false;
    cpu_task *ring = berth__heap_alloc(2 * stream->capacity * sizeof *ring);
    if (!ring)
        return false;
    for (size_t i = 0; i < stream->count; i++)
        ring[i] = stream->ring[(stream->head + i) & (stream->capacity - 1)];
    if (stream->ring != stream->inline_ring)
        berth__heap_free(stream->ring);
    stream->ring = ring;
    stream->head = 0;
    stream->capacity *= 2;
    return true;
}

static berth_status lost(const berth_stream *stream)
{
    return berth__fail(BERTH_DEVICE_LOST,
                       "stream %llu stayed behind in the parent process when this one was forked: create a "
                       "new one",
                       (unsigned long long)stream->id);
}

/* Adds the task and sees to it that a thread comes. Call under the lock; keeps no words. */
static berth_status cpu_push(cpu_stream *stream, const cpu_task *task, int *error)
{
    uint64_t number = atomic_load_explicit(&stream->enqueued, memory_order_relaxed) + 1;
    if (number > CPU_NUMBER_MAX)
        return BERTH_OVERFLOW;
    if (stream->count == stream->capacity && !cpu_grow(stream))
        return BERTH_OUT_OF_HOST_MEMORY;
    if (stream->state == CPU_IDLE) {
        /* The thread waits for the lock before it looks into the ring. */
        if (!berth__cpu_worker_start(stream, error))
            return BERTH_OUT_OF_HOST_MEMORY;
        stream->state = CPU_ACTIVE;
    }
    stream->ring[(stream->head + stream->count) & (stream->capacity - 1)] = *task;
    stream->count++;
    atomic_store_explicit(&stream->enqueued, number, memory_order_release);
    return BERTH_OK;
}

berth_status berth__cpu_enqueue(cpu_stream *stream, const cpu_task *task)
{
    if (stream->process != berth__cpu_process())
        return lost(&stream->base);
    int error = 0;
    berth__mutex_lock(&stream->lock, BERTH__RANK_STREAM);
    berth_status status = cpu_push(stream, task, &error);
    berth__mutex_unlock(&stream->lock, BERTH__RANK_STREAM);
    if (BERTH_LIKELY(!status))
        return BERTH_OK;
    if (error)
        return berth__fail_driver(status, error, strerror(error),
                                  "the system gives no thread for stream %llu",
                                  (unsigned long long)stream->base.id);
    if (status == BERTH_OVERFLOW)
        return berth__fail(status, "stream %llu has run 2^46 operations: create a new one",
                           (unsigned long long)stream->base.id);
    return berth__fail(status, "no memory for more work on stream %llu", (unsigned long long)stream->base.id);
}

berth_status berth__cpu_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                    void *context)
{
    (void)self;
    cpu_task task = {.kind = CPU_CALL, .u.call = {fn, context}};
    return berth__cpu_enqueue(cpu_of(stream), &task);
}

berth_status berth__cpu_stream_wait_event(void *self, berth_stream *stream, berth_event *event)
{
    (void)self;
    uint64_t mark = atomic_load_explicit(&((cpu_event *)event)->mark, memory_order_acquire);
    berth_status state = berth__cpu_mark_state(mark);
    if (state == BERTH_OK)
        return cpu_of(stream)->process == berth__cpu_process() ? BERTH_OK : lost(stream);
    if (state == BERTH_DEVICE_LOST)
        return berth__fail(state, "the event waits for a stream that stayed behind in the parent process");
    cpu_task task = {.kind = CPU_WAIT, .u.mark = mark};
    return berth__cpu_enqueue(cpu_of(stream), &task);
}

/* ---- Asking and waiting -------------------------------------------------------------------------- */

static uint64_t end_of(cpu_stream *stream)
{
    return cpu_mark(stream->timeline, atomic_load_explicit(&stream->enqueued, memory_order_acquire));
}

berth_status berth__cpu_stream_query(void *self, berth_stream *stream)
{
    (void)self;
    if (cpu_of(stream)->process != berth__cpu_process())
        return lost(stream);
    return berth__cpu_mark_passed(end_of(cpu_of(stream))) ? BERTH_OK : BERTH_NOT_READY;
}

berth_status berth__cpu_stream_synchronize(void *self, berth_stream *stream)
{
    (void)self;
    if (cpu_of(stream)->process != berth__cpu_process())
        return lost(stream);
    uint64_t mark = end_of(cpu_of(stream));
    if (!berth__cpu_mark_passed(mark))
        berth__cpu_mark_wait(mark);
    return BERTH_OK;
}

berth_status berth__cpu_event_create(void *self, berth_device device, berth_event **out)
{
    (void)self, (void)device;
    cpu_event *event = berth__heap_alloc(sizeof *event);
    if (!event)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    atomic_init(&event->mark, 0);
    *out = &event->base;
    return BERTH_OK;
}

berth_status berth__cpu_event_record(void *self, berth_event *event, berth_stream *stream)
{
    (void)self;
    if (BERTH_UNLIKELY(cpu_of(stream)->process != berth__cpu_process()))
        return lost(stream);
    atomic_store_explicit(&((cpu_event *)event)->mark, end_of(cpu_of(stream)), memory_order_release);
    return BERTH_OK;
}

static berth_status state_with_words(berth_status state)
{
    return state == BERTH_DEVICE_LOST
               ? berth__fail(state, "the event waits for a stream that stayed behind in the parent process")
               : state;
}

berth_status berth__cpu_event_query(void *self, berth_event *event)
{
    (void)self;
    uint64_t mark = atomic_load_explicit(&((cpu_event *)event)->mark, memory_order_acquire);
    return BERTH_LIKELY(berth__cpu_mark_passed(mark)) ? BERTH_OK
                                                      : state_with_words(berth__cpu_mark_state(mark));
}

berth_status berth__cpu_event_wait(void *self, berth_event *event)
{
    (void)self;
    uint64_t mark = atomic_load_explicit(&((cpu_event *)event)->mark, memory_order_acquire);
    berth_status state = berth__cpu_mark_state(mark);
    if (state != BERTH_NOT_READY)
        return state_with_words(state);
    const berth_stream *owner =
        atomic_load_explicit(&berth__cpu_timeline_of(mark)->owner, memory_order_relaxed);
    if (berth__running_stream && owner == berth__running_stream)
        return berth__fail(BERTH_BUSY, "a function running on a stream cannot wait for that stream");
    berth__cpu_mark_wait(mark);
    return BERTH_OK;
}

void berth__cpu_event_destroy(void *self, berth_event *event)
{
    (void)self;
    berth__heap_free(event);
}

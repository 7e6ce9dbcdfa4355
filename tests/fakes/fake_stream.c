/* The stand-in's streams, which have a thread each, and events. Work runs in the order of its stream and of nothing else;
 * host functions run where no call of the driver is allowed; a stream that is captured runs nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_memory.h"

typedef struct event {
    uint32_t magic;
    int references; /* the user's, and operations that are under way */
    int context;
    uint64_t recorded, done; /* generations */
    bool captured;           /* recorded last on a stream that was being captured */
} event;

typedef enum op_kind { OP_COPY, OP_FILL, OP_CALL, OP_WAIT, OP_RECORD, OP_FREE } op_kind;

typedef struct op {
    op_kind kind;
    void *dst;
    const void *src;
    size_t size_bytes;
    int value;
    bool peer; /* a copy between devices: each end is touched by its own */
    void (*fn)(void *context);
    void *context;
    event *on;
    uint64_t generation;
    struct op *next;
} op;

typedef struct stream {
    uint32_t magic;
    int context;
    op *first, *last;
    uint64_t enqueued, completed;
    bool destroyed;
    int capture; /* -1: none, else the mode */
    struct stream *next;
} stream;

enum { STREAM_MAGIC = 0x57f3a11e, EVENT_MAGIC = 0x0e7e0e7e, DEAD = 0x0dead000 };

/* guard for everything here: the lock of fake_world.c */
static long delay_ns;
static bool held[FAKE_DEVICES];
static stream *defaults[FAKE_CONTEXTS];
static stream *all; /* every stream that has a thread */

extern _Thread_local bool fake_in_callback;
void fake_count_capture(int mode, int change);

static int device_of(const stream *s)
{
    return fake_device_of_context(s->context);
}

/* ---- Streams --------------------------------------------------------------------------------------- */

static void rest(long nanoseconds)
{
    const struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (nanoseconds > 0)
        nanosleep(&time, NULL);
}

static void drop_event(event *e) /* call under the lock */
{
    if (--e->references > 0)
        return;
    e->magic = DEAD;
    free(e);
}

/* Runs what does not need the lock. */
static void run_outside(const op *o)
{
    if (o->kind == OP_CALL) {
        fake_in_callback = true;
        o->fn(o->context);
        fake_in_callback = false;
    }
    for (size_t done = 0; (o->kind == OP_COPY || o->kind == OP_FILL) && done < o->size_bytes;) {
        size_t run = 0, run_from = SIZE_MAX, part = o->size_bytes - done;
        fake_lock();
        char *to = fake_reach((char *)o->dst + done, &run);
        const char *from = o->src ? fake_reach((const char *)o->src + done, &run_from) : NULL;
        fake_unlock();
        part = part < run ? part : run;
        part = part < run_from ? part : run_from;
        if (from)
            memmove(to, from, part);
        else
            memset(to, o->value, part);
        done += part;
    }
}

/* Call under the lock: checks memory as it is when the operation runs, not when it was enqueued. */
static void before_run(const stream *s, const op *o)
{
    int device = device_of(s);
    while (held[device] && o->kind != OP_WAIT)
        fake_wait_for_progress();
    fake_break_if_due(device);
    if (fake_broken(device))
        return;
    if (o->kind == OP_COPY || o->kind == OP_FILL) {
        fake_check_range(o->dst, o->size_bytes,
                         o->peer && fake_owner(o->dst) >= 0 ? fake_owner(o->dst) : device);
        if (o->kind == OP_COPY)
            fake_check_range(o->src, o->size_bytes,
                             o->peer && fake_owner(o->src) >= 0 ? fake_owner(o->src) : device);
    }
    while (o->kind == OP_WAIT && o->on->done < o->generation && !fake_broken(device))
        fake_wait_for_progress();
}

static void after_run(const op *o)
{
    if (o->kind == OP_RECORD && o->on->done < o->generation)
        o->on->done = o->generation;
    if (o->kind == OP_FREE)
        (void)fake_free_block(o->dst, false, true);
    if (o->on)
        drop_event(o->on);
}

static void *run_stream(void *context)
{
    stream *s = context;
    fake_lock();
    for (;;) {
        while (!s->first && !s->destroyed)
            fake_wait_for_progress();
        op *o = s->first;
        if (!o)
            break;
        long pause = delay_ns;
        before_run(s, o);
        bool works = !fake_broken(device_of(s)); /* else nothing runs any more, host functions neither */
        fake_unlock();
        rest(pause);
        if (works)
            run_outside(o);
        fake_lock();
        after_run(o);
        s->first = o->next;
        if (!s->first)
            s->last = NULL;
        free(o);
        s->completed++;
        fake_progress();
    }
    for (stream **link = &all; *link; link = &(*link)->next)
        if (*link == s) {
            *link = s->next;
            break;
        }
    free(s);
    fake_unlock();
    return NULL;
}

static stream *start_stream(int context) /* call under the lock */
{
    pthread_t thread;
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->magic = STREAM_MAGIC;
    s->context = context;
    s->capture = -1;
    if (pthread_create(&thread, NULL, run_stream, s) != 0) {
        free(s);
        return NULL;
    }
    pthread_detach(thread);
    s->next = all;
    all = s;
    return s;
}

/* The stream of a handle; NULL and 1 stand for the default one of the current context. Call under the lock. */
static stream *find_stream(void *handle)
{
    stream *s = handle;
    int context = fake_current_context() < 0 ? 0 : fake_current_context();
    if ((uintptr_t)s <= 1) {
        if (!defaults[context])
            defaults[context] = start_stream(context);
        return defaults[context];
    }
    if (s->magic == STREAM_MAGIC && !s->destroyed)
        return s;
    (void)fake_misuse(FAKE_INVALID_HANDLE, "a stream is used that has been destroyed");
    return NULL;
}

int fake_stream_create(int context, void **out)
{
    fake_lock();
    stream *s = start_stream(context);
    fake_count_live(s != NULL);
    fake_unlock();
    *out = s;
    return s ? FAKE_OK : FAKE_OUT_OF_MEMORY;
}

int fake_stream_destroy(void *handle)
{
    fake_lock();
    stream *s = handle ? find_stream(handle) : NULL;
    if (s) {
        s->destroyed = true;
        fake_count_live(-1);
        fake_progress();
    }
    fake_unlock();
    return s ? FAKE_OK : FAKE_INVALID_HANDLE;
}

static int enqueue(void *handle, const op *o)
{
    op *copy = malloc(sizeof *copy);
    fake_lock();
    stream *s = find_stream(handle);
    if (!s || !copy) {
        fake_unlock();
        free(copy);
        return s ? FAKE_OUT_OF_MEMORY : FAKE_INVALID_HANDLE;
    }
    if (s->capture >= 0) { /* it becomes a node of a graph: nothing runs now */
        if (o->on)
            o->on->captured = o->kind == OP_RECORD;
        fake_unlock();
        free(copy);
        return FAKE_OK;
    }
    *copy = *o;
    copy->next = NULL;
    *(s->last ? &s->last->next : &s->first) = copy;
    s->last = copy;
    s->enqueued++;
    if (copy->on) {
        copy->on->references++;
        if (copy->kind == OP_RECORD) {
            copy->on->captured = false;
            copy->on->recorded++;
        }
        copy->generation = copy->on->recorded;
    }
    fake_progress();
    fake_unlock();
    return FAKE_OK;
}

/* Asking or waiting for a stream that is captured ends its capture: nothing of it has run. */
static int spoil_capture(stream *s)
{
    fake_count_capture(s->capture, -1);
    s->capture = -1;
    return fake_misuse(FAKE_CAPTURE_UNSUPPORTED, "a stream that is captured is asked or waited for");
}

int fake_stream_query(void *handle)
{
    fake_lock();
    stream *s = find_stream(handle);
    int code = !s                            ? FAKE_INVALID_HANDLE
               : s->capture >= 0             ? spoil_capture(s)
               : fake_broken(device_of(s))   ? fake_broken(device_of(s))
               : s->completed == s->enqueued ? FAKE_OK
                                             : FAKE_NOT_READY;
    fake_unlock();
    return code;
}

int fake_stream_synchronize(void *handle)
{
    fake_lock();
    stream *s = find_stream(handle);
    int code = !s ? FAKE_INVALID_HANDLE : s->capture >= 0 ? spoil_capture(s) : FAKE_OK;
    uint64_t target = s ? s->enqueued : 0;
    while (code == FAKE_OK && s->completed < target)
        fake_wait_for_progress();
    if (code == FAKE_OK)
        code = fake_broken(device_of(s));
    fake_unlock();
    return code;
}

int fake_stream_context(void *handle, int *context)
{
    fake_lock();
    const stream *s = find_stream(handle);
    if (s)
        *context = s->context;
    fake_unlock();
    return s ? FAKE_OK : FAKE_INVALID_HANDLE;
}

/* As cuMemFree does: everything that the device has been given runs first. Call under the lock. */
void fake_wait_for_device(int device)
{
    for (bool busy = true; busy;) {
        busy = false;
        for (const stream *s = all; s && !busy; s = s->next)
            busy = device_of(s) == device && s->completed < s->enqueued;
        if (busy)
            fake_wait_for_progress();
    }
}

void fake_streams_after_fork(void)
{
    memset(defaults, 0, sizeof defaults);
    all = NULL;
}

/* ---- Captures ---------------------------------------------------------------------------------------- */

int fake_capture_begin(void *handle, int mode)
{
    fake_lock();
    stream *s =
        (uintptr_t)handle <= 1 ? NULL : find_stream(handle); /* the default stream cannot be captured */
    if (s && s->capture < 0 && mode >= 0 && mode <= 2) {
        s->capture = mode;
        fake_count_capture(mode, 1);
    } else {
        s = NULL;
    }
    fake_unlock();
    return s ? FAKE_OK : FAKE_CAPTURE_UNSUPPORTED;
}

int fake_capture_end(void *handle)
{
    fake_lock();
    stream *s = find_stream(handle);
    int code = s && s->capture >= 0 ? FAKE_OK : FAKE_CAPTURE_INVALIDATED;
    if (code == FAKE_OK) {
        fake_count_capture(s->capture, -1);
        s->capture = -1;
    }
    fake_unlock();
    return code;
}

int fake_capture_status(void *handle, unsigned *status)
{
    fake_lock();
    const stream *s = find_stream(handle);
    if (s)
        *status = s->capture >= 0;
    fake_unlock();
    return s ? FAKE_OK : FAKE_INVALID_HANDLE;
}

int fake_stream_call(void *handle, void (*fn)(void *context), void *context)
{
    op o = {.kind = OP_CALL, .fn = fn, .context = context};
    return enqueue(handle, &o);
}

int fake_copy(void *dst, const void *src, size_t size_bytes, void *handle, bool peer)
{
    op o = {.kind = OP_COPY, .dst = dst, .src = src, .size_bytes = size_bytes, .peer = peer};
    uintptr_t a = (uintptr_t)dst, b = (uintptr_t)src;
    const char *wrong = NULL;
    fake_lock();
    int to = fake_owner(dst), from = fake_owner(src);
    if ((a < b ? b - a : a - b) < size_bytes)
        wrong = "a copy overlaps itself";
    else if (!peer && to >= 0 && from >= 0 && to != from)
        wrong = "a copy between two devices is not made by the peer call";
    if (wrong)
        (void)fake_misuse(FAKE_INVALID_VALUE, wrong);
    fake_unlock();
    return wrong ? FAKE_INVALID_VALUE : enqueue(handle, &o);
}

int fake_fill(void *dst, int value, size_t size_bytes, void *handle)
{
    op o = {.kind = OP_FILL, .dst = dst, .value = value, .size_bytes = size_bytes};
    return enqueue(handle, &o);
}

int fake_give(void *p, bool host, void *handle, bool async)
{
    if (async) {
        op o = {.kind = OP_FREE, .dst = p};
        return enqueue(handle, &o);
    }
    fake_lock();
    int owner = fake_owner(p);
    if (owner >= 0)
        fake_wait_for_device(owner);
    int code = fake_free_block(p, host, false);
    fake_unlock();
    return code;
}

/* ---- Events ---------------------------------------------------------------------------------------- */

static event *find_event(void *handle) /* call under the lock */
{
    event *e = handle;
    if (e && e->magic == EVENT_MAGIC)
        return e;
    (void)fake_misuse(FAKE_INVALID_HANDLE, "an event is used that is none");
    return NULL;
}

int fake_event_create(int context, void **out)
{
    event *e = calloc(1, sizeof *e);
    *out = e;
    if (!e)
        return FAKE_OUT_OF_MEMORY;
    e->magic = EVENT_MAGIC;
    e->references = 1;
    e->context = context;
    fake_lock();
    fake_count_live(1);
    fake_unlock();
    return FAKE_OK;
}

int fake_event_destroy(void *handle)
{
    fake_lock();
    event *e = find_event(handle);
    if (e) {
        fake_count_live(-1);
        drop_event(e);
    }
    fake_unlock();
    return e ? FAKE_OK : FAKE_INVALID_HANDLE;
}

int fake_event_record(void *handle, void *on)
{
    fake_lock();
    event *e = find_event(handle);
    const stream *s = e ? find_stream(on) : NULL;
    if (s && s->context != e->context) {
        (void)fake_misuse(FAKE_INVALID_HANDLE, "an event is recorded on a stream of another context");
        e = NULL;
    }
    fake_unlock();
    op o = {.kind = OP_RECORD, .on = e};
    return e && s ? enqueue(on, &o) : FAKE_INVALID_HANDLE;
}

int fake_stream_wait(void *handle, void *on)
{
    fake_lock();
    event *e = find_event(on);
    fake_unlock();
    op o = {.kind = OP_WAIT, .on = e};
    return e ? enqueue(handle, &o) : FAKE_INVALID_HANDLE;
}

/* What a query or a wait answers before it looks at the mark. Call under the lock. */
static int event_trouble(const event *e)
{
    if (!e)
        return FAKE_INVALID_HANDLE;
    if (e->captured)
        return fake_misuse(FAKE_CAPTURED_EVENT, "an event is asked that was recorded in a capture");
    return fake_broken(fake_device_of_context(e->context));
}

int fake_event_query(void *handle)
{
    fake_lock();
    const event *e = find_event(handle);
    int code = event_trouble(e);
    if (code == FAKE_OK && e->done != e->recorded)
        code = FAKE_NOT_READY;
    fake_unlock();
    return code;
}

int fake_event_synchronize(void *handle)
{
    fake_lock();
    event *e = find_event(handle);
    int code = event_trouble(e);
    if (code == FAKE_OK) {
        uint64_t target = e->recorded;
        e->references++;
        while (e->done < target)
            fake_wait_for_progress();
        code = fake_broken(fake_device_of_context(e->context));
        drop_event(e);
    }
    fake_unlock();
    return code;
}

/* ---- For tests --------------------------------------------------------------------------------------- */

void fake_gpu_delay(long nanoseconds)
{
    fake_lock();
    delay_ns = nanoseconds;
    fake_unlock();
}

void fake_gpu_hold(int device, bool hold)
{
    fake_lock();
    held[device] = hold;
    fake_progress();
    fake_unlock();
}

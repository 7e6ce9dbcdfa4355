/* The stand-in's devices: memory that knows who owns it, streams with a thread each, events, failures on
 * demand. */
#include "fake_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_memory.h"

/* ---- The world: one lock, one condition ------------------------------------------------------------ */

enum { RULES = 16, COUNTERS = 64 };

typedef struct rule {
    char function[64];
    int countdown, code;
    bool persist;
} rule;

typedef struct counter {
    const char *address; /* of the name in the driver's own code: compared first */
    char function[64];
    long calls;
} counter;

typedef struct event {
    uint32_t magic;
    int references; /* the user's, and operations that are under way */
    int device;
    uint64_t recorded, done; /* generations */
} event;

typedef enum op_kind { OP_COPY, OP_FILL, OP_CALL, OP_WAIT, OP_RECORD, OP_FREE } op_kind;

typedef struct op {
    op_kind kind;
    void *dst;
    const void *src;
    size_t size_bytes;
    int value;
    void (*fn)(void *context);
    void *context;
    event *on;
    uint64_t generation;
    struct op *next;
} op;

typedef struct stream {
    uint32_t magic;
    int device;
    op *first, *last;
    uint64_t enqueued, completed;
    bool destroyed;
    pthread_cond_t work; /* something was enqueued, or it was destroyed */
} stream;

enum { STREAM_MAGIC = 0x57f3a11e, EVENT_MAGIC = 0x0e7e0e7e, DEAD = 0x0dead000 };

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static rule rules[RULES]; /* guard: world, like all that follows */
static counter counters[COUNTERS];
static bool initialized;
static long delay_ns;
static int misuses, live;
static char misuse_words[200];
static stream *defaults[FAKE_DEVICES];

static _Thread_local int current_stack[16], current_depth;
static _Thread_local bool in_callback;

void fake_lock(void)
{
    pthread_mutex_lock(&world);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&world);
}

int fake_misuse(int code, const char *words)
{
    misuses++;
    snprintf(misuse_words, sizeof misuse_words, "%s", words);
    fprintf(stderr, "fake driver: misuse: %s\n", words);
    return code;
}

void fake_count_live(int change)
{
    live += change;
}

/* ---- Entry ----------------------------------------------------------------------------------------- */

static counter *counter_of(const char *function)
{
    for (int i = 0; i < COUNTERS && counters[i].address; i++)
        if (counters[i].address == function)
            return &counters[i];
    for (int i = 0; i < COUNTERS; i++) {
        if (!counters[i].function[0]) {
            counters[i].address = function;
            snprintf(counters[i].function, sizeof counters[i].function, "%s", function);
        }
        if (strcmp(counters[i].function, function) == 0)
            return &counters[i];
    }
    return &counters[COUNTERS - 1];
}

static int strike(const char *function)
{
    for (int i = 0; i < RULES; i++) {
        rule *r = &rules[i];
        if (r->countdown == 0 || (strcmp(r->function, function) != 0 && strcmp(r->function, "*") != 0))
            continue;
        if (r->countdown > 1) {
            r->countdown--;
            continue;
        }
        if (!r->persist)
            r->countdown = 0;
        return r->code;
    }
    return FAKE_OK;
}

int fake_enter(const char *function, bool needs_init, bool needs_current)
{
    char words[200];
    fake_lock();
    counter_of(function)->calls++;
    int code = strike(function);
    if (code == FAKE_OK && in_callback) {
        snprintf(words, sizeof words, "%s is called from a function that a stream runs", function);
        code = fake_misuse(FAKE_NOT_PERMITTED, words);
    } else if (code == FAKE_OK && needs_init && !initialized) {
        snprintf(words, sizeof words, "%s is called before the driver is initialized", function);
        code = fake_misuse(FAKE_NOT_INITIALIZED, words);
    } else if (code == FAKE_OK && needs_current && current_depth == 0) {
        snprintf(words, sizeof words, "%s is called while no device is current", function);
        code = fake_misuse(FAKE_INVALID_CONTEXT, words);
    }
    fake_unlock();
    return code;
}

void fake_init(void)
{
    fake_lock();
    initialized = true;
    fake_unlock();
}

int fake_current(void)
{
    return current_depth > 0 ? current_stack[current_depth - 1] : -1;
}

void fake_push(int device)
{
    if (current_depth < 16)
        current_stack[current_depth++] = device;
}

int fake_pop(void)
{
    return current_depth > 0 ? current_stack[--current_depth] : -1;
}

void fake_set_current(int device)
{
    current_depth = 1;
    current_stack[0] = device;
}

/* ---- Streams --------------------------------------------------------------------------------------- */

static void rest(long nanoseconds)
{
    const struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (nanoseconds > 0)
        nanosleep(&time, NULL);
}

static void drop_event(event *e) /* call under world */
{
    if (--e->references > 0)
        return;
    e->magic = DEAD;
    free(e);
}

/* Runs what does not need the world. */
static void run_outside(const op *o)
{
    switch (o->kind) {
    case OP_COPY:
        memmove(o->dst, o->src, o->size_bytes);
        break;
    case OP_FILL:
        memset(o->dst, o->value, o->size_bytes);
        break;
    case OP_CALL:
        in_callback = true;
        o->fn(o->context);
        in_callback = false;
        break;
    default:
        break;
    }
}

/* Call under world: checks memory as it is when the operation runs, not when it was enqueued. */
static void before_run(const op *o)
{
    if (o->kind == OP_COPY || o->kind == OP_FILL) {
        fake_check_range(o->dst, o->size_bytes);
        if (o->kind == OP_COPY)
            fake_check_range(o->src, o->size_bytes);
    }
    while (o->kind == OP_WAIT && o->on->done < o->generation)
        pthread_cond_wait(&progress, &world);
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
            pthread_cond_wait(&s->work, &world);
        op *o = s->first;
        if (!o)
            break;
        long pause = delay_ns;
        before_run(o);
        fake_unlock();
        rest(pause);
        run_outside(o);
        fake_lock();
        after_run(o);
        s->first = o->next;
        if (!s->first)
            s->last = NULL;
        free(o);
        s->completed++;
        pthread_cond_broadcast(&progress);
    }
    pthread_cond_destroy(&s->work);
    free(s);
    fake_unlock();
    return NULL;
}

static stream *start_stream(int device) /* call under world */
{
    pthread_t thread;
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->magic = STREAM_MAGIC;
    s->device = device;
    pthread_cond_init(&s->work, NULL);
    if (pthread_create(&thread, NULL, run_stream, s) != 0) {
        free(s);
        return NULL;
    }
    pthread_detach(thread);
    return s;
}

/* The stream of a handle; NULL stands for the device's default one. Call under world. */
static stream *find_stream(void *handle)
{
    stream *s = handle;
    int device = fake_current() < 0 ? 0 : fake_current();
    if (!s) {
        if (!defaults[device])
            defaults[device] = start_stream(device);
        return defaults[device];
    }
    if (s->magic == STREAM_MAGIC && !s->destroyed)
        return s;
    (void)fake_misuse(FAKE_INVALID_HANDLE, "a stream is used that has been destroyed");
    return NULL;
}

int fake_stream_create(int device, void **out)
{
    fake_lock();
    stream *s = start_stream(device);
    live += s != NULL;
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
        live--;
        pthread_cond_signal(&s->work);
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
    *copy = *o;
    copy->next = NULL;
    *(s->last ? &s->last->next : &s->first) = copy;
    s->last = copy;
    s->enqueued++;
    if (copy->on) {
        copy->on->references++;
        if (copy->kind == OP_RECORD)
            copy->generation = ++copy->on->recorded;
        else
            copy->generation = copy->on->recorded;
    }
    pthread_cond_signal(&s->work);
    fake_unlock();
    return FAKE_OK;
}

int fake_stream_query(void *handle)
{
    fake_lock();
    const stream *s = find_stream(handle);
    int code = !s ? FAKE_INVALID_HANDLE : s->completed == s->enqueued ? FAKE_OK : FAKE_NOT_READY;
    fake_unlock();
    return code;
}

int fake_stream_synchronize(void *handle)
{
    fake_lock();
    const stream *s = find_stream(handle);
    uint64_t target = s ? s->enqueued : 0;
    while (s && s->completed < target)
        pthread_cond_wait(&progress, &world);
    fake_unlock();
    return s ? FAKE_OK : FAKE_INVALID_HANDLE;
}

static bool touches(const op *o, const void *p)
{
    return (o->kind == OP_COPY || o->kind == OP_FILL || o->kind == OP_FREE) &&
           (fake_same_block(o->dst, p) || (o->src && fake_same_block(o->src, p)));
}

int fake_stream_wait_for_block(void *handle, const void *p)
{
    fake_lock();
    const stream *s = find_stream(handle);
    for (bool used = true; s && used;) {
        used = false;
        for (const op *o = s->first; o && !used; o = o->next)
            used = touches(o, p);
        if (used)
            pthread_cond_wait(&progress, &world);
    }
    fake_unlock();
    return s ? FAKE_OK : FAKE_INVALID_HANDLE;
}

int fake_stream_call(void *handle, void (*fn)(void *context), void *context)
{
    op o = {.kind = OP_CALL, .fn = fn, .context = context};
    return enqueue(handle, &o);
}

int fake_copy(void *dst, const void *src, size_t size_bytes, void *handle)
{
    op o = {.kind = OP_COPY, .dst = dst, .src = src, .size_bytes = size_bytes};
    uintptr_t a = (uintptr_t)dst, b = (uintptr_t)src;
    if ((a < b ? b - a : a - b) < size_bytes) {
        fake_lock();
        (void)fake_misuse(FAKE_INVALID_VALUE, "a copy overlaps itself");
        fake_unlock();
        return FAKE_INVALID_VALUE;
    }
    return enqueue(handle, &o);
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
    int code = fake_free_block(p, host, false);
    fake_unlock();
    return code;
}

/* ---- Events ---------------------------------------------------------------------------------------- */

static event *find_event(void *handle) /* call under world */
{
    event *e = handle;
    if (e && e->magic == EVENT_MAGIC)
        return e;
    (void)fake_misuse(FAKE_INVALID_HANDLE, "an event is used that is none");
    return NULL;
}

int fake_event_create(int device, void **out)
{
    event *e = calloc(1, sizeof *e);
    *out = e;
    if (!e)
        return FAKE_OUT_OF_MEMORY;
    e->magic = EVENT_MAGIC;
    e->references = 1;
    e->device = device;
    fake_lock();
    live++;
    fake_unlock();
    return FAKE_OK;
}

int fake_event_destroy(void *handle)
{
    fake_lock();
    event *e = find_event(handle);
    if (e) {
        live--;
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
    if (s && s->device != e->device) {
        (void)fake_misuse(FAKE_INVALID_HANDLE, "an event is recorded on a stream of another device");
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

int fake_event_query(void *handle)
{
    fake_lock();
    const event *e = find_event(handle);
    int code = !e ? FAKE_INVALID_HANDLE : e->done == e->recorded ? FAKE_OK : FAKE_NOT_READY;
    fake_unlock();
    return code;
}

int fake_event_synchronize(void *handle)
{
    fake_lock();
    event *e = find_event(handle);
    if (e) {
        uint64_t target = e->recorded;
        e->references++;
        while (e->done < target)
            pthread_cond_wait(&progress, &world);
        drop_event(e);
    }
    fake_unlock();
    return e ? FAKE_OK : FAKE_INVALID_HANDLE;
}

/* ---- For tests --------------------------------------------------------------------------------------- */

void fake_gpu_fail(const char *function, int n, int code, bool persist)
{
    fake_lock();
    rule *free_rule = NULL;
    for (int i = 0; i < RULES; i++) {
        if (strcmp(rules[i].function, function) == 0)
            rules[i].countdown = 0;
        if (!free_rule && rules[i].countdown == 0)
            free_rule = &rules[i];
    }
    if (n > 0 && free_rule) {
        snprintf(free_rule->function, sizeof free_rule->function, "%s", function);
        free_rule->countdown = n;
        free_rule->code = code;
        free_rule->persist = persist;
    }
    fake_unlock();
}

void fake_gpu_delay(long nanoseconds)
{
    fake_lock();
    delay_ns = nanoseconds;
    fake_unlock();
}

int fake_gpu_misuses(char *words, size_t words_bytes)
{
    fake_lock();
    int count = misuses;
    if (words)
        snprintf(words, words_bytes, "%s", misuse_words);
    fake_unlock();
    return count;
}

int fake_gpu_live(void)
{
    fake_lock();
    int count = live;
    fake_unlock();
    return count;
}

long fake_gpu_calls(const char *function)
{
    fake_lock();
    long calls = counter_of(function)->calls;
    fake_unlock();
    return calls;
}

int fake_gpu_current(int *depth)
{
    if (depth)
        *depth = current_depth;
    return fake_current();
}

const char *fake_error_name(int code)
{
    switch (code) {
    case FAKE_OK:
        return "FAKE_SUCCESS";
    case FAKE_OUT_OF_MEMORY:
        return "FAKE_OUT_OF_MEMORY";
    case FAKE_NOT_READY:
        return "FAKE_NOT_READY";
    case FAKE_LOST:
        return "FAKE_LAUNCH_FAILED";
    case FAKE_NOT_PERMITTED:
        return "FAKE_NOT_PERMITTED";
    default:
        return "FAKE_ERROR";
    }
}

/* A device with real streams, written against the public header alone and built as a shared library: the host's memory,
 * and a thread for each stream. examples/device is the smaller one to start from. */
#include <berth/device_ops.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A stream is a queue of jobs, and how far it has come. It stays while its user, its thread or an event needs it. */
typedef struct stream {
    berth_stream_base base; /* first: Berth's own part */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct job *first, **last;
    uint64_t enqueued, done; /* jobs; guard: lock, like all below */
    int references;
    bool ending;
    pid_t process; /* a forked child has no thread that would run it */
} stream;

typedef struct event {
    berth_event_base base;
    stream *stream; /* NULL: not recorded, so complete */
    uint64_t number;
} event;

typedef struct job {
    struct job *next;
    void (*call)(void *context); /* or else: */
    void *dst;
    const void *src; /* NULL: zero */
    size_t size;     /* 0: wait for a stream */
    stream *wait;
    uint64_t number;
} job;

static void drop(stream *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->references == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        free(s);
}

static void keep(stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->references++;
    pthread_mutex_unlock(&s->lock);
}

static berth_status wait_until(stream *s, uint64_t number)
{
    if (s->process != getpid())
        return berth_fail(BERTH_DEVICE_LOST, "the stream stayed in the parent process");
    pthread_mutex_lock(&s->lock);
    while (s->done < number)
        pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return BERTH_OK;
}

static berth_status has_reached(stream *s, uint64_t number)
{
    if (s->process != getpid())
        return berth_fail(BERTH_DEVICE_LOST, "the stream stayed in the parent process");
    pthread_mutex_lock(&s->lock);
    bool reached = s->done >= number;
    pthread_mutex_unlock(&s->lock);
    return reached ? BERTH_OK : BERTH_NOT_READY;
}

static void run(stream *s, job *j)
{
    if (j->call) /* marked as the stream's, so that it cannot wait for itself */
        berth_stream_run(berth_stream_from_base(&s->base), j->call, j->dst);
    else if (j->wait)
        wait_until(j->wait, j->number), drop(j->wait);
    else if (j->src)
        memmove(j->dst, j->src, j->size);
    else
        memset(j->dst, 0, j->size);
    free(j);
}

static void *work(void *context)
{
    stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (s->first || !s->ending) {
        job *j = s->first;
        if (!j) {
            pthread_cond_wait(&s->moved, &s->lock);
            continue;
        }
        if (!(s->first = j->next))
            s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        run(s, j);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    drop(s);
    return NULL;
}

static berth_status enqueue(berth_stream *on, job what)
{
    stream *s = (stream *)on;
    if (s->process != getpid())
        return berth_fail(BERTH_DEVICE_LOST, "the stream stayed in the parent process");
    job *j = malloc(sizeof *j);
    if (!j)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue a job");
    *j = what;
    pthread_mutex_lock(&s->lock);
    s->enqueued++;
    *s->last = j;
    s->last = &j->next;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    return BERTH_OK;
}

/* ---- The table's operations: memory ----------------------------------------------------------------- */

static berth_status count(void *self, int32_t *out)
{
    *out = self ? 1 : 0;
    return BERTH_OK;
}

static berth_status describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device;
    strcpy(info->name, "the host, with a thread a stream");
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED;
    info->host_accessible = true;
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
    (void)self, (void)device, (void)kind;
    if (on)
        return enqueue(on, (job){.dst = dst, .src = src, .size = size_bytes});
    memmove(dst, src, size_bytes);
    return BERTH_OK;
}

static berth_status zero(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *on)
{
    (void)self, (void)device;
    if (on)
        return enqueue(on, (job){.dst = dst, .size = size_bytes});
    memset(dst, 0, size_bytes);
    return BERTH_OK;
}

/* ---- Streams and events ----------------------------------------------------------------------------- */

static berth_status stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self, (void)device;
    stream *s = calloc(1, sizeof *s);
    pthread_t thread;
    if (!s)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    s->last = &s->first;
    s->references = 2; /* the user's and the thread's */
    s->process = getpid();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    if (pthread_create(&thread, NULL, work, s) != 0) {
        free(s);
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "the system gives no thread for a stream");
    }
    pthread_detach(thread);
    *out = berth_stream_from_base(&s->base);
    return BERTH_OK;
}

static void stream_destroy(void *self, berth_stream *on)
{
    (void)self;
    stream *s = (stream *)on;
    if (s->process != getpid())
        return; /* its lock is as the parent left it */
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    drop(s);
}

static uint64_t end_of(stream *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t number = s->enqueued;
    pthread_mutex_unlock(&s->lock);
    return number;
}

static berth_status stream_query(void *self, berth_stream *on)
{
    (void)self;
    return has_reached((stream *)on, end_of((stream *)on));
}

static berth_status stream_synchronize(void *self, berth_stream *on)
{
    (void)self;
    return wait_until((stream *)on, end_of((stream *)on));
}

static berth_status stream_wait_event(void *self, berth_stream *on, berth_event *given)
{
    (void)self;
    event *e = (event *)given;
    if (!e->stream)
        return BERTH_OK;
    keep(e->stream);
    berth_status status = enqueue(on, (job){.wait = e->stream, .number = e->number});
    if (status != BERTH_OK)
        drop(e->stream);
    return status;
}

static berth_status stream_call(void *self, berth_stream *on, void (*fn)(void *context), void *context)
{
    (void)self;
    return enqueue(on, (job){.call = fn, .dst = context});
}

static berth_status event_create(void *self, berth_device device, berth_event **out)
{
    (void)self, (void)device;
    event *e = calloc(1, sizeof *e);
    if (!e)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    *out = berth_event_from_base(&e->base);
    return BERTH_OK;
}

static berth_status event_record(void *self, berth_event *given, berth_stream *on)
{
    (void)self;
    event *e = (event *)given;
    stream *before = e->stream;
    keep((stream *)on);
    e->number = end_of((stream *)on);
    e->stream = (stream *)on;
    if (before)
        drop(before);
    return BERTH_OK;
}

static berth_status event_query(void *self, berth_event *given)
{
    (void)self;
    event *e = (event *)given;
    return e->stream ? has_reached(e->stream, e->number) : BERTH_OK;
}

static berth_status event_wait(void *self, berth_event *given)
{
    (void)self;
    event *e = (event *)given;
    return e->stream ? wait_until(e->stream, e->number) : BERTH_OK;
}

static void event_destroy(void *self, berth_event *given)
{
    (void)self;
    event *e = (event *)given;
    if (e->stream)
        drop(e->stream);
    free(e);
}

BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self);
BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self)
{
    static const berth_device_ops table = {
        .struct_size = sizeof(berth_device_ops),
        .name = "threaded",
        .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED,
        .abilities = BERTH_DEVICE_CALLS_USE_DEVICE,
        .count = count,
        .describe = describe,
        .allocate = allocate,
        .release = release,
        .copy = copy,
        .zero = zero,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_query = stream_query,
        .stream_synchronize = stream_synchronize,
        .stream_wait_event = stream_wait_event,
        .stream_call = stream_call,
        .event_create = event_create,
        .event_record = event_record,
        .event_query = event_query,
        .event_wait = event_wait,
        .event_destroy = event_destroy,
    };
    static int one_device;
    *ops = &table;
    *self = &one_device;
    return BERTH_OK;
}

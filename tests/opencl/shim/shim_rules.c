/* What the shim remembers of blocks, queues and events, and the rules that it judges by. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUCKETS = 4096 };

typedef struct map {
    struct map *next;
    char *p;
    size_t size_bytes;
} map;

/* A command that uses a block. */
typedef struct use {
    struct use *next;
    cl_event event;         /* retained */
    cl_command_queue queue; /* NULL: gone, and flushed by that */
    long number;            /* the command's in its queue */
} use;

typedef struct block {
    struct block *next;
    cl_context context;
    char *shown, *real;
    size_t size_bytes;
    map *maps; /* ranges that the host has; they do not overlap */
    use *uses;
} block;

typedef struct buffer {
    struct buffer *next;
    cl_mem id;
    cl_context context;
    size_t size_bytes;
    const void *mapped; /* NULL: not */
} buffer;

typedef struct queue {
    struct queue *next;
    cl_command_queue id;
    long enqueued, flushed;
} queue;

typedef struct event {
    struct event *next;
    cl_event id;
    cl_command_queue queue; /* NULL: a user event */
    long number;            /* the command's number in its queue */
    long questions_left;    /* until it looks complete */
    cl_int code;            /* what it is said to have failed with */
    cl_context unset_in;    /* a user event's context, until it is set */
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static block *blocks;
static buffer *buffers;
static queue *queues;
static event *events[BUCKETS];

static size_t bucket_of(const void *id)
{
    return ((uintptr_t)id >> 4) % BUCKETS;
}

static queue *queue_of(cl_command_queue id);

/* ---- Blocks -------------------------------------------------------------------------------------- */

/* The map that has some of the range; NULL: none. */
static map *map_of(const block *b, const void *p, size_t size_bytes)
{
    for (map *m = b->maps; m; m = m->next)
        if ((const char *)p < m->p + m->size_bytes && (const char *)p + size_bytes > m->p)
            return m;
    return NULL;
}

static block *block_at(const void *p)
{
    for (block *b = blocks; b; b = b->next)
        if ((const char *)p >= b->shown && (const char *)p < b->shown + b->size_bytes)
            return b;
    return NULL;
}

void shim_block_add(cl_context context, void *shown, void *real, size_t size_bytes)
{
    block *b = calloc(1, sizeof *b);
    if (!b)
        shim_complain("no memory");
    *b = (block){.context = context, .shown = shown, .real = real, .size_bytes = size_bytes};
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
}

void *shim_block_remove(cl_context context, void *shown)
{
    pthread_mutex_lock(&lock);
    block **at = &blocks;
    while (*at && (*at)->shown != shown)
        at = &(*at)->next;
    block *b = *at;
    if (!b)
        shim_complain("%p is freed and is no block", shown);
    if (b->context != context)
        shim_complain("%p is freed in another context than it was allocated in", shown);
    if (b->maps)
        shim_complain("%p is freed while the host has some of it mapped", shown);
    *at = b->next;
    pthread_mutex_unlock(&lock);
    void *real = b->real;
    if (b->shown != b->real)
        munmap(b->shown, b->size_bytes);
    free(b);
    return real;
}

long shim_blocks(void)
{
    long count = 0;
    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b; b = b->next)
        count++;
    for (const buffer *b = buffers; b; b = b->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}

static cl_context context_of(cl_command_queue id)
{
    cl_context context = NULL;
    if (NEXT(clGetCommandQueueInfo)(id, CL_QUEUE_CONTEXT, sizeof context, (void *)&context, NULL) !=
        CL_SUCCESS)
        shim_complain("%p is used and is no queue", (void *)id);
    return context;
}

void *shim_real(cl_command_queue id, const void *p, size_t size_bytes, bool must_be_block)
{
    cl_context context = context_of(id);
    pthread_mutex_lock(&lock);
    const block *b = block_at(p);
    void *real = (void *)(uintptr_t)p;
    if (!b && must_be_block)
        shim_complain("%p is used as shared memory and is not", p);
    if (b) {
        if (b->context != context)
            shim_complain("%p belongs to another context than the queue", p);
        if (size_bytes > b->size_bytes - (size_t)((const char *)p - b->shown))
            shim_complain("%zu bytes from %p run past the end of the block", size_bytes, p);
        if (map_of(b, p, size_bytes))
            shim_complain("%p is used by a command while the host has it mapped", p);
        real = b->real + ((const char *)p - b->shown);
    }
    pthread_mutex_unlock(&lock);
    return real;
}

void shim_check_overlap(const void *dst, const void *src, size_t size_bytes)
{
    const char *to = dst, *from = src;
    if (to < from + size_bytes && from < to + size_bytes)
        shim_complain("a copy of %zu bytes from %p to %p overlaps", size_bytes, src, dst);
}

/* The pages that hold the range, but for those that hold some of another map, too. */
static void protect(const block *b, char *p, size_t size_bytes, int protection)
{
    const uintptr_t page = 4096;
    uintptr_t from = (uintptr_t)p / page * page, to = ((uintptr_t)p + size_bytes + page - 1) / page * page;
    for (uintptr_t at = from; at < to; at += page)
        if (!map_of(b, (void *)at, page) && mprotect((void *)at, page, protection) != 0)
            shim_complain("the system refuses to protect a page");
}

void shim_map_range(void *p, size_t size_bytes, bool invalidate)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    map *made = calloc(1, sizeof *made);
    if (!made)
        shim_complain("no memory");
    if (map_of(b, p, size_bytes))
        shim_complain("%p is mapped twice", p);
    if (b->shown != b->real) {
        protect(b, p, size_bytes, PROT_READ | PROT_WRITE);
        if (invalidate)
            memset(p, 0xee, size_bytes);
        else
            memcpy(p, b->real + ((char *)p - b->shown), size_bytes);
    }
    *made = (map){.next = b->maps, .p = p, .size_bytes = size_bytes};
    b->maps = made;
    pthread_mutex_unlock(&lock);
}

void shim_unmap_range(void *p)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    map **at = b ? &b->maps : NULL;
    while (at && *at && (*at)->p != p)
        at = &(*at)->next;
    if (!at || !*at)
        shim_complain("%p is unmapped and was not mapped", p);
    map *gone = *at;
    *at = gone->next;
    if (b->shown != b->real) {
        memcpy(b->real + (gone->p - b->shown), gone->p, gone->size_bytes);
        protect(b, gone->p, gone->size_bytes, PROT_NONE);
    }
    free(gone);
    pthread_mutex_unlock(&lock);
}

/* ---- Uses of blocks ------------------------------------------------------------------------------ */

static bool is_over(cl_event id)
{
    cl_int state = CL_QUEUED;
    (void)NEXT(clGetEventInfo)(id, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return state <= CL_COMPLETE;
}

/* With the lock held. */
static void use_drop(use **at)
{
    use *gone = *at;
    *at = gone->next;
    (void)NEXT(clReleaseEvent)(gone->event);
    free(gone);
}

void shim_block_used(cl_command_queue id, const void *p, cl_event until)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    use *made = b ? calloc(1, sizeof *made) : NULL;
    for (use **at = b ? &b->uses : NULL; at && *at;)
        if (is_over((*at)->event))
            use_drop(at);
        else
            at = &(*at)->next;
    if (made) {
        (void)NEXT(clRetainEvent)(until);
        *made = (use){b->uses, until, id, queue_of(id)->enqueued};
        b->uses = made;
    }
    pthread_mutex_unlock(&lock);
}

void shim_block_wait(const void *p)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    use *uses = b ? b->uses : NULL;
    if (b)
        b->uses = NULL;
    for (const use *u = uses; u; u = u->next)
        if (u->queue && u->number > queue_of(u->queue)->flushed && !is_over(u->event))
            shim_complain("the free of %p waits for a command that was not flushed: it may never come", p);
    pthread_mutex_unlock(&lock);
    while (uses) {
        (void)NEXT(clWaitForEvents)(1, &uses->event);
        use_drop(&uses);
    }
}

/* ---- Buffers ------------------------------------------------------------------------------------- */

/* With the lock held. */
static buffer *buffer_of(cl_mem id)
{
    for (buffer *b = buffers; b; b = b->next)
        if (b->id == id)
            return b;
    shim_complain("%p is used as a buffer and is none", (void *)id);
}

void shim_buffer_add(cl_context context, cl_mem id, size_t size_bytes)
{
    buffer *b = calloc(1, sizeof *b);
    if (!b)
        shim_complain("no memory");
    *b = (buffer){.context = context, .id = id, .size_bytes = size_bytes};
    pthread_mutex_lock(&lock);
    b->next = buffers;
    buffers = b;
    pthread_mutex_unlock(&lock);
}

void shim_buffer_remove(cl_mem id)
{
    pthread_mutex_lock(&lock);
    buffer *gone = buffer_of(id), **at = &buffers;
    if (gone->mapped) /* not asked of the driver: PoCL counts down a moment after the unmap is through */
        shim_complain("a buffer is released while it is mapped");
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    pthread_mutex_unlock(&lock);
    free(gone);
}

size_t shim_buffer_bytes(cl_mem id)
{
    pthread_mutex_lock(&lock);
    size_t size_bytes = buffer_of(id)->size_bytes;
    pthread_mutex_unlock(&lock);
    return size_bytes;
}

void shim_buffer_check(cl_command_queue id, cl_mem used, size_t from, size_t size_bytes)
{
    cl_context context = context_of(id);
    pthread_mutex_lock(&lock);
    const buffer *b = buffer_of(used);
    if (b->context != context)
        shim_complain("a buffer belongs to another context than the queue");
    if (from > b->size_bytes || size_bytes > b->size_bytes - from)
        shim_complain("%zu bytes at %zu run past the end of a buffer of %zu", size_bytes, from,
                      b->size_bytes);
    if (b->mapped)
        shim_complain("a buffer is used by a command while the host has it mapped");
    pthread_mutex_unlock(&lock);
}

void shim_buffer_map(cl_mem id, const void *p)
{
    pthread_mutex_lock(&lock);
    buffer_of(id)->mapped = p;
    pthread_mutex_unlock(&lock);
}

void shim_buffer_unmap(cl_mem id, const void *p)
{
    pthread_mutex_lock(&lock);
    buffer *b = buffer_of(id);
    if (b->mapped != p)
        shim_complain("a buffer is unmapped at %p and was not mapped there", p);
    b->mapped = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- Queues and events --------------------------------------------------------------------------- */

/* With the lock held, as below. */
static queue *queue_of(cl_command_queue id)
{
    for (queue *q = queues; q; q = q->next)
        if (q->id == id)
            return q;
    queue *made = calloc(1, sizeof *made);
    if (!made)
        shim_complain("no memory");
    made->id = id;
    made->next = queues;
    queues = made;
    return made;
}

static event *event_of(cl_event id)
{
    for (event *e = events[bucket_of(id)]; e; e = e->next)
        if (e->id == id)
            return e;
    return NULL;
}

static event *event_made(cl_event id)
{
    event *e = event_of(id);
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e)
            shim_complain("no memory");
        e->next = events[bucket_of(id)];
        events[bucket_of(id)] = e;
    }
    *e = (event){.next = e->next, .id = id};
    return e;
}

void shim_command(cl_command_queue id, cl_event made, cl_int code, bool blocking)
{
    pthread_mutex_lock(&lock);
    queue *q = queue_of(id);
    q->enqueued++;
    if (blocking)
        q->flushed = q->enqueued;
    if (made) {
        shim_hold("event", made);
        event *e = event_made(made);
        e->queue = id;
        e->number = q->enqueued;
        e->code = code;
        e->questions_left = shim_settings_now().late;
    }
    pthread_mutex_unlock(&lock);
}

long shim_flushed(cl_command_queue id)
{
    pthread_mutex_lock(&lock);
    queue *q = queue_of(id);
    long flushed = q->flushed = q->enqueued;
    pthread_mutex_unlock(&lock);
    return flushed;
}

long shim_unflushed(cl_command_queue id)
{
    pthread_mutex_lock(&lock);
    const queue *q = queue_of(id);
    long count = q->enqueued - q->flushed;
    pthread_mutex_unlock(&lock);
    return count;
}

/* A queue is flushed when it goes. */
void shim_forget_queue(cl_command_queue id)
{
    pthread_mutex_lock(&lock);
    for (queue **at = &queues; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            queue *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    for (size_t i = 0; i < BUCKETS; i++)
        for (event *e = events[i]; e; e = e->next)
            if (e->queue == id)
                e->queue = NULL;
    for (block *b = blocks; b; b = b->next)
        for (use *u = b->uses; u; u = u->next)
            if (u->queue == id)
                u->queue = NULL;
    pthread_mutex_unlock(&lock);
}

static bool is_flushed(const event *e)
{
    return !e || !e->queue || e->number <= queue_of(e->queue)->flushed;
}

void shim_check_waits(cl_command_queue id, cl_uint count, const cl_event *list)
{
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < count; i++) {
        const event *e = event_of(list[i]);
        if (e && e->queue != id && !is_flushed(e))
            shim_complain("a queue waits for a command of another one, which was not flushed");
    }
    pthread_mutex_unlock(&lock);
}

void shim_check_asked(cl_event id)
{
    pthread_mutex_lock(&lock);
    if (!is_flushed(event_of(id)))
        shim_complain("an event is asked for whose queue was not flushed: it may never come");
    pthread_mutex_unlock(&lock);
}

void shim_wait_flushes(cl_uint count, const cl_event *list)
{
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < count; i++) {
        event *e = event_of(list[i]);
        if (e && e->queue)
            queue_of(e->queue)->flushed = queue_of(e->queue)->enqueued;
    }
    pthread_mutex_unlock(&lock);
}

cl_int shim_status(cl_event id, cl_int status)
{
    pthread_mutex_lock(&lock);
    event *e = event_of(id);
    if (e && e->questions_left > 0 && status <= CL_COMPLETE) {
        e->questions_left--;
        status = CL_SUBMITTED;
    } else if (e && e->code != CL_SUCCESS && status == CL_COMPLETE) {
        status = e->code;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* With the lock held: who has waited for a queue must find its commands up to this number complete. */
static void no_longer_late(cl_command_queue id, long number)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (event *e = events[i]; e; e = e->next)
            if (e->queue == id && e->number <= number)
                e->questions_left = 0;
}

void shim_finished(cl_command_queue id, long up_to)
{
    pthread_mutex_lock(&lock);
    no_longer_late(id, up_to);
    pthread_mutex_unlock(&lock);
}

cl_int shim_waited(cl_event id)
{
    pthread_mutex_lock(&lock);
    event *e = event_of(id);
    cl_int code = e ? e->code : CL_SUCCESS;
    if (e && e->queue)
        no_longer_late(e->queue, e->number);
    if (e)
        e->questions_left = 0;
    pthread_mutex_unlock(&lock);
    return code;
}

void shim_forget_event(cl_event id)
{
    pthread_mutex_lock(&lock);
    for (event **at = &events[bucket_of(id)]; *at; at = &(*at)->next)
        if ((*at)->id == id && !(*at)->unset_in) {
            event *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
}

void shim_user_event(cl_context context, cl_event id, bool set)
{
    pthread_mutex_lock(&lock);
    if (!set)
        event_made(id)->unset_in = context;
    else if (event_of(id))
        event_of(id)->unset_in = NULL;
    pthread_mutex_unlock(&lock);
}

/* "must ensure that the status of these user events being waited on are set [...] before any OpenCL APIs that
 * release OpenCL objects except for event objects are called; otherwise the behavior is undefined". */
void shim_check_release(cl_context context, const char *what)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (const event *e = events[i]; e; e = e->next)
            if (e->unset_in == context)
                shim_complain("a %s is released while a user event is not set", what);
    pthread_mutex_unlock(&lock);
}

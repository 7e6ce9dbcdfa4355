/* What the shim remembers of blocks, queues and events, and the rules that it judges by. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUCKETS = 4096 };

typedef struct block {
    struct block *next;
    cl_context context;
    char *shown, *real;
    size_t size_bytes;
    char *mapped; /* NULL, or where the mapped range begins */
    size_t mapped_bytes;
} block;

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
static queue *queues;
static event *events[BUCKETS];

static size_t bucket_of(cl_event id)
{
    return ((uintptr_t)id >> 4) % BUCKETS;
}

/* ---- Blocks -------------------------------------------------------------------------------------- */

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
    pthread_mutex_unlock(&lock);
    return count;
}

static cl_context context_of(cl_command_queue id)
{
    cl_context context = NULL;
    cl_int (*ask)(cl_command_queue, cl_command_queue_info, size_t, void *, size_t *) = (cl_int(*)(
        cl_command_queue, cl_command_queue_info, size_t, void *, size_t *))shim_next("clGetCommandQueueInfo");
    if (ask(id, CL_QUEUE_CONTEXT, sizeof context, (void *)&context, NULL) != CL_SUCCESS)
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
        if (b->mapped && (const char *)p < b->mapped + b->mapped_bytes &&
            (const char *)p + size_bytes > b->mapped)
            shim_complain("%p is used by a command while the host has it mapped", p);
        real = b->real + ((const char *)p - b->shown);
    }
    pthread_mutex_unlock(&lock);
    return real;
}

/* The pages that hold the range. */
static void protect(char *p, size_t size_bytes, int protection)
{
    const uintptr_t page = 4096;
    uintptr_t from = (uintptr_t)p / page * page, to = ((uintptr_t)p + size_bytes + page - 1) / page * page;
    if (mprotect((void *)from, to - from, protection) != 0)
        shim_complain("the system refuses to protect %zu bytes", size_bytes);
}

void shim_map_range(void *p, size_t size_bytes, bool invalidate)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    if (b->mapped)
        shim_complain("%p is mapped twice", p);
    b->mapped = p;
    b->mapped_bytes = size_bytes;
    if (b->shown != b->real) {
        protect(p, size_bytes, PROT_READ | PROT_WRITE);
        if (invalidate)
            memset(p, 0xee, size_bytes);
        else
            memcpy(p, b->real + ((char *)p - b->shown), size_bytes);
    }
    pthread_mutex_unlock(&lock);
}

void shim_unmap_range(void *p)
{
    pthread_mutex_lock(&lock);
    block *b = block_at(p);
    if (!b || b->mapped != p)
        shim_complain("%p is unmapped and was not mapped", p);
    if (b->shown != b->real) {
        memcpy(b->real + (b->mapped - b->shown), b->mapped, b->mapped_bytes);
        protect(b->mapped, b->mapped_bytes, PROT_NONE);
    }
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

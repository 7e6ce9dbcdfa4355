/* What waits for streams to pass: an event each, in one list. A thread of ours waits for the oldest and then calls all that
 * are due; callers that come by do the same without waiting, so that a stream that stands still holds up nobody else's. */
#include "core/after.h"

#include <pthread.h>

typedef struct after {
    berth_event *event;
    void (*fn)(void *context);
    void *context;
    bool waited_for; /* our thread is in the driver with its event: nobody else may take it out */
    struct after *next;
} after;

static pthread_mutex_t after_lock = PTHREAD_MUTEX_INITIALIZER;
static after *after_first, **after_end = &after_first; /* guard: after_lock; oldest first */
static bool after_thread_runs;                         /* guard: after_lock */
static _Atomic size_t after_count;
static pthread_once_t after_once = PTHREAD_ONCE_INIT;
static berth_stream *after_stream; /* a CPU stream that lives as long as the process; may be NULL */

static void after_run(void *unused);

static void after_create_stream(void)
{
    if (berth_stream_create(berth_device_cpu(), &after_stream) != BERTH_OK)
        after_stream = NULL;
}

/* Neither passed nor given up: a device in trouble for the moment may still run what it has. */
static bool after_is_due(const after *entry)
{
    berth_status status = berth_event_query(entry->event);
    return !status || status == BERTH_DEVICE_LOST;
}

/* Call under the lock. */
static void after_take_out(after **link)
{
    after *entry = *link;
    *link = entry->next;
    if (!entry->next)
        after_end = link;
    atomic_fetch_sub_explicit(&after_count, 1, memory_order_relaxed);
}

static void after_call(after *entry)
{
    berth_event_destroy(entry->event);
    entry->fn(entry->context);
    berth__heap_free(entry);
}

/* Puts an entry at the end, and lets our thread wait if it does not: it may have found the list empty while a caller that came
 * by held the last entry. */
static void after_put(after *entry)
{
    pthread_once(&after_once, after_create_stream);
    pthread_mutex_lock(&after_lock);
    entry->next = NULL;
    *after_end = entry;
    after_end = &entry->next;
    atomic_fetch_add_explicit(&after_count, 1, memory_order_relaxed);
    bool start = !after_thread_runs && after_stream;
    after_thread_runs = after_thread_runs || start;
    pthread_mutex_unlock(&after_lock);
    if (start && berth_stream_call(after_stream, after_run, NULL) != BERTH_OK) {
        pthread_mutex_lock(&after_lock);
        after_thread_runs = false;
        pthread_mutex_unlock(&after_lock);
    }
}

/* The driver is asked with the entry taken out, not under the lock; entries that are not due go back to the end. */
void berth__after_sweep(void)
{
    size_t turns = atomic_load_explicit(&after_count, memory_order_relaxed);
    while (BERTH_UNLIKELY(turns-- > 0)) {
        pthread_mutex_lock(&after_lock);
        after **link = &after_first;
        while (*link && (*link)->waited_for)
            link = &(*link)->next;
        after *entry = *link;
        if (entry)
            after_take_out(link);
        pthread_mutex_unlock(&after_lock);
        if (!entry)
            return;
        if (after_is_due(entry))
            after_call(entry);
        else
            after_put(entry);
    }
}

/* A driver may refuse to wait because it is short of something, which passes; false: it does not. */
static bool after_wait(const after *entry)
{
    enum { ATTEMPTS = 10 };
    berth_status status = BERTH_INTERNAL;
    for (int i = 0; i < ATTEMPTS && status && status != BERTH_DEVICE_LOST; i++)
        status = berth_event_wait(entry->event);
    return !status || status == BERTH_DEVICE_LOST;
}

/* On our thread: waits for the oldest, calls what is due, until nothing is left. */
static void after_run(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&after_lock);
        after *oldest = after_first;
        after_thread_runs = oldest != NULL;
        if (oldest)
            oldest->waited_for = true;
        pthread_mutex_unlock(&after_lock);
        if (!oldest)
            return;
        bool passed = after_wait(oldest);
        pthread_mutex_lock(&after_lock);
        oldest->waited_for = false;
        if (passed) {
            after **link = &after_first;
            while (*link != oldest)
                link = &(*link)->next;
            after_take_out(link);
        } else {
            after_thread_runs = false; /* the wait does not work: callers that come by ask */
        }
        pthread_mutex_unlock(&after_lock);
        if (!passed)
            return;
        after_call(oldest);
        berth__after_sweep();
    }
}

static berth_status after_mark(berth_stream *stream, berth_event **out)
{
    berth_status status = berth_event_create(stream->device, out);
    if (status)
        return status;
    status = berth_event_record(*out, stream);
    if (status)
        berth_event_destroy(*out);
    return status;
}

berth_status berth__after_stream(berth_stream *stream, void (*fn)(void *context), void *context)
{
    after *entry = berth__heap_zalloc(1, sizeof *entry);
    if (!entry)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to wait for a stream");
    *entry = (after){.fn = fn, .context = context};
    berth_status status = after_mark(stream, &entry->event);
    if (status) {
        berth__heap_free(entry);
        return status;
    }
    after_put(entry);
    return BERTH_OK;
}

/* What waits for streams to pass: an event each, in one list. A thread of ours waits for the oldest and then calls all that
 * are due; callers that come by do the same without waiting, so that a stream that stands still holds up nobody else's. */
#include "core/after.h"

#include "base/lock.h"

#define RANK BERTH__RANK_DEVICE

typedef struct after {
    berth_event *event;
    void (*fn)(void *context);
    void *context;
    bool asked; /* guard: after_lock; a thread is in the driver with its event: nobody else may take it out */
    struct after *next;
} after;

static berth__spin after_lock; /* a spin lock, which a fork finds free: children come by as well */
static after *after_first, **after_end = &after_first; /* guard: after_lock; oldest first */
static bool after_thread_runs;                         /* guard: after_lock */
static berth_stream *after_stream; /* guard: after_lock; a CPU stream that stays as long as the process */
static _Atomic size_t after_count;

static void after_run(void *unused);

/* ---- Forks ----------------------------------------------------------------------------------------- */

/* Neither our thread nor a caller that was in the driver is here, and the stream stayed in the parent. Entries stay: what
 * they wait for is passed or lost, and the next who comes by calls them. */
static void after_fork_in_child(void)
{
    for (after *entry = after_first; entry; entry = entry->next)
        entry->asked = false;
    after_thread_runs = false;
    after_stream = NULL;
}

static void after_watch_forks(void)
{
    static berth__fork_watch watch = {.rank = RANK, .child = after_fork_in_child};
    berth__fork_watch_add(&watch);
}

/* ---- The list -------------------------------------------------------------------------------------- */

/* Neither passed nor given up: a device in trouble for the moment may still run what it has. */
static bool after_is_due(const after *entry)
{
    berth_status status = berth_event_query(entry->event);
    return !status || status == BERTH_DEVICE_LOST;
}

/* Call under the lock. The way is short: what is taken out was the first that nobody asked about. */
static void after_take_out(after *entry)
{
    after **link = &after_first;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    if (!entry->next)
        after_end = link;
    atomic_fetch_sub_explicit(&after_count, 1, memory_order_relaxed);
}

/* Call under the lock. */
static void after_append(after *entry)
{
    entry->next = NULL;
    *after_end = entry;
    after_end = &entry->next;
    atomic_fetch_add_explicit(&after_count, 1, memory_order_relaxed);
}

/* The oldest that nobody asks about, for the caller to ask about: it stays in the list, or the child of a fork would have
 * lost it. NULL: none. Call under the lock. */
static after *after_pick(void)
{
    after *entry = after_first;
    while (entry && entry->asked)
        entry = entry->next;
    if (entry)
        entry->asked = true;
    return entry;
}

static void after_call(after *entry)
{
    berth_event_destroy(entry->event);
    entry->fn(entry->context);
    berth__heap_free(entry);
}

/* ---- Our thread and those that come by ------------------------------------------------------------- */

/* The stream that our thread runs on, made at its first use in this process; NULL: there is none to be had now. */
static berth_stream *after_stream_get(void)
{
    berth__spin_lock(&after_lock, RANK);
    berth_stream *stream = after_stream;
    berth__spin_unlock(&after_lock, RANK);
    berth_stream *made = NULL;
    if (stream || berth_stream_create(berth_device_cpu(), &made) != BERTH_OK)
        return stream;
    berth__spin_lock(&after_lock, RANK);
    stream = after_stream = after_stream ? after_stream : made;
    berth__spin_unlock(&after_lock, RANK);
    if (stream != made)
        berth_stream_destroy(made);
    return stream;
}

/* Lets our thread wait if it does not and there is something to wait for. */
static void after_start(void)
{
    berth_stream *stream = after_stream_get();
    if (!stream)
        return;
    berth__spin_lock(&after_lock, RANK);
    bool start = !after_thread_runs && after_first;
    after_thread_runs = after_thread_runs || start;
    berth__spin_unlock(&after_lock, RANK);
    if (start && berth_stream_call(stream, after_run, NULL) != BERTH_OK) {
        berth__spin_lock(&after_lock, RANK);
        after_thread_runs = false;
        berth__spin_unlock(&after_lock, RANK);
    }
}

/* The driver is asked without the lock. An entry that is not due goes to the end, and our thread is started if it does not
 * run: it may have found none that nobody asks about. */
void berth__after_sweep(void)
{
    size_t turns = atomic_load_explicit(&after_count, memory_order_relaxed);
    while (BERTH_UNLIKELY(turns-- > 0)) {
        berth__spin_lock(&after_lock, RANK);
        after *entry = after_pick();
        berth__spin_unlock(&after_lock, RANK);
        if (!entry)
            return;
        bool due = after_is_due(entry);
        berth__spin_lock(&after_lock, RANK);
        after_take_out(entry);
        entry->asked = false;
        if (!due)
            after_append(entry);
        berth__spin_unlock(&after_lock, RANK);
        if (due)
            after_call(entry);
        else
            after_start();
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
        berth__spin_lock(&after_lock, RANK);
        after *oldest = after_pick();
        after_thread_runs = oldest != NULL;
        berth__spin_unlock(&after_lock, RANK);
        if (!oldest)
            return;
        bool passed = after_wait(oldest);
        berth__spin_lock(&after_lock, RANK);
        oldest->asked = false;
        if (passed)
            after_take_out(oldest);
        else
            after_thread_runs = false; /* the wait does not work: callers that come by ask */
        berth__spin_unlock(&after_lock, RANK);
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
    after_watch_forks();
    berth__spin_lock(&after_lock, RANK);
    after_append(entry);
    berth__spin_unlock(&after_lock, RANK);
    after_start();
    return BERTH_OK;
}

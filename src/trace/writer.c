/* Writing a trace: a chunk a thread, definitions in one that all share.
 *
 *     live        chunks lie in the mapped file (live.h); the fast path is a load of the thread's chunk and the encoder
 *     given times chunks are gathered in memory, packed if asked to, and appended when they are full */
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- Chunks of the two modes ------------------------------------------------------------------------- */

static berth_status writer_failed(berth_trace *t, int code)
{
    if (!atomic_exchange(&t->failed, true))
        berth__log(BERTH_LOG_ERROR, "the trace %s cannot be written (%s); events are missing from now on",
                   t->path, strerror(code));
    return berth__fail(BERTH_IO, "the trace %s cannot be written: %s", t->path, strerror(code));
}

static bool append(berth_trace *t, const void *bytes, size_t size_bytes)
{
    for (const char *at = bytes; size_bytes;) {
        ssize_t written = write(t->live.file, at, size_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        at += written;
        size_bytes -= (size_t)written;
    }
    return true;
}

/* The payload as columns, packed: the bytes that go behind the header, or NULL where that gains nothing. */
static const unsigned char *pack_payload(berth_trace *t, berth__trace_chunk_header *h, size_t *size_bytes)
{
    size_t plain = *size_bytes;
    const unsigned char *from = (const unsigned char *)(h + 1);
    if (h->type == BERTH__TRACE_EVENTS) {
        plain = berth__trace_to_columns(from, plain, t->columns);
        from = t->columns;
    }
    size_t packed = plain ? t->pack(t->context, from, plain, t->packed, BERTH__TRACE_CHUNK_MOST) : 0;
    if (!packed || packed >= *size_bytes)
        return NULL;
    *size_bytes = packed;
    return t->packed;
}

static berth_status gathered_end(berth_trace *t, berth__trace_chunk *c)
{
    berth__trace_chunk_header *h = c->header;
    if (!h || c->at == (unsigned char *)(h + 1))
        return BERTH_OK;
    berth__trace_chunk_publish(c);
    size_t size_bytes = (size_t)(c->at - (unsigned char *)(h + 1));
    const unsigned char *packed = t->pack ? pack_payload(t, h, &size_bytes) : NULL;
    const unsigned char *payload = packed ? packed : (const unsigned char *)(h + 1);
    h->codec = packed ? BERTH__TRACE_ZSTD : BERTH__TRACE_PLAIN;
    h->stored_bytes = (uint32_t)size_bytes;
    h->room_bytes = (uint32_t)(sizeof *h + size_bytes);
    h->payload_checksum = berth__trace_checksum(payload, size_bytes);
    h->header_checksum = berth__trace_header_checksum(h);
    if (!append(t, h, sizeof *h) || !append(t, payload, size_bytes))
        return writer_failed(t, errno ? errno : ENOSPC);
    return BERTH_OK;
}

static berth_status gathered_begin(berth_trace *t, struct berth__trace_slot *s, uint32_t type, uint64_t tick);

/* Definitions go into the file before any event that uses them. */
static berth_status gathered_flush_definitions(berth_trace *t)
{
    const berth__trace_chunk *c = &t->definitions.chunk;
    if (!c->header || c->at == (const unsigned char *)(c->header + 1))
        return BERTH_OK;
    return gathered_begin(t, &t->definitions, BERTH__TRACE_DEFINITIONS, 0);
}

static berth_status gathered_begin(berth_trace *t, struct berth__trace_slot *s, uint32_t type, uint64_t tick)
{
    berth__trace_chunk *c = &s->chunk;
    berth_status status = type == BERTH__TRACE_EVENTS ? gathered_flush_definitions(t) : BERTH_OK;
    if (!status)
        status = gathered_end(t, c);
    if (status)
        return status;
    if (!c->header)
        c->header = berth__heap_alloc(BERTH__TRACE_GATHERED_BYTES);
    if (!c->header)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a chunk of the trace %s", t->path);
    berth__trace_chunk_head(c->header, type, s->process, s->thread, s->sequence++, 0);
    /* Ticks are steps of the time given: one moment tells how long they are. */
    c->header->tick = c->header->tick_first = tick;
    c->header->clock_ns = tick * t->tick_ns;
    c->at = (unsigned char *)(c->header + 1);
    c->end = (unsigned char *)c->header + BERTH__TRACE_GATHERED_BYTES;
    c->events = 0;
    berth__trace_state_begin(&c->state, tick);
    return BERTH_OK;
}

static berth_status slot_begin(berth_trace *t, struct berth__trace_slot *s, uint32_t type, uint64_t tick)
{
    if (t->times_given)
        return gathered_begin(t, s, type, tick);
    int code = s->chunk.header ? berth__trace_chunk_turn(&t->live, &s->chunk)
                               : berth__trace_chunk_begin(&t->live, &s->chunk, type, s->process, s->thread);
    return code ? writer_failed(t, code) : BERTH_OK;
}

/* Where times are given one thread at a time writes, as the header says, and packing calls the user's function: no lock. */
static void trace_lock(berth_trace *t)
{
    if (!t->times_given)
        berth__spin_lock(&t->lock, BERTH__RANK_TABLE);
}
static void trace_unlock(berth_trace *t)
{
    if (!t->times_given)
        berth__spin_unlock(&t->lock, BERTH__RANK_TABLE);
}

static berth_status define_again(berth_trace *t, unsigned kind, const uint64_t *values);

/* ---- Slots ------------------------------------------------------------------------------------------- */

static struct berth__trace_slot *slot_create(uint32_t process, uint32_t thread)
{
    struct berth__trace_slot *s = berth__heap_zaligned(sizeof *s, 64);
    if (s) {
        s->process = process;
        s->thread = thread;
    }
    return s;
}

/* The calling thread's: nobody else has this number, or had it without having ended before. */
static struct berth__trace_slot *live_slot(berth_trace *t, uint32_t thread)
{
    struct berth__trace_slot *s = slot_create(0, thread);
    if (s)
        atomic_store_explicit(&t->slots[thread], s, memory_order_release);
    return s;
}

/* That of a thread whose number is given with the event. */
static struct berth__trace_slot *given_slot(berth_trace *t, const berth_trace_event *e)
{
    uint32_t key[2] = {e->process, e->thread};
    uint32_t found = berth__trace_table_find(&t->threads, key, sizeof key);
    if (found)
        return atomic_load_explicit(&t->slots[found - 1], memory_order_relaxed);
    if (t->threads.count == t->slot_count) {
        size_t more = (size_t)t->slot_count * 2;
        void *grown = berth__heap_realloc(t->slots, more * sizeof *t->slots);
        if (!grown)
            return NULL;
        t->slots = grown;
        memset(t->slots + t->slot_count, 0, t->slot_count * sizeof *t->slots);
        t->slot_count = (uint32_t)more;
    }
    struct berth__trace_slot *s = slot_create(e->process, e->thread);
    uint32_t place = t->threads.count;
    if (!s || !berth__trace_table_add(&t->threads, key, sizeof key, place + 1)) {
        berth__heap_free(s);
        return NULL;
    }
    atomic_store_explicit(&t->slots[place], s, memory_order_relaxed);
    return s;
}

/* ---- Events ------------------------------------------------------------------------------------------ */

static BERTH__COLD berth_status no_slot(const berth_trace *t)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a thread of the trace %s", t->path);
}

/* Says what the calling thread is called, if that is new. A name that cannot be written is missing, as all else will. */
static void name_thread(berth_trace *t, struct berth__trace_slot *s)
{
    berth_trace_thread thread = {sizeof thread, s->process, s->thread, 0};
    if (berth__trace_thread_renamed(s->name) &&
        berth_trace_define_text(t, s->name, strnlen(s->name, sizeof s->name), &thread.name) == BERTH_OK)
        (void)berth_trace_define_thread(t, &thread);
}

/* How it stood at the refusal that comes next; there is room for that. Before its tick is taken, so that who follows up to a moment
 * has the pictures of all events before it. What cannot be told is missing. */
static BERTH__COLD void tell_picture(berth_trace *t, const struct berth__trace_slot *s,
                                     const berth_trace_picture *p)
{
    const berth__trace_chunk *c = &s->chunk;
    uint64_t values[] = {c->header->process, c->header->thread, c->header->sequence, c->state.refusals,
                         p->waiting_bytes,   p->free_bytes,     p->largest_bytes,    p->unused_bytes};
    bool is_shared = !t->times_given && s->thread >= t->slot_count; /* then we hold the lock */
    if (p->struct_size >= sizeof *p && !is_shared)
        (void)define_again(t, BERTH__TRACE_PICTURE, values);
}

static inline bool has_picture(const berth_trace_event *e)
{
    return e->kind == BERTH_TRACE_FAIL && e->picture;
}

static BERTH__COLD berth_status live_write_slowly(berth_trace *t, const berth_trace_event *e, uint32_t thread)
{
    if (atomic_load_explicit(&t->failed, memory_order_relaxed))
        return berth__fail(BERTH_IO, "the trace %s could not be written before", t->path);
    struct berth__trace_slot *s = atomic_load_explicit(&t->slots[thread], memory_order_acquire);
    if (!s && !(s = live_slot(t, thread)))
        return no_slot(t);
    berth_status status = slot_begin(t, s, BERTH__TRACE_EVENTS, 0);
    if (status)
        return status;
    if (BERTH_UNLIKELY(has_picture(e)))
        tell_picture(t, s, e->picture);
    berth__trace_chunk_add(&s->chunk, e, berth__trace_tick());
    if (thread < t->slot_count) /* the last one is many threads', and we hold the lock */
        name_thread(t, s);
    return BERTH_OK;
}

static berth_status live_write(berth_trace *t, const berth_trace_event *e)
{
    uint32_t thread = berth__thread();
    if (BERTH_UNLIKELY(!berth__same_generation(t->generation) ||
                       atomic_load_explicit(&t->live.header->paused, memory_order_relaxed)))
        return BERTH_OK;
    if (BERTH_UNLIKELY(thread >= t->slot_count)) { /* more threads than numbers: they share the last one */
        berth__spin_lock(&t->lock, BERTH__RANK_TABLE);
        berth_status status = live_write_slowly(t, e, t->slot_count);
        berth__spin_unlock(&t->lock, BERTH__RANK_TABLE);
        return status;
    }
    struct berth__trace_slot *s = atomic_load_explicit(&t->slots[thread], memory_order_acquire);
    if (BERTH_UNLIKELY(!s || !berth__trace_chunk_has_room(&s->chunk, BERTH__TRACE_EVENT_MOST)))
        return live_write_slowly(t, e, thread);
    if (BERTH_UNLIKELY(has_picture(e)))
        tell_picture(t, s, e->picture);
    berth__trace_chunk_add(&s->chunk, e, berth__trace_tick());
    return BERTH_OK;
}

static berth_status given_write(berth_trace *t, const berth_trace_event *e)
{
    struct berth__trace_slot *s = given_slot(t, e);
    if (!s)
        return no_slot(t);
    uint64_t tick = e->time_ns / t->tick_ns;
    if (!berth__trace_chunk_has_room(&s->chunk, BERTH__TRACE_EVENT_MOST)) {
        berth_status status = slot_begin(t, s, BERTH__TRACE_EVENTS, tick > s->last ? tick : s->last);
        if (status)
            return status;
    }
    if (BERTH_UNLIKELY(has_picture(e)))
        tell_picture(t, s, e->picture);
    berth__trace_chunk_add(&s->chunk, e, tick);
    s->last = s->chunk.state.tick;
    return BERTH_OK;
}

static bool is_event(const berth_trace *t, const berth_trace_event *e)
{
    return e && e->struct_size >= sizeof *e && e->kind >= BERTH_TRACE_ALLOC &&
           e->kind <= BERTH_TRACE_CAPACITY && (!t->times_given || e->thread != BERTH_TRACE_CALLER);
}

berth_status berth_trace_write(berth_trace *trace, const berth_trace_event *event)
{
    if (BERTH_UNLIKELY(!trace || !is_event(trace, event)))
        return berth__fail(
            BERTH_INVALID_ARGUMENT,
            "an event for a trace comes from BERTH_TRACE_EVENT_INIT with a kind, and with its thread's "
            "number where times are given");
    if (!trace->times_given)
        return live_write(trace, event);
    return given_write(trace, event);
}

/* ---- Definitions -------------------------------------------------------------------------------------- */

/* Guard: t->lock. */
static berth_status define_room(berth_trace *t)
{
    struct berth__trace_slot *s = &t->definitions;
    return berth__trace_chunk_has_room(&s->chunk, BERTH__TRACE_DEFINITION_MOST)
               ? BERTH_OK
               : slot_begin(t, s, BERTH__TRACE_DEFINITIONS, 0);
}

/* Guard: t->lock. There is room. */
static void define_put(berth_trace *t, unsigned kind, const uint64_t *values, const char *text)
{
    berth__trace_chunk *c = &t->definitions.chunk;
    c->at = berth__trace_define(c->at, kind, values, text);
    c->events++;
    berth__trace_chunk_publish(c);
}

static bool trace_in_child(const berth_trace *t)
{
    return !t->times_given && !berth__same_generation(t->generation);
}

static berth_status refuse_child(const berth_trace *t)
{
    return berth__fail(BERTH_BUSY, "the trace %s belongs to the process that this one was forked from",
                       t->path);
}

/* Defines what has a number. */
static berth_status define_again(berth_trace *t, unsigned kind, const uint64_t *values)
{
    if (trace_in_child(t))
        return refuse_child(t);
    trace_lock(t);
    berth_status status = define_room(t);
    if (!status)
        define_put(t, kind, values, NULL);
    trace_unlock(t);
    return status;
}

/* Defines what `key` stands for once: values[0] is its number, which is found or given here. */
static berth_status define_once(berth_trace *t, berth__trace_table *table, const void *key, size_t length,
                                unsigned kind, uint64_t *values, const char *text, uint32_t *out)
{
    if (trace_in_child(t))
        return refuse_child(t);
    trace_lock(t);
    uint32_t number = berth__trace_table_find(table, key, length);
    /* Room first: a key in the table is defined. */
    berth_status status = number ? BERTH_OK : define_room(t);
    if (!number && !status) {
        number = table->count + 1;
        bool added = berth__trace_table_add(table, key, length, number);
        values[0] = number; /* now: a key may be the values */
        if (added)
            define_put(t, kind, values, text);
        else
            status =
                berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a definition of the trace %s", t->path);
    }
    trace_unlock(t);
    *out = !status ? number : 0;
    return status;
}

static berth_status bad_definition(void)
{
    return berth__fail(
        BERTH_INVALID_ARGUMENT,
        "a definition for a trace needs the trace, a struct from its _INIT, and a place for the number");
}

berth_status berth_trace_define_text(berth_trace *trace, const char *text, size_t length, uint32_t *out)
{
    if (out)
        *out = 0;
    if (!trace || !out || (!text && length))
        return bad_definition();
    if (!length)
        return BERTH_OK; /* 0 is the empty text */
    if (length > BERTH__TRACE_TEXT_MOST)
        length = BERTH__TRACE_TEXT_MOST;
    uint64_t values[] = {0, length};
    return define_once(trace, &trace->texts, text, length, BERTH__TRACE_TEXT, values, text, out);
}

berth_status berth_trace_define_frame(berth_trace *trace, const berth_trace_frame *f, uint32_t *out)
{
    if (out)
        *out = 0;
    if (!trace || !out || !f || f->struct_size < sizeof *f)
        return bad_definition();
    uint64_t values[] = {0, f->caller, f->module, f->address, f->function, f->file, f->line, f->is_inlined};
    return define_once(trace, &trace->frames, values, sizeof values, BERTH__TRACE_FRAME, values, NULL, out);
}

berth_status berth_trace_define_device(berth_trace *trace, const berth_trace_device *d, uint32_t *out)
{
    if (out)
        *out = 0;
    if (!trace || !out || !d || d->struct_size < sizeof *d)
        return bad_definition();
    uint64_t values[] = {0, d->name, d->kind, d->ordinal};
    return define_once(trace, &trace->devices, values, sizeof values, BERTH__TRACE_DEVICE, values, NULL, out);
}

berth_status berth_trace_define_module(berth_trace *trace, const berth_trace_module *m, uint32_t *out)
{
    if (out)
        *out = 0;
    if (!trace || !out || !m || m->struct_size < sizeof *m)
        return bad_definition();
    uint64_t values[] = {0, m->process, m->path, m->build_id, m->base, m->start, m->end};
    return define_once(trace, &trace->modules, values, sizeof values, BERTH__TRACE_MODULE, values, NULL, out);
}

berth_status berth_trace_define_process(berth_trace *trace, uint32_t number, const berth_trace_process *p)
{
    if (!trace || !p || p->struct_size < sizeof *p)
        return bad_definition();
    uint64_t values[] = {number, p->pid, p->parent, p->command};
    return define_again(trace, BERTH__TRACE_PROCESS, values);
}

berth_status berth_trace_define_thread(berth_trace *trace, const berth_trace_thread *thread)
{
    if (!trace || !thread || thread->struct_size < sizeof *thread)
        return bad_definition();
    uint64_t values[] = {thread->process, thread->thread, thread->name};
    return define_again(trace, BERTH__TRACE_THREAD, values);
}

/* ---- What is gathered ------------------------------------------------------------------------------------ */

berth_status berth_trace_flush(berth_trace *trace)
{
    if (!trace)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no trace to flush");
    berth_status status = trace->times_given ? gathered_flush_definitions(trace) : BERTH_OK;
    for (uint32_t i = 0; trace->times_given && !status && i < trace->threads.count; i++) {
        struct berth__trace_slot *s = atomic_load_explicit(&trace->slots[i], memory_order_relaxed);
        if (s->chunk.header && s->chunk.at > (unsigned char *)(s->chunk.header + 1))
            status = gathered_begin(trace, s, BERTH__TRACE_EVENTS, s->last);
    }
    if (!status && atomic_load(&trace->failed))
        status = berth__fail(BERTH_IO, "the trace %s could not be written before", trace->path);
    return status;
}

/* ---- Life ---------------------------------------------------------------------------------------------- */

static berth_status not_made(const berth_trace *t, int code)
{
    if (code == EBUSY)
        return berth__fail(BERTH_BUSY,
                           "the trace %s is being written, by another process or this one; name "
                           "another file, or wait until that has ended",
                           t->path);
    return berth__fail(BERTH_IO, "the trace %s cannot be made: %s", t->path, strerror(code));
}

static berth_status create_given(berth_trace *t)
{
    int code = berth__trace_open_alone(t->path, O_WRONLY, &t->live.file);
    if (code)
        return not_made(t, code);
    berth__trace_file_header *h = berth__heap_zalloc(1, BERTH__TRACE_PAGE);
    if (!h)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the trace %s", t->path);
    h->magic = BERTH__TRACE_MAGIC;
    h->version = BERTH__TRACE_VERSION;
    h->header_bytes = sizeof *h;
    h->flags = 1;
    h->tick_ns = t->tick_ns;
    bool ok = append(t, h, sizeof *h);
    berth__heap_free(h);
    if (t->pack) {
        t->columns = berth__heap_alloc(BERTH__TRACE_GATHERED_BYTES + BERTH__TRACE_COLUMNS_EXTRA);
        t->packed = berth__heap_alloc(BERTH__TRACE_CHUNK_MOST);
        if (!t->columns || !t->packed)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the trace %s", t->path);
    }
    return ok ? BERTH_OK : writer_failed(t, errno ? errno : ENOSPC);
}

static berth_status create_live(berth_trace *t)
{
    int code = berth__trace_live_create(&t->live, t->path);
    return code ? not_made(t, code) : BERTH_OK;
}

static berth_trace *trace_alloc(const char *path, const berth_trace_options *options)
{
    size_t length = strlen(path);
    berth_trace *t = berth__heap_zaligned(berth__align_up(sizeof *t + length + 1, 64), 64);
    if (!t)
        return NULL;
    memcpy(t->path, path, length + 1);
    atomic_init(&t->references, 1);
    t->live.file = -1;
    if (options) {
        t->times_given = options->times_given;
        t->tick_ns = options->tick_ns;
        t->pack = options->pack;
        t->context = options->context;
    }
    t->tick_ns += t->tick_ns == 0;
    t->slot_count = t->times_given ? 16 : BERTH__THREADS_MAX;
    t->slots = berth__heap_zalloc((size_t)t->slot_count + 1, sizeof *t->slots);
    t->definitions.thread = UINT32_MAX;
    return t;
}

static void end_chunk(berth_trace *t, struct berth__trace_slot *s, bool ours)
{
    if (t->times_given) {
        (void)gathered_end(t, &s->chunk);
        berth__heap_free(s->chunk.header);
    } else if (ours) {
        berth__trace_chunk_end(&s->chunk);
    }
}

static void trace_destroy(berth_trace *t)
{
    bool ours = t->times_given || berth__same_generation(t->generation);
    bool wrote = t->definitions.chunk.header != NULL;
    end_chunk(t, &t->definitions, ours); /* first: a reader wants it before what uses it */
    for (uint32_t i = 0; t->slots && i <= t->slot_count; i++) {
        struct berth__trace_slot *s = atomic_load_explicit(&t->slots[i], memory_order_acquire);
        wrote = wrote || (s && s->chunk.header);
        if (s)
            end_chunk(t, s, ours);
        berth__heap_free(s);
        if (t->times_given && i + 1 == t->slot_count)
            break;
    }
    /* Before others may have the file, and truncate it under the map. */
    if (!t->times_given && ours && wrote)
        t->live.header->flags |=
            1; /* nothing is added any more; a file without chunks was made for others to write */
    if (berth__same_generation(t->generation))
        berth__trace_live_release(&t->live);
    if (t->times_given) {
        if (t->live.file >= 0)
            close(t->live.file);
    } else {
        berth__trace_live_close(&t->live);
    }
    berth__heap_free(t->slots);
    berth__heap_free(t->columns);
    berth__heap_free(t->packed);
    berth__trace_table_finish(&t->texts);
    berth__trace_table_finish(&t->frames);
    berth__trace_table_finish(&t->devices);
    berth__trace_table_finish(&t->modules);
    berth__trace_table_finish(&t->threads);
    berth__heap_free(t);
}

berth_status berth_trace_create(const char *path, const berth_trace_options *options, berth_trace **out)
{
    if (out)
        *out = NULL;
    if (!out || !path || !*path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a trace needs a path and a place for the result");
    if (options && (options->struct_size < sizeof *options || (options->pack && !options->times_given)))
        return berth__fail(
            BERTH_INVALID_ARGUMENT,
            "options of a trace come from BERTH_TRACE_OPTIONS_INIT, and packing goes with times_given");
    berth_trace *t = trace_alloc(path, options);
    if (!t || !t->slots) {
        berth__heap_free(t);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the trace %s", path);
    }
    t->generation = berth__generation();
    berth_status status = t->times_given ? create_given(t) : create_live(t);
    if (status) {
        trace_destroy(t);
        return status;
    }
    *out = t;
    return BERTH_OK;
}

berth_trace *berth_trace_retain(berth_trace *trace)
{
    if (trace)
        atomic_fetch_add_explicit(&trace->references, 1, memory_order_relaxed);
    return trace;
}

void berth_trace_release(berth_trace *trace)
{
    if (trace && atomic_fetch_sub_explicit(&trace->references, 1, memory_order_acq_rel) == 1)
        trace_destroy(trace);
}

berth_status berth_trace_pause(const char *path, bool paused)
{
    if (!path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the trace to pause has no path");
    berth__trace_live live;
    int code = berth__trace_live_open(&live, path, false);
    if (code)
        return berth__fail(code == EINVAL ? BERTH_BAD_DATA : BERTH_IO, "the trace %s cannot be paused: %s",
                           path, code == EINVAL ? "it is none, or finished" : strerror(code));
    atomic_store(&live.header->paused, paused);
    berth__trace_live_close(&live);
    return BERTH_OK;
}

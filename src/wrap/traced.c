/* The tracing decorator: what is allocated, freed, used on streams and refused goes to a trace. */
#include <string.h>

#include "base/stack.h"
#include "berth/trace.h"
#include "core/allocator.h"
#include "wrap/why.h"

enum { KNOWN = 4096, PICTURES_MOST = 256 };

/* Numbers of things that never move or change: labels, which requests keep by reference, and call stacks, which the
 * depot keeps for ever. Open addressing; entries are added and never leave, so that readers need no lock. */
struct known {
    _Atomic(const void *) key; /* NULL: empty */
    _Atomic uint32_t number;   /* 0: its number is on its way */
};

struct traced {
    berth__wrapper base;
    berth_trace *trace; /* retained */
    uint32_t stack_depth, device;
    /* Taken so far: each walks over all blocks, and who retries may be refused all the time. */
    _Atomic uint32_t pictures;
    struct known labels[KNOWN], stacks[KNOWN];
};

/* ---- Numbers ----------------------------------------------------------------------------------------- */

/* The entry of `key`, or a new one; NULL when there are too many. */
static struct known *known_find(struct known *table, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    for (uint32_t probe = 0; probe < 16; probe++) {
        struct known *k = &table[(hash + probe) % KNOWN];
        const void *there = atomic_load_explicit(&k->key, memory_order_acquire);
        if (there == key)
            return k;
        if (!there && atomic_compare_exchange_strong_explicit(&k->key, &there, key, memory_order_acq_rel,
                                                              memory_order_acquire))
            return k;
        if (there == key)
            return k;
    }
    return NULL;
}

static uint32_t label_define(struct traced *t, const void *key)
{
    uint32_t number = 0;
    (void)berth_trace_define_text(t->trace, key, strlen(key), &number);
    return number;
}

/* From the outermost frame inward, since a frame names its caller. */
static uint32_t stack_define(struct traced *t, const void *key)
{
    const berth__stack *stack = key;
    uint32_t depth = stack->depth < t->stack_depth ? stack->depth : t->stack_depth;
    berth_trace_frame frame = BERTH_TRACE_FRAME_INIT;
    uint32_t number = 0;
    while (depth-- > 0) {
        frame.caller = number;
        frame.address = (uintptr_t)stack->frames[depth];
        if (berth_trace_define_frame(t->trace, &frame, &number) != BERTH_OK)
            return 0;
    }
    return number;
}

static uint32_t number_of(struct traced *t, struct known *table, const void *key,
                          uint32_t (*define)(struct traced *t, const void *key))
{
    if (!key)
        return 0;
    struct known *k = known_find(table, key);
    uint32_t number = k ? atomic_load_explicit(&k->number, memory_order_relaxed) : 0;
    if (BERTH_LIKELY(number))
        return number;
    number = define(t, key); /* equal definitions have equal numbers: threads that come here together agree */
    if (k)
        atomic_store_explicit(&k->number, number, memory_order_relaxed);
    return number;
}

/* ---- Events ------------------------------------------------------------------------------------------ */

/* How the inner allocator stands now that it has refused. False: it does not tell. The last error stays its own. */
static BERTH__COLD bool take_picture(struct traced *t, size_t size_bytes, berth_trace_picture *out)
{
    berth__picture p;
    if (atomic_fetch_add_explicit(&t->pictures, 1, memory_order_relaxed) >= PICTURES_MOST) {
        atomic_store_explicit(&t->pictures, PICTURES_MOST, memory_order_relaxed);
        return false;
    }
    const berth_error said = *berth_last_error();
    berth__picture_take(t->base.inner, size_bytes, &p);
    (void)berth__fail_driver(said.status, said.driver_code, said.driver_words, "%s", said.message);
    *out = (berth_trace_picture){sizeof *out, p.waiting_bytes, p.idle_bytes, p.largest_bytes, p.unused_bytes};
    return p.is_known;
}

/* What fails here fails silently: the trace says once that it cannot be written, and the program goes on. The last error
 * stays the inner operation's: only failures of the trace itself change it, and those come once. */
static void trace_event(struct traced *t, berth_trace_kind kind, const void *p, size_t size_bytes,
                        const char *label, const berth_stream *stream, uint64_t id)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    berth_trace_picture picture;
    e.kind = kind;
    if (kind == BERTH_TRACE_FAIL && take_picture(t, size_bytes, &picture))
        e.picture = &picture;
    e.device = t->device;
    e.address = (uintptr_t)p;
    e.size_bytes = size_bytes;
    e.label = number_of(t, t->labels, label, label_define);
    if (t->stack_depth && (kind == BERTH_TRACE_ALLOC || kind == BERTH_TRACE_FAIL))
        e.stack = number_of(t, t->stacks, berth__stack_here(), stack_define);
    e.stream = stream ? berth_stream_id(stream) : 0;
    e.id = id;
    (void)berth_trace_write(t->trace, &e);
}

static void trace_allocated(struct traced *t, void *p, size_t size_bytes, const berth_request *request,
                            berth_status status)
{
    const char *label = berth__request_label(request);
    uint64_t id = 0;
    berth_allocator *inner = t->base.inner;
    if (!status && p)
        (void)inner->ops.allocation_id(inner->self, p, &id);
    if (status || p)
        trace_event(t, !status ? BERTH_TRACE_ALLOC : BERTH_TRACE_FAIL, p, size_bytes, label, request->stream,
                    id);
}

/* ---- Operations -------------------------------------------------------------------------------------- */

static berth_status traced_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    struct traced *t = self;
    berth_status status = berth__allocate(t->base.inner, size_bytes, alignment, request, out);
    trace_allocated(t, *out, size_bytes, request, status);
    return status;
}

/* How large the block at `p` is, which its user says is `told_bytes` large (0: not told), after an operation on it failed with
 * `status`. False: there is none, as far as anybody knows. The words for the failure stay. */
static bool still_there(berth_allocator *inner, const void *p, size_t told_bytes, berth_status status,
                        size_t *size_bytes)
{
    const berth_error said = *berth_last_error();
    uint64_t before = berth__failures();
    bool known = inner->ops.requested_size(inner->self, p, size_bytes) == BERTH_OK;
    if (berth__failures() != before)
        (void)berth__fail_driver(said.status, said.driver_code, said.driver_words, "%s", said.message);
    if (known)
        return true;
    *size_bytes = told_bytes;
    return told_bytes && status != BERTH_BAD_FREE && status != BERTH_NOT_FOUND;
}

/* A block that was said to be gone and is not, because what was asked for was refused, is said to be there again. */
static void trace_again(struct traced *t, void *p, size_t told_bytes, const char *why, berth_status status)
{
    size_t size_bytes;
    if (still_there(t->base.inner, p, told_bytes, status, &size_bytes))
        trace_event(t, BERTH_TRACE_ALLOC, p, size_bytes, why, NULL, 0);
}

static berth_status traced_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct traced *t = self;
    /* Before the free: afterwards another thread's allocation of the same address could come first. */
    trace_event(t, BERTH_TRACE_FREE, p, 0, NULL, stream, 0);
    berth_status status = berth__deallocate(t->base.inner, p, size_bytes, stream);
    if (!berth__free_is_done(status))
        trace_again(t, p, size_bytes, "a free that was refused", status);
    return status;
}

static berth_status traced_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                      size_t alignment, const berth_request *request, void **out)
{
    struct traced *t = self;
    berth_allocator *inner = t->base.inner;
    trace_event(t, BERTH_TRACE_FREE, p, 0, NULL, request->stream, 0);
    berth_status status =
        inner->ops.reallocate(inner->self, p, old_bytes, new_bytes, alignment, request, out);
    if (status)
        trace_again(t, p, old_bytes, "a resize that was refused", status);
    if (status != BERTH_UNSUPPORTED) /* then the front goes through allocate and free, which are traced */
        trace_allocated(t, *out, new_bytes, request, status);
    return status;
}

static berth_status traced_record_use(void *self, const void *p, berth_stream *stream)
{
    struct traced *t = self;
    berth_allocator *inner = t->base.inner;
    berth_status status = inner->ops.record_use(inner->self, p, stream);
    if (!status)
        trace_event(t, BERTH_TRACE_USE, p, 0, NULL, stream, 0);
    return status;
}

static void traced_destroy(void *self)
{
    struct traced *t = self;
    berth__wrapper_finish(&t->base);
    berth_trace_release(t->trace);
    berth__heap_free(t);
}

/* ---- Creation ---------------------------------------------------------------------------------------- */

static berth_status define_device(struct traced *t)
{
    berth_allocator *inner = t->base.inner;
    berth_device device = inner->ops.device(inner->self);
    const char *name = inner->ops.name(inner->self);
    berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
    d.kind = (uint32_t)device.kind;
    d.ordinal = (uint32_t)device.ordinal;
    berth_status status = berth_trace_define_text(t->trace, name, strlen(name), &d.name);
    return !status ? berth_trace_define_device(t->trace, &d, &t->device) : status;
}

berth_status berth_trace_allocator_create(berth_allocator *inner, berth_trace *trace, uint32_t stack_depth,
                                          berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner || !trace)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                           !out     ? "out"
                           : !inner ? "the inner allocator"
                                    : "the trace");
    struct traced *t = berth__heap_zalloc(1, sizeof *t);
    if (!t)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a traced allocator's handle");
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = traced_allocate;
    ops.deallocate = traced_deallocate;
    /* If the front moves the block through ours anyway, nothing has to be taken back. */
    ops.reallocate = berth__reallocates(inner) ? traced_reallocate : NULL;
    ops.record_use = traced_record_use;
    ops.destroy = traced_destroy;
    t->stack_depth = stack_depth;
    if (stack_depth)
        berth__stack_prepare();
    berth__wrapper_init(&t->base, &ops, inner);
    t->base.base.header = inner->header;
    t->base.base.follows_streams = inner->follows_streams;
    t->trace = berth_trace_retain(trace);
    berth_status status = define_device(t);
    if (status) {
        berth_allocator_release(&t->base.base);
        return status;
    }
    *out = &t->base.base;
    return BERTH_OK;
}

/* The front of every allocator: checks arguments once, fills in absent operations, counts references. */
#include "core/allocator.h"

#include <stdio.h>
#include <string.h>

#include "base/header.h"
#include "base/words.h"
#include "berth/scope.h"
#include "core/answer.h"

/* ---- What an operation answers that the table lacks --------------------------------------------- */

static berth_status absent(const char *what)
{
    return berth__fail(BERTH_UNSUPPORTED, "this allocator cannot %s", what);
}

static berth_status no_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)self, (void)p, (void)old_bytes, (void)new_bytes, (void)alignment, (void)request, (void)out;
    return absent("change a block's size");
}

static berth_status no_record_use(void *self, const void *p, berth_stream *stream)
{
    (void)self, (void)p, (void)stream;
    return absent("record the use of a block by a stream");
}

static const char *no_name(void *self)
{
    (void)self;
    return "unnamed";
}

static berth_device on_cpu(void *self)
{
    (void)self;
    return berth_device_cpu();
}

static berth_memory_kind own_memory(void *self)
{
    (void)self;
    return BERTH_MEMORY_DEVICE;
}

static berth_status no_owns(void *self, const void *p)
{
    (void)self, (void)p;
    return absent("tell whether a pointer is its own");
}

static bool no(void *self)
{
    (void)self;
    return false;
}

static berth_status no_size(void *self, const void *p, size_t *out)
{
    (void)self, (void)p, (void)out;
    return absent("tell a block's size: it does not track sizes");
}

static berth_status id_zero(void *self, const void *p, uint64_t *out)
{
    (void)self, (void)p;
    *out = 0;
    return BERTH_OK;
}

static berth_status no_stats(void *self, berth_stats *out)
{
    (void)self, (void)out;
    return absent("give statistics");
}

static berth_status no_clear_stats(void *self)
{
    (void)self;
    return absent("clear statistics: it keeps none");
}

static berth_status nothing_to_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self, (void)keep_bytes;
    *released = 0;
    return BERTH_OK;
}

static size_t any_size(void *self)
{
    (void)self;
    return 1;
}

static berth_status no_snapshot(void *self, berth_block_fn visit, void *context)
{
    (void)self, (void)visit, (void)context;
    return absent("list its blocks");
}

static const berth_allocator_ops absent_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .reallocate = no_reallocate,
    .record_use = no_record_use,
    .name = no_name,
    .device = on_cpu,
    .memory_kind = own_memory,
    .owns = no_owns,
    .tracks_sizes = no,
    .allocates_empty = no,
    .requested_size = no_size,
    .allocated_size = no_size,
    .allocation_id = id_zero,
    .stats = no_stats,
    .clear_stats = no_clear_stats,
    .trim = nothing_to_trim,
    .snapshot = no_snapshot,
    .granularity = any_size,
};

#define FILL(table, operation)                         \
    do {                                               \
        if (!(table)->operation)                       \
            (table)->operation = absent_ops.operation; \
    } while (0)

bool berth__reallocates(const berth_allocator *a)
{
    return a->ops.reallocate != no_reallocate;
}

/* After this nobody tests for NULL. */
static void fill_absent(berth_allocator_ops *ops)
{
    FILL(ops, reallocate);
    FILL(ops, record_use);
    FILL(ops, name);
    FILL(ops, device);
    FILL(ops, memory_kind);
    FILL(ops, owns);
    FILL(ops, tracks_sizes);
    FILL(ops, allocates_empty);
    FILL(ops, requested_size);
    FILL(ops, allocated_size);
    FILL(ops, allocation_id);
    FILL(ops, stats);
    FILL(ops, clear_stats);
    FILL(ops, trim);
    FILL(ops, snapshot);
    FILL(ops, granularity);
    if (!ops->allocated_size_slow)
        ops->allocated_size_slow = ops->allocated_size;
}

/* ---- Handles ------------------------------------------------------------------------------------- */

void berth__allocator_init(berth_allocator *a, const berth_allocator_ops *ops, void *self)
{
    BERTH_DCHECK(ops->struct_size == sizeof *ops && ops->allocate && ops->deallocate && ops->destroy,
                 "our own tables have their required operations");
    a->self = a->allocate_self = a->deallocate_self = self;
    a->ops = *ops;
    a->allocate = ops->allocate;
    a->deallocate = ops->deallocate;
    a->straight_bytes = BERTH__BLOCK_MOST;
    a->embedded = true;
    a->header = BERTH__HEADER_NONE;
    a->knows_blocks = false;
    a->metered = false;
    a->follows_streams = ops->record_use != NULL;
    a->grain_bytes = 0;
    a->in_use = NULL;
    a->word_of = NULL;
    a->show_stats = NULL;
    a->inner = NULL;
    atomic_init(&a->references, 1);
    fill_absent(&a->ops);
}

berth_status berth__ops_copy(berth_allocator_ops *to, const berth_allocator_ops *from)
{
    if (!from)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the table of operations is NULL");
    size_t required = offsetof(berth_allocator_ops, reallocate);
    if (from->struct_size < required || from->struct_size % sizeof(void *) != 0)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the table's struct_size is %zu, at least %zu is needed: set it to "
                           "sizeof(berth_allocator_ops)",
                           from->struct_size, required);
    memset(to, 0, sizeof *to);
    memcpy(to, from, from->struct_size < sizeof *to ? from->struct_size : sizeof *to);
    to->struct_size = sizeof *to;
    return BERTH_OK;
}

BERTH__COLD berth_status berth__refuse_answer(const berth_allocator *a, berth_status status, uint64_t before,
                                              size_t size_bytes, void **out)
{
    *out = NULL;
    const char *name = a->ops.name(a->self);
    if (!status)
        return berth__fail(BERTH_INTERNAL, "%s answered BERTH_OK to a request for %s without a block", name,
                           BERTH__SIZE(size_bytes));
    char what[64];
    snprintf(what, sizeof what, "give %s", BERTH__SIZE(size_bytes));
    return berth__fail_unless_said(status, before, name, what);
}

/* A user's table is not trusted to keep its promise: `self` is the handle. */
static berth_status allocate_checked(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    berth_allocator *a = self;
    uint64_t before = berth__failure_count;
    berth_status status = a->ops.allocate(a->self, size_bytes, alignment, request, out);
    return berth__check_answer(a, status, before, size_bytes, out);
}

static berth_status deallocate_checked(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth_allocator *a = self;
    uint64_t before = berth__failure_count;
    berth_status status = a->ops.deallocate(a->self, p, size_bytes, stream);
    return BERTH_LIKELY(!status)
               ? BERTH_OK
               : berth__fail_unless_said(status, before, a->ops.name(a->self), "take a block back");
}

berth_status berth_allocator_create(const berth_allocator_ops *ops, void *self, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    berth_allocator_ops complete;
    berth_status status = berth__ops_copy(&complete, ops);
    if (status)
        return status;
    if (!complete.allocate || !complete.deallocate || !complete.destroy)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the table lacks %s, which every allocator needs",
                           !complete.allocate     ? "allocate"
                           : !complete.deallocate ? "deallocate"
                                                  : "destroy");
    berth_allocator *a = berth__heap_alloc(sizeof *a);
    if (!a)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an allocator's handle");
    berth__allocator_init(a, &complete, self);
    a->allocate = allocate_checked;
    a->deallocate = deallocate_checked;
    a->allocate_self = a->deallocate_self = a;
    a->embedded = false;
    *out = a;
    return BERTH_OK;
}

berth_allocator *berth_allocator_retain(berth_allocator *a)
{
    if (a)
        atomic_fetch_add_explicit(&a->references, 1, memory_order_relaxed);
    return a;
}

void berth_allocator_release(berth_allocator *a)
{
    if (!a || atomic_fetch_sub_explicit(&a->references, 1, memory_order_acq_rel) != 1)
        return;
    bool embedded = a->embedded; /* after destroy an embedded handle may be gone */
    a->ops.destroy(a->self);
    if (!embedded)
        berth__heap_free(a);
}

/* ---- Allocation ---------------------------------------------------------------------------------- */

const berth_request berth__plain_request = BERTH_REQUEST_INIT;

static berth_status refuse_request(const berth_allocator *a, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void *const *out)
{
    if (!a || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", a ? "out" : "the allocator");
    if (!berth__is_power_of_two(alignment) || alignment > BERTH_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "alignment %zu is not a power of two from 1 to %zu; BERTH_ALIGNMENT suits tensors",
                           alignment, BERTH_ALIGNMENT_MAX);
    if (request && request->struct_size < sizeof *request)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the request's struct_size is %zu: start from BERTH_REQUEST_INIT",
                           request->struct_size);
    return berth__fail(BERTH_OVERFLOW, "%zu bytes at alignment %zu are more than any block can hold",
                       size_bytes, alignment);
}

static inline bool request_is_sound(const berth_allocator *a, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void *const *out)
{
    return a && out && berth__is_power_of_two(alignment) && alignment <= BERTH_ALIGNMENT_MAX &&
           size_bytes <= BERTH__BLOCK_MOST && (!request || request->struct_size >= sizeof *request);
}

/* What is refused, and what is empty: out of the way of the others. */
static __attribute__((noinline, cold)) berth_status allocate_rarely(berth_allocator *a, size_t size_bytes,
                                                                    size_t alignment,
                                                                    const berth_request *request, void **out)
{
    if (out)
        *out = NULL;
    if (!request_is_sound(a, size_bytes, alignment, request, out))
        return refuse_request(a, size_bytes, alignment, request, out);
    if (size_bytes == 0 && !a->ops.allocates_empty(a->self))
        return BERTH_OK;
    return berth__allocate(a, size_bytes, alignment, request ? request : &berth__plain_request, out);
}

/* The checks that are left of a size that is neither 0 nor too large. */
BERTH__INLINE berth_status allocate_checked_size(berth_allocator *a, size_t size_bytes, size_t alignment,
                                                 const berth_request *request, void **out)
{
    if (BERTH_UNLIKELY(!out || alignment - 1 >= BERTH_ALIGNMENT_MAX || (alignment & (alignment - 1)) != 0 ||
                       (request && request->struct_size < sizeof *request)))
        return allocate_rarely(a, size_bytes, alignment, request, out);
    *out = NULL;
    return berth__allocate(a, size_bytes, alignment, request ? request : &berth__plain_request, out);
}

/* Of an allocator whose requests a replay may expect, or of a size that is refused. */
static __attribute__((noinline)) berth_status allocate_unexpected(berth_allocator *a, size_t size_bytes,
                                                                  size_t alignment,
                                                                  const berth_request *request, void **out)
{
    if (BERTH_UNLIKELY(size_bytes - 1 >= BERTH__BLOCK_MOST))
        return allocate_rarely(a, size_bytes, alignment, request, out);
    return allocate_checked_size(a, size_bytes, alignment, request, out);
}

static const berth_step nothing_planned = {BERTH_STEP_FREE, UINT64_MAX};
berth_run berth__no_run = {.next = &nothing_planned, .pending = UINT64_MAX};
_Thread_local berth_run *berth__run_now = &berth__no_run;

/* Whether a replay expects exactly this now. Without a request neither stream nor label is the caller's own. A size that
 * is planned is one that the front lets pass, and a free's is not positive; an alignment that fits and has no bit in common
 * with itself less one is a power of two. */
BERTH__INLINE bool is_expected(const berth_run *run, const berth_allocator *a, size_t size_bytes,
                               size_t alignment, const berth_request *request)
{
    const berth_step *step = run->next;
    return BERTH_LIKELY(run->allocator == a) && BERTH_LIKELY(!request) &&
           BERTH_LIKELY(size_bytes == step->size_bytes) && BERTH_LIKELY((ptrdiff_t)size_bytes > 0) &&
           BERTH_LIKELY((__atomic_load_n(&run->pending, __ATOMIC_RELAXED) | (uintptr_t)run->stream |
                         (uintptr_t)run->labels) == 0) &&
           BERTH_LIKELY(((step->offset | run->alignment | alignment) & (alignment - 1)) == 0);
}

BERTH_HOT berth_status berth_allocate(berth_allocator *a, size_t size_bytes, size_t alignment,
                                      const berth_request *request, void **out)
{
    if (BERTH_UNLIKELY(!a))
        return allocate_rarely(a, size_bytes, alignment, request, out);
    if (BERTH_LIKELY(size_bytes - 1 < a->straight_bytes))
        return allocate_checked_size(a, size_bytes, alignment, request, out);
    berth_run *run = berth__run_now;
    if (BERTH_UNLIKELY(!is_expected(run, a, size_bytes, alignment, request) || !out))
        return allocate_unexpected(a, size_bytes, alignment, request, out);
    const berth_step *step = run->next;
    BERTH_DCHECK(run->kind == BERTH_RUN_REPLAY && step->offset != UINT64_MAX,
                 "[R3] only a replay expects something, at a place of its plan");
    BERTH_DCHECK(alignment <= BERTH_ALIGNMENT_MAX && size_bytes <= BERTH__BLOCK_MOST,
                 "[I2] what a plan expects is what the front lets pass");
    __atomic_store_n(&run->next, step + 1, __ATOMIC_RELAXED);
    *out = run->base + step->offset;
    return BERTH_OK;
}

static berth_status no_allocator(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the allocator is NULL");
}

BERTH_HOT berth_status berth_deallocate(berth_allocator *a, void *p, size_t size_bytes, berth_stream *stream)
{
    if (BERTH_UNLIKELY(!a))
        return no_allocator();
    if (!p)
        return BERTH_OK;
    return berth__deallocate(a, p, size_bytes, stream);
}

static berth_status not_live(berth_allocator *a, const void *p)
{
    return berth__fail(BERTH_BAD_FREE, "%p is not a live block of %s: freed already, or not its own", p,
                       a->ops.name(a->self));
}

/* What `p` holds, from the caller, from tracking, or from the source. One that knows its blocks is asked first,
 * since the bytes of a block that is not live must not be read. */
static berth_status old_size(berth_allocator *a, const void *p, size_t told_bytes, size_t *out)
{
    berth__header header;
    if (a->header != BERTH__HEADER_NONE) { /* what was asked for: beyond it lies what nobody wrote */
        if (!berth__header_read(p, &header))
            return not_live(a, p);
        *out = (size_t)berth__size_of_word(header.size_and_tag);
        return BERTH_OK;
    }
    if (told_bytes && !a->knows_blocks) {
        *out = told_bytes;
        return BERTH_OK;
    }
    berth_status status = a->ops.requested_size(a->self, p, out);
    if (status == BERTH_UNSUPPORTED) {
        status = a->ops.allocated_size_slow(a->self, p, out);
        if (told_bytes && (status || told_bytes < *out))
            *out = told_bytes;
    }
    if (status == BERTH_NOT_FOUND)
        return not_live(a, p);
    if (!status || told_bytes)
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED,
                       "%s cannot tell how large the old block is; pass its size to berth_reallocate",
                       a->ops.name(a->self));
}

berth_status berth__finish_move(berth_allocator *a, void *p, size_t old_bytes, void *moved, size_t new_bytes,
                                const berth_request *request, void **out)
{
    berth_status status = berth__deallocate(a, p, old_bytes, request->stream);
    if (!berth__free_is_done(status)) {
        (void)berth__deallocate(a, moved, new_bytes, request->stream);
        return status;
    }
    *out = moved;
    return BERTH_OK;
}

static berth_status move_block(berth_allocator *a, void *p, size_t old_bytes, size_t new_bytes,
                               size_t alignment, const berth_request *request, void **out)
{
    size_t held = 0;
    berth_status status = old_size(a, p, old_bytes, &held);
    if (status)
        return status;
    void *moved = NULL;
    status = berth__allocate(a, new_bytes, alignment, request, &moved);
    if (status)
        return status;
    size_t kept = held < new_bytes ? held : new_bytes;
    berth_device device = a->ops.device(a->self);
    if (device.kind != BERTH_DEVICE_UNKNOWN) /* a dry run has no bytes to copy */
        status = berth_copy(device, moved, p, kept, BERTH_COPY_DEVICE_TO_DEVICE, request->stream, true);
    if (!status)
        return berth__finish_move(a, p, old_bytes, moved, new_bytes, request, out);
    (void)berth__deallocate(a, moved, new_bytes, request->stream);
    return status;
}

berth_status berth_reallocate(berth_allocator *a, void *p, size_t old_bytes, size_t new_bytes,
                              size_t alignment, const berth_request *request, void **out)
{
    if (!p)
        return berth_allocate(a, new_bytes, alignment, request, out);
    if (out)
        *out = NULL;
    if (!request_is_sound(a, new_bytes, alignment, request, out))
        return refuse_request(a, new_bytes, alignment, request, out);
    if (!request)
        request = &berth__plain_request;
    if (new_bytes == 0 && !a->ops.allocates_empty(a->self))
        return berth__deallocate(a, p, old_bytes, request->stream);
    uint64_t before = berth__failure_count;
    berth_status status = a->ops.reallocate(a->self, p, old_bytes, new_bytes, alignment, request, out);
    if (status == BERTH_UNSUPPORTED)
        status = move_block(a, p, old_bytes, new_bytes, alignment, request, out);
    return berth__check_answer(a, status, before, new_bytes, out);
}

/* ---- Questions ----------------------------------------------------------------------------------- */

berth_status berth_record_use(berth_allocator *a, const void *p, berth_stream *stream)
{
    if (!a || !p || !stream)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "berth_record_use needs an allocator, a block and a stream");
    return a->ops.record_use(a->self, p, stream);
}

const char *berth_allocator_name(berth_allocator *a)
{
    return a ? a->ops.name(a->self) : "";
}

berth_device berth_allocator_device(berth_allocator *a)
{
    return a ? a->ops.device(a->self) : (berth_device){BERTH_DEVICE_UNKNOWN, 0};
}

berth_memory_kind berth_allocator_memory_kind(berth_allocator *a)
{
    return a ? a->ops.memory_kind(a->self) : BERTH_MEMORY_DEVICE;
}

berth_status berth_allocator_owns(berth_allocator *a, const void *p)
{
    if (!a)
        return no_allocator();
    return p ? a->ops.owns(a->self, p) : BERTH_NOT_FOUND;
}

bool berth_allocator_tracks_sizes(berth_allocator *a)
{
    return a && a->ops.tracks_sizes(a->self);
}

bool berth_allocator_allocates_empty(berth_allocator *a)
{
    return a && a->ops.allocates_empty(a->self);
}

size_t berth_allocator_granularity(berth_allocator *a)
{
    size_t bytes = a ? a->ops.granularity(a->self) : 1;
    /* A user's answer: what is no unit says nothing. */
    return berth__is_power_of_two(bytes) && bytes <= BERTH_ALIGNMENT_MAX ? bytes : 1;
}

typedef berth_status (*size_op)(void *self, const void *p, size_t *out);

static berth_status ask_size(berth_allocator *a, size_op ask, const void *p, size_t *out)
{
    if (!a || !p || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a size query needs an allocator, a block and a result");
    size_t size = 0;
    berth_status status = ask(a->self, p, &size);
    if (!status)
        *out = size;
    return status;
}

berth_status berth_requested_size(berth_allocator *a, const void *p, size_t *out)
{
    return ask_size(a, a ? a->ops.requested_size : NULL, p, out);
}

berth_status berth_allocated_size(berth_allocator *a, const void *p, size_t *out)
{
    return ask_size(a, a ? a->ops.allocated_size : NULL, p, out);
}

berth_status berth_allocated_size_slow(berth_allocator *a, const void *p, size_t *out)
{
    return ask_size(a, a ? a->ops.allocated_size_slow : NULL, p, out);
}

berth_status berth_allocation_id(berth_allocator *a, const void *p, uint64_t *out)
{
    if (!a || !p || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "an id query needs an allocator, a block and a result");
    return a->ops.allocation_id(a->self, p, out);
}

berth_status berth_stats_get(berth_allocator *a, berth_stats *out)
{
    if (!a || !out || out->struct_size < sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s",
                           a && out ? "set struct_size to sizeof(berth_stats)"
                                    : "the allocator or out is NULL");
    /* The operation fills our whole struct; an older caller gets the part that it knows. */
    berth_stats full = {.struct_size = sizeof full};
    berth_status status = a->ops.stats(a->self, &full);
    if (status)
        return status;
    size_t known = out->struct_size < sizeof full ? out->struct_size : sizeof full;
    full.struct_size = out->struct_size;
    memcpy(out, &full, known);
    return BERTH_OK;
}

berth_status berth_stats_clear(berth_allocator *a)
{
    return a ? a->ops.clear_stats(a->self) : no_allocator();
}

berth_status berth_trim(berth_allocator *a, size_t keep_bytes, size_t *released)
{
    size_t ignored = 0;
    if (released)
        *released = 0;
    return a ? a->ops.trim(a->self, keep_bytes, released ? released : &ignored) : no_allocator();
}

berth_status berth_snapshot(berth_allocator *a, berth_block_fn visit, void *context)
{
    if (!a || !visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a snapshot needs an allocator and a function");
    return a->ops.snapshot(a->self, visit, context);
}

const char *berth__request_label(const berth_request *request)
{
    return request->label ? request->label : berth_scope_label();
}

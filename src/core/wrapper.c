/* Decorators: a table that forwards everything, and users' wrappers that change some of it. */
#include "core/answer.h"

/* ---- The forwarding table ------------------------------------------------------------------------ */

static inline berth_allocator *inner_of(void *self)
{
    return ((berth__wrapper *)self)->inner;
}

static berth_status forward_allocate(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    return berth__allocate(inner_of(self), size_bytes, alignment, request, out);
}

static berth_status forward_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    return berth__deallocate(inner_of(self), p, size_bytes, stream);
}

static berth_status forward_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                       size_t alignment, const berth_request *request, void **out)
{
    berth_allocator *a = inner_of(self);
    return a->ops.reallocate(a->self, p, old_bytes, new_bytes, alignment, request, out);
}

static berth_status forward_record_use(void *self, const void *p, berth_stream *stream)
{
    berth_allocator *a = inner_of(self);
    return a->ops.record_use(a->self, p, stream);
}

static berth_status forward_owns(void *self, const void *p)
{
    berth_allocator *a = inner_of(self);
    return a->ops.owns(a->self, p);
}

static berth_status forward_allocation_id(void *self, const void *p, uint64_t *out)
{
    berth_allocator *a = inner_of(self);
    return a->ops.allocation_id(a->self, p, out);
}

static berth_status forward_stats(void *self, berth_stats *out)
{
    berth_allocator *a = inner_of(self);
    return a->ops.stats(a->self, out);
}

static berth_status forward_clear_stats(void *self)
{
    berth_allocator *a = inner_of(self);
    return a->ops.clear_stats(a->self);
}

static berth_status forward_trim(void *self, size_t keep_bytes, size_t *released)
{
    berth_allocator *a = inner_of(self);
    return a->ops.trim(a->self, keep_bytes, released);
}

static berth_status forward_snapshot(void *self, berth_block_fn visit, void *context)
{
    berth_allocator *a = inner_of(self);
    return a->ops.snapshot(a->self, visit, context);
}

/* X(operation, result): the ones that ask about the allocator as a whole. */
#define QUESTIONS(X)                  \
    X(name, const char *)             \
    X(device, berth_device)           \
    X(memory_kind, berth_memory_kind) \
    X(tracks_sizes, bool)             \
    X(allocates_empty, bool)          \
    X(granularity, size_t)

/* X(operation): the ones that ask for a block's size. */
#define SIZE_QUESTIONS(X) X(requested_size) X(allocated_size) X(allocated_size_slow)

#define FORWARD_QUESTION(operation, result)       \
    static result forward_##operation(void *self) \
    {                                             \
        berth_allocator *a = inner_of(self);      \
        return a->ops.operation(a->self);         \
    }
QUESTIONS(FORWARD_QUESTION)

#define FORWARD_SIZE(operation)                                                     \
    static berth_status forward_##operation(void *self, const void *p, size_t *out) \
    {                                                                               \
        berth_allocator *a = inner_of(self);                                        \
        return a->ops.operation(a->self, p, out);                                   \
    }
SIZE_QUESTIONS(FORWARD_SIZE)

static void forward_destroy(void *self)
{
    berth__wrapper_finish(self);
    berth__heap_free(self);
}

const berth_allocator_ops berth__forward_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = forward_allocate,
    .deallocate = forward_deallocate,
    .destroy = forward_destroy,
    .reallocate = forward_reallocate,
    .record_use = forward_record_use,
    .name = forward_name,
    .device = forward_device,
    .memory_kind = forward_memory_kind,
    .owns = forward_owns,
    .tracks_sizes = forward_tracks_sizes,
    .allocates_empty = forward_allocates_empty,
    .requested_size = forward_requested_size,
    .allocated_size = forward_allocated_size,
    .allocated_size_slow = forward_allocated_size_slow,
    .allocation_id = forward_allocation_id,
    .stats = forward_stats,
    .clear_stats = forward_clear_stats,
    .trim = forward_trim,
    .snapshot = forward_snapshot,
    .granularity = forward_granularity,
};

void berth__wrapper_init(berth__wrapper *w, const berth_allocator_ops *ops, berth_allocator *inner)
{
    berth__allocator_init(&w->base, ops, w);
    w->inner = w->base.inner = berth_allocator_retain(inner);
    w->base.knows_blocks = inner->knows_blocks && ops->requested_size == forward_requested_size;
    w->base.metered = inner->metered;
    if (ops->record_use == forward_record_use)
        w->base.follows_streams = inner->follows_streams;
    if (ops->allocated_size == forward_allocated_size)
        w->base.grain_bytes = inner->grain_bytes;
    if (ops->stats == forward_stats) {
        w->base.in_use = inner->in_use;
        w->base.in_use_self = inner->in_use_self;
    }
    if (ops->allocate == forward_allocate) {
        w->base.allocate = inner->allocate;
        w->base.allocate_self = inner->allocate_self;
    }
    if (ops->deallocate == forward_deallocate) {
        w->base.deallocate = inner->deallocate;
        w->base.deallocate_self = inner->deallocate_self;
    }
}

void berth__wrapper_finish(berth__wrapper *w)
{
    berth_allocator_release(w->inner);
    w->inner = w->base.inner = NULL;
}

/* ---- Users' wrappers ----------------------------------------------------------------------------- */

/* A wrapper's own operations get the user's self, forwarded ones get ours: one step in between keeps both,
 * and looks at what allocating and freeing answer. */
struct user_wrapper {
    berth__wrapper base;
    berth_allocator_ops ops; /* as the user gave it; NULL: forwarded */
    void *self;
};

static berth_status user_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    struct user_wrapper *w = self;
    uint64_t before = berth__failure_count;
    berth_status status = w->ops.allocate(w->self, size_bytes, alignment, request, out);
    return berth__check_answer(&w->base.base, status, before, size_bytes, out);
}

static berth_status user_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct user_wrapper *w = self;
    uint64_t before = berth__failure_count;
    berth_status status = w->ops.deallocate(w->self, p, size_bytes, stream);
    const berth_allocator *a = &w->base.base;
    return BERTH_LIKELY(!status)
               ? BERTH_OK
               : berth__fail_unless_said(status, before, a->ops.name(a->self), "take a block back");
}

static berth_status user_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    struct user_wrapper *w = self;
    return w->ops.reallocate(w->self, p, old_bytes, new_bytes, alignment, request, out);
}

static berth_status user_record_use(void *self, const void *p, berth_stream *stream)
{
    struct user_wrapper *w = self;
    return w->ops.record_use(w->self, p, stream);
}

static berth_status user_owns(void *self, const void *p)
{
    struct user_wrapper *w = self;
    return w->ops.owns(w->self, p);
}

static berth_status user_allocation_id(void *self, const void *p, uint64_t *out)
{
    struct user_wrapper *w = self;
    return w->ops.allocation_id(w->self, p, out);
}

static berth_status user_stats(void *self, berth_stats *out)
{
    struct user_wrapper *w = self;
    return w->ops.stats(w->self, out);
}

static berth_status user_clear_stats(void *self)
{
    struct user_wrapper *w = self;
    return w->ops.clear_stats(w->self);
}

static berth_status user_trim(void *self, size_t keep_bytes, size_t *released)
{
    struct user_wrapper *w = self;
    return w->ops.trim(w->self, keep_bytes, released);
}

static berth_status user_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct user_wrapper *w = self;
    return w->ops.snapshot(w->self, visit, context);
}

#define USER_QUESTION(operation, result)       \
    static result user_##operation(void *self) \
    {                                          \
        struct user_wrapper *w = self;         \
        return w->ops.operation(w->self);      \
    }
QUESTIONS(USER_QUESTION)

#define USER_SIZE(operation)                                                     \
    static berth_status user_##operation(void *self, const void *p, size_t *out) \
    {                                                                            \
        struct user_wrapper *w = self;                                           \
        return w->ops.operation(w->self, p, out);                                \
    }
SIZE_QUESTIONS(USER_SIZE)

static void user_destroy(void *self)
{
    struct user_wrapper *w = self;
    if (w->ops.destroy)
        w->ops.destroy(w->self);
    berth__wrapper_finish(&w->base);
    berth__heap_free(w);
}

#define TAKE(operation)                       \
    do {                                      \
        if (given->operation)                 \
            ops.operation = user_##operation; \
    } while (0)

/* The forwarding table with the user's operations in their places. */
static berth_allocator_ops user_table(const berth_allocator_ops *given)
{
    berth_allocator_ops ops = berth__forward_ops;
    ops.destroy = user_destroy;
    TAKE(allocate);
    TAKE(deallocate);
    TAKE(record_use);
    TAKE(name);
    TAKE(device);
    TAKE(memory_kind);
    TAKE(owns);
    TAKE(tracks_sizes);
    TAKE(allocates_empty);
    TAKE(requested_size);
    TAKE(allocated_size);
    TAKE(allocated_size_slow);
    TAKE(allocation_id);
    TAKE(stats);
    TAKE(clear_stats);
    TAKE(trim);
    TAKE(snapshot);
    TAKE(granularity);
    /* A forwarded reallocate would pass by the wrapper's own allocate: without one of its own the front moves
     * the block through both. */
    if (given->allocate || given->deallocate)
        ops.reallocate = NULL;
    TAKE(reallocate);
    return ops;
}

berth_status berth_wrapper_create(berth_allocator *inner, const berth_allocator_ops *given, void *self,
                                  berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    berth_allocator_ops copy;
    berth_status status = berth__ops_copy(&copy, given);
    if (status)
        return status;
    struct user_wrapper *w = berth__heap_alloc(sizeof *w);
    if (!w)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a wrapper's handle");
    berth_allocator_ops ops = user_table(&copy);
    w->ops = copy;
    w->self = self;
    berth__wrapper_init(&w->base, &ops, inner);
    if (copy.allocate)
        w->base.base.knows_blocks = false;
    *out = &w->base.base;
    return BERTH_OK;
}

/* The arena as an allocator's only block, so that a planned allocator replays into it. */
#include "berth/source.h"
#include "core/allocator.h"
#include "count/scope.h"
#include "shared/shared.h"

/* Life: the handle's reference, and one more while the block is out. */
struct arena_source {
    berth__wrapper base;
    berth_shared *shared;
    _Atomic uint32_t uses;
    _Atomic uint64_t times; /* the arena was handed out, since the figures were cleared */
};

static void source_drop(struct arena_source *a)
{
    if (atomic_fetch_sub_explicit(&a->uses, 1, memory_order_acq_rel) != 1)
        return;
    berth_shared_release(a->shared);
    berth__wrapper_finish(&a->base);
    berth__heap_free(a);
}

static void arena_destroy(void *self)
{
    source_drop(self);
}

static bool is_arena(const struct arena_source *a, const void *p)
{
    return p == a->shared->arena;
}

static bool has_arena(const struct arena_source *a)
{
    return atomic_load_explicit(&a->shared->taker, memory_order_relaxed) == a;
}

/* Once for all allocators of a handle, as there is one arena. */
static berth_status take_arena(struct arena_source *a, void **out)
{
    const void *nobody = NULL;
    berth__shared_enter(a->shared);
    bool owned = a->shared->owns;
    bool taken = owned && atomic_compare_exchange_strong_explicit(&a->shared->taker, &nobody, a,
                                                                  memory_order_acquire, memory_order_relaxed);
    berth__shared_leave(a->shared);
    if (!owned)
        return berth__fail(BERTH_BUSY, "the handle does not own the arena: berth_shared_own comes first");
    if (!taken)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                           "the shared arena is in use: one replay at a time has room in it");
    atomic_fetch_add_explicit(&a->uses, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->times, 1, memory_order_relaxed);
    *out = a->shared->arena;
    return BERTH_OK;
}

/* What a planned allocator asks for its block it labels so; a program's request of that size is a program's. */
static bool is_block(const struct arena_source *a, size_t size_bytes, size_t alignment,
                     const berth_request *request)
{
    const berth__shared_head *head = berth__shared_head_of(a->shared);
    return request->label == berth__label_uncounted && size_bytes == head->arena_bytes &&
           alignment <= head->alignment && !(request->flags & BERTH_ZEROED);
}

static berth_status arena_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct arena_source *a = self;
    return is_block(a, size_bytes, alignment, request)
               ? take_arena(a, out)
               : berth__allocate(a->base.inner, size_bytes, alignment, request, out);
}

static berth_status arena_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct arena_source *a = self;
    if (!is_arena(a, p))
        return berth__deallocate(a->base.inner, p, size_bytes, stream);
    const void *self_taker = a;
    if (!atomic_compare_exchange_strong_explicit(&a->shared->taker, &self_taker, NULL, memory_order_release,
                                                 memory_order_relaxed))
        return berth__fail(BERTH_BAD_FREE,
                           "this allocator has not handed the shared arena out: freed twice, or another's");
    source_drop(a);
    return BERTH_OK;
}

static berth_status arena_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                     size_t alignment, const berth_request *request, void **out)
{
    struct arena_source *a = self;
    if (is_arena(a, p))
        return berth__fail(BERTH_UNSUPPORTED, "a shared arena keeps its size");
    return berth__forward_ops.reallocate(self, p, old_bytes, new_bytes, alignment, request, out);
}

static berth_status arena_owns(void *self, const void *p)
{
    struct arena_source *a = self;
    if (!has_arena(a) ||
        berth__distance(p, (uintptr_t)a->shared->arena) >= berth__shared_head_of(a->shared)->arena_bytes)
        return berth__forward_ops.owns(self, p);
    return BERTH_OK;
}

/* Sizes and ids of the block are told in one place only: here. */
static bool is_live_arena(const struct arena_source *a, const void *p)
{
    return is_arena(a, p) && has_arena(a);
}

static berth_status arena_size(void *self, const void *p, size_t *out,
                               berth_status (*forward)(void *self, const void *p, size_t *out))
{
    struct arena_source *a = self;
    if (!is_live_arena(a, p))
        return forward(self, p, out);
    *out = (size_t)berth__shared_head_of(a->shared)->arena_bytes;
    return BERTH_OK;
}

static berth_status arena_requested_size(void *self, const void *p, size_t *out)
{
    return arena_size(self, p, out, berth__forward_ops.requested_size);
}

static berth_status arena_allocated_size(void *self, const void *p, size_t *out)
{
    return arena_size(self, p, out, berth__forward_ops.allocated_size);
}

static berth_status arena_allocated_size_slow(void *self, const void *p, size_t *out)
{
    return arena_size(self, p, out, berth__forward_ops.allocated_size_slow);
}

static berth_status arena_allocation_id(void *self, const void *p, uint64_t *out)
{
    if (!is_live_arena(self, p))
        return berth__forward_ops.allocation_id(self, p, out);
    *out = 0;
    return BERTH_OK;
}

static berth_status arena_record_use(void *self, const void *p, berth_stream *stream)
{
    struct arena_source *a = self;
    if (is_live_arena(a, p))
        return berth__fail(BERTH_UNSUPPORTED, "a shared arena does not wait for streams");
    return berth__forward_ops.record_use(self, p, stream);
}

/* The inner allocator's figures, and the arena's. The peak is at most what both had together. */
static berth_status arena_stats(void *self, berth_stats *out)
{
    struct arena_source *a = self;
    uint64_t bytes = berth__shared_head_of(a->shared)->arena_bytes;
    uint64_t times = atomic_load_explicit(&a->times, memory_order_relaxed);
    bool is_out = has_arena(a);
    berth_status status = berth__forward_ops.stats(self, out);
    if (status)
        return status;
    out->num_allocs += times;
    out->total_bytes += times * bytes;
    out->bytes_in_use += is_out ? bytes : 0;
    out->max_bytes_in_use += is_out || times ? bytes : 0;
    if (times && bytes > out->max_alloc_size)
        out->max_alloc_size = bytes;
    out->bytes_reserved += bytes;
    out->max_bytes_reserved += bytes;
    return BERTH_OK;
}

static berth_status arena_clear_stats(void *self)
{
    struct arena_source *a = self;
    berth_status status = berth__forward_ops.clear_stats(self);
    if (!status)
        atomic_store_explicit(&a->times, 0, memory_order_relaxed);
    return status;
}

static const char *arena_name(void *self)
{
    (void)self;
    return "shared";
}

berth_status berth_shared_allocator_create(berth_shared *shared, berth_allocator *inner,
                                           berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    if (!shared)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no arena: the handle is NULL");
    struct arena_source *a = berth__heap_zaligned(sizeof *a, 64);
    if (!a)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a shared arena's allocator");
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = arena_allocate;
    ops.deallocate = arena_deallocate;
    ops.reallocate = arena_reallocate;
    ops.record_use = arena_record_use;
    ops.owns = arena_owns;
    ops.requested_size = arena_requested_size;
    ops.allocated_size = arena_allocated_size;
    ops.allocated_size_slow = arena_allocated_size_slow;
    ops.allocation_id = arena_allocation_id;
    ops.stats = arena_stats;
    ops.clear_stats = arena_clear_stats;
    ops.name = arena_name;
    ops.destroy = arena_destroy;
    berth__wrapper_init(&a->base, &ops, inner ? inner : berth_cpu_allocator());
    a->shared = berth_shared_retain(shared);
    atomic_init(&a->uses, 1);
    *out = &a->base.base;
    return BERTH_OK;
}

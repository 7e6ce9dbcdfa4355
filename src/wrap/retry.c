/* Retry: an allocation that finds no room waits for frees, up to a deadline. */
#include "berth/decorators.h"

#include <time.h>

#include "base/park.h"
#include "wrap/on_failure.h"

/* Besides being woken by frees a waiter looks again after this long: memory may come back by ways that do not
 * lead through here, and a free that was under way when the waiting began costs no more than this. */
#define LOOK_AGAIN_NS ((uint64_t)2000000)

struct retry {
    berth__on_failure base;
    uint64_t deadline_ns;
    _Atomic uint32_t waiting;
    _Atomic uint64_t num_retries;
    _Atomic uint32_t frees; /* seen while somebody waits; a word to wait for, since a fork could leave a mutex
                             * locked */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static berth_status retry_on_failure(berth__on_failure *self, const berth__asked *asked, berth_status refused)
{
    struct retry *r = (struct retry *)self;
    if (asked->request->flags & BERTH_NO_RETRY)
        return refused;
    uint64_t start = now_ns(), now;
    uint64_t deadline = r->deadline_ns < UINT64_MAX / 2 - start ? start + r->deadline_ns : UINT64_MAX / 2;
    atomic_fetch_add_explicit(&r->num_retries, 1, memory_order_relaxed);
    /* Known to be waiting before the next try: a free that begins after it wakes us. */
    atomic_fetch_add(&r->waiting, 1);
    berth_status status;
    for (;;) {
        uint32_t seen = atomic_load(&r->frees);
        status = berth__allocate(r->base.base.inner, asked->size_bytes, asked->alignment, asked->request,
                                 asked->out);
        now = now_ns();
        if (!berth__is_want_of_memory(status) || now >= deadline)
            break;
        berth__park(&r->frees, seen, deadline - now < LOOK_AGAIN_NS ? deadline - now : LOOK_AGAIN_NS);
    }
    atomic_fetch_sub(&r->waiting, 1);
    if (status && berth__is_want_of_memory(status)) {
        const berth_error said = *berth_last_error(); /* the driver's code and words stay beside ours */
        (void)berth__fail_driver(status, said.driver_code, said.driver_words,
                                 "waited %llu ms for frees in vain: %s",
                                 (unsigned long long)((now - start) / 1000000u), said.message);
    }
    return status;
}

static void retry_wake(struct retry *r)
{
    atomic_fetch_add(&r->frees, 1);
    berth__unpark_all(&r->frees);
}

BERTH__COLD static berth_status deallocate_and_wake(struct retry *r, void *p, size_t size_bytes,
                                                    berth_stream *stream)
{
    berth_status status = berth__deallocate(r->base.base.inner, p, size_bytes, stream);
    retry_wake(r);
    return status;
}

/* Looks for waiters first, so that it need not come back here: one that begins to wait during the free misses
 * it, and looks again by itself. */
static berth_status retry_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct retry *r = self;
    if (BERTH_UNLIKELY(atomic_load(&r->waiting) != 0))
        return deallocate_and_wake(r, p, size_bytes, stream);
    return berth__deallocate(r->base.base.inner, p, size_bytes, stream);
}

static berth_status retry_trim(void *self, size_t keep_bytes, size_t *released)
{
    struct retry *r = self;
    berth_allocator *inner = r->base.base.inner;
    berth_status status = inner->ops.trim(inner->self, keep_bytes, released);
    if (atomic_load(&r->waiting) != 0)
        retry_wake(r);
    return status;
}

static berth_status retry_stats(void *self, berth_stats *out)
{
    struct retry *r = self;
    berth_allocator *inner = r->base.base.inner;
    berth_status status = inner->ops.stats(inner->self, out);
    if (!status)
        out->num_retries += atomic_load_explicit(&r->num_retries, memory_order_relaxed);
    return status;
}

static berth_status retry_clear_stats(void *self)
{
    struct retry *r = self;
    berth_allocator *inner = r->base.base.inner;
    atomic_store_explicit(&r->num_retries, 0, memory_order_relaxed);
    return inner->ops.clear_stats(inner->self);
}

static void retry_destroy(void *self)
{
    struct retry *r = self;
    berth__wrapper_finish(&r->base.base);
    berth__heap_free(r);
}

berth_status berth_retry_create(berth_allocator *inner, const berth_retry_options *options,
                                berth_allocator **out)
{
    static const berth_retry_options defaults = BERTH_RETRY_OPTIONS_INIT;
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    if (!options)
        options = &defaults;
    if (options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_RETRY_OPTIONS_INIT",
                           options->struct_size);
    struct retry *r = berth__heap_zalloc(1, sizeof *r);
    if (!r)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a retry's handle");
    berth_allocator_ops ops = berth__forward_ops;
    ops.deallocate = retry_deallocate;
    ops.reallocate = NULL; /* the front moves the block through both of ours */
    ops.trim = retry_trim;
    ops.stats = retry_stats;
    ops.clear_stats = retry_clear_stats;
    ops.destroy = retry_destroy;
    r->deadline_ns = options->deadline_ns;
    berth__on_failure_init(&r->base, &ops, inner, retry_on_failure);
    *out = &r->base.base.base;
    return BERTH_OK;
}

/* The failure callback: somebody gives memory back, then the allocation is tried again. */
#include "berth/decorators.h"

#include "wrap/on_failure.h"

struct callback {
    berth__on_failure base;
    berth_failure_fn fn;
    void *context;
    _Atomic uint64_t num_retries;
};

/* What the callback allocates itself must not lead to the callback again. */
static _Thread_local bool inside_callback;

static size_t trim_inner(void *context, berth_allocator *inner, size_t size_bytes,
                         const berth_request *request)
{
    (void)context, (void)size_bytes, (void)request;
    size_t released = 0;
    return inner->ops.trim(inner->self, 0, &released) == BERTH_OK ? released : 0;
}

static berth_status callback_on_failure(berth__on_failure *self, const berth__asked *asked,
                                        berth_status status)
{
    struct callback *c = (struct callback *)self;
    if ((asked->request->flags & BERTH_NO_RETRY) || inside_callback)
        return status;
    atomic_fetch_add_explicit(&c->num_retries, 1, memory_order_relaxed);
    inside_callback = true;
    while (berth__is_want_of_memory(status)) {
        berth_error kept = *berth_last_error();
        if (c->fn(c->context, c->base.base.inner, asked->size_bytes, asked->request) == 0) {
            /* The callback may have failed at something of its own: the answer is the allocation's. */
            berth__fail_driver(status, kept.driver_code, kept.driver_words, "%s", kept.message);
            break;
        }
        status = berth__allocate(c->base.base.inner, asked->size_bytes, asked->alignment, asked->request,
                                 asked->out);
    }
    inside_callback = false;
    return status;
}

static berth_status callback_stats(void *self, berth_stats *out)
{
    struct callback *c = self;
    berth_allocator *inner = c->base.base.inner;
    berth_status status = inner->ops.stats(inner->self, out);
    if (!status)
        out->num_retries += atomic_load_explicit(&c->num_retries, memory_order_relaxed);
    return status;
}

static berth_status callback_clear_stats(void *self)
{
    struct callback *c = self;
    berth_allocator *inner = c->base.base.inner;
    atomic_store_explicit(&c->num_retries, 0, memory_order_relaxed);
    return inner->ops.clear_stats(inner->self);
}

static void callback_destroy(void *self)
{
    struct callback *c = self;
    berth__wrapper_finish(&c->base.base);
    berth__heap_free(c);
}

berth_status berth_failure_callback_create(berth_allocator *inner, berth_failure_fn fn, void *context,
                                           berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    struct callback *c = berth__heap_zalloc(1, sizeof *c);
    if (!c)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a failure callback's handle");
    berth_allocator_ops ops = berth__forward_ops;
    ops.reallocate = NULL; /* the front moves the block through our allocate */
    ops.stats = callback_stats;
    ops.clear_stats = callback_clear_stats;
    ops.destroy = callback_destroy;
    c->fn = fn ? fn : trim_inner;
    c->context = context;
    berth__on_failure_init(&c->base, &ops, inner, callback_on_failure);
    *out = &c->base.base.base;
    return BERTH_OK;
}

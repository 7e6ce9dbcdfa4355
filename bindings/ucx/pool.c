/* The pool over slabs, and what stands around it: a free voids the block's tickets first, unless it is none, and a child of a fork is
 * refused. */
#include <stdlib.h>

#include "inside.h"

const char bucx_pool_name[] = "ucx";

typedef struct ucx_pool {
    berth_ucx *ucx;
    berth_allocator *inner;
} ucx_pool;

static berth_status pool_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    const ucx_pool *pool = self;
    if (bucx_is_lost(pool->ucx))
        return bucx_lost();
    return berth_allocate(pool->inner, size_bytes, alignment, request, out);
}

/* As berth_deallocate says it. */
static bool is_freed(berth_status status)
{
    return !status || status == BERTH_CORRUPT || status == BERTH_MISMATCH || status == BERTH_DEVICE_LOST;
}

/* A free that is refused, such as one by another pool than the block's, leaves the tickets as they were. */
static berth_status deallocate_with_tickets(const ucx_pool *pool, void *p, size_t size_bytes,
                                            berth_stream *stream)
{
    uint64_t number = 0;
    bucx_lease *lease = bucx_tickets_suspend(pool->ucx, p, &number);
    berth_status status = berth_deallocate(pool->inner, p, size_bytes, stream);
    if (lease && is_freed(status))
        bucx_tickets_drop(pool->ucx, lease);
    else if (lease)
        bucx_tickets_resume(pool->ucx, lease, number);
    return status;
}

static berth_status pool_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    const ucx_pool *pool = self;
    if (BUCX_UNLIKELY(
            atomic_load_explicit(&pool->ucx->tickets.filter[bucx_chain_of(p)], memory_order_relaxed) != 0) &&
        !bucx_is_lost(pool->ucx))
        return deallocate_with_tickets(pool, p, size_bytes, stream);
    return berth_deallocate(pool->inner, p, size_bytes, stream);
}

/* In place or not, what the tickets say of the block is no longer so; unless nothing has come of it. */
static berth_status pool_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    const ucx_pool *pool = self;
    if (bucx_is_lost(pool->ucx))
        return bucx_lost();
    uint64_t number = 0;
    bucx_lease *lease = bucx_tickets_suspend(pool->ucx, p, &number);
    berth_status status = berth_reallocate(pool->inner, p, old_bytes, new_bytes, alignment, request, out);
    if (lease && !status)
        bucx_tickets_drop(pool->ucx, lease);
    else if (lease)
        bucx_tickets_resume(pool->ucx, lease, number);
    return status;
}

static const char *pool_name(void *self)
{
    (void)self;
    return bucx_pool_name;
}

static void count_pool(berth_ucx *ucx, bool more)
{
    bool lost = bucx_is_lost(ucx); /* the lock may be held by a thread that is not here */
    if (!lost)
        pthread_mutex_lock(&ucx->lock);
    ucx->pools += more ? 1 : UINT64_MAX;
    if (!lost)
        pthread_mutex_unlock(&ucx->lock);
}

static void pool_destroy(void *self)
{
    ucx_pool *pool = self;
    berth_ucx *ucx = pool->ucx;
    berth_allocator_release(pool->inner);
    free(pool);
    count_pool(ucx, false);
    bucx_drop(ucx);
}

static const berth_allocator_ops pool_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = pool_allocate,
    .deallocate = pool_deallocate,
    .destroy = pool_destroy,
    .reallocate = pool_reallocate,
    .name = pool_name,
};

static berth_status check_arguments(berth_ucx *ucx, const berth_pool_options *options)
{
    if (!ucx)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no berth_ucx to make a pool of: it is NULL");
    if (options && options->struct_size < sizeof *options)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "the options' struct_size is %zu: start from BERTH_POOL_OPTIONS_INIT",
                          options->struct_size);
    if (options && options->upstream)
        return berth_fail(
            BERTH_INVALID_ARGUMENT,
            "the pool's upstream is the source of slabs; memory comes from berth_ucx_options.memory");
    return bucx_is_lost(ucx) ? bucx_lost() : BERTH_OK;
}

berth_status berth_ucx_pool_create(berth_ucx *ucx, const berth_pool_options *options, berth_allocator **out)
{
    berth_pool_options o = BERTH_POOL_OPTIONS_INIT;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "there is no place for the pool: out is NULL");
    *out = NULL;
    berth_status status = check_arguments(ucx, options);
    if (status)
        return status;
    o = options ? *options : o;
    o.upstream = ucx->source;
    o.segment_bytes = o.segment_bytes ? o.segment_bytes : ucx->slab_bytes;
    ucx_pool *pool = malloc(sizeof *pool);
    if (!pool)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a pool");
    pool->ucx = ucx;
    status = berth_pool_create(&o, &pool->inner);
    if (status)
        goto free_pool;
    status = berth_wrapper_create(pool->inner, &pool_ops, pool, out);
    if (status)
        goto release_inner;
    atomic_fetch_add(&ucx->holders, 1);
    count_pool(ucx, true);
    return BERTH_OK;

release_inner:
    berth_allocator_release(pool->inner);
free_pool:
    free(pool);
    return status;
}

/* The source: each block is a slab, registered once. And the list of all live slabs of the process, by address. */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static bucx_slab **list;  /* guard: list_lock; by address */
static size_t list_count; /* guard: list_lock */
static size_t list_room;  /* guard: list_lock */

/* ---- The list ---------------------------------------------------------------------------------------- */

/* How many slabs begin at or before `p`. */
static size_t list_upto(const void *p)
{
    size_t low = 0, high = list_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)list[middle]->start <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool list_make_room(void)
{
    if (list_count < list_room)
        return true;
    size_t room = list_room ? 2 * list_room : 16;
    bucx_slab **larger = realloc(list, room * sizeof *list);
    if (!larger)
        return false;
    list = larger;
    list_room = room;
    return true;
}

static bool list_add(bucx_slab *slab)
{
    pthread_mutex_lock(&list_lock);
    bool ok = list_make_room();
    if (ok) {
        size_t at = list_upto(slab->start);
        memmove(list + at + 1, list + at, (list_count - at) * sizeof *list);
        list[at] = slab;
        list_count++;
    }
    pthread_mutex_unlock(&list_lock);
    return ok;
}

/* The slab that begins at `p` and belongs to `ucx`, no longer in the list; NULL: there is none. */
static bucx_slab *list_take(berth_ucx *ucx, const void *p)
{
    bucx_slab *slab = NULL;
    pthread_mutex_lock(&list_lock);
    size_t at = list_upto(p);
    if (at > 0 && list[at - 1]->start == p && list[at - 1]->ucx == ucx) {
        slab = list[--at];
        list_count--;
        memmove(list + at, list + at + 1, (list_count - at) * sizeof *list);
    }
    pthread_mutex_unlock(&list_lock);
    return slab;
}

berth_status bucx_slab_find(const void *p, bucx_slab *out)
{
    bool found = false;
    pthread_mutex_lock(&list_lock);
    size_t at = list_upto(p);
    if (at > 0) {
        *out = *list[at - 1];
        found = (uintptr_t)p - (uintptr_t)out->start < out->size_bytes;
    }
    pthread_mutex_unlock(&list_lock);
    return found ? BERTH_OK
                 : berth_fail(BERTH_NOT_FOUND, "%p is not memory that is registered with UCX here", p);
}

void bucx_slabs_forget(void)
{
    list_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    list = NULL; /* not freed: a thread that is not here may have been writing it */
    list_count = list_room = 0;
}

berth_status berth_ucx_locate(const void *p, berth_ucx_place *out)
{
    bucx_slab slab;
    if (!out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "a place needs its struct_size: start from BERTH_UCX_PLACE_INIT");
    berth_status status = bucx_slab_find(p, &slab);
    if (status)
        return status;
    const bucx_memory *m = &slab.memory;
    *out = (berth_ucx_place){.struct_size = sizeof *out,
                             .ucx = slab.ucx,
                             .base = m->base,
                             .size_bytes = m->size_bytes,
                             .offset_bytes = (uint64_t)((const char *)p - m->base),
                             .slab = slab.number,
                             .memory = m->handle,
                             .key = m->key,
                             .key_bytes = m->key_bytes};
    return BERTH_OK;
}

/* ---- The source's operations ------------------------------------------------------------------------- */

/* A slab is counted before it is there, so that nobody closes meanwhile. */
static berth_status count_slab(berth_ucx *ucx)
{
    pthread_mutex_lock(&ucx->lock);
    bool closed = ucx->closed;
    ucx->figures.slabs += !closed;
    pthread_mutex_unlock(&ucx->lock);
    return closed ? berth_fail(BERTH_DEVICE_LOST, "this source's berth_ucx was destroyed") : BERTH_OK;
}

static void uncount_slab(berth_ucx *ucx, uint64_t registered, uint64_t size_bytes)
{
    pthread_mutex_lock(&ucx->lock);
    ucx->figures.slabs--;
    ucx->figures.slab_bytes -= registered ? size_bytes : 0;
    pthread_mutex_unlock(&ucx->lock);
}

static berth_status make_slab(berth_ucx *ucx, size_t size_bytes, size_t alignment, bucx_slab *slab)
{
    size_t surplus = alignment > ucx->page_bytes ? alignment : 0; /* UCX aligns to pages */
    size_t pages = (size_bytes + surplus + ucx->page_bytes - 1) / ucx->page_bytes;
    berth_status status = bucx_memory_take(ucx, ucx->memory, pages * ucx->page_bytes, &slab->memory);
    if (status)
        return status;
    uintptr_t base = (uintptr_t)slab->memory.base;
    slab->start = slab->memory.base + (((base + alignment - 1) & ~(uintptr_t)(alignment - 1)) - base);
    slab->size_bytes = slab->memory.size_bytes - (size_t)(slab->start - slab->memory.base);
    slab->ucx = ucx;
    slab->number = atomic_fetch_add(&ucx->next_number, 1);
    if (slab->size_bytes >= size_bytes && list_add(slab))
        return BERTH_OK;
    bucx_memory_give(ucx, ucx->memory, &slab->memory);
    return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep note of a slab of %zu bytes", size_bytes);
}

static berth_status source_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth_ucx *ucx = self;
    (void)size_bytes;
    if (bucx_is_lost(ucx))
        return BERTH_OK; /* the child never had it */
    if (stream) {
        berth_status status = berth_stream_synchronize(stream);
        if (status)
            return status;
    }
    bucx_slab *slab = list_take(ucx, p);
    if (!slab)
        return berth_fail(BERTH_BAD_FREE, "%p is not a slab of this source: freed twice, or not its own", p);
    uint64_t bytes = slab->memory.size_bytes;
    bucx_memory_give(ucx, ucx->memory, &slab->memory);
    free(slab);
    uncount_slab(ucx, true, bytes);
    return BERTH_OK;
}

static berth_status source_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth_ucx *ucx = self;
    if (bucx_is_lost(ucx))
        return bucx_lost();
    if (size_bytes > SIZE_MAX / 4)
        return berth_fail(BERTH_OVERFLOW, "no slab holds %zu bytes", size_bytes);
    berth_status status = count_slab(ucx);
    if (status)
        return status;
    bucx_slab *slab = calloc(1, sizeof *slab);
    status = slab ? make_slab(ucx, size_bytes, alignment, slab)
                  : berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep note of a slab");
    if (status) {
        free(slab);
        uncount_slab(ucx, false, 0);
        return status;
    }
    pthread_mutex_lock(&ucx->lock);
    ucx->figures.registrations++;
    ucx->figures.slab_bytes += slab->memory.size_bytes;
    pthread_mutex_unlock(&ucx->lock);
    if (request->flags & BERTH_ZEROED)
        status = berth_zero(ucx->device, slab->start, size_bytes, NULL, true);
    if (status) {
        (void)source_deallocate(ucx, slab->start, size_bytes, NULL);
        return status;
    }
    *out = slab->start;
    return BERTH_OK;
}

static const char *source_name(void *self)
{
    (void)self;
    return "ucx slabs";
}

static berth_device source_device(void *self)
{
    return ((berth_ucx *)self)->device;
}

static berth_memory_kind source_memory_kind(void *self)
{
    return ((berth_ucx *)self)->kind;
}

static berth_status source_owns(void *self, const void *p)
{
    bucx_slab slab;
    if (bucx_is_lost(self))
        return bucx_lost();
    berth_status status = bucx_slab_find(p, &slab);
    return !status && slab.ucx != self ? BERTH_NOT_FOUND : status;
}

static size_t source_granularity(void *self)
{
    return ((berth_ucx *)self)->page_bytes;
}

static void source_destroy(void *self)
{
    bucx_drop(self);
}

const berth_allocator_ops bucx_source_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = source_allocate,
    .deallocate = source_deallocate,
    .destroy = source_destroy,
    .name = source_name,
    .device = source_device,
    .memory_kind = source_memory_kind,
    .owns = source_owns,
    .granularity = source_granularity,
};

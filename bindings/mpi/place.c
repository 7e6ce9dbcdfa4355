/* The window's memory as the block of the planned allocator. */
#include <stdlib.h>

#include "inside.h"

/* Set while a replay begins: what the planned allocator asks for then is its block. Everything else is the host's. */
static _Thread_local mpi_place *beginning;

static berth_allocator *host_of(void *self);

typedef struct place_self {
    mpi_place place; /* first: the job knows it by this */
    berth_allocator *host;
} place_self;

static berth_allocator *host_of(void *self)
{
    return ((place_self *)self)->host;
}

static berth_status place_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    mpi_place *place = self;
    if (beginning != place)
        return berth_allocate(host_of(self), size_bytes, alignment, request, out);
    if (!place->base || size_bytes > place->bytes || ((uintptr_t)place->base & (alignment - 1)) != 0)
        return berth_fail(BERTH_INTERNAL, "a plan of %zu bytes does not suit the window of %zu", size_bytes,
                          place->bytes);
    if (atomic_exchange(&place->taken, true))
        return berth_fail(
            BERTH_BUSY,
            "the window holds another replay, or pointers that have outlived one; free them first");
    *out = place->base;
    return BERTH_OK;
}

static berth_status place_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    mpi_place *place = self;
    if (p != place->base || !atomic_load(&place->taken))
        return berth_deallocate(host_of(self), p, size_bytes, stream);
    atomic_store(&place->taken, false);
    return BERTH_OK;
}

static berth_status place_size(void *self, const void *p, size_t *out)
{
    const mpi_place *place = self;
    if (p != place->base || !atomic_load(&place->taken))
        return berth_allocated_size(host_of(self), p, out);
    *out = place->bytes;
    return BERTH_OK;
}

static const char *place_name(void *self)
{
    (void)self;
    return "mpi window";
}

static void place_destroy(void *self)
{
    berth_allocator_release(host_of(self));
    free(self);
}

berth_status mpi_place_create(berth_allocator *host, mpi_place **place, berth_allocator **out)
{
    berth_allocator_ops ops = BERTH_ALLOCATOR_OPS_INIT;
    place_self *self = calloc(1, sizeof *self);
    *out = NULL;
    if (!self)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a window's record");
    self->host = berth_allocator_retain(host);
    ops.allocate = place_allocate;
    ops.deallocate = place_deallocate;
    ops.allocated_size = place_size;
    ops.name = place_name;
    ops.destroy = place_destroy;
    berth_status status = berth_wrapper_create(host, &ops, self, out);
    if (status)
        place_destroy(self);
    else
        *place = &self->place;
    return status;
}

void mpi_place_begin(mpi_place *place)
{
    beginning = place;
}

void mpi_place_end(void)
{
    beginning = NULL;
}

/* Taking memory from a device or from any allocator, and giving it back. */
#include "core/upstream.h"

berth_status berth__upstream_init(berth__upstream *u, berth_allocator *from, berth_device device,
                                  berth_memory_kind memory_kind, const char *label)
{
    *u = (berth__upstream){.label = label, .granularity = 1};
    bool named = device.kind != BERTH_DEVICE_UNKNOWN || device.ordinal != 0;
    if (!from) {
        u->device = named ? device : berth_device_cpu();
        u->memory_kind = memory_kind;
        return BERTH_OK;
    }
    u->device = berth_allocator_device(from);
    u->memory_kind = berth_allocator_memory_kind(from);
    if (named && !berth_device_equal(device, u->device))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the upstream %s has memory of another device than the one named; leave the "
                           "device out",
                           berth_allocator_name(from));
    u->granularity = berth_allocator_granularity(from);
    u->from = berth_allocator_retain(from);
    return BERTH_OK;
}

void berth__upstream_finish(berth__upstream *u)
{
    berth_allocator_release(u->from);
    u->from = NULL;
}

berth_status berth__upstream_take(const berth__upstream *u, size_t size_bytes, size_t alignment,
                                  uint32_t flags, void **out)
{
    if (!u->from)
        return berth_device_allocate(u->device, u->memory_kind, size_bytes, alignment, NULL, out);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = flags;
    request.label = u->label;
    berth_status status = berth_allocate(u->from, size_bytes, alignment, &request, out);
    if (status || ((uintptr_t)*out & (alignment - 1)) == 0)
        return status;
    void *p = *out;
    *out = NULL;
    (void)berth_deallocate(u->from, p, size_bytes, NULL);
    return berth__fail(BERTH_INTERNAL, "the upstream %s gave a block at %p, which is not a multiple of %zu",
                       berth_allocator_name(u->from), p, alignment);
}

berth_status berth__upstream_give(const berth__upstream *u, void *p, size_t size_bytes)
{
    if (!u->from)
        return berth_device_release(u->device, u->memory_kind, p, size_bytes, NULL);
    berth_status status = berth_deallocate(u->from, p, size_bytes, NULL);
    return berth__free_is_done(status) ? BERTH_OK : status; /* what is gone must not go twice */
}

/* The front of what only some devices can do: copies between two of them, free memory, memory of the program's that is
 * pinned, managed memory on its way, memory of other processes. */
#include "device/device.h"

#include <string.h>

static berth_status extras_null(const char *what)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", what);
}

static berth_status extras_range(const void *p, size_t size_bytes, const char *what)
{
    if (!p)
        return extras_null(what);
    if (size_bytes > UINTPTR_MAX - (uintptr_t)p)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes from %p run past the end of memory", size_bytes, p);
    return BERTH_OK;
}

static berth_status check_between(berth_device to, berth_device from, berth_stream *stream,
                                  const berth__device_type **type)
{
    berth_status status = berth__device_find(to, NULL, type);
    if (!status)
        status = berth__device_find(from, NULL, type);
    if (status)
        return status;
    if (to.kind != from.kind)
        return berth__fail(BERTH_UNSUPPORTED,
                           "a %s and a %s device have no way between them: use berth_buffer_copy",
                           berth_device_kind_name((berth_device_kind)to.kind), (*type)->name);
    if (stream && !berth_device_equal(stream->device, to) && !berth_device_equal(stream->device, from))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the stream belongs to %s device %d, neither end of the copy", stream->type->name,
                           (int)stream->device.ordinal);
    return BERTH_OK;
}

berth_status berth_copy_between(berth_device to, void *dst, berth_device from, const void *src,
                                size_t size_bytes, berth_stream *stream, bool need_sync)
{
    const berth__device_type *type;
    berth_status status = check_between(to, from, stream, &type);
    if (status)
        return status;
    if (berth_device_equal(to, from))
        return berth_copy(to, dst, src, size_bytes, BERTH_COPY_DEVICE_TO_DEVICE, stream, need_sync);
    if (size_bytes > 0) {
        uint64_t before = berth__device_before(type);
        status = extras_range(dst, size_bytes, "the destination");
        if (!status)
            status = extras_range(src, size_bytes, "the source");
        if (!status)
            status = berth__device_answer(
                type, type->ops.copy_between(type->self, to, dst, from, src, size_bytes, stream), before,
                "copy to another device");
    }
    return !status && stream && need_sync ? berth_stream_synchronize(stream) : status;
}

berth_status berth_device_memory(berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const berth__device_type *type;
    if (!free_bytes || !total_bytes)
        return extras_null(free_bytes ? "total_bytes" : "free_bytes");
    *free_bytes = *total_bytes = 0;
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.memory(type->self, device, free_bytes, total_bytes), before,
                                "say how much of its memory is free");
}

berth_status berth_device_register_host(berth_device device, void *p, size_t size_bytes)
{
    const berth__device_type *type;
    berth_status status = extras_range(p, size_bytes, "the memory to register");
    if (!status && size_bytes == 0)
        status = berth__fail(BERTH_INVALID_ARGUMENT, "0 bytes cannot be registered");
    if (!status)
        status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.register_host(type->self, device, p, size_bytes), before,
                                "register memory of the host");
}

berth_status berth_device_unregister_host(berth_device device, void *p)
{
    const berth__device_type *type;
    if (!p)
        return BERTH_OK;
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.unregister_host(type->self, device, p), before,
                                "unregister memory of the host");
}

berth_status berth_device_prefetch(berth_device device, void *p, size_t size_bytes, bool to_host,
                                   berth_stream *stream)
{
    const berth__device_type *type;
    berth_status status = berth__device_find(device, stream, &type);
    if (status || size_bytes == 0)
        return status;
    status = extras_range(p, size_bytes, "the memory to move");
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.prefetch(type->self, device, p, size_bytes, to_host, stream),
                                before, "move managed memory");
}

berth_status berth_device_advise(berth_device device, void *p, size_t size_bytes, berth_advice advice)
{
    const berth__device_type *type;
    berth_status status = berth__device_find(device, NULL, &type);
    if (!status && (advice < BERTH_ADVICE_READ_MOSTLY || advice > BERTH_ADVICE_MAP_HERE))
        status = berth__fail(BERTH_INVALID_ARGUMENT, "there is no advice %d", (int)advice);
    if (status || size_bytes == 0)
        return status;
    status = extras_range(p, size_bytes, "the memory");
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.advise(type->self, device, p, size_bytes, advice), before,
                                "take advice");
}

berth_status berth_device_share(berth_device device, void *p, berth_shared_handle *out)
{
    const berth__device_type *type;
    if (!p || !out)
        return extras_null(p ? "out" : "the memory to share");
    *out = (berth_shared_handle){{0}};
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.share(type->self, device, p, out), before, "share memory");
}

berth_status berth_device_open_shared(berth_device device, const berth_shared_handle *handle, void **out)
{
    const berth__device_type *type;
    if (!out)
        return extras_null("out");
    *out = NULL;
    if (!handle)
        return extras_null("handle");
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    void *opened = NULL;
    uint64_t before = berth__device_before(type);
    status = type->ops.open_shared(type->self, device, handle, &opened);
    if (status)
        return berth__device_answer(type, status, before, "open shared memory");
    if (!opened)
        return berth__fail(BERTH_DEVICE_ERROR,
                           "the %s device says that it opened shared memory, but gave none", type->name);
    *out = opened;
    return BERTH_OK;
}

berth_status berth_device_close_shared(berth_device device, void *p)
{
    const berth__device_type *type;
    if (!p)
        return BERTH_OK;
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.close_shared(type->self, device, p), before,
                                "close shared memory");
}

size_t berth__device_most_bytes(berth_device device, berth_memory_kind kind)
{
    const berth__device_type *type;
    size_t most = SIZE_MAX;
    if (berth__device_find(device, NULL, &type) != BERTH_OK ||
        type->ops.most_bytes(type->self, device, kind, &most) != BERTH_OK)
        return SIZE_MAX;
    return most;
}

size_t berth__device_offset_alignment(berth_device device)
{
    berth_device_info info = {.struct_size = sizeof info};
    berth_status status = berth_device_describe(device, &info);
    return !status && info.offset_alignment ? (size_t)info.offset_alignment : 1;
}

berth_status berth_device_locate(berth_device device, const void *p, berth_device_place *out)
{
    if (!p || !out)
        return extras_null(p ? "out" : "the address");
    if (out->struct_size <= sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out->struct_size is %zu: set it to sizeof *out",
                           out->struct_size);
    const berth__device_type *type;
    berth_status status = berth__device_find(device, NULL, &type);
    if (status)
        return status;
    berth_device_place place = {.struct_size = sizeof place};
    uint64_t before = berth__device_before(type);
    status = type->ops.locate(type->self, device, p, &place);
    if (status)
        return berth__device_answer(type, status, before, "say where an address lies");
    size_t known = out->struct_size < sizeof place ? out->struct_size : sizeof place;
    place.struct_size = out->struct_size;
    memcpy(out, &place, known);
    return BERTH_OK;
}

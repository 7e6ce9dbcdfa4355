/* Memory of CUDA and HIP devices: blocks of three kinds, copies, fills, and address space in pieces. */
#include "device/gpu.h"

#include <string.h>

/* ---- Blocks -------------------------------------------------------------------------------------- */

static int take(gpu_device *device, berth_memory_kind kind, size_t size_bytes, const gpu_stream *stream,
                void **out)
{
    const gpu_driver *driver = device->driver;
    switch (kind) {
    case BERTH_MEMORY_PINNED:
        return driver->take_pinned(size_bytes, out);
    case BERTH_MEMORY_MANAGED:
        return device->managed ? driver->take_managed(size_bytes, out) : GPU_NOT_SUPPORTED;
    default:
        return stream ? driver->take_async(size_bytes, stream->native, out) : driver->take(size_bytes, out);
    }
}

static int give(gpu_device *device, berth_memory_kind kind, void *raw)
{
    return kind == BERTH_MEMORY_PINNED ? device->driver->give_pinned(raw) : device->driver->give(raw);
}

static berth_status fail_memory(gpu_device *device, int code, berth_memory_kind kind, size_t size_bytes)
{
    berth_status shortage =
        kind == BERTH_MEMORY_PINNED ? BERTH_OUT_OF_HOST_MEMORY : BERTH_OUT_OF_DEVICE_MEMORY;
    if (code != GPU_OUT_OF_MEMORY)
        return berth__gpu_fail(device, code, shortage, "allocating memory");
    const char *words = device->driver->words(code);
    return berth__fail_driver(shortage, code, words, "%s device %d has no %zu bytes: %s",
                              device->driver->title, (int)device->ordinal, size_bytes, words);
}

/* Remembers what release must know about the block. */
static bool remember(gpu_device *device, void *p, void *raw, bool async)
{
    if (p != raw && !berth__pointers_put(&device->raw_blocks, p, raw, BERTH__RANK_DEVICE))
        return false;
    if (!async || berth__pointers_put(&device->async_blocks, raw, raw, BERTH__RANK_DEVICE))
        return true;
    if (p != raw)
        (void)berth__pointers_take(&device->raw_blocks, p, BERTH__RANK_DEVICE);
    return false;
}

static berth_status allocate_here(gpu_device *device, berth_memory_kind kind, size_t size_bytes,
                                  size_t alignment, const gpu_stream *stream, void **out)
{
    const gpu_stream *order = kind == BERTH_MEMORY_DEVICE && device->stream_ordered ? stream : NULL;
    size_t whole = alignment > GPU_ALIGNMENT ? size_bytes + alignment : size_bytes;
    void *raw = NULL;
    int code = take(device, kind, whole, order, &raw);
    if (code == GPU_NOT_SUPPORTED && order) { /* the driver has the function, the device has not the means */
        device->stream_ordered = false;
        order = NULL;
        code = take(device, kind, whole, NULL, &raw);
    }
    if (code == GPU_SUCCESS && alignment <= GPU_ALIGNMENT && (uintptr_t)raw % alignment != 0) {
        (void)give(device, kind, raw); /* a driver that aligns less than documented */
        code = take(device, kind, size_bytes + alignment, order, &raw);
    }
    if (code != GPU_SUCCESS)
        return fail_memory(device, code, kind, size_bytes);
    void *p = (char *)raw + (berth__align_up((uintptr_t)raw, alignment) - (uintptr_t)raw);
    if (!remember(device, p, raw, order != NULL)) {
        (void)give(device, kind, raw);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember where a block begins");
    }
    *out = p;
    return BERTH_OK;
}

berth_status berth__gpu_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    status = allocate_here(gpu, kind, size_bytes, alignment, (gpu_stream *)stream, out);
    gpu->driver->leave(gpu, before);
    return status;
}

berth_status berth__gpu_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                berth_stream *stream)
{
    (void)size_bytes;
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    void *raw = berth__pointers_take(&gpu->raw_blocks, p, BERTH__RANK_DEVICE);
    if (!raw)
        raw = p;
    bool async = berth__pointers_take(&gpu->async_blocks, raw, BERTH__RANK_DEVICE) != NULL;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    int code = GPU_SUCCESS;
    if (stream && async) {
        code = gpu->driver->give_async(raw, ((gpu_stream *)stream)->native);
    } else {
        if (stream) /* the block is not of the kind that goes in its turn: wait for its turn */
            code = gpu->driver->stream_synchronize(((gpu_stream *)stream)->native);
        if (code == GPU_SUCCESS)
            code = give(gpu, kind, raw);
    }
    gpu->driver->leave(gpu, before);
    return code == GPU_SUCCESS ? BERTH_OK
                               : berth__gpu_fail(gpu, code, BERTH_OUT_OF_HOST_MEMORY, "freeing a block");
}

/* ---- Copies and fills ---------------------------------------------------------------------------- */

static bool overlaps(const void *a, const void *b, size_t size_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < size_bytes : x - y < size_bytes;
}

/* The drivers do not promise anything for overlapping copies: through a block between. */
static int copy_overlapping(gpu_device *device, void *dst, const void *src, size_t size_bytes, void *stream)
{
    const gpu_driver *driver = device->driver;
    void *between = NULL;
    int code = device->stream_ordered ? driver->take_async(size_bytes, stream, &between)
                                      : driver->take(size_bytes, &between);
    if (code != GPU_SUCCESS)
        return code;
    code = driver->copy(between, src, size_bytes, stream);
    if (code == GPU_SUCCESS)
        code = driver->copy(dst, between, size_bytes, stream);
    if (device->stream_ordered) {
        int freed = driver->give_async(between, stream);
        return code == GPU_SUCCESS ? freed : code;
    }
    int waited = driver->stream_synchronize(stream);
    (void)driver->give(between);
    return code == GPU_SUCCESS ? waited : code;
}

/* With the device current: enqueues on the stream, or on our own and waits for that. */
static int copy_here(gpu_device *device, void *dst, const void *src, size_t size_bytes, gpu_stream *stream)
{
    void *native = stream ? stream->native : NULL;
    int code = stream ? GPU_SUCCESS : berth__gpu_own_stream(device, &native);
    if (code == GPU_SUCCESS)
        code = BERTH_UNLIKELY(overlaps(dst, src, size_bytes))
                   ? copy_overlapping(device, dst, src, size_bytes, native)
                   : device->driver->copy(dst, src, size_bytes, native);
    return code == GPU_SUCCESS && !stream ? device->driver->stream_synchronize(native) : code;
}

berth_status berth__gpu_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    if (kind == BERTH_COPY_HOST_TO_HOST && !stream) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    int code = copy_here(gpu, dst, src, size_bytes, (gpu_stream *)stream);
    gpu->driver->leave(gpu, before);
    return code == GPU_SUCCESS ? BERTH_OK : berth__gpu_fail(gpu, code, BERTH_OUT_OF_DEVICE_MEMORY, "a copy");
}

berth_status berth__gpu_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    void *native = stream ? ((gpu_stream *)stream)->native : NULL;
    int code = stream ? GPU_SUCCESS : berth__gpu_own_stream(gpu, &native);
    if (code == GPU_SUCCESS)
        code = gpu->driver->zero(dst, size_bytes, native);
    if (code == GPU_SUCCESS && !stream)
        code = gpu->driver->stream_synchronize(native);
    gpu->driver->leave(gpu, before);
    return code == GPU_SUCCESS ? BERTH_OK
                               : berth__gpu_fail(gpu, code, BERTH_OUT_OF_DEVICE_MEMORY, "filling with zero");
}

/* ---- Address space ------------------------------------------------------------------------------- */

/* BERTH_OK with the device current, or why not. */
static berth_status enter_for_pieces(gpu_device *device, uintptr_t *before)
{
    if (!device->pieces)
        return berth__fail(BERTH_UNSUPPORTED, "%s device %d, or its driver, cannot map memory in pieces",
                           device->driver->title, (int)device->ordinal);
    return berth__gpu_enter(device, before);
}

static berth_status leave_with(gpu_device *device, uintptr_t before, int code, const char *what)
{
    device->driver->leave(device, before);
    return code == GPU_SUCCESS ? BERTH_OK : berth__gpu_fail(device, code, BERTH_OUT_OF_DEVICE_MEMORY, what);
}

/* Asked once; the device is current. */
static int granularity_of(gpu_device *device, size_t *out)
{
    int code = GPU_SUCCESS;
    *out = atomic_load_explicit(&device->granularity, memory_order_relaxed);
    if (*out == 0) {
        code = device->driver->granularity(device, out);
        if (code == GPU_SUCCESS)
            atomic_store_explicit(&device->granularity, *out, memory_order_relaxed);
    }
    return code;
}

berth_status berth__gpu_granularity(berth_device device, size_t *out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    *out = atomic_load_explicit(&gpu->granularity, memory_order_relaxed);
    if (*out > 0)
        return BERTH_OK;
    berth_status status = enter_for_pieces(gpu, &before);
    if (status != BERTH_OK)
        return status;
    return leave_with(gpu, before, granularity_of(gpu, out), "asking for the size of pieces");
}

berth_status berth__gpu_reserve(berth_device device, size_t size_bytes, void **out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    size_t granularity = 0;
    berth_status status = enter_for_pieces(gpu, &before);
    if (status != BERTH_OK)
        return status;
    int code = granularity_of(gpu, &granularity);
    if (code == GPU_SUCCESS)
        code = gpu->driver->reserve(size_bytes, granularity, out);
    return leave_with(gpu, before, code, "reserving address space");
}

berth_status berth__gpu_unreserve(berth_device device, void *base, size_t size_bytes)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    berth_status status = enter_for_pieces(gpu, &before);
    if (status != BERTH_OK)
        return status;
    return leave_with(gpu, before, gpu->driver->unreserve(base, size_bytes), "giving address space back");
}

/* The drivers unmap only what one call has mapped. We map granule by granule, so that any run of them can go.
 */
static int unmap_granules(gpu_device *device, char *p, size_t size_bytes, size_t granularity)
{
    int worst = GPU_SUCCESS;
    for (size_t done = 0; done < size_bytes; done += granularity) {
        int code = device->driver->unmap(p + done, granularity);
        worst = worst == GPU_SUCCESS ? code : worst;
    }
    return worst;
}

static int map_granules(gpu_device *device, char *p, size_t size_bytes, size_t granularity)
{
    for (size_t done = 0; done < size_bytes; done += granularity) {
        int code = device->driver->map(device, p + done, granularity);
        if (code != GPU_SUCCESS) {
            (void)unmap_granules(device, p, done, granularity);
            return code;
        }
    }
    return GPU_SUCCESS;
}

berth_status berth__gpu_map(berth_device device, void *p, size_t size_bytes)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    size_t granularity = 0;
    berth_status status = enter_for_pieces(gpu, &before);
    if (status != BERTH_OK)
        return status;
    int code = granularity_of(gpu, &granularity);
    if (code == GPU_SUCCESS)
        code = map_granules(gpu, p, size_bytes, granularity);
    return leave_with(gpu, before, code, "mapping memory");
}

berth_status berth__gpu_unmap(berth_device device, void *p, size_t size_bytes)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    size_t granularity = 0;
    berth_status status = enter_for_pieces(gpu, &before);
    if (status != BERTH_OK)
        return status;
    int code = granularity_of(gpu, &granularity);
    if (code == GPU_SUCCESS)
        code = unmap_granules(gpu, p, size_bytes, granularity);
    return leave_with(gpu, before, code, "unmapping memory");
}

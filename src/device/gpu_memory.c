/* Memory of CUDA and HIP devices: blocks of every kind, copies and fills. */
#include "device/gpu.h"

#include <string.h>

/* ---- Blocks -------------------------------------------------------------------------------------- */

static int gpu_take_here(gpu_device *device, berth_memory_kind kind, size_t size_bytes, void **out)
{
    const gpu_driver *driver = device->driver;
    switch (kind) {
    case BERTH_MEMORY_PINNED:
    case BERTH_MEMORY_WRITE_COMBINED:
        return driver->take_pinned(size_bytes, kind == BERTH_MEMORY_WRITE_COMBINED, out);
    case BERTH_MEMORY_MANAGED:
        return device->managed ? driver->take_managed(size_bytes, out) : GPU_NOT_SUPPORTED;
    default:
        return driver->take(size_bytes, out);
    }
}

/* The pool behind stream-ordered memory, made on first use. The device is current. */
static int gpu_pool(gpu_device *device, void **out)
{
    *out = atomic_load_explicit(&device->pool, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return GPU_SUCCESS;
    int code = device->driver->pool_create(device, out);
    void *other = NULL;
    if (code == GPU_SUCCESS && !atomic_compare_exchange_strong(&device->pool, &other, *out))
        *out = other; /* another thread's; ours is empty, and costs nothing while it is */
    return code;
}

/* What freed stream-ordered blocks keep goes back to the device; those that their stream has not passed only once it
 * has. */
static bool gpu_trim_pool(gpu_device *device, const gpu_stream *stream)
{
    void *pool = atomic_load_explicit(&device->pool, memory_order_acquire);
    if (!pool)
        return false;
    if (stream)
        (void)device->driver->stream_synchronize(stream->native);
    return device->driver->pool_trim(pool) == GPU_SUCCESS;
}

static int gpu_take_on(gpu_device *device, size_t size_bytes, const gpu_stream *stream, void **out)
{
    void *pool = NULL;
    int code = gpu_pool(device, &pool);
    if (code == GPU_SUCCESS)
        code = device->driver->take_async(size_bytes, pool, stream->native, out);
    return code;
}

static int gpu_take(gpu_device *device, berth_memory_kind kind, size_t size_bytes, const gpu_stream *stream,
                    void **out)
{
    int code = GPU_OUT_OF_MEMORY;
    for (int turn = 0; turn < 3 && code == GPU_OUT_OF_MEMORY; turn++) {
        if (turn > 0 && !gpu_trim_pool(device, turn > 1 ? stream : NULL))
            break;
        code = stream ? gpu_take_on(device, size_bytes, stream, out)
                      : gpu_take_here(device, kind, size_bytes, out);
    }
    return code;
}

static bool is_pinned(berth_memory_kind kind)
{
    return kind == BERTH_MEMORY_PINNED || kind == BERTH_MEMORY_WRITE_COMBINED;
}

static int gpu_give(gpu_device *device, berth_memory_kind kind, void *raw)
{
    return is_pinned(kind) ? device->driver->give_pinned(raw) : device->driver->give(raw);
}

static berth_status fail_memory(gpu_device *device, int code, berth_memory_kind kind, size_t size_bytes)
{
    berth_status shortage = is_pinned(kind) ? BERTH_OUT_OF_HOST_MEMORY : BERTH_OUT_OF_DEVICE_MEMORY;
    if (code != GPU_OUT_OF_MEMORY)
        return berth__gpu_fail(device, code, shortage, "allocating memory");
    const char *words = device->driver->words(code);
    device->driver->forget_error();
    return berth__fail_driver(shortage, code, words, "%s device %d has no %zu bytes: %s",
                              device->driver->title, (int)device->ordinal, size_bytes, words);
}

/* Remembers what release must know about the block. */
static bool gpu_remember(gpu_device *device, void *p, void *raw, bool async)
{
    if (p != raw && !berth__pointers_put(&device->raw_blocks, p, raw, BERTH__RANK_DEVICE))
        return false;
    if (!async || berth__pointers_put(&device->async_blocks, raw, raw, BERTH__RANK_DEVICE))
        return true;
    if (p != raw)
        (void)berth__pointers_take(&device->raw_blocks, p, BERTH__RANK_DEVICE);
    return false;
}

/* Takes the block and says whether it is a stream-ordered one. */
static int gpu_take_any(gpu_device *device, berth_memory_kind kind, size_t size_bytes,
                        const gpu_stream *stream, bool *async, void **out)
{
    bool capturing = false;
    *async = kind == BERTH_MEMORY_DEVICE && device->stream_ordered && stream;
    if (*async && device->driver->stream_capturing(stream->native, &capturing) == GPU_SUCCESS && capturing)
        *async = false; /* it would belong to the graph, and be gone when that is */
    int code = gpu_take(device, kind, size_bytes, *async ? stream : NULL, out);
    if (code == GPU_NOT_SUPPORTED && *async) { /* the driver has the function, the device has not the means */
        device->driver->forget_error();
        device->stream_ordered = false;
        *async = false;
        code = gpu_take(device, kind, size_bytes, NULL, out);
    }
    return code;
}

static void gpu_give_any(gpu_device *device, berth_memory_kind kind, void *raw, bool async,
                         const gpu_stream *stream)
{
    if (async)
        (void)device->driver->give_async(raw, stream->native);
    else
        (void)gpu_give(device, kind, raw);
}

static berth_status gpu_allocate_here(gpu_device *device, berth_memory_kind kind, size_t size_bytes,
                                      size_t alignment, const gpu_stream *stream, void **out)
{
    size_t whole = alignment > GPU_ALIGNMENT ? size_bytes + alignment : size_bytes;
    void *raw = NULL;
    bool async = false;
    int code = gpu_take_any(device, kind, whole, stream, &async, &raw);
    if (code == GPU_SUCCESS && alignment <= GPU_ALIGNMENT && (uintptr_t)raw % alignment != 0) {
        gpu_give_any(device, kind, raw, async, stream); /* a driver that aligns less than documented */
        code = gpu_take_any(device, kind, size_bytes + alignment, stream, &async, &raw);
    }
    if (code != GPU_SUCCESS)
        return fail_memory(device, code, kind, size_bytes);
    void *p = (char *)raw + (berth__align_up((uintptr_t)raw, alignment) - (uintptr_t)raw);
    if (!gpu_remember(device, p, raw, async)) {
        gpu_give_any(device, kind, raw, async, stream);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to remember where a block begins");
    }
    *out = p;
    return BERTH_OK;
}

berth_status berth__gpu_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    status = gpu_allocate_here(gpu, kind, size_bytes, alignment, (gpu_stream *)stream, out);
    berth__gpu_leave(gpu, &visit);
    return status;
}

/* The device is current. A block that is not of the kind that goes in its turn waits for its turn. */
static berth_status gpu_release_here(gpu_device *gpu, berth_memory_kind kind, void *raw, bool async,
                                     const gpu_stream *stream)
{
    berth_status status = stream ? berth__gpu_not_captured(stream, "freeing memory on it") : BERTH_OK;
    if (status)
        return status;
    int code = GPU_SUCCESS;
    if (stream && async) {
        code = gpu->driver->give_async(raw, stream->native);
    } else {
        if (stream)
            code = gpu->driver->stream_synchronize(stream->native);
        if (code == GPU_SUCCESS)
            code = gpu_give(gpu, kind, raw);
    }
    return code == GPU_SUCCESS ? BERTH_OK
                               : berth__gpu_fail(gpu, code, BERTH_OUT_OF_HOST_MEMORY, "freeing a block");
}

berth_status berth__gpu_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    void *raw = berth__pointers_take(&gpu->raw_blocks, p, BERTH__RANK_DEVICE);
    if (!raw)
        raw = p;
    bool async = berth__pointers_take(&gpu->async_blocks, raw, BERTH__RANK_DEVICE) != NULL;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (!status) {
        status = gpu_release_here(gpu, kind, raw, async, (gpu_stream *)stream);
        berth__gpu_leave(gpu, &visit);
    }
    /* What the driver did not take is still the caller's, who may try again. */
    if (status && status != BERTH_DEVICE_LOST && !gpu_remember(gpu, p, raw, async))
        berth__log(BERTH_LOG_ERROR, "a block at %p could not be freed and is lost: %s", p,
                   berth_last_error()->message);
    return status;
}

/* ---- Copies and fills ---------------------------------------------------------------------------- */

static bool gpu_overlaps(const void *a, const void *b, size_t size_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < size_bytes : x - y < size_bytes;
}

/* The drivers do not promise anything for overlapping copies: through a block between. Stream-ordered where that is
 * possible; else the stream is waited for, since the block must not go before. */
static int copy_overlapping(gpu_device *device, void *dst, const void *src, size_t size_bytes,
                            const gpu_stream *stream)
{
    const gpu_driver *driver = device->driver;
    void *between = NULL;
    bool async = false;
    int code = gpu_take_any(device, BERTH_MEMORY_DEVICE, size_bytes, stream, &async, &between);
    if (code != GPU_SUCCESS)
        return code;
    code = driver->copy(between, src, size_bytes, stream->native);
    if (code == GPU_SUCCESS)
        code = driver->copy(dst, between, size_bytes, stream->native);
    if (async) {
        int freed = driver->give_async(between, stream->native);
        return code == GPU_SUCCESS ? freed : code;
    }
    int waited = driver->stream_synchronize(stream->native);
    if (waited == GPU_SUCCESS) /* else the copy may still run: better lost than overwritten */
        (void)driver->give(between);
    return code == GPU_SUCCESS ? waited : code;
}

/* The stream for the work: the caller's, or our own in `own`. The device is current. */
static int gpu_stream_for(gpu_device *device, berth_stream *stream, gpu_stream *own, const gpu_stream **out)
{
    *out = (gpu_stream *)stream;
    if (stream)
        return GPU_SUCCESS;
    *own = (gpu_stream){.device = device};
    *out = own;
    return berth__gpu_own_stream(device, &own->native);
}

/* With the device current: enqueues on the stream, or on our own and waits for that. */
static int copy_here(gpu_device *device, void *dst, const void *src, size_t size_bytes, berth_stream *stream)
{
    gpu_stream own;
    const gpu_stream *on = NULL;
    int code = gpu_stream_for(device, stream, &own, &on);
    if (code == GPU_SUCCESS)
        code = BERTH_UNLIKELY(gpu_overlaps(dst, src, size_bytes))
                   ? copy_overlapping(device, dst, src, size_bytes, on)
                   : device->driver->copy(dst, src, size_bytes, on->native);
    return code == GPU_SUCCESS && !stream ? device->driver->stream_synchronize(on->native) : code;
}

berth_status berth__gpu_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    if (kind == BERTH_COPY_HOST_TO_HOST && !stream) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = copy_here(gpu, dst, src, size_bytes, stream);
    berth__gpu_leave(gpu, &visit);
    return code == GPU_SUCCESS ? BERTH_OK : berth__gpu_fail(gpu, code, BERTH_OUT_OF_DEVICE_MEMORY, "a copy");
}

/* Asked for once a pair; a copy works without it, only slower. The device is current. */
static void gpu_ask_for_peer(gpu_device *device, gpu_device *peer)
{
    uint64_t bit = (uint64_t)1 << peer->ordinal;
    if (atomic_fetch_or(&device->peers_asked, bit) & bit || !device->driver->can_reach(device, peer))
        return;
    int code = device->driver->enable_peer(peer);
    if (code == GPU_SUCCESS)
        return;
    device->driver->forget_error();
    if (code != GPU_PEER_ALREADY_ENABLED)
        berth__log(BERTH_LOG_INFO, "%s device %d cannot be let at the memory of device %d: %s",
                   device->driver->title, (int)device->ordinal, (int)peer->ordinal,
                   device->driver->words(code));
}

berth_status berth__gpu_copy_between(void *self, berth_device to, void *dst, berth_device from,
                                     const void *src, size_t size_bytes, berth_stream *stream)
{
    (void)self;
    gpu_device *there = berth__gpu_device(to), *here = berth__gpu_device(from);
    gpu_device *doer = stream ? ((gpu_stream *)stream)->device : there, *peer = doer == there ? here : there;
    gpu_stream own;
    const gpu_stream *on = NULL;
    gpu_visit visit;
    berth_status status = berth__gpu_alive(peer);
    if (!status)
        status = berth__gpu_enter(doer, &visit);
    if (status)
        return status;
    gpu_ask_for_peer(doer, peer);
    int code = gpu_stream_for(doer, stream, &own, &on);
    if (code == GPU_SUCCESS)
        code = doer->driver->copy_peer(dst, there, src, here, size_bytes, on->native);
    if (code == GPU_SUCCESS && !stream)
        code = doer->driver->stream_synchronize(on->native);
    berth__gpu_leave(doer, &visit);
    return code == GPU_SUCCESS
               ? BERTH_OK
               : berth__gpu_fail(doer, code, BERTH_OUT_OF_DEVICE_MEMORY, "a copy between two devices");
}

berth_status berth__gpu_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_stream own;
    const gpu_stream *on = NULL;
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = gpu_stream_for(gpu, stream, &own, &on);
    if (code == GPU_SUCCESS)
        code = gpu->driver->zero(dst, size_bytes, on->native);
    if (code == GPU_SUCCESS && !stream)
        code = gpu->driver->stream_synchronize(on->native);
    berth__gpu_leave(gpu, &visit);
    return code == GPU_SUCCESS ? BERTH_OK
                               : berth__gpu_fail(gpu, code, BERTH_OUT_OF_DEVICE_MEMORY, "filling with zero");
}

/* What CUDA and HIP devices do for memory beside allocating it: how much is free, memory of the program's that is pinned,
 * managed memory on its way, memory of other processes. */
#include "device/gpu.h"

#include <string.h>

enum { ALREADY_REGISTERED = 712, NOT_REGISTERED = 713 };

static berth_status sharing_leave(gpu_device *device, const gpu_visit *visit, int code, berth_status shortage,
                                  const char *what)
{
    berth__gpu_leave(device, visit);
    return code == GPU_SUCCESS ? BERTH_OK : berth__gpu_fail(device, code, shortage, what);
}

berth_status berth__gpu_memory(void *self, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    size_t left = 0, whole = 0;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    status = sharing_leave(gpu, &visit, gpu->driver->memory(&left, &whole), BERTH_OUT_OF_DEVICE_MEMORY,
                           "asking how much memory is free");
    if (!status) {
        *free_bytes = left;
        *total_bytes = whole;
    }
    return status;
}

berth_status berth__gpu_register_host(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = gpu->driver->register_host(p, size_bytes);
    status = sharing_leave(gpu, &visit, code, BERTH_OUT_OF_HOST_MEMORY, "registering host memory");
    if (code != ALREADY_REGISTERED)
        return status;
    return berth__fail_driver(BERTH_ALREADY_EXISTS, code, gpu->driver->words(code),
                              "%zu bytes at %p, or a part of them, are registered already", size_bytes, p);
}

berth_status berth__gpu_unregister_host(void *self, berth_device device, void *p)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = gpu->driver->unregister_host(p);
    status = sharing_leave(gpu, &visit, code, BERTH_OUT_OF_HOST_MEMORY, "unregistering host memory");
    if (code != NOT_REGISTERED)
        return status;
    return berth__fail_driver(BERTH_NOT_FOUND, code, gpu->driver->words(code),
                              "no registered memory begins at %p", p);
}

berth_status berth__gpu_prefetch(void *self, berth_device device, void *p, size_t size_bytes, bool to_host,
                                 berth_stream *stream)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    void *native = stream ? ((gpu_stream *)stream)->native : NULL;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = stream ? GPU_SUCCESS : berth__gpu_own_stream(gpu, &native);
    if (code == GPU_SUCCESS)
        code = gpu->driver->prefetch(p, size_bytes, to_host ? NULL : gpu, native);
    return sharing_leave(gpu, &visit, code, BERTH_OUT_OF_DEVICE_MEMORY, "moving managed memory");
}

berth_status berth__gpu_advise(void *self, berth_device device, void *p, size_t size_bytes,
                               berth_advice advice)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    return sharing_leave(gpu, &visit, gpu->driver->advise(p, size_bytes, advice, gpu),
                         BERTH_OUT_OF_DEVICE_MEMORY, "saying how managed memory is used");
}

berth_status berth__gpu_share(void *self, berth_device device, void *p, berth_shared_handle *out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = gpu->driver->share(p, out->bytes);
    status =
        sharing_leave(gpu, &visit, code, BERTH_OUT_OF_DEVICE_MEMORY, "making a handle for other processes");
    if (code != GPU_INVALID_VALUE)
        return status;
    return berth__fail_driver(
        BERTH_UNSUPPORTED, code, gpu->driver->words(code),
        "%s gives no handle for the memory at %p: it must begin a block that was allocated from "
        "the device without a stream, not one of a pool that maps in pieces",
        gpu->driver->title, p);
}

berth_status berth__gpu_open_shared(void *self, berth_device device, const berth_shared_handle *handle,
                                    void **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    void *p = NULL;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    status = sharing_leave(gpu, &visit, gpu->driver->open_shared(handle->bytes, &p),
                           BERTH_OUT_OF_DEVICE_MEMORY, "opening memory of another process");
    if (!status)
        *out = p;
    return status;
}

berth_status berth__gpu_close_shared(void *self, berth_device device, void *p)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    return sharing_leave(gpu, &visit, gpu->driver->close_shared(p), BERTH_OUT_OF_DEVICE_MEMORY,
                         "closing memory of another process");
}

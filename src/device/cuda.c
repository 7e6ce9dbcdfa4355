/* The CUDA driver, loaded at run time, as a table for the common backend in gpu.c. */
#include "device/cuda.h"

#include <stdio.h>
#include <string.h>

#include "device/gpu.h"

static cuda_functions cu; /* filled once, by load */

#define NEED_required false
#define NEED_optional true
#define SYMBOL(need, result, name, parameters) {#name, offsetof(cuda_functions, name), NEED_##need},
static const berth__symbol symbols[] = {CUDA_FUNCTIONS(SYMBOL)};
#undef SYMBOL

static cuda_pointer address(const void *p)
{
    return (cuda_pointer)(uintptr_t)p;
}

static void *pointer(cuda_pointer p)
{
    return (void *)(uintptr_t)p; /* NOLINT(performance-no-int-to-ptr): that is what the driver hands out */
}

/* ---- Devices ------------------------------------------------------------------------------------- */

static const char *words(int code)
{
    const char *name = NULL;
    if (!cu.cuGetErrorName || cu.cuGetErrorName((cuda_result)code, &name) != GPU_SUCCESS || !name)
        return "an unknown CUDA error";
    return name;
}

static int load(char *why, size_t why_bytes)
{
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    char reason[200] = "";
    int count = 0;
    void *library = berth__library_open("BERTH_CUDA_LIBRARY", names, reason, sizeof reason);
    if (!library ||
        !berth__library_symbols(library, symbols, BERTH_COUNT_OF(symbols), &cu, reason, sizeof reason)) {
        snprintf(why, why_bytes, "no CUDA: %s; it comes with NVIDIA's driver (Debian: libcuda1)", reason);
        return 0;
    }
    cuda_result code = cu.cuInit(0);
    if (code == GPU_SUCCESS)
        code = cu.cuDeviceGetCount(&count);
    if (code == GPU_NO_DEVICE || (code == GPU_SUCCESS && count == 0))
        snprintf(why, why_bytes, "the CUDA driver is there but finds no device");
    else if (code != GPU_SUCCESS)
        snprintf(why, why_bytes, "the CUDA driver does not start: %s", words((int)code));
    return code == GPU_SUCCESS ? count : 0;
}

static bool can(const gpu_device *device, unsigned int attribute)
{
    int value = 0;
    return cu.cuDeviceGetAttribute(&value, attribute, device->handle) == GPU_SUCCESS && value != 0;
}

static int open(gpu_device *device)
{
    int version = 0;
    size_t bytes = 0;
    cuda_result code = cu.cuDeviceGet(&device->handle, device->ordinal);
    if (code == GPU_SUCCESS)
        code = cu.cuDeviceGetName(device->name, (int)sizeof device->name, device->handle);
    if (code == GPU_SUCCESS)
        code = cu.cuDeviceTotalMem_v2(&bytes, device->handle);
    if (code != GPU_SUCCESS)
        return (int)code;
    (void)cu.cuDriverGetVersion(&version);
    snprintf(device->version, sizeof device->version, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    device->total_bytes = bytes;
    device->managed = can(device, CUDA_ATTRIBUTE_MANAGED_MEMORY);
    device->stream_ordered =
        cu.cuMemAllocAsync && cu.cuMemFreeAsync && can(device, CUDA_ATTRIBUTE_MEMORY_POOLS);
    device->pieces = cu.cuMemAddressReserve && cu.cuMemAddressFree && cu.cuMemCreate && cu.cuMemRelease &&
                     cu.cuMemMap && cu.cuMemUnmap && cu.cuMemSetAccess && cu.cuMemGetAllocationGranularity &&
                     can(device, CUDA_ATTRIBUTE_VIRTUAL_MEMORY);
    return GPU_SUCCESS;
}

/* The primary context is the one that the CUDA runtime and other libraries use too. */
static int enter(gpu_device *device, uintptr_t *before)
{
    struct CUctx_st *context = atomic_load_explicit(&device->context, memory_order_acquire), *current = NULL;
    *before = 0;
    if (BERTH_UNLIKELY(!context)) {
        cuda_result code = cu.cuDevicePrimaryCtxRetain(&context, device->handle);
        if (code != GPU_SUCCESS)
            return (int)code;
        atomic_store_explicit(&device->context, context, memory_order_release);
    }
    cuda_result code = cu.cuCtxGetCurrent(&current);
    if (code != GPU_SUCCESS || current == context)
        return (int)code;
    code = cu.cuCtxPushCurrent_v2(context);
    *before = code == GPU_SUCCESS; /* one to take off again */
    return (int)code;
}

static void leave(gpu_device *device, uintptr_t before)
{
    (void)device;
    struct CUctx_st *context;
    if (before)
        (void)cu.cuCtxPopCurrent_v2(&context);
}

/* ---- Memory -------------------------------------------------------------------------------------- */

static int take(size_t size_bytes, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAlloc_v2(&p, size_bytes);
    *out = pointer(p);
    return (int)code;
}

static int give(void *p)
{
    return (int)cu.cuMemFree_v2(address(p));
}

static int take_pinned(size_t size_bytes, void **out)
{
    return (int)cu.cuMemHostAlloc(out, size_bytes, CUDA_HOST_PORTABLE);
}

static int give_pinned(void *p)
{
    return (int)cu.cuMemFreeHost(p);
}

static int take_managed(size_t size_bytes, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAllocManaged(&p, size_bytes, CUDA_ATTACH_GLOBAL);
    *out = pointer(p);
    return (int)code;
}

static int take_async(size_t size_bytes, void *stream, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAllocAsync(&p, size_bytes, stream);
    *out = pointer(p);
    return (int)code;
}

static int give_async(void *p, void *stream)
{
    return (int)cu.cuMemFreeAsync(address(p), stream);
}

/* Addresses are unified: the driver knows on which side each pointer is. */
static int copy(void *dst, const void *src, size_t size_bytes, void *stream)
{
    return (int)cu.cuMemcpyAsync(address(dst), address(src), size_bytes, stream);
}

static int zero(void *dst, size_t size_bytes, void *stream)
{
    return (int)cu.cuMemsetD8Async(address(dst), 0, size_bytes, stream);
}

/* ---- Address space ------------------------------------------------------------------------------- */

static cuda_properties properties_of(const gpu_device *device)
{
    return (cuda_properties){.type = CUDA_ALLOCATION_PINNED,
                             .location = {.type = CUDA_LOCATION_DEVICE, .id = device->handle}};
}

static int granularity(gpu_device *device, size_t *out)
{
    cuda_properties properties = properties_of(device);
    return (int)cu.cuMemGetAllocationGranularity(
        out, (const struct CUmemAllocationProp_st *)(void *)&properties, 0);
}

static int reserve(size_t size_bytes, size_t step_bytes, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAddressReserve(&p, size_bytes, step_bytes, 0, 0);
    *out = pointer(p);
    return (int)code;
}

static int unreserve(void *base, size_t size_bytes)
{
    return (int)cu.cuMemAddressFree(address(base), size_bytes);
}

/* The mapping keeps the memory: our handle to it is given back at once. */
static int map(gpu_device *device, void *p, size_t size_bytes)
{
    cuda_properties properties = properties_of(device);
    const cuda_access access = {properties.location, CUDA_ACCESS_READ_WRITE};
    unsigned long long handle = 0;
    cuda_result code =
        cu.cuMemCreate(&handle, size_bytes, (const struct CUmemAllocationProp_st *)(void *)&properties, 0);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = cu.cuMemMap(address(p), size_bytes, 0, handle, 0);
    (void)cu.cuMemRelease(handle);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = cu.cuMemSetAccess(address(p), size_bytes, (const struct CUmemAccessDesc_st *)(const void *)&access,
                             1);
    if (code != GPU_SUCCESS)
        (void)cu.cuMemUnmap(address(p), size_bytes);
    return (int)code;
}

static int unmap(void *p, size_t size_bytes)
{
    return (int)cu.cuMemUnmap(address(p), size_bytes);
}

/* ---- Streams and events -------------------------------------------------------------------------- */

static int stream_create(void **out)
{
    struct CUstream_st *stream = NULL;
    cuda_result code = cu.cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING);
    *out = stream;
    return (int)code;
}

static int stream_destroy(void *stream)
{
    return (int)cu.cuStreamDestroy_v2(stream);
}

static int stream_query(void *stream)
{
    return (int)cu.cuStreamQuery(stream);
}

static int stream_synchronize(void *stream)
{
    return (int)cu.cuStreamSynchronize(stream);
}

static int stream_wait(void *stream, void *event)
{
    return (int)cu.cuStreamWaitEvent(stream, event, 0);
}

static int stream_call(void *stream, void (*fn)(void *context), void *context)
{
    return (int)cu.cuLaunchHostFunc(stream, fn, context);
}

static int event_create(void **out)
{
    struct CUevent_st *event = NULL;
    cuda_result code = cu.cuEventCreate(&event, CUDA_EVENT_DISABLE_TIMING);
    *out = event;
    return (int)code;
}

static int event_destroy(void *event)
{
    return (int)cu.cuEventDestroy_v2(event);
}

static int event_record(void *event, void *stream)
{
    return (int)cu.cuEventRecord(event, stream);
}

static int event_query(void *event)
{
    return (int)cu.cuEventQuery(event);
}

static int event_synchronize(void *event)
{
    return (int)cu.cuEventSynchronize(event);
}

const gpu_driver berth__cuda_driver = {
    .title = "CUDA",
    .load = load,
    .open = open,
    .enter = enter,
    .leave = leave,
    .words = words,
    .take = take,
    .give = give,
    .take_pinned = take_pinned,
    .give_pinned = give_pinned,
    .take_managed = take_managed,
    .take_async = take_async,
    .give_async = give_async,
    .copy = copy,
    .zero = zero,
    .stream_create = stream_create,
    .event_create = event_create,
    .granularity = granularity,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_synchronize = stream_synchronize,
    .stream_wait = stream_wait,
    .stream_call = stream_call,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
};

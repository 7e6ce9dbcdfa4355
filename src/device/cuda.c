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
    device->stream_ordered = cu.cuMemPoolCreate && cu.cuMemPoolSetAttribute && cu.cuMemPoolTrimTo &&
                             cu.cuMemAllocFromPoolAsync && cu.cuMemFreeAsync &&
                             can(device, CUDA_ATTRIBUTE_MEMORY_POOLS);
    device->pieces = cu.cuMemAddressReserve && cu.cuMemAddressFree && cu.cuMemCreate && cu.cuMemRelease &&
                     cu.cuMemMap && cu.cuMemUnmap && cu.cuMemSetAccess && cu.cuMemGetAllocationGranularity &&
                     can(device, CUDA_ATTRIBUTE_VIRTUAL_MEMORY);
    return GPU_SUCCESS;
}

/* The primary context is the one that the CUDA runtime and other libraries use too. */
static int context_of(gpu_device *device, struct CUctx_st **out)
{
    struct CUctx_st *context = atomic_load_explicit(&device->context, memory_order_acquire);
    if (BERTH_UNLIKELY(!context)) {
        cuda_result code = cu.cuDevicePrimaryCtxRetain(&context, device->handle);
        if (code != GPU_SUCCESS)
            return (int)code;
        atomic_store_explicit(&device->context, context, memory_order_release);
    }
    *out = context;
    return GPU_SUCCESS;
}

static int enter(gpu_device *device, uintptr_t *before)
{
    struct CUctx_st *context = NULL, *current = NULL;
    *before = 0;
    int retained = context_of(device, &context);
    if (retained != GPU_SUCCESS)
        return retained;
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

static void exchange_capture(unsigned int *mode)
{
    if (!cu.cuThreadExchangeStreamCaptureMode || cu.cuThreadExchangeStreamCaptureMode(mode) != GPU_SUCCESS)
        *mode = CUDA_CAPTURE_RELAXED; /* nothing to put back */
}

/* CUDA's driver keeps no last error; its runtime keeps one of its own calls only. */
static void forget_error(void)
{
}

static bool can_reach(const gpu_device *device, const gpu_device *peer)
{
    int can_access = 0;
    return cu.cuDeviceCanAccessPeer &&
           cu.cuDeviceCanAccessPeer(&can_access, device->handle, peer->handle) == GPU_SUCCESS &&
           can_access != 0;
}

static int enable_peer(gpu_device *peer)
{
    struct CUctx_st *context = NULL;
    int code = cu.cuCtxEnablePeerAccess ? context_of(peer, &context) : GPU_NOT_SUPPORTED;
    return code == GPU_SUCCESS ? (int)cu.cuCtxEnablePeerAccess(context, 0) : code;
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

static int memory(size_t *free_bytes, size_t *total_bytes)
{
    return cu.cuMemGetInfo_v2 ? (int)cu.cuMemGetInfo_v2(free_bytes, total_bytes) : GPU_NOT_SUPPORTED;
}

static int take_pinned(size_t size_bytes, bool write_combined, void **out)
{
    unsigned int flags = CUDA_HOST_PORTABLE | (write_combined ? CUDA_HOST_WRITE_COMBINED : 0u);
    return (int)cu.cuMemHostAlloc(out, size_bytes, flags);
}

GPU_HANDLE_CALL(give_pinned, cu.cuMemFreeHost)

static int take_managed(size_t size_bytes, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAllocManaged(&p, size_bytes, CUDA_ATTACH_GLOBAL);
    *out = pointer(p);
    return (int)code;
}

/* A pool of our own: what the default one keeps is for the program to say. It keeps all that is freed until it is
 * trimmed; by default a pool gives everything back whenever somebody waits. */
static int pool_create(gpu_device *device, void **out)
{
    const cuda_pool_properties properties = {
        .type = CUDA_ALLOCATION_PINNED, .location = {.type = CUDA_LOCATION_DEVICE, .id = device->handle}};
    unsigned long long keep_bytes = UINT64_MAX;
    struct CUmemPoolHandle_st *pool = NULL;
    cuda_result code = cu.cuMemPoolCreate(&pool, (const struct CUmemPoolProps_st *)(const void *)&properties);
    if (code == GPU_SUCCESS)
        (void)cu.cuMemPoolSetAttribute(pool, CUDA_POOL_RELEASE_THRESHOLD, &keep_bytes);
    *out = pool;
    return (int)code;
}

static int pool_trim(void *pool)
{
    return (int)cu.cuMemPoolTrimTo(pool, 0);
}

static int take_async(size_t size_bytes, void *pool, void *stream, void **out)
{
    cuda_pointer p = 0;
    cuda_result code = cu.cuMemAllocFromPoolAsync(&p, size_bytes, pool, stream);
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

static int copy_peer(void *dst, gpu_device *to, const void *src, gpu_device *from, size_t size_bytes,
                     void *stream)
{
    struct CUctx_st *there = NULL, *here = NULL;
    int code = cu.cuMemcpyPeerAsync ? context_of(to, &there) : GPU_NOT_SUPPORTED;
    if (code == GPU_SUCCESS)
        code = context_of(from, &here);
    if (code == GPU_SUCCESS)
        code = (int)cu.cuMemcpyPeerAsync(address(dst), there, address(src), here, size_bytes, stream);
    return code;
}

static int zero(void *dst, size_t size_bytes, void *stream)
{
    return (int)cu.cuMemsetD8Async(address(dst), 0, size_bytes, stream);
}

/* ---- Memory of others, memory for others ---------------------------------------------------------- */

static int register_host(void *p, size_t size_bytes)
{
    return cu.cuMemHostRegister_v2 ? (int)cu.cuMemHostRegister_v2(p, size_bytes, CUDA_REGISTER_PORTABLE)
                                   : GPU_NOT_SUPPORTED;
}

static int unregister_host(void *p)
{
    return cu.cuMemHostUnregister ? (int)cu.cuMemHostUnregister(p) : GPU_NOT_SUPPORTED;
}

static int prefetch(void *p, size_t size_bytes, const gpu_device *to, void *stream)
{
    const cuda_location place = {.type = to ? CUDA_LOCATION_DEVICE : CUDA_LOCATION_HOST,
                                 .id = to ? to->handle : 0};
    return cu.cuMemPrefetchAsync_v2 ? (int)cu.cuMemPrefetchAsync_v2(address(p), size_bytes, place, 0, stream)
                                    : GPU_NOT_SUPPORTED;
}

static int advise(void *p, size_t size_bytes, berth_advice advice, const gpu_device *device)
{
    static const unsigned int values[] = {[BERTH_ADVICE_READ_MOSTLY] = CUDA_ADVISE_READ_MOSTLY,
                                          [BERTH_ADVICE_KEEP_HERE] = CUDA_ADVISE_PREFER_LOCATION,
                                          [BERTH_ADVICE_MAP_HERE] = CUDA_ADVISE_ACCESSED_BY};
    const cuda_location place = {.type = CUDA_LOCATION_DEVICE, .id = device->handle};
    return cu.cuMemAdvise_v2 ? (int)cu.cuMemAdvise_v2(address(p), size_bytes, values[advice], place)
                             : GPU_NOT_SUPPORTED;
}

static int share(void *p, char bytes[64])
{
    cuda_shared_handle handle;
    if (!cu.cuIpcGetMemHandle || !cu.cuIpcOpenMemHandle_v2 || !cu.cuIpcCloseMemHandle)
        return GPU_NOT_SUPPORTED;
    cuda_result code = cu.cuIpcGetMemHandle(&handle, address(p));
    memcpy(bytes, handle.bytes, sizeof handle.bytes);
    return (int)code;
}

static int open_shared(const char bytes[64], void **out)
{
    cuda_shared_handle handle;
    cuda_pointer p = 0;
    memcpy(handle.bytes, bytes, sizeof handle.bytes);
    if (!cu.cuIpcOpenMemHandle_v2)
        return GPU_NOT_SUPPORTED;
    cuda_result code = cu.cuIpcOpenMemHandle_v2(&p, handle, CUDA_SHARED_LAZY_PEERS);
    *out = pointer(p);
    return (int)code;
}

static int close_shared(void *p)
{
    return cu.cuIpcCloseMemHandle ? (int)cu.cuIpcCloseMemHandle(address(p)) : GPU_NOT_SUPPORTED;
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
    unsigned long long handle = 0;
    cuda_result code =
        cu.cuMemCreate(&handle, size_bytes, (const struct CUmemAllocationProp_st *)(void *)&properties, 0);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = cu.cuMemMap(address(p), size_bytes, 0, handle, 0);
    (void)cu.cuMemRelease(handle);
    return (int)code;
}

static int access_for(gpu_device *const *devices, size_t count, void *p, size_t size_bytes)
{
    cuda_access list[GPU_MOST_DEVICES];
    for (size_t i = 0; i < count; i++)
        list[i] =
            (cuda_access){{.type = CUDA_LOCATION_DEVICE, .id = devices[i]->handle}, CUDA_ACCESS_READ_WRITE};
    return (int)cu.cuMemSetAccess(address(p), size_bytes,
                                  (const struct CUmemAccessDesc_st *)(const void *)list, count);
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

GPU_HANDLE_CALL(stream_destroy, cu.cuStreamDestroy_v2)

/* A stream of another context is of no use to ours. The per-thread stream means another stream on each thread. */
static int stream_check(gpu_device *device, void *stream)
{
    struct CUctx_st *context = NULL, *ours = NULL;
    cuda_result code = cu.cuStreamGetCtx ? cu.cuStreamGetCtx(stream, &context) : GPU_SUCCESS;
    int known = context_of(device, &ours);
    if (code != GPU_SUCCESS || known != GPU_SUCCESS || !cu.cuStreamGetCtx)
        return code != GPU_SUCCESS ? (int)code : known;
    return context == ours ? GPU_SUCCESS : GPU_INVALID_DEVICE;
}

static int stream_capturing(void *stream, bool *capturing)
{
    unsigned int status = 0;
    cuda_result code = cu.cuStreamIsCapturing ? cu.cuStreamIsCapturing(stream, &status) : GPU_SUCCESS;
    *capturing = status != 0;
    return (int)code;
}

GPU_HANDLE_CALL(stream_query, cu.cuStreamQuery)
GPU_HANDLE_CALL(stream_synchronize, cu.cuStreamSynchronize)

static int stream_wait(void *stream, void *event)
{
    return (int)cu.cuStreamWaitEvent(stream, event, 0);
}

static int stream_call(void *stream, void (*fn)(void *context), void *context)
{
    return (int)cu.cuLaunchHostFunc(stream, fn, context);
}

/* A thread that waits for it sleeps instead of spinning. */
static int event_create(void **out)
{
    struct CUevent_st *event = NULL;
    cuda_result code = cu.cuEventCreate(&event, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC);
    *out = event;
    return (int)code;
}

GPU_HANDLE_CALL(event_destroy, cu.cuEventDestroy_v2)

static int event_record(void *event, void *stream)
{
    return (int)cu.cuEventRecord(event, stream);
}

GPU_HANDLE_CALL(event_query, cu.cuEventQuery)
GPU_HANDLE_CALL(event_synchronize, cu.cuEventSynchronize)

const gpu_driver berth__cuda_driver = {.title = "CUDA", GPU_DRIVER_CALLS};

/* The HIP runtime, loaded at run time, as a table for the common backend in gpu.c. */
#include "device/hip.h"

#include <stdio.h>
#include <string.h>

#include "device/gpu.h"

static hip_functions hip; /* filled once, by load */

#define NEED_required false
#define NEED_optional true
#define SYMBOL(need, result, name, parameters) {#name, offsetof(hip_functions, name), NEED_##need},
static const berth__symbol symbols[] = {HIP_FUNCTIONS(SYMBOL) HIP_LATER_FUNCTIONS(SYMBOL)};
#undef SYMBOL

/* ---- Devices ------------------------------------------------------------------------------------- */

static const char *words(int code)
{
    const char *name = hip.hipGetErrorName ? hip.hipGetErrorName((hip_result)code) : NULL;
    return name ? name : "an unknown HIP error";
}

static int load(char *why, size_t why_bytes)
{
    static const char *const names[] = {
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "libamdhip64.so",
        "/opt/rocm/lib/libamdhip64.so", /* where the loader is not told to look */
        NULL};
    char reason[200] = "";
    int count = 0;
    void *library = berth__library_open("BERTH_HIP_LIBRARY", names, reason, sizeof reason);
    if (!library ||
        !berth__library_symbols(library, symbols, BERTH_COUNT_OF(symbols), &hip, reason, sizeof reason)) {
        snprintf(why, why_bytes, "no HIP: %s; install AMD's ROCm (Debian: libamdhip64-5)", reason);
        return 0;
    }
    hip_result code = hip.hipInit(0);
    if (code == GPU_SUCCESS)
        code = hip.hipGetDeviceCount(&count);
    /* HIP 5.2 says "invalid device" on a machine without one. */
    if (code == GPU_NO_DEVICE || code == GPU_INVALID_DEVICE || (code == GPU_SUCCESS && count == 0))
        snprintf(why, why_bytes, "the HIP runtime is there but finds no device");
    else if (code != GPU_SUCCESS)
        snprintf(why, why_bytes, "the HIP runtime does not start: %s", words((int)code));
    return code == GPU_SUCCESS ? count : 0;
}

static int open(gpu_device *device)
{
    int version = 0;
    size_t bytes = 0;
    device->handle = device->ordinal;
    hip_result code = hip.hipDeviceGetName(device->name, (int)sizeof device->name, device->handle);
    if (code == GPU_SUCCESS)
        code = hip.hipDeviceTotalMem(&bytes, device->handle);
    if (code != GPU_SUCCESS)
        return (int)code;
    (void)hip.hipDriverGetVersion(&version);
    snprintf(device->version, sizeof device->version, "HIP %d.%d", version / 10000000,
             version / 100000 % 100);
    device->total_bytes = bytes;
    /* Attributes have other numbers from version to version: a function that is there is tried, and its
     * answer "not supported" is taken for one. */
    device->managed = hip.hipMallocManaged != NULL;
    device->stream_ordered = hip.hipMemPoolCreate && hip.hipMemPoolSetAttribute && hip.hipMemPoolTrimTo &&
                             hip.hipMallocFromPoolAsync && hip.hipFreeAsync;
    device->pieces = version >= HIP_VERSION_OF_PIECES && hip.hipMemAddressReserve && hip.hipMemAddressFree &&
                     hip.hipMemCreate && hip.hipMemRelease && hip.hipMemMap && hip.hipMemUnmap &&
                     hip.hipMemSetAccess && hip.hipMemGetAllocationGranularity;
    return GPU_SUCCESS;
}

static int enter(gpu_device *device, uintptr_t *before)
{
    int current = -1;
    *before = 0;
    hip_result code = hip.hipGetDevice(&current);
    if (code != GPU_SUCCESS || current == device->handle)
        return (int)code;
    code = hip.hipSetDevice(device->handle);
    if (code == GPU_SUCCESS)
        *before = (uintptr_t)current + 1;
    return (int)code;
}

static void leave(gpu_device *device, uintptr_t before)
{
    (void)device;
    if (before)
        (void)hip.hipSetDevice((int)(before - 1));
}

static void exchange_capture(unsigned int *mode)
{
    if (!hip.hipThreadExchangeStreamCaptureMode ||
        hip.hipThreadExchangeStreamCaptureMode(mode) != GPU_SUCCESS)
        *mode = HIP_CAPTURE_RELAXED; /* nothing to put back */
}

/* The runtime keeps each thread's last failure until somebody asks for it, and programs ask after launching kernels:
 * ours must not be what they find. */
static void forget_error(void)
{
    (void)hip.hipGetLastError();
}

static bool can_reach(const gpu_device *device, const gpu_device *peer)
{
    int can = 0;
    return hip.hipDeviceCanAccessPeer &&
           hip.hipDeviceCanAccessPeer(&can, device->handle, peer->handle) == GPU_SUCCESS && can != 0;
}

static int enable_peer(gpu_device *peer)
{
    return hip.hipDeviceEnablePeerAccess ? (int)hip.hipDeviceEnablePeerAccess(peer->handle, 0)
                                         : GPU_NOT_SUPPORTED;
}

/* ---- Memory -------------------------------------------------------------------------------------- */

static int take(size_t size_bytes, void **out)
{
    return (int)hip.hipMalloc(out, size_bytes);
}

GPU_HANDLE_CALL(give, hip.hipFree)

static int memory(size_t *free_bytes, size_t *total_bytes)
{
    return hip.hipMemGetInfo ? (int)hip.hipMemGetInfo(free_bytes, total_bytes) : GPU_NOT_SUPPORTED;
}

static int take_pinned(size_t size_bytes, bool write_combined, void **out)
{
    unsigned int flags = HIP_HOST_PORTABLE | (write_combined ? HIP_HOST_WRITE_COMBINED : 0u);
    return (int)hip.hipHostMalloc(out, size_bytes, flags);
}

GPU_HANDLE_CALL(give_pinned, hip.hipHostFree)

static int take_managed(size_t size_bytes, void **out)
{
    return (int)hip.hipMallocManaged(out, size_bytes, HIP_ATTACH_GLOBAL);
}

/* A pool of our own that keeps what is freed until it is trimmed; see cuda.c. */
static int pool_create(gpu_device *device, void **out)
{
    const hip_pool_properties properties = {.type = HIP_ALLOCATION_PINNED,
                                            .location = {.type = HIP_LOCATION_DEVICE, .id = device->handle}};
    uint64_t keep_bytes = UINT64_MAX;
    struct ihipMemPoolHandle_t *pool = NULL;
    hip_result code = hip.hipMemPoolCreate(&pool, (const struct hipMemPoolProps *)(const void *)&properties);
    if (code == GPU_SUCCESS)
        (void)hip.hipMemPoolSetAttribute(pool, HIP_POOL_RELEASE_THRESHOLD, &keep_bytes);
    *out = pool;
    return (int)code;
}

static int pool_trim(void *pool)
{
    return (int)hip.hipMemPoolTrimTo(pool, 0);
}

static int take_async(size_t size_bytes, void *pool, void *stream, void **out)
{
    return (int)hip.hipMallocFromPoolAsync(out, size_bytes, pool, stream);
}

static int give_async(void *p, void *stream)
{
    return (int)hip.hipFreeAsync(p, stream);
}

static int copy(void *dst, const void *src, size_t size_bytes, void *stream)
{
    return (int)hip.hipMemcpyAsync(dst, src, size_bytes, HIP_COPY_DEFAULT, stream);
}

static int copy_peer(void *dst, gpu_device *to, const void *src, gpu_device *from, size_t size_bytes,
                     void *stream)
{
    return hip.hipMemcpyPeerAsync
               ? (int)hip.hipMemcpyPeerAsync(dst, to->handle, src, from->handle, size_bytes, stream)
               : GPU_NOT_SUPPORTED;
}

static int zero(void *dst, size_t size_bytes, void *stream)
{
    return (int)hip.hipMemsetAsync(dst, 0, size_bytes, stream);
}

/* ---- Memory of others, memory for others ---------------------------------------------------------- */

static int register_host(void *p, size_t size_bytes)
{
    return hip.hipHostRegister ? (int)hip.hipHostRegister(p, size_bytes, HIP_REGISTER_PORTABLE)
                               : GPU_NOT_SUPPORTED;
}

static int unregister_host(void *p)
{
    return hip.hipHostUnregister ? (int)hip.hipHostUnregister(p) : GPU_NOT_SUPPORTED;
}

static int prefetch(void *p, size_t size_bytes, const gpu_device *to, void *stream)
{
    return hip.hipMemPrefetchAsync
               ? (int)hip.hipMemPrefetchAsync(p, size_bytes, to ? to->handle : HIP_CPU, stream)
               : GPU_NOT_SUPPORTED;
}

static int advise(void *p, size_t size_bytes, berth_advice advice, const gpu_device *device)
{
    static const unsigned int values[] = {[BERTH_ADVICE_READ_MOSTLY] = HIP_ADVISE_READ_MOSTLY,
                                          [BERTH_ADVICE_KEEP_HERE] = HIP_ADVISE_PREFER_LOCATION,
                                          [BERTH_ADVICE_MAP_HERE] = HIP_ADVISE_ACCESSED_BY};
    return hip.hipMemAdvise ? (int)hip.hipMemAdvise(p, size_bytes, values[advice], device->handle)
                            : GPU_NOT_SUPPORTED;
}

static int share(void *p, char bytes[64])
{
    hip_shared_handle handle;
    if (!hip.hipIpcGetMemHandle || !hip.hipIpcOpenMemHandle || !hip.hipIpcCloseMemHandle)
        return GPU_NOT_SUPPORTED;
    hip_result code = hip.hipIpcGetMemHandle(&handle, p);
    memcpy(bytes, handle.bytes, sizeof handle.bytes);
    return (int)code;
}

static int open_shared(const char bytes[64], void **out)
{
    hip_shared_handle handle;
    memcpy(handle.bytes, bytes, sizeof handle.bytes);
    return hip.hipIpcOpenMemHandle ? (int)hip.hipIpcOpenMemHandle(out, handle, 0) : GPU_NOT_SUPPORTED;
}

static int close_shared(void *p)
{
    return hip.hipIpcCloseMemHandle ? (int)hip.hipIpcCloseMemHandle(p) : GPU_NOT_SUPPORTED;
}

/* ---- Address space ------------------------------------------------------------------------------- */

static hip_properties properties_of(const gpu_device *device)
{
    return (hip_properties){.type = HIP_ALLOCATION_PINNED,
                            .location = {.type = HIP_LOCATION_DEVICE, .id = device->handle}};
}

static int granularity(gpu_device *device, size_t *out)
{
    hip_properties properties = properties_of(device);
    return (int)hip.hipMemGetAllocationGranularity(
        out, (const struct hipMemAllocationProp *)(void *)&properties, 0);
}

static int reserve(size_t size_bytes, size_t step_bytes, void **out)
{
    return (int)hip.hipMemAddressReserve(out, size_bytes, step_bytes, NULL, 0);
}

static int unreserve(void *base, size_t size_bytes)
{
    return (int)hip.hipMemAddressFree(base, size_bytes);
}

/* The mapping keeps the memory: our handle to it is given back at once. */
static int map(gpu_device *device, void *p, size_t size_bytes)
{
    hip_properties properties = properties_of(device);
    struct ihipMemGenericAllocationHandle *handle = NULL;
    hip_result code =
        hip.hipMemCreate(&handle, size_bytes, (const struct hipMemAllocationProp *)(void *)&properties, 0);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = hip.hipMemMap(p, size_bytes, 0, handle, 0);
    (void)hip.hipMemRelease(handle);
    return (int)code;
}

static int access_for(gpu_device *const *devices, size_t count, void *p, size_t size_bytes)
{
    hip_access list[GPU_MOST_DEVICES];
    for (size_t i = 0; i < count; i++)
        list[i] =
            (hip_access){{.type = HIP_LOCATION_DEVICE, .id = devices[i]->handle}, HIP_ACCESS_READ_WRITE};
    return (int)hip.hipMemSetAccess(p, size_bytes, (const struct hipMemAccessDesc *)(const void *)list,
                                    count);
}

static int unmap(void *p, size_t size_bytes)
{
    return (int)hip.hipMemUnmap(p, size_bytes);
}

/* ---- Streams and events -------------------------------------------------------------------------- */

static int stream_create(void **out)
{
    struct ihipStream_t *stream = NULL;
    hip_result code = hip.hipStreamCreateWithFlags(&stream, HIP_STREAM_NON_BLOCKING);
    *out = stream;
    return (int)code;
}

GPU_HANDLE_CALL(stream_destroy, hip.hipStreamDestroy)

static int stream_check(gpu_device *device, void *stream)
{
    int of = device->handle;
    hip_result code = hip.hipStreamGetDevice && stream ? hip.hipStreamGetDevice(stream, &of) : GPU_SUCCESS;
    if (code != GPU_SUCCESS)
        return (int)code;
    return of == device->handle ? GPU_SUCCESS : GPU_INVALID_DEVICE;
}

static int stream_capturing(void *stream, bool *capturing)
{
    unsigned int status = 0;
    hip_result code = hip.hipStreamIsCapturing ? hip.hipStreamIsCapturing(stream, &status) : GPU_SUCCESS;
    *capturing = status != 0;
    return (int)code;
}

GPU_HANDLE_CALL(stream_query, hip.hipStreamQuery)
GPU_HANDLE_CALL(stream_synchronize, hip.hipStreamSynchronize)

static int stream_wait(void *stream, void *event)
{
    return (int)hip.hipStreamWaitEvent(stream, event, 0);
}

/* HIP 5.2 declares hipLaunchHostFunc but its library does not have it: the older call, which brings arguments
 * of its own. */
typedef struct callback {
    void (*fn)(void *context);
    void *context;
} callback;

static void run_callback(struct ihipStream_t *stream, hip_result code, void *context)
{
    (void)stream, (void)code;
    callback call = *(callback *)context;
    berth__heap_free(context);
    call.fn(call.context);
}

static int stream_call(void *stream, void (*fn)(void *context), void *context)
{
    if (hip.hipLaunchHostFunc)
        return (int)hip.hipLaunchHostFunc(stream, fn, context);
    callback *call = berth__heap_alloc(sizeof *call);
    if (!call)
        return GPU_OUT_OF_MEMORY;
    *call = (callback){fn, context};
    hip_result code = hip.hipStreamAddCallback(stream, run_callback, call, 0);
    if (code != GPU_SUCCESS)
        berth__heap_free(call);
    return (int)code;
}

/* A thread that waits for it sleeps instead of spinning. */
static int event_create(void **out)
{
    struct ihipEvent_t *event = NULL;
    hip_result code = hip.hipEventCreateWithFlags(&event, HIP_EVENT_DISABLE_TIMING | HIP_EVENT_BLOCKING_SYNC);
    *out = event;
    return (int)code;
}

GPU_HANDLE_CALL(event_destroy, hip.hipEventDestroy)

static int event_record(void *event, void *stream)
{
    return (int)hip.hipEventRecord(event, stream);
}

GPU_HANDLE_CALL(event_query, hip.hipEventQuery)
GPU_HANDLE_CALL(event_synchronize, hip.hipEventSynchronize)

const gpu_driver berth__hip_driver = {.title = "HIP", GPU_DRIVER_CALLS};

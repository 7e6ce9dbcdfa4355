/* The HIP runtime, loaded at run time, as a table for the common backend in gpu.c. */
#include "device/hip.h"

#include <stdio.h>
#include <string.h>

#include "device/gpu.h"

static hip_functions hip; /* filled once, by load */

#define NEED_required false
#define NEED_optional true
#define SYMBOL(need, result, name, parameters) {#name, offsetof(hip_functions, name), NEED_##need},
static const berth__symbol symbols[] = {HIP_FUNCTIONS(SYMBOL)};
#undef SYMBOL

/* ---- Devices ------------------------------------------------------------------------------------- */

static const char *words(int code)
{
    const char *name = hip.hipGetErrorName ? hip.hipGetErrorName((hip_result)code) : NULL;
    return name ? name : "an unknown HIP error";
}

static int load(char *why, size_t why_bytes)
{
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                        "libamdhip64.so", NULL};
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
    device->stream_ordered = hip.hipMallocAsync && hip.hipFreeAsync;
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

/* ---- Memory -------------------------------------------------------------------------------------- */

static int take(size_t size_bytes, void **out)
{
    return (int)hip.hipMalloc(out, size_bytes);
}

static int give(void *p)
{
    return (int)hip.hipFree(p);
}

static int take_pinned(size_t size_bytes, void **out)
{
    return (int)hip.hipHostMalloc(out, size_bytes, HIP_HOST_PORTABLE);
}

static int give_pinned(void *p)
{
    return (int)hip.hipHostFree(p);
}

static int take_managed(size_t size_bytes, void **out)
{
    return (int)hip.hipMallocManaged(out, size_bytes, HIP_ATTACH_GLOBAL);
}

static int take_async(size_t size_bytes, void *stream, void **out)
{
    return (int)hip.hipMallocAsync(out, size_bytes, stream);
}

static int give_async(void *p, void *stream)
{
    return (int)hip.hipFreeAsync(p, stream);
}

static int copy(void *dst, const void *src, size_t size_bytes, void *stream)
{
    return (int)hip.hipMemcpyAsync(dst, src, size_bytes, HIP_COPY_DEFAULT, stream);
}

static int zero(void *dst, size_t size_bytes, void *stream)
{
    return (int)hip.hipMemsetAsync(dst, 0, size_bytes, stream);
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
    const hip_access access = {properties.location, HIP_ACCESS_READ_WRITE};
    struct ihipMemGenericAllocationHandle *handle = NULL;
    hip_result code =
        hip.hipMemCreate(&handle, size_bytes, (const struct hipMemAllocationProp *)(void *)&properties, 0);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = hip.hipMemMap(p, size_bytes, 0, handle, 0);
    (void)hip.hipMemRelease(handle);
    if (code != GPU_SUCCESS)
        return (int)code;
    code = hip.hipMemSetAccess(p, size_bytes, (const struct hipMemAccessDesc *)(const void *)&access, 1);
    if (code != GPU_SUCCESS)
        (void)hip.hipMemUnmap(p, size_bytes);
    return (int)code;
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

static int stream_destroy(void *stream)
{
    return (int)hip.hipStreamDestroy(stream);
}

static int stream_query(void *stream)
{
    return (int)hip.hipStreamQuery(stream);
}

static int stream_synchronize(void *stream)
{
    return (int)hip.hipStreamSynchronize(stream);
}

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

static int event_create(void **out)
{
    struct ihipEvent_t *event = NULL;
    hip_result code = hip.hipEventCreateWithFlags(&event, HIP_EVENT_DISABLE_TIMING);
    *out = event;
    return (int)code;
}

static int event_destroy(void *event)
{
    return (int)hip.hipEventDestroy(event);
}

static int event_record(void *event, void *stream)
{
    return (int)hip.hipEventRecord(event, stream);
}

static int event_query(void *event)
{
    return (int)hip.hipEventQuery(event);
}

static int event_synchronize(void *event)
{
    return (int)hip.hipEventSynchronize(event);
}

const gpu_driver berth__hip_driver = {
    .title = "HIP",
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

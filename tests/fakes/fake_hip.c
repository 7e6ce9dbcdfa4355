/* The HIP runtime's names over the stand-in. Built twice: with FAKE_OLD it is HIP 5.2, without stream-ordered
 * allocation, managed memory and address space in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/hip.h"
#include "fake_gpu.h"

#define DECLARE(need, result, name, parameters) FAKE_EXPORT result name parameters;
HIP_FUNCTIONS(DECLARE)
HIP_LATER_FUNCTIONS(DECLARE)
#undef DECLARE

/* The thread's last failure, which stays until somebody asks for it; "not ready" counts as one. */
static _Thread_local hip_result last_error;

static hip_result answer(int code)
{
    if (code != FAKE_OK)
        last_error = (hip_result)code;
    return (hip_result)code;
}

/* A thread of HIP begins with device 0. */
#define ENTER(rules)                               \
    do {                                           \
        if (fake_current() < 0)                    \
            fake_set_current(0);                   \
        int entered = fake_enter(__func__, rules); \
        if (entered != FAKE_OK)                    \
            return answer(entered);                \
    } while (0)

/* The rules by function; every thread has a device, so that "current" only asks that it is not broken. */
enum {
    ALWAYS = FAKE_ANY,
    READY = FAKE_INIT,
    HELD = FAKE_INIT | FAKE_CURRENT,
    CURRENT = HELD | FAKE_WORKS,
    UNSAFE = CURRENT | FAKE_UNSAFE
};

static int device_count(void)
{
    const char *told = getenv("FAKE_GPU_DEVICES");
    return told ? atoi(told) : FAKE_DEVICES;
}

hip_result hipInit(unsigned int flags)
{
    ENTER(ALWAYS);
    if (flags != 0)
        return answer(FAKE_INVALID_VALUE);
    if (device_count() == 0)
        return answer(FAKE_NO_DEVICE);
    fake_init();
    return FAKE_OK;
}

hip_result hipDriverGetVersion(int *version)
{
    ENTER(ALWAYS);
#ifdef FAKE_OLD
    *version = 50221153;
#else
    const char *told = getenv("FAKE_HIP_VERSION");
    *version = told ? atoi(told) : 60443483;
#endif
    return FAKE_OK;
}

const char *hipGetErrorName(hip_result code)
{
    return fake_error_name((int)code);
}

hip_result hipGetDeviceCount(int *count)
{
    ENTER(READY);
    *count = device_count();
    return FAKE_OK;
}

hip_result hipDeviceGetName(char *name, int bytes, int device)
{
    ENTER(READY);
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return FAKE_OK;
}

hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    ENTER(READY);
    (void)device;
    *bytes = (size_t)1 << 30;
    return FAKE_OK;
}

hip_result hipGetDevice(int *device)
{
    ENTER(READY);
    *device = fake_current();
    return FAKE_OK;
}

hip_result hipSetDevice(int device)
{
    ENTER(READY);
    if (device < 0 || device >= device_count())
        return answer(FAKE_INVALID_VALUE);
    fake_set_current(device);
    return FAKE_OK;
}

hip_result hipGetLastError(void)
{
    hip_result code = last_error;
    last_error = FAKE_OK;
    return code;
}

hip_result hipPeekAtLastError(void)
{
    return last_error;
}

hip_result hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(CURRENT);
    fake_memory_info(fake_current(), free_bytes, total_bytes);
    return FAKE_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

hip_result hipMalloc(void **out, size_t size_bytes)
{
    ENTER(UNSAFE);
    return answer(fake_take(fake_current(), FAKE_DEVICE_BLOCK, size_bytes, NULL, out));
}

hip_result hipFree(void *p)
{
    ENTER(UNSAFE);
    return answer(fake_give(p, false, NULL, false));
}

hip_result hipHostMalloc(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    if (flags & ~(unsigned)(HIP_HOST_PORTABLE | HIP_HOST_WRITE_COMBINED))
        return answer(FAKE_INVALID_VALUE);
    return answer(fake_take(fake_current(), FAKE_HOST_BLOCK, size_bytes, NULL, out));
}

hip_result hipHostFree(void *p)
{
    ENTER(UNSAFE);
    return answer(fake_give(p, true, NULL, false));
}

hip_result hipMemcpyAsync(void *dst, const void *src, size_t size_bytes, unsigned int kind,
                          struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer(kind == HIP_COPY_DEFAULT ? fake_copy(dst, src, size_bytes, stream, false)
                                           : FAKE_INVALID_VALUE);
}

hip_result hipMemsetAsync(void *dst, int value, size_t size_bytes, struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer(fake_fill(dst, value, size_bytes, stream));
}

/* ---- Streams and events ------------------------------------------------------------------------------ */

hip_result hipStreamCreateWithFlags(struct ihipStream_t **out, unsigned int flags)
{
    ENTER(UNSAFE);
    void *stream = NULL;
    if (flags != HIP_STREAM_NON_BLOCKING)
        return answer(FAKE_INVALID_VALUE);
    int code = fake_stream_create(fake_current(), &stream);
    *out = stream;
    return answer(code);
}

hip_result hipStreamDestroy(struct ihipStream_t *stream)
{
    ENTER(HELD);
    return answer(fake_stream_destroy(stream));
}

hip_result hipStreamQuery(struct ihipStream_t *stream)
{
    ENTER(UNSAFE);
    return answer(fake_stream_query(stream));
}

hip_result hipStreamSynchronize(struct ihipStream_t *stream)
{
    ENTER(UNSAFE);
    return answer(fake_stream_synchronize(stream));
}

hip_result hipStreamWaitEvent(struct ihipStream_t *stream, struct ihipEvent_t *event, unsigned int flags)
{
    ENTER(CURRENT);
    return answer(flags == 0 ? fake_stream_wait(stream, event) : FAKE_INVALID_VALUE);
}

typedef struct callback {
    struct ihipStream_t *stream;
    void (*fn)(struct ihipStream_t *, hip_result, void *);
    void *context;
} callback;

static void run_callback(void *context)
{
    callback call = *(callback *)context;
    free(context);
    call.fn(call.stream, FAKE_OK, call.context);
}

hip_result hipStreamAddCallback(struct ihipStream_t *stream,
                                void (*fn)(struct ihipStream_t *, hip_result, void *), void *context,
                                unsigned int flags)
{
    ENTER(CURRENT);
    callback *call = malloc(sizeof *call);
    if (!call || flags != 0) {
        free(call);
        return answer(FAKE_INVALID_VALUE);
    }
    *call = (callback){stream, fn, context};
    return answer(fake_stream_call(stream, run_callback, call));
}

hip_result hipEventCreateWithFlags(struct ihipEvent_t **out, unsigned int flags)
{
    ENTER(UNSAFE);
    void *event = NULL;
    if ((flags & ~(unsigned)HIP_EVENT_BLOCKING_SYNC) != HIP_EVENT_DISABLE_TIMING)
        return answer(FAKE_INVALID_VALUE);
    int code = fake_event_create(fake_current(), &event);
    *out = event;
    return answer(code);
}

hip_result hipEventDestroy(struct ihipEvent_t *event)
{
    ENTER(HELD);
    return answer(fake_event_destroy(event));
}

hip_result hipEventRecord(struct ihipEvent_t *event, struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer(fake_event_record(event, stream));
}

hip_result hipEventQuery(struct ihipEvent_t *event)
{
    ENTER(UNSAFE);
    return answer(fake_event_query(event));
}

hip_result hipEventSynchronize(struct ihipEvent_t *event)
{
    ENTER(UNSAFE);
    return answer(fake_event_synchronize(event));
}

#ifndef FAKE_OLD

/* ---- What newer runtimes have -------------------------------------------------------------------------- */

hip_result hipStreamGetDevice(struct ihipStream_t *stream, int *device)
{
    ENTER(CURRENT);
    return answer(fake_stream_context(stream, device));
}

hip_result hipStreamIsCapturing(struct ihipStream_t *stream, unsigned int *status)
{
    ENTER(CURRENT);
    return answer(fake_capture_status(stream, status));
}

hip_result hipThreadExchangeStreamCaptureMode(unsigned int *mode)
{
    ENTER(READY);
    return answer(fake_capture_exchange(mode));
}

/* For programs: berth itself captures nothing. */
FAKE_EXPORT hip_result hipStreamBeginCapture(struct ihipStream_t *stream, unsigned int mode)
{
    ENTER(CURRENT);
    return answer(fake_capture_begin(stream, (int)mode));
}

FAKE_EXPORT hip_result hipStreamEndCapture(struct ihipStream_t *stream, void **graph)
{
    ENTER(CURRENT);
    *graph = NULL;
    return answer(fake_capture_end(stream));
}

hip_result hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER(READY);
    *can = device != peer && fake_peers();
    return FAKE_OK;
}

hip_result hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    ENTER(CURRENT);
    return answer(flags == 0 ? fake_peer_enable(fake_current(), peer) : FAKE_INVALID_VALUE);
}

hip_result hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t size_bytes,
                              struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer((int)fake_peer_copy(dst, dst_device, src, src_device, size_bytes, stream));
}

hip_result hipHostRegister(void *p, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    return answer(flags == HIP_REGISTER_PORTABLE ? fake_register(p, size_bytes) : FAKE_INVALID_VALUE);
}

hip_result hipHostUnregister(void *p)
{
    ENTER(UNSAFE);
    return answer(fake_unregister(p));
}

hip_result hipMemPrefetchAsync(const void *p, size_t size_bytes, int device, struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    (void)size_bytes, (void)stream;
    return answer(device >= HIP_CPU && device < FAKE_DEVICES && fake_is_managed(p) ? FAKE_OK
                                                                                   : FAKE_INVALID_VALUE);
}

hip_result hipMemAdvise(const void *p, size_t size_bytes, unsigned int advice, int device)
{
    ENTER(CURRENT);
    (void)size_bytes, (void)device;
    return answer(advice >= 1 && advice <= 6 && fake_is_managed(p) ? FAKE_OK : FAKE_INVALID_VALUE);
}

hip_result hipIpcGetMemHandle(struct hipIpcMemHandle_st *handle, void *p)
{
    ENTER(CURRENT);
    memset(handle, 0, sizeof *handle);
    return answer(fake_share(p, handle->bytes));
}

hip_result hipIpcOpenMemHandle(void **out, struct hipIpcMemHandle_st handle, unsigned int flags)
{
    ENTER(UNSAFE);
    return answer(flags <= 1 ? fake_open_shared(handle.bytes, out) : FAKE_INVALID_VALUE);
}

hip_result hipIpcCloseMemHandle(void *p)
{
    ENTER(UNSAFE);
    return answer(fake_close_shared(p));
}

/* A pool is its device and one; it keeps nothing, since the stand-in's blocks are cheap. */
hip_result hipMemPoolCreate(struct ihipMemPoolHandle_t **pool, const struct hipMemPoolProps *properties)
{
    ENTER(READY);
    hip_pool_properties p;
    memcpy(&p, properties, sizeof p);
    bool plain = p.type == HIP_ALLOCATION_PINNED && p.location.type == HIP_LOCATION_DEVICE && !p.windows_only;
    if (!plain || p.location.id < 0 || p.location.id >= FAKE_DEVICES)
        return answer(FAKE_INVALID_VALUE);
    *pool = (struct ihipMemPoolHandle_t *)(uintptr_t)(p.location.id + 1);
    return FAKE_OK;
}

hip_result hipMemPoolSetAttribute(struct ihipMemPoolHandle_t *pool, unsigned int attribute, void *value)
{
    ENTER(READY);
    return answer(pool && attribute == HIP_POOL_RELEASE_THRESHOLD && value ? FAKE_OK : FAKE_INVALID_VALUE);
}

hip_result hipMemPoolTrimTo(struct ihipMemPoolHandle_t *pool, size_t keep_bytes)
{
    ENTER(READY);
    return answer(pool && keep_bytes == 0 ? FAKE_OK : FAKE_INVALID_VALUE);
}

hip_result hipMallocFromPoolAsync(void **out, size_t size_bytes, struct ihipMemPoolHandle_t *pool,
                                  struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer((uintptr_t)pool == (uintptr_t)fake_current() + 1
                      ? fake_take(fake_current(), FAKE_ASYNC_BLOCK, size_bytes, stream, out)
                      : FAKE_INVALID_VALUE);
}

hip_result hipLaunchHostFunc(struct ihipStream_t *stream, void (*fn)(void *), void *context)
{
    ENTER(CURRENT);
    return answer(fake_stream_call(stream, fn, context));
}

hip_result hipMallocManaged(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    return answer(flags == HIP_ATTACH_GLOBAL
                      ? fake_take(fake_current(), FAKE_MANAGED_BLOCK, size_bytes, NULL, out)
                      : FAKE_INVALID_VALUE);
}

hip_result hipFreeAsync(void *p, struct ihipStream_t *stream)
{
    ENTER(CURRENT);
    return answer(fake_give(p, false, stream, true));
}

hip_result hipMemAddressReserve(void **out, size_t size_bytes, size_t alignment, void *wish,
                                unsigned long long flags)
{
    ENTER(UNSAFE);
    return answer(!wish && flags == 0 ? fake_reserve(size_bytes, alignment, out) : FAKE_INVALID_VALUE);
}

hip_result hipMemAddressFree(void *p, size_t size_bytes)
{
    ENTER(UNSAFE);
    return answer(fake_unreserve(p, size_bytes));
}

/* Whether the properties ask for plain memory of a device; -1 if not, else which. */
static int device_of(const struct hipMemAllocationProp *properties)
{
    hip_properties p;
    memcpy(&p, properties, sizeof p);
    bool plain = p.type == HIP_ALLOCATION_PINNED && p.location.type == HIP_LOCATION_DEVICE && !p.windows_only;
    return plain && p.location.id >= 0 && p.location.id < FAKE_DEVICES ? p.location.id : -1;
}

hip_result hipMemCreate(struct ihipMemGenericAllocationHandle **handle, size_t size_bytes,
                        const struct hipMemAllocationProp *properties, unsigned long long flags)
{
    ENTER(UNSAFE);
    void *memory = NULL;
    if (device_of(properties) < 0 || flags != 0)
        return answer(FAKE_INVALID_VALUE);
    int code = fake_create(device_of(properties), size_bytes, &memory);
    *handle = memory;
    return answer(code);
}

hip_result hipMemRelease(struct ihipMemGenericAllocationHandle *handle)
{
    ENTER(UNSAFE);
    return answer(fake_release(handle));
}

hip_result hipMemMap(void *p, size_t size_bytes, size_t offset, struct ihipMemGenericAllocationHandle *handle,
                     unsigned long long flags)
{
    ENTER(UNSAFE);
    return answer(offset == 0 && flags == 0 ? fake_map(p, size_bytes, handle) : FAKE_INVALID_VALUE);
}

hip_result hipMemUnmap(void *p, size_t size_bytes)
{
    ENTER(UNSAFE);
    return answer(fake_unmap(p, size_bytes));
}

hip_result hipMemSetAccess(void *p, size_t size_bytes, const struct hipMemAccessDesc *access, size_t count)
{
    ENTER(UNSAFE);
    int code = count > 0 ? FAKE_OK : FAKE_INVALID_VALUE;
    for (size_t i = 0; i < count && code == FAKE_OK; i++) {
        hip_access a;
        memcpy(&a, (const char *)access + i * sizeof a, sizeof a);
        code = a.flags == HIP_ACCESS_READ_WRITE && a.location.type == HIP_LOCATION_DEVICE &&
                       a.location.id >= 0 && a.location.id < FAKE_DEVICES
                   ? fake_set_access(p, size_bytes, a.location.id)
                   : FAKE_INVALID_VALUE;
    }
    return answer(code);
}

hip_result hipMemGetAllocationGranularity(size_t *out, const struct hipMemAllocationProp *properties,
                                          unsigned int option)
{
    ENTER(CURRENT);
    if (device_of(properties) < 0 || option > 1)
        return answer(FAKE_INVALID_VALUE);
    *out = fake_granularity();
    return FAKE_OK;
}
#endif

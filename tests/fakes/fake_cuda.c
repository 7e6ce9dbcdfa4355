/* The CUDA driver's names over the stand-in. Built twice: with FAKE_OLD it is a driver without stream-ordered
 * allocation and without address space in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "fake_gpu.h"

/* A context is its number and one: NULL is none. */
static struct CUctx_st *context_of(int number)
{
    return number < 0 ? NULL : (struct CUctx_st *)(uintptr_t)(number + 1);
}

static int number_of(const struct CUctx_st *context)
{
    return (int)(uintptr_t)context - 1;
}

#define DECLARE(need, result, name, parameters) FAKE_EXPORT result name parameters;
CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

#define ENTER(rules)                               \
    do {                                           \
        int entered = fake_enter(__func__, rules); \
        if (entered != FAKE_OK)                    \
            return (cuda_result)entered;           \
    } while (0)

/* The rules by function: what the driver's manual says of contexts and captures. */
enum {
    ALWAYS = FAKE_ANY,
    READY = FAKE_INIT,
    HELD = FAKE_INIT | FAKE_CURRENT,
    CURRENT = HELD | FAKE_WORKS,
    UNSAFE = CURRENT | FAKE_UNSAFE
};

static void *pointer(cuda_pointer p)
{
    return (void *)(uintptr_t)p;
}

static int device_count(void)
{
    const char *told = getenv("FAKE_GPU_DEVICES");
    return told ? atoi(told) : FAKE_DEVICES;
}

cuda_result cuInit(unsigned int flags)
{
    ENTER(ALWAYS);
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    if (device_count() == 0)
        return FAKE_NO_DEVICE;
    fake_init();
    return FAKE_OK;
}

cuda_result cuDriverGetVersion(int *version)
{
    ENTER(ALWAYS);
    *version = 12040;
    return FAKE_OK;
}

cuda_result cuGetErrorName(cuda_result code, const char **name)
{
    *name = fake_error_name((int)code);
    return FAKE_OK;
}

cuda_result cuDeviceGetCount(int *count)
{
    ENTER(READY);
    *count = device_count();
    return FAKE_OK;
}

cuda_result cuDeviceGet(int *device, int ordinal)
{
    ENTER(READY);
    if (ordinal < 0 || ordinal >= device_count())
        return FAKE_INVALID_VALUE;
    *device = ordinal;
    return FAKE_OK;
}

cuda_result cuDeviceGetName(char *name, int bytes, int device)
{
    ENTER(READY);
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return FAKE_OK;
}

cuda_result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER(READY);
    (void)device;
    *bytes = (size_t)1 << 30;
    return FAKE_OK;
}

cuda_result cuDeviceGetAttribute(int *value, unsigned int attribute, int device)
{
    ENTER(READY);
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_MANAGED_MEMORY || attribute == CUDA_ATTRIBUTE_VIRTUAL_MEMORY ||
             attribute == CUDA_ATTRIBUTE_MEMORY_POOLS;
    return FAKE_OK;
}

cuda_result cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    ENTER(READY);
    *context = context_of(device);
    return FAKE_OK;
}

cuda_result cuCtxGetCurrent(struct CUctx_st **context)
{
    ENTER(READY);
    *context = context_of(fake_current_context());
    return FAKE_OK;
}

cuda_result cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    ENTER(READY);
    fake_push(number_of(context));
    return FAKE_OK;
}

cuda_result cuCtxPopCurrent_v2(struct CUctx_st **context)
{
    ENTER(READY);
    if (fake_current_context() < 0)
        return FAKE_INVALID_CONTEXT;
    *context = context_of(fake_pop());
    return FAKE_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

static cuda_result take(fake_kind kind, size_t size_bytes, void *stream, cuda_pointer *out)
{
    void *p = NULL;
    int code = fake_take(fake_current(), kind, size_bytes, stream, &p);
    *out = (cuda_pointer)(uintptr_t)p;
    return (cuda_result)code;
}

cuda_result cuMemAlloc_v2(cuda_pointer *out, size_t size_bytes)
{
    ENTER(UNSAFE);
    return take(FAKE_DEVICE_BLOCK, size_bytes, NULL, out);
}

cuda_result cuMemFree_v2(cuda_pointer p)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_give(pointer(p), false, NULL, false);
}

cuda_result cuMemHostAlloc(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    if (flags & ~(unsigned)(CUDA_HOST_PORTABLE | CUDA_HOST_WRITE_COMBINED))
        return FAKE_INVALID_VALUE;
    return (cuda_result)fake_take(fake_current(), FAKE_HOST_BLOCK, size_bytes, NULL, out);
}

cuda_result cuMemFreeHost(void *p)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_give(p, true, NULL, false);
}

cuda_result cuMemAllocManaged(cuda_pointer *out, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    return flags == CUDA_ATTACH_GLOBAL ? take(FAKE_MANAGED_BLOCK, size_bytes, NULL, out) : FAKE_INVALID_VALUE;
}

cuda_result cuMemcpyAsync(cuda_pointer dst, cuda_pointer src, size_t size_bytes, struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return (cuda_result)fake_copy(pointer(dst), pointer(src), size_bytes, stream, false);
}

cuda_result cuMemsetD8Async(cuda_pointer dst, unsigned char value, size_t size_bytes,
                            struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return (cuda_result)fake_fill(pointer(dst), value, size_bytes, stream);
}

/* ---- Streams and events ------------------------------------------------------------------------------ */

cuda_result cuStreamCreate(struct CUstream_st **out, unsigned int flags)
{
    ENTER(UNSAFE);
    void *stream = NULL;
    if (flags != CUDA_STREAM_NON_BLOCKING)
        return FAKE_INVALID_VALUE;
    int code = fake_stream_create(fake_current_context(), &stream);
    *out = stream;
    return (cuda_result)code;
}

cuda_result cuStreamDestroy_v2(struct CUstream_st *stream)
{
    ENTER(HELD);
    return (cuda_result)fake_stream_destroy(stream);
}

cuda_result cuStreamQuery(struct CUstream_st *stream)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_stream_query(stream);
}

cuda_result cuStreamSynchronize(struct CUstream_st *stream)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_stream_synchronize(stream);
}

cuda_result cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    ENTER(CURRENT);
    return flags == 0 ? (cuda_result)fake_stream_wait(stream, event) : FAKE_INVALID_VALUE;
}

cuda_result cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *), void *context)
{
    ENTER(CURRENT);
    return (cuda_result)fake_stream_call(stream, fn, context);
}

cuda_result cuEventCreate(struct CUevent_st **out, unsigned int flags)
{
    ENTER(UNSAFE);
    void *event = NULL;
    if ((flags & ~(unsigned)CUDA_EVENT_BLOCKING_SYNC) != CUDA_EVENT_DISABLE_TIMING)
        return FAKE_INVALID_VALUE;
    int code = fake_event_create(fake_current_context(), &event);
    *out = event;
    return (cuda_result)code;
}

cuda_result cuEventDestroy_v2(struct CUevent_st *event)
{
    ENTER(HELD);
    return (cuda_result)fake_event_destroy(event);
}

cuda_result cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return (cuda_result)fake_event_record(event, stream);
}

cuda_result cuEventQuery(struct CUevent_st *event)
{
    ENTER(READY | FAKE_UNSAFE);
    return (cuda_result)fake_event_query(event);
}

cuda_result cuEventSynchronize(struct CUevent_st *event)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_event_synchronize(event);
}

#ifndef FAKE_OLD

/* ---- What newer drivers have -------------------------------------------------------------------------- */

cuda_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(CURRENT);
    fake_memory_info(fake_current(), free_bytes, total_bytes);
    return FAKE_OK;
}

cuda_result cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context)
{
    ENTER(CURRENT);
    int number = -1;
    int code = fake_stream_context(stream, &number);
    *context = context_of(number);
    return (cuda_result)code;
}

cuda_result cuStreamIsCapturing(struct CUstream_st *stream, unsigned int *status)
{
    ENTER(CURRENT);
    return (cuda_result)fake_capture_status(stream, status);
}

cuda_result cuThreadExchangeStreamCaptureMode(unsigned int *mode)
{
    ENTER(READY);
    return (cuda_result)fake_capture_exchange(mode);
}

/* For programs: berth itself captures nothing. */
FAKE_EXPORT cuda_result cuStreamBeginCapture_v2(struct CUstream_st *stream, unsigned int mode)
{
    ENTER(CURRENT);
    return (cuda_result)fake_capture_begin(stream, (int)mode);
}

FAKE_EXPORT cuda_result cuStreamEndCapture(struct CUstream_st *stream, void **graph)
{
    ENTER(CURRENT);
    *graph = NULL;
    return (cuda_result)fake_capture_end(stream);
}

cuda_result cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER(READY);
    *can = device != peer && fake_peers();
    return FAKE_OK;
}

cuda_result cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned int flags)
{
    ENTER(CURRENT);
    return flags == 0 ? (cuda_result)fake_peer_enable(fake_current(), fake_device_of_context(number_of(peer)))
                      : FAKE_INVALID_VALUE;
}

cuda_result cuMemcpyPeerAsync(cuda_pointer dst, struct CUctx_st *dst_context, cuda_pointer src,
                              struct CUctx_st *src_context, size_t size_bytes, struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return fake_peer_copy(pointer(dst), fake_device_of_context(number_of(dst_context)), pointer(src),
                          fake_device_of_context(number_of(src_context)), size_bytes, stream);
}

cuda_result cuMemHostRegister_v2(void *p, size_t size_bytes, unsigned int flags)
{
    ENTER(UNSAFE);
    return flags == CUDA_REGISTER_PORTABLE ? (cuda_result)fake_register(p, size_bytes) : FAKE_INVALID_VALUE;
}

cuda_result cuMemHostUnregister(void *p)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_unregister(p);
}

cuda_result cuMemPrefetchAsync_v2(cuda_pointer p, size_t size_bytes, struct CUmemLocation_st to,
                                  unsigned int flags, struct CUstream_st *stream)
{
    ENTER(CURRENT);
    (void)size_bytes, (void)stream;
    bool known = to.type == CUDA_LOCATION_HOST || to.type == CUDA_LOCATION_DEVICE;
    return known && flags == 0 && fake_is_managed(pointer(p)) ? FAKE_OK : FAKE_INVALID_VALUE;
}

cuda_result cuMemAdvise_v2(cuda_pointer p, size_t size_bytes, unsigned int advice, struct CUmemLocation_st at)
{
    ENTER(READY);
    (void)size_bytes, (void)at;
    return advice >= 1 && advice <= 6 && fake_is_managed(pointer(p)) ? FAKE_OK : FAKE_INVALID_VALUE;
}

cuda_result cuIpcGetMemHandle(struct CUipcMemHandle_st *handle, cuda_pointer p)
{
    ENTER(CURRENT);
    memset(handle, 0, sizeof *handle);
    return (cuda_result)fake_share(pointer(p), handle->bytes);
}

cuda_result cuIpcOpenMemHandle_v2(cuda_pointer *out, struct CUipcMemHandle_st handle, unsigned int flags)
{
    ENTER(UNSAFE);
    void *p = NULL;
    int code = flags == CUDA_SHARED_LAZY_PEERS ? fake_open_shared(handle.bytes, &p) : FAKE_INVALID_VALUE;
    *out = (cuda_pointer)(uintptr_t)p;
    return (cuda_result)code;
}

cuda_result cuIpcCloseMemHandle(cuda_pointer p)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_close_shared(pointer(p));
}

/* A pool is its device and one; it keeps nothing, since the stand-in's blocks are cheap. */
cuda_result cuMemPoolCreate(struct CUmemPoolHandle_st **pool, const struct CUmemPoolProps_st *properties)
{
    ENTER(READY);
    cuda_pool_properties p;
    memcpy(&p, properties, sizeof p);
    bool plain =
        p.type == CUDA_ALLOCATION_PINNED && p.location.type == CUDA_LOCATION_DEVICE && !p.windows_only;
    if (!plain || p.location.id < 0 || p.location.id >= FAKE_DEVICES)
        return FAKE_INVALID_VALUE;
    *pool = (struct CUmemPoolHandle_st *)(uintptr_t)(p.location.id + 1);
    return FAKE_OK;
}

cuda_result cuMemPoolSetAttribute(struct CUmemPoolHandle_st *pool, unsigned int attribute, void *value)
{
    ENTER(READY);
    return pool && attribute == CUDA_POOL_RELEASE_THRESHOLD && value ? FAKE_OK : FAKE_INVALID_VALUE;
}

cuda_result cuMemPoolTrimTo(struct CUmemPoolHandle_st *pool, size_t keep_bytes)
{
    ENTER(READY);
    return pool && keep_bytes == 0 ? FAKE_OK : FAKE_INVALID_VALUE;
}

cuda_result cuMemAllocFromPoolAsync(cuda_pointer *out, size_t size_bytes, struct CUmemPoolHandle_st *pool,
                                    struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return (uintptr_t)pool == (uintptr_t)fake_current() + 1 ? take(FAKE_ASYNC_BLOCK, size_bytes, stream, out)
                                                            : FAKE_INVALID_VALUE;
}

cuda_result cuMemFreeAsync(cuda_pointer p, struct CUstream_st *stream)
{
    ENTER(CURRENT);
    return (cuda_result)fake_give(pointer(p), false, stream, true);
}

cuda_result cuMemAddressReserve(cuda_pointer *out, size_t size_bytes, size_t alignment, cuda_pointer wish,
                                unsigned long long flags)
{
    ENTER(UNSAFE);
    void *p = NULL;
    if (wish != 0 || flags != 0)
        return FAKE_INVALID_VALUE;
    int code = fake_reserve(size_bytes, alignment, &p);
    *out = (cuda_pointer)(uintptr_t)p;
    return (cuda_result)code;
}

cuda_result cuMemAddressFree(cuda_pointer p, size_t size_bytes)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_unreserve(pointer(p), size_bytes);
}

/* Whether the properties ask for plain memory of a device; -1 if not, else which. */
static int device_of(const struct CUmemAllocationProp_st *properties)
{
    cuda_properties p;
    memcpy(&p, properties, sizeof p);
    bool plain =
        p.type == CUDA_ALLOCATION_PINNED && p.location.type == CUDA_LOCATION_DEVICE && !p.windows_only;
    return plain && p.location.id >= 0 && p.location.id < FAKE_DEVICES ? p.location.id : -1;
}

cuda_result cuMemCreate(unsigned long long *handle, size_t size_bytes,
                        const struct CUmemAllocationProp_st *properties, unsigned long long flags)
{
    ENTER(UNSAFE);
    void *memory = NULL;
    if (device_of(properties) < 0 || flags != 0)
        return FAKE_INVALID_VALUE;
    int code = fake_create(device_of(properties), size_bytes, &memory);
    *handle = (unsigned long long)(uintptr_t)memory;
    return (cuda_result)code;
}

cuda_result cuMemRelease(unsigned long long handle)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_release(pointer(handle));
}

cuda_result cuMemMap(cuda_pointer p, size_t size_bytes, size_t offset, unsigned long long handle,
                     unsigned long long flags)
{
    ENTER(UNSAFE);
    return offset == 0 && flags == 0 ? (cuda_result)fake_map(pointer(p), size_bytes, pointer(handle))
                                     : FAKE_INVALID_VALUE;
}

cuda_result cuMemUnmap(cuda_pointer p, size_t size_bytes)
{
    ENTER(UNSAFE);
    return (cuda_result)fake_unmap(pointer(p), size_bytes);
}

cuda_result cuMemSetAccess(cuda_pointer p, size_t size_bytes, const struct CUmemAccessDesc_st *access,
                           size_t count)
{
    ENTER(UNSAFE);
    int code = count > 0 ? FAKE_OK : FAKE_INVALID_VALUE;
    for (size_t i = 0; i < count && code == FAKE_OK; i++) {
        cuda_access a;
        memcpy(&a, (const char *)access + i * sizeof a, sizeof a);
        code = a.flags == CUDA_ACCESS_READ_WRITE && a.location.type == CUDA_LOCATION_DEVICE &&
                       a.location.id >= 0 && a.location.id < FAKE_DEVICES
                   ? fake_set_access(pointer(p), size_bytes, a.location.id)
                   : FAKE_INVALID_VALUE;
    }
    return (cuda_result)code;
}

cuda_result cuMemGetAllocationGranularity(size_t *out, const struct CUmemAllocationProp_st *properties,
                                          unsigned int option)
{
    ENTER(READY);
    if (device_of(properties) < 0 || option > 1)
        return FAKE_INVALID_VALUE;
    *out = fake_granularity();
    return FAKE_OK;
}
#endif

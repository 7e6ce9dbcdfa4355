/* The CUDA driver's names over the stand-in. Built twice: with FAKE_OLD it is a driver without stream-ordered
 * allocation and without address space in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "fake_gpu.h"

struct CUctx_st {
    int device;
};

static struct CUctx_st contexts[FAKE_DEVICES] = {{0}, {1}};

#define DECLARE(need, result, name, parameters) FAKE_EXPORT result name parameters;
CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

#define ENTER(needs_init, needs_current)                               \
    do {                                                               \
        int entered = fake_enter(__func__, needs_init, needs_current); \
        if (entered != FAKE_OK)                                        \
            return (cuda_result)entered;                               \
    } while (0)

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
    ENTER(false, false);
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    if (device_count() == 0)
        return FAKE_NO_DEVICE;
    fake_init();
    return FAKE_OK;
}

cuda_result cuDriverGetVersion(int *version)
{
    ENTER(false, false);
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
    ENTER(true, false);
    *count = device_count();
    return FAKE_OK;
}

cuda_result cuDeviceGet(int *device, int ordinal)
{
    ENTER(true, false);
    if (ordinal < 0 || ordinal >= device_count())
        return FAKE_INVALID_VALUE;
    *device = ordinal;
    return FAKE_OK;
}

cuda_result cuDeviceGetName(char *name, int bytes, int device)
{
    ENTER(true, false);
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return FAKE_OK;
}

cuda_result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER(true, false);
    (void)device;
    *bytes = (size_t)1 << 30;
    return FAKE_OK;
}

cuda_result cuDeviceGetAttribute(int *value, unsigned int attribute, int device)
{
    ENTER(true, false);
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_MANAGED_MEMORY || attribute == CUDA_ATTRIBUTE_VIRTUAL_MEMORY ||
             attribute == CUDA_ATTRIBUTE_MEMORY_POOLS;
    return FAKE_OK;
}

cuda_result cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    ENTER(true, false);
    *context = &contexts[device];
    return FAKE_OK;
}

cuda_result cuCtxGetCurrent(struct CUctx_st **context)
{
    ENTER(true, false);
    *context = fake_current() < 0 ? NULL : &contexts[fake_current()];
    return FAKE_OK;
}

cuda_result cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    ENTER(true, false);
    fake_push(context->device);
    return FAKE_OK;
}

cuda_result cuCtxPopCurrent_v2(struct CUctx_st **context)
{
    ENTER(true, true);
    *context = &contexts[fake_pop()];
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
    ENTER(true, true);
    return take(FAKE_DEVICE_BLOCK, size_bytes, NULL, out);
}

cuda_result cuMemFree_v2(cuda_pointer p)
{
    ENTER(true, true);
    return (cuda_result)fake_give(pointer(p), false, NULL, false);
}

cuda_result cuMemHostAlloc(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(true, true);
    (void)flags;
    return (cuda_result)fake_take(fake_current(), FAKE_HOST_BLOCK, size_bytes, NULL, out);
}

cuda_result cuMemFreeHost(void *p)
{
    ENTER(true, true);
    return (cuda_result)fake_give(p, true, NULL, false);
}

cuda_result cuMemAllocManaged(cuda_pointer *out, size_t size_bytes, unsigned int flags)
{
    ENTER(true, true);
    return flags == CUDA_ATTACH_GLOBAL ? take(FAKE_MANAGED_BLOCK, size_bytes, NULL, out) : FAKE_INVALID_VALUE;
}

cuda_result cuMemcpyAsync(cuda_pointer dst, cuda_pointer src, size_t size_bytes, struct CUstream_st *stream)
{
    ENTER(true, true);
    return (cuda_result)fake_copy(pointer(dst), pointer(src), size_bytes, stream);
}

cuda_result cuMemsetD8Async(cuda_pointer dst, unsigned char value, size_t size_bytes,
                            struct CUstream_st *stream)
{
    ENTER(true, true);
    return (cuda_result)fake_fill(pointer(dst), value, size_bytes, stream);
}

/* ---- Streams and events ------------------------------------------------------------------------------ */

cuda_result cuStreamCreate(struct CUstream_st **out, unsigned int flags)
{
    ENTER(true, true);
    void *stream = NULL;
    if (flags != CUDA_STREAM_NON_BLOCKING)
        return FAKE_INVALID_VALUE;
    int code = fake_stream_create(fake_current(), &stream);
    *out = stream;
    return (cuda_result)code;
}

cuda_result cuStreamDestroy_v2(struct CUstream_st *stream)
{
    ENTER(true, false);
    return (cuda_result)fake_stream_destroy(stream);
}

cuda_result cuStreamQuery(struct CUstream_st *stream)
{
    ENTER(true, false);
    return (cuda_result)fake_stream_query(stream);
}

cuda_result cuStreamSynchronize(struct CUstream_st *stream)
{
    ENTER(true, false);
    return (cuda_result)fake_stream_synchronize(stream);
}

cuda_result cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    ENTER(true, false);
    return flags == 0 ? (cuda_result)fake_stream_wait(stream, event) : FAKE_INVALID_VALUE;
}

cuda_result cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *), void *context)
{
    ENTER(true, false);
    return (cuda_result)fake_stream_call(stream, fn, context);
}

cuda_result cuEventCreate(struct CUevent_st **out, unsigned int flags)
{
    ENTER(true, true);
    void *event = NULL;
    if (flags != CUDA_EVENT_DISABLE_TIMING)
        return FAKE_INVALID_VALUE;
    int code = fake_event_create(fake_current(), &event);
    *out = event;
    return (cuda_result)code;
}

cuda_result cuEventDestroy_v2(struct CUevent_st *event)
{
    ENTER(true, false);
    return (cuda_result)fake_event_destroy(event);
}

cuda_result cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    ENTER(true, false);
    return (cuda_result)fake_event_record(event, stream);
}

cuda_result cuEventQuery(struct CUevent_st *event)
{
    ENTER(true, false);
    return (cuda_result)fake_event_query(event);
}

cuda_result cuEventSynchronize(struct CUevent_st *event)
{
    ENTER(true, false);
    return (cuda_result)fake_event_synchronize(event);
}

#ifndef FAKE_OLD

/* ---- What newer drivers have -------------------------------------------------------------------------- */

cuda_result cuMemAllocAsync(cuda_pointer *out, size_t size_bytes, struct CUstream_st *stream)
{
    ENTER(true, true);
    return take(FAKE_ASYNC_BLOCK, size_bytes, stream, out);
}

cuda_result cuMemFreeAsync(cuda_pointer p, struct CUstream_st *stream)
{
    ENTER(true, true);
    return (cuda_result)fake_give(pointer(p), false, stream, true);
}

cuda_result cuMemAddressReserve(cuda_pointer *out, size_t size_bytes, size_t alignment, cuda_pointer wish,
                                unsigned long long flags)
{
    ENTER(true, true);
    void *p = NULL;
    if (wish != 0 || flags != 0)
        return FAKE_INVALID_VALUE;
    int code = fake_reserve(size_bytes, alignment, &p);
    *out = (cuda_pointer)(uintptr_t)p;
    return (cuda_result)code;
}

cuda_result cuMemAddressFree(cuda_pointer p, size_t size_bytes)
{
    ENTER(true, true);
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
    ENTER(true, true);
    void *memory = NULL;
    if (device_of(properties) < 0 || flags != 0)
        return FAKE_INVALID_VALUE;
    int code = fake_create(device_of(properties), size_bytes, &memory);
    *handle = (unsigned long long)(uintptr_t)memory;
    return (cuda_result)code;
}

cuda_result cuMemRelease(unsigned long long handle)
{
    ENTER(true, true);
    return (cuda_result)fake_release(pointer(handle));
}

cuda_result cuMemMap(cuda_pointer p, size_t size_bytes, size_t offset, unsigned long long handle,
                     unsigned long long flags)
{
    ENTER(true, true);
    return offset == 0 && flags == 0 ? (cuda_result)fake_map(pointer(p), size_bytes, pointer(handle))
                                     : FAKE_INVALID_VALUE;
}

cuda_result cuMemUnmap(cuda_pointer p, size_t size_bytes)
{
    ENTER(true, true);
    return (cuda_result)fake_unmap(pointer(p), size_bytes);
}

cuda_result cuMemSetAccess(cuda_pointer p, size_t size_bytes, const struct CUmemAccessDesc_st *access,
                           size_t count)
{
    ENTER(true, true);
    cuda_access a;
    memcpy(&a, access, sizeof a);
    return count == 1 && a.flags == CUDA_ACCESS_READ_WRITE
               ? (cuda_result)fake_set_access(pointer(p), size_bytes)
               : FAKE_INVALID_VALUE;
}

cuda_result cuMemGetAllocationGranularity(size_t *out, const struct CUmemAllocationProp_st *properties,
                                          unsigned int option)
{
    ENTER(true, false);
    if (device_of(properties) < 0 || option > 1)
        return FAKE_INVALID_VALUE;
    *out = FAKE_PIECE;
    return FAKE_OK;
}
#endif

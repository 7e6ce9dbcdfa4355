/* The HIP runtime's names over the stand-in. Built twice: with FAKE_OLD it is HIP 5.2, without stream-ordered
 * allocation, managed memory and address space in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/hip.h"
#include "fake_gpu.h"

#define DECLARE(need, result, name, parameters) FAKE_EXPORT result name parameters;
HIP_FUNCTIONS(DECLARE)
#undef DECLARE

/* A thread of HIP begins with device 0. */
#define ENTER(needs_init)                                      \
    do {                                                       \
        if (fake_current() < 0)                                \
            fake_set_current(0);                               \
        int entered = fake_enter(__func__, needs_init, false); \
        if (entered != FAKE_OK)                                \
            return (hip_result)entered;                        \
    } while (0)

static int device_count(void)
{
    const char *told = getenv("FAKE_GPU_DEVICES");
    return told ? atoi(told) : FAKE_DEVICES;
}

hip_result hipInit(unsigned int flags)
{
    ENTER(false);
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    if (device_count() == 0)
        return FAKE_NO_DEVICE;
    fake_init();
    return FAKE_OK;
}

hip_result hipDriverGetVersion(int *version)
{
    ENTER(false);
#ifdef FAKE_OLD
    *version = 50221153;
#else
    *version = 60140000;
#endif
    return FAKE_OK;
}

const char *hipGetErrorName(hip_result code)
{
    return fake_error_name((int)code);
}

hip_result hipGetDeviceCount(int *count)
{
    ENTER(true);
    *count = device_count();
    return FAKE_OK;
}

hip_result hipDeviceGetName(char *name, int bytes, int device)
{
    ENTER(true);
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return FAKE_OK;
}

hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    ENTER(true);
    (void)device;
    *bytes = (size_t)1 << 30;
    return FAKE_OK;
}

hip_result hipGetDevice(int *device)
{
    ENTER(true);
    *device = fake_current();
    return FAKE_OK;
}

hip_result hipSetDevice(int device)
{
    ENTER(true);
    if (device < 0 || device >= device_count())
        return FAKE_INVALID_VALUE;
    fake_set_current(device);
    return FAKE_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

hip_result hipMalloc(void **out, size_t size_bytes)
{
    ENTER(true);
    return (hip_result)fake_take(fake_current(), FAKE_DEVICE_BLOCK, size_bytes, NULL, out);
}

hip_result hipFree(void *p)
{
    ENTER(true);
    return (hip_result)fake_give(p, false, NULL, false);
}

hip_result hipHostMalloc(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(true);
    (void)flags;
    return (hip_result)fake_take(fake_current(), FAKE_HOST_BLOCK, size_bytes, NULL, out);
}

hip_result hipHostFree(void *p)
{
    ENTER(true);
    return (hip_result)fake_give(p, true, NULL, false);
}

hip_result hipMemcpyAsync(void *dst, const void *src, size_t size_bytes, unsigned int kind,
                          struct ihipStream_t *stream)
{
    ENTER(true);
    return kind == HIP_COPY_DEFAULT ? (hip_result)fake_copy(dst, src, size_bytes, stream)
                                    : FAKE_INVALID_VALUE;
}

hip_result hipMemsetAsync(void *dst, int value, size_t size_bytes, struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_fill(dst, value, size_bytes, stream);
}

/* ---- Streams and events ------------------------------------------------------------------------------ */

hip_result hipStreamCreateWithFlags(struct ihipStream_t **out, unsigned int flags)
{
    ENTER(true);
    void *stream = NULL;
    if (flags != HIP_STREAM_NON_BLOCKING)
        return FAKE_INVALID_VALUE;
    int code = fake_stream_create(fake_current(), &stream);
    *out = stream;
    return (hip_result)code;
}

hip_result hipStreamDestroy(struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_stream_destroy(stream);
}

hip_result hipStreamQuery(struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_stream_query(stream);
}

hip_result hipStreamSynchronize(struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_stream_synchronize(stream);
}

hip_result hipStreamWaitEvent(struct ihipStream_t *stream, struct ihipEvent_t *event, unsigned int flags)
{
    ENTER(true);
    return flags == 0 ? (hip_result)fake_stream_wait(stream, event) : FAKE_INVALID_VALUE;
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
    ENTER(true);
    callback *call = malloc(sizeof *call);
    if (!call || flags != 0) {
        free(call);
        return FAKE_INVALID_VALUE;
    }
    *call = (callback){stream, fn, context};
    return (hip_result)fake_stream_call(stream, run_callback, call);
}

hip_result hipEventCreateWithFlags(struct ihipEvent_t **out, unsigned int flags)
{
    ENTER(true);
    void *event = NULL;
    if (flags != HIP_EVENT_DISABLE_TIMING)
        return FAKE_INVALID_VALUE;
    int code = fake_event_create(fake_current(), &event);
    *out = event;
    return (hip_result)code;
}

hip_result hipEventDestroy(struct ihipEvent_t *event)
{
    ENTER(true);
    return (hip_result)fake_event_destroy(event);
}

hip_result hipEventRecord(struct ihipEvent_t *event, struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_event_record(event, stream);
}

hip_result hipEventQuery(struct ihipEvent_t *event)
{
    ENTER(true);
    return (hip_result)fake_event_query(event);
}

hip_result hipEventSynchronize(struct ihipEvent_t *event)
{
    ENTER(true);
    return (hip_result)fake_event_synchronize(event);
}

#ifndef FAKE_OLD

/* ---- What newer runtimes have -------------------------------------------------------------------------- */

hip_result hipLaunchHostFunc(struct ihipStream_t *stream, void (*fn)(void *), void *context)
{
    ENTER(true);
    return (hip_result)fake_stream_call(stream, fn, context);
}

hip_result hipMallocManaged(void **out, size_t size_bytes, unsigned int flags)
{
    ENTER(true);
    return flags == HIP_ATTACH_GLOBAL
               ? (hip_result)fake_take(fake_current(), FAKE_MANAGED_BLOCK, size_bytes, NULL, out)
               : FAKE_INVALID_VALUE;
}

hip_result hipMallocAsync(void **out, size_t size_bytes, struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_take(fake_current(), FAKE_ASYNC_BLOCK, size_bytes, stream, out);
}

hip_result hipFreeAsync(void *p, struct ihipStream_t *stream)
{
    ENTER(true);
    return (hip_result)fake_give(p, false, stream, true);
}

hip_result hipMemAddressReserve(void **out, size_t size_bytes, size_t alignment, void *wish,
                                unsigned long long flags)
{
    ENTER(true);
    return !wish && flags == 0 ? (hip_result)fake_reserve(size_bytes, alignment, out) : FAKE_INVALID_VALUE;
}

hip_result hipMemAddressFree(void *p, size_t size_bytes)
{
    ENTER(true);
    return (hip_result)fake_unreserve(p, size_bytes);
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
    ENTER(true);
    void *memory = NULL;
    if (device_of(properties) < 0 || flags != 0)
        return FAKE_INVALID_VALUE;
    int code = fake_create(device_of(properties), size_bytes, &memory);
    *handle = memory;
    return (hip_result)code;
}

hip_result hipMemRelease(struct ihipMemGenericAllocationHandle *handle)
{
    ENTER(true);
    return (hip_result)fake_release(handle);
}

hip_result hipMemMap(void *p, size_t size_bytes, size_t offset, struct ihipMemGenericAllocationHandle *handle,
                     unsigned long long flags)
{
    ENTER(true);
    return offset == 0 && flags == 0 ? (hip_result)fake_map(p, size_bytes, handle) : FAKE_INVALID_VALUE;
}

hip_result hipMemUnmap(void *p, size_t size_bytes)
{
    ENTER(true);
    return (hip_result)fake_unmap(p, size_bytes);
}

hip_result hipMemSetAccess(void *p, size_t size_bytes, const struct hipMemAccessDesc *access, size_t count)
{
    ENTER(true);
    hip_access a;
    memcpy(&a, access, sizeof a);
    return count == 1 && a.flags == HIP_ACCESS_READ_WRITE ? (hip_result)fake_set_access(p, size_bytes)
                                                          : FAKE_INVALID_VALUE;
}

hip_result hipMemGetAllocationGranularity(size_t *out, const struct hipMemAllocationProp *properties,
                                          unsigned int option)
{
    ENTER(true);
    if (device_of(properties) < 0 || option > 1)
        return FAKE_INVALID_VALUE;
    *out = FAKE_PIECE;
    return FAKE_OK;
}
#endif

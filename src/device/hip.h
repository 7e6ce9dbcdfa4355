/* The HIP runtime's functions as berth uses them, declared here so that berth builds without HIP's headers. A
 * test compares every type with those where they are installed. */
#ifndef BERTH_DEVICE_HIP_H
#define BERTH_DEVICE_HIP_H

#include <stddef.h>
#include <stdint.h>

/* hipError_t and the other enumerations are unsigned int to the compiler. */
typedef unsigned int hip_result;

/* Passed by value, so it has the runtime's own tag; where HIP's headers are included it is there already. */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
struct hipIpcMemHandle_st {
    char bytes[64];
};
#endif
typedef struct hipIpcMemHandle_st hip_shared_handle;

typedef struct hip_location {
    unsigned int type;
    int id;
} hip_location;

/* hipMemAllocationProp as it is since HIP 5.3; before that the fields stood in another order. */
typedef struct hip_properties {
    unsigned int type;
    unsigned int handle_type;
    hip_location location;
    void *windows_only;
    unsigned char flags[8];
} hip_properties;

/* hipMemPoolProps; the reserved bytes have got names since. */
typedef struct hip_pool_properties {
    unsigned int type;
    unsigned int handle_types;
    hip_location location;
    void *windows_only;
    unsigned char reserved[64];
} hip_pool_properties;

/* hipMemAccessDesc */
typedef struct hip_access {
    hip_location location;
    unsigned int flags;
} hip_access;

enum {
    HIP_STREAM_NON_BLOCKING = 1,
    HIP_EVENT_BLOCKING_SYNC = 1,
    HIP_EVENT_DISABLE_TIMING = 2,
    HIP_HOST_PORTABLE = 1,
    HIP_HOST_WRITE_COMBINED = 4,
    HIP_REGISTER_PORTABLE = 1,
    HIP_POOL_RELEASE_THRESHOLD = 4,
    HIP_CAPTURE_RELAXED = 2,
    HIP_ADVISE_READ_MOSTLY = 1,
    HIP_ADVISE_PREFER_LOCATION = 3,
    HIP_ADVISE_ACCESSED_BY = 5,
    HIP_CPU = -1,
    HIP_ATTACH_GLOBAL = 1,
    HIP_COPY_DEFAULT = 4,
    HIP_ALLOCATION_PINNED = 1,
    HIP_LOCATION_DEVICE = 1,
    HIP_ACCESS_READ_WRITE = 3,
    HIP_VERSION_OF_PIECES = 60100000, /* before, a release deletes memory that is still mapped */
};

/* X(need, result, name, parameters) */
#define HIP_FUNCTIONS(X)                                                                                     \
    X(required, hip_result, hipInit, (unsigned int))                                                         \
    X(required, hip_result, hipDriverGetVersion, (int *))                                                    \
    X(required, const char *, hipGetErrorName, (hip_result))                                                 \
    X(required, hip_result, hipGetDeviceCount, (int *))                                                      \
    X(required, hip_result, hipDeviceGetName, (char *, int, int))                                            \
    X(required, hip_result, hipDeviceTotalMem, (size_t *, int))                                              \
    X(required, hip_result, hipGetDevice, (int *))                                                           \
    X(required, hip_result, hipSetDevice, (int))                                                             \
    X(required, hip_result, hipMalloc, (void **, size_t))                                                    \
    X(required, hip_result, hipFree, (void *))                                                               \
    X(required, hip_result, hipHostMalloc, (void **, size_t, unsigned int))                                  \
    X(required, hip_result, hipHostFree, (void *))                                                           \
    X(optional, hip_result, hipMallocManaged, (void **, size_t, unsigned int))                               \
    X(required, hip_result, hipMemcpyAsync,                                                                  \
      (void *, const void *, size_t, unsigned int, struct ihipStream_t *))                                   \
    X(required, hip_result, hipMemsetAsync, (void *, int, size_t, struct ihipStream_t *))                    \
    X(required, hip_result, hipStreamCreateWithFlags, (struct ihipStream_t **, unsigned int))                \
    X(required, hip_result, hipStreamDestroy, (struct ihipStream_t *))                                       \
    X(required, hip_result, hipStreamQuery, (struct ihipStream_t *))                                         \
    X(required, hip_result, hipStreamSynchronize, (struct ihipStream_t *))                                   \
    X(required, hip_result, hipStreamWaitEvent, (struct ihipStream_t *, struct ihipEvent_t *, unsigned int)) \
    X(optional, hip_result, hipLaunchHostFunc, (struct ihipStream_t *, void (*)(void *), void *))            \
    X(required, hip_result, hipStreamAddCallback,                                                            \
      (struct ihipStream_t *, void (*)(struct ihipStream_t *, hip_result, void *), void *, unsigned int))    \
    X(required, hip_result, hipEventCreateWithFlags, (struct ihipEvent_t **, unsigned int))                  \
    X(required, hip_result, hipEventDestroy, (struct ihipEvent_t *))                                         \
    X(required, hip_result, hipEventRecord, (struct ihipEvent_t *, struct ihipStream_t *))                   \
    X(required, hip_result, hipEventQuery, (struct ihipEvent_t *))                                           \
    X(required, hip_result, hipEventSynchronize, (struct ihipEvent_t *))                                     \
    X(required, hip_result, hipGetLastError, (void))                                                         \
    X(required, hip_result, hipPeekAtLastError, (void))                                                      \
    X(optional, hip_result, hipMemGetInfo, (size_t *, size_t *))                                             \
    X(optional, hip_result, hipStreamIsCapturing, (struct ihipStream_t *, unsigned int *))                   \
    X(optional, hip_result, hipThreadExchangeStreamCaptureMode, (unsigned int *))                            \
    X(optional, hip_result, hipDeviceCanAccessPeer, (int *, int, int))                                       \
    X(optional, hip_result, hipDeviceEnablePeerAccess, (int, unsigned int))                                  \
    X(optional, hip_result, hipMemcpyPeerAsync,                                                              \
      (void *, int, const void *, int, size_t, struct ihipStream_t *))                                       \
    X(optional, hip_result, hipHostRegister, (void *, size_t, unsigned int))                                 \
    X(optional, hip_result, hipHostUnregister, (void *))                                                     \
    X(optional, hip_result, hipMemPrefetchAsync, (const void *, size_t, int, struct ihipStream_t *))         \
    X(optional, hip_result, hipMemAdvise, (const void *, size_t, unsigned int, int))                         \
    X(optional, hip_result, hipIpcGetMemHandle, (struct hipIpcMemHandle_st *, void *))                       \
    X(optional, hip_result, hipIpcOpenMemHandle, (void **, struct hipIpcMemHandle_st, unsigned int))         \
    X(optional, hip_result, hipIpcCloseMemHandle, (void *))                                                  \
    X(optional, hip_result, hipMemPoolCreate,                                                                \
      (struct ihipMemPoolHandle_t **, const struct hipMemPoolProps *))                                       \
    X(optional, hip_result, hipMemPoolSetAttribute, (struct ihipMemPoolHandle_t *, unsigned int, void *))    \
    X(optional, hip_result, hipMemPoolTrimTo, (struct ihipMemPoolHandle_t *, size_t))                        \
    X(optional, hip_result, hipMallocFromPoolAsync,                                                          \
      (void **, size_t, struct ihipMemPoolHandle_t *, struct ihipStream_t *))                                \
    X(optional, hip_result, hipFreeAsync, (void *, struct ihipStream_t *))                                   \
    X(optional, hip_result, hipMemAddressReserve, (void **, size_t, size_t, void *, unsigned long long))     \
    X(optional, hip_result, hipMemAddressFree, (void *, size_t))                                             \
    X(optional, hip_result, hipMemCreate,                                                                    \
      (struct ihipMemGenericAllocationHandle **, size_t, const struct hipMemAllocationProp *,                \
       unsigned long long))                                                                                  \
    X(optional, hip_result, hipMemRelease, (struct ihipMemGenericAllocationHandle *))                        \
    X(optional, hip_result, hipMemMap,                                                                       \
      (void *, size_t, size_t, struct ihipMemGenericAllocationHandle *, unsigned long long))                 \
    X(optional, hip_result, hipMemUnmap, (void *, size_t))                                                   \
    X(optional, hip_result, hipMemSetAccess, (void *, size_t, const struct hipMemAccessDesc *, size_t))      \
    X(optional, hip_result, hipMemGetAllocationGranularity,                                                  \
      (size_t *, const struct hipMemAllocationProp *, unsigned int))

/* What came after HIP 5.2, the oldest whose headers a test compares with. */
#define HIP_LATER_FUNCTIONS(X) X(optional, hip_result, hipStreamGetDevice, (struct ihipStream_t *, int *))

struct ihipStream_t;
struct ihipEvent_t;
struct ihipMemGenericAllocationHandle;
struct hipMemAllocationProp;
struct hipMemAccessDesc;
struct ihipMemPoolHandle_t;
struct hipMemPoolProps;

#define HIP_MEMBER(need, result, name, parameters) result(*name) parameters;
typedef struct hip_functions {
    HIP_FUNCTIONS(HIP_MEMBER)
    HIP_LATER_FUNCTIONS(HIP_MEMBER)
} hip_functions;
#undef HIP_MEMBER

#endif

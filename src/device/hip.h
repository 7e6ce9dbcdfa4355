/* The HIP runtime's functions as berth uses them, declared here so that berth builds without HIP's headers. A
 * test compares every type with those where they are installed. */
#ifndef BERTH_DEVICE_HIP_H
#define BERTH_DEVICE_HIP_H

#include <stddef.h>
#include <stdint.h>

/* hipError_t and the other enumerations are unsigned int to the compiler. */
typedef unsigned int hip_result;

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

/* hipMemAccessDesc */
typedef struct hip_access {
    hip_location location;
    unsigned int flags;
} hip_access;

enum {
    HIP_STREAM_NON_BLOCKING = 1,
    HIP_EVENT_DISABLE_TIMING = 2,
    HIP_HOST_PORTABLE = 1,
    HIP_ATTACH_GLOBAL = 1,
    HIP_COPY_DEFAULT = 4,
    HIP_ALLOCATION_PINNED = 1,
    HIP_LOCATION_DEVICE = 1,
    HIP_ACCESS_READ_WRITE = 3,
    HIP_VERSION_OF_PIECES = 50300000,
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
    X(optional, hip_result, hipMallocAsync, (void **, size_t, struct ihipStream_t *))                        \
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

struct ihipStream_t;
struct ihipEvent_t;
struct ihipMemGenericAllocationHandle;
struct hipMemAllocationProp;
struct hipMemAccessDesc;

#define HIP_MEMBER(need, result, name, parameters) result(*name) parameters;
typedef struct hip_functions {
    HIP_FUNCTIONS(HIP_MEMBER)
} hip_functions;
#undef HIP_MEMBER

#endif

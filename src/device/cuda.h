/* The CUDA driver's functions as berth uses them, declared here so that berth builds without cuda.h. A test
 * compares every type with cuda.h where that is installed. */
#ifndef BERTH_DEVICE_CUDA_H
#define BERTH_DEVICE_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* CUresult and its other enumerations are unsigned int to the compiler; a CUdevice is an int; a CUdeviceptr
 * and an allocation's handle are 64 bits. */
typedef unsigned int cuda_result;
typedef unsigned long long cuda_pointer;

/* What is passed by value has the driver's own tag; where cuda.h is included it is there already. */
#ifndef CUDA_VERSION
struct CUmemLocation_st {
    unsigned int type;
    int id;
};
struct CUipcMemHandle_st {
    char bytes[64];
};
#endif
typedef struct CUmemLocation_st cuda_location;
typedef struct CUipcMemHandle_st cuda_shared_handle;

/* CUmemAllocationProp */
typedef struct cuda_properties {
    unsigned int type;
    unsigned int handle_types;
    cuda_location location;
    void *windows_only;
    unsigned char flags[8];
} cuda_properties;

/* CUmemPoolProps */
typedef struct cuda_pool_properties {
    unsigned int type;
    unsigned int handle_types;
    cuda_location location;
    void *windows_only;
    size_t most_bytes;
    unsigned char reserved[56];
} cuda_pool_properties;

/* CUmemAccessDesc */
typedef struct cuda_access {
    cuda_location location;
    unsigned int flags;
} cuda_access;

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING_SYNC = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1,
    CUDA_HOST_WRITE_COMBINED = 4,
    CUDA_REGISTER_PORTABLE = 1,
    CUDA_SHARED_LAZY_PEERS = 1,
    CUDA_POOL_RELEASE_THRESHOLD = 4,
    CUDA_CAPTURE_RELAXED = 2,
    CUDA_ADVISE_READ_MOSTLY = 1,
    CUDA_ADVISE_PREFER_LOCATION = 3,
    CUDA_ADVISE_ACCESSED_BY = 5,
    CUDA_LOCATION_HOST = 2,
    CUDA_ATTACH_GLOBAL = 1,
    CUDA_ATTRIBUTE_MANAGED_MEMORY = 83,
    CUDA_ATTRIBUTE_VIRTUAL_MEMORY = 102,
    CUDA_ATTRIBUTE_MEMORY_POOLS = 115,
    CUDA_ALLOCATION_PINNED = 1,
    CUDA_LOCATION_DEVICE = 1,
    CUDA_ACCESS_READ_WRITE = 3,
};

/* X(need, result, name, parameters). The names are the driver's own: where a function has had several forms,
 * the versioned one that the headers of CUDA 11 to 13 mean. */
#define CUDA_FUNCTIONS(X)                                                                                   \
    X(required, cuda_result, cuInit, (unsigned int))                                                        \
    X(required, cuda_result, cuDriverGetVersion, (int *))                                                   \
    X(required, cuda_result, cuGetErrorName, (cuda_result, const char **))                                  \
    X(required, cuda_result, cuDeviceGetCount, (int *))                                                     \
    X(required, cuda_result, cuDeviceGet, (int *, int))                                                     \
    X(required, cuda_result, cuDeviceGetName, (char *, int, int))                                           \
    X(required, cuda_result, cuDeviceTotalMem_v2, (size_t *, int))                                          \
    X(required, cuda_result, cuDeviceGetAttribute, (int *, unsigned int, int))                              \
    X(required, cuda_result, cuDevicePrimaryCtxRetain, (struct CUctx_st **, int))                           \
    X(required, cuda_result, cuCtxGetCurrent, (struct CUctx_st **))                                         \
    X(required, cuda_result, cuCtxPushCurrent_v2, (struct CUctx_st *))                                      \
    X(required, cuda_result, cuCtxPopCurrent_v2, (struct CUctx_st **))                                      \
    X(required, cuda_result, cuMemAlloc_v2, (cuda_pointer *, size_t))                                       \
    X(required, cuda_result, cuMemFree_v2, (cuda_pointer))                                                  \
    X(required, cuda_result, cuMemHostAlloc, (void **, size_t, unsigned int))                               \
    X(required, cuda_result, cuMemFreeHost, (void *))                                                       \
    X(required, cuda_result, cuMemAllocManaged, (cuda_pointer *, size_t, unsigned int))                     \
    X(required, cuda_result, cuMemcpyAsync, (cuda_pointer, cuda_pointer, size_t, struct CUstream_st *))     \
    X(required, cuda_result, cuMemsetD8Async, (cuda_pointer, unsigned char, size_t, struct CUstream_st *))  \
    X(required, cuda_result, cuStreamCreate, (struct CUstream_st **, unsigned int))                         \
    X(required, cuda_result, cuStreamDestroy_v2, (struct CUstream_st *))                                    \
    X(required, cuda_result, cuStreamQuery, (struct CUstream_st *))                                         \
    X(required, cuda_result, cuStreamSynchronize, (struct CUstream_st *))                                   \
    X(required, cuda_result, cuStreamWaitEvent, (struct CUstream_st *, struct CUevent_st *, unsigned int))  \
    X(required, cuda_result, cuLaunchHostFunc, (struct CUstream_st *, void (*)(void *), void *))            \
    X(required, cuda_result, cuEventCreate, (struct CUevent_st **, unsigned int))                           \
    X(required, cuda_result, cuEventDestroy_v2, (struct CUevent_st *))                                      \
    X(required, cuda_result, cuEventRecord, (struct CUevent_st *, struct CUstream_st *))                    \
    X(required, cuda_result, cuEventQuery, (struct CUevent_st *))                                           \
    X(required, cuda_result, cuEventSynchronize, (struct CUevent_st *))                                     \
    X(optional, cuda_result, cuMemGetInfo_v2, (size_t *, size_t *))                                         \
    X(optional, cuda_result, cuStreamGetCtx, (struct CUstream_st *, struct CUctx_st **))                    \
    X(optional, cuda_result, cuStreamIsCapturing, (struct CUstream_st *, unsigned int *))                   \
    X(optional, cuda_result, cuThreadExchangeStreamCaptureMode, (unsigned int *))                           \
    X(optional, cuda_result, cuDeviceCanAccessPeer, (int *, int, int))                                      \
    X(optional, cuda_result, cuCtxEnablePeerAccess, (struct CUctx_st *, unsigned int))                      \
    X(optional, cuda_result, cuMemcpyPeerAsync,                                                             \
      (cuda_pointer, struct CUctx_st *, cuda_pointer, struct CUctx_st *, size_t, struct CUstream_st *))     \
    X(optional, cuda_result, cuMemHostRegister_v2, (void *, size_t, unsigned int))                          \
    X(optional, cuda_result, cuMemHostUnregister, (void *))                                                 \
    X(optional, cuda_result, cuMemPrefetchAsync_v2,                                                         \
      (cuda_pointer, size_t, struct CUmemLocation_st, unsigned int, struct CUstream_st *))                  \
    X(optional, cuda_result, cuMemAdvise_v2, (cuda_pointer, size_t, unsigned int, struct CUmemLocation_st)) \
    X(optional, cuda_result, cuIpcGetMemHandle, (struct CUipcMemHandle_st *, cuda_pointer))                 \
    X(optional, cuda_result, cuIpcOpenMemHandle_v2,                                                         \
      (cuda_pointer *, struct CUipcMemHandle_st, unsigned int))                                             \
    X(optional, cuda_result, cuIpcCloseMemHandle, (cuda_pointer))                                           \
    X(optional, cuda_result, cuMemPoolCreate,                                                               \
      (struct CUmemPoolHandle_st **, const struct CUmemPoolProps_st *))                                     \
    X(optional, cuda_result, cuMemPoolSetAttribute, (struct CUmemPoolHandle_st *, unsigned int, void *))    \
    X(optional, cuda_result, cuMemPoolTrimTo, (struct CUmemPoolHandle_st *, size_t))                        \
    X(optional, cuda_result, cuMemAllocFromPoolAsync,                                                       \
      (cuda_pointer *, size_t, struct CUmemPoolHandle_st *, struct CUstream_st *))                          \
    X(optional, cuda_result, cuMemFreeAsync, (cuda_pointer, struct CUstream_st *))                          \
    X(optional, cuda_result, cuMemAddressReserve,                                                           \
      (cuda_pointer *, size_t, size_t, cuda_pointer, unsigned long long))                                   \
    X(optional, cuda_result, cuMemAddressFree, (cuda_pointer, size_t))                                      \
    X(optional, cuda_result, cuMemCreate,                                                                   \
      (unsigned long long *, size_t, const struct CUmemAllocationProp_st *, unsigned long long))            \
    X(optional, cuda_result, cuMemRelease, (unsigned long long))                                            \
    X(optional, cuda_result, cuMemMap,                                                                      \
      (cuda_pointer, size_t, size_t, unsigned long long, unsigned long long))                               \
    X(optional, cuda_result, cuMemUnmap, (cuda_pointer, size_t))                                            \
    X(optional, cuda_result, cuMemSetAccess,                                                                \
      (cuda_pointer, size_t, const struct CUmemAccessDesc_st *, size_t))                                    \
    X(optional, cuda_result, cuMemGetAllocationGranularity,                                                 \
      (size_t *, const struct CUmemAllocationProp_st *, unsigned int))

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmemAllocationProp_st;
struct CUmemAccessDesc_st;
struct CUmemPoolHandle_st;
struct CUmemPoolProps_st;

#define CUDA_MEMBER(need, result, name, parameters) result(*name) parameters;
typedef struct cuda_functions {
    CUDA_FUNCTIONS(CUDA_MEMBER)
} cuda_functions;
#undef CUDA_MEMBER

#endif

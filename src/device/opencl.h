/* What the files of the OpenCL device share: the driver's types and functions, devices, streams.
 *
 *     opencl.c         the table, and what devices say of themselves
 *     opencl_load.c    finding the driver and its devices; contexts; errors
 *     opencl_memory.c  shared virtual memory, copies and fills
 *     opencl_stream.c  queues as streams, cl_event as events
 *
 * The types are declared here, not taken from the CL headers, so that berth builds without them; a test
 * compares both where the headers are installed. */
#ifndef BERTH_DEVICE_OPENCL_H
#define BERTH_DEVICE_OPENCL_H

#include "base/library.h"
#include "device/device.h"

/* ---- The driver's types: its own tags, so that the compiler can compare them -------------------- */

typedef struct _cl_platform_id *ocl_platform; /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_device_id *ocl_device_id;  /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_context *ocl_context;      /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_command_queue *ocl_queue;  /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_event *ocl_event_id;       /* NOLINT(bugprone-reserved-identifier) */

enum {
    OCL_SUCCESS = 0,
    OCL_DEVICE_NOT_FOUND = -1,
    OCL_DEVICE_NOT_AVAILABLE = -2,
    OCL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    OCL_OUT_OF_RESOURCES = -5,
    OCL_OUT_OF_HOST_MEMORY = -6,
    OCL_PLATFORM_NOT_FOUND = -1001,
    OCL_PLATFORM_NAME = 0x0902,
    OCL_DEVICE_TYPE_ALL = -1,
    OCL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    OCL_DEVICE_AVAILABLE = 0x1027,
    OCL_DEVICE_NAME = 0x102b,
    OCL_DRIVER_VERSION = 0x102d,
    OCL_DEVICE_EXTENSIONS = 0x1030,
    OCL_DEVICE_SVM_CAPABILITIES = 0x1053,
    OCL_SVM_COARSE = 1 << 0,
    OCL_SVM_FINE = 1 << 1,
    OCL_MEM_READ_WRITE = 1 << 0,
    OCL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10,
    OCL_MAP_READ = 1 << 0,
    OCL_MAP_WRITE = 1 << 1,
    OCL_QUEUE_CONTEXT = 0x1090,
    OCL_QUEUE_DEVICE = 0x1091,
    OCL_QUEUE_PROPERTIES = 0x1093,
    OCL_QUEUE_OUT_OF_ORDER = 1 << 0,
    OCL_CONTEXT_PLATFORM = 0x1084,
    OCL_EVENT_STATUS = 0x11d3,
    OCL_COMPLETE = 0,
};

/* X(need, result, name, parameters). A driver without an `optional` one still works. */
#define OCL_FUNCTIONS(X)                                                                                   \
    X(required, int32_t, clGetPlatformIDs, (uint32_t, ocl_platform *, uint32_t *))                         \
    X(required, int32_t, clGetPlatformInfo, (ocl_platform, uint32_t, size_t, void *, size_t *))            \
    X(required, int32_t, clGetDeviceIDs, (ocl_platform, uint64_t, uint32_t, ocl_device_id *, uint32_t *))  \
    X(required, int32_t, clGetDeviceInfo, (ocl_device_id, uint32_t, size_t, void *, size_t *))             \
    X(required, ocl_context, clCreateContext,                                                              \
      (const intptr_t *, uint32_t, const ocl_device_id *,                                                  \
       void (*)(const char *, const void *, size_t, void *), void *, int32_t *))                           \
    X(required, int32_t, clReleaseContext, (ocl_context))                                                  \
    X(optional, ocl_queue, clCreateCommandQueueWithProperties,                                             \
      (ocl_context, ocl_device_id, const uint64_t *, int32_t *))                                           \
    X(required, ocl_queue, clCreateCommandQueue, (ocl_context, ocl_device_id, uint64_t, int32_t *))        \
    X(required, int32_t, clRetainCommandQueue, (ocl_queue))                                                \
    X(required, int32_t, clReleaseCommandQueue, (ocl_queue))                                               \
    X(required, int32_t, clGetCommandQueueInfo, (ocl_queue, uint32_t, size_t, void *, size_t *))           \
    X(required, int32_t, clFlush, (ocl_queue))                                                             \
    X(required, int32_t, clFinish, (ocl_queue))                                                            \
    X(required, int32_t, clEnqueueMarkerWithWaitList,                                                      \
      (ocl_queue, uint32_t, const ocl_event_id *, ocl_event_id *))                                         \
    X(required, int32_t, clEnqueueBarrierWithWaitList,                                                     \
      (ocl_queue, uint32_t, const ocl_event_id *, ocl_event_id *))                                         \
    X(required, int32_t, clGetEventInfo, (ocl_event_id, uint32_t, size_t, void *, size_t *))               \
    X(required, int32_t, clWaitForEvents, (uint32_t, const ocl_event_id *))                                \
    X(required, int32_t, clReleaseEvent, (ocl_event_id))                                                   \
    X(required, int32_t, clSetEventCallback,                                                               \
      (ocl_event_id, int32_t, void (*)(ocl_event_id, int32_t, void *), void *))                            \
    X(required, ocl_event_id, clCreateUserEvent, (ocl_context, int32_t *))                                 \
    X(required, int32_t, clSetUserEventStatus, (ocl_event_id, int32_t))                                    \
    X(optional, void *, clGetExtensionFunctionAddressForPlatform, (ocl_platform, const char *))            \
    X(optional, void *, clSVMAlloc, (ocl_context, uint64_t, size_t, uint32_t))                             \
    X(optional, void, clSVMFree, (ocl_context, void *))                                                    \
    X(optional, int32_t, clEnqueueSVMFree,                                                                 \
      (ocl_queue, uint32_t, void **, void (*)(ocl_queue, uint32_t, void **, void *), void *, uint32_t,     \
       const ocl_event_id *, ocl_event_id *))                                                              \
    X(optional, int32_t, clEnqueueSVMMemcpy,                                                               \
      (ocl_queue, uint32_t, void *, const void *, size_t, uint32_t, const ocl_event_id *, ocl_event_id *)) \
    X(optional, int32_t, clEnqueueSVMMemFill,                                                              \
      (ocl_queue, void *, const void *, size_t, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))   \
    X(optional, int32_t, clEnqueueSVMMap,                                                                  \
      (ocl_queue, uint32_t, uint64_t, void *, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))     \
    X(optional, int32_t, clEnqueueSVMUnmap,                                                                \
      (ocl_queue, void *, uint32_t, const ocl_event_id *, ocl_event_id *))

/* The extension cl_intel_unified_shared_memory, found platform by platform; all or none. */
#define OCL_USM_FUNCTIONS(X)                                                                               \
    X(required, void *, clHostMemAllocINTEL, (ocl_context, const uint64_t *, size_t, uint32_t, int32_t *)) \
    X(required, void *, clDeviceMemAllocINTEL,                                                             \
      (ocl_context, ocl_device_id, const uint64_t *, size_t, uint32_t, int32_t *))                         \
    X(required, void *, clSharedMemAllocINTEL,                                                             \
      (ocl_context, ocl_device_id, const uint64_t *, size_t, uint32_t, int32_t *))                         \
    X(required, int32_t, clMemBlockingFreeINTEL, (ocl_context, void *))                                    \
    X(required, int32_t, clEnqueueMemFillINTEL,                                                            \
      (ocl_queue, void *, const void *, size_t, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))   \
    X(required, int32_t, clEnqueueMemcpyINTEL,                                                             \
      (ocl_queue, uint32_t, void *, const void *, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))

#define OCL_MEMBER(need, result, name, parameters) result(*name) parameters;
typedef struct ocl_functions {
    OCL_FUNCTIONS(OCL_MEMBER)
} ocl_functions;
typedef struct ocl_usm_functions {
    OCL_USM_FUNCTIONS(OCL_MEMBER)
} ocl_usm_functions;
#undef OCL_MEMBER

extern ocl_functions berth__ocl; /* filled once, by the first count */

/* ---- Devices ------------------------------------------------------------------------------------- */

typedef struct ocl_device {
    ocl_platform platform;
    ocl_device_id id;
    bool coarse, fine; /* which shared virtual memory it has */
    bool usm;          /* it has the extension, which is then used instead */
    ocl_usm_functions usm_functions;
    _Atomic(ocl_context) context; /* made on first use */
    _Atomic(ocl_queue) queue;     /* for work without a stream; made on first use */
    _Atomic bool lost;
} ocl_device;

berth_status berth__ocl_count(berth_device_kind kind, int32_t *count);
/* Only after a count that found it. */
ocl_device *berth__ocl_device(berth_device device);
/* The device's context and its queue for work without a stream. */
berth_status berth__ocl_context(ocl_device *device, ocl_context *out);
berth_status berth__ocl_own_queue(ocl_device *device, ocl_queue *out);
berth_status berth__ocl_new_queue(ocl_device *device, ocl_queue *out);

/* Keeps the driver's code and words. A lost device is logged the first time. */
berth_status berth__ocl_fail(ocl_device *device, int32_t code, const char *what);
/* The same for calls whose shortage is one of device memory. */
berth_status berth__ocl_fail_memory(ocl_device *device, int32_t code, size_t size_bytes);
/* BERTH_OK, or BERTH_DEVICE_LOST once the device has been lost: the driver is not called any more. */
berth_status berth__ocl_alive(ocl_device *device);
/* "CL_OUT_OF_RESOURCES". */
const char *berth__ocl_words(int32_t code);

/* ---- Streams ------------------------------------------------------------------------------------- */

typedef struct ocl_stream {
    berth_stream base;
    ocl_device *device;
    ocl_queue queue;
    bool out_of_order;              /* a queue of the user's: we put barriers around our work */
    _Atomic bool shared;            /* the program has the queue too and may enqueue what we do not see */
    _Atomic uint64_t enqueued;      /* commands of ours */
    _Atomic uint64_t seen_done;     /* how many of them are known to have run */
    _Atomic(ocl_event_id) marker;   /* the last question that was not answered yet */
    _Atomic(berth_stream *) caller; /* a CPU stream that runs functions given to berth_stream_call */
} ocl_stream;

/* Around every command: on an out-of-order queue these keep the order that a stream promises. */
int32_t berth__ocl_before(ocl_stream *stream);
int32_t berth__ocl_after(ocl_stream *stream);

/* ---- The parts of the table ---------------------------------------------------------------------- */

berth_status berth__ocl_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out);
berth_status berth__ocl_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                berth_stream *stream);
berth_status berth__ocl_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream);
berth_status berth__ocl_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream);
berth_status berth__ocl_stream_create(berth_device device, berth_stream **out);
berth_status berth__ocl_stream_wrap(berth_device device, void *native, berth_stream **out);
void *berth__ocl_stream_native(berth_stream *stream);
void berth__ocl_stream_destroy(berth_stream *stream);
berth_status berth__ocl_stream_query(berth_stream *stream);
berth_status berth__ocl_stream_synchronize(berth_stream *stream);
berth_status berth__ocl_stream_wait_event(berth_stream *stream, berth_event *event);
berth_status berth__ocl_stream_call(berth_stream *stream, void (*fn)(void *context), void *context);
berth_status berth__ocl_event_create(berth_device device, berth_event **out);
berth_status berth__ocl_event_record(berth_event *event, berth_stream *stream);
berth_status berth__ocl_event_query(berth_event *event);
berth_status berth__ocl_event_wait(berth_event *event);
void berth__ocl_event_destroy(berth_event *event);

#endif

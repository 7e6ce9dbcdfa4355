/* What the files of the OpenCL device share: the driver's types and functions, devices, streams.
 *
 *     opencl.c         the table, and what devices say of themselves
 *     opencl_load.c    finding the driver and its devices
 *     opencl_adopt.c   contexts: our own, those of the program, queues for work without a stream
 *     opencl_error.c   what the driver's codes mean to us; devices that are lost
 *     opencl_memory.c  blocks: shared virtual memory, the USM extension
 *     opencl_buffer.c  blocks that are buffers (cl_mem): all memory where there are no pointers, and pinned memory
 *                      where there is no fine-grained memory
 *     opencl_copy.c    copies and fills
 *     opencl_move.c    the same for memory that is a buffer
 *     opencl_stream.c  queues as streams
 *     opencl_call.c    functions of the host on a queue, and what happens once a queue has passed a point
 *     opencl_event.c   cl_event as events
 *
 * The types are declared here, not taken from the CL headers, so that berth builds without them; a test
 * compares both where the headers are installed. */
#ifndef BERTH_DEVICE_OPENCL_H
#define BERTH_DEVICE_OPENCL_H

#include "base/library.h"
#include "base/lock.h"
#include "device/device.h"

/* ---- The driver's types: its own tags, so that the compiler can compare them -------------------- */

typedef struct _cl_platform_id *ocl_platform; /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_device_id *ocl_device_id;  /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_context *ocl_context;      /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_command_queue *ocl_queue;  /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_event *ocl_event_id;       /* NOLINT(bugprone-reserved-identifier) */
typedef struct _cl_mem *ocl_mem;              /* NOLINT(bugprone-reserved-identifier) */

enum {
    OCL_SUCCESS = 0,
    OCL_DEVICE_NOT_FOUND = -1,
    OCL_DEVICE_NOT_AVAILABLE = -2,
    OCL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    OCL_OUT_OF_RESOURCES = -5,
    OCL_OUT_OF_HOST_MEMORY = -6,
    OCL_INVALID_CONTEXT = -34,
    OCL_INVALID_COMMAND_QUEUE = -36,
    OCL_INVALID_BUFFER_SIZE = -61,
    OCL_PLATFORM_NOT_FOUND = -1001,
    OCL_PLATFORM_NAME = 0x0902,
    OCL_DEVICE_TYPE_ALL = -1,
    OCL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    OCL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* in bits */
    OCL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    OCL_DEVICE_AVAILABLE = 0x1027,
    OCL_DEVICE_NAME = 0x102b,
    OCL_DRIVER_VERSION = 0x102d,
    OCL_DEVICE_VERSION = 0x102f,
    OCL_DEVICE_EXTENSIONS = 0x1030,
    OCL_DEVICE_PLATFORM = 0x1031,
    OCL_DEVICE_SVM_CAPABILITIES = 0x1053,
    OCL_SVM_COARSE = 1 << 0,
    OCL_SVM_FINE = 1 << 1,
    OCL_MEM_READ_WRITE = 1 << 0,
    OCL_MEM_ALLOC_HOST_PTR = 1 << 4,
    OCL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10,
    /* Intel's, for blocks above CL_DEVICE_MAX_MEM_ALLOC_SIZE; in no header of Khronos. */
    OCL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL = 1 << 23,
    OCL_MEM_FLAGS_INTEL = 0x10001,
    OCL_MAP_READ = 1 << 0,
    OCL_MAP_WRITE = 1 << 1,
    OCL_MAP_WRITE_INVALIDATE = 1 << 2,
    OCL_QUEUE_CONTEXT = 0x1090,
    OCL_QUEUE_DEVICE = 0x1091,
    OCL_QUEUE_PROPERTIES = 0x1093,
    OCL_QUEUE_OUT_OF_ORDER = 1 << 0,
    OCL_CONTEXT_DEVICES = 0x1081,
    OCL_CONTEXT_PLATFORM = 0x1084,
    OCL_EVENT_STATUS = 0x11d3,
    OCL_COMPLETE = 0,
    OCL_BUFFER_CREATE_TYPE_REGION = 0x1220,
};

/* What clCreateSubBuffer takes: cl_buffer_region. */
typedef struct ocl_region {
    size_t origin, size;
} ocl_region;

/* X(need, result, name, parameters). A driver without an `optional` one still works. */
#define OCL_FUNCTIONS(X)                                                                                     \
    X(required, int32_t, clGetPlatformIDs, (uint32_t, ocl_platform *, uint32_t *))                           \
    X(required, int32_t, clGetPlatformInfo, (ocl_platform, uint32_t, size_t, void *, size_t *))              \
    X(required, int32_t, clGetDeviceIDs, (ocl_platform, uint64_t, uint32_t, ocl_device_id *, uint32_t *))    \
    X(required, int32_t, clGetDeviceInfo, (ocl_device_id, uint32_t, size_t, void *, size_t *))               \
    X(required, ocl_context, clCreateContext,                                                                \
      (const intptr_t *, uint32_t, const ocl_device_id *,                                                    \
       void (*)(const char *, const void *, size_t, void *), void *, int32_t *))                             \
    X(required, int32_t, clRetainContext, (ocl_context))                                                     \
    X(required, int32_t, clReleaseContext, (ocl_context))                                                    \
    X(required, int32_t, clGetContextInfo, (ocl_context, uint32_t, size_t, void *, size_t *))                \
    X(optional, ocl_queue, clCreateCommandQueueWithProperties,                                               \
      (ocl_context, ocl_device_id, const uint64_t *, int32_t *))                                             \
    X(required, ocl_queue, clCreateCommandQueue, (ocl_context, ocl_device_id, uint64_t, int32_t *))          \
    X(required, int32_t, clRetainCommandQueue, (ocl_queue))                                                  \
    X(required, int32_t, clReleaseCommandQueue, (ocl_queue))                                                 \
    X(required, int32_t, clGetCommandQueueInfo, (ocl_queue, uint32_t, size_t, void *, size_t *))             \
    X(required, int32_t, clFlush, (ocl_queue))                                                               \
    X(required, int32_t, clFinish, (ocl_queue))                                                              \
    X(required, int32_t, clEnqueueMarkerWithWaitList,                                                        \
      (ocl_queue, uint32_t, const ocl_event_id *, ocl_event_id *))                                           \
    X(required, int32_t, clEnqueueBarrierWithWaitList,                                                       \
      (ocl_queue, uint32_t, const ocl_event_id *, ocl_event_id *))                                           \
    X(required, int32_t, clGetEventInfo, (ocl_event_id, uint32_t, size_t, void *, size_t *))                 \
    X(required, int32_t, clWaitForEvents, (uint32_t, const ocl_event_id *))                                  \
    X(required, int32_t, clReleaseEvent, (ocl_event_id))                                                     \
    X(required, int32_t, clSetEventCallback,                                                                 \
      (ocl_event_id, int32_t, void (*)(ocl_event_id, int32_t, void *), void *))                              \
    X(required, ocl_event_id, clCreateUserEvent, (ocl_context, int32_t *))                                   \
    X(required, int32_t, clSetUserEventStatus, (ocl_event_id, int32_t))                                      \
    X(required, ocl_mem, clCreateBuffer, (ocl_context, uint64_t, size_t, void *, int32_t *))                 \
    X(required, ocl_mem, clCreateSubBuffer, (ocl_mem, uint64_t, uint32_t, const void *, int32_t *))          \
    X(required, int32_t, clRetainMemObject, (ocl_mem))                                                       \
    X(required, int32_t, clReleaseMemObject, (ocl_mem))                                                      \
    X(required, int32_t, clEnqueueReadBuffer,                                                                \
      (ocl_queue, ocl_mem, uint32_t, size_t, size_t, void *, uint32_t, const ocl_event_id *,                 \
       ocl_event_id *))                                                                                      \
    X(required, int32_t, clEnqueueWriteBuffer,                                                               \
      (ocl_queue, ocl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const ocl_event_id *,           \
       ocl_event_id *))                                                                                      \
    X(required, int32_t, clEnqueueCopyBuffer,                                                                \
      (ocl_queue, ocl_mem, ocl_mem, size_t, size_t, size_t, uint32_t, const ocl_event_id *, ocl_event_id *)) \
    X(required, int32_t, clEnqueueFillBuffer,                                                                \
      (ocl_queue, ocl_mem, const void *, size_t, size_t, size_t, uint32_t, const ocl_event_id *,             \
       ocl_event_id *))                                                                                      \
    X(required, void *, clEnqueueMapBuffer,                                                                  \
      (ocl_queue, ocl_mem, uint32_t, uint64_t, size_t, size_t, uint32_t, const ocl_event_id *,               \
       ocl_event_id *, int32_t *))                                                                           \
    X(required, int32_t, clEnqueueUnmapMemObject,                                                            \
      (ocl_queue, ocl_mem, void *, uint32_t, const ocl_event_id *, ocl_event_id *))                          \
    X(optional, void *, clGetExtensionFunctionAddressForPlatform, (ocl_platform, const char *))              \
    X(optional, void *, clSVMAlloc, (ocl_context, uint64_t, size_t, uint32_t))                               \
    X(optional, void, clSVMFree, (ocl_context, void *))                                                      \
    X(optional, int32_t, clEnqueueSVMFree,                                                                   \
      (ocl_queue, uint32_t, void **, void (*)(ocl_queue, uint32_t, void **, void *), void *, uint32_t,       \
       const ocl_event_id *, ocl_event_id *))                                                                \
    X(optional, int32_t, clEnqueueSVMMemcpy,                                                                 \
      (ocl_queue, uint32_t, void *, const void *, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))   \
    X(optional, int32_t, clEnqueueSVMMemFill,                                                                \
      (ocl_queue, void *, const void *, size_t, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))     \
    X(optional, int32_t, clEnqueueSVMMap,                                                                    \
      (ocl_queue, uint32_t, uint64_t, void *, size_t, uint32_t, const ocl_event_id *, ocl_event_id *))       \
    X(optional, int32_t, clEnqueueSVMUnmap,                                                                  \
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

/* As many queues are kept as threads have worked without a stream at once, up to this. */
enum { OCL_IDLE_QUEUES = 32 };

/* A device in a context. The driver's devices come first, each with a context of ours; a context of the
 * program's adds its devices behind them, and takes them away when it is given back; their places are used again. */
typedef struct ocl_device {
    ocl_platform platform;
    ocl_device_id id;
    bool is_2;             /* OpenCL 2.0 or later: functions that came with it may be called */
    bool coarse, fine;     /* which shared virtual memory it has */
    bool usm;              /* it has the extension, which is then used instead */
    bool buffers;          /* it has neither: its memory are buffers, and our addresses stand for them */
    uint64_t most_bytes;   /* the largest block; 0: the device does not say */
    size_t part_alignment; /* where a sub-buffer may begin */
    ocl_usm_functions usm_functions;
    /* All above is written while the place is free. It is read by whoever has something live there, or the places locked. */
    _Atomic(ocl_context) context;                    /* made on first use, or adopted */
    _Atomic(ocl_queue) idle_queues[OCL_IDLE_QUEUES]; /* for work without a stream; NULL: nothing here */
    _Atomic bool lost;
    _Atomic bool gone;    /* its context was given back; lost, too */
    _Atomic int64_t live; /* blocks and streams, without which a context can be given back */
} ocl_device;

berth_status berth__ocl_count(void *self, int32_t *count);
/* Only after a count that found it. */
ocl_device *berth__ocl_device(berth_device device);
int berth__ocl_ordinal(const ocl_device *device);
/* How many of the devices are the driver's; those behind them are adopted. */
int32_t berth__ocl_listed_count(void);
/* Adds a device, of an adopted context under the caller's lock; NULL: there is no room. It can be found once
 * berth__ocl_publish has been called. */
ocl_device *berth__ocl_add(ocl_platform platform, ocl_device_id id, ocl_context context);
void berth__ocl_publish(void);
/* The process is the child of a fork: the driver stayed behind. */
bool berth__ocl_is_forked(void);
/* Counts something that will live on the device, before it is made: from then on the device's context stays. Once the
 * context was given back, BERTH_DEVICE_LOST. */
berth_status berth__ocl_hold(ocl_device *device);
void berth__ocl_drop(ocl_device *device);
/* Until the places are unlocked no context comes or goes; in between the driver may be asked, no more. False where there is
 * nothing to lock: in the child of a fork, where nobody adopts and who did may have left the lock behind. */
bool berth__ocl_places_lock(void);
void berth__ocl_places_unlock(bool locked);

/* The device's context. */
berth_status berth__ocl_context(ocl_device *device, ocl_context *out);
berth_status berth__ocl_new_queue(ocl_device *device, ocl_queue *out);
/* Whether a queue of that context and device can be a stream of `device`. */
bool berth__ocl_queue_fits(const ocl_device *device, ocl_context context, ocl_device_id id);
/* A queue for work without a stream, the caller's alone until it is given back. */
berth_status berth__ocl_queue_borrow(ocl_device *device, ocl_queue *out);
void berth__ocl_queue_return(ocl_device *device, ocl_queue queue);

/* ---- Errors -------------------------------------------------------------------------------------- */

/* Keeps the driver's code and words. A lost device is logged the first time. */
berth_status berth__ocl_fail(ocl_device *device, int32_t code, const char *what);
/* The same for calls whose shortage is one of device memory. */
berth_status berth__ocl_fail_memory(ocl_device *device, int32_t code, size_t size_bytes);
/* BERTH_OK, or BERTH_DEVICE_LOST once the device has been lost: the driver is not called any more. */
berth_status berth__ocl_alive(ocl_device *device);
/* BERTH_DEVICE_LOST: its context was given back. */
berth_status berth__ocl_fail_gone(const ocl_device *device);
/* "CL_OUT_OF_RESOURCES". */
const char *berth__ocl_words(int32_t code);
/* For what must not stay undone because of a shortage that passes: do code = call; while (berth__ocl_once_more(...)).
 * `attempts` begins at 0. */
bool berth__ocl_once_more(int32_t code, int *attempts);
int32_t berth__ocl_flush(ocl_queue queue);
/* Waits until nothing on the queue runs, whatever became of it. False: the driver does not wait. */
bool berth__ocl_drain(ocl_queue queue);
/* Waits for a queue. Finds out whether a code that may mean a lost device does. */
berth_status berth__ocl_finish(ocl_device *device, ocl_queue queue, const char *what);

/* ---- Streams ------------------------------------------------------------------------------------- */

/* An object of the driver's that goes as soon as it may: not while a user event is unset. */
typedef struct ocl_leaving {
    struct ocl_leaving *next;
    void (*release)(struct ocl_leaving *leaving);
} ocl_leaving;

/* A marker on its way through a queue, and how many of our commands are before it. */
typedef struct ocl_question {
    ocl_event_id marker;
    uint64_t covered;
    uint32_t holders; /* guard: the stream's question_lock */
} ocl_question;

typedef struct ocl_stream {
    berth_stream base;
    ocl_device *device;
    ocl_queue queue;
    bool out_of_order;          /* a queue of the user's: we put barriers around our work */
    _Atomic bool shared;        /* the program has the queue too and may enqueue what we do not see */
    _Atomic uint64_t enqueued;  /* commands of ours */
    _Atomic uint64_t seen_done; /* how many of them are known to have run */
    berth__spin question_lock;
    ocl_question *question;         /* the oldest that was not answered yet; guard: question_lock */
    _Atomic(berth_stream *) caller; /* a CPU stream that runs functions given to berth_stream_call */
    ocl_leaving leaving;
} ocl_stream;

/* Around every command: on an out-of-order queue these keep the order that a stream promises. `after` sends
 * the command on its way, too. */
int32_t berth__ocl_before(ocl_stream *stream);
int32_t berth__ocl_after(ocl_stream *stream);
/* A marker behind everything that the queue has now, on its way. On failure *out is NULL. */
int32_t berth__ocl_put_marker(ocl_queue queue, ocl_event_id *out);
/* The command's state: above 0 under way, 0 complete, below 0 the code it failed with, which is final. Returns
 * the code of the question itself. */
int32_t berth__ocl_state_of(ocl_event_id event, int32_t *state);
berth_status berth__ocl_check_streams(berth_device device);

/* Calls fn(context) once the stream has passed this point, on a thread where the driver may be called. On
 * failure fn is not called. */
berth_status berth__ocl_when_passed(ocl_stream *stream, void (*fn)(void *context), void *context);
/* Has leaving->release called: now, or when the last user event has been set. */
void berth__ocl_leave(ocl_leaving *leaving);

/* ---- Memory -------------------------------------------------------------------------------------- */

berth_status berth__ocl_check_kind(berth_device device, berth_memory_kind kind);
/* A block with whatever alignment the driver gives, and its end. The extension's free waits for the block's
 * commands: not on a thread that one of them waits for. */
berth_status berth__ocl_block(ocl_device *device, berth_memory_kind kind, size_t size_bytes, void **out);
void berth__ocl_free_block(ocl_device *device, void *raw);
/* Frees it when the stream gets there. */
berth_status berth__ocl_free_on_stream(ocl_stream *stream, void *raw);

/* Memory that is a buffer. */
typedef struct ocl_buffer {
    ocl_leaving leaving; /* first */
    ocl_device *device;
    ocl_mem id;
    char *p;      /* the caller's */
    char *mapped; /* pinned: where the driver has it mapped. NULL: `p` is an address that stands for it */
    size_t size_bytes;
    bool released; /* its stream has not passed that point; guard: the table's lock */
} ocl_buffer;

/* Where an address lies. */
typedef struct ocl_place {
    ocl_mem buffer; /* NULL: in none; host memory, as far as we know */
    bool pinned;    /* in a mapped one, which is host memory too */
    ocl_device *device;
    size_t offset, size_bytes; /* in it; its own */
} ocl_place;

/* A buffer without an address, NULL if there is none: for work of our own. berth__ocl_buffer_drop gives it back as soon as commands that are
 * enqueued have run; it does not wait. */
ocl_buffer *berth__ocl_buffer_new(ocl_device *device, uint64_t flags, size_t size_bytes,
                                  berth_status *status);
void berth__ocl_buffer_drop(ocl_buffer *buffer);
berth_status berth__ocl_buffer_allocate(ocl_device *device, berth_memory_kind kind, size_t size_bytes,
                                        size_t alignment, void **out);
/* With a stream it goes when the stream gets there, and can be found until then. */
berth_status berth__ocl_buffer_release(ocl_device *device, void *p, ocl_stream *stream);
ocl_place berth__ocl_place_of(const void *p);
/* Whether `p` lies in pinned memory that is a buffer. */
bool berth__ocl_is_pinned(const void *p);
/* Whether memory of that kind is a buffer. */
bool berth__ocl_is_buffer(const ocl_device *device, berth_memory_kind kind);

/* Copies and fills on a device without pointers; `stream` NULL: done on return. */
berth_status berth__ocl_move(ocl_device *device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, ocl_stream *stream);
berth_status berth__ocl_move_zero(ocl_device *device, void *dst, size_t size_bytes, ocl_stream *stream);
/* Waits for a queue of ours, on which a command has answered `code`. */
berth_status berth__ocl_finish_or_fail(ocl_device *device, ocl_queue queue, int32_t code, const char *what);

/* ---- The parts of the table ---------------------------------------------------------------------- */

berth_status berth__ocl_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out);
berth_status berth__ocl_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream);
berth_status berth__ocl_most_bytes(void *self, berth_device device, berth_memory_kind kind, size_t *out);
berth_status berth__ocl_locate(void *self, berth_device device, const void *p, berth_device_place *out);
berth_status berth__ocl_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream);
berth_status berth__ocl_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream);
berth_status berth__ocl_stream_create(void *self, berth_device device, berth_stream **out);
berth_status berth__ocl_stream_wrap(void *self, berth_device device, void *native, berth_stream **out);
void *berth__ocl_stream_native(void *self, berth_stream *stream);
void berth__ocl_stream_destroy(void *self, berth_stream *stream);
berth_status berth__ocl_stream_query(void *self, berth_stream *stream);
berth_status berth__ocl_stream_synchronize(void *self, berth_stream *stream);
berth_status berth__ocl_stream_wait_event(void *self, berth_stream *stream, berth_event *event);
berth_status berth__ocl_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                    void *context);
berth_status berth__ocl_event_create(void *self, berth_device device, berth_event **out);
berth_status berth__ocl_event_record(void *self, berth_event *event, berth_stream *stream);
berth_status berth__ocl_event_query(void *self, berth_event *event);
berth_status berth__ocl_event_wait(void *self, berth_event *event);
void berth__ocl_event_destroy(void *self, berth_event *event);

#endif

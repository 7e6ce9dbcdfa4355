/* Devices: memory, copies, streams and events behind one interface for every kind. */
#ifndef BERTH_DEVICE_H
#define BERTH_DEVICE_H

#include <stdbool.h>

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kind 0 is unknown, so that zeroed memory is never a valid device; every operation refuses it. */
typedef enum berth_device_kind {
    BERTH_DEVICE_UNKNOWN = 0,
    BERTH_DEVICE_CPU = 1,
    BERTH_DEVICE_CUDA = 2,
    BERTH_DEVICE_HIP = 3,
    BERTH_DEVICE_OPENCL = 4,
    BERTH_DEVICE_VIRTUAL = 5,      /* time advances only when a test says so; see berth/virtual.h */
    BERTH_DEVICE_REGISTERED = 256, /* this and above: registered by the program; see berth/device_ops.h */
    BERTH_DEVICE_KIND_MAX = 0x7fffffff,
} berth_device_kind;

typedef struct berth_device {
    int32_t kind; /* berth_device_kind */
    int32_t ordinal;
} berth_device;

/* What kind of memory a device is asked for. A kind that the device lacks is BERTH_UNSUPPORTED. */
typedef enum berth_memory_kind {
    BERTH_MEMORY_DEVICE = 0,         /* the device's own */
    BERTH_MEMORY_PINNED = 1,         /* host memory that the device's copies may use asynchronously */
    BERTH_MEMORY_MANAGED = 2,        /* one address for host and device; the driver moves the pages */
    BERTH_MEMORY_WRITE_COMBINED = 3, /* pinned, fast for the device to read, slow for the host to read */
} berth_memory_kind;

/* How managed memory will be used. */
typedef enum berth_advice {
    BERTH_ADVICE_READ_MOSTLY = 1, /* copies of it may lie on several devices */
    BERTH_ADVICE_KEEP_HERE = 2,   /* on this device rather than elsewhere */
    BERTH_ADVICE_MAP_HERE = 3,    /* this device reaches it without faults wherever it lies */
} berth_advice;

/* Device memory as another process can open it: plain bytes, to be sent there by any means. */
typedef struct berth_shared_handle {
    char bytes[64];
} berth_shared_handle;

typedef struct berth_device_info {
    size_t struct_size;
    char name[128];
    char driver[128];      /* "" on the CPU */
    uint64_t total_bytes;  /* 0: unknown */
    uint64_t memory_kinds; /* bit 1 << berth_memory_kind */
    bool host_accessible;  /* host code may read and write BERTH_MEMORY_DEVICE in place */
    bool stream_ordered;   /* allocate and release honour a stream */
    bool virtual_memory;   /* address space can be reserved and mapped piecewise */
    /* Where memory is bound by handle and offset: what offsets must be a multiple of, a power of two; 0: nothing.
     * Device sources, pools and recorded plans align each block to it, whatever was asked for. */
    uint64_t offset_alignment;
} berth_device_info;

#define BERTH_DEVICE_INFO_INIT                                          \
    {                                                                   \
        sizeof(berth_device_info), "", "", 0, 0, false, false, false, 0 \
    }

/* Streams run their work in order, asynchronously to the caller and to each other; a worker thread each on
 * the CPU. Events mark a point in a stream. Both belong to one device. */
typedef struct berth_stream berth_stream;
typedef struct berth_event berth_event;

typedef enum berth_copy_kind {
    BERTH_COPY_INFER = 0, /* from what the device knows of both pointers */
    BERTH_COPY_HOST_TO_HOST = 1,
    BERTH_COPY_HOST_TO_DEVICE = 2,
    BERTH_COPY_DEVICE_TO_HOST = 3,
    BERTH_COPY_DEVICE_TO_DEVICE = 4,
} berth_copy_kind;

/* The host itself: { BERTH_DEVICE_CPU, 0 }. */
BERTH_API berth_device berth_device_cpu(void);

BERTH_API const char *berth_device_kind_name(berth_device_kind kind);

/* How many devices of `kind` there are; loads the kind's driver if that has not happened. Any thread.
 * BERTH_OK; BERTH_UNSUPPORTED with words in berth_last_error when the driver is absent (*count is 0). */
BERTH_API berth_status berth_device_count(berth_device_kind kind, int32_t *count);

/* Describes `device`; the caller sets info->struct_size. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_NOT_FOUND, BERTH_UNSUPPORTED. */
BERTH_API berth_status berth_device_describe(berth_device device, berth_device_info *info);

/* What the driver calls the device's context: a cl_context, a CUcontext; borrowed. Streams to be wrapped,
 * programs and kernels are made in it. Any thread. BERTH_OK, BERTH_UNSUPPORTED where there is none,
 * BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_device_native(berth_device device, void **out);

/* Raw device memory, without statistics; allocators stand on this. 0 bytes is BERTH_OK with NULL and does not
 * touch the driver. `stream` orders the allocation where the device can, else it is ignored; may be NULL.
 * `alignment` is a power of two. The caller owns the block. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_DEVICE_MEMORY, BERTH_UNSUPPORTED, BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                             size_t alignment, berth_stream *stream, void **out);

/* Gives back what berth_device_allocate gave, with the same kind and size. NULL is a no-op. Any thread. */
BERTH_API berth_status berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                            size_t size_bytes, berth_stream *stream);

/* Copies between host and `device`, or within it. With a stream the copy is enqueued and both blocks must
 * stay until it has run; `need_sync` then waits for that stream, and only for it. Without a stream it is done
 * on return. 0 bytes is BERTH_OK. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                                  berth_copy_kind kind, berth_stream *stream, bool need_sync);

/* Sets memory of `device` to zero; streams and answers as for berth_copy. */
BERTH_API berth_status berth_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream,
                                  bool need_sync);

/* Copies from memory of one device to memory of another of the same kind, by the driver's own way between them. `stream`
 * belongs to either device. Streams and answers as for berth_copy; BERTH_UNSUPPORTED for kinds without such a way
 * (berth_buffer_copy then goes through pinned host memory). */
BERTH_API berth_status berth_copy_between(berth_device to, void *dst, berth_device from, const void *src,
                                          size_t size_bytes, berth_stream *stream, bool need_sync);

/* How much of the device's memory nobody has taken right now, and how much there is; what other processes hold is
 * taken. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED, BERTH_DEVICE_ERROR, BERTH_DEVICE_LOST. */
BERTH_API berth_status berth_device_memory(berth_device device, uint64_t *free_bytes, uint64_t *total_bytes);

/* Pins host memory that the caller owns, so that copies on streams use it as they use BERTH_MEMORY_PINNED; unregister it
 * before it is freed. For memory on a chosen NUMA node, register a block of the mapped source. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_ALREADY_EXISTS, BERTH_NOT_FOUND, BERTH_UNSUPPORTED, BERTH_OUT_OF_HOST_MEMORY,
 * BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_device_register_host(berth_device device, void *p, size_t size_bytes);
BERTH_API berth_status berth_device_unregister_host(berth_device device, void *p);

/* Moves managed memory to the device ahead of its use, or back to the host, in the stream's order; and says how it will
 * be used. Neither changes what it holds. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED,
 * BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_device_prefetch(berth_device device, void *p, size_t size_bytes, bool to_host,
                                             berth_stream *stream);
BERTH_API berth_status berth_device_advise(berth_device device, void *p, size_t size_bytes,
                                           berth_advice advice);

/* Memory between processes. `p` begins a block that berth_device_allocate gave without a stream; the process that opens
 * the handle gets an address of its own for it, which it closes before the owner frees the block. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED where the driver gives no handle for this memory, BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_device_share(berth_device device, void *p, berth_shared_handle *out);
BERTH_API berth_status berth_device_open_shared(berth_device device, const berth_shared_handle *handle,
                                                void **out);
BERTH_API berth_status berth_device_close_shared(berth_device device, void *p);

/* A new stream on `device`. The caller owns it. Any thread. */
BERTH_API berth_status berth_stream_create(berth_device device, berth_stream **out);

/* A stream around one that the program already has (a CUstream, hipStream_t or cl_command_queue), which must
 * outlive it and is not destroyed with it. BERTH_UNSUPPORTED on devices without native streams. */
BERTH_API berth_status berth_stream_wrap(berth_device device, void *native, berth_stream **out);

/* The native handle, NULL where there is none. */
BERTH_API void *berth_stream_native(berth_stream *stream);

BERTH_API berth_device berth_stream_device(const berth_stream *stream);

/* A number that no other stream of the process has or gets; 0 for NULL. */
BERTH_API uint64_t berth_stream_id(const berth_stream *stream);

/* Gives the stream back. Work that is already enqueued still runs, and events recorded on it stay valid and
 * complete; the call does not wait. NULL is a no-op. */
BERTH_API void berth_stream_destroy(berth_stream *stream);

/* BERTH_OK when everything enqueued so far has run, BERTH_NOT_READY when not. Any thread. */
BERTH_API berth_status berth_stream_query(berth_stream *stream);

/* Waits until everything enqueued so far has run. Any thread but the stream's own (BERTH_BUSY there). */
BERTH_API berth_status berth_stream_synchronize(berth_stream *stream);

/* Makes what is enqueued on `stream` from now on wait for the point that `event` marks. */
BERTH_API berth_status berth_stream_wait_event(berth_stream *stream, berth_event *event);

/* Runs fn(context) on the stream, in order. fn must not wait for its own stream. BERTH_UNSUPPORTED where the
 * device cannot call the host. */
BERTH_API berth_status berth_stream_call(berth_stream *stream, void (*fn)(void *context), void *context);

/* An event of `device`, not recorded yet: such an event counts as complete. The caller owns it. Any thread.
 */
BERTH_API berth_status berth_event_create(berth_device device, berth_event **out);

/* Marks the present end of `stream`; recording again moves the mark. Any thread, but not while another thread
 * uses the same event: which of the two marks would it mean? */
BERTH_API berth_status berth_event_record(berth_event *event, berth_stream *stream);

/* BERTH_OK once the marked point has been passed, else BERTH_NOT_READY. Any thread. */
BERTH_API berth_status berth_event_query(berth_event *event);

/* Waits on the host for the marked point. */
BERTH_API berth_status berth_event_wait(berth_event *event);

/* NULL is a no-op; an event that has not completed may be destroyed. */
BERTH_API void berth_event_destroy(berth_event *event);

static inline bool berth_device_equal(berth_device a, berth_device b)
{
    return a.kind == b.kind && a.ordinal == b.ordinal;
}

#ifdef __cplusplus
}
#endif
#endif

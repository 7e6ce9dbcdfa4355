/* The inside of devices: what a backend fills, and what streams and events of every kind have in common.
 *
 * A backend is one table, `berth__device_ops`, and its own structs that start with berth_stream and
 * berth_event. device.c checks every argument before it dispatches, so that an operation sees a pointer that
 * is not NULL, a size above 0, an alignment that is a power of two, an ordinal below `count`, and streams and
 * events of its own kind and of the same device. Backends never include each other. */
#ifndef BERTH_DEVICE_DEVICE_H
#define BERTH_DEVICE_DEVICE_H

#include <stdatomic.h>

#include "base/base.h"
#include "berth/device.h"

/* Larger alignments are refused, as by every allocator. */
#define BERTH__DEVICE_ALIGNMENT_MAX ((size_t)1 << 30)

/* What a device does. Required operations first; an optional one left NULL answers BERTH_UNSUPPORTED (or as
 * its comment says). Nobody tests for NULL after berth__device_ops_for has handed a table out. */
typedef struct berth__device_ops {
    size_t struct_size;
    /* required */
    const char *name; /* "cpu", as users see it */
    /* Loads the driver on first use. *count is 0 on failure. */
    berth_status (*count)(berth_device_kind kind, int32_t *count);
    /* `info` is zeroed but for struct_size, and complete: the front copies out what the caller's has room
     * for. */
    berth_status (*describe)(berth_device device, berth_device_info *info);
    berth_status (*allocate)(berth_device device, berth_memory_kind kind, size_t size_bytes, size_t alignment,
                             berth_stream *stream, void **out);
    berth_status (*release)(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                            berth_stream *stream);
    /* Without a stream: done on return. With one: enqueued. */
    berth_status (*copy)(berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream);
    berth_status (*zero)(berth_device device, void *dst, size_t size_bytes, berth_stream *stream);
    /* optional */
    berth_status (*native)(berth_device device, void **out); /* BERTH_UNSUPPORTED */
    /* optional: streams and events. A device that has one of these has all but wrap, native and call. */
    berth_status (*stream_create)(berth_device device, berth_stream **out);
    berth_status (*stream_wrap)(berth_device device, void *native, berth_stream **out);
    void *(*stream_native)(berth_stream *stream); /* NULL */
    void (*stream_destroy)(berth_stream *stream); /* the last reference is gone; must not wait */
    berth_status (*stream_query)(berth_stream *stream);
    berth_status (*stream_synchronize)(berth_stream *stream);
    berth_status (*stream_wait_event)(berth_stream *stream, berth_event *event);
    berth_status (*stream_call)(berth_stream *stream, void (*fn)(void *context), void *context);
    berth_status (*event_create)(berth_device device, berth_event **out);
    berth_status (*event_record)(berth_event *event, berth_stream *stream);
    berth_status (*event_query)(berth_event *event);
    berth_status (*event_wait)(berth_event *event);
    void (*event_destroy)(berth_event *event);
    /* optional: address space mapped piecewise; all or none. See berth__device_reserve. */
    berth_status (*granularity)(berth_device device, size_t *out);
    berth_status (*reserve)(berth_device device, size_t size_bytes, void **out);
    berth_status (*unreserve)(berth_device device, void *base, size_t size_bytes);
    berth_status (*map)(berth_device device, void *p, size_t size_bytes);
    berth_status (*unmap)(berth_device device, void *p, size_t size_bytes);
    /* optional, each for itself */
    berth_status (*copy_between)(berth_device to, void *dst, berth_device from, const void *src,
                                 size_t size_bytes, berth_stream *stream);
    berth_status (*memory)(berth_device device, uint64_t *free_bytes, uint64_t *total_bytes);
    berth_status (*register_host)(berth_device device, void *p, size_t size_bytes);
    berth_status (*unregister_host)(berth_device device, void *p);
    berth_status (*prefetch)(berth_device device, void *p, size_t size_bytes, bool to_host,
                             berth_stream *stream);
    berth_status (*advise)(berth_device device, void *p, size_t size_bytes, berth_advice advice);
    berth_status (*share)(berth_device device, void *p, berth_shared_handle *out);
    berth_status (*open_shared)(berth_device device, const berth_shared_handle *handle, void **out);
    berth_status (*close_shared)(berth_device device, void *p);
    /* The largest block of that kind that the device can give; SIZE_MAX where it does not say. */
    berth_status (*most_bytes)(berth_device device, berth_memory_kind kind, size_t *out);
    bool write_combined; /* has memory of that kind */
    /* Whether a function run by stream_call may itself use the device (CUDA forbids it). */
    bool calls_may_use_device;
} berth__device_ops;

/* The tables of the backends; device.c lists them by kind. */
extern const berth__device_ops berth__cpu_device_ops;
extern const berth__device_ops berth__cuda_device_ops;
extern const berth__device_ops berth__hip_device_ops;
extern const berth__device_ops berth__opencl_device_ops;
extern const berth__device_ops berth__virtual_device_ops;

/* The complete table of a kind, NULL for one that is unknown. One atomic load once the kind has been used. */
const berth__device_ops *berth__device_ops_for(int32_t kind);

/* The table of a device that exists, or of a stream's device; the words of the failure are kept. */
berth_status berth__device_find(berth_device device, berth_stream *stream, const berth__device_ops **ops);

/* The start of every backend's stream. */
struct berth_stream {
    const berth__device_ops *ops;
    berth_device device;
    _Atomic uint32_t references;
    uint64_t id; /* never used twice in a process, never 0 */
};

/* The start of every backend's event. */
struct berth_event {
    const berth__device_ops *ops;
    berth_device device;
};

/* Fill the common starts; a stream gets one reference and its id. */
void berth__stream_init(berth_stream *stream, berth_device device);
void berth__event_init(berth_event *event, berth_device device);

/* Counted references, so that a cache can hold a stream that its user has destroyed: it stays fully usable
 * until the last reference is gone. berth_stream_destroy drops the user's. */
berth_stream *berth__stream_retain(berth_stream *stream);
void berth__stream_release(berth_stream *stream);

/* The stream whose function the calling thread is running, NULL if none. Backends set it around functions
 * given to berth_stream_call: waiting for one's own stream is refused instead of hanging. To be compared,
 * never followed: the function may have destroyed its stream. */
extern _Thread_local const berth_stream *berth__running_stream;

/* The largest block that a device can give at once, however much memory it has; SIZE_MAX: unknown. */
size_t berth__device_most_bytes(berth_device device, berth_memory_kind kind);

/* Device memory in pieces: reserve address space, map memory into parts of it, unmap, unreserve. Sizes and
 * addresses are multiples of the granularity; any run of mapped granules can be unmapped,
 * however they were mapped. Mapped memory has
 * no defined content. Any thread, as long as the ranges are disjoint. BERTH_OK, BERTH_UNSUPPORTED,
 * BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_DEVICE_MEMORY, BERTH_DEVICE_ERROR. */
berth_status berth__device_granularity(berth_device device, size_t *out);
berth_status berth__device_reserve(berth_device device, size_t size_bytes, void **out);
berth_status berth__device_unreserve(berth_device device, void *base, size_t size_bytes);
berth_status berth__device_map(berth_device device, void *p, size_t size_bytes);
berth_status berth__device_unmap(berth_device device, void *p, size_t size_bytes);

#endif

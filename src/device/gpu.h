/* What CUDA and HIP have in common: one backend (gpu.c, gpu_stream.c) over a small table of driver calls that
 * cuda.c and hip.c fill from the library they load.
 *
 * Every call answers the driver's own code, 0 for success. Codes that both drivers share by design have names
 * here. Handles (streams, events, contexts) are opaque pointers. */
#ifndef BERTH_DEVICE_GPU_H
#define BERTH_DEVICE_GPU_H

#include "base/library.h"
#include "base/pointers.h"
#include "device/device.h"

enum {
    GPU_SUCCESS = 0,
    GPU_OUT_OF_MEMORY = 2,
    GPU_SHUTTING_DOWN = 4,
    GPU_NO_DEVICE = 100,
    GPU_INVALID_DEVICE = 101,
    GPU_NOT_READY = 600,
    GPU_NOT_SUPPORTED = 801,
};

/* What the driver aligns to anyway. */
enum { GPU_ALIGNMENT = 256 };

typedef struct gpu_device gpu_device;

typedef struct gpu_driver {
    const char *title; /* "CUDA" */
    /* Loads the library and counts; on failure 0 devices and words. Called once. */
    int (*load)(char *why, size_t why_bytes);
    /* Fills name, driver, total_bytes and what the device can do. Called once a device. */
    int (*open)(gpu_device *device);
    /* Makes the device current on the thread, and puts back what was current before. */
    int (*enter)(gpu_device *device, uintptr_t *before);
    void (*leave)(gpu_device *device, uintptr_t before);
    const char *(*words)(int code);
    /* with the device current */
    int (*take)(size_t size_bytes, void **out);
    int (*give)(void *p);
    int (*take_pinned)(size_t size_bytes, void **out);
    int (*give_pinned)(void *p);
    int (*take_managed)(size_t size_bytes, void **out);
    int (*take_async)(size_t size_bytes, void *stream, void **out);
    int (*give_async)(void *p, void *stream);
    int (*copy)(void *dst, const void *src, size_t size_bytes, void *stream);
    int (*zero)(void *dst, size_t size_bytes, void *stream);
    int (*stream_create)(void **out);
    int (*event_create)(void **out);
    int (*granularity)(gpu_device *device, size_t *out);
    int (*reserve)(size_t size_bytes, size_t granularity, void **out);
    int (*unreserve)(void *base, size_t size_bytes);
    int (*map)(gpu_device *device, void *p, size_t size_bytes);
    int (*unmap)(void *p, size_t size_bytes);
    /* wherever */
    int (*stream_destroy)(void *stream);
    int (*stream_query)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*stream_wait)(void *stream, void *event);
    int (*stream_call)(void *stream, void (*fn)(void *context), void *context);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
} gpu_driver;

struct gpu_device {
    const gpu_driver *driver;
    int32_t ordinal;
    int handle;              /* the driver's number */
    _Atomic(void *) context; /* CUDA's primary context, taken on first use: listing devices wakes none */
    char name[128], version[64];
    uint64_t total_bytes;
    bool managed, pieces;        /* what it can do */
    _Atomic bool stream_ordered; /* until the driver says otherwise */
    _Atomic size_t granularity;  /* of pieces; 0: not asked yet */
    _Atomic(void *) stream;      /* for work without a stream; made on first use */
    _Atomic bool lost;
    berth__pointers raw_blocks;   /* blocks with a large alignment, and where they really begin */
    berth__pointers async_blocks; /* blocks from the stream-ordered allocator, under their own address */
};

typedef struct gpu_stream {
    berth_stream base;
    gpu_device *device;
    void *native;
    bool wrapped; /* the program's own */
} gpu_stream;

typedef struct gpu_event {
    berth_event base;
    gpu_device *device;
    void *native;
} gpu_event;

/* The drivers, in cuda.c and hip.c. */
extern const gpu_driver berth__cuda_driver, berth__hip_driver;

berth_status berth__gpu_count(berth_device_kind kind, int32_t *count);
/* Only after a count that found it. */
gpu_device *berth__gpu_device(berth_device device);
/* Keeps the driver's code and words; a lost device is logged the first time. GPU_OUT_OF_MEMORY is `shortage`.
 */
berth_status berth__gpu_fail(gpu_device *device, int code, berth_status shortage, const char *what);
/* BERTH_OK, or BERTH_DEVICE_LOST once the device has been lost: the driver is not called any more. */
berth_status berth__gpu_alive(gpu_device *device);
/* The same, and makes the device current. Each success is followed by one driver->leave. */
berth_status berth__gpu_enter(gpu_device *device, uintptr_t *before);
/* The stream for work without one. The device is current. */
int berth__gpu_own_stream(gpu_device *device, void **out);

berth_status berth__gpu_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out);
berth_status berth__gpu_release(berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                                berth_stream *stream);
berth_status berth__gpu_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream);
berth_status berth__gpu_zero(berth_device device, void *dst, size_t size_bytes, berth_stream *stream);
berth_status berth__gpu_granularity(berth_device device, size_t *out);
berth_status berth__gpu_reserve(berth_device device, size_t size_bytes, void **out);
berth_status berth__gpu_unreserve(berth_device device, void *base, size_t size_bytes);
berth_status berth__gpu_map(berth_device device, void *p, size_t size_bytes);
berth_status berth__gpu_unmap(berth_device device, void *p, size_t size_bytes);
berth_status berth__gpu_stream_create(berth_device device, berth_stream **out);
berth_status berth__gpu_stream_wrap(berth_device device, void *native, berth_stream **out);
void *berth__gpu_stream_native(berth_stream *stream);
void berth__gpu_stream_destroy(berth_stream *stream);
berth_status berth__gpu_stream_query(berth_stream *stream);
berth_status berth__gpu_stream_synchronize(berth_stream *stream);
berth_status berth__gpu_stream_wait_event(berth_stream *stream, berth_event *event);
berth_status berth__gpu_stream_call(berth_stream *stream, void (*fn)(void *context), void *context);
berth_status berth__gpu_event_create(berth_device device, berth_event **out);
berth_status berth__gpu_event_record(berth_event *event, berth_stream *stream);
berth_status berth__gpu_event_query(berth_event *event);
berth_status berth__gpu_event_wait(berth_event *event);
void berth__gpu_event_destroy(berth_event *event);

#endif

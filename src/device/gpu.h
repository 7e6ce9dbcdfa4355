/* What CUDA and HIP have in common: one backend (gpu*.c) over a small table of driver calls that
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
    GPU_INVALID_VALUE = 1,
    GPU_OUT_OF_MEMORY = 2,
    GPU_NOT_INITIALIZED = 3,
    GPU_SHUTTING_DOWN = 4,
    GPU_NO_DEVICE = 100,
    GPU_INVALID_DEVICE = 101,
    GPU_NOT_READY = 600,
    GPU_PEER_ALREADY_ENABLED = 704,
    GPU_NOT_SUPPORTED = 801,
};

/* What the driver aligns to anyway. */
enum { GPU_ALIGNMENT = 256 };

enum { GPU_MOST_DEVICES = 64 };

/* How a thread's calls respect captures: not at all. The same number in both drivers. */
enum { GPU_CAPTURE_RELAXED = 2 };

typedef struct gpu_device gpu_device;
typedef struct gpu_kind gpu_kind;

/* What was current on the thread before we came; see berth__gpu_enter. */
typedef struct gpu_visit {
    uintptr_t before;     /* the driver's own note, 0: nothing to put back */
    unsigned int capture; /* how the thread's calls respected captures */
} gpu_visit;

typedef struct gpu_driver {
    const char *title; /* "CUDA" */
    /* Loads the library and counts; on failure 0 devices and words. Called once. */
    int (*load)(char *why, size_t why_bytes);
    /* Fills name, driver, total_bytes and what the device can do. Called once a device. */
    int (*open)(gpu_device *device);
    /* Makes the device current on the thread, and puts back what was current before. */
    int (*enter)(gpu_device *device, uintptr_t *before);
    void (*leave)(gpu_device *device, uintptr_t before);
    /* Says how the thread's calls respect captures, and answers how they did before. */
    void (*exchange_capture)(unsigned int *mode);
    const char *(*words)(int code);
    /* Takes our failure out of the runtime's "last error", which belongs to the program. */
    void (*forget_error)(void);
    /* with the device current */
    int (*memory)(size_t *free_bytes, size_t *total_bytes);
    int (*take)(size_t size_bytes, void **out);
    int (*give)(void *p);
    int (*take_pinned)(size_t size_bytes, bool write_combined, void **out);
    int (*give_pinned)(void *p);
    int (*take_managed)(size_t size_bytes, void **out);
    int (*pool_create)(gpu_device *device, void **out); /* keeps what is freed */
    int (*pool_trim)(void *pool);
    int (*take_async)(size_t size_bytes, void *pool, void *stream, void **out);
    int (*give_async)(void *p, void *stream);
    int (*copy)(void *dst, const void *src, size_t size_bytes, void *stream);
    int (*copy_peer)(void *dst, gpu_device *to, const void *src, gpu_device *from, size_t size_bytes,
                     void *stream);
    int (*zero)(void *dst, size_t size_bytes, void *stream);
    int (*register_host)(void *p, size_t size_bytes);
    int (*unregister_host)(void *p);
    int (*prefetch)(void *p, size_t size_bytes, const gpu_device *to, void *stream); /* NULL: to the host */
    int (*advise)(void *p, size_t size_bytes, berth_advice advice, const gpu_device *device);
    int (*share)(void *p, char bytes[64]);
    int (*open_shared)(const char bytes[64], void **out);
    int (*close_shared)(void *p);
    int (*stream_create)(void **out);
    int (*event_create)(void **out);
    /* Success if the stream belongs to the device as we use it. */
    int (*stream_check)(gpu_device *device, void *stream);
    int (*stream_capturing)(void *stream, bool *capturing);
    bool (*can_reach)(const gpu_device *device, const gpu_device *peer);
    int (*enable_peer)(gpu_device *peer);
    int (*granularity)(gpu_device *device, size_t *out);
    int (*reserve)(size_t size_bytes, size_t granularity, void **out);
    int (*unreserve)(void *base, size_t size_bytes);
    /* Memory of the device at `p`, which nobody can touch before `access`. */
    int (*map)(gpu_device *device, void *p, size_t size_bytes);
    int (*access)(gpu_device *const *devices, size_t count, void *p, size_t size_bytes);
    int (*unmap)(void *p, size_t size_bytes);
    int (*stream_destroy)(void *stream);
    int (*stream_query)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*stream_wait)(void *stream, void *event);
    int (*stream_call)(void *stream, void (*fn)(void *context), void *context);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_synchronize)(void *event);
    /* wherever */
    int (*event_query)(void *event);
} gpu_driver;

/* The table of whoever has a function of each name; a call of the driver that takes a handle and answers a code. */
#define GPU_DRIVER_CALLS                                                                                    \
    .load = load, .open = open, .enter = enter, .leave = leave, .exchange_capture = exchange_capture,       \
    .forget_error = forget_error, .memory = memory, .pool_create = pool_create, .pool_trim = pool_trim,     \
    .copy_peer = copy_peer, .register_host = register_host, .unregister_host = unregister_host,             \
    .prefetch = prefetch, .advise = advise, .share = share, .open_shared = open_shared,                     \
    .close_shared = close_shared, .stream_check = stream_check, .stream_capturing = stream_capturing,       \
    .can_reach = can_reach, .enable_peer = enable_peer, .access = access_for, .words = words, .take = take, \
    .give = give, .take_pinned = take_pinned, .give_pinned = give_pinned, .take_managed = take_managed,     \
    .take_async = take_async, .give_async = give_async, .copy = copy, .zero = zero,                         \
    .stream_create = stream_create, .event_create = event_create, .granularity = granularity,               \
    .reserve = reserve, .unreserve = unreserve, .map = map, .unmap = unmap,                                 \
    .stream_destroy = stream_destroy, .stream_query = stream_query,                                         \
    .stream_synchronize = stream_synchronize, .stream_wait = stream_wait, .stream_call = stream_call,       \
    .event_destroy = event_destroy, .event_record = event_record, .event_query = event_query,               \
    .event_synchronize = event_synchronize
#define GPU_HANDLE_CALL(name, call) \
    static int name(void *handle)   \
    {                               \
        return (int)call(handle);   \
    }

struct gpu_device {
    const gpu_driver *driver;
    int32_t ordinal;
    int handle;              /* the driver's number */
    _Atomic(void *) context; /* CUDA's primary context, taken on first use: listing devices wakes none */
    char name[128], version[64];
    uint64_t total_bytes;
    bool managed;
    _Atomic bool pieces;          /* until trying says otherwise */
    _Atomic bool stream_ordered;  /* until the driver says otherwise */
    _Atomic size_t granularity;   /* of pieces; 0: not tried yet */
    _Atomic(void *) stream;       /* for work without a stream; made on first use */
    _Atomic(void *) pool;         /* for stream-ordered memory; made on first use */
    _Atomic uint64_t peers_asked; /* a bit for each device whose memory this one was to be let at */
    _Atomic(const char *) lost;   /* NULL: it works; else why not */
    _Atomic int lost_code;        /* the driver's, 0 if it said nothing; written before `lost` */
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

berth_status berth__gpu_count(void *self, int32_t *count);
/* Only after a count that found it. */
gpu_device *berth__gpu_device(berth_device device);
/* Keeps the driver's code and words; a lost device is logged the first time. GPU_OUT_OF_MEMORY is `shortage`. */
berth_status berth__gpu_fail(gpu_device *device, int code, berth_status shortage, const char *what);
/* BERTH_OK, or BERTH_DEVICE_LOST once the device has been lost: the driver is not called any more. */
berth_status berth__gpu_alive(gpu_device *device);
/* The same, makes the device current and lets no capture of anybody mind our calls. Each success is followed by one
 * leave. */
berth_status berth__gpu_enter(gpu_device *device, gpu_visit *visit);
/* For what is destroyed: on a lost device too, where the driver may have something of its own to free; but not in a
 * forked child, where the driver must not be called. Each success is followed by one leave. */
bool berth__gpu_enter_to_destroy(gpu_device *device, gpu_visit *visit);
void berth__gpu_leave(gpu_device *device, const gpu_visit *visit);
/* BERTH_UNSUPPORTED with words if the stream is being captured into a graph. The device is current. */
berth_status berth__gpu_not_captured(const gpu_stream *stream, const char *what);
/* Devices of the same kind that can reach this one's memory, itself first. The device is current. */
size_t berth__gpu_peers(gpu_device *device, gpu_device *found[GPU_MOST_DEVICES]);
/* The stream for work without one. The device is current. */
int berth__gpu_own_stream(gpu_device *device, void **out);

berth_status berth__gpu_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out);
berth_status berth__gpu_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream);
berth_status berth__gpu_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream);
berth_status berth__gpu_copy_between(void *self, berth_device to, void *dst, berth_device from,
                                     const void *src, size_t size_bytes, berth_stream *stream);
berth_status berth__gpu_memory(void *self, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes);
berth_status berth__gpu_register_host(void *self, berth_device device, void *p, size_t size_bytes);
berth_status berth__gpu_unregister_host(void *self, berth_device device, void *p);
berth_status berth__gpu_prefetch(void *self, berth_device device, void *p, size_t size_bytes, bool to_host,
                                 berth_stream *stream);
berth_status berth__gpu_advise(void *self, berth_device device, void *p, size_t size_bytes,
                               berth_advice advice);
berth_status berth__gpu_share(void *self, berth_device device, void *p, berth_shared_handle *out);
berth_status berth__gpu_open_shared(void *self, berth_device device, const berth_shared_handle *handle,
                                    void **out);
berth_status berth__gpu_close_shared(void *self, berth_device device, void *p);
berth_status berth__gpu_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream);
berth_status berth__gpu_granularity(void *self, berth_device device, size_t *out);
berth_status berth__gpu_reserve(void *self, berth_device device, size_t size_bytes, void **out);
berth_status berth__gpu_unreserve(void *self, berth_device device, void *base, size_t size_bytes);
berth_status berth__gpu_map(void *self, berth_device device, void *p, size_t size_bytes);
berth_status berth__gpu_unmap(void *self, berth_device device, void *p, size_t size_bytes);
berth_status berth__gpu_stream_create(void *self, berth_device device, berth_stream **out);
berth_status berth__gpu_stream_wrap(void *self, berth_device device, void *native, berth_stream **out);
void *berth__gpu_stream_native(void *self, berth_stream *stream);
void berth__gpu_stream_destroy(void *self, berth_stream *stream);
berth_status berth__gpu_stream_query(void *self, berth_stream *stream);
berth_status berth__gpu_stream_synchronize(void *self, berth_stream *stream);
berth_status berth__gpu_stream_wait_event(void *self, berth_stream *stream, berth_event *event);
berth_status berth__gpu_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                    void *context);
berth_status berth__gpu_event_create(void *self, berth_device device, berth_event **out);
berth_status berth__gpu_event_record(void *self, berth_event *event, berth_stream *stream);
berth_status berth__gpu_event_query(void *self, berth_event *event);
berth_status berth__gpu_event_wait(void *self, berth_event *event);
void berth__gpu_event_destroy(void *self, berth_event *event);

#endif

/* Streams and events of CUDA and HIP devices. A NULL handle means the default stream of whatever device is current, and a
 * thread may have none, so that every call but the event query enters the stream's device first. */
#include "device/gpu.h"

static gpu_stream *stream_of(berth_stream *stream)
{
    return (gpu_stream *)stream;
}

/* BERTH_OK, BERTH_NOT_READY, or the failure with its words. */
static berth_status stream_answer(gpu_device *device, int code, const char *what)
{
    if (BERTH_LIKELY(code == GPU_SUCCESS))
        return BERTH_OK;
    if (code == GPU_NOT_READY) {
        device->driver->forget_error();
        return BERTH_NOT_READY;
    }
    return berth__gpu_fail(device, code, BERTH_OUT_OF_HOST_MEMORY, what);
}

/* With the device current and the stream not captured; else why not. */
static berth_status stream_enter(gpu_stream *stream, gpu_visit *visit, const char *what)
{
    berth_status status = berth__gpu_enter(stream->device, visit);
    if (status)
        return status;
    status = berth__gpu_not_captured(stream, what);
    if (status)
        berth__gpu_leave(stream->device, visit);
    return status;
}

static berth_status stream_leave(gpu_device *device, const gpu_visit *visit, int code, const char *what)
{
    berth_status status = stream_answer(device, code, what);
    berth__gpu_leave(device, visit);
    return status;
}

/* ---- Streams ------------------------------------------------------------------------------------- */

static berth_status stream_make(berth_device device, void *native, bool wrapped, berth_stream **out)
{
    gpu_stream *stream = berth__heap_zalloc(1, sizeof *stream);
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    stream->device = berth__gpu_device(device);
    stream->native = native;
    stream->wrapped = wrapped;
    *out = &stream->base;
    return BERTH_OK;
}

berth_status berth__gpu_stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    void *native = NULL;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    status = stream_answer(gpu, gpu->driver->stream_create(&native), "making a stream");
    if (!status) {
        status = stream_make(device, native, false, out);
        if (status)
            (void)gpu->driver->stream_destroy(native);
    }
    berth__gpu_leave(gpu, &visit);
    return status;
}

/* Handles that the drivers give a meaning of their own, instead of a stream. */
enum { PER_THREAD_STREAM = 2 };

/* NULL is the driver's default stream of this device. */
berth_status berth__gpu_stream_wrap(void *self, berth_device device, void *native, berth_stream **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    if ((uintptr_t)native == PER_THREAD_STREAM)
        return berth__fail(
            BERTH_UNSUPPORTED,
            "the per-thread default stream is another one on each thread, and frees may come from any: "
            "make a stream for the thread (berth_stream_create) and launch on its native handle");
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    int code = gpu->driver->stream_check(gpu, native);
    if (code == GPU_INVALID_DEVICE) {
        gpu->driver->forget_error();
        status = berth__fail(
            BERTH_INVALID_ARGUMENT,
            "the stream at %p belongs to another device or context than %s device %d as Berth uses it "
            "(its primary context, see berth_device_native)",
            native, gpu->driver->title, (int)gpu->ordinal);
    } else {
        status = stream_answer(gpu, code, "looking at a stream");
    }
    berth__gpu_leave(gpu, &visit);
    return !status ? stream_make(device, native, true, out) : status;
}

void *berth__gpu_stream_native(void *self, berth_stream *stream)
{
    (void)self;
    return stream_of(stream)->native;
}

/* The driver lets work that is enqueued run. */
void berth__gpu_stream_destroy(void *self, berth_stream *base)
{
    (void)self;
    gpu_stream *stream = stream_of(base);
    gpu_visit visit;
    if (!stream->wrapped && berth__gpu_enter_to_destroy(stream->device, &visit)) {
        if (stream->device->driver->stream_destroy(stream->native) != GPU_SUCCESS)
            stream->device->driver->forget_error();
        berth__gpu_leave(stream->device, &visit);
    }
    berth__heap_free(stream);
}

berth_status berth__gpu_stream_query(void *self, berth_stream *stream)
{
    (void)self;
    gpu_device *device = stream_of(stream)->device;
    gpu_visit visit;
    berth_status status = stream_enter(stream_of(stream), &visit, "asking whether it is done");
    if (status)
        return status;
    return stream_leave(device, &visit, device->driver->stream_query(stream_of(stream)->native),
                        "asking a stream");
}

berth_status berth__gpu_stream_synchronize(void *self, berth_stream *stream)
{
    (void)self;
    gpu_device *device = stream_of(stream)->device;
    gpu_visit visit;
    berth_status status = stream_enter(stream_of(stream), &visit, "waiting for it");
    if (status)
        return status;
    return stream_leave(device, &visit, device->driver->stream_synchronize(stream_of(stream)->native),
                        "waiting for a stream");
}

berth_status berth__gpu_stream_wait_event(void *self, berth_stream *stream, berth_event *event)
{
    (void)self;
    gpu_device *device = stream_of(stream)->device;
    gpu_visit visit;
    berth_status status = berth__gpu_enter(device, &visit);
    if (status)
        return status;
    int code = device->driver->stream_wait(stream_of(stream)->native, ((gpu_event *)event)->native);
    return stream_leave(device, &visit, code, "making a stream wait");
}

/* ---- Functions of the host ----------------------------------------------------------------------- */

/* Runs on a thread of the driver's, where the device must not be used. The stream is not retained, since
 * letting go of it there would use the device; its address serves only to tell whether somebody waits for his
 * own stream. */
typedef struct host_call {
    const berth_stream *stream;
    void (*fn)(void *context);
    void *context;
} host_call;

static void run_host_call(void *context)
{
    host_call call = *(host_call *)context;
    berth__heap_free(context);
    berth_stream_run(call.stream, call.fn, call.context);
}

/* Not in a capture: the function would run with every launch of the graph, and is made to run once. */
berth_status berth__gpu_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                    void *context)
{
    (void)self;
    gpu_device *device = stream_of(stream)->device;
    gpu_visit visit;
    host_call *call = berth__heap_alloc(sizeof *call);
    if (!call)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue a function");
    *call = (host_call){stream, fn, context};
    berth_status status = stream_enter(stream_of(stream), &visit, "running a function on it");
    if (!status)
        status = stream_leave(device, &visit,
                              device->driver->stream_call(stream_of(stream)->native, run_host_call, call),
                              "enqueuing a function");
    if (status)
        berth__heap_free(call);
    return status;
}

/* ---- Events -------------------------------------------------------------------------------------- */

static void event_destroy_native(gpu_device *device, void *native)
{
    gpu_visit visit;
    if (!berth__gpu_enter_to_destroy(device, &visit))
        return;
    if (device->driver->event_destroy(native) != GPU_SUCCESS)
        device->driver->forget_error();
    berth__gpu_leave(device, &visit);
}

berth_status berth__gpu_event_create(void *self, berth_device device, berth_event **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    void *native = NULL;
    status = stream_leave(gpu, &visit, gpu->driver->event_create(&native), "making an event");
    if (status)
        return status;
    gpu_event *event = berth__heap_alloc(sizeof *event);
    if (!event) {
        event_destroy_native(gpu, native);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    }
    event->device = gpu;
    event->native = native;
    *out = &event->base;
    return BERTH_OK;
}

/* Not in a capture: the event would mark a place in the graph, and could never be asked. */
berth_status berth__gpu_event_record(void *self, berth_event *event, berth_stream *stream)
{
    (void)self;
    gpu_device *device = stream_of(stream)->device;
    gpu_visit visit;
    berth_status status = stream_enter(stream_of(stream), &visit, "marking a point that can be waited for");
    if (status)
        return status;
    int code = device->driver->event_record(((gpu_event *)event)->native, stream_of(stream)->native);
    return stream_leave(device, &visit, code, "recording an event");
}

/* Needs no current device. It is asked often, and minds a capture of somebody else's like the others. */
berth_status berth__gpu_event_query(void *self, berth_event *base)
{
    (void)self;
    gpu_event *event = (gpu_event *)base;
    gpu_device *device = event->device;
    if (BERTH_UNLIKELY(atomic_load_explicit(&device->lost, memory_order_relaxed) != NULL))
        return berth__gpu_alive(device);
    unsigned int mode = GPU_CAPTURE_RELAXED;
    device->driver->exchange_capture(&mode);
    berth_status status =
        stream_answer(device, device->driver->event_query(event->native), "asking an event");
    if (mode != GPU_CAPTURE_RELAXED)
        device->driver->exchange_capture(&mode);
    return status;
}

berth_status berth__gpu_event_wait(void *self, berth_event *base)
{
    (void)self;
    gpu_event *event = (gpu_event *)base;
    gpu_visit visit;
    berth_status status = berth__gpu_enter(event->device, &visit);
    if (status)
        return status;
    int code = event->device->driver->event_synchronize(event->native);
    return stream_leave(event->device, &visit, code, "waiting for an event");
}

void berth__gpu_event_destroy(void *self, berth_event *base)
{
    (void)self;
    gpu_event *event = (gpu_event *)base;
    event_destroy_native(event->device, event->native);
    berth__heap_free(event);
}

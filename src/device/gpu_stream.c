/* Streams and events of CUDA and HIP devices. */
#include "device/gpu.h"

static gpu_stream *of(berth_stream *stream)
{
    return (gpu_stream *)stream;
}

/* BERTH_OK, BERTH_NOT_READY, or the failure with its words. */
static berth_status answer(gpu_device *device, int code, const char *what)
{
    if (BERTH_LIKELY(code == GPU_SUCCESS))
        return BERTH_OK;
    if (code == GPU_NOT_READY)
        return BERTH_NOT_READY;
    return berth__gpu_fail(device, code, BERTH_OUT_OF_HOST_MEMORY, what);
}

/* ---- Streams ------------------------------------------------------------------------------------- */

static berth_status make(berth_device device, void *native, bool wrapped, berth_stream **out)
{
    gpu_stream *stream = berth__heap_zalloc(1, sizeof *stream);
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    berth__stream_init(&stream->base, device);
    stream->device = berth__gpu_device(device);
    stream->native = native;
    stream->wrapped = wrapped;
    *out = &stream->base;
    return BERTH_OK;
}

berth_status berth__gpu_stream_create(berth_device device, berth_stream **out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    void *native = NULL;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    status = answer(gpu, gpu->driver->stream_create(&native), "making a stream");
    gpu->driver->leave(gpu, before);
    if (status != BERTH_OK)
        return status;
    status = make(device, native, false, out);
    if (status != BERTH_OK)
        (void)gpu->driver->stream_destroy(native);
    return status;
}

/* NULL is the driver's default stream. */
berth_status berth__gpu_stream_wrap(berth_device device, void *native, berth_stream **out)
{
    berth_status status = berth__gpu_alive(berth__gpu_device(device));
    return status == BERTH_OK ? make(device, native, true, out) : status;
}

void *berth__gpu_stream_native(berth_stream *stream)
{
    return of(stream)->native;
}

/* The driver lets work that is enqueued run. */
void berth__gpu_stream_destroy(berth_stream *base)
{
    gpu_stream *stream = of(base);
    if (!stream->wrapped) /* on a lost device too: the driver may have something of its own to free */
        (void)stream->device->driver->stream_destroy(stream->native);
    berth__heap_free(stream);
}

berth_status berth__gpu_stream_query(berth_stream *stream)
{
    gpu_device *device = of(stream)->device;
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    return answer(device, device->driver->stream_query(of(stream)->native), "asking a stream");
}

berth_status berth__gpu_stream_synchronize(berth_stream *stream)
{
    gpu_device *device = of(stream)->device;
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    return answer(device, device->driver->stream_synchronize(of(stream)->native), "waiting for a stream");
}

berth_status berth__gpu_stream_wait_event(berth_stream *stream, berth_event *event)
{
    gpu_device *device = of(stream)->device;
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    int code = device->driver->stream_wait(of(stream)->native, ((gpu_event *)event)->native);
    return answer(device, code, "making a stream wait");
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
    berth__running_stream = call.stream;
    call.fn(call.context);
    berth__running_stream = NULL;
}

berth_status berth__gpu_stream_call(berth_stream *stream, void (*fn)(void *context), void *context)
{
    gpu_device *device = of(stream)->device;
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    host_call *call = berth__heap_alloc(sizeof *call);
    if (!call)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue a function");
    *call = (host_call){stream, fn, context};
    int code = device->driver->stream_call(of(stream)->native, run_host_call, call);
    if (code != GPU_SUCCESS)
        berth__heap_free(call);
    return answer(device, code, "enqueuing a function");
}

/* ---- Events -------------------------------------------------------------------------------------- */

berth_status berth__gpu_event_create(berth_device device, berth_event **out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    void *native = NULL;
    status = answer(gpu, gpu->driver->event_create(&native), "making an event");
    gpu->driver->leave(gpu, before);
    if (status != BERTH_OK)
        return status;
    gpu_event *event = berth__heap_alloc(sizeof *event);
    if (!event) {
        (void)gpu->driver->event_destroy(native);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    }
    berth__event_init(&event->base, device);
    event->device = gpu;
    event->native = native;
    *out = &event->base;
    return BERTH_OK;
}

berth_status berth__gpu_event_record(berth_event *event, berth_stream *stream)
{
    gpu_device *device = of(stream)->device;
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    int code = device->driver->event_record(((gpu_event *)event)->native, of(stream)->native);
    return answer(device, code, "recording an event");
}

berth_status berth__gpu_event_query(berth_event *base)
{
    gpu_event *event = (gpu_event *)base;
    if (BERTH_UNLIKELY(atomic_load_explicit(&event->device->lost, memory_order_relaxed)))
        return berth__gpu_alive(event->device);
    return answer(event->device, event->device->driver->event_query(event->native), "asking an event");
}

berth_status berth__gpu_event_wait(berth_event *base)
{
    gpu_event *event = (gpu_event *)base;
    berth_status status = berth__gpu_alive(event->device);
    if (status != BERTH_OK)
        return status;
    int code = event->device->driver->event_synchronize(event->native);
    return answer(event->device, code, "waiting for an event");
}

void berth__gpu_event_destroy(berth_event *base)
{
    gpu_event *event = (gpu_event *)base;
    (void)event->device->driver->event_destroy(event->native);
    berth__heap_free(event);
}

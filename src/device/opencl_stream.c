/* OpenCL queues as streams and cl_event as events. */
#include "device/opencl.h"

#include <sched.h>

typedef struct ocl_event {
    berth_event base;
    ocl_device *device;
    ocl_event_id native; /* NULL: not recorded */
    _Atomic bool done;   /* seen complete: no need to ask the driver again */
} ocl_event;

static ocl_stream *of(berth_stream *stream)
{
    return (ocl_stream *)stream;
}

/* ---- Order --------------------------------------------------------------------------------------- */

static int32_t barrier(ocl_queue queue)
{
    return berth__ocl.clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL);
}

int32_t berth__ocl_before(ocl_stream *stream)
{
    return BERTH_UNLIKELY(stream->out_of_order) ? barrier(stream->queue) : OCL_SUCCESS;
}

int32_t berth__ocl_after(ocl_stream *stream)
{
    atomic_fetch_add_explicit(&stream->enqueued, 1, memory_order_release);
    return BERTH_UNLIKELY(stream->out_of_order) ? barrier(stream->queue) : OCL_SUCCESS;
}

static void saw_done(ocl_stream *stream, uint64_t count)
{
    uint64_t seen = atomic_load(&stream->seen_done);
    while (seen < count && !atomic_compare_exchange_weak(&stream->seen_done, &seen, count))
        ;
}

/* ---- Life ---------------------------------------------------------------------------------------- */

static berth_status make(berth_device device, ocl_queue queue, bool shared, berth_stream **out)
{
    ocl_stream *stream = berth__heap_zalloc(1, sizeof *stream);
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    berth__stream_init(&stream->base, device);
    stream->device = berth__ocl_device(device);
    stream->queue = queue;
    atomic_init(&stream->shared, shared);
    uint64_t properties = 0;
    if (shared)
        (void)berth__ocl.clGetCommandQueueInfo(queue, OCL_QUEUE_PROPERTIES, sizeof properties, &properties,
                                               NULL);
    stream->out_of_order = (properties & OCL_QUEUE_OUT_OF_ORDER) != 0;
    *out = &stream->base;
    return BERTH_OK;
}

static berth_status check_can(ocl_device *device, berth_device name)
{
    berth_status status = berth__ocl_alive(device);
    if (status == BERTH_OK && !device->coarse && !device->usm)
        status = berth__fail(BERTH_UNSUPPORTED,
                             "OpenCL device %d has neither shared virtual memory nor the extension "
                             "cl_intel_unified_shared_memory",
                             (int)name.ordinal);
    return status;
}

berth_status berth__ocl_stream_create(berth_device device, berth_stream **out)
{
    ocl_queue queue;
    berth_status status = check_can(berth__ocl_device(device), device);
    if (status == BERTH_OK)
        status = berth__ocl_new_queue(berth__ocl_device(device), &queue);
    if (status != BERTH_OK)
        return status;
    status = make(device, queue, false, out);
    if (status != BERTH_OK)
        (void)berth__ocl.clReleaseCommandQueue(queue);
    return status;
}

berth_status berth__ocl_stream_wrap(berth_device device, void *native, berth_stream **out)
{
    ocl_device *ocl = berth__ocl_device(device);
    ocl_context context, theirs = NULL;
    ocl_device_id id = NULL;
    if (!native)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the queue to wrap is NULL");
    berth_status status = check_can(ocl, device);
    if (status == BERTH_OK)
        status = berth__ocl_context(ocl, &context);
    if (status != BERTH_OK)
        return status;
    int32_t code =
        berth__ocl.clGetCommandQueueInfo(native, OCL_QUEUE_CONTEXT, sizeof theirs, (void *)&theirs, NULL);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clGetCommandQueueInfo(native, OCL_QUEUE_DEVICE, sizeof id, (void *)&id, NULL);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(ocl, code, "asking the queue for its context");
    if (theirs != context || id != ocl->id)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the queue belongs to another context or device: make it in the context that "
                           "berth_device_native gives for OpenCL device %d",
                           (int)device.ordinal);
    status = make(device, native, true, out);
    if (status == BERTH_OK)
        (void)berth__ocl.clRetainCommandQueue(native);
    return status;
}

void *berth__ocl_stream_native(berth_stream *stream)
{
    atomic_store(&of(stream)->shared, true);
    return of(stream)->queue;
}

void berth__ocl_stream_destroy(berth_stream *base)
{
    ocl_stream *stream = of(base);
    ocl_event_id marker = atomic_load(&stream->marker);
    if (marker)
        (void)berth__ocl.clReleaseEvent(marker);
    (void)berth__ocl.clFlush(stream->queue); /* what is enqueued still runs */
    (void)berth__ocl.clReleaseCommandQueue(stream->queue);
    berth_stream_destroy(atomic_load(&stream->caller));
    berth__heap_free(stream);
}

/* ---- Asking and waiting -------------------------------------------------------------------------- */

/* A marker behind everything that the queue has now, on its way. */
static int32_t put_marker(ocl_queue queue, ocl_event_id *out)
{
    int32_t code = berth__ocl.clEnqueueMarkerWithWaitList(queue, 0, NULL, out);
    return code == OCL_SUCCESS ? berth__ocl.clFlush(queue) : code;
}

/* The command's state: above 0 under way, 0 complete, below 0 the code it failed with. */
static int32_t state_of(ocl_event_id event)
{
    int32_t state = 1;
    int32_t code = berth__ocl.clGetEventInfo(event, OCL_EVENT_STATUS, sizeof state, &state, NULL);
    return BERTH_LIKELY(code == OCL_SUCCESS) ? state : code;
}

static void keep_marker(ocl_stream *stream, ocl_event_id marker)
{
    ocl_event_id none = NULL;
    if (!atomic_compare_exchange_strong(&stream->marker, &none, marker))
        (void)berth__ocl.clReleaseEvent(marker); /* another thread asks as well */
}

/* OpenCL cannot say whether a queue is empty. We send a marker and see whether it comes through; an idle
 * queue lets it pass within microseconds, so we look a few times. One that is still on its way answers later
 * questions at once, and at most one is on its way: asking in a loop does not fill the queue. */
berth_status berth__ocl_stream_query(berth_stream *base)
{
    enum { LOOKS = 100 };
    ocl_stream *stream = of(base);
    berth_status status = berth__ocl_alive(stream->device);
    if (status != BERTH_OK)
        return status;
    uint64_t enqueued = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
    if (!atomic_load(&stream->shared) && atomic_load(&stream->seen_done) >= enqueued)
        return BERTH_OK;
    ocl_event_id marker = atomic_exchange(&stream->marker, NULL);
    if (marker && state_of(marker) > OCL_COMPLETE) {
        keep_marker(stream, marker);
        return BERTH_NOT_READY;
    }
    if (marker)
        (void)berth__ocl.clReleaseEvent(marker);
    marker = NULL;
    int32_t state = put_marker(stream->queue, &marker);
    if (state != OCL_SUCCESS) {
        if (marker)
            (void)berth__ocl.clReleaseEvent(marker);
        return berth__ocl_fail(stream->device, state, "asking a queue");
    }
    for (int look = 0; (state = state_of(marker)) > OCL_COMPLETE && look < LOOKS; look++)
        sched_yield();
    if (state > OCL_COMPLETE) {
        keep_marker(stream, marker);
        return BERTH_NOT_READY;
    }
    (void)berth__ocl.clReleaseEvent(marker);
    if (state < OCL_COMPLETE)
        return berth__ocl_fail(stream->device, state, "a command on the queue");
    saw_done(stream, enqueued);
    return BERTH_OK;
}

berth_status berth__ocl_stream_synchronize(berth_stream *base)
{
    ocl_stream *stream = of(base);
    berth_status status = berth__ocl_alive(stream->device);
    if (status != BERTH_OK)
        return status;
    uint64_t enqueued = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
    int32_t code = berth__ocl.clFinish(stream->queue);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(stream->device, code, "waiting for a queue");
    saw_done(stream, enqueued);
    return BERTH_OK;
}

/* ---- Functions of the host ----------------------------------------------------------------------- */

/* The queue stops at a user event. When everything before has run, the driver tells us on a thread of its
 * own, where little is allowed; we hand over to a CPU stream, which runs the function and lets the queue go
 * on. */
typedef struct host_call {
    ocl_stream *stream; /* retained */
    ocl_event_id go_on;
    void (*fn)(void *context);
    void *context;
} host_call;

static void run_host_call(void *context)
{
    host_call *call = context;
    const berth_stream *outer = berth__running_stream;
    berth__running_stream = &call->stream->base;
    call->fn(call->context);
    berth__running_stream = outer;
    /* Last of all the queue goes on: who waits for it finds everything put away. */
    ocl_event_id go_on = call->go_on;
    berth__stream_release(&call->stream->base);
    berth__heap_free(call);
    (void)berth__ocl.clSetUserEventStatus(go_on, OCL_COMPLETE);
    (void)berth__ocl.clReleaseEvent(go_on);
}

static void reached_host_call(ocl_event_id event, int32_t state, void *context)
{
    (void)event, (void)state; /* after a failed command too: the function may be what frees its buffers */
    host_call *call = context;
    if (berth_stream_call(atomic_load(&call->stream->caller), run_host_call, call) != BERTH_OK)
        run_host_call(call);
}

static berth_status need_caller(ocl_stream *stream)
{
    if (atomic_load(&stream->caller))
        return BERTH_OK;
    berth_stream *made, *other = NULL;
    berth_status status = berth_stream_create(berth_device_cpu(), &made);
    if (status == BERTH_OK && !atomic_compare_exchange_strong(&stream->caller, &other, made))
        berth_stream_destroy(made);
    return status;
}

/* Marker, its callback, and the barrier behind it. */
static int32_t enqueue_host_call(host_call *call)
{
    ocl_stream *stream = call->stream;
    ocl_event_id marker = NULL, go_on = call->go_on;
    int32_t code = berth__ocl_before(stream);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &marker);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clEnqueueBarrierWithWaitList(stream->queue, 1, &go_on, NULL);
    if (code == OCL_SUCCESS)
        code = berth__ocl_after(stream);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clSetEventCallback(marker, OCL_COMPLETE, reached_host_call, call);
    if (marker)
        (void)berth__ocl.clReleaseEvent(marker);
    return code;
}

berth_status berth__ocl_stream_call(berth_stream *base, void (*fn)(void *context), void *context)
{
    ocl_stream *stream = of(base);
    ocl_context ocl;
    berth_status status = berth__ocl_alive(stream->device);
    if (status == BERTH_OK)
        status = need_caller(stream);
    if (status == BERTH_OK)
        status = berth__ocl_context(stream->device, &ocl);
    if (status != BERTH_OK)
        return status;
    host_call *call = berth__heap_alloc(sizeof *call);
    if (!call)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue a function");
    int32_t code = OCL_SUCCESS;
    *call = (host_call){stream, berth__ocl.clCreateUserEvent(ocl, &code), fn, context};
    if (!call->go_on) {
        berth__heap_free(call);
        return berth__ocl_fail(stream->device, code, "making a user event");
    }
    /* The call may have run, and be gone, as soon as it is enqueued. */
    berth__stream_retain(base);
    code = enqueue_host_call(call);
    if (code != OCL_SUCCESS) {
        (void)berth__ocl.clSetUserEventStatus(call->go_on, OCL_COMPLETE);
        (void)berth__ocl.clReleaseEvent(call->go_on);
        berth__heap_free(call);
        berth__stream_release(base);
        return berth__ocl_fail(stream->device, code, "enqueuing a function");
    }
    (void)berth__ocl.clFlush(stream->queue);
    return BERTH_OK;
}

/* ---- Events -------------------------------------------------------------------------------------- */

berth_status berth__ocl_event_create(berth_device device, berth_event **out)
{
    berth_status status = check_can(berth__ocl_device(device), device);
    if (status != BERTH_OK)
        return status;
    ocl_event *event = berth__heap_alloc(sizeof *event);
    if (!event)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    berth__event_init(&event->base, device);
    event->device = berth__ocl_device(device);
    event->native = NULL;
    atomic_init(&event->done, true);
    *out = &event->base;
    return BERTH_OK;
}

berth_status berth__ocl_event_record(berth_event *base, berth_stream *stream)
{
    ocl_event *event = (ocl_event *)base;
    ocl_event_id marker = NULL;
    berth_status status = berth__ocl_alive(of(stream)->device);
    if (status != BERTH_OK)
        return status;
    int32_t code = put_marker(of(stream)->queue, &marker);
    if (code != OCL_SUCCESS) {
        if (marker)
            (void)berth__ocl.clReleaseEvent(marker);
        return berth__ocl_fail(of(stream)->device, code, "recording an event");
    }
    ocl_event_id old = event->native;
    event->native = marker;
    atomic_store(&event->done, false);
    if (old)
        (void)berth__ocl.clReleaseEvent(old);
    return BERTH_OK;
}

berth_status berth__ocl_event_query(berth_event *base)
{
    ocl_event *event = (ocl_event *)base;
    if (atomic_load_explicit(&event->done, memory_order_acquire))
        return BERTH_OK;
    int32_t state = state_of(event->native);
    if (state > OCL_COMPLETE) /* on a lost device nothing ever comes */
        return BERTH_LIKELY(!atomic_load_explicit(&event->device->lost, memory_order_relaxed))
                   ? BERTH_NOT_READY
                   : berth__ocl_alive(event->device);
    if (state < OCL_COMPLETE)
        return berth__ocl_fail(event->device, state, "a command before the event");
    atomic_store_explicit(&event->done, true, memory_order_release);
    return BERTH_OK;
}

berth_status berth__ocl_event_wait(berth_event *base)
{
    ocl_event *event = (ocl_event *)base;
    berth_status status = berth__ocl_event_query(base);
    if (status != BERTH_NOT_READY)
        return status;
    int32_t code = berth__ocl.clWaitForEvents(1, &event->native);
    return code == OCL_SUCCESS ? berth__ocl_event_query(base)
                               : berth__ocl_fail(event->device, code, "waiting for an event");
}

berth_status berth__ocl_stream_wait_event(berth_stream *stream, berth_event *base)
{
    ocl_event *event = (ocl_event *)base;
    ocl_device *device = of(stream)->device;
    berth_status status = berth__ocl_alive(device);
    if (status != BERTH_OK || atomic_load_explicit(&event->done, memory_order_acquire))
        return status;
    if (!berth_device_equal(base->device, stream->device)) /* another device has another context */
        return berth__ocl_event_wait(base);
    int32_t code = berth__ocl.clEnqueueBarrierWithWaitList(of(stream)->queue, 1, &event->native, NULL);
    if (code == OCL_SUCCESS)
        code = berth__ocl_after(of(stream));
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(device, code, "waiting for an event on a queue");
}

void berth__ocl_event_destroy(berth_event *base)
{
    ocl_event *event = (ocl_event *)base;
    if (event->native)
        (void)berth__ocl.clReleaseEvent(event->native);
    berth__heap_free(event);
}

/* cl_event as events of OpenCL devices. */
#include "device/opencl.h"

typedef struct ocl_event {
    berth_event base;
    ocl_device *device;
    ocl_event_id native; /* NULL: not recorded */
    _Atomic bool done;   /* seen complete: no need to ask the driver again */
} ocl_event;

static ocl_device *device_of(const berth_stream *stream)
{
    return ((const ocl_stream *)stream)->device;
}

berth_status berth__ocl_event_create(void *self, berth_device device, berth_event **out)
{
    (void)self;
    berth_status status = berth__ocl_check_streams(device);
    if (status)
        return status;
    ocl_event *event = berth__heap_alloc(sizeof *event);
    if (!event)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    event->device = berth__ocl_device(device);
    event->native = NULL;
    atomic_init(&event->done, true);
    *out = &event->base;
    return BERTH_OK;
}

berth_status berth__ocl_event_record(void *self, berth_event *base, berth_stream *stream)
{
    (void)self;
    ocl_event *event = (ocl_event *)base;
    ocl_event_id marker = NULL;
    berth_status status = berth__ocl_alive(device_of(stream));
    if (status)
        return status;
    int32_t code = berth__ocl_put_marker(((ocl_stream *)stream)->queue, &marker);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(device_of(stream), code, "recording an event");
    ocl_event_id old = event->native;
    event->native = marker;
    atomic_store(&event->done, false);
    if (old)
        (void)berth__ocl.clReleaseEvent(old);
    return BERTH_OK;
}

/* A failed command is over, and so is everything before the mark. The failure is said once, to whoever finds
 * it; after that the point counts as passed, which it is: what waits for it must not wait for ever. */
berth_status berth__ocl_event_query(void *self, berth_event *base)
{
    (void)self;
    ocl_event *event = (ocl_event *)base;
    if (atomic_load_explicit(&event->done, memory_order_acquire))
        return BERTH_OK;
    if (BERTH_UNLIKELY(atomic_load_explicit(&event->device->lost, memory_order_relaxed)))
        return berth__ocl_alive(event->device); /* on a lost device nothing ever comes */
    int32_t state, code = berth__ocl_state_of(event->native, &state);
    if (BERTH_UNLIKELY(code != OCL_SUCCESS)) /* the question failed, which says nothing of the command */
        return berth__ocl_fail(event->device, code, "asking an event");
    if (state > OCL_COMPLETE)
        return BERTH_NOT_READY;
    bool said = atomic_exchange_explicit(&event->done, true, memory_order_acq_rel);
    return state == OCL_COMPLETE || said
               ? BERTH_OK
               : berth__ocl_fail(event->device, state, "a command before the event");
}

berth_status berth__ocl_event_wait(void *self, berth_event *base)
{
    ocl_event *event = (ocl_event *)base;
    berth_status status = berth__ocl_event_query(self, base);
    if (status != BERTH_NOT_READY)
        return status;
    int32_t code = berth__ocl.clWaitForEvents(1, &event->native);
    status = berth__ocl_event_query(self, base); /* it knows more than the wait does: which code */
    return code == OCL_SUCCESS || status != BERTH_NOT_READY
               ? status
               : berth__ocl_fail(event->device, code, "waiting for an event");
}

/* Events of one context can be waited for by each of its queues. */
static bool same_context(ocl_device *a, ocl_device *b)
{
    return a == b || atomic_load(&a->context) == atomic_load(&b->context);
}

berth_status berth__ocl_stream_wait_event(void *self, berth_stream *stream, berth_event *base)
{
    (void)self;
    ocl_event *event = (ocl_event *)base;
    ocl_device *device = device_of(stream);
    berth_status status = berth__ocl_alive(device);
    if (status || atomic_load_explicit(&event->done, memory_order_acquire))
        return status;
    if (!same_context(device, event->device))
        return berth__ocl_event_wait(self, base);
    ocl_stream *on = (ocl_stream *)stream;
    int32_t code = berth__ocl.clEnqueueBarrierWithWaitList(on->queue, 1, &event->native, NULL);
    if (code == OCL_SUCCESS)
        code = berth__ocl_after(on);
    return code == OCL_SUCCESS ? BERTH_OK : berth__ocl_fail(device, code, "waiting for an event on a queue");
}

void berth__ocl_event_destroy(void *self, berth_event *base)
{
    (void)self;
    ocl_event *event = (ocl_event *)base;
    if (event->native && !berth__ocl_is_forked())
        (void)berth__ocl.clReleaseEvent(event->native);
    berth__heap_free(event);
}

/* Functions of the host on an OpenCL queue, what happens once a queue has passed a point, and the driver's
 * objects that have to wait until no user event is unset. */
#include "device/opencl.h"

#include <sched.h>

/* ---- User events and releases -------------------------------------------------------------------- */

/* The specification: all user events that commands wait for must be set before anything but an event is
 * released, else the behaviour is undefined. So it is the one or the other: */
static _Atomic int64_t turn; /* above 0: user events that are not set; below: releases under way */
static berth__spin leaving_lock;
static ocl_leaving *leaving_first; /* what has to wait; guard: leaving_lock */

static bool begin_release(void)
{
    int64_t now = atomic_load(&turn);
    while (now <= 0)
        if (atomic_compare_exchange_weak(&turn, &now, now - 1))
            return true;
    return false;
}

static void release_all(ocl_leaving *first)
{
    while (first) {
        ocl_leaving *leaving = first;
        first = first->next;
        leaving->release(leaving);
    }
}

static ocl_leaving *take_leaving(void)
{
    berth__spin_lock(&leaving_lock, BERTH__RANK_DEVICE);
    ocl_leaving *all = leaving_first;
    leaving_first = NULL;
    berth__spin_unlock(&leaving_lock, BERTH__RANK_DEVICE);
    return all;
}

/* If a user event is unset by then, the one who sets it comes by here. */
static void release_what_waits(void)
{
    if (!begin_release())
        return;
    release_all(take_leaving());
    atomic_fetch_add(&turn, 1);
}

void berth__ocl_leave(ocl_leaving *leaving)
{
    if (begin_release()) {
        leaving->release(leaving);
        atomic_fetch_add(&turn, 1);
        return;
    }
    berth__spin_lock(&leaving_lock, BERTH__RANK_DEVICE);
    leaving->next = leaving_first;
    leaving_first = leaving;
    berth__spin_unlock(&leaving_lock, BERTH__RANK_DEVICE);
    release_what_waits(); /* the last may have been set meanwhile */
}

static void end_turn(void)
{
    if (atomic_fetch_sub(&turn, 1) == 1)
        release_what_waits();
}

static ocl_event_id begin_user_event(ocl_context context, int32_t *code)
{
    int64_t now = atomic_load(&turn);
    while (now < 0 || !atomic_compare_exchange_weak(&turn, &now, now + 1)) {
        if (now < 0)
            sched_yield(); /* a release takes a moment */
        now = atomic_load(&turn);
    }
    ocl_event_id made = berth__ocl.clCreateUserEvent(context, code);
    if (!made)
        end_turn();
    return made;
}

static void end_user_event(ocl_event_id event)
{
    (void)berth__ocl.clSetUserEventStatus(event, OCL_COMPLETE);
    (void)berth__ocl.clReleaseEvent(event);
    end_turn();
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
    berth_stream_run(&call->stream->base, call->fn, call->context);
    /* The stream goes last, and with it perhaps its queue: not while the user event is unset. */
    ocl_event_id go_on = call->go_on;
    ocl_stream *stream = call->stream;
    berth__heap_free(call);
    end_user_event(go_on);
    berth__stream_release(&stream->base);
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
    if (!status && !atomic_compare_exchange_strong(&stream->caller, &other, made))
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
    if (code == OCL_SUCCESS) /* from here on the call may be over, and gone */
        code = berth__ocl.clSetEventCallback(marker, OCL_COMPLETE, reached_host_call, call);
    if (marker)
        (void)berth__ocl.clReleaseEvent(marker);
    return code;
}

berth_status berth__ocl_stream_call(void *self, berth_stream *base, void (*fn)(void *context), void *context)
{
    (void)self;
    ocl_stream *stream = (ocl_stream *)base;
    ocl_context ocl;
    berth_status status = berth__ocl_alive(stream->device);
    if (!status)
        status = need_caller(stream);
    if (!status)
        status = berth__ocl_context(stream->device, &ocl);
    if (status)
        return status;
    host_call *call = berth__heap_alloc(sizeof *call);
    if (!call)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue a function");
    int32_t code = OCL_SUCCESS;
    *call = (host_call){stream, begin_user_event(ocl, &code), fn, context};
    if (!call->go_on) {
        berth__heap_free(call);
        return berth__ocl_fail(stream->device, code, "making a user event");
    }
    /* The call may have run, and be gone, as soon as it is enqueued. */
    berth__stream_retain(base);
    code = enqueue_host_call(call);
    if (code != OCL_SUCCESS) {
        end_user_event(call->go_on);
        berth__heap_free(call);
        berth__stream_release(base);
        return berth__ocl_fail(stream->device, code, "enqueuing a function");
    }
    return BERTH_OK;
}

/* ---- Once a stream has passed a point ------------------------------------------------------------ */

typedef struct errand {
    ocl_stream *stream; /* retained */
    void (*fn)(void *context);
    void *context;
} errand;

static void run_errand(void *context)
{
    errand *e = context;
    ocl_stream *stream = e->stream;
    e->fn(e->context);
    berth__heap_free(e);
    berth__stream_release(&stream->base);
}

static void reached_errand(ocl_event_id event, int32_t state, void *context)
{
    (void)event, (void)state; /* after a failed command too */
    errand *e = context;
    if (berth_stream_call(atomic_load(&e->stream->caller), run_errand, e) != BERTH_OK)
        run_errand(e);
}

berth_status berth__ocl_when_passed(ocl_stream *stream, void (*fn)(void *context), void *context)
{
    ocl_event_id marker = NULL;
    berth_status status = need_caller(stream);
    if (status)
        return status;
    errand *e = berth__heap_alloc(sizeof *e);
    if (!e)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to wait for a queue");
    *e = (errand){stream, fn, context};
    berth__stream_retain(&stream->base);
    int32_t code = berth__ocl_put_marker(stream->queue, &marker);
    if (code == OCL_SUCCESS) /* from here on the errand may be over, and gone */
        code = berth__ocl.clSetEventCallback(marker, OCL_COMPLETE, reached_errand, e);
    if (marker)
        (void)berth__ocl.clReleaseEvent(marker);
    if (code == OCL_SUCCESS)
        return BERTH_OK;
    berth__heap_free(e);
    berth__stream_release(&stream->base);
    return berth__ocl_fail(stream->device, code, "waiting for a queue to get to a point");
}

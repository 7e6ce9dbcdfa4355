/* OpenCL queues as streams. */
#include "device/opencl.h"

#include <sched.h>
#include <time.h>

static ocl_stream *opencl_of(berth_stream *stream)
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

/* Without the flush a driver may keep the command until somebody waits for it. The command is there by now: that it
 * was refused must not be said because of a shortage that passes. */
int32_t berth__ocl_after(ocl_stream *stream)
{
    int32_t code = OCL_SUCCESS;
    int attempts = 0;
    atomic_fetch_add_explicit(&stream->enqueued, 1, memory_order_release);
    if (BERTH_UNLIKELY(stream->out_of_order))
        do
            code = barrier(stream->queue);
        while (berth__ocl_once_more(code, &attempts));
    int32_t flushed = berth__ocl_flush(stream->queue);
    return code == OCL_SUCCESS ? flushed : code;
}

static void saw_done(ocl_stream *stream, uint64_t count)
{
    uint64_t seen = atomic_load(&stream->seen_done);
    while (seen < count && !atomic_compare_exchange_weak(&stream->seen_done, &seen, count))
        ;
}

/* ---- Life ---------------------------------------------------------------------------------------- */

/* The device is held; the stream holds it from then on. */
static berth_status opencl_make(berth_device device, ocl_queue queue, bool shared, berth_stream **out)
{
    ocl_stream *stream = berth__heap_zalloc(1, sizeof *stream);
    if (!stream)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
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

berth_status berth__ocl_check_streams(berth_device name)
{
    ocl_device *device = berth__ocl_device(name);
    berth_status status = berth__ocl_alive(device);
    return !status ? berth__ocl_check_kind(name, BERTH_MEMORY_DEVICE) : status;
}

static berth_status create_held(berth_device device, berth_stream **out)
{
    ocl_queue queue;
    berth_status status = berth__ocl_check_streams(device);
    if (!status)
        status = berth__ocl_new_queue(berth__ocl_device(device), &queue);
    if (status)
        return status;
    status = opencl_make(device, queue, false, out);
    if (status)
        (void)berth__ocl.clReleaseCommandQueue(queue);
    return status;
}

berth_status berth__ocl_stream_create(void *self, berth_device device, berth_stream **out)
{
    (void)self;
    berth_status status = berth__ocl_hold(berth__ocl_device(device));
    if (status)
        return status;
    status = create_held(device, out);
    if (status)
        berth__ocl_drop(berth__ocl_device(device));
    return status;
}

static berth_status wrap_held(berth_device device, void *native, berth_stream **out)
{
    ocl_device *ocl = berth__ocl_device(device);
    ocl_context context, theirs = NULL;
    ocl_device_id id = NULL;
    berth_status status = berth__ocl_check_streams(device);
    if (!status)
        status = berth__ocl_context(ocl, &context);
    if (status)
        return status;
    int32_t code =
        berth__ocl.clGetCommandQueueInfo(native, OCL_QUEUE_CONTEXT, sizeof theirs, (void *)&theirs, NULL);
    if (code == OCL_SUCCESS)
        code = berth__ocl.clGetCommandQueueInfo(native, OCL_QUEUE_DEVICE, sizeof id, (void *)&id, NULL);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(ocl, code, "asking the queue for its context");
    if (!berth__ocl_queue_fits(ocl, theirs, id))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the queue belongs to another context or device: make it in the context that "
                           "berth_device_native gives for OpenCL device %d, or have its context adopted by "
                           "berth_opencl_adopt",
                           (int)device.ordinal);
    status = opencl_make(device, native, true, out);
    if (!status)
        (void)berth__ocl.clRetainCommandQueue(native);
    return status;
}

berth_status berth__ocl_stream_wrap(void *self, berth_device device, void *native, berth_stream **out)
{
    (void)self;
    if (!native)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the queue to wrap is NULL");
    berth_status status = berth__ocl_hold(berth__ocl_device(device));
    if (status)
        return status;
    status = wrap_held(device, native, out);
    if (status)
        berth__ocl_drop(berth__ocl_device(device));
    return status;
}

void *berth__ocl_stream_native(void *self, berth_stream *stream)
{
    (void)self;
    atomic_store(&opencl_of(stream)->shared, true);
    return opencl_of(stream)->queue;
}

static void release_queue(ocl_leaving *leaving)
{
    ocl_stream *stream = (ocl_stream *)((char *)leaving - offsetof(ocl_stream, leaving));
    (void)berth__ocl.clReleaseCommandQueue(stream->queue);
    berth__ocl_drop(stream->device);
    berth__heap_free(stream);
}

/* In the child of a fork the driver's objects are left alone; the memory is ours. */
void berth__ocl_stream_destroy(void *self, berth_stream *base)
{
    (void)self;
    ocl_stream *stream = opencl_of(base);
    bool forked = berth__ocl_is_forked();
    if (stream->question && !forked)
        (void)berth__ocl.clReleaseEvent(stream->question->marker);
    berth__heap_free(stream->question);
    berth_stream_destroy(atomic_load(&stream->caller));
    if (forked) {
        berth__heap_free(stream);
        return;
    }
    (void)berth__ocl.clFlush(stream->queue); /* what is enqueued still runs */
    stream->leaving.release = release_queue;
    berth__ocl_leave(&stream->leaving);
}

/* ---- Asking and waiting -------------------------------------------------------------------------- */

int32_t berth__ocl_put_marker(ocl_queue queue, ocl_event_id *out)
{
    *out = NULL;
    int32_t code = berth__ocl.clEnqueueMarkerWithWaitList(queue, 0, NULL, out);
    if (code == OCL_SUCCESS)
        code = berth__ocl_flush(queue);
    if (code != OCL_SUCCESS && *out) {
        (void)berth__ocl.clReleaseEvent(*out);
        *out = NULL;
    }
    return code;
}

int32_t berth__ocl_state_of(ocl_event_id event, int32_t *state)
{
    *state = 1;
    return berth__ocl.clGetEventInfo(event, OCL_EVENT_STATUS, sizeof *state, state, NULL);
}

static ocl_question *question_hold(ocl_stream *stream)
{
    berth__spin_lock(&stream->question_lock, BERTH__RANK_DEVICE);
    ocl_question *question = stream->question;
    if (question)
        question->holders++;
    berth__spin_unlock(&stream->question_lock, BERTH__RANK_DEVICE);
    return question;
}

/* `answered`: it need not be kept for others. */
static void question_drop(ocl_stream *stream, ocl_question *question, bool answered)
{
    berth__spin_lock(&stream->question_lock, BERTH__RANK_DEVICE);
    if (answered && stream->question == question) {
        stream->question = NULL;
        question->holders--;
    }
    bool last = --question->holders == 0;
    berth__spin_unlock(&stream->question_lock, BERTH__RANK_DEVICE);
    if (last) {
        (void)berth__ocl.clReleaseEvent(question->marker);
        berth__heap_free(question);
    }
}

/* Keeps it for the next to ask. One that is there already is older and is answered earlier: it stays. */
static void question_keep(ocl_stream *stream, ocl_question *question)
{
    berth__spin_lock(&stream->question_lock, BERTH__RANK_DEVICE);
    if (!stream->question) {
        stream->question = question;
        question->holders++;
    }
    berth__spin_unlock(&stream->question_lock, BERTH__RANK_DEVICE);
    question_drop(stream, question, false);
}

static berth_status question_put(ocl_stream *stream, ocl_question **out)
{
    ocl_question *question = berth__heap_zalloc(1, sizeof *question);
    *out = question;
    if (!question)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to ask a queue");
    question->holders = 1;
    question->covered = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
    int32_t code = berth__ocl_put_marker(stream->queue, &question->marker);
    if (code != OCL_SUCCESS) {
        berth__heap_free(question);
        return berth__ocl_fail(stream->device, code, "asking a queue");
    }
    return BERTH_OK;
}

/* A marker is through, or has failed because a command before it did: nothing is left of those before it either
 * way. The failure is said to the one who finds it. */
static berth_status take_answer(ocl_stream *stream, int32_t state, uint64_t covered)
{
    saw_done(stream, covered);
    return state < OCL_COMPLETE ? berth__ocl_fail(stream->device, state, "a command on the queue") : BERTH_OK;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Looks a few times. `longer`: a queue that was just found empty and may have got new work from the program has
 * to be asked anew, each time; the marker gets some milliseconds then, or an idle queue of a driver with slow
 * markers would never be seen to be idle. */
static int32_t opencl_look(ocl_event_id marker, bool longer, int32_t *state)
{
    enum { LOOKS = 100, LOOKS_LONGER = 2000, LONGER_NS = 5000000, LOOKS_A_YIELD = 16 };
    int32_t code;
    uint64_t until = longer ? now_ns() + LONGER_NS : 0;
    for (int looks = 0; (code = berth__ocl_state_of(marker, state)) == OCL_SUCCESS && *state > OCL_COMPLETE;
         looks++) {
        if (looks >= LOOKS && !(longer && (looks < LOOKS_LONGER || now_ns() < until)))
            break;
        if (!longer || looks % LOOKS_A_YIELD == 0)
            sched_yield();
    }
    return code;
}

/* Asks the marker that is under way, if there is one. */
static berth_status ask_again(ocl_stream *stream, bool *there_was_one)
{
    int32_t state;
    ocl_question *question = question_hold(stream);
    *there_was_one = question != NULL;
    if (!question)
        return BERTH_OK;
    int32_t code = berth__ocl_state_of(question->marker, &state);
    bool answered = code == OCL_SUCCESS && state <= OCL_COMPLETE;
    uint64_t covered = question->covered;
    if (answered) /* before it is gone: who finds none looks at what was seen */
        saw_done(stream, covered);
    question_drop(stream, question, answered);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(stream->device, code, "asking a marker");
    return answered ? take_answer(stream, state, covered) : BERTH_NOT_READY;
}

/* With a new marker. */
static berth_status ask_anew(ocl_stream *stream, bool longer)
{
    int32_t state;
    ocl_question *question = NULL;
    berth_status status = question_put(stream, &question);
    if (status)
        return status;
    int32_t code = opencl_look(question->marker, longer, &state);
    uint64_t covered = question->covered;
    if (code != OCL_SUCCESS || state > OCL_COMPLETE)
        question_keep(stream, question);
    else
        question_drop(stream, question, false);
    if (code != OCL_SUCCESS)
        return berth__ocl_fail(stream->device, code, "asking a marker");
    return state > OCL_COMPLETE ? BERTH_NOT_READY : take_answer(stream, state, covered);
}

/* OpenCL cannot say whether a queue is empty. We send a marker and see whether it comes through; an idle
 * queue lets it pass within microseconds, so we look a few times. One that is still on its way is kept, with
 * what it covers, until it answers: asking in a loop neither fills the queue nor starts over. */
berth_status berth__ocl_stream_query(void *self, berth_stream *base)
{
    (void)self;
    ocl_stream *stream = opencl_of(base);
    bool drained;
    berth_status status = berth__ocl_alive(stream->device);
    if (status)
        return status;
    uint64_t enqueued = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
    bool shared = atomic_load(&stream->shared);
    if (!shared && atomic_load(&stream->seen_done) >= enqueued)
        return BERTH_OK;
    status = ask_again(stream, &drained);
    if (status || (!shared && atomic_load(&stream->seen_done) >= enqueued))
        return status;
    return ask_anew(stream, drained && shared);
}

berth_status berth__ocl_stream_synchronize(void *self, berth_stream *base)
{
    (void)self;
    ocl_stream *stream = opencl_of(base);
    berth_status status = berth__ocl_alive(stream->device);
    if (status)
        return status;
    uint64_t enqueued = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
    status = berth__ocl_finish(stream->device, stream->queue, "waiting for a queue");
    if (!status)
        saw_done(stream, enqueued);
    return status;
}

/* Streams and events of the table: a stream is a line, an event a line and a number on it. */
#include "inside.h"

#include <stdlib.h>

typedef struct event {
    berth_event_base base;
    bvk_line *line; /* NULL: not recorded, so complete */
    uint64_t number;
} event;

/* The number of the line's present end, its waits included. */
static berth_status end_of(bvk_line *line, uint64_t *out)
{
    berth_status status = bvk_alive(line->device);
    if (status)
        return status;
    pthread_mutex_lock(&line->lock);
    status = bvk_flush_waits(line);
    *out = line->last;
    pthread_mutex_unlock(&line->lock);
    return status;
}

berth_status bvk_stream_create(void *self, berth_device which, berth_stream **out)
{
    bvk_device *device = NULL;
    bvk_line *line = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (!status)
        status = bvk_line_take(device, &line);
    if (!status)
        *out = berth_stream_from_base(&line->base);
    return status;
}

/* The timeline semaphore; berth_vulkan_point says which value to wait for. */
void *bvk_stream_native(void *self, berth_stream *stream)
{
    (void)self;
    return (void *)(uintptr_t)((bvk_line *)stream)->timeline;
}

void bvk_stream_destroy(void *self, berth_stream *stream)
{
    (void)self;
    bvk_line_give((bvk_line *)stream);
}

berth_status bvk_stream_query(void *self, berth_stream *stream)
{
    (void)self;
    uint64_t end = 0;
    berth_status status = end_of((bvk_line *)stream, &end);
    return !status ? bvk_line_query((bvk_line *)stream, end) : status;
}

berth_status bvk_stream_synchronize(void *self, berth_stream *stream)
{
    (void)self;
    uint64_t end = 0;
    berth_status status = end_of((bvk_line *)stream, &end);
    return !status ? bvk_line_wait((bvk_line *)stream, end) : status;
}

berth_status bvk_stream_wait_event(void *self, berth_stream *stream, berth_event *given)
{
    (void)self;
    bvk_line *line = (bvk_line *)stream;
    event *mark = (event *)given;
    if (!mark->line || mark->line == line)
        return bvk_alive(line->device);
    if (mark->line->device != line->device) /* two devices share no semaphores */
        return berth_fail(BERTH_UNSUPPORTED, "a stream cannot wait for an event of another Vulkan device");
    berth_status status = bvk_line_query(mark->line, mark->number);
    if (status != BERTH_NOT_READY)
        return status;
    const bvk_point point = {mark->line->timeline, mark->number};
    return bvk_enqueue_wait(line, &point,
                            atomic_load_explicit(&mark->line->given, memory_order_acquire) >= mark->number);
}

berth_status bvk_stream_call(void *self, berth_stream *stream, void (*fn)(void *context), void *context)
{
    (void)self;
    const bvk_job job = {.kind = BVK_JOB_CALL, .fn = fn, .context = context};
    return bvk_enqueue((bvk_line *)stream, &job);
}

/* ---- Events ------------------------------------------------------------------------------------------ */

berth_status bvk_event_create(void *self, berth_device which, berth_event **out)
{
    bvk_device *device = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (status)
        return status;
    event *made = calloc(1, sizeof *made);
    if (!made)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event");
    *out = berth_event_from_base(&made->base);
    return BERTH_OK;
}

berth_status bvk_event_record(void *self, berth_event *given, berth_stream *stream)
{
    (void)self;
    event *mark = (event *)given;
    uint64_t end = 0;
    berth_status status = end_of((bvk_line *)stream, &end);
    if (status)
        return status;
    mark->line = (bvk_line *)stream;
    mark->number = end;
    return BERTH_OK;
}

berth_status bvk_event_query(void *self, berth_event *given)
{
    (void)self;
    const event *mark = (event *)given;
    return mark->line ? bvk_line_query(mark->line, mark->number) : BERTH_OK;
}

berth_status bvk_event_wait(void *self, berth_event *given)
{
    (void)self;
    const event *mark = (event *)given;
    return mark->line ? bvk_line_wait(mark->line, mark->number) : BERTH_OK;
}

void bvk_event_destroy(void *self, berth_event *given)
{
    (void)self;
    free(given);
}

/* ---- What programs put into streams ------------------------------------------------------------------ */

static berth_status line_of(berth_stream *stream, bvk_line **out)
{
    berth_vulkan_handles handles = {.struct_size = sizeof handles};
    if (!stream)
        return berth_fail(BERTH_INVALID_ARGUMENT, "stream is NULL");
    *out = (bvk_line *)stream;
    berth_status status = berth_vulkan_handles_get(berth_stream_device(stream), &handles);
    return status == BERTH_NOT_FOUND
               ? berth_fail(BERTH_INVALID_ARGUMENT, "the stream is not of a Vulkan device")
               : status;
}

berth_status berth_vulkan_submit(berth_stream *stream, VkCommandBuffer commands)
{
    bvk_line *line = NULL;
    berth_status status = line_of(stream, &line);
    if (!status && !commands)
        status = berth_fail(BERTH_INVALID_ARGUMENT, "the command buffer is NULL");
    const bvk_job job = {.kind = BVK_JOB_COMMANDS, .commands = commands};
    return !status ? bvk_enqueue(line, &job) : status;
}

berth_status berth_vulkan_wait(berth_stream *stream, VkSemaphore semaphore, uint64_t value)
{
    bvk_line *line = NULL;
    uint64_t now = 0;
    berth_status status = line_of(stream, &line);
    if (!status && !semaphore)
        status = berth_fail(BERTH_INVALID_ARGUMENT, "the semaphore is NULL");
    if (status)
        return status;
    bvk_device *device = line->device;
    VkResult code = device->call.vkGetSemaphoreCounterValue(device->logical, semaphore, &now);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "asking a semaphore");
    const bvk_point point = {semaphore, value};
    return bvk_enqueue_wait(line, &point, now >= value);
}

berth_status berth_vulkan_point(berth_stream *stream, VkSemaphore *semaphore, uint64_t *value)
{
    bvk_line *line = NULL;
    uint64_t end = 0;
    if (!semaphore || !value)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%s is NULL", semaphore ? "value" : "semaphore");
    berth_status status = line_of(stream, &line);
    if (!status)
        status = end_of(line, &end);
    if (status)
        return status;
    *semaphore = line->timeline;
    *value = end;
    return BERTH_OK;
}

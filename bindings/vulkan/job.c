/* Work that cannot go to the queue at once, because the host has a part in it or because it waits for something that the
 * queue does not have yet. It is done on a thread: the line's runner, a CPU stream of Berth's, which keeps the order. While
 * the runner has work, everything else that is enqueued on the line stands behind it there. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* The queue can do it alone. */
static bool is_for_queue(const bvk_job *job)
{
    if (job->kind == BVK_JOB_COPY)
        return job->copy.to && (job->copy.from || !job->copy.src);
    return job->kind == BVK_JOB_COMMANDS;
}

static bool host_can(const bvk_copy *copy)
{
    return (!copy->to || copy->to->touchable) && (!copy->from || copy->from->touchable);
}

static void copy_on_host(const bvk_copy *copy)
{
    if (copy->src)
        memmove(copy->dst, copy->src, copy->size);
    else
        memset(copy->dst, 0, copy->size);
}

/* ---- Without a line ---------------------------------------------------------------------------------- */

/* Submits one copy on a line that the caller has to himself, and waits for it. */
static berth_status copy_and_wait(bvk_line *line, const bvk_copy *copy)
{
    pthread_mutex_lock(&line->lock);
    berth_status status = bvk_needs_staging(copy) ? bvk_line_staging(line) : BERTH_OK;
    if (!status)
        status = bvk_give_copy(line, copy, line->last + 1);
    if (!status)
        line->last++;
    uint64_t number = line->last;
    pthread_mutex_unlock(&line->lock);
    return !status ? bvk_line_wait(line, number) : status;
}

/* One end is memory that the driver does not know, the other memory that the host cannot touch. */
static berth_status copy_through_staging(bvk_line *line, const bvk_copy *copy)
{
    berth_status status = bvk_line_staging(line);
    for (size_t done = 0, size; !status && done < copy->size; done += size) {
        char *staging = line->staging->base;
        size = copy->size - done < BVK_STAGING_BYTES ? copy->size - done : BVK_STAGING_BYTES;
        bvk_copy piece = {.size = size};
        if (copy->to) {
            memcpy(staging, copy->src + done, size);
            piece.dst = copy->dst + done, piece.to = copy->to;
            piece.src = staging, piece.from = line->staging;
        } else {
            piece.dst = staging, piece.to = line->staging;
            piece.src = copy->src + done, piece.from = copy->from;
        }
        status = copy_and_wait(line, &piece);
        if (!status && !copy->to)
            memcpy(copy->dst + done, staging, size);
    }
    return status;
}

static berth_status add_wait(bvk_line *line, const bvk_point *point);

berth_status bvk_copy_now(bvk_device *device, const bvk_copy *copy, const bvk_point *after)
{
    if (host_can(copy)) {
        copy_on_host(copy);
        return BERTH_OK;
    }
    bvk_line *line = NULL;
    berth_status status = bvk_line_take(device, &line);
    if (status)
        return status;
    if (after) {
        pthread_mutex_lock(&line->lock);
        status = add_wait(line, after);
        pthread_mutex_unlock(&line->lock);
    }
    if (!status)
        status = copy->to && (copy->from || !copy->src) ? copy_and_wait(line, copy)
                                                        : copy_through_staging(line, copy);
    bvk_line_give(line);
    return status;
}

/* ---- On the runner ----------------------------------------------------------------------------------- */

/* Everything before has been passed; now this has, too. */
static void signal_from_host(bvk_line *line, uint64_t number)
{
    bvk_device *device = line->device;
    const VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = line->timeline, .value = number};
    if (bvk_alive(device) != BERTH_OK)
        return;
    VkResult code = VK_ERROR_UNKNOWN;
    for (int tries = 0; tries < 3 && code != VK_SUCCESS; tries++) /* memory may be short for a moment */
        code = device->call.vkSignalSemaphore(device->logical, &info);
    if (code != VK_SUCCESS) /* nobody could ever pass this point again */
        (void)bvk_lose(device, code, "signalling a semaphore");
    atomic_store_explicit(&line->given, number, memory_order_release);
}

/* After the wait for what stands before. */
static berth_status run_on_host(const bvk_job *job)
{
    bvk_line *line = job->line;
    const bvk_point before = {line->timeline, job->number - 1};
    if (job->kind == BVK_JOB_CALL) {
        berth_stream_run(berth_stream_from_base(&line->base), job->fn, job->context);
        return BERTH_OK;
    }
    return job->kind == BVK_JOB_WAIT ? bvk_await_point(line->device, &job->point)
                                     : bvk_copy_now(line->device, &job->copy, &before);
}

static berth_status give_to_queue(const bvk_job *job)
{
    bvk_line *line = job->line;
    pthread_mutex_lock(&line->lock);
    berth_status status = job->kind == BVK_JOB_COPY ? bvk_give_copy(line, &job->copy, job->number)
                                                    : bvk_give_commands(line, job->commands, job->number);
    pthread_mutex_unlock(&line->lock);
    return status;
}

/* The first is told. Only the runner writes. */
static void note_failure(bvk_line *line, uint64_t number, berth_status status)
{
    if (atomic_load(&line->failed_at) != 0)
        return;
    atomic_store(&line->failed_status, (int)status);
    atomic_store(&line->failed_code, (int)berth_last_error()->driver_code);
    atomic_store(&line->failed_at, number);
}

/* A function is called even if the device is lost: it may be what frees memory. */
static void run_job(void *context)
{
    bvk_job *job = context;
    bvk_line *line = job->line;
    berth_status status = bvk_alive(line->device);
    bool for_queue = is_for_queue(job);
    if (for_queue && !status)
        status = give_to_queue(job);
    if (!for_queue || status) {
        berth_status before = bvk_line_await(line, job->number - 1);
        if (before != BERTH_OK && !status)
            status = before;
        if (!for_queue && (before == BERTH_OK || job->kind == BVK_JOB_CALL))
            status = run_on_host(job);
        if (status)
            note_failure(line, job->number, status);
        signal_from_host(line, job->number);
    }
    free(job);
    pthread_mutex_lock(&line->lock);
    line->deferred--;
    pthread_mutex_unlock(&line->lock);
}

/* ---- Enqueuing --------------------------------------------------------------------------------------- */

static berth_status add_wait(bvk_line *line, const bvk_point *point)
{
    for (size_t i = 0; i < line->waits_count; i++)
        if (line->waits[i].semaphore == point->semaphore) {
            if (line->waits[i].value < point->value)
                line->waits[i].value = point->value;
            return BERTH_OK;
        }
    if (line->waits_count == line->waits_room) {
        size_t room = line->waits_room ? 2 * line->waits_room : 4;
        bvk_point *more = realloc(line->waits, room * sizeof *more);
        if (!more)
            return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note what a stream waits for");
        line->waits = more;
        line->waits_room = room;
    }
    line->waits[line->waits_count++] = *point;
    return BERTH_OK;
}

static berth_status defer(bvk_line *line, const bvk_job *what)
{
    berth_status status = line->runner ? BERTH_OK : berth_stream_create(berth_device_cpu(), &line->runner);
    if (!status && line->deferred == 0)
        status = bvk_flush_waits(line);
    if (status)
        return status;
    bvk_job *job = malloc(sizeof *job);
    if (!job) {
        (void)berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to enqueue work");
        return BERTH_OUT_OF_HOST_MEMORY;
    }
    *job = *what;
    job->line = line;
    job->number = line->last + 1;
    line->deferred++;
    status = berth_stream_call(line->runner, run_job, job);
    if (!status) {
        line->last++;
    } else {
        line->deferred--;
        free(job);
    }
    return status;
}

static berth_status give_at_once(bvk_line *line, const bvk_job *job)
{
    berth_status status = job->kind == BVK_JOB_COPY ? bvk_give_copy(line, &job->copy, line->last + 1)
                                                    : bvk_give_commands(line, job->commands, line->last + 1);
    if (!status)
        line->last++;
    return status;
}

berth_status bvk_enqueue(bvk_line *line, const bvk_job *job)
{
    berth_status status = bvk_alive(line->device);
    if (status)
        return status;
    pthread_mutex_lock(&line->lock);
    if (job->kind == BVK_JOB_COPY && bvk_needs_staging(&job->copy))
        status = bvk_line_staging(line);
    if (!status)
        status = line->deferred == 0 && is_for_queue(job) ? give_at_once(line, job) : defer(line, job);
    pthread_mutex_unlock(&line->lock);
    return status;
}

/* `given`: the queue has it, or it is passed. */
berth_status bvk_enqueue_wait(bvk_line *line, const bvk_point *point, bool given)
{
    const bvk_job job = {.kind = BVK_JOB_WAIT, .point = *point};
    berth_status status = bvk_alive(line->device);
    if (status)
        return status;
    pthread_mutex_lock(&line->lock);
    status = line->deferred == 0 && given ? add_wait(line, point) : defer(line, &job);
    pthread_mutex_unlock(&line->lock);
    return status;
}

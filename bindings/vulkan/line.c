/* Lines: numbered work of one stream on the device's queue. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- How far a line has come ------------------------------------------------------------------------ */

static void note_done(bvk_line *line, uint64_t number)
{
    uint64_t before = atomic_load_explicit(&line->done, memory_order_relaxed);
    while (before < number && !atomic_compare_exchange_weak_explicit(
                                  &line->done, &before, number, memory_order_release, memory_order_relaxed))
        ;
}

/* A piece that could not be given to the queue is told once, to the first who asks about what stands behind it. */
static berth_status passed(bvk_line *line, uint64_t number)
{
    uint64_t failed_at = atomic_load_explicit(&line->failed_at, memory_order_acquire);
    if (failed_at == 0 || failed_at > number)
        return BERTH_OK;
    int status = atomic_load(&line->failed_status), code = atomic_load(&line->failed_code);
    if (!atomic_compare_exchange_strong(&line->failed_at, &failed_at, 0))
        return BERTH_OK;
    return berth_fail_driver((berth_status)status, code, NULL,
                             "work that stood earlier in the stream could not be done: Vulkan answered %d",
                             code);
}

berth_status bvk_line_query(bvk_line *line, uint64_t number)
{
    berth_status status = bvk_line_reached(line, number);
    return !status ? passed(line, number) : status;
}

berth_status bvk_line_wait(bvk_line *line, uint64_t number)
{
    berth_status status = bvk_line_await(line, number);
    return !status ? passed(line, number) : status;
}

berth_status bvk_line_reached(bvk_line *line, uint64_t number)
{
    bvk_device *device = line->device;
    berth_status status = bvk_alive(device);
    if (status)
        return status;
    if (atomic_load_explicit(&line->done, memory_order_acquire) < number) {
        uint64_t value = 0;
        VkResult code = device->call.vkGetSemaphoreCounterValue(device->logical, line->timeline, &value);
        if (code != VK_SUCCESS)
            return bvk_fail(device, code, "asking a semaphore");
        note_done(line, value);
        if (value < number)
            return BERTH_NOT_READY;
    }
    return BERTH_OK;
}

/* One slice. Where the wait itself fails, for want of memory as a rule, the semaphore is asked, which needs none in most
 * drivers. */
static VkResult await_slice(bvk_device *device, const bvk_point *point)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &point->semaphore,
                                      .pValues = &point->value};
    const uint64_t slice_ns = 200000000;
    VkResult code = device->call.vkWaitSemaphores(device->logical, &info, slice_ns);
    if (code == VK_SUCCESS || code == VK_TIMEOUT || code == VK_ERROR_DEVICE_LOST)
        return code;
    uint64_t value = 0;
    const struct timespec moment = {0, 1000000};
    VkResult asked = device->call.vkGetSemaphoreCounterValue(device->logical, point->semaphore, &value);
    if (asked == VK_SUCCESS && value >= point->value)
        return VK_SUCCESS;
    nanosleep(&moment, NULL);
    return asked == VK_SUCCESS ? VK_TIMEOUT : asked;
}

/* In slices: what a lost device will never signal is not waited for. A wait that failed must not pass for one that is over,
 * since what stands before still uses its memory: so it is repeated, and where it fails for good the device is lost. */
berth_status bvk_await_point(bvk_device *device, const bvk_point *point)
{
    enum { MOST_FAILURES = 500 }; /* one after the other: about half a second */
    for (int failures = 0;;) {
        berth_status status = bvk_alive(device);
        if (status)
            return status;
        VkResult code = await_slice(device, point);
        if (code == VK_SUCCESS)
            return BERTH_OK;
        failures = code == VK_TIMEOUT ? 0 : failures + 1;
        if (code == VK_ERROR_DEVICE_LOST || failures == MOST_FAILURES)
            return bvk_lose(device, code, "waiting for a semaphore");
    }
}

berth_status bvk_line_await(bvk_line *line, uint64_t number)
{
    const bvk_point point = {line->timeline, number};
    if (atomic_load_explicit(&line->done, memory_order_acquire) >= number)
        return bvk_alive(line->device);
    berth_status status = bvk_await_point(line->device, &point);
    if (!status)
        note_done(line, number);
    return status;
}

/* ---- Lines are kept --------------------------------------------------------------------------------- */

static VkResult make_timeline(bvk_line *line)
{
    const bvk_device *device = line->device;
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT |
                                                   VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = device->family};
    VkResult code = device->call.vkCreateSemaphore(device->logical, &semaphore, NULL, &line->timeline);
    if (code != VK_SUCCESS)
        return code;
    code = device->call.vkCreateCommandPool(device->logical, &pool, NULL, &line->pool);
    if (code != VK_SUCCESS)
        device->call.vkDestroySemaphore(device->logical, line->timeline, NULL);
    return code;
}

static berth_status line_make(bvk_device *device, bvk_line **out)
{
    bvk_line *line = calloc(1, sizeof *line);
    if (!line)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a stream");
    line->device = device;
    line->used_last = &line->used_first;
    VkResult code = make_timeline(line);
    if (code != VK_SUCCESS) {
        free(line);
        return bvk_fail(device, code, "making a stream");
    }
    pthread_mutex_init(&line->lock, NULL);
    pthread_mutex_lock(&device->lines_lock);
    line->next_of_all = device->all_lines;
    device->all_lines = line;
    pthread_mutex_unlock(&device->lines_lock);
    *out = line;
    return BERTH_OK;
}

/* What cannot be asked may have some. */
static bool has_work(bvk_line *line)
{
    pthread_mutex_lock(&line->lock);
    bool deferred = line->deferred != 0 || line->waits_count != 0;
    uint64_t last = line->last;
    pthread_mutex_unlock(&line->lock);
    if (deferred)
        return true;
    berth_status status = bvk_line_reached(line, last);
    return status != BERTH_OK && status != BERTH_DEVICE_LOST;
}

static void push(bvk_device *device, bvk_line **list, bvk_line *line)
{
    pthread_mutex_lock(&device->lines_lock);
    line->next = *list;
    *list = line;
    pthread_mutex_unlock(&device->lines_lock);
}

static bvk_line *pop(bvk_device *device, bvk_line **list)
{
    pthread_mutex_lock(&device->lines_lock);
    bvk_line *line = *list;
    if (line)
        *list = line->next;
    pthread_mutex_unlock(&device->lines_lock);
    return line;
}

/* Looks once at each line whose stream is gone; the driver is asked without the lock. */
static void collect_closing(bvk_device *device)
{
    pthread_mutex_lock(&device->lines_lock);
    bvk_line *closing = device->closing_lines;
    device->closing_lines = NULL;
    pthread_mutex_unlock(&device->lines_lock);
    while (closing) {
        bvk_line *line = closing;
        closing = line->next;
        push(device, has_work(line) ? &device->closing_lines : &device->idle_lines, line);
    }
}

berth_status bvk_line_take(bvk_device *device, bvk_line **out)
{
    bvk_line *line = pop(device, &device->idle_lines);
    if (!line) {
        collect_closing(device);
        line = pop(device, &device->idle_lines);
    }
    if (!line)
        return line_make(device, out);
    atomic_store(&line->failed_at, 0); /* nobody is left to be told */
    *out = line;
    return BERTH_OK;
}

void bvk_line_give(bvk_line *line)
{
    bvk_device *device = line->device;
    if (device->generation != bvk_generation)
        return; /* its locks are as the parent's threads left them */
    pthread_mutex_lock(&line->lock);
    line->waits_count = 0; /* nothing stands behind them any more */
    pthread_mutex_unlock(&line->lock);
    push(device, &device->closing_lines, line);
}

static void line_free(bvk_device *device, bvk_line *line)
{
    bvk_slot *lists[] = {line->used_first, line->spare};
    for (size_t i = 0; i < BVK_COUNT_OF(lists); i++)
        while (lists[i]) {
            bvk_slot *slot = lists[i];
            lists[i] = slot->next;
            free(slot); /* its commands go with the pool */
        }
    if (line->staging)
        bvk_block_free(device, line->staging);
    device->call.vkDestroyCommandPool(device->logical, line->pool, NULL);
    device->call.vkDestroySemaphore(device->logical, line->timeline, NULL);
    pthread_mutex_destroy(&line->lock);
    free(line->waits);
    free(line);
}

/* The only place that waits for streams nobody has any more. Lines wait for each other: first all, then they go. */
void bvk_lines_free(bvk_device *device)
{
    for (bvk_line *line = device->all_lines; line; line = line->next_of_all) {
        if (line->runner) {
            (void)berth_stream_synchronize(line->runner);
            berth_stream_destroy(line->runner);
        }
        (void)bvk_line_await(line, line->last);
    }
    while (device->all_lines) {
        bvk_line *line = device->all_lines;
        device->all_lines = line->next_of_all;
        line_free(device, line);
    }
    device->idle_lines = device->closing_lines = NULL;
}

/* ---- Giving work to the queue ------------------------------------------------------------------------ */

static void lock_queue(bvk_device *device)
{
    if (device->lock_queue)
        device->lock_queue(device->lock_context);
    else
        pthread_mutex_lock(&device->own_queue_lock);
}

static void unlock_queue(bvk_device *device)
{
    if (device->lock_queue)
        device->unlock_queue(device->lock_context);
    else
        pthread_mutex_unlock(&device->own_queue_lock);
}

enum { WAITS_IN_PLACE = 8 };

/* Waits for the piece before on this line (which orders memory too; a line's first waits for 0, which is there) and for
 * what the line was told to wait for. The queue has all of that, so the submission holds nobody up. */
static VkResult submit(bvk_line *line, uint32_t count, const VkCommandBuffer *commands, uint64_t number)
{
    bvk_device *device = line->device;
    uint32_t waits = 1 + (uint32_t)line->waits_count;
    VkSemaphore few_semaphores[WAITS_IN_PLACE], *semaphores = few_semaphores;
    uint64_t few_values[WAITS_IN_PLACE], *values = few_values;
    VkPipelineStageFlags few_stages[WAITS_IN_PLACE], *stages = few_stages;
    void *many = NULL;
    if (waits > WAITS_IN_PLACE) {
        many = malloc(waits * (sizeof *semaphores + sizeof *values + sizeof *stages));
        if (!many)
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        values = many;
        semaphores = (VkSemaphore *)(void *)(values + waits);
        stages = (VkPipelineStageFlags *)(void *)(semaphores + waits);
    }
    for (uint32_t i = 0; i < waits; i++) {
        semaphores[i] = i ? line->waits[i - 1].semaphore : line->timeline;
        values[i] = i ? line->waits[i - 1].value : number - 1;
        stages[i] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    }
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                    .waitSemaphoreValueCount = waits,
                                                    .pWaitSemaphoreValues = values,
                                                    .signalSemaphoreValueCount = 1,
                                                    .pSignalSemaphoreValues = &number};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &timeline,
                               .waitSemaphoreCount = waits,
                               .pWaitSemaphores = semaphores,
                               .pWaitDstStageMask = stages,
                               .commandBufferCount = count,
                               .pCommandBuffers = commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &line->timeline};
    lock_queue(device);
    VkResult code = device->call.vkQueueSubmit(device->queue, 1, &info, VK_NULL_HANDLE);
    unlock_queue(device);
    free(many);
    if (code == VK_SUCCESS) {
        line->waits_count = 0;
        atomic_store_explicit(&line->given, number, memory_order_release);
    }
    return code;
}

berth_status bvk_give_commands(bvk_line *line, VkCommandBuffer commands, uint64_t number)
{
    const VkCommandBuffer both[] = {commands, line->device->show_to_host};
    VkResult code = submit(line, commands ? 2 : 0, both, number);
    return code == VK_SUCCESS ? BERTH_OK : bvk_fail(line->device, code, "giving commands to the queue");
}

/* ---- Command buffers of our own ---------------------------------------------------------------------- */

/* One that is known to have run, else a new one. */
static VkResult take_slot(bvk_line *line, bvk_slot **out)
{
    bvk_device *device = line->device;
    bvk_slot *first = line->used_first;
    if (line->spare) {
        *out = line->spare;
        line->spare = (*out)->next;
        return VK_SUCCESS;
    }
    if (first && bvk_line_reached(line, first->number) == BERTH_OK) {
        *out = first;
        line->used_first = first->next;
        if (!line->used_first)
            line->used_last = &line->used_first;
        return VK_SUCCESS;
    }
    bvk_slot *slot = calloc(1, sizeof *slot);
    if (!slot)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    const VkCommandBufferAllocateInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = line->pool,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
    VkResult code = device->call.vkAllocateCommandBuffers(device->logical, &one, &slot->commands);
    if (code == VK_SUCCESS)
        *out = slot;
    else
        free(slot);
    return code;
}

static void keep_slot(bvk_line *line, bvk_slot *slot, bool submitted, uint64_t number)
{
    if (!submitted) {
        slot->next = line->spare;
        line->spare = slot;
        return;
    }
    slot->number = number;
    slot->next = NULL;
    *line->used_last = slot;
    line->used_last = &slot->next;
}

berth_status bvk_give_copy(bvk_line *line, const bvk_copy *copy, uint64_t number)
{
    bvk_device *device = line->device;
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    bvk_slot *slot = NULL;
    VkResult code = take_slot(line, &slot);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "making a command buffer");
    code = device->call.vkBeginCommandBuffer(slot->commands, &begin);
    if (code == VK_SUCCESS) {
        bvk_record_copy(line, slot->commands, copy);
        code = device->call.vkEndCommandBuffer(slot->commands);
    }
    if (code == VK_SUCCESS)
        code = submit(line, 1, &slot->commands, number);
    keep_slot(line, slot, code == VK_SUCCESS, number);
    return code == VK_SUCCESS ? BERTH_OK : bvk_fail(device, code, "giving a copy to the queue");
}

berth_status bvk_flush_waits(bvk_line *line)
{
    if (line->waits_count == 0)
        return BERTH_OK;
    berth_status status = bvk_give_commands(line, VK_NULL_HANDLE, line->last + 1);
    if (!status)
        line->last++;
    return status;
}

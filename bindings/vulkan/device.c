/* Logical devices: opened on first use, closed with their kind, lost when the driver says so and in the child of a fork. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

unsigned bvk_generation;

berth_status bvk_alive(bvk_device *device)
{
    if (BVK_UNLIKELY(device->generation != bvk_generation))
        return berth_fail(BERTH_DEVICE_LOST,
                          "Vulkan does not work in the child of a fork: open the device there first");
    if (BVK_UNLIKELY(atomic_load_explicit(&device->lost, memory_order_relaxed)))
        return berth_fail_driver(BERTH_DEVICE_LOST, VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST",
                                 "the Vulkan device was lost earlier");
    return BERTH_OK;
}

/* ---- Opening --------------------------------------------------------------------------------------- */

static VkResult make_logical(bvk_device *device)
{
    VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
        .bufferDeviceAddress = VK_TRUE};
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
        .pNext = device->has_addresses ? &addresses : NULL,
        .timelineSemaphore = VK_TRUE};
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = device->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const char *const extensions[] = {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &timelines,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = device->has_import ? 1 : 0,
                                     .ppEnabledExtensionNames = extensions};
    return device->kind->call.vkCreateDevice(device->physical, &info, NULL, &device->logical);
}

static berth_status load_calls(bvk_device *device)
{
    const char *missing = NULL;
    PFN_vkGetDeviceProcAddr find = device->kind->call.vkGetDeviceProcAddr;
#define LOAD_OPTIONAL(name) device->call.name = (PFN_##name)(void *)find(device->logical, #name);
#define LOAD(name)          \
    LOAD_OPTIONAL(name)     \
    if (!device->call.name) \
        missing = #name;
#define LOAD_TIMELINE(name)                                                         \
    LOAD_OPTIONAL(name)                                                             \
    if (!device->call.name)                                                         \
        device->call.name = (PFN_##name)(void *)find(device->logical, #name "KHR"); \
    if (!device->call.name)                                                         \
        missing = #name;
    BVK_DEVICE_CALLS(LOAD)
    BVK_TIMELINE_CALLS(LOAD_TIMELINE)
    BVK_OPTIONAL_CALLS(LOAD_OPTIONAL)
#undef LOAD_TIMELINE
#undef LOAD
#undef LOAD_OPTIONAL
    device->has_addresses &= device->call.vkGetBufferDeviceAddress != NULL;
    device->has_import &= device->call.vkGetMemoryHostPointerPropertiesEXT != NULL;
    return missing ? berth_fail(BERTH_UNSUPPORTED, "the Vulkan device has no %s", missing) : BERTH_OK;
}

/* What the device wrote before, in the queue's order, is the host's to read when the submission is over. */
static VkResult record_show_to_host(bvk_device *device)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = device->family};
    VkResult code = device->call.vkCreateCommandPool(device->logical, &pool, NULL, &device->pool);
    if (code != VK_SUCCESS)
        return code;
    const VkCommandBufferAllocateInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = device->pool,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
    code = device->call.vkAllocateCommandBuffers(device->logical, &one, &device->show_to_host);
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    if (code == VK_SUCCESS)
        code = device->call.vkBeginCommandBuffer(device->show_to_host, &begin);
    if (code != VK_SUCCESS)
        return code;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    device->call.vkCmdPipelineBarrier(device->show_to_host, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                      VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
    return device->call.vkEndCommandBuffer(device->show_to_host);
}

/* The ends of what vkCmdFillBuffer cannot fill, for it fills words, are copied from here. */
static berth_status make_zeros(bvk_device *device)
{
    berth_status status = bvk_block_make(device, BERTH_MEMORY_PINNED, 16, 16, &device->zeros);
    if (!status)
        memset(device->zeros->base, 0, 16);
    return status;
}

berth_status bvk_open_device(bvk_device *device)
{
    device->generation = bvk_generation;
    if (!device->adopted) {
        VkResult code = make_logical(device);
        if (code != VK_SUCCESS) {
            device->logical = VK_NULL_HANDLE;
            return bvk_fail(NULL, code, "opening the device");
        }
    }
    berth_status status = load_calls(device);
    if (!status && !device->adopted)
        device->call.vkGetDeviceQueue(device->logical, device->family, 0, &device->queue);
    if (!status)
        status = bvk_choose_types(device);
    if (!status)
        status = make_zeros(device);
    if (!status) {
        VkResult code = record_show_to_host(device);
        status = code == VK_SUCCESS ? BERTH_OK : bvk_fail(device, code, "recording a barrier");
    }
    if (!status)
        atomic_store_explicit(&device->open, true, memory_order_release);
    else
        bvk_close_device(device);
    return status;
}

/* Also of one that is open half. In the child of a fork the driver is left alone. */
void bvk_close_device(bvk_device *device)
{
    bool works = device->generation == bvk_generation;
    atomic_store(&device->open, false);
    if (device->logical && device->call.vkDestroyDevice && works) {
        bvk_lines_free(device);
        if (device->zeros)
            bvk_block_free(device, device->zeros);
        device->zeros = NULL;
        if (device->pool)
            device->call.vkDestroyCommandPool(device->logical, device->pool, NULL);
        device->pool = VK_NULL_HANDLE;
        if (!device->adopted)
            device->call.vkDestroyDevice(device->logical, NULL);
    }
    if (!device->adopted)
        device->logical = VK_NULL_HANDLE;
    free(device->blocks);
    device->blocks = NULL;
    device->blocks_count = device->blocks_room = 0;
}

berth_status bvk_open(void *self, berth_device which, bvk_device **out)
{
    bvk_device *device = &((bvk_kind *)self)->devices[which.ordinal];
    *out = device;
    if (BVK_UNLIKELY(!atomic_load_explicit(&device->open, memory_order_acquire))) {
        pthread_mutex_lock(&device->opening);
        berth_status status = atomic_load(&device->open) ? BERTH_OK : bvk_open_device(device);
        pthread_mutex_unlock(&device->opening);
        if (status)
            return status;
    }
    return bvk_alive(device);
}

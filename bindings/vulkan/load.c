/* The loader, libvulkan, found at run time; an instance of our own; and what physical devices are good for us. */
#include "inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

berth_status bvk_load_instance_calls(bvk_kind *kind)
{
    const char *missing = NULL;
#define LOAD(name)                                                                             \
    kind->call.name = (PFN_##name)(void *)kind->get_instance_proc_addr(kind->instance, #name); \
    if (!kind->call.name)                                                                      \
        missing = #name;
    BVK_INSTANCE_CALLS(LOAD)
#undef LOAD
    return missing ? berth_fail(BERTH_UNSUPPORTED, "this Vulkan instance has no %s: make it for 1.1 or above",
                                missing)
                   : BERTH_OK;
}

static berth_status find_loader(bvk_kind *kind)
{
    const char *path = getenv("BERTH_VULKAN_LIBRARY");
    kind->library = dlopen(path ? path : "libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!kind->library)
        return berth_fail(BERTH_UNSUPPORTED, "%s; Vulkan's loader is Debian's package libvulkan1", dlerror());
    *(void **)&kind->get_instance_proc_addr = dlsym(kind->library, "vkGetInstanceProcAddr");
    return kind->get_instance_proc_addr
               ? BERTH_OK
               : berth_fail(BERTH_UNSUPPORTED, "%s is not Vulkan's loader", path ? path : "libvulkan.so.1");
}

static berth_status make_instance(bvk_kind *kind)
{
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "berth",
                                           .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)(void *)kind->get_instance_proc_addr(NULL, "vkCreateInstance");
    /* A loader of Vulkan 1.0 refuses the version; its devices would be of no use. */
    VkResult code = create ? create(&info, NULL, &kind->instance) : VK_ERROR_INCOMPATIBLE_DRIVER;
    if (code != VK_SUCCESS) {
        kind->instance = VK_NULL_HANDLE;
        return bvk_fail(NULL, code, "making an instance");
    }
    return bvk_load_instance_calls(kind);
}

/* ---- What a device has ----------------------------------------------------------------------------- */

static bool has_extension(bvk_kind *kind, VkPhysicalDevice physical, const char *name)
{
    uint32_t count = 0;
    bool found = false;
    if (kind->call.vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS || !count)
        return false;
    VkExtensionProperties *all = calloc(count, sizeof *all);
    if (all && kind->call.vkEnumerateDeviceExtensionProperties(physical, NULL, &count, all) >= 0)
        for (uint32_t i = 0; i < count; i++)
            found |= strcmp(all[i].extensionName, name) == 0;
    free(all);
    return found;
}

/* Every family with compute or graphics can copy too, the specification says. */
static bool find_family(bvk_kind *kind, bvk_device *device)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = BVK_COUNT_OF(families);
    kind->call.vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &count, families);
    for (uint32_t i = 0; i < count; i++)
        if (families[i].queueCount > 0 && families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
            device->family = i;
            return true;
        }
    return false;
}

static bool find_features(bvk_kind *kind, bvk_device *device)
{
    VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .pNext = &addresses};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &timelines};
    kind->call.vkGetPhysicalDeviceFeatures2(device->physical, &features);
    device->has_addresses = addresses.bufferDeviceAddress;
    device->has_import = has_extension(kind, device->physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    return timelines.timelineSemaphore && find_family(kind, device);
}

static size_t smaller(uint64_t a, uint64_t b)
{
    uint64_t least = a < b ? a : b;
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}

static size_t larger(uint64_t a, uint64_t b)
{
    return (size_t)(a > b ? a : b);
}

static void find_limits(bvk_kind *kind, bvk_device *device, uint32_t version)
{
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceMaintenance4Properties fourth = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties third = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &third};
    if (version >= VK_API_VERSION_1_3)
        third.pNext = &fourth;
    if (device->has_import) {
        import.pNext = third.pNext;
        third.pNext = &import;
    }
    kind->call.vkGetPhysicalDeviceProperties2(device->physical, &all);
    device->limits = all.properties.limits;
    device->offset_alignment = larger(device->limits.minStorageBufferOffsetAlignment,
                                      device->limits.minUniformBufferOffsetAlignment);
    device->import_alignment = (size_t)import.minImportedHostPointerAlignment;
    device->most_bytes =
        smaller(third.maxMemoryAllocationSize, fourth.maxBufferSize ? fourth.maxBufferSize : UINT64_MAX);
}

bool bvk_look(bvk_kind *kind, bvk_device *device)
{
    VkPhysicalDeviceProperties2 first = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    kind->call.vkGetPhysicalDeviceProperties2(device->physical, &first);
    uint32_t version = first.properties.apiVersion;
    if (!device->adopted && (version < VK_API_VERSION_1_2 || !find_features(kind, device)))
        return false;
    find_limits(kind, device, version);
    device->kind = kind;
    pthread_mutex_init(&device->opening, NULL);
    pthread_mutex_init(&device->own_queue_lock, NULL);
    pthread_mutex_init(&device->lines_lock, NULL);
    pthread_rwlock_init(&device->blocks_lock, NULL);
    return true;
}

static berth_status find_devices(bvk_kind *kind)
{
    VkPhysicalDevice physical[32];
    uint32_t count = BVK_COUNT_OF(physical);
    VkResult code = kind->call.vkEnumeratePhysicalDevices(kind->instance, &count, physical);
    if (code < 0)
        return bvk_fail(NULL, code, "looking for devices");
    kind->devices = calloc(BVK_COUNT_OF(physical), sizeof *kind->devices);
    if (!kind->devices)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a list of devices");
    for (uint32_t i = 0; i < count; i++) {
        bvk_device *device = &kind->devices[kind->count];
        memset(device, 0, sizeof *device);
        device->physical = physical[i];
        kind->count += bvk_look(kind, device);
    }
    if (kind->count == 0)
        return berth_fail(BERTH_UNSUPPORTED,
                          "none of %u Vulkan devices has timeline semaphores and a queue for compute; "
                          "Debian's drivers are in mesa-vulkan-drivers",
                          (unsigned)count);
    return BERTH_OK;
}

berth_status bvk_load(bvk_kind *kind)
{
    kind->generation = bvk_generation;
    berth_status status = find_loader(kind);
    if (!status)
        status = make_instance(kind);
    if (!status)
        status = find_devices(kind);
    if (status)
        bvk_unload(kind);
    return status;
}

/* The library stays loaded: few drivers can be taken out of a process. */
void bvk_unload(bvk_kind *kind)
{
    for (int32_t i = 0; i < kind->count; i++) {
        pthread_mutex_destroy(&kind->devices[i].opening);
        pthread_mutex_destroy(&kind->devices[i].own_queue_lock);
        pthread_mutex_destroy(&kind->devices[i].lines_lock);
        pthread_rwlock_destroy(&kind->devices[i].blocks_lock);
    }
    free(kind->devices);
    kind->devices = NULL;
    kind->count = 0;
    if (kind->instance && kind->library && kind->call.vkDestroyInstance && kind->generation == bvk_generation)
        kind->call.vkDestroyInstance(kind->instance, NULL);
    kind->instance = VK_NULL_HANDLE;
}

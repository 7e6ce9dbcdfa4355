/* See shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define EXPORT __attribute__((visibility("default")))

static void *real_library(void)
{
    static _Atomic(void *) library;
    if (!atomic_load(&library))
        atomic_store(&library, dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL));
    return atomic_load(&library);
}

static void *real_symbol(const char *name)
{
    void *library = real_library();
    return library ? dlsym(library, name) : NULL;
}

/* The loader exports what is core, and finds the device behind a handle by itself. */
#define REAL(name) ((PFN_##name)real_symbol(#name))

static bool mode(const char *name)
{
    const char *modes = getenv("BERTH_VK_SHIM");
    return modes && strstr(modes, name);
}

/* ---- What tests control ------------------------------------------------------------------------------- */

static _Atomic int fail_in, fail_code, has_failed, is_lost, live, live_memory, most_memory, misuses;
static _Atomic int failing_waits, failing_questions, waits;

static void control_fail_at(int number, int code)
{
    atomic_store(&fail_in, number);
    atomic_store(&fail_code, code);
    if (number > 0)
        atomic_store(&has_failed, 0);
}

static int control_failed(void)
{
    return atomic_load(&has_failed);
}

static void control_lose(void)
{
    atomic_store(&is_lost, 1);
}

static void control_fail_asking(int these_waits, int these_questions)
{
    atomic_store(&failing_waits, these_waits);
    atomic_store(&failing_questions, these_questions);
    atomic_store(&waits, 0);
}

static int control_waits(void)
{
    return atomic_load(&waits);
}

static int control_live(void)
{
    return atomic_load(&live);
}

static int control_most(void)
{
    return atomic_load(&most_memory);
}

static int control_misuses(void)
{
    return atomic_load(&misuses);
}

EXPORT const shim_controls *shim_control(void);
EXPORT const shim_controls *shim_control(void)
{
    static const shim_controls controls = {control_fail_at, control_failed, control_lose, control_fail_asking,
                                           control_waits,   control_live,   control_most, control_misuses};
    return &controls;
}

/* What this call answers instead of the driver; VK_SUCCESS: the driver is asked. */
static VkResult trouble(void)
{
    if (atomic_load(&is_lost))
        return VK_ERROR_DEVICE_LOST;
    int left = atomic_load(&fail_in);
    while (left > 0 && !atomic_compare_exchange_weak(&fail_in, &left, left - 1))
        ;
    if (left != 1)
        return VK_SUCCESS;
    atomic_store(&has_failed, 1);
    return (VkResult)atomic_load(&fail_code);
}

static VkResult counted(VkResult code)
{
    if (code == VK_SUCCESS)
        atomic_fetch_add(&live, 1);
    return code;
}

/* ---- Calls that fail and are counted -------------------------------------------------------------------- */

#define MAKES(name, info_type, handle_type)                                                                \
    static VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreate##name(                                             \
        VkDevice device, const info_type *info, const VkAllocationCallbacks *allocation, handle_type *out) \
    {                                                                                                      \
        VkResult code = trouble();                                                                         \
        return code == VK_SUCCESS ? counted(REAL(vkCreate##name)(device, info, allocation, out)) : code;   \
    }                                                                                                      \
    static VKAPI_ATTR void VKAPI_CALL shim_vkDestroy##name(VkDevice device, handle_type handle,            \
                                                           const VkAllocationCallbacks *allocation)        \
    {                                                                                                      \
        atomic_fetch_sub(&live, handle ? 1 : 0);                                                           \
        REAL(vkDestroy##name)(device, handle, allocation);                                                 \
    }
MAKES(Buffer, VkBufferCreateInfo, VkBuffer)
MAKES(Semaphore, VkSemaphoreCreateInfo, VkSemaphore)
MAKES(CommandPool, VkCommandPoolCreateInfo, VkCommandPool)

#define MAY_FAIL(name, parameters, arguments)                    \
    static VKAPI_ATTR VkResult VKAPI_CALL shim_##name parameters \
    {                                                            \
        VkResult code = trouble();                               \
        return code == VK_SUCCESS ? REAL(name) arguments : code; \
    }
MAY_FAIL(vkBindBufferMemory, (VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset),
         (device, buffer, memory, offset))
MAY_FAIL(vkAllocateCommandBuffers,
         (VkDevice device, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out),
         (device, info, out))
MAY_FAIL(vkBeginCommandBuffer, (VkCommandBuffer commands, const VkCommandBufferBeginInfo *info),
         (commands, info))
MAY_FAIL(vkEndCommandBuffer, (VkCommandBuffer commands), (commands))
MAY_FAIL(vkQueueSubmit, (VkQueue queue, uint32_t count, const VkSubmitInfo *infos, VkFence fence),
         (queue, count, infos, fence))

/* For calls that Berth repeats. */
static VkResult trouble_once(void)
{
    VkResult code = trouble();
    if (code != VK_SUCCESS && code != VK_ERROR_DEVICE_LOST)
        atomic_store(&has_failed, 2);
    return code;
}

/* Waits and questions are also failed by themselves: the next ones, as many as `failing` says. */
static VkResult trouble_asking(_Atomic int *failing)
{
    int left = atomic_load(failing);
    VkResult code = trouble_once();
    while (left > 0 && !atomic_compare_exchange_weak(failing, &left, left - 1))
        ;
    return code == VK_SUCCESS && left > 0 ? VK_ERROR_OUT_OF_HOST_MEMORY : code;
}

/* A lost device answers at once, however long the wait. */
static VKAPI_ATTR VkResult VKAPI_CALL shim_vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                                            uint64_t timeout)
{
    atomic_fetch_add(&waits, 1);
    VkResult code = trouble_asking(&failing_waits);
    return code == VK_SUCCESS ? REAL(vkWaitSemaphores)(device, info, timeout) : code;
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkSignalSemaphore(VkDevice device,
                                                             const VkSemaphoreSignalInfo *info)
{
    VkResult code = trouble_once();
    return code == VK_SUCCESS ? REAL(vkSignalSemaphore)(device, info) : code;
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                                      uint64_t *out)
{
    VkResult code = trouble_asking(&failing_questions);
    return code == VK_SUCCESS ? REAL(vkGetSemaphoreCounterValue)(device, semaphore, out) : code;
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreateInstance(const VkInstanceCreateInfo *info,
                                                            const VkAllocationCallbacks *allocation,
                                                            VkInstance *out)
{
    VkResult code = trouble();
    return code == VK_SUCCESS ? counted(REAL(vkCreateInstance)(info, allocation, out)) : code;
}

static VKAPI_ATTR void VKAPI_CALL shim_vkDestroyInstance(VkInstance instance,
                                                         const VkAllocationCallbacks *allocation)
{
    atomic_fetch_sub(&live, 1);
    REAL(vkDestroyInstance)(instance, allocation);
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreateDevice(VkPhysicalDevice physical,
                                                          const VkDeviceCreateInfo *info,
                                                          const VkAllocationCallbacks *allocation,
                                                          VkDevice *out)
{
    VkResult code = trouble();
    return code == VK_SUCCESS ? counted(REAL(vkCreateDevice)(physical, info, allocation, out)) : code;
}

static VKAPI_ATTR void VKAPI_CALL shim_vkDestroyDevice(VkDevice device,
                                                       const VkAllocationCallbacks *allocation)
{
    atomic_fetch_sub(&live, 1);
    REAL(vkDestroyDevice)(device, allocation);
}

/* Nobody may wait for all of it. */
static VKAPI_ATTR VkResult VKAPI_CALL shim_vkDeviceWaitIdle(VkDevice device)
{
    atomic_fetch_add(&misuses, 1);
    return REAL(vkDeviceWaitIdle)(device);
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkQueueWaitIdle(VkQueue queue)
{
    atomic_fetch_add(&misuses, 1);
    return REAL(vkQueueWaitIdle)(queue);
}

/* ---- Memory of a card ------------------------------------------------------------------------------------- */

enum { OF_CARD = 0, OF_HOST = 1, OF_HOST_UNCACHED = 2, TYPES = 3 };

/* Memory that was made as the card's; the real driver has one type. */
static _Atomic(uint64_t) of_card[4096];

static void note_card_memory(VkDeviceMemory memory, bool is)
{
    uint64_t key = (uint64_t)(uintptr_t)memory;
    for (size_t i = 0; i < sizeof of_card / sizeof *of_card; i++) {
        uint64_t expected = is ? 0 : key;
        if (atomic_compare_exchange_strong(&of_card[i], &expected, is ? key : 0))
            return;
    }
}

static bool is_card_memory(VkDeviceMemory memory)
{
    for (size_t i = 0; i < sizeof of_card / sizeof *of_card; i++)
        if (atomic_load(&of_card[i]) == (uint64_t)(uintptr_t)memory)
            return true;
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                                            const VkAllocationCallbacks *allocation,
                                                            VkDeviceMemory *out)
{
    VkMemoryAllocateInfo real = *info;
    bool card = mode("handles") && info->memoryTypeIndex == OF_CARD;
    if (mode("handles"))
        real.memoryTypeIndex = 0;
    VkResult code = trouble();
    if (code == VK_SUCCESS)
        code = counted(REAL(vkAllocateMemory)(device, &real, allocation, out));
    if (code != VK_SUCCESS)
        return code;
    if (card)
        note_card_memory(*out, true);
    int now = 1 + atomic_fetch_add(&live_memory, 1), most = atomic_load(&most_memory);
    while (now > most && !atomic_compare_exchange_weak(&most_memory, &most, now))
        ;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL shim_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                                                    const VkAllocationCallbacks *allocation)
{
    if (memory) {
        note_card_memory(memory, false);
        atomic_fetch_sub(&live, 1);
        atomic_fetch_sub(&live_memory, 1);
    }
    REAL(vkFreeMemory)(device, memory, allocation);
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkMapMemory(VkDevice device, VkDeviceMemory memory,
                                                       VkDeviceSize offset, VkDeviceSize size,
                                                       VkMemoryMapFlags flags, void **out)
{
    VkResult code = trouble();
    if (is_card_memory(memory)) {
        atomic_fetch_add(&misuses, 1);
        return VK_ERROR_MEMORY_MAP_FAILED;
    }
    return code == VK_SUCCESS ? REAL(vkMapMemory)(device, memory, offset, size, flags, out) : code;
}

static VKAPI_ATTR void VKAPI_CALL shim_vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer,
                                                                     VkMemoryRequirements *out)
{
    REAL(vkGetBufferMemoryRequirements)(device, buffer, out);
    if (mode("handles"))
        out->memoryTypeBits = (1 << TYPES) - 1;
}

static PFN_vkGetMemoryHostPointerPropertiesEXT real_host_pointer;

static VKAPI_ATTR VkResult VKAPI_CALL
shim_vkGetMemoryHostPointerPropertiesEXT(VkDevice device, VkExternalMemoryHandleTypeFlagBits type,
                                         const void *p, VkMemoryHostPointerPropertiesEXT *out)
{
    VkResult code = trouble();
    if (code == VK_SUCCESS)
        code = real_host_pointer(device, type, p, out);
    if (code == VK_SUCCESS && mode("handles"))
        out->memoryTypeBits = 1 << OF_HOST;
    return code;
}

static VKAPI_ATTR void VKAPI_CALL
shim_vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out)
{
    REAL(vkGetPhysicalDeviceMemoryProperties2)(physical, out);
    if (!mode("handles"))
        return;
    VkPhysicalDeviceMemoryProperties *memory = &out->memoryProperties;
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    memory->memoryTypeCount = TYPES;
    memory->memoryTypes[OF_CARD] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
    memory->memoryTypes[OF_HOST] = (VkMemoryType){host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1};
    memory->memoryTypes[OF_HOST_UNCACHED] = (VkMemoryType){host, 1};
    memory->memoryHeapCount = 2;
    memory->memoryHeaps[1] = (VkMemoryHeap){memory->memoryHeaps[0].size, 0};
}

static VKAPI_ATTR void VKAPI_CALL shim_vkGetPhysicalDeviceProperties2(VkPhysicalDevice physical,
                                                                      VkPhysicalDeviceProperties2 *out)
{
    REAL(vkGetPhysicalDeviceProperties2)(physical, out);
    if (mode("handles")) {
        out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        out->properties.limits.minStorageBufferOffsetAlignment = 256; /* the most that there is */
    }
    if (mode("few"))
        out->properties.limits.maxMemoryAllocationCount = 8;
}

static VKAPI_ATTR VkResult VKAPI_CALL shim_vkEnumerateDeviceExtensionProperties(VkPhysicalDevice physical,
                                                                                const char *layer,
                                                                                uint32_t *count,
                                                                                VkExtensionProperties *out)
{
    if (!mode("noimport"))
        return REAL(vkEnumerateDeviceExtensionProperties)(physical, layer, count, out);
    *count = 0;
    return VK_SUCCESS;
}

/* ---- Finding calls ---------------------------------------------------------------------------------------- */

static PFN_vkVoidFunction own_call(const char *name);

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL shim_vkGetDeviceProcAddr(VkDevice device, const char *name)
{
    PFN_vkVoidFunction real = REAL(vkGetDeviceProcAddr)(device, name);
    if (real && strcmp(name, "vkGetMemoryHostPointerPropertiesEXT") == 0)
        real_host_pointer = (PFN_vkGetMemoryHostPointerPropertiesEXT)real;
    PFN_vkVoidFunction own = real ? own_call(name) : NULL;
    return own ? own : real;
}

static PFN_vkVoidFunction own_call(const char *name)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction call;
    } all[] = {
#define OWN(call) {#call, (PFN_vkVoidFunction)shim_##call}
        OWN(vkCreateBuffer),
        OWN(vkDestroyBuffer),
        OWN(vkCreateSemaphore),
        OWN(vkDestroySemaphore),
        OWN(vkCreateCommandPool),
        OWN(vkDestroyCommandPool),
        OWN(vkBindBufferMemory),
        OWN(vkAllocateCommandBuffers),
        OWN(vkBeginCommandBuffer),
        OWN(vkEndCommandBuffer),
        OWN(vkQueueSubmit),
        OWN(vkSignalSemaphore),
        OWN(vkWaitSemaphores),
        OWN(vkGetSemaphoreCounterValue),
        OWN(vkCreateInstance),
        OWN(vkDestroyInstance),
        OWN(vkCreateDevice),
        OWN(vkDestroyDevice),
        OWN(vkDeviceWaitIdle),
        OWN(vkQueueWaitIdle),
        OWN(vkAllocateMemory),
        OWN(vkFreeMemory),
        OWN(vkMapMemory),
        OWN(vkGetBufferMemoryRequirements),
        OWN(vkGetMemoryHostPointerPropertiesEXT),
        OWN(vkGetPhysicalDeviceMemoryProperties2),
        OWN(vkGetPhysicalDeviceProperties2),
        OWN(vkEnumerateDeviceExtensionProperties),
        OWN(vkGetDeviceProcAddr),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].call;
    return NULL;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name);
EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
    PFN_vkGetInstanceProcAddr real = REAL(vkGetInstanceProcAddr);
    PFN_vkVoidFunction own = real ? own_call(name) : NULL;
    return own ? own : real ? real(instance, name) : NULL;
}

/* Vulkan as a kind of Berth's devices: libberth_vulkan.so. The machine's devices by berth_vulkan_register, or the program's
 * own VkDevice by berth_vulkan_adopt; pools, host caches, buffers and plans then run on Vulkan memory.
 *
 * Streams. A stream is a timeline semaphore, and all streams of a device share its one queue. Nothing is given to the queue
 * before all that it waits for has been: so a stream that stands still never holds up another. What has to wait longer,
 * and functions of the host, wait on a thread of the stream's own. Command buffers of the program take their place in a
 * stream by berth_vulkan_submit.
 *
 * Addresses. Memory of the device is a mapped pointer where the device's own memory is the host's (info.host_accessible),
 * else an address that only stands for it. berth_vulkan_locate turns either into a VkBuffer and an offset. */
#ifndef BERTH_VULKAN_H
#define BERTH_VULKAN_H

#include <berth/device_ops.h>
#include <vulkan/vulkan_core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the kind "vulkan": the machine's physical devices that have timeline semaphores (Vulkan 1.2) and a queue for
 * compute, in the loader's order. Loads libvulkan.so.1, or what BERTH_VULKAN_LIBRARY names, on first use. Registered
 * already: the same kind again. Any thread. Answers as berth_device_register. */
BERTH_API berth_status berth_vulkan_register(berth_device_kind *out);

/* A device that the program has made. Timeline semaphores must be switched on. */
typedef struct berth_vulkan_adoption {
    size_t struct_size;
    PFN_vkGetInstanceProcAddr get_instance_proc_addr; /* NULL: from the loader, as berth_vulkan_register */
    VkInstance instance;
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue; /* of a family with compute or graphics */
    uint32_t queue_family;
    bool buffer_device_address; /* the feature is switched on: buffers get addresses */
    bool external_memory_host; /* VK_EXT_external_memory_host is switched on: host memory can be registered */
    /* Vulkan lets one thread at a time use a queue. Called around each use of it by Berth; NULL where the program leaves
     * the queue to Berth. */
    void (*lock_queue)(void *context);
    void (*unlock_queue)(void *context);
    void *context;
} berth_vulkan_adoption;

#define BERTH_VULKAN_ADOPTION_INIT                                                                           \
    {                                                                                                        \
        sizeof(berth_vulkan_adoption), NULL, VK_NULL_HANDLE, VK_NULL_HANDLE, VK_NULL_HANDLE, VK_NULL_HANDLE, \
            0, false, false, NULL, NULL, NULL                                                                \
    }

/* Makes the program's device a device of Berth's, of a kind of its own ("vulkan-1", ...). The handles stay the program's,
 * and must stay until berth_vulkan_release. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED,
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_BUSY (64 kinds are registered), BERTH_DEVICE_ERROR. */
BERTH_API berth_status berth_vulkan_adopt(const berth_vulkan_adoption *adoption, berth_device *out);

/* Gives an adopted device back: nothing of Berth's uses its handles any more. Waits for what is enqueued on it. Any
 * thread. BERTH_OK, BERTH_NOT_FOUND, BERTH_BUSY while blocks, streams or events of it live. */
BERTH_API berth_status berth_vulkan_release(berth_device device);

/* What a device is to Vulkan. The handles stay its owner's. Work goes to the queue by berth_vulkan_submit: a queue of
 * Berth's own must not be used directly. Any thread. BERTH_OK, BERTH_NOT_FOUND for a device that is not of Vulkan,
 * BERTH_INVALID_ARGUMENT, and as any use of the device. */
typedef struct berth_vulkan_handles {
    size_t struct_size;
    VkInstance instance;
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue;
    uint32_t queue_family;
    PFN_vkGetInstanceProcAddr get_instance_proc_addr;
} berth_vulkan_handles;

#define BERTH_VULKAN_HANDLES_INIT                                                                        \
    {                                                                                                    \
        sizeof(berth_vulkan_handles), VK_NULL_HANDLE, VK_NULL_HANDLE, VK_NULL_HANDLE, VK_NULL_HANDLE, 0, \
            NULL                                                                                         \
    }

BERTH_API berth_status berth_vulkan_handles_get(berth_device device, berth_vulkan_handles *out);

/* Where an address lies. Pools, device sources and plans begin their blocks at offsets that storage and uniform buffers
 * may have (info.offset_alignment); blocks of berth_device_allocate begin where they were asked to. */
typedef struct berth_vulkan_place {
    size_t struct_size;
    VkBuffer buffer; /* usage: transfer, storage, uniform, indirect, vertex and index */
    VkDeviceSize offset_bytes;
    VkDeviceSize size_bytes; /* of the whole buffer */
    VkDeviceMemory memory;   /* the buffer lies at its beginning */
    VkDeviceAddress address; /* of the address asked for; 0 without the feature */
} berth_vulkan_place;

#define BERTH_VULKAN_PLACE_INIT                                             \
    {                                                                       \
        sizeof(berth_vulkan_place), VK_NULL_HANDLE, 0, 0, VK_NULL_HANDLE, 0 \
    }

/* The caller sets out->struct_size. Any thread. BERTH_OK, BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_vulkan_locate(berth_device device, const void *p, berth_vulkan_place *out);

/* Puts a recorded command buffer of the device's queue family at the end of the stream. It stays the program's, and stays
 * unchanged until it has run. Order and visibility of memory between it and what stands before and behind it in the
 * stream is seen to. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, and as berth_copy. */
BERTH_API berth_status berth_vulkan_submit(berth_stream *stream, VkCommandBuffer commands);

/* Makes what is enqueued on `stream` from now on wait until the program's timeline semaphore has reached `value`. The
 * semaphore must stay until then. Other streams do not wait, even if the program gives its own signal to the same queue
 * only later. Any thread. Answers as berth_vulkan_submit. */
BERTH_API berth_status berth_vulkan_wait(berth_stream *stream, VkSemaphore semaphore, uint64_t value);

/* The present end of the stream, for submissions of the program's own to wait for; on the same queue only once it has
 * been given to the queue, which a host function may delay: such a submission would hold up every stream. The semaphore
 * stays the stream's. Any thread. Answers as berth_vulkan_submit. */
BERTH_API berth_status berth_vulkan_point(berth_stream *stream, VkSemaphore *semaphore, uint64_t *value);

#ifdef __cplusplus
}
#endif
#endif

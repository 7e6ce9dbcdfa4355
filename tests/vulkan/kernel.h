/* One kernel for the Vulkan tests, y = 2 x + 1, on a device of Berth's or on one that the program has made and Berth has
 * adopted. */
#ifndef BERTH_TESTS_VULKAN_KERNEL_H
#define BERTH_TESTS_VULKAN_KERNEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VK_NO_PROTOTYPES
#include <berth_vulkan.h>

#include "berth/berth.h"

enum { LANES = 64, MOST_LAUNCHES = 4096 };

extern berth_device device;
extern berth_vulkan_handles vk; /* of it */
extern bool is_adopted;         /* set by main, before the tests */
/* How often Berth has taken the adopted device's queue, and whether it is taken. */
extern int queue_locks;

#define KERNEL_CALLS(X)             \
    X(vkCreateShaderModule)         \
    X(vkDestroyShaderModule)        \
    X(vkCreateDescriptorSetLayout)  \
    X(vkDestroyDescriptorSetLayout) \
    X(vkCreatePipelineLayout)       \
    X(vkDestroyPipelineLayout)      \
    X(vkCreateComputePipelines)     \
    X(vkDestroyPipeline)            \
    X(vkCreateDescriptorPool)       \
    X(vkDestroyDescriptorPool)      \
    X(vkAllocateDescriptorSets)     \
    X(vkUpdateDescriptorSets)       \
    X(vkCreateCommandPool)          \
    X(vkDestroyCommandPool)         \
    X(vkAllocateCommandBuffers)     \
    X(vkBeginCommandBuffer)         \
    X(vkEndCommandBuffer)           \
    X(vkCmdBindPipeline)            \
    X(vkCmdBindDescriptorSets)      \
    X(vkCmdDispatch)                \
    X(vkCreateSemaphore)            \
    X(vkDestroySemaphore)           \
    X(vkSignalSemaphore)            \
    X(vkWaitSemaphores)             \
    X(vkQueueSubmit)

#define KERNEL_MEMBER(name) PFN_##name name;
extern struct kernel_calls {
    KERNEL_CALLS(KERNEL_MEMBER)
} call;
#undef KERNEL_MEMBER

/* cmocka's set-up and tear-down of a group. The first answers -1, with words, where there is no Vulkan. */
int set_up_kernel(void **state);
int tear_down_kernel(void **state);
/* 0, or 77 with words where there is no Vulkan. */
int look_for_vulkan(void);

/* Numbers from x to y, on the stream. `count` is a multiple of LANES. */
void launch_kernel(berth_stream *stream, const void *x, const void *y, uint32_t count);
/* The same as a command buffer that is not submitted. */
VkCommandBuffer record_kernel(const void *x, const void *y, uint32_t count);

#endif

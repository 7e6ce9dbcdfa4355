/* The kernel, written by hand in SPIR-V's words, and devices to run it on. */
#include "kernel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

berth_device device;
berth_vulkan_handles vk = BERTH_VULKAN_HANDLES_INIT;
bool is_adopted;
int queue_locks;
struct kernel_calls call;

static const uint32_t
    words[] =
        {
            0x07230203, 0x10000, 0,  26,         0,          /* SPIR-V 1.0, 26 names */
            0x20011,    1,                                   /* OpCapability Shader */
            0x3000e,    0,       1,                          /* OpMemoryModel Logical GLSL450 */
            0x6000f,    5,       1,  0x6e69616d, 0,       2, /* OpEntryPoint GLCompute %1 "main" %2 */
            0x60010,    1,       17, 64,         1,       1, /* OpExecutionMode %1 LocalSize 64 1 1 */
            0x40047,    2,       11, 28,                     /* OpDecorate %2 BuiltIn GlobalInvocationId */
            0x40047,    3,       6,  4,                      /* OpDecorate %3 ArrayStride 4 */
            0x30047,    4,       3,                          /* OpDecorate %4 BufferBlock */
            0x50048,    4,       0,  35,         0,          /* OpMemberDecorate %4 0 Offset 0 */
            0x40047,    5,       34, 0,          0x40047, 5,
            33,         0, /* OpDecorate %5 DescriptorSet 0, Binding 0: x */
            0x40047,    6,       34, 0,          0x40047, 6,
            33,         1,              /* OpDecorate %6 DescriptorSet 0, Binding 1: y */
            0x20013,    7,              /* %7 = OpTypeVoid */
            0x30021,    8,       7,     /* %8 = OpTypeFunction %7 */
            0x40015,    9,       32, 0, /* %9 = OpTypeInt 32 0 */
            0x40017,    10,      9,  3, /* %10 = OpTypeVector %9 3 */
            0x40020,    11,      1,  10,         0x40020, 12,
            1,          9,          /* %11, %12 = OpTypePointer Input %10, %9 */
            0x3001d,    3,       9, /* %3 = OpTypeRuntimeArray %9 */
            0x3001e,    4,       3, /* %4 = OpTypeStruct %3 */
            0x40020,    13,      2,  4,          0x40020, 14,
            2,          9, /* %13, %14 = OpTypePointer Uniform %4, %9 */
            0x4002b,    9,       15, 0,          0x4002b, 9,
            16,         1,              /* %15, %16 = OpConstant %9 0, 1 */
            0x4002b,    9,       17, 2, /* %17 = OpConstant %9 2 */
            0x4003b,    11,      2,  1, /* %2 = OpVariable %11 Input */
            0x4003b,    13,      5,  2,          0x4003b, 13,
            6,          2,                          /* %5, %6 = OpVariable %13 Uniform */
            0x50036,    7,       1,  0,          8, /* %1 = OpFunction %7 None %8 */
            0x200f8,    18,                         /* %18 = OpLabel */
            0x50041,    12,      19, 2,          15,      0x4003d,
            9,          20,      19, /* %20 = OpLoad of %2[0]: i */
            0x60041,    14,      21, 5,          15,      20,
            0x4003d,    9,       22, 21,             /* %22 = OpLoad of %5[0][i] */
            0x50084,    9,       23, 22,         17, /* %23 = OpIMul %22 2 */
            0x50080,    9,       24, 23,         16, /* %24 = OpIAdd %23 1 */
            0x60041,    14,      25, 6,          15,      20,
            0x3003e,    25,      24, /* OpStore to %6[0][i] */
            0x100fd,    0x10038,     /* OpReturn, OpFunctionEnd */
};

static VkDescriptorSetLayout set_layout;
static VkPipelineLayout layout;
static VkPipeline pipeline;
static VkDescriptorPool sets;
static VkCommandPool pool;

/* ---- A device of the program's own ------------------------------------------------------------------ */

static VkInstance own_instance;
static VkDevice own_device;
static PFN_vkGetInstanceProcAddr find_call;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_queue(void *context)
{
    pthread_mutex_lock(&own_lock);
    ++*(int *)context;
}

static void unlock_queue(void *context)
{
    (void)context;
    pthread_mutex_unlock(&own_lock);
}

static int load_loader(void)
{
    const char *path = getenv("BERTH_VULKAN_LIBRARY");
    void *library = dlopen(path ? path : "libvulkan.so.1", RTLD_NOW);
    if (library)
        *(void **)&find_call = dlsym(library, "vkGetInstanceProcAddr");
    return find_call ? 0 : -1;
}

#define INSTANCE_CALL(name) ((PFN_##name)(void *)find_call(own_instance, #name))

static VkPhysicalDevice make_instance(void)
{
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    uint32_t one = 1;
    if (load_loader() != 0 || INSTANCE_CALL(vkCreateInstance)(&info, NULL, &own_instance) != VK_SUCCESS ||
        INSTANCE_CALL(vkEnumeratePhysicalDevices)(own_instance, &one, &physical) < 0)
        return VK_NULL_HANDLE;
    return physical;
}

static int adopt_own_device(void)
{
    VkPhysicalDevice physical = make_instance();
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .timelineSemaphore = VK_TRUE};
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &timelines,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue};
    berth_vulkan_adoption adoption = {.struct_size = sizeof adoption,
                                      .get_instance_proc_addr = find_call,
                                      .instance = own_instance,
                                      .physical_device = physical,
                                      .lock_queue = lock_queue,
                                      .unlock_queue = unlock_queue,
                                      .context = &queue_locks};
    if (!physical || INSTANCE_CALL(vkCreateDevice)(physical, &info, NULL, &own_device) != VK_SUCCESS)
        return -1;
    adoption.device = own_device;
    INSTANCE_CALL(vkGetDeviceQueue)(own_device, 0, 0, &adoption.queue);
    return berth_vulkan_adopt(&adoption, &device) == BERTH_OK ? 0 : -1;
}

#if defined(__SANITIZE_THREAD__)
/* The driver's thread may still be busy with a semaphore that it has signalled when we destroy it, as Vulkan lets us. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libvulkan_lvp\nmutex:libvulkan_lvp\n";
}
#endif

#if defined(__SANITIZE_ADDRESS__)
/* What the driver leaves behind when it is unloaded is not ours to tell; it is known by its file while it stays loaded. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libvulkan_lvp\nleak:libLLVM\n";
}

static void keep_driver_loaded(void)
{
    (void)dlopen("libvulkan_lvp.so", RTLD_LAZY | RTLD_NODELETE);
}
#else
static void keep_driver_loaded(void)
{
}
#endif

int look_for_vulkan(void)
{
    keep_driver_loaded();
    berth_device_kind kind;
    int32_t count = 0;
    if (berth_vulkan_register(&kind) == BERTH_OK && berth_device_count(kind, &count) == BERTH_OK)
        return 0;
    fprintf(stderr, "%s\n", berth_last_error()->message);
    return 77;
}

/* ---- The kernel --------------------------------------------------------------------------------------- */

static int make_pipeline(void)
{
    const VkShaderModuleCreateInfo shader = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = sizeof words, .pCode = words};
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL}};
    const VkDescriptorSetLayoutCreateInfo set_info = {.sType =
                                                          VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                      .bindingCount = 2,
                                                      .pBindings = bindings};
    VkShaderModule module;
    if (call.vkCreateShaderModule(vk.device, &shader, NULL, &module) != VK_SUCCESS ||
        call.vkCreateDescriptorSetLayout(vk.device, &set_info, NULL, &set_layout) != VK_SUCCESS)
        return -1;
    const VkPipelineLayoutCreateInfo layout_info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                                    .setLayoutCount = 1,
                                                    .pSetLayouts = &set_layout};
    if (call.vkCreatePipelineLayout(vk.device, &layout_info, NULL, &layout) != VK_SUCCESS)
        return -1;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main"},
        .layout = layout};
    VkResult code = call.vkCreateComputePipelines(vk.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline);
    call.vkDestroyShaderModule(vk.device, module, NULL);
    return code == VK_SUCCESS ? 0 : -1;
}

static int make_pools(void)
{
    const VkDescriptorPoolSize buffers = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2 * MOST_LAUNCHES};
    const VkDescriptorPoolCreateInfo sets_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                                  .maxSets = MOST_LAUNCHES,
                                                  .poolSizeCount = 1,
                                                  .pPoolSizes = &buffers};
    const VkCommandPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                               .queueFamilyIndex = vk.queue_family};
    return call.vkCreateDescriptorPool(vk.device, &sets_info, NULL, &sets) == VK_SUCCESS &&
                   call.vkCreateCommandPool(vk.device, &pool_info, NULL, &pool) == VK_SUCCESS
               ? 0
               : -1;
}

int set_up_kernel(void **state)
{
    (void)state;
    berth_device_kind kind;
    berth_status status = BERTH_OK;
    if (is_adopted && adopt_own_device() != 0)
        return -1;
    if (!is_adopted) {
        status = berth_vulkan_register(&kind);
        device = (berth_device){(int32_t)kind, 0};
    }
    if (status != BERTH_OK || berth_vulkan_handles_get(device, &vk) != BERTH_OK)
        return -1;
    PFN_vkGetDeviceProcAddr find =
        (PFN_vkGetDeviceProcAddr)(void *)vk.get_instance_proc_addr(vk.instance, "vkGetDeviceProcAddr");
#define LOAD(name) call.name = (PFN_##name)(void *)find(vk.device, #name);
    KERNEL_CALLS(LOAD)
#undef LOAD
    return make_pipeline() == 0 && make_pools() == 0 ? 0 : -1;
}

int tear_down_kernel(void **state)
{
    (void)state;
    call.vkDestroyCommandPool(vk.device, pool, NULL);
    call.vkDestroyDescriptorPool(vk.device, sets, NULL);
    call.vkDestroyPipeline(vk.device, pipeline, NULL);
    call.vkDestroyPipelineLayout(vk.device, layout, NULL);
    call.vkDestroyDescriptorSetLayout(vk.device, set_layout, NULL);
    if (!is_adopted)
        return berth_device_unregister((berth_device_kind)device.kind) == BERTH_OK ? 0 : -1;
    if (berth_vulkan_release(device) != BERTH_OK || queue_locks == 0)
        return -1;
    INSTANCE_CALL(vkDestroyDevice)(own_device, NULL);
    INSTANCE_CALL(vkDestroyInstance)(own_instance, NULL);
    return 0;
}

/* ---- Launching ----------------------------------------------------------------------------------------- */

static VkDescriptorSet bind_buffers(const void *x, const void *y, uint32_t count)
{
    const VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                              .descriptorPool = sets,
                                              .descriptorSetCount = 1,
                                              .pSetLayouts = &set_layout};
    const void *ends[] = {x, y};
    VkDescriptorBufferInfo buffers[2];
    VkDescriptorSet set;
    assert_int_equal(call.vkAllocateDescriptorSets(vk.device, &info, &set), VK_SUCCESS);
    for (int i = 0; i < 2; i++) {
        berth_vulkan_place place = {.struct_size = sizeof place};
        assert_int_equal(berth_vulkan_locate(device, ends[i], &place), BERTH_OK);
        buffers[i] = (VkDescriptorBufferInfo){place.buffer, place.offset_bytes, count * sizeof(uint32_t)};
    }
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = set,
                                        .descriptorCount = 2,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                        .pBufferInfo = buffers};
    call.vkUpdateDescriptorSets(vk.device, 1, &write, 0, NULL);
    return set;
}

VkCommandBuffer record_kernel(const void *x, const void *y, uint32_t count)
{
    const VkCommandBufferAllocateInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = pool,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkDescriptorSet set = bind_buffers(x, y, count);
    VkCommandBuffer commands;
    assert_int_equal(call.vkAllocateCommandBuffers(vk.device, &one, &commands), VK_SUCCESS);
    assert_int_equal(call.vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
    call.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    call.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, NULL);
    call.vkCmdDispatch(commands, count / LANES, 1, 1);
    assert_int_equal(call.vkEndCommandBuffer(commands), VK_SUCCESS);
    return commands;
}

void launch_kernel(berth_stream *stream, const void *x, const void *y, uint32_t count)
{
    assert_int_equal(berth_vulkan_submit(stream, record_kernel(x, y, count)), BERTH_OK);
}

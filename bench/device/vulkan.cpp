// Vulkan: what Berth adds to the driver's own calls, and what a pool saves. Both peers work on one VkDevice and one queue.
//   alloc/1MiB    a block and its release: bare, vkAllocateMemory and a buffer bound to it; berth, from a pool
//   copy/<size>   pinned to device memory on the queue, and the wait for it; both record the commands each time, and
//                 make what was written visible to the host
//   query/pending, query/complete   asking how far a stream has come
#include <cstdio>
#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>

#define VK_NO_PROTOTYPES
#include <berth_vulkan.h>

#include <berth/berth.h>

namespace
{

void expect(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "%s failed: %s\n", what, berth_last_error()->message);
    std::exit(1);
}

berth_device device()
{
    static const berth_device found = [] {
        berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
        int32_t count = 0;
        expect(berth_vulkan_register(&kind) == BERTH_OK && berth_device_count(kind, &count) == BERTH_OK,
               "finding Vulkan");
        return berth_device{static_cast<int32_t>(kind), 0};
    }();
    return found;
}

#define CALLS(X)                     \
    X(vkCreateBuffer)                \
    X(vkDestroyBuffer)               \
    X(vkGetBufferMemoryRequirements) \
    X(vkAllocateMemory)              \
    X(vkFreeMemory)                  \
    X(vkBindBufferMemory)            \
    X(vkCreateCommandPool)           \
    X(vkDestroyCommandPool)          \
    X(vkAllocateCommandBuffers)      \
    X(vkBeginCommandBuffer)          \
    X(vkEndCommandBuffer)            \
    X(vkCmdCopyBuffer)               \
    X(vkCmdPipelineBarrier)          \
    X(vkQueueSubmit)                 \
    X(vkCreateSemaphore)             \
    X(vkDestroySemaphore)            \
    X(vkWaitSemaphores)              \
    X(vkGetSemaphoreCounterValue)

struct driver {
    berth_vulkan_handles vk = {};
#define MEMBER(name) PFN_##name name = nullptr;
    CALLS(MEMBER)
#undef MEMBER

    driver()
    {
        vk.struct_size = sizeof vk;
        expect(berth_vulkan_handles_get(device(), &vk) == BERTH_OK, "opening the device");
        auto find = reinterpret_cast<PFN_vkGetDeviceProcAddr>(
            vk.get_instance_proc_addr(vk.instance, "vkGetDeviceProcAddr"));
#define LOAD(name) name = reinterpret_cast<PFN_##name>(find(vk.device, #name));
        CALLS(LOAD)
#undef LOAD
    }
};

const driver &bare()
{
    static const driver one;
    return one;
}

// ---- Allocation ----------------------------------------------------------------------------------------

constexpr std::size_t MIB = std::size_t{1} << 20;

void bare_allocate(benchmark::State &state)
{
    const driver &d = bare();
    VkBufferCreateInfo buffer_info = {};
    buffer_info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    buffer_info.size = MIB;
    buffer_info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    for (auto _ : state) {
        VkBuffer buffer;
        VkDeviceMemory memory;
        VkMemoryRequirements needs;
        VkMemoryAllocateInfo info = {};
        expect(d.vkCreateBuffer(d.vk.device, &buffer_info, nullptr, &buffer) == VK_SUCCESS, "buffer");
        d.vkGetBufferMemoryRequirements(d.vk.device, buffer, &needs);
        info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        info.allocationSize = needs.size;
        info.memoryTypeIndex = static_cast<uint32_t>(__builtin_ctz(needs.memoryTypeBits));
        expect(d.vkAllocateMemory(d.vk.device, &info, nullptr, &memory) == VK_SUCCESS, "memory");
        expect(d.vkBindBufferMemory(d.vk.device, buffer, memory, 0) == VK_SUCCESS, "bind");
        d.vkDestroyBuffer(d.vk.device, buffer, nullptr);
        d.vkFreeMemory(d.vk.device, memory, nullptr);
    }
}

void pool_allocate(benchmark::State &state)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = nullptr;
    options.device = device();
    expect(berth_pool_create(&options, &pool) == BERTH_OK, "pool");
    for (auto _ : state) {
        void *p = nullptr;
        expect(berth_allocate(pool, MIB, 256, nullptr, &p) == BERTH_OK, "allocate");
        benchmark::DoNotOptimize(p);
        berth_deallocate(pool, p, MIB, nullptr);
    }
    berth_allocator_release(pool);
}

// ---- Copies ----------------------------------------------------------------------------------------------

struct blocks {
    std::size_t size_bytes;
    void *from = nullptr, *to = nullptr;

    explicit blocks(std::size_t size) : size_bytes(size)
    {
        expect(berth_device_allocate(device(), BERTH_MEMORY_PINNED, size, 256, nullptr, &from) == BERTH_OK,
               "allocate");
        expect(berth_device_allocate(device(), BERTH_MEMORY_DEVICE, size, 256, nullptr, &to) == BERTH_OK,
               "allocate");
        expect(berth_zero(device(), from, size, nullptr, false) == BERTH_OK, "zero");
        expect(berth_zero(device(), to, size, nullptr, false) == BERTH_OK, "zero");
    }
    ~blocks()
    {
        berth_device_release(device(), BERTH_MEMORY_PINNED, from, size_bytes, nullptr);
        berth_device_release(device(), BERTH_MEMORY_DEVICE, to, size_bytes, nullptr);
    }
    blocks(const blocks &) = delete;
    blocks &operator=(const blocks &) = delete;

    static berth_vulkan_place place(const void *p)
    {
        berth_vulkan_place found = {};
        found.struct_size = sizeof found;
        expect(berth_vulkan_locate(device(), p, &found) == BERTH_OK, "locate");
        return found;
    }
};

// What a program does by itself: a command buffer, recorded anew for each copy, and a timeline semaphore.
struct own_queue {
    const driver &d = bare();
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkSemaphore timeline;
    uint64_t value = 0;

    own_queue()
    {
        VkCommandPoolCreateInfo pool_info = {};
        pool_info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
        pool_info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
        pool_info.queueFamilyIndex = d.vk.queue_family;
        expect(d.vkCreateCommandPool(d.vk.device, &pool_info, nullptr, &pool) == VK_SUCCESS, "pool");
        VkCommandBufferAllocateInfo one = {};
        one.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        one.commandPool = pool;
        one.commandBufferCount = 1;
        expect(d.vkAllocateCommandBuffers(d.vk.device, &one, &commands) == VK_SUCCESS, "commands");
        VkSemaphoreTypeCreateInfo type = {};
        type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
        type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
        VkSemaphoreCreateInfo semaphore = {};
        semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
        semaphore.pNext = &type;
        expect(d.vkCreateSemaphore(d.vk.device, &semaphore, nullptr, &timeline) == VK_SUCCESS, "semaphore");
    }
    ~own_queue()
    {
        d.vkDestroySemaphore(d.vk.device, timeline, nullptr);
        d.vkDestroyCommandPool(d.vk.device, pool, nullptr);
    }
    own_queue(const own_queue &) = delete;
    own_queue &operator=(const own_queue &) = delete;

    void submit()
    {
        uint64_t before = value++;
        const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
        VkTimelineSemaphoreSubmitInfo values = {};
        values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
        values.waitSemaphoreValueCount = values.signalSemaphoreValueCount = 1;
        values.pWaitSemaphoreValues = &before;
        values.pSignalSemaphoreValues = &value;
        VkSubmitInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        info.pNext = &values;
        info.waitSemaphoreCount = info.signalSemaphoreCount = info.commandBufferCount = 1;
        info.pWaitSemaphores = info.pSignalSemaphores = &timeline;
        info.pWaitDstStageMask = &stage;
        info.pCommandBuffers = &commands;
        expect(d.vkQueueSubmit(d.vk.queue, 1, &info, VK_NULL_HANDLE) == VK_SUCCESS, "submit");
    }
    void wait() const
    {
        VkSemaphoreWaitInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
        info.semaphoreCount = 1;
        info.pSemaphores = &timeline;
        info.pValues = &value;
        expect(d.vkWaitSemaphores(d.vk.device, &info, UINT64_MAX) == VK_SUCCESS, "wait");
    }
};

void bare_copy(benchmark::State &state, std::size_t size_bytes)
{
    blocks b(size_bytes);
    own_queue queue;
    const driver &d = bare();
    const berth_vulkan_place from = blocks::place(b.from), to = blocks::place(b.to);
    const VkBufferCopy region = {from.offset_bytes, to.offset_bytes, size_bytes};
    VkCommandBufferBeginInfo begin = {};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VkMemoryBarrier barrier = {};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
    for (auto _ : state) {
        expect(d.vkBeginCommandBuffer(queue.commands, &begin) == VK_SUCCESS, "begin");
        d.vkCmdCopyBuffer(queue.commands, from.buffer, to.buffer, 1, &region);
        d.vkCmdPipelineBarrier(queue.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0,
                               1, &barrier, 0, nullptr, 0, nullptr);
        expect(d.vkEndCommandBuffer(queue.commands) == VK_SUCCESS, "end");
        queue.submit();
        queue.wait();
    }
}

void berth_copies(benchmark::State &state, std::size_t size_bytes)
{
    blocks b(size_bytes);
    berth_stream *stream = nullptr;
    expect(berth_stream_create(device(), &stream) == BERTH_OK, "stream");
    for (auto _ : state)
        expect(berth_copy(device(), b.to, b.from, size_bytes, BERTH_COPY_HOST_TO_DEVICE, stream, true) ==
                   BERTH_OK,
               "copy");
    berth_stream_destroy(stream);
}

// ---- Asking ------------------------------------------------------------------------------------------------

void bare_query(benchmark::State &state)
{
    own_queue queue;
    const driver &d = bare();
    uint64_t value = 0;
    for (auto _ : state)
        benchmark::DoNotOptimize(d.vkGetSemaphoreCounterValue(d.vk.device, queue.timeline, &value));
}

void event_query(benchmark::State &state)
{
    blocks b(64);
    berth_stream *stream = nullptr;
    berth_event *event = nullptr;
    expect(berth_stream_create(device(), &stream) == BERTH_OK, "stream");
    expect(berth_event_create(device(), &event) == BERTH_OK, "event");
    expect(berth_copy(device(), b.to, b.from, 64, BERTH_COPY_INFER, stream, true) == BERTH_OK, "copy");
    expect(berth_event_record(event, stream) == BERTH_OK, "record");
    for (auto _ : state)
        benchmark::DoNotOptimize(berth_event_query(event));
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

const int registered = [] {
    benchmark::RegisterBenchmark("vulkan-bare/vulkan-alloc/1MiB", bare_allocate);
    benchmark::RegisterBenchmark("vulkan-berth/vulkan-alloc/1MiB", pool_allocate);
    for (auto [name, size] :
         {std::pair{"64KiB", MIB / 16}, std::pair{"1MiB", MIB}, std::pair{"16MiB", 16 * MIB}}) {
        const std::string end = std::string("/vulkan-copy/") + name;
        benchmark::RegisterBenchmark(("vulkan-bare" + end).c_str(), bare_copy, size)->UseRealTime();
        benchmark::RegisterBenchmark(("vulkan-berth" + end).c_str(), berth_copies, size)->UseRealTime();
    }
    benchmark::RegisterBenchmark("vulkan-bare/vulkan-query", bare_query);
    benchmark::RegisterBenchmark("vulkan-berth/vulkan-query", event_query);
    return 0;
}();

} // namespace

/* Memory: which of the driver's types serves which kind, and blocks of it. Every block is a VkDeviceMemory of its own, of
 * which drivers permit a few thousand: programs take them in large pieces, through a pool. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- Types ----------------------------------------------------------------------------------------- */

static VkBufferUsageFlags usage_of(const bvk_device *device)
{
    return VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
           VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
           VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_VERTEX_BUFFER_BIT |
           VK_BUFFER_USAGE_INDEX_BUFFER_BIT |
           (device->has_addresses ? VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT : 0);
}

static VkResult make_buffer(bvk_device *device, VkDeviceSize size_bytes, bool imported, VkBuffer *out)
{
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = imported ? &external : NULL,
                                     .size = size_bytes,
                                     .usage = usage_of(device),
                                     .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    return device->call.vkCreateBuffer(device->logical, &info, NULL, out);
}

/* Of the types in `bits` that have all of `required` and none of `never`, the one with most of what is wanted and least of
 * what is not; among equal ones the larger heap, then the first, which drivers put first for a reason. */
static uint32_t choose(const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits,
                       VkMemoryPropertyFlags required, VkMemoryPropertyFlags never,
                       VkMemoryPropertyFlags wanted, VkMemoryPropertyFlags unwanted)
{
    uint32_t best = BVK_NO_TYPE;
    int best_score = 0;
    uint64_t best_heap = 0;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = memory->memoryTypes[i].propertyFlags;
        uint64_t heap = memory->memoryHeaps[memory->memoryTypes[i].heapIndex].size;
        int score = __builtin_popcount(flags & wanted) - __builtin_popcount(flags & unwanted);
        if (!(bits >> i & 1) || (flags & required) != required || flags & never)
            continue;
        if (best == BVK_NO_TYPE || score > best_score || (score == best_score && heap > best_heap)) {
            best = i;
            best_score = score;
            best_heap = heap;
        }
    }
    return best;
}

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
    COHERENT = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, /* else every access would need a flush */
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    /* Memory that host and shaders share on terms of its own, or that is no memory for buffers. */
    STRANGE = VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
              VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD |
              VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV,
};

/* Where all of the device's memory is the host's (a processor, an integrated GPU) and cached, it is used by pointers. A card's
 * memory that the host can see is slow for the host to read, and may be a small window. */
static bool shares_memory(VkPhysicalDeviceType type, const VkPhysicalDeviceMemoryProperties *memory)
{
    if (type != VK_PHYSICAL_DEVICE_TYPE_CPU && type != VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU)
        return false;
    for (uint32_t i = 0; i < memory->memoryHeapCount; i++)
        if (!(memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
            return false;
    return true;
}

static void assign_types(bvk_device *device, VkPhysicalDeviceType physical,
                         const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits)
{
    uint32_t *type = device->type_of;
    uint32_t shared = shares_memory(physical, memory)
                          ? choose(memory, bits, LOCAL | VISIBLE | COHERENT | CACHED, STRANGE, 0, 0)
                          : BVK_NO_TYPE;
    /* A pointer that is aligned must have an offset in its buffer that is: maps have to begin where both do. */
    if (device->limits.minMemoryMapAlignment < device->offset_alignment)
        shared = BVK_NO_TYPE;
    device->pointers = shared != BVK_NO_TYPE;
    type[BERTH_MEMORY_DEVICE] = device->pointers ? shared : choose(memory, bits, LOCAL, STRANGE, 0, VISIBLE);
    type[BERTH_MEMORY_MANAGED] = shared;
    type[BERTH_MEMORY_PINNED] = choose(memory, bits, VISIBLE | COHERENT, STRANGE, CACHED, LOCAL);
    type[BERTH_MEMORY_WRITE_COMBINED] = choose(memory, bits, VISIBLE | COHERENT, STRANGE | CACHED, 0, LOCAL);
    if (type[BERTH_MEMORY_DEVICE] != BVK_NO_TYPE)
        device->total_bytes =
            memory->memoryHeaps[memory->memoryTypes[type[BERTH_MEMORY_DEVICE]].heapIndex].size;
}

/* All buffers of one usage may have the same types, the specification says: one tells. */
berth_status bvk_choose_types(bvk_device *device)
{
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType =
                                                    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    VkMemoryRequirements needs;
    VkBuffer probe = VK_NULL_HANDLE;
    VkResult code = make_buffer(device, 64, false, &probe);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "making a buffer");
    device->call.vkGetBufferMemoryRequirements(device->logical, probe, &needs);
    device->call.vkDestroyBuffer(device->logical, probe, NULL);
    device->kind->call.vkGetPhysicalDeviceProperties2(device->physical, &properties);
    device->kind->call.vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
    assign_types(device, properties.properties.deviceType, &memory.memoryProperties, needs.memoryTypeBits);
    if (device->type_of[BERTH_MEMORY_DEVICE] == BVK_NO_TYPE ||
        device->type_of[BERTH_MEMORY_PINNED] == BVK_NO_TYPE)
        return berth_fail(BERTH_UNSUPPORTED, "the Vulkan device has no memory for buffers of this usage");
    return BERTH_OK;
}

/* ---- Blocks ---------------------------------------------------------------------------------------- */

static berth_status count_allocation(bvk_device *device)
{
    uint32_t most = device->limits.maxMemoryAllocationCount;
    if (atomic_fetch_add(&device->allocations, 1) < most)
        return BERTH_OK;
    atomic_fetch_sub(&device->allocations, 1);
    return berth_fail(
        BERTH_OUT_OF_DEVICE_MEMORY,
        "the driver permits %u allocations (maxMemoryAllocationCount), and all are in use: take "
        "memory through a pool, which cuts many blocks from one",
        (unsigned)most);
}

/* Memory for the block's buffer, from `host` if that is there. The caller frees what was made. */
static berth_status bind_memory(bvk_device *device, bvk_block *block, uint32_t type, VkDeviceSize size_bytes,
                                void *host)
{
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = host};
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = host ? &import : NULL,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = device->has_addresses ? (const void *)&flags : flags.pNext,
                                       .allocationSize = size_bytes,
                                       .memoryTypeIndex = type};
    berth_status status = count_allocation(device);
    if (status)
        return status;
    VkResult code = device->call.vkAllocateMemory(device->logical, &info, NULL, &block->memory);
    if (code != VK_SUCCESS) {
        atomic_fetch_sub(&device->allocations, 1);
        block->memory = VK_NULL_HANDLE;
        return bvk_fail(device, code, "allocating memory");
    }
    code = device->call.vkBindBufferMemory(device->logical, block->buffer, block->memory, 0);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "binding memory to a buffer");
    if (device->has_addresses) {
        const VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                              .buffer = block->buffer};
        block->address = device->call.vkGetBufferDeviceAddress(device->logical, &of);
    }
    return BERTH_OK;
}

/* Gives the block its address. */
static berth_status address_block(bvk_device *device, bvk_block *block, size_t alignment)
{
    if (!block->touchable) {
        void *stand_in = NULL;
        berth_status status = berth_addresses_reserve(block->size, alignment, &stand_in);
        block->base = stand_in;
        return status;
    }
    void *mapped = NULL;
    VkResult code = device->call.vkMapMemory(device->logical, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "mapping memory");
    block->offset = (alignment - (uintptr_t)mapped % alignment) % alignment;
    block->base = (char *)mapped + block->offset;
    return BERTH_OK;
}

static berth_status fill_block(bvk_device *device, bvk_block *block, size_t alignment)
{
    size_t mapped_to = device->limits.minMemoryMapAlignment; /* 64 at least */
    size_t more = block->touchable && alignment > mapped_to ? alignment - mapped_to : 0;
    VkMemoryRequirements needs;
    if (block->size > device->most_bytes - more || more > device->most_bytes)
        return berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "%zu bytes are more than the driver gives at once: %zu",
                          block->size, device->most_bytes);
    block->buffer_bytes = block->size + more;
    VkResult code = make_buffer(device, block->buffer_bytes, false, &block->buffer);
    if (code != VK_SUCCESS) {
        block->buffer = VK_NULL_HANDLE;
        return bvk_fail(device, code, "making a buffer");
    }
    device->call.vkGetBufferMemoryRequirements(device->logical, block->buffer, &needs);
    berth_status status = bind_memory(device, block, device->type_of[block->kind], needs.size, NULL);
    return !status ? address_block(device, block, alignment) : status;
}

berth_status bvk_block_make(bvk_device *device, berth_memory_kind kind, size_t size_bytes, size_t alignment,
                            bvk_block **out)
{
    if (device->type_of[kind] == BVK_NO_TYPE)
        return berth_fail(BERTH_UNSUPPORTED, "this Vulkan device has no such memory");
    bvk_block *block = calloc(1, sizeof *block);
    if (!block)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note a block");
    block->size = size_bytes;
    block->kind = kind;
    block->touchable = kind != BERTH_MEMORY_DEVICE || device->pointers;
    berth_status status = fill_block(device, block, alignment);
    if (!status)
        *out = block;
    else
        bvk_block_free(device, block);
    return status;
}

/* Memory that is mapped is unmapped by freeing it. */
void bvk_block_free(bvk_device *device, bvk_block *block)
{
    if (block->buffer)
        device->call.vkDestroyBuffer(device->logical, block->buffer, NULL);
    if (block->memory) {
        device->call.vkFreeMemory(device->logical, block->memory, NULL);
        atomic_fetch_sub(&device->allocations, 1);
    }
    if (!block->touchable)
        berth_addresses_release(block->base, block->size);
    free(block);
}

/* ---- The table's operations ------------------------------------------------------------------------ */

berth_status bvk_allocate(void *self, berth_device which, berth_memory_kind kind, size_t size_bytes,
                          size_t alignment, berth_stream *stream, void **out)
{
    (void)stream;
    bvk_device *device = NULL;
    bvk_block *block = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (!status)
        status = bvk_block_make(device, kind, size_bytes, alignment, &block);
    if (status)
        return status;
    status = bvk_blocks_add(device, block);
    if (!status)
        *out = block->base;
    else
        bvk_block_free(device, block);
    return status;
}

/* A lost device still takes its memory back; in the child of a fork nothing can be done. */
berth_status bvk_release(void *self, berth_device which, berth_memory_kind kind, void *p, size_t size_bytes,
                         berth_stream *stream)
{
    (void)stream;
    bvk_device *device = NULL;
    berth_status alive = bvk_open(self, which, &device);
    if (alive != BERTH_OK && device->generation != bvk_generation)
        return alive;
    const bvk_block as = {.base = p, .size = size_bytes, .kind = kind};
    size_t size = 0;
    bvk_block *block = bvk_blocks_take(device, &as, &size);
    if (!block && size == 0)
        return berth_fail(BERTH_BAD_FREE, "no block of this Vulkan device begins at %p", p);
    if (!block)
        return berth_fail(BERTH_BAD_FREE, "the block at %p has %zu bytes, or is of another kind of memory", p,
                          size);
    bvk_block_free(device, block);
    return alive;
}

static berth_status import_pages(bvk_device *device, bvk_block *block, char *pages)
{
    VkMemoryHostPointerPropertiesEXT types = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkMemoryRequirements needs;
    VkResult code = device->call.vkGetMemoryHostPointerPropertiesEXT(
        device->logical, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, pages, &types);
    if (code == VK_SUCCESS)
        code = make_buffer(device, block->buffer_bytes, true, &block->buffer);
    if (code != VK_SUCCESS)
        return bvk_fail(device, code, "importing memory of the host");
    device->call.vkGetBufferMemoryRequirements(device->logical, block->buffer, &needs);
    uint32_t both = types.memoryTypeBits & needs.memoryTypeBits;
    if (both == 0 || needs.size > block->buffer_bytes)
        return berth_fail(BERTH_UNSUPPORTED, "the driver cannot make a buffer of this memory of the host");
    uint32_t type = both >> device->type_of[BERTH_MEMORY_PINNED] & 1 ? device->type_of[BERTH_MEMORY_PINNED]
                                                                     : (uint32_t)__builtin_ctz(both);
    return bind_memory(device, block, type, block->buffer_bytes, pages);
}

/* Whole pages around what was asked for; only that is noted. */
berth_status bvk_register_host(void *self, berth_device which, void *p, size_t size_bytes)
{
    bvk_device *device = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (status)
        return status;
    if (!device->has_import)
        return berth_fail(BERTH_UNSUPPORTED, "the Vulkan device has no VK_EXT_external_memory_host");
    size_t page = device->import_alignment, before = (uintptr_t)p % page;
    bvk_block *block = calloc(1, sizeof *block);
    if (!block)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note a block");
    *block = (bvk_block){.base = p,
                         .size = size_bytes,
                         .offset = before,
                         .buffer_bytes = (before + size_bytes + page - 1) / page * page,
                         .kind = BERTH_MEMORY_PINNED,
                         .touchable = true,
                         .imported = true};
    status = import_pages(device, block, (char *)p - before);
    if (!status)
        status = bvk_blocks_add(device, block);
    if (status)
        bvk_block_free(device, block);
    return status;
}

berth_status bvk_unregister_host(void *self, berth_device which, void *p)
{
    bvk_device *device = NULL;
    berth_status alive = bvk_open(self, which, &device);
    if (alive != BERTH_OK && device->generation != bvk_generation)
        return alive;
    const bvk_block as = {.base = p, .imported = true};
    size_t size = 0;
    bvk_block *block = bvk_blocks_take(device, &as, &size);
    if (!block)
        return berth_fail(BERTH_NOT_FOUND, "no registered memory begins at %p", p);
    bvk_block_free(device, block);
    return alive;
}

berth_status bvk_locate(void *self, berth_device which, const void *p, berth_device_place *out)
{
    bvk_device *device = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (status)
        return status;
    bvk_block *block = bvk_blocks_find(device, p);
    if (!block)
        return berth_fail(BERTH_NOT_FOUND, "%p is not memory of this Vulkan device", p);
    out->handle = (uint64_t)(uintptr_t)block->buffer;
    out->offset_bytes = block->offset + (uint64_t)((const char *)p - block->base);
    out->size_bytes = block->buffer_bytes;
    return BERTH_OK;
}

berth_status bvk_most_bytes(void *self, berth_device which, berth_memory_kind kind, size_t *out)
{
    (void)kind;
    *out = ((bvk_kind *)self)->devices[which.ordinal].most_bytes;
    return BERTH_OK;
}

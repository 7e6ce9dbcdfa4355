/* The table, and the kinds that use it: the machine's devices, and each device that a program has brought along. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bvk_kind machine = {.name = "vulkan", .loading = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t adopted_lock = PTHREAD_MUTEX_INITIALIZER;
static bvk_kind *adopted; /* guard: adopted_lock */
static pthread_once_t fork_watch = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    bvk_generation++;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

/* ---- The table's operations ------------------------------------------------------------------------ */

/* Called often: one load once it is known. */
static berth_status count(void *self, int32_t *out)
{
    bvk_kind *kind = self;
    int32_t state = atomic_load_explicit(&kind->state, memory_order_acquire);
    if (BVK_UNLIKELY(state == BVK_NOT_LOADED)) {
        pthread_once(&fork_watch, watch_forks);
        pthread_mutex_lock(&kind->loading);
        state = atomic_load(&kind->state);
        if (state == BVK_NOT_LOADED) {
            state = bvk_load(kind) == BERTH_OK ? BVK_LOADED : BVK_ABSENT;
            snprintf(kind->why_not, sizeof kind->why_not, "%.255s", berth_last_error()->message);
            atomic_store_explicit(&kind->state, state, memory_order_release);
        }
        pthread_mutex_unlock(&kind->loading);
    }
    *out = state == BVK_LOADED ? kind->count : 0;
    return state == BVK_LOADED ? BERTH_OK
                               : berth_fail(BERTH_UNSUPPORTED, "no Vulkan here: %s", kind->why_not);
}

static berth_status describe(void *self, berth_device which, berth_device_info *info)
{
    bvk_kind *kind = self;
    bvk_device *device = NULL;
    VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    berth_status status = bvk_open(self, which, &device);
    if (status)
        return status;
    kind->call.vkGetPhysicalDeviceProperties2(device->physical, &all);
    uint32_t version = all.properties.apiVersion;
    if (version >= VK_API_VERSION_1_2) {
        all.pNext = &driver;
        kind->call.vkGetPhysicalDeviceProperties2(device->physical, &all);
    }
    snprintf(info->name, sizeof info->name, "%.127s", all.properties.deviceName);
    snprintf(info->driver, sizeof info->driver, "Vulkan %u.%u.%u, %.40s %.60s",
             (unsigned)VK_API_VERSION_MAJOR(version), (unsigned)VK_API_VERSION_MINOR(version),
             (unsigned)VK_API_VERSION_PATCH(version), driver.driverName, driver.driverInfo);
    info->total_bytes = device->total_bytes;
    for (unsigned i = 0; i < BVK_COUNT_OF(device->type_of); i++)
        info->memory_kinds |= (uint64_t)(device->type_of[i] != BVK_NO_TYPE) << i;
    info->host_accessible = device->pointers;
    info->offset_alignment = device->offset_alignment;
    return BERTH_OK;
}

static berth_status native(void *self, berth_device which, void **out)
{
    bvk_device *device = NULL;
    berth_status status = bvk_open(self, which, &device);
    if (!status)
        *out = device->logical;
    return status;
}

static void destroy(void *self)
{
    bvk_kind *kind = self;
    for (int32_t i = 0; i < kind->count; i++)
        bvk_close_device(&kind->devices[i]);
    bvk_unload(kind);
    atomic_store(&kind->state, BVK_NOT_LOADED);
    if (kind == &machine)
        return;
    pthread_mutex_lock(&adopted_lock);
    for (bvk_kind **place = &adopted; *place; place = &(*place)->next)
        if (*place == kind) {
            *place = kind->next;
            break;
        }
    pthread_mutex_unlock(&adopted_lock);
    pthread_mutex_destroy(&kind->loading);
    free(kind);
}

static berth_device_ops table_for(const char *name)
{
    return (berth_device_ops){
        .struct_size = sizeof(berth_device_ops),
        .name = name,
        .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED |
                        1u << BERTH_MEMORY_WRITE_COMBINED,
        .abilities = BERTH_DEVICE_CALLS_USE_DEVICE,
        .count = count,
        .describe = describe,
        .allocate = bvk_allocate,
        .release = bvk_release,
        .copy = bvk_op_copy,
        .zero = bvk_op_zero,
        .destroy = destroy,
        .native = native,
        .stream_create = bvk_stream_create,
        .stream_native = bvk_stream_native,
        .stream_destroy = bvk_stream_destroy,
        .stream_query = bvk_stream_query,
        .stream_synchronize = bvk_stream_synchronize,
        .stream_wait_event = bvk_stream_wait_event,
        .stream_call = bvk_stream_call,
        .event_create = bvk_event_create,
        .event_record = bvk_event_record,
        .event_query = bvk_event_query,
        .event_wait = bvk_event_wait,
        .event_destroy = bvk_event_destroy,
        .register_host = bvk_register_host,
        .unregister_host = bvk_unregister_host,
        .most_bytes = bvk_most_bytes,
        .locate = bvk_locate,
    };
}

/* ---- The machine's devices --------------------------------------------------------------------------- */

BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self);

berth_status berth_device_entry(const berth_device_ops **ops, void **self)
{
    static berth_device_ops table;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!table.struct_size)
        table = table_for(machine.name);
    pthread_mutex_unlock(&lock);
    *ops = &table;
    *self = &machine;
    return BERTH_OK;
}

berth_status berth_vulkan_register(berth_device_kind *out)
{
    const berth_device_ops *ops = NULL;
    void *self = NULL;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    berth_status status = berth_device_entry(&ops, &self);
    if (!status)
        status = berth_device_register(ops, self, out);
    if (status == BERTH_ALREADY_EXISTS) {
        *out = berth_device_kind_find(machine.name);
        status = *out == BERTH_DEVICE_UNKNOWN ? BERTH_ALREADY_EXISTS : BERTH_OK;
    }
    return status;
}

/* ---- Devices of the program's ------------------------------------------------------------------------ */

static berth_status check_adoption(const berth_vulkan_adoption *given)
{
    if (!given)
        return berth_fail(BERTH_INVALID_ARGUMENT, "the adoption is NULL");
    if (given->struct_size < sizeof *given)
        return berth_fail(BERTH_INVALID_ARGUMENT, "adoption->struct_size is %zu: set it to sizeof *adoption",
                          given->struct_size);
    if (!given->instance || !given->physical_device || !given->device || !given->queue)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "instance, physical device, device and queue are all needed");
    if (!given->lock_queue != !given->unlock_queue)
        return berth_fail(BERTH_INVALID_ARGUMENT, "the queue's lock and unlock come together");
    return BERTH_OK;
}

/* What the kind has before it is registered. */
static berth_status fill_adopted(bvk_kind *kind, const berth_vulkan_adoption *given)
{
    kind->instance = given->instance;
    kind->get_instance_proc_addr = given->get_instance_proc_addr;
    if (!kind->get_instance_proc_addr) {
        int32_t devices = 0;
        (void)count(&machine, &devices); /* for the loader alone */
        kind->get_instance_proc_addr = machine.get_instance_proc_addr;
    }
    if (!kind->get_instance_proc_addr)
        return berth_fail(BERTH_UNSUPPORTED, "no Vulkan loader here: give get_instance_proc_addr");
    berth_status status = bvk_load_instance_calls(kind);
    if (status)
        return status;
    kind->devices = calloc(1, sizeof *kind->devices);
    if (!kind->devices)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a device");
    bvk_device *device = kind->devices;
    device->adopted = true;
    device->physical = given->physical_device;
    device->logical = given->device;
    device->queue = given->queue;
    device->family = given->queue_family;
    device->has_addresses = given->buffer_device_address;
    device->has_import = given->external_memory_host;
    device->lock_queue = given->lock_queue;
    device->unlock_queue = given->unlock_queue;
    device->lock_context = given->context;
    (void)bvk_look(kind, device); /* an adopted one is always of use */
    kind->count = 1;
    atomic_store(&kind->state, BVK_LOADED);
    return bvk_open_device(device);
}

/* Under the first name that is free. The kind can be found once it has a number of its own. */
static berth_status register_adopted(bvk_kind *kind, berth_device_kind *out)
{
    berth_status status = BERTH_ALREADY_EXISTS;
    for (int i = 1; status == BERTH_ALREADY_EXISTS && i < 1000; i++) {
        snprintf(kind->name, sizeof kind->name, "vulkan-%d", i);
        const berth_device_ops ops = table_for(kind->name);
        status = berth_device_register(&ops, kind, out);
    }
    if (status)
        return status;
    pthread_mutex_lock(&adopted_lock);
    kind->number = *out;
    kind->next = adopted;
    adopted = kind;
    pthread_mutex_unlock(&adopted_lock);
    return BERTH_OK;
}

berth_status berth_vulkan_adopt(const berth_vulkan_adoption *given, berth_device *out)
{
    berth_device_kind number = BERTH_DEVICE_UNKNOWN;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = (berth_device){BERTH_DEVICE_UNKNOWN, 0};
    berth_status status = check_adoption(given);
    if (status)
        return status;
    bvk_kind *kind = calloc(1, sizeof *kind);
    if (!kind)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a device");
    pthread_once(&fork_watch, watch_forks);
    pthread_mutex_init(&kind->loading, NULL);
    status = fill_adopted(kind, given);
    if (!status)
        status = register_adopted(kind, &number);
    if (!status)
        *out = (berth_device){(int32_t)number, 0};
    else
        destroy(kind);
    return status;
}

/* The kind of ours that has this number. Names would not do: one is given again while the kind that had it goes. */
static bvk_kind *kind_of(berth_device device)
{
    if (strcmp(berth_device_kind_name((berth_device_kind)device.kind), machine.name) == 0)
        return &machine;
    pthread_mutex_lock(&adopted_lock);
    bvk_kind *kind = adopted;
    while (kind && (int32_t)kind->number != device.kind)
        kind = kind->next;
    pthread_mutex_unlock(&adopted_lock);
    return kind;
}

berth_status berth_vulkan_release(berth_device device)
{
    bvk_kind *kind = kind_of(device);
    if (!kind || kind == &machine)
        return berth_fail(BERTH_NOT_FOUND, "the device was not adopted");
    return berth_device_unregister((berth_device_kind)device.kind);
}

/* ---- What programs ask ------------------------------------------------------------------------------- */

static berth_status find_open(berth_device which, bvk_device **out)
{
    int32_t devices = 0;
    bvk_kind *kind = kind_of(which);
    if (!kind) {
        (void)berth_fail(BERTH_NOT_FOUND, "device kind %d is not of Vulkan", (int)which.kind);
        return BERTH_NOT_FOUND;
    }
    berth_status status = count(kind, &devices);
    if (status)
        return status;
    if (which.ordinal < 0 || which.ordinal >= devices) {
        (void)berth_fail(BERTH_NOT_FOUND, "there is no %s device %d", kind->name, (int)which.ordinal);
        return BERTH_NOT_FOUND;
    }
    return bvk_open(kind, which, out);
}

berth_status berth_vulkan_handles_get(berth_device which, berth_vulkan_handles *out)
{
    bvk_device *device = NULL;
    if (!out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "out is NULL, or out->struct_size is not sizeof *out");
    berth_status status = find_open(which, &device);
    if (status)
        return status;
    *out = (berth_vulkan_handles){.struct_size = out->struct_size,
                                  .instance = device->kind->instance,
                                  .physical_device = device->physical,
                                  .device = device->logical,
                                  .queue = device->queue,
                                  .queue_family = device->family,
                                  .get_instance_proc_addr = device->kind->get_instance_proc_addr};
    return BERTH_OK;
}

berth_status berth_vulkan_locate(berth_device which, const void *p, berth_vulkan_place *out)
{
    bvk_device *device = NULL;
    if (!out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "out is NULL, or out->struct_size is not sizeof *out");
    berth_status status = find_open(which, &device);
    if (status)
        return status;
    const bvk_block *block = bvk_blocks_find(device, p);
    if (!block)
        return berth_fail(BERTH_NOT_FOUND, "%p is not memory of this Vulkan device", p);
    VkDeviceSize offset = block->offset + (VkDeviceSize)((const char *)p - block->base);
    *out = (berth_vulkan_place){.struct_size = out->struct_size,
                                .buffer = block->buffer,
                                .offset_bytes = offset,
                                .size_bytes = block->buffer_bytes,
                                .memory = block->memory,
                                .address = block->address ? block->address + offset : 0};
    return BERTH_OK;
}

/* The OpenCL device: the table of all it can do, and what devices say of themselves. */
#include "device/opencl.h"

#include <stdio.h>

static void describe_place(const ocl_device *ocl, berth_device_info *info)
{
    char platform[64] = "", version[64] = "";
    uint64_t bytes = 0;
    (void)berth__ocl.clGetDeviceInfo(ocl->id, OCL_DEVICE_NAME, sizeof info->name - 1, info->name, NULL);
    (void)berth__ocl.clGetPlatformInfo(ocl->platform, OCL_PLATFORM_NAME, sizeof platform - 1, platform, NULL);
    (void)berth__ocl.clGetDeviceInfo(ocl->id, OCL_DRIVER_VERSION, sizeof version - 1, version, NULL);
    (void)berth__ocl.clGetDeviceInfo(ocl->id, OCL_DEVICE_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    snprintf(info->driver, sizeof info->driver, "%s %s", platform, version);
    info->total_bytes = bytes;
    if (ocl->usm || ocl->coarse || ocl->buffers)
        info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED;
    if (ocl->usm || ocl->fine)
        info->memory_kinds |= 1u << BERTH_MEMORY_MANAGED;
    info->stream_ordered = info->memory_kinds != 0 && !ocl->usm;
    info->offset_alignment = ocl->buffers ? ocl->part_alignment : 0;
}

static berth_status opencl_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self;
    const ocl_device *ocl = berth__ocl_device(device);
    bool locked = berth__ocl_places_lock();
    bool gone = atomic_load(&ocl->gone); /* with it went its id */
    if (!gone)
        describe_place(ocl, info);
    berth__ocl_places_unlock(locked);
    return gone ? berth__ocl_fail_gone(ocl) : BERTH_OK;
}

static berth_status native(void *self, berth_device device, void **out)
{
    (void)self;
    ocl_context context;
    berth_status status = berth__ocl_context(berth__ocl_device(device), &context);
    if (!status)
        *out = context;
    return status;
}

const berth_device_ops berth__opencl_device_ops = {
    .struct_size = sizeof(berth_device_ops),
    .name = "opencl",
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED,
    .abilities = BERTH_DEVICE_CALLS_USE_DEVICE,
    .count = berth__ocl_count,
    .describe = opencl_describe,
    .native = native,
    .allocate = berth__ocl_allocate,
    .release = berth__ocl_release,
    .copy = berth__ocl_copy,
    .zero = berth__ocl_zero,
    .stream_create = berth__ocl_stream_create,
    .stream_wrap = berth__ocl_stream_wrap,
    .stream_native = berth__ocl_stream_native,
    .stream_destroy = berth__ocl_stream_destroy,
    .stream_query = berth__ocl_stream_query,
    .stream_synchronize = berth__ocl_stream_synchronize,
    .stream_wait_event = berth__ocl_stream_wait_event,
    .stream_call = berth__ocl_stream_call,
    .event_create = berth__ocl_event_create,
    .event_record = berth__ocl_event_record,
    .event_query = berth__ocl_event_query,
    .event_wait = berth__ocl_event_wait,
    .event_destroy = berth__ocl_event_destroy,
    .most_bytes = berth__ocl_most_bytes,
    .locate = berth__ocl_locate,
};

/* CUDA and HIP: their devices, what their errors mean to us, and the two tables. */
#include "device/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 64 };

/* One of the two kinds: written once, by its loading. */
typedef struct gpu_kind {
    const gpu_driver *driver;
    int32_t count;
    char why_none[320];
    gpu_device devices[MOST_DEVICES];
} gpu_kind;

static gpu_kind cuda = {.driver = &berth__cuda_driver}, hip = {.driver = &berth__hip_driver};

/* ---- Devices ------------------------------------------------------------------------------------- */

static void load(gpu_kind *kind)
{
    int found = kind->driver->load(kind->why_none, sizeof kind->why_none);
    for (int32_t i = 0; i < found && i < MOST_DEVICES; i++) {
        gpu_device *device = &kind->devices[i];
        device->driver = kind->driver;
        device->ordinal = i;
        int code = kind->driver->open(device);
        if (code != GPU_SUCCESS) {
            /* Its ordinal stays, so that the others keep theirs; whatever is asked of it fails. */
            berth__log(BERTH_LOG_WARNING, "%s device %d cannot be used: %s", kind->driver->title, (int)i,
                       kind->driver->words(code));
            atomic_store(&device->lost, true);
        }
    }
    kind->count = found < MOST_DEVICES ? (int32_t)found : MOST_DEVICES;
}

static void load_cuda(void)
{
    load(&cuda);
}

static void load_hip(void)
{
    load(&hip);
}

berth_status berth__gpu_count(berth_device_kind kind, int32_t *count)
{
    static pthread_once_t cuda_loaded = PTHREAD_ONCE_INIT, hip_loaded = PTHREAD_ONCE_INIT;
    gpu_kind *of = kind == BERTH_DEVICE_CUDA ? &cuda : &hip;
    pthread_once(of == &cuda ? &cuda_loaded : &hip_loaded, of == &cuda ? load_cuda : load_hip);
    *count = of->count;
    if (BERTH_LIKELY(of->count > 0))
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s", of->why_none);
}

gpu_device *berth__gpu_device(berth_device device)
{
    return device.kind == BERTH_DEVICE_CUDA ? &cuda.devices[device.ordinal] : &hip.devices[device.ordinal];
}

static berth_status describe(berth_device device, berth_device_info *info)
{
    gpu_device *gpu = berth__gpu_device(device);
    snprintf(info->name, sizeof info->name, "%s", gpu->name);
    snprintf(info->driver, sizeof info->driver, "%s", gpu->version);
    info->total_bytes = gpu->total_bytes;
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED;
    if (gpu->managed)
        info->memory_kinds |= 1u << BERTH_MEMORY_MANAGED;
    info->stream_ordered = gpu->stream_ordered;
    info->virtual_memory = gpu->pieces;
    return BERTH_OK;
}

static berth_status native(berth_device device, void **out)
{
    gpu_device *gpu = berth__gpu_device(device);
    uintptr_t before;
    berth_status status = berth__gpu_enter(gpu, &before);
    if (status != BERTH_OK)
        return status;
    gpu->driver->leave(gpu, before);
    *out = atomic_load(&gpu->context);
    if (*out)
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s has no contexts: its devices are known by number",
                       gpu->driver->title);
}

/* ---- Errors -------------------------------------------------------------------------------------- */

/* Codes after which the device's context does nothing more, the same numbers in both drivers: memory errors
 * that the hardware reports, launches that broke it, a context that is gone, a driver that has left. */
static bool is_lost(int code)
{
    static const int codes[] = {
        GPU_SHUTTING_DOWN, 46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
    for (size_t i = 0; i < BERTH_COUNT_OF(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

berth_status berth__gpu_fail(gpu_device *device, int code, berth_status shortage, const char *what)
{
    const char *words = device->driver->words(code);
    berth_status status = BERTH_DEVICE_ERROR;
    if (code == GPU_OUT_OF_MEMORY) {
        status = shortage;
    } else if (code == GPU_NOT_SUPPORTED) {
        status = BERTH_UNSUPPORTED;
    } else if (is_lost(code)) {
        status = BERTH_DEVICE_LOST;
        if (!atomic_exchange(&device->lost, true) && code != GPU_SHUTTING_DOWN)
            berth__log(BERTH_LOG_ERROR, "%s device %d is lost (%s): everything on it fails from now on",
                       device->driver->title, (int)device->ordinal, words);
    }
    return berth__fail_driver(status, code, words, "%s device %d: %s failed: %s", device->driver->title,
                              (int)device->ordinal, what, words);
}

berth_status berth__gpu_alive(gpu_device *device)
{
    if (BERTH_LIKELY(!atomic_load_explicit(&device->lost, memory_order_relaxed)))
        return BERTH_OK;
    return berth__fail(BERTH_DEVICE_LOST, "%s device %d was lost earlier", device->driver->title,
                       (int)device->ordinal);
}

berth_status berth__gpu_enter(gpu_device *device, uintptr_t *before)
{
    berth_status status = berth__gpu_alive(device);
    if (status != BERTH_OK)
        return status;
    int code = device->driver->enter(device, before);
    return code == GPU_SUCCESS ? BERTH_OK
                               : berth__gpu_fail(device, code, BERTH_OUT_OF_HOST_MEMORY, "making it current");
}

int berth__gpu_own_stream(gpu_device *device, void **out)
{
    *out = atomic_load_explicit(&device->stream, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return GPU_SUCCESS;
    void *made = NULL, *other = NULL;
    int code = device->driver->stream_create(&made);
    if (code != GPU_SUCCESS)
        return code;
    if (!atomic_compare_exchange_strong(&device->stream, &other, made)) {
        (void)device->driver->stream_destroy(made);
        made = other;
    }
    *out = made;
    return GPU_SUCCESS;
}

/* ---- The tables ---------------------------------------------------------------------------------- */

#define GPU_OPERATIONS                                                                                       \
    .struct_size = sizeof(berth__device_ops), .count = berth__gpu_count, .describe = describe,               \
    .native = native, .allocate = berth__gpu_allocate, .release = berth__gpu_release,                        \
    .copy = berth__gpu_copy, .zero = berth__gpu_zero, .stream_create = berth__gpu_stream_create,             \
    .stream_wrap = berth__gpu_stream_wrap, .stream_native = berth__gpu_stream_native,                        \
    .stream_destroy = berth__gpu_stream_destroy, .stream_query = berth__gpu_stream_query,                    \
    .stream_synchronize = berth__gpu_stream_synchronize, .stream_wait_event = berth__gpu_stream_wait_event,  \
    .stream_call = berth__gpu_stream_call, .event_create = berth__gpu_event_create,                          \
    .event_record = berth__gpu_event_record, .event_query = berth__gpu_event_query,                          \
    .event_wait = berth__gpu_event_wait, .event_destroy = berth__gpu_event_destroy,                          \
    .granularity = berth__gpu_granularity, .reserve = berth__gpu_reserve, .unreserve = berth__gpu_unreserve, \
    .map = berth__gpu_map, .unmap = berth__gpu_unmap, .calls_may_use_device = false

const berth__device_ops berth__cuda_device_ops = {.name = "cuda", GPU_OPERATIONS};
const berth__device_ops berth__hip_device_ops = {.name = "hip", GPU_OPERATIONS};

/* CUDA and HIP: their devices, entering and leaving them, and the two tables. */
#include "device/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* One of the two kinds: written once, by its loading. */
struct gpu_kind {
    const gpu_driver *driver;
    int32_t count;
    char why_none[320];
    gpu_device devices[GPU_MOST_DEVICES];
};

gpu_kind berth__cuda_kind = {.driver = &berth__cuda_driver}, berth__hip_kind = {.driver = &berth__hip_driver};

/* ---- Devices ------------------------------------------------------------------------------------- */

/* Neither driver survives a fork: the child's calls would fail, or hang in locks that nobody holds any more. */
static void gpu_lose_all(gpu_kind *kind)
{
    for (int32_t i = 0; i < kind->count; i++)
        atomic_store(&kind->devices[i].lost,
                     "this process was forked from one that had loaded the driver: load it "
                     "in the child only, or start the child with exec");
}

static _Atomic bool gpu_forked; /* we are the child */

static void gpu_lose_in_child(void)
{
    atomic_store(&gpu_forked, true);
    gpu_lose_all(&berth__cuda_kind);
    gpu_lose_all(&berth__hip_kind);
}

static void gpu_load(gpu_kind *kind)
{
    int found = kind->driver->load(kind->why_none, sizeof kind->why_none);
    for (int32_t i = 0; i < found && i < GPU_MOST_DEVICES; i++) {
        gpu_device *device = &kind->devices[i];
        device->driver = kind->driver;
        device->ordinal = i;
        int code = kind->driver->open(device);
        if (code != GPU_SUCCESS) {
            /* Its ordinal stays, so that the others keep theirs; whatever is asked of it fails. */
            berth__log(BERTH_LOG_WARNING, "%s device %d cannot be used: %s", kind->driver->title, (int)i,
                       kind->driver->words(code));
            atomic_store(&device->lost_code, code);
            atomic_store(&device->lost, "it could not be opened");
        }
    }
    kind->count = found < GPU_MOST_DEVICES ? (int32_t)found : GPU_MOST_DEVICES;
    if (kind->count > 0)
        (void)pthread_atfork(NULL, NULL, gpu_lose_in_child);
}

static void gpu_load_cuda(void)
{
    gpu_load(&berth__cuda_kind);
}

static void gpu_load_hip(void)
{
    gpu_load(&berth__hip_kind);
}

berth_status berth__gpu_count(void *self, int32_t *count)
{
    static pthread_once_t cuda_loaded = PTHREAD_ONCE_INIT, hip_loaded = PTHREAD_ONCE_INIT;
    gpu_kind *of = self;
    bool is_cuda = of == &berth__cuda_kind;
    pthread_once(is_cuda ? &cuda_loaded : &hip_loaded, is_cuda ? gpu_load_cuda : gpu_load_hip);
    *count = of->count;
    if (BERTH_LIKELY(of->count > 0))
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s", of->why_none);
}

gpu_device *berth__gpu_device(berth_device device)
{
    return device.kind == BERTH_DEVICE_CUDA ? &berth__cuda_kind.devices[device.ordinal]
                                            : &berth__hip_kind.devices[device.ordinal];
}

static berth_status gpu_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    snprintf(info->name, sizeof info->name, "%s", gpu->name);
    snprintf(info->driver, sizeof info->driver, "%s", gpu->version);
    info->total_bytes = gpu->total_bytes;
    info->memory_kinds =
        1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_WRITE_COMBINED;
    if (gpu->managed)
        info->memory_kinds |= 1u << BERTH_MEMORY_MANAGED;
    info->stream_ordered = gpu->stream_ordered;
    info->virtual_memory = gpu->pieces;
    return BERTH_OK;
}

static berth_status gpu_native(void *self, berth_device device, void **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = berth__gpu_enter(gpu, &visit);
    if (status)
        return status;
    berth__gpu_leave(gpu, &visit);
    *out = atomic_load(&gpu->context);
    if (*out)
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s has no contexts: its devices are known by number",
                       gpu->driver->title);
}

size_t berth__gpu_peers(gpu_device *device, gpu_device *found[GPU_MOST_DEVICES])
{
    gpu_kind *kind = device->driver == berth__cuda_kind.driver ? &berth__cuda_kind : &berth__hip_kind;
    size_t count = 0;
    found[count++] = device;
    for (int32_t i = 0; i < kind->count; i++) {
        gpu_device *other = &kind->devices[i];
        if (other != device && !atomic_load(&other->lost) && device->driver->can_reach(other, device))
            found[count++] = other;
    }
    return count;
}

/* ---- Coming and going ---------------------------------------------------------------------------- */

berth_status berth__gpu_alive(gpu_device *device)
{
    const char *why = atomic_load_explicit(&device->lost, memory_order_acquire);
    if (BERTH_LIKELY(!why))
        return BERTH_OK;
    return berth__fail_driver(BERTH_DEVICE_LOST, atomic_load(&device->lost_code), why,
                              "%s device %d is lost: %s", device->driver->title, (int)device->ordinal, why);
}

static int gpu_come_in(gpu_device *device, gpu_visit *visit)
{
    int code = device->driver->enter(device, &visit->before);
    if (code != GPU_SUCCESS)
        return code;
    /* A graph that somebody captures would take our allocations and questions for its own and break. Ours are not:
     * the driver need not look after them. */
    visit->capture = GPU_CAPTURE_RELAXED;
    device->driver->exchange_capture(&visit->capture);
    return GPU_SUCCESS;
}

berth_status berth__gpu_enter(gpu_device *device, gpu_visit *visit)
{
    berth_status status = berth__gpu_alive(device);
    if (status)
        return status;
    int code = gpu_come_in(device, visit);
    return code == GPU_SUCCESS
               ? BERTH_OK
               : berth__gpu_fail(device, code, BERTH_OUT_OF_DEVICE_MEMORY, "making it current");
}

bool berth__gpu_enter_to_destroy(gpu_device *device, gpu_visit *visit)
{
    if (atomic_load(&gpu_forked))
        return false;
    if (gpu_come_in(device, visit) == GPU_SUCCESS)
        return true;
    device->driver->forget_error();
    return false;
}

void berth__gpu_leave(gpu_device *device, const gpu_visit *visit)
{
    unsigned int mode = visit->capture;
    if (mode != GPU_CAPTURE_RELAXED)
        device->driver->exchange_capture(&mode);
    device->driver->leave(device, visit->before);
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
    .struct_size = sizeof(berth_device_ops), .count = berth__gpu_count, .describe = gpu_describe,            \
    .native = gpu_native, .allocate = berth__gpu_allocate, .release = berth__gpu_release,                    \
    .copy = berth__gpu_copy, .zero = berth__gpu_zero, .stream_create = berth__gpu_stream_create,             \
    .stream_wrap = berth__gpu_stream_wrap, .stream_native = berth__gpu_stream_native,                        \
    .stream_destroy = berth__gpu_stream_destroy, .stream_query = berth__gpu_stream_query,                    \
    .stream_synchronize = berth__gpu_stream_synchronize, .stream_wait_event = berth__gpu_stream_wait_event,  \
    .stream_call = berth__gpu_stream_call, .event_create = berth__gpu_event_create,                          \
    .event_record = berth__gpu_event_record, .event_query = berth__gpu_event_query,                          \
    .event_wait = berth__gpu_event_wait, .event_destroy = berth__gpu_event_destroy,                          \
    .granularity = berth__gpu_granularity, .reserve = berth__gpu_reserve, .unreserve = berth__gpu_unreserve, \
    .map = berth__gpu_map, .unmap = berth__gpu_unmap, .copy_between = berth__gpu_copy_between,               \
    .memory = berth__gpu_memory, .register_host = berth__gpu_register_host,                                  \
    .unregister_host = berth__gpu_unregister_host, .prefetch = berth__gpu_prefetch,                          \
    .advise = berth__gpu_advise, .share = berth__gpu_share, .open_shared = berth__gpu_open_shared,           \
    .close_shared = berth__gpu_close_shared,                                                                 \
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED |     \
                    1u << BERTH_MEMORY_WRITE_COMBINED

const berth_device_ops berth__cuda_device_ops = {.name = "cuda", GPU_OPERATIONS};
const berth_device_ops berth__hip_device_ops = {.name = "hip", GPU_OPERATIONS};

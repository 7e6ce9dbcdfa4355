/* Contexts of OpenCL: one of ours for each device, made on first use, or one of the program's that is adopted;
 * and queues for work without a stream. */
#include <pthread.h>

#include "berth/opencl.h"
#include "device/opencl.h"

/* ---- Contexts: made by whoever comes first, without a lock --------------------------------------- */

/* The driver calls this when something goes wrong that no call answers for. */
static void context_heard(const char *words, const void *details, size_t details_bytes, void *context)
{
    (void)details, (void)details_bytes;
    const ocl_device *device = context;
    berth__log(BERTH_LOG_WARNING, "the driver of OpenCL device %d says: %s", berth__ocl_ordinal(device),
               words ? words : "nothing");
}

berth_status berth__ocl_context(ocl_device *device, ocl_context *out)
{
    *out = atomic_load_explicit(&device->context, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return BERTH_OK;
    if (berth__ocl_ordinal(device) >= berth__ocl_listed_count())
        return berth__ocl_fail_gone(device); /* an adopted one comes with its context */
    int32_t code = OCL_SUCCESS;
    const intptr_t properties[] = {OCL_CONTEXT_PLATFORM, (intptr_t)device->platform, 0};
    ocl_context made = berth__ocl.clCreateContext(properties, 1, &device->id, context_heard, device, &code);
    if (!made)
        return berth__ocl_fail(device, code, "making a context");
    ocl_context other = NULL;
    if (!atomic_compare_exchange_strong(&device->context, &other, made)) {
        (void)berth__ocl.clReleaseContext(made);
        made = other;
    }
    *out = made;
    return BERTH_OK;
}

/* ---- Queues -------------------------------------------------------------------------------------- */

berth_status berth__ocl_new_queue(ocl_device *device, ocl_queue *out)
{
    ocl_context context;
    berth_status status = berth__ocl_context(device, &context);
    if (status)
        return status;
    int32_t code = OCL_SUCCESS;
    *out = device->is_2 && berth__ocl.clCreateCommandQueueWithProperties
               ? berth__ocl.clCreateCommandQueueWithProperties(context, device->id, NULL, &code)
               : berth__ocl.clCreateCommandQueue(context, device->id, 0, &code);
    return *out ? BERTH_OK : berth__ocl_fail(device, code, "making a queue");
}

berth_status berth__ocl_queue_borrow(ocl_device *device, ocl_queue *out)
{
    for (int i = 0; i < OCL_IDLE_QUEUES; i++)
        if (atomic_load_explicit(&device->idle_queues[i], memory_order_relaxed)) {
            *out = atomic_exchange(&device->idle_queues[i], NULL);
            if (*out)
                return BERTH_OK;
        }
    return berth__ocl_new_queue(device, out);
}

/* A queue that nobody needs, or a context that is given back. */
typedef struct surplus {
    ocl_leaving leaving; /* first */
    ocl_queue queue;     /* NULL: none */
    ocl_context context; /* NULL: none */
} surplus;

static void release_surplus(ocl_leaving *leaving)
{
    surplus *left = (surplus *)leaving;
    if (left->queue)
        (void)berth__ocl.clReleaseCommandQueue(left->queue);
    if (left->context)
        (void)berth__ocl.clReleaseContext(left->context);
    berth__heap_free(left);
}

static surplus *new_surplus(void)
{
    surplus *left = berth__heap_zalloc(1, sizeof *left);
    if (left)
        left->leaving.release = release_surplus;
    return left;
}

static void drop_queue(ocl_device *device, ocl_queue queue)
{
    surplus *left = new_surplus();
    if (!left) {
        berth__log(BERTH_LOG_WARNING, "no memory to give a queue of OpenCL device %d back: it stays",
                   berth__ocl_ordinal(device));
        return;
    }
    left->queue = queue;
    berth__ocl_leave(&left->leaving);
}

void berth__ocl_queue_return(ocl_device *device, ocl_queue queue)
{
    for (int i = 0; i < OCL_IDLE_QUEUES; i++) {
        ocl_queue none = NULL;
        if (atomic_compare_exchange_strong(&device->idle_queues[i], &none, queue))
            return;
    }
    drop_queue(device, queue);
}

/* ---- The program's contexts ---------------------------------------------------------------------- */

enum { MOST_OF_ONE = 64 };

static pthread_mutex_t adopt_lock = PTHREAD_MUTEX_INITIALIZER;

bool berth__ocl_places_lock(void)
{
    bool locked = !berth__ocl_is_forked();
    if (locked)
        pthread_mutex_lock(&adopt_lock);
    return locked;
}

void berth__ocl_places_unlock(bool locked)
{
    if (locked)
        pthread_mutex_unlock(&adopt_lock);
}

/* Counted first, then looked at, where berth_opencl_release does it the other way round: one of the two sees the other. Which
 * of them goes on is known once the lock is free, for a context in which something lives stays after all. */
berth_status berth__ocl_hold(ocl_device *device)
{
    atomic_fetch_add(&device->live, 1);
    if (BERTH_LIKELY(!atomic_load(&device->gone)))
        return BERTH_OK;
    bool locked = berth__ocl_places_lock();
    bool gone = atomic_load(&device->gone);
    berth__ocl_places_unlock(locked);
    if (!gone)
        return BERTH_OK;
    berth__ocl_drop(device);
    return berth__ocl_is_forked() ? berth__ocl_alive(device) : berth__ocl_fail_gone(device);
}

void berth__ocl_drop(ocl_device *device)
{
    atomic_fetch_sub(&device->live, 1);
}

static berth_device named(int32_t ordinal)
{
    return (berth_device){BERTH_DEVICE_OPENCL, ordinal};
}

/* What was adopted from `context` before, in order. */
static int32_t find_adopted(ocl_context context, int32_t device_count, berth_device *out, int32_t room)
{
    int32_t found = 0;
    for (int32_t i = berth__ocl_listed_count(); i < device_count; i++)
        if (atomic_load(&berth__ocl_device(named(i))->context) == context) {
            if (found < room)
                out[found] = named(i);
            found++;
        }
    return found;
}

static berth_status list_of_context(ocl_context context, ocl_device_id *ids, uint32_t *count)
{
    size_t bytes = 0;
    int32_t code = berth__ocl.clGetContextInfo(context, OCL_CONTEXT_DEVICES,
                                               MOST_OF_ONE * sizeof(ocl_device_id), (void *)ids, &bytes);
    if (code != OCL_SUCCESS || bytes == 0)
        return berth__fail_driver(BERTH_INVALID_ARGUMENT, code, berth__ocl_words(code),
                                  "the OpenCL context cannot be asked for its devices: %s",
                                  berth__ocl_words(code));
    *count = (uint32_t)(bytes / sizeof(ocl_device_id));
    return BERTH_OK;
}

/* With the lock held; `context` is new. */
static berth_status adopt_devices(ocl_context context)
{
    ocl_device_id ids[MOST_OF_ONE];
    uint32_t count = 0;
    berth_status status = list_of_context(context, ids, &count);
    if (status)
        return status;
    int32_t code = berth__ocl.clRetainContext(context);
    if (code != OCL_SUCCESS)
        return berth__fail_driver(BERTH_DEVICE_ERROR, code, berth__ocl_words(code),
                                  "the OpenCL context cannot be retained: %s", berth__ocl_words(code));
    for (uint32_t i = 0; i < count; i++) {
        ocl_platform platform = NULL;
        (void)berth__ocl.clGetDeviceInfo(ids[i], OCL_DEVICE_PLATFORM, sizeof platform, (void *)&platform,
                                         NULL);
        const ocl_device *device = berth__ocl_add(platform, ids[i], context);
        if (!device) { /* those before it stay: they work, and hold the context */
            if (i == 0)
                (void)berth__ocl.clReleaseContext(context);
            status = berth__fail(BERTH_UNSUPPORTED, "no more OpenCL contexts can be adopted");
            break;
        }
    }
    berth__ocl_publish();
    return status;
}

/* Some drivers (PoCL) list the whole device for a context of its parts, yet give each part queues: such a queue
 * is good on the device that stands for it. */
bool berth__ocl_queue_fits(const ocl_device *device, ocl_context context, ocl_device_id id)
{
    if (atomic_load(&device->context) != context)
        return false;
    if (id == device->id)
        return true;
    int32_t count = 0, first = berth__ocl_listed_count();
    if (berth__ocl_ordinal(device) < first || berth__ocl_count(NULL, &count) != BERTH_OK)
        return false;
    bool others = false; /* a device of its own stands for it */
    bool locked = berth__ocl_places_lock();
    for (int32_t i = first; i < count; i++) {
        const ocl_device *other = berth__ocl_device(named(i));
        others = others || (atomic_load(&other->context) == context && other->id == id);
    }
    berth__ocl_places_unlock(locked);
    return !others;
}

/* ---- Giving them back ---------------------------------------------------------------------------- */

static bool is_of(int32_t ordinal, ocl_context context)
{
    return atomic_load(&berth__ocl_device(named(ordinal))->context) == context;
}

/* With the lock held: its devices refuse calls, or take them again. */
static int64_t set_gone(ocl_context context, int32_t device_count, bool gone)
{
    int64_t live = 0;
    for (int32_t i = berth__ocl_listed_count(); i < device_count; i++)
        if (is_of(i, context)) {
            ocl_device *device = berth__ocl_device(named(i));
            atomic_store(&device->gone, gone);
            live += atomic_load(&device->live);
        }
    return live;
}

static void part_with(ocl_device *device)
{
    atomic_store(&device->lost, true);
    atomic_store(&device->context, NULL);
    for (int i = 0; i < OCL_IDLE_QUEUES; i++) {
        ocl_queue queue = atomic_exchange(&device->idle_queues[i], NULL);
        if (queue)
            drop_queue(device, queue);
    }
}

/* With the lock held. */
static berth_status give_back(ocl_context context)
{
    int32_t device_count = 0;
    (void)berth__ocl_count(NULL, &device_count);
    if (find_adopted(context, device_count, NULL, 0) == 0)
        return berth__fail(BERTH_NOT_FOUND, "the OpenCL context %p is not adopted", (void *)context);
    surplus *left = new_surplus();
    if (!left)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to give an OpenCL context back");
    int64_t live = set_gone(context, device_count, true);
    if (live != 0) {
        (void)set_gone(context, device_count, false);
        berth__heap_free(left);
        return berth__fail(BERTH_BUSY, "%lld blocks and streams of the OpenCL context are still there",
                           (long long)live);
    }
    for (int32_t i = berth__ocl_listed_count(); i < device_count; i++)
        if (is_of(i, context))
            part_with(berth__ocl_device(named(i)));
    left->context = context;
    berth__ocl_leave(&left->leaving); /* not while a user event is unset */
    return BERTH_OK;
}

berth_status berth_opencl_release(void *context)
{
    int32_t device_count = 0;
    if (!context)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the OpenCL context is NULL");
    berth_status status = berth__ocl_count(NULL, &device_count);
    if (!status && berth__ocl_is_forked())
        status = berth__ocl_alive(berth__ocl_device(named(0)));
    if (status)
        return status;
    pthread_mutex_lock(&adopt_lock);
    status = give_back(context);
    pthread_mutex_unlock(&adopt_lock);
    return status;
}

berth_status berth_opencl_adopt(void *context, berth_device *devices, int32_t room, int32_t *count)
{
    if (!context || !count || room < 0 || (room > 0 && !devices))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "adopting an OpenCL context needs the context, count, and room for devices");
    *count = 0;
    int32_t device_count = 0;
    berth_status status = berth__ocl_count(NULL, &device_count);
    if (!status)
        status = berth__ocl_alive(berth__ocl_device(named(0)));
    if (status == BERTH_DEVICE_LOST && !berth__ocl_is_forked())
        status = BERTH_OK; /* the first device is lost: that says nothing of this context */
    if (status)
        return status;
    pthread_mutex_lock(&adopt_lock); /* nothing but the driver's questions runs under it, nor takes a lock */
    (void)berth__ocl_count(NULL, &device_count);
    *count = find_adopted(context, device_count, devices, room);
    if (*count == 0) {
        status = adopt_devices(context);
        (void)berth__ocl_count(NULL, &device_count);
        *count = !status ? find_adopted(context, device_count, devices, room) : 0;
    }
    pthread_mutex_unlock(&adopt_lock);
    return status;
}

/* ---- Which device is which ----------------------------------------------------------------------- */

berth_status berth_opencl_device_find(void *device_id, berth_device *out)
{
    if (!device_id || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", device_id ? "out" : "device_id");
    *out = (berth_device){BERTH_DEVICE_UNKNOWN, 0};
    int32_t count = 0;
    berth_status status = berth__ocl_count(NULL, &count);
    if (status)
        return status;
    bool locked = berth__ocl_places_lock();
    for (int32_t i = 0; i < count && out->kind == BERTH_DEVICE_UNKNOWN; i++)
        if (!atomic_load(&berth__ocl_device(named(i))->gone) &&
            (void *)berth__ocl_device(named(i))->id == device_id)
            *out = named(i);
    berth__ocl_places_unlock(locked);
    if (out->kind != BERTH_DEVICE_UNKNOWN)
        return BERTH_OK;
    return berth__fail(BERTH_NOT_FOUND, "none of the %d OpenCL devices is %p", (int)count, device_id);
}

/* Call with the places locked. */
static berth_status check_opencl(berth_device device)
{
    int32_t count = 0;
    if (device.kind != BERTH_DEVICE_OPENCL)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the device is no OpenCL device");
    berth_status status = berth__ocl_count(NULL, &count);
    if (status)
        return status;
    if (device.ordinal >= 0 && device.ordinal < count && atomic_load(&berth__ocl_device(device)->gone))
        return berth__fail(BERTH_NOT_FOUND, "OpenCL device %d went with its context", (int)device.ordinal);
    if (device.ordinal < 0 || device.ordinal >= count)
        return berth__fail(BERTH_NOT_FOUND, "there is no OpenCL device %d: %d are here", (int)device.ordinal,
                           (int)count);
    return BERTH_OK;
}

berth_status berth_opencl_device_id(berth_device device, void **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    bool locked = berth__ocl_places_lock();
    berth_status status = check_opencl(device);
    if (!status)
        *out = berth__ocl_device(device)->id;
    berth__ocl_places_unlock(locked);
    return status;
}

berth_status berth_opencl_memory(berth_device device, berth_opencl_memory_model *out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = BERTH_OPENCL_NO_POINTERS;
    bool locked = berth__ocl_places_lock();
    berth_status status = check_opencl(device);
    if (!status) {
        const ocl_device *ocl = berth__ocl_device(device);
        *out = ocl->usm ? BERTH_OPENCL_USM : ocl->coarse ? BERTH_OPENCL_SVM : BERTH_OPENCL_NO_POINTERS;
    }
    berth__ocl_places_unlock(locked);
    return status;
}

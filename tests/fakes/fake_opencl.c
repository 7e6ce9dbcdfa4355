/* OpenCL's names over the stand-in, for what PoCL does not have. One platform with three devices: the first
 * has the extension cl_intel_unified_shared_memory and no SVM, the second coarse-grained SVM alone, the third
 * neither. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/opencl.h"
#include "fake_memory.h"

const bool fake_memory_is_hidden = false;

enum {
    DEVICES = 3,
    USM_MOST_BYTES = 256 << 20,
    CL_INVALID = -30,
    CL_INVALID_BUFFER_SIZE = -61,
    MOST_QUEUES = 256,
    MOST_CALLBACKS = 4
};

struct _cl_platform_id { /* NOLINT(bugprone-reserved-identifier): the driver's own tags, here and below */
    int unused;
};
struct _cl_device_id { /* NOLINT(bugprone-reserved-identifier) */
    int number;
};
struct _cl_context { /* NOLINT(bugprone-reserved-identifier) */
    int device;
};
struct _cl_command_queue { /* NOLINT(bugprone-reserved-identifier) */
    void *stream;
    ocl_context context;
    int references; /* guard: events_lock */
};
struct _cl_event {         /* NOLINT(bugprone-reserved-identifier) */
    int references, state; /* guard: events_lock, both */
    int callback_count;    /* guard: events_lock */
    struct {
        void (*fn)(ocl_event_id, int32_t, void *);
        void *context;
    } callbacks[MOST_CALLBACKS];
};

static struct _cl_platform_id platform;
static struct _cl_device_id devices[DEVICES] = {{0}, {1}, {2}};
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t events_changed = PTHREAD_COND_INITIALIZER;
static ocl_queue queues[MOST_QUEUES]; /* guard: events_lock */

#define DECLARE(need, result, name, parameters) FAKE_EXPORT result name parameters;
OCL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(need, result, name, parameters) static result name parameters;
OCL_USM_FUNCTIONS(DECLARE)
#undef DECLARE

#define ENTER()                                       \
    do {                                              \
        int entered = fake_enter(__func__, FAKE_ANY); \
        if (entered != FAKE_OK)                       \
            return entered;                           \
    } while (0)

static int32_t answer(int code)
{
    return code == FAKE_OK              ? OCL_SUCCESS
           : code == FAKE_OUT_OF_MEMORY ? OCL_MEM_OBJECT_ALLOCATION_FAILURE
                                        : CL_INVALID;
}

static int32_t tell(const void *value, size_t bytes, size_t room, void *out, size_t *needed)
{
    if (needed)
        *needed = bytes;
    if (out && room < bytes)
        return CL_INVALID;
    if (out)
        memcpy(out, value, bytes);
    return OCL_SUCCESS;
}

/* ---- Platform and devices -------------------------------------------------------------------------------
 */

int32_t clGetPlatformIDs(uint32_t room, ocl_platform *out, uint32_t *count)
{
    ENTER();
    fake_init();
    if (out && room > 0)
        out[0] = &platform;
    *count = 1;
    return OCL_SUCCESS;
}

int32_t clGetPlatformInfo(ocl_platform p, uint32_t question, size_t room, void *out, size_t *needed)
{
    ENTER();
    (void)p, (void)question;
    return tell("stand-in", 9, room, out, needed);
}

int32_t clGetDeviceIDs(ocl_platform p, uint64_t type, uint32_t room, ocl_device_id *out, uint32_t *count)
{
    ENTER();
    (void)p, (void)type;
    for (uint32_t i = 0; out && i < room && i < DEVICES; i++)
        out[i] = &devices[i];
    *count = DEVICES;
    return OCL_SUCCESS;
}

int32_t clGetDeviceInfo(ocl_device_id device, uint32_t question, size_t room, void *out, size_t *needed)
{
    ENTER();
    const uint32_t yes = 1;
    const uint64_t bytes = (uint64_t)1 << 30, coarse = OCL_SVM_COARSE,
                   most = device->number == 0 ? USM_MOST_BYTES : bytes;
    const char *extensions =
        device->number == 0 ? "cl_khr_fp64 cl_intel_unified_shared_memory" : "cl_khr_fp64";
    switch (question) {
    case OCL_DEVICE_AVAILABLE:
        return tell(&yes, sizeof yes, room, out, needed);
    case OCL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return tell(&most, sizeof most, room, out, needed);
    case OCL_DEVICE_GLOBAL_MEM_SIZE:
        return tell(&bytes, sizeof bytes, room, out, needed);
    case OCL_DEVICE_EXTENSIONS:
        return tell(extensions, strlen(extensions) + 1, room, out, needed);
    case OCL_DEVICE_SVM_CAPABILITIES: /* before OpenCL 2.0 even the question is an error */
        return device->number == 1 ? tell(&coarse, sizeof coarse, room, out, needed) : CL_INVALID;
    default:
        return tell("stand-in", 9, room, out, needed);
    }
}

void *clGetExtensionFunctionAddressForPlatform(ocl_platform p, const char *name)
{
    (void)p;
#define FIND(need, result, function, parameters) \
    if (strcmp(name, #function) == 0) {          \
        result(*address) parameters = function;  \
        void *found;                             \
        memcpy(&found, &address, sizeof found);  \
        return found;                            \
    }
    OCL_USM_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

ocl_context clCreateContext(const intptr_t *properties, uint32_t count, const ocl_device_id *list,
                            void (*notify)(const char *, const void *, size_t, void *), void *context,
                            int32_t *code)
{
    (void)notify, (void)context;
    *code = properties && count == 1 ? fake_enter(__func__, FAKE_ANY) : CL_INVALID;
    if (*code != OCL_SUCCESS)
        return NULL;
    ocl_context made = malloc(sizeof *made);
    if (made)
        made->device = list[0]->number;
    return made;
}

int32_t clReleaseContext(ocl_context context)
{
    ENTER();
    free(context);
    return OCL_SUCCESS;
}

int32_t clRetainContext(ocl_context context)
{
    ENTER();
    (void)context;
    return CL_INVALID; /* nobody has one but berth */
}

int32_t clGetContextInfo(ocl_context context, uint32_t question, size_t room, void *out, size_t *needed)
{
    ENTER();
    ocl_device_id id = &devices[context->device];
    return question == OCL_CONTEXT_DEVICES ? tell((const void *)&id, sizeof id, room, out, needed)
                                           : CL_INVALID;
}

/* ---- Queues ---------------------------------------------------------------------------------------------
 */

ocl_queue clCreateCommandQueueWithProperties(ocl_context context, ocl_device_id device,
                                             const uint64_t *properties, int32_t *code)
{
    (void)properties;
    *code = fake_enter(__func__, FAKE_INIT);
    ocl_queue queue = *code == OCL_SUCCESS ? calloc(1, sizeof *queue) : NULL;
    if (!queue)
        return NULL;
    *code = answer(fake_stream_create(device->number % FAKE_DEVICES, &queue->stream));
    queue->context = context;
    queue->references = 1;
    pthread_mutex_lock(&events_lock);
    for (int i = 0; i < MOST_QUEUES; i++)
        if (!queues[i]) {
            queues[i] = queue;
            break;
        }
    pthread_mutex_unlock(&events_lock);
    return queue;
}

ocl_queue clCreateCommandQueue(ocl_context context, ocl_device_id device, uint64_t properties, int32_t *code)
{
    (void)properties;
    return clCreateCommandQueueWithProperties(context, device, NULL, code);
}

int32_t clRetainCommandQueue(ocl_queue queue)
{
    ENTER();
    pthread_mutex_lock(&events_lock);
    queue->references++;
    pthread_mutex_unlock(&events_lock);
    return OCL_SUCCESS;
}

int32_t clReleaseCommandQueue(ocl_queue queue)
{
    ENTER();
    pthread_mutex_lock(&events_lock);
    bool last = --queue->references == 0;
    for (int i = 0; last && i < MOST_QUEUES; i++)
        if (queues[i] == queue)
            queues[i] = NULL;
    pthread_mutex_unlock(&events_lock);
    if (!last)
        return OCL_SUCCESS;
    int code = fake_stream_destroy(queue->stream);
    free(queue);
    return answer(code);
}

int32_t clGetCommandQueueInfo(ocl_queue queue, uint32_t question, size_t room, void *out, size_t *needed)
{
    ENTER();
    const uint64_t in_order = 0;
    ocl_device_id id = &devices[queue->context->device];
    switch (question) {
    case OCL_QUEUE_CONTEXT:
        return tell((const void *)&queue->context, sizeof queue->context, room, out, needed);
    case OCL_QUEUE_DEVICE:
        return tell((const void *)&id, sizeof id, room, out, needed);
    default:
        return tell(&in_order, sizeof in_order, room, out, needed);
    }
}

int32_t clFlush(ocl_queue queue)
{
    ENTER();
    (void)queue;
    return OCL_SUCCESS;
}

int32_t clFinish(ocl_queue queue)
{
    ENTER();
    return answer(fake_stream_synchronize(queue->stream));
}

/* ---- Events ---------------------------------------------------------------------------------------------
 */

static ocl_event_id new_event(int references)
{
    ocl_event_id event = calloc(1, sizeof *event);
    if (event) {
        event->references = references;
        event->state = 2; /* submitted */
    }
    return event;
}

static void drop_event(ocl_event_id event)
{
    pthread_mutex_lock(&events_lock);
    bool last = --event->references == 0;
    pthread_mutex_unlock(&events_lock);
    if (last)
        free(event);
}

static void complete(ocl_event_id event, int32_t state)
{
    pthread_mutex_lock(&events_lock);
    event->state = state;
    int count = event->callback_count;
    pthread_cond_broadcast(&events_changed);
    pthread_mutex_unlock(&events_lock);
    for (int i = 0; i < count; i++)
        event->callbacks[i].fn(event, state, event->callbacks[i].context);
}

static void wait_for(ocl_event_id event)
{
    pthread_mutex_lock(&events_lock);
    while (event->state > OCL_COMPLETE)
        pthread_cond_wait(&events_changed, &events_lock);
    pthread_mutex_unlock(&events_lock);
}

static void run_marker(void *context)
{
    complete(context, OCL_COMPLETE);
    drop_event(context);
}

static void run_barrier(void *context)
{
    wait_for(context);
    drop_event(context);
}

int32_t clEnqueueMarkerWithWaitList(ocl_queue queue, uint32_t count, const ocl_event_id *list,
                                    ocl_event_id *out)
{
    ENTER();
    (void)list;
    if (count != 0 || !out)
        return CL_INVALID; /* not needed here */
    ocl_event_id event = new_event(2);
    if (!event)
        return OCL_OUT_OF_HOST_MEMORY;
    *out = event;
    return answer(fake_stream_call(queue->stream, run_marker, event));
}

int32_t clEnqueueBarrierWithWaitList(ocl_queue queue, uint32_t count, const ocl_event_id *list,
                                     ocl_event_id *out)
{
    ENTER();
    (void)out;
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&events_lock);
        list[i]->references++;
        pthread_mutex_unlock(&events_lock);
        (void)fake_stream_call(queue->stream, run_barrier, list[i]);
    }
    return OCL_SUCCESS;
}

int32_t clGetEventInfo(ocl_event_id event, uint32_t question, size_t room, void *out, size_t *needed)
{
    ENTER();
    (void)question;
    pthread_mutex_lock(&events_lock);
    int32_t state = event->state;
    pthread_mutex_unlock(&events_lock);
    return tell(&state, sizeof state, room, out, needed);
}

int32_t clWaitForEvents(uint32_t count, const ocl_event_id *list)
{
    ENTER();
    for (uint32_t i = 0; i < count; i++)
        wait_for(list[i]);
    return OCL_SUCCESS;
}

int32_t clReleaseEvent(ocl_event_id event)
{
    drop_event(event);
    return OCL_SUCCESS;
}

int32_t clSetEventCallback(ocl_event_id event, int32_t at, void (*fn)(ocl_event_id, int32_t, void *),
                           void *context)
{
    ENTER();
    (void)at;
    pthread_mutex_lock(&events_lock);
    bool late = event->state <= OCL_COMPLETE;
    if (!late) {
        event->callbacks[event->callback_count].fn = fn;
        event->callbacks[event->callback_count++].context = context;
    }
    pthread_mutex_unlock(&events_lock);
    if (late)
        fn(event, OCL_COMPLETE, context);
    return OCL_SUCCESS;
}

ocl_event_id clCreateUserEvent(ocl_context context, int32_t *code)
{
    (void)context;
    *code = fake_enter(__func__, FAKE_INIT);
    return *code == OCL_SUCCESS ? new_event(1) : NULL;
}

int32_t clSetUserEventStatus(ocl_event_id event, int32_t state)
{
    complete(event, state);
    return OCL_SUCCESS;
}

/* ---- Shared virtual memory ------------------------------------------------------------------------------
 */

void *clSVMAlloc(ocl_context context, uint64_t flags, size_t size_bytes, uint32_t alignment)
{
    void *p = NULL;
    bool plain = flags == OCL_MEM_READ_WRITE && alignment == 0 && context->device == 1;
    if (fake_enter(__func__, FAKE_INIT) == FAKE_OK && plain)
        (void)fake_take(0, FAKE_ASYNC_BLOCK, size_bytes, NULL, &p);
    return p;
}

void clSVMFree(ocl_context context, void *p)
{
    (void)context;
    (void)fake_give(p, false, NULL, false);
}

int32_t clEnqueueSVMFree(ocl_queue queue, uint32_t count, void **list,
                         void (*fn)(ocl_queue, uint32_t, void **, void *), void *context, uint32_t waits,
                         const ocl_event_id *events, ocl_event_id *out)
{
    ENTER();
    (void)context, (void)events, (void)out;
    /* Queues are in order here: what it waits for is before it. */
    return count == 1 && !fn && waits <= 1 ? answer(fake_give(list[0], false, queue->stream, true))
                                           : CL_INVALID;
}

/* The command's event, if wanted: a marker behind it. */
static int32_t event_behind(ocl_queue queue, ocl_event_id *out)
{
    if (!out)
        return OCL_SUCCESS;
    ocl_event_id event = new_event(2);
    if (!event)
        return OCL_OUT_OF_HOST_MEMORY;
    *out = event;
    return answer(fake_stream_call(queue->stream, run_marker, event));
}

static int32_t copy(ocl_queue queue, uint32_t blocking, void *dst, const void *src, size_t size_bytes,
                    ocl_event_id *out)
{
    int code = fake_copy(dst, src, size_bytes, queue->stream, false);
    if (code == FAKE_OK && blocking)
        code = fake_stream_synchronize(queue->stream);
    return code == FAKE_OK ? event_behind(queue, out) : answer(code);
}

int32_t clEnqueueSVMMemcpy(ocl_queue queue, uint32_t blocking, void *dst, const void *src, size_t size_bytes,
                           uint32_t waits, const ocl_event_id *events, ocl_event_id *out)
{
    ENTER();
    (void)waits, (void)events; /* in order */
    return copy(queue, blocking, dst, src, size_bytes, out);
}

int32_t clEnqueueSVMMemFill(ocl_queue queue, void *dst, const void *pattern, size_t pattern_bytes,
                            size_t size_bytes, uint32_t waits, const ocl_event_id *events, ocl_event_id *out)
{
    ENTER();
    (void)pattern_bytes, (void)waits, (void)events, (void)out;
    fake_lock();
    bool ours = fake_is_block(dst);
    if (!ours)
        (void)fake_misuse(CL_INVALID, "memory that is not shared is filled as if it were");
    fake_unlock();
    return ours ? answer(fake_fill(dst, *(const char *)pattern, size_bytes, queue->stream)) : CL_INVALID;
}

int32_t clEnqueueSVMMap(ocl_queue queue, uint32_t blocking, uint64_t flags, void *p, size_t size_bytes,
                        uint32_t waits, const ocl_event_id *events, ocl_event_id *out)
{
    ENTER();
    (void)flags, (void)size_bytes, (void)waits, (void)events, (void)out;
    fake_lock();
    bool ours = fake_is_block(p);
    fake_unlock();
    return ours && blocking ? answer(fake_stream_synchronize(queue->stream)) : CL_INVALID;
}

int32_t clEnqueueSVMUnmap(ocl_queue queue, void *p, uint32_t waits, const ocl_event_id *events,
                          ocl_event_id *out)
{
    ENTER();
    (void)queue, (void)p, (void)waits, (void)events, (void)out;
    return OCL_SUCCESS;
}

/* ---- Buffers: pinned memory alone ------------------------------------------------------------------------
 */

struct _cl_mem { /* NOLINT(bugprone-reserved-identifier) */
    void *p;
    bool mapped;
};

ocl_mem clCreateBuffer(ocl_context context, uint64_t flags, size_t size_bytes, void *host, int32_t *code)
{
    *code = fake_enter(__func__, FAKE_INIT);
    ocl_mem made = NULL;
    if (*code == OCL_SUCCESS && (flags != (OCL_MEM_READ_WRITE | OCL_MEM_ALLOC_HOST_PTR) || host))
        *code = CL_INVALID;
    if (*code == OCL_SUCCESS)
        made = calloc(1, sizeof *made);
    if (made)
        *code =
            answer(fake_take(context->device % FAKE_DEVICES, FAKE_HOST_BLOCK, size_bytes, NULL, &made->p));
    if (made && *code != OCL_SUCCESS) {
        free(made);
        made = NULL;
    }
    return made;
}

void *clEnqueueMapBuffer(ocl_queue queue, ocl_mem buffer, uint32_t blocking, uint64_t flags, size_t from,
                         size_t size_bytes, uint32_t waits, const ocl_event_id *events, ocl_event_id *out,
                         int32_t *code)
{
    (void)queue, (void)flags, (void)size_bytes, (void)events, (void)out;
    *code = fake_enter(__func__, FAKE_INIT);
    if (*code == OCL_SUCCESS && (!blocking || from != 0 || waits != 0 || buffer->mapped))
        *code = CL_INVALID;
    if (*code != OCL_SUCCESS)
        return NULL;
    buffer->mapped = true;
    return buffer->p;
}

int32_t clEnqueueUnmapMemObject(ocl_queue queue, ocl_mem buffer, void *p, uint32_t waits,
                                const ocl_event_id *events, ocl_event_id *out)
{
    ENTER();
    (void)queue, (void)waits, (void)events, (void)out;
    if (!buffer->mapped || p != buffer->p)
        return CL_INVALID;
    buffer->mapped = false;
    return OCL_SUCCESS;
}

int32_t clReleaseMemObject(ocl_mem buffer)
{
    ENTER();
    int code = fake_give(buffer->p, true, NULL, false);
    free(buffer);
    return answer(code);
}

/* ---- The extension --------------------------------------------------------------------------------------
 */

static bool allows_any_size(const uint64_t *properties)
{
    return properties && properties[0] == OCL_MEM_FLAGS_INTEL &&
           properties[1] == OCL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL && properties[2] == 0;
}

static void *usm_take(const char *function, ocl_context context, fake_kind kind, const uint64_t *properties,
                      size_t size_bytes, int32_t *code)
{
    void *p = NULL;
    *code = fake_enter(function, FAKE_INIT);
    if (*code == OCL_SUCCESS && (context->device != 0 || (properties && !allows_any_size(properties))))
        *code = CL_INVALID;
    if (*code == OCL_SUCCESS && !properties && size_bytes > USM_MOST_BYTES)
        *code = CL_INVALID_BUFFER_SIZE;
    if (*code == OCL_SUCCESS)
        *code = answer(fake_take(0, kind, size_bytes, NULL, &p));
    return p;
}

static void *clHostMemAllocINTEL(ocl_context context, const uint64_t *properties, size_t size_bytes,
                                 uint32_t alignment, int32_t *code)
{
    (void)alignment;
    return usm_take(__func__, context, FAKE_HOST_BLOCK, properties, size_bytes, code);
}

static void *clDeviceMemAllocINTEL(ocl_context context, ocl_device_id device, const uint64_t *properties,
                                   size_t size_bytes, uint32_t alignment, int32_t *code)
{
    (void)device, (void)alignment;
    return usm_take(__func__, context, FAKE_DEVICE_BLOCK, properties, size_bytes, code);
}

static void *clSharedMemAllocINTEL(ocl_context context, ocl_device_id device, const uint64_t *properties,
                                   size_t size_bytes, uint32_t alignment, int32_t *code)
{
    (void)device, (void)alignment;
    return usm_take(__func__, context, FAKE_MANAGED_BLOCK, properties, size_bytes, code);
}

/* Waits for whatever may use the block. */
static int32_t clMemBlockingFreeINTEL(ocl_context context, void *p)
{
    ENTER();
    (void)context;
    for (int i = 0; i < MOST_QUEUES; i++) {
        pthread_mutex_lock(&events_lock);
        ocl_queue queue = queues[i];
        if (queue)
            queue->references++;
        pthread_mutex_unlock(&events_lock);
        if (queue) {
            (void)fake_stream_wait_for_block(queue->stream, p);
            (void)clReleaseCommandQueue(queue);
        }
    }
    fake_lock();
    int code = fake_free_block(p, fake_is_host_block(p), false);
    fake_unlock();
    return answer(code);
}

static int32_t clEnqueueMemFillINTEL(ocl_queue queue, void *dst, const void *pattern, size_t pattern_bytes,
                                     size_t size_bytes, uint32_t waits, const ocl_event_id *events,
                                     ocl_event_id *out)
{
    ENTER();
    (void)pattern_bytes, (void)waits, (void)events, (void)out;
    return answer(fake_fill(dst, *(const char *)pattern, size_bytes, queue->stream));
}

static int32_t clEnqueueMemcpyINTEL(ocl_queue queue, uint32_t blocking, void *dst, const void *src,
                                    size_t size_bytes, uint32_t waits, const ocl_event_id *events,
                                    ocl_event_id *out)
{
    ENTER();
    (void)waits, (void)events; /* in order */
    return copy(queue, blocking, dst, src, size_bytes, out);
}

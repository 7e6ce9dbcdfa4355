/* The driver's functions that the shim does not simply pass on. Those that are not here are found in the real
 * loader, which this library is linked with. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* The real function, with its own type. */
#define NEXT(function) ((__typeof__(&(function)))shim_next(#function))
#define ENTER(function)                         \
    do {                                        \
        cl_int entered = shim_enter(#function); \
        if (entered != CL_SUCCESS)              \
            return entered;                     \
    } while (0)

/* ---- Devices and contexts ------------------------------------------------------------------------ */

static cl_int tell(const void *value, size_t bytes, size_t room, void *out, size_t *needed)
{
    if (needed)
        *needed = bytes;
    if (out && room < bytes)
        return CL_INVALID_VALUE;
    if (out)
        memcpy(out, value, bytes);
    return CL_SUCCESS;
}

SHIM_EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info question, size_t room, void *out,
                                   size_t *needed)
{
    const shim_settings now = shim_settings_now();
    const cl_device_svm_capabilities coarse = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    const cl_ulong most = now.most_bytes;
    ENTER(clGetDeviceInfo);
    if (question == CL_DEVICE_SVM_CAPABILITIES && now.nosvm)
        return CL_INVALID_VALUE; /* before OpenCL 2.0 the question itself is an error */
    if (question == CL_DEVICE_SVM_CAPABILITIES && now.coarse)
        return tell(&coarse, sizeof coarse, room, out, needed);
    if (question == CL_DEVICE_MAX_MEM_ALLOC_SIZE && now.most_bytes && now.honest)
        return tell(&most, sizeof most, room, out, needed);
    return NEXT(clGetDeviceInfo)(device, question, room, out, needed);
}

static void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
static void *notify_context;

SHIM_EXPORT cl_context clCreateContext(const cl_context_properties *properties, cl_uint count,
                                       const cl_device_id *devices,
                                       void(CL_CALLBACK *fn)(const char *, const void *, size_t, void *),
                                       void *context, cl_int *code)
{
    cl_int entered = shim_enter("clCreateContext");
    if (entered != CL_SUCCESS) {
        *code = entered;
        return NULL;
    }
    notify = fn;
    notify_context = context;
    return NEXT(clCreateContext)(properties, count, devices, fn, context, code);
}

void shim_notify(const char *words)
{
    if (notify)
        notify(words, NULL, 0, notify_context);
}

SHIM_EXPORT cl_int clReleaseContext(cl_context context)
{
    ENTER(clReleaseContext);
    shim_check_release(context, "context");
    return NEXT(clReleaseContext)(context);
}

/* ---- Queues -------------------------------------------------------------------------------------- */

SHIM_EXPORT cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                                const cl_queue_properties *properties,
                                                                cl_int *code)
{
    *code = shim_enter("clCreateCommandQueueWithProperties");
    return *code == CL_SUCCESS ? NEXT(clCreateCommandQueueWithProperties)(context, device, properties, code)
                               : NULL;
}

SHIM_EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    cl_context context = NULL;
    cl_uint references = 0;
    ENTER(clReleaseCommandQueue);
    (void)NEXT(clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof context, (void *)&context, NULL);
    (void)NEXT(clGetCommandQueueInfo)(queue, CL_QUEUE_REFERENCE_COUNT, sizeof references, &references, NULL);
    shim_check_release(context, "queue");
    if (references == 1)
        shim_forget_queue(queue);
    return NEXT(clReleaseCommandQueue)(queue);
}

SHIM_EXPORT cl_int clFlush(cl_command_queue queue)
{
    ENTER(clFlush);
    (void)shim_flushed(queue);
    return NEXT(clFlush)(queue);
}

SHIM_EXPORT cl_int clFinish(cl_command_queue queue)
{
    ENTER(clFinish);
    long last = shim_flushed(queue);
    cl_int code = NEXT(clFinish)(queue);
    shim_finished(queue, last);
    return code;
}

/* ---- Events -------------------------------------------------------------------------------------- */

SHIM_EXPORT cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event *list,
                                               cl_event *out)
{
    ENTER(clEnqueueMarkerWithWaitList);
    shim_check_waits(queue, waits, list);
    cl_int code = NEXT(clEnqueueMarkerWithWaitList)(queue, waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, shim_take_marker_code(), false);
    return code;
}

SHIM_EXPORT cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event *list,
                                                cl_event *out)
{
    ENTER(clEnqueueBarrierWithWaitList);
    shim_check_waits(queue, waits, list);
    cl_int code = NEXT(clEnqueueBarrierWithWaitList)(queue, waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, CL_SUCCESS, false);
    return code;
}

SHIM_EXPORT cl_int clGetEventInfo(cl_event event, cl_event_info question, size_t room, void *out,
                                  size_t *needed)
{
    ENTER(clGetEventInfo);
    cl_int code = NEXT(clGetEventInfo)(event, question, room, out, needed);
    if (code == CL_SUCCESS && question == CL_EVENT_COMMAND_EXECUTION_STATUS && out) {
        cl_int status;
        shim_check_asked(event);
        memcpy(&status, out, sizeof status);
        status = shim_status(event, status);
        memcpy(out, &status, sizeof status);
    }
    return code;
}

SHIM_EXPORT cl_int clWaitForEvents(cl_uint count, const cl_event *list)
{
    ENTER(clWaitForEvents);
    shim_wait_flushes(count, list);
    cl_int code = NEXT(clWaitForEvents)(count, list);
    for (cl_uint i = 0; i < count; i++)
        if (shim_waited(list[i]) != CL_SUCCESS)
            code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    return code;
}

SHIM_EXPORT cl_int clReleaseEvent(cl_event event)
{
    cl_uint references = 0;
    ENTER(clReleaseEvent);
    (void)NEXT(clGetEventInfo)(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL);
    if (references == 1)
        shim_forget_event(event);
    return NEXT(clReleaseEvent)(event);
}

SHIM_EXPORT cl_int clSetEventCallback(cl_event event, cl_int at,
                                      void(CL_CALLBACK *fn)(cl_event, cl_int, void *), void *context)
{
    ENTER(clSetEventCallback);
    return NEXT(clSetEventCallback)(event, at, fn, context);
}

SHIM_EXPORT cl_event clCreateUserEvent(cl_context context, cl_int *code)
{
    *code = shim_enter("clCreateUserEvent");
    cl_event made = *code == CL_SUCCESS ? NEXT(clCreateUserEvent)(context, code) : NULL;
    if (made)
        shim_user_event(context, made, false);
    return made;
}

SHIM_EXPORT cl_int clSetUserEventStatus(cl_event event, cl_int status)
{
    ENTER(clSetUserEventStatus);
    shim_user_event(NULL, event, true);
    return NEXT(clSetUserEventStatus)(event, status);
}

/* ---- Buffers ------------------------------------------------------------------------------------- */

SHIM_EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size_bytes, void *host,
                                  cl_int *code)
{
    const shim_settings now = shim_settings_now();
    *code = shim_enter("clCreateBuffer");
    if (*code == CL_SUCCESS && now.most_bytes && size_bytes > now.most_bytes)
        *code = CL_INVALID_BUFFER_SIZE;
    return *code == CL_SUCCESS ? NEXT(clCreateBuffer)(context, flags, size_bytes, host, code) : NULL;
}

SHIM_EXPORT cl_int clReleaseMemObject(cl_mem buffer)
{
    cl_context context = NULL;
    cl_uint maps = 0;
    ENTER(clReleaseMemObject);
    (void)NEXT(clGetMemObjectInfo)(buffer, CL_MEM_CONTEXT, sizeof context, (void *)&context, NULL);
    (void)NEXT(clGetMemObjectInfo)(buffer, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL);
    shim_check_release(context, "buffer");
    if (maps != 0)
        shim_complain("a buffer is released while it is mapped");
    return NEXT(clReleaseMemObject)(buffer);
}

SHIM_EXPORT void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                     cl_map_flags flags, size_t from, size_t size_bytes, cl_uint waits,
                                     const cl_event *list, cl_event *out, cl_int *code)
{
    *code = shim_enter("clEnqueueMapBuffer");
    return *code == CL_SUCCESS ? NEXT(clEnqueueMapBuffer)(queue, buffer, blocking, flags, from, size_bytes,
                                                          waits, list, out, code)
                               : NULL;
}

SHIM_EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void *p, cl_uint waits,
                                           const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueUnmapMemObject);
    return NEXT(clEnqueueUnmapMemObject)(queue, buffer, p, waits, list, out);
}

/* ---- Shared memory ------------------------------------------------------------------------------- */

SHIM_EXPORT void *clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size_bytes, cl_uint alignment)
{
    const shim_settings now = shim_settings_now();
    if (shim_enter("clSVMAlloc") != CL_SUCCESS || (now.most_bytes && size_bytes > now.most_bytes) ||
        now.nosvm || (now.coarse && flags & CL_MEM_SVM_FINE_GRAIN_BUFFER))
        return NULL;
    void *real = NEXT(clSVMAlloc)(context, flags, size_bytes, alignment), *shown = real;
    if (!real)
        return NULL;
    if (now.coarse) {
        shown = mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (shown == MAP_FAILED)
            shim_complain("no address space for %zu bytes", size_bytes);
    }
    shim_block_add(context, shown, real, size_bytes);
    return shown;
}

SHIM_EXPORT void clSVMFree(cl_context context, void *p)
{
    (void)shim_enter("clSVMFree");
    if (p)
        NEXT(clSVMFree)(context, shim_block_remove(context, p));
}

static void CL_CALLBACK dawdle(void *argument)
{
    long micros;
    memcpy(&micros, argument, sizeof micros);
    const struct timespec a_while = {0, micros * 1000};
    nanosleep(&a_while, NULL);
}

/* Mode slow: something that takes a while, which the command then waits for. */
static cl_event delay(cl_command_queue queue, cl_uint waits, const cl_event *list)
{
    static _Atomic unsigned turn;
    long micros = ++turn % 2 ? 1500 : 20;
    cl_event done = NULL;
    if (NEXT(clEnqueueNativeKernel)(queue, dawdle, &micros, sizeof micros, 0, NULL, NULL, waits, list,
                                    &done) != CL_SUCCESS)
        shim_complain("the driver runs no native kernels, which mode slow needs");
    return done;
}

/* What every command here does: checks, waits in mode slow, runs `call`, is counted. */
#define COMMAND(queue, blocking, waits, list, out, call)                               \
    do {                                                                               \
        shim_check_waits(queue, waits, list);                                          \
        cl_event slowly = shim_settings_now().slow ? delay(queue, waits, list) : NULL; \
        if (slowly) {                                                                  \
            (waits) = 1;                                                               \
            (list) = &slowly;                                                          \
        }                                                                              \
        cl_int answered = (call);                                                      \
        if (slowly)                                                                    \
            (void)NEXT(clReleaseEvent)(slowly);                                        \
        if (answered == CL_SUCCESS)                                                    \
            shim_command(queue, (out) ? *(out) : NULL, CL_SUCCESS, blocking);          \
        return answered;                                                               \
    } while (0)

SHIM_EXPORT cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint count, void *list_of_blocks[],
                                    void(CL_CALLBACK *fn)(cl_command_queue, cl_uint, void **, void *),
                                    void *context, cl_uint waits, const cl_event *list, cl_event *out)
{
    cl_context owner = NULL;
    ENTER(clEnqueueSVMFree);
    if (count != 1 || fn)
        shim_complain("the shim frees one block at a time, without a function");
    (void)NEXT(clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof owner, (void *)&owner, NULL);
    void *real = shim_block_remove(owner, list_of_blocks[0]);
    shim_check_waits(queue, waits, list);
    cl_int code = NEXT(clEnqueueSVMFree)(queue, 1, &real, NULL, context, waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, CL_SUCCESS, false);
    return code;
}

SHIM_EXPORT cl_int clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *dst, const void *src,
                                      size_t size_bytes, cl_uint waits, const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueSVMMemcpy);
    void *real_dst = shim_real(queue, dst, size_bytes, false);
    const void *real_src = shim_real(queue, src, size_bytes, false);
    COMMAND(queue, blocking, waits, list, out,
            NEXT(clEnqueueSVMMemcpy)(queue, blocking, real_dst, real_src, size_bytes, waits, list, out));
}

SHIM_EXPORT cl_int clEnqueueSVMMemFill(cl_command_queue queue, void *dst, const void *pattern,
                                       size_t pattern_bytes, size_t size_bytes, cl_uint waits,
                                       const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueSVMMemFill);
    void *real = shim_real(queue, dst, size_bytes, true);
    if ((uintptr_t)dst % pattern_bytes != 0 || size_bytes % pattern_bytes != 0)
        shim_complain("a fill of %zu bytes at %p is not in steps of %zu", size_bytes, dst, pattern_bytes);
    COMMAND(queue, false, waits, list, out,
            NEXT(clEnqueueSVMMemFill)(queue, real, pattern, pattern_bytes, size_bytes, waits, list, out));
}

static _Atomic uint64_t last_map_flags;

uint64_t shim_map_flags(void)
{
    return last_map_flags;
}

SHIM_EXPORT cl_int clEnqueueSVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags, void *p,
                                   size_t size_bytes, cl_uint waits, const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueSVMMap);
    if (!blocking)
        shim_complain("the shim maps blockingly only");
    last_map_flags = flags;
    shim_check_waits(queue, waits, list);
    void *real = shim_real(queue, p, size_bytes, true);
    cl_int code = NEXT(clEnqueueSVMMap)(queue, blocking, flags, real, size_bytes, waits, list, out);
    if (code != CL_SUCCESS)
        return code;
    shim_command(queue, out ? *out : NULL, CL_SUCCESS, true);
    shim_map_range(p, size_bytes, (flags & CL_MAP_WRITE_INVALIDATE_REGION) != 0);
    return CL_SUCCESS;
}

SHIM_EXPORT cl_int clEnqueueSVMUnmap(cl_command_queue queue, void *p, cl_uint waits, const cl_event *list,
                                     cl_event *out)
{
    ENTER(clEnqueueSVMUnmap);
    shim_check_waits(queue, waits, list);
    shim_unmap_range(p);
    cl_int code = NEXT(clEnqueueSVMUnmap)(queue, shim_real(queue, p, 1, true), waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, CL_SUCCESS, false);
    return code;
}

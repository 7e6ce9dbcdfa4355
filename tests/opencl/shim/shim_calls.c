/* The driver's functions that the shim does not simply pass on. Those that are not here are found in the real
 * loader, which this library is linked with. */
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A driver of OpenCL 1.2 has no such function: a loader may well jump to nowhere. */
static void needs_2(const char *function)
{
    if (shim_settings_now().nosvm)
        shim_complain("%s is called for a device of OpenCL 1.2", function);
}

static void needs_svm(const char *function)
{
    needs_2(function);
    if (shim_settings_now().usm)
        shim_complain("%s is called for a device without shared virtual memory", function);
}

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

static cl_int tell_extensions(cl_device_id device, size_t room, void *out, size_t *needed)
{
    char real[4096] = "", words[8192];
    cl_int code = NEXT(clGetDeviceInfo)(device, CL_DEVICE_EXTENSIONS, sizeof real, real, NULL);
    snprintf(words, sizeof words, "%s cl_intel_unified_shared_memory", real);
    return code == CL_SUCCESS ? tell(words, strlen(words) + 1, room, out, needed) : code;
}

SHIM_EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info question, size_t room, void *out,
                                   size_t *needed)
{
    const shim_settings now = shim_settings_now();
    const cl_device_svm_capabilities coarse = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, none = 0;
    const cl_ulong most = now.most_bytes;
    const cl_uint align_bits = (cl_uint)(now.align_bytes * 8);
    const char *version = now.old ? "OpenCL 1.1 shim" : "OpenCL 1.2 shim";
    ENTER(clGetDeviceInfo);
    if (question == CL_DEVICE_VERSION && (now.nosvm || now.old))
        return tell(version, strlen(version) + 1, room, out, needed);
    if (question == CL_DEVICE_EXTENSIONS && now.usm)
        return tell_extensions(device, room, out, needed);
    if (question == CL_DEVICE_SVM_CAPABILITIES && now.usm)
        return tell(&none, sizeof none, room, out, needed);
    if (question == CL_DEVICE_MEM_BASE_ADDR_ALIGN && now.align_bytes)
        return tell(&align_bits, sizeof align_bits, room, out, needed);
    if (question == CL_DEVICE_SVM_CAPABILITIES && (now.nosvm || now.old))
        return CL_INVALID_VALUE; /* before OpenCL 2.0 the question itself is an error */
    if (question == CL_DEVICE_SVM_CAPABILITIES && now.coarse)
        return tell(&coarse, sizeof coarse, room, out, needed);
    if (question == CL_DEVICE_MAX_MEM_ALLOC_SIZE && now.most_bytes && now.honest)
        return tell(&most, sizeof most, room, out, needed);
    return NEXT(clGetDeviceInfo)(device, question, room, out, needed);
}

SHIM_EXPORT void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name)
{
    void *found = shim_settings_now().usm ? shim_usm_function(name) : NULL;
    return found ? found : NEXT(clGetExtensionFunctionAddressForPlatform)(platform, name);
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
    cl_context made = NEXT(clCreateContext)(properties, count, devices, fn, context, code);
    if (made)
        shim_hold("context", made);
    return made;
}

SHIM_EXPORT cl_int clGetContextInfo(cl_context context, cl_context_info question, size_t room, void *out,
                                    size_t *needed)
{
    ENTER(clGetContextInfo);
    return NEXT(clGetContextInfo)(context, question, room, out, needed);
}

SHIM_EXPORT cl_int clRetainContext(cl_context context)
{
    ENTER(clRetainContext);
    shim_hold("context", context);
    return NEXT(clRetainContext)(context);
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
    (void)shim_let_go("context", context);
    return NEXT(clReleaseContext)(context);
}

/* ---- Queues -------------------------------------------------------------------------------------- */

SHIM_EXPORT cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                                const cl_queue_properties *properties,
                                                                cl_int *code)
{
    needs_2("clCreateCommandQueueWithProperties");
    *code = shim_enter("clCreateCommandQueueWithProperties");
    cl_command_queue made = *code == CL_SUCCESS
                                ? NEXT(clCreateCommandQueueWithProperties)(context, device, properties, code)
                                : NULL;
    if (made)
        shim_hold("queue", made);
    return made;
}

SHIM_EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                                  cl_command_queue_properties properties, cl_int *code)
{
    *code = shim_enter("clCreateCommandQueue");
    cl_command_queue made =
        *code == CL_SUCCESS ? NEXT(clCreateCommandQueue)(context, device, properties, code) : NULL;
    if (made)
        shim_hold("queue", made);
    return made;
}

SHIM_EXPORT cl_int clRetainCommandQueue(cl_command_queue queue)
{
    ENTER(clRetainCommandQueue);
    shim_hold("queue", queue);
    return NEXT(clRetainCommandQueue)(queue);
}

SHIM_EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    cl_context context = NULL;
    cl_uint references = 0;
    ENTER(clReleaseCommandQueue);
    (void)shim_let_go("queue", queue);
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
    ENTER(clReleaseEvent);
    if (shim_let_go("event", event) == 0)
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
    if (made) {
        shim_hold("event", made);
        shim_user_event(context, made, false);
    }
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
    cl_mem made = *code == CL_SUCCESS ? NEXT(clCreateBuffer)(context, flags, size_bytes, host, code) : NULL;
    if (made)
        shim_buffer_add(context, made, size_bytes);
    return made;
}

/* A part is the program's, which gives it back to the driver itself. */
SHIM_EXPORT cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type,
                                     const void *where, cl_int *code)
{
    cl_buffer_region region;
    memcpy(&region, where, sizeof region);
    size_t align_bytes = shim_settings_now().align_bytes, buffer_bytes = shim_buffer_bytes(buffer);
    *code = shim_enter("clCreateSubBuffer");
    if (type != CL_BUFFER_CREATE_TYPE_REGION || region.size == 0 || region.origin > buffer_bytes ||
        region.size > buffer_bytes - region.origin)
        shim_complain("a part of %zu bytes at %zu is asked for of a buffer of %zu", region.size,
                      region.origin, buffer_bytes);
    if (*code == CL_SUCCESS && align_bytes && region.origin % align_bytes != 0)
        *code = CL_MISALIGNED_SUB_BUFFER_OFFSET;
    return *code == CL_SUCCESS ? NEXT(clCreateSubBuffer)(buffer, flags, type, where, code) : NULL;
}

/* Retained for the program, which releases it by the driver. */
SHIM_EXPORT cl_int clRetainMemObject(cl_mem buffer)
{
    ENTER(clRetainMemObject);
    (void)shim_buffer_bytes(buffer);
    return NEXT(clRetainMemObject)(buffer);
}

SHIM_EXPORT cl_int clReleaseMemObject(cl_mem buffer)
{
    cl_context context = NULL;
    ENTER(clReleaseMemObject);
    (void)shim_buffer_bytes(buffer); /* that it is one */
    (void)NEXT(clGetMemObjectInfo)(buffer, CL_MEM_CONTEXT, sizeof context, (void *)&context, NULL);
    shim_check_release(context, "buffer");
    shim_buffer_remove(buffer);
    return NEXT(clReleaseMemObject)(buffer);
}

SHIM_EXPORT void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                     cl_map_flags flags, size_t from, size_t size_bytes, cl_uint waits,
                                     const cl_event *list, cl_event *out, cl_int *code)
{
    *code = shim_enter("clEnqueueMapBuffer");
    if (*code != CL_SUCCESS)
        return NULL;
    shim_check_waits(queue, waits, list);
    shim_buffer_check(queue, buffer, from, size_bytes);
    void *p =
        NEXT(clEnqueueMapBuffer)(queue, buffer, blocking, flags, from, size_bytes, waits, list, out, code);
    if (*code != CL_SUCCESS)
        return NULL;
    shim_buffer_map(buffer, p);
    shim_command(queue, out ? *out : NULL, CL_SUCCESS, blocking);
    return p;
}

SHIM_EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void *p, cl_uint waits,
                                           const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueUnmapMemObject);
    shim_check_waits(queue, waits, list);
    shim_buffer_unmap(buffer, p);
    cl_int code = NEXT(clEnqueueUnmapMemObject)(queue, buffer, p, waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, CL_SUCCESS, false);
    return code;
}

/* ---- Shared memory ------------------------------------------------------------------------------- */

SHIM_EXPORT void *clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size_bytes, cl_uint alignment)
{
    const shim_settings now = shim_settings_now();
    needs_svm("clSVMAlloc");
    if (shim_enter("clSVMAlloc") != CL_SUCCESS || (now.most_bytes && size_bytes > now.most_bytes) ||
        (now.coarse && flags & CL_MEM_SVM_FINE_GRAIN_BUFFER))
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

cl_event shim_delay(cl_command_queue queue, cl_uint waits, const cl_event *list)
{
    static _Atomic unsigned turn;
    if (!shim_settings_now().slow)
        return NULL;
    long micros = ++turn % 2 ? 1500 : 20;
    cl_event done = NULL;
    if (NEXT(clEnqueueNativeKernel)(queue, dawdle, &micros, sizeof micros, 0, NULL, NULL, waits, list,
                                    &done) != CL_SUCCESS)
        shim_complain("the driver runs no native kernels, which mode slow needs");
    return done;
}

SHIM_EXPORT cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint count, void *list_of_blocks[],
                                    void(CL_CALLBACK *fn)(cl_command_queue, cl_uint, void **, void *),
                                    void *context, cl_uint waits, const cl_event *list, cl_event *out)
{
    cl_context owner = NULL;
    needs_svm("clEnqueueSVMFree");
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
    needs_svm("clEnqueueSVMMemcpy");
    ENTER(clEnqueueSVMMemcpy);
    void *real_dst = shim_real(queue, dst, size_bytes, false);
    const void *real_src = shim_real(queue, src, size_bytes, false);
    shim_check_overlap(dst, src, size_bytes);
    COMMAND(queue, blocking, waits, list, out,
            NEXT(clEnqueueSVMMemcpy)(queue, blocking, real_dst, real_src, size_bytes, waits, list, out));
}

SHIM_EXPORT cl_int clEnqueueSVMMemFill(cl_command_queue queue, void *dst, const void *pattern,
                                       size_t pattern_bytes, size_t size_bytes, cl_uint waits,
                                       const cl_event *list, cl_event *out)
{
    needs_svm("clEnqueueSVMMemFill");
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
    needs_svm("clEnqueueSVMMap");
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
    needs_svm("clEnqueueSVMUnmap");
    ENTER(clEnqueueSVMUnmap);
    shim_check_waits(queue, waits, list);
    shim_unmap_range(p);
    cl_int code = NEXT(clEnqueueSVMUnmap)(queue, shim_real(queue, p, 1, true), waits, list, out);
    if (code == CL_SUCCESS)
        shim_command(queue, out ? *out : NULL, CL_SUCCESS, false);
    return code;
}

/* ---- Commands on buffers ------------------------------------------------------------------------- */

SHIM_EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t from,
                                       size_t size_bytes, void *dst, cl_uint waits, const cl_event *list,
                                       cl_event *out)
{
    ENTER(clEnqueueReadBuffer);
    shim_buffer_check(queue, buffer, from, size_bytes);
    COMMAND(queue, blocking, waits, list, out,
            NEXT(clEnqueueReadBuffer)(queue, buffer, blocking, from, size_bytes, dst, waits, list, out));
}

SHIM_EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t to,
                                        size_t size_bytes, const void *src, cl_uint waits,
                                        const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueWriteBuffer);
    shim_buffer_check(queue, buffer, to, size_bytes);
    COMMAND(queue, blocking, waits, list, out,
            NEXT(clEnqueueWriteBuffer)(queue, buffer, blocking, to, size_bytes, src, waits, list, out));
}

SHIM_EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem src, cl_mem dst, size_t from, size_t to,
                                       size_t size_bytes, cl_uint waits, const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueCopyBuffer);
    shim_buffer_check(queue, src, from, size_bytes);
    shim_buffer_check(queue, dst, to, size_bytes);
    if (src == dst && from < to + size_bytes && to < from + size_bytes)
        shim_complain("a copy of %zu bytes within a buffer, from %zu to %zu, overlaps", size_bytes, from, to);
    COMMAND(queue, false, waits, list, out,
            NEXT(clEnqueueCopyBuffer)(queue, src, dst, from, to, size_bytes, waits, list, out));
}

SHIM_EXPORT cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern,
                                       size_t pattern_bytes, size_t to, size_t size_bytes, cl_uint waits,
                                       const cl_event *list, cl_event *out)
{
    ENTER(clEnqueueFillBuffer);
    shim_buffer_check(queue, buffer, to, size_bytes);
    if (to % pattern_bytes != 0 || size_bytes % pattern_bytes != 0)
        shim_complain("a fill of %zu bytes at %zu is not in steps of %zu", size_bytes, to, pattern_bytes);
    COMMAND(
        queue, false, waits, list, out,
        NEXT(clEnqueueFillBuffer)(queue, buffer, pattern, pattern_bytes, to, size_bytes, waits, list, out));
}

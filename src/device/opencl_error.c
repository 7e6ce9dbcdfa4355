/* What the codes of OpenCL drivers mean to us, and devices that are lost. */
#include "device/opencl.h"

#include <sched.h>

/* Codes beyond those of OpenCL itself: NVIDIA's for a kernel that touched memory it must not, after which the
 * context is of no use; and that of cl_khr_terminate_context. */
enum { NVIDIA_ILLEGAL_ACCESS = -9999, CONTEXT_TERMINATED = -1121 };

typedef struct ocl_code {
    int32_t code;
    const char *words;
    berth_status status;
} ocl_code;

static const ocl_code codes[] = {
    {0, "CL_SUCCESS", BERTH_DEVICE_ERROR}, /* a refusal without a reason */
    {OCL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND", BERTH_DEVICE_ERROR},
    {OCL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE", BERTH_DEVICE_LOST},
    {-3, "CL_COMPILER_NOT_AVAILABLE", BERTH_DEVICE_ERROR},
    {OCL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE", BERTH_OUT_OF_DEVICE_MEMORY},
    {OCL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES", BERTH_DEVICE_ERROR}, /* or worse, see is_suspect */
    {OCL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY", BERTH_OUT_OF_HOST_MEMORY},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE", BERTH_DEVICE_ERROR},
    {-8, "CL_MEM_COPY_OVERLAP", BERTH_DEVICE_ERROR},
    {-9, "CL_IMAGE_FORMAT_MISMATCH", BERTH_DEVICE_ERROR},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED", BERTH_DEVICE_ERROR},
    {-11, "CL_BUILD_PROGRAM_FAILURE", BERTH_DEVICE_ERROR},
    {-12, "CL_MAP_FAILURE", BERTH_DEVICE_ERROR},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET", BERTH_DEVICE_ERROR},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", BERTH_DEVICE_ERROR},
    {-30, "CL_INVALID_VALUE", BERTH_DEVICE_ERROR},
    {-31, "CL_INVALID_DEVICE_TYPE", BERTH_DEVICE_ERROR},
    {-32, "CL_INVALID_PLATFORM", BERTH_DEVICE_ERROR},
    {-33, "CL_INVALID_DEVICE", BERTH_DEVICE_ERROR},
    {OCL_INVALID_CONTEXT, "CL_INVALID_CONTEXT", BERTH_DEVICE_ERROR},
    {-35, "CL_INVALID_QUEUE_PROPERTIES", BERTH_DEVICE_ERROR},
    {OCL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE", BERTH_DEVICE_ERROR},
    {-37, "CL_INVALID_HOST_PTR", BERTH_DEVICE_ERROR},
    {-38, "CL_INVALID_MEM_OBJECT", BERTH_DEVICE_ERROR},
    {-57, "CL_INVALID_EVENT_WAIT_LIST", BERTH_DEVICE_ERROR},
    {-58, "CL_INVALID_EVENT", BERTH_DEVICE_ERROR},
    {-59, "CL_INVALID_OPERATION", BERTH_DEVICE_ERROR},
    {OCL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE", BERTH_DEVICE_ERROR},
    {OCL_PLATFORM_NOT_FOUND, "CL_PLATFORM_NOT_FOUND_KHR", BERTH_DEVICE_ERROR},
    {CONTEXT_TERMINATED, "CL_CONTEXT_TERMINATED_KHR", BERTH_DEVICE_LOST},
    {NVIDIA_ILLEGAL_ACCESS, "an illegal access by a kernel (NVIDIA)", BERTH_DEVICE_LOST},
};

static const ocl_code *find_code(int32_t code)
{
    static const ocl_code unknown = {1, "an OpenCL error", BERTH_DEVICE_ERROR};
    for (size_t i = 0; i < BERTH_COUNT_OF(codes); i++)
        if (codes[i].code == code)
            return &codes[i];
    return &unknown;
}

const char *berth__ocl_words(int32_t code)
{
    return find_code(code)->words;
}

static void note_lost(ocl_device *device, int32_t code)
{
    if (!atomic_exchange(&device->lost, true))
        berth__log(BERTH_LOG_ERROR, "OpenCL device %d is lost (%s): everything on it fails from now on",
                   berth__ocl_ordinal(device), berth__ocl_words(code));
}

berth_status berth__ocl_fail_gone(const ocl_device *device)
{
    return berth__fail(BERTH_DEVICE_LOST, "OpenCL device %d went with its context: see berth_opencl_release",
                       berth__ocl_ordinal(device));
}

berth_status berth__ocl_alive(ocl_device *device)
{
    if (BERTH_LIKELY(!atomic_load_explicit(&device->lost, memory_order_relaxed)))
        return BERTH_OK;
    if (berth__ocl_is_forked())
        return berth__fail(BERTH_DEVICE_LOST,
                           "OpenCL device %d stayed behind in the parent process when this one was forked",
                           berth__ocl_ordinal(device));
    if (atomic_load(&device->gone))
        return berth__ocl_fail_gone(device);
    return berth__fail(BERTH_DEVICE_LOST, "OpenCL device %d was lost earlier", berth__ocl_ordinal(device));
}

static berth_status fail_as(ocl_device *device, berth_status status, int32_t code, const char *what)
{
    if (status == BERTH_DEVICE_LOST)
        note_lost(device, code);
    return berth__fail_driver(status, code, berth__ocl_words(code), "OpenCL device %d: %s failed: %s",
                              berth__ocl_ordinal(device), what, berth__ocl_words(code));
}

berth_status berth__ocl_fail(ocl_device *device, int32_t code, const char *what)
{
    return fail_as(device, find_code(code)->status, code, what);
}

berth_status berth__ocl_fail_memory(ocl_device *device, int32_t code, size_t size_bytes)
{
    /* A block above the largest size is an invalid size to some drivers, and to the caller memory that lacks. */
    if (code != OCL_SUCCESS && code != OCL_OUT_OF_RESOURCES && code != OCL_MEM_OBJECT_ALLOCATION_FAILURE &&
        code != OCL_INVALID_BUFFER_SIZE)
        return berth__ocl_fail(device, code, "allocating memory");
    return berth__fail_driver(BERTH_OUT_OF_DEVICE_MEMORY, code, berth__ocl_words(code),
                              "OpenCL device %d has no %zu bytes", berth__ocl_ordinal(device), size_bytes);
}

/* After a fault in a kernel some drivers answer these to everything on the queue. Each may also be what it
 * says, a shortage that passes, for one. */
static bool is_suspect(int32_t code)
{
    return code == OCL_OUT_OF_RESOURCES || code == OCL_INVALID_CONTEXT || code == OCL_INVALID_COMMAND_QUEUE;
}

/* A queue that was good when it was made and cannot be waited for twice is gone for good, and its context with
 * it. */
berth_status berth__ocl_finish(ocl_device *device, ocl_queue queue, const char *what)
{
    int32_t code = berth__ocl.clFinish(queue);
    if (BERTH_LIKELY(code == OCL_SUCCESS))
        return BERTH_OK;
    if (is_suspect(code) && berth__ocl.clFinish(queue) != OCL_SUCCESS)
        return fail_as(device, BERTH_DEVICE_LOST, code, what);
    return berth__ocl_fail(device, code, what);
}

bool berth__ocl_once_more(int32_t code, int *attempts)
{
    enum { MOST_ATTEMPTS = 100 };
    if (BERTH_LIKELY(code == OCL_SUCCESS) || ++*attempts == MOST_ATTEMPTS)
        return false;
    if (code != OCL_OUT_OF_RESOURCES && code != OCL_OUT_OF_HOST_MEMORY)
        return false;
    sched_yield();
    return true;
}

int32_t berth__ocl_flush(ocl_queue queue)
{
    int32_t code;
    int attempts = 0;
    do
        code = berth__ocl.clFlush(queue);
    while (berth__ocl_once_more(code, &attempts));
    return code;
}

bool berth__ocl_drain(ocl_queue queue)
{
    int32_t code;
    int attempts = 0;
    do
        code = berth__ocl.clFinish(queue);
    while (berth__ocl_once_more(code, &attempts));
    return code == OCL_SUCCESS;
}

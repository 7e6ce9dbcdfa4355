/* The extension cl_intel_unified_shared_memory, which PoCL 3.1 does not have, made of its shared virtual memory. */
#include "shim.h"

#include <CL/cl_ext.h>
#include <string.h>
#include <sys/mman.h>

/* CL_MEM_FLAGS_INTEL and CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL, which the headers here do not have. */
enum { MEM_FLAGS = 0x10001, ALLOW_UNRESTRICTED_SIZE = 1 << 23 };

/* Above the largest size only whoever says that it is meant gets something. */
static cl_int judge_size(const cl_mem_properties_intel *properties, size_t size_bytes)
{
    const size_t most = shim_settings_now().most_bytes;
    if (!properties)
        return most && size_bytes > most ? CL_INVALID_BUFFER_SIZE : CL_SUCCESS;
    return properties[0] == MEM_FLAGS && properties[1] == ALLOW_UNRESTRICTED_SIZE && properties[2] == 0
               ? CL_SUCCESS
               : CL_INVALID_PROPERTY;
}

/* `hidden`: the host sees no memory there. */
static void *usm_take(const char *function, cl_context context, const cl_mem_properties_intel *properties,
                      size_t size_bytes, bool hidden, cl_int *code)
{
    *code = shim_enter(function);
    if (*code == CL_SUCCESS)
        *code = judge_size(properties, size_bytes);
    if (*code != CL_SUCCESS)
        return NULL;
    cl_svm_mem_flags flags = CL_MEM_READ_WRITE | (hidden ? 0 : CL_MEM_SVM_FINE_GRAIN_BUFFER);
    void *real = NEXT(clSVMAlloc)(context, flags, size_bytes, 0), *shown = real;
    if (!real) {
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    if (hidden)
        shown = mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shown == MAP_FAILED)
        shim_complain("no address space for %zu bytes", size_bytes);
    shim_block_add(context, shown, real, size_bytes);
    return shown;
}

static void *usm_host(cl_context context, const cl_mem_properties_intel *properties, size_t size_bytes,
                      cl_uint alignment, cl_int *code)
{
    (void)alignment;
    return usm_take("clHostMemAllocINTEL", context, properties, size_bytes, false, code);
}

static void *usm_device(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                        size_t size_bytes, cl_uint alignment, cl_int *code)
{
    (void)device, (void)alignment;
    return usm_take("clDeviceMemAllocINTEL", context, properties, size_bytes, true, code);
}

static void *usm_shared(cl_context context, cl_device_id device, const cl_mem_properties_intel *properties,
                        size_t size_bytes, cl_uint alignment, cl_int *code)
{
    (void)device, (void)alignment;
    return usm_take("clSharedMemAllocINTEL", context, properties, size_bytes, false, code);
}

/* Waits for whatever uses the block, and for nothing else. */
static cl_int usm_free(cl_context context, void *p)
{
    ENTER(clMemBlockingFreeINTEL);
    shim_block_wait(p);
    NEXT(clSVMFree)(context, shim_block_remove(context, p));
    return CL_SUCCESS;
}

/* The command's event is needed here in any case. */
static void remember_use(cl_command_queue queue, const void *dst, const void *src, cl_event event, bool keep)
{
    shim_block_used(queue, dst, event);
    if (src)
        shim_block_used(queue, src, event);
    if (!keep)
        (void)NEXT(clReleaseEvent)(event);
}

static cl_int usm_fill(cl_command_queue queue, void *dst, const void *pattern, size_t pattern_bytes,
                       size_t size_bytes, cl_uint waits, const cl_event *list, cl_event *out)
{
    cl_event made = NULL;
    ENTER(clEnqueueMemFillINTEL);
    void *real = shim_real(queue, dst, size_bytes, true);
    if ((uintptr_t)dst % pattern_bytes != 0 || size_bytes % pattern_bytes != 0)
        shim_complain("a fill of %zu bytes at %p is not in steps of %zu", size_bytes, dst, pattern_bytes);
    RUN_COMMAND(queue, false, waits, list, out,
                NEXT(clEnqueueSVMMemFill)(queue, real, pattern, pattern_bytes, size_bytes, waits, list,
                                          out ? out : &made));
    if (answered == CL_SUCCESS)
        remember_use(queue, dst, NULL, out ? *out : made, out != NULL);
    return answered;
}

static cl_int usm_copy(cl_command_queue queue, cl_bool blocking, void *dst, const void *src,
                       size_t size_bytes, cl_uint waits, const cl_event *list, cl_event *out)
{
    cl_event made = NULL;
    ENTER(clEnqueueMemcpyINTEL);
    void *real_dst = shim_real(queue, dst, size_bytes, false);
    const void *real_src = shim_real(queue, src, size_bytes, false);
    shim_check_overlap(dst, src, size_bytes);
    RUN_COMMAND(queue, blocking, waits, list, out,
                NEXT(clEnqueueSVMMemcpy)(queue, blocking, real_dst, real_src, size_bytes, waits, list,
                                         out ? out : &made));
    if (answered == CL_SUCCESS)
        remember_use(queue, dst, src, out ? *out : made, out != NULL);
    return answered;
}

void *shim_usm_function(const char *name)
{
    static const clHostMemAllocINTEL_fn host = usm_host;
    static const clDeviceMemAllocINTEL_fn device = usm_device;
    static const clSharedMemAllocINTEL_fn shared = usm_shared;
    static const clMemBlockingFreeINTEL_fn blocking_free = usm_free;
    static const clEnqueueMemFillINTEL_fn fill = usm_fill;
    static const clEnqueueMemcpyINTEL_fn copy = usm_copy;
    static const struct {
        const char *name;
        const void *function; /* where its address stands */
    } functions[] = {
        {"clHostMemAllocINTEL", &host},     {"clDeviceMemAllocINTEL", &device},
        {"clSharedMemAllocINTEL", &shared}, {"clMemBlockingFreeINTEL", &blocking_free},
        {"clEnqueueMemFillINTEL", &fill},   {"clEnqueueMemcpyINTEL", &copy},
    };
    void *found = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(name, functions[i].name) == 0)
            memcpy(&found, functions[i].function, sizeof found);
    return found;
}

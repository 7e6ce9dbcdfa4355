/* Finding the OpenCL driver and its devices; their contexts; and what its error codes mean to us. */
#include "device/opencl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 64, MOST_PLATFORMS = 16 };

ocl_functions berth__ocl;

static ocl_device devices[MOST_DEVICES]; /* written once, by load */
static int32_t device_count;
static char why_none[256]; /* "": there are devices */
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

#define OCL_optional true
#define OCL_required false
#define SYMBOL(need, result, name, parameters) {#name, offsetof(ocl_functions, name), OCL_##need},
static const berth__symbol symbols[] = {OCL_FUNCTIONS(SYMBOL)};
#undef SYMBOL
#define SYMBOL(need, result, name, parameters) {#name, offsetof(ocl_usm_functions, name), OCL_##need},
static const berth__symbol usm_symbols[] = {OCL_USM_FUNCTIONS(SYMBOL)};
#undef SYMBOL

/* ---- Devices ------------------------------------------------------------------------------------- */

/* Whether the blank-separated `list` has the whole word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static bool find_usm(ocl_device *device)
{
    char extensions[8192] = "";
    if (!berth__ocl.clGetExtensionFunctionAddressForPlatform ||
        berth__ocl.clGetDeviceInfo(device->id, OCL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions,
                                   NULL) != OCL_SUCCESS ||
        !has_word(extensions, "cl_intel_unified_shared_memory"))
        return false;
    for (size_t i = 0; i < BERTH_COUNT_OF(usm_symbols); i++) {
        void *address =
            berth__ocl.clGetExtensionFunctionAddressForPlatform(device->platform, usm_symbols[i].name);
        if (!address)
            return false;
        memcpy((char *)&device->usm_functions + usm_symbols[i].offset, &address, sizeof address);
    }
    return true;
}

static bool has_svm_functions(void)
{
    return berth__ocl.clSVMAlloc && berth__ocl.clSVMFree && berth__ocl.clEnqueueSVMFree &&
           berth__ocl.clEnqueueSVMMemcpy && berth__ocl.clEnqueueSVMMemFill && berth__ocl.clEnqueueSVMMap &&
           berth__ocl.clEnqueueSVMUnmap;
}

static void add_device(ocl_platform platform, ocl_device_id id)
{
    ocl_device *device = &devices[device_count];
    uint64_t svm = 0;
    uint32_t available = 0;
    if (device_count == MOST_DEVICES ||
        berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_AVAILABLE, sizeof available, &available, NULL) !=
            OCL_SUCCESS ||
        !available)
        return;
    device->platform = platform;
    device->id = id;
    /* Before OpenCL 2.0 the question itself is an error. */
    if (has_svm_functions())
        (void)berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    device->coarse = (svm & OCL_SVM_COARSE) != 0;
    device->fine = (svm & OCL_SVM_FINE) != 0;
    device->usm = find_usm(device);
    device_count++;
}

static void list_devices(void)
{
    ocl_platform platforms[MOST_PLATFORMS];
    uint32_t platform_count = 0;
    int32_t code = berth__ocl.clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count);
    if (code != OCL_SUCCESS && code != OCL_PLATFORM_NOT_FOUND) {
        snprintf(why_none, sizeof why_none, "the OpenCL loader answers %s", berth__ocl_words(code));
        return;
    }
    if (platform_count > MOST_PLATFORMS)
        platform_count = MOST_PLATFORMS;
    for (uint32_t p = 0; p < platform_count; p++) {
        ocl_device_id ids[MOST_DEVICES];
        uint32_t count = 0;
        if (berth__ocl.clGetDeviceIDs(platforms[p], (uint64_t)(uint32_t)OCL_DEVICE_TYPE_ALL, MOST_DEVICES,
                                      ids, &count) != OCL_SUCCESS)
            continue; /* a platform without devices is no reason to hide the others */
        for (uint32_t i = 0; i < count && i < MOST_DEVICES; i++)
            add_device(platforms[p], ids[i]);
    }
    if (device_count == 0)
        snprintf(why_none, sizeof why_none,
                 "the OpenCL loader is there but no driver has a device: install one, for processors "
                 "pocl-opencl-icd");
}

static void load(void)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so", NULL};
    char why[160] = "";
    void *library = berth__library_open("BERTH_OPENCL_LIBRARY", names, why, sizeof why);
    if (!library ||
        !berth__library_symbols(library, symbols, BERTH_COUNT_OF(symbols), &berth__ocl, why, sizeof why))
        snprintf(why_none, sizeof why_none, "no OpenCL: %s; install ocl-icd-libopencl1 and a driver", why);
    else
        list_devices();
}

berth_status berth__ocl_count(berth_device_kind kind, int32_t *count)
{
    (void)kind;
    pthread_once(&loaded, load);
    *count = device_count;
    if (BERTH_LIKELY(device_count > 0))
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s", why_none);
}

ocl_device *berth__ocl_device(berth_device device)
{
    return &devices[device.ordinal];
}

/* ---- Contexts and queues: made by whoever comes first, without a lock ---------------------------- */

berth_status berth__ocl_context(ocl_device *device, ocl_context *out)
{
    *out = atomic_load_explicit(&device->context, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return BERTH_OK;
    int32_t code = OCL_SUCCESS;
    const intptr_t properties[] = {OCL_CONTEXT_PLATFORM, (intptr_t)device->platform, 0};
    ocl_context made = berth__ocl.clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
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

berth_status berth__ocl_new_queue(ocl_device *device, ocl_queue *out)
{
    ocl_context context;
    berth_status status = berth__ocl_context(device, &context);
    if (status != BERTH_OK)
        return status;
    int32_t code = OCL_SUCCESS;
    *out = berth__ocl.clCreateCommandQueueWithProperties
               ? berth__ocl.clCreateCommandQueueWithProperties(context, device->id, NULL, &code)
               : berth__ocl.clCreateCommandQueue(context, device->id, 0, &code);
    return *out ? BERTH_OK : berth__ocl_fail(device, code, "making a queue");
}

berth_status berth__ocl_own_queue(ocl_device *device, ocl_queue *out)
{
    *out = atomic_load_explicit(&device->queue, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return BERTH_OK;
    ocl_queue made, other = NULL;
    berth_status status = berth__ocl_new_queue(device, &made);
    if (status != BERTH_OK)
        return status;
    if (!atomic_compare_exchange_strong(&device->queue, &other, made)) {
        (void)berth__ocl.clReleaseCommandQueue(made);
        made = other;
    }
    *out = made;
    return BERTH_OK;
}

/* ---- Errors -------------------------------------------------------------------------------------- */

const char *berth__ocl_words(int32_t code)
{
    static const char *const low[] = {"CL_SUCCESS",
                                      "CL_DEVICE_NOT_FOUND",
                                      "CL_DEVICE_NOT_AVAILABLE",
                                      "CL_COMPILER_NOT_AVAILABLE",
                                      "CL_MEM_OBJECT_ALLOCATION_FAILURE",
                                      "CL_OUT_OF_RESOURCES",
                                      "CL_OUT_OF_HOST_MEMORY",
                                      "CL_PROFILING_INFO_NOT_AVAILABLE",
                                      "CL_MEM_COPY_OVERLAP",
                                      "CL_IMAGE_FORMAT_MISMATCH",
                                      "CL_IMAGE_FORMAT_NOT_SUPPORTED",
                                      "CL_BUILD_PROGRAM_FAILURE",
                                      "CL_MAP_FAILURE",
                                      "CL_MISALIGNED_SUB_BUFFER_OFFSET",
                                      "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"};
    static const char *const high[] = {
        "CL_INVALID_VALUE",         "CL_INVALID_DEVICE_TYPE", "CL_INVALID_PLATFORM",
        "CL_INVALID_DEVICE",        "CL_INVALID_CONTEXT",     "CL_INVALID_QUEUE_PROPERTIES",
        "CL_INVALID_COMMAND_QUEUE", "CL_INVALID_HOST_PTR",    "CL_INVALID_MEM_OBJECT"};
    if (code <= 0 && code > -(int32_t)BERTH_COUNT_OF(low))
        return low[-code];
    if (code <= -30 && code > -30 - (int32_t)BERTH_COUNT_OF(high))
        return high[-code - 30];
    switch (code) {
    case -57:
        return "CL_INVALID_EVENT_WAIT_LIST";
    case -58:
        return "CL_INVALID_EVENT";
    case -59:
        return "CL_INVALID_OPERATION";
    case -61:
        return "CL_INVALID_BUFFER_SIZE";
    case OCL_PLATFORM_NOT_FOUND:
        return "CL_PLATFORM_NOT_FOUND_KHR";
    default:
        return "an OpenCL error";
    }
}

static void note_lost(ocl_device *device, int32_t code)
{
    if (!atomic_exchange(&device->lost, true))
        berth__log(BERTH_LOG_ERROR, "OpenCL device %d is lost (%s): everything on it fails from now on",
                   (int)(device - devices), berth__ocl_words(code));
}

berth_status berth__ocl_alive(ocl_device *device)
{
    if (BERTH_LIKELY(!atomic_load_explicit(&device->lost, memory_order_relaxed)))
        return BERTH_OK;
    return berth__fail(BERTH_DEVICE_LOST, "OpenCL device %d was lost earlier", (int)(device - devices));
}

berth_status berth__ocl_fail(ocl_device *device, int32_t code, const char *what)
{
    berth_status status = BERTH_DEVICE_ERROR;
    if (code == OCL_OUT_OF_HOST_MEMORY) {
        status = BERTH_OUT_OF_HOST_MEMORY;
    } else if (code == OCL_MEM_OBJECT_ALLOCATION_FAILURE) {
        status = BERTH_OUT_OF_DEVICE_MEMORY;
    } else if (code == OCL_DEVICE_NOT_AVAILABLE) {
        note_lost(device, code);
        status = BERTH_DEVICE_LOST;
    }
    return berth__fail_driver(status, code, berth__ocl_words(code), "OpenCL device %d: %s failed: %s",
                              (int)(device - devices), what, berth__ocl_words(code));
}

berth_status berth__ocl_fail_memory(ocl_device *device, int32_t code, size_t size_bytes)
{
    if (code != OCL_SUCCESS && code != OCL_OUT_OF_RESOURCES && code != OCL_MEM_OBJECT_ALLOCATION_FAILURE)
        return berth__ocl_fail(device, code, "allocating memory");
    return berth__fail_driver(BERTH_OUT_OF_DEVICE_MEMORY, code, berth__ocl_words(code),
                              "OpenCL device %d has no %zu bytes", (int)(device - devices), size_bytes);
}

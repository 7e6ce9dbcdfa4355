/* Finding the OpenCL driver and its devices; and what a fork leaves of them. */
#include "device/opencl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 256, MOST_LISTED = 64, MOST_PLATFORMS = 16 };

ocl_functions berth__ocl;

static ocl_device devices[MOST_DEVICES]; /* each written before it is published */
static int32_t added_count;              /* guard: load, then the lock of opencl_adopt.c */
static int32_t listed_count;             /* written once, by load */
static _Atomic int32_t device_count;     /* those that can be found */
static _Atomic bool forked;
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

/* 100 times the version, of "OpenCL 1.2 whose it is": 102; 0 if it says nothing of the sort. */
static int version_of(ocl_device_id id)
{
    char words[128] = "";
    int major = 0, minor = 0;
    if (berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_VERSION, sizeof words - 1, words, NULL) != OCL_SUCCESS ||
        sscanf(words, "OpenCL %d.%d", &major, &minor) != 2)
        return 0;
    return major * 100 + minor;
}

/* The first place that a context left when it was given back, or the next new one. */
static ocl_device *free_place(void)
{
    for (int32_t i = 0; i < added_count; i++)
        if (atomic_load(&devices[i].gone))
            return &devices[i];
    return added_count < MOST_DEVICES ? &devices[added_count++] : NULL;
}

/* In bytes, and a power of two: OpenCL promises neither, but every driver keeps to it. */
static size_t part_alignment(uint32_t bits)
{
    size_t alignment = 128; /* of OpenCL's largest type: the least that there is */
    while (alignment < bits / 8)
        alignment *= 2;
    return alignment;
}

ocl_device *berth__ocl_add(ocl_platform platform, ocl_device_id id, ocl_context context)
{
    ocl_device *device = free_place();
    if (!device)
        return NULL;
    uint64_t svm = 0, most = 0;
    uint32_t part_bits = 0;
    int version = version_of(id);
    device->platform = platform;
    device->id = id;
    device->is_2 = version >= 200;
    /* Before OpenCL 2.0 the question itself is an error. */
    if (device->is_2 && has_svm_functions())
        (void)berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    (void)berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
    device->coarse = (svm & OCL_SVM_COARSE) != 0;
    device->fine = (svm & OCL_SVM_FINE) != 0;
    device->most_bytes = most;
    device->usm = find_usm(device);
    device->buffers = !device->coarse && !device->usm && version >= 102;
    (void)berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof part_bits, &part_bits, NULL);
    device->part_alignment = part_alignment(part_bits);
    atomic_store(&device->context, context);
    atomic_store(&device->lost, false);
    atomic_store(&device->gone, false); /* last: whoever still has the ordinal may use it from now on */
    return device;
}

void berth__ocl_publish(void)
{
    atomic_store_explicit(&device_count, added_count, memory_order_release);
}

static bool is_available(ocl_device_id id)
{
    uint32_t available = 0;
    return berth__ocl.clGetDeviceInfo(id, OCL_DEVICE_AVAILABLE, sizeof available, &available, NULL) ==
               OCL_SUCCESS &&
           available;
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
        ocl_device_id ids[MOST_LISTED];
        uint32_t count = 0;
        if (berth__ocl.clGetDeviceIDs(platforms[p], (uint64_t)(uint32_t)OCL_DEVICE_TYPE_ALL, MOST_LISTED, ids,
                                      &count) != OCL_SUCCESS)
            continue; /* a platform without devices is no reason to hide the others */
        for (uint32_t i = 0; i < count && i < MOST_LISTED; i++)
            if (added_count < MOST_LISTED && is_available(ids[i]))
                (void)berth__ocl_add(platforms[p], ids[i], NULL);
    }
    listed_count = added_count;
    berth__ocl_publish();
    if (added_count == 0)
        snprintf(why_none, sizeof why_none,
                 "the OpenCL loader is there but no driver has a device: install one, for processors "
                 "pocl-opencl-icd");
}

/* The driver's threads stay behind in the parent, with whatever locks they held: it is not called again. */
static void after_fork_in_child(void)
{
    atomic_store(&forked, true);
    for (int i = 0; i < MOST_DEVICES; i++)
        atomic_store(&devices[i].lost, true);
}

bool berth__ocl_is_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

static void opencl_load(void)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so", NULL};
    char why[160] = "";
    void *library = berth__library_open("BERTH_OPENCL_LIBRARY", names, why, sizeof why);
    if (!library ||
        !berth__library_symbols(library, symbols, BERTH_COUNT_OF(symbols), &berth__ocl, why, sizeof why))
        snprintf(why_none, sizeof why_none, "no OpenCL: %s; install ocl-icd-libopencl1 and a driver", why);
    else
        list_devices();
    if (added_count > 0 && pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
        berth__log(BERTH_LOG_WARNING, "no memory to watch for forks: OpenCL must not be used in a child");
}

berth_status berth__ocl_count(void *self, int32_t *count)
{
    (void)self;
    pthread_once(&loaded, opencl_load);
    *count = atomic_load_explicit(&device_count, memory_order_acquire);
    if (BERTH_LIKELY(*count > 0))
        return BERTH_OK;
    return berth__fail(BERTH_UNSUPPORTED, "%s", why_none);
}

ocl_device *berth__ocl_device(berth_device device)
{
    return &devices[device.ordinal];
}

int berth__ocl_ordinal(const ocl_device *device)
{
    return (int)(device - devices);
}

int32_t berth__ocl_listed_count(void)
{
    return listed_count;
}

/* Berth's own declarations of the CUDA driver's functions against cuda.h: this file compiles only if every
 * function has the same type in both. Nothing is linked or called. */
#include <stdio.h>

#include <cuda.h>

#include "device/cuda.h"

#define SAME(need, result, name, parameters) functions->name = (__typeof__(&name))0;
static void compare(cuda_functions *functions)
{
    CUDA_FUNCTIONS(SAME)
}

_Static_assert(sizeof(cuda_properties) == sizeof(CUmemAllocationProp), "layout");
_Static_assert(offsetof(cuda_properties, type) == offsetof(CUmemAllocationProp, type), "layout");
_Static_assert(offsetof(cuda_properties, location) == offsetof(CUmemAllocationProp, location), "layout");
_Static_assert(offsetof(cuda_properties, windows_only) == offsetof(CUmemAllocationProp, win32HandleMetaData),
               "layout");
_Static_assert(offsetof(cuda_properties, flags) == offsetof(CUmemAllocationProp, allocFlags), "layout");
_Static_assert(sizeof(cuda_access) == sizeof(CUmemAccessDesc), "layout");
_Static_assert(offsetof(cuda_access, flags) == offsetof(CUmemAccessDesc, flags), "layout");
_Static_assert(offsetof(cuda_location, id) == offsetof(CUmemLocation, id), "layout");
_Static_assert((int)CUDA_STREAM_NON_BLOCKING == CU_STREAM_NON_BLOCKING, "flag");
_Static_assert((int)CUDA_EVENT_DISABLE_TIMING == CU_EVENT_DISABLE_TIMING, "flag");
_Static_assert((int)CUDA_HOST_PORTABLE == CU_MEMHOSTALLOC_PORTABLE, "flag");
_Static_assert((int)CUDA_ATTACH_GLOBAL == CU_MEM_ATTACH_GLOBAL, "flag");
_Static_assert((int)CUDA_ATTRIBUTE_MANAGED_MEMORY == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "attribute");
_Static_assert((int)CUDA_ATTRIBUTE_VIRTUAL_MEMORY == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
               "attribute");
_Static_assert((int)CUDA_ATTRIBUTE_MEMORY_POOLS == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "attribute");
_Static_assert((int)CUDA_ALLOCATION_PINNED == CU_MEM_ALLOCATION_TYPE_PINNED, "value");
_Static_assert((int)CUDA_LOCATION_DEVICE == CU_MEM_LOCATION_TYPE_DEVICE, "value");
_Static_assert((int)CUDA_ACCESS_READ_WRITE == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "value");
/* The codes of gpu.h, which CUDA and HIP share. */
_Static_assert(CUDA_ERROR_OUT_OF_MEMORY == 2 && CUDA_ERROR_DEINITIALIZED == 4, "code");
_Static_assert(CUDA_ERROR_NO_DEVICE == 100 && CUDA_ERROR_NOT_READY == 600, "code");
_Static_assert(CUDA_ERROR_NOT_SUPPORTED == 801 && CUDA_ERROR_ECC_UNCORRECTABLE == 214, "code");
_Static_assert(CUDA_ERROR_ILLEGAL_ADDRESS == 700 && CUDA_ERROR_LAUNCH_FAILED == 719, "code");
_Static_assert(CUDA_ERROR_CONTEXT_IS_DESTROYED == 709 && CUDA_ERROR_ASSERT == 710, "code");

int main(void)
{
    cuda_functions functions;
    compare(&functions);
    printf("compared with cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    return functions.cuInit != 0;
}

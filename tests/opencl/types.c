/* Berth's own declarations of OpenCL functions against those of the CL headers: this file compiles only if
 * every function has the same type in both. */
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include "device/opencl.h"

void check_opencl_types(ocl_functions *functions, ocl_usm_functions *usm);

void check_opencl_types(ocl_functions *functions, ocl_usm_functions *usm)
{
#define SAME(need, result, name, parameters) functions->name = name;
    OCL_FUNCTIONS(SAME)
#undef SAME
#define SAME(need, result, name, parameters) usm->name = (name##_fn)NULL;
    OCL_USM_FUNCTIONS(SAME)
#undef SAME
}

_Static_assert(OCL_DEVICE_NOT_AVAILABLE == CL_DEVICE_NOT_AVAILABLE, "code");
_Static_assert(OCL_MEM_OBJECT_ALLOCATION_FAILURE == CL_MEM_OBJECT_ALLOCATION_FAILURE, "code");
_Static_assert(OCL_OUT_OF_RESOURCES == CL_OUT_OF_RESOURCES, "code");
_Static_assert(OCL_OUT_OF_HOST_MEMORY == CL_OUT_OF_HOST_MEMORY, "code");
_Static_assert(OCL_INVALID_CONTEXT == CL_INVALID_CONTEXT, "code");
_Static_assert(OCL_INVALID_COMMAND_QUEUE == CL_INVALID_COMMAND_QUEUE, "code");
_Static_assert(OCL_DEVICE_MAX_MEM_ALLOC_SIZE == CL_DEVICE_MAX_MEM_ALLOC_SIZE, "question");
_Static_assert(OCL_DEVICE_PLATFORM == CL_DEVICE_PLATFORM, "question");
_Static_assert(OCL_CONTEXT_DEVICES == CL_CONTEXT_DEVICES, "question");
_Static_assert(OCL_MEM_ALLOC_HOST_PTR == CL_MEM_ALLOC_HOST_PTR, "flag");
_Static_assert(OCL_MAP_WRITE_INVALIDATE == CL_MAP_WRITE_INVALIDATE_REGION, "flag");
_Static_assert(OCL_PLATFORM_NOT_FOUND == CL_PLATFORM_NOT_FOUND_KHR, "code");
_Static_assert(OCL_PLATFORM_NAME == CL_PLATFORM_NAME, "question");
_Static_assert((uint32_t)OCL_DEVICE_TYPE_ALL == CL_DEVICE_TYPE_ALL, "question");
_Static_assert(OCL_DEVICE_GLOBAL_MEM_SIZE == CL_DEVICE_GLOBAL_MEM_SIZE, "question");
_Static_assert(OCL_DEVICE_AVAILABLE == CL_DEVICE_AVAILABLE, "question");
_Static_assert(OCL_DEVICE_NAME == CL_DEVICE_NAME, "question");
_Static_assert(OCL_DRIVER_VERSION == CL_DRIVER_VERSION, "question");
_Static_assert(OCL_DEVICE_EXTENSIONS == CL_DEVICE_EXTENSIONS, "question");
_Static_assert(OCL_DEVICE_SVM_CAPABILITIES == CL_DEVICE_SVM_CAPABILITIES, "question");
_Static_assert(OCL_SVM_COARSE == CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, "flag");
_Static_assert(OCL_SVM_FINE == CL_DEVICE_SVM_FINE_GRAIN_BUFFER, "flag");
_Static_assert(OCL_MEM_READ_WRITE == CL_MEM_READ_WRITE, "flag");
_Static_assert(OCL_MEM_SVM_FINE_GRAIN_BUFFER == CL_MEM_SVM_FINE_GRAIN_BUFFER, "flag");
_Static_assert(OCL_MAP_READ == CL_MAP_READ && OCL_MAP_WRITE == CL_MAP_WRITE, "flag");
_Static_assert(OCL_QUEUE_CONTEXT == CL_QUEUE_CONTEXT && OCL_QUEUE_DEVICE == CL_QUEUE_DEVICE, "question");
_Static_assert(OCL_QUEUE_PROPERTIES == CL_QUEUE_PROPERTIES, "question");
_Static_assert(OCL_QUEUE_OUT_OF_ORDER == CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, "flag");
_Static_assert(OCL_CONTEXT_PLATFORM == CL_CONTEXT_PLATFORM, "property");
_Static_assert(OCL_EVENT_STATUS == CL_EVENT_COMMAND_EXECUTION_STATUS && OCL_COMPLETE == CL_COMPLETE,
               "question");

/* OpenCL: the program's own contexts, and which device is which. The handles are the driver's (cl_context,
 * cl_device_id), as void pointers, so that this header needs none of OpenCL's. */
#ifndef BERTH_OPENCL_H
#define BERTH_OPENCL_H

#include "berth/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which call gives memory of ours to a kernel. */
typedef enum berth_opencl_memory_model {
    BERTH_OPENCL_NO_POINTERS = 0, /* clSetKernelArg with a cl_mem: see berth_opencl_buffer */
    BERTH_OPENCL_SVM = 1,         /* clSetKernelArgSVMPointer */
    BERTH_OPENCL_USM = 2,         /* clSetKernelArgMemPointerINTEL */
} berth_opencl_memory_model;

/* Makes the devices of the program's context devices of Berth: further ordinals, one for each device or
 * sub-device, in the context's order. What is allocated on them is valid in the program's kernels, and queues
 * of that context become streams (berth_stream_wrap). The first `room` go to `devices`; *count says how many
 * there are. Adopting again gives the same. The context is retained until berth_opencl_release. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (no OpenCL, or several hundred were adopted before),
 * BERTH_DEVICE_LOST in the child of a fork. */
BERTH_API berth_status berth_opencl_adopt(void *context, berth_device *devices, int32_t room, int32_t *count);

/* Gives an adopted context back: its devices answer BERTH_DEVICE_LOST from then on, and their ordinals may come again
 * for another context. What was made on them must be gone: with live blocks or streams it answers BERTH_BUSY and
 * changes nothing; so it does for the moment that it takes to put away what was freed on a stream. Any thread, but no other call may use these devices meanwhile. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_NOT_FOUND (it is not adopted), BERTH_BUSY, BERTH_UNSUPPORTED, BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_LOST in
 * the child of a fork. */
BERTH_API berth_status berth_opencl_release(void *context);

/* The device of Berth's that stands for the driver's `device_id`, and back. For a device that is in several
 * contexts it is the one with Berth's own context. No context is made. Any thread. BERTH_OK, BERTH_NOT_FOUND,
 * BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED. */
BERTH_API berth_status berth_opencl_device_find(void *device_id, berth_device *out);
BERTH_API berth_status berth_opencl_device_id(berth_device device, void **out);

/* What sort of pointers the device's memory has. No context is made. Any thread. Answers as above. */
BERTH_API berth_status berth_opencl_memory(berth_device device, berth_opencl_memory_model *out);

/* On a device whose addresses are no pointers (BERTH_OPENCL_NO_POINTERS): the cl_mem for kernels that work on
 * `size_bytes` from `p`, that is, the block's own or a sub-buffer of it. It is the caller's, who gives it back by
 * clReleaseMemObject; until then the driver keeps the whole block behind it. `p` is the beginning of any block of a
 * pool, a device source or a plan, or lies a multiple of info.offset_alignment behind it. Kernels that take an offset
 * need no sub-buffers: berth_device_locate gives the block's cl_mem, borrowed, and the offset. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT (where no sub-buffer can begin, or past the block's end), BERTH_NOT_FOUND, BERTH_UNSUPPORTED
 * where addresses are pointers, BERTH_OUT_OF_HOST_MEMORY, BERTH_DEVICE_ERROR, BERTH_DEVICE_LOST. */
BERTH_API berth_status berth_opencl_buffer(berth_device device, const void *p, size_t size_bytes, void **out);

#ifdef __cplusplus
}
#endif
#endif

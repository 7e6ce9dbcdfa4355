/* One kernel for the OpenCL tests, y = 2 x + 1, made in berth's context. */
#ifndef BERTH_TESTS_OPENCL_KERNEL_H
#define BERTH_TESTS_OPENCL_KERNEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <CL/cl.h>

#include "berth/berth.h"

static const berth_device device = {BERTH_DEVICE_OPENCL, 0};
static cl_context cl_ours;
static cl_device_id device_id;
static cl_kernel twice_plus_one;

static int set_up_kernel(void **state)
{
    static const char *source = "__kernel void twice_plus_one(__global const uint *x, __global uint *y)\n"
                                "{\n"
                                "    size_t i = get_global_id(0);\n"
                                "    y[i] = 2 * x[i] + 1;\n"
                                "}\n";
    cl_int code = CL_SUCCESS;
    (void)state;
    if (berth_device_native(device, (void **)&cl_ours) != BERTH_OK)
        return -1;
    clGetContextInfo(cl_ours, CL_CONTEXT_DEVICES, sizeof device_id, &device_id, NULL);
    cl_program program = clCreateProgramWithSource(cl_ours, 1, &source, NULL, &code);
    if (code != CL_SUCCESS || clBuildProgram(program, 1, &device_id, "", NULL, NULL) != CL_SUCCESS)
        return -1;
    twice_plus_one = clCreateKernel(program, "twice_plus_one", &code);
    clReleaseProgram(program);
    return code == CL_SUCCESS ? 0 : -1;
}

static int tear_down_kernel(void **state)
{
    (void)state;
    return clReleaseKernel(twice_plus_one);
}

/* `count` is a multiple of LANES: PoCL compiles a kernel anew for every size of group, which takes seconds.
 */
enum { LANES = 64 };

static void launch_kernel(cl_command_queue queue, const void *x, const void *y, size_t count, cl_uint waits,
                          const cl_event *events)
{
    const size_t lanes = LANES;
    assert_int_equal(clSetKernelArgSVMPointer(twice_plus_one, 0, x), CL_SUCCESS);
    assert_int_equal(clSetKernelArgSVMPointer(twice_plus_one, 1, y), CL_SUCCESS);
    assert_int_equal(
        clEnqueueNDRangeKernel(queue, twice_plus_one, 1, NULL, &count, &lanes, waits, events, NULL),
        CL_SUCCESS);
}

#endif

/* One kernel for the OpenCL tests, y = 2 x + 1, made in berth's context, or in a context of the program's own that
 * berth has adopted. */
#ifndef BERTH_TESTS_OPENCL_KERNEL_H
#define BERTH_TESTS_OPENCL_KERNEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <CL/cl.h>

#include "berth/berth.h"

static berth_device device = {BERTH_DEVICE_OPENCL, 0};
static bool in_own_context; /* set by main, before the tests */
static cl_context cl_ours;
static cl_device_id device_id;
static cl_kernel twice_plus_one;
static bool has_buffers;           /* memory has no pointers: kernels get a cl_mem */
static cl_mem parts_in_waiting[2]; /* of a launch that waits for the program; NULL: none */

/* The first device again, in a new context. */
static int adopt_own_context(void)
{
    cl_int code = CL_SUCCESS;
    int32_t count = 0;
    void *id = NULL;
    if (berth_opencl_device_id(device, &id) != BERTH_OK)
        return -1;
    device_id = id;
    cl_context own = clCreateContext(NULL, 1, &device_id, NULL, NULL, &code);
    if (code != CL_SUCCESS || berth_opencl_adopt(own, &device, 1, &count) != BERTH_OK || count != 1)
        return -1;
    return clReleaseContext(own); /* berth holds it */
}

static int set_up_kernel(void **state)
{
    static const char *source = "__kernel void twice_plus_one(__global const uint *x, __global uint *y)\n"
                                "{\n"
                                "    size_t i = get_global_id(0);\n"
                                "    y[i] = 2 * x[i] + 1;\n"
                                "}\n";
    cl_int code = CL_SUCCESS;
    (void)state;
    if (in_own_context && adopt_own_context() != 0)
        return -1;
    berth_opencl_memory_model model;
    if (berth_device_native(device, (void **)&cl_ours) != BERTH_OK ||
        berth_opencl_memory(device, &model) != BERTH_OK)
        return -1;
    has_buffers = model == BERTH_OPENCL_NO_POINTERS;
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
    for (int i = 0; i < 2; i++)
        if (parts_in_waiting[i])
            clReleaseMemObject(parts_in_waiting[i]);
    return clReleaseKernel(twice_plus_one);
}

/* `count` is a multiple of LANES: PoCL compiles a kernel anew for every size of group, which takes seconds.
 */
enum { LANES = 64 };

/* Gives an address of ours to the kernel. Returns the part of a buffer that the kernel then has; NULL: a pointer. */
static cl_mem set_argument(cl_uint number, const void *p, size_t size_bytes)
{
    cl_mem part = NULL;
    if (!has_buffers) {
        assert_int_equal(clSetKernelArgSVMPointer(twice_plus_one, number, p), CL_SUCCESS);
        return NULL;
    }
    assert_int_equal(berth_opencl_buffer(device, p, size_bytes, (void **)&part), BERTH_OK);
    assert_int_equal(clSetKernelArg(twice_plus_one, number, sizeof part, &part), CL_SUCCESS);
    return part;
}

static void launch_kernel(cl_command_queue queue, const void *x, const void *y, size_t count, cl_uint waits,
                          const cl_event *events)
{
    const size_t lanes = LANES;
    cl_mem parts[] = {set_argument(0, x, count * sizeof(cl_uint)),
                      set_argument(1, y, count * sizeof(cl_uint))};
    assert_int_equal(
        clEnqueueNDRangeKernel(queue, twice_plus_one, 1, NULL, &count, &lanes, waits, events, NULL),
        CL_SUCCESS);
    for (int i = 0; i < 2 && parts[i]; i++)
        if (waits && !parts_in_waiting[i]) /* nothing is released while a user event is unset */
            parts_in_waiting[i] = parts[i];
        else
            assert_int_equal(clReleaseMemObject(parts[i]), CL_SUCCESS);
}

#endif

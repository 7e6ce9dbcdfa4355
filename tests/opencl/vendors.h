/* What the tests of OpenCL through the shim share: the shim's functions, a few helpers, and main. */
#ifndef BERTH_TESTS_OPENCL_VENDORS_H
#define BERTH_TESTS_OPENCL_VENDORS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shim/shim.h"

#include "berth/berth.h"
#include "device/device.h"
#include "gate.h"

static const berth_device device = {BERTH_DEVICE_OPENCL, 0};
static const char *mode;

#define SHIM_FUNCTIONS(X) \
    X(shim_set)           \
    X(shim_fail)          \
    X(shim_calls)         \
    X(shim_fail_marker)   \
    X(shim_unflushed)     \
    X(shim_blocks)        \
    X(shim_live)          \
    X(shim_map_flags)     \
    X(shim_notify)
static struct {
#define MEMBER(name) __typeof__(&(name)) name;
    SHIM_FUNCTIONS(MEMBER)
#undef MEMBER
} shim;

/* The mode that the program was started in, and what else a test wants. */
static inline void set(const char *more)
{
    char words[128];
    snprintf(words, sizeof words, "%s,%s", mode, more);
    shim.shim_set(words);
}

/* Whether memory are buffers in this mode. */
static inline bool has_buffers(void)
{
    return strcmp(mode, "nosvm") == 0;
}

/* Whether it is the extension's. */
static inline bool has_usm(void)
{
    return strcmp(mode, "usm") == 0;
}

/* The driver's function for something in this mode. */
static inline const char *call_for(const char *svm, const char *buffer, const char *usm)
{
    return has_buffers() ? buffer : has_usm() ? usm : svm;
}

static inline int back_to_normal(void **state)
{
    (void)state;
    set("");
    return 0;
}

static inline berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

/* A stream on an out-of-order queue. */
static inline berth_stream *new_wild_stream(void)
{
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    cl_context context = NULL;
    cl_device_id id = NULL;
    cl_int code = CL_SUCCESS;
    berth_stream *stream = NULL;
    assert_int_equal(berth_device_native(device, (void **)&context), BERTH_OK);
    assert_int_equal(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof id, &id, NULL), CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, id, properties, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(berth_stream_wrap(device, queue, &stream), BERTH_OK);
    clReleaseCommandQueue(queue); /* the stream has its own reference */
    return stream;
}

static inline void *take(size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size_bytes, 64, NULL, &p), BERTH_OK);
    return p;
}

static inline void give(void *p, size_t size_bytes)
{
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, size_bytes, NULL), BERTH_OK);
}

/* The device again, in a context of the test's own, which may be lost without harm to the others. */
static inline berth_device in_new_context(void)
{
    cl_context context;
    cl_device_id id = NULL;
    berth_device adopted = {0};
    int32_t count = 0;
    cl_int code = CL_SUCCESS;
    assert_int_equal(berth_opencl_device_id(device, (void **)&id), BERTH_OK);
    context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(berth_opencl_adopt(context, &adopted, 1, &count), BERTH_OK);
    assert_int_equal(count, 1);
    clReleaseContext(context); /* berth holds it */
    return adopted;
}

static inline unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

#define TEST(f) cmocka_unit_test_teardown(f, back_to_normal)

/* Arguments: the shim's path, the mode that it was started in (BERTH_SHIM); a third names the tests to run. False:
 * the program ends with *code. */
static inline bool vendors_begin(int argc, char **argv, int *code)
{
    void *library = argc >= 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int32_t count = 0;
    *code = 1;
    if (!library) {
        fprintf(stderr, "%s\n", argc >= 3 ? dlerror() : "which shim, and in which mode?");
        return false;
    }
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        *code = 77;
        return false;
    }
#define FIND(name) *(void **)&shim.name = dlsym(library, #name);
    SHIM_FUNCTIONS(FIND)
#undef FIND
    mode = argv[2];
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return true;
}

#endif

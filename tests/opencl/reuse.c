/* The host cache and the planned allocator on OpenCL memory with real queues. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

static void launch_on(berth_stream *stream, const void *x, const void *y, size_t count)
{
    launch_kernel(berth_stream_native(stream), x, y, count, 0, NULL);
}

#include "reuse.h"

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_cache_waits_for_queues),
        cmocka_unit_test(a_plan_on_device_memory),
    };
    int32_t count = 0;
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        return 77;
    }
    in_own_context = argc > 1 && strcmp(argv[1], "own") == 0;
    return cmocka_run_group_tests(tests, set_up_kernel, tear_down_kernel);
}

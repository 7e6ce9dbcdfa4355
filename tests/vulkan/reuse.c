/* The host cache and the planned allocator on Vulkan memory, streams that share one real queue, and a compute shader. */
#include <string.h>

#include "kernel.h"

static void launch_on(berth_stream *stream, const void *x, const void *y, size_t count)
{
    launch_kernel(stream, x, y, (uint32_t)count);
}

#include "reuse.h"

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_cache_waits_for_queues),
        cmocka_unit_test(a_plan_on_device_memory),
    };
    is_adopted = argc > 1 && strcmp(argv[1], "adopted") == 0;
    int absent = look_for_vulkan();
    return absent ? absent : cmocka_run_group_tests(tests, set_up_kernel, tear_down_kernel);
}

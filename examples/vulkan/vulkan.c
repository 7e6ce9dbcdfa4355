/* A pool on Vulkan memory: blocks cut from a few of the driver's allocations, copies on a stream, and what Vulkan knows a
 * block as. A program with a VkDevice of its own calls berth_vulkan_adopt instead of berth_vulkan_register. */
#include <berth/berth.h>
#include <berth_vulkan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(berth_status status)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s\n", berth_status_name(status), berth_last_error()->message);
    exit(status == BERTH_UNSUPPORTED ? 77 : 1); /* 77: no Vulkan here */
}

int main(void)
{
    berth_device_kind kind;
    must(berth_vulkan_register(&kind));
    berth_device device = {(int32_t)kind, 0};
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    must(berth_device_describe(device, &info));
    printf("%s (%s): its memory is %s\n", info.name, info.driver,
           info.host_accessible ? "the host's too" : "known by handles");

    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool;
    berth_stream *stream;
    must(berth_pool_create(&options, &pool));
    must(berth_stream_create(device, &stream));

    char there[1000], back[1000];
    memset(there, 42, sizeof there);
    void *a, *b;
    must(berth_allocate(pool, sizeof there, 256, NULL, &a));
    must(berth_allocate(pool, sizeof there, 256, NULL, &b));
    must(berth_copy(device, a, there, sizeof there, BERTH_COPY_HOST_TO_DEVICE, stream, false));
    must(berth_copy(device, b, a, sizeof there, BERTH_COPY_DEVICE_TO_DEVICE, stream, false));
    must(berth_copy(device, back, b, sizeof there, BERTH_COPY_DEVICE_TO_HOST, stream, true));

    berth_vulkan_place at_a = {.struct_size = sizeof at_a}, at_b = {.struct_size = sizeof at_b};
    must(berth_vulkan_locate(device, a, &at_a)); /* what vkUpdateDescriptorSets takes */
    must(berth_vulkan_locate(device, b, &at_b));
    printf("two blocks of %s buffer, %lld bytes apart; the copy is %s\n",
           at_a.buffer == at_b.buffer ? "one" : "another", (long long)(at_b.offset_bytes - at_a.offset_bytes),
           memcmp(there, back, sizeof there) == 0 ? "right" : "wrong");

    must(berth_deallocate(pool, a, sizeof there, stream));
    must(berth_deallocate(pool, b, sizeof there, stream));
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
    must(berth_device_unregister(kind));
    return 0;
}

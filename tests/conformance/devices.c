/* The sources that stand on a device's memory, for a run of the suite on one kind of device. */
#include <stdio.h>

#include "conformance.h"
#include "own_device.h"

static berth_device device;

static berth_allocator *make_on_device(berth_memory_kind kind)
{
    berth_allocator *a = NULL;
    berth_device_info info = {.struct_size = sizeof info};
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    berth_status status = berth_device_allocator_create(device, kind, &a);
    assert_int_equal(status, info.memory_kinds >> kind & 1 ? BERTH_OK : BERTH_UNSUPPORTED);
    return a;
}

static berth_allocator *make_device(void)
{
    return make_on_device(BERTH_MEMORY_DEVICE);
}

static berth_allocator *make_pinned(void)
{
    return make_on_device(BERTH_MEMORY_PINNED);
}

static berth_allocator *make_managed(void)
{
    return make_on_device(BERTH_MEMORY_MANAGED);
}

static berth_allocator *make_pool_on_device(void)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *a = NULL;
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_host_cache_on_device(void)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *a = NULL;
    options.device = device;
    assert_int_equal(berth_host_cache_create(&options, &a), BERTH_OK);
    return a;
}

static const source all[] = {
    {"device memory", make_device, NOTICES_BAD_FREES | SHOWS_ALL_LIVE | NOT_ON_HOST},
    {"pinned memory", make_pinned, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"managed memory", make_managed, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"host cache of the device", make_host_cache_on_device, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"pool of the device", make_pool_on_device, NOTICES_BAD_FREES | SHOWS_ALL_LIVE | NOT_ON_HOST},
};

/* Managed memory is a choice of the device's; pinned memory only a device that is said to have no more than memory may lack. */
static bool is_here(const source *s, uint64_t memory_kinds)
{
    if (s->make == make_managed)
        return memory_kinds >> BERTH_MEMORY_MANAGED & 1;
    return !memory_only || (s->make != make_pinned && s->make != make_host_cache_on_device);
}

const source *sources_on(const char *kind, size_t *count)
{
    berth_device_info info = {.struct_size = sizeof info};
    if (strcmp(kind, "virtual") != 0)
        device.kind = device_kind_for(kind);
    else if (berth_virtual_create(&device) != BERTH_OK)
        return NULL;
    if (berth_device_describe(device, &info) != BERTH_OK) {
        fprintf(stderr, "no %s device here: %s\n", kind, berth_last_error()->message);
        return NULL;
    }
    static source here[sizeof all / sizeof all[0]];
    *count = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (is_here(&all[i], info.memory_kinds))
            here[(*count)++] = all[i];
    return here;
}

// Berth's allocators, figures on: the system source, the wrapper that only forwards, and the tracker with its
// own table.
#include <cstdio>
#include <cstdlib>

#include <berth/berth.h>

#include "alloc/cases.hpp"

namespace
{

struct berth_peer {
    berth_allocator *allocator;
    void *allocate(std::size_t bytes)
    {
        void *p;
        return berth_allocate(allocator, bytes, BERTH_ALIGNMENT, nullptr, &p) == BERTH_OK ? p : nullptr;
    }
    void free(void *p, std::size_t bytes)
    {
        berth_deallocate(allocator, p, bytes, nullptr);
    }
};

void expect_ok(berth_status status)
{
    if (status == BERTH_OK)
        return;
    std::fprintf(stderr, "%s: %s\n", berth_status_name(status), berth_last_error()->message);
    std::exit(1);
}

berth_allocator *make_system()
{
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = BERTH_STATS_BASIC;
    berth_allocator *a;
    expect_ok(berth_cpu_allocator_create(&options, &a));
    return a;
}

berth_allocator *make_wrapper()
{
    berth_allocator_ops forward_all{};
    forward_all.struct_size = sizeof forward_all;
    berth_allocator *a;
    expect_ok(berth_wrapper_create(make_system(), &forward_all, nullptr, &a));
    return a;
}

berth_allocator *make_tracking()
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    berth_allocator *a;
    expect_ok(berth_tracking_create(make_system(), &options, &a));
    return a;
}

const int registered = (bench::add_peer("system", berth_peer{make_system()}),
                        bench::add_peer("wrapper", berth_peer{make_wrapper()}),
                        bench::add_peer("tracking", berth_peer{make_tracking()}), 0);

} // namespace

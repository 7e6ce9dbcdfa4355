// Berth's allocators, figures on: the system source, the wrapper that only forwards, the tracker with its own
// table; and beside it a tracker as TensorFlow builds one, with a mutex and a hash map.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

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
    if (!status)
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

// The same work over the same source, the classic way: one lock around one map and the counters.
struct mutex_and_map {
    berth_allocator *inner;
    std::mutex lock;
    std::unordered_map<const void *, std::pair<std::size_t, std::uint64_t>> live; // size and id
    std::uint64_t total = 0, in_use = 0, peak = 0, ids = 0;
};

struct mutex_and_map_peer {
    mutex_and_map *m;
    void *allocate(std::size_t bytes)
    {
        void *p;
        if (berth_allocate(m->inner, bytes, BERTH_ALIGNMENT, nullptr, &p) != BERTH_OK)
            return nullptr;
        std::lock_guard<std::mutex> hold(m->lock);
        m->live.emplace(p, std::make_pair(bytes, ++m->ids));
        m->total += bytes;
        m->in_use += bytes;
        m->peak = m->in_use > m->peak ? m->in_use : m->peak;
        return p;
    }
    void free(void *p, std::size_t bytes)
    {
        {
            std::lock_guard<std::mutex> hold(m->lock);
            auto at = m->live.find(p);
            m->in_use -= at->second.first;
            m->live.erase(at);
        }
        berth_deallocate(m->inner, p, bytes, nullptr);
    }
};

mutex_and_map_peer make_mutex_and_map()
{
    static mutex_and_map state;
    state.inner = make_system();
    return mutex_and_map_peer{&state};
}

const int registered = (bench::add_peer("system", berth_peer{make_system()}),
                        bench::add_peer("wrapper", berth_peer{make_wrapper()}),
                        bench::add_peer("tracking", berth_peer{make_tracking()}),
                        bench::add_peer("mutex_and_map", make_mutex_and_map()), 0);

} // namespace

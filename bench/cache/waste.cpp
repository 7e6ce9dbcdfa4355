// What rounding wastes on recorded traces: the host cache's classes, measured in a running cache, beside
// powers of two. Exits with 1 if a trace wastes more than the stated bound.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <berth/berth.h>

#include "replay/traces.hpp"

namespace
{

struct sums {
    double requested = 0, cache = 0, powers = 0;
    void change(double sign, std::uint64_t size, double block)
    {
        requested += sign * static_cast<double>(size);
        cache += sign * block;
        powers +=
            sign * static_cast<double>(size > 1 ? std::uint64_t{1} << (64 - __builtin_clzll(size - 1)) : 1);
    }
};

double percent(double taken, double requested)
{
    return requested > 0 ? 100 * (taken - requested) / requested : 0;
}

bool measure(const bench::trace &trace, double bound)
{
    berth_allocator *cache = nullptr;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.max_waste = bound;
    if (berth_host_cache_create(&options, &cache) != BERTH_OK)
        return false;
    struct live {
        void *p;
        std::uint64_t size;
    };
    std::vector<live> blocks(trace.allocations);
    sums now, peak, all;
    for (const bench::event &e : trace.events) {
        live &b = blocks[e.id];
        std::size_t block = 0;
        if (e.size_bytes) {
            if (berth_allocate(cache, e.size_bytes, BERTH_ALIGNMENT, nullptr, &b.p) != BERTH_OK)
                return std::fprintf(stderr, "%s\n", berth_last_error()->message), false;
            b.size = e.size_bytes;
            berth_allocated_size(cache, b.p, &block);
            now.change(1, b.size, static_cast<double>(block));
            all.change(1, b.size, static_cast<double>(block));
            if (now.requested > peak.requested)
                peak = now;
        } else if (b.p) {
            berth_allocated_size(cache, b.p, &block);
            now.change(-1, b.size, static_cast<double>(block));
            berth_deallocate(cache, b.p, 0, nullptr);
            b.p = nullptr;
        }
    }
    for (live &b : blocks)
        if (b.p)
            berth_deallocate(cache, b.p, 0, nullptr);
    berth_allocator_release(cache);
    double at_peak = percent(peak.cache, peak.requested), over_all = percent(all.cache, all.requested);
    bool holds = at_peak <= 100 * bound && over_all <= 100 * bound;
    std::printf("%-28s %9.2f %9.2f %12.2f %12.2f  %s\n", trace.name.c_str(), at_peak, over_all,
                percent(peak.powers, peak.requested), percent(all.powers, all.requested),
                holds ? "holds" : "EXCEEDED");
    return holds;
}

} // namespace

int main(int argc, char **argv)
{
    double bound = argc > 1 ? std::atof(argv[1]) : 0.125;
    std::printf("waste in %% of the bytes asked for; the stated bound is %.2f %%\n", 100 * bound);
    std::printf("%-28s %9s %9s %12s %12s\n", "trace", "at peak", "in all", "powers of 2", "in all");
    bool all_hold = true;
    for (const bench::trace &trace : bench::load_traces())
        all_hold = measure(trace, bound) && all_hold;
    return all_hold ? 0 : 1;
}

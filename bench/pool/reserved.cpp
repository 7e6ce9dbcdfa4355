// What the pool takes from the system for each recorded network, against what is live at most, in its normal
// and its compacting mode, and the page faults of a run once it repeats. Every page of every block is
// touched.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <berth/berth.h>
#include <sys/resource.h>

#include "replay/traces.hpp"

namespace
{

struct result {
    double ratio;
    long faults; // of the last run
};

long faults_so_far()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

void run(const bench::trace &t, berth_allocator *pool, std::vector<void *> &live)
{
    for (const bench::event &e : t.events) {
        if (e.size_bytes == 0) {
            berth_deallocate(pool, live[e.id], 0, nullptr);
            continue;
        }
        if (berth_allocate(pool, e.size_bytes, BERTH_ALIGNMENT, nullptr, &live[e.id]) != BERTH_OK) {
            std::fprintf(stderr, "%s\n", berth_last_error()->message);
            std::exit(1);
        }
        for (std::uint64_t at = 0; at < e.size_bytes; at += 4096)
            static_cast<volatile char *>(live[e.id])[at] = 1;
    }
}

std::uint64_t most_live(const bench::trace &t)
{
    std::vector<std::uint64_t> sizes(t.allocations, 0);
    std::uint64_t live = 0, most = 0;
    for (const bench::event &e : t.events) {
        if (e.size_bytes == 0) {
            live -= sizes[e.id];
            continue;
        }
        sizes[e.id] = e.size_bytes;
        live += e.size_bytes;
        most = std::max(most, live);
    }
    return most;
}

result measure(const bench::trace &t, std::uint64_t most, bool compacting)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.compacting = compacting;
    berth_allocator *pool = nullptr;
    if (berth_pool_create(&options, &pool) != BERTH_OK)
        std::exit(1);
    std::vector<void *> live(t.allocations, nullptr);
    long before = 0;
    for (int round = 0; round < 8; round++) {
        before = faults_so_far();
        run(t, pool, live);
    }
    long faults = faults_so_far() - before;
    berth_stats stats = {};
    stats.struct_size = sizeof stats;
    berth_stats_get(pool, &stats);
    berth_allocator_release(pool);
    return {static_cast<double>(stats.max_bytes_reserved) / static_cast<double>(most), faults};
}

} // namespace

int main()
{
    std::printf("  %-28s %14s  %22s  %22s\n", "", "most live", "pool", "compacting");
    std::printf("  %-28s %14s  %10s %11s  %10s %11s\n", "network", "bytes", "reserved", "faults", "reserved",
                "faults");
    std::vector<double> ratios;
    for (const bench::trace &t : bench::load_traces()) {
        std::uint64_t most = most_live(t);
        result normal = measure(t, most, false), compact = measure(t, most, true);
        std::printf("  %-28s %14llu  %8.3f x %11ld  %8.3f x %11ld%s\n", t.name.c_str(),
                    static_cast<unsigned long long>(most), normal.ratio, normal.faults, compact.ratio,
                    compact.faults, most < 1 << 20 ? "   (less than a piece for small blocks)" : "");
        if (most >= 1 << 20)
            ratios.push_back(normal.ratio);
    }
    std::sort(ratios.begin(), ratios.end());
    if (!ratios.empty())
        std::printf("  median %.3f x, at most %.3f x\n", ratios[ratios.size() / 2], ratios.back());
}

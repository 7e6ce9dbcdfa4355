// The cases that every allocator runs. A peer is a type with allocate(bytes) and free(pointer, bytes); it is
// registered under its name, so that one case has the same name for all of them: <peer>/<case>/<size>.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace bench
{

// A block is touched at its first byte: an allocator that hands out pages untouched does not get them for
// free.
inline void touch(void *p)
{
    *static_cast<volatile char *>(p) = 1;
}

// Allocate and free, nothing else live: the shortest path.
template <typename Peer> void pair(benchmark::State &state, Peer peer)
{
    const auto bytes = static_cast<std::size_t>(state.range(0));
    for (auto _ : state) {
        void *p = peer.allocate(bytes);
        if (!p) {
            state.SkipWithError("allocation failed");
            break;
        }
        touch(p);
        peer.free(p, bytes);
    }
}

// A window of live blocks: each step frees the oldest and allocates a new one, as a graph executor does.
template <typename Peer> void window(benchmark::State &state, Peer peer)
{
    const auto bytes = static_cast<std::size_t>(state.range(0));
    const std::size_t live = 256;
    std::vector<void *> ring(live, nullptr);
    std::size_t at = 0;
    for (auto _ : state) {
        if (ring[at])
            peer.free(ring[at], bytes);
        ring[at] = peer.allocate(bytes);
        if (!ring[at]) {
            state.SkipWithError("allocation failed");
            break;
        }
        touch(ring[at]);
        at = (at + 1) % live;
    }
    for (void *p : ring)
        if (p)
            peer.free(p, bytes);
}

// Times are real time per pair with all threads counted together: perfect scaling halves them on two.
template <typename Peer> void add_peer(const std::string &name, Peer peer)
{
    benchmark::RegisterBenchmark((name + "/pair").c_str(), pair<Peer>, peer)
        ->Arg(64)
        ->RangeMultiplier(16)
        ->Range(256, 64 << 20)
        ->Threads(1)
        ->Threads(2)
        ->UseRealTime();
    benchmark::RegisterBenchmark((name + "/window").c_str(), window<Peer>, peer)
        ->Arg(64)
        ->Arg(4096)
        ->Threads(1)
        ->Threads(2)
        ->UseRealTime();
}

} // namespace bench

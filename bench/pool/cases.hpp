// What pools are for: blocks of 4 KiB to 16 MiB freed and allocated again, and the allocations of whole
// networks.
#pragma once

#include "alloc/cases.hpp"
#include "replay/traces.hpp"

namespace bench
{

// One run of a recorded network, time per allocate-and-free pair; blocks are touched at their first byte.
template <typename Peer> void network(benchmark::State &state, Peer peer, const trace *t)
{
    std::vector<void *> live(t->allocations, nullptr);
    std::vector<std::size_t> sizes(t->allocations, 0);
    for (auto _ : state)
        for (const event &e : t->events) {
            if (e.size_bytes == 0) {
                peer.free(live[e.id], sizes[e.id]);
                continue;
            }
            sizes[e.id] = e.size_bytes;
            live[e.id] = peer.allocate(e.size_bytes);
            touch(live[e.id]);
        }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(t->allocations));
}

template <typename Peer> void add_pool_peer(const std::string &name, Peer peer)
{
    auto *fixed = benchmark::RegisterBenchmark((name + "/pair").c_str(), pair<Peer>, peer);
    for (std::int64_t bytes : {256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20})
        fixed->Arg(bytes);
    fixed->Threads(1)->Threads(2)->UseRealTime();
    static const std::vector<trace> traces = load_traces();
    for (const trace &t : traces)
        benchmark::RegisterBenchmark((name + (t.is_recorded ? "/network/" : "/made/") + t.name).c_str(),
                                     network<Peer>, peer, &t)
            ->UseRealTime();
}

} // namespace bench

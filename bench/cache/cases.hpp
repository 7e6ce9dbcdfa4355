// The cases of a cache of pinned memory: a pair of calls, and a pair with one recorded use on a stream that
// has nothing left to do. A peer is a type with allocate(bytes, &ticket), record(pointer, ticket, stream) and
// free(pointer, ticket); the ticket is whatever spares it a search.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <berth/berth.h>

namespace bench
{

inline void expect_ok(berth_status status)
{
    if (!status)
        return;
    std::fprintf(stderr, "%s: %s\n", berth_status_name(status), berth_last_error()->message);
    std::exit(1);
}

// The first pair takes memory from the device, which locks it page by page: not part of what is measured.
template <typename Peer> void warm_up(Peer *peer, std::size_t bytes)
{
    std::uint64_t ticket = 0;
    void *p = peer->allocate(bytes, &ticket);
    peer->free(p, ticket);
}

template <typename Peer> void cache_pair(benchmark::State &state, Peer *peer)
{
    const auto bytes = static_cast<std::size_t>(state.range(0));
    warm_up(peer, bytes);
    for (auto _ : state) {
        std::uint64_t ticket = 0;
        void *p = peer->allocate(bytes, &ticket);
        benchmark::DoNotOptimize(p);
        peer->free(p, ticket);
    }
}

// A thread's own stream, made once: a stream that is just starting would be measured too.
inline berth_stream *stream_of(int thread)
{
    static berth_stream *streams[2];
    if (!streams[thread])
        expect_ok(berth_stream_create(berth_device_cpu(), &streams[thread]));
    return streams[thread];
}

template <typename Peer> void cache_use(benchmark::State &state, Peer *peer)
{
    const auto bytes = static_cast<std::size_t>(state.range(0));
    berth_stream *stream = stream_of(state.thread_index());
    warm_up(peer, bytes);
    for (auto _ : state) {
        std::uint64_t ticket = 0;
        void *p = peer->allocate(bytes, &ticket);
        benchmark::DoNotOptimize(p);
        peer->record(p, ticket, stream);
        peer->free(p, ticket);
    }
}

// Times are real time per pair with all threads counted together: perfect scaling halves them on two. Pairs
// and uses have a cache each: what one leaves in the stocks of threads that have ended would change the
// other.
template <typename Peer> void add_cache(const std::string &name)
{
    for (auto *one : {benchmark::RegisterBenchmark((name + "/pair").c_str(), cache_pair<Peer>, new Peer),
                      benchmark::RegisterBenchmark((name + "/use").c_str(), cache_use<Peer>, new Peer)})
        one->RangeMultiplier(4)->Range(256, 64 << 20)->Threads(1)->Threads(2)->UseRealTime();
}

} // namespace bench

// Plain malloc and free as programs call them, of the C library or of what is preloaded in its place.
#include <cstdlib>
#include <vector>

#include <benchmark/benchmark.h>

namespace
{

// One block at a time.
void pair(benchmark::State &state)
{
    const auto bytes = static_cast<std::size_t>(state.range(0));
    for (auto _ : state) {
        void *p = std::malloc(bytes);
        benchmark::DoNotOptimize(p);
        std::free(p);
    }
}

// Many at once, freed in another order than they came in.
void window(benchmark::State &state)
{
    constexpr std::size_t live = 512, step = 311; // coprime: every place in turn
    const auto bytes = static_cast<std::size_t>(state.range(0));
    std::vector<void *> blocks(live);
    std::size_t at = 0;
    for (auto _ : state) {
        std::free(blocks[at]);
        blocks[at] = std::malloc(bytes);
        benchmark::DoNotOptimize(blocks[at]);
        at = (at + step) % live;
    }
    for (void *p : blocks)
        std::free(p);
}

BENCHMARK(pair)
    ->Name("malloc/pair")
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Arg(2048)
    ->Arg(4096)
    ->Arg(65536)
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK(window)
    ->Name("malloc/window")
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Arg(2048)
    ->Arg(4096)
    ->Arg(65536)
    ->ThreadRange(1, 2)
    ->UseRealTime();

} // namespace

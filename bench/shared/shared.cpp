// Shared arenas: what attaching, publishing and holding cost, and reading 16 MiB in one beside reading memory of one's own.
#include <benchmark/benchmark.h>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "berth/berth.h"

namespace
{

constexpr size_t read_bytes = 16 << 20;

berth_shared *new_arena(size_t count, size_t bytes)
{
    std::vector<berth_plan_allocation> list(count);
    for (auto &a : list)
        a = {sizeof a, bytes, 64, count, BERTH_NO_OFFSET, "weight"};
    berth_plan *plan = nullptr;
    berth_shared *arena = nullptr;
    berth_plan_create(&plan);
    if (berth_plan_set(plan, list.data(), count, nullptr) != BERTH_OK ||
        berth_shared_create(plan, nullptr, &arena) != BERTH_OK)
        abort();
    berth_plan_release(plan);
    return arena;
}

void attach(benchmark::State &state)
{
    berth_shared *arena = new_arena(static_cast<size_t>(state.range(0)), 4096);
    int descriptor = -1;
    berth_shared_descriptor(arena, BERTH_SHARED_READ, &descriptor);
    for (auto _ : state) {
        berth_shared *reader = nullptr;
        if (berth_shared_attach(descriptor, nullptr, &reader) != BERTH_OK)
            state.SkipWithError("not attached");
        berth_shared_release(reader);
    }
    close(descriptor);
    berth_shared_release(arena);
}

void sum(benchmark::State &state, const void *data)
{
    for (auto _ : state) {
        const auto *words = static_cast<const uint64_t *>(data);
        uint64_t total = 0;
        for (size_t i = 0; i < read_bytes / sizeof *words; i++)
            total += words[i];
        benchmark::DoNotOptimize(total);
    }
}

void read_own(benchmark::State &state)
{
    void *data = mmap(nullptr, read_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(data, read_bytes, MADV_NOHUGEPAGE); // pages as a shared arena's are
    memset(data, 1, read_bytes);
    sum(state, data);
    munmap(data, read_bytes);
}

void read_shared(benchmark::State &state)
{
    berth_shared *arena = new_arena(1, read_bytes), *reader = nullptr;
    void *data = nullptr;
    int descriptor = -1;
    berth_shared_get(arena, 0, &data, nullptr);
    memset(data, 1, read_bytes);
    berth_shared_descriptor(arena, BERTH_SHARED_READ, &descriptor);
    berth_shared_attach(descriptor, nullptr, &reader);
    berth_shared_get(reader, 0, &data, nullptr);
    sum(state, data);
    close(descriptor);
    berth_shared_release(reader);
    berth_shared_release(arena);
}

void publish(benchmark::State &state)
{
    berth_shared *arena = new_arena(1, 4096);
    for (auto _ : state) {
        berth_shared_write_begin(arena);
        berth_shared_publish(arena, nullptr);
    }
    berth_shared_release(arena);
}

void hold(benchmark::State &state)
{
    berth_shared *arena = new_arena(1, 4096);
    berth_shared_publish(arena, nullptr);
    for (auto _ : state) {
        berth_shared_read_begin(arena, nullptr);
        berth_shared_read_end(arena);
    }
    berth_shared_release(arena);
}

void check(benchmark::State &state)
{
    berth_shared *arena = new_arena(1, 4096);
    uint64_t generation = 0;
    berth_shared_publish(arena, nullptr);
    for (auto _ : state) {
        benchmark::DoNotOptimize(berth_shared_generation(arena, &generation));
        benchmark::DoNotOptimize(berth_shared_check(arena, generation));
    }
    berth_shared_release(arena);
}

} // namespace

BENCHMARK(attach)->Name("berth/attach/1")->Arg(1);
BENCHMARK(attach)->Name("berth/attach/1265")->Arg(1265);
BENCHMARK(publish)->Name("berth/publish");
BENCHMARK(hold)->Name("berth/hold");
BENCHMARK(check)->Name("berth/check");
BENCHMARK(read_own)->Name("own/read/16MiB");
BENCHMARK(read_shared)->Name("berth/read/16MiB");

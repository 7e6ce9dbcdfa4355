// A block of memory that UCX knows, and its free:
//   pool           from berth_ucx_pool_create
//   plain          from a pool without UCX: what the registered one adds to it is the price of forks and tickets
//   tickets        the same while 1,265 other blocks have tickets
//   register       ucp_mem_map and ucp_mem_unmap of memory that is there
//   allocate       the same with UCP_MEM_MAP_ALLOCATE
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <berth/berth.h>
#include <berth_ucx.h>

namespace
{

constexpr int ticket_holders = 1265;

void expect(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "%s failed: %s\n", what, berth_last_error()->message);
    std::exit(1);
}

berth_ucx *ucx()
{
    static berth_ucx *const one = [] {
        berth_ucx *made = nullptr;
        expect(berth_ucx_create(nullptr, &made) == BERTH_OK, "UCX");
        return made;
    }();
    return one;
}

berth_allocator *pool()
{
    static berth_allocator *const one = [] {
        berth_allocator *made = nullptr;
        expect(berth_ucx_pool_create(ucx(), nullptr, &made) == BERTH_OK, "a pool");
        return made;
    }();
    return one;
}

berth_allocator *plain_pool()
{
    static berth_allocator *const one = [] {
        berth_allocator *made = nullptr;
        expect(berth_pool_create(nullptr, &made) == BERTH_OK, "a plain pool");
        return made;
    }();
    return one;
}

void hold_tickets()
{
    static const bool held = [] {
        for (int i = 0; i < ticket_holders; i++) {
            void *p = nullptr;
            char ticket[1024];
            size_t bytes = sizeof ticket;
            expect(berth_allocate(pool(), 4096, 64, nullptr, &p) == BERTH_OK &&
                       berth_ucx_publish(pool(), p, 0, 4096, ticket, &bytes) == BERTH_OK,
                   "a ticket");
        }
        return true;
    }();
    (void)held;
}

void from_pool(benchmark::State &state, size_t size_bytes, berth_allocator *a)
{
    for (auto _ : state) {
        void *p = nullptr;
        expect(berth_allocate(a, size_bytes, 64, nullptr, &p) == BERTH_OK, "allocating");
        benchmark::DoNotOptimize(p);
        berth_deallocate(a, p, size_bytes, nullptr);
    }
}

void by_ucx(benchmark::State &state, size_t size_bytes, bool allocate)
{
    ucp_context_h context = berth_ucx_context(ucx());
    std::vector<char> memory(size_bytes, 1);
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = size_bytes;
    params.flags = allocate ? UCP_MEM_MAP_ALLOCATE : 0;
    if (!allocate) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address = memory.data();
    }
    for (auto _ : state) {
        ucp_mem_h handle = nullptr;
        expect(ucp_mem_map(context, &params, &handle) == UCS_OK, "ucp_mem_map");
        benchmark::DoNotOptimize(handle);
        ucp_mem_unmap(context, handle);
    }
}

int add_all()
{
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"64KiB", size_t{64} << 10}, {"1MiB", size_t{1} << 20}};
    for (const auto &size : sizes) {
        const std::string name = std::string("/pair/") + size.name;
        const size_t bytes = size.bytes;
        using benchmark::RegisterBenchmark;
        RegisterBenchmark(("pool" + name).c_str(), [=](benchmark::State &s) { from_pool(s, bytes, pool()); });
        RegisterBenchmark(("plain" + name).c_str(),
                          [=](benchmark::State &s) { from_pool(s, bytes, plain_pool()); });
        RegisterBenchmark(("tickets" + name).c_str(), [=](benchmark::State &s) {
            hold_tickets();
            from_pool(s, bytes, pool());
        });
        RegisterBenchmark(("register" + name).c_str(), [=](benchmark::State &s) { by_ucx(s, bytes, false); });
        RegisterBenchmark(("allocate" + name).c_str(), [=](benchmark::State &s) { by_ucx(s, bytes, true); });
    }
    return 0;
}

const int added = add_all();

} // namespace

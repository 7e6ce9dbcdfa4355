// Decorators, alone and three deep, over the system source, and tracking over the pool: what each adds to an allocation and its free.
#include <berth/berth.h>

#include <cstdio>
#include <cstdlib>

#include "alloc/cases.hpp"

namespace
{

struct peer {
    berth_allocator *a;

    void *allocate(std::size_t bytes) const
    {
        void *p = nullptr;
        berth_allocate(a, bytes, BERTH_ALIGNMENT, nullptr, &p);
        return p;
    }
    void free(void *p, std::size_t bytes) const
    {
        berth_deallocate(a, p, bytes, nullptr);
    }
};

void require(berth_status status)
{
    if (!status)
        return;
    std::fprintf(stderr, "stack: %s\n", berth_last_error()->message);
    std::exit(1);
}

// The allocators live as long as the program.
berth_allocator *system_source()
{
    berth_allocator *a = nullptr;
    require(berth_cpu_allocator_create(nullptr, &a));
    return a;
}

// A decorator that does nothing but look at the status: what any of them costs at least.
berth_status pass_allocate(void *self, std::size_t bytes, std::size_t alignment, const berth_request *request,
                           void **out)
{
    return berth_allocate(static_cast<berth_allocator *>(self), bytes, alignment, request, out);
}

berth_allocator *passing(berth_allocator *inner)
{
    berth_allocator_ops ops = {};
    ops.struct_size = sizeof ops;
    ops.allocate = pass_allocate;
    berth_allocator *a = nullptr;
    require(berth_wrapper_create(inner, &ops, inner, &a));
    return a;
}

berth_allocator *limit(berth_allocator *inner)
{
    berth_budget *budget = nullptr;
    berth_allocator *a = nullptr;
    require(berth_budget_create(std::uint64_t(1) << 34, &budget));
    require(berth_limit_create(inner, budget, &a));
    return a;
}

berth_allocator *scopes(berth_allocator *inner)
{
    berth_allocator *a = nullptr;
    require(berth_scope_meter_create(inner, &a));
    return a;
}

berth_allocator *guard(berth_allocator *inner)
{
    berth_allocator *a = nullptr;
    require(berth_guard_create(inner, nullptr, &a));
    return a;
}

berth_allocator *retry(berth_allocator *inner)
{
    berth_allocator *a = nullptr;
    require(berth_retry_create(inner, nullptr, &a));
    return a;
}

berth_allocator *explain(berth_allocator *inner)
{
    berth_allocator *a = nullptr;
    require(berth_explain_create(inner, &a));
    return a;
}

berth_allocator *pool()
{
    berth_allocator *a = nullptr;
    require(berth_pool_create(nullptr, &a));
    return a;
}

berth_allocator *tracking(berth_allocator *inner)
{
    berth_allocator *a = nullptr;
    require(berth_tracking_create(inner, nullptr, &a));
    return a;
}

// Beginning and ending a scope, with nothing in between.
void scope_pair(benchmark::State &state)
{
    for (auto _ : state) {
        berth_scope scope;
        berth_scope_begin(&scope, "layer");
        benchmark::DoNotOptimize(scope);
        berth_scope_end(&scope);
    }
}

bool registered = [] {
    bench::add_peer("system", peer{system_source()});
    bench::add_peer("passing", peer{passing(system_source())});
    bench::add_peer("limit", peer{limit(system_source())});
    bench::add_peer("scopes", peer{scopes(system_source())});
    bench::add_peer("guard", peer{guard(system_source())});
    bench::add_peer("retry", peer{retry(system_source())});
    bench::add_peer("explain", peer{explain(system_source())});
    bench::add_peer("three", peer{explain(retry(limit(system_source())))});
    bench::add_peer("three_that_count", peer{scopes(retry(limit(system_source())))});
    bench::add_peer("pool", peer{pool()});
    bench::add_peer("tracked_pool", peer{tracking(pool())});
    benchmark::RegisterBenchmark("scope/begin_end", scope_pair);
    return true;
}();

} // namespace

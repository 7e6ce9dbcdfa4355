// Berth's host cache, by pointer and by handle; and the loop alone.
#include "cache/cases.hpp"

namespace
{

berth_allocator *make_cache()
{
    berth_allocator *cache = nullptr;
    bench::expect_ok(berth_host_cache_create(nullptr, &cache));
    return cache;
}

struct by_pointer {
    berth_allocator *cache = make_cache();
    void *allocate(std::size_t bytes, std::uint64_t *)
    {
        void *p;
        bench::expect_ok(berth_allocate(cache, bytes, BERTH_ALIGNMENT, nullptr, &p));
        return p;
    }
    void record(void *p, std::uint64_t, berth_stream *stream)
    {
        berth_record_use(cache, p, stream);
    }
    void free(void *p, std::uint64_t)
    {
        bench::expect_ok(berth_deallocate(cache, p, 0, nullptr));
    }
};

struct by_handle {
    berth_allocator *cache = make_cache();
    void *allocate(std::size_t bytes, std::uint64_t *ticket)
    {
        void *p;
        bench::expect_ok(berth_host_cache_allocate(cache, bytes, BERTH_ALIGNMENT, nullptr, &p, ticket));
        return p;
    }
    void record(void *p, std::uint64_t ticket, berth_stream *stream)
    {
        berth_host_cache_record_use(cache, p, ticket, stream);
    }
    void free(void *p, std::uint64_t ticket)
    {
        bench::expect_ok(berth_host_cache_free(cache, p, ticket, nullptr));
    }
};

struct nothing {
    char block[64];
    void *allocate(std::size_t, std::uint64_t *)
    {
        return block;
    }
    void record(void *p, std::uint64_t, berth_stream *)
    {
        benchmark::DoNotOptimize(p);
    }
    void free(void *p, std::uint64_t)
    {
        benchmark::DoNotOptimize(p);
    }
};

const int registered = [] {
    bench::add_cache<by_pointer>("host_cache");
    bench::add_cache<by_handle>("handles");
    bench::add_cache<nothing>("loop");
    return 0;
}();

} // namespace

// The pool with its defaults, figures on.
#include <cstdio>
#include <cstdlib>

#include <berth/berth.h>

#include "pool/cases.hpp"

namespace
{

struct pool_peer {
    berth_allocator *pool;
    void *allocate(std::size_t bytes)
    {
        void *p;
        return berth_allocate(pool, bytes, BERTH_ALIGNMENT, nullptr, &p) == BERTH_OK ? p : nullptr;
    }
    void free(void *p, std::size_t bytes)
    {
        berth_deallocate(pool, p, bytes, nullptr);
    }
};

berth_allocator *make_pool()
{
    berth_allocator *pool;
    if (berth_pool_create(nullptr, &pool) == BERTH_OK)
        return pool;
    std::fprintf(stderr, "%s\n", berth_last_error()->message);
    std::exit(1);
}

const int registered = (bench::add_pool_peer("pool", pool_peer{make_pool()}), 0);

} // namespace

// aligned_alloc(64) and free on the pool's cases: the C library's, or those of an allocator preloaded in
// their place.
#include <cstdlib>

#include "pool/cases.hpp"

namespace
{

struct aligned_malloc {
    void *allocate(std::size_t bytes)
    {
        return std::aligned_alloc(64, (bytes + 63) & ~static_cast<std::size_t>(63));
    }
    void free(void *p, std::size_t)
    {
        std::free(p);
    }
};

const int registered = (bench::add_pool_peer("malloc", aligned_malloc{}), 0);

} // namespace

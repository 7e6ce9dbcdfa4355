// The C library's aligned_alloc(64) and free, or those of an allocator preloaded in their place.
#include <cstdlib>

#include "alloc/cases.hpp"

namespace
{

struct aligned_malloc {
    void *allocate(std::size_t bytes)
    {
        return std::aligned_alloc(64, bytes);
    }
    void free(void *p, std::size_t)
    {
        std::free(p);
    }
};

const int registered = (bench::add_peer("malloc", aligned_malloc{}), 0);

} // namespace

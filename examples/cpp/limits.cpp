// A limit, and the two ways to hear that it is reached: an exception, or an error code.
#include <cstdio>

#include "berth/berth.hpp"

int main()
{
    berth::allocator limited = berth::stack("limit=1M");
    try {
        limited.allocate(2 << 20);
    } catch (const std::bad_alloc &e) {
        std::printf("thrown: %s\n", e.what());
    }
    std::error_code code;
    void *p = limited.allocate(2 << 20, 64, code);
    std::printf("told: %p, %s\n", p, code.message().c_str());
    return p || code.value() != BERTH_OVER_BUDGET;
}

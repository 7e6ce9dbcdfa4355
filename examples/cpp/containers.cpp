// A vector whose memory comes from a Berth stack, and what it took.
#include <cstdio>
#include <vector>

#include "berth/berth.hpp"

int main()
{
    berth::allocator tracked = berth::tracking(berth::cpu());
    {
        std::vector<float, berth::container_allocator<float>> x(tracked);
        for (int i = 0; i < 1000; i++)
            x.push_back(static_cast<float>(i));
        std::printf("%zu numbers, %llu bytes in use\n", x.size(),
                    static_cast<unsigned long long>(tracked.stats().bytes_in_use));
    }
    std::printf("%llu bytes in use when the vector is gone\n",
                static_cast<unsigned long long>(tracked.stats().bytes_in_use));
}

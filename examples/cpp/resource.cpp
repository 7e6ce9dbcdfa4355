// std::pmr: any container of the standard library over any allocator of Berth.
#include <cstdio>

#include "berth/berth.hpp"

#ifdef BERTH_HAS_PMR
#include <string>
#include <vector>

int main()
{
    berth::memory_resource resource(berth::pool());
    std::pmr::vector<std::pmr::string> words(&resource);
    words.emplace_back("a word that is too long for the string itself");
    words.emplace_back("another of that kind, in the same pool as the vector");
    std::printf("%zu words, %llu allocations\n", words.size(),
                static_cast<unsigned long long>(resource.source().stats().num_allocs));
}
#else
int main()
{
    std::puts("this standard library has no std::pmr");
}
#endif

/* A library of C++ for a program that has none: all its operators come with it. */
#include <new>
#include <string>
#include <vector>

struct alignas(64) wide {
    char bytes[64];
};

extern "C" int odd_library_run(int count)
{
    std::vector<std::string> words;
    for (int i = 0; i < count; i++)
        words.push_back(std::string(4321, 'x'));
    wide *one = new wide;
    wide *many = new (std::nothrow) wide[3];
    delete one;
    delete[] many;
    try {
        volatile size_t huge = ~size_t{0} / 4;
        ::operator delete(::operator new(huge));
        return -1;
    } catch (const std::bad_alloc &) {
    }
    return static_cast<int>(words.size());
}

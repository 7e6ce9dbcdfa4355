// What a C++ program does with its memory, for the recorder: names with arguments, and operators that throw.
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

namespace fleet
{
template <typename Cargo> struct Ship {
    __attribute__((noinline)) void load(std::size_t count)
    {
        hold.push_back(new Cargo[count]);
    }
    std::vector<Cargo *> hold;
};
} // namespace fleet

static int throws()
{
    volatile std::size_t huge = std::size_t(1) << 60;
    int caught = 0;
    try {
        char *volatile never = new char[huge]; // volatile: a compiler may leave a pair out
        delete[] never;
    } catch (const std::bad_alloc &) {
        caught++;
    }
    char *volatile none = new (std::nothrow) char[huge];
    caught += none == nullptr;
    char *volatile after = new char[4321];
    delete[] after;
    return caught == 2 ? 0 : 1;
}

static int names()
{
    fleet::Ship<unsigned short> ship;
    ship.load(4000);
    return ship.hold.size() == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    return std::strcmp(what, "throws") == 0 ? throws() : std::strcmp(what, "names") == 0 ? names() : 2;
}

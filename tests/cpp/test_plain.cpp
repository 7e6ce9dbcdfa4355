// berth.hpp as runtimes use it that are built without exceptions and RTTI: statuses are values there.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "berth/berth.hpp"

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::exit(1);
}

int main()
{
    std::error_code code;
    berth::allocator limited = berth::stack("limit=1M");
    void *p = limited.allocate(1000, 64, code);
    expect(p && !code, "what fits is given");
    expect(!limited.allocate(2u << 20, 64, code), "what does not fit is refused");
    expect(code == berth::code_of(BERTH_OVER_BUDGET), "and the status is a value");
    expect(limited.deallocate(p, 1000) == BERTH_OK, "a block goes back");
    std::vector<int, berth::container_allocator<int>> numbers(100, 7, limited);
    expect(numbers[99] == 7, "containers take it");
#ifdef BERTH_HAS_PMR
    berth::memory_resource one(limited), other(berth::cpu());
    expect(one == one && one != other, "resources are compared");
    std::pmr::vector<int> more(100, 8, &one);
    expect(more[99] == 8, "and used");
#endif
    return 0;
}

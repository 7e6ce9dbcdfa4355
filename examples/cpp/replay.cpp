// One run is recorded, every later one is served from one block.
#include <cstdio>

#include "berth/berth.hpp"

static void forward(const berth::allocator &a)
{
    void *x = a.allocate(400000), *y = a.allocate(200000);
    a.deallocate(x);
    void *z = a.allocate(300000);
    a.deallocate(y);
    a.deallocate(z);
}

int main()
{
    berth::plan plan;
    berth::allocator planned = berth::planned(berth::cpu(), plan);
    {
        berth::recording run(planned);
        forward(planned);
        run.end();
    }
    berth::replaying run(planned);
    forward(planned);
    berth_report report = run.end();
    std::printf("%zu allocations in one block of %llu bytes; %llu of them came from it\n", plan.size(),
                static_cast<unsigned long long>(plan.total_bytes()),
                static_cast<unsigned long long>(report.from_plan));
    return report.from_plan != plan.size();
}

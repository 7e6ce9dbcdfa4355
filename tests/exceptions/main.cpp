// An exception leaves a record, a validate and a replay scope: each has ended when it is caught.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <berth/berth.h>

namespace
{

void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::exit(1);
}

void *take(berth_allocator *a, std::size_t bytes)
{
    void *p = nullptr;
    expect(berth_allocate(a, bytes, 64, nullptr, &p) == BERTH_OK, "a block was allocated");
    return p;
}

void work(berth_allocator *a, bool stumbles)
{
    void *p = take(a, 256), *q = take(a, 64);
    expect(berth_deallocate(a, p, 0, nullptr) == BERTH_OK, "a block was freed");
    if (stumbles) {
        berth_deallocate(a, q, 0, nullptr);
        throw std::runtime_error("halfway");
    }
    void *r = take(a, 128);
    berth_deallocate(a, r, 0, nullptr);
    berth_deallocate(a, q, 0, nullptr);
}

template <class body> void catching(const body &run)
{
    bool caught = false;
    try {
        run();
    } catch (const std::runtime_error &) {
        caught = true;
    }
    expect(caught, "the exception came through");
    expect(berth_run_current() == nullptr, "the scope has ended");
}

} // namespace

int main()
{
    berth_plan *plan = nullptr;
    berth_allocator *planned = nullptr;
    expect(berth_plan_create(&plan) == BERTH_OK, "a plan");
    expect(berth_planned_create(berth_cpu_allocator(), plan, &planned) == BERTH_OK, "a planned allocator");
    catching([&] {
        BERTH_RECORD(planned)
        {
            work(planned, true);
        }
    });
    expect(berth_plan_count(plan) == 2, "what was recorded until then is planned");
    BERTH_RECORD(planned)
    {
        work(planned, false);
    }
    expect(berth_plan_count(plan) == 3, "the whole run is planned");
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    catching([&] {
        BERTH_VALIDATE(planned, &difference)
        {
            work(planned, true);
        }
    });
    expect(difference.status == BERTH_MISMATCH, "half a run is not valid");
    berth_report report = BERTH_REPORT_INIT;
    catching([&] {
        BERTH_REPLAY(planned, &report)
        {
            work(planned, true);
        }
    });
    expect(report.from_plan == 2 && report.stragglers == 0, "half a run was served");
    BERTH_REPLAY(planned, &report)
    {
        work(planned, false);
    }
    expect(report.from_plan == 3 && report.deviation_count == 0, "a whole run follows");
    berth_allocator_release(planned);
    berth_plan_release(plan);
    return 0;
}

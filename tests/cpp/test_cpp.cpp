/* berth.hpp: references are counted, failures are thrown or told, containers and scopes give everything back. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "berth/berth.hpp"

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::exit(1);
}

static std::uint64_t in_use(const berth::allocator &a)
{
    return a.stats().bytes_in_use;
}

static void handles()
{
    berth::allocator empty, a = berth::tracking(berth::cpu());
    expect(!empty && a, "an empty handle is false");
    berth::allocator b = a, c = std::move(b);
    expect(!b && c == a && c != empty, "copies are the same allocator, a moved one is empty");
    const berth::allocator &itself = a;
    a = itself;
    c = std::move(a);
    expect(c && !a, "assigning moves");
    void *p = c.allocate(100);
    expect(c.deallocate(p, 100) == BERTH_OK && c.deallocate(nullptr) == BERTH_OK, "blocks go back");
    expect(c.deallocate(&p) == BERTH_BAD_FREE, "a wrong free is told");
    berth::allocator shared = berth::allocator::share(c.get());
    expect(std::strlen(shared.name()) > 0, "it has a name");
}

static void upstreams()
{
    berth::allocator ground = berth::stack("prefault=yes");
    for (const berth::allocator &a :
         {berth::pool_over(ground), berth::host_cache_over(ground), berth::host_cache()}) {
        std::vector<int, berth::container_allocator<int>> numbers(1000, 7, a);
        expect(numbers[999] == 7, "a container over a pool over pages");
        expect(in_use(ground) > 0 || std::string(a.name()) == "host_cache", "the pages are the ground's");
    }
    expect(in_use(ground) == 0, "what was taken is given back");
}

template <class Exception, class Call> static berth_status thrown(Call call)
{
    try {
        call();
    } catch (const Exception &e) {
        expect(std::strlen(e.what()) > 0, "what() says something");
        return e.status();
    }
    return BERTH_OK;
}

static void failures()
{
    berth::allocator limited = berth::stack("limit=1000");
    expect(thrown<berth::bad_alloc>([&] { limited.allocate(2000); }) == BERTH_OVER_BUDGET,
           "a limit is bad_alloc");
    expect(thrown<berth::error>([&] { limited.allocate(10, 3); }) == BERTH_INVALID_ARGUMENT,
           "an argument is error");
    expect(thrown<berth::error>([] { berth::allocator().allocate(10); }) == BERTH_INVALID_ARGUMENT,
           "an empty handle");
    expect(thrown<berth::error>([] { berth::stack("no such thing"); }) == BERTH_INVALID_ARGUMENT,
           "a bad setting");
    std::error_code code;
    expect(!limited.allocate(2000, 64, code) && code == berth::code_of(BERTH_OVER_BUDGET), "a code instead");
    expect(code.category() == berth::category() && !code.message().empty(), "with words");
    void *p = limited.allocate(500, 64, code);
    expect(p && !code, "and none when it works");
    limited.deallocate(p);
}

static void containers()
{
    berth::allocator a = berth::tracking(berth::cpu()), b = berth::tracking(berth::cpu());
    {
        using allocator = berth::container_allocator<int>;
        std::vector<int, allocator> x(a), y(b);
        for (int i = 0; i < 10000; i++)
            x.push_back(i);
        expect(in_use(a) >= 40000 && in_use(b) == 0, "a vector allocates where it is told");
        y = x;
        expect(y.get_allocator() == x.get_allocator() && in_use(b) == 0,
               "assigning takes the allocator along");
        std::vector<int, allocator> moved(std::move(y));
        y.assign(10, 1); /* a container that was moved from may be used again */
        expect(y.get_allocator() == moved.get_allocator() && y.size() == 10 && moved.size() == 10000,
               "moving leaves the allocator");
        std::list<int, allocator> list(x.begin(), x.begin() + 100, allocator(b));
        std::map<int, int, std::less<int>, berth::container_allocator<std::pair<const int, int>>> map{
            std::less<int>(), berth::container_allocator<std::pair<const int, int>>(b)};
        for (int i = 0; i < 100; i++)
            map[i] = i;
        expect(in_use(b) > 0, "nodes too");
        bool refused = false;
        try {
            (void)allocator(a).allocate(SIZE_MAX / 2);
        } catch (const std::bad_alloc &) {
            refused = true;
        }
        expect(refused, "too many elements");
    }
    expect(in_use(a) == 0 && in_use(b) == 0, "everything comes back");
#ifdef BERTH_HAS_PMR
    {
        berth::memory_resource r(a), same(a), other(b);
        expect(r == same && r != other && r != *std::pmr::new_delete_resource(),
               "resources are as equal as allocators");
        std::pmr::vector<std::pmr::string> words(&r);
        for (int i = 0; i < 100; i++)
            words.emplace_back("a word that is too long for the string itself");
        void *nothing = r.allocate(0, 1);
        expect(nothing != nullptr, "nothing is a block");
        r.deallocate(nothing, 0, 1);
        expect(in_use(a) > 4000, "pmr allocates where it is told");
    }
    expect(in_use(a) == 0, "and gives it back");
#endif
}

static void buffers()
{
    berth::allocator a = berth::tracking(berth::cpu());
    {
        berth::buffer none, whole(a, 1000), copy(a, 1000);
        expect(!none && whole.size() == 1000 && whole.device().kind == BERTH_DEVICE_CPU,
               "a buffer says what it is");
        whole.zero();
        std::memset(whole.data(), 5, 1000);
        berth::stream first, second(std::move(first));
        expect(!first.get(), "a moved stream is empty");
        copy.copy_from(whole, second.get());
        second.synchronize();
        berth::buffer part = copy.sub(990, 10);
        copy = berth::buffer();
        expect(static_cast<char *>(part.data())[9] == 5, "a part keeps the whole");
        expect(thrown<berth::error>([&] { part.copy_from(whole); }) == BERTH_INVALID_ARGUMENT, "too small");
        char own[10];
        expect(berth::buffer::view(own, 10).data() == own, "a view");
        expect(thrown<berth::error>([&] { whole.sub(1000, 1); }) == BERTH_INVALID_ARGUMENT, "out of range");
    }
    expect(in_use(a) == 0, "buffers come back");
}

static void scopes()
{
    {
        berth::scope outer("outer");
        try {
            berth::scope inner("inner");
            expect(std::string(berth_scope_label()) == "inner", "the innermost label");
            throw 1;
        } catch (int) {
        }
        expect(std::string(berth_scope_label()) == "outer", "an exception ends a scope");
    }
    expect(!berth_scope_label(), "so does the end of the block");
    berth::plan plan;
    berth::allocator planned = berth::planned(berth::cpu(), plan);
    auto work = [&](std::size_t bytes) { planned.deallocate(planned.allocate(bytes)); };
    {
        berth::recording run(planned);
        work(1000);
        expect(thrown<berth::error>([&] { berth::recording nested(planned); }) == BERTH_BUSY,
               "scopes do not nest");
    }
    expect(plan.size() == 1 && plan.total_bytes() >= 1000, "leaving the block ends the recording");
    {
        berth::replaying run(planned);
        work(1000);
        expect(run.end().from_plan == 1, "a replay");
    }
    berth_run_options strict = BERTH_RUN_OPTIONS_INIT;
    strict.strict = true;
    try {
        berth::replaying run(planned, &strict);
        work(5000);
        expect(false, "a strict replay refuses a stranger");
    } catch (const berth::error &e) {
        expect(e.status() == BERTH_MISMATCH && e.code() == berth::code_of(BERTH_MISMATCH), "by its status");
    }
    expect(berth_run_current() == nullptr, "the exception ended the replay");
    berth::recording again(planned); /* so that another can begin */
    again.end();
}

int main()
{
    handles();
    upstreams();
    failures();
    containers();
    buffers();
    scopes();
}

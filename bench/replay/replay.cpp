// What a replayed pair and a recorded event cost. The peers of one program run the same traces:
//   call      berth_allocate and berth_deallocate on the planned allocator in a replay scope
//   inline    the same through berth_run_allocate and berth_run_deallocate
//   flat      the design with a hash map of live pointers, as a table behind the same front: a flat map
//   std       the same with std::unordered_map
//   record    a recording scope over an inner allocator that costs almost nothing, per event
//   source    that inner allocator alone, per event
//   loop      the loop that feeds the others, with nothing called, per pair
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include <benchmark/benchmark.h>

#include <berth/berth.h>

#include "replay/traces.hpp"

namespace
{

void expect_ok(berth_status status)
{
    if (!status)
        return;
    std::fprintf(stderr, "%s: %s\n", berth_status_name(status), berth_last_error()->message);
    std::exit(1);
}

// ---- Plans -----------------------------------------------------------------------------------------------

berth_plan *plan_of(const bench::trace &trace)
{
    std::vector<berth_plan_allocation> allocations(trace.allocations, BERTH_PLAN_ALLOCATION_INIT);
    std::uint64_t next = 0;
    for (const bench::event &e : trace.events) {
        if (e.size_bytes) {
            allocations[e.id].size_bytes = e.size_bytes;
            allocations[e.id].alignment = e.alignment;
            next = e.id + 1;
        } else {
            allocations[e.id].freed_at = next;
        }
    }
    berth_plan *plan = nullptr;
    expect_ok(berth_plan_create(&plan));
    expect_ok(berth_plan_set(plan, allocations.data(), allocations.size(), nullptr));
    return plan;
}

// ---- The stand-in: what is live is kept in a hash map from pointers ---------------------------------------

struct std_map {
    std::unordered_map<void *, std::uint32_t> map;
    void put(void *p, std::uint32_t id)
    {
        map[p] = id;
    }
    bool take(void *p, std::uint32_t *id)
    {
        auto found = map.find(p);
        if (found == map.end())
            return false;
        *id = found->second;
        map.erase(found);
        return true;
    }
};

// Linear probing, at most half full, gaps closed on removal: about as fast as such a map gets.
struct flat_map {
    struct place {
        void *p;
        std::uint32_t id;
    };
    std::vector<place> places = std::vector<place>(64);
    std::size_t count = 0;
    unsigned shift = 58;
    std::size_t home(void *p) const
    {
        return (reinterpret_cast<std::uintptr_t>(p) >> 4) * 0x9E3779B97F4A7C15u >> shift;
    }
    void grow()
    {
        std::vector<place> old(places.size() * 2);
        old.swap(places);
        shift--;
        count = 0;
        for (const place &x : old)
            if (x.p)
                put(x.p, x.id);
    }
    void put(void *p, std::uint32_t id)
    {
        if (count * 2 >= places.size())
            grow();
        std::size_t mask = places.size() - 1, at = home(p);
        while (places[at].p && places[at].p != p)
            at = (at + 1) & mask;
        count += !places[at].p;
        places[at] = {p, id};
    }
    bool take(void *p, std::uint32_t *id)
    {
        std::size_t mask = places.size() - 1, hole = home(p);
        while (places[hole].p != p) {
            if (!places[hole].p)
                return false;
            hole = (hole + 1) & mask;
        }
        *id = places[hole].id;
        count--;
        for (std::size_t at = (hole + 1) & mask; places[at].p; at = (at + 1) & mask) {
            if (((at - home(places[at].p)) & mask) < ((at - hole) & mask))
                continue;
            places[hole] = places[at];
            hole = at;
        }
        places[hole].p = nullptr;
        return true;
    }
};

template <class map> struct by_hash {
    std::vector<berth_plan_allocation> plan;
    char *base = nullptr;
    std::size_t next = 0;
    std::uint64_t expected_frees = 0;
    map live;

    static berth_status allocate(void *self, std::size_t bytes, std::size_t, const berth_request *,
                                 void **out)
    {
        auto *s = static_cast<by_hash *>(self);
        if (s->next >= s->plan.size() || bytes > s->plan[s->next].size_bytes)
            return BERTH_MISMATCH;
        void *p = s->base + s->plan[s->next].offset;
        s->live.put(p, static_cast<std::uint32_t>(s->next++));
        *out = p;
        return BERTH_OK;
    }
    static berth_status deallocate(void *self, void *p, std::size_t, berth_stream *)
    {
        auto *s = static_cast<by_hash *>(self);
        std::uint32_t id;
        if (!s->live.take(p, &id))
            return BERTH_BAD_FREE;
        return s->plan[id].freed_at == s->next ? BERTH_OK : BERTH_MISMATCH; // its lifetime is checked
    }
    static void destroy(void *)
    {
    }
};

// ---- An inner allocator that costs almost nothing: the planned places again, one after the other
// -----------

struct source {
    std::vector<void *> places;
    std::size_t next = 0;
    static berth_status allocate(void *self, std::size_t, std::size_t, const berth_request *, void **out)
    {
        auto *s = static_cast<source *>(self);
        *out = s->places[s->next++];
        return BERTH_OK;
    }
    static berth_status deallocate(void *, void *, std::size_t, berth_stream *)
    {
        return BERTH_OK;
    }
    static void destroy(void *)
    {
    }
};

template <class table> berth_allocator *make(table *self)
{
    berth_allocator_ops ops{};
    ops.struct_size = sizeof ops;
    ops.allocate = table::allocate;
    ops.deallocate = table::deallocate;
    ops.destroy = table::destroy;
    berth_allocator *a = nullptr;
    expect_ok(berth_allocator_create(&ops, self, &a));
    return a;
}

// ---- Running a trace -------------------------------------------------------------------------------------

[[gnu::always_inline]] inline void run_calls(const bench::trace &trace, berth_allocator *a, void **p)
{
    for (const bench::event &e : trace.events) {
        if (e.size_bytes)
            berth_allocate(a, e.size_bytes, 64, nullptr, &p[e.id]);
        else
            berth_deallocate(a, p[e.id], 0, nullptr);
    }
}

struct fixture {
    const bench::trace &trace;
    berth_plan *plan;
    berth_allocator *inner = nullptr;
    berth_allocator *planned = nullptr;
    std::vector<void *> p;
    explicit fixture(const bench::trace &t) : trace(t), plan(plan_of(t)), p(t.allocations)
    {
        expect_ok(berth_cpu_allocator_create(nullptr, &inner));
        expect_ok(berth_planned_create(inner, plan, &planned));
    }
    ~fixture()
    {
        berth_allocator_release(planned);
        berth_allocator_release(inner);
        berth_plan_release(plan);
    }
    void check(const berth_report &report, benchmark::State &state) const
    {
        if (report.from_plan != trace.allocations || report.deviation_count)
            state.SkipWithError("not everything was served from the plan");
    }
};

// Iterations are pairs: a batch is one run of the trace, its scope included.
void call(benchmark::State &state, const bench::trace &trace)
{
    fixture f(trace);
    berth_report report = BERTH_REPORT_INIT;
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.allocations))) {
        berth_replay_begin(f.planned, nullptr);
        run_calls(trace, f.planned, f.p.data());
        berth_replay_end(f.planned, &report);
    }
    f.check(report, state);
}

void inlined(benchmark::State &state, const bench::trace &trace)
{
    fixture f(trace);
    berth_report report = BERTH_REPORT_INIT;
    void **p = f.p.data();
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.allocations))) {
        berth_replay_begin(f.planned, nullptr);
        berth_run *run = berth_run_current();
        for (const bench::event &e : trace.events) {
            if (e.size_bytes)
                p[e.id] = berth_run_allocate(run, e.size_bytes, 64);
            else
                berth_run_deallocate(run, p[e.id]);
        }
        berth_replay_end(f.planned, &report);
    }
    f.check(report, state);
}

template <class map> void hashed(benchmark::State &state, const bench::trace &trace)
{
    fixture f(trace);
    by_hash<map> self;
    self.plan.resize(trace.allocations, BERTH_PLAN_ALLOCATION_INIT);
    for (std::size_t i = 0; i < trace.allocations; i++)
        berth_plan_get(f.plan, i, &self.plan[i]);
    std::unique_ptr<char, void (*)(void *)> block(
        static_cast<char *>(std::aligned_alloc(64, (berth_plan_total_bytes(f.plan) + 63) / 64 * 64)),
        std::free);
    self.base = block.get();
    berth_allocator *a = make(&self);
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.allocations))) {
        self.next = 0;
        run_calls(trace, a, f.p.data());
    }
    berth_allocator_release(a);
}

struct recording {
    source self;
    berth_allocator *inner = nullptr;
    berth_allocator *planned = nullptr;
    berth_plan *plan = nullptr;
    std::vector<char> block;
    explicit recording(const fixture &f) : block(berth_plan_total_bytes(f.plan) + 64)
    {
        for (std::size_t i = 0; i < f.trace.allocations; i++) {
            berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
            berth_plan_get(f.plan, i, &a);
            self.places.push_back(block.data() + a.offset);
        }
        inner = make(&self);
        expect_ok(berth_plan_create(&plan));
        expect_ok(berth_planned_create(inner, plan, &planned));
    }
    ~recording()
    {
        berth_allocator_release(planned);
        berth_allocator_release(inner);
        berth_plan_release(plan);
    }
};

// Iterations are events; solving is not recording, and is left out.
void record(benchmark::State &state, const bench::trace &trace)
{
    fixture f(trace);
    recording r(f);
    berth_solve_options fast{};
    fast.struct_size = sizeof fast;
    fast.solver = "first-fit-size";
    fast.effort = BERTH_EFFORT_FAST;
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.solve = &fast;
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.events.size()))) {
        r.self.next = 0;
        berth_record_begin(r.planned, &options);
        run_calls(trace, r.planned, f.p.data());
        state.PauseTiming();
        berth_record_end(r.planned);
        state.ResumeTiming();
    }
}

void source_alone(benchmark::State &state, const bench::trace &trace)
{
    fixture f(trace);
    recording r(f);
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.events.size()))) {
        r.self.next = 0;
        run_calls(trace, r.inner, f.p.data());
    }
}

void loop_alone(benchmark::State &state, const bench::trace &trace)
{
    std::vector<void *> p(trace.allocations);
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(trace.allocations))) {
        for (const bench::event &e : trace.events) {
            if (e.size_bytes)
                p[e.id] = const_cast<bench::event *>(&e);
            else
                benchmark::DoNotOptimize(p[e.id]);
        }
    }
}

const std::vector<bench::trace> traces = bench::load_traces();

int register_all()
{
    using run_fn = void (*)(benchmark::State &, const bench::trace &);
    const std::pair<const char *, run_fn> variants[] = {
        {"call", call},     {"inline", inlined},      {"flat", hashed<flat_map>}, {"std", hashed<std_map>},
        {"record", record}, {"source", source_alone}, {"loop", loop_alone},
    };
    for (const bench::trace &trace : traces)
        for (const auto &[name, run] : variants)
            benchmark::RegisterBenchmark((std::string(name) + "/" + trace.name).c_str(),
                                         [run = run, &trace](benchmark::State &s) { run(s, trace); });
    return 0;
}

const int registered = register_all();

} // namespace

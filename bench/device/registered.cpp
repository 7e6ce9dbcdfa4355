// What a device costs that a program has registered, against a built-in one. Both are the processor's own table, so only
// the way to it differs:
//   call/allocate-release   64 bytes of device memory: two calls
//   call/copy               64 bytes without a stream
//   call/event-query        one that is complete
//   call/stream-query       one at rest
//   call/record             an event on a stream at rest
#include <cstdio>
#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>

#include <berth/berth.h>

#include "device/table.h"

namespace
{

void expect(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "%s failed: %s\n", what, berth_last_error()->message);
    std::exit(1);
}

void allocate_release(benchmark::State &state, berth_device device)
{
    for (auto _ : state) {
        void *p = nullptr;
        expect(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, nullptr, &p) == BERTH_OK,
               "allocate");
        benchmark::DoNotOptimize(p);
        berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, nullptr);
    }
}

void copy(benchmark::State &state, berth_device device)
{
    char from[64] = {0}, to[64];
    for (auto _ : state) {
        benchmark::DoNotOptimize(berth_copy(device, to, from, sizeof to, BERTH_COPY_INFER, nullptr, false));
        benchmark::ClobberMemory();
    }
}

struct marked {
    berth_stream *stream = nullptr;
    berth_event *event = nullptr;

    explicit marked(berth_device device)
    {
        expect(berth_stream_create(device, &stream) == BERTH_OK, "stream");
        expect(berth_event_create(device, &event) == BERTH_OK, "event");
        expect(berth_event_record(event, stream) == BERTH_OK, "record");
    }
    ~marked()
    {
        berth_event_destroy(event);
        berth_stream_destroy(stream);
    }
    marked(const marked &) = delete;
    marked &operator=(const marked &) = delete;
};

void event_query(benchmark::State &state, berth_device device)
{
    marked m(device);
    for (auto _ : state)
        benchmark::DoNotOptimize(berth_event_query(m.event));
}

void stream_query(benchmark::State &state, berth_device device)
{
    marked m(device);
    for (auto _ : state)
        benchmark::DoNotOptimize(berth_stream_query(m.stream));
}

void record(benchmark::State &state, berth_device device)
{
    marked m(device);
    for (auto _ : state)
        benchmark::DoNotOptimize(berth_event_record(m.event, m.stream));
}

void add(const std::string &peer, berth_device device)
{
    const struct {
        const char *name;
        void (*run)(benchmark::State &, berth_device);
    } cases[] = {{"allocate-release", allocate_release},
                 {"copy", copy},
                 {"event-query", event_query},
                 {"stream-query", stream_query},
                 {"record", record}};
    for (const auto &each : cases)
        benchmark::RegisterBenchmark((peer + "/call/" + each.name).c_str(), each.run, device);
}

const int registered = [] {
    berth_device_kind kind = bench_register_cpu();
    expect(kind != BERTH_DEVICE_UNKNOWN, "register");
    add("builtin", berth_device_cpu());
    add("registered", {static_cast<int32_t>(kind), 0});
    return 0;
}();

} // namespace

// What berth adds to a driver's own calls:
//   copy/<size>      one copy on a queue and the wait for it
//   query/pending    asking an event that has not come yet
//   query/complete   asking one that has
//   list/no-driver   a fresh process that looks for CUDA, HIP and OpenCL where there are none (bare: the
//   process alone) cpu-*            for comparison, berth alone: a CPU stream's copy, and recording and
//   asking its events
// Both peers work on the same memory, context and kind of queue; only the calls differ.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <CL/cl.h>
#include <benchmark/benchmark.h>

#include <berth/berth.h>

namespace
{

const berth_device opencl = {BERTH_DEVICE_OPENCL, 0};

void expect(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "%s failed: %s\n", what, berth_last_error()->message);
    std::exit(1);
}

struct blocks {
    std::size_t size_bytes;
    void *from = nullptr, *to = nullptr;
    berth_stream *stream = nullptr;

    explicit blocks(std::size_t size) : size_bytes(size)
    {
        expect(berth_device_allocate(opencl, BERTH_MEMORY_DEVICE, size, 64, nullptr, &from) == BERTH_OK,
               "allocate");
        expect(berth_device_allocate(opencl, BERTH_MEMORY_DEVICE, size, 64, nullptr, &to) == BERTH_OK,
               "allocate");
        expect(berth_stream_create(opencl, &stream) == BERTH_OK, "stream");
        expect(berth_zero(opencl, from, size, stream, true) == BERTH_OK, "zero");
    }
    ~blocks()
    {
        berth_stream_destroy(stream);
        berth_device_release(opencl, BERTH_MEMORY_DEVICE, from, size_bytes, nullptr);
        berth_device_release(opencl, BERTH_MEMORY_DEVICE, to, size_bytes, nullptr);
    }
    blocks(const blocks &) = delete;
    blocks &operator=(const blocks &) = delete;
};

void bare_copy(benchmark::State &state, std::size_t size_bytes)
{
    blocks b(size_bytes);
    auto *queue = static_cast<cl_command_queue>(berth_stream_native(b.stream));
    for (auto _ : state) {
        clEnqueueSVMMemcpy(queue, CL_FALSE, b.to, b.from, b.size_bytes, 0, nullptr, nullptr);
        clFinish(queue);
    }
}

void berth_copies(benchmark::State &state, std::size_t size_bytes)
{
    blocks b(size_bytes);
    for (auto _ : state)
        benchmark::DoNotOptimize(
            berth_copy(opencl, b.to, b.from, b.size_bytes, BERTH_COPY_DEVICE_TO_DEVICE, b.stream, true));
}

// A stream that stands still until the end, so that a marker behind it stays pending.
struct gate {
    cl_event user;
    berth_stream *stream = nullptr;
    berth_event *event = nullptr;
    cl_event marker = nullptr;

    explicit gate(bool open)
    {
        void *context = nullptr;
        expect(berth_device_native(opencl, &context) == BERTH_OK, "context");
        expect(berth_stream_create(opencl, &stream) == BERTH_OK, "stream");
        expect(berth_event_create(opencl, &event) == BERTH_OK, "event");
        user = clCreateUserEvent(static_cast<cl_context>(context), nullptr);
        auto *queue = static_cast<cl_command_queue>(berth_stream_native(stream));
        clEnqueueBarrierWithWaitList(queue, 1, &user, nullptr);
        clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
        expect(berth_event_record(event, stream) == BERTH_OK, "record");
        if (open) {
            clSetUserEventStatus(user, CL_COMPLETE);
            clFinish(queue);
        }
        opened = open;
    }
    ~gate()
    {
        if (!opened)
            clSetUserEventStatus(user, CL_COMPLETE);
        berth_stream_synchronize(stream);
        clReleaseEvent(marker);
        clReleaseEvent(user);
        berth_event_destroy(event);
        berth_stream_destroy(stream);
    }
    gate(const gate &) = delete;
    gate &operator=(const gate &) = delete;
    bool opened;
};

void bare_query(benchmark::State &state, bool complete)
{
    gate g(complete);
    cl_int answer = 0;
    for (auto _ : state) {
        clGetEventInfo(g.marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof answer, &answer, nullptr);
        benchmark::DoNotOptimize(answer);
    }
}

void berth_query(benchmark::State &state, bool complete)
{
    gate g(complete);
    for (auto _ : state)
        benchmark::DoNotOptimize(berth_event_query(g.event));
}

void list(benchmark::State &state, bool with_berth)
{
    for (auto _ : state) {
        pid_t child = fork();
        if (child == 0) {
            int32_t count = 0;
            setenv("BERTH_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
            setenv("BERTH_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
            setenv("BERTH_OPENCL_LIBRARY", "/nowhere/libOpenCL.so", 1);
            if (with_berth) {
                berth_device_count(BERTH_DEVICE_CPU, &count);
                berth_device_count(BERTH_DEVICE_CUDA, &count);
                berth_device_count(BERTH_DEVICE_HIP, &count);
                berth_device_count(BERTH_DEVICE_OPENCL, &count);
            }
            _exit(0);
        }
        waitpid(child, nullptr, 0);
    }
}

void cpu_copy(benchmark::State &state)
{
    berth_stream *stream = nullptr;
    static char from[4096], to[4096];
    expect(berth_stream_create(berth_device_cpu(), &stream) == BERTH_OK, "stream");
    for (auto _ : state)
        benchmark::DoNotOptimize(
            berth_copy(berth_device_cpu(), to, from, sizeof to, BERTH_COPY_INFER, stream, true));
    berth_stream_destroy(stream);
}

void cpu_record_and_query(benchmark::State &state)
{
    berth_stream *stream = nullptr;
    berth_event *event = nullptr;
    expect(berth_stream_create(berth_device_cpu(), &stream) == BERTH_OK, "stream");
    expect(berth_event_create(berth_device_cpu(), &event) == BERTH_OK, "event");
    for (auto _ : state) {
        benchmark::DoNotOptimize(berth_event_record(event, stream));
        benchmark::DoNotOptimize(berth_event_query(event));
    }
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

// Asked in a child: the driver must not be loaded here before listing without one has been measured.
bool opencl_is_here()
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        int32_t count = 0;
        _exit(berth_device_count(BERTH_DEVICE_OPENCL, &count) == BERTH_OK ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

// Listing comes first: it forks, and must not take a driver's threads with it.
const int registered = [] {
    benchmark::RegisterBenchmark("bare/list/no-driver", list, false)->UseRealTime();
    benchmark::RegisterBenchmark("berth/list/no-driver", list, true)->UseRealTime();
    benchmark::RegisterBenchmark("berth/cpu-copy/4KiB", cpu_copy)->UseRealTime();
    benchmark::RegisterBenchmark("berth/cpu-record-query", cpu_record_and_query);
    if (!opencl_is_here()) {
        std::fprintf(stderr, "no OpenCL device here: its calls are left out\n");
        return 0;
    }
    for (const auto &[name, bytes] : {std::pair{"64KiB", 64u << 10}, std::pair{"1MiB", 1u << 20}}) {
        benchmark::RegisterBenchmark((std::string("bare/copy/") + name).c_str(), bare_copy, bytes)
            ->UseRealTime();
        benchmark::RegisterBenchmark((std::string("berth/copy/") + name).c_str(), berth_copies, bytes)
            ->UseRealTime();
    }
    for (const auto &[name, complete] : {std::pair{"pending", false}, std::pair{"complete", true}}) {
        benchmark::RegisterBenchmark((std::string("bare/query/") + name).c_str(), bare_query, complete);
        benchmark::RegisterBenchmark((std::string("berth/query/") + name).c_str(), berth_query, complete);
    }
    return 0;
}();

} // namespace

// libtorch from C++, with berth linked: a forward pass is recorded, planned and replayed, and its bits
// compared.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <berth_torch.h>

namespace
{

void check(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "not so: %s (berth: %s)\n", what, berth_last_error()->message);
    std::exit(1);
}

struct model {
    at::Tensor first = at::randn({8, 3, 3, 3}), second = at::randn({8, 8, 3, 3}),
               last = at::randn({10, 8 * 15 * 15});

    at::Tensor forward(const at::Tensor &image) const
    {
        at::Tensor x = at::relu(at::conv2d(image, first, {}, 1, 1));
        x = at::relu(at::conv2d(x, second, {}, 2));
        return at::linear(x.flatten(1), last);
    }
};

// Every run is compared inside its scope, so that its output is freed there too.
void record_and_replay(const model &m, const at::Tensor &image, const at::Tensor &expected)
{
    berth_allocator *planned = berth_torch_allocator();
    BERTH_RECORD(planned)
    {
        check(at::equal(m.forward(image), expected), "the recorded run has the same bits");
    }
    berth_plan *plan = berth_planned_plan(planned);
    berth_certificate certificate{};
    certificate.struct_size = sizeof certificate;
    check(berth_plan_certificate(plan, &certificate) == BERTH_OK, "a plan was made");
    check(certificate.proven_optimal, "it is proven optimal");
    berth_plan_release(plan);
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    BERTH_VALIDATE(planned, &difference)
    {
        check(at::equal(m.forward(image), expected), "the validated run has the same bits");
    }
    check(difference.status == BERTH_OK, "the second run is the first one's");
    for (int i = 0; i < 3; i++) {
        berth_report report = BERTH_REPORT_INIT;
        BERTH_REPLAY(planned, &report)
        {
            check(at::equal(m.forward(image), expected), "the replayed run has the same bits");
        }
        check(report.planned > 0 && report.from_plan == report.planned, "all came from the plan");
        check(report.by_fallback == 0 && report.stragglers == 0, "nothing came from elsewhere");
    }
}

// mkldnn gives back what it kept through the allocator of the day, with nothing but the pointer.
void raw_pointers_find_their_way(c10::Allocator *own)
{
    berth_torch_options heap = BERTH_TORCH_OPTIONS_INIT;
    heap.source = BERTH_TORCH_SYSTEM;
    void *older = own->raw_allocate(1000);
    check(berth_torch_install(nullptr) == BERTH_OK, "the pool is back");
    c10::Allocator *ours = c10::GetCPUAllocator();
    void *from_pool = ours->raw_allocate(1 << 20);
    check(berth_torch_install(&heap) == BERTH_OK, "the heap serves");
    void *from_heap = ours->raw_allocate(5000);
    berth_torch_uninstall();
    void *from_own = ours->raw_allocate(5000);
    for (void *p : {older, from_pool, from_heap, from_own})
        ours->raw_deallocate(p);
    check(berth_torch_install(nullptr) == BERTH_OK, "the pool serves again");
}

void threads_free_what_others_made()
{
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 64; i++)
        tensors.push_back(at::full({1000}, float(i)));
    std::thread other([&] { tensors.clear(); });
    other.join();
}

// Without Python: operators are the labels. berth's own reader tells what is in the file.
void a_trace_names_operators()
{
    const char *folder = std::getenv("TMPDIR");
    const std::string path =
        std::string(folder ? folder : "/tmp") + "/berth_cpp_" + std::to_string(getpid()) + ".trace";
    check(berth_torch_trace_begin(nullptr, 0) == BERTH_INVALID_ARGUMENT, "a trace needs a path");
    check(berth_torch_trace_begin(path.c_str(), 33) == BERTH_INVALID_ARGUMENT, "and not too many frames");
    check(berth_torch_trace_end() == BERTH_NOT_FOUND, "there is none to end");
    check(berth_torch_trace_begin("/nowhere/x.trace", 0) == BERTH_IO, "nor a folder");
    check(berth_torch_trace_begin(path.c_str(), 8) == BERTH_OK, "a trace begins");
    check(berth_torch_trace_begin(path.c_str(), 8) == BERTH_BUSY, "one at a time");
    at::ones({1234});
    check(berth_torch_trace_end() == BERTH_OK, "and ends");
    berth_trace_reader *reader = nullptr;
    check(berth_trace_reader_open(path.c_str(), nullptr, &reader) == BERTH_OK, "it can be read");
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    std::uint64_t found = 0;
    while (berth_trace_next(reader, &e) == BERTH_OK)
        if (e.size_bytes == 1234 * sizeof(float))
            found = std::strcmp(berth_trace_text(reader, e.label), "aten::ones") == 0 ? e.address : 0;
        else if (e.kind == BERTH_TRACE_FREE && e.address == found)
            found = 1;
    check(found == 1, "the tensor came by its operator, and went");
    check(!berth_trace_damage(reader, 0), "nothing is damaged");
    berth_trace_reader_destroy(reader);
    std::remove(path.c_str());
}

} // namespace

int main()
{
    c10::Allocator *own = c10::GetCPUAllocator();
    at::set_num_threads(1);
    at::manual_seed(3);
    const model m;
    at::Tensor image = at::rand({1, 3, 32, 32});
    at::Tensor expected = m.forward(image);

    check(berth_torch_install(nullptr) == BERTH_OK, "berth is libtorch's CPU allocator");
    check(at::equal(m.forward(image), expected), "the pool gives the same bits");
    record_and_replay(m, image, expected);
    raw_pointers_find_their_way(own);
    threads_free_what_others_made();
    a_trace_names_operators();

    berth_stats stats{};
    stats.struct_size = sizeof stats;
    check(berth_stats_get(berth_torch_allocator(), &stats) == BERTH_OK, "CPU tensors have figures");
    check(stats.max_bytes_in_use > 0 && stats.num_allocs > 0, "and they were counted");
    std::puts("ok");
    return 0;
}

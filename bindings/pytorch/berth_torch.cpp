// Berth as libtorch's CPU allocator: builds the stack of allocators and hands its blocks to tensors.
#include "berth_torch.h"

#include <atomic>
#include <mutex>
#include <new>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "python_stack.h"

// libtorch keeps an allocator for the life of the process, and tensors outlive every Python object: nothing
// here is ever destroyed.
namespace
{

#define TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
#if TORCH_AT_LEAST(2, 1)
#define ALLOCATE_CONST
#else
#define ALLOCATE_CONST const
#endif

// One stack of allocators. Older ones stay for the tensors that came from them.
struct stack {
    berth_allocator *top;
    berth_allocator *tracker; // nullptr: none
    unsigned python_frames;
    stack *older;
};

std::atomic<stack *> newest{nullptr};
std::mutex installing;

void free_block(void *p)
{
    if (!p)
        return;
    // Each allocator knows its own blocks, so that the one a block came from is found by asking, newest
    // first.
    for (stack *s = newest.load(std::memory_order_acquire); s; s = s->older)
        if (berth_deallocate(s->top, p, 0, nullptr) != BERTH_BAD_FREE)
            return;
    TORCH_WARN("berth: ", berth_last_error()->message);
}

class berth_cpu_allocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(std::size_t bytes) ALLOCATE_CONST override
    {
        stack *s = newest.load(std::memory_order_acquire);
        void *p = nullptr;
        berth_request request = BERTH_REQUEST_INIT;
        if (C10_UNLIKELY(s->python_frames != 0))
            request.label = berth_torch_python_stack(s->python_frames);
        berth_status status = berth_allocate(s->top, bytes, BERTH_ALIGNMENT, &request, &p);
        TORCH_CHECK(status == BERTH_OK, "berth: out of memory for a CPU tensor of ", bytes, " bytes (",
                    berth_status_words(status), "). ", berth_last_error()->message);
        // Pointer and context are the same, or mkldnn asserts.
        return {p, p, &free_block, c10::Device(c10::DeviceType::CPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_block;
    }

#if TORCH_AT_LEAST(2, 1)
    void copy_data(void *to, const void *from, std::size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }
#endif
};

// Above whatever a program has set; libtorch's own has 0.
constexpr std::uint8_t priority = 100;

// Puts one more allocator around `top`; on success `top` is the new one.
class builder
{
  public:
    explicit builder(berth_allocator *source) : top_(source)
    {
    }
    ~builder()
    {
        berth_allocator_release(top_);
    }
    // The decorator holds what is inside it: our own reference moves outwards.
    berth_status wrapped(berth_status status, berth_allocator *outer)
    {
        if (status != BERTH_OK)
            return status;
        berth_allocator_release(top_);
        top_ = outer;
        return BERTH_OK;
    }
    berth_allocator *top() const
    {
        return top_;
    }
    berth_allocator *release()
    {
        berth_allocator *top = top_;
        top_ = nullptr;
        return top;
    }

  private:
    berth_allocator *top_;
};

berth_status make_source(const berth_torch_options &options, berth_allocator **out)
{
    if (options.source == BERTH_TORCH_SYSTEM)
        return berth_cpu_allocator_create(nullptr, out);
    berth_pool_options pool = BERTH_POOL_OPTIONS_INIT;
    pool.compacting = options.compacting != 0;
    return berth_pool_create(&pool, out);
}

berth_status add_limit(builder &b, uint64_t limit_bytes)
{
    berth_budget *budget = nullptr;
    berth_allocator *outer = nullptr;
    berth_status status = berth_budget_create(limit_bytes, &budget);
    if (status == BERTH_OK)
        status = berth_limit_create(b.top(), budget, &outer);
    berth_budget_release(budget);
    return b.wrapped(status, outer);
}

berth_status add_tracking(builder &b, unsigned stack_depth, berth_allocator **tracker)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    options.stack_depth = stack_depth;
    berth_allocator *outer = nullptr;
    berth_status status = berth_tracking_create(b.top(), &options, &outer);
    *tracker = outer;
    return b.wrapped(status, outer);
}

berth_status add_planned(builder &b)
{
    berth_plan *plan = nullptr;
    berth_allocator *outer = nullptr;
    berth_status status = berth_plan_create(&plan);
    if (status == BERTH_OK)
        status = berth_planned_create(b.top(), plan, &outer);
    berth_plan_release(plan);
    return b.wrapped(status, outer);
}

berth_status build(const berth_torch_options &options, stack *s)
{
    berth_allocator *source = nullptr, *outer = nullptr;
    berth_status status = make_source(options, &source);
    builder b(source);
    if (status == BERTH_OK && options.limit_bytes)
        status = add_limit(b, options.limit_bytes);
    if (status == BERTH_OK && options.guard) {
        status = berth_guard_create(b.top(), nullptr, &outer);
        status = b.wrapped(status, outer);
    }
    if (status == BERTH_OK) {
        status = berth_scope_meter_create(b.top(), &outer);
        status = b.wrapped(status, outer);
    }
    if (status == BERTH_OK && options.tracking)
        status = add_tracking(b, options.stack_depth, &s->tracker);
    if (status == BERTH_OK) {
        status = berth_explain_create(b.top(), &outer);
        status = b.wrapped(status, outer);
    }
    if (status == BERTH_OK)
        status = add_planned(b);
    if (status == BERTH_OK)
        s->top = b.release();
    return status;
}

berth_cpu_allocator *instance()
{
    static berth_cpu_allocator *const the_one = new berth_cpu_allocator;
    return the_one;
}

c10::Allocator *before = nullptr; // guard: installing; libtorch's own

} // namespace

berth_status berth_torch_install(const berth_torch_options *options)
{
    const berth_torch_options defaults = BERTH_TORCH_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    if (options->struct_size < sizeof *options || options->source < BERTH_TORCH_POOL ||
        options->source > BERTH_TORCH_SYSTEM)
        return BERTH_INVALID_ARGUMENT;
    const std::lock_guard<std::mutex> lock(installing);
    stack *s = new (std::nothrow) stack{};
    if (!s)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth_status status = build(*options, s);
    if (status != BERTH_OK) {
        delete s;
        return status;
    }
    s->python_frames = options->tracking ? options->python_stacks : 0;
    s->older = newest.load(std::memory_order_relaxed);
    newest.store(s, std::memory_order_release);
    if (c10::GetCPUAllocator() != instance()) {
        before = c10::GetCPUAllocator();
        c10::SetCPUAllocator(instance(), priority);
    }
    return BERTH_OK;
}

void berth_torch_uninstall(void)
{
    const std::lock_guard<std::mutex> lock(installing);
    if (before && c10::GetCPUAllocator() == instance())
        c10::SetCPUAllocator(before, priority);
}

berth_allocator *berth_torch_allocator(void)
{
    stack *s = newest.load(std::memory_order_acquire);
    return s ? s->top : nullptr;
}

berth_allocator *berth_torch_tracker(void)
{
    stack *s = newest.load(std::memory_order_acquire);
    return s ? s->tracker : nullptr;
}

// Berth as libtorch's CPU allocator: builds the stack of allocators and hands its blocks to tensors.
#include "berth_torch.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "fork_gate.h"
#include "idle.h"
#include "python_stack.h"
#include "tracing.h"

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

// One stack of allocators. Those that are no longer in use stay for the tensors that came from them.
struct stack {
    berth_torch_options options;
    berth_allocator *top;
    berth_allocator *tracker; // nullptr: none
    unsigned python_frames;
    c10::DeleterFnPtr free;
};

// A deleter is a bare function and the context must be the data pointer itself, or mkldnn asserts: so that a
// free goes straight to the stack a tensor came from, each place in this table has a deleter of its own.
constexpr std::size_t most_stacks = 64;
std::atomic<stack *> stacks[most_stacks];
std::atomic<std::size_t> stack_count{0};

std::atomic<stack *> latest{nullptr};  // what berth_torch_allocator answers
std::atomic<stack *> serving{nullptr}; // the same, or nullptr while libtorch's own serves
std::mutex installing;
c10::Allocator *before = nullptr; // libtorch's own; written once, before our allocator is known to it

void free_in(stack *s, void *p)
{
    if (!p)
        return;
    c10::profiledCPUMemoryReporter().Delete(p);
    const fork_gate inside;
    idle_note_use();
    const bool traced = tracing_is_on();
    if (C10_UNLIKELY(traced))
        tracing_freed(p);
    if (C10_UNLIKELY(berth_deallocate(s->top, p, 0, nullptr) != BERTH_OK)) {
        TORCH_WARN("berth: ", berth_last_error()->message);
        if (traced)
            tracing_not_freed(s->top, p);
    }
}

template <std::size_t Place> void free_from(void *p)
{
    free_in(stacks[Place].load(std::memory_order_relaxed), p);
}

template <std::size_t... Places>
constexpr std::array<c10::DeleterFnPtr, sizeof...(Places)> make_deleters(std::index_sequence<Places...>)
{
    return {{&free_from<Places>...}};
}
constexpr auto deleters = make_deleters(std::make_index_sequence<most_stacks>{});

bool owns(stack *s, void *p)
{
    berth_status status = berth_allocator_owns(s->top, p);
    // UNSUPPORTED: it lies in a block that another thread replays from.
    return !status || status == BERTH_UNSUPPORTED;
}

// For raw_deallocate, which mkldnn uses for what it keeps: the pointer is all there is, and it may be older
// than berth.
void free_raw(void *p)
{
    if (!p)
        return;
    const fork_gate inside;
    for (std::size_t i = stack_count.load(std::memory_order_acquire); i-- > 0;) {
        stack *s = stacks[i].load(std::memory_order_relaxed);
        if (owns(s, p))
            return free_in(s, p);
    }
    before->raw_deallocate(p);
}

// What PyTorch programs see: "out of memory" only where memory is what lacks.
[[noreturn]] void refuse(std::size_t bytes, berth_status status)
{
    const bool shortage = status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
                          status == BERTH_OVER_BUDGET;
    if (shortage)
        c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    if (tracing_is_on())
        tracing_refused(bytes);
    const char *what = shortage                   ? "berth: out of memory for a CPU tensor of "
                       : status == BERTH_MISMATCH ? "berth: a strict replay does not expect a CPU tensor of "
                                                  : "berth: no CPU tensor of ";
    TORCH_CHECK(false, what, bytes, " bytes (", berth_status_words(status), "). ",
                berth_last_error()->message);
    std::abort(); // TORCH_CHECK has thrown
}

// A block of the stack's for a tensor of so many bytes, and so many before and after it that belong to nobody.
c10::DataPtr allocate_in(stack *s, std::size_t bytes, std::size_t before_it, std::size_t after_it)
{
    const std::size_t around = before_it + after_it;
    const std::size_t size = bytes <= SIZE_MAX - around ? bytes + around : SIZE_MAX;
    void *p = nullptr;
    berth_request request = BERTH_REQUEST_INIT;
    if (C10_UNLIKELY(s->python_frames != 0)) // before the gate: who forks may hold the GIL
        request.label = berth_torch_python_stack(s->python_frames);
    if (C10_UNLIKELY(tracing_is_on()))
        tracing_prepare();
    const fork_gate inside;
    idle_note_use();
    berth_status status = berth_allocate(s->top, size, BERTH_ALIGNMENT, &request, &p);
    if (C10_UNLIKELY(status))
        refuse(bytes, status);
    if (C10_UNLIKELY(tracing_is_on()))
        tracing_allocated(s->top, p, size);
    c10::profiledCPUMemoryReporter().New(p, size); // for torch.profiler(profile_memory=True)
    return {static_cast<char *>(p) + before_it, p, s->free, c10::Device(c10::DeviceType::CPU)};
}

class berth_cpu_allocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(std::size_t bytes) ALLOCATE_CONST override
    {
        stack *s = serving.load(std::memory_order_acquire);
        return C10_LIKELY(s != nullptr) ? allocate_in(s, bytes, 0, 0) : before->allocate(bytes);
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_raw;
    }

#if TORCH_AT_LEAST(2, 1)
    void copy_data(void *to, const void *from, std::size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }
#endif
};

// ---- Tensors of QNNPACK and XNNPACK ------------------------------------------------------------------------------

// Their kernels read a little before and behind a tensor, so libtorch has a second CPU allocator for them, which leaves this
// much room.
constexpr std::size_t room_before = c10::gAlignment, room_after = 16;

// libtorch's own, as it was.
alignas(c10::Allocator) unsigned char mobile_kept[sizeof(c10::Allocator)];
c10::Allocator *mobile_before()
{
    return reinterpret_cast<c10::Allocator *>(mobile_kept);
}

class berth_mobile_allocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(std::size_t bytes) ALLOCATE_CONST override
    {
        stack *s = serving.load(std::memory_order_acquire);
        if (C10_UNLIKELY(!s))
            return mobile_before()->allocate(bytes);
        if (bytes == 0)
            return {nullptr, c10::Device(c10::DeviceType::CPU)};
        return allocate_in(s, bytes, room_before, room_after);
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_raw;
    }

#if TORCH_AT_LEAST(2, 1)
    void copy_data(void *to, const void *from, std::size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }
#endif
};

// That one cannot be set. Kernels know it by its address, to see whether a tensor has the room, so it must stay where it is; and
// it is nothing but the pointer to its operations, which becomes ours. What it has allocated goes back by functions of its own.
// Returns what it was.
c10::Allocator *take_over_mobile()
{
    static_assert(sizeof(c10::Allocator) == sizeof(void *) &&
                      sizeof(berth_mobile_allocator) == sizeof(c10::Allocator),
                  "an allocator is nothing but a pointer to its operations");
    static berth_mobile_allocator *const ours = new berth_mobile_allocator;
    c10::Allocator *theirs = c10::GetDefaultMobileCPUAllocator();
    std::memcpy(mobile_kept, static_cast<void *>(theirs), sizeof mobile_kept);
    void *operations;
    std::memcpy(&operations, static_cast<void *>(ours), sizeof operations);
    __atomic_store_n(reinterpret_cast<void **>(theirs), operations, __ATOMIC_RELEASE);
    return mobile_before();
}

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
        if (status)
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
    // Training steps and U-Nets leave holes in which the next run's tensors do not fit. With the pool's own quarter such a run
    // gave them back and took others for ever: 960 page faults each. The half is taken only by runs that need it.
    // And a hole may find no tensor for tens of such runs: with the pool's own ten seconds a step of half a second had 150 page
    // faults for it, each run. Where no tensor comes or goes at all, idle.cpp sees to it sooner.
    if (!pool.compacting) {
        pool.slack = 0.5;
        pool.decay_ns = UINT64_C(60000000000);
    }
    return berth_pool_create(&pool, out);
}

// One budget for all stacks, so that a limit that comes later counts what lives. With the lock.
berth_budget *budget = nullptr;

berth_status set_limit(uint64_t limit_bytes)
{
    if (!budget) {
        const berth_status status = berth_budget_create(BERTH_BUDGET_UNLIMITED, &budget);
        if (status)
            return status;
    }
    return berth_budget_set_limit(budget, limit_bytes ? limit_bytes : BERTH_BUDGET_UNLIMITED);
}

berth_status add_limit(builder &b)
{
    berth_allocator *outer = nullptr;
    const berth_status status = berth_limit_create(b.top(), budget, &outer);
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
    if (!status)
        status = berth_planned_create(b.top(), plan, &outer);
    berth_plan_release(plan);
    return b.wrapped(status, outer);
}

berth_status build(const berth_torch_options &options, stack *s)
{
    berth_allocator *source = nullptr, *outer = nullptr;
    berth_status status = make_source(options, &source);
    builder b(source);
    if (!status)
        status = add_limit(b);
    if (!status && options.guard) {
        status = berth_guard_create(b.top(), nullptr, &outer);
        status = b.wrapped(status, outer);
    }
    if (!status) {
        status = berth_scope_meter_create(b.top(), &outer);
        status = b.wrapped(status, outer);
    }
    // The heap cannot tell whether a pointer is its own, see free_raw; a tracker can.
    if (!status && (options.tracking || options.source == BERTH_TORCH_SYSTEM))
        status = add_tracking(b, options.tracking ? options.stack_depth : 0, &s->tracker);
    if (!status) {
        status = berth_explain_create(b.top(), &outer);
        status = b.wrapped(status, outer);
    }
    if (!status)
        status = add_planned(b);
    if (!status)
        s->top = b.release();
    return status;
}

// After some seconds in which no tensor came or went. Older stacks too: tensors of theirs may have gone since.
void trim_all()
{
    const fork_gate inside;
    for (std::size_t i = stack_count.load(std::memory_order_acquire); i-- > 0;) {
        std::size_t released = 0;
        berth_trim(stacks[i].load(std::memory_order_relaxed)->top, 0, &released);
    }
}

berth_cpu_allocator *instance()
{
    static berth_cpu_allocator *const the_one = new berth_cpu_allocator;
    return the_one;
}

bool is_same(const berth_torch_options &a, const berth_torch_options &b)
{
    return a.source == b.source && a.tracking == b.tracking && a.stack_depth == b.stack_depth &&
           a.python_stacks == b.python_stacks && a.guard == b.guard && a.compacting == b.compacting;
}

// With the lock: the stack that was made with these options before, or a new one.
berth_status find_or_build(const berth_torch_options &options, stack **out)
{
    const std::size_t count = stack_count.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < count; i++) {
        *out = stacks[i].load(std::memory_order_relaxed);
        if (is_same((*out)->options, options))
            return BERTH_OK;
    }
    if (count == most_stacks)
        return BERTH_OVERFLOW;
    std::unique_ptr<stack> s(new (std::nothrow) stack{});
    if (!s)
        return BERTH_OUT_OF_HOST_MEMORY;
    const berth_status status = build(options, s.get());
    if (status)
        return status;
    s->options = options;
    s->python_frames = options.tracking ? options.python_stacks : 0;
    s->free = deleters[count];
    *out = s.release();
    stacks[count].store(*out, std::memory_order_relaxed);
    stack_count.store(count + 1, std::memory_order_release);
    return BERTH_OK;
}

} // namespace

berth_allocator *tracing_stack(std::size_t place)
{
    return place < stack_count.load(std::memory_order_acquire)
               ? stacks[place].load(std::memory_order_relaxed)->top
               : nullptr;
}

berth_status berth_torch_install(const berth_torch_options *options)
{
    const berth_torch_options defaults = BERTH_TORCH_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    if (options->struct_size < sizeof *options || options->source < BERTH_TORCH_POOL ||
        options->source > BERTH_TORCH_SYSTEM)
        return BERTH_INVALID_ARGUMENT;
    const std::lock_guard<std::mutex> lock(installing);
    stack *s = nullptr;
    berth_status status = set_limit(options->limit_bytes);
    if (!status)
        status = find_or_build(*options, &s);
    if (status)
        return status;
    fork_gate_watch();
    idle_watch(options->keeps_idle ? nullptr : trim_all);
    stack *old = latest.exchange(s, std::memory_order_acq_rel);
    serving.store(s, std::memory_order_release);
    if (c10::GetCPUAllocator() != instance()) {
        if (!before) {
            before = c10::GetCPUAllocator();
            c10::Allocator *mobile = take_over_mobile();
            if (before == c10::GetDefaultMobileCPUAllocator()) // a program's choice, which is ours by now
                before = mobile;
        }
        c10::SetCPUAllocator(instance(), priority);
    }
    {
        const fork_gate inside;
        tracing_limit(options->limit_bytes);
    }
    std::size_t released = 0;
    if (old && (old != s || options->limit_bytes)) // nobody else would use what lies idle there, and a limit
        berth_trim(old->top, 0, &released);        // counts the idle blocks of plans, which are no tensors
    return c10::GetCPUAllocator() == instance() ? BERTH_OK : BERTH_UNSUPPORTED;
}

// Our allocator stays in libtorch and passes on: mkldnn frees what it kept through the allocator of the day.
void berth_torch_uninstall(void)
{
    const std::lock_guard<std::mutex> lock(installing);
    serving.store(nullptr, std::memory_order_release);
}

berth_allocator *berth_torch_allocator(void)
{
    stack *s = latest.load(std::memory_order_acquire);
    return s ? s->top : nullptr;
}

berth_allocator *berth_torch_tracker(void)
{
    stack *s = latest.load(std::memory_order_acquire);
    return s ? s->tracker : nullptr;
}

int berth_torch_scope(berth_allocator **allocator)
{
    const berth_run *run = berth_run_current();
    if (allocator)
        *allocator = run ? run->allocator : nullptr;
    return run ? run->kind : 0;
}

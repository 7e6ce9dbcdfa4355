// The trace of CPU tensors.
#include "tracing.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <pthread.h>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "berth_torch.h"
#include "fork_gate.h"
#include "operators.h"
#include "python_stack.h"

std::atomic<berth_trace *> tracing_now{nullptr};

namespace
{

constexpr std::uint32_t most_python_frames = 32;
constexpr const char *older = "before the trace";

// Written while the gate is shut, read inside of it.
std::uint32_t device = 0;
std::uint64_t trace_count = 0;
std::atomic<std::uint32_t> python_frames{0};

// ---- What a thread knows -----------------------------------------------------------------------------------------

// The numbers of texts and frames, so that threads meet at the trace's lock only for new ones.
struct known {
    std::uint64_t of_trace = 0;
    std::unordered_map<std::string, std::uint32_t> texts;
    std::map<std::array<std::uint32_t, 4>, std::uint32_t> frames;
    std::vector<python_frame> stack; // for the next allocation
    bool has_stack = false;
};

thread_local known *mine = nullptr;
thread_local bool has_ended = false; // what comes after a thread's destructors has no label

struct ender {
    bool used = false;
    ~ender()
    {
        delete mine;
        mine = nullptr;
        has_ended = true;
    }
};
thread_local ender at_thread_end;

known *known_here()
{
    if (!mine && !has_ended) {
        at_thread_end.used = true; // so that it is made, and its end comes
        mine = new known;
    }
    return mine;
}

// ---- Definitions -------------------------------------------------------------------------------------------------

std::uint32_t text_number(berth_trace *t, known &k, const std::string &text)
{
    const auto found = k.texts.find(text);
    if (found != k.texts.end())
        return found->second;
    std::uint32_t number = 0;
    if (berth_trace_define_text(t, text.data(), text.size(), &number) == BERTH_OK)
        k.texts.emplace(text, number);
    return number;
}

// From the outermost frame inward, since a frame names its caller.
std::uint32_t stack_number(berth_trace *t, known &k)
{
    std::uint32_t number = 0;
    for (auto f = k.stack.rbegin(); f != k.stack.rend(); ++f) {
        berth_trace_frame frame = BERTH_TRACE_FRAME_INIT;
        frame.caller = number;
        frame.function = text_number(t, k, f->function);
        frame.file = text_number(t, k, f->file);
        frame.line = f->line > 0 ? static_cast<std::uint32_t>(f->line) : 0;
        const std::array<std::uint32_t, 4> key{{frame.caller, frame.function, frame.file, frame.line}};
        const auto found = k.frames.find(key);
        if (found != k.frames.end()) {
            number = found->second;
            continue;
        }
        if (berth_trace_define_frame(t, &frame, &number) != BERTH_OK)
            return 0;
        k.frames.emplace(key, number);
    }
    return number;
}

// Label and stack of what the calling thread asks for. A scope that the program has named says more than an operator.
void describe(berth_trace *t, berth_trace_event &e) noexcept
try {
    known *k = known_here();
    if (!k)
        return;
    if (k->of_trace != trace_count) {
        k->texts.clear();
        k->frames.clear();
        k->of_trace = trace_count;
    }
    const char *scope = berth_scope_label();
    const char *label = scope ? scope : operators_here();
    if (label)
        e.label = text_number(t, *k, label);
    if (k->has_stack)
        e.stack = stack_number(t, *k);
    k->has_stack = false;
} catch (...) { // no memory for a name: the event goes without
}

// What cannot be written is not told to who allocates: the trace says so once, through the log.
void tell(berth_trace *t, berth_trace_event &e)
{
    e.device = device;
    (void)berth_trace_write(t, &e);
}

// ---- What lives when a trace begins ------------------------------------------------------------------------------

struct live {
    berth_trace *trace;
    std::unordered_set<std::uint64_t> planned; // blocks of plans: their tensors count, not they
    bool failed;
};

void tell_live(live &l, const berth_block &b)
{
    const char *label = b.label ? b.label : older;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.address = reinterpret_cast<std::uintptr_t>(b.address);
    e.size_bytes = b.requested_bytes ? b.requested_bytes : b.size_bytes;
    e.id = b.allocation_id;
    (void)berth_trace_define_text(l.trace, label, std::strlen(label), &e.label);
    tell(l.trace, e);
}

bool visit_planned(void *context, const berth_block *b)
{
    live &l = *static_cast<live *>(context);
    try {
        l.planned.insert(b->segment);
    } catch (...) {
        l.failed = true;
        return false;
    }
    tell_live(l, *b);
    return true;
}

bool visit_block(void *context, const berth_block *b)
{
    live &l = *static_cast<live *>(context);
    const bool is_plans = (b->label && std::strcmp(b->label, "planned block") == 0) ||
                          l.planned.count(reinterpret_cast<std::uintptr_t>(b->address)) != 0;
    if (b->state == BERTH_BLOCK_LIVE && !is_plans)
        tell_live(l, *b);
    return true;
}

berth_status tell_all_live(berth_trace *t)
{
    live l{t, {}, false};
    berth_allocator *top;
    berth_status status = BERTH_OK;
    for (std::size_t i = 0; !status && (top = tracing_stack(i)); i++) {
        status = berth_planned_visit(top, visit_planned, &l);
        if (!status)
            status = berth_snapshot(top, visit_block, &l);
        if (l.failed)
            status = BERTH_OUT_OF_HOST_MEMORY;
    }
    return status;
}

// ---- Begin and end -----------------------------------------------------------------------------------------------

berth_status define_device(berth_trace *t)
{
    static const char name[] = "PyTorch CPU";
    berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
    d.kind = BERTH_DEVICE_CPU;
    const berth_status status = berth_trace_define_text(t, name, sizeof name - 1, &d.name);
    return status ? status : berth_trace_define_device(t, &d, &device);
}

// For berth top, which asks whether it still runs.
berth_status define_process(berth_trace *t)
{
    berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
    p.pid = static_cast<std::uint64_t>(getpid());
    return berth_trace_define_process(t, 0, &p);
}

void end_at_exit()
{
    (void)berth_torch_trace_end();
}

// The trace is the parent's. It is not released here: Berth would have to know by then that this is another process.
void forget_in_child()
{
    tracing_now.store(nullptr, std::memory_order_relaxed);
}

void watch_ends()
{
    static const bool watching =
        std::atexit(end_at_exit) == 0 && pthread_atfork(nullptr, nullptr, forget_in_child) == 0;
    (void)watching;
}

std::uint64_t limit_now()
{
    berth_stats stats = BERTH_STATS_INIT;
    berth_allocator *top = berth_torch_allocator();
    return top && berth_stats_get(top, &stats) == BERTH_OK ? stats.bytes_limit : 0;
}

} // namespace

void tracing_prepare()
{
    const std::uint32_t frames = python_frames.load(std::memory_order_relaxed);
    known *k = frames ? known_here() : nullptr;
    if (!k)
        return;
    k->stack = berth_torch_python_frames(frames);
    k->has_stack = true;
}

void tracing_allocated(berth_allocator *top, const void *p, std::size_t bytes)
{
    berth_trace *t = tracing_now.load(std::memory_order_acquire);
    if (!t || !p)
        return;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.address = reinterpret_cast<std::uintptr_t>(p);
    e.size_bytes = bytes;
    (void)berth_allocation_id(top, p, &e.id);
    describe(t, e);
    tell(t, e);
}

void tracing_refused(std::size_t bytes)
{
    berth_trace *t = tracing_now.load(std::memory_order_acquire);
    if (!t)
        return;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = BERTH_TRACE_FAIL;
    e.size_bytes = bytes;
    describe(t, e);
    tell(t, e);
}

void tracing_freed(const void *p)
{
    berth_trace *t = tracing_now.load(std::memory_order_acquire);
    if (!t)
        return;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = BERTH_TRACE_FREE;
    e.address = reinterpret_cast<std::uintptr_t>(p);
    tell(t, e);
}

void tracing_not_freed(berth_allocator *top, const void *p)
{
    berth_trace *t = tracing_now.load(std::memory_order_acquire);
    std::size_t bytes = 0;
    if (!t || berth_requested_size(top, p, &bytes) != BERTH_OK)
        return;
    static const char label[] = "a free that was refused";
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.address = reinterpret_cast<std::uintptr_t>(p);
    e.size_bytes = bytes;
    (void)berth_trace_define_text(t, label, sizeof label - 1, &e.label);
    tell(t, e);
}

void tracing_limit(std::uint64_t bytes)
{
    berth_trace *t = tracing_now.load(std::memory_order_acquire);
    if (!t || !bytes)
        return;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = BERTH_TRACE_CAPACITY;
    e.size_bytes = bytes;
    tell(t, e);
}

berth_status berth_torch_trace_begin(const char *path, uint32_t python_stacks)
{
    if (!path || !*path || python_stacks > most_python_frames)
        return BERTH_INVALID_ARGUMENT;
    fork_gate_watch();
    watch_ends();
    const fork_gate_shut shut;
    if (tracing_is_on())
        return BERTH_BUSY;
    berth_trace *t = nullptr;
    berth_status status = berth_trace_create(path, nullptr, &t);
    if (!status)
        status = define_process(t);
    if (!status)
        status = define_device(t);
    if (!status)
        status = tell_all_live(t);
    if (status) {
        berth_trace_release(t);
        return status;
    }
    trace_count++;
    python_frames.store(python_stacks, std::memory_order_relaxed);
    operators_watch();
    tracing_now.store(t, std::memory_order_release);
    tracing_limit(limit_now());
    return BERTH_OK;
}

berth_status berth_torch_trace_end(void)
{
    fork_gate_watch();
    const fork_gate_shut shut;
    berth_trace *t = tracing_now.exchange(nullptr, std::memory_order_acq_rel);
    if (!t)
        return BERTH_NOT_FOUND;
    operators_unwatch();
    berth_trace_release(t);
    return BERTH_OK;
}

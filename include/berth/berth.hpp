/* Berth for C++17, header only: handles that release themselves, std::pmr, an allocator for containers, buffers and
 * scopes that end on every way out.
 *
 * What can fail comes in two forms. The plain one throws: berth::bad_alloc (a std::bad_alloc) for want of memory or
 * budget, else berth::error; what() is berth's own message. The form whose last argument is a std::error_code & never
 * throws: it sets the code, whose value is the berth_status, and returns nullptr, an empty handle or nothing.
 *
 * A handle is one reference: copying retains, the destructor releases, get() lends the C handle for everything that is
 * not here. Threads may use different copies at once, as in C. */
#ifndef BERTH_BERTH_HPP
#define BERTH_BERTH_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#if __has_include(<memory_resource>)
#include <memory_resource>
#endif

#include "berth/berth.h"

namespace berth
{

/* ---- Statuses as exceptions or as values ---------------------------------------------------------------- */

class category_type final : public std::error_category
{
  public:
    const char *name() const noexcept override
    {
        return "berth";
    }
    std::string message(int status) const override
    {
        return berth_status_words(static_cast<berth_status>(status));
    }
};

inline const std::error_category &category() noexcept
{
    static const category_type only;
    return only;
}

inline std::error_code code_of(berth_status status) noexcept
{
    return {static_cast<int>(status), category()};
}

/* The words of the thread's last failure where they belong to `status`, else the status' own. */
inline std::string words_of(berth_status status)
{
    const berth_error *last = berth_last_error();
    return last->status == status && last->message[0] ? last->message : berth_status_words(status);
}

class error : public std::runtime_error
{
  public:
    explicit error(berth_status status) : std::runtime_error(words_of(status)), status_(status)
    {
    }
    berth_status status() const noexcept
    {
        return status_;
    }
    std::error_code code() const noexcept
    {
        return code_of(status_);
    }

  private:
    berth_status status_;
};

/* Keeps its words in place: there may be no memory for a string. */
class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(berth_status status) noexcept : status_(status)
    {
        const berth_error *last = berth_last_error();
        const char *from =
            last->status == status && last->message[0] ? last->message : berth_status_words(status);
        std::size_t at = 0;
        for (; from[at] && at + 1 < sizeof words_; at++)
            words_[at] = from[at];
        words_[at] = 0;
    }
    const char *what() const noexcept override
    {
        return words_;
    }
    berth_status status() const noexcept
    {
        return status_;
    }

  private:
    berth_status status_;
    char words_[sizeof(berth_error::message)];
};

/* In programs built without exceptions what would throw ends them, as it does in the standard library; the forms with
 * a std::error_code, and all of C, stay. */
[[noreturn]] inline void raise(berth_status status)
{
#if defined(__cpp_exceptions)
    if (status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
        status == BERTH_OVER_BUDGET)
        throw bad_alloc(status);
    throw error(status);
#else
    std::fprintf(stderr, "berth: %s\n", words_of(status).c_str());
    std::abort();
#endif
}

/* For calls of the C interface: berth::check(berth_trim(a.get(), 0, nullptr)); */
inline void check(berth_status status)
{
    if (status != BERTH_OK)
        raise(status);
}

/* ---- Handles -------------------------------------------------------------------------------------------- */

template <class C, C *(*Retain)(C *), void (*Release)(C *)> class handle
{
  public:
    handle() noexcept = default;
    handle(const handle &other) noexcept : c_(other.c_ ? Retain(other.c_) : nullptr)
    {
    }
    handle(handle &&other) noexcept : c_(std::exchange(other.c_, nullptr))
    {
    }
    handle &operator=(handle other) noexcept
    {
        std::swap(c_, other.c_);
        return *this;
    }
    ~handle()
    {
        Release(c_);
    }

    C *get() const noexcept
    {
        return c_;
    }
    explicit operator bool() const noexcept
    {
        return c_ != nullptr;
    }
    friend bool operator==(const handle &a, const handle &b) noexcept
    {
        return a.c_ == b.c_;
    }
    friend bool operator!=(const handle &a, const handle &b) noexcept
    {
        return a.c_ != b.c_;
    }

  protected:
    explicit handle(C *owned) noexcept : c_(owned)
    {
    }

  private:
    C *c_ = nullptr;
};

/* Any allocator: allocate and deallocate, and what else C has through get(). */
class allocator : public handle<berth_allocator, berth_allocator_retain, berth_allocator_release>
{
  public:
    allocator() noexcept = default;
    /* Takes over the reference that a C function gave; share() adds one of its own. */
    static allocator own(berth_allocator *a) noexcept
    {
        return allocator(a);
    }
    static allocator share(berth_allocator *a) noexcept
    {
        return allocator(a ? berth_allocator_retain(a) : nullptr);
    }

    void *allocate(std::size_t bytes, std::size_t alignment = BERTH_ALIGNMENT,
                   const berth_request *request = nullptr) const
    {
        void *p = nullptr;
        check(berth_allocate(get(), bytes, alignment, request, &p));
        return p;
    }
    void *allocate(std::size_t bytes, std::size_t alignment, std::error_code &code) const noexcept
    {
        void *p = nullptr;
        code = code_of(berth_allocate(get(), bytes, alignment, nullptr, &p));
        return p;
    }
    /* Never throws, since it runs in destructors; the status is for those who ask. */
    berth_status deallocate(void *p, std::size_t bytes = 0, berth_stream *stream = nullptr) const noexcept
    {
        return berth_deallocate(get(), p, bytes, stream);
    }
    const char *name() const noexcept
    {
        return berth_allocator_name(get());
    }
    berth_stats stats() const
    {
        berth_stats figures = BERTH_STATS_INIT;
        check(berth_stats_get(get(), &figures));
        return figures;
    }

  private:
    explicit allocator(berth_allocator *owned) noexcept : handle(owned)
    {
    }
};

/* The host's best allocator, as berth_cpu_allocator. */
inline allocator cpu()
{
    return allocator::share(berth_cpu_allocator());
}

/* A stack from words, "limit=64M;guard=yes", around `inner` or a source of its own (berth/config.h). */
inline allocator stack(const char *settings, const allocator &inner = {})
{
    berth_allocator *made = nullptr;
    check(berth_stack_create(settings, inner.get(), &made));
    return allocator::own(made);
}

inline allocator pool(const berth_pool_options *options = nullptr)
{
    berth_allocator *made = nullptr;
    check(berth_pool_create(options, &made));
    return allocator::own(made);
}

/* A pool, or a cache of host memory, over any allocator; `options` without its upstream. */
inline allocator pool_over(const allocator &upstream, berth_pool_options options = BERTH_POOL_OPTIONS_INIT)
{
    options.upstream = upstream.get();
    return pool(&options);
}

inline allocator host_cache(const berth_host_cache_options *options = nullptr)
{
    berth_allocator *made = nullptr;
    check(berth_host_cache_create(options, &made));
    return allocator::own(made);
}

inline allocator host_cache_over(const allocator &upstream,
                                 berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT)
{
    options.upstream = upstream.get();
    return host_cache(&options);
}

inline allocator tracking(const allocator &inner, const berth_tracking_options *options = nullptr)
{
    berth_allocator *made = nullptr;
    check(berth_tracking_create(inner.get(), options, &made));
    return allocator::own(made);
}

/* ---- Containers ----------------------------------------------------------------------------------------- */

/* std::vector<float, berth::container_allocator<float>> x(n, a). Host memory only. */
template <class T> class container_allocator
{
  public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    container_allocator() : a_(cpu())
    {
    }
    container_allocator(allocator a) noexcept : a_(std::move(a))
    {
    } /* not explicit: containers take an allocator */
    template <class U> container_allocator(const container_allocator<U> &other) noexcept : a_(other.source())
    {
    }
    /* Moving copies: a container that was moved from may be used again, and its allocator with it. */
    container_allocator(const container_allocator &other) noexcept = default;
    container_allocator &operator=(const container_allocator &other) noexcept = default;

    T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
#if defined(__cpp_exceptions)
            throw std::bad_array_new_length();
#else
            raise(BERTH_OVERFLOW);
#endif
        }
        return static_cast<T *>(a_.allocate(count * sizeof(T), alignof(T)));
    }
    void deallocate(T *p, std::size_t count) noexcept
    {
        a_.deallocate(p, count * sizeof(T));
    }
    const allocator &source() const noexcept
    {
        return a_;
    }

    template <class U>
    friend bool operator==(const container_allocator &a, const container_allocator<U> &b) noexcept
    {
        return a.source() == b.source();
    }
    template <class U>
    friend bool operator!=(const container_allocator &a, const container_allocator<U> &b) noexcept
    {
        return !(a == b);
    }

  private:
    allocator a_;
};

#if defined(__cpp_lib_memory_resource) || defined(_GLIBCXX_MEMORY_RESOURCE)
#define BERTH_HAS_PMR 1
/* For std::pmr containers, which keep a pointer to it: it must outlive them. */
class memory_resource final : public std::pmr::memory_resource
{
  public:
    explicit memory_resource(allocator a = cpu()) noexcept : a_(std::move(a))
    {
    }
    const allocator &source() const noexcept
    {
        return a_;
    }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return a_.allocate(bytes ? bytes : 1, alignment); /* nothing is a block too, and never nullptr */
    }
    void do_deallocate(void *p, std::size_t bytes, std::size_t) override
    {
        a_.deallocate(p, bytes ? bytes : 1);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
#if defined(__cpp_rtti)
        auto *ours = dynamic_cast<const memory_resource *>(&other);
        return ours && ours->a_ == a_;
#else
        return this == &other;
#endif
    }

    allocator a_;
};
#endif

/* ---- Buffers and streams -------------------------------------------------------------------------------- */

class buffer : public handle<berth_buffer, berth_buffer_retain, berth_buffer_release>
{
  public:
    buffer() noexcept = default;
    buffer(const allocator &a, std::size_t bytes, std::size_t alignment = BERTH_ALIGNMENT)
        : handle(made(a, bytes, alignment))
    {
    }
    static buffer own(berth_buffer *b) noexcept
    {
        return buffer(b);
    }
    static buffer view(void *p, std::size_t bytes, berth_device device = berth_device_cpu())
    {
        berth_buffer *b = nullptr;
        check(berth_buffer_view(p, bytes, device, &b));
        return own(b);
    }
    buffer sub(std::size_t offset, std::size_t bytes) const
    {
        berth_buffer *b = nullptr;
        check(berth_buffer_sub(get(), offset, bytes, &b));
        return own(b);
    }
    void *data() const noexcept
    {
        return berth_buffer_data(get());
    }
    std::size_t size() const noexcept
    {
        return berth_buffer_size(get());
    }
    berth_device device() const noexcept
    {
        return berth_buffer_device(get());
    }
    /* Waits unless there is a stream. */
    void copy_from(const buffer &source, berth_stream *stream = nullptr) const
    {
        check(berth_buffer_copy(get(), source.get(), stream, !stream));
    }
    void zero(berth_stream *stream = nullptr) const
    {
        check(berth_buffer_zero(get(), stream, !stream));
    }

  private:
    explicit buffer(berth_buffer *owned) noexcept : handle(owned)
    {
    }
    static berth_buffer *made(const allocator &a, std::size_t bytes, std::size_t alignment)
    {
        berth_buffer *b = nullptr;
        check(berth_buffer_create(a.get(), bytes, alignment, false, &b));
        return b;
    }
};

/* Moves, does not copy: a stream has one owner. */
class stream
{
  public:
    explicit stream(berth_device device = berth_device_cpu())
    {
        check(berth_stream_create(device, &c_));
    }
    stream(stream &&other) noexcept : c_(std::exchange(other.c_, nullptr))
    {
    }
    stream &operator=(stream &&other) noexcept
    {
        std::swap(c_, other.c_);
        return *this;
    }
    ~stream()
    {
        berth_stream_destroy(c_);
    }
    berth_stream *get() const noexcept
    {
        return c_;
    }
    void synchronize() const
    {
        check(berth_stream_synchronize(c_));
    }

  private:
    berth_stream *c_ = nullptr;
};

/* ---- Scopes --------------------------------------------------------------------------------------------- */

/* A named scope until the end of the block: berth::scope here("attention"); */
class scope
{
  public:
    explicit scope(const char *label) noexcept
    {
        berth_scope_begin(&c_, label);
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope()
    {
        berth_scope_end(&c_);
    }
    std::uint64_t peak_bytes() const noexcept
    {
        return berth_scope_peak_bytes(&c_);
    }

  private:
    berth_scope c_;
};

class plan : public handle<berth_plan, berth_plan_retain, berth_plan_release>
{
  public:
    plan() : handle(made())
    {
    }
    std::size_t size() const noexcept
    {
        return berth_plan_count(get());
    }
    std::uint64_t total_bytes() const noexcept
    {
        return berth_plan_total_bytes(get());
    }

  private:
    static berth_plan *made()
    {
        berth_plan *p = nullptr;
        check(berth_plan_create(&p));
        return p;
    }
};

inline allocator planned(const allocator &inner, const plan &p)
{
    berth_allocator *made = nullptr;
    check(berth_planned_create(inner.get(), p.get(), &made));
    return allocator::own(made);
}

/* Records until end(), which throws if the recording cannot be planned, or until the block is left: then an error is
 * only logged, since a destructor must not throw. */
class recording
{
  public:
    explicit recording(const allocator &of, const berth_run_options *options = nullptr) : of_(of)
    {
        check(berth_record_begin(of_.get(), options));
    }
    recording(const recording &) = delete;
    recording &operator=(const recording &) = delete;
    ~recording()
    {
        berth_run_guard guard = {open_ ? of_.get() : nullptr, BERTH_RUN_RECORD, nullptr};
        berth_run_guard_end(&guard); /* logs */
    }
    void end()
    {
        open_ = false;
        check(berth_record_end(of_.get()));
    }

  private:
    allocator of_;
    bool open_ = true;
};

/* Replays until end(), which gives the report and throws what a strict run found, or until the block is left. */
class replaying
{
  public:
    explicit replaying(const allocator &of, const berth_run_options *options = nullptr) : of_(of)
    {
        check(berth_replay_begin(of_.get(), options));
    }
    replaying(const replaying &) = delete;
    replaying &operator=(const replaying &) = delete;
    ~replaying()
    {
        if (open_)
            (void)berth_replay_end(of_.get(), nullptr);
    }
    berth_report end()
    {
        berth_report report = BERTH_REPORT_INIT;
        open_ = false;
        check(berth_replay_end(of_.get(), &report));
        return report;
    }

  private:
    allocator of_;
    bool open_ = true;
};

} // namespace berth

#endif

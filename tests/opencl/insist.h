/* For a suite that runs while the driver refuses calls (tests/opencl/shim, failing=N): put before its source by the
 * compiler. What is refused is judged and asked for again, so that the suite runs as it stands, to its end, and holds Berth
 * to every byte and every order that it promises: what was refused did not happen, and what is asked for next works. */
#ifndef BERTH_TESTS_OPENCL_INSIST_H
#define BERTH_TESTS_OPENCL_INSIST_H

#include <stdatomic.h>

#include "berth/berth.h"
#include "device/device.h"

/* Before anything is refused: the shim, as dlopen gives it. */
void insist_begin(void *shim);
extern int32_t insist_code;          /* what is refused with; written while nothing runs */
extern _Atomic long insist_refusals; /* that came as far as the suite */
/* Whether the driver was made to refuse the call that answered `status`, and this is how to say so. */
bool insist_again(berth_status status);
/* The same for a call that gives something: `given` must be NULL then. */
bool insist_again_for(berth_status status, const void *given);
/* A copy onto itself is not to be repeated on what a refused one may have left. */
berth_status insist_copy(berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream, bool need_sync);

#define INSIST(call)                    \
    ({                                  \
        berth_status insisted;          \
        do                              \
            insisted = (call);          \
        while (insist_again(insisted)); \
        insisted;                       \
    })
/* A caller may pass no place, to see that refused. */
static inline const void *insist_given(const void *out)
{
    return out ? *(void *const *)out : NULL;
}

#define INSIST_FOR(out, call)                                  \
    ({                                                         \
        berth_status insisted;                                 \
        do                                                     \
            insisted = (call);                                 \
        while (insist_again_for(insisted, insist_given(out))); \
        insisted;                                              \
    })

#ifndef INSIST_BY_HAND
/* clang-format off */
#define berth_device_allocate(d, kind, size, alignment, stream, out) \
    INSIST_FOR(out, berth_device_allocate(d, kind, size, alignment, stream, out))
#define berth_device_release(...) INSIST(berth_device_release(__VA_ARGS__))
#define berth_copy(...) insist_copy(__VA_ARGS__)
#define berth_zero(...) INSIST(berth_zero(__VA_ARGS__))
#define berth_stream_create(d, out) INSIST_FOR(out, berth_stream_create(d, out))
#define berth_stream_query(stream) INSIST(berth_stream_query(stream))
#define berth_stream_synchronize(stream) INSIST(berth_stream_synchronize(stream))
#define berth_stream_wait_event(stream, event) INSIST(berth_stream_wait_event(stream, event))
#define berth_stream_call(stream, fn, context) INSIST(berth_stream_call(stream, fn, context))
#define berth_event_create(d, out) INSIST_FOR(out, berth_event_create(d, out))
#define berth_event_record(event, stream) INSIST(berth_event_record(event, stream))
#define berth_event_query(event) INSIST(berth_event_query(event))
#define berth_event_wait(event) INSIST(berth_event_wait(event))
#define berth_buffer_copy(...) INSIST(berth_buffer_copy(__VA_ARGS__))
#define berth_buffer_zero(...) INSIST(berth_buffer_zero(__VA_ARGS__))
#define berth_pool_create(options, out) INSIST_FOR(out, berth_pool_create(options, out))
#define berth_allocate(a, size, alignment, request, out) \
    INSIST_FOR(out, berth_allocate(a, size, alignment, request, out))
#define berth_reallocate(a, p, old, size, alignment, request, out) \
    INSIST_FOR(out, berth_reallocate(a, p, old, size, alignment, request, out))
#define berth_host_cache_create(options, out) INSIST_FOR(out, berth_host_cache_create(options, out))
#define berth_device_allocator_create(d, kind, out) INSIST_FOR(out, berth_device_allocator_create(d, kind, out))
#define berth_deallocate(...) INSIST(berth_deallocate(__VA_ARGS__))
#define berth_record_use(...) INSIST(berth_record_use(__VA_ARGS__))
#define berth_trim(...) INSIST(berth_trim(__VA_ARGS__))
/* clang-format on */
#endif

#endif

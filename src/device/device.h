/* The inside of devices: kinds as they are kept, and what streams and events of every kind have in common.
 *
 * A backend is one table, berth_device_ops (berth/device_ops.h), the same that programs fill for devices of their own,
 * and structs that start with berth_stream and berth_event. device.c checks every argument before it dispatches and
 * fills the starts of streams and events. Backends never include each other. */
#ifndef BERTH_DEVICE_DEVICE_H
#define BERTH_DEVICE_DEVICE_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/thread.h"
#include "berth/device_ops.h"

/* Larger alignments are refused, as by every allocator. */
#define BERTH__DEVICE_ALIGNMENT_MAX ((size_t)1 << 30)

typedef struct berth__device_live berth__device_live;

/* A kind of devices. Made once and never freed: a stream of a kind that is gone, used against the rules,
 * finds words and no freed memory. */
typedef struct berth__device_type {
    berth_device_ops ops; /* complete: nobody tests for NULL */
    void *self;
    int32_t kind;
    char name[32];
    berth__device_live *live; /* what of a registered kind is in use; NULL for a built-in one, which stays */
    struct berth__device_type *next; /* among those that were unregistered */
} berth__device_type;

/* A registered device is somebody else's code: it may fail without words, and then another failure's must not stand
 * there. Each call of an operation that can fail is between these two:
 *     uint64_t before = berth__device_before(type);
 *     return berth__device_answer(type, type->ops.zero(...), before, "zero memory"); */
extern BERTH__HIDDEN _Thread_local uint64_t berth__failure_count;

static inline uint64_t berth__device_before(const berth__device_type *type)
{
    return BERTH_UNLIKELY(type->live != NULL) ? berth__failure_count : 0;
}

static inline berth_status berth__device_answer(const berth__device_type *type, berth_status status,
                                                uint64_t before, const char *what)
{
    if (BERTH_LIKELY(!status || !type->live))
        return status;
    return berth__fail_unless_said(status, before, type->name, what);
}

/* The tables of the backends; device.c lists them by kind. */
extern const berth_device_ops berth__cpu_device_ops;
extern const berth_device_ops berth__cuda_device_ops;
extern const berth_device_ops berth__hip_device_ops;
extern const berth_device_ops berth__opencl_device_ops;
extern const berth_device_ops berth__virtual_device_ops;
/* What they are registered with, where that is anything. */
extern struct gpu_kind berth__cuda_kind, berth__hip_kind;

/* The kind of that number, NULL for one that is unknown. One atomic load once any kind has been used. */
const berth__device_type *berth__device_type_of(int32_t kind);

/* The kind of a device that exists, or of a stream's device; the words of the failure are kept. */
berth_status berth__device_find(berth_device device, berth_stream *stream, const berth__device_type **type);
/* The same, also where the device answers that it is lost: what the host holds of it goes back all the same [D7]. */
berth_status berth__device_find_to_give_back(berth_device device, berth_stream *stream,
                                             const berth__device_type **type);

/* Copies `given` into `out` and fills what it lacks with operations that answer BERTH_UNSUPPORTED.
 * BERTH_INVALID_ARGUMENT with words for a table that is short, half filled or named badly. */
berth_status berth__device_ops_complete(berth_device_ops *out, const berth_device_ops *given);

/* Counts of what lives of a registered kind. Who counts down touches nothing of the kind afterwards: another thread may see
 * that nothing lives, and unregister it. Threads with a number below OWN have a cell to themselves, so that counting
 * costs no more than a plain addition; the others share the last. Only the sum means something. */
typedef enum berth__device_thing {
    BERTH__DEVICE_BLOCKS,
    BERTH__DEVICE_STREAMS,
    BERTH__DEVICE_EVENTS,
    BERTH__DEVICE_THINGS
} berth__device_thing;

enum { BERTH__DEVICE_OWN_CELLS = 64 };

typedef struct berth__device_cell {
    _Alignas(64) _Atomic int64_t things[BERTH__DEVICE_THINGS];
} berth__device_cell;

struct berth__device_live {
    berth__device_cell cells[BERTH__DEVICE_OWN_CELLS + 1];
};

static inline void berth__device_lives(const berth__device_type *type, berth__device_thing thing, int by)
{
    if (BERTH_LIKELY(type->live == NULL))
        return;
    uint32_t thread = berth__thread();
    if (BERTH_UNLIKELY(thread >= BERTH__DEVICE_OWN_CELLS)) {
        atomic_fetch_add_explicit(&type->live->cells[BERTH__DEVICE_OWN_CELLS].things[thing], by,
                                  memory_order_release);
        return;
    }
    _Atomic int64_t *own = &type->live->cells[thread].things[thing]; /* nobody else writes it */
    atomic_store_explicit(own, atomic_load_explicit(own, memory_order_relaxed) + by, memory_order_release);
}

/* The start of every backend's stream. */
struct berth_stream {
    const berth__device_type *type;
    berth_device device;
    _Atomic uint32_t references;
    _Atomic bool destroyed; /* its user has; whoever still holds it should let go when its work allows */
    uint64_t id;            /* never used twice in a process, never 0 */
};

/* The start of every backend's event. */
struct berth_event {
    const berth__device_type *type;
    berth_device device;
};

_Static_assert(sizeof(berth_stream) <= sizeof(berth_stream_base), "a stream's start has room");
_Static_assert(sizeof(berth_event) <= sizeof(berth_event_base), "an event's start has room");

/* Counted references, so that a cache can hold a stream that its user has destroyed: it stays fully usable
 * until the last reference is gone. berth_stream_destroy drops the user's. */
berth_stream *berth__stream_retain(berth_stream *stream);
void berth__stream_release(berth_stream *stream);

/* `stream` if it is one of `device`, else NULL: a device does its own work on its own streams only. */
static inline berth_stream *berth__stream_if_of(berth_stream *stream, berth_device device)
{
    return stream && berth_device_equal(stream->device, device) ? stream : NULL;
}

/* The stream whose function the calling thread is running, NULL if none. Backends set it around functions
 * given to berth_stream_call: waiting for one's own stream is refused instead of hanging. To be compared,
 * never followed: the function may have destroyed its stream. */
extern _Thread_local const berth_stream *berth__running_stream;

/* The largest block that a device can give at once, however much memory it has; SIZE_MAX: unknown. */
size_t berth__device_most_bytes(berth_device device, berth_memory_kind kind);
/* What blocks of BERTH_MEMORY_DEVICE have to be aligned to so that programs can bind them; 1: nothing. */
size_t berth__device_offset_alignment(berth_device device);

/* Device memory in pieces: reserve address space, map memory into parts of it, unmap, unreserve. Sizes and
 * addresses are multiples of the granularity; any run of mapped granules can be unmapped,
 * however they were mapped. Mapped memory has
 * no defined content. Any thread, as long as the ranges are disjoint. BERTH_OK, BERTH_UNSUPPORTED,
 * BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_DEVICE_MEMORY, BERTH_DEVICE_ERROR. */
berth_status berth__device_granularity(berth_device device, size_t *out);
berth_status berth__device_reserve(berth_device device, size_t size_bytes, void **out);
berth_status berth__device_unreserve(berth_device device, void *base, size_t size_bytes);
berth_status berth__device_map(berth_device device, void *p, size_t size_bytes);
berth_status berth__device_unmap(berth_device device, void *p, size_t size_bytes);

#endif

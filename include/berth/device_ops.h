/* Devices of your own: fill a table, register it, and pools, host caches, buffers, plans and the registry run on it
 * as they run on the built-in kinds, which use this table too. docs/adding-a-device.md tells it step by step;
 * examples/device is a whole device in one file; berth-device-check judges one.
 *
 * What an operation may rely on. Berth has checked the arguments before it calls: pointers are not NULL, sizes are above
 * 0, alignments are powers of two up to 1 GiB, ordinals are below `count`, memory kinds are among `memory_kinds`, and
 * streams and events are this device's own (those of an operation with two may be of two ordinals of one kind). No lock
 * of Berth's is held. Operations are called from any thread, several at once; only calls about the same block or the
 * same event are never made at the same time by a correct program.
 *
 * What an operation answers. BERTH_OK, or a status after berth_fail (berth_fail_driver where a driver has a code and words
 * of its own) has kept the words. A result is written on success only, and is then never NULL. BERTH_DEVICE_LOST means
 * that the device will not come back: from then on every operation should answer it at once, without waiting, except
 * that destroying and releasing still give back what the host holds. Pools, caches and replays pass it on and do not
 * wait for such a device.
 *
 * Addresses. Berth computes with the addresses a device hands out (a pool cuts blocks from a segment, a plan adds
 * offsets) and compares them with those of the host, but reads and writes through them only where `host_accessible`
 * is said, or for memory that is not BERTH_MEMORY_DEVICE. So memory without a host pointer, known to its driver as a
 * handle and an offset (a VkBuffer, a cl_mem), takes an address that stands for it: berth_addresses_reserve gives a
 * range that nothing else in the process has and that faults when it is touched. The device keeps which handle each
 * range stands for; `locate` turns any address inside back into handle and offset, for itself and, through
 * berth_device_locate, for programs that bind memory to kernels.
 *
 * A fork. A child has the parent's table but none of its threads. A device that cannot work there answers
 * BERTH_DEVICE_LOST in the child; see pthread_atfork. */
#ifndef BERTH_DEVICE_OPS_H
#define BERTH_DEVICE_OPS_H

#include "berth/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The starts of a device's streams and events: the first member of its own structs, which it allocates and frees. Berth
 * fills and uses them from the moment the creating operation has answered BERTH_OK; a device leaves them alone. */
typedef struct berth_stream_base {
    uint64_t berth[6];
} berth_stream_base;
typedef struct berth_event_base {
    uint64_t berth[4];
} berth_event_base;

/* The device's struct as Berth passes it, and back by a plain cast. */
static inline berth_stream *berth_stream_from_base(berth_stream_base *base)
{
    return (berth_stream *)(void *)base;
}
static inline berth_event *berth_event_from_base(berth_event_base *base)
{
    return (berth_event *)(void *)base;
}

/* What a device is able to do beyond having an operation. */
typedef enum berth_device_ability {
    /* A function given to stream_call may itself use the device; CUDA, for one, forbids it. */
    BERTH_DEVICE_CALLS_USE_DEVICE = 1,
} berth_device_ability;

/* Where an address lies, in the words of the driver. */
typedef struct berth_device_place {
    size_t struct_size;
    uint64_t handle;       /* a VkBuffer, a cl_mem, ...; as the device's documentation says */
    uint64_t offset_bytes; /* of the address in it */
    uint64_t size_bytes;   /* of the whole block behind the handle */
} berth_device_place;

#define BERTH_DEVICE_PLACE_INIT             \
    {                                       \
        sizeof(berth_device_place), 0, 0, 0 \
    }

/* What a device does. Set struct_size to sizeof(berth_device_ops); operations are only ever appended, and a table of an
 * older header stays valid. `self` is what was given to berth_device_register. */
typedef struct berth_device_ops {
    size_t struct_size;
    /* required */
    const char *name; /* "cpu", as users see it: 1 to 31 of a-z, 0-9, '_' and '-'; copied */
    uint64_t
        memory_kinds; /* 1 << berth_memory_kind for each that any of its devices may have; the device's own at least */
    uint64_t abilities; /* of berth_device_ability */
    /* How many there are; loads the driver on first use. Called often: keep the answer, which never shrinks. Without a
     * driver 0, BERTH_UNSUPPORTED, and words that say what to install. */
    berth_status (*count)(void *self, int32_t *count);
    /* `info` is zeroed but for struct_size, and complete. */
    berth_status (*describe)(void *self, berth_device device, berth_device_info *info);
    /* `stream` may be NULL, and is ignored unless the device says `stream_ordered`. */
    berth_status (*allocate)(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                             size_t alignment, berth_stream *stream, void **out);
    /* A block is gone after BERTH_OK, and after BERTH_DEVICE_LOST too; after anything else it is still the caller's. */
    berth_status (*release)(void *self, berth_device device, berth_memory_kind kind, void *p,
                            size_t size_bytes, berth_stream *stream);
    /* With a stream: enqueue and return. Without: done on return, waiting for no stream. Either address may be of the
     * device or of the host, `kind` says or asks to find out; copies that overlap must move. */
    berth_status (*copy)(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream);
    berth_status (*zero)(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *stream);
    /* optional from here: what is NULL answers BERTH_UNSUPPORTED, or as its comment says */
    void (*destroy)(void *self); /* after berth_device_unregister; nothing is called any more */
    berth_status (*native)(void *self, berth_device device, void **out);
    /* optional: streams and events. Who has one of these has all but wrap, native and call. */
    berth_status (*stream_create)(void *self, berth_device device, berth_stream **out);
    berth_status (*stream_wrap)(void *self, berth_device device, void *native, berth_stream **out);
    void *(*stream_native)(void *self, berth_stream *stream); /* NULL */
    /* The last reference is gone. Must not wait: what is enqueued still runs, so the struct may have to stay until
     * then. */
    void (*stream_destroy)(void *self, berth_stream *stream);
    berth_status (*stream_query)(void *self, berth_stream *stream); /* BERTH_OK or BERTH_NOT_READY */
    berth_status (*stream_synchronize)(void *self, berth_stream *stream);
    /* Takes the mark as it is now: the event may be recorded again or destroyed right after. */
    berth_status (*stream_wait_event)(void *self, berth_stream *stream, berth_event *event);
    /* When its turn has come, run the function by berth_stream_run, at most once. */
    berth_status (*stream_call)(void *self, berth_stream *stream, void (*fn)(void *context), void *context);
    /* An event that was never recorded is complete. It may outlive its stream. */
    berth_status (*event_create)(void *self, berth_device device, berth_event **out);
    berth_status (*event_record)(void *self, berth_event *event, berth_stream *stream);
    berth_status (*event_query)(void *self, berth_event *event); /* called very often */
    berth_status (*event_wait)(void *self, berth_event *event);
    void (*event_destroy)(void *self, berth_event *event); /* complete or not */
    /* optional: address space mapped piecewise; all or none. The granularity is a power of two; sizes and addresses are
     * multiples of it. Any run of mapped granules can be unmapped, however they were mapped. Mapped memory has no defined
     * content. */
    berth_status (*granularity)(void *self, berth_device device, size_t *out);
    berth_status (*reserve)(void *self, berth_device device, size_t size_bytes, void **out);
    berth_status (*unreserve)(void *self, berth_device device, void *base, size_t size_bytes);
    berth_status (*map)(void *self, berth_device device, void *p, size_t size_bytes);
    berth_status (*unmap)(void *self, berth_device device, void *p, size_t size_bytes);
    /* optional, each for itself unless it says a pair */
    berth_status (*copy_between)(void *self, berth_device to, void *dst, berth_device from, const void *src,
                                 size_t size_bytes, berth_stream *stream);
    berth_status (*memory)(void *self, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes);
    berth_status (*register_host)(void *self, berth_device device, void *p, size_t size_bytes); /* a pair */
    berth_status (*unregister_host)(void *self, berth_device device, void *p);
    berth_status (*prefetch)(void *self, berth_device device, void *p, size_t size_bytes, bool to_host,
                             berth_stream *stream);
    berth_status (*advise)(void *self, berth_device device, void *p, size_t size_bytes, berth_advice advice);
    berth_status (*share)(void *self, berth_device device, void *p, berth_shared_handle *out); /* all three */
    berth_status (*open_shared)(void *self, berth_device device, const berth_shared_handle *handle,
                                void **out);
    berth_status (*close_shared)(void *self, berth_device device, void *p);
    /* The largest block of that kind that the device can give; SIZE_MAX. */
    berth_status (*most_bytes)(void *self, berth_device device, berth_memory_kind kind, size_t *out);
    /* `out` is zeroed but for struct_size; BERTH_NOT_FOUND for an address that is not the device's. */
    berth_status (*locate)(void *self, berth_device device, const void *p, berth_device_place *out);
} berth_device_ops;

#define BERTH_DEVICE_OPS_INIT                                                                               \
    {                                                                                                       \
        sizeof(berth_device_ops), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,   \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                \
    }

/* Adds a kind of devices and gives it a number, BERTH_DEVICE_REGISTERED or above, that no other kind of this process has
 * or gets. The table is copied; `self` and what the operations stand on (a shared library) stay until unregistered. No
 * operation is called. Any thread. BERTH_OK; BERTH_INVALID_ARGUMENT for a table that is short, lacks something required
 * or has half of what belongs together; BERTH_ALREADY_EXISTS for a name that a kind has; BERTH_OUT_OF_HOST_MEMORY;
 * BERTH_BUSY when 64 are registered. */
BERTH_API berth_status berth_device_register(const berth_device_ops *ops, void *self, berth_device_kind *out);

/* Takes a registered kind out; its number then names nothing, and its name is free. Other threads must not be in the
 * middle of calls on it. Any thread. BERTH_OK, BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT for a built-in kind; BERTH_BUSY
 * while blocks, reservations, streams or events of it live, among them those that pools, caches and plans hold, with
 * words that count them. */
BERTH_API berth_status berth_device_unregister(berth_device_kind kind);

/* The kind of that name, BERTH_DEVICE_UNKNOWN if there is none. Any thread. */
BERTH_API berth_device_kind berth_device_kind_find(const char *name);

/* The kinds that there are, built-in and registered, one after the other: the first after BERTH_DEVICE_UNKNOWN, and
 * BERTH_DEVICE_UNKNOWN after the last. Any thread.
 *
 *     int kinds = 0;
 *     for (berth_device_kind kind = BERTH_DEVICE_UNKNOWN; (kind = berth_device_kind_next(kind)) != BERTH_DEVICE_UNKNOWN;)
 *         kinds++;
 */
BERTH_API berth_device_kind berth_device_kind_next(berth_device_kind kind);

/* Where an address of the device lies, as handle and offset; the caller sets out->struct_size. Any thread. BERTH_OK,
 * BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED on a device whose addresses are pointers. */
BERTH_API berth_status berth_device_locate(berth_device device, const void *p, berth_device_place *out);

/* For devices ------------------------------------------------------------------------------------------- */

/* Runs fn(context) on the calling thread as the stream's function: so that waiting for its own stream is refused and
 * does not hang. The stream may be destroyed meanwhile. */
BERTH_API void berth_stream_run(const berth_stream *stream, void (*fn)(void *context), void *context);

/* Addresses for memory that has none: nothing else in the process gets them, and touching one faults. `alignment` is a
 * power of two. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_addresses_reserve(size_t size_bytes, size_t alignment, void **out);

/* Gives back what berth_addresses_reserve gave, with the same size. NULL is a no-op. */
BERTH_API void berth_addresses_release(void *p, size_t size_bytes);

/* A shared library that holds a device exports a function of this name and type: it fills *ops and *self with what
 * berth_device_register takes. `berth devices --load` and berth-device-check call it. */
#define BERTH_DEVICE_ENTRY "berth_device_entry"
typedef berth_status berth_device_entry_fn(const berth_device_ops **ops, void **self);

#ifdef __cplusplus
}
#endif
#endif

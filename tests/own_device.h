/* A device that a test registers: the processor's table under another name, so that both can be compared call by call,
 * with switches for answers that a device should not give. And the devices that a test program is told to run on: a
 * kind's name, "own", or the path of a shared library that holds one. */
#ifndef BERTH_TESTS_OWN_DEVICE_H
#define BERTH_TESTS_OWN_DEVICE_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "device/device.h"

typedef struct own_device {
    _Atomic bool lost;     /* every operation answers so */
    _Atomic bool wordless; /* and says no words */
    _Atomic bool empty;    /* BERTH_OK without a result */
    _Atomic bool crooked;  /* a block that is not aligned */
    _Atomic bool
        babbles; /* words without an end, kinds of memory that its table lacks; lost, a count all the same */
    _Atomic bool negative;    /* so is its count */
    _Atomic size_t steps;     /* in which it says that it maps memory; 0: the processor's */
    _Atomic int refuses;      /* so many releases, then no more */
    _Atomic bool lost_to_all; /* with `lost`: nothing else answers otherwise, neither count nor describe */
    _Atomic int released, destroyed;
    _Atomic uint64_t offset_alignment; /* what it says of itself */
    _Atomic size_t most_bytes;         /* larger blocks are refused; 0: none is */
    _Atomic bool modest;               /* and says so beforehand */
} own_device;

static inline berth_status own_alive(own_device *own)
{
    if (!atomic_load(&own->lost))
        return BERTH_OK;
    return atomic_load(&own->wordless) ? BERTH_DEVICE_LOST : berth_fail(BERTH_DEVICE_LOST, "pulled out");
}

static inline berth_status own_allocate(void *self, berth_device device, berth_memory_kind kind,
                                        size_t size_bytes, size_t alignment, berth_stream *stream, void **out)
{
    own_device *own = self;
    berth_status status = own_alive(own);
    if (status != BERTH_OK || atomic_load(&own->empty))
        return status;
    if (atomic_load(&own->most_bytes) && size_bytes > atomic_load(&own->most_bytes))
        return berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "%zu bytes are too many at once", size_bytes);
    status = berth__cpu_device_ops.allocate(NULL, device, kind, size_bytes, alignment, stream, out);
    if (status == BERTH_OK && atomic_load(&own->crooked))
        *out = (char *)*out + 1;
    return status;
}

static inline berth_status own_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                       size_t size_bytes, berth_stream *stream)
{
    own_device *own = self;
    if (atomic_load(&own->refuses) && atomic_fetch_sub(&own->refuses, 1))
        return berth_fail(BERTH_DEVICE_ERROR, "not now");
    atomic_fetch_add(&own->released, 1);
    if (atomic_load(&own->crooked))
        p = (char *)p - 1;
    berth_status status = berth__cpu_device_ops.release(NULL, device, kind, p, size_bytes, stream);
    return status == BERTH_OK ? own_alive(own) : status; /* what the host holds goes back in any case */
}

static inline berth_status own_copy(void *self, berth_device device, void *dst, const void *src,
                                    size_t size_bytes, berth_copy_kind kind, berth_stream *stream)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.copy(NULL, device, dst, src, size_bytes, kind, stream)
                              : status;
}

static inline berth_status own_stream_create(void *self, berth_device device, berth_stream **out)
{
    berth_status status = own_alive(self);
    if (status != BERTH_OK || atomic_load(&((own_device *)self)->empty))
        return status;
    return berth__cpu_device_ops.stream_create(NULL, device, out);
}

static inline berth_status own_stream_query(void *self, berth_stream *stream)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.stream_query(NULL, stream) : status;
}

static inline berth_status own_stream_synchronize(void *self, berth_stream *stream)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.stream_synchronize(NULL, stream) : status;
}

static inline berth_status own_event_create(void *self, berth_device device, berth_event **out)
{
    berth_status status = own_alive(self);
    if (status != BERTH_OK || atomic_load(&((own_device *)self)->empty))
        return status;
    return berth__cpu_device_ops.event_create(NULL, device, out);
}

static inline berth_status own_event_query(void *self, berth_event *event)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.event_query(NULL, event) : status;
}

static inline berth_status own_event_wait(void *self, berth_event *event)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.event_wait(NULL, event) : status;
}

static inline berth_status own_map(void *self, berth_device device, void *p, size_t size_bytes)
{
    berth_status status = own_alive(self);
    return status == BERTH_OK ? berth__cpu_device_ops.map(NULL, device, p, size_bytes) : status;
}

static inline berth_status own_unmap(void *self, berth_device device, void *p, size_t size_bytes)
{
    berth_status status = berth__cpu_device_ops.unmap(NULL, device, p, size_bytes);
    return status == BERTH_OK ? own_alive(self) : status;
}

static inline berth_status own_describe(void *self, berth_device device, berth_device_info *info)
{
    berth_status status = berth__cpu_device_ops.describe(NULL, device, info);
    info->offset_alignment = atomic_load(&((own_device *)self)->offset_alignment);
    if (atomic_load(&((own_device *)self)->babbles)) {
        memset(info->name, 'x', sizeof info->name);
        memset(info->driver, 'y', sizeof info->driver);
        info->memory_kinds = UINT64_MAX;
    }
    return status;
}

static inline berth_status own_count(void *self, int32_t *count)
{
    own_device *own = self;
    if (atomic_load(&own->lost) && atomic_load(&own->lost_to_all))
        return own_alive(own);
    bool fails = atomic_load(&own->babbles) && atomic_load(&own->lost);
    *count = atomic_load(&own->negative) ? -5 : fails ? 7 : 1;
    return fails ? BERTH_DEVICE_LOST : BERTH_OK;
}

static inline berth_status own_granularity(void *self, berth_device device, size_t *out)
{
    own_device *own = self;
    berth_status status = atomic_load(&own->lost_to_all) ? own_alive(own) : BERTH_OK;
    if (status == BERTH_OK && atomic_load(&own->steps)) {
        *out = atomic_load(&own->steps);
        return BERTH_OK;
    }
    return status == BERTH_OK ? berth__cpu_device_ops.granularity(NULL, device, out) : status;
}

static inline berth_status own_most_bytes(void *self, berth_device device, berth_memory_kind kind,
                                          size_t *out)
{
    own_device *own = self;
    (void)device, (void)kind;
    *out =
        atomic_load(&own->modest) && atomic_load(&own->most_bytes) ? atomic_load(&own->most_bytes) : SIZE_MAX;
    return BERTH_OK;
}

static inline void own_destroy(void *self)
{
    atomic_fetch_add(&((own_device *)self)->destroyed, 1);
}

static inline berth_device_ops own_table(const char *name)
{
    berth_device_ops ops = berth__cpu_device_ops;
    ops.name = name;
    ops.allocate = own_allocate;
    ops.release = own_release;
    ops.copy = own_copy;
    ops.stream_create = own_stream_create;
    ops.stream_query = own_stream_query;
    ops.stream_synchronize = own_stream_synchronize;
    ops.event_create = own_event_create;
    ops.event_query = own_event_query;
    ops.event_wait = own_event_wait;
    ops.map = own_map;
    ops.unmap = own_unmap;
    ops.destroy = own_destroy;
    ops.count = own_count;
    ops.describe = own_describe;
    ops.granularity = own_granularity;
    ops.most_bytes = own_most_bytes;
    return ops;
}

static inline berth_status own_register(const char *name, own_device *own, berth_device_kind *out)
{
    berth_device_ops ops = own_table(name);
    return berth_device_register(&ops, own, out);
}

/* The kind that a program's argument means; a device that must be registered first is. */
static inline int32_t device_kind_for(const char *name)
{
    static own_device own;
    berth_device_kind kind = berth_device_kind_find(name);
    if (kind == BERTH_DEVICE_UNKNOWN && strcmp(name, "own") == 0)
        (void)own_register("own", &own, &kind);
    if (kind == BERTH_DEVICE_UNKNOWN && strchr(name, '/')) {
        void *library = dlopen(name, RTLD_NOW), *self = NULL;
        const berth_device_ops *ops = NULL;
        berth_device_entry_fn *entry = NULL;
        if (library)
            *(void **)&entry = dlsym(library, BERTH_DEVICE_ENTRY);
        if (!entry)
            (void)berth_fail(BERTH_NOT_FOUND, "%s", dlerror());
        else if (entry(&ops, &self) == BERTH_OK)
            (void)berth_device_register(ops, self, &kind);
    }
    return (int32_t)kind;
}

#endif

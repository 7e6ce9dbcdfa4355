/* What the decorators' tests share. */
#ifndef BERTH_TESTS_WRAP_TEST_H
#define BERTH_TESTS_WRAP_TEST_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"
#include "berth/decorators.h"

static inline berth_allocator *new_system(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &a), BERTH_OK);
    return a;
}

static inline void *take(berth_allocator *a, size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size_bytes, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static inline void give(berth_allocator *a, void *p)
{
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
}

/* A tracker over a new system allocator: an inner allocator that tracks sizes. */
static inline berth_allocator *new_tracker(void)
{
    berth_allocator *system = new_system(), *tracker = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    assert_int_equal(berth_tracking_create(system, &options, &tracker), BERTH_OK);
    berth_allocator_release(system);
    return tracker;
}

/* A user's allocator without sizes: what a decorator must carry itself. */
static inline berth_status plain_allocate(void *self, size_t size_bytes, size_t alignment,
                                          const berth_request *request, void **out)
{
    (void)self;
    *out = NULL;
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return BERTH_OUT_OF_HOST_MEMORY;
    if (request->flags & BERTH_ZEROED)
        memset(*out, 0, size_bytes);
    return BERTH_OK;
}

static inline berth_status plain_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes, (void)stream;
    free(p);
    return BERTH_OK;
}

static inline void plain_destroy(void *self)
{
    (void)self;
}

static inline berth_allocator *new_plain(void)
{
    static const berth_allocator_ops ops = {
        .struct_size = sizeof(berth_allocator_ops),
        .allocate = plain_allocate,
        .deallocate = plain_deallocate,
        .destroy = plain_destroy,
    };
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    return a;
}

/* An inner allocator over another that takes blocks back only when it is told to. */
struct keeper {
    berth_allocator *behind;
    bool open;
};

static inline berth_status keeper_allocate(void *self, size_t size_bytes, size_t alignment,
                                           const berth_request *request, void **out)
{
    return berth_allocate(((struct keeper *)self)->behind, size_bytes, alignment, request, out);
}

static inline berth_status keeper_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct keeper *keeper = self;
    if (!keeper->open)
        return berth__fail(BERTH_BUSY, "not now");
    return berth_deallocate(keeper->behind, p, size_bytes, stream);
}

static inline berth_device keeper_device(void *self)
{
    return berth_allocator_device(((struct keeper *)self)->behind);
}

static inline bool keeper_tracks_sizes(void *self)
{
    return berth_allocator_tracks_sizes(((struct keeper *)self)->behind);
}

static inline berth_status keeper_requested_size(void *self, const void *p, size_t *out)
{
    return berth_requested_size(((struct keeper *)self)->behind, p, out);
}

static inline berth_allocator *new_keeper(struct keeper *keeper)
{
    static const berth_allocator_ops ops = {
        .struct_size = sizeof(berth_allocator_ops),
        .allocate = keeper_allocate,
        .deallocate = keeper_deallocate,
        .destroy = plain_destroy,
        .device = keeper_device,
        .tracks_sizes = keeper_tracks_sizes,
        .requested_size = keeper_requested_size,
    };
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, keeper, &a), BERTH_OK);
    return a;
}

#endif

/* A user's allocator for tests: malloc underneath, and it remembers what it was asked. */
#ifndef BERTH_TESTS_RECORDER_H
#define BERTH_TESTS_RECORDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/allocator.h"

struct recorder {
    size_t allocations, frees, destroyed;
    size_t last_size, last_alignment, last_freed_size;
    berth_request last_request;
    berth_stream *last_stream;
    berth_status answer; /* other than BERTH_OK: the next allocations fail with it */
};

static inline berth_status recorder_allocate(void *self, size_t size_bytes, size_t alignment,
                                             const berth_request *request, void **out)
{
    struct recorder *r = self;
    r->last_size = size_bytes;
    r->last_alignment = alignment;
    r->last_request = *request;
    if (r->answer != BERTH_OK)
        return r->answer;
    r->allocations++;
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return BERTH_OUT_OF_HOST_MEMORY;
    return BERTH_OK;
}

static inline berth_status recorder_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct recorder *r = self;
    r->frees++;
    r->last_freed_size = size_bytes;
    r->last_stream = stream;
    free(p);
    return BERTH_OK;
}

static inline void recorder_destroy(void *self)
{
    ((struct recorder *)self)->destroyed++;
}

static const berth_allocator_ops recorder_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = recorder_allocate,
    .deallocate = recorder_deallocate,
    .destroy = recorder_destroy,
};

static inline berth_allocator *recorder_create(struct recorder *r)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&recorder_ops, r, &a), BERTH_OK);
    return a;
}

#endif

/* What tests of the host cache share: a cache on a fresh virtual device for every test. */
#ifndef BERTH_TESTS_HOST_TEST_H
#define BERTH_TESTS_HOST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/virtual.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct fixture {
    berth_device device;
    berth_allocator *cache;
    berth_stream *streams[3];
    uint64_t now;
} fixture;

static inline uint64_t read_clock(void *context)
{
    return ((fixture *)context)->now;
}

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    assert_int_equal(berth_virtual_create(&f->device), BERTH_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(berth_stream_create(f->device, &f->streams[i]), BERTH_OK);
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    assert_int_equal(berth_host_cache_create(&options, &f->cache), BERTH_OK);
    return 0;
}

/* A cache with other options in place of the fixture's. */
static inline void replace_cache(fixture *f, const berth_host_cache_options *options)
{
    berth_allocator_release(f->cache);
    assert_int_equal(berth_host_cache_create(options, &f->cache), BERTH_OK);
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    berth_allocator_release(f->cache);
    for (int i = 0; i < 3; i++)
        berth_stream_destroy(f->streams[i]);
    assert_int_equal(berth_virtual_bytes_in_use(f->device), 0);
    berth_virtual_destroy(f->device);
    free(f);
    return 0;
}

static inline void *take(fixture *f, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(f->cache, size, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static inline void give(fixture *f, void *p)
{
    assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_OK);
}

static inline void nothing(void *context)
{
    (void)context;
}

/* Work on a stream that has not run yet. */
static inline void enqueue(berth_stream *stream)
{
    assert_int_equal(berth_stream_call(stream, nothing, NULL), BERTH_OK);
}

static inline berth_host_cache_figures figures(fixture *f)
{
    berth_host_cache_figures out = {.struct_size = sizeof out};
    assert_int_equal(berth_host_cache_figures_get(f->cache, &out), BERTH_OK);
    assert_int_equal(out.live_bytes + out.waiting_bytes + out.idle_bytes,
                     berth_virtual_bytes_in_use(f->device));
    return out;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif

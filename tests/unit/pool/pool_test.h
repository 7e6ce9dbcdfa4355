/* What the pool's tests share. */
#ifndef BERTH_TESTS_POOL_TEST_H
#define BERTH_TESTS_POOL_TEST_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/pool.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static inline berth_allocator *make(const berth_pool_options *options)
{
    berth_allocator *pool = NULL;
    assert_int_equal(berth_pool_create(options, &pool), BERTH_OK);
    return pool;
}

static inline void *take(berth_allocator *pool, size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(pool, size_bytes, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static inline void give(berth_allocator *pool, void *p)
{
    assert_int_equal(berth_deallocate(pool, p, 0, NULL), BERTH_OK);
}

static inline berth_stats stats_of(berth_allocator *pool)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    return stats;
}

#endif

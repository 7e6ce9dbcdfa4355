/* Bad frees and the end of a cache under stress: every block freed by several threads at once, by pointer and by
 * handle, while memory goes back; and the last frees while the cache is released. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/log.h"

enum { threads = 4, blocks_max = 200 };

typedef struct range {
    berth_allocator *cache;
    berth_stream *stream;
    void *blocks[blocks_max];
    berth_host_handle handles[blocks_max];
    uint32_t count;
    pthread_barrier_t start;
    _Atomic uint32_t good[blocks_max], bad, other, thread;
    _Atomic bool done;
} range;

/* Every thread frees every block, each from another end. */
static void *free_all(void *context)
{
    range *r = context;
    uint32_t me = atomic_fetch_add(&r->thread, 1);
    pthread_barrier_wait(&r->start);
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t k = (i * 7 + me * r->count / threads) % r->count;
        uint32_t way = (k + me) % 4;
        berth_stream *stream = k % 5 == 0 ? r->stream : NULL;
        char *p = r->blocks[k];
        berth_status status =
            way == 0   ? berth_deallocate(r->cache, p, 0, stream)
            : way == 1 ? berth_host_cache_free(r->cache, p, r->handles[k], stream)
            : way == 2 ? berth_host_cache_free(r->cache, NULL, r->handles[k], stream)
                       : berth_host_cache_free(r->cache, p, r->handles[(k + 1) % r->count], stream);
        atomic_fetch_add(status == BERTH_OK         ? &r->good[k]
                         : status == BERTH_BAD_FREE ? &r->bad
                                                    : &r->other,
                         1);
        /* Neither inside a block nor at foreign memory is anything to be freed. */
        if (berth_deallocate(r->cache, p + 32, 0, NULL) != BERTH_BAD_FREE ||
            berth_deallocate(r->cache, &status, 0, NULL) != BERTH_BAD_FREE)
            atomic_fetch_add(&r->other, 1);
    }
    return NULL;
}

static void *trim_all_the_time(void *context)
{
    range *r = context;
    while (!atomic_load(&r->done))
        berth_host_cache_empty(r->cache, NULL);
    return NULL;
}

static void free_everything_several_times(range *r, size_t size)
{
    pthread_t ids[threads], trimmer;
    r->count = 7 * 7 * 4; /* no multiple of the stride through them */
    r->count += r->count % 7 == 0;
    atomic_store(&r->bad, 0);
    atomic_store(&r->thread, 0);
    atomic_store(&r->done, false);
    for (uint32_t k = 0; k < r->count; k++) {
        atomic_store(&r->good[k], 0);
        assert_int_equal(
            berth_host_cache_allocate(r->cache, size + k % 3 * 64, 64, NULL, &r->blocks[k], &r->handles[k]),
            BERTH_OK);
    }
    assert_int_equal(pthread_create(&trimmer, NULL, trim_all_the_time, r), 0);
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, free_all, r), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    atomic_store(&r->done, true);
    pthread_join(trimmer, NULL);
    for (uint32_t k = 0; k < r->count; k++)
        assert_int_equal(r->good[k], 1);
    assert_int_equal(r->bad, r->count * (threads - 1));
    assert_int_equal(r->other, 0);
}

/* [H7] Of all frees of a block one is good, whatever happens beside it, and nothing is counted twice. */
static void test_one_free_of_each_block_is_good(void **state)
{
    (void)state;
    range r = {0};
    assert_int_equal(berth_host_cache_create(NULL, &r.cache), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &r.stream), BERTH_OK);
    pthread_barrier_init(&r.start, NULL, threads);
    static const size_t sizes[] = {100, 3000, 70000, 1000, 40000};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++)
        free_everything_several_times(&r, sizes[i]);
    assert_int_equal(berth_stream_synchronize(r.stream), BERTH_OK);
    berth_stream_destroy(r.stream);
    assert_int_equal(berth_host_cache_empty(r.cache, NULL), BERTH_OK);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(r.cache, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.bytes_reserved, 0);
    pthread_barrier_destroy(&r.start);
    berth_allocator_release(r.cache);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

static pthread_key_t at_exit_key;
static range *ending;

/* The last block of each thread is freed while the thread ends. */
static void free_at_exit(void *p)
{
    if (berth_deallocate(ending->cache, p, 0, NULL) != BERTH_OK)
        atomic_fetch_add(&ending->other, 1);
}

static void *free_a_share(void *context)
{
    range *r = context;
    uint32_t me = atomic_fetch_add(&r->thread, 1);
    pthread_setspecific(at_exit_key, r->blocks[me]);
    pthread_barrier_wait(&r->start);
    for (uint32_t k = me + threads; k < r->count; k += threads)
        if (berth_host_cache_free(r->cache, k % 3 ? r->blocks[k] : NULL, r->handles[k],
                                  k % 5 ? NULL : r->stream) != BERTH_OK)
            atomic_fetch_add(&r->other, 1);
    return NULL;
}

static void end_a_cache(int round)
{
    range r = {.count = 40};
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    pthread_t ids[threads];
    options.soft_limit_bytes = round % 2 ? 64 << 10 : 0;
    options.background_us = round % 3 == 0 ? 50 : 0;
    assert_int_equal(berth_host_cache_create(&options, &r.cache), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &r.stream), BERTH_OK);
    pthread_barrier_init(&r.start, NULL, threads + 1);
    for (uint32_t k = 0; k < r.count; k++)
        assert_int_equal(
            berth_host_cache_allocate(r.cache, (size_t)500 << k % 8, 64, NULL, &r.blocks[k], &r.handles[k]),
            BERTH_OK);
    ending = &r;
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, free_a_share, &r), 0);
    pthread_barrier_wait(&r.start);
    berth_allocator_release(r.cache);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(r.other, 0);
    assert_int_equal(berth_stream_synchronize(r.stream), BERTH_OK);
    berth_stream_destroy(r.stream);
    pthread_barrier_destroy(&r.start);
}

/* [H8] Whoever is last ends the cache: a free, a free of a thread that ends, or the release. */
static void test_last_frees_while_the_cache_is_released(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    pthread_key_create(&at_exit_key, free_at_exit);
    for (int round = 0; round < 60; round++)
        end_a_cache(round);
    pthread_key_delete(at_exit_key);
    /* What waited for a stream when its cache ended goes back with the next cache. */
    berth_allocator *cache = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &cache), BERTH_OK);
    berth_allocator_release(cache);
    assert_true(berth__heap_live() <= live);
}

int main(void)
{
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_free_of_each_block_is_good),
        cmocka_unit_test(test_last_frees_while_the_cache_is_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

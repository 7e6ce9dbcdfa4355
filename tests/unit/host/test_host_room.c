/* Room in the host cache: memory on its way back to the device, hard limits down to a page, pages of any size,
 * and the words of a refusal. The device's release is wrapped, so that a test can hold it up. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/virtual.h"
#include "gate.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- A device whose release can be held up, and a system with larger pages -------------------------- */

static _Atomic(gate *) release_gate; /* the next release stops there */
static _Atomic int releases_begun;

berth_status __real_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream);
berth_status __wrap_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream);
berth_status __wrap_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream)
{
    atomic_fetch_add(&releases_begun, 1);
    gate *g = atomic_exchange(&release_gate, NULL);
    if (g)
        gate_stop(g);
    return __real_berth_device_release(device, kind, p, size_bytes, stream);
}

static _Atomic(gate *) query_gate; /* the next question about an event stops there */

berth_status __real_berth_event_query(berth_event *event);
berth_status __wrap_berth_event_query(berth_event *event);
berth_status __wrap_berth_event_query(berth_event *event)
{
    gate *g = atomic_exchange(&query_gate, NULL);
    if (g)
        gate_stop(g);
    return __real_berth_event_query(event);
}

static long page_bytes; /* 0: the system's */

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_PAGESIZE && page_bytes ? page_bytes : __real_sysconf(name);
}

static berth_allocator *new_cache(uint64_t soft, uint64_t hard)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *cache = NULL;
    options.soft_limit_bytes = soft;
    options.hard_limit_bytes = hard;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    return cache;
}

static void *take(berth_allocator *cache, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(cache, size, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static void give(berth_allocator *cache, void *p)
{
    assert_int_equal(berth_deallocate(cache, p, 0, NULL), BERTH_OK);
}

static berth_stats stats_of(berth_allocator *cache)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(cache, &stats), BERTH_OK);
    return stats;
}

static berth_host_cache_figures figures(berth_allocator *cache)
{
    berth_host_cache_figures out = {.struct_size = sizeof out};
    assert_int_equal(berth_host_cache_figures_get(cache, &out), BERTH_OK);
    return out;
}

/* ---- Memory on its way back -------------------------------------------------------------------------- */

typedef struct helper {
    berth_allocator *cache;
    size_t size;
    void *block;
    berth_status status;
    _Atomic bool done;
    pthread_t id;
} helper;

static void *run_empty(void *context)
{
    helper *h = context;
    h->status = berth_host_cache_empty(h->cache, NULL);
    atomic_store(&h->done, true);
    return NULL;
}

static void *run_allocate(void *context)
{
    helper *h = context;
    h->status = berth_allocate(h->cache, h->size, BERTH_ALIGNMENT, NULL, &h->block);
    atomic_store(&h->done, true);
    return NULL;
}

/* One thread's release stands at the gate; the other must not be done before it is opened. That it would have
 * been done is not waited for: its result tells, since the figures are those from after the release. */
static void test_empty_waits_for_memory_on_its_way(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, 0);
    gate g = GATE_INIT;
    give(cache, take(cache, MIB));
    helper first = {.cache = cache}, second = {.cache = cache};
    atomic_store(&release_gate, &g);
    pthread_create(&first.id, NULL, run_empty, &first);
    gate_wait_reached(&g);
    /* Its bytes are still the cache's: nobody may take them, and figures show them. */
    assert_int_equal(stats_of(cache).bytes_reserved, MIB);
    pthread_create(&second.id, NULL, run_empty, &second);
    for (int i = 0; i < 1000; i++) {
        assert_false(atomic_load(&second.done));
        sched_yield();
    }
    gate_open(&g);
    pthread_join(second.id, NULL);
    assert_int_equal(stats_of(cache).bytes_reserved, 0);
    pthread_join(first.id, NULL);
    assert_int_equal(first.status, BERTH_OK);
    assert_int_equal(second.status, BERTH_OK);
    berth_allocator_release(cache);
}

static void *run_collect(void *context)
{
    helper *h = context;
    h->status = berth_host_cache_collect(h->cache, NULL);
    atomic_store(&h->done, true);
    return NULL;
}

/* One thread has asked the driver about a stream and has no answer yet: what it is about to collect is not left
 * behind. */
static void test_empty_waits_for_another_collection(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, 0);
    berth_stream *stream = NULL;
    gate g = GATE_INIT;
    void *p = take(cache, MIB);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, p, 0, stream), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    helper first = {.cache = cache}, second = {.cache = cache};
    atomic_store(&query_gate, &g);
    pthread_create(&first.id, NULL, run_collect, &first);
    gate_wait_reached(&g);
    pthread_create(&second.id, NULL, run_empty, &second);
    for (int i = 0; i < 5000 && !atomic_load(&second.done); i++)
        sched_yield();
    assert_false(atomic_load(&second.done));
    gate_open(&g);
    pthread_join(first.id, NULL);
    pthread_join(second.id, NULL);
    assert_int_equal(stats_of(cache).bytes_reserved, 0);
    berth_stream_destroy(stream);
    berth_allocator_release(cache);
}

static void test_nothing_is_refused_while_memory_is_on_its_way(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, MIB);
    gate g = GATE_INIT;
    give(cache, take(cache, MIB));
    helper first = {.cache = cache}, second = {.cache = cache, .size = MIB / 2};
    atomic_store(&release_gate, &g);
    pthread_create(&first.id, NULL, run_empty, &first);
    gate_wait_reached(&g);
    pthread_create(&second.id, NULL, run_allocate, &second);
    for (int i = 0; i < 1000; i++) {
        assert_false(atomic_load(&second.done)); /* a refusal would be quick */
        sched_yield();
    }
    gate_open(&g);
    pthread_join(first.id, NULL);
    pthread_join(second.id, NULL);
    assert_int_equal(second.status, BERTH_OK);
    give(cache, second.block);
    berth_allocator_release(cache);
}

/* The same where the device itself is full. */
static void test_device_is_asked_again_when_memory_has_come_back(void **state)
{
    (void)state;
    berth_device device;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *cache = NULL;
    gate g = GATE_INIT;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    berth_virtual_set_memory_limit(device, MIB);
    options.device = device;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    give(cache, take(cache, MIB));
    helper first = {.cache = cache}, second = {.cache = cache, .size = MIB / 2};
    atomic_store(&release_gate, &g);
    pthread_create(&first.id, NULL, run_empty, &first);
    gate_wait_reached(&g);
    pthread_create(&second.id, NULL, run_allocate, &second);
    for (int i = 0; i < 1000; i++) {
        assert_false(atomic_load(&second.done));
        sched_yield();
    }
    gate_open(&g);
    pthread_join(first.id, NULL);
    pthread_join(second.id, NULL);
    assert_int_equal(second.status, BERTH_OK);
    give(cache, second.block);
    berth_allocator_release(cache);
    berth_virtual_destroy(device);
}

/* Four threads with different sizes at 1.2 times of what they have live together, while a fifth trims: every
 * request is served. */
enum { eaters = 4, eats = 3000 };

typedef struct dinner {
    berth_allocator *cache;
    _Atomic uint32_t refused;
    _Atomic int left;
    _Atomic int next;
} dinner;

static size_t portion(int eater, int round)
{
    return (size_t)(eater + 1) * 40 * KIB + (size_t)(round % 7) * 8 * KIB;
}

static void *eat(void *context)
{
    dinner *d = context;
    int me = atomic_fetch_add(&d->next, 1);
    for (int i = 0; i < eats; i++) {
        void *p = NULL;
        if (berth_allocate(d->cache, portion(me, i), BERTH_ALIGNMENT, NULL, &p) != BERTH_OK)
            atomic_fetch_add(&d->refused, 1);
        else
            berth_deallocate(d->cache, p, 0, NULL);
    }
    atomic_fetch_sub(&d->left, 1);
    return NULL;
}

static void *trim_meanwhile(void *context)
{
    dinner *d = context;
    while (atomic_load(&d->left))
        berth_trim(d->cache, 64 * KIB, NULL);
    return NULL;
}

static void test_nothing_is_refused_above_the_demand(void **state)
{
    (void)state;
    size_t demand = 0;
    for (int i = 0; i < eaters; i++)
        demand += berth_host_cache_block_size(0, portion(i, 6));
    dinner d = {.cache = new_cache(0, demand + demand / 5), .left = eaters};
    pthread_t ids[eaters + 1];
    for (int i = 0; i <= eaters; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, i < eaters ? eat : trim_meanwhile, &d), 0);
    for (int i = 0; i <= eaters; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(d.refused, 0);
    assert_true(stats_of(d.cache).max_bytes_reserved <= demand + demand / 5);
    berth_allocator_release(d.cache);
}

/* ---- Hard limits and short runs ---------------------------------------------------------------------- */

static void test_what_fits_is_served(void **state)
{
    (void)state;
    size_t page = (size_t)__real_sysconf(_SC_PAGESIZE);
    uint64_t limit = 2 * page + 1808;
    berth_allocator *cache = new_cache(0, limit);
    void *blocks[256] = {0}, *p = NULL;
    size_t count = 2 * page / 1024;
    for (size_t i = 0; i < count; i++)
        blocks[i] = take(cache, 1000);
    assert_int_equal(stats_of(cache).bytes_reserved, 2 * page);
    assert_int_equal(berth_allocate(cache, 1000, 64, NULL, &p), BERTH_OVER_BUDGET);
    /* Another class has room once a run is idle. */
    for (size_t i = 0; i < count; i++)
        give(cache, blocks[i]);
    p = take(cache, page + 100);
    assert_true(stats_of(cache).bytes_reserved <= limit);
    give(cache, p);
    /* A size that leaves something over at the end of its page. */
    p = take(cache, 1100);
    berth_host_cache_figures f = figures(cache);
    assert_int_equal(f.live_bytes, berth_host_cache_block_size(0, 1100));
    assert_int_equal(f.live_bytes + f.waiting_bytes + f.idle_bytes, stats_of(cache).bytes_reserved);
    assert_true(stats_of(cache).bytes_reserved <= limit);
    give(cache, p);
    size_t released = 0;
    assert_int_equal(berth_host_cache_empty(cache, &released), BERTH_OK);
    assert_int_equal(stats_of(cache).bytes_reserved, 0);
    berth_allocator_release(cache);
}

/* Every limit from one page on serves every size whose pages fit. */
static void test_every_limit_serves_what_fits(void **state)
{
    (void)state;
    size_t page = (size_t)__real_sysconf(_SC_PAGESIZE);
    for (size_t limit = page; limit <= 9 * page; limit += page / 2 + 100) {
        berth_allocator *cache = new_cache(0, limit);
        for (size_t size = 64; size <= 10 * page; size += size / 3 + 40) {
            void *p = NULL;
            size_t pages = berth__align_up(berth_host_cache_block_size(0, size), page);
            berth_status status = berth_allocate(cache, size, 64, NULL, &p);
            assert_int_equal(status, pages <= limit ? BERTH_OK : BERTH_OVER_BUDGET);
            assert_true(stats_of(cache).bytes_reserved <= limit);
            give(cache, p);
        }
        berth_allocator_release(cache);
    }
}

/* A limit lowered below what is taken: what is idle goes back before the next request is measured. */
static void test_a_lowered_limit(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, 0);
    void *a = take(cache, MIB), *b = take(cache, MIB), *p = NULL;
    give(cache, b);
    assert_int_equal(berth_host_cache_set_limits(cache, 0, MIB + 512 * KIB), BERTH_OK);
    assert_int_equal(berth_allocate(cache, 768 * KIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    p = take(cache, 512 * KIB);
    assert_int_equal(stats_of(cache).bytes_reserved, MIB + 512 * KIB);
    give(cache, p);
    give(cache, a);
    berth_allocator_release(cache);
}

/* ---- Pages of 64 KiB --------------------------------------------------------------------------------- */

static bool count_block(void *context, const berth_block *block)
{
    (void)block;
    ++*(size_t *)context;
    return true;
}

static void test_pages_of_64_kib(void **state)
{
    (void)state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    assert_int_equal(berth_virtual_create(&options.device), BERTH_OK);
    page_bytes = 65536;
    for (size_t size = 1; size <= 300000; size += size / 2 + 63) {
        berth_allocator *cache = NULL;
        assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
        unsigned char *p = take(cache, size);
        memset(p, 1, size);
        /* What is locked is what is counted: whole pages. */
        assert_int_equal(stats_of(cache).bytes_reserved % 65536, 0);
        berth_host_cache_figures f = figures(cache);
        assert_int_equal(f.live_bytes + f.idle_bytes, stats_of(cache).bytes_reserved);
        /* Every block of the run is found by every address in it. */
        void *more[40];
        for (size_t i = 0; i < BERTH_COUNT_OF(more); i++) {
            more[i] = take(cache, size);
            assert_int_equal(berth_allocator_owns(cache, (char *)more[i] + size - 1), BERTH_OK);
        }
        size_t blocks = 0;
        assert_int_equal(berth_snapshot(cache, count_block, &blocks), BERTH_OK);
        assert_true(blocks >= BERTH_COUNT_OF(more) + 1);
        for (size_t i = 0; i < BERTH_COUNT_OF(more); i++)
            give(cache, more[i]);
        give(cache, p);
        assert_int_equal(berth_deallocate(cache, p, 0, NULL), BERTH_BAD_FREE);
        berth_host_cache_empty(cache, NULL);
        assert_int_equal(stats_of(cache).bytes_reserved, 0);
        berth_allocator_release(cache);
    }
    page_bytes = 0;
    berth_virtual_destroy(options.device);
}

/* ---- Words of a refusal ------------------------------------------------------------------------------ */

static void test_words_of_a_refusal(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, 3 * MIB);
    berth_request loader = BERTH_REQUEST_INIT;
    loader.label = "loader";
    berth_request encoder = BERTH_REQUEST_INIT;
    encoder.label = "encoder";
    void *a = NULL, *b = NULL, *p = NULL;
    /* More than all of it: nothing that could be freed is spoken of. */
    assert_int_equal(berth_allocate(cache, 8 * MIB, 64, &loader, &p), BERTH_OVER_BUDGET);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "loader asked for 8 MiB (8388608 bytes)"));
    assert_non_null(strstr(words, "3 MiB (3145728 bytes)"));
    assert_non_null(strstr(words, "raise"));
    assert_null(strstr(words, "ree blocks"));
    assert_null(strstr(words, "streams"));
    /* Something is live, nothing waits. */
    assert_int_equal(berth_allocate(cache, 2 * MIB, 64, &encoder, &a), BERTH_OK);
    assert_int_equal(berth_allocate(cache, 512 * KIB, 64, &loader, &b), BERTH_OK);
    assert_int_equal(berth_allocate(cache, MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    words = berth_last_error()->message;
    assert_non_null(strstr(words, "a request without a label asked for 1 MiB (1048576 bytes)"));
    assert_non_null(strstr(words, "2.5 MiB (2621440 bytes) are live"));
    assert_non_null(strstr(words, "encoder holds the most, 2 MiB (2097152 bytes)"));
    assert_non_null(strstr(words, "Free blocks"));
    assert_null(strstr(words, "streams"));
    give(cache, b);
    give(cache, a);
    berth_allocator_release(cache);
}

static void test_words_when_blocks_wait(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(0, MIB);
    berth_stream *stream = NULL;
    gate g = GATE_INIT;
    void *p = take(cache, MIB);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, p, 0, stream), BERTH_OK);
    assert_int_equal(berth_allocate(cache, MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "0 bytes are live, 1 MiB (1048576 bytes) wait for streams"));
    assert_non_null(strstr(words, "Let streams finish"));
    assert_null(strstr(words, "ree blocks"));
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    berth_allocator_release(cache);
}

static void test_words_when_the_device_has_no_more(void **state)
{
    (void)state;
    berth_device device;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *cache = NULL;
    berth_request loader = BERTH_REQUEST_INIT;
    loader.label = "loader";
    void *p = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    berth_virtual_set_memory_limit(device, MIB);
    options.device = device;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    assert_int_not_equal(berth_allocate(cache, 2 * MIB, 64, &loader, &p), BERTH_OK);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "loader asked for 2 MiB (2097152 bytes)"));
    berth_allocator_release(cache);
    berth_virtual_destroy(device);
}

/* ---- Soft limits -------------------------------------------------------------------------------------- */

static void *free_twenty_and_go_idle(void *context)
{
    berth_allocator *cache = context;
    void *blocks[20] = {0};
    uint64_t most_idle = 0;
    for (int i = 0; i < 20; i++)
        berth_allocate(cache, 8 * MIB, 64, NULL, &blocks[i]);
    for (int i = 0; i < 20; i++) {
        berth_host_cache_figures f = {.struct_size = sizeof f};
        berth_deallocate(cache, blocks[i], 0, NULL);
        berth_host_cache_figures_get(cache, &f); /* asking in between changes nothing */
        most_idle = f.idle_bytes > most_idle ? f.idle_bytes : most_idle;
    }
    return most_idle <= MIB ? NULL : context;
}

static void test_soft_limit_of_a_thread_that_goes_idle(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(MIB, 0);
    pthread_t id;
    pthread_create(&id, NULL, free_twenty_and_go_idle, cache);
    void *failed = NULL;
    pthread_join(id, &failed);
    assert_null(failed);
    assert_true(figures(cache).idle_bytes <= MIB);
    berth_allocator_release(cache);
}

/* Idle blocks between live ones cannot go back. That must not let others stay that can. */
static void test_soft_limit_after_what_could_not_go_back(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache(64 * KIB, 0);
    enum { many = 2048 };
    void *small[many];
    for (int i = 0; i < many; i++)
        small[i] = take(cache, 1024);
    for (int i = 0; i < many; i += 2)
        give(cache, small[i]); /* 1 MiB between live blocks */
    for (int i = 0; i < many; i += 2)
        small[i] = take(cache, 1024);
    give(cache, take(cache, 512 * KIB));
    assert_true(figures(cache).idle_bytes <= 64 * KIB);
    for (int i = 0; i < many; i++)
        give(cache, small[i]);
    assert_true(figures(cache).idle_bytes <= 64 * KIB);
    berth_allocator_release(cache);
}

/* An allocation that takes back what a stream has let go of keeps the limit too. */
static void test_soft_limit_when_an_allocation_collects(void **state)
{
    (void)state;
    berth_device device;
    berth_stream *stream = NULL;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *cache = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    options.device = device;
    options.soft_limit_bytes = MIB;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = take(cache, MIB);
    for (int i = 0; i < 8; i++)
        assert_int_equal(berth_deallocate(cache, blocks[i], 0, stream), BERTH_OK);
    berth_virtual_run_all(device);
    void *p = take(cache, MIB);
    assert_true(figures(cache).idle_bytes <= MIB);
    give(cache, p);
    berth_allocator_release(cache);
    berth_stream_destroy(stream);
    berth_virtual_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_waits_for_memory_on_its_way),
        cmocka_unit_test(test_empty_waits_for_another_collection),
        cmocka_unit_test(test_nothing_is_refused_while_memory_is_on_its_way),
        cmocka_unit_test(test_device_is_asked_again_when_memory_has_come_back),
        cmocka_unit_test(test_nothing_is_refused_above_the_demand),
        cmocka_unit_test(test_what_fits_is_served),
        cmocka_unit_test(test_every_limit_serves_what_fits),
        cmocka_unit_test(test_a_lowered_limit),
        cmocka_unit_test(test_pages_of_64_kib),
        cmocka_unit_test(test_words_of_a_refusal),
        cmocka_unit_test(test_words_when_blocks_wait),
        cmocka_unit_test(test_words_when_the_device_has_no_more),
        cmocka_unit_test(test_soft_limit_of_a_thread_that_goes_idle),
        cmocka_unit_test(test_soft_limit_after_what_could_not_go_back),
        cmocka_unit_test(test_soft_limit_when_an_allocation_collects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

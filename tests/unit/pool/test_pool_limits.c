/* What a pool may keep: the soft limit whoever frees and however, thread caches in bytes, decay of what idle threads
 * have, and the slack after requests that were refused. */
#include <stdatomic.h>

#include "berth/virtual.h"
#include "core/allocator.h"
#include "pool/pool.h"
#include "unit/pool/pool_test.h"

enum { COUNT = 20, PAGE_SLACK = 64 << 10 };

static uint64_t idle_bytes(berth_allocator *pool)
{
    berth_stats stats = stats_of(pool);
    return stats.bytes_reserved - stats.bytes_in_use;
}

struct freer {
    berth_allocator *pool;
    size_t size_bytes, count;
    void *blocks[4096];
    bool asks; /* for figures between the frees */
};

static void *free_all(void *context)
{
    struct freer *f = context;
    for (size_t i = 0; i < f->count; i++) {
        berth_deallocate(f->pool, f->blocks[i], 0, NULL);
        berth_stats stats = {.struct_size = sizeof stats};
        if (f->asks)
            berth_stats_get(f->pool, &stats);
    }
    return NULL;
}

static void free_on_a_thread(berth_allocator *pool, size_t size_bytes, size_t count, bool asks)
{
    static struct freer f;
    f = (struct freer){.pool = pool, .size_bytes = size_bytes, .count = count, .asks = asks};
    for (size_t i = 0; i < count; i++)
        f.blocks[i] = take(pool, size_bytes);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_all, &f), 0);
    pthread_join(thread, NULL);
}

static void a_soft_limit_holds_whatever_is_freed(void **state)
{
    (void)state;
    static const size_t sizes[] = {256, 1000, 5000, 16384, 60000, MIB, 8 * MIB, 64 * MIB};
    for (size_t s = 0; s < BERTH_COUNT_OF(sizes); s++)
        for (int asks = 0; asks <= 1; asks++) {
            berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
            options.soft_limit_bytes = MIB;
            berth_allocator *pool = make(&options);
            free_on_a_thread(pool, sizes[s], sizes[s] < MIB ? 4096 : COUNT, asks);
            assert_in_range(idle_bytes(pool), 0, MIB + PAGE_SLACK);
            /* and when this thread does it, with what it had before */
            void *kept = take(pool, 300);
            give(pool, take(pool, 3 * sizes[s]));
            give(pool, kept);
            assert_in_range(idle_bytes(pool), 0, MIB + PAGE_SLACK);
            berth_allocator_release(pool);
        }
}

static void a_soft_limit_holds_on_every_thread_together(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.soft_limit_bytes = 8 * MIB;
    berth_allocator *pool = make(&options);
    for (int thread = 0; thread < 8; thread++)
        free_on_a_thread(pool, (size_t)(30 + thread) << 10, 200, false);
    assert_in_range(idle_bytes(pool), 0, 8 * MIB + PAGE_SLACK);
    berth_allocator_release(pool);
}

/* Of four blocks of 200 MiB a thread cache has room for one, also after a block that is larger was in it. */
static void keep_one_of_four(berth_allocator *pool, size_t larger_bytes)
{
    void *blocks[4], *larger = NULL;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = take(pool, 200 * MIB);
    if (larger_bytes) {
        give(pool, larger = take(pool, larger_bytes));
        assert_ptr_equal(take(pool, larger_bytes), larger);
    }
    for (size_t i = 0; i < 4; i++)
        give(pool, blocks[i]);
    assert_ptr_equal(take(pool, 200 * MIB),
                     blocks[3]); /* from the thread cache: the arena would give the lowest */
    assert_ptr_equal(take(pool, 200 * MIB), blocks[0]);
    give(pool, blocks[3]);
    give(pool, blocks[0]);
    give(pool, larger);
}

/* What an idle thread keeps in its thread cache is bounded in bytes, and one block of any size is kept. */
static void thread_caches_are_bounded_in_bytes(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    keep_one_of_four(pool, 0);
    void *large = take(pool, 1024 * MIB), *low = take(pool, MIB);
    give(pool, large);
    assert_ptr_equal(take(pool, 1024 * MIB), large);
    give(pool, large);
    give(pool, low);
    keep_one_of_four(pool, 1024 * MIB);
    berth_allocator_release(pool);
}

static uint64_t read_clock(void *context)
{
    return atomic_load((_Atomic uint64_t *)context);
}

/* Small blocks of more sizes than a piece has room for, with those that the thread keeps: the pool grows by some pieces, and then
 * all come from the thread cache, where every few of them had all thread caches emptied. */
static void many_small_sizes_come_to_rest(void **state)
{
    (void)state;
    enum { SIZES = 37, LIVE = 8, ROUND = SIZES * LIVE };
    _Atomic uint64_t now = 1000000000;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = read_clock;
    options.clock_context = &now;
    berth_allocator *pool = make(&options);
    const berth__pool *inside = pool->self;
    void *live[LIVE] = {NULL};
    unsigned from_the_arena = 0;
    for (size_t i = 0; i < 20 * ROUND; i++) {
        uint64_t free_before = inside->small.bytes;
        if (live[i % LIVE])
            give(pool, live[i % LIVE]);
        live[i % LIVE] = take(pool, 4096 + 64 * (i % SIZES));
        from_the_arena += i >= 19 * ROUND && inside->small.bytes != free_before;
    }
    assert_int_equal(from_the_arena, 0);
    assert_in_range(stats_of(pool).max_bytes_reserved, LIVE * 4096, MIB);
    for (size_t i = 0; i < LIVE; i++)
        give(pool, live[i]);
    berth_allocator_release(pool);
}

/* Pieces for small blocks stay within the slack where much is live: what a thread keeps is looked at before. */
static void pieces_stay_within_the_slack(void **state)
{
    (void)state;
    enum { LIVE = 600 };
    berth_allocator *pool = make(NULL);
    void *live[LIVE];
    for (size_t i = 0; i < LIVE; i++)
        live[i] = take(pool, 16 * KIB);
    /* every size of a piece in turn, eight of each at once, so that the thread keeps as many as it may */
    for (size_t grains = 1; grains <= 64; grains++) {
        void *few[8];
        for (size_t i = 0; i < 8; i++)
            few[i] = take(pool, grains * 256);
        for (size_t i = 0; i < 8; i++)
            give(pool, few[i]);
    }
    berth_stats stats = stats_of(pool);
    assert_in_range(stats.max_bytes_reserved, LIVE * 16 * KIB, LIVE * 16 * KIB * 5 / 4);
    for (size_t i = 0; i < LIVE; i++)
        give(pool, live[i]);
    berth_allocator_release(pool);
}

static void what_idle_threads_keep_decays(void **state)
{
    (void)state;
    _Atomic uint64_t now = 1000000000;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = read_clock;
    options.clock_context = &now;
    options.decay_ns = 1000;
    berth_allocator *pool = make(&options);
    give(pool, take(pool, 1000));              /* so that this thread need not grow the pool later */
    free_on_a_thread(pool, 8 * MIB, 4, false); /* all in that thread's cache */
    for (int i = 0; i < 64 * 100; i++) {       /* this one finds what it needs in its own */
        atomic_fetch_add(&now, 10);
        give(pool, take(pool, 1000));
    }
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_in_range(stats.bytes_reserved, 0, MIB);
    berth_allocator_release(pool);
}

/* How far the pool grew above the most that was live, on sequences that leave holes. */
static double growth_of(berth_allocator *pool)
{
    uint64_t most = 0;
    void *held[3] = {NULL};
    for (size_t length = 1; length <= 200; length++) {
        size_t i = length % 3;
        if (held[i])
            give(pool, held[i]);
        held[i] = take(pool, length * 40000);
        if (stats_of(pool).bytes_in_use > most)
            most = stats_of(pool).bytes_in_use;
    }
    for (size_t i = 0; i < 3; i++)
        give(pool, held[i]);
    return (double)stats_of(pool).max_bytes_reserved / (double)most;
}

static void a_refused_request_does_not_loosen_the_slack(void **state)
{
    (void)state;
    for (int refuser = 0; refuser < 3; refuser++) {
        berth_device device;
        assert_int_equal(berth_virtual_create(&device), BERTH_OK);
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.compacting = true;
        options.device = device;
        if (refuser == 0)
            options.hard_limit_bytes = 1024 * MIB;
        if (refuser == 1)
            options.reserve_bytes = 1024 * MIB;
        if (refuser == 2)
            berth_virtual_set_memory_limit(device, 1024 * MIB);
        berth_allocator *pool = make(&options);
        void *p = NULL;
        assert_int_not_equal(berth_allocate(pool, 8192 * MIB, 64, NULL, &p), BERTH_OK);
        assert_true(growth_of(pool) <= 1.11);
        berth_allocator_release(pool);
        assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_soft_limit_holds_whatever_is_freed),
        cmocka_unit_test(a_soft_limit_holds_on_every_thread_together),
        cmocka_unit_test(thread_caches_are_bounded_in_bytes),
        cmocka_unit_test(many_small_sizes_come_to_rest),
        cmocka_unit_test(pieces_stay_within_the_slack),
        cmocka_unit_test(what_idle_threads_keep_decays),
        cmocka_unit_test(a_refused_request_does_not_loosen_the_slack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

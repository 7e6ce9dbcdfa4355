/* The plan cache: keys, the bound on bytes, who goes first, and a server that records each shape once. */
#include <pthread.h>

#include "rig.h"

static berth_plan *plan_of(size_t count)
{
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    berth_plan_allocation *a = calloc(count, sizeof *a);
    for (size_t i = 0; i < count; i++) {
        a[i] = (berth_plan_allocation)BERTH_PLAN_ALLOCATION_INIT;
        a[i].size_bytes = 64;
        a[i].freed_at = i + 1;
    }
    assert_int_equal(berth_plan_set(plan, a, count, NULL), BERTH_OK);
    free(a);
    return plan;
}

static berth_plan_cache_stats stats_of(berth_plan_cache *cache)
{
    berth_plan_cache_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_plan_cache_stats_get(cache, &stats), BERTH_OK);
    return stats;
}

static bool has(berth_plan_cache *cache, int key)
{
    berth_plan *plan = NULL;
    berth_status status = berth_plan_cache_get(cache, &key, sizeof key, &plan);
    assert_true(status == BERTH_OK || status == BERTH_NOT_FOUND);
    assert_int_equal(plan != NULL, status == BERTH_OK);
    berth_plan_release(plan);
    return status == BERTH_OK;
}

static void put(berth_plan_cache *cache, int key, berth_plan *plan)
{
    assert_int_equal(berth_plan_cache_put(cache, &key, sizeof key, plan), BERTH_OK);
}

static void test_the_least_recently_used_goes(void **state)
{
    (void)state;
    berth_plan *plan = plan_of(100);
    size_t room = berth_plan_memory_bytes(plan) * 7 / 2; /* three fit */
    berth_plan_cache *cache = NULL;
    assert_int_equal(berth_plan_cache_create(room, &cache), BERTH_OK);
    for (int key = 0; key < 3; key++)
        put(cache, key, plan);
    assert_true(has(cache, 0)); /* now 1 is the oldest */
    put(cache, 3, plan);
    assert_false(has(cache, 1));
    assert_true(has(cache, 0) && has(cache, 2) && has(cache, 3));
    berth_plan_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.plans, 3);
    assert_int_equal(stats.evictions, 1);
    assert_int_equal(stats.hits, 4);
    assert_int_equal(stats.misses, 1);
    assert_true(stats.bytes <= stats.max_bytes);
    put(cache, 3, plan); /* in place of itself */
    assert_int_equal(stats_of(cache).plans, 3);
    assert_int_equal(stats_of(cache).evictions, 1);
    int key = 3;
    assert_int_equal(berth_plan_cache_remove(cache, &key, sizeof key), BERTH_OK);
    assert_int_equal(berth_plan_cache_remove(cache, &key, sizeof key), BERTH_NOT_FOUND);
    assert_int_equal(stats_of(cache).plans, 2);
    berth_plan *large = plan_of(1000);
    assert_int_equal(berth_plan_cache_put(cache, "k", 1, large), BERTH_OVER_BUDGET);
    assert_int_equal(stats_of(cache).plans, 2); /* nobody was thrown out for it */
    berth_plan_cache_destroy(cache);
    berth_plan_release(large);
    berth_plan_release(plan);
}

static void test_keys_are_bytes(void **state)
{
    (void)state;
    berth_plan *a = plan_of(1), *b = plan_of(2), *got = NULL;
    berth_plan_cache *cache = NULL;
    assert_int_equal(berth_plan_cache_create(1 << 20, &cache), BERTH_OK);
    assert_int_equal(berth_plan_cache_put(cache, "ab", 2, a), BERTH_OK);
    assert_int_equal(berth_plan_cache_put(cache, "ab\0", 3, b), BERTH_OK);
    assert_int_equal(berth_plan_cache_put(cache, NULL, 0, b), BERTH_OK);
    assert_int_equal(berth_plan_cache_get(cache, "ab", 2, &got), BERTH_OK);
    assert_ptr_equal(got, a);
    berth_plan_release(got);
    assert_int_equal(berth_plan_cache_get(cache, NULL, 0, &got), BERTH_OK);
    assert_ptr_equal(got, b);
    berth_plan_release(got);
    assert_int_equal(berth_plan_cache_get(cache, NULL, 1, &got), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_plan_cache_put(cache, "x", 1, NULL), BERTH_INVALID_ARGUMENT);
    berth_plan_cache_destroy(cache);
    assert_int_equal(berth_plan_cache_create(0, &cache), BERTH_INVALID_ARGUMENT);
    assert_null(cache);
    berth_plan_cache_destroy(NULL);
    berth_plan_release(a);
    berth_plan_release(b);
}

/* ---- A server --------------------------------------------------------------------------------------------
 */

static void serve(berth_allocator *a, size_t batch)
{
    void *p[10];
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(berth_allocate(a, batch * 64 * (i + 1), 64, NULL, &p[i]), BERTH_OK);
        memset(p[i], (int)i, batch * 64 * (i + 1));
    }
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(berth_deallocate(a, p[i], 0, NULL), BERTH_OK);
}

static void test_five_shapes_are_recorded_once_each(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_plan_cache *cache = NULL;
    assert_int_equal(berth_plan_cache_create(1 << 20, &cache), BERTH_OK);
    int recorded = 0, replayed = 0;
    for (int request = 0; request < 50; request++) {
        size_t batch = 1 + (size_t)(request * 7 % 5);
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(berth_cached_begin(r.planned, cache, &batch, sizeof batch, NULL), BERTH_OK);
        recorded += berth_run_current()->kind == BERTH_RUN_RECORD;
        serve(r.planned, batch);
        assert_int_equal(berth_cached_end(r.planned, &report), BERTH_OK);
        replayed += report.from_plan == 10;
        assert_int_equal(report.by_fallback, 0);
    }
    assert_int_equal(recorded, 5);
    assert_int_equal(replayed, 45);
    assert_int_equal(stats_of(cache).plans, 5);
    assert_int_equal(berth_plan_count(r.plan), 0); /* the allocator's own plan is not touched */
    berth_plan_cache_destroy(cache);
    rig_end(&r);
}

typedef struct server {
    rig *r;
    berth_plan_cache *cache;
} server;

static void *serve_many(void *context)
{
    server *s = context;
    for (int request = 0; request < 100; request++) {
        size_t batch = 1 + (size_t)(request % 5);
        assert_int_equal(berth_cached_begin(s->r->planned, s->cache, &batch, sizeof batch, NULL), BERTH_OK);
        serve(s->r->planned, batch);
        assert_int_equal(berth_cached_end(s->r->planned, NULL), BERTH_OK);
    }
    return NULL;
}

static void test_threads_share_a_small_cache(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    server s = {&r, NULL};
    assert_int_equal(berth_plan_cache_create(6000, &s.cache),
                     BERTH_OK); /* not enough for all: plans come and go */
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, serve_many, &s), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    assert_true(stats_of(s.cache).bytes <= 6000);
    assert_true(stats_of(s.cache).plans > 0);
    berth_plan_cache_destroy(s.cache);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_recently_used_goes),
        cmocka_unit_test(test_keys_are_bytes),
        cmocka_unit_test(test_five_shapes_are_recorded_once_each),
        cmocka_unit_test(test_threads_share_a_small_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

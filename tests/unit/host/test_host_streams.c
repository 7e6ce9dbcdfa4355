/* The host cache and streams, on virtual time: no reuse before every stream has passed, events that come late, fail or
 * get lost. [H2] [H3] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/log.h"
#include "berth/virtual.h"
#include "device/device.h"
#include "host_test.h"

static void test_no_reuse_before_completion(void **state)
{
    fixture *f = *state;
    void *p = take(f, 64 * KIB);
    enqueue(f->streams[0]);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_OK);
    /* Work that comes after the record and before the free counts too. */
    enqueue(f->streams[0]);
    give(f, p);
    assert_int_equal(berth_virtual_step(f->streams[0]), BERTH_OK);
    void *q = take(f, 64 * KIB);
    assert_ptr_not_equal(q, p);
    berth_virtual_run(f->streams[0]);
    assert_ptr_equal(take(f, 64 * KIB), p);
    give(f, p);
    give(f, q);
}

static void test_two_streams_hold_one_block(void **state)
{
    fixture *f = *state;
    for (int first = 0; first < 2; first++) {
        void *p = take(f, 64 * KIB);
        for (int i = 0; i < 2; i++) {
            enqueue(f->streams[i]);
            assert_int_equal(berth_record_use(f->cache, p, f->streams[i]), BERTH_OK);
        }
        give(f, p);
        berth_virtual_run(f->streams[first]);
        size_t collected = 7;
        assert_int_equal(berth_host_cache_collect(f->cache, &collected), BERTH_OK);
        assert_int_equal(collected, 0);
        assert_int_equal(figures(f).waiting_blocks, 1);
        berth_virtual_run(f->streams[1 - first]);
        assert_int_equal(berth_host_cache_collect(f->cache, &collected), BERTH_OK);
        assert_int_equal(collected, 1);
        assert_int_equal(figures(f).waiting_blocks, 0);
    }
}

/* Mended: there an unready event at the head of one queue held everything. */
static void test_slow_stream_holds_back_only_its_own(void **state)
{
    fixture *f = *state;
    void *slow = take(f, 64 * KIB), *fast = take(f, 64 * KIB);
    enqueue(f->streams[0]);
    berth_record_use(f->cache, slow, f->streams[0]);
    berth_record_use(f->cache, fast, f->streams[1]);
    give(f, slow);
    give(f, fast);
    assert_ptr_equal(take(f, 64 * KIB), fast);
    assert_int_equal(figures(f).device_allocations, 2);
    give(f, fast);
    berth_virtual_run_all(f->device);
}

static void test_one_event_per_stream(void **state)
{
    fixture *f = *state;
    void *p = take(f, 64 * KIB);
    for (int i = 0; i < 5; i++)
        assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_OK);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[1]), BERTH_OK);
    assert_int_equal(berth_virtual_calls(f->device, BERTH_VIRTUAL_EVENT_RECORD), 0);
    give(f, p);
    assert_int_equal(berth_virtual_calls(f->device, BERTH_VIRTUAL_EVENT_RECORD), 2);
    assert_int_equal(figures(f).events_recorded, 2);
    /* Pooled: the same pair again makes no new event. */
    for (int i = 0; i < 100; i++) {
        p = take(f, 64 * KIB);
        berth_record_use(f->cache, p, f->streams[0]);
        berth_record_use(f->cache, p, f->streams[1]);
        give(f, p);
        berth_host_cache_collect(f->cache, NULL);
    }
    assert_true(berth_virtual_calls(f->device, BERTH_VIRTUAL_EVENT_CREATE) <= 3);
}

/* Mended: there a pointer into a block (a slice, an alias) was not found. */
static void test_interior_pointers(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {200, 5 * KIB, 70 * KIB, 2 * MIB};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++) {
        char *p = take(f, sizes[i]);
        enqueue(f->streams[0]);
        assert_int_equal(berth_record_use(f->cache, p + sizes[i] - 1, f->streams[0]), BERTH_OK);
        give(f, p);
        assert_int_equal(figures(f).waiting_blocks, 1);
        berth_virtual_run_all(f->device);
        berth_host_cache_collect(f->cache, NULL);
    }
}

static void test_unknown_pointers(void **state)
{
    fixture *f = *state;
    int local = 0;
    char *p = take(f, 40 * KIB);
    assert_int_equal(berth_record_use(f->cache, &local, f->streams[0]), BERTH_NOT_FOUND);
    assert_int_equal(berth_record_use(f->cache, p - 1, f->streams[0]), BERTH_NOT_FOUND);
    assert_int_equal(berth_record_use(f->cache, p + 40 * KIB, f->streams[0]), BERTH_NOT_FOUND);
    assert_int_equal(figures(f).streams <= 1, 1);
    give(f, p);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_NOT_FOUND);
    assert_int_equal(berth_virtual_calls(f->device, BERTH_VIRTUAL_EVENT_CREATE), 0);
    assert_ptr_equal(take(f, 40 * KIB), p);
    give(f, p);
}

static void test_streams_in_the_calls_themselves(void **state)
{
    fixture *f = *state;
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = f->streams[0];
    void *p = NULL;
    assert_int_equal(berth_allocate(f->cache, 4096, 64, &request, &p), BERTH_OK);
    enqueue(f->streams[0]);
    enqueue(f->streams[1]);
    assert_int_equal(berth_deallocate(f->cache, p, 4096, f->streams[1]), BERTH_OK);
    berth_virtual_run(f->streams[0]);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run(f->streams[1]);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).waiting_blocks, 0);
}

/* A stream that never moves again costs what waits on it, and nothing more. */
static void test_one_stream_stuck_for_ever(void **state)
{
    fixture *f = *state;
    enqueue(f->streams[0]);
    for (int i = 0; i < 20; i++) {
        void *p = take(f, 64 * KIB);
        berth_record_use(f->cache, p, f->streams[0]);
        give(f, p);
    }
    uint64_t reserved = berth_virtual_bytes_in_use(f->device);
    for (int i = 0; i < 5000; i++) {
        void *p = take(f, 64 * KIB);
        enqueue(f->streams[1 + i % 2]);
        berth_record_use(f->cache, p, f->streams[1 + i % 2]);
        give(f, p);
        berth_virtual_run(f->streams[1 + i % 2]);
    }
    assert_true(berth_virtual_bytes_in_use(f->device) <= reserved + 4 * 64 * KIB);
    assert_int_equal(figures(f).waiting_blocks >= 20, 1);
    berth_virtual_run_all(f->device);
}

static void test_thousands_of_streams(void **state)
{
    fixture *f = *state;
    enum { many = 3000 };
    berth_stream **streams = calloc(many, sizeof *streams);
    for (int i = 0; i < many; i++) {
        assert_int_equal(berth_stream_create(f->device, &streams[i]), BERTH_OK);
        enqueue(streams[i]);
        void *p = take(f, 4096);
        assert_int_equal(berth_record_use(f->cache, p, streams[i]), BERTH_OK);
        give(f, p);
    }
    assert_int_equal(figures(f).streams, many);
    assert_int_equal(figures(f).waiting_blocks, many);
    /* Every second one is destroyed with work under way: that still runs, and its block comes back. */
    for (int i = 0; i < many; i += 2)
        berth_stream_destroy(streams[i]);
    berth_virtual_run_all(f->device);
    size_t collected = 0;
    assert_int_equal(berth_host_cache_collect(f->cache, &collected), BERTH_OK);
    assert_int_equal(collected, many);
    assert_int_equal(figures(f).streams, many / 2);
    for (int i = 1; i < many; i += 2)
        berth_stream_destroy(streams[i]);
    assert_int_equal(berth_host_cache_empty(f->cache, NULL), BERTH_OK);
    assert_int_equal(figures(f).streams, 0);
    free(streams);
}

/* Two caches have met a stream that its user has destroyed: neither waits for the other to let go of it. */
static void test_two_caches_let_go_of_a_stream(void **state)
{
    fixture *f = *state;
    fixture other = {0};
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    assert_int_equal(berth_virtual_create(&other.device),
                     BERTH_OK); /* figures() compares with what a device gave */
    options.device = other.device;
    assert_int_equal(berth_host_cache_create(&options, &other.cache), BERTH_OK);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(f->device, &stream), BERTH_OK);
    fixture *both[] = {f, &other};
    for (int i = 0; i < 2; i++) {
        enqueue(stream);
        void *p = take(both[i], 4096);
        assert_int_equal(berth_record_use(both[i]->cache, p, stream), BERTH_OK);
        give(both[i], p);
    }
    berth_stream_destroy(stream);
    for (int i = 0; i < 2; i++) { /* its work is under way */
        assert_int_equal(berth_host_cache_collect(both[i]->cache, NULL), BERTH_OK);
        assert_int_equal(figures(both[i]).streams, 1);
    }
    berth_virtual_run_all(f->device);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(berth_host_cache_collect(both[i]->cache, NULL), BERTH_OK);
        assert_int_equal(figures(both[i]).streams, 0);
    }
    berth_allocator_release(other.cache);
    berth_virtual_destroy(other.device);
}

/* A stream that its user has destroyed and somebody else holds (a replay's scope does) comes again, after the cache
 * has let go of it and others took its place: what it uses still waits for it, and for no other. */
static void test_stream_that_comes_again(void **state)
{
    fixture *f = *state;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(f->device, &stream), BERTH_OK);
    berth__stream_retain(stream);
    void *p = take(f, 4096);
    assert_int_equal(berth_record_use(f->cache, p, stream), BERTH_OK);
    give(f, p);
    berth_stream_destroy(stream);
    assert_int_equal(berth_host_cache_collect(f->cache, NULL), BERTH_OK);
    assert_int_equal(figures(f).streams, 0);
    p = take(f, 4096);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_OK);
    give(f, p);
    assert_int_equal(figures(f).streams, 1);
    p = take(f, 8192);
    enqueue(stream);
    assert_int_equal(berth_record_use(f->cache, p, stream), BERTH_OK);
    assert_int_equal(figures(f).streams, 2);
    give(f, p);
    assert_int_equal(berth_host_cache_collect(f->cache, NULL), BERTH_OK);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run(stream);
    assert_int_equal(berth_host_cache_collect(f->cache, NULL), BERTH_OK);
    assert_int_equal(figures(f).waiting_blocks, 0);
    assert_int_equal(figures(f).streams, 1);
    berth__stream_release(stream);
}

/* The stream is gone before the block that it used is freed: the free still waits for its work. */
static void test_stream_destroyed_before_the_free(void **state)
{
    fixture *f = *state;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(f->device, &stream), BERTH_OK);
    void *p = take(f, 64 * KIB);
    enqueue(stream);
    assert_int_equal(berth_record_use(f->cache, p, stream), BERTH_OK);
    berth_stream_destroy(stream);
    berth_host_cache_collect(f->cache, NULL); /* must not forget a stream that a live block names */
    give(f, p);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).waiting_blocks, 0);
    assert_int_equal(figures(f).streams, 0);
}

static void test_late_events(void **state)
{
    fixture *f = *state;
    void *p = take(f, 64 * KIB);
    enqueue(f->streams[0]);
    berth_record_use(f->cache, p, f->streams[0]);
    give(f, p);
    berth_virtual_set_late(f->streams[0], true);
    berth_virtual_run(f->streams[0]);
    void *q = take(f, 64 * KIB);
    assert_ptr_not_equal(q, p);
    berth_virtual_deliver(f->streams[0]);
    assert_ptr_equal(take(f, 64 * KIB), p);
    give(f, p);
    give(f, q);
}

/* An event that got lost is answered for by a later one of its stream, even if the stream never rests. */
static void test_lost_events(void **state)
{
    fixture *f = *state;
    berth_virtual_lose_events(f->streams[0], 3);
    for (int i = 0; i < 3; i++) {
        void *p = take(f, 64 * KIB);
        enqueue(f->streams[0]);
        berth_record_use(f->cache, p, f->streams[0]);
        give(f, p);
    }
    for (int i = 0; i < 200; i++) {
        void *p = take(f, 64 * KIB);
        enqueue(f->streams[0]);
        berth_record_use(f->cache, p, f->streams[0]);
        give(f, p);
        while (berth_virtual_pending(f->streams[0]) > 2)
            berth_virtual_step(f->streams[0]);
        berth_host_cache_collect(f->cache, NULL);
    }
    assert_true(figures(f).waiting_blocks <= 40);
    assert_true(figures(f).device_allocations <= 45);
    berth_virtual_run_all(f->device);
}

/* Events that cannot be made or recorded: the stream itself is asked instead, and nothing is reused early. */
static void test_failing_events(void **state)
{
    fixture *f = *state;
    static const berth_virtual_call calls[] = {BERTH_VIRTUAL_EVENT_CREATE, BERTH_VIRTUAL_EVENT_RECORD,
                                               BERTH_VIRTUAL_EVENT_QUERY};
    for (size_t i = 0; i < BERTH_COUNT_OF(calls); i++) {
        berth_virtual_fail(f->device, calls[i], 1, BERTH_DEVICE_ERROR, true);
        void *p = take(f, 64 * KIB);
        enqueue(f->streams[0]);
        berth_record_use(f->cache, p, f->streams[0]);
        give(f, p);
        berth_host_cache_collect(f->cache, NULL);
        assert_int_equal(figures(f).waiting_blocks, 1);
        berth_virtual_run_all(f->device);
        berth_host_cache_collect(f->cache, NULL);
        assert_int_equal(figures(f).waiting_blocks, 0);
        berth_virtual_fail(f->device, calls[i], 0, BERTH_OK, false);
        berth_host_cache_empty(f->cache, NULL);
    }
}

int main(void)
{
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    const struct CMUnitTest tests[] = {
        TEST(test_no_reuse_before_completion),
        TEST(test_two_streams_hold_one_block),
        TEST(test_slow_stream_holds_back_only_its_own),
        TEST(test_one_event_per_stream),
        TEST(test_interior_pointers),
        TEST(test_unknown_pointers),
        TEST(test_streams_in_the_calls_themselves),
        TEST(test_one_stream_stuck_for_ever),
        TEST(test_thousands_of_streams),
        TEST(test_two_caches_let_go_of_a_stream),
        TEST(test_stream_that_comes_again),
        TEST(test_stream_destroyed_before_the_free),
        TEST(test_late_events),
        TEST(test_lost_events),
        TEST(test_failing_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

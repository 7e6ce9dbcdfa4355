/* The pool and streams, on virtual time: no block is reused before its streams have passed the free, and none
 * is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "berth/pool.h"
#include "berth/virtual.h"
#include "pool/pool.h"

#define MIB ((size_t)1 << 20)

struct world {
    berth_device device;
    berth_stream *a, *b, *c;
    berth_allocator *pool;
};

static void world_begin(struct world *w, uint64_t hard_limit_bytes)
{
    assert_int_equal(berth_virtual_create(&w->device), BERTH_OK);
    assert_int_equal(berth_stream_create(w->device, &w->a), BERTH_OK);
    assert_int_equal(berth_stream_create(w->device, &w->b), BERTH_OK);
    assert_int_equal(berth_stream_create(w->device, &w->c), BERTH_OK);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = w->device;
    options.hard_limit_bytes = hard_limit_bytes;
    assert_int_equal(berth_pool_create(&options, &w->pool), BERTH_OK);
}

static void world_end(struct world *w)
{
    berth_allocator_release(w->pool);
    assert_int_equal(berth_virtual_bytes_in_use(w->device), 0);
    berth_stream_destroy(w->a);
    berth_stream_destroy(w->b);
    berth_stream_destroy(w->c);
    assert_int_equal(berth_virtual_destroy(w->device), BERTH_OK);
}

static void *take(struct world *w, size_t size_bytes, berth_stream *stream)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = stream;
    void *p = NULL;
    assert_int_equal(berth_allocate(w->pool, size_bytes, 64, &request, &p), BERTH_OK);
    return p;
}

static void give(struct world *w, void *p, berth_stream *stream)
{
    assert_int_equal(berth_deallocate(w->pool, p, 0, stream), BERTH_OK);
}

/* Something that a stream still has to do with the block. */
static void use(struct world *w, void *p, berth_stream *stream)
{
    assert_int_equal(berth_zero(w->device, p, 64, stream, false), BERTH_OK);
}

static uint64_t events_created(const struct world *w)
{
    berth__pool *pool = berth__pool_from(w->pool);
    return atomic_load(&pool->streams.events_created);
}

static void freed_on_a_stream_is_free_for_it_at_once(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    void *p = take(&w, MIB, w.a);
    use(&w, p, w.a);
    give(&w, p, w.a);
    assert_ptr_equal(take(&w, MIB, w.a), p); /* nothing of the stream has run */
    give(&w, p, w.a);
    void *q = take(&w, MIB, w.b);
    assert_ptr_not_equal(q, p);
    give(&w, q, w.b);
    berth_virtual_run(w.a);
    berth_virtual_run(w.b);
    assert_ptr_equal(take(&w, 2 * MIB, w.c), p < q ? p : q); /* both have passed, and are one */
    give(&w, p < q ? p : q, w.c);
    world_end(&w);
}

static void a_block_allocated_on_a_stream_waits_for_it_whoever_frees(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    void *p = take(&w, MIB, w.a);
    use(&w, p, w.a);
    give(&w, p, NULL);
    void *q = take(&w, MIB, NULL);
    assert_ptr_not_equal(q, p);
    berth_virtual_run(w.a);
    assert_ptr_equal(take(&w, MIB, NULL), p);
    give(&w, p, NULL);
    give(&w, q, NULL);
    world_end(&w);
}

static void every_recorded_stream_must_pass(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    char *p = take(&w, MIB, NULL);
    assert_int_equal(berth_record_use(w.pool, p, w.a), BERTH_OK);
    assert_int_equal(berth_record_use(w.pool, p + 5000, w.b), BERTH_OK); /* inside the block */
    assert_int_equal(berth_record_use(w.pool, p, w.a), BERTH_OK);
    int foreign = 0;
    assert_int_equal(berth_record_use(w.pool, &foreign, w.a), BERTH_NOT_FOUND);
    use(&w, p, w.a);
    use(&w, p, w.b);
    uint64_t recorded = berth_virtual_calls(w.device, BERTH_VIRTUAL_EVENT_RECORD);
    give(&w, p, NULL);
    assert_int_equal(berth_virtual_calls(w.device, BERTH_VIRTUAL_EVENT_RECORD), recorded + 2);
    berth_virtual_run(w.a);
    void *q = take(&w, MIB, NULL);
    assert_ptr_not_equal(q, p);
    void *r = take(&w, MIB, w.a); /* not for a stream that is done either */
    assert_ptr_not_equal(r, p);
    berth_virtual_run(w.b);
    assert_ptr_equal(take(&w, MIB, NULL), p);
    give(&w, p, NULL);
    give(&w, q, NULL);
    give(&w, r, NULL);
    world_end(&w);
}

static void one_stuck_stream_holds_nobody_else_back(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    void *stuck = take(&w, MIB, w.a);
    use(&w, stuck, w.a);
    give(&w, stuck, w.a);
    for (int i = 0; i < 1000; i++) {
        void *p = take(&w, MIB, i % 2 ? w.b : w.c);
        use(&w, p, i % 2 ? w.b : w.c);
        give(&w, p, NULL);
        berth_virtual_run(i % 2 ? w.b : w.c);
    }
    berth_stats stats = {.struct_size = sizeof stats};
    berth_stats_get(w.pool, &stats);
    assert_true(stats.max_bytes_reserved <= 4 * MIB);
    world_end(&w);
}

static void a_destroyed_stream_still_completes(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    void *p = take(&w, MIB, w.a);
    use(&w, p, w.a);
    give(&w, p, NULL);
    berth_stream *gone = w.a;
    berth_stream_destroy(gone);
    w.a = NULL;
    void *q = take(&w, MIB, NULL);
    assert_ptr_not_equal(q, p);
    berth_virtual_run_all(w.device);
    assert_ptr_equal(take(&w, MIB, NULL), p);
    give(&w, p, NULL);
    give(&w, q, NULL);
    world_end(&w);
}

static void memory_that_streams_hold_is_waited_for_before_failing(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 2 * MIB);
    void *p = take(&w, 2 * MIB, w.a);
    use(&w, p, w.a);
    give(&w, p, NULL);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    void *q = NULL;
    assert_int_equal(berth_allocate(w.pool, 2 * MIB, 64, &request, &q), BERTH_OVER_BUDGET);
    assert_non_null(strstr(berth_last_error()->message, "2 MiB (2097152 bytes) waiting for streams"));
    q = take(&w, 2 * MIB, NULL); /* waits: on virtual time that lets the stream run */
    assert_ptr_equal(q, p);
    give(&w, q, NULL);
    world_end(&w);
}

static void failing_events_lose_no_block(void **state)
{
    (void)state;
    const berth_virtual_call calls[] = {BERTH_VIRTUAL_EVENT_CREATE, BERTH_VIRTUAL_EVENT_RECORD,
                                        BERTH_VIRTUAL_EVENT_QUERY};
    for (size_t i = 0; i < BERTH_COUNT_OF(calls); i++) {
        struct world w;
        world_begin(&w, 0);
        void *p = take(&w, MIB, w.a);
        use(&w, p, w.a);
        berth_virtual_fail(w.device, calls[i], 1, BERTH_DEVICE_ERROR, false);
        give(&w, p, w.a); /* a stream that cannot be marked is waited for */
        void *q = take(&w, MIB, w.b);
        berth_virtual_run_all(w.device);
        void *r = take(&w, MIB, w.c);
        assert_true(q == p || r == p);
        give(&w, q, NULL);
        give(&w, r, NULL);
        world_end(&w);
    }
}

static void a_lost_event_keeps_its_block_and_the_end_still_comes(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    void *p = take(&w, MIB, w.a);
    use(&w, p, w.a);
    berth_virtual_lose_events(w.a, 1);
    give(&w, p, w.a);
    berth_virtual_run_all(w.device);
    for (int i = 0; i < 3; i++) {
        void *q = take(&w, MIB, NULL);
        assert_ptr_not_equal(q, p);
        give(&w, q, NULL);
    }
    world_end(&w);
}

/* The stream has come to rest, and who waits for memory asks it. */
static void a_lost_event_refuses_nothing_that_fits(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 2 * MIB);
    void *p = take(&w, 2 * MIB, w.a);
    berth_virtual_lose_events(w.a, 1);
    give(&w, p, NULL);
    berth_virtual_run_all(w.device);
    void *q = take(&w, 2 * MIB, w.b);
    assert_ptr_equal(q, p);
    give(&w, q, NULL);
    world_end(&w);
}

/* Pairs on one stream never run short: the frees themselves see what has passed. */
static void pairs_on_one_stream_keep_few_events(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    for (int i = 0; i < 2000; i++) {
        give(&w, take(&w, MIB, w.a), NULL);
        berth_virtual_run(w.a);
    }
    assert_in_range(events_created(&w), 1, 80);
    /* Where nothing passes, all of them are needed, and the frees do not look at all of them every time. */
    for (int i = 0; i < 500; i++) {
        void *p = take(&w, MIB, w.a);
        use(&w, p, w.a);
        give(&w, p, NULL);
    }
    assert_in_range(events_created(&w), 500, 600);
    berth_virtual_run_all(w.device);
    world_end(&w);
}

static void a_device_that_refuses_memory_is_told_apart(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, 0);
    berth_virtual_set_memory_limit(w.device, 3 * MIB);
    void *p = take(&w, 2 * MIB, NULL), *q = NULL;
    assert_int_equal(berth_allocate(w.pool, 2 * MIB, 64, NULL, &q), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(berth_last_error()->message, "too much is live"));
    give(&w, p, NULL);
    q = take(&w, 3 * MIB, NULL);
    give(&w, q, NULL);
    world_end(&w);
}

/* ---- Random operations against a reference that knows which streams may still use a byte ---------- */

enum { BLOCKS = 24, POINTS = 4096 };

struct block {
    void *p;
    size_t size_bytes;
    unsigned streams; /* bit per stream that used it */
};

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A range that streams have not passed: whoever gets it must be that stream itself. */
struct held {
    char *from, *to;
    unsigned streams;
    uint64_t until[3]; /* operations of each stream that must have run */
};

static void random_programs_never_reuse_early(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world w;
        world_begin(&w, 0);
        berth_stream *streams[3] = {w.a, w.b, w.c};
        uint64_t enqueued[3] = {0}, ran[3] = {0}, random = seed;
        static struct held held[POINTS];
        struct block blocks[BLOCKS] = {{0}};
        size_t held_count = 0;
        for (int step = 0; step < 1500; step++) {
            size_t s = next_random(&random) % 3, i = next_random(&random) % BLOCKS;
            struct block *block = &blocks[i];
            uint64_t what = next_random(&random) % 10;
            if (what < 3) {
                if (berth_virtual_step(streams[s]) == BERTH_OK)
                    ran[s] = enqueued[s] - berth_virtual_pending(streams[s]);
            } else if (!block->p) {
                bool on_stream = what % 2;
                block->size_bytes = 64 + next_random(&random) % 300000;
                block->p = take(&w, block->size_bytes, on_stream ? streams[s] : NULL);
                block->streams = on_stream ? 1u << s : 0;
                char *from = block->p, *to = from + block->size_bytes;
                for (size_t h = 0; h < held_count; h++) {
                    unsigned busy = 0;
                    for (size_t k = 0; k < 3; k++)
                        if (held[h].streams >> k & 1 && ran[k] < held[h].until[k])
                            busy |= 1u << k;
                    if (busy && from < held[h].to && held[h].from < to)
                        assert_int_equal(busy & ~(on_stream ? 1u << s : 0u), 0);
                }
            } else if (what < 6) {
                use(&w, block->p, streams[s]);
                enqueued[s] = ran[s] + berth_virtual_pending(streams[s]);
                assert_int_equal(berth_record_use(w.pool, block->p, streams[s]), BERTH_OK);
                block->streams |= 1u << s;
            } else {
                struct held *h = &held[held_count++];
                *h = (struct held){block->p, (char *)block->p + block->size_bytes, block->streams, {0}};
                memcpy(h->until, enqueued, sizeof enqueued);
                give(&w, block->p, what == 9 ? streams[s] : NULL);
                block->p = NULL;
            }
            for (size_t k = 0; k < 3; k++) /* events are operations too */
                enqueued[k] = ran[k] + berth_virtual_pending(streams[k]);
        }
        berth_virtual_run_all(w.device);
        for (size_t i = 0; i < BLOCKS; i++)
            if (blocks[i].p)
                give(&w, blocks[i].p, NULL);
        berth_virtual_run_all(w.device);
        size_t released = 0;
        assert_int_equal(berth_trim(w.pool, 0, &released), BERTH_OK);
        berth_stats stats = {.struct_size = sizeof stats};
        berth_stats_get(w.pool, &stats);
        assert_int_equal(stats.bytes_reserved, 0); /* no block lost */
        world_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_on_a_stream_is_free_for_it_at_once),
        cmocka_unit_test(a_block_allocated_on_a_stream_waits_for_it_whoever_frees),
        cmocka_unit_test(every_recorded_stream_must_pass),
        cmocka_unit_test(one_stuck_stream_holds_nobody_else_back),
        cmocka_unit_test(a_destroyed_stream_still_completes),
        cmocka_unit_test(memory_that_streams_hold_is_waited_for_before_failing),
        cmocka_unit_test(failing_events_lose_no_block),
        cmocka_unit_test(a_lost_event_keeps_its_block_and_the_end_still_comes),
        cmocka_unit_test(a_lost_event_refuses_nothing_that_fits),
        cmocka_unit_test(pairs_on_one_stream_keep_few_events),
        cmocka_unit_test(a_device_that_refuses_memory_is_told_apart),
        cmocka_unit_test(random_programs_never_reuse_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

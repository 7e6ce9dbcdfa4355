/* The tracing decorator: what the program did is in the trace, with label, stack, device, stream and id. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_traced_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static berth_allocator *new_traced(berth_allocator *inner, uint32_t depth)
{
    berth_trace *trace = NULL;
    berth_allocator *a = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &trace), BERTH_OK);
    assert_int_equal(berth_trace_allocator_create(inner, trace, depth, &a), BERTH_OK);
    berth_trace_release(trace);
    return a;
}

static berth_trace_event next(berth_trace_reader *r)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
    return e;
}

static void what_happened_is_told(void **state)
{
    (void)state;
    berth_allocator *system = NULL, *limit = NULL;
    berth_budget *budget = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    assert_int_equal(berth_budget_create(1000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, budget, &limit), BERTH_OK);
    berth_allocator *a = new_traced(limit, 8);
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "weights";
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, &request, &p), BERTH_OK);
    assert_int_equal(berth_allocate(a, 5000, 64, &request, &q), BERTH_OVER_BUDGET);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    uintptr_t was = (uintptr_t)p;
    assert_int_equal(berth_allocate(a, 0, 64, NULL, &q), BERTH_OK); /* nothing is nothing to tell */
    berth_allocator_release(a);
    berth_allocator_release(limit);
    berth_budget_release(budget);
    berth_allocator_release(system);

    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    berth_trace_event e = next(r);
    assert_int_equal(e.kind, BERTH_TRACE_ALLOC);
    assert_int_equal(e.address, was);
    assert_int_equal(e.size_bytes, 100);
    assert_string_equal(berth_trace_text(r, e.label), "weights");
    berth_trace_frame frame = BERTH_TRACE_FRAME_INIT;
    unsigned depth = 0;
    for (uint32_t at = e.stack; at; at = frame.caller, depth++)
        assert_int_equal(berth_trace_get_frame(r, at, &frame), BERTH_OK);
    assert_in_range(depth, 2, 8);
    berth_trace_device device = BERTH_TRACE_DEVICE_INIT;
    assert_int_equal(berth_trace_get_device(r, e.device, &device), BERTH_OK);
    assert_int_equal(device.kind, BERTH_DEVICE_CPU);
    e = next(r);
    assert_int_equal(e.kind, BERTH_TRACE_FAIL);
    assert_int_equal(e.size_bytes, 5000);
    e = next(r);
    assert_int_equal(e.kind, BERTH_TRACE_FREE);
    assert_int_equal(e.address, was);
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_reader_destroy(r);
}

/* What the pool looks like when it refuses: one hole on each side of a block. Asked so often, and no more. */
static void a_refusal_tells_how_it_stood(void **state)
{
    (void)state;
    enum { KIB = 1024, TIMES = 300, TOLD = 256 };
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *ground = NULL, *pool = NULL;
    void *blocks[3], *none = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &ground), BERTH_OK);
    options.upstream = ground;
    options.hard_limit_bytes = options.segment_bytes = 1024 * KIB;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    berth_allocator *a = new_traced(pool, 0);
    static const size_t sizes[] = {400 * KIB, 4 * KIB, 500 * KIB};
    for (int i = 0; i < 3; i++)
        assert_int_equal(berth_allocate(a, sizes[i], 64, NULL, &blocks[i]), BERTH_OK);
    assert_int_equal(berth_deallocate(a, blocks[0], 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, blocks[2], 0, NULL), BERTH_OK);
    berth_status refused = berth_allocate(pool, 700 * KIB, 64, NULL, &none);
    char words[sizeof berth_last_error()->message];
    strcpy(words, berth_last_error()->message);
    for (int i = 0; i < TIMES; i++)
        assert_int_equal(berth_allocate(a, 700 * KIB, 64, NULL, &none), refused);
    assert_string_equal(berth_last_error()->message, words);
    assert_int_equal(berth_deallocate(a, blocks[1], 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(pool);
    berth_allocator_release(ground);

    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    int told = 0;
    for (berth_trace_event e = BERTH_TRACE_EVENT_INIT; berth_trace_next(r, &e) == BERTH_OK;) {
        if (!e.picture)
            continue;
        assert_int_equal(e.kind, BERTH_TRACE_FAIL);
        assert_int_equal(e.picture->waiting_bytes, 0);
        assert_int_equal(e.picture->unused_bytes, 0);
        assert_in_range(e.picture->largest_bytes, 500 * KIB, 620 * KIB);
        assert_in_range(e.picture->free_bytes, 900 * KIB, 1020 * KIB);
        told++;
    }
    assert_int_equal(told, TOLD);
    berth_trace_reader_destroy(r);
}

/* A reallocation is a free and an allocation; one that fails leaves the block where it was. */
static void reallocations_are_pairs(void **state)
{
    (void)state;
    berth_allocator *system = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    berth_allocator *a = new_traced(system, 0);
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_reallocate(a, p, 100, 200, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(system);
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    uint64_t live = 0, events = 0;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    while (berth_trace_next(r, &e) == BERTH_OK) {
        live += e.kind == BERTH_TRACE_ALLOC;
        live -= e.kind == BERTH_TRACE_FREE;
        events++;
    }
    assert_int_equal(live, 0);
    assert_in_range(events, 4, 6);
    berth_trace_reader_destroy(r);
}

/* What lives at the end of the trace. */
static uint64_t live_bytes(uint64_t *blocks)
{
    enum { MOST = 8 };
    uint64_t addresses[MOST] = {0}, sizes[MOST] = {0}, bytes = 0;
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    while (berth_trace_next(r, &e) == BERTH_OK) {
        if (e.kind != BERTH_TRACE_ALLOC && e.kind != BERTH_TRACE_FREE)
            continue;
        size_t i = 0;
        while (i < MOST && addresses[i] != (e.kind == BERTH_TRACE_ALLOC ? 0 : e.address))
            i++;
        if (i == MOST)
            continue; /* a free of what is not there */
        addresses[i] = e.kind == BERTH_TRACE_ALLOC ? e.address : 0;
        sizes[i] = e.kind == BERTH_TRACE_ALLOC ? e.size_bytes : 0;
    }
    berth_trace_reader_destroy(r);
    *blocks = 0;
    for (size_t i = 0; i < MOST; i++) {
        *blocks += addresses[i] != 0;
        bytes += sizes[i];
    }
    return bytes;
}

/* In a region of 4 KiB, which knows its blocks' sizes, or in the system, which has to be told; the region refuses what is
 * too large as the system does. */
static void check_refused(berth_allocator *inner, size_t told_bytes)
{
    berth_allocator *a = new_traced(inner, 0);
    void *p = NULL, *q = NULL;
    uint64_t blocks;
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK);
    assert_int_not_equal(berth_reallocate(a, p, told_bytes, SIZE_MAX / 4, 64, NULL, &q), BERTH_OK);
    char words[sizeof berth_last_error()->message];
    strcpy(words, berth_last_error()->message);
    assert_int_not_equal(berth_reallocate(inner, p, told_bytes, SIZE_MAX / 4, 64, NULL, &q), BERTH_OK);
    assert_string_equal(words, berth_last_error()->message); /* no others for being traced */
    berth_allocator_release(a);
    assert_int_equal(live_bytes(&blocks), 100);
    assert_int_equal(blocks, 1);
    assert_int_equal(berth_deallocate(inner, p, 100, NULL), BERTH_OK);
}

static void a_refused_resize_leaves_the_block_as_large_as_it_was(void **state)
{
    (void)state;
    static _Alignas(64) char region[4096];
    berth_allocator *fixed = NULL, *system = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    check_refused(fixed, 0);
    check_refused(fixed, 100);
    check_refused(system, 100);
    berth_allocator_release(fixed);
    berth_allocator_release(system);
}

static void a_resize_of_nothing_leaves_nothing(void **state)
{
    (void)state;
    static _Alignas(64) char region[4096];
    berth_allocator *fixed = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    berth_allocator *a = new_traced(fixed, 0);
    void *q = NULL;
    uint64_t blocks;
    assert_int_equal(berth_deallocate(a, region + 2048, 100, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_reallocate(a, region + 2048, 100, 200, 64, NULL, &q), BERTH_BAD_FREE);
    berth_allocator_release(a);
    berth_allocator_release(fixed);
    (void)live_bytes(&blocks);
    assert_int_equal(blocks, 0);
}

/* A cache does not resize: the front moves the block, and nothing has to be taken back in the trace. */
static void a_move_is_two_events_more(void **state)
{
    (void)state;
    berth_allocator *cache = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &cache), BERTH_OK);
    berth_allocator *a = new_traced(cache, 0);
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "weights";
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, &request, &p), BERTH_OK);
    assert_int_equal(berth_reallocate(a, p, 100, 5000, 64, &request, &q), BERTH_OK);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(cache);
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    const berth_trace_kind kinds[] = {BERTH_TRACE_ALLOC, BERTH_TRACE_ALLOC, BERTH_TRACE_FREE,
                                      BERTH_TRACE_FREE};
    for (size_t i = 0; i < BERTH_COUNT_OF(kinds); i++) {
        berth_trace_event e = next(r);
        assert_int_equal(e.kind, kinds[i]);
        if (e.kind == BERTH_TRACE_ALLOC)
            assert_string_equal(berth_trace_text(r, e.label), "weights");
    }
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_reader_destroy(r);
}

static void *many_pairs(void *argument)
{
    static const char *labels[] = {"a", "b", "c", NULL};
    for (unsigned i = 0; i < 5000; i++) {
        berth_request request = BERTH_REQUEST_INIT;
        request.label = labels[i % 4];
        void *p = NULL;
        if (berth_allocate(argument, 1 + i, 64, &request, &p) == BERTH_OK)
            (void)berth_deallocate(argument, p, 0, NULL);
    }
    return NULL;
}

/* In the order of the trace no block is allocated where one lives. */
static void threads_never_overlap_in_the_trace(void **state)
{
    (void)state;
    enum { THREADS = 4, LIVE = 64 };
    berth_allocator *pool = berth_cpu_allocator();
    berth_allocator *a = new_traced(pool, 3);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_pairs, a), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    berth_allocator_release(a);
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    uint64_t live[LIVE] = {0}, events = 0;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    while (berth_trace_next(r, &e) == BERTH_OK) {
        events++;
        size_t i = 0, spare = LIVE;
        for (; i < LIVE && live[i] != e.address; i++)
            if (!live[i])
                spare = i;
        if (e.kind == BERTH_TRACE_FREE) {
            assert_in_range(i, 0, LIVE - 1);
            live[i] = 0;
        } else {
            assert_int_equal(i, LIVE);
            assert_in_range(spare, 0, LIVE - 1);
            live[spare] = e.address;
        }
    }
    assert_int_equal(events, THREADS * 5000 * 2);
    berth_trace_reader_destroy(r);
}

static void a_setting_makes_one(void **state)
{
    (void)state;
    char settings[128];
    snprintf(settings, sizeof settings, "trace=%s", path);
    berth_allocator *a = NULL;
    void *p = NULL;
    assert_int_equal(berth_stack_create(settings, NULL, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, 10, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    assert_int_equal(next(r).size_bytes, 10);
    berth_trace_reader_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_happened_is_told, make_path, remove_path),
        cmocka_unit_test_setup_teardown(a_refusal_tells_how_it_stood, make_path, remove_path),
        cmocka_unit_test_setup_teardown(reallocations_are_pairs, make_path, remove_path),
        cmocka_unit_test_setup_teardown(a_refused_resize_leaves_the_block_as_large_as_it_was, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(a_resize_of_nothing_leaves_nothing, make_path, remove_path),
        cmocka_unit_test_setup_teardown(a_move_is_two_events_more, make_path, remove_path),
        cmocka_unit_test_setup_teardown(threads_never_overlap_in_the_trace, make_path, remove_path),
        cmocka_unit_test_setup_teardown(a_setting_makes_one, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

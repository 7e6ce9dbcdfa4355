/* The host cache on virtual time: reuse, bad frees, classes, limits, copies, and the cases known from the field.
 */
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
#include "host_test.h"

/* ---- Allocating and freeing -------------------------------------------------------------------------- */

static void test_reuse_at_once(void **state)
{
    fixture *f = *state;
    void *p = take(f, 100 * KIB);
    memset(p, 1, 100 * KIB);
    give(f, p);
    assert_ptr_equal(take(f, 100 * KIB), p);
    assert_int_equal(figures(f).device_allocations, 1);
    give(f, p);
}

static void test_nothing_is_null(void **state)
{
    fixture *f = *state;
    void *p = f;
    assert_int_equal(berth_allocate(f->cache, 0, 64, NULL, &p), BERTH_OK);
    assert_null(p);
    berth_host_handle handle = 7;
    p = f;
    assert_int_equal(berth_host_cache_allocate(f->cache, 0, 64, NULL, &p, &handle), BERTH_OK);
    assert_null(p);
    assert_int_equal(handle, 0);
    assert_int_equal(berth_host_cache_free(f->cache, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(f->cache, NULL, 0, NULL), BERTH_OK);
}

static void test_bad_requests(void **state)
{
    fixture *f = *state;
    void *p = NULL;
    assert_int_equal(berth_host_cache_allocate(f->cache, 64, 3, NULL, &p, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_host_cache_allocate(f->cache, 64, 64, NULL, NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_allocate(f->cache, (size_t)1 << 50, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(f->cache, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, 0);
    assert_int_equal(stats.num_failures, 1);
    assert_int_equal(berth_host_cache_free(NULL, f, 0, NULL), BERTH_INVALID_ARGUMENT);
}

static void test_bad_options(void **state)
{
    fixture *f = *state;
    berth_allocator *a = (berth_allocator *)1;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.max_waste = 2;
    assert_int_equal(berth_host_cache_create(&options, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    options.max_waste = 0.125;
    options.struct_size = 0;
    assert_int_equal(berth_host_cache_create(&options, &a), BERTH_INVALID_ARGUMENT);
    options.struct_size = sizeof options;
    options.device = (berth_device){BERTH_DEVICE_VIRTUAL, 999999};
    assert_int_not_equal(berth_host_cache_create(&options, &a), BERTH_OK);
    assert_null(a);
    assert_int_equal(berth_host_cache_create(NULL, NULL), BERTH_INVALID_ARGUMENT);
    (void)f;
}

static void test_alignments(void **state)
{
    fixture *f = *state;
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2)
        for (size_t size = 1; size < 300 * KIB; size = size * 3 + 1) {
            void *p = NULL, *q = NULL;
            assert_int_equal(berth_allocate(f->cache, size, alignment, NULL, &p), BERTH_OK);
            assert_int_equal(berth_allocate(f->cache, size, alignment, NULL, &q), BERTH_OK);
            assert_int_equal((uintptr_t)p % alignment, 0);
            assert_int_equal((uintptr_t)q % alignment, 0);
            memset(p, 1, size);
            memset(q, 2, size);
            give(f, p);
            give(f, q);
            /* What was aligned for one request serves the next. */
            uint64_t calls = figures(f).device_allocations;
            assert_int_equal(berth_allocate(f->cache, size, alignment, NULL, &p), BERTH_OK);
            assert_int_equal((uintptr_t)p % alignment, 0);
            assert_int_equal(figures(f).device_allocations, calls);
            give(f, p);
        }
}

static void test_zeroed_and_label(void **state)
{
    fixture *f = *state;
    void *p = take(f, 1000);
    memset(p, 0xff, 1000);
    give(f, p);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_ZEROED;
    char *q = NULL;
    assert_int_equal(berth_allocate(f->cache, 1000, 64, &request, (void **)&q), BERTH_OK);
    assert_ptr_equal(q, p);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(q[i], 0);
    give(f, q);
}

static void test_sizes_and_ids(void **state)
{
    fixture *f = *state;
    void *p = take(f, 1000), *q = take(f, 1000);
    size_t size = 0;
    uint64_t id_p = 0, id_q = 0, id = 0;
    assert_true(berth_allocator_tracks_sizes(f->cache));
    assert_int_equal(berth_requested_size(f->cache, p, &size), BERTH_OK);
    assert_int_equal(size, 1000);
    assert_int_equal(berth_allocated_size(f->cache, p, &size), BERTH_OK);
    assert_int_equal(size, 1024);
    assert_int_equal(berth_requested_size(f->cache, (char *)p + 1, &size), BERTH_NOT_FOUND);
    assert_int_equal(berth_allocation_id(f->cache, p, &id_p), BERTH_OK);
    assert_int_equal(berth_allocation_id(f->cache, q, &id_q), BERTH_OK);
    assert_true(id_p != 0 && id_q != 0 && id_p != id_q);
    assert_int_equal(berth_allocator_owns(f->cache, (char *)p + 999), BERTH_OK);
    assert_int_equal(berth_allocator_owns(f->cache, f), BERTH_NOT_FOUND);
    give(f, p);
    assert_int_equal(berth_allocator_owns(f->cache, p), BERTH_NOT_FOUND);
    assert_int_equal(berth_requested_size(f->cache, p, &size), BERTH_NOT_FOUND);
    p = take(f, 1000);
    assert_int_equal(berth_allocation_id(f->cache, p, &id), BERTH_OK);
    assert_true(id != id_p && id != id_q);
    give(f, p);
    give(f, q);
    assert_string_equal(berth_allocator_name(f->cache), "host_cache");
    assert_int_equal(berth_allocator_memory_kind(f->cache), BERTH_MEMORY_PINNED);
    assert_true(berth_device_equal(berth_allocator_device(f->cache), f->device));
}

/* ---- Safety ------------------------------------------------------------------------------------------ */

static void test_bad_frees(void **state)
{
    fixture *f = *state;
    int local = 0;
    static const size_t sizes[] = {64, 1000, 5 * KIB, 40 * KIB, 3 * MIB};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++) {
        char *p = take(f, sizes[i]);
        berth_stats before = {.struct_size = sizeof before}, after = before;
        berth_stats_get(f->cache, &before);
        assert_int_equal(berth_deallocate(f->cache, p + 1, 0, NULL), BERTH_BAD_FREE);
        assert_non_null(strstr(berth_last_error()->message, "inside the block"));
        assert_int_equal(berth_deallocate(f->cache, &local, 0, NULL), BERTH_BAD_FREE);
        assert_non_null(strstr(berth_last_error()->message, "never handed out"));
        berth_stats_get(f->cache, &after);
        assert_memory_equal(&before, &after, sizeof before);
        give(f, p);
        assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_BAD_FREE);
        assert_non_null(strstr(berth_last_error()->message, "freed before"));
        assert_int_equal(berth_deallocate(f->cache, p, 0, f->streams[0]), BERTH_BAD_FREE);
        /* Also once its memory is the device's again. */
        assert_int_equal(berth_host_cache_empty(f->cache, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_BAD_FREE);
    }
}

static void test_double_free_while_waiting(void **state)
{
    fixture *f = *state;
    void *p = take(f, 4096);
    enqueue(f->streams[0]);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_OK);
    give(f, p);
    assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[1]), BERTH_NOT_FOUND);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    assert_int_equal(berth_host_cache_collect(f->cache, NULL), BERTH_OK);
    assert_int_equal(figures(f).waiting_blocks, 0);
}

static void test_handles(void **state)
{
    fixture *f = *state;
    void *p = NULL, *q = NULL;
    berth_host_handle hp = 0, hq = 0;
    assert_int_equal(berth_host_cache_allocate(f->cache, 4096, 64, NULL, &p, &hp), BERTH_OK);
    assert_int_equal(berth_host_cache_allocate(f->cache, 4096, 64, NULL, &q, &hq), BERTH_OK);
    assert_true(hp && hq && hp != hq);
    /* An invalid handle is ignored, whatever it is; so is the handle of another block. */
    static const berth_host_handle wrong[] = {0, 1, 77, UINT64_MAX, (uint64_t)1 << 63, 0xffffffff};
    for (size_t i = 0; i < BERTH_COUNT_OF(wrong); i++)
        assert_int_equal(berth_host_cache_record_use(f->cache, p, wrong[i], f->streams[0]), BERTH_OK);
    assert_int_equal(berth_host_cache_record_use(f->cache, (char *)p + 5, hp, f->streams[0]), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, p, hq, NULL), BERTH_OK);
    assert_int_equal(figures(f).events_recorded, 1);
    assert_int_equal(berth_host_cache_free(f->cache, q, hq, NULL), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, q, hq, NULL), BERTH_BAD_FREE);
    /* An old handle names nothing any more. */
    assert_int_equal(berth_host_cache_allocate(f->cache, 4096, 64, NULL, &q, &hp), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, q, hq, NULL), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, f, hq, NULL), BERTH_BAD_FREE);
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

static void test_empty_gives_everything_back(void **state)
{
    fixture *f = *state;
    void *blocks[200];
    for (int i = 0; i < 200; i++)
        blocks[i] = take(f, (size_t)(i + 1) * 777);
    for (int i = 0; i < 200; i++) {
        if (i % 3 == 0)
            berth_record_use(f->cache, blocks[i], f->streams[i % 2]);
        give(f, blocks[i]);
    }
    uint64_t reserved = berth_virtual_bytes_in_use(f->device);
    size_t released = 0;
    assert_int_equal(berth_host_cache_empty(f->cache, &released), BERTH_OK);
    assert_int_equal(released, reserved);
    assert_int_equal(berth_virtual_bytes_in_use(f->device), 0);
    berth_stats stats = {.struct_size = sizeof stats};
    berth_stats_get(f->cache, &stats);
    assert_int_equal(stats.bytes_reserved, 0);
    assert_int_equal(stats.max_bytes_reserved, reserved);
    assert_int_equal(stats.largest_free_bytes, 0);
    assert_true(stats.fragmentation == 0);
}

static void test_empty_leaves_live_and_waiting(void **state)
{
    fixture *f = *state;
    char *live = take(f, MIB), *waits = take(f, 2 * MIB), *idle = take(f, 3 * MIB);
    memset(live, 5, MIB);
    enqueue(f->streams[0]);
    berth_record_use(f->cache, waits, f->streams[0]);
    give(f, waits);
    give(f, idle);
    size_t released = 0;
    assert_int_equal(berth_host_cache_empty(f->cache, &released), BERTH_OK);
    assert_int_equal(released, 3 * MIB);
    assert_int_equal(live[MIB - 1], 5);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    assert_int_equal(berth_host_cache_empty(f->cache, &released), BERTH_OK);
    assert_int_equal(released, 2 * MIB);
    give(f, live);
}

static void test_trim_keeps_what_it_is_told(void **state)
{
    fixture *f = *state;
    void *blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = take(f, MIB);
    for (int i = 0; i < 10; i++)
        give(f, blocks[i]);
    size_t released = 0;
    assert_int_equal(berth_trim(f->cache, 4 * MIB, &released), BERTH_OK);
    assert_int_equal(released, 6 * MIB);
    assert_int_equal(figures(f).idle_bytes, 4 * MIB);
}

/* Mended: there a huge idle block served small requests, or stayed for ever. */
static void test_many_small_after_one_huge(void **state)
{
    fixture *f = *state;
    void *huge = take(f, 64 * MIB);
    give(f, huge);
    char *small[100];
    for (int i = 0; i < 100; i++) {
        char *p = small[i] = take(f, 5000);
        assert_true(p < (char *)huge || p >= (char *)huge + 64 * MIB);
        size_t size = 0;
        assert_int_equal(berth_allocated_size(f->cache, p, &size), BERTH_OK);
        assert_true(size <= 5000 + 5000 / 8);
    }
    size_t released = 0;
    assert_int_equal(berth_host_cache_empty(f->cache, &released), BERTH_OK);
    assert_true(released >= 64 * MIB);
    assert_true(berth_virtual_bytes_in_use(f->device) < 2 * MIB);
    for (int i = 0; i < 100; i++)
        give(f, small[i]);
}

static void test_stated_waste_holds(void **state)
{
    fixture *f = *state;
    static const double bounds[] = {0.125, 0.25, 0.5, 1.0, 1.0 / 64};
    for (size_t i = 0; i < BERTH_COUNT_OF(bounds); i++) {
        berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
        options.device = f->device;
        options.max_waste = bounds[i];
        replace_cache(f, &options);
        for (size_t size = 1; size < 5 * MIB; size += size / 7 + 1) {
            void *p = take(f, size);
            size_t block = 0;
            assert_int_equal(berth_allocated_size(f->cache, p, &block), BERTH_OK);
            assert_int_equal(block, berth_host_cache_block_size(bounds[i], size));
            assert_true(block - size < 64 || (double)(block - size) <= bounds[i] * (double)size);
            give(f, p);
        }
        /* Runs of pages are cut without rest: reserved is what the blocks take. */
        figures(f);
    }
}

static void test_hard_limit(void **state)
{
    fixture *f = *state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    options.hard_limit_bytes = 10 * MIB;
    replace_cache(f, &options);
    void *blocks[10], *p = NULL;
    for (int i = 0; i < 10; i++)
        blocks[i] = take(f, MIB);
    assert_int_equal(berth_allocate(f->cache, MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "10485760"));
    berth_stats stats = {.struct_size = sizeof stats};
    berth_stats_get(f->cache, &stats);
    assert_int_equal(stats.bytes_limit, 10 * MIB);
    assert_int_equal(stats.num_failures, 1);
    assert_int_equal(stats.num_allocs, 10);
    /* Idle blocks of other classes make room; waiting ones do not before they are done. */
    give(f, blocks[0]);
    enqueue(f->streams[0]);
    berth_record_use(f->cache, blocks[1], f->streams[0]);
    give(f, blocks[1]);
    assert_int_equal(berth_allocate(f->cache, 2 * MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    berth_virtual_run_all(f->device);
    assert_int_equal(berth_allocate(f->cache, 2 * MIB, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_virtual_bytes_in_use(f->device), 10 * MIB);
    give(f, p);
    for (int i = 2; i < 10; i++)
        give(f, blocks[i]);
}

static void test_soft_limit(void **state)
{
    fixture *f = *state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    options.soft_limit_bytes = 3 * MIB;
    replace_cache(f, &options);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = take(f, MIB);
    void *large = take(f, 8 * MIB);
    for (int i = 0; i < 8; i++) {
        give(f, blocks[i]);
        assert_true(figures(f).idle_bytes <= 3 * MIB);
    }
    assert_int_equal(figures(f).idle_bytes, 3 * MIB);
    /* Too large to keep at all. */
    give(f, large);
    assert_true(figures(f).idle_bytes <= 3 * MIB);
    /* Waiting blocks are not idle; once collected they are. */
    for (int i = 0; i < 8; i++)
        blocks[i] = take(f, MIB);
    enqueue(f->streams[0]);
    for (int i = 0; i < 8; i++) {
        berth_record_use(f->cache, blocks[i], f->streams[0]);
        give(f, blocks[i]);
    }
    assert_int_equal(figures(f).waiting_bytes, 8 * MIB);
    berth_virtual_run_all(f->device);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).idle_bytes, 3 * MIB);
    /* Limits can change. */
    assert_int_equal(berth_host_cache_set_limits(f->cache, MIB, 0), BERTH_OK);
    assert_int_equal(figures(f).idle_bytes, MIB);
    assert_int_equal(berth_host_cache_set_limits(f->cache, 0, 0), BERTH_OK);
    for (int i = 0; i < 8; i++)
        blocks[i] = take(f, MIB);
    for (int i = 0; i < 8; i++)
        give(f, blocks[i]);
    assert_int_equal(figures(f).idle_bytes, 8 * MIB);
}

/* Small blocks share runs of pages: the limit works on whole runs, without a trim at every free. */
static void test_soft_limit_with_small_blocks(void **state)
{
    fixture *f = *state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    options.soft_limit_bytes = 64 * KIB;
    replace_cache(f, &options);
    enum { many = 2000 };
    void *blocks[many];
    for (int i = 0; i < many; i++)
        blocks[i] = take(f, 1000);
    for (int i = 0; i < many; i++)
        give(f, blocks[i]);
    assert_true(figures(f).idle_bytes <= 128 * KIB);
    void *p = take(f, 1000);
    give(f, p);
}

static void test_device_runs_out(void **state)
{
    fixture *f = *state;
    berth_virtual_set_memory_limit(f->device, 4 * MIB);
    void *a = take(f, 2 * MIB), *b = take(f, 2 * MIB), *p = NULL;
    assert_int_equal(berth_allocate(f->cache, MIB, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    /* What is idle goes back before the request fails. */
    give(f, a);
    assert_int_equal(berth_allocate(f->cache, MIB, 64, NULL, &p), BERTH_OK);
    give(f, p);
    give(f, b);
    berth_stats stats = {.struct_size = sizeof stats};
    berth_stats_get(f->cache, &stats);
    assert_int_equal(stats.num_failures, 1);
    assert_true(stats.num_retries >= 1);
}

/* ---- Copies ------------------------------------------------------------------------------------------ */

static void test_copies(void **state)
{
    fixture *f = *state;
    char *p = take(f, 1000), *q = take(f, 1000), local[1000];
    memset(local, 3, sizeof local);
    assert_int_equal(berth_host_cache_copy(f->cache, p, local, 1000, NULL, false), BERTH_OK);
    assert_int_equal(p[999], 3);
    /* On a stream: enqueued, and both blocks wait for it. */
    memset(q, 0, 1000);
    assert_int_equal(berth_host_cache_copy(f->cache, q + 500, p, 500, f->streams[0], false), BERTH_OK);
    assert_int_equal(q[999], 0);
    give(f, p);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    assert_int_equal(q[999], 3);
    assert_int_equal(q[499], 0);
    memset(local, 0, sizeof local);
    assert_int_equal(berth_host_cache_copy(f->cache, local, q, 1000, f->streams[1], true), BERTH_OK);
    assert_int_equal(local[999], 3);
    assert_int_equal(berth_host_cache_copy(f->cache, q + 1, local, 1000, NULL, false),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_host_cache_copy(f->cache, local, local + 1, 10, NULL, false), BERTH_NOT_FOUND);
    assert_int_equal(berth_host_cache_copy(f->cache, NULL, q, 10, NULL, false), BERTH_INVALID_ARGUMENT);
    give(f, q);
}

/* ---- Questions ---------------------------------------------------------------------------------------- */

typedef struct seen {
    int count;
    berth_host_use uses[16];
} seen;

static bool see(void *context, const berth_host_use *use)
{
    seen *s = context;
    s->uses[s->count++] = *use;
    return true;
}

static void test_why_a_block_is_not_free(void **state)
{
    fixture *f = *state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    options.clock_ns = read_clock;
    options.clock_context = f;
    replace_cache(f, &options);
    f->now = 1000;
    char *p = take(f, 4096);
    enqueue(f->streams[0]);
    enqueue(f->streams[1]);
    berth_record_use(f->cache, p, f->streams[0]);
    berth_record_use(f->cache, p, f->streams[1]);
    berth_block_state block_state = BERTH_BLOCK_IDLE;
    seen s = {0};
    assert_int_equal(berth_host_cache_explain(f->cache, p + 77, 0, &block_state, see, &s), BERTH_OK);
    assert_int_equal(block_state, BERTH_BLOCK_LIVE);
    assert_int_equal(s.count, 2);
    f->now = 2000;
    give(f, p);
    berth_virtual_run(f->streams[1]);
    berth_host_cache_collect(f->cache, NULL);
    f->now = 5000;
    s = (seen){0};
    assert_int_equal(berth_host_cache_explain(f->cache, p, 0, &block_state, see, &s), BERTH_OK);
    assert_int_equal(block_state, BERTH_BLOCK_WAITING);
    assert_int_equal(s.count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.uses[i].passed, s.uses[i].stream == f->streams[1]);
        assert_int_equal(s.uses[i].waiting_ns, 3000);
    }
    s = (seen){0};
    assert_int_equal(berth_host_cache_explain(f->cache, p, 2500, NULL, see, &s), BERTH_OK);
    assert_int_equal(s.uses[0].waiting_ns, 500);
    berth_virtual_run_all(f->device);
    berth_host_cache_collect(f->cache, NULL);
    s = (seen){0};
    assert_int_equal(berth_host_cache_explain(f->cache, p, 0, &block_state, see, &s), BERTH_OK);
    assert_int_equal(block_state, BERTH_BLOCK_IDLE);
    assert_int_equal(s.count, 0);
    assert_int_equal(berth_host_cache_explain(f->cache, f, 0, &block_state, see, &s), BERTH_NOT_FOUND);
}

static void test_many_streams_of_one_block(void **state)
{
    fixture *f = *state;
    berth_stream *streams[12];
    char *p = take(f, 4096);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(berth_stream_create(f->device, &streams[i]), BERTH_OK);
        enqueue(streams[i]);
        assert_int_equal(berth_record_use(f->cache, p, streams[i]), BERTH_OK);
    }
    give(f, p);
    seen s = {0};
    assert_int_equal(berth_host_cache_explain(f->cache, p, 0, NULL, see, &s), BERTH_OK);
    assert_int_equal(s.count, 12);
    for (int i = 11; i >= 0; i--) {
        assert_int_equal(figures(f).waiting_blocks, 1);
        berth_virtual_run(streams[i]);
        berth_stream_destroy(streams[i]);
        berth_host_cache_collect(f->cache, NULL);
    }
    assert_int_equal(figures(f).waiting_blocks, 0);
    assert_int_equal(figures(f).streams, 0);
}

typedef struct tally {
    int live, waiting, idle;
    uint64_t bytes;
    const char *label;
} tally;

static bool count_block(void *context, const berth_block *block)
{
    tally *t = context;
    t->live += block->state == BERTH_BLOCK_LIVE;
    t->waiting += block->state == BERTH_BLOCK_WAITING;
    t->idle += block->state == BERTH_BLOCK_IDLE;
    t->bytes += block->size_bytes;
    assert_true(block->segment != 0);
    if (block->state == BERTH_BLOCK_LIVE) {
        assert_int_equal(block->requested_bytes, 100 * KIB);
        assert_true(block->allocation_id != 0);
        t->label = block->label;
    }
    return true;
}

static void test_snapshot(void **state)
{
    fixture *f = *state;
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "weights";
    void *live = NULL, *waits = take(f, 100 * KIB), *idle = take(f, 100 * KIB);
    assert_int_equal(berth_allocate(f->cache, 100 * KIB, 64, &request, &live), BERTH_OK);
    enqueue(f->streams[0]);
    berth_record_use(f->cache, waits, f->streams[0]);
    give(f, waits);
    give(f, idle);
    tally t = {0};
    assert_int_equal(berth_snapshot(f->cache, count_block, &t), BERTH_OK);
    assert_int_equal(t.live, 1);
    assert_int_equal(t.waiting, 1);
    assert_int_equal(t.idle, 1);
    assert_int_equal(t.bytes, berth_virtual_bytes_in_use(f->device));
    assert_string_equal(t.label, "weights");
    give(f, live);
    berth_virtual_run_all(f->device);
}

static void test_figures(void **state)
{
    fixture *f = *state;
    berth_stats s = {.struct_size = sizeof s};
    void *p = take(f, 1000), *q = take(f, 2000);
    give(f, p);
    p = take(f, 1000);
    berth_stats_get(f->cache, &s);
    assert_int_equal(s.num_allocs, 3);
    assert_int_equal(s.bytes_in_use, 1024 + 2048);
    assert_int_equal(s.max_bytes_in_use, 1024 + 2048);
    assert_int_equal(s.max_alloc_size, 2048);
    assert_int_equal(s.total_bytes, 1024 + 2048 + 1024);
    give(f, q);
    assert_int_equal(berth_stats_clear(f->cache), BERTH_OK);
    berth_stats_get(f->cache, &s);
    assert_int_equal(s.num_allocs, 0);
    assert_int_equal(s.total_bytes, 0);
    assert_int_equal(s.bytes_in_use, 1024);
    assert_int_equal(s.max_bytes_in_use, 1024);
    assert_int_equal(s.largest_free_bytes, 2048);
    give(f, p);
}

int main(void)
{
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    const struct CMUnitTest tests[] = {
        TEST(test_reuse_at_once),
        TEST(test_nothing_is_null),
        TEST(test_bad_requests),
        TEST(test_bad_options),
        TEST(test_alignments),
        TEST(test_zeroed_and_label),
        TEST(test_sizes_and_ids),
        TEST(test_bad_frees),
        TEST(test_double_free_while_waiting),
        TEST(test_handles),
        TEST(test_empty_gives_everything_back),
        TEST(test_empty_leaves_live_and_waiting),
        TEST(test_trim_keeps_what_it_is_told),
        TEST(test_many_small_after_one_huge),
        TEST(test_stated_waste_holds),
        TEST(test_hard_limit),
        TEST(test_soft_limit),
        TEST(test_soft_limit_with_small_blocks),
        TEST(test_device_runs_out),
        TEST(test_copies),
        TEST(test_why_a_block_is_not_free),
        TEST(test_many_streams_of_one_block),
        TEST(test_snapshot),
        TEST(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

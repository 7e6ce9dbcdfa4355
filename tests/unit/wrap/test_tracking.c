/* The tracker: the table of figures row by row, its life, its three ways to measure, leaks, wrong frees. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/scope.h"
#include "berth/source.h"
#include "berth/tracking.h"

/* ---- An inner allocator that gives exactly what was asked, and tells sizes if it is to ---------------- */

struct plain {
    bool tracks;
    bool fails;
    size_t extra; /* says that it gave this much more */
    int live, destroyed;
};

static berth_status plain_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    (void)alignment, (void)request;
    struct plain *plain = self;
    if (plain->fails)
        return berth__fail(BERTH_OUT_OF_DEVICE_MEMORY, "it fails");
    size_t *block = malloc(size_bytes + 16);
    assert_non_null(block);
    block[0] = size_bytes;
    plain->live++;
    *out = block + 2;
    return BERTH_OK;
}

static berth_status plain_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct plain *plain = self;
    if (plain->fails)
        return berth__fail(BERTH_DEVICE_ERROR, "it fails");
    plain->live--;
    free((size_t *)p - 2);
    return BERTH_OK;
}

static void plain_destroy(void *self)
{
    ((struct plain *)self)->destroyed++;
}

static bool plain_tracks(void *self)
{
    return ((struct plain *)self)->tracks;
}

static berth_status plain_size(void *self, const void *p, size_t *out)
{
    *out = ((const size_t *)p)[-2] + ((struct plain *)self)->extra;
    return BERTH_OK;
}

static berth_allocator *make_plain(struct plain *plain)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = plain_allocate,
                                     .deallocate = plain_deallocate,
                                     .destroy = plain_destroy,
                                     .tracks_sizes = plain_tracks,
                                     .allocated_size = plain->tracks ? plain_size : NULL};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, plain, &a), BERTH_OK);
    return a;
}

static berth_allocator *make(struct plain *plain, bool track_sizes, uint32_t stack_depth)
{
    berth_allocator *inner = make_plain(plain), *tracker = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = track_sizes;
    options.stack_depth = stack_depth;
    assert_int_equal(berth_tracking_create(inner, &options, &tracker), BERTH_OK);
    berth_allocator_release(inner); /* the tracker holds it */
    assert_int_equal(plain->destroyed, 0);
    return tracker;
}

/* ---- The table of figures ---------------------------------------------------------------------------- */

static void expect(berth_allocator *t, uint64_t total, uint64_t high, uint64_t live)
{
    berth_tracking_sizes sizes = {.struct_size = sizeof sizes};
    assert_int_equal(berth_tracking_get_sizes(t, &sizes), BERTH_OK);
    assert_int_equal(sizes.total_bytes, total);
    assert_int_equal(sizes.high_watermark_bytes, high);
    assert_int_equal(sizes.live_bytes, live);
}

static void *get(berth_allocator *t, size_t size, uint64_t id)
{
    void *p = NULL;
    uint64_t given = 99;
    assert_int_equal(berth_allocate(t, size, 8, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocation_id(t, p, &given), BERTH_OK);
    assert_int_equal(given, id);
    return p;
}

static void give(berth_allocator *t, void *p)
{
    assert_int_equal(berth_deallocate(t, p, 0, NULL), BERTH_OK);
}

static void the_rows_of_the_table(bool inner_tracks)
{
    struct plain plain = {.tracks = inner_tracks};
    berth_allocator *t = make(&plain, !inner_tracks, 0);
    assert_true(berth_tracking_measures(t));
    assert_true(berth_allocator_tracks_sizes(t));
    void *p = get(t, 4, 1);
    expect(t, 4, 4, 4);
    give(t, p);
    expect(t, 4, 4, 0);
    p = get(t, 12, 2);
    expect(t, 16, 12, 12);
    give(t, p);
    expect(t, 16, 12, 0);
    berth_allocator_release(t);
    assert_int_equal(plain.destroyed, 1);

    t = make(&(struct plain){.tracks = inner_tracks}, !inner_tracks, 0);
    p = get(t, 12, 1);
    expect(t, 12, 12, 12);
    give(t, p);
    expect(t, 12, 12, 0);
    p = get(t, 4, 2);
    expect(t, 16, 12, 4);
    give(t, p);
    expect(t, 16, 12, 0);
    berth_allocator_release(t);
}

static void figures_with_an_inner_that_tracks(void **state)
{
    (void)state;
    the_rows_of_the_table(true);
}

static void figures_with_a_table_of_its_own(void **state)
{
    (void)state;
    the_rows_of_the_table(false);
}

static void totals_only_without_either(void **state)
{
    (void)state;
    struct plain plain = {0};
    berth_allocator *t = make(&plain, false, 0);
    assert_false(berth_tracking_measures(t));
    assert_false(berth_allocator_tracks_sizes(t));
    void *p = get(t, 4, 0);
    expect(t, 4, 0, 0);
    give(t, p);
    p = get(t, 12, 0);
    give(t, p);
    expect(t, 16, 0, 0);
    size_t size = 0;
    assert_int_equal(berth_requested_size(t, p, &size), BERTH_UNSUPPORTED);
    assert_int_equal(berth_tracking_report_leaks(t, &size), BERTH_UNSUPPORTED);
    p = get(t, 4, 0);
    berth_allocator_release(t);
    assert_int_equal(plain.destroyed, 0); /* its last block keeps it */
    give(t, p);
    assert_int_equal(plain.destroyed, 1);
}

static void the_larger_size_is_counted(void **state)
{
    (void)state;
    struct plain plain = {.tracks = true, .extra = 10};
    berth_allocator *t = make(&plain, false, 0);
    void *p = get(t, 100, 1);
    size_t size = 0;
    expect(t, 110, 110, 110);
    assert_int_equal(berth_requested_size(t, p, &size), BERTH_OK);
    assert_int_equal(size, 100);
    assert_int_equal(berth_allocated_size(t, p, &size), BERTH_OK);
    assert_int_equal(size, 110);
    give(t, p);
    expect(t, 110, 110, 0);
    berth_allocator_release(t);
}

/* ---- Life -------------------------------------------------------------------------------------------- */

static void it_goes_away_with_the_last_block(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    struct plain plain = {0};
    berth_allocator *t = make(&plain, true, 3);
    void *p = get(t, 100, 1), *q = get(t, 50, 2);
    berth_tracking_sizes sizes = {.struct_size = sizeof sizes};
    assert_int_equal(berth_tracking_get_sizes_and_unref(t, &sizes), BERTH_OK);
    assert_int_equal(sizes.total_bytes, 150);
    assert_int_equal(sizes.live_bytes, 150);
    give(t, q);
    assert_int_equal(berth_deallocate(t, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(t, q, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(plain.destroyed, 0);
    give(t, p);
    assert_int_equal(plain.destroyed, 1);
    assert_int_equal(plain.live, 0);
    assert_int_equal(berth__heap_live(), heap);
}

static void a_failure_passes_through(void **state)
{
    (void)state;
    struct plain plain = {.tracks = true};
    berth_allocator *t = make(&plain, false, 0);
    void *p = NULL;
    plain.fails = true;
    assert_int_equal(berth_allocate(t, 10, 8, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_null(p);
    expect(t, 0, 0, 0);
    plain.fails = false;
    p = get(t, 10, 1);
    plain.fails = true;
    assert_int_equal(berth_deallocate(t, p, 0, NULL), BERTH_DEVICE_ERROR);
    expect(t, 10, 10, 10); /* it is still live */
    plain.fails = false;
    give(t, p);
    expect(t, 10, 10, 0);
    berth_allocator_release(t);
}

static void without_memory_the_block_goes_back(void **state)
{
    (void)state;
    struct plain plain = {0};
    berth_allocator *t = make(&plain, true, 4);
    void *p = get(t, 10, 1); /* the meter has its slots now */
    for (uint64_t n = 1; n <= 1; n++) {
        void *q = NULL;
        uint64_t heap = berth__heap_live();
        berth__heap_fail_at(n, true);
        assert_int_equal(berth_allocate(t, 20, 8, NULL, &q), BERTH_OUT_OF_HOST_MEMORY);
        berth__heap_fail_at(0, false);
        assert_null(q);
        assert_int_equal(berth__heap_live(), heap);
        assert_int_equal(plain.live, 1);
        expect(t, 10, 10, 10);
    }
    give(t, p);
    give(t, get(t, 5, 2)); /* the failure used no id */
    berth_allocator_release(t);
}

static void wrong_frees_are_reported(void **state)
{
    (void)state;
    struct plain plain = {0};
    berth_allocator *t = make(&plain, true, 0);
    char *p = get(t, 100, 1), foreign[32];
    assert_int_equal(berth_deallocate(t, foreign, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(t, p + 16, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_allocator_owns(t, p + 99), BERTH_OK);
    assert_int_equal(berth_allocator_owns(t, foreign), BERTH_NOT_FOUND);
    give(t, p);
    assert_int_equal(berth_deallocate(t, p, 0, NULL), BERTH_BAD_FREE);
    expect(t, 100, 100, 0);
    berth_allocator_release(t);
}

static void a_block_that_moves_is_counted_on_both_sides(void **state)
{
    (void)state;
    berth_allocator *t = NULL;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = BERTH_STATS_FULL;
    assert_int_equal(berth_cpu_allocator_create(&options, &t), BERTH_OK);
    assert_true(berth_tracking_measures(t));
    void *p = get(t, 100, 1), *q = NULL;
    memset(p, 7, 100);
    assert_int_equal(berth_reallocate(t, p, 0, 300, 64, NULL, &q), BERTH_OK);
    assert_int_equal(((char *)q)[99], 7);
    expect(t, 400, 400, 300);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(t, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 300);
    assert_int_equal(stats.num_allocs, 2);
    assert_int_equal(berth_stats_clear(t), BERTH_OK);
    expect(t, 0, 300, 300);
    assert_int_equal(berth_cpu_allocator_set_stats(t, BERTH_STATS_OFF), BERTH_OK);
    assert_int_equal(berth_stats_get(t, &stats), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocate(t, 8, 8, NULL, &p), BERTH_OK);
    assert_int_equal(berth_cpu_allocator_set_stats(t, BERTH_STATS_FULL), BERTH_OK);
    assert_int_equal(berth_stats_get(t, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 308);
    give(t, p);
    give(t, q);
    berth_allocator_release(t);
}

/* ---- Leaks ------------------------------------------------------------------------------------------- */

struct leaks {
    int count;
    berth_leak seen[4];
    bool has_this_function;
};

static bool look(void *context, const berth_leak *leak)
{
    struct leaks *leaks = context;
    leaks->seen[leaks->count++] = *leak;
    return leaks->count < 4;
}

static char heard[20][256];
static int heard_lines;

static void hear(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level;
    if (heard_lines < 20)
        strncpy(heard[heard_lines++], line, 255);
}

static void leaks_have_labels_and_stacks(void **state)
{
    (void)state;
    enum { DEPTH = 6 }; /* up to five are ours, where nothing is inlined */
    struct plain plain = {0};
    berth_allocator *t = make(&plain, true, DEPTH);
    berth_request named = BERTH_REQUEST_INIT;
    named.label = "weights";
    void *p = NULL, *q = NULL, *r = NULL;
    assert_int_equal(berth_allocate(t, 10, 8, &named, &p), BERTH_OK);
    berth_scope scope;
    berth_scope_begin(&scope, "activations");
    assert_int_equal(berth_allocate(t, 20, 8, NULL, &q), BERTH_OK);
    berth_scope_end(&scope);
    assert_int_equal(berth_allocate(t, 30, 8, NULL, &r), BERTH_OK);
    give(t, r);
    struct leaks leaks = {0};
    assert_int_equal(berth_tracking_visit_leaks(t, look, &leaks), BERTH_OK);
    assert_int_equal(leaks.count, 2);
    assert_ptr_equal(leaks.seen[0].address, p);
    assert_string_equal(leaks.seen[0].label, "weights");
    assert_int_equal(leaks.seen[1].size_bytes, 20);
    assert_string_equal(leaks.seen[1].label, "activations");
#if defined(__GLIBC__)
    assert_int_equal(leaks.seen[0].stack_depth, DEPTH);
#endif
    size_t count = 0;
    heard_lines = 0;
    berth_log_set(hear, NULL, BERTH_LOG_INFO);
    assert_int_equal(berth_tracking_report_leaks(t, &count), BERTH_OK);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(count, 2);
    assert_non_null(strstr(heard[0], "10 bytes"));
    assert_non_null(strstr(heard[0], "weights"));
#if defined(__GLIBC__)
    bool named_itself = false; /* a static function, and named all the same */
    for (int i = 1; i <= DEPTH; i++)
        named_itself = named_itself || strstr(heard[i], "(leaks_have_labels_and_stacks+0x");
    assert_true(named_itself);
#endif
    assert_non_null(strstr(heard[heard_lines - 1], "2 blocks with 30 bytes"));
    give(t, p);
    give(t, q);
    berth_allocator_release(t);
}

/* ---- Threads ----------------------------------------------------------------------------------------- */

enum { threads = 4, rounds = 2000 };
static _Atomic uint64_t ids_seen[threads * rounds * 2 + 64 * (threads + 1)];

static void *allocate_and_free(void *context)
{
    berth_allocator *t = context;
    void *held[16] = {0};
    for (int i = 0; i < rounds; i++) {
        void **place = &held[i % 16];
        uint64_t id = 0;
        if (berth_deallocate(t, *place, 0, NULL) != BERTH_OK ||
            berth_allocate(t, (size_t)(i % 500) + 1, 64, NULL, place) != BERTH_OK ||
            berth_allocation_id(t, *place, &id) != BERTH_OK || id == 0 ||
            id >= sizeof ids_seen / sizeof ids_seen[0] || atomic_fetch_add(&ids_seen[id], 1) != 0)
            return context;
    }
    for (int i = 0; i < 16; i++)
        if (berth_deallocate(t, held[i], 0, NULL) != BERTH_OK)
            return context;
    return NULL;
}

static void threads_count_exactly(void **state)
{
    (void)state;
    berth_allocator *inner = NULL, *t = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &inner), BERTH_OK);
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    assert_int_equal(berth_tracking_create(inner, &options, &t), BERTH_OK);
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, allocate_and_free, t), 0);
    for (int i = 0; i < threads; i++) {
        void *trouble = NULL;
        pthread_join(ids[i], &trouble);
        assert_null(trouble);
    }
    uint64_t total = 0;
    for (int i = 0; i < rounds; i++)
        total += (uint64_t)(i % 500) + 1;
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(t, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, threads * rounds);
    assert_int_equal(stats.total_bytes, total * threads);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.max_alloc_size, 500);
    berth_allocator_release(t);
    assert_int_equal(berth_stats_get(inner, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    berth_allocator_release(inner);
}

struct hand_over {
    berth_allocator *tracker;
    void *blocks[200];
};

static void *free_all(void *context)
{
    struct hand_over *over = context;
    for (int i = 0; i < 200; i++)
        if (berth_deallocate(over->tracker, over->blocks[i], 0, NULL) != BERTH_OK)
            return context;
    return NULL;
}

/* The owner lets go while two threads free the blocks: exactly one of the three destroys the tracker. */
static void the_last_of_several_threads_destroys(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct plain plain = {.tracks = true};
        berth_allocator *inner = NULL, *t = NULL;
        assert_int_equal(berth_cpu_allocator_create(NULL, &inner), BERTH_OK);
        berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
        options.track_sizes = round % 2 == 0;
        assert_int_equal(berth_tracking_create(inner, &options, &t), BERTH_OK);
        struct hand_over over[2] = {{.tracker = t}, {.tracker = t}};
        for (int i = 0; i < 400; i++)
            assert_int_equal(berth_allocate(t, 64, 64, NULL, &over[i % 2].blocks[i / 2]), BERTH_OK);
        pthread_t ids[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&ids[i], NULL, free_all, &over[i]), 0);
        berth_allocator_release(t);
        for (int i = 0; i < 2; i++) {
            void *trouble = NULL;
            pthread_join(ids[i], &trouble);
            assert_null(trouble);
        }
        berth_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(berth_stats_get(inner, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 0);
        berth_allocator_release(inner);
        (void)plain;
    }
}

static void what_is_not_a_tracker_is_refused(void **state)
{
    (void)state;
    berth_allocator *t = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    berth_tracking_sizes sizes = {.struct_size = sizeof sizes};
    assert_int_equal(berth_tracking_create(NULL, NULL, &t), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tracking_create(berth_cpu_allocator(), NULL, NULL), BERTH_INVALID_ARGUMENT);
    options.stack_depth = 33;
    assert_int_equal(berth_tracking_create(berth_cpu_allocator(), &options, &t), BERTH_INVALID_ARGUMENT);
    assert_null(t);
    assert_int_equal(berth_tracking_get_sizes(berth_cpu_allocator(), &sizes), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tracking_get_sizes_and_unref(NULL, &sizes), BERTH_INVALID_ARGUMENT);
    assert_false(berth_tracking_measures(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_with_an_inner_that_tracks),
        cmocka_unit_test(figures_with_a_table_of_its_own),
        cmocka_unit_test(totals_only_without_either),
        cmocka_unit_test(the_larger_size_is_counted),
        cmocka_unit_test(it_goes_away_with_the_last_block),
        cmocka_unit_test(a_failure_passes_through),
        cmocka_unit_test(without_memory_the_block_goes_back),
        cmocka_unit_test(wrong_frees_are_reported),
        cmocka_unit_test(a_block_that_moves_is_counted_on_both_sides),
        cmocka_unit_test(leaks_have_labels_and_stacks),
        cmocka_unit_test(threads_count_exactly),
        cmocka_unit_test(the_last_of_several_threads_destroys),
        cmocka_unit_test(what_is_not_a_tracker_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

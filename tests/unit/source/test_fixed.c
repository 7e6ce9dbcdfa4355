/* The fixed source: best fit in a caller's region, merging, alignment, figures, and frees that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "berth/source.h"

static _Alignas(64) char region[64 * 1024];

static berth_allocator *before_main;
static void *block_before_main;

__attribute__((constructor)) static void allocate_before_main(void)
{
    static char early[4096];
    if (berth_fixed_allocator_create(early, sizeof early, &before_main) == BERTH_OK)
        (void)berth_allocate(before_main, 100, 64, NULL, &block_before_main);
}

static berth_stats stats_of(berth_allocator *a)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats;
}

static void *get(berth_allocator *a, size_t size, size_t alignment)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size, alignment, NULL, &p), BERTH_OK);
    assert_int_equal((uintptr_t)p % alignment, 0);
    memset(p, 0xa5, size);
    return p;
}

static berth_allocator *make(void)
{
    berth_allocator *a = NULL;
    uint64_t heap = berth__heap_live();
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &a), BERTH_OK);
    assert_int_equal(berth__heap_live(), heap);
    return a;
}

static void it_works_before_main(void **state)
{
    (void)state;
    assert_non_null(block_before_main);
    assert_int_equal(stats_of(before_main).num_allocs, 1);
    assert_int_equal(berth_deallocate(before_main, block_before_main, 0, NULL), BERTH_OK);
    berth_allocator_release(before_main);
}

static void sizes_ids_and_figures(void **state)
{
    (void)state;
    berth_allocator *a = make();
    uint64_t heap = berth__heap_live();
    void *p = get(a, 100, 64), *q = get(a, 1, 1);
    size_t size = 0;
    uint64_t id = 0;
    assert_true(berth_allocator_tracks_sizes(a));
    assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, 100);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_OK);
    assert_true(size >= 100 && size < 164);
    assert_int_equal(berth_allocation_id(a, q, &id), BERTH_OK);
    assert_int_equal(id, 2);
    berth_stats stats = stats_of(a);
    assert_int_equal(stats.num_allocs, 2);
    assert_int_equal(stats.bytes_in_use, stats.total_bytes);
    assert_int_equal(stats.bytes_reserved, sizeof region);
    assert_int_equal(berth_deallocate(a, p, 100, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    assert_int_equal(stats_of(a).max_bytes_in_use, stats.bytes_in_use);
    assert_true(stats_of(a).fragmentation == 0);
    assert_int_equal(stats_of(a).largest_free_bytes, stats_of(a).bytes_limit);
    assert_int_equal(berth__heap_live(), heap);
}

static void the_smallest_hole_that_fits_is_taken(void **state)
{
    (void)state;
    berth_allocator *a = make();
    void *large = get(a, 2000, 64), *wall1 = get(a, 10, 64), *small = get(a, 1000, 64),
         *wall2 = get(a, 10, 64);
    assert_int_equal(berth_deallocate(a, large, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, small, 0, NULL), BERTH_OK);
    assert_ptr_equal(get(a, 900, 64), small);
    assert_ptr_equal(get(a, 1900, 64), large);
    (void)wall1, (void)wall2;
}

/* However many holes of the size lie badly for an alignment: one that lies well is found. */
static void the_only_aligned_hole_is_found(void **state)
{
    (void)state;
    berth_allocator *a = make();
    void *held[256], *p = NULL;
    size_t count = 0, good = 0, bad = 0;
    p = get(a, 32, 64);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    (void)get(a, 256 - (uintptr_t)p % 256 - 32, 64); /* what follows lies at multiples of 256 */
    while (count < BERTH_COUNT_OF(held) && berth_allocate(a, 224, 64, NULL, &p) == BERTH_OK)
        held[count++] = p;
    while (berth_allocate(a, 32, 64, NULL, &p) == BERTH_OK)
        ; /* what is left over */
    assert_true(count < BERTH_COUNT_OF(held));
    for (size_t i = 0; i < count; i++)
        good = (uintptr_t)held[i] % 2048 == 0 ? i : good; /* the last of all */
    /* No two neighbours. */
    for (size_t i = good % 2; i < count; i += 2) {
        if ((uintptr_t)held[i] % 2048 == 0)
            continue;
        assert_int_equal(berth_deallocate(a, held[i], 0, NULL), BERTH_OK);
        bad++;
    }
    assert_true(bad > 8);
    assert_int_equal(berth_allocate(a, 224, 2048, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_deallocate(a, held[good], 0, NULL), BERTH_OK);
    assert_ptr_equal(get(a, 224, 2048), held[good]);
}

static void a_full_region_is_not_fragmented(void **state)
{
    (void)state;
    berth_allocator *a = make();
    void *all = get(a, (size_t)stats_of(a).largest_free_bytes, 64), *p = NULL;
    assert_true(stats_of(a).fragmentation == 0);
    assert_int_equal(stats_of(a).largest_free_bytes, 0);
    assert_int_equal(berth_allocate(a, 1, 1, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    assert_int_equal(stats_of(a).num_failures, 1);
    assert_int_equal(stats_of(a).num_allocs, 1);
    assert_int_equal(berth_deallocate(a, all, 0, NULL), BERTH_OK);
}

static void wrong_frees_are_reported(void **state)
{
    (void)state;
    berth_allocator *a = make();
    char *p = get(a, 1000, 64), outside[64];
    assert_int_equal(berth_deallocate(a, p + 64, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(a, p + 1, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(a, outside, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_allocator_owns(a, p + 500), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, outside), BERTH_NOT_FOUND);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, p), BERTH_NOT_FOUND);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(stats_of(a).bytes_in_use, 0);
}

static void growing_uses_the_neighbour(void **state)
{
    (void)state;
    berth_allocator *a = make();
    char *p = get(a, 100, 64), *q = NULL;
    assert_int_equal(berth_reallocate(a, p, 100, 5000, 64, NULL, (void **)&q), BERTH_OK);
    assert_ptr_equal(p, q);
    void *wall = get(a, 10, 64);
    assert_int_equal(berth_reallocate(a, q, 5000, 9000, 64, NULL, (void **)&p), BERTH_OK);
    assert_ptr_not_equal(p, q);
    for (int i = 0; i < 100; i++)
        assert_int_equal((unsigned char)p[i], 0xa5);
    assert_int_equal(berth_reallocate(a, p, 9000, 100000000, 64, NULL, (void **)&q),
                     BERTH_OUT_OF_HOST_MEMORY);
    assert_null(q);
    assert_int_equal(berth_reallocate(a, p, 9000, 50, 64, NULL, (void **)&q), BERTH_OK);
    assert_ptr_equal(p, q);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, wall, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(a).largest_free_bytes, stats_of(a).bytes_limit);
}

/* The blocks cover the region without gap, and what they add up to is what the figures say. */
struct cover {
    const char *next;
    uint64_t live, blocks;
    bool last_was_idle;
};

static bool follow(void *context, const berth_block *block)
{
    struct cover *cover = context;
    if (cover->next)
        assert_ptr_equal(block->address, cover->next + 32);
    cover->next = (const char *)block->address + block->size_bytes;
    bool idle = block->state == BERTH_BLOCK_IDLE;
    assert_false(idle && cover->last_was_idle); /* neighbours are merged */
    cover->last_was_idle = idle;
    cover->live += idle ? 0 : block->size_bytes;
    cover->blocks++;
    return true;
}

static void random_use_keeps_the_region_whole(void **state)
{
    (void)state;
    berth_allocator *a = make();
    enum { places = 100 };
    struct {
        unsigned char *p;
        size_t size;
    } held[places] = {0};
    uint64_t seed = 42;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned place = (unsigned)(seed >> 40) % places;
        if (held[place].p) {
            for (size_t k = 0; k < held[place].size; k++)
                if (held[place].p[k] != (unsigned char)place)
                    fail_msg("a block was overwritten");
            assert_int_equal(berth_deallocate(a, held[place].p, 0, NULL), BERTH_OK);
            held[place].p = NULL;
        } else {
            size_t size = 1 + (seed >> 20) % 1500, alignment = (size_t)1 << (seed >> 50) % 11;
            void *p = NULL;
            if (berth_allocate(a, size, alignment, NULL, &p) == BERTH_OK) {
                assert_int_equal((uintptr_t)p % alignment, 0);
                memset(p, (int)place, size);
                held[place].p = p;
                held[place].size = size;
            }
        }
        if (i % 500 == 0) {
            struct cover cover = {0};
            assert_int_equal(berth_snapshot(a, follow, &cover), BERTH_OK);
            assert_int_equal(cover.live, stats_of(a).bytes_in_use);
        }
    }
    for (int i = 0; i < places; i++)
        assert_int_equal(berth_deallocate(a, held[i].p, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(a).largest_free_bytes, stats_of(a).bytes_limit);
}

static void *churn(void *context)
{
    berth_allocator *a = context;
    for (int i = 0; i < 3000; i++) {
        void *p = NULL;
        if (berth_allocate(a, (size_t)(i % 700) + 1, 64, NULL, &p) != BERTH_OK)
            continue;
        memset(p, i, (size_t)(i % 700) + 1);
        if (berth_deallocate(a, p, 0, NULL) != BERTH_OK)
            return context;
    }
    return NULL;
}

static void threads_share_a_region(void **state)
{
    (void)state;
    berth_allocator *a = make();
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, churn, a), 0);
    for (int i = 0; i < 4; i++) {
        void *trouble = NULL;
        pthread_join(ids[i], &trouble);
        assert_null(trouble);
    }
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    assert_int_equal(stats_of(a).largest_free_bytes, stats_of(a).bytes_limit);
}

static void regions_that_are_none_are_refused(void **state)
{
    (void)state;
    berth_allocator *a = (berth_allocator *)region;
    assert_int_equal(berth_fixed_allocator_create(NULL, 4096, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(berth_fixed_allocator_create(region, 100, &a), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_fixed_allocator_create(region, SIZE_MAX, &a), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_fixed_allocator_create(region, 4096, NULL), BERTH_INVALID_ARGUMENT);
    /* The smallest that works, at an odd address. */
    size_t bytes = 1;
    while (berth_fixed_allocator_create(region + 3, bytes, &a) != BERTH_OK)
        bytes++;
    assert_true(bytes < 2048);
    void *p = get(a, 1, 64);
    assert_true((char *)p + 1 <= region + 3 + bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_works_before_main),
        cmocka_unit_test(sizes_ids_and_figures),
        cmocka_unit_test(the_smallest_hole_that_fits_is_taken),
        cmocka_unit_test(the_only_aligned_hole_is_found),
        cmocka_unit_test(a_full_region_is_not_fragmented),
        cmocka_unit_test(wrong_frees_are_reported),
        cmocka_unit_test(growing_uses_the_neighbour),
        cmocka_unit_test(random_use_keeps_the_region_whole),
        cmocka_unit_test(threads_share_a_region),
        cmocka_unit_test(regions_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The pool where it is tight: limits below a piece, figures while an allocation fails, the last free against
 * the release of the handle, snapshots beside allocations, and decay without a lock. */
#include <stdatomic.h>

#include "unit/pool/pool_test.h"

/* Small blocks have pieces of their own where there is room for one, and lie elsewhere where there is not. */
static void small_blocks_find_what_is_left(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 100 * KIB;
    berth_allocator *pool = make(&options);
    void *first = take(pool, 1000), *second = take(pool, 17000);
    give(pool, first);
    give(pool, second);
    berth_allocator_release(pool);

    static const berth_memory_kind kinds[] = {BERTH_MEMORY_DEVICE, BERTH_MEMORY_PINNED};
    for (size_t k = 0; k < BERTH_COUNT_OF(kinds); k++) {
        options.hard_limit_bytes = options.segment_bytes = MIB;
        options.memory_kind = kinds[k];
        pool = make(&options);
        void *blocks[64];
        size_t count = 0;
        while (count < 64 &&
               berth_allocate(pool, 60 * KIB, BERTH_ALIGNMENT, NULL, &blocks[count]) == BERTH_OK)
            count++;
        assert_in_range(count, 14, 17);
        for (size_t i = 0; i < count; i += 2)
            give(pool, blocks[i]);
        void *small = take(pool, 1000);
        give(pool, small);
        for (size_t i = 1; i < count; i += 2)
            give(pool, blocks[i]);
        berth_trim(pool, 0, NULL);
        assert_int_equal(stats_of(pool).bytes_reserved, 0);
        berth_allocator_release(pool);
    }
}

static berth_allocator *failing;
static berth_stats seen;

static bool look_and_clear(void *context, size_t size_bytes)
{
    (void)context, (void)size_bytes;
    seen = stats_of(failing);
    assert_int_equal(berth_stats_clear(failing), BERTH_OK);
    return false;
}

static void an_allocation_that_fails_is_never_counted(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 4 * MIB;
    options.on_failure = look_and_clear;
    failing = make(&options);
    options.shares_limits_with = failing;
    berth_allocator *other = make(&options);
    give(failing, take(failing, 2 * MIB)); /* so that the thread has credit */
    berth_trim(failing, 0, NULL);
    void *held = take(other, 4 * MIB), *p;
    assert_int_equal(berth_allocate(failing, MIB, BERTH_ALIGNMENT, NULL, &p), BERTH_OVER_BUDGET);
    assert_int_equal(seen.bytes_in_use, 0);
    assert_int_equal(seen.num_allocs, 1);
    berth_stats after = stats_of(failing);
    assert_int_equal(after.num_allocs, 0);
    assert_int_equal(after.total_bytes, 0);
    assert_int_equal(after.max_bytes_in_use, 0);
    assert_int_equal(after.num_failures, 1);
    give(other, held);
    berth_allocator_release(other);
    berth_allocator_release(failing);
}

static void *held_block;

static bool free_and_refuse(void *context, size_t size_bytes)
{
    (void)context, (void)size_bytes;
    give(failing, held_block);
    return false;
}

static void a_failure_counts_cached_blocks_as_idle(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 4 * MIB;
    options.on_failure = free_and_refuse;
    failing = make(&options);
    void *other = take(failing, 2 * MIB), *p;
    held_block = take(failing, 2 * MIB);
    assert_int_equal(berth_allocate(failing, 3 * MIB, BERTH_ALIGNMENT, NULL, &p), BERTH_OVER_BUDGET);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "2 MiB (2097152 bytes) idle"));
    assert_null(strstr(words, "waiting"));
    give(failing, other);
    berth_allocator_release(failing);
}

static void a_size_that_does_not_fit_is_told_everywhere(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.memory_kind = BERTH_MEMORY_PINNED;
    berth_allocator *pool = make(&options);
    void *p = take(pool, 1000);
    assert_int_equal(berth_deallocate(pool, p, 77, NULL), BERTH_BAD_FREE);
    assert_non_null(strstr(berth_last_error()->message, "1000 bytes, freed as 77"));
    assert_int_equal(berth_deallocate(pool, p, 1000, NULL), BERTH_OK);
    berth_allocator_release(pool);
}

enum { FILLED = 9 };

struct race {
    berth_allocator *pool;
    _Atomic int ready;
    void *blocks[FILLED];
};

/* Fills its thread cache, so that the last free puts others out of it. */
static void *free_the_last(void *context)
{
    struct race *race = context;
    for (size_t i = 0; i < FILLED; i++)
        berth_allocate(race->pool, KIB, BERTH_ALIGNMENT, NULL, &race->blocks[i]);
    for (size_t i = 0; i + 1 < FILLED; i++)
        berth_deallocate(race->pool, race->blocks[i], 0, NULL);
    atomic_fetch_add(&race->ready, 1);
    while (atomic_load(&race->ready) != 2)
        continue;
    berth_deallocate(race->pool, race->blocks[FILLED - 1], 0, NULL);
    return NULL;
}

/* The pool is gone when both are through, whoever was last; the sanitizers watch. */
static void the_last_free_races_the_release(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.reserve_bytes = 64 * MIB;
        struct race race = {.pool = make(&options)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_the_last, &race), 0);
        while (atomic_load(&race.ready) != 1)
            continue;
        atomic_fetch_add(&race.ready, 1);
        for (volatile int wait = 0; wait < round * 2; wait++)
            continue;
        berth_allocator_release(race.pool);
        pthread_join(thread, NULL);
    }
}

static _Atomic bool stop;

static void *allocate_with_labels(void *pool)
{
    static const char *const labels[] = {"one", "two"};
    void *blocks[50] = {NULL};
    for (size_t i = 0; !atomic_load(&stop); i++) {
        void **p = &blocks[i / 40 % BERTH_COUNT_OF(blocks)];
        berth_request request = BERTH_REQUEST_INIT;
        request.label = labels[i % 2];
        berth_deallocate(pool, *p, 0, NULL);
        berth_allocate(pool, 1000 + i % 2, BERTH_ALIGNMENT, &request, p);
    }
    for (size_t i = 0; i < BERTH_COUNT_OF(blocks); i++)
        berth_deallocate(pool, blocks[i], 0, NULL);
    return NULL;
}

/* What a snapshot says of a block is of one life. */
static bool label_fits_size(void *context, const berth_block *block)
{
    (void)context;
    if (block->state == BERTH_BLOCK_LIVE)
        assert_string_equal(block->label, block->requested_bytes == 1000 ? "one" : "two");
    return true;
}

static void snapshots_beside_allocations(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, allocate_with_labels, pool), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(berth_snapshot(pool, label_fits_size, NULL), BERTH_OK);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    berth_allocator_release(pool);
}

static uint64_t read_clock(void *context)
{
    return *(uint64_t *)context;
}

static bool sum_idle(void *context, const berth_block *block)
{
    if (block->state == BERTH_BLOCK_IDLE)
        *(uint64_t *)context += block->size_bytes;
    return true;
}

/* A thread that finds all it needs in its thread cache makes idle memory go too. */
static void memory_decays_beside_short_ways(void **state)
{
    (void)state;
    uint64_t now = 1000000000000, idle = 0;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = read_clock;
    options.clock_context = &now;
    berth_allocator *pool = make(&options);
    give(pool, take(pool, 64 * MIB));
    for (size_t i = 0; i < 64 * KIB; i++) {
        give(pool, take(pool, 1000));
        now += 1000000;
    }
    berth_snapshot(pool, sum_idle, &idle);
    assert_true(idle <= MIB);
    berth_allocator_release(pool);
}

struct last_idle {
    const char *end; /* of the last idle block, NULL if the last one was not */
    uint64_t age_ns;
    size_t adjacent, blocks;
};

static bool find_adjacent_idle(void *context, const berth_block *block)
{
    struct last_idle *last = context;
    bool idle = block->state == BERTH_BLOCK_IDLE;
    last->adjacent += idle && last->end == block->address;
    last->end = idle ? (const char *)block->address + block->size_bytes : NULL;
    last->age_ns = idle ? block->age_ns : 0;
    last->blocks++;
    return true;
}

/* What is left of a piece for small blocks and what is free beside it are one idle block, idle since the younger part. */
static void idle_neighbours_are_shown_as_one(void **state)
{
    (void)state;
    uint64_t now = 1000000000000;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = read_clock;
    options.clock_context = &now;
    options.decay_ns = 0;
    berth_allocator *pool = make(&options);
    void *large = take(pool, 4 * MIB), *small = take(pool, 1000);
    void *between[3];
    for (int i = 0; i < 3; i++)
        between[i] = take(pool, MIB);
    now += 5000000000;
    for (int i = 0; i < 3; i++)
        give(pool, between[i]);
    give(pool, large);
    now += 1000000000;
    struct last_idle last = {0};
    assert_int_equal(berth_snapshot(pool, find_adjacent_idle, &last), BERTH_OK);
    assert_int_equal(last.adjacent, 0);
    assert_int_equal(last.blocks, 3); /* idle, live, idle */
    assert_true(last.age_ns <= 1000000000);
    give(pool, small);
    berth_allocator_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_find_what_is_left),
        cmocka_unit_test(an_allocation_that_fails_is_never_counted),
        cmocka_unit_test(a_failure_counts_cached_blocks_as_idle),
        cmocka_unit_test(a_size_that_does_not_fit_is_told_everywhere),
        cmocka_unit_test(the_last_free_races_the_release),
        cmocka_unit_test(snapshots_beside_allocations),
        cmocka_unit_test(memory_decays_beside_short_ways),
        cmocka_unit_test(idle_neighbours_are_shown_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

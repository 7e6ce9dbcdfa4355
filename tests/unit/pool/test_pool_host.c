/* The pool as the CPU's allocator: warnings, figures that can be switched, what a shortage is called and said,
 * and address space that is bounded. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berth/log.h"
#include "berth/source.h"
#include "berth/virtual.h"
#include "unit/pool/pool_test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* their shadow memory is address space too, and is written for every block */
#else
enum { SANITIZED = 0 };
#endif

static void figures_can_be_switched(void **state)
{
    (void)state;
    berth_allocator *pools[] = {berth_cpu_allocator(), make(NULL)};
    for (size_t i = 0; i < 2; i++) {
        berth_stats stats = {.struct_size = sizeof stats};
        uint64_t before = stats_of(pools[i]).bytes_in_use;
        assert_int_equal(berth_cpu_allocator_set_stats(pools[i], BERTH_STATS_OFF), BERTH_OK);
        assert_int_equal(berth_stats_get(pools[i], &stats), BERTH_UNSUPPORTED);
        assert_non_null(strstr(berth_last_error()->message, "switched off"));
        assert_int_equal(berth_stats_clear(pools[i]), BERTH_UNSUPPORTED);
        void *p = take(pools[i], 4096); /* counted all the same */
        assert_int_equal(berth_cpu_allocator_set_stats(pools[i], BERTH_STATS_BASIC), BERTH_OK);
        assert_int_equal(stats_of(pools[i]).bytes_in_use, before + 4096);
        give(pools[i], p);
        assert_int_equal(stats_of(pools[i]).bytes_in_use, before);
        assert_int_equal(berth_cpu_allocator_set_stats(pools[i], BERTH_STATS_FULL), BERTH_UNSUPPORTED);
    }
    berth_allocator_release(pools[1]);
}

struct heard {
    int large, total;
};

static void listen(void *context, berth_log_level level, const char *line)
{
    struct heard *heard = context;
    if (level != BERTH_LOG_WARNING || !strstr(line, "a warning and not a limit"))
        return;
    heard->large += strstr(line, "an allocation of") != NULL && strstr(line, "10%") != NULL;
    heard->total += strstr(line, "in use exceed 50%") != NULL;
}

/* Memory that nobody touches is only promised. */
static void large_allocations_and_totals_are_warned_of(void **state)
{
    (void)state;
    if (SANITIZED)
        return;
    size_t tenth = (size_t)sysconf(_SC_PHYS_PAGES) / 10 * (size_t)sysconf(_SC_PAGESIZE);
    struct heard heard = {0};
    berth_allocator *pool = make(NULL);
    void *blocks[5];
    berth_log_set(listen, &heard, BERTH_LOG_WARNING);
    give(pool, take(pool, tenth - tenth / 4));
    assert_int_equal(heard.large, 0);
    blocks[0] = take(pool, tenth + tenth / 8);
    assert_int_equal(heard.large, 1);
    assert_int_equal(heard.total, 0);
    for (size_t i = 1; i < 5; i++)
        blocks[i] = take(pool, tenth - tenth / 50);
    assert_int_equal(heard.large, 1);
    assert_int_equal(heard.total, 1);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    for (size_t i = 0; i < 5; i++)
        give(pool, blocks[i]);
    berth_allocator_release(pool);
}

static void a_shortage_of_the_host_is_called_so(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    for (int bounded = 0; bounded <= 1; bounded++) {
        options.reserve_bytes = bounded ? 64 * MIB : 0;
        berth_allocator *pool = make(&options);
        void *p = NULL;
        berth_status status = berth_allocate(pool, (size_t)1 << 46, 64, NULL, &p);
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        const char *words = berth_last_error()->message;
        assert_non_null(strstr(words, "64 TiB (70368744177664 bytes)"));
        assert_non_null(strstr(words, "more than the device's memory"));
        assert_null(strstr(words, "too much is live"));
        berth_allocator_release(pool);
    }
}

static void words_are_true_of_the_case(void **state)
{
    (void)state;
    berth_device device;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    berth_virtual_set_memory_limit(device, MIB);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = make(&options), *other = make(&options);
    void *p = NULL, *blocks[4], *held = take(other, 3 * MIB / 4);
    /* Nothing is live here; somebody else has the device. */
    assert_int_equal(berth_allocate(pool, MIB / 2, 64, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "a request without a label asked for 512 KiB (524288 bytes)"));
    assert_non_null(strstr(words, "nothing of this pool is in use"));
    assert_null(strstr(words, "too much"));
    assert_null(strstr(words, "waiting"));
    assert_int_equal(berth_allocate(pool, 2 * MIB, 64, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(berth_last_error()->message, "alone is more than the device's memory"));
    give(other, held);
    berth_allocator_release(other);
    /* Who holds the most, by label and not by block. */
    static const char *const labels[] = {"weights", "cache", "cache", "cache"};
    static const size_t sizes[] = {320 << 10, 128 << 10, 128 << 10, 128 << 10};
    berth_request request = BERTH_REQUEST_INIT;
    for (size_t i = 0; i < 4; i++) {
        request.label = labels[i];
        assert_int_equal(berth_allocate(pool, sizes[i], 64, &request, &blocks[i]), BERTH_OK);
    }
    assert_int_equal(berth_allocate(pool, MIB / 2, 64, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    words = berth_last_error()->message;
    assert_non_null(strstr(words, "too much is live. 704 KiB (720896 bytes) live"));
    assert_non_null(strstr(words, "cache holds the most, 384 KiB (393216 bytes)"));
    for (size_t i = 0; i < 4; i++)
        give(pool, blocks[i]);
    berth_allocator_release(pool);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);

    /* Another pool has the limit. */
    options = (berth_pool_options)BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 4 * MIB;
    other = make(&options);
    options.shares_limits_with = other;
    pool = make(&options);
    held = take(other, 4 * MIB);
    assert_int_equal(berth_allocate(pool, MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    words = berth_last_error()->message;
    assert_non_null(strstr(words, "the hard limit leaves no room"));
    assert_non_null(strstr(words, "other pools have 4 MiB (4194304 bytes)"));
    assert_int_equal(berth_allocate(pool, 5 * MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    assert_non_null(strstr(berth_last_error()->message, "alone is more than the pool's hard limit"));
    give(other, held);
    berth_allocator_release(pool);
    berth_allocator_release(other);
}

/* The least that stands in the way is named, not what lies beside the largest hole. One segment of 1 MiB:
 *
 *     left 4 | hole 200 | weights 300 | hole 160 | two of cache, 8 | hole 100 | cache 4 | hole 20 | right, to the end */
static void what_pins_a_hole_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *label; /* NULL: a hole */
        size_t kib;
    } parts[] = {{"left", 4},  {NULL, 200}, {"weights", 300}, {NULL, 160}, {"cache", 8},
                 {"cache", 8}, {NULL, 100}, {"cache", 4},     {NULL, 20},  {"right", 200}};
    enum { PARTS = BERTH_COUNT_OF(parts) };
    static _Alignas(4096) char region[MIB + 64 * KIB]; /* no room for a second segment */
    berth_allocator *fixed = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.upstream = fixed;
    options.segment_bytes = MIB;
    options.compacting = true; /* 4 KiB are small, and come from pieces: none is so small here */
    berth_allocator *pool = make(&options);
    void *blocks[PARTS], *p = NULL;
    for (size_t i = 0; i < PARTS; i++) {
        berth_request request = BERTH_REQUEST_INIT;
        request.label = parts[i].label;
        size_t size = (parts[i].kib << 10) + BERTH_ALIGNMENT;
        assert_int_equal(berth_allocate(pool, size, BERTH_ALIGNMENT, &request, &blocks[i]), BERTH_OK);
        assert_true(i == 0 || (char *)blocks[i] > (char *)blocks[i - 1]);
    }
    for (size_t i = 0; i < PARTS; i++)
        if (!parts[i].label)
            give(pool, blocks[i]);
    assert_int_equal(berth_allocate(pool, 250 * KIB, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "in pieces, the largest of 200 KiB (205056 bytes)"));
    assert_non_null(strstr(words, ", pinned by cache and 1 more with 16.5 KiB (16896 bytes). "));
    assert_int_equal(berth_allocate(pool, 110 * KIB, 64, NULL, &p), BERTH_OK);
    give(pool, p);
    /* With one of the two gone, the other and the one behind them stand in the way of more. */
    give(pool, blocks[4]);
    assert_int_equal(berth_allocate(pool, 285 * KIB, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_non_null(
        strstr(berth_last_error()->message, ", pinned by cache and 1 more with 12.5 KiB (12800 bytes). "));
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i].label && i != 4)
            give(pool, blocks[i]);
    berth_allocator_release(pool);
    berth_allocator_release(fixed);
}

static size_t address_space_taken(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a child whose address space ends `left` bytes from here; the number of what went wrong. */
static int live_within(size_t left)
{
    struct rlimit limit = {address_space_taken() + left, address_space_taken() + left};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 1;
    berth_allocator *pool = NULL, *second = NULL;
    if (berth_pool_create(NULL, &pool) != BERTH_OK || berth_pool_create(NULL, &second) != BERTH_OK)
        return 2;
    if (address_space_taken() > limit.rlim_cur - left / 2)
        return 3; /* they share, and leave the half */
    void *plain = malloc(left / 4), *p = NULL;
    if (!plain)
        return 4;
    free(plain);
    /* More than the share, less than what is left. */
    if (berth_allocate(pool, left * 3 / 8, 64, NULL, &p) != BERTH_OK)
        return 5;
    memset(p, 1, left * 3 / 8);
    if (berth_deallocate(pool, p, 0, NULL) != BERTH_OK || berth_trim(pool, 0, NULL) != BERTH_OK)
        return 6;
    if (berth_allocate(pool, 2 * left, 64, NULL, &p) != BERTH_OUT_OF_HOST_MEMORY)
        return 7;
    berth_allocator_release(second);
    berth_allocator_release(pool);
    return 0;
}

static void bounded_address_space_is_shared(void **state)
{
    (void)state;
    static const size_t lefts[] = {24 * MIB, 110 * MIB, 1024 * MIB};
    for (size_t i = 0; i < BERTH_COUNT_OF(lefts) && !SANITIZED; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(live_within(lefts[i]));
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_can_be_switched),
        cmocka_unit_test(large_allocations_and_totals_are_warned_of),
        cmocka_unit_test(a_shortage_of_the_host_is_called_so),
        cmocka_unit_test(words_are_true_of_the_case),
        cmocka_unit_test(what_pins_a_hole_is_named),
        cmocka_unit_test(bounded_address_space_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

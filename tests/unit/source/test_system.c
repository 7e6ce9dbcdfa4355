/* The system source: alignment, zeroed memory, reallocation, figures that can be hidden, warnings. */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/source.h"

static void *block_before_main;

__attribute__((constructor)) static void allocate_before_main(void)
{
    (void)berth_allocate(berth_cpu_allocator(), 100, 64, NULL, &block_before_main);
}

static berth_allocator *make(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &a), BERTH_OK);
    return a;
}

static berth_stats stats_of(berth_allocator *a)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats;
}

static void there_is_one_before_main(void **state)
{
    (void)state;
    assert_non_null(block_before_main);
    assert_ptr_equal(berth_cpu_allocator(), berth_cpu_allocator());
    assert_string_equal(berth_allocator_name(berth_cpu_allocator()), "pool"); /* registered above "system" */
    assert_int_equal(berth_deallocate(berth_cpu_allocator(), block_before_main, 100, NULL), BERTH_OK);
}

static void every_alignment_holds(void **state)
{
    (void)state;
    berth_allocator *a = make();
    for (size_t alignment = 1; alignment <= (size_t)1 << 22; alignment *= 2)
        for (size_t size = 1; size < 5000; size = size * 3 + 1) {
            void *p = NULL;
            assert_int_equal(berth_allocate(a, size, alignment, NULL, &p), BERTH_OK);
            assert_int_equal((uintptr_t)p % alignment, 0);
            memset(p, 0xff, size);
            size_t slow = 0;
            assert_int_equal(berth_allocated_size_slow(a, p, &slow), BERTH_OK);
            assert_true(slow >= size);
            assert_int_equal(berth_allocated_size(a, p, &slow), BERTH_UNSUPPORTED);
            assert_int_equal(berth_deallocate(a, p, size, NULL), BERTH_OK);
        }
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    berth_allocator_release(a);
}

static void zeroed_memory_is_zero(void **state)
{
    (void)state;
    berth_allocator *a = make();
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    for (size_t size = 1; size < (size_t)4 << 20; size = size * 5 + 3)
        for (int round = 0; round < 2; round++) { /* the second may get the first's dirty block */
            unsigned char *p = NULL;
            assert_int_equal(berth_allocate(a, size, 64, &zeroed, (void **)&p), BERTH_OK);
            for (size_t i = 0; i < size; i++)
                if (p[i] != 0)
                    fail_msg("byte %zu of %zu is not zero", i, size);
            memset(p, 0xee, size);
            assert_int_equal(berth_deallocate(a, p, size, NULL), BERTH_OK);
        }
    berth_allocator_release(a);
}

static void reallocation_keeps_what_fits(void **state)
{
    (void)state;
    berth_allocator *a = make();
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    unsigned char *p = NULL;
    size_t old = 0;
    const size_t sizes[] = {10, 1000, 100, 300000, 70, 5000000, 64},
                 alignments[] = {64, 1, 4096, 16, 256, 64};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes) * BERTH_COUNT_OF(alignments); i++) {
        size_t size = sizes[i % BERTH_COUNT_OF(sizes)],
               alignment = alignments[i % BERTH_COUNT_OF(alignments)];
        unsigned char *q = NULL;
        assert_int_equal(berth_reallocate(a, p, 0, size, alignment, &zeroed, (void **)&q), BERTH_OK);
        assert_int_equal((uintptr_t)q % alignment, 0);
        for (size_t k = 0; k < size; k += size < 5000 ? 1 : 997)
            assert_int_equal(q[k], k < old ? (unsigned char)(k * 7 + i - 1) : 0);
        for (size_t k = 0; k < size; k++)
            q[k] = (unsigned char)(k * 7 + i);
        assert_int_equal(stats_of(a).bytes_in_use, size);
        p = q;
        old = size;
    }
    void *gone = NULL;
    assert_int_equal(berth_reallocate(a, p, 0, (size_t)1 << 60, 64, NULL, &gone), BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(p[63], (unsigned char)(63 * 7 + 41)); /* the old block stays */
    assert_int_equal(berth_reallocate(a, p, 0, 0, 64, NULL, &gone), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    berth_allocator_release(a);
}

static void a_failure_is_not_an_allocation(void **state)
{
    (void)state;
    berth_allocator *a = make();
    void *p = a;
    assert_int_equal(berth_allocate(a, (size_t)1 << 60, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "1152921504606846976"));
    assert_int_equal(stats_of(a).num_allocs, 0);
    assert_int_equal(stats_of(a).max_bytes_in_use, 0);
    assert_int_equal(stats_of(a).num_failures, 1);
    berth_allocator_release(a);
}

static void hidden_figures_are_right_when_shown(void **state)
{
    (void)state;
    berth_allocator *a = make();
    void *p = NULL, *q = NULL;
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_allocate(a, 1000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_cpu_allocator_set_stats(a, BERTH_STATS_OFF), BERTH_OK);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocate(a, 500, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_cpu_allocator_set_stats(a, BERTH_STATS_BASIC), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, 500);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    assert_int_equal(berth_cpu_allocator_set_stats(a, BERTH_STATS_FULL), BERTH_UNSUPPORTED);
    assert_int_equal(berth_cpu_allocator_set_stats(NULL, BERTH_STATS_OFF), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
}

struct heard {
    int lines;
    char last[1024];
};

static void hear(void *context, berth_log_level level, const char *line)
{
    struct heard *heard = context;
    assert_int_equal(level, BERTH_LOG_WARNING);
    heard->lines++;
    strncpy(heard->last, line, sizeof heard->last - 1);
}

static void large_allocations_are_warned_of_and_granted(void **state)
{
    (void)state;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.large_warning_fraction = 1e-15; /* a byte or so */
    options.total_warning_fraction = -1;
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_OK);
    struct heard heard = {0};
    berth_log_set(hear, &heard, BERTH_LOG_WARNING);
    for (int i = 0; i < 100; i++) {
        void *p = NULL;
        assert_int_equal(berth_allocate(a, 4096, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(heard.lines, 7); /* 1, 2, 4, 8, 16, 32, 64 */
    assert_non_null(strstr(heard.last, "4096 bytes"));
    assert_non_null(strstr(heard.last, "a warning and not a limit"));
    berth_allocator_release(a);
}

static void a_large_total_is_warned_of(void **state)
{
    (void)state;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.total_warning_fraction = 1e-15;
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_OK);
    struct heard heard = {0};
    berth_log_set(hear, &heard, BERTH_LOG_WARNING);
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 4096, 64, NULL, &p), BERTH_OK);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.last, "a warning and not a limit"));
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
}

static void a_second_free_is_noticed(void **state)
{
    (void)state;
    berth_allocator *a = make();
    char *p = NULL;
    assert_int_equal(berth_allocate(a, 5000, 64, NULL, (void **)&p), BERTH_OK);
    memset(p, 1, 5000);
    assert_int_equal(berth_deallocate(a, p + 64, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(a, p + 1, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(stats_of(a).bytes_in_use, 0);
    berth_allocator_release(a);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    berth_allocator *a = (berth_allocator *)(uintptr_t)1;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    assert_int_equal(berth_cpu_allocator_create(&options, NULL), BERTH_INVALID_ARGUMENT);
    options.stats = (berth_stats_mode)9;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    options = (berth_cpu_options)BERTH_CPU_OPTIONS_INIT;
    options.struct_size = 3;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_one_before_main),
        cmocka_unit_test(every_alignment_holds),
        cmocka_unit_test(zeroed_memory_is_zero),
        cmocka_unit_test(reallocation_keeps_what_fits),
        cmocka_unit_test(a_failure_is_not_an_allocation),
        cmocka_unit_test(hidden_figures_are_right_when_shown),
        cmocka_unit_test(large_allocations_are_warned_of_and_granted),
        cmocka_unit_test(a_large_total_is_warned_of),
        cmocka_unit_test(a_second_free_is_noticed),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

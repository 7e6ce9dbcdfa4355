/* The dry run: figures, sizes and refusals as with memory, and no memory. */
#include "unit/wrap/wrap_test.h"

#include <sys/resource.h>

static void a_peak_is_learned_without_memory(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &a), BERTH_OK);
    const size_t tebibyte = (size_t)1 << 40;
    void *p = take(a, tebibyte), *q = take(a, 2 * tebibyte);
    assert_ptr_not_equal(p, q);
    assert_int_equal((uintptr_t)q % 64, 0);
    give(a, p);
    void *r = take(a, tebibyte / 2);
    assert_ptr_not_equal(r, p); /* a stale address stays stale */
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.max_bytes_in_use, 3 * tebibyte);
    assert_int_equal(stats.bytes_in_use, 2 * tebibyte + tebibyte / 2);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < 1 << 21); /* in KiB: nowhere near */
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    size_t size = 0;
    assert_int_equal(berth_requested_size(a, q, &size), BERTH_OK);
    assert_int_equal(size, 2 * tebibyte);
    assert_int_equal(berth_allocator_owns(a, (char *)q + tebibyte), BERTH_OK);
    void *moved = NULL;
    assert_int_equal(berth_reallocate(a, q, 0, 5 * tebibyte, 64, NULL, &moved), BERTH_OK);
    give(a, moved);
    give(a, r);
    berth_allocator_release(a);
}

static void the_machine_to_come_has_a_limit(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(1000, &a), BERTH_OK);
    void *p = take(a, 800), *q = NULL;
    assert_int_equal(berth_allocate(a, 300, 64, NULL, &q), BERTH_OVER_BUDGET);
    assert_non_null(strstr(berth_last_error()->message, "a machine with 1100"));
    give(a, p);
    berth_allocator_release(a);
}

/* Nothing reaches the bytes that are not there: operations refuse the device, wrappers do not write beside.
 */
static void nothing_touches_it(void **state)
{
    (void)state;
    berth_allocator *dry = NULL, *guard = (void *)1, *limit = NULL, *meter = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &dry), BERTH_OK);
    assert_int_equal(berth_guard_create(dry, NULL, &guard), BERTH_UNSUPPORTED);
    assert_null(guard);
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(1 << 20, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(dry, budget, &limit), BERTH_OK);
    assert_int_equal(berth_scope_meter_create(limit, &meter), BERTH_OK);
    void *p = take(meter, 1 << 20), *q = NULL;
    assert_int_equal(berth_allocate(meter, 1, 1, NULL, &q), BERTH_OVER_BUDGET);
    char byte = 0;
    assert_int_not_equal(berth_copy(berth_allocator_device(meter), p, &byte, 1, BERTH_COPY_INFER, NULL, true),
                         BERTH_OK);
    give(meter, p);
    berth_allocator_release(meter);
    berth_allocator_release(limit);
    berth_allocator_release(dry);
    berth_budget_release(budget);
}

static bool see(void *context, const berth_block *block)
{
    assert_string_equal(block->label, "layer");
    *(uint64_t *)context += block->requested_bytes;
    return true;
}

static void blocks_are_listed(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &a), BERTH_OK);
    void *p = NULL;
    BERTH_SCOPE("layer")
    p = take(a, 12345);
    uint64_t sum = 0, id = 0;
    assert_int_equal(berth_snapshot(a, see, &sum), BERTH_OK);
    assert_int_equal(sum, 12345);
    assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
    assert_int_equal(id, 1);
    uint64_t live = berth__heap_live();
    berth_allocator_release(a); /* with a live block: forgotten, not leaked */
    assert_true(berth__heap_live() < live);
}

static void a_refusal_keeps_nothing_of_the_limit(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    void *p = NULL;
    assert_int_equal(berth_dry_run_allocator_create(100, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK); /* prepares the rest */
    assert_int_equal(berth_deallocate(a, p, 100, NULL), BERTH_OK);
    berth__heap_fail_at(1, true);
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    berth__heap_fail_at(0, false);
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_deallocate(a, p, 100, NULL), BERTH_OK);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_is_learned_without_memory),
        cmocka_unit_test(the_machine_to_come_has_a_limit),
        cmocka_unit_test(nothing_touches_it),
        cmocka_unit_test(blocks_are_listed),
        cmocka_unit_test(a_refusal_keeps_nothing_of_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

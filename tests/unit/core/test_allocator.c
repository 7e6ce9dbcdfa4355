/* The front: bad input never reaches an operation, absent operations have their defined answers. */
#include "unit/core/recorder.h"

#include "base/base.h"
#include "berth/scope.h"
#include "core/allocator.h"

static void bad_tables_are_refused(void **state)
{
    (void)state;
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_allocator_create(NULL, NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(berth_allocator_create(&recorder_ops, NULL, NULL), BERTH_INVALID_ARGUMENT);
    const size_t sizes[] = {0, 8, offsetof(berth_allocator_ops, destroy), sizeof(berth_allocator_ops) - 1};
    for (size_t i = 0; i < BERTH_COUNT_OF(sizes); i++) {
        berth_allocator_ops ops = recorder_ops;
        ops.struct_size = sizes[i];
        assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_INVALID_ARGUMENT);
    }
    berth_allocator_ops half = recorder_ops;
    half.deallocate = NULL;
    assert_int_equal(berth_allocator_create(&half, NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "deallocate"));
}

static void a_table_from_an_older_header_works(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator_ops old = recorder_ops;
    old.struct_size = offsetof(berth_allocator_ops, reallocate);
    old.name = (void *)(uintptr_t)1; /* past the end of what this caller knows: never read */
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&old, &r, &a), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), "unnamed");
    berth_allocator_release(a);
    assert_int_equal(r.destroyed, 1);
}

static void bad_requests_reach_nobody(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    void *p = &r;
    assert_int_equal(berth_allocate(NULL, 8, 64, NULL, &p), BERTH_INVALID_ARGUMENT);
    assert_null(p);
    assert_int_equal(berth_allocate(a, 8, 64, NULL, NULL), BERTH_INVALID_ARGUMENT);
    const size_t alignments[] = {0, 3, (size_t)1 << 40};
    for (size_t i = 0; i < BERTH_COUNT_OF(alignments); i++) {
        berth_clear_last_error();
        p = &r;
        assert_int_equal(berth_allocate(a, 8, alignments[i], NULL, &p), BERTH_INVALID_ARGUMENT);
        assert_null(p);
        assert_non_null(strstr(berth_last_error()->message, "alignment"));
    }
    assert_int_equal(berth_allocate(a, SIZE_MAX, 64, NULL, &p), BERTH_OVERFLOW);
    assert_int_equal(berth_allocate(a, PTRDIFF_MAX, 64, NULL, &p), BERTH_OVERFLOW);
    berth_request half = {0};
    assert_int_equal(berth_allocate(a, 8, 64, &half, &p), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_deallocate(NULL, p, 0, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_deallocate(a, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(r.allocations, 0);
    assert_int_equal(r.last_size, 0);
    assert_int_equal(r.frees, 0);
    berth_allocator_release(a);
}

static bool always(void *self)
{
    (void)self;
    return true;
}

static void zero_bytes_are_null_unless_wanted(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    void *p = &r;
    assert_int_equal(berth_allocate(a, 0, 64, NULL, &p), BERTH_OK);
    assert_null(p);
    assert_int_equal(r.allocations, 0);
    berth_allocator_release(a);

    berth_allocator_ops ops = recorder_ops;
    ops.allocates_empty = always;
    assert_int_equal(berth_allocator_create(&ops, &r, &a), BERTH_OK);
    void *q = NULL;
    assert_int_equal(berth_allocate(a, 0, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocate(a, 0, 64, NULL, &q), BERTH_OK);
    assert_true(p && q && p != q);
    berth_deallocate(a, p, 0, NULL);
    berth_deallocate(a, q, 0, NULL);
    berth_allocator_release(a);
}

static void absent_operations_have_their_answers(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 8, 64, NULL, &p), BERTH_OK);
    size_t size = 77;
    uint64_t id = 77;
    assert_false(berth_allocator_tracks_sizes(a));
    assert_int_equal(berth_requested_size(a, p, &size), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocated_size_slow(a, p, &size), BERTH_UNSUPPORTED);
    assert_int_equal(size, 77);
    assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
    assert_int_equal(id, 0);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_UNSUPPORTED);
    assert_int_equal(berth_stats_clear(a), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocator_owns(a, p), BERTH_UNSUPPORTED);
    assert_int_equal(berth_allocator_owns(a, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_trim(a, 0, &size), BERTH_OK);
    assert_int_equal(size, 0);
    assert_int_equal(berth_allocator_device(a).kind, BERTH_DEVICE_CPU);
    assert_int_equal(berth_allocator_device(NULL).kind, BERTH_DEVICE_UNKNOWN);
    berth_deallocate(a, p, 8, NULL);
    berth_allocator_release(a);
}

static berth_status some_stats(void *self, berth_stats *out)
{
    (void)self;
    out->num_allocs = 1;
    out->fragmentation = 0.5;
    return BERTH_OK;
}

static void an_older_caller_gets_the_figures_it_knows(void **state)
{
    (void)state;
    berth_allocator_ops ops = recorder_ops;
    ops.stats = some_stats;
    struct recorder r = {0};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, &r, &a), BERTH_OK);
    berth_stats stats = {.struct_size = offsetof(berth_stats, bytes_in_use), .bytes_in_use = 99};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, 1);
    assert_int_equal(stats.bytes_in_use, 99);
    assert_int_equal(stats.struct_size, offsetof(berth_stats, bytes_in_use));
    stats.struct_size = 0;
    assert_int_equal(berth_stats_get(a, &stats), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
}

static void reallocate_moves_a_block_of_known_size(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    void *p = NULL;
    assert_int_equal(berth_reallocate(a, NULL, 0, 100, 64, NULL, &p), BERTH_OK);
    memset(p, 'x', 100);
    void *q = NULL;
    assert_int_equal(berth_reallocate(a, p, 0, 200, 64, NULL, &q), BERTH_UNSUPPORTED);
    assert_null(q);
    assert_int_equal(berth_reallocate(a, p, 100, 200, 64, NULL, &q), BERTH_OK);
    assert_int_equal(((char *)q)[99], 'x');
    assert_int_equal(r.allocations, 2);
    assert_int_equal(r.frees, 1);
    assert_int_equal(r.last_freed_size, 100);
    r.answer = BERTH_OVER_BUDGET;
    void *s = NULL;
    assert_int_equal(berth_reallocate(a, q, 200, 400, 64, NULL, &s), BERTH_OVER_BUDGET);
    assert_null(s);
    assert_int_equal(((char *)q)[99], 'x');
    assert_int_equal(berth_reallocate(a, q, 200, 0, 64, NULL, &s), BERTH_OK);
    assert_null(s);
    assert_int_equal(r.frees, 2);
    berth_allocator_release(a);
}

static void references_are_counted(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    assert_ptr_equal(berth_allocator_retain(a), a);
    berth_allocator_release(a);
    assert_int_equal(r.destroyed, 0);
    berth_allocator_release(a);
    assert_int_equal(r.destroyed, 1);
    berth_allocator_release(NULL);
    assert_null(berth_allocator_retain(NULL));
}

static void attributes_are_sets(void **state)
{
    (void)state;
    assert_int_equal(BERTH_ON_HOST, 1);
    assert_int_equal(BERTH_NIC_COMPATIBLE, 2);
    assert_int_equal(BERTH_GPU_COMPATIBLE, 4);
    assert_int_equal(BERTH_TRACK_SIZES, 8);
    berth_attributes both = berth_attributes_merge(BERTH_ON_HOST, (berth_attributes)1 << 24);
    assert_true(berth_attributes_within(BERTH_ON_HOST, both));
    assert_true(berth_attributes_within(both, both));
    assert_false(berth_attributes_within(both, BERTH_ON_HOST));
    assert_int_equal(berth_attributes_clear(both, BERTH_ON_HOST), 1u << 24);
}

static void the_innermost_scope_labels(void **state)
{
    (void)state;
    berth_request request = BERTH_REQUEST_INIT;
    assert_null(berth__request_label(&request));
    berth_scope outer, inner;
    berth_scope_begin(&outer, "model");
    berth_scope_begin(&inner, "layer 3");
    assert_string_equal(berth__request_label(&request), "layer 3");
    request.label = "own";
    assert_string_equal(berth__request_label(&request), "own");
    berth_scope_end(&inner);
    assert_string_equal(berth_scope_label(), "model");
    berth_scope_end(&outer);
    assert_null(berth_scope_label());
}

static void count_line(void *context, berth_log_level level, const char *line)
{
    (void)line;
    assert_int_equal(level, BERTH_LOG_WARNING);
    ++*(int *)context;
}

static void scopes_out_of_order_are_reported(void **state)
{
    (void)state;
    int lines = 0;
    berth_log_set(count_line, &lines, BERTH_LOG_WARNING);
    berth_scope outer, inner;
    berth_scope_begin(&outer, "a");
    berth_scope_begin(&inner, "b");
    berth_scope_end(&outer);
    assert_int_equal(lines, 1);
    assert_null(berth_scope_label());
    berth_scope_end(&inner);
    assert_int_equal(lines, 2);
    assert_null(berth_scope_label());
    berth_scope_end(NULL);
    assert_int_equal(lines, 2);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(a_table_from_an_older_header_works),
        cmocka_unit_test(bad_requests_reach_nobody),
        cmocka_unit_test(zero_bytes_are_null_unless_wanted),
        cmocka_unit_test(absent_operations_have_their_answers),
        cmocka_unit_test(an_older_caller_gets_the_figures_it_knows),
        cmocka_unit_test(reallocate_moves_a_block_of_known_size),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(attributes_are_sets),
        cmocka_unit_test(the_innermost_scope_labels),
        cmocka_unit_test(scopes_out_of_order_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A program as an older header would have compiled it: its tables and options end where those of version 0.1 did at the latest,
 * and beyond their end lies something else. Frozen: members that are added later are not added here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/berth.h"

#define BEYOND 0x5a

/* The first operations of the table, and nothing of what came after. */
struct table_3 {
    size_t struct_size;
    berth_status (*allocate)(void *, size_t, size_t, const berth_request *, void **);
    berth_status (*deallocate)(void *, void *, size_t, berth_stream *);
    void (*destroy)(void *);
    unsigned char beyond[256];
};

/* All up to `snapshot`, which was the last. */
struct table_19 {
    size_t struct_size;
    void *operations[19];
    unsigned char beyond[64];
};

struct pool_options {
    size_t struct_size;
    berth_device device;
    berth_memory_kind memory_kind;
    uint64_t hard_limit_bytes, soft_limit_bytes, decay_ns;
    double slack;
    bool compacting;
    size_t reserve_bytes, segment_bytes;
    berth_allocator *shares_limits_with;
    bool (*on_failure)(void *, size_t);
    void *on_failure_context;
    uint64_t (*clock_ns)(void *);
    void *clock_context;
    unsigned char beyond[64];
};

struct host_cache_options {
    size_t struct_size;
    berth_device device;
    double max_waste;
    uint64_t soft_limit_bytes, hard_limit_bytes;
    bool exact_peak;
    uint32_t background_us;
    uint64_t (*clock_ns)(void *);
    void *clock_context;
    const char *name;
    unsigned char beyond[64];
};

struct stats {
    size_t struct_size;
    uint64_t num_allocs, bytes_in_use;
    unsigned char beyond[256];
};

static berth_status heap_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)request;
    ++*(int *)self;
    return posix_memalign(out, alignment < 8 ? 8 : alignment, size_bytes) ? BERTH_OUT_OF_HOST_MEMORY
                                                                          : BERTH_OK;
}

static berth_status heap_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    --*(int *)self;
    free(p);
    return BERTH_OK;
}

static void heap_destroy(void *self)
{
    *(int *)self += 100;
}

static void use(berth_allocator *a)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 1000, 64, NULL, &p), BERTH_OK);
    memset(p, 1, 1000);
    assert_int_equal(berth_reallocate(a, p, 1000, 3000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(((char *)p)[999], 1);
    (void)berth_allocator_owns(a, p);
    (void)berth_trim(a, 0, NULL);
    assert_true(berth_allocator_granularity(a) >= 1);
    assert_int_equal(berth_deallocate(a, p, 3000, NULL), BERTH_OK);
}

static void the_shortest_table_works(void **state)
{
    (void)state;
    int live = 0;
    struct table_3 table = {
        offsetof(struct table_3, beyond), heap_allocate, heap_deallocate, heap_destroy, {0}};
    memset(table.beyond, BEYOND, sizeof table.beyond);
    berth_allocator *a = NULL, *tracker = NULL;
    assert_int_equal(berth_allocator_create((const berth_allocator_ops *)&table, &live, &a), BERTH_OK);
    use(a);
    assert_string_equal(berth_allocator_name(a), "unnamed");
    assert_int_equal(berth_tracking_create(a, NULL, &tracker), BERTH_OK);
    use(tracker);
    berth_allocator_release(tracker);
    berth_allocator_release(a);
    assert_int_equal(live, 100);
}

static void a_table_without_later_operations_works(void **state)
{
    (void)state;
    int live = 0;
    struct table_19 table = {offsetof(struct table_19, beyond), {0}, {0}};
    memcpy(&table.operations[0], &(void *){(void *)(uintptr_t)heap_allocate}, sizeof(void *));
    memcpy(&table.operations[1], &(void *){(void *)(uintptr_t)heap_deallocate}, sizeof(void *));
    memcpy(&table.operations[2], &(void *){(void *)(uintptr_t)heap_destroy}, sizeof(void *));
    memset(table.beyond, BEYOND, sizeof table.beyond);
    berth_allocator *a = NULL, *wrapped = NULL;
    assert_int_equal(berth_allocator_create((const berth_allocator_ops *)&table, &live, &a), BERTH_OK);
    use(a);
    struct table_19 nothing = {offsetof(struct table_19, beyond), {0}, {0}};
    memset(nothing.beyond, BEYOND, sizeof nothing.beyond);
    assert_int_equal(berth_wrapper_create(a, (const berth_allocator_ops *)&nothing, NULL, &wrapped),
                     BERTH_OK);
    use(wrapped);
    berth_allocator_release(wrapped);
    berth_allocator_release(a);
    assert_int_equal(live, 100);
}

static void older_options_work(void **state)
{
    (void)state;
    struct pool_options pool = {.struct_size = offsetof(struct pool_options, beyond),
                                .hard_limit_bytes = 1 << 20};
    memset(pool.beyond, BEYOND, sizeof pool.beyond);
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create((const berth_pool_options *)&pool, &a), BERTH_OK);
    use(a);
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 2 << 20, 64, NULL, &p), BERTH_OVER_BUDGET); /* what it said is heard */
    berth_allocator_release(a);
    struct host_cache_options cache = {.struct_size = offsetof(struct host_cache_options, beyond),
                                       .max_waste = 0.125};
    memset(cache.beyond, BEYOND, sizeof cache.beyond);
    assert_int_equal(berth_host_cache_create((const berth_host_cache_options *)&cache, &a), BERTH_OK);
    use(a);
    berth_allocator_release(a);
}

/* What is written ends where the caller's struct does. */
static void older_figures_are_not_overrun(void **state)
{
    (void)state;
    struct stats stats = {.struct_size = offsetof(struct stats, beyond)};
    memset(stats.beyond, BEYOND, sizeof stats.beyond);
    assert_int_equal(berth_stats_get(berth_cpu_allocator(), (berth_stats *)&stats), BERTH_OK);
    for (size_t i = 0; i < sizeof stats.beyond; i++)
        assert_int_equal(stats.beyond[i], BEYOND);
    struct {
        berth_report report;
        unsigned char more[8];
    } old = {.report = BERTH_REPORT_INIT};
    size_t length =
        offsetof(berth_report, straggler_bytes) + sizeof old.report.straggler_bytes; /* 0.1's last */
    memset((char *)&old + length, BEYOND, sizeof old - length);
    old.report.struct_size = length;
    berth_plan *plan = NULL;
    berth_allocator *planned = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(berth_cpu_allocator(), plan, &planned), BERTH_OK);
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    use(planned);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    assert_int_equal(berth_replay_begin(planned, NULL), BERTH_OK);
    use(planned);
    assert_int_equal(berth_replay_end(planned, &old.report), BERTH_OK);
    for (size_t i = length; i < sizeof old; i++)
        assert_int_equal(((unsigned char *)&old)[i], BEYOND);
    char text[1024];
    assert_true(berth_report_text(&old.report, text, sizeof text) > 0);
    berth_allocator_release(planned);
    berth_plan_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shortest_table_works),
        cmocka_unit_test(a_table_without_later_operations_works),
        cmocka_unit_test(older_options_work),
        cmocka_unit_test(older_figures_are_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

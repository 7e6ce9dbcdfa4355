/* Replaying into a shared arena: every allocation at its offset, where a reader of another process finds it. */
#include "shared_test.h"

#include "count/scope.h"

enum { FIRST = 3000, SECOND = 500 };

static void work(berth_allocator *a, char value)
{
    void *first = NULL, *second = NULL;
    assert_int_equal(berth_allocate(a, FIRST, 64, NULL, &first), BERTH_OK);
    memset(first, value, FIRST);
    assert_int_equal(berth_allocate(a, SECOND, 64, NULL, &second), BERTH_OK);
    memset(second, value + 1, SECOND);
    assert_int_equal(berth_deallocate(a, first, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, second, 0, NULL), BERTH_OK);
}

static berth_plan *recorded(void)
{
    berth_plan *plan = NULL;
    berth_allocator *planned = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(berth_cpu_allocator(), plan, &planned), BERTH_OK);
    BERTH_RECORD(planned)
    {
        work(planned, 1);
    }
    berth_allocator_release(planned);
    return plan;
}

static bool read_replayed(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_READ);
    return s && data_of(s, 0)[FIRST - 1] == 9 && data_of(s, 1)[0] == 10;
}

static void test_a_producer_replays_into_the_arena(void **state)
{
    (void)state;
    berth_plan *plan = recorded();
    berth_shared *s = NULL;
    berth_allocator *arena = NULL, *planned = NULL;
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, NULL, &arena), BERTH_OK);
    assert_int_equal(berth_planned_create(arena, plan, &planned), BERTH_OK);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(planned, &report)
    {
        work(planned, 9);
    }
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(report.by_fallback, 0);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    int descriptor = descriptor_of(s, BERTH_SHARED_READ), watch = watch_memory(descriptor);
    expect_good(start_child(read_replayed, &descriptor));
    close(descriptor);
    BERTH_REPLAY(planned, &report) /* what is not in the plan comes from elsewhere */
    {
        void *stranger = NULL;
        assert_int_equal(berth_allocate(planned, 77777, 64, NULL, &stranger), BERTH_OK);
        memset(stranger, 1, 77777);
        assert_int_equal(berth_deallocate(planned, stranger, 0, NULL), BERTH_OK);
    }
    assert_int_equal(report.by_fallback, 1);
    berth_shared_release(s);
    berth_allocator_release(arena);
    assert_false(has_gone(watch, 0));
    berth_allocator_release(planned);
    assert_true(has_gone(watch, GONE_MS));
    close(watch);
    berth_plan_release(plan);
}

static berth_stats stats_of(berth_allocator *a)
{
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats;
}

/* Figures are what the program allocated, whether a place of the arena serves it or another allocator. */
static void test_figures_are_the_programs(void **state)
{
    (void)state;
    enum { BESIDE = 1 << 20 };
    berth_plan *plan = recorded();
    berth_shared *s = NULL;
    berth_allocator *system = NULL, *arena = NULL, *planned = NULL;
    void *beside = NULL, *first = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, system, &arena), BERTH_OK);
    assert_int_equal(berth_planned_create(arena, plan, &planned), BERTH_OK);
    assert_int_equal(berth_allocate(planned, BESIDE, 64, NULL, &beside), BERTH_OK);
    assert_int_equal(stats_of(planned).bytes_in_use, BESIDE);
    BERTH_REPLAY(planned, NULL)
    {
        assert_int_equal(berth_allocate(planned, FIRST, 64, NULL, &first), BERTH_OK);
        assert_int_equal(stats_of(planned).bytes_in_use, BESIDE + FIRST);
        assert_int_equal(stats_of(planned).num_allocs, 2);
        assert_int_equal(berth_deallocate(planned, first, 0, NULL), BERTH_OK);
    }
    assert_int_equal(stats_of(planned).bytes_in_use, BESIDE);
    assert_int_equal(stats_of(planned).total_bytes, BESIDE + FIRST);
    assert_int_equal(stats_of(planned).max_bytes_in_use, BESIDE + FIRST);
    assert_true(stats_of(arena).bytes_in_use > BESIDE);
    assert_int_equal(berth_stats_clear(planned), BERTH_OK);
    assert_int_equal(stats_of(planned).bytes_in_use, BESIDE);
    assert_int_equal(stats_of(planned).max_bytes_in_use, BESIDE);
    assert_int_equal(stats_of(planned).num_allocs, 0);
    assert_int_equal(berth_deallocate(planned, beside, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(planned).bytes_in_use, 0);
    assert_int_equal(berth_trim(planned, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(arena).bytes_in_use, 0);
    berth_allocator_release(planned);
    berth_allocator_release(arena);
    berth_allocator_release(system);
    berth_shared_release(s);
    berth_plan_release(plan);
}

/* As a planned allocator asks for its block. */
static berth_status take_block(berth_allocator *a, size_t size_bytes, void **out)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.label = berth__label_uncounted;
    return berth_allocate(a, size_bytes, 64, &request, out);
}

static void test_the_arena_is_handed_out_once_and_to_its_owner(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *other = again(s, BERTH_SHARED_WRITE);
    size_t bytes = (size_t)info_of(s).total_bytes, size = 0;
    berth_allocator *a = NULL, *b = NULL;
    uint64_t id = 5;
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_shared_allocator_create(s, NULL, &a), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(other, NULL, &b), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), "shared");
    assert_int_equal(take_block(b, bytes, &q), BERTH_BUSY);
    assert_int_equal(take_block(a, bytes, &p), BERTH_OK);
    assert_int_equal(take_block(a, bytes, &q), BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_allocate(a, bytes - 1, 64, NULL, &q), BERTH_OK);
    assert_true(q != p && (char *)q + bytes != (char *)p);
    assert_int_equal(berth_requested_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(berth_requested_size(a, q, &size), BERTH_OK);
    assert_int_equal(size, bytes - 1);
    assert_int_equal(berth_allocated_size_slow(a, p, &size), BERTH_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
    assert_int_equal(berth_allocator_owns(a, (char *)p + bytes - 1), BERTH_OK);
    void *moved = NULL;
    assert_int_equal(berth_reallocate(a, p, bytes, bytes * 2, 64, NULL, &moved), BERTH_OK);
    assert_true(moved != p); /* an arena keeps its size: the block went to the other allocator */
    assert_int_equal(berth_deallocate(a, moved, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(take_block(a, bytes, &p), BERTH_OK);
    berth_shared_release(s);
    berth_allocator_release(a); /* the block keeps the arena */
    memset(p, 1, bytes);
    assert_int_equal(berth_shared_own(other), BERTH_BUSY);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(berth_shared_own(other), BERTH_OK);
    berth_allocator_release(b);
    berth_shared_release(other);
}

/* Two allocators of one handle have one arena: what one has handed out is not the other's to give or to free. */
static void test_two_allocators_share_the_one_block(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    size_t bytes = (size_t)info_of(s).total_bytes, size = 0;
    berth_allocator *a = NULL, *b = NULL;
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_shared_allocator_create(s, NULL, &a), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, NULL, &b), BERTH_OK);
    assert_int_equal(take_block(a, bytes, &p), BERTH_OK);
    assert_int_equal(take_block(b, bytes, &q), BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_deallocate(b, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_not_equal(berth_allocator_owns(b, p), BERTH_OK);
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(take_block(b, bytes, &q), BERTH_OK);
    assert_ptr_equal(q, p);
    assert_int_equal(berth_deallocate(b, q, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(b);
    berth_shared_release(s);
}

/* A program's request that happens to have the arena's size is another allocator's to serve, whoever owns the arena and whether it is
 * out; and it is not in a replay's way. */
static void test_a_request_of_the_arenas_size_is_not_the_arena(void **state)
{
    (void)state;
    berth_plan *plan = recorded();
    berth_shared *s = NULL, *other;
    berth_allocator *arena = NULL, *planned = NULL, *idle = NULL;
    berth_report report = BERTH_REPORT_INIT;
    void *before = NULL, *beside = NULL;
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    size_t bytes = (size_t)info_of(s).total_bytes;
    other = again(s, BERTH_SHARED_WRITE);
    assert_int_equal(berth_shared_allocator_create(other, NULL, &idle), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, NULL, &arena), BERTH_OK);
    assert_int_equal(berth_planned_create(arena, plan, &planned), BERTH_OK);
    assert_int_equal(berth_allocate(planned, bytes, 64, NULL, &before), BERTH_OK);
    BERTH_REPLAY(planned, &report)
    {
        work(planned, 1);
        assert_int_equal(berth_allocate(planned, bytes, 64, NULL, &beside), BERTH_OK);
        memset(beside, 1, bytes);
        assert_int_equal(berth_deallocate(planned, beside, 0, NULL), BERTH_OK);
    }
    assert_int_equal(report.from_plan, 2);
    assert_int_equal(berth_deallocate(planned, before, 0, NULL), BERTH_OK);
    assert_int_equal(berth_allocate(idle, bytes, 64, NULL, &beside), BERTH_OK);
    assert_int_equal(berth_deallocate(idle, beside, 0, NULL), BERTH_OK);
    berth_allocator_release(planned);
    berth_allocator_release(arena);
    berth_allocator_release(idle);
    berth_shared_release(other);
    berth_shared_release(s);
    berth_plan_release(plan);
}

/* The arena is reserved always, and in use while it is handed out. */
static void test_figures_have_the_arena(void **state)
{
    (void)state;
    enum { BESIDE = 5000 };
    berth_shared *s = usual_arena();
    const size_t bytes = (size_t)info_of(s).total_bytes;
    berth_allocator *system = NULL, *a = NULL;
    void *beside = NULL, *p = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, system, &a), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_reserved, stats_of(system).bytes_reserved + bytes);
    assert_int_equal(berth_allocate(a, BESIDE, 64, NULL, &beside), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, BESIDE);
    assert_int_equal(stats_of(a).max_bytes_in_use, BESIDE);
    assert_int_equal(take_block(a, bytes, &p), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, BESIDE + bytes);
    assert_int_equal(stats_of(a).num_allocs, 2);
    assert_int_equal(stats_of(a).max_alloc_size, bytes);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(a).bytes_in_use, BESIDE);
    assert_int_equal(stats_of(a).max_bytes_in_use, BESIDE + bytes);
    assert_int_equal(stats_of(a).total_bytes, BESIDE + bytes);
    assert_int_equal(berth_deallocate(a, beside, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(system);
    berth_shared_release(s);
}

/* A planned allocator keeps its block from run to run: the arena must not become read-only under it. */
static void test_what_replays_into_the_arena_keeps_it_writable(void **state)
{
    (void)state;
    berth_plan *plan = recorded();
    berth_shared *s = NULL;
    berth_allocator *arena = NULL, *planned = NULL;
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OK);
    assert_int_equal(berth_shared_allocator_create(s, NULL, &arena), BERTH_OK);
    assert_int_equal(berth_planned_create(arena, plan, &planned), BERTH_OK);
    for (char round = 1; round <= 2; round++) {
        BERTH_REPLAY(planned, &report)
        {
            work(planned, round);
        }
        assert_int_equal(report.from_plan, 2);
        assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
        assert_int_equal(berth_shared_disown(s), BERTH_BUSY);
        assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_BUSY);
        assert_non_null(strstr(berth_last_error()->message, "trim"));
        assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    }
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_trim(planned, 0, NULL), BERTH_OK);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    assert_int_equal(berth_replay_begin(planned, NULL),
                     BERTH_BUSY); /* refused, with words and not by a signal */
    berth_allocator_release(planned);
    berth_allocator_release(arena);
    berth_shared_release(s);
    berth_plan_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_producer_replays_into_the_arena),
        cmocka_unit_test(test_figures_are_the_programs),
        cmocka_unit_test(test_the_arena_is_handed_out_once_and_to_its_owner),
        cmocka_unit_test(test_two_allocators_share_the_one_block),
        cmocka_unit_test(test_a_request_of_the_arenas_size_is_not_the_arena),
        cmocka_unit_test(test_figures_have_the_arena),
        cmocka_unit_test(test_what_replays_into_the_arena_keeps_it_writable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

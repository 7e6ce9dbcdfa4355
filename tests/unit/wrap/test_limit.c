/* The limit: never exceeded, fully usable, shared; over every kind of inner allocator. */
#include "unit/wrap/wrap_test.h"

#include "berth/replay.h"
#include "gate.h"

static berth_allocator *limited(berth_allocator *inner, berth_budget *budget)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_limit_create(inner, budget, &a), BERTH_OK);
    berth_allocator_release(inner);
    return a;
}

static berth_budget *new_budget(uint64_t limit)
{
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(limit, &budget), BERTH_OK);
    return budget;
}

/* The same promises whether the size comes from a header, from tracking, or from a note of the limit's own.
 */
static void check_counting(berth_allocator *inner)
{
    berth_budget *budget = new_budget(1000);
    berth_allocator *a = limited(inner, budget);
    void *p = take(a, 600), *q = take(a, 400);
    memset(p, 1, 600);
    memset(q, 2, 400);
    assert_int_equal(berth_budget_in_use(budget), 1000);
    void *r = (void *)1;
    assert_int_equal(berth_allocate(a, 1, 1, NULL, &r), BERTH_OVER_BUDGET);
    assert_null(r);
    assert_non_null(strstr(berth_last_error()->message, "budget of 1000 bytes"));
    give(a, q);
    assert_int_equal(berth_budget_in_use(budget), 600);
    assert_int_equal(berth_deallocate(a, p, 600, NULL), BERTH_OK);
    assert_int_equal(berth_budget_in_use(budget), 0);
    give(a, take(a, 1000)); /* all of it, at once */
    p = take(a, 100);
    memset(p, 7, 100);
    void *moved = NULL;
    assert_int_equal(berth_reallocate(a, p, 100, 300, 64, NULL, &moved), BERTH_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((unsigned char *)moved)[i], 7);
    assert_int_equal(berth_budget_in_use(budget), 300);
    give(a, moved);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(a);
    berth_budget_release(budget);
}

/* What the inner allocator does not give, or does not take back, is not counted. */
static void check_failing(berth_allocator *inner)
{
    berth_budget *budget = new_budget((uint64_t)1 << 61);
    berth_allocator *a = limited(inner, budget);
    void *p = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_allocate(a, (size_t)1 << 60, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
        assert_int_equal(berth_budget_in_use(budget), 0);
    }
    berth_allocator_release(a);
    berth_budget_release(budget);
}

static void failures_cost_nothing(void **state)
{
    (void)state;
    check_failing(new_system());
    check_failing(new_tracker());
    check_failing(new_plain());
}

/* Notes lie in front of plain memory or, of a large block, in a map; of addresses without memory all are in the
 * map; a tracker is asked. */
static void check_refused_frees(berth_allocator *behind, size_t size_bytes)
{
    struct keeper keeper = {.behind = behind};
    berth_allocator *inner = new_keeper(&keeper);
    berth_budget *budget = new_budget(1 << 20);
    berth_allocator *layers[2] = {limited(berth_allocator_retain(inner), budget), NULL};
    assert_int_equal(berth_scope_meter_create(inner, &layers[1]), BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++) {
        keeper.open = false;
        void *p = take(layers[i], size_bytes);
        for (int turn = 0; turn < 3; turn++)
            assert_int_equal(berth_deallocate(layers[i], p, 0, NULL), BERTH_BUSY);
        assert_int_equal(berth_budget_in_use(budget), i == 0 ? size_bytes : 0);
        keeper.open = true;
        give(layers[i], p);
        assert_int_equal(berth_budget_in_use(budget), 0);
        berth_allocator_release(layers[i]);
    }
    berth_allocator_release(inner);
    berth_allocator_release(behind);
    berth_budget_release(budget);
}

static berth_allocator *new_dry_run(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(1 << 20, &a), BERTH_OK);
    return a;
}

/* It stays counted, and it can still be freed. */
static void what_is_not_taken_back_stays_known(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    check_refused_frees(new_plain(), 600);
    check_refused_frees(new_plain(), 600000);
    check_refused_frees(new_dry_run(), 600);
    check_refused_frees(new_tracker(), 600);
    assert_int_equal(berth__heap_live(), live);
}

/* What a scope hands out its stream may still fill, or be at work on: what is known of a block lies elsewhere. */
static void streams_overwrite_no_notes(void **state)
{
    (void)state;
    berth_plan *plan = NULL;
    berth_allocator *system = new_system(), *planned = NULL;
    berth_stream *stream = NULL;
    berth_budget *budget = new_budget(1 << 20);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(system, plan, &planned), BERTH_OK);
    berth_allocator *layers[2] = {limited(berth_allocator_retain(planned), budget), NULL};
    assert_int_equal(berth_scope_meter_create(planned, &layers[1]), BERTH_OK);
    berth_request request = {.struct_size = sizeof request, .flags = BERTH_ZEROED, .stream = stream};
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++) {
        void *p = NULL;
        BERTH_RECORD(planned) give(layers[i], take(layers[i], 1000));
        gate shut = GATE_INIT;
        assert_int_equal(berth_stream_call(stream, gate_stop, &shut), BERTH_OK);
        berth_report report = BERTH_REPORT_INIT;
        BERTH_REPLAY(planned, &report)
        {
            assert_int_equal(berth_allocate(layers[i], 1000, 64, &request, &p), BERTH_OK);
            gate_open(&shut);
            assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
            give(layers[i], p);
        }
        assert_int_equal(report.from_plan, 1);
        assert_int_equal(berth_budget_in_use(budget), 0);
        berth_allocator_release(layers[i]);
    }
    berth_allocator_release(planned);
    berth_allocator_release(system);
    berth_plan_release(plan);
    berth_stream_destroy(stream);
    berth_budget_release(budget);
}

static void counts_what_was_asked_for(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    check_counting(new_system());
    check_counting(new_tracker());
    check_counting(new_plain());
    assert_int_equal(berth__heap_live(), live);
}

static void several_allocators_share_a_budget(void **state)
{
    (void)state;
    berth_budget *budget = new_budget(1000);
    berth_allocator *a = limited(new_system(), budget), *b = limited(new_plain(), budget);
    void *p = take(a, 700), *q = NULL;
    assert_int_equal(berth_allocate(b, 301, 64, NULL, &q), BERTH_OVER_BUDGET);
    q = take(b, 300);
    give(a, p);
    p = take(b, 700);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_limit, 1000);
    assert_int_equal(stats.num_failures, 1);
    give(b, p);
    give(b, q);
    berth_allocator_release(a);
    berth_allocator_release(b);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_budget_release(budget);
}

static void a_failure_beneath_costs_nothing(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char region[16384];
    berth_allocator *fixed = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    berth_budget *budget = new_budget(1 << 20);
    berth_allocator *a = limited(fixed, budget);
    void *p = NULL;
    assert_int_not_equal(berth_allocate(a, 1 << 16, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_budget_in_use(budget), 0);
    assert_int_equal(berth_deallocate(a, region + 512, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(a);
    berth_budget_release(budget);
}

/* For a limit that may come later: counted, and no figure speaks of a limit. */
static void a_budget_may_only_count(void **state)
{
    (void)state;
    berth_allocator *inner = NULL;
    assert_int_equal(berth_pool_create(NULL, &inner), BERTH_OK);
    berth_budget *budget = new_budget(BERTH_BUDGET_UNLIMITED);
    berth_allocator *a = limited(inner, budget);
    berth_stats stats = {.struct_size = sizeof stats};
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 1000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_limit, 0);
    assert_int_equal(berth_budget_in_use(budget), 1000);
    void *none = NULL;
    assert_int_equal(berth_allocate(a, (size_t)1 << 62, 64, NULL, &none), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(none);
    assert_int_equal(berth_budget_set_limit(budget, 1500), BERTH_OK);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_limit, 1500);
    assert_int_equal(berth_budget_set_limit(budget, BERTH_BUDGET_UNLIMITED + 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
    berth_allocator_release(a);
    berth_budget_release(budget);
}

static void a_changed_limit_holds_at_once(void **state)
{
    (void)state;
    berth_budget *budget = new_budget(1000);
    berth_allocator *a = limited(new_system(), budget);
    void *p = take(a, 800), *q = NULL;
    assert_int_equal(berth_budget_set_limit(budget, 500), BERTH_OK);
    assert_int_equal(berth_allocate(a, 1, 1, NULL, &q), BERTH_OVER_BUDGET);
    give(a, p);
    assert_int_equal(berth_allocate(a, 501, 64, NULL, &q), BERTH_OVER_BUDGET);
    give(a, take(a, 500));
    assert_int_equal(berth_budget_set_limit(budget, 0), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
    berth_budget_release(budget);
}

/* ---- Threads ------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 4000, HELD = 8, LIMIT = 40 << 10 };

struct hammer {
    berth_allocator *a;
    _Atomic int64_t *live;
    _Atomic int64_t *worst;
    unsigned seed;
};

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Counts what it has itself: after the allocation, and before the free, so that the sum is never too large.
 */
static void *hammer(void *context)
{
    struct hammer *h = context;
    void *held[HELD] = {0};
    size_t sizes[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        unsigned at = next_random(&h->seed) % HELD;
        if (held[at]) {
            atomic_fetch_sub(h->live, (int64_t)sizes[at]);
            berth_deallocate(h->a, held[at], round % 2 ? sizes[at] : 0, NULL);
            held[at] = NULL;
            continue;
        }
        sizes[at] = 1 + next_random(&h->seed) % 20000;
        if (berth_allocate(h->a, sizes[at], 64, NULL, &held[at]) != BERTH_OK)
            continue;
        int64_t now = atomic_fetch_add(h->live, (int64_t)sizes[at]) + (int64_t)sizes[at];
        int64_t worst = atomic_load(h->worst);
        while (now > worst && !atomic_compare_exchange_weak(h->worst, &worst, now))
            ;
    }
    for (int at = 0; at < HELD; at++)
        if (held[at]) {
            atomic_fetch_sub(h->live, (int64_t)sizes[at]);
            berth_deallocate(h->a, held[at], 0, NULL);
        }
    return NULL;
}

static void threads_never_exceed_it(void **state)
{
    (void)state;
    berth_budget *budget = new_budget(LIMIT);
    berth_allocator *a = limited(new_system(), budget);
    _Atomic int64_t live = 0, worst = 0;
    pthread_t threads[THREADS];
    struct hammer hammers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        hammers[i] = (struct hammer){a, &live, &worst, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &hammers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(worst <= LIMIT);
    assert_int_equal(berth_budget_in_use(budget), 0);
    /* Credit that those threads kept does not make the whole budget fail. */
    give(a, take(a, LIMIT));
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_true(stats.num_failures > 0); /* the limit was reached, so the test has seen it work */
    berth_allocator_release(a);
    berth_budget_release(budget);
}

/* Who looks into the source's header does so at any pointer; the source says what is wrong with it. */
static void a_crooked_pointer_reaches_the_source(void **state)
{
    (void)state;
    berth_budget *budget = new_budget(1000);
    berth_allocator *system = new_system(),
                    *over[2] = {limited(berth_allocator_retain(system), budget), NULL};
    assert_int_equal(berth_scope_meter_create(system, &over[1]), BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT_OF(over); i++) {
        char *p = take(over[i], 100);
        assert_int_equal(berth_deallocate(over[i], p + 1, 0, NULL), BERTH_BAD_FREE);
        give(over[i], p);
        berth_allocator_release(over[i]);
    }
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(system);
    berth_budget_release(budget);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    berth_budget *budget = (void *)1;
    assert_int_equal(berth_budget_create(0, &budget), BERTH_INVALID_ARGUMENT);
    assert_null(budget);
    assert_int_equal(berth_budget_create(1, NULL), BERTH_INVALID_ARGUMENT);
    /* The words name the largest that is taken. */
    assert_int_equal(berth_budget_create(UINT64_C(1) << 62, &budget), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "from 1 to 2^62 - 1"));
    berth_budget *largest = NULL;
    assert_int_equal(berth_budget_create((UINT64_C(1) << 62) - 1, &largest), BERTH_OK);
    assert_int_equal(berth_budget_set_limit(largest, UINT64_C(1) << 62), BERTH_INVALID_ARGUMENT);
    berth_budget_release(largest);
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_limit_create(berth_cpu_allocator(), NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_budget_in_use(NULL), 0);
    berth_budget_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_was_asked_for),
        cmocka_unit_test(failures_cost_nothing),
        cmocka_unit_test(what_is_not_taken_back_stays_known),
        cmocka_unit_test(streams_overwrite_no_notes),
        cmocka_unit_test(several_allocators_share_a_budget),
        cmocka_unit_test(a_failure_beneath_costs_nothing),
        cmocka_unit_test(a_budget_may_only_count),
        cmocka_unit_test(a_changed_limit_holds_at_once),
        cmocka_unit_test(threads_never_exceed_it),
        cmocka_unit_test(a_crooked_pointer_reaches_the_source),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

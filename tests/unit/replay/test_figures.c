/* The planned allocator's own figures: whatever a run does, they are what the program allocated [R11]. */
#include <pthread.h>

#include "rig.h"

enum { UNIT = 1024, MOST_LIVE = 24, CALLS = 60 };

typedef struct house {
    berth_allocator *source, *metered, *tracked, *planned;
    berth_plan *plan;
} house;

static void house_begin_over(house *h, berth_allocator *source)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    h->source = source;
    assert_int_equal(berth_scope_meter_create(h->source, &h->metered), BERTH_OK);
    assert_int_equal(berth_tracking_create(h->metered, &options, &h->tracked), BERTH_OK);
    assert_int_equal(berth_plan_create(&h->plan), BERTH_OK);
    assert_int_equal(berth_planned_create(h->tracked, h->plan, &h->planned), BERTH_OK);
}

static void house_begin(house *h)
{
    berth_allocator *source = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &source), BERTH_OK);
    house_begin_over(h, source);
}

static void house_end(house *h)
{
    berth_allocator_release(h->planned);
    berth_plan_release(h->plan);
    berth_stats left = {.struct_size = sizeof left};
    assert_int_equal(berth_stats_get(h->tracked, &left), BERTH_OK);
    assert_int_equal(left.bytes_in_use, 0);
    berth_allocator_release(h->tracked);
    berth_allocator_release(h->metered);
    berth_allocator_release(h->source);
}

static void *get(house *h, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(h->planned, size, 64, NULL, &p), BERTH_OK);
    return p;
}

static void put(house *h, void *p)
{
    assert_int_equal(berth_deallocate(h->planned, p, 0, NULL), BERTH_OK);
}

static berth_stats stats_of(house *h)
{
    berth_stats now = {.struct_size = sizeof now};
    assert_int_equal(berth_stats_get(h->planned, &now), BERTH_OK);
    return now;
}

/* ---- One run, call by call ---------------------------------------------------------------------------- */

static void work(house *h)
{
    void *a = get(h, 4 * UNIT);
    void *b = get(h, 2 * UNIT);
    put(h, a);
    void *c = get(h, 8 * UNIT);
    put(h, b);
    put(h, c);
}

static void test_a_run_in_step(void **state)
{
    (void)state;
    house h;
    house_begin(&h);
    void *weights = get(&h, 3 * UNIT);
    BERTH_RECORD(h.planned)
    {
        work(&h);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_stats_clear(h.planned), BERTH_OK);
        BERTH_REPLAY(h.planned, NULL)
        {
            void *a = get(&h, 4 * UNIT);
            assert_int_equal(stats_of(&h).bytes_in_use, 7 * UNIT);
            void *b = get(&h, 2 * UNIT);
            put(&h, a);
            void *c = get(&h, 8 * UNIT);
            assert_int_equal(stats_of(&h).bytes_in_use, 13 * UNIT);
            put(&h, b);
            put(&h, c);
            assert_int_equal(stats_of(&h).num_allocs, 3);
        }
        berth_stats now = stats_of(&h);
        assert_int_equal(now.num_allocs, 3);
        assert_int_equal(now.total_bytes, 14 * UNIT);
        assert_int_equal(now.bytes_in_use, 3 * UNIT);
        assert_int_equal(now.max_bytes_in_use, 13 * UNIT);
        assert_int_equal(now.max_alloc_size, 8 * UNIT);
    }
    put(&h, weights);
    house_end(&h);
}

static void test_scopes_see_what_is_replayed(void **state)
{
    (void)state;
    house h;
    house_begin(&h);
    BERTH_RECORD(h.planned)
    {
        work(&h);
    }
    for (int i = 0; i < 3; i++) {
        berth_scope whole, first;
        uint64_t held = 0, peak = 0;
        berth_scope_begin(&whole, "figures: whole");
        berth_replay_begin(h.planned, NULL);
        berth_scope_begin(&first, "figures: first");
        void *a = get(&h, 4 * UNIT);
        void *b = get(&h, 2 * UNIT);
        assert_int_equal(berth_scope_peak_bytes(&first), 6 * UNIT);
        put(&h, a);
        berth_scope_end(&first);
        berth_scope_thread_bytes(&held, &peak);
        assert_int_equal(held, 2 * UNIT);
        void *c = get(&h, 8 * UNIT);
        put(&h, b);
        put(&h, c);
        assert_int_equal(berth_replay_end(h.planned, NULL), BERTH_OK);
        berth_scope_end(&whole);
        assert_int_equal(berth_scope_peak_bytes(&first), 6 * UNIT);
        assert_int_equal(berth_scope_peak_bytes(&whole), 10 * UNIT);
        berth_scope_thread_bytes(&held, &peak);
        assert_int_equal(held, 0);
    }
    berth_scope again; /* all at once, from the plan's own sums */
    berth_scope_begin(&again, "figures: again");
    BERTH_REPLAY(h.planned, NULL)
    {
        work(&h);
    }
    berth_scope_end(&again);
    assert_int_equal(berth_scope_peak_bytes(&again), 10 * UNIT);
    house_end(&h);
}

static void test_what_outlives_its_run_counts_until_it_is_freed(void **state)
{
    (void)state;
    house h;
    house_begin(&h);
    BERTH_RECORD(h.planned)
    {
        work(&h);
    }
    berth_scope scope;
    berth_scope_begin(&scope, "figures: straggler");
    void *kept = NULL;
    BERTH_REPLAY(h.planned, NULL)
    {
        kept = get(&h, 4 * UNIT);
    }
    assert_int_equal(stats_of(&h).bytes_in_use, 4 * UNIT);
    assert_int_equal(berth_scope_held_bytes(&scope), 4 * UNIT);
    BERTH_REPLAY(h.planned, NULL)
    {
        work(&h);
    }
    assert_int_equal(stats_of(&h).bytes_in_use, 4 * UNIT);
    put(&h, kept);
    assert_int_equal(stats_of(&h).bytes_in_use, 0);
    assert_int_equal(berth_scope_held_bytes(&scope), 0);
    berth_scope_end(&scope);
    house_end(&h);
}

/* A pool takes the lowest place that fits, so that what a run has beside its block can lie between that and where another block
 * lay: an address there tells nothing. */
static void test_what_lies_between_blocks_counts(void **state)
{
    (void)state;
    enum { BIG = 64 * UNIT };
    house h;
    berth_allocator *pool = NULL;
    assert_int_equal(berth_pool_create(NULL, &pool), BERTH_OK);
    house_begin_over(&h, pool);
    BERTH_RECORD(h.planned)
    {
        put(&h, get(&h, BIG));
    }
    void *first = NULL;
    BERTH_REPLAY(h.planned, NULL)
    {
        first = get(&h, BIG);
        put(&h, first);
    }
    void *wall = get(&h, BIG);
    BERTH_RECORD(h.planned)
    {
        put(&h, get(&h, 4 * BIG));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(berth_stats_clear(h.planned), BERTH_OK);
        BERTH_REPLAY(h.planned, NULL)
        {
            void *planned = get(&h, 4 * BIG);
            void *beside = get(&h, BIG);
            assert_true(first <= beside && beside < wall && wall < planned);
            put(&h, beside);
            put(&h, planned);
            if (i == 1)
                put(&h, wall);
            put(&h, get(&h, 2 * BIG));
        }
        assert_int_equal(stats_of(&h).max_bytes_in_use, 6 * BIG);
    }
    assert_int_equal(stats_of(&h).bytes_in_use, 0);
    house_end(&h);
}

typedef struct visited {
    size_t count;
    uint64_t bytes;
} visited;

static bool see(void *context, const berth_block *block)
{
    visited *all = context;
    all->count++;
    all->bytes += block->requested_bytes;
    assert_true((uintptr_t)block->address >= block->segment);
    return true;
}

static void check_visit(house *h, size_t count, uint64_t bytes)
{
    visited all = {0, 0};
    assert_int_equal(berth_planned_visit(h->planned, see, &all), BERTH_OK);
    assert_int_equal(all.count, count);
    assert_int_equal(all.bytes, bytes);
}

static void test_what_is_live_is_shown(void **state)
{
    (void)state;
    house h;
    house_begin(&h);
    BERTH_RECORD(h.planned)
    {
        work(&h);
    }
    check_visit(&h, 0, 0);
    void *kept = NULL, *other = NULL;
    BERTH_REPLAY(h.planned, NULL)
    {
        kept = get(&h, 4 * UNIT);
        other = get(&h, 2 * UNIT);
        check_visit(&h, 2, 6 * UNIT);
        put(&h, kept);
        check_visit(&h, 1, 2 * UNIT);
        kept = get(&h, 64 * UNIT); /* not of the plan: the run is tracked */
        check_visit(&h, 1, 2 * UNIT);
    }
    check_visit(&h, 1, 2 * UNIT);
    put(&h, kept);
    put(&h, other);
    check_visit(&h, 0, 0);
    assert_int_equal(berth_planned_visit(h.tracked, see, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_planned_visit(h.planned, NULL, NULL), BERTH_INVALID_ARGUMENT);
    house_end(&h);
}

/* ---- Seen by another thread --------------------------------------------------------------------------- */

typedef struct watcher {
    house *h;
    berth_stats seen;
} watcher;

static void *watch(void *context)
{
    watcher *w = context;
    w->seen = stats_of(w->h);
    return NULL;
}

static berth_stats seen_elsewhere(house *h)
{
    watcher w = {.h = h};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return w.seen;
}

static void test_another_thread_sees_a_run(void **state)
{
    (void)state;
    house h;
    house_begin(&h);
    BERTH_RECORD(h.planned)
    {
        work(&h);
    }
    assert_int_equal(berth_stats_clear(h.planned), BERTH_OK);
    BERTH_REPLAY(h.planned, NULL)
    {
        void *a = get(&h, 4 * UNIT);
        void *b = get(&h, 2 * UNIT);
        berth_stats in_step = seen_elsewhere(&h);
        assert_int_equal(in_step.bytes_in_use, 6 * UNIT);
        assert_int_equal(in_step.num_allocs, 2);
        void *stranger = get(&h, 64 * UNIT);
        berth_stats tracked = seen_elsewhere(&h);
        assert_int_equal(tracked.bytes_in_use, 70 * UNIT);
        assert_int_equal(tracked.num_allocs, 3);
        put(&h, stranger);
        put(&h, a);
        put(&h, b);
    }
    assert_int_equal(seen_elsewhere(&h).bytes_in_use, 0);
    house_end(&h);
}

/* ---- Whatever a run does ------------------------------------------------------------------------------ */

typedef struct model {
    void *live[MOST_LIVE];
    size_t sizes[MOST_LIVE];
    size_t count;
    uint64_t in_use, peak, allocs, total;
} model;

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 33;
}

static void model_get(model *m, house *h, size_t size)
{
    m->live[m->count] = get(h, size);
    m->sizes[m->count++] = size;
    m->in_use += size;
    m->total += size;
    m->allocs++;
    m->peak = m->in_use > m->peak ? m->in_use : m->peak;
}

static void model_put(model *m, house *h, size_t at)
{
    put(h, m->live[at]);
    m->in_use -= m->sizes[at];
    m->live[at] = m->live[--m->count];
    m->sizes[at] = m->sizes[m->count];
}

/* A program of its seed; with `strange` some of its calls are others. */
static void run_model(model *m, house *h, uint64_t seed, uint64_t strange)
{
    for (int i = 0; i < CALLS; i++) {
        bool other = strange && next_random(&strange) % 8 == 0;
        uint64_t choice = next_random(&seed), size = (1 + next_random(&seed) % 12) * UNIT;
        if (other)
            size += 16 * UNIT;
        if (m->count == MOST_LIVE || (m->count && choice % 5 < 2))
            model_put(m, h, (choice >> 8) % m->count);
        else if (!other || choice % 3)
            model_get(m, h, size);
    }
}

static void check_model(const model *m, house *h, const berth_scope *scope)
{
    berth_stats now = stats_of(h);
    assert_int_equal(now.bytes_in_use, m->in_use);
    assert_int_equal(now.max_bytes_in_use, m->peak);
    assert_int_equal(now.num_allocs, m->allocs);
    assert_int_equal(now.total_bytes, m->total);
    assert_int_equal(berth_scope_held_bytes(scope), m->in_use);
    assert_int_equal(berth_scope_peak_bytes(scope), m->peak);
}

static void test_any_program(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        house h;
        model m = {.count = 0};
        house_begin(&h);
        berth_scope scope;
        berth_scope_begin(&scope, "figures: any program");
        BERTH_RECORD(h.planned)
        {
            run_model(&m, &h, seed, 0);
            for (; m.count > seed % 3;)
                model_put(&m, &h, m.count - 1);
        }
        check_model(&m, &h, &scope);
        for (uint64_t run = 0; run < 6; run++) {
            BERTH_REPLAY(h.planned, NULL)
            {
                run_model(&m, &h, seed, run % 3 ? seed * 31 + run : 0);
                check_model(&m, &h, &scope);
                for (; m.count > (seed + run) % 4;)
                    model_put(&m, &h, m.count - 1);
            }
            check_model(&m, &h, &scope);
        }
        for (; m.count;)
            model_put(&m, &h, m.count - 1);
        check_model(&m, &h, &scope);
        berth_scope_end(&scope);
        house_end(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_in_step),
        cmocka_unit_test(test_scopes_see_what_is_replayed),
        cmocka_unit_test(test_what_outlives_its_run_counts_until_it_is_freed),
        cmocka_unit_test(test_what_lies_between_blocks_counts),
        cmocka_unit_test(test_what_is_live_is_shown),
        cmocka_unit_test(test_another_thread_sees_a_run),
        cmocka_unit_test(test_any_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

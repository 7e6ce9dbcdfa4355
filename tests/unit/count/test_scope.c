/* Scopes: labels, true peaks of scopes, labels and threads, also when others free and when threads share a
 * label. */
#include "unit/wrap/wrap_test.h"

static berth_allocator *new_meter(berth_allocator *inner)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_scope_meter_create(inner, &a), BERTH_OK);
    berth_allocator_release(inner);
    return a;
}

struct lookup {
    const char *label;
    berth_scope_figures figures;
    int count;
};

static bool look(void *context, const berth_scope_figures *figures)
{
    struct lookup *l = context;
    if (strcmp(figures->label, l->label) == 0) {
        l->figures = *figures;
        l->count++;
    }
    return true;
}

static berth_scope_figures figures_of(const char *label)
{
    struct lookup l = {.label = label};
    assert_int_equal(berth_scope_visit(look, &l), BERTH_OK);
    assert_int_equal(l.count, 1);
    return l.figures;
}

static void labels_nest(void **state)
{
    (void)state;
    assert_null(berth_scope_label());
    BERTH_SCOPE("outer")
    {
        assert_string_equal(berth_scope_label(), "outer");
        BERTH_SCOPE("inner")
        {
            assert_string_equal(berth_scope_label(), "inner");
            break; /* leaves the scope properly */
        }
        assert_string_equal(berth_scope_label(), "outer");
    }
    assert_null(berth_scope_label());
}

static void silent(void *context, berth_log_level level, const char *line)
{
    (void)level, (void)line;
    ++*(int *)context;
}

static void an_end_out_of_order_is_logged(void **state)
{
    (void)state;
    int lines = 0;
    berth_log_set(silent, &lines, BERTH_LOG_WARNING);
    berth_scope a, b, c;
    berth_scope_begin(&a, "a");
    berth_scope_begin(&b, "b");
    berth_scope_begin(&c, "c");
    berth_scope_end(&b);
    assert_int_equal(lines, 1);
    assert_string_equal(berth_scope_label(), "a");
    berth_scope_end(&c);
    assert_int_equal(lines, 2);
    berth_scope_end(&a);
    berth_scope_end(NULL);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_null(berth_scope_label());
}

/* The question of the header: what did this layer take at most? */
static void check_peaks(berth_allocator *inner, const char *layer, const char *part)
{
    berth_allocator *a = new_meter(inner);
    void *weights = take(a, 1000); /* before: not the layer's */
    berth_scope scope, nested;
    berth_scope_begin(&scope, layer);
    void *x = take(a, 300);
    void *y = take(a, 200); /* 500 */
    give(a, x);             /* 200 */
    berth_scope_begin(&nested, part);
    void *z = take(a, 700); /* 900: the layer's peak, in a scope inside it */
    assert_int_equal(berth_scope_peak_bytes(&nested), 700);
    assert_int_equal(berth_scope_peak_bytes(&scope), 900);
    give(a, z);
    berth_scope_end(&nested);
    x = take(a, 400); /* 600 */
    assert_int_equal(berth_scope_held_bytes(&scope), 600);
    give(a, x);
    give(a, y);
    give(a, weights); /* what was there before goes: below the entry */
    assert_int_equal(berth_scope_held_bytes(&scope), -1000);
    berth_scope_end(&scope);
    assert_int_equal(berth_scope_peak_bytes(&scope), 900);
    assert_int_equal(berth_scope_peak_bytes(&nested), 700);
    berth_scope_figures figures = figures_of(layer);
    assert_int_equal(figures.max_scope_bytes, 900);
    assert_int_equal(figures.num_scopes, 1);
    assert_int_equal(figures.bytes_in_use, 0);
    assert_int_equal(figures.max_bytes_in_use, 600); /* under this label itself: 200 + 400 */
    assert_int_equal(figures_of(part).max_bytes_in_use, 700);
    berth_allocator_release(a);
}

static void peaks_are_true(void **state)
{
    (void)state;
    check_peaks(new_system(), "layer/system", "part/system");
    check_peaks(new_tracker(), "layer/tracker", "part/tracker");
    check_peaks(new_plain(), "layer/plain", "part/plain");
    uint64_t held = 1, peak = 0;
    berth_scope_thread_bytes(&held, &peak);
    assert_int_equal(held, 0);
    assert_int_equal(peak, 1900);
}

static void equal_texts_are_one_label(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    static const char first[] = "same text";
    static char second[] = "same text";
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL, *q = NULL;
    request.label = first;
    assert_int_equal(berth_allocate(a, 10, 64, &request, &p), BERTH_OK);
    request.label = second;
    assert_int_equal(berth_allocate(a, 20, 64, &request, &q), BERTH_OK);
    assert_int_equal(figures_of("same text").bytes_in_use, 30);
    give(a, p);
    give(a, q);
    berth_scope_clear();
    assert_int_equal(figures_of("same text").max_bytes_in_use, 0);
    berth_allocator_release(a);
}

/* ---- Threads ------------------------------------------------------------------------------------- */

struct mailbox {
    berth_allocator *a;
    void *p;
    uint64_t peak;
};

static void *free_it(void *context)
{
    struct mailbox *m = context;
    give(m->a, m->p);
    return NULL;
}

/* What another thread frees is no longer held here: the next peak knows it. */
static void a_free_elsewhere_counts(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    berth_scope scope;
    berth_scope_begin(&scope, "handed over");
    for (int i = 0; i < 5; i++) {
        struct mailbox m = {a, take(a, 100), 0};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_it, &m), 0);
        pthread_join(thread, NULL);
        assert_int_equal(berth_scope_held_bytes(&scope), 0);
    }
    berth_scope_end(&scope);
    assert_int_equal(berth_scope_peak_bytes(&scope), 100);
    assert_int_equal(figures_of("handed over").max_bytes_in_use, 100);
    berth_allocator_release(a);
}

enum { THREADS = 4, ROUNDS = 3000, HELD = 6 };

struct worker {
    berth_allocator *a;
    unsigned seed;
    uint64_t peak; /* by its own reckoning */
    pthread_mutex_t *lock;
    uint64_t *live; /* of all workers, exact: counted and allocated under one lock */
    uint64_t *top;
};

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Calls are made one at a time, so that the true peak is known; the threads' slots and credit are not. */
static void *work(void *context)
{
    struct worker *w = context;
    void *held[HELD] = {0};
    size_t sizes[HELD] = {0};
    uint64_t mine = 0;
    berth_scope scope;
    berth_scope_begin(&scope, "shared by threads");
    for (int i = 0; i < ROUNDS + HELD; i++) {
        unsigned at = i < ROUNDS ? next_random(&w->seed) % HELD : (unsigned)(i - ROUNDS);
        pthread_mutex_lock(w->lock);
        if (held[at]) {
            give(w->a, held[at]);
            held[at] = NULL;
            mine -= sizes[at];
            *w->live -= sizes[at];
        } else if (i < ROUNDS) {
            sizes[at] = 1 + next_random(&w->seed) % 30000;
            held[at] = take(w->a, sizes[at]);
            mine += sizes[at];
            *w->live += sizes[at];
            w->peak = mine > w->peak ? mine : w->peak;
            *w->top = *w->live > *w->top ? *w->live : *w->top;
        }
        pthread_mutex_unlock(w->lock);
    }
    assert_int_equal(berth_scope_peak_bytes(&scope), w->peak);
    berth_scope_end(&scope);
    return NULL;
}

static void a_label_shared_by_threads_has_a_true_peak(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t live = 0, top = 0, most = 0;
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){a, i + 1, 0, &lock, &live, &top};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        most = workers[i].peak > most ? workers[i].peak : most;
    }
    berth_scope_figures figures = figures_of("shared by threads");
    assert_int_equal(figures.max_bytes_in_use, top);
    assert_int_equal(figures.bytes_in_use, 0);
    assert_int_equal(figures.max_scope_bytes, most);
    assert_int_equal(figures.num_scopes, THREADS);
    struct lookup l = {.label = "shared by threads"};
    assert_int_equal(berth_scope_visit_threads(look, &l), BERTH_OK);
    assert_true(l.count >= 1 && l.count <= THREADS);
    berth_allocator_release(a);
}

static void *work_freely(void *context)
{
    struct worker *w = context;
    void *held[HELD] = {0};
    for (int i = 0; i < ROUNDS + HELD; i++) {
        unsigned at = i < ROUNDS ? next_random(&w->seed) % HELD : (unsigned)(i - ROUNDS);
        if (held[at])
            give(w->a, held[at]);
        held[at] = NULL;
        if (i < ROUNDS)
            held[at] = take(w->a, 10000);
    }
    return NULL;
}

/* ---- Blocks that go other ways than their scopes -------------------------------------------------- */

static void a_block_is_taken_off_the_label_it_was_counted_for(void **state)
{
    (void)state;
    berth_allocator *kinds[] = {new_meter(new_system()), new_meter(new_plain())};
    for (int kind = 0; kind < 2; kind++) {
        berth_allocator *a = kinds[kind];
        berth_request request = BERTH_REQUEST_INIT;
        request.label = "mixed, asked for";
        void *p, *q, *r = NULL;
        berth_scope one, two;
        berth_scope_clear();
        berth_scope_begin(&one, "mixed, one");
        p = take(a, 100);
        assert_int_equal(berth_allocate(a, 30, 64, &request, &r), BERTH_OK);
        berth_scope_begin(&two, "mixed, two");
        q = take(a, 20);
        give(a, p); /* the outer scope's block in the inner one */
        assert_int_equal(figures_of("mixed, one").bytes_in_use, 0);
        assert_int_equal(figures_of("mixed, two").bytes_in_use, 20);
        assert_int_equal(figures_of("mixed, asked for").bytes_in_use, 30);
        assert_int_equal(berth_scope_held_bytes(&two), -80);
        p = take(a, 7);
        berth_scope_end(&two);
        give(a, q); /* the inner scope's blocks in the outer one */
        give(a, p);
        p = take(a, 5);
        assert_int_equal(figures_of("mixed, one").bytes_in_use, 5);
        assert_int_equal(figures_of("mixed, two").bytes_in_use, 0);
        assert_int_equal(figures_of("mixed, one").max_bytes_in_use, 100);
        assert_int_equal(figures_of("mixed, two").max_bytes_in_use, 27);
        assert_int_equal(figures_of("mixed, asked for").max_bytes_in_use, 30);
        berth_scope_end(&one);
        give(a, p);
        give(a, r);
        assert_int_equal(berth_scope_peak_bytes(&one), 150);
        assert_int_equal(berth_scope_peak_bytes(&two), 20);
        assert_int_equal(figures_of("mixed, asked for").bytes_in_use, 0);
        berth_allocator_release(a);
    }
}

static void *leave_a_block(void *context)
{
    struct mailbox *m = context;
    BERTH_SCOPE("left behind")
    {
        give(m->a, take(m->a, 300));
        m->p = take(m->a, 70);
    }
    return NULL;
}

static void *hold_something_else(void *context)
{
    struct mailbox *m = context;
    uint64_t held = 1;
    void *p = take(m->a, 11);
    berth_scope_thread_bytes(&held, &m->peak);
    assert_int_equal(held, 11);
    BERTH_SCOPE("left behind")
    {
        give(m->a, m->p); /* the same label and, as like as not, the same number, but another thread's */
        give(m->a, take(m->a, 400));
    }
    berth_scope_thread_bytes(&held, NULL);
    assert_int_equal(held, 11);
    give(m->a, p);
    return NULL;
}

static void a_block_outlives_its_thread(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    for (int i = 0; i < 3; i++) {
        struct mailbox m = {.a = a};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, leave_a_block, &m), 0);
        pthread_join(thread, NULL);
        assert_int_equal(figures_of("left behind").bytes_in_use, 70);
        assert_int_equal(pthread_create(&thread, NULL, hold_something_else, &m), 0);
        pthread_join(thread, NULL);
        assert_int_equal(m.peak, 11);
        assert_int_equal(figures_of("left behind").bytes_in_use, 0);
        assert_int_equal(figures_of("left behind").max_bytes_in_use, 400);
    }
    berth_allocator_release(a);
}

static void *clear_all(void *context)
{
    (void)context;
    berth_scope_clear();
    return NULL;
}

/* Another thread clears: this one's peak starts from what it held then, without a word between them. */
static void a_clear_reaches_other_threads(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    void *p = take(a, 500), *q = take(a, 60);
    give(a, take(a, 1000));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, clear_all, NULL), 0);
    pthread_join(thread, NULL);
    give(a, p);
    uint64_t held = 0, peak = 0;
    berth_scope_thread_bytes(&held, &peak);
    assert_int_equal(held, 60);
    assert_int_equal(peak, 560);
    assert_int_equal(pthread_create(&thread, NULL, clear_all, NULL), 0);
    pthread_join(thread, NULL);
    give(a, take(a, 40));
    berth_scope_thread_bytes(NULL, &peak);
    assert_int_equal(peak, 100);
    assert_int_equal(figures_of("").max_bytes_in_use, 100);
    give(a, q);
    berth_allocator_release(a);
}

static void meters_and_limits_stack(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    berth_allocator *a = NULL, *inner = new_meter(new_system());
    assert_int_equal(berth_budget_create(1000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(inner, budget, &a), BERTH_OK);
    berth_allocator_release(inner);
    a = new_meter(a); /* around a limit around a meter: all see the block's own size */
    berth_scope_clear();
    BERTH_SCOPE("twice")
    {
        void *p = take(a, 600), *moved = NULL;
        memset(p, 9, 600);
        assert_true(berth_budget_in_use(budget) >= 600); /* the outer note is in front of the block */
        assert_true(figures_of("twice").bytes_in_use >= 1200);
        assert_int_equal(berth_reallocate(a, p, 600, 500, 64, NULL, &moved), BERTH_OVER_BUDGET);
        give(a, p);
        assert_int_equal(berth_budget_in_use(budget), 0);
        assert_int_equal(figures_of("twice").bytes_in_use, 0);
    }
    berth_allocator_release(a);
    berth_budget_release(budget);
}

static void a_tagged_block_moves_and_answers(void **state)
{
    (void)state;
    berth_allocator *system = new_system(), *a = NULL;
    assert_int_equal(berth_scope_meter_create(system, &a), BERTH_OK);
    BERTH_SCOPE("moves")
    {
        unsigned char *p = take(a, 100);
        void *moved = NULL;
        memset(p, 5, 100);
        size_t size = 0;
        assert_int_equal(berth_allocated_size_slow(a, p, &size), BERTH_OK);
        assert_true(size >= 100 && size < 200);
        assert_int_equal(berth_reallocate(a, p, 0, 5000, 64, NULL, &moved), BERTH_OK);
        p = moved;
        for (int i = 0; i < 100; i++)
            assert_int_equal(p[i], 5);
        assert_int_equal(figures_of("moves").bytes_in_use, 5000);
        berth_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(berth_stats_get(system, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 5000); /* the source counts without the tag */
        give(a, p);
        assert_int_equal(berth_stats_get(system, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 0);
        assert_int_equal(figures_of("moves").bytes_in_use, 0);
    }
    berth_allocator_release(a);
    berth_allocator_release(system);
}

/* Over a pool the record of a block has a word for the account, so that counting takes no memory and no lock. */
static void a_block_of_a_pool_bears_its_account(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    berth_allocator *pool = NULL, *limit = NULL;
    assert_int_equal(berth_pool_create(NULL, &pool), BERTH_OK);
    assert_int_equal(berth_budget_create(5000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(pool, budget, &limit), BERTH_OK);
    berth_allocator *a = new_meter(limit);
    berth_scope_clear();
    BERTH_SCOPE("worded")
    {
        give(a, take(a, 1000));
        berth__heap_fail_at(1, true);
        void *p = NULL;
        berth_status status = berth_allocate(a, 900, 64, NULL, &p);
        assert_int_equal(berth__heap_fail_left(), 1); /* nothing was asked for */
        berth__heap_fail_at(0, false);
        assert_int_equal(status, BERTH_OK);
        assert_int_equal(figures_of("worded").bytes_in_use, 900);
        assert_int_equal(berth_budget_in_use(budget), 900);
        assert_int_equal(berth_deallocate(a, p, 800, NULL),
                         BERTH_BAD_FREE); /* it has another size, and stays */
        assert_int_equal(figures_of("worded").bytes_in_use, 900);
        assert_int_equal(berth_budget_in_use(budget), 900);
        BERTH_SCOPE("elsewhere")
        {
            give(a, p);
            assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_BAD_FREE);
        }
        assert_int_equal(figures_of("worded").bytes_in_use, 0);
        assert_int_equal(berth_budget_in_use(budget), 0);
        void *beside = take(pool, 900); /* where the other was, and nobody's */
        assert_ptr_equal(beside, p);
        give(pool, beside);
        assert_int_equal(figures_of("worded").bytes_in_use, 0);
        assert_int_equal(figures_of("worded").max_bytes_in_use, 1000);
    }
    berth_allocator_release(a);
    berth_allocator_release(pool);
    berth_budget_release(budget);
}

enum { CROWD = 50 };

struct crowd {
    berth_allocator *a;
    pthread_barrier_t all;
};

static void *hold_together(void *context)
{
    struct crowd *crowd = context;
    pthread_barrier_wait(&crowd->all);
    BERTH_SCOPE("a crowd")
    {
        void *p = take(crowd->a, 10);
        pthread_barrier_wait(&crowd->all);
        give(crowd->a, p);
        for (int i = 0; i < 100; i++)
            give(crowd->a, take(crowd->a, 10));
    }
    return NULL;
}

static void more_threads_than_a_label_has_room_for(void **state)
{
    (void)state;
    struct crowd crowd = {.a = new_meter(new_system())};
    pthread_t threads[CROWD];
    pthread_barrier_init(&crowd.all, NULL, CROWD);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_together, &crowd), 0);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crowd.all);
    assert_int_equal(figures_of("a crowd").max_bytes_in_use, CROWD * 10);
    assert_int_equal(figures_of("a crowd").bytes_in_use, 0);
    assert_int_equal(figures_of("a crowd").num_scopes, CROWD);
    berth_allocator_release(crowd.a);
}

/* Without a lock the peak cannot be known from outside, but its bounds are. */
static void free_running_threads_stay_in_bounds(void **state)
{
    (void)state;
    berth_allocator *a = new_meter(new_system());
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    berth_scope_clear();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.a = a, .seed = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work_freely, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    berth_scope_figures figures = figures_of("");
    assert_int_equal(figures.bytes_in_use, 0);
    assert_true(figures.max_bytes_in_use >= HELD * 10000);
    assert_true(figures.max_bytes_in_use <= (uint64_t)THREADS * HELD * 10000);
    assert_int_equal(figures.max_bytes_in_use % 10000, 0); /* a sum of whole blocks, no credit in it */
    berth_allocator_release(a);
}

/* ---- A thread takes the record of one that has ended ----------------------------------------------- */

enum { SHORT_LIVES = 200 };

static _Atomic bool lives_over;

static void *live_shortly(void *a)
{
    give(a, take(a, 100)); /* a thread has a record from its first block on */
    for (int i = 0; i < 2; i++) {
        berth_scope scope;
        berth_scope_begin(&scope, "short life");
        give(a, take(a, 100));
        berth_scope_end(&scope);
    }
    return NULL;
}

/* Counts of a record may be those of its last thread, or gone, but never more than one thread had. */
static bool check_life(void *context, const berth_scope_figures *figures)
{
    (void)context;
    if (strcmp(figures->label, "short life") == 0)
        assert_true(figures->num_scopes <= 2);
    return true;
}

static void *visit_meanwhile(void *context)
{
    while (!atomic_load(&lives_over))
        assert_int_equal(berth_scope_visit_threads(check_life, context), BERTH_OK);
    return NULL;
}

static bool sum_lives(void *context, const berth_scope_figures *figures)
{
    if (strcmp(figures->label, "short life") == 0)
        *(uint64_t *)context += figures->num_scopes;
    return true;
}

/* Its counters are cleared while others read them. */
static void a_new_thread_starts_from_nothing(void **state)
{
    (void)state;
    pthread_t visitor, thread;
    berth_allocator *a = new_meter(new_system());
    atomic_store(&lives_over, false);
    assert_int_equal(pthread_create(&visitor, NULL, visit_meanwhile, NULL), 0);
    for (int i = 0; i < SHORT_LIVES; i++) {
        assert_int_equal(pthread_create(&thread, NULL, live_shortly, a), 0);
        pthread_join(thread, NULL);
    }
    atomic_store(&lives_over, true);
    pthread_join(visitor, NULL);
    uint64_t scopes = 0;
    assert_int_equal(berth_scope_visit_threads(sum_lives, &scopes), BERTH_OK);
    assert_int_equal(scopes, 2); /* all threads used one record, and what is left is the last one's */
    assert_int_equal(figures_of("short life").num_scopes, 2 * SHORT_LIVES);
    berth_allocator_release(a);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_scope_meter_create(NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_int_equal(berth_scope_visit(NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_scope_visit_threads(NULL, NULL), BERTH_INVALID_ARGUMENT);
    a = new_meter(new_plain());
    int local = 0;
    assert_int_equal(berth_deallocate(a, &local, 0, NULL), BERTH_BAD_FREE);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_nest),
        cmocka_unit_test(an_end_out_of_order_is_logged),
        cmocka_unit_test(peaks_are_true),
        cmocka_unit_test(equal_texts_are_one_label),
        cmocka_unit_test(a_free_elsewhere_counts),
        cmocka_unit_test(a_label_shared_by_threads_has_a_true_peak),
        cmocka_unit_test(a_block_is_taken_off_the_label_it_was_counted_for),
        cmocka_unit_test(a_block_outlives_its_thread),
        cmocka_unit_test(a_clear_reaches_other_threads),
        cmocka_unit_test(meters_and_limits_stack),
        cmocka_unit_test(a_tagged_block_moves_and_answers),
        cmocka_unit_test(a_block_of_a_pool_bears_its_account),
        cmocka_unit_test(more_threads_than_a_label_has_room_for),
        cmocka_unit_test(free_running_threads_stay_in_bounds),
        cmocka_unit_test(a_new_thread_starts_from_nothing),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

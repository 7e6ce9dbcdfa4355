/* Many threads replay one plan, each from a block of its own; pointers cross threads; scopes are left open.
 */
#include <pthread.h>

#include "rig.h"

enum { THREADS = 8, ROUNDS = 60, LAYERS = 40 };

static void quiet(void *context, berth_log_level level, const char *line)
{
    (void)level, (void)line;
    atomic_fetch_add((_Atomic int *)context, 1);
}

/* A small network: every tensor holds its writer's mark until it is freed. */
static void network(berth_allocator *a, unsigned char mark)
{
    unsigned char *kept[LAYERS];
    for (size_t i = 0; i < LAYERS; i++) {
        void *work = NULL, *p = NULL;
        assert_int_equal(berth_allocate(a, 512 + 64 * i, 64, NULL, &p), BERTH_OK);
        kept[i] = p;
        memset(p, mark, 512 + 64 * i);
        assert_int_equal(berth_allocate(a, 1000, 64, NULL, &work), BERTH_OK);
        memset(work, mark, 1000);
        assert_int_equal(berth_deallocate(a, work, 0, NULL), BERTH_OK);
        if (i < 3)
            continue;
        for (size_t k = 0; k < 512 + 64 * (i - 3); k++)
            assert_int_equal(kept[i - 3][k], mark);
        assert_int_equal(berth_deallocate(a, kept[i - 3], 0, NULL), BERTH_OK);
    }
    for (size_t i = LAYERS - 3; i < LAYERS; i++)
        assert_int_equal(berth_deallocate(a, kept[i], 0, NULL), BERTH_OK);
}

typedef struct worker {
    rig *r;
    unsigned char mark;
    _Atomic uint64_t *from_plan;
    pthread_barrier_t *together;
} worker;

static void *replay_many_times(void *context)
{
    worker *w = context;
    pthread_barrier_wait(w->together);
    for (int i = 0; i < ROUNDS; i++) {
        berth_report report = BERTH_REPORT_INIT;
        BERTH_REPLAY(w->r->planned, &report)
        {
            network(w->r->planned, (unsigned char)(w->mark + i));
        }
        assert_int_equal(report.deviation_count, 0);
        atomic_fetch_add(w->from_plan, report.from_plan);
        network(w->r->planned, w->mark); /* outside a scope, at the same time */
    }
    return NULL;
}

static void test_one_plan_many_threads(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        network(r.planned, 1);
    }
    _Atomic uint64_t from_plan = 0;
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){&r, (unsigned char)(i * 30), &from_plan, &together};
        assert_int_equal(pthread_create(&threads[i], NULL, replay_many_times, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    assert_int_equal(from_plan, (uint64_t)THREADS * ROUNDS * LAYERS * 2);
    rig_end(&r);
}

/* ---- Pointers that cross threads ---------------------------------------------------------------------- */

typedef struct handed {
    berth_allocator *a;
    void *p;
    berth_status status;
} handed;

static void *free_it(void *context)
{
    handed *h = context;
    h->status = berth_deallocate(h->a, h->p, 0, NULL);
    return NULL;
}

static berth_status free_elsewhere(berth_allocator *a, void *p)
{
    handed h = {a, p, BERTH_INTERNAL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_it, &h), 0);
    pthread_join(thread, NULL);
    return h.status;
}

static void two(rig *r, void **a, void **b)
{
    *a = take(r, 256);
    *b = take(r, 128);
}

static void test_a_free_from_another_thread_is_seen_in_step(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    void *a, *b, *c;
    BERTH_RECORD(r.planned)
    {
        two(&r, &a, &b);
        give(&r, a);
        c = take(&r, 256);
        give(&r, c);
        give(&r, b);
    }
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        two(&r, &a, &b);
        assert_int_equal(free_elsewhere(r.planned, a), BERTH_OK);
        assert_int_equal(free_elsewhere(r.planned, a), BERTH_BAD_FREE);             /* twice */
        assert_int_equal(free_elsewhere(r.planned, (char *)a + 1), BERTH_BAD_FREE); /* inside */
        assert_int_equal(berth_deallocate(r.planned, a, 0, NULL), BERTH_BAD_FREE);  /* here too */
        c = take(&r, 256); /* a's place is free: served from the plan */
        assert_ptr_equal(c, a);
        give(&r, c);
        assert_int_equal(free_elsewhere(r.planned, b), BERTH_OK);
    }
    assert_int_equal(report.from_plan, 3);
    assert_int_equal(report.by_fallback, 0);
    assert_int_equal(report.stragglers, 0);
    assert_int_equal(report.bad_frees, 1); /* the one on this thread; the others were told at once */
    rig_end(&r);
}

static void test_a_straggler_freed_by_another_thread(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    void *a, *b;
    BERTH_RECORD(r.planned)
    {
        two(&r, &a, &b);
        give(&r, a);
        give(&r, b);
    }
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r.planned, &report)
    {
        two(&r, &a, &b);
        give(&r, b);
    }
    assert_int_equal(report.stragglers, 1);
    assert_int_equal(free_elsewhere(r.planned, a), BERTH_OK);
    assert_int_equal(free_elsewhere(r.planned, a), BERTH_BAD_FREE);
    rig_end(&r);
}

/* Producers replay and hand every tensor to a consumer, which checks and frees it while they go on. */
typedef struct channel {
    pthread_mutex_t lock;
    pthread_cond_t more;
    void *queue[64];
    size_t from, to;
    bool closed;
    berth_allocator *a;
} channel;

static void send_pointer(channel *c, void *p)
{
    pthread_mutex_lock(&c->lock);
    while (c->to - c->from == 64)
        pthread_cond_wait(&c->more, &c->lock);
    c->queue[c->to++ % 64] = p;
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
}

static void *consume(void *context)
{
    channel *c = context;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (c->from == c->to && !c->closed)
            pthread_cond_wait(&c->more, &c->lock);
        if (c->from == c->to) {
            pthread_mutex_unlock(&c->lock);
            return NULL;
        }
        unsigned char *p = c->queue[c->from++ % 64];
        pthread_cond_broadcast(&c->more);
        pthread_mutex_unlock(&c->lock);
        for (int i = 1; i < 512; i++)
            assert_int_equal(p[i], p[0]);
        assert_int_equal(berth_deallocate(c->a, p, 0, NULL), BERTH_OK);
    }
}

static void test_producers_and_a_consumer(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        for (int i = 0; i < 50; i++)
            give(&r, take(&r, 512));
    }
    channel c = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .a = r.planned};
    pthread_t consumer;
    assert_int_equal(pthread_create(&consumer, NULL, consume, &c), 0);
    for (int round = 0; round < 40; round++) {
        BERTH_REPLAY(r.planned, NULL)
        {
            for (int i = 0; i < 50; i++) {
                unsigned char *p = take(&r, 512);
                memset(p, i + round, 512);
                send_pointer(&c, p);
            }
        }
    }
    pthread_mutex_lock(&c.lock);
    c.closed = true;
    pthread_cond_broadcast(&c.more);
    pthread_mutex_unlock(&c.lock);
    pthread_join(consumer, NULL);
    rig_end(&r); /* every block came back */
}

/* ---- Threads that come and go ------------------------------------------------------------------------- */

static void *exit_inside(void *context)
{
    rig *r = context;
    assert_int_equal(berth_replay_begin(r->planned, NULL), BERTH_OK);
    give(r, take(r, 256));
    return NULL;
}

static void test_a_thread_that_exits_inside_a_scope(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    void *a, *b;
    BERTH_RECORD(r.planned)
    {
        two(&r, &a, &b);
        give(&r, a);
        give(&r, b);
    }
    _Atomic int lines = 0;
    berth_log_set(quiet, (void *)&lines, BERTH_LOG_WARNING);
    size_t before = r.inner_allocs;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, exit_inside, &r), 0);
        pthread_join(thread, NULL);
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(lines, 3);
    assert_int_equal(r.inner_allocs, before + 1); /* one block, given back each time */
    rig_end(&r);
}

static void *replay_until_done(void *context)
{
    rig *r = context;
    for (int i = 0; i < 200; i++) {
        berth_status status = berth_replay_begin(r->planned, NULL);
        if (status == BERTH_BUSY)
            continue; /* it is being recorded just now */
        assert_int_equal(status, BERTH_OK);
        network(r->planned, (unsigned char)i);
        assert_int_equal(berth_replay_end(r->planned, NULL), BERTH_OK);
    }
    return NULL;
}

/* Recording, clearing and setting plans while others replay: they keep what they began with. */
static void test_plans_change_under_running_scopes(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        network(r.planned, 1);
    }
    berth_plan *other = NULL;
    assert_int_equal(berth_plan_create(&other), BERTH_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, replay_until_done, &r), 0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        network(r.planned, 2);
        assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        assert_int_equal(berth_planned_set_plan(r.planned, other), BERTH_OK);
        assert_int_equal(berth_plan_clear(r.plan), BERTH_OK);
        assert_int_equal(berth_planned_set_plan(r.planned, r.plan), BERTH_OK);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    berth_plan_release(other);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_plan_many_threads),
        cmocka_unit_test(test_a_free_from_another_thread_is_seen_in_step),
        cmocka_unit_test(test_a_straggler_freed_by_another_thread),
        cmocka_unit_test(test_producers_and_a_consumer),
        cmocka_unit_test(test_a_thread_that_exits_inside_a_scope),
        cmocka_unit_test(test_plans_change_under_running_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

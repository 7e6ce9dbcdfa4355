/* Forks: whatever other threads were doing with plans, caches and planned allocators, the child finds them
 * whole; what cannot go on there says so. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "at_fork.h"
#include "rig.h"

enum { FORKS = 100 };

typedef struct shared {
    rig r;
    berth_plan *other;
    berth_plan_cache *cache;
    _Atomic bool stop;
} shared;

static bool work(berth_allocator *a)
{
    void *p[6];
    for (size_t i = 0; i < 6; i++)
        if (berth_allocate(a, 100 * (i + 1), 64, NULL, &p[i]) != BERTH_OK)
            return false;
    for (size_t i = 0; i < 6; i++)
        if (berth_deallocate(a, p[i], 0, NULL) != BERTH_OK)
            return false;
    return true;
}

static void *replay_on(void *context)
{
    shared *s = context;
    while (!atomic_load(&s->stop)) {
        void *kept = NULL;
        assert_int_equal(berth_replay_begin(s->r.planned, NULL), BERTH_OK);
        assert_int_equal(berth_allocate(s->r.planned, 100, 64, NULL, &kept), BERTH_OK);
        assert_int_equal(berth_replay_end(s->r.planned, NULL), BERTH_OK);
        give(&s->r, kept);
    }
    return NULL;
}

static void *look_up_on(void *context)
{
    shared *s = context;
    while (!atomic_load(&s->stop)) {
        berth_plan *plan = NULL;
        assert_int_equal(berth_plan_cache_put(s->cache, "k", 1, s->other), BERTH_OK);
        assert_int_equal(berth_plan_cache_get(s->cache, "k", 1, &plan), BERTH_OK);
        berth_plan_release(plan);
        assert_int_equal(berth_planned_set_plan(s->r.planned, s->r.plan), BERTH_OK);
        assert_int_equal(berth_plan_compare(s->r.plan, s->r.plan, NULL), BERTH_OK);
    }
    return NULL;
}

/* In the child: everything that may be asked, with an alarm in case it waits for ever. */
static bool child_goes_on(shared *s, void *kept)
{
    alarm(60);
    berth_report report = BERTH_REPORT_INIT;
    bool good = berth_run_current() != NULL; /* the scope that the fork came in */
    good = good && work(s->r.planned) && berth_replay_end(s->r.planned, &report) == BERTH_OK &&
           report.from_plan + report.displaced == 6;
    good = good && berth_deallocate(s->r.planned, kept, 0, NULL) == BERTH_OK;
    berth_plan *plan = NULL;
    good = good && berth_plan_create(&plan) == BERTH_OK &&
           berth_planned_set_plan(s->r.planned, plan) == BERTH_OK &&
           berth_record_begin(s->r.planned, NULL) == BERTH_OK && work(s->r.planned) &&
           berth_record_end(s->r.planned) == BERTH_OK && berth_plan_count(plan) == 6;
    good = good && berth_replay_begin(s->r.planned, NULL) == BERTH_OK && work(s->r.planned) &&
           berth_replay_end(s->r.planned, &report) == BERTH_OK && report.from_plan + report.displaced == 6;
    good = good && berth_plan_cache_put(s->cache, "child", 5, plan) == BERTH_OK;
    size_t released = 0;
    good = good && berth_trim(s->r.planned, 0, &released) == BERTH_OK;
    berth_plan_release(plan);
    berth_plan_cache_destroy(s->cache);
    berth_allocator_release(s->r.planned);
    return good;
}

static void test_a_child_goes_on_whatever_other_threads_do(void **state)
{
    (void)state;
    shared s = {.stop = false};
    rig_begin(&s.r);
    assert_int_equal(berth_plan_create(&s.other), BERTH_OK);
    assert_int_equal(berth_plan_cache_create(1 << 20, &s.cache), BERTH_OK);
    assert_int_equal(berth_record_begin(s.r.planned, NULL), BERTH_OK);
    assert_true(work(s.r.planned));
    assert_int_equal(berth_record_end(s.r.planned), BERTH_OK);
    void *kept = NULL;
    BERTH_REPLAY(s.r.planned, NULL)
    {
        kept = take(&s.r, 100);
    }
    pthread_t threads[4];
    for (int i = 0; i < at_fork_threads(4); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? replay_on : look_up_on, &s), 0);
    for (int i = 0; i < FORKS; i++) {
        assert_int_equal(berth_replay_begin(s.r.planned, NULL), BERTH_OK);
        pid_t child = fork();
        if (child == 0)
            _exit(child_goes_on(&s, kept) ? 0 : 1);
        assert_true(child > 0);
        assert_true(work(s.r.planned));
        assert_int_equal(berth_replay_end(s.r.planned, NULL), BERTH_OK);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < at_fork_threads(4); i++)
        pthread_join(threads[i], NULL);
    give(&s.r, kept);
    berth_plan_cache_destroy(s.cache);
    berth_plan_release(s.other);
    rig_end(&s.r);
}

typedef struct recording {
    rig *r;
    pthread_barrier_t begun, done;
} recording;

static void *record_slowly(void *context)
{
    recording *x = context;
    assert_int_equal(berth_record_begin(x->r->planned, NULL), BERTH_OK);
    pthread_barrier_wait(&x->begun);
    pthread_barrier_wait(&x->done);
    assert_int_equal(berth_record_end(x->r->planned), BERTH_OK);
    return NULL;
}

/* A plan that another thread was recording has no end in the child: refused, in words that say so. A recording
 * of the forking thread goes on in both. */
static void test_a_recording_at_the_time_of_the_fork(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    recording x = {.r = &r};
    pthread_barrier_init(&x.begun, NULL, 2);
    pthread_barrier_init(&x.done, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record_slowly, &x), 0);
    pthread_barrier_wait(&x.begun);
    berth_plan *mine = NULL;
    assert_int_equal(berth_plan_create(&mine), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.plan = mine;
    assert_int_equal(berth_record_begin(r.planned, &options), BERTH_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool good = work(r.planned) && berth_record_end(r.planned) == BERTH_OK && berth_plan_count(mine) == 6;
        good = good && berth_replay_begin(r.planned, NULL) == BERTH_BUSY &&
               strstr(berth_last_error()->message, "forked") != NULL;
        good = good && berth_plan_clear(r.plan) == BERTH_BUSY;
        good = good && berth_replay_begin(r.planned, &options) == BERTH_OK && work(r.planned) &&
               berth_replay_end(r.planned, NULL) == BERTH_OK;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    pthread_barrier_wait(&x.done);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&x.begun);
    pthread_barrier_destroy(&x.done);
    berth_plan_release(mine);
    rig_end(&r);
}

/* The CPU's streams have no workers in the child. A block that one of them still used is not waited for in
 * vain. */
static void test_streams_of_the_parent(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        assert_true(work(r.planned));
    }
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.stream = stream;
    assert_int_equal(berth_replay_begin(r.planned, &options), BERTH_OK);
    void *p = take(&r, 100);
    assert_int_equal(berth_zero(berth_device_cpu(), p, 100, stream, false), BERTH_OK);
    give(&r, p);
    assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        berth_status status = berth_replay_begin(r.planned, NULL);
        bool good = status == BERTH_OK && work(r.planned) && berth_replay_end(r.planned, NULL) == BERTH_OK;
        berth_allocator_release(r.planned);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    berth_stream_destroy(stream);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_goes_on_whatever_other_threads_do),
        cmocka_unit_test(test_a_recording_at_the_time_of_the_fork),
        cmocka_unit_test(test_streams_of_the_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

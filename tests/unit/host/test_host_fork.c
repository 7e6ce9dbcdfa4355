/* What a fork's child finds of a host cache whose other threads stayed behind: it collects, and it has their thread caches. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "unit/host/host_test.h"

/* The exit code of a child that runs `check`; an alarm ends one that hangs. */
static int in_child(int (*check)(fixture *f), fixture *f)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(check(f));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int collect_what_waits(fixture *f)
{
    size_t blocks = 0;
    if (berth_virtual_run_all(f->device) != BERTH_OK ||
        berth_host_cache_collect(f->cache, &blocks) != BERTH_OK)
        return 1;
    return blocks == 1 ? 0 : 2;
}

/* A thread of the parent was collecting when another forked: it is not there to finish. */
static void test_the_child_collects(void **state)
{
    fixture *f = *state;
    host_cache *c = f->cache->self;
    void *p = NULL;
    assert_int_equal(berth_allocate(f->cache, 5000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_zero(f->device, p, 100, f->streams[0], false), BERTH_OK);
    assert_int_equal(berth_record_use(f->cache, p, f->streams[0]), BERTH_OK);
    assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_OK);
    _Atomic uint32_t *collecting = (_Atomic uint32_t *)&berth__streams_at(&c->streams, 0)->collecting;
    atomic_store(collecting, 1);
    assert_int_equal(in_child(collect_what_waits, f), 0);
    atomic_store(collecting, 0);
    assert_int_equal(berth_virtual_run_all(f->device), BERTH_OK);
}

#if !defined(__SANITIZE_THREAD__) /* TSan cannot follow a child of a program with threads */
typedef struct helper {
    fixture *f;
    pthread_barrier_t freed, over;
} helper;

/* Leaves a block in its own thread cache, and stays. */
static void *keep_a_thread_cache(void *context)
{
    helper *h = context;
    void *p = NULL;
    if (berth_allocate(h->f->cache, 5000, 64, NULL, &p) == BERTH_OK)
        berth_deallocate(h->f->cache, p, 0, NULL);
    pthread_barrier_wait(&h->freed);
    pthread_barrier_wait(&h->over);
    return NULL;
}

static int empty_all(fixture *f)
{
    size_t released = 0;
    if (berth_host_cache_empty(f->cache, &released) != BERTH_OK)
        return 1;
    return released > 0 && berth_virtual_bytes_in_use(f->device) == 0 ? 0 : 2;
}
#endif

static void test_the_child_has_the_thread_caches_of_all_threads(void **state)
{
#if defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* TSan cannot follow a child of a program with threads */
#else
    helper h = {.f = *state};
    pthread_t thread;
    pthread_barrier_init(&h.freed, NULL, 2);
    pthread_barrier_init(&h.over, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, keep_a_thread_cache, &h), 0);
    pthread_barrier_wait(&h.freed);
    int code = in_child(empty_all, h.f);
    pthread_barrier_wait(&h.over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(code, 0);
    pthread_barrier_destroy(&h.freed);
    pthread_barrier_destroy(&h.over);
#endif
}

#if !defined(__SANITIZE_THREAD__)
static int has_no_background(fixture *f)
{
    host_cache *c = f->cache->self;
    bool believes = c->background_runs; /* nobody else is here to change it */
    berth_allocator_release(f->cache);
    return believes;
}
#endif

/* The thread is the parent's: the child must neither wake nor wait for it. */
static void test_the_child_has_no_background(void **state)
{
#if defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* TSan cannot follow a child of a program with threads */
#else
    fixture *f = *state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = f->device;
    options.background_us = 1000000;
    replace_cache(f, &options);
    assert_int_equal(in_child(has_no_background, f), 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_child_collects, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_child_has_no_background, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_child_has_the_thread_caches_of_all_threads, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The gate that locks pass before a fork: threads beyond those that have numbers are waited for too, and wait. */
#include "base/fork.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"

typedef struct visit {
    pthread_barrier_t inside, over;
    _Atomic bool forks, leaves;
} visit;

/* As if 8,160 others had all the numbers. */
static void give_up_number(void)
{
    berth__thread_plus_one = UINT32_MAX;
}

static void *stay_inside(void *context)
{
    visit *v = context;
    give_up_number();
    berth__fork_enter(BERTH__RANK_DEVICE);
    berth__fork_enter(BERTH__RANK_STREAM); /* who holds something takes more, fork or not */
    pthread_barrier_wait(&v->inside);
    while (!atomic_load(&v->forks))
        sched_yield();
    berth__fork_leave(BERTH__RANK_STREAM);
    for (int i = 0; i < 1000; i++)
        sched_yield(); /* a fork that does not wait comes back now */
    atomic_store(&v->leaves, true);
    berth__fork_leave(BERTH__RANK_DEVICE);
    pthread_barrier_wait(&v->over); /* a thread that has ended is a leak to ThreadSanitizer in the child */
    return NULL;
}

static void a_fork_waits_for_threads_without_numbers(void **state)
{
    (void)state;
    visit v = {.forks = false};
    pthread_t thread;
    pthread_barrier_init(&v.inside, NULL, 2);
    pthread_barrier_init(&v.over, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, &v), 0);
    pthread_barrier_wait(&v.inside);
    atomic_store(&v.forks, true);
    pid_t child = fork();
    bool was_left = atomic_load(&v.leaves);
    if (child == 0)
        _exit(was_left ? 0 : 1);
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(was_left);
    pthread_barrier_wait(&v.over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&v.inside);
    pthread_barrier_destroy(&v.over);
}

static _Atomic uint32_t entered;
static _Atomic bool stop;

static void *enter_again_and_again(void *context)
{
    if (context)
        give_up_number();
    while (!atomic_load(&stop)) {
        berth__fork_enter(BERTH__RANK_DEVICE);
        atomic_fetch_add(&entered, 1);
        atomic_fetch_sub(&entered, 1);
        berth__fork_leave(BERTH__RANK_DEVICE);
    }
    return NULL;
}

/* Nobody is inside at the moment of the fork, be it with a number or without; in the child the gate is open. */
static int look_in_child(void)
{
    if (atomic_load(&entered) != 0)
        return 1;
    berth__fork_enter(BERTH__RANK_DEVICE);
    berth__fork_leave(BERTH__RANK_DEVICE);
    return 0;
}

static void nobody_is_inside_at_a_fork(void **state)
{
    (void)state;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, enter_again_and_again, i % 2 ? &stop : NULL), 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(look_in_child());
        }
        int status = -1;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_waits_for_threads_without_numbers),
        cmocka_unit_test(nobody_is_inside_at_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

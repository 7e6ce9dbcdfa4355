/* The heavy side of the barrier, first as the kernel offers it and then behind a filter that came late. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "refuse_call.h"

/* Each of two threads stores and then looks for the other's store: behind the two sides of a barrier one of them sees
 * it. tests/model explores this in every order; here it meets the processor. */
typedef struct meeting {
    pthread_barrier_t begin, end;
    _Atomic int light, heavy;
    int light_sees;
} meeting;

enum { MEETINGS = 1000 };

static void *meet_lightly(void *context)
{
    meeting *m = context;
    (void)berth__thread();
    for (int i = 0; i < MEETINGS; i++) {
        pthread_barrier_wait(&m->begin);
        atomic_store_explicit(&m->light, 1, memory_order_relaxed);
        berth__barrier_light();
        m->light_sees = atomic_load_explicit(&m->heavy, memory_order_relaxed);
        pthread_barrier_wait(&m->end);
    }
    return NULL;
}

static void meet(void)
{
    meeting m = {.light_sees = 0};
    pthread_t other;
    pthread_barrier_init(&m.begin, NULL, 2);
    pthread_barrier_init(&m.end, NULL, 2);
    assert_int_equal(pthread_create(&other, NULL, meet_lightly, &m), 0);
    int missed = 0;
    for (int i = 0; i < MEETINGS; i++) {
        atomic_store(&m.light, 0);
        atomic_store(&m.heavy, 0);
        pthread_barrier_wait(&m.begin);
        atomic_store_explicit(&m.heavy, 1, memory_order_relaxed);
        berth__barrier_heavy();
        int heavy_sees = atomic_load_explicit(&m.light, memory_order_relaxed);
        pthread_barrier_wait(&m.end);
        missed += !heavy_sees && !m.light_sees;
    }
    pthread_join(other, NULL);
    pthread_barrier_destroy(&m.begin);
    pthread_barrier_destroy(&m.end);
    assert_int_equal(missed, 0);
}

static void test_two_sides_meet(void **state)
{
    (void)state;
    meet();
}

static int failures;

static void count_failures(void *context, berth_log_level level, const char *message)
{
    (void)context, (void)level, (void)message;
    failures++;
}

/* From here on the process may not use membarrier, and was told that it may. */
static void test_two_sides_meet_behind_a_late_filter(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    (void)berth__thread();
    if (!refuse_call(SYS_membarrier))
        skip();
    assert_int_equal(syscall(SYS_membarrier, 0, 0, 0), -1);
    berth_log_set(count_failures, NULL, BERTH_LOG_WARNING);
    meet();
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(failures, 0); /* no assertion failed: [B5] */
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sides_meet),
        cmocka_unit_test(test_two_sides_meet_behind_a_late_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

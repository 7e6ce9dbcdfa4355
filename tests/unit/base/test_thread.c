/* Thread numbers and memos live as long as their thread; what a fork leaves behind holds nobody up. */
#include "base/lock.h"
#include "base/thread.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void *ask_number(void *number)
{
    *(uint32_t *)number = berth__thread();
    return NULL;
}

static void run_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* However many threads come and go, the number of one that has ended is the next one's. */
static void test_numbers_are_given_back(void **state)
{
    (void)state;
    uint32_t mine = berth__thread(), first = BERTH__NO_THREAD;
    assert_int_not_equal(mine, BERTH__NO_THREAD);
    run_thread(ask_number, &first);
    assert_int_not_equal(first, mine);
    for (int i = 0; i < 100; i++) {
        uint32_t next = BERTH__NO_THREAD;
        run_thread(ask_number, &next);
        assert_int_equal(next, first);
    }
    assert_int_equal(berth__thread(), mine);
}

typedef struct crowd {
    pthread_barrier_t all_have_one;
    _Atomic uint32_t seen[64];
} crowd;

static void *join_crowd(void *context)
{
    crowd *c = context;
    uint32_t number = berth__thread();
    atomic_fetch_add(&c->seen[number], 1);
    pthread_barrier_wait(&c->all_have_one);
    return NULL;
}

/* Threads that live together have different numbers, the lowest there are. */
static void test_numbers_are_dense(void **state)
{
    (void)state;
    enum { count = 20 };
    static crowd c;
    pthread_t threads[count];
    assert_int_equal(pthread_barrier_init(&c.all_have_one, NULL, count), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, join_crowd, &c), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    uint32_t mine = berth__thread();
    for (uint32_t number = 0; number < 64; number++)
        assert_int_equal(c.seen[number], number <= count && number != mine);
    pthread_barrier_destroy(&c.all_have_one);
}

/* What a destructor of a thread's data sees in its second round, when berth's own has run for certain. */
typedef struct last_look {
    pthread_key_t key;
    int rounds;
    uint32_t plus_one;
    berth__memos memos;
} last_look;

static void look(void *context)
{
    last_look *l = context;
    if (l->rounds++ == 0) {
        pthread_setspecific(l->key, l);
        return;
    }
    l->plus_one = berth__thread_plus_one;
    l->memos = berth__thread_memos;
}

static void *leave_memos(void *context)
{
    last_look *l = context;
    int here = 0;
    berth__memo memo = {7, &here, &here};
    (void)berth__thread();
    berth__thread_memos = (berth__memos){memo, memo, memo};
    pthread_setspecific(l->key, l);
    return NULL;
}

/* The number is another thread's from then on, and so is what was found under it. */
static void test_memos_are_emptied_at_thread_exit(void **state)
{
    (void)state;
    last_look l = {.plus_one = 1};
    const berth__memos empty = {0};
    assert_int_equal(pthread_key_create(&l.key, look), 0);
    run_thread(leave_memos, &l);
    assert_int_equal(l.rounds, 2);
    assert_int_equal(l.plus_one, 0);
    assert_memory_equal(&l.memos, &empty, sizeof empty);
    pthread_key_delete(l.key);
}

/* Runs in a child: exits with 0 if everything is as it should be there. */
static int check_child(berth__spin *taken, uint32_t mark_before)
{
    if (berth__same_generation(mark_before) || (berth__inside() & 1) != (mark_before & 1))
        return 1;
    if (!berth__fork_lock(taken, BERTH__RANK_THREADS)) /* somebody held it who is not here */
        return 2;
    berth__fork_unlock(taken, BERTH__RANK_THREADS);
    if (berth__fork_lock(taken, BERTH__RANK_THREADS)) /* once it was let go it is like any other */
        return 3;
    berth__fork_unlock(taken, BERTH__RANK_THREADS);
    uint32_t number = BERTH__NO_THREAD;
    pthread_t thread;
    if (pthread_create(&thread, NULL, ask_number, &number) != 0 || pthread_join(thread, NULL) != 0)
        return 4;
    berth__barrier_heavy(); /* the registration is the child's too */
    return number == BERTH__NO_THREAD || number == berth__thread() ? 5 : 0;
}

static void test_a_fork_leaves_no_lock_taken(void **state)
{
    (void)state;
    (void)berth__thread();
    berth__spin taken = {0};
    uint32_t mark = berth__inside();
    assert_false(berth__fork_lock(&taken, BERTH__RANK_THREADS));
    berth__fork_unlock(&taken, BERTH__RANK_THREADS);
    atomic_store(&taken.word, mark); /* a thread that is in the middle of something when another forks */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(check_child(&taken, mark));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(berth__same_generation(mark));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_given_back),
        cmocka_unit_test(test_numbers_are_dense),
        cmocka_unit_test(test_memos_are_emptied_at_thread_exit),
        cmocka_unit_test(test_a_fork_leaves_no_lock_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

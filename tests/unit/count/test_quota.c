/* The quota: never exceeded, wholly usable whoever keeps credit, and a true peak where it rises. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "assertion.h"
#include "count/quota.h"

enum { threads = 4, rounds = 20000, kept = 16, crowd = 70 };

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void run_thread(void *(*body)(void *), void *context)
{
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, body, context), 0);
    pthread_join(id, NULL);
}

static void a_limit_is_exact(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 1000);
    assert_false(berth__quota_take(&q, 1001));
    assert_true(berth__quota_take(&q, 999));
    assert_false(berth__quota_take(&q, 2));
    assert_true(berth__quota_take(&q, 1));
    assert_int_equal(berth__quota_in_use(&q), 1000);
    berth__quota_give(&q, 999);
    assert_int_equal(berth__quota_in_use(&q), 1);
    assert_true(berth__quota_take(&q, 999));
    assert_false(berth__quota_take(&q, 1));
    assert_false(berth__quota_take(&q, INT64_MAX));
    berth__quota_finish(&q);
}

/* ---- Credit of others ----------------------------------------------------------------------------- */

/* Two threads that take turns: the test says what comes next, and the other does it and stays alive. */
struct other {
    berth__quota *q;
    pthread_barrier_t turn;
    int64_t change; /* taken if above 0, given if below, 0: it ends */
    bool taken;
};

static void *do_as_told(void *context)
{
    struct other *o = context;
    for (;;) {
        pthread_barrier_wait(&o->turn);
        if (o->change > 0)
            o->taken = berth__quota_take(o->q, (uint64_t)o->change);
        else if (o->change < 0)
            berth__quota_give(o->q, (uint64_t)-o->change);
        bool ends = o->change == 0;
        pthread_barrier_wait(&o->turn);
        if (ends)
            return NULL;
    }
}

static bool tell(struct other *o, int64_t change)
{
    o->change = change;
    pthread_barrier_wait(&o->turn);
    pthread_barrier_wait(&o->turn);
    return o->taken;
}

static void credit_of_a_living_thread_is_called_back(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 1 << 20);
    struct other o = {.q = &q};
    pthread_t id;
    pthread_barrier_init(&o.turn, NULL, 2);
    assert_int_equal(pthread_create(&id, NULL, do_as_told, &o), 0);
    for (int i = 0; i < 100; i++) {
        assert_true(tell(&o, 1 << 20)); /* all of it, and back: now it is the other's credit */
        assert_false(berth__quota_take(&q, 1));
        tell(&o, -(1 << 20));
        assert_int_equal(berth__quota_in_use(&q), 0);
        assert_true(berth__quota_take(&q, (1 << 20) - 100));
        assert_false(tell(&o, 101));
        assert_true(tell(&o, 100));
        assert_int_equal(berth__quota_in_use(&q), 1 << 20);
        berth__quota_give(&q, 1000); /* now this thread has credit that the other wants */
        assert_true(tell(&o, 1000));
        assert_false(berth__quota_take(&q, 1));
        tell(&o, -1100);
        berth__quota_give(&q, (1 << 20) - 1100);
    }
    tell(&o, 0);
    pthread_join(id, NULL);
    pthread_barrier_destroy(&o.turn);
    assert_int_equal(berth__quota_in_use(&q), 0);
    berth__quota_finish(&q);
}

static void *leave_with_credit(void *context)
{
    berth__quota *q = context;
    assert_true(berth__quota_take(q, 5000));
    berth__quota_give(q, 4000);
    return NULL;
}

static void *give_what_another_took(void *context)
{
    berth__quota_give(context, 1000);
    return NULL;
}

static void credit_of_a_thread_that_ended_is_not_lost(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 5000);
    run_thread(leave_with_credit, &q);
    assert_int_equal(berth__quota_in_use(&q), 1000);
    assert_true(berth__quota_take(&q, 4000));
    assert_false(berth__quota_take(&q, 1));
    /* The next thread has the number and the slot of the last one, from which credit was called back. */
    run_thread(give_what_another_took, &q);
    assert_int_equal(berth__quota_in_use(&q), 4000);
    assert_false(berth__quota_take(&q, 1001));
    assert_true(berth__quota_take(&q, 1000));
    berth__quota_give(&q, 5000);
    run_thread(leave_with_credit, &q);
    assert_int_equal(berth__quota_in_use(&q), 1000);
    berth__quota_finish(&q);
}

static void a_lower_limit_holds_at_once(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 100000);
    assert_true(berth__quota_take(&q, 800));
    berth__quota_set_cap(&q, 500);
    assert_false(berth__quota_take(&q, 1));
    berth__quota_give(&q, 200); /* still above: what is freed is nobody's credit */
    assert_false(berth__quota_take(&q, 1));
    berth__quota_give(&q, 150); /* 450 */
    assert_false(berth__quota_take(&q, 51));
    assert_true(berth__quota_take(&q, 50));
    assert_int_equal(berth__quota_in_use(&q), 500);
    berth__quota_set_cap(&q, 600);
    assert_true(berth__quota_take(&q, 100));
    assert_false(berth__quota_take(&q, 1));
    berth__quota_finish(&q);
}

/* ---- Many threads --------------------------------------------------------------------------------- */

struct run {
    berth__quota *q;
    int64_t limit;
    _Atomic int64_t held, above;
    _Atomic uint64_t refused;
    _Atomic uint64_t seeds;
    int rounds;
};

/* Counts what it has after it was taken, and no longer before it is given: the sum is never too large. */
static void *take_and_give(void *context)
{
    struct run *run = context;
    uint64_t sizes[kept] = {0}, seed = atomic_fetch_add(&run->seeds, 1) + 1;
    for (int i = 0; i < run->rounds + kept; i++) {
        uint64_t *size = &sizes[i < run->rounds ? draw(&seed) % kept : (uint64_t)(i - run->rounds)];
        if (*size) {
            atomic_fetch_sub(&run->held, (int64_t)*size);
            berth__quota_give(run->q, *size);
            *size = 0;
            continue;
        }
        uint64_t wanted = 1 + draw(&seed) % 20000;
        if (i >= run->rounds)
            continue;
        if (!berth__quota_take(run->q, wanted)) {
            atomic_fetch_add(&run->refused, 1);
            continue;
        }
        int64_t held = atomic_fetch_add(&run->held, (int64_t)wanted) + (int64_t)wanted;
        if (held > run->limit)
            atomic_store(&run->above, held);
        *size = wanted;
    }
    return NULL;
}

static void check_crowd(int count, int each, int64_t limit)
{
    berth__quota q;
    berth__quota_init(&q, limit);
    struct run run = {.q = &q, .limit = limit, .rounds = each};
    pthread_t ids[crowd];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, take_and_give, &run), 0);
    for (int i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(atomic_load(&run.above), 0); /* [Q2] */
    assert_true(atomic_load(&run.refused) > 0);   /* the limit was reached, so the test has seen it work */
    assert_int_equal(berth__quota_in_use(&q), 0); /* [Q1] */
    assert_true(berth__quota_take(&q, (uint64_t)limit)); /* [Q3] */
    assert_false(berth__quota_take(&q, 1));
    berth__quota_finish(&q);
}

static void threads_never_exceed_it(void **state)
{
    (void)state;
    check_crowd(threads, 4 * rounds, 100000);
    check_crowd(2, 4 * rounds, 40000);
    check_crowd(crowd, 400, 60000); /* more than have a slot in the quota itself */
}

struct duel {
    berth__quota *q;
    _Atomic int inside;
    _Atomic bool both, over;
};

static void enter_if_taken(struct duel *duel)
{
    if (!berth__quota_take(duel->q, 1000))
        return;
    if (atomic_fetch_add_explicit(&duel->inside, 1, memory_order_relaxed) != 0)
        atomic_store(&duel->both, true);
    atomic_fetch_sub_explicit(&duel->inside, 1, memory_order_relaxed);
    berth__quota_give(duel->q, 1000);
}

/* Takes and gives all there is within its credit; now and then that is called back under its hands. */
static void *keep_taking(void *context)
{
    struct duel *duel = context;
    for (int i = 0; i < 100 * rounds; i++)
        enter_if_taken(duel);
    atomic_store(&duel->over, true);
    return NULL;
}

static void what_is_called_back_is_not_taken_too(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 1000);
    struct duel duel = {.q = &q};
    pthread_t id;
    uint64_t seed = 3;
    assert_int_equal(pthread_create(&id, NULL, keep_taking, &duel), 0);
    while (!atomic_load(&duel.over)) {
        for (uint64_t pause = draw(&seed) % 500; pause > 0; pause--)
            atomic_signal_fence(memory_order_seq_cst);
        enter_if_taken(&duel);
    }
    pthread_join(id, NULL);
    assert_false(atomic_load(&duel.both)); /* [Q2] */
    assert_int_equal(berth__quota_in_use(&q), 0);
    berth__quota_finish(&q);
}

struct peak_run {
    berth__quota *q;
    pthread_mutex_t lock;
    uint64_t live, top, seed;
};

/* Calls come one at a time, so that the true peak is known; who has which credit is not. */
static void *rise(void *context)
{
    struct peak_run *run = context;
    uint64_t sizes[kept] = {0};
    for (int i = 0; i < 2000 + kept; i++) {
        pthread_mutex_lock(&run->lock);
        uint64_t *size = &sizes[i < 2000 ? draw(&run->seed) % kept : (uint64_t)(i - 2000)];
        if (*size) {
            berth__quota_give(run->q, *size);
            run->live -= *size;
            *size = 0;
        } else if (i < 2000) {
            *size = 1 + draw(&run->seed) % 50000;
            assert_true(berth__quota_take(run->q, *size));
            run->live += *size;
            run->top = run->live > run->top ? run->live : run->top;
        }
        assert_int_equal(berth__quota_peak(run->q), run->top); /* [M8] at every step */
        pthread_mutex_unlock(&run->lock);
    }
    return NULL;
}

static void a_peak_is_true_at_every_step(void **state)
{
    (void)state;
    static berth__quota q = {.rises = true};
    struct peak_run run = {.q = &q, .lock = PTHREAD_MUTEX_INITIALIZER, .seed = 7};
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, rise, &run), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(berth__quota_in_use(&q), 0);
    assert_true(run.top > 0);
    assert_true(berth__quota_take(&q, 10));
    berth__quota_clear(&q);
    assert_int_equal(berth__quota_peak(&q), 10);
    assert_true(berth__quota_take(&q, 5));
    assert_int_equal(berth__quota_peak(&q), 15);
    berth__quota_finish(&q);
}

static void *rise_in_steps(void *context)
{
    berth__quota *q = context;
    for (int i = 0; i < rounds; i++) {
        assert_true(berth__quota_take(q, 1000));
        assert_true(berth__quota_take(q, 1000));
        berth__quota_give(q, 2000);
    }
    return NULL;
}

/* Without a lock the peak cannot be known, but it is a sum of whole blocks, and no credit is in it. */
static void a_peak_of_free_running_threads_holds_no_credit(void **state)
{
    (void)state;
    static berth__quota q = {.rises = true};
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, rise_in_steps, &q), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    assert_true(berth__quota_peak(&q) >= 2000 && berth__quota_peak(&q) <= threads * 2000);
    assert_int_equal(berth__quota_peak(&q) % 1000, 0);
    assert_int_equal(berth__quota_in_use(&q), 0);
    berth__quota_finish(&q);
}

/* ---- Adversity ------------------------------------------------------------------------------------ */

struct starved {
    berth__quota *q;
    pthread_barrier_t *all;
};

static void *count_without_slot(void *context)
{
    struct starved *s = context;
    pthread_barrier_wait(s->all); /* all are alive, so that some have numbers beyond the quota's own slots */
    assert_true(berth__quota_take(s->q, 30));
    berth__quota_give(s->q, 20);
    pthread_barrier_wait(s->all);
    return NULL;
}

static void without_memory_for_slots_it_counts_all_the_same(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, crowd * 30);
    pthread_barrier_t all;
    pthread_t ids[crowd];
    struct starved s = {&q, &all};
    pthread_barrier_init(&all, NULL, crowd);
    berth__heap_fail_at(1, true);
    for (int i = 0; i < crowd; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, count_without_slot, &s), 0);
    for (int i = 0; i < crowd; i++)
        pthread_join(ids[i], NULL);
    berth__heap_fail_at(0, false);
    pthread_barrier_destroy(&all);
    assert_int_equal(berth__quota_in_use(&q), crowd * 10);
    assert_true(berth__quota_take(&q, crowd * 20));
    assert_false(berth__quota_take(&q, 1));
    berth__quota_finish(&q);
}

static void a_child_can_use_all_of_it(void **state)
{
    (void)state;
    berth__quota q;
    berth__quota_init(&q, 9000);
    struct other o = {.q = &q};
    pthread_t id;
    pthread_barrier_init(&o.turn, NULL, 2);
    assert_int_equal(pthread_create(&id, NULL, do_as_told, &o), 0);
    assert_true(tell(&o, 9000));
    tell(&o, -8000); /* credit of a thread that the child does not have */
    pid_t child = fork();
    if (child == 0)
        _exit(berth__quota_in_use(&q) == 1000 && berth__quota_take(&q, 8000) && !berth__quota_take(&q, 1)
                  ? 0
                  : 1);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(berth__quota_take(&q, 8000));
    tell(&o, 0);
    pthread_join(id, NULL);
    pthread_barrier_destroy(&o.turn);
    berth__quota_finish(&q);
}

/* ---- Large blocks ------------------------------------------------------------------------------------ */

enum { LARGE = 5 << 20 };

static void *use_large(void *context)
{
    berth__quota *q = context;
    for (int i = 0; i < 1000; i++) {
        berth__slots_count(&q->slots, LARGE);
        (void)berth__quota_take(q, LARGE);
        berth__quota_give(q, LARGE);
    }
    return NULL;
}

static void *free_large(void *context)
{
    berth__quota_give(context, LARGE);
    return NULL;
}

static void a_peak_of_large_blocks_is_true(void **state)
{
    (void)state;
    static berth__quota q = {.rises = true};
    pthread_t ids[4];
    (void)berth__quota_take(&q, 1000); /* stays */
    for (int i = 0; i < 5; i++)
        run_thread(use_large, &q); /* one after the other: never two blocks at once */
    use_large(&q);
    berth_stats stats = {.struct_size = sizeof stats};
    berth__quota_read(&q, &stats);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_int_equal(stats.max_bytes_in_use, 1000 + LARGE);
    assert_int_equal(stats.num_allocs, 6000);
    assert_int_equal(stats.max_alloc_size, LARGE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, use_large, &q), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    berth__quota_read(&q, &stats);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_true(stats.max_bytes_in_use <= 1000 + 4 * (uint64_t)LARGE);
    assert_int_equal(stats.num_allocs, 10000);
    assert_true(berth__quota_is_valid(&q)); /* [Q1] */
    berth__slots_clear_counts(&q.slots);
    berth__quota_clear(&q);
    berth__quota_read(&q, &stats);
    assert_int_equal(stats.num_allocs, 0);
    assert_int_equal(stats.max_bytes_in_use, 1000);
    berth__quota_finish(&q);
}

static void a_peak_is_true_where_others_free_than_allocate(void **state)
{
    (void)state;
    static berth__quota q = {.rises = true};
    for (int i = 0; i < 200; i++) {
        (void)berth__quota_take(&q, LARGE);
        run_thread(free_large, &q);
    }
    assert_int_equal(berth__quota_in_use(&q), 0);
    assert_int_equal(berth__quota_peak(&q), LARGE);
    berth__quota_finish(&q);
}

/* Looked at before it is called back or forgotten, as with a meter. */
static void damage_is_noticed_before_it_is_gone(void **state)
{
    (void)state;
    berth__quota limit, peak = {.rises = true};
    berth__quota_init(&limit, 100);
    assert_true(berth__quota_take(&limit, 100));
    atomic_store(&limit.claimed, -1);
    assertion_expect();
    berth__quota_set_cap(&limit, 500);
    assert_true(assertion_came("old cap"));
    atomic_store(&limit.claimed, 100);
    berth__quota_finish(&limit);
    (void)berth__quota_take(&peak, 100);
    atomic_store(&peak.cap, 99);
    assertion_expect();
    berth__quota_clear(&peak);
    assert_true(assertion_came("before the peak"));
    atomic_store(&peak.cap, 100);
    berth__quota_finish(&peak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_of_large_blocks_is_true),
        cmocka_unit_test(a_peak_is_true_where_others_free_than_allocate),
        cmocka_unit_test(a_limit_is_exact),
        cmocka_unit_test(credit_of_a_living_thread_is_called_back),
        cmocka_unit_test(credit_of_a_thread_that_ended_is_not_lost),
        cmocka_unit_test(a_lower_limit_holds_at_once),
        cmocka_unit_test(threads_never_exceed_it),
        cmocka_unit_test(what_is_called_back_is_not_taken_too),
        cmocka_unit_test(a_peak_is_true_at_every_step),
        cmocka_unit_test(a_peak_of_free_running_threads_holds_no_credit),
        cmocka_unit_test(without_memory_for_slots_it_counts_all_the_same),
        cmocka_unit_test(a_child_can_use_all_of_it),
        cmocka_unit_test(damage_is_noticed_before_it_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

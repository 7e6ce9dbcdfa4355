/* The meter: exact sums, an exact peak while one thread uses it, a bounded one with several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "assertion.h"
#include "count/meter.h"

enum { threads = 4, rounds = 4000, kept = 64 };

static berth_stats read_meter(berth__meter *m)
{
    berth_stats stats = {.struct_size = sizeof stats};
    berth__meter_read(m, &stats);
    return stats;
}

static void one_thread_is_exact(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_take(&m, 100);
    berth__meter_take(&m, 1000000);
    berth__meter_give(&m, 1000000);
    berth__meter_take(&m, 900);
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.num_allocs, 3);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_int_equal(stats.max_bytes_in_use, 1000100);
    assert_int_equal(stats.max_alloc_size, 1000000);
    assert_int_equal(stats.total_bytes, 1001000);
    berth__meter_clear(&m);
    stats = read_meter(&m);
    assert_int_equal(stats.num_allocs, 0);
    assert_int_equal(stats.total_bytes, 0);
    assert_int_equal(stats.max_alloc_size, 0);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_int_equal(stats.max_bytes_in_use, 1000);
    berth__meter_take(&m, 7);
    assert_int_equal(read_meter(&m).max_bytes_in_use, 1007);
    berth__meter_finish(&m);
}

/* ---- Several threads ------------------------------------------------------------------------------ */

struct run {
    berth__meter *meter;
    uint64_t seed;
    uint64_t allocs, total; /* of this thread */
};

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Holds up to `kept` pieces of random sizes and gives all of them back in the end. */
static void *take_and_give(void *context)
{
    struct run *run = context;
    uint64_t sizes[kept] = {0};
    for (int i = 0; i < rounds; i++) {
        uint64_t *size = &sizes[draw(&run->seed) % kept];
        if (*size) {
            berth__meter_give(run->meter, *size);
            *size = 0;
        } else {
            *size = draw(&run->seed) % 100 == 0 ? 200000 : 1 + draw(&run->seed) % 3000;
            berth__meter_take(run->meter, *size);
            run->allocs++;
            run->total += *size;
        }
    }
    for (int i = 0; i < kept; i++)
        if (sizes[i])
            berth__meter_give(run->meter, sizes[i]);
    return NULL;
}

static void counts_are_exact_after_threads(bool exact)
{
    berth__meter m;
    berth__meter_init(&m, exact);
    struct run runs[threads] = {0};
    pthread_t ids[threads];
    berth__meter_take(&m, 11); /* this thread owns it first */
    for (int i = 0; i < threads; i++) {
        runs[i] = (struct run){.meter = &m, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&ids[i], NULL, take_and_give, &runs[i]), 0);
    }
    uint64_t allocs = 1, total = 11;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        allocs += runs[i].allocs;
        total += runs[i].total;
    }
    assert_true(berth__meter_is_valid(&m)); /* [M1] [M2] [M3] */
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.num_allocs, allocs);
    assert_int_equal(stats.total_bytes, total);
    assert_int_equal(stats.bytes_in_use, 11);
    assert_int_equal(stats.max_alloc_size, 200000);
    berth__meter_clear(&m);
    assert_int_equal(read_meter(&m).max_bytes_in_use, 11);
    berth__meter_finish(&m);
}

static void sums_survive_threads(void **state)
{
    (void)state;
    counts_are_exact_after_threads(false);
    counts_are_exact_after_threads(true);
}

static void *hold_some(void *context)
{
    struct run *run = context;
    for (int i = 0; i < 100; i++)
        berth__meter_take(run->meter, 1000);
    for (int i = 0; i < 40; i++)
        berth__meter_give(run->meter, 1000);
    return NULL;
}

/* One thread after another: the true peak is known, the meter's may be above it by its credit. */
static void the_peak_is_bounded_with_several_threads(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        berth__meter m;
        berth__meter_init(&m, exact != 0);
        struct run run = {.meter = &m};
        hold_some(&run); /* 60000 stay */
        for (int i = 1; i < threads; i++) {
            pthread_t id;
            assert_int_equal(pthread_create(&id, NULL, hold_some, &run), 0);
            pthread_join(id, NULL);
        }
        uint64_t truth = (uint64_t)(threads - 1) * 60000 + 100000;
        berth_stats stats = read_meter(&m);
        assert_int_equal(stats.bytes_in_use, (uint64_t)threads * 60000);
        assert_true(stats.max_bytes_in_use >= truth);
        uint64_t bound = exact ? 0 : (uint64_t)threads * (uint64_t)BERTH__METER_CREDIT;
        assert_true(stats.max_bytes_in_use <= truth + bound);
        berth__meter_finish(&m);
    }
}

/* ---- Blocks larger than the credit ----------------------------------------------------------------- */

static const uint64_t large = 8 << 20;

static void *pair_often(void *context)
{
    struct run *run = context;
    for (int i = 0; i < 100; i++) {
        berth__meter_take(run->meter, large);
        berth__meter_give(run->meter, large);
    }
    return NULL;
}

static void on_a_thread(void *(*function)(void *), struct run *run)
{
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, function, run), 0);
    pthread_join(id, NULL);
}

static bool keeps(berth__meter *m)
{
    return atomic_load(&m->keeps_large);
}

/* Pairs of large blocks come to rest without a shared figure, and what a thread keeps for that raises no peak. */
static void large_pairs_keep_their_bytes_and_raise_no_peak(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    struct run run = {.meter = &m};
    pair_often(&run);
    assert_false(keeps(&m)); /* an owner needs no leave */
    on_a_thread(pair_often, &run);
    assert_true(keeps(&m));
    assert_int_equal(atomic_load(&m.claimed), large); /* the other thread's, all of it credit */
    assert_int_equal(read_meter(&m).bytes_in_use, 0);
    uint64_t peak = read_meter(&m).max_bytes_in_use;
    assert_true(peak >= large && peak <= large + 2 * (uint64_t)BERTH__METER_CREDIT); /* [M3] */
    berth__meter_take(&m, large); /* it would be twice as much with that credit */
    assert_false(keeps(&m));
    assert_true(read_meter(&m).max_bytes_in_use <= large + 2 * (uint64_t)BERTH__METER_CREDIT);
    assert_int_equal(read_meter(&m).bytes_in_use, large);
    berth__meter_give(&m, large);
    assert_true(berth__meter_is_valid(&m));
    berth__meter_finish(&m);
}

/* Each time it was in the way it takes twice as long until a thread may keep large blocks again. */
static void who_was_in_the_way_waits_longer(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    struct run run = {.meter = &m};
    berth__meter_take(&m, large);
    int times = 0;
    for (; times < 40; times++) {
        on_a_thread(pair_often, &run);
        if (!keeps(&m))
            break;
        berth__meter_take(&m, large); /* the peak rises */
        berth__meter_take(&m, large);
        assert_false(keeps(&m));
    }
    assert_true(times > 0 && times < 10);
    uint64_t held = (uint64_t)(1 + 2 * times) * large;
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.bytes_in_use, held);
    assert_true(stats.max_bytes_in_use <= held + large + 2 * (uint64_t)BERTH__METER_CREDIT);
    assert_true(berth__meter_is_valid(&m));
    berth__meter_finish(&m);
}

static void *mix_large(void *context)
{
    struct run *run = context;
    uint64_t kept_large = 0;
    for (int i = 0; i < rounds; i++) {
        berth__meter_take(run->meter, large);
        berth__meter_give(run->meter, large);
        if (draw(&run->seed) % 50 == 0) {
            berth__meter_take(run->meter, 3000);
            kept_large += 3000;
        }
    }
    berth__meter_give(run->meter, kept_large);
    return NULL;
}

/* Threads that grow while others have leave to keep large blocks: sums stay exact, the peak within its bound. */
static void growing_meets_large_pairs(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    struct run runs[threads];
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++) {
        runs[i] = (struct run){.meter = &m, .seed = (uint64_t)i + 21};
        assert_int_equal(pthread_create(&ids[i], NULL, mix_large, &runs[i]), 0);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    berth_stats stats = read_meter(&m);
    uint64_t most = threads * (large + (uint64_t)rounds * 3000 + (uint64_t)BERTH__METER_CREDIT);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_true(stats.max_bytes_in_use >= large && stats.max_bytes_in_use <= most);
    assert_true(berth__meter_is_valid(&m));
    berth__meter_finish(&m);
}

static void *clear_often(void *context)
{
    struct run *run = context;
    for (int i = 0; i < 200; i++)
        berth__meter_clear(run->meter);
    return NULL;
}

static void clearing_meets_running_threads(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    struct run runs[3];
    pthread_t ids[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = (struct run){.meter = &m, .seed = (uint64_t)i + 9};
        assert_int_equal(pthread_create(&ids[i], NULL, i ? take_and_give : clear_often, &runs[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(read_meter(&m).bytes_in_use, 0);
    berth__meter_finish(&m);
}

/* ---- Adversity ------------------------------------------------------------------------------------ */

/* Threads beyond the first have slots of their own only with memory; without a number nobody has one. */
static void *count_without_slot(void *context)
{
    berth__meter *m = context;
    berth__thread_plus_one = BERTH__THREADS_MAX + 1;
    berth__meter_take(m, 300);
    berth__meter_take(m, 30);
    berth__meter_give(m, 300);
    berth__meter_take(m, 3);
    berth__thread_plus_one = 0;
    return NULL;
}

static void without_a_slot_it_counts_all_the_same(void **state)
{
    (void)state;
    berth__meter m;
    pthread_t id;
    berth__meter_init(&m, false);
    assert_int_equal(pthread_create(&id, NULL, count_without_slot, &m), 0);
    pthread_join(id, NULL);
    berth__meter_take(&m, 5);
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.num_allocs, 4);
    assert_int_equal(stats.bytes_in_use, 38);
    assert_int_equal(stats.total_bytes, 338);
    assert_true(stats.max_bytes_in_use >= 330);
    berth__meter_finish(&m);
}

static void a_child_goes_on_counting(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_take(&m, 10);
    /* As if another thread had been inside and held the lock while this one forked. */
    assert_true(berth__thread_numbers_end() > 1); /* of the tests above */
    atomic_store(&berth__slot_of(&m.slots, 1)->busy, berth__inside());
    atomic_store(&m.slots.lock.word, berth__inside());
    pid_t child = fork();
    if (child == 0) {
        berth__meter_take(&m, 5);
        berth__meter_clear(&m);
        _exit(read_meter(&m).max_bytes_in_use == 15 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&m.slots.lock.word, 0);
    berth__meter_finish(&m);
}

/* Clearing and closing make the figures agree, whatever they were: so they are looked at before. */
static void damage_is_noticed_before_it_is_gone(void **state)
{
    (void)state;
    _Atomic uint64_t remaining = 0;
    for (int closes = 0; closes < 2; closes++) {
        berth__meter m;
        berth__meter_init(&m, false);
        berth__meter_take(&m, 100);
        atomic_store(&m.peak, 99);
        assertion_expect();
        if (closes)
            berth__meter_close(&m, &remaining);
        else
            berth__meter_clear(&m);
        assert_true(assertion_came("before"));
        atomic_store(&m.peak, 100);
        berth__meter_finish(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_is_exact),
        cmocka_unit_test(sums_survive_threads),
        cmocka_unit_test(the_peak_is_bounded_with_several_threads),
        cmocka_unit_test(clearing_meets_running_threads),
        cmocka_unit_test(large_pairs_keep_their_bytes_and_raise_no_peak),
        cmocka_unit_test(who_was_in_the_way_waits_longer),
        cmocka_unit_test(growing_meets_large_pairs),
        cmocka_unit_test(without_a_slot_it_counts_all_the_same),
        cmocka_unit_test(a_child_goes_on_counting),
        cmocka_unit_test(damage_is_noticed_before_it_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

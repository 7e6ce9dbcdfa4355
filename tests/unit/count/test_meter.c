/* The meter: exact sums, an exact peak while one thread uses it, a bounded one with several, a hard limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

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
    berth__meter_add(&m, 100);
    berth__meter_add(&m, 1000000);
    berth__meter_sub(&m, 1000000);
    berth__meter_add(&m, 900);
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
    berth__meter_add(&m, 7);
    assert_int_equal(read_meter(&m).max_bytes_in_use, 1007);
    berth__meter_finish(&m);
}

static void a_claim_that_led_to_nothing_changes_nothing(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_add(&m, 50);
    berth__meter_sub(&m, 20);
    assert_int_equal(berth__meter_claim(&m, 500), BERTH__METER_GREW);
    berth__meter_unclaim(&m, 500);
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.bytes_in_use, 30);
    assert_int_equal(stats.max_bytes_in_use, 50);
    assert_int_equal(stats.num_allocs, 1);
    berth__meter_add(&m, 21);
    assert_int_equal(read_meter(&m).max_bytes_in_use, 51);
    berth__meter_finish(&m);
}

static void a_limit_is_exact_with_one_thread(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_set_limit(&m, 1000);
    assert_int_equal(berth__meter_claim(&m, 1001), BERTH__METER_OVER);
    berth__meter_answer answer = berth__meter_claim(&m, 1000);
    assert_int_equal(answer, BERTH__METER_GREW);
    berth__meter_commit(&m, 1000, answer);
    assert_int_equal(berth__meter_claim(&m, 1), BERTH__METER_OVER);
    berth__meter_sub(&m, 1000);
    assert_int_equal(berth__meter_claim(&m, 1001), BERTH__METER_OVER);
    assert_int_not_equal(berth__meter_claim(&m, 1000), BERTH__METER_OVER);
    assert_int_equal(read_meter(&m).bytes_limit, 1000);
    berth__meter_finish(&m);
}

/* ---- Several threads ------------------------------------------------------------------------------ */

struct run {
    berth__meter *meter;
    _Atomic int64_t held;      /* claimed by the threads, as they see it */
    _Atomic int64_t held_most; /* a lower bound of the true peak */
    int64_t limit;
    uint64_t seed;
    uint64_t allocs, total; /* of this thread */
};

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Holds up to `kept` pieces of random sizes and gives all of them back in the end. */
static void *add_and_sub(void *context)
{
    struct run *run = context;
    uint64_t sizes[kept] = {0};
    for (int i = 0; i < rounds; i++) {
        uint64_t *size = &sizes[draw(&run->seed) % kept];
        if (*size) {
            berth__meter_sub(run->meter, *size);
            *size = 0;
        } else {
            *size = draw(&run->seed) % 100 == 0 ? 200000 : 1 + draw(&run->seed) % 3000;
            berth__meter_add(run->meter, *size);
            run->allocs++;
            run->total += *size;
        }
    }
    for (int i = 0; i < kept; i++)
        if (sizes[i])
            berth__meter_sub(run->meter, sizes[i]);
    return NULL;
}

static void counts_are_exact_after_threads(bool exact)
{
    berth__meter m;
    berth__meter_init(&m, exact);
    struct run runs[threads] = {0};
    pthread_t ids[threads];
    berth__meter_add(&m, 11); /* this thread owns it first */
    for (int i = 0; i < threads; i++) {
        runs[i] = (struct run){.meter = &m, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&ids[i], NULL, add_and_sub, &runs[i]), 0);
    }
    uint64_t allocs = 1, total = 11;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        allocs += runs[i].allocs;
        total += runs[i].total;
    }
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
        berth__meter_add(run->meter, 1000);
    for (int i = 0; i < 40; i++)
        berth__meter_sub(run->meter, 1000);
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

static void *claim_within_limit(void *context)
{
    struct run *run = context;
    uint64_t sizes[kept] = {0}, seed = (uint64_t)(uintptr_t)&seed;
    for (int i = 0; i < rounds; i++) {
        uint64_t *size = &sizes[draw(&seed) % kept];
        if (*size) {
            atomic_fetch_sub(&run->held, (int64_t)*size);
            berth__meter_sub(run->meter, *size);
            *size = 0;
            continue;
        }
        uint64_t wanted = 1 + draw(&seed) % 20000;
        berth__meter_answer answer = berth__meter_claim(run->meter, wanted);
        if (answer == BERTH__METER_OVER)
            continue;
        int64_t held = atomic_fetch_add(&run->held, (int64_t)wanted) + (int64_t)wanted;
        if (held > run->limit)
            atomic_store(&run->held_most, held);
        berth__meter_commit(run->meter, wanted, answer);
        *size = wanted;
    }
    for (int i = 0; i < kept; i++)
        if (sizes[i]) {
            atomic_fetch_sub(&run->held, (int64_t)sizes[i]);
            berth__meter_sub(run->meter, sizes[i]);
        }
    return NULL;
}

static void a_limit_is_never_exceeded(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        berth__meter m;
        berth__meter_init(&m, exact != 0);
        struct run run = {.meter = &m, .limit = 500000};
        berth__meter_set_limit(&m, (uint64_t)run.limit);
        pthread_t ids[threads];
        for (int i = 0; i < threads; i++)
            assert_int_equal(pthread_create(&ids[i], NULL, claim_within_limit, &run), 0);
        for (int i = 0; i < threads; i++)
            pthread_join(ids[i], NULL);
        assert_int_equal(atomic_load(&run.held_most), 0); /* [M4] */
        berth_stats stats = read_meter(&m);
        assert_int_equal(stats.bytes_in_use, 0);
        assert_true(stats.max_bytes_in_use <= (uint64_t)run.limit);
        /* What threads that are gone kept as credit does not stand in the way. */
        assert_int_not_equal(berth__meter_claim(&m, (uint64_t)run.limit), BERTH__METER_OVER);
        assert_int_equal(berth__meter_claim(&m, 1), BERTH__METER_OVER);
        berth__meter_finish(&m);
    }
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
        assert_int_equal(pthread_create(&ids[i], NULL, i ? add_and_sub : clear_often, &runs[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(read_meter(&m).bytes_in_use, 0);
    berth__meter_finish(&m);
}

/* ---- Adversity ------------------------------------------------------------------------------------ */

static void without_memory_for_slots_it_counts_all_the_same(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__heap_fail_at(1, true);
    berth__meter_add(&m, 300);
    berth__meter_add(&m, 30);
    berth__meter_sub(&m, 300);
    berth__meter_answer answer = berth__meter_claim(&m, 3);
    berth__meter_commit(&m, 3, answer);
    berth__heap_fail_at(0, false);
    berth__meter_add(&m, 5);
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
    berth__meter_add(&m, 10);
    /* As if another thread had been inside and held the lock while this one forked. */
    atomic_store(&berth__meter_slot_of(&m, 7)->busy, berth__inside());
    atomic_store(&m.lock.word, berth__inside());
    pid_t child = fork();
    if (child == 0) {
        berth__meter_add(&m, 5);
        berth__meter_clear(&m);
        _exit(read_meter(&m).max_bytes_in_use == 15 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&m.lock.word, 0);
    berth__meter_finish(&m);
}

/* ---- Hoarding ---------------------------------------------------------------------------------------- */

enum { LARGE = 5 << 20 };

static void *use_large(void *context)
{
    berth__meter *m = context;
    for (int i = 0; i < 1000; i++) {
        berth__meter_add_true_counted(m, LARGE);
        berth__meter_sub(m, LARGE);
    }
    return NULL;
}

static void *add_one(void *context)
{
    berth__meter_add_true_counted(context, LARGE);
    return NULL;
}

static void *free_one(void *context)
{
    berth__meter_sub(context, LARGE);
    return NULL;
}

static void in_thread(void *(*work)(void *), berth__meter *m)
{
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, work, m), 0);
    pthread_join(id, NULL);
}

static void a_hoarding_meters_peak_is_true(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_hoard(&m);
    berth__meter_add_true_counted(&m, 1000); /* stays */
    for (int i = 0; i < 5; i++)
        in_thread(use_large, &m); /* one after the other: never two blocks at once */
    use_large(&m);
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_int_equal(stats.max_bytes_in_use, 1000 + LARGE);
    assert_int_equal(stats.num_allocs, 6001);
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, use_large, &m), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    stats = read_meter(&m);
    assert_int_equal(stats.bytes_in_use, 1000);
    assert_true(stats.max_bytes_in_use <= 1000 + 4 * (uint64_t)LARGE);
    berth__meter_finish(&m);
}

static void hoarding_ends_where_others_free_than_allocate(void **state)
{
    (void)state;
    berth__meter m;
    berth__meter_init(&m, false);
    berth__meter_hoard(&m);
    for (int i = 0; i < 200; i++) {
        add_one(&m);
        in_thread(free_one, &m);
    }
    assert_false(atomic_load(&m.hoards));
    berth_stats stats = read_meter(&m);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.max_bytes_in_use, LARGE);
    berth__meter_finish(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_is_exact),
        cmocka_unit_test(a_claim_that_led_to_nothing_changes_nothing),
        cmocka_unit_test(a_limit_is_exact_with_one_thread),
        cmocka_unit_test(sums_survive_threads),
        cmocka_unit_test(the_peak_is_bounded_with_several_threads),
        cmocka_unit_test(a_limit_is_never_exceeded),
        cmocka_unit_test(clearing_meets_running_threads),
        cmocka_unit_test(without_memory_for_slots_it_counts_all_the_same),
        cmocka_unit_test(a_child_goes_on_counting),
        cmocka_unit_test(a_hoarding_meters_peak_is_true),
        cmocka_unit_test(hoarding_ends_where_others_free_than_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Spin locks exclude each other; ranks are checked where debug builds check them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/lock.h"

enum { threads = 4, rounds = 20000 };

static berth__spin spin;
static uint64_t counter; /* guard: spin */

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < rounds; i++) {
        berth__spin_lock(&spin, BERTH__RANK_TABLE);
        counter++;
        berth__spin_unlock(&spin, BERTH__RANK_TABLE);
    }
    return NULL;
}

static void a_spin_lock_excludes(void **state)
{
    (void)state;
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, count, NULL), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(counter, (uint64_t)threads * rounds);
}

static void ranks_rise_and_come_back(void **state)
{
    (void)state;
    berth__rank_take(BERTH__RANK_REGISTRY);
    berth__rank_take(BERTH__RANK_METER);
    berth__rank_give(BERTH__RANK_REGISTRY);
    berth__rank_give(BERTH__RANK_METER);
    berth__rank_take(BERTH__RANK_REGISTRY);
    berth__rank_give(BERTH__RANK_REGISTRY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spin_lock_excludes),
        cmocka_unit_test(ranks_rise_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

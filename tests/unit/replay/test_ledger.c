/* The ledger and the table of handed-out pointers, against the plainest thing that does the same. */
#include "replay/handed.h"
#include "replay/ledger.h"
#include "rig.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void check_neighbours(const berth__ledger *l, const bool *live, uint32_t ranks, uint32_t at)
{
    uint32_t next = at, previous = at;
    while (next < ranks && !live[next])
        next++;
    while (previous != UINT32_MAX && !live[previous])
        previous--;
    assert_int_equal(berth__ledger_next(l, at), next < ranks ? next : BERTH__LEDGER_NONE);
    assert_int_equal(berth__ledger_previous(l, at), previous);
    assert_int_equal(berth__ledger_has(l, at), live[at]);
}

static void test_neighbours_at_every_size(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 300000};
    uint64_t random = 5;
    berth__ledger l = {0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t ranks = sizes[k];
        assert_int_equal(berth__ledger_prepare(&l, ranks), BERTH_OK);
        assert_int_equal(berth__ledger_next(&l, 0), BERTH__LEDGER_NONE);
        assert_int_equal(berth__ledger_previous(&l, ranks - 1), BERTH__LEDGER_NONE);
        assert_int_equal(berth__ledger_next(&l, ranks),
                         BERTH__LEDGER_NONE); /* one past the end may be asked */
        bool *live = calloc(ranks, sizeof *live);
        uint32_t count = 0;
        for (int step = 0; step < 300; step++) {
            uint32_t rank = (uint32_t)(next_random(&random) % ranks);
            if (live[rank])
                berth__ledger_remove(&l, rank);
            else
                berth__ledger_add(&l, rank, rank + 7);
            count += live[rank] ? UINT32_MAX : 1;
            live[rank] = !live[rank];
            assert_int_equal(l.live, count);
            if (live[rank])
                assert_int_equal(l.ids[rank], rank + 7);
            if (step % 10 == 0 || ranks < 5000) {
                check_neighbours(&l, live, ranks, rank);
                check_neighbours(&l, live, ranks, (uint32_t)(next_random(&random) % ranks));
            }
        }
        berth__ledger_clear(&l);
        assert_int_equal(berth__ledger_next(&l, 0), BERTH__LEDGER_NONE);
        free(live);
    }
    assert_int_equal(berth__ledger_prepare(&l, 10), BERTH_OK); /* keeps its memory */
    berth__ledger_finish(&l);
    assert_int_equal(berth__ledger_prepare(&l, 0), BERTH_OK);
    berth__ledger_finish(&l);
}

static void test_handed_out_pointers(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static uint64_t value[MOST];
    static bool there[MOST];
    memset(there, 0, sizeof there);
    berth__handed t = {0};
    uint64_t random = 11, got = 0;
    char *base = (char *)(uintptr_t)0x100000;
    assert_false(berth__handed_take(&t, base, &got));
    for (int step = 0; step < 60000; step++) {
        size_t k = next_random(&random) % (step < 30000 ? MOST : 200);
        void *p = base + k * 64;
        if (next_random(&random) % 2) {
            bool replaced = false;
            uint64_t old = 0;
            assert_true(berth__handed_put(&t, p, (uint64_t)step, &replaced, &old));
            assert_int_equal(replaced, there[k]);
            if (replaced)
                assert_int_equal(old, value[k]);
            value[k] = (uint64_t)step;
            there[k] = true;
        } else {
            assert_int_equal(berth__handed_take(&t, p, &got), there[k]);
            if (there[k])
                assert_int_equal(got, value[k]);
            there[k] = false;
        }
    }
    size_t count = 0;
    for (size_t k = 0; k < MOST; k++) {
        count += there[k];
        assert_int_equal(berth__handed_take(&t, base + k * 64, &got), there[k]);
    }
    assert_true(count > 0);
    assert_int_equal(t.count, 0);
    berth__handed_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_at_every_size),
        cmocka_unit_test(test_handed_out_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

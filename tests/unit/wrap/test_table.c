/* The table of live blocks against a plain array, with collisions, growth, failing memory and threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wrap/table.h"

static berth__slots slots; /* nobody owns more than a shard of it */

static const void *at(uintptr_t n)
{
    return (const void *)(n * 16 + 16);
}

static bool put_alone(berth__table *t, uintptr_t n, uint64_t id)
{
    (void)berth__thread(); /* from then on it is known what barriers there are */
    berth__slots_allow_fast(t->slots);
    berth__slot *slot = berth__slot_fast(t->slots);
    return slot && berth__table_put_alone(t, slot, at(n), 16, 0, id, NULL);
}

static bool take_alone(berth__table *t, uintptr_t n, berth__entry *out)
{
    berth__slot *slot = berth__slot_fast(t->slots);
    return slot && berth__table_take_alone(t, slot, at(n), out);
}

static void put(berth__table *t, uintptr_t n, uint64_t id)
{
    berth__entry old, entry = {.address = at(n), .id = id, .requested_bytes = 16};
    assert_true(berth__table_put(t, &entry, &old));
    assert_null(old.address);
}

#if defined(__aarch64__)
/* A block is found by a pointer that carries another tag, or none. */
static void tags_are_no_part_of_an_address(void **state)
{
    (void)state;
    berth__table t = {.slots = &slots};
    const uintptr_t tag = (uintptr_t)0xb4 << 56;
    const void *plain = at(77), *tagged = (const void *)((uintptr_t)plain | tag);
    berth__entry old, out, entry = {.address = tagged, .id = 5, .requested_bytes = 16};
    assert_true(berth__table_put(&t, &entry, &old));
    assert_true(berth__table_get(&t, plain, &out));
    assert_int_equal(out.id, 5);
    assert_true(berth__table_holds(&t, (const char *)plain + 15));
    assert_false(berth__table_holds(&t, (const char *)plain + 16));
    assert_true(berth__table_take(&t, plain, &out));
    assert_false(berth__table_get(&t, tagged, &out));
    entry.address = plain;
    assert_true(berth__table_put(&t, &entry, &old));
    berth__slot *slot = berth__slot_fast(t.slots);
    assert_true((slot && berth__table_take_alone(&t, slot, tagged, &out)) ||
                berth__table_take(&t, tagged, &out));
    assert_false(berth__table_get(&t, plain, &out));
    berth__table_finish(&t);
}
#endif

/* Everything lands in few shards, so that probing, growth and shifting back are worked hard. */
static void it_agrees_with_an_array(void **state)
{
    (void)state;
    enum { places = 6000 };
    static berth__table t;
    static uint64_t ids[places];
    uint64_t seed = 7, next = 0;
    memset(&t, 0, sizeof t);
    t.slots = &slots;
    for (int i = 0; i < 60000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uintptr_t n = (uintptr_t)(seed >> 40) % places;
        berth__entry entry = {0};
        assert_int_equal(berth__table_get(&t, at(n), &entry), ids[n] != 0);
        assert_int_equal(entry.id, ids[n]);
        if (ids[n]) {
            assert_true((i % 2 && take_alone(&t, n, &entry)) || berth__table_take(&t, at(n), &entry));
            assert_int_equal(entry.id, ids[n]);
            ids[n] = 0;
        } else if (i % 3) {
            ids[n] = ++next;
            if (i % 2 == 0 || !put_alone(&t, n, next))
                put(&t, n, next);
        }
    }
    berth__entry *copy = NULL;
    size_t count = 0, expected = 0;
    for (int n = 0; n < places; n++)
        expected += ids[n] != 0;
    assert_true(berth__table_copy(&t, &copy, &count));
    assert_int_equal(count, expected);
    for (size_t i = 1; i < count; i++)
        assert_true(copy[i - 1].id < copy[i].id);
    berth__table_free_copy(copy, count);
    berth__table_finish(&t);
}

static void an_address_twice_hands_the_first_out(void **state)
{
    (void)state;
    berth__table t = {.slots = &slots};
    put(&t, 5, 1);
    berth__entry old, entry = {.address = at(5), .id = 2};
    assert_true(berth__table_put(&t, &entry, &old));
    assert_int_equal(old.id, 1);
    assert_true(berth__table_get(&t, at(5), &entry));
    assert_int_equal(entry.id, 2);
    berth__table_finish(&t);
}

static void blocks_are_found_by_their_middle(void **state)
{
    (void)state;
    berth__table t = {.slots = &slots};
    put(&t, 100, 1);
    assert_true(berth__table_holds(&t, at(100)));
    assert_true(berth__table_holds(&t, (const char *)at(100) + 15));
    assert_false(berth__table_holds(&t, (const char *)at(100) + 16));
    assert_false(berth__table_holds(&t, at(99)));
    berth__table_finish(&t);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth__table t = {.slots = &slots};
    berth__entry old, entry = {.address = at(1), .id = 1};
    berth__heap_fail_at(1, false);
    assert_false(berth__table_put(&t, &entry, &old));
    assert_false(berth__table_get(&t, at(1), &entry));
    uintptr_t n = 0;
    for (;; n++) { /* until a shard must grow */
        berth__heap_fail_at(0, false);
        if (n >= 1)
            berth__heap_fail_at(1, true);
        entry = (berth__entry){.address = at(n), .id = n + 1};
        if (!berth__table_put(&t, &entry, &old))
            break;
    }
    berth__heap_fail_at(0, false);
    assert_true(n > 1);
    for (uintptr_t i = 0; i < n; i++)
        assert_true(berth__table_get(&t, at(i), &entry) && entry.id == i + 1);
    assert_false(berth__table_get(&t, at(n), &entry));
    berth__table_finish(&t);
    assert_int_equal(berth__heap_live(), live);
}

struct part {
    berth__table *table;
    uintptr_t first;
};

static void *work(void *context)
{
    struct part *part = context;
    for (int round = 0; round < 20; round++) {
        for (uintptr_t n = 0; n < 200; n++) {
            berth__entry old = {0}, entry = {.address = at(part->first + n), .id = n + 1};
            if (put_alone(part->table, part->first + n, n + 1))
                continue;
            if (!berth__table_put(part->table, &entry, &old) || old.address)
                return context;
        }
        for (uintptr_t n = 0; n < 200; n++) {
            berth__entry entry;
            if ((!take_alone(part->table, part->first + n, &entry) &&
                 !berth__table_take(part->table, at(part->first + n), &entry)) ||
                entry.id != n + 1)
                return context;
        }
    }
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    (void)state;
    static berth__table t;
    memset(&t, 0, sizeof t);
    t.slots = &slots;
    struct part parts[4];
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct part){&t, (uintptr_t)i * 200};
        assert_int_equal(pthread_create(&ids[i], NULL, work, &parts[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *trouble = NULL;
        pthread_join(ids[i], &trouble);
        assert_null(trouble);
    }
    berth__entry *copy = NULL;
    size_t count = 1;
    assert_true(berth__table_copy(&t, &copy, &count));
    assert_int_equal(count, 0);
    berth__table_free_copy(copy, count);
    berth__table_finish(&t);
}

static void *come_by(void *context)
{
    berth__entry out;
    return berth__table_get(context, at(1), &out) ? NULL : context;
}

/* A shard that was taken away is a thread's own again once nobody else has come for a while; the while grows. */
static void a_shard_comes_back_to_who_uses_it_alone(void **state)
{
    (void)state;
    static berth__table t;
    memset(&t, 0, sizeof t);
    t.slots = &slots;
    put(&t, 1, 1);
    berth__shard *s = berth__table_shard(&t, at(1));
    uint32_t mine = atomic_load(&s->owner), turns[2] = {0};
    assert_true(mine >= BERTH__SHARD_OWNED);
    for (int time = 0; time < 2; time++) {
        pthread_t id;
        void *trouble = NULL;
        assert_int_equal(pthread_create(&id, NULL, come_by, &t), 0);
        pthread_join(id, &trouble);
        assert_null(trouble);
        assert_int_equal(atomic_load(&s->owner), BERTH__SHARD_SHARED);
        berth__entry out;
        while (atomic_load(&s->owner) == BERTH__SHARD_SHARED && turns[time] < 100000) {
            assert_true(berth__table_get(&t, at(1), &out) && out.id == 1);
            turns[time]++;
        }
        assert_int_equal(atomic_load(&s->owner), mine);
    }
    assert_in_range(turns[1], 2 * turns[0] - 2, 2 * turns[0] + 2);
    berth__table_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__aarch64__)
        cmocka_unit_test(tags_are_no_part_of_an_address),
#endif
        cmocka_unit_test(it_agrees_with_an_array),
        cmocka_unit_test(an_address_twice_hands_the_first_out),
        cmocka_unit_test(blocks_are_found_by_their_middle),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(threads_do_not_mix),
        cmocka_unit_test(a_shard_comes_back_to_who_uses_it_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The arena against a reference that knows nothing but an array of grains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pool/arena.h"

enum { GRAIN = 256, GRAINS = 400, BASE = 1 << 20, SPANS = 400 };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

struct fixture {
    berth__arena arena;
    berth__index free_memory, waiting;
    berth__segment *segment;
};

static void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    berth__arena_init(&f->arena);
    assert_int_equal(berth__arena_prepare(&f->arena), BERTH_OK);
    assert_int_equal(
        berth__arena_add_segment(&f->arena, BASE, (size_t)GRAINS * GRAIN, &f->free_memory, &f->segment),
        BERTH_OK);
    assert_int_equal(berth__arena_map_reserve(f->segment, BASE, (size_t)GRAINS * GRAIN), BERTH_OK);
}

static berth__span *take(struct fixture *f, size_t grains, size_t alignment)
{
    assert_int_equal(berth__arena_prepare(&f->arena), BERTH_OK);
    uintptr_t address = 0;
    berth__span *span = berth__index_find(&f->free_memory, grains * GRAIN, alignment, &address);
    if (!span)
        return NULL;
    span = berth__arena_take(&f->arena, span, address, grains * GRAIN);
    atomic_store(&span->state, BERTH__SPAN_LIVE);
    berth__arena_map_set(span);
    return span;
}

static void put(struct fixture *f, berth__span *span, berth__index *index)
{
    atomic_store(&span->state, BERTH__SPAN_FREE);
    berth__arena_put(&f->arena, span, index);
}

static void the_lowest_place_is_used_and_neighbours_merge(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    berth__span *a = take(&f, 10, 1), *b = take(&f, 5, 1), *c = take(&f, 10, 1), *d = take(&f, 1, 1);
    assert_int_equal(a->address, BASE);
    assert_int_equal(b->address, BASE + 10 * GRAIN);
    put(&f, c, &f.free_memory);
    put(&f, a, &f.free_memory);
    assert_int_equal(f.free_memory.span_count, 3);
    assert_ptr_equal(berth__index_below(&f.free_memory, UINTPTR_MAX), d->after);
    assert_ptr_equal(berth__index_below(&f.free_memory, d->after->address), c);
    assert_ptr_equal(berth__index_below(&f.free_memory, c->address), a);
    assert_null(berth__index_below(&f.free_memory, a->address));
    assert_int_equal(take(&f, 10, 1)->address, BASE); /* not the equal hole above */
    assert_int_equal(berth__arena_at(f.segment, BASE + 15 * GRAIN)->state, BERTH__SPAN_FREE);
    put(&f, b, &f.free_memory);
    assert_int_equal(f.free_memory.span_count, 2); /* b and c are one */
    assert_int_equal(take(&f, 15, 1)->address, BASE + 10 * GRAIN);
    assert_int_equal(d->address, BASE + 25 * GRAIN);
    assert_true(berth__arena_is_valid(&f.arena));
    berth__arena_finish(&f.arena);
}

static void spans_of_different_indices_do_not_merge(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    berth__span *a = take(&f, 1, 1), *b = take(&f, 1, 1), *c = take(&f, 1, 1);
    a->ticket = 3;
    b->ticket = 5;
    put(&f, a, &f.waiting);
    put(&f, c, &f.free_memory);
    put(&f, b, &f.waiting);
    assert_int_equal(f.waiting.span_count, 1);
    assert_int_equal(f.waiting.bytes, 2 * GRAIN);
    assert_int_equal(f.waiting.root->ticket, 5); /* the later point covers both */
    assert_int_equal(f.free_memory.span_count, 1);
    assert_true(berth__arena_is_valid(&f.arena));
    berth__arena_finish(&f.arena);
}

/* The reference: which grains are taken. */
static int lowest_run(const bool *taken, int grains)
{
    for (int i = 0, run = 0; i < GRAINS; i++) {
        run = taken[i] ? 0 : run + 1;
        if (run == grains)
            return i - grains + 1;
    }
    return -1;
}

static void fill(bool *taken, const berth__span *span, bool value)
{
    for (size_t i = 0; i < span->size_bytes / GRAIN; i++) {
        size_t at = (span->address - BASE) / GRAIN + i;
        assert_int_equal(taken[at], !value);
        taken[at] = value;
    }
}

static void random_runs_agree_with_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture f;
        fixture_init(&f);
        bool taken[GRAINS] = {false};
        berth__span *live[SPANS];
        size_t count = 0;
        uint64_t random = seed;
        for (int step = 0; step < 2000; step++) {
            if (count == 0 || (count < SPANS && next_random(&random) % 2)) {
                int grains = 1 + (int)(next_random(&random) % 40);
                int expected = lowest_run(taken, grains);
                berth__span *span = take(&f, (size_t)grains, 1);
                assert_int_equal(span != NULL, expected >= 0);
                if (!span)
                    continue;
                assert_int_equal(span->address, BASE + (uintptr_t)expected * GRAIN);
                fill(taken, span, true);
                live[count++] = span;
                uintptr_t inside = span->address + next_random(&random) % span->size_bytes;
                assert_ptr_equal(berth__arena_around(f.segment, inside), span);
            } else {
                size_t i = next_random(&random) % count;
                fill(taken, live[i], false);
                put(&f, live[i], &f.free_memory);
                live[i] = live[--count];
            }
            if (step % 50 == 0)
                assert_true(berth__arena_is_valid(&f.arena));
        }
        while (count)
            put(&f, live[--count], &f.free_memory);
        assert_int_equal(f.free_memory.span_count, 1);
        assert_int_equal(f.free_memory.bytes, GRAINS * GRAIN);
        assert_true(berth__arena_is_valid(&f.arena));
        berth__arena_finish(&f.arena);
    }
}

static void alignment_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    take(&f, 1, 1);
    for (size_t alignment = 512; alignment <= 8192; alignment *= 2) {
        berth__span *span = take(&f, 3, alignment);
        assert_non_null(span);
        assert_int_equal(span->address % alignment, 0);
    }
    assert_true(berth__arena_is_valid(&f.arena));
    berth__arena_finish(&f.arena);
}

static void damage_is_seen(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    berth__span *a = take(&f, 4, 1);
    a->size_bytes -= GRAIN;
    assert_false(berth__arena_is_valid(&f.arena));
    a->size_bytes += GRAIN;
    assert_true(berth__arena_is_valid(&f.arena));
    f.free_memory.root->largest_below -= GRAIN;
    assert_false(berth__arena_is_valid(&f.arena));
    f.free_memory.root->largest_below += GRAIN;
    assert_true(berth__arena_is_valid(&f.arena)); /* which the end asks again */
    berth__arena_finish(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_place_is_used_and_neighbours_merge),
        cmocka_unit_test(spans_of_different_indices_do_not_merge),
        cmocka_unit_test(random_runs_agree_with_the_reference),
        cmocka_unit_test(alignment_is_kept),
        cmocka_unit_test(damage_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Thread caches: exact sizes, the newest first, halves of full bins, and blocks that two threads have freed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pool/tcache.h"

/* A size whose bin is as shallow as any. */
enum { BINNED = 16384, DEPTH = BERTH__TCACHE_BIN_GRAINS * BERTH__ARENA_GRAIN / BINNED, BATCH = DEPTH / 2 };
enum { SPANS = 32, MARK = BERTH__SPAN_CACHED + 3, OTHER_MARK = BERTH__SPAN_CACHED + 5, LARGE = 1 << 20 };

static berth__tcache tcache, other;
static berth__span spans[SPANS];

static int set_up(void **state)
{
    (void)state;
    memset(&tcache, 0, sizeof tcache);
    memset(&other, 0, sizeof other);
    memset(spans, 0, sizeof spans);
    berth__tcache_init(&tcache, MARK, BERTH__TCACHE_BYTES);
    berth__tcache_init(&other, OTHER_MARK, BERTH__TCACHE_BYTES);
    for (uintptr_t i = 0; i < SPANS; i++)
        atomic_store(&spans[i].address, (i + 1) * BERTH__ARENA_GRAIN);
    return 0;
}

static bool put(berth__tcache *into, size_t i, size_t size_bytes)
{
    bool has_room = berth__tcache_has_room(into, size_bytes);
    if (has_room)
        berth__tcache_put(into, (berth__tcached){spans[i].address, &spans[i]}, size_bytes);
    return has_room;
}

static void sizes_match_exactly_and_the_newest_comes_first(void **state)
{
    (void)state;
    assert_true(put(&tcache, 0, 512));
    assert_true(put(&tcache, 1, 512));
    assert_true(put(&tcache, 2, LARGE));
    assert_true(put(&tcache, 3, 2 * (size_t)LARGE));
    assert_int_equal(atomic_load(&spans[0].state), MARK);
    berth__tcached block = {0};
    assert_false(berth__tcache_take_newest(&tcache, 256, &block));
    assert_true(berth__tcache_take_newest(&tcache, 512, &block));
    assert_ptr_equal(block.span, &spans[1]);
    assert_int_equal(block.address, spans[1].address);
    assert_false(berth__tcache_take_newest(&tcache, LARGE, &block)); /* not the newest of the large ones */
    assert_ptr_equal(berth__tcache_take(&tcache, LARGE, 64), &spans[2]);
    assert_true(berth__tcache_take_newest(&tcache, 2 * (size_t)LARGE, &block));
    assert_false(berth__tcache_take_newest(&tcache, 2 * (size_t)LARGE, &block));
    assert_null(berth__tcache_take(&tcache, 512, 4096)); /* at 256 */
    assert_ptr_equal(berth__tcache_take(&tcache, 512, 256), &spans[0]);
    assert_null(berth__tcache_take(&tcache, 512, 256));
    assert_int_equal(tcache.held_bytes, 0);
}

static void bytes_are_bounded_and_counted(void **state)
{
    (void)state;
    tcache.most_bytes = tcache.usual_bytes = LARGE + 1024;
    assert_true(put(&tcache, 0, LARGE));
    assert_true(put(&tcache, 1, 512));
    assert_false(put(&tcache, 2, LARGE));
    assert_true(put(&tcache, 2, 512));
    assert_false(put(&tcache, 3, 256));
    assert_int_equal(tcache.held_bytes, LARGE + 1024);
    berth__span *out[BERTH__TCACHE_MOST];
    assert_int_equal(berth__tcache_clear_recent(&tcache, out), 1);
    assert_int_equal(tcache.held_bytes, 1024);
    for (size_t i = 3; i < 3 + DEPTH; i++)
        assert_true(put(&tcache, i, BINNED));
    assert_int_equal(berth__tcache_make_place(&tcache, BINNED, out), BATCH);
    assert_int_equal(tcache.held_bytes, 1024 + BATCH * BINNED);
}

/* As the pool lets a huge block in: alone. What it may have stays raised, for it alone. */
static void a_huge_block_raises_the_bound_for_itself_alone(void **state)
{
    (void)state;
    const size_t huge = 16 * (size_t)LARGE;
    tcache.usual_bytes = 3 * (size_t)LARGE;
    tcache.most_bytes = huge;
    berth__tcached block = {0};
    for (int round = 0; round < 2; round++) { /* again without being raised again */
        assert_true(put(&tcache, 0, huge));
        assert_false(put(&tcache, 1, 512)); /* nothing beside it */
        assert_true(berth__tcache_take_newest(&tcache, huge, &block));
    }
    for (size_t i = 0; i < 3; i++)
        assert_true(put(&tcache, i, LARGE));
    assert_false(put(&tcache, 3, LARGE)); /* there is a place, but 4 are more than usual */
    assert_false(put(&tcache, 3, huge));
    assert_int_equal(tcache.held_bytes, tcache.usual_bytes);
}

static void a_full_bin_gives_its_older_half(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEPTH; i++)
        assert_true(put(&tcache, i, BINNED));
    assert_false(put(&tcache, DEPTH, BINNED));
    berth__span *out[BERTH__TCACHE_MOST];
    assert_int_equal(berth__tcache_make_place(&tcache, BINNED, out), BATCH);
    for (size_t i = 0; i < BATCH; i++)
        assert_ptr_equal(out[i], &spans[i]);
    for (size_t i = DEPTH; i-- > BATCH;)
        assert_ptr_equal(berth__tcache_take(&tcache, BINNED, 64), &spans[i]);
    assert_null(berth__tcache_take(&tcache, BINNED, 64));
}

/* Every bin has its own places, as many as make 256 KiB, but at most 64. */
static void the_smaller_blocks_are_the_more_are_kept(void **state)
{
    (void)state;
    static berth__span many[BERTH__TCACHE_BLOCKS];
    memset(many, 0, sizeof many);
    berth__span *span = many;
    for (size_t size = BERTH__ARENA_GRAIN; berth__tcache_is_binned(size); size += BERTH__ARENA_GRAIN) {
        size_t kept = 0;
        for (; berth__tcache_has_room(&tcache, size); kept++, span++)
            berth__tcache_put(&tcache, (berth__tcached){(uintptr_t)(span - many + 1) << 20, span}, size);
        size_t wanted = ((size_t)256 << 10) / size;
        assert_int_equal(kept, wanted > 64 ? 64 : wanted);
    }
    assert_int_equal(span - many, BERTH__TCACHE_BLOCKS);
    assert_true(tcache.held_bytes <= (size_t)15 << 20);
    berth__tcached block = {0};
    for (size_t size = BERTH__ARENA_GRAIN; berth__tcache_is_binned(size); size += BERTH__ARENA_GRAIN)
        while (berth__tcache_take_newest(&tcache, size, &block))
            assert_int_equal(block.address, (uintptr_t)(block.span - many + 1) << 20);
    assert_int_equal(tcache.held_bytes, 0);
}

static void count_span(void *context, berth__span *span)
{
    assert_int_equal(atomic_load(&span->state), BERTH__SPAN_FREE);
    ++*(size_t *)context;
}

static void large_blocks_go_out_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < BERTH__TCACHE_RECENT; i++)
        assert_true(put(&tcache, i, LARGE + i * BERTH__ARENA_GRAIN));
    assert_false(put(&tcache, BERTH__TCACHE_RECENT, LARGE));
    berth__span *out[BERTH__TCACHE_MOST];
    assert_int_equal(berth__tcache_make_place(&tcache, LARGE, out), BERTH__TCACHE_RECENT);
    assert_true(put(&tcache, BERTH__TCACHE_RECENT, LARGE));
    assert_true(put(&tcache, BERTH__TCACHE_RECENT + 1, 256));
    size_t emptied = 0;
    berth__tcache_empty(&tcache, count_span, &emptied);
    assert_int_equal(emptied, 2);
    berth__tcache_empty(&tcache, count_span, &emptied);
    assert_int_equal(emptied, 2);
}

/* As if two threads had freed the same blocks at the same time, and neither was told. */
static void a_block_in_two_tcaches_is_handed_out_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(put(&tcache, i, i == 0 ? 512 : LARGE));
        assert_true(put(&other, i, i == 0 ? 512 : LARGE));
    }
    berth__tcached block = {0};
    berth__span *out[BERTH__TCACHE_MOST];
    assert_false(berth__tcache_take_newest(&tcache, 512, &block));
    assert_null(berth__tcache_take(&tcache, LARGE, 64));
    assert_int_equal(berth__tcache_clear_recent(&tcache, out), 0);
    assert_true(berth__tcache_take_newest(&other, 512, &block));
    assert_ptr_equal(block.span, &spans[0]);
    assert_ptr_equal(berth__tcache_take(&other, LARGE, 64), &spans[2]);
    assert_int_equal(berth__tcache_clear_recent(&other, out), 1);
}

/* What is left of such a block in a thread cache is not given out beside the block itself, when that comes back. */
static void a_block_that_is_in_a_tcache_twice_comes_out_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEPTH; i++)
        assert_true(put(&tcache, i == 1 ? 0 : i, BINNED));
    berth__span *out[BERTH__TCACHE_MOST];
    assert_int_equal(berth__tcache_make_place(&tcache, BINNED, out), BATCH - 1);
    size_t emptied = 0;
    assert_true(put(&tcache, 20, LARGE));
    assert_true(put(&tcache, 20, LARGE));
    berth__tcache_empty(&tcache, count_span, &emptied);
    assert_int_equal(emptied, DEPTH - BATCH + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_match_exactly_and_the_newest_comes_first, set_up),
        cmocka_unit_test_setup(bytes_are_bounded_and_counted, set_up),
        cmocka_unit_test_setup(a_huge_block_raises_the_bound_for_itself_alone, set_up),
        cmocka_unit_test_setup(a_full_bin_gives_its_older_half, set_up),
        cmocka_unit_test_setup(the_smaller_blocks_are_the_more_are_kept, set_up),
        cmocka_unit_test_setup(large_blocks_go_out_together, set_up),
        cmocka_unit_test_setup(a_block_in_two_tcaches_is_handed_out_by_one, set_up),
        cmocka_unit_test_setup(a_block_that_is_in_a_tcache_twice_comes_out_once, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

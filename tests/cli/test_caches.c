/* How far what-if's figure of Berth's pool, which runs over addresses without memory, is off a pool with memory, on the same trace;
 * and small programs whose figures follow from PyTorch's rules by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "berth/pool.h"
#include "berth/source.h"
#include "cli/caches.h"

#define MIB (UINT64_C(1) << 20)

enum { STEPS = 40, LAYERS = 60 };

/* Steps of a training run: activations that live through a step, small and large, and some blocks that stay. */
static void fill(format_history *h, uint64_t seed)
{
    uint64_t random = seed, place = 1, now = 0;
    assert_true(format_history_init(h, "test"));
    for (int step = 0; step < STEPS; step++) {
        uint64_t held[LAYERS];
        for (int i = 0; i < LAYERS; i++) {
            uint64_t pick = berth__random(&random) % 4;
            uint64_t size = 1 + berth__random(&random) % (pick == 0 ? 4096 : pick == 1 ? 256 << 10 : 3 * MIB);
            held[i] = place++;
            format_history_alloc(h,
                                 &(format_block){.address = held[i], .size_bytes = size, .begin_ns = ++now});
        }
        for (int i = LAYERS; i-- > 0;)
            if (i || step % 8)
                format_history_free(h, 0, 0, held[i], ++now);
    }
    format_history_close(h);
    assert_false(h->no_memory);
}

/* What a pool of the CPU with these options takes at most for the same events. */
static uint64_t real_peak(const format_history *h, const berth_pool_options *options)
{
    berth_allocator *pool = NULL;
    berth_stats stats = BERTH_STATS_INIT;
    void **places = calloc(h->block_count, sizeof *places);
    assert_non_null(places);
    assert_int_equal(berth_pool_create(options, &pool), BERTH_OK);
    for (uint32_t e = 0; e < h->event_count; e++) {
        uint32_t block = h->events[e] / 2;
        if (h->events[e] % 2 == 0)
            assert_int_equal(berth_allocate(pool, (size_t)h->blocks[block].size_bytes, BERTH_ALIGNMENT, NULL,
                                            &places[block]),
                             BERTH_OK);
        else
            assert_int_equal(berth_deallocate(pool, places[block], 0, NULL), BERTH_OK);
    }
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    for (uint32_t i = 0; i < h->block_count; i++)
        if (h->blocks[i].end == FORMAT_ALIVE)
            assert_int_equal(berth_deallocate(pool, places[i], 0, NULL), BERTH_OK);
    berth_allocator_release(pool);
    free(places);
    return stats.max_bytes_reserved;
}

/* Over malloc in segments it is the same pool, to the byte, and over the CPU's address space too, where it grows in place. */
static void the_pool_is_the_pool(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        format_history h;
        caches_figures figures, growing;
        fill(&h, seed);
        assert_int_equal(caches_pool(&h, 0, &figures), BERTH_OK);
        assert_int_equal(caches_pool_in_place(&h, 0, &growing), BERTH_OK);
        berth_pool_options segments = BERTH_POOL_OPTIONS_INIT, in_place = BERTH_POOL_OPTIONS_INIT;
        assert_int_equal(berth_cpu_allocator_create(NULL, &segments.upstream), BERTH_OK);
        segments.decay_ns = in_place.decay_ns = 0;
        uint64_t real = real_peak(&h, &segments), other = real_peak(&h, &in_place);
        berth_allocator_release(segments.upstream);
        printf(
            "seed %d: in segments what-if says %.1f MiB, with memory %.1f MiB; in place %.1f and %.1f MiB\n",
            (int)seed, (double)figures.reserved_bytes / (double)MIB, (double)real / (double)MIB,
            (double)growing.reserved_bytes / (double)MIB, (double)other / (double)MIB);
        assert_int_equal(figures.reserved_bytes, real);
        assert_int_equal(growing.reserved_bytes, other);
        format_history_finish(&h);
    }
}

struct step {
    uint64_t place, size_bytes; /* size 0: a free */
};

static caches_figures pytorch_of(const struct step *steps, size_t count, bool expandable)
{
    format_history h;
    caches_figures figures;
    assert_true(format_history_init(&h, "test"));
    for (size_t i = 0; i < count; i++) {
        if (steps[i].size_bytes)
            format_history_alloc(
                &h,
                &(format_block){.address = steps[i].place, .size_bytes = steps[i].size_bytes, .begin_ns = i});
        else
            assert_true(format_history_free(&h, 0, 0, steps[i].place, i));
    }
    format_history_close(&h);
    assert_true(caches_pytorch(&h, 0, expandable, &figures));
    format_history_finish(&h);
    return figures;
}

static void pytorch_by_hand(void **state)
{
    (void)state;
    /* 1 byte takes a segment of 2 MiB; 1 MiB more fits beside it; another 1 MiB does not. */
    const struct step small[] = {{1, 1}, {2, MIB}, {3, MIB}};
    assert_int_equal(pytorch_of(small, 2, false).reserved_bytes, 2 * MIB);
    assert_int_equal(pytorch_of(small, 2, false).given_bytes, MIB + 512);
    assert_int_equal(pytorch_of(small, 3, false).reserved_bytes, 4 * MIB);
    /* Above 1 MiB from segments of 20 MiB, from 10 MiB a segment of its own in steps of 2 MiB. */
    const struct step large[] = {{1, MIB + 1}, {2, 10 * MIB}, {3, 11 * MIB}};
    assert_int_equal(pytorch_of(large, 1, false).reserved_bytes, 20 * MIB);
    assert_int_equal(pytorch_of(large, 2, false).reserved_bytes, 20 * MIB);
    assert_int_equal(pytorch_of(large, 3, false).reserved_bytes, 32 * MIB);
    /* 12 MiB freed serve 11.5: what is left over, below 1 MiB, is not cut off, so 1.5 MiB need another segment. */
    const struct step rest[] = {{1, 12 * MIB}, {1, 0}, {2, 23 * MIB / 2}, {3, 3 * MIB / 2}};
    assert_int_equal(pytorch_of(rest, 3, false).given_bytes, 12 * MIB);
    assert_int_equal(pytorch_of(rest, 4, false).reserved_bytes, 32 * MIB);
    /* 30 and 40 MiB freed do not serve 60 in segments of their own; a range that expands joins them. */
    const struct step joined[] = {{1, 30 * MIB}, {2, 40 * MIB}, {1, 0}, {2, 0}, {3, 60 * MIB}};
    assert_int_equal(pytorch_of(joined, 5, false).reserved_bytes, 130 * MIB);
    assert_int_equal(pytorch_of(joined, 5, true).reserved_bytes, 80 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pool_is_the_pool),
        cmocka_unit_test(pytorch_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

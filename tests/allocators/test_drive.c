/* Scripts and lanes in this process: every event of a recording once, on its thread, in its order, whoever frees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/drive.h"

enum { STEPS = 20000, LARGEST = 900, REFUSED = 100000 };

static uint64_t state_of_random;
static uint32_t any(uint32_t below)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % below;
}

/* What was asked of the allocator. */
static _Atomic uint64_t allocations, frees, bytes, live, highest, wrong;

/* Sizes tell who is to allocate: lane + 1 modulo 16. Blocks have their size in front. */
static void *watch_allocate(void *self, size_t size)
{
    const uint32_t lane = (uint32_t)(uintptr_t)self - 1;
    if (size == REFUSED)
        return NULL;
    uint64_t *p = malloc(size + 16);
    if (!p)
        abort();
    p[0] = size;
    memset(p + 2, 0, size);
    allocations++;
    bytes += size;
    wrong += size % 16 != lane % 16;
    const uint64_t now = atomic_fetch_add(&live, size) + size;
    uint64_t before = highest;
    while (now > before && !atomic_compare_exchange_weak(&highest, &before, now))
        ;
    return p + 2;
}

static void watch_free(void *self, void *block)
{
    (void)self;
    uint64_t *p = (uint64_t *)block - 2;
    const char *text = block;
    frees++;
    live -= p[0];
    wrong += p[0] && (text[0] != 1 || text[p[0] - 1] != 1);
    free(p);
}

static bool nothing_before(drive_script *script)
{
    (void)script;
    return true;
}
static void nothing_after(void)
{
}

/* A recording in which threads, some beside what is asked for, allocate and free each other's blocks. */
static void make_history(format_history *h, uint32_t threads, uint64_t *refused)
{
    uint32_t held[64], count = 0;
    assert_true(format_history_init(h, "test"));
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t thread = i < threads ? i : any(threads);
        if (count && (count == 64 || any(2))) {
            uint32_t k = any(count);
            assert_true(format_history_free_by(h, 0, 0, held[k], i, 1000 + thread * 3));
            held[k] = held[--count];
            continue;
        }
        uint64_t size = any(LARGEST / 16) * 16 + thread % 16;
        if (any(50) == 0) {
            size = REFUSED;
            ++*refused;
        }
        format_history_alloc(
            h, &(format_block){.address = i, .size_bytes = size, .begin_ns = i, .thread = 1000 + thread * 3});
        held[count++] = i;
        if (i % 100 == 0) /* another process, another device: not driven */
            format_history_alloc(h, &(format_block){.address = 1000000 + i, .size_bytes = 5, .process = 1});
    }
    for (uint32_t i = 0; i < count; i++)
        assert_true(format_history_free_by(h, 0, 0, held[i], STEPS, 1000));
    format_history_close(h);
}

static void try_threads(uint32_t threads)
{
    static drive_ops ops;
    format_history h;
    uint64_t refused = 0, all = 0, freed = 0, size = 0;
    uint32_t found, processes;
    int file;
    make_history(&h, threads, &refused);
    assert_int_equal(drive_main_process(&h, 0, &processes), 0);
    assert_int_equal(processes, 2);
    drive_script *s = drive_script_create(&h, 0, 0, true, &found, &file);
    assert_non_null(s);
    assert_int_equal(found, threads);
    for (uint32_t i = 0; i < h.block_count; i++) {
        const format_block *b = &h.blocks[i];
        if (b->process || b->size_bytes == REFUSED)
            continue;
        all++;
        size += b->size_bytes;
        freed += b->end != FORMAT_ALIVE;
    }
    ops = (drive_ops){.allocate = watch_allocate, .deallocate = watch_free};
    for (uint32_t i = 0; i < s->lane_count; i++)
        ops.selves[i] = (void *)(uintptr_t)(i + 1);
    allocations = frees = bytes = live = highest = wrong = 0;
    assert_true(drive_lanes(s, &ops, nothing_before, nothing_after));
    assert_int_equal(allocations, all);
    assert_int_equal(frees, freed);
    assert_int_equal(live, 0);
    assert_int_equal(bytes, size);
    assert_int_equal(wrong, 0);
    assert_int_equal(s->result.failures, refused);
    /* Threads run ahead of each other a little, not at will. */
    assert_in_range(highest, 1, s->live_bytes + 3 * (uint64_t)DRIVE_STRETCH * LARGEST);
    if (threads == 1)
        assert_true(highest <= s->live_bytes);
    drive_script_destroy(s, file);
    format_history_finish(&h);
}

static void test_one_thread(void **state)
{
    (void)state;
    state_of_random = 1;
    try_threads(1);
}

static void test_threads_that_free_for_each_other(void **state)
{
    (void)state;
    for (uint32_t threads = 2; threads < 12; threads += 3) {
        state_of_random = threads;
        try_threads(threads);
    }
}

static void test_more_threads_than_lanes(void **state)
{
    (void)state;
    state_of_random = 7;
    try_threads(DRIVE_LANES_MOST + 16 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_threads_that_free_for_each_other),
        cmocka_unit_test(test_more_threads_than_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The pool's thread caches: a thread cache is touched by its thread inside its slot, or by who has stopped them all [S1], and
 * of two frees of one block the pool takes one. */
#include "pool/pool.h"

#include "device.h"
#include "explore.h"

static berth_allocator *pool;
static void *block;

static uint64_t no_time(void *context)
{
    (void)context;
    return 1;
}

static void make_pool(void)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = no_time; /* every run is the same */
    options.reserve_bytes = 4 << 20;
    explore_check(berth_pool_create(&options, &pool) == BERTH_OK, "a pool is made");
}

static void *take(size_t size_bytes)
{
    void *p = NULL;
    explore_check(berth_allocate(pool, size_bytes, 64, NULL, &p) == BERTH_OK, "there is memory");
    return p;
}

static void give(void *p)
{
    explore_check(berth_deallocate(pool, p, 0, NULL) == BERTH_OK, "a live block is freed");
}

static void expect_idle(void)
{
    berth_stats stats = {.struct_size = sizeof stats};
    explore_check(berth_stats_get(pool, &stats) == BERTH_OK && stats.bytes_in_use == 0,
                  "[M1] nothing is in use");
    berth_trim(pool, 0, NULL);
    explore_check(device_bytes() == 0, "[P2] an idle pool that is trimmed gives all of its memory back");
}

/* ---- A pair while somebody empties the thread caches ------------------------------------------------------------------- */

static void pair(void)
{
    give(take(1000));
    explore_ready();
    give(take(1000));
}

static void flush(void)
{
    (void)berth__thread();
    explore_ready();
    berth__pool *inside = pool->self;
    berth__pool_lock(inside);
    berth__pool_flush_tcaches(inside);
    berth__pool_unlock(inside);
}

static void trim(void)
{
    (void)berth__thread();
    explore_ready();
    berth_trim(pool, 0, NULL);
}

/* ---- Two frees of one block ------------------------------------------------------------------------------------- */

static void take_and_free(void)
{
    give(take(1000));
    block = take(1000);
    explore_ready();
    (void)berth_deallocate(pool, block, 0, NULL);
}

static void free_too(void)
{
    give(take(2000));
    explore_ready();
    (void)berth_deallocate(pool, block, 0, NULL);
}

static void expect_two_blocks(void)
{
    void *a = take(1000), *b = take(1000);
    explore_check(a != b, "a block is handed out once");
}

/* ---- A block passes from one thread to another ------------------------------------------------------------------ */

static void *_Atomic passed;
static bool freed_it;

static void take_and_pass(void)
{
    give(take(1000));
    explore_ready();
    atomic_store_explicit(&passed, take(1000), memory_order_release);
    give(take(1000));
}

static void free_passed(void)
{
    give(take(2000));
    explore_ready();
    void *p = atomic_load_explicit(&passed, memory_order_acquire);
    if (p)
        give(p);
    freed_it = p != NULL;
}

static void free_rest(void)
{
    if (!freed_it)
        give(passed);
    expect_idle();
}

/* ---- The last free and the last release: one of them ends the pool ------------------------------------------------ */

static void take_and_free_last(void)
{
    block = take(1000);
    explore_ready();
    give(block);
}

static void release(void)
{
    (void)berth__thread();
    explore_ready();
    berth_allocator_release(pool);
}

static void expect_gone(void)
{
    explore_check(device_bytes() == 0, "all memory goes back with the last block");
}

static const explore_program programs[] = {
    {"flush", make_pool, {pair, flush}, expect_idle, 2, 1, false},
    {"trim", make_pool, {pair, trim}, expect_idle, 1, 1, false},
    {"free_twice", make_pool, {take_and_free, free_too}, expect_two_blocks, 2, 1, false},
    {"pass", make_pool, {take_and_pass, free_passed}, free_rest, 1, 1, false},
    {"last", make_pool, {take_and_free_last, release}, expect_gone, 2, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}

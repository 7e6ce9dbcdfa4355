/* The host cache's block states: a block is in one place [H1], freed once [H7], and found by those that may look while
 * memory comes and goes. */
#include "host/host.h"

#include "device.h"
#include "explore.h"

static berth_allocator *cache;
static void *block;

static void make_cache(void)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.max_waste = 1; /* few classes: there is less to walk through */
    explore_check(berth_host_cache_create(&options, &cache) == BERTH_OK, "a cache is made");
}

static void *take(void)
{
    void *p = NULL;
    explore_check(berth_allocate(cache, 8192, 64, NULL, &p) == BERTH_OK, "there is memory");
    return p;
}

static void give(void *p)
{
    explore_check(berth_deallocate(cache, p, 0, NULL) == BERTH_OK, "a live block is freed");
}

/* A thread with its thread cache, which has the block of one pair. */
static void warm_up(void)
{
    give(take());
}

static void empty_cache(void)
{
    berth_host_cache_empty(cache, NULL);
    explore_check(device_bytes() == 0, "[H4] all memory goes back when nothing is live");
}

/* ---- Two frees of one block at the same moment [H7] ------------------------------------------------------------ */

static _Atomic uint32_t freed;

static void free_block(void)
{
    if (berth_deallocate(cache, block, 0, NULL) == BERTH_OK)
        atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
}

static void take_and_free(void)
{
    block = take();
    explore_ready();
    free_block();
}

static void free_too(void)
{
    warm_up();
    explore_ready();
    free_block();
}

static void expect_one_free(void)
{
    explore_check(freed == 1, "[H7] of two frees one is refused");
    void *a = take(), *b = take();
    explore_check(a != b, "[H1] a block is in one place");
    give(a);
    give(b);
    empty_cache();
}

/* ---- A pair while somebody gives all idle memory back [H1] ------------------------------------------------------ */

static void pair(void)
{
    warm_up();
    explore_ready();
    give(take());
}

static void empty(void)
{
    (void)berth__thread();
    explore_ready();
    berth_host_cache_empty(cache, NULL);
}

/* ---- A use is noted while the block is explained, and then waits ------------------------------------------------- */

static void record_and_free(void)
{
    block = take();
    explore_ready();
    explore_check(berth_record_use(cache, block, device_stream(0)) == BERTH_OK,
                  "a use of a live block is noted");
    give(block);
}

static void explain(void)
{
    (void)berth__thread();
    explore_ready();
    berth_block_state state;
    (void)berth_host_cache_explain(cache, block, 1, &state, NULL, NULL);
}

static void collect(void)
{
    (void)berth__thread();
    explore_ready();
    berth_host_cache_collect(cache, NULL);
}

/* ---- Looking for a block while its segment goes and another comes ------------------------------------------------ */

static void go_and_come(void)
{
    give(take());
    explore_ready();
    berth_host_cache_empty(cache, NULL);
    void *p = NULL;
    explore_check(berth_allocate(cache, 100, 64, NULL, &p) == BERTH_OK, "there is memory");
    give(p);
}

static void look(void)
{
    (void)berth__thread();
    explore_ready();
    (void)berth_allocator_owns(cache, (char *)0x100000000 + 4096);
    (void)berth_allocator_owns(cache, (char *)0x100000000);
}

/* ---- The last free and the last release: one of them ends the cache ------------------------------------------------ */

static void take_and_free_last(void)
{
    block = take();
    explore_ready();
    give(block);
}

static void release(void)
{
    (void)berth__thread();
    explore_ready();
    berth_allocator_release(cache);
}

static void expect_gone(void)
{
    explore_check(device_bytes() == 0, "all memory goes back with the last block");
}

/* ---- A parked block is wanted again while somebody collects [H2, H11] --------------------------------------------- */

static _Atomic bool completes;

static void park_and_take_again(void)
{
    block = take();
    explore_ready();
    device_enqueue(0);
    explore_check(berth_record_use(cache, block, device_stream(0)) == BERTH_OK,
                  "a use of a live block is noted");
    give(block);
    void *again = take();
    explore_check(again != block || completes, "[H2] a block is not handed out before its stream has passed");
    give(again);
}

static void complete_and_collect(void)
{
    (void)berth__thread();
    explore_ready();
    completes = true;
    device_complete(0);
    berth_host_cache_collect(cache, NULL);
}

static void complete_and_empty(void)
{
    device_complete(0);
    empty_cache();
}

static const explore_program programs[] = {
    {"free_twice", make_cache, {take_and_free, free_too}, expect_one_free, 2, 1, false},
    {"trim", make_cache, {pair, empty}, empty_cache, 2, 0, false},
    {"record", make_cache, {record_and_free, explain}, empty_cache, 2, 1, false},
    {"collect", make_cache, {record_and_free, collect}, empty_cache, 1, 1, false},
    {"park", make_cache, {park_and_take_again, complete_and_collect}, complete_and_empty, 1, 1, false},
    {"look", make_cache, {go_and_come, look}, empty_cache, 1, 1, false},
    {"last", make_cache, {take_and_free_last, release}, expect_gone, 1, 1, false},
};

int main(int argc, char **argv)
{
    return explore_main(argc, argv, programs, sizeof programs / sizeof programs[0]);
}

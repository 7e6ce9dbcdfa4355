/* Which block a call means: pointers and handles in every combination, tagged pointers, alignments and their
 * waste, and stale pointers while memory comes and goes. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "berth/log.h"
#include "host/host.h"
#include "host_test.h"

/* ---- Handles ----------------------------------------------------------------------------------------- */

/* Every combination of a pointer (none, right, inside, foreign, of a freed block) and a handle (none, right, old,
 * garbage, of another block): the handle counts where there is no pointer, else the pointer does. */
static void test_pointers_and_handles(void **state)
{
    fixture *f = *state;
    berth_host_handle old = 0, other = 0;
    void *gone = NULL, *another = NULL;
    assert_int_equal(berth_host_cache_allocate(f->cache, 5000, 64, NULL, &gone, &old), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, NULL, old, NULL), BERTH_OK);
    assert_int_equal(figures(f).live_blocks, 0);
    assert_int_equal(berth_host_cache_allocate(f->cache, 9000, 64, NULL, &another, &other), BERTH_OK);
    static const berth_host_handle garbage[] = {1, UINT64_MAX, 77777, (uint64_t)1 << 63, 0xffffffff};
    for (int which = 0; which < 8; which++) {
        berth_host_handle handle = 0;
        void *p = NULL;
        assert_int_equal(berth_host_cache_allocate(f->cache, 5000, 64, NULL, &p, &handle), BERTH_OK);
        berth_host_handle given = which == 0   ? handle
                                  : which == 1 ? old
                                  : which == 2 ? other
                                               : garbage[which - 3];
        char foreign;
        /* What is wrong with the pointer stays wrong, whatever the handle. */
        assert_int_equal(berth_host_cache_free(f->cache, (char *)p + 64, given, NULL), BERTH_BAD_FREE);
        assert_int_equal(berth_host_cache_free(f->cache, &foreign, given, NULL), BERTH_BAD_FREE);
        assert_int_equal(berth_host_cache_record_use(f->cache, &foreign, given, f->streams[0]),
                         BERTH_NOT_FOUND);
        /* No pointer and no handle that names a block. */
        if (which == 1 || which > 2) {
            assert_int_equal(berth_host_cache_free(f->cache, NULL, given, NULL), BERTH_BAD_FREE);
            assert_int_equal(berth_host_cache_record_use(f->cache, NULL, given, f->streams[0]),
                             BERTH_NOT_FOUND);
        }
        assert_int_equal(berth_host_cache_free(f->cache, NULL, 0, NULL), BERTH_OK);
        assert_int_equal(berth_host_cache_record_use(f->cache, NULL, 0, f->streams[0]),
                         BERTH_INVALID_ARGUMENT);
        assert_int_equal(figures(f).live_blocks, 2);
        /* The right pointer: its block, also where the handle is another's. */
        assert_int_equal(berth_host_cache_free(f->cache, p, given, NULL), BERTH_OK);
        assert_int_equal(figures(f).live_blocks, 1);
        assert_int_equal(berth_host_cache_free(f->cache, NULL, handle, NULL), BERTH_BAD_FREE);
    }
    /* The handle alone, on a stream: as with the pointer, the block waits. */
    enqueue(f->streams[0]);
    assert_int_equal(berth_host_cache_free(f->cache, NULL, other, f->streams[0]), BERTH_OK);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    /* A use recorded by the handle alone counts. */
    void *p = NULL;
    berth_host_handle handle = 0;
    assert_int_equal(berth_host_cache_allocate(f->cache, 40000, 64, NULL, &p, &handle), BERTH_OK);
    enqueue(f->streams[1]);
    assert_int_equal(berth_host_cache_record_use(f->cache, NULL, handle, f->streams[1]), BERTH_OK);
    assert_int_equal(berth_host_cache_free(f->cache, NULL, handle, NULL), BERTH_OK);
    assert_int_equal(figures(f).waiting_blocks, 1);
    berth_virtual_run_all(f->device);
    /* A handle of memory that went back to the device. */
    berth_host_cache_empty(f->cache, NULL);
    assert_int_equal(figures(f).idle_blocks, 0);
    assert_int_equal(berth_host_cache_free(f->cache, NULL, handle, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_host_cache_free(f->cache, p, handle, NULL), BERTH_BAD_FREE);
}

/* ---- Tagged pointers ---------------------------------------------------------------------------------- */

static void *tagged(void *p, uintptr_t tag)
{
    return (void *)((uintptr_t)p | tag << 56);
}

/* On a processor that ignores the top byte a program may colour its pointers: every call means the block. */
static void test_tags_do_not_count(void **state)
{
    fixture *f = *state;
    ((host_cache *)f->cache->self)->pages->address_mask = UINTPTR_MAX >> 8; /* as ARM has it */
    for (uintptr_t tag = 1; tag < 256; tag += 50) {
        char *p = take(f, 5000), *again = tagged(p, tag);
        size_t size = 0;
        berth_block_state block_state = BERTH_BLOCK_IDLE;
        assert_int_equal(berth_allocator_owns(f->cache, again + 4999), BERTH_OK);
        assert_int_equal(berth_requested_size(f->cache, again, &size), BERTH_OK);
        assert_int_equal(size, 5000);
        assert_int_equal(berth_record_use(f->cache, again + 100, f->streams[0]), BERTH_OK);
        assert_int_equal(berth_host_cache_explain(f->cache, again + 1, 0, &block_state, NULL, NULL),
                         BERTH_OK);
        assert_int_equal(block_state, BERTH_BLOCK_LIVE);
        assert_int_equal(berth_deallocate(f->cache, again + 64, 0, NULL), BERTH_BAD_FREE);
        assert_int_equal(berth_deallocate(f->cache, again, 0, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(f->cache, again, 0, NULL), BERTH_BAD_FREE);
        assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_BAD_FREE);
        berth_virtual_run_all(f->device);
        berth_host_cache_collect(f->cache, NULL);
    }
}

/* ---- Alignments --------------------------------------------------------------------------------------- */

/* The bound holds over the size rounded up to the alignment, at every alignment. */
static void test_stated_waste_holds_at_every_alignment(void **state)
{
    fixture *f = *state;
    static const double bounds[] = {1.0 / 64, 0.125, 0.5, 1.0};
    for (size_t i = 0; i < BERTH_COUNT_OF(bounds); i++) {
        berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
        options.device = f->device;
        options.max_waste = bounds[i];
        replace_cache(f, &options);
        for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 2)
            for (size_t size = 1; size < 3 * MIB; size += size / 2 + 97) {
                void *p = NULL;
                size_t block = 0, rounded = berth__align_up(size, alignment);
                assert_int_equal(berth_allocate(f->cache, size, alignment, NULL, &p), BERTH_OK);
                assert_int_equal((uintptr_t)p % alignment, 0);
                assert_int_equal(berth_allocated_size(f->cache, p, &block), BERTH_OK);
                assert_true(block >= size);
                assert_true(block <= rounded || block - rounded < 64 ||
                            (double)(block - rounded) <= bounds[i] * (double)rounded);
                give(f, p);
                berth_host_cache_empty(f->cache, NULL);
            }
    }
}

/* ---- Stale pointers ------------------------------------------------------------------------------------ */

/* One thread asks about addresses whose memory another gives back and takes again in other classes: every answer
 * is about a block that is there, or that there is none. Under the sanitizers nothing leaves its arrays. */
typedef struct stale {
    berth_allocator *cache;
    _Atomic(char *) last[4];
    _Atomic bool stop;
    _Atomic uint32_t wrong;
} stale;

static void *ask_about_stale_pointers(void *context)
{
    stale *s = context;
    uint32_t turn = 0;
    while (!atomic_load(&s->stop)) {
        char *p = atomic_load(&s->last[turn++ % 4]);
        size_t size = 0;
        berth_block_state state = BERTH_BLOCK_LIVE;
        if (!p)
            continue;
        (void)berth_allocator_owns(s->cache, p + 50);
        if (berth_allocated_size(s->cache, p, &size) == BERTH_OK && size < 64)
            atomic_fetch_add(&s->wrong, 1);
        berth_status status = berth_host_cache_explain(s->cache, p + 10, 0, &state, NULL, NULL);
        if (status != BERTH_OK && status != BERTH_NOT_FOUND)
            atomic_fetch_add(&s->wrong, 1);
    }
    return NULL;
}

static void test_stale_pointers_while_memory_comes_and_goes(void **state)
{
    fixture *f = *state;
    stale s = {.cache = f->cache};
    pthread_t ids[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, ask_about_stale_pointers, &s), 0);
    for (size_t i = 0; i < 4000; i++) {
        size_t size = 64 + i * 37 % 40 * 500;
        char *p = take(f, size);
        atomic_store(&s.last[i % 4], p);
        give(f, p);
        berth_host_cache_empty(f->cache, NULL);
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(s.wrong, 0);
}

/* ---- What threads keep -------------------------------------------------------------------------------- */

typedef struct kept {
    const host_cache *cache;
    uint64_t small_bytes, large_bytes, large_blocks, said_bytes;
} kept;

static void look_at_thread_cache(void *context, void *beside)
{
    kept *k = context;
    const host_thread_cache *tcache = beside;
    k->said_bytes += tcache->large_bytes;
    for (uint32_t bin = 0; bin < k->cache->classes.count; bin++)
        for (const host_block *b = tcache->bins[bin].newest; b; b = b->next) {
            bool large = b->size > HOST_SMALL_BYTES;
            k->large_blocks += large;
            *(large ? &k->large_bytes : &k->small_bytes) += b->size;
        }
}

static kept look_at_thread_caches(fixture *f)
{
    host_cache *c = f->cache->self;
    kept k = {.cache = c};
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, look_at_thread_cache, &k);
    berth__host_resume(c);
    assert_int_equal(k.said_bytes, k.large_bytes);
    return k;
}

/* However many classes of large blocks a thread frees, its thread cache keeps 64 MiB of them, or a single block. */
static void test_thread_caches_are_bounded_in_bytes(void **state)
{
    fixture *f = *state;
    void *blocks[40];
    for (size_t i = 0; i < 40; i++)
        blocks[i] = take(f, (i + 1) * 2 * MIB);
    for (size_t i = 0; i < 40; i++) {
        give(f, blocks[i]);
        kept k = look_at_thread_caches(f);
        assert_true(k.large_blocks >= 1);
        assert_true(k.large_bytes <= HOST_LARGE_BYTES || k.large_blocks == 1);
    }
    /* One huge block stays with its thread, alone. */
    void *huge = take(f, 300 * MIB);
    for (int i = 0; i < 3; i++) {
        give(f, huge);
        assert_int_equal(look_at_thread_caches(f).large_blocks, 1);
        assert_ptr_equal(take(f, 300 * MIB), huge);
    }
    /* Others reach what a thread cache has before the device is asked, and its books stay right. */
    give(f, huge);
    berth_host_cache_empty(f->cache, NULL);
    assert_int_equal(look_at_thread_caches(f).large_bytes, 0);
    /* Small classes: a MiB each at most. */
    for (size_t size = 64; size <= MIB; size *= 2) {
        void *many[64];
        uint64_t before = look_at_thread_caches(f).small_bytes;
        for (int i = 0; i < 64; i++)
            many[i] = take(f, size);
        for (int i = 0; i < 64; i++)
            give(f, many[i]);
        assert_true(look_at_thread_caches(f).small_bytes <= before + MIB);
    }
}

/* Peaks stay true where large blocks are counted within a thread's credit. */
static void *take_and_give_ten(void *context)
{
    fixture *f = context;
    void *blocks[10] = {0};
    for (int i = 0; i < 10; i++)
        if (berth_allocate(f->cache, 4 * MIB, 64, NULL, &blocks[i]) != BERTH_OK)
            return f;
    for (int i = 0; i < 10; i++)
        berth_deallocate(f->cache, blocks[i], 0, NULL);
    return NULL;
}

static void test_peaks_are_true_with_large_blocks(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        pthread_t id;
        void *failed = NULL;
        pthread_create(&id, NULL, take_and_give_ten, f);
        assert_null(take_and_give_ten(f));
        pthread_join(id, &failed);
        assert_null(failed);
        berth_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(berth_stats_get(f->cache, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 0);
        assert_true(stats.max_bytes_in_use >= 40 * MIB && stats.max_bytes_in_use <= 80 * MIB);
        assert_int_equal(stats.num_allocs, 20 * (uint64_t)(i + 1));
    }
    /* One after the other: nobody's credit is taken for something in use. */
    assert_int_equal(berth_stats_clear(f->cache), BERTH_OK);
    for (int i = 0; i < 6; i++) {
        pthread_t id;
        void *failed = NULL;
        pthread_create(&id, NULL, take_and_give_ten, f);
        pthread_join(id, &failed);
        assert_null(failed);
        assert_null(take_and_give_ten(f));
        berth_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(berth_stats_get(f->cache, &stats), BERTH_OK);
        assert_int_equal(stats.max_bytes_in_use, 40 * MIB);
    }
}

int main(void)
{
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    const struct CMUnitTest tests[] = {
        TEST(test_pointers_and_handles),
        TEST(test_tags_do_not_count),
        TEST(test_stated_waste_holds_at_every_alignment),
        TEST(test_stale_pointers_while_memory_comes_and_goes),
        TEST(test_thread_caches_are_bounded_in_bytes),
        TEST(test_peaks_are_true_with_large_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

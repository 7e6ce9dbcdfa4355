/* The life of host caches on real CPU streams: many threads, teardown in any order, thread exit, fork. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "at_fork.h"
#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/virtual.h"
#include "gate.h"

static berth_allocator *new_cache(void)
{
    berth_allocator *cache = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &cache), BERTH_OK);
    return cache;
}

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    return stream;
}

static berth_host_cache_figures figures(berth_allocator *cache)
{
    berth_host_cache_figures out = {.struct_size = sizeof out};
    assert_int_equal(berth_host_cache_figures_get(cache, &out), BERTH_OK);
    return out;
}

/* ---- Many threads ------------------------------------------------------------------------------------ */

enum { threads = 8, shared_slots = 32 };

/* A stream writes its number all over a block and checks that nobody else did meanwhile: memory handed out
 * too early is seen as a value that changed, and by TSan as a race. */
typedef struct job {
    unsigned char *block;
    size_t size;
    unsigned char mark;
    _Atomic uint32_t *damage;
} job;

static void scribble(void *context)
{
    job *j = context;
    for (size_t i = 0; i < j->size; i += 64)
        j->block[i] = j->mark;
    for (size_t i = 0; i < j->size; i += 64)
        if (j->block[i] != j->mark)
            atomic_fetch_add(j->damage, 1);
    free(j);
}

typedef struct crowd {
    berth_allocator *cache;
    berth_stream *streams[3];
    _Atomic uint32_t damage, failures;
    _Atomic(void *) exchange[shared_slots]; /* blocks that another thread frees */
    int rounds;
} crowd;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void use_on(crowd *c, void *p, size_t size, berth_stream *stream, uint64_t r)
{
    job *j = malloc(sizeof *j);
    *j = (job){p, size, (unsigned char)r, &c->damage};
    if (berth_record_use(c->cache, (char *)p + r % size, stream) != BERTH_OK ||
        berth_stream_call(stream, scribble, j) != BERTH_OK)
        atomic_fetch_add(&c->failures, 1);
}

static void *mill(void *context)
{
    crowd *c = context;
    uint64_t seed = (uint64_t)(uintptr_t)&c ^ 0x9E3779B97F4A7C15u;
    for (int i = 0; i < c->rounds; i++) {
        uint64_t r = next_random(&seed);
        size_t size = 64 + (r >> 8) % 5 * 1000;
        unsigned char *p = NULL;
        if (berth_allocate(c->cache, size, 64, NULL, (void **)&p) != BERTH_OK) {
            atomic_fetch_add(&c->failures, 1);
            continue;
        }
        p[0] = (unsigned char)r; /* ours alone: TSan would see a stream that still uses it */
        if (r % 3 == 0)
            use_on(c, p, size / 2, c->streams[(r >> 32) % 3], r);
        if (r % 9 == 0)
            use_on(c, p + size / 2, size / 2, c->streams[(r >> 34) % 3], r);
        if (r % 2)
            p = atomic_exchange(&c->exchange[(r >> 40) % shared_slots], (void *)p);
        if (p && berth_deallocate(c->cache, p, 0, NULL) != BERTH_OK)
            atomic_fetch_add(&c->failures, 1);
        if (r % 512 == 0)
            berth_host_cache_empty(c->cache, NULL);
    }
    return NULL;
}

static void run_crowd(crowd *c, int rounds)
{
    pthread_t ids[threads];
    c->rounds = rounds;
    for (int i = 0; i < 3; i++)
        c->streams[i] = new_stream();
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, mill, c), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < shared_slots; i++)
        if (c->exchange[i])
            assert_int_equal(berth_deallocate(c->cache, c->exchange[i], 0, NULL), BERTH_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_stream_synchronize(c->streams[i]), BERTH_OK);
        berth_stream_destroy(c->streams[i]);
    }
    assert_int_equal(c->failures, 0);
    assert_int_equal(c->damage, 0);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_host_cache_empty(c->cache, NULL), BERTH_OK);
    assert_int_equal(berth_stats_get(c->cache, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.bytes_reserved, 0);
    assert_int_equal(stats.num_allocs, threads * (uint64_t)rounds);
    assert_int_equal(figures(c->cache).streams, 0);
}

static void test_many_threads(void **state)
{
    (void)state;
    crowd c = {.cache = new_cache()};
    run_crowd(&c, 3000);
    berth_allocator_release(c.cache);
}

static void test_many_threads_with_limits_and_background(void **state)
{
    (void)state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.soft_limit_bytes = 64 << 10;
    options.background_us = 100;
    options.exact_peak = true;
    crowd c = {0};
    assert_int_equal(berth_host_cache_create(&options, &c.cache), BERTH_OK);
    run_crowd(&c, 500);
    berth_allocator_release(c.cache);
}

/* ---- A free twice at the same time ------------------------------------------------------------------- */

typedef struct duel {
    berth_allocator *cache;
    void *p;
    pthread_barrier_t start;
    _Atomic int good, bad;
} duel;

static void *shoot(void *context)
{
    duel *d = context;
    for (int i = 0; i < 500; i++) {
        pthread_barrier_wait(&d->start);
        berth_status status = berth_deallocate(d->cache, d->p, 0, NULL);
        atomic_fetch_add(status == BERTH_OK ? &d->good : &d->bad, 1);
        pthread_barrier_wait(&d->start);
    }
    return NULL;
}

static void test_of_two_frees_at_once_one_is_bad(void **state)
{
    (void)state;
    duel d = {.cache = new_cache()};
    pthread_barrier_init(&d.start, NULL, 3);
    pthread_t ids[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&ids[i], NULL, shoot, &d);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(berth_allocate(d.cache, 4096, 64, NULL, &d.p), BERTH_OK);
        pthread_barrier_wait(&d.start);
        pthread_barrier_wait(&d.start);
        assert_int_equal(d.good, i + 1);
        assert_int_equal(d.bad, i + 1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&d.start);
    berth_allocator_release(d.cache);
}

/* ---- Peaks ------------------------------------------------------------------------------------------- */

static void test_peak_is_exact_with_one_thread(void **state)
{
    (void)state;
    berth_allocator *cache = new_cache();
    uint64_t now = 0, peak = 0, seed = 5;
    void *blocks[64] = {0};
    size_t sizes[64];
    for (int i = 0; i < 5000; i++) {
        uint64_t r = next_random(&seed);
        size_t k = r % 64;
        if (blocks[k]) {
            berth_deallocate(cache, blocks[k], 0, NULL);
            now -= sizes[k];
            blocks[k] = NULL;
            continue;
        }
        size_t ask = 1 + (r >> 8) % 30000;
        sizes[k] = berth_host_cache_block_size(0, ask);
        assert_int_equal(berth_allocate(cache, ask, 64, NULL, &blocks[k]), BERTH_OK);
        now += sizes[k];
        peak = now > peak ? now : peak;
    }
    berth_stats stats = {.struct_size = sizeof stats};
    berth_stats_get(cache, &stats);
    assert_int_equal(stats.bytes_in_use, now);
    assert_int_equal(stats.max_bytes_in_use, peak);
    for (int k = 0; k < 64; k++)
        berth_deallocate(cache, blocks[k], 0, NULL);
    berth_allocator_release(cache);
}

/* ---- Teardown ---------------------------------------------------------------------------------------- */

static void test_blocks_outlive_the_last_reference(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (int reverse = 0; reverse < 2; reverse++) {
        berth_allocator *cache = new_cache();
        char *blocks[20];
        for (int i = 0; i < 20; i++) {
            assert_int_equal(berth_allocate(cache, (size_t)(i + 1) * 3000, 64, NULL, (void **)&blocks[i]),
                             BERTH_OK);
            memset(blocks[i], i, (size_t)(i + 1) * 3000);
        }
        berth_deallocate(cache, blocks[7], 0, NULL);
        berth_allocator_release(cache);
        for (int n = 0; n < 20; n++) {
            int i = reverse ? 19 - n : n;
            if (i == 7)
                continue;
            assert_int_equal(blocks[i][(i + 1) * 3000 - 1], i);
            assert_int_equal(berth_deallocate(cache, blocks[i], 0, NULL), BERTH_OK);
        }
    }
    assert_int_equal(berth__heap_live(), live);
}

/* The cache is gone, a stream still uses its memory: that goes back later, not before. */
static void test_waiting_blocks_outlive_the_cache(void **state)
{
    (void)state;
    berth_device device;
    berth_stream *stream = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    uint64_t live = berth__heap_live();
    for (int order = 0; order < 3; order++) {
        berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
        options.device = device;
        berth_allocator *cache = NULL;
        void *p = NULL, *src = NULL;
        assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
        assert_int_equal(berth_allocate(cache, 8192, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_allocate(cache, 8192, 64, NULL, &src), BERTH_OK);
        memset(src, 1, 8192);
        assert_int_equal(berth_host_cache_copy(cache, p, src, 8192, stream, false), BERTH_OK);
        if (order == 0)
            berth_allocator_release(cache);
        assert_int_equal(berth_deallocate(cache, p, 0, NULL), BERTH_OK);
        if (order == 1)
            berth_allocator_release(cache);
        assert_int_equal(berth_deallocate(cache, src, 0, NULL), BERTH_OK);
        if (order == 2)
            berth_allocator_release(cache);
        assert_int_not_equal(berth_virtual_bytes_in_use(device), 0);
        berth_virtual_run_all(device);
        /* Whoever works with caches next looks after it. */
        berth_allocator_release(new_cache());
        assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    }
    berth_stream_destroy(stream);
    berth_virtual_destroy(device);
    assert_true(berth__heap_live() <= live);
}

typedef struct leaver {
    berth_allocator *cache;
    void *p;
} leaver;

static void *free_it(void *context)
{
    leaver *l = context;
    return (void *)(intptr_t)berth_deallocate(l->cache, l->p, 0, NULL);
}

/* The last reference and the last block go at the same moment: exactly one of them ends the cache. */
static void test_last_free_against_last_release(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (int i = 0; i < 300; i++) {
        leaver l = {.cache = new_cache()};
        assert_int_equal(berth_allocate(l.cache, 4096, 64, NULL, &l.p), BERTH_OK);
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, free_it, &l), 0);
        berth_allocator_release(l.cache);
        void *status = NULL;
        pthread_join(id, &status);
        assert_int_equal((intptr_t)status, BERTH_OK);
    }
    assert_int_equal(berth__heap_live(), live);
}

/* A stream that stands at a gate, its user gone, and the cache too. */
static void test_stream_destroyed_while_blocks_wait(void **state)
{
    (void)state;
    gate g = GATE_INIT;
    berth_allocator *cache = new_cache();
    berth_stream *stream = new_stream();
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(cache, 40000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_record_use(cache, p, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, p, 0, NULL), BERTH_OK);
    berth_stream_destroy(stream);
    assert_int_equal(berth_allocate(cache, 40000, 64, NULL, &q), BERTH_OK);
    assert_ptr_not_equal(q, p);
    gate_open(&g);
    while (figures(cache).waiting_blocks)
        berth_host_cache_collect(cache, NULL);
    assert_int_equal(berth_deallocate(cache, q, 0, NULL), BERTH_OK);
    berth_allocator_release(cache);
}

/* Streams come and go in four threads while two collect: what one collection lets go of, the other must not
 * look at. */
typedef struct traffic {
    berth_allocator *cache;
    _Atomic int working;
    _Atomic uint32_t failures;
} traffic;

static void *use_short_lived_streams(void *context)
{
    traffic *t = context;
    for (int i = 0; i < 300; i++) {
        berth_stream *stream = NULL;
        void *p = NULL;
        bool ok = berth_stream_create(berth_device_cpu(), &stream) == BERTH_OK &&
                  berth_allocate(t->cache, 4096, 64, NULL, &p) == BERTH_OK &&
                  berth_record_use(t->cache, p, stream) == BERTH_OK &&
                  berth_deallocate(t->cache, p, 0, NULL) == BERTH_OK;
        atomic_fetch_add(&t->failures, !ok);
        berth_stream_destroy(stream);
    }
    atomic_fetch_sub(&t->working, 1);
    return NULL;
}

static void *collect_meanwhile(void *context)
{
    traffic *t = context;
    while (atomic_load(&t->working))
        if (berth_host_cache_collect(t->cache, NULL) != BERTH_OK)
            atomic_fetch_add(&t->failures, 1);
    return NULL;
}

static void test_two_collections_while_streams_go(void **state)
{
    (void)state;
    traffic t = {.cache = new_cache(), .working = 4};
    pthread_t ids[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(
            pthread_create(&ids[i], NULL, i < 4 ? use_short_lived_streams : collect_meanwhile, &t), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(t.failures, 0);
    while (figures(t.cache).waiting_blocks)
        berth_host_cache_collect(t.cache, NULL);
    berth_host_cache_collect(t.cache, NULL);
    assert_int_equal(figures(t.cache).streams, 0);
    berth_allocator_release(t.cache);
}

/* ---- Threads that end -------------------------------------------------------------------------------- */

static pthread_key_t late_key;
static berth_allocator *late_cache;

/* Runs after the library's own thread-exit work on the second round: frees then still work. */
static void free_at_exit(void *p)
{
    static _Thread_local int round;
    if (round++ < 1) {
        pthread_setspecific(late_key, p);
        return;
    }
    if (berth_deallocate(late_cache, p, 0, NULL) != BERTH_OK)
        abort();
}

static void free_now(void *p)
{
    if (berth_deallocate(late_cache, p, 0, NULL) != BERTH_OK)
        abort();
}

static void *fill_thread_cache_and_end(void *context)
{
    (void)context;
    void *blocks[16];
    for (int i = 0; i < 16; i++)
        if (berth_allocate(late_cache, 4096, 64, NULL, &blocks[i]) != BERTH_OK)
            return late_cache;
    for (int i = 1; i < 16; i++)
        berth_deallocate(late_cache, blocks[i], 0, NULL);
    pthread_setspecific(late_key, blocks[0]);
    return NULL;
}

static void test_thread_caches_of_ended_threads_are_not_lost(void **state)
{
    (void)state;
    pthread_key_create(&late_key, free_at_exit);
    late_cache = new_cache();
    for (int i = 0; i < 50; i++) {
        pthread_t id;
        void *failed = NULL;
        assert_int_equal(pthread_create(&id, NULL, fill_thread_cache_and_end, NULL), 0);
        pthread_join(id, &failed);
        assert_null(failed);
    }
    /* Every thread found what those before it left. */
    assert_true(figures(late_cache).device_allocations <= 3);
    assert_int_equal(figures(late_cache).live_blocks, 0);
    assert_int_equal(berth_host_cache_empty(late_cache, NULL), BERTH_OK);
    assert_int_equal(figures(late_cache).idle_blocks, 0);
    berth_allocator_release(late_cache);
    pthread_key_delete(late_key);
}

/* What one thread's cache holds serves another before the device is asked. */
static void test_other_threads_caches_are_used_first(void **state)
{
    (void)state;
    late_cache = new_cache();
    pthread_key_create(&late_key, free_now);
    pthread_t id;
    pthread_create(&id, NULL, fill_thread_cache_and_end, NULL);
    pthread_join(id, NULL);
    uint64_t calls = figures(late_cache).device_allocations;
    void *blocks[15];
    for (int i = 0; i < 15; i++)
        assert_int_equal(berth_allocate(late_cache, 4096, 64, NULL, &blocks[i]), BERTH_OK);
    assert_int_equal(figures(late_cache).device_allocations, calls);
    for (int i = 0; i < 15; i++)
        berth_deallocate(late_cache, blocks[i], 0, NULL);
    berth_allocator_release(late_cache);
    pthread_key_delete(late_key);
}

/* ---- The background thread ---------------------------------------------------------------------------- */

static void test_background_collects(void **state)
{
    (void)state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.background_us = 200;
    berth_allocator *cache = NULL;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    gate g = GATE_INIT;
    berth_stream *stream = new_stream();
    void *p = NULL;
    assert_int_equal(berth_allocate(cache, 4096, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_record_use(cache, p, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, p, 0, NULL), BERTH_OK);
    assert_int_equal(figures(cache).waiting_blocks, 1);
    gate_open(&g);
    while (figures(cache).waiting_blocks) /* nobody else collects */
        usleep(100);
    berth_stream_destroy(stream);
    berth_allocator_release(cache);
}

/* ---- Fork -------------------------------------------------------------------------------------------- */

typedef struct busy {
    berth_allocator *cache;
    _Atomic bool stop;
} busy;

static void *keep_busy(void *context)
{
    busy *b = context;
    while (!atomic_load(&b->stop)) {
        void *p[20];
        for (int i = 0; i < 20; i++)
            berth_allocate(b->cache, 1000 + (size_t)i * 100, 64, NULL, &p[i]);
        for (int i = 0; i < 20; i++)
            berth_deallocate(b->cache, p[i], 0, NULL);
    }
    return NULL;
}

static int child(busy *b, void *inherited)
{
    for (int i = 0; i < 200; i++) {
        void *p = NULL;
        if (berth_allocate(b->cache, 1000 + (size_t)i * 10, 64, NULL, &p) != BERTH_OK)
            return 1;
        memset(p, 1, 1000);
        if (berth_deallocate(b->cache, p, 0, NULL) != BERTH_OK)
            return 2;
    }
    if (berth_deallocate(b->cache, inherited, 0, NULL) != BERTH_OK)
        return 3;
    if (berth_deallocate(b->cache, inherited, 0, NULL) != BERTH_BAD_FREE)
        return 4;
    return berth_host_cache_empty(b->cache, NULL) == BERTH_OK ? 0 : 5;
}

static void test_fork_while_threads_are_busy(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* TSan cannot follow a child of a program with threads */
#endif
    busy b = {.cache = new_cache()};
    void *inherited = NULL;
    assert_int_equal(berth_allocate(b.cache, 5000, 64, NULL, &inherited), BERTH_OK);
    pthread_t ids[3];
    for (int i = 0; i < at_fork_threads(3); i++)
        pthread_create(&ids[i], NULL, keep_busy, &b);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            _exit(child(&b, inherited));
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    atomic_store(&b.stop, true);
    for (int i = 0; i < at_fork_threads(3); i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(berth_deallocate(b.cache, inherited, 0, NULL), BERTH_OK);
    berth_allocator_release(b.cache);
}

/* ---- Fork with a background thread, and other threads in every kind of call ---------------------------- */

static void *call_everything(void *context)
{
    busy *b = context;
    berth_stream *stream = NULL;
    if (berth_stream_create(berth_device_cpu(), &stream) != BERTH_OK)
        return b;
    while (!atomic_load(&b->stop)) {
        void *p[8] = {0};
        berth_host_cache_figures f = {.struct_size = sizeof f};
        for (int i = 0; i < 8; i++)
            if (berth_allocate(b->cache, (size_t)3000 << i, 64, NULL, &p[i]) == BERTH_OK && i % 2)
                berth_record_use(b->cache, p[i], stream);
        for (int i = 0; i < 8; i++) {
            berth_host_cache_explain(b->cache, p[i], 0, NULL, NULL, NULL);
            berth_deallocate(b->cache, p[i], 0, i % 3 ? NULL : stream);
        }
        berth_host_cache_figures_get(b->cache, &f);
        berth_trim(b->cache, 32 << 10, NULL);
        berth_host_cache_collect(b->cache, NULL);
    }
    berth_stream_destroy(stream);
    return NULL;
}

static int child_that_ends_the_cache(busy *b, void *inherited)
{
    int failed = child(b, inherited);
    berth_stats stats = {.struct_size = sizeof stats};
    berth_host_cache_figures f = {.struct_size = sizeof f};
    if (failed)
        return failed;
    if (berth_stats_get(b->cache, &stats) != BERTH_OK ||
        berth_host_cache_figures_get(b->cache, &f) != BERTH_OK)
        return 6;
    /* What other threads were doing does not go on, and the figures are those of what is there. */
    if (stats.bytes_in_use != f.live_bytes)
        return 7;
    if (stats.bytes_reserved != f.live_bytes + f.waiting_bytes + f.idle_bytes)
        return 8;
    berth_allocator_release(b->cache);
    return 0;
}

static void test_fork_with_background_and_busy_threads(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* TSan cannot follow a child of a program with threads */
#endif
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.background_us = 20;
    options.soft_limit_bytes = 1 << 20;
    options.hard_limit_bytes = 64 << 20;
    busy b = {0};
    void *inherited = NULL;
    assert_int_equal(berth_host_cache_create(&options, &b.cache), BERTH_OK);
    assert_int_equal(berth_allocate(b.cache, 5000, 64, NULL, &inherited), BERTH_OK);
    pthread_t ids[3];
    for (int i = 0; i < at_fork_threads(3); i++)
        pthread_create(&ids[i], NULL, call_everything, &b);
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            _exit(child_that_ends_the_cache(&b, inherited));
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    atomic_store(&b.stop, true);
    for (int i = 0; i < at_fork_threads(3); i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(berth_deallocate(b.cache, inherited, 0, NULL), BERTH_OK);
    berth_allocator_release(b.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_many_threads_with_limits_and_background),
        cmocka_unit_test(test_of_two_frees_at_once_one_is_bad),
        cmocka_unit_test(test_peak_is_exact_with_one_thread),
        cmocka_unit_test(test_blocks_outlive_the_last_reference),
        cmocka_unit_test(test_waiting_blocks_outlive_the_cache),
        cmocka_unit_test(test_last_free_against_last_release),
        cmocka_unit_test(test_stream_destroyed_while_blocks_wait),
        cmocka_unit_test(test_two_collections_while_streams_go),
        cmocka_unit_test(test_thread_caches_of_ended_threads_are_not_lost),
        cmocka_unit_test(test_other_threads_caches_are_used_first),
        cmocka_unit_test(test_background_collects),
        cmocka_unit_test(test_fork_while_threads_are_busy),
        cmocka_unit_test(test_fork_with_background_and_busy_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

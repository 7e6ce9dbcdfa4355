/* Parked blocks [H11]: freed while one stream uses them, and kept by the thread that freed them. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "host_test.h"

static host_block *block_at(fixture *f, const void *p)
{
    return berth__host_find(f->cache->self, p);
}

static uint32_t state_of(fixture *f, const void *p)
{
    return atomic_load(&block_at(f, p)->state);
}

/* Takes a block, lets a stream use it, and frees it while work is under way. */
static void *park(fixture *f, size_t size, berth_stream *stream)
{
    void *p = take(f, size);
    enqueue(stream);
    assert_int_equal(berth_record_use(f->cache, p, stream), BERTH_OK);
    give(f, p);
    return p;
}

static void test_it_comes_back_once_its_stream_has_passed(void **state)
{
    fixture *f = *state;
    uint64_t events = 0;
    for (size_t size = 64 * KIB; size <= 64 * MIB; size *= 4) { /* of which a run has one */
        void *p = park(f, size, f->streams[0]);
        events++;
        berth_virtual_run_all(f->device);
        assert_int_equal(state_of(f, p), HOST_PARKED);
        assert_ptr_equal(take(f, size), p);
        give(f, p);
        assert_ptr_equal(park(f, size, f->streams[0]), p);
        assert_int_equal(state_of(f, p), HOST_PARKED);
        assert_int_equal(figures(f).waiting_blocks, 1);
        assert_int_equal(figures(f).events_recorded, ++events);
        void *other = take(f, size);
        assert_ptr_not_equal(other, p); /* [H2] */
        berth_virtual_run_all(f->device);
        give(f, other);
        assert_ptr_equal(take(f, size), other); /* what is idle comes first */
        assert_ptr_equal(take(f, size), p);
        give(f, other);
        give(f, p);
        assert_int_equal(figures(f).events_recorded, events);
        assert_int_equal(figures(f).waiting_blocks, 0);
        berth_host_cache_empty(f->cache, NULL); /* large idle blocks would take up the room */
    }
}

/* The second of a class, and one that two streams use, go to the queues, and each event is counted once. */
static void test_what_is_not_parked_waits_in_queues(void **state)
{
    fixture *f = *state;
    void *a = take(f, 5000), *b = take(f, 5000), *both = take(f, 9000);
    enqueue(f->streams[0]);
    enqueue(f->streams[1]);
    berth_record_use(f->cache, a, f->streams[0]);
    berth_record_use(f->cache, b, f->streams[0]);
    berth_record_use(f->cache, both, f->streams[0]);
    berth_record_use(f->cache, both, f->streams[1]);
    give(f, a);
    give(f, b);
    give(f, both);
    assert_int_equal(state_of(f, a), HOST_PARKED);
    assert_int_equal(state_of(f, b), HOST_WAITING);
    assert_int_equal(state_of(f, both), HOST_WAITING);
    assert_int_equal(figures(f).events_recorded, 4);
    size_t idle = 0;
    assert_int_equal(berth_host_cache_collect(f->cache, &idle), BERTH_OK);
    assert_int_equal(idle, 0);
    assert_int_equal(state_of(f, a), HOST_WAITING);
    assert_int_equal(figures(f).events_recorded, 4);
    berth_virtual_run_all(f->device);
    assert_int_equal(berth_host_cache_collect(f->cache, &idle), BERTH_OK);
    assert_int_equal(idle, 3);
}

static bool note_stream(void *context, const berth_host_use *use)
{
    *(const berth_stream **)context = use->stream;
    return true;
}

static void see_stream(fixture *f, const void *p, const berth_stream *stream)
{
    const berth_stream *seen = NULL;
    berth_block_state block_state = BERTH_BLOCK_IDLE;
    assert_int_equal(berth_host_cache_explain(f->cache, p, 0, &block_state, note_stream, &seen), BERTH_OK);
    assert_int_equal(block_state, BERTH_BLOCK_WAITING);
    assert_ptr_equal(seen, stream);
}

/* It can be explained, is freed only once, and its stream may be destroyed. */
static void test_questions_about_it(void **state)
{
    fixture *f = *state;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(f->device, &stream), BERTH_OK);
    void *p = park(f, 5000, stream);
    assert_int_equal(berth_deallocate(f->cache, p, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_record_use(f->cache, p, stream), BERTH_NOT_FOUND);
    assert_int_equal(state_of(f, p), HOST_PARKED);
    see_stream(f, p, stream);
    p = park(f, 9000, stream);
    berth_stream_destroy(stream);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).waiting_blocks, 2);
    berth_virtual_run_all(f->device);
    berth_host_cache_collect(f->cache, NULL);
    assert_int_equal(figures(f).waiting_blocks, 0);
    assert_int_equal(figures(f).streams, 0);
}

static void count_large(void *context, void *beside)
{
    *(uint64_t *)context += ((const host_thread_cache *)beside)->large_bytes;
}

static uint64_t large_bytes(host_cache *c)
{
    uint64_t bytes = 0;
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, count_large, &bytes);
    berth__host_resume(c);
    return bytes;
}

/* What is parked counts with what is idle: 64 MiB of large blocks, or a single one. */
static void test_bytes_are_bounded(void **state)
{
    fixture *f = *state;
    host_cache *c = f->cache->self;
    void *blocks[24], *huge = take(f, 60 * MIB);
    uint64_t large = 0;
    for (size_t i = 0; i < 24; i++)
        blocks[i] = take(f, (i + 1) * 2 * MIB);
    enqueue(f->streams[0]);
    for (size_t i = 0; i < 24; i++) {
        berth_record_use(f->cache, blocks[i], f->streams[0]);
        give(f, blocks[i]);
        large = large_bytes(c);
        assert_true(large <= HOST_LARGE_BYTES);
    }
    assert_true(large > 4 * MIB);
    /* An idle one that needs the room has it. */
    give(f, huge);
    assert_int_equal(large_bytes(c), block_at(f, huge)->size);
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(state_of(f, blocks[i]), HOST_WAITING);
    berth_virtual_run_all(f->device);
}

/* A cache with limits reaches it: nothing is refused while a parked block would do. */
static void test_limits(void **state)
{
    fixture *f = *state;
    assert_int_equal(berth_host_cache_set_limits(f->cache, 0, MIB), BERTH_OK);
    void *p = park(f, MIB, f->streams[0]), *other = NULL;
    assert_int_equal(berth_allocate(f->cache, MIB / 2, 64, NULL, &other), BERTH_OVER_BUDGET);
    berth_virtual_run_all(f->device);
    assert_int_equal(berth_allocate(f->cache, MIB / 2, 64, NULL, &other), BERTH_OK);
    give(f, other);
    p = park(f, MIB / 2, f->streams[0]);
    assert_int_equal(state_of(f, p), HOST_PARKED);
    assert_int_equal(berth_host_cache_set_limits(f->cache, 4096, 0), BERTH_OK); /* from here on nothing is */
    assert_int_equal(state_of(f, p), HOST_WAITING);
    p = park(f, 5000, f->streams[0]);
    assert_int_equal(state_of(f, p), HOST_WAITING);
    berth_virtual_run_all(f->device);
    berth_host_cache_collect(f->cache, NULL);
    assert_true(figures(f).idle_bytes <= 4096 + 5 * 4096);
}

/* ---- Other threads ------------------------------------------------------------------------------------ */

typedef struct helper {
    fixture *f;
    void *p;
    pthread_barrier_t parked, over;
} helper;

static void *park_and_stay(void *context)
{
    helper *h = context;
    berth_stream *stream = h->f->streams[0];
    if (berth_allocate(h->f->cache, 2 * MIB, 64, NULL, &h->p) == BERTH_OK &&
        berth_record_use(h->f->cache, h->p, stream) == BERTH_OK)
        berth_deallocate(h->f->cache, h->p, 0, NULL);
    pthread_barrier_wait(&h->parked);
    pthread_barrier_wait(&h->over);
    return NULL;
}

static pthread_t start(helper *h)
{
    pthread_t thread;
    pthread_barrier_init(&h->parked, NULL, 2);
    pthread_barrier_init(&h->over, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, park_and_stay, h), 0);
    pthread_barrier_wait(&h->parked);
    assert_int_equal(state_of(h->f, h->p), HOST_PARKED);
    return thread;
}

static void finish(helper *h, pthread_t thread)
{
    pthread_barrier_wait(&h->over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&h->parked);
    pthread_barrier_destroy(&h->over);
}

/* What another thread has parked is taken before the device is asked; a trim and the end find it too. */
static void test_others_reach_it(void **state)
{
    helper h = {.f = *state};
    pthread_t thread = start(&h);
    void *p = take(h.f, 2 * MIB);
    assert_ptr_equal(p, h.p);
    give(h.f, p);
    finish(&h, thread);
    berth_host_cache_empty(h.f->cache, NULL);

    thread = start(&h);
    size_t released = 0;
    assert_int_equal(berth_host_cache_empty(h.f->cache, &released), BERTH_OK);
    assert_int_equal(released, 2 * MIB);
    finish(&h, thread);

    thread = start(&h); /* the tear-down looks for what is left of it */
    finish(&h, thread);
}

/* Freed by a thread that did not allocate it, a block goes to the queue: the one that allocates looks there. */
static void *give_away(void *context)
{
    helper *h = context;
    void *own = NULL;
    if (berth_allocate(h->f->cache, 256, 64, NULL, &own) == BERTH_OK)
        berth_deallocate(h->f->cache, own, 0, NULL);
    berth_deallocate(h->f->cache, h->p, 0, NULL);
    return NULL;
}

static void test_a_free_for_another_thread_does_not_park(void **state)
{
    helper h = {.f = *state};
    pthread_t thread;
    h.p = take(h.f, 5000);
    berth_record_use(h.f->cache, h.p, h.f->streams[0]);
    assert_int_equal(pthread_create(&thread, NULL, give_away, &h), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(state_of(h.f, h.p), HOST_WAITING);
}

static void test_the_child_of_a_fork_has_it(void **state)
{
#if defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* TSan cannot follow a child of a program with threads */
#else
    helper h = {.f = *state};
    pthread_t thread = start(&h);
    pid_t child = fork();
    if (child == 0) {
        size_t released = 0;
        berth_host_cache_empty(h.f->cache, &released);
        _exit(released == 2 * MIB && berth_virtual_bytes_in_use(h.f->device) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    finish(&h, thread);
    assert_int_equal(status, 0);
#endif
}

/* ---- Many at once ------------------------------------------------------------------------------------- */

enum { ROUNDS = 3000 };

typedef struct worker {
    berth_allocator *cache;
    berth_stream *stream;
    uint64_t wrong;
} worker;

/* Pairs with a use of its own stream, each block filled and looked at again. */
static void *use_often(void *context)
{
    worker *w = context;
    static const size_t sizes[] = {300, 5000, 70000, 2 << 20};
    for (int i = 0; i < ROUNDS; i++) {
        void *p = NULL;
        if (berth_allocate(w->cache, sizes[i % 4], 64, NULL, &p) != BERTH_OK) {
            w->wrong++;
            continue;
        }
        *(worker *volatile *)p = w;
        w->wrong += berth_record_use(w->cache, p, w->stream) != BERTH_OK;
        w->wrong += *(worker *volatile *)p != w;
        w->wrong += berth_deallocate(w->cache, p, 0, NULL) != BERTH_OK;
    }
    return NULL;
}

/* And the rare things meanwhile: collecting, emptying, explaining, figures, limits. */
static void *look_often(void *context)
{
    worker *w = context;
    void *p = NULL;
    if (berth_allocate(w->cache, 5000, 64, NULL, &p) != BERTH_OK)
        return NULL;
    for (int i = 0; i < ROUNDS / 20; i++) {
        berth_host_cache_figures figures = {.struct_size = sizeof figures};
        berth_block_state block_state;
        berth_host_cache_collect(w->cache, NULL);
        berth_host_cache_figures_get(w->cache, &figures);
        berth_host_cache_explain(w->cache, p, 1, &block_state, NULL, NULL);
        if (i % 8 == 0)
            berth_host_cache_empty(w->cache, NULL);
        if (i % 16 == 0)
            berth_host_cache_set_limits(w->cache, i % 32 ? 0 : MIB, 0);
    }
    w->wrong += berth_deallocate(w->cache, p, 0, NULL) != BERTH_OK;
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    berth_allocator *cache = NULL;
    berth_stream *a = NULL, *b = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &cache), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &a), BERTH_OK);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &b), BERTH_OK);
    worker workers[4] = {{cache, a, 0}, {cache, b, 0}, {cache, b, 0}, {cache, NULL, 0}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < 3 ? use_often : look_often, &workers[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_int_equal(berth_host_cache_empty(cache, NULL), BERTH_OK);
    berth_host_cache_figures seen = {.struct_size = sizeof seen};
    assert_int_equal(berth_host_cache_figures_get(cache, &seen), BERTH_OK);
    assert_int_equal(seen.live_blocks + seen.waiting_blocks + seen.idle_blocks, 0); /* [H4] */
    assert_int_equal(seen.events_recorded, 3 * ROUNDS);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(cache, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.bytes_reserved, 0);
    assert_int_equal(stats.num_allocs, 3 * ROUNDS + 1);
    berth_allocator_release(cache);
    berth_stream_destroy(a);
    berth_stream_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_comes_back_once_its_stream_has_passed),
        TEST(test_what_is_not_parked_waits_in_queues),
        TEST(test_questions_about_it),
        TEST(test_bytes_are_bounded),
        TEST(test_limits),
        TEST(test_others_reach_it),
        TEST(test_a_free_for_another_thread_does_not_park),
        TEST(test_the_child_of_a_fork_has_it),
        TEST(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

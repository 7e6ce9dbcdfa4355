/* Forks while other threads are in every call of a pool: the child's pool is whole, works, and ends. */
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "at_fork.h"
#include "pool/pool.h"
#include "unit/pool/pool_test.h"

enum { THREADS = 3, BLOCKS = 24 };
#define LIMIT (64 * MIB)
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { FORKS = 40 };
#else
enum { FORKS = 150 };
#endif

struct worker {
    berth_allocator *pool;
    berth_stream *stream;
    pthread_t thread;
    uint64_t seed;
};

static _Atomic bool stop;

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Small and large blocks, with and without streams, trims and questions. */
static void *work(void *context)
{
    struct worker *w = context;
    void *blocks[BLOCKS] = {NULL};
    berth_stats stats = {.struct_size = sizeof stats};
    while (!atomic_load(&stop)) {
        void **p = &blocks[next_random(&w->seed) % BLOCKS];
        uint64_t what = next_random(&w->seed) % 64;
        if (what == 0)
            berth_trim(w->pool, MIB, NULL);
        if (what == 1)
            berth_stats_get(w->pool, &stats);
        if (*p) {
            berth_deallocate(w->pool, *p, 0, what % 4 == 0 ? w->stream : NULL);
            *p = NULL;
        } else {
            berth_request request = BERTH_REQUEST_INIT;
            request.stream = what % 8 == 2 ? w->stream : NULL;
            berth_allocate(w->pool, (size_t)1 << (4 + next_random(&w->seed) % 15), 64, &request, p);
            if (*p && what % 8 == 3)
                berth_record_use(w->pool, *p, w->stream);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++)
        berth_deallocate(w->pool, blocks[i], 0, NULL);
    return NULL;
}

static bool child_is_whole(berth__pool *pool)
{
    berth__pool_lock(pool);
    berth__pool_flush_tcaches(pool);
    bool whole = berth__arena_is_valid(&pool->arena);
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after) {
            uint32_t state = atomic_load(&span->state); /* nobody else has a thread cache any more */
            whole = whole && (state == BERTH__SPAN_LIVE || (state == BERTH__SPAN_FREE));
        }
    berth__pool_unlock(pool);
    return whole;
}

/* What the child does with everything it got; the number of the first thing that went wrong. */
static int live_as_child(berth_allocator *pool, void *mine)
{
    void *p[4] = {NULL};
    berth_stats stats = {.struct_size = sizeof stats};
    if (!child_is_whole(berth__pool_from(pool)))
        return 1;
    for (size_t i = 0; i < 4; i++)
        if (berth_allocate(pool, (size_t)1000 << 4 * i, 64, NULL, &p[i]) != BERTH_OK)
            return 2;
    for (size_t i = 0; i < 4; i++) {
        memset(p[i], 1, (size_t)1000 << 4 * i);
        if (berth_deallocate(pool, p[i], 0, NULL) != BERTH_OK)
            return 3;
    }
    if (berth_stats_get(pool, &stats) != BERTH_OK || berth_deallocate(pool, mine, 0, NULL) != BERTH_OK)
        return 4;
    if (berth_trim(pool, 0, NULL) != BERTH_OK)
        return 5;
    /* Too much: what streams hold is waited for, and the answer still comes. */
    if (berth_allocate(pool, 2 * LIMIT, 64, NULL, &p[0]) != BERTH_OVER_BUDGET)
        return 7;
    /* The streams stayed behind: nothing waits, or is on its way, for ever. */
    berth__pool *inside = berth__pool_from(pool);
    if (inside->waiting_count || inside->unmarked || inside->unreleased)
        return 6;
    berth_allocator_release(pool);
    return 0;
}

static void children_find_a_pool_at_rest(void **state)
{
    (void)state;
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_PINNED; kind++) {
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.memory_kind = (berth_memory_kind)kind;
        options.segment_bytes = MIB;
        options.soft_limit_bytes = MIB;
        options.hard_limit_bytes = LIMIT;
        berth_allocator *pool = make(&options);
        berth_stream *stream = NULL;
        assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
        struct worker workers[THREADS];
        atomic_store(&stop, false);
        for (int i = 0; i < at_fork_threads(THREADS); i++) {
            workers[i] = (struct worker){.pool = pool, .stream = stream, .seed = (uint64_t)i + 1};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        void *mine = take(pool, 100000);
        int failures = 0;
        for (int i = 0; i < FORKS; i++) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                alarm(100); /* a child that hangs says so */
                _exit(live_as_child(pool, mine));
            }
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            if (status != 0)
                print_error("child %d of kind %d: status 0x%x\n", i, kind, (unsigned)status);
            failures += status != 0;
            sched_yield();
        }
        atomic_store(&stop, true);
        for (int i = 0; i < at_fork_threads(THREADS); i++)
            pthread_join(workers[i].thread, NULL);
        assert_int_equal(failures, 0);
        give(pool, mine);
        berth_allocator_release(pool);
        berth_stream_destroy(stream);
    }
}

/* ---- A fork while an upstream is asked ----------------------------------------------------------- */

static sem_t upstream_asked, upstream_answers;

static berth_status slow_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)self, (void)request;
    sem_post(&upstream_asked);
    while (sem_wait(&upstream_answers) != 0)
        ;
    *out = aligned_alloc(alignment, size_bytes);
    return *out ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status slow_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes, (void)stream;
    free(p);
    return BERTH_OK;
}

static void slow_destroy(void *self)
{
    (void)self;
}

static void *take_one(void *pool)
{
    void *p = NULL;
    return berth_allocate(pool, 1000, 64, NULL, &p) == BERTH_OK ? p : NULL;
}

static int child_has_the_whole_limit(berth_allocator *pool)
{
    berth_stats stats = {.struct_size = sizeof stats};
    void *p;
    if (berth_stats_get(pool, &stats) != BERTH_OK || stats.bytes_reserved != 0)
        return 1;
    sem_post(&upstream_answers);
    if (!(p = take_one(pool)) || berth_deallocate(pool, p, 0, NULL) != BERTH_OK)
        return 2;
    berth_allocator_release(pool);
    return 0;
}

/* A segment that a thread was asking for is nobody's in the child: it must not count against the limit there. */
static void a_segment_on_its_way_is_forgotten(void **state)
{
    (void)state;
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = slow_allocate,
                                     .deallocate = slow_deallocate,
                                     .destroy = slow_destroy};
    if (at_fork_threads(1) == 0)
        return;
    assert_int_equal(sem_init(&upstream_asked, 0, 0) | sem_init(&upstream_answers, 0, 0), 0);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    assert_int_equal(berth_allocator_create(&ops, NULL, &options.upstream), BERTH_OK);
    options.segment_bytes = options.hard_limit_bytes = MIB;
    berth_allocator *pool = make(&options);
    pthread_t thread;
    void *p = NULL;
    assert_int_equal(pthread_create(&thread, NULL, take_one, pool), 0);
    while (sem_wait(&upstream_asked) != 0)
        ;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(100);
        _exit(child_has_the_whole_limit(pool));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    sem_post(&upstream_answers);
    assert_int_equal(pthread_join(thread, &p), 0);
    assert_non_null(p);
    give(pool, p);
    berth_allocator_release(pool);
    berth_allocator_release(options.upstream);
    sem_destroy(&upstream_asked);
    sem_destroy(&upstream_answers);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_find_a_pool_at_rest),
                                       cmocka_unit_test(a_segment_on_its_way_is_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

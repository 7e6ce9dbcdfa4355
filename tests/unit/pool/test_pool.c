/* The pool on the CPU: places, limits, giving back, bad frees, threads, and a random run with shadow memory.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berth/registry.h"
#include "berth/scope.h"
#include "berth/source.h"
#include "gate.h"
#include "unit/pool/pool_test.h"

static void blocks_know_themselves(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    void *a = take(pool, 1), *b = take(pool, 5000);
    size_t size = 0;
    uint64_t id_a = 0, id_b = 0;
    assert_int_equal(berth_requested_size(pool, a, &size), BERTH_OK);
    assert_int_equal(size, 1);
    assert_int_equal(berth_allocated_size(pool, b, &size), BERTH_OK);
    assert_int_equal(size, 5120);
    assert_int_equal(berth_allocation_id(pool, a, &id_a), BERTH_OK);
    assert_int_equal(berth_allocation_id(pool, b, &id_b), BERTH_OK);
    assert_true(id_a && id_b && id_a != id_b);
    assert_int_equal(berth_allocator_owns(pool, (char *)b + 4000), BERTH_OK);
    assert_int_equal(berth_allocator_owns(pool, &size), BERTH_NOT_FOUND);
    assert_int_equal(berth_requested_size(pool, (char *)b + 256, &size), BERTH_NOT_FOUND);
    give(pool, b);
    assert_int_equal(berth_allocator_owns(pool, b), BERTH_NOT_FOUND);
    assert_int_equal(berth_requested_size(pool, b, &size), BERTH_NOT_FOUND);
    void *p = NULL;
    assert_int_equal(berth_allocate(pool, 100, 65536, NULL, &p), BERTH_OK);
    assert_int_equal((uintptr_t)p % 65536, 0);
    give(pool, p);
    give(pool, a);
    assert_int_equal(stats_of(pool).bytes_in_use, 0);
    berth_allocator_release(pool);
}

/* What others got wrong: see the table of mended faults. */
static void large_blocks_are_reused_and_small_requests_do_not_take_them(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    void *large = take(pool, 64 * MIB);
    give(pool, large);
    void *tiny = take(pool, 1);
    berth_stats stats = stats_of(pool);
    assert_true(stats.bytes_in_use <= 4096);
    void *again = take(pool, 64 * MIB - 4096 * 16);
    assert_true(stats_of(pool).max_bytes_reserved <= 64 * MIB + 65536);
    give(pool, again);
    give(pool, tiny);
    size_t released = 0;
    assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
    assert_true(released >= 64 * MIB);
    assert_int_equal(stats_of(pool).bytes_reserved, 0);
    assert_true(stats_of(pool).fragmentation == 0);
    berth_allocator_release(pool);
}

static void memory_is_given_back_from_the_middle(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    void *low = take(pool, MIB), *middle = take(pool, 8 * MIB), *high = take(pool, MIB);
    memset(low, 1, MIB);
    memset(high, 3, MIB);
    give(pool, middle);
    size_t released = 0;
    assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
    assert_true(released >= 8 * MIB - 8192);
    assert_true(stats_of(pool).bytes_reserved <= 2 * MIB + 16384);
    void *again = take(pool, 8 * MIB); /* in the same hole, mapped anew */
    assert_ptr_equal(again, middle);
    memset(again, 2, 8 * MIB);
    assert_int_equal(((char *)low)[MIB - 1], 1);
    assert_int_equal(((char *)high)[0], 3);
    give(pool, again);
    give(pool, low);
    give(pool, high);
    berth_allocator_release(pool);
}

static void bad_frees_change_nothing(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    int foreign = 0;
    void *a = take(pool, 10000), *b = take(pool, 10000);
    berth_stats before = stats_of(pool);
    assert_int_equal(berth_deallocate(pool, &foreign, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(pool, (char *)a + 256, 0, NULL), BERTH_BAD_FREE);
    assert_non_null(strstr(berth_last_error()->message, "inside"));
    assert_int_equal(berth_deallocate(pool, (char *)a + 1, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(pool, a, 77, NULL), BERTH_BAD_FREE);
    assert_non_null(strstr(berth_last_error()->message, "stale"));
    assert_int_equal(stats_of(pool).bytes_in_use, before.bytes_in_use);
    give(pool, a);
    assert_int_equal(berth_deallocate(pool, a, 0, NULL), BERTH_BAD_FREE);
    berth_trim(pool, 0, NULL);
    assert_int_equal(berth_deallocate(pool, a, 0, NULL), BERTH_BAD_FREE);
    give(pool, b);
    assert_int_equal(stats_of(pool).bytes_in_use, 0);
    berth_allocator_release(pool);
}

static void a_hard_limit_holds_and_explains_itself(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 8 * MIB;
    berth_allocator *pool = make(&options);
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "attention";
    void *p = NULL, *live = take(pool, 5 * MIB);
    assert_int_equal(berth_allocate(pool, 4 * MIB, 64, &request, &p), BERTH_OVER_BUDGET);
    assert_null(p);
    const char *words = berth_last_error()->message;
    assert_non_null(strstr(words, "attention"));
    assert_non_null(strstr(words, "too much is live"));
    assert_non_null(strstr(words, "8 MiB (8388608 bytes)"));
    assert_int_equal(stats_of(pool).num_failures, 1);
    give(pool, live);
    live = take(pool, 7 * MIB); /* idle memory of another size does not count against the limit */
    assert_true(stats_of(pool).max_bytes_reserved <= 8 * MIB);
    assert_int_equal(stats_of(pool).bytes_limit, 8 * MIB);
    give(pool, live);
    berth_allocator_release(pool);
}

static void private_pools_share_the_limit_and_nothing_else(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 4 * MIB;
    berth_allocator *common = make(&options);
    options.shares_limits_with = common;
    berth_allocator *own = make(&options);
    void *a = take(common, 2 * MIB), *b = take(own, MIB), *p = NULL;
    assert_int_equal(berth_allocator_owns(common, b), BERTH_NOT_FOUND);
    assert_int_equal(berth_allocate(own, 2 * MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    give(common, a);
    berth_allocator_release(common); /* gives its memory back; the limit lives on */
    p = take(own, 2 * MIB);
    give(own, p);
    give(own, b);
    berth_allocator_release(own);
    options.shares_limits_with = berth_cpu_allocator();
    berth_allocator *system = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &system), BERTH_OK);
    options.shares_limits_with = system;
    assert_int_equal(berth_pool_create(&options, &own), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(system);
}

struct rescue {
    berth_allocator *pool;
    void *hoard;
    int calls;
};

static bool give_hoard(void *context, size_t size_bytes)
{
    struct rescue *rescue = context;
    rescue->calls++;
    assert_int_equal(size_bytes, 3 * MIB);
    if (!rescue->hoard)
        return false;
    give(rescue->pool, rescue->hoard);
    rescue->hoard = NULL;
    return true;
}

static void a_failure_is_told_first(void **state)
{
    (void)state;
    struct rescue rescue = {0};
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 4 * MIB;
    options.on_failure = give_hoard;
    options.on_failure_context = &rescue;
    rescue.pool = make(&options);
    rescue.hoard = take(rescue.pool, 2 * MIB);
    void *p = take(rescue.pool, 3 * MIB), *q = NULL;
    assert_int_equal(rescue.calls, 1);
    assert_int_equal(berth_allocate(rescue.pool, 3 * MIB, 64, NULL, &q), BERTH_OVER_BUDGET);
    assert_int_equal(rescue.calls, 2);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    assert_int_equal(berth_allocate(rescue.pool, 3 * MIB, 64, &request, &q), BERTH_OVER_BUDGET);
    assert_int_equal(rescue.calls, 2);
    give(rescue.pool, p);
    berth_allocator_release(rescue.pool);
}

static uint64_t fake_clock(void *context)
{
    return *(uint64_t *)context;
}

/* The clock is read now and then. */
static void use_for_a_while(berth_allocator *pool)
{
    for (size_t i = 0; i < 100; i++)
        give(pool, take(pool, 20000 + 256 * i));
}

static void idle_memory_decays(void **state)
{
    (void)state;
    uint64_t now = 1000;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.clock_ns = fake_clock;
    options.clock_context = &now;
    options.decay_ns = 500;
    berth_allocator *pool = make(&options);
    void *keep = take(pool, 100000), *p = take(pool, 4 * MIB);
    give(pool, p);
    berth_trim(pool, 64 * MIB, NULL); /* out of the thread cache, nothing given back */
    assert_true(stats_of(pool).bytes_reserved > 4 * MIB);
    now += 400;
    use_for_a_while(pool);
    assert_true(stats_of(pool).bytes_reserved > 4 * MIB);
    now += 400;
    use_for_a_while(pool);
    assert_true(stats_of(pool).bytes_reserved < MIB);
    give(pool, keep);
    berth_allocator_release(pool);
}

static void a_pool_outlives_its_handle_while_blocks_live(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    berth_allocator *pool = make(NULL);
    char *a = take(pool, MIB), *b = take(pool, 100);
    give(pool, take(pool, 5000)); /* something in the thread cache */
    berth_allocator_release(pool);
    memset(a, 1, MIB);
    memset(b, 2, 100);
    give(pool, a);
    give(pool, b);
    assert_int_equal(berth__heap_live(), heap);
}

static bool find_label(void *context, const berth_block *block)
{
    if (block->label && strcmp(block->label, "layer 7") == 0 && block->state == BERTH_BLOCK_LIVE)
        *(const berth_block **)context = block;
    return true;
}

static void count_lines(void *context, const char *line)
{
    (void)line;
    ++*(size_t *)context;
}

static void a_snapshot_shows_labels_and_states(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    berth_scope scope;
    berth_scope_begin(&scope, "layer 7");
    void *a = take(pool, 12345);
    berth_scope_end(&scope);
    void *b = take(pool, MIB), *c = take(pool, MIB);
    give(pool, b);
    const berth_block *found = NULL;
    assert_int_equal(berth_snapshot(pool, find_label, &found), BERTH_OK);
    assert_non_null(found);
    size_t lines = 0;
    assert_int_equal(berth_pool_describe(pool, 0, count_lines, &lines), BERTH_OK);
    assert_true(lines >= 5); /* totals, the segment, three blocks */
    size_t fewer = 0;
    assert_int_equal(berth_pool_describe(pool, 1, count_lines, &fewer), BERTH_OK);
    assert_true(fewer < lines);
    assert_int_equal(berth_pool_describe(berth_cpu_allocator(), 0, NULL, NULL), BERTH_INVALID_ARGUMENT);
    give(pool, a);
    give(pool, c);
    berth_allocator_release(pool);
}

struct seen {
    size_t live, waiting;
    const berth_stream *waits_for;
};

static bool count_states(void *context, const berth_block *block)
{
    struct seen *seen = context;
    seen->live += block->state == BERTH_BLOCK_LIVE;
    if (block->state == BERTH_BLOCK_WAITING) {
        seen->waiting++;
        seen->waits_for = block->stream;
    }
    return true;
}

/* More blocks than a snapshot makes room for at first, one that waits, and no memory to tell of them. */
static void a_snapshot_of_many_shows_who_waits(void **state)
{
    (void)state;
    enum { MANY = 100 };
    berth_allocator *pool = make(NULL);
    berth_stream *stream = NULL;
    gate g = GATE_INIT;
    void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++)
        blocks[i] = take(pool, 70000 + i);
    void *used = take(pool, MIB);
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_deallocate(pool, used, 0, stream), BERTH_OK);
    struct seen seen = {0};
    for (uint64_t n = 1; n <= 2; n++) { /* the first room, the larger one */
        berth__heap_fail_at(n, false);
        assert_int_equal(berth_snapshot(pool, count_states, &seen), BERTH_OUT_OF_HOST_MEMORY);
        berth__heap_fail_at(0, false);
        assert_int_equal(seen.live, 0);
    }
    assert_int_equal(berth_snapshot(pool, count_states, &seen), BERTH_OK);
    assert_int_equal(seen.live, MANY);
    assert_int_equal(seen.waiting, 1);
    assert_ptr_equal(seen.waits_for, stream);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    for (size_t i = 0; i < MANY; i++)
        give(pool, blocks[i]);
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
}

static void it_is_the_registrys_best_on_the_host(void **state)
{
    (void)state;
    assert_int_equal(berth_pool_register(), BERTH_OK);
    assert_string_equal(berth_allocator_name(berth_cpu_allocator()), "pool");
    berth_allocator *best = NULL;
    assert_int_equal(berth_registry_best(&best), BERTH_OK);
    assert_ptr_equal(best, berth_cpu_allocator());
}

static void a_child_of_fork_goes_on(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    char *p = take(pool, 10000);
    p[0] = 'p';
    pid_t child = fork();
    if (child == 0) {
        void *q = NULL;
        bool good = p[0] == 'p' && berth_allocate(pool, 20000, 64, NULL, &q) == BERTH_OK &&
                    berth_deallocate(pool, q, 0, NULL) == BERTH_OK &&
                    berth_deallocate(pool, p, 0, NULL) == BERTH_OK;
        berth_allocator_release(pool);
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    give(pool, p);
    berth_allocator_release(pool);
}

/* ---- Random runs with shadow memory ---------------------------------------------------------------- */

enum { SLOTS = 300 };
/* Of all threads together; the argument asks for another number. */
#ifdef __SANITIZE_THREAD__
static long steps = 20000;
#elif defined(__SANITIZE_ADDRESS__)
static long steps = 40000;
#else
static long steps = 300000;
#endif

struct shadow {
    unsigned char *p;
    size_t size_bytes;
    unsigned char stamp;
};

struct runner {
    berth_allocator *pool;
    uint64_t seed;
    long steps;
    pthread_t thread;
};

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Both ends and some of the middle, so that any overlap is seen. */
static void stamp(struct shadow *s)
{
    memset(s->p, s->stamp, s->size_bytes < 64 ? s->size_bytes : 64);
    s->p[s->size_bytes / 2] = s->stamp;
    s->p[s->size_bytes - 1] = s->stamp;
}

static void verify(const struct shadow *s)
{
    for (size_t i = 0; i < 64 && i < s->size_bytes; i++)
        assert_int_equal(s->p[i], s->stamp);
    assert_int_equal(s->p[s->size_bytes / 2], s->stamp);
    assert_int_equal(s->p[s->size_bytes - 1], s->stamp);
}

static void *run(void *context)
{
    struct runner *r = context;
    struct shadow slots[SLOTS] = {{0}};
    for (long step = 0; step < r->steps; step++) {
        struct shadow *s = &slots[next_random(&r->seed) % SLOTS];
        if (s->p) {
            verify(s);
            give(r->pool, s->p);
            s->p = NULL;
        } else {
            uint64_t shape = next_random(&r->seed);
            s->size_bytes = 1 + next_random(&r->seed) % ((size_t)1 << (4 + shape % 16));
            s->stamp = (unsigned char)next_random(&r->seed);
            size_t alignment = shape % 64 == 0 ? 4096 : 64;
            assert_int_equal(berth_allocate(r->pool, s->size_bytes, alignment, NULL, (void **)&s->p),
                             BERTH_OK);
            assert_int_equal((uintptr_t)s->p % alignment, 0);
            stamp(s);
        }
        if (step % 5000 == 4999)
            berth_trim(r->pool, MIB, NULL);
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].p) {
            verify(&slots[i]);
            give(r->pool, slots[i].p);
        }
    return NULL;
}

static void random_runs_never_overlap(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    for (int threads = 1; threads <= 4; threads += 3) {
        options.compacting = threads == 1;
        berth_allocator *pool = make(&options);
        struct runner runners[4];
        for (int i = 0; i < threads; i++) {
            runners[i] = (struct runner){.pool = pool, .seed = (uint64_t)i + 1, .steps = steps / threads};
            assert_int_equal(pthread_create(&runners[i].thread, NULL, run, &runners[i]), 0);
        }
        for (int i = 0; i < threads; i++)
            pthread_join(runners[i].thread, NULL);
        berth_stats stats = stats_of(pool);
        assert_int_equal(stats.bytes_in_use, 0);
        berth_trim(pool, 0, NULL);
        assert_int_equal(stats_of(pool).bytes_reserved, 0);
        berth_allocator_release(pool);
    }
}

/* A pool at the edge of its slack grows where an idle block ends: that memory is used as it is, and what goes
 * back for it comes from elsewhere. Its pages then keep what was written. */
static void growing_does_not_give_back_what_it_grows_from(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    unsigned char *low = take(pool, 4 * MIB), *between = take(pool, MIB / 2), *high = take(pool, 4 * MIB);
    assert_true(low < between && between < high);
    memset(high, 77, 4 * MIB);
    give(pool, high);
    give(pool, low);
    (void)stats_of(pool); /* out of the thread cache */
    unsigned char *grown = take(pool, 7 * MIB);
    assert_ptr_equal(grown, high);
    for (size_t i = 0; i < 4 * MIB; i += 4096)
        assert_int_equal(grown[i], 77);
    berth_stats stats = stats_of(pool);
    assert_true(stats.max_bytes_reserved <= 8 * MIB + MIB / 2 + (8 * MIB + MIB / 2) / 4);
    assert_true(stats.bytes_reserved < 4 * MIB + MIB / 2 + 7 * MIB); /* some of `low` went */
    give(pool, grown);
    give(pool, between);
    berth_allocator_release(pool);
}

/* Patterns that strand memory in pools that cannot move or give back: see the figures of fragmentation. */
static void known_fragmenters_stay_bounded(void **state)
{
    (void)state;
    berth_allocator *pool = make(NULL);
    uint64_t most = 0;
    void *held[3] = {NULL};
    for (size_t length = 1; length <= 200; length++) { /* growing sequences, the last few kept */
        size_t i = length % 3;
        if (held[i])
            give(pool, held[i]);
        held[i] = take(pool, length * 40000);
        if (stats_of(pool).bytes_in_use > most)
            most = stats_of(pool).bytes_in_use;
    }
    assert_true(stats_of(pool).max_bytes_reserved <= most + most / 4 + 65536);
    for (size_t i = 0; i < 3; i++)
        give(pool, held[i]);
    berth_trim(pool, 0, NULL);
    berth_stats_clear(pool);
    for (int batch = 0; batch < 200; batch++) { /* alternating batch sizes with small survivors */
        size_t size = batch % 2 ? 3 * MIB : 2 * MIB + 300000;
        void *a = take(pool, size), *b = take(pool, size / 2), *small = take(pool, 1000);
        give(pool, a);
        give(pool, b);
        if (batch % 7)
            give(pool, small);
    }
    assert_true(stats_of(pool).max_bytes_reserved <= 8 * MIB);
    berth_allocator_release(
        pool); /* with the survivors: the pool waits for them, and they are leaked on purpose */
}

static void every_failing_allocation_is_clean(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        uint64_t heap = berth__heap_live();
        berth_allocator *pool = NULL;
        void *p = NULL, *q = NULL;
        berth__heap_fail_at(n, false);
        berth_status status = berth_pool_create(NULL, &pool);
        if (status == BERTH_OK)
            status = berth_allocate(pool, 100000, 64, NULL, &p);
        if (status == BERTH_OK)
            status = berth_allocate(pool, 1000, 64, NULL, &q);
        bool failed = status != BERTH_OK;
        berth__heap_fail_at(0, false);
        if (failed)
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        if (pool) {
            assert_int_equal(berth_deallocate(pool, p, 0, NULL), BERTH_OK);
            assert_int_equal(berth_deallocate(pool, q, 0, NULL), BERTH_OK);
            assert_int_equal(stats_of(pool).bytes_in_use, 0);
        }
        berth_allocator_release(pool);
        assert_int_equal(berth__heap_live(), heap);
        if (!failed && n > 20)
            break;
    }
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    berth_allocator *pool = NULL;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    assert_int_equal(berth_pool_create(&options, NULL), BERTH_INVALID_ARGUMENT);
    options.struct_size = 0;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_INVALID_ARGUMENT);
    options.struct_size = sizeof options;
    options.slack = -1;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_INVALID_ARGUMENT);
    options.slack = 0;
    options.device = (berth_device){BERTH_DEVICE_CPU, 99};
    assert_int_not_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_null(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest long_run[] = {cmocka_unit_test(random_runs_never_overlap)};
    if (argc > 1) {
        steps = strtol(argv[1], NULL, 10);
        return cmocka_run_group_tests_name(argv[1], long_run, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_know_themselves),
        cmocka_unit_test(large_blocks_are_reused_and_small_requests_do_not_take_them),
        cmocka_unit_test(memory_is_given_back_from_the_middle),
        cmocka_unit_test(bad_frees_change_nothing),
        cmocka_unit_test(a_hard_limit_holds_and_explains_itself),
        cmocka_unit_test(private_pools_share_the_limit_and_nothing_else),
        cmocka_unit_test(a_failure_is_told_first),
        cmocka_unit_test(idle_memory_decays),
        cmocka_unit_test(a_pool_outlives_its_handle_while_blocks_live),
        cmocka_unit_test(a_snapshot_shows_labels_and_states),
        cmocka_unit_test(a_snapshot_of_many_shows_who_waits),
        cmocka_unit_test(it_is_the_registrys_best_on_the_host),
        cmocka_unit_test(a_child_of_fork_goes_on),
        cmocka_unit_test(random_runs_never_overlap),
        cmocka_unit_test(growing_does_not_give_back_what_it_grows_from),
        cmocka_unit_test(known_fragmenters_stay_bounded),
        cmocka_unit_test(every_failing_allocation_is_clean),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Memory on its way back to the device: nobody is refused while it is, trim waits for it, and its addresses may
 * be another's before the pool hears of it. The linker leads the pool's calls of the device through here
 * (--wrap), so that a thread can be held inside one. */
#include <sched.h>
#include <stdatomic.h>

#include "berth/virtual.h"
#include "gate.h"
#include "unit/pool/pool_test.h"

berth_status __real_berth__device_unmap(berth_device device, void *p, size_t size_bytes);
berth_status __wrap_berth__device_unmap(berth_device device, void *p, size_t size_bytes);
berth_status __real_berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                          size_t alignment, berth_stream *stream, void **out);
berth_status __wrap_berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                          size_t alignment, berth_stream *stream, void **out);
berth_status __real_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream);
berth_status __wrap_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream);

static _Atomic(gate *) at_unmap;      /* the next unmap stops here, before it is done */
static _Atomic(gate *) after_release; /* the next release stops here, when it is done */
static unsigned char *only_address;   /* all segments lie here, each further in than the one before */
static _Atomic bool address_is_taken;
static _Atomic bool device_is_slow; /* others run while it takes memory back */

static void take_time(void)
{
    for (int turn = 0; turn < 4 && atomic_load(&device_is_slow); turn++)
        sched_yield();
}

berth_status __wrap_berth__device_unmap(berth_device device, void *p, size_t size_bytes)
{
    gate *g = atomic_exchange(&at_unmap, NULL);
    if (g)
        gate_stop(g);
    take_time();
    return __real_berth__device_unmap(device, p, size_bytes);
}

berth_status __wrap_berth_device_allocate(berth_device device, berth_memory_kind kind, size_t size_bytes,
                                          size_t alignment, berth_stream *stream, void **out)
{
    if (!only_address)
        return __real_berth_device_allocate(device, kind, size_bytes, alignment, stream, out);
    assert_false(atomic_exchange(&address_is_taken, true));
    *out = only_address;
    only_address += 4096;
    return BERTH_OK;
}

berth_status __wrap_berth_device_release(berth_device device, berth_memory_kind kind, void *p,
                                         size_t size_bytes, berth_stream *stream)
{
    take_time();
    if (!only_address)
        return __real_berth_device_release(device, kind, p, size_bytes, stream);
    atomic_store(&address_is_taken, false);
    gate *g = atomic_exchange(&after_release, NULL);
    if (g)
        gate_stop(g);
    return BERTH_OK;
}

/* ---- Another thread in the middle of a trim --------------------------------------------------------- */

struct other {
    berth_allocator *pool;
    gate gate;
    pthread_t trimmer, asker;
    /* what the asker does, and what came of it */
    size_t size_bytes; /* 0: trims */
    uint64_t flags;
    _Atomic bool asks, opened;
    bool opened_before_answer;
    berth_status status;
    void *block;
};

static void *trim_all(void *context)
{
    berth_trim(context, 0, NULL);
    return NULL;
}

static void *ask(void *context)
{
    struct other *o = context;
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = (uint32_t)o->flags;
    atomic_store(&o->asks, true);
    o->status = o->size_bytes ? berth_allocate(o->pool, o->size_bytes, 64, &request, &o->block)
                              : berth_trim(o->pool, 0, NULL);
    o->opened_before_answer = atomic_load(&o->opened);
    return NULL;
}

/* One thread is held while it gives all of `trimmed` back; another asks `o->pool`; then the first goes on.
 * The turns only give a wrong answer the time to come: a right one needs the gate open. */
static void ask_beside_trim(struct other *o, berth_allocator *trimmed)
{
    o->gate = (gate)GATE_INIT;
    atomic_store(&at_unmap, &o->gate);
    assert_int_equal(pthread_create(&o->trimmer, NULL, trim_all, trimmed), 0);
    gate_wait_reached(&o->gate);
    assert_int_equal(pthread_create(&o->asker, NULL, ask, o), 0);
    while (!atomic_load(&o->asks))
        sched_yield();
    for (int turn = 0; turn < 2000; turn++)
        sched_yield();
    atomic_store(&o->opened, true);
    gate_open(&o->gate);
    pthread_join(o->trimmer, NULL);
    pthread_join(o->asker, NULL);
}

static void trim_waits_for_what_others_give_back(void **state)
{
    (void)state;
    struct other o = {.pool = make(NULL)};
    give(o.pool, take(o.pool, 4 * MIB));
    ask_beside_trim(&o, o.pool);
    assert_int_equal(o.status, BERTH_OK);
    assert_true(o.opened_before_answer);
    assert_int_equal(stats_of(o.pool).bytes_reserved, 0);
    berth_allocator_release(o.pool);
}

static void a_hard_limit_refuses_nothing_that_will_fit(void **state)
{
    (void)state;
    for (int shared = 0; shared <= 1; shared++)
        for (int retry = 0; retry <= 1; retry++) {
            berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
            options.hard_limit_bytes = 4 * MIB;
            struct other o = {.pool = make(&options), .size_bytes = 3 * MIB};
            o.flags = retry ? 0 : BERTH_NO_RETRY;
            options.shares_limits_with = o.pool;
            berth_allocator *trimmed = shared ? make(&options) : berth_allocator_retain(o.pool);
            give(trimmed, take(trimmed, 4 * MIB));
            ask_beside_trim(&o, trimmed);
            assert_int_equal(o.status, BERTH_OK);
            give(o.pool, o.block);
            /* What can never fit is refused at once. */
            void *p = NULL;
            assert_int_equal(berth_allocate(o.pool, 5 * MIB, 64, NULL, &p), BERTH_OVER_BUDGET);
            berth_allocator_release(trimmed);
            berth_allocator_release(o.pool);
        }
}

static void a_full_device_refuses_nothing_that_will_fit(void **state)
{
    (void)state;
    berth_device device;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    berth_virtual_set_memory_limit(device, 4 * MIB);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    struct other o = {.pool = make(&options), .size_bytes = 3 * MIB};
    give(o.pool, take(o.pool, 4 * MIB));
    ask_beside_trim(&o, o.pool);
    assert_int_equal(o.status, BERTH_OK);
    give(o.pool, o.block);
    berth_allocator_release(o.pool);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

/* ---- The device gives the same addresses out again -------------------------------------------------- */

static void a_new_segment_does_not_hide_behind_an_old_one(void **state)
{
    (void)state;
    static _Alignas(4096) unsigned char memory[2 * 65536];
    only_address = memory;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.memory_kind = BERTH_MEMORY_PINNED;
    options.segment_bytes = 65536;
    berth_allocator *pool = make(&options);
    give(pool, take(pool, 50000));
    gate held = GATE_INIT;
    atomic_store(&after_release, &held);
    pthread_t trimmer;
    assert_int_equal(pthread_create(&trimmer, NULL, trim_all, pool), 0);
    gate_wait_reached(&held); /* the device has the segment back; the trim does not know yet */
    void *p = take(pool, 60000);
    assert_ptr_equal(p, memory + 4096);
    size_t size = 0;
    assert_int_equal(berth_requested_size(pool, p, &size), BERTH_OK);
    assert_int_equal(size, 60000);
    give(pool, p);
    gate_open(&held);
    pthread_join(trimmer, NULL);
    assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(stats_of(pool).bytes_reserved, 0);
    assert_false(atomic_load(&address_is_taken));
    berth_allocator_release(pool);
    only_address = NULL;
}

/* ---- Many threads at the limit ------------------------------------------------------------------------ */

enum { WORKERS = 4, HELD = 4, BLOCK = 512 << 10 };
#ifdef __SANITIZE_THREAD__
enum { REQUESTS = 1500 };
#else
enum { REQUESTS = 8000 };
#endif

struct worker {
    berth_allocator *pool;
    pthread_t thread;
    uint64_t seed, refused, bad;
};

static void *work(void *context)
{
    struct worker *w = context;
    unsigned char *held[HELD] = {NULL};
    for (int i = 0; i < REQUESTS; i++) {
        w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = w->seed >> 60 & (HELD - 1), size = BLOCK - (w->seed >> 40 & 0xffff);
        if (held[slot]) {
            w->bad += held[slot][0] != (unsigned char)slot || held[slot][1] != (unsigned char)w->thread;
            w->bad += berth_deallocate(w->pool, held[slot], 0, NULL) != BERTH_OK;
            held[slot] = NULL;
        }
        if (berth_allocate(w->pool, size, 64, NULL, (void **)&held[slot]) != BERTH_OK) {
            w->refused++;
        } else {
            held[slot][0] = (unsigned char)slot;
            held[slot][1] = (unsigned char)w->thread;
        }
    }
    for (size_t i = 0; i < HELD; i++)
        w->bad += berth_deallocate(w->pool, held[i], 0, NULL) != BERTH_OK;
    return NULL;
}

static _Atomic bool done;

static void *trim_always(void *pool)
{
    while (!atomic_load(&done))
        berth_trim(pool, 0, NULL);
    return NULL;
}

/* All that the threads ever hold together fits: nobody may be refused, whatever goes back meanwhile. */
static void threads_within_the_limit_are_never_refused(void **state)
{
    (void)state;
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_PINNED; kind++) {
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.memory_kind = (berth_memory_kind)kind;
        options.segment_bytes = 4096; /* each block a segment of its own: nothing is in pieces */
        options.hard_limit_bytes = (uint64_t)WORKERS * HELD * BLOCK * 11 / 10;
        options.reserve_bytes = (size_t)1 << 32;
        berth_allocator *pool = make(&options);
        struct worker workers[WORKERS];
        pthread_t trimmer;
        atomic_store(&done, false);
        atomic_store(&device_is_slow, true);
        assert_int_equal(pthread_create(&trimmer, NULL, trim_always, pool), 0);
        for (size_t i = 0; i < WORKERS; i++) {
            workers[i] = (struct worker){.pool = pool, .seed = i + 1};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (size_t i = 0; i < WORKERS; i++)
            pthread_join(workers[i].thread, NULL);
        atomic_store(&done, true);
        pthread_join(trimmer, NULL);
        atomic_store(&device_is_slow, false);
        for (size_t i = 0; i < WORKERS; i++) {
            assert_int_equal(workers[i].bad, 0);
            assert_int_equal(workers[i].refused, 0);
        }
        assert_true(stats_of(pool).max_bytes_reserved <= options.hard_limit_bytes);
        berth_trim(pool, 0, NULL);
        assert_int_equal(stats_of(pool).bytes_reserved, 0);
        berth_allocator_release(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_waits_for_what_others_give_back),
        cmocka_unit_test(a_hard_limit_refuses_nothing_that_will_fit),
        cmocka_unit_test(a_full_device_refuses_nothing_that_will_fit),
        cmocka_unit_test(a_new_segment_does_not_hide_behind_an_old_one),
        cmocka_unit_test(threads_within_the_limit_are_never_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The end of a pool: the last free against the last release, at every point where one can come into the other,
 * and what a device that fails leaves behind. */
#include <stdatomic.h>

#include "berth/log.h"
#include "berth/virtual.h"
#include "unit/pool/pool_test.h"

/* ---- The release comes in the middle of a free ------------------------------------------------------ */

/* The pool reads its clock and writes to the log without a lock, so that these stand for another thread that
 * comes in just there. */
struct intruder {
    berth_allocator *pool;
    uint64_t calls_left; /* until the pool's handle is released */
};

static void intrude(struct intruder *in)
{
    if (in->calls_left == 0 || --in->calls_left != 0)
        return;
    berth_allocator *pool = in->pool;
    in->pool = NULL;
    berth_allocator_release(pool);
}

static uint64_t intruding_clock(void *context)
{
    intrude(context);
    return 1;
}

static void intruding_log(void *context, berth_log_level level, const char *message)
{
    (void)level, (void)message;
    intrude(context);
}

struct setting {
    berth_device device;
    berth_stream *stream;
    struct intruder intruder;
    void *freed;
    unsigned char *other;
};

static void setting_begin(struct setting *s, uint64_t soft_limit_bytes)
{
    *s = (struct setting){.freed = NULL};
    assert_int_equal(berth_virtual_create(&s->device), BERTH_OK);
    assert_int_equal(berth_stream_create(s->device, &s->stream), BERTH_OK);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = s->device;
    options.clock_ns = intruding_clock;
    options.clock_context = &s->intruder;
    options.soft_limit_bytes = soft_limit_bytes;
    s->intruder.pool = make(&options);
    s->freed = take(s->intruder.pool, MIB);
    s->other = take(s->intruder.pool, MIB);
    memset(s->other, 5, MIB);
}

/* The other block is whole, and the pool goes with it. */
static void setting_end(struct setting *s, berth_allocator *pool)
{
    for (size_t i = 0; i < MIB; i += 4096)
        assert_int_equal(s->other[i], 5);
    berth_allocator *held = s->intruder.pool;
    s->intruder.calls_left = 0;
    give(pool, s->other);
    if (held)
        berth_allocator_release(held);
    berth_virtual_run_all(s->device);
    assert_int_equal(berth_virtual_bytes_in_use(s->device), 0);
    berth_stream_destroy(s->stream);
    assert_int_equal(berth_virtual_destroy(s->device), BERTH_OK);
}

static void a_release_inside_a_free_with_a_stream_takes_nothing_away(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    for (uint64_t call = 1; call <= 6; call++) {
        struct setting s;
        setting_begin(&s, 0);
        berth_allocator *pool = s.intruder.pool;
        s.intruder.calls_left = call;
        assert_int_equal(berth_deallocate(pool, s.freed, 0, s.stream), BERTH_OK);
        setting_end(&s, pool);
        assert_int_equal(berth__heap_live(), heap);
    }
}

static void a_release_while_memory_goes_back_takes_nothing_away(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    for (uint64_t call = 1; call <= 4; call++) {
        struct setting s;
        setting_begin(&s, 4096);
        berth_allocator *pool = s.intruder.pool;
        /* A device that fails to unmap is what the log hears of. */
        berth_virtual_fail(s.device, BERTH_VIRTUAL_MAP, 1, BERTH_DEVICE_ERROR, false);
        berth_log_set(intruding_log, &s.intruder, BERTH_LOG_WARNING);
        s.intruder.calls_left = call;
        give(pool, s.freed);
        if (s.intruder.pool)
            berth_trim(pool, 0, NULL);
        berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
        setting_end(&s, pool);
        assert_int_equal(berth__heap_live(), heap);
    }
}

/* ---- The same with threads: the sanitizers watch ---------------------------------------------------- */

struct race {
    berth_allocator *pool;
    berth_stream *stream;
    void *block;
    _Atomic int ready;
};

static void *free_on_a_stream(void *context)
{
    struct race *race = context;
    atomic_fetch_add(&race->ready, 1);
    while (atomic_load(&race->ready) != 2)
        continue;
    berth_deallocate(race->pool, race->block, 0, race->stream);
    return NULL;
}

static void the_last_free_on_a_stream_races_the_release(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    for (int round = 0; round < 300; round++) {
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.reserve_bytes = 64 * MIB;
        options.memory_kind = round % 2 ? BERTH_MEMORY_PINNED : BERTH_MEMORY_DEVICE;
        options.segment_bytes = MIB;
        options.soft_limit_bytes = 4096;
        struct race race = {.pool = make(&options), .stream = round % 3 ? stream : NULL};
        race.block = take(race.pool, 100000);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_on_a_stream, &race), 0);
        while (atomic_load(&race.ready) != 1)
            continue;
        atomic_fetch_add(&race.ready, 1);
        for (volatile int wait = 0; wait < round * 3; wait++)
            continue;
        berth_allocator_release(race.pool);
        pthread_join(thread, NULL);
    }
    berth_stream_destroy(stream);
    assert_true(berth__heap_live() <= heap + 64); /* the CPU keeps what its streams stand on */
}

/* ---- Devices that fail ------------------------------------------------------------------------------ */

/* Nothing can be learned of the stream: no event, no wait. */
static void fail_all(berth_device device, berth_status status, bool persist)
{
    static const berth_virtual_call calls[] = {BERTH_VIRTUAL_EVENT_RECORD,       BERTH_VIRTUAL_EVENT_CREATE,
                                               BERTH_VIRTUAL_EVENT_WAIT,         BERTH_VIRTUAL_EVENT_QUERY,
                                               BERTH_VIRTUAL_STREAM_SYNCHRONIZE, BERTH_VIRTUAL_STREAM_QUERY};
    for (size_t i = 0; i < BERTH_COUNT_OF(calls); i++)
        berth_virtual_fail(device, calls[i], persist ? 1 : 0, status, persist);
}

static void a_block_stays_out_of_use_while_its_stream_cannot_be_asked(void **state)
{
    (void)state;
    for (int uses = 1; uses <= 2; uses++) {
        struct setting s;
        setting_begin(&s, 0);
        berth_allocator *pool = s.intruder.pool;
        berth_stream *second = NULL;
        assert_int_equal(berth_stream_create(s.device, &second), BERTH_OK);
        assert_int_equal(berth_zero(s.device, s.freed, MIB, s.stream, false), BERTH_OK);
        assert_int_equal(berth_record_use(pool, s.freed, s.stream), BERTH_OK);
        if (uses == 2)
            assert_int_equal(berth_record_use(pool, s.freed, second), BERTH_OK);
        fail_all(s.device, BERTH_DEVICE_ERROR, true);
        give(pool, s.freed);
        void *p = take(pool, MIB);
        assert_ptr_not_equal(p, s.freed); /* the stream has not cleared it yet */
        assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
        memset(s.freed, 1, MIB); /* and it is still memory */
        berth_stats stats = stats_of(pool);
        assert_true(stats.bytes_reserved >= 3 * MIB);
        fail_all(s.device, BERTH_OK, false);
        void *q = take(pool, MIB); /* the streams are marked now, and have not come so far */
        assert_ptr_not_equal(q, s.freed);
        berth_virtual_run_all(s.device);
        assert_ptr_equal(take(pool, MIB), s.freed);
        give(pool, s.freed);
        give(pool, p);
        give(pool, q);
        berth_stream_destroy(second);
        setting_end(&s, pool);
    }
}

static void a_lost_device_keeps_nothing(void **state)
{
    (void)state;
    struct setting s;
    setting_begin(&s, 0);
    berth_allocator *pool = s.intruder.pool;
    assert_int_equal(berth_record_use(pool, s.freed, s.stream), BERTH_OK);
    fail_all(s.device, BERTH_DEVICE_LOST, true);
    give(pool, s.freed);
    assert_ptr_equal(take(pool, MIB), s.freed);
    give(pool, s.freed);
    setting_end(&s, pool);
}

/* A released pool does not take memory away from a stream that cannot be asked; who comes next looks after
 * it. */
static void a_released_pool_waits_for_streams_that_cannot_be_asked(void **state)
{
    (void)state;
    uint64_t heap = berth__heap_live();
    struct setting s;
    setting_begin(&s, 0);
    berth_allocator *pool = s.intruder.pool;
    assert_int_equal(berth_zero(s.device, s.freed, MIB, s.stream, false), BERTH_OK);
    assert_int_equal(berth_record_use(pool, s.freed, s.stream), BERTH_OK);
    give(pool, s.other);
    give(pool, s.freed); /* marked; then the device fails */
    fail_all(s.device, BERTH_DEVICE_ERROR, true);
    berth_allocator_release(pool);
    assert_true(berth_virtual_bytes_in_use(s.device) >= MIB);
    memset(s.freed, 1, MIB);
    fail_all(s.device, BERTH_OK, false);
    berth_virtual_run_all(s.device); /* writes to it */
    berth_allocator *next = make(NULL);
    assert_int_equal(berth_virtual_bytes_in_use(s.device), 0);
    berth_allocator_release(next);
    berth_stream_destroy(s.stream);
    assert_int_equal(berth_virtual_destroy(s.device), BERTH_OK);
    assert_int_equal(berth__heap_live(), heap);
}

static void memory_that_the_device_keeps_stays_reserved(void **state)
{
    (void)state;
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_PINNED; kind++) {
        berth_virtual_call call = kind == BERTH_MEMORY_PINNED ? BERTH_VIRTUAL_RELEASE : BERTH_VIRTUAL_MAP;
        berth_device device;
        assert_int_equal(berth_virtual_create(&device), BERTH_OK);
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        options.device = device;
        options.memory_kind = (berth_memory_kind)kind;
        options.segment_bytes = MIB;
        berth_allocator *pool = make(&options);
        give(pool, take(pool, MIB));
        uint64_t reserved = stats_of(pool).bytes_reserved;
        berth_virtual_fail(device, call, 1, BERTH_DEVICE_ERROR, true);
        size_t released = 77;
        assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
        assert_int_equal(released, 0);
        assert_int_equal(stats_of(pool).bytes_reserved, reserved);
        assert_int_equal(stats_of(pool).bytes_reserved, berth_virtual_bytes_in_use(device));
        berth_virtual_fail(device, call, 0, BERTH_OK, false);
        assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
        assert_int_equal(released, reserved);
        assert_int_equal(stats_of(pool).bytes_reserved, 0);
        assert_int_equal(berth_virtual_bytes_in_use(device), 0);
        berth_allocator_release(pool);
        assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_inside_a_free_with_a_stream_takes_nothing_away),
        cmocka_unit_test(a_release_while_memory_goes_back_takes_nothing_away),
        cmocka_unit_test(the_last_free_on_a_stream_races_the_release),
        cmocka_unit_test(a_block_stays_out_of_use_while_its_stream_cannot_be_asked),
        cmocka_unit_test(a_lost_device_keeps_nothing),
        cmocka_unit_test(a_released_pool_waits_for_streams_that_cannot_be_asked),
        cmocka_unit_test(memory_that_the_device_keeps_stays_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

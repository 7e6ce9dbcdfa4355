/* A device whose nth call fails, for every few n and every operation: with an error, or by being lost from then on. Pool, host
 * cache, device source, plans and buffers stand on it. What they answer is an error with words or the right bytes, and in
 * the end the device has all of its memory, streams and events back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "core/after.h"
#include "device/device.h"
#include "scale.h"

/* ---- The device: the processor's table, which counts its calls ---------------------------------------- */

static const berth_device_ops *const real = &berth__cpu_device_ops;
static struct {
    _Atomic long calls, failed;
    long nth;
    berth_status with; /* BERTH_DEVICE_LOST: from then on every call */
    _Atomic bool is_lost;
    berth_stream *streams[2];
} shaky;

static void stand_still(void)
{
    for (size_t i = 0; i < 2; i++)
        if (shaky.streams[i] && shaky.streams[i] != berth__running_stream)
            (void)real->stream_synchronize(NULL, shaky.streams[i]);
}

/* What is lost does nothing any more, as nobody waits for it: what is under way ends before that is said. */
static berth_status turn(void)
{
    if (!atomic_load(&shaky.is_lost) && atomic_fetch_add(&shaky.calls, 1) + 1 != shaky.nth)
        return BERTH_OK;
    atomic_fetch_add(&shaky.failed, 1);
    if (shaky.with == BERTH_DEVICE_LOST)
        stand_still();
    atomic_store(&shaky.is_lost, shaky.with == BERTH_DEVICE_LOST);
    return berth_fail(shaky.with, "the nth call");
}

#define OR_ELSE(call)             \
    berth_status status = turn(); \
    return !status ? (call) : status

/* A device gives back what the host holds though it is lost, and says so. */
#define GIVE(call)                                         \
    berth_status status = turn();                          \
    if (status != BERTH_OK && status != BERTH_DEVICE_LOST) \
        return status;                                     \
    berth_status given = (call);                           \
    return given != BERTH_OK ? given : status

static berth_status shaky_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                   size_t alignment, berth_stream *stream, void **out)
{
    OR_ELSE(real->allocate(self, device, kind, size_bytes, alignment, stream, out));
}

static berth_status shaky_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                  size_t size_bytes, berth_stream *stream)
{
    GIVE(real->release(self, device, kind, p, size_bytes, stream));
}

static berth_status shaky_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                               berth_copy_kind kind, berth_stream *stream)
{
    OR_ELSE(real->copy(self, device, dst, src, size_bytes, kind, stream));
}

static berth_status shaky_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                               berth_stream *stream)
{
    OR_ELSE(real->zero(self, device, dst, size_bytes, stream));
}

static berth_status shaky_stream_create(void *self, berth_device device, berth_stream **out)
{
    OR_ELSE(real->stream_create(self, device, out));
}

static berth_status shaky_stream_query(void *self, berth_stream *stream)
{
    OR_ELSE(real->stream_query(self, stream));
}

static berth_status shaky_stream_synchronize(void *self, berth_stream *stream)
{
    OR_ELSE(real->stream_synchronize(self, stream));
}

static berth_status shaky_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                      void *context)
{
    OR_ELSE(real->stream_call(self, stream, fn, context));
}

static berth_status shaky_event_create(void *self, berth_device device, berth_event **out)
{
    OR_ELSE(real->event_create(self, device, out));
}

static berth_status shaky_event_record(void *self, berth_event *event, berth_stream *stream)
{
    OR_ELSE(real->event_record(self, event, stream));
}

static berth_status shaky_event_query(void *self, berth_event *event)
{
    OR_ELSE(real->event_query(self, event));
}

static berth_status shaky_event_wait(void *self, berth_event *event)
{
    OR_ELSE(real->event_wait(self, event));
}

static berth_status shaky_granularity(void *self, berth_device device, size_t *out)
{
    OR_ELSE(real->granularity(self, device, out));
}

static berth_status shaky_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    OR_ELSE(real->reserve(self, device, size_bytes, out));
}

static berth_status shaky_unreserve(void *self, berth_device device, void *base, size_t size_bytes)
{
    GIVE(real->unreserve(self, device, base, size_bytes));
}

static berth_status shaky_map(void *self, berth_device device, void *p, size_t size_bytes)
{
    OR_ELSE(real->map(self, device, p, size_bytes));
}

static berth_status shaky_unmap(void *self, berth_device device, void *p, size_t size_bytes)
{
    GIVE(real->unmap(self, device, p, size_bytes));
}

static berth_device_ops shaky_table(bool pieces, bool calls)
{
    berth_device_ops ops = *real;
    ops.name = "shaky";
    ops.allocate = shaky_allocate;
    ops.release = shaky_release;
    ops.copy = shaky_copy;
    ops.zero = shaky_zero;
    ops.stream_create = shaky_stream_create;
    ops.stream_query = shaky_stream_query;
    ops.stream_synchronize = shaky_stream_synchronize;
    ops.stream_call = calls ? shaky_stream_call : NULL;
    ops.event_create = shaky_event_create;
    ops.event_record = shaky_event_record;
    ops.event_query = shaky_event_query;
    ops.event_wait = shaky_event_wait;
    ops.granularity = pieces ? shaky_granularity : NULL;
    ops.reserve = pieces ? shaky_reserve : NULL;
    ops.unreserve = pieces ? shaky_unreserve : NULL;
    ops.map = pieces ? shaky_map : NULL;
    ops.unmap = pieces ? shaky_unmap : NULL;
    return ops;
}

/* ---- What stands on it --------------------------------------------------------------------------------- */

enum { PLACES = 8, MOST_BYTES = 40000 };

static berth_device device;

static void settle(berth_stream *stream)
{
    if (stream && berth_stream_synchronize(stream) != BERTH_OK)
        (void)real->stream_synchronize(NULL, stream);
}

/* What was refused is tried again: the nth call has been. */
static void give(berth_allocator *a, void *p, berth_stream *stream)
{
    berth_status status = berth_deallocate(a, p, 0, stream);
    if (status != BERTH_OK && status != BERTH_DEVICE_LOST)
        status = berth_deallocate(a, p, 0, stream);
    assert_true(status == BERTH_OK || status == BERTH_DEVICE_LOST);
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % below;
}

static void use(berth_allocator *a, int steps)
{
    static unsigned char bytes[MOST_BYTES];
    struct {
        unsigned char *p;
        size_t size;
    } places[PLACES] = {{0}};
    uint64_t seed = 7;
    for (int i = 0; i < steps; i++) {
        size_t at = (size_t)draw(&seed, PLACES);
        berth_stream *stream = shaky.streams[draw(&seed, 2)];
        berth_request request = {sizeof request, draw(&seed, 3) ? 0 : BERTH_ZEROED,
                                 draw(&seed, 2) ? stream : NULL, NULL};
        size_t size = 1 + (size_t)draw(&seed, draw(&seed, 4) ? 3000 : MOST_BYTES);
        if (!places[at].p) {
            void *p = NULL;
            berth_status status = berth_allocate(a, size, 64, &request, &p);
            assert_true((p != NULL) == (status == BERTH_OK));
            assert_true(p || berth_last_error()->message[0]);
            settle(request.stream); /* what was zeroed for it is there */
            for (size_t k = 0; p && request.flags && k < size; k++)
                assert_int_equal(((unsigned char *)p)[k], 0);
            if (p)
                memset(p, (int)at, size);
            places[at].p = p;
            places[at].size = size;
            continue;
        }
        for (size_t k = 0; k < places[at].size; k++)
            assert_int_equal(places[at].p[k], at);
        /* The stream uses it, and it goes: only a use that was noted lets go early. */
        bool enqueued = stream && berth_copy(device, places[at].p, bytes, places[at].size, BERTH_COPY_INFER,
                                             stream, false) == BERTH_OK;
        if (enqueued && berth_record_use(a, places[at].p, stream) != BERTH_OK)
            settle(stream);
        give(a, places[at].p, NULL);
        places[at].p = NULL;
    }
    for (size_t i = 0; i < PLACES; i++)
        if (places[i].p)
            give(a, places[i].p, NULL);
    (void)berth_trim(a, 0, NULL);
}

static void use_plan(berth_allocator *inner)
{
    static const size_t sizes[] = {100, 5000, 300, 20000};
    berth_plan *plan = NULL;
    berth_allocator *planned = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    berth_status status = berth_planned_create(inner, plan, &planned);
    for (int run = 0; !status && run < 3; run++) {
        void *p[4] = {NULL};
        if ((run ? berth_replay_begin(planned, NULL) : berth_record_begin(planned, NULL)) != BERTH_OK)
            continue;
        for (size_t i = 0; i < 4; i++)
            (void)berth_allocate(planned, sizes[i], 64, NULL, &p[i]);
        for (size_t i = 0; i < 4; i++)
            if (p[i])
                give(planned, p[i], NULL);
        (void)(run ? berth_replay_end(planned, NULL) : berth_record_end(planned));
    }
    berth_allocator_release(planned);
    berth_plan_release(plan);
}

static void use_buffers(berth_allocator *a)
{
    static unsigned char host[3000], back[3000];
    berth_buffer *in = NULL, *on = NULL, *out = NULL;
    memset(host, 9, sizeof host);
    memset(back, 0, sizeof back);
    assert_int_equal(berth_buffer_view(host, sizeof host, berth_device_cpu(), &in), BERTH_OK);
    assert_int_equal(berth_buffer_view(back, sizeof back, berth_device_cpu(), &out), BERTH_OK);
    if (berth_buffer_create(a, sizeof host, 64, true, &on) == BERTH_OK &&
        berth_buffer_copy(on, in, shaky.streams[0], false) == BERTH_OK &&
        berth_buffer_copy(out, on, shaky.streams[0], true) == BERTH_OK)
        assert_memory_equal(host, back, sizeof host);
    settle(shaky.streams[0]);
    berth_buffer_release(in);
    berth_buffer_release(on);
    berth_buffer_release(out);
}

/* ---- Every few n ---------------------------------------------------------------------------------------- */

static void expect_all_back(berth_device_kind kind)
{
    const struct timespec moment = {0, 1000000};
    for (int i = 0; i < 5000 && berth_device_unregister(kind) == BERTH_BUSY; i++) {
        berth__after_sweep(); /* what waits for a stream goes when somebody comes by */
        nanosleep(&moment, NULL);
    }
    if (berth_device_kind_find("shaky") != BERTH_DEVICE_UNKNOWN)
        fail_msg("call %ld: %s", shaky.nth, berth_last_error()->message);
}

/* Whether there was an nth call. */
static bool run_with(const berth_device_ops *table, long nth, berth_status with)
{
    berth_device_kind kind;
    berth_allocator *a[3] = {NULL};
    berth_pool_options on = BERTH_POOL_OPTIONS_INIT;
    berth_host_cache_options host = BERTH_HOST_CACHE_OPTIONS_INIT;
    memset(&shaky, 0, sizeof shaky);
    shaky.nth = nth;
    shaky.with = with;
    assert_int_equal(berth_device_register(table, NULL, &kind), BERTH_OK);
    on.device = host.device = device = (berth_device){(int32_t)kind, 0};
    for (size_t i = 0; i < 2; i++)
        (void)berth_stream_create(device, &shaky.streams[i]);
    (void)berth_pool_create(&on, &a[0]);
    (void)berth_host_cache_create(&host, &a[1]);
    (void)berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a[2]);
    for (size_t i = 0; i < 3; i++)
        if (a[i]) {
            use(a[i], 60);
            use_plan(a[i]);
            use_buffers(a[i]);
        }
    stand_still();
    for (size_t i = 0; i < 3; i++)
        berth_allocator_release(a[i]);
    for (size_t i = 0; i < 2; i++)
        berth_stream_destroy(shaky.streams[i]);
    memset(shaky.streams, 0, sizeof shaky.streams);
    bool was = atomic_load(&shaky.failed) != 0;
    expect_all_back(kind);
    return was;
}

static void every_few_calls(bool pieces, bool calls, berth_status with)
{
    const berth_device_ops table = shaky_table(pieces, calls);
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    long first = 1 + pieces + 2 * calls, nth = first;
    while (run_with(&table, nth, with))
        nth += 19 * SCALE;
    assert_true(nth > 100); /* there are some hundred calls */
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
}

static void test_segments(void **state)
{
    (void)state;
    every_few_calls(false, true, BERTH_DEVICE_ERROR);
}

static void test_pieces(void **state)
{
    (void)state;
    every_few_calls(true, true, BERTH_OUT_OF_DEVICE_MEMORY);
}

static void test_without_functions(void **state)
{
    (void)state;
    every_few_calls(true, false, BERTH_DEVICE_ERROR);
}

static void test_lost(void **state)
{
    (void)state;
    every_few_calls(false, false, BERTH_DEVICE_LOST);
    every_few_calls(true, true, BERTH_DEVICE_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_without_functions),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

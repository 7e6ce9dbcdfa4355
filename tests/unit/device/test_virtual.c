/* Virtual time: nothing moves by itself, everything moves on demand, events are late or lost, calls fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "berth/buffer.h"
#include "berth/virtual.h"
#include "device/device.h"

static berth_device new_device(void)
{
    berth_device device;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(device.kind, BERTH_DEVICE_VIRTUAL);
    return device;
}

static berth_stream *new_stream(berth_device device)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

static berth_event *new_event(berth_device device)
{
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    return event;
}

static void enqueue_copy(berth_stream *stream, int *dst, const int *src)
{
    assert_int_equal(
        berth_copy(berth_stream_device(stream), dst, src, sizeof *dst, BERTH_COPY_INFER, stream, false),
        BERTH_OK);
}

static void nothing_moves_by_itself(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_device device = new_device();
    berth_stream *one = new_stream(device), *two = new_stream(device);
    berth_event *event = new_event(device);
    int a = 1, b = 0, c = 0;
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_int_equal(berth_virtual_step(one), BERTH_NOT_FOUND);
    enqueue_copy(one, &b, &a);
    assert_int_equal(berth_event_record(event, one), BERTH_OK);
    enqueue_copy(one, &c, &b);
    enqueue_copy(two, &a, &c); /* another stream: no order between them */
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(berth_stream_query(one), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_pending(one), 2);
    assert_int_equal(b, 0);
    assert_int_equal(berth_virtual_step(two), BERTH_OK);
    assert_int_equal(a, 0);
    a = 7;
    assert_int_equal(berth_virtual_step(one), BERTH_OK);
    assert_int_equal(b, 7);
    assert_int_equal(c, 0);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    assert_int_equal(berth_stream_query(one), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(one), BERTH_OK);
    assert_int_equal(c, 7);
    assert_int_equal(berth_stream_query(one), BERTH_OK);
    berth_stream_destroy(one);
    berth_stream_destroy(two);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    berth_event_destroy(event);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
    assert_true(berth__heap_live() == live);
}

static void streams_wait_for_each_other(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *one = new_stream(device), *two = new_stream(device);
    berth_event *event = new_event(device);
    int a = 1, b = 0, c = 0;
    enqueue_copy(one, &b, &a);
    berth_event_record(event, one);
    assert_int_equal(berth_stream_wait_event(two, event), BERTH_OK);
    berth_event_destroy(event);
    enqueue_copy(two, &c, &b);
    assert_int_equal(berth_virtual_step(two), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(two), BERTH_NOT_READY);
    assert_int_equal(c, 0);
    berth_stream_destroy(one); /* its work still runs, when told to */
    assert_int_equal(berth_virtual_step(one), BERTH_OK);
    assert_int_equal(berth_virtual_run(two), BERTH_OK);
    assert_int_equal(c, 1);
    berth_stream_destroy(two);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

static void run_all_takes_streams_in_turn(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *one = new_stream(device), *two = new_stream(device);
    berth_event *event = new_event(device);
    int values[4] = {5, 0, 0, 0};
    enqueue_copy(two, &values[1], &values[0]);
    berth_event_record(event, two);
    berth_stream_wait_event(one, event);
    enqueue_copy(one, &values[2], &values[1]);
    enqueue_copy(one, &values[3], &values[2]);
    berth_stream_destroy(one);
    berth_stream_destroy(two);
    assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
    assert_int_equal(values[3], 5);
    berth_event_destroy(event);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

static void waiting_on_the_host(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *one = new_stream(device), *two = new_stream(device), *bystander = new_stream(device);
    berth_event *event = new_event(device), *later = new_event(device);
    int a = 1, b = 0, c = 0, d = 0;
    enqueue_copy(bystander, &d, &a);
    enqueue_copy(one, &b, &a);
    berth_event_record(event, one);
    enqueue_copy(one, &d, &a);
    berth_stream_wait_event(two, event);
    enqueue_copy(two, &c, &b);
    berth_event_record(later, two);
    assert_int_equal(berth_virtual_set_waits_run(device, false), BERTH_OK);
    assert_int_equal(berth_event_wait(later), BERTH_TIMED_OUT);
    assert_int_equal(berth_stream_synchronize(two), BERTH_TIMED_OUT);
    assert_int_equal(c, 0);
    berth_virtual_set_waits_run(device, true);
    assert_int_equal(berth_event_wait(later), BERTH_OK); /* runs what it needs, and nothing else */
    assert_int_equal(c, 1);
    assert_int_equal(d, 0);
    assert_int_equal(berth_virtual_pending(one), 1);
    assert_int_equal(berth_copy(device, &b, &c, sizeof b, BERTH_COPY_INFER, one, true), BERTH_OK);
    assert_int_equal(berth_virtual_pending(one), 0);
    assert_int_equal(berth_virtual_pending(bystander), 1);
    berth_event_destroy(event);
    berth_event_destroy(later);
    berth_stream_destroy(one);
    berth_stream_destroy(two);
    berth_stream_destroy(bystander);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK); /* what has not run never runs */
    assert_int_equal(d, 1);
}

static void late_events(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *stream = new_stream(device), *other = new_stream(device);
    berth_event *event = new_event(device);
    int a = 1, b = 0, c = 0;
    assert_int_equal(berth_virtual_set_late(stream, true), BERTH_OK);
    enqueue_copy(stream, &b, &a);
    berth_event_record(event, stream);
    berth_stream_wait_event(other, event);
    enqueue_copy(other, &c, &b);
    assert_int_equal(berth_virtual_step(stream), BERTH_OK);
    assert_int_equal(b, 1); /* it has happened, but nobody has heard */
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_run(other), BERTH_OK);
    assert_int_equal(c, 1);
    berth_stream_destroy(stream); /* still somebody has to hear */
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(berth_virtual_deliver(stream), BERTH_OK);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    stream = new_stream(device);
    berth_virtual_set_late(stream, true);
    enqueue_copy(stream, &b, &a);
    berth_event_record(event, stream);
    assert_int_equal(berth_event_wait(event), BERTH_OK); /* a wait hears of it */
    assert_int_equal(berth_event_query(event), BERTH_OK);
    berth_stream_destroy(stream);
    berth_stream_destroy(other);
    berth_event_destroy(event);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

static void lost_events(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *stream = new_stream(device), *other = new_stream(device);
    berth_event *lost = new_event(device), *kept = new_event(device);
    int a = 1, b = 0;
    assert_int_equal(berth_virtual_lose_events(stream, 1), BERTH_OK);
    berth_event_record(lost, stream);
    berth_event_record(kept, stream);
    assert_int_equal(berth_event_query(lost), BERTH_NOT_READY);
    assert_int_equal(berth_event_wait(lost), BERTH_TIMED_OUT);
    assert_int_equal(berth_event_query(kept), BERTH_OK);
    berth_stream_wait_event(other, lost);
    enqueue_copy(other, &b, &a);
    assert_int_equal(berth_virtual_run_all(device), BERTH_NOT_READY);
    assert_int_equal(berth_stream_synchronize(other), BERTH_TIMED_OUT);
    berth_stream_destroy(stream);
    assert_int_equal(berth_event_query(lost), BERTH_NOT_READY);
    berth_event_record(lost, other);
    assert_int_equal(berth_virtual_reset(device), BERTH_OK);
    assert_int_equal(berth_event_query(lost), BERTH_OK);
    assert_int_equal(berth_virtual_pending(other), 0);
    assert_int_equal(b, 0);
    berth_event_destroy(lost);
    berth_event_destroy(kept);
    berth_stream_destroy(other);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

static void calls_fail_on_demand(void **state)
{
    (void)state;
    berth_device device = new_device();
    berth_stream *stream = new_stream(device), *none = NULL;
    berth_event *event = new_event(device), *no_event = NULL;
    void *p = NULL;
    int a = 1, b = 0;
    berth_virtual_fail(device, BERTH_VIRTUAL_COPY, 2, BERTH_DEVICE_ERROR, false);
    enqueue_copy(stream, &b, &a);
    assert_int_equal(berth_copy(device, &b, &a, sizeof b, BERTH_COPY_INFER, stream, false),
                     BERTH_DEVICE_ERROR);
    assert_int_equal(berth_last_error()->driver_code, BERTH_VIRTUAL_COPY);
    enqueue_copy(stream, &b, &a);
    assert_int_equal(berth_virtual_pending(stream), 2);
    assert_int_equal(berth_virtual_calls(device, BERTH_VIRTUAL_COPY), 3);
#define FAILS(sort, call)                                                                           \
    do {                                                                                            \
        assert_int_equal(berth_virtual_fail(device, sort, 1, BERTH_DEVICE_ERROR, false), BERTH_OK); \
        assert_int_equal((call), BERTH_DEVICE_ERROR);                                               \
    } while (0)
    FAILS(BERTH_VIRTUAL_ALLOCATE, berth_device_allocate(device, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p));
    FAILS(BERTH_VIRTUAL_ZERO, berth_zero(device, &b, sizeof b, NULL, false));
    FAILS(BERTH_VIRTUAL_STREAM_CREATE, berth_stream_create(device, &none));
    FAILS(BERTH_VIRTUAL_STREAM_QUERY, berth_stream_query(stream));
    FAILS(BERTH_VIRTUAL_STREAM_SYNCHRONIZE, berth_stream_synchronize(stream));
    FAILS(BERTH_VIRTUAL_STREAM_WAIT_EVENT, berth_stream_wait_event(stream, event));
    FAILS(BERTH_VIRTUAL_STREAM_CALL, berth_stream_call(stream, berth__heap_free, NULL));
    FAILS(BERTH_VIRTUAL_EVENT_CREATE, berth_event_create(device, &no_event));
    FAILS(BERTH_VIRTUAL_EVENT_RECORD, berth_event_record(event, stream));
    FAILS(BERTH_VIRTUAL_EVENT_QUERY, berth_event_query(event));
    FAILS(BERTH_VIRTUAL_EVENT_WAIT, berth_event_wait(event));
    FAILS(BERTH_VIRTUAL_MAP, berth__device_reserve(device, 1 << 16, &p));
#undef FAILS
    assert_null(none);
    assert_null(no_event);
    assert_int_equal(berth_virtual_pending(stream), 2);
    assert_int_equal(berth_event_query(event), BERTH_OK);
    /* From now on everything: a lost device. */
    berth_virtual_fail(device, BERTH_VIRTUAL_ANY, 1, BERTH_DEVICE_LOST, true);
    assert_int_equal(berth_event_query(event), BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
    berth_virtual_fail(device, BERTH_VIRTUAL_ANY, 0, BERTH_OK, false);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(b, 1);
    assert_int_equal(berth_virtual_fail(device, (berth_virtual_call)99, 1, BERTH_IO, false),
                     BERTH_INVALID_ARGUMENT);
    berth_stream_destroy(stream);
    berth_event_destroy(event);
    berth_virtual_destroy(device);
}

static void memory_has_a_limit(void **state)
{
    (void)state;
    berth_device device = new_device();
    void *p, *q;
    berth_virtual_set_memory_limit(device, 100);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 60, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 60, 64, NULL, &q),
                     BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, 60, 64, NULL, &q),
                     BERTH_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_virtual_bytes_in_use(device), 60);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 60, NULL), BERTH_OK);
    assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    /* In pieces too. */
    berth_virtual_set_memory_limit(device, 3 << 16);
    char *base = NULL;
    assert_int_equal(berth__device_reserve(device, 8 << 16, (void **)&base), BERTH_OK);
    assert_int_equal(berth__device_map(device, base + (2 << 16), 2 << 16), BERTH_OK);
    memset(base + (2 << 16), 1, 2 << 16);
    assert_int_equal(berth__device_map(device, base + (4 << 16), 2 << 16), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth__device_unmap(device, base + (2 << 16), 2 << 16), BERTH_OK);
    assert_int_equal(berth__device_map(device, base + (4 << 16), 2 << 16), BERTH_OK);
    assert_int_equal(berth__device_unmap(device, base + (4 << 16), 2 << 16), BERTH_OK);
    assert_int_equal(berth__device_unreserve(device, base, 8 << 16), BERTH_OK);
    berth_virtual_destroy(device);
}

static void devices_end_in_any_order(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_device device = new_device(), second;
    berth_stream *stream = new_stream(device), *orphan = new_stream(device);
    berth_event *event = new_event(device);
    int a = 1, b = 0;
    void *p = NULL;
    berth_device_allocate(device, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p);
    enqueue_copy(orphan, &b, &a);
    berth_event_record(event, orphan);
    berth_stream_destroy(orphan);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
    assert_int_equal(berth_virtual_destroy(device), BERTH_NOT_FOUND);
    assert_int_equal(berth_event_query(event), BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
    assert_int_equal(berth_copy(device, &b, &a, sizeof a, BERTH_COPY_INFER, stream, false),
                     BERTH_DEVICE_LOST);
    berth_stream *none;
    assert_int_equal(berth_stream_create(device, &none), BERTH_NOT_FOUND);
    second = new_device(); /* the ordinal is not free yet */
    assert_false(berth_device_equal(device, second));
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 8, NULL), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    berth_virtual_destroy(second);
    second = new_device();
    assert_true(second.ordinal <= device.ordinal);
    berth_virtual_destroy(second);
    assert_int_equal(b, 0);
    assert_true(berth__heap_live() == live);
}

typedef struct nest {
    berth_device device;
    berth_stream *stream;
    berth_status own_step, own_wait, enqueue;
    int from, to;
} nest;

static void use_own_device(void *context)
{
    nest *n = context;
    n->own_step = berth_virtual_step(n->stream);
    n->own_wait = berth_stream_synchronize(n->stream);
    for (int i = 0; i < 20; i++)
        n->enqueue =
            berth_copy(n->device, &n->to, &n->from, sizeof n->to, BERTH_COPY_INFER, n->stream, false);
    berth_stream_destroy(n->stream);
}

static void functions_may_use_the_device(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    nest n = {.device = new_device(), .from = 3};
    n.stream = new_stream(n.device);
    assert_int_equal(berth_stream_call(n.stream, use_own_device, &n), BERTH_OK);
    assert_int_equal(berth_virtual_step(n.stream), BERTH_OK);
    assert_int_equal(n.own_step, BERTH_NOT_READY);
    assert_int_equal(n.own_wait, BERTH_BUSY);
    assert_int_equal(n.enqueue, BERTH_OK);
    assert_int_equal(berth_virtual_pending(n.stream), 20);
    assert_int_equal(berth_virtual_run(n.stream), BERTH_OK);
    assert_int_equal(n.to, 3);
    berth_virtual_destroy(n.device);
    assert_true(berth__heap_live() == live);
}

static void going_back(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_device device = new_device();
    berth_stream *one = new_stream(device), *two = new_stream(device);
    berth_event *event = new_event(device);
    berth_virtual_state *saved = NULL;
    int a = 1, b = 0, c = 0;
    for (int i = 0; i < 20; i++)
        enqueue_copy(one, &b, &a);
    berth_event_record(event, one);
    berth_stream_wait_event(two, event);
    enqueue_copy(two, &c, &b);
    berth_virtual_step(one);
    assert_int_equal(berth_virtual_save(device, &saved), BERTH_OK);
    for (int round = 0; round < 3; round++) {
        b = c = 0;
        assert_int_equal(berth_virtual_run(two), BERTH_NOT_READY);
        assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
        assert_int_equal(c, 1);
        berth_event_record(event, two);
        berth_virtual_fail(device, BERTH_VIRTUAL_ANY, 1, BERTH_DEVICE_LOST, true);
        assert_int_equal(berth_virtual_restore(device, saved), BERTH_OK);
        assert_int_equal(berth_virtual_pending(one), 19);
        assert_int_equal(berth_virtual_pending(two), 2);
        assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    }
    berth_stream *third = new_stream(device);
    assert_int_equal(berth_virtual_restore(device, saved), BERTH_MISMATCH);
    berth_stream_destroy(third);
    assert_int_equal(berth_virtual_restore(device, saved), BERTH_OK);
    berth_virtual_state_destroy(saved);
    berth_event_destroy(event);
    berth_stream_destroy(one);
    berth_stream_destroy(two);
    berth_virtual_destroy(device);
    assert_true(berth__heap_live() == live);
}

/* Buffers over the CPU and two virtual devices: the host's side, the stream's side, and staging between. */
static void buffers_between_devices(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    const berth_device cpu = berth_device_cpu();
    berth_device first = new_device(), second = new_device();
    berth_stream *stream = new_stream(first), *host_stream = new_stream(cpu), *stranger = new_stream(second);
    static char host[3 << 20], there[3 << 20], far[3 << 20];
    berth_buffer *h, *f, *s;
    memset(host, 'h', sizeof host);
    memset(there, 0, sizeof there);
    assert_int_equal(berth_buffer_view(host, sizeof host, cpu, &h), BERTH_OK);
    assert_int_equal(berth_buffer_view(there, sizeof there, first, &f), BERTH_OK);
    assert_int_equal(berth_buffer_view(far, sizeof far, second, &s), BERTH_OK);
    assert_int_equal(berth_buffer_copy(f, h, stranger, false), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_copy(f, h, stream, false), BERTH_OK);
    assert_int_equal(there[0], 0);
    assert_int_equal(berth_virtual_pending(stream), 2);                 /* the copy, and letting go */
    assert_int_equal(berth_buffer_copy(s, f, stream, false), BERTH_OK); /* after what the stream has */
    assert_memory_equal(far, host, sizeof far);
    assert_int_equal(berth_buffer_zero(f, stream, false), BERTH_OK);
    berth_virtual_run(stream);
    assert_int_equal(there[sizeof there - 1], 0);
    assert_int_equal(berth_buffer_copy(h, f, host_stream, true),
                     BERTH_OK); /* a CPU stream for another device */
    assert_int_equal(host[sizeof host - 1], 0);
    berth_buffer_release(h);
    berth_buffer_release(f);
    berth_buffer_release(s);
    berth_stream_destroy(stream);
    berth_stream_destroy(stranger);
    berth_stream_destroy(host_stream);
    berth_virtual_destroy(first);
    berth_virtual_destroy(second);
    assert_true(berth__heap_live() == live);
}

static berth_status scene(berth_device *device)
{
    berth_stream *one = NULL, *two = NULL;
    berth_event *event = NULL;
    berth_virtual_state *saved = NULL;
    int a = 1, b = 0;
    berth_status status = berth_virtual_create(device);
    if (status != BERTH_OK)
        return status;
    status = berth_stream_create(*device, &one);
    if (status == BERTH_OK)
        status = berth_stream_create(*device, &two);
    if (status == BERTH_OK)
        status = berth_event_create(*device, &event);
    for (int i = 0; i < 10 && status == BERTH_OK; i++)
        status = berth_copy(*device, &b, &a, sizeof b, BERTH_COPY_INFER, one, false);
    if (status == BERTH_OK)
        status = berth_event_record(event, one);
    for (int i = 0; i < 10 && status == BERTH_OK; i++)
        status = berth_stream_wait_event(two, event);
    if (status == BERTH_OK)
        status = berth_virtual_save(*device, &saved);
    if (status == BERTH_OK)
        status = berth_virtual_restore(*device, saved);
    if (one)
        berth_virtual_run(one);
    if (two)
        berth_virtual_run(two);
    berth_virtual_state_destroy(saved);
    berth_event_destroy(event);
    berth_stream_destroy(one);
    berth_stream_destroy(two);
    berth_virtual_destroy(*device);
    return status;
}

static void every_internal_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live(), n = 1;
    berth_status status;
    do {
        berth_device device;
        berth__heap_fail_at(n++, false);
        status = scene(&device);
        berth__heap_fail_at(0, false);
        assert_true(status == BERTH_OK || status == BERTH_OUT_OF_HOST_MEMORY);
        assert_true(berth__heap_live() == live);
    } while (status != BERTH_OK);
    assert_true(n > 7); /* device, streams, event, two rings, state */
}

/* Random work on random streams, stepped in random order, against the rule that matters: when an event
 * reports complete, the copies before it have happened; and in the end every copy has. */
static void random_orders_keep_the_rule(void **state)
{
    (void)state;
    enum { STREAMS = 4, EVENTS = 6, SLOTS = 64 };
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 200; round++) {
        berth_device device = new_device();
        berth_stream *streams[STREAMS];
        berth_event *events[EVENTS];
        int one = 1, slots[SLOTS] = {0}, used = 0, before[EVENTS][SLOTS], counts[EVENTS] = {0};
        int of_stream[STREAMS][SLOTS], stream_counts[STREAMS] = {0};
        for (int i = 0; i < STREAMS; i++)
            streams[i] = new_stream(device);
        for (int i = 0; i < EVENTS; i++)
            events[i] = new_event(device);
        while (used < SLOTS) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            int s = (int)(random >> 3) % STREAMS, e = (int)(random >> 23 & 0xffff) % EVENTS;
            s = s < 0 ? -s : s;
            switch (random % 5) {
            case 0:
                of_stream[s][stream_counts[s]++] = used;
                enqueue_copy(streams[s], &slots[used++], &one);
                break;
            case 1:
                berth_event_record(events[e], streams[s]);
                counts[e] = stream_counts[s];
                memcpy(before[e], of_stream[s], sizeof before[e]);
                break;
            case 2:
                berth_stream_wait_event(streams[s], events[e]);
                break;
            default:
                (void)berth_virtual_step(streams[s]);
            }
            for (int i = 0; i < EVENTS; i++)
                if (berth_event_query(events[i]) == BERTH_OK)
                    for (int k = 0; k < counts[i]; k++)
                        assert_int_equal(slots[before[i][k]], 1);
        }
        assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
        for (int i = 0; i < SLOTS; i++)
            assert_int_equal(slots[i], 1);
        for (int i = 0; i < STREAMS; i++)
            berth_stream_destroy(streams[i]);
        for (int i = 0; i < EVENTS; i++)
            berth_event_destroy(events[i]);
        assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_moves_by_itself),
        cmocka_unit_test(streams_wait_for_each_other),
        cmocka_unit_test(run_all_takes_streams_in_turn),
        cmocka_unit_test(waiting_on_the_host),
        cmocka_unit_test(late_events),
        cmocka_unit_test(lost_events),
        cmocka_unit_test(calls_fail_on_demand),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(devices_end_in_any_order),
        cmocka_unit_test(functions_may_use_the_device),
        cmocka_unit_test(going_back),
        cmocka_unit_test(buffers_between_devices),
        cmocka_unit_test(every_internal_allocation_may_fail),
        cmocka_unit_test(random_orders_keep_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

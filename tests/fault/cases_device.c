/* The fault sweep over devices, streams, events and buffers. */
#include "fault.h"

static berth_device cpu(void)
{
    return berth_device_cpu();
}

static berth_status run_stream_create(struct fault *f)
{
    return berth_stream_create(cpu(), (berth_stream **)&f->result);
}

static void undo_stream(struct fault *f)
{
    berth_stream_destroy(f->result);
}

static berth_status run_event_create(struct fault *f)
{
    return berth_event_create(cpu(), (berth_event **)&f->result);
}

static void undo_event(struct fault *f)
{
    berth_event_destroy(f->result);
}

static void set_up_stream(struct fault *f)
{
    assert_int_equal(berth_stream_create(cpu(), (berth_stream **)&f->more[0]), BERTH_OK);
    assert_int_equal(berth_event_create(cpu(), (berth_event **)&f->more[1]), BERTH_OK);
}

static void tear_down_stream(struct fault *f)
{
    assert_int_equal(berth_stream_synchronize(f->more[0]), BERTH_OK);
    berth_event_destroy(f->more[1]);
    berth_stream_destroy(f->more[0]);
}

static berth_status run_event_record(struct fault *f)
{
    return berth_event_record(f->more[1], f->more[0]);
}

static berth_status run_stream_wait_event(struct fault *f)
{
    return berth_stream_wait_event(f->more[0], f->more[1]);
}

static void touch(void *context)
{
    (void)context;
}

static berth_status run_stream_call(struct fault *f)
{
    return berth_stream_call(f->more[0], touch, NULL);
}

static char from[256], to[256];

static berth_status run_copy(struct fault *f)
{
    return berth_copy(cpu(), to, from, sizeof to, BERTH_COPY_HOST_TO_HOST, f->more[0], true);
}

static berth_status run_zero(struct fault *f)
{
    return berth_zero(cpu(), to, sizeof to, f->more[0], true);
}

static berth_status run_device_allocate(struct fault *f)
{
    return berth_device_allocate(cpu(), BERTH_MEMORY_DEVICE, 100, 64, NULL, &f->result);
}

static void undo_device_allocate(struct fault *f)
{
    assert_int_equal(berth_device_release(cpu(), BERTH_MEMORY_DEVICE, f->result, 100, NULL), BERTH_OK);
}

/* ---- Buffers ---------------------------------------------------------------------------------------------
 */

static void set_up_tracked(struct fault *f)
{
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = BERTH_STATS_FULL;
    assert_int_equal(berth_cpu_allocator_create(&options, &f->a), BERTH_OK);
}

static void release_a(struct fault *f)
{
    berth_allocator_release(f->a);
}

static berth_status run_buffer_create(struct fault *f)
{
    return berth_buffer_create(f->a, 100, 64, false, (berth_buffer **)&f->result);
}

static berth_status run_buffer_create_lazy(struct fault *f)
{
    return berth_buffer_create(f->a, 100, 64, true, (berth_buffer **)&f->result);
}

static void undo_buffer(struct fault *f)
{
    berth_buffer_release(f->result);
}

static berth_status run_buffer_view(struct fault *f)
{
    return berth_buffer_view(to, sizeof to, cpu(), (berth_buffer **)&f->result);
}

static void set_up_buffers(struct fault *f)
{
    set_up_tracked(f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(berth_buffer_create(f->a, 100, 64, true, (berth_buffer **)&f->more[i]), BERTH_OK);
    assert_int_equal(berth_stream_create(cpu(), (berth_stream **)&f->more[2]), BERTH_OK);
}

static void tear_down_buffers(struct fault *f)
{
    assert_int_equal(berth_stream_synchronize(f->more[2]), BERTH_OK);
    berth_buffer_release(f->more[0]);
    berth_buffer_release(f->more[1]);
    berth_stream_destroy(f->more[2]);
    berth_allocator_release(f->a);
}

static berth_status run_buffer_sub(struct fault *f)
{
    return berth_buffer_sub(f->more[0], 10, 20, (berth_buffer **)&f->result);
}

static berth_status run_buffer_allocate(struct fault *f)
{
    return berth_buffer_allocate(f->more[0]);
}

/* With both blocks there: what a copy allocates by itself is undone, a lazy block that it took is kept. */
static void set_up_filled_buffers(struct fault *f)
{
    set_up_buffers(f);
    assert_int_equal(berth_buffer_allocate(f->more[0]), BERTH_OK);
    assert_int_equal(berth_buffer_allocate(f->more[1]), BERTH_OK);
}

static berth_status run_buffer_copy(struct fault *f)
{
    return berth_buffer_copy(f->more[0], f->more[1], NULL, true);
}

static berth_status run_buffer_copy_on_stream(struct fault *f)
{
    return berth_buffer_copy(f->more[0], f->more[1], f->more[2], true);
}

static berth_status run_buffer_zero(struct fault *f)
{
    return berth_buffer_zero(f->more[0], f->more[2], true);
}

static const fault_case cases[] = {
    {"berth_stream_create", NULL, run_stream_create, undo_stream, NULL},
    {"berth_event_create", NULL, run_event_create, undo_event, NULL},
    {"berth_event_record", set_up_stream, run_event_record, NULL, tear_down_stream},
    {"berth_stream_wait_event", set_up_stream, run_stream_wait_event, NULL, tear_down_stream},
    {"berth_stream_call", set_up_stream, run_stream_call, NULL, tear_down_stream},
    {"berth_copy", set_up_stream, run_copy, NULL, tear_down_stream},
    {"berth_zero", set_up_stream, run_zero, NULL, tear_down_stream},
    {"berth_device_allocate", NULL, run_device_allocate, undo_device_allocate, NULL},
    {"berth_buffer_create", set_up_tracked, run_buffer_create, undo_buffer, release_a},
    {"berth_buffer_create, lazy", set_up_tracked, run_buffer_create_lazy, undo_buffer, release_a},
    {"berth_buffer_view", NULL, run_buffer_view, undo_buffer, NULL},
    {"berth_buffer_sub", set_up_filled_buffers, run_buffer_sub, undo_buffer, tear_down_buffers},
    {"berth_buffer_allocate", set_up_buffers, run_buffer_allocate, NULL, tear_down_buffers},
    {"berth_buffer_copy", set_up_filled_buffers, run_buffer_copy, NULL, tear_down_buffers},
    {"berth_buffer_copy, stream", set_up_filled_buffers, run_buffer_copy_on_stream, NULL, tear_down_buffers},
    {"berth_buffer_zero", set_up_filled_buffers, run_buffer_zero, NULL, tear_down_buffers},
};

FAULT_MAIN(cases)

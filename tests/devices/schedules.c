/* Random schedules: work on several streams that depends on each other by events, with gates on the streams that are
 * opened in an order of their own, so that the streams overtake each other as a seed says and not as the machine's speed
 * happens to be. What the blocks hold in the end is compared with the same steps done one after the other. */
#include "schedules.h"

#include <stdlib.h>

#include "gate.h"
#include "harness.h"

enum { STREAMS = 3, BLOCKS = 6, BYTES = 1500, STEPS = 60, GATES = 12 };

typedef struct schedule {
    uint64_t seed;
    berth_stream *streams[STREAMS];
    unsigned char *blocks[BLOCKS];      /* on the device */
    unsigned char model[BLOCKS][BYTES]; /* what they must hold */
    berth_event *last[BLOCKS];          /* the last step that touched it */
    unsigned char sources[STEPS][BYTES];
    gate gates[GATES];
    bool standing[GATES]; /* set and not opened */
} schedule;

static size_t draw(schedule *s, size_t below)
{
    s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(s->seed >> 33) % below;
}

static void after(schedule *s, size_t block, berth_stream *stream)
{
    assert_int_equal(berth_stream_wait_event(stream, s->last[block]), BERTH_OK);
}

static void touched(schedule *s, size_t block, berth_stream *stream)
{
    assert_int_equal(berth_event_record(s->last[block], stream), BERTH_OK);
}

static void copy_between_blocks(schedule *s, berth_stream *stream)
{
    /* Two blocks: what overlaps is a check of its own, and an old driver waits for the stream there. */
    size_t to = draw(s, BLOCKS), from = (to + 1 + draw(s, BLOCKS - 1)) % BLOCKS,
           size = 1 + draw(s, BYTES / 2);
    size_t to_offset = draw(s, BYTES / 2), from_offset = draw(s, BYTES / 2);
    after(s, to, stream);
    after(s, from, stream);
    assert_int_equal(berth_copy(device, s->blocks[to] + to_offset, s->blocks[from] + from_offset, size,
                                BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
                     BERTH_OK);
    memcpy(s->model[to] + to_offset, s->model[from] + from_offset, size);
    touched(s, to, stream);
    touched(s, from, stream);
}

static void write_block(schedule *s, size_t step, berth_stream *stream)
{
    size_t to = draw(s, BLOCKS), offset = draw(s, BYTES), size = 1 + draw(s, BYTES - offset);
    bool zero = draw(s, 3) == 0;
    memset(s->sources[step], (int)(step * 3 + 1), BYTES);
    after(s, to, stream);
    assert_int_equal(zero ? berth_zero(device, s->blocks[to] + offset, size, stream, false)
                          : berth_copy(device, s->blocks[to] + offset, s->sources[step], size,
                                       BERTH_COPY_HOST_TO_DEVICE, stream, false),
                     BERTH_OK);
    memset(s->model[to] + offset, zero ? 0 : (int)(step * 3 + 1), size);
    touched(s, to, stream);
}

static void set_or_open_gate(schedule *s, berth_stream *stream)
{
    size_t i = draw(s, GATES);
    if (s->standing[i]) {
        gate_open(&s->gates[i]);
        s->standing[i] = false;
    } else if (!s->gates[i].open) { /* each serves once */
        assert_int_equal(berth_stream_call(stream, gate_stop, &s->gates[i]), BERTH_OK);
        s->standing[i] = true;
    }
}

static void begin(schedule *s)
{
    for (size_t i = 0; i < STREAMS; i++)
        assert_int_equal(berth_stream_create(device, &s->streams[i]), BERTH_OK);
    for (size_t i = 0; i < GATES; i++)
        s->gates[i] = (gate)GATE_INIT;
    for (size_t i = 0; i < BLOCKS; i++) {
        void *p = NULL;
        assert_int_equal(berth_event_create(device, &s->last[i]), BERTH_OK);
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, BYTES, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_zero(device, p, BYTES, NULL, false), BERTH_OK);
        s->blocks[i] = p;
    }
}

static void end(schedule *s)
{
    unsigned char back[BYTES];
    for (size_t i = 0; i < GATES; i++)
        gate_open(&s->gates[i]);
    for (size_t i = 0; i < STREAMS; i++)
        assert_int_equal(berth_stream_synchronize(s->streams[i]), BERTH_OK);
    for (size_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(
            berth_copy(device, back, s->blocks[i], BYTES, BERTH_COPY_DEVICE_TO_HOST, NULL, false), BERTH_OK);
        assert_memory_equal(back, s->model[i], BYTES);
        berth_event_destroy(s->last[i]);
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, s->blocks[i], BYTES, NULL),
                         BERTH_OK);
    }
    for (size_t i = 0; i < STREAMS; i++)
        berth_stream_destroy(s->streams[i]);
}

uint64_t schedules_seed = 1;

void random_schedules(void)
{
    enum { SCHEDULES = 40 };
    static schedule s; /* gates outlive a check that fails */
    for (uint64_t i = 0; i < SCHEDULES; i++) {
        memset(&s, 0, sizeof s);
        s.seed = schedules_seed * SCHEDULES + i;
        begin(&s);
        for (size_t step = 0; step < STEPS; step++) {
            berth_stream *stream = s.streams[draw(&s, STREAMS)];
            size_t what = draw(&s, 5);
            if (what == 0)
                set_or_open_gate(&s, stream);
            else if (what < 3)
                copy_between_blocks(&s, stream);
            else
                write_block(&s, step, stream);
        }
        end(&s);
    }
}

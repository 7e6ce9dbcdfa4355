/* The host cache and the planned allocator on a device with real queues: blocks are freed and reused while kernels and
 * copies are still under way, and every byte that comes back is compared. Whoever includes it has `device`, LANES, and
 * launch_on(stream, x, y, count), which enqueues y = 2 x + 1 over `count` numbers, a multiple of LANES. */
#ifndef BERTH_TESTS_REUSE_H
#define BERTH_TESTS_REUSE_H

#include <string.h>

#include "gate.h"

enum { MOST = 20480, QUEUES = 3, OUTSTANDING = 24, ROUNDS = 600 };

static uint64_t seed = 1234567;
static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* One piece of work under way: numbers from `first` on went in, twice each plus one must come out. */
typedef struct piece {
    uint32_t *out; /* a block of the cache; NULL: nothing here */
    uint32_t first, count;
    berth_event *done;
} piece;

static void check(berth_allocator *cache, piece *w)
{
    assert_int_equal(berth_event_wait(w->done), BERTH_OK);
    for (uint32_t i = 0; i < w->count; i++)
        if (w->out[i] != 2 * (w->first + i) + 1)
            fail_msg("number %u of %u from %u came back as %u", i, w->count, w->first, w->out[i]);
    memset(w->out, 0x99, w->count * sizeof *w->out);
    assert_int_equal(berth_deallocate(cache, w->out, 0, NULL), BERTH_OK);
    w->out = NULL;
}

/* Fills a block, sends it through a kernel, and frees the block at once: the queue has not read it yet. */
static void start(berth_allocator *cache, berth_stream *stream, void *x, void *y, piece *w)
{
    uint32_t *in = NULL;
    w->count = LANES * (1 + draw(MOST / LANES));
    w->first = draw(1u << 30);
    size_t bytes = w->count * sizeof *in;
    assert_int_equal(berth_allocate(cache, bytes, 64, NULL, (void **)&in), BERTH_OK);
    assert_int_equal(berth_allocate(cache, bytes, 64, NULL, (void **)&w->out), BERTH_OK);
    for (uint32_t i = 0; i < w->count; i++)
        in[i] = w->first + i;
    assert_int_equal(berth_host_cache_copy(cache, x, in, bytes, stream, false), BERTH_OK);
    launch_on(stream, x, y, w->count);
    assert_int_equal(berth_host_cache_copy(cache, w->out, y, bytes, stream, false), BERTH_OK);
    assert_int_equal(berth_event_record(w->done, stream), BERTH_OK);
    assert_int_equal(berth_deallocate(cache, in, 0, draw(2) ? stream : NULL), BERTH_OK);
}

static void the_host_cache_waits_for_queues(void **state)
{
    (void)state;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_allocator *cache = NULL;
    berth_stream *streams[QUEUES];
    void *x[QUEUES], *y[QUEUES];
    static piece pieces[OUTSTANDING];
    options.device = device;
    assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
    for (int i = 0; i < QUEUES; i++) {
        assert_int_equal(berth_stream_create(device, &streams[i]), BERTH_OK);
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, MOST * 4, 64, NULL, &x[i]),
                         BERTH_OK);
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, MOST * 4, 64, NULL, &y[i]),
                         BERTH_OK);
    }
    for (int i = 0; i < OUTSTANDING; i++)
        assert_int_equal(berth_event_create(device, &pieces[i].done), BERTH_OK);
    for (int round = 0; round < ROUNDS; round++) {
        gate g = GATE_INIT;
        uint32_t q = draw(QUEUES);
        piece *w = &pieces[draw(OUTSTANDING)];
        if (w->out)
            check(cache, w);
        bool held = round % 20 == 0; /* a queue that stands still while the others take what they can get */
        if (held)
            assert_int_equal(berth_stream_call(streams[q], gate_stop, &g), BERTH_OK);
        start(cache, streams[q], x[q], y[q], w);
        if (held) {
            piece *other = &pieces[((size_t)(w - pieces) + 1) % OUTSTANDING];
            uint32_t next = (q + 1) % QUEUES;
            assert_int_equal(berth_stream_synchronize(streams[next]), BERTH_OK);
            gate_wait_reached(&g);
            assert_int_equal(berth_event_query(w->done), BERTH_NOT_READY);
            if (!other->out)
                start(cache, streams[next], x[next], y[next], other);
            gate_open(&g);
            assert_int_equal(berth_stream_synchronize(streams[q]), BERTH_OK); /* the gate is on this stack */
        }
    }
    for (int i = 0; i < OUTSTANDING; i++) {
        if (pieces[i].out)
            check(cache, &pieces[i]);
        berth_event_destroy(pieces[i].done);
    }
    berth_host_cache_figures figures = {.struct_size = sizeof figures};
    assert_int_equal(berth_host_cache_collect(cache, NULL), BERTH_OK);
    assert_int_equal(berth_host_cache_figures_get(cache, &figures), BERTH_OK);
    assert_int_equal(figures.live_blocks, 0);
    assert_true(figures.device_allocations < ROUNDS); /* else nothing was reused and nothing was shown */
    print_message("%d rounds took %llu blocks from the device\n", ROUNDS,
                  (unsigned long long)figures.device_allocations);
    for (int i = 0; i < QUEUES; i++) {
        berth_device_release(device, BERTH_MEMORY_DEVICE, x[i], MOST * 4, NULL);
        berth_device_release(device, BERTH_MEMORY_DEVICE, y[i], MOST * 4, NULL);
        berth_stream_destroy(streams[i]);
    }
    berth_allocator_release(cache);
}

/* ---- The planned allocator -------------------------------------------------------------------------- */

enum { LAYERS = 8, WIDTH = 5120 };

/* A chain of layers, each into a new block, freed when the next has been enqueued: on one queue that is safe,
 * and the plan puts many of them into the same place. */
static void run_layers(berth_allocator *a, berth_stream *stream, const uint32_t *in, uint32_t *out)
{
    const size_t bytes = WIDTH * sizeof *in;
    void *x = NULL, *y = NULL;
    assert_int_equal(berth_allocate(a, bytes, 64, NULL, &x), BERTH_OK);
    assert_int_equal(berth_copy(device, x, in, bytes, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(berth_allocate(a, bytes, 64, NULL, &y), BERTH_OK);
        assert_int_equal(berth_zero(device, y, bytes, stream, false), BERTH_OK);
        launch_on(stream, x, y, WIDTH);
        assert_int_equal(berth_deallocate(a, x, bytes, stream), BERTH_OK);
        x = y;
    }
    assert_int_equal(berth_copy(device, out, x, bytes, BERTH_COPY_DEVICE_TO_HOST, stream, false), BERTH_OK);
    assert_int_equal(berth_deallocate(a, x, bytes, stream), BERTH_OK);
}

static void a_plan_on_device_memory(void **state)
{
    (void)state;
    enum { RUNS = 30 };
    static uint32_t in[RUNS][WIDTH], out[RUNS][WIDTH];
    berth_allocator *source = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &source), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(source, plan, &planned), BERTH_OK);
    for (int run = 0; run < RUNS; run++)
        for (uint32_t i = 0; i < WIDTH; i++)
            in[run][i] = (uint32_t)run * 1000003u + i;
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    run_layers(planned, stream, in[0], out[0]);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.stream = stream;
    options.strict = true;
    for (int run = 1; run < RUNS; run++) { /* one after the other on the queue, never waiting for it */
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(berth_replay_begin(planned, &options), BERTH_OK);
        run_layers(planned, stream, in[run], out[run]);
        assert_int_equal(berth_replay_end(planned, &report), BERTH_OK);
        assert_int_equal(report.from_plan, LAYERS + 1);
        assert_int_equal(report.by_fallback, 0);
        assert_true(report.block_bytes < 3 * WIDTH * sizeof(uint32_t) + 4096); /* two at a time, not nine */
    }
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    for (int run = 0; run < RUNS; run++)
        for (uint32_t i = 0; i < WIDTH; i++)
            assert_int_equal(out[run][i], (in[run][i] << LAYERS) + ((1u << LAYERS) - 1));
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(source);
    berth_stream_destroy(stream);
}

#endif

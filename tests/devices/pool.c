/* The pool on a real device with real streams: blocks are filled, copied on and read back on several streams
 * while they are freed and reused, and every byte is compared. A suite of one check, run as the other is (main.c). */
#include <stdint.h>
#include <stdlib.h>

#include "berth/berth.h"
#include "harness.h"

berth_device device;
berth_device_info info;

enum { STREAMS = 3, STEPS = 400, MOST_BYTES = 200000 };

/* One step's host side: what goes in and what must come out. They live until the streams are done. */
struct step {
    unsigned char *in, *out;
    size_t size_bytes;
};

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void *take(berth_allocator *pool, size_t size_bytes, berth_stream *stream)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = stream;
    void *p = NULL;
    assert_int_equal(berth_allocate(pool, size_bytes, 64, &request, &p), BERTH_OK);
    return p;
}

/* host -> a -> b -> host on one stream; both blocks are freed at once, with the stream or without. */
static void run_step(berth_allocator *pool, struct step *step, berth_stream *stream, bool tells_stream)
{
    size_t size = step->size_bytes;
    void *a = take(pool, size, stream), *b = take(pool, size, stream);
    assert_int_equal(berth_copy(device, a, step->in, size, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                     BERTH_OK);
    assert_int_equal(berth_copy(device, b, a, size, BERTH_COPY_DEVICE_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(berth_zero(device, a, size, stream, false), BERTH_OK);
    assert_int_equal(berth_copy(device, step->out, b, size, BERTH_COPY_DEVICE_TO_HOST, stream, false),
                     BERTH_OK);
    assert_int_equal(berth_deallocate(pool, a, size, tells_stream ? stream : NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, b, size, tells_stream ? stream : NULL), BERTH_OK);
}

static void reuse_never_overtakes_a_stream(void)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.device = device;
    berth_allocator *pool = NULL;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    berth_stream *streams[STREAMS] = {NULL};
    for (size_t i = 0; i < STREAMS; i++) { /* on a device without streams everything is done at once */
        berth_status status = berth_stream_create(device, &streams[i]);
        assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    }
    struct step *steps = calloc(STEPS, sizeof *steps);
    uint64_t random = 7;
    for (size_t i = 0; i < STEPS; i++) {
        struct step *step = &steps[i];
        step->size_bytes = 1 + next_random(&random) % MOST_BYTES;
        step->in = malloc(step->size_bytes);
        step->out = calloc(1, step->size_bytes);
        for (size_t k = 0; k < step->size_bytes; k++)
            step->in[k] = (unsigned char)(i * 31 + k);
        run_step(pool, step, streams[next_random(&random) % STREAMS], next_random(&random) % 2);
    }
    for (size_t i = 0; i < STREAMS; i++)
        assert_true(!streams[i] || berth_stream_synchronize(streams[i]) == BERTH_OK);
    for (size_t i = 0; i < STEPS; i++) {
        assert_memory_equal(steps[i].in, steps[i].out, steps[i].size_bytes);
        free(steps[i].in);
        free(steps[i].out);
    }
    free(steps);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_true(stats.num_allocs == 2 * STEPS);
    assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_reserved, 0);
    for (size_t i = 0; i < STREAMS; i++)
        berth_stream_destroy(streams[i]);
    berth_allocator_release(pool);
}

bool checks_begin(berth_device on)
{
    device = on;
    info = (berth_device_info){.struct_size = sizeof info};
    return berth_device_describe(device, &info) == BERTH_OK;
}

const device_check device_checks[] = {
    {"reuse never overtakes a stream", reuse_never_overtakes_a_stream},
    {NULL, NULL},
};

/* live SCENARIO TRACE [SNAPSHOT]: a program that runs out of memory for a known reason. Writes a trace and, if asked, its pool as it is
 * then, and prints what berth_explain says while it happens, and the limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/berth.h"

enum { KIB = 1024, LIMIT = 1024 * KIB };

static berth_allocator *top;
static berth_device device;
static berth_stream *stream;

static void *live_take(size_t size_bytes, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    request.label = label;
    if (berth_allocate(top, size_bytes, 64, &request, &p) != BERTH_OK)
        return NULL;
    return p;
}

static void live_give(void *p)
{
    if (berth_deallocate(top, p, 0, NULL) != BERTH_OK)
        abort();
}

/* Weights, layers that come and go, and losses that nobody frees. */
static void leak(void)
{
    live_take(300 * KIB, "weights");
    for (int step = 0; step < 1000; step++) {
        void *layer = live_take(200 * KIB, "layer");
        if (!layer)
            return;
        live_give(layer);
        live_take(16 * KIB, "loss");
    }
}

/* Room on both sides of one small block. */
static void pinned(void)
{
    void *left = live_take(400 * KIB, "left");
    live_take(4 * KIB, "cache");
    void *right = live_take(500 * KIB, "right");
    live_give(left);
    live_give(right);
    live_take(700 * KIB, "big");
}

/* A block that is freed while a stream still uses it. */
static void streams(void)
{
    if (berth_stream_create(device, &stream) != BERTH_OK)
        abort();
    live_take(16 * KIB, "cache");
    void *p = live_take(900 * KIB, "copied");
    if (berth_zero(device, p, 64, stream, false) != BERTH_OK ||
        berth_deallocate(top, p, 0, stream) != BERTH_OK)
        abort();
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "big";
    request.flags = BERTH_NO_RETRY; /* else the pool waits for the stream */
    if (berth_allocate(top, 800 * KIB, 64, &request, &p) == BERTH_OK)
        abort();
}

/* A tracker keeps stacks, a pool has the limit, a trace is between; the program sees explained failures. */
static void build(berth_allocator *pool, berth_trace *trace)
{
    berth_tracking_options tracking = BERTH_TRACKING_OPTIONS_INIT;
    berth_allocator *traced = NULL, *tracker = NULL;
    tracking.track_sizes = true;
    if (berth_trace_allocator_create(pool, trace, 0, &traced) != BERTH_OK ||
        berth_tracking_create(traced, &tracking, &tracker) != BERTH_OK ||
        berth_explain_create(tracker, &top) != BERTH_OK)
        abort();
    berth_allocator_release(traced);
    berth_allocator_release(tracker);
}

struct scenario {
    const char *name, *label; /* and what fails */
    size_t size_bytes;
    bool on_device;
    void (*run)(void);
};

static const struct scenario scenarios[] = {
    {"leak", "layer", 200 * KIB, false, leak},
    {"pinned", "big", 700 * KIB, false, pinned},
    {"streams", "big", 800 * KIB, true, streams},
};

static const struct scenario *find_scenario(const char *name)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, name) == 0)
            return &scenarios[i];
    return NULL;
}

/* A pool without memory; on a device whose work runs when it is told to, if there are streams. */
static berth_allocator *new_pool(const struct scenario *s)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL, *ground = NULL;
    if (s->on_device ? berth_virtual_create(&device) : berth_dry_run_allocator_create(0, &ground))
        abort();
    if (s->on_device)
        options.device = device;
    else
        options.upstream = ground;
    options.hard_limit_bytes = options.segment_bytes = LIMIT;
    if (berth_pool_create(&options, &pool) != BERTH_OK)
        abort();
    berth_allocator_release(ground);
    return pool;
}

static void explain(const struct scenario *s)
{
    char text[4096];
    berth_request request = BERTH_REQUEST_INIT;
    request.label = s->label;
    printf("message: %s\n", berth_last_error()->message);
    if (berth_explain(top, s->size_bytes, &request, text, sizeof text, NULL) == BERTH_OK)
        fputs(text, stdout);
}

int main(int argc, char **argv)
{
    const struct scenario *s = argc == 3 || argc == 4 ? find_scenario(argv[1]) : NULL;
    berth_trace *trace = NULL;
    if (!s)
        return 2;
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    berth_allocator *pool = new_pool(s);
    if (berth_trace_create(argv[2], NULL, &trace) != BERTH_OK)
        return 2;
    build(pool, trace);
    s->run();
    explain(s);
    if (argc == 4 && berth_snapshot_write(pool, argv[3]) != BERTH_OK)
        return 1;
    if (s->on_device && berth_virtual_run_all(device) != BERTH_OK)
        return 1;
    berth_stream_destroy(stream);
    berth_allocator_release(top);
    berth_trace_release(trace);
    berth_allocator_release(pool);
    return s->on_device && berth_virtual_destroy(device) != BERTH_OK;
}

/* live SCENARIO TRACE: a program that runs out of memory for a known reason. Writes a trace and prints what berth_explain says while
 * it happens, and the limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/berth.h"

enum { KIB = 1024, LIMIT = 1024 * KIB };

static berth_allocator *top;

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

int main(int argc, char **argv)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL, *ground = NULL;
    berth_trace *trace = NULL;
    if (argc != 3 || berth_dry_run_allocator_create(0, &ground) != BERTH_OK)
        return 2;
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    options.upstream = ground;
    options.hard_limit_bytes = options.segment_bytes = LIMIT;
    if (berth_pool_create(&options, &pool) != BERTH_OK ||
        berth_trace_create(argv[2], NULL, &trace) != BERTH_OK)
        return 2;
    build(pool, trace);
    bool leaks = strcmp(argv[1], "leak") == 0;
    leaks ? leak() : pinned();
    char text[4096];
    berth_request request = BERTH_REQUEST_INIT;
    request.label = leaks ? "layer" : "big";
    printf("message: %s\n", berth_last_error()->message);
    if (berth_explain(top, leaks ? 200 * KIB : 700 * KIB, &request, text, sizeof text, NULL) == BERTH_OK)
        fputs(text, stdout);
    berth_allocator_release(top);
    berth_trace_release(trace);
    berth_allocator_release(pool);
    berth_allocator_release(ground);
    return 0;
}

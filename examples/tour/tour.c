/* A tour of the ground floor: the registry, tracking, buffers on a stream, and the figures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <berth/berth.h>

/* An example stops at the first surprise and says what berth said. */
static void expect_ok(berth_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, berth_status_name(status), berth_last_error()->message);
    exit(1);
}

/* ---- The registry -------------------------------------------------------------------------------- */

static bool show_registration(void *context, const berth_registration *registration)
{
    (void)context;
    printf("  %-10s priority %" PRId32 "%s\n", registration->name, registration->priority,
           registration->attributes & BERTH_ON_HOST ? ", on host" : "");
    return true;
}

static berth_allocator *choose_allocator(void)
{
    printf("Allocators that are registered, best first:\n");
    expect_ok(berth_registry_visit(show_registration, NULL), "visiting the registry");
    berth_allocator *best;
    expect_ok(berth_registry_best_for(BERTH_ON_HOST, &best), "the best allocator on the host");
    return best;
}

/* ---- Tracking ------------------------------------------------------------------------------------ */

static void show_step(berth_allocator *tracker, const char *step, const void *live_block)
{
    berth_tracking_sizes sizes = {.struct_size = sizeof sizes};
    uint64_t id = 0;
    expect_ok(berth_tracking_get_sizes(tracker, &sizes), "reading the tracker");
    if (live_block)
        expect_ok(berth_allocation_id(tracker, live_block, &id), "reading an id");
    printf("  %-12s %6" PRIu64 " %6" PRIu64 " %6" PRIu64, step, sizes.total_bytes, sizes.high_watermark_bytes,
           sizes.live_bytes);
    if (live_block)
        printf(" %5" PRIu64, id);
    printf("\n");
}

/* Over an allocator that gives exactly what is asked: a pool rounds up, and the tracker counts what was given. */
static void track_two_tensors(void)
{
    berth_allocator *inner;
    expect_ok(berth_cpu_allocator_create(NULL, &inner), "making a plain allocator");
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    berth_allocator *tracker;
    expect_ok(berth_tracking_create(inner, &options, &tracker), "making a tracker");
    printf("\nTracking over '%s':\n  step          total   peak   live    id\n", berth_allocator_name(inner));
    static const struct {
        size_t size_bytes;
        const char *taken, *freed;
    } tensors[] = {{4, "allocate 4", "free it"}, {12, "allocate 12", "free it"}};
    for (size_t i = 0; i < 2; i++) {
        void *p;
        expect_ok(berth_allocate(tracker, tensors[i].size_bytes, BERTH_ALIGNMENT, NULL, &p), "allocating");
        show_step(tracker, tensors[i].taken, p);
        expect_ok(berth_deallocate(tracker, p, tensors[i].size_bytes, NULL), "freeing");
        show_step(tracker, tensors[i].freed, NULL);
    }
    berth_allocator_release(tracker);
    berth_allocator_release(inner);
}

/* ---- Buffers on a stream ------------------------------------------------------------------------- */

static void copy_on_a_stream(berth_allocator *allocator)
{
    const size_t count = 1 << 20, size_bytes = count * sizeof(float);
    berth_buffer *from, *to, *tail;
    berth_stream *stream;
    expect_ok(berth_buffer_create(allocator, size_bytes, BERTH_ALIGNMENT, false, &from), "a buffer");
    expect_ok(berth_buffer_create(allocator, size_bytes, BERTH_ALIGNMENT, true, &to), "a lazy buffer");
    float *values = berth_buffer_data(from);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i;

    expect_ok(berth_stream_create(berth_device_cpu(), &stream), "a stream");
    expect_ok(berth_buffer_copy(to, from, stream, false), "a copy");
    berth_buffer_release(from); /* the copy keeps it alive */
    expect_ok(berth_stream_synchronize(stream), "waiting for the stream");

    /* A view of the last 16 bytes keeps the whole buffer alive. */
    expect_ok(berth_buffer_sub(to, size_bytes - 16, 16, &tail), "a view");
    berth_buffer_release(to);
    const float *last = berth_buffer_data(tail);
    printf("\nCopied %zu bytes on a stream of the %s; the last four values are %.0f %.0f %.0f %.0f.\n",
           size_bytes, berth_device_kind_name(BERTH_DEVICE_CPU), (double)last[0], (double)last[1],
           (double)last[2], (double)last[3]);
    berth_buffer_release(tail);
    berth_stream_destroy(stream);
}

/* ---- Figures ------------------------------------------------------------------------------------- */

static void show_figures(berth_allocator *allocator)
{
    berth_stats stats = {.struct_size = sizeof stats};
    expect_ok(berth_stats_get(allocator, &stats), "the figures");
    printf("\nFigures of '%s':\n"
           "  allocations    %" PRIu64 "\n"
           "  in use         %" PRIu64 " bytes\n"
           "  peak           %" PRIu64 " bytes\n"
           "  largest        %" PRIu64 " bytes\n"
           "  in total       %" PRIu64 " bytes\n"
           "  failures       %" PRIu64 "\n",
           berth_allocator_name(allocator), stats.num_allocs, stats.bytes_in_use, stats.max_bytes_in_use,
           stats.max_alloc_size, stats.total_bytes, stats.num_failures);
}

int main(void)
{
    berth_allocator *allocator = choose_allocator();
    track_two_tensors();
    copy_on_a_stream(allocator);
    show_figures(allocator);

    /* A mistake gets a status and words, and changes nothing. */
    void *p;
    berth_status status = berth_allocate(allocator, 64, 3, NULL, &p);
    printf("\nAsked for alignment 3: %s, \"%s\".\n", berth_status_name(status), berth_last_error()->message);
    return 0;
}

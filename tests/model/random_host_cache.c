/* Random runs of the host cache on virtual time against a simple reference: sizes of all classes, several
 * streams, limits, trims. Every block that comes out is compared with every place that is live or still used,
 * and what a user wrote must be there when it is freed [H1, H2, H4, H5]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "berth/host_cache.h"
#include "berth/virtual.h"

enum { STREAMS = 4, PLACES = 96 };

/* A place in memory that is live, or freed and possibly still used. */
typedef struct place {
    enum { EMPTY, LIVE, FREED } status;
    unsigned char *address, mark;
    size_t size, block_size;
    berth_host_handle handle;
    uint32_t recorded;
    uint64_t needs[STREAMS];
} place;

typedef struct world {
    uint64_t seed;
    berth_device device;
    berth_allocator *cache;
    berth_stream *streams[STREAMS];
    uint64_t enqueued[STREAMS], completed[STREAMS];
    place places[PLACES];
    uint64_t live_bytes, peak_bytes, allocations, since_empty;
    double max_waste;
    uint64_t step;
} world;

static uint64_t draw(world *w)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed * 0x2545F4914F6CDD1Du >> 16;
}

static void check(const world *w, bool holds, const char *what)
{
    if (holds)
        return;
    printf("step %llu: %s (last error: %s)\n", (unsigned long long)w->step, what,
           berth_last_error()->message);
    exit(1);
}

static bool is_used(const world *w, const place *p)
{
    if (p->status != FREED)
        return p->status == LIVE;
    for (int s = 0; s < STREAMS; s++)
        if ((p->recorded >> s & 1) && w->completed[s] < p->needs[s])
            return true;
    return false;
}

/* Small ones most often; about every class below 1 MiB comes up. */
static size_t draw_size(world *w)
{
    uint64_t r = draw(w);
    return 1 + (r >> 8) % ((size_t)64 << r % 13);
}

static void check_apart(const world *w, const place *fresh)
{
    for (int i = 0; i < PLACES; i++) {
        const place *p = &w->places[i];
        if (p == fresh || p->status == EMPTY || p->address >= fresh->address + fresh->block_size ||
            fresh->address >= p->address + p->block_size)
            continue;
        check(w, !is_used(w, p), "a block was handed out that is live or that a stream uses");
    }
}

static void allocate(world *w, place *p)
{
    size_t size = draw_size(w), alignment = (size_t)1 << draw(w) % 13;
    if (draw(w) % 4)
        alignment = 64;
    void *address = NULL;
    *p = (place){.size = size, .mark = (unsigned char)draw(w)};
    check(w, berth_host_cache_allocate(w->cache, size, alignment, NULL, &address, &p->handle) == BERTH_OK,
          "an allocation failed");
    p->address = address;
    check(w, ((uintptr_t)address & (alignment - 1)) == 0, "a block is not aligned");
    check(w, berth_allocated_size(w->cache, address, &p->block_size) == BERTH_OK, "a live block has no size");
    size_t asked = alignment > 64 ? berth__align_up(size, alignment) : size;
    check(w,
          p->block_size >= size &&
              (p->block_size - asked < 64 || (double)(p->block_size - asked) <= w->max_waste * (double)asked),
          "a block wastes more than was stated");
    check_apart(w, p);
    p->status = LIVE;
    memset(p->address, p->mark, p->size < 256 ? p->size : 256);
    p->address[p->size - 1] = p->mark;
    w->live_bytes += p->block_size;
    w->peak_bytes = w->live_bytes > w->peak_bytes ? w->live_bytes : w->peak_bytes;
    w->allocations++;
}

static void free_place(world *w, place *p)
{
    check(w, p->address[0] == p->mark && p->address[p->size - 1] == p->mark, "a live block was overwritten");
    berth_stream *stream = NULL;
    if (draw(w) % 16 == 0) {
        uint64_t s = draw(w) % STREAMS;
        stream = w->streams[s];
        p->recorded |= 1u << s;
    }
    berth_status status = draw(w) % 2 ? berth_host_cache_free(w->cache, p->address, p->handle, stream)
                                      : berth_deallocate(w->cache, p->address, p->size, stream);
    check(w, status == BERTH_OK, "a live block could not be freed");
    w->live_bytes -= p->block_size;
    p->status = FREED;
    for (int s = 0; s < STREAMS; s++)
        p->needs[s] = w->enqueued[s];
    if (draw(w) % 64 == 0)
        check(w, berth_host_cache_free(w->cache, p->address, p->handle, NULL) == BERTH_BAD_FREE,
              "a second free was not noticed");
}

static void nothing(void *context)
{
    (void)context;
}

static void move_stream(world *w, uint64_t r)
{
    uint64_t s = r % STREAMS;
    if ((r >> 8) % 3 == 0) {
        check(w, berth_stream_call(w->streams[s], nothing, NULL) == BERTH_OK, "enqueue failed");
        w->enqueued[s]++;
    } else if (w->enqueued[s] > w->completed[s]) {
        check(w, berth_virtual_step(w->streams[s]) == BERTH_OK, "step failed");
        w->completed[s]++;
    }
}

static void check_figures(world *w)
{
    berth_stats stats = {.struct_size = sizeof stats};
    berth_host_cache_figures f = {.struct_size = sizeof f};
    uint64_t used = 0;
    check(w, berth_stats_get(w->cache, &stats) == BERTH_OK, "no figures");
    check(w, berth_host_cache_figures_get(w->cache, &f) == BERTH_OK, "no figures");
    check(w, stats.bytes_in_use == w->live_bytes, "bytes in use are wrong");
    check(w, stats.max_bytes_in_use == w->peak_bytes, "the peak is wrong");
    check(w, stats.num_allocs == w->allocations, "the number of allocations is wrong");
    check(w, f.live_bytes + f.waiting_bytes + f.idle_bytes == berth_virtual_bytes_in_use(w->device),
          "bytes are lost");
    for (int i = 0; i < PLACES; i++)
        if (w->places[i].status == FREED && is_used(w, &w->places[i]))
            used++;
    check(w, f.waiting_blocks >= used, "a block that a stream uses is not waiting");
}

static void tidy(world *w, uint64_t r)
{
    if (r % 4 == 0) {
        check(w, berth_host_cache_collect(w->cache, NULL) == BERTH_OK, "collect failed");
    } else if (r % 4 == 1) {
        size_t keep = r >> 8 & 0xfffff;
        check(w, berth_trim(w->cache, keep, NULL) == BERTH_OK, "trim failed");
    } else {
        check_figures(w);
    }
}

static void one_step(world *w)
{
    uint64_t r = draw(w);
    place *p = &w->places[(r >> 16) % PLACES];
    switch (r % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
        move_stream(w, r >> 32);
        break;
    case 4:
    case 5:
    case 6:
        if (p->status == LIVE) {
            uint64_t s = (r >> 32) % STREAMS;
            check(w,
                  berth_host_cache_record_use(w->cache, p->address + (r >> 40) % p->size, p->handle,
                                              w->streams[s]) == BERTH_OK,
                  "a use was not recorded");
            p->recorded |= 1u << s;
        }
        break;
    default:
        if (p->status == LIVE)
            free_place(w, p);
        else if (!is_used(w, p))
            allocate(w, p);
        break;
    }
    if (r >> 40 == 0 || w->step % 4096 == 4095)
        tidy(w, draw(w));
}

static void run(uint64_t steps, uint64_t seed, double max_waste, uint64_t soft_limit)
{
    world w = {.seed = seed, .max_waste = max_waste};
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.max_waste = max_waste;
    options.soft_limit_bytes = soft_limit;
    check(&w, berth_virtual_create(&w.device) == BERTH_OK, "no device");
    options.device = w.device;
    for (int s = 0; s < STREAMS; s++)
        check(&w, berth_stream_create(w.device, &w.streams[s]) == BERTH_OK, "no stream");
    check(&w, berth_host_cache_create(&options, &w.cache) == BERTH_OK, "no cache");
    for (; w.step < steps; w.step++)
        one_step(&w);
    for (int i = 0; i < PLACES; i++)
        if (w.places[i].status == LIVE)
            free_place(&w, &w.places[i]);
    berth_virtual_run_all(w.device);
    check(&w, berth_host_cache_empty(w.cache, NULL) == BERTH_OK, "empty failed");
    check(&w, berth_virtual_bytes_in_use(w.device) == 0, "a block was lost");
    printf("%llu operations, %llu allocations, waste at most %g, soft limit %llu: ok\n",
           (unsigned long long)steps, (unsigned long long)w.allocations, max_waste,
           (unsigned long long)soft_limit);
    berth_allocator_release(w.cache);
    for (int s = 0; s < STREAMS; s++)
        berth_stream_destroy(w.streams[s]);
    berth_virtual_destroy(w.device);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    run(steps * 6 / 10, 1, 0.125, 0);
    run(steps * 2 / 10, 2, 0.5, 1 << 20);
    run(steps * 2 / 10, 3, 1.0 / 64, 0);
    return 0;
}

/* Segments from the device, the blocks they are carved into, and the bookkeeping of both. */
#include "host/host.h"

#include <string.h>

/* ---- Bookkeeping of blocks -------------------------------------------------------------------------- */

host_block *berth__host_block_at(host_cache *c, uint32_t index)
{
    if (index >= atomic_load_explicit(&c->block_count, memory_order_acquire))
        return NULL;
    uint32_t piece = berth__host_piece_of(index);
    host_block *blocks = atomic_load_explicit(&c->pieces[piece], memory_order_acquire);
    return &blocks[index - (((uint32_t)HOST_RUN << piece) - HOST_RUN)];
}

/* With the lock held: a whole run of fresh blocks, NULL when there is no memory. */
static host_block *fresh_run(host_cache *c)
{
    uint32_t index = atomic_load_explicit(&c->block_count, memory_order_relaxed);
    uint32_t piece = berth__host_piece_of(index);
    if (piece >= HOST_BLOCK_PIECES)
        return NULL;
    if (!atomic_load_explicit(&c->pieces[piece], memory_order_relaxed)) {
        size_t bytes = ((size_t)HOST_RUN << piece) * sizeof(host_block);
        host_block *blocks = berth__heap_aligned(bytes, 64);
        if (!blocks)
            return NULL;
        memset(blocks, 0, bytes);
        atomic_store_explicit(&c->pieces[piece], blocks, memory_order_release);
    }
    atomic_store_explicit(&c->block_count, index + HOST_RUN, memory_order_release);
    host_block *run = berth__host_block_at(c, index);
    for (uint32_t i = 0; i < HOST_RUN; i++) {
        run[i].name = piece << 27 | (index + i - (((uint32_t)HOST_RUN << piece) - HOST_RUN) + 1);
        run[i].first_use.owner = &run[i];
    }
    return run;
}

/* With the lock held: 1 << log2 blocks in a row. Larger runs are split, never joined again: a program's mix
 * of classes changes little. */
static host_block *take_run(host_cache *c, uint32_t log2)
{
    for (uint32_t from = log2; from < HOST_RUN_SIZES; from++)
        if (c->spare_runs[from] || from == HOST_RUN_SIZES - 1) {
            host_block *run = c->spare_runs[from];
            if (run)
                c->spare_runs[from] = run->next;
            else
                run = fresh_run(c);
            for (; run && from > log2; from--) {
                host_block *half = run + ((size_t)1 << (from - 1));
                half->next = c->spare_runs[from - 1];
                c->spare_runs[from - 1] = half;
            }
            return run;
        }
    return NULL;
}

static void give_run(host_cache *c, host_block *run, uint32_t log2)
{
    run->next = c->spare_runs[log2];
    c->spare_runs[log2] = run;
}

void berth__host_blocks_finish(host_cache *c)
{
    uint32_t count = atomic_load(&c->block_count);
    for (uint32_t i = 0; i < count; i++)
        berth_event_destroy(berth__host_block_at(c, i)->first_use.event);
    for (uint32_t piece = 0; piece < HOST_BLOCK_PIECES; piece++)
        berth__heap_free(atomic_load(&c->pieces[piece]));
    for (host_segment *s = c->spare_segments, *next; s; s = next) {
        next = s->next;
        berth__heap_free(s);
    }
}

/* ---- Segments --------------------------------------------------------------------------------------- */

/* Steps below a page: as many blocks as make whole pages, so that carving wastes nothing. */
static uint32_t blocks_of(const host_cache *c, uint32_t bin)
{
    size_t fit = BERTH__PAGE_BYTES / berth__class_step(&c->classes, bin);
    return fit < 1 ? 1 : (uint32_t)fit;
}

/* With the lock held: bookkeeping for a segment, without memory yet. NULL when there is no memory for it. */
static host_segment *take_segment(host_cache *c, uint32_t bin)
{
    host_segment *s = c->spare_segments;
    if (s)
        c->spare_segments = s->next;
    else if (!(s = berth__heap_zalloc(1, sizeof *s)))
        return NULL;
    s->blocks = blocks_of(c, bin);
    s->stride = berth__class_bytes(&c->classes, bin);
    s->bytes = s->stride * s->blocks;
    s->inverse = s->blocks == 1 ? 0 : (((uint64_t)1 << 42) + s->stride - 1) / s->stride;
    s->first = take_run(c, (uint32_t)__builtin_ctz(s->blocks));
    if (s->first)
        return s;
    s->next = c->spare_segments;
    c->spare_segments = s;
    return NULL;
}

static void give_segment(host_cache *c, host_segment *s)
{
    give_run(c, s->first, (uint32_t)__builtin_ctz(s->blocks));
    s->next = c->spare_segments;
    c->spare_segments = s;
}

/* With the lock held. */
static berth_status list(host_cache *c, host_segment *s, uint32_t bin, char *base)
{
    berth_status status = berth__page_map_set(c->pages, base, s->bytes, s);
    if (status != BERTH_OK)
        return status;
    s->base = base;
    s->number = ++c->next_segment_number;
    s->prev = NULL;
    s->next = c->segments;
    if (c->segments)
        c->segments->prev = s;
    c->segments = s;
    for (uint32_t i = 0; i < s->blocks; i++) {
        host_block *b = &s->first[i];
        atomic_store_explicit(&b->address, base + i * s->stride, memory_order_relaxed);
        b->segment = s;
        b->bin = bin;
        b->size = s->stride;
        atomic_store_explicit(&b->state, HOST_LEAVING, memory_order_release);
    }
    return BERTH_OK;
}

void berth__host_unlist(host_cache *c, host_segment *s)
{
    berth__page_map_clear(c->pages, s->base, s->bytes);
    *(s->prev ? &s->prev->next : &c->segments) = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

static void destroy_events(host_segment *s)
{
    for (uint32_t i = 0; i < s->blocks; i++) {
        berth_event_destroy(s->first[i].first_use.event);
        s->first[i].first_use.event = NULL;
    }
}

void berth__host_release_segment(host_cache *c, host_segment *s)
{
    destroy_events(s);
    berth__annotate_defined(s->base, s->bytes);
    if (berth_device_release(c->device, BERTH_MEMORY_PINNED, s->base, s->bytes, NULL) != BERTH_OK)
        berth__log(BERTH_LOG_WARNING, "%s: the device did not take %zu bytes back: %s", c->name, s->bytes,
                   berth_last_error()->message);
    atomic_fetch_add_explicit(&c->device_releases, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->reserved, s->bytes, memory_order_relaxed);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    give_segment(c, s);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* ---- Growing ---------------------------------------------------------------------------------------- */

/* Takes `bytes` from the hard limit; false if they are not there. [M4] */
static bool claim(host_cache *c, size_t bytes)
{
    uint64_t limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    uint64_t reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    do
        if (limit && (reserved > limit || bytes > limit - reserved))
            return false;
    while (!atomic_compare_exchange_weak_explicit(&c->reserved, &reserved, reserved + bytes,
                                                  memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void raise_max_reserved(host_cache *c)
{
    uint64_t reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    uint64_t max = atomic_load_explicit(&c->max_reserved, memory_order_relaxed);
    while (max < reserved &&
           !atomic_compare_exchange_weak_explicit(&c->max_reserved, &max, reserved, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

static berth_status over_budget(host_cache *c, size_t bytes)
{
    berth_host_cache_figures now = {.struct_size = sizeof now};
    berth_host_cache_figures_get(&c->base, &now);
    return berth__fail(BERTH_OVER_BUDGET,
                       "%s: %zu bytes more would exceed the limit of %llu: %llu are live and %llu wait for "
                       "streams; free blocks, let streams finish, or raise the limit",
                       c->name, bytes, (unsigned long long)atomic_load(&c->hard_limit),
                       (unsigned long long)now.live_bytes, (unsigned long long)now.waiting_bytes);
}

/* Claims and allocates; what is idle goes back before either fails. */
static berth_status take_memory(host_cache *c, size_t bytes, size_t alignment, void **out)
{
    for (bool again = false;; again = true) {
        bool claimed = claim(c, bytes);
        berth_status status = BERTH_OK;
        if (claimed) {
            status = berth_device_allocate(c->device, BERTH_MEMORY_PINNED, bytes, alignment, NULL, out);
            atomic_fetch_add_explicit(&c->device_allocations, status == BERTH_OK, memory_order_relaxed);
            if (status == BERTH_OK)
                return status;
            atomic_fetch_sub_explicit(&c->reserved, bytes, memory_order_relaxed);
        }
        if (again || (berth__host_collect(c, true), berth__host_release_idle(c, 0)) == 0)
            return claimed ? status : over_budget(c, bytes);
        berth__meter_count_retry(&c->meter);
    }
}

berth_status berth__host_grow(host_cache *c, uint32_t bin, size_t alignment, host_block **out)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    host_segment *s = take_segment(c, bin);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (!s)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: no memory for the bookkeeping of %zu bytes",
                           c->name, berth__class_bytes(&c->classes, bin));
    void *base = NULL;
    if (alignment < BERTH__PAGE_BYTES)
        alignment = BERTH__PAGE_BYTES;
    berth_status status = take_memory(c, s->bytes, alignment, &base);
    if (status != BERTH_OK)
        goto give_books;
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    status = list(c, s, bin, base);
    for (uint32_t i = 1; status == BERTH_OK && i < s->blocks; i++)
        berth__host_put_in_bin(c, &s->first[s->blocks - i]);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (status != BERTH_OK)
        goto give_memory;
    raise_max_reserved(c);
    *out = s->first;
    return BERTH_OK;

give_memory:
    berth_device_release(c->device, BERTH_MEMORY_PINNED, base, s->bytes, NULL);
    atomic_fetch_sub_explicit(&c->reserved, s->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->device_releases, 1, memory_order_relaxed);
give_books:
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    give_segment(c, s);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    return status;
}

/* Segments from the device, the blocks they are carved into, and the bookkeeping of both. */
#include "host/host.h"

#include <string.h>

/* ---- Bookkeeping of blocks -------------------------------------------------------------------------- */

static uint32_t first_of_piece(const host_cache *c, uint32_t piece)
{
    return (1u << (piece + c->run_log2)) - (1u << c->run_log2);
}

host_block *berth__host_block_at(host_cache *c, uint32_t index)
{
    if (index >= atomic_load_explicit(&c->block_count, memory_order_acquire))
        return NULL;
    uint32_t piece = berth__host_piece_of(c, index);
    host_block *blocks = atomic_load_explicit(&c->pieces[piece], memory_order_acquire);
    BERTH_DCHECK(blocks && index - first_of_piece(c, piece) < 1u << (piece + c->run_log2),
                 "[H9] a block that is counted has its bookkeeping");
    return &blocks[index - first_of_piece(c, piece)];
}

/* With the lock held: a whole run of fresh blocks, NULL when there is no memory. */
static host_block *fresh_run(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] bookkeeping is made with the lock");
    uint32_t index = atomic_load_explicit(&c->block_count, memory_order_relaxed);
    uint32_t piece = berth__host_piece_of(c, index);
    if (piece >= HOST_BLOCK_PIECES)
        return NULL;
    if (!atomic_load_explicit(&c->pieces[piece], memory_order_relaxed)) {
        size_t bytes = ((size_t)1 << (piece + c->run_log2)) * sizeof(host_block);
        host_block *blocks = berth__heap_aligned(bytes, 64);
        if (!blocks)
            return NULL;
        memset(blocks, 0, bytes);
        atomic_store_explicit(&c->pieces[piece], blocks, memory_order_release);
    }
    atomic_store_explicit(&c->block_count, index + (1u << c->run_log2), memory_order_release);
    host_block *run = berth__host_block_at(c, index);
    for (uint32_t i = 0; i < 1u << c->run_log2; i++) {
        run[i].name = piece << 27 | (index + i - first_of_piece(c, piece) + 1);
        run[i].first_use.owner = &run[i];
    }
    return run;
}

/* With the lock held: 1 << log2 blocks in a row. What is left of a larger run serves smaller segments. */
static host_block *take_run(host_cache *c, uint32_t log2)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] runs are taken with the lock");
    BERTH_DCHECK(log2 <= c->run_log2, "[H9] no segment needs more blocks than a run has");
    uint32_t from = log2;
    while (from < c->run_log2 && !c->spare_runs[from])
        from++;
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

void berth__host_blocks_finish(host_cache *c)
{
    uint32_t count = atomic_load(&c->block_count);
    for (uint32_t i = 0; i < count; i++)
        berth_event_destroy(berth__host_block_at(c, i)->first_use.event);
    for (uint32_t piece = 0; piece < HOST_BLOCK_PIECES; piece++)
        berth__heap_free(atomic_load(&c->pieces[piece]));
    for (uint32_t bin = 0; bin < c->classes.count; bin++)
        for (host_segment *s = c->bins[bin].spares, *next; s; s = next) {
            next = s->next;
            berth__heap_free(s);
        }
}

/* ---- Segments --------------------------------------------------------------------------------------- */

/* Steps below a page: as many blocks as make whole pages, so that cutting wastes nothing. A block that is
 * aligned to more than a page is its segment's only one. */
uint32_t berth__host_run_blocks(const host_cache *c, uint32_t bin, size_t alignment)
{
    size_t fit = c->page_bytes / berth__class_step(&c->classes, bin);
    BERTH_DCHECK(fit < 1 || berth__is_power_of_two(fit), "[H9] a run is a power of two");
    return fit < 1 || alignment > c->page_bytes ? 1 : (uint32_t)fit;
}

size_t berth__host_run_bytes(const host_cache *c, uint32_t bin, uint32_t blocks)
{
    return berth__align_up(berth__class_bytes(&c->classes, bin) * blocks, c->page_bytes);
}

/* With the lock held: a new segment without memory; NULL when there is no memory for its bookkeeping. */
static host_segment *make_segment(host_cache *c, uint32_t bin, uint32_t blocks)
{
    BERTH_DCHECK(berth__is_power_of_two(blocks), "[H9] a run is a power of two");
    host_segment *s = berth__heap_zalloc(1, sizeof *s);
    host_block *run = s ? take_run(c, (uint32_t)__builtin_ctz(blocks)) : NULL;
    if (!run) {
        berth__heap_free(s);
        return NULL;
    }
    s->blocks = blocks;
    s->bin = bin;
    s->stride = berth__class_bytes(&c->classes, bin);
    s->bytes = berth__host_run_bytes(c, bin, blocks);
    s->inverse = blocks == 1 ? 0 : (((uint64_t)1 << 48) + s->stride - 1) / s->stride;
    s->first = run;
    for (uint32_t i = 0; i < blocks; i++) {
        BERTH_DCHECK(blocks == 1 || ((i * s->stride * s->inverse >> 48) == i &&
                                     ((i * s->stride + s->stride - 1) * s->inverse >> 48) == i),
                     "[H9] the multiplication that stands for a division is exact");
        BERTH_DCHECK(!run[i].segment && run[i].uses == 0, "[H9] a segment keeps its blocks for ever");
        run[i].segment = s;
        run[i].bin = bin;
        run[i].size = s->stride;
    }
    return s;
}

/* With the lock held: a spare segment of so many blocks, or a new one. */
static host_segment *take_segment(host_cache *c, uint32_t bin, uint32_t blocks)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are taken with the lock");
    for (host_segment **link = &c->bins[bin].spares; *link; link = &(*link)->next)
        if ((*link)->blocks == blocks) {
            host_segment *s = *link;
            *link = s->next;
            BERTH_DCHECK(s->bin == bin, "[H9] a spare segment keeps its class");
            return s;
        }
    return make_segment(c, bin, blocks);
}

void berth__host_give_segment(host_cache *c, host_segment *s)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are given back with the lock");
    s->next = c->bins[s->bin].spares;
    c->bins[s->bin].spares = s;
}

/* With the lock held. The page map comes last: who finds the segment there finds all of it. [H9] */
static berth_status list_segment(host_cache *c, host_segment *s, char *base)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are listed with the lock");
    BERTH_DCHECK(((uintptr_t)base & (c->page_bytes - 1)) == 0, "[H9] a segment has pages of its own");
    atomic_store_explicit(&s->base, base, memory_order_relaxed);
    for (uint32_t i = 0; i < s->blocks; i++) {
        atomic_store_explicit(&s->first[i].state, HOST_LEAVING, memory_order_relaxed);
        atomic_store_explicit(&s->first[i].label, NULL, memory_order_relaxed);
        atomic_store_explicit(&s->first[i].address, base + i * s->stride, memory_order_relaxed);
    }
    berth_status status = berth__page_map_set(c->pages, base, s->bytes, s);
    if (status) {
        berth__host_forget_memory(s);
        return status;
    }
    s->number = ++c->next_segment_number;
    s->prev = NULL;
    s->next = c->segments;
    if (c->segments)
        c->segments->prev = s;
    c->segments = s;
    return BERTH_OK;
}

void berth__host_forget_memory(host_segment *s)
{
    for (uint32_t i = 0; i < s->blocks; i++) {
        BERTH_DCHECK(s->first[i].uses == 0, "[H2] memory that goes back is used by no stream");
        atomic_store_explicit(&s->first[i].state, HOST_NONE, memory_order_release);
        atomic_store_explicit(&s->first[i].address, NULL, memory_order_relaxed);
    }
}

void berth__host_unlist(host_cache *c, host_segment *s)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are listed with the lock");
    BERTH_DCHECK(berth__page_map_find(c->pages, berth__host_base(s)) == s, "[H9] the page map leads to it");
    BERTH_DCHECK((s->prev ? s->prev->next : c->segments) == s, "[H4] what goes back is on the books");
    berth__page_map_clear(c->pages, berth__host_base(s), s->bytes);
    *(s->prev ? &s->prev->next : &c->segments) = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

/* ---- Growing ---------------------------------------------------------------------------------------- */

/* With bytes claimed for it: a segment of so many blocks with memory of the device, not listed yet. */
static berth_status make_memory(host_cache *c, const host_wish *w, uint32_t blocks, host_segment **out,
                                char **base)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    BERTH_DCHECK(atomic_load(&c->reserved) >= berth__host_run_bytes(c, w->bin, blocks),
                 "[M4] what is asked of the device is claimed");
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    host_segment *s = take_segment(c, w->bin, blocks);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (!s)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: no memory for the bookkeeping of %zu bytes",
                           c->name, berth__class_bytes(&c->classes, w->bin));
    void *p = NULL;
    size_t alignment = w->alignment > c->page_bytes ? w->alignment : c->page_bytes;
    berth_status status =
        berth__upstream_take(&c->upstream, s->bytes, alignment, blocks > 1 ? BERTH_NO_RETRY : 0, &p);
    if (status) {
        berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
        berth__host_give_segment(c, s);
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
        return status;
    }
    atomic_fetch_add_explicit(&c->device_allocations, 1, memory_order_relaxed);
    *out = s;
    *base = p;
    return BERTH_OK;
}

/* Lists a segment's fresh memory and puts all blocks but one into the bin; on failure the memory goes back. */
static berth_status use_memory(host_cache *c, host_segment *s, char *base)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    berth_status status = list_segment(c, s, base);
    uint64_t reserved = atomic_load_explicit(&c->reserved, memory_order_relaxed);
    if (!status && reserved > atomic_load_explicit(&c->max_reserved, memory_order_relaxed))
        atomic_store_explicit(&c->max_reserved, reserved, memory_order_relaxed);
    for (uint32_t i = 1; !status && i < s->blocks; i++)
        berth__host_put_in_bin(c, &s->first[s->blocks - i]);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (!status)
        return status;
    (void)berth__upstream_give(&c->upstream, base, s->bytes);
    atomic_fetch_add_explicit(&c->device_releases, 1, memory_order_relaxed);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    berth__host_give_segment(c, s);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    return status;
}

/* After the device had no memory: whether another attempt may do better, since some came back or a smaller
 * segment is left to try. */
static bool may_try_again(host_cache *c, uint32_t *blocks)
{
    berth__host_collect(c, true);
    bool came_back = berth__host_release_idle(c, 0) != 0;
    came_back |= berth__host_await_releases(c);
    if (came_back) {
        berth__slots_count_retry(&c->quota.slots);
        return true;
    }
    *blocks /= 2;
    return *blocks != 0;
}

berth_status berth__host_grow(host_cache *c, const host_wish *w, host_block **out)
{
    uint32_t most = berth__host_run_blocks(c, w->bin, w->alignment);
    for (;;) {
        uint32_t blocks = 0;
        host_segment *s = NULL;
        char *base = NULL;
        berth_status status = berth__host_claim(c, w, most, &blocks, out);
        if (status || *out)
            return status;
        BERTH_DCHECK(blocks != 0 && blocks <= most, "[M4] what was claimed is for a run");
        status = make_memory(c, w, blocks, &s, &base);
        if (s && (status = use_memory(c, s, base)) == BERTH_OK) {
            *out = s->first;
            return BERTH_OK;
        }
        berth__host_unclaim(c, berth__host_run_bytes(c, w->bin, blocks));
        most = blocks;
        if (s || !may_try_again(c, &most))
            return berth__host_device_refused(c, w, status);
    }
}

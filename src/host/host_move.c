/* Where idle blocks are: stocks and bins, stopping the world, and giving memory back. */
#include "host/host.h"

#define RANK BERTH__RANK_CACHE_LIST

/* Of each class a stock may have one block, so that a pair stays in the thread, and at most so many. */
enum { stock_blocks_max = 32 };

/* ---- Inside ---------------------------------------------------------------------------------------- */

static host_stock *make_stock(host_cache *c)
{
    host_stock *stock = berth__heap_zalloc(1, sizeof *stock + c->classes.count * sizeof stock->bins[0]);
    static host_block no_block; /* at no address: a guess is never NULL */
    for (uint32_t i = 0; stock && i < HOST_GUESSES; i++)
        stock->guesses[i] = &no_block;
    for (uint32_t bin = 0; stock && bin < c->classes.count; bin++) {
        size_t fit = HOST_SMALL_BYTES / berth__class_bytes(&c->classes, bin);
        stock->bins[bin].most = fit < 1 ? 1 : fit > stock_blocks_max ? stock_blocks_max : (uint32_t)fit;
    }
    return stock;
}

host_inside berth__host_enter_slow(host_cache *c)
{
    const uint64_t number = c->number;
    berth__slot *slot = berth__slot_of(&c->quota.slots, berth__thread());
    while (slot && !berth__slot_enter(&c->quota.slots, slot))
        berth__slots_wait_resumed(&c->quota.slots);
    host_stock *stock = slot ? slot->beside : NULL;
    if (slot && !stock)
        slot->beside = stock = make_stock(c);
    if (stock) {
        berth__thread_memos.host_cache = (berth__memo){number, slot, stock};
        return (host_inside){slot, stock};
    }
    /* Too many threads, or no memory: such a thread moves blocks under the lock. */
    if (slot)
        berth__slot_leave(slot);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    return (host_inside){NULL, NULL};
}

void berth__host_stop(host_cache *c)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    berth__slots_stop(&c->quota.slots);
}

void berth__host_resume(host_cache *c)
{
    berth__slots_resume(&c->quota.slots);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* ---- Bins ------------------------------------------------------------------------------------------ */

static void add_count(host_bin *bin, int32_t by)
{
    atomic_store_explicit(&bin->count, atomic_load_explicit(&bin->count, memory_order_relaxed) + (uint32_t)by,
                          memory_order_relaxed);
}

/* With the bin's lock held. */
static void push(host_bin *bin, host_block *b)
{
    b->prev = NULL;
    b->next = bin->newest;
    if (bin->newest)
        bin->newest->prev = b;
    else
        bin->oldest = b;
    bin->newest = b;
    add_count(bin, 1);
}

/* With the bin's lock held. */
static void unlink_block(host_bin *bin, host_block *b)
{
    *(b->prev ? &b->prev->next : &bin->newest) = b->next;
    *(b->next ? &b->next->prev : &bin->oldest) = b->prev;
    add_count(bin, -1);
}

void berth__host_put_in_bin(host_cache *c, host_block *b)
{
    host_bin *bin = &c->bins[b->bin];
    berth__annotate_noaccess(berth__host_address(b), b->size);
    atomic_store_explicit(&b->state, HOST_IDLE, memory_order_release);
    berth__host_count_idle(c, b, true);
    berth__spin_lock(&bin->lock, RANK);
    push(bin, b);
    berth__spin_unlock(&bin->lock, RANK);
}

host_block *berth__host_take_from_bin(host_cache *c, host_inside in, uint32_t index)
{
    host_bin *bin = &c->bins[index];
    if (atomic_load_explicit(&bin->count, memory_order_relaxed) == 0)
        return NULL;
    uint32_t extra = in.stock ? in.stock->bins[index].most / 2 : 0;
    berth__spin_lock(&bin->lock, RANK);
    host_block *taken = bin->newest;
    if (taken)
        unlink_block(bin, taken);
    for (; extra && bin->newest; extra--) {
        host_block *b = bin->newest;
        unlink_block(bin, b);
        berth__host_stock_push(in.stock, b);
    }
    berth__spin_unlock(&bin->lock, RANK);
    if (taken)
        berth__host_count_idle(c, taken, false);
    return taken;
}

host_block *berth__host_take_aligned(host_cache *c, uint32_t index, size_t alignment)
{
    host_bin *bin = &c->bins[index];
    berth__spin_lock(&bin->lock, RANK);
    host_block *b = bin->newest;
    while (b && ((uintptr_t)berth__host_address(b) & (alignment - 1)) != 0)
        b = b->next;
    if (b)
        unlink_block(bin, b);
    berth__spin_unlock(&bin->lock, RANK);
    if (b)
        berth__host_count_idle(c, b, false);
    return b;
}

/* Moves a chain of stock blocks into their bin, the oldest first so that the order stays. */
static void bin_chain(host_cache *c, uint32_t index, host_block *newest)
{
    host_block *oldest_first = NULL;
    while (newest) {
        host_block *next = newest->next;
        newest->next = oldest_first;
        oldest_first = newest;
        newest = next;
    }
    host_bin *bin = &c->bins[index];
    berth__spin_lock(&bin->lock, RANK);
    while (oldest_first) {
        host_block *next = oldest_first->next;
        push(bin, oldest_first);
        oldest_first = next;
    }
    berth__spin_unlock(&bin->lock, RANK);
}

void berth__host_spill(host_cache *c, host_stock *stock, uint32_t index)
{
    uint32_t keep = (stock->bins[index].most + 1) / 2;
    host_block *last = stock->bins[index].newest;
    for (uint32_t i = 1; i < keep; i++)
        last = last->next;
    host_block *rest = last->next;
    last->next = NULL;
    if (last->size > HOST_SMALL_BYTES)
        stock->large_bytes -= last->size * (stock->bins[index].count - keep);
    stock->bins[index].count = keep;
    bin_chain(c, index, rest);
}

/* All of one class. */
static void spill_class(host_cache *c, host_stock *stock, uint32_t index)
{
    host_block *newest = stock->bins[index].newest;
    if (!newest)
        return;
    if (newest->size > HOST_SMALL_BYTES)
        stock->large_bytes -= newest->size * stock->bins[index].count;
    stock->bins[index].newest = NULL;
    stock->bins[index].count = 0;
    bin_chain(c, index, newest);
}

void berth__host_spill_large(host_cache *c, host_stock *stock, uint32_t but_of_bin)
{
    for (uint32_t bin = c->classes.count;
         bin-- > 0 && berth__class_bytes(&c->classes, bin) > HOST_SMALL_BYTES;)
        if (bin != but_of_bin)
            spill_class(c, stock, bin);
}

/* ---- Reaching into stocks --------------------------------------------------------------------------- */

typedef struct flush {
    host_cache *cache;
    uint32_t first, end;
} flush;

static void flush_stock(void *context, void *beside)
{
    const flush *what = context;
    host_stock *stock = beside;
    for (uint32_t bin = what->first; bin < what->end; bin++)
        spill_class(what->cache, stock, bin);
}

void berth__host_flush_stocks(host_cache *c)
{
    flush all = {c, 0, c->classes.count};
    berth__slots_visit_beside(&c->quota.slots, flush_stock, &all);
}

void berth__host_gather(host_cache *c, uint32_t bin)
{
    flush one = {c, bin, bin + 1};
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, flush_stock, &one);
    berth__host_resume(c);
}

/* ---- Counting and taking what is idle ----------------------------------------------------------------- */

void berth__host_count_idle_always(host_cache *c, const host_block *b, bool idle)
{
    host_segment *s = b->segment;
    uint32_t all = s->blocks;
    if (idle) {
        atomic_fetch_add_explicit(&c->idle, b->size, memory_order_relaxed);
        if (atomic_fetch_add_explicit(&s->idle, 1, memory_order_relaxed) + 1 == all)
            atomic_fetch_add_explicit(&c->releasable, s->bytes, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&c->idle, b->size, memory_order_relaxed);
        if (atomic_fetch_sub_explicit(&s->idle, 1, memory_order_relaxed) == all)
            atomic_fetch_sub_explicit(&c->releasable, s->bytes, memory_order_relaxed);
    }
}

/* While stopped, with the stocks flushed: how many idle bytes there are; each segment learns how many of its
 * blocks are idle. */
uint64_t berth__host_count_all_idle(host_cache *c)
{
    uint64_t bytes = 0, releasable = 0;
    for (host_segment *s = c->segments; s; s = s->next)
        atomic_store_explicit(&s->idle, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < c->classes.count; i++)
        for (host_block *b = c->bins[i].newest; b; b = b->next) {
            host_segment *s = b->segment;
            uint32_t idle = atomic_load_explicit(&s->idle, memory_order_relaxed) + 1;
            atomic_store_explicit(&s->idle, idle, memory_order_relaxed);
            releasable += idle == s->blocks ? s->bytes : 0;
            bytes += b->size;
        }
    atomic_store_explicit(&c->idle, bytes, memory_order_relaxed);
    atomic_store_explicit(&c->releasable, releasable, memory_order_relaxed);
    return bytes;
}

/* While stopped: takes a segment whose blocks all lie in their bin out of it and off the books. */
static void take_segment(host_cache *c, host_segment *s)
{
    for (uint32_t i = 0; i < s->blocks; i++) {
        unlink_block(&c->bins[s->bin], &s->first[i]);
        berth__host_count_idle(c, &s->first[i], false);
    }
    berth__host_forget_memory(s);
    berth__host_unlist(c, s);
}

void berth__host_take_idle_segments(host_cache *c, uint64_t keep_bytes, uint64_t enough_bytes,
                                    host_release *out)
{
    uint64_t idle = berth__host_count_all_idle(c);
    for (uint32_t i = c->classes.count; i-- > 0;)
        for (host_block *b = c->bins[i].oldest; b && idle > keep_bytes && out->bytes < enough_bytes;) {
            host_segment *s = b->segment;
            host_block *newer = b->prev;
            if (atomic_load_explicit(&s->idle, memory_order_relaxed) == s->blocks) {
                while (newer && newer->segment == s)
                    newer = newer->prev;
                idle -= s->stride * s->blocks;
                take_segment(c, s);
                out->bytes += s->bytes;
                s->next = out->segments;
                out->segments = s;
            }
            b = newer;
        }
}

/* Where idle blocks are: thread caches and bins, stopping the world, and giving memory back. */
#include "host/host.h"

#define RANK BERTH__RANK_CACHE_LIST

/* Of each class a thread cache may have one block, so that a pair stays in the thread, and at most so many. */
enum { thread_cache_blocks_max = 32 };

/* ---- Inside ---------------------------------------------------------------------------------------- */

static host_thread_cache *make_thread_cache(host_cache *c)
{
    host_thread_cache *tcache =
        berth__heap_zaligned(sizeof *tcache + c->classes.count * sizeof tcache->bins[0], 64);
    static host_block no_block; /* at no address: a guess is never NULL */
    for (uint32_t i = 0; tcache && i < HOST_GUESSES; i++)
        tcache->guesses[i] = &no_block;
    for (uint32_t bin = 0; tcache && bin < c->classes.count; bin++) {
        size_t fit = HOST_SMALL_BYTES / berth__class_bytes(&c->classes, bin);
        tcache->bins[bin].most = fit < 1                         ? 1
                                 : fit > thread_cache_blocks_max ? thread_cache_blocks_max
                                                                 : (uint32_t)fit;
    }
    return tcache;
}

host_inside berth__host_enter_slow(host_cache *c)
{
    const uint64_t number = c->number;
    berth__slot *slot = berth__slot_of(&c->quota.slots, berth__thread());
    while (slot && !berth__slot_enter(&c->quota.slots, slot))
        berth__slots_wait_resumed(&c->quota.slots);
    host_thread_cache *tcache = slot ? slot->beside : NULL;
    if (slot && !tcache)
        slot->beside = tcache = make_thread_cache(c);
    if (tcache) {
        berth__thread_memos.host_cache = (berth__memo){number, slot, tcache};
        return (host_inside){slot, tcache};
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
static void bin_push(host_bin *bin, host_block *b)
{
    BERTH_DCHECK(berth__rank_is_held(RANK), "[B1] a bin is changed with its lock");
    BERTH_DCHECK((bin->newest == NULL) == (bin->oldest == NULL), "[H1] a bin has both ends, or none");
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
    BERTH_DCHECK((b->prev ? b->prev->next : bin->newest) == b, "[H1] what is taken is in the bin");
    BERTH_DCHECK((b->next ? b->next->prev : bin->oldest) == b, "[H1] what is taken is in the bin");
    *(b->prev ? &b->prev->next : &bin->newest) = b->next;
    *(b->next ? &b->next->prev : &bin->oldest) = b->prev;
    add_count(bin, -1);
}

void berth__host_put_in_bin(host_cache *c, host_block *b)
{
    host_bin *bin = &c->bins[b->bin];
    BERTH_DCHECK(b->uses == 0, "[H2] no stream uses what becomes idle");
    berth__annotate_noaccess(berth__host_address(b), b->size);
    atomic_store_explicit(&b->state, HOST_IDLE, memory_order_release);
    berth__host_count_idle(c, b, true);
    berth__spin_lock(&bin->lock, RANK);
    bin_push(bin, b);
    berth__spin_unlock(&bin->lock, RANK);
}

host_block *berth__host_take_from_bin(host_cache *c, host_inside in, uint32_t index)
{
    host_bin *bin = &c->bins[index];
    if (atomic_load_explicit(&bin->count, memory_order_relaxed) == 0)
        return NULL;
    uint32_t extra = in.tcache ? in.tcache->bins[index].most / 2 : 0;
    berth__spin_lock(&bin->lock, RANK);
    host_block *taken = bin->newest;
    if (taken)
        unlink_block(bin, taken);
    for (; extra && bin->newest; extra--) {
        host_block *b = bin->newest;
        unlink_block(bin, b);
        BERTH_DCHECK(b->bin == index, "[H1] a bin holds blocks of its class");
        berth__host_thread_cache_push(in.tcache, b);
    }
    berth__spin_unlock(&bin->lock, RANK);
    BERTH_DCHECK(!taken || (taken->bin == index && atomic_load(&taken->state) == HOST_IDLE),
                 "[H1] a bin holds idle blocks of its class");
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
    BERTH_DCHECK(!b || (b->bin == index && b->uses == 0), "[H1] a bin holds idle blocks of its class");
    berth__spin_unlock(&bin->lock, RANK);
    if (b)
        berth__host_count_idle(c, b, false);
    return b;
}

/* Moves a chain of thread cache blocks into their bin, the oldest first so that the order stays. */
static void bin_chain(host_cache *c, uint32_t index, host_block *newest)
{
    host_block *oldest_first = NULL;
    while (newest) {
        BERTH_DCHECK(newest->bin == index, "[H1] a thread cache keeps blocks by class");
        host_block *next = newest->next;
        newest->next = oldest_first;
        oldest_first = newest;
        newest = next;
    }
    host_bin *bin = &c->bins[index];
    berth__spin_lock(&bin->lock, RANK);
    while (oldest_first) {
        host_block *next = oldest_first->next;
        bin_push(bin, oldest_first);
        oldest_first = next;
    }
    berth__spin_unlock(&bin->lock, RANK);
}

void berth__host_spill(host_cache *c, host_thread_cache *tcache, uint32_t index)
{
    uint32_t keep = (tcache->bins[index].most + 1) / 2;
    BERTH_DCHECK(tcache->bins[index].count > keep, "[H1] what is spilled is too much");
    host_block *last = tcache->bins[index].newest;
    for (uint32_t i = 1; i < keep; i++)
        last = last->next;
    host_block *rest = last->next;
    last->next = NULL;
    BERTH_DCHECK(rest, "[H1] as many blocks are kept as are counted");
    if (last->size > HOST_SMALL_BYTES)
        tcache->large_bytes -= last->size * (tcache->bins[index].count - keep);
    tcache->bins[index].count = keep;
    bin_chain(c, index, rest);
}

/* All of one class. */
static void spill_class(host_cache *c, host_thread_cache *tcache, uint32_t index)
{
    host_block *newest = tcache->bins[index].newest;
    if (!newest)
        return;
    BERTH_DCHECK(newest->size <= HOST_SMALL_BYTES ||
                     tcache->large_bytes >= newest->size * tcache->bins[index].count,
                 "[H1] large blocks are counted in bytes, too");
    if (newest->size > HOST_SMALL_BYTES)
        tcache->large_bytes -= newest->size * tcache->bins[index].count;
    tcache->bins[index].newest = NULL;
    tcache->bins[index].count = 0;
    bin_chain(c, index, newest);
}

/* Puts the parked block of a class into its stream's queue, unless its event is being asked. Answers how many there
 * were. By the thread cache's thread inside, or while stopped. */
static uint32_t queue_parked(host_thread_cache *tcache, uint32_t index)
{
    host_block *b = tcache->bins[index].parked;
    if (!b || b == tcache->asked)
        return 0;
    (void)BERTH_ASSERT(atomic_load_explicit(&b->state, memory_order_relaxed) == HOST_PARKED && b->uses == 1,
                       "[H11] what is parked waits for one stream");
    berth__host_unpark(tcache, b);
    tcache->parked_marks--; /* the queue counts it from here on */
    berth__host_add_uses((host_inside){NULL, tcache}, b);
    return 1;
}

void berth__host_queue_parked(host_cache *c, host_thread_cache *tcache)
{
    uint32_t left = tcache->parked_count;
    for (uint32_t bin = 0; left && bin < c->classes.count; bin++)
        left -= queue_parked(tcache, bin);
}

void berth__host_spill_large(host_cache *c, host_thread_cache *tcache, uint32_t but_of_bin)
{
    for (uint32_t bin = c->classes.count;
         bin-- > 0 && berth__class_bytes(&c->classes, bin) > HOST_SMALL_BYTES;)
        if (bin != but_of_bin) {
            spill_class(c, tcache, bin);
            queue_parked(tcache, bin);
        }
}

/* ---- Reaching into thread caches --------------------------------------------------------------------------- */

typedef struct flush {
    host_cache *cache;
    uint32_t first, end;
    uint32_t parked; /* how many went into their queues */
    bool asked;      /* one could not, since its thread is asking for it */
} flush;

#ifndef NDEBUG
/* Whether the blocks of one class are what the counts say; adds up the bytes of large ones. */
static bool class_is_valid(const host_thread_cache *tcache, uint32_t bin, uint64_t *large, uint32_t *parked)
{
    uint32_t count = 0;
    const host_block *waits = tcache->bins[bin].parked;
    for (const host_block *b = tcache->bins[bin].newest; b; b = b->next, count++) {
        if (b->bin != bin || b->uses != 0 || atomic_load(&b->state) != HOST_IDLE)
            return false;
        *large += b->size > HOST_SMALL_BYTES ? b->size : 0;
    }
    if (waits) {
        ++*parked;
        *large += waits->size > HOST_SMALL_BYTES ? waits->size : 0;
    }
    return count == tcache->bins[bin].count && count <= tcache->bins[bin].most &&
           (!waits || (waits->bin == bin && waits->uses == 1 && atomic_load(&waits->state) == HOST_PARKED));
}

/* While stopped. */
static bool thread_cache_is_valid(const host_cache *c, const host_thread_cache *tcache)
{
    uint64_t large = 0;
    uint32_t parked = 0;
    for (uint32_t bin = 0; bin < c->classes.count; bin++)
        if (!class_is_valid(tcache, bin, &large, &parked))
            return false;
    return large == tcache->large_bytes && parked == tcache->parked_count;
}

/* While stopped. */
static bool bins_are_valid(const host_cache *c)
{
    for (uint32_t i = 0; i < c->classes.count; i++) {
        const host_block *newer = NULL;
        uint32_t count = 0;
        for (const host_block *b = c->bins[i].newest; b; newer = b, b = b->next, count++)
            if (b->bin != i || b->prev != newer || b->uses != 0 || atomic_load(&b->state) != HOST_IDLE)
                return false;
        if (newer != c->bins[i].oldest || (count && count != atomic_load(&c->bins[i].count)))
            return false;
    }
    return true;
}
#endif

static void flush_parked(void *context, void *beside)
{
    flush *what = context;
    host_thread_cache *tcache = beside;
    BERTH_DCHECK(thread_cache_is_valid(what->cache, tcache),
                 "[H1] [H11] what a thread keeps is idle or parked");
    for (uint32_t bin = what->first; bin < what->end; bin++)
        what->parked += queue_parked(tcache, bin);
    what->asked |= tcache->asked != NULL;
}

static void flush_thread_cache(void *context, void *beside)
{
    const flush *what = context;
    host_thread_cache *tcache = beside;
    BERTH_DCHECK(thread_cache_is_valid(what->cache, tcache),
                 "[H1] [H11] what a thread keeps is idle or parked");
    for (uint32_t bin = what->first; bin < what->end; bin++)
        spill_class(what->cache, tcache, bin);
    flush_parked(context, beside);
}

void berth__host_flush_thread_caches(host_cache *c)
{
    flush all = {.cache = c, .end = c->classes.count};
    berth__slots_visit_beside(&c->quota.slots, flush_thread_cache, &all);
    atomic_store_explicit(&c->has_parked, all.asked, memory_order_relaxed);
    BERTH_DCHECK(bins_are_valid(c), "[H1] the bins hold idle blocks of their class, as many as they count");
}

bool berth__host_unpark_all(host_cache *c)
{
    if (!atomic_load_explicit(&c->has_parked, memory_order_relaxed))
        return true;
    flush all = {.cache = c, .end = c->classes.count};
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, flush_parked, &all);
    atomic_store_explicit(&c->has_parked, all.asked, memory_order_relaxed);
    berth__host_resume(c);
    return !all.asked;
}

static void forget_asked(void *context, void *beside)
{
    (void)context;
    BERTH_DCHECK(!((host_thread_cache *)beside)->asked || ((host_thread_cache *)beside)->parked_count > 0,
                 "[H11] what is asked for is parked");
    ((host_thread_cache *)beside)->asked = NULL;
}

void berth__host_forget_asked(host_cache *c)
{
    berth__slots_visit_beside(&c->quota.slots, forget_asked, NULL);
}

bool berth__host_gather(host_cache *c, uint32_t bin)
{
    flush one = {.cache = c, .first = bin, .end = bin + 1};
    berth__host_stop(c);
    berth__slots_visit_beside(&c->quota.slots, flush_thread_cache, &one);
    berth__host_resume(c);
    return one.parked != 0;
}

/* ---- Counting and taking what is idle ----------------------------------------------------------------- */

void berth__host_count_idle_always(host_cache *c, const host_block *b, bool idle)
{
    host_segment *s = b->segment;
    uint32_t all = s->blocks;
    BERTH_DCHECK(s->bin == b->bin && s->stride == b->size, "[H9] a segment keeps its class");
    if (idle) {
        atomic_fetch_add_explicit(&c->idle, b->size, memory_order_relaxed);
        if (atomic_fetch_add_explicit(&s->idle, 1, memory_order_relaxed) + 1 == all)
            atomic_fetch_add_explicit(&c->releasable, s->bytes, memory_order_relaxed);
    } else {
        BERTH_DCHECK(atomic_load(&c->idle) >= b->size, "[H4] what is taken was counted as idle");
        atomic_fetch_sub_explicit(&c->idle, b->size, memory_order_relaxed);
        if (atomic_fetch_sub_explicit(&s->idle, 1, memory_order_relaxed) == all)
            atomic_fetch_sub_explicit(&c->releasable, s->bytes, memory_order_relaxed);
    }
}

/* While stopped, with the thread caches flushed: how many idle bytes there are; each segment learns how many of its
 * blocks are idle. */
uint64_t berth__host_count_all_idle(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] all that is idle is counted while stopped");
    uint64_t bytes = 0, releasable = 0;
    for (host_segment *s = c->segments; s; s = s->next)
        atomic_store_explicit(&s->idle, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < c->classes.count; i++)
        for (host_block *b = c->bins[i].newest; b; b = b->next) {
            host_segment *s = b->segment;
            uint32_t idle = atomic_load_explicit(&s->idle, memory_order_relaxed) + 1;
            BERTH_DCHECK(idle <= s->blocks, "[H4] each idle block is counted once");
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
    BERTH_DCHECK(berth__host_is_held(c), "[B1] segments are taken while stopped");
    for (uint32_t i = 0; i < s->blocks; i++) {
        BERTH_DCHECK(atomic_load(&s->first[i].state) == HOST_IDLE,
                     "[H2] memory that goes back is idle as a whole");
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
                BERTH_DCHECK(idle >= s->stride * s->blocks, "[H4] idle segments are a part of what is idle");
                idle -= s->stride * s->blocks;
                take_segment(c, s);
                out->bytes += s->bytes;
                s->next = out->segments;
                out->segments = s;
            }
            b = newer;
        }
}

/* The host cache as an allocator: allocate, free, record, copy, figures. */
#include "host/host.h"

#include <string.h>

#include "count/scope.h"

berth_status berth__host_is_not(const char *function)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "%s needs an allocator made by berth_host_cache_create",
                       function);
}

/* ---- Allocating ------------------------------------------------------------------------------------- */

/* The block becomes its user's. Inside. */
static inline void hand_out(host_inside in, host_block *b, size_t size_bytes, const char *label)
{
    BERTH_DCHECK(size_bytes != 0 && size_bytes <= b->size, "[H5] a block is as large as what is asked for");
    BERTH_DCHECK(b->uses == 0 && !b->more_uses, "[H2] what is handed out is used by no stream");
    if (BERTH_LIKELY(in.tcache != NULL))
        *berth__host_guess(in.tcache, berth__host_address(b)) = b;
    atomic_store_explicit(&b->requested, size_bytes, memory_order_relaxed);
    atomic_store_explicit(&b->label, label, memory_order_relaxed);
    atomic_store_explicit(&b->generation, atomic_load_explicit(&b->generation, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&b->state, HOST_LIVE, memory_order_release);
}

/* Hands out a block that was just taken, and counts it where the thread's credit suffices. Inside. */
static void host_grant(host_inside in, host_block *b, host_wish *w)
{
    BERTH_DCHECK(b->bin == w->bin, "[H1] what was found is of the class");
    BERTH_DCHECK(((uintptr_t)berth__host_address(b) & (w->alignment - 1)) == 0,
                 "[H5] it is aligned as was asked");
    berth__annotate_undefined(berth__host_address(b), w->size_bytes);
    berth__annotate_noaccess(berth__host_address(b) + w->size_bytes, b->size - w->size_bytes);
    hand_out(in, b, w->size_bytes, berth__label_text(w->request));
    /* With a stream to be noted first, which may fail, counting comes later. */
    w->counted = in.tcache && !w->request->stream && berth__quota_take_at(in.slot, b->size);
    if (w->counted)
        in.tcache->bins[b->bin].allocations++;
}

/* An idle block of the class, or NULL. */
static host_block *try_idle(host_cache *c, host_wish *w)
{
    host_inside in = berth__host_enter(c);
    host_block *b = w->alignment <= c->page_bytes ? berth__host_take_idle(c, in, w->bin)
                                                  : berth__host_take_aligned(c, w->bin, w->alignment);
    if (b)
        host_grant(in, b, w);
    berth__host_leave(c, in);
    return b;
}

/* The same, with what the thread's last stream has let go of. */
static host_block *try_own(host_cache *c, host_wish *w)
{
    if (w->alignment > c->page_bytes)
        return try_idle(c, w);
    host_inside in;
    host_block *b = berth__host_reclaim(c, w->bin, &in);
    if (b)
        host_grant(in, b, w);
    berth__host_leave(c, in);
    return b;
}

/* The thread's parked block of the class, if its stream has passed; where there is none this costs little. */
static host_block *try_parked(host_cache *c, host_wish *w)
{
    if (w->alignment > c->page_bytes)
        return NULL;
    host_inside in = berth__host_enter(c);
    host_block *b = NULL;
    if (in.tcache && !in.tcache->bins[w->bin].newest && !berth__host_is(c, HOST_PARKS_NOTHING))
        b = berth__host_take_parked(c, &in, w->bin);
    if (b)
        host_grant(in, b, w);
    berth__host_leave(c, in);
    return b;
}

/* What the thread has parked of other classes is looked for in the queues, as is everybody's. */
static void own_parked_to_queues(host_cache *c)
{
    host_inside in = berth__host_enter(c);
    if (in.tcache)
        berth__host_queue_parked(c, in.tcache);
    berth__host_leave(c, in);
}

/* The bin comes first, then what streams have let go of, other threads' caches, and the device last. */
static berth_status find_block(host_cache *c, host_wish *w, host_block **out)
{
    if ((*out = try_own(c, w)))
        return BERTH_OK;
    own_parked_to_queues(c);
    if (berth__host_collect(c, false) && (*out = try_idle(c, w)))
        return BERTH_OK;
    if (berth__host_gather(c, w->bin))
        berth__host_collect(c, false);
    if ((*out = try_idle(c, w)))
        return BERTH_OK;
    berth_status status = berth__host_grow(c, w, out);
    if (status)
        return status;
    host_block *grown = *out;
    if (!BERTH_ASSERT(grown, "[I7] BERTH_OK comes with a block"))
        return BERTH_INTERNAL;
    host_inside in = berth__host_enter(c);
    host_grant(in, grown, w);
    berth__host_leave(c, in);
    return BERTH_OK;
}

/* Counts an allocation for which the thread had no credit. */
static void host_count(host_cache *c, const host_block *b)
{
    host_inside in = berth__host_enter(c);
    bool added = in.tcache && berth__quota_take_at(in.slot, b->size);
    if (added)
        in.tcache->bins[b->bin].allocations++;
    berth__host_leave(c, in);
    if (!added)
        berth__host_count_in_use(c, b->size);
}

/* The rest of a request whose block is found: a failure leaves the block idle, and nothing counted. */
static berth_status finish_wish(host_cache *c, host_block *b, const host_wish *w)
{
    if (w->request->stream) {
        berth_status status = berth__host_note_use(c, b, w->request->stream);
        if (status) {
            host_inside in = berth__host_enter(c);
            berth__host_put_idle(c, in, b);
            berth__host_leave(c, in);
            return status;
        }
    }
    if (!w->counted)
        host_count(c, b);
    if (w->request->flags & BERTH_ZEROED)
        memset(berth__host_address(b), 0, w->size_bytes);
    if (c->clock_ns)
        atomic_store_explicit(&b->since_ns, berth__host_now(c), memory_order_relaxed);
    return BERTH_OK;
}

/* The class that serves a request [H5]. Blocks that share a segment lie at multiples of their size from a
 * page's start, so a size that is a multiple of the alignment suffices up to a page. Beyond that the segment is
 * aligned, has one block, and whole pages are enough. */
static uint32_t class_for(const host_cache *c, size_t size_bytes, size_t alignment)
{
    size_t grain = alignment <= BERTH_ALIGNMENT ? 1 : alignment < c->page_bytes ? alignment : c->page_bytes;
    uint32_t bin = berth__class_of(&c->classes, berth__align_up(size_bytes, grain));
    BERTH_DCHECK(berth__class_bytes(&c->classes, bin) >= size_bytes, "[H5] the class is large enough");
    BERTH_DCHECK(bin == 0 || berth__class_bytes(&c->classes, bin - 1) < berth__align_up(size_bytes, grain),
                 "[H5] and no smaller one is");
    return bin;
}

static inline berth_status give_block(host_block *b, void **out, berth_host_handle *handle)
{
    *out = berth__host_address(b);
    if (handle)
        *handle = berth__host_handle(b);
    return BERTH_OK;
}

static __attribute__((noinline)) berth_status allocate_general(host_cache *c, size_t size_bytes,
                                                               size_t alignment, const berth_request *request,
                                                               void **out, berth_host_handle *handle)
{
    BERTH_DCHECK(size_bytes != 0 && berth__is_power_of_two(alignment),
                 "[I2] an operation sees only valid arguments");
    if (size_bytes > BERTH__CLASS_BYTES_MAX - c->page_bytes) {
        berth__slots_count_failure(&c->quota.slots);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: no device has %zu bytes of pinned memory", c->name,
                           size_bytes);
    }
    host_wish w = {size_bytes, alignment, request, class_for(c, size_bytes, alignment), false};
    host_block *b = try_parked(c, &w);
    if (b && w.counted && request == &berth__plain_request)
        return give_block(b, out, handle);
    berth_status status = b ? BERTH_OK : find_block(c, &w, &b);
    BERTH_DCHECK(status || b, "[I7] BERTH_OK comes with a block");
    if (!status)
        status = finish_wish(c, b, &w);
    berth__host_keep_soft_limit(c); /* streams may have let go of more than was asked for */
    if (status) {
        berth__slots_count_failure(&c->quota.slots);
        return status;
    }
    return give_block(b, out, handle);
}

/* What the fast path answers, still inside, where the thread cache has no idle block of the class but a parked one. */
static host_block try_the_parked_one;

/* The fast path's way on for an ordinary request, from inside: the parked block, if its stream has passed. */
static __attribute__((noinline)) berth_status
allocate_parked(host_cache *c, size_t size_bytes, size_t alignment, void **out, berth_host_handle *handle)
{
    const berth__memo *memo = &berth__thread_memos.host_cache;
    host_inside in = {memo->slot, memo->value};
    uint32_t bin = (uint32_t)berth__host_class(c, size_bytes);
    BERTH_DCHECK(memo->key == c->number, "[S1] the thread is inside a slot of this cache");
    host_block *b = berth__host_take_parked(c, &in, bin);
    bool counted = b && in.tcache && berth__quota_take_at(in.slot, b->size);
    if (counted)
        in.tcache->bins[bin].allocations++;
    if (b)
        hand_out(in, b, size_bytes, berth__scope_innermost ? berth__scope_innermost->label : NULL);
    berth__host_leave(c, in);
    if (BERTH_UNLIKELY(!b))
        return allocate_general(c, size_bytes, alignment, &berth__plain_request, out, handle);
    if (BERTH_UNLIKELY(!counted))
        host_count(c, b);
    return give_block(b, out, handle);
}

/* The fast path: an ordinary request, the thread's cache has a block, the thread's credit suffices. NULL:
 * take the slow one. */
static inline __attribute__((always_inline)) host_block *
allocate_fast(host_cache *c, size_t size_bytes, size_t alignment, const berth_request *request)
{
    const berth__memo *memo = &berth__thread_memos.host_cache;
    if (BERTH_UNLIKELY(request != &berth__plain_request || alignment > BERTH_ALIGNMENT ||
                       memo->key != c->number))
        return NULL;
    size_t bin = berth__host_class(c, size_bytes);
    if (BERTH_UNLIKELY(bin == HOST_NO_CLASS))
        return NULL;
    host_thread_cache *tcache = memo->value;
    berth__slot *slot = memo->slot;
    if (BERTH_UNLIKELY(!berth__slot_enter_fast(&c->quota.slots, slot)))
        return NULL;
    host_block *b = tcache->bins[bin].newest;
    if (BERTH_UNLIKELY(!b && tcache->bins[bin].parked))
        return &try_the_parked_one;
    if (BERTH_UNLIKELY(!b || !berth__quota_take_unfenced(slot, b->size))) {
        berth__slot_leave(slot);
        return NULL;
    }
    BERTH_DCHECK(b->bin == bin, "[H1] a thread cache keeps blocks by class");
    berth__host_thread_cache_pop(tcache, b);
    tcache->bins[bin].allocations++;
    hand_out((host_inside){slot, tcache}, b, size_bytes,
             berth__scope_innermost ? berth__scope_innermost->label : NULL);
    berth__slot_leave(slot);
    return b;
}

static BERTH_HOT berth_status op_allocate(void *self, size_t size_bytes, size_t alignment,
                                          const berth_request *request, void **out)
{
    host_block *b = allocate_fast(self, size_bytes, alignment, request);
    if (BERTH_UNLIKELY(!b))
        return allocate_general(self, size_bytes, alignment, request, out, NULL);
    if (BERTH_UNLIKELY(b == &try_the_parked_one))
        return allocate_parked(self, size_bytes, alignment, out, NULL);
    *out = berth__host_address(b);
    return BERTH_OK;
}

/* What the front would refuse, it refuses. */
static __attribute__((noinline, cold)) berth_status allocate_rarely(berth_allocator *cache, size_t size_bytes,
                                                                    size_t alignment,
                                                                    const berth_request *request, void **out)
{
    if (berth__host_of(cache))
        return berth_allocate(cache, size_bytes, alignment, request, out);
    if (out)
        *out = NULL;
    return berth__host_is_not("berth_host_cache_allocate");
}

BERTH_HOT berth_status berth_host_cache_allocate(berth_allocator *cache, size_t size_bytes, size_t alignment,
                                                 const berth_request *request, void **out,
                                                 berth_host_handle *handle)
{
    host_cache *c = berth__host_of(cache);
    const berth_request *full = request ? request : &berth__plain_request;
    berth_host_handle ignored;
    handle = handle ? handle : &ignored;
    *handle = 0;
    if (BERTH_UNLIKELY(!c || !out || size_bytes - 1 >= BERTH__CLASS_BYTES_MAX ||
                       alignment - 1 >= BERTH_ALIGNMENT_MAX || (alignment & (alignment - 1)) != 0 ||
                       full->struct_size < sizeof *full))
        return allocate_rarely(cache, size_bytes, alignment, request, out);
    host_block *b = allocate_fast(c, size_bytes, alignment, full);
    if (BERTH_UNLIKELY(!b)) {
        *out = NULL;
        return allocate_general(c, size_bytes, alignment, full, out, handle);
    }
    if (BERTH_UNLIKELY(b == &try_the_parked_one)) {
        *out = NULL;
        return allocate_parked(c, size_bytes, alignment, out, handle);
    }
    *out = berth__host_address(b);
    *handle = berth__host_handle(b);
    return BERTH_OK;
}

/* ---- Freeing ---------------------------------------------------------------------------------------- */

static berth_status bad_free(host_cache *c, const host_block *b, const void *p)
{
    if (!b)
        return berth__fail(
            BERTH_BAD_FREE,
            "%s: %p lies in no memory of this cache: never handed out, or freed and given back since",
            c->name, p);
    size_t offset = berth__host_offset(c, b, p);
    if (offset != 0 && offset < b->size)
        return berth__fail(BERTH_BAD_FREE, "%s: %p is %zu bytes inside the block at %p; free that", c->name,
                           p, offset, (void *)berth__host_address(b));
    return berth__fail(BERTH_BAD_FREE, "%s: the block at %p has been freed before", c->name, p);
}

/* From LIVE to LEAVING, for one thread only. */
static inline bool take_from_user(host_block *b)
{
    for (;;) {
        uint32_t seen = HOST_LIVE;
        if (BERTH_LIKELY(atomic_compare_exchange_strong_explicit(&b->state, &seen, HOST_LEAVING,
                                                                 memory_order_acq_rel, memory_order_relaxed)))
            return true;
        if (seen != HOST_LIVE_BUSY)
            return false;
        berth__pause();
    }
}

/* Whether the thread keeps a block that it frees until its stream has passed, where its cache parks blocks: it
 * allocated the block lately, so that it is likely to want it again (what a thread frees for others goes to the queue,
 * where they look), one stream used it, and the thread cache has a place and room. The older block stays: its stream
 * is the more likely to have passed. Inside. [H11] */
static inline bool can_park(host_thread_cache *tcache, const host_block *b)
{
    BERTH_DCHECK(b->uses == 0 || b->first_use.queue, "[H2] a use names its stream's queue");
    return b->uses == 1 && b->first_use.marked && !tcache->bins[b->bin].parked &&
           *berth__host_guess(tcache, berth__host_address(b)) == b &&
           !berth__host_thread_cache_is_heavy(tcache, b->size);
}

/* The general way of a block that is LEAVING; its uses are marked. Until it has reached its next place the
 * block keeps the cache alive; afterwards only a pin does. */
static void put_away(host_cache *c, host_block *b)
{
    BERTH_DCHECK((b->uses > 1) == (b->more_uses != NULL), "[H2] there is a use for each stream");
    bool trim = false;
    berth__quota_give(&c->quota, b->size);
    host_inside in = berth__host_enter(c);
    if (berth__host_is(c, BERTH__MARK_CLOSING)) {
        berth__host_leave(c, in);
        berth__host_late_free(c, b);
        return;
    }
    if (b->uses && in.tcache && !berth__host_is(c, HOST_PARKS_NOTHING) && can_park(in.tcache, b)) {
        berth__host_park(c, in.tcache, b);
    } else if (b->uses) {
        berth__host_add_uses(in, b);
    } else {
        berth__host_put_idle(c, in, b);
        trim = berth__host_exceeds_soft_limit(c);
        if (trim)
            berth__host_pin(c);
    }
    berth__host_leave(c, in);
    if (trim) {
        berth__host_keep_soft_limit(c);
        berth__host_unpin(c);
    }
}

/* The fast path of a block that streams used, if nothing is special: parked, or into their queues. */
static inline bool wait_fast(host_cache *c, host_block *b)
{
    const berth__memo *memo = &berth__thread_memos.host_cache;
    if (!b->uses || memo->key != c->number || !berth__slot_enter_fast(&c->quota.slots, memo->slot))
        return false;
    berth__quota_give_at(memo->slot, b->size);
    if (can_park(memo->value, b))
        berth__host_park(c, memo->value, b);
    else
        berth__host_add_uses((host_inside){memo->slot, memo->value}, b);
    berth__slot_leave(memo->slot);
    return true;
}

/* The rest of a free whose block is LEAVING. */
static void leave_user(host_cache *c, host_block *b)
{
    if (c->clock_ns)
        atomic_store_explicit(&b->since_ns, berth__host_now(c), memory_order_relaxed);
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    if (b->uses)
        berth__host_mark_uses(c, b);
    if (!wait_fast(c, b))
        put_away(c, b);
}

/* A free of the block that was found for `p`, NULL if none was. Its memory may have gone back meanwhile. */
static berth_status free_found(host_cache *c, host_block *b, const void *p, berth_stream *stream)
{
    if (!b || berth__host_offset(c, b, p) != 0)
        return bad_free(c, b, p);
    if (stream) {
        berth_status status = berth__host_note_use(c, b, stream);
        if (status)
            return status == BERTH_NOT_FOUND ? bad_free(c, b, p) : status;
    }
    if (!take_from_user(b))
        return bad_free(c, b, p);
    leave_user(c, b);
    return BERTH_OK;
}

/* The way of a free that is not the short one. */
static __attribute__((noinline)) berth_status free_general(host_cache *c, void *p, berth_stream *stream)
{
    return free_found(c, berth__host_find_again(c, p), p, stream);
}
/* The fast path: no stream used the block, and the thread's cache has room. A block that was found wrongly
 * (an old guess, whose bookkeeping lies idle) is not live: the slow path finds it again. */
static inline __attribute__((always_inline)) berth_status
host_free(host_cache *c, void *p, berth_host_handle handle, berth_stream *stream)
{
    const berth__memo *memo = &berth__thread_memos.host_cache;
    host_thread_cache *tcache = memo->value;
    berth__slot *slot = memo->slot;
    if (BERTH_UNLIKELY(stream || memo->key != c->number))
        return free_general(c, p, stream);
    /* By the thread's guess, else by its handle, else by the page map. */
    host_block *b = *berth__host_guess(tcache, p);
    if (BERTH_UNLIKELY(berth__host_address(b) != p)) {
        b = berth__host_resolve(c, p, handle);
        if (BERTH_UNLIKELY(!b || berth__host_address(b) != p))
            return free_general(c, p, NULL);
    }
    if (BERTH_UNLIKELY(!berth__slot_enter_fast(&c->quota.slots, slot)))
        return free_general(c, p, NULL);
    size_t bin = b->bin;
    uint32_t seen = HOST_LIVE;
    if (BERTH_UNLIKELY(tcache->bins[bin].count >= tcache->bins[bin].most ||
                       berth__host_thread_cache_is_heavy(tcache, b->size) ||
                       !atomic_compare_exchange_strong_explicit(
                           &b->state, &seen, HOST_LEAVING, memory_order_acq_rel, memory_order_relaxed))) {
        berth__slot_leave(slot);
        return free_general(c, p, NULL);
    }
    if (BERTH_UNLIKELY(b->uses)) { /* asked now that nobody else notes one */
        berth__slot_leave(slot);
        leave_user(c, b);
        return BERTH_OK;
    }
    BERTH_DCHECK(b->size == b->segment->stride && bin == b->segment->bin, "[H9] a segment keeps its class");
    berth__quota_give_at(slot, b->size);
    atomic_store_explicit(&b->state, HOST_IDLE, memory_order_release);
    berth__host_thread_cache_push(tcache, b);
    berth__slot_leave(slot);
    return BERTH_OK;
}

static BERTH_HOT berth_status op_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes; /* the block knows */
    return host_free(self, p, 0, stream);
}

/* A NULL pointer means the handle's block, and with no handle nothing. */
static __attribute__((noinline)) berth_status free_named(host_cache *c, berth_host_handle handle,
                                                         berth_stream *stream)
{
    if (handle == 0)
        return BERTH_OK;
    host_block *b = berth__host_named(c, handle);
    const void *p = b ? berth__host_address(b) : NULL;
    if (!p)
        return berth__fail(BERTH_BAD_FREE,
                           "%s: handle %#llx names no block, or one that has been freed before", c->name,
                           (unsigned long long)handle);
    return free_found(c, b, p, stream);
}

BERTH_HOT berth_status berth_host_cache_free(berth_allocator *cache, void *p, berth_host_handle handle,
                                             berth_stream *stream)
{
    host_cache *c = berth__host_of(cache);
    if (BERTH_UNLIKELY(!c))
        return berth__host_is_not("berth_host_cache_free");
    return BERTH_LIKELY(p != NULL) ? host_free(c, p, handle, stream) : free_named(c, handle, stream);
}

/* ---- Collecting and giving back ----------------------------------------------------------------------- */

berth_status berth_host_cache_collect(berth_allocator *cache, size_t *blocks)
{
    host_cache *c = berth__host_of(cache);
    if (!c)
        return berth__host_is_not("berth_host_cache_collect");
    size_t idle = berth__host_collect(c, true);
    berth__host_forget_streams(c);
    if (blocks)
        *blocks = idle;
    return BERTH_OK;
}

static berth_status op_trim(void *self, size_t keep_bytes, size_t *released)
{
    host_cache *c = self;
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    berth_host_cache_collect(&c->base, NULL);
    *released = berth__host_release_idle(c, keep_bytes);
    berth__host_await_releases(c); /* also those of others: what is idle has then gone back */
    berth__host_tend_orphans();
    return BERTH_OK;
}

berth_status berth_host_cache_empty(berth_allocator *cache, size_t *released)
{
    size_t ignored;
    host_cache *c = berth__host_of(cache);
    return c ? op_trim(c, 0, released ? released : &ignored) : berth__host_is_not("berth_host_cache_empty");
}

/* ---- Questions --------------------------------------------------------------------------------------- */

static const char *op_name(void *self)
{
    return ((host_cache *)self)->name;
}

static berth_device op_device(void *self)
{
    return ((host_cache *)self)->device;
}

static berth_memory_kind op_memory_kind(void *self)
{
    return ((host_cache *)self)->upstream.memory_kind;
}

static size_t op_granularity(void *self)
{
    return ((host_cache *)self)->page_bytes; /* of blocks that have pages of their own */
}

static bool op_tracks_sizes(void *self)
{
    (void)self;
    return true;
}

static berth_status op_owns(void *self, const void *p)
{
    return berth__host_live_block(self, p) ? BERTH_OK : BERTH_NOT_FOUND;
}

/* The live block that starts at `p`, or NULL with words. */
static host_block *block_at(host_cache *c, const void *p)
{
    host_block *b = berth__host_live_block(c, p);
    if (b && berth__host_offset(c, b, p) == 0)
        return b;
    berth__fail(BERTH_NOT_FOUND, "%s: no live block starts at %p", c->name, p);
    return NULL;
}

static berth_status op_requested_size(void *self, const void *p, size_t *out)
{
    const host_block *b = block_at(self, p);
    if (!b)
        return BERTH_NOT_FOUND;
    *out = atomic_load_explicit(&b->requested, memory_order_relaxed);
    return BERTH_OK;
}

static berth_status op_allocated_size(void *self, const void *p, size_t *out)
{
    const host_block *b = block_at(self, p);
    if (!b)
        return BERTH_NOT_FOUND;
    *out = b->size;
    return BERTH_OK;
}

static berth_status op_allocation_id(void *self, const void *p, uint64_t *out)
{
    const host_block *b = block_at(self, p);
    if (!b)
        return BERTH_NOT_FOUND;
    *out = berth__host_handle(b);
    return BERTH_OK;
}

size_t berth_host_cache_block_size(double max_waste, size_t size_bytes)
{
    berth__size_classes classes;
    if (size_bytes == 0 || size_bytes > BERTH__CLASS_BYTES_MAX ||
        !berth__size_classes_init(&classes, max_waste == 0 ? 0.125 : max_waste))
        return 0;
    return berth__class_bytes(&classes, berth__class_of(&classes, size_bytes));
}

const berth_allocator_ops berth__host_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = op_allocate,
    .deallocate = op_deallocate,
    .destroy = berth__host_destroy,
    .record_use = berth__host_record_use,
    .name = op_name,
    .device = op_device,
    .memory_kind = op_memory_kind,
    .owns = op_owns,
    .tracks_sizes = op_tracks_sizes,
    .requested_size = op_requested_size,
    .allocated_size = op_allocated_size,
    .allocation_id = op_allocation_id,
    .stats = berth__host_stats,
    .clear_stats = berth__host_clear_stats,
    .trim = op_trim,
    .snapshot = berth__host_snapshot,
    .granularity = op_granularity,
};

/* Uses of blocks by streams: noted while a block is live, waited for once it is freed, collected when the
 * streams have passed. */
#include "host/host.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "device/device.h"

/* Takes a block from `from` (LIVE or WAITING) to `to`, waiting while somebody else has it busy. False if it
 * is in another state. */
static bool take_state(host_block *b, uint32_t from, uint32_t to)
{
    BERTH_DCHECK(from == HOST_LIVE || from == HOST_WAITING, "[H1] only these have a busy form");
    for (unsigned turn = 1;; turn++) {
        uint32_t seen = from;
        if (atomic_compare_exchange_strong_explicit(&b->state, &seen, to, memory_order_acquire,
                                                    memory_order_relaxed))
            return true;
        if (seen != from + 1) /* LIVE_BUSY, WAITING_BUSY */
            return false;
        if (turn % 64 == 0)
            sched_yield();
        else
            berth__pause();
    }
}

static void give_state(host_block *b, uint32_t to)
{
    atomic_store_explicit(&b->state, to, memory_order_release);
}

/* ---- Noting ----------------------------------------------------------------------------------------- */

/* The queue of a stream, by the thread's memo where it has met the stream before; NULL when there is no
 * memory for it. A memo cannot be stale: it names the stream by a number that never comes again, and who lets go of
 * a stream forgets the memos too. Inside. */
static inline berth__stream_queue *queue_of(host_cache *c, host_thread_cache *tcache, berth_stream *stream)
{
    uint64_t id = stream->id;
    if (BERTH_LIKELY(tcache && tcache->memos[id % HOST_MEMOS].stream_id == id))
        return tcache->memos[id % HOST_MEMOS].queue;
    berth__stream_queue *q = berth__streams_enter(&c->streams, stream);
    if (q && tcache) {
        tcache->memos[id % HOST_MEMOS].stream_id = id;
        tcache->memos[id % HOST_MEMOS].queue = q;
    }
    return q;
}

static bool is_noted(const host_block *b, const berth__stream_queue *q)
{
    BERTH_DCHECK((b->uses > 1) == (b->more_uses != NULL), "[H2] there is a use for each stream");
    if (b->uses == 0)
        return false;
    if (b->first_use.queue == q)
        return true;
    for (const berth__use *use = b->more_uses; use; use = use->next_owned)
        if (use->queue == q)
            return true;
    return false;
}

/* With the block busy. */
static bool add_use(host_block *b, berth__stream_queue *q)
{
    BERTH_DCHECK(q->stream, "[P7] the queue has its stream");
    if (b->uses == 0) {
        b->first_use.queue = q;
        atomic_store_explicit(&b->first_use.passed, false, memory_order_relaxed);
    } else {
        berth__use *use = berth__use_take(q);
        if (!use)
            return false;
        use->owner = b;
        use->next_owned = b->more_uses;
        b->more_uses = use;
    }
    b->uses++;
    return true;
}

/* Inside, so that whoever stops the world finds the streams of every block. */
static berth_status note_inside(host_cache *c, host_inside in, host_block *b, berth_stream *stream)
{
    berth__stream_queue *q = queue_of(c, in.tcache, stream);
    if (!q)
        return BERTH_OUT_OF_HOST_MEMORY;
    if (!take_state(b, HOST_LIVE, HOST_LIVE_BUSY))
        return BERTH_NOT_FOUND;
    bool noted = is_noted(b, q) || add_use(b, q);
    give_state(b, HOST_LIVE);
    return noted ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

berth_status berth__host_note_use(host_cache *c, host_block *b, berth_stream *stream)
{
    host_inside in = berth__host_enter(c);
    berth_status status = note_inside(c, in, b, stream);
    berth__host_leave(c, in);
    if (BERTH_LIKELY(!status))
        return BERTH_OK;
    return status == BERTH_NOT_FOUND
               ? berth__fail(status, "%s: %p is not a live block", c->name, (void *)berth__host_address(b))
               : berth__fail(status, "%s: no memory to note the use of a block by a stream", c->name);
}

/* ---- Waiting ---------------------------------------------------------------------------------------- */

void berth__host_mark_uses(host_cache *c, host_block *b)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    uint64_t now = berth__host_now(c);
    BERTH_DCHECK(b->uses != 0 && atomic_load(&b->state) == HOST_LEAVING,
                 "[H1] it was freed, and streams used it");
    berth__use_mark(&c->streams, &b->first_use);
    b->first_use.since_ns = now;
    for (berth__use *use = b->more_uses; use; use = use->next_owned) {
        berth__use_mark(&c->streams, use);
        use->since_ns = now;
    }
}

void berth__host_add_uses(host_inside in, host_block *b)
{
    if (in.tcache)
        in.tcache->recent = b->first_use.queue;
    berth__use *more = b->more_uses;
    BERTH_DCHECK(b->uses != 0 && (b->uses > 1) == (more != NULL), "[H2] there is a use for each stream");
    atomic_store_explicit(&b->pending, b->uses, memory_order_relaxed);
    give_state(b, HOST_WAITING);
    /* Each use is gone once it is added, and with the last one the block: the chain is read before. */
    berth__use_add(&b->first_use);
    while (more) {
        berth__use *next = more->next_owned;
        berth__use_add(more);
        more = next;
    }
}

/* All streams have passed. Inside. */
static void become_idle(host_cache *c, host_inside in, host_block *b)
{
    /* Somebody may be reading its uses. */
    (void)BERTH_ASSERT(take_state(b, HOST_WAITING, HOST_LEAVING), "[H1] only a waiting block is collected");
    BERTH_DCHECK(b->uses != 0, "[H2] what waited was used by a stream");
    berth__use *more = b->more_uses;
    b->more_uses = NULL;
    b->uses = 0;
    while (more) {
        berth__use *next = more->next_owned;
        berth__use_give(more);
        more = next;
    }
    berth__host_put_idle(c, in, b);
}

/* Uses that were taken out of a queue. Inside. */
static size_t finish_uses(host_cache *c, host_inside in, berth__use *passed)
{
    size_t idle = 0;
    while (passed) {
        berth__use *use = passed;
        host_block *b = use->owner;
        passed = use->next;
        BERTH_DCHECK(atomic_load(&b->pending) > 0, "[H2] what passes was waited for");
        atomic_store_explicit(&use->passed, true, memory_order_release);
        /* A single use needs no locked instruction: nobody else counts down. */
        if (atomic_load_explicit(&b->pending, memory_order_acquire) == 1 ||
            atomic_fetch_sub_explicit(&b->pending, 1, memory_order_acq_rel) == 1) {
            become_idle(c, in, b);
            idle++;
        }
    }
    return idle;
}

/* ---- Parked blocks ---------------------------------------------------------------------------------- */

host_block *berth__host_take_parked(host_cache *c, host_inside *in, uint32_t bin)
{
    host_thread_cache *tcache = in->tcache;
    host_block *b = tcache ? tcache->bins[bin].parked : NULL;
    if (!b)
        return NULL;
    BERTH_DCHECK(!tcache->asked && b->first_use.marked,
                 "[H11] one block at a time is asked for, by its event");
    /* While it is asked it stays where it is: nobody else may touch its event, and a fork finds it. */
    tcache->asked = b;
    berth__host_leave(c, *in);
    bool passed = berth_event_query(b->first_use.event) == BERTH_OK;
    *in = berth__host_enter(c);
    tcache->asked = NULL;
    if (!passed)
        return NULL;
    (void)BERTH_ASSERT(tcache->bins[bin].parked == b && b->uses == 1,
                       "[H11] a block whose event is asked stays parked");
    berth__host_unpark(tcache, b);
    b->uses = 0;
    return b;
}

/* ---- Collecting ------------------------------------------------------------------------------------- */

static size_t collect_from(host_cache *c, berth__stream_queue *q, bool thorough, bool *others)
{
    if (berth__stream_queue_length(q) == 0)
        return 0;
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    host_inside in = berth__host_enter(c);
    bool begun = berth__stream_queue_begin(q);
    berth__host_leave(c, in);
    if (!begun) {
        *others = true;
        return 0;
    }
    uint64_t count = 0;
    berth__use *last = berth__stream_queue_look(q, thorough, &count);
    in = berth__host_enter(c);
    size_t idle = finish_uses(c, in, berth__stream_queue_end(q, last, count));
    berth__host_leave(c, in);
    return idle;
}

static size_t collect_once(host_cache *c, bool thorough, bool *others)
{
    size_t idle = 0;
    uint32_t count = atomic_load_explicit(&c->streams.count, memory_order_acquire);
    for (uint32_t place = 0; place < count; place++)
        idle += collect_from(c, berth__streams_at(&c->streams, place), thorough, others);
    return idle;
}

size_t berth__host_collect(host_cache *c, bool thorough)
{
    /* Another thread at a queue is about to do our work. Who must know what is complete (trim, a limit, the end)
     * waits for it, however long the driver takes; an allocation that only runs short does not wait long. */
    size_t idle = 0;
    unsigned turn = 0;
    for (bool others = true; others && (thorough || turn < 16); turn++) {
        others = thorough && !berth__host_unpark_all(c);
        idle += collect_once(c, thorough, &others);
        if (idle && !thorough)
            break;
        if (others && turn < 1000)
            sched_yield();
        else if (others)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    if (berth__streams_are_crowded(&c->streams))
        berth__host_forget_streams(c);
    if (idle)
        berth__host_keep_soft_limit(c);
    return idle;
}

host_block *berth__host_reclaim(host_cache *c, uint32_t bin, host_inside *in)
{
    *in = berth__host_enter(c);
    host_block *b = berth__host_take_idle(c, *in, bin);
    berth__stream_queue *q = in->tcache ? in->tcache->recent : NULL;
    if (b || !q || !berth__stream_queue_begin(q))
        return b;
    berth__host_leave(c, *in);
    uint64_t count = 0;
    berth__use *last = berth__stream_queue_look(q, false, &count);
    *in = berth__host_enter(c);
    finish_uses(c, *in, berth__stream_queue_end(q, last, count));
    return berth__host_take_idle(c, *in, bin);
}

static void forget_memos(void *context, void *beside)
{
    (void)context;
    host_thread_cache *tcache = beside;
    memset(tcache->memos, 0, sizeof tcache->memos);
}

void berth__host_forget_streams(host_cache *c)
{
    berth__stream_queue *left = NULL;
    berth__host_stop(c);
    if (berth__streams_suspect(&c->streams, false)) {
        uint32_t count = atomic_load_explicit(&c->block_count, memory_order_relaxed);
        for (uint32_t i = 0; i < count; i++) {
            host_block *b = berth__host_block_at(c, i);
            if (b->uses == 0)
                continue;
            BERTH_DCHECK(b->first_use.queue && b->first_use.queue->stream,
                         "[P7] a stream that a block names is held");
            b->first_use.queue->suspect = false;
            for (berth__use *use = b->more_uses; use; use = use->next_owned)
                use->queue->suspect = false;
        }
        left = berth__streams_take_suspects(&c->streams);
        if (left) /* whoever else holds one of them may come with it again */
            berth__slots_visit_beside(&c->quota.slots, forget_memos, NULL);
    }
    berth__host_resume(c);
    if (!left)
        return;
    berth__streams_release(left);
    host_inside in = berth__host_enter(c);
    berth__streams_reuse(&c->streams, left);
    berth__host_leave(c, in);
}

bool berth__host_anything_waits(host_cache *c)
{
    uint32_t count = atomic_load_explicit(&c->streams.count, memory_order_acquire);
    for (uint32_t place = 0; place < count; place++)
        if (berth__stream_queue_length(berth__streams_at(&c->streams, place)) != 0)
            return true;
    return false;
}

/* ---- Why is this block not free yet? ------------------------------------------------------------------ */

static void read_use(const berth__use *use, bool waits, uint64_t now, berth_host_use *out)
{
    *out = (berth_host_use){.struct_size = sizeof *out, .stream = berth__stream_retain(use->queue->stream)};
    if (!waits)
        return;
    out->passed = atomic_load_explicit(&use->passed, memory_order_acquire);
    out->waiting_ns = now > use->since_ns && use->since_ns ? now - use->since_ns : 0;
}

/* Reads a block's uses into at most `room` places, with a reference to each stream; answers how many there
 * are. Inside, so that no fork finds the block busy. */
static uint32_t read_uses(host_block *b, uint64_t now, uint32_t room, berth_block_state *state,
                          berth_host_use *list)
{
    bool waits = false;
    if (!take_state(b, HOST_LIVE, HOST_LIVE_BUSY)) {
        waits = take_state(b, HOST_WAITING, HOST_WAITING_BUSY);
        uint32_t seen = atomic_load(&b->state);
        *state =
            waits || seen == HOST_LEAVING || seen == HOST_PARKED ? BERTH_BLOCK_WAITING : BERTH_BLOCK_IDLE;
        if (!waits)
            return 0;
    } else {
        *state = BERTH_BLOCK_LIVE;
    }
    uint32_t uses = b->uses;
    if (uses && uses <= room) {
        read_use(&b->first_use, waits, now, &list[0]);
        uint32_t i = 1;
        for (const berth__use *use = b->more_uses; use; use = use->next_owned)
            read_use(use, waits, now, &list[i++]);
        BERTH_DCHECK(i == uses, "[H2] there is a use for each stream");
    }
    give_state(b, waits ? HOST_WAITING : HOST_LIVE);
    return uses;
}

static void host_show(const berth_host_use *list, uint32_t uses, berth_host_use_fn visit, void *context)
{
    bool go_on = visit != NULL;
    for (uint32_t i = 0; i < uses; i++) {
        go_on = go_on && visit(context, &list[i]);
        berth__stream_release(list[i].stream);
    }
}

berth_status berth_host_cache_explain(berth_allocator *cache, const void *p, uint64_t now_ns,
                                      berth_block_state *state, berth_host_use_fn visit, void *context)
{
    if (!berth__allocator_is(cache, berth__host_destroy) || !p)
        return berth__fail(BERTH_INVALID_ARGUMENT, "an explanation needs a host cache and a pointer");
    host_cache *c = cache->self;
    host_block *b = berth__host_find(c, p);
    if (!b)
        return berth__fail(BERTH_NOT_FOUND, "%s: %p is in no block of this cache", c->name, p);
    berth_host_use few[8], *list = few;
    berth_block_state found = BERTH_BLOCK_IDLE;
    if (now_ns == 0)
        now_ns = berth__host_now(c);
    uint32_t room = BERTH_COUNT_OF(few), uses;
    for (;;) {
        /* What is parked is its thread's own; in a queue its uses can be read. */
        while (atomic_load_explicit(&b->state, memory_order_acquire) == HOST_PARKED &&
               !berth__host_unpark_all(c))
            sched_yield();
        host_inside in = berth__host_enter(c);
        bool gone = berth__host_offset(c, b, p) >= b->size;
        uses = gone ? 0 : read_uses(b, now_ns, room, &found, list);
        berth__host_leave(c, in);
        if (gone) {
            if (list != few)
                berth__heap_free(list);
            return berth__fail(BERTH_NOT_FOUND, "%s: %p is in no block of this cache", c->name, p);
        }
        if (uses <= room)
            break;
        if (list != few)
            berth__heap_free(list);
        list = berth__heap_zalloc(uses, sizeof *list);
        if (!list)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: no memory to list %u streams", c->name, uses);
        room = uses;
    }
    if (state)
        *state = found;
    host_show(list, uses, visit, context);
    if (list != few)
        berth__heap_free(list);
    return BERTH_OK;
}

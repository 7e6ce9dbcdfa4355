/* Blocks that streams may still use: free for their own stream at once, for all when the streams have passed the
 * free. The queues of src/wait hold the uses and ask the driver; here is what a use and its passing mean for spans.
 * The pool's lock stands around every step of a queue but marking and looking, which call the driver. */
#include "pool/pool.h"

#include <sched.h>

/* ---- Streams ------------------------------------------------------------------------------------- */

berth__pool_stream *berth__pool_stream_of(berth__pool *pool, berth_stream *stream, bool make)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P7] streams are known under the lock");
    berth__stream_queue *q =
        make ? berth__streams_enter(&pool->streams, stream) : berth__streams_find(&pool->streams, stream);
    if (!q)
        return NULL;
    berth__pool_stream *known = q->beside;
    BERTH_DCHECK(!known || known->queue == q, "[P7] what is beside a queue is of its stream");
    if (!known && make) {
        q->beside = known = berth__heap_zalloc(1, sizeof *known);
        if (known)
            known->queue = q;
    }
    return known;
}

/* ---- Uses ---------------------------------------------------------------------------------------- */

berth_stream *berth__pool_first_use(const berth__span *span)
{
    const berth__use *use = span->uses;
    return use ? use->queue->stream : NULL;
}

berth_status berth__pool_add_use(berth__pool *pool, berth__span *span, berth_stream *stream)
{
    berth__use **end = (berth__use **)&span->uses;
    for (; *end; end = &(*end)->next_owned)
        if ((*end)->queue->stream == stream)
            return BERTH_OK; /* once is enough: one event at the free */
    /* Taken here and not at the free, which cannot fail then. */
    berth__pool_stream *known = berth__pool_stream_of(pool, stream, true);
    berth__use *use = known ? berth__use_take(known->queue) : NULL;
    if (!use)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note that a stream uses a block");
    use->next_owned = NULL;
    *end = use;
    known->users++;
    span->use_count++;
    BERTH_DCHECK(use->queue == known->queue && use->queue->stream == stream,
                 "[P7] a use is of its stream's queue");
    return BERTH_OK;
}

/* A stream has passed the use, or its block was never handed out. */
static void pool_give_use(berth__use *use)
{
    berth__pool_stream *known = use->queue->beside;
    (void)BERTH_ASSERT(known->users > 0, "[P7] what is given back was taken");
    known->users--;
    berth__use_give(use);
}

/* ---- Waiting ------------------------------------------------------------------------------------- */

/* With the lock: the uses are marked; the span waits for their streams. */
static void pool_start_waiting(berth__pool *pool, berth__span *span)
{
    berth__use *use = span->uses;
    uint32_t count = span->use_count;
    BERTH_DCHECK(count != 0 && !span->index, "[P3] what waits is in no index and has a use for each stream");
    span->uses = NULL;
    span->use_count = 0;
    span->since_ns = pool->now_ns;
    pool->waiting_count += count;
    if (use &&
        !use->next_owned) { /* its stream gets it at once; spans of the index are merged, so the use has no owner */
        berth__pool_stream *known = use->queue->beside;
        use->owner = NULL;
        berth__use_add(use);
        span->ticket = use->added;
        berth__arena_put(&pool->arena, span, &known->index);
        return;
    }
    span->ticket = count;
    while (use) {
        berth__use *next = use->next_owned;
        use->owner = span;
        berth__use_add(use);
        use = next;
    }
}

void berth__pool_wait_for(berth__pool *pool, berth__span *span)
{
    BERTH_DCHECK(span->use_count != 0 && !span->index,
                 "[P3] what waits has a use for each stream and is in no index");
    span->ticket = span->use_count; /* it waits: nobody takes it for idle */
    berth__spans_add(&pool->marking, span);
    berth__pool_unlock(pool);
    for (berth__use *use = span->uses; use; use = use->next_owned)
        berth__use_mark(&pool->streams, use);
    berth__pool_lock(pool);
    berth__spans_remove(&pool->marking, span);
    pool_start_waiting(pool, span);
    /* A stream that always finds its own blocks again never runs short, so that no allocation collects. */
    if (!pool->collecting && pool->waiting_count > 2 * pool->waiting_kept + 64) {
        (void)berth__pool_collect(pool, false);
        pool->waiting_kept = pool->waiting_count;
    }
}

/* In the child of a fork: nobody knows how far the marking had come. A later point does as well, with events that
 * nobody was busy with. */
static void pool_mark_again(berth__pool *pool)
{
    BERTH_DCHECK(pool->collecting, "[P7] one thread at a time collects");
    berth__span *span;
    while ((span = pool->unmarked)) {
        berth__spans_remove(&pool->unmarked, span);
        for (berth__use *use = span->uses; use; use = use->next_owned)
            use->event = NULL;
        berth__pool_wait_for(pool, span);
    }
}

/* ---- Collecting ---------------------------------------------------------------------------------- */

/* Moves what the stream has passed up to `ticket` to free memory. */
static void pool_release_passed(berth__pool *pool, berth__pool_stream *known, uint64_t ticket)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] what the arena holds changes under the lock");
    berth__span *next;
    for (berth__span *span = berth__index_next(&known->index, NULL); span; span = next) {
        next = berth__index_next(&known->index, span);
        if (span->ticket <= ticket)
            berth__pool_put(pool, berth__arena_take(&pool->arena, span, span->address, span->size_bytes));
    }
}

/* With the lock: the uses that a queue has let go of, oldest first. */
static void pool_finish_uses(berth__pool *pool, berth__pool_stream *known, berth__use *passed)
{
    uint64_t ticket = 0;
    while (passed) {
        berth__use *use = passed;
        berth__span *span = use->owner;
        passed = use->next;
        BERTH_DCHECK(use->added > ticket, "[H3] uses of a stream pass in the order in which they were added");
        BERTH_DCHECK(pool->waiting_count > 0 && (!span || span->ticket > 0),
                     "[P7] what passes was waited for");
        ticket = use->added;
        pool->waiting_count--;
        if (span && --span->ticket == 0)
            berth__pool_put(pool, span);
        pool_give_use(use);
    }
    if (ticket)
        pool_release_passed(pool, known, ticket);
}

/* With the lock, dropped and taken again: frees what one stream has passed. */
static bool pool_collect_from(berth__pool *pool, berth__stream_queue *q, bool wait)
{
    uint64_t count = 0;
    if (!berth__stream_queue_begin(q))
        return false;
    BERTH_DCHECK(q->beside, "[P7] the pool knows the stream of everything that waits");
    berth__pool_unlock(pool);
    berth__use *last =
        wait ? berth__stream_queue_wait(q, &count) : berth__stream_queue_look(q, false, &count);
    berth__pool_relock(pool);
    pool_finish_uses(pool, q->beside, berth__stream_queue_end(q, last, count));
    return count != 0;
}

/* With the lock, dropped and taken again: lets go of streams that were destroyed, and of all that are not in use when
 * there are many. */
static void pool_forget_streams(berth__pool *pool)
{
    if (!berth__streams_suspect(&pool->streams, berth__streams_are_crowded(&pool->streams)))
        return;
    uint32_t count = atomic_load(&pool->streams.count);
    for (uint32_t place = 0; place < count; place++) {
        berth__stream_queue *q = berth__streams_at(&pool->streams, place);
        berth__pool_stream *known = q->beside;
        (void)BERTH_ASSERT(!known || known->users || !known->index.root,
                           "[P7] what lies in a stream's index waits with a use of its queue");
        if (known && known->users) {
            q->suspect = false;
        } else if (q->suspect) {
            berth__heap_free(known);
            q->beside = NULL;
        }
    }
    berth__stream_queue *gone = berth__streams_take_suspects(&pool->streams);
    berth__pool_unlock(pool); /* dropping the last reference to a stream is a driver call */
    berth__streams_release(gone);
    berth__pool_relock(pool);
    berth__streams_reuse(&pool->streams, gone);
}

bool berth__pool_collect(berth__pool *pool, bool wait)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[B1] with the lock");
    if (pool->waiting_count == 0 && !pool->unmarked)
        return false;
    if (pool->collecting) { /* another thread is at it; its finds are for all */
        bool soon = wait || !pool->collecting_waits;
        berth__pool_unlock(pool);
        sched_yield();
        berth__pool_relock(pool);
        return soon;
    }
    pool->collecting = true;
    pool->collecting_waits = wait;
    bool any = pool->unmarked != NULL;
    pool_mark_again(pool);
    uint32_t count = atomic_load(&pool->streams.count);
    for (uint32_t place = 0; place < count; place++)
        any |= pool_collect_from(pool, berth__streams_at(&pool->streams, place), wait);
    pool_forget_streams(pool);
    pool->collecting = false;
    return any;
}

/* ---- The end ------------------------------------------------------------------------------------- */

/* With the lock, dropped and taken again: waits for the stream itself where its events do not come. False: that
 * does not help either, and work may still run on the blocks. */
static bool pool_drain(berth__pool *pool, berth__stream_queue *q)
{
    berth__use *last;
    uint64_t count;
    if (!berth__stream_queue_begin(q))
        return true;
    berth__pool_unlock(pool);
    bool drained = berth__stream_queue_drain(q, &last, &count);
    berth__pool_relock(pool);
    pool_finish_uses(pool, q->beside, berth__stream_queue_end(q, last, count));
    return drained;
}

bool berth__pool_wait_finish(berth__pool *pool)
{
    bool drained = true;
    berth__pool_lock(pool);
    while ((pool->waiting_count || pool->unmarked) && berth__pool_collect(pool, true))
        continue;
    uint32_t count = atomic_load(&pool->streams.count);
    for (uint32_t place = 0; place < count; place++)
        drained &= pool_drain(pool, berth__streams_at(&pool->streams, place));
    berth__pool_unlock(pool);
    if (!drained)
        return false;
    (void)BERTH_ASSERT(pool->waiting_count == 0, "[P7] nothing waits for streams that have all come to rest");
    for (uint32_t place = 0; place < count; place++)
        berth__heap_free(berth__streams_at(&pool->streams, place)->beside);
    berth__streams_finish(&pool->streams);
    return true;
}

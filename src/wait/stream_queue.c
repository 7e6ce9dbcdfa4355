/* Queues of uses, the set of streams that has them, and the search for what is complete. */
#include "wait/stream_queue.h"

#include <string.h>

#include "device/device.h"

#define RANK BERTH__RANK_CACHE_LIST

/* ---- The set of streams ---------------------------------------------------------------------------- */

static uint32_t streams_piece_of(uint32_t place)
{
    return 31u - (uint32_t)__builtin_clz(place / 16 + 1);
}

berth__stream_queue *berth__streams_at(berth__streams *set, uint32_t place)
{
    uint32_t piece = streams_piece_of(place);
    berth__stream_queue *queues = atomic_load_explicit(&set->pieces[piece], memory_order_acquire);
    BERTH_DCHECK(queues, "[P7] a place that was given has its piece");
    return &queues[place - ((16u << piece) - 16u)];
}

static uint32_t streams_hash(uint64_t id)
{
    return (uint32_t)((id * 0x9E3779B97F4A7C15u) >> 32);
}

/* With the lock held: where `id` is, or the empty entry where it would go. */
static uint32_t *entry_of(berth__streams *set, uint64_t id)
{
    for (uint32_t i = streams_hash(id);; i++) {
        uint32_t *entry = &set->places[i & set->places_mask];
        if (*entry == 0 || berth__streams_at(set, *entry - 1)->stream_id == id)
            return entry;
    }
}

/* With the lock held: room for one more at a load of at most one half. */
static bool grow_entries(berth__streams *set)
{
    uint32_t live = atomic_load_explicit(&set->live, memory_order_relaxed);
    if (set->places && (live + 1) * 2 <= set->places_mask)
        return true;
    uint32_t size = set->places ? (set->places_mask + 1) * 2 : 32;
    uint32_t *fresh = berth__heap_zalloc(size, sizeof *fresh);
    if (!fresh)
        return false;
    uint32_t *old = set->places, old_size = set->places ? set->places_mask + 1 : 0;
    set->places = fresh;
    set->places_mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i])
            *entry_of(set, berth__streams_at(set, old[i] - 1)->stream_id) = old[i];
    berth__heap_free(old);
    return true;
}

/* With the lock held: a place that is free, NULL when there is no memory. */
static berth__stream_queue *streams_take_place(berth__streams *set)
{
    if (set->spare_places) {
        berth__stream_queue *q = set->spare_places;
        set->spare_places = q->next_spare;
        return q;
    }
    uint32_t place = atomic_load_explicit(&set->count, memory_order_relaxed);
    uint32_t piece = streams_piece_of(place);
    if (piece >= BERTH__STREAM_PIECES)
        return NULL;
    if (!atomic_load_explicit(&set->pieces[piece], memory_order_relaxed)) {
        berth__stream_queue *queues = berth__heap_zalloc((size_t)16 << piece, sizeof *queues);
        if (!queues)
            return NULL;
        atomic_store_explicit(&set->pieces[piece], queues, memory_order_release);
    }
    berth__stream_queue *q = berth__streams_at(set, place);
    q->place = place;
    q->incoming_end = &q->incoming;
    q->waiting_end = &q->waiting;
    atomic_store_explicit(&set->count, place + 1, memory_order_release);
    return q;
}

static berth__stream_queue *streams_enter_locked(berth__streams *set, berth_stream *stream)
{
    if (!grow_entries(set))
        return NULL;
    uint32_t *entry = entry_of(set, stream->id);
    if (*entry)
        return berth__streams_at(set, *entry - 1);
    berth__stream_queue *q = streams_take_place(set);
    if (!q)
        return NULL;
    q->stream = berth__stream_retain(stream);
    q->stream_id = stream->id;
    BERTH_DCHECK(berth__stream_queue_length(q) == 0 && !q->beside && !q->spares,
                 "[P7] a spare place is empty");
    *entry = q->place + 1;
    atomic_fetch_add_explicit(&set->live, 1, memory_order_relaxed);
    return q;
}

berth__stream_queue *berth__streams_enter(berth__streams *set, berth_stream *stream)
{
    berth__spin_lock(&set->lock, RANK);
    berth__stream_queue *q = streams_enter_locked(set, stream);
    berth__spin_unlock(&set->lock, RANK);
    return q;
}

berth__stream_queue *berth__streams_find(berth__streams *set, berth_stream *stream)
{
    berth__spin_lock(&set->lock, RANK);
    const uint32_t *entry = set->places ? entry_of(set, stream->id) : NULL;
    berth__stream_queue *q = entry && *entry ? berth__streams_at(set, *entry - 1) : NULL;
    berth__spin_unlock(&set->lock, RANK);
    return q;
}

/* With the lock held. Entries behind the hole move up, so that no search ends early. */
static void remove_entry(berth__streams *set, uint64_t id)
{
    uint32_t hole = (uint32_t)(entry_of(set, id) - set->places);
    set->places[hole] = 0;
    for (uint32_t i = (hole + 1) & set->places_mask; set->places[i]; i = (i + 1) & set->places_mask) {
        uint32_t moved = set->places[i];
        set->places[i] = 0;
        *entry_of(set, berth__streams_at(set, moved - 1)->stream_id) = moved;
    }
}

static void destroy_spares(berth__use *spares)
{
    while (spares) {
        berth__use *next = spares->next;
        berth_event_destroy(spares->event);
        berth__heap_free(spares);
        spares = next;
    }
}

bool berth__streams_suspect(berth__streams *set, bool held)
{
    bool any = false;
    uint32_t count = atomic_load_explicit(&set->count, memory_order_relaxed);
    for (uint32_t place = 0; place < count; place++) {
        berth__stream_queue *q = berth__streams_at(set, place);
        /* One that comes again (others may still hold it) is entered anew. Who collects holds on to it. */
        q->suspect = q->stream &&
                     (held || atomic_load_explicit(&q->stream->destroyed, memory_order_acquire)) &&
                     berth__stream_queue_length(q) == 0 &&
                     atomic_load_explicit(&q->collecting, memory_order_acquire) == 0;
        any |= q->suspect;
    }
    return any;
}

berth__stream_queue *berth__streams_take_suspects(berth__streams *set)
{
    berth__stream_queue *taken = NULL;
    uint32_t count = atomic_load_explicit(&set->count, memory_order_relaxed);
    for (uint32_t place = 0; place < count; place++) {
        berth__stream_queue *q = berth__streams_at(set, place);
        if (!q->suspect || !BERTH_ASSERT(atomic_load_explicit(&q->collecting, memory_order_acquire) == 0,
                                         "[P7] nobody begins to collect while the world is stopped"))
            continue;
        remove_entry(set, q->stream_id);
        atomic_fetch_sub_explicit(&set->live, 1, memory_order_relaxed);
        /* Nobody finds it from here on: the next to stop the world must not look at a stream that is being
         * released meanwhile. */
        (void)BERTH_ASSERT(!q->beside, "[P7] the holder has dropped what it kept beside a stream that goes");
        q->leaving = q->stream;
        q->leaving_uses = q->spares;
        q->stream = NULL;
        q->stream_id = 0;
        q->spares = NULL;
        q->suspect = false;
        q->next_spare = taken;
        taken = q;
    }
    atomic_store_explicit(&set->live_after_sweep, atomic_load_explicit(&set->live, memory_order_relaxed),
                          memory_order_relaxed);
    return taken;
}

void berth__streams_release(berth__stream_queue *taken)
{
    for (berth__stream_queue *q = taken; q; q = q->next_spare) {
        BERTH_DCHECK(q->leaving && !q->stream, "[P7] what goes back to the driver is off the books");
        destroy_spares(q->leaving_uses);
        berth__stream_release(q->leaving);
        q->leaving_uses = NULL;
        q->leaving = NULL;
    }
}

void berth__streams_reuse(berth__streams *set, berth__stream_queue *taken)
{
    berth__spin_lock(&set->lock, RANK);
    while (taken) {
        berth__stream_queue *q = taken;
        BERTH_DCHECK(!q->stream && !q->leaving && !q->incoming && !q->waiting, "[P7] a spare place is empty");
        taken = q->next_spare;
        q->next_spare = set->spare_places;
        set->spare_places = q;
    }
    berth__spin_unlock(&set->lock, RANK);
}

bool berth__streams_are_crowded(berth__streams *set)
{
    return atomic_load_explicit(&set->live, memory_order_relaxed) >
           2 * atomic_load_explicit(&set->live_after_sweep, memory_order_relaxed) + 16;
}

uint64_t berth__streams_events_recorded(berth__streams *set)
{
    uint64_t marks = 0;
    uint32_t count = atomic_load_explicit(&set->count, memory_order_acquire);
    for (uint32_t place = 0; place < count; place++)
        marks += atomic_load_explicit(&berth__streams_at(set, place)->marks, memory_order_relaxed);
    return marks;
}

void berth__streams_finish(berth__streams *set)
{
    uint32_t count = atomic_load(&set->count);
    for (uint32_t place = 0; place < count; place++) {
        berth__stream_queue *q = berth__streams_at(set, place);
        BERTH_DCHECK(berth__stream_queue_length(q) == 0, "[H8] nothing waits when the set is finished");
        destroy_spares(q->spares);
        if (q->stream)
            berth__stream_release(q->stream);
    }
    for (uint32_t piece = 0; piece < BERTH__STREAM_PIECES; piece++)
        berth__heap_free(atomic_load(&set->pieces[piece]));
    berth__heap_free(set->places);
    memset(set, 0, sizeof *set);
}

/* ---- Uses ------------------------------------------------------------------------------------------ */

berth__use *berth__use_take(berth__stream_queue *q)
{
    berth__spin_lock(&q->lock, RANK);
    berth__use *use = q->spares;
    if (use)
        q->spares = use->next;
    berth__spin_unlock(&q->lock, RANK);
    if (!use)
        use = berth__heap_zalloc(1, sizeof *use);
    if (use) {
        use->queue = q;
        atomic_store_explicit(&use->passed, false, memory_order_relaxed);
    }
    return use;
}

void berth__use_give(berth__use *use)
{
    berth__stream_queue *q = use->queue;
    berth__spin_lock(&q->lock, RANK);
    use->next = q->spares;
    q->spares = use;
    berth__spin_unlock(&q->lock, RANK);
}

/* Forgotten first: the child of a fork at this moment must not find an event that is half destroyed. */
void berth__use_drop_event(berth__use *use)
{
    berth_event *event = use->event;
    use->event = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    berth_event_destroy(event);
}

void berth__use_mark(berth__streams *set, berth__use *use)
{
    berth__stream_queue *q = use->queue;
    BERTH_DCHECK(q->stream, "[P7] a queue holds its stream while uses name it");
    use->begun = atomic_load_explicit(&q->clock, memory_order_acquire);
    if (use->event && !berth_device_equal(use->event->device, q->stream->device))
        berth__use_drop_event(use);
    if (!use->event && berth_event_create(q->stream->device, &use->event) == BERTH_OK)
        atomic_fetch_add_explicit(&set->events_created, 1, memory_order_relaxed);
    use->marked = use->event && berth_event_record(use->event, q->stream) == BERTH_OK;
}

void berth__use_add(berth__use *use)
{
    berth__stream_queue *q = use->queue;
    use->next = NULL;
    berth__spin_lock(&q->lock, RANK);
    use->added = atomic_load_explicit(&q->clock, memory_order_relaxed) + 1;
    BERTH_DCHECK(*q->incoming_end == NULL && use->begun < use->added,
                 "[H3] a use is added last, and after it was marked");
    atomic_store_explicit(&q->clock, use->added, memory_order_release);
    atomic_store_explicit(&q->marks, atomic_load_explicit(&q->marks, memory_order_relaxed) + use->marked,
                          memory_order_relaxed);
    *q->incoming_end = use;
    q->incoming_end = &use->next;
    berth__spin_unlock(&q->lock, RANK);
}

/* ---- Collecting ------------------------------------------------------------------------------------ */

/* How far the stream is known to have come, in readings of the queue's clock. */
typedef struct progress {
    berth__stream_queue *queue;
    uint64_t passed; /* uses added at or before this reading are complete */
} progress;

/* The whole stream at rest has passed everything that was added before it was asked. One of a lost device runs nothing
 * any more: what waited for it would wait for ever. */
static bool is_at_rest(progress *known)
{
    uint64_t reading = atomic_load_explicit(&known->queue->clock, memory_order_acquire);
    berth_status status = berth_stream_query(known->queue->stream);
    if (status && status != BERTH_DEVICE_LOST)
        return false;
    known->passed = reading;
    return true;
}

/* Whether the stream has passed the use; asks the driver if that is not known yet. */
static bool has_passed(progress *known, const berth__use *use)
{
    if (use->added <= known->passed)
        return true;
    if (!use->marked)
        return is_at_rest(known);
    berth_status status = berth_event_query(use->event);
    if (!status && use->begun > known->passed)
        known->passed = use->begun;
    /* An event that cannot be asked says nothing; the stream may. */
    return !status || (status != BERTH_NOT_READY && is_at_rest(known));
}

/* An event that got lost would hold everything behind it. Where the stream has come to rest, it has passed
 * everything; where it never rests, later uses are asked, at doubling distances, until one answers for those
 * before it. */
static void look_further(progress *known, const berth__use *first)
{
    uint32_t distance = 1;
    if (is_at_rest(known))
        return;
    for (const berth__use *use = first->next; use; distance *= 2) {
        if (has_passed(known, use))
            return;
        for (uint32_t step = 0; use && step < distance; step++)
            use = use->next;
    }
}

berth__use *berth__stream_queue_look(berth__stream_queue *q, bool thorough, uint64_t *count)
{
    progress known = {.queue = q};
    berth__use *last = NULL;
    BERTH_DCHECK((q->waiting == NULL) == (q->newest == NULL), "[H3] what waits has a newest one");
    bool newest_passed = q->newest && has_passed(&known, q->newest);
    bool look = thorough || ++q->attempts % 16 == 0;
    *count = 0;
    for (berth__use *use = q->waiting; use; use = use->next) {
        bool passed = (use == q->newest && newest_passed) || has_passed(&known, use);
        if (!passed && look) {
            look = false;
            look_further(&known, use);
            passed = use->added <= known.passed;
        }
        if (!passed)
            break;
        last = use;
        ++*count;
    }
    return last;
}

berth__use *berth__stream_queue_wait(berth__stream_queue *q, uint64_t *count)
{
    BERTH_DCHECK(q->waiting && atomic_load(&q->collecting), "[H3] who waits has begun, and something waits");
    /* What comes of the waiting is seen by looking. */
    if (q->waiting->marked)
        (void)berth_event_wait(q->waiting->event);
    else
        (void)berth_stream_synchronize(q->stream);
    return berth__stream_queue_look(q, true, count);
}

bool berth__stream_queue_drain(berth__stream_queue *q, berth__use **last, uint64_t *count)
{
    BERTH_DCHECK((q->waiting == NULL) == (q->newest == NULL), "[H3] what waits has a newest one");
    berth_status status = berth_stream_synchronize(q->stream);
    bool at_rest = !status || status == BERTH_DEVICE_LOST;
    *last = at_rest ? q->newest : NULL;
    *count = 0;
    for (const berth__use *use = q->waiting; at_rest && use; use = use->next)
        ++*count;
    return at_rest;
}

bool berth__stream_queue_begin(berth__stream_queue *q)
{
    if (berth__stream_queue_length(q) == 0 ||
        atomic_exchange_explicit(&q->collecting, 1, memory_order_acquire) != 0)
        return false;
    berth__spin_lock(&q->lock, RANK);
    if (q->incoming) {
        *q->waiting_end = q->incoming;
        q->waiting_end = q->incoming_end;
        q->newest = (berth__use *)(void *)((char *)q->incoming_end - offsetof(berth__use, next));
        BERTH_DCHECK(!q->newest->next, "[H3] the newest of what waits is its last");
        q->incoming = NULL;
        q->incoming_end = &q->incoming;
    }
    berth__spin_unlock(&q->lock, RANK);
    return true;
}

berth__use *berth__stream_queue_end(berth__stream_queue *q, berth__use *last, uint64_t count)
{
    berth__use *first = NULL;
    BERTH_DCHECK(!last == (count == 0) && count <= berth__stream_queue_length(q),
                 "[H3] what is taken out waited");
    if (last) {
        first = q->waiting;
        q->waiting = last->next;
        last->next = NULL;
        if (!q->waiting) {
            q->waiting_end = &q->waiting;
            q->newest = NULL;
        }
        q->attempts = 0;
        atomic_store_explicit(&q->collected,
                              atomic_load_explicit(&q->collected, memory_order_relaxed) + count,
                              memory_order_release);
    }
    atomic_store_explicit(&q->collecting, 0, memory_order_release);
    return first;
}

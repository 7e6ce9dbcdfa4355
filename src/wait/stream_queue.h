/* What waits for streams: one first-in-first-out queue a stream, each entry with an event behind the work
 * that was enqueued when it was added.
 *
 *     a use joins an owner (a block) to a stream:   begin -> mark -> add -> ... -> collected
 *
 *                 add                      splice                   collect
 *     thread ----------> [ incoming ] ----------------> [ waiting ] --------> owner
 *                         guard: lock                   guard: whoever set `collecting`
 *
 * Events of one stream complete in order, so the newest that is complete answers for all marked before it,
 * and the oldest that is not ends the search. Threads that mark at the same time may add in another order
 * than they marked; each use therefore carries two readings of the queue's clock, from before the mark and
 * from the adding: a complete use answers for those whose second reading is not above its own first [H3]. An
 * event that got lost is answered for by a later one; a mark that failed is replaced by asking whether the
 * whole stream has come to rest.
 *
 * No driver call is made with `lock` held. `collecting` is not a lock: nobody waits for it. */
#ifndef BERTH_WAIT_STREAM_QUEUE_H
#define BERTH_WAIT_STREAM_QUEUE_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"
#include "berth/device.h"

typedef struct berth__stream_queue berth__stream_queue;
typedef struct berth__use berth__use;

/* One stream's use of one owner. Its storage belongs to the owner, or to the queue's spares. */
struct berth__use {
    berth__use *next;       /* in a queue or among spares */
    berth__use *next_owned; /* the owner's own chain */
    berth__stream_queue *queue;
    void *owner;
    berth_event *event; /* kept from use to use; NULL until first needed */
    uint64_t begun;     /* the queue's clock before the mark */
    uint64_t added;     /* and when the use was added */
    uint64_t since_ns;
    bool marked;         /* the event stands for it; else the stream's rest does */
    _Atomic bool passed; /* collected */
};

struct berth__stream_queue {
    /* Retained; NULL: the place is spare. Set inside under the set's lock, cleared while the world is stopped:
     * who is inside may read it. */
    berth_stream *stream;
    uint64_t stream_id;          /* the same, as a number that never comes again */
    _Atomic uint32_t collecting; /* 1: somebody looks at `waiting` */
    _Atomic uint64_t clock;      /* uses added so far; written under `lock` */
    _Atomic uint64_t collected;  /* and collected; guard: collecting */
    berth__spin lock;
    berth__use *incoming, **incoming_end; /* guard: lock */
    berth__use *spares;                   /* guard: lock */
    berth__use *waiting, **waiting_end;   /* guard: collecting */
    berth__use *newest;                   /* the last of `waiting`; guard: collecting */
    _Atomic uint64_t marks;               /* events recorded so far; written under `lock` */
    uint32_t attempts;                    /* in vain since the last success; guard: collecting */
    uint32_t place;
    berth__stream_queue *next_spare; /* guard: the set's lock; or its taker's own */
    void *beside;                    /* the holder's own, which drops it before the place is given up */
    bool suspect;                    /* while the world is stopped */
    berth_stream *leaving;           /* taken off the books, with its spare uses; its taker's own */
    berth__use *leaving_uses;
};

/* Every stream that a cache has met. Piece k holds 16 << k queues, which stay where they are. */
enum { BERTH__STREAM_PIECES = 20 };

typedef struct berth__streams {
    _Atomic(berth__stream_queue *) pieces[BERTH__STREAM_PIECES];
    _Atomic uint32_t count; /* places in use or spare */
    _Atomic uint32_t live;  /* places in use */
    berth__spin lock;
    uint32_t *places;                  /* guard: lock. Open addressing by stream id: place + 1, 0 empty */
    uint32_t places_mask;              /* guard: lock */
    berth__stream_queue *spare_places; /* guard: lock */
    _Atomic uint32_t live_after_sweep;
    _Atomic uint64_t events_created;
} berth__streams;

/* All zero is an empty set. Finish destroys events and lets go of the streams; no use may be under way. */
void berth__streams_finish(berth__streams *set);

/* The queue of `stream`, made if it is new; NULL when there is no memory for it. */
berth__stream_queue *berth__streams_enter(berth__streams *set, berth_stream *stream);

/* The queue of a stream that the set has met, NULL if it has not. */
berth__stream_queue *berth__streams_find(berth__streams *set, berth_stream *stream);

/* The queue at a place below `count`. */
berth__stream_queue *berth__streams_at(berth__streams *set, uint32_t place);

/* How many events were recorded so far. */
uint64_t berth__streams_events_recorded(berth__streams *set);

/* A use from the queue's spares, or a new one; NULL when there is no memory. Give takes it back. */
berth__use *berth__use_take(berth__stream_queue *q);
void berth__use_give(berth__use *use);

/* Marks the present end of the use's stream. Never fails: without an event the stream itself is asked later.
 * Calls the driver: no lock may be held. */
void berth__use_mark(berth__streams *set, berth__use *use);

/* Destroys a use's event, where it has one. */
void berth__use_drop_event(berth__use *use);

/* Puts a marked use into its queue. Afterwards it, and its owner, may be collected at any moment. */
void berth__use_add(berth__use *use);

/* Collecting, in three steps. `begin` makes the caller the one who looks at the queue; false if nothing
 * waits, or somebody else looks. `look` finds the last use of the complete start of the queue, NULL if there
 * is none, and how many there are; it calls the driver, so no lock may be held; `thorough` asks more where an
 * event does not come, which otherwise happens only now and then. `end` takes them out and chains them by
 * `next`. Begin and end are short: a cache that must not be caught half way brackets them. */
bool berth__stream_queue_begin(berth__stream_queue *q);
berth__use *berth__stream_queue_look(berth__stream_queue *q, bool thorough, uint64_t *count);
/* Instead of `look`, for callers with nothing else to do: waits for the oldest use and looks thoroughly; `drain` waits
 * for the stream to come to rest, after which all has passed: false if the device does not say so. */
berth__use *berth__stream_queue_wait(berth__stream_queue *q, uint64_t *count);
bool berth__stream_queue_drain(berth__stream_queue *q, berth__use **last, uint64_t *count);
berth__use *berth__stream_queue_end(berth__stream_queue *q, berth__use *last, uint64_t count);

/* How many uses are in the queue. */
static inline uint64_t berth__stream_queue_length(const berth__stream_queue *q)
{
    return atomic_load_explicit(&q->clock, memory_order_acquire) -
           atomic_load_explicit(&q->collected, memory_order_acquire);
}

/* Letting go of streams that their user has destroyed (`held`: or not) and that nothing waits for, in four
 * steps. Other caches may hold such a stream too: each lets go of it by itself. With the world stopped: `suspect` marks them and says whether there are any, the caller clears the mark of
 * those that its live blocks name, `take_suspects` takes the others off the books. With nothing held: `release`
 * gives them back to the driver. Inside again, so that no fork finds the set's lock taken: `reuse` makes
 * their places spare. */
bool berth__streams_suspect(berth__streams *set, bool held);
berth__stream_queue *berth__streams_take_suspects(berth__streams *set);
void berth__streams_release(berth__stream_queue *taken);
void berth__streams_reuse(berth__streams *set, berth__stream_queue *taken);

/* Whether so many streams came since the last sweep that another is worth its while. */
bool berth__streams_are_crowded(berth__streams *set);

#endif

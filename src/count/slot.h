/* Slots: what each thread keeps for itself of a common figure, and the one barrier between a thread and others
 * that look at its slot.
 *
 * A slot holds credit: bytes that were claimed from the common figure for its thread and that the thread does not
 * use. Taking from the credit and giving back to it touches the slot only. What to do when it does not suffice is
 * the business of the two users of slots: a meter (statistics) stops its threads for a moment, a quota (limits, and the
 * figures whose peak is true: labels, the pool, the host cache) calls credit back without waiting for anybody.
 *
 * Stopping: a thread marks its slot busy (a plain store) and then looks whether the table is stopped; the stopper
 * sets that mark, passes the heavy side of the barrier (base/thread.h) and waits until no slot is busy. Between
 * stop and resume no thread is inside a slot, and none enters [S1].
 *
 *       the slot's thread:   busy = me      | light |   is the table stopped?      ... inside ...   busy = 0
 *       who stops:           stopped = 1    | heavy |   wait until busy is 0
 *
 * All zero is a table that nobody has used, so that a static one works before main. */
#ifndef BERTH_COUNT_SLOT_H
#define BERTH_COUNT_SLOT_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/thread.h"
#include "berth/allocator.h"

#define BERTH__SLOT_LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define BERTH__SLOT_STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* One cache line a thread. */
typedef struct berth__slot {
    _Atomic uint32_t busy;  /* berth__inside while its thread is, else 0 */
    _Atomic uint32_t takes; /* a quota's: how often the thread took; written by it alone [M8] */
                            /* a meter's: frees that were too large for the credit; written as that is */
    _Atomic int64_t credit; /* a quota's: written by its thread alone, at any time */
    union {
        struct { /* a meter's: written by the slot's thread while busy, by others while stopped */
            _Atomic int64_t credit_max;
            _Atomic int64_t
                blocks; /* allocated less freed by this thread: below 0 where others allocated them */
        };
        struct {                   /* a quota's */
            _Atomic uint32_t open; /* berth__quota_open; written under the lock, a fresh slot is closed */
            uint32_t takes_seen;   /* guard: lock. By who looked at the credit last, before */
            int64_t
                called_back; /* guard: lock. Part of the credit that is the thread's no longer; 0 while open */
        };
    };
    /* Allocations: written by the slot's thread while busy, by others while stopped. */
    _Atomic uint64_t num_allocs;
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t largest;
    union {                  /* for who counts: */
        uint64_t owner_word; /* only the slot's thread may touch it */
        void *beside;        /* the slot's thread while busy, others while stopped */
    };
} berth__slot;

_Static_assert(sizeof(berth__slot) == 64, "threads in two slots do not write to one cache line");

/* Slots for the first threads are in the table, piece k after that holds BERTH__SLOTS_FIRST << (k + 1). */
enum { BERTH__SLOTS_FIRST = 32, BERTH__SLOTS_PIECES = 7 };

/* All that the word `stopped` may say. Threads enter in spite of the marks, which are set and cleared only while the
 * table is stopped; they keep threads off the fast paths (berth__slot_enter_fast). */
enum {
    BERTH__SLOTS_STOPPED = 1, /* for a moment */
    BERTH__SLOTS_CLOSED = 2,  /* for good: from then on figures move under the lock */
    BERTH__MARK_FORK = 4,     /* trackers: a fork is near, and shards are entered with their locks only */
    BERTH__MARK_CLOSING = 8,  /* pools and host caches: the last reference is gone */
    BERTH__MARK_SLOW =
        16, /* pools and host caches: no fast path: the barrier costs both sides, or a checker listens */
    BERTH__MARK_CLOCK = 32,      /* host caches: blocks bear the time */
    BERTH__MARK_SOFT_LIMIT = 64, /* host caches: idle bytes are limited */
};

typedef struct berth__slots {
    _Alignas(64) berth__slot first[BERTH__SLOTS_FIRST];
    _Atomic uint32_t stopped; /* see above */
    _Atomic uint32_t fast; /* how many slots fast paths may use: 0 until that is known, and for ever where the
                               * barrier is not asymmetric; one comparison asks for both */
    berth__spin lock;      /* stopping, and what the table's user keeps under it */
    _Atomic(berth__slot *) pieces[BERTH__SLOTS_PIECES];
    _Atomic uint64_t num_failures;
    _Atomic uint64_t num_retries;
    berth__slot common; /* guard: lock. Counts of threads that have no slot; its credit stays 0 */
} berth__slots;

/* Gives later threads' slots back. No call may be under way. */
void berth__slots_finish(berth__slots *t);

void berth__slots_lock(berth__slots *t);
void berth__slots_unlock(berth__slots *t);
/* For assertions: the calling thread has the lock; and nobody is inside. */
static inline bool berth__slots_are_locked(const berth__slots *t)
{
    return berth__spin_is_mine(&t->lock, BERTH__RANK_METER);
}
static inline bool berth__slots_are_stopped(const berth__slots *t)
{
    return (BERTH__SLOT_LOAD(t->stopped) & BERTH__SLOTS_STOPPED) != 0;
}

/* With the lock, once: from now on fast paths may be tried, if there is an asymmetric barrier. */
void berth__slots_allow_fast(berth__slots *t);

/* The slot of a thread beyond the first; NULL: it has none, or there is no memory. */
berth__slot *berth__slot_find(berth__slots *t, uint32_t thread);

/* The slot of a thread by its number; NULL if it has none. */
BERTH__INLINE berth__slot *berth__slot_of(berth__slots *t, uint32_t thread)
{
    return BERTH_LIKELY(thread < BERTH__SLOTS_FIRST) ? &t->first[thread] : berth__slot_find(t, thread);
}

/* The calling thread's slot, if it has one that berth__slot_enter_fast may be used with; else NULL. */
BERTH__INLINE berth__slot *berth__slot_fast(berth__slots *t)
{
    uint32_t thread = berth__thread_plus_one - 1;
    if (BERTH_UNLIKELY(thread >= BERTH__SLOT_LOAD(t->fast)))
        return NULL;
    return &t->first[thread];
}

/* The sum of what `each` answers for every slot that a thread may have used, but for `except`, which may be NULL. */
typedef int64_t (*berth__slot_fn)(berth__slot *slot, uint32_t *count);
int64_t berth__slots_sum(berth__slots *t, const berth__slot *except, berth__slot_fn each, uint32_t *count);

/* For walkers of figures over slots, with the lock. `each` counts what is wrong with one and answers its credit; `agrees`
 * looks at the common figures with the sum. */
bool berth__slots_are_valid(berth__slots *t, berth__slot_fn each,
                            bool (*agrees)(const void *figures, int64_t credit), const void *figures);

/* ---- Inside ---------------------------------------------------------------------------------------- */

/* Marks the slot busy; false (and not busy) if the table is stopped. */
BERTH__INLINE bool berth__slot_enter(berth__slots *t, berth__slot *slot)
{
    uint32_t mark = berth__inside();
    BERTH__SLOT_STORE(slot->busy, mark);
    berth__barrier_light_at(mark);
    uint32_t stopped = atomic_load_explicit(&t->stopped, memory_order_acquire);
    if (BERTH_LIKELY((stopped & (BERTH__SLOTS_STOPPED | BERTH__SLOTS_CLOSED)) == 0))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

/* The same for a fast path, for users that know that the barrier is asymmetric: false also if there is a mark. */
BERTH__INLINE bool berth__slot_enter_fast(berth__slots *t, berth__slot *slot)
{
    BERTH__SLOT_STORE(slot->busy, berth__inside());
    atomic_signal_fence(memory_order_seq_cst);
    if (BERTH_LIKELY(atomic_load_explicit(&t->stopped, memory_order_acquire) == 0))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

BERTH__INLINE void berth__slot_leave(berth__slot *slot)
{
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
}

/* Waits until the slot's thread is not inside; the heavy barrier has been passed. */
void berth__slot_wait(berth__slot *slot);

/* Enters the thread's slot and returns it; without one, or once closed, takes the lock and returns the common one. */
berth__slot *berth__slots_enter_any(berth__slots *t, berth__slot *slot);
void berth__slots_leave_any(berth__slots *t, berth__slot *slot);

/* Between the two no thread is inside a slot, and none enters: who keeps something beside the figures can then look
 * at every thread's. A thread that finds the table stopped waits with berth__slots_wait_resumed. */
void berth__slots_stop(berth__slots *t);
void berth__slots_resume(berth__slots *t);
void berth__slots_wait_resumed(berth__slots *t);
/* The same for who has the lock already, and keeps it. */
void berth__slots_stop_locked(berth__slots *t);
void berth__slots_resume_locked(berth__slots *t);

/* While stopped, or before the first use: sets and clears marks. Reading them is exact inside. */
void berth__slots_mark(berth__slots *t, uint32_t marks);
void berth__slots_unmark(berth__slots *t, uint32_t marks);
BERTH__INLINE bool berth__slots_has(berth__slots *t, uint32_t marks)
{
    return BERTH_UNLIKELY((BERTH__SLOT_LOAD(t->stopped) & marks) != 0);
}

/* While stopped: calls `each` with what lies beside every slot's figures and is not NULL. */
void berth__slots_visit_beside(berth__slots *t, void (*each)(void *context, void *beside), void *context);

/* ---- Counts ---------------------------------------------------------------------------------------- */

void berth__slots_count_failure(berth__slots *t);
void berth__slots_count_retry(berth__slots *t);
/* Fills counts, total, largest, failures and retries in. Exact when no call is under way. */
void berth__slots_read_counts(berth__slots *t, berth_stats *out);
/* All of these to 0. The second form: with the lock, while stopped. */
void berth__slots_clear_counts(berth__slots *t);
void berth__slots_clear_counts_stopped(berth__slots *t);
/* Counts one allocation of a thread that is not inside. */
void berth__slots_count(berth__slots *t, uint64_t size_bytes);

/* Inside: counts one allocation. */
BERTH__INLINE void berth__slot_count(berth__slot *slot, uint64_t size_bytes)
{
    BERTH__SLOT_STORE(slot->num_allocs, BERTH__SLOT_LOAD(slot->num_allocs) + 1);
    BERTH__SLOT_STORE(slot->total_bytes, BERTH__SLOT_LOAD(slot->total_bytes) + size_bytes);
    if (BERTH_UNLIKELY(size_bytes > BERTH__SLOT_LOAD(slot->largest)))
        BERTH__SLOT_STORE(slot->largest, size_bytes);
}

/* Inside: one live block more, or one less (-1), of the slot's thread: for tables that are closed one day. */
BERTH__INLINE void berth__slot_hold(berth__slot *slot, int64_t blocks)
{
    BERTH__SLOT_STORE(slot->blocks, BERTH__SLOT_LOAD(slot->blocks) + blocks);
}

#endif

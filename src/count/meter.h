/* The meter: bytes in use, their peak and counts, kept so that threads do not meet at one counter.
 *
 * Every thread has a slot with figures that it alone writes. A slot holds credit: bytes that it has claimed
 * from the meter and not used. Allocating within the credit, and freeing into it, touches only the slot.
 *
 *       claimed  =  in use  +  credit of all slots          [M1]
 *       peak     >= claimed at every commit                 [M2]   so it is never below the true peak
 *       credit   <= 64 KiB a slot once several threads came [M3]   so it is above it by no more than that
 *
 * The first thread owns the meter: its credit has no bound, claimed is the peak itself, and it is exact
 * without a single locked instruction. When a second thread comes, the owner is stopped for a moment, the
 * credit collected, and from then on all take and return theirs in pieces. Stopping uses an asymmetric
 * barrier: a thread marks its slot busy (a plain store) and then looks whether the meter is stopped; the
 * stopper sets that mark, makes both sides see each other's, and waits until no slot is busy. Clearing, and a
 * limit that is nearly reached, collect the credit in the same way.
 *
 * An exact meter gives no credit: one locked addition for each call.
 *
 * All zero is a meter that nobody has used, so that a static one works before main. */
#ifndef BERTH_COUNT_METER_H
#define BERTH_COUNT_METER_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/thread.h"
#include "berth/allocator.h"

#define BERTH__METER_CREDIT ((int64_t)64 << 10)

/* Written by its owner while busy, by others only while the meter is stopped. */
typedef struct berth__meter_slot {
    _Atomic uint32_t busy;  /* berth__inside while its owner is, else 0 */
    _Atomic uint32_t takes; /* how often it took bytes into use, where the meter's peak is a true one */
    _Atomic int64_t credit;
    _Atomic int64_t credit_max;
    _Atomic uint64_t num_allocs;
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t largest;
    _Atomic int64_t blocks;  /* allocated less freed by this thread: below 0 where others allocated them */
    union {                  /* for the meter's user: */
        uint64_t owner_word; /* only the slot's thread may touch it */
        void *beside;        /* the slot's thread while busy, others while stopped */
    };
} berth__meter_slot;

/* Piece k holds BERTH__METER_PIECE << k slots. */
enum { BERTH__METER_PIECE = 32, BERTH__METER_PIECES = 8 };

/* Stopped for a moment, or for good: then its figures go on under the lock. The user of a meter may set other
 * bits, only while it is stopped, that keep its threads off its own short ways (berth__meter_enter_unmarked).
 */
enum { BERTH__METER_STOPPED = 1, BERTH__METER_CLOSED = 2, BERTH__METER_MARKS = ~3 };

typedef struct berth__meter {
    /* read by everybody, rarely written */
    bool exact;               /* set before first use */
    _Atomic bool hoards;      /* slots may keep any credit; changed while stopped. See berth__meter_hoard */
    uint32_t reclaims;        /* how often hoarded credit had to be collected; guard: lock */
    _Atomic int64_t limit;    /* 0: none; set before first use or with berth__meter_set_limit */
    _Atomic uint32_t stopped; /* see BERTH__METER_STOPPED */
    _Atomic uint32_t owner;   /* meter_fresh, meter_shared, or a thread's number + meter_owned */
    _Atomic uint32_t quick;   /* how many slots the short ways have: 0 until the first piece is there, and for
                               * ever where the barrier is not asymmetric; one comparison asks for both */
    _Atomic(berth__meter_slot *) pieces[BERTH__METER_PIECES];
    uint64_t apart[8];
    /* written whenever credit is taken or returned */
    _Atomic int64_t claimed;
    _Atomic int64_t peak;
    _Atomic uint64_t num_failures;
    _Atomic uint64_t num_retries;
    berth__spin lock;         /* owner, stopping, and what follows */
    berth__meter_slot common; /* counts of threads that have no slot; its credit stays 0 */
} berth__meter;

typedef enum berth__meter_answer {
    BERTH__METER_OVER = 0,    /* the limit would be exceeded; nothing changed */
    BERTH__METER_CREDIT_USED, /* within what was claimed before */
    BERTH__METER_GREW,        /* more was claimed: the peak may have risen */
} berth__meter_answer;

void berth__meter_init(berth__meter *m, bool exact);
/* Gives the slots back. No call may be under way. */
void berth__meter_finish(berth__meter *m);

/* The general forms; use the inline ones below. */
berth__meter_answer berth__meter_claim_slow(berth__meter *m, uint64_t size_bytes, bool commit);
void berth__meter_commit_slow(berth__meter *m, uint64_t size_bytes, bool grew);
bool berth__meter_sub_slow(berth__meter *m, uint64_t size_bytes);

/* Takes back a claim that led to nothing; the peak does not see it. */
void berth__meter_unclaim(berth__meter *m, uint64_t size_bytes);
void berth__meter_count_failure(berth__meter *m);
void berth__meter_count_retry(berth__meter *m);

/* Fills the meter's figures in: counts, bytes in use and their peak, total, largest, failures, retries and
 * limit. The others stay as they are. Exact when no call is under way. */
void berth__meter_read(berth__meter *m, berth_stats *out);
uint64_t berth__meter_in_use(berth__meter *m);
/* Counts to 0, the peak to what is in use. */
void berth__meter_clear(berth__meter *m);
/* From now on no claim takes the bytes in use above `limit_bytes`; 0: no limit. What is above stays. */
void berth__meter_set_limit(berth__meter *m, uint64_t limit_bytes);

/* Between the two no thread is inside a slot, and none enters: a user with something beside the figures can
 * then look at every thread's. A thread that finds the meter stopped waits with berth__meter_wait_resumed. */
void berth__meter_stop(berth__meter *m);
void berth__meter_resume(berth__meter *m);
void berth__meter_wait_resumed(berth__meter *m);
/* While stopped: calls `each` with what lies beside every slot's figures and is not NULL. */
void berth__meter_visit_beside(berth__meter *m, void (*each)(void *context, void *beside), void *context);

/* For a user that lives as long as its blocks: adds the number of live blocks to `remaining`, and from then
 * on every berth__meter_sub answers true. A thread whose berth__meter_sub answered false is out of the meter
 * before this returns. [M7] */
void berth__meter_close(berth__meter *m, _Atomic uint64_t *remaining);

/* The slot of a thread beyond the first piece, or when its piece is not there yet. */
berth__meter_slot *berth__meter_find_slot(berth__meter *m, uint32_t thread);

/* The calling thread's slot; NULL if it has none. */
BERTH__INLINE berth__meter_slot *berth__meter_slot_of(berth__meter *m, uint32_t thread)
{
    if (BERTH_LIKELY(thread < BERTH__METER_PIECE)) {
        berth__meter_slot *slots = atomic_load_explicit(&m->pieces[0], memory_order_acquire);
        if (BERTH_LIKELY(slots != NULL))
            return &slots[thread];
    }
    return berth__meter_find_slot(m, thread);
}

/* Marks the slot busy; false (and not busy) if the meter is stopped. */
BERTH__INLINE bool berth__meter_enter(berth__meter *m, berth__meter_slot *slot)
{
    uint32_t mark = berth__inside();
    atomic_store_explicit(&slot->busy, mark, memory_order_relaxed);
    berth__barrier_light_at(mark);
    uint32_t stopped = atomic_load_explicit(&m->stopped, memory_order_acquire);
    if (BERTH_LIKELY((stopped & (BERTH__METER_STOPPED | BERTH__METER_CLOSED)) == 0))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

/* The same for a short way, for users that know that the barrier is asymmetric: false also if one has set a
 * mark. */
BERTH__INLINE bool berth__meter_enter_unmarked(berth__meter *m, berth__meter_slot *slot)
{
    atomic_store_explicit(&slot->busy, berth__inside(), memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (BERTH_LIKELY(atomic_load_explicit(&m->stopped, memory_order_acquire) == 0))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

/* Waits until the slot's thread is not inside; the heavy barrier has been passed. */
void berth__meter_wait(berth__meter_slot *slot);

BERTH__INLINE void berth__meter_leave(berth__meter_slot *slot)
{
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
}

#define BERTH__METER_LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define BERTH__METER_STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* The slot's thread counts one allocation, for a meter that is never closed: the number of live blocks does
 * not matter. */
BERTH__INLINE void berth__meter_count_bytes(berth__meter_slot *slot, uint64_t size_bytes)
{
    BERTH__METER_STORE(slot->num_allocs, BERTH__METER_LOAD(slot->num_allocs) + 1);
    BERTH__METER_STORE(slot->total_bytes, BERTH__METER_LOAD(slot->total_bytes) + size_bytes);
    if (size_bytes > BERTH__METER_LOAD(slot->largest))
        BERTH__METER_STORE(slot->largest, size_bytes);
}

/* The slot's thread counts one allocation. */
BERTH__INLINE void berth__meter_count(berth__meter_slot *slot, uint64_t size_bytes)
{
    BERTH__METER_STORE(slot->blocks, BERTH__METER_LOAD(slot->blocks) + 1);
    berth__meter_count_bytes(slot, size_bytes);
}

/* With the slot entered: what a thread does within its credit, or whether that suffices. False, and nothing
 * changed, if it does not; the caller leaves and uses berth__meter_add or berth__meter_sub. Blocks are not
 * counted: who uses these counts beside the figures, and does without berth__meter_close. */
BERTH__INLINE bool berth__meter_add_inside(berth__meter_slot *slot, uint64_t size_bytes)
{
    int64_t credit = BERTH__METER_LOAD(slot->credit) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit < 0))
        return false;
    BERTH__METER_STORE(slot->credit, credit);
    return true;
}
/* The same for a meter whose peak is a true one: who raises it must know that nothing was taken while he looked
 * at the slots [M8]. The order of the two stores is what he relies on. */
BERTH__INLINE bool berth__meter_add_true_inside(berth__meter_slot *slot, uint64_t size_bytes)
{
    int64_t credit = BERTH__METER_LOAD(slot->credit) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit < 0))
        return false;
    atomic_store_explicit(&slot->takes, BERTH__METER_LOAD(slot->takes) + 1, memory_order_release);
    atomic_store_explicit(&slot->credit, credit, memory_order_release);
    return true;
}
/* For what is allocated already, with the slot found: false, and nothing changed, if the thread's credit does
 * not suffice. For meters that are never closed, and whose peak is a true one. */
BERTH__INLINE bool berth__meter_add_at(berth__meter *m, berth__meter_slot *slot, uint64_t size_bytes)
{
    if (!berth__meter_enter(m, slot))
        return false;
    bool added = berth__meter_add_true_inside(slot, size_bytes);
    if (added)
        berth__meter_count_bytes(slot, size_bytes);
    berth__meter_leave(slot);
    return added;
}
BERTH__INLINE bool berth__meter_sub_inside(berth__meter_slot *slot, uint64_t size_bytes)
{
    int64_t credit = BERTH__METER_LOAD(slot->credit) + (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit > BERTH__METER_LOAD(slot->credit_max)))
        return false;
    BERTH__METER_STORE(slot->credit, credit);
    return true;
}

/* Claims `size_bytes` before they are allocated, never above the limit. Followed by a commit or an unclaim.
 * Any thread. */
BERTH__INLINE berth__meter_answer berth__meter_claim(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = berth__meter_slot_of(m, berth__thread());
    if (BERTH_LIKELY(slot && berth__meter_enter(m, slot))) {
        int64_t credit = BERTH__METER_LOAD(slot->credit);
        if (BERTH_LIKELY(credit >= (int64_t)size_bytes)) {
            BERTH__METER_STORE(slot->credit, credit - (int64_t)size_bytes);
            berth__meter_leave(slot);
            return BERTH__METER_CREDIT_USED;
        }
        berth__meter_leave(slot);
    }
    return berth__meter_claim_slow(m, size_bytes, false);
}

/* Counts the allocation of `size_bytes` that were claimed; `claimed` is what the claim answered. */
BERTH__INLINE void berth__meter_commit(berth__meter *m, uint64_t size_bytes, berth__meter_answer claimed)
{
    berth__meter_slot *slot = berth__meter_slot_of(m, berth__thread());
    if (BERTH_LIKELY(claimed != BERTH__METER_GREW && slot && berth__meter_enter(m, slot))) {
        berth__meter_count(slot, size_bytes);
        berth__meter_leave(slot);
        return;
    }
    berth__meter_commit_slow(m, size_bytes, claimed == BERTH__METER_GREW);
}

/* Claim and commit in one, for what is allocated already. BERTH__METER_OVER cannot come without a limit. */
BERTH__INLINE berth__meter_answer berth__meter_add(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = berth__meter_slot_of(m, berth__thread());
    if (BERTH_LIKELY(slot && berth__meter_enter(m, slot))) {
        int64_t credit = BERTH__METER_LOAD(slot->credit);
        if (BERTH_LIKELY(credit >= (int64_t)size_bytes)) {
            BERTH__METER_STORE(slot->credit, credit - (int64_t)size_bytes);
            berth__meter_count(slot, size_bytes);
            berth__meter_leave(slot);
            return BERTH__METER_CREDIT_USED;
        }
        berth__meter_leave(slot);
    }
    return berth__meter_claim_slow(m, size_bytes, true);
}

/* The short ways alone, for callers that keep their own long ones out of line and so save nothing over a
 * call: the same as berth__meter_add and berth__meter_sub within the thread's credit, without the count of
 * blocks that berth__meter_close wants; or nothing happened and the answer is false. */
/* The calling thread's slot, if it has one that berth__meter_enter_unmarked may be used with; else NULL. */
BERTH__INLINE berth__meter_slot *berth__meter_slot_quick(berth__meter *m)
{
    uint32_t thread = berth__thread_plus_one - 1;
    if (BERTH_UNLIKELY(thread >= atomic_load_explicit(&m->quick, memory_order_acquire)))
        return NULL;
    return atomic_load_explicit(&m->pieces[0], memory_order_relaxed) + thread;
}
BERTH__INLINE bool berth__meter_add_quick(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = berth__meter_slot_quick(m);
    if (BERTH_UNLIKELY(!slot || !berth__meter_enter_unmarked(m, slot)))
        return false;
    bool added = berth__meter_add_inside(slot, size_bytes);
    if (BERTH_LIKELY(added)) {
        BERTH__METER_STORE(slot->num_allocs, BERTH__METER_LOAD(slot->num_allocs) + 1);
        BERTH__METER_STORE(slot->total_bytes, BERTH__METER_LOAD(slot->total_bytes) + size_bytes);
        if (BERTH_UNLIKELY(size_bytes > BERTH__METER_LOAD(slot->largest)))
            BERTH__METER_STORE(slot->largest, size_bytes);
    }
    berth__meter_leave(slot);
    return added;
}
BERTH__INLINE bool berth__meter_sub_quick(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = berth__meter_slot_quick(m);
    if (BERTH_UNLIKELY(!slot || !berth__meter_enter_unmarked(m, slot)))
        return false;
    bool fits = berth__meter_sub_inside(slot, size_bytes);
    berth__meter_leave(slot);
    return fits;
}

/* Adds what is allocated already to a meter whose peak is true also with several threads: nobody claims above
 * the peak, so that it rises only when, with all credit collected, that much is really in use [M8]. Below the
 * peak it costs what berth__meter_add costs. For meters that only this and berth__meter_sub change. */
void berth__meter_add_true_slow(berth__meter *m, uint64_t size_bytes);
BERTH__INLINE void berth__meter_add_true(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = berth__meter_slot_of(m, berth__thread());
    if (BERTH_LIKELY(slot && berth__meter_enter(m, slot))) {
        bool added = berth__meter_add_true_inside(slot, size_bytes);
        berth__meter_leave(slot);
        if (BERTH_LIKELY(added))
            return;
    }
    berth__meter_add_true_slow(m, size_bytes);
}

/* Before first use: lets the slots of a meter that only berth__meter_add_true and berth__meter_sub change
 * keep any credit, so that threads that free and allocate large blocks do not meet at the common figure
 * either. The peak stays true, since all credit is collected before it rises. A program in which others free
 * than allocate would have it collected all the time: then hoarding ends by itself. */
void berth__meter_hoard(berth__meter *m);

/* berth__meter_add_true that counts the allocation too, for threads that are not inside their slot. */
void berth__meter_add_true_counted(berth__meter *m, uint64_t size_bytes);

/* The same as below with the slot found already; NULL: the thread has none. */
BERTH__INLINE bool berth__meter_sub_at(berth__meter *m, berth__meter_slot *slot, uint64_t size_bytes)
{
    if (BERTH_LIKELY(slot && berth__meter_enter(m, slot))) {
        int64_t credit = BERTH__METER_LOAD(slot->credit) + (int64_t)size_bytes;
        if (BERTH_LIKELY(credit <= BERTH__METER_LOAD(slot->credit_max))) {
            BERTH__METER_STORE(slot->credit, credit);
            BERTH__METER_STORE(slot->blocks, BERTH__METER_LOAD(slot->blocks) - 1);
            berth__meter_leave(slot);
            return false;
        }
        berth__meter_leave(slot);
    }
    return berth__meter_sub_slow(m, size_bytes);
}

/* A block of `size_bytes` that was added, or claimed and committed, is free again. True if the meter is
 * closed; if it is not, the meter is not touched any more once the call has counted the block. Any thread. */
BERTH__INLINE bool berth__meter_sub(berth__meter *m, uint64_t size_bytes)
{
    return berth__meter_sub_at(m, berth__meter_slot_of(m, berth__thread()), size_bytes);
}

#endif

/* The quota: bytes that threads take from one figure, up to a cap, without meeting at it.
 *
 * Limits (budgets, the dry run) and true peaks (labels, the pool, the host cache) are counted here.
 *
 * A thread takes from its slot's credit (count/slot.h) and gives back to it, and nobody else ever writes it; that is
 * a load, an addition and a store. Why not stop the threads as a meter does: entering and leaving a slot is two more
 * stores a call, 1.6 ns a pair of a limit. Who is inside for other reasons may take too.
 *
 *       claimed  =  in use  +  credit of all slots          [Q1]
 *       claimed <=  cap                                     [Q2]
 *
 * Who lacks credit claims more, under the lock. Where that would pass the cap, the others' credit is called
 * back first, so that nothing is refused that fits [Q3]. Nobody waits for them: their slots are closed, and
 * an asymmetric barrier makes sure that they know. A thread looks whether its slot is open after it has
 * taken, and if not, puts back what it took and goes through the lock. There it learns how much of its credit
 * is no longer its own.
 *
 *       the slot's thread:   credit -= n   | light |   is the slot open?
 *       who calls back:      close it      | heavy |   read its credit, note that as called back
 *
 * What the reader did not see taken will be put back, and what it did see is in use: so it is the same bytes
 * that it and the thread go on with. Frees meanwhile only add to the credit.
 *
 * The cap is a limit, and claims beyond it fail; or it rises, and then it is the true peak: beyond it nothing
 * is claimed that is not in use at that moment [M8].
 *
 * All zero is a limit of 0 that nobody has used. */
#ifndef BERTH_COUNT_QUOTA_H
#define BERTH_COUNT_QUOTA_H

#include "count/slot.h"

/* What a slot's `open` says: its thread may take; where the barrier costs both sides, with a fence of its own. */
enum { BERTH__QUOTA_CLOSED = 0, BERTH__QUOTA_OPEN = 1, BERTH__QUOTA_OPEN_FENCED = 2 };

typedef struct berth__quota {
    berth__slots slots;
    bool rises;              /* set before first use */
    _Atomic int64_t cap;     /* written under the slots' lock */
    _Atomic int64_t claimed; /* written under the slots' lock */
} berth__quota;

/* A limit of `cap_bytes`. A quota that rises needs no initialising: zero, and `rises` set. */
void berth__quota_init(berth__quota *q, int64_t cap_bytes);
/* No call may be under way. */
void berth__quota_finish(berth__quota *q);

/* The general forms of what follows. Taking answers false, and nothing changed, if the limit would be
 * exceeded. Any thread. */
bool berth__quota_take_slow(berth__quota *q, uint64_t size_bytes);
void berth__quota_give_slow(berth__quota *q, uint64_t size_bytes);

/* Another cap from now on; what is in use above it stays. */
void berth__quota_set_cap(berth__quota *q, int64_t cap_bytes);
/* For one that rises: what is in use is the peak. */
void berth__quota_clear(berth__quota *q);
/* Exact when no call is under way. */
uint64_t berth__quota_in_use(berth__quota *q);
uint64_t berth__quota_peak(berth__quota *q);
/* Both, for one that rises, and the counts of its slots. The other figures stay as they are, but for the limit. */
void berth__quota_read(berth__quota *q, berth_stats *out);

/* Whether a quota's figures agree [Q1] [Q2]: for debug builds and tests, with no call under way. */
bool berth__quota_is_valid(berth__quota *q);

/* The end of berth__quota_take_at where the slot is not plainly open. */
bool berth__quota_take_fenced(berth__slot *slot, int64_t credit, uint64_t size_bytes);

/* What is left of the slot's credit after it was taken from, below 0 if it does not suffice; then nothing changed. The
 * thread looks next whether the slot is open. */
BERTH__INLINE int64_t berth__quota_take_credit(berth__slot *slot, uint64_t size_bytes)
{
    BERTH_DCHECK(size_bytes <= INT64_MAX, "[Q1] figures are signed: no block is larger");
    int64_t credit = atomic_load_explicit(&slot->credit, memory_order_relaxed) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit < 0))
        return credit;
    /* Who sees the credit taken sees this too, and knows that what he saw before was another moment [M8]. */
    atomic_store_explicit(&slot->takes, atomic_load_explicit(&slot->takes, memory_order_relaxed) + 1,
                          memory_order_release);
    atomic_store_explicit(&slot->credit, credit, memory_order_release);
    /* The light side of the barrier; where there is no asymmetric one, the slot is open with a fence only. */
    atomic_signal_fence(memory_order_seq_cst);
    return credit;
}

/* From the thread's own slot; at most INT64_MAX. False, and nothing changed: use the slow form. */
BERTH__INLINE bool berth__quota_take_at(berth__slot *slot, uint64_t size_bytes)
{
    int64_t credit = berth__quota_take_credit(slot, size_bytes);
    if (BERTH_UNLIKELY(credit < 0))
        return false;
    if (BERTH_LIKELY(BERTH__SLOT_LOAD(slot->open) == BERTH__QUOTA_OPEN))
        return true;
    return berth__quota_take_fenced(slot, credit, size_bytes);
}

/* The same for who entered a slot with berth__slot_enter_fast, and so knows that it needs no fence: without a call, for
 * which a fast path would save its registers first (1 ns a pair). */
BERTH__INLINE bool berth__quota_take_unfenced(berth__slot *slot, uint64_t size_bytes)
{
    int64_t credit = berth__quota_take_credit(slot, size_bytes);
    if (BERTH_UNLIKELY(credit < 0))
        return false;
    if (BERTH_LIKELY(BERTH__SLOT_LOAD(slot->open) == BERTH__QUOTA_OPEN))
        return true;
    atomic_store_explicit(&slot->credit, credit + (int64_t)size_bytes, memory_order_relaxed);
    return false;
}

/* To the thread's own slot. Whoever calls it back knows that the bytes are free. */
BERTH__INLINE void berth__quota_give_at(berth__slot *slot, uint64_t size_bytes)
{
    int64_t credit = atomic_load_explicit(&slot->credit, memory_order_relaxed);
    BERTH_DCHECK(credit >= 0 && size_bytes <= INT64_MAX,
                 "[Q1] a thread's credit is what it claimed and does not use");
    atomic_store_explicit(&slot->credit, credit + (int64_t)size_bytes, memory_order_release);
}

/* The fast paths of the first threads: false, and nothing changed, means to use the slow form. */
BERTH__INLINE bool berth__quota_take_fast(berth__quota *q, uint64_t size_bytes)
{
    uint32_t thread = berth__thread_plus_one - 1;
    return BERTH_LIKELY(thread < BERTH__SLOTS_FIRST) &&
           berth__quota_take_at(&q->slots.first[thread], size_bytes);
}
BERTH__INLINE bool berth__quota_give_fast(berth__quota *q, uint64_t size_bytes)
{
    uint32_t thread = berth__thread_plus_one - 1;
    if (BERTH_UNLIKELY(thread >= BERTH__SLOTS_FIRST))
        return false;
    berth__quota_give_at(&q->slots.first[thread], size_bytes);
    return true;
}

BERTH__INLINE bool berth__quota_take(berth__quota *q, uint64_t size_bytes)
{
    return berth__quota_take_fast(q, size_bytes) || berth__quota_take_slow(q, size_bytes);
}
BERTH__INLINE void berth__quota_give(berth__quota *q, uint64_t size_bytes)
{
    if (!berth__quota_give_fast(q, size_bytes))
        berth__quota_give_slow(q, size_bytes);
}

#endif

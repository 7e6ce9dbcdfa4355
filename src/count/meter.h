/* The meter: statistics. Bytes in use, their peak and counts, kept so that threads do not meet at one counter.
 *
 * Every thread has a slot (count/slot.h) with credit. Taking within the credit, and giving back to it, touches only
 * the slot, which is entered for that.
 *
 *       claimed  =  in use  +  credit of all slots          [M1]
 *       peak     >= claimed                                 [M2]   so it is never below the true peak
 *       credit   <= 64 KiB a slot when the peak rises       [M3]   so it is above it by no more than that
 *
 * The first thread owns the meter: its credit has no bound, claimed is the peak itself, and it is exact without a
 * single locked instruction. When a second thread comes, the owner is stopped for a moment, the credit collected,
 * and from then on all take and return theirs in pieces. Clearing collects the credit in the same way.
 *
 * A thread that goes on to free and allocate blocks larger than its credit may keep what it frees, all of it, so that
 * such pairs meet nobody either. Then the peak does not rise before all threads are stopped and that credit is
 * collected. How many such frees it takes doubles each time, so that threads that grow while others free large blocks
 * soon go without.
 *
 * An exact meter gives no credit: one locked addition for each call. Limits and true peaks are a quota's business
 * (count/quota.h): a thread that grows under one meets the others at a lock, under a meter once in 32 KiB.
 *
 * All zero is a meter that nobody has used, so that a static one works before main. */
#ifndef BERTH_COUNT_METER_H
#define BERTH_COUNT_METER_H

#include "berth/allocator.h"
#include "count/slot.h"

#define BERTH__METER_CREDIT ((int64_t)64 << 10)

typedef struct berth__meter {
    berth__slots slots;
    bool exact;             /* set before first use */
    _Atomic uint32_t owner; /* meter_fresh, meter_shared, or a thread's number + meter_owned */
    uint64_t apart[8];
    /* written whenever credit is taken or returned */
    _Atomic int64_t claimed;
    _Atomic int64_t peak;
    _Atomic bool keeps_large; /* some slots of a shared meter may hold more than 64 KiB */
    _Atomic uint32_t
        keeps_after; /* so many large frees of a thread; written while stopped, 0: the first number */
} berth__meter;

void berth__meter_init(berth__meter *m, bool exact);
/* Gives the slots back. No call may be under way. */
void berth__meter_finish(berth__meter *m);

/* The slow paths of what follows: beyond the thread's credit, stopped, or without a slot. */
bool berth__meter_take_slow(berth__meter *m, uint64_t size_bytes);
bool berth__meter_give_slow(berth__meter *m, uint64_t size_bytes);

/* Fills the meter's figures in: counts, bytes in use and their peak, total, largest, failures and retries; the limit
 * is 0. The others stay as they are. Exact when no call is under way. */
void berth__meter_read(berth__meter *m, berth_stats *out);
uint64_t berth__meter_in_use(berth__meter *m);
/* Counts to 0, the peak to what is in use. */
void berth__meter_clear(berth__meter *m);

/* For a user that lives as long as its blocks: adds the number of live blocks to `remaining`, and from then
 * on every berth__meter_give answers true. A thread whose berth__meter_give answered false is out of the meter
 * before this returns. [M7] */
void berth__meter_close(berth__meter *m, _Atomic uint64_t *remaining);

/* Whether a meter's figures agree [M1] [M2] [M3]: for debug builds and tests, with no call under way. */
bool berth__meter_is_valid(berth__meter *m);

/* The credit of a slot that is entered: false, and nothing changed, if it does not suffice or would be too much. */
BERTH__INLINE bool berth__meter_take_at(berth__slot *slot, uint64_t size_bytes)
{
    BERTH_DCHECK(size_bytes <= INT64_MAX, "[M1] figures are signed: no block is larger");
    int64_t credit = BERTH__SLOT_LOAD(slot->credit) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit < 0))
        return false;
    BERTH__SLOT_STORE(slot->credit, credit);
    return true;
}
BERTH__INLINE bool berth__meter_give_at(berth__slot *slot, uint64_t size_bytes)
{
    BERTH_DCHECK(size_bytes <= INT64_MAX, "[M1] figures are signed: no block is larger");
    int64_t credit = BERTH__SLOT_LOAD(slot->credit) + (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit > BERTH__SLOT_LOAD(slot->credit_max)))
        return false;
    BERTH__SLOT_STORE(slot->credit, credit);
    return true;
}

/* The fast paths alone, for callers that keep their own slow ones out of line and so save nothing over a call. They
 * do without the number of live blocks that berth__meter_close wants. False, and nothing happened: use what follows.
 */
BERTH__INLINE bool berth__meter_take_fast(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = berth__slot_fast(&m->slots);
    if (BERTH_UNLIKELY(!slot || !berth__slot_enter_fast(&m->slots, slot)))
        return false;
    bool taken = berth__meter_take_at(slot, size_bytes);
    if (BERTH_LIKELY(taken))
        berth__slot_count(slot, size_bytes);
    berth__slot_leave(slot);
    return taken;
}
BERTH__INLINE bool berth__meter_give_fast(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = berth__slot_fast(&m->slots);
    if (BERTH_UNLIKELY(!slot || !berth__slot_enter_fast(&m->slots, slot)))
        return false;
    bool given = berth__meter_give_at(slot, size_bytes);
    berth__slot_leave(slot);
    return given;
}

/* A block of `size_bytes` was allocated: its bytes are in use, and it is counted. True: more was claimed than
 * before, so that the peak may have risen. Any thread. */
BERTH__INLINE bool berth__meter_take(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = berth__slot_of(&m->slots, berth__thread());
    if (BERTH_LIKELY(slot && berth__slot_enter(&m->slots, slot))) {
        bool taken = berth__meter_take_at(slot, size_bytes);
        if (BERTH_LIKELY(taken)) {
            berth__slot_hold(slot, 1);
            berth__slot_count(slot, size_bytes);
        }
        berth__slot_leave(slot);
        if (BERTH_LIKELY(taken))
            return false;
    }
    return berth__meter_take_slow(m, size_bytes);
}

/* A block of `size_bytes` that was taken is free again. True if the meter is closed; if it is not, the meter is not
 * touched any more once the call has counted the block. Any thread. */
BERTH__INLINE bool berth__meter_give(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = berth__slot_of(&m->slots, berth__thread());
    if (BERTH_LIKELY(slot && berth__slot_enter(&m->slots, slot))) {
        bool given = berth__meter_give_at(slot, size_bytes);
        if (BERTH_LIKELY(given))
            berth__slot_hold(slot, -1);
        berth__slot_leave(slot);
        if (BERTH_LIKELY(given))
            return false;
    }
    return berth__meter_give_slow(m, size_bytes);
}

#endif

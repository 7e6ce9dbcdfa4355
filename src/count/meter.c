/* The meter's slow side: ownership, claims from the common figure, closing, clearing and reading. */
#include "count/meter.h"

#include <string.h>

enum { meter_fresh = 0, meter_shared = 1, meter_owned = 2 /* + the thread's number */ };

/* Half of what a slot may hold is taken at once, so that a free right after does not overflow it. */
#define REFILL (BERTH__METER_CREDIT / 2)

/* Large frees after which a thread keeps what it frees: at first, and at most. */
enum { KEEPS_AFTER_FIRST = 16, KEEPS_AFTER_MOST = 1 << 20 };

#define LOAD BERTH__SLOT_LOAD
#define STORE BERTH__SLOT_STORE

void berth__meter_init(berth__meter *m, bool exact)
{
    memset(m, 0, sizeof *m);
    m->exact = exact;
}

static int64_t meter_bad_slot(berth__slot *slot, uint32_t *bad)
{
    int64_t credit = LOAD(slot->credit);
    *bad += credit < 0 || credit > LOAD(slot->credit_max);
    return credit;
}

static bool meter_agrees(const void *meter, int64_t credit)
{
    const berth__meter *m = meter;
    return credit <= LOAD(m->claimed) && LOAD(m->claimed) <= LOAD(m->peak);
}

/* With the lock, and with the slots stopped or no call under way: the figures are of one moment. */
static bool meter_is_valid(berth__meter *m)
{
    return berth__slots_are_valid(&m->slots, meter_bad_slot, meter_agrees, m);
}

void berth__meter_finish(berth__meter *m)
{
    BERTH_DCHECK(berth__meter_is_valid(m), "[M1] at the end the figures agree");
    berth__slots_finish(&m->slots);
}

static bool meter_is_closed(berth__meter *m)
{
    return (atomic_load_explicit(&m->slots.stopped, memory_order_acquire) & BERTH__SLOTS_CLOSED) != 0;
}

/* ---- Owners -------------------------------------------------------------------------------------- */

static int64_t meter_take_credit(berth__slot *slot, uint32_t *count)
{
    (void)count;
    int64_t credit = LOAD(slot->credit);
    BERTH_DCHECK(credit >= 0, "[M1] credit was claimed");
    STORE(slot->credit, 0);
    return credit;
}

static int64_t meter_take_large_credit(berth__slot *slot, uint32_t *count)
{
    STORE(slot->takes, 0);
    if (LOAD(slot->credit_max) > BERTH__METER_CREDIT)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    return meter_take_credit(slot, count);
}

/* Takes all credit back, so that none is above 64 KiB for a while: the peak is about to rise. Not inside. */
static __attribute__((noinline)) void meter_collect_large(berth__meter *m)
{
    berth__slots_stop(&m->slots);
    if (LOAD(m->keeps_large)) {
        atomic_fetch_sub(&m->claimed, berth__slots_sum(&m->slots, NULL, meter_take_large_credit, NULL));
        uint32_t after = LOAD(m->keeps_after);
        STORE(m->keeps_after, after == 0                 ? 2 * KEEPS_AFTER_FIRST
                              : after < KEEPS_AFTER_MOST ? 2 * after
                                                         : after);
        atomic_store(&m->keeps_large, false);
    }
    berth__slots_resume(&m->slots);
}

/* Inside: whether a slot of a shared meter keeps what its thread frees, now that a free exceeds its credit. */
static bool meter_keeps_large(berth__meter *m, berth__slot *slot)
{
    BERTH_DCHECK(LOAD(m->owner) == meter_shared && !m->exact, "[M3] the owner of a meter keeps all it frees");
    if (LOAD(slot->credit_max) > BERTH__METER_CREDIT)
        return true;
    uint32_t after = LOAD(m->keeps_after), frees = LOAD(slot->takes) + 1;
    STORE(slot->takes, frees);
    if (frees < (after ? after : KEEPS_AFTER_FIRST))
        return false;
    atomic_store(&m->keeps_large, true); /* before the credit: see meter_claim */
    STORE(slot->credit_max, INT64_MAX);
    return true;
}

/* While stopped: claimed is what is in use. */
static void meter_collect(berth__meter *m)
{
    BERTH_DCHECK(berth__slots_are_stopped(&m->slots), "[S1] all credit is taken while stopped");
    atomic_fetch_sub(&m->claimed, berth__slots_sum(&m->slots, NULL, meter_take_credit, NULL));
    BERTH_DCHECK(LOAD(m->claimed) >= 0, "[M1] what is in use is never below 0");
}

static void meter_share(berth__meter *m)
{
    BERTH_DCHECK(berth__slots_are_locked(&m->slots), "[B1] with the lock");
    BERTH_DCHECK(LOAD(m->owner) != meter_shared, "[M3] a meter becomes shared once");
    berth__slots_stop_locked(&m->slots);
    meter_collect(m);
    uint32_t owner = LOAD(m->owner);
    if (owner >= meter_owned)
        STORE(berth__slot_of(&m->slots, owner - meter_owned)->credit_max, BERTH__METER_CREDIT);
    STORE(m->owner, meter_shared);
    berth__slots_resume_locked(&m->slots);
}

/* Makes `thread` the owner of a fresh meter, and any other meter shared. */
static void meter_settle(berth__meter *m, berth__slot *slot, uint32_t thread)
{
    berth__slots_lock(&m->slots);
    berth__slots_allow_fast(&m->slots);
    uint32_t owner = LOAD(m->owner);
    if (owner == meter_fresh && slot && !m->exact) {
        STORE(slot->credit_max, INT64_MAX);
        atomic_store_explicit(&m->owner, thread + meter_owned, memory_order_release);
    } else if (owner != meter_shared && owner != thread + meter_owned) {
        meter_share(m);
    }
    berth__slots_unlock(&m->slots);
}

/* Whether `thread` may go ahead with its slot, or with the common one if that is NULL. If not, it is made so. */
static bool meter_is_settled(berth__meter *m, berth__slot *slot, uint32_t thread)
{
    uint32_t owner = atomic_load_explicit(&m->owner, memory_order_acquire);
    if (owner == meter_shared || (slot && owner == thread + meter_owned))
        return true;
    meter_settle(m, slot, thread);
    return false;
}

/* The thread's own slot, entered, or the common one with the lock; the meter is settled. */
static berth__slot *meter_enter_any(berth__meter *m)
{
    uint32_t thread = berth__thread();
    berth__slot *slot = berth__slot_of(&m->slots, thread);
    while (!meter_is_closed(m) && !meter_is_settled(m, slot, thread))
        ;
    return berth__slots_enter_any(&m->slots, slot);
}

/* ---- Taking -------------------------------------------------------------------------------------- */

static void meter_raise_peak(berth__meter *m, int64_t to)
{
    BERTH_DCHECK(to >= 0, "[M1] what is claimed is never below 0");
    int64_t peak = LOAD(m->peak);
    while (peak < to && !atomic_compare_exchange_weak_explicit(&m->peak, &peak, to, memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

/* Raises what is claimed, unless the peak would rise while slots hold more than 64 KiB. Who begins to keep more right
 * after that was asked frees a block that was in use while this one was allocated. */
static bool meter_raise_claimed(berth__meter *m, int64_t by)
{
    int64_t claimed = LOAD(m->claimed);
    BERTH_DCHECK(by > 0, "[M1] claims are for what credit does not cover");
    do {
        if (claimed + by > LOAD(m->peak) && atomic_load(&m->keeps_large))
            return false;
    } while (!atomic_compare_exchange_weak(&m->claimed, &claimed, claimed + by));
    return true;
}

/* What is still missing after the slot's credit comes from the common figure, and some more for the next ones. The
 * slot is entered, or the common one, which keeps no credit. False, and nothing changed: meter_collect_large first. */
static bool meter_claim(berth__meter *m, berth__slot *slot, int64_t size, bool *grew)
{
    BERTH_DCHECK(size >= 0 && LOAD(slot->credit) >= 0, "[M1] credit was claimed");
    int64_t missing = size - LOAD(slot->credit);
    *grew = missing > 0;
    if (missing <= 0) {
        STORE(slot->credit, -missing);
        return true;
    }
    /* Asked now that it cannot change: the meter may have become shared just before. */
    bool owned = LOAD(m->owner) != meter_shared, alone = slot == &m->slots.common;
    int64_t extra = owned || alone || m->exact || size >= REFILL ? 0 : REFILL;
    if (owned) /* the owner alone moves the figure: no locked instruction */
        STORE(m->claimed, LOAD(m->claimed) + missing);
    else if (!meter_raise_claimed(m, missing + extra))
        return false;
    if (!owned && !alone && !m->exact && LOAD(slot->credit_max) == 0)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    BERTH_DCHECK(!alone || extra == 0, "[M1] the common slot keeps no credit");
    STORE(slot->credit, extra);
    meter_raise_peak(m, LOAD(m->claimed)); /* [M2] */
    BERTH_DCHECK(LOAD(m->peak) >= missing, "[M2] the peak is not below what is claimed");
    return true;
}

bool berth__meter_take_slow(berth__meter *m, uint64_t size_bytes)
{
    bool grew = false;
    berth__slot *slot = meter_enter_any(m);
    while (BERTH_UNLIKELY(!meter_claim(m, slot, (int64_t)size_bytes, &grew))) {
        berth__slots_leave_any(&m->slots, slot);
        meter_collect_large(m);
        slot = meter_enter_any(m);
    }
    berth__slot_hold(slot, 1);
    berth__slot_count(slot, size_bytes);
    berth__slots_leave_any(&m->slots, slot);
    return grew;
}

/* ---- Giving back --------------------------------------------------------------------------------- */

/* What is too much for the slot goes back. It is entered, or the common one. */
static void meter_return(berth__meter *m, berth__slot *slot, int64_t size)
{
    BERTH_DCHECK(size >= 0 && LOAD(slot->credit) >= 0, "[M1] credit was claimed");
    int64_t credit = LOAD(slot->credit) + size;
    bool keeps = slot != &m->slots.common && !m->exact, owned = LOAD(m->owner) != meter_shared;
    bool all = keeps && (owned || credit <= BERTH__METER_CREDIT || meter_keeps_large(m, slot));
    int64_t keep = all ? credit : keeps ? REFILL : 0;
    if (credit > keep)
        atomic_fetch_sub_explicit(&m->claimed, credit - keep, memory_order_relaxed);
    if (keeps && !owned && LOAD(slot->credit_max) == 0)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    BERTH_DCHECK(owned || keep <= BERTH__METER_CREDIT || LOAD(m->keeps_large),
                 "[M3] a slot of a shared meter keeps 64 KiB at most, or is known to keep more");
    STORE(slot->credit, keep);
}

bool berth__meter_give_slow(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = meter_enter_any(m);
    bool closed = slot == &m->slots.common && meter_is_closed(m);
    meter_return(m, slot, (int64_t)size_bytes);
    berth__slot_hold(slot, -1);
    berth__slots_leave_any(&m->slots, slot);
    return closed;
}

static int64_t meter_blocks_of(berth__slot *slot, uint32_t *count)
{
    (void)count;
    return LOAD(slot->blocks);
}

void berth__meter_close(berth__meter *m, _Atomic uint64_t *remaining)
{
    berth__slots_lock(&m->slots);
    BERTH_DCHECK(!meter_is_closed(m), "[M7] a meter is closed once");
    berth__slots_stop_locked(&m->slots);
    BERTH_DCHECK(meter_is_valid(m), "[M1] [M2] the figures agree before a meter is closed");
    meter_collect(m);
    STORE(m->owner, meter_shared);
    int64_t blocks = berth__slots_sum(&m->slots, NULL, meter_blocks_of, NULL);
    BERTH_DCHECK(blocks >= 0, "[M7] no more was freed than allocated");
    atomic_fetch_add(remaining, (uint64_t)blocks);
    atomic_fetch_or_explicit(&m->slots.stopped, BERTH__SLOTS_CLOSED, memory_order_release);
    BERTH_DCHECK(meter_is_valid(m), "[M1] [M2] a closed meter's figures agree");
    berth__slots_resume_locked(&m->slots);
    berth__slots_unlock(&m->slots);
}

/* ---- Reading and clearing ------------------------------------------------------------------------ */

static int64_t meter_credit_of(berth__slot *slot, uint32_t *count)
{
    (void)count;
    return atomic_load_explicit(&slot->credit, memory_order_acquire);
}

uint64_t berth__meter_in_use(berth__meter *m)
{
    int64_t in_use = LOAD(m->claimed) - berth__slots_sum(&m->slots, NULL, meter_credit_of, NULL);
    return in_use > 0 ? (uint64_t)in_use : 0; /* with calls under way the sum may be of two moments */
}

bool berth__meter_is_valid(berth__meter *m)
{
    berth__slots_lock(&m->slots);
    bool valid = meter_is_valid(m);
    berth__slots_unlock(&m->slots);
    return valid;
}

void berth__meter_read(berth__meter *m, berth_stats *out)
{
    int64_t peak = LOAD(m->peak);
    out->bytes_in_use = berth__meter_in_use(m);
    out->max_bytes_in_use = peak > 0 ? (uint64_t)peak : 0;
    if (out->max_bytes_in_use < out->bytes_in_use)
        out->max_bytes_in_use = out->bytes_in_use;
    berth__slots_read_counts(&m->slots, out);
    out->bytes_limit = 0;
}

void berth__meter_clear(berth__meter *m)
{
    berth__slots_stop(&m->slots);
    BERTH_DCHECK(meter_is_valid(m), "[M1] [M2] the figures agree before they are cleared");
    meter_collect(m);
    berth__slots_clear_counts_stopped(&m->slots);
    BERTH_DCHECK(berth__slots_sum(&m->slots, NULL, meter_credit_of, NULL) == 0,
                 "[M6] with all credit collected, claimed is what is in use");
    STORE(m->peak, LOAD(m->claimed));
    BERTH_DCHECK(meter_is_valid(m), "[M1] [M2] cleared figures agree");
    berth__slots_resume(&m->slots);
}

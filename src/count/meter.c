/* The meter's slow side: ownership, claims from the common figure, closing, clearing and reading. */
#include "count/meter.h"

#include <string.h>

enum { meter_fresh = 0, meter_shared = 1, meter_owned = 2 /* + the thread's number */ };

/* Half of what a slot may hold is taken at once, so that a free right after does not overflow it. */
#define REFILL (BERTH__METER_CREDIT / 2)

#define LOAD BERTH__SLOT_LOAD
#define STORE BERTH__SLOT_STORE

void berth__meter_init(berth__meter *m, bool exact)
{
    memset(m, 0, sizeof *m);
    m->exact = exact;
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

/* While stopped: claimed is what is in use. */
static void meter_collect(berth__meter *m)
{
    atomic_fetch_sub(&m->claimed, berth__slots_sum(&m->slots, NULL, meter_take_credit, NULL));
}

static void meter_share(berth__meter *m)
{
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
    int64_t peak = LOAD(m->peak);
    while (peak < to && !atomic_compare_exchange_weak_explicit(&m->peak, &peak, to, memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

/* What is still missing after the slot's credit comes from the common figure, and some more for the next ones. The
 * slot is entered, or the common one, which keeps no credit. True if anything was missing. */
static bool meter_claim(berth__meter *m, berth__slot *slot, int64_t size)
{
    int64_t missing = size - LOAD(slot->credit);
    if (missing <= 0) {
        STORE(slot->credit, -missing);
        return false;
    }
    /* Asked now that it cannot change: the meter may have become shared just before. */
    bool owned = LOAD(m->owner) != meter_shared, alone = slot == &m->slots.common;
    int64_t extra = owned || alone || m->exact || size >= REFILL ? 0 : REFILL;
    if (owned) /* the owner alone moves the figure: no locked instruction */
        STORE(m->claimed, LOAD(m->claimed) + missing);
    else
        atomic_fetch_add_explicit(&m->claimed, missing + extra, memory_order_relaxed);
    if (!owned && !alone && !m->exact)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    BERTH_DCHECK(!alone || extra == 0, "[M1] the common slot keeps no credit");
    STORE(slot->credit, extra);
    meter_raise_peak(m, LOAD(m->claimed)); /* [M2] */
    return true;
}

bool berth__meter_take_slow(berth__meter *m, uint64_t size_bytes)
{
    berth__slot *slot = meter_enter_any(m);
    bool grew = meter_claim(m, slot, (int64_t)size_bytes);
    berth__slot_hold(slot, 1);
    berth__slot_count(slot, size_bytes);
    berth__slots_leave_any(&m->slots, slot);
    return grew;
}

/* ---- Giving back --------------------------------------------------------------------------------- */

/* What is too much for the slot goes back. It is entered, or the common one. */
static void meter_return(berth__meter *m, berth__slot *slot, int64_t size)
{
    int64_t credit = LOAD(slot->credit) + size;
    bool keeps = slot != &m->slots.common && !m->exact, owned = LOAD(m->owner) != meter_shared;
    int64_t keep = !keeps ? 0 : owned || credit <= BERTH__METER_CREDIT ? credit : REFILL;
    if (credit > keep)
        atomic_fetch_sub_explicit(&m->claimed, credit - keep, memory_order_relaxed);
    if (keeps && !owned)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    BERTH_DCHECK(owned || keep <= BERTH__METER_CREDIT, "[M3] a slot of a shared meter keeps 64 KiB at most");
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
    meter_collect(m);
    STORE(m->owner, meter_shared);
    int64_t blocks = berth__slots_sum(&m->slots, NULL, meter_blocks_of, NULL);
    BERTH_DCHECK(blocks >= 0, "[M7] no more was freed than allocated");
    atomic_fetch_add(remaining, (uint64_t)blocks);
    atomic_fetch_or_explicit(&m->slots.stopped, BERTH__SLOTS_CLOSED, memory_order_release);
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

static int64_t meter_bad_slot(berth__slot *slot, uint32_t *bad)
{
    int64_t credit = LOAD(slot->credit);
    *bad += credit < 0 || credit > LOAD(slot->credit_max);
    return credit;
}

bool berth__meter_is_valid(berth__meter *m)
{
    uint32_t bad = 0;
    if (berth__inside() >> 1 > 1) /* a child: other threads may have been in the middle of a call */
        return true;
    berth__slots_lock(&m->slots);
    int64_t credit = berth__slots_sum(&m->slots, NULL, meter_bad_slot, &bad), claimed = LOAD(m->claimed);
    bool valid = bad == 0 && credit <= claimed && claimed <= LOAD(m->peak);
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
    meter_collect(m);
    berth__slots_clear_counts_stopped(&m->slots);
    STORE(m->peak, LOAD(m->claimed));
    berth__slots_resume(&m->slots);
}

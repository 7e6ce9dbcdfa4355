/* The quota's slow side: claiming, calling credit back, and the slots of later threads. */
#include "count/quota.h"

#include <string.h>

/* The most that is claimed for a thread beyond what it asks for. */
#define REFILL ((int64_t)32 << 10)

#define LOAD BERTH__SLOT_LOAD
#define STORE BERTH__SLOT_STORE

void berth__quota_init(berth__quota *q, int64_t cap_bytes)
{
    BERTH_DCHECK(cap_bytes >= 0, "[Q2] a limit is not below 0");
    memset(q, 0, sizeof *q);
    atomic_init(&q->cap, cap_bytes);
}

void berth__quota_finish(berth__quota *q)
{
    BERTH_DCHECK(berth__quota_is_valid(q), "[Q1] at the end the figures agree");
    berth__slots_finish(&q->slots);
}

/* ---- Calling back: all with the lock held --------------------------------------------------------- */

static int64_t quota_credit_of(berth__slot *slot)
{
    return atomic_load_explicit(&slot->credit, memory_order_acquire) - slot->called_back;
}

static int64_t quota_sum_credit(berth__slot *slot, uint32_t *count)
{
    (void)count;
    return quota_credit_of(slot);
}

/* Counts those whose threads must be told that they are closed now. */
static int64_t quota_close_slot(berth__slot *slot, uint32_t *closed)
{
    BERTH_DCHECK(!LOAD(slot->open) || slot->called_back == 0,
                 "[Q1] an open slot's credit is all its thread's");
    if (LOAD(slot->open)) {
        STORE(slot->open, BERTH__QUOTA_CLOSED);
        ++*closed;
    }
    return 0;
}

static int64_t quota_close_if_it_has(berth__slot *slot, uint32_t *closed)
{
    return quota_credit_of(slot) > 0 ? quota_close_slot(slot, closed) : 0;
}

static uint32_t quota_takes_of(const berth__slot *slot)
{
    return atomic_load_explicit(&slot->takes, memory_order_acquire);
}

/* Counts the closed slots whose credit is not as it was at the last look. */
static int64_t quota_call_back(berth__slot *slot, uint32_t *changed)
{
    if (LOAD(slot->open))
        return 0;
    int64_t credit = quota_credit_of(slot);
    *changed += credit != 0;
    slot->called_back += credit;
    return credit;
}

/* The same for a peak, which also counts those whose thread has taken some, be it only to put it back, from before
 * the last look on until after this one. */
static int64_t quota_call_back_for_peak(berth__slot *slot, uint32_t *changed)
{
    uint32_t before = quota_takes_of(slot);
    int64_t credit = quota_call_back(slot, changed);
    *changed += quota_takes_of(slot) != slot->takes_seen;
    slot->takes_seen = before;
    return credit;
}

/* From then on claimed is what is in use, and the credit of `except`. */
static void quota_call_all_back(berth__quota *q, const berth__slot *except, berth__slot_fn close)
{
    BERTH_DCHECK(!except || except->called_back == 0, "[Q1] who claims has settled first");
    BERTH_DCHECK(berth__slots_are_locked(&q->slots), "[B1] credit is called back with the lock");
    enum { TRIES = 100 };
    uint32_t closed = 0, changed = 1;
    berth__slots_sum(&q->slots, except, close, &closed);
    if (closed)
        berth__barrier_heavy();
    /* Closed slots change by frees, and by threads that take before they see it and put back. Once nothing
     * changed between two looks, what both saw was so at one moment; a peak wants that. Threads that free
     * without end are not waited for. */
    for (int turn = 0; changed != 0 && turn < TRIES; turn++) {
        changed = 0;
        int64_t credit = berth__slots_sum(&q->slots, except,
                                          q->rises ? quota_call_back_for_peak : quota_call_back, &changed);
        STORE(q->claimed, LOAD(q->claimed) - credit);
    }
}

/* ---- Claiming ------------------------------------------------------------------------------------ */

/* With the lock held, by the slot's thread: what is left of its credit. */
static int64_t quota_settle(berth__quota *q, berth__slot *slot)
{
    BERTH_DCHECK(slot == berth__slot_of(&q->slots, berth__thread()),
                 "[Q1] a thread's credit is written by that thread alone");
    BERTH_DCHECK(berth__slots_are_locked(&q->slots), "[B1] with the lock");
    int64_t credit = quota_credit_of(slot);
    BERTH_DCHECK(credit >= 0, "[Q1] no more was called back than there was");
    slot->called_back = 0;
    /* A limit was set below what is in use: until enough is free again nobody keeps credit. */
    if (LOAD(q->claimed) > LOAD(q->cap)) {
        STORE(q->claimed, LOAD(q->claimed) - credit);
        credit = 0;
    }
    STORE(slot->credit, credit);
    return credit;
}

/* With the lock held: makes `bytes` more claimed if there is room for them. A peak needs all slots closed: one
 * that has no credit could get some by a free, while another that was looked at already takes. */
static bool quota_claim(berth__quota *q, const berth__slot *slot, int64_t bytes)
{
    BERTH_DCHECK(berth__slots_are_locked(&q->slots), "[B1] with the lock");
    BERTH_DCHECK(bytes > 0, "[Q1] claims are for what credit does not cover");
    if (bytes > LOAD(q->cap) - LOAD(q->claimed))
        quota_call_all_back(q, slot, q->rises ? quota_close_slot : quota_close_if_it_has);
    if (bytes > LOAD(q->cap) - LOAD(q->claimed)) {
        if (!q->rises)
            return false;
        STORE(q->cap, LOAD(q->claimed) + bytes); /* [M8] the slot has no credit left: all of it is in use */
    }
    STORE(q->claimed, LOAD(q->claimed) + bytes);
    BERTH_DCHECK(q->rises || LOAD(q->claimed) <= LOAD(q->cap), "[Q2] a limit is never exceeded");
    return true;
}

/* With the lock held: credit for the next ones, less where the cap is near and others may need it. */
static int64_t quota_claim_extra(berth__quota *q)
{
    int64_t part = (LOAD(q->cap) - LOAD(q->claimed)) / 8, extra = part < REFILL ? part : REFILL;
    BERTH_DCHECK(extra >= 0, "[Q2] credit is given out below the cap only");
    STORE(q->claimed, LOAD(q->claimed) + extra);
    BERTH_DCHECK(LOAD(q->claimed) <= LOAD(q->cap), "[Q2] credit stays below the cap");
    return extra;
}

/* With the lock held, by the slot's thread. One that has claimed and got no credit stays closed under a peak: while
 * threads grow each of them comes here anyway, and who closes an open slot has to pass the heavy barrier. */
static void quota_open(berth__quota *q, berth__slot *slot, bool claimed)
{
    BERTH_DCHECK(berth__slots_are_locked(&q->slots), "[B1] a slot is opened with the lock");
    uint32_t how = (berth__inside() & 1) != 0 ? BERTH__QUOTA_OPEN : BERTH__QUOTA_OPEN_FENCED;
    bool may = LOAD(q->claimed) <= LOAD(q->cap) && (!q->rises || !claimed || LOAD(slot->credit) > 0);
    BERTH_DCHECK(slot->called_back == 0, "[Q1] an open slot's credit is all its thread's");
    STORE(slot->open, may ? how : BERTH__QUOTA_CLOSED);
}

/* The thread has taken, down to `credit`, and did not find its slot open as it should be. */
bool berth__quota_take_fenced(berth__slot *slot, int64_t credit, uint64_t size_bytes)
{
    BERTH_DCHECK(credit >= 0, "[Q1] what was taken was there");
    if (LOAD(slot->open) == BERTH__QUOTA_OPEN_FENCED) {
        atomic_thread_fence(memory_order_seq_cst);
        if (LOAD(slot->open) == BERTH__QUOTA_OPEN_FENCED)
            return true;
    }
    atomic_store_explicit(&slot->credit, credit + (int64_t)size_bytes, memory_order_relaxed);
    return false;
}

bool berth__quota_take_slow(berth__quota *q, uint64_t size_bytes)
{
    if (!q->rises && size_bytes > INT64_MAX / 2) /* no limit is that high */
        return false;
    uint32_t thread = berth__thread();
    berth__slot *slot = berth__slot_of(&q->slots, thread);
    if (slot && thread >= BERTH__SLOTS_FIRST && berth__quota_take_at(slot, size_bytes))
        return true;
    berth__slots_lock(&q->slots);
    int64_t credit = slot ? quota_settle(q, slot) : 0, missing = (int64_t)size_bytes - credit;
    bool taken = missing <= 0 || quota_claim(q, slot, missing);
    if (slot && taken)
        STORE(slot->credit, missing <= 0 ? -missing : quota_claim_extra(q));
    BERTH_DCHECK(!slot || LOAD(slot->credit) >= 0, "[Q1] credit was claimed");
    if (slot)
        quota_open(q, slot, missing > 0);
    BERTH_DCHECK(LOAD(q->claimed) <= LOAD(q->cap) || !taken || missing <= 0,
                 "[Q2] nothing is claimed beyond the cap");
    berth__slots_unlock(&q->slots);
    return taken;
}

void berth__quota_give_slow(berth__quota *q, uint64_t size_bytes)
{
    berth__slot *slot = berth__slot_of(&q->slots, berth__thread());
    if (slot) {
        berth__quota_give_at(slot, size_bytes);
        return;
    }
    berth__slots_lock(&q->slots);
    BERTH_DCHECK(LOAD(q->claimed) >= (int64_t)size_bytes, "[Q1] what is given back was claimed");
    STORE(q->claimed, LOAD(q->claimed) - (int64_t)size_bytes);
    berth__slots_unlock(&q->slots);
}

/* ---- The whole ----------------------------------------------------------------------------------- */

/* What holds with the lock whatever threads take and free meanwhile. The sum of their credit is of several moments then, and
 * a thread may have taken what was called back and not put it back yet. */
static int64_t quota_bad_slot(berth__slot *slot, uint32_t *bad)
{
    *bad += LOAD(slot->credit) < 0 || (LOAD(slot->open) && slot->called_back != 0);
    return quota_credit_of(slot);
}

static bool quota_agrees(const void *quota, int64_t credit)
{
    (void)credit;
    const berth__quota *q = quota;
    return LOAD(q->claimed) >= 0 && (!q->rises || LOAD(q->claimed) <= LOAD(q->cap));
}

static bool quota_is_sound(berth__quota *q)
{
    return berth__slots_are_valid(&q->slots, quota_bad_slot, quota_agrees, q);
}

void berth__quota_set_cap(berth__quota *q, int64_t cap_bytes)
{
    BERTH_DCHECK(cap_bytes >= 0 && !q->rises, "[Q2] a limit is set, a peak is not");
    berth__slots_lock(&q->slots);
    BERTH_DCHECK(quota_is_sound(q), "[Q1] the figures agree under the old cap");
    /* Credit given out under another cap is not used under this one. */
    quota_call_all_back(q, NULL, quota_close_slot);
    STORE(q->cap, cap_bytes);
    BERTH_DCHECK(quota_is_sound(q), "[Q1] the figures agree under the new cap");
    berth__slots_unlock(&q->slots);
}

void berth__quota_clear(berth__quota *q)
{
    berth__slots_lock(&q->slots);
    BERTH_DCHECK(q->rises, "[M8] a peak is cleared, a limit is not");
    BERTH_DCHECK(quota_is_sound(q), "[Q1] [Q2] the figures agree before the peak is cleared");
    quota_call_all_back(q, NULL, quota_close_slot);
    STORE(q->cap, LOAD(q->claimed));
    BERTH_DCHECK(LOAD(q->cap) >= 0, "[M8] a peak was in use");
    BERTH_DCHECK(quota_is_sound(q), "[Q1] [Q2] a cleared peak agrees");
    berth__slots_unlock(&q->slots);
}

/* With no call under way, beside what holds at any time: no more is called back than there is. */
static int64_t quota_bad_resting_slot(berth__slot *slot, uint32_t *bad)
{
    *bad += quota_credit_of(slot) < 0;
    return quota_bad_slot(slot, bad);
}

static bool quota_agrees_at_rest(const void *quota, int64_t credit)
{
    const berth__quota *q = quota;
    return credit <= LOAD(q->claimed) && quota_agrees(q, credit);
}

bool berth__quota_is_valid(berth__quota *q)
{
    berth__slots_lock(&q->slots);
    bool valid = quota_is_sound(q) &&
                 berth__slots_are_valid(&q->slots, quota_bad_resting_slot, quota_agrees_at_rest, q);
    berth__slots_unlock(&q->slots);
    return valid;
}

void berth__quota_read(berth__quota *q, berth_stats *out)
{
    out->bytes_in_use = berth__quota_in_use(q);
    out->max_bytes_in_use = berth__quota_peak(q);
    if (out->max_bytes_in_use < out->bytes_in_use) /* with calls under way */
        out->max_bytes_in_use = out->bytes_in_use;
    berth__slots_read_counts(&q->slots, out);
    out->bytes_limit = 0;
}

uint64_t berth__quota_in_use(berth__quota *q)
{
    berth__slots_lock(&q->slots);
    int64_t in_use = LOAD(q->claimed) - berth__slots_sum(&q->slots, NULL, quota_sum_credit, NULL);
    berth__slots_unlock(&q->slots);
    return in_use > 0 ? (uint64_t)in_use : 0; /* with calls under way the sum may be of two moments */
}

uint64_t berth__quota_peak(berth__quota *q)
{
    int64_t cap = LOAD(q->cap);
    return cap > 0 ? (uint64_t)cap : 0;
}

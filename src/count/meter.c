/* The meter's slow side: ownership, claims from the common figure, stopping, clearing and reading. */
#include "count/meter.h"

#include <sched.h>
#include <string.h>

enum { meter_fresh = 0, meter_shared = 1, meter_owned = 2 /* + the thread's number */ };

/* Half of what a slot may hold is taken at once, so that a free right after does not overflow it. */
#define REFILL (BERTH__METER_CREDIT / 2)

#define LOAD BERTH__METER_LOAD
#define STORE BERTH__METER_STORE

void berth__meter_init(berth__meter *m, bool exact)
{
    memset(m, 0, sizeof *m);
    m->exact = exact;
}

void berth__meter_finish(berth__meter *m)
{
    for (uint32_t piece = 0; piece < BERTH__METER_PIECES; piece++)
        berth__heap_free(atomic_load(&m->pieces[piece]));
}

static berth__meter_slot *add_piece(berth__meter *m, uint32_t piece)
{
    size_t size = ((size_t)BERTH__METER_PIECE << piece) * sizeof(berth__meter_slot);
    berth__meter_slot *slots = berth__heap_aligned(size, 64);
    if (!slots)
        return NULL; /* the common slot serves */
    memset(slots, 0, size);
    berth__meter_slot *present = NULL;
    if (atomic_compare_exchange_strong(&m->pieces[piece], &present, slots)) {
        if (piece == 0 && (berth__inside() & 1))
            atomic_store_explicit(&m->quick, BERTH__METER_PIECE, memory_order_release);
        return slots;
    }
    berth__heap_free(slots);
    return present;
}

berth__meter_slot *berth__meter_find_slot(berth__meter *m, uint32_t thread)
{
    if (thread >= BERTH__THREADS_MAX)
        return NULL;
    uint32_t piece = 31u - (uint32_t)__builtin_clz(thread / BERTH__METER_PIECE + 1);
    berth__meter_slot *slots = atomic_load_explicit(&m->pieces[piece], memory_order_acquire);
    if (!slots)
        slots = add_piece(m, piece);
    return slots ? &slots[thread - (((uint32_t)BERTH__METER_PIECE << piece) - BERTH__METER_PIECE)] : NULL;
}

/* Calls `each` on every slot there is. */
static int64_t for_each_slot(berth__meter *m, int64_t (*each)(berth__meter_slot *slot))
{
    int64_t sum = each(&m->common);
    for (uint32_t piece = 0; piece < BERTH__METER_PIECES; piece++) {
        berth__meter_slot *slots = atomic_load(&m->pieces[piece]);
        for (uint32_t i = 0; slots && i < (uint32_t)BERTH__METER_PIECE << piece; i++)
            sum += each(&slots[i]);
    }
    return sum;
}

/* ---- Stopping ------------------------------------------------------------------------------------ */

static void lock(berth__meter *m)
{
    /* A holder that did not survive a fork may have left the meter stopped. */
    if (berth__fork_lock(&m->lock, BERTH__RANK_METER))
        atomic_fetch_and(&m->stopped, ~(uint32_t)BERTH__METER_STOPPED);
}

static void unlock(berth__meter *m)
{
    berth__fork_unlock(&m->lock, BERTH__RANK_METER);
}

static bool is_closed(berth__meter *m)
{
    return (atomic_load_explicit(&m->stopped, memory_order_acquire) & BERTH__METER_CLOSED) != 0;
}

void berth__meter_wait(berth__meter_slot *slot)
{
    for (unsigned turn = 1;; turn++) {
        uint32_t mark = atomic_load_explicit(&slot->busy, memory_order_acquire);
        if (mark == 0 || !berth__same_generation(mark))
            return;
        if (turn % 64 == 0)
            sched_yield();
        else
            berth__pause();
    }
}

static int64_t wait_for(berth__meter_slot *slot)
{
    berth__meter_wait(slot);
    return 0;
}

/* With the lock held: on return no thread is inside, and none enters before `resume`. */
static void stop(berth__meter *m)
{
    if (is_closed(m))
        return; /* nobody is, nor ever will be */
    atomic_fetch_or(&m->stopped, BERTH__METER_STOPPED);
    berth__barrier_heavy();
    for_each_slot(m, wait_for);
}

static void resume(berth__meter *m)
{
    atomic_fetch_and_explicit(&m->stopped, ~(uint32_t)BERTH__METER_STOPPED, memory_order_release);
}

void berth__meter_stop(berth__meter *m)
{
    lock(m);
    stop(m);
}

void berth__meter_resume(berth__meter *m)
{
    resume(m);
    unlock(m);
}

void berth__meter_wait_resumed(berth__meter *m)
{
    lock(m);
    unlock(m);
}

void berth__meter_visit_beside(berth__meter *m, void (*each)(void *context, void *beside), void *context)
{
    for (uint32_t piece = 0; piece < BERTH__METER_PIECES; piece++) {
        berth__meter_slot *slots = atomic_load(&m->pieces[piece]);
        for (uint32_t i = 0; slots && i < (uint32_t)BERTH__METER_PIECE << piece; i++)
            if (slots[i].beside)
                each(context, slots[i].beside);
    }
}

static int64_t take_credit(berth__meter_slot *slot)
{
    int64_t credit = LOAD(slot->credit);
    STORE(slot->credit, 0);
    return credit;
}

/* While stopped: claimed is what is in use. */
static void collect(berth__meter *m)
{
    atomic_fetch_sub(&m->claimed, for_each_slot(m, take_credit));
}

/* What a slot of a shared meter may keep. */
static int64_t most_credit(berth__meter *m)
{
    return LOAD(m->hoards) ? INT64_MAX : BERTH__METER_CREDIT;
}

static void share(berth__meter *m)
{
    stop(m);
    collect(m);
    uint32_t owner = LOAD(m->owner);
    if (owner >= meter_owned)
        STORE(berth__meter_slot_of(m, owner - meter_owned)->credit_max, most_credit(m));
    STORE(m->owner, meter_shared);
    resume(m);
}

/* Makes `thread` the owner of a fresh meter, and any other meter shared. */
static void settle(berth__meter *m, berth__meter_slot *slot, uint32_t thread)
{
    lock(m);
    uint32_t owner = LOAD(m->owner);
    if (owner == meter_fresh && slot && !m->exact) {
        STORE(slot->credit_max, INT64_MAX);
        atomic_store_explicit(&m->owner, thread + meter_owned, memory_order_release);
    } else if (owner != meter_shared && owner != thread + meter_owned) {
        share(m);
    }
    unlock(m);
}

/* ---- Claims -------------------------------------------------------------------------------------- */

static void raise_peak(berth__meter *m, int64_t to)
{
    int64_t peak = LOAD(m->peak);
    while (peak < to && !atomic_compare_exchange_weak_explicit(&m->peak, &peak, to, memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

/* A limit was set below what is in use: until enough is free again nobody keeps credit. */
static bool is_over_limit(berth__meter *m)
{
    int64_t limit = LOAD(m->limit);
    return limit != 0 && LOAD(m->claimed) > limit;
}

/* `bytes` more from the common figure, with up to `extra` on top where the limit is far; BERTH_OK tells in
 * `extra` how much of it came. False: the limit would be exceeded. */
static bool take(berth__meter *m, int64_t bytes, int64_t *extra)
{
    int64_t limit = LOAD(m->limit);
    if (limit == 0) {
        atomic_fetch_add_explicit(&m->claimed, bytes + *extra, memory_order_relaxed);
        return true;
    }
    int64_t claimed = LOAD(m->claimed);
    for (;;) {
        /* Near the limit nobody keeps what another may need. */
        if (claimed > limit / 2 || *extra > limit / 16)
            *extra = 0;
        if (bytes > limit - claimed) /* [M4] a limit is never exceeded */
            return false;
        if (atomic_compare_exchange_weak_explicit(&m->claimed, &claimed, claimed + bytes + *extra,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
}

/* The owner alone moves an owned meter's figure: no locked instruction. */
static bool take_as_owner(berth__meter *m, int64_t bytes)
{
    int64_t limit = LOAD(m->limit), claimed = LOAD(m->claimed);
    if (limit != 0 && bytes > limit - claimed)
        return false;
    STORE(m->claimed, claimed + bytes);
    return true;
}

/* What is still missing after the slot's credit; the slot is entered. */
static berth__meter_answer claim_in_slot(berth__meter *m, berth__meter_slot *slot, int64_t size, bool owned,
                                         bool commit)
{
    int64_t missing = size - LOAD(slot->credit);
    int64_t extra = owned || m->exact || size >= REFILL ? 0 : REFILL;
    if (missing > 0) {
        if (owned ? !take_as_owner(m, missing) : !take(m, missing, &extra))
            return BERTH__METER_OVER;
        STORE(slot->credit, extra);
    } else {
        STORE(slot->credit, -missing);
    }
    if (commit) {
        if (missing > 0)
            raise_peak(m, LOAD(m->claimed));
        berth__meter_count(slot, (uint64_t)size);
    }
    return missing > 0 ? BERTH__METER_GREW : BERTH__METER_CREDIT_USED;
}

/* A thread without a slot, and every thread once the meter is closed, counts in the common one under the
 * lock. */
static berth__meter_answer claim_in_common(berth__meter *m, int64_t size, bool commit)
{
    lock(m);
    int64_t extra = 0;
    bool taken = take(m, size, &extra);
    if (taken && commit) {
        raise_peak(m, LOAD(m->claimed));
        berth__meter_count(&m->common, (uint64_t)size);
    }
    unlock(m);
    return taken ? BERTH__METER_GREW : BERTH__METER_OVER;
}

/* Other slots may hold credit that would suffice: it is collected before the limit is said to be reached. */
static bool collect_for(berth__meter *m, int64_t size)
{
    lock(m);
    stop(m);
    collect(m);
    bool room = size <= LOAD(m->limit) - LOAD(m->claimed);
    resume(m);
    unlock(m);
    return room;
}

/* Whether `thread` may go ahead with its slot, or with the common one if that is NULL. If not, it is made so.
 */
static bool is_settled(berth__meter *m, berth__meter_slot *slot, uint32_t thread)
{
    uint32_t owner = atomic_load_explicit(&m->owner, memory_order_acquire);
    if (owner == meter_shared || (slot && owner == thread + meter_owned))
        return true;
    settle(m, slot, thread);
    return false;
}

berth__meter_answer berth__meter_claim_slow(berth__meter *m, uint64_t size_bytes, bool commit)
{
    uint32_t thread = berth__thread();
    berth__meter_slot *slot = berth__meter_slot_of(m, thread);
    if (size_bytes > INT64_MAX / 2)
        return BERTH__METER_OVER;
    int64_t size = (int64_t)size_bytes;
    for (;;) {
        berth__meter_answer answer;
        if (is_closed(m))
            return claim_in_common(m, size, commit);
        if (!is_settled(m, slot, thread))
            continue;
        bool shared = true;
        if (!slot) {
            answer = claim_in_common(m, size, commit);
        } else {
            if (!berth__meter_enter(m, slot)) {
                berth__meter_wait_resumed(m);
                continue;
            }
            /* Asked now that it cannot change: the meter may have become shared just before. */
            shared = LOAD(m->owner) == meter_shared;
            if (!m->exact && shared && LOAD(slot->credit_max) == 0 && !is_over_limit(m))
                STORE(slot->credit_max, BERTH__METER_CREDIT);
            answer = claim_in_slot(m, slot, size, !shared, commit);
            berth__meter_leave(slot);
        }
        /* An owner has all the credit there is. */
        if (answer != BERTH__METER_OVER || !shared || !collect_for(m, size))
            return answer;
    }
}

/* Enters the thread's slot and returns it; without one, or once closed, takes the lock and returns the common
 * one. */
static berth__meter_slot *enter_any(berth__meter *m, berth__meter_slot *slot)
{
    while (slot && !is_closed(m)) {
        if (berth__meter_enter(m, slot))
            return slot;
        berth__meter_wait_resumed(m);
    }
    lock(m);
    return &m->common;
}

static void leave_any(berth__meter *m, berth__meter_slot *slot)
{
    if (slot == &m->common)
        unlock(m);
    else
        berth__meter_leave(slot);
}

void berth__meter_commit_slow(berth__meter *m, uint64_t size_bytes, bool grew)
{
    berth__meter_slot *slot = enter_any(m, berth__meter_slot_of(m, berth__thread()));
    if (grew)
        raise_peak(m, LOAD(m->claimed));
    berth__meter_count(slot, size_bytes);
    leave_any(m, slot);
}

/* ---- True peaks ---------------------------------------------------------------------------------- */

/* Within the slot's credit and, for the rest, up to the peak that is known. The slot is entered. */
static bool add_below_peak(berth__meter *m, berth__meter_slot *slot, int64_t size, bool owned)
{
    int64_t missing = size - LOAD(slot->credit);
    if (missing <= 0)
        return berth__meter_add_true_inside(slot, (uint64_t)size);
    if (owned) { /* nobody else has credit: what is claimed now is in use */
        STORE(m->claimed, LOAD(m->claimed) + missing);
        raise_peak(m, LOAD(m->claimed));
        STORE(slot->credit, 0);
        return true;
    }
    if (LOAD(slot->credit_max) == 0)
        STORE(slot->credit_max, most_credit(m));
    int64_t claimed = LOAD(m->claimed);
    while (missing <= LOAD(m->peak) - claimed) {
        atomic_store_explicit(&slot->takes, LOAD(slot->takes) + 1, memory_order_release);
        if (atomic_compare_exchange_weak_explicit(&m->claimed, &claimed, claimed + missing,
                                                  memory_order_release, memory_order_relaxed)) {
            atomic_store_explicit(&slot->credit, 0, memory_order_release);
            return true;
        }
    }
    return false;
}

static int64_t credit_of(berth__meter_slot *slot)
{
    return atomic_load_explicit(&slot->credit, memory_order_acquire);
}

static int64_t takes_of(berth__meter_slot *slot)
{
    return (int64_t)atomic_load_explicit(&slot->takes, memory_order_acquire);
}

/* With the lock held. While a program grows nobody has credit, and then nobody needs to be stopped. False, and
 * nothing changed, if somebody has. Else the bytes are claimed, and `all_in_use` says whether everything that
 * is claimed now was in use at one moment: the one after the first look at `takes`. Nobody had credit then,
 * since nobody has taken any from then on until it was seen to be 0, nor moved `claimed` up. */
static bool add_without_credit(berth__meter *m, int64_t size, int64_t *claimed, bool *all_in_use)
{
    *claimed = atomic_load(&m->claimed);
    int64_t takes = for_each_slot(m, takes_of);
    if (for_each_slot(m, credit_of) != 0 ||
        !atomic_compare_exchange_strong(&m->claimed, claimed, *claimed + size))
        return false;
    *claimed += size;
    *all_in_use = for_each_slot(m, takes_of) == takes;
    return true;
}

void berth__meter_hoard(berth__meter *m)
{
    STORE(m->hoards, true);
}

static int64_t bound_credit(berth__meter_slot *slot)
{
    if (LOAD(slot->credit_max) > BERTH__METER_CREDIT)
        STORE(slot->credit_max, BERTH__METER_CREDIT);
    return 0;
}

/* While stopped, before collecting: hoards that must be collected again and again are worse than none. */
static void note_reclaim(berth__meter *m)
{
    enum { RECLAIMS = 100 };
    if (for_each_slot(m, credit_of) <= BERTH__METER_CREDIT || ++m->reclaims < RECLAIMS)
        return;
    STORE(m->hoards, false);
    for_each_slot(m, bound_credit);
}

void berth__meter_add_true_counted(berth__meter *m, uint64_t size_bytes)
{
    berth__meter_slot *slot = enter_any(m, berth__meter_slot_of(m, berth__thread()));
    berth__meter_count(slot, size_bytes);
    leave_any(m, slot);
    berth__meter_add_true(m, size_bytes);
}

void berth__meter_add_true_slow(berth__meter *m, uint64_t size_bytes)
{
    uint32_t thread = berth__thread();
    berth__meter_slot *slot = berth__meter_slot_of(m, thread);
    int64_t size = (int64_t)size_bytes;
    while (!is_settled(m, slot, thread))
        ;
    if (slot && berth__meter_enter(m, slot)) {
        bool added = add_below_peak(m, slot, size, LOAD(m->owner) == thread + meter_owned);
        berth__meter_leave(slot);
        if (added)
            return;
    }
    lock(m);
    int64_t claimed = 0;
    bool all_in_use = false, added = add_without_credit(m, size, &claimed, &all_in_use);
    if (all_in_use) {
        raise_peak(m, claimed); /* [M8] it was in use at one moment */
    } else {
        stop(m);
        if (LOAD(m->hoards))
            note_reclaim(m);
        collect(m);
        if (!added)
            atomic_fetch_add(&m->claimed, size);
        raise_peak(m, LOAD(m->claimed)); /* [M8] no credit is out: this is what is in use */
        resume(m);
    }
    unlock(m);
}

/* ---- Giving back --------------------------------------------------------------------------------- */

/* The slot is entered and the meter is shared: what is too much for one slot goes back. */
static void free_in_slot(berth__meter *m, berth__meter_slot *slot, int64_t size)
{
    int64_t credit = LOAD(slot->credit) + size;
    int64_t keep = m->exact || is_over_limit(m) ? 0 : credit <= most_credit(m) ? credit : REFILL;
    if (credit > keep)
        atomic_fetch_sub_explicit(&m->claimed, credit - keep, memory_order_relaxed);
    STORE(slot->credit, keep);
}

static bool give_back(berth__meter *m, uint64_t size_bytes, bool unclaim)
{
    uint32_t thread = berth__thread();
    berth__meter_slot *own = berth__meter_slot_of(m, thread);
    int64_t size = (int64_t)size_bytes;
    while (!is_closed(m) && !is_settled(m, own, thread))
        ;
    berth__meter_slot *slot = enter_any(m, own);
    bool closed = slot == &m->common && is_closed(m);
    if (slot == &m->common) {
        atomic_fetch_sub_explicit(&m->claimed, size, memory_order_relaxed);
    } else if (LOAD(m->owner) == meter_shared) {
        free_in_slot(m, slot, size);
    } else {
        /* What was claimed above the peak and never committed goes first, so that the peak stays exact. */
        int64_t above = unclaim ? LOAD(m->claimed) - LOAD(m->peak) : 0;
        int64_t undone = above < 0 ? 0 : above < size ? above : size;
        STORE(m->claimed, LOAD(m->claimed) - undone);
        STORE(slot->credit, LOAD(slot->credit) + size - undone);
    }
    if (!unclaim)
        STORE(slot->blocks, LOAD(slot->blocks) - 1);
    leave_any(m, slot);
    return closed;
}

bool berth__meter_sub_slow(berth__meter *m, uint64_t size_bytes)
{
    return give_back(m, size_bytes, false);
}

void berth__meter_unclaim(berth__meter *m, uint64_t size_bytes)
{
    (void)give_back(m, size_bytes, true);
}

static int64_t blocks_of(berth__meter_slot *slot)
{
    return LOAD(slot->blocks);
}

void berth__meter_close(berth__meter *m, _Atomic uint64_t *remaining)
{
    lock(m);
    stop(m);
    collect(m);
    STORE(m->owner, meter_shared);
    atomic_fetch_add(remaining, (uint64_t)for_each_slot(m, blocks_of));
    atomic_fetch_or_explicit(&m->stopped, BERTH__METER_CLOSED, memory_order_release);
    unlock(m);
}

void berth__meter_count_failure(berth__meter *m)
{
    atomic_fetch_add_explicit(&m->num_failures, 1, memory_order_relaxed);
}

void berth__meter_count_retry(berth__meter *m)
{
    atomic_fetch_add_explicit(&m->num_retries, 1, memory_order_relaxed);
}

/* ---- Reading and clearing ------------------------------------------------------------------------ */

uint64_t berth__meter_in_use(berth__meter *m)
{
    int64_t in_use = LOAD(m->claimed) - for_each_slot(m, credit_of);
    return in_use > 0 ? (uint64_t)in_use : 0; /* with calls under way the sum may be of two moments */
}

static int64_t allocs_of(berth__meter_slot *slot)
{
    return (int64_t)LOAD(slot->num_allocs);
}

static int64_t total_of(berth__meter_slot *slot)
{
    return (int64_t)LOAD(slot->total_bytes);
}

static uint64_t largest_of(berth__meter *m)
{
    uint64_t largest = LOAD(m->common.largest);
    for (uint32_t piece = 0; piece < BERTH__METER_PIECES; piece++) {
        berth__meter_slot *slots = atomic_load(&m->pieces[piece]);
        for (uint32_t i = 0; slots && i < (uint32_t)BERTH__METER_PIECE << piece; i++)
            if (LOAD(slots[i].largest) > largest)
                largest = LOAD(slots[i].largest);
    }
    return largest;
}

void berth__meter_read(berth__meter *m, berth_stats *out)
{
    int64_t peak = LOAD(m->peak);
    out->bytes_in_use = berth__meter_in_use(m);
    out->max_bytes_in_use = peak > 0 ? (uint64_t)peak : 0;
    if (out->max_bytes_in_use < out->bytes_in_use)
        out->max_bytes_in_use = out->bytes_in_use;
    out->num_allocs = (uint64_t)for_each_slot(m, allocs_of);
    out->total_bytes = (uint64_t)for_each_slot(m, total_of);
    out->max_alloc_size = largest_of(m);
    out->num_failures = LOAD(m->num_failures);
    out->num_retries = LOAD(m->num_retries);
    out->bytes_limit = (uint64_t)LOAD(m->limit);
}

static int64_t clear_counts(berth__meter_slot *slot)
{
    STORE(slot->num_allocs, 0);
    STORE(slot->total_bytes, 0);
    STORE(slot->largest, 0);
    return 0;
}

void berth__meter_clear(berth__meter *m)
{
    lock(m);
    stop(m);
    collect(m);
    for_each_slot(m, clear_counts);
    STORE(m->peak, LOAD(m->claimed));
    STORE(m->num_failures, 0);
    STORE(m->num_retries, 0);
    m->reclaims = 0;
    resume(m);
    unlock(m);
}

static int64_t forbid_credit(berth__meter_slot *slot)
{
    STORE(slot->credit_max, 0);
    return 0;
}

void berth__meter_set_limit(berth__meter *m, uint64_t limit_bytes)
{
    lock(m);
    stop(m);
    collect(m); /* credit given out under another limit must not be used under this one */
    atomic_store(&m->limit, (int64_t)(limit_bytes > INT64_MAX ? INT64_MAX : limit_bytes));
    if (is_over_limit(m)) {
        STORE(m->owner, meter_shared);
        for_each_slot(m, forbid_credit);
    }
    resume(m);
    unlock(m);
}

/* The quota's slow side: claiming, calling credit back, and the slots of later threads. */
#include "count/quota.h"

#include <string.h>

/* The most that is claimed for a thread beyond what it asks for. */
#define REFILL ((int64_t)32 << 10)

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

void berth__quota_init(berth__quota *q, int64_t cap_bytes)
{
    memset(q, 0, sizeof *q);
    atomic_init(&q->cap, cap_bytes);
}

void berth__quota_finish(berth__quota *q)
{
    for (uint32_t piece = 0; piece < BERTH__QUOTA_PIECES; piece++)
        berth__heap_free(atomic_load(&q->pieces[piece]));
}

static void lock(berth__quota *q)
{
    (void)berth__fork_lock(&q->lock, BERTH__RANK_METER);
}

static void unlock(berth__quota *q)
{
    berth__fork_unlock(&q->lock, BERTH__RANK_METER);
}

/* ---- Slots --------------------------------------------------------------------------------------- */

static size_t piece_slots(uint32_t piece)
{
    return (size_t)BERTH__QUOTA_SLOTS << (piece + 1);
}

static berth__quota_slot *add_piece(berth__quota *q, uint32_t piece)
{
    size_t size = piece_slots(piece) * sizeof(berth__quota_slot);
    berth__quota_slot *slots = berth__heap_aligned(size, 64), *present = NULL;
    if (!slots)
        return NULL; /* the thread does without credit */
    memset(slots, 0, size);
    if (atomic_compare_exchange_strong(&q->pieces[piece], &present, slots))
        return slots;
    berth__heap_free(slots);
    return present;
}

berth__quota_slot *berth__quota_slot_of(berth__quota *q, uint32_t thread)
{
    if (thread < BERTH__QUOTA_SLOTS)
        return &q->slots[thread];
    if (thread >= BERTH__THREADS_MAX)
        return NULL;
    uint32_t order = 31u - (uint32_t)__builtin_clz(thread / BERTH__QUOTA_SLOTS + 1), piece = order - 1;
    berth__quota_slot *slots = atomic_load_explicit(&q->pieces[piece], memory_order_acquire);
    if (!slots)
        slots = add_piece(q, piece);
    uint32_t before = ((uint32_t)BERTH__QUOTA_SLOTS << order) - BERTH__QUOTA_SLOTS;
    return slots ? &slots[thread - before] : NULL;
}

typedef int64_t (*slot_fn)(berth__quota_slot *slot, uint32_t *count);

/* The sum of what `each` answers for every slot but `except`, which may be NULL. */
static int64_t for_each_slot(berth__quota *q, const berth__quota_slot *except, slot_fn each, uint32_t *count)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < BERTH__QUOTA_SLOTS; i++)
        sum += &q->slots[i] == except ? 0 : each(&q->slots[i], count);
    for (uint32_t piece = 0; piece < BERTH__QUOTA_PIECES; piece++) {
        berth__quota_slot *slots = atomic_load_explicit(&q->pieces[piece], memory_order_acquire);
        for (size_t i = 0; slots && i < piece_slots(piece); i++)
            sum += &slots[i] == except ? 0 : each(&slots[i], count);
    }
    return sum;
}

/* ---- Calling back: all with the lock held --------------------------------------------------------- */

static int64_t credit_of(berth__quota_slot *slot)
{
    return atomic_load_explicit(&slot->credit, memory_order_acquire) - slot->called_back;
}

static int64_t sum_credit(berth__quota_slot *slot, uint32_t *count)
{
    (void)count;
    return credit_of(slot);
}

/* Counts those whose threads must be told that they are closed now. */
static int64_t close_slot(berth__quota_slot *slot, uint32_t *closed)
{
    if (LOAD(slot->open)) {
        STORE(slot->open, false);
        ++*closed;
    }
    return 0;
}

static int64_t close_if_it_has(berth__quota_slot *slot, uint32_t *closed)
{
    return credit_of(slot) > 0 ? close_slot(slot, closed) : 0;
}

static uint32_t takes_of(const berth__quota_slot *slot)
{
    return atomic_load_explicit(&slot->takes, memory_order_acquire);
}

/* Counts the closed slots whose credit is not as it was at the last look. */
static int64_t call_back(berth__quota_slot *slot, uint32_t *changed)
{
    if (LOAD(slot->open))
        return 0;
    int64_t credit = credit_of(slot);
    *changed += credit != 0;
    slot->called_back += credit;
    return credit;
}

/* The same for a peak, which also counts those whose thread has taken some, be it only to put it back, from before
 * the last look on until after this one. */
static int64_t call_back_for_peak(berth__quota_slot *slot, uint32_t *changed)
{
    uint32_t before = takes_of(slot);
    int64_t credit = call_back(slot, changed);
    *changed += takes_of(slot) != slot->takes_seen;
    slot->takes_seen = before;
    return credit;
}

/* From then on claimed is what is in use, and the credit of `except`. */
static void call_all_back(berth__quota *q, const berth__quota_slot *except, slot_fn close)
{
    enum { TRIES = 100 };
    uint32_t closed = 0, changed = 1;
    for_each_slot(q, except, close, &closed);
    if (closed)
        berth__barrier_heavy();
    /* Closed slots change by frees, and by threads that take before they see it and put back. Once nothing
     * changed between two looks, what both saw was so at one moment; a peak wants that. Threads that free
     * without end are not waited for. */
    for (int turn = 0; changed != 0 && turn < TRIES; turn++) {
        changed = 0;
        int64_t credit = for_each_slot(q, except, q->rises ? call_back_for_peak : call_back, &changed);
        STORE(q->claimed, LOAD(q->claimed) - credit);
    }
}

/* ---- Claiming ------------------------------------------------------------------------------------ */

/* With the lock held, by the slot's thread: what is left of its credit. */
static int64_t settle(berth__quota *q, berth__quota_slot *slot)
{
    int64_t credit = credit_of(slot);
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
static bool claim(berth__quota *q, const berth__quota_slot *slot, int64_t bytes)
{
    if (bytes > LOAD(q->cap) - LOAD(q->claimed))
        call_all_back(q, slot, q->rises ? close_slot : close_if_it_has);
    if (bytes > LOAD(q->cap) - LOAD(q->claimed)) {
        if (!q->rises)
            return false;
        STORE(q->cap, LOAD(q->claimed) + bytes); /* [M8] the slot has no credit left: all of it is in use */
    }
    STORE(q->claimed, LOAD(q->claimed) + bytes);
    return true;
}

/* With the lock held: credit for the next ones, less where the cap is near and others may need it. */
static int64_t claim_extra(berth__quota *q)
{
    int64_t part = (LOAD(q->cap) - LOAD(q->claimed)) / 8, extra = part < REFILL ? part : REFILL;
    STORE(q->claimed, LOAD(q->claimed) + extra);
    return extra;
}

bool berth__quota_take_slow(berth__quota *q, uint64_t size_bytes)
{
    if (!q->rises && size_bytes > INT64_MAX / 2) /* no limit is that high */
        return false;
    uint32_t thread = berth__thread();
    berth__quota_slot *slot = berth__quota_slot_of(q, thread);
    if (slot && thread >= BERTH__QUOTA_SLOTS && berth__quota_take_at(slot, size_bytes))
        return true;
    lock(q);
    int64_t credit = slot ? settle(q, slot) : 0, missing = (int64_t)size_bytes - credit;
    bool taken = missing <= 0 || claim(q, slot, missing);
    if (slot && taken)
        STORE(slot->credit, missing <= 0 ? -missing : claim_extra(q));
    if (slot)
        STORE(slot->open, (berth__inside() & 1) != 0 && LOAD(q->claimed) <= LOAD(q->cap));
    unlock(q);
    return taken;
}

void berth__quota_give_slow(berth__quota *q, uint64_t size_bytes)
{
    berth__quota_slot *slot = berth__quota_slot_of(q, berth__thread());
    if (slot) {
        berth__quota_give_at(slot, size_bytes);
        return;
    }
    lock(q);
    STORE(q->claimed, LOAD(q->claimed) - (int64_t)size_bytes);
    unlock(q);
}

/* ---- The whole ----------------------------------------------------------------------------------- */

void berth__quota_set_cap(berth__quota *q, int64_t cap_bytes)
{
    lock(q);
    call_all_back(q, NULL, close_slot); /* credit given out under another cap is not used under this one */
    STORE(q->cap, cap_bytes);
    unlock(q);
}

void berth__quota_clear(berth__quota *q)
{
    lock(q);
    call_all_back(q, NULL, close_slot);
    STORE(q->cap, LOAD(q->claimed));
    unlock(q);
}

uint64_t berth__quota_in_use(berth__quota *q)
{
    lock(q);
    int64_t in_use = LOAD(q->claimed) - for_each_slot(q, NULL, sum_credit, NULL);
    unlock(q);
    return in_use > 0 ? (uint64_t)in_use : 0; /* with calls under way the sum may be of two moments */
}

uint64_t berth__quota_peak(berth__quota *q)
{
    int64_t cap = LOAD(q->cap);
    return cap > 0 ? (uint64_t)cap : 0;
}

/* The table of slots: those of later threads, the lock, stopping, and looking at all of them. */
#include "count/slot.h"

#include <sched.h>
#include <string.h>

/* ---- The table ----------------------------------------------------------------------------------- */

static size_t slot_piece_count(uint32_t piece)
{
    return (size_t)BERTH__SLOTS_FIRST << (piece + 1);
}

void berth__slots_finish(berth__slots *t)
{
    for (uint32_t piece = 0; piece < BERTH__SLOTS_PIECES; piece++)
        berth__heap_free(atomic_load(&t->pieces[piece]));
}

static berth__slot *slot_add_piece(berth__slots *t, uint32_t piece)
{
    BERTH_DCHECK(piece < BERTH__SLOTS_PIECES, "[S2] there is a piece for every number");
    size_t size = slot_piece_count(piece) * sizeof(berth__slot);
    berth__slot *slots = berth__heap_aligned(size, 64), *present = NULL;
    if (!slots)
        return NULL; /* the thread does without one */
    memset(slots, 0, size);
    if (atomic_compare_exchange_strong(&t->pieces[piece], &present, slots))
        return slots;
    berth__heap_free(slots);
    return present;
}

berth__slot *berth__slot_find(berth__slots *t, uint32_t thread)
{
    if (thread < BERTH__SLOTS_FIRST)
        return &t->first[thread];
    if (thread >= BERTH__THREADS_MAX)
        return NULL;
    uint32_t order = 31u - (uint32_t)__builtin_clz(thread / BERTH__SLOTS_FIRST + 1), piece = order - 1;
    BERTH_DCHECK(piece < BERTH__SLOTS_PIECES, "[S2] there is a piece for every number");
    berth__slot *slots = atomic_load_explicit(&t->pieces[piece], memory_order_acquire);
    if (!slots)
        slots = slot_add_piece(t, piece);
    uint32_t before = ((uint32_t)BERTH__SLOTS_FIRST << order) - BERTH__SLOTS_FIRST;
    BERTH_DCHECK(thread - before < slot_piece_count(piece), "[S2] the slot lies in its piece");
    return slots ? &slots[thread - before] : NULL;
}

int64_t berth__slots_sum(berth__slots *t, const berth__slot *except, berth__slot_fn each, uint32_t *count)
{
    /* A thread whose number is not in the end that is seen here has done nothing yet that happened before. */
    uint32_t end = berth__thread_numbers_end();
    int64_t sum = each(&t->common, count);
    for (uint32_t i = 0; i < BERTH__SLOTS_FIRST && i < end; i++)
        sum += &t->first[i] == except ? 0 : each(&t->first[i], count);
    for (uint32_t piece = 0; piece < BERTH__SLOTS_PIECES; piece++) {
        berth__slot *slots = atomic_load_explicit(&t->pieces[piece], memory_order_acquire);
        for (size_t i = 0; slots && i < slot_piece_count(piece); i++)
            sum += &slots[i] == except ? 0 : each(&slots[i], count);
    }
    return sum;
}

bool berth__slots_are_valid(berth__slots *t, berth__slot_fn each,
                            bool (*agrees)(const void *figures, int64_t credit), const void *figures)
{
    uint32_t bad = 0;
    if (berth__is_child())
        return true;
    int64_t credit = berth__slots_sum(t, NULL, each, &bad);
    return bad == 0 && agrees(figures, credit);
}

void berth__slots_visit_beside(berth__slots *t, void (*each)(void *context, void *beside), void *context)
{
    BERTH_DCHECK(berth__slots_are_stopped(t) || berth__slots_has(t, BERTH__MARK_CLOSING),
                 "[S1] what lies beside slots is looked at while stopped");
    for (uint32_t i = 0; i < BERTH__SLOTS_FIRST; i++)
        if (t->first[i].beside)
            each(context, t->first[i].beside);
    for (uint32_t piece = 0; piece < BERTH__SLOTS_PIECES; piece++) {
        berth__slot *slots = atomic_load(&t->pieces[piece]);
        for (size_t i = 0; slots && i < slot_piece_count(piece); i++)
            if (slots[i].beside)
                each(context, slots[i].beside);
    }
}

/* ---- Stopping ------------------------------------------------------------------------------------ */

void berth__slots_lock(berth__slots *t)
{
    /* A holder that did not survive a fork may have left the table stopped. */
    if (berth__fork_lock(&t->lock, BERTH__RANK_METER))
        atomic_fetch_and(&t->stopped, ~(uint32_t)BERTH__SLOTS_STOPPED);
}

void berth__slots_unlock(berth__slots *t)
{
    berth__fork_unlock(&t->lock, BERTH__RANK_METER);
}

void berth__slots_allow_fast(berth__slots *t)
{
    if (berth__inside() & 1)
        atomic_store_explicit(&t->fast, BERTH__SLOTS_FIRST, memory_order_release);
}

void berth__slot_wait(berth__slot *slot)
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

static int64_t slot_wait_each(berth__slot *slot, uint32_t *count)
{
    (void)count;
    berth__slot_wait(slot);
    return 0;
}

void berth__slots_stop_locked(berth__slots *t)
{
    BERTH_DCHECK(berth__slots_are_locked(t), "[B1] who stops a table has its lock");
    uint32_t before = atomic_fetch_or(&t->stopped, BERTH__SLOTS_STOPPED);
    BERTH_DCHECK(!(before & BERTH__SLOTS_STOPPED), "[S1] one at a time stops a table");
    if (before & BERTH__SLOTS_CLOSED)
        return; /* nobody is inside, nor ever will be */
    berth__barrier_heavy();
    berth__slots_sum(t, NULL, slot_wait_each, NULL);
}

void berth__slots_resume_locked(berth__slots *t)
{
    BERTH_DCHECK(berth__slots_are_locked(t), "[B1] who resumes a table has its lock");
    BERTH_DCHECK(BERTH__SLOT_LOAD(t->stopped) & BERTH__SLOTS_STOPPED, "[S1] what is resumed was stopped");
    atomic_fetch_and_explicit(&t->stopped, ~(uint32_t)BERTH__SLOTS_STOPPED, memory_order_release);
}

void berth__slots_stop(berth__slots *t)
{
    berth__slots_lock(t);
    berth__slots_stop_locked(t);
}

void berth__slots_resume(berth__slots *t)
{
    berth__slots_resume_locked(t);
    berth__slots_unlock(t);
}

void berth__slots_wait_resumed(berth__slots *t)
{
    berth__slots_lock(t);
    berth__slots_unlock(t);
}

void berth__slots_mark(berth__slots *t, uint32_t marks)
{
    BERTH_DCHECK(!(marks & (BERTH__SLOTS_STOPPED | BERTH__SLOTS_CLOSED)), "[S1] a mark does not stop");
    atomic_fetch_or(&t->stopped, marks);
}

void berth__slots_unmark(berth__slots *t, uint32_t marks)
{
    BERTH_DCHECK(!(marks & (BERTH__SLOTS_STOPPED | BERTH__SLOTS_CLOSED)), "[S1] a mark does not stop");
    atomic_fetch_and(&t->stopped, ~marks);
}

berth__slot *berth__slots_enter_any(berth__slots *t, berth__slot *slot)
{
    while (slot && !berth__slots_has(t, BERTH__SLOTS_CLOSED)) {
        if (berth__slot_enter(t, slot))
            return slot;
        berth__slots_wait_resumed(t);
    }
    berth__slots_lock(t);
    return &t->common;
}

void berth__slots_leave_any(berth__slots *t, berth__slot *slot)
{
    BERTH_DCHECK(BERTH__SLOT_LOAD(slot->busy) != 0 || berth__slots_are_locked(t),
                 "[S1] who leaves was inside, or has the lock");
    if (slot == &t->common)
        berth__slots_unlock(t);
    else
        berth__slot_leave(slot);
}

/* ---- Counts -------------------------------------------------------------------------------------- */

void berth__slots_count_failure(berth__slots *t)
{
    atomic_fetch_add_explicit(&t->num_failures, 1, memory_order_relaxed);
}

void berth__slots_count_retry(berth__slots *t)
{
    atomic_fetch_add_explicit(&t->num_retries, 1, memory_order_relaxed);
}

void berth__slots_count(berth__slots *t, uint64_t size_bytes)
{
    berth__slot *slot = berth__slots_enter_any(t, berth__slot_of(t, berth__thread()));
    berth__slot_count(slot, size_bytes);
    BERTH_DCHECK(BERTH__SLOT_LOAD(slot->largest) <= BERTH__SLOT_LOAD(slot->total_bytes),
                 "[M5] the largest is one of those counted");
    berth__slots_leave_any(t, slot);
}

static int64_t slot_allocs(berth__slot *slot, uint32_t *count)
{
    (void)count;
    return (int64_t)BERTH__SLOT_LOAD(slot->num_allocs);
}

static int64_t slot_total(berth__slot *slot, uint32_t *count)
{
    (void)count;
    return (int64_t)BERTH__SLOT_LOAD(slot->total_bytes);
}

static uint64_t slot_largest(berth__slots *t)
{
    uint64_t largest = BERTH__SLOT_LOAD(t->common.largest), here;
    uint32_t end = berth__thread_numbers_end(); /* as in berth__slots_sum: 32 lines of the cache are many */
    for (uint32_t thread = 0; thread < BERTH__SLOTS_FIRST && thread < end; thread++)
        if ((here = BERTH__SLOT_LOAD(t->first[thread].largest)) > largest)
            largest = here;
    for (uint32_t piece = 0; piece < BERTH__SLOTS_PIECES; piece++) {
        berth__slot *slots = atomic_load(&t->pieces[piece]);
        for (size_t i = 0; slots && i < slot_piece_count(piece); i++)
            if ((here = BERTH__SLOT_LOAD(slots[i].largest)) > largest)
                largest = here;
    }
    return largest;
}

void berth__slots_read_counts(berth__slots *t, berth_stats *out)
{
    out->num_allocs = (uint64_t)berth__slots_sum(t, NULL, slot_allocs, NULL);
    out->total_bytes = (uint64_t)berth__slots_sum(t, NULL, slot_total, NULL);
    out->max_alloc_size = slot_largest(t);
    out->num_failures = BERTH__SLOT_LOAD(t->num_failures);
    out->num_retries = BERTH__SLOT_LOAD(t->num_retries);
}

static int64_t slot_clear_counts(berth__slot *slot, uint32_t *count)
{
    (void)count;
    BERTH__SLOT_STORE(slot->num_allocs, 0);
    BERTH__SLOT_STORE(slot->total_bytes, 0);
    BERTH__SLOT_STORE(slot->largest, 0);
    return 0;
}

void berth__slots_clear_counts_stopped(berth__slots *t)
{
    BERTH_DCHECK(berth__slots_are_locked(t), "[B1] with the lock");
    BERTH_DCHECK(BERTH__SLOT_LOAD(t->stopped) & BERTH__SLOTS_STOPPED,
                 "[S1] others' slots are written while stopped");
    berth__slots_sum(t, NULL, slot_clear_counts, NULL);
    BERTH__SLOT_STORE(t->num_failures, 0);
    BERTH__SLOT_STORE(t->num_retries, 0);
}

void berth__slots_clear_counts(berth__slots *t)
{
    berth__slots_stop(t);
    berth__slots_clear_counts_stopped(t);
    berth__slots_resume(t);
}

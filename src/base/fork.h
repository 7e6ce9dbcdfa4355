/* Forks: a child finds every spin lock free and what it guards whole, whatever other threads were doing.
 *
 * Every berth__spin_lock passes a gate. A thread notes in a slot of its own which ranks it holds (a plain
 * store) and then looks whether the gate is closed. Before a fork the handlers here close the gate rank by
 * rank, the outermost first: threads that hold nothing wait from then on, those that hold something finish.
 * When nobody holds anything the process is forked, and the gate opens on both sides. The barrier between a
 * thread's note and its look is the asymmetric one of base/thread.h: the gate costs a lock and its unlock
 * about a nanosecond together.
 *
 * What is not a spin lock needs a watch. It runs once the gate is closed up to its rank: no thread then holds
 * a spin lock of that rank or a lower one, those of higher ranks still move. So it may lock mutexes and stop
 * meters, and wait for threads that need spin locks of higher ranks to let go.
 *
 *     static berth__fork_watch watch = {.rank = BERTH__RANK_POOL, .prepare = stop_all, .parent = resume_all,
 *                                       .child = resume_all};
 *     berth__fork_watch_add(&watch);          any number of times; it counts once
 *
 * After the fork watches run in the opposite order. Use this and not pthread_atfork, whose order is that of
 * registration. Pools and caches: with the pool's lock a spin lock, a watch need not take it any more.
 *
 * Memory that a lock does not guard (a meter's slots, thread caches) is as the other threads left it:
 * stop the meter in a watch where that matters. Locks of berth__fork_lock are not part of this: the child
 * passes over their holders. */
#ifndef BERTH_BASE_FORK_H
#define BERTH_BASE_FORK_H

#include "base/thread.h"

typedef struct berth__fork_slot {
    _Alignas(64) _Atomic uint32_t held; /* bit 1 << rank; written by the thread of that number */
} berth__fork_slot;

extern BERTH__HIDDEN berth__fork_slot berth__fork_slots[BERTH__THREADS_MAX];
/* Ranks up to this one are closed; 0: none. */
extern BERTH__HIDDEN _Atomic uint32_t berth__fork_closed;

void berth__fork_enter_slow(uint32_t rank);
void berth__fork_leave_slow(uint32_t rank);

/* Before something of `rank` is taken: waits while a fork is under way, unless the thread holds something
 * already. */
BERTH__INLINE void berth__fork_enter(uint32_t rank)
{
    uint32_t number = berth__thread_plus_one - 1;
    if (BERTH_UNLIKELY(number >= BERTH__THREADS_MAX)) {
        berth__fork_enter_slow(rank);
        return;
    }
    _Atomic uint32_t *slot = &berth__fork_slots[number].held;
    uint32_t held = atomic_load_explicit(slot, memory_order_relaxed);
    atomic_store_explicit(slot, held | 1u << rank, memory_order_relaxed);
    berth__barrier_light();
    if (BERTH_UNLIKELY(atomic_load_explicit(&berth__fork_closed, memory_order_acquire) >= rank && held == 0))
        berth__fork_enter_slow(rank);
}

/* After it was given back. */
BERTH__INLINE void berth__fork_leave(uint32_t rank)
{
    uint32_t number = berth__thread_plus_one - 1;
    if (BERTH_UNLIKELY(number >= BERTH__THREADS_MAX)) {
        berth__fork_leave_slow(rank);
        return;
    }
    _Atomic uint32_t *slot = &berth__fork_slots[number].held;
    uint32_t held = atomic_load_explicit(slot, memory_order_relaxed);
    if (BERTH_UNLIKELY(!(held >> rank & 1))) /* it had no number when it entered */
        berth__fork_leave_slow(rank);
    else
        atomic_store_explicit(slot, held & ~(1u << rank), memory_order_release);
}

/* For a thread that has entered for `rank` and still waits for the lock itself: lets a fork go first if one
 * is under way and the thread holds nothing else. */
void berth__fork_step_aside(uint32_t rank);

typedef struct berth__fork_watch {
    uint32_t rank; /* a berth__rank: the highest of what `prepare` takes */
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
    struct berth__fork_watch *next; /* ours */
    _Atomic bool added;             /* ours */
} berth__fork_watch;

/* Adds a watch, which stays for ever; adding it again changes nothing. Any thread, with no lock held. */
void berth__fork_watch_add(berth__fork_watch *watch);

#endif

/* The slow side of locks: waiting for a spin lock, and the check that ranks rise. */
#include "base/lock.h"

#include <sched.h>

/* Long enough for a holder that runs on another processor, short enough for one that was preempted. */
enum { turns_before_yield = 64 };

void berth__spin_wait(berth__spin *spin)
{
    for (unsigned turn = 0;; turn++) {
        if (atomic_load_explicit(&spin->word, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&spin->word, 1, memory_order_acquire) == 0)
            return;
        if (turn % turns_before_yield == turns_before_yield - 1)
            sched_yield();
        else
            berth__pause();
    }
}

/* One that waits for a thread that forks, or for whom that thread waits, lets the fork go first. */
void berth__spin_wait_ranked(berth__spin *spin, berth__rank rank)
{
    for (unsigned turn = 0;; turn++) {
        if (atomic_load_explicit(&spin->word, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&spin->word, 1, memory_order_acquire) == 0)
            return;
        if (turn % turns_before_yield == turns_before_yield - 1) {
            berth__fork_step_aside(rank);
            sched_yield();
        } else {
            berth__pause();
        }
    }
}

static _Thread_local uint32_t ranks_held; /* bit 1 << rank */

void berth__rank_take(berth__rank rank)
{
    (void)BERTH_ASSERT((ranks_held >> rank) == 0, "[B1] locks are taken in rising rank");
    ranks_held |= 1u << rank;
}

void berth__rank_give(berth__rank rank)
{
    (void)BERTH_ASSERT((ranks_held >> rank & 1) != 0, "[B1] a lock is given back by the thread that took it");
    ranks_held &= ~(1u << rank);
}

bool berth__rank_is_held(berth__rank rank)
{
    return (ranks_held >> rank & 1) != 0;
}

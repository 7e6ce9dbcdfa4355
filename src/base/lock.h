/* Locks with ranks: a thread takes them in rising order only, and debug builds check that it does. */
#ifndef BERTH_BASE_LOCK_H
#define BERTH_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"
#include "base/fork.h"

/* Outermost first. A thread that holds one may take only those further down. */
typedef enum berth__rank {
    BERTH__RANK_LOADING = 1, /* not a lock: a library is being loaded, and a fork waits for that */
    BERTH__RANK_REGISTRY,
    BERTH__RANK_REPLAY,
    BERTH__RANK_CACHE,
    BERTH__RANK_POOL,
    BERTH__RANK_WRAP,
    BERTH__RANK_MAPPING, /* not a lock: a shared arena is being mapped or let go, and a fork waits for that */
    BERTH__RANK_SHARED,  /* a handle on a shared arena, or the list of them */
    BERTH__RANK_TABLE,
    BERTH__RANK_FIXED,
    BERTH__RANK_STREAM,
    BERTH__RANK_DEVICE,
    BERTH__RANK_METER,
    BERTH__RANK_CACHE_LIST, /* the short lists of caches; taken also while a meter is stopped */
    BERTH__RANK_THREADS,
    BERTH__RANK_LOG,
    BERTH__RANK_END /* not a lock */
} berth__rank;

#ifdef NDEBUG
#define BERTH__RANK_TAKE(rank) ((void)(rank))
#define BERTH__RANK_GIVE(rank) ((void)(rank))
#else
#define BERTH__RANK_TAKE(rank) berth__rank_take(rank)
#define BERTH__RANK_GIVE(rank) berth__rank_give(rank)
#endif
/* The check itself. Waiting on a condition variable keeps the rank: the thread takes nothing meanwhile. */
void berth__rank_take(berth__rank rank);
void berth__rank_give(berth__rank rank);
/* For assertions of debug builds: whether the calling thread holds a lock of the rank. */
bool berth__rank_is_held(berth__rank rank);

/* A lock for short straight-line work: one read-modify-write to take it, a plain store to give it back.
 * A fork waits until it is free (base/fork.h). All zero is unlocked. */
typedef struct berth__spin {
    _Atomic uint32_t word;
} berth__spin;

/* The wait for a spin lock that is taken: a few turns, then the processor goes to someone else. */
void berth__spin_wait(berth__spin *spin);
/* For assertions of debug builds: whether it is taken, by the calling thread as far as ranks tell. */
static inline bool berth__spin_is_mine(const berth__spin *spin, berth__rank rank)
{
    return atomic_load_explicit(&spin->word, memory_order_relaxed) != 0 && berth__rank_is_held(rank);
}
void berth__spin_wait_ranked(berth__spin *spin, berth__rank rank);

static inline void berth__spin_lock(berth__spin *spin, berth__rank rank)
{
    berth__fork_enter(rank); /* first: it may give the thread its number, under a lock of a high rank */
    BERTH__RANK_TAKE(rank);
    if (BERTH_UNLIKELY(atomic_exchange_explicit(&spin->word, 1, memory_order_acquire) != 0))
        berth__spin_wait_ranked(spin, rank);
}

static inline void berth__spin_unlock(berth__spin *spin, berth__rank rank)
{
    atomic_store_explicit(&spin->word, 0, memory_order_release);
    BERTH__RANK_GIVE(rank);
    berth__fork_leave(rank);
}

/* A spin lock that a fork cannot leave taken, without the gate: a holder from before the fork is passed over,
 * what it guards is as that holder left it, and `true` says that this happened. For what the gate itself
 * needs, and for meters, whose threads are stopped otherwise. All zero is unlocked. */
bool berth__fork_lock(berth__spin *spin, berth__rank rank);
static inline void berth__fork_unlock(berth__spin *spin, berth__rank rank)
{
    atomic_store_explicit(&spin->word, 0, memory_order_release);
    BERTH__RANK_GIVE(rank);
}

static inline void berth__mutex_lock(pthread_mutex_t *mutex, berth__rank rank)
{
    BERTH__RANK_TAKE(rank);
    pthread_mutex_lock(mutex);
}

static inline void berth__mutex_unlock(pthread_mutex_t *mutex, berth__rank rank)
{
    pthread_mutex_unlock(mutex);
    BERTH__RANK_GIVE(rank);
}

/* One turn of a waiting loop. */
static inline void berth__pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

#endif

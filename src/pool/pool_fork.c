/* All pools there are, so that the child of a fork finds each of them at rest, and the pools that only streams
 * still hold. */
#include <pthread.h>

#include "pool/pool.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static berth__pool *all_pools; /* guard: list_lock */
static berth__pool *orphans;   /* guard: list_lock; closed, and a device does not tell what still runs */
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

/* ---- Forks --------------------------------------------------------------------------------------- */

/* With the lock nobody moves a span, with the slots stopped nobody is in a thread cache, so that the child sees every
 * one whole. Past the ranks: all pools have one, and here alone somebody holds several. */
static void pool_before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (berth__pool *pool = all_pools; pool; pool = pool->next)
        if (atomic_exchange_explicit(&pool->lock.word, 1, memory_order_acquire) != 0)
            berth__spin_wait(&pool->lock);
    for (berth__pool *pool = all_pools; pool; pool = pool->next) {
        berth__slots_stop(&pool->quota.slots);
        BERTH__RANK_GIVE(BERTH__RANK_METER);
    }
}

static void pool_let_go_on(berth__pool *pool)
{
    BERTH_DCHECK(atomic_load(&pool->lock.word) != 0, "[P4] a fork finds every pool locked");
    BERTH__RANK_TAKE(BERTH__RANK_METER);
    berth__slots_resume(&pool->quota.slots);
    atomic_store_explicit(&pool->lock.word, 0, memory_order_release);
}

static void pool_after_fork_in_parent(void)
{
    for (berth__pool *pool = all_pools; pool; pool = pool->next)
        pool_let_go_on(pool);
    pthread_mutex_unlock(&list_lock);
}

/* What threads that stayed behind were doing outside the lock nobody will finish: frees that were marking
 * streams, memory on its way, a collection. */
static void pool_after_fork_in_child(void)
{
    for (berth__pool *pool = all_pools; pool; pool = pool->next) {
        berth__span *span;
        while ((span = pool->marking)) {
            berth__spans_remove(&pool->marking, span);
            berth__spans_add(&pool->unmarked, span);
        }
        berth__pool_strand(pool);
        BERTH_DCHECK(!pool->mapping && !pool->releasing, "[P4] nothing is on its way in the child");
        uint32_t count = atomic_load(&pool->streams.count);
        for (uint32_t i = 0; i < count; i++)
            atomic_store(&berth__streams_at(&pool->streams, i)->collecting, 0);
        pool->collecting = false;
        pool->leaving = 0;
        pool_let_go_on(pool);
    }
    pthread_mutex_unlock(&list_lock);
}

static void pool_watch_forks(void)
{
    pthread_atfork(pool_before_fork, pool_after_fork_in_parent, pool_after_fork_in_child);
}

/* ---- The lists ----------------------------------------------------------------------------------- */

void berth__pool_enlist(berth__pool *pool)
{
    BERTH_DCHECK(!pool->next && !pool->previous, "[P4] a pool is in the list once");
    pthread_once(&watch_once, pool_watch_forks); /* not under the lock, which the handlers take */
    pthread_mutex_lock(&list_lock);
    pool->next = all_pools;
    if (pool->next)
        pool->next->previous = pool;
    all_pools = pool;
    pthread_mutex_unlock(&list_lock);
}

void berth__pool_delist(berth__pool *pool)
{
    pthread_mutex_lock(&list_lock);
    BERTH_DCHECK(pool->previous || all_pools == pool, "[P4] what leaves the list was in it");
    if (pool->next)
        pool->next->previous = pool->previous;
    if (pool->previous)
        pool->previous->next = pool->next;
    else
        all_pools = pool->next;
    pthread_mutex_unlock(&list_lock);
}

void berth__pool_make_orphan(berth__pool *pool)
{
    BERTH_DCHECK(pool->live_blocks == 0, "[P4] an orphan has streams only");
    if (!pool->orphaned) /* said once */
        berth__log(
            BERTH_LOG_WARNING,
            "a released pool keeps its memory: the device does not tell whether a stream still uses it (%s)",
            berth_last_error()->message);
    pool->orphaned = true;
    pthread_mutex_lock(&list_lock);
    pool->next_orphan = orphans;
    orphans = pool;
    pthread_mutex_unlock(&list_lock);
}

void berth__pool_tend_orphans(void)
{
    pthread_mutex_lock(&list_lock);
    berth__pool *list = orphans;
    orphans = NULL;
    pthread_mutex_unlock(&list_lock);
    while (list) {
        berth__pool *next = list->next_orphan;
        berth__pool_finish(list);
        list = next;
    }
}

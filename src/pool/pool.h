/* The inside of the device pool, shared by its files:
 *
 *     pool.c          allocating and freeing: thread caches in front, the arena behind
 *     pool_life.c     birth and end, figures, questions about blocks
 *     pool_memory.c   address space and growing
 *     pool_release.c  giving back: limits, decay, memory on its way to the device
 *     pool_wait.c     blocks that streams may still use
 *     pool_fork.c     all pools there are, for forks
 *     pool_explain.c  snapshots and text
 *     pool_words.c    why an allocation failed
 *
 * The lock guards everything but what says otherwise. No driver call and no user code runs under it: a span
 * is taken out of the arena first, so that nobody else sees it, and put back afterwards [P1]. */
#ifndef BERTH_POOL_POOL_H
#define BERTH_POOL_POOL_H

#include "base/annotate.h"
#include "berth/pool.h"
#include "core/allocator.h"
#include "core/upstream.h"
#include "count/quota.h"
#include "count/warnings.h"
#include "device/device.h"
#include "pool/arena.h"
#include "pool/tcache.h"
#include "wait/stream_queue.h"

enum {
    BERTH__POOL_GRAIN = BERTH__ARENA_GRAIN,
};

/* What pools that share their limits share. */
typedef struct berth__pool_budget {
    _Atomic uint32_t references;
    uint64_t hard_limit_bytes, soft_limit_bytes;
    _Atomic uint64_t reserved_bytes;
    /* Of these, on their way from or to the device, without a lock. Raised before and lowered after
     * `reserved_bytes` changes, so that what is neither idle nor on its way is never overstated [P5]. */
    _Atomic uint64_t moving_bytes;
    _Atomic uint64_t arrivals; /* how often something has arrived, here or there */
} berth__pool_budget;

/* What the pool keeps beside the queue of a stream that blocks are allocated on, or that freed blocks may still be
 * used by. A freed block that one stream used lies in that stream's index: free for it at once, and for everyone when
 * the queue has collected the use whose number the span has as its ticket. */
typedef struct berth__pool_stream {
    berth__index index;
    berth__stream_queue *queue;
    uint64_t users; /* uses taken from the queue: of live blocks, and of freed ones that wait */
} berth__pool_stream;

typedef struct berth__pool {
    berth_allocator base;
    /* constant */
    uint64_t number; /* never used twice in a process: what threads remember of a pool goes by it */
    berth__upstream upstream;
    berth_device device; /* the upstream's, as is the kind */
    berth_memory_kind memory_kind;
    bool on_host;       /* the memory is the host's: warnings, and what a shortage is called */
    bool annotates;     /* a memory checker listens, and the memory is the host's */
    size_t granularity; /* of mapping; 0: the device has no virtual memory, or is not asked */
    bool chose_reserve; /* the user did not say how much address space; then segments may follow */
    size_t segment_bytes;
    size_t least_alignment; /* above the grain: of every block, whatever is asked for; else 0 */
    uint64_t decay_ns;
    double slack;
    /* Small blocks come from pieces of their own, so that one that lives long, or waits in a thread cache, does not
     * split a hole that a large one needs. Smaller ones where little may be idle. */
    size_t small_bytes, piece_bytes;
    bool (*on_failure)(void *context, size_t size_bytes);
    void *on_failure_context;
    uint64_t (*clock_ns)(void *context);
    void *clock_context;
    berth__pool_budget *budget;
    berth__segment *main; /* the reserved address space, an empty one without virtual memory */
    /* their own guards */
    berth__quota quota; /* what is in use, with its true peak; the threads' caches lie beside its slots */
    berth__warnings warnings; /* on the host */
    _Atomic bool hides_stats;
    _Atomic uint64_t ids_drawn;
    _Atomic uint64_t tcache_shares_bytes; /* what all thread caches together may hold */
    /* guarded by `lock` */
    berth__spin lock;
    berth__arena arena;
    berth__index mapped;   /* free memory */
    berth__index small;    /* free memory in pieces that only small blocks are cut from */
    berth__index unmapped; /* free address space */
    berth__streams streams;
    uint64_t waiting_count; /* uses of freed blocks that have not been seen to pass */
    uint64_t waiting_kept;  /* how many a free that found too many of them had to leave */
    bool collecting;        /* one thread at a time asks the events */
    bool collecting_waits;  /* and it waits for them */
    /* Taken spans that are on their way, linked by `left` and `right`: whoever sees a pool from outside (a
     * fork, a trim, the last release) finds every byte in an index, with its user, in a thread cache or here [P4]. */
    berth__span *marking;     /* freed; the driver marks the streams that use it */
    berth__span *unmarked;    /* freed; who had them marked stayed behind in a fork */
    berth__span *mapping;     /* the driver maps it */
    berth__span *releasing;   /* the driver takes it back; numbered in `allocation_id` */
    berth__span *unreleased;  /* it did not: still reserved, and tried again when memory is wanted */
    uint64_t releases;        /* the last number given */
    uint64_t releasing_bytes; /* of `releasing` and `unreleased` */
    uint64_t reserved_bytes;  /* taken from the device */
    uint64_t arriving_bytes;  /* of these, segments that the upstream is asked for */
    uint64_t max_reserved_bytes;
    uint64_t max_live_bytes; /* as seen when memory was short; for the slack */
    uint64_t now_ns;         /* the clock when the lock was last taken */
    uint64_t decayed_at_ns;
    uint64_t soft_left_bytes; /* idle beyond the soft limit when the last attempt could not give more back */
    uint64_t live_blocks;     /* counted from closing on */
    uint64_t leaving;         /* frees that will come back to the lock */
    struct berth__pool *previous, *next; /* all pools; guard: the list's lock */
    struct berth__pool *next_orphan;     /* guard: the list's lock */
    bool orphaned;                       /* its end's alone */
} berth__pool;

/* Taken spans in one of the pool's lists. */
static inline void berth__spans_add(berth__span **list, berth__span *span)
{
    span->left = NULL;
    span->right = *list;
    if (*list)
        (*list)->left = span;
    *list = span;
}
static inline void berth__spans_remove(berth__span **list, berth__span *span)
{
    *(span->left ? &span->left->right : list) = span->right;
    if (span->right)
        span->right->left = span->left;
    span->left = span->right = NULL;
}

/* From then on every free takes the lock. Asked inside a slot, or with the lock. */
static inline bool berth__pool_is_closing(berth__pool *pool)
{
    return berth__slots_has(&pool->quota.slots, BERTH__MARK_CLOSING);
}

static inline void berth__pool_relock(berth__pool *pool)
{
    berth__spin_lock(&pool->lock, BERTH__RANK_POOL);
}
/* For assertions. */
static inline bool berth__pool_is_locked(const berth__pool *pool)
{
    return berth__spin_is_mine(&pool->lock, BERTH__RANK_POOL);
}
/* The same for callers that have already read the clock. */
static inline void berth__pool_lock_at(berth__pool *pool, uint64_t now_ns)
{
    berth__pool_relock(pool);
    if (now_ns > pool->now_ns)
        pool->now_ns = now_ns;
}
/* Reads the clock, which may be the user's, and takes the lock. */
static inline void berth__pool_lock(berth__pool *pool)
{
    berth__pool_lock_at(pool, pool->clock_ns(pool->clock_context));
}
static inline void berth__pool_unlock(berth__pool *pool)
{
    berth__spin_unlock(&pool->lock, BERTH__RANK_POOL);
}

/* For memory checkers: a block is the user's; still the user's and written to; nobody's. */
static inline void berth__pool_show(const berth__pool *pool, const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(pool->annotates))
        berth__annotate_undefined(p, size_bytes);
}
static inline void berth__pool_reveal(const berth__pool *pool, const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(pool->annotates))
        berth__annotate_defined(p, size_bytes);
}
static inline void berth__pool_hide(const berth__pool *pool, const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(pool->annotates))
        berth__annotate_noaccess(p, size_bytes);
}

/* ---- pool.c ---- */

berth_status berth__pool_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out);
berth_status berth__pool_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream);
uint64_t *berth__pool_word_of(void *self, const void *p, size_t *requested_bytes);
berth_status berth__pool_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                    const berth_request *request, void **out);

/* ---- pool_life.c ---- */

/* Gives everything back; what streams may still use makes the pool an orphan, which others look after.
 * Nothing is live, and the last reference is gone. */
void berth__pool_finish(berth__pool *pool);
/* With the lock: whether nothing keeps a closing pool any more. */
static inline bool berth__pool_is_over(berth__pool *pool)
{
    return berth__pool_is_closing(pool) && pool->live_blocks == 0 && pool->leaving == 0;
}
/* The figures, switched off or not. */
void berth__pool_read_stats(berth__pool *pool, berth_stats *out);
/* Recognises a pool, for berth_pool_describe. */
berth__pool *berth__pool_from(berth_allocator *a);

/* ---- pool_memory.c ---- */

/* Reserves the address space, if the device can. */
berth_status berth__pool_memory_init(berth__pool *pool, size_t reserve_bytes);
/* Gives everything back to the device; nothing is live and nothing waits. */
void berth__pool_memory_finish(berth__pool *pool);

/* With the lock, which is dropped and taken again: gets memory from the device so that the mapped index
 * has a span of `size_bytes`, giving idle memory back first where the slack or a limit wants it.
 * `alone`: without counting on mapped neighbours, which others may take or give back while the lock is
 * dropped. `emptied`: the thread caches are, so that what is not idle is live, which the slack is measured by. BERTH_OK: look
 * again; else why not, and *arrivals is how often others' memory had arrived when it began. */
berth_status berth__pool_grow(berth__pool *pool, size_t size_bytes, bool alone, bool emptied,
                              uint64_t *arrivals);

/* With the lock: whether the pool stays within half the slack of the most that was live, or takes little, if it grows by so
 * much where it is. The other half is for large blocks, which would have to give idle memory back. */
bool berth__pool_may_grow(const berth__pool *pool, size_t size_bytes);

/* ---- pool_release.c ---- */

/* Idle memory that a block is about to use together with what is mapped for it. */
typedef struct berth__plot {
    uintptr_t from, to;
} berth__plot;

/* With the lock, dropped and taken again: gives idle memory back until at most `keep_bytes` of it are left,
 * the highest first, only what has been idle since `before_ns`, and nothing of the plot (NULL: there is
 * none). Returns how much. */
size_t berth__pool_give_back(berth__pool *pool, uint64_t keep_bytes, uint64_t before_ns,
                             const berth__plot *plot);
/* With the lock, dropped and taken again: tries again to give back what the device would not take. */
size_t berth__pool_release_again(berth__pool *pool);
/* With the lock, dropped and taken again: waits until what was on its way to the device is there. */
void berth__pool_await_releases(berth__pool *pool);
/* With the lock, dropped and taken again: after a growth that failed, makes all memory that is nobody's
 * available: the thread caches', what streams have passed, what is idle, what is on its way, and what has arrived
 * since the growth began (`arrivals`, as that left it). False: there was none, or all of it would not be
 * enough. */
bool berth__pool_squeeze(berth__pool *pool, size_t size_bytes, uint64_t arrivals);
/* With the lock, dropped and taken again: what the soft limit and the decay want. */
void berth__pool_settle(berth__pool *pool);
/* With the lock: claims memory under the limits, which is then on its way; it arrives, or goes back. */
bool berth__pool_claim(berth__pool *pool, size_t size_bytes);
void berth__pool_claim_arrived(berth__pool *pool, size_t size_bytes);
void berth__pool_claim_returned(berth__pool *pool, size_t size_bytes);
/* In the child of a fork, with the lock: what other threads had on its way. */
void berth__pool_strand(berth__pool *pool);
/* With the lock: puts the thread caches' blocks back into the arena; between the first two no block changes hands,
 * so that what is known of them can be read. */
void berth__pool_stop(berth__pool *pool);
void berth__pool_resume(berth__pool *pool);
void berth__pool_flush_tcaches(berth__pool *pool);
/* One thread cache alone; with the lock, by whoever may touch it [S1]. */
void berth__pool_empty_tcache(berth__pool *pool, berth__tcache *tcache);
/* With the lock: a span that nobody uses any more becomes free memory. */
void berth__pool_put(berth__pool *pool, berth__span *span);
/* With the lock: whether an index holds memory that is free for everyone, and how much of that there is. */
static inline bool berth__pool_is_idle(const berth__pool *pool, const berth__index *index)
{
    return index == &pool->mapped || index == &pool->small;
}
static inline uint64_t berth__pool_idle_bytes(const berth__pool *pool)
{
    return pool->mapped.bytes + pool->small.bytes;
}

/* ---- pool_wait.c ---- */

/* With the lock: the record of a stream; made if `make`, NULL if there is none or no memory. */
berth__pool_stream *berth__pool_stream_of(berth__pool *pool, berth_stream *stream, bool make);
/* With the lock: adds `stream` to the streams that use the span. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pool_add_use(berth__pool *pool, berth__span *span, berth_stream *stream);
/* The stream a block was allocated on or is used by first, NULL if none. */
berth_stream *berth__pool_first_use(const berth__span *span);
/* With the lock, dropped and taken again: takes a freed span that streams may still use. If it is one stream
 * the span is free for it at once; for all it is when each has passed this point. */
void berth__pool_wait_for(berth__pool *pool, berth__span *span);
/* With the lock, dropped and taken again: frees what streams have passed; `wait`: first waits for the oldest
 * point of each. Returns whether anything changed, or another thread is at it. */
bool berth__pool_collect(berth__pool *pool, bool wait);
/* Waits for all streams and gives the events back. Without the lock; nothing is live. False: the device does
 * not tell whether a stream has come to its end; nothing was given back. */
bool berth__pool_wait_finish(berth__pool *pool);

/* ---- pool_fork.c ---- */

/* The list of all pools, so that a fork finds each of them at rest, and the pools that nobody has any more
 * but streams. `tend_orphans` looks whether those can go; without any lock. */
void berth__pool_enlist(berth__pool *pool);
void berth__pool_delist(berth__pool *pool);
void berth__pool_make_orphan(berth__pool *pool);
void berth__pool_tend_orphans(void);

/* ---- pool_explain.c ---- */

berth_status berth__pool_snapshot(void *self, berth_block_fn visit, void *context);

/* ---- pool_words.c ---- */

/* Says why a request failed with `why`, and returns that. Without the lock. */
berth_status berth__pool_explain(berth__pool *pool, size_t size_bytes, const berth_request *request,
                                 berth_status why);

#endif

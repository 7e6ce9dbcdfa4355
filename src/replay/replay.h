/* The inside of the planned allocator: its blocks, and the two kinds of scope.
 *
 *   planned ── blocks: one a thread that replays at the same time
 *                │       idle ──begin──> running ──end──> idle
 *                │                          └──end, pointers still live──> lingering ──last free──> idle
 *                └── replay: the scope that runs on the block
 *
 * A replay is in step or tracked. In step, `head.next` is its whole state: what is live follows from the
 * position, and a call that is what the plan expects moves it by one. Anything else makes the run tracked:
 * the ledger is brought up to the position and from then on every call goes through it, until what is live is
 * again exactly what the plan says at some allocation. The ledger catches up step by step, so however often a
 * run falls out of step, each step is entered at most once. */
#ifndef BERTH_REPLAY_REPLAY_H
#define BERTH_REPLAY_REPLAY_H

#include "base/annotate.h"
#include "base/lock.h"
#include "berth/replay.h"
#include "core/allocator.h"
#include "plan/plan.h"
#include "replay/handed.h"
#include "replay/ledger.h"

typedef struct berth__planned berth__planned;
typedef struct berth__block berth__block;

/* Stream `stream` works on the live block at `rank`. */
typedef struct berth__use {
    uint32_t rank;
    berth_stream *stream;
} berth__use;

typedef struct berth__replay {
    berth_run head; /* first: the thread's current scope points here */
    berth__planned *planned;
    berth__block *block;
    const berth__plan_content *plan; /* the block's */
    berth_stream *default_stream;    /* of requests that name none */
    bool strict;
    bool tracked;
    uint32_t synced; /* the ledger knows the steps before this one */
    /* in step */
    uint32_t entered; /* the allocation at which the run came in step */
    uint32_t outside; /* outside the plan since then */
    uint32_t measured;
    /* tracked */
    uint32_t expected; /* the allocation that is due */
    uint32_t slip;     /* requests since then that matched nothing */
    uint32_t late;     /* live, and planned to be freed before `expected` */
    uint32_t missing;  /* not live, and planned to be live at `expected` */
    uint64_t planned_live;
    /* what the fallback served */
    berth__handed fallback; /* with their sizes */
    uint64_t fallback_live;
    berth_report report;
} berth__replay;

typedef enum berth__block_state {
    BERTH__BLOCK_IDLE,
    BERTH__BLOCK_RUNNING,
    BERTH__BLOCK_LINGERING,
} berth__block_state;

/* The lock of `planned` guards all but the ledger, the uses and the replay, which are the running thread's;
 * of a block that is not running they are the lock's too. */
struct berth__block {
    berth__block *next;
    char *base;
    size_t bytes;
    size_t alignment;
    berth__block_state state;
    berth__plan_content *plan; /* retained while running or lingering */
    berth_event *busy;         /* kept; recorded at the end of a scope with a stream */
    bool busy_pending;         /* nobody has waited for it yet */
    uint64_t *remote;          /* bits by rank: freed by other threads, not yet seen by the running one */
    size_t remote_words;       /* replay.head.pending says whether any is set */
    berth__ledger ledger;
    berth__use *uses;
    size_t use_count, use_room;
    berth__replay replay;
};

struct berth__planned {
    berth__wrapper base;
    pthread_mutex_t lock;
    berth_plan *plan;     /* guarded by lock */
    berth__block *blocks; /* guarded by lock */
    bool on_host;         /* memory checkers may be told of the blocks; set once */
    bool released;        /* guarded by lock: the last reference is gone, lingering blocks remain */
    /* No block ever lay outside: most pointers that are not ours need no lock to tell. */
    _Atomic uintptr_t low, high;
};

/* A scope that records or validates. */
typedef struct berth__recorder {
    berth_run head;
    berth__planned *planned;
    berth_plan *plan;              /* retained; locked while recording */
    berth__plan_content *expected; /* validating: what to compare with */
    berth_solve_options solve;
    bool has_solve;
    bool failed; /* out of memory: what is recorded is not complete */
    berth__handed live;
    berth_plan_allocation *allocations;
    uint32_t *free_order;
    size_t count, room;
    size_t freed, freed_room;
    berth_plan_cache *cache; /* of a cached scope; NULL otherwise */
    void *key;
    size_t key_bytes;
} berth__recorder;

/* ---- planned.c: blocks ------------------------------------------------------------------------------- */

berth__planned *berth__planned_of(berth_allocator *a); /* NULL with words if it is not one */
/* The plan for a scope: the options', else the allocator's; the caller gets a reference. */
berth_plan *berth__planned_choose(berth__planned *planned, const berth_run_options *options);
/* A block that can hold `plan`, running, with a clean ledger; takes the reference to `plan` on success. */
berth_status berth__block_take(berth__planned *planned, berth__plan_content *plan, berth__block **out);
/* The scope has ended: idle, or lingering while its ledger is not empty. */
void berth__block_give(berth__planned *planned, berth__block *block);
/* A free of a pointer that is not in the calling thread's own block. */
berth_status berth__planned_free_foreign(berth__planned *planned, void *p, size_t size_bytes,
                                         berth_stream *stream);

/* ---- run.c: the thread's scope ----------------------------------------------------------------------- */

/* The two hot operations of the planned allocator's table. */
berth_status berth__planned_allocate(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out);
berth_status berth__planned_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream);

berth_status berth__run_open(berth_run *run, berth_allocator *planned, berth_run_kind kind);
/* The options with defaults for what the caller's struct is too short to hold. `from` may be NULL. */
berth_status berth__run_options_read(const berth_run_options *from, berth_run_options *to);
/* Whether a scope may begin: none is open here. */
berth_status berth__run_may_open(void);
/* The thread's scope if it is of this allocator and kind, else NULL with words. */
berth_run *berth__run_find(berth_allocator *planned, berth_run_kind kind);
void berth__run_close(void);
extern const berth_step berth__nothing_expected;

/* ---- What a call does when it is not what the plan expects ------------------------------------------- */

/* berth_record_begin, with the recorder at hand. */
berth_status berth__record_start(berth_allocator *allocator, const berth_run_options *options,
                                 berth__recorder **out);
berth_status berth__record_allocate(berth__recorder *recorder, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out);
berth_status berth__record_deallocate(berth__recorder *recorder, void *p, size_t size_bytes,
                                      berth_stream *stream);
berth_status berth__replay_allocate(berth__replay *replay, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out);
berth_status berth__replay_deallocate(berth__replay *replay, void *p, size_t size_bytes,
                                      berth_stream *stream);
/* The live allocation that holds `p`, which may lie inside it; NULL if there is none. */
const berth__plan_entry *berth__replay_find(berth__replay *replay, const void *p);
/* The same of a ledger that is up to date. */
const berth__plan_entry *berth__ledger_find(const berth__ledger *ledger, const berth__plan_content *plan,
                                            uint64_t offset);
berth_status berth__replay_record_use(berth__replay *replay, const void *p, berth_stream *stream);
void berth__replay_leave_step(berth__replay *replay);
/* Brings ledger and figures to the end of the run. */
void berth__replay_settle(berth__replay *replay);

/* Memory checkers see the block as nobody's but for what is live. The inline functions of berth/replay.h say
 * nothing to them, so a run that is watched never takes those: `pending` stays set between its calls. */
static inline bool berth__replay_is_watched(const berth__replay *replay)
{
    return BERTH__ANNOTATES() && replay->planned->on_host;
}
static inline void berth__replay_keep_watching(berth__replay *replay)
{
    if (berth__replay_is_watched(replay))
        __atomic_store_n(&replay->head.pending, UINT64_MAX, __ATOMIC_RELAXED);
}

/* ---- streams.c: who may touch the block when --------------------------------------------------------- */

/* Makes sure that work of `stream` (NULL: the host) may use what has been freed so far. */
berth_status berth__streams_switch(berth__replay *replay, berth_stream *stream);
/* Makes the replay's stream wait for what `stream` has been given so far. */
berth_status berth__streams_join(berth__replay *replay, berth_stream *stream);
/* Joins and forgets the streams that use the block at `rank`. */
berth_status berth__uses_join(berth__replay *replay, uint32_t rank);
berth_status berth__uses_add(berth__block *block, uint32_t rank, berth_stream *stream);
/* Before the first use and after the last. */
berth_status berth__streams_begin(berth__replay *replay, berth_stream *stream);
void berth__streams_end(berth__replay *replay);
/* Waits on the host until nothing uses an idle block any more. */
void berth__streams_settle(berth__block *block);

/* ---- report.c ---------------------------------------------------------------------------------------- */

void berth__report_note(berth_report *report, berth_deviation_reason reason, uint64_t id, uint64_t expected,
                        uint64_t got, const char *label);
void berth__report_give(const berth_report *report, berth_report *out);

#endif

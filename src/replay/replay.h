/* The inside of the planned allocator: its blocks, and the two kinds of scope.
 *
 *   planned ── blocks: one a scope that is open at the same time
 *                │       idle ──begin──> running ──end──> idle
 *                │       what is live at the end are stragglers; they stay in the block, idle or running
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
#include "base/fork_mutex.h"
#include "base/lock.h"
#include "berth/replay.h"
#include "core/allocator.h"
#include "plan/plan.h"
#include "replay/handed.h"
#include "replay/ledger.h"

typedef struct berth__planned berth__planned;
typedef struct berth__block berth__block;

/* Stream `stream`, retained, works on the live allocation at `offset`; BERTH__NOWHERE: on one that was freed
 * after its scope. */
typedef struct berth__replay_use {
    uint64_t offset;
    berth_stream *stream;
    bool counted; /* in the running scope's own_uses */
} berth__replay_use;

/* A stream that works on a block, or has. */
typedef struct berth__mark {
    berth_stream *stream; /* retained while it may be given more work there; else NULL */
    berth_event *event;   /* kept for the next time; NULL: none yet */
    bool pending;         /* recorded, and nobody has waited for it */
    bool owed;            /* to be recorded before anybody else uses the block */
} berth__mark;

/* What was served from plans. */
typedef struct berth__served {
    uint64_t num_allocs;
    uint64_t total_bytes;
    uint64_t largest_bytes;
} berth__served;

/* What a run has asked of its block up to step `step`; in step the rest follows from the position. Written by the runner; others read it, so each is atomic. */
typedef struct berth__run_count {
    _Atomic uint64_t num_allocs, total_bytes, largest_bytes;
    _Atomic uint64_t live_bytes;
    _Atomic uint32_t step;
    _Atomic bool is_short; /* some were smaller than planned: only the runner knows which */
    /* the runner's: by how much the inner allocator's bytes in use changed since the begin, and the most that
     * they and the live ones were together */
    int64_t beside_bytes, most_bytes;
} berth__run_count;

/* How many planned allocations that did not come are remembered, and how far a run is looked for. */
enum { BERTH__SKIPPED = 64 };

typedef struct berth__replay {
    berth_run head; /* first: the thread's current scope points here */
    berth__planned *planned;
    berth__block *block;
    const berth__plan_content *plan; /* the block's */
    berth_stream *default_stream;    /* of requests and frees that name none */
    bool strict;
    bool tracked;
    uint32_t synced; /* the ledger knows the steps before this one */
    /* in step */
    uint32_t entered; /* the allocation at which the run came in step */
    uint32_t outside; /* outside the plan since then */
    uint32_t measured;
    /* tracked */
    uint32_t expected;                /* the allocation that is due */
    uint32_t slip;                    /* requests since then that matched nothing */
    uint32_t late;                    /* live, and planned to be freed before `expected` */
    uint32_t missing;                 /* not live, and planned to be live at `expected` */
    uint64_t planned_live;            /* asked for by what is live in the block */
    uint64_t measured_live;           /* in step and short: live before allocation `measured` */
    bool was_smaller;                 /* the last request that matched nothing would have fitted */
    bool was_renamed;                 /* or but for its label */
    bool shrinks;                     /* such a request was a planned one, smaller: others may be */
    bool renamed;                     /* the same of its label */
    uint32_t skipped[BERTH__SKIPPED]; /* planned ones that were passed over, the last of them */
    uint32_t skipped_count;
    size_t own_uses;   /* noted for places of this run */
    bool follows_uses; /* when the block was opened, streams might work on places that were free */
    /* what the fallback served */
    berth__handed fallback; /* with their sizes */
    uint64_t fallback_live;
    berth__run_count counted;
    berth_report report;
} berth__replay;

typedef enum berth__block_state {
    BERTH__BLOCK_IDLE,
    BERTH__BLOCK_RUNNING, /* for a scope, or for a thread that makes it ready or puts it away */
} berth__block_state;

/* Memory of a block that is in several pieces. */
typedef struct berth__piece {
    char *base;
    size_t bytes;
    size_t given_bytes; /* what the inner allocator counts for it */
} berth__piece;

/* A block. What is live in it after its scope are stragglers, which any thread frees; a block with stragglers
 * may run again, around them. The lock of `planned` guards all but what is said to be the runner's. */
struct berth__block {
    berth__block *next;
    char *base;
    size_t bytes;
    size_t given_bytes; /* what the inner allocator counts for it */
    size_t alignment;
    berth__piece *pieces; /* NULL: it is one; else rising, `base` is the first's and `bytes` all of theirs */
    size_t piece_count;
    berth__plan_content *split; /* the plan as it lies in the pieces, retained; no other one runs there */
    berth__block_state state;
    berth__plan_content *plan;     /* retained; NULL: no scope runs on it */
    berth__plan_range *stragglers; /* rising; room for those of the scope that runs, too */
    size_t straggler_count, straggler_room;
    uint64_t straggler_bytes;
    uint64_t straggler_asked_bytes; /* what was asked for of these */
    bool keeps;                     /* counted in planned->keepers: there are, or were just now, stragglers */
    uint64_t *remote;    /* bits by rank: freed by other threads, not yet seen by the running one */
    size_t remote_words; /* replay.head.pending says whether any is set */
    berth__replay_use *uses;
    size_t use_count, use_room;
    /* the runner's */
    berth__mark *marks;
    size_t mark_count, mark_room;
    berth__plan_content *around; /* the last plan that was laid out around stragglers, kept; or NULL */
    uint64_t *short_bytes;       /* by id: planned more than asked for; all 0 unless is_short */
    size_t short_room;
    bool is_short;
    uint16_t *tags; /* by id: whose account it is in; over a scope meter only */
    size_t tag_room;
    berth__ledger ledger;
    berth__replay replay;
};

/* The allocator's own figures: the inner one's, with what is live in blocks in place of the blocks.
 *
 *   in use  =  inner in use  -  blocks  +  live in them                                    [R11]
 *
 * A peak is a maximum over time, and the inner one's includes the blocks that were there at the time. So
 * whenever a block comes or goes, what the peak was until then is kept in `most_bytes`; so is what a run and the
 * rest were together at most, when it ends. */
typedef struct berth__figures {
    berth__served served;          /* by runs that have ended */
    berth__served cleared;         /* less than this: what was there when the figures were cleared */
    uint64_t block_allocs;         /* what the inner one has counted for blocks, since then */
    uint64_t block_bytes;          /* all together */
    uint64_t largest_block;        /* the largest of them */
    uint64_t held_bytes;           /* what it counts for those that it has not got back */
    uint64_t most_bytes;           /* see above */
    _Atomic uint64_t largest_seen; /* allocations that were not blocks */
} berth__figures;

struct berth__planned {
    berth__wrapper base;
    berth__fork_mutex guard; /* the lock */
    berth_plan *plan;        /* guarded by lock */
    berth__block *blocks;    /* guarded by lock */
    uint32_t running;        /* guarded by lock: scopes that are open */
    uint32_t most_running;   /* guarded by lock: blocks without stragglers worth keeping */
    berth__figures figures;  /* guarded by lock, but for what is atomic */
    bool has_figures;        /* the inner allocator gave some when this one was made; set once */
    bool on_host;            /* memory checkers may be told of the blocks; set once */
    bool released;           /* guarded by lock: the last reference is gone */
    /* The references together, and each block that keeps: who drops the last frees the allocator. */
    _Atomic uint32_t keepers;
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
    bool failed;            /* out of memory: what is recorded is not complete */
    size_t least_alignment; /* of every allocation, whatever is asked for */
    berth_stream *stream;   /* retained: of requests and frees that name none; NULL: none */
    berth__handed live;
    berth_plan_allocation *allocations;
    uint32_t *free_order;
    size_t count, room;
    size_t freed, freed_room;
    berth_plan_cache *cache; /* of a cached scope; NULL otherwise */
    void *key;
    size_t key_bytes;
} berth__recorder;

/* ---- planned.c --------------------------------------------------------------------------------------- */

berth__planned *berth__planned_of(berth_allocator *a); /* NULL with words if it is not one */
/* The plan for a scope: the options', else the allocator's; the caller gets a reference. */
berth_plan *berth__planned_choose(berth__planned *planned, const berth_run_options *options);
/* A free of a pointer that is not in the calling thread's own block. */
berth_status berth__planned_free_foreign(berth__planned *planned, void *p, size_t size_bytes,
                                         berth_stream *stream);
/* Asks the inner allocator. Refused for want of memory, it is asked again when idle blocks have gone back to it:
 * nothing fails beside memory that nobody uses. One that answers BERTH_OK without a block is BERTH_INTERNAL. */
berth_status berth__inner_answered(berth__planned *planned, berth_status status, size_t size_bytes,
                                   size_t alignment, const berth_request *request, void **out) BERTH__COLD;
static inline berth_status berth__inner_allocate(berth__planned *planned, size_t size_bytes, size_t alignment,
                                                 const berth_request *request, void **out)
{
    berth_status status = berth__allocate(planned->base.inner, size_bytes, alignment, request, out);
    if (BERTH_LIKELY(!status && (*out || size_bytes == 0)))
        return status;
    return berth__inner_answered(planned, status, size_bytes, alignment, request, out);
}
/* Of a block's memory, which nobody asks for again: a driver may be short of something for a moment, and is asked twice. */
static inline berth_status berth__inner_give(berth__planned *planned, void *p, size_t size_bytes)
{
    berth_status status = berth__deallocate(planned->base.inner, p, size_bytes, NULL);
    return berth__free_is_done(status) ? status : berth__deallocate(planned->base.inner, p, size_bytes, NULL);
}
/* Whether a pointer may lie in a block; false: it does not. */
static inline bool berth__planned_may_own(const berth__planned *planned, const void *pointer)
{
    return (uintptr_t)pointer >= atomic_load_explicit(&planned->low, memory_order_relaxed) &&
           (uintptr_t)pointer < atomic_load_explicit(&planned->high, memory_order_relaxed);
}
/* Whether a pointer that may be used lies in a block. */
bool berth__planned_owns_block(berth__planned *planned, const void *pointer);
/* Drops a keeper; the last one frees the allocator. */
void berth__planned_drop(berth__planned *planned);

static inline void berth__planned_lock(berth__planned *planned)
{
    berth__mutex_lock(&planned->guard.lock, BERTH__RANK_REPLAY);
}
/* For assertions: the calling thread has the lock; and the calling thread's scope is this one. */
static inline bool berth__planned_is_locked(void)
{
    return berth__rank_is_held(BERTH__RANK_REPLAY);
}
static inline bool berth__run_is_mine(const berth_run *run)
{
    return berth_run_current() == run;
}
static inline void berth__planned_unlock(berth__planned *planned)
{
    berth__mutex_unlock(&planned->guard.lock, BERTH__RANK_REPLAY);
}

/* ---- block.c: where plans run ------------------------------------------------------------------------ */

/* A block that can hold `plan`, running, with a clean ledger; takes the reference to `plan` on success. */
berth_status berth__block_take(berth__planned *planned, berth__plan_content *plan, berth__block **out);
/* The scope has ended: what is live in its ledger are stragglers from now on. */
void berth__block_give(berth__planned *planned, berth__block *block);
/* For assertions, with the lock: its stragglers rise, are disjoint and lie in it, and their sums are right. */
bool berth__block_is_valid(const berth__block *block);
/* Gives its memory back and frees it. Nobody else sees it any more. */
void berth__block_free(berth__planned *planned, berth__block *block);
/* With the lock: takes idle blocks off the list while more than `keep` bytes are idle. */
berth__block *berth__blocks_take_idle(berth__planned *planned, size_t keep, size_t *bytes);
void berth__blocks_free(berth__planned *planned, berth__block *blocks);
/* The inner allocator has refused a request: gives it idle blocks back, those that streams have passed; only if
 * there are none and `waits`, the others. False: nothing was idle. Without the lock. */
bool berth__blocks_make_room(berth__planned *planned, bool waits);
/* With the lock. */
berth__block *berth__block_find(const berth__planned *planned, const void *p);
/* What the inner allocator counts for memory that it gave. */
size_t berth__block_given(berth__planned *planned, const void *base, size_t bytes);
/* With the lock: blocks may lie from `low` to `high`. */
void berth__planned_reach(berth__planned *planned, uintptr_t low, uintptr_t high);
/* Between pieces lies somebody else's memory. By the runner, or with the lock. */
bool berth__block_holds(const berth__block *block, const void *p);

/* ---- pieces.c: blocks in several pieces --------------------------------------------------------------- */

/* Takes pieces for `plan`, no larger than the source gives them, for a block that has no memory. `whole_refused`: one
 * block of the plan's size was. BERTH_OK; else as the source answers, or BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pieces_take(berth__planned *planned, berth__block *block, berth__plan_content *plan,
                                size_t alignment, bool whole_refused);
/* Gives all of them back. */
void berth__pieces_give(berth__planned *planned, berth__block *block);
/* Bytes of all blocks, and of the stragglers in them. */
void berth__blocks_held(berth__planned *planned, uint64_t *bytes, uint64_t *straggler_bytes);

/* ---- figures.c: what the program allocated ------------------------------------------------------------ */

/* By the runner: counts what it has taken in step. Whatever changes beside the block comes after this. */
void berth__count_run(berth__replay *replay);
/* Tracked: allocation `id` has taken its place, or left it. */
void berth__count_add(berth__replay *replay, uint32_t id);
void berth__count_remove(berth__replay *replay, uint32_t id);
/* By the runner: the inner allocator has given it `bytes` more, or less. */
void berth__count_beside(berth__replay *replay, int64_t bytes);
/* The run has ended and been counted. Without the lock. */
void berth__count_ended(berth__replay *replay);
/* With the lock: the run's figures become the allocator's. */
void berth__count_keep(berth__planned *planned, const berth__replay *replay);
/* Before the inner allocator gives or takes back memory for a block, and after it did. Without the lock. */
void berth__count_block_changes(berth__planned *planned);
void berth__count_block(berth__planned *planned, size_t given_bytes);
void berth__count_block_back(berth__planned *planned, size_t given_bytes);
berth_status berth__planned_stats(void *self, berth_stats *out);
berth_status berth__planned_clear_stats(void *self);
static inline void berth__count_largest(berth__planned *planned, uint64_t size_bytes)
{
    if (BERTH_UNLIKELY(size_bytes >
                       atomic_load_explicit(&planned->figures.largest_seen, memory_order_relaxed)))
        atomic_store_explicit(&planned->figures.largest_seen, size_bytes, memory_order_relaxed);
}

/* ---- straggler.c: what outlives its scope ------------------------------------------------------------ */

/* With the lock: the straggler that `offset` lies in, NULL if none. */
const berth__plan_range *berth__straggler_find(const berth__block *block, uint64_t offset);
/* With the lock, by the runner at the end of its scope: the ledger's live places become stragglers. */
void berth__stragglers_keep(berth__planned *planned, berth__block *block);
/* With the lock: a free of the straggler at `offset`, if one begins there. `*last`: the caller has the block
 * running now and must put it away. BERTH_OK, BERTH_NOT_FOUND, BERTH_OUT_OF_HOST_MEMORY (to note `stream`). */
berth_status berth__straggler_free(berth__block *block, uint64_t offset, berth_stream *stream, bool *last,
                                   uint64_t *asked_bytes);
/* By the runner: idle, once its streams are marked; given back if there are more blocks than scopes need. */
void berth__block_put_away(berth__planned *planned, berth__block *block);

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
berth_status berth__replay_record_use(berth__replay *replay, const void *p, berth_stream *stream);
/* Brings ledger and figures to the end of the run. */
void berth__replay_settle(berth__replay *replay);

/* ---- position.c: where a run is, what is live there, and the figures of it ----------------------------- */

/* What was asked for: planned sizes unless somebody asked for less. By the runner. */
static inline uint64_t berth__replay_asked(const berth__replay *replay, uint32_t id)
{
    BERTH_DCHECK(id < replay->plan->count, "[R7] the allocation is the plan's");
    BERTH_DCHECK(!replay->block->is_short || id < replay->block->short_room,
                 "[R7] there is a note for every planned allocation");
    return replay->plan->entries[id].size_bytes -
           (replay->block->is_short ? replay->block->short_bytes[id] : 0);
}
uint32_t berth__replay_position(const berth__replay *replay); /* in step: the step that is next */
bool berth__replay_frees_at(const berth__plan_content *plan, uint32_t step);
void berth__replay_leave_step(berth__replay *replay);
void berth__replay_enter_step(berth__replay *replay);
/* The run is past the allocation that was due; `placed`: it took its place. */
void berth__replay_advance(berth__replay *replay, bool placed);
/* The same without the allocation, which may still come; and it has come. */
void berth__replay_skip(berth__replay *replay);
void berth__replay_unskip(berth__replay *replay, uint32_t id);
/* Tracked: `id` takes its place, which is free; it may be one that was passed over. */
void berth__replay_add(berth__replay *replay, uint32_t id, size_t size_bytes);
void berth__replay_remove(berth__replay *replay, uint32_t rank);
/* `id` asks for less than planned. */
void berth__replay_note_short(berth__replay *replay, uint32_t id, size_t size_bytes);
void berth__replay_measure_now(berth__replay *replay);
void berth__replay_measure_end(berth__replay *replay);

/* ---- match.c: which planned allocation a request is --------------------------------------------------- */

typedef struct berth__wanted {
    size_t size_bytes;
    size_t alignment;
    const berth_request *request;
    const char *label;
} berth__wanted;

#define BERTH__NO_MATCH UINT32_MAX

bool berth__labels_differ(const char *a, const char *b); /* both are there, and not the same */
bool berth__match_alignment(const berth__replay *replay, const berth__plan_entry *e, size_t alignment);
/* Whether the request looks like planned allocation `id`. */
bool berth__match_same(const berth__replay *replay, uint32_t id, const berth__wanted *wanted);
/* The planned allocation that the request is, or BERTH__NO_MATCH. */
uint32_t berth__match(const berth__replay *replay, const berth__wanted *wanted);
/* What is learned of the run: the request was `id`, or nothing that is planned. */
void berth__match_learn(berth__replay *replay, const berth__wanted *wanted, uint32_t id);

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
/* Joins and forgets the streams that use the allocation at `offset`. */
berth_status berth__uses_join(berth__replay *replay, uint64_t offset);
/* Before the first use and after the last. */
berth_status berth__streams_begin(berth__replay *replay, berth_stream *stream, bool inhabited);
void berth__streams_end(berth__replay *replay, bool inhabited);
/* By the runner: `stream`, whose reference is taken over, is to be marked; marks what is to be. */
void berth__marks_owe(berth__block *block, berth_stream *stream);
void berth__marks_pay(berth__block *block);
bool berth__marks_owes(const berth__block *block);
/* Whether nothing uses the block any more. */
bool berth__marks_passed(berth__block *block);
/* Waits on the host for that. Not BERTH_OK: something may still use it. */
berth_status berth__marks_settle(berth__block *block);
void berth__marks_finish(berth__block *block);
/* With the lock. */
berth_status berth__uses_add(berth__block *block, uint64_t offset, berth_stream *stream, bool *added);
void berth__uses_loosen(berth__block *block, uint64_t offset);        /* its allocation is freed */
berth_stream *berth__uses_take(berth__block *block, uint64_t offset); /* NULL: none; the caller's reference */

/* ---- verdict.c --------------------------------------------------------------------------------------- */

/* The first place where the recorded run differs from what is expected; `first` stays as it is if none. */
void berth__validate_compare(const berth__recorder *recorder, berth_difference *first);

/* ---- report.c ---------------------------------------------------------------------------------------- */

void berth__report_note(berth_report *report, berth_deviation_reason reason, uint64_t id, uint64_t expected,
                        uint64_t got, const char *label);
/* Fill what the caller's struct has room for; NULL is a no-op. */
void berth__report_give(const berth_report *report, berth_report *out);
/* What all blocks hold once the scope's own is given back. */
void berth__report_give_held(berth__planned *planned, berth_report *out);
void berth__difference_give(const berth_difference *difference, berth_difference *out);

#endif

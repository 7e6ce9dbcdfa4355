/* Record a run once, plan it, serve every later run from one block.
 *
 *     berth_plan *plan = NULL;
 *     berth_allocator *planned = NULL;
 *     berth_plan_create(&plan);
 *     berth_planned_create(berth_cpu_allocator(), plan, &planned);
 *     BERTH_RECORD(planned) { work(planned); } // solved when the scope ends
 *     for (int i = 0; i < 100; i++) {
 *         berth_report report = BERTH_REPORT_INIT;
 *         BERTH_REPLAY(planned, &report) { work(planned); }
 *     }
 *     berth_allocator_release(planned), berth_plan_release(plan);
 *
 * A scope belongs to the thread that began it and to one allocator: only that thread's calls to that
 * allocator are recorded or replayed, all others pass to the inner allocator. Scopes do not nest. Threads
 * that replay at the same time share the plan and get a block each. */
#ifndef BERTH_REPLAY_H
#define BERTH_REPLAY_H

#include "berth/allocator.h"
#include "berth/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The planned allocator --------------------------------------------------------------------------- */

/* An allocator over `inner`, on whatever device that is, that serves the allocations of `plan` from a block
 * of its own during a replay scope. Retains both; the plan may still be empty. Outside scopes everything is
 * forwarded. Blocks are taken from `inner` when a thread first replays, and kept; berth_trim gives idle ones
 * back, and so does a request that `inner` would otherwise refuse (with BERTH_NO_RETRY only those that no stream
 * uses). Figures, scopes' too, count what is live in blocks and not the blocks: what the program allocated. A peak
 * is exact while one thread replays and no block has been given back; otherwise it is an upper bound. Pointers of
 * a plan have no recorded size of their own, so the allocator does not track sizes. The
 * caller owns one reference; live blocks keep the allocator alive after the last. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT (NULL, a NULL plan too), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_planned_create(berth_allocator *inner, berth_plan *plan, berth_allocator **out);

/* Another plan for the scopes that begin from now on; those under way keep theirs. Blocks that are large
 * enough are kept, others grow when next used. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT (a NULL plan, or
 * not a planned allocator), BERTH_BUSY (the calling thread is inside a scope of `planned`). */
BERTH_API berth_status berth_planned_set_plan(berth_allocator *planned, berth_plan *plan);

/* The plan in use; the caller gets a reference. NULL if `planned` is not a planned allocator. */
BERTH_API berth_plan *berth_planned_plan(berth_allocator *planned);

/* Shows what is live in the blocks of `planned`: address, size of the place, what was asked for of it, and the
 * address of its block as `segment`. A run of another thread that has left its plan is not shown, but for what
 * outlived earlier ones. `visit` as in berth_snapshot. Any thread; exact when no call is in flight. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_planned_visit(berth_allocator *planned, berth_block_fn visit, void *context);

/* ---- Scopes ------------------------------------------------------------------------------------------ */

typedef struct berth_run_options {
    size_t struct_size;
    berth_plan *plan;     /* for this scope; NULL: the allocator's */
    bool strict;          /* replay: what is not in the plan is an error, not a fallback */
    uint64_t fingerprint; /* of the program as it is now; 0: unknown. A plan with another one is
                                         stale: strict replay refuses it, elastic replay says so and goes on */
    berth_stream *stream; /* whose work uses what is allocated; retained by the scope. Requests and
                                         frees that name none are its own. NULL: the host */
    const berth_solve_options *solve; /* record: how the plan is solved; NULL: the defaults */
} berth_run_options;

#define BERTH_RUN_OPTIONS_INIT                                \
    {                                                         \
        sizeof(berth_run_options), NULL, false, 0, NULL, NULL \
    }

/* Records every allocation and free of the calling thread on `planned`. The plan is cleared first and is
 * nobody else's until the end; scopes that replay it go on with what they began with. `options` may be NULL
 * and is copied. BERTH_OK, BERTH_BUSY (a scope is open on this thread, or the plan is being recorded or
 * changed), BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_record_begin(berth_allocator *planned, const berth_run_options *options);

/* Ends the recording and solves it. After a failure the plan is empty. BERTH_OK, BERTH_NOT_FOUND (no such
 * scope is open on this thread), BERTH_OUT_OF_HOST_MEMORY, and what berth_solve answers. */
BERTH_API berth_status berth_record_end(berth_allocator *planned);

/* The first place where a validated run differs from its plan. */
typedef struct berth_difference {
    size_t struct_size;
    berth_status status; /* BERTH_OK: the run is the plan's; BERTH_MISMATCH: it differs */
    uint64_t id;         /* of the allocation */
    char label[48];
    uint64_t
        expected; /* bytes, an alignment, the id at which it is freed, or how many allocations there are */
    uint64_t got;
    char words[192]; /* which of these, in words; "" if nothing differs */
} berth_difference;

#define BERTH_DIFFERENCE_INIT                               \
    {                                                       \
        sizeof(berth_difference), BERTH_OK, 0, "", 0, 0, "" \
    }

/* Compares a run with the plan: sizes, order and frees, all served by the inner allocator. The end gives the
 * verdict: BERTH_OK, or BERTH_MISMATCH and the first difference, which may be NULL; otherwise as for
 * recording. A run with fewer allocations, more, or a free missing is not valid. */
BERTH_API berth_status berth_validate_begin(berth_allocator *planned, const berth_run_options *options);
BERTH_API berth_status berth_validate_end(berth_allocator *planned, berth_difference *first);

/* Why a request was not served from the plan. */
typedef enum berth_deviation_reason {
    BERTH_DEVIATION_NONE = 0,
    BERTH_DEVIATION_SIZE = 1,       /* not the planned size */
    BERTH_DEVIATION_ALIGNMENT = 2,  /* stricter than planned */
    BERTH_DEVIATION_HELD = 3,       /* its place is still held by a block freed later than planned */
    BERTH_DEVIATION_PAST_END = 4,   /* the plan has no more allocations */
    BERTH_DEVIATION_BAD_FREE = 5,   /* a free of what is not a live block: refused */
    BERTH_DEVIATION_STRAGGLER = 6,  /* still live at the end of the scope, planned to be freed inside */
    BERTH_DEVIATION_EARLY_FREE = 7, /* strict: freed before it was planned to be */
    BERTH_DEVIATION_LABEL = 8,      /* another label than planned */
    BERTH_DEVIATION_MISSING = 9,    /* strict: planned, and not asked for before the scope ended */
} berth_deviation_reason;

typedef struct berth_deviation {
    berth_deviation_reason reason;
    uint64_t id; /* of the planned allocation; past the end: the number of allocations in the plan */
    uint64_t expected;
    uint64_t got; /* for BERTH_DEVIATION_HELD: the id of the allocation that holds the place */
    char label[48];
} berth_deviation;

#define BERTH_REPORT_DEVIATIONS 8

/* What a replay did. */
typedef struct berth_report {
    size_t struct_size;
    berth_status status;           /* of the scope: BERTH_OK, or why its beginning or its end failed */
    bool strict;                   /* what was asked for */
    bool stale;                    /* the plan's fingerprint is not the one that the options named */
    uint64_t planned;              /* allocations in the plan, without those that are never freed inside */
    uint64_t from_plan;            /* requests served from the plan */
    uint64_t by_fallback;          /* requests that deviated and were served by the inner allocator */
    uint64_t outside_plan;         /* requests for allocations that are never freed inside: expected there */
    uint64_t refused;              /* strict: requests that were an error */
    uint64_t bad_frees;            /* refused frees: twice, or into the middle of a block */
    uint64_t stragglers;           /* planned pointers that are still live after the scope */
    uint64_t block_bytes;          /* of the plan */
    uint64_t fallback_bytes;       /* the most that fallback and outside took at one time */
    uint64_t peak_with_plan_bytes; /* both together */
    uint64_t peak_without_plan_bytes; /* the most live at one time, had all been allocated one by one */
    size_t deviation_count;           /* all of them; the first few are kept */
    berth_deviation deviations[BERTH_REPORT_DEVIATIONS];
    uint64_t displaced;       /* planned requests served by the inner allocator, since a pointer that outlived
                                 its scope holds their place */
    uint64_t early_frees;     /* strict: frees that came before they were planned */
    uint64_t held_bytes;      /* of all blocks that the allocator holds after the scope */
    uint64_t straggler_bytes; /* of the planned pointers in them, of this scope and others, that are live */
    uint64_t separate_bytes;  /* of all planned allocations together, had each a place of its own */
} berth_report;

#define BERTH_REPORT_INIT                                                                 \
    {                                                                                     \
        sizeof(berth_report), BERTH_OK, false, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            {{BERTH_DEVIATION_NONE, 0, 0, 0, ""}}, 0, 0, 0, 0, 0                          \
    }

/* Serves the calling thread's requests to `planned` from the plan, at the planned places. Elastic unless
 * options->strict: a request is looked for among the next 16 planned ones by size and label; one that is not
 * there is served by the inner allocator and named in the report, and the run goes on from the plan. A request
 * smaller than planned takes its place where the plan is an envelope of such sizes, or once the run has shown
 * that it asks for less. Strict: a request that is not the plan's next is BERTH_MISMATCH from berth_allocate,
 * a free that comes too early is done and is BERTH_MISMATCH from berth_deallocate. BERTH_OK, BERTH_BUSY (a
 * scope is open on this thread, or the plan is being recorded), BERTH_MISMATCH (stale and strict),
 * BERTH_INVALID_ARGUMENT, and what allocating the block answers. */
BERTH_API berth_status berth_replay_begin(berth_allocator *planned, const berth_run_options *options);

/* Ends the replay. `report` may be NULL; the caller sets its struct_size. Planned pointers that are still
 * live stay valid until they are freed, by any thread, and so does what streams do with them; later runs may
 * use the rest of their block. BERTH_OK, BERTH_MISMATCH (strict: before all of the plan had come; the scope has
 * ended), BERTH_NOT_FOUND (no such scope is open on this thread; the report is cleared). */
BERTH_API berth_status berth_replay_end(berth_allocator *planned, berth_report *report);

/* A report for people, several lines. Writes at most `room` bytes with the final 0 and returns the full
 * length without it, as snprintf does. */
BERTH_API size_t berth_report_text(const berth_report *report, char *text, size_t room);
/* The words for a reason: "larger than planned". */
BERTH_API const char *berth_deviation_words(berth_deviation_reason reason);

/* Records the first run under `key`, keeps the plan in `cache`, and replays every later one. A recording that
 * cannot be planned or kept leaves the run as it was: served by the inner allocator. The report of a recorded
 * run has from_plan 0. As for berth_record_begin and berth_replay_begin. */
BERTH_API berth_status berth_cached_begin(berth_allocator *planned, berth_plan_cache *cache, const void *key,
                                          size_t key_bytes, const berth_run_options *options);
BERTH_API berth_status berth_cached_end(berth_allocator *planned, berth_report *report);

/* ---- The calling thread's scope ---------------------------------------------------------------------- */

typedef enum berth_run_kind {
    BERTH_RUN_RECORD = 1,
    BERTH_RUN_VALIDATE = 2,
    BERTH_RUN_REPLAY = 3,
} berth_run_kind;

/* One step of a plan: an allocation, or a free, whose size is BERTH_STEP_FREE. */
typedef struct berth_step {
    uint64_t size_bytes;
    uint64_t offset;
} berth_step;

#define BERTH_STEP_FREE UINT64_MAX

/* An open scope. Its fields are berth's own; they are here so that the two functions below can be inline. */
typedef struct berth_run {
    const berth_step *next; /* what the plan expects now */
    char *base;
    /* Of a plan with labels, by step: the last one that was seen to match, compared by address; atomic. NULL:
     * no labels to tell allocations apart by. */
    const char **labels;
    const berth_step *first; /* where `labels` begin */
    uint64_t pending;        /* all ones when another thread has freed a block of this scope; atomic */
    uint64_t alignment;      /* of `base`, a power of two */
    berth_stream *stream;
    berth_allocator *allocator; /* whose scope this is */
    berth_run_kind kind;
} berth_run;

/* The calling thread's open scope, NULL if there is none. Valid until it ends. */
BERTH_API berth_run *berth_run_current(void);

/* What the inline functions call when the run is not in step. */
BERTH_API void *berth_run_allocate_slow(berth_run *run, size_t size_bytes, size_t alignment);
BERTH_API berth_status berth_run_deallocate_slow(berth_run *run, void *p);

/* Whether the plan expects exactly this now: the step is an allocation of this size, every free planned before
 * it has come (they are the steps before), and the alignment fits. Never while frees by other threads wait to
 * be seen. A smaller request than planned is looked at more closely, by berth_run_allocate_slow. */
static inline bool berth_run_expects(const berth_run *run, size_t size_bytes, size_t alignment)
{
    const berth_step *step = run->next;
    uint64_t pending = __atomic_load_n(&run->pending, __ATOMIC_RELAXED);
    return size_bytes == step->size_bytes && size_bytes != BERTH_STEP_FREE &&
           (pending | ((step->offset | run->alignment) & (alignment - 1))) == 0;
}

/* berth_allocate and berth_deallocate for the scope's allocator in a loop that has the scope at hand: the
 * whole of a replayed call is a few comparisons and an addition, inline. The request has no label of its own
 * and takes its place by size alone. `alignment` is a power of two. NULL on failure, words in
 * berth_last_error. The thread that began the scope. */
static inline void *berth_run_allocate(berth_run *run, size_t size_bytes, size_t alignment)
{
    const berth_step *step = run->next;
    if (__builtin_expect(!berth_run_expects(run, size_bytes, alignment), 0))
        return berth_run_allocate_slow(run, size_bytes, alignment);
    __atomic_store_n(&run->next, step + 1, __ATOMIC_RELAXED);
    return run->base + step->offset;
}

static inline bool berth_run_expects_free(const berth_run *run, const void *p)
{
    const berth_step *step = run->next;
    return ((step->size_bytes ^ BERTH_STEP_FREE) | __atomic_load_n(&run->pending, __ATOMIC_RELAXED)) == 0 &&
           (uintptr_t)run->base + step->offset == (uintptr_t)p;
}

static inline berth_status berth_run_deallocate(berth_run *run, void *p)
{
    const berth_step *step = run->next;
    if (__builtin_expect(!berth_run_expects_free(run, p), 0))
        return berth_run_deallocate_slow(run, p);
    __atomic_store_n(&run->next, step + 1, __ATOMIC_RELAXED);
    return BERTH_OK;
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

/* The scope as a block, ended also by break, return, goto and, in C++, by an exception (not by longjmp). A
 * beginning that fails is logged, is in berth_last_error and in the report or difference, and the body still
 * runs: its requests pass to the inner allocator.
 *
 *     berth_report report = BERTH_REPORT_INIT;
 *     BERTH_REPLAY(planned, &report) { if (!step(planned)) break; }
 */
typedef struct berth_run_guard {
    berth_allocator *planned; /* NULL: nothing to end */
    berth_run_kind kind;
    void *result;
} berth_run_guard;

BERTH_API berth_run_guard berth_run_guard_begin(berth_allocator *planned, berth_run_kind kind,
                                                const berth_run_options *options, void *result);
BERTH_API void berth_run_guard_end(berth_run_guard *guard);

#define BERTH_RUN_BLOCK(planned, kind, options, result)                     \
    BERTH_ONCE_(BERTH_NAME_(berth_done_, __LINE__),                         \
                berth_run_guard BERTH_NAME_(berth_guard_, __LINE__)         \
                    __attribute__((cleanup(berth_run_guard_end), unused)) = \
                        berth_run_guard_begin((planned), (kind), (options), (result)))

#define BERTH_RECORD(planned) BERTH_RECORD_WITH(planned, NULL, NULL)
#define BERTH_VALIDATE(planned, difference) BERTH_VALIDATE_WITH(planned, NULL, difference)
#define BERTH_REPLAY(planned, report) BERTH_REPLAY_WITH(planned, NULL, report)

/* The same with options (strict, stream, plan …; NULL: the defaults) and with a result: what ending the recording
 * answered, or why it could not begin, the difference, the report; each may be NULL.
 *
 *     berth_run_options options = BERTH_RUN_OPTIONS_INIT;
 *     options.strict = true;
 *     berth_report report = BERTH_REPORT_INIT;
 *     BERTH_REPLAY_WITH(planned, &options, &report) { step(planned); }
 */
#define BERTH_RECORD_WITH(planned, options, status) \
    BERTH_RUN_BLOCK(planned, BERTH_RUN_RECORD, options, status)
#define BERTH_VALIDATE_WITH(planned, options, difference) \
    BERTH_RUN_BLOCK(planned, BERTH_RUN_VALIDATE, options, difference)
#define BERTH_REPLAY_WITH(planned, options, report) \
    BERTH_RUN_BLOCK(planned, BERTH_RUN_REPLAY, options, report)

#ifdef __cplusplus
}
#endif
#endif

/* The calling thread's scope, and the planned allocator's two hot operations. */
#include <string.h>

#include "count/scope.h"
#include "replay/replay.h"

const berth_step berth__nothing_expected = {BERTH_STEP_FREE, BERTH__NOWHERE};

berth_run *berth_run_current(void)
{
    return berth__run_now->allocator ? berth__run_now : NULL;
}

/* ---- Hot --------------------------------------------------------------------------------------------- */

static berth_status allocate_slow(berth_run *run, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    if (run->kind == BERTH_RUN_REPLAY)
        return berth__replay_allocate((berth__replay *)run, size_bytes, alignment, request, out);
    return berth__record_allocate((berth__recorder *)run, size_bytes, alignment, request, out);
}

/* A function of its own, so that the fast path needs no frame. */
static __attribute__((noinline)) berth_status pass_on(void *self, size_t size_bytes, size_t alignment,
                                                      const berth_request *request, void **out)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] the inner allocator is not asked under a lock");
    berth_status status = berth__inner_allocate(self, size_bytes, alignment, request, out);
    if (BERTH_LIKELY(!status))
        berth__count_largest(self, size_bytes);
    return status;
}

/* Labels by address: one that is another, or was not seen here yet, is read on the slow path. */
static inline bool has_other_label(const berth_run *run, const berth_step *step, const berth_request *request)
{
    BERTH_DCHECK(step >= run->first, "[R7] the step is one of the plan's");
    const char *label = berth__label_text(request);
    return label && label != __atomic_load_n(&run->labels[step - run->first], __ATOMIC_RELAXED);
}

BERTH_HOT berth_status berth__planned_allocate(void *self, size_t size_bytes, size_t alignment,
                                               const berth_request *request, void **out)
{
    berth_run *run = berth__run_now;
    if (BERTH_UNLIKELY(run->allocator != self))
        return pass_on(self, size_bytes, alignment, request, out);
    const berth_step *step = run->next;
    /* As berth_run_expects; the front has refused sizes that could be a free's. A branch for each: they are all
     * foreseen, and no register has to be saved for them. */
    if (BERTH_UNLIKELY(size_bytes != step->size_bytes) ||
        BERTH_UNLIKELY(__atomic_load_n(&run->pending, __ATOMIC_RELAXED) != 0) ||
        BERTH_UNLIKELY(((step->offset | run->alignment) & (alignment - 1)) != 0) ||
        BERTH_UNLIKELY((request->flags & BERTH_ZEROED) != 0) ||
        BERTH_UNLIKELY(request->stream != run->stream) ||
        BERTH_UNLIKELY(run->labels && has_other_label(run, step, request)))
        return allocate_slow(run, size_bytes, alignment, request, out);
    BERTH_DCHECK(run->kind == BERTH_RUN_REPLAY && step->offset != BERTH__NOWHERE,
                 "[R3] only a replay expects something, at a place of its plan");
    BERTH_DCHECK(berth__block_holds(((const berth__replay *)run)->block, run->base + step->offset),
                 "[R2] the place lies in the block");
    __atomic_store_n(&run->next, step + 1, __ATOMIC_RELAXED);
    *out = run->base + step->offset;
    return BERTH_OK;
}

static berth_status deallocate_slow(berth_run *run, void *p, size_t size_bytes, berth_stream *stream)
{
    if (run->kind == BERTH_RUN_REPLAY)
        return berth__replay_deallocate((berth__replay *)run, p, size_bytes, stream);
    return berth__record_deallocate((berth__recorder *)run, p, size_bytes, stream);
}

BERTH_HOT berth_status berth__planned_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth_run *run = berth__run_now;
    if (BERTH_UNLIKELY(run->allocator != self))
        return berth__planned_free_foreign(self, p, size_bytes, stream);
    const berth_step *step = run->next;
    if (BERTH_UNLIKELY(!berth_run_expects_free(run, p) || (stream && stream != run->stream)))
        return deallocate_slow(run, p, size_bytes, stream);
    BERTH_DCHECK(run->kind == BERTH_RUN_REPLAY && step->size_bytes == BERTH_STEP_FREE,
                 "[R3] only a replay expects something, and this is a free");
    __atomic_store_n(&run->next, step + 1, __ATOMIC_RELAXED);
    return BERTH_OK;
}

/* The front checks the arguments, and finds the scope again by itself. */
static berth_status missing_run(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the run is NULL: berth_run_current gives the open one");
}

void *berth_run_allocate_slow(berth_run *run, size_t size_bytes, size_t alignment)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    if (!run) {
        (void)missing_run();
        return NULL;
    }
    request.stream = run->stream;
    berth_allocate(run->allocator, size_bytes, alignment, &request, &p);
    return p;
}

berth_status berth_run_deallocate_slow(berth_run *run, void *p)
{
    return run ? berth_deallocate(run->allocator, p, 0, NULL) : missing_run();
}

/* ---- Opening and closing ----------------------------------------------------------------------------- */

static const char *kind_name(berth_run_kind kind)
{
    return kind == BERTH_RUN_RECORD ? "record" : kind == BERTH_RUN_VALIDATE ? "validate" : "replay";
}

static berth_status end_run(berth_run *run, void *result)
{
    switch (run->kind) {
    case BERTH_RUN_RECORD:
        return berth_record_end(run->allocator);
    case BERTH_RUN_VALIDATE:
        return berth_validate_end(run->allocator, result);
    case BERTH_RUN_REPLAY:
        break;
    }
    return berth_replay_end(run->allocator, result);
}

/* A thread that exits inside a scope would take its block with it. Destructors of thread data run on the
 * exiting thread, so the scope can simply be ended. */
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static bool exit_key_made;
static _Thread_local bool exit_noted; /* this thread's destructor will run */

static void on_thread_exit(void *value)
{
    (void)value;
    if (!berth__run_now->allocator)
        return;
    berth__log(BERTH_LOG_WARNING, "a thread exits inside a %s scope; the scope is ended for it",
               kind_name(berth__run_now->kind));
    end_run(berth__run_now, NULL);
}

static void make_exit_key(void)
{
    exit_key_made = pthread_key_create(&exit_key, on_thread_exit) == 0;
}

berth_status berth__run_options_read(const berth_run_options *from, berth_run_options *to)
{
    *to = (berth_run_options)BERTH_RUN_OPTIONS_INIT;
    if (!from)
        return BERTH_OK;
    if (from->struct_size < sizeof from->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_RUN_OPTIONS_INIT",
                           from->struct_size);
    memcpy(to, from, from->struct_size < sizeof *to ? from->struct_size : sizeof *to);
    to->struct_size = sizeof *to;
    return BERTH_OK;
}

berth_status berth__run_may_open(void)
{
    if (!berth__run_now->allocator)
        return BERTH_OK;
    return berth__fail(BERTH_BUSY, "a %s scope is open on this thread; scopes do not nest, end it first",
                       kind_name(berth__run_now->kind));
}

static void count_late(void *run)
{
    berth__count_run(run);
}

berth_status berth__run_open(berth_run *run, berth_allocator *planned, berth_run_kind kind)
{
    berth_status status = berth__run_may_open();
    if (status)
        return status;
    BERTH_DCHECK(!run->allocator && run->next,
                 "[R14] a scope is opened once, and expects something or nothing");
    run->kind = kind;
    run->allocator = berth_allocator_retain(planned);
    berth__run_now = run;
    if (kind == BERTH_RUN_REPLAY && planned->metered)
        berth__counts_late = (berth__late_counter){count_late, run};
    if (!exit_noted) {
        pthread_once(&exit_once, make_exit_key);
        exit_noted = exit_key_made && pthread_setspecific(exit_key, &berth__no_run) == 0;
    }
    return BERTH_OK;
}

berth_run *berth__run_find(berth_allocator *planned, berth_run_kind kind)
{
    if (planned && berth__run_now->allocator == planned && berth__run_now->kind == kind)
        return berth__run_now;
    if (!berth__run_now->allocator)
        berth__fail(BERTH_NOT_FOUND, "no scope is open on this thread; a %s scope was to be ended",
                    kind_name(kind));
    else
        berth__fail(BERTH_NOT_FOUND,
                    "the scope open on this thread is a %s scope of %s allocator, not the %s scope asked for",
                    kind_name(berth__run_now->kind),
                    berth__run_now->allocator == planned ? "this" : "another", kind_name(kind));
    return NULL;
}

void berth__run_close(void)
{
    BERTH_DCHECK(berth__run_now->allocator, "[R14] a scope is closed once");
    berth__counts_late = (berth__late_counter){0};
    berth__run_now = &berth__no_run;
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

static void tell_failure(berth_run_kind kind, berth_status status, void *result)
{
    berth__log(BERTH_LOG_ERROR, "a %s scope could not begin, its body runs without: %s", kind_name(kind),
               berth_last_error()->message);
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    berth_report report = BERTH_REPORT_INIT;
    difference.status = report.status = status;
    /* Nothing of an earlier run is left in them. */
    if (kind == BERTH_RUN_RECORD && result)
        *(berth_status *)result = status;
    if (kind == BERTH_RUN_VALIDATE)
        berth__difference_give(&difference, result);
    if (kind == BERTH_RUN_REPLAY)
        berth__report_give(&report, result);
}

berth_run_guard berth_run_guard_begin(berth_allocator *planned, berth_run_kind kind,
                                      const berth_run_options *options, void *result)
{
    berth_run_guard guard = {.planned = planned, .kind = kind, .result = result};
    berth_status status = kind == BERTH_RUN_RECORD     ? berth_record_begin(planned, options)
                          : kind == BERTH_RUN_VALIDATE ? berth_validate_begin(planned, options)
                                                       : berth_replay_begin(planned, options);
    if (!status) {
        if (kind == BERTH_RUN_RECORD && result)
            *(berth_status *)result = BERTH_OK; /* unless its end says otherwise */
        return guard;
    }
    tell_failure(kind, status, result);
    guard.planned = NULL;
    return guard;
}

void berth_run_guard_end(berth_run_guard *guard)
{
    if (!guard || !guard->planned)
        return;
    /* The body may have ended the scope itself; then there is nothing left to do. */
    if (berth__run_now->allocator != guard->planned || berth__run_now->kind != guard->kind)
        return;
    berth_status status = end_run(berth__run_now, guard->result);
    if (guard->kind == BERTH_RUN_RECORD && guard->result)
        *(berth_status *)guard->result = status;
    if (status && guard->kind == BERTH_RUN_RECORD)
        berth__log(BERTH_LOG_ERROR, "the recording could not be planned, the plan stays empty: %s",
                   berth_last_error()->message);
    guard->planned = NULL;
}

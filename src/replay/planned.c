/* The planned allocator: its blocks, and what it answers outside the hot path. */
#include <string.h>

#include "base/annotate.h"
#include "replay/replay.h"
#include "wrap/noted.h"
#include "wrap/on_failure.h"

static void planned_destroy(void *self);

berth__planned *berth__planned_of(berth_allocator *a)
{
    if (berth__allocator_is(a, planned_destroy))
        return a->self;
    berth__fail(BERTH_INVALID_ARGUMENT, "%s: make one with berth_planned_create",
                a ? "this is not a planned allocator" : "the planned allocator is NULL");
    return NULL;
}

berth_plan *berth__planned_choose(berth__planned *p, const berth_run_options *options)
{
    if (options->plan)
        return berth_plan_retain(options->plan);
    berth__planned_lock(p);
    berth_plan *plan = berth_plan_retain(p->plan);
    berth__planned_unlock(p);
    return plan;
}

/* ---- The inner allocator ----------------------------------------------------------------------------- */

berth_status berth__inner_answered(berth__planned *p, berth_status status, size_t size_bytes,
                                   size_t alignment, const berth_request *request, void **out)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] the inner allocator is not asked under a lock");
    while (berth__is_want_of_memory(status) && berth__blocks_make_room(p, !(request->flags & BERTH_NO_RETRY)))
        status = berth__allocate(p->base.inner, size_bytes, alignment, request, out);
    if (status || *out || size_bytes == 0)
        return status;
    return berth__fail(BERTH_INTERNAL,
                       "the inner allocator (%s) answered BERTH_OK to %zu bytes without a block",
                       berth_allocator_name(p->base.inner), size_bytes);
}

/* ---- Pointers into blocks, from outside their scope -------------------------------------------------- */

static berth_status bad_free(const char *what)
{
    return berth__fail(BERTH_BAD_FREE, "the pointer lies in a planned block, %s", what);
}

/* With the lock, of a block that another thread runs: left for that thread to see. */
static berth_status free_running(berth__block *b, uint64_t offset, berth_stream *stream)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] frees are left for another thread with the lock");
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING, "[R14] a scope runs on the block");
    uint32_t rank = berth__plan_rank(b->plan, offset);
    if (rank == BERTH__NO_RANK)
        return bad_free("but no allocation begins there");
    uint64_t bit = (uint64_t)1 << (rank & 63);
    BERTH_DCHECK(rank >> 6 < b->remote_words, "[R7] there is a bit for every place of the plan");
    if (b->remote[rank >> 6] & bit)
        return bad_free("and was freed already");
    bool added = false;
    if (stream && berth__uses_add(b, offset, stream, &added) != BERTH_OK)
        return BERTH_OUT_OF_HOST_MEMORY;
    b->remote[rank >> 6] |= bit;
    __atomic_store_n(&b->replay.head.pending, UINT64_MAX, __ATOMIC_RELAXED);
    return BERTH_OK;
}

static berth__replay *own_replay(const berth__planned *p)
{
    berth_run *run = berth_run_current();
    return run && run->kind == BERTH_RUN_REPLAY && run->allocator == &p->base.base ? (berth__replay *)run
                                                                                   : NULL;
}

/* BERTH_UNSUPPORTED: the pointer is not ours. BERTH_OUT_OF_HOST_MEMORY: the stream cannot be noted. After the
 * lock is given back only the last straggler's own block keeps the allocator. */
static berth_status try_free(berth__planned *p, void *pointer, berth_stream *stream)
{
    berth_status status = BERTH_UNSUPPORTED;
    bool last = false;
    uint64_t asked = 0;
    berth__replay *own = own_replay(p);
    berth__planned_lock(p);
    berth__block *b = berth__block_find(p, pointer);
    uint64_t offset = b ? (uintptr_t)pointer - (uintptr_t)b->base : 0;
    if (b)
        status = berth__straggler_free(b, offset, stream, &last, &asked);
    if (status == BERTH_NOT_FOUND && b->plan)
        status = free_running(b, offset, stream);
    else if (status == BERTH_NOT_FOUND)
        status = bad_free(b->straggler_count ? "but nothing is live there: freed twice, or not the beginning "
                                               "of an allocation"
                                             : "in which nothing is live: freed twice");
    BERTH_DCHECK(!last || (b && b->straggler_count == 0 && b->state == BERTH__BLOCK_RUNNING),
                 "[R14] who frees the last straggler puts its block away");
    berth__planned_unlock(p);
    if (own && asked)
        berth__count_beside(own, -(int64_t)asked);
    if (last)
        berth__block_put_away(p, b);
    return status;
}

berth_status berth__planned_free_foreign(berth__planned *p, void *pointer, size_t size_bytes,
                                         berth_stream *stream)
{
    if (BERTH_LIKELY(!berth__planned_may_own(p, pointer)))
        return berth__deallocate(p->base.inner, pointer, size_bytes, stream);
    berth_status status = try_free(p, pointer, stream);
    if (status == BERTH_UNSUPPORTED)
        return berth__deallocate(p->base.inner, pointer, size_bytes, stream);
    if (status != BERTH_OUT_OF_HOST_MEMORY)
        return status;
    /* No memory to let others wait for the stream: the host does. */
    status = berth_stream_synchronize(stream);
    return !status ? try_free(p, pointer, NULL) : status;
}

bool berth__planned_owns_block(berth__planned *p, const void *pointer)
{
    if (BERTH_LIKELY(!berth__planned_may_own(p, pointer)))
        return false;
    berth__planned_lock(p);
    bool owned = berth__block_find(p, pointer) != NULL;
    berth__planned_unlock(p);
    return owned;
}

/* Whose a pointer is, seen from the calling thread. */
typedef enum whose {
    NOT_OURS,
    OURS_LIVE,
    OURS_DEAD,
    OF_ANOTHER_THREAD, /* only that thread's scope knows whether it is live */
} whose;

static whose ask_whose(berth__planned *p, const void *pointer, size_t *size_bytes)
{
    if (!berth__planned_may_own(p, pointer))
        return NOT_OURS;
    berth__replay *own = own_replay(p);
    berth__planned_lock(p);
    berth__block *b = berth__block_find(p, pointer);
    const berth__plan_range *straggler =
        b ? berth__straggler_find(b, (uintptr_t)pointer - (uintptr_t)b->base) : NULL;
    whose answer = !b ? NOT_OURS : straggler ? OURS_LIVE : b->plan ? OF_ANOTHER_THREAD : OURS_DEAD;
    *size_bytes = straggler ? (size_t)straggler->size_bytes : 0;
    berth__planned_unlock(p);
    if (!own || b != own->block || answer == OURS_LIVE)
        return answer;
    BERTH_DCHECK(answer == OF_ANOTHER_THREAD, "[R14] the calling thread's own scope runs on the block");
    const berth__plan_entry *e = berth__replay_find(own, pointer);
    *size_bytes = e ? (size_t)e->size_bytes : 0;
    return e ? OURS_LIVE : OURS_DEAD;
}

/* ---- Operations -------------------------------------------------------------------------------------- */

static berth_status of_another_thread(void)
{
    return berth__fail(BERTH_UNSUPPORTED,
                       "the pointer lies in the planned block of another thread's scope; ask that thread");
}

static berth_status planned_owns(void *self, const void *pointer)
{
    berth__planned *p = self;
    size_t size = 0;
    switch (ask_whose(p, pointer, &size)) {
    case OURS_LIVE:
        return BERTH_OK;
    case OURS_DEAD:
        return BERTH_NOT_FOUND;
    case OF_ANOTHER_THREAD:
        return of_another_thread();
    case NOT_OURS:
        break;
    }
    return p->base.inner->ops.owns(p->base.inner->self, pointer);
}

/* The planned size: what the block may use, whatever was asked. */
static berth_status planned_size_slow(void *self, const void *pointer, size_t *out)
{
    berth__planned *p = self;
    switch (ask_whose(p, pointer, out)) {
    case OURS_LIVE:
        return BERTH_OK;
    case OURS_DEAD:
        return berth__fail(BERTH_NOT_FOUND, "nothing is live there in the planned block");
    case OF_ANOTHER_THREAD:
        return of_another_thread();
    case NOT_OURS:
        break;
    }
    return p->base.inner->ops.allocated_size_slow(p->base.inner->self, pointer, out);
}

static berth_status planned_reallocate(void *self, void *pointer, size_t old_bytes, size_t new_bytes,
                                       size_t alignment, const berth_request *request, void **out)
{
    berth__planned *p = self;
    berth_run *run = berth_run_current();
    /* In a scope it is an allocation and a free like any other; the front does both. */
    if ((run && run->allocator == &p->base.base) || berth__planned_may_own(p, pointer))
        return BERTH_UNSUPPORTED;
    berth_allocator *inner = p->base.inner;
    berth_status status;
    do
        status = inner->ops.reallocate(inner->self, pointer, old_bytes, new_bytes, alignment, request, out);
    while (berth__is_want_of_memory(status) &&
           berth__blocks_make_room(p, !(request->flags & BERTH_NO_RETRY)));
    return status;
}

static berth_status planned_record_use(void *self, const void *pointer, berth_stream *stream)
{
    berth__planned *p = self;
    if (!berth__planned_may_own(p, pointer))
        return p->base.inner->ops.record_use(p->base.inner->self, pointer, stream);
    berth_status status = BERTH_NOT_FOUND;
    bool added = false;
    berth__replay *own = own_replay(p);
    berth__planned_lock(p);
    berth__block *b = berth__block_find(p, pointer);
    const berth__plan_range *straggler =
        b ? berth__straggler_find(b, (uintptr_t)pointer - (uintptr_t)b->base) : NULL;
    if (straggler)
        status = berth__uses_add(b, straggler->offset, stream, &added);
    else if (b && b->plan && (!own || own->block != b))
        status = of_another_thread();
    berth__planned_unlock(p);
    if (!b)
        return p->base.inner->ops.record_use(p->base.inner->self, pointer, stream);
    if (straggler || !own || own->block != b)
        return status;
    return berth__replay_record_use(own, pointer, stream);
}

static berth_status planned_trim(void *self, size_t keep_bytes, size_t *released)
{
    berth__planned *p = self;
    size_t own = 0, inner = 0;
    berth__planned_lock(p);
    berth__block *idle = berth__blocks_take_idle(p, keep_bytes, &own);
    p->most_running = p->running > 1 ? p->running : 1;
    berth__planned_unlock(p);
    berth__blocks_free(p, idle);
    berth_status status = p->base.inner->ops.trim(p->base.inner->self, keep_bytes, &inner);
    *released = own + inner;
    return status;
}

static const char *planned_name(void *self)
{
    (void)self;
    return "planned";
}

/* ---- Birth and end ----------------------------------------------------------------------------------- */

void berth__planned_drop(berth__planned *p)
{
    uint32_t before = atomic_fetch_sub(&p->keepers, 1);
    (void)BERTH_ASSERT(before > 0, "[R5] each keeper is dropped once");
    if (before != 1)
        return;
    BERTH_DCHECK(p->released && (p->running == 0 || berth__is_child()),
                 "[R5] an allocator outlives its references and its scopes");
    berth__blocks_free(p, p->blocks);
    berth_plan_release(p->plan);
    berth__fork_mutex_finish(&p->guard);
    berth__wrapper_finish(&p->base);
    berth__heap_free(p);
}

/* Open scopes hold references, so only blocks with stragglers can be left. */
static void planned_destroy(void *self)
{
    berth__planned *p = self;
    size_t bytes = 0;
    berth__planned_lock(p);
    berth__block *idle = berth__blocks_take_idle(p, 0, &bytes);
    BERTH_DCHECK(!p->released && (p->running == 0 || berth__is_child()),
                 "[R5] open scopes hold references, and the last goes once");
    p->released = true;
    berth__planned_unlock(p);
    berth__blocks_free(p, idle);
    berth__planned_drop(p);
}

berth_status berth_planned_create(berth_allocator *inner, berth_plan *plan, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner || !plan)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                           !out     ? "out"
                           : !inner ? "the inner allocator"
                                    : "the plan; an empty one from berth_plan_create will do");
    berth__planned *p = berth__heap_zalloc(1, sizeof *p);
    if (!p)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a planned allocator");
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = berth__planned_allocate;
    ops.deallocate = berth__planned_deallocate;
    ops.destroy = planned_destroy;
    ops.reallocate = planned_reallocate;
    ops.record_use = planned_record_use;
    ops.name = planned_name;
    ops.owns = planned_owns;
    ops.tracks_sizes = NULL;
    ops.requested_size = NULL;
    ops.allocated_size = NULL;
    ops.allocated_size_slow = planned_size_slow;
    ops.allocation_id = NULL;
    ops.stats = berth__planned_stats;
    ops.clear_stats = berth__planned_clear_stats;
    ops.trim = planned_trim;
    berth__wrapper_init(&p->base, &ops, inner);
    p->base.base.straight_bytes = 0;                 /* the front looks at what a replay expects */
    p->base.base.knows_blocks = inner->knows_blocks; /* what is not ours is asked there */
    p->on_host =
        BERTH__ANNOTATES() && berth__is_host_accessible(inner); /* asked for by memory checkers only */
    berth_stats figures = {.struct_size = sizeof figures};
    p->has_figures = inner->ops.stats(inner->self, &figures) == BERTH_OK;
    berth__fork_mutex_init(&p->guard);
    atomic_init(&p->keepers, 1);
    atomic_init(&p->low, UINTPTR_MAX);
    atomic_init(&p->high, 0);
    p->plan = berth_plan_retain(plan);
    *out = &p->base.base;
    return BERTH_OK;
}

berth_status berth_planned_set_plan(berth_allocator *planned, berth_plan *plan)
{
    berth__planned *p = berth__planned_of(planned);
    if (!p)
        return BERTH_INVALID_ARGUMENT;
    if (!plan)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the plan is NULL; an empty one from berth_plan_create "
                                                   "makes every request pass to the inner allocator");
    berth_run *run = berth_run_current();
    if (run && run->allocator == planned)
        return berth__fail(BERTH_BUSY, "this thread is inside a scope of the allocator; end it, then set "
                                       "another plan");
    berth__planned_lock(p);
    BERTH_DCHECK(p->plan, "[R1] a planned allocator always has a plan");
    berth_plan *old = p->plan;
    p->plan = berth_plan_retain(plan);
    berth__planned_unlock(p);
    berth_plan_release(old);
    return BERTH_OK;
}

berth_plan *berth_planned_plan(berth_allocator *planned)
{
    berth__planned *p = berth__planned_of(planned);
    berth_run_options none = BERTH_RUN_OPTIONS_INIT;
    return p ? berth__planned_choose(p, &none) : NULL;
}

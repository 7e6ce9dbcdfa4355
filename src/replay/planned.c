/* The planned allocator: its blocks, and what it answers outside the hot path. */
#include <string.h>

#include "base/annotate.h"
#include "replay/replay.h"
#include "wrap/noted.h"

static void planned_destroy(void *self);

static void lock(berth__planned *p)
{
    berth__mutex_lock(&p->lock, BERTH__RANK_REPLAY);
}

static void unlock(berth__planned *p)
{
    berth__mutex_unlock(&p->lock, BERTH__RANK_REPLAY);
}

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
    lock(p);
    berth_plan *plan = berth_plan_retain(p->plan);
    unlock(p);
    return plan;
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

/* Called without the lock, on a block that nobody else sees or that is running for the caller. */
static void give_memory_back(berth__planned *p, berth__block *b)
{
    berth__streams_settle(b);
    if (b->base && berth__deallocate(p->base.inner, b->base, b->bytes, NULL) != BERTH_OK)
        berth__log(BERTH_LOG_WARNING, "the inner allocator did not take a planned block back: %s",
                   berth_last_error()->message);
}

static void block_free(berth__planned *p, berth__block *b)
{
    give_memory_back(p, b);
    berth__plan_content_release(b->plan);
    berth__ledger_finish(&b->ledger);
    berth__heap_free(b->remote);
    berth__heap_free(b->uses);
    berth__heap_free(b);
}

/* With the lock. */
static void unlink_block(berth__planned *p, berth__block *b)
{
    berth__block **at = &p->blocks;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
}

static bool is_enough(const berth__block *b, size_t bytes, size_t alignment)
{
    return b->bytes >= bytes && b->alignment >= alignment;
}

/* With the lock: from now on frees by other threads are taken. */
static void open_for(berth__block *b, berth__plan_content *plan)
{
    memset(&b->replay, 0, sizeof b->replay);
    b->plan = plan;
}

static bool is_ready(const berth__block *b, const berth__plan_content *plan)
{
    return b->ledger.words && b->ledger.rank_count >= plan->rank_count && b->ledger.live == 0 &&
           b->remote_words * 64 >= plan->rank_count;
}

/* The smallest idle block that is enough; else the largest, to be exchanged; NULL if none is idle. One that
 * needs nothing more has its plan when it comes back. */
static berth__block *claim_idle(berth__planned *p, size_t bytes, size_t alignment, berth__plan_content *plan)
{
    berth__block *best = NULL;
    lock(p);
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->state != BERTH__BLOCK_IDLE)
            continue;
        bool enough = is_enough(b, bytes, alignment);
        bool best_enough = best && is_enough(best, bytes, alignment);
        if (!best || (enough && !best_enough) ||
            (enough == best_enough && (enough ? b->bytes < best->bytes : b->bytes > best->bytes)))
            best = b;
    }
    if (best)
        best->state = BERTH__BLOCK_RUNNING;
    if (best && is_enough(best, bytes, alignment) && is_ready(best, plan))
        open_for(best, plan);
    unlock(p);
    return best;
}

static berth__block *add_block(berth__planned *p)
{
    berth__block *b = berth__heap_zalloc(1, sizeof *b);
    if (!b) {
        berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a planned block's record");
        return NULL;
    }
    b->state = BERTH__BLOCK_RUNNING;
    b->alignment = 1;
    lock(p);
    b->next = p->blocks;
    p->blocks = b;
    unlock(p);
    return b;
}

static void set_memory(berth__planned *p, berth__block *b, void *base, size_t bytes, size_t alignment)
{
    lock(p);
    b->base = base;
    b->bytes = bytes;
    b->alignment = alignment;
    if (base) {
        uintptr_t low = (uintptr_t)base, high = low + bytes;
        if (low < atomic_load_explicit(&p->low, memory_order_relaxed))
            atomic_store_explicit(&p->low, low, memory_order_relaxed);
        if (high > atomic_load_explicit(&p->high, memory_order_relaxed))
            atomic_store_explicit(&p->high, high, memory_order_relaxed);
    }
    unlock(p);
}

static berth_status grow(berth__planned *p, berth__block *b, size_t bytes, size_t alignment)
{
    static const berth_request request = {sizeof request, 0, NULL, "planned block"};
    if (is_enough(b, bytes, alignment))
        return BERTH_OK;
    give_memory_back(p, b);
    set_memory(p, b, NULL, 0, 1);
    void *base = NULL;
    berth_status status =
        bytes ? berth__allocate(p->base.inner, bytes, alignment, &request, &base) : BERTH_OK;
    if (status == BERTH_OK)
        set_memory(p, b, base, bytes, alignment);
    return status;
}

static berth_status prepare(berth__planned *p, berth__block *b, berth__plan_content *plan)
{
    size_t words = ((size_t)plan->rank_count + 63) / 64;
    berth_status status = berth__ledger_prepare(&b->ledger, plan->rank_count);
    if (status != BERTH_OK)
        return status;
    uint64_t *remote = words > b->remote_words ? berth__heap_zalloc(words, sizeof *remote) : NULL;
    if (words > b->remote_words && !remote)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of %u places",
                           plan->rank_count);
    lock(p);
    if (remote) {
        berth__heap_free(b->remote);
        b->remote = remote;
        b->remote_words = words;
    }
    open_for(b, plan);
    unlock(p);
    return BERTH_OK;
}

berth_status berth__block_take(berth__planned *p, berth__plan_content *plan, berth__block **out)
{
    size_t alignment = (size_t)plan->alignment > BERTH_ALIGNMENT ? (size_t)plan->alignment : BERTH_ALIGNMENT;
    size_t bytes = (size_t)plan->total_bytes;
    if (plan->total_bytes > (uint64_t)PTRDIFF_MAX - BERTH_ALIGNMENT_MAX)
        return berth__fail(BERTH_OVERFLOW, "a block of %llu bytes is more than this machine can address",
                           (unsigned long long)plan->total_bytes);
    berth__block *b = claim_idle(p, bytes, alignment, plan);
    if (b && b->plan) {
        *out = b;
        return BERTH_OK;
    }
    if (!b)
        b = add_block(p);
    if (!b)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth_status status = grow(p, b, bytes, alignment);
    if (status == BERTH_OK)
        status = prepare(p, b, plan);
    if (status == BERTH_OK) {
        *out = b;
        return BERTH_OK;
    }
    lock(p);
    unlink_block(p, b);
    unlock(p);
    block_free(p, b);
    return status;
}

/* With the lock: nothing is live in the block any more. The plan is the caller's to release. */
static berth__plan_content *make_idle(berth__block *b)
{
    berth__plan_content *plan = b->plan;
    b->plan = NULL;
    b->state = BERTH__BLOCK_IDLE;
    b->use_count = 0;
    return plan;
}

void berth__block_give(berth__planned *p, berth__block *b)
{
    berth__plan_content *done = NULL;
    lock(p);
    /* Frees by other threads that came after the scope looked last. */
    for (size_t w = 0; w < b->remote_words; w++)
        for (; b->remote[w]; b->remote[w] &= b->remote[w] - 1) {
            uint32_t rank = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(b->remote[w]);
            if (berth__ledger_has(&b->ledger, rank))
                berth__ledger_remove(&b->ledger, rank);
        }
    if (b->ledger.live)
        b->state = BERTH__BLOCK_LINGERING;
    else
        done = make_idle(b);
    unlock(p);
    berth__plan_content_release(done);
}

/* ---- Pointers into blocks, from outside their scope -------------------------------------------------- */

static bool may_be_ours(const berth__planned *p, const void *pointer)
{
    return (uintptr_t)pointer >= atomic_load_explicit(&p->low, memory_order_relaxed) &&
           (uintptr_t)pointer < atomic_load_explicit(&p->high, memory_order_relaxed);
}

/* With the lock. */
static berth__block *find_block(const berth__planned *p, const void *pointer)
{
    for (berth__block *b = p->blocks; b; b = b->next)
        if ((uintptr_t)pointer - (uintptr_t)b->base < b->bytes)
            return b;
    return NULL;
}

static berth_status bad_free(const char *what)
{
    return berth__fail(BERTH_BAD_FREE, "the pointer lies in a planned block, %s", what);
}

/* With the lock, of a block that another thread runs: left for that thread to see. */
static berth_status free_running(berth__block *b, uint64_t offset)
{
    uint32_t rank = berth__plan_rank(b->plan, offset);
    if (rank == BERTH__NO_RANK)
        return bad_free("but no allocation begins there");
    uint64_t bit = (uint64_t)1 << (rank & 63);
    if (b->remote[rank >> 6] & bit)
        return bad_free("and was freed already");
    b->remote[rank >> 6] |= bit;
    __atomic_store_n(&b->replay.head.pending, UINT64_MAX, __ATOMIC_RELAXED);
    return BERTH_OK;
}

/* With the lock, of a block whose scope has ended. `use` gets a stream that must be waited for first. */
static berth_status free_lingering(berth__block *b, uint64_t offset, berth_stream **use,
                                   berth__plan_content **done)
{
    uint32_t rank = berth__plan_rank(b->plan, offset);
    if (rank == BERTH__NO_RANK || !berth__ledger_has(&b->ledger, rank))
        return bad_free("but nothing is live there: freed twice, or not the beginning of an allocation");
    for (size_t i = 0; i < b->use_count; i++) {
        if (b->uses[i].rank != rank)
            continue;
        *use = b->uses[i].stream;
        b->uses[i] = b->uses[--b->use_count];
        return BERTH_NOT_READY;
    }
    berth__ledger_remove(&b->ledger, rank);
    if (b->ledger.live == 0)
        *done = make_idle(b);
    return BERTH_OK;
}

/* With the lock. */
static bool is_finished(const berth__planned *p)
{
    if (!p->released)
        return false;
    for (const berth__block *b = p->blocks; b; b = b->next)
        if (b->state != BERTH__BLOCK_IDLE)
            return false;
    return true;
}

static void planned_free(berth__planned *p);

/* BERTH_UNSUPPORTED: the pointer is not ours. BERTH_NOT_READY: `use` must be waited for, then once more. */
static berth_status try_free(berth__planned *p, void *pointer, berth_stream **use)
{
    berth__plan_content *done = NULL;
    berth_status status = BERTH_UNSUPPORTED;
    lock(p);
    berth__block *b = find_block(p, pointer);
    uint64_t offset = b ? (uintptr_t)pointer - (uintptr_t)b->base : 0;
    if (b && *use)
        status = BERTH_NOT_READY;
    else if (b && b->state == BERTH__BLOCK_IDLE)
        status = bad_free("which is idle: freed twice");
    else if (b && b->state == BERTH__BLOCK_RUNNING)
        status = b->plan ? free_running(b, offset) : bad_free("which is being made ready: freed twice");
    else if (b)
        status = free_lingering(b, offset, use, &done);
    bool finished = is_finished(p);
    unlock(p);
    berth__plan_content_release(done);
    if (finished)
        planned_free(p);
    return status;
}

berth_status berth__planned_free_foreign(berth__planned *p, void *pointer, size_t size_bytes,
                                         berth_stream *stream)
{
    if (BERTH_LIKELY(!may_be_ours(p, pointer)))
        return berth__deallocate(p->base.inner, pointer, size_bytes, stream);
    berth_stream *use = stream;
    for (;;) {
        berth_status status = try_free(p, pointer, &use);
        if (status == BERTH_UNSUPPORTED)
            return berth__deallocate(p->base.inner, pointer, size_bytes, stream);
        if (status != BERTH_NOT_READY)
            return status;
        /* There is no scope whose stream could wait in our place: the host does. */
        status = berth_stream_synchronize(use);
        if (status != BERTH_OK)
            return status;
        use = NULL;
    }
}

/* Whose a pointer is, seen from the calling thread. */
typedef enum whose {
    NOT_OURS,
    OURS_LIVE,
    OURS_DEAD,
    OF_ANOTHER_THREAD, /* only that thread's scope knows whether it is live */
} whose;

static berth__replay *own_replay(const berth__planned *p)
{
    berth_run *run = berth_run_current();
    return run && run->kind == BERTH_RUN_REPLAY && run->allocator == &p->base.base ? (berth__replay *)run
                                                                                   : NULL;
}

static whose ask_whose(berth__planned *p, const void *pointer, size_t *size_bytes)
{
    if (!may_be_ours(p, pointer))
        return NOT_OURS;
    berth__replay *own = own_replay(p);
    lock(p);
    berth__block *b = find_block(p, pointer);
    whose answer = !b ? NOT_OURS : b->state == BERTH__BLOCK_RUNNING ? OF_ANOTHER_THREAD : OURS_DEAD;
    if (b && b->state == BERTH__BLOCK_LINGERING) {
        const berth__plan_entry *e =
            berth__ledger_find(&b->ledger, b->plan, (uintptr_t)pointer - (uintptr_t)b->base);
        answer = e ? OURS_LIVE : OURS_DEAD;
        *size_bytes = e ? (size_t)e->size_bytes : 0;
    }
    unlock(p);
    if (!own || b != own->block)
        return answer;
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
    if ((run && run->allocator == &p->base.base) || may_be_ours(p, pointer))
        return BERTH_UNSUPPORTED;
    return p->base.inner->ops.reallocate(p->base.inner->self, pointer, old_bytes, new_bytes, alignment,
                                         request, out);
}

static berth_status planned_record_use(void *self, const void *pointer, berth_stream *stream)
{
    berth__planned *p = self;
    if (!may_be_ours(p, pointer))
        return p->base.inner->ops.record_use(p->base.inner->self, pointer, stream);
    berth__replay *own = own_replay(p);
    if (own && (uintptr_t)pointer - (uintptr_t)own->head.base < own->block->bytes)
        return berth__replay_record_use(own, pointer, stream);
    berth_status status = BERTH_UNSUPPORTED;
    lock(p);
    berth__block *b = find_block(p, pointer);
    if (b && b->state == BERTH__BLOCK_LINGERING) {
        const berth__plan_entry *e =
            berth__ledger_find(&b->ledger, b->plan, (uintptr_t)pointer - (uintptr_t)b->base);
        status = e ? berth__uses_add(b, e->rank, stream) : BERTH_NOT_FOUND;
    } else if (b) {
        status = b->state == BERTH__BLOCK_IDLE ? BERTH_NOT_FOUND : of_another_thread();
    }
    unlock(p);
    return b ? status : p->base.inner->ops.record_use(p->base.inner->self, pointer, stream);
}

/* With the lock: takes idle blocks off the list while more than `keep` bytes are idle. */
static berth__block *take_idle_off(berth__planned *p, size_t keep, size_t *bytes)
{
    size_t idle = 0;
    for (berth__block *b = p->blocks; b; b = b->next)
        idle += b->state == BERTH__BLOCK_IDLE ? b->bytes : 0;
    berth__block *taken = NULL;
    *bytes = 0;
    for (berth__block **at = &p->blocks; *at && idle > keep;) {
        berth__block *b = *at;
        if (b->state != BERTH__BLOCK_IDLE) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        b->next = taken;
        taken = b;
        idle -= b->bytes;
        *bytes += b->bytes;
    }
    return taken;
}

static void free_all(berth__planned *p, berth__block *b)
{
    while (b) {
        berth__block *next = b->next;
        block_free(p, b);
        b = next;
    }
}

static berth_status planned_trim(void *self, size_t keep_bytes, size_t *released)
{
    berth__planned *p = self;
    size_t own = 0, inner = 0;
    lock(p);
    berth__block *idle = take_idle_off(p, keep_bytes, &own);
    unlock(p);
    free_all(p, idle);
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

static void planned_free(berth__planned *p)
{
    free_all(p, p->blocks);
    berth_plan_release(p->plan);
    pthread_mutex_destroy(&p->lock);
    berth__wrapper_finish(&p->base);
    berth__heap_free(p);
}

/* Open scopes hold references, so only lingering blocks can be left. */
static void planned_destroy(void *self)
{
    berth__planned *p = self;
    size_t bytes = 0;
    lock(p);
    berth__block *idle = take_idle_off(p, 0, &bytes);
    p->released = true;
    bool finished = is_finished(p);
    unlock(p);
    free_all(p, idle);
    if (finished)
        planned_free(p);
}

berth_status berth_planned_create(berth_allocator *inner, berth_plan *plan, berth_allocator **out)
{
    if (!out || !inner || !plan)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                           !out     ? "out"
                           : !inner ? "the inner allocator"
                                    : "the plan; an empty one from berth_plan_create will do");
    *out = NULL;
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
    ops.trim = planned_trim;
    berth__wrapper_init(&p->base, &ops, inner);
    p->on_host =
        BERTH__ANNOTATES() && berth__is_host_accessible(inner); /* asked for by memory checkers only */
    pthread_mutex_init(&p->lock, NULL);
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
    lock(p);
    berth_plan *old = p->plan;
    p->plan = berth_plan_retain(plan);
    unlock(p);
    berth_plan_release(old);
    return BERTH_OK;
}

berth_plan *berth_planned_plan(berth_allocator *planned)
{
    berth__planned *p = berth__planned_of(planned);
    berth_run_options none = BERTH_RUN_OPTIONS_INIT;
    return p ? berth__planned_choose(p, &none) : NULL;
}

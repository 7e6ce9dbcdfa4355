/* Blocks: which one a scope gets, and how it is made ready. */
#include <string.h>

#include "count/scope.h"
#include "device/device.h"
#include "replay/replay.h"

/* Without the lock, of a block that nobody else sees or that is running for the caller. */
static void give_memory_back(berth__planned *p, berth__block *b)
{
    BERTH_DCHECK((!b->plan && b->straggler_count == 0) || berth__is_child(),
                 "[R5] memory in which something may be live stays");
    if (!b->base)
        return;
    berth__count_block_changes(p);
    berth_status status = berth__marks_settle(b);
    if (!status && b->pieces) {
        berth__pieces_give(p, b);
        return;
    }
    if (!status)
        status = berth__inner_give(p, b->base, b->bytes);
    if (!berth__free_is_done(status))
        berth__log(BERTH_LOG_ERROR, "a planned block of %zu bytes is lost: %s", b->bytes,
                   berth_last_error()->message);
    else
        berth__count_block_back(p, b->given_bytes);
}

void berth__block_free(berth__planned *p, berth__block *b)
{
    BERTH_DCHECK((b->ledger.live == 0 && !b->keeps) || berth__is_child(),
                 "[R5] a block that goes has nothing live");
    give_memory_back(p, b);
    berth__plan_content_release(b->plan);
    berth__plan_content_release(b->around);
    berth__plan_content_release(b->split);
    berth__heap_free(b->pieces);
    berth__ledger_finish(&b->ledger);
    berth__marks_finish(b);
    berth__heap_free(b->remote);
    berth__heap_free(b->stragglers);
    berth__heap_free(b->short_bytes);
    berth__heap_free(b->tags);
    berth__heap_free(b);
}

void berth__blocks_free(berth__planned *p, berth__block *b)
{
    while (b) {
        berth__block *next = b->next;
        berth__block_free(p, b);
        b = next;
    }
}

bool berth__block_is_valid(const berth__block *b)
{
    uint64_t end = 0, bytes = 0, asked = 0;
    if (berth__is_child())
        return true;
    for (size_t i = 0; i < b->straggler_count; i++) {
        const berth__plan_range *at = &b->stragglers[i];
        if (at->offset < end || at->size_bytes == 0 || at->asked_bytes > at->size_bytes ||
            !berth__block_holds(b, b->base + at->offset) ||
            !berth__block_holds(b, b->base + at->offset + at->size_bytes - 1))
            return false;
        end = at->offset + at->size_bytes;
        bytes += at->size_bytes;
        asked += at->asked_bytes;
    }
    return b->straggler_count <= b->straggler_room && bytes == b->straggler_bytes &&
           asked == b->straggler_asked_bytes && (b->straggler_count == 0 || b->keeps);
}

/* With the lock. */
static void unlink_block(berth__planned *p, berth__block *b)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] blocks are listed with the lock");
    berth__block **at = &p->blocks;
    while (*at && *at != b)
        at = &(*at)->next;
    BERTH_DCHECK(*at == b, "[R14] the block is in the list");
    *at = b->next;
}

berth__block *berth__block_find(const berth__planned *p, const void *pointer)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] blocks are found with the lock");
    for (berth__block *b = p->blocks; b; b = b->next)
        if (berth__block_holds(b, pointer))
            return b;
    return NULL;
}

berth__block *berth__blocks_take_idle(berth__planned *p, size_t keep, size_t *bytes)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] idle blocks are taken with the lock");
    size_t idle = 0;
    for (berth__block *b = p->blocks; b; b = b->next)
        idle += b->state == BERTH__BLOCK_IDLE && !b->straggler_count ? b->bytes : 0;
    berth__block *taken = NULL;
    *bytes = 0;
    for (berth__block **at = &p->blocks; *at && idle > keep;) {
        berth__block *b = *at;
        if (b->state != BERTH__BLOCK_IDLE || b->straggler_count) {
            at = &b->next;
            continue;
        }
        BERTH_DCHECK((!b->plan && idle >= b->bytes) || berth__is_child(),
                     "[R14] no scope runs on an idle block");
        *at = b->next;
        b->next = taken;
        taken = b;
        idle -= b->bytes;
        *bytes += b->bytes;
    }
    return taken;
}

/* Puts the blocks of `list` that a stream still uses back among the idle ones; returns the others. */
static berth__block *keep_busy(berth__planned *p, berth__block *list)
{
    berth__block *passed = NULL, *busy = NULL;
    while (list) {
        berth__block *b = list;
        list = b->next;
        berth__block **to = berth__marks_passed(b) ? &passed : &busy;
        b->next = *to;
        *to = b;
    }
    berth__planned_lock(p);
    while (busy) {
        berth__block *b = busy;
        busy = b->next;
        b->next = p->blocks;
        p->blocks = b;
    }
    berth__planned_unlock(p);
    return passed;
}

bool berth__blocks_make_room(berth__planned *p, bool waits)
{
    size_t bytes = 0;
    berth__planned_lock(p);
    berth__block *idle = berth__blocks_take_idle(p, 0, &bytes);
    berth__planned_unlock(p);
    berth__block *passed = keep_busy(p, idle);
    if (!passed && waits) {
        berth__planned_lock(p);
        passed = berth__blocks_take_idle(p, 0, &bytes);
        berth__planned_unlock(p);
    }
    berth__blocks_free(p, passed);
    return passed != NULL;
}

void berth__blocks_held(berth__planned *p, uint64_t *bytes, uint64_t *straggler_bytes)
{
    *bytes = *straggler_bytes = 0;
    berth__planned_lock(p);
    for (const berth__block *b = p->blocks; b; b = b->next) {
        *bytes += b->bytes;
        *straggler_bytes += b->straggler_bytes;
    }
    berth__planned_unlock(p);
}

/* ---- Choosing ---------------------------------------------------------------------------------------- */

/* What a scope asks of its block. */
typedef struct need {
    berth__plan_content *plan;
    size_t bytes, alignment;
} need;

static bool is_enough(const berth__block *b, const need *n)
{
    if (BERTH_UNLIKELY(b->split != NULL))
        return b->split->whole == n->plan;
    return b->bytes >= n->bytes && b->alignment >= n->alignment;
}

/* The plan as it lies in this block. */
static berth__plan_content *laid_out(const berth__block *b, berth__plan_content *plan)
{
    return b->split ? b->split : plan;
}

/* With the lock: the smallest idle block without stragglers that is enough; else the largest, to be
 * exchanged; NULL if none is idle. */
static berth__block *best_empty(const berth__planned *p, const need *n)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] a block is chosen with the lock");
    berth__block *best = NULL;
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->state != BERTH__BLOCK_IDLE || b->straggler_count)
            continue;
        bool enough = is_enough(b, n);
        bool best_enough = best && is_enough(best, n);
        if (!best || (enough && !best_enough) ||
            (enough == best_enough && (enough ? b->bytes < best->bytes : b->bytes > best->bytes)))
            best = b;
    }
    return best;
}

/* With the lock: the idle block that has room around its stragglers, if blocks with stragglers hold more than
 * twice what is live in them: then one of them runs again, and at most one block and twice the stragglers'
 * bytes are held however many pointers are kept [R8]. NULL: another block may be taken. */
static berth__block *best_shared(const berth__planned *p, const need *n)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] a block is chosen with the lock");
    berth__block *best = NULL;
    uint64_t held = 0, live = 0;
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->state != BERTH__BLOCK_IDLE || !b->straggler_count)
            continue;
        held += b->bytes;
        live += b->straggler_bytes;
        if (is_enough(b, n) && (!best || b->straggler_bytes < best->straggler_bytes))
            best = b;
    }
    return held > 2 * live ? best : NULL;
}

/* How many accounts a run notes, one an allocation. */
static size_t tags_for(const berth__planned *p, const berth__plan_content *plan)
{
    return p->base.inner->metered ? plan->count : 0;
}

#ifndef NDEBUG
static bool has_no_remote(const berth__block *b, const berth__plan_content *plan)
{
    for (size_t w = 0; w < b->remote_words; w++)
        if (b->remote[w])
            return false;
    return b->remote_words * 64 >= plan->rank_count;
}
#endif

/* With the lock: from now on frees by other threads are taken. */
static void open_for(berth__block *b, berth__plan_content *plan)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] a scope starts on a block with the lock");
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && !b->plan, "[R14] one scope at a time runs on a block");
    BERTH_DCHECK(b->ledger.rank_count >= plan->rank_count && b->ledger.live == 0,
                 "[R3] the ledger has room for the plan, and nothing is live in it");
    BERTH_DCHECK(b->straggler_room >= b->straggler_count + plan->rank_count,
                 "[R5] there is room for all that may outlive the scope");
    BERTH_DCHECK(b->split || b->bytes >= plan->total_bytes, "[R2] the plan fits into the block");
    BERTH_DCHECK(has_no_remote(b, plan),
                 "[R6] frees that others left for an earlier scope were taken at its end");
    memset(&b->replay, 0, sizeof b->replay);
    b->replay.follows_uses = b->use_count != 0;
    b->plan = plan;
}

/* With the lock. */
static bool is_ready(const berth__planned *p, const berth__block *b, const berth__plan_content *plan)
{
    return b->ledger.words && b->ledger.rank_count >= plan->rank_count && b->ledger.live == 0 &&
           b->remote_words * 64 >= plan->rank_count && b->tag_room >= tags_for(p, plan) &&
           b->straggler_room >= plan->rank_count && !b->straggler_count;
}

/* One that needs nothing more has its plan when it comes back. */
static berth__block *block_claim(berth__planned *p, const need *n)
{
    berth__planned_lock(p);
    berth__block *b = best_empty(p, n);
    if (!b || !is_enough(b, n)) {
        berth__block *shared = best_shared(p, n);
        b = shared ? shared : b;
    }
    BERTH_DCHECK(!b || (b->state == BERTH__BLOCK_IDLE && berth__block_is_valid(b)),
                 "[R14] what is taken was idle, and is whole");
    if (b)
        b->state = BERTH__BLOCK_RUNNING;
    if (b && is_enough(b, n) && is_ready(p, b, laid_out(b, n->plan)))
        open_for(b, laid_out(b, n->plan));
    if (++p->running > p->most_running)
        p->most_running = p->running;
    berth__planned_unlock(p);
    return b;
}

/* ---- Making ready ------------------------------------------------------------------------------------ */

static berth__block *add_block(berth__planned *p)
{
    berth__block *b = berth__heap_zalloc(1, sizeof *b);
    if (!b) {
        berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a planned block's record");
        return NULL;
    }
    b->state = BERTH__BLOCK_RUNNING;
    b->alignment = 1;
    berth__planned_lock(p);
    b->next = p->blocks;
    p->blocks = b;
    berth__planned_unlock(p);
    return b;
}

size_t berth__block_given(berth__planned *p, const void *base, size_t bytes)
{
    berth_allocator *inner = p->base.inner;
    size_t given = 0;
    if (base && inner->ops.tracks_sizes(inner->self) &&
        inner->ops.allocated_size(inner->self, base, &given) == BERTH_OK)
        return given;
    return bytes;
}

void berth__planned_reach(berth__planned *p, uintptr_t low, uintptr_t high)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] the reach of blocks grows with the lock");
    BERTH_DCHECK(low < high, "[R2] a block has memory");
    if (low < atomic_load_explicit(&p->low, memory_order_relaxed))
        atomic_store_explicit(&p->low, low, memory_order_relaxed);
    if (high > atomic_load_explicit(&p->high, memory_order_relaxed))
        atomic_store_explicit(&p->high, high, memory_order_relaxed);
}

static void set_memory(berth__planned *p, berth__block *b, void *base, size_t bytes, size_t alignment)
{
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && !b->plan && b->straggler_count == 0,
                 "[R5] memory is exchanged while nothing is live in it");
    size_t given = berth__block_given(p, base, bytes);
    if (base)
        berth__count_block(p, given);
    berth__piece *pieces = b->pieces;
    berth__plan_content *split = b->split;
    berth__planned_lock(p);
    b->pieces = NULL;
    b->piece_count = 0;
    b->split = NULL;
    b->base = base;
    b->bytes = bytes;
    b->given_bytes = given;
    b->alignment = alignment;
    if (base)
        berth__planned_reach(p, (uintptr_t)base, (uintptr_t)base + bytes);
    berth__planned_unlock(p);
    berth__heap_free(pieces);
    berth__plan_content_release(split);
}

/* Whether the device says beforehand that it gives no such block. */
static bool is_too_large(const berth__planned *p, size_t bytes)
{
    berth_allocator *inner = p->base.inner;
    berth_device device = berth_allocator_device(inner);
    return device.kind != BERTH_DEVICE_UNKNOWN &&
           bytes > berth__device_most_bytes(device, inner->ops.memory_kind(inner->self));
}

static berth_status block_grow(berth__planned *p, berth__block *b, const need *n)
{
    static const berth_request request = {sizeof request, 0, NULL, berth__label_uncounted};
    if (is_enough(b, n))
        return BERTH_OK;
    give_memory_back(p, b);
    set_memory(p, b, NULL, 0, 1);
    void *base = NULL;
    if (n->bytes == 0)
        return BERTH_OK;
    berth__count_block_changes(p);
    if (is_too_large(p, n->bytes))
        return berth__pieces_take(p, b, n->plan, n->alignment, false);
    berth_status status = berth__inner_allocate(p, n->bytes, n->alignment, &request, &base);
    if (!status)
        set_memory(p, b, base, n->bytes, n->alignment);
    return status == BERTH_OUT_OF_DEVICE_MEMORY ? berth__pieces_take(p, b, n->plan, n->alignment, true)
                                                : status;
}

/* Whether the plan that was laid out around stragglers the last time serves again. */
static bool is_around(const berth__plan_content *around, const berth__plan_content *plan,
                      const berth__plan_range *ranges, size_t count)
{
    return around && around->whole == plan && around->range_count == count &&
           memcmp(around->ranges, ranges, count * sizeof *ranges) == 0;
}

/* The plan around the stragglers of a block that runs for the caller: they can only become fewer. */
static berth_status plan_around(berth__planned *p, berth__block *b, berth__plan_content *plan,
                                berth__plan_content **out)
{
    berth__planned_lock(p);
    size_t count = b->straggler_count;
    berth__planned_unlock(p);
    *out = NULL;
    if (count == 0)
        return BERTH_OK;
    berth__plan_range *ranges = berth__heap_zalloc(count, sizeof *ranges);
    if (!ranges)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan around %zu stragglers", count);
    berth__planned_lock(p);
    count = b->straggler_count;
    memcpy(ranges, b->stragglers, count * sizeof *ranges);
    berth__planned_unlock(p);
    berth_status status = BERTH_OK;
    if (!is_around(b->around, plan, ranges, count)) {
        berth__plan_content_release(b->around);
        b->around = NULL;
        status = berth__plan_displace(plan, ranges, count, &b->around);
    }
    BERTH_DCHECK(status || b->around->whole == plan, "[R5] what runs around stragglers is the plan");
    berth__heap_free(ranges);
    if (!status)
        *out = berth__plan_content_retain(b->around);
    return status;
}

static berth_status no_room(const berth__plan_content *plan)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of %u places", plan->rank_count);
}

/* With the lock: places for all stragglers that this scope can leave, so that its end cannot fail. */
static bool make_straggler_room(berth__block *b, size_t more)
{
    size_t room = b->straggler_count + more;
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] stragglers are any thread's, with the lock");
    if (room <= b->straggler_room)
        return true;
    berth__plan_range *larger = berth__heap_realloc(b->stragglers, room * sizeof *larger);
    if (!larger)
        return false;
    b->stragglers = larger;
    b->straggler_room = room;
    return true;
}

static bool make_tag_room(berth__block *b, size_t count)
{
    if (b->tag_room >= count)
        return true;
    uint16_t *larger = berth__heap_zalloc(count, sizeof *larger);
    if (!larger)
        return false;
    berth__heap_free(b->tags);
    b->tags = larger;
    b->tag_room = count;
    return true;
}

static berth_status block_prepare(berth__planned *p, berth__block *b, berth__plan_content *plan)
{
    size_t words = ((size_t)plan->rank_count + 63) / 64;
    berth_status status = berth__ledger_prepare(&b->ledger, plan->rank_count);
    if (status)
        return status;
    if (!make_tag_room(b, tags_for(p, plan)))
        return no_room(plan);
    uint64_t *remote = words > b->remote_words ? berth__heap_zalloc(words, sizeof *remote) : NULL;
    if (words > b->remote_words && !remote)
        return no_room(plan);
    berth__planned_lock(p);
    if (remote) {
        berth__heap_free(b->remote);
        b->remote = remote;
        b->remote_words = words;
    }
    bool roomy = make_straggler_room(b, plan->rank_count);
    if (roomy)
        open_for(b, plan);
    berth__planned_unlock(p);
    return roomy ? BERTH_OK : no_room(plan);
}

static berth_status make_ready(berth__planned *p, berth__block *b, const need *n)
{
    berth__plan_content *around = NULL;
    berth_status status = block_grow(p, b, n);
    if (!status)
        status = plan_around(p, b, laid_out(b, n->plan), &around);
    if (!status)
        status = block_prepare(p, b, around ? around : laid_out(b, n->plan));
    if (status)
        berth__plan_content_release(around);
    return status;
}

/* By the runner of a block that is ready: its reference is to what it runs, which holds the plan. */
static void hand_over(berth__block *b, berth__plan_content *plan)
{
    BERTH_DCHECK(b->plan == plan || b->plan->whole == plan ||
                     (b->plan->whole && b->plan->whole->whole == plan),
                 "[R5] what runs is the plan, or was made of it");
    if (b->plan == plan)
        return;
    if (b->plan == b->split)
        (void)berth__plan_content_retain(b->split);
    berth__plan_content_release(plan);
}

static void not_running(berth__planned *p)
{
    berth__planned_lock(p);
    BERTH_DCHECK(p->running > 0, "[R14] a scope that could not begin was counted");
    p->running--;
    berth__planned_unlock(p);
}

berth_status berth__block_take(berth__planned *p, berth__plan_content *plan, berth__block **out)
{
    size_t alignment = (size_t)plan->alignment > BERTH_ALIGNMENT ? (size_t)plan->alignment : BERTH_ALIGNMENT;
    size_t bytes = (size_t)plan->total_bytes;
    if (plan->total_bytes > (uint64_t)PTRDIFF_MAX - BERTH_ALIGNMENT_MAX)
        return berth__fail(BERTH_OVERFLOW, "a block of %llu bytes is more than this machine can address",
                           (unsigned long long)plan->total_bytes);
    const need n = {plan, bytes, alignment};
    berth__block *b = block_claim(p, &n);
    berth_status status = BERTH_OK;
    if (!b)
        b = add_block(p);
    if (!b)
        status = BERTH_OUT_OF_HOST_MEMORY;
    else if (!b->plan)
        status = make_ready(p, b, &n);
    if (!status) {
        hand_over(b, plan);
        *out = b;
        return BERTH_OK;
    }
    not_running(p);
    if (b)
        berth__block_put_away(p, b);
    return status;
}

/* ---- Putting away ------------------------------------------------------------------------------------ */

void berth__block_give(berth__planned *p, berth__block *b)
{
    berth__planned_lock(p);
    BERTH_DCHECK(p->running > 0 && b->state == BERTH__BLOCK_RUNNING && b->plan,
                 "[R14] the scope that ends runs on its block");
    p->running--;
    berth__stragglers_keep(p, b);
    BERTH_DCHECK(berth__block_is_valid(b), "[R2] what outlives its scope is disjoint, and in the block");
    berth__count_keep(p, &b->replay);
    berth__plan_content *plan = b->plan;
    b->plan = NULL;
    bool inhabited = b->straggler_count != 0;
    berth__planned_unlock(p);
    berth__streams_end(&b->replay, inhabited);
    berth__plan_content_release(plan);
    berth__block_put_away(p, b);
}

/* With the lock: one block more than have been needed at one time, if it is idle. The caller's from now on. */
static berth__block *take_surplus(berth__planned *p)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] a block is chosen with the lock");
    uint32_t empty = 0;
    berth__block *smallest = NULL;
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->straggler_count)
            continue;
        empty++;
        if (b->state == BERTH__BLOCK_IDLE && (!smallest || b->bytes < smallest->bytes))
            smallest = b;
    }
    if (!smallest || (empty <= p->most_running && smallest->base && !p->released))
        return NULL;
    BERTH_DCHECK(!smallest->plan || berth__is_child(), "[R14] no scope runs on an idle block");
    smallest->state = BERTH__BLOCK_RUNNING;
    return smallest;
}

/* Gives `b` back. One that a stream still uses stays until the next time: nobody waits here. */
static bool block_shed(berth__planned *p, berth__block *b)
{
    bool passed = berth__marks_passed(b);
    berth__planned_lock(p);
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && b->straggler_count == 0,
                 "[R5] what is given back is the caller's, and nothing is live in it");
    passed = passed || p->released;
    if (passed)
        unlink_block(p, b);
    else
        b->state = BERTH__BLOCK_IDLE;
    berth__planned_unlock(p);
    if (passed)
        berth__block_free(p, b);
    return passed;
}

/* With the lock: idle, unless something is left to do first. */
static bool try_idle(berth__block *b, bool paid, berth_stream **owed)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] a block becomes idle with the lock");
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && !b->plan, "[R14] the caller has it, and no scope");
    *owed = b->use_count ? berth__uses_take(b, BERTH__NOWHERE) : NULL;
    if (*owed || (b->straggler_count == 0 && !paid && berth__marks_owes(b)))
        return false;
    b->state = BERTH__BLOCK_IDLE;
    return true;
}

void berth__block_put_away(berth__planned *p, berth__block *b)
{
    bool idle = false, paid = false, dropped = false;
    berth__block *surplus = NULL;
    while (!idle) {
        berth_stream *owed = NULL;
        berth__planned_lock(p);
        idle = try_idle(b, paid, &owed);
        if (idle && b->keeps && b->straggler_count == 0) {
            b->keeps = false;
            dropped = true;
        }
        surplus = idle ? take_surplus(p) : NULL;
        berth__planned_unlock(p);
        if (owed)
            berth__marks_owe(b, owed);
        else if (!idle)
            berth__marks_pay(b);
        paid = !owed;
    }
    /* Blocks that stragglers made necessary go when those have gone. */
    while (surplus && block_shed(p, surplus)) {
        berth__planned_lock(p);
        surplus = take_surplus(p);
        berth__planned_unlock(p);
    }
    if (dropped)
        berth__planned_drop(p);
}

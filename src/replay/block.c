/* Blocks: which one a scope gets, and how it is made ready. */
#include <string.h>

#include "count/scope.h"
#include "replay/replay.h"

/* Without the lock, of a block that nobody else sees or that is running for the caller. */
static void give_memory_back(berth__planned *p, berth__block *b)
{
    if (!b->base)
        return;
    berth__count_block_changes(p);
    berth_status status = berth__marks_settle(b);
    if (status == BERTH_OK)
        status = berth__deallocate(p->base.inner, b->base, b->bytes, NULL);
    if (status != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "a planned block of %zu bytes is lost: %s", b->bytes,
                   berth_last_error()->message);
    else
        berth__count_block_back(p, b->given_bytes);
}

void berth__block_free(berth__planned *p, berth__block *b)
{
    give_memory_back(p, b);
    berth__plan_content_release(b->plan);
    berth__plan_content_release(b->around);
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

/* With the lock. */
static void unlink_block(berth__planned *p, berth__block *b)
{
    berth__block **at = &p->blocks;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
}

berth__block *berth__block_find(const berth__planned *p, const void *pointer)
{
    for (berth__block *b = p->blocks; b; b = b->next)
        if ((uintptr_t)pointer - (uintptr_t)b->base < b->bytes)
            return b;
    return NULL;
}

berth__block *berth__blocks_take_idle(berth__planned *p, size_t keep, size_t *bytes)
{
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
        *at = b->next;
        b->next = taken;
        taken = b;
        idle -= b->bytes;
        *bytes += b->bytes;
    }
    return taken;
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

static bool is_enough(const berth__block *b, size_t bytes, size_t alignment)
{
    return b->bytes >= bytes && b->alignment >= alignment;
}

/* With the lock: the smallest idle block without stragglers that is enough; else the largest, to be
 * exchanged; NULL if none is idle. */
static berth__block *best_empty(const berth__planned *p, size_t bytes, size_t alignment)
{
    berth__block *best = NULL;
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->state != BERTH__BLOCK_IDLE || b->straggler_count)
            continue;
        bool enough = is_enough(b, bytes, alignment);
        bool best_enough = best && is_enough(best, bytes, alignment);
        if (!best || (enough && !best_enough) ||
            (enough == best_enough && (enough ? b->bytes < best->bytes : b->bytes > best->bytes)))
            best = b;
    }
    return best;
}

/* With the lock: the idle block that has room around its stragglers, if blocks with stragglers hold more than
 * twice what is live in them: then one of them runs again, and at most one block and twice the stragglers'
 * bytes are held however many pointers are kept [R8]. NULL: another block may be taken. */
static berth__block *best_shared(const berth__planned *p, size_t bytes, size_t alignment)
{
    berth__block *best = NULL;
    uint64_t held = 0, live = 0;
    for (berth__block *b = p->blocks; b; b = b->next) {
        if (b->state != BERTH__BLOCK_IDLE || !b->straggler_count)
            continue;
        held += b->bytes;
        live += b->straggler_bytes;
        if (is_enough(b, bytes, alignment) && (!best || b->straggler_bytes < best->straggler_bytes))
            best = b;
    }
    return held > 2 * live ? best : NULL;
}

/* How many accounts a run notes, one an allocation. */
static size_t tags_for(const berth__planned *p, const berth__plan_content *plan)
{
    return p->base.inner->metered ? plan->count : 0;
}

/* With the lock: from now on frees by other threads are taken. */
static void open_for(berth__block *b, berth__plan_content *plan)
{
    memset(&b->replay, 0, sizeof b->replay);
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
static berth__block *claim(berth__planned *p, size_t bytes, size_t alignment, berth__plan_content *plan)
{
    berth__planned_lock(p);
    berth__block *b = best_empty(p, bytes, alignment);
    if (!b || !is_enough(b, bytes, alignment)) {
        berth__block *shared = best_shared(p, bytes, alignment);
        b = shared ? shared : b;
    }
    if (b)
        b->state = BERTH__BLOCK_RUNNING;
    if (b && is_enough(b, bytes, alignment) && is_ready(p, b, plan))
        open_for(b, plan);
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

/* What the inner allocator counts for the block. */
static size_t given_for(berth__planned *p, const void *base, size_t bytes)
{
    berth_allocator *inner = p->base.inner;
    size_t given = 0;
    if (base && inner->ops.tracks_sizes(inner->self) &&
        inner->ops.allocated_size(inner->self, base, &given) == BERTH_OK)
        return given;
    return bytes;
}

static void set_memory(berth__planned *p, berth__block *b, void *base, size_t bytes, size_t alignment)
{
    size_t given = given_for(p, base, bytes);
    if (base)
        berth__count_block(p, given);
    berth__planned_lock(p);
    b->base = base;
    b->bytes = bytes;
    b->given_bytes = given;
    b->alignment = alignment;
    if (base) {
        uintptr_t low = (uintptr_t)base, high = low + bytes;
        if (low < atomic_load_explicit(&p->low, memory_order_relaxed))
            atomic_store_explicit(&p->low, low, memory_order_relaxed);
        if (high > atomic_load_explicit(&p->high, memory_order_relaxed))
            atomic_store_explicit(&p->high, high, memory_order_relaxed);
    }
    berth__planned_unlock(p);
}

static berth_status grow(berth__planned *p, berth__block *b, size_t bytes, size_t alignment)
{
    static const berth_request request = {sizeof request, 0, NULL, berth__label_uncounted};
    if (is_enough(b, bytes, alignment))
        return BERTH_OK;
    give_memory_back(p, b);
    set_memory(p, b, NULL, 0, 1);
    void *base = NULL;
    if (bytes == 0)
        return BERTH_OK;
    berth__count_block_changes(p);
    berth_status status = berth__inner_allocate(p, bytes, alignment, &request, &base);
    if (status == BERTH_OK)
        set_memory(p, b, base, bytes, alignment);
    return status;
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
    berth__heap_free(ranges);
    if (status == BERTH_OK)
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

static berth_status prepare(berth__planned *p, berth__block *b, berth__plan_content *plan)
{
    size_t words = ((size_t)plan->rank_count + 63) / 64;
    berth_status status = berth__ledger_prepare(&b->ledger, plan->rank_count);
    if (status != BERTH_OK)
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

static berth_status make_ready(berth__planned *p, berth__block *b, berth__plan_content *plan, size_t bytes,
                               size_t alignment)
{
    berth__plan_content *around = NULL;
    berth_status status = grow(p, b, bytes, alignment);
    if (status == BERTH_OK)
        status = plan_around(p, b, plan, &around);
    if (status == BERTH_OK)
        status = prepare(p, b, around ? around : plan);
    if (status == BERTH_OK && around)
        berth__plan_content_release(plan); /* the other one holds it */
    if (status != BERTH_OK)
        berth__plan_content_release(around);
    return status;
}

static void not_running(berth__planned *p)
{
    berth__planned_lock(p);
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
    berth__block *b = claim(p, bytes, alignment, plan);
    if (b && b->plan) {
        *out = b;
        return BERTH_OK;
    }
    if (!b)
        b = add_block(p);
    berth_status status = b ? make_ready(p, b, plan, bytes, alignment) : BERTH_OUT_OF_HOST_MEMORY;
    if (status == BERTH_OK) {
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
    p->running--;
    berth__stragglers_keep(p, b);
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
    smallest->state = BERTH__BLOCK_RUNNING;
    return smallest;
}

/* Gives `b` back. One that a stream still uses stays until the next time: nobody waits here. */
static bool shed(berth__planned *p, berth__block *b)
{
    bool passed = berth__marks_passed(b);
    berth__planned_lock(p);
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
    while (surplus && shed(p, surplus)) {
        berth__planned_lock(p);
        surplus = take_surplus(p);
        berth__planned_unlock(p);
    }
    if (dropped)
        berth__planned_drop(p);
}

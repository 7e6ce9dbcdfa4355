/* Stragglers: allocations of a plan that are still live after their scope. They stay where they are, in a
 * list by offset, until somebody frees them; the block may run again around them. */
#include <string.h>

#include "count/scope.h"
#include "replay/replay.h"

/* The first straggler that ends after `offset`. */
static size_t place_of(const berth__block *b, uint64_t offset)
{
    size_t low = 0, high = b->straggler_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->stragglers[middle].offset + b->stragglers[middle].size_bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

const berth__plan_range *berth__straggler_find(const berth__block *b, uint64_t offset)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] stragglers are any thread's, with the lock");
    size_t at = place_of(b, offset);
    return at < b->straggler_count && b->stragglers[at].offset <= offset ? &b->stragglers[at] : NULL;
}

static void straggler_add(berth__block *b, berth__plan_range range)
{
    size_t at = place_of(b, range.offset);
    BERTH_DCHECK(at == b->straggler_count || b->stragglers[at].offset >= range.offset + range.size_bytes,
                 "[R2] no two live blocks overlap");
    BERTH_DCHECK(b->straggler_count < b->straggler_room, "[R5] room was made when the scope began");
    memmove(&b->stragglers[at + 1], &b->stragglers[at], (b->straggler_count - at) * sizeof *b->stragglers);
    b->stragglers[at] = range;
    b->straggler_count++;
    b->straggler_bytes += range.size_bytes;
    b->straggler_asked_bytes += range.asked_bytes;
}

/* Frees by other threads that came after the scope looked last. */
static void take_remote(berth__block *b)
{
    for (size_t w = 0; w < b->remote_words; w++)
        for (; b->remote[w]; b->remote[w] &= b->remote[w] - 1) {
            uint32_t rank = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(b->remote[w]);
            BERTH_DCHECK(rank < b->plan->rank_count, "[R7] others free places of the plan that runs");
            berth__uses_loosen(b, b->plan->rank_offsets[rank]);
            if (!berth__ledger_has(&b->ledger, rank))
                continue;
            berth__count_remove(&b->replay, b->ledger.ids[rank]);
            berth__ledger_remove(&b->ledger, rank);
        }
}

void berth__stragglers_keep(berth__planned *p, berth__block *b)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] stragglers are any thread's, with the lock");
    BERTH_DCHECK(berth__block_is_valid(b), "[R2] what outlived earlier scopes is disjoint, and in the block");
    take_remote(b);
    for (uint32_t rank = b->ledger.live ? berth__ledger_next(&b->ledger, 0) : BERTH__LEDGER_NONE;
         rank != BERTH__LEDGER_NONE; rank = berth__ledger_next(&b->ledger, rank + 1)) {
        uint32_t id = b->ledger.ids[rank];
        straggler_add(b, (berth__plan_range){.offset = b->plan->entries[id].offset,
                                             .size_bytes = b->plan->entries[id].size_bytes,
                                             .asked_bytes = berth__replay_asked(&b->replay, id),
                                             .tag = b->tags ? b->tags[id] : 0});
    }
    berth__ledger_clear(&b->ledger);
    for (size_t i = 0; i < b->use_count; i++)
        b->uses[i].counted = false;
    if (b->straggler_count && !b->keeps) {
        b->keeps = true;
        atomic_fetch_add(&p->keepers, 1);
    }
}

berth_status berth__straggler_free(berth__block *b, uint64_t offset, berth_stream *stream, bool *last,
                                   uint64_t *asked_bytes)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] stragglers are any thread's, with the lock");
    BERTH_DCHECK(berth__block_is_valid(b), "[R2] what outlives its scope is disjoint, and in the block");
    *last = false;
    *asked_bytes = 0;
    size_t at = place_of(b, offset);
    if (at == b->straggler_count || b->stragglers[at].offset != offset)
        return BERTH_NOT_FOUND;
    bool added = false;
    if (stream && berth__uses_add(b, BERTH__NOWHERE, stream, &added) != BERTH_OK)
        return BERTH_OUT_OF_HOST_MEMORY;
    berth__uses_loosen(b, offset);
    b->straggler_bytes -= b->stragglers[at].size_bytes;
    *asked_bytes = b->stragglers[at].asked_bytes;
    b->straggler_asked_bytes -= *asked_bytes;
    berth__account_sub(b->stragglers[at].tag, *asked_bytes);
    b->straggler_count--;
    memmove(&b->stragglers[at], &b->stragglers[at + 1], (b->straggler_count - at) * sizeof *b->stragglers);
    BERTH_DCHECK(berth__block_is_valid(b), "[R2] what is left is disjoint, and in the block");
    *last = b->straggler_count == 0 && b->state == BERTH__BLOCK_IDLE;
    if (*last)
        b->state = BERTH__BLOCK_RUNNING;
    return BERTH_OK;
}

/* Time-ordered best fit: what a good heap would do if it saw the allocations in order. Buffers come and go in
 * time, each takes the smallest free block that holds it, neighbours merge, and what fits nowhere extends the
 * last free block at the arena's end. It knows no future, so pins are beyond it: with pins or pieces, and few
 * enough buffers, the placing of fit.c is used in the same order, which sees both. */
#include <string.h>

#include "planner/engine/solver.h"
#include "planner/place/blocks.h"
#include "planner/place/fit.h"
#include "planner/place/stack.h"
#include "planner/problem/prepared.h"

/* Items in order of their end, by counting. The caller frees; NULL if there is no memory. */
static uint32_t *list_ends(const berth__prepared *p)
{
    uint32_t *first = berth__heap_zalloc((size_t)p->column_count + 2, sizeof *first);
    uint32_t *ends = berth__heap_alloc(p->item_count * sizeof *ends);
    if (!first || !ends) {
        berth__heap_free(first);
        berth__heap_free(ends);
        return NULL;
    }
    for (uint32_t i = 0; i < p->item_count; i++)
        first[p->upper[i] + 1]++;
    for (uint32_t c = 0; c <= p->column_count; c++)
        first[c + 1] += first[c];
    for (uint32_t i = 0; i < p->item_count; i++)
        ends[first[p->upper[i]]++] = i;
    BERTH_DCHECK(first[p->column_count] == p->item_count, "[L10] the list has every item");
    berth__heap_free(first);
    return ends;
}

/* Goes through the columns; what ends comes before what begins. All that begin in a column are live together,
 * so time does not order them: the longest-lived goes first, down in the arena, where it is in nobody's way.
 * An arena as large as the limit is given up.
 * A stop for want of steps is not heeded: this plan is worth its few, since it may be the only one. */
static berth_status greedy_walk(berth__search *search, uint64_t limit, berth__blocks *blocks,
                                const uint32_t *ends, uint32_t *block_of, uint64_t *offsets)
{
    const berth__prepared *p = search->prepared;
    uint32_t ended = 0;
    for (uint32_t first = 0, end; first < p->item_count; first = end) {
        for (end = first; end < p->item_count && p->lower[end] == p->lower[first]; end++)
            block_of[end] = BERTH__NO_BLOCK;
        for (; p->upper[ends[ended]] <= p->lower[first]; ended++)
            if (block_of[ends[ended]] != BERTH__NO_BLOCK)
                berth__blocks_give(blocks, block_of[ends[ended]]);
        for (uint32_t i = end; i-- > first;) { /* canonical order is by end: backwards is longest first */
            if (offsets[i] != BERTH_NO_OFFSET)
                continue;
            berth_status status =
                berth__blocks_take(blocks, p->size[i], berth__item_alignment(p, i), &block_of[i]);
            if (status)
                return status;
            BERTH_DCHECK(blocks->nodes[block_of[i]].start % berth__item_alignment(p, i) == 0,
                         "[L2] an offset keeps its alignment");
            offsets[i] = blocks->nodes[block_of[i]].start;
            if (blocks->end >= limit)
                return BERTH_OK;
            if (berth__search_step(search, 1) && search->stop != BERTH_STOP_STEPS)
                return BERTH_OK;
        }
        BERTH_DCHECK(first % 1024 || berth__blocks_is_valid(blocks), "[L5] blocks tile the arena");
    }
    return BERTH_OK;
}

berth_status berth__greedy_above(berth__search *search, uint64_t floor, uint64_t limit, uint64_t *offsets,
                                 bool *is_whole)
{
    const berth__prepared *p = search->prepared;
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    berth__blocks blocks;
    berth__blocks_init(&blocks);
    uint32_t *ends = list_ends(p), ground;
    uint32_t *block_of = berth__heap_alloc(p->item_count * sizeof *block_of);
    if (!ends || !block_of)
        status = berth__fail(status, "no memory to plan %u buffers in order of time", p->item_count);
    else /* what is below the floor is one block that is never given back */
        status = floor ? berth__blocks_take(&blocks, floor, 1, &ground) : BERTH_OK;
    if (!status)
        status = greedy_walk(search, limit, &blocks, ends, block_of, offsets);
    if (!status && search->stopped && search->stop == BERTH_STOP_CLOCK)
        berth__stack_above(p, offsets);
    *is_whole = !status && blocks.end < limit;
    berth__heap_free(block_of);
    berth__heap_free(ends);
    berth__blocks_finish(&blocks);
    return status;
}

static berth_status by_time(berth__search *search)
{
    const berth__prepared *p = search->prepared;
    uint64_t *offsets = berth__heap_alloc(p->item_count * sizeof *offsets);
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", p->item_count);
    memset(offsets, 0xff, p->item_count * sizeof *offsets); /* BERTH_NO_OFFSET */
    /* As large as the best so far it is of no use. */
    bool is_whole = false;
    berth_status status = berth__greedy_above(search, 0, search->best_peak, offsets, &is_whole);
    if (!status && is_whole && !(search->stopped && search->stop == BERTH_STOP_CANCELLED))
        berth__search_offer(search, offsets, "greedy");
    berth__heap_free(offsets);
    return status;
}

static berth_status greedy_run(berth__search *search)
{
    const berth__prepared *p = search->prepared;
    if (berth__search_phase(search, "greedy") && search->stop == BERTH_STOP_CANCELLED)
        return BERTH_OK;
    if (p->fixed || p->piece_first)
        return berth__fit(search, BERTH__FIT_BY_TIME, BERTH__FIT_BEST, "greedy");
    return by_time(search);
}

const berth__solver berth__solver_greedy = {
    .name = "greedy", .about = "best fit in order of time, neighbours merged; fast", .run = greedy_run};

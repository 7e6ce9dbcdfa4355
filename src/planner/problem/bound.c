/* Lower bounds that are had by looking once at the problem. */
#include "planner/problem/bound.h"

void berth__bound_loads(const berth__prepared *prepared, uint64_t *load)
{
    for (uint32_t c = 0; c < prepared->column_count; c++)
        load[c] = 0;
    /* Differences first: ends wrap below zero and are healed by the sum. */
    for (uint32_t k = 0; k < prepared->piece_count; k++) {
        load[prepared->piece_lower[k]] += prepared->piece_size[k];
        if (prepared->piece_upper[k] < prepared->column_count)
            load[prepared->piece_upper[k]] -= prepared->piece_size[k];
    }
    for (uint32_t c = 1; c < prepared->column_count; c++) {
        load[c] += load[c - 1];
        BERTH_DCHECK(load[c] <= INT64_MAX, "[L9] no more ends than has begun");
    }
}

/* What all offsets are multiples of: the smallest alignment, since alignments are powers of two times a unit.
 * 1 where something is pinned or there is a mixture, which costs a little of the bound and no truth. */
static uint64_t common_alignment(const berth__prepared *prepared)
{
    uint64_t common = prepared->alignment ? UINT64_MAX : 1;
    for (uint32_t i = 0; i < prepared->item_count; i++) {
        uint64_t alignment = berth__item_alignment(prepared, i);
        BERTH_DCHECK(alignment > 0, "[L8] alignments are from 1 on");
        common = alignment < common ? alignment : common;
    }
    for (uint32_t i = 0; i < prepared->item_count; i++)
        if (berth__item_alignment(prepared, i) % common != 0)
            return 1;
    return common;
}

static uint64_t round_up(uint64_t size, uint64_t alignment)
{
    uint64_t rest = size % alignment;
    return rest ? size + (alignment - rest) : size;
}

/* The most that a piece of the column loses when it is rounded up. */
static uint64_t largest_gap(const berth__prepared *prepared, uint32_t column, uint64_t alignment)
{
    uint64_t largest = 0;
    for (uint32_t k = 0; k < prepared->piece_count; k++) {
        if (prepared->piece_lower[k] > column || prepared->piece_upper[k] <= column)
            continue;
        uint64_t gap = round_up(prepared->piece_size[k], alignment) - prepared->piece_size[k];
        largest = gap > largest ? gap : largest;
    }
    return largest;
}

/* Where all offsets are multiples of `alignment`, everything in a column but the highest takes its size
 * rounded up. The columns that promise most are looked at. */
static berth_status raise_by_alignment(const berth__prepared *prepared, uint64_t alignment, uint64_t *best)
{
    enum { COLUMNS_TRIED = 8 };
    uint64_t *load = berth__heap_zalloc(prepared->column_count, sizeof *load);
    if (!load)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a lower bound");
    for (uint32_t k = 0; k < prepared->piece_count; k++) {
        uint64_t size = round_up(prepared->piece_size[k], alignment);
        load[prepared->piece_lower[k]] += size;
        if (prepared->piece_upper[k] < prepared->column_count)
            load[prepared->piece_upper[k]] -= size;
    }
    for (uint32_t c = 1; c < prepared->column_count; c++)
        load[c] += load[c - 1];
    for (int i = 0; i < COLUMNS_TRIED; i++) {
        uint32_t top = 0;
        for (uint32_t c = 1; c < prepared->column_count; c++)
            top = load[c] > load[top] ? c : top;
        if (load[top] <= *best)
            break;
        uint64_t bound = load[top] - largest_gap(prepared, top, alignment);
        BERTH_DCHECK(bound <= load[top] && load[top] <= INT64_MAX, "[L9] only what is live is rounded up");
        *best = bound > *best ? bound : *best;
        load[top] = 0;
    }
    berth__heap_free(load);
    return BERTH_OK;
}

berth_status berth__bound(const berth__prepared *prepared, uint64_t *bound)
{
    uint64_t best = prepared->max_live;
    for (uint32_t i = 0; i < prepared->item_count; i++) {
        uint64_t fixed = berth__item_fixed(prepared, i);
        uint64_t top = (fixed == BERTH_NO_OFFSET ? 0 : fixed) + prepared->size[i];
        best = top > best ? top : best;
    }
    uint64_t alignment = common_alignment(prepared);
    berth_status status = alignment > 1 ? raise_by_alignment(prepared, alignment, &best) : BERTH_OK;
    BERTH_DCHECK(status || prepared->item_count == 0 || best <= prepared->horizon,
                 "[L3] no bound is above the plan that puts all on each other");
    *bound = best;
    return status;
}

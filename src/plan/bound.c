/* Lower bounds that are had by looking once at the problem. */
#include "plan/bound.h"

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
    for (uint32_t c = 1; c < prepared->column_count; c++)
        load[c] += load[c - 1];
}

berth_status berth__bound(const berth__prepared *prepared, uint64_t *bound)
{
    uint64_t best = prepared->max_live;
    for (uint32_t i = 0; i < prepared->item_count; i++) {
        uint64_t fixed = berth__item_fixed(prepared, i);
        uint64_t top = (fixed == BERTH_NO_OFFSET ? 0 : fixed) + prepared->size[i];
        best = top > best ? top : best;
    }
    *bound = best;
    return BERTH_OK;
}

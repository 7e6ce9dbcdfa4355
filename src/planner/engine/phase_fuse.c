/* The fused problem within `auto`: the pipeline again, on fewer items. Its proofs are not the whole
 * problem's, its plans are. */
#include "planner/engine/part.h"
#include "planner/engine/phases.h"
#include "planner/merge/fuse.h"

static berth_status search_fused(berth__search *search, berth__fused *fused, uint64_t steps,
                                 berth_status (*run)(berth__search *))
{
    const uint32_t count = search->prepared->item_count, fewer = fused->prepared.item_count;
    uint64_t *best = berth__heap_alloc((size_t)fewer * sizeof *best);
    berth__search small = berth__part_begin(search, &fused->prepared, best);
    small.step_budget = search->steps + steps;
    uint64_t *offsets = berth__heap_alloc((size_t)count * sizeof *offsets);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (best && offsets)
        status = run(&small);
    else
        status = berth__fail(status, "no memory for a plan of %u items", count);
    berth__part_end(search, &small);
    if (!status && small.best_peak < search->best_peak) {
        berth__fuse_expand(fused, count, small.best, offsets);
        BERTH_DCHECK(berth__prepared_peak(search->prepared, offsets) == small.best_peak,
                     "[L15] a plan of what is fused is one of the whole");
        berth__search_offer(search, offsets, "fuse");
    }
    berth__heap_free(best);
    berth__heap_free(offsets);
    return status;
}

/* A tenth of what is left, but not more than a search of what has become few can use. */
static uint64_t steps_for(const berth__search *search, uint64_t item_count)
{
    const uint64_t left = search->step_budget > search->steps ? search->step_budget - search->steps : 0;
    const uint64_t most = 300000 + 10 * item_count;
    return left / 10 < most ? left / 10 : most;
}

berth_status berth__phase_fuse(berth__search *search, berth_status (*run)(berth__search *))
{
    const uint32_t count = search->prepared->item_count;
    const uint64_t goal = berth__search_goal(search);
    if (!search->prepared->is_plain || search->best_peak - goal < goal / 100)
        return BERTH_OK;
    berth__fused fused;
    berth_status status = berth__fuse_init(&fused, search);
    if (status)
        return status;
    const uint32_t fewer = fused.prepared.item_count;
    if (!search->stopped && fewer && fewer < count - count / 8)
        status = search_fused(search, &fused, steps_for(search, fewer), run);
    berth__fuse_finish(&fused);
    return status;
}

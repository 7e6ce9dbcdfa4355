/* The search of a part: what it takes from the whole's, and what it gives back. */
#include "planner/engine/part.h"

#include "planner/problem/prepared.h"

/* Of the part's plans the caller hears nothing, of the whole's never a worse one than there is. */
static berth_stop part_report(void *context, const berth_progress *progress)
{
    const berth__search *whole = context;
    const uint64_t unit = whole->prepared->unit_bytes;
    berth_progress told = *progress;
    told.best_bytes = whole->best_peak == UINT64_MAX ? UINT64_MAX : whole->best_peak * unit;
    told.lower_bound_bytes = whole->lower_bound * unit;
    BERTH_DCHECK(told.steps >= whole->steps, "[L6] steps are never given back");
    told.phase = whole->phase;
    return whole->progress ? whole->progress(whole->context, &told) : BERTH_STOP_DONE;
}

berth__search berth__part_begin(berth__search *whole, const berth__prepared *prepared, uint64_t *best)
{
    berth__search part = *whole;
    BERTH_DCHECK(!whole->stopped && prepared->unit_bytes == whole->prepared->unit_bytes,
                 "[L6] a part is searched while the whole is");
    part.prepared = prepared;
    part.progress = part_report;
    part.context = whole;
    part.best_peak = UINT64_MAX;
    part.best = best;
    return part;
}

void berth__part_end(berth__search *whole, const berth__search *part)
{
    BERTH_DCHECK(part->steps >= whole->steps, "[L6] steps are never given back");
    whole->steps = part->steps;
    if (part->stopped && (part->stop == BERTH_STOP_CLOCK || part->stop == BERTH_STOP_CANCELLED) &&
        !whole->stopped) {
        whole->stopped = true;
        whole->stop = part->stop;
    }
}

/* Where a replay is in its plan, what is live there, and the figures that follow from it. */
#include <string.h>

#include "replay/replay.h"

bool berth__replay_frees_at(const berth__plan_content *c, uint32_t step)
{
    BERTH_DCHECK(step < c->step_count, "[R7] nothing past the end of a plan is read");
    return c->entries[c->step_ids[step]].step != step;
}

/* The allocation that comes at or after `step`. */
static uint32_t allocation_at(const berth__plan_content *c, uint32_t step)
{
    if (step >= c->step_count)
        return c->count;
    uint32_t id = c->step_ids[step];
    return berth__replay_frees_at(c, step) ? c->entries[id].freed_at : id;
}

uint32_t berth__replay_position(const berth__replay *r)
{
    BERTH_DCHECK(!r->tracked && r->head.next >= r->plan->steps &&
                     r->head.next <= r->plan->steps + r->plan->step_count,
                 "[R7] in step the position is one of the plan's steps, or their end");
    return (uint32_t)(r->head.next - r->plan->steps);
}

/* ---- What was asked for ------------------------------------------------------------------------------ */

static void raise_peak(berth__replay *r, uint64_t live)
{
    if (live + r->fallback_live > r->report.peak_without_plan_bytes)
        r->report.peak_without_plan_bytes = live + r->fallback_live;
}

/* Frees planned from `step` up to allocation `id`, in bytes asked for. */
static uint64_t frees_before(const berth__replay *r, uint32_t step, uint32_t id)
{
    uint64_t bytes = 0;
    for (uint32_t s = step; s < r->plan->entries[id].step; s++)
        bytes += berth__replay_asked(r, r->plan->step_ids[s]);
    return bytes;
}

/* The most that was live in step, from where it was last measured to allocation `id`. */
static void position_measure(berth__replay *r, uint32_t id)
{
    const berth__plan_content *c = r->plan;
    uint64_t most = 0;
    BERTH_DCHECK(r->measured <= id && id <= c->count, "[R7] what is measured lies ahead, in the plan");
    for (uint32_t i = r->measured; i < id; i++) {
        uint64_t live = c->live_bytes[i];
        if (r->block->is_short) {
            live = r->measured_live += c->entries[i].rank == BERTH__NO_RANK ? 0 : berth__replay_asked(r, i);
            BERTH_DCHECK(live >= frees_before(r, c->entries[i].step + 1, i + 1),
                         "[R3] what is freed was live");
            r->measured_live -= frees_before(r, c->entries[i].step + 1, i + 1);
        }
        most = live > most ? live : most;
    }
    r->measured = id;
    raise_peak(r, most);
}

/* In step at `step`, measured up to allocation `id`, the one that is due: what is live now. */
static uint64_t live_at(const berth__replay *r, uint32_t step, uint32_t id)
{
    if (r->block->is_short)
        return r->measured_live + frees_before(r, step, id);
    if (id == 0)
        return 0;
    uint64_t live = r->plan->live_bytes[id - 1];
    for (uint32_t s = r->plan->entries[id - 1].step + 1; s < step; s++)
        live -= r->plan->entries[r->plan->step_ids[s]].size_bytes;
    BERTH_DCHECK(live <= r->plan->most_bytes, "[R3] no more is live than the plan has at its peak");
    return live;
}

void berth__replay_measure_now(berth__replay *r)
{
    if (r->tracked) {
        raise_peak(r, r->planned_live);
        return;
    }
    uint32_t here = berth__replay_position(r), id = allocation_at(r->plan, here);
    position_measure(r, id);
    raise_peak(r, live_at(r, here, id));
}

static bool make_short_room(berth__block *b, size_t count)
{
    if (b->short_room >= count)
        return true;
    uint64_t *larger = berth__heap_zalloc(count, sizeof *larger);
    if (!larger)
        return false;
    berth__heap_free(b->short_bytes);
    b->short_bytes = larger;
    b->short_room = count;
    return true;
}

void berth__replay_note_short(berth__replay *r, uint32_t id, size_t size_bytes)
{
    berth__block *b = r->block;
    uint64_t by = r->plan->entries[id].size_bytes - size_bytes;
    BERTH_DCHECK(size_bytes <= r->plan->entries[id].size_bytes,
                 "[R2] a place is as large as what is asked for");
    if (by == 0 && !b->is_short)
        return;
    /* Without memory for it the planned size is counted, which is more. */
    if (!b->is_short && !make_short_room(b, r->plan->count))
        return;
    if (!b->is_short && !r->tracked) {
        position_measure(r, id);
        r->measured_live = live_at(r, r->plan->entries[id].step, id);
    }
    BERTH_DCHECK(id < b->short_room, "[R7] there is a note for every planned allocation");
    b->is_short = true;
    atomic_store_explicit(&r->counted.is_short, true, memory_order_relaxed);
    b->short_bytes[id] = by;
}

/* ---- In step and out of it --------------------------------------------------------------------------- */

static bool is_live(const berth__replay *r, uint32_t id)
{
    uint32_t rank = r->plan->entries[id].rank;
    BERTH_DCHECK(rank != BERTH__NO_RANK, "[R3] only what has a place is live in the block");
    return berth__ledger_has(&r->block->ledger, rank) && r->block->ledger.ids[rank] == id;
}

#ifndef NDEBUG
/* Tracked: counts what is live, late and missing anew. Every call asks, so plans that are not small are taken to be
 * valid. */
static bool position_is_valid(const berth__replay *r)
{
    uint32_t live = 0, late = 0, missing = 0;
    uint64_t bytes = 0;
    if (r->plan->count > 256)
        return true;
    for (uint32_t id = 0; id < r->plan->count; id++) {
        const berth__plan_entry *e = &r->plan->entries[id];
        if (e->rank == BERTH__NO_RANK)
            continue;
        if (is_live(r, id)) {
            if (id >= r->expected)
                return false;
            live++;
            late += e->freed_at <= r->expected;
            bytes += berth__replay_asked(r, id);
        } else {
            missing += id < r->expected && e->freed_at > r->expected;
        }
    }
    return live == r->block->ledger.live && late == r->late && missing == r->missing &&
           bytes == r->planned_live;
}
#endif

void berth__replay_leave_step(berth__replay *r)
{
    if (r->tracked)
        return;
    berth__count_run(r);
    const berth__plan_content *c = r->plan;
    berth__ledger *ledger = &r->block->ledger;
    uint32_t here = berth__replay_position(r);
    BERTH_DCHECK(r->synced <= here, "[R6] a step enters the ledger once");
    for (uint32_t s = r->synced; s < here; s++) {
        const berth__plan_entry *e = &c->entries[c->step_ids[s]];
        BERTH_DCHECK(e->step <= s && (e->step == s || e->rank != BERTH__NO_RANK),
                     "[R3] a plan frees what it has placed before");
        if (e->step != s)
            berth__ledger_remove(ledger, e->rank);
        else if (e->rank != BERTH__NO_RANK)
            berth__ledger_add(ledger, e->rank, c->step_ids[s]);
    }
    r->synced = here;
    r->expected = allocation_at(c, here);
    r->late = c->entries[r->expected].step - here; /* the frees between here and it */
    r->missing = 0;
    r->slip = 0;
    position_measure(r, r->expected);
    r->planned_live = live_at(r, here, r->expected);
    r->report.from_plan += r->expected - r->entered - r->outside;
    r->tracked = true;
    __atomic_store_n(&r->head.next, &berth__nothing_expected, __ATOMIC_RELEASE);
    BERTH_DCHECK(position_is_valid(r), "[R3] what is live is what the plan has live here");
}

/* What is live is what the plan has live before allocation `expected`. */
void berth__replay_enter_step(berth__replay *r)
{
    BERTH_DCHECK(r->tracked && r->late == 0 && r->missing == 0 && r->own_uses == 0,
                 "[R3] in step, nothing else is live than the plan has");
    BERTH_DCHECK(position_is_valid(r), "[R3] what is live is what was counted");
    r->synced = r->plan->entries[r->expected].step;
    atomic_store_explicit(&r->counted.step, r->synced, memory_order_relaxed);
    __atomic_store_n(&r->head.next, r->plan->steps + r->synced, __ATOMIC_RELEASE);
    r->entered = r->measured = r->expected;
    r->measured_live = r->planned_live;
    r->outside = 0;
    r->tracked = false;
}

void berth__replay_advance(berth__replay *r, bool placed)
{
    const berth__plan_content *c = r->plan;
    BERTH_DCHECK(r->expected < c->count, "[R7] there is an allocation to pass");
    const berth__plan_entry *e = &c->entries[r->expected];
    if (!placed && e->rank != BERTH__NO_RANK)
        r->missing++;
    r->expected++;
    for (uint32_t s = e->step + 1; s < c->entries[r->expected].step; s++) {
        bool live = is_live(r, c->step_ids[s]);
        BERTH_DCHECK(live || r->missing > 0, "[R3] what is not live where the plan has it is missing");
        if (live)
            r->late++;
        else
            r->missing--;
    }
}

void berth__replay_skip(berth__replay *r)
{
    if (r->skipped_count == BERTH__SKIPPED) {
        memmove(r->skipped, r->skipped + 1, (BERTH__SKIPPED - 1) * sizeof *r->skipped);
        r->skipped_count--;
    }
    r->skipped[r->skipped_count++] = r->expected;
    berth__replay_advance(r, false);
}

void berth__replay_unskip(berth__replay *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->skipped_count; i++) {
        if (r->skipped[i] != id)
            continue;
        memmove(r->skipped + i, r->skipped + i + 1, (r->skipped_count - i - 1) * sizeof *r->skipped);
        r->skipped_count--;
        return;
    }
}

void berth__replay_add(berth__replay *r, uint32_t id, size_t size_bytes)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    berth__replay_note_short(r, id, size_bytes);
    BERTH_DCHECK(r->tracked && id <= r->expected, "[R3] what takes its place is due, or was passed over");
    BERTH_DCHECK(e->rank != BERTH__NO_RANK, "[R4] it has a place");
    berth__ledger_add(&r->block->ledger, e->rank, id);
    r->planned_live += berth__replay_asked(r, id);
    berth__count_add(r, id);
    r->report.from_plan++;
    berth__replay_measure_now(r);
    BERTH_DCHECK(id == r->expected || e->freed_at <= r->expected || r->missing > 0,
                 "[R3] what was passed over and is planned to be live is missing");
    if (id == r->expected) {
        berth__replay_advance(r, true);
    } else {
        berth__replay_unskip(r, id);
        r->late += e->freed_at <= r->expected;
        r->missing -= e->freed_at > r->expected;
    }
    BERTH_DCHECK(position_is_valid(r), "[R3] what is live is what was counted");
}

void berth__replay_remove(berth__replay *r, uint32_t rank)
{
    uint32_t id = r->block->ledger.ids[rank];
    BERTH_DCHECK(r->planned_live >= berth__replay_asked(r, id), "[R3] what is freed was counted");
    berth__ledger_remove(&r->block->ledger, rank);
    r->planned_live -= berth__replay_asked(r, id);
    berth__count_remove(r, id);
    if (r->plan->entries[id].freed_at <= r->expected)
        r->late--;
    else
        r->missing++;
    BERTH_DCHECK(position_is_valid(r), "[R3] what is live is what was counted");
}

void berth__replay_measure_end(berth__replay *r)
{
    const berth__plan_content *c = r->plan;
    if (r->measured == 0 && !r->block->is_short) {
        r->measured = c->count; /* the common end: in step throughout */
        raise_peak(r, c->most_bytes);
    }
    position_measure(r, c->count);
    r->report.from_plan += c->count - r->entered - r->outside;
}

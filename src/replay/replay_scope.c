/* A replay begins and ends: which plan, which block, and what is said of it afterwards. */
#include <string.h>

#include "replay/replay.h"

/* The run is over; what was not freed stays with its users. */
static void show_all(berth__replay *r)
{
    if (berth__replay_is_watched(r) && r->block->base)
        berth__annotate_defined(r->block->base, r->block->bytes);
}

/* All but the stragglers around which the run is planned; with a stream, work of others may still come there.
 */
static void hide_all(const berth__replay *r)
{
    if (!berth__replay_is_watched(r) || !r->block->base || r->head.stream)
        return;
    uint64_t from = 0;
    for (size_t i = 0; i < r->plan->range_count; i++) {
        const berth__plan_range *taken = &r->plan->ranges[i];
        berth__annotate_noaccess(r->block->base + from, (size_t)(taken->offset - from));
        from = taken->offset + taken->size_bytes;
    }
    berth__annotate_noaccess(r->block->base + from, (size_t)(r->block->bytes - from));
}

static berth_status check_fingerprint(const berth__plan_content *c, const berth_run_options *o, bool *stale)
{
    *stale = o->fingerprint != 0 && o->fingerprint != c->fingerprint;
    if (!*stale)
        return BERTH_OK;
    if (!o->strict) {
        berth__log(
            BERTH_LOG_WARNING,
            "the plan is stale (fingerprint %016llx, the program's is %016llx); what still fits is used",
            (unsigned long long)c->fingerprint, (unsigned long long)o->fingerprint);
        return BERTH_OK;
    }
    return berth__fail(
        BERTH_MISMATCH,
        "the plan is stale: its fingerprint is %016llx, the program's %016llx; record again, or "
        "replay elastically",
        (unsigned long long)c->fingerprint, (unsigned long long)o->fingerprint);
}

/* `r` is zeroed already, under the lock: other threads may see the block from then on. */
static void start(berth__replay *r, berth__planned *planned, berth__block *block, bool strict)
{
    r->planned = planned;
    r->block = block;
    r->plan = block->plan;
    r->strict = strict;
    __atomic_store_n(&r->head.next, r->plan->steps, __ATOMIC_RELAXED);
    r->head.first = r->plan->steps;
    r->head.labels = strict ? NULL : r->plan->step_labels; /* strict looks at sizes, order and frees */
    r->head.base = block->base;
    /* Not the block's own: what is accepted must not depend on which block a thread happens to get. */
    r->head.alignment = r->plan->alignment > BERTH_ALIGNMENT ? r->plan->alignment : BERTH_ALIGNMENT;
    r->report.struct_size = sizeof r->report;
    r->report.strict = strict;
    r->report.planned = r->plan->planned + r->plan->displaced;
    r->report.block_bytes = r->plan->total_bytes;
    if (block->is_short) {
        memset(block->short_bytes, 0, block->short_room * sizeof *block->short_bytes);
        block->is_short = false;
    }
    berth__replay_keep_watching(r);
}

berth_status berth_replay_begin(berth_allocator *allocator, const berth_run_options *options)
{
    berth_run_options o = BERTH_RUN_OPTIONS_INIT;
    berth__planned *planned = berth__planned_of(allocator);
    if (!planned)
        return BERTH_INVALID_ARGUMENT;
    berth_status status = berth__run_options_read(options, &o);
    if (status == BERTH_OK)
        status = berth__run_may_open();
    if (status != BERTH_OK)
        return status;
    berth_plan *plan = berth__planned_choose(planned, &o);
    berth__plan_content *content = NULL;
    status = berth__plan_content_of(plan, &content);
    berth_plan_release(plan);
    if (status != BERTH_OK)
        return status;
    bool stale = false;
    berth__block *block = NULL;
    status = check_fingerprint(content, &o, &stale);
    if (status == BERTH_OK)
        status = berth__block_take(planned, content, &block);
    if (status != BERTH_OK) {
        berth__plan_content_release(content);
        return status;
    }
    start(&block->replay, planned, block, o.strict);
    block->replay.report.stale = stale;
    status = berth__streams_begin(&block->replay, o.stream, block->plan->range_count != 0);
    if (status != BERTH_OK) {
        berth__block_give(planned, block);
        return status;
    }
    hide_all(&block->replay);
    return berth__run_open(&block->replay.head, allocator, BERTH_RUN_REPLAY);
}

static void report_stragglers(berth__replay *r)
{
    const berth__ledger *ledger = &r->block->ledger;
    r->report.stragglers = ledger->live;
    for (uint32_t rank = berth__ledger_next(ledger, 0);
         rank != BERTH__LEDGER_NONE && r->report.deviation_count < BERTH_REPORT_DEVIATIONS;
         rank = berth__ledger_next(ledger, rank + 1)) {
        const berth__plan_entry *e = &r->plan->entries[ledger->ids[rank]];
        berth__report_note(&r->report, BERTH_DEVIATION_STRAGGLER, ledger->ids[rank], e->freed_at,
                           r->plan->count, e->label);
    }
}

/* Strict: whether the run has come to the end of its plan. */
static berth_status check_complete(berth__replay *r)
{
    if (!r->strict || (r->expected >= r->plan->count && r->block->ledger.live == 0))
        return BERTH_OK;
    if (r->expected >= r->plan->count)
        return berth__fail(
            BERTH_MISMATCH,
            "strict replay: the scope ended with %u allocations live that the plan frees inside",
            r->block->ledger.live);
    const char *label = r->plan->entries[r->expected].label;
    berth__report_note(&r->report, BERTH_DEVIATION_MISSING, r->expected, r->plan->count, r->expected, label);
    return berth__fail(BERTH_MISMATCH,
                       "strict replay: the scope ended before allocation %u%s%s%s; the plan has %u",
                       r->expected, label ? " (" : "", label ? label : "", label ? ")" : "", r->plan->count);
}

berth_status berth_replay_end(berth_allocator *allocator, berth_report *report)
{
    berth__replay *r = (berth__replay *)berth__run_find(allocator, BERTH_RUN_REPLAY);
    berth_report full = BERTH_REPORT_INIT;
    if (!r) {
        full.status = BERTH_NOT_FOUND; /* nothing of an earlier run is left in it */
        berth__report_give(&full, report);
        return BERTH_NOT_FOUND;
    }
    berth__replay_settle(r);
    berth__count_ended(r);
    berth_status status = check_complete(r);
    if (r->block->ledger.live)
        report_stragglers(r);
    r->report.status = status;
    r->report.peak_with_plan_bytes = r->report.block_bytes + r->report.fallback_bytes;
    berth__handed_finish(&r->fallback);
    berth__run_close();
    show_all(r);
    full = r->report; /* the block is another scope's as soon as it is given back */
    berth__planned *planned = r->planned;
    berth__block_give(planned, r->block);
    berth__blocks_held(planned, &full.held_bytes, &full.straggler_bytes);
    berth__report_give(&full, report);
    berth_allocator_release(allocator);
    return status;
}

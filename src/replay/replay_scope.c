/* A replay begins and ends: which plan, which block, and what is said of it afterwards. */
#include "replay/replay.h"

/* The run is over; what was not freed stays with its users. */
static void show_all(berth__replay *r)
{
    if (berth__replay_is_watched(r) && r->block->base)
        berth__annotate_defined(r->block->base, r->block->bytes);
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
    r->head.next = r->plan->steps;
    r->head.base = block->base;
    r->head.exact = strict ? UINT64_MAX : 0;
    /* Not the block's own: what is accepted must not depend on which block a thread happens to get. */
    r->head.alignment = r->plan->alignment > BERTH_ALIGNMENT ? r->plan->alignment : BERTH_ALIGNMENT;
    r->report.struct_size = sizeof r->report;
    r->report.strict = strict;
    r->report.planned = r->plan->planned;
    r->report.block_bytes = r->plan->total_bytes;
    if (berth__replay_is_watched(r) && block->base)
        berth__annotate_noaccess(block->base, block->bytes);
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
    status = berth__streams_begin(&block->replay, o.stream);
    if (status != BERTH_OK) {
        show_all(&block->replay);
        berth__block_give(planned, block);
        return status;
    }
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

berth_status berth_replay_end(berth_allocator *allocator, berth_report *report)
{
    berth__replay *r = (berth__replay *)berth__run_find(allocator, BERTH_RUN_REPLAY);
    if (!r)
        return BERTH_NOT_FOUND;
    berth__replay_settle(r);
    if (r->block->ledger.live)
        report_stragglers(r);
    r->report.peak_with_plan_bytes = r->report.block_bytes + r->report.fallback_bytes;
    berth__report_give(&r->report, report);
    berth__handed_finish(&r->fallback);
    berth__streams_end(r);
    berth__run_close();
    show_all(r);
    berth__block_give(r->planned, r->block);
    berth_allocator_release(allocator);
    return BERTH_OK;
}

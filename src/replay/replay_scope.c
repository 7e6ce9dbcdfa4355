/* A replay begins and ends: which plan, which block, and what is said of it afterwards. */
#include <string.h>

#include "replay/replay.h"

/* The run is over; what was not freed stays with its users. */
static void show_all(berth__replay *r)
{
    const berth__block *b = r->block;
    if (!berth__replay_is_watched(r) || !b->base)
        return;
    for (size_t i = 0; i < b->piece_count; i++)
        berth__annotate_defined(b->pieces[i].base, b->pieces[i].bytes);
    if (!b->pieces)
        berth__annotate_defined(b->base, b->bytes);
}

/* What of [from, to), counted from the block's start, is not in the plan's ranges. Those belong to stragglers, which other
 * threads may be reading: they are never hidden, not even for a moment. */
static void hide_span(const berth__replay *r, uint64_t from, uint64_t to)
{
    BERTH_DCHECK(from <= to, "[R2] a span has a size");
    const berth__plan_range *range = r->plan->ranges, *end = range + r->plan->range_count;
    for (; range < end && range->offset < to; range++) {
        if (range->offset > from)
            berth__annotate_noaccess(r->block->base + from, (size_t)(range->offset - from));
        if (range->offset + range->size_bytes > from)
            from = range->offset + range->size_bytes;
    }
    if (from < to)
        berth__annotate_noaccess(r->block->base + from, (size_t)(to - from));
}

/* All but the stragglers around which the run is planned; with a stream, work of others may still come there. */
static void hide_all(const berth__replay *r)
{
    const berth__block *b = r->block;
    if (!berth__replay_is_watched(r) || !b->base || r->head.stream)
        return;
    for (size_t i = 0; i < b->piece_count; i++) {
        uint64_t from = (uintptr_t)b->pieces[i].base - (uintptr_t)b->base;
        hide_span(r, from, from + b->pieces[i].bytes);
    }
    if (!b->pieces)
        hide_span(r, 0, b->bytes);
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
static void scope_start(berth__replay *r, berth__planned *planned, berth__block *block, bool strict)
{
    BERTH_DCHECK(block->state == BERTH__BLOCK_RUNNING && block->plan && r == &block->replay,
                 "[R14] the scope has its block");
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
    r->report.separate_bytes = r->plan->sum_bytes;
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
    if (!status)
        status = berth__run_may_open();
    if (status)
        return status;
    berth_plan *plan = berth__planned_choose(planned, &o);
    berth__plan_content *content = NULL;
    status = berth__plan_content_of(plan, &content);
    berth_plan_release(plan);
    if (status)
        return status;
    bool stale = false;
    berth__block *block = NULL;
    status = check_fingerprint(content, &o, &stale);
    if (!status)
        status = berth__block_take(planned, content, &block);
    if (status) {
        berth__plan_content_release(content);
        return status;
    }
    scope_start(&block->replay, planned, block, o.strict);
    block->replay.report.stale = stale;
    status = berth__streams_begin(&block->replay, o.stream, block->plan->range_count != 0);
    if (status) {
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
    BERTH_DCHECK(berth__ledger_is_valid(ledger), "[R3] the ledger knows what is live");
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
    if (!r) {
        berth_report none = BERTH_REPORT_INIT;
        none.status = BERTH_NOT_FOUND; /* nothing of an earlier run is left in it */
        berth__report_give(&none, report);
        return BERTH_NOT_FOUND;
    }
    berth__replay_settle(r);
    berth__count_ended(r);
    BERTH_DCHECK(r->tracked || r->block->ledger.live == 0, "[R3] a run that ends in step leaves nothing");
    BERTH_DCHECK(r->report.from_plan <= r->report.planned,
                 "[R6] no more is served from the plan than it has");
    berth_status status = check_complete(r);
    if (r->block->ledger.live)
        report_stragglers(r);
    r->report.status = status;
    r->report.peak_with_plan_bytes = r->report.block_bytes + r->report.fallback_bytes;
    berth__handed_finish(&r->fallback);
    berth__run_close();
    show_all(r);
    berth__report_give(&r->report, report); /* the block is another scope's as soon as it is given back */
    berth__planned *planned = r->planned;
    berth__block_give(planned, r->block);
    berth__report_give_held(planned, report);
    berth_allocator_release(allocator);
    return status;
}

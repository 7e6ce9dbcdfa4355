/* The wrappers that the suite puts around every source: alone, the first ones in pairs, all in random threes.
 */
#include <stdio.h>
#include <unistd.h>

#include "conformance.h"

static berth_allocator *wrap_forwarding(berth_allocator *inner)
{
    const berth_allocator_ops nothing = {.struct_size = sizeof nothing};
    berth_allocator *a = NULL;
    assert_int_equal(berth_wrapper_create(inner, &nothing, NULL, &a), BERTH_OK);
    return a;
}

static berth_allocator *wrap_tracking_with(berth_allocator *inner, bool track_sizes, uint32_t stack_depth)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = track_sizes;
    options.stack_depth = stack_depth;
    berth_allocator *a = NULL;
    assert_int_equal(berth_tracking_create(inner, &options, &a), BERTH_OK);
    return a;
}

static berth_allocator *wrap_tracking(berth_allocator *inner)
{
    return wrap_tracking_with(inner, true, 0);
}

static berth_allocator *wrap_tracking_totals(berth_allocator *inner)
{
    return wrap_tracking_with(inner, false, 0);
}

static berth_allocator *wrap_tracking_stacks(berth_allocator *inner)
{
    return wrap_tracking_with(inner, true, 4);
}

static berth_allocator *wrap_limit(berth_allocator *inner)
{
    berth_budget *budget = NULL;
    berth_allocator *a = NULL;
    assert_int_equal(berth_budget_create((uint64_t)1 << 40, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(inner, budget, &a), BERTH_OK);
    berth_budget_release(budget);
    return a;
}

static berth_allocator *wrap_retry(berth_allocator *inner)
{
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = 1000; /* what fails here stays so: no reason to wait */
    berth_allocator *a = NULL;
    assert_int_equal(berth_retry_create(inner, &options, &a), BERTH_OK);
    return a;
}

static size_t nothing_to_give(void *context, berth_allocator *inner, size_t size_bytes,
                              const berth_request *request)
{
    (void)context, (void)inner, (void)size_bytes, (void)request;
    return 0;
}

static berth_allocator *wrap_callback(berth_allocator *inner)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_failure_callback_create(inner, nothing_to_give, NULL, &a), BERTH_OK);
    return a;
}

static void ignore_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

static berth_allocator *wrap_event_log(berth_allocator *inner)
{
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = ignore_line;
    berth_allocator *a = NULL;
    assert_int_equal(berth_event_log_create(inner, &options, &a), BERTH_OK);
    return a;
}

static berth_allocator *wrap_trace(berth_allocator *inner)
{
    berth_trace *trace = NULL;
    berth_allocator *a = NULL;
    char path[64];
    snprintf(path, sizeof path, "/tmp/berth-conformance-%d.trace", (int)getpid());
    assert_int_equal(berth_trace_create(path, NULL, &trace), BERTH_OK);
    assert_int_equal(unlink(path), 0); /* mapped, it stays as long as it is needed */
    assert_int_equal(berth_trace_allocator_create(inner, trace, 4, &a), BERTH_OK);
    berth_trace_release(trace);
    return a;
}

static void ignore_report(void *context, const berth_guard_report *report)
{
    (void)context;
    /* The suite frees twice on purpose, but writes only where it may. */
    assert_true(report->fault == BERTH_GUARD_DOUBLE_FREE || report->fault == BERTH_GUARD_BAD_FREE);
}

static berth_allocator *wrap_guard_with(berth_allocator *inner, size_t quarantine_bytes, bool zero_on_free)
{
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.quarantine_bytes = quarantine_bytes;
    options.zero_on_free = zero_on_free;
    options.report = ignore_report;
    berth_allocator *a = NULL;
    berth_status status = berth_guard_create(inner, &options, &a);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED); /* not on host memory: not there */
    return a;
}

static berth_allocator *wrap_guard(berth_allocator *inner)
{
    return wrap_guard_with(inner, 16 << 10, false);
}

static berth_allocator *wrap_guard_zeroing(berth_allocator *inner)
{
    return wrap_guard_with(inner, 0, true);
}

static berth_allocator *wrap_explain(berth_allocator *inner)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_explain_create(inner, &a), BERTH_OK);
    return a;
}

static berth_allocator *wrap_scope_meter(berth_allocator *inner)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_scope_meter_create(inner, &a), BERTH_OK);
    return a;
}

/* Outside scopes: everything passes. */
static berth_allocator *wrap_planned(berth_allocator *inner)
{
    berth_plan *plan = NULL;
    berth_allocator *a = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(inner, plan, &a), BERTH_OK);
    berth_plan_release(plan);
    return a;
}

/* ---- The table: one line each -----------------------------------------------------------------------------
 */

const wrapper wrappers[] = {
    {"forwarding", wrap_forwarding, 0},
    {"tracking", wrap_tracking, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"tracking totals", wrap_tracking_totals, TOTALS_ONLY},
    {"tracking stacks", wrap_tracking_stacks, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"limit", wrap_limit, TOTALS_ONLY},
    {"retry", wrap_retry, 0},
    {"failure callback", wrap_callback, 0},
    {"event log", wrap_event_log, 0},
    {"trace", wrap_trace, 0},
    {"guard", wrap_guard, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"guard zeroing", wrap_guard_zeroing, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"explain", wrap_explain, 0},
    {"scope meter", wrap_scope_meter, 0},
    {"planned", wrap_planned, HIDES_SIZES},
};
const size_t wrapper_count = sizeof wrappers / sizeof wrappers[0];
const size_t paired_wrapper_count = 4;

/* The wrappers that the suite puts around every source, one and two deep. */
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

/* ---- The table: one line each -----------------------------------------------------------------------------
 */

const wrapper wrappers[] = {
    {"forwarding", wrap_forwarding, 0},
    {"tracking", wrap_tracking, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"tracking totals", wrap_tracking_totals, TOTALS_ONLY},
    {"tracking stacks", wrap_tracking_stacks, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
};
const size_t wrapper_count = sizeof wrappers / sizeof wrappers[0];

/* The CPU allocator as users make it: the system source, with a tracker around it where full figures are
 * wanted. */
#include "core/allocator.h"
#include "source/system.h"
#include "wrap/tracking.h"

berth_status berth_cpu_allocator_create(const berth_cpu_options *options, berth_allocator **out)
{
    static const berth_cpu_options defaults = BERTH_CPU_OPTIONS_INIT;
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    if (options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_CPU_OPTIONS_INIT",
                           options->struct_size);
    if (options->stats < BERTH_STATS_OFF || options->stats > BERTH_STATS_FULL)
        return berth__fail(BERTH_INVALID_ARGUMENT, "stats mode %d is not one", (int)options->stats);
    berth_allocator *source = NULL;
    berth_status status = berth__system_create(options, &source);
    if (status || options->stats != BERTH_STATS_FULL) {
        *out = source;
        return status;
    }
    berth_tracking_options tracking = BERTH_TRACKING_OPTIONS_INIT;
    tracking.track_sizes = true;
    tracking.exact_peak = options->exact_peak;
    status = berth_tracking_create(source, &tracking, out);
    if (!status)
        berth__tracking_tell_leaks(*out);
    berth_allocator_release(source);
    return status;
}

berth_status berth_cpu_allocator_set_stats(berth_allocator *a, berth_stats_mode mode)
{
    if (!a || mode < BERTH_STATS_OFF || mode > BERTH_STATS_FULL)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s", a ? "no such stats mode" : "the allocator is NULL");
    if (berth__tracking_show_stats(a, mode != BERTH_STATS_OFF))
        return BERTH_OK;
    if (mode == BERTH_STATS_FULL)
        return berth__fail(BERTH_UNSUPPORTED, "full figures are chosen when the allocator is made");
    if (a->show_stats) {
        a->show_stats(a->self, mode != BERTH_STATS_OFF);
        return BERTH_OK;
    }
    return berth__system_set_stats(a, mode);
}

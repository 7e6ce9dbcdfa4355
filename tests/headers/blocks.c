/* What public headers are made of besides functions, as C and as C++ with every warning that users may have on: the first
 * value of each sized struct, block macros that nest, end on every way out, take options and give a result, the partner of
 * BERTH_NEW, the version. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/berth.h"
#include "berth/problem_file.h"

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    exit(1);
}

static void check_first_values(void)
{
    {
        berth_request value = BERTH_REQUEST_INIT;
        check(value.struct_size == sizeof value, "BERTH_REQUEST_INIT");
    }
    {
        berth_tensor value = BERTH_TENSOR_INIT;
        check(value.struct_size == sizeof value && value.type.lanes == 1, "BERTH_TENSOR_INIT");
    }
    {
        berth_stats value = BERTH_STATS_INIT;
        check(value.struct_size == sizeof value, "BERTH_STATS_INIT");
    }
    {
        berth_block value = BERTH_BLOCK_INIT;
        check(value.struct_size == sizeof value, "BERTH_BLOCK_INIT");
    }
    {
        berth_allocator_ops value = BERTH_ALLOCATOR_OPS_INIT;
        check(value.struct_size == sizeof value, "BERTH_ALLOCATOR_OPS_INIT");
    }
    {
        berth_type value = BERTH_TYPE_INIT;
        check(value.struct_size == sizeof value, "BERTH_TYPE_INIT");
    }
    {
        berth_retry_options value = BERTH_RETRY_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_RETRY_OPTIONS_INIT");
    }
    {
        berth_event_log_options value = BERTH_EVENT_LOG_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_EVENT_LOG_OPTIONS_INIT");
    }
    {
        berth_guard_report value = BERTH_GUARD_REPORT_INIT;
        check(value.struct_size == sizeof value, "BERTH_GUARD_REPORT_INIT");
    }
    {
        berth_guard_options value = BERTH_GUARD_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_GUARD_OPTIONS_INIT");
    }
    {
        berth_device_info value = BERTH_DEVICE_INFO_INIT;
        check(value.struct_size == sizeof value, "BERTH_DEVICE_INFO_INIT");
    }
    {
        berth_host_cache_options value = BERTH_HOST_CACHE_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_HOST_CACHE_OPTIONS_INIT");
    }
    {
        berth_host_use value = BERTH_HOST_USE_INIT;
        check(value.struct_size == sizeof value, "BERTH_HOST_USE_INIT");
    }
    {
        berth_host_cache_figures value = BERTH_HOST_CACHE_FIGURES_INIT;
        check(value.struct_size == sizeof value, "BERTH_HOST_CACHE_FIGURES_INIT");
    }
    {
        berth_plan_allocation value = BERTH_PLAN_ALLOCATION_INIT;
        check(value.struct_size == sizeof value, "BERTH_PLAN_ALLOCATION_INIT");
    }
    {
        berth_plan_fit value = BERTH_PLAN_FIT_INIT;
        check(value.struct_size == sizeof value, "BERTH_PLAN_FIT_INIT");
    }
    {
        berth_plan_cache_stats value = BERTH_PLAN_CACHE_STATS_INIT;
        check(value.struct_size == sizeof value, "BERTH_PLAN_CACHE_STATS_INIT");
    }
    {
        berth_pool_options value = BERTH_POOL_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_POOL_OPTIONS_INIT");
    }
    {
        berth_problem value = BERTH_PROBLEM_INIT;
        check(value.struct_size == sizeof value, "BERTH_PROBLEM_INIT");
    }
    {
        berth_certificate value = BERTH_CERTIFICATE_INIT;
        check(value.struct_size == sizeof value, "BERTH_CERTIFICATE_INIT");
    }
    {
        berth_progress value = BERTH_PROGRESS_INIT;
        check(value.struct_size == sizeof value, "BERTH_PROGRESS_INIT");
    }
    {
        berth_solve_options value = BERTH_SOLVE_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_SOLVE_OPTIONS_INIT");
    }
    {
        berth_verdict value = BERTH_VERDICT_INIT;
        check(value.struct_size == sizeof value, "BERTH_VERDICT_INIT");
    }
    {
        berth_registration value = BERTH_REGISTRATION_INIT;
        check(value.struct_size == sizeof value, "BERTH_REGISTRATION_INIT");
    }
    {
        berth_run_options value = BERTH_RUN_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_RUN_OPTIONS_INIT");
    }
    {
        berth_difference value = BERTH_DIFFERENCE_INIT;
        check(value.struct_size == sizeof value, "BERTH_DIFFERENCE_INIT");
    }
    {
        berth_report value = BERTH_REPORT_INIT;
        check(value.struct_size == sizeof value, "BERTH_REPORT_INIT");
    }
    {
        berth_scope_figures value = BERTH_SCOPE_FIGURES_INIT;
        check(value.struct_size == sizeof value, "BERTH_SCOPE_FIGURES_INIT");
    }
    {
        berth_cpu_options value = BERTH_CPU_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_CPU_OPTIONS_INIT");
    }
    {
        berth_malloc_family value = BERTH_MALLOC_FAMILY_INIT;
        check(value.struct_size == sizeof value, "BERTH_MALLOC_FAMILY_INIT");
    }
    {
        berth_mapped_options value = BERTH_MAPPED_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_MAPPED_OPTIONS_INIT");
    }
    {
        berth_error value = BERTH_ERROR_INIT;
        check(value.struct_size == sizeof value, "BERTH_ERROR_INIT");
    }
    {
        berth_tracking_options value = BERTH_TRACKING_OPTIONS_INIT;
        check(value.struct_size == sizeof value, "BERTH_TRACKING_OPTIONS_INIT");
    }
    {
        berth_tracking_sizes value = BERTH_TRACKING_SIZES_INIT;
        check(value.struct_size == sizeof value, "BERTH_TRACKING_SIZES_INIT");
    }
    {
        berth_leak value = BERTH_LEAK_INIT;
        check(value.struct_size == sizeof value, "BERTH_LEAK_INIT");
    }
}

/* The function's end is not reached: no compiler asks for another return, but gcc without optimisation. */
#if defined(__clang__) || defined(__OPTIMIZE__)
static int return_from_inside(void)
{
    BERTH_SCOPE("outer")
    {
        BERTH_SCOPE("inner")
        {
            return berth_scope_label() && strcmp(berth_scope_label(), "inner") == 0;
        }
    }
}
#else
static int return_from_inside(void)
{
    return 1;
}
#endif

static void check_scopes(void)
{
    check(return_from_inside() == 1, "the innermost label");
    check(!berth_scope_label(), "a return ends both scopes");
    int runs = 0;
    for (int i = 0; i < 3; i++) {
        BERTH_SCOPE("left early")
        {
            runs++;
            if (i == 0)
                continue; /* the block, not the loop around it */
            if (i == 1)
                break;
            runs += 10;
        }
        check(!berth_scope_label(), "break and continue end the scope");
    }
    check(runs == 13, "a block runs once");
    if (runs > 0)
        BERTH_SCOPE("one statement") runs++;
    else
        runs = 0;
    check(runs == 14, "a block is one statement");
}

static void use(berth_allocator *a, size_t count)
{
    double *p = BERTH_NEW(a, double, count);
    check(p != NULL, "BERTH_NEW");
    check(BERTH_DELETE(a, p, count) == BERTH_OK, "BERTH_DELETE");
}

static void check_runs(void)
{
    berth_plan *plan = NULL, *other = NULL;
    berth_allocator *planned = NULL;
    check(berth_plan_create(&plan) == BERTH_OK && berth_plan_create(&other) == BERTH_OK, "plans");
    check(berth_planned_create(berth_cpu_allocator(), plan, &planned) == BERTH_OK, "a planned allocator");
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.plan = other;
    berth_status status = BERTH_INTERNAL, refused = BERTH_OK;
    BERTH_RECORD_WITH(planned, &options, &status)
    {
        berth_log_set(NULL, NULL, BERTH_LOG_NONE);
        BERTH_RECORD_WITH(planned, NULL, &refused) use(planned, 10);
        berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    }
    check(status == BERTH_OK, "the recording's own status");
    check(refused == BERTH_BUSY, "scopes do not nest, and the block says so");
    check(berth_plan_count(other) == 1 && berth_plan_count(plan) == 0, "the plan of the options is recorded");
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    BERTH_VALIDATE_WITH(planned, &options, &difference) use(planned, 11);
    check(difference.status == BERTH_MISMATCH, "another size differs");
    options.strict = true;
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY_WITH(planned, &options, &report)
    {
        void *p = NULL;
        check(berth_allocate(planned, 4000, 64, NULL, &p) == BERTH_MISMATCH, "strict refuses a stranger");
        use(planned, 10);
    }
    check(report.from_plan == 1, "the other comes from the plan");
    BERTH_RECORD(planned) use(planned, 20);
    BERTH_VALIDATE(planned, &difference) use(planned, 20);
    check(difference.status == BERTH_OK, "the short forms too");
    BERTH_REPLAY(planned, &report) use(planned, 20);
    check(report.from_plan == 1 && report.by_fallback == 0, "replay");
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_plan_release(other);
}

int main(void)
{
    check_first_values();
    check_scopes();
    check_runs();
    check(strcmp(berth_version(), BERTH_VERSION) == 0, "the library is the one this was compiled for");
    return 0;
}

/* Stacks from settings, and what the environment says when the library is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/stack.h"
#include "base/words.h"
#include "berth/config.h"
#include "berth/decorators.h"
#include "berth/pool.h"
#include "berth/registry.h"
#include "berth/scope.h"
#include "berth/source.h"
#include "berth/trace.h"
#include "core/environment.h"
#include "wrap/tracking.h"

/* ---- Stacks -------------------------------------------------------------------------------------- */

static bool wants_mapped(const berth__config *config)
{
    return config->huge_pages || config->numa_node >= 0 || config->prefault || config->lock_pages;
}

static berth_status make_source(const berth__config *config, berth_allocator **out)
{
    if (wants_mapped(config)) {
        berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
        options.huge_pages = config->huge_pages != 0;
        options.numa_node = config->numa_node > INT32_MAX ? INT32_MAX : (int32_t)config->numa_node;
        options.prefault = config->prefault != 0;
        options.lock_pages = config->lock_pages != 0;
        return berth_mapped_allocator_create(&options, out);
    }
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    if (!config->pool) /* whose figures are what is asked for */
        options.stats = (berth_stats_mode)config->stats;
    return berth_cpu_allocator_create(&options, out);
}

/* A pool over *a, which is replaced; on failure it is still owned. A pool as it is will do. */
static berth_status add_pool(const berth__config *config, berth_allocator **a)
{
    if (!config->pool || strcmp(berth_allocator_name(*a), "pool") == 0)
        return BERTH_OK;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    options.upstream = *a;
    berth_status status = berth_pool_create(&options, &pool);
    if (status)
        return status;
    if (config->stats == BERTH_STATS_OFF)
        (void)berth_cpu_allocator_set_stats(pool, BERTH_STATS_OFF); /* any pool can */
    berth_allocator_release(*a);
    *a = pool;
    return BERTH_OK;
}

/* Full figures for *a, which is replaced; on failure it is still owned. */
static berth_status add_tracker(berth_allocator **a)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    berth_allocator *tracker = NULL;
    options.track_sizes = true;
    berth_status status = berth_tracking_create(*a, &options, &tracker);
    if (status)
        return status;
    berth__tracking_tell_leaks(tracker);
    berth_allocator_release(*a);
    *a = tracker;
    return BERTH_OK;
}

static berth_status add_guard(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.quarantine_bytes = (size_t)config->quarantine_bytes;
    options.zero_on_free = config->zero_on_free != 0;
    return berth_guard_create(inner, &options, out);
}

static berth_status add_scopes(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    (void)config;
    return berth_scope_meter_create(inner, out);
}

static berth_status add_limit(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    berth_budget *budget = NULL;
    berth_status status = berth_budget_create((uint64_t)config->limit_bytes, &budget);
    if (!status)
        status = berth_limit_create(inner, budget, out);
    berth_budget_release(budget);
    return status;
}

static berth_status add_retry(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = (uint64_t)config->retry_ms * 1000000u;
    return berth_retry_create(inner, &options, out);
}

static berth_status add_event_log(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.path = config->event_log;
    return berth_event_log_create(inner, &options, out);
}

static berth_status add_trace(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    berth_trace *trace = NULL;
    berth_status status = berth_trace_create(config->trace, NULL, &trace);
    if (!status)
        status = berth_trace_allocator_create(inner, trace, BERTH__STACK_DEPTH, out);
    berth_trace_release(trace);
    return status;
}

static berth_status add_explain(const berth__config *config, berth_allocator *inner, berth_allocator **out)
{
    (void)config;
    return berth_explain_create(inner, out);
}

/* Puts the decorators that the settings ask for around *a, which is replaced; on failure *a is still owned. */
static berth_status configured_decorate(const berth__config *config, berth_allocator **a)
{
    const struct {
        bool wanted;
        berth_status (*add)(const berth__config *config, berth_allocator *inner, berth_allocator **out);
    } layers[] = {
        {config->guard || config->zero_on_free, add_guard},
        {config->scopes != 0, add_scopes},
        {config->limit_bytes != 0, add_limit},
        {config->retry_ms != 0, add_retry},
        {config->event_log[0] != 0, add_event_log},
        {config->trace[0] != 0, add_trace},
        {config->explain != 0, add_explain},
    };
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++) {
        berth_allocator *outer = NULL;
        berth_status status = layers[i].wanted ? layers[i].add(config, *a, &outer) : BERTH_OK;
        if (status)
            return status;
        if (outer) {
            berth_allocator_release(*a);
            *a = outer;
        }
    }
    return BERTH_OK;
}

berth_status berth_stack_create(const char *settings, berth_allocator *inner, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !settings)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "settings" : "out");
    berth__config config;
    berth_status status = berth__config_read(settings, &config);
    if (status)
        return status;
    berth_allocator *a = berth_allocator_retain(inner);
    bool tracked = !a && !wants_mapped(&config) && !config.pool; /* that source brings its own tracker */
    if (!a)
        status = make_source(&config, &a);
    if (!status)
        status = add_pool(&config, &a);
    if (!status && config.stats == BERTH_STATS_FULL && !tracked)
        status = add_tracker(&a);
    if (!status)
        status = configured_decorate(&config, &a);
    if (status) {
        berth_allocator_release(a);
        return status;
    }
    *out = a;
    return BERTH_OK;
}

berth_status berth_config_check(const char *settings)
{
    berth__config config;
    if (!settings)
        return berth__fail(BERTH_INVALID_ARGUMENT, "settings is NULL");
    return berth__config_read(settings, &config);
}

berth_status berth_config_visit(berth_setting_fn visit, void *context)
{
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no function to show the settings to");
    for (size_t i = 0; i < berth__setting_count; i++)
        if (!visit(context, berth__settings[i].key, berth__settings[i].values, berth__settings[i].meaning))
            break;
    return BERTH_OK;
}

/* ---- What the environment asks for ---------------------------------------------------------------- */

static berth__config from_environment;       /* written before main */
static berth_allocator *environment_tracker; /* where stats=full; written by the factory, which runs once */

/* The best of the others: the one that serves the host without the variable. */
struct best {
    char name[64];
    int32_t priority;
    bool found;
};

static const char own_name[] = "BERTH_CONF";

static bool see_best(void *context, const berth_registration *registration)
{
    struct best *best = context;
    if (!(registration->attributes & BERTH_ON_HOST) || strcmp(registration->name, own_name) == 0)
        return true;
    snprintf(best->name, sizeof best->name, "%s", registration->name);
    best->priority = registration->priority;
    best->found = strcmp(best->name, registration->name) == 0;
    return !best->found;
}

static berth_status find_inner(berth_allocator **out)
{
    struct best best = {.found = false};
    if (berth_registry_visit(see_best, &best) == BERTH_OK && best.found &&
        berth_registry_get(best.name, best.priority, out) == BERTH_OK) {
        berth_allocator_retain(*out);
        return BERTH_OK;
    }
    return make_source(&from_environment, out);
}

/* Settings decorate what is there. Only pages of another kind, and figures that are off, need a source of their
 * own. */
static berth_status make_environment(void *context, berth_allocator **out)
{
    (void)context;
    const berth__config *config = &from_environment;
    berth_allocator *a = NULL;
    bool own = wants_mapped(config) || config->stats == BERTH_STATS_OFF;
    berth_status status = own ? make_source(config, &a) : find_inner(&a);
    if (!status)
        status = add_pool(config, &a);
    if (!status && config->stats == BERTH_STATS_FULL)
        status = add_tracker(&a);
    berth_allocator *tracker = config->stats == BERTH_STATS_FULL ? a : NULL;
    if (!status)
        status = configured_decorate(config, &a);
    if (status) {
        berth_allocator_release(a);
        return status;
    }
    environment_tracker = tracker;
    *out = a;
    return BERTH_OK;
}

/* ---- The table at exit ---------------------------------------------------------------------------- */

static bool show_allocator(void *context, const berth_registration *registration)
{
    (void)context;
    berth_stats stats = {.struct_size = sizeof stats};
    berth_allocator *a = registration->allocator; /* NULL: its factory never ran */
    if (a && berth_stats_get(a, &stats) == BERTH_OK)
        fprintf(stderr, "berth: %-16s %12llu %16llu %16llu %16llu %9llu\n", registration->name,
                (unsigned long long)stats.num_allocs, (unsigned long long)stats.bytes_in_use,
                (unsigned long long)stats.max_bytes_in_use, (unsigned long long)stats.total_bytes,
                (unsigned long long)stats.num_failures);
    return true;
}

static bool show_label(void *context, const berth_scope_figures *figures)
{
    bool *any = context;
    if (!*any)
        fprintf(stderr, "berth: %-28s %16s %16s %16s %9s\n", "label", "in use", "peak", "scope peak",
                "scopes");
    *any = true;
    fprintf(stderr, "berth: %-28s %16llu %16llu %16llu %9llu\n",
            *figures->label ? figures->label : "(no label)", (unsigned long long)figures->bytes_in_use,
            (unsigned long long)figures->max_bytes_in_use, (unsigned long long)figures->max_scope_bytes,
            (unsigned long long)figures->num_scopes);
    return true;
}

static bool show_leak(void *context, const berth_leak *leak)
{
    (void)context;
    fprintf(stderr, "berth: live: %s at %p, allocation %llu%s%s\n", BERTH__SIZE(leak->size_bytes),
            leak->address, (unsigned long long)leak->allocation_id, leak->label ? ", " : "",
            leak->label ? leak->label : "");
    return true;
}

static void show_stats(void)
{
    fprintf(stderr, "berth: %-16s %12s %16s %16s %16s %9s\n", "allocator", "allocations", "in use", "peak",
            "total", "failures");
    berth_registry_visit(show_allocator, NULL);
    bool any = false;
    berth_scope_visit(show_label, &any);
    if (environment_tracker)
        berth_tracking_visit_leaks(environment_tracker, show_leak, &any);
}

/* ---- The environment ------------------------------------------------------------------------------ */

/* Above everything that programs usually register: who sets the variable means it. */
enum { PRIORITY = 1000000 };

static void configured_complain(const char *variable, const char *value)
{
    fprintf(stderr, "berth: error: %s=%s is ignored: %s\n", variable, value, berth_last_error()->message);
}

static void apply_settings(const char *settings)
{
    berth_status status = berth__config_read(settings, &from_environment);
    if (!status) {
        bool tracks = from_environment.stats != BERTH_STATS_OFF || wants_mapped(&from_environment) ||
                      from_environment.pool;
        berth_registration registration = {
            .struct_size = sizeof registration,
            .name = own_name,
            .priority = PRIORITY,
            .attributes = BERTH_ON_HOST | (tracks ? BERTH_TRACK_SIZES : 0),
            .factory = make_environment,
            .file = __FILE__,
            .line = __LINE__,
        };
        status = berth_registry_add(&registration);
    }
    if (status)
        configured_complain("BERTH_CONF", settings);
}

__attribute__((constructor(200))) static void read_environment(void)
{
    const char *settings = getenv("BERTH_CONF"), *show = getenv("BERTH_SHOW_STATS");
    if (settings && *settings)
        apply_settings(settings);
    if (show && strcmp(show, "1") == 0)
        atexit(show_stats);
    berth_clear_last_error();
}

const bool berth__environment_is_read = true;

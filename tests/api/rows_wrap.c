/* Rows of decorators.h, config.h, registry.h, scope.h, pool.h and host_cache.h. */
#include "api.h"

/* ---- Budgets ----------------------------------------------------------------------------------------- */

static berth_budget *pick_budget(void)
{
    berth_budget *budget = NULL;
    if (api_bool())
        api_answer(berth_budget_create(1000, &budget));
    return budget;
}

ROW(berth_budget_create)
{
    GIVES(berth_budget_create(api_size(), OUT(budget)), berth_budget_release(api_out.budget));
}

ROW(berth_budget_retain)
{
    berth_budget *budget = pick_budget();
    api_check(berth_budget_retain(budget) == budget, "retain answers its argument");
    berth_budget_release(budget);
    berth_budget_release(budget);
}

ROW(berth_budget_release)
{
    berth_budget_release(pick_budget());
}

ROW(berth_budget_set_limit)
{
    berth_budget *budget = pick_budget();
    api_answer(berth_budget_set_limit(budget, api_size()));
    berth_budget_release(budget);
}

ROW(berth_budget_limit)
{
    berth_budget *budget = pick_budget();
    (void)berth_budget_limit(budget);
    berth_budget_release(budget);
}

ROW(berth_budget_in_use)
{
    berth_budget *budget = pick_budget();
    (void)berth_budget_in_use(budget);
    berth_budget_release(budget);
}

/* ---- Decorators -------------------------------------------------------------------------------------- */

ROW(berth_limit_create)
{
    berth_budget *budget = pick_budget();
    GIVES(berth_limit_create(api_allocator(), budget, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
    berth_budget_release(budget);
}

ROW(berth_retry_create)
{
    berth_retry_options options = {api_struct_size(sizeof options), api_size()};
    GIVES(berth_retry_create(api_allocator(), api_bool() ? &options : NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

static size_t nothing_freed(void *context, berth_allocator *inner, size_t size_bytes,
                            const berth_request *request)
{
    (void)context, (void)inner, (void)size_bytes, (void)request;
    return 0;
}

ROW(berth_failure_callback_create)
{
    GIVES(berth_failure_callback_create(api_allocator(), api_bool() ? nothing_freed : NULL, NULL,
                                        OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

static void drop_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

ROW(berth_event_log_create)
{
    berth_event_log_options options = {api_struct_size(sizeof options), api_path(),
                                       api_bool() ? drop_line : NULL, NULL};
    GIVES(berth_event_log_create(api_allocator(), api_bool() ? &options : NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_guard_create)
{
    berth_guard_options options = {
        api_struct_size(sizeof options), api_size(), api_size(), api_bool(), NULL, NULL};
    void *p;
    GIVES(berth_guard_create(api_bool() ? api_system : NULL, api_bool() ? &options : NULL, OUT(allocator)), {
        if (berth_allocate(api_out.allocator, api_size(), 64, NULL, &p) == BERTH_OK)
            api_answer(berth_deallocate(api_out.allocator, p, 0, NULL));
        berth_allocator_release(api_out.allocator);
    });
}

static size_t *pick_count(void)
{
    static size_t count;
    return api_bool() ? &count : NULL;
}

ROW(berth_guard_check)
{
    api_answer(berth_guard_check(api_allocator(), pick_count()));
}

ROW(berth_explain)
{
    static const size_t rooms[] = {0, 1, 7, 256};
    char *text = api_bool() ? api_memory : NULL;
    /* More room than there is cannot be told. */
    size_t room = text ? PICK(rooms) : api_size();
    api_answer(berth_explain(api_allocator(), api_size(), api_request(), text, room, pick_count()));
}

ROW(berth_explain_create)
{
    GIVES(berth_explain_create(api_allocator(), OUT(allocator)), berth_allocator_release(api_out.allocator));
}

/* ---- Settings ---------------------------------------------------------------------------------------- */

static const char *pick_settings(void)
{
    static const char *const settings[] = {
        NULL, "",         ";;;",          "limit", "limit=",     "limit=99999999999999999999T", "limit=-1",
        "=",  "stats=??", "guard=yes;=;", "\xff",  "stats=full", "limit=1K;limit=1K",           "nothing=1"};
    return PICK(settings);
}

ROW(berth_stack_create)
{
    GIVES(berth_stack_create(pick_settings(), api_allocator(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_config_check)
{
    api_answer(berth_config_check(pick_settings()));
}

static bool see_setting(void *context, const char *key, const char *values, const char *meaning)
{
    (void)context, (void)values, (void)meaning;
    return key == NULL;
}

ROW(berth_config_visit)
{
    api_answer(berth_config_visit(api_bool() ? see_setting : NULL, NULL));
}

/* ---- The registry ------------------------------------------------------------------------------------ */

static const char *pick_name(void)
{
    static const char *const names[] = {NULL, "", "no such name", "\xff\xfe"};
    return PICK(names);
}

static berth_status refuse_to_make(void *context, berth_allocator **out)
{
    (void)context;
    *out = NULL;
    return BERTH_UNSUPPORTED;
}

ROW(berth_registry_add)
{
    berth_registration one = {.struct_size = api_struct_size(sizeof one), .name = pick_name()};
    one.priority = api_enum();
    one.allocator = api_bool() ? api_system : NULL;
    one.factory = api_bool() ? refuse_to_make : NULL;
    one.file = api_bool() ? __FILE__ : NULL;
    one.line = api_enum();
    berth_status status = berth_registry_add(api_bool() ? &one : NULL);
    api_answer(status);
    if (status == BERTH_OK)
        api_answer(berth_registry_remove(one.name, one.priority));
}

ROW(berth_registry_add_factory)
{
    const char *name = pick_name();
    int32_t priority = api_enum();
    berth_status status =
        berth_registry_add_factory(name, priority, UINT32_MAX, api_bool() ? refuse_to_make : NULL, NULL,
                                   api_bool() ? __FILE__ : NULL, api_enum());
    api_answer(status);
    if (status == BERTH_OK)
        api_answer(berth_registry_remove(name, priority));
}

ROW(berth_registry_remove)
{
    api_answer(berth_registry_remove(pick_name(), api_enum()));
}

ROW(berth_registry_get)
{
    GIVES(berth_registry_get(pick_name(), api_enum(), OUT(allocator)), (void)0);
}

ROW(berth_registry_best)
{
    GIVES(berth_registry_best(OUT(allocator)), (void)0);
}

ROW(berth_registry_best_for)
{
    static const berth_attributes attributes[] = {0, BERTH_ON_HOST, 1 << 12, BERTH_DEVICE_BITS, UINT32_MAX};
    GIVES(berth_registry_best_for(PICK(attributes), OUT(allocator)), (void)0);
}

static bool see_registration(void *context, const berth_registration *registration)
{
    (void)context;
    return registration->name == NULL;
}

ROW(berth_registry_visit)
{
    api_answer(berth_registry_visit(api_bool() ? see_registration : NULL, NULL));
}

/* ---- Scopes ------------------------------------------------------------------------------------------ */

static const char *pick_label(void)
{
    static const char *const labels[] = {NULL, "", "label"};
    return PICK(labels);
}

ROW(berth_scope_begin)
{
    berth_scope scope;
    const char *label = pick_label();
    berth_scope *place = api_bool() ? &scope : NULL;
    berth_scope_begin(place, label);
    berth_scope_end(place);
}

ROW(berth_scope_end)
{
    berth_scope never = {NULL, NULL, 0, 0, 0};
    berth_scope_end(api_bool() ? &never : NULL);
}

ROW(berth_scope_label)
{
    api_check(berth_scope_label() == NULL, "no scope is open");
}

ROW(berth_scope_peak_bytes)
{
    berth_scope zero = {NULL, NULL, 0, 0, 0};
    (void)berth_scope_peak_bytes(api_bool() ? &zero : NULL);
}

ROW(berth_scope_held_bytes)
{
    berth_scope zero = {NULL, NULL, 0, 0, 0};
    (void)berth_scope_held_bytes(api_bool() ? &zero : NULL);
}

ROW(berth_scope_meter_create)
{
    GIVES(berth_scope_meter_create(api_allocator(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

static bool see_scope(void *context, const berth_scope_figures *figures)
{
    (void)context;
    return figures->label == NULL;
}

ROW(berth_scope_visit)
{
    api_answer(berth_scope_visit(api_bool() ? see_scope : NULL, NULL));
}

ROW(berth_scope_visit_threads)
{
    api_answer(berth_scope_visit_threads(api_bool() ? see_scope : NULL, NULL));
}

ROW(berth_scope_thread_bytes)
{
    uint64_t held, peak;
    berth_scope_thread_bytes(api_bool() ? &held : NULL, api_bool() ? &peak : NULL);
}

ROW(berth_scope_clear)
{
    berth_scope_clear();
}

/* ---- The pool ---------------------------------------------------------------------------------------- */

static double pick_share(void)
{
    static const double shares[] = {0.0, 0.125, -1.0, 1e308, __builtin_nan("")};
    return PICK(shares);
}

ROW(berth_pool_create)
{
    static const size_t bytes[] = {0, 1, (size_t)1 << 62, SIZE_MAX};
    berth_pool_options options = {.struct_size = api_struct_size(sizeof options), .device = api_device()};
    options.memory_kind = (berth_memory_kind)api_pick(5);
    options.slack = pick_share();
    options.reserve_bytes = PICK(bytes);
    options.segment_bytes = PICK(bytes);
    void *p;
    GIVES(berth_pool_create(api_bool() ? &options : NULL, OUT(allocator)), {
        if (berth_allocate(api_out.allocator, 100, 64, NULL, &p) == BERTH_OK)
            api_answer(berth_deallocate(api_out.allocator, p, 0, NULL));
        berth_allocator_release(api_out.allocator);
    });
}

static void drop_text(void *context, const char *line)
{
    (void)context, (void)line;
}

ROW(berth_pool_describe)
{
    api_answer(berth_pool_describe(api_allocator(), api_size(), api_bool() ? drop_text : NULL, NULL));
}

ROW(berth_pool_register)
{
    api_answer(berth_pool_register());
}

/* ---- The host cache ---------------------------------------------------------------------------------- */

ROW(berth_host_cache_create)
{
    static const uint64_t limits[] = {0, 1, UINT64_MAX};
    berth_host_cache_options options = {.struct_size = api_struct_size(sizeof options),
                                        .device = api_device()};
    options.max_waste = pick_share();
    options.soft_limit_bytes = PICK(limits);
    options.hard_limit_bytes = PICK(limits);
    options.name = pick_label();
    void *p;
    GIVES(berth_host_cache_create(api_bool() ? &options : NULL, OUT(allocator)), {
        if (berth_allocate(api_out.allocator, 100, 64, NULL, &p) == BERTH_OK)
            api_answer(berth_deallocate(api_out.allocator, p, 0, NULL));
        berth_allocator_release(api_out.allocator);
    });
}

static berth_host_handle pick_handle(void)
{
    static const berth_host_handle handles[] = {0, 1, 1 << 12, UINT64_MAX / 2, UINT64_MAX};
    return PICK(handles);
}

ROW(berth_host_cache_allocate)
{
    berth_allocator *a = api_allocator();
    berth_host_handle handle;
    GIVES(berth_host_cache_allocate(a, api_size(), api_alignment(), api_request(), OUT(block),
                                    api_bool() ? &handle : NULL),
          api_answer(berth_deallocate(a, api_out.block, 0, NULL)));
}

ROW(berth_host_cache_free)
{
    berth_allocator *a = api_allocator();
    void *p = api_pointer(a);
    api_answer(berth_host_cache_free(a, p, pick_handle(), api_stream()));
}

ROW(berth_host_cache_record_use)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_host_cache_record_use(a, api_pointer(a), pick_handle(), api_stream()));
}

ROW(berth_host_cache_copy)
{
    char *to = api_bool() ? api_memory : NULL, *from = api_bool() ? api_memory + 65 : NULL;
    berth_stream *stream = api_stream();
    size_t size = to && from ? 31 : api_size();
    api_answer(berth_host_cache_copy(api_allocator(), to, from, size, stream, api_bool()));
    if (stream)
        berth_stream_synchronize(stream);
}

ROW(berth_host_cache_collect)
{
    api_answer(berth_host_cache_collect(api_allocator(), pick_count()));
}

ROW(berth_host_cache_empty)
{
    api_answer(berth_host_cache_empty(api_allocator(), pick_count()));
}

ROW(berth_host_cache_set_limits)
{
    api_answer(berth_host_cache_set_limits(api_allocator(), api_size(), api_size()));
}

static bool see_use(void *context, const berth_host_use *use)
{
    (void)context;
    return use->passed;
}

ROW(berth_host_cache_explain)
{
    berth_allocator *a = api_allocator();
    berth_block_state state;
    api_answer(berth_host_cache_explain(a, api_pointer(a), api_size(), api_bool() ? &state : NULL,
                                        api_bool() ? see_use : NULL, NULL));
}

ROW(berth_host_cache_figures_get)
{
    berth_host_cache_figures figures = {.struct_size = api_struct_size(sizeof figures)};
    api_answer(berth_host_cache_figures_get(api_allocator(), api_bool() ? &figures : NULL));
}

ROW(berth_host_cache_block_size)
{
    (void)berth_host_cache_block_size(pick_share(), api_size());
}

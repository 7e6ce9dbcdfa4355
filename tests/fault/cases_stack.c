/* The fault sweep over the sources for particular needs and the decorators. */
#include <stdio.h>
#include <unistd.h>

#include "fault.h"

static void undo_create(struct fault *f)
{
    berth_allocator_release(f->result);
}

static void release_a(struct fault *f)
{
    berth_allocator_release(f->a);
    berth_budget_release(f->more[0]);
}

static void set_up_system(struct fault *f)
{
    assert_int_equal(berth_cpu_allocator_create(NULL, &f->a), BERTH_OK);
}

/* ---- Making them ------------------------------------------------------------------------------------------
 */

static berth_status run_adapter_create(struct fault *f)
{
    const berth_malloc_family family = {
        .struct_size = sizeof family, .name = "c heap", .malloc = malloc, .free = free};
    return berth_adapter_create(&family, (berth_allocator **)&f->result);
}

static berth_status run_dry_run_create(struct fault *f)
{
    return berth_dry_run_allocator_create(1 << 20, (berth_allocator **)&f->result);
}

static berth_status run_mapped_create(struct fault *f)
{
    return berth_mapped_allocator_create(NULL, (berth_allocator **)&f->result);
}

static berth_status run_budget_create(struct fault *f)
{
    return berth_budget_create(1 << 20, (berth_budget **)&f->result);
}

static void undo_budget_create(struct fault *f)
{
    berth_budget_release(f->result);
}

static void set_up_budget(struct fault *f)
{
    set_up_system(f);
    assert_int_equal(berth_budget_create(1 << 20, (berth_budget **)&f->more[0]), BERTH_OK);
}

static berth_status run_limit_create(struct fault *f)
{
    return berth_limit_create(f->a, f->more[0], (berth_allocator **)&f->result);
}

static berth_status run_retry_create(struct fault *f)
{
    return berth_retry_create(f->a, NULL, (berth_allocator **)&f->result);
}

static berth_status run_callback_create(struct fault *f)
{
    return berth_failure_callback_create(f->a, NULL, NULL, (berth_allocator **)&f->result);
}

static void ignore_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

static berth_status run_event_log_create(struct fault *f)
{
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = ignore_line;
    return berth_event_log_create(f->a, &options, (berth_allocator **)&f->result);
}

static berth_status run_guard_create(struct fault *f)
{
    return berth_guard_create(f->a, NULL, (berth_allocator **)&f->result);
}

static berth_status run_explain_create(struct fault *f)
{
    return berth_explain_create(f->a, (berth_allocator **)&f->result);
}

static berth_status run_scope_meter_create(struct fault *f)
{
    return berth_scope_meter_create(f->a, (berth_allocator **)&f->result);
}

/* ---- Using them: `set_up` puts the subject into f->a
 * ------------------------------------------------------- */

/* `run` makes the decorator around what is in f->a, which then holds the decorator. */
static void put_on(struct fault *f, berth_status (*run)(struct fault *f))
{
    assert_int_equal(run(f), BERTH_OK);
    berth_allocator_release(f->a);
    f->a = f->result;
}

static void make(struct fault *f, berth_status (*run)(struct fault *f))
{
    assert_int_equal(run(f), BERTH_OK);
    f->a = f->result;
}

static void set_up_adapter(struct fault *f)
{
    make(f, run_adapter_create);
}

static void set_up_dry_run(struct fault *f)
{
    make(f, run_dry_run_create);
}

static void set_up_mapped(struct fault *f)
{
    make(f, run_mapped_create);
}

static void set_up_limit(struct fault *f)
{
    set_up_budget(f);
    put_on(f, run_limit_create);
}

static void set_up_limit_over_dry_run(struct fault *f)
{
    set_up_dry_run(f);
    assert_int_equal(berth_budget_create(1 << 20, (berth_budget **)&f->more[0]), BERTH_OK);
    put_on(f, run_limit_create);
}

static void set_up_retry(struct fault *f)
{
    set_up_system(f);
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = 1000;
    assert_int_equal(berth_retry_create(f->a, &options, (berth_allocator **)&f->result), BERTH_OK);
    berth_allocator_release(f->a);
    f->a = f->result;
}

static void set_up_callback(struct fault *f)
{
    set_up_system(f);
    put_on(f, run_callback_create);
}

static void set_up_event_log(struct fault *f)
{
    set_up_system(f);
    put_on(f, run_event_log_create);
}

static void set_up_guard(struct fault *f)
{
    set_up_system(f);
    put_on(f, run_guard_create);
}

static void hear_nothing(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

static void set_up_explain(struct fault *f)
{
    berth_log_set(hear_nothing, NULL, BERTH_LOG_WARNING);
    set_up_guard(f);
    put_on(f, run_explain_create);
}

static void set_up_scope_meter(struct fault *f)
{
    set_up_system(f);
    put_on(f, run_scope_meter_create);
}

static void set_up_scope_meter_over_guard(struct fault *f)
{
    set_up_guard(f);
    put_on(f, run_scope_meter_create);
}

static berth_status run_allocate(struct fault *f)
{
    f->result = NULL;
    berth_status status = berth_allocate(f->a, 1000, 64, NULL, &f->result);
    assert_int_equal(f->result != NULL, status == BERTH_OK);
    return status;
}

static void undo_allocate(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->result, 0, NULL), BERTH_OK);
}

static void set_up_guarded_block(struct fault *f)
{
    set_up_guard(f);
    assert_int_equal(berth_allocate(f->a, 100, 64, NULL, &f->more[1]), BERTH_OK);
}

static void tear_down_block(struct fault *f)
{
    (void)berth_deallocate(f->a, f->more[1], 0, NULL);
    berth_trim(f->a, 0, NULL);
    release_a(f);
}

static berth_status run_guard_check(struct fault *f)
{
    return berth_guard_check(f->a, NULL);
}

static berth_status run_free(struct fault *f)
{
    return berth_deallocate(f->a, f->more[1], 0, NULL);
}

static bool see(void *context, const berth_block *block)
{
    (void)context, (void)block;
    return true;
}

static berth_status run_snapshot(struct fault *f)
{
    return berth_snapshot(f->a, see, NULL);
}

static berth_status run_snapshot_write(struct fault *f)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/berth-fault-%d.trace", (int)getpid());
    berth_status status = berth_snapshot_write(f->a, path);
    unlink(path);
    return status;
}

static berth_status run_explain(struct fault *f)
{
    char text[2048];
    return berth_explain(f->a, 1 << 20, NULL, text, sizeof text, NULL);
}

static const fault_case cases[] = {
    {"berth_adapter_create", NULL, run_adapter_create, undo_create, NULL},
    {"berth_dry_run_allocator_create", NULL, run_dry_run_create, undo_create, NULL},
    {"berth_mapped_allocator_create", NULL, run_mapped_create, undo_create, NULL},
    {"berth_budget_create", NULL, run_budget_create, undo_budget_create, NULL},
    {"berth_limit_create", set_up_budget, run_limit_create, undo_create, release_a},
    {"berth_retry_create", set_up_system, run_retry_create, undo_create, release_a},
    {"berth_failure_callback_create", set_up_system, run_callback_create, undo_create, release_a},
    {"berth_event_log_create", set_up_system, run_event_log_create, undo_create, release_a},
    {"berth_guard_create", set_up_system, run_guard_create, undo_create, release_a},
    {"berth_explain_create", set_up_system, run_explain_create, undo_create, release_a},
    {"berth_scope_meter_create", set_up_system, run_scope_meter_create, undo_create, release_a},
    {"berth_scope_meter_create, guard", set_up_guard, run_scope_meter_create, undo_create, release_a},
    {"berth_allocate, adapter", set_up_adapter, run_allocate, undo_allocate, release_a},
    {"berth_allocate, dry run", set_up_dry_run, run_allocate, undo_allocate, release_a},
    {"berth_allocate, mapped", set_up_mapped, run_allocate, undo_allocate, release_a},
    {"berth_allocate, limit", set_up_limit, run_allocate, undo_allocate, release_a},
    {"berth_allocate, limit over dry run", set_up_limit_over_dry_run, run_allocate, undo_allocate, release_a},
    {"berth_allocate, retry", set_up_retry, run_allocate, undo_allocate, release_a},
    {"berth_allocate, failure callback", set_up_callback, run_allocate, undo_allocate, release_a},
    {"berth_allocate, event log", set_up_event_log, run_allocate, undo_allocate, release_a},
    {"berth_allocate, guard", set_up_guard, run_allocate, undo_allocate, release_a},
    {"berth_allocate, explain", set_up_explain, run_allocate, undo_allocate, release_a},
    {"berth_allocate, scope meter", set_up_scope_meter, run_allocate, undo_allocate, release_a},
    {"berth_allocate, scope meter over guard", set_up_scope_meter_over_guard, run_allocate, undo_allocate,
     release_a},
    {"berth_deallocate, guard", set_up_guarded_block, run_free, NULL, release_a},
    {"berth_guard_check", set_up_guarded_block, run_guard_check, NULL, tear_down_block},
    {"berth_snapshot, guard", set_up_guarded_block, run_snapshot, NULL, tear_down_block},
    {"berth_snapshot_write, guard", set_up_guarded_block, run_snapshot_write, NULL, tear_down_block},
    {"berth_explain", set_up_guarded_block, run_explain, NULL, tear_down_block},
};

FAULT_MAIN(cases)

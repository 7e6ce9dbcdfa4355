/* The fault sweep over allocators: sources, wrappers, tracking, typed helpers, the registry. */
#include "fault.h"

static void undo_create(struct fault *f)
{
    berth_allocator_release(f->result);
}

static void release_a(struct fault *f)
{
    berth_allocator_release(f->a);
}

/* ---- Making allocators -----------------------------------------------------------------------------------
 */

static berth_status run_cpu_create(struct fault *f)
{
    return berth_cpu_allocator_create(NULL, (berth_allocator **)&f->result);
}

static berth_status run_cpu_create_full(struct fault *f)
{
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = BERTH_STATS_FULL;
    return berth_cpu_allocator_create(&options, (berth_allocator **)&f->result);
}

static berth_status run_fixed_create(struct fault *f)
{
    static char region[4096];
    return berth_fixed_allocator_create(region, sizeof region, (berth_allocator **)&f->result);
}

static berth_status user_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)self, (void)alignment, (void)request;
    *out = malloc(size_bytes);
    return *out ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status user_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes, (void)stream;
    free(p);
    return BERTH_OK;
}

static void user_destroy(void *self)
{
    (void)self;
}

static berth_status run_allocator_create(struct fault *f)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = user_allocate,
                                     .deallocate = user_deallocate,
                                     .destroy = user_destroy};
    return berth_allocator_create(&ops, NULL, (berth_allocator **)&f->result);
}

static void set_up_system(struct fault *f)
{
    assert_int_equal(berth_cpu_allocator_create(NULL, &f->a), BERTH_OK);
}

static berth_status run_wrapper_create(struct fault *f)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops};
    return berth_wrapper_create(f->a, &ops, NULL, (berth_allocator **)&f->result);
}

static berth_status run_tracking_create(struct fault *f)
{
    return berth_tracking_create(f->a, NULL, (berth_allocator **)&f->result);
}

/* ---- Using them ------------------------------------------------------------------------------------------
 */

static void set_up_full(struct fault *f)
{
    assert_int_equal(run_cpu_create_full(f), BERTH_OK);
    f->a = f->result;
    f->result = NULL;
}

/* Over a source of its own: the built-in one keeps what its meter grew. */
static void set_up_tracker(struct fault *f, bool track_sizes, uint32_t stack_depth)
{
    berth_allocator *inner = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = track_sizes;
    options.stack_depth = stack_depth;
    assert_int_equal(berth_cpu_allocator_create(NULL, &inner), BERTH_OK);
    assert_int_equal(berth_tracking_create(inner, &options, &f->a), BERTH_OK);
    berth_allocator_release(inner);
}

static void set_up_stacks(struct fault *f)
{
    set_up_tracker(f, true, 3);
}

static void set_up_totals(struct fault *f)
{
    set_up_tracker(f, false, 0);
}

static berth_status run_allocate(struct fault *f)
{
    return berth_allocate(f->a, 100, 64, NULL, &f->result);
}

static void undo_allocate(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->result, 0, NULL), BERTH_OK);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(f->a, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.num_allocs, 1);
}

static void undo_allocate_on_shared(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->result, 0, NULL), BERTH_OK);
}

static void set_up_block(struct fault *f)
{
    set_up_full(f);
    assert_int_equal(berth_allocate(f->a, 100, 64, NULL, &f->more[0]), BERTH_OK);
}

static void set_up_many(struct fault *f)
{
    set_up_full(f);
    f->more[1] = calloc(500, sizeof(void *));
    for (int i = 0; i < 500; i++)
        assert_int_equal(berth_allocate(f->a, 10, 64, NULL, &((void **)f->more[1])[i]), BERTH_OK);
}

static void tear_down_many(struct fault *f)
{
    for (int i = 0; i < 500; i++)
        assert_int_equal(berth_deallocate(f->a, ((void **)f->more[1])[i], 0, NULL), BERTH_OK);
    free(f->more[1]);
    berth_allocator_release(f->a);
}

static berth_status run_deallocate(struct fault *f)
{
    return berth_deallocate(f->a, f->more[0], 100, NULL);
}

static berth_status run_reallocate(struct fault *f)
{
    return berth_reallocate(f->a, f->more[0], 100, 5000, 64, NULL, &f->more[0]);
}

/* A failed reallocation leaves NULL in its result, so the old block is kept beside it. */
static void set_up_reallocate(struct fault *f)
{
    set_up_block(f);
    f->more[1] = f->more[0];
}

static void undo_reallocate(struct fault *f)
{
    f->more[1] = f->more[0];
}

static void tear_down_reallocate(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->more[1], 0, NULL), BERTH_OK);
    berth_allocator_release(f->a);
}

static void tear_down_block(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->more[0], 0, NULL), BERTH_OK);
    berth_allocator_release(f->a);
}

static berth_status init_element(void *element, void *context)
{
    (void)context;
    *(int *)element = 7;
    return BERTH_OK;
}

static void fini_element(void *element, void *context)
{
    (void)context;
    assert_int_equal(*(int *)element, 7);
}

static const berth_type int_type = {.struct_size = sizeof int_type,
                                    .name = "int",
                                    .size_bytes = sizeof(int),
                                    .init = init_element,
                                    .fini = fini_element};

static berth_status run_allocate_array(struct fault *f)
{
    return berth_allocate_array(f->a, &int_type, 20, NULL, &f->result);
}

static void undo_allocate_array(struct fault *f)
{
    assert_int_equal(berth_deallocate_array(f->a, &int_type, f->result, 20, NULL), BERTH_OK);
}

static berth_status run_stats(struct fault *f)
{
    berth_stats stats = {.struct_size = sizeof stats};
    return berth_stats_get(f->a, &stats);
}

static berth_status run_clear(struct fault *f)
{
    return berth_stats_clear(f->a);
}

static berth_status run_trim(struct fault *f)
{
    return berth_trim(f->a, 0, NULL);
}

static bool see_block(void *context, const berth_block *block)
{
    (void)block;
    ++*(int *)context;
    return true;
}

static berth_status run_snapshot(struct fault *f)
{
    int seen = 0;
    berth_status status = berth_snapshot(f->a, see_block, &seen);
    assert_int_equal(seen, status == BERTH_OK ? 500 : 0);
    return status;
}

static bool see_leak(void *context, const berth_leak *leak)
{
    assert_non_null(leak->address);
    ++*(int *)context;
    return true;
}

static berth_status run_visit_leaks(struct fault *f)
{
    int seen = 0;
    berth_status status = berth_tracking_visit_leaks(f->a, see_leak, &seen);
    assert_int_equal(seen, status == BERTH_OK ? 1 : 0);
    return status;
}

static void set_up_leak(struct fault *f)
{
    set_up_stacks(f);
    assert_int_equal(berth_allocate(f->a, 100, 64, NULL, &f->more[0]), BERTH_OK);
}

static void hear_nothing(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

static berth_status run_report_leaks(struct fault *f)
{
    size_t count = 0;
    berth_log_set(hear_nothing, NULL, BERTH_LOG_WARNING);
    berth_status status = berth_tracking_report_leaks(f->a, &count);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_int_equal(count, status == BERTH_OK ? 1 : 0);
    return status;
}

/* ---- The registry ----------------------------------------------------------------------------------------
 */

static berth_status factory(void *context, berth_allocator **out)
{
    (void)context;
    return berth_cpu_allocator_create(NULL, out);
}

static berth_status run_registry_add(struct fault *f)
{
    (void)f;
    berth_registration r = {.struct_size = sizeof r,
                            .name = "swept",
                            .priority = 200,
                            /* above the pool, which is there however the test is linked */ .factory =
                                factory};
    return berth_registry_add(&r);
}

static void remove_swept(struct fault *f)
{
    (void)f;
    assert_int_equal(berth_registry_remove("swept", 200), BERTH_OK);
}

static void add_swept(struct fault *f)
{
    assert_int_equal(run_registry_add(f), BERTH_OK);
}

static berth_status run_registry_get(struct fault *f)
{
    (void)f;
    berth_allocator *a = NULL;
    return berth_registry_get("swept", 200, &a);
}

static berth_status run_registry_best(struct fault *f)
{
    (void)f;
    berth_allocator *a = NULL;
    berth_status status = berth_registry_best(&a);
    assert_int_equal(a != NULL, status == BERTH_OK);
    return status;
}

static bool see_registration(void *context, const berth_registration *r)
{
    (void)context;
    assert_non_null(r->name);
    return true;
}

static berth_status run_registry_visit(struct fault *f)
{
    (void)f;
    return berth_registry_visit(see_registration, NULL);
}

static const fault_case cases[] = {
    {"berth_cpu_allocator_create", NULL, run_cpu_create, undo_create, NULL},
    {"berth_cpu_allocator_create, full", NULL, run_cpu_create_full, undo_create, NULL},
    {"berth_fixed_allocator_create", NULL, run_fixed_create, undo_create, NULL},
    {"berth_allocator_create", NULL, run_allocator_create, undo_create, NULL},
    {"berth_wrapper_create", set_up_system, run_wrapper_create, undo_create, release_a},
    {"berth_tracking_create", set_up_system, run_tracking_create, undo_create, release_a},
    {"berth_allocate, system", set_up_system, run_allocate, undo_allocate, release_a},
    {"berth_allocate, full", set_up_full, run_allocate, undo_allocate, release_a},
    {"berth_allocate, stacks", set_up_stacks, run_allocate, undo_allocate, release_a},
    {"berth_allocate, totals", set_up_totals, run_allocate, undo_allocate_on_shared, release_a},
    {"berth_allocate, 501st", set_up_many, run_allocate, undo_allocate_on_shared, tear_down_many},
    {"berth_deallocate", set_up_block, run_deallocate, NULL, release_a},
    {"berth_reallocate", set_up_reallocate, run_reallocate, undo_reallocate, tear_down_reallocate},
    {"berth_allocate_array", set_up_full, run_allocate_array, undo_allocate_array, release_a},
    {"berth_stats_get", set_up_block, run_stats, NULL, tear_down_block},
    {"berth_stats_clear", set_up_block, run_clear, NULL, tear_down_block},
    {"berth_trim", set_up_block, run_trim, NULL, tear_down_block},
    {"berth_snapshot", set_up_many, run_snapshot, NULL, tear_down_many},
    {"berth_tracking_visit_leaks", set_up_leak, run_visit_leaks, NULL, tear_down_block},
    {"berth_tracking_report_leaks", set_up_leak, run_report_leaks, NULL, tear_down_block},
    {"berth_registry_add", NULL, run_registry_add, remove_swept, NULL},
    {"berth_registry_get", add_swept, run_registry_get, NULL, remove_swept},
    {"berth_registry_best", add_swept, run_registry_best, NULL, remove_swept},
    {"berth_registry_visit", add_swept, run_registry_visit, NULL, remove_swept},
};

FAULT_MAIN(cases)

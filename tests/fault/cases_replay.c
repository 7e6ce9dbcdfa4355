/* The fault sweep over plans, the planned allocator, its scopes and the plan cache. */
#include <stdio.h>
#include <unistd.h>

#include "fault.h"

/* ---- What most cases work on: a planned allocator over memory that cannot fail this way -----------------
 */

static berth_status plain_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    (void)self, (void)request;
    return posix_memalign(out, alignment < 8 ? 8 : alignment, size_bytes) == 0 ? BERTH_OK
                                                                               : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status plain_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes, (void)stream;
    free(p);
    return BERTH_OK;
}

static void plain_destroy(void *self)
{
    (void)self;
}

enum { PLANNED, PLAN, INNER, CACHE };

static berth_allocator *planned(struct fault *f)
{
    return f->more[PLANNED];
}

static void set_up(struct fault *f)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = plain_allocate,
                                     .deallocate = plain_deallocate,
                                     .destroy = plain_destroy};
    assert_int_equal(berth_allocator_create(&ops, NULL, (berth_allocator **)&f->more[INNER]), BERTH_OK);
    assert_int_equal(berth_plan_create((berth_plan **)&f->more[PLAN]), BERTH_OK);
    assert_int_equal(
        berth_planned_create(f->more[INNER], f->more[PLAN], (berth_allocator **)&f->more[PLANNED]), BERTH_OK);
    assert_int_equal(berth_plan_cache_create(1 << 20, (berth_plan_cache **)&f->more[CACHE]), BERTH_OK);
}

static void tear_down(struct fault *f)
{
    assert_null(berth_run_current());
    berth_plan_cache_destroy(f->more[CACHE]);
    berth_allocator_release(f->more[PLANNED]);
    berth_plan_release(f->more[PLAN]);
    berth_allocator_release(f->more[INNER]);
}

/* A run must not notice that bookkeeping has no memory. */
static void work(struct fault *f, size_t more)
{
    void *p[40];
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(berth_allocate(planned(f), 64 * (i + 1) + more, 64, NULL, &p[i]), BERTH_OK);
    for (size_t i = 0; i < 40; i += 2)
        assert_int_equal(berth_deallocate(planned(f), p[i], 0, NULL), BERTH_OK);
    for (size_t i = 0; i < 40; i += 2)
        assert_int_equal(berth_allocate(planned(f), 64 * (i + 1), 64, NULL, &p[i]), BERTH_OK);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(berth_deallocate(planned(f), p[i], 0, NULL), BERTH_OK);
}

static void set_up_recorded(struct fault *f)
{
    set_up(f);
    assert_int_equal(berth_record_begin(planned(f), NULL), BERTH_OK);
    work(f, 0);
    assert_int_equal(berth_record_end(planned(f)), BERTH_OK);
}

/* ---- Making things ---------------------------------------------------------------------------------------
 */

static berth_status run_plan_create(struct fault *f)
{
    return berth_plan_create((berth_plan **)&f->result);
}

static void undo_plan(struct fault *f)
{
    berth_plan_release(f->result);
}

static berth_status run_planned_create(struct fault *f)
{
    return berth_planned_create(f->more[INNER], f->more[PLAN], (berth_allocator **)&f->result);
}

static void undo_allocator(struct fault *f)
{
    berth_allocator_release(f->result);
}

static berth_status run_plan_set(struct fault *f)
{
    berth_plan_allocation a[3] = {BERTH_PLAN_ALLOCATION_INIT, BERTH_PLAN_ALLOCATION_INIT,
                                  BERTH_PLAN_ALLOCATION_INIT};
    for (size_t i = 0; i < 3; i++) {
        a[i].size_bytes = 100;
        a[i].freed_at = i + 1;
        a[i].label = "x";
    }
    berth_status status = berth_plan_set(f->more[PLAN], a, 3, NULL);
    assert_int_equal(berth_plan_count(f->more[PLAN]), status == BERTH_OK ? 3 : 0);
    return status;
}

static berth_status run_plan_solve(struct fault *f)
{
    berth_status status = berth_plan_solve(f->more[PLAN], NULL);
    assert_int_equal(berth_plan_count(f->more[PLAN]), 60); /* as it was, whatever happened */
    return status;
}

static berth_status run_plan_place(struct fault *f)
{
    uint64_t offsets[60];
    for (size_t i = 0; i < 60; i++) {
        berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
        assert_int_equal(berth_plan_get(f->more[PLAN], i, &a), BERTH_OK);
        offsets[i] = a.offset;
    }
    berth_status status = berth_plan_place(f->more[PLAN], offsets, 60);
    assert_int_equal(berth_plan_count(f->more[PLAN]), 60); /* as it was, whatever happened */
    return status;
}

static berth_status run_plan_join(struct fault *f)
{
    berth_plan *parts[2] = {f->more[PLAN], f->more[PLAN]};
    berth_status status = berth_plan_join(f->more[PLAN], parts, 2, NULL);
    assert_int_equal(berth_plan_count(f->more[PLAN]), 60);
    return status;
}

static const char *file_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "fault_replay.%ld.csv", (long)getpid());
    return name;
}

static berth_status run_plan_save(struct fault *f)
{
    return berth_plan_save(f->more[PLAN], file_name());
}

static void undo_save(struct fault *f)
{
    (void)f;
    unlink(file_name());
}

static void set_up_saved(struct fault *f)
{
    set_up_recorded(f);
    assert_int_equal(berth_plan_save(f->more[PLAN], file_name()), BERTH_OK);
}

static berth_status run_plan_load(struct fault *f)
{
    berth_status status = berth_plan_load(f->more[PLAN], file_name());
    assert_int_equal(berth_plan_count(f->more[PLAN]), status == BERTH_OK ? 60 : 0);
    return status;
}

static void tear_down_saved(struct fault *f)
{
    unlink(file_name());
    tear_down(f);
}

/* ---- Scopes ----------------------------------------------------------------------------------------------
 */

static berth_status run_record(struct fault *f)
{
    berth_status status = berth_record_begin(planned(f), NULL);
    if (status != BERTH_OK)
        return status;
    work(f, 0);
    status = berth_record_end(planned(f));
    assert_int_equal(berth_plan_count(f->more[PLAN]), status == BERTH_OK ? 60 : 0);
    return status;
}

static berth_status run_validate(struct fault *f)
{
    berth_status status = berth_validate_begin(planned(f), NULL);
    if (status != BERTH_OK)
        return status;
    work(f, 0);
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    return berth_validate_end(planned(f), &difference);
}

static berth_status run_replay(struct fault *f)
{
    berth_status status = berth_replay_begin(planned(f), NULL);
    if (status != BERTH_OK)
        return status;
    work(f, 0);
    berth_report report = BERTH_REPORT_INIT;
    status = berth_replay_end(planned(f), &report);
    assert_int_equal(report.from_plan, 60);
    return status;
}

/* Everything is larger than planned: the fallback serves, and its table wants memory. */
static berth_status run_replay_by_fallback(struct fault *f)
{
    berth_status status = berth_replay_begin(planned(f), NULL);
    if (status != BERTH_OK)
        return status;
    work(f, 1);
    return berth_replay_end(planned(f), NULL);
}

/* ---- The cache -------------------------------------------------------------------------------------------
 */

static berth_status run_cache_create(struct fault *f)
{
    return berth_plan_cache_create(1000, (berth_plan_cache **)&f->result);
}

static void undo_cache(struct fault *f)
{
    berth_plan_cache_destroy(f->result);
}

static berth_status run_cache_put(struct fault *f)
{
    return berth_plan_cache_put(f->more[CACHE], "key", 3, f->more[PLAN]);
}

static berth_status run_cached(struct fault *f)
{
    for (int i = 0; i < 2; i++) {
        berth_status status = berth_cached_begin(planned(f), f->more[CACHE], "key", 3, NULL);
        if (status != BERTH_OK)
            return status;
        work(f, 0);
        status = berth_cached_end(planned(f), NULL);
        if (status != BERTH_OK)
            return status;
    }
    return BERTH_OK;
}

static const fault_case cases[] = {
    {"berth_plan_create", NULL, run_plan_create, undo_plan, NULL},
    {"berth_planned_create", set_up, run_planned_create, undo_allocator, tear_down},
    {"berth_plan_set", set_up, run_plan_set, NULL, tear_down},
    {"berth_plan_solve", set_up_recorded, run_plan_solve, NULL, tear_down},
    {"berth_plan_place", set_up_recorded, run_plan_place, NULL, tear_down},
    {"berth_plan_join", set_up_recorded, run_plan_join, NULL, tear_down},
    {"berth_plan_save", set_up_recorded, run_plan_save, undo_save, tear_down},
    {"berth_plan_load", set_up_saved, run_plan_load, NULL, tear_down_saved},
    {"a record scope", set_up, run_record, NULL, tear_down},
    {"a validate scope", set_up_recorded, run_validate, NULL, tear_down},
    {"a replay scope", set_up_recorded, run_replay, NULL, tear_down},
    {"a replay scope by fallback", set_up_recorded, run_replay_by_fallback, NULL, tear_down},
    {"berth_plan_cache_create", NULL, run_cache_create, undo_cache, NULL},
    {"berth_plan_cache_put", set_up_recorded, run_cache_put, NULL, tear_down},
    {"a cached scope", set_up, run_cached, NULL, tear_down},
};

FAULT_MAIN(cases)

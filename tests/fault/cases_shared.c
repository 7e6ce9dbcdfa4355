/* Shared arenas: want of memory leaves neither memory nor a descriptor. */
#include <fcntl.h>
#include <unistd.h>

#include "fault.h"

static size_t descriptors(void)
{
    size_t count = 0;
    for (int i = 0; i < 64; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void make_plan(struct fault *f)
{
    static const berth_plan_allocation buffers[] = {
        {sizeof(berth_plan_allocation), 100, 64, 2, BERTH_NO_OFFSET, "a"},
        {sizeof(berth_plan_allocation), 300, 1 << 20, 2, BERTH_NO_OFFSET, "b"},
    };
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, buffers, 2, NULL), BERTH_OK);
    f->more[0] = plan;
    f->more[1] = (void *)(uintptr_t)descriptors();
}

static void make_arena(struct fault *f)
{
    make_plan(f);
    berth_shared *s = NULL;
    assert_int_equal(berth_shared_create(f->more[0], NULL, &s), BERTH_OK);
    f->more[2] = s;
    assert_int_equal(berth_cpu_allocator_create(NULL, (berth_allocator **)&f->more[3]), BERTH_OK);
    f->more[1] = (void *)(uintptr_t)descriptors();
}

/* What a failure may not leave behind. */
static berth_status count_descriptors(const struct fault *f, berth_status status)
{
    if (status != BERTH_OK)
        assert_int_equal(descriptors(), (uintptr_t)f->more[1]);
    return status;
}

static void drop(struct fault *f)
{
    berth_allocator_release(f->more[3]);
    berth_shared_release(f->more[2]);
    berth_plan_release(f->more[0]);
}

static berth_status run_create(struct fault *f)
{
    berth_shared *s = NULL;
    berth_status status = count_descriptors(f, berth_shared_create(f->more[0], NULL, &s));
    f->result = s;
    return status;
}

static berth_status run_attach(struct fault *f)
{
    int descriptor = -1;
    berth_shared *s = NULL;
    assert_int_equal(berth_shared_descriptor(f->more[2], BERTH_SHARED_READ, &descriptor), BERTH_OK);
    berth_status status = berth_shared_attach(descriptor, NULL, &s);
    close(descriptor);
    f->result = s;
    return count_descriptors(f, status);
}

static berth_status run_plan(struct fault *f)
{
    berth_plan *plan = NULL;
    berth_status status = berth_shared_plan(f->more[2], &plan);
    f->result = plan;
    return status;
}

static berth_status run_allocator(struct fault *f)
{
    berth_allocator *a = NULL;
    berth_status status = berth_shared_allocator_create(f->more[2], f->more[3], &a);
    f->result = a;
    return status;
}

static void undo_shared(struct fault *f)
{
    berth_shared_release(f->result);
}

static void undo_plan(struct fault *f)
{
    berth_plan_release(f->result);
}

static void undo_allocator(struct fault *f)
{
    berth_allocator_release(f->result);
}

static const fault_case cases[] = {
    {"berth_shared_create", make_plan, run_create, undo_shared, drop},
    {"berth_shared_attach", make_arena, run_attach, undo_shared, drop},
    {"berth_shared_plan", make_arena, run_plan, undo_plan, drop},
    {"berth_shared_allocator_create", make_arena, run_allocator, undo_allocator, drop},
};
FAULT_MAIN(cases)
